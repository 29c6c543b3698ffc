//! Stations on the ports of a switch: their addresses, and the frames between them.

use serde_json::{Value, json};

use crate::{
    rig::Rig,
    trial::{Lane, Measured, Template},
};

/// Prefix of the names of lanes that only teach the device addresses.
const LEARNING: &str = "learning";
/// Time before the measurement in which the device learns addresses, seconds.
pub(crate) const LEARN_S: f64 = 0.5;

/// MAC address of station `host` of a port: locally administered, which RFC 4814 §4 allows.
pub(crate) fn mac(port: usize, host: u32) -> String {
    let [_, a, b, c] = host.to_be_bytes();
    format!("02:28:{port:02x}:{a:02x}:{b:02x}:{c:02x}")
}

/// A field program that cycles through the `count` stations of a port.
pub(crate) fn stations(field: &str, port: usize, count: u32) -> Option<Value> {
    (count > 1).then(|| increment(field, &mac(port, 0), &mac(port, count - 1)))
}

pub(crate) fn increment(field: &str, min: &str, max: &str) -> Value {
    json!({"field": field, "op": "increment", "min": min, "max": max})
}

/// UDP from the stations of port `from` to those of port `to`, with the addresses of RFC 2544
/// §C.2.2.
pub(crate) fn unicast(rig: &Rig, from: usize, to: usize, hosts: u32) -> Template {
    let packet = format!(
        "eth(src={},dst={})/ipv4(src=198.18.{from}.1,dst=198.18.{to}.1)/udp(sport=49184,dport=7)",
        mac(from, 0),
        mac(to, 0)
    );
    let vary = [stations("eth.src", from, hosts), stations("eth.dst", to, hosts)];
    Template {
        port: rig.ports[from].clone(),
        packet,
        vary: vary.into_iter().flatten().collect(),
        plain: false,
    }
}

/// A broadcast from each station of a port.
pub(crate) fn broadcast(rig: &Rig, from: usize, hosts: u32) -> Template {
    let packet = format!(
        "eth(src={},dst=ff:ff:ff:ff:ff:ff)/ipv4(src=198.18.{from}.1,dst=255.255.255.255)/\
         udp(sport=49184,dport=7)",
        mac(from, 0)
    );
    let vary = stations("eth.src", from, hosts).into_iter().collect();
    Template { port: rig.ports[from].clone(), packet, vary, plain: false }
}

/// Lanes that make a switch learn the stations of all ports within [`LEARN_S`].
pub(crate) fn learning(rig: &Rig, hosts: u32) -> impl Iterator<Item = Lane> {
    (0..rig.ports.len()).map(move |port| Lane {
        name: format!("{LEARNING} {}", rig.ports[port]),
        template: Some(Template { plain: true, ..broadcast(rig, port, hosts) }),
        frame_size: Some(64),
        // Finish halfway, so the device has time to learn the last address.
        rate_fps: f64::from(hosts) / (LEARN_S / 2.0),
        frames: Some(hosts.into()),
        ..Lane::default()
    })
}

/// Loss ratio of the measured lanes.
pub(crate) fn loss(measured: &Measured) -> f64 {
    let tested = || measured.lanes.iter().filter(|lane| !lane.name.starts_with(LEARNING));
    let (sent, lost) = tested().fold((0, 0), |(s, l), lane| (s + lane.sent, l + lane.lost));
    if sent == 0 { 1.0 } else { lost as f64 / sent as f64 }
}

/// Number of measured frames received on `port`. A model of a device has no ports; for it, the
/// frames of `lane` count.
pub(crate) fn arrived(measured: &Measured, port: &str, lane: &str) -> u64 {
    let of_lane = || measured.lane(lane).map_or(0, |lane| lane.received);
    measured.signed_at(port).unwrap_or_else(of_lane)
}

/// Measured frames received on ports to which none was sent.
pub(crate) fn strays<'a>(measured: &Measured, ports: impl Iterator<Item = &'a String>) -> u64 {
    ports.filter_map(|port| measured.signed_at(port)).sum()
}
