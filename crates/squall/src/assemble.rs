//! From the workers' counters to a report.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::{Instant, SystemTime},
};

use squall_engine::{LinkChanges, PortRx, PortTx, Running, Snapshot, SourceKind as Made, StreamTx};
use squall_measure::{FlowSettings, Foreign, StreamRx as Seen};
use squall_plan::{Plan, PlanStream, StreamDivision};
use squall_port::{InterfaceCounters, PortFacts, Timestamps};
use squall_program::Gap;
pub(crate) use squall_report::report::distribution;
use squall_report::verdict;
use squall_stats::{Fingerprint, Histogram, seen_together};
use squall_units::{L1_OVERHEAD, Nanos};

use crate::{
    report::{
        Asked, CaptureSample, Contention, Cpu, EndedBy, EqualBins, ForeignRun, InterfaceReport,
        KnownBy, LinkEvent, MtuChange, NodeClock, Patterns, PortPacing, PortReport, PortSample,
        ReceiverRx, Report, RxReport, SCHEMA, Sample, StreamReport, StreamRx, StreamSample,
        TxReport, Verdict, WorkerReport,
        source::{SourceKind, SourceRecord},
    },
    sources,
};

/// What two readings of one clock by two threads, or by two ports of one, may differ by.
const READING_NS: u64 = 2_000;
/// Clocks of which one frame says that they are no further apart may be one.
const ONE_CLOCK_NS: u64 = 2_000_000_000;

/// What does not change during a run.
pub(crate) struct Context {
    pub started: SystemTime,
    pub cpu: Cpu,
    pub contention: Contention,
    pub command: String,
    pub fingerprint: bool,
    /// Which frames were wanted, if not every one.
    pub filter: Option<String>,
    /// How flows are measured, if they are.
    pub flows: Option<FlowSettings>,
    /// The name of this node, and the clock that it has in common with others.
    pub node: Option<String>,
    pub clock: Option<NodeClock>,
}

/// Of each stream its delays and how it departed, so far.
type StreamHistograms = HashMap<u32, (Histogram, Histogram)>;

/// The state at the last sample.
pub(crate) struct Last {
    pub at: Instant,
    /// Of the run.
    pub elapsed: Nanos,
    pub ports: Vec<[u64; 4]>,
    pub streams: Vec<[u64; 2]>,
    /// Packets and octets written.
    pub captured: [u64; 2],
    pub histograms: StreamHistograms,
}

impl Default for Last {
    fn default() -> Self {
        Self {
            at: Instant::now(),
            elapsed: Nanos::default(),
            ports: Vec::new(),
            streams: Vec::new(),
            captured: [0; 2],
            histograms: StreamHistograms::new(),
        }
    }
}

/// The snapshots of all workers, merged.
pub(crate) struct Merged {
    names: Vec<String>,
    /// Of the signatures of this run.
    key: u16,
    facts: Vec<PortFacts>,
    /// Counters of several workers at almost the same instant, frames still on their way.
    running: bool,
    tx: Vec<PortTx>,
    /// What each kind of source has sent by each port.
    sent: BTreeMap<(usize, Made), PortTx>,
    streams: Vec<StreamTx>,
    /// By port; a port's queues as they are.
    rx: Vec<Vec<PortRx>>,
    /// Stream by stream: (port, what its queues saw).
    seen: Vec<Vec<(usize, Seen)>>,
    /// Port by port, by key: what is of other runs.
    foreign: Vec<BTreeMap<u16, Foreign>>,
    workers: Vec<WorkerReport>,
    preempted: u64,
}

impl Merged {
    pub fn of(running: &Running, snapshots: Vec<Snapshot>) -> Self {
        let ports = running.plan().ports.len();
        let facts = (0..ports).map(|p| running.port_facts(p).clone()).collect();
        Self {
            running: true,
            ..Self::new(
                running.stream_names().map(str::to_owned).collect(),
                running.plan().key,
                facts,
                snapshots,
            )
        }
    }

    /// `key`: that of the signatures of streams with these names.
    pub fn new(
        mut names: Vec<String>,
        key: u16,
        facts: Vec<PortFacts>,
        snapshots: Vec<Snapshot>,
    ) -> Self {
        let ports = facts.len();
        let mut tx: Vec<PortTx> =
            (0..ports).map(|port| PortTx { port, ..PortTx::default() }).collect();
        let mut sent = BTreeMap::new();
        let mut streams: Vec<StreamTx> = (0..names.len())
            .map(|i| StreamTx { number: i as u32, ..StreamTx::default() })
            .collect();
        let mut rx: Vec<Vec<PortRx>> = (0..ports).map(|_| Vec::new()).collect();
        let workers = snapshots.iter().map(worker).collect();
        let preempted = snapshots.iter().map(|snapshot| snapshot.preempted).sum();
        for snapshot in snapshots {
            for t in snapshot.tx {
                add_port(sent.entry((t.port, t.source)).or_default(), t.clone());
                add_port(&mut tx[t.port], t);
            }
            for s in snapshot.streams {
                if let Some(sum) = streams.get_mut(s.number as usize) {
                    add_stream(sum, s);
                }
            }
            for r in snapshot.rx {
                rx[r.port].push(r);
            }
        }
        // A run may have shown itself to one queue by a single frame.
        let keys: BTreeSet<u16> = rx.iter().flatten().flat_map(|q| q.seen.keys()).collect();
        rx.iter_mut().flatten().for_each(|q| q.seen.confirm_keys(&keys));
        // Runs of which streams are reported, with the name and the number of the first of each.
        let runs = match names.is_empty() {
            true => {
                let runs = received_runs(&rx);
                names = names_of(&runs);
                streams.resize_with(names.len(), StreamTx::default);
                runs
            }
            false => vec![ReceivedRun { key, first: 0, streams: names.len() }],
        };
        let mut seen: Vec<Vec<(usize, Seen)>> = names.iter().map(|_| Vec::new()).collect();
        let mut foreign: Vec<BTreeMap<u16, Foreign>> = vec![BTreeMap::new(); ports];
        for (port, queues) in rx.iter().enumerate() {
            for (key, of) in queues.iter().flat_map(|q| &q.seen.foreign) {
                add_foreign(&mut foreign[port], *key, *of);
            }
            for run in queues.iter().flat_map(|q| q.seen.runs()) {
                // Streams that other marks show are those of this run.
                let key = run.key.unwrap_or(key);
                let known = runs.iter().find(|known| known.key == key);
                for (number, stream) in run.streams() {
                    let at = known.filter(|known| usize::from(number) < known.streams);
                    match at.and_then(|at| seen.get_mut(at.first + usize::from(number))) {
                        Some(list) => list.push((port, stream.clone())),
                        None => {
                            let (packets, octets) = (stream.packets, stream.octets);
                            add_foreign(&mut foreign[port], key, Foreign { packets, octets });
                        }
                    }
                }
            }
        }
        let running = false;
        Self {
            names,
            key,
            facts,
            running,
            tx,
            sent,
            streams,
            rx,
            seen,
            foreign,
            workers,
            preempted,
        }
    }

    /// Whether no frame has left.
    pub fn sends_nothing(&self) -> bool {
        self.tx.iter().all(|tx| tx.packets == 0)
    }

    /// Frames of a replay that were handed over once more by `port`.
    pub fn retried(&self, replay: u32, port: usize) -> u64 {
        self.sent.get(&(port, Made::Replay(replay))).map_or(0, |tx| tx.retried)
    }

    pub fn report(
        &self,
        context: &Context,
        plan: &Plan,
        duration: Nanos,
        interfaces: &[Option<InterfaceCounters>],
        series: Vec<Sample>,
    ) -> Report {
        let seconds = duration.as_secs_f64();
        let ports: Vec<PortReport> = (0..self.facts.len())
            .map(|p| self.port(p, plan, seconds, interfaces.get(p).copied().flatten(), context))
            .collect();
        let streams: Vec<StreamReport> =
            (0..self.names.len()).map(|i| self.stream(i, plan, context.clock)).collect();
        let replays = || (0u32..).zip(&plan.replays);
        let sources = (0..ports.len())
            .flat_map(|p| {
                let here = replays().filter(move |(_, replay)| replay.ports.contains(&p));
                let here = here.map(move |(number, _)| (p, Made::Replay(number)));
                std::iter::once((p, Made::Streams)).chain(here)
            })
            .filter_map(|(p, made)| self.source(p, made, plan, seconds))
            .collect();
        let now = squall_machine::cpu();
        let contention = squall_machine::contention();
        let frames: u64 = ports.iter().map(|p| p.tx.packets + p.rx.packets).sum();
        let (user_s, system_s) =
            (now.user_s - context.cpu.user_s, now.system_s - context.cpu.system_s);
        let per_mpkt_s = (frames > 0).then(|| (user_s + system_s) / frames as f64 * 1e6);
        let mut report = Report {
            schema: SCHEMA.to_owned(),
            command: context.command.clone(),
            squall_version: env!("CARGO_PKG_VERSION").to_owned(),
            started: humantime::format_rfc3339_seconds(context.started).to_string(),
            duration_s: seconds,
            seed: plan.seed,
            part: (!plan.part.is_whole()).then(|| plan.part.to_string()),
            parts: Vec::new(),
            node: context.node.clone(),
            clock: context.clock,
            start: None,
            filter: context.filter.clone(),
            host: squall_machine::host(),
            verdict: Verdict::default(),
            asked: Asked {
                duration_s: plan.stop.duration.map(Nanos::as_secs_f64),
                packets: plan.stop.packets,
                octets: plan.stop.octets,
            },
            cut_short: false,
            sources,
            ports,
            streams,
            capture: None,
            replays: Vec::new(),
            flows: None,
            attacks: Vec::new(),
            workers: self.workers.clone(),
            received_flows: context
                .flows
                .as_ref()
                .map(|settings| crate::flows::report(settings, plan, &self.rx, self.running)),
            series,
            cpu: Cpu { user_s, system_s, per_mpkt_s },
            contention: Contention {
                involuntary_switches: self.preempted,
                throttled_s: (contention.throttled_s - context.contention.throttled_s).max(0.0),
                pressure_s: (contention.pressure_s - context.contention.pressure_s).max(0.0),
                steal_s: (contention.steal_s - context.contention.steal_s).max(0.0),
            },
            memory: squall_machine::memory(),
            notes: plan.notes.clone(),
        };
        if !self.running {
            report.notes.extend(never_started(plan, &report.streams));
            report.notes.extend(self.early().filter(|(_, _, by)| *by <= READING_NS).map(
                |(name, frames, by)| {
                    format!(
                        "stream {name:?}: latency excludes {frames} frames that arrived up to {by} \
                         ns before they were sent: two readings of the clock differ by as much"
                    )
                },
            ));
        }
        report
    }

    fn port(
        &self,
        p: usize,
        plan: &Plan,
        seconds: f64,
        interface: Option<InterfaceCounters>,
        context: &Context,
    ) -> PortReport {
        let rates = |packets: u64, octets: u64| {
            let per_second = |n: f64| if seconds > 0.0 { n / seconds } else { 0.0 };
            let l1 = octets + packets * u64::from(L1_OVERHEAD);
            (
                per_second(packets as f64),
                per_second(l1 as f64 * 8.0),
                per_second(octets as f64 * 8.0),
            )
        };
        let t = &self.tx[p];
        let (pps, bps_l1, bps_l2) = rates(t.packets, t.octets);
        let tx = TxReport {
            packets: t.packets,
            octets: t.octets,
            pps,
            bps_l1,
            bps_l2,
            gso_frames: t.gso_frames,
            segments: t.segments,
            errors: t.errors,
            not_sent: t.not_sent.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect(),
            blocked_s: t.blocked.as_secs_f64(),
            sending_s: t.sending.as_secs_f64(),
            departure_error_ns: distribution(&self.all_departures(p, plan)),
            fingerprint: (context.fingerprint && !t.unhashed)
                .then(|| t.fingerprint.unwrap_or_default().to_string()),
            pacing: None,
        };
        let queues = &self.rx[p];
        let (packets, octets) =
            queues.iter().fold((0, 0), |(n, o), q| (n + q.seen.packets, o + q.seen.octets));
        let (pps, bps_l1, bps_l2) = rates(packets, octets);
        let mut drops = BTreeMap::new();
        for (reason, n) in queues.iter().flat_map(|q| &q.drops) {
            *drops.entry((*reason).to_owned()).or_insert(0) += n;
        }
        let mut gaps = Histogram::default();
        queues.iter().for_each(|q| gaps.merge(&q.seen.gaps));
        let mut bins: Option<squall_stats::EqualBins> = None;
        for queue in queues.iter().filter_map(|q| q.seen.gap_bins.as_ref()) {
            match &mut bins {
                Some(bins) => bins.merge(queue),
                none => *none = Some(queue.clone()),
            }
        }
        let mut print = Fingerprint::default();
        queues.iter().filter_map(|q| q.seen.fingerprint).for_each(|f| print.merge(f));
        let rx = RxReport {
            packets,
            octets,
            pps,
            bps_l1,
            bps_l2,
            gso_frames: queues.iter().map(|q| q.seen.gso_frames).sum(),
            segments: queues.iter().map(|q| q.seen.segments).sum(),
            unsigned_packets: queues.iter().map(|q| q.seen.unsigned).sum(),
            foreign_packets: self.foreign[p].values().map(|foreign| foreign.packets).sum(),
            foreign: self.foreign[p].iter().map(|(key, of)| self.foreign_run(*key, of)).collect(),
            drops,
            fingerprint: (context.fingerprint && !queues.is_empty()).then(|| print.to_string()),
            arrival_gap_ns: distribution(&gaps),
            arrival_gap_bins: bins.as_ref().map(equal_bins),
            ..crate::flows::total(queues)
        };
        PortReport {
            name: plan.ports[p].name.clone(),
            address: self.facts[p].address.clone(),
            timestamps: match queues.is_empty() {
                true => Timestamps::None.name().to_owned(),
                false => self.facts[p].timestamps.name().to_owned(),
            },
            tx,
            rx,
            interface: interface.map(|i| InterfaceReport {
                tx_packets: i.tx_packets,
                tx_octets: i.tx_octets,
                tx_dropped: i.tx_dropped,
                tx_errors: i.tx_errors,
                rx_packets: i.rx_packets,
                rx_octets: i.rx_octets,
                rx_dropped: i.rx_dropped,
                rx_errors: i.rx_errors,
                rx_missed: i.rx_missed,
                rx_fifo: i.rx_fifo,
            }),
            link_events: Vec::new(),
            mtu_changes: Vec::new(),
        }
    }

    fn foreign_run(&self, key: u16, of: &Foreign) -> ForeignRun {
        ForeignRun {
            key: format!("{key:04x}"),
            packets: of.packets,
            octets: of.octets,
            same_key: key == self.key,
        }
    }

    /// Departure errors of a port, whatever was sent.
    fn all_departures(&self, port: usize, plan: &Plan) -> Histogram {
        let mut all = self.departures(port, plan);
        let others = self.sent.iter().filter(|((p, made), _)| *p == port && *made != Made::Streams);
        others.for_each(|(_, tx)| all.merge(&tx.departure_error));
        all
    }

    /// Those of a port's streams: of those that have a histogram of their own, and of the others
    /// together.
    fn departures(&self, port: usize, plan: &Plan) -> Histogram {
        let mut all = Histogram::default();
        if let Some(tx) = self.sent.get(&(port, Made::Streams)) {
            all.merge(&tx.departure_error);
        }
        let streams =
            self.streams.iter().zip(&plan.streams).filter(|(_, planned)| planned.port == port);
        streams.for_each(|(s, _)| all.merge(&s.departure_error));
        all
    }

    fn stream(&self, i: usize, plan: &Plan, clock: Option<NodeClock>) -> StreamReport {
        let t = &self.streams[i];
        let planned = plan.streams.get(i);
        let segments = planned.map_or(1, |s| u64::from(s.program.segments()));
        // From the first to the last departure, without the silence between bursts.
        let silence = planned.filter(|s| s.pattern.bursts > 1).map_or(0, |s| {
            let gaps = (t.packets / segments).div_ceil(s.pattern.packets.max(1)).saturating_sub(1);
            s.pattern.gap.as_nanos().0.saturating_mul(gaps)
        });
        let span = t.first.map_or(Nanos::ZERO, |first| {
            t.last.saturating_sub(first).saturating_sub(Nanos(silence))
        });
        let seconds = span.as_secs_f64();
        let listening = self.rx.iter().any(|queues| !queues.is_empty());
        let known = planned.map_or(!self.seen[i].is_empty(), |s| s.program.is_known());
        StreamReport {
            name: self.names[i].clone(),
            port: planned.map_or(String::new(), |s| plan.ports[s.port].name.clone()),
            group: planned.and_then(|s| s.group.clone()),
            tx_packets: t.packets,
            tx_octets: t.octets,
            // n frames span n-1 gaps.
            tx_pps: match seconds {
                0.0 => 0.0,
                _ => t.packets.saturating_sub(segments) as f64 / seconds,
            },
            asked_pps: planned.and_then(|s| s.asked_within(span)),
            not_sent: t.not_sent.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect(),
            departure_error_ns: distribution(&t.departure_error),
            rx: (known && listening && self.is_known(i, plan))
                .then(|| self.received(i, plan, clock)),
        }
    }

    /// Whether anything can be said here of how a stream arrives: where other nodes have ports, one
    /// that is sent here may arrive at theirs.
    fn is_known(&self, i: usize, plan: &Plan) -> bool {
        let from_here = |s: &PlanStream| s.division != StreamDivision::Elsewhere;
        !plan.has_other_nodes()
            || !plan.streams.get(i).is_some_and(from_here)
            || !self.seen[i].is_empty()
    }

    fn received(&self, i: usize, plan: &Plan, clock: Option<NodeClock>) -> StreamRx {
        let sent = self.streams[i].packets;
        let seen = &self.seen[i];
        let mut rx = StreamRx::default();
        let marked = plan.streams.get(i).is_some_and(|s| s.program.group().is_some());
        rx.known_by = if marked { KnownBy::Mark } else { KnownBy::Signature };
        let (mut delay, mut ipdv, mut gap) =
            (Histogram::default(), Histogram::default(), Histogram::default());
        // A frame that a switch floods to two ports is no less lost on a third: the port that saw
        // most counts.
        let (mut best, mut missing, mut came) = (0, 0, 0);
        let (mut jitter, mut patterns) = (0.0f64, squall_stats::Patterns::default());
        let ports: BTreeSet<usize> = seen.iter().map(|s| s.0).collect();
        // Of each port, with its unique frames.
        let mut receivers = Vec::new();
        for port in ports {
            let mut delay_here = Histogram::default();
            let before = (rx.packets, rx.duplicates);
            let here = || seen.iter().filter(|s| s.0 == port).map(|s| &s.1);
            for s in here() {
                let counts = s.sequence.counts();
                rx.packets += s.packets;
                rx.octets += s.octets;
                rx.duplicates += counts.duplicates;
                rx.reordered += counts.reordered;
                rx.max_reordering_extent =
                    rx.max_reordering_extent.max(counts.max_reordering_extent);
                rx.restarts = rx.restarts.max(s.sequence.restarts());
                came += s.unique();
                delay_here.merge(s.delay.delay());
                ipdv.merge(s.delay.ipdv());
                gap.merge(s.delay.gap());
                jitter = jitter.max(s.delay.jitter_ns());
                patterns.merge(&s.sequence.patterns());
            }
            let (numbered, here_missing) = seen_together(here().map(|s| &s.sequence));
            let unique = numbered + here().map(|s| s.marked).sum::<u64>();
            if unique > best {
                (best, missing) = (unique, here_missing);
            }
            delay.merge(&delay_here);
            let port = plan.ports[port].name.clone();
            rx.ports.push(port.clone());
            let latency_ns = distribution(&delay_here);
            let (packets, duplicates) = (rx.packets - before.0, rx.duplicates - before.1);
            let receiver = ReceiverRx { port, packets, lost: 0, duplicates, latency_ns };
            receivers.push((receiver, unique));
        }
        // The sender is elsewhere when this run sends nothing, and what is missing may have arrived
        // elsewhere if others have ports of it: then the sequence numbers must tell.
        // While running, what is on its way is not lost: a gap in the sequence is, but for what was
        // never sent.
        let sent = match plan.streams.is_empty() || plan.has_other_nodes() {
            true => best + missing,
            false if self.running => (best + missing).min(sent.max(best)),
            false => sent,
        };
        rx.lost = sent.saturating_sub(best);
        // A queue tells its own copies; those that came by different queues show when there are
        // more than were sent.
        rx.duplicates += best.saturating_sub(sent);
        rx.loss_ratio = if sent > 0 { rx.lost as f64 / sent as f64 } else { 0.0 };
        // A sender elsewhere, or a file's, has another clock: what is between the two is no delay.
        let away = plan.streams.get(i).is_some_and(|s| s.division == StreamDivision::Elsewhere);
        // Unless the two have one in common, each within its bound of it.
        if let (true, Some(clock)) = (away, clock) {
            let negative = || seen.iter().map(|(_, s)| s.delay.most_negative_ns().unsigned_abs());
            rx.early_packets = seen.iter().map(|(_, s)| s.delay.negative()).sum();
            rx.earliest_ns = negative().max().unwrap_or(0);
            rx.latency_bound_ns = Some(clock.bound_ns);
            delay.record_n(0, rx.early_packets);
        }
        let one_clock = match away {
            true => clock.is_some(),
            false => !plan.streams.is_empty() || delay.min() < ONE_CLOCK_NS,
        };
        rx.latency_ns = if one_clock { distribution(&delay) } else { None };
        if receivers.len() > 1 {
            let one = |(receiver, unique): (ReceiverRx, u64)| ReceiverRx {
                lost: sent.saturating_sub(unique),
                latency_ns: receiver.latency_ns.filter(|_| one_clock),
                ..receiver
            };
            rx.receivers = receivers.into_iter().map(one).collect();
        }
        rx.ipdv_ns = distribution(&ipdv);
        rx.arrival_gap_ns = distribution(&gap);
        rx.jitter_ns = (gap.count() > 0).then_some(jitter);
        rx.reordering_ratio = if came > 0 { rx.reordered as f64 / came as f64 } else { 0.0 };
        rx.patterns = self::patterns(&patterns);
        rx
    }

    /// Streams with frames that arrived before they were sent: how many, and by how much at most,
    /// ns.
    fn early(&self) -> impl Iterator<Item = (&str, u64, u64)> {
        let sent = self.names.iter().zip(&self.streams).zip(&self.seen);
        sent.filter(|((_, tx), _)| tx.packets > 0).filter_map(|((name, _), seen)| {
            let frames = seen.iter().map(|(_, seen)| seen.delay.negative()).sum::<u64>();
            let by = seen.iter().map(|(_, seen)| seen.delay.most_negative_ns().unsigned_abs());
            (frames > 0).then(|| (name.as_str(), frames, by.max().unwrap_or(0)))
        })
    }

    /// Streams of which a number arrived that no frame was sent with: the number, and how many
    /// frames were due. Frames that were due and not sent can have a number.
    fn unsent(&self, plan: &Plan) -> Vec<(String, u64, u64)> {
        if self.running || plan.has_other_nodes() || !plan.part.is_whole() {
            return Vec::new();
        }
        let sent = self.names.iter().zip(&self.streams).zip(&self.seen).zip(&plan.streams);
        let beyond = sent.filter_map(|(((name, tx), seen), _)| {
            let due = tx.packets + tx.not_sent.values().sum::<u64>();
            let highest = seen.iter().filter_map(|(_, seen)| seen.sequence.highest()).max()?;
            (highest >= due).then(|| (name.clone(), highest, due))
        });
        beyond.collect()
    }

    /// From the instant at which the first stream of this node was due to its first frame; `None`:
    /// none has left.
    pub fn start_error(&self, plan: &Plan, start: Nanos) -> Option<i64> {
        let due = |(i, stream): (usize, &PlanStream)| {
            let first =
                self.streams.get(i)?.first.filter(|_| stream.self_start && !stream.waits)?;
            let (frame, by) = plan.division(i)?.share(0, 1);
            let whole = stream.timeline(stream.start);
            let due = if by == 1 { whole.due()? } else { whole.share(frame, by)?.due()? };
            Some((start + due.as_nanos(), first))
        };
        let (due, first) = plan.streams.iter().enumerate().filter_map(due).min()?;
        Some(first.0 as i64 - due.0 as i64)
    }

    /// What the verdict has to know beside the report.
    pub fn facts(&self, ended_by: EndedBy, plan: &Plan, report: &Report) -> verdict::Facts {
        let named = || self.names.iter().zip(&self.streams);
        let tx = report
            .ports
            .iter()
            .zip(&self.tx)
            .filter_map(|(p, t)| Some((p.name.clone(), t.error.clone()?)));
        let rx = report.ports.iter().zip(&self.rx).flat_map(|(p, queues)| {
            let errors = queues.iter().filter_map(|q| q.error.clone());
            errors.map(|error| (format!("{} (receiving)", p.name), error))
        });
        verdict::Facts {
            ended_by,
            lost: tx.chain(rx).collect(),
            early: self
                .early()
                .filter(|(_, _, by)| *by > READING_NS)
                .map(|(name, frames, _)| (name.to_owned(), frames))
                .collect(),
            stretched: named()
                .map(|(name, tx)| (name.clone(), tx.stretched.as_secs_f64()))
                .collect(),
            receives: self.rx.iter().map(|queues| !queues.is_empty()).collect(),
            longest_frame: longest_frame(plan),
            unsent: self.unsent(plan),
            machine: machine(&report.contention),
        }
    }

    /// The record of what port `p` sends of streams or of captures; `None` where it is to send none.
    fn source(&self, p: usize, made: Made, plan: &Plan, seconds: f64) -> Option<SourceRecord> {
        if plan.ports[p].elsewhere {
            return None;
        }
        let streams = || plan.streams.iter().filter(|s| s.port == p);
        let (kind, what, replay) = match made {
            Made::Streams if streams().next().is_some() => (SourceKind::Streams, "streams", None),
            Made::Streams | Made::Flows => return None,
            Made::Replay(number) => {
                let replay = &plan.replays[number as usize];
                let kind = if replay.fixed { SourceKind::Attacks } else { SourceKind::Replay };
                (kind, replay.name.as_str(), Some(number))
            }
        };
        let nothing = PortTx::default();
        let t = self.sent.get(&(p, made)).unwrap_or(&nothing);
        let missing: u64 = t.not_sent.values().sum();
        let asked = t.packets + missing;
        let rates = streams().map(|s| s.asked_pps).sum::<Option<f64>>();
        let (asked_rate, late) = match made {
            Made::Streams => (rates, distribution(&self.departures(p, plan))),
            _ => (None, distribution(&t.departure_error)),
        };
        let name = &plan.ports[p].name;
        // A port's name is enough where it has one source.
        let alone = plan.sources_of(p) == 1;
        Some(SourceRecord {
            name: if alone { name.clone() } else { format!("{what} by {name}") },
            kind,
            ports: vec![name.clone()],
            unit: "packets".into(),
            asked,
            sent: t.packets,
            not_sent: t.not_sent.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect(),
            not_sent_ratio: if asked > 0 { missing as f64 / asked as f64 } else { 0.0 },
            asked_rate,
            unpaced: match made {
                Made::Streams => streams().any(|s| s.gap == Gap::Zero),
                _ => late.is_none() && t.packets > 0,
            },
            rate: if seconds > 0.0 { t.packets as f64 / seconds } else { 0.0 },
            late_p99_ns: late.as_ref().map(|late| late.p99),
            late_max_ns: late.as_ref().map(|late| late.max),
            excess: late.as_ref().and_then(|_| sources::excess(t.pacing)),
            lag_s: t.pacing.lag.as_secs_f64(),
            moved_s: t.pacing.moved.as_secs_f64(),
            starved_s: t.stalls.total.as_secs_f64(),
            longest_stall_s: t.stalls.longest.as_secs_f64(),
            blocked_s: t.blocked.as_secs_f64(),
            sending_s: t.sending.as_secs_f64(),
            ended_by: if t.error.is_some() { "port-lost".into() } else { String::new() },
            replay,
            ..SourceRecord::default()
        })
    }

    /// Rates and percentiles since the last sample.
    pub fn sample(&self, last: &mut Last, elapsed: Nanos, report: &Report) -> Sample {
        // By the run's time, of which samples say theirs: a run may begin long after it is made, and
        // rates times intervals are what was counted. In virtual time there is only the machine's.
        let dt = match elapsed.saturating_sub(last.elapsed) {
            Nanos::ZERO => last.at.elapsed().as_secs_f64().max(1e-9),
            since => since.as_secs_f64(),
        };
        (last.at, last.elapsed) = (Instant::now(), elapsed);
        last.ports.resize(report.ports.len(), [0; 4]);
        last.streams.resize(report.streams.len(), [0; 2]);
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / dt;
        let mut sample = Sample { t_s: elapsed.as_secs_f64(), ..Sample::default() };
        for (p, then) in report.ports.iter().zip(&mut last.ports) {
            let now = [p.tx.packets, p.tx.octets, p.rx.packets, p.rx.octets];
            let [tx_pps, tx_octets, rx_pps, rx_octets] =
                std::array::from_fn(|i| rate(now[i], then[i]));
            *then = now;
            let l1 = |pps: f64, octets: f64| (octets + pps * f64::from(L1_OVERHEAD)) * 8.0;
            sample.ports.push(PortSample {
                name: p.name.clone(),
                tx_pps,
                tx_bps_l1: l1(tx_pps, tx_octets),
                tx_bps_l2: tx_octets * 8.0,
                rx_pps,
                rx_bps_l1: l1(rx_pps, rx_octets),
                rx_bps_l2: rx_octets * 8.0,
            });
        }
        if let Some(capture) = &report.capture {
            let now = [capture.written_packets, capture.written_octets];
            let [written_pps, written_octets] =
                std::array::from_fn(|i| rate(now[i], last.captured[i]));
            last.captured = now;
            sample.capture = Some(CaptureSample {
                written_pps,
                written_bps: written_octets * 8.0,
                files: capture.files_written,
                file_octets: capture.file_octets,
                dropped_by_kernel: capture.lost_in_kernel(),
                dropped: capture.lost_here(),
            });
        }
        for (i, (s, then)) in report.streams.iter().zip(&mut last.streams).enumerate() {
            let now = [s.tx_packets, s.rx.as_ref().map_or(0, |r| r.packets)];
            let (late, delay) = self.histograms(i);
            let (late_then, delay_then) = last.histograms.remove(&(i as u32)).unwrap_or_default();
            let since = |now: &Histogram, then: &Histogram, q: f64| {
                let delta = now.delta_since(then);
                (!delta.is_empty()).then(|| delta.quantile(q))
            };
            // As the report has it.
            let one_clock = s.rx.as_ref().is_some_and(|rx| rx.latency_ns.is_some());
            sample.streams.push(StreamSample {
                name: s.name.clone(),
                tx_pps: rate(now[0], then[0]),
                rx_pps: rate(now[1], then[1]),
                lost: s.rx.as_ref().map_or(0, |r| r.lost),
                latency_p50_ns: since(&delay, &delay_then, 0.5).filter(|_| one_clock),
                latency_p99_ns: since(&delay, &delay_then, 0.99).filter(|_| one_clock),
                late_p99_ns: since(&late, &late_then, 0.99),
            });
            *then = now;
            if !late.is_empty() || !delay.is_empty() {
                last.histograms.insert(i as u32, (late, delay));
            }
        }
        sample
    }

    fn histograms(&self, i: usize) -> (Histogram, Histogram) {
        let mut delay = Histogram::default();
        self.seen[i].iter().for_each(|(_, s)| delay.merge(s.delay.delay()));
        (self.streams[i].departure_error.clone(), delay)
    }

    /// From the first to the last arrival, on the port where that took longest.
    pub fn arrivals(&self) -> Nanos {
        let span = |queue: &PortRx| u64::try_from(queue.seen.gaps.sum()).unwrap_or(u64::MAX);
        Nanos(self.rx.iter().flatten().map(span).max().unwrap_or(0))
    }
}

/// A run whose streams are reported: `streams` of them, the first of which is number `first` of all.
struct ReceivedRun {
    key: u16,
    first: usize,
    streams: usize,
}

/// Of a run that only receives, in the order of their first frames.
fn received_runs(rx: &[Vec<PortRx>]) -> Vec<ReceivedRun> {
    let mut found: BTreeMap<u16, (Nanos, usize)> = BTreeMap::new();
    for run in rx.iter().flatten().flat_map(|q| q.seen.runs()) {
        let Some(key) = run.key else { continue };
        let count = run.streams().map(|(number, _)| usize::from(number) + 1).max().unwrap_or(0);
        let (begin, most) = found.entry(key).or_insert((run.begin, 0));
        (*begin, *most) = ((*begin).min(run.begin), (*most).max(count));
    }
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_by_key(|(_, (begin, _))| *begin);
    let mut first = 0;
    let run = |(key, (_, streams)): (u16, (Nanos, usize))| {
        let run = ReceivedRun { key, first, streams };
        first += streams;
        run
    };
    found.into_iter().map(run).collect()
}

/// Streams of one run are known by their numbers; of several, by the key as well.
fn names_of(runs: &[ReceivedRun]) -> Vec<String> {
    let names = runs.iter().flat_map(|run| {
        let of_run = match runs.len() {
            1 => String::new(),
            _ => format!(" of run {:04x}", run.key),
        };
        (1..=run.streams).map(move |number| format!("stream {number}{of_run}"))
    });
    names.collect()
}

fn add_foreign(all: &mut BTreeMap<u16, Foreign>, key: u16, of: Foreign) {
    let sum = all.entry(key).or_default();
    sum.packets += of.packets;
    sum.octets += of.octets;
}

/// Octets without FCS of the longest frame that the streams of all ports send; `None` where other
/// sources send, too, or others than this run.
fn longest_frame(plan: &Plan) -> Option<u32> {
    let longest = |stream: &PlanStream| {
        let (program, cut) = (&stream.program, stream.program.cut());
        match cut.is_whole() {
            true => program.max_len(),
            false => u32::from(cut.payload) + u32::from(cut.size),
        }
    };
    let streams_only = plan.replays.is_empty() && plan.flows.is_none();
    plan.streams.iter().map(longest).max().filter(|_| streams_only)
}

/// Puts into the ports' reports what happened to their links, counted from `start`.
pub(crate) fn tell_links(report: &mut Report, links: &[LinkChanges], start: Nanos) {
    let t_s = |at: Nanos| at.saturating_sub(start).as_secs_f64();
    for (port, changes) in report.ports.iter_mut().zip(links) {
        let event = |e: &squall_port::LinkEvent| LinkEvent { t_s: t_s(e.at), up: e.up };
        port.link_events = changes.events.iter().map(event).collect();
        let mtu =
            |c: &squall_port::MtuChange| MtuChange { t_s: t_s(c.at), before: c.from, after: c.to };
        port.mtu_changes = changes.mtu.iter().map(mtu).collect();
    }
}

/// Puts into the ports' reports how they kept to what was due.
pub(crate) fn tell_pacing(report: &mut Report, pacing: &[squall_engine::PortPacing]) {
    let sources = &report.sources;
    for (port, pacing) in report.ports.iter_mut().zip(pacing) {
        if pacing.worst.is_none() && pacing.hurries_since.is_none() {
            continue;
        }
        let worst = pacing.worst.unwrap_or_default();
        let here = sources.iter().filter(|source| source.ports.contains(&port.name));
        port.tx.pacing = Some(PortPacing {
            unit: if worst.octets { "octets" } else { "packets" }.into(),
            at_s: worst.at.as_secs_f64(),
            over_s: worst.over.as_secs_f64(),
            left: worst.left,
            due: worst.due,
            allowed: worst.allowed,
            moved_s: pacing.moved.as_secs_f64(),
            lag_s: here.map(|source| source.lag_s).fold(0.0, f64::max),
            hurries_since_s: pacing.hurries_since.map(|at| at.as_nanos().as_secs_f64()),
            uncertain_packets: pacing.uncertain,
        });
    }
}

/// Streams that waited for another's `next` to the end.
fn never_started<'a>(
    plan: &'a Plan,
    streams: &'a [StreamReport],
) -> impl Iterator<Item = String> + 'a {
    let waited = |(_, (s, r)): &(usize, (&PlanStream, &StreamReport))| {
        !s.self_start && r.tx_packets == 0 && s.division != StreamDivision::Elsewhere
    };
    plan.streams.iter().zip(streams).enumerate().filter(waited).map(|(i, (s, _))| {
        let before: Vec<_> = plan
            .streams
            .iter()
            .filter(|b| b.next.is_some_and(|n| n.stream == i))
            .map(|b| format!("{:?}", b.name))
            .collect();
        format!(
            "stream {:?} never started: {}, which names it as next, did not end",
            s.name,
            before.join(", ")
        )
    })
}

/// What the kernel says of the machine's want of CPUs; empty where it says nothing.
fn machine(told: &Contention) -> String {
    let mut said = Vec::new();
    if told.throttled_s > 0.0 {
        said.push(format!("CPU quota used up for {:.2} s", told.throttled_s));
    }
    if told.steal_s > 0.0 {
        said.push(format!("{:.2} s stolen by the hypervisor", told.steal_s));
    }
    if told.involuntary_switches > 0 {
        said.push(format!("taken off its CPU {} times", told.involuntary_switches));
    }
    if told.pressure_s > 0.0 {
        said.push(format!("tasks waited for CPUs for {:.2} s", told.pressure_s));
    }
    if said.is_empty() { String::new() } else { format!(" (kernel: {})", said.join(", ")) }
}

fn worker(snapshot: &Snapshot) -> WorkerReport {
    WorkerReport {
        cpu: snapshot.cpu,
        cpu_s: snapshot.cpu_time.as_secs_f64(),
        tx_packets: snapshot.tx.iter().map(|tx| tx.packets).sum(),
        rx_packets: snapshot.rx.iter().map(|rx| rx.seen.packets).sum(),
    }
}

fn add_port(sum: &mut PortTx, t: PortTx) {
    sum.packets += t.packets;
    sum.octets += t.octets;
    sum.gso_frames += t.gso_frames;
    sum.segments += t.segments;
    sum.errors += t.errors;
    sum.retried += t.retried;
    t.not_sent.into_iter().for_each(|(k, v)| *sum.not_sent.entry(k).or_default() += v);
    sum.blocked = sum.blocked.max(t.blocked);
    sum.sending = sum.sending.max(t.sending);
    sum.last = sum.last.max(t.last);
    sum.departure_error.merge(&t.departure_error);
    sum.pacing.merge(t.pacing);
    sum.stalls = sum.stalls.or(t.stalls);
    sum.unhashed |= t.unhashed;
    if let Some(print) = t.fingerprint {
        sum.fingerprint.get_or_insert_default().merge(print);
    }
    sum.error = sum.error.take().or(t.error);
}

fn add_stream(sum: &mut StreamTx, s: StreamTx) {
    sum.packets += s.packets;
    sum.octets += s.octets;
    s.not_sent.into_iter().for_each(|(k, v)| *sum.not_sent.entry(k).or_default() += v);
    // Workers that share a stream are late together.
    sum.stretched = sum.stretched.max(s.stretched);
    sum.first = match (sum.first, s.first) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    sum.last = sum.last.max(s.last);
    sum.departure_error.merge(&s.departure_error);
}

pub(crate) fn patterns(patterns: &squall_stats::Patterns) -> Option<Patterns> {
    let any = !patterns.period_lengths.is_empty() || !patterns.extents.is_empty();
    any.then(|| Patterns {
        loss_period_packets: distribution(&patterns.period_lengths),
        loss_distance_packets: distribution(&patterns.distances),
        reordering_extent_packets: distribution(&patterns.extents),
        n_reordering_packets: distribution(&patterns.n_reordering),
    })
}

pub(crate) fn equal_bins(bins: &squall_stats::EqualBins) -> EqualBins {
    EqualBins { width_ns: bins.width(), counts: bins.counts().to_vec(), beyond: bins.beyond() }
}
