//! A DHCPv6 server with its bindings in memory (RFC 9915 section 18.3).

use std::{
    collections::{HashMap, VecDeque},
    net::Ipv6Addr,
};

use squall_units::Nanos;

use crate::{
    dhcp_server::add_end,
    dhcp6_message::{Association, Kind6, Lease6, Message6, status},
};

/// The leases of a server. Lifetimes are in seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server6Settings {
    /// The server's DUID.
    pub identifier: Box<[u8]>,
    /// The first address to give, and how many; 0: none.
    pub first: Ipv6Addr,
    pub count: u32,
    /// From one address to the next; at least 1.
    pub step: u128,
    /// The first prefix to delegate, its length, and how many.
    pub prefixes: Option<(Ipv6Addr, u8, u32)>,
    /// From one prefix to the next; 0: the size of a prefix.
    pub prefix_step: u128,
    pub preferred: u32,
    pub valid: u32,
    /// Whether a Solicit with rapid commit is answered by a reply.
    pub rapid_commit: bool,
    /// How long an offer is reserved.
    pub offer: Nanos,
}

impl Default for Server6Settings {
    fn default() -> Self {
        Self {
            identifier: Box::default(),
            first: Ipv6Addr::UNSPECIFIED,
            count: 0,
            step: 1,
            prefixes: None,
            prefix_step: 0,
            preferred: 2700,
            valid: 3600,
            rapid_commit: true,
            // Longer than all retransmissions of a Request (1 + 2 + 4 + 8 + 16 and 5 times 30 s).
            offer: Nanos(200_000_000_000),
        }
    }
}

/// Messages that a server has received and sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Server6Counters {
    pub solicits: u64,
    pub advertises: u64,
    pub requests: u64,
    pub renews: u64,
    pub rebinds: u64,
    pub confirms: u64,
    pub releases: u64,
    pub declines: u64,
    pub information_requests: u64,
    pub replies: u64,
    /// Messages of clients for which nothing was free, and those of them that were Requests.
    pub exhausted: u64,
    pub refused: u64,
    /// Solicits that were ignored.
    pub ignored: u64,
}

/// A lease of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding6<'a> {
    /// The client's DUID.
    pub client: &'a [u8],
    pub address: Option<Ipv6Addr>,
    /// The delegated prefix and its length.
    pub prefix: Option<(Ipv6Addr, u8)>,
    /// End of the valid lifetime.
    pub until: Nanos,
}

/// The server.
#[derive(Debug)]
pub struct Dhcp6Server {
    settings: Server6Settings,
    pub counters: Server6Counters,
    bindings: HashMap<Box<[u8]>, Binding>,
    bound: u64,
    addresses: Numbers,
    prefixes: Numbers,
    /// Ends of offers and of bindings. Each list is in order of time, because all of its entries
    /// last equally long. An entry is stale if its client has another end by now.
    offered: VecDeque<(Nanos, Box<[u8]>)>,
    leased: VecDeque<(Nanos, Box<[u8]>)>,
}

/// Numbers of addresses or prefixes that are free.
#[derive(Debug)]
struct Numbers {
    count: u32,
    given: u32,
    free: VecDeque<u32>,
}

impl Numbers {
    fn of(count: u32) -> Self {
        Self { count, given: 0, free: VecDeque::new() }
    }

    fn take(&mut self) -> Option<u32> {
        let fresh = || {
            let number = (self.given < self.count).then_some(self.given)?;
            self.given += 1;
            Some(number)
        };
        self.free.pop_front().or_else(fresh)
    }
}

#[derive(Clone, Copy, Debug)]
struct Binding {
    address: Option<u32>,
    prefix: Option<u32>,
    until: Nanos,
    bound: bool,
}

impl Dhcp6Server {
    pub fn new(settings: Server6Settings) -> Self {
        let prefixes = settings.prefixes.map_or(0, |(.., count)| count);
        Self {
            counters: Server6Counters::default(),
            bindings: HashMap::new(),
            bound: 0,
            addresses: Numbers::of(settings.count),
            prefixes: Numbers::of(prefixes),
            offered: VecDeque::new(),
            leased: VecDeque::new(),
            settings,
        }
    }

    /// Number of clients that have a binding.
    pub fn bound(&self) -> u64 {
        self.bound
    }

    pub fn settings(&self) -> &Server6Settings {
        &self.settings
    }

    /// The leases that clients have, in no order. Offers are no leases.
    pub fn leases(&self) -> impl Iterator<Item = Binding6<'_>> {
        self.bindings.iter().filter(|(_, of)| of.bound).map(move |(client, binding)| Binding6 {
            client,
            address: binding.address.map(|number| self.address(number).0),
            prefix: binding.prefix.and_then(|number| self.prefix(number)),
            until: binding.until,
        })
    }

    /// Handles a client's message. Returns the reply, if the message needs one.
    ///
    /// # Errors
    /// The reason why the message is ignored (section 16).
    pub fn receive(
        &mut self,
        now: Nanos,
        message: &Message6,
    ) -> Result<Option<Message6>, &'static str> {
        self.expire(now);
        let reply = self.answer_to(now, message);
        self.counters.ignored += u64::from(reply.is_err() && message.kind == Kind6::Solicit);
        reply
    }

    fn answer_to(
        &mut self,
        now: Nanos,
        message: &Message6,
    ) -> Result<Option<Message6>, &'static str> {
        let own = message.server.as_deref().map(|server| server == &*self.settings.identifier);
        let Some(client) = &message.client else {
            // Only a request for other configuration may come without it (section 16.12).
            return match message.kind {
                Kind6::InformationRequest => Ok(Some(self.informed(message))),
                _ => Err("no_client"),
            };
        };
        match (message.kind, own) {
            (Kind6::Solicit | Kind6::Confirm | Kind6::Rebind, Some(_)) => Err("with_server"),
            (Kind6::Request | Kind6::Renew | Kind6::Release | Kind6::Decline, None) => {
                Err("no_server")
            }
            (_, Some(false)) => Err("other_server"),
            (Kind6::Solicit, _) => {
                self.counters.solicits += 1;
                let commits = message.rapid_commit && self.settings.rapid_commit;
                let reply = if commits { Kind6::Reply } else { Kind6::Advertise };
                let answer = self.give(now, client, message, reply);
                Ok(Some(Message6 { rapid_commit: commits, ..answer }))
            }
            (Kind6::Request, _) => {
                self.counters.requests += 1;
                Ok(Some(self.give(now, client, message, Kind6::Reply)))
            }
            (Kind6::Renew, _) => {
                self.counters.renews += 1;
                match self.bindings.contains_key(client) {
                    true => Ok(Some(self.give(now, client, message, Kind6::Reply))),
                    false => Ok(Some(self.without_binding(message))),
                }
            }
            (Kind6::Rebind, _) => {
                self.counters.rebinds += 1;
                match self.bindings.contains_key(client) {
                    true => Ok(Some(self.give(now, client, message, Kind6::Reply))),
                    // Another server may have given the lease (section 18.3.5).
                    false => Err("unknown_client"),
                }
            }
            (Kind6::Confirm, _) => {
                self.counters.confirms += 1;
                let leases = message.addresses.as_ref().map_or(&[][..], |one| &one.leases);
                if leases.is_empty() {
                    return Err("no_address");
                }
                let here = leases.iter().all(|lease| self.number_of(lease.address).is_some());
                let status = if here { status::SUCCESS } else { status::NOT_ON_LINK };
                Ok(Some(self.reply(Kind6::Reply, message, Some(status))))
            }
            (Kind6::Release, _) => {
                self.counters.releases += 1;
                self.end(client, true);
                Ok(Some(self.reply(Kind6::Reply, message, Some(status::SUCCESS))))
            }
            (Kind6::Decline, _) => {
                self.counters.declines += 1;
                // The address is not free, because another host uses it. A prefix stays delegated.
                match self.bindings.get_mut(client) {
                    Some(binding) if binding.prefix.is_some() => binding.address = None,
                    _ => self.end(client, false),
                }
                Ok(Some(self.reply(Kind6::Reply, message, Some(status::SUCCESS))))
            }
            (Kind6::InformationRequest, _) => Ok(Some(self.informed(message))),
            (Kind6::Advertise | Kind6::Reply | Kind6::Reconfigure, _) => Err("not_a_request"),
        }
    }

    fn informed(&mut self, message: &Message6) -> Message6 {
        self.counters.information_requests += 1;
        self.reply(Kind6::Reply, message, None)
    }

    /// Offers or gives what the message asks for. A client with a binding keeps it.
    fn give(&mut self, now: Nanos, client: &[u8], message: &Message6, kind: Kind6) -> Message6 {
        let before = self.bindings.get(client).copied();
        let none = Binding { address: None, prefix: None, until: now, bound: false };
        let mut binding = before.unwrap_or(none);
        if message.addresses.is_some() && binding.address.is_none() {
            binding.address = self.addresses.take();
        }
        if message.prefixes.is_some() && binding.prefix.is_none() {
            binding.prefix = self.prefixes.take();
        }
        let missing = message.addresses.is_some() && binding.address.is_none()
            || message.prefixes.is_some() && binding.prefix.is_none();
        self.counters.exhausted += u64::from(missing);
        self.counters.refused += u64::from(missing && message.kind == Kind6::Request);
        if binding.address.is_some() || binding.prefix.is_some() {
            if kind == Kind6::Reply {
                binding.until = now + Nanos(u64::from(self.settings.valid) * Nanos::SECOND.0);
                self.bound += u64::from(!binding.bound);
                binding.bound = true;
            } else if !binding.bound {
                binding.until = now + self.settings.offer;
            }
            self.bindings.insert(client.into(), binding);
            if before.is_none_or(|before| before.until != binding.until) {
                let ends = if binding.bound { &mut self.leased } else { &mut self.offered };
                let end = (binding.until, client.into());
                add_end(ends, end, self.bindings.len(), |client| {
                    self.bindings.get(client).map(|binding| binding.until)
                });
            }
        }
        let address = binding.address.map(|number| self.address(number));
        let prefix = binding.prefix.and_then(|number| self.prefix(number));
        let addresses =
            message.addresses.as_ref().map(|of| self.answer(of, address, status::NO_ADDRESSES));
        let prefixes =
            message.prefixes.as_ref().map(|of| self.answer(of, prefix, status::NO_PREFIX));
        Message6 { addresses, prefixes, ..self.reply(kind, message, None) }
    }

    fn answer(&self, to: &Association, lease: Option<(Ipv6Addr, u8)>, none: u16) -> Association {
        let Server6Settings { preferred, valid, .. } = self.settings;
        let Some((address, length)) = lease else {
            return Association { id: to.id, status: Some(none), ..Association::default() };
        };
        Association {
            id: to.id,
            t1: preferred / 2,
            t2: (u64::from(preferred) * 8 / 10) as u32,
            status: None,
            leases: vec![Lease6 { address, length, preferred, valid }],
        }
    }

    fn without_binding(&mut self, message: &Message6) -> Message6 {
        let none = |of: &Association| Association {
            id: of.id,
            status: Some(status::NO_BINDING),
            ..Association::default()
        };
        let (addresses, prefixes) =
            (message.addresses.as_ref().map(none), message.prefixes.as_ref().map(none));
        Message6 { addresses, prefixes, ..self.reply(Kind6::Reply, message, None) }
    }

    fn reply(&mut self, kind: Kind6, to: &Message6, status: Option<u16>) -> Message6 {
        match kind {
            Kind6::Advertise => self.counters.advertises += 1,
            _ => self.counters.replies += 1,
        }
        Message6 {
            client: to.client.clone(),
            server: Some(self.settings.identifier.clone()),
            status,
            ..Message6::new(kind, to.xid)
        }
    }

    /// Frees what offers and bindings had that have ended.
    pub(crate) fn expire(&mut self, now: Nanos) {
        loop {
            let over = |end: &mut (Nanos, Box<[u8]>)| end.0 <= now;
            let next = self.offered.pop_front_if(over);
            let Some((until, client)) = next.or_else(|| self.leased.pop_front_if(over)) else {
                break;
            };
            if self.bindings.get(&client).is_some_and(|binding| binding.until == until) {
                self.end(&client, true);
            }
        }
    }

    /// `frees`: the address can be given again.
    fn end(&mut self, client: &[u8], frees: bool) {
        let Some(binding) = self.bindings.remove(client) else { return };
        self.bound -= u64::from(binding.bound);
        self.addresses.free.extend(binding.address.filter(|_| frees));
        self.prefixes.free.extend(binding.prefix);
    }

    fn address(&self, number: u32) -> (Ipv6Addr, u8) {
        let offset = u128::from(number).wrapping_mul(self.settings.step.max(1));
        (Ipv6Addr::from_bits(self.settings.first.to_bits().wrapping_add(offset)), 128)
    }

    fn prefix(&self, number: u32) -> Option<(Ipv6Addr, u8)> {
        let (first, length, _) = self.settings.prefixes?;
        let step = match self.settings.prefix_step {
            0 => 1 << (128 - u32::from(length.clamp(1, 128))),
            step => step,
        };
        let offset = u128::from(number).wrapping_mul(step);
        Some((Ipv6Addr::from_bits(first.to_bits().wrapping_add(offset)), length))
    }

    fn number_of(&self, address: Ipv6Addr) -> Option<u32> {
        let offset = address.to_bits().wrapping_sub(self.settings.first.to_bits());
        let step = self.settings.step.max(1);
        let number = u32::try_from(offset / step).ok().filter(|_| offset.is_multiple_of(step))?;
        (number < self.settings.count).then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use squall_units::MacAddr;

    use super::*;
    use crate::dhcp6_message::duid_of;

    fn server(count: u32) -> Dhcp6Server {
        Dhcp6Server::new(Server6Settings {
            identifier: duid_of(MacAddr([4; 6])),
            first: "2001:db8::100".parse().unwrap(),
            count,
            prefixes: Some(("2001:db8:100::".parse().unwrap(), 56, count)),
            preferred: 100,
            valid: 200,
            ..Server6Settings::default()
        })
    }

    fn at(seconds: u64) -> Nanos {
        Nanos(seconds * Nanos::SECOND.0)
    }

    fn message(kind: Kind6, last: u8) -> Message6 {
        let to_server = !matches!(
            kind,
            Kind6::Solicit | Kind6::Confirm | Kind6::Rebind | Kind6::InformationRequest
        );
        Message6 {
            client: Some(duid_of(MacAddr([2, 0, 0, 0, 0, last]))),
            server: to_server.then(|| duid_of(MacAddr([4; 6]))),
            addresses: Some(Association { id: 1, ..Association::default() }),
            ..Message6::new(kind, 7)
        }
    }

    fn get(server: &mut Dhcp6Server, now: u64, message: &Message6) -> Message6 {
        server.receive(at(now), message).expect("not ignored").expect("an answer")
    }

    fn given(answer: &Message6) -> Option<Ipv6Addr> {
        answer.addresses.as_ref()?.leases.first().map(|lease| lease.address)
    }

    #[test]
    fn each_client_gets_an_address_of_its_own_and_the_same_again() {
        let mut server = server(2);
        let offer = get(&mut server, 0, &message(Kind6::Solicit, 1));
        let first = given(&offer).unwrap();
        assert_eq!((offer.kind, offer.xid), (Kind6::Advertise, 7));
        assert_eq!(given(&get(&mut server, 1, &message(Kind6::Solicit, 1))), Some(first));
        let second = given(&get(&mut server, 1, &message(Kind6::Solicit, 2))).unwrap();
        assert_ne!(first, second);
        let none = get(&mut server, 1, &message(Kind6::Solicit, 3));
        assert_eq!(none.addresses.unwrap().status, Some(status::NO_ADDRESSES));
        assert_eq!((server.counters.exhausted, server.bound()), (1, 0));
        let reply = get(&mut server, 2, &message(Kind6::Request, 1));
        assert_eq!((reply.kind, given(&reply), server.bound()), (Kind6::Reply, Some(first), 1));
        let association = reply.addresses.unwrap();
        assert_eq!((association.t1, association.t2), (50, 80));
    }

    #[test]
    fn rapid_commit_binds_at_once() {
        let mut server = server(1);
        let solicit = Message6 { rapid_commit: true, ..message(Kind6::Solicit, 1) };
        let reply = get(&mut server, 0, &solicit);
        assert_eq!((reply.kind, reply.rapid_commit, server.bound()), (Kind6::Reply, true, 1));
    }

    #[test]
    fn prefixes_are_delegated_one_after_the_other() {
        let mut server = server(3);
        let wants = Some(Association { id: 1, ..Association::default() });
        for (last, expected) in [(1, "2001:db8:100::"), (2, "2001:db8:100:100::")] {
            let request = Message6 {
                addresses: None,
                prefixes: wants.clone(),
                ..message(Kind6::Request, last)
            };
            let lease = get(&mut server, 0, &request).prefixes.unwrap().leases[0];
            assert_eq!((lease.address, lease.length), (expected.parse().unwrap(), 56));
        }
    }

    #[test]
    fn steps_lead_from_one_address_or_prefix_to_the_next() {
        let mut server = Dhcp6Server::new(Server6Settings {
            step: 1 << 64,
            prefix_step: 1 << 80,
            ..server(2).settings().clone()
        });
        for (last, address, prefix) in
            [(1, "2001:db8::100", "2001:db8:100::"), (2, "2001:db8:0:1::100", "2001:db8:101::")]
        {
            let request = Message6 {
                prefixes: Some(Association { id: 1, ..Association::default() }),
                ..message(Kind6::Request, last)
            };
            let reply = get(&mut server, 0, &request);
            assert_eq!(given(&reply), Some(address.parse().unwrap()));
            let lease = reply.prefixes.unwrap().leases[0];
            assert_eq!((lease.address, lease.length), (prefix.parse().unwrap(), 56));
            assert_eq!(server.number_of(address.parse().unwrap()), Some(u32::from(last) - 1));
        }
        for other in ["2001:db8::101", "2001:db8:0:2::100", "2001:db7::100"] {
            assert_eq!(server.number_of(other.parse().unwrap()), None, "{other}");
        }
    }

    #[test]
    fn leases_are_listed_until_they_end_and_offers_are_not() {
        let mut server = server(2);
        get(&mut server, 0, &message(Kind6::Request, 1));
        get(&mut server, 0, &message(Kind6::Solicit, 2));
        let client = duid_of(MacAddr([2, 0, 0, 0, 0, 1]));
        let expected = Binding6 {
            client: &client,
            address: Some("2001:db8::100".parse().unwrap()),
            prefix: None,
            until: at(200),
        };
        assert_eq!(server.leases().collect::<Vec<_>>(), [expected]);
        server.expire(at(200));
        assert_eq!(server.leases().count(), 0);
    }

    #[test]
    fn refused_requests_and_ignored_solicits_are_counted() {
        let mut server = server(1);
        get(&mut server, 0, &message(Kind6::Request, 1));
        get(&mut server, 0, &message(Kind6::Solicit, 2));
        assert_eq!((server.counters.refused, server.counters.exhausted), (0, 1));
        get(&mut server, 0, &message(Kind6::Request, 2));
        assert_eq!((server.counters.refused, server.counters.exhausted), (1, 2));
        let with_server = Message6 { server: Some([1].into()), ..message(Kind6::Solicit, 1) };
        server.receive(at(0), &with_server).expect_err("ignored");
        server.receive(at(0), &message(Kind6::Rebind, 3)).expect_err("ignored");
        assert_eq!((server.counters.ignored, server.counters.solicits), (1, 1));
    }

    #[test]
    fn addresses_are_free_again_after_the_offer_the_lease_and_a_release() {
        let mut server = server(1);
        let address = given(&get(&mut server, 0, &message(Kind6::Solicit, 1)));
        assert_eq!(given(&get(&mut server, 199, &message(Kind6::Solicit, 2))), None);
        assert_eq!(given(&get(&mut server, 200, &message(Kind6::Solicit, 2))), address);
        get(&mut server, 200, &message(Kind6::Request, 2));
        get(&mut server, 300, &message(Kind6::Renew, 2));
        assert_eq!(given(&get(&mut server, 499, &message(Kind6::Solicit, 1))), None);
        assert_eq!(given(&get(&mut server, 500, &message(Kind6::Solicit, 1))), address);
        get(&mut server, 501, &message(Kind6::Release, 1));
        assert_eq!(given(&get(&mut server, 501, &message(Kind6::Solicit, 2))), address);
    }

    #[test]
    fn a_declined_address_is_not_given_again() {
        let mut server = server(2);
        let address = given(&get(&mut server, 0, &message(Kind6::Request, 1)));
        get(&mut server, 1, &message(Kind6::Decline, 1));
        assert_ne!(given(&get(&mut server, 2, &message(Kind6::Request, 1))), address);
        assert_eq!(given(&get(&mut server, 2, &message(Kind6::Request, 2))), None);
    }

    #[test]
    fn a_prefix_stays_delegated_when_the_address_next_to_it_is_declined() {
        let mut server = server(3);
        let both = |kind, last| Message6 {
            prefixes: Some(Association { id: 1, ..Association::default() }),
            ..message(kind, last)
        };
        let prefix = |reply: &Message6| reply.prefixes.as_ref().unwrap().leases[0].address;
        let first = get(&mut server, 0, &both(Kind6::Request, 1));
        get(&mut server, 1, &message(Kind6::Decline, 1));
        assert_eq!(server.bound(), 1);
        let other = get(&mut server, 2, &both(Kind6::Request, 2));
        assert_ne!(prefix(&other), prefix(&first));
        let again = get(&mut server, 3, &both(Kind6::Request, 1));
        assert_eq!(prefix(&again), prefix(&first));
        assert_ne!(given(&again), given(&first));
    }

    #[test]
    fn messages_that_are_repeated_without_need_do_not_fill_memory() {
        let mut server = server(2);
        for i in 0..10_000 {
            for (kind, last) in [(Kind6::Request, 1), (Kind6::Solicit, 2)] {
                server.receive(Nanos(i), &message(kind, last)).unwrap();
            }
        }
        assert!(server.leased.len() < 1100, "{} ends of bindings", server.leased.len());
        assert!(server.offered.len() < 1100, "{} ends of offers", server.offered.len());
        // The binding lasts from the last request.
        server.expire(at(200));
        assert_eq!(server.bound(), 1);
        server.expire(at(200) + Nanos(9_999));
        assert_eq!(server.bound(), 0);
    }

    #[test]
    fn unknown_clients_begin_again_or_are_left_to_other_servers() {
        let mut server = server(2);
        let reply = get(&mut server, 0, &message(Kind6::Renew, 1));
        assert_eq!(reply.addresses.unwrap().status, Some(status::NO_BINDING));
        let rebind = server.receive(at(0), &message(Kind6::Rebind, 1));
        assert_eq!(rebind, Err("unknown_client"));
    }

    #[test]
    fn addresses_of_this_link_are_confirmed_and_others_are_not() {
        let mut server = server(2);
        for (address, expected) in
            [("2001:db8::101", status::SUCCESS), ("2001:db8:9::1", status::NOT_ON_LINK)]
        {
            let address = address.parse().unwrap();
            let lease = Lease6 { address, length: 128, preferred: 0, valid: 0 };
            let addresses =
                Some(Association { id: 1, leases: vec![lease], ..Association::default() });
            let confirm = Message6 { addresses, ..message(Kind6::Confirm, 1) };
            assert_eq!(get(&mut server, 0, &confirm).status, Some(expected));
        }
        assert_eq!(server.receive(at(0), &message(Kind6::Confirm, 1)), Err("no_address"));
    }

    #[test]
    fn messages_that_are_not_for_this_server_are_ignored() {
        let mut server = server(2);
        let other = Some(duid_of(MacAddr([6; 6])));
        let request = Message6 { server: other.clone(), ..message(Kind6::Request, 1) };
        assert_eq!(server.receive(at(0), &request), Err("other_server"));
        let solicit = Message6 { server: other, ..message(Kind6::Solicit, 1) };
        assert_eq!(server.receive(at(0), &solicit), Err("with_server"));
        let anonymous = Message6 { client: None, ..message(Kind6::Solicit, 1) };
        assert_eq!(server.receive(at(0), &anonymous), Err("no_client"));
        let request = Message6 { server: None, ..message(Kind6::Request, 1) };
        assert_eq!(server.receive(at(0), &request), Err("no_server"));
        assert_eq!(server.receive(at(0), &message(Kind6::Reply, 1)), Err("not_a_request"));
        let asks = Message6 { client: None, ..message(Kind6::InformationRequest, 1) };
        assert_eq!(get(&mut server, 0, &asks).kind, Kind6::Reply);
    }

    #[test]
    fn an_offer_that_is_requested_ends_with_its_lifetime_and_not_with_the_offer() {
        let mut server = server(1);
        get(&mut server, 0, &message(Kind6::Solicit, 1));
        get(&mut server, 50, &message(Kind6::Request, 1));
        server.expire(at(250) - Nanos(1));
        assert_eq!(server.bound(), 1);
        server.expire(at(250));
        assert_eq!(server.bound(), 0, "valid lifetime of 200 s");
    }

    #[test]
    fn a_solicit_of_a_client_with_a_lease_does_not_extend_it() {
        let mut server = server(1);
        get(&mut server, 0, &message(Kind6::Request, 1));
        get(&mut server, 150, &message(Kind6::Solicit, 1));
        server.expire(at(200));
        assert_eq!(server.bound(), 0);
    }

    #[test]
    fn renew_and_rebind_extend_a_lease_from_their_time() {
        for kind in [Kind6::Renew, Kind6::Rebind] {
            let mut server = server(1);
            get(&mut server, 0, &message(Kind6::Request, 1));
            let reply = get(&mut server, 190, &message(kind, 1));
            let lease = reply.addresses.unwrap().leases[0];
            assert_eq!((lease.preferred, lease.valid), (100, 200));
            server.expire(at(390) - Nanos(1));
            assert_eq!(server.bound(), 1);
            server.expire(at(390));
            assert_eq!(server.bound(), 0);
        }
    }

    #[test]
    fn the_time_of_an_offer_is_settable() {
        let mut server = server(1);
        server.settings.offer = at(5);
        get(&mut server, 0, &message(Kind6::Solicit, 1));
        assert_eq!(given(&get(&mut server, 4, &message(Kind6::Solicit, 2))), None);
        assert!(given(&get(&mut server, 5, &message(Kind6::Solicit, 2))).is_some());
    }
}
