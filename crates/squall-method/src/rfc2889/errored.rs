//! §5.9: errored frames that a switch should filter, for the kinds that a port can send.

use super::Settings;
use crate::{
    bench::{Bench, MethodError},
    outcome::{Better, Figure, Limit, Outcome, Table},
    rig::Rig,
    stations::{LEARN_S, learning, mac},
    trial::{Lane, Template, Trial},
};

/// Kind, and frame size with FCS. 60 octets are below the minimum of 64 and hold the
/// signature; 1523 exceeds the longest frame with a VLAN tag (1522) by one.
const KINDS: [(&str, u32); 2] = [("undersize", 60), ("oversize", 1523)];
/// The RFC sends errored frames at several loads for 30 s. These, at a low rate, suffice to show
/// whether the device filters them.
const FRAMES: u64 = 100;

pub(super) fn all(
    settings: &Settings,
    rig: &Rig,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), MethodError> {
    let columns = ["Kind", "Frame size", "Sent", "Forwarded", "Result"];
    let mut table = Table::new("Errored frames filtering (RFC 2889 §5.9)", &columns);
    for (kind, size) in KINDS {
        let trial = trial(settings, rig, kind, size);
        // A port that cannot send such frames rejects the trial.
        let measured = match bench.trial(trial) {
            Ok(measured) => measured,
            Err(MethodError::Stopped) => return Err(MethodError::Stopped),
            Err(MethodError::Usage(why) | MethodError::Environment(why)) => {
                outcome.notes.push(format!("{kind} frames (§5.9): not run: {why}"));
                continue;
            }
        };
        let Some(lane) = measured.lane(kind).filter(|lane| lane.sent > 0) else {
            let why = measured.not_kept.first().map_or("none left the port", String::as_str);
            outcome.notes.push(format!("{kind} frames (§5.9): not run: {why}"));
            continue;
        };
        outcome.figures.push(Figure::new(
            format!("forwarded.{kind}"),
            lane.received as f64 / lane.sent as f64,
            "ratio",
            Better::Neither,
            0.0,
            Limit::Device,
        ));
        let result = if lane.received == 0 { "pass" } else { "fail" };
        let counts = [u64::from(size), lane.sent, lane.received].map(|n| n.to_string());
        let row = [kind.to_owned()].into_iter().chain(counts).chain([result.to_owned()]);
        table.rows.push(row.collect());
    }
    outcome.tables.push(table);
    let text = "CRC errors, dribble bits and alignment errors (§5.9): not run, as the network \
                interface computes the FCS of each frame that leaves";
    outcome.notes.push(text.into());
    Ok(())
}

fn trial(settings: &Settings, rig: &Rig, kind: &str, size: u32) -> Trial {
    let template = Template {
        port: rig.ports[0].clone(),
        // Local experimental EtherType 1 (IEEE 802). Unlike the length fields of IP, it cannot
        // contradict the frame size.
        packet: format!("eth(src={},dst={},type=0x88b5)", mac(0, 0), mac(1, 0)),
        ..Template::default()
    };
    let lane = Lane {
        name: kind.into(),
        template: Some(template),
        frame_size: Some(size),
        rate_fps: FRAMES as f64,
        frames: Some(FRAMES),
        start_s: LEARN_S,
        ..Lane::default()
    };
    let lanes = learning(rig, settings.addresses_per_port).chain([lane]).collect();
    let label = format!("errored frames, {kind}, {size} octets");
    Trial { label, lanes, duration_s: LEARN_S + 1.5, ..Trial::default() }
}
