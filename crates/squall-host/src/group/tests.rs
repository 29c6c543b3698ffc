//! Groups that talk to each other, in virtual time.

use proptest::prelude::*;
use squall_units::SplitMix64;

use std::{collections::BTreeSet, sync::Arc};

use super::*;
use crate::{
    CdpSettings, DhcpBegin, EAPOL, GroupVersion, Host, LldpSettings, MembershipTimers,
    OptionTemplate, PPP_IPV4, PppAuth, PppSettings, PppoeClientSettings, PppoeFrame,
    PppoeServerSettings, QuerierSettings, SourceFilter, SupplicantSettings, ValueTemplate,
};

pub(super) const BEGIN: Nanos = Nanos(5_000_000_000);

pub(super) fn seconds(seconds: f64) -> Nanos {
    Nanos((seconds * 1e9) as u64)
}

/// Hosts with these addresses, whose MAC addresses begin with 02:00:00:`third`.
pub(super) fn settings(count: u32, third: u8, addressing: Addressing) -> GroupSettings {
    GroupSettings {
        count,
        mac: MacAddr([2, 0, 0, third, 0, 1]),
        addressing,
        seed: 7,
        ..GroupSettings::default()
    }
}

fn dhcp(count: u32) -> GroupSettings {
    settings(count, 1, Addressing::Dhcp(DhcpTimers::default()))
}

pub(super) fn fixed(count: u32, third: u8, first: [u8; 4]) -> GroupSettings {
    settings(count, third, Addressing::Static { first: first.into(), prefix: 16 })
}

fn server(addresses: u32) -> GroupSettings {
    let server = ServerSettings {
        address: [10, 0, 0, 1].into(),
        prefix: 16,
        router: Some([10, 0, 0, 1].into()),
        first: [10, 0, 1, 0].into(),
        count: addresses,
        lease: 1000,
        ..ServerSettings::default()
    };
    GroupSettings { server: Some(server), ..fixed(1, 2, [10, 0, 0, 1]) }
}

fn ppp(auth: PppAuth) -> PppSettings {
    let (identity, password) = ("user{}".into(), "secret{}".into());
    PppSettings { auth, identity, password, ..PppSettings::default() }
}

fn pppoe(count: u32) -> GroupSettings {
    let client = PppoeClientSettings { ppp: ppp(PppAuth::Any), ..PppoeClientSettings::default() };
    let pppoe = Some(PppoeSettings::Client(client));
    GroupSettings { pppoe, ..settings(count, 1, Addressing::Ppp) }
}

fn concentrator(addresses: u32) -> GroupSettings {
    let server = PppoeServerSettings {
        ac_name: "ac".into(),
        service: String::new(),
        address: [10, 0, 0, 1].into(),
        first: [10, 0, 1, 0].into(),
        count: addresses,
        ppp: ppp(PppAuth::Chap),
    };
    GroupSettings { pppoe: Some(PppoeSettings::Server(server)), ..fixed(1, 2, [10, 0, 0, 1]) }
}

/// Groups on one link, whose frames reach all others after 1 ms unless they are lost.
pub(super) struct Link {
    pub(super) groups: Vec<HostGroup>,
    pub(super) now: Nanos,
    pub(super) random: SplitMix64,
    /// Percent.
    pub(super) loss: u64,
    pub(super) repeats: u64,
    frames: u64,
    /// Frames of the first group.
    sent: Vec<(Nanos, Vec<u8>)>,
}

impl Link {
    pub(super) fn of(settings: impl IntoIterator<Item = GroupSettings>) -> Self {
        let groups = settings.into_iter().map(|one| HostGroup::new(one, BEGIN)).collect();
        Self {
            groups,
            now: BEGIN,
            random: SplitMix64(9),
            loss: 0,
            repeats: 0,
            frames: 0,
            sent: Vec::new(),
        }
    }

    /// Goes on until `until`, or until all groups are settled and nothing is on the way.
    pub(super) fn run(&mut self, until: Option<Nanos>) {
        let mut queues: Vec<_> = self.groups.iter().map(|_| FrameQueue::default()).collect();
        loop {
            for (group, out) in self.groups.iter_mut().zip(&mut queues) {
                while group.advance(self.now, out) {}
            }
            let mut wire: Vec<(usize, Vec<u8>)> = Vec::new();
            for (from, out) in queues.iter_mut().enumerate() {
                while let Some((frame, _)) = out.first() {
                    self.frames += 1;
                    if from == 0 {
                        self.sent.push((self.now, frame.to_vec()));
                    }
                    if self.random.draw() % 100 >= self.loss {
                        let copies = 1 + u64::from(self.random.draw() % 100 < self.repeats);
                        for _ in 0..copies {
                            let at = self.random.draw() as usize % (wire.len() + 1);
                            let at = if self.repeats > 0 { at } else { wire.len() };
                            wire.insert(at, (from, frame.to_vec()));
                        }
                    }
                    out.pop();
                }
            }
            let any = !wire.is_empty();
            let due = self.groups.iter().filter_map(HostGroup::next_due).min();
            let settled = self.groups.iter().all(HostGroup::is_settled);
            if !any && until.is_none() && settled {
                return;
            }
            self.now = match any {
                true => self.now + Nanos(1_000_000),
                false => due.unwrap_or(Nanos(u64::MAX)).max(self.now),
            };
            if until.is_some_and(|until| self.now > until) {
                self.now = until.unwrap();
                return;
            }
            assert!(any || due.is_some(), "nothing is due, and hosts are not settled");
            for (from, frame) in wire {
                for (to, group) in self.groups.iter_mut().enumerate().filter(|to| to.0 != from) {
                    group.receive(self.now, (&frame, false), &mut queues[to]);
                }
            }
        }
    }

    /// The frames of the first group.
    pub(super) fn sent_frames(&self) -> Vec<Vec<u8>> {
        self.sent.iter().map(|(_, frame)| frame.clone()).collect()
    }

    pub(super) fn of_group(&self, group: usize) -> GroupStatistics {
        self.groups[group].statistics(true)
    }

    fn in_state(&self, group: usize, state: DhcpState) -> u64 {
        let states = self.of_group(group).states;
        states.iter().find(|(one, _)| *one == state).map_or(0, |(_, count)| *count)
    }

    /// The messages of DHCP in frames of the first group, with the source addresses of the frames
    /// and the datagrams.
    fn messages(&self) -> Vec<(MacAddr, Ipv4Addr, Message)> {
        let read = |(_, frame): &(Nanos, Vec<u8>)| {
            let datagram = Datagram::parse(frame.get(14..)?, false)?;
            let source = MacAddr(*frame[6..].first_chunk()?);
            Some((source, datagram.source, Message::parse(datagram.payload).ok()?))
        };
        self.sent.iter().filter_map(read).collect()
    }

    /// The ARP packets in frames of the first group.
    fn arps(&self) -> Vec<(Nanos, Arp)> {
        let read = |(at, frame): &(Nanos, Vec<u8>)| {
            let is_arp = frame[12..14] == [8, 6];
            is_arp.then(|| Arp::parse(&frame[14..])).flatten().map(|arp| (*at, arp))
        };
        self.sent.iter().filter_map(read).collect()
    }

    pub(super) fn stop(&mut self) {
        let now = self.now;
        self.groups.iter_mut().for_each(|group| group.stop(now));
        self.run(None);
    }
}

#[test]
fn each_client_gets_an_address_and_the_server_counts_the_same() {
    let mut link = Link::of([dhcp(1000), server(1000)]);
    link.run(None);
    let (clients, server) = (link.of_group(0), link.of_group(1));
    assert_eq!((clients.started, clients.bound), (1000, 1000));
    assert_eq!(clients.sent, BTreeMap::from([("discover", 1000), ("request", 1000)]));
    assert_eq!(clients.received, BTreeMap::from([("offer", 1000), ("ack", 1000)]));
    assert_eq!((clients.offer.count(), clients.dora.count()), (1000, 1000));
    assert_eq!((clients.offer.min(), clients.dora.max()), (2_000_000, 4_000_000));
    let (counters, leases) = server.server.unwrap();
    assert_eq!((counters.discovers, counters.acks, leases), (1000, 1000, 1000));
    let mut addresses: Vec<_> = (0..1000).map(|host| link.groups[0].address(host)).collect();
    addresses.sort();
    addresses.dedup();
    assert_eq!((addresses.len(), addresses.contains(&None)), (1000, false));
}

#[test]
fn hosts_start_at_their_rate_and_not_when_others_are_bound() {
    let mut link = Link::of([GroupSettings { setup: Some(100), ..dhcp(50) }]);
    link.run(Some(BEGIN + seconds(0.2)));
    assert_eq!(link.of_group(0).started, 21, "without any answer");
    link.run(Some(BEGIN + seconds(0.495)));
    assert_eq!(link.of_group(0).started, 50);
}

#[test]
fn hosts_without_a_server_fail_with_the_reason_after_five_messages() {
    let mut link = Link::of([dhcp(20)]);
    link.run(None);
    let counted = link.of_group(0);
    assert_eq!(counted.failed, BTreeMap::from([("no_offer", 20)]));
    assert_eq!((counted.sent["discover"], counted.retransmissions), (100, 80));
    let elapsed = (link.now - BEGIN).as_secs_f64();
    assert!((119.0..=129.0).contains(&elapsed), "4 + 8 + 16 + 32 + 64 s, not {elapsed}");
}

#[test]
fn hosts_for_which_the_server_has_no_address_fail_and_the_others_are_bound() {
    let mut link = Link::of([dhcp(30), server(10)]);
    link.run(None);
    assert_eq!(link.in_state(0, DhcpState::Failed), 20);
    assert_eq!(link.of_group(0).bound, 10);
    assert_eq!(link.of_group(1).server.unwrap().0.exhausted, 100);
}

#[test]
fn leases_are_renewed_at_half_their_time_and_released_at_the_end() {
    let mut link = Link::of([GroupSettings { release: true, ..dhcp(10) }, server(10)]);
    link.run(Some(BEGIN + seconds(1600.0)));
    let counted = link.of_group(0);
    assert_eq!((counted.renewed, counted.expired), (30, 0), "at 500, 1000 and 1500 s");
    link.stop();
    assert_eq!(link.of_group(0).sent["release"], 10);
    assert_eq!(link.of_group(1).server.unwrap().1, 0);
    assert_eq!(link.in_state(0, DhcpState::Released), 10);
}

#[test]
fn a_lease_ends_if_the_server_is_gone() {
    let mut link = Link::of([dhcp(5), server(10)]);
    link.run(Some(BEGIN + seconds(1.0)));
    link.groups.pop();
    link.run(Some(BEGIN + seconds(1005.0)));
    assert_eq!(link.of_group(0).expired, 5);
    assert!((0..5).all(|host| link.groups[0].address(host).is_none()));
}

/// Delivers a reply of a server with this MAC address. Returns what the group sends.
fn reply(group: &mut HostGroup, now: Nanos, from: MacAddr, message: &Message) -> FrameQueue {
    let (mut out, mut frame) = (FrameQueue::default(), Vec::new());
    begin_frame(&mut frame, (message.chaddr, from), &[], IPV4);
    message.write([10, 0, 0, 9].into(), Ipv4Addr::BROADCAST, &[], &mut frame);
    group.receive(now, (&frame, false), &mut out);
    out
}

#[test]
fn a_late_offer_of_another_server_does_not_change_where_the_release_goes() {
    let mut link = Link::of([GroupSettings { release: true, ..dhcp(1) }, server(1)]);
    link.run(Some(BEGIN + seconds(1.0)));
    let (now, host) = (link.now, link.groups[0].mac(0));
    let offer =
        Message { server: Some([10, 0, 0, 9].into()), ..Message::new(Kind::Offer, 1, host) };
    reply(&mut link.groups[0], now, MacAddr([4; 6]), &offer);
    link.stop();
    assert_eq!(link.messages().last().map(|sent| sent.2.kind), Some(Kind::Release));
    let frame = link.sent_frames().pop().unwrap();
    assert_eq!(frame[..6], link.groups[1].mac(0).0);
}

#[test]
fn an_address_that_is_still_examined_is_given_back_at_the_end() {
    let conflict = ConflictTimers::default();
    let mut link = Link::of([GroupSettings { release: true, conflict, ..dhcp(3) }, server(3)]);
    link.run(Some(BEGIN + seconds(0.1)));
    assert_eq!((link.in_state(0, DhcpState::Checking), link.of_group(1).server.unwrap().1), (3, 3));
    link.stop();
    assert_eq!((link.of_group(0).sent["release"], link.of_group(1).server.unwrap().1), (3, 0));
}

#[test]
fn a_lease_that_comes_after_the_release_of_its_host_is_given_back() {
    let mut link = Link::of([GroupSettings { release: true, ..dhcp(1) }, server(1)]);
    // The request is on its way.
    link.run(Some(BEGIN + seconds(0.0025)));
    link.stop();
    let (.., request) = link.messages().pop().unwrap();
    assert_eq!((request.kind, link.of_group(0).sent.get("release")), (Kind::Request, None));
    let ack = Message {
        yiaddr: [10, 0, 1, 0].into(),
        lease: Some(1000),
        server: request.server,
        ..Message::new(Kind::Ack, request.xid, request.chaddr)
    };
    let now = link.now;
    reply(&mut link.groups[0], now, MacAddr([4; 6]), &ack);
    assert_eq!(link.of_group(0).sent.get("release"), Some(&1));
    assert_eq!(link.in_state(0, DhcpState::Released), 1);
}

#[test]
fn an_address_that_a_server_gives_to_two_hosts_is_a_conflict() {
    for (conflict, declined, bound) in
        [(ConflictTimers::SILENT, None, 2), (ConflictTimers::default(), Some(&1), 0)]
    {
        let mut group = HostGroup::new(GroupSettings { conflict, ..dhcp(2) }, BEGIN);
        let mut out = FrameQueue::default();
        group.advance(BEGIN, &mut out);
        for kind in [Kind::Offer, Kind::Ack] {
            let mut sent = Vec::new();
            while let Some((frame, _)) = out.first() {
                let datagram = Datagram::parse(&frame[14..], false).unwrap();
                sent.push(Message::parse(datagram.payload).unwrap());
                out.pop();
            }
            for message in sent {
                let answer = Message {
                    yiaddr: [10, 0, 1, 0].into(),
                    lease: Some(1000),
                    server: Some([10, 0, 0, 9].into()),
                    ..Message::new(kind, message.xid, message.chaddr)
                };
                let mut queue = reply(&mut group, BEGIN, MacAddr([4; 6]), &answer);
                while let Some((frame, due)) = queue.first() {
                    out.push(due, |octets| octets.extend_from_slice(frame));
                    queue.pop();
                }
            }
        }
        let counted = group.statistics(true);
        assert_eq!((counted.arp.conflicts, counted.bound), (1, bound));
        assert_eq!(counted.sent.get("decline"), declined);
    }
}

#[test]
fn truncated_packets_are_not_counted_as_wrong_checksums() {
    let mut link = Link::of([dhcp(1), server(1)]);
    link.run(None);
    let mut frame = link.sent_frames().remove(0);
    for reason in ["bad_checksum", "bad_packet"] {
        frame[100] ^= 1;
        link.groups[1].receive(link.now, (&frame, false), &mut FrameQueue::default());
        assert_eq!(link.of_group(1).ignored.get(reason), Some(&1));
        frame.truncate(200);
    }
}

#[test]
fn leases_of_clients_that_are_gone_end_without_a_message() {
    let mut link = Link::of([server(5), dhcp(5)]);
    link.run(None);
    link.groups.pop();
    let mut out = FrameQueue::default();
    let server = &mut link.groups[0];
    server.advance(BEGIN + seconds(900.0), &mut out);
    assert_eq!(server.statistics(false).server.unwrap().1, 5);
    server.advance(BEGIN + seconds(1001.0), &mut out);
    assert_eq!(server.statistics(false).server.unwrap().1, 0);
}

#[test]
fn hosts_answer_arp_and_echo_requests_for_their_addresses_alone() {
    let pings = PingSettings {
        target: Some([10, 0, 5, 3].into()),
        rate: 100,
        count: 4,
        timeout: seconds(1.0),
    };
    let asks = GroupSettings { ping: Some(pings), ..fixed(3, 1, [10, 0, 0, 1]) };
    let mut link = Link::of([asks, fixed(10, 2, [10, 0, 5, 0])]);
    link.run(None);
    let (asks, answers) = (link.of_group(0), link.of_group(1));
    assert_eq!((asks.echo.sent, asks.echo.received, asks.echo.lost), (12, 12, 0));
    assert_eq!((answers.echo.answered, asks.echo.rtt.min()), (12, 2_000_000));
    assert_eq!((asks.arp.requests, answers.arp.answered), (1, 1), "once for the group");
    // Three requests in the first turn wait for ARP, then 100 a second.
    let elapsed = (link.now - BEGIN).as_secs_f64();
    assert!((0.08..0.2).contains(&elapsed), "{elapsed} s");
}

#[test]
fn echo_requests_without_an_answer_are_lost_and_a_silent_neighbor_is_named() {
    let pings = PingSettings {
        target: Some([10, 0, 9, 9].into()),
        rate: 100,
        count: 2,
        timeout: seconds(1.0),
    };
    let asks = GroupSettings { ping: Some(pings), ..fixed(3, 1, [10, 0, 0, 1]) };
    let mut link = Link::of([asks.clone(), fixed(1, 2, [10, 0, 5, 0])]);
    link.run(None);
    let counted = link.of_group(0);
    assert_eq!((counted.echo.sent, counted.echo.unresolved, counted.arp.unresolved), (0, 3, 1));
    let mut lossy = Link::of([asks, fixed(1, 2, [10, 0, 9, 9])]);
    lossy.run(Some(BEGIN + seconds(0.0105)));
    lossy.loss = 100;
    lossy.run(None);
    let counted = lossy.of_group(0);
    assert_eq!(counted.echo.sent, 6);
    assert_eq!(counted.echo.received + counted.echo.lost, 6);
    assert!(counted.echo.lost >= 4, "{counted:?}");
}

#[test]
fn hosts_of_another_vlan_are_not_here() {
    let tagged = |group: GroupSettings, vlan| GroupSettings { tags: vec![(0x8100, vlan)], ..group };
    let mut link = Link::of([tagged(dhcp(5), 7), tagged(server(5), 8)]);
    link.run(Some(BEGIN + seconds(2.0)));
    assert_eq!(link.of_group(0).bound, 0);
    let mut link = Link::of([tagged(dhcp(5), 7), tagged(server(5), 7)]);
    link.run(None);
    assert_eq!(link.of_group(0).bound, 5);
}

#[test]
fn an_address_of_another_host_is_declined_and_the_next_one_taken() {
    let conflict = ConflictTimers { announcements: 1, ..ConflictTimers::default() };
    let clients = GroupSettings { conflict, ..dhcp(3) };
    // The first two addresses of the server belong to hosts that it does not know.
    let mut link = Link::of([clients, server(10), fixed(2, 3, [10, 0, 1, 0])]);
    link.run(None);
    let counted = link.of_group(0);
    assert_eq!((counted.bound, counted.arp.conflicts, counted.sent["decline"]), (3, 2, 2));
    assert_eq!(link.of_group(1).server.unwrap().0.declines, 2);
    let addresses: Vec<_> = (0..3).filter_map(|host| link.groups[0].address(host)).collect();
    assert!(addresses.iter().all(|address| address.octets()[3] >= 2), "{addresses:?}");
}

#[test]
fn two_groups_that_probe_for_the_same_addresses_have_them_once() {
    let probes = |third| GroupSettings {
        conflict: ConflictTimers::default(),
        ..fixed(20, third, [10, 0, 1, 0])
    };
    let mut link = Link::of([probes(1), probes(2)]);
    link.run(None);
    for host in 0..20 {
        let owners = (0..2).filter(|group| link.groups[*group].address(host).is_some()).count();
        assert!(owners <= 1, "host {host}");
    }
    let failed = link.in_state(0, DhcpState::Failed) + link.in_state(1, DhcpState::Failed);
    assert!(failed >= 20);
    assert!(link.of_group(0).arp.probes > 0);
}

#[test]
fn clients_of_a_relay_agent_get_addresses_through_it() {
    let agent = ClientSettings {
        relay: Some([10, 0, 0, 2].into()),
        circuit: Some(ValueTemplate::text("ge-0/0/{n}")),
        remote: ValueTemplate::hex("{mac}"),
        ..ClientSettings::default()
    };
    let mut link = Link::of([GroupSettings { dhcp: agent, ..dhcp(3) }, server(10)]);
    link.run(Some(BEGIN + seconds(501.0)));
    assert_eq!((link.of_group(0).bound, link.of_group(0).renewed), (3, 3));
    let relay = MacAddr([2, 0, 0, 1, 0, 0]);
    let renewals = link.messages().into_iter().skip(6).collect::<Vec<_>>();
    for (i, (mac, source, message)) in link.messages().into_iter().take(6).enumerate() {
        assert_eq!((mac, source), (relay, Ipv4Addr::new(10, 0, 0, 2)));
        assert_eq!((message.giaddr, message.hops), ([10, 0, 0, 2].into(), 1));
        let last = (i % 3 + 1) as u8;
        let mut agent = format!("\x01\x08ge-0/0/{last}\x02\x06").into_bytes();
        agent.extend([2, 0, 0, 1, 0, last]);
        assert_eq!(message.agent, agent);
    }
    // Renewals do not pass the agent (RFC 2131 section 4.3.6).
    assert_eq!(renewals.len(), 3);
    for (mac, source, message) in renewals {
        assert_eq!((mac, source, message.hops), (relay, message.ciaddr, 0));
        assert!(message.agent.is_empty() && message.giaddr.is_unspecified());
    }
    // The server asks for the agent's address.
    let asks = Host { ipv4: vec![[10, 0, 0, 1].into()], mac: MacAddr([2; 6]), ..Host::default() };
    let question = Arp {
        request: true,
        sender_mac: asks.mac,
        sender: [10, 0, 0, 1].into(),
        target_mac: MacAddr::default(),
        target: [10, 0, 0, 2].into(),
    };
    let (now, mut out) = (link.now, FrameQueue::default());
    let frame = asks.frame(BROADCAST, ARP, &question.octets());
    assert!(link.groups[0].receive(now, (&frame, false), &mut out));
    let answer = asks.handle(out.first().unwrap().0).neighbor;
    assert_eq!(answer, Some((Ipv4Addr::new(10, 0, 0, 2).into(), relay)));
}

#[test]
fn options_of_a_group_are_in_its_messages_and_only_the_identifier_in_a_release() {
    let option = |code, value| OptionTemplate { code, value };
    let options = vec![
        option(12, ValueTemplate::text("pc{n}")),
        option(61, ValueTemplate::hex("01{mac}").unwrap()),
    ];
    let clients = ClientSettings { options, ..ClientSettings::default() };
    let mut link =
        Link::of([GroupSettings { dhcp: clients, release: true, ..dhcp(2) }, server(10)]);
    link.run(None);
    link.stop();
    let has = |octets: &[u8]| {
        let found = |frame: &[u8]| frame.windows(octets.len()).any(|part| part == octets);
        link.sent.iter().filter(|(_, frame)| found(frame)).count()
    };
    assert_eq!(link.of_group(0).sent.values().sum::<u64>(), 6);
    assert_eq!(has(b"\x0c\x03pc2"), 2, "DISCOVER and REQUEST");
    assert_eq!(has(&[61, 7, 1, 2, 0, 0, 1, 0, 2]), 3, "RELEASE as well");
}

#[test]
fn hosts_with_addresses_of_their_own_ask_for_parameters_and_answer_arp() {
    let begin = DhcpBegin::Inform(16);
    let informs =
        ClientSettings { begin, first: Some([10, 0, 5, 0].into()), ..ClientSettings::default() };
    let informs = GroupSettings { dhcp: informs, release: true, ..dhcp(3) };
    let mut link = Link::of([informs, server(10)]);
    link.run(None);
    let counted = link.of_group(0);
    assert_eq!((counted.bound, counted.sent["inform"]), (3, 3));
    assert_eq!(link.of_group(1).server.unwrap().0.informs, 3);
    assert_eq!(link.groups[0].address(2), Some([10, 0, 5, 2].into()));
    link.stop();
    assert!(!link.of_group(0).sent.contains_key("release"));
}

#[test]
fn hosts_that_reboot_keep_their_addresses_with_two_messages_each() {
    let reboots = ClientSettings {
        begin: DhcpBegin::Reboot,
        first: Some([10, 0, 1, 0].into()),
        ..ClientSettings::default()
    };
    let mut link = Link::of([dhcp(20), server(20)]);
    link.run(None);
    let begin = link.now;
    link.groups[0] = HostGroup::new(GroupSettings { dhcp: reboots, ..dhcp(20) }, begin);
    link.run(None);
    let counted = link.of_group(0);
    assert_eq!(counted.sent, BTreeMap::from([("request", 20)]));
    assert_eq!((counted.bound, counted.dora.max()), (20, 2_000_000));
}

#[test]
fn rapid_clients_are_bound_after_two_messages() {
    let rapid = ClientSettings { rapid_commit: true, ..ClientSettings::default() };
    let agrees = |rapid_commit| {
        let GroupSettings { server, .. } = server(20);
        let server = ServerSettings { rapid_commit, ..server.unwrap() };
        GroupSettings { server: Some(server), ..fixed(1, 2, [10, 0, 0, 1]) }
    };
    for (agreed, frames) in [(true, 40), (false, 80)] {
        let clients = GroupSettings { dhcp: rapid.clone(), ..dhcp(20) };
        let mut link = Link::of([clients, agrees(agreed)]);
        link.run(None);
        assert_eq!((link.of_group(0).bound, link.frames), (20, frames));
    }
}

/// Clients of a server, or hosts with static addresses, and a pinging host; with a fault.
fn faulty(fault: Fault, settings: GroupSettings) -> Link {
    let faults = [fault].into_iter().collect();
    let mut link = Link::of([GroupSettings { faults, ..settings }, server(100)]);
    link.run(None);
    link
}

/// Asks for an address, as a host that is not in a group. Returns the answers.
fn ask(link: &mut Link, target: [u8; 4]) -> Vec<MacAddr> {
    let mac = MacAddr([2, 0, 0, 9, 9, 9]);
    let question = Arp {
        request: true,
        sender_mac: mac,
        sender: [10, 0, 9, 9].into(),
        target_mac: MacAddr::default(),
        target: target.into(),
    };
    let asks = Host { mac, ..Host::default() };
    let frame = asks.frame(BROADCAST, ARP, &question.octets());
    let (now, mut out) = (link.now, FrameQueue::default());
    link.groups[0].receive(now, (&frame, false), &mut out);
    link.groups[0].advance(now + seconds(1.0), &mut out);
    let mut answers = Vec::new();
    while let Some((frame, _)) = out.first() {
        answers.push(Arp::parse(&frame[14..]).unwrap().sender_mac);
        out.pop();
    }
    answers
}

fn done(link: &Link, fault: Fault) -> u64 {
    link.of_group(0).faults[fault.word()]
}

#[test]
fn duplicate_hosts_all_answer_for_the_address_of_the_first() {
    let mut link = faulty(Fault::DuplicateAddress, fixed(3, 1, [10, 0, 7, 1]));
    let all: Vec<_> = (0..3).map(|host| link.groups[0].mac(host)).collect();
    assert_eq!(ask(&mut link, [10, 0, 7, 1]), all);
    assert!(ask(&mut link, [10, 0, 7, 2]).is_empty());
    assert!((0..3).all(|host| link.groups[0].address(host) == Some([10, 0, 7, 1].into())));
}

#[test]
fn hosts_that_keep_their_addresses_give_in_to_nobody() {
    let conflict = ConflictTimers { announcements: 0, ..ConflictTimers::default() };
    let keeps = GroupSettings { conflict, ..fixed(2, 1, [10, 0, 7, 1]) };
    let faults = [Fault::KeepAddress].into_iter().collect();
    let announces = ConflictTimers { probes: 0, ..ConflictTimers::default() };
    let other = GroupSettings { conflict: announces, ..fixed(2, 3, [10, 0, 7, 1]) };
    let mut link = Link::of([GroupSettings { faults, ..keeps }, other]);
    link.run(Some(BEGIN + seconds(30.0)));
    assert_eq!(link.in_state(0, DhcpState::Bound), 2);
    assert_eq!(link.of_group(0).arp.probes, 0);
}

#[test]
fn hosts_without_arp_are_silent_and_counted() {
    let mut link = faulty(Fault::NoArp, fixed(2, 1, [10, 0, 7, 1]));
    assert!(ask(&mut link, [10, 0, 7, 1]).is_empty());
    assert_eq!(done(&link, Fault::NoArp), 1);
}

#[test]
fn hosts_that_spoof_the_gateway_announce_and_answer_for_it() {
    let conflict = ConflictTimers { probes: 0, ..ConflictTimers::default() };
    let settings = GroupSettings { conflict, ..dhcp(2) };
    let mut link = faulty(Fault::SpoofGateway, settings);
    link.run(Some(BEGIN + seconds(10.0)));
    let router = Ipv4Addr::new(10, 0, 0, 1);
    let claims = link.arps().into_iter().filter(|(_, arp)| arp.request && arp.sender == router);
    assert_eq!(claims.count(), 4, "2 announcements of each host");
    let first = link.groups[0].mac(0);
    assert_eq!(ask(&mut link, [10, 0, 0, 1]), [first]);
}

#[test]
fn frames_with_a_spoofed_mac_address_have_another_source_than_their_messages() {
    let link = faulty(Fault::SpoofMac, dhcp(3));
    assert_eq!((link.of_group(0).bound, done(&link, Fault::SpoofMac)), (3, 6));
    assert!(link.messages().iter().all(|(source, _, message)| *source != message.chaddr));
}

#[test]
fn echo_requests_with_a_spoofed_address_have_that_of_the_next_host() {
    let ping = PingSettings { target: None, rate: 100, count: 1, timeout: seconds(1.0) };
    let link = faulty(Fault::SpoofAddress, GroupSettings { ping: Some(ping), ..dhcp(1) });
    let own = link.groups[0].address(0).unwrap();
    let echo = |frame: &[u8]| frame[12..14] == [8, 0] && frame[23] == 1;
    let sources = link
        .sent
        .iter()
        .filter(|(_, frame)| echo(frame))
        .map(|(_, frame)| u32::from_be_bytes(*frame[26..].first_chunk().unwrap()));
    assert_eq!(sources.collect::<Vec<_>>(), [own.to_bits() + 1]);
    assert_eq!(link.of_group(0).echo.lost, 1);
}

#[test]
fn late_hosts_react_after_their_delay() {
    let late = GroupSettings { late: seconds(0.25), ..dhcp(2) };
    let mut link = faulty(Fault::LateAnswer, late);
    let requests = link.sent.iter().skip(2).map(|(at, _)| *at).collect::<Vec<_>>();
    // DISCOVER there and OFFER back take 1 ms each.
    assert_eq!(requests, [BEGIN + Nanos(252_000_000); 2]);
    assert_eq!((link.of_group(0).bound, done(&link, Fault::LateAnswer)), (2, 2));
    assert_eq!(ask(&mut link, [10, 0, 1, 0]).len(), 1);
}

#[test]
fn floods_send_each_frame_ten_times() {
    let link = faulty(Fault::Flood, dhcp(2));
    assert_eq!((link.of_group(0).bound, link.messages().len()), (2, 40));
    assert_eq!(link.of_group(1).server.unwrap().0.discovers, 20);
    assert_eq!(done(&link, Fault::Flood), 36);
}

#[test]
fn faults_of_clients_leave_their_marks_at_the_server() {
    let offers = faulty(Fault::IgnoreOffer, dhcp(4));
    assert_eq!(offers.of_group(1).server.unwrap().0.offers, 20, "five of each");
    assert_eq!((done(&offers, Fault::IgnoreOffer), offers.of_group(0).bound), (20, 0));
    let declines = faulty(Fault::Decline, dhcp(4));
    assert_eq!(declines.of_group(1).server.unwrap().0.declines, 16, "four of each");
    assert_eq!(declines.of_group(0).failed, BTreeMap::from([("conflict", 4)]));
    let mut keeps = faulty(Fault::KeepLease, dhcp(4));
    keeps.run(Some(BEGIN + seconds(2000.0)));
    assert_eq!(keeps.of_group(1).server.unwrap().0.requests, 4);
    assert_eq!(keeps.in_state(0, DhcpState::Bound), 4);
}

#[test]
fn refusals_change_nothing_for_clients_that_ignore_them() {
    let mut link = faulty(Fault::IgnoreNak, dhcp(4));
    let begin = link.now;
    // A server that restarts without its leases refuses the renewals.
    link.groups[1] = HostGroup::new(server(100), begin);
    link.run(Some(BEGIN + seconds(800.0)));
    assert_eq!(link.in_state(0, DhcpState::Renewing), 4);
    assert!(done(&link, Fault::IgnoreNak) >= 4);
    assert_eq!(link.of_group(0).received["nak"], done(&link, Fault::IgnoreNak));
}

#[test]
fn broken_messages_are_broken_in_the_way_that_their_fault_names() {
    for (fault, reason) in
        [(Fault::BadChecksum, "bad_checksum"), (Fault::BadOptions, "bad_options")]
    {
        let link = faulty(fault, dhcp(2));
        assert_eq!(link.of_group(1).ignored, BTreeMap::from([(reason, 10)]));
        assert_eq!(link.of_group(0).failed, BTreeMap::from([("no_offer", 2)]));
        assert_eq!(done(&link, fault), 10);
    }
}

fn chooses(count: u32, third: u8) -> GroupSettings {
    let conflict = ConflictTimers::default();
    GroupSettings { conflict, ..settings(count, third, Addressing::LinkLocal) }
}

#[test]
fn hosts_choose_addresses_of_their_own_and_examine_them() {
    let mut link = Link::of([chooses(500, 1), chooses(500, 2)]);
    link.run(None);
    let mut addresses: Vec<_> =
        (0..1000).filter_map(|host| link.groups[host / 500].address((host % 500) as u32)).collect();
    let fits = |address: &Ipv4Addr| {
        let [a, b, c, _] = address.octets();
        (a, b) == (169, 254) && (1..=254).contains(&c)
    };
    assert!(addresses.iter().all(fits));
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), 1000);
    assert!(link.of_group(0).arp.probes >= 1500, "three of each");
    let first = link.groups[0].address(0).unwrap();
    let own = link.groups[0].mac(0);
    assert_eq!(ask(&mut link, first.octets()).first(), Some(&own));
    let again = {
        let mut link = Link::of([chooses(500, 1)]);
        link.run(None);
        link.groups[0].address(0).unwrap()
    };
    assert_eq!(first, again, "the same seed and MAC address");
}

/// A packet of a host that uses `address`.
fn uses(link: &mut Link, address: Ipv4Addr) -> FrameQueue {
    let mac = MacAddr([2, 0, 0, 9, 9, 9]);
    let target_mac = MacAddr::default();
    let claim =
        Arp { request: false, sender_mac: mac, sender: address, target_mac, target: address };
    let frame = Host { mac, ..Host::default() }.frame(BROADCAST, ARP, &claim.octets());
    let (now, mut out) = (link.now, FrameQueue::default());
    link.groups[0].receive(now, (&frame, false), &mut out);
    out
}

#[test]
fn a_chosen_address_is_defended_once_and_then_another_is_chosen() {
    let mut link = Link::of([chooses(1, 1)]);
    link.run(Some(BEGIN + seconds(20.0)));
    let first = link.groups[0].address(0).unwrap();
    let defended = uses(&mut link, first);
    assert_eq!((defended.len(), link.of_group(0).arp.defended), (1, 1));
    uses(&mut link, first);
    assert_eq!(link.groups[0].address(0), None, "within 10 s");
    link.run(Some(BEGIN + seconds(30.0)));
    assert_ne!(link.groups[0].address(0).unwrap(), first);
}

#[test]
fn after_ten_conflicts_a_host_waits_a_minute_and_after_twenty_it_fails() {
    let mut link = Link::of([chooses(1, 1)]);
    link.run(Some(BEGIN + seconds(1.0)));
    for conflict in 1..=20 {
        let candidate = link.groups[0].candidate(0).unwrap();
        uses(&mut link, candidate);
        if conflict == 20 {
            break;
        }
        let due = link.groups[0].hosts[0].conflict.due().unwrap();
        let waits = (due - link.now).as_secs_f64();
        let pause = if conflict >= 10 { 60.0 } else { 0.0 };
        assert!((pause..=pause + 1.0).contains(&waits), "{waits} s after conflict {conflict}");
        link.run(Some(link.now + seconds(waits)));
    }
    assert_eq!(link.of_group(0).failed, BTreeMap::from([("conflict", 1)]));
    let due = link.groups[0].hosts[0].conflict.due();
    assert_eq!((link.groups[0].address(0), due), (None, None));
}

/// A packet to the first host of the first group. Returns the frames that it sends.
fn deliver(link: &mut Link, packet: &[u8]) -> FrameQueue {
    let peer = Host { mac: MacAddr([2, 0, 0, 9, 9, 9]), ..Host::default() };
    let frame = peer.frame(link.groups[0].mac(0), IPV4, packet);
    let (now, mut out) = (link.now, FrameQueue::default());
    link.groups[0].receive(now, (&frame, false), &mut out);
    out
}

#[test]
fn datagrams_to_closed_ports_get_errors_up_to_a_limit_if_the_settings_say_so() {
    let mut datagram = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 9, 9, 10, 0, 7, 1];
    datagram.extend([0x12, 0x34, 0, 9, 0, 8, 0, 0]);
    for icmp_errors in [false, true] {
        let mut link = Link::of([GroupSettings { icmp_errors, ..fixed(1, 1, [10, 0, 7, 1]) }]);
        link.run(None);
        let answers = (0..1500).map(|_| deliver(&mut link, &datagram).len()).sum::<usize>();
        assert_eq!(answers, if icmp_errors { 1000 } else { 0 });
        assert_eq!(link.of_group(0).echo.errors_sent, answers as u64);
    }
}

#[test]
fn errors_of_routers_end_echo_requests_and_are_counted_by_type() {
    let target = Some([10, 0, 0, 1].into());
    let ping = PingSettings { target, rate: 1000, count: 1, timeout: seconds(1.0) };
    let asks = GroupSettings { ping: Some(ping), ..fixed(1, 1, [10, 0, 7, 1]) };
    let mut link = Link::of([asks, fixed(1, 2, [10, 0, 0, 1])]);
    link.run(Some(BEGIN + Nanos(2_500_000)));
    let echo = link.sent.last().unwrap().1[14..].to_vec();
    let mut error = Vec::new();
    // The cause of the error is the request, as if it had been a datagram of another protocol.
    assert!(IcmpError::unreachable(&[&echo[..9], &[132], &echo[10..]].concat(), &mut error));
    error[28 + 9] = 1;
    error[12..16].copy_from_slice(&[10, 0, 0, 1]);
    error[16..20].copy_from_slice(&[10, 0, 7, 1]);
    let checked = |icmp: &mut [u8]| {
        icmp[2..4].fill(0);
        let check = !squall_wire::checksum::fold(squall_wire::checksum::sum(icmp));
        icmp[2..4].copy_from_slice(&check.to_be_bytes());
    };
    checked(&mut error[20..]);
    deliver(&mut link, &error);
    link.loss = 100;
    link.run(None);
    let counted = link.of_group(0).echo;
    assert_eq!(counted.errors, BTreeMap::from([("unreachable", 1)]));
    assert_eq!((counted.sent, counted.received, counted.lost), (1, 0, 0));
}

#[test]
fn the_records_of_a_hundred_thousand_hosts_are_small() {
    assert!(size_of::<HostRecord>() <= 256, "{} octets", size_of::<HostRecord>());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn each_session_is_open_or_its_host_has_a_reason(
        loss in 0u64..60, repeats in 0u64..30, seed: u64,
    ) {
        let mut link = Link::of([pppoe(5), concentrator(5)]);
        (link.loss, link.repeats, link.random) = (loss, repeats, SplitMix64(seed));
        link.run(Some(BEGIN + seconds(2000.0)));
        (link.loss, link.repeats) = (0, 0);
        link.run(Some(BEGIN + seconds(2300.0)));
        let failed: u64 = link.of_group(0).failed.values().sum();
        let bound = link.in_state(0, DhcpState::Bound);
        prop_assert_eq!((failed + bound, link.in_state(0, DhcpState::Failed)), (5, failed));
        let open = count(&sessions(&link, 1).states, "open");
        prop_assert_eq!(open, bound, "{:?}", sessions(&link, 1));
    }

    #[test]
    fn every_host_is_bound_or_has_failed_whatever_happens_to_frames(
        seed: u64, loss in 0u64..100, repeats in 0u64..50, hosts in 1u32..40, pool in 1u32..60,
        probes in 0u8..3, begin in 0usize..3, relayed: bool, rapid_commit: bool,
    ) {
        let conflict = ConflictTimers { probes, ..ConflictTimers::SILENT };
        let begin = [DhcpBegin::Discover, DhcpBegin::Reboot, DhcpBegin::Inform(16)][begin];
        let clients = ClientSettings {
            begin,
            first: (begin != DhcpBegin::Discover).then_some([10, 0, 1, 0].into()),
            relay: relayed.then_some([10, 0, 0, 2].into()),
            rapid_commit,
            ..ClientSettings::default()
        };
        let clients = GroupSettings { conflict, seed, dhcp: clients, ..dhcp(hosts) };
        let mut link = Link::of([clients, server(pool)]);
        (link.loss, link.repeats, link.random) = (loss, repeats, SplitMix64(seed));
        link.run(None);
        let counted = link.of_group(0);
        let of = |state| link.in_state(0, state);
        let bound = of(DhcpState::Bound) + of(DhcpState::Renewing) + of(DhcpState::Rebinding);
        prop_assert_eq!(bound + of(DhcpState::Failed), u64::from(hosts));
        prop_assert_eq!(counted.failed.values().sum::<u64>(), of(DhcpState::Failed));
        let mut addresses: Vec<_> = (0..hosts).filter_map(|h| link.groups[0].address(h)).collect();
        prop_assert_eq!(addresses.len() as u64, bound);
        addresses.sort();
        addresses.dedup();
        prop_assert_eq!(addresses.len() as u64, bound);
        if loss == 0 && (pool >= hosts || begin == DhcpBegin::Inform(16)) {
            prop_assert_eq!(bound, u64::from(hosts));
        }
    }

    #[test]
    fn hosts_that_choose_addresses_have_one_or_have_failed_whatever_happens_to_frames(
        seed: u64, loss in 0u64..100, repeats in 0u64..50, hosts in 1u32..40,
    ) {
        let of = |third, seed| GroupSettings { seed, ..chooses(hosts, third) };
        let mut link = Link::of([of(1, seed), of(2, !seed)]);
        (link.loss, link.repeats, link.random) = (loss, repeats, SplitMix64(seed));
        link.run(None);
        let mut all = Vec::new();
        for number in 0..2 {
            let (bound, failed) =
                (link.in_state(number, DhcpState::Bound), link.in_state(number, DhcpState::Failed));
            prop_assert_eq!(bound + failed, u64::from(hosts));
            prop_assert_eq!(link.of_group(number).failed.values().sum::<u64>(), failed);
            let group = &link.groups[number];
            let own: Vec<_> = (0..hosts).filter_map(|host| group.address(host)).collect();
            prop_assert_eq!((own.len() as u64, group.addresses.len() as u64), (bound, bound));
            all.extend(own);
        }
        let count = all.len();
        all.sort();
        all.dedup();
        prop_assert!(loss > 0 || all.len() == count, "an address twice: {:?}", all);
    }

    #[test]
    fn every_supplicant_is_authenticated_or_has_failed_whatever_happens_to_frames(
        seed: u64, loss in 0u64..100, repeats in 0u64..50, hosts in 1u32..20, accept: bool,
    ) {
        let auth = SupplicantSettings {
            identity: "user{}".into(),
            password: "secret".into(),
            ..SupplicantSettings::default()
        };
        let protocols = ServiceSettings { auth: Some(auth), ..ServiceSettings::default() };
        let mut group = HostGroup::new(services(fixed(hosts, 3, [10, 0, 5, 1]), protocols), BEGIN);
        let (mut random, mut now, mut out) = (SplitMix64(seed), BEGIN, FrameQueue::default());
        let mut answers: Vec<Vec<u8>> = Vec::new();
        loop {
            while group.advance(now, &mut out) {}
            while let Some((frame, _)) = out.first() {
                let answer = authenticator(frame, accept).filter(|_| frame[12..14] == [0x88, 0x8e]);
                out.pop();
                // A loss on the way there, or on the way back.
                let lost = (0..2).any(|_| random.draw() % 100 < loss);
                let copies = 1 + usize::from(random.draw() % 100 < repeats);
                for copy in answer.iter().filter(|_| !lost).flat_map(|one| vec![one; copies]) {
                    let at = random.draw() as usize % (answers.len() + 1);
                    let at = if repeats > 0 { at } else { answers.len() };
                    answers.insert(at, copy.clone());
                }
            }
            if answers.is_empty() && group.is_settled() {
                break;
            }
            now = match answers.is_empty() {
                true => group.next_due().expect("a timer, or all are settled").max(now),
                false => now + Nanos(1_000_000),
            };
            for answer in answers.drain(..) {
                group.receive(now, (&answer, false), &mut out);
            }
        }
        let counted = group.statistics(true);
        let states = counted.auth.unwrap().states;
        let (open, failed) = (count(&states, "authenticated"), count(&states, "failed"));
        prop_assert_eq!(open + failed, u64::from(hosts), "{:?}", states);
        prop_assert_eq!(counted.failed.values().sum::<u64>(), failed, "{:?}", counted.failed);
        let with = (0..hosts).filter(|host| group.address(*host).is_some()).count();
        prop_assert_eq!(with as u64, open, "no other host has an address");
        prop_assert!(accept || open == 0);
        if accept && loss == 0 && repeats == 0 {
            prop_assert_eq!(open, u64::from(hosts));
        }
    }

    #[test]
    fn a_querier_learns_and_forgets_all_groups_whatever_happened_to_frames(
        seed: u64, loss in 0u64..100, repeats in 0u64..50, hosts in 1u32..8, groups in 1u32..20,
        version in 0usize..3,
    ) {
        let version = [GroupVersion::One, GroupVersion::Two, GroupVersion::Three][version];
        let timers = [MembershipTimers::of(version); 2];
        let of = MulticastSettings { timers, ..multicast(groups) };
        let mut link =
            Link::of([querier(), GroupSettings { release: true, ..members(hosts, of) }]);
        (link.loss, link.repeats, link.random) = (loss, repeats, SplitMix64(seed));
        let known = |link: &Link| link.groups[0].statistics(true).querier.unwrap().groups;
        let all = u64::from(hosts * groups);
        link.run(Some(BEGIN + seconds(300.0)));
        prop_assert_eq!((seen(&link.groups[1]).joined, seen(&link.groups[1]).left), (all, 0));
        // A query each 125 s, whose answers arrive now.
        (link.loss, link.repeats) = (0, 0);
        link.run(Some(BEGIN + seconds(600.0)));
        prop_assert_eq!(known(&link), u64::from(groups));
        link.loss = loss;
        let now = link.now;
        link.groups[1].stop(now);
        link.run(Some(now + seconds(2.0)));
        prop_assert_eq!(seen(&link.groups[1]).left, all);
        prop_assert!(link.groups[1].is_settled());
        // Groups without an answer to two queries have no members (RFC 3376 section 8.4).
        link.run(Some(now + seconds(300.0)));
        prop_assert_eq!(known(&link), 0);
    }

    #[test]
    fn speakers_find_their_neighbors_after_losses_and_forget_those_that_are_gone(
        seed: u64, loss in 0u64..100, repeats in 0u64..50, hosts in 1u32..8,
    ) {
        let both = || ServiceSettings {
            lldp: Some(LldpSettings::default()),
            cdp: Some(CdpSettings { device: "host-{}".into(), ..CdpSettings::default() }),
            ..ServiceSettings::default()
        };
        let one = services(fixed(1, 4, [10, 0, 0, 1]), both());
        let mut link = Link::of([one, services(fixed(hosts, 3, [10, 0, 5, 1]), both())]);
        (link.loss, link.repeats, link.random) = (loss, repeats, SplitMix64(seed));
        let neighbors = |link: &Link| {
            let counted = link.groups[0].statistics(true);
            [counted.lldp.unwrap(), counted.cdp.unwrap()].map(|of| of.neighbors)
        };
        link.run(Some(BEGIN + seconds(300.0)));
        // A CDP announcement each 60 s.
        (link.loss, link.repeats) = (0, 0);
        link.run(Some(BEGIN + seconds(400.0)));
        neighbors(&link).iter().for_each(|of| assert_eq!(of.len(), hosts as usize));
        // They end without a last announcement.
        let now = link.now;
        link.groups.pop();
        link.run(Some(now + seconds(250.0)));
        for of in neighbors(&link) {
            prop_assert!(of.is_empty() && of.aged >= u64::from(hosts));
        }
    }

    #[test]
    fn no_octets_make_a_group_panic(
        octets in proptest::collection::vec(any::<u8>(), 0..400), kind in 0usize..4, at in 0usize..60,
    ) {
        let mut link = Link::of([dhcp(4), server(4)]);
        link.run(None);
        let now = link.now;
        let mut out = FrameQueue::default();
        // A frame to a host, with headers that lead to each parser.
        let mut frame = vec![2, 0, 0, 1, 0, 1, 2, 0, 0, 9, 0, 9];
        let starts: [&[u8]; 4] = [
            &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1],
            &[8, 0, 0x45, 0, 1, 0, 0, 0, 0, 0, 64, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 67, 0, 68],
            &[8, 0, 0x45, 0, 0, 60, 0, 0, 0, 0, 64, 1],
            &[],
        ];
        frame.extend(starts[kind]);
        frame.truncate(frame.len().max(at));
        frame.extend(octets);
        for group in &mut link.groups {
            group.receive(now, (&frame, true), &mut out);
            group.receive(now, (&frame[..frame.len().min(at)], false), &mut out);
        }
    }

    #[test]
    fn no_packets_in_a_session_make_a_group_panic_or_change_memberships(
        octets in proptest::collection::vec(any::<u8>(), 0..100), kind in 0usize..4,
        to_server: bool,
    ) {
        let mut link = Link::of(members_in_sessions(1));
        link.run(Some(BEGIN + seconds(20.0)));
        let (server, number) = link.groups[0].shared_session(0).unwrap();
        let client = link.groups[0].mac(0);
        let (to, from) = if to_server { (server, client) } else { (client, server) };
        // Packets that lead to IGMP, MLD, a multicast group, and anywhere.
        let source = if to_server { [10, 0, 1, 0] } else { [10, 0, 0, 1] };
        let ipv4 = |protocol, group: [u8; 4]| {
            let head = [0x46, 0, 0, 60, 0, 0, 0, 0, 1, protocol, 0, 0];
            [&head[..], &source, &group, &[0x94, 4, 0, 0]].concat()
        };
        let mut ipv6 = vec![0x60, 0, 0, 0, 0, 60, 0, 1, 0xfe, 0x80];
        ipv6.resize(24, 0);
        ipv6.extend([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 58, 0, 5, 2, 0, 0, 0, 0]);
        let starts = [ipv4(2, [224, 0, 0, 1]), ipv6, ipv4(17, [239, 1, 0, 0]), Vec::new()];
        let protocol = if kind == 1 { crate::PPP_IPV6 } else { PPP_IPV4 };
        let packet = [&starts[kind][..], &octets].concat();
        let frame = PppoeFrame::session(to, number, protocol, &packet);
        let mut whole = Vec::new();
        begin_frame(&mut whole, (to, from), &[], frame.kind);
        whole.extend(frame.octets);
        let now = link.now;
        let group = &mut link.groups[usize::from(to_server)];
        group.receive(now, (&whole, false), &mut FrameQueue::default());
        link.run(Some(now + seconds(5.0)));
        let counted = seen(&link.groups[0]);
        prop_assert_eq!((counted.joined, counted.left, counted.groups), (5, 0, 5));
    }
}

fn sessions(link: &Link, group: usize) -> PppoeStatistics {
    link.of_group(group).pppoe.unwrap()
}

fn count(of: &[(&'static str, u64)], word: &str) -> u64 {
    of.iter().find(|(one, _)| *one == word).map_or(0, |(_, count)| *count)
}

#[test]
fn sessions_of_both_ends_are_the_same_and_end_with_the_hosts() {
    let ping = PingSettings { target: None, rate: 1000, count: 2, timeout: seconds(1.0) };
    let clients =
        GroupSettings { release: true, ping: Some(ping), tags: vec![(0x8100, 7)], ..pppoe(300) };
    let server = GroupSettings { tags: vec![(0x8100, 7)], ..concentrator(300) };
    let mut link = Link::of([clients, server]);
    link.run(None);
    let clients = link.of_group(0);
    assert_eq!((clients.bound, clients.echo.sent, clients.echo.received), (300, 600, 600));
    assert_eq!((clients.arp.requests, clients.arp.announcements), (0, 0), "there is no ARP in PPP");
    assert_eq!((link.in_state(0, DhcpState::Bound), link.of_group(1).echo.answered), (300, 600));
    let states = [sessions(&link, 0).states, sessions(&link, 1).states];
    assert_eq!(states.map(|of| count(&of, "open")), [300, 300]);
    let mut addresses: Vec<_> = (0..300).map(|host| link.groups[0].address(host)).collect();
    addresses.sort();
    addresses.dedup();
    assert_eq!((addresses.len(), addresses[0]), (300, Some([10, 0, 1, 0].into())));
    link.stop();
    assert_eq!(link.in_state(0, DhcpState::Released), 300);
    assert_eq!(sessions(&link, 0).ended, BTreeMap::from([("closed", 300)]));
    assert_eq!(sessions(&link, 1).ended, BTreeMap::from([("padt", 300)]));
}

#[test]
fn a_session_without_an_answer_to_its_end_is_left_after_two_requests() {
    let clients = GroupSettings { release: true, ..pppoe(3) };
    let mut link = Link::of([clients, concentrator(3)]);
    link.run(None);
    link.loss = 100;
    let before = link.now;
    link.stop();
    let of = sessions(&link, 0);
    assert_eq!((of.sent["terminate_request"], of.sent["padt"]), (6, 3));
    assert_eq!((link.now - before).0 / 1_000_000_000, 6, "after 3 s and 3 s");
}

#[test]
fn hosts_without_an_access_concentrator_fail() {
    let mut link = Link::of([pppoe(4)]);
    link.run(None);
    assert_eq!(link.of_group(0).failed, BTreeMap::from([("no_pado", 4)]));
    assert_eq!((sessions(&link, 0).sent["padi"], sessions(&link, 0).retransmissions), (20, 16));
}

#[test]
fn the_log_of_a_host_has_the_states_of_its_session_and_the_reason_of_its_failure() {
    let clients = |count| GroupSettings { log: 100, ..pppoe(count) };
    let events = |link: &Link| {
        let of = link.groups[0].log().of(0);
        of.map(|event| (event.protocol.word(), event.kind.word(), event.word, event.address))
            .collect::<Vec<_>>()
    };
    let mut link = Link::of([clients(1)]);
    link.run(None);
    assert_eq!(link.groups[0].view(0, link.now).unwrap().failure, Some("no_pado"));
    let selecting = ("pppoe", "state", "selecting", None);
    assert_eq!(events(&link), [selecting, ("pppoe", "failed", "no_pado", None)]);
    let mut link = Link::of([clients(1), concentrator(1)]);
    link.run(None);
    let address = link.groups[0].address(0).map(IpAddr::V4);
    assert!(address.is_some());
    let all = events(&link);
    assert_eq!(all.first(), Some(&selecting));
    assert_eq!(all.last(), Some(&("pppoe", "state", "bound", address)));
}

#[test]
fn a_concentrator_answers_arp_outside_of_sessions() {
    let mut link = Link::of([pppoe(1), concentrator(1)]);
    link.run(None);
    let client = Host { mac: link.groups[0].mac(0), ..Host::default() };
    let question = Arp {
        request: true,
        sender_mac: client.mac,
        sender: [10, 0, 9, 9].into(),
        target_mac: MacAddr::default(),
        target: [10, 0, 0, 1].into(),
    };
    let frame = client.frame(BROADCAST, ARP, &question.octets());
    let (now, mut out) = (link.now, FrameQueue::default());
    assert!(link.groups[1].receive(now, (&frame, false), &mut out));
    let (answer, _) = out.first().unwrap();
    assert_eq!((&answer[..6], &answer[12..14]), (&client.mac.0[..], &[8, 6][..]));
}

#[test]
fn packets_with_the_address_of_another_session_are_not_answered() {
    let mut link = Link::of([pppoe(2), concentrator(2)]);
    link.run(None);
    let client = link.groups[0].mac(0);
    let server = link.groups[1].mac(0);
    let echo = |source: [u8; 4]| Echo {
        source: IpAddr::from(source),
        destination: [10, 0, 0, 1].into(),
        id: 1,
        seq: 1,
    };
    let mut out = FrameQueue::default();
    let mut answered = |source| {
        let frame = crate::PppoeFrame::session(server, 1, crate::PPP_IPV4, &echo(source).request());
        let mut octets = Vec::new();
        begin_frame(&mut octets, (server, client), &[], frame.kind);
        octets.extend(frame.octets);
        let now = link.now;
        assert!(link.groups[1].receive(now, (&octets, false), &mut out));
        link.of_group(1).echo.answered
    };
    assert_eq!((answered([10, 0, 1, 1]), answered([10, 0, 1, 0])), (0, 1));
    assert_eq!(sessions(&link, 1).ignored, BTreeMap::from([("wrong_source", 1)]));
}

fn aggregated(third: u8, port: u16) -> GroupSettings {
    let settings = crate::LacpSettings::default();
    let system = MacAddr([2, 0, 0, third, 0, 0]);
    let actor = crate::LacpInfo { system, port, ..settings.actor };
    let lacp = Some(crate::LacpSettings { actor, ..settings });
    GroupSettings { lacp, tags: vec![(0x8100, 7)], ..settings_of_port(third) }
}

fn settings_of_port(third: u8) -> GroupSettings {
    settings(1, third, Addressing::None)
}

#[test]
fn ports_of_one_system_are_in_the_aggregate_of_their_partner() {
    // Two links between the same systems.
    let mut links = [1, 2].map(|port| Link::of([aggregated(1, port), aggregated(2, port)]));
    for link in &mut links {
        link.run(Some(BEGIN + seconds(10.0)));
    }
    let of = |link: &Link, group| link.of_group(group).lacp.unwrap();
    let [a, b] = [of(&links[0], 0), of(&links[1], 0)];
    assert_eq!((a.up, a.mux, b.mux), (1, crate::lacp::LacpMux::Distributing, a.mux));
    assert_eq!((a.actor.system, a.partner.system), (b.actor.system, b.partner.system));
    assert_eq!((a.partner.port, b.partner.port), (1, 2));
    assert!(a.time.min() >= 2_000_000_000, "{:?}", a.time);
    assert!(a.sent["lacpdu"] >= 10 && a.received >= 10, "{a:?}");
    // Without VLAN tags, to the group address of slow protocols.
    let (_, frame) = &links[0].sent[0];
    assert_eq!(frame[..14], [1, 0x80, 0xc2, 0, 0, 2, 2, 0, 0, 1, 0, 1, 0x88, 0x09]);
    assert_eq!(frame.len(), 124);
    // A port whose partner has ended is down after two timeouts.
    let link = &mut links[0];
    let now = link.now;
    link.groups[1].stop(now);
    link.run(Some(now + seconds(7.0)));
    let a = of(link, 0);
    assert_eq!((a.down, a.expired, a.defaulted), (1, 1, 1), "{a:?}");
}

fn services(host: GroupSettings, services: ServiceSettings) -> GroupSettings {
    GroupSettings { services, ..host }
}

fn multicast(count: u32) -> MulticastSettings {
    MulticastSettings {
        ranges: vec![(Ipv4Addr::new(239, 1, 0, 0).into(), count)],
        each: None,
        filters: [SourceFilter::any(), SourceFilter::any()],
        timers: [MembershipTimers::of(GroupVersion::Three); 2],
        rate: None,
        hold: None,
    }
}

fn members(hosts: u32, of: MulticastSettings) -> GroupSettings {
    let multicast = Some(Arc::new(of));
    services(fixed(hosts, 3, [10, 0, 5, 1]), ServiceSettings { multicast, ..Default::default() })
}

fn querier() -> GroupSettings {
    let queriers = Some([QuerierSettings::default(); 2]);
    services(fixed(1, 4, [10, 0, 0, 1]), ServiceSettings { queriers, ..Default::default() })
}

/// Multicast figures of a group.
fn seen(group: &HostGroup) -> MulticastStatistics {
    group.statistics(true).multicast.unwrap()
}

#[test]
fn a_querier_has_the_groups_that_hosts_join_and_forgets_those_that_they_leave() {
    let hold = Some(seconds(300.0));
    let of = MulticastSettings { rate: Some(1000), hold, ..multicast(5000) };
    let mut link = Link::of([querier(), members(1, of)]);
    link.run(Some(BEGIN + seconds(5.5)));
    let groups = |link: &Link| link.groups[0].statistics(true).querier.unwrap().groups;
    assert_eq!(groups(&link), 5000, "5000 joins at 1000/s");
    // Longer than members without an answer are remembered: they answer the general queries.
    link.run(Some(BEGIN + seconds(299.0)));
    assert_eq!(groups(&link), 5000);
    assert!(seen(&link.groups[1]).received["general_query"] >= 3);
    link.run(Some(BEGIN + seconds(310.0)));
    assert_eq!(groups(&link), 0, "all have left, and no other host answered");
    let counted = seen(&link.groups[1]);
    assert_eq!((counted.joined, counted.left), (5000, 5000));
    assert!(link.groups[1].is_settled());
}

#[test]
fn a_general_query_to_an_address_is_for_the_host_that_has_it() {
    let mut link = Link::of([members(3, multicast(2))]);
    link.run(Some(BEGIN + seconds(5.0)));
    let query = crate::Query {
        version: GroupVersion::Three,
        max_response: seconds(1.0),
        group: None,
        sources: Vec::new(),
        suppress: false,
        robustness: 2,
        interval: Some(seconds(125.0)),
    };
    let mut packet = Vec::new();
    igmp::write([10, 0, 0, 1].into(), &crate::GroupMessage::Query(query), &mut packet);
    for (to, answers, ignored) in [([10, 0, 5, 1], 1, None), ([10, 0, 5, 2], 0, Some(&1))] {
        packet[16..20].copy_from_slice(&to);
        let before = seen(&link.groups[0]).sent["v3_report"];
        deliver(&mut link, &packet);
        link.run(Some(link.now + seconds(2.0)));
        let counted = seen(&link.groups[0]);
        assert_eq!(counted.sent["v3_report"] - before, answers);
        assert_eq!(counted.ignored.get("wrong_destination"), ignored);
    }
}

#[test]
fn lost_and_repeated_reports_lose_no_group_for_longer_than_a_query_interval() {
    let mut link = Link::of([querier(), members(20, multicast(10))]);
    (link.loss, link.repeats) = (20, 20);
    link.run(Some(BEGIN + seconds(1000.0)));
    assert_eq!(link.groups[0].statistics(true).querier.unwrap().groups, 10);
}

#[test]
fn each_host_joins_its_part_of_the_groups_in_turn() {
    let of = MulticastSettings { each: Some(3), ..multicast(7) };
    let mut link = Link::of([querier(), members(3, of)]);
    link.run(Some(BEGIN + seconds(2.0)));
    let counted = seen(&link.groups[1]);
    // 9 memberships: the last host has the last group, and the first two again.
    assert_eq!((counted.joined, counted.groups), (9, 7));
}

#[test]
fn hosts_leave_at_the_end_if_they_give_addresses_back() {
    let settings = GroupSettings { release: true, ..members(2, multicast(3)) };
    let mut link = Link::of([querier(), settings]);
    link.run(Some(BEGIN + seconds(3.0)));
    let now = link.now;
    link.groups[1].stop(now);
    link.run(Some(now + seconds(5.0)));
    assert_eq!(seen(&link.groups[1]).left, 6);
    assert_eq!(link.groups[0].statistics(true).querier.unwrap().groups, 0);
}

#[test]
fn frames_of_groups_are_counted_by_membership_with_the_delays_of_join_and_leave() {
    let of = MulticastSettings { hold: Some(seconds(10.0)), ..multicast(2) };
    let mut group = HostGroup::new(members(1, of), BEGIN);
    let mut out = FrameQueue::default();
    let frame = |last: u8| {
        let mut frame = vec![1, 0, 0x5e, 1, 0, last, 2, 9, 9, 9, 9, 9, 8, 0, 0x45, 0, 0, 20];
        frame.extend([0, 0, 0, 0, 9, 17, 0, 0, 10, 0, 0, 1, 239, 1, 0, last]);
        frame
    };
    let mut receive = |group: &mut HostGroup, at: f64, last| {
        let at = BEGIN + seconds(at);
        while group.advance(at, &mut out) {}
        assert!(!group.receive(at, (&frame(last), false), &mut out), "it is not for hosts alone");
    };
    receive(&mut group, 0.0, 0);
    receive(&mut group, 0.25, 0);
    receive(&mut group, 0.5, 1);
    receive(&mut group, 0.75, 9);
    // The host leaves both.
    receive(&mut group, 10.0, 9);
    receive(&mut group, 10.5, 1);
    receive(&mut group, 11.0, 1);
    let counted = seen(&group);
    assert_eq!((counted.groups, counted.groups_received), (2, 2));
    assert_eq!((counted.frames, counted.frames_after_leave, counted.unexpected), (3, 2, 2));
    assert_eq!((counted.join.count(), counted.leave.count()), (2, 1));
    assert_eq!(counted.join.max(), seconds(0.5).0);
    assert_eq!(counted.leave.max(), seconds(1.0).0);
}

/// Clients of PPPoE that join three groups of IPv4 and two of IPv6, and their concentrator, which
/// is a querier.
fn members_in_sessions(hosts: u32) -> [GroupSettings; 2] {
    let of = MulticastSettings {
        ranges: vec![(Ipv4Addr::new(239, 1, 0, 0).into(), 3), ("ff3e::1".parse().unwrap(), 2)],
        ..multicast(0)
    };
    let member = ServiceSettings { multicast: Some(Arc::new(of)), ..Default::default() };
    let queriers = Some([QuerierSettings::default(); 2]);
    let querier = ServiceSettings { queriers, ..Default::default() };
    let mut all = [services(pppoe(hosts), member), services(concentrator(hosts), querier)];
    for settings in &mut all {
        match &mut settings.pppoe {
            Some(PppoeSettings::Client(of)) => of.ppp.ipv6 = true,
            Some(PppoeSettings::Server(of)) => of.ppp.ipv6 = true,
            None => {}
        }
    }
    all
}

#[test]
fn groups_are_joined_in_sessions_and_again_in_the_next_ones() {
    let [clients, server] = members_in_sessions(4);
    let mut link = Link::of([GroupSettings { release: true, ..clients }, server.clone()]);
    link.run(Some(BEGIN + seconds(20.0)));
    let groups = |link: &Link| link.of_group(1).querier.unwrap().groups;
    assert_eq!((seen(&link.groups[0]).joined, groups(&link)), (20, 5));
    // Longer than members without an answer are remembered: each session has general queries.
    link.run(Some(BEGIN + seconds(300.0)));
    assert_eq!(groups(&link), 5);
    let counted = seen(&link.groups[0]);
    assert!(counted.received["general_query"] >= 2 * 2 * 4, "{counted:?}");
    assert_eq!((counted.ignored.len(), counted.left), (0, 0), "{counted:?}");
    let outside = |frame: &Vec<u8>| frame[0] & 1 == 1 && frame[12..14] != [0x88, 0x63];
    assert!(!link.sent_frames().iter().any(outside), "only PADIs go to all");

    // The sessions end after unanswered requests of LCP, and their memberships with them.
    link.groups.pop();
    link.run(Some(link.now + seconds(160.0)));
    assert_eq!((seen(&link.groups[0]).joined, seen(&link.groups[0]).left), (20, 20));
    link.groups.push(HostGroup::new(server, link.now));
    link.run(Some(link.now + seconds(120.0)));
    assert_eq!((seen(&link.groups[0]).joined, groups(&link)), (40, 5));
    link.stop();
    assert_eq!((seen(&link.groups[0]).joined, seen(&link.groups[0]).left), (40, 40));
}

#[test]
fn packets_of_groups_in_sessions_are_counted_by_membership_and_left_to_streams() {
    let mut link = Link::of(members_in_sessions(2));
    link.run(Some(BEGIN + seconds(20.0)));
    let (server, session) = link.groups[0].shared_session(1).unwrap();
    for (group, counts) in [([239, 1, 0, 2], (1, 0)), ([239, 1, 0, 9], (1, 1))] {
        let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 9, 17, 0, 0, 10, 0, 0, 1];
        packet.extend(group);
        packet.extend([0, 9, 0, 9, 0, 8, 0, 0]);
        let host = link.groups[0].mac(1);
        let frame = PppoeFrame::session(host, session, PPP_IPV4, &packet);
        let mut octets = Vec::new();
        begin_frame(&mut octets, (host, server), &[], frame.kind);
        octets.extend(frame.octets);
        let now = link.now;
        let claimed = link.groups[0].receive(now, (&octets, false), &mut FrameQueue::default());
        assert!(!claimed, "it is not for hosts alone");
        let counted = seen(&link.groups[0]);
        assert_eq!((counted.frames, counted.unexpected), counts);
    }
}

#[test]
fn speakers_are_each_others_neighbors_until_they_end() {
    let lldp = LldpSettings { system: "host-{}".into(), ..LldpSettings::default() };
    let cdp = CdpSettings { device: "host-{}".into(), ..CdpSettings::default() };
    let with = |settings| {
        let (lldp, cdp) = (Some(lldp.clone()), Some(cdp.clone()));
        services(settings, ServiceSettings { lldp, cdp, ..ServiceSettings::default() })
    };
    let nothing = GroupSettings { addressing: Addressing::None, ..with(fixed(4, 3, [0; 4])) };
    let mut link = Link::of([with(fixed(1, 4, [10, 0, 0, 1])), nothing]);
    link.run(Some(BEGIN + seconds(100.0)));
    let both = |link: &Link, i: usize| {
        let counted = link.groups[i].statistics(true);
        [counted.lldp.unwrap(), counted.cdp.unwrap()]
    };
    let [of_lldp, of_cdp] = both(&link, 0);
    let names: Vec<_> = of_lldp.neighbors.all().map(|(_, _, name)| name.to_owned()).collect();
    assert_eq!(names, ["host-1", "host-2", "host-3", "host-4"]);
    let devices: Vec<_> = of_cdp.neighbors.all().map(|(device, ..)| device.to_owned()).collect();
    assert_eq!(devices, names);
    both(&link, 1).iter().for_each(|of| assert_eq!(of.neighbors.len(), 1));
    let now = link.now;
    link.groups[1].stop(now);
    link.run(Some(now + seconds(1.0)));
    for found in both(&link, 0) {
        assert_eq!((found.neighbors.len(), found.neighbors.ended), (0, 4));
    }
    both(&link, 1).iter().for_each(|of| assert_eq!(of.shutdowns, 4));
}

#[test]
fn two_neighbors_in_a_fast_interval_each_get_an_announcement() {
    let mut lldp = LldpSettings::default();
    lldp.timers.fast = 1;
    let with = ServiceSettings { lldp: Some(lldp.clone()), ..ServiceSettings::default() };
    let mut group = HostGroup::new(services(fixed(2, 1, [10, 0, 0, 1]), with), BEGIN);
    let mut out = FrameQueue::default();
    let mut sent = |at: f64, neighbor: Option<u8>| {
        let at = BEGIN + seconds(at);
        while group.advance(at, &mut out) {}
        if let Some(number) = neighbor {
            let mac = MacAddr([2, 0, 0, 9, 9, number]);
            let mut frame = Vec::new();
            let ends = (crate::lldp::NEAREST_BRIDGE, mac);
            crate::host::begin_frame(&mut frame, ends, &[], crate::lldp::LLDP);
            crate::lldp::write(mac, 121, 1, &lldp, &mut frame);
            group.receive(at, (&frame, false), &mut out);
            while group.advance(at, &mut out) {}
        }
        group.statistics(true).lldp.unwrap().sent
    };
    assert_eq!(sent(10.0, None), 2, "one of each host");
    assert_eq!(sent(10.0, Some(1)), 4);
    assert_eq!([(10.25, 2), (10.5, 3)].map(|(at, number)| sent(at, Some(number))), [4, 4]);
    assert_eq!([10.75, 11.0, 12.0, 20.0].map(|at| sent(at, None)), [4, 6, 6, 6]);
}

/// An authenticator with EAP-MD5 for one host, which answers by the identifiers of RFC 3748.
fn authenticator(frame: &[u8], accept: bool) -> Option<Vec<u8>> {
    let eap = |code: u8, id: u8, data: &[u8]| {
        let len = (4 + data.len()) as u8;
        let mut frame = frame[6..12].to_vec();
        frame.extend([2, 0, 0, 9, 0, 9, 0x88, 0x8e, 2, 0, 0, len, code, id, 0, len]);
        frame.extend(data);
        frame
    };
    match frame[15] {
        1 => Some(eap(1, 10, &[1])),
        0 if frame[22] == 1 => Some(eap(1, 11, &[4, 2, 0xaa, 0xbb])),
        0 => Some(eap(if accept { 3 } else { 4 }, 11, &[])),
        _ => None,
    }
}

#[test]
fn hosts_send_nothing_else_before_they_are_authenticated_and_log_off_at_the_end() {
    let auth = Some(SupplicantSettings {
        identity: "user{}".into(),
        password: "secret".into(),
        attempts: 1,
        ..SupplicantSettings::default()
    });
    let lldp = Some(LldpSettings::default());
    let protocols = ServiceSettings { auth, lldp, ..ServiceSettings::default() };
    for accept in [true, false] {
        let settings = GroupSettings { release: true, ..services(dhcp(3), protocols.clone()) };
        let mut group = HostGroup::new(settings, BEGIN);
        let (mut out, mut now) = (FrameQueue::default(), BEGIN);
        let mut kinds = Vec::new();
        for _ in 0..20 {
            while group.advance(now, &mut out) {}
            now = now + Nanos(1_000_000);
            while let Some((frame, _)) = out.first() {
                let frame = frame.to_vec();
                out.pop();
                let kind = u16::from_be_bytes([frame[12], frame[13]]);
                kinds.push(kind);
                if kind == EAPOL
                    && let Some(answer) = authenticator(&frame, accept)
                {
                    assert!(group.receive(now, (&answer, false), &mut out));
                }
            }
        }
        let counted = group.statistics(true);
        let auth = counted.auth.unwrap();
        assert_eq!(kinds.iter().filter(|kind| **kind == EAPOL).count(), 9, "start, two answers");
        if !accept {
            assert!(kinds.iter().all(|kind| *kind == EAPOL), "{kinds:x?}");
            assert_eq!(counted.failed, [("rejected", 3)].into());
            assert!(group.is_settled());
            assert_eq!(counted.states.iter().find(|(s, _)| *s == DhcpState::Failed).unwrap().1, 3);
            continue;
        }
        assert_eq!((auth.authenticated, auth.time.count()), (3, 3));
        assert_eq!(counted.sent["discover"], 3);
        group.stop(now);
        while group.advance(now, &mut out) {}
        let mut logoffs = 0;
        while let Some((frame, _)) = out.first() {
            logoffs += usize::from(frame[12..16] == [0x88, 0x8e, 2, 2]);
            out.pop();
        }
        assert_eq!(logoffs, 3);
    }
}

#[test]
fn a_host_whose_port_is_closed_begins_again_when_it_is_open() {
    let auth = Some(SupplicantSettings { held_period: seconds(1.0), ..Default::default() });
    let protocols = ServiceSettings { auth, ..ServiceSettings::default() };
    let mut group = HostGroup::new(services(fixed(1, 3, [10, 0, 0, 1]), protocols), BEGIN);
    let (mut out, mut now) = (FrameQueue::default(), BEGIN);
    let mut pass = |group: &mut HostGroup, now: Nanos, accept: bool| {
        while group.advance(now, &mut out) {}
        while let Some((frame, _)) = out.first() {
            let frame = frame.to_vec();
            out.pop();
            if frame[12..14] == [0x88, 0x8e]
                && let Some(answer) = authenticator(&frame, accept)
            {
                group.receive(now, (&answer, false), &mut out);
            }
        }
    };
    pass(&mut group, now, true);
    assert!(group.address(0).is_some());
    // The authenticator asks again, and refuses.
    let mac = group.mac(0).0;
    let mut request = mac.to_vec();
    request.extend([2, 0, 0, 9, 0, 9, 0x88, 0x8e, 2, 0, 0, 5, 1, 10, 0, 5, 1]);
    let mut queue = FrameQueue::default();
    group.receive(now, (&request, false), &mut queue);
    assert!(group.address(0).is_some(), "the port stays open meanwhile");
    let mut refuse = mac.to_vec();
    refuse.extend([2, 0, 0, 9, 0, 9, 0x88, 0x8e, 2, 0, 0, 4, 4, 10, 0, 4]);
    group.receive(now, (&refuse, false), &mut queue);
    assert_eq!(group.address(0), None);
    now = now + seconds(1.0);
    pass(&mut group, now, true);
    assert!(group.address(0).is_some());
    assert_eq!(group.statistics(true).auth.unwrap().authenticated, 2);
}

#[test]
fn a_host_whose_authentication_failed_has_failed_after_the_end_as_well() {
    let period = SupplicantSettings {
        start_period: seconds(1.0),
        max_start: 1,
        ..SupplicantSettings::default()
    };
    let protocols = ServiceSettings { auth: Some(period), ..ServiceSettings::default() };
    for hosts in [dhcp(3), pppoe(3)] {
        let settings = services(hosts, protocols.clone());
        let mut link = Link::of([GroupSettings { release: true, ..settings }]);
        link.run(None);
        link.stop();
        let counted = link.of_group(0);
        assert_eq!(counted.failed, BTreeMap::from([("no_authenticator", 3)]));
        assert_eq!(link.in_state(0, DhcpState::Failed), 3, "{:?}", counted.states);
        let states = counted.auth.unwrap().states;
        assert_eq!((count(&states, "failed"), count(&states, "logged_off")), (3, 0));
    }
}

#[test]
fn a_closed_port_leaves_no_address_that_a_host_has_chosen() {
    let auth = Some(SupplicantSettings { held_period: seconds(1.0), ..Default::default() });
    let protocols = ServiceSettings { auth, ..ServiceSettings::default() };
    let mut group = HostGroup::new(services(chooses(1, 3), protocols), BEGIN);
    let (mut out, mut now) = (FrameQueue::default(), BEGIN);
    let mut pass = |group: &mut HostGroup, now: &mut Nanos| {
        for _ in 0..20 {
            *now = *now + seconds(0.5);
            while group.advance(*now, &mut out) {}
            while let Some((frame, _)) = out.first() {
                let frame = frame.to_vec();
                out.pop();
                if frame[12..14] == [0x88, 0x8e]
                    && let Some(answer) = authenticator(&frame, true)
                {
                    group.receive(*now, (&answer, false), &mut out);
                }
            }
        }
    };
    pass(&mut group, &mut now);
    let first = group.address(0).expect("an address");
    let mut queue = FrameQueue::default();
    for data in [&[1u8, 10, 0, 5, 1][..], &[4, 10, 0, 4]] {
        let mut frame = group.mac(0).0.to_vec();
        frame.extend([2, 0, 0, 9, 0, 9, 0x88, 0x8e, 2, 0, 0, data.len() as u8]);
        frame.extend(data);
        group.receive(now, (&frame, false), &mut queue);
    }
    assert_eq!((group.address(0), group.addresses.len()), (None, 0), "refused");
    pass(&mut group, &mut now);
    let second = group.address(0).expect("another address");
    assert_eq!(group.addresses, HashMap::from([(second, 0)]));
    assert_ne!(first, second);
}

#[test]
fn bound_hosts_are_shared_with_the_mac_address_that_arp_found() {
    let mut link = Link::of([dhcp(100), server(100)]);
    let settings = link.groups[0].settings().clone();
    let macs = (settings.mac, settings.mac_step);
    let table = Arc::new(HostTable::new(settings.count, macs, &[]));
    link.groups[0] = HostGroup::new(settings, BEGIN).sharing(table.clone());
    link.run(Some(BEGIN + seconds(1.0)));
    assert_eq!(table.bound(), 100);
    let gateway = link.groups[1].mac(0);
    for number in 0..100 {
        let host = table.get(number).unwrap();
        let address = link.groups[0].address(number).map(IpAddr::V4);
        let expected = (link.groups[0].mac(number), address, gateway);
        assert_eq!((host.mac, Some(host.address), host.next_hop), expected);
    }
    assert_eq!(link.of_group(0).arp.requests, 1, "one for all");
    assert_eq!(table.losses(), 0);
    // Without the server, leases end.
    link.groups.pop();
    link.run(Some(BEGIN + seconds(1001.0)));
    assert_eq!((table.bound(), table.losses()), (0, 100));
}

#[test]
fn hosts_with_sessions_are_shared_while_they_are_open_and_with_those_of_the_other_end() {
    let mut link = Link::of([pppoe(5), concentrator(5)]);
    let tables = [0, 1].map(|number| {
        let settings = link.groups[number].settings().clone();
        let table = HostTable::new(settings.count, (settings.mac, settings.mac_step), &[]);
        let table = if number == 1 { table.with_sessions([10, 0, 1, 0].into(), 5) } else { table };
        let table = Arc::new(table);
        link.groups[number] = HostGroup::new(settings, BEGIN).sharing(table.clone());
        table
    });
    link.run(Some(BEGIN + seconds(20.0)));
    let [clients, servers] = &tables;
    assert_eq!((clients.bound(), servers.bound()), (5, 1));
    let server = servers.get(0).unwrap();
    let mut numbers = BTreeSet::new();
    for number in 0..5 {
        let host = clients.get(number).unwrap();
        assert_eq!(Some(host.address), link.groups[0].address(number).map(IpAddr::V4));
        assert_eq!((host.next_hop, server.address), (server.mac, [10, 0, 0, 1].into()));
        let back = servers.path(server, host.address).expect("its session");
        assert_eq!((back.next_hop, back.session), (host.mac, host.session));
        numbers.insert(host.session);
    }
    assert_eq!((numbers.len(), numbers.contains(&0)), (5, false));

    // A TCP segment in the session belongs to a flow, and an echo request to the host.
    let host = clients.get(3).unwrap();
    let (IpAddr::V4(source), IpAddr::V4(to)) = (server.address, host.address) else {
        panic!("addresses of IPv4")
    };
    let mut segment = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0];
    segment.extend([source.octets(), to.octets()].concat());
    segment.resize(40, 0);
    let echo = Echo { source: server.address, destination: host.address, id: 1, seq: 1 };
    for (packet, own) in [(segment, false), (echo.request(), true)] {
        let packet = PppoeFrame::session(host.mac, host.session, PPP_IPV4, &packet);
        let mut frame = Vec::new();
        begin_frame(&mut frame, (host.mac, server.mac), &[], packet.kind);
        frame.extend(packet.octets);
        let now = link.now;
        let claimed = link.groups[0].receive(now, (&frame, false), &mut FrameQueue::default());
        assert_eq!(claimed, own);
    }

    // Without an answer to three echo requests of LCP, the sessions end.
    link.groups.pop();
    link.run(Some(BEGIN + seconds(200.0)));
    assert_eq!((clients.bound(), clients.losses()), (0, 5));
}

#[test]
fn a_concentrator_forgets_the_sessions_that_have_ended() {
    let clients = GroupSettings { release: true, ..pppoe(3) };
    let mut link = Link::of([clients, concentrator(3)]);
    let settings = link.groups[1].settings().clone();
    let table = HostTable::new(1, (settings.mac, 1), &[]).with_sessions([10, 0, 1, 0].into(), 3);
    let table = Arc::new(table);
    link.groups[1] = HostGroup::new(settings, BEGIN).sharing(table.clone());
    link.run(Some(BEGIN + seconds(20.0)));
    let sessions = || {
        let host = table.get(0).expect("its address is static");
        (0..3u8).filter(|n| table.path(host, [10, 0, 1, *n].into()).is_some()).count()
    };
    assert_eq!(sessions(), 3);
    let now = link.now;
    link.groups[0].stop(now);
    link.run(Some(now + seconds(20.0)));
    assert_eq!(sessions(), 0);
}

#[test]
fn shared_hosts_follow_a_gateway_that_announces_another_mac_address() {
    let mut link = Link::of([dhcp(5), server(5)]);
    let settings = link.groups[0].settings().clone();
    let table = Arc::new(HostTable::new(5, (settings.mac, settings.mac_step), &[]));
    link.groups[0] = HostGroup::new(settings, BEGIN).sharing(table.clone());
    link.run(Some(BEGIN + seconds(1.0)));
    let (now, gateway, mac) = (link.now, Ipv4Addr::new(10, 0, 0, 1), MacAddr([4; 6]));
    let target_mac = MacAddr::default();
    let arp = Arp { request: true, sender_mac: mac, sender: gateway, target_mac, target: gateway };
    let mut frame = Vec::new();
    begin_frame(&mut frame, (BROADCAST, mac), &[], ARP);
    frame.extend(arp.octets());
    link.groups[0].receive(now, (&frame, false), &mut FrameQueue::default());
    assert!((0..5).all(|host| table.get(host).is_some_and(|host| host.next_hop == mac)));
    assert_eq!(table.losses(), 0);
}

#[test]
fn shared_hosts_follow_a_renewal_that_gives_another_gateway() {
    let mut link = Link::of([dhcp(1), server(1), fixed(1, 5, [10, 0, 0, 2])]);
    let settings = link.groups[0].settings().clone();
    let table = Arc::new(HostTable::new(1, (settings.mac, settings.mac_step), &[]));
    link.groups[0] = HostGroup::new(settings, BEGIN).sharing(table.clone());
    link.run(Some(BEGIN + seconds(1.0)));
    let hop = || table.get(0).expect("it is bound").next_hop;
    assert_eq!(hop(), link.groups[1].mac(0));
    // The renewal is due after 500 s.
    link.groups.remove(1);
    link.run(Some(BEGIN + seconds(510.0)));
    let (.., request) = link.messages().pop().unwrap();
    let ack = Message {
        yiaddr: request.ciaddr,
        lease: Some(1000),
        server: Some([10, 0, 0, 1].into()),
        router: Some([10, 0, 0, 2].into()),
        ..Message::new(Kind::Ack, request.xid, request.chaddr)
    };
    let now = link.now;
    reply(&mut link.groups[0], now, MacAddr([4; 6]), &ack);
    assert_eq!(link.of_group(0).renewed, 1);
    link.run(Some(BEGIN + seconds(512.0)));
    assert_eq!((hop(), table.losses()), (link.groups[1].mac(0), 0), "its flows go on");
}

#[test]
fn a_silent_gateway_is_asked_again_and_no_host_is_shared_before_it_answers() {
    let silent =
        GroupSettings { gateway: Some([10, 0, 9, 9].into()), ..fixed(3, 1, [10, 0, 0, 5]) };
    let table = Arc::new(HostTable::new(3, (silent.mac, 1), &[]));
    let mut link = Link::of([silent]);
    let settings = link.groups[0].settings().clone();
    link.groups[0] = HostGroup::new(settings, BEGIN).sharing(table.clone());
    link.run(Some(BEGIN + seconds(20.0)));
    assert_eq!((table.bound(), link.in_state(0, DhcpState::Bound)), (0, 3));
    assert!(link.of_group(0).arp.unresolved >= 2);
    link.groups.push(HostGroup::new(fixed(1, 2, [10, 0, 9, 9]), link.now));
    link.run(Some(link.now + seconds(5.0)));
    assert_eq!(table.bound(), 3);
}
