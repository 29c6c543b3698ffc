//! Reports of nodes that have different ports of one run. A port that another node has opened is
//! `elsewhere:NAME` in a report. Before merging, each report is reduced to its own ports.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    mem::take,
};

use crate::report::{ReasonCode, ReceiverRx, Report, StreamRx, attack::AttackReport};

/// Facts about all nodes for the merged report.
#[derive(Default)]
pub(super) struct Nodes {
    /// Ports that are open in no report, with their addresses.
    pub missing: BTreeMap<String, String>,
    /// The ports that send each stream.
    senders: BTreeMap<String, String>,
    /// For each stream, the uncertainty of the sender's clock.
    bounds: BTreeMap<String, u64>,
}

impl Nodes {
    /// Removes the ports of other nodes from each report.
    pub fn part(parts: &mut [(String, Report)]) -> Self {
        let mut missing = BTreeMap::new();
        let open: BTreeSet<String> = parts
            .iter()
            .flat_map(|(_, report)| &report.ports)
            .filter(|port| !port.is_remote())
            .map(|port| port.name.clone())
            .collect();
        // Attacks of a part and name, with the number of those that their rule does not match.
        let mut attacks = BTreeMap::<(Option<String>, String), u64>::new();
        let mut senders = BTreeMap::new();
        let mut bounds = BTreeMap::new();
        for (clock, report) in parts.iter().filter_map(|(_, r)| Some((r.clock?, r))) {
            for stream in report.streams.iter().filter(|stream| stream.tx_packets > 0) {
                let bound: &mut u64 = bounds.entry(stream.name.clone()).or_default();
                *bound = clock.bound_ns.max(*bound);
            }
        }
        for (_, report) in parts {
            let away: BTreeMap<String, String> = report
                .ports
                .iter()
                .filter(|port| port.is_remote())
                .map(|port| (port.name.clone(), port.address.clone()))
                .collect();
            if away.is_empty() {
                continue;
            }
            let mut unknown = away.clone();
            unknown.retain(|name, _| !open.contains(name));
            missing.extend(unknown);
            report.ports.retain(|port| !port.is_remote());
            let samples = report.series.iter_mut();
            samples.for_each(|sample| sample.ports.retain(|port| !away.contains_key(&port.name)));
            for stream in report.streams.iter_mut().filter(|s| away.contains_key(&s.port)) {
                let port = std::mem::take(&mut stream.port);
                senders.insert(stream.name.clone(), port);
            }
            let received = report.streams.iter_mut().filter_map(|stream| stream.rx.as_deref_mut());
            received.for_each(alone);
            // The nodes of a part have solved the same attacks, even if several of them send the
            // frames.
            let part = report.part.clone();
            for attack in &mut report.attacks {
                match attacks.entry((part.clone(), attack.name.clone())) {
                    Entry::Vacant(first) => _ = first.insert(attack.unseen),
                    Entry::Occupied(mut known) => {
                        // Only the node with the ports knows which attacks had no host, or one
                        // whose address their rule excludes.
                        let unseen = attack.unseen.saturating_sub(*known.get());
                        *known.get_mut() += unseen;
                        let (name, unsent) = (take(&mut attack.name), take(&mut attack.unsent));
                        *attack = AttackReport { name, unsent, unseen, ..AttackReport::default() };
                    }
                }
            }
        }
        Self { missing, senders, bounds }
    }

    /// Adds facts that need all reports: senders without a report, and the uncertainty of delays
    /// between two clocks.
    pub fn tell(&self, all: &mut Report) {
        for stream in all.streams.iter_mut().filter(|stream| stream.port.is_empty()) {
            if let Some(port) = self.senders.get(&stream.name) {
                stream.port.clone_from(port);
            }
        }
        let mut widest = 0;
        for stream in &mut all.streams {
            let Some(rx) = &mut stream.rx else { continue };
            if rx.receivers.len() == 1 {
                rx.receivers.clear();
            }
            let Some(bound) = &mut rx.latency_bound_ns else { continue };
            *bound += self.bounds.get(&stream.name).copied().unwrap_or(0);
            widest = widest.max(*bound);
            if rx.earliest_ns > *bound {
                let text = format!(
                    "stream {:?}: {} frames arrived before they were sent, by up to {} ns, but the \
                     clocks of the nodes differ by at most {bound} ns",
                    stream.name, rx.early_packets, rx.earliest_ns
                );
                all.verdict.add_reason(ReasonCode::ClocksDiffer, text, "measure the clocks again");
            }
        }
        if widest > 0 {
            all.notes.push(format!(
                "one-way delays between nodes are known within plus or minus {widest} ns: sender \
                 and receiver have different clocks"
            ));
        }
    }
}

/// Moves a node's only receiver of a stream into `receivers`, because the merged report may have
/// several.
fn alone(rx: &mut StreamRx) {
    if let ([port], []) = (&rx.ports[..], &rx.receivers[..]) {
        rx.receivers.push(ReceiverRx {
            port: port.clone(),
            packets: rx.packets,
            lost: rx.lost,
            duplicates: rx.duplicates,
            latency_ns: rx.latency_ns.clone(),
        });
    }
}

/// Key of a group. Reports of nodes with the same ports are parts of one whole.
pub(super) fn group(report: &Report) -> Vec<&str> {
    let ports = || report.ports.iter();
    match ports().any(|port| port.is_remote()) {
        true => ports().filter(|p| !p.is_remote()).map(|port| port.name.as_str()).collect(),
        false => Vec::new(),
    }
}
