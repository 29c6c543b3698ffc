use squall_stats::Histogram;

use super::*;
use crate::report::{
    ArrivedRange, LossPeriods, PortReport, Sample, StreamSample, TxReport, distribution, flows::*,
    routes::RoutesReport, source::SourceRecord,
};

#[test]
fn routes_of_several_receivers_or_without_the_last_frames_are_left_out() {
    let routes = |sent| Some(Box::new(RoutesReport { routes: 3, sent, ..RoutesReport::default() }));
    let part = |name: &str, tx_packets, routes| {
        let rx = Some(Box::new(StreamRx { routes, ..StreamRx::default() }));
        let web = StreamReport { name: "web".into(), tx_packets, rx, ..StreamReport::default() };
        (name.to_owned(), Report { streams: vec![web], ..Report::default() })
    };
    let of = |parts| whole(parts).unwrap().streams[0].rx.clone().unwrap().routes;
    assert_eq!(of(vec![part("a", 0, routes(9)), part("b", 9, None)]), routes(9));
    assert_eq!(of(vec![part("a", 0, routes(7)), part("b", 9, None)]), None);
    let three = vec![part("a", 9, routes(9)), part("b", 0, routes(9)), part("c", 0, routes(9))];
    assert_eq!(of(three), None);
}

fn spread(values: &[u64]) -> Option<Distribution> {
    let mut histogram = Histogram::new();
    histogram.record_all(values);
    distribution(&histogram)
}

fn port(name: &str, packets: u64) -> PortReport {
    let tx = TxReport { packets, ..TxReport::default() };
    PortReport { name: name.into(), tx, ..PortReport::default() }
}

fn part(of: &str, port_name: &str, packets: u64) -> Report {
    let source = SourceRecord {
        name: port_name.into(),
        ports: vec![port_name.into()],
        ..Default::default()
    };
    Report {
        part: Some(of.into()),
        ports: vec![port(port_name, packets)],
        sources: vec![source],
        started: format!("2026-01-01T00:00:0{packets}Z"),
        ..Report::default()
    }
}

fn two(a: Report, b: Report) -> Report {
    whole(vec![("a".into(), a), ("b".into(), b)]).unwrap()
}

#[test]
fn percentiles_are_those_of_all_values_together() {
    // Values in very different ranges, for which a mean of percentiles would be far off.
    let near: Vec<u64> = (0..9_000).map(|i| 1_000 + i).collect();
    let far: Vec<u64> = (0..1_000).map(|i| 5_000_000 + 1_000 * i).collect();
    let pooled = spread(&[near.clone(), far.clone()].concat()).unwrap();
    let mut merged = spread(&near).unwrap();
    merged.merge(&spread(&far).unwrap());
    assert!((merged.mean - pooled.mean).abs() < 1e-6 * pooled.mean);
    assert!((merged.stddev - pooled.stddev).abs() < 1e-6 * pooled.stddev);
    let rest = Distribution { mean: pooled.mean, stddev: pooled.stddev, ..merged };
    assert_eq!(rest, pooled);
}

#[test]
fn a_distribution_of_nothing_changes_nothing() {
    let mut one = spread(&[5, 7]).unwrap();
    one.merge(&Distribution::default());
    let mut none = Distribution::default();
    none.merge(&one);
    assert_eq!((Some(one), Some(none)), (spread(&[5, 7]), spread(&[5, 7])));
}

#[test]
fn frames_of_all_senders_at_one_receiver_show_the_loss() {
    let sent = |n| StreamReport {
        name: "s".into(),
        port: "A".into(),
        tx_packets: n,
        ..Default::default()
    };
    let rx =
        StreamRx { ports: vec!["B".into()], packets: 15, duplicates: 2, ..StreamRx::default() };
    let received = StreamReport { name: "s".into(), rx: Some(rx.into()), ..Default::default() };
    let of = |stream| Report { streams: vec![stream], ..Report::default() };
    let parts = [sent(8), received, sent(6)].map(of);
    let names = ["a", "b", "c"].map(String::from);
    let all = whole(names.into_iter().zip(parts).collect()).unwrap();
    let [stream] = &all.streams[..] else { panic!("{:?}", all.streams) };
    let rx = stream.rx.as_ref().unwrap();
    assert_eq!((stream.tx_packets, rx.packets, rx.lost), (14, 15, 1));
    assert!((rx.loss_ratio - 1.0 / 14.0).abs() < 1e-12);
    assert_eq!(stream.port, "A, A", "no port of a report is called A, so that it is not renamed");
}

#[test]
fn more_duplicates_than_frames_are_no_overflow() {
    // Reports are files, and may have any figures.
    let rx = StreamRx { packets: 2, duplicates: 3, ..StreamRx::default() };
    let mut stream = StreamReport { rx: Some(rx.into()), ..StreamReport::default() };
    stream.merge(&StreamReport { tx_packets: 8, ..StreamReport::default() });
    assert_eq!(stream.rx.unwrap().lost, 8);
}

#[test]
fn ranges_of_nodes_that_share_a_port_are_one_range_with_unknown_losses() {
    let rx = |port: &str, packets, first, end| {
        let port: String = port.into();
        StreamRx {
            receivers: vec![ReceiverRx { port: port.clone(), packets, ..Default::default() }],
            ports: vec![port],
            packets,
            arrived: Some(ArrivedRange { first, end, losses: LossPeriods::one(first + 1, 2) }),
            ..StreamRx::default()
        }
    };
    let mut shared = StreamRx { ports: vec!["one/B".into()], ..rx("B", 40, 3, 90) };
    shared.merge(&rx("B", 50, 5, 95));
    assert_eq!(shared.arrived, Some(ArrivedRange { first: 3, end: 95, losses: None }));
    let all = shared.arrived.unwrap().losses_of(100, 10).unwrap();
    assert_eq!((all.periods, all.longest, all.longest_from, all.last), (3, 5, 95, 99));
    // With two ports, the one with more received frames counts.
    let mut flooded = rx("B", 40, 3, 90);
    flooded.merge(&rx("C", 50, 5, 95));
    let losses = LossPeriods::one(6, 2);
    assert_eq!(flooded.arrived, Some(ArrivedRange { first: 5, end: 95, losses }));
    let none = ArrivedRange { losses: Some(LossPeriods::default()), ..Default::default() };
    assert_eq!(none.losses_of(7, 7), LossPeriods::one(0, 7));
}

#[test]
fn ports_of_one_name_get_that_of_their_part() {
    let mut one = part("1/2", "A", 3);
    one.streams = vec![StreamReport { name: "s".into(), port: "A".into(), ..Default::default() }];
    let all = two(one, part("2/2", "A", 4));
    let ports: Vec<_> = all.ports.iter().map(|port| port.name.as_str()).collect();
    assert_eq!(ports, ["a/A", "b/A"]);
    assert_eq!(all.streams[0].port, "a/A");
    let sources: Vec<_> =
        all.sources.iter().map(|s| (s.name.as_str(), s.ports[0].as_str())).collect();
    assert_eq!(sources, [("a/A", "a/A"), ("b/A", "b/A")]);
    assert_eq!((all.started.as_str(), all.part), ("2026-01-01T00:00:03Z", None));
    assert_eq!(all.parts.iter().map(|part| part.tx_packets).collect::<Vec<_>>(), [3, 4]);
    assert!(all.verdict.valid);
    let distinct = two(part("1/2", "A", 3), part("2/2", "B", 4));
    assert_eq!(distinct.ports[1].name, "B");
}

#[test]
fn attacks_whose_rule_excludes_their_host_are_known_to_one_node_and_counted_once() {
    let node = |own: &str, other: &str, unseen: u64| {
        let away = PortReport { address: "elsewhere:node".into(), ..port(other, 0) };
        let attack = AttackReport { name: "scan".into(), attacks: 9, unseen, ..Default::default() };
        Report { ports: vec![port(own, 1), away], attacks: vec![attack], ..Report::default() }
    };
    for [first, second] in [[5, 2], [2, 5], [2, 2]] {
        let attack = &two(node("A", "B", first), node("B", "A", second)).attacks[0];
        assert_eq!((attack.attacks, attack.unseen), (9, first.max(second)));
    }
}

#[test]
fn a_part_that_is_absent_is_named_and_the_whole_is_not_valid() {
    let all = two(part("1/3", "A", 3), part("3/3", "B", 4));
    assert_eq!(all.verdict.status, VerdictStatus::NotValid);
    let [reason] = &all.verdict.reasons[..] else { panic!("{:?}", all.verdict) };
    assert!(reason.text.contains("2/3"), "{reason}");
}

#[test]
fn a_node_that_its_controller_missed_makes_a_valid_whole_not_valid() {
    let mut all = two(part("1/2", "A", 3), part("2/2", "B", 4));
    assert!(all.verdict.valid, "{:?}", all.verdict);
    all.lacks_results_of("node3", "its lease expired once, and its traffic was paused");
    assert_eq!((all.verdict.status, all.verdict.valid), (VerdictStatus::NotValid, false));
    let reason = &all.verdict.reasons[0];
    assert!(reason.text.contains(r#""node3""#) && reason.text.contains("expired"), "{reason}");
}

#[test]
fn one_that_is_not_valid_makes_the_whole_so() {
    let mut bad = part("2/2", "B", 4);
    bad.verdict.add_reason(ReasonCode::GeneratorBound, "late".into(), "");
    let verdict = two(part("1/2", "A", 3), bad).verdict;
    assert_eq!((verdict.status, verdict.valid), (VerdictStatus::NotValid, false));
    assert_eq!(verdict.reasons[0].text, "b: late");
}

#[test]
fn reports_that_are_not_of_one_run_are_refused() {
    let refused = |a, b| whole(vec![("a".into(), a), ("b".into(), b)]).unwrap_err().to_string();
    assert!(refused(part("1/2", "A", 3), part("1/2", "A", 3)).contains("both part 1/2"));
    assert!(refused(part("1/2", "A", 3), part("2/3", "A", 3)).contains("one of 2 parts"));
    let other = Report { squall_version: "0".into(), ..Report::default() };
    assert!(refused(other, Report::default()).contains("version"));
    let merged = two(part("1/2", "A", 3), part("2/2", "A", 3));
    assert!(refused(merged, Report::default()).contains("several parts itself"));
    assert!(whole(Vec::new()).is_err());
}

#[test]
fn flows_of_a_template_are_added_at_each_end() {
    let role = |completed, setup: &[u64]| RoleReport {
        completed,
        setup_ns: spread(setup),
        failed: BTreeMap::from([("reset".to_owned(), 1)]),
        http2: Some(Http2Report {
            streams: completed,
            left_out: 1,
            fallbacks: 2,
            repeated: 3,
            violations: BTreeMap::from([("window".to_owned(), 1)]),
            ..Http2Report::default()
        }),
        http3: Some(Http3Report { packets_lost: 2, ..Http3Report::default() }),
        ..RoleReport::default()
    };
    let of = |roles: RolesReport| {
        let template = TemplateReport { name: "web".into(), roles: roles.clone() };
        let flows =
            FlowsReport { templates: vec![template], total: roles, ..FlowsReport::default() };
        Report { flows: Some(flows), ..Report::default() }
    };
    let clients = |n, setup| of(RolesReport { client: Some(role(n, setup)), server: None });
    let servers = of(RolesReport { client: None, server: Some(role(7, &[])) });
    let parts = [clients(3, &[10, 20]), clients(4, &[30]), servers];
    let names = ["a", "b", "c"].map(String::from);
    let flows = whole(names.into_iter().zip(parts).collect()).unwrap().flows.unwrap();
    let client = flows.total.client.as_ref().unwrap();
    assert_eq!((client.completed, client.failed["reset"]), (7, 2));
    assert_eq!(client.setup_ns, spread(&[10, 20, 30]));
    let figures = client.http2();
    for figure in [
        ("streams", 7),
        ("violations: window", 2),
        ("left out by GOAWAY", 2),
        ("connections of HTTP/1.1", 4),
        ("requests sent again", 6),
    ] {
        assert!(figures.contains(&(figure.0.to_owned(), figure.1)), "{figures:?}");
    }
    assert!(client.http3().contains(&("lost".to_owned(), 4)), "{:?}", client.http3());
    assert_eq!(flows.total.server.unwrap().completed, 7);
    assert_eq!(flows.templates.len(), 1);
}

#[test]
fn samples_of_one_time_are_one_sample() {
    let sample = |t_s, tx_pps| Sample {
        t_s,
        streams: vec![StreamSample {
            name: "s".into(),
            tx_pps,
            latency_p50_ns: Some(5),
            ..Default::default()
        }],
        ..Sample::default()
    };
    let series = |late: f64, rate: f64, step: f64| Report {
        series: (1..=3).map(|i| sample(step * f64::from(i) + late, rate)).collect(),
        ..Report::default()
    };
    let all = two(series(0.0, 10.0, 1.0), series(0.1, 20.0, 1.0));
    let rates: Vec<_> =
        all.series.iter().map(|s| (s.streams[0].tx_pps, s.streams[0].latency_p50_ns)).collect();
    assert_eq!(rates, [(30.0, None); 3]);
    let different = two(series(0.0, 10.0, 1.0), series(0.0, 20.0, 2.0));
    assert!(
        different.series.is_empty() && different.notes[0].contains("intervals"),
        "{:?}",
        different.notes
    );
}
