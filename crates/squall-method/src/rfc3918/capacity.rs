//! §7.1: group capacity. A frame for each group must arrive at the member port, and none at a port
//! that is not a member, if the rig has one.

use super::{
    Settings,
    groups::{Groups, Phases, members},
};
use crate::{
    bench::{Bench, MethodError},
    outcome::{Better, Figure, Limit, Outcome, Table},
    rig::Rig,
    stations::strays,
    trial::{Action, Lane, Measured, Trial},
};

const LANE: &str = "test frames";
const MEMBER: usize = 1;
/// Time for the flush command to complete, seconds.
const FLUSH_S: f64 = 1.0;

/// Doubles and then bisects, because each of the RFC's steps would take a trial. Returns the
/// capacity if the device, not the generator or the settings, was the limit.
pub(super) fn all(
    settings: &Settings,
    rig: &Rig,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<Option<u32>, MethodError> {
    let most = settings.max_groups;
    let (mut kept, mut failed, mut limit) = (0, None, Limit::Device);
    let mut next = settings.groups.min(most);
    while next > kept && failed.is_none_or(|failed| next < failed) {
        let measured = bench.trial(trial(settings, rig, next))?;
        match (measured.kept(), passed(rig, next, &measured)) {
            // A missed schedule does not matter if the trial passed: the device kept all groups.
            (_, true) => kept = next,
            (true, false) => (failed, limit) = (Some(next), Limit::Device),
            (false, false) => (failed, limit) = (Some(next), Limit::Generator),
        }
        next = failed.map_or(most.min(kept.saturating_mul(2)), |failed| kept + (failed - kept) / 2);
    }
    if kept == most {
        limit = Limit::Offered;
    }
    let (name, better) = ("group_capacity".to_owned(), Better::Higher);
    outcome.figures.push(Figure::new(name, kept.into(), "groups", better, 0.0, limit));
    let mut table = Table::new("Multicast group capacity (RFC 3918 §7.1)", &["Groups", ""]);
    table.rows.push(vec![kept.to_string(), limit.mark().into()]);
    outcome.tables.push(table);
    if rig.ports.len() < 3 {
        let text = "group capacity: without a third port, groups that the device floods count as \
                    kept";
        outcome.notes.push(text.into());
    }
    Ok((limit == Limit::Device).then_some(kept))
}

fn trial(settings: &Settings, rig: &Rig, count: u32) -> Trial {
    let groups = Groups::new(settings, 0x20_0000, count);
    // The settings limit the rate. This is too short for memberships to time out.
    let data_s = f64::from(count) / settings.join_rate;
    let quiet = settings.flush_command.as_ref().map_or(0.0, |_| FLUSH_S);
    let phases = Phases::new(settings, groups, data_s + 0.1);
    let member = std::iter::once(MEMBER);
    let mut lanes = members(settings, rig, groups, member, quiet, quiet + phases.leave_s);
    lanes.push(Lane {
        name: LANE.into(),
        template: Some(groups.data(rig, 0)),
        frame_size: Some(settings.sizes()[0]),
        rate_fps: settings.join_rate,
        frames: Some(count.into()),
        start_s: quiet + phases.data_s,
        ..Lane::default()
    });
    Trial {
        label: format!("group capacity, {count} groups"),
        lanes,
        duration_s: quiet + phases.end_s,
        action: settings.flush_command.clone().map(|command| Action { at_s: 0.0, command }),
        ..Trial::default()
    }
}

fn passed(rig: &Rig, count: u32, measured: &Measured) -> bool {
    let lane = measured.lane(LANE);
    let all = lane.is_some_and(|lane| lane.sent == u64::from(count) && lane.lost == 0);
    all && strays(measured, rig.ports.iter().skip(MEMBER + 1)) == 0
}
