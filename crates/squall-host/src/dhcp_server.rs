//! A DHCPv4 server with its leases in memory (RFC 2131 section 4.3).

use std::{
    collections::{HashMap, VecDeque},
    net::Ipv4Addr,
};

use squall_units::{MacAddr, Nanos};

use crate::dhcp_message::{Kind, Message};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    /// The server's own address, which identifies it.
    pub address: Ipv4Addr,
    /// Length of the prefix that clients get as their subnet mask.
    pub prefix: u8,
    /// The router that clients get.
    pub router: Option<Ipv4Addr>,
    /// The first address to give, and how many.
    pub first: Ipv4Addr,
    pub count: u32,
    /// Length of leases in seconds, at least 1.
    pub lease: u32,
    /// How long an offered address is reserved.
    pub offer: Nanos,
    /// Whether a client that asks for it gets its address at once (RFC 4039).
    pub rapid_commit: bool,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            address: Ipv4Addr::UNSPECIFIED,
            prefix: 24,
            router: None,
            first: Ipv4Addr::UNSPECIFIED,
            count: 0,
            lease: 3600,
            // Longer than all retransmissions of a request (4 + 8 + 16 + 32 + 64 s), so that an
            // offer is still valid when the last of them arrives.
            offer: Nanos(130_000_000_000),
            rapid_commit: false,
        }
    }
}

/// Messages that a server has received and sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerCounters {
    pub discovers: u64,
    pub offers: u64,
    pub requests: u64,
    pub acks: u64,
    pub naks: u64,
    pub declines: u64,
    pub releases: u64,
    pub informs: u64,
    /// DISCOVER messages without an offer, because no address was free.
    pub exhausted: u64,
}

/// The server.
#[derive(Debug)]
pub struct DhcpServer {
    settings: ServerSettings,
    pub counters: ServerCounters,
    leases: HashMap<MacAddr, Lease>,
    bound: u64,
    /// Number of addresses that were ever given; those after it are free.
    given: u32,
    /// Addresses before `given` that are free again, by their offset from the first.
    free: VecDeque<u32>,
    /// Ends of offers and of leases. Each list is in order of time, because all of its entries last
    /// equally long. An entry is stale if its client has another end by now.
    offered: VecDeque<(Nanos, MacAddr)>,
    leased: VecDeque<(Nanos, MacAddr)>,
}

/// Stale entries of a list of ends that are kept in any case, so that short lists are not searched
/// for them each time.
const MOST_STALE: usize = 1024;

#[derive(Clone, Copy, Debug)]
struct Lease {
    /// Offset of the address from the first.
    offset: u32,
    until: Nanos,
    bound: bool,
}

impl DhcpServer {
    pub fn new(settings: ServerSettings) -> Self {
        Self {
            settings,
            counters: ServerCounters::default(),
            leases: HashMap::new(),
            bound: 0,
            given: 0,
            free: VecDeque::new(),
            offered: VecDeque::new(),
            leased: VecDeque::new(),
        }
    }

    pub fn settings(&self) -> &ServerSettings {
        &self.settings
    }

    /// Number of leases that are bound.
    pub fn bound(&self) -> u64 {
        self.bound
    }

    /// The client, the address and the end of each bound lease, in no order.
    pub fn leases(&self) -> impl Iterator<Item = (MacAddr, Ipv4Addr, Nanos)> {
        let bound = self.leases.iter().filter(|(_, lease)| lease.bound);
        bound.map(|(client, lease)| (*client, self.address(lease.offset), lease.until))
    }

    /// Handles a client's message. Returns the reply, if the message needs one.
    ///
    /// # Errors
    /// The reason why the message is ignored.
    pub fn receive(
        &mut self,
        now: Nanos,
        message: &Message,
    ) -> Result<Option<Message>, &'static str> {
        self.expire(now);
        let is_of_other = message.server.is_some_and(|server| server != self.settings.address);
        match message.kind {
            // Clients broadcast a DECLINE, so all servers of the link receive it.
            Kind::Decline | Kind::Release if is_of_other => Err("other_server"),
            Kind::Discover => {
                self.counters.discovers += 1;
                let Some(lease) = self.offer(now, message) else {
                    self.counters.exhausted += 1;
                    return Ok(None);
                };
                if message.rapid && self.settings.rapid_commit {
                    let ack = self.commit(now, message, lease.offset);
                    return Ok(Some(Message { rapid: true, ..ack }));
                }
                self.counters.offers += 1;
                Ok(Some(self.reply(Kind::Offer, message, Some(lease))))
            }
            Kind::Request => {
                self.counters.requests += 1;
                self.request(now, message)
            }
            Kind::Decline => {
                self.counters.declines += 1;
                // The address is not free, because another host uses it.
                self.end(&message.chaddr);
                Ok(None)
            }
            Kind::Release => {
                self.counters.releases += 1;
                if let Some(lease) = self.leases.get(&message.chaddr)
                    && self.address(lease.offset) == message.ciaddr
                {
                    self.free.push_back(lease.offset);
                    self.end(&message.chaddr);
                }
                Ok(None)
            }
            Kind::Inform => {
                self.counters.informs += 1;
                // Without a lease time, and with the client's own address (section 4.3.5).
                let ack = self.reply(Kind::Ack, message, None);
                Ok(Some(Message { ciaddr: message.ciaddr, ..ack }))
            }
            Kind::Offer | Kind::Ack | Kind::Nak => Err("not_a_request"),
        }
    }

    /// Reserves an address for the client. A client with a lease keeps its address.
    fn offer(&mut self, now: Nanos, message: &Message) -> Option<Lease> {
        let before = self.leases.get(&message.chaddr).copied();
        let offset = match before {
            Some(lease) if lease.bound => return Some(lease),
            Some(lease) => lease.offset,
            None => self.take()?,
        };
        let lease = Lease { offset, until: now + self.settings.offer, bound: false };
        self.leases.insert(message.chaddr, lease);
        if before.is_none_or(|before| before.until != lease.until) {
            let end = (lease.until, message.chaddr);
            add_end(&mut self.offered, end, self.leases.len(), |mac| {
                self.leases.get(mac).map(|lease| lease.until)
            });
        }
        Some(lease)
    }

    /// Takes a free address. Returns its offset.
    fn take(&mut self) -> Option<u32> {
        let fresh = || {
            let offset = (self.given < self.settings.count).then_some(self.given)?;
            self.given += 1;
            Some(offset)
        };
        self.free.pop_front().or_else(fresh)
    }

    fn request(&mut self, now: Nanos, message: &Message) -> Result<Option<Message>, &'static str> {
        let own = self.settings.address;
        if message.server.is_some_and(|server| server != own) {
            // The client has accepted another server's offer.
            if let Some(lease) = self.leases.get(&message.chaddr).filter(|lease| !lease.bound) {
                self.free.push_back(lease.offset);
                self.end(&message.chaddr);
            }
            return Err("other_server");
        }
        let wanted = match message.requested {
            Some(requested) if message.ciaddr.is_unspecified() => requested,
            _ => message.ciaddr,
        };
        let here = (0..self.settings.count).contains(&self.offset(wanted));
        let known = self.leases.get(&message.chaddr).map(|lease| self.address(lease.offset));
        if known != Some(wanted) {
            // A server that knows nothing of the client is silent, unless it was chosen. A client
            // that reboots learns that it is on another network; the address of one that renews
            // must be of the server (section 4.3.2).
            let reboots = message.ciaddr.is_unspecified();
            let refuses = match known {
                None if reboots => !self.is_on_link(wanted),
                None => here,
                Some(_) => reboots || here,
            };
            if message.server.is_none() && !refuses {
                return Err("unknown_client");
            }
            self.counters.naks += 1;
            return Ok(Some(self.reply(Kind::Nak, message, None)));
        }
        let ack = self.commit(now, message, self.offset(wanted));
        Ok(Some(Message { ciaddr: message.ciaddr, ..ack }))
    }

    /// Binds the address at `offset` to the client, or extends its lease.
    fn commit(&mut self, now: Nanos, message: &Message, offset: u32) -> Message {
        let until = now + Nanos(u64::from(self.settings.lease) * Nanos::SECOND.0);
        let lease = Lease { offset, until, bound: true };
        let before = self.leases.insert(message.chaddr, lease);
        self.bound += u64::from(before.is_none_or(|before| !before.bound));
        if before.is_none_or(|before| before.until != until) {
            let end = (until, message.chaddr);
            add_end(&mut self.leased, end, self.leases.len(), |mac| {
                self.leases.get(mac).map(|lease| lease.until)
            });
        }
        self.counters.acks += 1;
        self.reply(Kind::Ack, message, Some(lease))
    }

    /// Frees addresses whose offers and leases have ended.
    pub(crate) fn expire(&mut self, now: Nanos) {
        loop {
            let over = |end: &mut (Nanos, MacAddr)| end.0 <= now;
            let next = self.offered.pop_front_if(over);
            let Some((until, mac)) = next.or_else(|| self.leased.pop_front_if(over)) else { break };
            if let Some(lease) = self.leases.get(&mac).filter(|lease| lease.until == until) {
                self.free.push_back(lease.offset);
                self.end(&mac);
            }
        }
    }

    fn end(&mut self, mac: &MacAddr) {
        let ended = self.leases.remove(mac);
        self.bound -= u64::from(ended.is_some_and(|lease| lease.bound));
    }

    fn reply(&self, kind: Kind, to: &Message, lease: Option<Lease>) -> Message {
        let settings = &self.settings;
        let given = kind != Kind::Nak;
        Message {
            // A client whose address is refused receives no unicast from its relay agent (section
            // 4.3.2).
            broadcast: to.broadcast || kind == Kind::Nak && !to.giaddr.is_unspecified(),
            giaddr: to.giaddr,
            yiaddr: lease.map_or(Ipv4Addr::UNSPECIFIED, |lease| self.address(lease.offset)),
            server: Some(settings.address),
            lease: lease.map(|_| settings.lease),
            mask: given.then(|| mask_of(settings.prefix)),
            router: settings.router.filter(|_| given),
            // A server copies it (RFC 3046 section 2.2).
            agent: to.agent.clone(),
            ..Message::new(kind, to.xid, to.chaddr)
        }
    }

    fn is_on_link(&self, address: Ipv4Addr) -> bool {
        let settings = &self.settings;
        let differing = address.to_bits() ^ settings.address.to_bits();
        differing & mask_of(settings.prefix).to_bits() == 0
    }

    fn address(&self, offset: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.settings.first.to_bits().wrapping_add(offset))
    }

    fn offset(&self, address: Ipv4Addr) -> u32 {
        address.to_bits().wrapping_sub(self.settings.first.to_bits())
    }
}

/// Adds the end of an offer or of a lease to its list. `until` returns the present end
/// of a client, and `clients` is their number. Stale entries leave the list when most are: a client
/// that renews much more often than it must would fill memory.
pub(crate) fn add_end<C>(
    ends: &mut VecDeque<(Nanos, C)>,
    end: (Nanos, C),
    clients: usize,
    until: impl Fn(&C) -> Option<Nanos>,
) {
    ends.push_back(end);
    if ends.len() > 2 * clients + MOST_STALE {
        ends.retain(|(at, client)| until(client) == Some(*at));
    }
}

/// The subnet mask of a prefix of this length.
pub fn mask_of(prefix: u8) -> Ipv4Addr {
    let zeros = 32 - u32::from(prefix.min(32));
    Ipv4Addr::from_bits(u32::MAX.checked_shl(zeros).unwrap_or(0))
}

/// Where a server's reply goes (section 4.1): its IP address, and whether it is a broadcast on the
/// link; otherwise the frame goes to `chaddr`.
pub fn destination(reply: &Message) -> (Ipv4Addr, bool) {
    if !reply.giaddr.is_unspecified() {
        (reply.giaddr, false)
    } else if reply.kind == Kind::Nak {
        (Ipv4Addr::BROADCAST, true)
    } else if !reply.ciaddr.is_unspecified() {
        (reply.ciaddr, false)
    } else if reply.broadcast {
        (Ipv4Addr::BROADCAST, true)
    } else {
        (reply.yiaddr, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

    fn mac(last: u8) -> MacAddr {
        MacAddr([2, 0, 0, 0, 0, last])
    }

    fn server(count: u32) -> DhcpServer {
        DhcpServer::new(ServerSettings {
            address: SERVER,
            first: [10, 0, 0, 10].into(),
            count,
            lease: 100,
            ..ServerSettings::default()
        })
    }

    fn at(seconds: u64) -> Nanos {
        Nanos(seconds * 1_000_000_000)
    }

    fn discover(server: &mut DhcpServer, now: u64, last: u8) -> Option<Ipv4Addr> {
        let message = Message::new(Kind::Discover, 1, mac(last));
        server.receive(at(now), &message).unwrap().map(|offer| offer.yiaddr)
    }

    fn request(
        server: &mut DhcpServer,
        now: u64,
        last: u8,
        address: Ipv4Addr,
    ) -> Result<Option<Kind>, &'static str> {
        let message = Message {
            requested: Some(address),
            server: Some(SERVER),
            ..Message::new(Kind::Request, 1, mac(last))
        };
        server.receive(at(now), &message).map(|reply| reply.map(|reply| reply.kind))
    }

    #[test]
    fn each_client_gets_an_address_of_its_own_and_the_same_again() {
        let mut server = server(2);
        let first = discover(&mut server, 0, 1).unwrap();
        assert_eq!(discover(&mut server, 1, 1), Some(first));
        let second = discover(&mut server, 1, 2).unwrap();
        assert_ne!(first, second);
        assert_eq!(discover(&mut server, 1, 3), None);
        assert_eq!(server.counters.exhausted, 1);
        assert_eq!(request(&mut server, 2, 1, first), Ok(Some(Kind::Ack)));
        assert_eq!(request(&mut server, 2, 2, first), Ok(Some(Kind::Nak)), "that of another");
        assert_eq!(server.bound(), 1);
    }

    #[test]
    fn addresses_are_free_again_after_the_lease_the_offer_and_a_release() {
        let mut server = server(1);
        let address = discover(&mut server, 0, 1).unwrap();
        assert_eq!(discover(&mut server, 129, 2), None);
        assert_eq!(discover(&mut server, 130, 2), Some(address), "the offer was not accepted");
        assert_eq!(request(&mut server, 130, 2, address), Ok(Some(Kind::Ack)));
        assert_eq!(request(&mut server, 200, 2, address), Ok(Some(Kind::Ack)), "renewed");
        assert_eq!(discover(&mut server, 299, 1), None);
        assert_eq!(discover(&mut server, 300, 1), Some(address), "100 s after the renewal");
        let release = Message { ciaddr: address, ..Message::new(Kind::Release, 1, mac(1)) };
        assert_eq!(server.receive(at(301), &release), Ok(None));
        assert_eq!(discover(&mut server, 301, 2), Some(address));
    }

    #[test]
    fn a_repeated_discover_renews_an_offer() {
        let mut server = server(1);
        let address = discover(&mut server, 0, 1);
        assert_eq!(discover(&mut server, 100, 1), address);
        assert_eq!(discover(&mut server, 229, 2), None, "130 s after the second offer");
        assert_eq!(discover(&mut server, 230, 2), address);
    }

    #[test]
    fn messages_to_another_server_end_no_lease() {
        let mut server = server(1);
        let address = discover(&mut server, 0, 1).unwrap();
        assert_eq!(request(&mut server, 0, 1, address), Ok(Some(Kind::Ack)));
        for kind in [Kind::Decline, Kind::Release] {
            let to_other = Message {
                ciaddr: address,
                server: Some([10, 0, 0, 2].into()),
                ..Message::new(kind, 1, mac(1))
            };
            assert_eq!(server.receive(at(1), &to_other), Err("other_server"));
            assert_eq!((server.bound(), server.leases().count()), (1, 1));
        }
    }

    #[test]
    fn messages_that_are_repeated_without_need_do_not_fill_memory() {
        let mut server = server(2);
        let requested = discover(&mut server, 0, 1);
        for i in 0..10_000 {
            let request = Message { requested, ..Message::new(Kind::Request, 1, mac(1)) };
            server.receive(Nanos(i), &request).unwrap();
            server.receive(Nanos(i), &Message::new(Kind::Discover, 1, mac(2))).unwrap();
        }
        assert!(server.leased.len() < 1100, "{} ends of leases", server.leased.len());
        assert!(server.offered.len() < 1100, "{} ends of offers", server.offered.len());
        // The lease lasts from the last request.
        server.expire(at(100));
        assert_eq!(server.bound(), 1);
        server.expire(at(100) + Nanos(9_999));
        assert_eq!(server.bound(), 0);
    }

    #[test]
    fn a_declined_address_is_not_given_again() {
        let mut server = server(2);
        let address = discover(&mut server, 0, 1).unwrap();
        let decline = Message::new(Kind::Decline, 1, mac(1));
        assert_eq!(server.receive(at(1), &decline), Ok(None));
        assert_ne!(discover(&mut server, 2, 1).unwrap(), address);
        assert_eq!(discover(&mut server, 2, 2), None);
    }

    #[test]
    fn a_server_that_was_not_chosen_takes_its_offer_back() {
        let mut server = server(1);
        let address = discover(&mut server, 0, 1).unwrap();
        let other = Message {
            requested: Some(address),
            server: Some([10, 0, 0, 2].into()),
            ..Message::new(Kind::Request, 1, mac(1))
        };
        assert_eq!(server.receive(at(1), &other), Err("other_server"));
        assert_eq!(discover(&mut server, 2, 2), Some(address));
    }

    #[test]
    fn a_client_that_moved_here_is_refused_and_a_foreign_one_is_ignored() {
        let mut server = server(1);
        let renewal =
            |address| Message { ciaddr: address, ..Message::new(Kind::Request, 1, mac(7)) };
        let nak = server.receive(at(1), &renewal([10, 0, 0, 10].into())).unwrap().unwrap();
        assert_eq!((nak.kind, destination(&nak)), (Kind::Nak, (Ipv4Addr::BROADCAST, true)));
        let foreign = server.receive(at(1), &renewal([192, 0, 2, 1].into()));
        assert_eq!(foreign, Err("unknown_client"));
    }

    #[test]
    fn a_client_that_reboots_keeps_its_address_or_is_refused_on_another_network() {
        let mut server = server(2);
        let address = discover(&mut server, 0, 1).unwrap();
        request(&mut server, 0, 1, address).unwrap();
        let mut reboot = |last, requested: Ipv4Addr| {
            let requested = Some(requested);
            let message = Message { requested, ..Message::new(Kind::Request, 9, mac(last)) };
            server.receive(at(1), &message).map(|reply| reply.map(|reply| reply.kind))
        };
        assert_eq!(reboot(1, address), Ok(Some(Kind::Ack)));
        assert_eq!(reboot(1, [10, 0, 0, 11].into()), Ok(Some(Kind::Nak)), "it has another one");
        assert_eq!(reboot(7, address), Err("unknown_client"), "its server may be another");
        assert_eq!(reboot(7, [10, 9, 0, 1].into()), Ok(Some(Kind::Nak)), "of another network");
    }

    #[test]
    fn a_rapid_client_gets_its_address_at_once_if_the_server_agrees() {
        for agrees in [false, true] {
            let mut server = server(2);
            server.settings.rapid_commit = agrees;
            let rapid = Message { rapid: true, ..Message::new(Kind::Discover, 1, mac(1)) };
            let reply = server.receive(at(0), &rapid).unwrap().unwrap();
            let kind = if agrees { Kind::Ack } else { Kind::Offer };
            assert_eq!((reply.kind, reply.rapid, reply.lease), (kind, agrees, Some(100)));
            assert_eq!(server.bound(), u64::from(agrees));
        }
    }

    #[test]
    fn replies_return_the_information_of_the_relay_agent() {
        let agent = b"\x01\x03ge1".to_vec();
        let giaddr = Ipv4Addr::new(10, 0, 0, 2);
        let relayed =
            Message { agent: agent.clone(), giaddr, ..Message::new(Kind::Discover, 1, mac(1)) };
        let offer = server(2).receive(at(0), &relayed).unwrap().unwrap();
        assert_eq!((offer.agent, offer.giaddr), (agent, giaddr));
    }

    #[test]
    fn a_relayed_refusal_is_broadcast_by_the_relay_agent() {
        let mut server = server(2);
        discover(&mut server, 0, 1);
        for giaddr in [Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::UNSPECIFIED] {
            let request = Message {
                requested: Some([10, 0, 0, 99].into()),
                giaddr,
                ..Message::new(Kind::Request, 1, mac(1))
            };
            let nak = server.receive(at(0), &request).unwrap().unwrap();
            assert_eq!((nak.kind, nak.broadcast), (Kind::Nak, !giaddr.is_unspecified()));
        }
    }

    #[test]
    fn replies_go_where_the_client_can_receive_them() {
        let reply = Message { yiaddr: [10, 0, 0, 9].into(), ..Message::new(Kind::Ack, 1, mac(1)) };
        assert_eq!(destination(&reply), ([10, 0, 0, 9].into(), false));
        let all = Message { broadcast: true, ..reply.clone() };
        assert_eq!(destination(&all), (Ipv4Addr::BROADCAST, true));
        let renewed = Message { ciaddr: [10, 0, 0, 9].into(), ..all.clone() };
        assert_eq!(destination(&renewed), ([10, 0, 0, 9].into(), false));
        let relayed = Message { giaddr: [10, 9, 0, 1].into(), ..all };
        assert_eq!(destination(&relayed), ([10, 9, 0, 1].into(), false));
        assert_eq!((mask_of(0), mask_of(24)), ([0, 0, 0, 0].into(), [255, 255, 255, 0].into()));
        assert_eq!(mask_of(32), Ipv4Addr::BROADCAST);
    }

    #[test]
    fn an_offer_that_is_requested_ends_with_its_lease_and_not_with_the_offer() {
        let mut server = server(1);
        let address = discover(&mut server, 0, 1).unwrap();
        assert_eq!(request(&mut server, 10, 1, address), Ok(Some(Kind::Ack)));
        server.expire(at(110) - Nanos(1));
        assert_eq!(server.bound(), 1);
        server.expire(at(110));
        assert_eq!(server.bound(), 0, "100 s after the request");
        assert_eq!(discover(&mut server, 110, 2), Some(address));
    }

    #[test]
    fn a_discover_of_a_client_with_a_lease_does_not_extend_it() {
        let mut server = server(1);
        let address = discover(&mut server, 0, 1).unwrap();
        assert_eq!(request(&mut server, 0, 1, address), Ok(Some(Kind::Ack)));
        assert_eq!(discover(&mut server, 50, 1), Some(address));
        server.expire(at(100));
        assert_eq!(server.bound(), 0);
    }

    #[test]
    fn the_times_of_offers_and_leases_are_settable() {
        let mut server = server(1);
        (server.settings.offer, server.settings.lease) = (at(5), 7);
        let address = discover(&mut server, 0, 1).unwrap();
        assert_eq!(discover(&mut server, 4, 2), None);
        assert_eq!(discover(&mut server, 5, 2), Some(address));
        assert_eq!(request(&mut server, 6, 2, address), Ok(Some(Kind::Ack)));
        assert_eq!(discover(&mut server, 12, 1), None);
        assert_eq!(discover(&mut server, 13, 1), Some(address));
    }

    #[test]
    fn a_lease_by_rapid_commit_has_its_time_from_the_discover() {
        let mut server = server(1);
        server.settings.rapid_commit = true;
        let rapid = Message { rapid: true, ..Message::new(Kind::Discover, 1, mac(1)) };
        server.receive(at(20), &rapid).unwrap();
        server.expire(at(120) - Nanos(1));
        assert_eq!(server.bound(), 1);
        server.expire(at(120));
        assert_eq!((server.bound(), server.leases().count()), (0, 0));
    }

    #[test]
    fn a_renewal_after_the_end_of_the_lease_is_refused() {
        let mut server = server(1);
        let address = discover(&mut server, 0, 1).unwrap();
        request(&mut server, 0, 1, address).unwrap();
        let renewal = Message { ciaddr: address, ..Message::new(Kind::Request, 1, mac(1)) };
        for (now, kind) in [(99, Kind::Ack), (198, Kind::Ack), (298, Kind::Nak)] {
            let reply = server.receive(at(now), &renewal).unwrap().unwrap();
            assert_eq!(reply.kind, kind, "at {now} s");
        }
    }
}
