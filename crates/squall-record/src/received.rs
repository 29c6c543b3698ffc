//! Merges the flow measurements of receive queues into the report.

use std::{
    borrow::Cow,
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
};

use squall_engine::{PortRx, ReceivedFlows};
use squall_measure::{
    Bursts as SeenBursts, By, FlowCount, FlowRx, FlowSettings, Gaps, Traffic,
    flow::{FlowKey, ethertype_name, protocol},
    kinds::{Kind, Recognition, SenderClock, Sequenced},
    source,
};
use squall_plan::Plan;
use squall_report::{
    conversations::{self, HostAddress},
    report::{
        Bursts, ReceivedFlowReport, ReceivedFlowsReport, ReceivedSourceReport, RestReport,
        RxReport, SequenceReport, distribution,
    },
};
use squall_stats::{EqualBins, Histogram, Patterns, seen_together};
use squall_units::Nanos;

use crate::{equal_bins, patterns};

/// The total of a port's received frames. Sets only bursts, peaks and timestamps.
pub(crate) fn total(queues: &[PortRx]) -> RxReport {
    let seen: Vec<_> = queues.iter().filter_map(|q| q.seen.flows.as_ref()).collect();
    let resolution = seen.iter().filter_map(|flows| flows.resolution()).map(|n| n.0).min();
    // Bursts across several queues are unknown, because no queue has all their frames.
    let mut busy = seen.iter().filter(|flows| flows.total.packets > 0);
    let only = busy.next().filter(|_| busy.next().is_none());
    let peak =
        only.map(|flows| per_second(flows.total.peak.highest(), flows.settings().pace.interval));
    RxReport {
        timestamp_resolution_ns: resolution,
        peak_pps: peak.map(|p| p.0),
        peak_bps_l2: peak.map(|p| p.1),
        bursts: only.map(|flows| bursts(&flows.total.bursts)),
        ..RxReport::default()
    }
}

/// All flows on all ports; while `running`, only those with the most octets.
pub(crate) fn report(
    settings: &FlowSettings,
    plan: &Plan,
    rx: &[Vec<PortRx>],
    running: bool,
) -> ReceivedFlowsReport {
    let mut report = ReceivedFlowsReport {
        by: match settings.by {
            By::Flow => "flow",
            By::Source => "source",
            By::None => "none",
        }
        .to_owned(),
        limit: settings.limit as u64,
        interval_ns: settings.pace.interval.0,
        burst_gap_ns: settings.pace.burst_gap.0,
        ..ReceivedFlowsReport::default()
    };
    if running {
        report.flows = top_flows(settings, plan, rx);
        return report;
    }
    let all = || rx.iter().flatten().filter_map(|q| q.seen.flows.as_deref());
    let begin =
        all().filter(|f| f.total.packets > 0).map(|f| f.total.first).min().unwrap_or_default();
    let mut rest = Traffic::default();
    let mut sources: HashMap<FlowKey, (ReceivedSourceReport, Traffic)> = HashMap::new();
    for (port, queues) in rx.iter().enumerate() {
        let mut flows: BTreeMap<FlowKey, Vec<&FlowRx>> = BTreeMap::new();
        for seen in queues.iter().filter_map(|q| q.seen.flows.as_deref()) {
            rest.merge(&seen.rest);
            report.memory_octets += seen.memory() as u64;
            for flow in &seen.table {
                flows.entry(flow.key).or_default().push(&flow.value);
            }
        }
        for (key, seen) in flows {
            let (flow, traffic) = merged(settings, &key, &seen, begin);
            let flow = ReceivedFlowReport { port: plan.ports[port].name.clone(), ..flow };
            if settings.by == By::Flow {
                let (sum, all) = sources.entry(source(&key)).or_default();
                sum.flows += 1;
                let lost = flow
                    .sequence
                    .as_ref()
                    .filter(|s| s.kind != Kind::Squall.name())
                    .map(|s| s.lost);
                sum.lost = sum.lost.map_or(lost, |sum| Some(sum + lost.unwrap_or(0)));
                all.merge(&traffic);
            }
            report.flows.push(flow);
        }
    }
    report.flows.sort_by(|a, b| (b.octets, &a.name).cmp(&(a.octets, &b.name)));
    report.rest =
        (rest.packets > 0).then_some(RestReport { packets: rest.packets, octets: rest.octets });
    let source = |(key, (sum, traffic)): (FlowKey, (ReceivedSourceReport, Traffic))| {
        let (pps, bps_l2) = mean(traffic.packets, traffic.octets, traffic.span());
        ReceivedSourceReport {
            name: hosts(&key).0.to_string(),
            packets: traffic.packets,
            octets: traffic.octets,
            pps,
            bps_l2,
            ..sum
        }
    };
    report.sources = sources.into_iter().map(source).collect();
    report.sources.sort_by(|a, b| (b.octets, &a.name).cmp(&(a.octets, &b.name)));
    report
}

/// The counters of all flows that the queues have reported so far.
pub fn so_far(settings: &FlowSettings, plan: &Plan, seen: &ReceivedFlows) -> conversations::Flows {
    let begin = seen.begin.unwrap_or_default();
    let flow = |(port, flow): &(usize, FlowCount)| {
        let (src, dst) = hosts(&flow.key);
        let none = HostAddress::Other("".into());
        conversations::Flow {
            port: *port,
            src,
            dst: if settings.by == By::Source { none } else { dst },
            ports: ports_of(settings, &flow.key),
            protocol: protocol_of(settings, &flow.key),
            packets: flow.packets,
            octets: flow.octets,
            first_s: flow.first.saturating_sub(begin).as_secs_f64(),
            last_s: flow.last.saturating_sub(begin).as_secs_f64(),
            bps: mean(flow.packets, flow.octets, flow.last.saturating_sub(flow.first)).1,
            lost: flow.missing,
        }
    };
    conversations::Flows {
        ports: plan.ports.iter().map(|port| port.name.clone()).collect(),
        flows: seen.flows.iter().map(flow).collect(),
        total: seen.total as u64,
        rest: (seen.rest.0 > 0).then_some(RestReport { packets: seen.rest.0, octets: seen.rest.1 }),
    }
}

/// Counters only, without histograms.
fn top_flows(settings: &FlowSettings, plan: &Plan, rx: &[Vec<PortRx>]) -> Vec<ReceivedFlowReport> {
    let mut flows = Vec::new();
    for (port, queue) in
        rx.iter().enumerate().flat_map(|(port, queues)| queues.iter().map(move |q| (port, q)))
    {
        for flow in &queue.seen.top_flows.top {
            let sequence =
                flow.missing.map(|lost| SequenceReport { lost, ..SequenceReport::default() });
            flows.push(ReceivedFlowReport {
                port: plan.ports[port].name.clone(),
                packets: flow.packets,
                octets: flow.octets,
                sequence,
                ..named(settings, &flow.key)
            });
        }
    }
    flows.sort_by_key(|flow| Reverse(flow.octets));
    flows
}

/// Merges one flow. Each queue may have a part of it, but usually one queue has all.
fn merged(
    settings: &FlowSettings,
    key: &FlowKey,
    seen: &[&FlowRx],
    begin: Nanos,
) -> (ReceivedFlowReport, Traffic) {
    let (mut traffic, mut gaps, mut bins) =
        (Traffic::default(), Histogram::default(), None::<EqualBins>);
    for flow in seen {
        traffic.merge(&flow.traffic);
        gaps.merge(&Gaps::histogram(&flow.gaps));
        if let Some(own) = flow.gaps.bins() {
            match &mut bins {
                Some(bins) => bins.merge(own),
                none => *none = Some(own.clone()),
            }
        }
    }
    let (pps, bps_l2) = mean(traffic.packets, traffic.octets, traffic.span());
    let (peak_pps, peak_bps_l2) = per_second(traffic.peak.highest(), settings.pace.interval);
    let report = ReceivedFlowReport {
        packets: traffic.packets,
        octets: traffic.octets,
        first_s: traffic.first.saturating_sub(begin).as_secs_f64(),
        last_s: traffic.last.saturating_sub(begin).as_secs_f64(),
        pps,
        bps_l2,
        peak_pps,
        peak_bps_l2,
        bursts: bursts(&traffic.bursts),
        arrival_gap_ns: distribution(&gaps),
        arrival_gap_bins: bins.as_ref().map(equal_bins),
        sequence: sequence(seen),
        ..named(settings, key)
    };
    (report, traffic)
}

fn sequence(seen: &[&FlowRx]) -> Option<SequenceReport> {
    let signed = seen.iter().find_map(|flow| match &flow.sequence {
        Recognition::Signed(stream) => Some(*stream),
        _ => None,
    });
    if let Some(stream) = signed {
        return Some(SequenceReport {
            kind: Kind::Squall.name().into(),
            stream,
            ..SequenceReport::default()
        });
    }
    let known: Vec<&Sequenced> = seen
        .iter()
        .filter_map(|flow| match &flow.sequence {
            Recognition::Known(known) => Some(known.as_ref()),
            _ => None,
        })
        .collect();
    let first = known.first()?;
    let (unique, lost) = seen_together(known.iter().map(|k| &k.sequence));
    // A queue with too few packets to recognize the kind counts them as unnumbered.
    let unknown = seen
        .iter()
        .filter(|f| !matches!(f.sequence, Recognition::Known(_)))
        .map(|f| f.traffic.packets);
    let mut report = SequenceReport {
        kind: first.kind.name().into(),
        unnumbered_packets: unknown.sum(),
        unique_packets: unique,
        lost,
        loss_ratio: if unique + lost > 0 { lost as f64 / (unique + lost) as f64 } else { 0.0 },
        clock: match first.clock {
            SenderClock::None => "none",
            SenderClock::Other => "other",
            SenderClock::Wall => "wall",
            SenderClock::Receiver => "receiver",
        }
        .into(),
        ..SequenceReport::default()
    };
    let (mut delay, mut ipdv, mut shapes) =
        (Histogram::default(), Histogram::default(), Patterns::default());
    let mut jitter = 0.0f64;
    for one in &known {
        let counts = one.sequence.counts();
        report.unnumbered_packets += one.unnumbered;
        report.duplicates += counts.duplicates;
        report.reordered += counts.reordered;
        report.max_reordering_extent =
            report.max_reordering_extent.max(counts.max_reordering_extent);
        report.too_old += counts.too_old;
        report.restarts = report.restarts.max(one.sequence.restarts());
        report.negative_latency += one.delay.negative();
        delay.merge(one.delay.delay());
        ipdv.merge(one.delay.ipdv());
        shapes.merge(&one.sequence.patterns());
        jitter = jitter.max(one.delay.jitter_ns());
    }
    report.reordering_ratio =
        if unique > 0 { report.reordered as f64 / unique as f64 } else { 0.0 };
    report.latency_ns = distribution(&delay);
    report.ipdv_ns = distribution(&ipdv);
    report.jitter_ns = (ipdv.count() > 0).then_some(jitter);
    report.patterns = patterns(&shapes);
    Some(report)
}

/// An entry with the names of a flow, but without figures.
fn named(settings: &FlowSettings, key: &FlowKey) -> ReceivedFlowReport {
    let (src, dst) = hosts(key);
    if settings.by == By::Source {
        let src = src.to_string();
        return ReceivedFlowReport { name: src.clone(), src, ..ReceivedFlowReport::default() };
    }
    let ports = ports_of(settings, key);
    ReceivedFlowReport {
        name: key.to_string(),
        src: src.to_string(),
        dst: dst.to_string(),
        src_port: ports.map(|ports| ports.0),
        dst_port: ports.map(|ports| ports.1),
        protocol: protocol_of(settings, key).into_owned(),
        ..ReceivedFlowReport::default()
    }
}

fn ports_of(settings: &FlowSettings, key: &FlowKey) -> Option<(u16, u16)> {
    let ports = (key.src_port, key.dst_port);
    (settings.by == By::Flow && key.is_ip() && ports != (0, 0)).then_some(ports)
}

/// The protocol, or the EtherType if there is no IP layer.
fn protocol_of(settings: &FlowSettings, key: &FlowKey) -> Cow<'static, str> {
    let known = |name: Option<&'static str>, number: String| match name {
        Some(name) => Cow::Borrowed(name),
        None => Cow::Owned(number),
    };
    if settings.by == By::Source {
        return Cow::Borrowed("");
    }
    match key.is_ip() {
        true => known(protocol::name(key.protocol), key.protocol.to_string()),
        false => known(ethertype_name(key.dst_port), format!("{:#06x}", key.dst_port)),
    }
}

/// IP addresses, or MAC addresses if there is no IP layer.
fn hosts(key: &FlowKey) -> (HostAddress, HostAddress) {
    let mac = |octets: &[u8; 16]| {
        let mac = squall_units::MacAddr(std::array::from_fn(|i| octets[i]));
        HostAddress::Other(mac.to_string().into())
    };
    match (key.src_ip(), key.dst_ip()) {
        (Some(src), Some(dst)) => (HostAddress::Ip(src), HostAddress::Ip(dst)),
        _ => (mac(&key.src), mac(&key.dst)),
    }
}

fn bursts(seen: &SeenBursts) -> Bursts {
    Bursts {
        count: seen.bursts,
        mean_packets: if seen.bursts > 0 { seen.packets as f64 / seen.bursts as f64 } else { 0.0 },
        max_packets: seen.longest,
        max_ns: seen.longest_lasting.0,
    }
}

/// Frames and bits per second from the first to the last frame. n frames have n - 1 gaps between
/// them, so only the octets of n - 1 frames count.
fn mean(packets: u64, octets: u64, span: Nanos) -> (f64, f64) {
    let span = span.as_secs_f64();
    if span <= 0.0 {
        return (0.0, 0.0);
    }
    let pps = packets.saturating_sub(1) as f64 / span;
    (pps, pps * 8.0 * octets as f64 / packets.max(1) as f64)
}

fn per_second((packets, octets): (u64, u64), interval: Nanos) -> (f64, f64) {
    let seconds = interval.as_secs_f64().max(1e-9);
    (packets as f64 / seconds, octets as f64 * 8.0 / seconds)
}
