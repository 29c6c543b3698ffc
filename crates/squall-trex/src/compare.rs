//! Compares the traffic that TRex and Squall generate for a profile.
//!
//! [`crate::reference`] steps the streams as TRex does; Squall runs them into a file; packets are
//! compared one by one. A TRex capture is compared with the same packets. Flows are listed, and
//! compared with a capture by the data that each side sends.

mod flows;
mod frames;
#[cfg(test)]
mod wire;

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use serde::Serialize;
use serde_json::Value;
use squall::{Error, Profile, RunOptions, Session};
use squall_options::Count;
use squall_pcap::CaptureReader;
use squall_units::Cannot;

use crate::{
    File, MACS, Problem,
    load::Loaded,
    reference::{Departure, Node, Reference, Wire},
};
pub use flows::Template;
use frames::{Found, Rules};

/// Limits of a comparison, and a capture to compare with.
#[derive(Clone, Debug)]
pub struct CompareSetting<'a> {
    /// Maximum number of packets to compare on each port.
    pub packets: usize,
    /// A capture that TRex made of the profile.
    pub golden: Option<&'a Path>,
}

/// Result for one profile.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    pub profile: String,
    /// `streams` or `flows`.
    pub kind: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<Row>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub templates: Vec<Template>,
    /// Settings that Squall ignores or treats differently, and limits of this comparison.
    pub notes: Vec<String>,
    pub differences: Vec<String>,
    /// Result of the comparison with TRex's capture, if there is one.
    pub golden: Option<Golden>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Golden {
    pub file: String,
    pub packets: usize,
    /// Differences between the capture and Squall's packets.
    pub differences: Vec<String>,
}

/// Result for one stream.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub port: usize,
    pub name: String,
    /// Number of packets that TRex sends, up to the limit.
    pub trex: usize,
    /// Number of packets that Squall sends with the same octets at the same time.
    pub same: usize,
    /// Whether random numbers without a seed are compared by their ranges.
    pub by_range: bool,
}

/// Maximum number of differences of each kind to list.
const LISTED: usize = 8;

impl Comparison {
    pub fn differs(&self) -> bool {
        !self.differences.is_empty()
            || self.golden.as_ref().is_some_and(|golden| !golden.differences.is_empty())
    }
}

/// A temporary directory, removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self, Error> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("squall-compare-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|error| {
            let cannot = Cannot::of_io(format!("make the folder {}", path.display()), &error);
            Error::Environment(cannot.to_string())
        })?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

impl File<'_> {
    /// Compares the packets that TRex and Squall send on each port; ignores the ports' addresses.
    ///
    /// # Errors
    /// The profile cannot be loaded, or TRex would refuse it; the capture cannot be read.
    pub fn compare(&self, setting: &CompareSetting<'_>) -> Result<Comparison, Error> {
        let loaded = self.loaded()?;
        match &loaded.flows {
            Some(value) => flows::compare(self, value, setting),
            None => self.compare_streams(&loaded, setting),
        }
    }

    fn compare_streams(
        &self,
        loaded: &Loaded,
        setting: &CompareSetting<'_>,
    ) -> Result<Comparison, Error> {
        let mut comparison = Comparison::of(self.path, "streams");
        let wire = Wire { source: MACS.source.0, destination: MACS.destination.0, speed: 10e9 };
        let scratch = Scratch::new()?;
        let golden = match setting.golden {
            Some(path) => Some((path, packets_of(path)?)),
            None => None,
        };
        for (port, values) in loaded.ports.iter().enumerate() {
            let count = match &golden {
                Some((_, packets)) => packets.len().max(setting.packets),
                None => setting.packets,
            };
            let wrong =
                |problem: Problem| Error::Usage(format!("{}: {problem}", self.path.display()));
            let mut reference = Reference::read(values, &wire).map_err(wrong)?;
            let expected: Vec<Departure> = reference.by_ref().take(count).collect();
            let nodes = &reference.nodes;
            let ended = expected.len() < count;
            comparison.notes.extend(notes(values, nodes));
            let sent = match self.run(loaded, port, count + MARGIN, &scratch) {
                Ok(sent) => sent,
                // If Squall refuses the streams, that counts as a difference.
                Err(Error::Usage(text)) => {
                    comparison.differences.push(format!("Squall does not send it: {text}"));
                    continue;
                }
                Err(other) => return Err(other),
            };
            let rules = Rules { from_first: false, padding: true, ended };
            let matched = frames::matched(nodes, &expected, &sent, rules);
            comparison.add(port, nodes, &expected, &matched);
            if let Some((path, packets)) = golden.as_ref().filter(|_| port == 0) {
                comparison.golden = Some(against(path, packets, nodes, &expected, &sent));
            }
        }
        comparison.notes.dedup();
        Ok(comparison)
    }

    /// Runs a port's streams in Squall; returns the packets sent.
    fn run(
        &self,
        loaded: &Loaded,
        port: usize,
        count: usize,
        scratch: &Scratch,
    ) -> Result<Vec<Found>, Error> {
        let file = scratch.0.join(format!("{port}.pcap"));
        let profile =
            self.of_streams(&[(port, &loaded.ports[port])], &[format!("pcap:{}", file.display())])?;
        run(profile, RunOptions { packets: Some(Count(count as u64)), ..RunOptions::default() })?;
        packets_of(&file)
    }
}

/// Number of packets that Squall sends beyond those compared: several may be due at the time of the
/// last one.
const MARGIN: usize = 256;

fn run(profile: Profile, options: RunOptions) -> Result<(), Error> {
    // Overwriting is safe: the directory is temporary.
    let options = RunOptions { force: Some(true), ..options };
    Session::new(profile).with(options)?.open()?.start()?.finish().map(drop)
}

fn packets_of(path: &Path) -> Result<Vec<Found>, Error> {
    let wrong = |error: squall_pcap::CaptureError| Error::Usage(error.to_string());
    let mut reader = CaptureReader::open(path).map_err(wrong)?;
    let mut packets = Vec::new();
    while let Some(packet) = reader.next().map_err(wrong)? {
        packets.push(Found { at_ns: packet.time_ns, octets: packet.data.to_vec() });
    }
    // Several workers write the file, so packets may be out of order.
    packets.sort_by_key(|packet| packet.at_ns);
    Ok(packets)
}

/// Compares both Squall's packets and TRex's capture to the reference packets, in which random
/// numbers are compared by their ranges.
fn against(
    path: &Path,
    packets: &[Found],
    nodes: &[Node],
    expected: &[Departure],
    sent: &[Found],
) -> Golden {
    let expected = &expected[..packets.len().min(expected.len())];
    let rules = Rules { from_first: true, padding: false, ended: true };
    let mut differences = Vec::new();
    if expected.len() < packets.len() {
        let (all, some) = (packets.len(), expected.len());
        differences.push(format!("the capture has {all} packets, TRex's rules give {some}"));
    }
    let trex = frames::matched(nodes, expected, packets, rules);
    let squall = frames::matched(nodes, expected, sent, Rules { ended: false, ..rules });
    let texts = |found: frames::Matched, what: &str| {
        let lines: Vec<String> =
            found.differences.into_iter().map(|text| format!("{what}: {text}")).collect();
        lines
    };
    differences.extend(texts(trex, "capture"));
    differences.extend(texts(squall, "Squall"));
    Golden { file: path.display().to_string(), packets: packets.len(), differences }
}

impl Comparison {
    fn of(profile: &Path, kind: &'static str) -> Self {
        Self {
            profile: profile.display().to_string(),
            kind,
            streams: Vec::new(),
            templates: Vec::new(),
            notes: Vec::new(),
            differences: Vec::new(),
            golden: None,
        }
    }

    fn add(
        &mut self,
        port: usize,
        nodes: &[Node],
        expected: &[Departure],
        matched: &frames::Matched,
    ) {
        for (number, node) in nodes.iter().enumerate() {
            self.streams.push(Row {
                port,
                name: node.name.clone(),
                trex: expected.iter().filter(|one| one.stream == number).count(),
                same: matched.same[number],
                by_range: node.program.chance().is_some(),
            });
        }
        self.differences.extend(matched.differences.iter().cloned());
    }

    /// Formats the result as text.
    pub fn text(&self) -> String {
        let verdict = if self.differs() { "differs" } else { "same" };
        let mut text = format!("{}: {verdict}\n", self.profile);
        if !self.streams.is_empty() {
            let width = self.streams.iter().map(|row| row.name.len()).max().unwrap_or(0).max(6);
            text += &format!("  port  {:width$}  {:>8}  {:>8}  octets\n", "stream", "TRex", "same");
            for Row { port, name, trex, same, by_range } in &self.streams {
                let octets = if *by_range { "by range" } else { "exact" };
                text += &format!("  {port:4}  {name:width$}  {trex:8}  {same:8}  {octets}\n");
            }
        }
        text += &flows::table(&self.templates);
        let golden = self.golden.iter().flat_map(|golden| {
            let more = golden.differences.iter().cloned();
            let first = format!("{}: {} packets", golden.file, golden.packets);
            std::iter::once(first).chain(more.map(|text| format!("differs: {text}")))
        });
        let lines = (self.notes.iter().map(|note| format!("note: {note}")))
            .chain(self.differences.iter().map(|text| format!("differs: {text}")))
            .chain(golden);
        lines.for_each(|line| text += &format!("  {line}\n"));
        text
    }
}

/// Settings that Squall treats differently, and fields that are compared by range or not at all.
fn notes(streams: &[Value], nodes: &[Node]) -> Vec<String> {
    let any = |is: &dyn Fn(&Value) -> bool| streams.iter().any(is);
    let instruction = |is: &dyn Fn(&Value) -> bool| {
        any(&|stream| stream["vm"]["instructions"].as_array().is_some_and(|all| all.iter().any(is)))
    };
    let notes = [
        (
            nodes.iter().any(|node| node.program.chance().is_some()),
            "random numbers without a seed (random_seed) are compared by their ranges",
        ),
        (
            nodes.iter().any(|node| node.clocked),
            "TRex writes its header with a clock into the last 16 octets of packets with latency: \
             those are not compared; Squall has its signature there when it sends to interfaces",
        ),
        (
            instruction(&|one| one["type"] == "fix_checksum_hw"),
            "fix_checksum_hw gives the checksums that a NIC fills in",
        ),
        (
            any(&|stream| stream["core_id"].as_i64().is_some_and(|core| core >= 0)),
            "core_id is ignored",
        ),
        (
            instruction(&|one| one["type"] == "flow_var" && one["op"] == "random")
                && any(&|stream| stream["random_seed"].as_u64().is_some_and(|seed| seed > 0)),
            "random numbers with a seed repeat after 65,536 packets",
        ),
    ];
    notes.into_iter().filter(|(is, _)| *is).map(|(_, text)| text.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use base64::{Engine, engine::general_purpose::STANDARD};
    use serde_json::json;
    use squall_pcap::{PcapFormat, PcapWriter};

    use super::*;

    /// An IPv4/UDP packet of 100 octets with valid checksums.
    fn packet() -> Vec<u8> {
        let mut packet = vec![0u8; 100];
        packet[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
        packet[17] = 86;
        packet[22..24].copy_from_slice(&[64, 17]);
        packet[26..34].copy_from_slice(&[16, 0, 0, 1, 48, 0, 0, 1]);
        packet[34..40].copy_from_slice(&[4, 1, 0, 12, 0, 66]);
        let sum = squall_wire::checksum::sum(&packet[14..34]);
        let sum = !squall_wire::checksum::fold(sum);
        packet[24..26].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    fn var(name: &str, op: &str, range: [u64; 2], step: u64, next: Option<&str>) -> Value {
        let init = if op == "dec" { range[1] } else { range[0] };
        json!({
            "type": "flow_var", "name": name, "size": 2, "op": op, "init_value": init,
            "min_value": range[0], "max_value": range[1], "step": step, "next_var": next,
        })
    }

    fn write(name: &str, at: usize, add: i64) -> Value {
        json!({
            "type": "write_flow_var", "name": name, "pkt_offset": at, "add_value": add,
            "is_big_endian": true,
        })
    }

    fn stream(mode: Value, more: Value) -> Value {
        let mut stream = json!({
            "flags": 0, "isg": 25.0, "mode": mode, "packet": { "binary": STANDARD.encode(packet()) },
            "vm": { "instructions": [] }, "flow_stats": { "enabled": false }, "action_count": 0,
        });
        for (key, value) in more.as_object().expect("an object") {
            stream[key] = value.clone();
        }
        stream
    }

    /// Streams that together use each instruction, mode and unit.
    fn all_kinds() -> Vec<Value> {
        let rate = |unit: &str, value: f64| json!({ "type": unit, "value": value });
        let fix = json!({ "type": "fix_checksum_ipv4", "pkt_offset": 14 });
        let hardware =
            json!({ "type": "fix_checksum_hw", "l2_len": 14, "l3_len": 20, "l4_type": 11 });
        vec![
            stream(
                json!({ "type": "continuous", "rate": rate("pps", 7.0 / 6.0 * 1000.0) }),
                json!({ "vm": { "instructions": [
                    var("a", "inc", [1, 6], 4, Some("b")), var("b", "dec", [3, 9], 2, None),
                    write("a", 34, 1000), write("b", 36, 0), hardware,
                ] } }),
            ),
            stream(
                json!({ "type": "continuous", "rate": rate("bps_L1", 3e6) }),
                json!({ "random_seed": 7, "vm": { "instructions": [
                    var("len", "inc", [60, 95], 5, None), { "type": "trim_pkt_size", "name": "len" },
                    write("len", 16, -14), var("r", "random", [0, 65_535], 1, None),
                    write("r", 18, 0), fix,
                ] } }),
            ),
            stream(
                json!({
                    "type": "multi_burst", "pkts_per_burst": 3, "count": 2, "ibg": 40.0,
                    "rate": rate("bps_L2", 1e8),
                }),
                json!({ "name": "first", "next": "then" }),
            ),
            stream(
                json!({ "type": "single_burst", "total_pkts": 4, "rate": rate("percentage", 1.0) }),
                json!({
                    "name": "then", "next": "first", "self_start": false, "action_count": 3,
                    "vm": { "cache": 3, "instructions": [
                        { "type": "tuple_flow_var", "name": "t", "ip_min": 1, "ip_max": 3,
                            "port_min": 5, "port_max": 9, "limit_flows": 7, "flags": 0 },
                        write("t.ip", 26, 0), write("t.port", 34, 0), fix,
                    ] },
                }),
            ),
            stream(
                json!({ "type": "continuous", "rate": rate("pps", 900.0) }),
                json!({
                    "flow_stats": { "enabled": true, "stream_id": 5, "rule_type": "stats" },
                    "vm": { "instructions": [
                        var("u", "random", [10, 20], 1, None), write("u", 36, 0),
                        { "type": "flow_var_rand_limit", "name": "l", "size": 4, "seed": 5,
                            "limit": 10, "min_value": 0, "max_value": 1000, "next_var": null },
                        { "type": "write_mask_flow_var", "name": "l", "pkt_offset": 50,
                            "pkt_cast_size": 2, "mask": 0x0ff0, "shift": 2, "add_value": 3,
                            "is_big_endian": true },
                    ] },
                }),
            ),
        ]
    }

    fn compared(streams: &[Value], golden: Option<&Path>) -> Comparison {
        let loaded = Loaded { ports: vec![streams.to_vec()], ..Loaded::default() };
        let tunables = BTreeMap::new();
        let file = File {
            path: Path::new("test.py"),
            library: None,
            tunables: &tunables,
            ports: &[String::new()],
            headers: false,
            clusters: None,
        };
        let setting = CompareSetting { packets: 300, golden };
        file.compare_streams(&loaded, &setting).expect("sound")
    }

    #[test]
    fn squall_sends_what_trex_sends_of_each_instruction_mode_and_unit() {
        let comparison = compared(&all_kinds(), None);
        assert!(!comparison.differs(), "{}", comparison.text());
        let sent: Vec<usize> = comparison.streams.iter().map(|row| row.trex).collect();
        assert_eq!(sent.iter().sum::<usize>(), 300);
        assert!(sent.iter().all(|sent| *sent > 5), "{sent:?}");
        assert!(comparison.streams[4].by_range && !comparison.streams[1].by_range);
    }

    #[test]
    fn a_deviation_of_squall_is_a_difference_of_its_stream() {
        // A limited random variable that waits for another one starts at 0 in TRex.
        let waits = stream(
            json!({ "type": "continuous", "rate": { "type": "pps", "value": 1000.0 } }),
            json!({ "name": "waits", "vm": { "instructions": [
                { "type": "flow_var", "name": "a", "size": 2, "op": "inc", "init_value": 2,
                    "min_value": 1, "max_value": 3, "step": 1, "next_var": "b" },
                { "type": "flow_var_rand_limit", "name": "b", "size": 2, "seed": 5, "limit": 10,
                    "min_value": 1, "max_value": 1000, "next_var": null },
                write("b", 36, 0), write("a", 34, 0),
            ] } }),
        );
        let comparison = compared(&[waits], None);
        assert!(comparison.differs());
        let text = comparison.text();
        assert!(text.contains("stream \"waits\", packet 1") && text.contains("octet 36"), "{text}");
    }

    #[test]
    fn a_capture_of_trex_is_compared_octet_by_octet() {
        let scratch = Scratch::new().expect("a folder");
        let file = scratch.0.join("golden.pcap");
        let mut wire = packet();
        wire[..6].fill(0x10);
        wire[6..12].fill(0x18);
        let golden = |last: &[u8]| {
            let mut writer = PcapWriter::new(Vec::new(), PcapFormat::default()).expect("memory");
            writer.write(5_000_000_000, 100, &wire).expect("memory");
            writer.write(5_001_000_000, 100, last).expect("memory");
            std::fs::write(&file, writer.finish().expect("memory")).expect("a file");
            let one = json!({ "type": "continuous", "rate": { "type": "pps", "value": 1000.0 } });
            compared(&[stream(one, json!({}))], Some(&file))
        };
        let same = golden(&wire);
        assert!(!same.differs(), "{}", same.text());
        let mut other = wire.clone();
        other[60] = 1;
        let text = golden(&other).text();
        assert!(text.contains("capture: stream \"1\", packet 2"), "{text}");
    }
}
