//! §5.5: two ports send, which overloads one receiver and offers another one half of its capacity.
//! Loss at the uncongested receiver is head-of-line blocking; no loss at the congested one is back
//! pressure.

use squall_report::render::human::ratio;

use super::{Settings, mesh::Mesh, rate};
use crate::{
    bench::{Bench, MethodError},
    outcome::{Better, Figure, Limit, Outcome, Table},
    rig::Rig,
    trial::LaneMeasured,
};

pub(super) fn all(
    settings: &Settings,
    rig: &Rig,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), MethodError> {
    if rig.ports.len() < 4 {
        let text = "congestion control (§5.5): not run, as it takes 4 ports";
        outcome.notes.push(text.into());
        return Ok(());
    }
    let columns = [
        "Frame size",
        "Loss at the uncongested port",
        "Loss at the congested port",
        "Head-of-line blocking",
        "Back pressure",
        "Offered",
        "Forwarded, uncongested",
        "Forwarded, congested",
    ];
    let mut table = Table::new("Congestion control (RFC 2889 §5.5)", &columns);
    let (uncongested, congested) = (&rig.ports[2], &rig.ports[3]);
    for &size in &settings.frame_sizes {
        // The first port splits its load between two receivers; the second port sends to one.
        let mesh = Mesh::new(settings, rig, vec![(0, 2), (0, 3), (1, 3)], size);
        let label = format!("congestion control, {size} octets");
        let measured = bench.trial(mesh.trial(1.0, label))?;
        if !measured.kept() {
            // A device that sends pause frames can be the reason.
            let what = format!("congestion control at {size} octets");
            outcome.not_measured(what, &measured.not_kept);
            continue;
        }
        let lanes = |to: &str| {
            let suffix = format!(" to {to}");
            measured.lanes.iter().filter(move |lane| lane.name.ends_with(&suffix))
        };
        let loss = |lanes: &mut dyn Iterator<Item = &LaneMeasured>| {
            let (sent, lost) = lanes.fold((0, 0), |(s, l), lane| (s + lane.sent, l + lane.lost));
            if sent == 0 { 0.0 } else { lost as f64 / sent as f64 }
        };
        let [free, full] = [uncongested, congested].map(|port| loss(&mut lanes(port)));
        for (name, value) in [("uncongested_loss", free), ("congested_loss", full)] {
            outcome.figures.push(Figure {
                name: format!("{name}/{size}"),
                value,
                unit: "ratio".into(),
                better: Better::Lower,
                uncertainty: 0.001,
                limit: Limit::Device,
            });
        }
        let fps = |frames: u64| frames as f64 / settings.trial_s;
        let forwarded = |port: &str| fps(lanes(port).map(|lane| lane.received).sum());
        let [free_fps, full_fps] = [uncongested, congested].map(|port| forwarded(port));
        let offered = [uncongested, congested].map(|port| lanes(port).map(|lane| lane.sent).sum());
        let offered_fps = fps(offered.iter().sum::<u64>());
        for (name, value) in [("uncongested_rate", free_fps), ("congested_rate", full_fps)] {
            outcome.figures.push(rate(
                format!("{name}/{size}"),
                value,
                value * 0.001,
                Limit::Device,
            ));
        }
        let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
        let row = [size.to_string(), ratio(free), ratio(full), yes(free > 0.0), yes(full == 0.0)];
        let rates = [offered_fps, free_fps, full_fps].map(|fps| format!("{fps:.0} frames/s"));
        table.rows.push(row.into_iter().chain(rates).collect());
    }
    outcome.tables.push(table);
    Ok(())
}
