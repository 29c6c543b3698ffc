//! `squall replay`: captures, sent as frames or as conversations.

use super::{Short, Table, scalar};
use crate::{Diagnostics, Profile, source::node::Value};

/// Captures to replay, with the clients on port A, and the servers on port B if it is given. Most
/// arguments are keys of a replay; the others are those of tcpreplay. `edit.NAME` is an edit.
///
/// # Errors
/// All errors, each with its argument.
pub fn replay(short: Short<'_>) -> Result<Profile, Diagnostics> {
    let mut replay = Table::default();
    replay.set("name", "replay");
    replay.set("port", "A");
    if short.ports.len() > 1 {
        replay.set("port2", "B");
    }
    let [mut split, mut edit] = <[Table; 2]>::default();
    for one in short.all() {
        let key = one.key();
        match key {
            "dualfile" => {
                replay.set("merge", one.value());
                split.set("file", one.value());
            }
            "cache" | "cidr" | "regex" | "mac" | "auto" => split.set(key, one.value()),
            "by_port" => split.set("port", one.value()),
            "topspeed" => replay.set("rate", one.node("max".into())),
            "oneatatime" => {
                replay.set("rate", one.node("max".into()));
                replay.set("held", true);
            }
            "pps" => replay.set("rate", one.unit("pps")),
            "pps_multi" => replay.set("together", one.value()),
            "maxsleep" => replay.set("longest_gap", one.unit("ms")),
            "loopdelay_ms" => replay.set("loop_delay", one.unit("ms")),
            "loopdelay_ns" => replay.set("loop_delay", one.unit("ns")),
            "unique_ip" if !replay.has(key) => replay.set(key, one.node(scalar("1"))),
            "unique_ip" => {}
            "unique_ip_loops" => replay.set("unique_ip", one.value()),
            "no_flow_stats" => replay.set("flow_stats", one.node(false.into())),
            "pktlen" => edit.add("unfold", one.value()),
            "files" => replay.append(key, one.value()),
            "merge" | "multiplier" | "mbps" | "rate" | "ramp" | "late" | "loops" | "limit"
            | "preload" | "reverse" | "flow_expiry" | "max_flows" | "filter" | "include"
            | "exclude" | "too_long" => replay.set(key, one.value()),
            _ => key.strip_prefix("edit.").into_iter().for_each(|key| edit.add(key, one.value())),
        }
    }
    replay.set_some("split", split);
    replay.set_some("edit", edit);
    let mut profile = Table::default();
    profile.set("replay", Value::from_iter([replay]));
    short.profile(profile)
}

/// The TCP and UDP conversations of a capture, with the clients on port A, and the servers on port
/// B if it is given.
///
/// # Errors
/// All errors, each with its argument.
pub fn conversations(short: Short<'_>) -> Result<Profile, Diagnostics> {
    let mut replay = Table::default();
    let [mut tcp, mut clients, mut servers] = <[Table; 3]>::default();
    for one in short.all() {
        match one.key() {
            "files" => replay.set("capture", one.value()),
            "loopdelay_ms" => replay.set("loop_delay", one.unit("ms")),
            "loopdelay_ns" => replay.set("loop_delay", one.unit("ns")),
            key @ ("multiplier" | "delays") => replay.set(key, one.node(scalar(one.text()))),
            "tcp" => short.set_pair(&mut tcp, one)?,
            key @ ("gateway" | "next_hop") => clients.add(key, one.value()),
            "gateway2" => servers.add("gateway", one.value()),
            key @ ("cps" | "topspeed" | "shortest_delay" | "loops" | "at_once" | "clients"
            | "server" | "incomplete" | "filter" | "within") => replay.add(key, one.value()),
            _ => {}
        }
    }
    replay.set_some("tcp", tcp);
    let mut flows = Table::default();
    flows.set("clients", "A");
    if short.ports.len() > 1 {
        flows.set("servers", "B");
    }
    flows.set("replay", replay);
    flows.set_some("client_network", clients);
    flows.set_some("server_network", servers);
    let mut profile = Table::default();
    profile.set("flows", flows);
    short.profile(profile)
}
