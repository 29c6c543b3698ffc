//! Flows whose clients are on one node and whose servers are on another. Each node has the other's
//! port as `elsewhere:`. Their joint results equal those of one node that has both ports.

use std::thread;

use squall::{
    CommonClock, Format, Profile, Session,
    report::{NodeClock, ReasonCode, Report, StreamRx, VerdictStatus},
};
use squall_units::Nanos;

const FLOWS: &str = r#"
ports = { C = "null:", S = "null:" }
[flows]
clients = "C"
servers = "S"
limit = 60
max_delay = "60 s"
[[template]]
name = "ping"
transport = "udp"
listen = 53
clients = "16.0.0.0/28"
servers = "48.0.0.1"
cps = 300
client = ['send_packet "ping"', 'recv_packet_octets 4', 'close']
server = ['recv_packet_octets 4', 'send_packet "pong"']
[[template]]
name = "web"
app = "http"
clients = "16.0.1.0/28"
servers = "48.0.0.1"
cps = 100
"#;

fn session(ports: [&str; 2], stop: &str) -> Session {
    let text = format!("{stop}\n{FLOWS}");
    let mut profile =
        Profile::parse(&text, "nodes", Format::Toml).unwrap_or_else(|e| panic!("{e}"));
    profile.ports.iter_mut().zip(ports).for_each(|(port, address)| port.address = address.into());
    Session::new(profile)
}

#[test]
fn clients_and_servers_of_different_nodes_play_the_flows_of_one() {
    let alone = session(["loop:nodes-one", "loop:nodes-one"], "");
    let alone = alone.open().unwrap().start().unwrap().finish().unwrap();
    // Open both nodes before either begins.
    let servers = session(["elsewhere:a", "loop:nodes-two"], "").open().unwrap();
    let clients = session(["loop:nodes-two", "elsewhere:b"], "").open().unwrap();
    let servers = servers.start().unwrap();
    let clients = clients.start().unwrap().finish().unwrap();
    servers.stop();
    let servers = thread::spawn(|| servers.finish().unwrap()).join().unwrap();
    assert!(clients.flows.as_ref().unwrap().total.server.is_none());
    assert!(servers.flows.as_ref().unwrap().total.client.is_none());
    let whole =
        squall_report::merge::whole(vec![("a".into(), clients), ("b".into(), servers)]).unwrap();
    let count = |report: &Report| -> Vec<_> {
        let templates = report.flows.as_ref().unwrap().templates.iter();
        let of = |role: &Option<squall::report::flows::RoleReport>| {
            role.as_ref().map(|r| (r.attempted, r.completed, r.received_octets, r.sent_octets))
        };
        templates.map(|t| (t.name.clone(), of(&t.roles.client), of(&t.roles.server))).collect()
    };
    assert_eq!(count(&whole), count(&alone));
    assert!(count(&whole)[0].2.is_some_and(|server| server.1 > 0));
    let ports: Vec<_> = whole.ports.iter().map(|port| port.name.as_str()).collect();
    assert_eq!(ports, ["C", "S"]);
}

const SIGNED: &str = r#"
duration = "200 ms"
ports = { A = "null:", B = "null:" }
[[stream]]
name = "s"
port = "A"
packet = "eth/ipv4/udp"
latency = true
rate = "5 kpps"
"#;

/// Sends a stream from a node with one clock to a node with another clock, over a link in memory.
/// Returns the stream's receive counters in the joint report, and that report.
fn between(link: &str, clocks: [NodeClock; 2]) -> (StreamRx, Report) {
    let link = format!("loop:{link}");
    let mut profile = Profile::parse(SIGNED, "nodes", Format::Toml).unwrap();
    let mut node = |ports: [&str; 2], clock: NodeClock| {
        profile.ports.iter_mut().zip(ports).for_each(|(port, to)| port.address = to.into());
        let mut session = Session::new(profile.clone());
        session.caller.clock = Some(clock);
        session.open().unwrap()
    };
    // Open both ends of the link before either is used.
    let receiver = node(["elsewhere:a", &link], clocks[1]);
    let sender = node([&link, "elsewhere:b"], clocks[0]);
    let (receiver, sender) = (receiver.hold().unwrap(), sender.hold().unwrap());
    // The same start time, on each node's clock.
    let at = squall_port::monotonic() + Nanos(50_000_000);
    let common = |clock: NodeClock| {
        let NodeClock { shift_ns, drift_ppb, at_ns, .. } = clock;
        CommonClock { shift_ns, drift_ppb, at: Nanos(at_ns) }.of(at)
    };
    let (receiver, sender) =
        (receiver.go(Some(common(clocks[1]))), sender.go(Some(common(clocks[0]))));
    let sender = sender.finish().unwrap();
    let receiver = receiver.finish().unwrap();
    let start = sender.start.unwrap();
    assert_eq!(start.at_ns, common(clocks[0]).0);
    assert!(start.error_ns.is_some_and(|error| (0..1_000_000_000).contains(&error)), "{start:?}");
    assert_eq!(receiver.start.and_then(|start| start.error_ns), None);
    let whole =
        squall_report::merge::whole(vec![("a".into(), sender), ("b".into(), receiver)]).unwrap();
    let rx = whole.streams[0].rx.clone().unwrap();
    assert_eq!(rx.ports, ["B"]);
    (*rx, whole)
}

/// The frames that left. The rest are late if the machine had no CPU at the end of the run.
fn sent(whole: &Report) -> u64 {
    let stream = &whole.streams[0];
    let late = stream.not_sent.get("late").copied().unwrap_or(0);
    assert_eq!(stream.tx_packets + late, 1000, "{:?}", stream.not_sent);
    stream.tx_packets
}

fn clock(shift_ns: i64, drift_ppb: f64, at: Nanos, bound_ns: u64) -> NodeClock {
    NodeClock { shift_ns, drift_ppb, at_ns: at.0, bound_ns }
}

const MS: i64 = 1_000_000;

/// Two descriptions of the same clock, which is fast and far ahead: delays are as with a single
/// clock.
#[test]
fn delays_between_nodes_are_those_of_the_clock_that_they_have_in_common() {
    let at = squall_port::monotonic();
    let later = at + Nanos(1_000_000_000);
    // 500 ppm: after a second the clock is another 500 us ahead.
    let sender = clock(86_400_000 * MS, 500_000.0, at, 700);
    let receiver = clock(86_400_000 * MS + 500_000, 500_000.0, later, 800);
    let (rx, whole) = between("nodes-common", [sender, receiver]);
    let latency = rx.latency_ns.unwrap();
    assert_eq!((rx.packets, rx.lost, rx.early_packets), (sent(&whole), 0, 0));
    // An error of a clock would show as at least 300 us, added to all delays or making them
    // negative.
    assert!(latency.min < 300_000, "{latency:?}");
    assert_eq!(rx.latency_bound_ns, Some(1500));
    assert!(whole.notes.iter().any(|note| note.contains("1500 ns")), "{:?}", whole.notes);
}

/// An error of a clock adds to the delay, so its bound must cover that.
#[test]
fn a_clock_that_is_off_is_within_its_bound_or_found_out() {
    let at = squall_port::monotonic();
    let right = clock(0, 0.0, at, 0);
    let (rx, _) = between("nodes-behind", [right, clock(20 * MS, 0.0, at, 20 * MS as u64)]);
    let latency = rx.latency_ns.unwrap();
    let (bound, off) = (rx.latency_bound_ns.unwrap(), 20 * MS as u64);
    assert!(latency.min >= off && latency.min - bound < off, "{latency:?}");
    // The clock is ahead, so frames seem to arrive before they were sent. Delays are 0 within the
    // bound.
    let (rx, whole) = between("nodes-ahead", [right, clock(-1000 * MS, 0.0, at, 1000 * MS as u64)]);
    assert_eq!((rx.early_packets, rx.latency_ns.unwrap().max), (sent(&whole), 0));
    let codes = |whole: &Report| -> Vec<_> {
        whole.verdict.reasons.iter().map(|reason| reason.code).collect()
    };
    assert!(!codes(&whole).contains(&ReasonCode::ClocksDiffer), "{:?}", whole.verdict);
    let (_, whole) = between("nodes-apart", [right, clock(-1000 * MS, 0.0, at, 1000)]);
    assert!(codes(&whole).contains(&ReasonCode::ClocksDiffer), "{:?}", whole.verdict);
}

#[test]
fn a_run_that_is_stopped_before_its_start_ends_at_once_and_has_sent_nothing() {
    let signed = Session::new(Profile::parse(SIGNED, "nodes", Format::Toml).unwrap());
    let flows = session(["loop:nodes-stopped", "loop:nodes-stopped"], "");
    for session in [signed, flows] {
        let an_hour = squall_port::monotonic() + Nanos(3_600_000_000_000);
        let run = session.open().unwrap().hold().unwrap().go(Some(an_hour));
        run.stop();
        // The run would begin in an hour.
        let report = run.finish().unwrap();
        let begun = report.sources.iter().map(|source| source.sent).sum::<u64>();
        assert_eq!(begun, 0, "{:?}", report.sources);
        assert_eq!(report.verdict.status, VerdictStatus::Interrupted);
    }
}
