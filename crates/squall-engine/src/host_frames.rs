//! Frames of a replay between hosts: each conversation begins from the hosts that are next in turn,
//! and ends if one of them loses its address.

use std::{collections::HashMap, net::IpAddr, ops::Range, sync::Arc};

use squall_edit::set_addresses;
use squall_host::{BoundHost, HostTable, PPPOE_SESSION};
use squall_plan::ReplayHosts;
use squall_replay::{Chunk, Departure, Progress};
use squall_units::{Picos, get_be16};

use crate::hosts::HostTables;

/// Reasons for which frames do not leave, in the words of flows: no host had an address when the
/// conversation began; its host has lost the address since; its access concentrator has no session
/// with the other end.
const NO_HOST: &str = "no_host";
const ADDRESS_LOST: &str = "address_lost";
const NO_SESSION: &str = "no_session";

/// The hosts of a conversation, and what became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostedConversation {
    /// Addresses of the ends that are hosts, if the conversation began.
    pub client: Option<IpAddr>,
    pub server: Option<IpAddr>,
    /// Number of its frames that have left, and when the last of them was due, in the schedule of
    /// the replay.
    pub sent: u32,
    pub last: Picos,
    /// Why some or all of its frames did not leave: `no_host`, `address_lost` or `no_session`.
    pub unsent: Option<&'static str>,
}

/// Gives the frames of a replay their hosts. While it is in use, hosts keep their addresses at the
/// end of the run.
pub(crate) struct HostFrames {
    /// The groups of the clients and of the servers, if these are hosts.
    groups: [Option<Group>; 2],
    conversations: HashMap<u64, Conversation>,
    /// Octets of a frame as it left.
    copy: Vec<u8>,
}

/// A reader of a table.
struct Group {
    table: Arc<HostTable>,
    at: u32,
    in_use: bool,
}

struct Conversation {
    /// Client and server, as they were when the last frame left.
    hosts: [Option<BoundHost>; 2],
    unsent: Option<&'static str>,
    sent: u32,
    last: Picos,
}

impl HostFrames {
    /// # Panics
    /// If a group has no table: the plan has checked that the hosts are on this node.
    pub fn new(hosts: ReplayHosts, tables: &HostTables) -> Self {
        let group = |number: usize| {
            let table = tables[number].clone().expect("the hosts of a replay are on its node");
            table.begin_use();
            Group { table, at: 0, in_use: true }
        };
        let groups = [hosts.clients.map(group), hosts.servers.map(group)];
        Self { groups, conversations: HashMap::new(), copy: Vec::new() }
    }

    /// Why a frame cannot leave; `None`: it can.
    pub fn missing(&mut self, frame: &[u8]) -> Option<&'static str> {
        let (number, _) = ReplayHosts::conversation(frame);
        self.hosts_of(number).err()
    }

    /// Gives a frame the addresses of its hosts. Returns false if it cannot leave.
    pub fn address(&mut self, frame: &mut [u8]) -> bool {
        let (number, from_client) = ReplayHosts::conversation(frame);
        let Ok(hosts) = self.hosts_of(number) else { return false };
        put(frame, from_client, hosts);
        true
    }

    /// The hosts of a conversation, which begins now if it has not. The error is the reason for
    /// which its frames cannot leave.
    fn hosts_of(&mut self, number: u64) -> Result<[Option<BoundHost>; 2], &'static str> {
        let Self { groups, conversations, .. } = self;
        let conversation =
            conversations.entry(number).or_insert_with(|| Conversation::begin(groups));
        if let Some(reason) = conversation.unsent {
            return Err(reason);
        }
        for (host, group) in conversation.hosts.iter_mut().zip(groups.iter()) {
            let (Some(host), Some(group)) = (host, group) else { continue };
            let now = group.table.get(host.number).filter(|now| now.address == host.address);
            let Some(now) = now else {
                conversation.unsent = Some(ADDRESS_LOST);
                return Err(ADDRESS_LOST);
            };
            // The gateway may have another MAC address by now.
            *host = now;
        }
        // An access concentrator has a session, and a next hop, for each of its clients.
        let addresses = conversation.hosts.map(|host| host.map(|host| host.address));
        let others = [addresses[1], addresses[0]];
        for ((host, group), other) in conversation.hosts.iter_mut().zip(groups.iter()).zip(others) {
            let (Some(host), Some(group), Some(other)) = (host, group, other) else { continue };
            let Some(path) = group.table.path(*host, other) else {
                conversation.unsent = Some(NO_SESSION);
                return Err(NO_SESSION);
            };
            *host = path;
        }
        Ok(conversation.hosts)
    }

    /// Counts the frames of `chunk` that have left.
    pub fn count(&mut self, chunk: &Chunk) {
        let left = |(_, frame): &(usize, &Departure)| frame.progress == Progress::Left;
        for (i, frame) in chunk.departures.iter().enumerate().filter(left) {
            let (number, _) = ReplayHosts::conversation(chunk.frame(i));
            if let Some(conversation) = self.conversations.get_mut(&number) {
                conversation.sent += 1;
                conversation.last = conversation.last.max(frame.due);
            }
        }
    }

    /// The octets with which a frame of the replay has left.
    pub fn as_sent(&mut self, frame: &[u8]) -> &[u8] {
        self.copy.clear();
        self.copy.extend_from_slice(frame);
        let (number, from_client) = ReplayHosts::conversation(frame);
        if let Some(conversation) = self.conversations.get(&number) {
            put(&mut self.copy, from_client, conversation.hosts);
        }
        &self.copy
    }

    /// Nothing leaves any more, so the hosts may give their addresses back.
    pub fn release(&mut self) {
        for group in self.groups.iter_mut().flatten() {
            if std::mem::take(&mut group.in_use) {
                group.table.end_use();
            }
        }
    }

    /// All conversations that were due, by their numbers.
    pub fn conversations(&self) -> HashMap<u64, HostedConversation> {
        let of = |(number, of): (&u64, &Conversation)| {
            let [client, server] = of.hosts.map(|host| Some(host?.address));
            let Conversation { sent, last, unsent, .. } = *of;
            (*number, HostedConversation { client, server, sent, last, unsent })
        };
        self.conversations.iter().map(of).collect()
    }
}

impl Drop for HostFrames {
    fn drop(&mut self) {
        self.release();
    }
}

impl Conversation {
    fn begin(groups: &mut [Option<Group>; 2]) -> Self {
        let (mut hosts, mut unsent) = ([None; 2], None);
        for (host, group) in hosts.iter_mut().zip(groups) {
            let Some(group) = group else { continue };
            *host = group.table.next(&mut group.at);
            if host.is_none() {
                unsent = Some(NO_HOST);
            }
        }
        Self { hosts, unsent, sent: 0, last: Picos(0) }
    }
}

/// Writes the addresses of the hosts into a frame. A host sends through its gateway, or in its
/// session. To a host, other ends send directly, or in its session as its access concentrator.
fn put(frame: &mut [u8], from_client: bool, [client, server]: [Option<BoundHost>; 2]) {
    let (sender, receiver, own) = match from_client {
        true => (client, server, ReplayHosts::CLIENT),
        false => (server, client, ReplayHosts::SERVER),
    };
    let session = session_field(frame);
    let (to, from, number) = match (sender, receiver) {
        (Some(sender), _) => (sender.next_hop, sender.mac, sender.session),
        // The next hop of a client of PPPoE is the other end of its session.
        (None, Some(host)) if session.is_some() => (host.mac, host.next_hop, host.session),
        (None, Some(host)) => (host.mac, own, 0),
        (None, None) => unreachable!("one end is a host"),
    };
    frame[..6].copy_from_slice(&to.0);
    frame[6..12].copy_from_slice(&from.0);
    if let Some(field) = session {
        frame[field].copy_from_slice(&number.to_be_bytes());
    }
    set_addresses(frame, sender.map(|host| host.address), receiver.map(|host| host.address));
}

/// Where a frame has the number of its session of PPPoE (RFC 2516 section 4), if it is in one.
fn session_field(frame: &[u8]) -> Option<Range<usize>> {
    let mut at = 12;
    loop {
        match get_be16(frame, at)? {
            0x8100 | 0x88a8 => at += 4,
            PPPOE_SESSION => return Some(at + 4..at + 6).filter(|field| field.end <= frame.len()),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use squall_units::MacAddr;

    use super::*;

    const GATEWAY: MacAddr = MacAddr([2, 9, 0, 0, 0, 9]);

    fn table(kind: u8) -> Arc<HostTable> {
        Arc::new(HostTable::new(4, (MacAddr([2, kind, 0, 0, 0, 1]), 1), &[]))
    }

    fn address(kind: u8, host: u32) -> IpAddr {
        [10, kind, 0, host as u8 + 1].into()
    }

    fn hosts(clients: bool, servers: bool) -> ([Arc<HostTable>; 2], HostFrames) {
        let tables = [table(1), table(2)];
        let shared: HostTables = tables.iter().cloned().map(Some).collect();
        let of = ReplayHosts { clients: clients.then_some(0), servers: servers.then_some(1) };
        (tables, HostFrames::new(of, &shared))
    }

    /// A frame of UDP between the placeholders 198.18.0.1 and 198.19.0.1.
    fn frame(number: u64, from_client: bool) -> Vec<u8> {
        let (client, server) = (ReplayHosts::CLIENT.0, ReplayHosts::server_mac(number).0);
        let ends = ([198, 18, 0, 1], [198, 19, 0, 1]);
        let ((src, dst), macs) = match from_client {
            true => (ends, [server, client]),
            false => ((ends.1, ends.0), [client, server]),
        };
        let ip = [0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
        let udp = [0, 7, 0, 9, 0, 8, 0, 0];
        [&macs.concat()[..], &[8, 0], &ip, &src, &dst, &udp].concat()
    }

    fn ends(frame: &[u8]) -> (IpAddr, IpAddr) {
        let address = |at: usize| <[u8; 4]>::try_from(&frame[at..at + 4]).unwrap().into();
        (address(26), address(30))
    }

    #[test]
    fn a_conversation_keeps_its_host_and_the_next_one_has_the_next() {
        let ([clients, _], mut hosts) = hosts(true, false);
        for host in [0, 3] {
            clients.bind(host, address(1, host), GATEWAY);
        }
        for (number, host) in [(5, 0), (6, 3), (5, 0), (7, 0)] {
            let (mut there, mut back) = (frame(number, true), frame(number, false));
            assert!(hosts.address(&mut there) && hosts.address(&mut back));
            assert_eq!(ends(&there), (address(1, host), [198, 19, 0, 1].into()));
            assert_eq!(ends(&back), ([198, 19, 0, 1].into(), address(1, host)));
            let mac = [2, 1, 0, 0, 0, host as u8 + 1];
            assert_eq!((&there[..6], &there[6..12]), (&GATEWAY.0[..], &mac[..]));
            assert_eq!((&back[..6], &back[6..12]), (&mac[..], &ReplayHosts::SERVER.0[..]));
            assert_eq!(hosts.as_sent(&frame(number, true)), there);
        }
    }

    #[test]
    fn both_ends_send_through_their_gateways() {
        let ([clients, servers], mut hosts) = hosts(true, true);
        clients.bind(1, address(1, 1), GATEWAY);
        let mut there = frame(0, true);
        assert_eq!(hosts.missing(&there), Some("no_host"), "there is no server");
        let other = MacAddr([2, 9, 0, 0, 0, 8]);
        servers.bind(2, address(2, 2), other);
        assert!(!hosts.address(&mut there), "it did not begin when it was due");
        let (mut there, mut back) = (frame(1, true), frame(1, false));
        assert!(hosts.address(&mut there) && hosts.address(&mut back));
        assert_eq!(ends(&there), (address(1, 1), address(2, 2)));
        assert_eq!((&there[..6], &back[..6]), (&GATEWAY.0[..], &other.0[..]));
        assert_eq!((there[7], back[7]), (1, 2), "the MAC addresses of the hosts");
    }

    /// The frame in session 0, with a VLAN tag.
    fn in_session(frame: &[u8]) -> Vec<u8> {
        let headers = [0x81, 0, 0, 7, 0x88, 0x64, 0x11, 0, 0, 0, 0, 30, 0, 0x21];
        [&frame[..12], &headers, &frame[14..]].concat()
    }

    #[test]
    fn frames_are_in_the_session_of_their_host_in_both_directions() {
        let ([clients, _], mut hosts) = hosts(true, false);
        clients.bind_in_session(2, address(1, 2), GATEWAY, 0xfffe);
        let [mut there, mut back] = [true, false].map(|from| in_session(&frame(0, from)));
        assert!(hosts.address(&mut there) && hosts.address(&mut back));
        let mac = [2, 1, 0, 0, 0, 3];
        for (frame, to, from) in [(&there, &GATEWAY.0, &mac), (&back, &mac, &GATEWAY.0)] {
            assert_eq!((&frame[..6], &frame[6..12]), (&to[..], &from[..]));
            assert_eq!(frame[12..20], [0x81, 0, 0, 7, 0x88, 0x64, 0x11, 0]);
            assert_eq!(frame[20..26], [0xff, 0xfe, 0, 30, 0, 0x21]);
        }
        assert_eq!(there[38..42], [10, 1, 0, 3]);
        assert_eq!(back[42..46], [10, 1, 0, 3]);
        // The host begins again, with the same address: another session.
        clients.bind_in_session(2, address(1, 2), GATEWAY, 9);
        let mut there = in_session(&frame(0, true));
        assert!(hosts.address(&mut there));
        assert_eq!(there[20..22], [0, 9]);
    }

    #[test]
    fn a_concentrator_sends_in_the_session_of_the_client_and_not_without_one() {
        let clients = table(1);
        let first = std::net::Ipv4Addr::new(10, 1, 0, 1);
        let servers = HostTable::new(1, (GATEWAY, 1), &[]).with_sessions(first, 4);
        let servers = Arc::new(servers);
        let shared: HostTables = [Some(clients.clone()), Some(servers.clone())].into();
        let groups = ReplayHosts { clients: Some(0), servers: Some(1) };
        let mut hosts = HostFrames::new(groups, &shared);
        servers.bind(0, address(9, 0), GATEWAY);
        for host in [0, 1] {
            clients.bind_in_session(host, address(1, host), GATEWAY, 7 + host as u16);
        }
        let mac = MacAddr([2, 1, 0, 0, 0, 1]);
        servers.set_session(first, Some((mac, 7)));
        let mut back = in_session(&frame(0, false));
        assert!(hosts.address(&mut back));
        assert_eq!((&back[..6], &back[6..12]), (&mac.0[..], &GATEWAY.0[..]));
        assert_eq!(back[20..22], [0, 7]);
        // The other client has no session there, and the first one loses its own.
        assert_eq!(hosts.missing(&frame(1, true)), Some("no_session"));
        assert_eq!(hosts.missing(&frame(0, true)), None);
        servers.set_session(first, None);
        assert_eq!(hosts.missing(&frame(0, true)), Some("no_session"));
        let all = hosts.conversations();
        assert_eq!([0, 1].map(|number| all[&number].unsent), [Some("no_session"); 2]);
    }

    #[test]
    fn a_lost_address_ends_the_conversations_of_its_host_alone() {
        let ([clients, _], mut hosts) = hosts(true, false);
        for host in [0, 1] {
            clients.bind(host, address(1, host), GATEWAY);
        }
        let mut chunk = Chunk::default();
        for number in [0, 1, 0, 1] {
            let lost = chunk.departures.len() == 2;
            if lost {
                clients.unbind(0);
                // An address that the conversation does not have.
                clients.bind(0, address(1, 9), GATEWAY);
            }
            let octets = frame(number, true);
            let missing = hosts.missing(&octets);
            assert_eq!(missing, lost.then_some("address_lost"));
            chunk.departures.push(Departure {
                due: Picos(chunk.departures.len() as u64 + 1),
                time_ns: 0,
                offset: chunk.octets.len() as u32,
                len: octets.len() as u32,
                flow: Default::default(),
                port: 0,
                rests: false,
                truncated: false,
                progress: if lost { Progress::Failed } else { Progress::Left },
            });
            chunk.octets.extend(octets);
        }
        hosts.count(&chunk);
        let all = hosts.conversations();
        let of = |number: u64| (all[&number].sent, all[&number].last, all[&number].unsent);
        assert_eq!(of(0), (1, Picos(1), Some("address_lost")));
        assert_eq!(of(1), (2, Picos(4), None));
        assert_eq!(all[&0].client, Some(address(1, 0)));
        assert!(clients.is_in_use());
        hosts.release();
        hosts.release();
        assert!(!clients.is_in_use());
    }
}
