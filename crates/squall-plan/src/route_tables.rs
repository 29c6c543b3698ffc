//! The routes that a router announces, from ranges, random tables and files.

use std::{collections::HashSet, io::Read};

use squall_profile::{
    ErrorCollector, HostAddress, HostIpv6, MrtAttributes, Profile, Router, Routes,
};
use squall_report::render::human;
use squall_router::{Prefix, Prefixes, RouteRange, mrt, tables};

use crate::{Assets, compile::seed_of};

/// Inputs of the tables of routes.
pub(crate) struct RouteTables<'a> {
    assets: &'a dyn Assets,
    seed: u64,
    /// The networks of the profile's routers and hosts, in which random routes would hide these.
    networks: Vec<Prefix>,
}

impl<'a> RouteTables<'a> {
    pub fn new(profile: &Profile, assets: &'a dyn Assets) -> Self {
        let mut networks = Vec::new();
        for router in &profile.routers {
            let ipv4 = router.ipv4.map(|(address, length)| Prefix::of(address.into(), length));
            let ipv6 = router.ipv6.map(|(address, length)| Prefix::of(address.into(), length));
            networks.extend(ipv4.into_iter().chain(ipv6));
        }
        for group in &profile.hosts {
            if let HostAddress::Static { first, prefix } = group.ipv4 {
                networks.push(Prefix::of(first.into(), prefix));
            }
            if let Some(HostIpv6::Static { first, prefix }) = group.ipv6 {
                networks.push(Prefix::of(first.into(), prefix));
            }
        }
        Self { assets, seed: profile.effective_seed(), networks }
    }

    /// The routes of a group of `router`. Reports texts that cannot be read.
    pub fn of_group(
        &self,
        router: &Router,
        (group, routes, attributes): (&str, &[Routes], MrtAttributes),
        notes: &mut Vec<String>,
        mistakes: &mut ErrorCollector<'_>,
    ) -> Vec<Prefixes> {
        let mut all = Vec::new();
        for (number, routes) in routes.iter().enumerate() {
            // Groups of the same name have the same random routes in all routers, because a test of
            // convergence needs routes that two routers announce.
            let seed = seed_of(self.seed, group, number as u64);
            match self.prefixes(seed, routes, attributes) {
                Ok((prefixes, note)) => {
                    notes.extend(note.map(|note| format!("router {:?}: {note}", router.name)));
                    all.push(prefixes);
                }
                Err((what, hint)) => {
                    mistakes.at(router.at, &format!("router {:?}: {what}", router.name), hint);
                }
            }
        }
        all
    }

    /// The routes of one text, with a note. The error has a hint.
    fn prefixes(
        &self,
        seed: u64,
        routes: &Routes,
        attributes: MrtAttributes,
    ) -> Result<(Prefixes, Option<String>), (String, &'static str)> {
        let (path, list, note) = match routes {
            Routes::Range { first, length, count } => {
                let range = RouteRange { first: *first, length: *length, count: *count };
                return Ok((Prefixes::Range(range), None));
            }
            Routes::Random { is_ipv6, count } => {
                let random = tables::random(seed, *is_ipv6, *count, &self.networks);
                let list = random.map_err(|error| {
                    (format!("random x {count}: {error}"), "try fewer routes, or a range")
                })?;
                return Ok((Prefixes::List(list.into()), None));
            }
            Routes::Mrt { path, peer, most } if attributes == MrtAttributes::Mrt => {
                return self.with_attributes(path, *peer, *most);
            }
            Routes::Mrt { path, peer, most } => {
                let table = self.open(path)?;
                let read = mrt::read(table, *peer, *most);
                let routes = read.map_err(|error| (format!("{path:?}: {error}"), MRT))?;
                let count = human::count(routes.prefixes.len() as u64);
                let note = format!("{path:?}: {count} routes of {}", routes.peer);
                (path, routes.prefixes, Some(note))
            }
            Routes::File { path } => {
                let text = squall_profile::read_open(self.open(path)?)
                    .map_err(|error| (format!("cannot read {path:?}: {error}"), PATH))?;
                let list = tables::from_text(&text);
                let mut list = list.map_err(|error| (format!("{path:?}: {error}"), LINES))?;
                let mut seen = HashSet::new();
                list.retain(|prefix| seen.insert(*prefix));
                (path, list, None)
            }
        };
        if list.is_empty() {
            return Err((format!("{path:?} has no routes"), LINES));
        }
        Ok((Prefixes::List(list.into()), note))
    }

    /// Routes of an MRT file with their attributes.
    fn with_attributes(
        &self,
        path: &str,
        peer: Option<u16>,
        most: Option<u32>,
    ) -> Result<(Prefixes, Option<String>), (String, &'static str)> {
        let wrong = |error| (format!("{path:?}: {error}"), MRT);
        // Read twice: the attributes of all peers would take some GB until it is known which has
        // most routes.
        let peer = match peer {
            Some(peer) => peer,
            None => mrt::read(self.open(path)?, None, None).map_err(wrong)?.peer.index,
        };
        let table = mrt::read_table(self.open(path)?, peer, most).map_err(wrong)?;
        let count = human::count(table.prefixes().len() as u64);
        let sets = human::counted(table.sets() as u64, "set");
        let left_out = match table.left_out {
            0 => String::new(),
            more => {
                let routes = human::counted(more, "route");
                format!("; {routes} with malformed attributes, or over 2,048 octets, left out")
            }
        };
        let note =
            format!("{path:?}: {count} routes of {}, {sets} of attributes{left_out}", table.peer);
        Ok((Prefixes::Mrt(table.into()), Some(note)))
    }

    fn open(&self, path: &str) -> Result<Box<dyn Read>, (String, &'static str)> {
        let opened = self.assets.table(path);
        opened.map_err(|error| (format!("cannot read {path:?}: {error}"), PATH))
    }
}

const PATH: &str = "the path is relative to the profile";
const LINES: &str = "expected a prefix in each line: 198.51.100.0/24";
const MRT: &str =
    "expected a dump of a table, such as RouteViews' rib files or RIPE RIS's bview files";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_files::TestFiles;

    const FILES: TestFiles = TestFiles(&[
        ("edge.txt", "198.51.100.0/24\n2001:db8::/32\n"),
        ("wrong.txt", "198.51.100.0/24\n198.51.100.7/24\n"),
        ("empty.txt", "# nothing\n"),
    ]);

    fn read(profile: &Profile, routes: &[Routes]) -> Result<Vec<String>, String> {
        read_with(profile, routes, MrtAttributes::Own)
    }

    fn read_with(
        profile: &Profile,
        routes: &[Routes],
        attributes: MrtAttributes,
    ) -> Result<Vec<String>, String> {
        let mut mistakes = ErrorCollector::of(profile);
        let tables = RouteTables::new(profile, &FILES);
        let router = &profile.routers[0];
        let group = ("routes", routes, attributes);
        let all = tables.of_group(router, group, &mut Vec::new(), &mut mistakes);
        mistakes.check().map_err(|found| found.to_string())?;
        Ok(all.iter().flat_map(Prefixes::iter).map(|prefix| prefix.to_string()).collect())
    }

    fn profile() -> Profile {
        let router = Router {
            name: "r1".into(),
            ipv4: Some(([20, 0, 0, 1].into(), 6)),
            ..Router::default()
        };
        Profile { routers: vec![router], ..Profile::default() }
    }

    #[test]
    fn texts_become_routes_in_their_order() {
        let range = Routes::Range { first: [10, 0, 0, 0].into(), length: 24, count: 1 };
        let file = Routes::File { path: "edge.txt".into() };
        let found = read(&profile(), &[file, range]).expect("right");
        assert_eq!(found, ["198.51.100.0/24", "2001:db8::/32", "10.0.0.0/24"]);
    }

    #[test]
    fn random_routes_depend_on_seed_and_group_and_avoid_the_networks_of_the_profile() {
        let random = Routes::Random { is_ipv6: false, count: 5_000 };
        let found = read(&profile(), &[random.clone(), random.clone()]).expect("right");
        assert_eq!(found, read(&profile(), &[random.clone(), random.clone()]).expect("right"));
        assert_ne!(found[..5_000], found[5_000..]);
        let own = Prefix::parse("20.0.0.0/6").expect("a prefix");
        let is_own = |text: &String| Prefix::parse(text).expect("a prefix").overlaps(own);
        assert!(!found.iter().any(is_own));
        let mut other = profile();
        other.routers[0].name = "r2".into();
        assert_eq!(found[..5_000], read(&other, std::slice::from_ref(&random)).expect("right"));
        let seeded = Profile { seed: Some(9), ..profile() };
        assert_ne!(found[..5_000], read(&seeded, &[random]).expect("right"));
    }

    #[test]
    fn files_without_routes_are_reported_with_their_lines() {
        for (path, expected) in [
            ("wrong.txt", "\"wrong.txt\": line 2: \"198.51.100.7/24\" is not a prefix"),
            ("empty.txt", "\"empty.txt\" has no routes"),
            ("missing.txt", "cannot read \"missing.txt\""),
        ] {
            let error = read(&profile(), &[Routes::File { path: path.into() }]);
            let error = error.expect_err("wrong");
            assert!(error.contains(expected), "{error}");
        }
        let mrt = Routes::Mrt { path: "edge.txt".into(), peer: None, most: None };
        for attributes in [MrtAttributes::Own, MrtAttributes::Mrt] {
            let mrt = std::slice::from_ref(&mrt);
            let error = read_with(&profile(), mrt, attributes).expect_err("wrong");
            assert!(error.contains("this is no record of MRT"), "{error}");
        }
    }
}
