//! Results of a search as figures, tables and plots.

use squall_report::render::human::{ratio, si};

use super::{Found, Goal, Searched, Settings};
use crate::{
    outcome::{Better, Figure, Limit, Outcome, Plot, Series, Table},
    rig::Rig,
};

/// One figure for each goal, at one frame size.
pub fn figures(settings: &Settings, goals: &[Goal], rig: &Rig, searched: &Searched) -> Vec<Figure> {
    let fps = rig.total_fps(searched.size);
    let figure = |(goal, found): (&Goal, &Found)| {
        Figure::new(
            format!("{}/{}", goal.name, searched.size),
            found.conditional_throughput.unwrap_or(0.0) * fps,
            "frames/s",
            Better::Higher,
            width(goal, settings, found) * fps,
            limit(found),
        )
    };
    goals.iter().zip(&searched.found).map(figure).collect()
}

/// Distance of the bounds; the goal's width if a bound is missing.
fn width(goal: &Goal, settings: &Settings, found: &Found) -> f64 {
    match (found.lower, found.upper) {
        (Some(lower), Some(upper)) => upper - lower,
        (Some(bound), None) => bound * goal.width,
        (None, upper) => upper.unwrap_or(settings.min_load),
    }
}

fn limit(found: &Found) -> Limit {
    match found {
        _ if found.generator_bound => Limit::Generator,
        Found { upper: None, .. } => Limit::Offered,
        _ => Limit::Device,
    }
}

/// Remark on an irregular result, which §4.8.4.2 requires.
fn remark(found: &Found) -> &'static str {
    match found {
        Found { regular: true, .. } => "regular",
        Found { generator_bound: true, .. } => "irregular: generator-bound",
        Found { upper: None, .. } => "irregular: no upper bound",
        Found { lower: None, .. } => "irregular: no lower bound",
        _ => "irregular: wider than the goal width",
    }
}

pub fn report(
    settings: &Settings,
    goals: &[Goal],
    rig: &Rig,
    all: &[Searched],
    outcome: &mut Outcome,
) {
    outcome.tables.push(results(goals, rig, all));
    outcome.tables.push(goal_table(goals));
    outcome.plots.extend(all.iter().map(|searched| plot(rig, searched)));
    outcome
        .verdict
        .text
        .extend(goals.iter().enumerate().map(|(i, goal)| sentence(goal, i, rig, all)));
    let ports = rig.sending_ports();
    if ports > 1 {
        let text = format!("Rates are totals of {ports} sending ports.");
        outcome.notes.push(text);
    }
    let (min, max) = (ratio(settings.min_load), ratio(settings.max_load));
    outcome.notes.push(format!("Min load {min}, max load {max} of the highest rate."));
}

fn results(goals: &[Goal], rig: &Rig, all: &[Searched]) -> Table {
    let columns = [
        "Frame size",
        "Goal",
        "Relevant lower bound, frames/s",
        "Relevant upper bound, frames/s",
        "Conditional throughput, frames/s",
        "Of the highest rate",
        "Layer 2",
        "Trials",
        "Result",
    ];
    let mut table = Table::new("Multiple loss ratio search (RFC 9971)", &columns);
    for searched in all {
        let fps = rig.total_fps(searched.size);
        let rate = |load: Option<f64>| load.map_or("-".into(), |load| format!("{:.0}", load * fps));
        for (goal, found) in goals.iter().zip(&searched.found) {
            let throughput = found.conditional_throughput;
            let bits = |load: f64| si(load * fps * 8.0 * f64::from(searched.size), "b/s");
            table.rows.push(vec![
                searched.size.to_string(),
                goal.name.clone(),
                rate(found.lower),
                rate(found.upper),
                rate(throughput),
                throughput.map_or("-".into(), ratio),
                throughput.map_or("-".into(), bits),
                searched.trials.len().to_string(),
                remark(found).into(),
            ]);
        }
    }
    table
}

/// All attributes of the goals, which §4.9.3 requires.
fn goal_table(goals: &[Goal]) -> Table {
    let columns = [
        "Goal",
        "Final trial duration, s",
        "Duration sum, s",
        "Loss ratio",
        "Exceed ratio",
        "Initial trial duration, s",
        "Width, relative to the upper bound",
    ];
    let mut table = Table::new("Search goals", &columns);
    let row = |goal: &Goal| {
        vec![
            goal.name.clone(),
            goal.final_s.to_string(),
            goal.sum_s.to_string(),
            ratio(goal.loss_ratio),
            ratio(goal.exceed_ratio),
            goal.initial_s.to_string(),
            ratio(goal.width),
        ]
    };
    table.rows.extend(goals.iter().map(row));
    table
}

/// Loads in the order of the trials, with a series for each trial duration.
fn plot(rig: &Rig, searched: &Searched) -> Plot {
    let fps = rig.total_fps(searched.size);
    let mut durations: Vec<f64> =
        searched.trials.iter().map(|(duration_s, _)| *duration_s).collect();
    durations.sort_by(f64::total_cmp);
    durations.dedup();
    let series = |duration_s: f64| {
        let numbered =
            searched.trials.iter().enumerate().filter(|(_, trial)| trial.0 == duration_s);
        let points = numbered.map(|(i, (_, load))| ((i + 1) as f64, load * fps)).collect();
        Series { label: format!("{duration_s} s"), points }
    };
    Plot::new(
        &format!("Loads of the search, {} octets", searched.size),
        "Trial",
        "Frames/s",
        durations.into_iter().map(series).collect(),
    )
}

fn sentence(goal: &Goal, i: usize, rig: &Rig, all: &[Searched]) -> String {
    let each = all.iter().map(|searched| match searched.found[i].conditional_throughput {
        Some(load) => {
            let rate = si(load * rig.total_fps(searched.size), "");
            format!("{} frames/s at {}", rate.trim(), searched.size)
        }
        None => format!("none at {}", searched.size),
    });
    format!("{}: {}", goal.name, each.collect::<Vec<_>>().join(", "))
}
