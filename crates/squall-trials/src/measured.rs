//! Converts reports of this machine or of nodes to the measurements of a method.

use std::collections::BTreeMap;

use squall_method::{
    Delay, FlowsMeasured, Goodput, Lane, LaneMeasured, Measured, PortMeasured, ReceiverMeasured,
    Trial,
};

use crate::RunResult;
use squall::{
    Error,
    report::{
        Distribution, PortReport, Reason, ReasonCode, ReceiverRx, Report, Sample, StreamReport,
        VerdictStatus,
        flows::{ALL, FlowsReport},
    },
};

/// A node missed the agreed start if it was later than both this fraction of the trial and
/// [`LATE_NS`].
const LATE_PART: f64 = 0.01;
const LATE_NS: f64 = 10e6;

/// Converts the reports of a run to the measurements of a trial.
///
/// # Errors
/// Reports that are not of the same run.
pub(crate) fn measured(trial: &Trial, mut ran: RunResult) -> Result<Measured, Error> {
    let whole = ran.whole()?;
    let mut lane = |lane: &Lane| {
        let stream = whole.streams.iter().find(|stream| stream.name == lane.name);
        let measured = stream.map(|stream| ran.lane(lane.rate_fps, stream)).unwrap_or_default();
        let seconds = ran.seconds.remove(&lane.name).unwrap_or_default();
        LaneMeasured { seconds, ..measured }
    };
    let lanes = trial.lanes.iter().map(&mut lane).collect();
    let mut measured = Measured { lanes, ..ran.without_lanes(&whole) };
    measured.not_kept.extend(ran.late(trial.duration_s));
    if let Some(flows) = &mut measured.flows {
        if trial.flows.as_ref().is_some_and(|load| load.bulk.is_some()) {
            // Bulk transfers are open until the trial ends, so "stopped" is not a failure.
            flows.failed.remove("stopped");
        }
        if trial.seconds {
            flows.goodput = goodput(&whole);
        }
    }
    Ok(measured)
}

/// Goodput at each sample of a run.
fn goodput(report: &Report) -> Vec<Goodput> {
    // In virtual time, samples have no timestamp.
    let samples = report.series.iter().filter(|sample| sample.t_s > 0.0);
    let at = |sample: &Sample| {
        let templates = sample.flows.iter().filter(|row| row.name != ALL);
        let side = |side: &str| {
            templates.clone().filter(|row| row.side == side).map(|row| row.goodput_bps).sum()
        };
        Goodput { at_s: sample.t_s, down_bps: side("client"), up_bps: side("server") }
    };
    samples.map(at).collect()
}

/// The measurements of a profile that was run unchanged.
///
/// # Errors
/// Reports that are not of the same run.
pub(crate) fn measured_whole(ran: &RunResult) -> Result<Measured, Error> {
    let whole = ran.whole()?;
    let lane = |stream: &StreamReport| ran.lane(stream.asked_pps.unwrap_or(stream.tx_pps), stream);
    let signed = whole.streams.iter().filter(|stream| stream.rx.is_some());
    let mut measured = Measured { lanes: signed.map(lane).collect(), ..ran.without_lanes(&whole) };
    measured.not_kept.extend(ran.late(whole.duration_s));
    Ok(measured)
}

impl RunResult {
    /// Merges the reports of all nodes.
    fn whole(&self) -> Result<Report, Error> {
        match &self.reports[..] {
            [(_, one)] => Ok(one.clone()),
            [] => Ok(Report::default()),
            all => squall_report::merge::whole(all.to_vec()).map_err(|error| {
                let text = format!("{error}\n  try one version of Squall on all nodes");
                Error::Environment(text)
            }),
        }
    }

    fn without_lanes(&self, whole: &Report) -> Measured {
        let flows = whole.flows.as_ref().and_then(flows_measured);
        // If a device passes no connection, the generator has not failed.
        let tried = flows.as_ref().is_some_and(|flows| flows.attempted > 0);
        let counts = |reason: &&Reason| !(tried && reason.code == ReasonCode::NotDone);
        let reasons = whole.verdict.reasons.iter().filter(counts);
        // Lost nodes first: they are the cause of other reasons.
        let lost = self.lost.iter().map(|(node, why)| format!("node {node:?}: {why}"));
        let mut not_kept: Vec<String> =
            lost.chain(reasons.map(|reason| reason.text.clone())).collect();
        if not_kept.is_empty() && whole.verdict.status == VerdictStatus::Interrupted {
            not_kept.push("the run was interrupted".into());
        }
        Measured {
            lanes: Vec::new(),
            ports: self.ports(),
            flows,
            not_kept,
            cpu_s: whole.cpu.user_s + whole.cpu.system_s,
        }
    }

    /// Nodes that missed the agreed start.
    fn late(&self, lasts_s: f64) -> impl Iterator<Item = String> {
        let limit_ns = LATE_NS.max(lasts_s * 1e9 * LATE_PART);
        self.reports.iter().filter_map(move |(node, report)| {
            let error_ns = report.start?.error_ns?;
            (error_ns as f64 > limit_ns).then(|| {
                format!(
                    "node {node:?} began {:.1} ms after the agreed start",
                    error_ns as f64 / 1e6
                )
            })
        })
    }

    /// Ports in the order of the profile. A port that nodes share is the sum over the nodes.
    fn ports(&self) -> Vec<PortMeasured> {
        let mut all: Vec<PortMeasured> = Vec::new();
        for port in self.reports.iter().flat_map(|(_, report)| &report.ports) {
            let place = all.iter().position(|one| one.name == port.name);
            let place = place.unwrap_or_else(|| {
                all.push(PortMeasured { name: port.name.clone(), ..PortMeasured::default() });
                all.len() - 1
            });
            add(&mut all[place], port);
        }
        all
    }

    fn lane(&self, offered_fps: f64, stream: &StreamReport) -> LaneMeasured {
        let rx = stream.rx.clone().unwrap_or_default();
        LaneMeasured {
            name: stream.name.clone(),
            sent: stream.tx_packets,
            received: rx.packets.saturating_sub(rx.duplicates),
            lost: rx.lost,
            duplicates: rx.duplicates,
            reordered: rx.reordered,
            offered_fps,
            output_fps: self.output_fps(&stream.name),
            delay: rx.latency_ns.as_ref().map(delay),
            delay_bound_ns: rx.latency_bound_ns,
            ipdv: rx.ipdv_ns.as_ref().map(delay),
            arrived: rx.arrived,
            receivers: rx.receivers.iter().map(receiver_measured).collect(),
            ..LaneMeasured::default()
        }
    }

    /// Ports and arrival gaps of a stream, from each report that received it.
    fn arrivals<'a>(
        &'a self,
        name: &'a str,
    ) -> impl Iterator<Item = (&'a [String], &'a Distribution)> {
        let streams = self.reports.iter().flat_map(|(_, report)| &report.streams);
        let received = streams.filter(move |stream| stream.name == name);
        received.filter_map(|stream| stream.rx.as_ref()).filter_map(|rx| {
            let gap = rx.arrival_gap_ns.as_ref().filter(|gap| gap.count > 0 && gap.mean > 0.0)?;
            Some((&rx.ports[..], gap))
        })
    }

    /// Received frames per second. If nodes share a port, each gets a part of its frames, so their
    /// rates add up. Over several ports, this is the mean rate, weighted by frames.
    fn output_fps(&self, name: &str) -> Option<f64> {
        let mut ports: BTreeMap<&[String], (u64, f64)> = BTreeMap::new();
        for (at, gap) in self.arrivals(name) {
            let (count, fps) = ports.entry(at).or_default();
            *count += gap.count;
            *fps += 1e9 / gap.mean;
        }
        if let [(_, fps)] = ports.values().collect::<Vec<_>>()[..] {
            return Some(*fps);
        }
        let count: f64 = ports.values().map(|(count, _)| *count as f64).sum();
        let time: f64 = ports.values().map(|(count, fps)| *count as f64 / fps).sum();
        (time > 0.0).then(|| count / time)
    }
}

fn add(all: &mut PortMeasured, port: &PortReport) {
    all.sent += port.tx.packets;
    all.received += port.rx.packets;
    all.foreign += port.rx.unsigned_packets + port.rx.foreign_packets;
}

fn flows_measured(flows: &FlowsReport) -> Option<FlowsMeasured> {
    let client = flows.total.client.as_ref()?;
    let sides = [Some(client), flows.total.server.as_ref()];
    let tcp =
        |name: &str| -> u64 { sides.iter().flatten().filter_map(|side| side.tcp.get(name)).sum() };
    let bad = client.http.iter().filter(|(class, _)| !matches!(class.as_str(), "2xx" | "3xx"));
    let tls = client.tls.iter().flat_map(|tls| tls.failed.values());
    let steady = client.steady.as_ref();
    let server = flows.total.server.as_ref().and_then(|server| server.steady.as_ref());
    Some(FlowsMeasured {
        attempted: client.attempted,
        established: client.established,
        completed: client.completed,
        failed: client.failed.clone(),
        errors: client.protocol_errors.values().chain(bad.map(|(_, n)| n)).chain(tls).sum(),
        peak_active: client.peak_active,
        completed_cps: steady.map_or(client.cps, |steady| steady.completed_cps),
        goodput_bps: steady.map_or(client.goodput_bps, |steady| steady.goodput_bps)
            + server.map_or(0.0, |server| server.goodput_bps),
        received_octets: client.received_octets,
        uploaded_octets: flows.total.server.as_ref().map_or(0, |server| server.received_octets),
        goodput: Vec::new(),
        tcp_sent_octets: tcp("sent") + tcp("retransmit_octets"),
        tcp_resent_octets: tcp("retransmit_octets"),
        setup: client.setup_ns.as_ref().map(delay),
        first_byte: client.first_byte_ns.as_ref().map(delay),
        transaction: client.transaction_ns.as_ref().map(delay),
        duration: client.duration_ns.as_ref().map(delay),
    })
}

fn receiver_measured(receiver: &ReceiverRx) -> ReceiverMeasured {
    ReceiverMeasured {
        port: receiver.port.clone(),
        received: receiver.packets,
        lost: receiver.lost,
        delay: receiver.latency_ns.as_ref().map(delay),
    }
}

fn delay(distribution: &Distribution) -> Delay {
    Delay {
        min: distribution.min,
        mean: distribution.mean,
        p50: distribution.p50,
        p90: distribution.p90,
        p99: distribution.p99,
        p999: distribution.p999,
        max: distribution.max,
    }
}
