//! The tables of a profile in their text form. These comments are the reference: they appear in the
//! JSON schema.

use std::sync::Arc;

use serde_json::{Value as Json, json};
use squall_options::{Mistake, RunOptions};
use squall_units::{Nanos, Rate, TrexMark};
use squall_wire::Packet;

use super::{
    attacks::AttackTable,
    flows::{FlowsTable, PoolTable, TemplateTable},
    hosts::HostGroupTable,
    law::{NextText, Number},
    node::{Node, Value},
    read::{
        Bounded, Count, Later, Octets, Place, Placed, Read, Reader, Whole, kinds, table, words,
    },
    replay::ReplayTable,
    routers::RouterTable,
};
use crate::{
    At, BurstEnd, Departures, Late, Located, Mode, Next, Op, PacketSource, Recompute, SizeLaw,
    Stage,
};

table! {
    /// A Squall profile: the traffic to send, its ports and its times.
    ProfileTable {
        /// The version of the profile format: 1, the only one. Default 1.
        schema: Count,
        /// Seed of all random choices: the same profile and seed give the same octets. Default 1.
        seed: Count,
        /// Ends the run after this time.
        duration: Nanos,
        /// Ends the run after this number of frames on all ports together.
        packets: Count,
        /// Ends the run after this number of octets of frames with FCS, on all ports together.
        octets: Octets,
        /// Defaults for the options of `squall run`; the command line overrides them.
        run: RunOptions,
        /// Names for port addresses: A = "af_packet:eth1". `--port A=...` on the command line
        /// replaces one.
        ports: PortsTable,
        /// Streams: frames of one kind, at one rate, on one port.
        stream: Later<StreamTable>,
        /// Captures that are sent again.
        replay: Vec<ReplayTable>,
        /// Settings for all templates.
        flows: FlowsTable,
        /// Addresses of clients and servers.
        pool: Vec<PoolTable>,
        /// Templates: flows of one kind, with their addresses and load.
        template: Vec<TemplateTable>,
        /// Attacks, made from intrusion detection rules or from templates.
        attack: Vec<AttackTable>,
        /// Hosts that answer on a port, with static addresses or those of DHCP.
        host: Vec<HostGroupTable>,
        /// Routers on a port: routing daemons that exchange routes with a device.
        router: Vec<RouterTable>,
    }
}

/// Options that a profile has as keys of its own.
const OWN: [&str; 4] = ["duration", "packets", "octets", "seed"];

impl Read for RunOptions {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        let names = Self::names();
        let known: Vec<&str> =
            names.iter().map(String::as_str).filter(|name| !OWN.contains(name)).collect();
        let mut found = serde_json::Map::new();
        for entry in cx.table(node)? {
            let key = entry.key.as_str();
            if !known.contains(&key) {
                match OWN.contains(&key) {
                    true => cx.below(key, |cx| {
                        let hint = format!("try {key} at the top level, above the first table");
                        let place = Place { start: entry.start, ..cx.place(&entry.node) };
                        cx.report(&place, "is a top-level key of the profile", &[hint]);
                    }),
                    false => cx.unknown_key(entry, &known),
                }
                continue;
            }
            let one = serde_json::Map::from_iter([(entry.key.clone(), Json::from(&entry.node))]);
            match Self::from_table(one.clone()) {
                Ok(_) => found.extend(one),
                Err(Mistake::Wrong(why) | Mistake::Unknown { hint: why, .. }) => {
                    let text = why.strip_prefix(key).unwrap_or(&why).trim_start();
                    cx.below(key, |cx| cx.report(&cx.place(&entry.node), text, &[]));
                }
            }
        }
        Self::from_table(found).ok()
    }

    fn schema() -> Json {
        let mut schema = squall_options::schema(true);
        let table = schema.as_object_mut().expect("a schema is an object");
        table.retain(|key, _| !matches!(key.as_str(), "$schema" | "title" | "$defs"));
        let properties = table.get_mut("properties").and_then(Json::as_object_mut);
        properties.into_iter().for_each(|all| all.retain(|key, _| !OWN.contains(&key.as_str())));
        schema
    }
}

table! {
    /// Frames of one kind, at one rate, on one port.
    StreamTable makes
    /// Frames of one kind, at one rate, on one port.
    Stream {
        /// Unique among streams.
        name: String = String::new(),
        /// Index into [`crate::Profile::ports`].
        port: usize = 0,
        packet: PacketSource = PacketSource::Octets(Arc::default()),
        rate: Rate = Rate::pps(1),
        /// The stages of the rate from its start; may be empty. It ends with the last one.
        stages: Vec<Stage<Rate>> = Vec::new(),
        next: Option<Next> = None,
        /// With `latency`: TRex's header replaces Squall's signature.
        trex: Option<TrexMark> = None,
        /// Without `latency`: frames have the mark of this TRex packet group, below
        /// [`squall_units::TREX_GROUPS`], by which the receiver counts them.
        trex_group: Option<u16> = None,
        /// Number of frames that former runs have sent: the stream continues with the next one, in
        /// the middle of a burst if they ended there.
        sent: u64 = 0,
        vary: Vec<Vary> = Vec::new(),
        at: At = At::default(),
        /// Places of `packet`, `size`, `segment`, `rate`.
        packet_at: At = At::default(),
        size_at: At = At::default(),
        segment_at: At = At::default(),
        rate_at: At = At::default(),
    } from {
        /// Unique; reports and `next` use it. Default "stream 1" and so on.
        name: String,
        /// A name from [ports]. May be left out if there is only one.
        port: String,
        /// Reports add up the streams of a group.
        group: String => Option<String>,
        /// The headers, outermost first; lengths and checksums are filled in. One of `packet`,
        /// `hex`, `pcap`.
        packet: Packet,
        /// The octets of a frame without FCS, hexadecimal; blanks and colons between octets are
        /// skipped. Or the output of `tcpdump -xx` or `-XX`, Wireshark or hexdump for one frame:
        /// offsets first, optionally characters at the end.
        hex: HexText,
        /// A frame of a capture: "file.pcap#3" is the third; without a number, the first. Relative
        /// to the profile.
        pcap: String,
        /// "host:NAME": the hosts of this group, which is on the same port, send the frames, one
        /// after the other, if they have an address. A frame has the MAC address, VLAN and IP
        /// address of its host, and goes to the MAC address of its gateway, unless the packet sets
        /// `eth(dst=...)`; that of a host with `pppoe` is in its session. Default: the packet's
        /// addresses.
        src: Located => Option<Located>,
        /// "host:NAME": frames go to the hosts of this group that have an address, one after the
        /// other. The destination's MAC address is that of the host, unless the packet sets
        /// `eth(dst=...)`, or the frames come from hosts; that to a host with `pppoe` is then in its
        /// session, from its access concentrator. "routes:ROUTER" or "routes:ROUTER/GROUP":
        /// frames go to the routes that the router announces, one after the other: to the first host
        /// of each, or the next address if a more specific route has it; or with "#7" at the end to
        /// the seventh host. A default route is left out. With `latency = true`, the report has the
        /// loss and convergence of each route. "learnt:ROUTER": frames go to the first host of each
        /// route that this native router has learnt from the device and that is not withdrawn, one
        /// after the other; frames that are due while there is none are not sent (`no_route`).
        /// Default: the packet's addresses.
        dst: Located => Option<Located>,
        /// Frame length in octets with FCS. Default: the length of the packet, at least 64.
        size: SizeLaw => SizeLaw,
        /// Segment size: octets of TCP or UDP payload per frame on the wire. The stream's frames are
        /// GSO frames of up to 65553 octets. The kernel or the NIC segments them if the port
        /// supports it (af_packet), otherwise Squall does. Rates and counters are those of the
        /// frames on the wire. Without `size`, a GSO frame holds as many full segments as fit.
        segment: Bounded<1, 65_535> => Option<u32>,
        /// The rate; with `stages`, the highest rate of all.
        rate: Rate,
        /// How the rate changes, one stage after the other: each goes linearly from the previous
        /// rate, 0 at first, to `to`. The stream ends with its last stage.
        stages: Vec<RateStageTable>,
        /// How the gaps between departures spread; their mean follows from the rate. Default
        /// "constant".
        departures: Departures => Departures,
        /// How many frames: without end, or in bursts. Default "continuous".
        mode: Mode => Mode,
        /// A wait after the start of the run, after the end of the source that it comes `after`, or
        /// after the end of the stream that names this one as `next`.
        start_delay: Nanos => Nanos,
        /// Ends this long after its start, pauses included.
        duration: Nanos => Option<Nanos>,
        /// Begins when the stream, replay, template or attack of this name has ended, on any port.
        after: Located => Option<Located>,
        /// false: waits until another stream names this one as `next`. Default true.
        self_start: bool => bool = true,
        /// The stream of the same port that starts when this one has ended; it can be this one.
        next: NextText,
        /// Signs the frames, so that the receiver measures loss, order and delay. Default false.
        latency: bool => bool,
        /// With latency = true, frames end with the header of TRex's latency streams instead of
        /// Squall's signature, so that TRex can receive them; its hw_id, 0 to 127, different for
        /// each stream.
        trex_hw_id: Count,
        /// TRex's flow_seq in that header, 0 to 255; TRex changes it with each start of a stream.
        /// Default 1.
        trex_flow_seq: Count,
        /// Without latency = true, as for frames with no room for a signature: frames are marked as
        /// TRex marks those of a packet group (IPv4 identification and lowest bit of the type of
        /// service; IPv6 flow label and lowest bit of the traffic class), and the receiver counts
        /// them by it. Loss is the number sent less the number received; order and delay are not
        /// measured. The number of the group, 0 to 1022, different for each stream.
        trex_group: Count,
        /// The policy for late frames. Default "smooth".
        late: Late => Late,
        /// Which length and checksum fields follow what changes from frame to frame: true, all of
        /// them; false, none; or their names: ["ipv4.checksum"]. The others keep the packet's
        /// values. Default true.
        recompute: Recompute => Recompute,
        /// When a burst ends: "gap", one gap after its last frame, or "frame", with its last frame,
        /// as in TRex. Counts for the gap between bursts and the start of `next`. Default "gap".
        burst_end: BurstEnd => BurstEnd,
        /// false: the stream is ignored. Default true.
        enabled: bool,
        /// Fields that change from frame to frame.
        vary: Vec<VaryTable>,
    }
}

table! {
    /// A rate, and how long it takes to reach it.
    RateStageTable {
        /// How long the rate changes, or stays. Default 0: it changes at once.
        duration: Nanos,
        /// The rate at the end, in the unit of the others; at most `rate`. Default: as before.
        to: Rate,
    }
}

table! {
    /// A field that changes from frame to frame. The field is named, or given by `offset` and
    /// `octets`.
    VaryTable makes
    /// A field that changes from frame to frame. Before a value is written, `add` is added, the sum
    /// is shifted left by `shift` bits (right if negative), and its octets are reversed if it is
    /// little-endian. The result is truncated to the field, modulo 2^64; with the defaults, which
    /// change nothing, a value that does not fit is an error.
    Vary {
        field: FieldRef = FieldRef::Name(String::new()),
        op: Op = Op::Step { min: 0, max: 0, init: 0, step: 1 },
        at: At = At::default(),
    } from {
        /// For `after` of another field program; default: the field.
        name: String,
        /// As in the packet: "ipv4.src", "vlan[1].id" (the second from the outside),
        /// "udp[-1].sport" (the innermost).
        field: String,
        /// First octet of the number that changes, from the start of the frame.
        offset: Bounded<0, 65_535>,
        /// Length of the number at `offset`, 1 to 8; big-endian.
        octets: Bounded<1, 8>,
        /// The bits of the number at `offset` that change. Default all.
        mask: Number,
        /// The order of the values.
        op: OpName,
        /// Added to each value before it is written; bits that the field has no room for are cut
        /// off. Default 0.
        add: Whole => i64,
        /// Bits by which the sum is shifted to the left, to the right if negative: -63 to 63.
        /// Default 0.
        shift: Shift => i8,
        /// true: the octets are written in little-endian order. Default false.
        little_endian: bool => bool,
        /// Smallest value: a number, an address, a MAC. For increment, decrement, random; default
        /// 0.
        min: Number,
        /// Largest value. For increment, decrement, random.
        max: Number,
        /// Value of the first frame. Default: `min` for increment, `max` for decrement, the first
        /// of a list.
        init: Number,
        /// Distance from one value to the next, for increment and decrement; past the end it wraps.
        /// Default 1.
        step: Number,
        /// For list (in order, repeated) and weighted.
        values: Vec<Number>,
        /// For weighted: how often each of `values` is drawn, in proportion.
        weights: Vec<Count>,
        /// For random: the number of draws, which are then repeated.
        limit: Count,
        /// For random: a seed of its own, independent of the profile's.
        seed: Count,
        /// For file: values, one per line; # begins a comment. Relative to the profile.
        path: String,
        /// Changes only when an earlier field of this stream wraps; the name or the field of that
        /// field program.
        after: String,
        /// For tuple: the address and the port field. Default ["ipv4.src", "udp.sport"].
        fields: Vec<String>,
        /// For tuple: the first address.
        ip_min: Number,
        /// For tuple: the last address.
        ip_max: Number,
        /// For tuple: the first port. The port advances when the addresses wrap. Default 1025.
        port_min: Number,
        /// For tuple: the last port. Default 65535.
        port_max: Number,
    }
}

kinds! {
    /// The place of a number that changes.
    #[derive(Clone, Debug, PartialEq)]
    FieldRef from VaryTable {
        /// `ipv4.src`, `vlan[1].id`; see [`squall_wire::Frame::field`].
        Name(field: String),
        /// `mask` selects bits of the `octets`-octet big-endian number at `offset` (from the
        /// frame's first octet).
        Offset { offset: usize, octets: usize, mask: u64 = u64::MAX },
    }
}

table! {
    /// How frame lengths spread; one of these keys.
    SizeTable {
        /// Random, in proportion to the weights: [[64, 7], [594, 4], [1518, 1]].
        weights: Vec<Pair>,
        /// Random, uniform: "64-1518".
        uniform: String,
        /// Random, normal.
        normal: NormalSize,
        /// An IMIX genome (RFC 6985): one letter per frame, repeated; a number before a letter
        /// repeats it. a 64, b 128, c 256, d 512, e 1024, f 1280, g 1518, h 2112, i 9000, z the
        /// MTU; capitals are `custom`.
        genome: String,
        /// The length of z in `genome`.
        z: Count,
        /// The lengths of A, B, ... in `genome`.
        custom: Vec<Count>,
    }
}

table! {
    /// Rounded to whole octets, drawn again until within min to max.
    NormalSize {
        /// Mean of the distribution before it is limited to min to max.
        mean: f64,
        /// Standard deviation, at most max - min.
        sd: f64,
        /// Default 64.
        min: Count,
        /// Default 1518.
        max: Count,
    }
}

table! {
    /// How gaps spread; one of these keys (on and off go together).
    DeparturesTable {
        /// Uniform gaps from 1-x to 1+x times the mean; 0 < x <= 1.
        uniform: f64,
        /// Standard deviation as a share of the mean gap; negative draws count as 0.
        normal: f64,
        /// Shape, above 1.
        pareto: f64,
        /// Shape.
        weibull: f64,
        /// Shape.
        gamma: f64,
        /// Constant gaps for this time ...
        on: Nanos,
        /// ... then silence for this time. The rate is the one while on.
        off: Nanos,
        /// Gaps in nanoseconds, one per line, repeated; scaled to the rate unless that is max.
        /// Relative to the profile.
        file: String,
    }
}

table! {
    /// `burst`, or `bursts` with `packets` and `gap`.
    ModeTable {
        /// The number of frames, after which the stream has ended.
        burst: Count,
        /// The number of bursts.
        bursts: Count,
        /// The number of frames in each burst.
        packets: Count,
        /// The time between two bursts. Default 0.
        gap: Nanos,
    }
}

table! {
    /// The stream that follows, and how often.
    NextTable {
        /// Its name.
        stream: String,
        /// How many times in all. Default: without end.
        times: Count,
    }
}

/// `[ports]`: any name, with an address.
#[derive(Debug)]
pub(super) struct PortsTable(pub Vec<(String, Placed<String>)>);

impl Read for PortsTable {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        let mut ports = Vec::new();
        for entry in cx.table(node)? {
            let address = cx.below(&entry.key, |cx| {
                let value = String::read(&entry.node, cx)?;
                let place = Place { start: entry.start, ..cx.place(&entry.node) };
                if value.trim().is_empty() {
                    return cx.wrong_type(
                        &entry.node,
                        "an address",
                        r#""af_packet:eth1", "loop:0", "null:""#,
                    );
                }
                Some(Placed { value, place })
            });
            ports.extend(address.map(|address| (entry.key.clone(), address)));
        }
        Some(Self(ports))
    }
    fn schema() -> Json {
        json!({ "type": "object", "additionalProperties": { "type": "string", "minLength": 1 },
            "examples": [{ "A": "af_packet:eth1", "B": "loop:0" }] })
    }
}

/// Bits to the left; negative: to the right.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shift(i8);

impl Read for Shift {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        let Whole(bits) = Whole::read(node, cx)?;
        let within = i8::try_from(bits).ok().filter(|bits| (-63..=63).contains(bits));
        let text = format!("= {bits} is out of bounds");
        cx.must(&cx.place(node), within, &text, "expected -63 to 63").map(Self)
    }
    fn schema() -> Json {
        Whole::schema()
    }
}

impl From<Shift> for i8 {
    fn from(Shift(bits): Shift) -> Self {
        bits
    }
}

/// `[64, 7]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair(pub u64, pub u64);

impl Read for Pair {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        match &node.value {
            Value::List(items) if items.len() == 2 => {
                let first = Count::read(&items[0], cx)?;
                Some(Self(first.0, Count::read(&items[1], cx)?.0))
            }
            _ => cx.wrong_type(node, "a length and its weight", "[64, 7]"),
        }
    }
    fn schema() -> Json {
        json!({ "type": "array", "items": { "type": "integer", "minimum": 0 }, "minItems": 2, "maxItems": 2 })
    }
}

/// Octets of a dump with offsets; `None`: not a dump. tcpdump prints a line about the packet first.
fn dumped(text: &str) -> Option<Vec<u8>> {
    let offset = |line: &str| {
        let (first, _) = line.trim().split_once([' ', '\t', ':'])?;
        let digits = first.trim_start_matches("0x");
        (digits.len() >= 4).then(|| u64::from_str_radix(digits, 16).ok())?
    };
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let first = lines.iter().position(|line| offset(line) == Some(0))?;
    // A single line is a dump only with a sign other than octets: addresses start with zeros, too.
    let found = lines.len() > first + 1 || lines[first].contains([':', 'x']);
    let octets = || squall_wire::parse_hex(&lines[first..].join("\n")).ok();
    (found && lines[first + 1..].first().is_none_or(|line| offset(line) == Some(16)))
        .then(octets)?
}

/// The octets of a frame.
#[derive(Clone, Debug)]
pub(super) struct HexText(pub Vec<u8>);

impl Read for HexText {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        // YAML reads hex of decimal digits as a number.
        let text = match cx.raw(node) {
            Some(digits) if matches!(node.value, Value::Integer(_) | Value::Float(_)) => {
                digits.to_owned()
            }
            _ => String::read(node, cx)?,
        };
        if let Some(octets) = dumped(&text) {
            return Self::of_a_frame(octets, node, cx);
        }
        let mut octets = Vec::with_capacity(text.len() / 2);
        let mut half = None;
        for (at, c) in text.char_indices().filter(|(_, c)| !c.is_whitespace() && *c != ':') {
            let Some(digit) = c.to_digit(16) else {
                let place = Place { start: cx.inside(node, &text, at), ..cx.place(node) };
                cx.report(&place, &format!("says {c:?}, expected a hexadecimal digit"), &[]);
                return None;
            };
            half = match half {
                None => Some(digit),
                Some(high) => {
                    octets.push((high << 4 | digit) as u8);
                    None
                }
            };
        }
        if half.is_some() {
            cx.report(
                &cx.place(node),
                "ends in the middle of an octet",
                &["each octet has two digits".into()],
            );
            return None;
        }
        Self::of_a_frame(octets, node, cx)
    }
    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

impl HexText {
    fn of_a_frame(octets: Vec<u8>, node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        // At least destination, source and type; at most lo's MTU and an Ethernet header.
        if !(14..=65_550).contains(&octets.len()) {
            let found = format!("is {} octets, expected 14 to 65550", octets.len());
            cx.report(
                &cx.place(node),
                &found,
                &["try the whole frame, from its destination address, without FCS".into()],
            );
            return None;
        }
        Some(Self(octets))
    }
}

words!(BurstEnd, "the end of a burst": "gap" => Gap, "frame" => Frame);

impl Read for Recompute {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        match &node.value {
            Value::Bool(true) => Some(Self::All),
            Value::Bool(false) => Some(Self::Only(Vec::new())),
            Value::List(_) => {
                let names = Vec::<String>::read(node, cx)?;
                Some(Self::Only(names.into_iter().map(|name| name.trim().into()).collect()))
            }
            _ => cx.wrong_type(node, "true, false or a list of fields", r#"["ipv4.checksum"]"#),
        }
    }
    fn schema() -> Json {
        json!({ "anyOf": [{ "type": "boolean" }, { "type": "array", "items": { "type": "string" } }],
            "examples": [false, ["ipv4.checksum", "udp.checksum"]] })
    }
}

words!(
    Late,
    "a policy for late frames",
    "smooth: up to 0.75 ms of the schedule (or two frames) follows at once, the rest is made up at \
     0.8 % above the rate. catch-up: sent as fast as the port can until the schedule is met again; \
     a run with such a burst is not valid. drop: skipped and counted, if more than a gap late. \
     stretch: the rest of the schedule moves.":
    "smooth" => Smooth,
    "catch-up" => CatchUp,
    "drop" => Drop,
    "stretch" => Stretch,
);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpName {
    Increment,
    Decrement,
    List,
    Random,
    Weighted,
    File,
    Tuple,
}

words!(
    OpName,
    "an operation of a field program":
    "increment" => Increment,
    "decrement" => Decrement,
    "list" => List,
    "random" => Random,
    "weighted" => Weighted,
    "file" => File,
    "tuple" => Tuple,
);
