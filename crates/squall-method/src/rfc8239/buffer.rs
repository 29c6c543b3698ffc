//! §3: the size of buffers, by frames that several ports send to one beyond its line rate. The frames
//! beyond it that a trial without loss sends are in the buffer at its end.

use squall_report::render::human::ns;

use super::{Load, Settings, trial};
use crate::{
    bench::{Bench, MethodError},
    burst::{self, Longest, Search, Summary},
    outcome::{Better, Figure, Outcome, Table},
    rig::Rig,
    trial::Trial,
};

pub(super) fn all(
    settings: &Settings,
    rig: &Rig,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), MethodError> {
    let columns = [
        "Measurement",
        "Egress",
        "Frame size",
        "Buffer",
        "Octets",
        "Least",
        "Most",
        "By the maximum latency",
        "Maximum latency",
        "",
    ];
    let mut table = Table::new("Buffering (RFC 8239 §3)", &columns);
    let size = efficiency(settings, rig, bench, outcome, &mut table)?;
    ports(settings, rig, size, bench, outcome, &mut table)?;
    many_to_one(settings, rig, size, bench, outcome, &mut table)?;
    outcome.tables.push(table);
    Ok(())
}

/// Frames to an egress port at more than its line rate.
struct Overload {
    /// For the label.
    what: String,
    egress: Vec<usize>,
    /// Ingress, egress, and part of the line rate.
    loads: Vec<(usize, usize, f64)>,
    /// Load beyond the line rate at each egress port, as a part of the line rate.
    excess: f64,
}

impl Overload {
    /// §3.2, procedures 1 and 2: one port sends at line rate, and another one at the
    /// oversubscription.
    fn of_port(settings: &Settings, rig: &Rig, shift: usize) -> Self {
        let n = rig.ports.len();
        let [first, egress, second] = [0, 1, 2].map(|port| (port + shift) % n);
        let excess = settings.oversubscription;
        Self {
            what: format!("egress {}", rig.ports[egress]),
            egress: vec![egress],
            loads: vec![(first, egress, 1.0), (second, egress, excess)],
            excess,
        }
    }

    /// Procedure 3: the same at two egress ports at a time, from four others.
    fn of_pair(settings: &Settings, rig: &Rig) -> Self {
        let n = rig.ports.len();
        let excess = settings.oversubscription;
        Self {
            what: format!("egress {} and {}", rig.ports[1], rig.ports[3]),
            egress: vec![1, 3],
            loads: vec![(0, 1, 1.0), (2, 3, 1.0), (n - 2, 1, excess), (n - 1, 3, excess)],
            excess,
        }
    }

    /// Procedure 4: all other ports share the line rate and the oversubscription.
    fn of_all(settings: &Settings, rig: &Rig, egress: usize) -> Self {
        let n = rig.ports.len();
        let part = (1.0 + settings.oversubscription) / (n - 1) as f64;
        let from = (0..n).filter(|from| *from != egress);
        Self {
            what: format!("all to {}", rig.ports[egress]),
            egress: vec![egress],
            loads: from.map(|from| (from, egress, part)).collect(),
            excess: settings.oversubscription,
        }
    }

    /// A trial that sends `extra` frames beyond the line rate to each egress port.
    fn trial(&self, rig: &Rig, size: u32, extra: u64) -> Trial {
        let lasts_s = extra as f64 / (self.excess * rig.port_fps(size));
        let loads: Vec<_> = self
            .loads
            .iter()
            .map(|&(from, to, part)| {
                let frames = (part * rig.port_fps(size) * lasts_s).round().max(1.0) as u64;
                Load { from, to, part, frames: Some(frames) }
            })
            .collect();
        let label = format!("buffer, {}, {size} octets, {extra} frames beyond", self.what);
        trial(rig, size, &loads, lasts_s, label)
    }

    fn search(
        &self,
        settings: &Settings,
        rig: &Rig,
        size: u32,
        first: Option<u64>,
        bench: &mut Bench<'_>,
    ) -> Result<Longest, MethodError> {
        let most = self.excess * rig.port_fps(size) * settings.overload_s;
        let egress = self.egress.len() as u64;
        Search {
            most: most.floor().max(2.0) as u64,
            first,
            trial: &|extra| self.trial(rig, size, extra),
            // Frames that find the buffer full are lost.
            guess: &|extra, measured| extra.checked_sub(measured.lost().div_ceil(egress)),
        }
        .run(bench)
    }
}

/// Procedure 1: the frame size with the largest buffer in octets.
fn efficiency(
    settings: &Settings,
    rig: &Rig,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
    table: &mut Table,
) -> Result<u32, MethodError> {
    let overload = Overload::of_port(settings, rig, 0);
    let mut best = (0, settings.frame_sizes[0]);
    for &size in &settings.frame_sizes {
        let found = repeated(settings, rig, &overload, size, bench)?;
        let name = format!("buffer/{size}");
        let octets = report("efficiency", &name, &overload, rig, size, &found, outcome, table);
        if octets > best.0 {
            best = (octets, size);
        }
    }
    if settings.frame_sizes.len() > 1 && best.0 > 0 {
        let text = format!("buffer: the most octets with frames of {} octets", best.1);
        outcome.verdict.text.push(text);
    }
    Ok(best.1)
}

/// Procedures 2 and 3: each egress port in turn, and pairs.
fn ports(
    settings: &Settings,
    rig: &Rig,
    size: u32,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
    table: &mut Table,
) -> Result<(), MethodError> {
    for shift in settings.shifts(rig) {
        let overload = Overload::of_port(settings, rig, shift);
        let found = repeated(settings, rig, &overload, size, bench)?;
        let name = format!("buffer.port/{}", rig.ports[overload.egress[0]]);
        report("port", &name, &overload, rig, size, &found, outcome, table);
    }
    if rig.ports.len() < 6 {
        outcome.notes.push("buffers of pairs of ports (§3.2): not run, as it takes 6 ports".into());
        return Ok(());
    }
    let overload = Overload::of_pair(settings, rig);
    let found = repeated(settings, rig, &overload, size, bench)?;
    report("pair of ports", "buffer.pair", &overload, rig, size, &found, outcome, table);
    Ok(())
}

/// Procedure 4: from all other ports to each egress port in turn.
fn many_to_one(
    settings: &Settings,
    rig: &Rig,
    size: u32,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
    table: &mut Table,
) -> Result<(), MethodError> {
    let n = rig.ports.len();
    for shift in settings.shifts(rig) {
        let overload = Overload::of_all(settings, rig, (n - 1 + shift) % n);
        let found = repeated(settings, rig, &overload, size, bench)?;
        let name = format!("buffer.device/{}", rig.ports[overload.egress[0]]);
        report("device, many to one", &name, &overload, rig, size, &found, outcome, table);
    }
    Ok(())
}

fn repeated(
    settings: &Settings,
    rig: &Rig,
    overload: &Overload,
    size: u32,
    bench: &mut Bench<'_>,
) -> Result<Vec<Longest>, MethodError> {
    burst::repeated(settings.repetitions, |before| {
        overload.search(settings, rig, size, before, bench)
    })
}

/// Adds figure and row. Returns the octets of the buffer.
#[expect(clippy::too_many_arguments, reason = "the parts of one row")]
fn report(
    what: &str,
    name: &str,
    overload: &Overload,
    rig: &Rig,
    size: u32,
    found: &[Longest],
    outcome: &mut Outcome,
    table: &mut Table,
) -> u64 {
    let Summary { mean, least, most, limit } = Summary::of(found, 1);
    let octets = (mean * f64::from(size)).round() as u64;
    let spread = ((most - least) as f64 / 2.0).max(1.0);
    outcome.figures.push(Figure::new(name, mean, "frames", Better::Higher, spread, limit));
    let octets_name = name.replacen("buffer", "buffer_octets", 1);
    let octets_noise = spread * f64::from(size);
    outcome.figures.push(Figure::new(
        octets_name,
        octets as f64,
        "octets",
        Better::Higher,
        octets_noise,
        limit,
    ));
    // §3.2: the maximum latency grows until the buffer is full.
    let delays = found.iter().filter_map(|one| one.measured.as_ref()?.delay());
    let waits = delays.map(|delay| (delay.max, delay.max - delay.min)).max();
    let by_latency = waits.map(|(_, wait)| wait as f64 / 1e9 * rig.port_fps(size));
    let dash = || "-".to_owned();
    table.rows.push(vec![
        what.into(),
        overload.egress.iter().map(|port| rig.ports[*port].as_str()).collect::<Vec<_>>().join(", "),
        size.to_string(),
        format!("{mean:.1} frames"),
        octets.to_string(),
        least.to_string(),
        most.to_string(),
        by_latency.map_or_else(dash, |frames| format!("{frames:.1} frames")),
        waits.map_or_else(dash, |(most, _)| ns(most as f64)),
        limit.mark().into(),
    ]);
    let text = format!("{name}: {} {mean:.1} frames of {size} octets", limit.mark());
    outcome.verdict.text.push(text.replace(":  ", ": "));
    octets
}
