//! A report as a method wants it.

use squall_method::{
    Delay, FlowsMeasured, Lane, LaneMeasured, Measured, PortMeasured, ReceiverMeasured, Trial,
};

use super::Seconds;
use crate::report::{
    Distribution, PortReport, Reason, ReasonCode, ReceiverRx, Report, StreamReport,
    flows::FlowsReport,
};

pub(super) fn measured(trial: &Trial, report: &Report, seconds: &mut Seconds) -> Measured {
    let lane = |lane: &Lane| {
        let stream = report.streams.iter().find(|stream| stream.name == lane.name);
        let measured = stream.map(|stream| lane_measured(&lane.name, lane.rate_fps, stream));
        let seconds = seconds.lanes.remove(&lane.name).unwrap_or_default();
        LaneMeasured { seconds, ..measured.unwrap_or_default() }
    };
    Measured { lanes: trial.lanes.iter().map(lane).collect(), ..of_run(report) }
}

/// Of a profile as it is.
pub(super) fn measured_whole(report: &Report) -> Measured {
    let lane = |stream: &StreamReport| {
        lane_measured(&stream.name, stream.asked_pps.unwrap_or(stream.tx_pps), stream)
    };
    let signed = report.streams.iter().filter(|stream| stream.rx.is_some());
    Measured { lanes: signed.map(lane).collect(), ..of_run(report) }
}

/// What is not of streams.
fn of_run(report: &Report) -> Measured {
    let port = |port: &PortReport| PortMeasured {
        name: port.name.clone(),
        sent: port.tx.packets,
        received: port.rx.packets,
        foreign: port.rx.unsigned_packets,
    };
    let flows = report.flows.as_ref().and_then(flows_measured);
    // A device that lets no connection through is no fault of the generator.
    let tried = flows.as_ref().is_some_and(|flows| flows.attempted > 0);
    let counts = |reason: &&Reason| !(tried && reason.code == ReasonCode::NotDone);
    let reasons = report.verdict.reasons.iter().filter(counts);
    let not_kept: Vec<String> = reasons.map(|reason| reason.text.clone()).collect();
    Measured {
        lanes: Vec::new(),
        ports: report.ports.iter().map(port).collect(),
        flows,
        not_kept,
        cpu_s: report.cpu.user_s + report.cpu.system_s,
    }
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
        tcp_sent_octets: tcp("sent") + tcp("retransmit_octets"),
        tcp_resent_octets: tcp("retransmit_octets"),
        setup: client.setup_ns.as_ref().map(delay),
        first_byte: client.first_byte_ns.as_ref().map(delay),
        transaction: client.transaction_ns.as_ref().map(delay),
        duration: client.duration_ns.as_ref().map(delay),
    })
}

fn lane_measured(name: &str, offered_fps: f64, stream: &StreamReport) -> LaneMeasured {
    let rx = stream.rx.clone().unwrap_or_default();
    let gap = rx.arrival_gap_ns.as_ref().filter(|gap| gap.count > 0 && gap.mean > 0.0);
    let periods = rx.patterns.as_ref().and_then(|p| p.loss_period_packets.as_ref());
    LaneMeasured {
        name: name.into(),
        sent: stream.tx_packets,
        received: rx.packets.saturating_sub(rx.duplicates),
        lost: rx.lost,
        duplicates: rx.duplicates,
        reordered: rx.reordered,
        offered_fps,
        output_fps: gap.map(|gap| 1e9 / gap.mean),
        delay: rx.latency_ns.as_ref().map(delay),
        ipdv: rx.ipdv_ns.as_ref().map(delay),
        longest_loss: periods.map_or(rx.lost.min(1), |periods| periods.max),
        loss_periods: periods.map_or(u64::from(rx.lost > 0), |periods| periods.count),
        receivers: rx.receivers.iter().map(receiver_measured).collect(),
        ..LaneMeasured::default()
    }
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
