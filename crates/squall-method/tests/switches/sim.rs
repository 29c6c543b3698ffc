//! A switch simulated frame by frame: an address table with aging, a queue at each port, flooding
//! of unknown addresses, and IGMP and MLD snooping. Methods must find its configured properties.

use std::collections::{BTreeMap, HashMap, HashSet};

use squall_method::{
    ArrivedRange, Delay, Lane, LaneMeasured, Measured, MethodError, PortMeasured, ReceiverMeasured,
    Runner, Trial,
};
use squall_port::device::{Buffer, Limit};
use squall_stats::SequenceTracker;
use squall_units::Nanos;

/// Properties of a switch.
#[derive(Clone, Debug)]
pub struct Make {
    pub ports: usize,
    /// Rate of each port's queue, frames per second.
    pub fps: f64,
    /// Length of each port's queue, frames.
    pub depth: u32,
    /// Total capacity of all queues, frames: a congested port takes capacity from the others.
    pub shared: Option<usize>,
    pub delay_ns: u64,
    /// Capacity of the address table, addresses.
    pub table: usize,
    /// Addresses learned per second; a few further ones wait in a queue.
    pub learns: Option<f64>,
    pub age_s: f64,
    /// Group capacity. Further groups are flooded.
    pub groups: usize,
    pub join_ns: u64,
    pub leave_ns: u64,
    /// Frame rate above which the processor forwards only half.
    pub collapses: Option<f64>,
    pub filters_errors: bool,
}

impl Default for Make {
    fn default() -> Self {
        Self {
            ports: 4,
            fps: 1e6,
            depth: 64,
            shared: None,
            delay_ns: 5_000,
            table: 1024,
            learns: None,
            age_s: 300.0,
            groups: 256,
            join_ns: 0,
            leave_ns: 0,
            collapses: None,
            filters_errors: true,
        }
    }
}

/// A running switch.
pub struct Switch {
    make: Make,
    now: u64,
    /// Port of each address, and time of the last frame from it.
    table: HashMap<u64, (usize, u64)>,
    learner: Option<Buffer>,
    /// Start and end of the membership of each port in a group.
    members: HashMap<u128, HashMap<usize, (u64, u64)>>,
    /// Groups that did not fit.
    flooded: HashSet<u128>,
}

/// A received frame.
struct Frame {
    at: u64,
    lane: usize,
    number: u64,
    port: usize,
}

#[derive(Default)]
struct Seen {
    /// Sequence numbers, delays and arrival times, by port.
    ports: BTreeMap<usize, Vec<(u64, u64, u64)>>,
}

impl Switch {
    pub fn new(make: Make) -> Self {
        let learner = make.learns.map(|fps| Buffer::new(limit(fps, 2)));
        let (table, members, flooded) = Default::default();
        Self { make, now: 0, table, learner, members, flooded }
    }

    fn name(port: usize) -> String {
        format!("p{port}")
    }

    pub fn port_names(&self) -> Vec<String> {
        (0..self.make.ports).map(Self::name).collect()
    }

    fn learn(&mut self, source: u64, port: usize, at: u64) {
        let age = (self.make.age_s * 1e9) as u64;
        if let Some(known) = self.table.get_mut(&source).filter(|known| at - known.1 <= age) {
            *known = (port, at);
            return;
        }
        if self.table.len() >= self.make.table {
            self.table.retain(|_, known| at - known.1 <= age);
        }
        let room = self.table.len() < self.make.table;
        let in_time = |buffer: &mut Buffer| buffer.departure(Nanos(at), 60).is_some();
        if room && self.learner.as_mut().is_none_or(in_time) {
            self.table.insert(source, (port, at));
        }
    }

    /// Output ports of a frame.
    fn outputs(&self, to: u64, group: Option<u128>, port: usize, at: u64) -> Vec<usize> {
        let others = || (0..self.make.ports).filter(move |&other| other != port);
        let age = (self.make.age_s * 1e9) as u64;
        if let Some(group) = group {
            // Unknown groups have no members. Groups that did not fit are flooded.
            let member = |port: &usize| {
                let time = self.members.get(&group).and_then(|of| of.get(port));
                time.is_some_and(|(from, to)| (*from..*to).contains(&at))
            };
            let flooded = self.flooded.contains(&group);
            return others().filter(|port| flooded || member(port)).collect();
        }
        match self.table.get(&to).filter(|(_, seen)| at - seen <= age) {
            Some(&(known, _)) if known != port => vec![known],
            Some(_) => Vec::new(),
            None => others().collect(),
        }
    }

    /// A membership report or leave.
    fn member(&mut self, group: u128, leaves: bool, port: usize, at: u64) {
        if leaves {
            self.flooded.remove(&group);
            if let Some(time) = self.members.get_mut(&group).and_then(|of| of.get_mut(&port)) {
                time.1 = at + self.make.leave_ns;
            }
            return;
        }
        if !self.members.contains_key(&group) && self.members.len() >= self.make.groups {
            self.members.retain(|_, of| of.values().any(|(_, to)| *to > at));
        }
        if self.members.contains_key(&group) || self.members.len() < self.make.groups {
            let of = self.members.entry(group).or_default();
            of.insert(port, (at + self.make.join_ns, u64::MAX));
        } else {
            self.flooded.insert(group);
        }
    }
}

fn limit(fps: f64, depth: u32) -> Limit {
    Limit::new(format!("{fps}pps").parse().unwrap(), depth).unwrap()
}

/// The numbers that vary in the frames of a template.
struct Numbers {
    from: u64,
    to: u64,
    /// IP destination, if it is a group.
    group: Option<u128>,
    /// The group in a report, and whether the report is a leave.
    names: Option<(u128, bool)>,
    vary: Vec<(String, u128, u128)>,
}

impl Numbers {
    fn of(packet: &str, vary: &[serde_json::Value]) -> Self {
        let field = |layer: &str, name: &str| {
            let inside = packet.split('/').find(|part| part.starts_with(layer))?;
            let at = inside.find(&format!("{name}="))? + name.len() + 1;
            Some(inside[at..].split([',', ')', ']']).next().unwrap().to_owned())
        };
        let address = |text: String| number(&text);
        let group = field("ipv4", "dst").or(field("ipv6", "dst")).map(address);
        let is_group = |n: &u128| (*n >> 28 == 0xe && *n >> 24 == 0xef) || *n >> 112 == 0xff05;
        let of_record = packet
            .split_once("to-exclude(")
            .map(|(_, rest)| (rest, false))
            .or(packet.split_once("to-include(").map(|(_, rest)| (rest, true)))
            .map(|(rest, leaves)| (number(rest.split(')').next().unwrap()), leaves));
        let of_report = field("igmp", "group")
            .or(field("icmpv6", "target"))
            .map(|group| (number(&group), packet.contains("=leave") || packet.contains("-done")));
        let changes = vary.iter().map(|one| {
            let name = one["field"].as_str().unwrap_or("offset").to_owned();
            let value = |key: &str| match &one[key] {
                serde_json::Value::String(text) => number(text),
                other => other.as_u64().unwrap().into(),
            };
            assert_eq!(one["op"], "increment");
            (name, value("min"), value("max"))
        });
        Self {
            from: number(&field("eth", "src").unwrap()) as u64,
            to: number(&field("eth", "dst").unwrap()) as u64,
            group: group.filter(is_group),
            names: of_record.or(of_report),
            vary: changes.collect(),
        }
    }

    /// Source, destination, destination group, and group in a report, of frame `n`.
    fn at(&self, n: u64) -> (u64, u64, Option<u128>, Option<(u128, bool)>) {
        let (mut from, mut to, mut group, mut names) = (self.from, self.to, self.group, self.names);
        for (field, min, max) in &self.vary {
            let value = min + u128::from(n) % (max - min + 1);
            match field.as_str() {
                "eth.src" => from = value as u64,
                "eth.dst" => to = value as u64,
                "ipv4.dst" | "ipv6.dst" => group = Some(value),
                _ => names = names.map(|(_, leaves)| (value, leaves)),
            }
        }
        (from, to, group, names)
    }
}

fn number(text: &str) -> u128 {
    if text.matches(':').count() == 5 && !text.contains("::") {
        let octets = text.split(':').map(|octet| u128::from_str_radix(octet, 16).unwrap());
        return octets.fold(0, |all, octet| all << 8 | octet);
    }
    match text.parse::<std::net::IpAddr>().unwrap_or_else(|_| panic!("{text}")) {
        std::net::IpAddr::V4(address) => u32::from(address).into(),
        std::net::IpAddr::V6(address) => address.into(),
    }
}

impl Runner for Switch {
    fn run(&mut self, trial: &Trial) -> Result<Measured, MethodError> {
        let begin = self.now;
        if trial.action.as_ref().is_some_and(|action| action.command == "flush") {
            self.table.clear();
            self.members.clear();
            self.flooded.clear();
        }
        let numbers: Vec<Numbers> = trial
            .lanes
            .iter()
            .map(|lane| {
                let template = lane.template.as_ref().expect("streams of the method's own");
                Numbers::of(&template.packet, &template.vary)
            })
            .collect();
        let mut frames = frames(trial, begin, &self.port_names());
        // Frames at the same time are ordered by descending port: in RFC 2889 §5.5 the last port
        // competes for the congested port.
        frames.sort_by_key(|frame| (frame.at, std::cmp::Reverse(frame.port), frame.lane));
        let mut queues: Vec<Buffer> = (0..self.make.ports)
            .map(|_| Buffer::new(limit(self.make.fps, self.make.depth)))
            .collect();
        let mut waiting: Vec<Vec<u64>> = vec![Vec::new(); self.make.ports];
        let mut seen: Vec<Seen> = trial.lanes.iter().map(|_| Seen::default()).collect();
        let mut sent = vec![0u64; trial.lanes.len()];
        let mut ports: Vec<PortMeasured> = self
            .port_names()
            .into_iter()
            .map(|name| PortMeasured { name, ..PortMeasured::default() })
            .collect();
        let mut gave_up = HashSet::new();
        for frame in &frames {
            let lane = &trial.lanes[frame.lane];
            let plain = lane.template.as_ref().is_some_and(|template| template.plain);
            sent[frame.lane] += 1;
            ports[frame.port].sent += 1;
            let (from, to, group, names) = numbers[frame.lane].at(frame.number);
            let size = lane.frame_size.unwrap_or(64);
            if self.make.filters_errors && !(64..=1522).contains(&size) {
                continue;
            }
            self.learn(from, frame.port, frame.at);
            if let Some((group, leaves)) = names {
                self.member(group, leaves, frame.port, frame.at);
                continue;
            }
            // If overloaded, the processor forwards half of the offered frames.
            if self.make.collapses.is_some_and(|fps| lane.rate_fps > fps)
                && !plain
                && gave_up.len() % 2 == 0
            {
                gave_up.insert((frame.lane, frame.number));
                continue;
            }
            if self.make.collapses.is_some() {
                gave_up.insert((frame.lane, frame.number));
            }
            for out in self.outputs(to, group, frame.port, frame.at) {
                if let Some(shared) = self.make.shared {
                    waiting.iter_mut().for_each(|queue| queue.retain(|left| *left > frame.at));
                    if waiting.iter().map(Vec::len).sum::<usize>() >= shared {
                        continue;
                    }
                }
                let Some(left) = queues[out].departure(Nanos(frame.at), size - 4) else { continue };
                waiting[out].push(left.0);
                ports[out].received += 1;
                if plain {
                    ports[out].foreign += 1;
                    continue;
                }
                let arrives = left.0 + self.make.delay_ns;
                let of_port = seen[frame.lane].ports.entry(out).or_default();
                of_port.push((frame.number, arrives - frame.at, arrives));
            }
        }
        self.now = begin + (trial.duration_s * 1e9) as u64;
        let lanes = trial.lanes.iter().zip(sent).zip(seen);
        let names = self.port_names();
        let measured =
            |((lane, sent), seen): ((&Lane, u64), Seen)| lane_measured(lane, sent, &seen, &names);
        let lanes = lanes.map(measured).collect();
        Ok(Measured { lanes, ports, ..Measured::default() })
    }

    fn settle(&mut self, seconds: f64) -> Result<(), MethodError> {
        self.now += (seconds * 1e9) as u64;
        Ok(())
    }
}

fn frames(trial: &Trial, begin: u64, names: &[String]) -> Vec<Frame> {
    let of_lane = |(i, lane): (usize, &Lane)| {
        let template = lane.template.as_ref().unwrap();
        let port = names.iter().position(|name| *name == template.port).expect("a port of the rig");
        let (start, rate) = (lane.start_s, lane.rate_fps);
        let frame = move |number: u64| {
            let at = begin + ((start + number as f64 / rate) * 1e9).round() as u64;
            Frame { at, lane: i, number, port }
        };
        (0..lane.due(trial.duration_s)).map(frame)
    };
    trial.lanes.iter().enumerate().flat_map(of_lane).collect()
}

/// As in a report, loss is that at the port with the most received frames.
fn lane_measured(lane: &Lane, sent: u64, seen: &Seen, names: &[String]) -> LaneMeasured {
    let plain = lane.template.as_ref().is_some_and(|template| template.plain);
    let received = seen.ports.values().map(|frames| frames.len() as u64).sum();
    let best = seen.ports.values().max_by_key(|frames| frames.len());
    let came: HashSet<u64> = best.into_iter().flatten().map(|frame| frame.0).collect();
    let lost = if plain { 0 } else { sent - came.len() as u64 };
    let (mut gaps, mut span) = (0, 0);
    for frames in seen.ports.values() {
        gaps += frames.len() - 1;
        let times = || frames.iter().map(|frame| frame.2);
        span += times().max().unwrap() - times().min().unwrap();
    }
    let mut sequence = SequenceTracker::new();
    for (number, ..) in best.into_iter().flatten().filter(|_| !plain) {
        sequence.observe(*number as u32);
    }
    let of_port = |(port, frames): (&usize, &Vec<(u64, u64, u64)>)| ReceiverMeasured {
        port: names[*port].clone(),
        received: frames.len() as u64,
        lost: sent - frames.iter().map(|frame| frame.0).collect::<HashSet<_>>().len() as u64,
        delay: delay(frames),
    };
    let several = seen.ports.len() > 1 && !plain;
    LaneMeasured {
        name: lane.name.clone(),
        sent,
        received,
        lost,
        offered_fps: lane.rate_fps,
        output_fps: (gaps > 0 && span > 0).then(|| gaps as f64 * 1e9 / span as f64),
        delay: delay(seen.ports.values().flatten()),
        receivers: seen.ports.iter().filter(|_| several).map(of_port).collect(),
        arrived: (!plain).then(|| ArrivedRange::of([&sequence].into_iter())),
        ..LaneMeasured::default()
    }
}

fn delay<'a>(frames: impl IntoIterator<Item = &'a (u64, u64, u64)>) -> Option<Delay> {
    let mut delays: Vec<u64> = frames.into_iter().map(|frame| frame.1).collect();
    delays.sort_unstable();
    let quantile = |q: f64| delays[((q * delays.len() as f64).ceil() as usize).max(1) - 1];
    (!delays.is_empty()).then(|| Delay {
        min: delays[0],
        mean: delays.iter().sum::<u64>() as f64 / delays.len() as f64,
        p50: quantile(0.5),
        p90: quantile(0.9),
        p99: quantile(0.99),
        p999: quantile(0.999),
        max: delays[delays.len() - 1],
    })
}
