//! §5: head-of-line blocking. In a group of four ports, the first one sends to the third and the
//! fourth, and the second one overloads the fourth. Loss on the way to the third is head-of-line
//! blocking.

use squall_report::render::human::ratio;

use super::{Load, Settings, counts, trial};
use crate::{
    bench::{Bench, MethodError},
    outcome::{Better, Figure, Limit, Outcome, Table},
    rig::Rig,
    trial::{LaneMeasured, Measured},
};

/// Ports of a group.
const GROUP: usize = 4;

pub(super) fn all(
    settings: &Settings,
    rig: &Rig,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), MethodError> {
    let n = rig.ports.len();
    let groups = n / GROUP;
    if groups < 2 {
        let text = "head-of-line blocking (§5.2): one group of four ports, where the RFC asks for \
                    two or more";
        outcome.notes.push(text.into());
    }
    let columns = [
        "Groups",
        "First port",
        "Frame size",
        "Loss to the uncongested ports",
        "Loss to the congested ports",
        "Head-of-line blocking",
    ];
    let mut table = Table::new("Head-of-line blocking (RFC 8239 §5)", &columns);
    // Procedure 1 with two groups, procedure 2 with all.
    let procedures = if groups > 2 { vec![2, groups] } else { vec![groups] };
    for &size in &settings.frame_sizes {
        let mut worst: Option<f64> = None;
        for groups in &procedures {
            for shift in settings.shifts(rig) {
                let loads: Vec<_> =
                    (0..*groups).flat_map(|group| group_of(n, shift + group * GROUP)).collect();
                let label = format!("head of line, {groups} groups, shift {shift}, {size} octets");
                let measured =
                    bench.trial(trial(rig, size, &loads, settings.trial_s, label.clone()))?;
                if !counts(&label, &measured, outcome) {
                    continue;
                }
                // The first load of each group is that to its uncongested port.
                let loss = |of: &dyn Fn(usize) -> bool| {
                    let loads = loads.iter().enumerate().filter(|(i, _)| of(*i));
                    loads.map(|(_, load)| lost(rig, load, &measured)).fold(0.0, f64::max)
                };
                let (free, full) = (loss(&|i| i % 3 == 0), loss(&|i| i % 3 != 0));
                worst = Some(worst.unwrap_or(0.0).max(free));
                table.rows.push(vec![
                    groups.to_string(),
                    rig.ports[shift % n].clone(),
                    size.to_string(),
                    ratio(free),
                    ratio(full),
                    if free > 0.0 { "yes" } else { "no" }.into(),
                ]);
            }
        }
        if let Some(worst) = worst {
            let (name, better) = (format!("head_of_line.loss/{size}"), Better::Lower);
            let text = format!("head of line, {size} octets: {} lost", ratio(worst));
            outcome.verdict.text.push(text);
            outcome.figures.push(Figure::new(name, worst, "ratio", better, 1e-4, Limit::Device));
        }
    }
    outcome.tables.push(table);
    Ok(())
}

/// The loads of the group that begins with port `first`.
fn group_of(ports: usize, first: usize) -> [Load; 3] {
    let [a, b, free, full] = [0, 1, 2, 3].map(|port| (first + port) % ports);
    let load = |from, to, part| Load { from, to, part, frames: None };
    [load(a, free, 0.5), load(a, full, 0.5), load(b, full, 1.0)]
}

fn lost(rig: &Rig, load: &Load, measured: &Measured) -> f64 {
    let lane = measured.lane(&super::named(rig, load.from, load.to).name);
    lane.map_or(0.0, LaneMeasured::loss_ratio)
}
