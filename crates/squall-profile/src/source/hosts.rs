//! Hosts as text: the table, and the values of [`crate::HostGroup`] that are made from it.

use std::net::Ipv4Addr;

use serde_json::{Value as Json, json};
use squall_units::{MacAddr, Nanos, parse_count};

use super::{
    flows::{OneOrMore, two_ports},
    node::{Node, Value},
    read::{Bounded, Place, Placed, Read, Reader, table, words},
};
use crate::{
    ArpUse, At, DhcpUse, HostAddress, HostFault, HostFaults, HostOption, Located, PingTarget, Port,
    emit::Emit,
};

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
        /// The address that the first client asks for.
        requested: Option<Ipv4Addr> = None,
        options: Vec<HostOption> = Vec::new(),
        /// Address of the relay agent.
        relay: Option<Ipv4Addr> = None,
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
        /// Longest time between two messages of a client without an answer. Default 64 s.
        retry_max: Nanos => Option<Nanos>,
        /// Times that a client begins again, after a refusal or a conflict, before it fails.
        /// Default 3.
        restarts: Bounded<0, 255> => u64 = 3,
        /// Pause of a client after it declined an address. Default 10 s.
        decline_wait: Nanos => Option<Nanos>,
        /// Shortest time between two requests to extend a lease (RFC 2131 section 4.4.5). Default
        /// 60 s.
        renew_wait: Nanos => Option<Nanos>,
        /// How clients of DHCP begin: "discover" an address, "reboot" with the address that they
        /// had before (`requested`), or "inform", with static addresses, to ask for the other
        /// parameters (RFC 2131 section 4.4). Default "discover".
        dhcp: DhcpUse => DhcpUse,
        /// The address that the first client asks for; that of each further one is the next.
        /// Default: none.
        requested: Located,
        /// true: clients ask for an exchange of two messages, and a server agrees to it (RFC 4039).
        /// Default false.
        rapid_commit: bool => bool,
        /// true: clients ask for answers by broadcast. Default false.
        broadcast: bool => bool,
        /// Further options of clients, or of a server: "CODE=TEXT", or "CODE=0x..." with
        /// hexadecimal digits. `{n}` is the number of the host, `{mac}` its MAC address:
        /// ["12=pc{n}", "61=0x01{mac}"]. Default: none.
        options: OneOrMore,
        /// The clients have a relay agent with the given address, which the group emulates
        /// (giaddr). Its MAC address is the one before that of the first host. Default: none.
        relay: Located,
        /// Circuit identifier that the agent adds (option 82, RFC 3046), with `{n}` and `{mac}` as
        /// in `options`. Without `relay`, the agent is a switch. Default: none.
        circuit: String => Option<String>,
        /// Remote identifier that the agent adds. Default: none.
        remote: String => Option<String>,
        /// The host, which has a static address, is a DHCP server, and gives these addresses:
        /// "10.0.1.0-10.0.4.255".
        serve: Located,
        /// Length of the leases that it gives, or that clients ask for. Default 1 h of a server; clients
        /// ask for none.
        lease: Nanos => Option<Nanos>,
        /// Timers and numbers of the detection of conflicts (RFC 5227 section 1.1). The first probe
        /// leaves within this time. Default 1 s.
        probe_wait: Nanos => Option<Nanos>,
        /// Probes with `arp = "probe"`. Default 3.
        probes: Bounded<1, 255> => u64 = 3,
        /// Shortest and longest time between two probes. Default 1 s and 2 s.
        probe_min: Nanos => Option<Nanos>,
        probe_max: Nanos => Option<Nanos>,
        /// Time from the last probe to the use of the address. Default 2 s.
        announce_wait: Nanos => Option<Nanos>,
        /// Announcements of an address (gratuitous ARP). Default 2.
        announcements: Bounded<0, 255> => u64 = 2,
        /// Time between two announcements. Default 2 s.
        announce_interval: Nanos => Option<Nanos>,
        /// A host gives its address up if two conflicts are less than this apart. Default 10 s.
        defend_interval: Nanos => Option<Nanos>,
        /// The mistakes of the hosts, each by its name ([faults](../guide/hosts.md#faults)).
        /// Default: nothing.
        faults: HostFaults => HostFaults,
        /// Delay of the answers of hosts with the fault "late-answer". Default 1 s.
        late: Nanos => Nanos = Nanos::SECOND,
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

words!(
    DhcpUse,
    "a known begin of DHCP":
    "discover" => Discover,
    "reboot" => Reboot,
    "inform" => Inform,
);

words!(
    HostFault,
    "a known fault":
    "duplicate-address" => DuplicateAddress,
    "keep-address" => KeepAddress,
    "no-arp" => NoArp,
    "spoof-gateway" => SpoofGateway,
    "spoof-mac" => SpoofMac,
    "spoof-address" => SpoofAddress,
    "late-answer" => LateAnswer,
    "flood" => Flood,
    "ignore-offer" => IgnoreOffer,
    "ignore-nak" => IgnoreNak,
    "decline" => Decline,
    "keep-lease" => KeepLease,
    "bad-checksum" => BadChecksum,
    "bad-options" => BadOptions,
);

impl Read for HostFaults {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        match node.value {
            Value::List(_) => Vec::read(node, cx).map(Self),
            _ => HostFault::read(node, cx).map(|one| Self(vec![one])),
        }
    }
    fn schema() -> Json {
        let one = HostFault::schema();
        json!({ "title": "HostFaults", "anyOf": [one, { "type": "array", "items": one }] })
    }
}

impl Emit for HostFaults {
    fn emit(&self) -> Option<Json> {
        Some(json!(self.0.iter().map(|fault| fault.word()).collect::<Vec<_>>()))
    }
}

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
    let requested = read(table.requested.take(), cx, host, "the address of a host", REQUESTED);
    let relay = read(table.relay.take(), cx, host, "the address of a host", RELAY);
    let options = table.options.take().map(|texts| {
        let one = |Located { text, .. }: Located| {
            let what = format!("= {text:?} is not an option");
            cx.must(&texts.place, option(&text), &what, OPTION)
        };
        texts.value.0.into_iter().filter_map(one).collect()
    });
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
        requested: requested.map(|(requested, _)| requested),
        options: options.unwrap_or_default(),
        relay: relay.map(|(relay, _)| relay),
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
    let mut needs = |is_wrong: bool, what: &str, hint: &str| {
        if is_wrong {
            cx.report(&place, what, &[hint.to_owned()]);
        }
    };
    let is_dhcp = group.ipv4 == HostAddress::Dhcp;
    let of_static = "has hosts without static addresses, which";
    needs(
        group.dhcp == DhcpUse::Reboot && group.requested.is_none(),
        "has hosts that reboot without an address that they had",
        REQUESTED,
    );
    needs(
        group.dhcp == DhcpUse::Inform && is_dhcp,
        &format!("{of_static} dhcp = \"inform\" needs"),
        ADDRESS,
    );
    needs(
        group.dhcp == DhcpUse::Inform && group.serve.is_some(),
        "has a DHCP server that asks for its own parameters",
        r#"try dhcp = "discover""#,
    );
    needs(
        group.dhcp != DhcpUse::Inform && !is_dhcp && group.requested.is_some(),
        "has hosts with static addresses, which request none",
        r#"try ipv4 = "dhcp""#,
    );
    needs(
        group.faults.0.contains(&HostFault::DuplicateAddress) && is_dhcp,
        &format!("{of_static} the fault \"duplicate-address\" needs"),
        ADDRESS,
    );
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
const REQUESTED: &str = r#"try requested = "10.0.1.0""#;
const RELAY: &str = r#"try relay = "10.0.0.2""#;
const OPTION: &str = r#"try "12=pc{n}" or "61=0x01{mac}""#;
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

fn host(text: &str) -> Option<Ipv4Addr> {
    text.parse().ok().filter(|address| is_of_a_host(*address))
}

/// Options that the messages themselves have.
const OWN: [u8; 12] = [0, 50, 51, 52, 53, 54, 55, 58, 59, 80, 82, 255];

fn option(text: &str) -> Option<HostOption> {
    let (code, value) = text.split_once('=')?;
    let code = code.trim().parse().ok().filter(|code| !OWN.contains(code))?;
    let Some(digits) = value.strip_prefix("0x") else {
        return (value.len() <= 255).then(|| HostOption::Text(code, value.to_owned()));
    };
    let octets = digits.replace("{mac}", "000000000000");
    let is_hex = octets.len().is_multiple_of(2) && octets.len() <= 510;
    let is_split = digits.split("{mac}").all(|part| part.len().is_multiple_of(2));
    let fits = is_hex && is_split && octets.bytes().all(|digit| digit.is_ascii_hexdigit());
    fits.then(|| HostOption::Hex(code, digits.to_owned()))
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
