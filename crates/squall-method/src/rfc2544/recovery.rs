//! §26.5 and §26.6: the time until frames pass again after an overload and after a reset.

use squall_report::render::human::seconds;

use super::{Settings, figure, throughput::Found};
use crate::{
    bench::{Bench, Halt},
    outcome::{Better, Limit, Outcome, Table},
    rig::Rig,
    trial::{Action, Lane, LaneMeasured, Trial},
};

/// §26.5: 110 % of the throughput, capped at the highest load.
const OVERLOAD: f64 = 1.1;
const AFTER: f64 = 0.5;
const RESET_AT_S: f64 = 2.0;

pub fn overload(
    settings: &Settings,
    rig: &Rig,
    found: &[Found],
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), Halt> {
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
            let text = "system recovery: the generator did not keep to the overload";
            outcome.notes.push(format!("{text} at {} octets", one.size));
            continue;
        }
        let under = trial.lanes.iter().zip(&measured.lanes).filter(|(lane, _)| lane.start_s > 0.0);
        let (time, lost) = under.fold((0.0_f64, 0), |(time, lost), (lane, measured)| {
            (time.max(outage_s(lane, measured)), lost + measured.lost)
        });
        // Allow for one frame gap at each end of the outage.
        let noise =
            2.0 / trial.lanes.iter().map(|lane| lane.rate_fps).fold(f64::INFINITY, f64::min);
        let figure = figure("recovery", one.size, time, "s", Better::Lower, noise, Limit::Device);
        outcome.figures.push(figure);
        let rate = |load: f64| format!("{:.0} frames/s", load * rig.total_fps(one.size));
        table.rows.push(vec![
            one.size.to_string(),
            rate(one.load),
            rate((one.load * OVERLOAD).min(1.0)),
            rate((one.load * OVERLOAD).min(1.0) * AFTER),
            lost.to_string(),
            seconds(time),
        ]);
    }
    outcome.tables.push(table);
    Ok(())
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

/// Time from the reduction of the rate to the last loss; each lost frame takes one slot.
fn outage_s(lane: &Lane, measured: &LaneMeasured) -> f64 {
    match measured.loss_periods {
        0 => 0.0,
        1 => measured.longest_loss as f64 / lane.rate_fps,
        // Frames came through between the first and the last loss period.
        _ => measured.last_loss_s.unwrap_or(measured.lost as f64 / lane.rate_fps),
    }
}

pub fn reset(
    settings: &Settings,
    rig: &Rig,
    found: &[Found],
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), Halt> {
    // §26.6: test the smallest frame size only.
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
        outcome.notes.push("reset: the generator did not keep to the rate".into());
        return Ok(());
    }
    let outages = trial.lanes.iter().zip(&measured.lanes);
    let time = outages.map(|(lane, measured)| measured.longest_loss as f64 / lane.rate_fps);
    let time = time.fold(0.0, f64::max);
    if time == 0.0 {
        outcome.notes.push("reset: no frame was lost, so no reset was seen".into());
        return Ok(());
    }
    let noise = 2.0 / trial.lanes.iter().map(|lane| lane.rate_fps).fold(f64::INFINITY, f64::min);
    outcome.figures.push(figure("reset", one.size, time, "s", Better::Lower, noise, Limit::Device));
    let mut table = Table::new("Reset (RFC 2544 §26.6)", &["Frame size", "Recovery time"]);
    table.rows.push(vec![one.size.to_string(), seconds(time)]);
    outcome.tables.push(table);
    Ok(())
}
