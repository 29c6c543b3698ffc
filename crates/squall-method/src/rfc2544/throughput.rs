//! §26.1: the highest rate at which the device loses nothing.

use squall_report::render::human::{ratio, si};

use super::{Settings, Test, figure};
use crate::{
    bench::{Bench, Halt},
    bracket::{Bracket, Judged},
    outcome::{Better, Limit, Outcome, Plot, Series, Table},
    rig::Rig,
    trial::Measured,
};

/// The throughput of one frame size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    pub size: u32,
    /// As a part of the most that is offered; 0: nothing passed.
    pub load: f64,
    /// Frames per second, all streams together.
    pub fps: f64,
    pub uncertainty_fps: f64,
    pub limit: Limit,
}

/// Loads below this part of the most are not tried.
const LOWEST: f64 = 1e-5;
/// Arrivals have whole nanoseconds; what came out is rounded down by more than that.
const CLOCK: f64 = 1e-6;

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
        say(rig, &found, outcome);
    }
    Ok(found)
}

/// Searches the throughput of frames of `size`.
///
/// # Errors
/// Why it stopped.
pub fn search(
    settings: &Settings,
    rig: &Rig,
    size: u32,
    label: &str,
    bench: &mut Bench<'_>,
) -> Result<Found, Halt> {
    let mut bracket = Bracket::new(settings.resolution, LOWEST);
    let mut came_out = 0.0;
    while let Some(load) = bracket.next() {
        let text = format!("{label}, {}", ratio(load));
        let measured = bench.trial(rig.trial(text, size, load, settings.trial_s))?;
        let judged = judge(&measured, load, settings.loss_tolerance);
        if judged == Judged::Passed && load > bracket.passed {
            came_out = load * output(&measured);
        }
        bracket.record(load, judged);
    }
    let limit = match bracket {
        _ if bracket.generator_bound() => Limit::Generator,
        // What the buffer took was not carried.
        _ if bracket.passed >= 1.0 && came_out >= 1.0 - settings.resolution => Limit::Offered,
        _ => Limit::Device,
    };
    let fps = came_out * rig.total_fps(size);
    let uncertainty_fps = fps * settings.resolution;
    Ok(Found { size, load: came_out, fps, uncertainty_fps, limit })
}

fn judge(measured: &Measured, load: f64, tolerance: f64) -> Judged {
    if !measured.kept() {
        return Judged::NotKept;
    }
    match measured.sent() > 0 && measured.loss_ratio() <= tolerance {
        true => Judged::Passed,
        false => {
            Judged::Failed(Some(load * output(measured).min(1.0 - measured.loss_ratio() / 2.0)))
        }
    }
}

/// The part of the load that came out while it was offered. A buffer that fills during the trial
/// would else be taken for throughput.
fn output(measured: &Measured) -> f64 {
    match measured.kept_up() {
        part if part < 1.0 => part * (1.0 - CLOCK),
        _ => 1.0,
    }
}

fn say(rig: &Rig, found: &[Found], outcome: &mut Outcome) {
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
