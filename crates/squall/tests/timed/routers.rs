//! Live orders for native routers, over a link in memory.

use std::{
    thread,
    time::{Duration, Instant},
};

use serde_json::json;
use squall::{Format, Profile, Run, Session, report::Report};

const ROUTERS: &str = r#"
[[router]]
name      = "r1"
port      = "A"
daemon    = "native"
ipv4      = "10.0.0.1/24"
asn       = 65001
neighbors = "10.0.0.2 as 65002"
routes    = "16.0.0.0/24 x 100"

[[router]]
name      = "r2"
port      = "B"
daemon    = "native"
ipv4      = "10.0.0.2/24"
asn       = 65002
neighbors = "10.0.0.1 as 65001"
"#;

/// Waits until r2 has learnt this number of routes.
fn until_learnt(run: &mut Run, routes: u64) -> Report {
    let begin = Instant::now();
    loop {
        let (_, report) = run.sample();
        let learnt = |report: &Report| Some(report.routers.get(1)?.sessions.as_ref()?.imported);
        if learnt(&report) == Some(routes) {
            return report;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", report.routers);
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_native_router_carries_out_live_orders() {
    let link = format!("loop:orders-{}", std::process::id());
    let text = format!("[ports]\nA = \"{link}\"\nB = \"{link}\"\n{ROUTERS}");
    let profile = Profile::parse(&text, "routers.toml", Format::Toml).unwrap();
    let mut run = Session::new(profile).open().unwrap().start().unwrap();
    until_learnt(&mut run, 100);
    run.order("r1", &json!({ "action": "withdraw" })).unwrap();
    let report = until_learnt(&mut run, 0);
    let step = &report.routers[0].steps[0];
    assert_eq!((&*step.by, step.routes), ("order", 100));
    run.order("r1", &json!({ "action": "announce" })).unwrap();
    until_learnt(&mut run, 100);
    let notify = json!({ "action": "notify", "code": 6, "subcode": 9 });
    run.order("r1", &notify).unwrap();
    let report = until_learnt(&mut run, 0);
    assert_eq!(report.routers[1].protocols[0].error, "Received: Cease: Hard Reset (6/9)");
    let unknown = run.order("r1", &json!({ "action": "withdraw", "group": "edge" })).unwrap_err();
    assert!(unknown.to_string().contains("there is no group \"edge\""), "{unknown}");
    run.stop();
    let report = run.finish().unwrap();
    assert_eq!(report.routers[0].steps.len(), 3);
    assert_eq!((report.routers[0].downs, report.routers[1].downs), (0, 1));
}
