//! Options of a run, declared in one place for all interfaces.
//!
//! A command line, keyword arguments in Python, or JSON sent to the daemon become a [`RunOptions`],
//! which `squall::Session::with` takes. Each field is an option, and its doc comment is the text in
//! `--help`, the OpenAPI document and Python's docstring.
//!
//! This crate depends on quantities and their text forms, but not on profiles, ports or files.
//!
//! ```
//! use squall_options::{RunOptions, Time};
//!
//! let options = RunOptions::from_json(r#"{ "duration": "10 s", "cpus": "2-3" }"#)?;
//! assert_eq!(options.duration, Some(Time::from_secs(10)));
//! let mistake = RunOptions::from_json(r#"{ "durtion": 10 }"#).unwrap_err();
//! assert_eq!(mistake.to_string(), "there is no option \"durtion\"\n  did you mean \"duration\"?");
//! # Ok::<_, squall_options::Mistake>(())
//! ```
#![forbid(unsafe_code)]

mod multiplier;
mod values;

use std::{fmt, path::PathBuf};

use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeOwned, Error as _},
};
use serde_json::{Map, Value};

pub use multiplier::Multiplier;
pub use values::{Clock, Count, Cpus, GapBins, Octets, PartOf, Precision, Time, parse_cpus};

/// Options of a run. An option that is left out has the profile's value, or else its default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "clap", derive(clap::Args), command(next_help_heading = "Running"))]
#[serde(deny_unknown_fields, default)]
pub struct RunOptions {
    /// Stop after this time: 10s, 1m30s, 500ms (without any limit, at Ctrl-C)
    #[cfg_attr(feature = "clap", arg(short, long, value_name = "TIME"))]
    pub duration: Option<Time>,
    /// Stop after N frames, counted over all ports: 1000, 1M
    #[cfg_attr(feature = "clap", arg(short = 'n', long = "count", value_name = "N"))]
    pub packets: Option<Count>,
    /// Stop after this many octets of frames with FCS, counted over all ports: 1500, 1GB
    #[cfg_attr(feature = "clap", arg(long, value_name = "SIZE"))]
    pub octets: Option<Octets>,
    /// Stop as soon as EXPR holds, and end with exit status 1 (also if EXPR holds only at the end):
    /// 'failed_ratio > 5 % and attempted > 100'; repeatable
    #[serde(deserialize_with = "one_or_more")]
    #[schemars(with = "Option<OneOrMore>")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "EXPR"))]
    pub abort_if: Option<Vec<String>>,
    /// Multiply all rates (2, 0.5), or scale the streams of each port to a total rate (1mpps, 50%,
    /// 2gbps)
    #[cfg_attr(feature = "clap", arg(short, long, value_name = "FACTOR|RATE"))]
    pub mult: Option<Multiplier>,
    /// Use N workers [default: one for each sending port, and one to receive if a CPU is left]
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", value_parser = values::workers))]
    pub cores: Option<usize>,
    /// Bind the workers to these CPUs, one each: 2-5, 0,2,4; without cores, start one worker for
    /// each CPU [default: CPUs to which no other run has bound a worker]
    #[cfg_attr(feature = "clap", arg(long, value_name = "LIST"))]
    pub cpus: Option<Cpus>,
    /// Send part I of N (2/3: the second of three): the runs of all N parts, on separate machines,
    /// together send what one run would
    #[cfg_attr(feature = "clap", arg(long, value_name = "I/N"))]
    pub part: Option<PartOf>,
    /// Seed all random choices: the same profile and seed send the same octets
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub seed: Option<u64>,
    /// Use the real clock, or a virtual one that jumps from departure to departure (for files and
    /// tests) [default: virtual if every port is a file, else real]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_enum, value_name = "CLOCK", hide_possible_values = true)
    )]
    pub clock: Option<Clock>,
    /// Trade CPU time for precise departures: low-cpu (sleep at least 0.5 ms at a time), balanced
    /// (sleep, and spin for the last microseconds), spin (spin from 2 ms before a departure on)
    /// [default: balanced]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_enum, value_name = "PRECISION", hide_possible_values = true)
    )]
    pub precision: Option<Precision>,
    /// Receive on ports that send, too; with false, only send on them [default: true]
    #[cfg_attr(feature = "clap", arg(long, value_name = "BOOL"))]
    pub receive: Option<bool>,
    /// Keep receiving for this time after everything is sent [default: 200ms]
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIME"))]
    pub linger: Option<Time>,
    /// Receive only frames that match EXPR (tcpdump's language): 'udp and port 5001'
    #[cfg_attr(feature = "clap", arg(long, value_name = "EXPR"))]
    pub filter: Option<String>,
    /// Measure each received flow separately
    #[cfg_attr(feature = "clap", arg(long, value_name = "BOOL", num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_parser = ReceivedFlows::of))]
    pub received_flows: Option<ReceivedFlows>,
    /// Add a hash of all frames to the report; their order does not change it
    #[cfg_attr(feature = "clap", arg(long, value_name = "BOOL", num_args = 0..=1,
        require_equals = true, default_missing_value = "true", hide_possible_values = true))]
    pub fingerprint: Option<bool>,
    /// Add a histogram of the gaps between the frames of each port: BINS bins of WIDTH each:
    /// 100:10us
    #[cfg_attr(feature = "clap", arg(long = "histogram", value_name = "BINS:WIDTH"))]
    pub gap_bins: Option<GapBins>,
    /// Also write received frames to FILE: pcap if its name ends in .pcap, else pcapng
    #[serde(deserialize_with = "file_or_options")]
    #[schemars(with = "Option<FileOrOptions>")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "FILE", value_parser = CaptureOptions::of))]
    pub capture: Option<CaptureOptions>,
    /// Overwrite files that packets are written to, and fill more than half of the free space of
    /// their disks [default: false]
    #[cfg_attr(feature = "clap", arg(long, value_name = "BOOL", num_args = 0..=1,
        require_equals = true, default_missing_value = "true", hide_possible_values = true))]
    pub force: Option<bool>,
    /// Write the ground truth of the profile's attacks to FILE: JSONL if its name ends in .jsonl or
    /// .json, else CSV
    #[cfg_attr(feature = "clap", arg(long, value_name = "FILE"))]
    pub labels: Option<PathBuf>,
    /// Write the secrets of the TLS sessions of flows to FILE, with which Wireshark and tshark read
    /// a capture of them (SSLKEYLOGFILE, RFC 9850)
    #[cfg_attr(feature = "clap", arg(long, value_name = "FILE"))]
    pub key_log: Option<PathBuf>,
    /// Write loss and convergence of each route to FILE, as CSV, for streams with latency = true to
    /// the routes of a router
    #[cfg_attr(feature = "clap", arg(long, value_name = "FILE"))]
    pub routes_csv: Option<PathBuf>,
}

/// Whether received flows are measured, or how.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum ReceivedFlows {
    Measured(bool),
    By(FlowOptions),
}

/// Options of the measurement of received flows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FlowOptions {
    /// Measure separately by flow (addresses, protocol and ports), by source (source address), or
    /// none (only the total) [default: flow]
    pub by: Option<String>,
    /// Measure at most this many flows in each receive queue; further ones are counted as one
    /// [default: 10000]
    pub limit: Option<u64>,
    /// Read sequence numbers of this kind, from the first packet on: squall, mgen, crude, trex,
    /// iperf3, rtp or none; auto detects the kind first [default: auto]
    pub sequence: Option<String>,
    /// Measure peak rates over intervals of this length [default: 100ms]
    pub interval: Option<Time>,
    /// Take frames that are at most this far apart as a burst [default: 10us]
    pub burst_gap: Option<Time>,
}

/// Options of a capture of received frames: of a run, or of `squall capture`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(deny_unknown_fields, default)]
pub struct CaptureOptions {
    /// File to write [default: capture-TIME.pcapng]
    // The field is not an option of the command line, because commands name it differently.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub file: Option<PathBuf>,
    /// Keep at most this many octets of each packet [default: 262144]
    #[cfg_attr(feature = "clap", arg(short, long, value_name = "OCTETS",
        value_parser = values::snaplen))]
    pub snaplen: Option<u32>,
    /// Stop after N packets: 1000, 1M
    #[cfg_attr(
        feature = "clap",
        arg(
            short = 'c',
            long = "count",
            visible_short_alias = 'n',
            value_name = "N",
            help_heading = "End"
        )
    )]
    pub packets: Option<Count>,
    /// Stop before all files together have more bytes than this: 100MB
    #[cfg_attr(feature = "clap", arg(long = "size", value_name = "SIZE", help_heading = "End"))]
    pub octets: Option<Octets>,
    /// Stop when N files are full
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", help_heading = "End"))]
    pub files: Option<Count>,
    /// Write files of this format: pcapng, pcap (nanoseconds) or pcap-us (microseconds) [default:
    /// by the name of the file]
    #[cfg_attr(feature = "clap", arg(short = 'F', long, value_name = "FORMAT",
        hide_possible_values = true, value_parser = ["pcapng", "pcap", "pcap-us"],
        help_heading = "Files"))]
    pub format: Option<String>,
    /// Compress while capturing: zstd, gz, lz4, with a level: zstd:3, gz:6 [default: by the name of
    /// the file, at the fastest level]
    #[cfg_attr(feature = "clap", arg(long, value_name = "METHOD[:LEVEL]", help_heading = "Files"))]
    pub compress: Option<String>,
    /// Start a new file before one has more bytes than this: 1GB
    #[cfg_attr(
        feature = "clap",
        arg(short = 'C', long = "rotate-size", value_name = "SIZE", help_heading = "Files")
    )]
    pub rotate_octets: Option<Octets>,
    /// Start a new file each time this time has passed, by the time of the packets: 60s, 1h
    #[cfg_attr(
        feature = "clap",
        arg(short = 'G', long = "rotate-time", value_name = "TIME", help_heading = "Files")
    )]
    pub rotate_s: Option<Time>,
    /// Start a new file after N packets
    #[cfg_attr(
        feature = "clap",
        arg(long = "rotate-count", value_name = "N", help_heading = "Files")
    )]
    pub rotate_packets: Option<Count>,
    /// Keep only the N newest files
    #[cfg_attr(feature = "clap", arg(short = 'W', long = "ring-files", value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000), help_heading = "Files"))]
    pub ring: Option<u32>,
    /// Write packets to the file as soon as they come, not up to 100 ms later [default: false]
    #[cfg_attr(feature = "clap", arg(short = 'U', long = "packet-buffered", value_name = "BOOL",
        num_args = 0..=1, require_equals = true, default_missing_value = "true",
        hide_possible_values = true, help_heading = "Files"))]
    pub flush: Option<bool>,
    /// Size of the buffer between the wire and the file [default: 64 MiB]
    #[cfg_attr(
        feature = "clap",
        arg(short = 'B', long, value_name = "SIZE", help_heading = "Memory")
    )]
    pub buffer: Option<Octets>,
    /// When the buffer is full because the file is slower than the wire: drop-newest (lose new
    /// packets), drop-oldest (lose the packets that have waited longest), truncate[:OCTETS] (from
    /// half full on, keep 128 octets of each packet), wait (leave the loss to the port) [default:
    /// drop-newest]
    #[cfg_attr(feature = "clap", arg(long, value_name = "POLICY", help_heading = "Memory"))]
    pub on_full: Option<String>,
    /// GSO frames (several frames that the kernel or the NIC has joined): cut them into the frames
    /// of the wire, or keep them [default: cut]
    #[cfg_attr(feature = "clap", arg(long, value_name = "cut|keep", value_parser = ["cut", "keep"],
        hide_possible_values = true))]
    pub gso_frames: Option<String>,
    /// Write nothing until a trigger comes, then start this long before it, as far as the buffer
    /// reaches back
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIME", help_heading = "Memory"))]
    pub pre_trigger: Option<Time>,
    /// Use the first packet that matches this expression (tcpdump's language) as the trigger
    /// [default: the signal USR1]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "EXPR", requires = "pre_trigger", help_heading = "Memory")
    )]
    pub trigger: Option<String>,
    /// Stop this long after the trigger
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "TIME", requires = "pre_trigger", help_heading = "Memory")
    )]
    pub post_trigger: Option<Time>,
    /// Also show each packet in a line on standard output, which begins with a time: clock, date,
    /// epoch, relative, delta or none; without a file, only show it
    // The command has two options for this, like tcpdump.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub print: Option<String>,
}

/// An error in options.
#[derive(Clone, Debug, PartialEq)]
pub enum Mistake {
    /// No option has this name.
    Unknown { name: String, hint: String },
    /// Any other error, as a text that names the option.
    Wrong(String),
}

impl RunOptions {
    /// Parses options from a JSON object.
    ///
    /// # Errors
    /// If an option is unknown (the error suggests the nearest name), or if a value is invalid.
    pub fn from_json(text: &str) -> Result<Self, Mistake> {
        let wrong = |error: serde_json::Error| Mistake::Wrong(error.to_string());
        Self::from_table(serde_json::from_str(text).map_err(wrong)?)
    }

    /// The same as [`RunOptions::from_json`], for a table.
    ///
    /// # Errors
    /// The same as of [`RunOptions::from_json`].
    pub fn from_table(table: Map<String, Value>) -> Result<Self, Mistake> {
        let options: Self = one_by_one(table)?;
        options.check().map_err(Mistake::Wrong)?;
        Ok(options)
    }

    /// Merges options. An option that is not set here has its value in `below`.
    ///
    /// ```
    /// use squall_options::RunOptions;
    ///
    /// let below = RunOptions::from_json(r#"{ "cores": 2, "seed": 7 }"#)?;
    /// let over = RunOptions { cores: Some(4), ..RunOptions::default() }.over(&below);
    /// assert_eq!((over.cores, over.seed), (Some(4), Some(7)));
    /// # Ok::<_, squall_options::Mistake>(())
    /// ```
    pub fn over(self, below: &Self) -> Self {
        let mut table = below.to_table();
        table.extend(self.to_table());
        // Each value was valid before the merge, so the result is valid, too.
        serde_json::from_value(Value::Object(table)).unwrap_or(self)
    }

    /// The options that are set, in the form that [`RunOptions::from_table`] reads.
    pub fn to_table(&self) -> Map<String, Value> {
        match serde_json::to_value(self).map(without_nulls) {
            Ok(Value::Object(table)) => table,
            _ => unreachable!("a struct is an object of JSON"),
        }
    }

    /// All options, in the order of their declaration.
    pub fn names() -> Vec<String> {
        names::<Self>()
    }

    /// Checks limits that a single value's type does not.
    ///
    /// # Errors
    /// If a value is invalid; the message describes it.
    pub fn check(&self) -> Result<(), String> {
        if self.duration.is_some_and(|time| time == Time::default()) {
            return Err("duration = 0: expected a time above 0, such as 100ms or 10s".into());
        }
        if let Some(cores) = self.cores.filter(|cores| !(1..=values::WORKERS).contains(cores)) {
            return Err(format!("cores = {cores}: expected 1 to {}", values::WORKERS));
        }
        if let Some(linger) = self.linger.filter(|linger| *linger > values::LINGER) {
            return Err(format!("linger = {linger}: expected 0 to {}", values::LINGER));
        }
        Ok(())
    }
}

impl ReceivedFlows {
    /// Parses the form used on the command line.
    ///
    /// # Errors
    /// If the text is neither `true` nor `false`.
    pub fn of(text: &str) -> Result<Self, String> {
        text.parse().map(Self::Measured).map_err(|_| "expected true or false".into())
    }
}

impl<'de> Deserialize<'de> for ReceivedFlows {
    /// Like `#[serde(untagged)]`, but the message names the error in the table.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match Value::deserialize(from)? {
            Value::Bool(measured) => Ok(Self::Measured(measured)),
            table => serde_json::from_value(table).map(Self::By).map_err(D::Error::custom),
        }
    }
}

impl CaptureOptions {
    /// A capture to `file`, with the defaults of all other options.
    ///
    /// # Errors
    /// Never: the command line requires a function that returns a `Result`.
    pub fn of(file: &str) -> Result<Self, String> {
        Ok(Self { file: Some(file.into()), ..Self::default() })
    }
}

/// Names of all options of a kind, in the order of their declaration.
fn names<T: Default + Serialize>() -> Vec<String> {
    let Ok(Value::Object(all)) = serde_json::to_value(T::default()) else {
        unreachable!("a struct is an object of JSON")
    };
    all.into_iter().map(|(name, _)| name).collect()
}

/// Reads options one at a time, so a message can name the option, or suggest the nearest name.
fn one_by_one<T>(table: Map<String, Value>) -> Result<T, Mistake>
where
    T: Default + Serialize + DeserializeOwned,
{
    let known = names::<T>();
    for (name, value) in &table {
        if !known.contains(name) {
            let hint = squall_units::suggest(name, known.iter().map(String::as_str));
            return Err(Mistake::Unknown { name: name.clone(), hint });
        }
        let one = Map::from_iter([(name.clone(), value.clone())]);
        if let Err(error) = serde_json::from_value::<T>(Value::Object(one)) {
            return Err(Mistake::Wrong(format!("{name} = {value}: {error}")));
        }
    }
    serde_json::from_value(Value::Object(table)).map_err(|error| Mistake::Wrong(error.to_string()))
}

/// For fields of this type in other crates: `#[serde(deserialize_with = "squall_options::read")]`.
///
/// # Errors
/// The same as of [`RunOptions::from_table`].
pub fn read<'de, D: Deserializer<'de>>(from: D) -> Result<RunOptions, D::Error> {
    RunOptions::from_table(Map::deserialize(from)?).map_err(D::Error::custom)
}

/// For objects that have the options of a capture in addition to other keys. With this and
/// `flatten`, keys that the object does not know itself are options of the capture, or an error.
/// serde's `deny_unknown_fields` cannot be combined with `flatten`.
///
/// # Errors
/// The same as of [`RunOptions::from_table`].
pub fn read_capture<'de, D: Deserializer<'de>>(from: D) -> Result<CaptureOptions, D::Error> {
    one_by_one(Map::deserialize(from)?).map_err(|mistake| match mistake {
        // No suggestion: the nearest name could be one of the object's own keys.
        Mistake::Unknown { name, .. } => D::Error::custom(format!("there is no option {name:?}")),
        wrong @ Mistake::Wrong(_) => D::Error::custom(wrong),
    })
}

/// The JSON schema of [`RunOptions`], with separate definitions, or in a single piece if `inline`.
pub fn schema(inline: bool) -> Value {
    schemars::generate::SchemaSettings::draft2020_12()
        .with(|settings| settings.inline_subschemas = inline)
        .into_generator()
        .into_root_schema_for::<RunOptions>()
        .to_value()
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(table) => {
            let entries = table.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(entries.map(|(name, value)| (name, without_nulls(value))).collect())
        }
        other => other,
    }
}

/// One string, or a list of them.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a string or a list of strings")]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

fn one_or_more<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<String>>, D::Error> {
    let list = Option::<OneOrMore>::deserialize(from)?;
    Ok(list.map(|list| match list {
        OneOrMore::One(text) => vec![text],
        OneOrMore::More(texts) => texts,
    }))
}

/// The name of a file, or a table of options.
#[derive(JsonSchema)]
#[serde(untagged)]
#[allow(dead_code, clippy::large_enum_variant, reason = "a schema, never a value")]
enum FileOrOptions {
    File(String),
    Options(CaptureOptions),
}

fn file_or_options<'de, D: Deserializer<'de>>(from: D) -> Result<Option<CaptureOptions>, D::Error> {
    match Value::deserialize(from)? {
        Value::Null => Ok(None),
        Value::String(file) => CaptureOptions::of(&file).map(Some).map_err(D::Error::custom),
        Value::Object(table) => one_by_one(table).map(Some).map_err(D::Error::custom),
        other => Err(D::Error::custom(format!("{other}: expected a file or options"))),
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { name, hint } => write!(f, "there is no option {name:?}\n  {hint}"),
            Self::Wrong(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Mistake {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_round_trip() {
        let text = r#"{ "duration": 1.5, "packets": "1M", "octets": "2 kB", "mult": "2.5x", "cores": 2,
            "cpus": [2, 3], "part": "2/3", "seed": 7, "clock": "virtual", "precision": "low-cpu",
            "receive": false, "linger": "50 ms", "filter": "udp", "received_flows": { "by": "source", "interval": "50 ms" }, "fingerprint": true, "gap_bins": [4, 500000],
            "capture": "out.pcapng", "force": true, "labels": "truth.csv", "key_log": "keys.txt",
            "routes_csv": "routes.csv" }"#;
        let options = RunOptions::from_json(text).unwrap();
        assert_eq!(options.gap_bins, Some(GapBins { bins: 4, width: Time::from_micros(500) }));
        assert_eq!(options.mult, Some(Multiplier::Factor { num: 25, den: 10 }));
        let written = serde_json::to_string(&options).unwrap();
        assert_eq!(RunOptions::from_json(&written), Ok(options), "{written}");
    }

    #[test]
    fn mistakes_name_the_option_and_its_values() {
        for (text, expected) in [
            (r#"{ "lingr": 1 }"#, "did you mean \"linger\"?"),
            (r#"{ "linger": -1 }"#, "linger = -1: "),
            (r#"{ "linger": "2 h" }"#, "expected 0 to 1 h"),
            (r#"{ "duration": "0s" }"#, "expected a time above 0"),
            (r#"{ "packets": 0 }"#, "packets = 0: expected 1 or more"),
            (r#"{ "clock": "fast" }"#, "clock = \"fast\": "),
            (r#"{ "precision": "low" }"#, "precision = \"low\": "),
            (r#"{ "mult": "quick" }"#, "mult = \"quick\": expected a factor"),
            (r#"{ "cpus": "5-2" }"#, "cpus = \"5-2\": "),
            (r#"{ "gap_bins": [0, 10] }"#, "gap_bins = [0,10]: expected"),
            (r#"{ "capture": { "fil": "x" } }"#, "capture = "),
            (
                r#"{ "received_flows": { "bye": "x" } }"#,
                "unknown field `bye`, expected one of `by`",
            ),
            (r#"{ "capture": { "fil": "x" } }"#, "did you mean \"file\"?"),
            (r#"{ "capture": { "ring": "x" } }"#, "ring = \"x\": "),
            (r#"{ "capture": 7 }"#, "7: expected a file or options"),
            (r#"{ "part": "4/3" }"#, "part = \"4/3\": "),
            (r#"{ "cores": 0 }"#, "cores = 0: expected 1 to 1024"),
        ] {
            let mistake = RunOptions::from_json(text).unwrap_err().to_string();
            assert!(mistake.contains(expected), "{text}: {mistake}");
        }
    }

    #[test]
    fn options_of_a_capture_stand_next_to_other_keys() {
        #[derive(Debug, Deserialize)]
        struct New {
            filter: Option<String>,
            #[serde(flatten, deserialize_with = "read_capture")]
            capture: CaptureOptions,
        }

        let text = r#"{ "filter": "udp", "packets": "1k", "rotate_s": 1.5 }"#;
        let new: New = serde_json::from_str(text).unwrap();
        assert_eq!(new.filter.as_deref(), Some("udp"));
        let rotate_s = Some(Time::from_millis(1500));
        let expected =
            CaptureOptions { packets: Some(Count(1000)), rotate_s, ..CaptureOptions::default() };
        assert_eq!(new.capture, expected);
        for (text, why) in [
            (r#"{ "packets": 0 }"#, "packets = 0: expected 1 or more"),
            (r#"{ "filtr": "udp" }"#, "there is no option \"filtr\""),
        ] {
            let error = serde_json::from_str::<New>(text).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[cfg(feature = "clap")]
    #[test]
    fn each_option_is_an_argument_with_the_same_words() {
        use clap::Args as _;
        let command = RunOptions::augment_args(clap::Command::new("run"));
        let of_captures = CaptureOptions::augment_args(clap::Command::new("capture"));
        let schema = schema(true);
        // Either a file name or an object, and both may be absent: two levels of `anyOf`.
        let capture = &schema["properties"]["capture"]["anyOf"][0]["anyOf"][1];
        let of_captures = names::<CaptureOptions>()
            .into_iter()
            // The commands have other arguments for these.
            .filter(|name| !["file", "print"].contains(&name.as_str()))
            .map(|name| (&of_captures, &capture["properties"][&name]["description"], name));
        let of_runs = RunOptions::names()
            .into_iter()
            .map(|name| (&command, &schema["properties"][&name]["description"], name));
        for (command, described, name) in of_runs.chain(of_captures) {
            let argument = command.get_arguments().find(|argument| argument.get_id() == &name);
            let help = argument.and_then(|argument| argument.get_help()).unwrap().to_string();
            let described = described.as_str().unwrap();
            assert_eq!(help, described.split_whitespace().collect::<Vec<_>>().join(" "), "{name}");
        }
    }
}
