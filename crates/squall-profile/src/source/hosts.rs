//! Hosts as text: the table, and the values of [`crate::HostGroup`] that are made from it.

use std::net::Ipv4Addr;

use squall_units::{MacAddr, Nanos, parse_count};

use super::{
    flows::two_ports,
    read::{Bounded, Place, Placed, Reader, table, words},
};
use crate::{ArpUse, At, HostAddress, Located, PingTarget, Port};

table! {
    /// Hosts on a port, all of one kind. They answer ARP and echo requests for their addresses,
    /// which are static or given by DHCPv4.
    HostGroupTable makes
    /// Hosts on a port, all of one kind.
    HostGroup {
        name: String = String::new(),
        /// Index into [`crate::Profile::ports`].
        port: usize = 0,
        /// `None`: 02:53:NN:00:00:01, where NN is the number of the group.
        mac: Option<MacAddr> = None,
        ipv4: HostAddress = HostAddress::Dhcp,
        gateway: Option<Ipv4Addr> = None,
        /// Hosts that start per second; `None`: all at once.
        setup: Option<u64> = None,
        /// First and last address that the DHCP server gives.
        serve: Option<(Ipv4Addr, Ipv4Addr)> = None,
        ping: Option<PingTarget> = None,
        at: At = At::default(),
    } from {
        /// Unique among hosts; reports use it. Default "hosts 1" and so on.
        name: String,
        /// A name from [ports]. May be left out if there is only one.
        port: String,
        /// Number of hosts. Default 1.
        count: Bounded<1, 1_000_000> => u32 = 1,
        /// MAC address of the first host; that of each further one is the next. Default
        /// 02:53:NN:00:00:01, where NN is the number of the group.
        mac: Located,
        /// VLAN of the hosts. Default: untagged.
        vlan: Bounded<1, 4_094> => Option<u64>,
        /// "dhcp", or the first host's address with the length of its prefix: "10.0.0.2/16"; that of
        /// each further one is the next. Default "dhcp".
        ipv4: Located,
        /// The router of hosts with static addresses; a server gives it to its clients.
        gateway: Located,
        /// Hosts that start per second: "2000/s", or "max". They start at this rate, whether or not
        /// earlier ones have an address. Default "max".
        setup: Located,
        /// When the first host starts. Default 0.
        start: Nanos => Nanos,
        /// Use of ARP for the hosts' own addresses (RFC 5227): "probe" before an address is used,
        /// "announce" and defend it (as "probe" does, too), or "silent". Default "announce".
        arp: ArpUse => ArpUse,
        /// true: hosts give their addresses back when the run ends. Default false.
        release: bool => bool,
        /// Vendor class of DHCP clients (option 60). Default: none.
        vendor: String => Option<String>,
        /// Time before a client of DHCP repeats a message for the first time; it doubles each time,
        /// up to 64 s (RFC 2131 section 4.1). Default 4 s.
        retry: Nanos => Option<Nanos>,
        /// Messages without an answer after which a client of DHCP fails. Default 5.
        tries: Bounded<1, 255> => Option<u64>,
        /// The host, which has a static address, is a DHCP server, and gives these addresses:
        /// "10.0.1.0-10.0.4.255".
        serve: Located,
        /// Length of the leases that it gives. Default 1 h.
        lease: Nanos => Option<Nanos>,
        /// Hosts send echo requests to this address, or to their "gateway".
        ping: Located,
        /// Echo requests per second of the group. Default 100.
        ping_rate: Bounded<1, 10_000_000> => u64 = 100,
        /// Echo requests of each host. Default 3.
        ping_count: Bounded<1, 65_535> => u64 = 3,
        /// false: the hosts are ignored. Default true.
        enabled: bool,
    }
}

words!(
    ArpUse,
    "a known use of ARP":
    "probe" => Probe,
    "announce" => Announce,
    "silent" => Silent,
);

pub(super) fn hosts(
    tables: Option<Placed<Vec<HostGroupTable>>>,
    ports: &[Port],
    cx: &mut Reader<'_>,
) -> Vec<HostGroup> {
    let tables = tables.map_or_else(Vec::new, |tables| tables.value);
    let mut groups: Vec<HostGroup> = Vec::new();
    for (number, table) in tables.into_iter().enumerate() {
        if table.enabled.as_ref().is_some_and(|enabled| !enabled.value) {
            continue;
        }
        let name_place =
            table.name.as_ref().map_or_else(|| table.place.clone(), |name| name.place.clone());
        let Some(group) = group(number, table, ports, cx) else { continue };
        if groups.iter().any(|before| before.name == group.name) {
            let what = format!("= {:?} is already the name of other hosts", group.name);
            cx.report(&name_place, &what, &[]);
        }
        groups.push(group);
    }
    groups
}

fn group(
    number: usize,
    mut table: HostGroupTable,
    ports: &[Port],
    cx: &mut Reader<'_>,
) -> Option<HostGroup> {
    let at = cx.at(table.place.start);
    let place = table.place.clone();
    let (port, _) = two_ports(&table.port, &None, (&table.given, &table.place), ports, cx);
    let mac = read(table.mac.take(), cx, |text| text.parse().ok(), "a MAC address", MAC);
    let unicast = mac.as_ref().is_none_or(|(mac, _): &(MacAddr, Place)| mac.0[0] & 1 == 0);
    if let (Some((_, place)), false) = (&mac, unicast) {
        cx.report(place, "is the address of a group, which no host can have", &[MAC.into()]);
    }
    let bare = |at: &Placed<Located>| at.value.text.trim().parse::<Ipv4Addr>().ok();
    let full = table.ipv4.as_ref().and_then(bare).map(|address| format!("try \"{address}/24\""));
    let (wanted, hint) = match &full {
        Some(hint) => ("an address with the length of its prefix", hint.as_str()),
        None => ("\"dhcp\" or an address with a prefix of 1 to 32 bits", ADDRESS),
    };
    let ipv4 = read(table.ipv4.take(), cx, address, wanted, hint);
    let gateway = read(table.gateway.take(), cx, |text| text.parse().ok(), "an address", GATEWAY);
    let setup = read(table.setup.take(), cx, per_second, "a number per second", SETUP);
    let serve = read(table.serve.take(), cx, range, "a range of addresses", RANGE);
    let ping = read(table.ping.take(), cx, target, "\"gateway\" or an address", PING);
    let name = table.name.take().map(|name| name.value);
    let group = HostGroup {
        name: name.unwrap_or_else(|| format!("hosts {}", number + 1)),
        port: port?,
        mac: mac.map(|(mac, _)| mac),
        ipv4: ipv4.map_or(HostAddress::Dhcp, |(address, _)| address),
        gateway: gateway.map(|(gateway, _)| gateway),
        setup: setup.and_then(|(rate, _)| rate),
        serve: serve.as_ref().map(|(range, _)| *range),
        ping: ping.map(|(target, _)| target),
        at,
        ..table.made()
    };
    let last = |first: Ipv4Addr| first.to_bits().checked_add(group.count - 1);
    match (group.ipv4, &serve) {
        (HostAddress::Dhcp, Some((_, place))) => {
            let hint = r#"try ipv4 = "10.0.0.1/16""#.to_owned();
            cx.report(place, "needs a host with a static address", &[hint]);
        }
        (HostAddress::Static { .. }, Some((_, place))) if group.count > 1 => {
            cx.report(place, "needs a single host", &["try count = 1".to_owned()]);
        }
        (HostAddress::Static { first, .. }, _) if last(first).is_none() => {
            cx.report(&place, "has more hosts than there are addresses", &[]);
        }
        _ => {}
    }
    if group.lease.is_some_and(|lease| lease < Nanos::SECOND || lease.0 / Nanos::SECOND.0 > MOST) {
        cx.report(&place, "has a lease below 1 s or above 136 years", &[r#"try "1 h""#.into()]);
    }
    Some(group)
}

/// Longest finite lease, in seconds.
const MOST: u64 = u32::MAX as u64 - 1;
const MAC: &str = r#"try mac = "02:00:00:00:00:01""#;
const ADDRESS: &str = r#"try "dhcp" or "10.0.0.2/16""#;
const GATEWAY: &str = r#"try gateway = "10.0.0.1""#;
const SETUP: &str = r#"try setup = "2000/s" or "max""#;
const RANGE: &str = r#"try serve = "10.0.1.0-10.0.4.255""#;
const PING: &str = r#"try ping = "gateway" or "10.0.0.1""#;

/// The value of a key, and its place.
fn read<T>(
    given: Option<Placed<Located>>,
    cx: &mut Reader<'_>,
    parse: impl Fn(&str) -> Option<T>,
    what: &str,
    hint: &str,
) -> Option<(T, Place)> {
    let Placed { value: Located { text, .. }, place } = given?;
    let value = parse(text.trim());
    let value = cx.must(&place, value, &format!("= {text:?} is not {what}"), hint)?;
    Some((value, place))
}

fn address(text: &str) -> Option<HostAddress> {
    if text == "dhcp" {
        return Some(HostAddress::Dhcp);
    }
    let (first, prefix) = text.split_once('/')?;
    let prefix = prefix.parse().ok().filter(|prefix| (1..=32).contains(prefix))?;
    let first = first.parse().ok().filter(|first: &Ipv4Addr| is_of_a_host(*first))?;
    Some(HostAddress::Static { first, prefix })
}

fn is_of_a_host(address: Ipv4Addr) -> bool {
    let first = address.octets()[0];
    first != 0 && first != 127 && first < 224
}

/// `None` is "max".
fn per_second(text: &str) -> Option<Option<u64>> {
    if text == "max" {
        return Some(None);
    }
    let number = parse_count(number_per_second(text)).ok()?;
    (number > 0).then_some(Some(number))
}

/// The number of a rate: N, N/s, or Npps as for streams.
pub(super) fn number_per_second(text: &str) -> &str {
    text.strip_suffix("/s").or_else(|| text.strip_suffix("pps")).unwrap_or(text).trim()
}

fn range(text: &str) -> Option<(Ipv4Addr, Ipv4Addr)> {
    let (first, last) = text.split_once('-')?;
    let (first, last): (Ipv4Addr, Ipv4Addr) =
        (first.trim().parse().ok()?, last.trim().parse().ok()?);
    let hosts = is_of_a_host(first) && is_of_a_host(last);
    (hosts && first <= last && last.to_bits() - first.to_bits() < 1 << 24).then_some((first, last))
}

fn target(text: &str) -> Option<PingTarget> {
    match text {
        "gateway" => Some(PingTarget::Gateway),
        _ => text.parse().ok().map(PingTarget::Address),
    }
}
