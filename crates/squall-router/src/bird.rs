//! BIRD 2: its configuration, and the replies of its control socket.
//!
//! Source: BIRD 2.0 User's Guide, chapters 3 (configuration) and 4 (remote control).

use std::fmt::Write as _;

use squall_units::Nanos;

use crate::{Bgp, ProtocolState, RouterSettings};

/// Asks for the states of all protocols.
pub const SHOW: &str = "show protocols all\n";
/// The interface of the router in its network namespace.
pub const INTERFACE: &str = "eth0";

/// The text of a configuration file for `settings`: their own one, if they have any. The daemon
/// announces only static routes, and keeps those that it learns in its tables: the kernel of its
/// namespace forwards nothing.
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
    let exports = exports(settings);
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
        line(&format!("  {family} {{ import all; export {exports}; next hop self; }};"));
        line("}");
    }
    let static_only = "export where source = RTS_STATIC";
    for (version, name, family, area) in
        [("v2", "ospf4", "ipv4", settings.ospf), ("v3", "ospf6", "ipv6", settings.ospf3)]
    {
        let Some(area) = area else { continue };
        let bfd = if settings.bfd.is_some() { " bfd on;" } else { "" };
        line(&format!("protocol ospf {version} {name} {{"));
        line(&format!("  {family} {{ import all; {static_only}; }};"));
        line(&format!(
            "  area {area} {{ interface \"{INTERFACE}\" {{ type broadcast; hello {}; dead {};{bfd} \
             }}; }};",
            seconds(settings.hello),
            seconds(settings.dead)
        ));
        line("}");
    }
    for (kind, name, family, wanted) in
        [("rip", "rip4", "ipv4", settings.rip), ("rip ng", "rip6", "ipv6", settings.ripng)]
    {
        if wanted {
            let update = seconds(settings.rip_update);
            line(&format!("protocol {kind} {name} {{"));
            line(&format!("  {family} {{ import all; {static_only}; }};"));
            line(&format!("  interface \"{INTERFACE}\" {{ update time {update}; }};"));
            line("}");
        }
    }
    for (name, family, is_ipv4) in [("static4", "ipv4", true), ("static6", "ipv6", false)] {
        let mut ranges =
            settings.routes.iter().filter(|range| range.first.is_ipv4() == is_ipv4).peekable();
        if ranges.peek().is_none() {
            continue;
        }
        _ = writeln!(text, "protocol static {name} {{\n  {family};");
        for range in ranges {
            for address in range.addresses() {
                _ = writeln!(text, "  route {address}/{} blackhole;", range.length);
            }
        }
        text.push_str("}\n");
    }
    text
}

/// The filter of the routes that BGP announces.
fn exports(settings: &RouterSettings) -> String {
    let Some(bgp) = &settings.bgp else { return "none".into() };
    let Bgp { asn, med, prepend, communities, .. } = bgp;
    let mut steps = String::new();
    if let Some(med) = med {
        _ = write!(steps, " bgp_med = {med};");
    }
    for _ in 0..*prepend {
        _ = write!(steps, " bgp_path.prepend({asn});");
    }
    for (high, low) in communities {
        _ = write!(steps, " bgp_community.add(({high},{low}));");
    }
    format!("filter {{ if source != RTS_STATIC then reject;{steps} accept; }}")
}

fn seconds(time: Nanos) -> u64 {
    (time.0 / Nanos::SECOND.0).max(1)
}

fn milliseconds(time: Nanos) -> u64 {
    (time.0 / 1_000_000).max(1)
}

/// A text in BIRD's quotes, which know no escapes.
fn quoted(text: &str) -> String {
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
mod tests;
