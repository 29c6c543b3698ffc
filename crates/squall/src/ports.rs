//! From addresses to ports: the one place that knows every backend.

use squall_plan::PortLimits;
use squall_port::{Address, Port, PortFacts, Segmentation};

use crate::Error;

/// A port, what a plan has to know of it, and what the user should.
pub type OpenPort = (Box<dyn Port>, PortLimits, Option<String>);

/// Opens the port at `address`. A bare interface name takes the fastest backend that works there; the note says which.
///
/// # Errors
/// [`Error::Usage`] for an address that says nothing, [`Error::Environment`] for a port that does not open.
pub fn open(address: &str) -> Result<OpenPort, Error> {
    let mut parsed: Address = address.parse().map_err(|e: squall_port::AddressError| Error::Usage(e.to_string()))?;
    let mut note = None;
    if parsed.kind().is_empty() {
        let full = format!("af_packet:{address}");
        note = Some(format!("{address}: taken as {full}, the fastest backend that this build has for an interface"));
        parsed = full.parse().map_err(|e: squall_port::AddressError| Error::Usage(e.to_string()))?;
    }
    let speed =
        parsed.take::<squall_units::Rate>("speed", "a rate such as 10Gbps").map_err(|e| Error::Usage(e.to_string()))?;
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::InvalidInput => Error::Usage(error.to_string()),
        _ => Error::Environment(error.to_string()),
    };
    let port = match squall_port::open(&parsed).map_err(failed)? {
        Some(port) => port,
        None => squall_port_linux::open(&parsed).map_err(failed)?.ok_or_else(|| {
            Error::Usage(format!(
                "port address {address:?}: there is no kind {:?}\n  try af_packet:IFACE, loop:N, null:, pcap:FILE",
                parsed.kind()
            ))
        })?,
    };
    let limits = limits(port.facts(), speed.map(|s| s.value() as u64));
    Ok((port, limits, note))
}

/// What a plan can go by where the port at `address` does not open: the interface, if it is there.
pub(crate) fn assumed(address: &str) -> PortLimits {
    let parsed = address.parse::<Address>().ok();
    let speed = parsed.clone().and_then(|mut a| a.take::<squall_units::Rate>("speed", "a rate").ok().flatten());
    let interfaces = squall_port_linux::list_interfaces().unwrap_or_default();
    let interface = interfaces.into_iter().find(|i| parsed.as_ref().is_some_and(|a| a.name() == i.name));
    PortLimits {
        // As af_packet: an Ethernet header and a VLAN tag on top of the MTU.
        max_frame: interface.as_ref().map_or(65_535, |i| i.mtu + 18),
        speed_bps: speed.map(|s| s.value() as u64).or(interface.as_ref().and_then(|i| i.speed_bps)),
        tx_queues: 64,
        rx_queues: 1,
        paired_queues: false,
        node: crate::cpus::node_of_port(address),
        virtual_time: false,
        segmentation: Segmentation::Engine,
    }
}

fn limits(facts: &PortFacts, speed: Option<u64>) -> PortLimits {
    PortLimits {
        max_frame: facts.max_frame,
        speed_bps: speed.or(facts.speed_bps),
        tx_queues: facts.tx_queues,
        rx_queues: if facts.kind == "null" { 0 } else { facts.rx_queues },
        paired_queues: facts.kind == "loop",
        node: crate::cpus::node_of_port(&facts.address),
        virtual_time: facts.virtual_time,
        segmentation: facts.segmentation,
    }
}
