//! Compiles a profile to a plan, stream by stream.

use std::{
    borrow::Cow,
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use squall_profile::{
    At, BurstEnd, Departures, Diagnostic, Diagnostics, ErrorCollector, FieldRef, Mode, Op,
    PacketSource, Profile, Recompute, SizeLaw, Stop, Stream, Vary,
};
use squall_program::{
    Gap, GapLaw, Law, Pattern, Program, ProgramError, Shape, Sizes, Spec, VarSpec, signature,
    trex::{Mark, MarkPlace},
};
use squall_units::{Cannot, Division, FCS_LEN, L1_OVERHEAD, Picos, RateUnit, Segmentation, mix};
use squall_wire::{BuildError, Frame};

use crate::{
    Assets, Inputs, Multiplier, Options, Placement, Plan, PlanFlows, PlanPort, PlanReplay,
    PlanRouter, PlanStream, PortLimits, StreamDivision, after, attack_hosts,
    cut::{cut, natural_len},
    flows, lanes,
    place::{self, Wanted},
    rate, replays,
    stream_hosts::{self, StreamHosts},
    stream_routes::{self, StreamRoutes},
};

/// Minimum length of a generated frame, in octets without FCS (IEEE 802.3).
const MIN_FRAME: usize = 60;
/// Maximum number of streams that signatures can distinguish.
const MAX_SIGNED: usize = 1 << 16;

/// Compiles `profile` for ports with `limits` (one entry per port, in the profile's order).
///
/// # Errors
/// All errors that depend on packets, ports and files, such as a field that the packet does not
/// have, a size too small for the headers, a rate that the port cannot carry, or a capture without
/// conversations.
pub fn compile(
    profile: &Profile,
    limits: &[PortLimits],
    inputs: Inputs<'_>,
    options: &Options,
) -> Result<Plan, Diagnostics> {
    assert_eq!(profile.ports.len(), limits.len(), "limits are given for every port");
    let Inputs { assets, replays: others, opened, live_flows, is_cancelled } = inputs;
    let (part, seed) = (options.part, profile.effective_seed());
    let mut mistakes = ErrorCollector::of(profile);
    let mut notes = Vec::new();
    let mut warnings = Warnings::default();
    let mut replays = replays::compile(profile, opened, assets, &mut mistakes);
    replays.extend(others);
    let routers = crate::routers::compile(profile, assets, limits, &mut notes, &mut mistakes);
    let machine = (assets, options.memory);
    let mut flows = flows::compile(profile, live_flows, (limits, &routers), machine, &mut mistakes);
    let ends = Ends { limits, routers: &routers };
    let made = programs(profile, ends, assets, is_cancelled, &mut warnings, &mut mistakes);
    check_attacks(profile, limits, &mut mistakes);
    let mut afters = after::compile(profile, &replays, flows.as_ref()).unwrap_or_else(|found| {
        found.into_iter().for_each(|mistake| mistakes.add(mistake));
        Vec::new()
    });
    check_together(profile, &mut mistakes);
    let here = |port: usize| !limits[port].elsewhere;
    let crossing = after::keep_here(&mut afters, profile, &replays, flows.as_ref(), here);
    if crossing {
        let text = "after = \"NAME\" cannot be used between ports of different nodes: none of them \
                    knows when the other source has ended";
        mistakes.at(At::default(), text, "try a start time instead");
    }
    replays.iter_mut().for_each(|replay| replay.keep_ports(here));
    if let Some(flows) = &mut flows {
        flows.sides.retain(|side| here(side.port));
    }
    mistakes.check()?;
    let wrong = |message: String| {
        let mut mistakes = ErrorCollector::of(profile);
        mistakes.add(Diagnostic::at(At::default(), message, vec![]));
        mistakes.check().expect_err("there is one")
    };
    let ended = || wrong("nobody waits for the plan any more".into());
    if is_cancelled() {
        return Err(ended());
    }
    if let Some(by) = options.multiplier {
        multiply(profile, &mut replays, flows.as_mut(), by).map_err(wrong)?;
    }
    let with_len: Vec<(&Stream, f64)> =
        made.iter().map(|(s, made)| (*s, made.program.mean_wire_len())).collect();
    let rates = rate::scaled(&with_len, limits, options.multiplier).map_err(wrong)?;
    let mut streams = Vec::with_capacity(made.len());
    let mut mistakes = ErrorCollector::of(profile);
    for ((stream, Made { program, hosts, routes }), rate) in made.into_iter().zip(rates) {
        if is_cancelled() {
            return Err(ended());
        }
        let port = &profile.ports[stream.port].name;
        match schedule(seed, stream, program, rate, &limits[stream.port], port, assets, &mut notes)
        {
            Ok(planned) => {
                notes.extend(routes.as_ref().and_then(|routes| slow_lanes(routes, &planned)));
                streams.push(PlanStream { hosts, routes, ..planned });
            }
            Err(problem) => mistakes.add(problem),
        }
    }
    let elsewhere = |port: usize| limits[port].elsewhere;
    let hosts = crate::hosts::compile(profile, elsewhere, assets, &mut mistakes);
    mistakes.check()?;
    streams.iter_mut().filter(|stream| elsewhere(stream.port)).for_each(|stream| {
        stream.division = StreamDivision::Elsewhere;
        stream.asked_pps = stream.asked_pps.map(|_| 0.0);
    });
    let ports = ports(profile, limits, &streams, &replays, flows.as_ref());
    notes.extend(warnings.into_notes());
    notes.extend(flows.iter().flat_map(|flows| flows.notes.iter().cloned()));
    warn_of_overload(&ports, limits, &streams, &mut notes);
    make_ahead(&mut streams);
    let (mut stop, mut counted) = (profile.stop, false);
    if !part.is_whole() || limits.iter().any(|limit| limit.elsewhere) {
        let alone = replays.is_empty() && flows.is_none() && hosts.is_empty() && routers.is_empty();
        let counter = if part.is_whole() { "a node" } else { "a part" };
        (stop, counted) = total_of_parts(&mut streams, stop, alone, counter).map_err(wrong)?;
    }
    if !part.is_whole() {
        if !hosts.is_empty() || !routers.is_empty() {
            let text = "hosts and routers cannot be divided with --part: each part would have all \
                        of them\n  try --nodes, where each node has those of its ports";
            return Err(wrong(text.into()));
        }
        if !afters.is_empty() {
            let text = "after = \"NAME\" cannot be used with --part: the other source may end in \
                        another part\n  try a start time instead";
            return Err(wrong(text.into()));
        }
        divide(&mut streams, part);
        replays.iter_mut().filter(|one| !one.fixed).for_each(|one| one.replay.part = part);
    }
    let wanted = Wanted {
        cores: options.cores,
        cpus: options.cpus,
        pin: options.pin.as_deref(),
        replays: replays.iter().filter(|one| one.is_here()).map(|one| &one.ports[..]).collect(),
        flows: flows.iter().flat_map(PlanFlows::ports).collect(),
        hosts: hosts
            .iter()
            .map(|group| (group.port, group.elsewhere))
            .chain(routers.iter().map(|router| (router.port, router.elsewhere)))
            .filter_map(|(port, elsewhere)| (!elsewhere).then_some(port))
            .collect(),
        chained: !afters.is_empty(),
        scripted: flows.iter().any(|flows| !flows.load.scripts.is_empty()),
    };
    let (workers, divided) = place::place(&ports, limits, &mut streams, &stop, &wanted, &mut notes);
    let counted = counted || divided;
    lanes::plan(&mut streams, &routers, &workers, stop.duration, &mut notes).map_err(
        |(number, text)| {
            let mut mistakes = ErrorCollector::of(profile);
            let hint = "try a group of the router, fewer cores or receiving ports, or latency = \
                        false";
            mistakes.at(profile.streams[number].at, &text, hint);
            mistakes.check().expect_err("there is one")
        },
    )?;
    let (stop, flows) = (profile.stop, flows.map(Arc::new));
    let key = signature::key_of(seed);
    let plan = Plan {
        seed,
        key,
        part,
        stop,
        counted,
        ports,
        streams,
        replays,
        flows,
        hosts,
        routers,
        afters,
        workers,
        notes,
    };
    Ok(plan.keyed(key))
}

/// A note if the times of single routes are coarse.
fn slow_lanes(routes: &StreamRoutes, stream: &PlanStream) -> Option<String> {
    stream.program.signature()?;
    let seconds = routes.len() as f64 / stream.asked_pps?;
    let text = format!(
        "stream {:?}: a frame goes to each of its {} routes every {:.1} s, which is the resolution \
         of their convergence",
        stream.name,
        routes.len(),
        seconds
    );
    (seconds > 1.0).then_some(text)
}

/// The program of a stream, with the hosts that supply fields of its frames, and the routes to
/// which they go. Shared with the plan, because copies for a hundred thousand streams have 40 MB.
struct Made {
    program: Arc<Program>,
    hosts: Option<Arc<StreamHosts>>,
    routes: Option<Arc<StreamRoutes>>,
}

/// The ports and routers of a profile.
#[derive(Clone, Copy)]
struct Ends<'a> {
    limits: &'a [PortLimits],
    routers: &'a [PlanRouter],
}

/// The program of each stream. If a stream has none, `mistakes` gets the reason.
fn programs<'p>(
    profile: &'p Profile,
    ends: Ends<'_>,
    assets: &dyn Assets,
    is_cancelled: &dyn Fn() -> bool,
    warnings: &mut Warnings,
    mistakes: &mut ErrorCollector<'_>,
) -> Vec<(&'p Stream, Made)> {
    let mut made = Vec::with_capacity(profile.streams.len());
    for (index, stream) in profile.streams.iter().enumerate() {
        if is_cancelled() || mistakes.is_full() {
            break;
        }
        match program(profile, index, ends, assets, warnings) {
            Ok(program) => made.push((stream, program)),
            Err(problem) => mistakes.add(problem),
        }
    }
    made
}

/// Reports streams that are valid on their own but not together.
fn check_together(profile: &Profile, mistakes: &mut ErrorCollector<'_>) {
    let linked = profile.streams.iter().filter_map(|stream| on_two_ports(stream, profile));
    linked.for_each(|problem| mistakes.add(problem));
    let hw_id = |stream: &Stream| stream.trex.map(|mark| mark.hw_id.into());
    twice(profile, "trex_hw_id", hw_id).for_each(|problem| mistakes.add(problem));
    let group = |stream: &Stream| stream.trex_group;
    twice(profile, "trex_group", group).for_each(|problem| mistakes.add(problem));
}

/// Reports attacks that cannot take their addresses from the hosts that they name.
fn check_attacks(profile: &Profile, limits: &[PortLimits], mistakes: &mut ErrorCollector<'_>) {
    for attack in &profile.attacks {
        let node = |port: usize| limits[port].elsewhere;
        match attack_hosts(attack, profile) {
            Ok(Some(_)) if attack.port2.is_some_and(|port2| node(port2) != node(attack.port)) => {
                // Each node would choose the hosts of a conversation by itself.
                let text = format!(
                    "attack {:?}: an attack of hosts needs both ports on one node",
                    attack.name
                );
                mistakes.at(attack.at, &text, "try attacks with addresses: inside, outside");
            }
            Ok(_) => {}
            Err(mistake) => mistakes.add(mistake),
        }
    }
}

/// The ports of the profile, with the length of the longest frames for which each is opened.
fn ports(
    profile: &Profile,
    limits: &[PortLimits],
    streams: &[PlanStream],
    replays: &[PlanReplay],
    flows: Option<&PlanFlows>,
) -> Vec<PlanPort> {
    let max_frame = |port: usize| {
        let sides = flows.into_iter().flat_map(|flows| &flows.sides);
        let side = sides.filter(|side| side.port == port);
        let of_flows = side.map(|side| side.max_frame(limits[port].segmentation)).max();
        let replays = replays.iter().any(|replay| replay.ports.contains(&port));
        let replayed = if replays { limits[port].max_frame } else { 0 };
        let hosts = profile.hosts.iter().any(|group| group.port == port)
            || profile.routers.iter().any(|router| router.port == port);
        let hosted = if hosts { crate::hosts::MAX_FRAME.min(limits[port].max_frame) } else { 0 };
        let streamed = longest(streams, &limits[port], port, false);
        streamed.max(of_flows.unwrap_or(0)).max(replayed).max(hosted)
    };
    let port = |(i, p): (usize, &squall_profile::Port)| PlanPort {
        name: p.name.clone(),
        address: p.address.clone(),
        max_frame: max_frame(i),
        cut_frame: longest(streams, &limits[i], i, true),
        elsewhere: limits[i].elsewhere,
        virtual_bps: limits[i]
            .virtual_time
            .then(|| limits[i].speed_bps.unwrap_or(rate::FILE_SPEED_BPS).max(1)),
    };
    profile.ports.iter().enumerate().map(port).collect()
}

/// Length in octets of the longest frame on a port: among the frames that the engine segments if
/// `cut`, otherwise among the others.
fn longest(streams: &[PlanStream], limits: &PortLimits, port: usize, cut: bool) -> u32 {
    let here = |s: &&PlanStream| s.port == port && !limits.elsewhere;
    let of_port = streams.iter().filter(here).map(|s| &s.program);
    let by_engine =
        |p: &Program| !p.cut().is_whole() && limits.segmentation == Segmentation::Engine;
    let lens = of_port.map(|p| match (by_engine(p), cut) {
        (true, false) => p.max_len().min(u32::from(p.cut().payload) + u32::from(p.cut().size)),
        (false, true) => 0,
        _ => p.max_len(),
    });
    lens.max().unwrap_or(0)
}

/// Applies `--mult` to replays and flows.
fn multiply(
    profile: &Profile,
    replays: &mut [PlanReplay],
    flows: Option<&mut PlanFlows>,
    by: Multiplier,
) -> Result<(), String> {
    let others = !profile.streams.is_empty() || replays.iter().any(|replay| !replay.fixed);
    let multiplied = profile.flows.is_some() || !others;
    if let Some(flows) = flows {
        match by {
            // Attacks are not multiplied.
            _ if flows.load.own_templates() == 0 && !multiplied => {}
            _ if flows.load.own_templates() == 0 => {
                return Err(
                    "cannot multiply the rate of a capture that is played: it has none".into()
                );
            }
            Multiplier::Factor { num, den } => flows.load = flows.load.clone().times(num, den),
            // The total applies to streams.
            Multiplier::Total(_) if profile.streams.is_empty() => {
                let text = "flows have no rate in frames or bits per second\n  try --mult 2x";
                return Err(text.into());
            }
            Multiplier::Total(_) => {}
        }
    }
    for replay in replays.iter_mut().filter(|replay| !replay.fixed) {
        match by {
            Multiplier::Factor { num, den } => replay.multiply(num, den)?,
            Multiplier::Total(_) if profile.streams.is_empty() => {
                return Err(
                    "captures have no rate of their own, so --mult cannot set a total\n  try \
                            --mult 2x, or rate = of [[replay]]"
                        .into(),
                );
            }
            Multiplier::Total(_) => {}
        }
    }
    Ok(())
}

/// Maximum size of precomputed frames over all streams, in octets: half of a typical L2 cache.
const RINGS: usize = 256 << 10;

/// Precomputes frames whose sequence soon repeats: copying a frame costs a third of changing two
/// fields and their checksums.
fn make_ahead(streams: &mut [PlanStream]) {
    let mut room = RINGS;
    for stream in streams {
        if let Some(program) = stream.program.with_ring(room) {
            room -= program.ring_octets();
            stream.program = Arc::new(program);
        }
    }
}

/// Divides a total of packets or octets between the parts, if there is only one stream. Returns the
/// rest of the stop condition, and whether the total became the stream's.
fn total_of_parts(
    streams: &mut [PlanStream],
    stop: Stop,
    alone: bool,
    counter: &str,
) -> Result<(Stop, bool), String> {
    if stop.packets.is_none() && stop.octets.is_none() {
        return Ok((stop, false));
    }
    let cut = match alone {
        true => place::cut(streams, &stop),
        false => Err("the run has several kinds of sources"),
    };
    cut.map_err(|why| {
        format!(
            "packets or octets end the run, but {counter} cannot count them: {why}\n  try duration, \
             or mode = {{ burst = N }} of each stream"
        )
    })?;
    Ok((Stop { packets: None, octets: None, ..stop }, true))
}

/// Divides streams between the parts of a run. All streams of a `next` chain go to one part,
/// because a stream starts when another ends. A signed stream also goes to one part, because two
/// receivers could not determine the order of its sequence numbers. Parts get these in rotation.
/// All other streams are divided frame by frame.
fn divide(streams: &mut [PlanStream], part: Division) {
    if part.is_whole() {
        return;
    }
    let (chains, linked) = place::chains(streams);
    let all = streams.iter_mut().zip(chains).zip(linked);
    for ((stream, chain), linked) in all.filter(|of| of.0.0.division == StreamDivision::Here) {
        let divisible = stream.pattern.bursts == 1 && !linked;
        let by_frames = divisible && stream.program.signature().is_none();
        stream.division = match by_frames {
            true => StreamDivision::Frames,
            false if part.has(chain as u64) => StreamDivision::Here,
            false => StreamDivision::OtherPart,
        };
        let share = match stream.division {
            StreamDivision::Here => 1.0,
            StreamDivision::OtherPart | StreamDivision::Elsewhere => 0.0,
            StreamDivision::Frames => 1.0 / f64::from(part.of()),
        };
        stream.asked_pps = stream.asked_pps.map(|pps| pps * share);
    }
}

/// The error if `next` leads to a stream on another port: one worker must send both streams,
/// because it starts the second when the first ends.
fn on_two_ports(stream: &Stream, profile: &Profile) -> Option<Diagnostic> {
    let next = &profile.streams[stream.next?.stream];
    let port = |stream: &Stream| &profile.ports[stream.port].name;
    (next.port != stream.port).then(|| {
        Diagnostic::at(
            stream.at,
            format!(
                "stream {:?}: next = {:?} is on port {}, but this stream is on port {}: a chain \
                 stays on one port",
                stream.name,
                next.name,
                port(next),
                port(stream)
            ),
            vec![format!(
                "try after = {:?} of stream {:?}, without self_start",
                stream.name, next.name
            )],
        )
    })
}

fn warn_of_overload(
    ports: &[PlanPort],
    limits: &[PortLimits],
    streams: &[PlanStream],
    notes: &mut Vec<String>,
) {
    for (i, port) in ports.iter().enumerate() {
        let Some(speed) = limits[i].speed_bps else { continue };
        let l1: f64 = streams
            .iter()
            .filter(|s| s.port == i && s.self_start)
            .filter_map(|s| Some(s.asked_pps? * 8.0 * (s.mean_len + f64::from(L1_OVERHEAD))))
            .sum();
        if l1 > speed as f64 * 1.000_001 {
            notes.push(format!(
                "port {}: streams together ask for {:.3} Gb/s L1, but the link carries {:.3}: \
                 expect late frames",
                port.name,
                l1 / 1e9,
                speed as f64 / 1e9
            ));
        }
    }
}

/// A separate seed for each use. It is derived from names, so adding a stream does not change the
/// seeds of the other streams.
pub(crate) fn seed_of(seed: u64, name: &str, purpose: u64) -> u64 {
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |h: u64, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    mix(mix(seed, hash), purpose)
}

const SIZE_SEED: u64 = 1 << 32;
const GAP_SEED: u64 = 2 << 32;
const PAYLOAD_SEED: u64 = 3 << 32;

/// Warnings about frames, each with its first stream and the number of streams. If thousands of
/// streams have the same warning, there is one note.
#[derive(Default)]
struct Warnings(Vec<(String, String, u64)>);

/// Maximum number of distinct warnings.
const DIFFERENT: usize = 100;

impl Warnings {
    fn check(&mut self, stream: &Stream, frame: &Frame) {
        // The frame shows only one value of each varying field, so ignore a warning that depends on
        // such a field.
        let decides = |name: &str| {
            ["dst", "ttl", "hop_limit", "]"].iter().any(|end| name.trim_end().ends_with(end))
        };
        let varies = stream.vary.iter().any(|vary| match &vary.field {
            FieldRef::Name(name) => decides(name),
            FieldRef::Offset { .. } => true,
        });
        for warning in squall_wire::warnings(frame).into_iter().filter(|_| !varies) {
            self.add(warning, stream);
        }
    }

    fn add(&mut self, warning: String, stream: &Stream) {
        let full = self.0.len() >= DIFFERENT;
        match self.0.iter_mut().find(|(text, ..)| *text == warning) {
            Some((.., streams)) => *streams += 1,
            // Each stream may have a different text, so bound the list.
            None if full => {}
            None => self.0.push((warning, stream.name.clone(), 1)),
        }
    }

    fn into_notes(self) -> impl Iterator<Item = String> {
        self.0.into_iter().map(|(warning, first, streams)| match streams {
            1 => format!("stream {first:?}: {warning}"),
            _ => format!("stream {first:?} and {} more: {warning}", streams - 1),
        })
    }
}

/// Reports streams whose number under `key` is that of an earlier stream, because receivers could
/// not distinguish them.
fn twice<'a>(
    profile: &'a Profile,
    key: &'a str,
    number: impl Fn(&Stream) -> Option<u16> + Copy + 'a,
) -> impl Iterator<Item = Diagnostic> + 'a {
    let numbered = profile.streams.iter().filter_map(move |s| Some((s, number(s)?)));
    let mut known: HashMap<u16, &Stream> = HashMap::new();
    numbered.filter_map(move |(stream, own)| {
        let first = match known.entry(own) {
            Entry::Occupied(first) => *first.get(),
            Entry::Vacant(free) => {
                free.insert(stream);
                return None;
            }
        };
        let (name, first) = (&stream.name, &first.name);
        let text = format!("stream {name:?}: {key} = {own} is that of stream {first:?}");
        Some(Diagnostic::at(stream.at, text, vec!["try one that no other stream has".into()]))
    })
}

fn program(
    profile: &Profile,
    index: usize,
    Ends { limits, routers }: Ends<'_>,
    assets: &dyn Assets,
    warnings: &mut Warnings,
) -> Result<Made, Diagnostic> {
    let stream = &profile.streams[index];
    let mut hosts = stream_hosts::groups(stream, profile, limits, routers)?;
    let tagged = match &hosts {
        Some(hosts) => stream_hosts::tagged(stream, hosts, &profile.hosts)?,
        None => Cow::Borrowed(stream),
    };
    let stream = &*tagged;
    let (limits, port) = (&limits[stream.port], &profile.ports[stream.port].name);
    let (seed, name) = (profile.effective_seed(), &stream.name);
    if (stream.latency || stream.trex_group.is_some()) && index >= MAX_SIGNED {
        return Err(Diagnostic::at(
            stream.at,
            format!(
                "stream {name:?} is number {}, but only the first {MAX_SIGNED} can have latency = \
                 true or trex_group",
                index + 1
            ),
            vec!["try fewer streams, or one stream with field programs instead of many".into()],
        ));
    }
    let seeds = |purpose| seed_of(seed, name, purpose);
    let (mut frame, sizes) = frame(stream, limits, seeds(SIZE_SEED), seeds(PAYLOAD_SEED), assets)?;
    if let Recompute::Only(fields) = &stream.recompute {
        keep(fields, stream, &mut frame)?;
    }
    let longest = sizes.range().1;
    if longest > limits.max_frame && stream.segment.is_none() {
        return Err(Diagnostic::at(
            stream.size_at,
            format!(
                "stream {name:?}: frames of {} octets are longer than port {port} takes",
                longest + FCS_LEN
            ),
            vec![
                format!(
                    "port {port} takes frames of up to {} octets (FCS included)",
                    limits.max_frame + FCS_LEN
                ),
                "try a smaller size, or a larger MTU on the interface".into(),
            ],
        ));
    }
    let mut vars = vars(stream, &frame, seeds)?;
    if let Some(hosts) = &mut hosts {
        let of_hosts = stream_hosts::fields(stream, hosts, &profile.hosts, &mut frame, &vars)?;
        vars.extend(of_hosts);
    }
    let routes = stream_routes::of_stream(stream, profile, routers, &frame, &vars)?;
    let routes = routes.map(|to| {
        vars.push(to.var);
        to.notes.into_iter().for_each(|note| warnings.add(note, stream));
        to.routes
    });
    if let Some(group) = stream.trex_group {
        mark(group, stream, &mut frame, &vars)?;
        let text = "its frames have a mark and no signature: loss is the number sent less the \
                    number received; duplicates, order and delay are not measured";
        warnings.add(text.into(), stream);
    }
    warnings.check(stream, &frame);
    let shown = frame.layers.iter().map(|l| l.header.name).collect::<Vec<_>>().join("/");
    let cut = cut(stream, &frame, &sizes, &vars, limits, port)?;
    let spec = Spec { frame, sizes, vars, signature: stream.latency.then_some(index as u16) };
    Program::build(spec)
        .map(|program| program.with_cut(cut).with_trex(stream.trex).with_group(stream.trex_group))
        .map(|program| Made {
            program: Arc::new(program),
            hosts: hosts.map(Arc::new),
            routes: routes.map(Arc::new),
        })
        .map_err(|e| explain(e, stream, &shown))
}

/// Marks the frame for TRex's packet group `group`, so receivers can count it.
fn mark(
    group: u16,
    stream: &Stream,
    frame: &mut Frame,
    vars: &[VarSpec],
) -> Result<(), Diagnostic> {
    let problem = |at, why: &str, hint: &str| {
        let text = format!("stream {:?}: trex_group = {group}: {why}", stream.name);
        Diagnostic::at(at, text, vec![hint.into()])
    };
    let Some(place) = MarkPlace::of(frame) else {
        let why = format!("{} has no IP header that receivers look at", frame.names());
        let hint = "expected eth, any vlan, mpls, pppoe, and ipv4 or ipv6";
        return Err(problem(stream.packet_at, &why, hint));
    };
    if stream.segment.is_some() {
        // The kernel, the NIC or Squall numbers the segments of a GSO frame.
        let why = "frames that are cut have different identifications";
        return Err(problem(stream.segment_at, why, "try without segment"));
    }
    let writes = |(_, var): &(&Vary, &VarSpec)| place.overlaps(&(var.bit..var.bit + var.bits));
    if let Some((vary, _)) = stream.vary.iter().zip(vars).find(writes) {
        let why = "a field program writes over the mark, which is the IPv4 identification and the \
                   lowest bit of the type of service, or the IPv6 flow label and the lowest bit of \
                   the traffic class";
        return Err(problem(
            vary.at,
            why,
            "try latency = true and a frame with 16 octets of payload",
        ));
    }
    place.write(&mut frame.bytes, Mark::of_group(group));
    Ok(())
}

/// Builds the longest frame of the stream, and the frame lengths without FCS.
fn frame(
    stream: &Stream,
    limits: &PortLimits,
    size_seed: u64,
    seed: u64,
    assets: &dyn Assets,
) -> Result<(Frame, Sizes), Diagnostic> {
    let name = &stream.name;
    let load = |path: &str| assets.payload(path);
    let problem =
        |at: At, message: String, details: Vec<String>| Diagnostic::at(at, message, details);
    let without = |len: u32| len.saturating_sub(FCS_LEN);
    let sizes = match &stream.size {
        SizeLaw::Natural => None,
        SizeLaw::Fixed(len) => Some(Sizes::fixed(without(*len))),
        SizeLaw::List(sizes) => {
            Some(Sizes::list(sizes.iter().map(|&s| without(s)).collect::<Vec<_>>()))
        }
        SizeLaw::Range { min, max, step } => Some(Sizes::list(
            (*min..=*max).step_by((*step).max(1) as usize).map(without).collect::<Vec<_>>(),
        )),
        SizeLaw::Uniform { min, max } => {
            Some(Sizes::uniform(without(*min), without(*max), size_seed))
        }
        SizeLaw::Normal { mean, sd: 0.0, .. } => Some(Sizes::fixed(without(mean.round() as u32))),
        SizeLaw::Normal { mean, sd, min, max } => Some(Sizes::normal(
            mean - f64::from(FCS_LEN),
            *sd,
            without(*min),
            without(*max),
            size_seed,
        )),
        SizeLaw::Weights(weights) => {
            let weights: Vec<_> =
                weights.iter().map(|&(s, w)| (without(s), f64::from(w))).collect();
            Some(Sizes::weighted(&weights, size_seed))
        }
    };
    let octets = match &stream.packet {
        PacketSource::Layers(packet) => {
            let build = |len: Option<usize>| {
                packet.build(len, &load, seed).map_err(|e| match e {
                    BuildError::TooShort { need, len } => too_short(stream, need, len),
                    other => problem(
                        stream.packet_at,
                        format!("stream {name:?}: {other}"),
                        vec!["try a path relative to the profile's folder".into()],
                    ),
                })
            };
            let mut built = build(sizes.as_ref().map(|s| s.range().1 as usize))?;
            if let Some(sizes) = sizes {
                let cut = built.bytes.len() as u32;
                // `truncate(n)` overrides the size.
                return Ok(if cut < sizes.range().1 {
                    (built, Sizes::fixed(cut))
                } else {
                    (built, sizes)
                });
            }
            if let Some(len) =
                stream.segment.and_then(|segment| natural_len(&built, segment, limits))
            {
                built = build(Some(len))?;
            }
            let wanted = built.payload + signature::LEN;
            if stream.latency && built.bytes.len() - built.trailer < wanted {
                built = build(Some(wanted.max(MIN_FRAME)))?;
            }
            let len = built.bytes.len() as u32;
            return Ok((built, Sizes::fixed(len)));
        }
        PacketSource::Octets(octets) => octets.to_vec(),
        PacketSource::Capture { path, number } => assets
            .capture_frame(path, *number)
            .map_err(|e| problem(stream.packet_at, format!("stream {name:?}: {e}"), vec![]))?,
    };
    let mut frame = Frame::dissect(octets);
    let Some(sizes) = sizes else {
        // Keep the packet unchanged, with the padding that the sender's driver would add.
        let padding = MIN_FRAME.saturating_sub(frame.bytes.len());
        frame.bytes.resize(frame.bytes.len() + padding, 0);
        frame.trailer += padding;
        frame.lengths.iter_mut().for_each(|l| l.from += padding);
        let len = frame.bytes.len() as u32;
        return Ok((frame, Sizes::fixed(len)));
    };
    let (least, most) = sizes.range();
    // A packet given as octets is sent unchanged and padded at its end, so its length fields keep
    // their values. This does not apply if it is too long, nor with a signature or segmentation,
    // because these need payload up to the end of the frame.
    let packet_end = frame.bytes.len() - frame.trailer;
    if least as usize >= packet_end && !stream.latency && stream.segment.is_none() {
        frame.pad(most as usize);
        return Ok((frame, sizes));
    }
    let given = frame.bytes.clone();
    frame.resize(most as usize).map_err(|e| match e {
        BuildError::TooShort { need, len } => too_short(stream, need, len),
        other => problem(
            stream.size_at,
            format!("stream {name:?}: {other}"),
            vec!["try a smaller size".into()],
        ),
    })?;
    // Fixed lengths and checksums also keep their values in a shorter frame.
    if matches!(stream.recompute, Recompute::Only(_)) {
        let len = given.len().min(frame.bytes.len());
        frame.bytes[..len].copy_from_slice(&given[..len]);
    }
    Ok((frame, sizes))
}

/// Keeps the values of all lengths, checksums and CRCs except those in `fields`.
fn keep(fields: &[String], stream: &Stream, frame: &mut Frame) -> Result<(), Diagnostic> {
    let mut places = Vec::new();
    for name in fields {
        let wrong = |message: String, hints| {
            let message = format!("stream {:?}: recompute: {message}", stream.name);
            Diagnostic::at(stream.at, message, hints)
        };
        let field = frame.field(name).map_err(|error| wrong(error.to_string(), vec![]))?;
        let at = field.bit / 8;
        let known = frame.lengths.iter().any(|length| length.at == at)
            || frame.checksums.iter().any(|sum| sum.at == at)
            || frame.crcs.iter().any(|crc| {
                crc.place(crc.to.unwrap_or(frame.bytes.len() - frame.trailer)).start == at
            });
        if !known {
            return Err(wrong(
                format!("{name} is no length or checksum that is right in the packet"),
                vec!["try a field such as \"ipv4.checksum\" or \"udp.length\"".into()],
            ));
        }
        places.push(at);
    }
    let end = frame.bytes.len() - frame.trailer;
    frame.lengths.retain(|length| places.contains(&length.at));
    frame.checksums.retain(|sum| places.contains(&sum.at));
    frame.crcs.retain(|crc| places.contains(&crc.place(crc.to.unwrap_or(end)).start));
    Ok(())
}

fn vars(
    stream: &Stream,
    frame: &Frame,
    seeds: impl Fn(u64) -> u64,
) -> Result<Vec<VarSpec>, Diagnostic> {
    let mut specs: Vec<VarSpec> = Vec::new();
    for (i, vary) in stream.vary.iter().enumerate() {
        let (bit, bits) = place_of(vary, frame, &stream.name)?;
        let law = law(&vary.op, seeds(i as u64)).map_err(|wrong| {
            let hint = "try an init further from the end, or a range from init to the end";
            Diagnostic::at(
                vary.at,
                format!("stream {:?}: a field {wrong}", stream.name),
                vec![hint.into()],
            )
        })?;
        let (every, phase) = match &vary.op {
            Op::After { of, .. } => {
                let of = &specs[*of];
                let period =
                    of.law.period().and_then(|p| p.checked_mul(of.every)).ok_or_else(|| {
                        Diagnostic::at(
                            vary.at,
                            format!(
                                "stream {:?}: a field program after one that never wraps would \
                                 never change",
                                stream.name
                            ),
                            vec![
                                "try op = \"increment\" with min and max, or a list, for the \
                                 earlier one"
                                    .into(),
                            ],
                        )
                    })?;
                (period, of.phase + of.law.start() * of.every)
            }
            _ => (1, 0),
        };
        let Vary { add, shift, little_endian, .. } = *vary;
        let turn = squall_program::Turn {
            // Wraps modulo 2^64, as the sum does.
            add: add.cast_unsigned(),
            shift,
            reversed: little_endian,
        };
        specs.push(VarSpec { bit, bits, law, turn, every, phase });
    }
    Ok(specs)
}

fn place_of(vary: &Vary, frame: &Frame, stream: &str) -> Result<(usize, usize), Diagnostic> {
    match &vary.field {
        FieldRef::Name(name) => {
            let field = frame.field(name).map_err(|e| {
                Diagnostic::at(vary.at, format!("stream {stream:?}: field = {name:?}: {e}"), vec![])
            })?;
            Ok((field.bit, field.bits))
        }
        FieldRef::Offset { offset, octets, mask } => {
            let (low, bits) = (mask.trailing_zeros() as usize, mask.count_ones() as usize);
            let whole = low + bits == 64 - mask.leading_zeros() as usize;
            if bits == 0 || !whole || low + bits > octets * 8 {
                return Err(Diagnostic::at(
                    vary.at,
                    format!(
                        "stream {stream:?}: mask = {mask:#x} is not one contiguous run of bits \
                         within {octets} octets"
                    ),
                    vec![
                        "try a mask like 0xff00, and a second field program for a second run"
                            .into(),
                    ],
                ));
            }
            Ok(((offset + octets) * 8 - low - bits, bits))
        }
    }
}

/// The law that a field operation describes, or the reason why the operation is invalid.
fn law(op: &Op, seed: u64) -> Result<Law, &'static str> {
    Ok(match op {
        Op::Step { min, max, init, step } => {
            let size = step.unsigned_abs().max(1);
            // Values differ from `init` by whole steps, so the first value need not be an end of
            // the range.
            let (first, before, after) = if *step < 0 {
                let before = (max - init) / size;
                (init + before * size, before, (init - min) / size)
            } else {
                let before = (init - min) / size;
                (init - before * size, before, (max - init) / size)
            };
            // A law represents a count of 2^64 as 0.
            match u64::try_from(before.saturating_add(after))
                .map(|most| (most.wrapping_add(1), before as u64))
            {
                Ok((count, start)) => Law::Step { first, step: *step, count, start },
                // No run reaches the end of 2^64 steps. An end that is nearer would have to wrap.
                Err(_) if after >= 1 << 64 => {
                    Law::Step { first: *init, step: *step, count: 0, start: 0 }
                }
                Err(_) => {
                    return Err(
                        "has more than 2^64 values, and begins so close to their end that \
                                it would wrap",
                    );
                }
            }
        }
        Op::List { values, init } => {
            Law::List { values: values.clone().into(), start: *init as u64 }
        }
        Op::Random { min, max, limit, seed: own } => {
            let (min, limit, seed) = (*min, *limit, own.map_or(seed, |own| mix(own, 0)));
            match u64::try_from(max - min) {
                Ok(most) => Law::Random { min, count: most.wrapping_add(1), limit, seed },
                Err(_) => Law::RandomWide { min, count: (max - min).wrapping_add(1), limit, seed },
            }
        }
        Op::Weighted { values } => Law::weighted(values, seed),
        Op::After { then, .. } => law(then, seed)?,
    })
}

/// The shortest valid Ethernet frame, octets with FCS (IEEE 802.3 §4.2.3.3).
const MIN_SIZE: usize = 64;

fn too_short(stream: &Stream, need: usize, len: usize) -> Diagnostic {
    let fcs = FCS_LEN as usize;
    Diagnostic::at(
        stream.size_at,
        format!("stream {:?}: size = {} is too small for its headers", stream.name, len + fcs),
        vec![
            format!("headers and payload take {} octets (FCS included)", need + fcs),
            format!(
                "try size = {}, or truncate({len}) at the end of the packet to cut it on purpose",
                (need + fcs).max(MIN_SIZE)
            ),
        ],
    )
}

fn explain(error: ProgramError, stream: &Stream, layers: &str) -> Diagnostic {
    let name = &stream.name;
    let fcs = FCS_LEN as usize;
    let var = |i: usize| match stream.vary.get(i).map(|vary| &vary.field) {
        Some(FieldRef::Name(name)) => format!("{name:?}"),
        Some(FieldRef::Offset { offset, octets, .. }) => {
            format!("at offset {offset} ({octets} octets)")
        }
        None => "of its hosts or routes".into(),
    };
    let at = |i: usize| stream.vary.get(i).map_or(stream.packet_at, |vary| vary.at);
    match error {
        ProgramError::OutsideFrame { index, end, shortest } => Diagnostic::at(
            at(index),
            format!(
                "stream {name:?}: field {} ends at octet {end}, but the shortest frame has \
                 {shortest}",
                var(index)
            ),
            vec![format!("try size = {} or more", end + fcs)],
        ),
        ProgramError::Overlap { first, second } => Diagnostic::at(
            at(second),
            format!(
                "stream {name:?}: fields {} and {} write the same bits",
                var(first),
                var(second)
            ),
            vec!["try one field program, or a mask".into()],
        ),
        ProgramError::TooWide { index, bits, value } => Diagnostic::at(
            at(index),
            format!(
                "stream {name:?}: value {value} of field {} does not fit its {bits} bits",
                var(index)
            ),
            vec![format!(
                "the largest value is {}",
                if bits < 128 { (1u128 << bits) - 1 } else { u128::MAX }
            )],
        ),
        ProgramError::Unaligned { index } => Diagnostic::at(
            at(index),
            format!(
                "stream {name:?}: field {} is wider than 8 octets and does not start at an octet",
                var(index)
            ),
            vec!["try two field programs of up to 64 bits".into()],
        ),
        ProgramError::Straddles { index } => Diagnostic::at(
            at(index),
            format!("stream {name:?}: field {} is only partly covered by a checksum", var(index)),
            vec!["try two field programs, one inside and one outside".into()],
        ),
        ProgramError::NoRoomForSignature { free } => {
            let least = signature::LEN;
            Diagnostic::at(
                stream.size_at,
                format!(
                    "stream {name:?}: latency = true needs {least} octets of payload, but the \
                     shortest {layers} has {free}"
                ),
                vec![format!("try a size at least {} larger", least - free.min(least))],
            )
        }
        ProgramError::CoveredCrc { at } => Diagnostic::at(
            stream.packet_at,
            format!(
                "stream {name:?}: the checksum at octet {at} covers a CRC that differs from frame \
                 to frame"
            ),
            vec!["try checksum=0 of the outer UDP header".into()],
        ),
        ProgramError::SignedCrc => Diagnostic::at(
            stream.packet_at,
            format!(
                "stream {name:?}: latency = true puts the signature at the end of the frame, \
                 where {layers} has its ICRC"
            ),
            vec!["try latency = false, or the packet without bth".into()],
        ),
        ProgramError::TooShort { need, shortest } => too_short(stream, need, shortest),
    }
}

/// Gap law, mode and rate of a stream.
#[allow(clippy::too_many_arguments)]
fn schedule(
    seed: u64,
    stream: &Stream,
    program: Arc<Program>,
    asked: squall_units::Rate,
    limits: &PortLimits,
    port: &str,
    assets: &dyn Assets,
    notes: &mut Vec<String>,
) -> Result<PlanStream, Diagnostic> {
    let mut file_gap = None;
    let law = match &stream.departures {
        Departures::Constant => GapLaw::Constant,
        Departures::Exponential => GapLaw::Exponential,
        Departures::Uniform { spread } => GapLaw::Uniform { spread: *spread },
        Departures::Normal { sd } => GapLaw::Normal { sd: *sd },
        Departures::Pareto { shape } => GapLaw::Pareto { shape: *shape },
        Departures::Weibull { shape } => GapLaw::Weibull { shape: *shape },
        Departures::Gamma { shape } => GapLaw::Gamma { shape: *shape },
        Departures::OnOff { on, off } => {
            GapLaw::OnOff { on: Picos::from(*on), off: Picos::from(*off) }
        }
        Departures::File { path } => {
            let (law, mean) = gaps(stream, path, assets)?;
            // For "max", no rate scales the gaps of the file.
            file_gap = (asked.unit == RateUnit::Max).then_some(mean);
            law
        }
    };
    let gap = match file_gap {
        Some(gap) => gap,
        None => rate::gap(stream, asked, &program, limits, port, notes)?,
    };
    let shape = rate::shape(stream)?;
    let ends = shape.as_ref().and_then(Shape::end);
    let law = match shape {
        Some(shape) => GapLaw::Shaped { law: Box::new(law), shape },
        None => law,
    };
    let seconds = gap.seconds(program.sizes().mean());
    let segments = f64::from(program.segments());
    let tight = stream.burst_end == BurstEnd::Frame;
    let pattern = match stream.mode {
        Mode::Continuous => Pattern::CONTINUOUS,
        Mode::Burst(packets) => Pattern { bursts: 1, packets, gap: Picos(0), tight },
        Mode::Bursts { bursts, packets, gap } => {
            Pattern { bursts, packets, gap: Picos::from(gap), tight }
        }
    };
    let duty = law.duty();
    Ok(PlanStream {
        name: stream.name.clone(),
        port: stream.port,
        group: stream.group.clone(),
        mean_len: program.mean_wire_len(),
        program,
        hosts: None,
        routes: None,
        phases: Vec::new(),
        gap,
        law,
        pattern,
        seed: seed_of(seed, &stream.name, GAP_SEED),
        sent: stream.sent,
        start: Picos::from(stream.start_delay),
        lasts: stream.duration.into_iter().chain(ends).min().map(Picos::from),
        waits: stream.after.is_some(),
        self_start: stream.self_start,
        next: stream.next,
        late: stream.late,
        asked_pps: (seconds > 0.0).then(|| duty * segments / seconds),
        division: StreamDivision::Here,
        placement: Placement::Worker(0),
    })
}

/// The gaps of a file as multiples of their mean, and the mean.
fn gaps(stream: &Stream, path: &str, assets: &dyn Assets) -> Result<(GapLaw, Gap), Diagnostic> {
    let problem = |message: String| {
        Diagnostic::at(
            stream.at,
            format!("stream {:?}: departures from {path:?}: {message}", stream.name),
            vec![
                "expected one gap in nanoseconds per line, with a sum above 0; lines that begin \
                 with # are skipped"
                    .into(),
            ],
        )
    };
    let octets =
        assets.file(path).map_err(|error| problem(Cannot::read(path, &error).to_string()))?;
    let text = String::from_utf8(octets).map_err(|_| problem("is not text".into()))?;
    let mut gaps = Vec::new();
    for (i, line) in
        text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty() && !l.starts_with('#'))
    {
        match line.trim().parse::<f64>() {
            Ok(gap) if gap.is_finite() && gap >= 0.0 => gaps.push(gap),
            _ => return Err(problem(format!("line {}: {:?} is not a gap", i + 1, line.trim()))),
        }
    }
    let mean = gaps.iter().sum::<f64>() / gaps.len().max(1) as f64;
    if mean <= 0.0 {
        return Err(problem("the file has no gaps above 0".into()));
    }
    // The sum of all gaps in picoseconds must fit in 63 bits.
    if mean * gaps.len() as f64 > 9e15 {
        return Err(problem("the sum of the gaps is more than 104 days".into()));
    }
    let picos = Gap::PerFrame {
        num: (mean * gaps.len() as f64 * 1000.0).round() as u64,
        den: gaps.len() as u64,
    };
    Ok((GapLaw::List(gaps.into_iter().map(|g| g / mean).collect()), picos))
}
