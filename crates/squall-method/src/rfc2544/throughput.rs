//! §26.1: the highest rate without loss.

use squall_report::render::human::{ratio, si};

use super::{Settings, Test, figure};
use crate::{
    bench::{Bench, Halt},
    outcome::{Better, Limit, Outcome, Plot, Series, Table},
    rig::Rig,
    search::Search,
    trial::Measured,
};

/// The throughput of one frame size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    pub size: u32,
    /// Part of the highest load; 0: no load passed.
    pub load: f64,
    /// Total rate of all streams, frames per second.
    pub fps: f64,
    pub uncertainty_fps: f64,
    pub limit: Limit,
}

pub fn all(
    settings: &Settings,
    rig: &Rig,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<Vec<Found>, Halt> {
    let mut found: Vec<Found> = Vec::new();
    for &size in &settings.frame_sizes {
        let label = format!("throughput, {size} octets");
        let one = search(settings, rig, size, &label, bench)?;
        found.push(one);
        if settings.wants(Test::Throughput) {
            let name = ("throughput", "frames/s", Better::Higher);
            let (value, noise) = (one.fps, one.uncertainty_fps);
            outcome.figures.push(figure(name.0, size, value, name.1, name.2, noise, one.limit));
        }
    }
    if settings.wants(Test::Throughput) {
        report(rig, &found, outcome);
    }
    Ok(found)
}

/// Searches for the throughput of frames of `size`.
///
/// # Errors
/// If a trial cannot run, or if the test is stopped.
pub fn search(
    settings: &Settings,
    rig: &Rig,
    size: u32,
    label: &str,
    bench: &mut Bench<'_>,
) -> Result<Found, Halt> {
    let goal = Search {
        resolution: settings.resolution,
        tolerance: settings.loss_tolerance,
        verifications: 0,
        loss: &Measured::loss_ratio,
    };
    let trial = |load, label| rig.trial(label, size, load, settings.trial_s);
    let highest = goal.highest(label, bench, &trial)?;
    let fps = highest.load * rig.total_fps(size);
    let uncertainty_fps = fps * settings.resolution;
    Ok(Found { size, load: highest.load, fps, uncertainty_fps, limit: highest.limit })
}

fn report(rig: &Rig, found: &[Found], outcome: &mut Outcome) {
    let columns = ["Frame size", "Frames/s", "Of the highest rate", "Layer 1", "Layer 2", ""];
    let mut table = Table::new("Throughput (RFC 2544 §26.1)", &columns);
    for one in found {
        let bits = |octets: f64| si(one.fps * 8.0 * octets, "bit/s");
        table.rows.push(vec![
            one.size.to_string(),
            format!("{:.0}", one.fps.floor()),
            ratio(one.load),
            bits(f64::from(one.size) + 20.0),
            bits(f64::from(one.size)),
            one.limit.mark().into(),
        ]);
    }
    outcome.tables.push(table);
    let line = |label: &str, value: &dyn Fn(&Found) -> f64| Series {
        label: label.into(),
        points: found.iter().map(|one| (f64::from(one.size), value(one))).collect(),
    };
    outcome.plots.push(Plot {
        title: "Throughput".into(),
        x: "Frame size, octets".into(),
        y: "Frames/s".into(),
        series: vec![
            line("measured", &|one| one.fps),
            line("highest rate", &|one| rig.total_fps(one.size)),
        ],
    });
    let each =
        found.iter().map(|one| format!("{} frames/s at {}", si(one.fps, "").trim(), one.size));
    outcome.verdict.text.push(format!("throughput: {}", each.collect::<Vec<_>>().join(", ")));
}
