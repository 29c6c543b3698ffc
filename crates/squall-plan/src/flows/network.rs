//! Compiles the headers around a side's packets from the text of a profile.

use std::{net::IpAddr, str::FromStr};

use squall_flows::{AddrRange, GTPU_PORT, Interface, InterfaceOf, Network, NextHop, Wrap};
use squall_profile::{ErrorCollector, Located};
use squall_units::MacAddr;

/// `mac` is that of the port, used as the default.
pub fn network(
    spec: &squall_profile::Network,
    mac: MacAddr,
    mistakes: &mut ErrorCollector<'_>,
) -> Network {
    let mut network = Network { mac, cluster: spec.cluster, ..Network::default() };
    network.mtu = spec.mtu.unwrap_or(network.mtu);
    if let Some(text) = &spec.mac {
        network.mac =
            mistakes.parsed(text, "a MAC address", "02:00:00:00:00:01").unwrap_or(network.mac);
    }
    if let Some(text) = &spec.next_hop {
        let hop = mistakes.parsed(text, "a MAC address", "02:00:00:00:00:02");
        network.next_hop = hop.map_or(NextHop::OnLink, NextHop::Mac);
    }
    let (mut v4, mut v6) = (None, None);
    for text in &spec.gateway {
        match mistakes.parsed::<IpAddr>(text, "an address", "10.0.0.1") {
            Some(IpAddr::V4(address)) if v4.is_none() => v4 = Some(address),
            Some(IpAddr::V6(address)) if v6.is_none() => v6 = Some(address),
            Some(_) => mistakes.note(
                text,
                "two gateways of one address family",
                "try at most one IPv4 and one IPv6 gateway",
            ),
            None => {}
        }
    }
    if v4.is_some() || v6.is_some() {
        network.next_hop = NextHop::Gateway { v4, v6 };
    }
    network.wraps = spec.wrap.iter().filter_map(|text| wrap(text, mistakes)).collect();
    for one in &spec.interface {
        let mut mac = |text: &Option<Located>| {
            mistakes.parsed(text.as_ref()?, "a MAC address", "02:00:00:00:00:01")
        };
        let (mac, next_hop) = (mac(&one.mac), mac(&one.next_hop));
        let wraps: Vec<Wrap> = one.wrap.iter().filter_map(|text| wrap(text, mistakes)).collect();
        for (of, texts) in [(InterfaceOf::Side, &one.addresses), (InterfaceOf::Peer, &one.peers)] {
            for text in texts {
                match text.text.parse::<AddrRange>() {
                    Ok(addresses) => {
                        let wraps = wraps.clone();
                        network.interfaces.push(Interface { of, addresses, mac, wraps, next_hop });
                    }
                    Err(error) => mistakes.report(text, &error),
                }
            }
        }
    }
    network
}

const FORMS: &str = "\"vlan 7\", \"vlan 7 priority 3\", \"qinq 100\", \"mpls 1000\", \"mpls 1000 \
                     class 3 ttl 64\", \"gre FROM TO\", \"gre FROM TO key 5\", \"vxlan FROM TO 42 \
                     MAC\", \"gtp-u FROM TO TEID LOCAL-TEID\", \"gtp-u FROM TO TEID any port 5000\"";

fn wrap(spec: &Located, mistakes: &mut ErrorCollector<'_>) -> Option<Wrap> {
    let parsed = parse(&spec.text);
    if parsed.is_none() {
        mistakes.note(
            spec,
            &format!("{:?} is not an encapsulation", spec.text),
            &format!("expected {FORMS}"),
        );
    }
    parsed
}

fn parse(text: &str) -> Option<Wrap> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (kind, rest) = words.split_first()?;
    Some(match (*kind, rest) {
        ("vlan" | "qinq", [id, options @ ..]) => {
            let [priority] = named(options, ["priority"])?;
            Wrap::Vlan {
                id: word(id)?,
                priority: priority.map_or(Some(0), word)?,
                service: *kind == "qinq",
            }
        }
        ("mpls", [label, options @ ..]) => {
            let [class, ttl] = named(options, ["class", "ttl"])?;
            Wrap::Mpls {
                label: word(label)?,
                class: class.map_or(Some(0), word)?,
                ttl: ttl.map_or(Some(64), word)?,
            }
        }
        ("gre", [from, to, options @ ..]) => {
            let [key] = named(options, ["key"])?;
            let key = key.map(|key| word(key).ok_or(())).transpose().ok()?;
            Wrap::Gre { local: word(from)?, remote: word(to)?, key }
        }
        ("vxlan", [from, to, vni, mac]) => {
            Wrap::Vxlan { local: word(from)?, remote: word(to)?, vni: word(vni)?, mac: word(mac)? }
        }
        ("gtp-u", [from, to, teid, local_teid, options @ ..]) => {
            let [port] = named(options, ["port"])?;
            Wrap::GtpU {
                local: word(from)?,
                remote: word(to)?,
                teid: word(teid)?,
                local_teid: match *local_teid {
                    "any" => None,
                    local_teid => Some(word(local_teid)?),
                },
                source_port: port.map_or(Some(GTPU_PORT), word)?,
            }
        }
        _ => return None,
    })
}

fn word<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

/// The values that follow the given names, each of which may occur once.
fn named<'a, const N: usize>(words: &[&'a str], names: [&str; N]) -> Option<[Option<&'a str>; N]> {
    let mut found = [None; N];
    for pair in words.chunks(2) {
        let [name, value] = pair else { return None };
        let at = names.iter().position(|known| known == name)?;
        if found[at].replace(*value).is_some() {
            return None;
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_read_as_they_are_shown() {
        assert_eq!(parse("vlan 7"), Some(Wrap::Vlan { id: 7, priority: 0, service: false }));
        assert_eq!(
            parse("qinq 100 priority 3"),
            Some(Wrap::Vlan { id: 100, priority: 3, service: true })
        );
        assert_eq!(parse("mpls 1000 ttl 3"), Some(Wrap::Mpls { label: 1000, class: 0, ttl: 3 }));
        let (local, remote) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        assert_eq!(
            parse("gre 10.0.0.1 10.0.0.2 key 5"),
            Some(Wrap::Gre { local, remote, key: Some(5) })
        );
        let mac = MacAddr([2, 0, 0, 0, 0, 9]);
        let vxlan = Wrap::Vxlan { local, remote, vni: 42, mac };
        assert_eq!(parse("vxlan 10.0.0.1 10.0.0.2 42 02:00:00:00:00:09"), Some(vxlan));
        assert_eq!(
            parse("gtp-u 10.0.0.1 10.0.0.2 1 2"),
            Some(Wrap::GtpU {
                local,
                remote,
                teid: 1,
                local_teid: Some(2),
                source_port: GTPU_PORT
            })
        );
        assert_eq!(
            parse("gtp-u 10.0.0.1 10.0.0.2 1 any port 5000"),
            Some(Wrap::GtpU { local, remote, teid: 1, local_teid: None, source_port: 5000 })
        );
        for wrong in [
            "",
            "vlan",
            "vlan x",
            "vlan 7 priority",
            "vlan 7 priority 1 priority 2",
            "gre 10.0.0.1",
            "ipip 1 2",
        ] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }
}
