//! Routes that a native router has learnt, as destinations of streams.

use std::{
    collections::{BTreeMap, HashMap},
    hash::BuildHasherDefault,
    sync::Arc,
};

use squall_bgp::{LearntChange, Mixer};
use squall_host::HostTable;
use squall_plan::Plan;
use squall_router::Prefix;
use squall_units::MacAddr;

use crate::hosts::HostTables;

/// Learnt prefixes of an IP version that can be destinations: a table has 28 octets for each, or 44
/// for IPv6, and about 60 more for the place of each as routes come and go.
pub(crate) const MOST_DESTINATIONS: u32 = 1 << 20;

/// The destinations among the learnt routes of one router, by the index of the family. Its router
/// writes it, and the senders of all workers read it, as they do the addresses of hosts.
#[derive(Debug)]
pub(crate) struct LearntTable {
    families: [Option<Destinations>; 2],
    /// Prefixes that found no place when they were learnt.
    pub left_out: u64,
}

/// The destinations of one IP version.
#[derive(Debug)]
struct Destinations {
    table: Arc<HostTable>,
    /// The places of learnt prefixes, and the number of paths of each.
    places: HashMap<Prefix, Place, BuildHasherDefault<Mixer>>,
    /// The number of paths of prefixes that wait for a place, at most as many as there are places:
    /// about 45 octets each. Others are never destinations.
    waiting: BTreeMap<Prefix, u32>,
    /// Places of routes that have ended.
    free: Vec<u32>,
    /// The first place that was never used.
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    number: u32,
    paths: u32,
}

/// An empty table for the learnt routes of an IP version. Its places are hosts without MAC
/// addresses.
pub(crate) fn table(is_ipv6: bool, places: u32) -> Arc<HostTable> {
    let table = HostTable::new(places, (MacAddr::default(), 1), &[]);
    Arc::new(if is_ipv6 { table.over_ipv6() } else { table })
}

impl LearntTable {
    /// For IPv4 routes, with the table that senders read.
    #[cfg(test)]
    pub fn with_places(places: u32) -> (Self, Arc<HostTable>) {
        let table = table(false, places);
        let families = [Some(Destinations::new(table.clone())), None];
        (Self { families, left_out: 0 }, table)
    }

    /// `None`: no stream goes to routes that the router has learnt.
    pub fn of(plan: &Plan, router: usize, tables: &HostTables) -> Option<Self> {
        let mut families = [None, None];
        for routes in plan.learnt_routes().into_iter().filter(|it| it.router == router) {
            let table = tables.get(routes.table).cloned().flatten();
            families[usize::from(routes.is_ipv6)] = table.map(Destinations::new);
        }
        families.iter().any(Option::is_some).then_some(Self { families, left_out: 0 })
    }

    /// A path of a prefix was learnt, or has ended.
    pub fn change(&mut self, change: LearntChange) {
        let LearntChange { prefix, is_learnt } = change;
        let prefix = Prefix { address: prefix.address, length: prefix.length };
        // All destinations would be in a default route, so that it has no address of its own.
        let family = &mut self.families[usize::from(prefix.address.is_ipv6())];
        let Some(family) = family.as_mut().filter(|_| prefix.length > 0) else { return };
        if is_learnt {
            self.left_out += u64::from(!family.add(prefix));
        } else {
            family.remove(prefix);
        }
    }
}

impl Destinations {
    fn new(table: Arc<HostTable>) -> Self {
        Self {
            table,
            places: HashMap::default(),
            waiting: BTreeMap::new(),
            free: Vec::new(),
            next: 0,
        }
    }

    /// Adds a path. Returns whether the prefix is a destination, or waited for a place before.
    fn add(&mut self, prefix: Prefix) -> bool {
        let place = self.places.get_mut(&prefix).map(|place| &mut place.paths);
        if let Some(paths) = place.or_else(|| self.waiting.get_mut(&prefix)) {
            *paths += 1;
            return true;
        }
        let unused = || (self.next < self.table.hosts() as u32).then_some(self.next);
        if let Some(number) = self.free.pop().or_else(unused) {
            self.next = self.next.max(number + 1);
            self.bind(prefix, Place { number, paths: 1 });
            return true;
        }
        if self.waiting.len() < self.table.hosts() {
            self.waiting.insert(prefix, 1);
        }
        false
    }

    fn bind(&mut self, prefix: Prefix, place: Place) {
        if let Some(address) = prefix.host(1) {
            self.table.bind(place.number, address, MacAddr::default());
        }
        self.places.insert(prefix, place);
    }

    /// Removes a path: the prefix is a destination as long as it has one. Its place is then that of
    /// the first one that waits.
    fn remove(&mut self, prefix: Prefix) {
        let place = self.places.get_mut(&prefix).map(|place| &mut place.paths);
        let Some(paths) = place.or_else(|| self.waiting.get_mut(&prefix)) else { return };
        *paths -= 1;
        if *paths > 0 {
            return;
        }
        self.waiting.remove(&prefix);
        let Some(Place { number, .. }) = self.places.remove(&prefix) else { return };
        self.table.unbind(number);
        match self.waiting.pop_first() {
            Some((next, paths)) => self.bind(next, Place { number, paths }),
            None => self.free.push(number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(text: &str, is_learnt: bool) -> LearntChange {
        let Prefix { address, length } = Prefix::parse(text).expect("a prefix");
        LearntChange { prefix: squall_bgp::Prefix { address, length }, is_learnt }
    }

    /// A table with two places for each IP version, and its readers.
    fn learnt() -> (LearntTable, [Arc<HostTable>; 2]) {
        let tables = [false, true].map(|is_ipv6| table(is_ipv6, 2));
        let families = tables.clone().map(|table| Some(Destinations::new(table)));
        (LearntTable { families, left_out: 0 }, tables)
    }

    /// The next two destinations.
    fn next(table: &HostTable) -> Vec<String> {
        let mut at = 0;
        let turns = (0..2).filter_map(|_| table.next(&mut at));
        turns.map(|host| host.address.to_string()).collect()
    }

    #[test]
    fn a_prefix_is_a_destination_while_it_has_a_path() {
        let (mut learnt, [ipv4, ipv6]) = learnt();
        for text in ["10.1.0.0/16", "10.1.0.0/16", "10.2.0.0/32", "2001:db8::/32", "0.0.0.0/0"] {
            learnt.change(change(text, true));
        }
        assert_eq!(next(&ipv4), ["10.1.0.1", "10.2.0.0"]);
        assert_eq!(next(&ipv6), ["2001:db8::1", "2001:db8::1"]);
        learnt.change(change("10.1.0.0/16", false));
        assert_eq!(next(&ipv4), ["10.1.0.1", "10.2.0.0"]);
        learnt.change(change("10.1.0.0/16", false));
        learnt.change(change("10.9.0.0/16", false));
        assert_eq!(next(&ipv4), ["10.2.0.0", "10.2.0.0"]);
        learnt.change(change("10.2.0.0/32", false));
        assert_eq!(next(&ipv4), [""; 0]);
    }

    #[test]
    fn places_are_used_again_and_prefixes_without_one_are_counted() {
        let (mut learnt, [ipv4, _]) = learnt();
        for text in ["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16", "10.3.0.0/16"] {
            learnt.change(change(text, true));
        }
        assert_eq!((learnt.left_out, ipv4.bound()), (1, 2));
        learnt.change(change("10.1.0.0/16", false));
        assert_eq!(next(&ipv4), ["10.2.0.1", "10.3.0.1"]);
        learnt.change(change("10.4.0.0/16", true));
        learnt.change(change("10.4.0.0/16", false));
        assert_eq!((learnt.left_out, ipv4.bound()), (2, 2));
        (0..2).for_each(|_| learnt.change(change("10.3.0.0/16", false)));
        assert_eq!(next(&ipv4), ["10.2.0.1", "10.2.0.1"]);
        learnt.change(change("10.5.0.0/16", true));
        assert_eq!(next(&ipv4), ["10.2.0.1", "10.5.0.1"]);
    }

    #[test]
    fn the_prefixes_that_wait_for_a_place_are_bounded() {
        let mut of = Destinations::new(table(false, 2));
        let added = (0..9).map(|number| {
            let address = [10, 0, number, 0].into();
            of.add(Prefix { address, length: 24 })
        });
        assert_eq!(added.filter(|is_destination| *is_destination).count(), 2);
        assert_eq!((of.places.len(), of.waiting.len()), (2, 2));
    }
}
