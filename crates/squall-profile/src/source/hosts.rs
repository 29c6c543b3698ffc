//! Hosts as text: the table, and the values of [`crate::HostGroup`] that are made from it.

use std::net::{Ipv4Addr, Ipv6Addr};

use squall_units::{MacAddr, Nanos, parse_count};

use super::{
    flows::two_ports,
    read::{Bounded, Place, Placed, Reader, table, words},
};
use crate::{ArpUse, At, HostAddress, HostIpv6, InterfaceId, Located, PingTarget, Port};

table! {
    /// Hosts on a port, all of one kind. They answer ARP, neighbor solicitations and echo requests
    /// for their addresses, which are static or given by DHCP, or have the prefix of a router.
    HostGroupTable makes
    /// Hosts on a port, all of one kind.
    HostGroup {
        name: String = String::new(),
        /// Index into [`crate::Profile::ports`].
        port: usize = 0,
        /// `None`: 02:53:NN:00:00:01, where NN is the number of the group.
        mac: Option<MacAddr> = None,
        ipv4: HostAddress = HostAddress::Dhcp,
        /// `None`: hosts have no IPv6.
        ipv6: Option<HostIpv6> = None,
        gateway: Option<Ipv4Addr> = None,
        gateway6: Option<Ipv6Addr> = None,
        /// Hosts that start per second; `None`: all at once.
        setup: Option<u64> = None,
        /// First and last address that the DHCP server gives.
        serve: Option<(Ipv4Addr, Ipv4Addr)> = None,
        /// Prefix and length that the host advertises as a router.
        advertise: Option<(Ipv6Addr, u8)> = None,
        /// First and last address that the DHCPv6 server gives.
        serve6: Option<(Ipv6Addr, Ipv6Addr)> = None,
        /// Prefix from which the server delegates prefixes, its length, and theirs.
        delegate: Option<(Ipv6Addr, u8, u8)> = None,
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
        /// "dhcp", "none", or the first host's address with the length of its prefix: "10.0.0.2/16";
        /// that of each further one is the next. Default "dhcp"; "none" if ipv6 is given.
        ipv4: Located,
        /// "slaac": addresses with the prefixes of routers (RFC 4862). "stateless": also other
        /// configuration by DHCPv6. "dhcp": an address by DHCPv6 (RFC 9915). Or the first host's
        /// address with the length of its prefix: "2001:db8::2/64". Default: no IPv6.
        ipv6: Located,
        /// The router of hosts with static addresses; a server gives it to its clients.
        gateway: Located,
        /// The router for IPv6. Default: a router that advertises itself.
        gateway6: Located,
        /// Last 64 bits of IPv6 addresses: "eui64" (made from the MAC address), or "stable" (random,
        /// but the same in each run; RFC 7217). Default "eui64".
        interface_id: InterfaceId => InterfaceId,
        /// Solicitations with which a host examines an IPv6 address before its use (RFC 4862); 0: it
        /// is used at once. Default 1.
        dad: Bounded<0, 10> => u64 = 1,
        /// Length of the prefix that clients of DHCPv6 ask for, besides an address; 0: any length.
        /// Default: they ask for none.
        prefix: Bounded<0, 64> => Option<u64>,
        /// true: clients of DHCPv6 ask for leases with two messages instead of four. Default false.
        rapid_commit: bool => bool,
        /// true: clients of DHCPv6 take the first offer, and do not wait a second for better ones.
        /// Default false.
        first_offer: bool => bool,
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
        /// up to 64 s (RFC 2131 section 4.1). Default 4 s; over IPv6 1 s.
        retry: Nanos => Option<Nanos>,
        /// Messages without an answer after which a client of DHCP fails. Default 5.
        tries: Bounded<1, 255> => Option<u64>,
        /// The host, which has a static address, is a DHCP server, and gives these addresses:
        /// "10.0.1.0-10.0.4.255".
        serve: Located,
        /// The host is a router that advertises itself and this prefix: "2001:db8:1::/64".
        advertise: Located,
        /// The host, which has a static IPv6 address, is a DHCPv6 server, and gives these addresses:
        /// "2001:db8::100-2001:db8::ffff".
        serve6: Located,
        /// The server also delegates prefixes: "2001:db8:100::/40-56" are those of 56 bits in one
        /// of 40.
        delegate: Located,
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
    InterfaceId,
    "a known interface identifier":
    "eui64" => Eui64,
    "stable" => Stable,
);

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
        None => ("\"dhcp\", \"none\" or an address with a prefix of 1 to 32 bits", ADDRESS),
    };
    let ipv4 = read(table.ipv4.take(), cx, address, wanted, hint);
    let ipv6 = read(table.ipv6.take(), cx, address6, "a known use of IPv6, or an address", IPV6);
    let gateway6 =
        read(table.gateway6.take(), cx, |text| text.parse().ok(), "an IPv6 address", GATEWAY6);
    let advertise = read(table.advertise.take(), cx, advertised, "a prefix of 64 bits", ADVERTISE);
    let serve6 = read(table.serve6.take(), cx, range6, "a range of IPv6 addresses", RANGE6);
    let delegate = read(table.delegate.take(), cx, delegated, "a prefix and a length", DELEGATE);
    let gateway = read(table.gateway.take(), cx, |text| text.parse().ok(), "an address", GATEWAY);
    let setup = read(table.setup.take(), cx, per_second, "a number per second", SETUP);
    let serve = read(table.serve.take(), cx, range, "a range of addresses", RANGE);
    let ping = read(table.ping.take(), cx, target, "\"gateway\" or an address", PING);
    let name = table.name.take().map(|name| name.value);
    let group = HostGroup {
        name: name.unwrap_or_else(|| format!("hosts {}", number + 1)),
        port: port?,
        mac: mac.map(|(mac, _)| mac),
        ipv4: match (&ipv4, &ipv6) {
            (Some((address, _)), _) => *address,
            (None, Some(_)) => HostAddress::None,
            (None, None) => HostAddress::Dhcp,
        },
        ipv6: ipv6.as_ref().map(|(address, _)| *address),
        gateway: gateway.map(|(gateway, _)| gateway),
        gateway6: gateway6.map(|(gateway, _)| gateway),
        advertise: advertise.as_ref().map(|(prefix, _)| *prefix),
        serve6: serve6.as_ref().map(|(range, _)| *range),
        delegate: delegate.as_ref().map(|(prefix, _)| *prefix),
        setup: setup.and_then(|(rate, _)| rate),
        serve: serve.as_ref().map(|(range, _)| *range),
        ping: ping.map(|(target, _)| target),
        at,
        ..table.made()
    };
    let last = |first: Ipv4Addr| first.to_bits().checked_add(group.count - 1);
    match (group.ipv4, &serve) {
        (HostAddress::Dhcp | HostAddress::None, Some((_, place))) => {
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
    let router = advertise.as_ref().map(|(_, place)| place);
    let addresses = serve6.as_ref().map(|(_, place)| place);
    let server = addresses.or(delegate.as_ref().map(|(_, place)| place));
    check_ipv6(&group, (router, server), &place, cx);
    if group.lease.is_some_and(|lease| lease < Nanos::SECOND || lease.0 / Nanos::SECOND.0 > MOST) {
        cx.report(&place, "has a lease below 1 s or above 136 years", &[r#"try "1 h""#.into()]);
    }
    Some(group)
}

/// Routers and servers are single hosts, and servers have a static address.
fn check_ipv6(
    group: &HostGroup,
    (router, server): (Option<&Place>, Option<&Place>),
    place: &Place,
    cx: &mut Reader<'_>,
) {
    let is_static = matches!(group.ipv6, Some(HostIpv6::Static { .. }));
    // A router also works with its link-local address alone.
    let misplaced = server.filter(|_| !is_static).or(router.filter(|_| group.ipv6.is_none()));
    if let Some(place) = misplaced {
        let hint = r#"try ipv6 = "2001:db8::1/64""#.to_owned();
        cx.report(place, "needs a host with a static IPv6 address", &[hint]);
    }
    if let Some(place) = server.or(router)
        && group.count > 1
    {
        cx.report(place, "needs a single host", &["try count = 1".to_owned()]);
    }
    if let Some(HostIpv6::Static { first, .. }) = group.ipv6
        && first.to_bits().checked_add(u128::from(group.count) - 1).is_none()
    {
        cx.report(place, "has more hosts than there are IPv6 addresses", &[]);
    }
}

/// Longest finite lease, in seconds.
const MOST: u64 = u32::MAX as u64 - 1;
const MAC: &str = r#"try mac = "02:00:00:00:00:01""#;
const ADDRESS: &str = r#"try "dhcp" or "10.0.0.2/16""#;
const GATEWAY: &str = r#"try gateway = "10.0.0.1""#;
const SETUP: &str = r#"try setup = "2000/s" or "max""#;
const RANGE: &str = r#"try serve = "10.0.1.0-10.0.4.255""#;
const PING: &str = r#"try ping = "gateway", "10.0.0.1" or "2001:db8::1""#;
const IPV6: &str = r#"try "slaac", "stateless", "dhcp" or "2001:db8::2/64""#;
const GATEWAY6: &str = r#"try gateway6 = "2001:db8::1" or "fe80::1""#;
const ADVERTISE: &str = r#"try advertise = "2001:db8:1::/64""#;
const RANGE6: &str = r#"try serve6 = "2001:db8::100-2001:db8::ffff""#;
const DELEGATE: &str = r#"try delegate = "2001:db8:100::/40-56""#;

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
    if text == "none" {
        return Some(HostAddress::None);
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

fn address6(text: &str) -> Option<HostIpv6> {
    match text {
        "slaac" => return Some(HostIpv6::Slaac),
        "stateless" => return Some(HostIpv6::Stateless),
        "dhcp" => return Some(HostIpv6::Dhcp),
        _ => {}
    }
    let (first, prefix) = prefix6(text)?;
    is_of_a_host6(first).then_some(HostIpv6::Static { first, prefix })
}

fn is_of_a_host6(address: Ipv6Addr) -> bool {
    !address.is_unspecified() && !address.is_loopback() && !address.is_multicast()
}

fn prefix6(text: &str) -> Option<(Ipv6Addr, u8)> {
    let (first, length) = text.split_once('/')?;
    let length = length.parse().ok().filter(|length| (1..=128).contains(length))?;
    Some((first.parse().ok()?, length))
}

fn advertised(text: &str) -> Option<(Ipv6Addr, u8)> {
    prefix6(text).filter(|(prefix, length)| *length == 64 && is_of_a_host6(*prefix))
}

fn range6(text: &str) -> Option<(Ipv6Addr, Ipv6Addr)> {
    let (first, last) = text.split_once('-')?;
    let (first, last): (Ipv6Addr, Ipv6Addr) =
        (first.trim().parse().ok()?, last.trim().parse().ok()?);
    let hosts = is_of_a_host6(first) && is_of_a_host6(last);
    (hosts && first <= last && last.to_bits() - first.to_bits() < 1 << 24).then_some((first, last))
}

/// At most 2^24 prefixes.
fn delegated(text: &str) -> Option<(Ipv6Addr, u8, u8)> {
    let (pool, length) = text.rsplit_once('-')?;
    let (prefix, pool) = prefix6(pool)?;
    let length: u8 = length.parse().ok().filter(|length| *length <= 64)?;
    let fits = is_of_a_host6(prefix) && pool <= length && length - pool <= 24;
    fits.then_some((prefix, pool, length))
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
