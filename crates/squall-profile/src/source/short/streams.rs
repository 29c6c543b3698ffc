//! `squall send`: one stream.

use super::{Short, Table, scalar};
use crate::{Diagnostics, Profile, source::node::Value};

/// One stream on port A. The arguments are keys of a stream. If no rate is given, it is `max`.
///
/// ```
/// use squall_profile::{Mode, short::{Argument, Short, stream}};
///
/// let argument = |key: &str, text: &str| Argument {
///     key: key.to_owned(),
///     name: format!("--{key}"),
///     text: Some(text.to_owned()),
/// };
/// let mut arguments = [
///     argument("packet", "eth/ipv4/udp"),
///     argument("mode", "burst=10"),
///     argument("size", "64-1518"),
/// ];
/// fn short(arguments: &[Argument]) -> Short<'_> {
///     Short { command: "squall send", ports: &["loop:0"], arguments }
/// }
/// assert_eq!(stream(short(&arguments))?.streams[0].mode, Mode::Burst(10));
/// arguments[2] = argument("size", "tiny");
/// let mistakes = stream(short(&arguments)).unwrap_err().to_string();
/// assert!(mistakes.starts_with("squall send: --size  size = \"tiny\" is not"), "{mistakes}");
/// # Ok::<(), squall_profile::Diagnostics>(())
/// ```
///
/// # Errors
/// All errors, each with its argument.
pub fn stream(short: Short<'_>) -> Result<Profile, Diagnostics> {
    let mut stream = Table::default();
    stream.set("port", "A");
    for one in short.all() {
        let (key, text) = (one.key(), one.text());
        match key {
            "size" => stream.add(key, one.node(size(text))),
            "mode" | "departures" => stream.add(key, one.node(word_or_table(text))),
            "vary" => {
                let wrong = || {
                    let hint = "try ipv4.src=random:16.0.0.1-16.0.0.254, \
                                udp.sport=increment:1024-65535:step=3, \
                                ipv4.dst=list:10.0.0.1,10.0.0.2, @34:2=random:0-65535";
                    short.mistake(one, "expected FIELD=OP", hint)
                };
                let table = vary(text).ok_or_else(wrong)?;
                stream.append(key, one.node(table.into()));
            }
            _ => stream.add(key, one.value()),
        }
    }
    if !stream.has("rate") {
        stream.set("rate", "max");
    }
    let mut profile = Table::default();
    profile.set("stream", Value::from_iter([stream]));
    short.profile(profile)
}

/// Parses `continuous`, or `bursts=5,packets=4,gap=1s`.
fn word_or_table(text: &str) -> Value {
    if !text.contains('=') {
        return text.into();
    }
    let mut table = Table::default();
    for entry in text.split(',') {
        let (key, value) = entry.split_once('=').unwrap_or((entry, ""));
        table.set(key.trim(), scalar(value));
    }
    table.into()
}

/// Parses `64`, `imix`, `64-1518`, `64,594`, `uniform=64-1518`, `mean=512,sd=100`,
/// `weights=64*7,594*4`, `genome=7a4d1g`.
fn size(text: &str) -> Value {
    let mut law = Table::default();
    if let Some(weights) = text.strip_prefix("weights=") {
        let pair = |entry| Value::from_iter(<[_; 2]>::from(weighted(entry)).map(scalar));
        law.set("weights", weights.split(',').map(pair).collect::<Value>());
        return law.into();
    }
    match word_or_table(text) {
        Value::Table(normal) if normal.iter().any(|entry| entry.key == "mean") => {
            law.set("normal", Table(normal));
            law.into()
        }
        Value::Text(_) if text.contains(',') => text.split(',').map(scalar).collect(),
        Value::Text(_) => scalar(text),
        law => law,
    }
}

/// Parses `64*7`. The default weight is 1.
fn weighted(entry: &str) -> (&str, &str) {
    entry.split_once('*').unwrap_or((entry, "1"))
}

/// Keys that may follow the values of a field program.
const VARY_KEYS: [&str; 6] = ["step", "init", "limit", "seed", "after", "name"];

/// Parses `FIELD=OP:VALUES[:key=value]...`. Values may contain colons (IPv6, MAC), so the keys are
/// split off from the end.
fn vary(text: &str) -> Option<Table> {
    let (field, rest) = text.split_once('=')?;
    let (op, mut values) = rest.split_once(':').unwrap_or((rest, ""));
    let mut table = Table::default();
    while let Some((before, key, value)) = last_key(values) {
        table.set(key, scalar(value));
        values = before;
    }
    let values = values.trim_end_matches(':');
    table.set("op", op);
    if op == "tuple" {
        let (ip, port) = values.split_once(',').unwrap_or((values, ""));
        table.set("fields", field.split('+').map(str::trim).collect::<Value>());
        range(&mut table, ip, ["ip_min", "ip_max"]);
        if !port.is_empty() {
            range(&mut table, port, ["port_min", "port_max"]);
        }
        return Some(table);
    }
    match field.strip_prefix('@') {
        None => table.set("field", field),
        Some(place) => {
            let (place, mask) =
                place.split_once('&').map_or((place, None), |(place, mask)| (place, Some(mask)));
            let (offset, octets) = place.split_once(':')?;
            table.set("offset", scalar(offset));
            table.set("octets", scalar(octets));
            mask.into_iter().for_each(|mask| table.set("mask", scalar(mask)));
        }
    }
    let entries = || values.split(',');
    match op {
        "list" => table.set("values", entries().map(scalar).collect::<Value>()),
        "weighted" => {
            let (values, weights): (Vec<_>, Vec<_>) = entries().map(weighted).unzip();
            table.set("values", values.into_iter().map(scalar).collect::<Value>());
            table.set("weights", weights.into_iter().map(scalar).collect::<Value>());
        }
        "file" => table.set("path", values),
        // Unknown operation, for which the profile's reader suggests similar ones.
        _ if values.is_empty() => {}
        _ => range(&mut table, values, ["min", "max"]),
    }
    Some(table)
}

/// The last `:key=value` with a known key, and the text before it.
fn last_key(text: &str) -> Option<(&str, &str, &str)> {
    // An entry may have no values before the keys: `increment:step=3`.
    let (before, entry) = text.rsplit_once(':').unwrap_or(("", text));
    let (key, value) = entry.split_once('=')?;
    VARY_KEYS.contains(&key).then_some((before, key, value))
}

fn range(table: &mut Table, text: &str, [min, max]: [&str; 2]) {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    table.set(min, scalar(low));
    table.set(max, scalar(high));
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;
    use crate::source::node::Node;

    fn json_of(value: impl Into<Node>) -> Json {
        Json::from(&value.into())
    }

    #[test]
    fn a_vary_is_the_table_that_a_profile_would_hold() {
        for (text, expected) in [
            (
                "ipv4.src=random:16.0.0.0-18.0.0.254",
                json!({ "field": "ipv4.src", "op": "random", "min": "16.0.0.0", "max": "18.0.0.254" }),
            ),
            (
                "udp.sport=increment:1024-65535:step=3:init=2000",
                json!({ "field": "udp.sport", "op": "increment", "min": 1024, "max": 65535, "step": 3, "init": 2000 }),
            ),
            (
                "ipv6.dst=random:2001:db8::1-2001:db8::ff:limit=7",
                json!({ "field": "ipv6.dst", "op": "random", "min": "2001:db8::1", "max": "2001:db8::ff", "limit": 7 }),
            ),
            (
                "ipv4.dst=list:10.0.0.1,10.0.0.2",
                json!({ "field": "ipv4.dst", "op": "list", "values": ["10.0.0.1", "10.0.0.2"] }),
            ),
            (
                "ipv4.ttl=weighted:64*3,1",
                json!({ "field": "ipv4.ttl", "op": "weighted", "values": [64, 1], "weights": [3, 1] }),
            ),
            (
                "@34:2&0x0ff0=random:0-65535",
                json!({ "offset": 34, "octets": 2, "mask": "0x0ff0", "op": "random", "min": 0, "max": 65535 }),
            ),
            (
                "udp.dport=file:ports:1.txt",
                json!({ "field": "udp.dport", "op": "file", "path": "ports:1.txt" }),
            ),
            (
                "ipv4.src+udp.sport=tuple:16.0.0.1-16.0.0.9,1025-2000",
                json!({ "op": "tuple", "fields": ["ipv4.src", "udp.sport"], "ip_min": "16.0.0.1", "ip_max": "16.0.0.9",
                    "port_min": 1025, "port_max": 2000 }),
            ),
        ] {
            assert_eq!(json_of(vary(text).unwrap()), expected, "{text}");
        }
        assert!(vary("ipv4.src").is_none());
        assert!(vary("@34=random:0-1").is_none());
    }

    #[test]
    fn sizes_and_laws_are_words_lists_and_tables() {
        for (text, expected) in [
            ("64", json!(64)),
            ("imix", json!("imix")),
            ("imix:7a4d1g", json!("imix:7a4d1g")),
            ("64-1518/64", json!("64-1518/64")),
            ("64,594", json!([64, 594])),
            ("uniform=64-1518", json!({ "uniform": "64-1518" })),
            ("mean=512,sd=100.5", json!({ "normal": { "mean": 512, "sd": 100.5 } })),
            ("weights=64*7,1518", json!({ "weights": [[64, 7], [1518, 1]] })),
        ] {
            assert_eq!(json_of(size(text)), expected, "{text}");
        }
        assert_eq!(json_of(word_or_table("continuous")), json!("continuous"));
        assert_eq!(
            json_of(word_or_table("bursts=5,packets=4,gap=1s")),
            json!({ "bursts": 5, "packets": 4, "gap": "1s" })
        );
    }
}
