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
