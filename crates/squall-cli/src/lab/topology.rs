//! `squall lab up --topology`, `status` and `link`: labs of hosts, routers and bridges.

use std::path::Path;

use serde_json::Value as Json;
use squall::Error;
use squall_machine::topology::{nodes, status};
use squall_port_linux::lab::Lab;
use squall_profile::Topology;
use squall_report::render::human;

use super::error;
use crate::{
    output,
    table::{Side, table},
};

/// Makes a lab with the topology in `file`. Writes its state to `json`, a file or `-`.
pub fn up(name: &str, file: &Path, json: Option<&str>) -> Result<(), Error> {
    let topology = Topology::load(file)?;
    // Before there is a lab, because a file that cannot be written is an error.
    let created = json.filter(|name| *name != "-").map(output::create).transpose()?;
    let lab = Lab::up_nodes(name, &nodes(&topology)?).map_err(error)?;
    let state = status(&lab).map_err(error)?;
    let first = state["links"][0]["ends"].as_array().into_iter().flatten();
    let first = first.filter_map(Json::as_str).find(|end| end.contains(':'));
    let named = named(&lab.name);
    let mut uses = vec![format!("squall lab status{named}")];
    if let Some((node, _)) = first.and_then(|end| end.split_once(':')) {
        uses.push(format!("squall lab exec{named} --node {node} -- ip route"));
    }
    if let Some(port) = state["ports"][0]["name"].as_str() {
        uses.push(format!("squall lab exec{named} -- squall recv --port {port}"));
    }
    if let Some(end) = first {
        let lab = if named.is_empty() { String::new() } else { format!(" --lab{named}") };
        uses.push(format!("squall lab link {end} down{lab}"));
    }
    let mut text = heading(&state) + &interfaces(&state);
    for (i, command) in uses.iter().enumerate() {
        let head = if i == 0 { "use it:   " } else { "" };
        text += &format!("  {head:10}  {command}\n");
    }
    text += &format!("  remove it:  squall lab down{named}\n");
    match created {
        Some((name, created)) => {
            output::print(&text);
            output::write(&name, created, &format!("{state:#}\n"))
        }
        None => print(&state, &text, json),
    }
}

/// Shows a lab that is up.
pub fn show(name: &str, json: Option<&str>) -> Result<(), Error> {
    let lab = Lab::find(name).map_err(error)?;
    let state = status(&lab).map_err(error)?;
    let text = heading(&state) + &interfaces(&state) + &broken_links(&state) + &daemons(&state);
    print(&state, &text, json)
}

/// Switches the interface `end` of a lab: `r1:eth0`, or `veth-a` of the lab itself.
pub fn link(name: &str, end: &str, on: bool) -> Result<(), Error> {
    let (node, interface) = match end.split_once(':') {
        Some((node, interface)) => (Some(node), interface),
        None => (None, end),
    };
    Lab::find(name).and_then(|lab| lab.switch(node, interface, on)).map_err(error)
}

/// Commands for the lab with the default name need no name.
fn named(lab: &str) -> String {
    if lab == "lab" { String::new() } else { format!(" {lab}") }
}

fn print(state: &Json, text: &str, json: Option<&str>) -> Result<(), Error> {
    if json != Some("-") {
        output::print(text);
    }
    match json {
        Some(file) => output::write_to(file, &format!("{state:#}\n")),
        None => Ok(()),
    }
}

fn list<'a>(of: &'a Json, key: &str) -> impl Iterator<Item = &'a Json> {
    of[key].as_array().into_iter().flatten()
}

fn heading(state: &Json) -> String {
    let count = |key: &str, one: &str| human::counted(list(state, key).count() as u64, one);
    let lab = state["lab"].as_str().unwrap_or_default();
    let device = state["device"].as_str().map_or(String::new(), |device| format!(", {device}"));
    format!(
        "lab {lab:?} is up: {}, {}, {}{device}\n",
        count("nodes", "node"),
        count("links", "link"),
        count("ports", "port")
    )
}

/// A line for each interface.
fn interfaces(state: &Json) -> String {
    let peer = |own: &str| {
        let link = list(state, "links").find(|link| list(link, "ends").any(|end| end == own));
        let other = link.and_then(|link| list(link, "ends").find(|end| *end != own));
        other.and_then(Json::as_str).unwrap_or_default().to_owned()
    };
    let text = |of: &Json, key: &str| of[key].as_str().unwrap_or_default().to_owned();
    let row = |name: &str, kind: &str, one: &Json| {
        let own = match name {
            "" => text(one, "name"),
            node => format!("{node}:{}", text(one, "name")),
        };
        let addresses: Vec<&str> = list(one, "addresses").filter_map(Json::as_str).collect();
        let count = |key: &str| one[key].as_u64().map_or_else(String::new, human::count);
        vec![
            own.clone(),
            kind.to_owned(),
            text(one, "state"),
            peer(&own),
            text(one, "mac"),
            addresses.join(" "),
            count("rx_packets"),
            count("tx_packets"),
        ]
    };
    let ports = list(state, "ports").map(|port| row("", "port", port));
    let nodes = list(state, "nodes").flat_map(|node| {
        let (name, mut kind) = (text(node, "name"), text(node, "kind"));
        if node["runs"] == false {
            kind += ", ended";
        }
        let rows: Vec<_> = list(node, "interfaces").map(|one| row(&name, &kind, one)).collect();
        rows
    });
    let columns = [
        ("INTERFACE", Side::Left),
        ("OF", Side::Left),
        ("STATE", Side::Left),
        ("PEER", Side::Left),
        ("MAC", Side::Left),
        ("ADDRESSES", Side::Left),
        ("RX", Side::Right),
        ("TX", Side::Right),
    ];
    table(&columns, &ports.chain(nodes).collect::<Vec<_>>())
}

/// A line for each link that is down for a reason that its interfaces do not show.
fn broken_links(state: &Json) -> String {
    let line = |link: &Json| {
        let reason = link["reason"].as_str()?;
        let ends: Vec<&str> = list(link, "ends").filter_map(Json::as_str).collect();
        let log = link["log"].as_str().map_or(String::new(), |log| format!(": see {log}"));
        Some(format!("link {} is down: {reason}{log}\n", ends.join(" - ")))
    };
    list(state, "links").filter_map(line).collect()
}

/// A line for each protocol of a daemon.
fn daemons(state: &Json) -> String {
    let mut lines = String::new();
    for node in list(state, "nodes").filter(|node| node["daemon"].is_object()) {
        let name = node["name"].as_str().unwrap_or_default();
        let daemon = &node["daemon"];
        let text = |of: &Json, key: &str| of[key].as_str().unwrap_or_default().to_owned();
        if daemon["runs"] == false {
            lines += &format!("bird of {name} has ended: see {}\n", text(daemon, "log"));
            continue;
        }
        for protocol in list(daemon, "protocols") {
            lines += &format!(
                "bird of {name}: {} {}, {} learnt\n",
                text(protocol, "name"),
                text(protocol, "state"),
                human::counted(protocol["routes_learnt"].as_u64().unwrap_or(0), "route")
            );
        }
        lines += &format!("  birdc -s {} show route\n", text(daemon, "socket"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_lab_is_shown_with_peers_states_and_protocols() {
        let state = json!({
            "lab": "x", "process": 7,
            "ports": [{ "name": "A", "state": "up", "mac": "02:00:00:00:00:00" }],
            "nodes": [{
                "name": "r1", "kind": "router", "runs": true,
                "interfaces": [{
                    "name": "eth0", "state": "no carrier", "addresses": ["10.0.1.1/24"],
                    "rx_packets": 1000, "tx_packets": 3,
                }],
                "daemon": {
                    "name": "bird", "runs": true, "socket": "/s",
                    "protocols": [{ "name": "ospf4", "state": "Running", "routes_learnt": 1 }],
                },
            }],
            "links": [
                { "ends": ["A", "r1:eth0"], "up": false },
                { "ends": ["r1:eth1", "r2:eth0"], "up": false, "reason": "it ended", "log": "/l" },
            ],
        });
        assert_eq!(heading(&state), "lab \"x\" is up: 1 node, 2 links, 1 port\n");
        assert_eq!(broken_links(&state), "link r1:eth1 - r2:eth0 is down: it ended: see /l\n");
        let rows = interfaces(&state);
        let rows: Vec<Vec<&str>> =
            rows.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[1][..4], ["A", "port", "up", "r1:eth0"]);
        let expected = ["r1:eth0", "router", "no", "carrier", "A", "10.0.1.1/24", "1,000", "3"];
        assert_eq!(rows[2], expected);
        assert_eq!(
            daemons(&state),
            "bird of r1: ospf4 Running, 1 route learnt\n  birdc -s /s show route\n"
        );
    }
}
