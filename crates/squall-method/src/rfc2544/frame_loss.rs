//! §26.3: the loss rate at loads from the highest down, until two consecutive trials have no loss.

use squall_report::render::human::ratio;

use super::{Settings, figure};
use crate::{
    bench::{Bench, MethodError},
    outcome::{Better, Limit, Outcome, Plot, Series, Table},
    rig::Rig,
};

pub fn all(
    settings: &Settings,
    rig: &Rig,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), MethodError> {
    let columns = ["Frame size", "Load", "Offered", "Received", "Lost", "Frame loss rate"];
    let mut table = Table::new("Frame loss rate (RFC 2544 §26.3)", &columns);
    let mut series = Vec::new();
    for &size in &settings.frame_sizes {
        let mut points = Vec::new();
        let (mut clean, mut step) = (0, 0);
        loop {
            // Multiply: repeated subtraction accumulates rounding errors, and 1 - 3 * 0.1 is not
            // 0.7.
            let load = 1.0 - f64::from(step) * settings.loss_step;
            if clean == 2 || load <= settings.loss_step / 1e3 {
                break;
            }
            step += 1;
            let label = format!("frame loss, {size} octets, {}", ratio(load));
            let measured = bench.trial(rig.trial(label.clone(), size, load, settings.trial_s))?;
            let (sent, lost) = (measured.sent(), measured.lost());
            if !measured.kept() {
                outcome.not_measured(&label, &measured.not_kept);
                let none = || "-".to_owned();
                let row = vec![size.to_string(), ratio(load), none(), none(), none()];
                table.rows.push([row, vec!["generator-bound".into()]].concat());
                continue;
            }
            clean = if lost == 0 { clean + 1 } else { 0 };
            let rate = measured.loss_ratio();
            points.push((load * 100.0, rate * 100.0));
            let counts = [sent, sent - lost.min(sent), lost].map(|n| n.to_string());
            let [offered, received, lost] = counts;
            let row = vec![size.to_string(), ratio(load), offered, received, lost, ratio(rate)];
            table.rows.push(row);
            // Half of the binomial 95 % confidence interval.
            let noise = 1.96 * (rate * (1.0 - rate) / sent.max(1) as f64).sqrt();
            let name = format!("loss@{:.0}%", load * 100.0);
            let better = Better::Lower;
            outcome.figures.push(figure(&name, size, rate, "ratio", better, noise, Limit::Device));
        }
        points.reverse();
        series.push(Series { label: format!("{size} octets"), points });
    }
    outcome.tables.push(table);
    outcome.plots.push(Plot::new(
        "Frame loss rate",
        "Load, % of the highest rate",
        "Frame loss rate, %",
        series,
    ));
    Ok(())
}
