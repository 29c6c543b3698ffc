//! Types of options. Each is parsed from the text on a command line, and from JSON, as the same
//! text or as plain numbers.

use std::{borrow::Cow, fmt, str::FromStr, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use squall_units::{Division, Nanos, UnitError, parse_count, parse_octets};

use crate::Multiplier;

/// Maximum number of workers in a run.
pub(crate) const WORKERS: usize = 1024;
/// Maximum time to wait. A longer time is an error.
pub(crate) const LINGER: Time = Time::from_secs(3600);
/// Maximum length of a packet in a capture, the same as in tcpdump and Wireshark.
#[cfg(feature = "clap")]
const SNAPLEN: u32 = 262_144;
/// Maximum number of bins in a port's histogram; each takes eight octets.
const GAP_BINS: usize = 1_000_000;

/// A time: `"10 s"`, `"500ms"`. A plain number is in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub Nanos);

/// A number of at least 1: `1000`, `"10k"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count(pub u64);

/// A number of octets, at least 1: `1500`, `"10 kB"`, `"2 MiB"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Octets(pub u64);

/// CPUs, in the order of the workers: `[2, 3]`, `"2-3"`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpus(pub Vec<u32>);

/// Equal bins of a histogram: `"100:10us"`, or `[100, 10000]` with the width in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GapBins {
    pub bins: usize,
    pub width: Time,
}

/// A part of the whole, 1-based: `"2/3"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartOf(pub Division);

/// The real clock, or a virtual one that jumps from departure to departure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    Real,
    Virtual,
}

/// How close to their due times frames leave, against the CPU time that this costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    LowCpu,
    #[default]
    Balanced,
    Spin,
}

impl Time {
    pub const fn from_secs(seconds: u64) -> Self {
        Self(Nanos(seconds * 1_000_000_000))
    }

    pub const fn from_millis(milliseconds: u64) -> Self {
        Self(Nanos(milliseconds * 1_000_000))
    }

    pub const fn from_micros(microseconds: u64) -> Self {
        Self(Nanos(microseconds * 1000))
    }
}

impl From<Time> for Duration {
    fn from(time: Time) -> Self {
        Self::from_nanos(time.0.0)
    }
}

impl FromStr for Time {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        text.parse().map(Self)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Count {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match parse_count(text) {
            Ok(0) => Err("expected 1 or more, such as 1000 or 10k".into()),
            count => count.map(Self).map_err(|error| error.to_string()),
        }
    }
}

impl FromStr for Octets {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match parse_octets(text) {
            Ok(0) => Err("expected 1 or more, such as 1500 or 1GB".into()),
            octets => octets.map(Self).map_err(|error| error.to_string()),
        }
    }
}

impl FromStr for PartOf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self)
    }
}

impl fmt::Display for PartOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Octets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Cpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_cpus(text).map(Self)
    }
}

impl FromStr for GapBins {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (bins, width) = text.split_once(':').ok_or_else(Self::expected)?;
        let width: Time = width.parse().map_err(|error: UnitError| error.to_string())?;
        Self::new(bins.trim().parse().map_err(|_| Self::expected())?, width)
    }
}

impl GapBins {
    fn new(bins: usize, width: Time) -> Result<Self, String> {
        match (1..=GAP_BINS).contains(&bins) && width > Time::default() {
            true => Ok(Self { bins, width }),
            false => Err(Self::expected()),
        }
    }

    fn expected() -> String {
        format!("expected BINS:WIDTH, such as 100:10us, at most {GAP_BINS} bins")
    }
}

/// Parses a list of CPUs such as `2-5,8`, and keeps its order.
/// ```
/// assert_eq!(squall_options::parse_cpus("2-4,0"), Ok(vec![2, 3, 4, 0]));
/// assert!(squall_options::parse_cpus("4-2").is_err());
/// assert!(squall_options::parse_cpus("1,1").is_err());
/// ```
///
/// # Errors
/// If the list is invalid, or if a CPU occurs twice.
pub fn parse_cpus(text: &str) -> Result<Vec<u32>, String> {
    let wrong =
        |part: &str| format!("{part:?} is not a CPU\n  try a list such as 2, 2-5 or 0,2,4-7");
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let number = |text: &str| text.trim().parse::<u32>().ok().filter(|&n| n < 4096);
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (number(first), number(last)),
            None => (number(part), number(part)),
        };
        let (Some(first), Some(last)) = (first, last) else { return Err(wrong(part)) };
        if first > last {
            return Err(wrong(part));
        }
        for cpu in first..=last {
            if cpus.contains(&cpu) {
                return Err(format!("CPU {cpu} is named twice"));
            }
            cpus.push(cpu);
        }
    }
    Ok(cpus)
}

/// Parses the value of `--cores`.
#[cfg(feature = "clap")]
pub(crate) fn workers(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=WORKERS).contains(number));
    number.ok_or_else(|| format!("expected 1 to {WORKERS}"))
}

/// Parses the value of `--snaplen`. 0 means whole packets, as in tcpdump.
#[cfg(feature = "clap")]
pub(crate) fn snaplen(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(0) => Ok(SNAPLEN),
        Ok(octets @ 1..=SNAPLEN) => Ok(octets),
        _ => Err(format!("expected 1 to {SNAPLEN} octets, or 0 for all")),
    }
}

/// A JSON value in place of a text.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a number or a string")]
enum Literal {
    Integer(u64),
    // Printed without an exponent, which the text forms reject.
    Number(f64),
    Text(String),
}

impl Literal {
    fn text(self) -> String {
        match self {
            Self::Integer(number) => number.to_string(),
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text,
        }
    }
}

macro_rules! number_or_text {
    ($($type:ident: $description:literal,)*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                Literal::deserialize(from)?.text().parse().map_err(D::Error::custom)
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "description": $description,
                    "anyOf": [{ "type": "number" }, { "type": "string" }],
                })
            }
        }
    )*};
}

number_or_text! {
    Time: "\"10 s\", \"500ms\"; a number is seconds.",
    Count: "1000, \"10k\".",
    Octets: "1500, \"10 kB\", \"2 MiB\".",
    Multiplier: "A factor, 2 or 0.5, or a rate: \"1 Mpps\", \"50%\".",
}

impl Serialize for PartOf {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PartOf {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

impl JsonSchema for PartOf {
    fn schema_name() -> Cow<'static, str> {
        "PartOf".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "\"2/3\": the second of three parts.",
            "type": "string",
            "pattern": "^[0-9]+/[0-9]+$",
        })
    }
}

impl Serialize for Cpus {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Cpus {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected a list of CPUs, such as [2, 3] or \"2-3\"")]
        enum Literal {
            List(Vec<u32>),
            Text(String),
        }
        let text = match Literal::deserialize(from)? {
            Literal::List(cpus) => cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(","),
            Literal::Text(text) => text,
        };
        text.parse().map_err(D::Error::custom)
    }
}

impl JsonSchema for Cpus {
    fn schema_name() -> Cow<'static, str> {
        "Cpus".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "[2, 3] or \"2-3\".",
            "anyOf": [{ "type": "array", "items": { "type": "integer" } }, { "type": "string" }],
        })
    }
}

impl Serialize for GapBins {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        (self.bins, self.width.0.0).serialize(to)
    }
}

impl<'de> Deserialize<'de> for GapBins {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected [100, 10000] (ns) or \"100:10us\"")]
        enum Literal {
            Pair(usize, u64),
            Text(String),
        }
        match Literal::deserialize(from)? {
            Literal::Pair(bins, width_ns) => Self::new(bins, Time(Nanos(width_ns))),
            Literal::Text(text) => text.parse(),
        }
        .map_err(D::Error::custom)
    }
}

impl JsonSchema for GapBins {
    fn schema_name() -> Cow<'static, str> {
        "GapBins".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let integer = json_schema!({ "type": "integer" });
        json_schema!({
            "description": "Number of bins, and the width of one: [100, 10000] (nanoseconds) or \"100:10us\".",
            "anyOf": [
                { "type": "array", "prefixItems": [integer, integer], "minItems": 2, "maxItems": 2 },
                { "type": "string" },
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_lists_of_cpus_are_refused() {
        for text in ["", "a", "1-", "-1", "3-1", "1,,2", "1,1", "0-2,2", "99999"] {
            assert!(parse_cpus(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_histogram_has_bins_and_a_width() {
        let bins = |text: &str| text.parse::<GapBins>();
        assert_eq!(bins("100:10us"), Ok(GapBins { bins: 100, width: Time::from_micros(10) }));
        for text in ["", "100", "0:1us", "1:0s", "x:1us", "100:1xs", "1000001:1us"] {
            assert!(bins(text).is_err(), "{text}");
        }
    }
}
