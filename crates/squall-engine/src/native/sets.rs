//! Groups of routes as a speaker has them, and the routes of dumps by their attributes.

use std::{
    collections::HashMap,
    hash::BuildHasherDefault,
    sync::{Arc, OnceLock},
};

use squall_bgp::{Mixer, PathSegment, Prefix, RouteAttributes, SegmentKind};
use squall_router::{
    Origin, Prefixes, RouteGroup,
    mrt::{MrtAttributes, MrtSegment, MrtTable},
};
use squall_speaker::{RouteSets, SpeakerGroup};

use super::of_speaker;

pub(super) fn group(of: &RouteGroup) -> SpeakerGroup {
    let attributes = &of.attributes;
    let attributes = RouteAttributes {
        origin: origin(attributes.origin),
        prepend: attributes.prepend,
        as_path: attributes.as_path.clone(),
        next_hop: attributes.next_hop,
        med: attributes.med,
        communities: attributes.communities.clone(),
        ..RouteAttributes::default()
    };
    let parts: Arc<[Prefixes]> = of.prefixes.clone().into();
    SpeakerGroup {
        sets: Sets::of(&attributes, &parts, of.is_in_kernel()).map(|sets| Arc::new(sets) as _),
        attributes,
        prefixes: Arc::new(move || -> Box<dyn Iterator<Item = Prefix>> {
            let parts = parts.clone();
            Box::new((0..parts.len()).flat_map(move |part| prefixes(&parts[part])))
        }),
        is_announced: true,
        peers: None,
        path: None,
    }
}

fn origin(of: Option<Origin>) -> squall_bgp::Origin {
    match of {
        None | Some(Origin::Igp) => squall_bgp::Origin::Igp,
        Some(Origin::Egp) => squall_bgp::Origin::Egp,
        Some(Origin::Incomplete) => squall_bgp::Origin::Incomplete,
    }
}

fn prefixes(part: &Prefixes) -> Box<dyn Iterator<Item = Prefix>> {
    match part {
        Prefixes::Range(range) => {
            let length = range.length;
            let prefix = move |address| Prefix { address, length };
            Box::new(range.addresses().map(prefix))
        }
        Prefixes::List(list) => {
            let list = list.clone();
            Box::new((0..list.len()).map(move |number| of_speaker(list[number])))
        }
        Prefixes::Mrt(table) => {
            let table = table.clone();
            let count = table.prefixes().len();
            Box::new((0..count).map(move |number| of_speaker(table.prefixes()[number])))
        }
    }
}

/// The routes of a group by their attributes: set 0 has the attributes of the group, and the sets
/// of its tables follow, in order.
struct Sets {
    own: RouteAttributes,
    /// Parts without attributes of their own.
    others: Vec<Prefixes>,
    tables: Vec<Arc<MrtTable>>,
    /// Needed to announce single routes: 50 MB for a million routes.
    by_prefix: OnceLock<SetNumbers>,
}

/// Sets by the prefixes that have them.
type SetNumbers = HashMap<Prefix, u32, BuildHasherDefault<Mixer>>;

impl Sets {
    /// `None`: all routes have the attributes of the group. `single`: single routes will be
    /// announced.
    fn of(own: &RouteAttributes, parts: &[Prefixes], single: bool) -> Option<Self> {
        let (mut others, mut tables) = (Vec::new(), Vec::new());
        for part in parts {
            match part {
                Prefixes::Mrt(table) => tables.push(table.clone()),
                Prefixes::Range(_) | Prefixes::List(_) => others.push(part.clone()),
            }
        }
        let own = own.clone();
        let sets = Self { own, others, tables, by_prefix: OnceLock::new() };
        if sets.tables.is_empty() {
            return None;
        }
        if single {
            // Before the run, because it would stop the frames for some 100 ms.
            sets.by_prefix();
        }
        Some(sets)
    }

    /// The table that has a set, and the number of the set in it; `None`: it is that of the group.
    fn table(&self, set: usize) -> Option<(&MrtTable, usize)> {
        let mut set = set.checked_sub(1)?;
        for table in &self.tables {
            if set < table.sets() {
                return Some((table, set));
            }
            set -= table.sets();
        }
        None
    }

    fn by_prefix(&self) -> &SetNumbers {
        let of_set = |set: usize| self.prefixes(set).map(move |prefix| (prefix, set as u32));
        // If a prefix occurs again, the last set counts, as for neighbors that get all routes.
        self.by_prefix.get_or_init(|| (0..self.count()).flat_map(of_set).collect())
    }
}

impl RouteSets for Sets {
    fn count(&self) -> usize {
        1 + self.tables.iter().map(|table| table.sets()).sum::<usize>()
    }

    fn attributes(&self, set: usize) -> RouteAttributes {
        let Some((table, set)) = self.table(set) else { return self.own.clone() };
        let MrtAttributes {
            origin: from,
            path,
            med,
            communities,
            extended_communities,
            large_communities,
        } = table.attributes(set);
        let segment = |segment| {
            let (kind, numbers) = match segment {
                MrtSegment::Set(numbers) => (SegmentKind::Set, numbers),
                MrtSegment::Sequence(numbers) => (SegmentKind::Sequence, numbers),
            };
            PathSegment { kind, numbers }
        };
        RouteAttributes {
            origin: origin(from),
            prepend: self.own.prepend,
            next_hop: self.own.next_hop,
            further: path.into_iter().map(segment).collect(),
            med,
            communities,
            extended_communities,
            large_communities,
            ..RouteAttributes::default()
        }
    }

    fn prefixes(&self, set: usize) -> Box<dyn Iterator<Item = Prefix> + '_> {
        match self.table(set) {
            Some((table, set)) => Box::new(table.of_set(set).iter().map(|one| of_speaker(*one))),
            None if set == 0 => Box::new(self.others.iter().flat_map(prefixes)),
            None => Box::new(std::iter::empty()),
        }
    }

    fn set_of(&self, prefix: Prefix) -> usize {
        self.by_prefix().get(&prefix).map_or(0, |set| *set as usize)
    }
}

#[cfg(test)]
mod tests {
    use squall_router::{GroupAttributes, RouteRange, mrt};

    use super::*;

    /// A dump whose peer has 10.0.N.0/24 with these attributes.
    fn table(attributes: &[&[u8]]) -> Prefixes {
        let record = |subtype, body: &[u8]| {
            let length = (body.len() as u32).to_be_bytes();
            [&[0, 0, 0, 0, 0, 13, 0, subtype][..], &length, body].concat()
        };
        let peers = [0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 10, 0, 0, 1, 0, 0, 0xfd, 0xe8];
        let mut octets = record(1, &peers);
        for (number, attributes) in attributes.iter().enumerate() {
            let head = [0, 0, 0, 0, 24, 10, 0, number as u8, 0, 1, 0, 0, 0, 0, 0, 0, 0];
            let length = [attributes.len() as u8];
            octets.extend(record(2, &[&head[..], &length, *attributes].concat()));
        }
        Prefixes::Mrt(mrt::read_table(&octets[..], 0, None).expect("a table").into())
    }

    #[test]
    fn routes_of_a_dump_have_its_attributes_after_the_own_number() {
        let path = [0x40, 2, 12, 2, 1, 0, 0, 0, 7, 1, 1, 0, 0, 0, 9];
        let more = [0x80, 4, 4, 0, 0, 0, 5, 0xc0, 8, 4, 0, 1, 0, 2];
        let large = [0xc0, 32, 12, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3];
        let first = [&[0x40, 1, 1, 2][..], &path, &more, &large].concat();
        let second = [0x40, 1, 1, 0];
        let range = RouteRange { first: [198, 51, 100, 0].into(), length: 24, count: 2 };
        let of = group(&RouteGroup {
            name: "routes".into(),
            attributes: GroupAttributes {
                med: Some(99),
                prepend: 1,
                communities: vec![(9, 9)],
                as_path: vec![65_010],
                next_hop: Some([10, 0, 0, 9].into()),
                ..GroupAttributes::default()
            },
            prefixes: vec![table(&[&first, &second, &first]), Prefixes::Range(range)],
            flap: None,
            single: false,
        });
        assert_eq!((of.prefixes)().count(), 5);
        let sets = of.sets.expect("attributes of a dump");
        let texts = |set| -> Vec<_> { sets.prefixes(set).map(|one| one.to_string()).collect() };
        let all: Vec<_> = (0..sets.count()).map(texts).collect();
        let expected = [
            vec!["198.51.100.0/24", "198.51.101.0/24"],
            vec!["10.0.0.0/24", "10.0.2.0/24"],
            vec!["10.0.1.0/24"],
        ];
        assert_eq!(all, expected);
        for set in 0..sets.count() {
            assert!(sets.prefixes(set).all(|prefix| sets.set_of(prefix) == set));
        }
        assert_eq!(sets.attributes(0), of.attributes);
        let expected = RouteAttributes {
            origin: squall_bgp::Origin::Incomplete,
            prepend: 1,
            further: vec![
                PathSegment { kind: SegmentKind::Sequence, numbers: vec![7] },
                PathSegment { kind: SegmentKind::Set, numbers: vec![9] },
            ],
            next_hop: Some([10, 0, 0, 9].into()),
            med: Some(5),
            communities: vec![(1, 2)],
            large_communities: vec![[1, 2, 3]],
            ..RouteAttributes::default()
        };
        assert_eq!(sets.attributes(1), expected);
        assert_eq!((sets.attributes(2).med, sets.attributes(2).prepend), (None, 1));
    }

    #[test]
    fn a_prefix_that_occurs_again_is_of_the_set_that_is_announced_last() {
        let med = |med| [0x80, 4, 4, 0, 0, 0, med];
        let range = RouteRange { first: [10, 0, 0, 0].into(), length: 24, count: 2 };
        let both = table(&[&med(1), &med(2)]);
        let first = table(&[&med(3)]);
        let of = group(&RouteGroup {
            name: "routes".into(),
            attributes: GroupAttributes::default(),
            prefixes: vec![both, first, Prefixes::Range(range)],
            flap: None,
            single: true,
        });
        let sets = of.sets.expect("attributes of a dump");
        let meds = [0, 1].map(|third| {
            let prefix = Prefix { address: [10, 0, third, 0].into(), length: 24 };
            sets.attributes(sets.set_of(prefix)).med
        });
        assert_eq!(meds, [Some(3), Some(2)]);
    }

    #[test]
    fn sets_of_single_routes_are_known_before_the_run() {
        let parts = [table(&[&[0x40, 1, 1, 0]])];
        for single in [false, true] {
            let sets = Sets::of(&RouteAttributes::default(), &parts, single).expect("a dump");
            assert_eq!(sets.by_prefix.get().is_some(), single);
        }
    }
}
