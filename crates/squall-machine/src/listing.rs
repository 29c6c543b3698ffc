//! Interfaces, and the kinds of ports that work on each, for `squall ports`.

use serde_json::{Map, Value, json};
use squall_port_linux::{InterfaceInfo, InterfaceState, Permissions, XdpMode, list_interfaces};

use crate::{
    Error,
    kinds::{KINDS, Kind, on_interface},
};

/// The interfaces of this machine and the permissions of this process.
#[derive(Debug)]
pub struct Listing {
    pub interfaces: Vec<Listed>,
    pub rights: Permissions,
}

/// An interface, and for each kind whether it works there.
#[derive(Debug)]
pub struct Listed {
    pub interface: InterfaceInfo,
    pub kinds: Vec<(&'static Kind, Result<String, String>)>,
}

impl Listing {
    /// All interfaces, or only the one called `name`.
    ///
    /// # Errors
    /// If there is no such interface, or the kernel lists none.
    pub fn new(name: Option<&str>) -> Result<Self, Error> {
        let rights = Permissions::of_this_process();
        let found = list_interfaces()
            .map_err(|e| Error::Environment(format!("cannot list the interfaces: {e}")))?;
        if let Some(name) = name {
            find(name, &found)?;
        }
        let interfaces = found
            .into_iter()
            .filter(|i| name.is_none_or(|name| name == i.name))
            .map(|interface| Listed {
                kinds: on_interface(&interface, &rights).collect(),
                interface,
            })
            .collect();
        Ok(Self { interfaces, rights })
    }

    /// The form that `squall ports --json` writes.
    pub fn to_value(&self) -> Value {
        value(&self.interfaces, &self.rights)
    }
}

/// The interface with that name.
///
/// # Errors
/// If there is none. The message has the names that exist.
pub fn find<'a>(name: &str, found: &'a [InterfaceInfo]) -> Result<&'a InterfaceInfo, Error> {
    found.iter().find(|i| i.name == name).ok_or_else(|| {
        let names = found.iter().map(|i| i.name.as_str()).collect::<Vec<_>>().join(", ");
        Error::Environment(format!("no interface {name:?}\n  expected one of {names}"))
    })
}

pub fn state(state: InterfaceState) -> &'static str {
    match state {
        InterfaceState::Down => "down",
        InterfaceState::NoCarrier => "no carrier",
        InterfaceState::Up => "up",
    }
}

pub fn xdp_mode(mode: XdpMode) -> &'static str {
    match mode {
        XdpMode::Generic => "generic",
        XdpMode::Native => "native",
        XdpMode::Hardware => "hardware",
    }
}

fn value(listed: &[Listed], rights: &Permissions) -> Value {
    let interfaces: Vec<Value> = listed.iter().map(interface_value).collect();
    let kind = |kind: &Kind| json!({ "kind": kind.name, "address": kind.address, "what": kind.what, "needs": kind.needs, "why_not": (kind.here)().err() });
    json!({
        "schema": "squall-ports/1",
        "interfaces": interfaces,
        "kinds": KINDS.iter().map(kind).collect::<Vec<_>>(),
        "process": {
            "uid": rights.uid,
            "user_namespace": rights.user_namespace,
            "capabilities": rights.names().collect::<Vec<_>>(),
            "memlock_octets": rights.memlock,
            "unprivileged_bpf_disabled": rights.unprivileged_bpf_disabled,
            "packet_sockets_why_not": rights.packet_sockets().err(),
            "xdp_programs_why_not": rights.xdp_programs().err(),
        },
    })
}

fn interface_value(Listed { interface: i, kinds }: &Listed) -> Value {
    let (t, f) = (&i.timestamping, i.xdp.features);
    let offloads: Map<String, Value> = i
        .offloads
        .iter()
        .map(|o| (o.name.to_owned(), json!({ "on": o.on, "fixed": o.fixed })))
        .collect();
    let channels = i.channels.map(|c| {
        json!({
            "rx": c.rx, "tx": c.tx, "combined": c.combined,
            "max_rx": c.max_rx, "max_tx": c.max_tx, "max_combined": c.max_combined,
        })
    });
    let features = f.map(|f| {
        json!({
            "native": f.native, "redirect": f.redirect, "redirect_target": f.redirect_target, "zero_copy": f.zero_copy,
            "multi_buffer": f.multi_buffer, "hardware": f.hardware, "tx_timestamp": f.tx_timestamp,
            "tx_checksum": f.tx_checksum, "launch_time": f.launch_time, "rx_timestamp": f.rx_timestamp,
        })
    });
    let program = |(mode, id): &(XdpMode, u32)| json!({ "mode": xdp_mode(*mode), "id": id });
    let working: Vec<_> =
        kinds.iter().filter(|(_, works)| works.is_ok()).map(|(kind, _)| kind.name).collect();
    let why_not: Map<String, Value> = kinds
        .iter()
        .filter_map(|(kind, works)| Some((kind.name.to_owned(), works.clone().err()?.into())))
        .collect();
    json!({
        "name": i.name, "driver": i.driver, "bus": i.bus, "numa_node": i.numa_node, "state": state(i.state),
        "mtu": i.mtu, "max_mtu": i.max_mtu, "speed_bps": i.speed_bps, "mac": i.mac.map(|m| m.to_string()),
        "tx_queues": i.tx_queues, "rx_queues": i.rx_queues, "channels": channels, "rss_entries": i.rss_entries,
        "ethernet": i.ethernet, "offloads": offloads,
        "timestamping": {
            "software_tx": t.software_tx, "software_rx": t.software_rx,
            "hardware_tx": t.hardware_tx, "hardware_rx": t.hardware_rx, "clock": t.clock,
        },
        "xdp": { "features": features, "programs": i.xdp.programs.iter().map(program).collect::<Vec<_>>() },
        "ports": working,
        "why_not": why_not,
    })
}
