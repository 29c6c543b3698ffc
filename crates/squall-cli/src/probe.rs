//! `squall ports --probe`: measures how fast each kind of port is.

use std::process::ExitCode;

use serde_json::{Value, json};
use squall::Error;
use squall_doctor::probe::{Measured, attach_sink, receive, send, sizes};
use squall_machine::kinds::{KINDS, Kind, OnInterface, Use, chosen};
use squall_port_linux::{InterfaceInfo, Permissions, lab, list_interfaces};
use squall_report::render::human;
use squall_units::Nanos;

use crate::{
    drive::Signals,
    output,
    table::{Side, table},
};

/// Whether to measure sending or receiving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Send,
    Receive,
}

type Row = (Direction, Measured);

/// Measures on `interface`, or in a private lab. Ctrl-C ends it, and the measurements so far are
/// reported.
pub fn probe(interface: Option<&str>, time: Nanos, json: Option<&str>) -> Result<ExitCode, Error> {
    // This comes first: only a single-threaded process can enter a user namespace.
    let (name, peer) = match interface {
        Some(name) => (name.to_owned(), None),
        None => {
            // Use the default MTU, so that XDP programs without multi-buffer support can be
            // attached, too.
            let [a, b] =
                lab::enter_private(&lab::LabOptions { mtu: 1500, ..lab::LabOptions::default() })
                    .map_err(|e| {
                        Error::Environment(format!(
                            "{e}\n  try an interface instead: squall ports --probe eth1"
                        ))
                    })?;
            (a, Some(b))
        }
    };
    let signals = Signals::catch()?;
    let at = &interface_now(&name)?;
    let rights = Permissions::of_this_process();
    eprintln!("{}", announcement(at, peer.as_deref(), time)?);
    let mut rows: Vec<Row> = Vec::new();
    let mut failed: Vec<(&'static str, String)> = Vec::new();
    let stop = || signals.came();
    for kind in KINDS {
        let Some(on) = kind.interface else { continue };
        let _ear = attach_sink(kind.name, peer.as_deref());
        match (on.can)(&interface_now(&name)?, &rights) {
            Ok(_) => measure(kind, on, at, peer.as_deref(), time, &stop, &mut rows, &mut failed),
            Err(why) => failed.push((kind.name, why)),
        }
    }
    let chosen = [(Use::Send, Direction::Send), (Use::Receive, Direction::Receive)]
        .map(|(wanted, direction)| (direction, chosen(at, &rights, wanted).map(|kind| kind.name)));
    if json != Some("-") {
        output::print(&text(&rows, &failed, &chosen, peer.is_some()));
    }
    if let Some(file) = json {
        output::write_to(
            file,
            &format!("{:#}\n", value(at, peer.as_deref(), &rows, &failed, &chosen)),
        )?;
    }
    if signals.came() {
        eprintln!("squall: stopped; the finished measurements are shown");
    }
    Ok(ExitCode::from(if rows.is_empty() { 3 } else { 0 }))
}

/// Queries the interface again: its capabilities may depend on the programs attached to its peer.
fn interface_now(name: &str) -> Result<InterfaceInfo, Error> {
    let found = list_interfaces()
        .map_err(|e| Error::Environment(format!("the interfaces cannot be listed: {e}")))?;
    Ok(squall_machine::listing::find(name, &found)?.clone())
}

/// Announces the frames before they are sent.
fn announcement(at: &InterfaceInfo, peer: Option<&str>, time: Nanos) -> Result<String, Error> {
    let ways = |on: OnInterface| {
        u64::from(on.send.is_some()) + u64::from(on.receive.is_some() && peer.is_some())
    };
    let runs = KINDS.iter().filter_map(|kind| kind.interface).map(ways).sum::<u64>() * 2;
    let length = Nanos(time.0.saturating_mul(runs));
    let [small, large] = sizes(at);
    Ok(match peer {
        Some(peer) => {
            format!("squall: probing in a private lab, {} and {peer}, for about {length}", at.name)
        }
        None => format!(
            "squall: probing on {}, for about {length}: frames of {small} and {large} octets as \
             fast as they go,\n  {}: the interface's own address, which a switch does not pass \
             on, and no IP",
            at.name,
            squall_doctor::probe::packet(at)?
        ),
    })
}

/// A direction, whether the kind supports it, and a function that measures it with frames of a
/// given size.
type Way<'a> = (Direction, bool, &'a dyn Fn(u32) -> Result<Measured, Error>);

#[allow(clippy::too_many_arguments)]
fn measure(
    kind: &Kind,
    on: OnInterface,
    at: &InterfaceInfo,
    peer: Option<&str>,
    time: Nanos,
    stop: &dyn Fn() -> bool,
    rows: &mut Vec<Row>,
    failed: &mut Vec<(&'static str, String)>,
) {
    // Use the same sender for all receivers, so their rates are comparable.
    let sender = format!("af_packet:{}", at.name);
    let ways: [Way<'_>; 2] = [
        (Direction::Send, on.send.is_some(), &|size| send(kind.name, at, peer, size, time, stop)),
        (Direction::Receive, on.receive.is_some() && peer.is_some(), &|size| {
            receive(kind.name, &sender, at, peer.unwrap_or_default(), size, time, stop)
        }),
    ];
    for (direction, _, run) in ways.into_iter().filter(|(_, supported, _)| *supported) {
        for size in sizes(at) {
            if stop() {
                return;
            }
            match run(size) {
                Ok(measured) => rows.push((direction, measured)),
                Err(error) => {
                    failed.push((kind.name, error.to_string()));
                    break;
                }
            }
        }
    }
}

type Chosen = [(Direction, Option<&'static str>); 2];

fn text(rows: &[Row], failed: &[(&str, String)], chosen: &Chosen, in_lab: bool) -> String {
    let columns = [
        ("KIND", Side::Left),
        ("DOES", Side::Left),
        ("FRAME", Side::Right),
        ("SENT", Side::Right),
        ("RATE", Side::Right),
        ("L1", Side::Right),
        ("RECEIVED", Side::Right),
        ("CPU s/Mpkt", Side::Right),
        ("", Side::Left),
    ];
    let mut rows: Vec<&Row> = rows.iter().collect();
    rows.sort_by_key(|(direction, m)| (*direction == Direction::Receive, m.size));
    let row = |(direction, m): &&Row| {
        let is_chosen = chosen.iter().any(|(d, kind)| d == direction && *kind == Some(m.kind));
        vec![
            m.kind.to_owned(),
            if *direction == Direction::Send { "sends" } else { "receives" }.to_owned(),
            m.size.to_string(),
            human::count(m.sent),
            human::si(m.pps(), "pps"),
            human::si(m.bps_l1(), "b/s"),
            m.received.map_or("-".into(), human::count),
            m.cpu_s_per_mpkt.map_or("-".into(), |s| format!("{s:.2}")),
            if is_chosen { "by a bare name" } else { "" }.to_owned(),
        ]
    };
    let mut text = table(&columns, &rows.iter().map(row).collect::<Vec<_>>());
    text += "\nSENT is counted by the interface, CPU is of the whole process, its start included";
    text += if in_lab {
        "; where a kind receives, af_packet sends, and RECEIVED is\ncounted by the port, else by \
         the other interface.\n"
    } else {
        ".\n"
    };
    for (kind, why) in failed {
        text += &format!("\n{kind} was not measured: {why}\n");
    }
    text
}

fn value(
    at: &InterfaceInfo,
    peer: Option<&str>,
    rows: &[Row],
    failed: &[(&str, String)],
    chosen: &Chosen,
) -> Value {
    let row = |(direction, m): &Row| {
        json!({
            "kind": m.kind, "does": if *direction == Direction::Send { "send" } else { "receive" },
            "frame_octets": m.size, "seconds": m.seconds, "sent": m.sent, "received": m.received,
            "pps": m.pps(), "bps_l1": m.bps_l1(), "cpu_s_per_mpkt": m.cpu_s_per_mpkt,
        })
    };
    let failed: Vec<_> =
        failed.iter().map(|(kind, why)| json!({ "kind": kind, "why": why })).collect();
    json!({
        "schema": "squall-probe/1", "interface": at.name, "peer": peer,
        "measured": rows.iter().map(row).collect::<Vec<_>>(),
        "not_measured": failed,
        "bare_name_takes": { "send": chosen[0].1, "receive": chosen[1].1 },
    })
}
