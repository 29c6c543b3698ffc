//! Native routers at the two ends of a link in memory, on virtual time, from the profile to the
//! report.

use squall::{
    Format, Profile, Session,
    report::{Report, routers::RouterReport},
};

/// Runs the routers, which are on the ports A and B of a link.
fn run(link: &str, duration: u32, routers: &str) -> Report {
    let session = session(&format!("{link}-{},virtual", std::process::id()), duration, routers);
    session.open().unwrap().start().unwrap().finish().unwrap()
}

fn session(link: &str, duration: u32, routers: &str) -> Session {
    let text = format!(
        "duration = \"{duration} s\"\n[ports]\nA = \"loop:{link}\"\nB = \"loop:{link}\"\n{routers}"
    );
    let profile = Profile::parse(&text, "routers.toml", Format::Toml);
    Session::new(profile.unwrap_or_else(|error| panic!("{error}\n{text}")))
}

fn router<'a>(report: &'a Report, name: &str) -> &'a RouterReport {
    report.routers.iter().find(|router| router.name == name).unwrap()
}

const PAIR: &str = r#"
[[router]]
name      = "r1"
port      = "A"
daemon    = "native"
ipv4      = "10.0.0.1/24"
ipv6      = "fd00::1/64"
asn       = 65001
neighbors = ["10.0.0.2 as 65002", "fd00::2 as 65002"]
routes    = ["random x 5000", "random6 x 500"]

[[router.group]]
name   = "edge"
routes = "198.51.100.0/32 x 100"

[[router.step]]
at     = "10 s"
action = "withdraw"
group  = "edge"
count  = 30

[[router]]
name      = "r2"
port      = "B"
daemon    = "native"
ipv4      = "10.0.0.2/24"
ipv6      = "fd00::2/64"
asn       = 65002
neighbors = ["10.0.0.1 as 65001", "fd00::1 as 65001"]
routes    = "203.0.113.0/24"
expect    = "r1"
"#;

#[test]
fn two_routers_have_each_others_routes_and_steps() {
    let report = run("routers", 30, PAIR);
    assert!(report.verdict.valid, "{:?}", report.verdict);
    let (one, two) = (router(&report, "r1"), router(&report, "r2"));
    assert_eq!((&*one.daemon, one.count, one.cpu_s, one.memory), ("native", 1, None, None));
    let sums = one.sessions.as_ref().unwrap();
    assert_eq!((sums.sessions, sums.up, sums.imported, sums.exported), (2, 2, 2, 2 * 5570));
    assert!(sums.all_up_after_s.is_some_and(|after| after < 10.0), "{sums:?}");
    assert_eq!(two.sessions.as_ref().unwrap().imported, 2 * 5570);
    assert_eq!((one.downs, two.downs), (0, 0));
    let states: Vec<_> = two.protocols.iter().map(|one| (&*one.state, &*one.neighbor)).collect();
    assert_eq!(states, [("Established", "10.0.0.1"), ("Established", "fd00::1")]);
    let expected = two.expected.as_ref().unwrap();
    assert_eq!((expected.routes, expected.missing, expected.extra), (5570, 0, 0));
    assert!(!expected.by_prefix, "some are withdrawn");
    let [step] = &one.steps[..] else { panic!("{:?}", one.steps) };
    assert_eq!((&*step.action, step.routes, step.begun_s), ("withdraw", 30, 10.0));
    assert!(step.acknowledged_s.is_some_and(|time| time < 11.0), "{step:?}");
    assert!(step.first_sent_s.is_some() && step.error.is_none());
    assert_eq!(one.groups[1].withdrawn, 30);
    // One side receives the messages that the other has sent.
    let received = two.sessions.as_ref().unwrap().received;
    assert!(received.updates > 0);
    assert_eq!(sums.sent.updates, received.updates);
}

#[test]
fn frames_go_to_the_routes_that_a_router_has_learnt_and_that_are_not_withdrawn() {
    let routers = PAIR.replace("count  = 30", "duration = \"2 s\"").replace(
        "routes    = [\"random x 5000\", \"random6 x 500\"]",
        "routes    = \"2001:db8:7::/48\"",
    );
    let stream = |name: &str, version: &str| {
        format!(
            "[[stream]]\nname = \"{name}\"\nport = \"B\"\ndst = \"learnt:r2\"\nrate = 100\n\
             latency = true\npacket = \"eth(dst=02:00:00:00:00:09)/{version}/udp\"\n"
        )
    };
    let report =
        run("learnt", 20, &format!("{routers}{}{}", stream("four", "ipv4"), stream("six", "ipv6")));
    assert!(report.verdict.valid, "{:?}", report.verdict);
    let up_after = router(&report, "r2").sessions.as_ref().unwrap().all_up_after_s.unwrap();
    let [four, six] = &report.streams[..] else { panic!("{:?}", report.streams) };
    for (stream, without) in [(four, up_after + 2.0), (six, up_after)] {
        let no_route = stream.not_sent["no_route"];
        assert!((no_route as f64 - without * 100.0).abs() < 10.0, "{up_after} {stream:?}");
        assert_eq!(stream.tx_packets + no_route, 2_000, "{stream:?}");
        assert_eq!(stream.rx.as_ref().unwrap().packets, stream.tx_packets);
    }
}

#[test]
fn a_stream_without_a_rate_says_that_there_was_no_route() {
    let router = "[[router]]\nname = \"r2\"\nport = \"B\"\ndaemon = \"native\"\nipv4 = \
                  \"10.0.0.2/24\"\nasn = 65002\nneighbors = \"10.0.0.1 as 65001\"\n[[stream]]\n\
                  name = \"fast\"\nport = \"B\"\ndst = \"learnt:r2\"\nrate = \"max\"\npacket = \
                  \"eth(dst=02:00:00:00:00:09)/ipv4/udp\"\n";
    let session = session(&format!("unpaced-{}", std::process::id()), 1, router);
    let report = session.open().unwrap().start().unwrap().finish().unwrap();
    let fast = &report.streams[0];
    assert_eq!((fast.tx_packets, &fast.not_sent), (0, &[("no_route".to_owned(), 0)].into()));
    let reasons: Vec<_> = report.verdict.reasons.iter().map(ToString::to_string).collect();
    let reason = "not-done: stream \"fast\": nothing was sent: the router had learnt no route";
    assert!(reasons.iter().any(|of| of.starts_with(reason)), "{reasons:?}");
}

#[test]
fn learnt_routes_set_the_destination_of_a_packet_alone() {
    let error = |packet: &str| {
        let stream = format!(
            "{PAIR}[[stream]]\nport = \"B\"\ndst = \"learnt:r2\"\nrate = 100\npacket = \"{packet}\"\n"
        );
        let planned = session("learnt-plan,virtual", 1, &stream).plan_only();
        planned.map(|_| ()).unwrap_err().to_string()
    };
    let set = error("eth/ipv4(dst=10.0.0.1)/udp");
    assert!(
        set.contains("the packet sets ipv4.dst, which dst = \"learnt:NAME\" sets, too"),
        "{set}"
    );
    let none = error("eth/arp");
    assert!(none.contains("has no ipv6.dst, which learnt routes set"), "{none}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let of = |link: &str| {
        let mut session = session(&format!("{link}-{},virtual", std::process::id()), 12, PAIR);
        session.profile.seed = Some(7);
        session.open().unwrap().start().unwrap().finish().unwrap().routers
    };
    assert_eq!(of("seed-a"), of("seed-b"));
}

#[test]
fn many_routers_have_one_section_with_sums() {
    let neighbors: Vec<_> = (0..200)
        .map(|number: u32| format!("\"10.0.1.{number} as {}\"", 65_100 + 2 * number))
        .collect();
    let routers = format!(
        "[[router]]\nname = \"many\"\nport = \"A\"\ndaemon = \"native\"\nipv4 = \"10.0.1.0/16\"\n\
         count = 201\nasn = 65100\nasn_step = 2\nneighbors = \"10.0.0.1 as 65001\"\nroutes = \
         \"16.0.0.0/24 x 1000\"\n[[router]]\nname = \"one\"\nport = \"B\"\ndaemon = \"native\"\n\
         ipv4 = \"10.0.0.1/16\"\nasn = 65001\nneighbors = [{}]\nexpect = \"many\"\n",
        neighbors.join(", ")
    );
    let report = run("many", 20, &routers);
    let (many, one) = (router(&report, "many"), router(&report, "one"));
    assert_eq!((many.count, one.count), (201, 1));
    let sums = many.sessions.as_ref().unwrap();
    assert_eq!((sums.sessions, sums.up, sums.exported), (201, 200, 200_000));
    assert_eq!(sums.all_up_after_s, None, "one has no neighbor that knows it");
    // All others are up, so only that one is listed.
    let [listed] = &many.protocols[..] else { panic!("{:?}", many.protocols) };
    assert_eq!((&*listed.name, listed.up), ("bgp1@10.0.1.200", false));
    let sums = one.sessions.as_ref().unwrap();
    assert_eq!((sums.sessions, sums.up, sums.imported), (200, 200, 200_000));
    assert!(one.protocols.is_empty());
    let expected = one.expected.as_ref().unwrap();
    assert_eq!((expected.missing, expected.extra, expected.by_prefix), (0, 0, true));
    assert!(report.verdict.valid, "{:?}", report.verdict);
}

#[test]
fn daemons_need_real_time() {
    let text = PAIR.replacen("daemon    = \"native\"\n", "", 1);
    let error = session("plan,virtual", 1, &text).plan_only().map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("router \"r1\": its daemon runs in real time"), "{error}");
    assert!(error.contains("daemon = \"native\" for BGP"), "{error}");
}
