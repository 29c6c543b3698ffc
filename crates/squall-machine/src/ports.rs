//! Converts bare interface names to addresses, and opens the ports at addresses.

use std::io;

use squall_plan::PortLimits;
use squall_port::{Address, Port, PortFacts, Segmentation, fault::Faults};
use squall_port_linux::{InterfaceInfo, Permissions};
use squall_profile::Profile;
use squall_units::Nanos;

use crate::{
    Error,
    kinds::{KINDS, Kind, OnInterface, Use, Wanted, candidates},
};

/// A port, the facts that a plan needs, and notes for the user (one line each).
pub type OpenPort = (Box<dyn Port>, PortLimits, Vec<String>);

/// Opens the port at `address`. For a bare interface name, chooses the fastest kind that supports
/// `wanted`. A note then names that kind, and the reason why no faster one is used.
///
/// # Errors
/// [`Error::Usage`] for a malformed address, [`Error::Environment`] for a port that cannot be
/// opened.
pub fn open(address: &str, wanted: Wanted) -> Result<OpenPort, Error> {
    let parsed: Address = address.parse().map_err(usage)?;
    match parsed.kind() {
        "" => choose(&parsed, wanted),
        kind => {
            let (port, limits) = open_kind(kind_of(address, kind)?, address, wanted)?;
            let notes = port.notes();
            Ok((port, limits, notes))
        }
    }
}

/// A profile that only receives. Its ports are named by their addresses, which are shortened as
/// long as the names differ.
///
/// # Errors
/// [`Error::Usage`] if a port is listed twice, because each of its frames would be counted twice.
pub fn listening<A: AsRef<str>>(addresses: &[A]) -> Result<Profile, Error> {
    let names = names(addresses)?;
    Ok(Profile::listening(names.into_iter().zip(addresses.iter().map(AsRef::as_ref))))
}

/// Names of the receiving ports in reports: the addresses as typed, without options as long as the
/// names differ.
///
/// # Errors
/// [`Error::Usage`] if a port is listed twice, because each of its frames would be counted twice.
fn names<A: AsRef<str>>(addresses: &[A]) -> Result<Vec<String>, Error> {
    let mut seen: Vec<String> = Vec::new();
    for address in addresses.iter().map(AsRef::as_ref) {
        let Some(what) = exclusive_key(address)? else { continue };
        if seen.contains(&what) {
            return Err(Error::Usage(format!(
                "port {address} is given twice: each of its frames would be received twice\n  try \
                 it once; for more workers, rx_queues=2"
            )));
        }
        seen.push(what);
    }
    let short = |address: &str| address.split(',').next().unwrap_or_default().to_owned();
    let mut names: Vec<String> = Vec::new();
    for address in addresses.iter().map(AsRef::as_ref) {
        let alike =
            addresses.iter().filter(|other| short(other.as_ref()) == short(address)).count();
        let name = if alike > 1 { address.to_owned() } else { short(address) };
        // Both ends of a link in memory have the same address, so it may occur twice.
        let before =
            names.iter().filter(|n| **n == name || n.starts_with(&format!("{name} ("))).count();
        names.push(if before > 0 { format!("{name} ({})", before + 1) } else { name });
    }
    Ok(names)
}

/// A key that must be unique among receiving ports; `None` if the port may be listed twice.
fn exclusive_key(address: &str) -> Result<Option<String>, Error> {
    let mut parsed: Address = address.parse().map_err(usage)?;
    Ok(match parsed.kind() {
        "loop" | "null" | squall_port::elsewhere::KIND => None,
        // A bare name becomes af_packet for receiving. Ports that receive different directions
        // receive different frames.
        "" | "af_packet" => {
            let direction = parsed.take::<String>("direction", "in, out or both").map_err(usage)?;
            Some(format!(
                "af_packet:{} {}",
                parsed.name(),
                direction.unwrap_or_else(|| "in".into())
            ))
        }
        "pcap" => {
            if !parsed.take_flag("read").map_err(usage)?.unwrap_or(false) {
                return Err(Error::Usage(format!(
                    "cannot receive from {address}: it writes the file\n  try pcap:{},read",
                    parsed.name()
                )));
            }
            Some(address.to_owned())
        }
        _ => Some(address.to_owned()),
    })
}

/// Checks that a port at `address` can exist: its kind and its interface do. Opens nothing.
///
/// # Errors
/// [`Error::Usage`] with the reason why it cannot.
pub fn is_there(address: &str) -> Result<(), Error> {
    let parsed: Address = address.parse().map_err(usage)?;
    if !parsed.kind().is_empty() {
        kind_of(address, parsed.kind())?;
    }
    let Some(name) = interface_of(address) else { return Ok(()) };
    let interfaces = squall_port_linux::list_interfaces().unwrap_or_default();
    if interfaces.iter().any(|interface| interface.name == name) {
        return Ok(());
    }
    let hint =
        squall_units::suggest(&name, interfaces.iter().map(|interface| interface.name.as_str()));
    Err(Error::Usage(format!("no interface {name:?}\n  {hint}")))
}

/// The kernel interface that the port at `address` uses.
pub fn interface_of(address: &str) -> Option<String> {
    let parsed: Address = address.parse().ok()?;
    let stands = |kind: &Kind| kind.name == parsed.kind() && kind.interface.is_some();
    (parsed.kind().is_empty() || KINDS.iter().any(stands)).then(|| parsed.name().to_owned())
}

fn usage(error: squall_port::AddressError) -> Error {
    Error::Usage(error.to_string())
}

fn kind_of(address: &str, name: &str) -> Result<&'static Kind, Error> {
    KINDS.iter().find(|kind| kind.name == name).ok_or_else(|| {
        let known: Vec<_> = KINDS.iter().map(|kind| kind.address).collect();
        Error::Usage(format!(
            "port address {address:?}: unknown kind {name:?}\n  try {}",
            known.join(", ")
        ))
    })
}

fn open_kind(
    kind: &Kind,
    address: &str,
    wanted: Wanted,
) -> Result<(Box<dyn Port>, PortLimits), Error> {
    let mut address: Address = address.parse().map_err(usage)?;
    let mut defaults = Vec::new();
    if let Some(sending) = kind.interface.and_then(|on| on.sending)
        && wanted.to == Use::Send
    {
        defaults.push((sending.0, sending.1.to_owned()));
    }
    if let Some(answering) = kind.interface.and_then(|on| on.answering).filter(|_| wanted.answers) {
        defaults.push((answering.at_once.0, answering.at_once.1.to_owned()));
        if wanted.players > 1 {
            defaults.push((answering.queues, wanted.players.to_string()));
        }
    }
    for (key, value) in defaults {
        if !address.has(key) {
            address = format!("{address},{key}={value}").parse().map_err(usage)?;
        }
    }
    let speed =
        address.take::<squall_units::Rate>("speed", "a rate such as 10Gbps").map_err(usage)?;
    let faults = Faults::take(&mut address).map_err(usage)?;
    let opened = (kind.open)(&address).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => Error::Usage(error.to_string()),
        _ => Error::Environment(error.to_string()),
    })?;
    let port = faults.wrap(opened.expect("the table of kinds names who opens each"));
    let limits = limits(port.facts(), speed.map(|s| s.value() as u64));
    Ok((port, limits))
}

/// Opens the fastest kind that works on the interface. If none does, returns the error of the last
/// kind, because that is the most widely supported one.
fn choose(bare: &Address, wanted: Wanted) -> Result<OpenPort, Error> {
    let interfaces = squall_port_linux::list_interfaces().unwrap_or_default();
    let interface = interfaces.iter().find(|i| i.name == bare.name());
    let rights = Permissions::of_this_process();
    let (mut others, mut listed, mut failed) = (Vec::new(), false, None);
    for (kind, on) in candidates(wanted.to) {
        // These reasons are the same for every run, and squall ports prints them.
        let can = || interface.is_none_or(|interface| (on.can)(interface, &rights).is_ok());
        let general = (on.for_bare_name)(wanted.to).is_err() || !can();
        match open_for_bare_name(kind, on, bare, interface, &rights, wanted) {
            Ok((port, limits, because)) => {
                let mut chosen = format!("{bare}: taken as {}: {because}", port.facts().address);
                if listed {
                    chosen += &format!(" (other kinds: squall ports {})", bare.name());
                }
                let note = [vec![chosen], others].concat().join("; ");
                let notes = [vec![note], port.notes()].concat();
                return Ok((port, limits, notes));
            }
            Err(error) if general => (listed, failed) = (true, Some(error)),
            Err(error) => {
                others.push(format!("{} not taken: {}", kind.name, one_line(&error)));
                failed = Some(error);
            }
        }
    }
    Err(failed.unwrap_or_else(|| {
        Error::Usage(format!("port address {bare}: this build has no kind for interfaces"))
    }))
}

/// Opens a port of `kind` for a bare name. Also returns an argument in favor of that kind. A kind
/// that the user did not name must be able to do everything that the last kind in the list can.
fn open_for_bare_name(
    kind: &Kind,
    on: OnInterface,
    bare: &Address,
    interface: Option<&InterfaceInfo>,
    rights: &Permissions,
    wanted: Wanted,
) -> Result<(Box<dyn Port>, PortLimits, String), Error> {
    let because = (on.for_bare_name)(wanted.to).map_err(|why| environment(why.into()))?;
    let address = format!("{}:{bare}{}", kind.name, on.host_safe_options);
    if candidates(wanted.to).last().is_some_and(|(last, _)| last.name == kind.name) {
        let (port, limits) = open_kind(kind, &address, wanted)?;
        return Ok((port, limits, because.to_owned()));
    }
    let interface = interface.ok_or_else(|| environment("no such interface".into()))?;
    (on.can)(interface, rights).map_err(environment)?;
    let (mut trial, limits) = open_kind(kind, &address, wanted)?;
    if wanted.to != Use::Receive {
        let (max_frame, needed) = (limits.max_frame, interface.mtu + ETHERNET_HEADER);
        if max_frame < needed {
            let text = format!(
                "sends at most {max_frame} octets per frame, but the interface takes {needed}"
            );
            return Err(environment(text));
        }
        if wanted.cuts && !matches!(limits.segmentation, Segmentation::Port(_)) {
            return Err(environment("it cuts GSO frames before it sends them".into()));
        }
        if limits.tx_queues < wanted.workers {
            let text =
                format!("{} queues to send for {} workers", limits.tx_queues, wanted.workers);
            return Err(environment(text));
        }
        // Some errors occur only when a queue is opened, and once the run has started it is too
        // late to choose another kind.
        trial.open_tx(0, max_frame).map_err(|e| environment(e.to_string()))?;
    }
    drop(trial);
    let (port, limits) = open_kind(kind, &address, wanted)?;
    Ok((port, limits, because.to_owned()))
}

fn environment(why: String) -> Error {
    Error::Environment(why)
}

/// Octets of an Ethernet header.
pub const ETHERNET_HEADER: u32 = 14;

fn one_line(error: &Error) -> String {
    error.to_string().lines().map(str::trim).collect::<Vec<_>>().join(", ")
}

/// The virtual time at which a run with files starts: that of the first `epoch` option in `ports`.
pub fn epoch(ports: &[squall_profile::Port]) -> Nanos {
    let option = ports
        .iter()
        .find_map(|port| port.address.split(',').find_map(|part| part.strip_prefix("epoch=")));
    let seconds: f64 = option.and_then(|text| text.parse().ok()).unwrap_or(0.0);
    Nanos((seconds * 1e9) as u64)
}

/// Limits for a plan that are known without opening the port at `address`.
///
/// # Errors
/// [`Error::Usage`] for a malformed address.
pub fn known(address: &str) -> Result<PortLimits, Error> {
    let parsed: Address = address.parse().map_err(usage)?;
    if !parsed.kind().is_empty() {
        kind_of(address, parsed.kind())?;
    }
    // Files use virtual time, and so do ports with that option.
    Ok(PortLimits {
        virtual_time: parsed.kind() == "pcap" || parsed.has("virtual"),
        ..assumed(address)
    })
}

/// Whether a run uses virtual time. Each of `ports` has a flag that is true if the port itself
/// requires virtual time. `null:` and ports of other nodes have no clock, so they follow the
/// others.
pub fn on_virtual_time<'a>(ports: impl Iterator<Item = (&'a str, bool)>) -> bool {
    let follows = |address: &str| {
        let parsed = address.parse::<Address>();
        parsed.is_ok_and(|address| matches!(address.kind(), "null" | squall_port::elsewhere::KIND))
    };
    let mut some = false;
    for (address, itself) in ports {
        if !itself && !follows(address) {
            return false;
        }
        some |= itself;
    }
    some
}

/// Puts loop links on virtual time, too, because timestamps from the machine's clock would not
/// match the departure times.
pub fn use_virtual_time(ports: &mut [squall_profile::Port]) {
    for port in ports {
        let Ok(address) = port.address.parse::<Address>() else { continue };
        if address.kind() == "loop" && !address.has("virtual") {
            port.address += ",virtual";
        }
    }
}

/// Limits for a plan if the port at `address` cannot be opened. If its interface exists, they are
/// the limits of the interface.
pub fn assumed(address: &str) -> PortLimits {
    let parsed = address.parse::<Address>().ok();
    let speed = parsed
        .clone()
        .and_then(|mut a| a.take::<squall_units::Rate>("speed", "a rate").ok().flatten());
    let interfaces = squall_port_linux::list_interfaces().unwrap_or_default();
    let interface =
        interfaces.into_iter().find(|i| parsed.as_ref().is_some_and(|a| a.name() == i.name));
    let elsewhere = is_remote(address);
    PortLimits {
        // The same as for af_packet: an Ethernet header and a VLAN tag in addition to the MTU.
        max_frame: interface.as_ref().map_or(65_535, |i| i.mtu + 18),
        mac: None,
        speed_bps: speed
            .map(|s| s.value() as u64)
            .or(interface.as_ref().and_then(|i| i.speed_bps))
            .or(elsewhere.then_some(ASSUMED_NODE_SPEED)),
        tx_queues: 64,
        rx_queues: u32::from(!elsewhere),
        paired_queues: false,
        node: crate::cpus::node_of_port(address),
        virtual_time: false,
        segmentation: Segmentation::Engine,
        elsewhere,
    }
}

/// Whether the port at `address` belongs to another node.
pub fn is_remote(address: &str) -> bool {
    address.split_once(':').is_some_and(|(kind, _)| kind == squall_port::elsewhere::KIND)
}

/// Assumed speed of another node's port if none is stated. Rates relative to it are not sent here,
/// so they only have to be possible.
const ASSUMED_NODE_SPEED: u64 = 10_000_000_000;

fn limits(facts: &PortFacts, speed: Option<u64>) -> PortLimits {
    let elsewhere = facts.kind == squall_port::elsewhere::KIND;
    PortLimits {
        max_frame: facts.max_frame,
        mac: facts.mac,
        speed_bps: speed.or(facts.speed_bps).or(elsewhere.then_some(ASSUMED_NODE_SPEED)),
        tx_queues: facts.tx_queues,
        rx_queues: if facts.kind == "null" { 0 } else { facts.rx_queues },
        paired_queues: facts.pairs_queues(),
        node: crate::cpus::node_of_port(&facts.address),
        virtual_time: facts.virtual_time,
        segmentation: facts.segmentation,
        elsewhere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_named_as_typed_and_names_differ() {
        for (addresses, expected) in [
            (&["eth1", "af_packet:eth2,blocks=8"][..], &["eth1", "af_packet:eth2"][..]),
            (
                &["af_xdp:eth1,queue=0", "af_xdp:eth1,queue=1"],
                &["af_xdp:eth1,queue=0", "af_xdp:eth1,queue=1"],
            ),
            (&["loop:x,virtual", "loop:x,virtual"], &["loop:x,virtual", "loop:x,virtual (2)"]),
            (
                &["eth1,direction=in", "eth1,direction=out"],
                &["eth1,direction=in", "eth1,direction=out"],
            ),
        ] {
            assert_eq!(names(addresses).unwrap(), expected);
        }
    }

    #[test]
    fn a_capture_to_receive_from_is_read_and_never_overwritten() {
        let error = listening(&["pcap:web.pcap"]).unwrap_err().to_string();
        assert!(error.contains("try pcap:web.pcap,read") && !error.contains("--force"), "{error}");
        listening(&["pcap:web.pcap,read"]).unwrap();
    }

    #[test]
    fn a_null_port_has_the_clock_of_the_other_ports() {
        let (file, null, wire) = (("pcap:a.pcap", true), ("null:", false), ("eth1", false));
        for (ports, expected) in [
            (&[file][..], true),
            (&[file, null], true),
            (&[null, file], true),
            (&[null], false),
            (&[("null:virtual", true), null], true),
            (&[file, wire], false),
            (&[null, wire], false),
        ] {
            assert_eq!(on_virtual_time(ports.iter().copied()), expected, "{ports:?}");
        }
    }

    #[test]
    fn a_port_that_is_there_twice_is_refused() {
        for twice in [
            ["eth1", "eth1"],
            ["eth1", "af_packet:eth1,blocks=8"],
            ["pcap:a.pcap,read", "pcap:a.pcap,read"],
        ] {
            let error = names(&twice).unwrap_err();
            assert!(
                matches!(&error, Error::Usage(text) if text.contains("is given twice")),
                "{error}"
            );
        }
    }
}
