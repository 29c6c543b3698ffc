//! Nodes that have different ports of one run, and the ports of other nodes as `elsewhere:`.
//! Together they send the frames of a single node, and their merged reports equal its report.

use std::{collections::BTreeMap, path::PathBuf};

use squall::{Format, Profile, Session, report::Report, report::VerdictStatus};
use squall_pcap::{LinkType, PcapFormat, PcapWriter};

/// A node: the addresses of all ports, and its part.
type Node<'a> = (&'a [&'a str], Option<&'a str>);

fn session(text: &str, (addresses, part): Node<'_>) -> Session {
    let mut profile =
        Profile::parse(text, "nodes", Format::Toml).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let ports = profile.ports.iter_mut().zip(addresses);
    ports.for_each(|(port, address)| port.address = (*address).into());
    Session {
        options: squall::RunOptions {
            fingerprint: Some(true),
            part: part.map(|part| part.parse().unwrap()),
            ..Default::default()
        },
        ..Session::new(profile)
    }
}

fn run(text: &str, node: Node<'_>) -> Report {
    session(text, node).open().unwrap_or_else(|e| panic!("{e}")).start().unwrap().finish().unwrap()
}

/// Frames, octets and the frames' fingerprint for each open port, summed over the reports.
fn sent<'a>(reports: impl IntoIterator<Item = &'a Report>) -> BTreeMap<String, (u64, u64, u128)> {
    let mut all = BTreeMap::<_, (u64, u64, u128)>::new();
    let ports = reports.into_iter().flat_map(|report| &report.ports);
    for port in ports.filter(|port| !port.is_remote()) {
        let print =
            port.tx.fingerprint.as_ref().map_or(0, |print| {
                u128::from_str_radix(print, 16).expect("a fingerprint is a number")
            });
        let sum = all.entry(port.name.clone()).or_default();
        *sum = (sum.0 + port.tx.packets, sum.1 + port.tx.octets, sum.2.wrapping_add(print));
    }
    all
}

/// Runs the profile on one node and on several nodes.
fn union(text: &str, one: &[&str], nodes: &[Node<'_>]) -> (Report, Report) {
    let alone = run(text, (one, None));
    let reports: Vec<Report> = nodes.iter().map(|node| run(text, *node)).collect();
    assert_eq!(sent(&reports), sent([&alone]), "{text}");
    for (name, (packets, ..)) in sent([&alone]) {
        assert!(packets > 0, "nothing left by {name}: {text}");
    }
    let named = reports.into_iter().enumerate().map(|(i, report)| (format!("node{i}"), report));
    (alone, squall_report::merge::whole(named.collect()).unwrap())
}

const HERE: &str = "null:virtual,speed=10Gbps";
const THERE: &str = "elsewhere:node";
/// Each port is on a separate node.
const ONE_PORT_EACH: [Node<'static>; 2] = [(&[HERE, THERE], None), (&[THERE, HERE], None)];
/// Two nodes share the first port; the second is on a third node.
const SHARED: [Node<'static>; 3] =
    [(&[HERE, THERE], Some("1/2")), (&[HERE, THERE], Some("2/2")), (&[THERE, HERE], None)];
/// Two nodes share each port.
const SHARED_BOTH: [Node<'static>; 4] = [
    (&[HERE, THERE], Some("1/2")),
    (&[HERE, THERE], Some("2/2")),
    (&[THERE, HERE], Some("1/2")),
    (&[THERE, HERE], Some("2/2")),
];

const STREAMS: &str = r#"
seed = 11
duration = "20 ms"
ports = { A = "null:", B = "null:" }
[[stream]]
name = "one"
port = "A"
packet = "eth/ipv4(dst=10.0.0.1)/udp"
size = "imix"
rate = "100 kpps"
[[stream.vary]]
field = "ipv4.src"
op = "random"
min = "16.0.0.0"
max = "16.0.255.255"
[[stream]]
name = "signed"
port = "B"
packet = "eth/ipv4/udp"
latency = true
rate = "30 %"
[[stream]]
name = "poisson"
port = "B"
packet = "eth/ipv4/udp(sport=7)"
rate = "50 kpps"
departures = "poisson"
[[stream]]
name = "first"
port = "A"
packet = "eth/ipv4/udp(sport=8)"
rate = "10 kpps"
mode = { burst = 40 }
next = "second"
[[stream]]
name = "second"
port = "A"
self_start = false
packet = "eth/ipv4/udp(sport=9)"
latency = true
rate = "10 kpps"
mode = { burst = 30 }
"#;

#[test]
fn streams_of_nodes_are_those_of_one() {
    for nodes in [&ONE_PORT_EACH[..], &SHARED[..], &SHARED_BOTH[..]] {
        let (alone, whole) = union(STREAMS, &[HERE, HERE], nodes);
        let counts = |report: &Report| -> Vec<_> {
            report.streams.iter().map(|s| (s.name.clone(), s.tx_packets, s.tx_octets)).collect()
        };
        assert_eq!(counts(&whole), counts(&alone));
        assert_eq!(whole.verdict.status, VerdictStatus::Valid, "{:?}", whole.verdict.reasons);
        assert!(whole.streams[1].port.ends_with('B'), "{}", whole.streams[1].port);
        let asked = |report: &Report| report.streams[0].asked_pps.unwrap().round();
        assert_eq!(asked(&whole), asked(&alone));
    }
}

/// The received frames of a stream, whichever node has received them.
#[test]
fn loss_is_that_between_the_node_that_sends_and_the_one_that_receives() {
    let text = "packets = 1000\nports = { A = \"null:\", B = \"null:\" }\n[[stream]]\nname = \"s\"\nport = \
                \"A\"\npacket = \"eth/ipv4/udp\"\nlatency = true\nrate = \"20 kpps\"\n";
    let file = file("loss.pcap");
    let (to, from) = (format!("pcap:{}", file.display()), format!("pcap:{},read", file.display()));
    let sender = run(text, (&[&to, "elsewhere:b"], None));
    assert_eq!(sender.streams[0].rx, None, "nobody here knows what arrived");
    // Every tenth frame is lost, including the last one, after which no gap shows.
    let lossy = format!("{from},drop=1/10");
    let receiver = run(text, (&["elsewhere:a", &lossy], None));
    std::fs::remove_file(file).unwrap();
    let rx = receiver.streams[0].rx.as_ref().unwrap();
    assert_eq!((receiver.streams[0].tx_packets, rx.packets, rx.duplicates), (0, 900, 0));
    assert_eq!(rx.latency_ns, None, "two clocks that nobody has compared");
    assert!(receiver.verdict.valid, "{:?}", receiver.verdict);
    let reports = [("a".to_owned(), sender), ("b".to_owned(), receiver)];
    let whole = squall_report::merge::whole(reports.to_vec()).unwrap();
    let rx = whole.streams[0].rx.as_ref().unwrap();
    assert_eq!((whole.streams[0].tx_packets, rx.packets, rx.lost), (1000, 900, 100));
    let ports: Vec<_> = whole.ports.iter().map(|port| port.name.as_str()).collect();
    assert_eq!(ports, ["A", "B"]);
    for (i, port) in [(0, "port B (elsewhere:b)"), (1, "port A (elsewhere:a)")] {
        let third = Report { squall_version: whole.squall_version.clone(), ..Report::default() };
        let lacking = vec![reports[i].clone(), ("c".into(), third)];
        let verdict = squall_report::merge::whole(lacking).unwrap().verdict;
        assert_eq!(verdict.status, VerdictStatus::NotValid);
        assert!(verdict.reasons[0].text.contains(port), "{:?}", verdict.reasons);
    }
}

fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("squall-nodes-{}-{name}", std::process::id()))
}

/// A capture of UDP conversations with three packets each.
fn capture() -> PathBuf {
    let path = file("in.pcap");
    let format =
        PcapFormat { nanoseconds: true, link_type: LinkType::ETHERNET, ..PcapFormat::default() };
    let mut writer = PcapWriter::create(&path, format).unwrap();
    for i in 0..300u64 {
        let (client, there) = ((i / 3 % 40) as u8, i % 3 != 1);
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 46, 0, i as u8];
        frame.extend([0, 0, 64, 17, 0, 0]);
        let ends = [([10, 0, 0, client], 40_000u16), ([10, 9, 0, 1], 53)];
        let [(src, sport), (dst, dport)] = if there { ends } else { [ends[1], ends[0]] };
        frame.extend(src.into_iter().chain(dst));
        frame.extend(sport.to_be_bytes().into_iter().chain(dport.to_be_bytes()));
        frame.extend([0, 26, 0, 0]);
        frame.resize(60, i as u8);
        writer.write(1_700_000_000_000_000_000 + i * 50_000, 60, &frame).unwrap();
    }
    writer.finish().unwrap();
    path
}

#[test]
fn replays_of_nodes_are_those_of_one() {
    let path = capture();
    for more in ["", "rate = \"200 kpps\"\nloops = 3\nunique_ip = 1", "preload = true\nloops = 2"] {
        let text = format!(
            "ports = {{ A = \"null:\", B = \"null:\" }}\n[[replay]]\nname = \"r\"\nfiles = {path:?}\nport = \
             \"A\"\nport2 = \"B\"\n{more}\n"
        );
        for nodes in [&ONE_PORT_EACH[..], &SHARED_BOTH[..]] {
            let (alone, whole) = union(&text, &[HERE, HERE], nodes);
            assert_eq!(whole.replays[0].packets, alone.replays[0].packets);
        }
    }
    std::fs::remove_file(path).unwrap();
}

#[test]
fn attacks_of_nodes_are_those_of_one() {
    let rules = file("t.rules");
    let rule = |i: usize| {
        format!(
            "alert tcp any any -> any 70{i} (msg:\"T{i}\"; flow:established,to_server; \
             content:\"kookaburra{i}\"; sid:{i};)\n"
        )
    };
    std::fs::write(&rules, (10..30).map(rule).collect::<String>()).unwrap();
    let text = format!(
        "ports = {{ A = \"null:\", B = \"null:\" }}\n[[attack]]\nrules = {rules:?}\nport = \"A\"\nport2 = \
         \"B\"\nlive = false\nrate = 100\n"
    );
    for nodes in [&ONE_PORT_EACH[..], &SHARED_BOTH[..]] {
        let (alone, whole) = union(&text, &[HERE, HERE], nodes);
        let count = |report: &Report| (report.attacks[0].attacks, report.attacks[0].frames);
        assert_eq!(count(&whole), count(&alone));
    }
    std::fs::remove_file(rules).unwrap();
}

#[test]
fn criteria_that_one_node_cannot_know_are_refused() {
    let after = STREAMS.replace("rate = \"30 %\"", "rate = \"30 %\"\nafter = \"first\"");
    let counted = STREAMS.replace("duration = \"20 ms\"", "packets = 1000");
    for (text, why) in [(after, "after = "), (counted, "a node cannot count")] {
        let opened = session(&text, ONE_PORT_EACH[1]).open();
        let error = opened.err().unwrap_or_else(|| panic!("it is opened: {text}")).to_string();
        assert!(error.contains(why), "{error}");
    }
}
