//! Throughput (RFC 2544 §26.1): the highest rate without loss.

use squall_report::render::human::{ratio, seconds, si};

use super::{Settings, Test, figure};
use crate::{
    bench::{Bench, MethodError},
    outcome::{Better, Limit, Outcome, Plot, Series, Table},
    rig::Rig,
    search::Search,
    trial::Measured,
};

/// The throughput of one frame size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    pub size: u32,
    /// Rate at which frames left the device, as a fraction of the highest load; 0: no load passed.
    pub load: f64,
    /// The same rate for all streams together, frames per second.
    pub fps: f64,
    /// The offered rate of that trial, at which no frame was lost, frames per second.
    pub offered_fps: f64,
    /// Frames that the device had queued but not sent when the trial ended.
    pub absorbed: f64,
    pub uncertainty_fps: f64,
    pub limit: Limit,
}

pub fn all(
    settings: &Settings,
    rig: &Rig,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<Vec<Found>, MethodError> {
    let mut found: Vec<Found> = Vec::new();
    for &size in &settings.frame_sizes {
        let label = format!("throughput, {size} octets");
        let one = search(settings, rig, size, &label, bench)?;
        found.push(one);
        if settings.wants(Test::Throughput) {
            let name = ("throughput", "frames/s", Better::Higher);
            let (value, noise) = (one.fps, one.uncertainty_fps);
            outcome.figures.push(figure(name.0, size, value, name.1, name.2, noise, one.limit));
            let (offered, noise) = (one.offered_fps, one.offered_fps * settings.resolution);
            outcome.figures.push(figure(
                "throughput.offered",
                size,
                offered,
                name.1,
                name.2,
                noise,
                one.limit,
            ));
        }
    }
    if settings.wants(Test::Throughput) {
        report(settings, rig, &found, outcome);
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
) -> Result<Found, MethodError> {
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
    Ok(Found {
        size,
        load: highest.load,
        fps,
        offered_fps: highest.offered * rig.total_fps(size),
        absorbed: highest.absorbed,
        uncertainty_fps,
        limit: highest.limit,
    })
}

fn report(settings: &Settings, rig: &Rig, found: &[Found], outcome: &mut Outcome) {
    let columns = [
        "Frame size",
        "Offered, frames/s",
        "Received, frames/s",
        "Absorbed",
        "Theoretical maximum, frames/s",
        "Of the maximum",
        "Layer 1",
        "Layer 2",
        "",
    ];
    let mut table = Table::new("Throughput (RFC 2544 §26.1)", &columns);
    for one in found {
        let medium = rig.medium_fps(one.size);
        let bits = |octets: f64| si(one.fps * 8.0 * octets, "b/s");
        table.rows.push(vec![
            one.size.to_string(),
            format!("{:.0}", one.offered_fps.floor()),
            format!("{:.0}", one.fps.floor()),
            format!("{:.0} frames", one.absorbed),
            medium.map_or("-".into(), |fps| format!("{:.0}", fps.floor())),
            medium.map_or("-".into(), |fps| ratio(one.fps / fps)),
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
            line("received", &|one| one.fps),
            line("offered", &|one| one.offered_fps),
            line("theoretical maximum", &|one| {
                rig.medium_fps(one.size).unwrap_or_else(|| rig.total_fps(one.size))
            }),
        ],
    });
    let each =
        found.iter().map(|one| format!("{} frames/s at {}", si(one.fps, "").trim(), one.size));
    outcome.verdict.text.push(format!("throughput: {}", each.collect::<Vec<_>>().join(", ")));
    // A rate above the throughput passes without loss until the queue is full, so longer trials
    // find a lower throughput.
    let holds = |one: &&Found| one.fps < one.offered_fps * (1.0 - settings.resolution);
    for one in found.iter().filter(holds) {
        outcome.verdict.text.push(format!(
            "at {} octets, {:.0} frames/s passed for {} without loss and came out at {:.0} \
             frames/s: a queue took in {:.0} frames; a longer --trial-s fills it",
            one.size,
            one.offered_fps,
            seconds(settings.trial_s),
            one.fps,
            one.absorbed,
        ));
    }
}
