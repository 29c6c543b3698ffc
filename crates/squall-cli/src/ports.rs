//! `squall ports`: what there is to send on.

use std::process::ExitCode;

use serde_json::{Value, json};
use squall::{Error, InterfaceInfo, InterfaceState, list_interfaces, open_port, render::human};

use crate::{
    output,
    table::{Side, table},
};

/// Lists the interfaces of this machine, and which kinds of ports work on them
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  squall ports
  squall ports --json -
  squall lab exec -- squall ports")]
pub struct Args {
    /// Writes the list as JSON; - is the standard output
    #[arg(long, value_name = "FILE|-")]
    json: Option<String>,
}

/// Kinds that need no interface, and what they are for.
const KINDS: [(&str, &str); 4] = [
    ("af_packet:IFACE", "an Ethernet interface, through packet sockets"),
    ("loop:NAME", "a link in memory; two ports of one name are its ends"),
    ("null:", "takes every frame at once: what a program costs without a port"),
    ("pcap:FILE", "writes what a wire would see; pcap:FILE,read gives the frames of a file"),
];

pub fn ports(args: &Args) -> Result<ExitCode, Error> {
    let interfaces =
        list_interfaces().map_err(|e| Error::Environment(format!("the interfaces cannot be listed: {e}")))?;
    let usable: Vec<Result<(), String>> = interfaces.iter().map(af_packet).collect();
    if args.json.as_deref() != Some("-") {
        output::print(&text(&interfaces, &usable));
    }
    if let Some(name) = &args.json {
        let list: Vec<Value> = interfaces.iter().zip(&usable).map(|(i, usable)| value(i, usable)).collect();
        let kinds: Vec<Value> =
            KINDS.iter().map(|(address, what)| json!({ "address": address, "what": what })).collect();
        let all = json!({ "schema": "squall-ports/1", "interfaces": list, "kinds": kinds });
        output::write_to(name, &format!("{all:#}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether an af_packet port opens there; nothing is sent, and nothing is received.
fn af_packet(interface: &InterfaceInfo) -> Result<(), String> {
    open_port(&format!("af_packet:{}", interface.name)).map(|_| ()).map_err(|e| e.to_string())
}

fn text(interfaces: &[InterfaceInfo], usable: &[Result<(), String>]) -> String {
    let columns = [
        ("INTERFACE", Side::Left),
        ("DRIVER", Side::Left),
        ("STATE", Side::Left),
        ("MTU", Side::Right),
        ("SPEED", Side::Right),
        ("MAC", Side::Left),
        ("QUEUES", Side::Right),
        ("TIMESTAMPS", Side::Left),
        ("PORTS", Side::Left),
    ];
    let dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    let row = |(i, usable): (&InterfaceInfo, &Result<(), String>)| {
        vec![
            i.name.clone(),
            dash(i.driver.clone()),
            state(i.state).to_owned(),
            i.mtu.to_string(),
            dash(i.speed_bps.map(|s| human::si(s as f64, "b/s")).unwrap_or_default()),
            dash(i.mac.map(|m| m.to_string()).unwrap_or_default()),
            format!("{}/{}", i.tx_queues, i.rx_queues),
            timestamps(i).to_owned(),
            if usable.is_ok() { "af_packet" } else { "-" }.to_owned(),
        ]
    };
    let rows: Vec<_> = interfaces.iter().zip(usable).map(row).collect();
    let mut text = table(&columns, &rows);
    // A reason that many interfaces share is told once.
    let mut told: Vec<String> = Vec::new();
    for (interface, why) in interfaces.iter().zip(usable).filter_map(|(i, u)| Some((i, u.as_ref().err()?))) {
        let general = why.replace(&interface.name, "");
        if !told.contains(&general) {
            text += &format!("\n{why}\n");
            told.push(general);
        }
    }
    text += "\nQUEUES: sending/receiving. Addresses of ports:\n";
    let width = KINDS.iter().map(|(address, _)| address.len()).max().unwrap_or(0);
    KINDS.iter().for_each(|(address, what)| text += &format!("  {address:width$}  {what}\n"));
    text
}

fn state(state: InterfaceState) -> &'static str {
    match state {
        InterfaceState::Down => "down",
        InterfaceState::NoCarrier => "no carrier",
        InterfaceState::Up => "up",
    }
}

/// Of frames received: where the instant can come from at best.
fn timestamps(interface: &InterfaceInfo) -> &'static str {
    if interface.timestamping.hardware_rx { "hardware" } else { "kernel" }
}

fn value(i: &InterfaceInfo, usable: &Result<(), String>) -> Value {
    let t = &i.timestamping;
    json!({
        "name": i.name, "driver": i.driver, "state": state(i.state), "mtu": i.mtu, "speed_bps": i.speed_bps,
        "mac": i.mac.map(|m| m.to_string()), "tx_queues": i.tx_queues, "rx_queues": i.rx_queues, "ethernet": i.ethernet,
        "timestamping": {
            "software_tx": t.software_tx, "software_rx": t.software_rx,
            "hardware_tx": t.hardware_tx, "hardware_rx": t.hardware_rx,
        },
        "ports": usable.as_ref().map_or_else(|_| vec![], |()| vec!["af_packet"]),
        "why_not": usable.as_ref().err(),
    })
}
