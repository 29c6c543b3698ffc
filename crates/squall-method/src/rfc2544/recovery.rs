//! §26.5 and §26.6: time until frames pass again, after an overload and after a reset.

use squall_report::render::human::seconds;

use super::{Settings, figure, throughput::Found};
use crate::{
    bench::{Bench, MethodError},
    outage::Outage,
    outcome::{Better, Limit, Outcome, Table},
    rig::Rig,
    trial::{Action, Lane, LaneMeasured, Trial},
};

/// §26.5: the overload is 110 % of the throughput, at most the highest load.
const OVERLOAD: f64 = 1.1;
/// §26.5: the rate after the overload, as a fraction of the overload.
const AFTER: f64 = 0.5;
/// Time from the start of the trial to the reset: frames must pass before it, or the start of the
/// outage is unknown.
const RESET_AT_S: f64 = 2.0;

pub fn overload(
    settings: &Settings,
    rig: &Rig,
    found: &[Found],
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), MethodError> {
    let columns = ["Frame size", "Throughput", "Overload", "Then", "Lost after", "Recovery time"];
    let mut table = Table::new("System recovery (RFC 2544 §26.5)", &columns);
    let bound = |one: &&Found| one.load > 0.0 && one.limit == Limit::Device;
    for one in found.iter().filter(|one| !bound(one)) {
        outcome.notes.push(format!(
            "system recovery at {} octets: not run, as nothing that was offered overloads the device",
            one.size
        ));
    }
    for one in found.iter().filter(bound) {
        let label = format!("system recovery, {} octets", one.size);
        let trial = over_and_under(settings, rig, one, label);
        let measured = bench.trial(trial.clone())?;
        if !measured.kept() {
            let what = format!("system recovery at {} octets", one.size);
            outcome.not_measured(what, &measured.not_kept);
            continue;
        }
        let under = trial.lanes.iter().zip(&measured.lanes).filter(|(lane, _)| lane.start_s > 0.0);
        let (mut time, mut back, mut lost) = (0.0_f64, true, 0);
        for (lane, measured) in under {
            let (of_lane, came) = recovery(lane, measured).unwrap_or((0.0, true));
            (time, back, lost) = (time.max(of_lane), back && came, lost + measured.lost);
        }
        let limit = if back { Limit::Device } else { Limit::Trial };
        outcome.figures.push(figure(
            "recovery",
            one.size,
            time,
            "s",
            Better::Lower,
            noise(&trial),
            limit,
        ));
        if !back {
            outcome.verdict.text.push(format!(
                "system recovery at {} octets: frames were lost until the end of the trial, at \
                 least {} after the overload",
                one.size,
                seconds(time)
            ));
        }
        let rate = |load: f64| format!("{:.0} frames/s", load * rig.total_fps(one.size));
        table.rows.push(vec![
            one.size.to_string(),
            rate(one.load),
            rate((one.load * OVERLOAD).min(1.0)),
            rate((one.load * OVERLOAD).min(1.0) * AFTER),
            lost.to_string(),
            at_least(time, limit),
        ]);
    }
    outcome.tables.push(table);
    Ok(())
}

/// Uncertainty of a time: one gap between frames at each end.
fn noise(trial: &Trial) -> f64 {
    2.0 / trial.lanes.iter().map(|lane| lane.rate_fps).fold(f64::INFINITY, f64::min)
}

fn at_least(time: f64, limit: Limit) -> String {
    format!("{} {}", limit.mark(), seconds(time)).trim_start().to_owned()
}

/// Each stream at 110 % of the throughput, then at half of that rate (§26.5).
fn over_and_under(settings: &Settings, rig: &Rig, found: &Found, label: String) -> Trial {
    let over = (found.load * OVERLOAD).min(1.0);
    let mut lanes = rig.lanes(found.size, over);
    lanes.iter_mut().for_each(|lane| lane.duration_s = Some(settings.overload_s));
    let under = rig.lanes(found.size, over * AFTER).into_iter().map(|lane| Lane {
        name: format!("{} after the overload", lane.name),
        start_s: settings.overload_s,
        ..lane
    });
    lanes.extend(under);
    Trial { label, lanes, duration_s: 2.0 * settings.overload_s, ..Trial::default() }
}

/// Time from the reduction of the rate (timestamp A) to the departure of the last lost frame
/// (timestamp B), and whether a frame passed after it; `None`: no frame was lost.
fn recovery(lane: &Lane, measured: &LaneMeasured) -> Option<(f64, bool)> {
    let last = measured.losses()?.last;
    Some((last as f64 / lane.rate_fps, last + 1 < measured.sent))
}

pub fn reset(
    settings: &Settings,
    rig: &Rig,
    found: &[Found],
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), MethodError> {
    // §26.6 asks for the smallest frame size only.
    let Some(one) = found.iter().filter(|one| one.load > 0.0).min_by_key(|one| one.size) else {
        outcome.notes.push("reset: not measured, as nothing passed".into());
        return Ok(());
    };
    let command = settings.reset_command.clone();
    let hint = if command.is_some() { "" } else { ": reset the device now" };
    let label = format!("reset, {} octets{hint}", one.size);
    let trial = Trial {
        action: command.map(|command| Action { at_s: RESET_AT_S, command }),
        ..rig.trial(label, one.size, one.load, settings.reset_s)
    };
    let measured = bench.trial(trial.clone())?;
    if !measured.kept() {
        outcome.not_measured("reset", &measured.not_kept);
        return Ok(());
    }
    let outages = trial.lanes.iter().zip(&measured.lanes);
    let outages = outages.filter_map(|(lane, measured)| Outage::longest(measured, lane.rate_fps));
    let Some(outage) = outages.reduce(Outage::max) else {
        outcome.notes.push("reset: no frame was lost, so no reset was seen".into());
        return Ok(());
    };
    let limit = if outage.is_whole() { Limit::Device } else { Limit::Trial };
    let (better, noise) = (Better::Lower, noise(&trial));
    outcome.figures.push(figure("reset", one.size, outage.s, "s", better, noise, limit));
    if !outage.is_whole() {
        outcome.verdict.text.push(format!(
            "reset at {} octets: {}, at least {} without a frame\n  try a longer --reset-s",
            one.size,
            outage.lacks(),
            seconds(outage.s)
        ));
    }
    let columns = ["Frame size", "Last frame before it", "Recovery time", ""];
    let mut table = Table::new("Reset (RFC 2544 §26.6)", &columns);
    table.rows.push(vec![
        one.size.to_string(),
        if outage.begun { seconds(outage.at_s) } else { "-".into() },
        at_least(outage.s, limit),
        outage.lacks().into(),
    ]);
    outcome.tables.push(table);
    Ok(())
}
