//! Flow state, bits that one rule sets for others, and counts.

use super::{parts, two_words};
use crate::rule::{Parsed, RuleBuilder, bad, contradiction, unsupported};
use crate::set::quoted;
use crate::values::{numbers, unsigned};
use crate::{
    BitVerb, Bits, Comparison, Count, CountKind, End, IntValue, IntVerb, PacketTest, Sourced,
    StreamSizeOf, Track,
};

pub(crate) fn flow(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let option = builder.option;
    let flow = &mut builder.rule.flow;
    flow.option = Some(option);
    for part in parts(value).filter(|part| !part.is_empty()) {
        match part.to_ascii_lowercase().as_str() {
            "to_server" | "from_client" => set_end(&mut flow.to, End::Server)?,
            "to_client" | "from_server" => set_end(&mut flow.to, End::Client)?,
            "established" => flow.established = Some(true),
            "not_established" => flow.established = Some(false),
            "stateless" => flow.stateless = true,
            "only_stream" => flow.stream = Some(true),
            "no_stream" => flow.stream = Some(false),
            "only_frag" => flow.fragments = Some(true),
            "no_frag" => flow.fragments = Some(false),
            _ => return bad(format!("{} is not understood", quoted(part))),
        }
    }
    Ok(())
}

fn set_end(to: &mut Option<End>, end: End) -> Parsed {
    match to.replace(end) {
        Some(other) if other != end => contradiction("to_server and to_client in one rule"),
        _ => Ok(()),
    }
}

fn add(builder: &mut RuleBuilder, is: Bits) {
    builder.rule.bits.push(Sourced { option: builder.option, is });
}

pub(crate) fn flowbits(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let mut parts = parts(value);
    let verb = parts.next().unwrap_or("");
    let names = parts.next().unwrap_or("");
    let verb = match verb {
        "noalert" => {
            builder.rule.silent = true;
            return Ok(());
        }
        // In Snort, resets all bits in a group.
        "reset" => {
            add(builder, Bits::Flow { verb: BitVerb::Unset, names: vec![], all: true });
            return Ok(());
        }
        "set" => BitVerb::Set,
        "setx" => BitVerb::SetExclusively,
        "unset" => BitVerb::Unset,
        "toggle" => BitVerb::Toggle,
        "isset" => BitVerb::IsSet,
        "isnotset" => BitVerb::IsNotSet,
        _ => {
            return bad(format!(
                "{} is not understood: expected set, unset, toggle, isset, isnotset or noalert",
                quoted(verb)
            ));
        }
    };
    if names.is_empty() || names.contains(char::is_whitespace) && !names.contains(['|', '&']) {
        return bad("expected a name without blanks");
    }
    let all = !names.contains('|');
    let names: Vec<String> = names.split(['|', '&']).map(|name| name.trim().to_owned()).collect();
    if names.iter().any(String::is_empty) {
        return bad("a name is missing");
    }
    add(builder, Bits::Flow { verb, names, all });
    Ok(())
}

fn verb(text: &str) -> Parsed<BitVerb> {
    Ok(match text {
        "set" => BitVerb::Set,
        "unset" => BitVerb::Unset,
        "toggle" => BitVerb::Toggle,
        "isset" => BitVerb::IsSet,
        "isnotset" => BitVerb::IsNotSet,
        _ => {
            return bad(format!(
                "{} is not understood: expected set, unset, toggle, isset or isnotset",
                quoted(text)
            ));
        }
    })
}

/// Parses `isset,name,track ip_src,expire 60`.
pub(crate) fn xbits(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let mut parts = parts(value);
    let first = parts.next().unwrap_or("");
    if first == "noalert" {
        builder.rule.silent = true;
        return Ok(());
    }
    let verb = verb(first)?;
    let Some(name) = parts.next().filter(|name| !name.is_empty()) else {
        return bad("expected a name");
    };
    let (mut track, mut seconds) = (None, None);
    for part in parts {
        match two_words(part) {
            ("track", "ip_src") => track = Some(Track::BySource),
            ("track", "ip_dst") => track = Some(Track::ByDestination),
            ("track", "ip_pair") => track = Some(Track::ByPair),
            ("track", "tx") => return unsupported("bits of a transaction"),
            ("expire", of) => seconds = Some(number(of)?),
            _ => {
                return bad(format!(
                    "{} is not understood: expected track or expire",
                    quoted(part)
                ));
            }
        }
    }
    let Some(track) = track else {
        return bad("`track` is missing: expected ip_src, ip_dst or ip_pair");
    };
    add(builder, Bits::Host { verb, name: name.to_owned(), track, seconds });
    Ok(())
}

/// Parses `set,name,src`.
pub(crate) fn hostbits(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let mut parts = parts(value);
    let first = parts.next().unwrap_or("");
    if first == "noalert" {
        builder.rule.silent = true;
        return Ok(());
    }
    let verb = verb(first)?;
    let Some(name) = parts.next().filter(|name| !name.is_empty()) else {
        return bad("expected a name");
    };
    let track = match parts.next().unwrap_or("src") {
        "src" => Track::BySource,
        "dst" => Track::ByDestination,
        "both" => Track::ByBoth,
        other => {
            return bad(format!("{} is not understood: expected src, dst or both", quoted(other)));
        }
    };
    add(builder, Bits::Host { verb, name: name.to_owned(), track, seconds: None });
    Ok(())
}

/// Parses `name, +, 1`.
pub(crate) fn flowint(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let mut parts = parts(value);
    let name = parts.next().unwrap_or("").to_owned();
    if name.is_empty() {
        return bad("expected a name");
    }
    let operator = parts.next().unwrap_or("");
    let verb = match operator {
        "+" => IntVerb::Add,
        "-" => IntVerb::Subtract,
        "=" => IntVerb::Set,
        "<" => IntVerb::Is(Comparison::Less),
        "<=" => IntVerb::Is(Comparison::LessOrEqual),
        "==" => IntVerb::Is(Comparison::Equal),
        ">" => IntVerb::Is(Comparison::Greater),
        ">=" => IntVerb::Is(Comparison::GreaterOrEqual),
        "!=" => IntVerb::IsNot,
        "isset" => IntVerb::IsSet,
        "notset" | "isnotset" => IntVerb::NotSet,
        _ => {
            return bad(format!(
                "unknown operator {}: expected +, -, =, <, <=, ==, >=, >, !=, isset or notset",
                quoted(operator)
            ));
        }
    };
    let value = match (parts.next(), verb) {
        (None | Some(""), IntVerb::IsSet | IntVerb::NotSet) => IntValue::None,
        (None | Some(""), _) => return bad("expected a number or the name of another variable"),
        (Some(text), _) => match unsigned(text).map(u32::try_from) {
            Some(Ok(number)) => IntValue::Is(number),
            Some(Err(_)) => return bad(format!("{} does not fit into 32 bits", quoted(text))),
            None => IntValue::Of(text.to_owned()),
        },
    };
    add(builder, Bits::Int { name, verb, value });
    Ok(())
}

fn number(text: &str) -> Parsed<u32> {
    match unsigned(text).and_then(|number| u32::try_from(number).ok()) {
        Some(number) => Ok(number),
        None => bad(format!("{} is not a number", quoted(text))),
    }
}

fn track(text: &str) -> Parsed<Track> {
    Ok(match text {
        "by_src" => Track::BySource,
        "by_dst" => Track::ByDestination,
        "by_both" => Track::ByBoth,
        "by_rule" => Track::ByRule,
        "by_flow" => Track::ByFlow,
        _ => {
            return bad(format!(
                "{} is not understood: expected by_src, by_dst, by_both, by_rule or by_flow",
                quoted(text)
            ));
        }
    })
}

/// Parses `type limit, track by_src, count 1, seconds 60`.
pub(crate) fn threshold(builder: &mut RuleBuilder, value: &str) -> Parsed {
    count(builder, value, None)
}

pub(crate) fn detection_filter(builder: &mut RuleBuilder, value: &str) -> Parsed {
    count(builder, value, Some(CountKind::DetectionFilter))
}

fn count(builder: &mut RuleBuilder, value: &str, kind: Option<CountKind>) -> Parsed {
    let (mut kind, mut by, mut count, mut seconds, mut multiplier) = (kind, None, None, None, None);
    let filter = kind.is_some();
    for part in parts(value).filter(|part| !part.is_empty()) {
        match two_words(part) {
            ("type", _) if filter => return bad("detection_filter has no type"),
            ("type", "limit") => kind = Some(CountKind::Limit),
            ("type", "threshold") => kind = Some(CountKind::Threshold),
            ("type", "both") => kind = Some(CountKind::Both),
            ("type", "backoff") => kind = Some(CountKind::Backoff { multiplier: 1 }),
            ("track", of) => by = Some(track(of)?),
            ("count", of) => count = Some(number(of)?),
            ("seconds", of) => seconds = Some(number(of)?),
            ("multiplier", of) => multiplier = Some(number(of)?),
            // Suricata 8: counts only distinct values.
            ("unique_on", _) => return unsupported("counts of distinct ports"),
            _ => return bad(format!("{} is not understood", quoted(part))),
        }
    }
    let (Some(kind), Some(track), Some(count)) = (kind, by, count) else {
        return bad("expected type, track, count and seconds");
    };
    let (kind, seconds) = match (kind, seconds) {
        (CountKind::Backoff { .. }, _) => match multiplier {
            Some(multiplier) if multiplier > 1 => (CountKind::Backoff { multiplier }, 0),
            _ => return bad("backoff needs a multiplier of 2 or more"),
        },
        (_, None) => return bad("`seconds` is missing"),
        (kind, Some(seconds)) => (kind, seconds),
    };
    if count == 0 {
        return bad("count must not be 0");
    }
    builder
        .rule
        .counts
        .push(Sourced { option: builder.option, is: Count { kind, track, count, seconds } });
    Ok(())
}

/// Parses `server,>,1024`, or in Snort 3 `>1024,to_server`.
pub(crate) fn stream_size(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let all: Vec<&str> = parts(value).collect();
    let (of, size) = match all[..] {
        [of, operator, size] => (of, format!("{operator}{size}")),
        [size, of] => (of, size.to_owned()),
        _ => return bad("expected server, client, both or either, an operator and a number"),
    };
    let of = match of {
        "client" | "to_server" => StreamSizeOf::Client,
        "server" | "to_client" => StreamSizeOf::Server,
        "both" => StreamSizeOf::Both,
        "either" => StreamSizeOf::Either,
        _ => {
            return bad(format!(
                "{} is not understood: expected server, client, both or either",
                quoted(of)
            ));
        }
    };
    let size = numbers(&size, u32::MAX.into(), &[])?;
    builder.packet(PacketTest::StreamSize { of, size });
    Ok(())
}

/// Parses `toserver,>10`.
fn of_end(value: &str) -> Parsed<(Option<End>, crate::Numbers)> {
    let Some((of, count)) = value.split_once(',') else {
        return bad("expected toserver, toclient or either, and a number");
    };
    let of = match of.trim() {
        "toserver" => Some(End::Client),
        "toclient" => Some(End::Server),
        "both" => None,
        "either" => return unsupported("either end"),
        other => return bad(format!("{} is not understood", quoted(other))),
    };
    Ok((of, numbers(count, u64::MAX, &[])?))
}

pub(crate) fn flow_packets(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let (of, count) = of_end(value)?;
    builder.packet(PacketTest::FlowPackets { of, count });
    Ok(())
}

pub(crate) fn flow_octets(builder: &mut RuleBuilder, value: &str) -> Parsed {
    let (of, count) = of_end(value)?;
    builder.packet(PacketTest::FlowOctets { of, count });
    Ok(())
}
