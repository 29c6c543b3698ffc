//! An invented report of a busy minute on a veth pair, for tests of the views.

use std::collections::BTreeMap;

use crate::report::{
    Asked, Contention, Cpu, Distribution, EndedBy, Host, InterfaceReport, Memory, PortReport,
    PortSample, Reason, ReasonCode, Report, RxReport, SCHEMA, Sample, StreamReport, StreamRx,
    StreamSample, TxReport, Verdict, VerdictStatus, WorkerReport,
    source::{Excess, SourceRecord},
};

/// The same as [`report`], for a run that only received: port B has frames of another sender's
/// streams, 40 fewer than the interface counted.
#[cfg(test)]
pub fn received(streams: usize) -> Report {
    let mut report = report(streams);
    report.ports.remove(0);
    let port = &mut report.ports[0];
    (port.tx, port.rx.drops) = Default::default();
    let interface =
        InterfaceReport { rx_packets: port.rx.packets + 40, ..InterfaceReport::default() };
    port.interface = Some(interface);
    report.verdict = Verdict::default();
    for stream in &mut report.streams {
        stream.port.clear();
        (stream.tx_packets, stream.asked_pps, stream.not_sent) = Default::default();
        stream.departure_error_ns = None;
    }
    report.command = "squall recv --port veth-b".into();
    report
}

/// The same as [`report`], but with flows of `templates` templates instead of streams.
#[cfg(test)]
pub fn loaded(templates: usize) -> Report {
    use crate::report::{
        TemplateSample,
        flows::{
            ALL, BusiestSecond, FlowsReport, RoleReport, RolesReport, SteadyReport, TemplateReport,
        },
    };
    let mut report = report(0);
    let role = |n: u64| RoleReport {
        attempted: 1000 * n,
        completed: 999 * n,
        failed: [("reset".to_owned(), n)].into(),
        cps: 33.3 * n as f64,
        asked_cps: Some(40.0 * n as f64),
        steady: Some(SteadyReport {
            duration_s: 25.0,
            attempted_cps: 40.0 * n as f64,
            completed_cps: 39.9 * n as f64,
            goodput_bps: 1e6,
        }),
        busiest_second: Some(BusiestSecond { attempted: 41 * n, completed: 40 * n }),
        ..RoleReport::default()
    };
    let roles = |n| RolesReport {
        client: Some(role(n)),
        server: Some(RoleReport { steady: None, ..role(n) }),
    };
    let names: Vec<_> = (1..=templates).map(|i| format!("<i>app {i}")).collect();
    let template = |name: &String| TemplateReport { name: name.clone(), roles: roles(1) };
    report.flows = Some(FlowsReport {
        duration_s: 30.0,
        templates: names.iter().map(template).collect(),
        total: roles(templates as u64),
        ..FlowsReport::default()
    });
    let total = (templates > 1).then(|| ALL.to_owned());
    for (k, sample) in (1u64..).zip(&mut report.series) {
        let row = |name: &String, side: &str| TemplateSample {
            name: name.clone(),
            side: side.into(),
            active: 10 + k,
            attempted_cps: 1e4,
            completed_cps: 9.9e3,
            failed: k,
            not_begun: 5,
            late: 3,
            goodput_bps: 8e7,
            setup_p99_ns: Some(1_000_000),
            transaction_p99_ns: (side == "client").then_some(2_000_000),
        };
        let names = names.iter().chain(&total);
        sample.flows =
            names.flat_map(|name| ["client", "server"].map(|side| row(name, side))).collect();
    }
    report
}

const SECONDS: u32 = 30;
const PER_SECOND: u32 = 4;

/// Two ports and `streams` streams from A to B, the last of which is not measured. The rate has a
/// dip at two thirds of the run.
pub fn report(streams: usize) -> Report {
    let mut chance = Chance(0x5eed);
    let pps = 1.2e6 / streams.max(1) as f64;
    let names: Vec<String> = (0..streams)
        .map(|i| match i {
            0 => "imix a→b".into(),
            1 => "<b>dns</b> & \"friends\" </script>".into(),
            _ => format!("customer {i:05} vlan {}", 100 + i % 4000),
        })
        .collect();
    let streams: Vec<StreamReport> =
        names.iter().enumerate().map(|(i, n)| stream(i, n, pps, &mut chance)).collect();
    let series = (1..=SECONDS * PER_SECOND).map(|k| sample(k, &streams, &mut chance)).collect();
    let sent: u64 = streams.iter().map(|s| s.tx_packets).sum();
    let lost: u64 = streams.iter().filter_map(|s| s.rx.as_ref()).map(|rx| rx.lost).sum();
    Report {
        schema: SCHEMA.into(),
        command: "squall run examples/profiles/imix.toml --duration 30s --report \
                  squall-report.html"
            .into(),
        squall_version: "0.1.0".into(),
        started: "2026-11-21T14:31:07Z".into(),
        duration_s: f64::from(SECONDS),
        asked: Asked { duration_s: Some(f64::from(SECONDS)), ..Asked::default() },
        cut_short: false,
        sources: vec![SourceRecord {
            name: "A".into(),
            unit: "packets".into(),
            asked: sent + 1250,
            sent,
            excess: Some(Excess {
                window_s: 0.01,
                beyond_s: 0.0004,
                allowed_s: 0.0012,
                ..Excess::default()
            }),
            ..SourceRecord::default()
        }],
        seed: 42,
        part: None,
        node: None,
        clock: None,
        start: None,
        parts: Vec::new(),
        filter: None,
        host: Host {
            name: "lab-3".into(),
            os: "Debian GNU/Linux 12".into(),
            kernel: "6.18.0".into(),
            cpu_model: "AMD EPYC 7763 64-Core Processor".into(),
            cpus: 2,
        },
        verdict: Verdict {
            status: VerdictStatus::NotValid,
            valid: false,
            failed: Vec::new(),
            ended_by: EndedBy::Duration,
            reasons: vec![
                Reason {
                    code: ReasonCode::GeneratorBound,
                    text: "port A: 1,250 frames were due and not sent (late 1250)".into(),
                    hint: String::new(),
                },
                Reason {
                    code: ReasonCode::CountersDiffer,
                    text: format!(
                        "port A took {sent} frames, its interface sent {}",
                        sent.saturating_sub(3)
                    ),
                    hint: String::new(),
                },
            ],
        },
        ports: vec![
            port("A", "af_packet:veth-a", sent, 0, 0, 3),
            port("B", "af_packet:veth-b", 0, sent - lost, lost, 0),
        ],
        streams,
        capture: None,
        replays: Vec::new(),
        flows: None,
        attacks: Vec::new(),
        hosts: Vec::new(),
        routers: Vec::new(),
        received_flows: None,
        workers: vec![WorkerReport {
            cpu: Some(0),
            cpu_s: 29.9,
            tx_packets: sent,
            rx_packets: sent - lost,
        }],
        series,
        cpu: Cpu { user_s: 11.2, system_s: 24.9, per_mpkt_s: Some(1.03) },
        contention: Contention::default(),
        memory: Memory { peak_rss_octets: 48_300_000 },
        notes: vec![
            "port B: no kernel timestamps, arrival instants are taken in the process".into(),
        ],
    }
}

fn port(
    name: &str,
    address: &str,
    sent: u64,
    received: u64,
    dropped: u64,
    surplus: u64,
) -> PortReport {
    let per_second = |n: u64| n as f64 / f64::from(SECONDS);
    let octets = |n: u64| n * 374;
    let reasons = |reasons: &[(&str, u64)]| -> BTreeMap<String, u64> {
        reasons.iter().filter(|r| r.1 > 0).map(|(r, n)| ((*r).into(), *n)).collect()
    };
    PortReport {
        name: name.into(),
        address: address.into(),
        timestamps: "process".into(),
        tx: TxReport {
            packets: sent,
            octets: octets(sent),
            pps: per_second(sent),
            bps_l1: per_second(sent) * 394.0 * 8.0,
            bps_l2: per_second(sent) * 374.0 * 8.0,
            gso_frames: 0,
            segments: 0,
            errors: 0,
            not_sent: reasons(if sent > 0 { &[("late", 1250), ("ring full", 12)] } else { &[] }),
            blocked_s: if sent > 0 { 0.0312 } else { 0.0 },
            sending_s: if sent > 0 { 11.9 } else { 0.0 },
            departure_error_ns: None,
            fingerprint: (sent > 0).then(|| "9f86d081884c7d659a2feaa0c55ad015".into()),
            pacing: None,
        },
        rx: RxReport {
            packets: received,
            octets: octets(received),
            pps: per_second(received),
            bps_l1: per_second(received) * 394.0 * 8.0,
            bps_l2: per_second(received) * 374.0 * 8.0,
            gso_frames: 0,
            segments: 0,
            unsigned_packets: 0,
            foreign_packets: 0,
            foreign: Vec::new(),
            drops: reasons(&[("ring full", dropped)]),
            fingerprint: None,
            arrival_gap_bins: None,
            arrival_gap_ns: (received > 0)
                .then(|| distribution(20_000, 833.0, 0.5, &mut Chance(9))),
            ..RxReport::default()
        },
        interface: Some(InterfaceReport {
            tx_packets: sent + surplus,
            tx_octets: octets(sent + surplus) - 4 * (sent + surplus),
            rx_packets: received + dropped,
            rx_octets: octets(received + dropped) - 4 * (received + dropped),
            ..InterfaceReport::default()
        }),
        link_events: Vec::new(),
        mtu_changes: Vec::new(),
    }
}

fn stream(i: usize, name: &str, pps: f64, chance: &mut Chance) -> StreamReport {
    let sent = (pps * f64::from(SECONDS) * (1.0 - 0.001 * chance.unit())) as u64;
    let lost = if i.is_multiple_of(7) { (sent as f64 * 2e-4 * chance.unit()) as u64 } else { 0 };
    let samples = if i < 20 { 20_000 } else { 200 };
    let measured = i == 0 || i % 10 != 2;
    let latency = 2_300.0 * (1.0 + 0.2 * chance.unit());
    StreamReport {
        name: name.into(),
        port: "A".into(),
        group: None,
        tx_packets: sent,
        tx_octets: sent * 374,
        tx_pps: sent as f64 / f64::from(SECONDS),
        asked_pps: (i % 10 != 3).then_some(pps),
        not_sent: (i == 0).then_some(("late", 1250)).into_iter().collect(),
        departure_error_ns: Some(distribution(samples, 420.0, 0.9, chance)),
        rx: measured.then(|| {
            Box::new(StreamRx {
                ports: vec!["B".into()],
                packets: sent - lost,
                octets: (sent - lost) * 374,
                lost,
                loss_ratio: lost as f64 / sent.max(1) as f64,
                duplicates: 0,
                reordered: u64::from(i == 1) * 17,
                max_reordering_extent: u64::from(i == 1) * 3,
                latency_ns: Some(distribution(samples, latency, 0.35, chance)),
                ipdv_ns: Some(distribution(samples, 310.0, 1.0, chance)),
                arrival_gap_ns: Some(distribution(samples, 1e9 / pps, 0.12, chance)),
                ..StreamRx::default()
            })
        }),
    }
}

fn sample(k: u32, streams: &[StreamReport], chance: &mut Chance) -> Sample {
    let t_s = f64::from(k) / f64::from(PER_SECOND);
    // Another program used the CPU during this time.
    let dip = if (20.0..21.5).contains(&t_s) { 0.8 } else { 1.0 };
    let mut total = (0.0, 0.0);
    let streams = streams
        .iter()
        .map(|s| {
            let tx_pps = s.tx_pps * dip * (1.0 + 0.002 * chance.normal());
            total.0 += tx_pps;
            let rx = s.rx.as_ref();
            let latency = rx.and_then(|rx| rx.latency_ns.as_ref());
            let mut noisy =
                |ns: u64| (ns as f64 * (1.0 + 0.05 * chance.normal()) / dip.powi(4)) as u64;
            total.1 += tx_pps;
            StreamSample {
                name: s.name.clone(),
                tx_pps,
                rx_pps: if rx.is_some() { tx_pps } else { 0.0 },
                lost: rx.map_or(0, |rx| (rx.lost as f64 * t_s / f64::from(SECONDS)) as u64),
                latency_p50_ns: latency.map(|l| noisy(l.p50)),
                latency_p99_ns: latency.map(|l| noisy(l.p99)),
                late_p99_ns: s.departure_error_ns.as_ref().map(|d| noisy(d.p99)),
            }
        })
        .collect();
    let port = |name: &str, tx_pps: f64, rx_pps: f64| PortSample {
        name: name.into(),
        tx_pps,
        tx_bps_l1: tx_pps * 394.0 * 8.0,
        tx_bps_l2: tx_pps * 374.0 * 8.0,
        rx_pps,
        rx_bps_l1: rx_pps * 394.0 * 8.0,
        rx_bps_l2: rx_pps * 374.0 * 8.0,
    };
    Sample {
        t_s,
        ports: vec![port("A", total.0, 0.0), port("B", 0.0, total.1)],
        streams,
        capture: None,
        flows: Vec::new(),
    }
}

/// A log-normal distribution around `median`, in bins of a sixteenth of an octave.
fn distribution(samples: usize, median: f64, sigma: f64, chance: &mut Chance) -> Distribution {
    let mut values: Vec<u64> =
        (0..samples).map(|_| (median * (sigma * chance.normal()).exp()) as u64).collect();
    values.sort_unstable();
    let edge = |k: u32| {
        let (octave, part) = (k / 16, u64::from(k % 16));
        if octave < 4 { u64::from(k) } else { ((16 + part) << octave) >> 4 }
    };
    let mut edges: Vec<u64> = (0..64).chain((64..640).map(edge)).collect();
    edges.dedup();
    edges.retain(|e| *e < u64::MAX / 2);
    edges.sort_unstable();
    edges.dedup();
    let mut bins: Vec<(u64, u64, u64)> = Vec::new();
    for v in &values {
        let i = edges.partition_point(|e| e <= v);
        let (low, high) = (edges[i - 1], edges.get(i).copied().unwrap_or(u64::MAX));
        match bins.last_mut() {
            Some(last) if last.0 == low => last.2 += 1,
            _ => bins.push((low, high, 1)),
        }
    }
    let at = |q: f64| values[((samples as f64 * q) as usize).min(samples - 1)];
    let mean = values.iter().sum::<u64>() as f64 / samples as f64;
    let variance = values.iter().map(|v| (*v as f64 - mean).powi(2)).sum::<f64>() / samples as f64;
    Distribution {
        count: samples as u64,
        min: values[0],
        mean,
        stddev: variance.sqrt(),
        p50: at(0.5),
        p90: at(0.9),
        p95: at(0.95),
        p99: at(0.99),
        p999: at(0.999),
        max: values[samples - 1],
        bins,
    }
}

/// Pseudorandom numbers, the same in each run.
struct Chance(u64);

impl Chance {
    fn unit(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}
