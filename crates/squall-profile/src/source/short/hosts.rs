//! `squall hosts`: one group of hosts.

use super::{Short, Table};
use crate::{
    Diagnostics, Profile,
    source::{hosts::number_per_second, node::Value},
};

/// One group of hosts on port A. The arguments are keys of a group.
///
/// # Errors
/// All errors, each with its argument.
pub fn hosts(short: Short<'_>) -> Result<Profile, Diagnostics> {
    let [mut group, mut tls] = <[Table; 2]>::default();
    group.set("name", "hosts");
    for one in short.all() {
        match one.key() {
            "probe" => group.set("arp", one.node("probe".into())),
            "silent" => group.set("arp", one.node("silent".into())),
            // An address of either family.
            "address" if one.text().contains(':') => group.add("ipv6", one.value()),
            "address" => group.add("ipv4", one.value()),
            "gateway" if one.text().contains(':') => group.add("gateway6", one.value()),
            // A profile has a plain number here.
            key @ ("ping_rate" | "resolve_rate") => {
                group.set(key, one.node(number_per_second(one.text()).into()));
            }
            key @ ("count" | "mac" | "vlan" | "ipv4" | "ipv6" | "gateway" | "setup" | "start"
            | "release" | "vendor" | "retry" | "tries" | "ping" | "ping_count" | "serve"
            | "lease" | "interface_id" | "dad" | "prefix" | "rapid_commit"
            | "first_offer" | "join" | "join_each" | "join_rate" | "join_time"
            | "sources" | "exclude" | "igmp" | "mld" | "robustness" | "unsolicited"
            | "older_querier" | "lldp" | "lldp_hold" | "lldp_name" | "cdp" | "cdp_hold"
            | "cdp_name" | "resolve" | "resolve_type" | "resolve_count"
            | "resolve_timeout" | "resolve_tries" | "dns_server" | "auth" | "identity"
            | "password" | "auth_start" | "auth_starts" | "auth_wait" | "auth_held"
            | "auth_tries" | "auth_again" | "anonymous_identity" | "dhcp" | "requested"
            | "broadcast" | "options" | "relay" | "circuit" | "remote" | "faults"
            | "icmp_errors" | "link_flap") => group.add(key, one.value()),
            // Settings of TLS for 802.1X.
            key @ ("ca" | "certificate" | "key" | "server_name") => tls.set(key, one.value()),
            _ => {}
        }
    }
    group.set_some("tls", tls);
    let mut profile = Table::default();
    profile.set("host", Value::from_iter([group]));
    short.profile(profile)
}
