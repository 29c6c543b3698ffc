//! The results of a run (final, or so far), and the report that is built from them.
//!
//! Input: a [`Record`], which has the plan, the counters of all workers ([`Counted`]), and how the
//! run ended ([`End`]). Output: its [`Report`], section by section ([`Record::report`]), rates
//! between two times ([`sample`]), and sums of counters ([`totals`]).
//!
//! The crate is pure: it reads no clock, file or counter. It knows the engine's results, but
//! neither sessions nor ports.
#![forbid(unsafe_code)]

pub mod capture;
mod counted;
pub mod host_table;
mod hosts;
pub mod load;
mod ports;
pub mod received;
mod replays;
mod routers;
mod routes;
pub mod sample;
mod sources;
mod streams;
pub mod totals;

use std::{collections::BTreeMap, time::SystemTime};

use squall_engine::{LinkChanges, PortPacing};
use squall_measure::FlowSettings;
use squall_plan::{Part, Plan, PlanStream, StreamDivision};
use squall_port::InterfaceCounters;
use squall_report::{
    report::{
        self, Asked, Contention, Cpu, EndedBy, Host, Memory, NodeClock, Patterns, Report, SCHEMA,
        Sample, StartReport, StreamReport, Verdict, attack::AttackReport, distribution,
        fail_if::FailIf,
    },
    verdict,
};
use squall_router::DaemonState;
use squall_units::Nanos;

pub use capture::Captured;
pub use counted::Counted;
pub use replays::ReplayEnd;

/// Maximum difference between two readings of the same clock, by two threads or for two ports.
const READING_NS: u64 = 2_000;

/// Facts that stay the same during a run.
pub struct Context {
    pub started: SystemTime,
    pub host: Host,
    /// The counters of the machine at the start.
    pub usage: Usage,
    pub command: String,
    pub fingerprint: bool,
    /// The receive filter, if any.
    pub filter: Option<String>,
    /// How received flows are measured; `None` if they are not.
    pub flows: Option<FlowSettings>,
    /// The name of this node, and the clock that it shares with other nodes.
    pub node: Option<String>,
    pub clock: Option<NodeClock>,
}

/// The counters of the machine at one time.
#[derive(Clone, Debug)]
pub struct Usage {
    pub cpu: Cpu,
    pub contention: Contention,
    pub memory: Memory,
}

/// The results of a run, final or so far.
pub struct Record<'a> {
    pub context: &'a Context,
    pub plan: &'a Plan,
    pub counted: Counted,
    /// Time at which the first departure was due, on the engine's clock.
    pub start: Nanos,
    pub duration: Nanos,
    /// The counters of the interfaces, by port; empty while the run is in progress.
    pub interfaces: Vec<Option<InterfaceCounters>>,
    /// The link changes of the ports.
    pub links: Vec<LinkChanges>,
    /// How the ports kept their schedules.
    pub pacing: Vec<PortPacing>,
    pub usage: Usage,
    pub capture: Option<Captured>,
    /// The daemons of routers, by the numbers of these.
    pub daemons: Vec<(usize, DaemonState)>,
    /// `None` while the run is in progress.
    pub end: Option<End<'a>>,
}

/// How a run ended.
pub struct End<'a> {
    pub by: EndedBy,
    /// Whether the run would have reached an end by itself. If so, a stop cut it short.
    pub open: bool,
    /// The agreed start on the shared clock.
    pub agreed: Option<Nanos>,
    /// For a run that only receives, the end that its caller requested.
    pub expected: Asked,
    /// For each part with an `after`, the time at which the source before it had ended; `None` if
    /// it never did.
    pub began: Vec<(Part, Option<squall_units::Picos>)>,
    pub replays: Vec<ReplayEnd>,
    pub attacks: Vec<AttackReport>,
    /// Criteria that end the run, with those that held during it.
    pub criteria: &'a [FailIf],
    pub failed: Vec<String>,
    /// Remarks from the ports on how they worked.
    pub notes: Vec<String>,
}

impl Record<'_> {
    /// The report. Its samples are `series`.
    pub fn report(&self, series: Vec<Sample>) -> Report {
        let (context, plan, counted) = (self.context, self.plan, &self.counted);
        let sources = self.sources();
        let ports: Vec<_> = (0..counted.facts.len()).map(|p| self.port(p, &sources)).collect();
        let streams: Vec<_> = (0..counted.streams.len()).map(|i| self.stream(i)).collect();
        let frames: u64 = ports.iter().map(|p| p.tx.packets + p.rx.packets).sum();
        let capture =
            self.capture.as_ref().map(|captured| captured.section(&ports, counted.accepted()));
        let end = self.end.as_ref();
        let received = |settings| received::report(settings, plan, &counted.rx, counted.running);
        let sections = Report {
            schema: SCHEMA.to_owned(),
            command: context.command.clone(),
            squall_version: env!("CARGO_PKG_VERSION").to_owned(),
            started: humantime::format_rfc3339_seconds(context.started).to_string(),
            duration_s: self.duration.as_secs_f64(),
            seed: plan.seed,
            part: (!plan.part.is_whole()).then(|| plan.part.to_string()),
            parts: Vec::new(),
            node: context.node.clone(),
            clock: context.clock,
            start: end.and_then(|end| self.started(end)),
            filter: context.filter.clone(),
            host: context.host.clone(),
            verdict: Verdict::default(),
            asked: self.asked(),
            cut_short: end.is_some_and(|end| end.open && is_stopped(end.by)),
            notes: self.notes(&streams),
            sources,
            ports,
            streams,
            capture: None,
            replays: self.replays(),
            flows: counted.load.clone(),
            hosts: counted.hosts.clone(),
            routers: routers::report(
                plan,
                &counted.routers,
                &self.daemons,
                end.filter(|end| !is_stopped(end.by)).map(|_| self.duration),
            ),
            attacks: end.map(|end| end.attacks.clone()).unwrap_or_default(),
            workers: counted.workers.clone(),
            received_flows: context.flows.as_ref().map(received),
            series,
            cpu: self.cpu(frames),
            contention: self.contention(),
            memory: self.usage.memory.clone(),
        };
        let mut judged = Report { verdict: self.verdict(&sections), ..sections };
        // Do this before missing streams are removed, because criteria apply to them, too, and
        // before the capture is added, because stream criteria would match the capture otherwise.
        let verdict = Verdict { failed: self.failed(&judged), ..judged.verdict };
        // In place: a million rows that stay are not moved.
        judged.streams.retain(|stream| self.shows(stream));
        Report { verdict, capture, ..judged }
    }

    /// Whether the report shows a stream. In a run that only receives, only streams that were
    /// received are shown.
    pub(crate) fn shows(&self, stream: &StreamReport) -> bool {
        !self.plan.only_receives() || stream.rx.is_some()
    }

    fn started(&self, end: &End<'_>) -> Option<StartReport> {
        let error_ns = || self.counted.start_error(self.plan, self.start);
        end.agreed.map(|at| StartReport { at_ns: at.0, error_ns: error_ns() })
    }

    fn asked(&self) -> Asked {
        match &self.end {
            Some(end) if self.plan.only_receives() => end.expected,
            _ => {
                let stop = &self.plan.stop;
                let duration_s = stop.duration.map(Nanos::as_secs_f64);
                Asked { duration_s, packets: stop.packets, octets: stop.octets }
            }
        }
    }

    fn cpu(&self, frames: u64) -> Cpu {
        let (now, before) = (&self.usage.cpu, &self.context.usage.cpu);
        let (user_s, system_s) = (now.user_s - before.user_s, now.system_s - before.system_s);
        let per_mpkt_s = (frames > 0).then(|| (user_s + system_s) / frames as f64 * 1e6);
        Cpu { user_s, system_s, per_mpkt_s }
    }

    fn contention(&self) -> Contention {
        let (now, before) = (&self.usage.contention, &self.context.usage.contention);
        Contention {
            involuntary_switches: self.counted.preempted,
            throttled_s: (now.throttled_s - before.throttled_s).max(0.0),
            pressure_s: (now.pressure_s - before.pressure_s).max(0.0),
            steal_s: (now.steal_s - before.steal_s).max(0.0),
        }
    }

    /// Notes from the plan. After the end, also notes on parts that never began or are not shown.
    fn notes(&self, streams: &[StreamReport]) -> Vec<String> {
        let mut notes = self.plan.notes.clone();
        let Some(end) = &self.end else { return notes };
        notes.extend(routers::notes(self.plan, &self.daemons));
        notes.extend(self.notes_on_steps());
        notes.extend(never_started(self.plan, streams));
        notes.extend(self.came_back(streams));
        let early = self.counted.early(self.plan).filter(|(_, _, by)| *by <= READING_NS);
        notes.extend(early.map(|(name, frames, by)| {
            format!(
                "stream {name:?}: latency excludes {frames} frames that arrived up to {by} ns \
                 before they were sent: two readings of the clock differ by as much"
            )
        }));
        let never = end.began.iter().filter(|(_, at)| at.is_none());
        notes.extend(never.map(|(part, _)| {
            let of = self.plan.after(*part).map_or(&[][..], |after| &after.of);
            let of: Vec<_> = of.iter().map(|of| format!("{:?}", self.plan.name_of(*of))).collect();
            let (name, of) = (self.plan.name_of(*part), of.join(", "));
            format!("{name:?} never began: {of}, which it waits for, did not end before the run")
        }));
        notes.extend(end.notes.iter().filter(|note| !self.plan.notes.contains(note)).cloned());
        notes.extend(self.capture.iter().flat_map(Captured::notes));
        notes
    }

    /// Streams whose frames arrived only at the port that sent them, although other ports receive:
    /// they are not lost, but they did not pass the device either.
    fn came_back<'a>(&'a self, streams: &'a [StreamReport]) -> impl Iterator<Item = String> + 'a {
        let receives = |name: &str| {
            let mut queues = self.plan.ports.iter().zip(&self.counted.rx);
            queues.any(|(port, queues)| port.name != name && !queues.is_empty())
        };
        streams.iter().filter_map(move |stream| {
            let rx = stream.rx.as_ref().filter(|rx| rx.packets > 0)?;
            let back = rx.ports == [stream.port.clone()] && receives(&stream.port);
            back.then(|| {
                format!(
                    "stream {:?}: its frames arrived only at {}, the port that sent them",
                    stream.name, stream.port
                )
            })
        })
    }

    fn verdict(&self, report: &Report) -> Verdict {
        let by = self.end.as_ref().map_or(EndedBy::Running, |end| end.by);
        verdict::judge(report, &self.facts(by, report))
    }

    /// The criteria that held, as texts.
    fn failed(&self, report: &Report) -> Vec<String> {
        match &self.end {
            Some(end) if end.failed.is_empty() => {
                end.criteria.iter().flat_map(|one| one.check(report)).collect()
            }
            Some(end) => end.failed.clone(),
            None => Vec::new(),
        }
    }

    /// Facts for the verdict that the report does not contain.
    fn facts(&self, ended_by: EndedBy, report: &Report) -> verdict::Facts {
        let counted = &self.counted;
        let tx = report
            .ports
            .iter()
            .zip(&counted.tx)
            .filter_map(|(p, t)| Some((p.name.clone(), t.error.clone()?)));
        let rx = report.ports.iter().zip(&counted.rx).flat_map(|(p, queues)| {
            let errors = queues.iter().filter_map(|q| q.error.clone());
            errors.map(|error| (format!("{} (receiving)", p.name), error))
        });
        verdict::Facts {
            ended_by,
            lost: tx.chain(rx).collect(),
            early: counted
                .early(self.plan)
                .filter(|(_, _, by)| *by > READING_NS)
                .map(|(name, frames, _)| (name.to_owned(), frames))
                .collect(),
            stretched: (0..)
                .zip(&counted.streams)
                .filter(|(_, tx)| tx.stretched > Nanos::ZERO)
                .map(|(i, tx)| (counted.name(self.plan, i).to_owned(), tx.stretched.as_secs_f64()))
                .collect(),
            receives: counted.rx.iter().map(|queues| !queues.is_empty()).collect(),
            longest_frame: counted.listens().then(|| longest_frame(self.plan)).flatten(),
            unsent: counted.unsent(self.plan),
            machine: machine(&report.contention),
        }
    }
}

fn is_stopped(by: EndedBy) -> bool {
    matches!(by, EndedBy::Stopped | EndedBy::Criterion) || by.signal().is_some()
}

/// Length without FCS of the longest frame of all streams. `None` if other sources or other runs
/// send, too. Reads each stream's program, so only receivers should ask for it.
fn longest_frame(plan: &Plan) -> Option<u32> {
    let longest = |stream: &PlanStream| {
        let (program, cut) = (&stream.program, stream.program.cut());
        match cut.is_whole() {
            true => program.max_len(),
            false => u32::from(cut.payload) + u32::from(cut.size),
        }
    };
    let streams_only = plan.replays.is_empty()
        && plan.flows.is_none()
        && plan.hosts.is_empty()
        && plan.routers.is_empty();
    plan.streams.iter().map(longest).max().filter(|_| streams_only)
}

/// Streams that waited until the end for a stream that names them as `next`.
fn never_started<'a>(
    plan: &'a Plan,
    streams: &'a [StreamReport],
) -> impl Iterator<Item = String> + 'a {
    // The report first, because reading the plan of a million streams takes longer.
    let waited = |(_, (s, r)): &(usize, (&PlanStream, &StreamReport))| {
        r.tx_packets == 0 && !s.self_start && s.division != StreamDivision::Elsewhere
    };
    let waiting: Vec<_> = plan.streams.iter().zip(streams).enumerate().filter(waited).collect();
    let mut named_by: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    for stream in plan.streams.iter().filter(|_| !waiting.is_empty()) {
        stream.next.iter().for_each(|n| named_by.entry(n.stream).or_default().push(&stream.name));
    }
    waiting.into_iter().map(move |(i, (s, _))| {
        let before = named_by.get(&i).into_iter().flatten();
        let before: Vec<_> = before.map(|name| format!("{name:?}")).collect();
        format!(
            "stream {:?} never started: {}, which names it as next, did not end",
            s.name,
            before.join(", ")
        )
    })
}

/// The kernel's figures on CPU contention as text. Empty if there was none.
fn machine(contention: &Contention) -> String {
    let mut parts = Vec::new();
    if contention.throttled_s > 0.0 {
        parts.push(format!("CPU quota used up for {:.2} s", contention.throttled_s));
    }
    if contention.steal_s > 0.0 {
        parts.push(format!("{:.2} s stolen by the hypervisor", contention.steal_s));
    }
    if contention.involuntary_switches > 0 {
        parts.push(format!("taken off its CPU {} times", contention.involuntary_switches));
    }
    if contention.pressure_s > 0.0 {
        parts.push(format!("tasks waited for CPUs for {:.2} s", contention.pressure_s));
    }
    if parts.is_empty() { String::new() } else { format!(" (kernel: {})", parts.join(", ")) }
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

pub(crate) fn equal_bins(bins: &squall_stats::EqualBins) -> report::EqualBins {
    let (width_ns, counts) = (bins.width(), bins.counts().to_vec());
    report::EqualBins { width_ns, counts, beyond: bins.beyond() }
}
