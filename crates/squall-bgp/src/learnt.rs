//! Routes that were learnt from a peer.

use std::{
    collections::HashSet,
    hash::{BuildHasherDefault, Hash, Hasher},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use squall_units::mix;

use crate::{Family, Learner, Nlri, Prefix, RawAttributes};

/// Bounds how many routes are kept, over all sessions that share it.
#[derive(Clone, Debug)]
pub struct LearntLimit {
    kept: Arc<AtomicU64>,
    most: u64,
}

impl LearntLimit {
    pub fn new(most: u64) -> Self {
        Self { kept: Arc::default(), most }
    }

    fn take(&self) -> bool {
        let taken = self.kept.fetch_add(1, Relaxed) < self.most;
        if !taken {
            self.kept.fetch_sub(1, Relaxed);
        }
        taken
    }

    fn give(&self, routes: usize) {
        self.kept.fetch_sub(routes as u64, Relaxed);
    }
}

/// The routes of one peer: 12 octets each for IPv4, 24 for IPv6, because a route that is announced
/// again is no further one.
#[derive(Debug)]
pub struct Learnt {
    limit: LearntLimit,
    ipv4: Table<u32>,
    ipv6: Table<[u64; 2]>,
    /// Changes when routes become stale: routes with another number are stale.
    generation: [u8; 2],
    /// Routes that were announced and withdrawn, also again.
    pub announced: u64,
    pub withdrawn: u64,
    /// Announcements that found no room; their routes are not in [`Learnt::routes`].
    pub not_kept: u64,
    /// Families whose routes have all been announced (RFC 4724 section 2).
    pub complete: [bool; 2],
}

type Table<A> = HashSet<Entry<A>, BuildHasherDefault<Mixer>>;

/// A learnt route, and the identifier of its path (RFC 7911).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LearntRoute {
    pub prefix: Prefix,
    pub path: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry<A> {
    address: A,
    path: u32,
    length: u8,
    /// Not part of the key.
    generation: u8,
}

/// An address as words of a hash.
trait Words: Copy + Eq {
    fn words(self) -> [u64; 2];
}

impl Words for u32 {
    fn words(self) -> [u64; 2] {
        [0, self.into()]
    }
}

impl Words for [u64; 2] {
    fn words(self) -> [u64; 2] {
        self
    }
}

impl<A: Words> PartialEq for Entry<A> {
    fn eq(&self, other: &Self) -> bool {
        self.address == other.address && self.path == other.path && self.length == other.length
    }
}

impl<A: Words> Eq for Entry<A> {}

impl<A: Words> Hash for Entry<A> {
    fn hash<H: Hasher>(&self, to: &mut H) {
        self.address.words().into_iter().for_each(|word| to.write_u64(word));
        to.write_u64(u64::from(self.path) << 8 | u64::from(self.length));
    }
}

/// A fast hash. It is not keyed: a peer that provokes collisions slows only the test that it is
/// part of.
#[derive(Debug, Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn write(&mut self, octets: &[u8]) {
        octets.iter().for_each(|octet| self.write_u64((*octet).into()));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = mix(self.0, word);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Learnt {
    pub fn new(limit: LearntLimit) -> Self {
        Self {
            limit,
            ipv4: Table::default(),
            ipv6: Table::default(),
            generation: [0; 2],
            announced: 0,
            withdrawn: 0,
            not_kept: 0,
            complete: [false; 2],
        }
    }

    /// Number of routes of a family that are kept now, those of several paths for each.
    pub fn routes(&self, family: Family) -> u64 {
        match family {
            Family::Ipv4 => self.ipv4.len() as u64,
            Family::Ipv6 => self.ipv6.len() as u64,
        }
    }

    /// The routes, in no order.
    pub fn iter(&self) -> impl Iterator<Item = LearntRoute> {
        let ipv4 = self.ipv4.iter().map(|entry| LearntRoute {
            prefix: Prefix {
                address: Ipv4Addr::from_bits(entry.address).into(),
                length: entry.length,
            },
            path: entry.path,
        });
        let ipv6 = self.ipv6.iter().map(|entry| {
            let [high, low] = entry.address.map(u128::from);
            let address = Ipv6Addr::from_bits(high << 64 | low).into();
            LearntRoute { prefix: Prefix { address, length: entry.length }, path: entry.path }
        });
        ipv4.chain(ipv6)
    }
}

impl Learner for Learnt {
    fn announced(&mut self, family: Family, nlri: Nlri<'_>, _: &RawAttributes<'_>) {
        self.announced += 1;
        let generation = self.generation[family.index()];
        let kept = match nlri.address(family) {
            IpAddr::V4(address) => {
                keep(&mut self.ipv4, &self.limit, entry(address.to_bits(), &nlri, generation))
            }
            IpAddr::V6(address) => {
                keep(&mut self.ipv6, &self.limit, entry(halves(address), &nlri, generation))
            }
        };
        self.not_kept += u64::from(!kept);
    }

    fn withdrawn(&mut self, family: Family, nlri: Nlri<'_>) {
        self.withdrawn += 1;
        let removed = match nlri.address(family) {
            IpAddr::V4(address) => self.ipv4.remove(&entry(address.to_bits(), &nlri, 0)),
            IpAddr::V6(address) => self.ipv6.remove(&entry(halves(address), &nlri, 0)),
        };
        self.limit.give(removed.into());
    }

    fn end_of_rib(&mut self, family: Family) {
        self.complete[family.index()] = true;
    }

    fn stale(&mut self, family: Family) {
        let generation = &mut self.generation[family.index()];
        *generation = generation.wrapping_add(1);
        self.complete[family.index()] = false;
    }

    fn swept(&mut self, family: Family) {
        let before = self.routes(family);
        let generation = self.generation[family.index()];
        match family {
            Family::Ipv4 => self.ipv4.retain(|entry| entry.generation == generation),
            Family::Ipv6 => self.ipv6.retain(|entry| entry.generation == generation),
        }
        self.limit.give((before - self.routes(family)) as usize);
    }

    fn cleared(&mut self, family: Family) {
        self.limit.give(self.routes(family) as usize);
        match family {
            Family::Ipv4 => self.ipv4 = Table::default(),
            Family::Ipv6 => self.ipv6 = Table::default(),
        }
        self.complete[family.index()] = false;
    }
}

impl Drop for Learnt {
    fn drop(&mut self) {
        self.limit.give(self.ipv4.len() + self.ipv6.len());
    }
}

fn entry<A>(address: A, nlri: &Nlri<'_>, generation: u8) -> Entry<A> {
    Entry { address, path: nlri.path, length: nlri.length, generation }
}

fn halves(address: Ipv6Addr) -> [u64; 2] {
    let bits = address.to_bits();
    [(bits >> 64) as u64, bits as u64]
}

/// Keeps a route. Returns whether there was room.
fn keep<A: Words>(table: &mut Table<A>, limit: &LearntLimit, entry: Entry<A>) -> bool {
    if !limit.take() {
        // A route that is there already needs no room, but its generation changes.
        return table.contains(&entry) && table.replace(entry).is_some();
    }
    if table.replace(entry).is_some() {
        limit.give(1);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::update::{UpdateContext, UpdateFaults, read_update};

    const CONTEXT: UpdateContext =
        UpdateContext { families: [true, true], paths: [true, false], wide: true, internal: true };

    /// Announces or withdraws 10.N.0.0/16 with a path identifier.
    fn change(learnt: &mut Learnt, announce: bool, path: u8, number: u8) {
        let route = [0, 0, 0, path, 16, 10, number];
        let attributes =
            [0x40, 1, 1, 0, 0x40, 2, 0, 0x40, 3, 4, 192, 0, 2, 1, 0x40, 5, 4, 0, 0, 0, 100];
        let body = match announce {
            true => [&[0, 0, 0, attributes.len() as u8][..], &attributes, &route].concat(),
            false => [&[0, 7][..], &route, &[0, 0]].concat(),
        };
        let mut faults = UpdateFaults::default();
        read_update(&body, &CONTEXT, &mut faults, learnt).expect("it is well-formed");
        assert_eq!(faults, UpdateFaults::default());
    }

    fn routes(learnt: &Learnt) -> Vec<String> {
        let mut all: Vec<_> =
            learnt.iter().map(|route| format!("{}#{}", route.prefix, route.path)).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn entries_have_the_sizes_of_the_decision() {
        assert_eq!((size_of::<Entry<u32>>(), size_of::<Entry<[u64; 2]>>()), (12, 24));
    }

    #[test]
    fn a_route_counts_once_for_each_path_until_it_is_withdrawn() {
        let mut learnt = Learnt::new(LearntLimit::new(10));
        for (path, number) in [(1, 1), (1, 1), (2, 1), (1, 2)] {
            change(&mut learnt, true, path, number);
        }
        assert_eq!(routes(&learnt), ["10.1.0.0/16#1", "10.1.0.0/16#2", "10.2.0.0/16#1"]);
        change(&mut learnt, false, 1, 1);
        change(&mut learnt, false, 1, 9);
        assert_eq!(routes(&learnt), ["10.1.0.0/16#2", "10.2.0.0/16#1"]);
        assert_eq!((learnt.announced, learnt.withdrawn, learnt.not_kept), (4, 2, 0));
        assert_eq!((learnt.routes(Family::Ipv4), learnt.routes(Family::Ipv6)), (2, 0));
    }

    #[test]
    fn stale_routes_end_unless_they_are_announced_again() {
        let mut learnt = Learnt::new(LearntLimit::new(10));
        (1..4).for_each(|number| change(&mut learnt, true, 0, number));
        learnt.end_of_rib(Family::Ipv4);
        assert!(learnt.complete[0]);
        learnt.stale(Family::Ipv4);
        change(&mut learnt, true, 0, 2);
        change(&mut learnt, true, 0, 7);
        assert_eq!((learnt.routes(Family::Ipv4), learnt.complete[0]), (4, false));
        learnt.swept(Family::Ipv4);
        assert_eq!(routes(&learnt), ["10.2.0.0/16#0", "10.7.0.0/16#0"]);
    }

    #[test]
    fn more_routes_than_the_limit_are_counted_and_room_comes_back() {
        let limit = LearntLimit::new(3);
        let (mut one, mut two) = (Learnt::new(limit.clone()), Learnt::new(limit.clone()));
        (1..3).for_each(|number| change(&mut one, true, 0, number));
        (1..5).for_each(|number| change(&mut two, true, 0, number));
        assert_eq!((one.routes(Family::Ipv4), two.routes(Family::Ipv4), two.not_kept), (2, 1, 3));
        // One that is kept needs no room.
        change(&mut one, true, 0, 2);
        assert_eq!(one.not_kept, 0);
        one.cleared(Family::Ipv4);
        change(&mut two, true, 0, 8);
        assert_eq!((two.routes(Family::Ipv4), two.not_kept), (2, 3));
        drop(two);
        assert_eq!(limit.kept.load(Relaxed), 0);
    }
}
