//! §5.10: broadcast from the first port: the highest rate that all others get, and its latency.

use squall_report::render::human::{ns, ratio};

use super::{Settings, rate};
use crate::{
    bench::{Bench, Halt},
    outcome::{Better, Figure, Limit, Outcome, Table},
    rig::Rig,
    search::Search,
    stations::{arrived, broadcast},
    trial::{Lane, Measured, Trial},
};

const LANE: &str = "broadcast";

pub(super) fn all(
    settings: &Settings,
    rig: &Rig,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), Halt> {
    let columns = ["Frame size", "Forwarding rate", "Of the highest rate", ""];
    let mut table = Table::new("Broadcast frame forwarding (RFC 2889 §5.10)", &columns);
    let columns = ["Frame size", "Load", "Minimum", "Mean", "p99", "Maximum"];
    let mut latency = Table::new("Broadcast latency (RFC 2889 §5.10)", &columns);
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
        for part in settings.latency_loads.iter().filter(|_| highest.load > 0.0) {
            let load = highest.load * part;
            let label = format!("broadcast latency, {size} octets, {}", ratio(load));
            let measured = bench.trial(trial(load, label))?;
            let Some(delay) = measured.delay().filter(|_| measured.kept()) else { continue };
            let times = [delay.min as f64, delay.mean, delay.p99 as f64, delay.max as f64];
            let head = [size.to_string(), ratio(load)];
            latency.rows.push(head.into_iter().chain(times.map(ns)).collect());
            outcome.figures.push(Figure {
                name: format!("broadcast_latency@{:.0}%/{size}", part * 100.0),
                value: delay.mean,
                unit: "ns".into(),
                better: Better::Lower,
                uncertainty: (delay.p99 as f64 - delay.min as f64) / 2.0,
                limit: Limit::Device,
            });
        }
    }
    outcome.tables.extend([table, latency]);
    Ok(())
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

/// The loss ratio at the port that gets least.
fn worst_loss(rig: &Rig, measured: &Measured) -> f64 {
    let sent = measured.sent();
    let least = rig.ports[1..].iter().map(|port| arrived(measured, port, LANE)).min().unwrap_or(0);
    if sent == 0 { 1.0 } else { sent.saturating_sub(least) as f64 / sent as f64 }
}
