//! The merged counters of all workers.

use std::collections::{BTreeMap, BTreeSet};

use squall_engine::{PortRx, PortTx, RouterStats, Snapshot, StreamTx};
use squall_measure::{Foreign, StreamRx as Seen};
use squall_plan::{Plan, PlanStream, SourceId};
use squall_port::PortFacts;
use squall_report::report::{EndedBy, WorkerReport, flows::FlowsReport, hosts::HostsReport};
use squall_units::Nanos;

use crate::{load, sources::Kept};

/// The snapshots of all workers, merged.
pub struct Counted {
    /// The names of streams of other senders, if the plan has no streams: see [`Counted::name`].
    received: Vec<String>,
    /// The key in this run's signatures.
    pub(crate) key: u16,
    pub(crate) facts: Vec<PortFacts>,
    /// Whether the run is in progress. If so, the counters of the workers were read at slightly
    /// different times, and frames are in flight.
    pub(crate) running: bool,
    pub(crate) tx: Vec<PortTx>,
    /// Counters by port and source.
    pub(crate) sent: BTreeMap<(usize, SourceId), PortTx>,
    pub(crate) streams: Vec<StreamTx>,
    /// Counters of the queues, by port.
    pub(crate) rx: Vec<Vec<PortRx>>,
    /// Measurements by stream: (port, measurement of a queue).
    pub(crate) seen: Vec<Vec<(usize, Seen)>>,
    /// Frames of other runs, by port and key.
    pub(crate) foreign: Vec<BTreeMap<u16, Foreign>>,
    pub(crate) workers: Vec<WorkerReport>,
    pub(crate) preempted: u64,
    /// The results of flows, and how well they kept their schedule.
    pub(crate) load: Option<FlowsReport>,
    pub(crate) kept: Kept,
    /// The results of hosts.
    pub(crate) hosts: Vec<HostsReport>,
    /// Frames of routers.
    pub(crate) routers: Vec<RouterStats>,
}

impl Counted {
    /// `facts` describe the plan's ports. `running` is true if the snapshots are from a run in
    /// progress.
    pub fn new(
        plan: &Plan,
        facts: Vec<PortFacts>,
        running: bool,
        mut snapshots: Vec<Snapshot>,
    ) -> Self {
        let key = plan.key;
        let load = load::report(plan, &snapshots);
        let kept = Kept::of(&snapshots);
        let hosts = crate::hosts::report(plan, &snapshots);
        let routers = snapshots.iter().flat_map(|snapshot| snapshot.routers.clone()).collect();
        let ports = facts.len();
        let mut tx: Vec<PortTx> =
            (0..ports).map(|port| PortTx { port, ..PortTx::default() }).collect();
        let mut sent = BTreeMap::new();
        let planned = plan.streams.len();
        let mut streams = match &mut snapshots[..] {
            // One worker counted all of a million streams: its rows are the sums.
            [one] if are_in_order(&one.streams, planned) => std::mem::take(&mut one.streams),
            _ => {
                (0..planned as u32).map(|i| StreamTx { number: i, ..StreamTx::default() }).collect()
            }
        };
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
        // A key that a queue saw in only one frame may be chance, unless other queues saw it, too.
        let keys: BTreeSet<u16> = rx.iter().flatten().flat_map(|q| q.seen.keys()).collect();
        rx.iter_mut().flatten().for_each(|q| q.seen.confirm_keys(&keys));
        // The runs whose streams are reported. Each has a name, and the number of its first stream.
        let mut received = Vec::new();
        let runs = match planned {
            0 => {
                let runs = received_runs(&rx);
                received = names_of(&runs);
                streams.resize_with(received.len(), StreamTx::default);
                runs
            }
            _ => vec![ReceivedRun { key, first: 0, streams: planned }],
        };
        let mut seen: Vec<Vec<(usize, Seen)>> = streams.iter().map(|_| Vec::new()).collect();
        let mut foreign: Vec<BTreeMap<u16, Foreign>> = vec![BTreeMap::new(); ports];
        for (port, queues) in rx.iter().enumerate() {
            for (key, of) in queues.iter().flat_map(|q| &q.seen.foreign) {
                add_foreign(&mut foreign[port], *key, *of);
            }
            for run in queues.iter().flat_map(|q| q.seen.runs()) {
                // Streams that are recognized by other marks belong to this run.
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
        Self {
            received,
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
            load,
            kept,
            hosts,
            routers,
        }
    }

    /// The name of stream `i`: that in `plan`, or one that was made for a stream of another sender.
    pub(crate) fn name<'a>(&'a self, plan: &'a Plan, i: usize) -> &'a str {
        plan.streams.get(i).map_or_else(|| &*self.received[i], |stream| &*stream.name)
    }

    /// Whether any port receives.
    pub(crate) fn listens(&self) -> bool {
        self.rx.iter().any(|queues| !queues.is_empty())
    }

    /// Whether no frame has left.
    pub fn sends_nothing(&self) -> bool {
        self.tx.iter().all(|tx| tx.packets == 0)
    }

    /// Number of frames of a replay that were passed to `port` again because it was full.
    pub(crate) fn retried(&self, replay: u32, port: usize) -> u64 {
        self.sent.get(&(port, SourceId::replay(replay))).map_or(0, |tx| tx.retried)
    }

    /// Number of frames that passed the filter, as counted by the ports; `None` if a port does not
    /// count them.
    pub(crate) fn accepted(&self) -> Option<u64> {
        let accepted = |queue: &PortRx| Some(queue.received?.saturating_sub(queue.filtered));
        self.rx.iter().flatten().map(accepted).sum()
    }

    /// Whether any port was lost.
    pub fn is_lost(&self) -> bool {
        self.tx.iter().any(|tx| tx.error.is_some())
            || self.rx.iter().flatten().any(|queue| queue.error.is_some())
    }

    /// The reason why a run ended that was not stopped.
    pub fn ended_by(&self, plan: &Plan, elapsed: Nanos, virtual_time: bool) -> EndedBy {
        let sent = |of: fn(&PortTx) -> u64| self.tx.iter().map(of).sum::<u64>();
        let stop = &plan.stop;
        if stop.packets.is_some_and(|packets| sent(|tx| tx.packets + tx.errors) >= packets) {
            EndedBy::Packets
        } else if stop.octets.is_some_and(|octets| sent(|tx| tx.octets) >= octets) {
            EndedBy::Octets
        } else if stop.duration.is_some_and(|time| virtual_time || elapsed >= time) {
            EndedBy::Duration
        } else {
            EndedBy::Done
        }
    }

    /// Streams with frames that arrived before they were sent. Each has the number of such frames,
    /// and the largest time difference in ns.
    pub(crate) fn early<'a>(&'a self, plan: &'a Plan) -> impl Iterator<Item = (&'a str, u64, u64)> {
        let sent = self.streams.iter().zip(&self.seen).enumerate();
        sent.filter(|(_, (tx, _))| tx.packets > 0).filter_map(move |(i, (_, seen))| {
            let frames = seen.iter().map(|(_, seen)| seen.delay.negative()).sum::<u64>();
            let by = seen.iter().map(|(_, seen)| seen.delay.most_negative_ns().unsigned_abs());
            (frames > 0).then(|| (self.name(plan, i), frames, by.max().unwrap_or(0)))
        })
    }

    /// Streams of which a sequence number was received that was never sent. Each has that number,
    /// and the number of frames due. Frames that were due and not sent may have used a number.
    pub(crate) fn unsent(&self, plan: &Plan) -> Vec<(String, u64, u64)> {
        if self.running || plan.has_other_nodes() || !plan.part.is_whole() {
            return Vec::new();
        }
        let sent = self.streams.iter().zip(&self.seen).zip(&plan.streams);
        let beyond = sent.filter_map(|((tx, seen), stream)| {
            let due = tx.packets + tx.not_sent.total();
            let highest = seen.iter().filter_map(|(_, seen)| seen.sequence.highest()).max()?;
            (highest >= due).then(|| (stream.name.clone(), highest, due))
        });
        beyond.collect()
    }

    /// Time from when this node's first stream was due to its first frame; `None` if no frame has
    /// left.
    pub(crate) fn start_error(&self, plan: &Plan, start: Nanos) -> Option<i64> {
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

    /// Time from the first to the last arrival, on the port where it is longest.
    pub fn arrivals(&self) -> Nanos {
        let span = |queue: &PortRx| u64::try_from(queue.seen.gaps.sum()).unwrap_or(u64::MAX);
        Nanos(self.rx.iter().flatten().map(span).max().unwrap_or(0))
    }
}

/// A run whose frames were received. It has `streams` reported streams, from index `first` of all
/// streams on.
struct ReceivedRun {
    key: u16,
    first: usize,
    streams: usize,
}

/// The runs whose frames arrived in a run that only receives, in the order of their first frames.
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

/// Names for streams. They are numbers if there is a single run, otherwise the key is added.
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

/// Whether the rows are those of streams 0 to `planned`, in order.
fn are_in_order(rows: &[StreamTx], planned: usize) -> bool {
    rows.len() == planned && rows.iter().zip(0..).all(|(row, number)| row.number == number)
}

fn add_stream(sum: &mut StreamTx, s: StreamTx) {
    sum.packets += s.packets;
    sum.octets += s.octets;
    s.not_sent.iter().for_each(|(reason, frames)| sum.not_sent.add(reason, frames));
    // Workers that share a stream are late at the same time, so their delays do not add up.
    sum.stretched = sum.stretched.max(s.stretched);
    sum.first = match (sum.first, s.first) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    sum.last = sum.last.max(s.last);
    match (&mut sum.departure_error, s.departure_error) {
        (Some(all), Some(errors)) => all.merge(&errors),
        (all @ None, errors) => *all = errors,
        (Some(_), None) => {}
    }
}
