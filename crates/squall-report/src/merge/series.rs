//! Merges the samples of a run's parts by time since the start of the run.

use std::collections::BTreeMap;

use super::{Merge, by_key, merge, sums};
use crate::report::{CaptureSample, Sample, StreamSample, TemplateSample};

/// Maximum relative difference of intervals that count as equal.
const SAME: f64 = 0.1;

/// Merges samples taken at about the same time; `None` if the intervals of the parts differ.
pub(super) fn whole(parts: impl Iterator<Item = Vec<Sample>>) -> Option<Vec<Sample>> {
    let mut all: BTreeMap<u64, Sample> = BTreeMap::new();
    let mut step: Option<f64> = None;
    for series in parts {
        let own = interval(&series).or(step);
        if let Some((one, other)) = step.zip(own)
            && (one - other).abs() > SAME * one.max(other)
        {
            return None;
        }
        step = step.or(own);
        for sample in series {
            let at = step.filter(|step| *step > 0.0).map_or(0.0, |step| sample.t_s / step);
            match all.get_mut(&(at.round() as u64)) {
                Some(one) => one.merge(&sample),
                None => _ = all.insert(at.round() as u64, sample),
            }
        }
    }
    Some(all.into_values().collect())
}

/// Median interval between samples, seconds. Unlike the mean, it is not affected by the last sample
/// of a run, which may be early.
fn interval(series: &[Sample]) -> Option<f64> {
    let mut steps: Vec<f64> = series.windows(2).map(|two| two[1].t_s - two[0].t_s).collect();
    steps.sort_by(f64::total_cmp);
    steps.get(steps.len() / 2).copied()
}

sums! {
    CaptureSample { written_pps, written_bps, files, file_octets, dropped_by_kernel, dropped }
}

impl Merge for Sample {
    fn merge(&mut self, other: &Self) {
        self.t_s = self.t_s.max(other.t_s);
        self.ports.extend(other.ports.iter().cloned());
        by_key(&mut self.streams, &other.streams, |stream| stream.name.clone());
        by_key(&mut self.flows, &other.flows, |flow| (flow.name.clone(), flow.side.clone()));
        merge!(self, other; capture);
    }
}

/// Keeps a percentile only if a single part has it, because percentiles cannot be merged.
fn alone(value: &mut Option<u64>, other: Option<u64>) {
    *value = match (*value, other) {
        (Some(_), Some(_)) => None,
        (one, other) => one.or(other),
    };
}

impl Merge for StreamSample {
    fn merge(&mut self, other: &Self) {
        merge!(self, other; tx_pps, rx_pps, lost);
        alone(&mut self.latency_p50_ns, other.latency_p50_ns);
        alone(&mut self.latency_p99_ns, other.latency_p99_ns);
        alone(&mut self.late_p99_ns, other.late_p99_ns);
    }
}

impl Merge for TemplateSample {
    fn merge(&mut self, other: &Self) {
        merge!(self, other; active, attempted_cps, completed_cps, failed, not_begun, late,
            goodput_bps);
        alone(&mut self.setup_p99_ns, other.setup_p99_ns);
        alone(&mut self.transaction_p99_ns, other.transaction_p99_ns);
    }
}
