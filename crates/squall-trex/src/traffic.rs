//! The run that sends for all ports of the server, and its counters.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use squall::{
    Error, Listeners, Profile, Session, ThreadLoad,
    report::{EndedBy, Report},
    totals::PortTotals,
};
use squall_control::{Control, Counted, Counts, Outcome, driving::Start};
use squall_profile::{
    At, Flows, Mode, Network, Next, PacketSource, Port, SizeLaw, Stop, Stream as ProfileStream,
};

use crate::{Translated, tagged::PortReceiver};

/// Maximum age of cached counters.
const AGE: Duration = Duration::from_millis(50);
/// The longest Ethernet frame without jumbo frames, with FCS.
const USUAL: u32 = 1518;

/// A port of the server, with its configured address and limits.
#[derive(Clone, Debug)]
pub struct Place {
    pub address: String,
    /// Longest frame in octets, with FCS.
    pub longest: u32,
}

/// Counters of a port; octets include the FCS, which TRex's drivers add if the hardware does not
/// count it.
#[derive(Clone, Copy, Debug, Default)]
pub struct PortCounts {
    pub tx_packets: u64,
    pub tx_octets: u64,
    pub rx_packets: u64,
    pub rx_octets: u64,
    /// Packets per second; the other rates are per second too.
    pub tx_pps: f64,
    pub tx_bps: f64,
    pub rx_pps: f64,
    pub rx_bps: f64,
    /// Frames that arrived at the interface and were lost before the run received them.
    pub missed: u64,
    /// Frames that the port refused.
    pub tx_errors: u64,
    /// Frames that were due and did not leave, for any reason.
    pub not_sent: u64,
    /// Frames whose signature has the number of an unknown stream.
    pub rx_unknown: u64,
}

/// Counters of a packet group, by port; octets with FCS, as TRex counts groups.
#[derive(Clone, Debug, Default)]
pub struct GroupCounts {
    /// Packets and octets.
    pub tx: BTreeMap<usize, (u64, u64)>,
    pub rx: BTreeMap<usize, (u64, u64)>,
    /// Packets and bits per second. Set by [`Traffic::groups`] only.
    pub tx_rate: BTreeMap<usize, (f64, f64)>,
    pub rx_rate: BTreeMap<usize, (f64, f64)>,
    pub lost: u64,
    pub duplicates: u64,
    pub reordered: u64,
    /// Number of gaps in sequence numbers.
    pub gaps: u64,
    pub latency: Option<Latency>,
}

/// Delays in microseconds.
#[derive(Clone, Debug, Default)]
pub struct Latency {
    /// Number of packets, and the sum of their delays.
    count: u64,
    sum: f64,
    pub min: f64,
    pub max: f64,
    pub jitter: f64,
    /// Number of packets per delay class (`class_of`), by the lower edge of the class.
    pub histogram: BTreeMap<u64, u64>,
    /// Lower and upper edge in nanoseconds, and number of packets.
    pub bins: Vec<(u64, u64, u64)>,
}

impl Latency {
    pub fn mean(&self) -> f64 {
        self.sum / self.count.max(1) as f64
    }

    /// Adds the measurements of another stream or a later run.
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

impl Counts for GroupCounts {
    fn add(&mut self, by: &Counted<'_>) {
        let tx = self.tx.entry(by.port).or_default();
        *tx = (tx.0 + by.stream.tx_packets, tx.1 + by.stream.tx_octets);
        let mut delay = squall_measure::StreamCounters::default().delay;
        for (port, seen) in &by.stream.rx {
            let rx = self.rx.entry(*port).or_default();
            *rx = (rx.0 + seen.packets, rx.1 + seen.octets);
            delay.merge(&seen.delay);
            self.gaps += seen.gaps;
            self.reordered += seen.reordered;
            self.duplicates += seen.packets.saturating_sub(seen.unique);
        }
        let report = by.report.and_then(|report| report.rx.as_ref());
        self.lost += report.map_or(0, |rx| rx.lost);
        if delay.count == 0 {
            return;
        }
        let bins = report.and_then(|rx| rx.latency_ns.as_ref()).map(|delay| &delay.bins);
        let mut histogram = BTreeMap::new();
        for (lower, _, count) in bins.into_iter().flatten() {
            *histogram.entry(class_of(lower / 1000)).or_default() += count;
        }
        self.latency.get_or_insert_default().merge(&Latency {
            count: delay.count,
            sum: delay.sum_ns as f64 / 1e3,
            min: delay.min_ns as f64 / 1e3,
            max: delay.max_ns as f64 / 1e3,
            jitter: report.and_then(|rx| rx.jitter_ns).unwrap_or(0.0) / 1e3,
            histogram,
            bins: bins.cloned().unwrap_or_default(),
        });
    }
}

/// A group for which packets of streams are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    Packets(u32),
    /// A tagged packet group of a port, which only senders count here. Users have groups of the
    /// same numbers on their ports.
    Tagged {
        port: usize,
        group: u32,
    },
}

/// The streams of one profile on one port, in the form that the run has.
pub type Sent = Vec<Translated>;

/// The traffic of all ports.
pub struct Traffic {
    places: Vec<Place>,
    /// Ports whose sent frames must be visible to captures on the interface.
    seen: Vec<bool>,
    control: Control<Group, GroupCounts>,
    /// Counters of tagged packet groups, by port.
    receivers: Vec<PortReceiver>,
    open: Open,
    /// Delays as of the last request.
    delays_before: HashMap<DelaySource, Delays>,
}

/// The configuration with which the current or last run opened the ports.
#[derive(Default)]
struct Open {
    places: Vec<Place>,
    longest: Vec<u32>,
}

/// Source of the delays in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DelaySource {
    Group(u32),
    /// Latency streams that a port receives during flows.
    Probe(usize),
}

/// Measured delays.
#[derive(Clone, Debug, Default)]
struct Delays {
    max: f64,
    /// Number of packets per bin, by the bin's lower edge.
    bins: HashMap<u64, u64>,
}

impl Traffic {
    pub fn new(places: Vec<Place>) -> Self {
        Self {
            seen: vec![false; places.len()],
            control: Control::new(places.len()),
            receivers: places.iter().map(|_| PortReceiver::default()).collect(),
            open: Open::default(),
            places,
            delays_before: HashMap::new(),
        }
    }

    /// Sets whether captures on a port's interface see the frames of runs that begin after this
    /// call.
    pub fn set_seen(&mut self, port: usize, on: bool) {
        self.seen[port] = on;
    }

    /// Whether captures on a port's interface miss the frames that the port is sending.
    pub fn hides(&self, port: usize) -> bool {
        let now = self.control.profile().map(|_| &self.open.places[port].address);
        let seen_now = now.is_none_or(|address| *address == seen(address));
        !(is_af_packet(&self.places[port].address) && seen_now)
    }

    /// The ports, configured as the next run has to open them.
    pub fn places(&self) -> Vec<Place> {
        let of = |(place, is): (&Place, &bool)| match is {
            true => Place { address: seen(&place.address), ..place.clone() },
            false => place.clone(),
        };
        self.places.iter().zip(&self.seen).map(of).collect()
    }

    /// The receiver of tagged packet groups at a port. It counts in every run.
    pub fn receiver(&self, port: usize) -> &PortReceiver {
        &self.receivers[port]
    }

    /// A session of a profile for these ports.
    fn session(&self, profile: Profile) -> Session {
        let mut session = Session::new(profile).command("trex");
        let sinks = self.receivers.iter().map(PortReceiver::sinks);
        session.caller.listeners = Listeners(sinks.enumerate().collect());
        session
    }

    /// Replaces the traffic of the run with `sent`. `groups`: packet groups of streams by name.
    /// Returns false, and changes nothing, if that needs a new run ([`Traffic::reopen`]): there is
    /// none, it has ended, or its ports are too small for the frames.
    ///
    /// # Errors
    /// The run refuses the streams, and continues as before.
    pub fn change(
        &mut self,
        sent: &[&Sent],
        groups: HashMap<String, (usize, Group)>,
    ) -> Result<bool, Error> {
        for (name, (port, group)) in groups {
            self.control.count(&name, port, group);
        }
        let longest = self.longest(sent);
        let fits = self.open.longest.iter().zip(&longest).all(|(has, needs)| needs <= has);
        if fits && self.control.change(profile(&self.open.places, &self.open.longest, sent))? {
            return Ok(true);
        }
        // A run that has ended by itself has sent all of its streams.
        Ok(self.control.is_over() && self.has_all(sent))
    }

    /// Whether the run has all of these streams.
    fn has_all(&self, sent: &[&Sent]) -> bool {
        let streams = self.control.profile().map(|profile| &profile.streams);
        let names: HashSet<&str> = streams.into_iter().flatten().map(|s| s.name.as_str()).collect();
        let mut wanted = sent.iter().flat_map(|sent| sent.iter());
        wanted.all(|one| names.contains(one.stream.name.as_str()))
    }

    /// Replaces the run by one that opens the ports with their current configuration. Streams
    /// continue at their positions.
    ///
    /// # Errors
    /// The new run refuses the streams; then nothing is sent.
    pub fn reopen(&mut self, start: &mut dyn Start, sent: &[&Sent]) -> Result<(), Error> {
        let (longest, places) = (self.longest(sent), self.places());
        let session = self.session(profile(&places, &longest, sent));
        self.control.restart(start, "trex", session)?;
        self.open = Open { places, longest };
        Ok(())
    }

    /// Replaces the traffic with `profile`. `cores`: the number of threads; `None`: as many as there
    /// are ports, as far as there are CPUs.
    ///
    /// # Errors
    /// The run refuses the profile; then nothing is sent.
    pub fn play(
        &mut self,
        start: &mut dyn Start,
        profile: Profile,
        cores: Option<usize>,
    ) -> Result<(), Error> {
        let mut session = self.session(profile);
        session.options.cores = cores;
        self.control.begin(start, "trex", session)?;
        let longest = self.places.iter().map(|place| place.longest).collect();
        self.open = Open { places: self.places(), longest };
        Ok(())
    }

    /// Replaces the flows and streams of the current run.
    ///
    /// # Errors
    /// The run refuses the change and continues as before; or it is over.
    pub fn change_flows(
        &mut self,
        mut flows: Option<Flows>,
        streams: Vec<ProfileStream>,
    ) -> Result<(), Error> {
        if let (Some(new), Some(current)) = (&mut flows, self.flows()) {
            keep_interfaces(new, current);
        }
        let changed = self.control.change(flow_profile(&self.open.places, flows, streams))?;
        match !changed && self.control.is_over() {
            true => Err(Error::Usage("the run is over\n  try a new run".into())),
            false => Ok(()),
        }
    }

    /// The flows of the current run.
    pub fn flows(&self) -> Option<&Flows> {
        self.control.profile()?.flows.as_ref()
    }

    /// Whether a run is over and [`Traffic::ended`] has not reported it yet.
    pub fn is_over(&self) -> bool {
        self.control.is_over()
    }

    /// Stops new traffic; the outcome follows when open flows have ended.
    pub fn stop(&self) {
        self.control.stop();
    }

    /// The outcome of a run that [`Traffic::ended`] has not reported yet.
    pub fn outcome(&self) -> Option<Outcome> {
        self.control.outcome()
    }

    /// The report of a current run, or of one that [`Traffic::ended`] has not reported yet.
    pub fn latest_report(&self) -> Option<Arc<Report>> {
        self.control.report()
    }

    /// When the latest report was taken.
    pub fn taken(&self) -> Option<Instant> {
        self.control.reported()
    }

    /// Calls `what` with the run, if there is one.
    ///
    /// # Errors
    /// The error of `what`.
    pub fn with(
        &self,
        what: impl FnOnce(&mut squall::Run) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.control.with(what).map(|_| ())
    }

    /// Frame lengths that each port must accept: it may receive the frames of any other port.
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
    /// The run refuses it.
    pub fn pause(&mut self, name: &str) -> Result<(), Error> {
        self.control.pause(&[name.to_owned()]).map(|_| ())
    }

    /// # Errors
    /// The run refuses it.
    pub fn resume(&mut self, name: &str) -> Result<(), Error> {
        self.control.resume(&[name.to_owned()]).map(|_| ())
    }

    /// Resets a packet group whose number is reused.
    pub fn forget(&mut self, group: u32) {
        self.control.forget(|other| other == Group::Packets(group));
        self.delays_before.remove(&DelaySource::Group(group));
    }

    /// Resets all tagged packet groups of these ports.
    pub fn forget_tagged(&mut self, ports: &[usize]) {
        let of_ports = |port: usize| ports.contains(&port);
        self.control.forget(|other| matches!(other, Group::Tagged { port, .. } if of_ports(port)));
    }

    /// Packets and octets that a port has sent of a tagged packet group.
    pub fn sent_tagged(&self, port: usize, group: u32) -> (u64, u64) {
        let seen = self.control.see(Duration::ZERO);
        let counts = self.control.member(Group::Tagged { port, group }, seen.as_ref());
        counts.tx.get(&port).copied().unwrap_or_default()
    }

    /// Stops sending and closes the ports.
    pub fn end(&mut self) {
        self.control.end();
    }

    /// Whether the run has ended, and the error unless everything was sent. Returned once per run.
    pub fn ended(&mut self) -> Option<Result<(), String>> {
        Some(match self.control.ended()? {
            Ok(report) if matches!(report.verdict.ended_by, EndedBy::Done | EndedBy::Duration) => {
                Ok(())
            }
            Ok(_) => Err("the run was stopped".into()),
            Err(error) => Err(error.to_string()),
        })
    }

    /// Total number of packets that these streams have sent.
    pub fn sent(&self, sent: &Sent) -> u64 {
        self.control.sent(AGE, sent.iter().map(|one| one.stream.name.as_str()))
    }

    pub fn ports(&self) -> Vec<PortCounts> {
        let seen = self.control.see_all(AGE);
        let recent = |port: usize| {
            let seen = seen.as_ref()?;
            let span = seen.span(None);
            let of = |ports: &[PortTotals]| ports.get(port).copied().unwrap_or_default();
            Some((of(&seen.now().ports), of(&span.then.ports), span.seconds))
        };
        let of = |(port, all): (usize, squall_control::PortCounts)| {
            let totals = all.totals;
            let mut counts = PortCounts {
                tx_packets: totals.tx_packets,
                rx_packets: totals.rx_packets,
                tx_octets: totals.tx_octets,
                rx_octets: totals.rx_octets,
                missed: all.missed,
                tx_errors: all.tx_errors,
                not_sent: all.not_sent,
                rx_unknown: totals.rx_unknown,
                ..PortCounts::default()
            };
            if let Some((now, then, seconds)) = recent(port) {
                let rate = |of: fn(&PortTotals) -> u64| {
                    of(&now).saturating_sub(of(&then)) as f64 / seconds
                };
                (counts.tx_pps, counts.rx_pps) = (rate(|p| p.tx_packets), rate(|p| p.rx_packets));
                counts.tx_bps = rate(|p| p.tx_octets) * 8.0;
                counts.rx_bps = rate(|p| p.rx_octets) * 8.0;
            }
            counts
        };
        self.control.ports(seen.as_ref()).enumerate().map(of).collect()
    }

    /// The counters of the run's threads; empty without a run.
    pub fn threads(&self) -> Vec<ThreadLoad> {
        let seen = (!self.control.is_over()).then(|| self.control.see(AGE)).flatten();
        seen.map(|seen| seen.now().threads.clone()).unwrap_or_default()
    }

    /// The maximum delay since the last request, in microseconds; 0 if no packet has arrived since
    /// then. If it is not the maximum of the run, the upper edge of its bin. `bins`: lower and
    /// upper edge in nanoseconds, and number of packets.
    pub fn recent_max(&mut self, of: DelaySource, max: f64, bins: &[(u64, u64, u64)]) -> f64 {
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

    pub fn groups(&self) -> BTreeMap<u32, GroupCounts> {
        let number = |(group, counts): (Group, GroupCounts)| match group {
            Group::Packets(group) => Some((group, counts)),
            Group::Tagged { .. } => None,
        };
        let Some(seen) = self.control.see_all(AGE) else {
            return self.control.members(None).into_iter().filter_map(number).collect();
        };
        let span = seen.span(None);
        let mut all = self.control.members(Some(&seen));
        for group in seen.members() {
            let (now, then) = self.control.between(group, &seen, &span);
            let counts = all.entry(group).or_default();
            counts.tx_rate = rates(&now.tx, &then.tx, span.seconds);
            counts.rx_rate = rates(&now.rx, &then.rx, span.seconds);
        }
        all.into_iter().filter_map(number).collect()
    }
}

/// Packets and bits per second, by port.
fn rates(
    now: &BTreeMap<usize, (u64, u64)>,
    then: &BTreeMap<usize, (u64, u64)>,
    seconds: f64,
) -> BTreeMap<usize, (f64, f64)> {
    let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
    let of = |(port, now): (&usize, &(u64, u64))| {
        let then = then.get(port).copied().unwrap_or_default();
        (*port, (rate(now.0, then.0), rate(now.1, then.1) * 8.0))
    };
    now.iter().map(of).collect()
}

/// The delay class of a delay in microseconds, as in TRex's histograms: its first digit, followed by
/// zeros. 0 below 10 us; the last class, 900,000, has all longer ones.
pub fn class_of(micros: u64) -> u64 {
    let scale = match micros.min(999_999).checked_ilog10() {
        Some(digits @ 1..) => 10u64.pow(digits),
        _ => return 0,
    };
    micros.min(999_999) / scale * scale
}

/// The profile with all active streams, and on each port two streams that wait for each other and
/// never start: they make the port accept frames of their length.
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
                ..idle_stream(port, format!("port {port} waits {i}"))
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

/// Flows, and the streams sent with them.
pub fn flow_profile(
    places: &[Place],
    flows: Option<Flows>,
    streams: Vec<ProfileStream>,
) -> Profile {
    Profile { streams, flows, ..nothing(places) }
}

/// Gives `flows` the interfaces of the flows that run now. A run keeps those of its start, and
/// those of tunnels are replaced inside of it (`Run::set_interfaces`); a profile that starts later
/// has others, because it also knows the tunnels that came meanwhile.
fn keep_interfaces(flows: &mut Flows, current: &Flows) {
    let keep = |new: &mut Network, old: &Network| new.interface.clone_from(&old.interface);
    keep(&mut flows.client_network, &current.client_network);
    keep(&mut flows.server_network, &current.server_network);
    for (new, old) in flows.pairs.iter_mut().zip(&current.pairs) {
        keep(&mut new.client_network, &old.client_network);
        keep(&mut new.server_network, &old.server_network);
    }
}

/// Whether a port at this address sends through packet sockets.
fn is_af_packet(address: &str) -> bool {
    address.starts_with("af_packet:") || !address.contains(':')
}

/// The port address to use so that captures on the interface see the port's frames. Unchanged if
/// the kind of port cannot offer that.
pub fn seen(address: &str) -> String {
    match is_af_packet(address) && !address.contains(",bypass=") {
        true => format!("{address},bypass=false"),
        false => address.to_owned(),
    }
}

/// A profile with these ports and no traffic.
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
        hosts: Vec::new(),
        routers: Vec::new(),
        seed: None,
        stop: Stop::default(),
        run: Default::default(),
    }
}

/// A stream of one frame of zeros per second.
pub fn idle_stream(port: usize, name: String) -> ProfileStream {
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
        let mut asked = |max: f64, bins: &[(u64, u64, u64)]| {
            traffic.recent_max(DelaySource::Group(1), max, bins)
        };
        assert_eq!(asked(0.0, &[]), 0.0);
        assert_eq!(asked(25.0, &[(10_000, 20_000, 3), (20_000, 30_000, 1)]), 25.0);
        assert_eq!(asked(25.0, &[(10_000, 20_000, 3), (20_000, 30_000, 1)]), 0.0);
        assert_eq!(asked(25.0, &[(10_000, 20_000, 4), (20_000, 30_000, 1)]), 20.0);
        assert_eq!(asked(25.0, &[(10_000, 20_000, 4), (20_000, 30_000, 2)]), 25.0);
        assert_eq!(asked(90.0, &[(10_000, 20_000, 4), (20_000, 30_000, 2)]), 90.0);
    }

    #[test]
    fn delays_are_classed_by_their_first_digit() {
        let classes = [9, 10, 19, 99, 100, 4_567, 999_999, 7_000_000].map(class_of);
        assert_eq!(classes, [0, 10, 10, 90, 100, 4_000, 900_000, 900_000]);
    }
}
