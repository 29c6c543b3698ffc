//! Aggregates of ports (LAGs).

use std::collections::HashSet;

use squall_host::{
    LacpInfo, LacpSettings,
    lacp::{ACTIVITY, AGGREGATION, SHORT_TIMEOUT},
};
use squall_units::{MacAddr, Nanos};

use crate::{
    devices::address,
    read::{Node, Notes},
    translate::{LagInfo, LagMemberInfo, PortInfo},
};

/// Timeouts below this are short, and partners then announce themselves each second (IEEE
/// 802.1AX-2014 section 6.4.4).
const LONG_TIMEOUT_S: u64 = 30;

pub(crate) fn read(root: &Node<'_>, ports: &[PortInfo], notes: &mut Notes) -> Vec<LagInfo> {
    let (mut names, mut members) = (HashSet::new(), HashSet::new());
    let mut lags = Vec::new();
    for (node, number) in root.list("lags", notes).iter().zip(numbers()) {
        node.known(&["name", "ports", "protocol", "min_links"], notes);
        let name = node.needed_text("name", notes).unwrap_or_default().to_owned();
        if !names.insert(name.clone()) || ports.iter().any(|port| port.name == name) {
            let path = node.at("name").path;
            notes.problem(path, format!("{name:?} is also the name of another LAG or port"));
        }
        let actor = read_actor(&node.at("protocol"), number, notes);
        let list = node.list("ports", notes);
        if list.is_empty() {
            notes.problem(&node.at("ports").path, "missing: expected ports");
        }
        let read = list.iter().zip(numbers()).filter_map(|(member, place)| {
            let of = read_member(member, actor, (number, place), notes)?;
            let path = member.at("port_name").path;
            if !ports.iter().any(|port| port.name == of.port) {
                notes.problem(path, format!("there is no port {:?}", of.port));
            } else if !members.insert(of.port.clone()) {
                notes.problem(path, format!("port {:?} is already in a LAG", of.port));
            }
            Some(of)
        });
        let members = read.collect();
        let min_links = node.uint("min_links", 32, notes).unwrap_or(1) as u32;
        lags.push(LagInfo { name, min_links, members });
    }
    lags
}

/// Numbers from 1, for generated values.
fn numbers() -> impl Iterator<Item = u16> {
    (1u64..).map(|number| number as u16)
}

/// The system and the key of an aggregate. Zeros are defaults of the schema; two aggregates that
/// have them could not become partners.
fn read_actor(node: &Node<'_>, number: u16, notes: &mut Notes) -> LacpInfo {
    node.known(&["choice", "lacp", "static"], notes);
    if node.choice(&["lacp", "static"], Some("lacp"), notes) == Some("static") {
        notes.unsupported(&node.at("static"), "aggregates without LACP; try lacp");
    }
    let lacp = node.at("lacp");
    lacp.known(&["actor_system_id", "actor_system_priority", "actor_key"], notes);
    let [high, low] = number.to_be_bytes();
    let system: Option<MacAddr> = address(&lacp, "actor_system_id", "a MAC address", notes);
    let mut word = |key| lacp.uint(key, 65_535, notes).unwrap_or(0) as u16;
    LacpInfo {
        system: system
            .filter(|system| *system != MacAddr::default())
            .unwrap_or(MacAddr([0x02, 0x53, 0x53, 0, high, low])),
        system_priority: word("actor_system_priority"),
        key: Some(word("actor_key")).filter(|key| *key > 0).unwrap_or(number),
        ..LacpInfo::default()
    }
}

/// A port of LAG number `numbers.0`; `numbers.1`: its place there, from 1.
fn read_member(
    node: &Node<'_>,
    actor: LacpInfo,
    numbers: (u16, u16),
    notes: &mut Notes,
) -> Option<LagMemberInfo> {
    node.known(&["port_name", "lacp", "ethernet", "macsec"], notes);
    if let Some(macsec) = node.get("macsec") {
        notes.unsupported(&macsec, "ports do not support MACsec");
    }
    let ethernet = node.at("ethernet");
    ethernet.known(&["name", "mac", "mtu", "vlans"], notes);
    if !ethernet.list("vlans", notes).is_empty() {
        let path = ethernet.at("vlans").path;
        notes.warn(&path, "has no effect: frames of LACP have no VLAN tags");
    }
    let mac = address(&ethernet, "mac", "a MAC address", notes);
    let lacp = node.at("lacp");
    let keys = [
        "actor_port_number",
        "actor_port_priority",
        "actor_activity",
        "lacpdu_periodic_time_interval",
        "lacpdu_timeout",
    ];
    lacp.known(&keys, notes);
    let words = ["passive", "active"];
    let is_active = lacp.word("actor_activity", &words, Some("active"), notes) == Some("active");
    let mut number = |key, default| lacp.uint(key, 65_535, notes).unwrap_or(default);
    let (port, port_priority) = (number(keys[0], 0) as u16, number(keys[1], 1) as u16);
    let (interval, timeout) = (number(keys[3], 0), number(keys[4], 0));
    let mut settings = LacpSettings::default();
    let seconds = |seconds: u64| Nanos(seconds * Nanos::SECOND.0);
    // A partner with the short timeout still gets a PDU each second: it would give up otherwise.
    if interval > 0 {
        settings.slow_periodic = seconds(interval);
    }
    match timeout {
        0 => {}
        1..LONG_TIMEOUT_S => settings.short_timeout = seconds(timeout),
        _ => settings.long_timeout = seconds(timeout),
    }
    let activity = if is_active { ACTIVITY } else { 0 };
    let short = if timeout < LONG_TIMEOUT_S { SHORT_TIMEOUT } else { 0 };
    settings.actor = LacpInfo {
        port_priority,
        port: if port > 0 { port } else { numbers.1 },
        state: activity | short | AGGREGATION,
        ..actor
    };
    let [lag, place] = [numbers.0, numbers.1].map(|number| number as u8);
    let mac = mac.unwrap_or(MacAddr([0x02, 0x53, 0x54, 0, lag, place]));
    Some(LagMemberInfo { port: node.needed_text("port_name", notes)?.to_owned(), mac, settings })
}
