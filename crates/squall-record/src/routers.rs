//! The section of the report for routers.

use squall_engine::RouterStats;
use squall_plan::Plan;
use squall_report::report::routers::{RouterProtocolReport, RouterReport};
use squall_router::{DaemonState, ProtocolState};

/// One entry for each router on ports of this node. `daemons` have the numbers of their routers.
pub(crate) fn report(
    plan: &Plan,
    links: &[RouterStats],
    daemons: &[(usize, DaemonState)],
) -> Vec<RouterReport> {
    let mut all: Vec<_> = links.iter().collect();
    all.sort_by_key(|link| link.router);
    let of = |link: &RouterStats| {
        let state = daemons.iter().find(|(router, _)| *router == link.router);
        one(plan, link, state.map(|(_, state)| state))
    };
    all.into_iter().map(of).collect()
}

fn one(plan: &Plan, link: &RouterStats, state: Option<&DaemonState>) -> RouterReport {
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
    };
    let protocols = state
        .into_iter()
        .flat_map(|state| state.protocols.iter().map(move |of| protocol(of, state)));
    let failed = state.and_then(|state| state.failed.clone());
    RouterReport {
        name: router.name.clone(),
        port: plan.ports[router.port].name.clone(),
        daemon: "BIRD".into(),
        routes: router.settings.routes.iter().map(|range| u64::from(range.count)).sum(),
        sent: link.sent,
        received: link.received,
        dropped: link.dropped,
        protocols: protocols.collect(),
        downs: state.map_or(0, |state| state.downs),
        failed: failed.or_else(|| link.error.clone()),
        cpu_s: state.map_or(0.0, |state| state.cpu.as_secs_f64()),
        memory: state.map_or(0, |state| state.memory),
    }
}
