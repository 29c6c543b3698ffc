use super::*;
use crate::{
    DaemonState, MOST_STEPS, StepState,
    bird::tests::{group, settings},
};

const SECOND: Nanos = Nanos::SECOND;

fn s(seconds: u64) -> Nanos {
    Nanos(seconds * SECOND.0)
}

/// `settings` with a group `edge` of two single routes, and `core` with both families.
fn three_groups() -> RouterSettings {
    let mut settings = settings();
    let mut edge = group("edge", [198, 51, 100, 0].into(), 32);
    edge.single = true;
    let mut core = group("core", [10, 8, 0, 0].into(), 24);
    core.prefixes.extend(group("", "2001:db8::".parse().unwrap(), 48).prefixes);
    settings.groups.extend([edge, core]);
    settings
}

fn part(group: &str, count: Option<u64>) -> GroupPart {
    GroupPart { group: Some(group.into()), count }
}

fn control(lines: &[&str]) -> Vec<DaemonCall> {
    lines.iter().map(|line| DaemonCall::Control(format!("{line}\n"))).collect()
}

fn kernel(lines: &[&str]) -> DaemonCall {
    DaemonCall::Kernel(lines.iter().map(|line| format!("{line}\n")).collect())
}

const DEL: [&str; 2] = [
    "route del blackhole 198.51.100.0/32 table 100 metric 2",
    "route del blackhole 198.51.100.1/32 table 100 metric 2",
];
const PUT: [&str; 2] = [
    "route replace blackhole 198.51.100.0/32 table 100 metric 2",
    "route replace blackhole 198.51.100.1/32 table 100 metric 2",
];

#[test]
fn groups_are_withdrawn_by_the_daemon_and_single_routes_in_the_kernel_s_table() {
    let settings = three_groups();
    let mut steered = Steered::new(&settings);
    let mut give = |order: RouterOrder| steered.calls(&settings, &[], &order).unwrap();
    let core = give(RouterOrder::Withdraw(part("core", None)));
    assert_eq!(core.calls, control(&["disable group3_4", "disable group3_6"]));
    assert_eq!(core.routes, 4);
    // It is withdrawn already.
    assert_eq!(give(RouterOrder::Withdraw(part("core", None))), Calls::default());
    let one = give(RouterOrder::Withdraw(part("edge", Some(1))));
    assert_eq!((one.calls, one.routes), (vec![kernel(&DEL[..1])], 1));
    let next = give(RouterOrder::Withdraw(part("edge", Some(5))));
    assert_eq!((next.calls, next.routes), (vec![kernel(&DEL[1..])], 1));
    let all = give(RouterOrder::Announce(GroupPart::default()));
    let mut expected = control(&["enable group3_4", "enable group3_6"]);
    expected.push(kernel(&PUT));
    assert_eq!((all.calls, all.routes), (expected, 6));
    assert_eq!(steered.initial(), PUT.map(|line| format!("{line}\n")).concat());
    assert_eq!(steered.kernel_routes(), Some(2));
}

#[test]
fn orders_for_what_a_router_does_not_have_change_nothing() {
    let settings = three_groups();
    let mut steered = Steered::new(&settings);
    let before = steered.clone();
    let down = |address: [u8; 4]| RouterOrder::Down {
        neighbor: Some(address.into()),
        message: String::new(),
    };
    for (order, expected) in [
        (RouterOrder::Withdraw(part("edges", None)), "there is no group \"edges\"\n  did you mean"),
        (RouterOrder::Withdraw(part("core", Some(1))), "try single = true"),
        (RouterOrder::Announce(GroupPart { group: None, count: Some(1) }), "group \"routes\" can"),
        (down([10, 0, 0, 9]), "there is no neighbor 10.0.0.9\n  known: 10.0.0.2"),
        (
            RouterOrder::Notify { neighbor: None, code: 6, subcode: 9, data: Vec::new() },
            "notify needs a router that is no daemon",
        ),
    ] {
        let error = steered.calls(&settings, &[], &order).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(steered, before);
    }
    let own = RouterSettings { configuration: Some("# mine".into()), ..settings.clone() };
    for order in [RouterOrder::Restart, RouterOrder::Withdraw(GroupPart::default())] {
        let error = Steered::new(&own).calls(&own, &[], &order).unwrap_err().to_string();
        assert!(error.contains("needs a configuration that Squall makes"), "{error}");
    }
    let none = RouterSettings { groups: Vec::new(), ..settings };
    let withdraw = RouterOrder::Withdraw(GroupPart::default());
    assert_eq!(check(&none, &withdraw), Err(OrderError::NoRoutes));
}

#[test]
fn sessions_are_disabled_by_neighbor_or_all() {
    let settings = three_groups();
    let mut steered = Steered::new(&settings);
    let protocol = |name: &str, kind: &str, neighbor: &str| ProtocolState {
        name: name.into(),
        kind: kind.into(),
        neighbor: neighbor.into(),
        ..ProtocolState::default()
    };
    let running = [protocol("bgp1", "BGP", "10.0.0.2"), protocol("bfd1", "BFD", "")];
    let mut give = |order: RouterOrder| steered.calls(&settings, &running, &order).unwrap();
    let neighbor = Some([10, 0, 0, 2].into());
    let down = RouterOrder::Down { neighbor, message: "works \"now\"".into() };
    let found = give(down);
    assert_eq!(found.calls, control(&["disable bgp1 \"works now\""]));
    assert_eq!(found.ends, ["bgp1"]);
    let down = give(RouterOrder::Down { neighbor: None, message: String::new() });
    assert_eq!(down.calls, control(&["disable bgp1", "disable ospf4", "disable rip4"]));
    give(RouterOrder::Up { neighbor: None });
    give(RouterOrder::Down { neighbor, message: String::new() });
    give(RouterOrder::Withdraw(part("routes", None)));
    // The new daemon begins with all of its file.
    let restart = give(RouterOrder::Restart);
    let after = control(&["disable group1_4", "disable bgp1"]);
    assert_eq!(restart.calls, [vec![DaemonCall::Restart], after].concat());
    assert_eq!(restart.ends, ["bgp1", "bfd1"]);
    let refresh = give(RouterOrder::Refresh { neighbor: None });
    assert_eq!(refresh.calls, control(&["reload in bgp1"]));
    assert_eq!(give(RouterOrder::Silent).calls, [DaemonCall::Link(false)]);
    assert_eq!(give(RouterOrder::Talk).calls, [DaemonCall::Link(true)]);

    // Protocols of the user's own configuration have the names that the daemon reports.
    let own = RouterSettings { configuration: Some("# mine".into()), ..settings };
    let running = [protocol("isp", "BGP", "10.0.0.2"), protocol("lan", "RIP", "")];
    let mut steered = Steered::new(&own);
    let up = steered.calls(&own, &running, &RouterOrder::Up { neighbor }).unwrap();
    assert_eq!(up.calls, control(&["enable isp"]));
    let refresh = steered.calls(&own, &running, &RouterOrder::Refresh { neighbor: None }).unwrap();
    assert_eq!(refresh.calls, control(&["reload in isp"]));
    let error = steered.calls(&own, &[], &RouterOrder::Up { neighbor: None }).unwrap_err();
    assert_eq!(error, OrderError::NoSessions);
}

/// Each step that is due within `seconds`, with its time in seconds.
fn due(schedule: &mut Schedule, seconds: u64) -> Vec<(u64, &'static str)> {
    let mut found = Vec::new();
    while let Some(due) = schedule.take(s(seconds)) {
        found.push((due.at.0 / SECOND.0, due.order.action()));
        schedule.reverse(&due, 1);
    }
    found
}

#[test]
fn steps_repeat_and_are_followed_by_their_reverse() {
    let step = |at, order, duration, every, times| Step {
        at: s(at),
        order,
        duration: Some(s(duration)).filter(|time| *time > Nanos::ZERO),
        every,
        times,
    };
    let withdraw = RouterOrder::Withdraw(part("edge", Some(9)));
    let steps = [
        step(10, withdraw.clone(), 5, Some(s(20)), Some(2)),
        step(1, RouterOrder::Silent, 3, None, Some(7)),
        step(0, RouterOrder::Refresh { neighbor: None }, 0, Some(s(15)), None),
    ];
    let mut schedule = Schedule::new(&steps);
    assert_eq!(schedule.next(), Some(Nanos::ZERO));
    assert_eq!(due(&mut schedule, 9), [(0, "refresh"), (1, "silent"), (4, "talk")]);
    assert_eq!(due(&mut schedule, 14), [(10, "withdraw")]);
    let rest = [(15, "refresh"), (15, "announce"), (30, "withdraw"), (30, "refresh")];
    assert_eq!(due(&mut schedule, 30), rest);
    assert_eq!(due(&mut schedule, 59), [(35, "announce"), (45, "refresh")]);

    // As many routes come back as were withdrawn.
    let mut schedule = Schedule::default();
    schedule.order(s(1), withdraw, Some(s(1)));
    let first = schedule.take(s(1)).unwrap();
    assert!(first.is_live);
    schedule.reverse(&first, 4);
    let back = schedule.take(s(2)).unwrap();
    assert_eq!((back.order, back.is_live), (RouterOrder::Announce(part("edge", Some(4))), true));
    assert_eq!(schedule.next(), None);
}

#[test]
fn routes_flap_one_after_the_other_except_those_that_an_order_has_withdrawn() {
    let mut settings = three_groups();
    settings.groups[1].flap = Some(Flap { gap: s(1), down: s(3) });
    let mut steered = Steered::new(&settings);
    let flap = |steered: &mut Steered, seconds| steered.flap(s(seconds));
    let line = |text: &str| format!("{text}\n");
    assert_eq!(steered.next_flap(), Some(s(1)));
    assert_eq!(flap(&mut steered, 0), "");
    assert_eq!(flap(&mut steered, 1), line(DEL[0]));
    assert_eq!(flap(&mut steered, 2), line(DEL[1]));
    assert_eq!(steered.kernel_routes(), Some(0));
    // All are down.
    assert_eq!(flap(&mut steered, 3), "");
    // The first one is back, and at once its turn comes again.
    assert_eq!(flap(&mut steered, 4), line(PUT[0]) + &line(DEL[0]));
    assert_eq!(steered.next_flap(), Some(s(5)));
    let order = RouterOrder::Withdraw(part("edge", None));
    let calls = steered.calls(&settings, &[], &order).unwrap();
    assert_eq!((calls.calls, calls.routes), (Vec::new(), 2), "they are down already");
    assert_eq!(flap(&mut steered, 20), "", "an order has withdrawn them");
    let order = RouterOrder::Announce(part("edge", Some(1)));
    let calls = steered.calls(&settings, &[], &order).unwrap();
    assert_eq!(calls.calls, [kernel(&PUT[..1])]);
    let counts = steered.counts(&settings);
    // Those at 4 s were on time; the announcements of 20 s were of withdrawn routes.
    let edge = GroupCount { name: "edge".into(), routes: 2, withdrawn: 1, flaps: 3, late_flaps: 0 };
    assert_eq!((counts.len(), &counts[1]), (3, &edge));
}

#[test]
fn late_flaps_are_counted_and_those_that_had_to_wait_are_not_late() {
    let mut settings = three_groups();
    settings.groups[1].flap = Some(Flap { gap: s(1), down: Nanos(SECOND.0 / 2) });
    let mut steered = Steered::new(&settings);
    let late = |steered: &Steered| steered.counts(&settings)[1].late_flaps;
    steered.flap(Nanos(SECOND.0 + 100_000_000));
    assert_eq!(late(&steered), 0, "100 ms are on time");
    steered.flap(Nanos(2 * SECOND.0 + 500_000_000));
    assert_eq!(late(&steered), 2, "the announcement of 1.5 s and the withdrawal of 2 s");
    // The flaps of 3 s and later wait for 6 s.
    let mut waited = steered.clone();
    waited.delay_flaps(s(6));
    assert_eq!(waited.next_flap(), Some(s(9)));
    waited.flap(s(9));
    assert_eq!((late(&waited), waited.counts(&settings)[1].flaps), (2, 3));
    steered.flap(s(9));
    assert!(late(&steered) > 2);
}

#[test]
fn flaps_end_and_times_without_end_are_the_last_ones() {
    let mut settings = three_groups();
    settings.groups[1].flap = Some(Flap { gap: s(1), down: Nanos(u64::MAX) });
    let mut steered = Steered::new(&settings);
    assert_eq!(steered.flap(s(1)), format!("{}\n", DEL[0]));
    steered.end_flaps();
    assert_eq!(steered.flap(s(99)), "");
    assert_eq!(steered.next_flap(), Some(Nanos(u64::MAX)));
    let mut schedule = Schedule::new(&[]);
    schedule.order(s(1), RouterOrder::Silent, Some(Nanos(u64::MAX)));
    let due = schedule.take(s(1)).expect("it is due");
    schedule.reverse(&due, 0);
    assert_eq!(schedule.first().map(|due| due.at), Some(Nanos(u64::MAX)));
}

#[test]
fn steps_that_fail_are_recorded_after_the_first_thousand() {
    let step = |error: Option<&str>| StepState {
        due: Due { at: Nanos::ZERO, order: RouterOrder::Talk, duration: None, is_live: false },
        begun: Nanos::ZERO,
        acknowledged: None,
        routes: 0,
        sent: None,
        error: error.map(str::to_owned),
    };
    let mut state = DaemonState::default();
    (0..=MOST_STEPS).for_each(|_| _ = state.add_step(step(None)));
    assert_eq!(state.add_step(step(Some("no"))), Some(MOST_STEPS));
    assert_eq!((state.add_step(step(None)), state.all_steps), (None, MOST_STEPS as u64 + 3));
}

#[test]
fn only_bgp_asks_for_routes_again() {
    let without = RouterSettings { bgp: None, ..settings() };
    let order = RouterOrder::Refresh { neighbor: None };
    assert_eq!(check(&without, &order), Err(OrderError::NoSessions));
    assert_eq!(check(&settings(), &order), Ok(()));
}

#[test]
fn routes_that_are_in_two_groups_are_not_counted() {
    let mut settings = three_groups();
    let again = RouteGroup { name: "again".into(), ..settings.groups[1].clone() };
    settings.groups.push(again);
    assert_eq!(Steered::new(&settings).kernel_routes(), None);
}
