//! §4: the longest burst that all other ports send to one at once, at line rate, without loss.

use super::{Load, Settings, trial};
use crate::{
    bench::{Bench, MethodError},
    burst::{Longest, Search, Summary, repeated},
    outcome::{Better, Figure, Outcome, Table},
    rig::Rig,
};

pub(super) fn all(
    settings: &Settings,
    rig: &Rig,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), MethodError> {
    let columns = [
        "Ingress ports",
        "Egress",
        "Frame size",
        "Frames of each port",
        "Microburst",
        "Least",
        "Most",
        "Searches",
        "",
    ];
    let mut table = Table::new("Microbursts (RFC 8239 §4)", &columns);
    let n = rig.ports.len();
    for shift in settings.shifts(rig) {
        let egress = (n - 1 + shift) % n;
        for &size in &settings.frame_sizes {
            let found = repeated(settings.repetitions, |before| {
                longest(settings, rig, egress, size, before, bench)
            })?;
            report(rig, egress, size, &found, outcome, &mut table);
        }
    }
    outcome.tables.push(table);
    Ok(())
}

fn longest(
    settings: &Settings,
    rig: &Rig,
    egress: usize,
    size: u32,
    first: Option<u64>,
    bench: &mut Bench<'_>,
) -> Result<Longest, MethodError> {
    let line = rig.port_fps(size);
    let ingress = || (0..rig.ports.len()).filter(|port| *port != egress);
    let of = |frames: u64| {
        // RFC 8238 §6.1.1: an intensity of 100 % is the minimum gap.
        let load = |from| Load { from, to: egress, part: 1.0, frames: Some(frames) };
        let loads: Vec<_> = ingress().map(load).collect();
        let label = format!("microburst to {}, {size} octets, {frames} frames", rig.ports[egress]);
        trial(rig, size, &loads, frames as f64 / line, label)
    };
    // The egress port forwards at line rate meanwhile, so the buffer takes the frames of all ports
    // but one.
    let beyond = ingress().count() as u64 - 1;
    Search {
        most: (line * settings.burst_s).floor().max(2.0) as u64,
        first,
        trial: &of,
        guess: &|frames, measured| frames.checked_sub(measured.lost().div_ceil(beyond)),
    }
    .run(bench)
}

fn report(
    rig: &Rig,
    egress: usize,
    size: u32,
    found: &[Longest],
    outcome: &mut Outcome,
    table: &mut Table,
) {
    let ingress = rig.ports.len() as u64 - 1;
    let Summary { mean, least, most, limit } = Summary::of(found, ingress);
    let noise = ((most - least) as f64 / 2.0).max(ingress as f64);
    let name = format!("microburst.{}/{size}", rig.ports[egress]);
    outcome.verdict.text.push(format!("{name}: {mean:.1} frames"));
    outcome.figures.push(Figure::new(name, mean, "frames", Better::Higher, noise, limit));
    table.rows.push(vec![
        ingress.to_string(),
        rig.ports[egress].clone(),
        size.to_string(),
        format!("{:.1}", mean / ingress as f64),
        format!("{mean:.1} frames"),
        least.to_string(),
        most.to_string(),
        found.len().to_string(),
        limit.mark().into(),
    ]);
}
