//! SNMP 1, 2c (RFC 1157, RFC 3416) and 3 (RFC 3412, RFC 3414).

use squall_rules::{ApplicationTest, Buffer, End};

use super::der::{node, oid, plain, sequence};
use super::fields::{number, other, payload};
use super::{Impossible, Parts};
use crate::{Octets, Turn};

// Context tags of PDUs (RFC 1157 §4.1, RFC 3416 §3).
const RESPONSE: u8 = 2;
const TRAP: u8 = 4;

pub(super) fn conversation(parts: &Parts) -> Result<Vec<Turn>, Impossible> {
    let version = number(
        parts,
        |test| match test {
            ApplicationTest::SnmpVersion(numbers) => Some(numbers),
            _ => None,
        },
        &[2, 1, 3],
        3,
    )?;
    let kind = number(
        parts,
        |test| match test {
            ApplicationTest::SnmpPduType(numbers) => Some(numbers),
            _ => None,
        },
        &[0, 1, 3, 5],
        8,
    )?;
    let trap = other(parts, "snmp.trap_type", &[6], 6)?;
    let either = |buffer| parts.get(buffer, End::Client).or_else(|| parts.get(buffer, End::Server));
    let user = either(Buffer::SnmpUser);
    let community = either(Buffer::SnmpCommunity);
    if user.is_some() && community.is_some() {
        return Err(Impossible("SNMP 3 has users, other versions have communities".into()));
    }
    let kind = kind.map_or(if trap.is_some() { TRAP } else { 0 }, |kind| kind as u8);
    let usual = match (user.is_some(), kind == TRAP) {
        (true, _) => 3,
        (_, true) => 1,
        _ => 2,
    };
    let version = version.unwrap_or(usual);
    if (version == 3) != user.is_some() && (user.is_some() || community.is_some()) || version == 0 {
        return Err(Impossible(format!("SNMP {version} has no such field")));
    }
    let turn = |from: End, kind: u8| {
        let value = payload(parts, from).map_or_else(|| plain(5, b""), |octets| node(4, [octets]));
        let pdu =
            if kind == TRAP { trap_pdu(trap.unwrap_or(6) as u8, value) } else { pdu(kind, value) };
        let octets = match version {
            3 => newest(user, pdu),
            version => {
                let community = community.cloned().unwrap_or_else(|| "public".into());
                sequence([plain(2, &[version as u8 - 1]), node(4, [community]), pdu])
            }
        };
        Turn::new(from, octets)
    };
    // Traps and reports have no response, and a response needs a request.
    Ok(match kind {
        RESPONSE => vec![turn(End::Client, 0), turn(End::Server, RESPONSE)],
        TRAP | 7 | 8 => vec![turn(End::Client, kind)],
        kind => vec![turn(End::Client, kind), turn(End::Server, RESPONSE)],
    })
}

fn pdu(kind: u8, value: Octets) -> Octets {
    let (a, b): (&[u8], &[u8]) = if kind == 5 { (&[0], &[10]) } else { (&[0], &[0]) };
    node(0xa0 | kind, [plain(2, &[0x51, 0x0a, 0x31]), plain(2, a), plain(2, b), bindings(value)])
}

/// Trap-PDU of RFC 1157 §4.1.6. `kind` is the generic trap.
fn trap_pdu(kind: u8, value: Octets) -> Octets {
    node(
        0xa0 | TRAP,
        [
            oid(&[0x2b, 6, 1, 4, 1, 0x82, 0x37]),
            plain(0x40, &[192, 0, 2, 1]),
            plain(2, &[kind]),
            plain(2, &[1]),
            plain(0x43, &[0x51, 0x33]),
            bindings(value),
        ],
    )
}

/// Variable bindings: sysDescr with `value`.
fn bindings(value: Octets) -> Octets {
    sequence([sequence([oid(&[0x2b, 6, 1, 2, 1, 1, 1, 0]), value])])
}

fn newest(user: Option<&Octets>, pdu: Octets) -> Octets {
    let engine = || plain(4, b"\x80\0\x1f\x88\x80\x51\x0a\x77\x31");
    let header =
        [plain(2, &[0x51, 0x33]), plain(2, &[0, 0xff, 0xe3]), plain(4, &[4]), plain(2, &[3])];
    let security = sequence([
        engine(),
        plain(2, &[1]),
        plain(2, &[0x51]),
        node(4, [user.cloned().unwrap_or_else(|| "user".into())]),
        plain(4, b""),
        plain(4, b""),
    ]);
    let scoped = sequence([engine(), plain(4, b""), pdu]);
    sequence([plain(2, &[3]), sequence(header), node(4, [security]), scoped])
}
