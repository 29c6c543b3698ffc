//! BIRD 2: its configuration, and the replies of its control socket.
//!
//! Source: BIRD 2.0 User's Guide, chapters 3 (configuration) and 4 (remote control).

pub mod forwarding;

use std::{fmt::Write as _, net::Ipv4Addr};

use squall_units::Nanos;

use crate::{
    Bgp, GroupAttributes, IgpRoutes, LinkNeighbor, Origin, OspfAuthentication, ProtocolState,
    RouteGroup, RouteOrigin, RouterSettings, igp,
};

/// Asks for the states of all protocols.
pub const SHOW: &str = "show protocols all\n";
/// The interface of the router in its network namespace.
pub const INTERFACE: &str = "eth0";
/// The kernel's table in the router's namespace that has the routes of groups with single routes.
/// The metric of a route is the number of its group ([`metric`]).
pub const TABLE: u32 = 100;
/// The families of routes: the ends of names of protocols, BIRD's name, and whether it is IPv4.
pub(crate) const FAMILIES: [(&str, &str, bool); 2] = [("4", "ipv4", true), ("6", "ipv6", false)];

/// The text of a configuration file for `settings`: their own one, if they have any. The daemon
/// announces only the routes of its groups, and keeps those that it learns in its tables: the
/// kernel of its namespace forwards nothing.
pub fn configuration(settings: &RouterSettings) -> String {
    match &settings.configuration {
        Some(text) => text.clone(),
        None => generate(settings),
    }
}

fn generate(settings: &RouterSettings) -> String {
    let mut text = String::new();
    let mut line = |line: &str| _ = writeln!(text, "{line}");
    line("log stderr all;");
    line(&format!("router id {};", settings.router_id));
    line("protocol device { scan time 1; }");
    if let Some(interval) = settings.bfd {
        let interval = milliseconds(interval);
        line(&format!(
            "protocol bfd bfd1 {{ interface \"{INTERFACE}\" {{ interval {interval} ms; multiplier \
             3; }}; }}"
        ));
    }
    for (number, neighbor) in settings.bgp.iter().flat_map(|bgp| bgp.neighbors.iter().enumerate()) {
        let Some(bgp) = &settings.bgp else { break };
        let family = if neighbor.address.is_ipv4() { "ipv4" } else { "ipv6" };
        line(&format!("protocol bgp bgp{} {{", number + 1));
        line(&format!("  local as {};", bgp.asn));
        line(&format!("  neighbor {} as {};", neighbor.address, neighbor.asn));
        line(&format!("  hold time {};", seconds(bgp.hold)));
        // The default waits 5 s before the first connection, and up to 300 s after errors.
        line("  connect delay time 1; connect retry time 5; error wait time 1, 10;");
        if let Some(password) = &bgp.password {
            line(&format!("  password \"{}\";", quoted(password)));
        }
        if settings.bfd.is_some() {
            line("  bfd on;");
        }
        if settings.graceful_restart {
            line("  graceful restart on;");
        }
        // With this option, next hops that a filter sets are ignored.
        let is_own = settings.groups.iter().all(|group| group.attributes.next_hop.is_none());
        let next_hop = if is_own { " next hop self;" } else { "" };
        let exports = exports(settings, bgp, neighbor.address.is_ipv4());
        line(&format!("  {family} {{ import all; export {exports};{next_hop} }};"));
        line("}");
    }
    let own_only = format!("export where {}", is_announced(settings));
    for (version, name, family, area) in
        [("v2", "ospf4", "ipv4", settings.ospf), ("v3", "ospf6", "ipv6", settings.ospf3)]
    {
        let Some(area) = area else { continue };
        line(&format!("protocol ospf {version} {name} {{"));
        if settings.graceful_restart {
            line("  graceful restart on;");
        } else if settings.igp.no_helper {
            line("  graceful restart off;");
        }
        let is_ipv4 = family == "ipv4";
        let exports = ospf_exports(settings, is_ipv4).unwrap_or_else(|| own_only.clone());
        line(&format!("  {family} {{ import all; {exports}; }};"));
        ospf_areas(settings, area, is_ipv4).iter().for_each(|one| line(one));
        line("}");
    }
    for (kind, name, family, wanted) in
        [("rip", "rip4", "ipv4", settings.rip), ("rip ng", "rip6", "ipv6", settings.ripng)]
    {
        if wanted {
            let update = seconds(settings.rip_update);
            line(&format!("protocol {kind} {name} {{"));
            line(&format!("  {family} {{ import all; {own_only}; }};"));
            line(&format!("  interface \"{INTERFACE}\" {{ update time {update}; }};"));
            line("}");
        }
    }
    if settings.groups.iter().any(RouteGroup::is_in_kernel) {
        for (end, family, _) in FAMILIES {
            // A route here is preferred to one that the device announces, as a static route is. A
            // full buffer loses messages until the next scan: the default of the kernel holds some
            // hundred.
            line(&format!(
                "protocol kernel kernel{end} {{ kernel table {TABLE}; learn; scan time 60; \
                 netlink rx buffer 33554432; {family} {{ preference 200; import all; export none; \
                 }}; }}"
            ));
        }
    }
    let is_static = |(number, group): &(usize, &RouteGroup)| {
        !group.is_in_kernel() && settings.igp.interior(*number).is_none()
    };
    for (number, group) in settings.groups.iter().enumerate().filter(is_static) {
        for (_, family, is_ipv4) in
            FAMILIES.into_iter().filter(|family| has_routes(group, family.2))
        {
            let name = static_protocol(number, is_ipv4);
            _ = writeln!(text, "protocol static {name} {{\n  {family};");
            for prefix in group.prefixes().filter(|one| one.address.is_ipv4() == is_ipv4) {
                _ = writeln!(text, "  route {prefix} blackhole;");
            }
            text.push_str("}\n");
        }
    }
    text
}

/// The export of a protocol of OSPF that sets the metrics of external routes; `None`: it sets none.
fn ospf_exports(settings: &RouterSettings, is_ipv4: bool) -> Option<String> {
    let mut text = String::from("export filter {");
    let mut any = false;
    for (number, IgpRoutes { origin, metric }) in settings.igp.routes.iter().enumerate() {
        any = true;
        let word = match origin {
            RouteOrigin::External1 => "ospf_metric1",
            RouteOrigin::External2 => "ospf_metric2",
            RouteOrigin::Interior | RouteOrigin::InterArea(_) => continue,
        };
        let name = static_protocol(number, is_ipv4);
        _ = write!(text, " if proto = \"{name}\" then {{ {word} = {metric}; accept; }}");
    }
    any.then(|| text + " reject; }")
}

/// The areas of a protocol of OSPF: that of the link, and those of groups.
fn ospf_areas(settings: &RouterSettings, area: Ipv4Addr, is_ipv4: bool) -> Vec<String> {
    let of = &settings.igp;
    let instance = match of.instance {
        0 => String::new(),
        number => format!(" instance {number}"),
    };
    let kind = if of.point_to_point { "ptp" } else { "broadcast" };
    let (hello, dead) = (seconds(settings.hello), seconds(settings.dead));
    let mut link =
        format!("interface \"{INTERFACE}\"{instance} {{ type {kind}; hello {hello}; dead {dead};");
    for (word, value) in [
        ("cost", of.cost.map(u32::from)),
        ("priority", of.priority.map(u32::from)),
        ("retransmit", of.retransmit.map(u32::from)),
    ] {
        if let Some(value) = value {
            _ = write!(link, " {word} {value};");
        }
    }
    match of.authentication.as_ref().filter(|_| is_ipv4) {
        None => {}
        Some(OspfAuthentication::Simple(password)) => {
            _ = write!(link, " authentication simple; password \"{}\";", quoted(password));
        }
        Some(OspfAuthentication::Md5(keys)) => {
            link += " authentication cryptographic;";
            for (id, key) in keys {
                _ = write!(link, " password \"{}\" {{ id {id}; }};", quoted(key));
            }
        }
    }
    if settings.bfd.is_some() {
        link += " bfd on;";
    }
    link += " };";
    let mut areas = vec![(area, link)];
    for (number, group) in settings.groups.iter().enumerate() {
        let Some(IgpRoutes { origin, metric }) = settings.igp.interior(number) else { continue };
        if !has_routes(group, is_ipv4) {
            continue;
        }
        let area = if let RouteOrigin::InterArea(other) = origin { other } else { area };
        let name = igp::interface(number);
        let text = format!(" interface \"{name}\"{instance} {{ stub yes; cost {metric}; }};");
        match areas.iter_mut().find(|(known, _)| *known == area) {
            Some((_, interfaces)) => *interfaces += &text,
            None => areas.push((area, text.trim_start().to_owned())),
        }
    }
    let shown =
        |(area, interfaces): (Ipv4Addr, String)| format!("  area {area} {{ {interfaces} }};");
    areas.into_iter().map(shown).collect()
}

/// Name of the static protocol that has the routes of group `number` of one family.
pub(crate) fn static_protocol(number: usize, is_ipv4: bool) -> String {
    format!("group{}_{}", number + 1, if is_ipv4 { 4 } else { 6 })
}

/// Metric in the kernel's table of the routes of group `number`.
pub(crate) fn metric(number: usize) -> usize {
    number + 1
}

pub(crate) fn has_routes(group: &RouteGroup, is_ipv4: bool) -> bool {
    group.prefixes.iter().any(|part| match part {
        crate::Prefixes::Range(range) => range.count > 0 && range.first.is_ipv4() == is_ipv4,
        crate::Prefixes::List(_) | crate::Prefixes::Mrt(_) => {
            part.iter().any(|one| one.address.is_ipv4() == is_ipv4)
        }
    })
}

/// The condition for a route of the router's own.
fn is_announced(settings: &RouterSettings) -> &'static str {
    match settings.groups.iter().any(RouteGroup::is_in_kernel) {
        true => "source = RTS_STATIC || source = RTS_INHERIT",
        false => "source = RTS_STATIC",
    }
}

/// The filter of the routes that BGP announces to a neighbor of one family. Attributes are those of
/// the group, which a route's protocol or its metric in the kernel's table shows.
fn exports(settings: &RouterSettings, bgp: &Bgp, is_ipv4: bool) -> String {
    let mut text = String::from("filter {");
    for (number, group) in settings.groups.iter().enumerate() {
        let set = attributes(&group.attributes, bgp.asn, is_ipv4);
        if set.is_empty() || !has_routes(group, is_ipv4) {
            continue;
        }
        let of_group = if group.is_in_kernel() {
            format!("source = RTS_INHERIT && krt_metric = {}", metric(number))
        } else {
            format!("proto = \"{}\"", static_protocol(number, is_ipv4))
        };
        _ = write!(text, " if {of_group} then {{{set} accept; }}");
    }
    _ = write!(text, " if {} then accept; reject; }}", is_announced(settings));
    text
}

/// Assignments of a filter.
fn attributes(attributes: &GroupAttributes, asn: u32, is_ipv4: bool) -> String {
    let GroupAttributes { med, prepend, communities, as_path, origin, next_hop } = attributes;
    let mut text = String::new();
    if let Some(med) = med {
        _ = write!(text, " bgp_med = {med};");
    }
    for number in as_path.iter().rev().chain((0..*prepend).map(|_| &asn)) {
        _ = write!(text, " bgp_path.prepend({number});");
    }
    for (high, low) in communities {
        _ = write!(text, " bgp_community.add(({high},{low}));");
    }
    if let Some(origin) = origin {
        let word = match origin {
            Origin::Igp => "ORIGIN_IGP",
            Origin::Egp => "ORIGIN_EGP",
            Origin::Incomplete => "ORIGIN_INCOMPLETE",
        };
        _ = write!(text, " bgp_origin = {word};");
    }
    if let Some(next_hop) = next_hop.filter(|address| address.is_ipv4() == is_ipv4) {
        _ = write!(text, " bgp_next_hop = {next_hop};");
    }
    text
}

pub(crate) fn seconds(time: Nanos) -> u64 {
    (time.0 / Nanos::SECOND.0).max(1)
}

pub(crate) fn milliseconds(time: Nanos) -> u64 {
    (time.0 / 1_000_000).max(1)
}

/// A text in BIRD's quotes, which know no escapes.
pub(crate) fn quoted(text: &str) -> String {
    text.chars().filter(|c| *c != '"' && !c.is_control()).collect()
}

/// Length of the first complete reply in `text`, which came from the control socket; `None`: it is
/// not complete. Its last line has a space after the code of four digits.
pub fn reply(text: &str) -> Option<usize> {
    let mut end = 0;
    for line in text.split_inclusive('\n') {
        end += line.len();
        let Some((code, rest)) = line.split_at_checked(4) else { continue };
        let is_last = rest.starts_with(' ') && code.bytes().all(|c| c.is_ascii_digit());
        if is_last && line.ends_with('\n') {
            return Some(end);
        }
    }
    None
}

/// Why the daemon did not carry out a command, from its reply; `None`: it did. Codes of errors are
/// 8000 and above.
pub fn refusal(reply: &str) -> Option<String> {
    let error = |line: &&str| {
        let code = line.get(..4).filter(|code| code.bytes().all(|c| c.is_ascii_digit()));
        code.is_some_and(|code| code >= "8000")
    };
    reply.lines().find(error).map(|line| line.get(5..).unwrap_or_default().trim().to_owned())
}

/// Number of routes that the protocols in a reply to `show protocols all NAME` have imported.
pub fn imported(reply: &str) -> u64 {
    let routes = |line: &str| {
        let (key, value) = line.trim().split_once(':')?;
        let part = value.split(',').find(|part| part.trim().ends_with("imported"))?;
        (key == "Routes").then(|| part.trim().split(' ').next()?.parse::<u64>().ok())?
    };
    reply.lines().filter_map(routes).sum()
}

/// The questions for the neighbors of the protocols of OSPF, with the names of these. Protocols of
/// a configuration of the user's own are not known.
pub fn neighbor_questions(settings: &RouterSettings) -> Vec<(&'static str, &'static str)> {
    let all = [
        ("ospf4", "show ospf neighbors ospf4\n", settings.ospf.is_some()),
        ("ospf6", "show ospf neighbors ospf6\n", settings.ospf3.is_some()),
    ];
    let is_asked = |speaks: bool| speaks && settings.configuration.is_none();
    all.into_iter().filter(|one| is_asked(one.2)).map(|(name, text, _)| (name, text)).collect()
}

/// The neighbors in a reply to one of the [`neighbor_questions`].
pub fn neighbors(reply: &str) -> Vec<LinkNeighbor> {
    let neighbor = |line: &str| {
        // Router ID, priority, state and role, time, interface, address.
        let mut words = line.trim_start_matches("1013-").split_ascii_whitespace();
        words.next()?.parse::<Ipv4Addr>().ok()?;
        let (state, _) = words.nth(1)?.split_once('/')?;
        let (state, is_up) = (state.to_owned(), state == "Full");
        Some(LinkNeighbor { state, is_up, ..LinkNeighbor::default() })
    };
    reply.lines().filter_map(neighbor).collect()
}

/// The states of the routing protocols in a reply to [`SHOW`].
pub fn protocols(reply: &str) -> Vec<ProtocolState> {
    let mut found: Vec<ProtocolState> = Vec::new();
    // Whether the lines that follow are of a protocol that counts.
    let mut counts = false;
    for line in reply.lines() {
        if let Some(row) = line.strip_prefix("1002-") {
            let mut words = row.split_ascii_whitespace();
            let (Some(name), Some(kind)) = (words.next(), words.next()) else { continue };
            counts = ["BGP", "OSPF", "RIP", "RIPng", "BFD", "Babel"].contains(&kind);
            if counts {
                let word = words.nth(1).unwrap_or_default();
                // The time since the last change is before the daemon's own word.
                let info: Vec<&str> = words.skip(1).collect();
                let info = info.join(" ");
                let up = word == "up" && ["", "Running", "Established"].contains(&info.as_str());
                let state = if info.is_empty() { word.to_owned() } else { info };
                found.push(ProtocolState {
                    name: name.into(),
                    kind: kind.into(),
                    state,
                    is_up: up,
                    ..ProtocolState::default()
                });
            }
            continue;
        }
        let Some(one) = found.last_mut().filter(|_| counts) else { continue };
        let line = line.trim_start_matches("1006-").trim();
        let Some((key, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        match key {
            "BGP state" => value.clone_into(&mut one.state),
            "Neighbor address" => value.clone_into(&mut one.neighbor),
            "Last error" => value.clone_into(&mut one.error),
            "Routes" => {
                let number = |word: &str| {
                    let part = value.split(',').find(|part| part.trim().ends_with(word))?;
                    part.trim().split(' ').next()?.parse::<u64>().ok()
                };
                one.imported += number("imported").unwrap_or(0);
                one.exported += number("exported").unwrap_or(0);
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
pub(crate) mod tests;
