//! §5.10: broadcast from the first port: the highest rate that all other ports receive, and the
//! latency.

use squall_report::render::human::{ns, ratio};

use super::{Settings, rate};
use crate::{
    bench::{Bench, MethodError},
    outcome::{Better, Figure, Limit, Outcome, Plot, Series, Table},
    rig::Rig,
    search::Search,
    stations::{arrived, broadcast},
    trial::{Delay, Lane, Measured, Trial},
};

const LANE: &str = "broadcast";

pub(super) fn all(
    settings: &Settings,
    rig: &Rig,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), MethodError> {
    let columns = ["Frame size", "Forwarding rate", "Of the highest rate", ""];
    let mut table = Table::new("Broadcast frame forwarding (RFC 2889 §5.10)", &columns);
    let columns = ["Frame size", "Load", "Minimum", "Mean", "p99", "Maximum"];
    let mut latency = Table::new("Broadcast latency (RFC 2889 §5.10)", &columns);
    let mut lines = [Vec::new(), Vec::new()];
    for &size in &settings.frame_sizes {
        let trial = |load: f64, label| trial(settings, rig, size, load, label);
        let loss = |measured: &Measured| worst_loss(rig, measured);
        let goal = Search {
            resolution: settings.resolution,
            tolerance: 0.0,
            verifications: 0,
            loss: &loss,
        };
        let label = format!("broadcast, {size} octets");
        let highest = goal.highest(&label, bench, &trial)?;
        let fps = highest.load * rig.port_fps(size);
        let noise = fps * settings.resolution;
        outcome.figures.push(rate(format!("broadcast/{size}"), fps, noise, highest.limit));
        table.rows.push(vec![
            size.to_string(),
            format!("{fps:.0} frames/s"),
            ratio(highest.load),
            highest.limit.mark().into(),
        ]);
        lines[0].push((f64::from(size), fps));
        lines[1].push((f64::from(size), rig.port_fps(size)));
        let measured = bench.trial(one_frame(settings, rig, size))?;
        if !measured.kept() {
            let what = format!("broadcast latency, {size} octets, 1 frame");
            outcome.not_measured(what, &measured.not_kept);
        } else if let Some(delay) = measured.delay() {
            report(size, "1 frame", &delay, &mut latency);
            outcome.figures.push(figure(format!("broadcast_latency/{size}"), &delay));
        }
        for part in settings.latency_loads.iter().filter(|_| highest.load > 0.0) {
            let load = highest.load * part;
            let label = format!("broadcast latency, {size} octets, {}", ratio(load));
            let measured = bench.trial(trial(load, label.clone()))?;
            if !measured.kept() {
                outcome.not_measured(label, &measured.not_kept);
                continue;
            }
            let Some(delay) = measured.delay() else { continue };
            report(size, &ratio(load), &delay, &mut latency);
            let name = format!("broadcast_latency@{:.0}%/{size}", part * 100.0);
            outcome.figures.push(figure(name, &delay));
        }
    }
    outcome.tables.extend([table, latency]);
    let [forwarded, most] = lines;
    outcome.plots.push(Plot {
        title: "Broadcast frame forwarding".into(),
        x: "Frame size, octets".into(),
        y: "Frames/s at a receiver".into(),
        series: vec![
            Series { label: "measured".into(), points: forwarded },
            Series { label: "highest rate".into(), points: most },
        ],
    });
    Ok(())
}

fn report(size: u32, load: &str, delay: &Delay, table: &mut Table) {
    let times = [delay.min as f64, delay.mean, delay.p99 as f64, delay.max as f64];
    let head = [size.to_string(), load.to_owned()];
    table.rows.push(head.into_iter().chain(times.map(ns)).collect());
}

fn figure(name: String, delay: &Delay) -> Figure {
    let spread = (delay.p99 as f64 - delay.min as f64) / 2.0;
    Figure::new(name, delay.mean, "ns", Better::Lower, spread, Limit::Device)
}

/// §5.10.3: latency is measured with a single frame.
fn one_frame(settings: &Settings, rig: &Rig, size: u32) -> Trial {
    let label = format!("broadcast latency, {size} octets, 1 frame");
    let mut one = trial(settings, rig, size, 1.0, label);
    one.lanes.iter_mut().for_each(|lane| lane.frames = Some(1));
    one.duration_s = one.duration_s.min(1.0);
    one
}

fn trial(settings: &Settings, rig: &Rig, size: u32, load: f64, label: String) -> Trial {
    let lane = Lane {
        name: LANE.into(),
        template: Some(broadcast(rig, 0, settings.addresses_per_port)),
        frame_size: Some(size),
        rate_fps: rig.port_fps(size) * load,
        ..Lane::default()
    };
    Trial { label, lanes: vec![lane], duration_s: settings.trial_s, ..Trial::default() }
}

/// Loss ratio at the port with the fewest received frames.
fn worst_loss(rig: &Rig, measured: &Measured) -> f64 {
    let sent = measured.sent();
    let least = rig.ports[1..].iter().map(|port| arrived(measured, port, LANE)).min().unwrap_or(0);
    if sent == 0 { 1.0 } else { sent.saturating_sub(least) as f64 / sent as f64 }
}
