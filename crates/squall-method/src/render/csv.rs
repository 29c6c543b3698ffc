//! One row for each trial and stream.

use crate::outcome::Outcome;

const COLUMNS: [&str; 19] = [
    "trial",
    "attempt",
    "label",
    "lane",
    "stream",
    "frame_size",
    "rate_fps",
    "duration_s",
    "kept",
    "sent",
    "received",
    "lost",
    "duplicates",
    "reordered",
    "output_fps",
    "delay_min_ns",
    "delay_mean_ns",
    "delay_p99_ns",
    "delay_max_ns",
];

/// CSV (RFC 4180).
pub fn csv(outcome: &Outcome) -> String {
    let mut writer = ::csv::Writer::from_writer(Vec::new());
    let mut rows = vec![COLUMNS.map(String::from).to_vec()];
    for (number, recorded) in outcome.trials.iter().enumerate() {
        let (trial, measured) = (&recorded.trial, &recorded.measured);
        for (lane, got) in trial.lanes.iter().zip(&measured.lanes) {
            let size = lane.frame_size.map(|size| size.to_string()).unwrap_or_default();
            let output = got.output_fps.map(|fps| fps.to_string()).unwrap_or_default();
            let counts = [got.sent, got.received, got.lost, got.duplicates, got.reordered];
            let delay = got.delay.map(|d| [d.min as f64, d.mean, d.p99 as f64, d.max as f64]);
            let mut row = vec![
                (number + 1).to_string(),
                recorded.attempt.to_string(),
                trial.label.clone(),
                lane.name.clone(),
                lane.stream.clone(),
                size,
                lane.rate_fps.to_string(),
                lane.active_s(trial.duration_s).to_string(),
                measured.kept().to_string(),
            ];
            row.extend(counts.map(|count| count.to_string()));
            row.push(output);
            row.extend(delay.map_or_else(Default::default, |d| d.map(|value| value.to_string())));
            rows.push(row);
        }
    }
    // Cannot fail: the output is in memory, and all rows have the same length.
    let written = rows.iter().try_for_each(|row| writer.write_record(row));
    debug_assert!(written.is_ok(), "rows are of one length");
    writer.into_inner().ok().and_then(|octets| String::from_utf8(octets).ok()).unwrap_or_default()
}
