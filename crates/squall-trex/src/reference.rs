//! Reference model of TRex's data plane: the packets that the streams of a port produce.
//!
//! The model has the same state as TRex (variables, bursts, a queue of departures) and steps it
//! packet by packet, while [`crate::translate`] computes any packet from its index. It parses the
//! JSON of the streams independently and shares no code with the translation, so an error in either
//! shows as a difference between them. The rules are those of v3.08 on one core.

mod program;

use std::{cmp::Ordering, collections::BinaryHeap};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;

pub(crate) use program::Program;

use squall_units::get_be16;

use crate::Problem;

/// Addresses and speed of the sending port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wire {
    pub source: [u8; 6],
    pub destination: [u8; 6],
    /// Speed of the link, bits per second.
    pub speed: f64,
}

/// A packet and its departure time, in seconds since the start of the traffic.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Departure {
    pub at: f64,
    /// Index into the list of streams.
    pub stream: usize,
    pub octets: Vec<u8>,
}

/// A stream and its state.
#[derive(Debug)]
pub(crate) struct Node {
    pub name: String,
    packet: Vec<u8>,
    pub program: Program,
    /// Packets to repeat, if the stream uses a cache.
    cached: Option<(Vec<Vec<u8>>, usize)>,
    /// Seconds between packets, between bursts, and before the first packet, in this order.
    gap: f64,
    between: f64,
    before: f64,
    burst: u32,
    bursts: u32,
    endless: bool,
    left: u32,
    bursts_left: u32,
    /// Whether the stream sends nothing, but occupies the time that its packets would need.
    silent: bool,
    starts: bool,
    active: bool,
    next: Option<usize>,
    actions: u32,
    /// Whether TRex writes a header with its clock into the last octets of each packet.
    pub clocked: bool,
    /// Tagged packet group, and the next sequence number.
    tagged: Option<(u32, u32)>,
}

/// Length of the header at the end of packets with latency.
pub(crate) const CLOCK_LEN: usize = 16;

/// Streams of one port, in order of their start.
#[derive(Debug)]
pub(crate) struct Reference {
    pub nodes: Vec<Node>,
    queue: BinaryHeap<Due>,
    pushed: u64,
}

/// Orders by departure, earliest first; at equal times, in the order of queueing.
#[derive(Debug, PartialEq)]
struct Due {
    at: f64,
    order: u64,
    node: usize,
}

impl Eq for Due {}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        other.at.total_cmp(&self.at).then(other.order.cmp(&self.order))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Reference {
    /// # Errors
    /// TRex would refuse a stream, or `next` names an unknown one.
    pub fn read(streams: &[Value], wire: &Wire) -> Result<Self, Problem> {
        let enabled: Vec<(usize, &Value)> = streams
            .iter()
            .enumerate()
            .filter(|(_, stream)| truth(stream, "enabled", true))
            .collect();
        let names: Vec<Option<String>> =
            enabled.iter().map(|(_, stream)| label(stream, "name")).collect();
        let groups = groups(enabled.iter().map(|(_, stream)| *stream));
        let mut reference = Self { nodes: Vec::new(), queue: BinaryHeap::new(), pushed: 0 };
        for (at, (number, stream)) in enabled.iter().enumerate() {
            let name = names[at].clone().unwrap_or_else(|| format!("{}", number + 1));
            let next = label(stream, "next").filter(|next| !next.is_empty());
            let next = next.and_then(|next| {
                names.iter().position(|name| name.as_deref() == Some(next.as_str()))
            });
            let node = Node::read(stream, name.clone(), next, &groups, wire)
                .map_err(|problem| problem.of(format!("stream {name:?}")))?;
            reference.nodes.push(node);
        }
        for node in 0..reference.nodes.len() {
            if reference.nodes[node].starts {
                reference.nodes[node].active = true;
                let before = reference.nodes[node].before;
                reference.push(before, node);
            }
        }
        Ok(reference)
    }

    fn push(&mut self, at: f64, node: usize) {
        self.pushed += 1;
        self.queue.push(Due { at, order: self.pushed, node });
    }

    /// Ends a stream at `at`, after its last packet. Starts the next stream, unless that is active
    /// or its action count is used up.
    fn finish(&mut self, at: f64, node: usize) {
        self.nodes[node].active = false;
        let Some(next) = self.nodes[node].next else { return };
        if self.nodes[next].active {
            return;
        }
        if self.nodes[node].actions > 0 {
            self.nodes[node].actions -= 1;
            if self.nodes[node].actions == 0 {
                return;
            }
        }
        // Variables keep their values across restarts.
        let following = &mut self.nodes[next];
        following.active = true;
        (following.left, following.bursts_left) = (following.burst, following.bursts);
        let at = at + following.before;
        self.push(at, next);
    }

    /// Executes the next step. Steps of silent nodes are also returned, so a loop of these
    /// terminates.
    fn step(&mut self) -> Option<Option<Departure>> {
        let Due { at, node: index, .. } = self.queue.pop()?;
        let node = &mut self.nodes[index];
        let sent = (!node.silent).then(|| Departure { at, stream: index, octets: node.make() });
        if node.endless {
            let at = at + node.gap;
            self.push(at, index);
            return Some(sent);
        }
        node.left -= 1;
        if node.left > 0 {
            let at = at + node.gap;
            self.push(at, index);
            return Some(sent);
        }
        node.bursts_left = node.bursts_left.wrapping_sub(1);
        if node.bursts_left == 0 {
            self.finish(at, index);
        } else {
            node.left = node.burst;
            let at = at + node.between;
            self.push(at, index);
        }
        Some(sent)
    }
}

/// Number of steps without a packet after which the traffic is considered over.
const SILENCE: usize = 10_000_000;

impl Iterator for Reference {
    type Item = Departure;

    fn next(&mut self) -> Option<Departure> {
        (0..SILENCE).find_map(|_| self.step().map_or(Some(None), |sent| sent.map(Some)))?
    }
}

impl Node {
    fn read(
        stream: &Value,
        name: String,
        next: Option<usize>,
        groups: &[u64],
        wire: &Wire,
    ) -> Result<Self, Problem> {
        let flags = whole(stream, "flags", Some(0))?;
        let mut packet = octets(stream)?;
        if (flags >> 1) & 3 != 1 {
            packet[..6].copy_from_slice(&wire.destination);
        }
        if flags & 1 == 0 {
            packet[6..12].copy_from_slice(&wire.source);
        }
        let statistics = &stream["flow_stats"];
        let counted = truth(statistics, "enabled", false);
        let clocked = counted && statistics["rule_type"] == "latency";
        let tagged = (counted && is_tagged(stream)).then(|| group_of(stream)).flatten();
        if counted && tagged.is_none() {
            let group = groups.iter().position(|group| Some(*group) == group_of(stream));
            mark(&mut packet, if clocked { None } else { group });
        }
        let seed = whole(stream, "random_seed", Some(0))? as u32;
        let mut program = Program::read(&stream["vm"], packet.len(), seed)?;
        let mode = &stream["mode"];
        let pps = pps(&mode["rate"], program.expected_len(packet.len()), wire.speed)?;
        let count = |key: &str| whole(mode, key, None).map(|count| count as u32);
        let (burst, bursts, endless) = match mode["type"].as_str() {
            Some("continuous") => (0, 0, true),
            Some("single_burst") => (count("total_pkts")?, 1, false),
            Some("multi_burst") => (count("pkts_per_burst")?, count("count")?, false),
            other => return Err(Problem::new(format!("mode = {other:?}: not known"))),
        };
        if !endless && burst == 0 {
            return Err(Problem::new("a burst cannot have 0 packets"));
        }
        // A cache cannot hold packets with a clock, which have a different header each.
        let cache = whole(&stream["vm"], "cache", Some(0))? as usize;
        let cached = (cache > 0 && !clocked && program.has_instructions())
            .then(|| ((0..cache).map(|_| program.run(&packet)).collect(), 0));
        Ok(Self {
            name,
            packet,
            program,
            cached,
            gap: 1.0 / pps,
            between: mode["ibg"].as_f64().unwrap_or(0.0) / 1e6,
            before: stream["isg"].as_f64().unwrap_or(0.0) / 1e6,
            burst,
            bursts,
            endless,
            left: burst,
            bursts_left: bursts,
            silent: flags & 8 != 0 || truth(stream, "start_paused", false),
            starts: truth(stream, "self_start", true),
            active: false,
            next,
            actions: whole(stream, "action_count", Some(0))? as u32,
            clocked,
            tagged: tagged.map(|group| (group as u32, 0)),
        })
    }

    /// The packet before the field engine runs.
    pub fn packet(&self) -> &[u8] {
        &self.packet
    }

    fn make(&mut self) -> Vec<u8> {
        let mut packet = match &mut self.cached {
            None => self.program.run(&self.packet),
            Some((cached, at)) => {
                let packet = cached[*at].clone();
                *at = (*at + 1) % cached.len();
                packet
            }
        };
        // The last 16 octets of a tagged packet group, little-endian: magic, group, sequence, 0.
        if let Some((group, sequence)) = &mut self.tagged
            && let Some(end) = packet.last_chunk_mut::<16>()
        {
            let words = [0xe50b_5cc1, *group, *sequence, 0];
            for (octets, word) in end.chunks_exact_mut(4).zip(words) {
                octets.copy_from_slice(&word.to_le_bytes());
            }
            *sequence = sequence.wrapping_add(1);
        }
        packet
    }
}

/// Rate in packets per second.
fn pps(rate: &Value, mean_len: f64, speed: f64) -> Result<f64, Problem> {
    let value = rate["value"].as_f64().ok_or_else(|| Problem::new("rate: expected a number"))?;
    let l2_bits = (mean_len + 4.0) * 8.0;
    let pps = match rate["type"].as_str() {
        Some("pps") => value,
        Some("bps_L2") => value / l2_bits,
        Some("bps_L1") => value / (l2_bits + 160.0),
        Some("percentage") => speed * value / 100.0 / (l2_bits + 160.0),
        other => return Err(Problem::new(format!("rate in {other:?}: not known"))),
    };
    match pps.is_finite() && pps > 0.0 {
        true => Ok(pps),
        false => Err(Problem::new(format!("rate = {value}: expected more than 0"))),
    }
}

fn octets(stream: &Value) -> Result<Vec<u8>, Problem> {
    let text = stream["packet"]["binary"].as_str();
    let text = text.ok_or_else(|| Problem::new("packet.binary: expected base64"))?;
    let mut packet =
        STANDARD.decode(text.trim()).map_err(|error| Problem::new(error.to_string()))?;
    if packet.len() < 60 {
        packet.resize(60, 0);
    }
    Ok(packet)
}

fn is_tagged(stream: &Value) -> bool {
    stream["flow_stats"]["rule_type"] == "tpg"
}

fn group_of(stream: &Value) -> Option<u64> {
    stream["flow_stats"]["stream_id"].as_u64()
}

/// Packet groups that are counted by a mark, in order of first use.
fn groups<'a>(streams: impl Iterator<Item = &'a Value>) -> Vec<u64> {
    let mut groups = Vec::new();
    for stream in streams {
        let statistics = &stream["flow_stats"];
        let counted = truth(statistics, "enabled", false) && !is_tagged(stream);
        let marked = counted && statistics["rule_type"] != "latency";
        if let Some(group) = group_of(stream).filter(|group| marked && !groups.contains(group)) {
            groups.push(group);
        }
    }
    groups
}

/// Writes TRex's mark of counted packets: the lowest bit of the traffic class, and in the IPv4
/// identification or the IPv6 flow label 0xff00 plus the group's index, or 0xffff with latency.
fn mark(packet: &mut [u8], group: Option<usize>) {
    let id = group.map_or(0xffff, |group| 0xff00 + group as u16).to_be_bytes();
    let Some(at) = network_header(packet) else { return };
    match packet[at] >> 4 {
        4 if packet.len() >= at + 20 => {
            packet[at + 1] |= 1;
            packet[at + 4..at + 6].copy_from_slice(&id);
            program::fix_ipv4(packet, at);
        }
        6 if packet.len() >= at + 40 => {
            packet[at + 1] = packet[at + 1] & 0xf0 | 0x10;
            packet[at + 2..at + 4].copy_from_slice(&id);
        }
        _ => {}
    }
}

/// Offset of the network header: after Ethernet, VLAN tags and MPLS labels.
fn network_header(packet: &[u8]) -> Option<usize> {
    let word = |at: usize| get_be16(packet, at);
    let mut at = 12;
    while matches!(word(at)?, 0x8100 | 0x88a8 | 0x9100) {
        at += 4;
    }
    match word(at)? {
        0x0800 | 0x86dd => Some(at + 2),
        0x8847 | 0x8848 => {
            at += 2;
            while packet.get(at + 2)? & 1 == 0 {
                at += 4;
            }
            Some(at + 4)
        }
        _ => None,
    }
}

fn label(value: &Value, key: &str) -> Option<String> {
    match &value[key] {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

fn truth(value: &Value, key: &str, default: bool) -> bool {
    value[key].as_bool().unwrap_or(default)
}

/// Reads a whole number; `default` if absent.
pub(crate) fn whole(value: &Value, key: &str, default: Option<u64>) -> Result<u64, Problem> {
    match (&value[key], default) {
        (Value::Null, Some(default)) => Ok(default),
        (found, _) => found
            .as_u64()
            .ok_or_else(|| Problem::new(format!("{key} = {found}: expected a whole number"))),
    }
}

#[cfg(test)]
mod tests;
