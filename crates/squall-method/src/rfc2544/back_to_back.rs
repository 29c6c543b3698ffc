//! RFC 9004: the longest burst that passes without loss at the highest rate, and the buffer size
//! that it implies.

use squall_report::render::human::seconds;

use super::{Settings, figure, throughput::Found};
use crate::{
    bench::{Bench, MethodError},
    burst::Search,
    outcome::{Better, Limit, Outcome, Table},
    rig::Rig,
    trial::{Measured, Trial},
};

/// The result of a search.
struct Burst {
    /// Length of the burst in each stream, frames.
    frames: u64,
    /// Output rate during the burst, as a fraction of the offered rate.
    output: f64,
    limit: Limit,
}

pub fn all(
    settings: &Settings,
    rig: &Rig,
    found: &[Found],
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), MethodError> {
    let columns = [
        "Frame size",
        "Longest burst",
        "Least",
        "Most",
        "Standard deviation",
        "Searches",
        "Implied buffer time",
        "Corrected buffer time",
        "Buffer",
        "",
    ];
    let mut table = Table::new("Back-to-back frames (RFC 9004)", &columns);
    for one in found {
        if one.limit != Limit::Device {
            // RFC 9004 §6.1: the test has no result for a device that forwards the highest rate
            // without loss.
            outcome.notes.push(format!(
                "back-to-back at {} octets: not run, as no rate that was offered exceeds the \
                 throughput",
                one.size
            ));
            continue;
        }
        let mut bursts: Vec<Burst> = Vec::new();
        for number in 1..=settings.bursts {
            let before = bursts.last().map(|burst| burst.frames);
            bursts.push(longest(settings, rig, one.size, number, before, bench)?);
        }
        report(rig, one, &bursts, &mut table, outcome);
    }
    outcome.tables.push(table);
    Ok(())
}

/// `before`: the result of the previous search.
fn longest(
    settings: &Settings,
    rig: &Rig,
    size: u32,
    number: u32,
    before: Option<u64>,
    bench: &mut Bench<'_>,
) -> Result<Burst, MethodError> {
    let most = rig.lanes(size, 1.0).iter().map(|lane| lane.rate_fps).fold(0.0, f64::max);
    let of = |frames: u64| {
        let label = format!("back-to-back, {size} octets, {number}, {frames} frames");
        burst(rig, size, frames, label)
    };
    let found = Search {
        most: (most * settings.burst_s).floor().max(2.0) as u64,
        first: before,
        trial: &of,
        guess: &|frames, measured| guess(measured, frames, measured.output_ratio()),
    }
    .run(bench)?;
    let output = found.measured.as_ref().map_or(0.0, Measured::output_ratio);
    Ok(Burst { frames: found.frames, output, limit: found.limit })
}

/// The length of a burst that would have passed, if the device drops frames only while its queue is
/// full.
fn guess(measured: &Measured, frames: u64, output: f64) -> Option<u64> {
    let lost = measured.lanes.iter().map(|lane| lane.lost).max()? as f64;
    let kept = frames as f64 - lost / (1.0 - output).max(1e-9);
    (kept >= 1.0).then_some(kept.round() as u64)
}

fn burst(rig: &Rig, size: u32, frames: u64, label: String) -> Trial {
    let mut lanes = rig.lanes(size, 1.0);
    lanes.iter_mut().for_each(|lane| lane.frames = Some(frames));
    let longest = lanes.iter().map(|lane| frames as f64 / lane.rate_fps).fold(0.0, f64::max);
    Trial { label, lanes, duration_s: longest, ..Trial::default() }
}

fn report(rig: &Rig, found: &Found, bursts: &[Burst], table: &mut Table, outcome: &mut Outcome) {
    let size = found.size;
    let n = bursts.len() as f64;
    let mean = bursts.iter().map(|burst| burst.frames as f64).sum::<f64>() / n;
    let variance = bursts.iter().map(|burst| (burst.frames as f64 - mean).powi(2)).sum::<f64>() / n;
    let output = bursts.iter().map(|burst| burst.output).sum::<f64>() / n;
    let limit = bursts.iter().map(|b| b.limit).find(|l| *l != Limit::Device).unwrap_or_default();
    let rate = rig.lanes(size, 1.0).iter().map(|lane| lane.rate_fps).fold(0.0, f64::max);
    // Implied and corrected buffer time of RFC 9004 §6.4.
    let implied_s = mean / rate;
    let corrected_s = implied_s * (1.0 - found.load);
    // From the output rate during the burst, not from the throughput: an error of the throughput
    // would be multiplied by the number of frames of the burst.
    let buffer = mean * (1.0 - output);
    let mut push = |name, value, unit: &str, noise| {
        let (better, limit) = (Better::Higher, limit);
        outcome.figures.push(figure(name, size, value, unit, better, noise, limit));
    };
    let noise = variance.sqrt().max(1.0);
    push("back-to-back", mean, "frames", noise);
    push("buffer_time", corrected_s, "s", noise / rate);
    push("buffer", buffer, "frames", (noise * (1.0 - output)).max(1.0));
    let range = [bursts.iter().map(|b| b.frames).min(), bursts.iter().map(|b| b.frames).max()];
    let [least, most] = range.map(|frames| frames.unwrap_or(0).to_string());
    table.rows.push(vec![
        size.to_string(),
        format!("{mean:.1} frames"),
        least,
        most,
        format!("{:.1} frames", variance.sqrt()),
        bursts.len().to_string(),
        seconds(implied_s),
        seconds(corrected_s),
        format!("{buffer:.1} frames"),
        limit.mark().into(),
    ]);
}
