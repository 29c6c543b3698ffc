//! The schema of Open Traffic Generator: JSON and protobuf to checked values, and values to both.
//!
//! Values have the form of protobuf's JSON mapping with the schema's own names (`tx_rx`),
//! enumerations as words and each number as a number. The mapping allows variants (`txRx`, `"12"`,
//! `null`), which are normalized here, so readers handle one form only. This module does not
//! interpret the fields.

#[path = "schema/budget.rs"]
mod budget;

use std::{fmt::Write as _, sync::LazyLock};

use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, SerializeOptions,
    prost::Message as _,
};
use serde_json::{Map, Number, Value};

/// Maximum number of errors to report at once.
const MAX_ERRORS: usize = 20;

/// Maximum number of objects in one list. There cannot be more flows, because a signature has 16
/// bits for the stream's number; no other list needs more.
const MAX_LIST: usize = 65_536;

/// Maximum number of values of a request, where an object or a list counts as [`OBJECT_WEIGHT`].
/// 65,536 flows have a dozen or two objects each. Without the limit, a request with two octets per
/// object would take gigabytes once parsed.
const MAX_VALUES: usize = 8_000_000;
const OBJECT_WEIGHT: usize = 4;

/// Descriptor set from the PyPI package snappi 1.62.0 (see otg.md).
static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    // The global pool has the imports of OTG (descriptor.proto, empty.proto).
    let mut pool = DescriptorPool::global();
    pool.decode_file_descriptor_proto(include_bytes!("../../otg.pb").as_slice())
        .expect("the descriptor that is built in");
    pool
});

/// The descriptor of a message of the schema: `Config`, `MetricsRequest`.
///
/// # Panics
/// If the schema has no message of that name.
pub fn message(name: &str) -> MessageDescriptor {
    POOL.get_message_by_name(&format!("otg.{name}"))
        .unwrap_or_else(|| panic!("the schema has no {name}"))
}

/// Reads JSON as a message of type `of`.
///
/// # Errors
/// Malformed JSON, with line and column; otherwise each value that does not fit, with its path:
/// "flows\[3\].rate.pps: ...".
pub fn from_json(of: &MessageDescriptor, octets: &[u8]) -> Result<Value, Vec<String>> {
    budget::of_json(octets)?;
    match serde_json::from_slice(octets) {
        Ok(value) => checked(of, value),
        Err(error) => Err(vec![format!(
            "the request is not JSON: {error}\n  expected an object of type {}",
            of.name()
        )]),
    }
}

/// Reads protobuf as a message of type `of`. Ignores unknown fields, because in protobuf they come
/// from a newer schema.
///
/// # Errors
/// As [`from_json`].
pub fn from_protobuf(of: &MessageDescriptor, octets: &[u8]) -> Result<Value, Vec<String>> {
    budget::of_protobuf(of, octets)?;
    let message = DynamicMessage::decode(of.clone(), octets).map_err(|error| {
        vec![format!("the request is not a protobuf message of type {}: {error}", of.full_name())]
    })?;
    let options =
        SerializeOptions::new().stringify_64_bit_integers(false).use_proto_field_name(true);
    match message.serialize_with_options(serde_json::value::Serializer, &options) {
        Ok(value) => checked(of, value),
        Err(error) => {
            Err(vec![format!("the request cannot be read as {}: {error}", of.full_name())])
        }
    }
}

/// Encodes `value` of type `of` as protobuf.
///
/// # Errors
/// The path of a value that does not fit the type.
pub fn to_protobuf(of: &MessageDescriptor, value: &Value) -> Result<Vec<u8>, String> {
    let message = DynamicMessage::deserialize(of.clone(), value);
    message
        .map(|message| message.encode_to_vec())
        .map_err(|error| format!("a reply is no {}: {error}", of.name()))
}

/// Prints `value` of type `of` as JSON that every client can read. 64-bit integers are strings, as
/// protobuf's mapping defines. No number has an exponent, because Python clients parse the reply as
/// YAML, where 1e-7 and 1.7e18 are strings.
pub fn to_json(of: &MessageDescriptor, value: &Value) -> String {
    let mut out = String::new();
    print_message(of, value, &mut out);
    out
}

/// Checks and normalizes `value`.
///
/// # Errors
///
/// Each value that does not fit, with its path.
fn checked(of: &MessageDescriptor, mut value: Value) -> Result<Value, Vec<String>> {
    let mut checker = Checker { path: String::new(), wrong: vec![], more: 0 };
    checker.message(of, &mut value);
    if checker.more > 0 {
        checker.wrong.push(format!("and {} more", checker.more));
    }
    if checker.wrong.is_empty() { Ok(value) } else { Err(checker.wrong) }
}

struct Checker {
    path: String,
    wrong: Vec<String>,
    more: usize,
}

impl Checker {
    fn wrong(&mut self, what: impl std::fmt::Display) {
        if self.wrong.len() == MAX_ERRORS {
            self.more += 1;
        } else if self.path.is_empty() {
            self.wrong.push(what.to_string());
        } else {
            self.wrong.push(format!("{}: {what}", self.path));
        }
    }

    /// Runs `what` with `step` appended to the path.
    fn at(&mut self, step: std::fmt::Arguments<'_>, what: impl FnOnce(&mut Self)) {
        let before = self.path.len();
        self.path.write_fmt(step).expect("a string takes everything");
        what(self);
        self.path.truncate(before);
    }

    fn message(&mut self, of: &MessageDescriptor, value: &mut Value) {
        let Value::Object(object) = value else {
            return self.wrong(format_args!(
                "expected an object ({}), found {}",
                of.name(),
                found(value)
            ));
        };
        let mut kept = Map::new();
        for (name, mut value) in std::mem::take(object) {
            let field = of.get_field_by_name(&name).or_else(|| of.get_field_by_json_name(&name));
            let dot = if self.path.is_empty() { "" } else { "." };
            let Some(field) = field else {
                let advice = advice(of, &name);
                self.at(format_args!("{dot}{}", shortened(&name)), |this| {
                    this.wrong(format_args!("{} has no such field\n  try {advice}", of.name()));
                });
                continue;
            };
            // In protobuf's JSON mapping, null means absent.
            if value.is_null() {
                continue;
            }
            let mut there = true;
            self.at(format_args!("{dot}{}", field.name()), |this| {
                there = this.field(&field, &mut value)
            });
            if there && kept.insert(field.name().to_string(), value).is_some() {
                self.wrong(format_args!("{} occurs twice", field.name()));
            }
        }
        *object = kept;
    }

    /// Returns false if the value means the same as an absent field.
    fn field(&mut self, field: &FieldDescriptor, value: &mut Value) -> bool {
        if !field.is_list() {
            return self.single(&field.kind(), value);
        }
        let Value::Array(items) = value else {
            self.wrong(format_args!("expected a list, found {}", found(value)));
            return false;
        };
        let kind = field.kind();
        for (index, item) in items.iter_mut().enumerate() {
            self.at(format_args!("[{index}]"), |this| {
                if !this.single(&kind, item) {
                    this.wrong("\"unspecified\" is not a value");
                }
            });
        }
        // Protobuf does not distinguish an empty list from an absent one.
        !items.is_empty()
    }

    fn single(&mut self, kind: &Kind, value: &mut Value) -> bool {
        match kind {
            Kind::Message(message) => self.message(message, value),
            Kind::Enum(words) => {
                let known = match &*value {
                    Value::String(word) => words.get_value_by_name(word),
                    number => number
                        .as_i64()
                        .and_then(|n| i32::try_from(n).ok())
                        .and_then(|n| words.get_value(n)),
                };
                let Some(known) = known else {
                    let all: Vec<String> = words
                        .values()
                        .filter(|word| word.number() != 0)
                        .map(|word| word.name().into())
                        .collect();
                    self.wrong(format_args!(
                        "expected one of {}, found {}",
                        all.join(", "),
                        found(value)
                    ));
                    return true;
                };
                *value = Value::String(known.name().into());
                // Zero means unspecified, so it is the same as absent.
                return known.number() != 0;
            }
            Kind::Bool if value.is_boolean() => {}
            Kind::String if value.is_string() => {}
            Kind::Bytes if value.is_string() => {}
            Kind::Bool => {
                self.wrong(format_args!("expected true or false, found {}", found(value)))
            }
            Kind::String => self.wrong(format_args!("expected a string, found {}", found(value))),
            Kind::Bytes => {
                self.wrong(format_args!("expected octets in base64, found {}", found(value)))
            }
            Kind::Float | Kind::Double => match real(value) {
                // Use the shortest digits with the same 32-bit value, so that 0.1 is 0.1 over both
                // transports.
                Some(number) if *kind == Kind::Float => *value = short(number as f32),
                Some(number) => {
                    *value = Number::from_f64(number).map_or(Value::Null, Value::Number)
                }
                None => self.wrong(format_args!("expected a number, found {}", found(value))),
            },
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => {
                self.whole(value, i32::MIN.into(), i32::MAX.into())
            }
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => {
                self.whole(value, i64::MIN.into(), i64::MAX.into())
            }
            Kind::Uint32 | Kind::Fixed32 => self.whole(value, 0, u32::MAX.into()),
            Kind::Uint64 | Kind::Fixed64 => self.whole(value, 0, u64::MAX.into()),
        }
        true
    }

    fn whole(&mut self, value: &mut Value, least: i128, most: i128) {
        let number = match &*value {
            Value::Number(number) => number.as_i128().or_else(|| {
                // 1e3 and 5.0 are integers. A float too large to be exact is refused below.
                number.as_f64().filter(|number| number.fract() == 0.0).map(|number| number as i128)
            }),
            Value::String(text) => text.parse().ok(),
            _ => None,
        };
        match number {
            Some(number) if (least..=most).contains(&number) => {
                *value = Number::from_i128(number).map_or(Value::Null, Value::Number);
            }
            _ => self.wrong(format_args!(
                "expected a whole number of {least} to {most}, found {}",
                found(value)
            )),
        }
    }
}

/// A finite number.
fn real(value: &Value) -> Option<f64> {
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    number.filter(|number| number.is_finite() && (*number as f32).is_finite())
}

/// The double with the fewest digits that identify `number`.
fn short(number: f32) -> Value {
    number.to_string().parse().ok().and_then(Number::from_f64).map_or(Value::Null, Value::Number)
}

/// Describes a value in at most one line.
fn found(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(is) => is.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => format!("{:?}", shortened(text)),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.into(),
    }
}

/// The fields with names similar to `name`; all fields if none is similar.
fn advice(of: &MessageDescriptor, name: &str) -> String {
    let names: Vec<String> = of.fields().map(|field| field.name().to_string()).collect();
    let near: Vec<&String> = names.iter().filter(|known| near(known, name)).collect();
    match near.as_slice() {
        [] if names.is_empty() => "nothing: it has no fields".into(),
        [] => names.join(", "),
        near => near.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", "),
    }
}

/// Whether one name contains the other, or they differ by one or two letters.
fn near(known: &str, name: &str) -> bool {
    if name.len() >= 3 && (known.contains(name) || name.contains(known)) {
        return true;
    }
    if name.len() > 40 {
        return false;
    }
    // Levenshtein distance, computed row by row.
    let (known, name): (Vec<char>, Vec<char>) = (known.chars().collect(), name.chars().collect());
    let mut row: Vec<usize> = (0..=name.len()).collect();
    for (i, k) in known.iter().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for (j, n) in name.iter().enumerate() {
            let changed = corner + usize::from(k != n);
            corner = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(corner + 1);
        }
    }
    row[name.len()] <= 1 + name.len() / 6
}

fn print_message(of: &MessageDescriptor, value: &Value, out: &mut String) {
    let Value::Object(object) = value else { return print_as_is(value, out) };
    out.push('{');
    let mut first = true;
    for (name, value) in object {
        // Some clients refuse a reply with a field unknown to their schema.
        let Some(field) = of.get_field_by_name(name).filter(|_| !value.is_null()) else {
            debug_assert!(value.is_null(), "{} has no {name}", of.name());
            continue;
        };
        if !std::mem::take(&mut first) {
            out.push(',');
        }
        print_text(name, out);
        out.push(':');
        let kind = field.kind();
        match value {
            Value::Array(items) if field.is_list() => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    print_single(&kind, item, out);
                }
                out.push(']');
            }
            value => print_single(&kind, value, out),
        }
    }
    out.push('}');
}

fn print_single(kind: &Kind, value: &Value, out: &mut String) {
    match (kind, value) {
        (Kind::Message(message), value) => print_message(message, value, out),
        (
            Kind::Int64 | Kind::Uint64 | Kind::Sint64 | Kind::Fixed64 | Kind::Sfixed64,
            Value::Number(number),
        ) => {
            let _ = write!(out, "\"{number}\"");
        }
        (Kind::Float, Value::Number(number)) => {
            let _ = write!(out, "{}", number.as_f64().unwrap_or_default() as f32);
        }
        (_, value) => print_as_is(value, out),
    }
}

fn print_as_is(value: &Value, out: &mut String) {
    match value {
        // Rust prints floats without exponents.
        Value::Number(number) if number.is_f64() => {
            let _ = write!(out, "{}", number.as_f64().unwrap_or_default());
        }
        Value::String(text) => print_text(text, out),
        value => {
            let _ = write!(out, "{value}");
        }
    }
}

/// Escapes control characters and the byte order mark, because YAML does not allow them unescaped.
fn print_text(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\0'..='\x1f'
            | '\x7f'..='\u{9f}'
            | '\u{2028}'
            | '\u{2029}'
            | '\u{feff}'
            | '\u{fffe}'
            | '\u{ffff}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn config(value: Value) -> Result<Value, Vec<String>> {
        from_json(&message("Config"), value.to_string().as_bytes())
    }

    #[test]
    fn json_and_protobuf_of_the_same_config_are_the_same_value() {
        let written = json!({
            "ports": [{"name": "a", "location": "veth-a"}],
            "flows": [{
                "name": "f", "txRx": {"choice": "port", "port": {"txName": "a", "rx_names": ["a"]}}, "size": null, "egress_packet": [],
                "rate": {"choice": "percentage", "percentage": 0.1}, "duration": {"choice": "fixed_packets", "fixed_packets": {"packets": "7"}},
                "packet": [{"choice": "ethernet", "ethernet": {"dst": {"choice": "value", "value": "00:00:00:00:00:01"}}}],
                "metrics": {"enable": true}
            }]
        });
        let read = config(written).expect("it fits");
        let flow = &read["flows"][0];
        assert_eq!(flow["tx_rx"]["port"]["tx_name"], "a");
        assert_eq!(flow["rate"]["percentage"], 0.1);
        assert_eq!(flow["duration"]["fixed_packets"]["packets"], 7);
        assert_eq!(flow.get("size"), None);
        let of = message("Config");
        let octets = to_protobuf(&of, &read).expect("it fits");
        assert_eq!(from_protobuf(&of, &octets).expect("our own"), read);
        assert_eq!(from_json(&of, to_json(&of, &read).as_bytes()).expect("our own"), read);
    }

    #[test]
    fn each_error_is_reported_with_its_path() {
        let wrong = config(json!({
            "prots": [], "flows": [{"name": 3, "rate": {"choice": "ppps", "pps": -1}, "packet": {}, "metrics": {"enable": "yes"}},
                {"rate": {"percentage": "a lot", "gbps": 4294967296u64}}]
        }));
        let wrong = wrong.expect_err("much is wrong");
        let all = wrong.join("\n");
        for expected in [
            "prots: Config has no such field\n  try ports",
            "flows[0].name: expected a string, found 3",
            "flows[0].rate.choice: expected one of pps, bps, kbps, mbps, gbps, percentage, found \"ppps\"",
            "flows[0].rate.pps: expected a whole number of 0 to 18446744073709551615, found -1",
            "flows[0].packet: expected a list, found an object",
            "flows[0].metrics.enable: expected true or false, found \"yes\"",
            "flows[1].rate.percentage: expected a number, found \"a lot\"",
            "flows[1].rate.gbps: expected a whole number of 0 to 4294967295, found 4294967296",
        ] {
            assert!(all.contains(expected), "{expected}\nis not in\n{all}");
        }
        assert_eq!(wrong.len(), 8);
        let many = json!({"flows": vec![json!({"nmae": 1}); 50]});
        let many = config(many).expect_err("fifty times");
        assert_eq!((many.len(), many[MAX_ERRORS].as_str()), (MAX_ERRORS + 1, "and 30 more"));
    }

    #[test]
    fn a_request_over_a_limit_is_refused_before_it_is_decoded() {
        let of = message("Config");
        let flows = |count: usize| format!("{{\"flows\": [{}{{}}]}}", "{},".repeat(count - 1));
        let since = std::time::Instant::now();
        for (what, json) in [
            ("flows: more than 65536", flows(100_000)),
            ("flows: more than 65536", format!("{{\"flows\": [{{\"packet\": {}]}}", flows(65_537))),
            ("too many values", format!("{{\"x\": [{}1]}}", "1,".repeat(9_000_000))),
            (
                "too many values",
                format!("[{}0]", format!("[{}1],", "[],".repeat(60_000)).repeat(60)),
            ),
        ] {
            let wrong = from_json(&of, json.as_bytes()).expect_err(what);
            assert!(wrong.len() == 1 && wrong[0].contains(what), "{what}: {wrong:?}");
        }
        let protobuf = |one: &[u8], count: usize| {
            from_protobuf(&of, &one.repeat(count)).expect_err("too much")
        };
        // Field 1 is `ports`.
        let flows = of.get_field_by_name("flows").expect("flows").number() as u8;
        assert!(protobuf(&[flows << 3 | 2, 0], 65_537)[0].starts_with("flows: more than 65536"));
        assert!(protobuf(&[0x0a, 0], 20_000_000)[0].starts_with("ports: more than 65536"));
        assert!(
            protobuf(&[flows << 3 | 2, 4, 0x0a, 0, 0x0a, 0], 9_000_000)[0].contains("more than")
        );
        // Without the limit, each of these requests would take minutes and gigabytes.
        assert!(since.elapsed() < std::time::Duration::from_secs(60), "{:?}", since.elapsed());
        assert!(from_json(&of, flows_of(4096).as_bytes()).is_ok());
    }

    fn flows_of(count: usize) -> String {
        let flow = json!({"name": "f", "packet": [{"choice": "ethernet"}, {"choice": "ipv4"}], "size": {"fixed": 64}});
        json!({ "flows": vec![flow; count] }).to_string()
    }

    #[test]
    fn malformed_json_and_protobuf_is_reported() {
        let of = message("Config");
        assert!(
            from_json(&of, b"{\"ports\": [").expect_err("cut off")[0].contains("line 1 column 11")
        );
        assert!(
            from_json(&of, b"[]").expect_err("a list")[0]
                .contains("expected an object (Config), found a list")
        );
        assert!(
            from_json(&of, "[".repeat(100_000).as_bytes()).expect_err("deep")[0]
                .contains("recursion")
        );
        assert!(from_protobuf(&of, b"\x0a\xff").expect_err("cut off")[0].contains("otg.Config"));
        assert_eq!(from_protobuf(&of, b"").expect("nothing is set"), json!({}));
    }

    #[test]
    fn replies_have_no_exponents_and_long_integers_are_strings() {
        let of = message("MetricsResponse");
        let value = json!({"choice": "flow_metrics", "flow_metrics": [{
            "name": "a\u{7f}\"\u{feff}é", "frames_tx": 18446744073709551615u64, "frames_tx_rate": 3e0, "loss": 1e-7, "tx_rate_bps": 1.7e18,
            "timestamps": {"first_timestamp_ns": 1.7e18}}]});
        let text = to_json(&of, &value);
        for part in [
            r#""frames_tx":"18446744073709551615""#,
            r#""frames_tx_rate":3"#,
            r#""loss":0.0000001"#,
            r#""tx_rate_bps":1700000000000000000"#,
            r#""first_timestamp_ns":1700000000000000000"#,
            r#""a\u007f\"\ufeffé""#,
        ] {
            assert!(text.contains(part), "{part}\nis not in\n{text}");
        }
        to_protobuf(&of, &value).expect("it fits");
        assert!(
            to_protobuf(&of, &json!({"nonsense": 1}))
                .expect_err("it does not")
                .contains("MetricsResponse")
        );
    }
}
