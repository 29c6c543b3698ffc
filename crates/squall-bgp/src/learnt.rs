//! Routes that were learnt from a peer.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasherDefault, Hash, Hasher},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use squall_units::mix;

use crate::{Family, Learner, Nlri, Origin, PathSegment, Prefix, RawAttributes, attributes::kind};

/// Bounds how many routes are kept, over all sessions that share it. 256 octets of kept attributes
/// count as a route; attributes with fewer need no room.
#[derive(Clone, Debug)]
pub struct LearntLimit {
    kept: Arc<AtomicU64>,
    most: u64,
}

impl LearntLimit {
    pub fn new(most: u64) -> Self {
        Self { kept: Arc::default(), most }
    }

    fn take(&self, units: u64) -> bool {
        let taken = self.kept.fetch_add(units, Relaxed).saturating_add(units) <= self.most;
        if !taken {
            self.give(units);
        }
        taken
    }

    fn give(&self, units: u64) {
        self.kept.fetch_sub(units, Relaxed);
    }
}

/// The routes of one peer: 12 octets each for IPv4, 24 for IPv6, because a route that is announced
/// again is no further one. Their attributes are kept only if that was asked for.
#[derive(Debug)]
pub struct Learnt {
    limit: LearntLimit,
    ipv4: Table<u32>,
    ipv6: Table<[u64; 2]>,
    sets: Option<Sets>,
    /// Changes when routes become stale: routes with another number are stale.
    generation: [u16; 2],
    /// Changes since they were taken last; `None`: they are not kept.
    changes: Option<Vec<LearntChange>>,
    /// Routes that were announced and withdrawn, also again.
    pub announced: u64,
    pub withdrawn: u64,
    /// Announcements that found no room; their routes are not in [`Learnt::routes`].
    pub not_kept: u64,
    /// Marks of the end of a family that have arrived (RFC 4724 section 2).
    pub ends: u64,
}

/// Attributes by their routes. Routes of an UPDATE share one set.
#[derive(Debug, Default)]
struct Sets {
    by_route: HashMap<LearntRoute, Arc<LearntSet>>,
    /// The newest set, and the octets that it was read from.
    last: Option<([Vec<u8>; 2], Arc<LearntSet>)>,
}

impl Sets {
    /// The set of an announcement; `None`: it has no room.
    fn set(&mut self, raw: &RawAttributes<'_>, limit: &LearntLimit) -> Option<Arc<LearntSet>> {
        let octets = raw.octets();
        if let Some((_, set)) = self.last.as_ref().filter(|(of, _)| *of == octets) {
            return Some(set.clone());
        }
        let units = octets.map(|part| part.len() as u64).iter().sum::<u64>() / UNIT;
        if !limit.take(units) {
            return None;
        }
        let (attributes, limit) = (LearntAttributes::of(raw), limit.clone());
        let set = Arc::new(LearntSet { attributes, units, limit });
        self.last = Some((octets.map(<[u8]>::to_vec), set.clone()));
        Some(set)
    }
}

/// Octets of attributes that count as a route.
const UNIT: u64 = 256;

/// Attributes that routes share.
#[derive(Debug)]
pub struct LearntSet {
    pub attributes: LearntAttributes,
    /// Its share of the limit.
    units: u64,
    limit: LearntLimit,
}

impl Drop for LearntSet {
    fn drop(&mut self) {
        self.limit.give(self.units);
    }
}

type Table<A> = HashSet<Entry<A>, BuildHasherDefault<Mixer>>;

/// A path of a prefix was learnt, or has ended. Paths that are announced again are no change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LearntChange {
    pub prefix: Prefix,
    pub is_learnt: bool,
}

/// A learnt route, and the identifier of its path (RFC 7911).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LearntRoute {
    pub prefix: Prefix,
    pub path: u32,
}

impl LearntRoute {
    fn of(family: Family, nlri: &Nlri<'_>) -> Self {
        let prefix = Prefix { address: nlri.address(family), length: nlri.length };
        Self { prefix, path: nlri.path }
    }
}

/// Attributes of a learnt route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LearntAttributes {
    pub origin: Origin,
    pub path: Vec<PathSegment>,
    /// The global address of two.
    pub next_hop: Option<IpAddr>,
    /// `MULTI_EXIT_DISC`.
    pub med: Option<u32>,
    pub local_pref: Option<u32>,
    /// RFC 1997.
    pub communities: Vec<(u16, u16)>,
    /// RFC 4360.
    pub extended_communities: Vec<[u8; 8]>,
}

impl LearntAttributes {
    fn of(raw: &RawAttributes<'_>) -> Self {
        let value = |kind| raw.get(kind).unwrap_or_default();
        let number = |kind| value(kind).first_chunk::<4>().map(|value| u32::from_be_bytes(*value));
        let communities = value(kind::COMMUNITIES).as_chunks::<4>().0.iter();
        let words =
            |[a, b, c, d]: &[u8; 4]| (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
        Self {
            origin: match value(kind::ORIGIN) {
                [0] => Origin::Igp,
                [1] => Origin::Egp,
                _ => Origin::Incomplete,
            },
            path: raw.segments(),
            next_hop: raw.next_hop(),
            med: number(kind::MED),
            local_pref: number(kind::LOCAL_PREF),
            communities: communities.map(words).collect(),
            extended_communities: value(kind::EXTENDED_COMMUNITIES).as_chunks::<8>().0.to_vec(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry<A> {
    address: A,
    path: u32,
    length: u8,
    /// Not part of the key.
    generation: u16,
}

/// An address as words of a hash.
trait Words: Copy + Eq {
    fn words(self) -> [u64; 2];
    fn address(self) -> IpAddr;
}

impl<A: Words> Entry<A> {
    fn prefix(&self) -> Prefix {
        Prefix { address: self.address.address(), length: self.length }
    }
}

impl Words for u32 {
    fn words(self) -> [u64; 2] {
        [0, self.into()]
    }

    fn address(self) -> IpAddr {
        Ipv4Addr::from_bits(self).into()
    }
}

impl Words for [u64; 2] {
    fn words(self) -> [u64; 2] {
        self
    }

    fn address(self) -> IpAddr {
        let [high, low] = self.map(u128::from);
        Ipv6Addr::from_bits(high << 64 | low).into()
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
pub struct Mixer(u64);

impl Hasher for Mixer {
    fn write(&mut self, octets: &[u8]) {
        for part in octets.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(word));
        }
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
            sets: None,
            generation: [0; 2],
            changes: None,
            announced: 0,
            withdrawn: 0,
            not_kept: 0,
            ends: 0,
        }
    }

    /// Keeps the attributes of routes, too: about 100 octets for a route.
    #[must_use]
    pub fn with_attributes(mut self) -> Self {
        self.sets = Some(Sets::default());
        self
    }

    /// Keeps changes from now on, until they are taken ([`Learnt::take_changes`]).
    pub fn keep_changes(&mut self) {
        self.changes.get_or_insert_default();
    }

    /// Moves the changes to the end of `to`, in their order.
    pub fn take_changes(&mut self, to: &mut Vec<LearntChange>) {
        if let Some(changes) = &mut self.changes {
            to.append(changes);
        }
    }

    fn note(&mut self, prefix: Prefix, is_learnt: bool) {
        if let Some(changes) = &mut self.changes {
            changes.push(LearntChange { prefix, is_learnt });
        }
    }

    /// The attributes of a route; `None`: it is not there, or attributes are not kept.
    pub fn attributes(&self, route: &LearntRoute) -> Option<Arc<LearntSet>> {
        self.sets.as_ref()?.by_route.get(route).cloned()
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
        let ipv4 = self.ipv4.iter().map(|entry| (entry.prefix(), entry.path));
        let ipv6 = self.ipv6.iter().map(|entry| (entry.prefix(), entry.path));
        ipv4.chain(ipv6).map(|(prefix, path)| LearntRoute { prefix, path })
    }

    /// Forgets a route that was learnt.
    fn remove(&mut self, family: Family, nlri: &Nlri<'_>) {
        let removed = match nlri.address(family) {
            IpAddr::V4(address) => self.ipv4.remove(&entry(address.to_bits(), nlri, 0)),
            IpAddr::V6(address) => self.ipv6.remove(&entry(halves(address), nlri, 0)),
        };
        self.limit.give(removed.into());
        if removed {
            self.note(Prefix { address: nlri.address(family), length: nlri.length }, false);
        }
        if let Some(sets) = &mut self.sets {
            sets.by_route.remove(&LearntRoute::of(family, nlri));
        }
    }

    /// Forgets the attributes of routes that have ended.
    fn sweep_attributes(&mut self) {
        let Some(mut sets) = self.sets.take() else { return };
        sets.by_route.retain(|route, _| {
            let LearntRoute { prefix: Prefix { address, length }, path } = *route;
            match address {
                IpAddr::V4(address) => {
                    let address = address.to_bits();
                    self.ipv4.contains(&Entry { address, path, length, generation: 0 })
                }
                IpAddr::V6(address) => {
                    let address = halves(address);
                    self.ipv6.contains(&Entry { address, path, length, generation: 0 })
                }
            }
        });
        self.sets = Some(sets);
    }
}

impl Learner for Learnt {
    fn announced(&mut self, family: Family, nlri: Nlri<'_>, attributes: &RawAttributes<'_>) {
        self.announced += 1;
        // The attributes first: a route is kept with those that it has now, or not at all.
        let limit = &self.limit;
        let set = self.sets.as_mut().map(|sets| sets.set(attributes, limit));
        if let Some(None) = set {
            self.not_kept += 1;
            return self.remove(family, &nlri);
        }
        let generation = self.generation[family.index()];
        let kept = match nlri.address(family) {
            IpAddr::V4(address) => {
                keep(&mut self.ipv4, &self.limit, entry(address.to_bits(), &nlri, generation))
            }
            IpAddr::V6(address) => {
                keep(&mut self.ipv6, &self.limit, entry(halves(address), &nlri, generation))
            }
        };
        let is_kept = kept != Kept::No;
        self.not_kept += u64::from(!is_kept);
        if kept == Kept::New {
            self.note(Prefix { address: nlri.address(family), length: nlri.length }, true);
        }
        if let (Some(sets), Some(Some(set)), true) = (&mut self.sets, set, is_kept) {
            sets.by_route.insert(LearntRoute::of(family, &nlri), set);
        }
    }

    fn withdrawn(&mut self, family: Family, nlri: Nlri<'_>) {
        self.withdrawn += 1;
        self.remove(family, &nlri);
    }

    fn end_of_rib(&mut self, _: Family) {
        self.ends += 1;
    }

    fn stale(&mut self, family: Family) {
        let generation = &mut self.generation[family.index()];
        *generation = generation.wrapping_add(1);
    }

    fn swept(&mut self, family: Family) {
        let before = self.routes(family);
        let generation = self.generation[family.index()];
        let changes = &mut self.changes;
        match family {
            Family::Ipv4 => sweep(&mut self.ipv4, generation, changes),
            Family::Ipv6 => sweep(&mut self.ipv6, generation, changes),
        }
        self.limit.give(before - self.routes(family));
        self.sweep_attributes();
    }

    fn cleared(&mut self, family: Family) {
        self.limit.give(self.routes(family));
        let changes = &mut self.changes;
        match family {
            Family::Ipv4 => note_ends(&std::mem::take(&mut self.ipv4), changes),
            Family::Ipv6 => note_ends(&std::mem::take(&mut self.ipv6), changes),
        }
        if let Some(sets) = &mut self.sets {
            sets.last = None;
        }
        self.sweep_attributes();
    }
}

impl Drop for Learnt {
    fn drop(&mut self) {
        self.limit.give(self.routes(Family::Ipv4) + self.routes(Family::Ipv6));
    }
}

fn entry<A>(address: A, nlri: &Nlri<'_>, generation: u16) -> Entry<A> {
    Entry { address, path: nlri.path, length: nlri.length, generation }
}

fn halves(address: Ipv6Addr) -> [u64; 2] {
    let bits = address.to_bits();
    [(bits >> 64) as u64, bits as u64]
}

/// The routes that are still stale have ended.
fn sweep<A: Words>(table: &mut Table<A>, generation: u16, changes: &mut Option<Vec<LearntChange>>) {
    table.retain(|entry| {
        let stays = entry.generation == generation;
        if let Some(changes) = changes.as_mut().filter(|_| !stays) {
            changes.push(LearntChange { prefix: entry.prefix(), is_learnt: false });
        }
        stays
    });
}

/// All routes of a table have ended.
fn note_ends<A: Words>(table: &Table<A>, changes: &mut Option<Vec<LearntChange>>) {
    if let Some(changes) = changes {
        let ended = |entry: &Entry<A>| LearntChange { prefix: entry.prefix(), is_learnt: false };
        changes.extend(table.iter().map(ended));
    }
}

/// The result of an announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    New,
    Again,
    /// There was no room.
    No,
}

/// Keeps a route.
fn keep<A: Words>(table: &mut Table<A>, limit: &LearntLimit, entry: Entry<A>) -> Kept {
    if !limit.take(1) {
        // A route that is there already needs no room, but its generation changes.
        let is_known = table.contains(&entry) && table.replace(entry).is_some();
        return if is_known { Kept::Again } else { Kept::No };
    }
    if table.replace(entry).is_none() {
        return Kept::New;
    }
    limit.give(1);
    Kept::Again
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        SegmentKind,
        update::{UpdateContext, UpdateFaults, read_update},
    };

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
        learnt.stale(Family::Ipv4);
        change(&mut learnt, true, 0, 2);
        change(&mut learnt, true, 0, 7);
        assert_eq!(learnt.routes(Family::Ipv4), 4);
        learnt.swept(Family::Ipv4);
        assert_eq!(routes(&learnt), ["10.2.0.0/16#0", "10.7.0.0/16#0"]);
    }

    #[test]
    fn changes_are_new_paths_and_the_ends_of_paths() {
        let mut learnt = Learnt::new(LearntLimit::new(3));
        change(&mut learnt, true, 0, 9);
        learnt.keep_changes();
        let taken = |learnt: &mut Learnt| {
            let mut changes = Vec::new();
            learnt.take_changes(&mut changes);
            let text = |one: &LearntChange| {
                format!("{}{}", if one.is_learnt { '+' } else { '-' }, one.prefix)
            };
            let mut texts: Vec<_> = changes.iter().map(text).collect();
            // Routes that end together have no order.
            texts.sort_unstable();
            texts
        };
        // Known before, new, again, another path, without room.
        for (path, number) in [(0, 9), (0, 1), (0, 1), (1, 1), (0, 2)] {
            change(&mut learnt, true, path, number);
        }
        assert_eq!(taken(&mut learnt), ["+10.1.0.0/16", "+10.1.0.0/16"]);
        change(&mut learnt, false, 1, 1);
        change(&mut learnt, false, 1, 1);
        assert_eq!(taken(&mut learnt), ["-10.1.0.0/16"]);
        learnt.stale(Family::Ipv4);
        change(&mut learnt, true, 0, 9);
        assert_eq!(taken(&mut learnt), [""; 0]);
        learnt.swept(Family::Ipv4);
        assert_eq!(taken(&mut learnt), ["-10.1.0.0/16"]);
        learnt.cleared(Family::Ipv6);
        learnt.cleared(Family::Ipv4);
        assert_eq!(taken(&mut learnt), ["-10.9.0.0/16"]);
    }

    #[test]
    fn attributes_are_those_of_the_newest_announcement_and_end_with_the_route() {
        let mut learnt = Learnt::new(LearntLimit::new(10)).with_attributes();
        let route = |number: u8| LearntRoute {
            prefix: Prefix { address: [10, number, 0, 0].into(), length: 16 },
            path: 7,
        };
        (1..4).for_each(|number| change(&mut learnt, true, 7, number));
        let sets = learnt.sets.as_ref().expect("they are kept");
        assert!(Arc::ptr_eq(&sets.by_route[&route(1)], &sets.by_route[&route(3)]), "one set");
        let expected = LearntAttributes {
            origin: Origin::Igp,
            path: Vec::new(),
            next_hop: Some([192, 0, 2, 1].into()),
            med: None,
            local_pref: Some(100),
            communities: Vec::new(),
            extended_communities: Vec::new(),
        };
        let found = learnt.attributes(&route(2)).expect("they are kept");
        assert_eq!(found.attributes, expected);

        // EGP, a set and a sequence, MED 5, communities of both kinds.
        let attributes = [
            &[0x40, 1, 1, 1][..],
            &[0x40, 2, 16, 1, 1, 0, 0, 0, 9, 2, 2, 0, 0, 0, 7, 0, 1, 0, 0],
            &[0x40, 3, 4, 192, 0, 2, 9, 0x80, 4, 4, 0, 0, 0, 5],
            &[0x40, 5, 4, 0, 0, 0, 50, 0xc0, 8, 4, 0, 1, 0, 2],
            &[0xc0, 16, 8, 0, 2, 0, 1, 0, 0, 0, 2],
        ]
        .concat();
        let body = [&[0, 0, 0, attributes.len() as u8][..], &attributes, &[0, 0, 0, 7, 16, 10, 2]];
        let mut faults = UpdateFaults::default();
        read_update(&body.concat(), &CONTEXT, &mut faults, &mut learnt).expect("well-formed");
        let expected = LearntAttributes {
            origin: Origin::Egp,
            path: vec![
                PathSegment { kind: SegmentKind::Set, numbers: vec![9] },
                PathSegment { kind: SegmentKind::Sequence, numbers: vec![7, 65_536] },
            ],
            next_hop: Some([192, 0, 2, 9].into()),
            med: Some(5),
            local_pref: Some(50),
            communities: vec![(1, 2)],
            extended_communities: vec![[0, 2, 0, 1, 0, 0, 0, 2]],
        };
        let found = learnt.attributes(&route(2)).expect("they are kept");
        assert_eq!(found.attributes, expected);

        change(&mut learnt, false, 7, 1);
        learnt.stale(Family::Ipv4);
        change(&mut learnt, true, 7, 3);
        learnt.swept(Family::Ipv4);
        let has = |learnt: &Learnt| [1, 2, 3].map(|it| learnt.attributes(&route(it)).is_some());
        assert_eq!(has(&learnt), [false, false, true], "withdrawn, swept, announced again");
        learnt.cleared(Family::Ipv6);
        assert_eq!(has(&learnt), [false, false, true]);
        learnt.cleared(Family::Ipv4);
        assert_eq!(has(&learnt), [false; 3]);
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

    #[test]
    fn long_attributes_need_room_of_their_own_and_give_it_back() {
        let limit = LearntLimit::new(5);
        let mut learnt = Learnt::new(limit.clone()).with_attributes();
        // 600 octets of communities: two routes more.
        let long = |learnt: &mut Learnt, number: u8, community: u8| {
            let mut attributes = vec![0x40, 1, 1, 0, 0x40, 2, 0, 0x40, 3, 4, 192, 0, 2, 1];
            attributes.extend([0xd0, 8, 2, 88]);
            attributes.extend([community; 600]);
            let len = (attributes.len() as u16).to_be_bytes();
            let route = [0, 0, 0, 0, 16, 10, number];
            let body = [&[0, 0][..], &len, &attributes, &route].concat();
            let mut faults = UpdateFaults::default();
            read_update(&body, &CONTEXT, &mut faults, learnt).expect("it is well-formed");
            assert_eq!(faults, UpdateFaults::default());
        };
        long(&mut learnt, 1, 1);
        long(&mut learnt, 2, 1);
        assert_eq!((learnt.not_kept, limit.kept.load(Relaxed)), (0, 4));
        long(&mut learnt, 3, 2);
        assert_eq!(learnt.not_kept, 1);
        // Its new attributes have no room: the old ones are no longer true.
        long(&mut learnt, 2, 2);
        assert_eq!((routes(&learnt), learnt.not_kept), (vec!["10.1.0.0/16#0".to_owned()], 2));
        learnt.cleared(Family::Ipv4);
        assert_eq!(limit.kept.load(Relaxed), 0);
        long(&mut learnt, 3, 2);
        assert_eq!((routes(&learnt), learnt.not_kept), (vec!["10.3.0.0/16#0".to_owned()], 2));
        drop(learnt);
        assert_eq!(limit.kept.load(Relaxed), 0);
    }
}
