//! Clients and servers that are the hosts of a group.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use squall_flows::{AddrRange, Load, Pool as FlowPool, Wrap};
use squall_profile::{ErrorCollector, Flows, HostGroup, Located, Order, Pool};

use super::FlowSide;
use crate::{PortLimits, hosts};

/// The number of the group that a pool names.
pub(super) fn group(
    spec: &Pool,
    (name, at): (&str, &Located),
    groups: &[HostGroup],
    mistakes: &mut ErrorCollector<'_>,
) -> Option<usize> {
    if spec.addresses.len() > 1 {
        mistakes.note(at, "a pool of hosts has other addresses", "try a pool for each");
    }
    if spec.order != Order::Sequential {
        let text = format!("pool {:?}: order has no effect on hosts, which take turns", spec.name);
        mistakes.at(spec.at, &text, "try without order");
    }
    hosts::group_of_flows(groups, (name, at)).map_err(|mistake| mistakes.add(mistake)).ok()
}

/// As many addresses as the group has hosts, where no host has one: in 0.0.0.0/8 (RFC 1122 section
/// 3.2.1.3) or in 100::/64 (RFC 6666). They differ from those of other groups.
pub(super) fn range(groups: &[HostGroup], number: usize) -> AddrRange {
    let before: u32 = groups[..number].iter().map(|group| group.count).sum();
    let first = FIRST + before;
    let of = |bits: u32| match hosts::is_ipv6(&groups[number]) {
        true => IpAddr::V6(Ipv6Addr::from_bits(DISCARDED | u128::from(bits))),
        false => IpAddr::V4(Ipv4Addr::from_bits(bits)),
    };
    let (first, last) = (of(first), of(first + groups[number].count.max(1) - 1));
    AddrRange::new(first, last).expect("the first address is not after the last")
}

/// After the address that replaces those of external clients.
const FIRST: u32 = 0x0001_0000;
/// 100::, of which routers forward nothing.
const DISCARDED: u128 = 0x0100 << 112;

/// Reports templates that cannot have these hosts.
pub(super) fn check(
    flows: &Flows,
    load: &Load,
    (groups, limits): (&[HostGroup], &[PortLimits]),
    mistakes: &mut ErrorCollector<'_>,
) {
    for spec in &flows.templates {
        let of = |pool: usize| load.clients.get(pool).and_then(|pool| groups.get(pool.hosts?));
        let (clients, servers) = flows.ends(spec.pair);
        let ends = [
            ("clients", of(spec.clients), clients, true),
            ("servers", of(spec.servers), servers, spec.plays_servers(flows)),
        ];
        for (end, group, port, plays) in ends {
            let Some(group) = group.filter(|group| plays && port != Some(group.port)) else {
                continue;
            };
            let text = format!(
                "template {:?}: its {end} are the hosts {:?} of another port",
                spec.name, group.name
            );
            let hint = format!("try {end} of [flows] with the port of the hosts");
            mistakes.at(spec.at, &text, &hint);
        }
        if let (Some(group), Some(port)) = (of(spec.servers), clients)
            && spec.plays_clients(flows)
            && limits[group.port].elsewhere != limits[port].elsewhere
        {
            let text = format!("template {:?}: its servers are hosts of another node", spec.name);
            let hint = "try ports of one node, or the addresses of the hosts";
            mistakes.at(spec.at, &text, hint);
        }
    }
}

/// Gives sides whose clients or servers are hosts the VLAN of the hosts, and their sessions.
pub(super) fn tag(
    sides: &mut [FlowSide],
    load: &Load,
    groups: &[HostGroup],
    mistakes: &mut ErrorCollector<'_>,
) {
    for side in sides {
        let (clients, servers) = side.role.parts(side.clients, side.servers);
        let group = |pool: &FlowPool| pool.hosts.and_then(|group| groups.get(group));
        let mut all: Vec<Option<&HostGroup>> = Vec::new();
        for (number, one) in load.templates.iter().enumerate() {
            if clients.has(load, number) && one.ends.has_clients() {
                all.push(group(&load.clients[one.clients]));
            }
            if servers.has(load, number) && one.ends.has_servers() {
                all.push(group(&load.servers[one.servers]));
            }
        }
        let Some(group) = all.iter().flatten().next() else { continue };
        let mru = all.iter().flatten().map(|group| group.mru as u16).min().unwrap_or(1492);
        let mut vlans = all.iter().map(|group| group.and_then(|group| group.vlan));
        let in_session = |group: &HostGroup| group.pppoe.is_some();
        let mut sessions = all.iter().map(|group| group.is_some_and(in_session));
        let (text, hint) = if !side.network.is_plain() || !side.network.interfaces.is_empty() {
            ("flows of hosts have an encapsulation of their own", "try vlan in [[host]]")
        } else if vlans.any(|vlan| vlan != group.vlan) {
            ("flows of one port are in different VLANs", "try a port for each VLAN")
        } else if sessions.any(|of| of != in_session(group)) {
            ("only some flows of one port are in sessions of PPPoE", "try another port for them")
        } else {
            let tag = |id: u64| Wrap::Vlan { id: id as u16, priority: 0, service: false };
            side.network.wraps.extend(group.vlan.map(tag));
            if in_session(group) {
                side.network.wraps.push(Wrap::Pppoe);
                side.network.mtu = side.network.mtu.min(mru);
            }
            continue;
        };
        mistakes.at(group.at, text, hint);
    }
}
