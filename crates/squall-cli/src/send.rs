//! `squall send`: one stream, as arguments. They become the profile that a file would hold, and run
//! as it does.

use std::process::ExitCode;

use clap::ArgGroup;
use serde_json::{Map, Value, json};
use squall::{Diagnostics, Error, Profile};
use squall_units::Rate;

use crate::{
    args::{Choice, Options, Output},
    drive::drive,
    output,
};

/// Send one stream of frames
#[derive(Debug, clap::Args)]
#[command(
    group = ArgGroup::new("frame").required(true).args(["packet", "hex", "pcap"]),
    after_help = "\
Examples:
  squall send --port eth1 --packet 'eth/ipv4(dst=10.0.0.2)/udp(dport=53)' --rate 10kpps --duration 10s
  squall send --port veth-a --to veth-b --packet eth/ipv4/udp --size imix --rate 100Mbps -d 10s --latency
  squall send --port eth1 --packet 'eth/ipv4(dst=48.0.0.1)/tcp(dport=80,flags=S)' --rate 50% \\
      --vary ipv4.src=random:16.0.0.1-16.0.255.254 --vary tcp.sport=increment:1024-65535 --fail-if 'not_sent > 0'
  squall send --port pcap:out.pcap --packet eth/ipv4/udp --rate 1Mpps --count 1000
  squall send --port loop:0 --pcap capture.pcap#3 --rate max --count 1M
  squall send --port eth1 --packet eth/ipv4/udp --rate 1kpps --print-profile > stream.toml

--vary FIELD=OP, where FIELD is a name (ipv4.src, vlan[1].id) or @OFFSET:OCTETS[&MASK], and OP is one of
  increment:MIN-MAX  decrement:MIN-MAX  random:MIN-MAX  list:A,B,C  weighted:A*3,B*1  file:PATH
  with :step=N :init=V (increment, decrement), :limit=N :seed=N (random), :after=OTHER (changes when OTHER wraps);
  ipv4.src+udp.sport=tuple:ADDRESS-ADDRESS,PORT-PORT goes through all pairs

Exit status: 0 done, 1 failed by --fail-if, 2 wrong usage or input, 3 environment, 4 NOT VALID (unless \
            --allow-invalid), 129, 130, 143 interrupted before its end by SIGHUP, SIGINT, SIGTERM."
)]
pub struct Args {
    /// Send on this port: eth1, af_packet:eth1, loop:NAME, pcap:FILE, null:
    #[arg(short, long, value_name = "ADDR")]
    port: String,
    /// Also receive on ADDR and measure what arrives (the sending ADDR, for frames that a device
    /// reflects)
    #[arg(long, visible_alias = "port2", value_name = "ADDR")]
    to: Option<String>,
    /// Send this packet, given as headers, outermost first:
    /// 'eth(dst=02:00:00:00:00:09)/ipv4(dst=10.0.0.2)/udp(dport=53)'
    #[arg(long, value_name = "TEXT", help_heading = "Frame")]
    packet: Option<String>,
    /// Send the octets of this frame, without FCS; or a dump of it by tcpdump -xx or Wireshark:
    /// "$(cat dump.txt)"
    #[arg(long, value_name = "HEX", help_heading = "Frame")]
    hex: Option<String>,
    /// Send frame N of a capture, counted from 1
    #[arg(long, value_name = "FILE#N", help_heading = "Frame")]
    pcap: Option<String>,
    /// Set the frame length in octets with FCS: 64, imix, 64-1518, 64-1518/64, 64,594,1518,
    /// uniform=64-1518, mean=512,sd=100, weights=64*7,594*4
    #[arg(short, long, value_name = "SIZE", help_heading = "Frame")]
    size: Option<String>,
    /// Send GSO frames, which kernel, NIC or Squall cut into frames with this many octets of TCP or
    /// UDP payload
    #[arg(long, value_name = "OCTETS", help_heading = "Frame")]
    segment: Option<u64>,
    /// Vary a field from frame to frame, see below; repeatable
    #[arg(short, long, value_name = "FIELD=OP", help_heading = "Frame")]
    vary: Vec<String>,
    /// Sign frames, so that the receiver measures loss, order and delay
    #[arg(short, long, help_heading = "Frame")]
    latency: bool,
    /// Send at this rate: 10kpps, 1.5Gbps (L2), '2 Gbps l1', 30%, max; with --count alone: max
    #[arg(
        short,
        long,
        value_name = "RATE",
        required_unless_present = "packets",
        help_heading = "Schedule"
    )]
    rate: Option<Rate>,
    /// Send continuously or in bursts: continuous, burst=1000, bursts=5,packets=4,gap=1s
    #[arg(long, value_name = "MODE", help_heading = "Schedule")]
    mode: Option<String>,
    /// Draw the gaps between frames from this law: constant, exponential, uniform=0.5, normal=0.1,
    /// pareto=1.5, weibull=2, gamma=2, on=10ms,off=90ms, file=gaps.txt
    #[arg(long, value_name = "LAW", help_heading = "Schedule")]
    departures: Option<String>,
    /// Treat late frames in this way: smooth, catch-up, drop, stretch [default: smooth]
    #[arg(long, value_name = "POLICY", help_heading = "Schedule")]
    late: Option<String>,
    /// Name the stream in reports
    #[arg(long, default_value = "stream 1")]
    name: String,
    /// Print the equivalent profile, and send nothing
    #[arg(long, help_heading = "Result")]
    print_profile: bool,
    #[command(flatten)]
    options: Options<OfSenders>,
    #[command(flatten)]
    output: Output,
}

/// Whether it receives, `--to` says.
#[derive(Debug)]
pub struct OfSenders;

impl Choice for OfSenders {
    fn has(name: &str) -> bool {
        !["receive", "labels"].contains(&name)
    }
}

pub fn send(args: &Args) -> Result<ExitCode, Error> {
    let profile = args.profile()?;
    let rate = profile.streams.first().map_or(Rate::MAX, |s| s.rate);
    let mut session = args.options.session(profile)?;
    if args.print_profile {
        output::print_data(&session.profile.to_toml());
        return Ok(ExitCode::SUCCESS);
    }
    // Without another port only a link to itself brings anything back; elsewhere all would count as
    // lost.
    let receive = args.to.is_some() || args.port.starts_with("loop:");
    let run = &args.options.run;
    let received = [
        ("--capture", run.capture.is_some()),
        ("--filter", run.filter.is_some()),
        ("--histogram", run.gap_bins.is_some()),
        ("--received-flows", run.received_flows == Some(true)),
    ];
    if let Some((name, _)) = received.iter().find(|(_, given)| *given && !receive) {
        return Err(Error::Usage(format!(
            "{name} has no effect, because nothing is received\n  try it with --to ADDR"
        )));
    }
    session.options.receive = Some(receive);
    drive(session, &args.output, &format!("squall send {rate} on {}", args.port))
}

impl Args {
    fn profile(&self) -> Result<Profile, Error> {
        let mut ports = Map::new();
        ports.insert("A".into(), json!(self.port));
        ports.extend(self.to.as_ref().map(|to| ("B".into(), json!(to))));
        let mut stream = Map::new();
        let mut set = |key: &str, value: Option<Value>| {
            stream.extend(value.map(|value| (key.to_owned(), value)))
        };
        set("name", Some(json!(self.name)));
        set("port", Some(json!("A")));
        set("packet", self.packet.as_ref().map(|text| json!(text)));
        set("hex", self.hex.as_ref().map(|text| json!(text)));
        set("pcap", self.pcap.as_ref().map(|text| json!(text)));
        set("size", self.size.as_deref().map(size));
        set("segment", self.segment.map(|octets| json!(octets)));
        set("rate", Some(json!(self.rate.unwrap_or(Rate::MAX).to_string())));
        set("mode", self.mode.as_deref().map(word_or_table));
        set("departures", self.departures.as_deref().map(word_or_table));
        set("late", self.late.as_ref().map(|text| json!(text)));
        set("latency", self.latency.then_some(json!(true)));
        let vary = self.vary.iter().map(|text| vary(text)).collect::<Result<Vec<_>, _>>()?;
        set("vary", (!vary.is_empty()).then(|| json!(vary)));
        let value = json!({ "ports": ports, "stream": [stream] });
        Profile::from_value(&value, "squall send")
            .map_err(|mistakes| Error::Input(self.explain(mistakes)))
    }

    /// Mistakes by argument, not by key.
    fn explain(&self, mut mistakes: Diagnostics) -> Diagnostics {
        for mistake in &mut mistakes.0 {
            let prefix = format!("stream {:?}: ", self.name);
            if let Some(rest) = mistake.message.strip_prefix(&prefix) {
                mistake.message = rest.to_owned();
            }
            let Some(key) = mistake.path.strip_prefix("stream[0].") else { continue };
            let key = key.split(['.', '[']).next().unwrap_or(key);
            let vary = mistake
                .path
                .split(['[', ']'])
                .nth(3)
                .and_then(|n| n.parse::<usize>().ok())
                .filter(|_| key == "vary");
            if let Some(rest) =
                vary.and_then(|n| mistake.message.strip_prefix(&format!("vary[{n}].")))
            {
                mistake.message = rest.to_owned();
            }
            let text = vary
                .and_then(|n| self.vary.get(n))
                .map_or(String::new(), |text| format!(" {text}"));
            mistake.origin = format!("squall send: --{key}{text}");
            mistake.path.clear();
        }
        mistakes
    }
}

/// What is a number, as a number: the profile reads both, but says `64`, not `"64"`, in a message.
fn scalar(text: &str) -> Value {
    let text = text.trim();
    text.parse::<u64>().map_or_else(
        |_| text.parse::<f64>().map_or_else(|_| json!(text), |n| json!(n)),
        |n| json!(n),
    )
}

/// `continuous`, or `bursts=5,packets=4,gap=1s`.
fn word_or_table(text: &str) -> Value {
    if !text.contains('=') {
        return json!(text);
    }
    let entries = text.split(',').map(|entry| entry.split_once('=').unwrap_or((entry, "")));
    Value::Object(entries.map(|(key, value)| (key.trim().to_owned(), scalar(value))).collect())
}

/// `64`, `imix`, `64-1518`, `64,594`, `uniform=64-1518`, `mean=512,sd=100`, `weights=64*7,594*4`,
/// `genome=7a4d1g`.
fn size(text: &str) -> Value {
    if let Some(weights) = text.strip_prefix("weights=") {
        let pair = |entry: &str| {
            let (len, weight) = entry.split_once('*').unwrap_or((entry, "1"));
            json!([scalar(len), scalar(weight)])
        };
        return json!({ "weights": weights.split(',').map(pair).collect::<Vec<_>>() });
    }
    match (word_or_table(text), text) {
        (Value::Object(normal), _) if normal.contains_key("mean") => json!({ "normal": normal }),
        (Value::Object(law), _) => Value::Object(law),
        (_, list) if list.contains(',') => list.split(',').map(scalar).collect(),
        (_, one) => scalar(one),
    }
}

/// Keys that may follow the values of a `--vary`.
const VARY_KEYS: [&str; 6] = ["step", "init", "limit", "seed", "after", "name"];

/// `FIELD=OP:VALUES[:key=value]...`. Values may hold colons (IPv6, MAC), so the keys are looked for
/// from the end.
fn vary(text: &str) -> Result<Value, Error> {
    let wrong = || {
        Error::Usage(format!(
            "--vary {text}: expected FIELD=OP\n  try ipv4.src=random:16.0.0.1-16.0.0.254, \
             udp.sport=increment:1024-65535:step=3, ipv4.dst=list:10.0.0.1,10.0.0.2, \
             @34:2=random:0-65535"
        ))
    };
    let (field, rest) = text.split_once('=').ok_or_else(wrong)?;
    let (op, mut values) = rest.split_once(':').unwrap_or((rest, ""));
    let mut table = Map::new();
    while let Some((before, key, value)) = last_key(values) {
        table.insert(key.into(), scalar(value));
        values = before;
    }
    let values = values.trim_end_matches(':');
    let mut set = |key: &str, value: Value| _ = table.insert(key.into(), value);
    set("op", json!(op));
    if op == "tuple" {
        let (ip, port) = values.split_once(',').unwrap_or((values, ""));
        set("fields", field.split('+').map(str::trim).collect());
        range(ip, "ip_min", "ip_max", &mut set);
        if !port.is_empty() {
            range(port, "port_min", "port_max", &mut set);
        }
        return Ok(Value::Object(table));
    }
    match field.strip_prefix('@') {
        None => set("field", json!(field)),
        Some(place) => {
            let (place, mask) =
                place.split_once('&').map_or((place, None), |(place, mask)| (place, Some(mask)));
            let (offset, octets) = place.split_once(':').ok_or_else(wrong)?;
            set("offset", scalar(offset));
            set("octets", scalar(octets));
            mask.into_iter().for_each(|mask| set("mask", scalar(mask)));
        }
    }
    match op {
        "list" => set("values", values.split(',').map(scalar).collect()),
        "weighted" => {
            let pairs =
                values.split(',').map(|entry| entry.split_once('*').unwrap_or((entry, "1")));
            let (values, weights): (Vec<_>, Vec<_>) =
                pairs.map(|(v, w)| (scalar(v), scalar(w))).unzip();
            set("values", json!(values));
            set("weights", json!(weights));
        }
        "file" => set("path", json!(values)),
        // An operation that there is not: the profile knows which are near.
        _ if values.is_empty() => {}
        _ => range(values, "min", "max", &mut set),
    }
    Ok(Value::Object(table))
}

/// The last `:key=value` of a known key, and what is before it.
fn last_key(text: &str) -> Option<(&str, &str, &str)> {
    // A value that is not behind anything: `increment:step=3`.
    let (before, entry) = text.rsplit_once(':').unwrap_or(("", text));
    let (key, value) = entry.split_once('=')?;
    VARY_KEYS.contains(&key).then_some((before, key, value))
}

fn range(text: &str, min: &str, max: &str, set: &mut dyn FnMut(&str, Value)) {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    set(min, scalar(low));
    set(max, scalar(high));
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(vary(text).unwrap(), expected, "{text}");
        }
        assert!(vary("ipv4.src").is_err());
        assert!(vary("@34=random:0-1").is_err());
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
            assert_eq!(size(text), expected, "{text}");
        }
        assert_eq!(word_or_table("continuous"), json!("continuous"));
        assert_eq!(
            word_or_table("bursts=5,packets=4,gap=1s"),
            json!({ "bursts": 5, "packets": 4, "gap": "1s" })
        );
    }
}
