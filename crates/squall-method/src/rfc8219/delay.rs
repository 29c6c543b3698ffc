//! §7.2 and §7.3: latency of tagged frames, and delay variation of all frames, at the throughput
//! rate. Results are medians over the trials.

use squall_report::render::human::ns;
use squall_units::median;

use super::{Settings, Test};
use crate::{
    bench::{Bench, MethodError},
    outcome::{Better, Figure, Limit, Outcome, Table},
    rfc2544::{Found, LATENCY_NOTE},
    rig::Rig,
    trial::{Delay, Lane, Measured, Trial},
};

const TAGGED: &str = "tagged, ";
/// Minimum number of tagged frames (RFC 8219 §7.2).
const LEAST_TAGGED: u64 = 500;

pub(super) fn latency(
    settings: &Settings,
    rig: &Rig,
    found: &[Found],
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), MethodError> {
    let columns = [
        "Frame size",
        "Rate",
        "Typical latency",
        "1st",
        "99th",
        "Worst-case latency",
        "1st",
        "99th",
    ];
    let mut table = Table::new("Latency at the throughput rate (RFC 8219 §7.2)", &columns);
    for one in found.iter().filter(|one| one.load > 0.0) {
        let (mut typical, mut worst) = (Sample::default(), Sample::default());
        let mut least = u64::MAX;
        let (mut missed, mut not_kept) = (0, Vec::new());
        for number in 1..=settings.repetitions {
            let label = format!("latency, {} octets, {number}", one.size);
            let measured = bench.trial(tagged_trial(settings, rig, one, label))?;
            if !measured.kept() {
                missed += 1;
                not_kept = measured.not_kept;
                continue;
            }
            let Some(delay) = tagged(&measured) else { continue };
            let lanes = measured.lanes.iter().filter(|lane| lane.name.starts_with(TAGGED));
            least = lanes.map(|lane| lane.received).sum::<u64>().min(least);
            typical.0.push(delay.p50 as f64);
            worst.0.push(delay.p999 as f64);
        }
        let figures = [("typical_latency", &typical), ("worst_case_latency", &worst)];
        if !report(one, &figures, &mut table, outcome) {
            none("latency", one.size, &not_kept, outcome);
            continue;
        }
        let what = format!("latency at {} octets", one.size);
        outcome.partly_measured(&what, (missed, settings.repetitions), &not_kept);
        if least < LEAST_TAGGED {
            outcome.notes.push(format!(
                "{what}: {least} tagged frames, where RFC 8219 asks for {LEAST_TAGGED}; try a \
                 longer --latency-s"
            ));
        }
    }
    outcome.tables.push(table);
    outcome.notes.push(LATENCY_NOTE.into());
    Ok(())
}

/// Each stream at its throughput. The RFC tags at least 500 frames in the second half of the trial;
/// here all frames of the second half are tagged.
fn tagged_trial(settings: &Settings, rig: &Rig, found: &Found, label: String) -> Trial {
    let mut lanes = Vec::new();
    for lane in rig.lanes(found.size, found.load) {
        // Start at a multiple of the frame gap: one shorter gap would queue a frame, and at this
        // rate the queue never drains.
        let before = (settings.latency_s / 2.0 * lane.rate_fps).ceil();
        let start_s = before / lane.rate_fps;
        let name = format!("{TAGGED}{}", lane.name);
        lanes.push(Lane { frames: Some(before as u64), ..lane.clone() });
        lanes.push(Lane { name, start_s, ..lane });
    }
    Trial { label, lanes, duration_s: settings.latency_s, ..Trial::default() }
}

/// Pooled delay of the tagged frames of all streams.
fn tagged(measured: &Measured) -> Option<Delay> {
    let lanes = measured.lanes.iter().filter(|lane| lane.name.starts_with(TAGGED));
    Measured { lanes: lanes.cloned().collect(), ..Measured::default() }.delay()
}

pub(super) fn variation(
    settings: &Settings,
    rig: &Rig,
    found: &[Found],
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), MethodError> {
    let columns = ["Frame size", "Rate", "PDV", "1st", "99th"];
    let mut pdv = Table::new("Packet delay variation (RFC 8219 §7.3.1)", &columns);
    // Absolute values: the minimum is the smallest change, not the largest decrease.
    let columns = [
        "Frame size",
        "Rate",
        "Minimum",
        "1st",
        "99th",
        "Median",
        "1st",
        "99th",
        "Maximum",
        "1st",
        "99th",
    ];
    let mut ipdv = Table::new("Inter-packet delay variation (RFC 8219 §7.3.2)", &columns);
    let wants = |test| settings.tests.contains(&test);
    for one in found.iter().filter(|one| one.load > 0.0) {
        let mut pdvs = Sample::default();
        let (mut missed, mut not_kept) = (0, Vec::new());
        let mut ipdvs = [Sample::default(), Sample::default(), Sample::default()];
        for number in 1..=settings.repetitions {
            let label = format!("delay variation, {} octets, {number}", one.size);
            let trial = rig.trial(label, one.size, one.load, settings.trial_s);
            let measured = bench.trial(trial)?;
            if !measured.kept() {
                missed += 1;
                not_kept = measured.not_kept;
                continue;
            }
            pdvs.0.extend(worst_pdv(&measured));
            if let Some(delay) = measured.ipdv() {
                let values = [delay.min, delay.p50, delay.max].map(|ns| ns as f64);
                ipdvs.iter_mut().zip(values).for_each(|(sample, value)| sample.0.push(value));
            }
        }
        if wants(Test::Pdv) && !report(one, &[("pdv", &pdvs)], &mut pdv, outcome) {
            none("PDV", one.size, &not_kept, outcome);
        }
        let [min, median, max] = &ipdvs;
        let figures = [("ipdv.min", min), ("ipdv.median", median), ("ipdv.max", max)];
        if wants(Test::Ipdv) && !report(one, &figures, &mut ipdv, outcome) {
            none("IPDV", one.size, &not_kept, outcome);
        }
        // Without a trial that counts, the notes above have the reason.
        if missed < settings.repetitions {
            let what = format!("delay variation at {} octets", one.size);
            outcome.partly_measured(what, (missed, settings.repetitions), &not_kept);
        }
    }
    outcome.tables.extend(
        [(Test::Pdv, pdv), (Test::Ipdv, ipdv)]
            .into_iter()
            .filter_map(|(test, table)| wants(test).then_some(table)),
    );
    Ok(())
}

/// D99.9 - Dmin (RFC 5481) of the worst stream. Streams are not pooled, as their paths can differ.
fn worst_pdv(measured: &Measured) -> Option<f64> {
    let delays = measured.lanes.iter().filter_map(|lane| lane.delay);
    delays.map(|delay| delay.p999.saturating_sub(delay.min) as f64).max_by(f64::total_cmp)
}

/// One value per trial.
#[derive(Default)]
pub(super) struct Sample(pub(super) Vec<f64>);

impl Sample {
    /// Quantile by the nearest-rank method.
    pub(super) fn quantile(&self, q: f64) -> Option<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = (q * sorted.len() as f64).ceil().max(1.0) as usize;
        sorted.get(rank - 1).copied()
    }

    fn median(&self) -> Option<f64> {
        median(self.0.iter().copied())
    }
}

/// Adds a table row, and a figure for each sample. Returns `false` if there are no values.
fn report(
    found: &Found,
    samples: &[(&str, &Sample)],
    table: &mut Table,
    outcome: &mut Outcome,
) -> bool {
    let size = found.size;
    let mut row = vec![size.to_string(), format!("{:.0} frames/s", found.fps)];
    for (name, sample) in samples {
        let quantiles = (sample.median(), sample.quantile(0.01), sample.quantile(0.99));
        let (Some(median), Some(low), Some(high)) = quantiles else { return false };
        outcome.figures.push(Figure::new(
            format!("{name}/{size}"),
            median,
            "ns",
            Better::Lower,
            (high - low) / 2.0,
            Limit::Device,
        ));
        row.extend([median, low, high].map(ns));
    }
    table.rows.push(row);
    true
}

fn none(what: &str, size: u32, not_kept: &[String], outcome: &mut Outcome) {
    outcome.no_figure(format!("{what} at {size} octets"), "nothing came", not_kept);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_percentiles_are_those_of_the_sorted_values() {
        let sample = Sample((1..=20).rev().map(f64::from).collect());
        let found = [sample.median(), sample.quantile(0.01), sample.quantile(0.99)];
        assert_eq!(found, [Some(10.5), Some(1.0), Some(20.0)]);
        assert_eq!(Sample::default().median(), None);
    }
}
