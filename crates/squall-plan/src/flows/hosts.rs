//! Clients that are the hosts of a group.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use squall_flows::{AddrRange, Load, Role, Wrap};
use squall_profile::{ErrorCollector, Flows, HostGroup, Located, Order, Pool};

use super::FlowSide;
use crate::hosts;

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
    hosts::shared_group(groups, (name, at)).map_err(|mistake| mistakes.add(mistake)).ok()
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
    groups: &[HostGroup],
    mistakes: &mut ErrorCollector<'_>,
) {
    for spec in &flows.templates {
        let of = |pool: usize| load.clients.get(pool).and_then(|pool| groups.get(pool.hosts?));
        if of(spec.servers).is_some() {
            let text = format!("template {:?}: hosts can be clients, not servers", spec.name);
            mistakes.at(spec.at, &text, "try servers with addresses");
        }
        let Some(group) = of(spec.clients) else { continue };
        if flows.ends(spec.pair).0 != Some(group.port) {
            let text = format!(
                "template {:?}: its clients are the hosts {:?} of another port",
                spec.name, group.name
            );
            mistakes.at(spec.at, &text, "try clients of [flows] with the port of the hosts");
        }
    }
}

/// Gives sides whose clients are hosts the VLAN of the hosts.
pub(super) fn tag(
    sides: &mut [FlowSide],
    load: &Load,
    groups: &[HostGroup],
    mistakes: &mut ErrorCollector<'_>,
) {
    for side in sides {
        let (clients, _) = side.role.parts(side.clients, side.servers);
        let templates = load.templates.iter().enumerate();
        let own =
            templates.filter(|(number, one)| clients.has(load, *number) && one.ends.has_clients());
        let all: Vec<Option<&HostGroup>> = own
            .map(|(_, one)| load.clients[one.clients].hosts.and_then(|group| groups.get(group)))
            .collect();
        let Some(group) = all.iter().flatten().next() else { continue };
        let vlans = || all.iter().map(|group| group.and_then(|group| group.vlan));
        let others = side.role == Role::Both || all.iter().any(Option::is_none);
        let (text, hint) = if !side.network.is_plain() || !side.network.interfaces.is_empty() {
            ("flows of hosts have an encapsulation of their own", "try vlan in [[host]]")
        } else if vlans().any(|vlan| vlan != group.vlan) || others && group.vlan.is_some() {
            ("flows of one port are in different VLANs", "try a port for each VLAN")
        } else {
            let tag = |id: u64| Wrap::Vlan { id: id as u16, priority: 0, service: false };
            side.network.wraps.extend(group.vlan.map(tag));
            continue;
        };
        mistakes.at(group.at, text, hint);
    }
}
