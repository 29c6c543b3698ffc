//! Streams to the routes of a router, from the profile to the report, over a link in memory. The
//! daemon of the router is left out: the plan has the routes by then.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use squall::{Format, Plan, Profile, RunOptions, Session, report::Report};
use squall_engine::Settings;
use squall_port::{Port, loopback};
use squall_program::{Run, Scratch};
use squall_record::{Context, Counted, End, Record, Usage};
use squall_report::report::{Asked, Contention, Cpu, EndedBy, Host, Memory};
use squall_units::{Nanos, TxMeta};

const PACKET: &str = "packet = \"eth(dst=02:00:00:00:00:09)/ipv4(src=10.9.0.1)/udp\"\n";

/// A profile with routes of a router on a port of its own, and a stream from A to B.
fn session(routes: &str, stream: &str, cores: usize) -> Result<Session, String> {
    // Tests run at the same time, and a link in memory has two ends.
    static NAMES: AtomicUsize = AtomicUsize::new(0);
    let name = NAMES.fetch_add(1, Ordering::Relaxed);
    let text = format!(
        "[ports]\nA = \"loop:routes{name}\"\nB = \"loop:routes{name}\"\nR = \
         \"loop:router{name}\"\n[[router]]\nname = \"r1\"\nport = \"R\"\nipv4 = \
         \"10.0.0.1/24\"\nipv6 = \"2001:db8::1/64\"\nrip = true\nripng = true\nroutes = \
         {routes}\n[[router.group]]\nname = \"edge\"\nroutes = \"203.0.113.128/25\"\n[[stream]]\nname = \"web\"\nport = \"A\"\n{stream}"
    );
    let profile = Profile::parse(&text, "routes.toml", Format::Toml).map_err(|e| e.to_string())?;
    let options = RunOptions { cores: Some(cores), ..RunOptions::default() };
    Ok(Session { options, ..Session::new(profile) })
}

fn planned(routes: &str, stream: &str, cores: usize) -> Result<Plan, String> {
    let planned = session(routes, stream, cores)?.plan_only().map_err(|e| e.to_string())?;
    Ok(planned.plan)
}

/// The same for several workers: one worker has all ports with routers, if these are links in
/// memory, so the profile is planned without them, and gets the stream.
fn shared(routes: &str, stream: &str, cores: usize) -> Plan {
    let to_routes = planned(routes, stream, 1).unwrap().streams.remove(0);
    let mut session = session(routes, stream, cores).unwrap();
    session.profile.routers.clear();
    session.profile.streams[0].dst = None;
    let mut plan = session.plan_only().unwrap().plan;
    assert_eq!(plan.workers.len(), cores);
    let stream = &mut plan.streams[0];
    (stream.program, stream.routes) = (to_routes.program, to_routes.routes);
    plan
}

/// Runs a plan on virtual time, without its routers. `fault` is that of port B. Returns the report,
/// and the routes as CSV.
fn run(mut plan: Plan, name: &str, fault: &str) -> (Report, String) {
    plan.routers.clear();
    plan.ports.iter_mut().for_each(|port| port.virtual_bps = Some(10_000_000_000));
    let addresses = [
        format!("loop:{name},virtual"),
        format!("loop:{name},virtual{fault}"),
        format!("loop:{name}-router,virtual"),
    ];
    let open = |address: &String| loopback::open(&address.parse().unwrap()).unwrap();
    let ports: Vec<Box<dyn Port>> = addresses.iter().map(open).collect();
    let facts = ports.iter().map(|port| port.facts().clone()).collect();
    let plan = Arc::new(plan);
    let settings = Settings { virtual_time: true, ..Settings::default() };
    let mut running = squall_engine::start(plan.clone(), ports, settings, Vec::new()).unwrap();
    while !running.wait_sent(Duration::from_secs(1)) {}
    let start = running.start();
    let outcome = running.finish().unwrap();
    let usage =
        Usage { cpu: Cpu::default(), contention: Contention::default(), memory: Memory::default() };
    let context = Context {
        started: SystemTime::UNIX_EPOCH,
        host: Host::default(),
        usage: usage.clone(),
        command: "test".into(),
        fingerprint: false,
        filter: None,
        flows: None,
        node: None,
        clock: None,
    };
    let record = Record {
        context: &context,
        plan: &plan,
        counted: Counted::new(&plan, facts, false, outcome.workers),
        start,
        duration: outcome.duration,
        interfaces: outcome.interfaces,
        links: outcome.links,
        pacing: outcome.pacing,
        usage,
        capture: None,
        daemons: Vec::new(),
        end: Some(End {
            by: EndedBy::Done,
            open: false,
            agreed: None,
            expected: Asked::default(),
            began: Vec::new(),
            replays: Vec::new(),
            attacks: Vec::new(),
            criteria: &[],
            failed: Vec::new(),
            notes: Vec::new(),
        }),
    };
    let mut csv = Vec::new();
    record.write_routes(&mut csv).unwrap();
    (record.report(Vec::new()), String::from_utf8(csv).unwrap())
}

/// The destinations of the first frames of the only stream.
fn destinations(plan: &Plan) -> Vec<String> {
    const STRIDE: usize = 256;
    let program = &plan.streams[0].program;
    let (mut cursor, mut scratch) = (program.cursor(0, 1, 1), Scratch::default());
    let (mut base, mut meta) = (vec![0; STRIDE * 8], [TxMeta::default(); 8]);
    (0..8).for_each(|i| meta[i].len = program.sizes().at(i as u64));
    let memory = (&mut base[..], STRIDE, &mut meta[..]);
    program.fill(&mut cursor, &mut scratch, memory, &Run { start: 0, count: 8 }, Some(Nanos(1)));
    let address = |frame: &[u8]| match frame[12..14] {
        [8, 0] => IpAddr::from(*frame[30..].first_chunk::<4>().unwrap()),
        _ => IpAddr::from(*frame[38..].first_chunk::<16>().unwrap()),
    };
    base.chunks(STRIDE).map(|frame| address(frame).to_string()).collect()
}

#[test]
fn frames_go_to_one_host_of_each_route_in_turn() {
    let to = |routes: &str, dst: &str, version: &str| {
        let stream = format!(
            "dst = \"{dst}\"\npacket = \"eth/{version}/udp\"\nrate = 1000\nlatency = true\n"
        );
        destinations(&planned(routes, &stream, 1).unwrap())
    };
    let range = "\"198.51.100.0/26 x 4\"";
    let ends = ["198.51.100.1", "198.51.100.65", "198.51.100.129", "198.51.100.193"];
    assert_eq!(to(range, "routes:r1/routes", "ipv4")[..4], ends);
    assert_eq!(to(range, "routes:r1/routes", "ipv4")[4..], ends, "again from the first");
    // A group after the other; a list.
    assert_eq!(to(range, "routes:r1", "ipv4")[3..6], [ends[3], "203.0.113.129", ends[0]]);
    assert_eq!(to(range, "routes:r1/edge#7", "ipv4")[..2], ["203.0.113.135"; 2]);
    let both = "[\"198.51.100.0/24\", \"2001:db8:1::/48 x 2\", \"198.51.100.7/32\"]";
    assert_eq!(
        to(both, "routes:r1/routes", "ipv4")[..3],
        ["198.51.100.1", "198.51.100.7", "198.51.100.1"]
    );
    let six = ["2001:db8:1::9", "2001:db8:2::9", "2001:db8:1::9"];
    assert_eq!(to(both, "routes:r1#9", "ipv6")[..3], six);
}

#[test]
fn the_address_in_a_route_is_in_no_more_specific_one() {
    let stream = |dst: &str| {
        format!("dst = \"{dst}\"\npacket = \"eth/ipv4/udp\"\nrate = 1000\nlatency = true\n")
    };
    let routes = "[\"203.0.112.0/23\", \"203.0.112.0/25\", \"203.0.112.0/26\", \
                  \"203.0.112.128/32\", \"203.0.113.128/32\", \"203.0.113.129/32\"]";
    let plan = planned(routes, &stream("routes:r1"), 1).unwrap();
    // The /25 is passed over, and the /32 after it; in the /25, the /26; in edge, two /32.
    let expected = ["203.0.112.129", "203.0.112.64", "203.0.112.1", "203.0.112.128"];
    assert_eq!(destinations(&plan)[..4], expected);
    assert_eq!(destinations(&plan)[6], "203.0.113.130");
    assert!(!plan.notes.iter().any(|note| note.contains("more specific")), "{:?}", plan.notes);
    // A number is kept, and a route of which both halves are announced has no address of its own.
    let plan = planned(routes, &stream("routes:r1/routes#1"), 1).unwrap();
    assert_eq!(destinations(&plan)[0], expected[0], "the first host is the default");
    let fixed = "[\"203.0.112.0/24\", \"203.0.112.0/28\"]";
    let plan = planned(fixed, &stream("routes:r1/routes#7"), 1).unwrap();
    assert_eq!(destinations(&plan)[..2], ["203.0.112.7"; 2]);
    let covered = |plan: &Plan, routes: &str| {
        let text = format!("the addresses of {routes} are part of more specific ones");
        plan.notes.iter().any(|note| note.contains(&text))
    };
    assert!(covered(&plan, "1 route"), "{:?}", plan.notes);
    let halves = "[\"203.0.112.0/24\", \"203.0.112.0/25 x 2\"]";
    let plan = planned(halves, &stream("routes:r1/routes"), 1).unwrap();
    assert_eq!(destinations(&plan)[..2], ["203.0.112.1"; 2]);
    assert!(covered(&plan, "1 route"), "{:?}", plan.notes);
}

#[test]
fn a_default_route_is_no_destination() {
    let stream = format!("dst = \"routes:r1/routes\"\n{PACKET}rate = 1000\nlatency = true\n");
    let plan = planned("[\"0.0.0.0/0\", \"198.51.100.0/24\"]", &stream, 1).unwrap();
    assert_eq!(plan.streams[0].routes.as_ref().unwrap().len(), 1);
    assert_eq!(destinations(&plan)[..2], ["198.51.100.1"; 2]);
    let is_noted = |note: &String| note.contains("the default route is no destination");
    assert!(plan.notes.iter().any(is_noted), "{:?}", plan.notes);
    let error = planned("\"0.0.0.0/0\"", &stream, 1).unwrap_err();
    assert!(error.contains("the default route of IPv4 is no destination"), "{error}");
}

#[test]
fn the_frames_after_a_step_have_figures_of_their_own() {
    let stream = format!(
        "dst = \"routes:r1/routes\"\n{PACKET}rate = \"1 kpps\"\nlatency = true\nmode = {{ burst = \
         1000 }}\n[[router.step]]\nat = \"400 ms\"\naction = \"silent\"\nduration = \"200 \
         ms\"\n"
    );
    let plan = planned("\"198.51.100.0/28 x 10\"", &stream, 1).unwrap();
    let phases: Vec<_> =
        plan.streams[0].phases.iter().map(|phase| (&*phase.steps, phase.frame)).collect();
    assert_eq!(phases, [("r1: silent", 300), ("r1: talk", 500)], "100 ms before each step");
    let queues: usize = plan.workers.iter().map(|worker| worker.rx.len()).sum();
    assert_eq!(plan.lane_octets(), 24 * 10 * 3 * queues as u64);
    let (report, _) = run(plan, "steps", ",reset=400ms:250ms");
    let rx = report.streams[0].rx.as_ref().unwrap();
    let routes = rx.routes.as_deref().expect("routes");
    let [silent, talk] = &routes.steps[..] else { panic!("{:?}", routes.steps) };
    assert_eq!((&*silent.steps, silent.due_s, silent.begun_s), ("r1: silent", 0.4, None));
    assert_eq!((silent.sent, talk.sent), (200, 500));
    assert!((99..=101).contains(&silent.lost) && (149..=151).contains(&talk.lost), "{routes:?}");
    assert!(silent.lost + talk.lost <= routes.lost && routes.lost <= 251, "{routes:?}");
    // All are down when the second step comes, and back at the end.
    assert_eq!((silent.down, talk.down, routes.down), (10, 0, 0));
    assert!(talk.loss_of_connectivity.is_some_and(|times| times.full_s <= 0.16), "{talk:?}");
    let text = squall_report::render::summary(&report, 120, false);
    assert!(text.contains("after r1: silent (400 ms): 10 routes lost"), "{text}");
}

#[test]
fn lanes_have_a_limit_of_memory() {
    let stream = "dst = \"routes:r1\"\npacket = \"eth/ipv6/udp\"\nrate = 1\nlatency = true\n";
    let routes = "\"2001::/48 x 4000000\"";
    let steps = "[[router.step]]\nat = \"1 s\"\naction = \"silent\"\nduration = \"1 s\"\nevery = \
                 \"5 s\"\n";
    let plan = planned(routes, &format!("{stream}{steps}"), 1).unwrap();
    assert!((4_000_000 * 24..=1 << 30).contains(&plan.lane_octets()), "{}", plan.lane_octets());
    assert!(plan.streams[0].phases.len() <= 10, "{:?}", plan.streams[0].phases);
    let is_noted = |note: &String| note.contains("begin no new lanes");
    assert!(plan.notes.iter().any(is_noted), "{:?}", plan.notes);
    let few = planned("\"2001::/48 x 4\"", &format!("{stream}{steps}"), 1).unwrap();
    assert_eq!(few.streams[0].phases.len(), 16);
    let more = format!("[[stream]]\nport = \"A\"\n{stream}").repeat(11);
    let error = planned(routes, &format!("{stream}{more}"), 1).unwrap_err();
    assert!(error.contains("24 octets for each of 48,000,000 routes"), "{error}");
    assert!(error.contains("at most 1 GiB") && error.contains("try a group"), "{error}");
}

#[test]
fn an_outage_is_the_loss_of_connectivity_of_every_route() {
    let stream = format!(
        "dst = \"routes:r1/routes\"\n{PACKET}rate = \"1 kpps\"\nlatency = true\nmode = {{ burst = \
         1000 }}\n"
    );
    let routes = "[\"198.51.100.0/28 x 8\", \"203.0.113.0/32 x 2\"]";
    let (report, csv) = run(planned(routes, &stream, 1).unwrap(), "outage", ",reset=400ms:250ms");
    let rx = report.streams[0].rx.as_ref().unwrap();
    let routes = rx.routes.as_deref().expect("routes");
    assert_eq!((routes.router.as_str(), routes.group.as_deref()), ("r1", Some("routes")));
    assert_eq!((routes.routes, routes.lossy, routes.down, routes.silent), (10, 10, 0, 0));
    assert_eq!((routes.sent, routes.lost), (1000, rx.lost));
    assert!((249..=251).contains(&rx.lost), "{rx:?}");
    assert_eq!(routes.resolution_s, Some(0.01));
    let times = routes.loss_of_connectivity.expect("times");
    assert!((0.24..=0.26).contains(&times.first_s) && times.full_s <= 0.26, "{times:?}");
    assert!(routes.loss_derived_s.is_some_and(|s| (0.249..=0.251).contains(&s)), "{routes:?}");
    assert_eq!(routes.convergence, None);
    let [port] = &routes.ports[..] else { panic!("one port") };
    assert_eq!((port.port.as_str(), port.first, port.last), ("B", 10, 10));
    assert_eq!((routes.worst.len(), routes.worst[0].sent, routes.worst[0].up), (10, 100, true));

    let lines: Vec<_> = csv.lines().collect();
    assert_eq!(lines.len(), 11);
    assert!(lines[1].starts_with("web,198.51.100.0/28,100,2"), "{csv}");
    assert!(
        lines[10].starts_with("web,203.0.113.1/32,100,2") && lines[10].ends_with(",,,B,B,true")
    );
}

#[test]
fn losses_of_routes_are_those_of_the_stream_whatever_the_number_of_workers() {
    let stream = |mode: &str| {
        format!(
            "dst = \"routes:r1/routes\"\n{PACKET}rate = \"4 Mpps\"\nlatency = true\nmode = {{ burst \
             = {mode} }}\n"
        )
    };
    for cores in [1, 2, 3] {
        for (fault, name) in [("", "whole"), (",drop=1/7", "lossy")] {
            let plan = shared("\"random x 777\"", &stream("20000"), cores);
            let (report, _) = run(plan, &format!("{name}{cores}"), fault);
            let rx = report.streams[0].rx.as_ref().unwrap();
            let routes = rx.routes.as_deref().expect("routes");
            assert_eq!((routes.routes, routes.sent, routes.lost), (777, 20_000, rx.lost));
            let expected = if fault.is_empty() { 0..=0 } else { 2_800..=2_900 };
            assert!(expected.contains(&routes.lost), "{cores} workers: {} lost", routes.lost);
            assert_eq!(routes.lossy > 0, !fault.is_empty());
        }
    }
}

#[test]
fn routes_whose_frames_stop_are_down_at_the_end() {
    let stream = format!(
        "dst = \"routes:r1/routes\"\n{PACKET}rate = \"1 kpps\"\nlatency = true\nmode = {{ burst = \
         1000 }}\n"
    );
    let plan = planned("\"198.51.100.0/32 x 20\"", &stream, 1).unwrap();
    let (report, _) = run(plan, "down", ",reset=500ms:1h");
    let routes = report.streams[0].rx.as_ref().unwrap().routes.clone().expect("routes");
    assert_eq!((routes.down, routes.silent), (20, 0));
    let text = squall_report::render::summary(&report, 100, false);
    assert!(text.contains("20 routes of r1/routes, stream web"), "{text}");
    assert!(text.contains("20 down at the end, resolution 20.0 ms"), "{text}");
}

#[test]
fn servers_of_flows_are_hosts_of_routes() {
    let pool = |routes: &str, servers: &str| {
        let flows = format!(
            "packet = \"eth/ipv4/udp\"\nrate = 1\n[flows]\nclients = \"A\"\n[[template]]\nname = \
             \"t\"\nclients = \"10.9.0.1\"\nservers = \"{servers}\"\napp = \"http\"\ncps = 1\n"
        );
        let flows = planned(routes, &flows, 1).map(|plan| plan.flows.expect("flows"));
        flows.map(|flows| {
            let ranges = &flows.load.servers[flows.load.templates[0].servers].ranges;
            ranges.iter().map(|range| range.to_string()).collect::<Vec<_>>()
        })
    };
    let nested = "[\"198.51.100.0/24 x 2\", \"198.51.100.0/25\"]";
    let expected = ["198.51.100.128", "198.51.101.1", "198.51.100.1", "203.0.113.129"];
    assert_eq!(pool(nested, "routes:r1").unwrap(), expected);
    assert_eq!(pool(nested, "routes:r1/edge#2").unwrap(), ["203.0.113.130"]);
    let error = pool(nested, "routes:r9").unwrap_err();
    assert!(error.contains("there is no router \"r9\""), "{error}");
}

#[test]
fn a_router_expects_the_routes_of_another() {
    let plan = |expect: &str| {
        let text = format!(
            "rate = 1\npacket = \"eth/ipv4/udp\"\n[[router]]\nname = \"r2\"\nport = \"R\"\nipv4 = \
             \"10.1.0.1/24\"\nrip = true\nexpect = \"{expect}\"\n"
        );
        planned("\"198.51.100.0/24\"", &text, 1)
    };
    let found = plan("r1/edge").unwrap().routers[1].expect.clone().expect("routes of r1");
    assert_eq!((found.router, found.group.as_deref()), (0, Some("edge")));
    assert_eq!(plan("r1").unwrap().routers[1].expect.clone().map(|of| of.group), Some(None));
    for (expect, why) in
        [("r3", "there is no router"), ("r1/core", "has no group"), ("r2", "its own routes")]
    {
        let error = plan(expect).err();
        assert!(error.as_ref().is_some_and(|error| error.contains(why)), "{why:?}: {error:?}");
    }
}

#[test]
fn streams_to_routes_are_checked() {
    let range = "\"198.51.100.0/24 x 2\"";
    let stream = |lines: &str| format!("rate = 1\n{lines}\n");
    for (routes, lines, expected) in [
        (range, format!("dst = \"routes:r2\"\n{PACKET}"), "there is no router \"r2\""),
        (range, format!("dst = \"routes:r1/core\"\n{PACKET}"), "has no group \"core\""),
        (
            range,
            format!("dst = \"routes:r1/edge#127\"\n{PACKET}"),
            "203.0.113.128/25 has no host 127",
        ),
        (
            range,
            "dst = \"routes:r1\"\npacket = \"eth/ipv6/udp\"".into(),
            "there are no routes of IPv6",
        ),
        (range, "dst = \"routes:r1\"\npacket = \"eth\"".into(), "eth has no IP address for routes"),
        (
            range,
            "dst = \"routes:r1\"\npacket = \"eth/ipv4(dst=10.0.0.1)/udp\"".into(),
            "the packet sets ipv4.dst",
        ),
        (
            range,
            format!(
                "dst = \"routes:r1\"\n{PACKET}vary = [{{ field = \"ipv4.dst\", op = \"random\", min \
                 = \"10.0.0.0\", max = \"10.0.0.9\" }}]"
            ),
            "a field program writes ipv4.dst",
        ),
        (range, format!("src = \"routes:r1\"\n{PACKET}"), "is not a group of hosts"),
        (range, format!("src = \"learnt:r1\"\n{PACKET}"), "is not a group of hosts"),
        (range, format!("dst = \"learnt:r9\"\n{PACKET}"), "there is no router \"r9\""),
        (range, format!("dst = \"learnt:r1/edge\"\n{PACKET}"), "learnt routes have no groups"),
        (range, format!("dst = \"learnt:r1\"\n{PACKET}"), "is BIRD, which would be asked"),
        (
            "\"2001::/48 x 5000000\"",
            "dst = \"routes:r1\"\npacket = \"eth/ipv6/udp\"".into(),
            "at most",
        ),
        ("\"file:missing.txt\"", format!("dst = \"routes:r1\"\n{PACKET}"), "cannot read"),
    ] {
        let error = planned(routes, &stream(&lines), 1).err();
        assert!(
            error.as_ref().is_some_and(|error| error.contains(expected)),
            "{expected:?}: {error:?}"
        );
    }
    let slow = planned(
        "\"random x 5000\"",
        &format!("dst = \"routes:r1\"\n{PACKET}rate = 1000\nlatency = true\n"),
        1,
    );
    let notes = slow.unwrap().notes;
    assert!(notes.iter().any(|note| note.contains("its 5001 routes every 5.0 s")), "{notes:?}");
}
