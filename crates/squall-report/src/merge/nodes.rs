//! Reports of nodes that have different ports of one run: what one has open the others have as
//! `elsewhere:NAME`. Before the sum each keeps what is its own.

use std::collections::{BTreeMap, BTreeSet};

use crate::report::Report;

/// What the whole has to know of nodes.
#[derive(Default)]
pub(super) struct Nodes {
    /// Ports that no report has open, with their addresses.
    pub missing: BTreeMap<String, String>,
    /// Of streams, the ports that send them.
    senders: BTreeMap<String, String>,
}

impl Nodes {
    /// Takes out of each report what it has of other nodes' ports.
    pub fn part(parts: &mut [(String, Report)]) -> Self {
        let mut missing = BTreeMap::new();
        let open: BTreeSet<String> = parts
            .iter()
            .flat_map(|(_, report)| &report.ports)
            .filter(|port| !port.is_elsewhere())
            .map(|port| port.name.clone())
            .collect();
        let (mut senders, mut attacks) = (BTreeMap::new(), BTreeSet::new());
        for (_, report) in parts {
            let away: BTreeMap<String, String> = report
                .ports
                .iter()
                .filter(|port| port.is_elsewhere())
                .map(|port| (port.name.clone(), port.address.clone()))
                .collect();
            if away.is_empty() {
                continue;
            }
            let mut unknown = away.clone();
            unknown.retain(|name, _| !open.contains(name));
            missing.extend(unknown);
            report.ports.retain(|port| !port.is_elsewhere());
            let samples = report.series.iter_mut();
            samples.for_each(|sample| sample.ports.retain(|port| !away.contains_key(&port.name)));
            for stream in report.streams.iter_mut().filter(|s| away.contains_key(&s.port)) {
                let port = std::mem::take(&mut stream.port);
                senders.insert(stream.name.clone(), port);
            }
            // Each node has solved the attacks of its part, whose frames leave by several.
            let part = report.part.clone();
            report.attacks.retain(|attack| attacks.insert((part.clone(), attack.name.clone())));
        }
        Self { missing, senders }
    }

    /// Names the senders that no report is of.
    pub fn name_senders(&self, all: &mut Report) {
        for stream in all.streams.iter_mut().filter(|stream| stream.port.is_empty()) {
            if let Some(port) = self.senders.get(&stream.name) {
                stream.port.clone_from(port);
            }
        }
    }
}

/// Reports of one group are parts of one whole: those of nodes that have the same ports.
pub(super) fn group(report: &Report) -> Vec<&str> {
    let ports = || report.ports.iter();
    match ports().any(|port| port.is_elsewhere()) {
        true => ports().filter(|p| !p.is_elsewhere()).map(|port| port.name.as_str()).collect(),
        false => Vec::new(),
    }
}
