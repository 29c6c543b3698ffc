//! §6: join and leave delay. Frames of the stream to the group are numbered, so the first and the
//! last one received give the times at which forwarding started and stopped.
//!
//! The join delay uses method A (§6.1): one receiver, and a group that is new to the device. The
//! RFC recommends a stream at the aggregated throughput. Squall uses the lower rate of the
//! settings, at which frames do not wait in queues.

use squall_report::render::human::seconds;

use super::{
    Settings,
    groups::{Groups, members},
};
use crate::{
    bench::{Bench, MethodError},
    outcome::{Better, Figure, Limit, Outcome, Table},
    rig::Rig,
    trial::{Lane, LaneMeasured, Trial},
};

const PROBE: &str = "probe";
const RECEIVER: usize = 1;
/// Time from the probe's first frame to the join or leave, seconds.
const BEFORE_S: f64 = 0.5;

pub(super) fn join(
    settings: &Settings,
    rig: &Rig,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), MethodError> {
    let mut delays = Vec::new();
    for number in 0..settings.repetitions {
        let probe_s = BEFORE_S + settings.delay_s;
        let trial = trial(
            settings,
            rig,
            number,
            Times {
                label: format!("group join delay, {}", number + 1),
                join_s: BEFORE_S,
                probe_from_s: 0.0,
                leave_s: probe_s,
                probe_s,
            },
        );
        let measured = bench.trial(trial)?;
        if !measured.kept() {
            let what = format!("group join delay, trial {}", number + 1);
            outcome.not_measured(what, &measured.not_kept);
            continue;
        }
        let Some(lane) = measured.lane(PROBE) else { continue };
        if lane.received == 0 {
            outcome.notes.push(format!("group join delay, trial {}: no frame came", number + 1));
            continue;
        }
        // The first frame received follows the lost ones, whose number gives the time of its
        // departure.
        let first_s = lane.lost as f64 / settings.probe_rate;
        if first_s < BEFORE_S {
            let text = "frames came before the join: the device floods groups without members";
            outcome.notes.push(format!("group join delay, trial {}: {text}", number + 1));
            continue;
        }
        delays.push(first_s - BEFORE_S + latency_s(lane));
    }
    report("Group join delay (RFC 3918 §6.1, method A)", "join_delay", settings, &delays, outcome);
    Ok(())
}

pub(super) fn leave(
    settings: &Settings,
    rig: &Rig,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), MethodError> {
    let mut delays = Vec::new();
    for number in 0..settings.repetitions {
        let from = settings.settle_s;
        let trial = trial(
            settings,
            rig,
            number,
            Times {
                label: format!("group leave delay, {}", number + 1),
                join_s: 0.0,
                probe_from_s: from,
                leave_s: from + BEFORE_S,
                probe_s: BEFORE_S + settings.delay_s,
            },
        );
        let measured = bench.trial(trial)?;
        if !measured.kept() {
            let what = format!("group leave delay, trial {}", number + 1);
            outcome.not_measured(what, &measured.not_kept);
            continue;
        }
        let Some(lane) = measured.lane(PROBE) else { continue };
        if lane.received == 0 || lane.lost == 0 {
            let text = if lane.lost == 0 { "frames came until the end" } else { "no frame came" };
            outcome.notes.push(format!("group leave delay, trial {}: {text}", number + 1));
            continue;
        }
        let last_s = lane.received.saturating_sub(1) as f64 / settings.probe_rate;
        delays.push((last_s - BEFORE_S + latency_s(lane)).max(0.0));
    }
    report("Group leave delay (RFC 3918 §6.2)", "leave_delay", settings, &delays, outcome);
    Ok(())
}

/// Times since the start of the trial, seconds.
struct Times {
    label: String,
    join_s: f64,
    probe_from_s: f64,
    leave_s: f64,
    /// Duration of the probe, seconds.
    probe_s: f64,
}

/// Each trial uses a group that no earlier trial has joined.
fn trial(settings: &Settings, rig: &Rig, number: u32, times: Times) -> Trial {
    let groups = Groups::new(settings, 0x10_0000 + number, 1);
    let members =
        members(settings, rig, groups, std::iter::once(RECEIVER), times.join_s, times.leave_s);
    let probe = Lane {
        name: PROBE.into(),
        template: Some(groups.data(rig, 0)),
        frame_size: Some(settings.sizes()[0]),
        rate_fps: settings.probe_rate,
        start_s: times.probe_from_s,
        duration_s: Some(times.probe_s),
        ..Lane::default()
    };
    let ends = (times.probe_from_s + times.probe_s).max(times.leave_s) + 0.1;
    let lanes = members.into_iter().chain([probe]).collect();
    Trial { label: times.label, lanes, duration_s: ends, ..Trial::default() }
}

fn latency_s(lane: &LaneMeasured) -> f64 {
    lane.delay.map_or(0.0, |delay| delay.p50 as f64 / 1e9)
}

fn report(title: &str, name: &str, settings: &Settings, delays: &[f64], outcome: &mut Outcome) {
    let mut table = Table::new(title, &["Trials", "Minimum", "Mean", "Maximum", "Resolution"]);
    if !delays.is_empty() {
        let mean = delays.iter().sum::<f64>() / delays.len() as f64;
        let least = delays.iter().copied().fold(f64::INFINITY, f64::min);
        let most = delays.iter().copied().fold(0.0, f64::max);
        let gap = 1.0 / settings.probe_rate;
        let noise = gap.max((most - least) / 2.0);
        outcome.figures.push(Figure::new(name, mean, "s", Better::Lower, noise, Limit::Device));
        let times = [least, mean, most, gap].map(seconds);
        table.rows.push([delays.len().to_string()].into_iter().chain(times).collect());
    }
    outcome.tables.push(table);
}
