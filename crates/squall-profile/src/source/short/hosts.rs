//! `squall hosts`: one group of hosts.

use super::{Short, Table};
use crate::{Diagnostics, Profile, source::node::Value};

/// One group of hosts on port A. The arguments are keys of a group.
///
/// # Errors
/// All errors, each with its argument.
pub fn hosts(short: Short<'_>) -> Result<Profile, Diagnostics> {
    let mut group = Table::default();
    group.set("name", "hosts");
    for one in short.all() {
        match one.key() {
            "probe" => group.set("arp", one.node("probe".into())),
            "silent" => group.set("arp", one.node("silent".into())),
            key @ ("count" | "mac" | "vlan" | "ipv4" | "gateway" | "setup" | "start"
            | "release" | "vendor" | "retry" | "tries" | "ping" | "ping_rate"
            | "ping_count" | "serve" | "lease" | "dhcp" | "requested" | "rapid_commit"
            | "broadcast" | "options" | "relay" | "circuit" | "remote" | "faults") => {
                group.add(key, one.value());
            }
            _ => {}
        }
    }
    let mut profile = Table::default();
    profile.set("host", Value::from_iter([group]));
    short.profile(profile)
}
