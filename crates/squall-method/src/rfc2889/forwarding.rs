//! §5.6.3.1: the maximum forwarding rate. The load rises from the throughput in steps: a device may
//! forward less at a higher load, so the highest load need not give the highest rate.

use squall_report::render::human::ratio;

use super::{Settings, mesh::Mesh, rate};
use crate::{
    bench::{Bench, MethodError},
    outcome::{Limit, Outcome, Plot, Series, Table},
    rig::Rig,
    search::Search,
    stations::loss,
};

pub(super) fn all(
    settings: &Settings,
    rig: &Rig,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), MethodError> {
    let columns =
        ["Frame size", "Throughput", "Maximum forwarding rate", "At a load of", "At most load", ""];
    let mut table = Table::new("Maximum forwarding rate (RFC 2889 §5.6.3.1)", &columns);
    let mut series = Vec::new();
    for &size in &settings.frame_sizes {
        let mesh = Mesh::new(settings, rig, vec![(0, 1)], size);
        let label = format!("forwarding rate, {size} octets");
        let goal = Search {
            resolution: settings.resolution,
            tolerance: 0.0,
            verifications: 0,
            loss: &loss,
        };
        let trial = |load, label| mesh.trial(load, label);
        let highest = goal.highest(&label, bench, &trial)?;
        let mut points: Vec<(f64, f64)> = vec![(highest.load, highest.load * mesh.most_fps())];
        let known = |load: f64| highest.trials.iter().find(|(l, _)| (l - load).abs() < 1e-12);
        let steps = ((1.0 - highest.load) / settings.load_step).ceil() as u32;
        for step in (0..steps).rev() {
            let load = 1.0 - f64::from(step) * settings.load_step;
            let measured = match known(load) {
                Some((_, measured)) => measured.clone(),
                None => bench.trial(trial(load, format!("{label}, {}", ratio(load))))?,
            };
            if measured.kept() {
                points.push((load, mesh.forwarded_fps(load, &measured)));
            }
        }
        let most = points.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1));
        let (at, fps) = most.unwrap_or_default();
        let at_most = points.last().filter(|(load, _)| *load >= 1.0).map(|(_, fps)| *fps);
        let limit = if highest.load < 1.0 - settings.resolution && at_most.is_some() {
            Limit::Device
        } else {
            highest.limit
        };
        outcome.figures.push(rate(format!("max_forwarding_rate/{size}"), fps, fps * 0.001, limit));
        table.rows.push(vec![
            size.to_string(),
            format!("{:.0} frames/s", highest.load * mesh.most_fps()),
            format!("{fps:.0} frames/s"),
            ratio(at),
            at_most.map_or_else(|| "-".into(), |fps| format!("{fps:.0} frames/s")),
            limit.mark().into(),
        ]);
        let points = points.into_iter().map(|(load, fps)| (load * 100.0, fps)).collect();
        series.push(Series { label: format!("{size} octets"), points });
    }
    outcome.tables.push(table);
    outcome.plots.push(Plot::new(
        "Forwarding rate",
        "Load, % of the highest rate",
        "Forwarded, frames/s",
        series,
    ));
    Ok(())
}
