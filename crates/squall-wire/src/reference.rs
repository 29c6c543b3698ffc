//! Generates the reference from the table.

use std::fmt::Write;

use crate::header::{FieldDef, FieldKind, HeaderDef, Presence, headers, list, payloads};
use crate::options::usage;

/// The reference in Markdown: every header with its fields, and the payload layers.
pub fn reference() -> String {
    let mut out = String::from(INTRODUCTION);
    for header in headers() {
        section(&mut out, header);
    }
    out += "\n## Payload\n\n";
    out += "Payload layers come after the headers, in any order. If the frame is longer than the \
            packet, the last layer fills it if it is `pattern`, or `random`, `zeros` or `inc` \
            without a number; otherwise zeros follow.\n\n";
    for p in payloads() {
        let aliases = aliases(p.aliases);
        let _ = writeln!(out, "- {}{aliases}", p.title);
    }
    out
}

const INTRODUCTION: &str = "# Packet syntax

`layer/layer(field=value, ...)/...`, outermost first; spaces do not matter. Fields that are not \
     set have the defaults below; lengths, checksums and the number of the next header are filled \
     in. Some defaults depend on the protocol inside: an ARP request is sent to the broadcast \
     address; IGMP is sent to its group with TTL 1 and Router Alert; neighbor discovery has hop \
     limit 255, MLD hop limit 1. Values are decimal or 0x hex, addresses, or names. `auto` asks \
     explicitly for a length, checksum or next header to be filled in, `checksum=bad` makes a \
     wrong one, and any number sets the field to that number.

    eth/vlan(id=5)/ipv4(dst=48.0.0.1, dscp=ef)/tcp(dport=80, flags=S, options=[mss(1460), nop, \
     wscale(7)])
    eth/ipv4/udp/vxlan(vni=7)/eth/ipv6/udp(checksum=bad)/text(\"hello\")
    eth/ipv4(length=9000)/udp/inc/truncate(30)

Names of fields in field programs: `ipv4.src`, `vlan[1].id` (the second, from the outside), \
     `udp[-1].sport` (the innermost), `payload[4:2]` (2 octets from the fifth of the payload), \
     `frame[12:2]` (from the start of the frame).
";

fn section(out: &mut String, h: &HeaderDef) {
    let _ = write!(out, "\n## {}{}\n\n{}", h.name, aliases(h.aliases), h.title);
    let carries: Vec<_> = h.carries().collect();
    let _ = match &carries[..] {
        [] => write!(out, ". Payload follows.\n\n"),
        names => write!(out, ". Can be followed by {} or payload.\n\n", names.join(", ")),
    };
    *out += "| field | bits | default | |\n|---|---|---|---|\n";
    for f in h.fields {
        let bits = if f.bits == 0 { "".into() } else { f.bits.to_string() };
        let doc = format!("{}{}", f.doc, names(f));
        let _ = writeln!(
            out,
            "| {}{} | {bits} | {} | {} |",
            f.name,
            aliases(f.aliases),
            default(f),
            doc.replace('|', "\\|")
        );
    }
    for f in h.fields {
        let FieldKind::Options(set) = f.kind else { continue };
        if set.defs().is_empty() {
            continue;
        }
        let _ = writeln!(out, "\n{}: `hex(...)` and", f.name);
        for d in set.defs() {
            let _ = writeln!(out, "- `{}`: {}", usage(d), d.doc);
        }
    }
}

fn aliases(names: &[&str]) -> String {
    if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) }
}

fn default(f: &FieldDef) -> String {
    match (&f.kind, f.presence) {
        (_, Presence::Flag { .. } | Presence::FirstOctet(_)) => "absent".into(),
        (FieldKind::Length | FieldKind::Checksum, _) => "filled".into(),
        (FieldKind::Options(_), _) => "none".into(),
        (FieldKind::Next(_), _) => format!("filled, or {}", number(f)),
        _ => f.kind.format(f.default),
    }
}

/// Formats the default of a field whose numbers are usually written in hex.
fn number(f: &FieldDef) -> String {
    if f.default > 0x600 { format!("{:#06x}", f.default) } else { f.default.to_string() }
}

fn names(f: &FieldDef) -> String {
    let (FieldKind::Number(names) | FieldKind::Next(names) | FieldKind::Flags(names)) = f.kind
    else {
        return String::new();
    };
    if names.is_empty() {
        String::new()
    } else {
        format!(". Names: {}", list(names.iter().map(|n| n.0)))
    }
}
