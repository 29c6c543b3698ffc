//! The run that sends for all ports of the server, and what it has counted.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use squall::{
    Busy, Error, Profile, Session,
    driving::{Driven, Start},
    report::{EndedBy, PortReport, Report},
    totals::{PortTotals, StreamTotals, Totals},
};
use squall_measure::StreamCounters;
use squall_profile::{
    At, Flows, Mode, Next, PacketSource, Port, SizeLaw, Stop, Stream as ProfileStream,
};

use crate::Translated;

/// Counters as old as this are told again.
const AGE: Duration = Duration::from_millis(50);
/// How long a run has for its end: what is under way is received.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest frame of Ethernet without jumbo frames, with FCS.
const USUAL: u32 = 1518;
const FCS: u64 = squall_units::FCS_LEN as u64;

/// A port of the server, as it is configured and named.
#[derive(Clone, Debug)]
pub struct Place {
    pub address: String,
    /// Longest frame with FCS.
    pub longest: u32,
}

/// Counters of a port; octets without FCS, as TRex has them.
#[derive(Clone, Copy, Debug, Default)]
pub struct PortCounts {
    pub tx_packets: u64,
    pub tx_octets: u64,
    pub rx_packets: u64,
    pub rx_octets: u64,
    /// A second.
    pub tx_pps: f64,
    pub tx_bps: f64,
    pub rx_pps: f64,
    pub rx_bps: f64,
    /// Frames that came to the interface and were lost before the run had them.
    pub missed: u64,
    /// Frames that the port refused.
    pub tx_errors: u64,
    /// Frames that were due and did not leave, for whatever reason.
    pub not_sent: u64,
    /// Frames with a signature of no stream that there is.
    pub rx_unknown: u64,
}

/// Counters of a packet group, by port; octets with FCS, as TRex has them of groups.
#[derive(Clone, Debug, Default)]
pub struct GroupCounts {
    /// Packets and octets.
    pub tx: BTreeMap<usize, (u64, u64)>,
    pub rx: BTreeMap<usize, (u64, u64)>,
    /// A second: packets and bits.
    pub tx_rate: BTreeMap<usize, (f64, f64)>,
    pub rx_rate: BTreeMap<usize, (f64, f64)>,
    pub lost: u64,
    pub duplicates: u64,
    pub reordered: u64,
    /// Times that numbers were passed over.
    pub gaps: u64,
    pub latency: Option<Latency>,
}

/// Microseconds.
#[derive(Clone, Debug, Default)]
pub struct Latency {
    /// Packets, and the sum of their delays.
    count: u64,
    sum: f64,
    pub min: f64,
    pub max: f64,
    pub jitter: f64,
    /// Packets by the least delay of their class.
    pub histogram: BTreeMap<u64, u64>,
    /// Edges in nanoseconds, and packets.
    pub bins: Vec<(u64, u64, u64)>,
}

impl Latency {
    pub fn mean(&self) -> f64 {
        self.sum / self.count.max(1) as f64
    }

    /// What another stream or a later run has measured is added.
    fn merge(&mut self, by: &Self) {
        self.min = if self.count == 0 { by.min } else { self.min.min(by.min) };
        self.max = self.max.max(by.max);
        self.jitter = by.jitter;
        (self.count, self.sum) = (self.count + by.count, self.sum + by.sum);
        for (class, n) in &by.histogram {
            *self.histogram.entry(*class).or_default() += n;
        }
        let mut bins: BTreeMap<(u64, u64), u64> = BTreeMap::new();
        for (lower, upper, n) in self.bins.iter().chain(&by.bins) {
            *bins.entry((*lower, *upper)).or_default() += n;
        }
        self.bins = bins.into_iter().map(|((lower, upper), n)| (lower, upper, n)).collect();
    }
}

/// The streams that one profile of one port sends, as they are in the run.
pub type Sent = Vec<Translated>;

/// All ports at once.
pub struct Traffic {
    places: Vec<Place>,
    /// Captures of the interface are to see what a port sends.
    seen: Vec<bool>,
    run: Option<Running>,
    ports_before: Vec<PortTotals>,
    faults_before: Vec<Faults>,
    groups_before: HashMap<u32, GroupCounts>,
    /// Of what had been measured when it was last asked for.
    delays_before: HashMap<Asker, Delays>,
}

/// What went wrong at a port.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    missed: u64,
    tx_errors: u64,
    not_sent: u64,
}

impl Faults {
    fn of(port: &PortReport) -> Self {
        Self {
            missed: port.rx.drops.values().sum(),
            tx_errors: port.tx.errors,
            not_sent: port.tx.not_sent.values().sum(),
        }
    }

    fn add(&mut self, by: Self) {
        self.missed += by.missed;
        self.tx_errors += by.tx_errors;
        self.not_sent += by.not_sent;
    }
}

/// Whose delays are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Asker {
    Group(u32),
    /// What arrives at a port beside flows.
    Probe(usize),
}

/// What had been measured of delays.
#[derive(Clone, Debug, Default)]
struct Delays {
    max: f64,
    /// Packets by their class's lower edge.
    bins: HashMap<u64, u64>,
}

struct Running {
    driven: Arc<Driven>,
    /// As it has opened them.
    places: Vec<Place>,
    longest: Vec<u32>,
    /// Packet groups of streams by name.
    groups: HashMap<String, (usize, u32)>,
}

impl Traffic {
    pub fn new(places: Vec<Place>) -> Self {
        let ports_before = vec![PortTotals::default(); places.len()];
        let seen = vec![false; places.len()];
        let faults_before = vec![Faults::default(); places.len()];
        Self {
            places,
            seen,
            run: None,
            ports_before,
            faults_before,
            groups_before: HashMap::new(),
            delays_before: HashMap::new(),
        }
    }

    /// Whether captures of a port's interface are to see what runs send there that begin from now
    /// on.
    pub fn set_seen(&mut self, port: usize, on: bool) {
        self.seen[port] = on;
    }

    /// Whether what a port sends now is hidden from captures of its interface.
    pub fn hides(&self, port: usize) -> bool {
        let places = self.run.as_ref().map(|run| &run.places);
        let now = places.map(|places| &places[port].address);
        let seen_now = now.is_none_or(|address| *address == seen(address));
        !(is_af_packet(&self.places[port].address) && seen_now)
    }

    /// As a run that begins now has to open them.
    pub fn places(&self) -> Vec<Place> {
        let of = |(place, is): (&Place, &bool)| match is {
            true => Place { address: seen(&place.address), ..place.clone() },
            false => place.clone(),
        };
        self.places.iter().zip(&self.seen).map(of).collect()
    }

    /// From now on these are sent, and nothing else. `groups`: packet groups of streams by name.
    ///
    /// # Errors
    /// What the run refuses; what was sent before is sent still.
    pub fn send(
        &mut self,
        start: &mut dyn Start,
        sent: &[&Sent],
        groups: HashMap<String, (usize, u32)>,
    ) -> Result<(), Error> {
        self.fold_if_over();
        let longest = self.longest(sent);
        let joins =
            |run: &Running| run.longest.iter().zip(&longest).all(|(has, needs)| needs <= has);
        if let Some(run) = &mut self.run
            && joins(run)
        {
            match run.driven.change(profile(&run.places, &run.longest, sent)) {
                Ok(()) => {
                    run.groups.extend(groups);
                    return Ok(());
                }
                // It had come to its end by itself, as nothing was sent any more.
                Err(_) if run.driven.is_over() => {}
                Err(error) => return Err(error),
            }
        }
        // Or it has no room for frames as long: another one takes over.
        let profile = profile(&self.places(), &longest, sent);
        self.begin(start, profile, longest, groups)
    }

    /// From now on this is played, and nothing else.
    ///
    /// # Errors
    /// What the run refuses; nothing is sent then.
    pub fn play(&mut self, start: &mut dyn Start, profile: Profile) -> Result<(), Error> {
        let longest = self.places.iter().map(|place| place.longest).collect();
        self.begin(start, profile, longest, HashMap::new())
    }

    /// Flows and streams that are played from now on go on as these.
    ///
    /// # Errors
    /// What the run refuses; it goes on as before then.
    pub fn change_flows(
        &mut self,
        flows: Option<Flows>,
        streams: Vec<ProfileStream>,
    ) -> Result<(), Error> {
        let Some(run) = &self.run else { return Ok(()) };
        run.driven.change(flow_profile(&run.places, flows, streams))
    }

    /// Whether a run has come to its end, and is not yet folded.
    pub fn is_over(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.driven.is_over())
    }

    fn begin(
        &mut self,
        start: &mut dyn Start,
        profile: Profile,
        longest: Vec<u32>,
        groups: HashMap<String, (usize, u32)>,
    ) -> Result<(), Error> {
        self.end();
        let places = self.places();
        let session = Session { command: "trex".into(), ..Session::new(profile) };
        let driven = start.start("trex", session)?;
        self.run = Some(Running { driven, places, longest, groups });
        Ok(())
    }

    /// Nothing more begins; the outcome comes when what is under way has ended.
    pub fn stop(&self) {
        if let Some(run) = &self.run {
            run.driven.stop();
        }
    }

    /// What came of the run, when it is over and not yet folded.
    pub fn outcome(&self) -> Option<Result<Arc<Report>, Arc<Error>>> {
        self.run.as_ref()?.driven.outcome()
    }

    /// The report of a run that goes on, or that is over and not yet folded.
    pub fn latest_report(&self) -> Option<Arc<Report>> {
        let run = self.run.as_ref()?;
        match run.driven.outcome() {
            Some(outcome) => outcome.ok(),
            None => run.driven.latest().map(|latest| Arc::new(latest.report.clone())),
        }
    }

    /// When the latest report was taken.
    pub fn taken(&self) -> Option<Instant> {
        self.run.as_ref()?.driven.latest().map(|latest| latest.taken)
    }

    /// Does something to the run.
    ///
    /// # Errors
    /// What it says; there is no run.
    pub fn with(
        &self,
        what: impl FnOnce(&mut squall::Run) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.run.as_ref().map_or(Ok(()), |run| run.driven.with(what))
    }

    /// What each port is to take: what any of them sends may come to it.
    fn longest(&self, sent: &[&Sent]) -> Vec<u32> {
        let mut own = vec![0; self.places.len()];
        for stream in sent.iter().flat_map(|sent| sent.iter()).map(|one| &one.stream) {
            let PacketSource::Octets(octets) = &stream.packet else { continue };
            let length = octets.len() as u32 + squall_units::FCS_LEN;
            own[stream.port] = own[stream.port].max(length);
        }
        let any = own.iter().fold(USUAL, |any, own| any.max(*own));
        let of = |(place, own): (&Place, &u32)| any.min(place.longest).max(*own);
        self.places.iter().zip(&own).map(of).collect()
    }

    /// # Errors
    /// What the run refuses.
    pub fn pause(&self, name: &str) -> Result<(), Error> {
        self.run.as_ref().map_or(Ok(()), |run| run.driven.pause(Some(name)))
    }

    /// # Errors
    /// What the run refuses.
    pub fn resume(&self, name: &str) -> Result<(), Error> {
        self.run.as_ref().map_or(Ok(()), |run| run.driven.resume(Some(name)))
    }

    /// A packet group is used anew: it begins at 0.
    pub fn forget(&mut self, group: u32) {
        self.groups_before.remove(&group);
        self.delays_before.remove(&Asker::Group(group));
        if let Some(run) = &mut self.run {
            run.groups.retain(|_, (_, other)| *other != group);
        }
    }

    /// Nothing is sent any more, and the ports are closed.
    pub fn end(&mut self) {
        if let Some(run) = &self.run {
            run.driven.stop();
            run.driven.wait(PATIENCE);
        }
        self.fold();
    }

    /// Whether the run has ended, and why, unless all has been sent.
    pub fn fold_if_over(&mut self) -> Option<Result<(), String>> {
        let outcome = self.run.as_ref()?.driven.outcome()?;
        self.fold();
        Some(match outcome {
            Ok(report) if matches!(report.verdict.ended_by, EndedBy::Done | EndedBy::Duration) => {
                Ok(())
            }
            Ok(_) => Err("the run was stopped".into()),
            Err(error) => Err(error.to_string()),
        })
    }

    /// What the run has counted is kept.
    fn fold(&mut self) {
        let Some(run) = self.run.take() else { return };
        let (now, _) = run.driven.totals(AGE);
        for (before, port) in self.ports_before.iter_mut().zip(&now.ports) {
            add(before, port);
        }
        for (before, faults) in self.faults_before.iter_mut().zip(run.faults()) {
            before.add(faults);
        }
        let outcome = run.driven.outcome();
        let report = outcome.as_ref().and_then(|outcome| outcome.as_ref().ok());
        for (group, counts) in run.groups_of(&now, None, report.map(Arc::as_ref)) {
            merge(self.groups_before.entry(group).or_default(), &counts);
        }
    }

    /// Packets that these streams have sent in all.
    pub fn sent(&self, sent: &Sent) -> u64 {
        let Some(run) = &self.run else { return 0 };
        let (now, _) = run.driven.totals(AGE);
        let names: HashSet<&str> = sent.iter().map(|one| one.stream.name.as_str()).collect();
        let ours = now.streams.iter().filter(|stream| names.contains(stream.name.as_str()));
        ours.map(|stream| stream.tx_packets).sum()
    }

    pub fn ports(&self) -> Vec<PortCounts> {
        let seen = self.run.as_ref().map(|run| run.driven.totals(AGE));
        let mut faults = self.faults_before.clone();
        let now = self.run.as_ref().map(Running::faults).unwrap_or_default();
        faults.iter_mut().zip(now).for_each(|(all, now)| all.add(now));
        let of = |(port, before): (usize, &PortTotals)| {
            let mut all = *before;
            let mut counts = PortCounts::default();
            if let Some((now, then)) = &seen
                && let Some(port_now) = now.ports.get(port)
            {
                add(&mut all, port_now);
                let then_port = then.ports.get(port).copied().unwrap_or_default();
                let seconds = seconds(now, then);
                let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
                counts.tx_pps = rate(port_now.tx_packets, then_port.tx_packets);
                counts.rx_pps = rate(port_now.rx_packets, then_port.rx_packets);
                let bits =
                    |octets: f64, packets: f64| (octets - packets * FCS as f64).max(0.0) * 8.0;
                counts.tx_bps = bits(rate(port_now.tx_octets, then_port.tx_octets), counts.tx_pps);
                counts.rx_bps = bits(rate(port_now.rx_octets, then_port.rx_octets), counts.rx_pps);
            }
            let Faults { missed, tx_errors, not_sent } = faults[port];
            (counts.missed, counts.tx_errors, counts.not_sent) = (missed, tx_errors, not_sent);
            counts.rx_unknown = all.rx_unknown;
            counts.tx_packets = all.tx_packets;
            counts.rx_packets = all.rx_packets;
            counts.tx_octets = all.tx_octets.saturating_sub(FCS * all.tx_packets);
            counts.rx_octets = all.rx_octets.saturating_sub(FCS * all.rx_packets);
            counts
        };
        self.ports_before.iter().enumerate().map(of).collect()
    }

    /// What the threads of the run have done; none: there is no run.
    pub fn threads(&self) -> Vec<Busy> {
        let run = self.run.as_ref().filter(|run| !run.driven.is_over());
        run.map(|run| run.driven.totals(AGE).0.threads.clone()).unwrap_or_default()
    }

    /// The longest delay since this was asked last, microseconds; 0: nothing came since. Where it is
    /// not the longest of all it is the upper end of its class. `bins`: edges in nanoseconds, and
    /// packets.
    pub fn recent_max(&mut self, of: Asker, max: f64, bins: &[(u64, u64, u64)]) -> f64 {
        let before = self.delays_before.entry(of).or_default();
        let grown = |(lower, _, n): &&(u64, u64, u64)| before.bins.get(lower) != Some(n);
        let class = bins.iter().filter(grown).map(|(_, upper, _)| *upper as f64 / 1e3);
        let recent = match max > before.max {
            true => max,
            false => class.fold(0.0, f64::max).min(max),
        };
        let bins = bins.iter().map(|(lower, _, n)| (*lower, *n)).collect();
        *before = Delays { max, bins };
        recent
    }

    pub fn groups(&self) -> HashMap<u32, GroupCounts> {
        let mut all = self.groups_before.clone();
        if let Some(run) = &self.run {
            let (now, then) = run.driven.totals(AGE);
            let latest = run.driven.latest();
            let report = latest.as_ref().map(|latest| &latest.report);
            for (group, counts) in run.groups_of(&now, Some(&then), report) {
                merge(all.entry(group).or_default(), &counts);
            }
        }
        all
    }
}

impl Running {
    /// Of each port so far, as the latest report says.
    fn faults(&self) -> Vec<Faults> {
        let of = |report: &Report| report.ports.iter().map(Faults::of).collect();
        match (self.driven.outcome(), self.driven.latest()) {
            (Some(Ok(report)), _) => of(&report),
            (_, Some(latest)) => of(&latest.report),
            _ => Vec::new(),
        }
    }

    fn groups_of(
        &self,
        now: &Totals,
        then: Option<&Totals>,
        report: Option<&Report>,
    ) -> HashMap<u32, GroupCounts> {
        let mut all: HashMap<u32, GroupCounts> = HashMap::new();
        let nothing = StreamTotals::default();
        let streams = report.into_iter().flat_map(|report| &report.streams);
        let reports: HashMap<&str, _> =
            streams.map(|stream| (stream.name.as_str(), stream)).collect();
        for (number, stream) in now.streams.iter().enumerate() {
            let Some(&(port, group)) = self.groups.get(&stream.name) else { continue };
            let counts = all.entry(group).or_default();
            let tx = counts.tx.entry(port).or_default();
            tx.0 += stream.tx_packets;
            tx.1 += stream.tx_octets;
            let mut delay = squall_measure::StreamCounters::default();
            for (port, seen) in &stream.rx {
                let rx = counts.rx.entry(*port).or_default();
                rx.0 += seen.packets;
                rx.1 += seen.octets;
                delay.delay.merge(&seen.delay);
                counts.gaps += seen.gaps;
                counts.reordered += seen.reordered;
                counts.duplicates += seen.packets.saturating_sub(seen.unique);
            }
            if let Some(then) = then {
                let before = then.streams.get(number).unwrap_or(&nothing);
                let seconds = seconds(now, then);
                let rate = |now: (u64, u64), then: (u64, u64)| {
                    let packets = now.0.saturating_sub(then.0) as f64 / seconds;
                    let octets = now.1.saturating_sub(then.1) as f64 / seconds;
                    (packets, octets * 8.0)
                };
                let add = |to: &mut (f64, f64), by: (f64, f64)| *to = (to.0 + by.0, to.1 + by.1);
                let of = |s: &StreamTotals| (s.tx_packets, s.tx_octets);
                add(counts.tx_rate.entry(port).or_default(), rate(of(stream), of(before)));
                for (i, (port, seen)) in stream.rx.iter().enumerate() {
                    let of = |seen: &StreamCounters| (seen.packets, seen.octets);
                    let earlier = before.rx.get(i).map_or((0, 0), |(_, seen)| of(seen));
                    add(counts.rx_rate.entry(*port).or_default(), rate(of(seen), earlier));
                }
            }
            let told = reports.get(stream.name.as_str()).and_then(|report| report.rx.as_ref());
            if let Some(rx) = told {
                counts.lost += rx.lost;
            }
            if delay.delay.count > 0 {
                let summary = delay.delay;
                let mut histogram = BTreeMap::new();
                let bins = told.and_then(|rx| rx.latency_ns.as_ref()).map(|delay| &delay.bins);
                for (lower, _, count) in bins.iter().copied().flatten() {
                    *histogram.entry(class_of(lower / 1000)).or_default() += count;
                }
                counts.latency.get_or_insert_default().merge(&Latency {
                    count: summary.count,
                    sum: summary.sum_ns as f64 / 1e3,
                    min: summary.min_ns as f64 / 1e3,
                    max: summary.max_ns as f64 / 1e3,
                    jitter: told.and_then(|rx| rx.jitter_ns).unwrap_or(0.0) / 1e3,
                    histogram,
                    bins: bins.cloned().unwrap_or_default(),
                });
            }
        }
        all
    }
}

/// The class of a delay in microseconds: the first of its digits, and zeros.
fn class_of(micros: u64) -> u64 {
    let scale = micros.checked_ilog10().map_or(1, |digits| 10u64.pow(digits));
    micros / scale * scale
}

fn seconds(now: &Totals, then: &Totals) -> f64 {
    now.taken.saturating_duration_since(then.taken).as_secs_f64().max(1e-3)
}

fn add(to: &mut PortTotals, by: &PortTotals) {
    to.tx_packets += by.tx_packets;
    to.tx_octets += by.tx_octets;
    to.rx_packets += by.rx_packets;
    to.rx_octets += by.rx_octets;
    to.rx_unknown += by.rx_unknown;
}

fn merge(to: &mut GroupCounts, by: &GroupCounts) {
    for (into, from) in [(&mut to.tx, &by.tx), (&mut to.rx, &by.rx)] {
        for (port, (packets, octets)) in from {
            let all = into.entry(*port).or_default();
            *all = (all.0 + packets, all.1 + octets);
        }
    }
    to.tx_rate.clone_from(&by.tx_rate);
    to.rx_rate.clone_from(&by.rx_rate);
    to.lost += by.lost;
    to.duplicates += by.duplicates;
    to.reordered += by.reordered;
    to.gaps += by.gaps;
    if let Some(latency) = &by.latency {
        to.latency.get_or_insert_default().merge(latency);
    }
}

/// All that is sent, and on each port two streams that wait for each other for ever: for their sake
/// it is open, for frames as long as those.
fn profile(places: &[Place], longest: &[u32], sent: &[&Sent]) -> Profile {
    let mut streams = Vec::new();
    for (port, longest) in longest.iter().enumerate() {
        let first = streams.len();
        for i in 0..2 {
            streams.push(ProfileStream {
                self_start: false,
                size: SizeLaw::Fixed(*longest),
                mode: Mode::Burst(1),
                next: Some(Next { stream: first + 1 - i, times: None }),
                ..still(port, format!("port {port} waits {i}"))
            });
        }
    }
    for sent in sent {
        let first = streams.len();
        streams.extend(sent.iter().map(|one| {
            let mut stream = one.stream.clone();
            stream.next = stream.next.map(|next| Next { stream: next.stream + first, ..next });
            stream
        }));
    }
    Profile { streams, ..nothing(places) }
}

/// Flows, and streams beside them.
pub fn flow_profile(
    places: &[Place],
    flows: Option<Flows>,
    streams: Vec<ProfileStream>,
) -> Profile {
    Profile { streams, flows, ..nothing(places) }
}

/// Whether a port at this address sends by packet sockets.
fn is_af_packet(address: &str) -> bool {
    address.starts_with("af_packet:") || !address.contains(':')
}

/// The address of a port whose frames captures of its interface see, where there is one.
pub fn seen(address: &str) -> String {
    match is_af_packet(address) && !address.contains(",bypass=") {
        true => format!("{address},bypass=false"),
        false => address.to_owned(),
    }
}

/// The ports alone.
fn nothing(places: &[Place]) -> Profile {
    let port = |(i, place): (usize, &Place)| Port {
        name: format!("port{i}"),
        address: place.address.clone(),
        at: At::default(),
    };
    Profile {
        origin: "<trex>".into(),
        ports: places.iter().enumerate().map(port).collect(),
        streams: Vec::new(),
        replays: Vec::new(),
        flows: None,
        attacks: Vec::new(),
        seed: None,
        stop: Stop::default(),
        run: Default::default(),
    }
}

/// A stream that sends one frame of zeros a second.
pub fn still(port: usize, name: String) -> ProfileStream {
    ProfileStream {
        name,
        port,
        packet: PacketSource::Octets([0u8; 60].into()),
        ..ProfileStream::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_of_several_runs_are_those_of_one() {
        let run = |min: f64, max: f64, bins: &[(u64, u64, u64)]| Latency {
            count: bins.iter().map(|bin| bin.2).sum(),
            sum: min + max,
            min,
            max,
            jitter: min,
            histogram: bins.iter().map(|(lower, _, n)| (*lower, *n)).collect(),
            bins: bins.into(),
        };
        let mut all = Latency::default();
        all.merge(&run(2.0, 8.0, &[(0, 9, 1), (10, 19, 1)]));
        all.merge(&run(1.0, 5.0, &[(0, 9, 2), (20, 29, 4)]));
        assert_eq!((all.min, all.max, all.mean(), all.jitter), (1.0, 8.0, 2.0, 1.0));
        assert_eq!(all.bins, [(0, 9, 3), (10, 19, 1), (20, 29, 4)]);
        assert_eq!(all.histogram, BTreeMap::from([(0, 3), (10, 1), (20, 4)]));
    }

    #[test]
    fn the_longest_delay_of_late_is_that_of_what_came_since() {
        let mut traffic = Traffic::new(Vec::new());
        let mut asked =
            |max: f64, bins: &[(u64, u64, u64)]| traffic.recent_max(Asker::Group(1), max, bins);
        assert_eq!(asked(0.0, &[]), 0.0);
        assert_eq!(asked(25.0, &[(10_000, 20_000, 3), (20_000, 30_000, 1)]), 25.0);
        assert_eq!(asked(25.0, &[(10_000, 20_000, 3), (20_000, 30_000, 1)]), 0.0);
        assert_eq!(asked(25.0, &[(10_000, 20_000, 4), (20_000, 30_000, 1)]), 20.0);
        assert_eq!(asked(25.0, &[(10_000, 20_000, 4), (20_000, 30_000, 2)]), 25.0);
        assert_eq!(asked(90.0, &[(10_000, 20_000, 4), (20_000, 30_000, 2)]), 90.0);
    }

    #[test]
    fn delays_are_classed_by_their_first_digit() {
        let classes: Vec<u64> = [0, 7, 10, 19, 99, 100, 4_567].into_iter().map(class_of).collect();
        assert_eq!(classes, [0, 7, 10, 10, 90, 100, 4_000]);
    }
}
