//! §26.2: delay at the throughput rate. The RFC measures one tagged frame in the middle of the
//! stream; Squall measures all other frames as well.

use squall_report::render::human::ns;

use super::{Settings, figure, throughput::Found};
use crate::{
    bench::{Bench, MethodError},
    outcome::{Better, Limit, Outcome, Plot, Series, Table},
    rig::Rig,
    trial::{Delay, Lane, Trial},
};

const TAGGED: &str = "tagged";
/// RFC 2544 §26.2 and RFC 3918 §5.1 require reports to state the definition of latency.
pub(crate) const LATENCY_NOTE: &str = "latency is from a frame's departure to its arrival, by the \
    timestamps of the ports; the definitions of RFC 1242 (store-and-forward, bit forwarding) are not \
    told apart";

/// Latency at one frame size.
struct Latency {
    size: u32,
    /// Total rate of all streams, frames per second.
    fps: f64,
    /// Mean delay of the tagged frames, nanoseconds.
    tagged: Option<f64>,
    /// Delay of all frames of all trials.
    all: Delay,
    /// Half of the range of the trials' means.
    spread: f64,
}

pub fn all(
    settings: &Settings,
    rig: &Rig,
    found: &[Found],
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), MethodError> {
    let mut measured = Vec::new();
    for one in found {
        measured.extend(of_size(settings, rig, one, bench, outcome)?);
    }
    for one in &measured {
        let mut push = |name, value| {
            outcome.figures.push(figure(
                name,
                one.size,
                value,
                "ns",
                Better::Lower,
                one.spread,
                Limit::Device,
            ))
        };
        push("latency", one.tagged.unwrap_or(one.all.mean));
        push("latency.min", one.all.min as f64);
        push("latency.mean", one.all.mean);
        push("latency.p99", one.all.p99 as f64);
        push("latency.max", one.all.max as f64);
    }
    report(&measured, outcome);
    Ok(())
}

fn of_size(
    settings: &Settings,
    rig: &Rig,
    found: &Found,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<Option<Latency>, MethodError> {
    let what = format!("latency at {} octets", found.size);
    if found.load <= 0.0 {
        outcome.no_figure(what, "nothing passed", &[]);
        return Ok(None);
    }
    let (mut tagged, mut means, mut all) = (Vec::new(), Vec::new(), None::<Delay>);
    let (mut missed, mut not_kept) = (0, Vec::new());
    for number in 1..=settings.latency_trials {
        let label = format!("latency, {} octets, {number}", found.size);
        let measured = bench.trial(trial(settings, rig, found, label))?;
        if !measured.kept() {
            missed += 1;
            not_kept = measured.not_kept;
            continue;
        }
        let Some(delay) = measured.delay() else { continue };
        tagged.extend(measured.lane(TAGGED).and_then(|lane| lane.delay).map(|delay| delay.mean));
        means.push(delay.mean);
        all = Some(all.map_or(delay, |so_far: Delay| so_far.worst(delay)));
    }
    let Some(mut all) = all else {
        outcome.no_figure(what, "nothing passed", &not_kept);
        return Ok(None);
    };
    outcome.partly_measured(what, (missed, settings.latency_trials), &not_kept);
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    all.mean = mean(&means);
    let spread = means.iter().fold(0.0_f64, |spread, one| spread.max((one - all.mean).abs()));
    let tagged = (!tagged.is_empty()).then(|| mean(&tagged));
    Ok(Some(Latency { size: found.size, fps: found.fps, tagged, all, spread }))
}

/// All streams; the middle frame of the first one is a separate, tagged stream.
fn trial(settings: &Settings, rig: &Rig, found: &Found, label: String) -> Trial {
    let mut lanes = rig.lanes(found.size, found.load);
    if let Some(first) = lanes.first().cloned() {
        let gap_s = 1.0 / first.rate_fps;
        let before = (settings.latency_s / 2.0 / gap_s).floor().max(1.0);
        let (start_s, frames) = (before * gap_s, Some(before as u64));
        let name = format!("{} after the tagged frame", first.name);
        lanes.push(Lane { name: TAGGED.into(), frames: Some(1), start_s, ..first.clone() });
        lanes.push(Lane { name, start_s: start_s + gap_s, ..first.clone() });
        lanes[0] = Lane { frames, ..first };
    }
    Trial { label, lanes, duration_s: settings.latency_s, ..Trial::default() }
}

fn report(measured: &[Latency], outcome: &mut Outcome) {
    outcome.notes.push(LATENCY_NOTE.into());
    let columns = [
        "Frame size",
        "Rate",
        "Latency (tagged)",
        "Minimum",
        "Mean",
        "p50",
        "p99",
        "p99.9",
        "Maximum",
    ];
    let mut table = Table::new("Latency at the throughput rate (RFC 2544 §26.2)", &columns);
    let mut series = [("tagged", vec![]), ("mean", vec![]), ("p99", vec![])];
    for one in measured {
        let tagged = one.tagged.map_or_else(|| "lost".into(), ns);
        let all = one.all;
        let times = [all.min as f64, all.mean, all.p50 as f64, all.p99 as f64, all.p999 as f64];
        let cells = times.into_iter().chain([all.max as f64]).map(ns);
        let head = [one.size.to_string(), format!("{:.0} frames/s", one.fps), tagged];
        table.rows.push(head.into_iter().chain(cells).collect());
        let values = [one.tagged.unwrap_or(f64::NAN), all.mean, all.p99 as f64];
        for (line, value) in series.iter_mut().zip(values).filter(|(_, value)| value.is_finite()) {
            line.1.push((f64::from(one.size), value));
        }
    }
    outcome.tables.push(table);
    outcome.plots.push(Plot {
        title: "Latency".into(),
        x: "Frame size, octets".into(),
        y: "Latency, ns".into(),
        series: series
            .into_iter()
            .map(|(label, points)| Series { label: label.into(), points })
            .collect(),
    });
}
