//! §6: TCP goodput and the latency of microbursts to the same egress port.

use squall_report::render::human::{ns, ratio, si};

use super::{Settings, counts, named};
use crate::{
    bench::{Bench, MethodError},
    outcome::{Better, Figure, Limit, Outcome, Status, Table},
    rig::Rig,
    stations::{LEARN_S, learning},
    trial::{Bulk, Delay, FlowLoad, Lane, Measured, Trial},
};

pub(super) fn all(
    settings: &Settings,
    rig: &Rig,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), MethodError> {
    let port =
        |name: &Option<String>| rig.ports.iter().position(|port| Some(port) == name.as_ref());
    let (Some(stateful), Some(egress)) = (port(&rig.clients), port(&rig.servers)) else {
        let text = "incast (§6): not run, as the profile has no flows with ports for clients and \
                    servers";
        outcome.notes.push(text.into());
        return Ok(());
    };
    let others: Vec<usize> =
        (0..rig.ports.len()).filter(|port| *port != stateful && *port != egress).collect();
    let columns = [
        "Ports with TCP",
        "Ports with bursts",
        "Goodput of TCP",
        "Latency of bursts, minimum",
        "Mean",
        "Maximum",
        "Frame loss rate of bursts",
    ];
    let mut table = Table::new("Incast, stateful and stateless traffic (RFC 8239 §6)", &columns);
    // §6.2: the stateless ports vary from none, for comparison, to all.
    for bursting in 0..=others.len() {
        let trial = trial(settings, rig, egress, &others[..bursting]);
        let label = trial.label.clone();
        let measured = bench.trial(trial)?;
        if counts(&label, &measured, outcome) {
            report(settings, bursting, &measured, outcome, &mut table);
        }
    }
    outcome.tables.push(table);
    outcome.notes.push(
        "incast (§6): TCP connections enter by one port; more of them (--connections) take the \
         place of further ports with TCP"
            .into(),
    );
    Ok(())
}

/// TCP from the clients' port to the servers' port, and bursts from `others`.
fn trial(settings: &Settings, rig: &Rig, egress: usize, others: &[usize]) -> Trial {
    let size = settings.frame_sizes[0];
    let bursts = (settings.incast_s / settings.burst_interval_s).ceil() as u32;
    let lane = |(from, number): (usize, u32)| {
        let lane = named(rig, from, egress);
        Lane {
            name: format!("{}, burst {}", lane.name, number + 1),
            frame_size: Some(size),
            rate_fps: rig.port_fps(size),
            frames: Some(settings.burst_frames),
            // The middle of its interval, so that TCP has begun before the first one.
            start_s: LEARN_S + (f64::from(number) + 0.5) * settings.burst_interval_s,
            ..lane
        }
    };
    let bursts = others.iter().flat_map(|from| (0..bursts).map(|number| (*from, number)));
    let bulk = Bulk { down: 0, up: settings.connections, start_s: 0.0 };
    Trial {
        label: format!(
            "incast, {} connections, bursts of {} ports",
            settings.connections,
            others.len()
        ),
        lanes: learning(rig, 1).chain(bursts.map(lane)).collect(),
        duration_s: LEARN_S + settings.incast_s,
        flows: Some(FlowLoad { bulk: Some(bulk), ..FlowLoad::default() }),
        ..Trial::default()
    }
}

fn report(
    settings: &Settings,
    bursting: usize,
    measured: &Measured,
    outcome: &mut Outcome,
    table: &mut Table,
) {
    let flows = measured.flows.clone().unwrap_or_default();
    let asked = u64::from(settings.connections);
    if flows.established < asked {
        outcome.verdict.status = Status::Failed;
        outcome.verdict.text.push(format!(
            "incast: {} of {asked} connections opened: {}",
            flows.established,
            crate::connections::why(&flows)
        ));
    }
    // TCP sends from the beginning, also while the switch learns.
    let goodput = flows.uploaded_octets as f64 * 8.0 / (LEARN_S + settings.incast_s);
    let mut push = |name: String, value, unit, better, noise| {
        outcome.figures.push(Figure::new(name, value, unit, better, noise, Limit::Device));
    };
    push(format!("incast.goodput/{bursting}"), goodput, "bit/s", Better::Higher, goodput * 0.05);
    let mut row = vec!["1".into(), bursting.to_string(), si(goodput, "b/s")];
    if bursting == 0 {
        row.extend(["-"; 4].map(str::to_owned));
        table.rows.push(row);
        return;
    }
    let Delay { min, mean, max, .. } = measured.delay().unwrap_or_default();
    let lost = measured.loss_ratio();
    push(format!("incast.latency/{bursting}"), mean, "ns", Better::Lower, mean * 0.1);
    push(format!("incast.loss/{bursting}"), lost, "ratio", Better::Lower, 0.01);
    row.extend([ns(min as f64), ns(mean), ns(max as f64), ratio(lost)]);
    table.rows.push(row);
    let goodput = si(goodput, "b/s");
    outcome.verdict.text.push(format!(
        "incast, bursts of {bursting} ports: {goodput} by TCP, latency of bursts up to {}",
        ns(max as f64)
    ));
}
