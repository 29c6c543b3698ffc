//! DHCPv6 in a configuration: clients of interfaces, and the pools of servers.

use std::net::Ipv6Addr;

use squall_host::{Dhcp6Settings, Server6Settings};

use crate::{
    devices::needed,
    read::{Node, Notes},
    translate::Dhcp6ClientInfo,
};

const EXPECTED: &str = "an IPv6 address";

/// The DHCPv6 client of an interface, which has one, because clients are known by their MAC
/// address.
pub(crate) fn read_client(ethernet: &Node<'_>, notes: &mut Notes) -> Option<Dhcp6ClientInfo> {
    let mut clients = ethernet.list("dhcpv6_interfaces", notes).into_iter();
    let node = clients.next()?;
    for further in clients {
        notes.unsupported(&further, "a second DHCPv6 client of an interface");
    }
    let keys = ["name", "rapid_commit", "ia_type", "duid_type", "options_request", "options"];
    node.known(&keys, notes);
    let (address, prefix) = associations(&node.at("ia_type"), notes);
    let duid = node.at("duid_type");
    duid.known(&["choice", "llt", "en", "ll"], notes);
    let why = "clients have a DUID-LL, which is made from their MAC address";
    match duid.choice(&["llt", "en", "ll"], Some("ll"), notes) {
        Some("en") => notes.unsupported(&duid.at("en"), why),
        // It is the default of the schema, and servers treat both kinds alike.
        Some("llt") => notes.warn(&duid.path, &format!("has no effect: {why}")),
        _ => {}
    }
    if let Some(list) = node.get("options_request") {
        list.known(&["request", "associated_dhcp_messages"], notes);
        notes.warn(&list.path, "has no effect: clients ask for DNS servers and domains");
    }
    let options = node.at("options");
    let kinds = ["server_identifier", "vendor_class", "vendor_info", "fqdn"];
    options.known(&kinds, notes);
    for option in kinds.into_iter().filter_map(|kind| options.get(kind)) {
        notes.unsupported(&option, "clients do not send this option");
    }
    let settings = Dhcp6Settings {
        address,
        prefix: prefix.then_some(0),
        rapid_commit: node.flag("rapid_commit", false, notes),
        ..Dhcp6Settings::default()
    };
    Some(Dhcp6ClientInfo { name: node.needed_text("name", notes)?.to_owned(), settings })
}

/// Whether a client wants an address, and a prefix.
fn associations(node: &Node<'_>, notes: &mut Notes) -> (bool, bool) {
    const TIMES: [(&str, u64); 2] = [("t1", 302_400), ("t2", 483_840)];
    node.known(&["choice", "iana", "iapd", "ianapd"], notes);
    for kind in ["iana", "iapd", "ianapd"] {
        let times = node.at(kind);
        times.known(&["t1", "t2"], notes);
        for (key, default) in TIMES {
            if times.uint(key, u32::MAX.into(), notes).is_some_and(|seconds| seconds != default) {
                notes.warn(&times.at(key).path, "has no effect: servers set T1 and T2");
            }
        }
    }
    match node.choice(&["iana", "iata", "iapd", "ianapd"], Some("iana"), notes) {
        Some("iapd") => (false, true),
        Some("ianapd") => (true, true),
        Some("iata") => {
            notes.unsupported(&node.at("choice"), "temporary addresses; try iana");
            (true, false)
        }
        _ => (true, false),
    }
}

/// The lease of a server as settings without an identifier; `own`: the server's address.
pub(crate) fn read_server(
    server: &Node<'_>,
    own: Option<Ipv6Addr>,
    notes: &mut Notes,
) -> Option<Server6Settings> {
    let options = server.at("options");
    let kinds = ["dns", "vendor_info", "bootfile_url"];
    options.known(&kinds, notes);
    for option in kinds.into_iter().filter_map(|kind| options.get(kind)) {
        notes.unsupported(&option, "servers give only addresses and prefixes");
    }
    if server.flag("reconfigure_via_relay_agent", false, notes) {
        let at = server.at("reconfigure_via_relay_agent");
        notes.unsupported(&at, "servers do not reconfigure clients");
    }
    let mut leases = server.list("leases", notes).into_iter();
    let lease = leases.next();
    for further in leases {
        notes.unsupported(&further, "a second lease of a server");
    }
    let Some(lease) = lease else {
        notes.problem(&server.at("leases").path, "missing: expected a lease");
        return None;
    };
    lease.known(&["lease_time", "ia_type"], notes);
    let time = lease.uint("lease_time", 30_000_000, notes).unwrap_or(86_400) as u32;
    if time < 300 {
        let path = lease.at("lease_time").path;
        notes.problem(path, format!("found {time}, expected at least 300 s"));
    }
    let ia = lease.at("ia_type");
    ia.known(&["choice", "iana", "iata", "iapd", "ianapd"], notes);
    let settings = Server6Settings {
        preferred: time,
        valid: time,
        rapid_commit: server.flag("rapid_commit", false, notes),
        ..Server6Settings::default()
    };
    match ia.member(&["iana", "iata", "iapd", "ianapd"], Some("iana"), notes)? {
        ("iana", pool) => read_addresses(&pool, own, settings, notes),
        ("iapd", pool) => read_prefixes(&pool, settings, notes),
        ("ianapd", pools) => {
            pools.known(&["iana", "iapd"], notes);
            let settings = read_addresses(&pools.at("iana"), own, settings, notes)?;
            read_prefixes(&pools.at("iapd"), settings, notes)
        }
        (_, pool) => {
            notes.unsupported(&pool, "temporary addresses; try iana");
            None
        }
    }
}

fn read_addresses(
    pool: &Node<'_>,
    own: Option<Ipv6Addr>,
    settings: Server6Settings,
    notes: &mut Notes,
) -> Option<Server6Settings> {
    pool.known(&["start_address", "prefix_len", "size", "step"], notes);
    let first: Option<Ipv6Addr> = needed(pool, "start_address", EXPECTED, notes);
    let keys = Keys { len: ("prefix_len", 64), size: ("size", 1), step: "step" };
    let (count, step) = keys.read(pool, first, notes)?;
    let is_in_pool = |own: &Ipv6Addr| {
        let offset = own.to_bits().checked_sub(first?.to_bits())?;
        (offset % step == 0 && offset / step < u128::from(count)).then_some(())
    };
    if let Some(own) = own.filter(|own| is_in_pool(own).is_some()) {
        notes.problem(
            &pool.at("start_address").path,
            format!(
                "the pool has {own}, which is the server's own address\n  try a pool that starts \
                 after it"
            ),
        );
    }
    Some(Server6Settings { first: first?, count, step, ..settings })
}

fn read_prefixes(
    pool: &Node<'_>,
    settings: Server6Settings,
    notes: &mut Notes,
) -> Option<Server6Settings> {
    let keys = [
        "start_prefix_address",
        "configured_prefix_len",
        "prefix_size",
        "prefix_step",
        "advertised_prefix_len",
    ];
    pool.known(&keys, notes);
    let first: Option<Ipv6Addr> = needed(pool, keys[0], EXPECTED, notes);
    let keys = Keys {
        len: ("configured_prefix_len", 128),
        size: ("prefix_size", 10),
        step: "prefix_step",
    };
    let (count, prefix_step) = keys.read(pool, first, notes)?;
    let length = pool.uint("advertised_prefix_len", 128, notes).unwrap_or(64) as u8;
    if length == 0 {
        let path = pool.at("advertised_prefix_len").path;
        notes.problem(path, "found 0, expected a length of 1 to 128");
        return None;
    }
    if count > 1 && prefix_step < 1u128 << (128 - length) {
        let why = "prefixes of the pool overlap; try configured_prefix_len equal to \
                   advertised_prefix_len";
        notes.warn(&pool.path, why);
    }
    Some(Server6Settings { prefixes: Some((first?, length, count)), prefix_step, ..settings })
}

/// The keys of a pool, with their defaults: the last bit that steps change, the number of
/// addresses, and how many steps of that bit there are from one to the next.
struct Keys {
    len: (&'static str, u64),
    size: (&'static str, u64),
    step: &'static str,
}

impl Keys {
    /// The number of addresses from `first`, and the difference of two.
    fn read(
        &self,
        pool: &Node<'_>,
        first: Option<Ipv6Addr>,
        notes: &mut Notes,
    ) -> Option<(u32, u128)> {
        let len = pool.uint(self.len.0, 128, notes).unwrap_or(self.len.1) as u32;
        let count = pool.uint(self.size.0, 1_000_000, notes).unwrap_or(self.size.1) as u32;
        let steps = pool.uint(self.step, u32::MAX.into(), notes).unwrap_or(1);
        for (key, found) in [(self.size.0, u64::from(count)), (self.step, steps)] {
            if found == 0 {
                notes.problem(pool.at(key).path, "found 0, expected at least 1");
                return None;
            }
        }
        if count == 1 {
            return Some((1, 1));
        }
        let bit = 1u128.checked_shl(128 - len);
        let step = bit.and_then(|bit| bit.checked_mul(steps.into()));
        let last = step
            .and_then(|step| step.checked_mul((count - 1).into()))
            .and_then(|offset| first.map_or(0, Ipv6Addr::to_bits).checked_add(offset));
        if last.is_none() {
            let path = pool.at(self.size.0).path;
            notes.problem(path, format!("found {count}, which goes past the last IPv6 address"));
        }
        Some((count, step.filter(|_| last.is_some())?))
    }
}
