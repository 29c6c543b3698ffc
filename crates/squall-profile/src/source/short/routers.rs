//! `squall routers`: one router.

use super::{Short, Table, scalar};
use crate::{Diagnostics, Profile, source::node::Value};

/// One router on port A. The arguments are keys of a router, `address` for an address of either
/// family, and `area` and `rip` for a protocol with each family that has an address.
///
/// # Errors
/// All errors, each with its argument.
pub fn router(short: Short<'_>) -> Result<Profile, Diagnostics> {
    let mut router = Table::default();
    router.set("name", "router");
    let addresses = short.all().filter(|one| one.key() == "address");
    let (of_6, of_4): (Vec<_>, Vec<_>) = addresses.partition(|one| one.text().contains(':'));
    for one in short.all() {
        match one.key() {
            "address" if one.text().contains(':') => router.add("ipv6", one.value()),
            "address" => router.add("ipv4", one.value()),
            key @ ("area" | "rip") => {
                let (with_4, with_6) =
                    if key == "area" { ("ospf", "ospf3") } else { ("rip", "ripng") };
                for (has, key) in [(!of_4.is_empty(), with_4), (!of_6.is_empty(), with_6)] {
                    if has {
                        router.set(key, one.value());
                    }
                }
            }
            key @ ("asn" | "asn_step" | "count" | "med" | "prepend" | "isis_metric") => {
                router.set(key, one.node(scalar(one.text())));
            }
            key @ ("name" | "daemon" | "mac" | "router_id" | "neighbors" | "hold" | "password"
            | "communities" | "isis" | "isis_level" | "isis_network" | "hello" | "dead"
            | "rip_update" | "bfd" | "routes" | "config") => {
                router.add(key, one.value());
            }
            _ => {}
        }
    }
    let mut profile = Table::default();
    profile.set("router", Value::from_iter([router]));
    short.profile(profile)
}
