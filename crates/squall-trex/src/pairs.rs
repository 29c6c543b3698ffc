//! Pairs of ports in TRex's stateful mode, and the addresses and load of each.
//!
//! TRex divides the addresses of a profile among its threads, of which each serves one pair: thread
//! `t` serves pair `t % pairs` on that pair's core `t / pairs`. Addresses of later pairs are moved
//! by an offset of the profile.

use std::net::Ipv4Addr;

use squall_profile::Interface;
use squall_units::MacAddr;

/// Ports of clients and of servers. A missing end is external: TRex's dummy port.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowPair {
    pub clients: Option<FlowPort>,
    pub servers: Option<FlowPort>,
}

/// A port with flows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowPort {
    /// Its index in the profile.
    pub port: usize,
    /// `None`: that of the interface.
    pub mac: Option<MacAddr>,
    /// The destination of its frames; `None`: the MAC address of each peer is resolved.
    pub next_hop: Option<MacAddr>,
    pub vlan: Option<u16>,
    /// Addresses with headers of their own.
    pub interfaces: Vec<Interface>,
}

impl FlowPair {
    /// Both ends, each on its port.
    pub fn of(clients: usize, servers: usize) -> Self {
        let port = |port| Some(FlowPort { port, ..FlowPort::default() });
        Self { clients: port(clients), servers: port(servers) }
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.clients.is_some() && self.servers.is_some()
    }
}

/// Division among threads: the number of pairs, and the cores of each pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    pub pairs: u32,
    pub cores: u32,
}

/// Addresses of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadRange {
    pub thread: u32,
    pub first: Ipv4Addr,
    pub last: Ipv4Addr,
}

impl Split {
    fn threads(self) -> u32 {
        self.pairs.saturating_mul(self.cores).max(1)
    }

    /// The threads of a pair, counted from 0.
    pub fn threads_of(self, pair: u32) -> impl Iterator<Item = u32> {
        (0..self.cores).map(move |core| core * self.pairs + pair)
    }

    /// Addresses of each thread of a pair. `per_core`: divided among the cores of a pair only
    /// (TRex's `per_core_distribution`), so that each pair has as many addresses as the profile.
    pub fn ranges(
        self,
        (first, last): (Ipv4Addr, Ipv4Addr),
        offset: Ipv4Addr,
        per_core: bool,
        pair: u32,
    ) -> Vec<ThreadRange> {
        let total = u32::from(last).wrapping_sub(first.into()).saturating_add(1);
        let of_thread = |thread: u32| {
            let (at, parts) = match per_core {
                true => (thread / self.pairs.max(1), self.cores.max(1)),
                false => (thread, self.threads()),
            };
            // With fewer addresses than threads, several threads have the same address, as in
            // TRex's software mode.
            let (at, parts) = if total < parts { (at % total, total) } else { (at, parts) };
            // The last parts are longer by one address if the division leaves a rest.
            let (len, longer_from) = (total / parts, parts - total % parts);
            let from = at * len + at.saturating_sub(longer_from);
            let len = len + u32::from(at >= longer_from);
            let moved = u32::from(first).wrapping_add(pair.wrapping_mul(offset.into()));
            let address = |n: u32| Ipv4Addr::from(moved.wrapping_add(n));
            ThreadRange { thread, first: address(from), last: address(from + len - 1) }
        };
        self.threads_of(pair).map(of_thread).collect()
    }

    /// Addresses of a pair, with adjacent ranges joined.
    pub fn addresses(
        self,
        range: (Ipv4Addr, Ipv4Addr),
        offset: Ipv4Addr,
        per_core: bool,
        pair: u32,
    ) -> Vec<(Ipv4Addr, Ipv4Addr)> {
        let mut joined: Vec<(Ipv4Addr, Ipv4Addr)> = Vec::new();
        for one in self.ranges(range, offset, per_core, pair) {
            if joined.contains(&(one.first, one.last)) {
                continue;
            }
            match joined.last_mut() {
                Some((_, last)) if u32::from(*last).checked_add(1) == Some(one.first.into()) => {
                    *last = one.last;
                }
                _ => joined.push((one.first, one.last)),
            }
        }
        joined
    }

    /// A pair's share of a number of flows or users.
    pub fn share(self, number: u64, pair: u32) -> u64 {
        let threads = u64::from(self.threads());
        let of_thread =
            |thread: u32| number / threads + u64::from(u64::from(thread) < number % threads);
        self.threads_of(pair).map(of_thread).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> Ipv4Addr {
        text.parse().expect("an address")
    }

    fn ranges(split: Split, range: (&str, &str), per_core: bool, pair: u32) -> Vec<String> {
        let all = split.ranges((ip(range.0), ip(range.1)), ip("1.0.0.0"), per_core, pair);
        all.iter().map(|one| format!("{}: {}-{}", one.thread, one.first, one.last)).collect()
    }

    /// The expected values follow from TRex's documented rule: threads share the range, the last
    /// ones take the rest, and pair n is moved by n times the offset.
    #[test]
    fn addresses_are_divided_among_threads_and_moved_for_each_pair() {
        let range = ("16.0.0.1", "16.0.0.10");
        let one = Split { pairs: 1, cores: 1 };
        assert_eq!(ranges(one, range, false, 0), ["0: 16.0.0.1-16.0.0.10"]);
        let two = Split { pairs: 2, cores: 1 };
        assert_eq!(ranges(two, range, false, 0), ["0: 16.0.0.1-16.0.0.5"]);
        assert_eq!(ranges(two, range, false, 1), ["1: 17.0.0.6-17.0.0.10"]);
        let four = Split { pairs: 2, cores: 2 };
        let of_first = ["0: 16.0.0.1-16.0.0.2", "2: 16.0.0.5-16.0.0.7"];
        assert_eq!(ranges(four, range, false, 0), of_first);
        let of_second = ["1: 17.0.0.3-17.0.0.4", "3: 17.0.0.8-17.0.0.10"];
        assert_eq!(ranges(four, range, false, 1), of_second);
        let per_core = ["1: 17.0.0.1-17.0.0.5", "3: 17.0.0.6-17.0.0.10"];
        assert_eq!(ranges(four, range, true, 1), per_core);
    }

    #[test]
    fn threads_without_an_address_of_their_own_share_one() {
        let four = Split { pairs: 2, cores: 2 };
        let range = ("16.0.0.1", "16.0.0.2");
        let second = ["1: 17.0.0.2-17.0.0.2", "3: 17.0.0.2-17.0.0.2"];
        assert_eq!(ranges(four, range, false, 1), second);
        let range = (ip(range.0), ip(range.1));
        let joined = four.addresses(range, ip("1.0.0.0"), false, 1);
        assert_eq!(joined, [(ip("17.0.0.2"), ip("17.0.0.2"))]);
        let cores = Split { pairs: 1, cores: 2 };
        let all = cores.addresses(range, ip("1.0.0.0"), false, 0);
        assert_eq!(all, [range], "the cores of one pair have all of it");
    }

    #[test]
    fn shares_of_a_limit_add_up() {
        for split in [Split { pairs: 2, cores: 1 }, Split { pairs: 3, cores: 2 }] {
            for number in [0, 1, 7, 1000] {
                let all: u64 = (0..split.pairs).map(|pair| split.share(number, pair)).sum();
                assert_eq!(all, number, "{split:?}");
            }
        }
    }
}
