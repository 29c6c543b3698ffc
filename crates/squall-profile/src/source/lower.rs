//! Converts tables to a [`Profile`]: fills in defaults, resolves names to indices, and makes the
//! checks that need more than one key.
//!
//! After an error, a valid placeholder replaces the wrong value, so that the rest can be checked,
//! too.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use squall_units::{Cannot, Rate, RateUnit, TREX_GROUPS, TREX_HW_IDS, TrexMark, suggest};

use super::{
    law::{NextText, Number},
    node::Node,
    raw::{OpName, ProfileTable, StreamTable, VaryTable},
    read::{Count, Given, Place, Placed, Reader, numbered},
    stages::{Levels, Row},
};
use crate::{At, FieldRef, Mode, Next, Op, PacketSource, Port, Profile, Stage, Stop, Stream, Vary};

/// The only version of the profile format.
pub(crate) const SCHEMA: u64 = 1;

/// `streams`: the items of the table's list of streams.
pub(super) fn profile(mut table: ProfileTable, streams: Vec<Node>, cx: &mut Reader<'_>) -> Profile {
    let ports: Vec<Port> = table
        .ports
        .take()
        .map_or_else(Vec::new, |ports| ports.value.0)
        .into_iter()
        .map(|(name, address)| Port {
            name,
            at: cx.at(address.place.start),
            address: address.value,
        })
        .collect();

    if let Some(Placed { value: Count(version), place }) = &table.schema
        && *version != SCHEMA
    {
        let hint = format!("expected {SCHEMA}: other versions need a newer Squall");
        cx.report(place, &format!("= {version} is not a known version"), &[hint]);
    }
    let given = table.given.has("stream");
    let flows_given = table.given.has("template") || table.given.has("flows");
    let mut flows = super::flows::flows(&mut table, &ports, cx);
    let (streams, names) = match table.stream {
        Some(_) => read_streams(streams, &ports, cx),
        None => (Vec::new(), HashMap::new()),
    };
    let attacks_given = table.given.has("attack");
    let attacks = super::attacks::attacks(table.attack.take(), &ports, cx);
    let given = given || flows_given || attacks_given || table.given.has("replay");
    let given = given || table.given.has("host") || table.given.has("router");
    let replays = super::replay::replays(table.replay.take(), &ports, cx);
    let hosts = super::hosts::hosts(table.host.take(), &ports, cx);
    if let Some(flows) = &mut flows {
        super::flows::external_clients_of_hosts(flows, &hosts);
    }
    let routers = super::routers::routers(table.router.take(), &ports, cx);
    let nothing = streams.is_empty()
        && replays.is_empty()
        && flows.is_none()
        && attacks.is_empty()
        && hosts.is_empty()
        && routers.is_empty();
    if nothing && (!given || cx.mistakes.is_empty()) {
        let hints = ["a profile needs at least one [[stream]], [[replay]], [[template]], \
                      [[attack]], [[host]] or [[router]] that is not disabled"
            .to_owned()];
        cx.report(&table.place, "there is nothing to send", &hints);
    }

    let templates = || flows.iter().flat_map(|flows| &flows.templates);
    let of_templates: HashSet<&str> = templates().map(|one| one.name.as_str()).collect();
    let of_attacks: HashSet<&str> = attacks.iter().map(|one| one.name.as_str()).collect();
    for replay in &replays {
        let holder = if names.contains_key(&replay.name) {
            "a stream"
        } else if of_templates.contains(replay.name.as_str()) {
            "a template"
        } else if of_attacks.contains(replay.name.as_str()) {
            "an attack"
        } else {
            continue;
        };
        let text = format!("replay {:?} has the same name as {holder}", replay.name);
        cx.mistakes.push(crate::Diagnostic::at(replay.at, text, Vec::new()));
    }
    // Streams and templates must not have the same name, because pause, change and `after` use the
    // names of both.
    for template in templates().filter(|template| names.contains_key(&template.name)) {
        let text = format!("template {:?} has the same name as a stream", template.name);
        let hints = vec!["try another name for one of them".into()];
        cx.mistakes.push(crate::Diagnostic::at(template.at, text, hints));
    }
    for attack in &attacks {
        let holder = if names.contains_key(&attack.name) {
            "stream"
        } else if of_templates.contains(attack.name.as_str()) {
            "template"
        } else {
            continue;
        };
        let text = format!("attack {:?} has the same name as a {holder}", attack.name);
        let hints = vec!["try another name for one of them".into()];
        cx.mistakes.push(crate::Diagnostic::at(attack.at, text, hints));
    }
    let stop = Stop {
        duration: table.duration.map(|d| d.value),
        packets: table.packets.map(|p| p.value.0),
        octets: table.octets.map(|o| o.value.0),
    };
    let seed = table.seed.map(|seed| seed.value.0);
    let run = table.run.map(|run| run.value).unwrap_or_default();
    let origin = cx.origin().into();
    let profile = Profile {
        origin,
        ports,
        streams,
        replays,
        flows,
        attacks,
        hosts,
        routers,
        seed,
        stop,
        run,
    };
    let mistakes = [profile.afters().err(), profile.beginnings().err()];
    for mut mistake in mistakes.into_iter().flatten().flatten() {
        mistake.origin.clone_from(&profile.origin);
        cx.mistakes.push(mistake);
    }
    profile
}

/// Reads the enabled streams, one after the other: the table of a stream is several times as large
/// as the stream. Returns them, and their indices by name.
fn read_streams(
    nodes: Vec<Node>,
    ports: &[Port],
    cx: &mut Reader<'_>,
) -> (Vec<Stream>, HashMap<String, usize>) {
    let port_index: HashMap<&str, usize> =
        ports.iter().enumerate().rev().map(|(i, port)| (port.name.as_str(), i)).collect();
    // Not for all of them: reading stops after some errors, and items of two octets would get the
    // memory of streams.
    let room = nodes.len().min(1 << 16);
    let mut streams: Vec<Stream> = Vec::with_capacity(room);
    let mut names = HashMap::with_capacity(room);
    let (mut nexts, mut waiting) = (Vec::new(), Vec::new());
    for (number, node) in nodes.into_iter().enumerate() {
        if cx.is_full() {
            break;
        }
        let table: Option<StreamTable> = cx.below("stream", |cx| cx.item(number, &node));
        let enabled = |table: &StreamTable| table.enabled.as_ref().is_none_or(|e| e.value);
        let Some(mut table) = table.filter(enabled) else { continue };
        let name = table
            .name
            .as_ref()
            .map_or_else(|| format!("stream {}", number + 1), |name| name.value.clone());
        let index = streams.len();
        if names.insert(name.clone(), index).is_some() {
            let place = table.name.as_ref().map_or(&table.place, |name| &name.place);
            cx.report(place, &format!("= {name:?} is already the name of another stream"), &[]);
        }
        nexts.extend(next(&mut table, cx).map(|next| (index, next)));
        let waits = table.self_start.as_ref().filter(|start| !start.value);
        waiting.extend(waits.map(|start| (index, start.place.clone())));
        streams.push(stream(table, name, ports, &port_index, cx));
    }
    for (index, NextText { stream, times }) in nexts {
        // The search for similar names is quadratic, so skip it once no further errors are kept.
        if cx.is_full() {
            break;
        }
        let Placed { value: name, place } = stream;
        match names.get(&name) {
            Some(&stream) => streams[index].next = Some(Next { stream, times }),
            None => {
                let hint = suggest(&name, streams.iter().map(|stream| stream.name.as_str()));
                cx.report(&place, &format!("= {name:?} is not an enabled stream"), &[hint]);
            }
        }
    }
    check_waiting(&streams, &waiting, cx);
    (streams, names)
}

/// Takes the stream's `next`.
fn next(table: &mut StreamTable, cx: &mut Reader<'_>) -> Option<NextText> {
    let Placed { value: next, place } = table.next.take()?;
    if table.mode.as_ref().map_or(!table.given.has("mode"), |mode| mode.value == Mode::Continuous) {
        let text = "never starts: the stream is continuous and has no end";
        cx.report(&place, text, &["try mode = { burst = 1000 }".into()]);
    }
    Some(next)
}

/// Reports streams that wait for another one to name them, which none does. `waiting` has their
/// indices, and the places of their `self_start`.
fn check_waiting(streams: &[Stream], waiting: &[(usize, Place)], cx: &mut Reader<'_>) {
    if waiting.is_empty() {
        return;
    }
    let others = streams
        .iter()
        .enumerate()
        .filter_map(|(from, stream)| stream.next.map(|next| next.stream).filter(|to| *to != from));
    let others: HashSet<usize> = others.collect();
    for (index, place) in waiting.iter().filter(|(index, _)| !others.contains(index)) {
        let hint = format!(
            "try next = {:?} in another stream, or remove self_start = false",
            streams[*index].name
        );
        cx.report(
            place,
            "= false, but no other stream names this one as next: it would never start",
            &[hint],
        );
    }
}

fn stream(
    mut table: StreamTable,
    name: String,
    ports: &[Port],
    port_index: &HashMap<&str, usize>,
    cx: &mut Reader<'_>,
) -> Stream {
    let at = |placed: Option<&Place>, cx: &Reader<'_>| cx.at(placed.unwrap_or(&table.place).start);
    let port = port(&table, ports, port_index, cx).unwrap_or(0);
    let stages = stages(&table, cx);
    if stages.is_empty() {
        cx.need(&table.place, &table.given, "rate", r#"rate = "1 kpps", or rate = "max""#);
    }
    let rate_at = at(table.rate.as_ref().map(|p| &p.place), cx);
    let segment_at = at(table.segment.as_ref().map(|p| &p.place), cx);
    let size_at = at(table.size.as_ref().map(|p| &p.place), cx);
    let packet_place = [
        table.packet.as_ref().map(|p| &p.place),
        table.hex.as_ref().map(|p| &p.place),
        table.pcap.as_ref().map(|p| &p.place),
    ];
    let latency = table.latency.as_ref().is_some_and(|latency| latency.value);
    let trex = trex(latency, table.trex_hw_id.take(), table.trex_flow_seq.take(), cx);
    let trex_group = trex_group(latency, table.trex_group.take(), cx);
    let packet_at = at(packet_place.into_iter().flatten().next(), cx);
    for (given, may_be_routes) in [(&table.src, false), (&table.dst, true)] {
        let Some(Placed { value, place }) = given else { continue };
        let is_routes = value.routes().is_some() || value.learnt().is_some();
        if value.host_group().is_none() && !(may_be_routes && is_routes) {
            let text = format!("= {:?} is not a group of hosts", value.text);
            let hint = "expected \"host:NAME\", or for dst \"routes:ROUTER\" or \"learnt:ROUTER\"; \
                        addresses are fields of the packet: ipv4(src=10.0.0.2)";
            cx.report(place, &text, &[hint.into()]);
        }
    }
    let at = cx.at(table.place.start);
    let (layers, hex, pcap) = (table.packet.take(), table.hex.take(), table.pcap.take());
    let packet = packet(&table.place, &table.given, layers, hex, pcap, cx)
        .unwrap_or_else(|| PacketSource::Octets(Arc::default()));
    Stream {
        name,
        port,
        packet,
        rate: table.rate.take().map_or_else(|| highest(&stages), |rate| rate.value),
        stages,
        trex,
        trex_group,
        vary: table.vary.take().map_or_else(Vec::new, |vary| varies(vary.value, cx)),
        at,
        packet_at,
        size_at,
        segment_at,
        rate_at,
        ..table.made()
    }
}

fn trex(
    latency: bool,
    hw_id: Option<Placed<Count>>,
    flow_seq: Option<Placed<Count>>,
    cx: &mut Reader<'_>,
) -> Option<TrexMark> {
    let Some(hw_id) = hw_id else {
        if let Some(seq) = flow_seq {
            cx.report(&seq.place, "has no effect", &["try trex_hw_id = 0, too".into()]);
        }
        return None;
    };
    if !latency {
        cx.report(&hw_id.place, "needs latency = true", &["try latency = true".into()]);
    }
    let mut of = |given, end: u16| below(end, given, cx) as u8;
    let hw_id = of(hw_id, TREX_HW_IDS);
    Some(TrexMark { hw_id, flow_seq: flow_seq.map_or(1, |seq| of(seq, 256)) })
}

fn trex_group(latency: bool, group: Option<Placed<Count>>, cx: &mut Reader<'_>) -> Option<u16> {
    let group = group?;
    if latency {
        let text =
            "cannot be combined with latency = true: its frames are known by their signature";
        cx.report(&group.place, text, &["try latency = false".into()]);
        return None;
    }
    Some(below(TREX_GROUPS, group, cx))
}

/// A number, which must be less than `end`.
fn below(end: u16, given: Placed<Count>, cx: &mut Reader<'_>) -> u16 {
    let Placed { value: Count(value), place } = given;
    if value >= end.into() {
        let hint = format!("expected 0 to {}", end - 1);
        cx.report(&place, &format!("= {value} is too large"), &[hint]);
    }
    (value % u64::from(end)) as u16
}

/// The stages of a stream's rate. Empty if they are missing or wrong.
fn stages(table: &StreamTable, cx: &mut Reader<'_>) -> Vec<Stage<Rate>> {
    let Some(Placed { value: rows, place }) = &table.stages else { return Vec::new() };
    let full = table.rate.as_ref().map(|rate| rate.value);
    let first = rows.iter().find_map(|row| row.to.as_ref()).map(|to| to.value);
    let unit = full.or(first).map_or(RateUnit::Pps, |rate| rate.unit);
    if unit == RateUnit::Max {
        let hint = r#"try rate = "10 kpps", or a share of the port's speed: rate = "50 %""#;
        cx.report(place, "need a rate with a number, not \"max\"", &[hint.into()]);
        return Vec::new();
    }
    if let Some(mode) = &table.mode
        && matches!(mode.value, Mode::Bursts { .. })
    {
        let hint = "try stages that pause, { to = 0 }, instead of the gap of mode";
        cx.report(
            place,
            "cannot be combined with several bursts: both set when frames leave",
            &[hint.into()],
        );
        return Vec::new();
    }
    for to in rows.iter().filter_map(|row| row.to.as_ref()) {
        // The value 0 needs no unit.
        if to.value.unit != unit && !to.value.is_zero() {
            let text = format!("= {} does not have the unit of the other rates", to.value);
            cx.report(&to.place, &text, &["try the same unit, or 0".into()]);
            return Vec::new();
        }
    }
    let zero = Rate { num: 0, den: 1, unit };
    let rows = rows.iter().map(|row| Row {
        place: &row.place,
        lasts: row.duration.as_ref(),
        to: row.to.as_ref().map(|to| (Rate { unit, ..to.value }, &to.place)),
    });
    let full = full.map(|full| ("rate", full));
    let number = |rate: Rate| rate.num as f64 / rate.den as f64;
    Levels { full, zero, example: "\"10 kpps\"", number }.read(place, rows, cx)
}

/// The highest rate in `stages`. If there are none, the stream sends as fast as possible.
fn highest(stages: &[Stage<Rate>]) -> Rate {
    let above = |a: Rate, b: Rate| {
        u128::from(a.num) * u128::from(b.den) > u128::from(b.num) * u128::from(a.den)
    };
    let higher = |a: Rate, b: Rate| if above(b, a) { b } else { a };
    stages.iter().map(|stage| stage.to).reduce(higher).unwrap_or(Rate::MAX)
}

fn port(
    table: &StreamTable,
    ports: &[Port],
    index: &HashMap<&str, usize>,
    cx: &mut Reader<'_>,
) -> Option<usize> {
    let known = || ports.iter().map(|port| port.name.as_str());
    match (&table.port, ports) {
        (Some(port), _) => {
            let index = index.get(port.value.as_str()).copied();
            if index.is_none() && !cx.is_full() {
                let hints = [
                    suggest(&port.value, known()),
                    format!("or add under [ports]: {} = \"loop:0\"", port.value),
                ];
                cx.report(&port.place, &format!("= {:?} is not among [ports]", port.value), &hints);
            }
            index
        }
        (None, [_]) => Some(0),
        (None, _) if table.given.has("port") => None,
        (None, []) => {
            let hints = ["try, before the first stream: ports = { A = \"loop:0\" }".into()];
            cx.report(&table.place, "has no port, and the profile has no [ports]", &hints);
            None
        }
        (None, [first, ..]) => {
            let hints = [format!(
                "try port = {:?}; [ports] has {}",
                first.name,
                known().collect::<Vec<_>>().join(", ")
            )];
            cx.report(&table.place, "has no port, and [ports] has several", &hints);
            None
        }
    }
}

fn packet(
    place: &Place,
    given: &Given,
    packet: Option<Placed<squall_wire::Packet>>,
    hex: Option<Placed<super::raw::HexText>>,
    pcap: Option<Placed<String>>,
    cx: &mut Reader<'_>,
) -> Option<PacketSource> {
    match cx.one_of(place, given, &["packet", "hex", "pcap"])? {
        "packet" => Some(PacketSource::Layers(packet?.value)),
        "hex" => Some(PacketSource::Octets(hex?.value.0.into())),
        _ => {
            let Placed { value, place } = pcap?;
            let (path, number) = numbered(&value);
            let hint = r#"try "capture.pcap#3": frames are counted from 1"#;
            let number = if path.is_empty() { None } else { number };
            let number =
                cx.must(&place, number, &format!("= {value:?} is not a frame of a capture"), hint)?;
            Some(PacketSource::Capture { path: cx.resolve(path), number })
        }
    }
}

/// The changing fields of a stream that have been read so far.
#[derive(Default)]
struct Varies {
    /// The names to which `after` can refer, each with its index.
    names: Vec<(String, usize)>,
    done: Vec<Vary>,
}

fn varies(tables: Vec<VaryTable>, cx: &mut Reader<'_>) -> Vec<Vary> {
    let mut varies = Varies::default();
    for table in tables {
        let at = cx.at(table.place.start);
        let first = varies.done.len();
        let name = table.name.as_ref().map(|name| name.value.clone());
        let expected =
            if matches!(&table.op, Some(op) if op.value == OpName::Tuple) { 2 } else { 1 };
        vary(table, at, &mut varies, cx);
        // After an error, a placeholder keeps the indices for `after` correct.
        while varies.done.len() < first + expected {
            varies.done.push(Vary { at, ..Vary::default() });
        }
        let last = varies.done.len() - 1;
        varies.names.extend(name.map(|name| (name, last)));
        for index in first..varies.done.len() {
            if let FieldRef::Name(field) = &varies.done[index].field
                && !field.is_empty()
            {
                varies.names.push((field.clone(), index));
            }
        }
    }
    varies.done
}

fn vary(mut table: VaryTable, at: At, varies: &mut Varies, cx: &mut Reader<'_>) -> Option<()> {
    cx.need(&table.place, &table.given, "op", r#"op = "increment""#)?;
    let op = table.op.as_ref()?.value;
    check_keys(&table, op, cx);
    if op == OpName::Tuple {
        return tuple(table, at, varies, cx);
    }
    let field = field(&mut table, cx);
    let of = match &table.after {
        Some(after) => Some(predecessor(after, op, varies, cx)?),
        None if table.given.has("after") => return None,
        None => None,
    };
    let op = operation(op, &table, cx)?;
    let op = match of {
        Some(of) => Op::After { of, then: Box::new(op) },
        None => op,
    };
    varies.done.push(Vary { field: field?, op, at, ..table.made() });
    Some(())
}

/// Reports keys that belong to other operations.
fn check_keys(table: &VaryTable, op: OpName, cx: &mut Reader<'_>) {
    let of_op: &[&str] = match op {
        OpName::Increment | OpName::Decrement => &["min", "max", "init", "step"],
        OpName::List => &["values", "init"],
        OpName::Random => &["min", "max", "limit", "seed"],
        OpName::Weighted => &["values", "weights"],
        OpName::File => &["path"],
        OpName::Tuple => &["fields", "ip_min", "ip_max", "port_min", "port_max"],
    };
    let of_field: &[&str] = match op {
        OpName::Tuple => &["name", "op"],
        _ => &[
            "name",
            "op",
            "field",
            "offset",
            "octets",
            "mask",
            "after",
            "add",
            "shift",
            "little_endian",
        ],
    };
    cx.only(
        &table.place,
        &table.given,
        &format!("op = {:?}", op.word()),
        &[of_op, of_field].concat(),
    );
}

fn field(table: &mut VaryTable, cx: &mut Reader<'_>) -> Option<FieldRef> {
    if cx.one_of(&table.place, &table.given, FieldRef::KEYS)? == "field" {
        for key in ["octets", "mask"].into_iter().filter(|key| table.given.has(key)) {
            let hints = ["octets and mask belong to offset".to_owned()];
            cx.report(
                &table.place,
                &format!("has {key:?}, which has no effect with \"field\""),
                &hints,
            );
        }
    } else {
        cx.need(&table.place, &table.given, "octets", "octets = 2")?;
        table.octets.as_ref()?;
    }
    let named = table.field.as_ref().map_or(&table.place, |field| &field.place).clone();
    let masked = table.mask.as_ref().map(|mask| (mask.value, mask.place.clone()));
    match FieldRef::taken(table)? {
        FieldRef::Name(name) => {
            let name = Some(name.trim()).filter(|name| !name.is_empty());
            let name = cx.must(&named, name, "names no field", r#"try "ipv4.src""#)?;
            Some(FieldRef::Name(name.into()))
        }
        FieldRef::Offset { offset, octets, mask } => {
            let all = u64::MAX >> (64 - 8 * octets);
            let Some((number, place)) = masked else {
                return Some(FieldRef::Offset { offset, octets, mask: all });
            };
            let right = Some(mask).filter(|mask| *mask != 0 && mask & !all == 0);
            let text =
                format!("= {:#x} selects no bits of the number, or bits outside it", number.value);
            let hint = format!("expected 1 to {all:#x}, the bits of {octets} octets");
            let mask = cx.must(&place, right, &text, &hint)?;
            Some(FieldRef::Offset { offset, octets, mask })
        }
    }
}

/// The index of the field program that `after` names. Both must be able to wrap.
fn predecessor(
    after: &Placed<String>,
    op: OpName,
    varies: &Varies,
    cx: &mut Reader<'_>,
) -> Option<usize> {
    let Placed { value, place } = after;
    if matches!(op, OpName::Random | OpName::Weighted) {
        let hints = ["only increment, decrement, list and file can have `after`".to_owned()];
        cx.report(place, &format!("= {value:?} cannot be used with op = {:?}", op.word()), &hints);
        return None;
    }
    let Some((_, of)) = varies.names.iter().rfind(|(name, _)| name == value) else {
        let known = varies.names.iter().map(|(name, _)| name.as_str());
        let hints = [format!(
            "{}; only fields that come before this one can be named",
            suggest(value, known)
        )];
        cx.report(
            place,
            &format!("= {value:?} is not an earlier field program of this stream"),
            &hints,
        );
        return None;
    };
    if matches!(varies.done[*of].op, Op::Random { .. } | Op::Weighted { .. }) {
        let hints = ["try a field with op increment, decrement, list or file".to_owned()];
        cx.report(place, &format!("= {value:?} is random and never wraps"), &hints);
        return None;
    }
    Some(*of)
}

fn operation(op: OpName, table: &VaryTable, cx: &mut Reader<'_>) -> Option<Op> {
    let place = &table.place;
    match op {
        OpName::Increment | OpName::Decrement => {
            let (min, max) = range(table, cx)?;
            let up = op == OpName::Increment;
            let init = number(&table.init, "init", table, if up { min } else { max })?;
            if !(min.value..=max.value).contains(&init.value) {
                let placed = table.init.as_ref().map_or(place, |init| &init.place);
                return cx.must(
                    placed,
                    None,
                    &format!("= {init} is out of bounds"),
                    &format!("expected {min} to {max}"),
                );
            }
            let step = number(&table.step, "step", table, 1.into())?;
            let signed = i128::try_from(step.value).ok().filter(|step| *step != 0);
            let placed = table.step.as_ref().map_or(place, |step| &step.place);
            let hint = "expected 1 or more, also for decrement";
            let step = cx.must(placed, signed, &format!("= {step} is not a step"), hint)?;
            let (min, max, init) = (min.value, max.value, init.value);
            Some(Op::Step { min, max, init, step: if up { step } else { -step } })
        }
        OpName::Random => {
            let (min, max) = range(table, cx)?;
            let limit = table.limit.as_ref().map(|limit| limit.value.0);
            if let Some(Placed { place, .. }) =
                table.limit.as_ref().filter(|limit| limit.value.0 == 0)
            {
                cx.report(
                    place,
                    "= 0 draws nothing",
                    &["try leaving it out: then there is no limit".into()],
                );
            }
            Some(Op::Random {
                min: min.value,
                max: max.value,
                limit,
                seed: table.seed.as_ref().map(|seed| seed.value.0),
            })
        }
        OpName::List => {
            let values = values(table, cx)?;
            let init = match &table.init {
                None => Some(0),
                Some(init) => {
                    let found = values.iter().position(|value| *value == init.value.value);
                    cx.must(
                        &init.place,
                        found,
                        "is not among the values",
                        "expected one of `values`",
                    )
                }
            };
            Some(Op::List { values, init: init? })
        }
        OpName::Weighted => {
            cx.need(place, &table.given, "weights", "weights = [7, 4, 1]")?;
            let (values, weights) = (values(table, cx)?, table.weights.as_ref()?);
            if values.len() != weights.value.len() {
                let text =
                    format!("has {} weights for {} values", weights.value.len(), values.len());
                return cx.must(&weights.place, None, &text, "expected one weight for each value");
            }
            let pairs: Option<Vec<(u128, u32)>> = values
                .into_iter()
                .zip(&weights.value)
                .map(|(v, Count(w))| Some((v, u32::try_from(*w).ok()?)))
                .collect();
            let sum = |pairs: &Vec<(u128, u32)>| {
                pairs.iter().map(|(_, weight)| u64::from(*weight)).sum::<u64>()
            };
            let right = pairs.filter(|pairs| (1..=u64::from(u32::MAX)).contains(&sum(pairs)));
            let hint = "the sum of weights is 1 to 4294967295";
            Some(Op::Weighted {
                values: cx.must(&weights.place, right, "has a sum that is out of range", hint)?,
            })
        }
        OpName::File => {
            cx.need(place, &table.given, "path", r#"path = "values.txt""#)?;
            Some(Op::List { values: file_values(table.path.as_ref()?, cx)?, init: 0 })
        }
        OpName::Tuple => unreachable!("tuples are two operations"),
    }
}

/// The number given for a key, or the default. `None` if the number is invalid.
fn number(
    placed: &Option<Placed<Number>>,
    key: &str,
    table: &VaryTable,
    default: Number,
) -> Option<Number> {
    match placed {
        Some(placed) => Some(placed.value),
        None => (!table.given.has(key)).then_some(default),
    }
}

fn range(table: &VaryTable, cx: &mut Reader<'_>) -> Option<(Number, Number)> {
    cx.need(&table.place, &table.given, "max", "max = 65535")?;
    let (min, max) = (number(&table.min, "min", table, 0.into())?, table.max.as_ref()?);
    ordered(min, max, "min", cx)
}

fn ordered(
    min: Number,
    max: &Placed<Number>,
    low: &str,
    cx: &mut Reader<'_>,
) -> Option<(Number, Number)> {
    let right = (min.value <= max.value.value).then_some((min, max.value));
    cx.must(
        &max.place,
        right,
        &format!("= {} is less than {low} = {min}", max.value),
        "try the smaller one first",
    )
}

fn values(table: &VaryTable, cx: &mut Reader<'_>) -> Option<Vec<u128>> {
    cx.need(&table.place, &table.given, "values", "values = [80, 443]")?;
    let placed = table.values.as_ref()?;
    let values: Vec<u128> = placed.value.iter().map(|number| number.value).collect();
    cx.must(
        &placed.place,
        Some(values).filter(|v| !v.is_empty()),
        "is empty",
        "try values = [80, 443]",
    )
}

fn file_values(path: &Placed<String>, cx: &mut Reader<'_>) -> Option<Vec<u128>> {
    let file = cx.resolve(&path.value);
    let text = match (cx.files)(file.as_ref()) {
        Ok(text) => text,
        Err(error) => {
            let text = format!("= {:?}: {}", path.value, Cannot::read(&file, &error));
            return cx.must(&path.place, None, &text, "expected a path relative to the profile");
        }
    };
    let mut values = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let value = line.split_once('#').map_or(line, |(value, _)| value).trim();
        if value.is_empty() {
            continue;
        }
        let text =
            format!("= {:?}: line {} is not a number or an address: {value:?}", path.value, i + 1);
        values.push(
            cx.must(&path.place, Number::parse(value), &text, "expected one value per line")?.value,
        );
    }
    let values = Some(values).filter(|values| !values.is_empty());
    cx.must(
        &path.place,
        values,
        &format!("= {:?} has no values", path.value),
        "expected one value per line",
    )
}

/// All pairs of addresses and ports: the address changes with each frame, and the port after the
/// last address.
fn tuple(table: VaryTable, at: At, varies: &mut Varies, cx: &mut Reader<'_>) -> Option<()> {
    cx.need(&table.place, &table.given, "ip_min", r#"ip_min = "16.0.0.1""#)?;
    cx.need(&table.place, &table.given, "ip_max", r#"ip_max = "16.0.0.254""#)?;
    let fields = match &table.fields {
        None if table.given.has("fields") => return None,
        None => ["ipv4.src".to_owned(), "udp.sport".to_owned()],
        Some(fields) => {
            let two = <[String; 2]>::try_from(fields.value.clone()).ok();
            let two = two.filter(|two| two.iter().all(|field| !field.trim().is_empty()));
            cx.must(&fields.place, two, "is not two fields", r#"try ["ipv4.src", "udp.sport"]"#)?
        }
    };
    let (ip_min, ip_max) =
        ordered(table.ip_min.as_ref()?.value, table.ip_max.as_ref()?, "ip_min", cx)?;
    let port_min = number(&table.port_min, "port_min", &table, 1025.into())?;
    let port_max = number(&table.port_max, "port_max", &table, 65_535.into())?;
    let place = table
        .port_max
        .as_ref()
        .or(table.port_min.as_ref())
        .map_or(&table.place, |port| &port.place)
        .clone();
    let (port_min, port_max) =
        ordered(port_min, &Placed { value: port_max, place }, "port_min", cx)?;
    let of = varies.done.len();
    let [address, port] = fields.map(|field| FieldRef::Name(field.trim().into()));
    let up = |min: Number, max: Number| Op::Step {
        min: min.value,
        max: max.value,
        init: min.value,
        step: 1,
    };
    let then = Op::After { of, then: Box::new(up(port_min, port_max)) };
    for (field, op) in [(address, up(ip_min, ip_max)), (port, then)] {
        varies.done.push(Vary { field, op, at, ..Vary::default() });
    }
    Some(())
}
