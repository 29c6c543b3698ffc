//! Values that have several notations: numbers in fields, sizes, gaps, modes.

use std::{
    fmt,
    net::{Ipv4Addr, Ipv6Addr},
};

use serde_json::{Value as Json, json};
use squall_units::{MacAddr, Nanos};

use super::{
    node::{Node, Value},
    raw::{DeparturesTable, ModeTable, NextTable, SizeTable},
    read::{Place, Placed, Read, Reader, word},
};
use crate::{Departures, IMIX, Mode, SizeLaw};

/// Allowed frame lengths with FCS: from an Ethernet header with FCS to lo's MTU of 65536 with both.
/// Frames below 64 octets are runts.
const FRAME: std::ops::RangeInclusive<u64> = 18..=65_554;
/// Maximum number of frames in a repeated list of lengths.
const LIST_MAX: usize = 1 << 20;

/// The value of a field: a number, or an address in its notation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number {
    pub value: u128,
    /// The notation in which it was written, for messages.
    form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Number,
    Ipv4,
    Ipv6,
    Mac,
}

impl Number {
    /// `48.0.0.1`, `2001:db8::1`, `02:00:00:00:00:01`, `80`, `0x8100`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Some(Self { value: address.to_bits().into(), form: Form::Ipv4 });
        }
        if let Ok(address) = text.parse::<Ipv6Addr>() {
            return Some(Self { value: address.to_bits(), form: Form::Ipv6 });
        }
        if let Ok(MacAddr([a, b, c, d, e, f])) = text.parse() {
            return Some(Self {
                value: u64::from_be_bytes([0, 0, a, b, c, d, e, f]).into(),
                form: Form::Mac,
            });
        }
        let (digits, radix) = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
            Some(hex) => (hex, 16),
            None => (text, 10),
        };
        if !digits.starts_with(|c: char| c.is_digit(radix)) {
            return None;
        }
        u128::from_str_radix(&digits.replace('_', ""), radix).ok().map(Self::from)
    }
}

impl From<u128> for Number {
    fn from(value: u128) -> Self {
        Self { value, form: Form::Number }
    }
}

/// A number that is too large becomes 0, which is refused as well.
impl From<Number> for u64 {
    fn from(number: Number) -> Self {
        number.value.try_into().unwrap_or(0)
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.form {
            Form::Number => self.value.fmt(f),
            Form::Ipv4 => Ipv4Addr::from_bits(self.value as u32).fmt(f),
            Form::Ipv6 => Ipv6Addr::from_bits(self.value).fmt(f),
            Form::Mac => {
                let [.., a, b, c, d, e, g] = self.value.to_be_bytes();
                MacAddr([a, b, c, d, e, g]).fmt(f)
            }
        }
    }
}

impl Read for Number {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        const HINT: &str = r#"80, "0x8100", "48.0.0.1", "2001:db8::1", "02:00:00:00:00:01""#;
        match Self::parse(&node.scalar().unwrap_or_default()) {
            Some(number) => Some(number),
            None => cx.wrong_type(node, "a number or an address", HINT),
        }
    }
    fn schema() -> Json {
        json!({ "type": ["integer", "string"], "title": "Number", "minimum": 0 })
    }
}

/// `"name"` or a table.
#[derive(Clone, Debug)]
pub(super) struct NextText {
    pub stream: Placed<String>,
    pub times: Option<u64>,
}

impl Read for NextText {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        if let Value::Text(name) = &node.value {
            return Some(Self {
                stream: Placed { value: name.clone(), place: cx.place(node) },
                times: None,
            });
        }
        let table = NextTable::read(node, cx)?;
        cx.need(&table.place, &table.given, "stream", r#"stream = "name""#)?;
        let times = table.times.as_ref().map(|times| times.value.0);
        if let Some(Placed { value, place }) = table.times.filter(|times| times.value.0 == 0) {
            cx.report(
                &place,
                &format!("= {} is less than 1", value.0),
                &["try leaving it out: then the stream has no end".into()],
            );
        }
        Some(Self { stream: table.stream?, times })
    }
    fn schema() -> Json {
        json!({ "anyOf": [{ "type": "string" }, NextTable::schema()] })
    }
}

impl Read for SizeLaw {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        match &node.value {
            Value::Integer(_) => frame_len(&i128_of(node), node, cx).map(Self::Fixed),
            Value::Text(text) => size_text(text)
                .map_err(|hint| cx.wrong(node, "is not a frame length", &[hint]))
                .ok(),
            Value::List(items) if items.is_empty() => {
                cx.wrong_type(node, "a list of lengths", "[64, 594, 1518]")
            }
            Value::List(items) => {
                let lens: Vec<_> = items
                    .iter()
                    .enumerate()
                    .map(|(i, item)| {
                        cx.below(&format!("[{i}]"), |cx| frame_len(&i128_of(item), item, cx))
                    })
                    .collect();
                lens.into_iter().collect::<Option<_>>().map(Self::List)
            }
            Value::Table(_) => size_table(node, cx),
            _ => cx.wrong_type(
                node,
                "a frame length",
                r#"64, "imix", "64-1518", { weights = [[64, 7], [1518, 1]] }"#,
            ),
        }
    }
    fn schema() -> Json {
        let len = json!({ "type": "integer", "minimum": FRAME.start(), "maximum": FRAME.end() });
        json!({ "anyOf": [
                len,
                { "type": "string", "examples": ["imix", "64-1518", "64-1518/64", "imix:7a4d1g"] },
                { "type": "array", "items": len, "minItems": 1 },
                SizeTable::schema(),
            ],
            "description": "64: always 64. \"64-1518\": 64, 65 ... 1518, repeated; \"64-1518/64\": in steps of 64. \
                [64, 594]: in order, repeated. \"imix\": 64, 594 and 1518 as 7:4:1, evenly mixed; \
                \"imix:7a4d1g\": an IMIX genome. Frames below 64 are runts, which few ports send." })
    }
}

fn i128_of(node: &Node) -> Option<i128> {
    if let Value::Integer(n) = node.value { Some(n) } else { None }
}

fn frame_len(len: &Option<i128>, node: &Node, cx: &mut Reader<'_>) -> Option<u32> {
    match len.and_then(|len| u64::try_from(len).ok()).and_then(checked_len) {
        Some(len) => Some(len),
        None => {
            cx.wrong(node, "is not a frame length", &[len_hint()]);
            None
        }
    }
}

fn checked_len(len: u64) -> Option<u32> {
    FRAME.contains(&len).then_some(len as u32)
}

fn len_hint() -> String {
    format!("frames are {} to {} octets with FCS", FRAME.start(), FRAME.end())
}

/// Parses `64`, `imix`, `imix:7a4d1g`, `64-1518`, `64-1518/2`. The error is a hint.
fn size_text(text: &str) -> Result<SizeLaw, String> {
    let lower = text.trim().to_ascii_lowercase();
    if lower == "imix" {
        return Ok(SizeLaw::List(IMIX.to_vec()));
    }
    // In a genome, capitals have a meaning of their own.
    if lower.starts_with("imix:") {
        return genome(&text.trim()[5..], None, &[]).map(SizeLaw::List);
    }
    let len = |text: &str| text.trim().parse().ok().and_then(checked_len).ok_or_else(len_hint);
    let Some((min, max)) = lower.split_once('-') else {
        const HINT: &str = r#"try 64, "imix", "64-1518", "64-1518/64""#;
        return if lower.parse::<u64>().is_ok() {
            len(&lower).map(SizeLaw::Fixed)
        } else {
            Err(HINT.into())
        };
    };
    let (max, step) = max.split_once('/').unwrap_or((max, "1"));
    let (min, max) = (len(min)?, len(max)?);
    match step.trim().parse() {
        Ok(step @ 1..) if min <= max => Ok(SizeLaw::Range { min, max, step }),
        Ok(1..) => Err(format!("try the smaller one first: \"{max}-{min}\"")),
        _ => Err("the step after / is a number, 1 or more".into()),
    }
}

/// Parses an IMIX genome (RFC 6985 §4). `custom` has the lengths of A, B, ...
fn genome(text: &str, z: Option<u32>, custom: &[u32]) -> Result<Vec<u32>, String> {
    let mut lens = Vec::new();
    let mut repeat: Option<usize> = None;
    for c in text.chars().filter(|c| !c.is_whitespace()) {
        if let Some(digit) = c.to_digit(10) {
            repeat = Some(repeat.unwrap_or(0).saturating_mul(10).saturating_add(digit as usize));
            continue;
        }
        let len = match c {
            'a' => 64,
            'b' => 128,
            'c' => 256,
            'd' => 512,
            'e' => 1024,
            'f' => 1280,
            'g' => 1518,
            'h' => 2112,
            'i' => 9000,
            'z' => z.ok_or(r#"z needs a length: { genome = "aaz", z = 1500 }"#)?,
            'A'..='Z' => *custom.get(c as usize - 'A' as usize).ok_or_else(|| {
                format!(r#"{c} needs a length: {{ genome = "aA", custom = [594] }}"#)
            })?,
            _ => {
                return Err(format!(
                    "{c:?} is not a genome letter: expected a to i, z, A to Z, each with or \
                     without a number before it"
                ));
            }
        };
        let times = repeat.take().unwrap_or(1);
        if times == 0 || lens.len().saturating_add(times) > LIST_MAX {
            return Err(format!("a genome has 1 to {LIST_MAX} frames"));
        }
        lens.extend(std::iter::repeat_n(len, times));
    }
    if repeat.is_some() || lens.is_empty() {
        return Err(r#"expected letters, with or without a number before each: "7a4d1g""#.into());
    }
    Ok(lens)
}

fn size_table(node: &Node, cx: &mut Reader<'_>) -> Option<SizeLaw> {
    let table = SizeTable::read(node, cx)?;
    let law = cx.one_of(&table.place, &table.given, &["weights", "uniform", "normal", "genome"])?;
    cx.only(
        &table.place,
        &table.given,
        law,
        if law == "genome" { &["genome", "z", "custom"] } else { std::slice::from_ref(&law) },
    );
    match law {
        "weights" => {
            let Placed { value: pairs, place } = table.weights?;
            let law: Option<Vec<(u32, u32)>> = pairs
                .iter()
                .map(|pair| Some((checked_len(pair.0)?, u32::try_from(pair.1).ok()?)))
                .collect();
            let law = cx.must(&place, law, "is not a list of lengths and weights", &len_hint())?;
            let sum: u64 = law.iter().map(|(_, weight)| u64::from(*weight)).sum();
            let right = (1..=u64::from(u32::MAX)).contains(&sum).then_some(SizeLaw::Weights(law));
            cx.must(
                &place,
                right,
                "has a sum that is out of range",
                "weights are whole numbers; their sum is 1 to 4294967295",
            )
        }
        "uniform" => {
            let Placed { value, place } = table.uniform?;
            let law = match size_text(&value) {
                Ok(SizeLaw::Range { min, max, step: 1 }) => Ok(SizeLaw::Uniform { min, max }),
                Ok(_) => Err(r#"try "64-1518""#.into()),
                Err(hint) => Err(hint),
            };
            law.map_err(|hint| {
                cx.report(&place, &format!("= {value:?} is not a range of lengths"), &[hint])
            })
            .ok()
        }
        "normal" => {
            let normal = table.normal?.value;
            let place = normal.place;
            cx.need(&place, &normal.given, "mean", "mean = 594")?;
            cx.need(&place, &normal.given, "sd", "sd = 100")?;
            let (mean, sd) = (normal.mean?.value, normal.sd?.value);
            let min = if normal.given.has("min") { normal.min?.value.0 } else { 64 };
            let max = if normal.given.has("max") { normal.max?.value.0 } else { 1518 };
            let (min, max) = cx.must(
                &place,
                checked_len(min).zip(checked_len(max)),
                "is out of bounds",
                &len_hint(),
            )?;
            let (low, high) = (f64::from(min), f64::from(max));
            // These bounds keep the number of redraws low, because a length is redrawn until it is
            // within min..=max.
            let right = (low..=high).contains(&mean) && (0.0..=high - low).contains(&sd);
            let law = right.then_some(SizeLaw::Normal { mean, sd, min, max });
            cx.must(
                &place,
                law,
                "is not a normal distribution of lengths",
                "expected min <= mean <= max, and sd at most max - min",
            )
        }
        _ => {
            let Placed { value, place } = table.genome?;
            let len = |cx: &mut Reader<'_>, place: &Place, len| {
                cx.must(
                    place,
                    checked_len(len),
                    &format!("= {len} is not a frame length"),
                    &len_hint(),
                )
            };
            let z = match table.z {
                Some(z) => Some(len(cx, &z.place, z.value.0)?),
                None => None,
            };
            let custom = match table.custom {
                Some(lens) => {
                    lens.value.iter().map(|l| len(cx, &lens.place, l.0)).collect::<Option<_>>()?
                }
                None => Vec::new(),
            };
            genome(&value, z, &custom)
                .map(SizeLaw::List)
                .map_err(|hint| {
                    cx.report(&place, &format!("= {value:?} is not an IMIX genome"), &[hint])
                })
                .ok()
        }
    }
}

const DEPARTURES_WORDS: [(&str, bool); 3] =
    [("constant", false), ("exponential", true), ("poisson", true)];

impl Read for Departures {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        if !matches!(node.value, Value::Table(_)) {
            let random = word(node, cx, "a distribution of departures", &DEPARTURES_WORDS)?;
            return Some(if random { Self::Exponential } else { Self::Constant });
        }
        let table = DeparturesTable::read(node, cx)?;
        let laws = ["uniform", "normal", "pareto", "weibull", "gamma", "on", "file"];
        if table.given.has("off") {
            cx.need(&table.place, &table.given, "on", r#"{ on = "10 ms", off = "90 ms" }"#)?;
        }
        let law = cx.one_of(&table.place, &table.given, &laws)?;
        cx.only(
            &table.place,
            &table.given,
            law,
            if law == "on" { &["on", "off"] } else { std::slice::from_ref(&law) },
        );
        let within = |cx: &mut Reader<'_>, given: Option<Placed<f64>>, low: f64, high: f64| {
            let Placed { value, place } = given?;
            let right = (value > low && value <= high).then_some(value);
            let hint = format!("expected more than {low}, at most {high}");
            cx.must(&place, right, &format!("= {value} is out of bounds"), &hint)
        };
        Some(match law {
            "uniform" => Self::Uniform { spread: within(cx, table.uniform, 0.0, 1.0)? },
            "normal" => Self::Normal { sd: within(cx, table.normal, 0.0, 10.0)? },
            "pareto" => Self::Pareto { shape: within(cx, table.pareto, 1.0, 100.0)? },
            // Below 0.1, the mean is dominated by gaps that are much longer than a run.
            "weibull" => Self::Weibull { shape: within(cx, table.weibull, 0.1, 100.0)? },
            "gamma" => Self::Gamma { shape: within(cx, table.gamma, 0.1, 1000.0)? },
            "on" => {
                cx.need(&table.place, &table.given, "off", r#"{ on = "10 ms", off = "90 ms" }"#)?;
                let (on, off) = (table.on?, table.off?);
                let right = (on.value > Nanos::ZERO).then_some(on.value);
                let on = cx.must(&on.place, right, "= 0 is never on", r#"try on = "10 ms""#)?;
                Self::OnOff { on, off: off.value }
            }
            _ => Self::File { path: cx.resolve(&table.file?.value) },
        })
    }
    fn schema() -> Json {
        json!({ "anyOf": [{ "enum": DEPARTURES_WORDS.map(|(word, _)| word) }, DeparturesTable::schema()],
            "description": "\"constant\"; \"exponential\" or \"poisson\", which are the same; or a table." })
    }
}

impl Read for Mode {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        if !matches!(node.value, Value::Table(_)) {
            return match &node.value {
                Value::Text(text) if text == "continuous" => Some(Self::Continuous),
                _ => cx.wrong_type(
                    node,
                    "a mode",
                    r#""continuous", { burst = 1000 }, { bursts = 5, packets = 4, gap = "1 s" }"#,
                ),
            };
        }
        let table = ModeTable::read(node, cx)?;
        let law = cx.one_of(&table.place, &table.given, &["burst", "bursts"])?;
        cx.only(
            &table.place,
            &table.given,
            law,
            if law == "bursts" { &["bursts", "packets", "gap"] } else { &["burst"] },
        );
        let some = |cx: &mut Reader<'_>, count: Placed<super::read::Count>| {
            cx.must(
                &count.place,
                (count.value.0 > 0).then_some(count.value.0),
                "= 0 sends nothing",
                "expected 1 or more",
            )
        };
        if law == "burst" {
            return Some(Self::Burst(some(cx, table.burst?)?));
        }
        cx.need(
            &table.place,
            &table.given,
            "packets",
            r#"{ bursts = 5, packets = 4, gap = "1 s" }"#,
        )?;
        let gap = if table.given.has("gap") { table.gap?.value } else { Nanos::ZERO };
        Some(Self::Bursts {
            bursts: some(cx, table.bursts?)?,
            packets: some(cx, table.packets?)?,
            gap,
        })
    }
    fn schema() -> Json {
        json!({ "anyOf": [{ "const": "continuous" }, ModeTable::schema()] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imix_is_seven_to_four_to_one_and_evenly_mixed() {
        let count = |len| IMIX.iter().filter(|l| **l == len).count();
        assert_eq!((count(64), count(594), count(1518)), (7, 4, 1));
        let runs = IMIX.chunk_by(|a, b| a == b).map(<[u32]>::len).max();
        assert_eq!(runs, Some(2), "no more than two alike in a row");
    }

    #[test]
    fn sizes_as_text_are_lengths_ranges_and_genomes() {
        assert_eq!(size_text("64"), Ok(SizeLaw::Fixed(64)));
        assert_eq!(size_text(" 64 - 1518 "), Ok(SizeLaw::Range { min: 64, max: 1518, step: 1 }));
        assert_eq!(size_text("64-1518/2"), Ok(SizeLaw::Range { min: 64, max: 1518, step: 2 }));
        assert_eq!(size_text("IMIX"), Ok(SizeLaw::List(IMIX.to_vec())));
        assert_eq!(size_text("imix:aaafg"), Ok(SizeLaw::List(vec![64, 64, 64, 1280, 1518])));
        assert_eq!(size_text("imix:2a1 d"), Ok(SizeLaw::List(vec![64, 64, 512])));
        for text in [
            "",
            "17",
            "65555",
            "1518-64",
            "64-",
            "-64",
            "64-1518/0",
            "64-1518/x",
            "big",
            "imix:",
            "imix:az",
            "imix:3",
            "imix:0a",
            "imix:99999999999999999999a",
            "imix:A",
            "imix:x",
        ] {
            assert!(size_text(text).is_err(), "{text:?} was read as {:?}", size_text(text));
        }
    }

    #[test]
    fn a_genome_takes_lengths_for_z_and_capitals() {
        assert_eq!(genome("a2zBA", Some(1500), &[100, 200]), Ok(vec![64, 1500, 1500, 200, 100]));
        assert!(genome("C", None, &[100, 200]).unwrap_err().contains("C needs a length"));
    }

    #[test]
    fn field_values_are_numbers_and_addresses() {
        for (text, value) in [
            ("80", 80),
            ("0x8100", 0x8100),
            ("1_000", 1000),
            ("48.0.0.1", 0x3000_0001),
            ("::1", 1),
            ("02:00:00:00:00:01", 0x0200_0000_0001),
            ("340282366920938463463374607431768211455", u128::MAX),
        ] {
            assert_eq!(Number::parse(text).map(|number| number.value), Some(value), "{text}");
        }
        for text in [
            "",
            "-1",
            "+1",
            "0x",
            "0x+1",
            "1.5",
            "48.0.0",
            "340282366920938463463374607431768211456",
            "web",
        ] {
            assert_eq!(Number::parse(text), None, "{text:?}");
        }
    }
}
