//! Merges reports of the parts of a run (`--part`, or several machines) into the report of the
//! whole. Counters are added, histograms are merged bin by bin, and ratios and percentiles are
//! recomputed, because the mean of means would be wrong. Values that cannot be computed from the
//! parts are omitted, which a note states. Nodes may have different ports of the run, so one node
//! may receive the frames that another one sent.

mod flows;
mod nodes;
mod series;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use nodes::Nodes;

use crate::report::{
    Asked, CaptureReport, Contention, Cpu, Distribution, EndedBy, Host, KnownBy, PartReport,
    Patterns, ReasonCode, ReceivedFlowsReport, ReceivedSourceReport, ReceiverRx, ReplayEdits,
    ReplayFlows, ReplayRead, ReplayReport, ReplayShare, Report, RestReport, StreamReport, StreamRx,
    Verdict, VerdictStatus, attack::AttackReport, reasons::Reasons,
};

/// Why reports cannot be merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeError(String);

impl fmt::Display for MergeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for MergeError {}

/// Merges the reports of a run's parts, each with the name of its file or node. If several parts
/// have ports or sources of the same name, the name of the part is prefixed: `node1/A`.
///
/// ```
/// use squall_report::{merge::whole, report::{Report, StreamReport}};
///
/// let stream = |tx_packets| StreamReport { name: "web".into(), tx_packets, ..Default::default() };
/// let part = |n: u64| Report { streams: vec![stream(n)], ..Report::default() };
/// let all = whole(vec![("a".into(), part(3)), ("b".into(), part(4))]).unwrap();
/// assert_eq!(all.streams, [stream(7)]);
/// ```
///
/// # Errors
/// If there is no report, if two are of the same part, or if their divisions or versions differ.
pub fn whole(mut parts: Vec<(String, Report)>) -> Result<Report, MergeError> {
    check(&parts)?;
    let absent = absent(&parts);
    let several = parts.len() > 1;
    let nodes = if several { Nodes::part(&mut parts) } else { Nodes::default() };
    let (doubles, seeds) = (doubles(&parts), differ(&parts, |report| report.seed));
    let filters = differ(&parts, |report| report.filter.clone());
    let shared = drop_shared_routes(&mut parts);
    parts.iter_mut().for_each(|(name, report)| {
        doubles.rename(name, report);
        if several {
            prefix_notes(name, report);
        }
    });
    let summaries: Vec<_> = parts.iter().map(|(name, report)| summary_of(name, report)).collect();
    let series = series::whole(parts.iter_mut().map(|(_, r)| std::mem::take(&mut r.series)));
    let mut parts = parts.into_iter().map(|(_, report)| report);
    let mut all = parts.next().ok_or_else(|| MergeError("there is no report".into()))?;
    parts.for_each(|part| all.merge(&part));
    let mut note = |is: bool, text: &str| all.notes.extend(is.then(|| text.to_owned()));
    note(seeds, "the parts had different seeds: together they are not what one run would send");
    note(filters, "the parts received by different filters");
    note(shared, "no routes of streams that several parts received: they lack each other's frames");
    note(series.is_none(), "no time series: the parts sampled at different intervals");
    if filters {
        all.filter = None;
    }
    all.series = series.unwrap_or_default();
    if several {
        (all.part, all.node, all.clock, all.start) = Default::default();
        all.parts = summaries;
    }
    nodes.tell(&mut all);
    let mut lacks = |what: String| {
        let text = format!("{what} is not among the reports");
        all.verdict.add_reason(ReasonCode::NotDone, text, "add its report, as written by --json");
    };
    absent.into_iter().for_each(|part| lacks(format!("part {part}")));
    for (port, address) in &nodes.missing {
        lacks(format!("the node of port {port} ({address})"));
    }
    Ok(all)
}

/// Removes the routes of streams that several reports have: lost frames of one receiver may have
/// arrived at another, and reports have no lanes. Returns whether there were any.
fn drop_shared_routes(parts: &mut [(String, Report)]) -> bool {
    let mut found = BTreeMap::<String, u32>::new();
    for stream in parts.iter().flat_map(|(_, report)| &report.streams) {
        if stream.rx.as_ref().is_some_and(|rx| rx.routes.is_some()) {
            *found.entry(stream.name.clone()).or_default() += 1;
        }
    }
    found.retain(|_, reports| *reports > 1);
    for stream in parts.iter_mut().flat_map(|(_, report)| &mut report.streams) {
        if found.contains_key(&stream.name)
            && let Some(rx) = &mut stream.rx
        {
            rx.routes = None;
        }
    }
    !found.is_empty()
}

impl Report {
    /// Records that results of a node are missing or incomplete, which only the controller knows:
    /// the report of the node itself may be valid, or not be there.
    pub fn lacks_results_of(&mut self, node: &str, why: &str) {
        let text = format!("results of node {node:?} are missing or incomplete: {why}");
        self.verdict.add_reason(ReasonCode::NotDone, text, "see the log of the node");
    }
}

/// A figure to which each part contributes.
pub(crate) trait Merge {
    fn merge(&mut self, other: &Self);
}

/// Merges the named fields.
macro_rules! merge {
    ($one:expr, $other:expr; $($field:ident),+ $(,)?) => {
        $($crate::merge::Merge::merge(&mut $one.$field, &$other.$field);)+
    };
}
pub(crate) use merge;

/// Implements [`Merge`] for types by merging the named fields.
macro_rules! sums {
    ($($kind:ty { $($field:ident),+ })+) => {
        $(impl $crate::merge::Merge for $kind {
            fn merge(&mut self, other: &Self) {
                $crate::merge::merge!(self, other; $($field),+);
            }
        })+
    };
}
pub(crate) use sums;

impl Merge for u64 {
    fn merge(&mut self, other: &Self) {
        *self += other;
    }
}

/// Adds the values, which is correct for rates of simultaneous parts and for CPU times of threads.
impl Merge for f64 {
    fn merge(&mut self, other: &Self) {
        *self += other;
    }
}

impl Merge for BTreeMap<String, u64> {
    fn merge(&mut self, other: &Self) {
        other.iter().for_each(|(key, n)| *self.entry(key.clone()).or_default() += n);
    }
}

impl Merge for Reasons {
    fn merge(&mut self, other: &Self) {
        other.into_iter().for_each(|(reason, n)| self.add(reason.to_owned(), *n));
    }
}

impl<T: Merge> Merge for Box<T> {
    fn merge(&mut self, other: &Self) {
        (**self).merge(other);
    }
}

/// A value that only one part has is the value of the whole.
impl<T: Merge + Clone> Merge for Option<T> {
    fn merge(&mut self, other: &Self) {
        match (self.as_mut(), other) {
            (Some(one), Some(other)) => one.merge(other),
            (None, Some(_)) => self.clone_from(other),
            (_, None) => {}
        }
    }
}

sums! {
    ReplayRead { packets, octets, unwanted, sideless, edited_out, too_long, not_ethernet, cut, backward }
    ReplayEdits { changed, dropped, added }
    ReplayShare { packets, octets }
    RestReport { packets, octets }
    ReceivedSourceReport { flows, packets, octets, pps, bps_l2, lost }
    Contention { involuntary_switches, throttled_s, pressure_s, steal_s }
    Patterns { loss_period_packets, loss_distance_packets, reordering_extent_packets, n_reordering_packets }
}

/// Adds the values of `others` to the entries with the same key, and appends those with a new key.
pub(crate) fn by_key<T: Merge + Clone, K: PartialEq>(
    all: &mut Vec<T>,
    others: &[T],
    key: impl Fn(&T) -> K,
) {
    for other in others {
        match all.iter_mut().find(|one| key(one) == key(other)) {
            Some(one) => one.merge(other),
            None => all.push(other.clone()),
        }
    }
}

/// Keeps `value` if both are equal; otherwise clears it.
fn common<T: PartialEq>(value: &mut Option<T>, other: Option<&T>) {
    if value.as_ref() != other {
        *value = None;
    }
}

fn ratio(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 }
}

impl Merge for Report {
    fn merge(&mut self, other: &Self) {
        if other.started < self.started {
            self.started.clone_from(&other.started);
        }
        self.duration_s = self.duration_s.max(other.duration_s);
        self.cut_short |= other.cut_short;
        merge!(self, other; host, verdict, asked, cpu, contention, capture, flows, received_flows);
        self.cpu.per_mpkt_s = None;
        self.sources.extend(other.sources.iter().cloned());
        self.ports.extend(other.ports.iter().cloned());
        self.workers.extend(other.workers.iter().cloned());
        self.notes.extend(other.notes.iter().cloned());
        // One node has all hosts of a group.
        self.hosts.extend(other.hosts.iter().cloned());
        self.routers.extend(other.routers.iter().cloned());
        self.memory.peak_rss_octets += other.memory.peak_rss_octets;
        streams(&mut self.streams, &other.streams);
        by_key(&mut self.replays, &other.replays, |replay| replay.name.clone());
        by_key(&mut self.attacks, &other.attacks, |attack| attack.name.clone());
        let frames: u64 = self.ports.iter().map(|port| port.tx.packets + port.rx.packets).sum();
        if frames > 0 {
            let busy = self.cpu.user_s + self.cpu.system_s;
            self.cpu.per_mpkt_s = Some(busy / frames as f64 * 1e6);
        }
    }
}

/// The same as [`by_key`], but fast enough for 100,000 streams.
fn streams(all: &mut Vec<StreamReport>, others: &[StreamReport]) {
    let mut at: BTreeMap<String, usize> =
        all.iter().enumerate().map(|(i, stream)| (stream.name.clone(), i)).collect();
    for other in others {
        match at.get(&other.name) {
            Some(&i) => all[i].merge(other),
            None => {
                at.insert(other.name.clone(), all.len());
                all.push(other.clone());
            }
        }
    }
}

impl Merge for Host {
    fn merge(&mut self, other: &Self) {
        if self.name != other.name {
            self.name = format!("{}, {}", self.name, other.name);
            self.cpus += other.cpus;
        }
        let fields = [
            (&mut self.os, &other.os),
            (&mut self.kernel, &other.kernel),
            (&mut self.cpu_model, &other.cpu_model),
        ];
        for (one, other) in fields.into_iter().filter(|(one, other)| one != other) {
            *one = format!("{one}, {other}");
        }
    }
}

impl Merge for Verdict {
    fn merge(&mut self, other: &Self) {
        let rank = |status| match status {
            VerdictStatus::Valid => 0,
            VerdictStatus::Interrupted => 1,
            VerdictStatus::NotValid => 2,
        };
        if rank(other.status) > rank(self.status) {
            self.status = other.status;
        }
        self.valid &= other.valid;
        // A part that did not end as requested determines how the whole run ended.
        let own = |ended| matches!(ended, EndedBy::Done | EndedBy::Duration);
        if own(self.ended_by) {
            self.ended_by = other.ended_by;
        }
        self.reasons.extend(other.reasons.iter().cloned());
        self.failed.extend(other.failed.iter().cloned());
    }
}

impl Merge for Asked {
    fn merge(&mut self, other: &Self) {
        self.duration_s = self.duration_s.zip(other.duration_s).map(|(one, other)| one.max(other));
        self.packets = self.packets.zip(other.packets).map(|(one, other)| one + other);
        self.octets = self.octets.zip(other.octets).map(|(one, other)| one + other);
    }
}

impl Merge for Cpu {
    fn merge(&mut self, other: &Self) {
        merge!(self, other; user_s, system_s);
    }
}

impl Merge for Distribution {
    fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            self.clone_from(other);
            return;
        }
        let (n, m) = (self.count as f64, other.count as f64);
        let square = |d: &Self| d.stddev * d.stddev + d.mean * d.mean;
        let squares = (n * square(self) + m * square(other)) / (n + m);
        self.mean = (n * self.mean + m * other.mean) / (n + m);
        self.stddev = (squares - self.mean * self.mean).max(0.0).sqrt();
        self.count += other.count;
        (self.min, self.max) = (self.min.min(other.min), self.max.max(other.max));
        let mut bins: BTreeMap<(u64, u64), u64> = BTreeMap::new();
        for (low, high, count) in self.bins.iter().chain(&other.bins) {
            *bins.entry((*low, *high)).or_default() += count;
        }
        self.bins = bins.into_iter().map(|((low, high), count)| (low, high, count)).collect();
        let [p50, p90, p95, p99, p999] =
            [0.5, 0.9, 0.95, 0.99, 0.999].map(|share| self.quantile(share));
        (self.p50, self.p90, self.p95, self.p99, self.p999) = (p50, p90, p95, p99, p999);
    }
}

impl Distribution {
    /// Highest value of the bin that contains the quantile, as for a histogram with these bins.
    fn quantile(&self, share: f64) -> u64 {
        let rank = ((share * self.count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        let holds = |bin: &&(u64, u64, u64)| {
            seen += bin.2;
            seen >= rank
        };
        let highest = self.bins.iter().find(holds).map_or(self.max, |bin| bin.1.saturating_sub(1));
        highest.clamp(self.min, self.max)
    }
}

impl Merge for StreamReport {
    fn merge(&mut self, other: &Self) {
        let ports = [&self.port, &other.port].map(|port| port.as_str());
        self.port =
            ports.into_iter().filter(|port| !port.is_empty()).collect::<Vec<_>>().join(", ");
        common(&mut self.group, other.group.as_ref());
        merge!(self, other; tx_packets, tx_octets, tx_pps, asked_pps, not_sent, departure_error_ns, rx);
        if let Some(rx) = self.rx.as_mut().filter(|_| self.tx_packets > 0) {
            // A receiver does not know how many frames all nodes sent together.
            let sent = self.tx_packets;
            rx.lost = sent.saturating_sub(rx.packets.saturating_sub(rx.duplicates));
            for receiver in &mut rx.receivers {
                let unique = receiver.packets.saturating_sub(receiver.duplicates);
                receiver.lost = sent.saturating_sub(unique);
            }
            // A frame that a switch floods to two ports is not lost if a third port did not receive
            // it, so only the port with the most received frames counts.
            if rx.receivers.len() > 1 {
                rx.lost = rx.receivers.iter().map(|one| one.lost).min().unwrap_or(0);
            }
            rx.loss_ratio = ratio(rx.lost, sent);
            // The receiver's node does not know which routes lost the frames after the last one
            // that arrived.
            if rx.routes.as_ref().is_some_and(|routes| routes.sent < sent) {
                rx.routes = None;
            }
        }
    }
}

impl Merge for StreamRx {
    fn merge(&mut self, other: &Self) {
        let received = self.packets > 0;
        self.merge_arrived(other);
        self.routes = self.routes.take().or_else(|| other.routes.clone());
        if other.known_by == KnownBy::Mark {
            self.known_by = KnownBy::Mark;
        }
        for port in
            other.ports.iter().filter(|port| !self.ports.contains(*port)).collect::<Vec<_>>()
        {
            self.ports.push(port.clone());
        }
        self.latency_bound_ns = self.latency_bound_ns.max(other.latency_bound_ns);
        self.earliest_ns = self.earliest_ns.max(other.earliest_ns);
        merge!(self, other; packets, octets, lost, duplicates, reordered, restarts, early_packets,
            latency_ns, ipdv_ns, arrival_gap_ns, patterns);
        by_key(&mut self.receivers, &other.receivers, |receiver| receiver.port.clone());
        self.max_reordering_extent = self.max_reordering_extent.max(other.max_reordering_extent);
        let unique = self.packets.saturating_sub(self.duplicates);
        self.loss_ratio = ratio(self.lost, self.lost + unique);
        self.reordering_ratio = ratio(self.reordered, unique);
        // Smoothed values of several receivers cannot be merged.
        if other.packets > 0 {
            self.jitter_ns = other.jitter_ns.filter(|_| !received);
        }
    }
}

impl Merge for ReceiverRx {
    fn merge(&mut self, other: &Self) {
        merge!(self, other; packets, lost, duplicates, latency_ns);
    }
}

impl Merge for ReplayReport {
    fn merge(&mut self, other: &Self) {
        let new = other.files.iter().filter(|file| !self.files.contains(*file)).cloned();
        let new: Vec<_> = new.collect();
        self.files.extend(new);
        self.loops = self.loops.max(other.loops);
        merge!(self, other; packets, octets, read, edited);
        self.ports.extend(other.ports.iter().cloned());
        merge!(self, other; flows);
        self.starved_s = self.starved_s.max(other.starved_s);
        self.fault = self.fault.take().or_else(|| other.fault.clone());
    }
}

/// Captures are divided by conversation, so no flow occurs in two parts.
impl Merge for ReplayFlows {
    fn merge(&mut self, other: &Self) {
        merge!(self, other; flows, unique, expired, flows_per_second, flow_packets,
            non_flow_packets, invalid_packets, overflow_packets);
        shares(&mut self.protocols, &other.protocols);
        shares(&mut self.talkers, &other.talkers);
        shares(&mut self.top_flows, &other.top_flows);
    }
}

/// Keeps the busiest entries of both lists. An entry that one part omitted from its list lacks the
/// figures of that part.
fn shares(all: &mut Vec<ReplayShare>, others: &[ReplayShare]) {
    by_key(all, others, |share| share.name.clone());
    all.sort_by_key(|share| std::cmp::Reverse(share.octets));
}

/// Each part reads and solves all rules; only attacks are divided between parts.
impl Merge for AttackReport {
    fn merge(&mut self, other: &Self) {
        merge!(self, other; attacks, near_misses, unseen, left_out, unsent, frames, octets);
        self.duration_s = self.duration_s.max(other.duration_s);
        if self.passage.is_none() {
            self.passage.clone_from(&other.passage);
        } else if let (Some(one), Some(other)) = (self.passage.as_mut(), &other.passage) {
            merge!(one, other; conversations, as_frames, passed, altered, blocked, near_misses,
                near_misses_passed);
            by_key(&mut one.rules, &other.rules, |rule| (rule.gid, rule.sid));
        }
    }
}

sums! {
    crate::report::attack::RulePassage { attacks, passed, blocked, near_misses, near_misses_passed }
}

impl Merge for CaptureReport {
    fn merge(&mut self, other: &Self) {
        merge!(self, other; arrived, accepted, received, dropped_by_interface, dropped_by_kernel,
            dropped, unwanted, lost, truncated, written_packets, written_octets, file_octets,
            files_written, removed_files, removed_packets, removed_octets, gso_frames, segments,
            out_of_order, buffer_octets, buffer_peak_octets);
        let wanted = self.received - self.unwanted.values().sum::<u64>();
        self.loss_ratio = ratio(self.lost, wanted);
        self.snaplen = self.snaplen.min(other.snaplen);
        if self.format != other.format {
            self.format = format!("{}; {}", self.format, other.format);
        }
        self.files.extend(other.files.iter().cloned());
        for (one, other) in [(&mut self.ended_by, &other.ended_by), (&mut self.error, &other.error)]
        {
            *one = one.take().or_else(|| other.clone());
        }
        let earlier = [self.triggered.take(), other.triggered.clone()];
        self.triggered = earlier.into_iter().flatten().min();
    }
}

impl Merge for ReceivedFlowsReport {
    fn merge(&mut self, other: &Self) {
        self.flows.extend(other.flows.iter().cloned());
        self.flows.sort_by_key(|flow| std::cmp::Reverse(flow.octets));
        by_key(&mut self.sources, &other.sources, |source| source.name.clone());
        self.sources.sort_by_key(|source| std::cmp::Reverse(source.octets));
        merge!(self, other; limit, rest, memory_octets);
    }
}

/// Summary of a part for the merged report.
fn summary_of(name: &str, report: &Report) -> PartReport {
    PartReport {
        name: name.to_owned(),
        part: report.part.clone(),
        host: report.host.name.clone(),
        started: report.started.clone(),
        duration_s: report.duration_s,
        status: report.verdict.status,
        tx_packets: report.ports.iter().map(|port| port.tx.packets).sum(),
        rx_packets: report.ports.iter().map(|port| port.rx.packets).sum(),
    }
}

fn differ<T: PartialEq>(parts: &[(String, Report)], of: impl Fn(&Report) -> T) -> bool {
    parts.windows(2).any(|two| of(&two[0].1) != of(&two[1].1))
}

fn check(parts: &[(String, Report)]) -> Result<(), MergeError> {
    let refuse = |text: String| Err(MergeError(text));
    for two in parts.windows(2) {
        let [(one, a), (other, b)] = two else { continue };
        if a.squall_version != b.squall_version {
            return refuse(format!(
                "{one} is of version {} and {other} of {}: figures may differ in meaning",
                a.squall_version, b.squall_version
            ));
        }
    }
    let of = |report: &Report| report.part.as_deref().and_then(division);
    let mut seen: BTreeMap<(Vec<&str>, u32), &str> = BTreeMap::new();
    let mut wholes: BTreeMap<Vec<&str>, (u32, &str)> = BTreeMap::new();
    for (name, report) in parts {
        if !report.parts.is_empty() {
            return refuse(format!(
                "{name} is of several parts itself: give the reports of all parts"
            ));
        }
        let Some((part, parts)) = of(report) else { continue };
        let group = nodes::group(report);
        let (before, first) = *wholes.entry(group.clone()).or_insert((parts, name));
        if before != parts {
            return refuse(format!("{first} is one of {before} parts, and {name} one of {parts}"));
        }
        if let Some(first) = seen.insert((group, part), name) {
            return refuse(format!("{first} and {name} are both part {part}/{parts}"));
        }
    }
    Ok(())
}

/// Parses `2/3`.
fn division(text: &str) -> Option<(u32, u32)> {
    let (part, parts) = text.split_once('/')?;
    Some((part.parse().ok()?, parts.parse().ok()?))
}

/// Names of parts that have no report.
fn absent(parts: &[(String, Report)]) -> Vec<String> {
    let mut groups: BTreeMap<Vec<&str>, Vec<(u32, u32)>> = BTreeMap::new();
    for (_, report) in parts {
        let part = report.part.as_deref().and_then(division);
        groups.entry(nodes::group(report)).or_default().extend(part);
    }
    let missing = |(ports, known): (Vec<&str>, Vec<(u32, u32)>)| {
        let all = known.first().map_or(0, |one| one.1);
        let missing = (1..=all).filter(move |part| !known.iter().any(|one| one.0 == *part));
        let of = if ports.is_empty() { String::new() } else { format!(" of {}", ports.join(", ")) };
        missing.map(move |part| format!("{part}/{all}{of}"))
    };
    groups.into_iter().flat_map(missing).collect()
}

/// Names that occur in several parts.
#[derive(Default)]
struct Doubles {
    ports: BTreeSet<String>,
    sources: BTreeSet<String>,
}

fn doubles(parts: &[(String, Report)]) -> Doubles {
    let twice = |names: &dyn Fn(&Report) -> Vec<String>| {
        let mut seen = BTreeSet::new();
        let all = parts.iter().flat_map(|(_, report)| names(report));
        all.filter(|name| !seen.insert(name.clone())).collect()
    };
    Doubles {
        ports: twice(&|report| report.ports.iter().map(|port| port.name.clone()).collect()),
        sources: twice(&|report| report.sources.iter().map(|source| source.name.clone()).collect()),
    }
}

impl Doubles {
    fn rename(&self, part: &str, report: &mut Report) {
        let among = |name: &mut String, names: &BTreeSet<String>| {
            if names.contains(name) {
                *name = format!("{part}/{name}");
            }
        };
        let port = |name: &mut String| among(name, &self.ports);
        report.sources.iter_mut().for_each(|source| {
            among(&mut source.name, &self.sources);
            source.ports.iter_mut().for_each(port);
        });
        report.ports.iter_mut().for_each(|one| port(&mut one.name));
        report.streams.iter_mut().for_each(|stream| {
            port(&mut stream.port);
            stream.rx.iter_mut().flat_map(|rx| &mut rx.ports).for_each(port);
        });
        report.replays.iter_mut().flat_map(|r| &mut r.ports).for_each(|one| port(&mut one.port));
        report.flows.iter_mut().flat_map(|f| &mut f.links).for_each(|link| port(&mut link.port));
        report.hosts.iter_mut().for_each(|group| port(&mut group.port));
        report.routers.iter_mut().for_each(|router| port(&mut router.port));
        let received = report.received_flows.iter_mut().flat_map(|all| &mut all.flows);
        received.for_each(|flow| port(&mut flow.port));
        let samples = report.series.iter_mut().flat_map(|sample| &mut sample.ports);
        samples.for_each(|sample| port(&mut sample.name));
    }
}

/// Prefixes the notes of a part with its name.
fn prefix_notes(name: &str, report: &mut Report) {
    let front = |text: &mut String| *text = format!("{name}: {text}");
    report.verdict.reasons.iter_mut().for_each(|reason| front(&mut reason.text));
    report.verdict.failed.iter_mut().for_each(front);
    report.notes.iter_mut().for_each(front);
    let files = report.capture.iter_mut().flat_map(|capture| &mut capture.files);
    files.for_each(|file| front(&mut file.name));
}

#[cfg(test)]
mod tests;
