//! The hosts of a group that other sources may send from: their addresses and next hops.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicU32, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

use squall_units::MacAddr;

use crate::group::mac_bits;

/// The hosts of a group that have an address and a resolved next hop. The group's worker writes it;
/// any number of workers read it, without locks: each frame of a stream reads a host, and a writer
/// must not wait for them (docs/adr/0059).
#[derive(Debug)]
pub struct HostTable {
    mac: MacAddr,
    mac_step: u64,
    tags: Vec<(u16, u16)>,
    hosts: Box<[Entry]>,
    /// The addresses, if they are those of IPv6: the upper and the lower half.
    wide: Option<Box<[[AtomicU64; 2]]>>,
    /// The sessions of PPPoE of the hosts' clients, if they are access concentrators.
    sessions: Option<Sessions>,
    /// The numbers of the bound hosts, in the first `bound` places.
    order: Box<[AtomicU32]>,
    bound: AtomicU32,
    /// How often a host has lost its address.
    losses: AtomicU64,
    /// Number of sources that may still send from hosts or to them.
    users: AtomicU32,
    /// Under a lock, which is taken when one begins, and not for each packet.
    conversations: Mutex<Conversations>,
}

/// The ends of a conversation, its client first, and whether it is over UDP.
pub type ConversationEnds = ((IpAddr, u16), (IpAddr, u16), bool);

/// Conversations that both ends know by number, and that began from hosts. One has one entry, so
/// there are never more than conversations.
#[derive(Debug, Default)]
struct Conversations {
    /// The numbers, and whether the server has asked for them.
    by_ends: HashMap<ConversationEnds, (u32, bool)>,
    by_number: HashMap<u32, ConversationEnds>,
}

/// One host: a sequence lock whose sequence number is in the word that has the address.
#[derive(Debug, Default)]
struct Entry {
    /// The IPv4 address, or [`WIDE`], and below it the number of changes; 0: no address.
    address: AtomicU64,
    /// The number of a session of PPPoE, and below it a MAC address.
    next_hop: AtomicU64,
    /// Its place in the order. Only the writer uses it.
    place: AtomicU32,
    /// Number of changes. Only the writer uses it.
    changes: AtomicU32,
}

/// By address of a client: the number of its session, and below it its MAC address; 0: none.
#[derive(Debug)]
struct Sessions {
    first: Ipv4Addr,
    by_address: Box<[AtomicU64]>,
}

/// In place of an IPv4 address: that of IPv6 is in its own words.
const WIDE: u32 = 1;

/// A host that may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundHost {
    pub number: u32,
    pub mac: MacAddr,
    pub address: IpAddr,
    pub next_hop: MacAddr,
    /// The session of PPPoE in which its frames leave; 0: they leave in none.
    pub session: u16,
}

/// Hosts tried for one frame. A host found in the order may lose its address before it is read; that
/// several do so in a row is possible only while all of them do.
const TRIES: usize = 8;

impl HostTable {
    /// The table of `count` hosts, none of which is bound. `macs` is the MAC address of the first
    /// host, and by how much that of each further one is higher, at least 1. `tags` are the VLAN
    /// tags of their frames, outermost first: TPID, then priority and VLAN id.
    pub fn new(count: u32, macs: (MacAddr, u64), tags: &[(u16, u16)]) -> Self {
        let count = count as usize;
        Self {
            mac: macs.0,
            mac_step: macs.1.max(1),
            tags: tags.to_vec(),
            hosts: (0..count).map(|_| Entry::default()).collect(),
            wide: None,
            sessions: None,
            order: (0..count).map(|_| AtomicU32::default()).collect(),
            bound: AtomicU32::new(0),
            losses: AtomicU64::new(0),
            users: AtomicU32::new(0),
            conversations: Mutex::default(),
        }
    }

    /// The same table for IPv6 addresses. It is for IPv4 otherwise.
    #[must_use]
    pub fn over_ipv6(self) -> Self {
        let wide = (0..self.hosts.len()).map(|_| Default::default()).collect();
        Self { wide: Some(wide), ..self }
    }

    /// The same table for an access concentrator, which gives its clients `count` addresses from
    /// `first` on. [`HostTable::path`] then knows their sessions.
    #[must_use]
    pub fn with_sessions(self, first: Ipv4Addr, count: u32) -> Self {
        let by_address = (0..count).map(|_| AtomicU64::default()).collect();
        Self { sessions: Some(Sessions { first, by_address }), ..self }
    }

    /// Whether it has IPv6 addresses.
    pub fn is_ipv6(&self) -> bool {
        self.wide.is_some()
    }

    /// VLAN tags of the hosts' frames, outermost first: TPID, then priority and VLAN id.
    pub fn tags(&self) -> &[(u16, u16)] {
        &self.tags
    }

    /// A further source sends from hosts or to them, until [`HostTable::end_use`].
    pub fn begin_use(&self) {
        self.users.fetch_add(1, Relaxed);
    }

    pub fn end_use(&self) {
        self.users.fetch_sub(1, Release);
    }

    /// Number of sources that use the hosts: between [`HostTable::begin_use`] and
    /// [`HostTable::end_use`].
    pub fn users(&self) -> u32 {
        self.users.load(Acquire)
    }

    /// Whether sources may still use the hosts, which therefore keep their addresses.
    pub fn is_in_use(&self) -> bool {
        self.users() > 0
    }

    /// Conversation `number` has begun from a host. Its server, which did not know the address of
    /// the host before, finds it by its ends.
    pub fn begin_conversation(&self, ends: ConversationEnds, number: u32) {
        let mut all = self.conversations();
        if let Some(before) = all.by_number.insert(number, ends)
            && all.by_ends.get(&before).is_some_and(|(other, _)| *other == number)
        {
            all.by_ends.remove(&before);
        }
        all.by_ends.insert(ends, (number, false));
    }

    /// The number of the conversation that began last with these ends, and whether this is the
    /// first call for it. After that, another flow may have the same ends.
    pub fn accept_conversation(&self, ends: &ConversationEnds) -> Option<(u32, bool)> {
        let mut all = self.conversations();
        let (number, accepted) = all.by_ends.get_mut(ends)?;
        Some((*number, !std::mem::replace(accepted, true)))
    }

    fn conversations(&self) -> MutexGuard<'_, Conversations> {
        self.conversations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of hosts of the group.
    pub fn hosts(&self) -> usize {
        self.hosts.len()
    }

    /// Number of bound hosts.
    #[inline]
    pub fn bound(&self) -> u32 {
        self.bound.load(Acquire)
    }

    /// How often a host has lost its address: while the number stays the same, flows keep theirs.
    #[inline]
    pub fn losses(&self) -> u64 {
        self.losses.load(Acquire)
    }

    /// The host that has this MAC address.
    pub fn host_of_mac(&self, mac: MacAddr) -> Option<u32> {
        let offset = mac_bits(mac).checked_sub(mac_bits(self.mac))?;
        let (number, rest) = (offset / self.mac_step, offset % self.mac_step);
        (rest == 0 && number < self.hosts.len() as u64).then_some(number as u32)
    }

    /// The host with this number, if it is bound.
    #[inline]
    pub fn get(&self, number: u32) -> Option<BoundHost> {
        let entry = self.hosts.get(number as usize)?;
        loop {
            let before = entry.address.load(Acquire);
            if before == 0 {
                return None;
            }
            let next_hop = entry.next_hop.load(Acquire);
            let address = match &self.wide {
                None => Ipv4Addr::from_bits((before >> 32) as u32).into(),
                Some(wide) => address_of(&wide[number as usize]).into(),
            };
            if entry.address.load(Acquire) == before {
                let mac = self.mac_of(number);
                let (session, next_hop) = session_of_bits(next_hop);
                return Some(BoundHost { number, mac, address, next_hop, session });
            }
        }
    }

    /// `host` with the next hop and the session of packets to `remote`. `None`: it is an access
    /// concentrator, and no client has this address.
    #[inline]
    pub fn path(&self, host: BoundHost, remote: IpAddr) -> Option<BoundHost> {
        let Some(Sessions { first, by_address }) = &self.sessions else { return Some(host) };
        let IpAddr::V4(remote) = remote else { return None };
        let number = remote.to_bits().checked_sub(first.to_bits())?;
        let bits = by_address.get(number as usize)?.load(Acquire);
        let (session, next_hop) = session_of_bits(bits);
        (session != 0).then_some(BoundHost { session, next_hop, ..host })
    }

    /// Sets the session of the client with this address, and its MAC address. Only the group's
    /// worker may call this.
    pub fn set_session(&self, client: Ipv4Addr, of: Option<(MacAddr, u16)>) {
        let Some(Sessions { first, by_address }) = &self.sessions else { return };
        let number = client.to_bits().wrapping_sub(first.to_bits());
        if let Some(entry) = by_address.get(number as usize) {
            entry.store(of.map_or(0, |(mac, session)| session_bits(mac, session)), Release);
        }
    }

    /// The next bound host in turn. `at` is the reader's position, 0 at first.
    #[inline]
    pub fn next(&self, at: &mut u32) -> Option<BoundHost> {
        for _ in 0..TRIES {
            let bound = self.bound();
            if bound == 0 {
                return None;
            }
            let place = if *at < bound { *at } else { 0 };
            *at = place + 1;
            let number = self.order[place as usize].load(Relaxed);
            if let Some(host) = self.get(number) {
                return Some(host);
            }
        }
        None
    }

    #[inline]
    fn mac_of(&self, number: u32) -> MacAddr {
        mac_of_bits(mac_bits(self.mac).wrapping_add(u64::from(number).wrapping_mul(self.mac_step)))
    }

    /// Sets the address and the next hop of a host. The address has the table's family. Only the
    /// group's worker may call this.
    pub fn bind(&self, number: u32, address: IpAddr, next_hop: MacAddr) {
        self.bind_in_session(number, address, next_hop, 0);
    }

    /// As [`HostTable::bind`], for a host whose frames leave in a session of PPPoE.
    pub fn bind_in_session(&self, number: u32, address: IpAddr, next_hop: MacAddr, session: u16) {
        let Some(entry) = self.hosts.get(number as usize) else { return };
        let known = entry.address.load(Relaxed);
        let same = self.get(number).is_none_or(|host| host.address == address);
        if known != 0 && same {
            // The address stays, so that no reader takes the host for one that has lost it.
            entry.next_hop.store(session_bits(next_hop, session), Release);
            return;
        }
        entry.address.store(0, Relaxed);
        // Released after the address is 0, so that no reader takes the old address with the new
        // next hop, or one half of the new address.
        entry.next_hop.store(session_bits(next_hop, session), Release);
        let word = match (address, &self.wide) {
            (IpAddr::V6(address), Some(wide)) => {
                let bits = address.to_bits();
                let [high, low] = &wide[number as usize];
                high.store((bits >> 64) as u64, Release);
                low.store(bits as u64, Release);
                WIDE
            }
            (IpAddr::V4(address), None) => address.to_bits(),
            _ => unreachable!("a group shares addresses of one family"),
        };
        let changes = entry.changes.load(Relaxed).wrapping_add(1);
        entry.changes.store(changes, Relaxed);
        entry.address.store(u64::from(word) << 32 | u64::from(changes), Release);
        // After the change: a reader looks for lost addresses once for each count.
        self.losses.fetch_add(u64::from(!same), Release);
        if known == 0 {
            let bound = self.bound.load(Relaxed);
            self.order[bound as usize].store(number, Relaxed);
            entry.place.store(bound, Relaxed);
            self.bound.store(bound + 1, Release);
        }
    }

    /// Removes the address of a host. Only the group's worker may call this.
    pub fn unbind(&self, number: u32) {
        let Some(entry) = self.hosts.get(number as usize) else { return };
        if entry.address.swap(0, Release) == 0 {
            return;
        }
        // The last host in the order takes the place.
        let (place, last) = (entry.place.load(Relaxed), self.bound.load(Relaxed) - 1);
        let moved = self.order[last as usize].load(Relaxed);
        self.order[place as usize].store(moved, Relaxed);
        self.hosts[moved as usize].place.store(place, Relaxed);
        self.bound.store(last, Release);
        self.losses.fetch_add(1, Release);
    }
}

fn address_of([high, low]: &[AtomicU64; 2]) -> Ipv6Addr {
    let (high, low) = (high.load(Acquire), low.load(Acquire));
    Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low))
}

fn session_bits(mac: MacAddr, session: u16) -> u64 {
    u64::from(session) << 48 | mac_bits(mac)
}

fn session_of_bits(bits: u64) -> (u16, MacAddr) {
    ((bits >> 48) as u16, mac_of_bits(bits))
}

fn mac_of_bits(bits: u64) -> MacAddr {
    let [_, _, octets @ ..] = bits.to_be_bytes();
    MacAddr(octets)
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, thread};

    use super::*;

    const HOP: MacAddr = MacAddr([2, 9, 0, 0, 0, 9]);

    fn table(count: u32) -> HostTable {
        HostTable::new(count, (MacAddr([2, 0, 0, 0, 0, 1]), 2), &[])
    }

    fn address(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + number).into()
    }

    #[test]
    fn bound_hosts_take_turns_and_others_do_not() {
        let (table, mut at) = (table(5), 0);
        assert_eq!(table.next(&mut at), None);
        for number in [4, 1, 3] {
            table.bind(number, address(number), HOP);
        }
        let turns: Vec<u32> =
            (0..6).map(|_| table.next(&mut at).expect("three are bound").number).collect();
        assert_eq!(turns, [4, 1, 3, 4, 1, 3]);
        let host = table.get(3).expect("it is bound");
        assert_eq!((host.address, host.next_hop), (address(3), HOP));
        assert_eq!(table.host_of_mac(host.mac), Some(3));
        assert_eq!(table.get(0), None);
        table.unbind(4);
        table.unbind(4);
        let mut turns: Vec<u32> =
            (0..4).map(|_| table.next(&mut at).expect("two are bound").number).collect();
        turns.sort_unstable();
        assert_eq!((turns, table.bound(), table.losses()), (vec![1, 1, 3, 3], 2, 1));
    }

    #[test]
    fn a_new_address_is_a_loss_of_the_old_one_and_a_new_next_hop_is_not() {
        let table = table(1);
        table.bind(0, address(1), HOP);
        table.bind(0, address(1), MacAddr([2; 6]));
        assert_eq!((table.losses(), table.bound()), (0, 1));
        table.bind(0, address(2), HOP);
        assert_eq!((table.losses(), table.bound()), (1, 1));
    }

    #[test]
    fn a_host_that_keeps_its_address_is_never_without_it() {
        let table = Arc::new(table(1));
        table.bind(0, address(1), HOP);
        let reader = thread::spawn({
            let table = table.clone();
            move || (0..1_000_000).all(|_| table.get(0).is_some())
        });
        while !reader.is_finished() {
            table.bind(0, address(1), HOP);
            table.bind_in_session(0, address(1), HOP, 7);
        }
        assert!(reader.join().expect("no panic"));
        assert_eq!((table.losses(), table.get(0).map(|host| host.session)), (0, Some(7)));
    }

    /// Binds hosts to `address(n)` with a next hop made of `n`, while another thread reads them.
    fn changes(table: HostTable, address: fn(u32) -> IpAddr) {
        let table = Arc::new(table);
        let hop = |n: u32| mac_of_bits(u64::from(n) * 0x0001_0001);
        let reader = thread::spawn({
            let table = table.clone();
            move || {
                let (mut at, mut seen) = (0, 0);
                while seen < 20_000 {
                    let Some(host) = table.next(&mut at) else { continue };
                    let n = mac_bits(host.next_hop) as u32 & 0xffff;
                    let expected = (hop(n), address(n), n % 3);
                    assert_eq!((host.next_hop, host.address, host.number), expected);
                    seen += 1;
                }
            }
        });
        let mut n = 0;
        while !reader.is_finished() {
            let number = n % 3;
            if n % 7 == 0 {
                table.unbind(number);
            }
            table.bind(number, address(n % 3000), hop(n % 3000));
            n += 1;
        }
        reader.join().expect("no half of a change");
    }

    #[test]
    fn a_conversation_is_found_by_the_ends_with_which_it_began_last() {
        let table = table(2);
        let ends = |port| ((address(1), port), (address(9), 80), false);
        table.begin_conversation(ends(1), 7);
        table.begin_conversation(ends(2), 8);
        let accept = |ends| table.accept_conversation(&ends);
        let first = [Some((7, true)), Some((8, true)), None];
        assert_eq!([1, 2, 3].map(|port| accept(ends(port))), first);
        assert_eq!(accept(ends(1)), Some((7, false)));
        let (client, server, _) = ends(1);
        assert_eq!(accept((client, server, true)), None, "another protocol");
        // Another one takes its ends over, and it begins again with others.
        table.begin_conversation(ends(1), 9);
        table.begin_conversation(ends(4), 7);
        table.begin_conversation(ends(5), 8);
        let all = [1, 2, 4, 5].map(|port| accept(ends(port)));
        assert_eq!(all, [Some((9, true)), None, Some((7, true)), Some((8, true))]);
        assert_eq!(table.conversations().by_ends.len(), 3);
    }

    #[test]
    fn hosts_and_clients_of_a_concentrator_have_sessions() {
        let hosts = table(3);
        hosts.bind(0, address(1), HOP);
        hosts.bind_in_session(1, address(2), HOP, 0xfffe);
        let of = |host: Option<BoundHost>| host.map(|host| (host.next_hop, host.session));
        assert_eq!([0, 1].map(|host| of(hosts.get(host))), [Some((HOP, 0)), Some((HOP, 0xfffe))]);
        let host = hosts.get(1).expect("it is bound");
        assert_eq!(hosts.path(host, address(9)), Some(host));

        let table = table(1).with_sessions(Ipv4Addr::from_bits(0x0a00_0005), 2);
        table.bind(0, address(1), MacAddr::default());
        let host = table.get(0).expect("it is bound");
        let path = |to: u32| of(table.path(host, address(to)));
        table.set_session(Ipv4Addr::from_bits(0x0a00_0006), Some((HOP, 7)));
        assert_eq!([4, 5, 6, 7].map(path), [None, None, Some((HOP, 7)), None]);
        // Addresses that it does not give have none.
        table.set_session(Ipv4Addr::from_bits(0x0a00_0004), Some((HOP, 8)));
        table.set_session(Ipv4Addr::from_bits(0x0a00_0006), None);
        assert_eq!([4, 6].map(path), [None, None]);
    }

    fn wide(n: u32) -> IpAddr {
        let n = u128::from(n);
        Ipv6Addr::from_bits(0x2001_0db8 << 96 | n << 64 | (n ^ 0xffff)).into()
    }

    #[test]
    fn a_reader_on_another_thread_sees_no_half_of_a_change() {
        changes(table(3), address);
        changes(table(3).over_ipv6(), wide);
    }

    #[test]
    fn addresses_of_ipv6_are_whole_and_lost_like_others() {
        let table = table(2).over_ipv6();
        table.bind(1, wide(7), HOP);
        assert_eq!(table.get(1).map(|host| host.address), Some(wide(7)));
        table.bind(1, wide(7), MacAddr([2; 6]));
        assert_eq!((table.losses(), table.bound()), (0, 1));
        table.bind(1, wide(8), HOP);
        assert_eq!((table.losses(), table.bound()), (1, 1));
        table.unbind(1);
        assert_eq!((table.get(1), table.losses()), (None, 2));
    }
}
