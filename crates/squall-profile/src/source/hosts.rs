//! Hosts as text: the table, and the values of [`crate::HostGroup`] that are made from it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use squall_units::{MacAddr, Nanos, parse_count};

use super::{
    flows::{OneOrMore, two_ports},
    read::{Bounded, Place, Placed, Reader, table, words},
};
use crate::{ArpUse, At, AuthMethod, HostAddress, Located, PingTarget, Port};

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
        /// First multicast groups of ranges, and their numbers of groups.
        join: Vec<(IpAddr, u32)> = Vec::new(),
        /// Joins per second; `None`: as soon as hosts can.
        join_rate: Option<u64> = None,
        sources: Vec<IpAddr> = Vec::new(),
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
        /// each further one is the next. "none": hosts have no IPv4. Default "dhcp".
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
        /// Multicast groups that hosts join as soon as they have an address: "239.1.0.1", or a range,
        /// "239.1.0.1-239.1.3.255". Those of IPv6 are joined by MLD, from link-local addresses.
        join: OneOrMore,
        /// Groups that each host joins: the first host the first ones, the next host the following
        /// ones, and so on in turn. Default: all.
        join_each: Bounded<1, 1_000_000> => Option<u64>,
        /// Joins per second of the group: "1000/s", or "max". Default "max".
        join_rate: Located,
        /// Time after which a host leaves a group. Default: at the end, if `release` is true.
        join_time: Nanos => Option<Nanos>,
        /// Sources that hosts want of their groups (versions IGMPv3 and MLDv2). Default: all.
        sources: OneOrMore,
        /// true: hosts want all sources but `sources`. Default false.
        exclude: bool => bool,
        /// Highest version of IGMP that hosts have. Default 3.
        igmp: Bounded<1, 3> => u64 = 3,
        /// Highest version of MLD that hosts have. Default 2.
        mld: Bounded<1, 2> => u64 = 2,
        /// How often hosts send each change of a membership (RFC 3376 section 8.1). Default 2.
        robustness: Bounded<1, 7> => u64 = 2,
        /// Longest interval between these. Default 1 s; IGMPv1, IGMPv2 and MLDv1: 10 s.
        unsolicited: Nanos => Option<Nanos>,
        /// Time without a query of an older version until hosts return to their own (RFC 3376
        /// section 8.12). Default 260 s; IGMPv2 and MLDv1: 400 s.
        older_querier: Nanos => Option<Nanos>,
        /// The host, which has a static address, is a querier of IGMP and MLD, and sends general
        /// queries at this interval, usually "125 s". Default: no querier.
        querier: Nanos => Option<Nanos>,
        /// Time within which hosts answer its general queries. Default 10 s.
        query_response: Nanos => Option<Nanos>,
        /// Time within which hosts answer its queries for a group. Default 1 s.
        last_member: Nanos => Option<Nanos>,
        /// Hosts announce themselves by LLDP at this interval, usually "30 s", and list their
        /// neighbors. Default: no LLDP.
        lldp: Nanos => Option<Nanos>,
        /// Intervals for which neighbors keep an announcement. Default 4.
        lldp_hold: Bounded<1, 100> => u64 = 4,
        /// Announcements at the start that are 1 s apart. Default 4.
        lldp_fast: Bounded<1, 8> => u64 = 4,
        /// System name in announcements; "{}" is the number of the host. Default: none.
        lldp_name: String => Option<String>,
        /// Hosts authenticate by 802.1X before they send anything else: "md5" (EAP-MD5). Default
        /// "none".
        auth: AuthMethod => AuthMethod,
        /// Identity of hosts; "{}" is the number of the host.
        identity: String => Option<String>,
        /// Password of hosts; "{}" is the number of the host.
        password: String => Option<String>,
        /// Time between EAPOL-Start frames without an answer. Default 30 s.
        auth_start: Nanos => Option<Nanos>,
        /// EAPOL-Start frames without an answer after which a host fails. Default 3.
        auth_starts: Bounded<1, 255> => Option<u64>,
        /// Longest time to wait for the authenticator. Default 30 s.
        auth_wait: Nanos => Option<Nanos>,
        /// Pause after a failed authentication. Default 60 s.
        auth_held: Nanos => Option<Nanos>,
        /// Failed authentications in a row after which a host gives up. Default 3.
        auth_tries: Bounded<1, 255> => Option<u64>,
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

words!(
    AuthMethod,
    "a method of authentication":
    "none" => None,
    "md5" => Md5,
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
    let ipv4 = read(table.ipv4.take(), cx, address, "\"dhcp\" or an address", ADDRESS);
    let gateway = read(table.gateway.take(), cx, |text| text.parse().ok(), "an address", GATEWAY);
    let setup = read(table.setup.take(), cx, per_second, "a number per second", SETUP);
    let serve = read(table.serve.take(), cx, range, "a range of addresses", RANGE);
    let ping = read(table.ping.take(), cx, target, "\"gateway\" or an address", PING);
    let join_rate = read(table.join_rate.take(), cx, per_second, "a number per second", SETUP);
    let join = read_all(table.join.take(), cx, groups, "a multicast group, or a range", JOIN);
    let sources = read_all(table.sources.take(), cx, source, "the address of a host", SOURCE);
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
        join,
        join_rate: join_rate.and_then(|(rate, _)| rate),
        sources,
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
    check_services(&group, &place, cx);
    if group.lease.is_some_and(|lease| lease < Nanos::SECOND || lease.0 / Nanos::SECOND.0 > MOST) {
        cx.report(&place, "has a lease below 1 s or above 136 years", &[r#"try "1 h""#.into()]);
    }
    Some(group)
}

fn check_services(group: &HostGroup, place: &Place, cx: &mut Reader<'_>) {
    let total: u64 = group.join.iter().map(|(_, count)| u64::from(*count)).sum();
    let memberships = u64::from(group.count) * group.join_each.unwrap_or(total).min(total);
    if total > MOST_GROUPS || memberships > MOST_MEMBERSHIPS {
        let what = format!(
            "joins {total} groups, with {memberships} memberships; at most {MOST_GROUPS} and \
             {MOST_MEMBERSHIPS} are possible"
        );
        cx.report(place, &what, &["try join_each = 1".to_owned()]);
    }
    if group.sources.len() > MOST_SOURCES {
        cx.report(place, &format!("has more than {MOST_SOURCES} sources"), &[]);
    }
    let all = group.igmp < 3 && group.join.iter().any(|(group, _)| group.is_ipv4())
        || group.mld < 2 && group.join.iter().any(|(group, _)| group.is_ipv6());
    if all && !group.sources.is_empty() {
        let hint = "try igmp = 3 and mld = 2".to_owned();
        cx.report(place, "has sources, which older versions of IGMP and MLD do not have", &[hint]);
    }
    if group.join.is_empty() && (group.join_rate.is_some() || group.join_time.is_some()) {
        cx.report(place, "has settings of memberships, but joins no group", &[JOIN.into()]);
    }
    if group.lldp == Some(Nanos::ZERO) {
        cx.report(place, "has an interval of LLDP of 0", &[r#"try lldp = "30 s""#.into()]);
    }
    if group.querier.is_some_and(|interval| interval < Nanos::SECOND) {
        let hint = r#"try querier = "125 s""#.to_owned();
        cx.report(place, "has an interval of queries below 1 s", &[hint]);
    }
    let fixed = matches!(group.ipv4, HostAddress::Static { .. });
    if group.querier.is_some() && (group.count > 1 || !fixed) {
        let hint = r#"try count = 1 and ipv4 = "10.0.0.1/16""#.to_owned();
        cx.report(place, "is a querier, which needs a single host with a static address", &[hint]);
    }
    if group.auth != AuthMethod::None && (group.identity.is_none() || group.password.is_none()) {
        let hint = r#"try identity = "user{}" and password = "secret""#.to_owned();
        cx.report(place, "has auth, but no identity or no password", &[hint]);
    }
    let texts = [&group.identity, &group.password, &group.lldp_name];
    if texts.iter().any(|text| text.as_ref().is_some_and(|text| text.len() > MOST_TEXT)) {
        let what = format!("has a text of more than {MOST_TEXT} octets");
        cx.report(place, &what, &[]);
    }
}

/// Multicast groups, and memberships of all hosts, of one table: each takes about 200 octets.
const MOST_GROUPS: u64 = 1_000_000;
const MOST_MEMBERSHIPS: u64 = 4_000_000;
/// Sources whose record fits in a frame, even of IPv6.
const MOST_SOURCES: usize = 64;
/// Octets of a name.
const MOST_TEXT: usize = 200;
/// Longest finite lease, in seconds.
const MOST: u64 = u32::MAX as u64 - 1;
const MAC: &str = r#"try mac = "02:00:00:00:00:01""#;
const ADDRESS: &str = r#"try "dhcp" or "10.0.0.2/16""#;
const GATEWAY: &str = r#"try gateway = "10.0.0.1""#;
const SETUP: &str = r#"try setup = "2000/s" or "max""#;
const RANGE: &str = r#"try serve = "10.0.1.0-10.0.4.255""#;
const JOIN: &str = r#"try join = "239.1.0.1" or "239.1.0.1-239.1.3.255""#;
const SOURCE: &str = r#"try sources = ["10.0.0.1"]"#;
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
    match text {
        "dhcp" => return Some(HostAddress::Dhcp),
        "none" => return Some(HostAddress::None),
        _ => {}
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
    let number = parse_count(text.strip_suffix("/s").unwrap_or(text).trim()).ok()?;
    (number > 0).then_some(Some(number))
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

/// The values of a key that has one or more texts.
fn read_all<T>(
    given: Option<Placed<OneOrMore>>,
    cx: &mut Reader<'_>,
    parse: impl Fn(&str) -> Option<T>,
    what: &str,
    hint: &str,
) -> Vec<T> {
    let Some(Placed { value: OneOrMore(texts), place }) = given else { return Vec::new() };
    let mut value = |Located { text, .. }: Located| {
        let value = parse(text.trim());
        cx.must(&place, value, &format!("= {text:?} is not {what}"), hint)
    };
    texts.into_iter().filter_map(&mut value).collect()
}

/// The first multicast group of a range, and the number of groups in it.
fn groups(text: &str) -> Option<(IpAddr, u32)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    let more = match (first, last) {
        (IpAddr::V4(first), IpAddr::V4(last)) => {
            u128::from(last.to_bits()).checked_sub(first.to_bits().into())?
        }
        (IpAddr::V6(first), IpAddr::V6(last)) => last.to_bits().checked_sub(first.to_bits())?,
        _ => return None,
    };
    let count = u32::try_from(more + 1).ok()?;
    (is_group(first) && is_group(last)).then_some((first, count))
}

/// Whether hosts can join a group: all are members of that of all hosts, and groups of one
/// interface have no frames.
fn is_group(address: IpAddr) -> bool {
    let all = [
        IpAddr::V4(Ipv4Addr::new(224, 0, 0, 1)),
        Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1).into(),
    ];
    let on_links = match address {
        IpAddr::V4(_) => true,
        IpAddr::V6(address) => address.octets()[1] & 15 > 1,
    };
    address.is_multicast() && on_links && !all.contains(&address)
}

fn source(text: &str) -> Option<IpAddr> {
    text.parse().ok().filter(|source: &IpAddr| !source.is_multicast() && !source.is_unspecified())
}
