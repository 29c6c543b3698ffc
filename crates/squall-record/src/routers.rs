//! The section of the report for routers.

use std::collections::BTreeMap;

use squall_engine::RouterStats;
use squall_plan::Plan;
use squall_report::{
    render::human,
    report::routers::{
        ExpectedRoutesReport, RouterFaultReport, RouterFaultsReport, RouterGroupReport,
        RouterMessagesReport, RouterProtocolReport, RouterReport, RouterSessionsReport,
        RouterStepReport,
    },
};
use squall_router::{
    DaemonState, FaultCount, GroupCount, MOST_LEARNT, MessageCounts, ProtocolState, RouteGroup,
    SessionFaults, SessionSums, StepState,
};
use squall_units::Nanos;

/// Lateness of a step that is worth a note, seconds.
const LATE_S: f64 = 0.1;

/// One entry for each router on ports of this node. `daemons` have the numbers of their routers.
/// `ended`: the length of the run, if it has ended and was not stopped.
pub(crate) fn report(
    plan: &Plan,
    links: &[RouterStats],
    daemons: &[(usize, DaemonState)],
    ended: Option<Nanos>,
) -> Vec<RouterReport> {
    let mut all: Vec<_> = links.iter().collect();
    all.sort_by_key(|link| link.router);
    let of = |link: &RouterStats| {
        let state = |number: usize| {
            let of = daemons.iter().find(|(router, _)| *router == number);
            of.map(|(_, state)| state)
        };
        let expect = plan.routers[link.router].expect.as_ref();
        let expected = expect.map(|expect| {
            let other = &plan.routers[expect.router];
            let group = expect.group.as_deref();
            let counts = state(expect.router).map_or(&[][..], |state| &state.groups);
            let groups = &other.settings.groups;
            let routes = [announced(groups, group, counts), announced(groups, group, &[])];
            compared((&other.name, group), routes, state(link.router))
        });
        RouterReport { expected, ..one(plan, link, state(link.router), ended) }
    };
    all.into_iter().map(of).collect()
}

fn one(
    plan: &Plan,
    link: &RouterStats,
    state: Option<&DaemonState>,
    ended: Option<Nanos>,
) -> RouterReport {
    let router = &plan.routers[link.router];
    let protocol = |of: &ProtocolState, state: &DaemonState| RouterProtocolReport {
        name: of.name.clone(),
        kind: of.kind.clone(),
        state: of.state.clone(),
        up: of.is_up,
        up_after_s: state
            .up_after
            .iter()
            .find(|(name, _)| *name == of.name)
            .map(|(_, after)| after.as_secs_f64()),
        neighbor: of.neighbor.clone(),
        error: of.error.clone(),
        imported: of.imported,
        exported: of.exported,
        acknowledged_after_s: of
            .session
            .and_then(|session| session.acknowledged_after)
            .map(|after| after.as_secs_f64()),
        sent: of.session.map(|session| messages(session.sent)),
        received: of.session.map(|session| messages(session.received)),
    };
    let protocols = state
        .into_iter()
        .flat_map(|state| state.protocols.iter().map(move |of| protocol(of, state)));
    let failed = state.and_then(|state| state.failed.clone());
    let daemon = router.settings.daemon;
    let process = state.filter(|_| daemon.native().is_none());
    RouterReport {
        name: router.name.clone(),
        port: plan.ports[router.port].name.clone(),
        daemon: daemon.name().into(),
        count: daemon.native().map_or(1, |copies| copies.count.into()),
        routes: router.settings.routes(),
        sent: link.sent,
        received: link.received,
        dropped: link.dropped,
        protocols: protocols.collect(),
        sessions: state.and_then(|state| state.sessions.as_ref()).map(sessions),
        downs: state.map_or(0, |state| state.downs),
        groups: state.into_iter().flat_map(|state| state.groups.iter().map(group)).collect(),
        steps: state
            .into_iter()
            .flat_map(|state| state.steps.iter().map(step).chain(missed(state, ended)))
            .collect(),
        more_steps: state.map_or(0, |state| state.all_steps - state.steps.len() as u64),
        expected: None,
        failed: failed.or_else(|| link.error.clone()),
        cpu_s: process.map(|state| state.cpu.as_secs_f64()),
        memory: process.map(|state| state.memory),
    }
}

fn sessions(of: &SessionSums) -> RouterSessionsReport {
    let seconds = |time: Option<Nanos>| time.map(Nanos::as_secs_f64);
    RouterSessionsReport {
        sessions: of.sessions,
        up: of.up,
        ever_up: of.ever_up,
        all_up_after_s: seconds(of.all_up_after),
        acknowledged_after_s: seconds(of.acknowledged_after),
        imported: of.imported,
        exported: of.exported,
        sent: messages(of.sent),
        received: messages(of.received),
        closed_windows: of.closed_windows,
        faults: faults(&of.faults),
    }
}

fn faults(of: &SessionFaults) -> RouterFaultsReport {
    let reason = |of: &FaultCount| RouterFaultReport {
        reason: of.reason.into(),
        source: of.source.into(),
        treatment: if of.discards { "attribute discard" } else { "treat-as-withdraw" }.into(),
        updates: of.updates,
    };
    let SessionFaults { withdrawn, discarded, other_families, .. } = *of;
    let reasons = of.reasons.iter().map(reason).collect();
    RouterFaultsReport { withdrawn, discarded, other_families, reasons }
}

fn messages(of: MessageCounts) -> RouterMessagesReport {
    let MessageCounts { opens, updates, notifications, keepalives, refreshes } = of;
    RouterMessagesReport { opens, updates, notifications, keepalives, refreshes }
}

/// Number of expected routes: the routes that the other router announces now, or would announce if
/// its daemon is on another node.
fn announced(groups: &[RouteGroup], group: Option<&str>, counts: &[GroupCount]) -> u64 {
    let is_wanted = |name: &str| group.is_none_or(|group| group == name);
    let all: u64 = groups.iter().filter(|of| is_wanted(&of.name)).map(RouteGroup::len).sum();
    let counts = counts.iter();
    let withdrawn: u64 = counts.filter(|of| is_wanted(&of.name)).map(|of| of.withdrawn).sum();
    all.saturating_sub(withdrawn)
}

/// Compares the expected routes with those learnt: by prefix, if that is known, or by the number of
/// the protocol with most of them, because several protocols, and several native routers, may learn
/// the same ones. Prefixes are known of all routes: if some of those are withdrawn, numbers are
/// compared. `routes`: the number that is announced now, and that of all.
fn compared(
    (router, group): (&str, Option<&str>),
    [routes, all]: [u64; 2],
    state: Option<&DaemonState>,
) -> ExpectedRoutesReport {
    let mut kinds = BTreeMap::<&str, u64>::new();
    for protocol in state.iter().flat_map(|state| &state.protocols) {
        *kinds.entry(protocol.kind.as_str()).or_default() += protocol.imported;
    }
    let of_one = state.and_then(|state| state.sessions.as_ref()).map(|sums| sums.most_imported);
    let by_prefix = state.and_then(|state| state.compared).filter(|_| routes == all);
    let (learnt, extra) = match by_prefix {
        Some(found) => found,
        None => (of_one.or_else(|| kinds.into_values().max()).unwrap_or(0), 0),
    };
    ExpectedRoutesReport {
        router: router.to_owned(),
        group: group.map(str::to_owned),
        routes,
        missing: routes.saturating_sub(learnt),
        // Routes that are withdrawn are among the learnt ones, too, if the device keeps them.
        extra: extra + learnt.saturating_sub(routes),
        by_prefix: by_prefix.is_some(),
    }
}

fn group(count: &GroupCount) -> RouterGroupReport {
    let GroupCount { name, routes, withdrawn, flaps, late_flaps } = count.clone();
    RouterGroupReport { name, routes, withdrawn, flaps, late_flaps }
}

fn step(of: &StepState) -> RouterStepReport {
    let order = &of.due.order;
    RouterStepReport {
        action: order.action().into(),
        group: order.group().map(str::to_owned),
        neighbor: order.neighbor().map(|address| address.to_string()),
        by: if of.due.is_live { "order" } else { "profile" }.into(),
        due_s: of.due.at.as_secs_f64(),
        begun_s: of.begun.as_secs_f64(),
        acknowledged_s: of.acknowledged.map(|time| time.as_secs_f64()),
        routes: of.routes,
        first_sent_s: of.sent.map(|(first, _)| first.as_secs_f64()),
        last_sent_s: of.sent.map(|(_, last)| last.as_secs_f64()),
        error: of.error.clone(),
    }
}

/// The earliest step that was due, but not carried out when the run ended, as one that failed.
fn missed(state: &DaemonState, ended: Option<Nanos>) -> Option<RouterStepReport> {
    let ended = ended?.as_secs_f64();
    let due = state.next_step.clone().filter(|due| due.at.as_secs_f64() + LATE_S < ended)?;
    let error = Some("it was not carried out before the end of the run".to_owned());
    let begun = due.at;
    Some(step(&StepState { due, begun, acknowledged: None, routes: 0, sent: None, error }))
}

/// Notes on each router whose steps or flaps were late, or whose learnt routes are incomplete.
pub(crate) fn notes(plan: &Plan, daemons: &[(usize, DaemonState)]) -> Vec<String> {
    let late = |state: &DaemonState| {
        let steps = state.steps.iter().filter(|step| !step.due.is_live);
        let by = steps.map(|step| step.begun.as_secs_f64() - step.due.at.as_secs_f64());
        let late: Vec<f64> = by.filter(|by| *by > LATE_S).collect();
        (late.len(), late.into_iter().fold(0.0, f64::max))
    };
    let of = |(number, state): &(usize, DaemonState)| {
        let (steps, most) = late(state);
        let name = &plan.routers[*number].name;
        let of_steps = (steps > 0).then(|| {
            let steps = human::counted(steps as u64, "step");
            format!("router {name:?}: {steps} late, by up to {:.0} ms", most * 1e3)
        });
        let of_flaps = notes_on_flaps(name, state);
        of_steps.into_iter().chain(of_flaps).chain(notes_on_learnt(name, state))
    };
    daemons.iter().flat_map(of).collect()
}

/// Notes on flaps that were late or had to wait.
fn notes_on_flaps(name: &str, state: &DaemonState) -> Vec<String> {
    let late: u64 = state.groups.iter().map(|group| group.late_flaps).sum();
    let late = (late > 0).then(|| {
        let late = human::counted(late, "change");
        format!("router {name:?}: {late} by flaps over 100 ms late")
    });
    let waited = (state.flaps_waited > Nanos::ZERO).then(|| {
        let waited = human::seconds(state.flaps_waited.as_secs_f64());
        format!(
            "router {name:?}: routes did not flap for {waited}, until its daemon had all routes \
             of a step"
        )
    });
    late.into_iter().chain(waited).collect()
}

/// Notes on routes that a native router has not kept, and on those to which no frames go.
fn notes_on_learnt(name: &str, state: &DaemonState) -> Vec<String> {
    let Some(SessionSums { not_kept, no_destination, .. }) = &state.sessions else {
        return Vec::new();
    };
    let (not_kept, no_destination) = (*not_kept, *no_destination);
    let count = human::counted(not_kept, "announcement");
    let text = format!(
        "router {name:?}: its learnt routes are incomplete: {count} came after the {} that it keeps",
        human::count(MOST_LEARNT)
    );
    let not_kept = (not_kept > 0).then_some(text);
    let count = human::counted(no_destination, "learnt route");
    let text = format!("router {name:?}: {count} found no place among the destinations of streams");
    not_kept.into_iter().chain((no_destination > 0).then_some(text)).collect()
}

#[cfg(test)]
mod tests {
    use squall_router::{Due, GroupAttributes, GroupPart, Prefixes, RouteRange, RouterOrder};

    use super::*;

    #[test]
    fn learnt_routes_are_compared_by_the_protocol_with_most() {
        let group = |name: &str, count| RouteGroup {
            name: name.into(),
            attributes: GroupAttributes::default(),
            prefixes: vec![Prefixes::Range(RouteRange {
                first: [10, 0, 0, 0].into(),
                length: 24,
                count,
            })],
            flap: None,
            single: false,
        };
        let groups = [group("routes", 100), group("edge", 20)];
        let count = |name: &str, routes, withdrawn| GroupCount {
            name: name.into(),
            routes,
            withdrawn,
            ..GroupCount::default()
        };
        let counts = [count("routes", 100, 7), count("edge", 20, 5)];
        assert_eq!(announced(&groups, Some("edge"), &counts), 15);
        assert_eq!(announced(&groups, None, &counts), 108);
        assert_eq!(announced(&groups, Some("edge"), &[]), 20);
        let protocol = |kind: &str, imported| ProtocolState {
            kind: kind.into(),
            imported,
            ..ProtocolState::default()
        };
        let protocols = vec![protocol("BGP", 6), protocol("BGP", 5), protocol("OSPF", 9)];
        let mut state = DaemonState { protocols, ..DaemonState::default() };
        let found = compared(("r2", Some("edge")), [15, 20], Some(&state));
        assert_eq!((found.routes, found.missing, found.extra), (15, 4, 0));
        assert_eq!((found.router.as_str(), found.group.as_deref()), ("r2", Some("edge")));
        let found = compared(("r2", None), [10; 2], Some(&state));
        assert_eq!((found.missing, found.extra, found.by_prefix), (0, 1, false));
        assert_eq!(compared(("r2", None), [10; 2], None).missing, 10);
        // Native routers all learn the same routes.
        let sums = SessionSums { imported: 30, most_imported: 8, ..SessionSums::default() };
        state.sessions = Some(sums);
        assert_eq!(compared(("r2", None), [10; 2], Some(&state)).missing, 2);
        // The prefixes are compared at the end of the run.
        state.compared = Some((7, 2));
        let found = compared(("r2", None), [10; 2], Some(&state));
        assert_eq!((found.missing, found.extra, found.by_prefix), (3, 2, true));
        // The learnt prefixes may be withdrawn ones.
        let found = compared(("r2", None), [9, 10], Some(&state));
        assert_eq!((found.missing, found.extra, found.by_prefix), (1, 0, false));
    }

    #[test]
    fn flaps_that_were_late_or_had_to_wait_are_notes() {
        let group = |late_flaps| GroupCount { late_flaps, ..GroupCount::default() };
        let state = DaemonState {
            groups: vec![group(0), group(1_200)],
            flaps_waited: Nanos(1_500_000_000),
            ..DaemonState::default()
        };
        let notes = notes_on_flaps("r1", &state);
        assert_eq!(notes[0], "router \"r1\": 1,200 changes by flaps over 100 ms late");
        assert!(notes[1].contains("did not flap for 1.50 s"), "{notes:?}");
        assert_eq!(notes_on_flaps("r1", &DaemonState::default()), [""; 0]);
    }

    #[test]
    fn learnt_routes_that_are_not_kept_are_a_note() {
        let sums = SessionSums { not_kept: 1_200, ..SessionSums::default() };
        let mut state = DaemonState { sessions: Some(sums), ..DaemonState::default() };
        let notes = notes_on_learnt("r1", &state);
        assert!(notes[0].contains("incomplete: 1,200 announcements came"), "{notes:?}");
        state.sessions = Some(SessionSums { no_destination: 7, ..SessionSums::default() });
        let notes = notes_on_learnt("r1", &state);
        assert_eq!(notes.len(), 1);
        assert!(notes[0].contains("7 learnt routes found no place"), "{notes:?}");
        state.sessions = Some(SessionSums::default());
        assert_eq!(notes_on_learnt("r1", &state), [""; 0]);
    }

    #[test]
    fn a_step_that_was_not_carried_out_has_failed() {
        let seconds = |seconds: f64| Nanos((seconds * 1e9) as u64);
        let due =
            Due { at: seconds(5.0), order: RouterOrder::Talk, duration: None, is_live: false };
        let state = DaemonState { next_step: Some(due), ..DaemonState::default() };
        let step = missed(&state, Some(seconds(6.0))).expect("it was due");
        assert!(step.error.is_some_and(|why| why.contains("not carried out")));
        assert_eq!((step.due_s, step.acknowledged_s), (5.0, None));
        // Not due yet, a run that goes on or was stopped, and no step.
        assert_eq!(missed(&state, Some(seconds(5.05))), None);
        assert_eq!(missed(&state, None), None);
        assert_eq!(missed(&DaemonState::default(), Some(seconds(6.0))), None);
    }

    #[test]
    fn a_step_has_its_times_and_who_ordered_it() {
        let part = GroupPart { group: Some("edge".into()), count: Some(2) };
        let due = Due {
            at: Nanos::SECOND,
            order: RouterOrder::Withdraw(part),
            duration: None,
            is_live: true,
        };
        let state = StepState {
            due,
            begun: Nanos(1_200_000_000),
            acknowledged: None,
            routes: 2,
            sent: Some((Nanos(1_300_000_000), Nanos(1_400_000_000))),
            error: None,
        };
        let found = step(&state);
        let names = (&*found.action, found.group.as_deref(), found.neighbor, &*found.by);
        assert_eq!(names, ("withdraw", Some("edge"), None, "order"));
        assert_eq!((found.due_s, found.begun_s, found.acknowledged_s), (1.0, 1.2, None));
        assert_eq!((found.first_sent_s, found.last_sent_s), (Some(1.3), Some(1.4)));
    }
}
