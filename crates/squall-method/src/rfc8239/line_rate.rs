//! §2: rate, latency and jitter just below the line rate, between pairs of ports and fully meshed.

use squall_report::render::human::{count, ns, ratio};

use super::{Load, Settings, counts, trial};
use crate::{
    bench::{Bench, MethodError},
    outcome::{Better, Figure, Limit, Outcome, Table},
    rig::Rig,
    stations::loss,
    trial::{Delay, Measured},
};

pub(super) fn all(
    settings: &Settings,
    rig: &Rig,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), MethodError> {
    let n = rig.ports.len();
    let pairs: Vec<_> = (0..n).map(|i| (i, i ^ 1)).filter(|(_, to)| *to < n).collect();
    let mesh: Vec<_> =
        (0..n).flat_map(|from| (1..n).map(move |step| (from, (from + step) % n))).collect();
    for (name, title, pairs) in [
        ("pairs", "Line rate, pairs of ports (RFC 8239 §2)", pairs),
        ("mesh", "Line rate, fully meshed (RFC 8239 §2)", mesh),
    ] {
        let columns = [
            "Frame size",
            "Received, of the line rate",
            "Lost",
            "Frame loss rate",
            "Latency, minimum",
            "Mean",
            "Maximum",
            "Jitter, minimum",
            "Mean",
            "Maximum",
        ];
        let mut table = Table::new(title, &columns);
        for &size in &settings.frame_sizes {
            let load = |&(from, to): &(usize, usize)| {
                let destinations = pairs.iter().filter(|pair| pair.0 == from).count();
                let part = settings.load / destinations as f64;
                Load { from, to, part, frames: None }
            };
            let loads: Vec<_> = pairs.iter().map(load).collect();
            let label = format!("line rate, {name}, {size} octets");
            let measured =
                bench.trial(trial(rig, size, &loads, settings.trial_s, label.clone()))?;
            if counts(&label, &measured, outcome) {
                report(settings, name, size, &measured, outcome, &mut table);
            }
        }
        outcome.tables.push(table);
    }
    Ok(())
}

fn report(
    settings: &Settings,
    name: &str,
    size: u32,
    measured: &Measured,
    outcome: &mut Outcome,
    table: &mut Table,
) {
    let lost = loss(measured);
    // Frames that only filled a buffer were not forwarded at that rate.
    let received = settings.load * (1.0 - lost).min(measured.output_ratio());
    let [latency, jitter] = [measured.delay(), measured.ipdv()].map(Option::unwrap_or_default);
    let mut push = |what: &str, value, unit, better, uncertainty| {
        let figure = format!("line_rate.{name}.{what}/{size}");
        outcome.figures.push(Figure::new(figure, value, unit, better, uncertainty, Limit::Device));
    };
    push("received", received, "ratio", Better::Higher, 0.001);
    push("loss", lost, "ratio", Better::Lower, 1e-6);
    push("latency", latency.mean, "ns", Better::Lower, latency.mean * 0.01);
    push("jitter", jitter.mean, "ns", Better::Lower, jitter.mean * 0.1);
    let of = |delay: Delay| [ns(delay.min as f64), ns(delay.mean), ns(delay.max as f64)];
    let row = [size.to_string(), ratio(received), count(measured.lost()), ratio(lost)];
    table.rows.push(row.into_iter().chain(of(latency)).chain(of(jitter)).collect());
    let text = format!("line rate, {name}, {size} octets: {} received", ratio(received));
    outcome.verdict.text.push(text);
}
