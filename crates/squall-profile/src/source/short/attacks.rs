//! `squall attack`: attacks from rules, or from a template.

use super::{Short, Table, scalar};
use crate::{Diagnostics, Profile, source::node::Value};

/// Attacks with the clients on port A, and the servers on port B if it is given. Most arguments are
/// keys of an attack.
///
/// # Errors
/// All errors, each with its argument.
pub fn attack(short: Short<'_>) -> Result<Profile, Diagnostics> {
    let mut attack = Table::default();
    attack.set("name", "attack");
    attack.set("port", "A");
    if short.ports.len() > 1 {
        attack.set("port2", "B");
    }
    let [mut options, mut variables, mut clients, mut servers] = <[Table; 4]>::default();
    let explained = short.all().any(|one| one.key() == "explain");
    for one in short.all() {
        match one.key() {
            "explain" => attack.set("sid", one.value()),
            "sid" if explained => {}
            "option" => short.set_pair(&mut options, one)?,
            "var" => short.set_pair(&mut variables, one)?,
            "frames" => attack.set("live", one.node(false.into())),
            "ipv6" => attack.set("family", one.node(scalar("6"))),
            "gateway" => clients.add("gateway", one.value()),
            "gateway2" => servers.add("gateway", one.value()),
            key @ ("rules" | "template" | "config" | "sid" | "classtype" | "msg" | "engine"
            | "rate" | "share" | "start" | "repeat" | "shuffle" | "samples"
            | "every_branch" | "near_miss" | "evasion" | "inside" | "outside" | "wrap"
            | "gap" | "background") => {
                attack.add(key, one.value());
            }
            _ => {}
        }
    }
    attack.set_some("options", options);
    attack.set_some("variables", variables);
    attack.set_some("client_network", clients);
    attack.set_some("server_network", servers);
    let mut profile = Table::default();
    profile.set("attack", Value::from_iter([attack]));
    short.profile(profile)
}
