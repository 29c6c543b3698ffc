//! MAC addresses of neighbors, and the requests to resolve them.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    hash::{BuildHasherDefault, Hasher},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use squall_units::{MacAddr, Nanos};

/// The neighbors on a link.
#[derive(Debug, Default)]
pub struct NeighborCache {
    /// Known neighbors, keyed by the address without its last octet.
    blocks: HashMap<IpAddr, Block, BuildHasherDefault<Mixer>>,
    /// Neighbors whose MAC address differs from that of their block, and unresolved ones.
    table: HashMap<IpAddr, Entry, BuildHasherDefault<Mixer>>,
    /// Requests by due time. A request is stale if the entry has another time.
    requests: BinaryHeap<Reverse<(Nanos, IpAddr)>>,
    asking: usize,
}

/// 256 consecutive addresses, and which of them have the block's MAC address. Usually all have the
/// same one, that of a router or a generator, so hundreds of thousands of clients fit in the cache.
#[derive(Clone, Copy, Debug)]
struct Block {
    mac: MacAddr,
    known: [u64; 4],
}

impl Block {
    #[inline]
    fn has(&self, place: u8) -> bool {
        self.known[usize::from(place >> 6)] >> (place & 63) & 1 == 1
    }

    #[inline]
    fn put(&mut self, place: u8, known: bool) {
        let word = &mut self.known[usize::from(place >> 6)];
        *word = *word & !(1 << (place & 63)) | u64::from(known) << (place & 63);
    }
}

/// The block of an address, and the address's index in it.
#[inline]
fn block_of(address: IpAddr) -> (IpAddr, u8) {
    match address {
        IpAddr::V4(address) => {
            let bits = address.to_bits();
            (Ipv4Addr::from_bits(bits & !0xff).into(), bits as u8)
        }
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            (Ipv6Addr::from_bits(bits & !0xff).into(), bits as u8)
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Entry {
    Known(MacAddr),
    /// Number of requests so far.
    Asking {
        tries: u8,
        next: Nanos,
    },
    /// No answer. The address is requested again if it is needed at or after this time.
    Silent {
        until: Nanos,
    },
}

/// The result of resolving an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Mac(MacAddr),
    /// The address is being resolved.
    Wait,
    /// The neighbor did not answer.
    Silent,
}

/// Interval before the second request for an address; it doubles with each further request.
const FIRST_INTERVAL: Nanos = Nanos(100_000_000);
/// Number of requests per address: 0.1 + 0.2 + ... + 3.2 s is long enough for interfaces that take
/// a second to come up.
const TRIES: u8 = 6;
/// Pause before a silent address is requested again.
const SILENT_PAUSE: Nanos = Nanos(1_000_000_000);
/// Maximum number of addresses that are resolved at the same time; further ones wait.
const MAX_ASKED: usize = 1024;
/// Maximum number of blocks, and of addresses outside of them.
const MAX_ENTRIES: usize = 1 << 22;

impl NeighborCache {
    /// Resolves `address`. From now on, an unknown address is requested.
    #[inline]
    pub fn find(&mut self, now: Nanos, address: IpAddr) -> Answer {
        let (block, place) = block_of(address);
        if let Some(block) = self.blocks.get(&block).filter(|block| block.has(place)) {
            return Answer::Mac(block.mac);
        }
        match self.table.get(&address) {
            Some(Entry::Known(mac)) => Answer::Mac(*mac),
            Some(Entry::Asking { .. }) => Answer::Wait,
            Some(Entry::Silent { until }) if now < *until => Answer::Silent,
            _ => {
                if self.asking < MAX_ASKED && self.has_room() {
                    self.asking += 1;
                    self.table.insert(address, Entry::Asking { tries: 0, next: now });
                    self.requests.push(Reverse((now, address)));
                }
                Answer::Wait
            }
        }
    }

    /// The MAC address of `address`, if it is known. Asks for nothing.
    pub fn known(&self, address: IpAddr) -> Option<MacAddr> {
        let (block, place) = block_of(address);
        let block = self.blocks.get(&block).filter(|block| block.has(place));
        block.map(|block| block.mac).or_else(|| match self.table.get(&address) {
            Some(Entry::Known(mac)) => Some(*mac),
            _ => None,
        })
    }

    /// Records that `address` has this MAC address. Returns whether the address was being resolved.
    pub fn learn(&mut self, address: IpAddr, mac: MacAddr) -> bool {
        let has_room = self.has_room();
        let (at, place) = block_of(address);
        let was_asked = |entry| matches!(entry, Some(Entry::Asking { .. }));
        let was_asked = match self.blocks.get_mut(&at) {
            Some(block) if block.known == [0; 4] || block.mac == mac => {
                if block.has(place) {
                    return false;
                }
                block.mac = mac;
                block.put(place, true);
                was_asked(self.table.remove(&address))
            }
            None if has_room => {
                let mut block = Block { mac, known: [0; 4] };
                block.put(place, true);
                self.blocks.insert(at, block);
                was_asked(self.table.remove(&address))
            }
            block => {
                if let Some(block) = block {
                    block.put(place, false);
                }
                match self.table.get_mut(&address) {
                    Some(entry) => was_asked(Some(std::mem::replace(entry, Entry::Known(mac)))),
                    None if has_room => was_asked(self.table.insert(address, Entry::Known(mac))),
                    None => false,
                }
            }
        };
        self.asking -= usize::from(was_asked);
        was_asked
    }

    fn has_room(&self) -> bool {
        self.blocks.len() + self.table.len() < MAX_ENTRIES
    }

    /// When [`NeighborCache::question`] next has something to return.
    #[inline]
    pub fn next_due(&self) -> Option<Nanos> {
        self.requests.peek().map(|Reverse((due, _))| *due)
    }

    /// The next address to request by `now`; `Err`: an address that did not answer and is given up.
    pub fn question(&mut self, now: Nanos) -> Option<Result<IpAddr, IpAddr>> {
        loop {
            let Reverse((due, address)) =
                *self.requests.peek().filter(|Reverse((due, _))| *due <= now)?;
            self.requests.pop();
            match self.table.get_mut(&address) {
                Some(Entry::Asking { tries, next }) if *next == due => {
                    if *tries == TRIES {
                        self.table.insert(address, Entry::Silent { until: now + SILENT_PAUSE });
                        self.asking -= 1;
                        return Some(Err(address));
                    }
                    *next = now + Nanos(FIRST_INTERVAL.0 << *tries);
                    *tries += 1;
                    self.requests.push(Reverse((*next, address)));
                    return Some(Ok(address));
                }
                // The neighbor has answered meanwhile.
                _ => {}
            }
        }
    }
}

/// A fast hash of addresses, used for each packet. It is not keyed, because provoking collisions
/// costs an attacker as many packets as any other flood.
#[derive(Debug, Default)]
struct Mixer(u64);

impl Mixer {
    #[inline]
    fn mix(&mut self, word: u64) {
        let product =
            u128::from(self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

impl Hasher for Mixer {
    #[inline]
    fn write(&mut self, octets: &[u8]) {
        let (words, rest) = octets.as_chunks::<8>();
        words.iter().for_each(|word| self.mix(u64::from_le_bytes(*word)));
        self.mix(rest.iter().fold(1, |sum, octet| sum << 8 | u64::from(*octet)));
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.mix(word.into());
    }

    // The address family adds one bit, which is mixed in before the address.
    #[inline]
    fn write_isize(&mut self, family: isize) {
        self.0 = self.0.rotate_left(32) ^ family as u64;
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolved_addresses_are_known_and_silent_ones_given_up() {
        let mut neighbors = NeighborCache::default();
        let (a, b): (IpAddr, IpAddr) = ("16.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap());
        assert_eq!(
            (neighbors.find(Nanos(5), a), neighbors.find(Nanos(5), b)),
            (Answer::Wait, Answer::Wait)
        );
        let mut asked: Vec<_> = std::iter::from_fn(|| neighbors.question(Nanos(5))).collect();
        asked.sort_unstable();
        assert_eq!(asked, [Ok(a), Ok(b)]);
        assert!(neighbors.learn(a, MacAddr([1; 6])));
        assert_eq!(neighbors.find(Nanos(6), a), Answer::Mac(MacAddr([1; 6])));
        let mut tries = 1;
        let now = loop {
            let now = neighbors.next_due().expect("it is still asked for");
            match neighbors.question(now) {
                Some(Ok(again)) => assert_eq!(again, b),
                Some(Err(silent)) => {
                    assert_eq!(silent, b);
                    break now;
                }
                // A request for the address that was resolved.
                None => continue,
            }
            tries += 1;
        };
        assert_eq!(tries, TRIES);
        assert_eq!((neighbors.find(now, b), neighbors.question(now)), (Answer::Silent, None));
        assert_eq!(neighbors.find(now + SILENT_PAUSE, b), Answer::Wait);
    }

    #[test]
    fn neighbors_in_a_block_may_have_their_own_macs_and_change_them() {
        let mut neighbors = NeighborCache::default();
        let address = |i: u32| IpAddr::V4((0x1000_0000 + i).into());
        let (router, own) = (MacAddr([2; 6]), |i: u32| MacAddr([4, 0, 0, 0, 0, i as u8]));
        let of = |i: u32| if i % 5 == 4 { own(i) } else { router };
        for i in 1..1000 {
            neighbors.find(Nanos(0), address(i));
            assert!(neighbors.learn(address(i), of(i)) && !neighbors.learn(address(i), of(i)));
        }
        assert_eq!((neighbors.asking, neighbors.blocks.len(), neighbors.table.len()), (0, 4, 200));
        assert_eq!(neighbors.question(Nanos(0)), None);
        (1..1000).for_each(|i| assert!(neighbors.find(Nanos(0), address(i)) == Answer::Mac(of(i))));
        // One address changes to the router's MAC address, and one away from it.
        assert!(!neighbors.learn(address(4), router) && !neighbors.learn(address(5), own(9)));
        assert_eq!(neighbors.find(Nanos(0), address(4)), Answer::Mac(router));
        assert_eq!(neighbors.find(Nanos(0), address(5)), Answer::Mac(own(9)));
        assert_eq!(neighbors.table.len(), 200);
        let v6: IpAddr = "fd00::1".parse().unwrap();
        assert!(!neighbors.learn(v6, router));
        assert_eq!(neighbors.find(Nanos(0), v6), Answer::Mac(router));
        assert_eq!(neighbors.find(Nanos(0), "fd00::2".parse().unwrap()), Answer::Wait);
    }

    #[test]
    fn questions_at_once_are_bounded() {
        let mut neighbors = NeighborCache::default();
        for i in 0..10_000u32 {
            neighbors.find(Nanos(0), IpAddr::V4(i.into()));
        }
        assert_eq!(std::iter::from_fn(|| neighbors.question(Nanos(0))).count(), MAX_ASKED);
    }

    #[test]
    fn an_address_is_requested_six_times_after_pauses_that_double() {
        let mut neighbors = NeighborCache::default();
        let address: IpAddr = "10.0.0.1".parse().unwrap();
        neighbors.find(Nanos::ZERO, address);
        let mut times = Vec::new();
        while let Some(due) = neighbors.next_due() {
            if due > Nanos::ZERO {
                assert_eq!(neighbors.question(due - Nanos(1)), None, "too early");
            }
            let asked = neighbors.question(due).expect("it is due");
            times.push((due.0 / 1_000_000, asked.is_ok()));
        }
        let tries = [0, 100, 300, 700, 1500, 3100].map(|at| (at, true));
        assert_eq!(times[..6], tries);
        assert_eq!(times[6..], [(6300, false)]);
        // A silent address is requested again a second later, if it is needed.
        let end = Nanos(6_300_000_000);
        assert_eq!(neighbors.find(end + Nanos(SILENT_PAUSE.0 - 1), address), Answer::Silent);
        assert_eq!(neighbors.find(end + SILENT_PAUSE, address), Answer::Wait);
        assert_eq!(neighbors.question(end + SILENT_PAUSE), Some(Ok(address)));
    }
}
