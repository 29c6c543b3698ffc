//! Compares flows: the settings taken from a profile, and the data of each side with a TRex
//! capture.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::atomic::{AtomicU32, Ordering},
};

use serde::Serialize;
use serde_json::Value;
use squall::{Error, RunOptions};
use squall_options::{CaptureOptions, Time};
use squall_units::{Nanos, get_be16};

use super::{CompareSetting, Comparison, Golden, LISTED, Scratch, frames::Found, packets_of, run};
use crate::{Astf, File, astf::Tunable};

/// Flows between clients and servers of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct Template {
    pub name: String,
    pub transport: &'static str,
    pub port: u64,
    pub cps: Option<f64>,
    pub limit: Option<u64>,
    /// First and last address of the clients and of the servers.
    pub clients: String,
    pub servers: String,
}

pub fn table(templates: &[Template]) -> String {
    if templates.is_empty() {
        return String::new();
    }
    let mut text =
        "  template      transport   port       CPS  limit  clients, servers\n".to_owned();
    for one in templates {
        let cps = one.cps.map_or("-".to_owned(), |cps| cps.to_string());
        let limit = one.limit.map_or("-".to_owned(), |limit| limit.to_string());
        text += &format!(
            "  {:12}  {:9}  {:5}  {cps:>8}  {limit:>5}  {}, {}\n",
            one.name, one.transport, one.port, one.clients, one.servers
        );
    }
    text
}

pub fn compare(
    file: &File<'_>,
    value: &Value,
    setting: &CompareSetting<'_>,
) -> Result<Comparison, Error> {
    let mut comparison = Comparison::of(file.path, "flows");
    comparison.templates = templates(value);
    match Astf::read(value) {
        Ok(astf) => comparison.notes.extend(astf.tunables().iter().map(note)),
        Err(problem) => comparison.differences.push(format!("Squall does not send it: {problem}")),
    }
    if comparison.templates.len() > 1 {
        comparison.notes.push(
            "each template begins its flows at its own even rate: TRex chooses among them at random"
                .to_owned(),
        );
    }
    let address = File { ports: &["loop:compare,virtual".to_owned()], ..file.clone() };
    if let Err(error) = address.of_flows(value) {
        comparison.differences.push(format!("Squall does not send it: {error}"));
    } else if let Some(golden) = setting.golden {
        comparison.golden = Some(against(file, value, golden)?);
    }
    Ok(comparison)
}

fn note(tunable: &Tunable) -> String {
    let Tunable { scope, name, value, effect } = tunable;
    format!("{scope}: {name} = {value}: {effect}")
}

/// The templates as the profile lists them, before translation.
fn templates(value: &Value) -> Vec<Template> {
    let all = value["templates"].as_array();
    let of = |(number, template): (usize, &Value)| {
        let client = &template["client_template"];
        let program = &value["program_list"][index(&client["program_index"])];
        let addresses = |side: &str| {
            let list = &value["ip_gen_dist_list"][index(&client["ip_gen"][side]["index"])];
            let text = |key: &str| list[key].as_str().unwrap_or("?").to_owned();
            format!("{}-{}", text("ip_start"), text("ip_end"))
        };
        Template {
            name: format!("template_{number}"),
            transport: if program["stream"] == Value::Bool(false) { "UDP" } else { "TCP" },
            port: client["port"].as_u64().unwrap_or(0),
            cps: client["cps"].as_f64(),
            limit: client["limit"].as_u64(),
            clients: addresses("dist_client"),
            servers: addresses("dist_server"),
        }
    };
    all.into_iter().flatten().enumerate().map(of).collect()
}

fn index(value: &Value) -> usize {
    value.as_u64().map_or(usize::MAX, |index| index as usize)
}

/// Duration of TRex's simulator, without the arrival due at its end; and a duration (`LIMITED`)
/// that is long enough for profiles that end by themselves.
const SIMULATED: Nanos = Nanos(4_999_000_000);
const LIMITED: Nanos = Nanos(30_000_000_000);

fn against(file: &File<'_>, value: &Value, golden: &Path) -> Result<Golden, Error> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let trex = packets_of(golden)?;
    let scratch = Scratch::new()?;
    let (number, id) = (NUMBER.fetch_add(1, Ordering::Relaxed), std::process::id());
    let ports = [format!("loop:compare-{id}-{number},virtual,max_frame=9018")];
    let profile = File { ports: &ports, ..file.clone() }.of_flows(value)?;
    let out = scratch.0.join("flows.pcap");
    let limited = templates(value).iter().any(|template| template.limit.is_some());
    let options = RunOptions {
        duration: Some(Time(if limited { LIMITED } else { SIMULATED })),
        capture: Some(CaptureOptions { file: Some(out.clone()), ..CaptureOptions::default() }),
        ..RunOptions::default()
    };
    run(profile, options)?;
    let mut differences = differences(&packets_of(&out)?, &trex, by_chance(value));
    differences.truncate(LISTED);
    let file = golden.display().to_string();
    Ok(Golden { file, packets: trex.len(), differences })
}

/// Whether timing is random, because TRex selects templates at random or draws random delays. If
/// so, only the content of flows is compared, not their start times and segments.
fn by_chance(value: &Value) -> bool {
    let programs = value["program_list"].as_array();
    let commands = programs.into_iter().flatten().filter_map(|one| one["commands"].as_array());
    let waits = commands.flatten().any(|command| command["name"] == "delay_rnd");
    waits || value["templates"].as_array().is_some_and(|all| all.len() > 1)
}

/// A segment sent by one side of a flow.
#[derive(Debug, PartialEq, Eq)]
struct Segment {
    by_first: bool,
    flags: u8,
    octets: usize,
    at_ns: u64,
}

impl std::fmt::Display for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { by_first, flags, octets, at_ns } = self;
        let side = if *by_first { "client" } else { "server" };
        write!(f, "{octets} octets of the {side} with flags {flags:#04x} at {at_ns} ns")
    }
}

#[derive(Debug, Default)]
struct Flow {
    begin_ns: u64,
    segments: Vec<Segment>,
    /// Payload sent by the side that began the flow, then by its peer.
    octets: [Vec<u8>; 2],
    syns: Vec<Vec<u8>>,
}

/// Transport protocol, address of the initiator, and TCP or UDP port of the responder.
type Key = (u8, Vec<u8>, u16);

pub(super) type End = (Vec<u8>, u16);

/// A dissected segment or datagram.
pub(super) struct Parsed<'a> {
    protocol: u8,
    from: End,
    pub to: End,
    pub flags: u8,
    pub options: &'a [u8],
    pub data: &'a [u8],
}

pub(super) fn parse(octets: &[u8]) -> Option<Parsed<'_>> {
    let word = |at: usize| get_be16(octets, at);
    let mut at = 14;
    while word(at - 2)? == 0x8100 {
        at += 4;
    }
    let v6 = octets.get(at)? >> 4 == 6;
    let (protocol, l4, end, from, to) = if v6 {
        let end = at + 40 + usize::from(word(at + 4)?);
        (octets.get(at + 6)?, at + 40, end, at + 8..at + 24, at + 24..at + 40)
    } else {
        let l4 = at + 4 * usize::from(octets.get(at)? & 15);
        (
            octets.get(at + 9)?,
            l4,
            at + usize::from(word(at + 2)?),
            at + 12..at + 16,
            at + 16..at + 20,
        )
    };
    let tcp = match protocol {
        6 => true,
        17 => false,
        _ => return None,
    };
    let data = l4 + if tcp { 4 * usize::from(octets.get(l4 + 12)? >> 4) } else { 8 };
    Some(Parsed {
        protocol: *protocol,
        from: (octets.get(from)?.to_vec(), word(l4)?),
        to: (octets.get(to)?.to_vec(), word(l4 + 2)?),
        flags: if tcp { *octets.get(l4 + 13)? } else { 0 },
        options: if tcp { octets.get(l4 + 20..data)? } else { &[] },
        data: octets.get(data..end)?,
    })
}

const SYN: u8 = 2;
const ACK: u8 = 16;

/// Groups packets to flows by client address and server port, in order of their start.
fn flows_of(packets: &[Found]) -> BTreeMap<Key, Vec<Flow>> {
    let mut flows: Vec<(Key, End, Flow)> = Vec::new();
    let mut known: BTreeMap<(u8, End, End), usize> = BTreeMap::new();
    for packet in packets {
        let Some(one) = parse(&packet.octets) else { continue };
        let mut ends = [one.from.clone(), one.to.clone()];
        ends.sort();
        let [low, high] = ends;
        let id = (one.protocol, low, high);
        // A SYN starts a new flow even if addresses and ports are reused.
        let begins = one.flags & (SYN | ACK) == SYN;
        let number = match known.get(&id).filter(|_| !begins) {
            Some(number) => *number,
            None => {
                let key = (one.protocol, one.from.0.clone(), one.to.1);
                let flow = Flow { begin_ns: packet.at_ns, ..Flow::default() };
                flows.push((key, one.from.clone(), flow));
                known.insert(id, flows.len() - 1);
                flows.len() - 1
            }
        };
        let (_, first, flow) = &mut flows[number];
        let by_first = one.from == *first;
        flow.segments.push(Segment {
            by_first,
            flags: one.flags,
            octets: one.data.len(),
            at_ns: packet.at_ns - flow.begin_ns,
        });
        flow.octets[usize::from(!by_first)].extend_from_slice(one.data);
        if one.flags & SYN != 0 {
            flow.syns.push(unstamped(one.options));
        }
    }
    let mut grouped: BTreeMap<Key, Vec<Flow>> = BTreeMap::new();
    for (key, _, flow) in flows {
        grouped.entry(key).or_default().push(flow);
    }
    grouped
}

/// The options of a SYN, with timestamp values removed.
fn unstamped(options: &[u8]) -> Vec<u8> {
    let mut options = options.to_vec();
    if let Some(at) = options.windows(2).position(|pair| pair == [8, 10]) {
        options.drain(at + 2..(at + 10).min(options.len()));
    }
    options
}

fn by_port(flows: BTreeMap<Key, Vec<Flow>>) -> BTreeMap<Key, Vec<Flow>> {
    let mut all: BTreeMap<Key, Vec<Flow>> = BTreeMap::new();
    for ((protocol, _, port), some) in flows {
        all.entry((protocol, Vec::new(), port)).or_default().extend(some);
    }
    all
}

const SECOND: u64 = 1_000_000_000;

fn differences(squall: &[Found], trex: &[Found], loose: bool) -> Vec<String> {
    let start = |side: &[Found]| side.first().map_or(0, |packet| packet.at_ns);
    let starts = [start(squall), start(trex)];
    let (mut squall, mut trex) = (flows_of(squall), flows_of(trex));
    if loose {
        (squall, trex) = (by_port(squall), by_port(trex));
        for (key, flows) in &mut squall {
            let Some(others) = trex.get_mut(key) else { continue };
            let number = flows.len().min(others.len());
            flows.truncate(number);
            others.truncate(number);
        }
    }
    let mut found = Vec::new();
    for (key, flows) in &trex {
        let address: String = key.1.iter().map(|octet| format!("{octet:02x}")).collect();
        let client = format!("{address} to port {}", key.2);
        let sent = squall.remove(key).unwrap_or_default();
        if sent.len() != flows.len() {
            found.push(format!("{} flows of {client} in place of {}", sent.len(), flows.len()));
            continue;
        }
        for (number, (a, b)) in (1..).zip(sent.iter().zip(flows)) {
            let text = match loose {
                true => content(a, b),
                false => content(a, b).or_else(|| course(a, b, starts)),
            };
            found.extend(text.map(|text| format!("flow {number} of {client}: {text}")));
        }
    }
    if !squall.is_empty() {
        found.push(format!("{} clients that TRex does not have", squall.len()));
    }
    found
}

/// Describes a difference in the options or payload of a flow.
fn content(squall: &Flow, trex: &Flow) -> Option<String> {
    if squall.syns != trex.syns {
        let hex = |flow: &Flow| {
            flow.syns
                .iter()
                .map(|options| squall_wire::to_hex(options))
                .collect::<Vec<_>>()
                .join(" ")
        };
        return Some(format!("options {} in place of {}", hex(squall), hex(trex)));
    }
    let lens =
        |flow: &Flow| flow.octets.each_ref().map(|octets| octets.len().to_string()).join("+");
    (squall.octets != trex.octets)
        .then(|| format!("{} octets in place of {}, or other octets", lens(squall), lens(trex)))
}

/// Describes a difference in the start time or segments of a flow.
fn course(squall: &Flow, trex: &Flow, starts: [u64; 2]) -> Option<String> {
    let [found, expected] = [squall.begin_ns - starts[0], trex.begin_ns - starts[1]];
    if found.abs_diff(expected) > SECOND {
        return Some(format!("begins at {found} ns in place of {expected} ns"));
    }
    for (at, (a, b)) in (1..).zip(squall.segments.iter().zip(&trex.segments)) {
        let same = (a.by_first, a.flags, a.octets) == (b.by_first, b.flags, b.octets);
        if !same || a.at_ns.abs_diff(b.at_ns) > SECOND {
            return Some(format!("segment {at} is {a} in place of {b}"));
        }
    }
    let [found, expected] = [squall.segments.len(), trex.segments.len()];
    (found != expected).then(|| format!("{found} segments in place of {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A TCP segment over IPv4, from or to the client.
    fn segment(at_ns: u64, to_server: bool, flags: u8, data: &[u8]) -> Found {
        let mut octets = vec![0; 54];
        octets[12] = 8;
        octets[14] = 0x45;
        octets[16..18].copy_from_slice(&(40 + data.len() as u16).to_be_bytes());
        octets[23] = 6;
        let (client, server) = if to_server { (26, 30) } else { (30, 26) };
        octets[client..client + 4].copy_from_slice(&[16, 0, 0, 1]);
        octets[server..server + 4].copy_from_slice(&[48, 0, 0, 1]);
        let (from, to) = if to_server { (34, 36) } else { (36, 34) };
        octets[from..from + 2].copy_from_slice(&1025u16.to_be_bytes());
        octets[to..to + 2].copy_from_slice(&80u16.to_be_bytes());
        octets[46] = 5 << 4;
        octets[47] = flags;
        octets.extend_from_slice(data);
        Found { at_ns, octets }
    }

    fn exchange(shift: u64) -> Vec<Found> {
        vec![
            segment(shift, true, SYN, b""),
            segment(shift + 1_000, false, SYN | ACK, b""),
            segment(shift + 2_000, true, 24, b"GET"),
            segment(shift + 3_000, false, 24, b"200"),
        ]
    }

    #[test]
    fn a_flow_is_the_same_whenever_its_capture_began_and_not_with_another_octet() {
        assert_eq!(differences(&exchange(0), &exchange(77), false), Vec::<String>::new());
        let mut other = exchange(0);
        other[3] = segment(3_000, false, 24, b"404");
        assert!(differences(&other, &exchange(0), true)[0].contains("other octets"));
        let mut flags = exchange(0);
        flags[2] = segment(2_000, true, ACK, b"GET");
        assert!(differences(&flags, &exchange(0), false)[0].contains("segment 3"));
        assert_eq!(differences(&flags, &exchange(0), true), Vec::<String>::new());
    }

    #[test]
    fn a_second_flow_of_the_same_ports_begins_with_its_syn() {
        let twice = [exchange(0), exchange(10_000)].concat();
        let text = differences(&twice, &exchange(0), false);
        assert_eq!(text, ["2 flows of 10000001 to port 80 in place of 1"]);
    }
}
