//! Chooses the addresses and ports that rules allow.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use squall_rules::{Addresses, Application, End, Ends, Numbers, PacketTest, Protocol, Rule};

use super::plan;
use crate::wire::Endpoints;

/// The hosts to use if the rules leave a choice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hosts {
    /// Replaces the inside and outside ranges of [`endpoints_of`].
    pub inside: Option<Addresses>,
    pub outside: Option<Addresses>,
    /// IP version, 4 or 6.
    pub family: Option<u8>,
}

/// Addresses for attack `number`. Each attack gets its own client and server if the rules of the
/// flow allow enough addresses. Unless `hosts` has others, inside addresses are in 10.0.0.0/8,
/// 172.16.0.0/12 and 192.168.0.0/16 (RFC 1918) or fd00::/8, and outside addresses in 198.18.0.0/15
/// (RFC 2544) or 2001:2::/48 (RFC 5180). `None` if a set is empty, or the ends have no IP version
/// in common.
pub fn endpoints_of(rules: &[&Rule], number: u64, hosts: &Hosts) -> Option<Endpoints> {
    let mut clients = Addresses::any();
    let mut servers = Addresses::any();
    let mut family = hosts.family;
    for rule in rules {
        let (client, server) = sides(rule);
        clients = clients.intersection(&client.addresses);
        servers = servers.intersection(&server.addresses);
        match rule.header.protocol {
            Protocol::Ip6 | Protocol::Icmp6 => family = Some(6),
            Protocol::Ip4 => family = Some(4),
            _ => {}
        }
    }
    // Types and codes in `icmp` rules are those of ICMPv4. The same numbers have other meanings in
    // ICMPv6.
    if rules.iter().any(|rule| requires_icmp4(rule))
        && !clients.v4.is_empty()
        && !servers.v4.is_empty()
    {
        family = Some(4);
    }
    let v4 = !clients.v4.is_empty() && !servers.v4.is_empty();
    let v6 = !clients.v6.is_empty() && !servers.v6.is_empty();
    let (client, server) = match family {
        Some(6) if v6 => (
            v6_of(&clients, End::Client, number, hosts)?,
            v6_of(&servers, End::Server, number, hosts)?,
        ),
        // The IP version in `hosts` is only a preference; rules take precedence.
        Some(6) if hosts.family != Some(6) => return None,
        _ if v4 => (
            v4_of(&clients, End::Client, number, hosts)?,
            v4_of(&servers, End::Server, number, hosts)?,
        ),
        Some(4) => return None,
        _ if v6 => (
            v6_of(&clients, End::Client, number, hosts)?,
            v6_of(&servers, End::Server, number, hosts)?,
        ),
        _ => return None,
    };
    let tail = number.to_be_bytes();
    Some(Endpoints {
        client,
        server,
        // Locally administered.
        client_mac: [0x02, 0x51, 0x0a, tail[5], tail[6], tail[7]],
        server_mac: [0x02, 0x51, 0x0b, tail[5], tail[6], tail[7]],
    })
}

/// Whether the rule tests for types that exist only in ICMPv4. ICMPv6 has errors below 128 and all
/// other types above (RFC 4443 §2.1).
fn requires_icmp4(rule: &Rule) -> bool {
    let of_both = Numbers::range(128..=255);
    rule.header.protocol == Protocol::Icmp
        && rule.packet.iter().any(|test| match &test.is {
            PacketTest::IcmpType(numbers) => numbers.intersection(&of_both).is_empty(),
            PacketTest::IcmpCode(_) | PacketTest::IcmpId(_) | PacketTest::IcmpSequence(_) => true,
            _ => false,
        })
}

/// Client and server, according to the rule's header.
pub(crate) fn sides(rule: &Rule) -> (&Ends, &Ends) {
    match plan::sender(rule) {
        End::Client => (&rule.header.source, &rule.header.destination),
        End::Server => (&rule.header.destination, &rule.header.source),
    }
}

/// Inside addresses (RFC 1918) by [`End`]. Clients and servers have disjoint pools.
const V4_POOLS: [[(u32, u32); 3]; 2] = [
    [(0x0a01_0000, 0x0a7f_ffff), (0xc0a8_0000, 0xc0a8_7fff), (0xac10_0000, 0xac17_ffff)],
    [(0x0a81_0000, 0x0aff_ffff), (0xc0a8_8000, 0xc0a8_ffff), (0xac18_0000, 0xac1f_ffff)],
];
/// Outside addresses (198.18.0.0/15, RFC 2544) by [`End`].
const V4_OUTSIDE: [(u32, u32); 2] = [(0xc612_0000, 0xc612_ffff), (0xc613_0000, 0xc613_ffff)];

fn v4_of(set: &Addresses, end: End, number: u64, hosts: &Hosts) -> Option<IpAddr> {
    let pools = |given: &Option<Addresses>, usual: &[(u32, u32)]| -> Vec<Numbers> {
        match given {
            Some(given) => vec![given.v4.clone()],
            None => usual
                .iter()
                .map(|&(first, last)| Numbers::range(first.into()..=last.into()))
                .collect(),
        }
    };
    let inside = pools(&hosts.inside, &V4_POOLS[end as usize]);
    let outside = pools(&hosts.outside, &[V4_OUTSIDE[end as usize]]);
    // If the server has no constraints, put it outside, which most rules expect.
    let order: Vec<Numbers> = match end {
        End::Server => outside.into_iter().chain(inside).collect(),
        End::Client => inside.into_iter().chain(outside).collect(),
    };
    let named =
        order.into_iter().map(|pool| pool.intersection(&set.v4)).find(|pool| !pool.is_empty());
    let unicast = Numbers::range(0x0100_0000..=0xdfff_ffff)
        .without(&Numbers::range(0x7f00_0000..=0x7fff_ffff));
    let rest = || {
        [set.v4.intersection(&unicast), set.v4.clone()].into_iter().find(|pool| !pool.is_empty())
    };
    let chosen = named.or_else(rest)?;
    // Hosts 1 to 254 of each /24, to avoid network and broadcast addresses.
    let wanted = number / 254 * 256 + 1 + number % 254;
    let count: u64 = chosen.ranges().map(|range| range.end() - range.start() + 1).sum();
    let nth = if count >= 256 { wanted % count } else { number % count };
    nth_of(
        chosen.ranges().map(|range| (u128::from(*range.start()), u128::from(*range.end()))),
        nth.into(),
    )
    .map(|address| Ipv4Addr::from_bits(address as u32).into())
}

fn v6_of(set: &Addresses, end: End, number: u64, hosts: &Hosts) -> Option<IpAddr> {
    let usual = |prefix: u128| {
        let first = prefix << 64 | u128::from(end as u8) << 64;
        Addresses::range(
            Ipv6Addr::from_bits(first + 1).into(),
            Ipv6Addr::from_bits(first + u128::from(u64::MAX)).into(),
        )
    };
    let inside = hosts.inside.clone().unwrap_or_else(|| usual(0xfd51_7561_6c6c_0000));
    let outside = hosts.outside.clone().unwrap_or_else(|| usual(0x2001_0002_0000_0000));
    let order = if end == End::Server { [outside, inside] } else { [inside, outside] };
    let named = order.iter().map(|pool| pool.intersection(set)).find(|pool| !pool.v6.is_empty());
    let chosen = named.unwrap_or_else(|| set.clone());
    let count = chosen
        .v6
        .iter()
        .fold(0_u128, |sum, &(first, last)| sum.saturating_add((last - first).saturating_add(1)));
    if count == 0 {
        return None;
    }
    nth_of(chosen.v6.iter().copied(), u128::from(number) % count)
        .map(|address| Ipv6Addr::from_bits(address).into())
}

/// The `nth` number within ranges.
fn nth_of(ranges: impl Iterator<Item = (u128, u128)>, mut nth: u128) -> Option<u128> {
    for (first, last) in ranges {
        if nth <= last - first {
            return Some(first + nth);
        }
        nth -= last - first + 1;
    }
    None
}

/// Client and server ports that fit all `rules` and the protocol.
pub(super) fn ports(
    rules: &[&Rule],
    application: Option<Application>,
    seed: u64,
) -> Option<(u16, u16)> {
    let all = Numbers::range(0..=65_535);
    let (mut clients, mut servers) = (all.clone(), all.clone());
    for rule in rules {
        let (client, server) = sides(rule);
        clients = clients.intersection(&client.ports);
        servers = servers.intersection(&server.ports);
    }
    let server = usual_port(application)
        .into_iter()
        .find(|&port| servers.contains(port.into()))
        .map(u64::from)
        .or_else(|| quiet(&servers, 20_100 + seed % 4_000))?;
    let client = quiet(&clients, 32_768 + seed % 16_000)?;
    Some((u16::try_from(client).ok()?, u16::try_from(server).ok()?))
}

/// A port in the set on which engines expect no protocol, preferably at or above `preferred`.
fn quiet(set: &Numbers, preferred: u64) -> Option<u64> {
    /// Ports that Suricata probes for a protocol regardless of patterns.
    const PROBED: [u64; 26] = [
        20, 21, 22, 25, 53, 67, 68, 69, 80, 88, 110, 111, 123, 135, 137, 139, 143, 161, 162, 443,
        445, 502, 2049, 5060, 20_000, 44_818,
    ];
    let free = set
        .without(&PROBED.iter().fold(Numbers::none(), |all, &port| all.union(&Numbers::one(port))))
        .without(&Numbers::one(0));
    free.at_least(preferred)
        .filter(|&port| port <= 65_535)
        .or(free.at_least(1_024))
        .or(free.first())
        .or(set.at_least(1))
        .or(set.first())
}

/// Ports on which engines detect the protocol, the usual one first.
fn usual_port(application: Option<Application>) -> Vec<u16> {
    use Application::*;
    match application {
        None => vec![],
        Some(Http | Http1 | Http2 | WebSocket) => vec![80, 8080, 8000],
        Some(Doh2) => vec![443],
        Some(Dns) => vec![53],
        Some(Mdns) => vec![5353],
        Some(Tls) => vec![443],
        Some(Ssh) => vec![22],
        Some(Ftp) => vec![21],
        Some(FtpData) => vec![20],
        Some(Smtp) => vec![25, 587],
        Some(Pop3) => vec![110],
        Some(Imap) => vec![143],
        Some(Smb) => vec![445, 139],
        Some(DceRpc) => vec![135],
        Some(Sip | Sdp) => vec![5060],
        Some(Krb5) => vec![88],
        Some(Snmp) => vec![161],
        Some(Tftp) => vec![69],
        Some(Nfs) => vec![2049],
        Some(Ike) => vec![500],
        Some(Rdp) => vec![3389],
        Some(Rfb) => vec![5900],
        Some(Mqtt) => vec![1883],
        Some(Modbus) => vec![502],
        Some(Dnp3) => vec![20_000],
        Some(Enip) => vec![44_818],
        Some(Ntp) => vec![123],
        Some(Dhcp) => vec![67],
        Some(Telnet) => vec![23],
        Some(Quic) => vec![443],
        Some(BitTorrentDht) => vec![6881],
        Some(Pgsql) => vec![5432],
        Some(Ldap) => vec![389],
        Some(Nntp) => vec![119],
        Some(Irc) => vec![6667],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_port_but_those_that_are_probed_is_quiet() {
        let set = Numbers::one(80).union(&Numbers::one(7_777));
        assert_eq!(quiet(&set, 30_000), Some(7_777));
        assert_eq!(quiet(&Numbers::one(80), 30_000), Some(80));
        assert_eq!(quiet(&Numbers::range(0..=65_535), 30_000), Some(30_000));
        assert_eq!(quiet(&Numbers::none(), 30_000), None);
    }

    #[test]
    fn each_number_has_addresses_of_its_own_and_none_is_a_broadcast() {
        let hosts = Hosts::default();
        let mut seen = std::collections::BTreeSet::new();
        for number in 0..10_000 {
            let address = v4_of(&Addresses::any(), End::Client, number, &hosts).unwrap();
            let IpAddr::V4(v4) = address else { panic!("{address}") };
            assert!(v4.is_private() && !matches!(v4.octets()[3], 0 | 255), "{v4}");
            assert!(seen.insert(v4));
        }
        let one = Addresses::range("192.0.2.7".parse().unwrap(), "192.0.2.7".parse().unwrap());
        assert_eq!(v4_of(&one, End::Server, 12_345, &hosts), Some("192.0.2.7".parse().unwrap()));
        let outside =
            Addresses::range("10.0.0.0".parse().unwrap(), "10.255.255.255".parse().unwrap())
                .complement();
        assert_eq!(
            v4_of(
                &outside
                    .without(&Addresses::range(
                        "192.168.0.0".parse().unwrap(),
                        "192.168.255.255".parse().unwrap()
                    ))
                    .without(&Addresses::range(
                        "172.16.0.0".parse().unwrap(),
                        "172.31.255.255".parse().unwrap()
                    )),
                End::Server,
                0,
                &hosts
            ),
            Some("198.19.0.1".parse().unwrap())
        );
        assert!(
            v6_of(&Addresses::any(), End::Client, 3, &hosts)
                != v6_of(&Addresses::any(), End::Server, 3, &hosts)
        );
    }
}
