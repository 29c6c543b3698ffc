//! LLDP instances of ports.

use std::collections::HashSet;

use squall_host::lldp::{CHASSIS_MAC, LldpId, Lldpdu, OrganizationTlv, PORT_MAC};
use squall_units::{MacAddr, Nanos};

use crate::{
    devices::needed,
    read::{Node, Notes, brief},
    translate::{LldpInfo, PortInfo},
};

/// Further subtypes of ids (IEEE 802.1AB-2016 tables 8-2 and 8-3).
const CHASSIS_INTERFACE: u8 = 6;
const PORT_INTERFACE: u8 = 5;
const LOCAL: u8 = 7;
/// Octets of an id or of a name at most.
const MOST_TEXT: usize = 255;
/// Octets of the information of an organization at most.
const MOST_INFORMATION: usize = 507;
/// Octets of a frame after its Ethernet header at most.
const MOST_OCTETS: usize = 1500;
/// The only capability, which is enabled: station only (table 8-4).
const STATION: u16 = 0x80;

pub(crate) fn read(root: &Node<'_>, ports: &[PortInfo], notes: &mut Notes) -> Vec<LldpInfo> {
    let mut names = HashSet::new();
    let list = root.list("lldp", notes);
    let infos = list.iter().enumerate().filter_map(|(number, node)| {
        let info = read_one(node, number as u16, ports, notes)?;
        if !names.insert(info.name.clone()) {
            let path = node.at("name").path;
            let found = format!("{:?} is also the name of another LLDP instance", info.name);
            notes.problem(path, found);
        }
        Some(info)
    });
    infos.collect()
}

fn read_one(
    node: &Node<'_>,
    number: u16,
    ports: &[PortInfo],
    notes: &mut Notes,
) -> Option<LldpInfo> {
    let keys = [
        "connection",
        "chassis_id",
        "port_id",
        "system_name",
        "hold_time",
        "advertisement_interval",
        "name",
        "org_infos",
    ];
    node.known(&keys, notes);
    let name = node.needed_text("name", notes).map(str::to_owned);
    let connection = node.at("connection");
    connection.known(&["choice", "port_name"], notes);
    let port = connection
        .choice(&["port_name"], Some("port_name"), notes)
        .and_then(|_| connection.needed_text("port_name", notes))?;
    if !ports.iter().any(|known| known.name == port) {
        let path = connection.at("port_name").path;
        notes.problem(path, format!("there is no port {port:?}"));
    }
    let [high, low] = number.to_be_bytes();
    let generated = MacAddr([0x02, 0x53, 0x52, 0, high, low]);
    let (chassis, mac) = chassis(&node.at("chassis_id"), generated, notes)?;
    let port_id = port_id(&node.at("port_id"), port, notes)?;
    let system = automatic(&node.at("system_name"), "squall", notes)?;
    let mut seconds = |key: &str, least: u64, most: u64, default: u64| {
        let found = node.uint(key, most, notes).unwrap_or(default);
        if found < least {
            let path = node.at(key).path;
            notes.problem(path, format!("found {found}, expected at least {least} s"));
        }
        found
    };
    let ttl = seconds("hold_time", 10, 65_535, 120) as u16;
    let interval = seconds("advertisement_interval", 5, 65_534, 30);
    let organizations = node.list("org_infos", notes);
    let organizations = organizations.iter().filter_map(|one| organization(one, notes)).collect();
    let unit = Lldpdu {
        chassis,
        port: port_id,
        ttl,
        system: Some(system),
        capabilities: Some((STATION, STATION)),
        organizations,
        ..Lldpdu::default()
    };
    let mut octets = Vec::new();
    unit.write(&mut octets);
    if octets.len() > MOST_OCTETS {
        let len = octets.len();
        let message = format!("the announcement has {len} octets, expected at most {MOST_OCTETS}");
        notes.problem(node.at("org_infos").path, message);
    }
    let interval = Nanos(interval * Nanos::SECOND.0);
    Some(LldpInfo { name: name?, port: port.to_owned(), mac, unit, interval })
}

/// The id of the chassis, and the MAC address that the frames come from.
fn chassis(node: &Node<'_>, generated: MacAddr, notes: &mut Notes) -> Option<(LldpId, MacAddr)> {
    let choices = ["mac_address_subtype", "interface_name_subtype", "local_subtype"];
    node.known(&[&["choice"], choices.as_slice()].concat(), notes);
    let id = |subtype, text: &str| LldpId { subtype, value: text.as_bytes().to_vec() };
    Some(match node.choice(&choices, Some(choices[0]), notes)? {
        "interface_name_subtype" => {
            (id(CHASSIS_INTERFACE, text(node, choices[1], notes)?), generated)
        }
        "local_subtype" => (id(LOCAL, text(node, choices[2], notes)?), generated),
        _ => {
            let of = node.at(choices[0]);
            of.known(&["choice", "auto", "value"], notes);
            let mac = match of.choice(&["auto", "value"], Some("auto"), notes)? {
                "value" => needed(&of, "value", "a MAC address", notes)?,
                _ => generated,
            };
            (LldpId { subtype: CHASSIS_MAC, value: mac.0.to_vec() }, mac)
        }
    })
}

fn port_id(node: &Node<'_>, port: &str, notes: &mut Notes) -> Option<LldpId> {
    let choices = ["interface_name_subtype", "mac_address_subtype", "local_subtype"];
    node.known(&[&["choice"], choices.as_slice()].concat(), notes);
    Some(match node.choice(&choices, Some(choices[0]), notes)? {
        "mac_address_subtype" => {
            let mac: MacAddr = needed(node, choices[1], "a MAC address", notes)?;
            LldpId { subtype: PORT_MAC, value: mac.0.to_vec() }
        }
        "local_subtype" => {
            LldpId { subtype: LOCAL, value: text(node, choices[2], notes)?.as_bytes().to_vec() }
        }
        _ => {
            let value = automatic(&node.at(choices[0]), port, notes)?;
            LldpId { subtype: PORT_INTERFACE, value: value.into_bytes() }
        }
    })
}

/// A text that may be left to the implementation.
fn automatic(node: &Node<'_>, default: &str, notes: &mut Notes) -> Option<String> {
    node.known(&["choice", "auto", "value"], notes);
    match node.choice(&["auto", "value"], Some("auto"), notes)? {
        "value" => text(node, "value", notes).map(str::to_owned),
        _ => {
            let lens = 0..=default.len().min(MOST_TEXT);
            let len = lens.rev().find(|len| default.is_char_boundary(*len)).unwrap_or(0);
            Some(default[..len].to_owned())
        }
    }
}

fn text<'a>(node: &Node<'a>, key: &str, notes: &mut Notes) -> Option<&'a str> {
    let text = node.needed_text(key, notes)?;
    if text.is_empty() || text.len() > MOST_TEXT {
        let path = node.at(key).path;
        let found = format!("found {} octets, expected 1 to {MOST_TEXT}", text.len());
        notes.problem(path, found);
        return None;
    }
    Some(text)
}

fn organization(node: &Node<'_>, notes: &mut Notes) -> Option<OrganizationTlv> {
    node.known(&["oui", "subtype", "information"], notes);
    let oui = match node.get("oui") {
        Some(_) => hex(node, "oui", 3..=3, notes)?,
        None => vec![0, 0x80, 0xc2],
    };
    let subtype = node.uint("subtype", 127, notes).unwrap_or(1) as u8;
    if subtype == 0 {
        notes.problem(node.at("subtype").path, "found 0, expected 1 to 127");
    }
    let information = node.at("information");
    information.known(&["choice", "info"], notes);
    information.choice(&["info"], Some("info"), notes)?;
    let information = hex(&information, "info", 1..=MOST_INFORMATION, notes)?;
    Some(OrganizationTlv { oui: oui.try_into().ok()?, subtype, information })
}

/// Octets in hex digits; `len`: how many there may be.
pub(crate) fn hex(
    node: &Node<'_>,
    key: &str,
    len: std::ops::RangeInclusive<usize>,
    notes: &mut Notes,
) -> Option<Vec<u8>> {
    let text = node.needed_text(key, notes)?;
    let pair = |pair: &[u8]| match pair {
        [a, b] => Some((char::from(*a).to_digit(16)? << 4 | char::from(*b).to_digit(16)?) as u8),
        _ => None,
    };
    let octets: Option<Vec<u8>> = text.as_bytes().chunks(2).map(pair).collect();
    let octets = octets.filter(|octets| len.contains(&octets.len()));
    if octets.is_none() {
        let at = node.at(key);
        let (found, least, most) = (brief(at.value), len.start(), len.end());
        let message = format!("found {found}, expected {least} to {most} pairs of hex digits");
        notes.problem(at.path, message);
    }
    octets
}
