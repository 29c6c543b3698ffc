use proptest::prelude::*;

use super::{alerts::Format, *};

const SECOND: u64 = 1_000_000_000;
const EPOCH: u64 = 1_700_000_000;

fn label(attack: u64, kind: Kind, sid: u32, source: &str, port: u16, begin: u64) -> Label {
    Label {
        attack,
        begin: Nanos((EPOCH + begin) * SECOND),
        end: Nanos((EPOCH + begin) * SECOND + SECOND / 2),
        protocol: 6,
        source: source.parse().unwrap(),
        source_port: port,
        destination: if source.contains(':') { "2001:db8:1::1" } else { "10.0.0.1" }
            .parse()
            .unwrap(),
        destination_port: 80,
        kind,
        gid: u32::from(sid > 0),
        sid,
        rev: 1,
        msg: format!("rule {sid}"),
        also: vec![],
        alerts: u32::from(kind == Kind::Attack),
        frames: 10,
        name: String::new(),
        note: String::new(),
    }
}

fn read(log: &str) -> Vec<Result<Alert, String>> {
    alerts::Reader::new(log.as_bytes()).year(2023).map(|a| a.map_err(|e| e.to_string())).collect()
}

fn alert() -> Alert {
    Alert {
        at: Some(Nanos(EPOCH * SECOND + 123_456_000)),
        gid: 1,
        sid: 1000,
        rev: 2,
        msg: "A, \"B\" {C} [**] D".into(),
        protocol: Some(6),
        source: "192.168.0.2".parse().unwrap(),
        source_port: 40_000,
        destination: "10.0.0.1".parse().unwrap(),
        destination_port: 80,
        count: 1,
        flow: None,
        application: None,
        blocked: false,
    }
}

#[test]
fn each_form_of_log_is_the_same_alert() {
    let logs = [
        (
            Format::Fast,
            "11/14/2023-22:13:20.123456  [**] [1:1000:2] A, \"B\" {C} [**] D [**] \
             [Classification: (null)] [Priority: 3] {TCP} 192.168.0.2:40000 -> 10.0.0.1:80\n",
        ),
        (
            Format::Fast,
            "11/14-22:13:20.123456 [**] [1:1000:2] \"A, \"B\" {C} [**] D\" [**] [Priority: 0] \
             [AppID: HTTP] {TCP} 192.168.0.2:40000 -> 10.0.0.1:80\n",
        ),
        (
            Format::Csv,
            "11/14-22:13:20.123456, 5, TCP, raw, 60, C2S, 192.168.0.2:40000, 10.0.0.1:80, \
             1:1000:2, allow\n",
        ),
        (
            Format::Csv,
            "11/14/23-22:13:20.123456 ,1,1000,2,\"A, \"\"B\"\" {C} [**] \
             D\",TCP,192.168.0.2,40000,10.0.0.1,80,02:00:00:00:00:01,02:00:00:00:00:02,0x4A,***AP*\
             **,0x1,0x2,,0x1F6,64,0,1,60,61440,,,,\n",
        ),
        (
            Format::Csv,
            "event_second,event_microsecond,generator_id,signature_id,signature_revision,msg,\
             protocol,ip_source,sport_itype,ip_destination,dport_icode\n1700000000,123456,1,1000,\
             2,\"A, \"\"B\"\" {C} [**] D\",6,192.168.0.2,40000,10.0.0.1,80\n",
        ),
        (
            Format::Tsv,
            "sid\tproto\tsrc\tsport\tdst\tdport\tcount\tgid\trev\ttimestamp\tmsg\n1000\tTCP\t192.\
             168.0.2\t40000\t10.0.0.1\t80\t1\t1\t2\t1700000000.123456\tA, \"B\" {C} [**] D\n",
        ),
        (
            Format::U2spewfoo,
            "(Event)\n\tsensor id: 0\tevent id: 1\tevent second: 1700000000\tevent microsecond: \
             123456\n\tsig id: 1000\tgen id: 1\trevision: 2\t classification: 0\n\tpriority: \
             3\tip source: 192.168.0.2\tip destination: 10.0.0.1\n\tsrc port: 40000\tdest port: \
             80\tprotocol: 6\timpact_flag: 0\tblocked: 0\n\tmpls label: 0\tvland id: 0\tpolicy \
             id: 0\n\nPacket\n\tsensor id: 0\tevent id: 1\tevent second: 1\n[    0] 02 00 00 00  \
             ....\n",
        ),
        (
            Format::Json,
            "{\"timestamp\":\"2023-11-14T22:13:20.123456+0000\",\"flow_id\":77,\"event_type\":\"\
             alert\",\"src_ip\":\"192.168.0.2\",\"src_port\":40000,\"dest_ip\":\"10.0.0.1\",\"\
             dest_port\":80,\"proto\":\"TCP\",\"alert\":{\"action\":\"blocked\",\"gid\":1,\"\
             signature_id\":1000,\"rev\":2,\"signature\":\"A, \\\"B\\\" {C} [**] \
             D\",\"category\":\"\",\"severity\":3},\"app_proto\":\"http\",\"http\":{\"url\":\"/\"\
             }}\n",
        ),
        (
            Format::Json,
            "{ \"seconds\" : 1700000000, \"pkt_num\" : 5, \"src_ap\" : \"192.168.0.2:40000\", \
             \"proto\" : \"TCP\", \"dst_ap\" : \"10.0.0.1:80\", \"rule\" : \"1:1000:2\", \
             \"action\" : \"allow\", \"microseconds\": 123456, \"msg\" : \"A, \\\"B\\\" {C} [**] \
             D\" }\n",
        ),
    ];
    for (format, log) in logs {
        for log in [log.to_string(), log.replace('\n', "\r\n")] {
            let mut reader = alerts::Reader::new(log.as_bytes()).year(2023);
            let read: Vec<Alert> = reader.by_ref().map(Result::unwrap).collect();
            assert_eq!(read.len(), 1, "{log}");
            assert_eq!(reader.format(), Some(format), "{log}");
            for mut found in read {
                let is_eve = log.contains("flow_id");
                assert_eq!(
                    (found.flow.take(), found.blocked),
                    (is_eve.then_some(77), is_eve),
                    "{log}"
                );
                assert_eq!(found.application.take(), is_eve.then(|| "http".to_string()));
                found.blocked = false;
                // These formats lack the message.
                if log.contains("C2S") || format == Format::U2spewfoo {
                    found.msg = alert().msg;
                }
                assert_eq!(found, alert(), "{log}");
            }
        }
    }
}

#[test]
fn addresses_of_ipv6_and_packets_without_ports_are_read() {
    let log = "\
11/14/2023-22:13:20.1  [**] [1:1:1] a [**] [Priority: 3] {TCP} \
               2001:0db8:0000:0000:0000:0000:0000:0002:40000 -> 2001:db8:1::1:80
11/14/2023-22:13:20.1  [**] [1:1:1] a [**] [Priority: 3] {IPv6-ICMP} \
               2001:0db8:0000:0000:0000:0000:0000:0002:128 -> 2001:db8:1::1:0
11/14/2023-22:13:20.1  [**] [1:1:1] a [**] [Priority: 3] {IPV6-ICMP} 2001:db8::2 -> 2001:db8:1::1
11/14/2023-22:13:20.1  [Drop] [**] [1:1:1] a [**] [Priority: 3] {UDP} [2001:db8::2]:5 -> \
               [2001:db8:1::1]:53
11/14/2023-22:13:20.1  [**] [1:1:1] a [**] [Priority: 3] {ICMP} 192.168.0.2:8 -> 10.0.0.1:0
11/14/2023-22:13:20.1  [**] [1:1:1] a [**] [Priority: 3] {PROTO:103} 192.168.0.2 -> 10.0.0.1
";
    let read: Vec<Alert> = read(log).into_iter().map(Result::unwrap).collect();
    let alerts_read: Vec<_> = read
        .iter()
        .map(|a| {
            (
                a.protocol.unwrap(),
                a.source.to_string(),
                a.source_port,
                a.destination_port,
                a.blocked,
            )
        })
        .collect();
    let (six, four) = ("2001:db8::2".to_string(), "192.168.0.2".to_string());
    assert_eq!(alerts_read[0], (6, six.clone(), 40_000, 80, false));
    assert_eq!((alerts_read[1].0, &alerts_read[1].1), (58, &six));
    assert_eq!(alerts_read[2], (58, six.clone(), 0, 0, false));
    assert_eq!(alerts_read[3], (17, six, 5, 53, true));
    assert_eq!((alerts_read[4].0, &alerts_read[4].1), (1, &four));
    assert_eq!(alerts_read[5], (103, four, 0, 0, false));
}

#[test]
fn lines_other_than_alerts_are_counted_and_reported() {
    let log = "{\"event_type\":\"flow\",\"x\":{\n{\"event_type\":\"alert\",\"alert\":{\"\
               signature_id\":\"x\"}}\nno\n\n{\"event_type\":\"stats\"}\n";
    let mut reader = alerts::Reader::new(log.as_bytes());
    let read = Scorer::new(vec![], Settings::default()).read(&mut reader);
    assert_eq!((read.lines, read.alerts, read.skipped, read.bad), (5, 0, 2, 2));
    let errors: Vec<String> = read.errors.iter().map(ToString::to_string).collect();
    assert!(errors[0].starts_with("2:") && errors[1].starts_with("3:"), "{errors:?}");

    let log = "sid,proto,src,sport,dst,dport\n1,TCP,1.2.3.4,x,5.6.7.8,80\n1,TCP,1.2.3.4,1,5.6.7.8,\
               80\n1,TCP,1.2.3.4\n";
    let read: Vec<_> = self::read(log);
    assert_eq!(read[0].as_ref().unwrap_err(), "2:15: found \"x\", expected a port");
    assert!(read[1].is_ok());
    assert_eq!(read[2].as_ref().unwrap_err(), "4:1: the alert has no destination");

    let read = self::read("hello\nworld\n");
    assert!(read.len() == 1 && read[0].as_ref().unwrap_err().contains("eve.json"), "{read:?}");
}

/// The time `at` is in seconds after the epoch above.
fn eve(sid: u32, source: &str, port: u16, at: f64) -> Alert {
    let destination = if source.contains(':') { "2001:db8:1::1" } else { "10.0.0.1" };
    Alert {
        at: Some(Nanos(EPOCH * SECOND + (at * 1e9) as u64)),
        sid,
        source: source.parse().unwrap(),
        source_port: port,
        destination: destination.parse().unwrap(),
        ..alert()
    }
}

fn turned(alert: Alert) -> Alert {
    Alert {
        source: alert.destination,
        source_port: alert.destination_port,
        destination: alert.source,
        destination_port: alert.source_port,
        ..alert
    }
}

#[test]
fn a_score_is_counted_by_hand() {
    let mut labels = vec![
        label(0, Kind::Attack, 1, "192.168.0.2", 1000, 0),
        label(1, Kind::Attack, 2, "192.168.0.3", 1000, 1),
        label(2, Kind::Attack, 3, "2001:db8::4", 1000, 2),
        label(3, Kind::NearMiss, 1, "192.168.0.5", 1000, 3),
        label(4, Kind::NearMiss, 2, "192.168.0.6", 1000, 4),
        label(5, Kind::Benign, 0, "192.168.0.7", 1000, 5),
        label(6, Kind::Benign, 0, "192.168.0.8", 1000, 6),
        label(7, Kind::Attack, 0, "192.168.0.9", 1000, 7),
    ];
    labels[0].alerts = 2;
    labels[2].also = vec![9];
    labels[7].name = "scan".into();
    let mut scorer = Scorer::new(labels, Settings::default());
    for alert in [
        // Attack 0: one of two hits, and an alert from another rule.
        turned(eve(1, "192.168.0.2", 1000, 0.25)),
        eve(2, "192.168.0.2", 1000, 0.3),
        // Attack 1: missed. Attack 2: three alerts although one is owed, and an additional one that
        // was expected.
        eve(3, "2001:db8::4", 1000, 2.75),
        eve(3, "2001:db8::4", 1000, 2.5),
        eve(3, "2001:db8::4", 1000, 2.8),
        eve(9, "2001:db8::4", 1000, 2.1),
        // Near miss 3 alerts, near miss 4 does not.
        eve(1, "192.168.0.5", 1000, 3.1),
        // Benign conversation 5 has two alerts.
        eve(4, "192.168.0.7", 1000, 5.1),
        eve(4, "192.168.0.7", 1000, 5.2),
        eve(5, "192.168.0.9", 1000, 7.5),
        // Not in a labeled conversation.
        eve(6, "192.168.0.2", 999, 0.1),
    ] {
        scorer.alert(&alert);
    }
    let verdicts: Vec<_> = scorer.verdicts().map(|v| (v.own, v.also, v.collateral)).collect();
    assert_eq!(verdicts[..3], [(1, 0, 1), (0, 0, 0), (3, 1, 0)]);
    let score = scorer.finish();
    assert_eq!((score.labels, score.alerts, score.outside), (8, 11, 1));
    let expected = Counts {
        attacks: 3,
        hit: 2,
        missed: 1,
        short: 1,
        owing_none: 0,
        alerts_unowed: 0,
        alerts_owed: 4,
        alerts_own: 4,
        duplicates: 2,
        near_misses: 2,
        near_misses_alerted: 1,
        near_miss_alerts: 1,
        benign: 2,
        benign_alerted: 1,
        benign_alerts: 2,
        alerts_also: 1,
        collateral: 1,
        collateral_conversations: 1,
    };
    assert_eq!(score.counts, expected);
    let confusion =
        Confusion { true_positives: 2, false_positives: 2, true_negatives: 2, false_negatives: 1 };
    assert_eq!(score.confusion, confusion);
    let expected = Rates {
        detection: Some(2.0 / 3.0),
        false_positive: Some(0.5),
        benign_false_positive: Some(0.5),
        precision: Some(0.5),
        f1: Some(4.0 / 7.0),
        accuracy: Some(4.0 / 7.0),
    };
    assert_eq!(score.rates, expected);
    let latency = score.latency_from_begin.as_ref().unwrap();
    assert_eq!(
        (latency.count, latency.min_ns, latency.median_ns, latency.max_ns),
        (2, 250_000_000, 250_000_000, 500_000_000)
    );
    assert_eq!(score.latency_from_end.as_ref().unwrap().min_ns, -250_000_000);
    let scenario = ScenarioScore {
        name: "scan".into(),
        conversations: 1,
        alerted: 1,
        alerts: 1,
        first_alert_ns: Some(500_000_000),
    };
    assert_eq!(score.scenarios, [scenario]);
    assert_eq!(
        score.rules.iter().map(|r| (r.sid, r.counts.hit, r.counts.missed)).collect::<Vec<_>>(),
        [(1, 1, 0), (2, 0, 1), (3, 1, 0)]
    );
    assert_eq!(score.rules[1].missed_attacks, [1]);
    assert_eq!(score.rules[0].alerted_near_misses, [3]);
    assert_eq!(score.rules[1].rates.precision, None);
    let others: Vec<_> =
        score.others.iter().map(|o| (o.sid, o.in_attacks, o.in_benign, o.outside)).collect();
    assert_eq!(others, [(4, 0, 2, 0), (2, 1, 0, 0), (6, 0, 0, 1)]);
    let mut csv = vec![];
    score.write_csv(&mut csv).unwrap();
    let csv = String::from_utf8(csv).unwrap();
    assert_eq!(
        csv.lines().nth(1).unwrap(),
        "1,1,1,rule \
         1,1,1,0,1,1.000000,2,1,0,1,1,1.000000,1,0.500000,0.666667,250000000,250000000,250000000,\
         250000000"
    );
    assert_eq!(csv.lines().count(), 4);
    assert!(serde_json::to_string(&score).unwrap().contains("\"detection\":0.666"));
}

#[test]
fn repeated_tuples_are_distinguished_by_their_times() {
    let labels: Vec<Label> =
        (0..4).map(|i| label(i, Kind::Attack, 1, "192.168.0.2", 1000, 10 * i)).collect();
    let mut scorer = Scorer::new(labels.clone(), Settings { shift_ns: -3_600_000_000_000 });
    // The engine's clock is an hour ahead. An alert that is a microsecond early is due to rounding.
    for at in [3_600.1, 3_619.999_999_5, 3_630.0] {
        scorer.alert(&eve(1, "192.168.0.2", 1000, at));
    }
    assert_eq!(scorer.verdicts().map(|v| v.own).collect::<Vec<_>>(), [1, 0, 1, 1]);

    // If there are no times, or times from another clock, each label in order gets the alerts that
    // it owes.
    let mut scorer = Scorer::new(labels.clone(), Settings::default());
    scorer.alert(&Alert { at: None, count: 3, ..eve(1, "192.168.0.2", 1000, 0.0) });
    scorer.alert(&Alert { at: Some(Nanos(5)), count: 2, ..eve(1, "192.168.0.2", 1000, 0.0) });
    assert_eq!(scorer.verdicts().map(|v| v.own).collect::<Vec<_>>(), [1, 1, 1, 2]);
    assert_eq!(scorer.finish().latency_from_begin, None);
}

#[test]
fn an_alert_in_any_conversation_of_an_attack_is_the_attacks() {
    // The rule counts three logins. The last one owes the alert, but this engine raises it at the
    // second.
    let of = |port, alerts| Label {
        alerts,
        ..label(7, Kind::Attack, 1000, "198.18.0.1", port, u64::from(port))
    };
    let mut scorer = Scorer::new(vec![of(1, 0), of(2, 0), of(3, 1)], Settings::default());
    scorer.alert(&eve(1000, "198.18.0.1", 2, 2.25));
    let score = scorer.finish();
    assert_eq!((score.counts.attacks, score.counts.hit, score.counts.missed), (1, 1, 0));
    assert_eq!((score.counts.alerts_own, score.counts.owing_none), (1, 2));

    // For an attack that owes nothing, every alert is excess.
    let mut scorer = Scorer::new(vec![of(1, 0), of(2, 0)], Settings::default());
    scorer.alert(&eve(1000, "198.18.0.1", 2, 2.25));
    let counts = scorer.finish().counts;
    assert_eq!(
        (counts.attacks, counts.owing_none, counts.alerts_own, counts.alerts_unowed),
        (0, 2, 0, 1)
    );
}

#[test]
fn protocols_without_ports_are_found_by_their_addresses() {
    let mut labels = vec![
        label(0, Kind::Attack, 1, "192.168.0.2", 0, 0),
        label(1, Kind::Attack, 2, "192.168.0.3", 5, 0),
    ];
    labels[0].protocol = 1;
    labels[0].destination_port = 0;
    let mut scorer = Scorer::new(labels, Settings::default());
    // The alert has type and code instead of ports.
    scorer.alert(&Alert {
        protocol: Some(1),
        destination_port: 0,
        ..eve(1, "192.168.0.2", 8, 0.1)
    });
    // The alert is on a TCP fragment, which has no ports.
    scorer.alert(&Alert { destination_port: 0, ..eve(2, "192.168.0.3", 0, 0.1) });
    let score = scorer.finish();
    assert_eq!((score.counts.hit, score.outside), (2, 0));
}

proptest! {
    #[test]
    fn each_conversation_and_each_alert_is_counted_once(
        labels in prop::collection::vec((0..3u8, 0..3u32, 1..4u8, 0..3u32, any::<bool>()), 1..12),
        alerts in prop::collection::vec((0..4u32, 1..5u8, 0..40u32, 1..4u64, any::<bool>()), 0..40),
    ) {
        let labels: Vec<Label> = labels
            .into_iter()
            .enumerate()
            .map(|(i, (kind, sid, host, owed, also))| {
                let kind = [Kind::Attack, Kind::NearMiss, Kind::Benign][usize::from(kind)];
                let one = label(i as u64 / 2, kind, sid, &format!("192.168.0.{host}"), 1000, 2 * i as u64);
                let owed = if kind == Kind::Attack { owed } else { 0 };
                Label { alerts: owed, also: if also { vec![3] } else { vec![] }, ..one }
            })
            .collect();
        let all = labels.len() as u64;
        let mut scorer = Scorer::new(labels, Settings::default());
        for (sid, host, at, count, timed) in alerts {
            let one = eve(sid, &format!("192.168.0.{host}"), 1000, f64::from(at));
            scorer.alert(&Alert { count, at: one.at.filter(|_| timed), ..one });
        }
        let score = scorer.finish();
        let (c, of_scenarios) = (&score.counts, |of: fn(&ScenarioScore) -> u64| score.scenarios.iter().map(of).sum::<u64>());
        prop_assert_eq!(c.attacks + c.owing_none + c.near_misses + c.benign + of_scenarios(|s| s.conversations), all);
        let parts = c.alerts_own + c.alerts_unowed + c.near_miss_alerts + c.benign_alerts + c.alerts_also + c.collateral;
        prop_assert_eq!(parts + of_scenarios(|s| s.alerts) + score.outside, score.alerts);
        prop_assert_eq!(c.hit + c.missed, c.attacks);
        prop_assert_eq!(score.rules.iter().map(|rule| rule.counts.alerts_own).sum::<u64>(), c.alerts_own);
    }

    #[test]
    fn reading_any_input_ends_and_each_line_counts_once(
        first in prop::sample::select(vec![
            "", "{\n", "(Event)\n", "sid,src,dst\n", "sid\tsrc\tdst\n", "11/14/2023-22:13:20.1  [**] [1:1:1] a [**] {TCP} 1.2.3.4:1 -> 1.2.3.4:2\n",
        ]),
        log in "([ -~\t\n\"]|\\[\\*\\*\\]|->|\\{TCP\\}|1:1:1|1\\.2\\.3\\.4|,|\"event_type\":\"alert\"){0,60}",
    ) {
        let log = format!("{first}{log}");
        let mut reader = alerts::Reader::new(log.as_bytes());
        let mut scorer = Scorer::new(vec![label(0, Kind::Attack, 1, "1.2.3.4", 1, 0)], Settings::default());
        let read = scorer.read(&mut reader);
        let lines = log.lines().count() as u64;
        prop_assert!(read.lines <= lines);
        prop_assert!(read.skipped + read.bad <= lines);
        prop_assert_eq!(scorer.finish().alerts, read.alerts);
    }
}
