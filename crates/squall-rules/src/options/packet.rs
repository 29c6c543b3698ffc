//! Options that test packet headers.

use super::parts;
use crate::rule::{Parsed, RuleBuilder, bad, unsupported};
use crate::set::quoted;
use crate::values::{Names, numbers, unsigned};
use crate::{PacketTest, Which};

pub(crate) const VALIDITY: Names = &[("invalid", 0), ("valid", 1)];

/// Parses `S,12`, `+SA`, `*FPU`, `!R` or `0`.
pub(crate) fn flags(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let (flags, ignored) = value.split_once(',').unwrap_or((value, ""));
    let (bits, which) = bits(flags, tcp_flag)?;
    let (ignored, _) = bits_of(ignored, tcp_flag)?;
    builder.packet(PacketTest::Flags { bits, ignored, which });
    Ok(())
}

fn tcp_flag(letter: char) -> Option<u8> {
    Some(match letter {
        'F' | 'f' => 1,
        'S' | 's' => 2,
        'R' | 'r' => 4,
        'P' | 'p' => 8,
        'A' | 'a' => 16,
        'U' | 'u' => 32,
        'E' | 'e' | '2' => 64,
        'C' | 'c' | '1' => 128,
        '0' => 0,
        _ => return None,
    })
}

/// Parses `MD+` or `!R`.
pub(crate) fn fragbits(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let (bits, which) = bits(value, |letter| {
        Some(match letter {
            'M' => 1,
            'D' => 2,
            'R' => 4,
            _ => return None,
        })
    })?;
    builder.packet(PacketTest::FragmentBits { bits, which });
    Ok(())
}

fn bits(text: &str, bit: fn(char) -> Option<u8>) -> Parsed<(u8, Which)> {
    let (bits, which) = bits_of(text, bit)?;
    if text.trim().is_empty() {
        return bad("expected letters of bits");
    }
    Ok((bits, which))
}

fn bits_of(text: &str, bit: fn(char) -> Option<u8>) -> Parsed<(u8, Which)> {
    let mut which = Which::Exactly;
    let mut bits = 0;
    for letter in text.chars().filter(|c| !c.is_whitespace()) {
        match letter {
            '+' => which = Which::All,
            '*' => which = Which::Any,
            '!' => which = Which::None,
            // Suricata accepts `=`, which is the default.
            '=' => {}
            letter => match bit(letter) {
                Some(bit) => bits |= bit,
                None => return bad(format!("unknown bit {letter:?}")),
            },
        }
    }
    Ok((bits, which))
}

pub(crate) fn ipopts(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let (value, negated) =
        value.strip_prefix('!').map_or((value, false), |rest| (rest.trim(), true));
    let kind = match value.to_ascii_lowercase().as_str() {
        "any" => None,
        "eol" => Some(0),
        "nop" => Some(1),
        "rr" => Some(7),
        "qs" => Some(25),
        "ts" => Some(68),
        "sec" => Some(130),
        "lsrr" | "lsrre" => Some(131),
        "esec" => Some(133),
        "cipso" => Some(134),
        "satid" => Some(136),
        "ssrr" => Some(137),
        "rtralt" => Some(148),
        _ => return bad(format!("unknown IP option {}", quoted(value))),
    };
    builder.packet(PacketTest::IpOption { kind, negated });
    Ok(())
}

/// Names in /etc/protocols that rules use.
const IP_PROTOCOLS: Names = &[
    ("ip", 0),
    ("hopopt", 0),
    ("icmp", 1),
    ("igmp", 2),
    ("ggp", 3),
    ("ipencap", 4),
    ("ipip", 4),
    ("st", 5),
    ("tcp", 6),
    ("egp", 8),
    ("igp", 9),
    ("pup", 12),
    ("udp", 17),
    ("hmp", 20),
    ("xns-idp", 22),
    ("rdp", 27),
    ("dccp", 33),
    ("ipv6", 41),
    ("ipv6-route", 43),
    ("ipv6-frag", 44),
    ("idrp", 45),
    ("rsvp", 46),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("skip", 57),
    ("ipv6-icmp", 58),
    ("icmpv6", 58),
    ("ipv6-nonxt", 59),
    ("ipv6-opts", 60),
    ("eigrp", 88),
    ("ospf", 89),
    ("etherip", 97),
    ("pim", 103),
    ("ipcomp", 108),
    ("vrrp", 112),
    ("l2tp", 115),
    ("isis", 124),
    ("sctp", 132),
    ("fc", 133),
    ("udplite", 136),
    ("mpls-in-ip", 137),
];

pub(crate) fn ip_proto(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let set = numbers(value, u8::MAX.into(), IP_PROTOCOLS)?;
    builder.packet(PacketTest::IpProtocol(set));
    Ok(())
}

pub(crate) fn l3_proto(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let version = match value.trim().to_ascii_lowercase().as_str() {
        "ip4" | "ipv4" => 4,
        "ip6" | "ipv6" => 6,
        _ => {
            return unsupported(format!(
                "{} is not supported: expected ipv4 or ipv6",
                quoted(value)
            ));
        }
    };
    builder.packet(PacketTest::IpVersion(version));
    Ok(())
}

/// Parses `100083, *, 15`.
pub(crate) fn rpc(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let mut numbers = parts(value).map(|part| match part {
        "*" | "" => Ok(None),
        part => match unsigned(part).and_then(|number| u32::try_from(number).ok()) {
            Some(number) => Ok(Some(number)),
            None => bad(format!("{} is not a number", quoted(part))),
        },
    });
    let mut next = || numbers.next().unwrap_or(Ok(None));
    let (program, version, procedure) = (next()?, next()?, next()?);
    let Some(program) = program else { return bad("expected the number of a program") };
    builder.packet(PacketTest::Rpc { program, version, procedure });
    Ok(())
}
