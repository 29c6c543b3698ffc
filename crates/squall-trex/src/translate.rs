//! Translates the streams of a port to streams of a profile.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use squall_profile::{
    BurstEnd, Mode, Next, PacketSource, Recompute, SizeLaw, Stream as ProfileStream,
};
use squall_program::trex::{Mark, MarkPlace};
use squall_units::{
    FCS_LEN, L1_OVERHEAD, MacAddr, Nanos, Rate, RateUnit, TREX_GROUPS, TREX_HW_IDS, TrexMark,
};
use squall_wire::Frame;

use crate::{
    Problem,
    stream::{Kind, Mac, Rate as OwnRate, Stream, Unit},
    vm::{self, Made},
};

/// MAC addresses for packets of streams that specify none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Macs {
    pub source: MacAddr,
    pub destination: MacAddr,
}

/// The rates of a port's streams. Those with latency keep their own rates, as in TRex.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// Multiplies each stream's own rate.
    Factor(f64),
    /// The total rate of all streams.
    Total(Unit, f64),
}

/// Parameters of a translation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// Index of the port in the profile.
    pub port: usize,
    pub macs: Macs,
    pub load: Load,
    /// Speed of the port in bits per second, if known.
    pub speed: Option<f64>,
    pub statistics: Statistics,
}

/// How the receiver identifies streams with statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistics {
    /// By Squall's signature, which measures each stream; by TRex's mark if a packet has no room
    /// for the signature.
    Signature,
    /// By both, so another TRex can count them too. Streams with latency carry TRex's header
    /// instead of the signature ([`with_headers`]).
    Trex,
    /// By TRex's mark: the IPv4 identification and the lowest bit of the type of service.
    Marks,
}

/// The flow_seq of a stream that starts for the first time; TRex reserves 1 for none.
pub const FIRST_FLOW_SEQ: u8 = 2;

/// A stream of a profile, with its origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Translated {
    /// The number that TRex's client gave the stream.
    pub number: u32,
    /// Named `name(number)`; its `next` is an index into the same list.
    pub stream: ProfileStream,
    /// The packet group's number in the stream's mark, if it has a mark.
    pub group: Option<u16>,
}

/// Request for a number of a packet group, for a stream whose packets need a mark.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// The number that TRex's client gave the stream.
    pub stream: u32,
    /// Its packet group.
    pub group: u32,
    /// Whether the mark is also Squall's only way to identify the packets.
    pub counted: bool,
}

/// Numbers assigned to packet groups: each group gets the lowest free number, as in TRex. If
/// several streams of one group are counted by their marks, all but the first get different
/// numbers.
#[derive(Clone, Debug, Default)]
pub struct GroupNumbers {
    of: HashMap<u32, u16>,
    used: BTreeSet<u16>,
    counted: BTreeSet<u16>,
}

impl GroupNumbers {
    /// Registers the number of a stream of the group.
    pub fn add(&mut self, group: u32, number: u16, counted: bool) {
        self.of.entry(group).or_insert(number);
        self.used.insert(number);
        if counted {
            self.counted.insert(number);
        }
    }

    /// Assigns a number; `None`: all are in use.
    pub fn take(&mut self, asked: Asked) -> Option<u16> {
        let shared = |number: &u16| !(asked.counted && self.counted.contains(number));
        let own = self.of.get(&asked.group).copied().filter(shared);
        let number = own.or_else(|| (0..TREX_GROUPS).find(|free| !self.used.contains(free)))?;
        self.add(asked.group, number, asked.counted);
        Some(number)
    }
}

/// Translates the streams of a port. Streams that send nothing are left out, and their duration is
/// added to the delays of the streams after them. `number_of` assigns numbers of packet groups;
/// `None`: all are in use.
///
/// # Errors
/// The first stream that cannot be translated, and the reason.
pub fn translate(
    streams: &BTreeMap<u32, Stream>,
    setting: &Setting,
    name: impl Fn(u32) -> String,
    mut number_of: impl FnMut(Asked) -> Option<u16>,
) -> Result<Vec<Translated>, Problem> {
    let mut chain = Chain { streams, made: BTreeMap::new(), factor: 1.0, speed: setting.speed };
    let mut groups = BTreeMap::new();
    for (number, stream) in streams.iter().filter(|(_, stream)| stream.enabled) {
        let mut packet = stream.packet.binary.clone();
        let Macs { source, destination } = setting.macs;
        if stream.destination_mac() == Mac::Port {
            packet[..6].copy_from_slice(&destination.0);
        }
        if stream.source_mac() == Mac::Port {
            packet[6..12].copy_from_slice(&source.0);
        }
        let group = stream.group();
        let measured = group.is_some() && setting.statistics != Statistics::Marks;
        let of = |problem: Problem| problem.of(label(*number, stream));
        let mut made = vm::make(stream, packet, measured).map_err(of)?;
        let counted = measured && !made.signed;
        let written = group.is_some() && setting.statistics != Statistics::Signature;
        let mut mark = written.then_some(Mark::LATENCY);
        if let Some(group) = group.filter(|_| counted || written)
            && !stream.has_latency()
        {
            let asked = Asked { stream: *number, group, counted };
            let group = number_of(asked).filter(|number| *number < TREX_GROUPS);
            let group = group.ok_or_else(no_number).map_err(of)?;
            mark = Some(Mark::of_group(group));
            groups.insert(*number, (group, counted));
        }
        // The plan itself marks counted streams.
        if let Some(mark) = mark.filter(|_| !counted)
            && let Some(place) = MarkPlace::of(&Frame::dissect(made.packet.clone()))
        {
            place.write(&mut made.packet, mark);
        }
        chain.made.insert(*number, made);
    }
    chain.factor = match setting.load {
        Load::Factor(factor) => factor,
        Load::Total(unit, total) => {
            let own = chain.made.iter().map(|(number, made)| (&streams[number], made.mean_len));
            factor_for(unit, total, own, setting.speed)?
        }
    };
    if !(chain.factor.is_finite() && chain.factor > 0.0) {
        return Err(Problem::new("the rate must be above 0"));
    }
    // The streams that will start, each with its delay and whether it starts by itself.
    let mut reached: BTreeMap<u32, (f64, bool)> = BTreeMap::new();
    let mut reach = |from: u32, by_itself: bool| {
        let Some((first, delay)) = chain.first_sent(from)? else { return Ok(None) };
        let (before, starts) = reached.entry(first).or_insert((delay, by_itself));
        if *before != delay {
            return Err(Problem::new("follows others after different times without packets")
                .of(label(first, &streams[&first])));
        }
        *starts |= by_itself;
        Ok(Some(first))
    };
    for (number, stream) in streams.iter().filter(|(_, stream)| stream.enabled) {
        if stream.self_start {
            reach(*number, true)?;
        }
    }
    let mut nexts: HashMap<u32, u32> = HashMap::new();
    let sending = || streams.iter().filter(|(_, stream)| stream.enabled && !stream.is_null());
    for (number, _) in sending() {
        if let Some(next) = chain.next_of(*number)
            && let Some(first) = reach(next, false)?
        {
            nexts.insert(*number, first);
        }
    }
    // Leave out streams that nothing would start.
    let numbers: Vec<u32> =
        sending().map(|(number, _)| *number).filter(|n| reached.contains_key(n)).collect();
    let index = |number: u32| numbers.iter().position(|other| *other == number);
    let one = |number: &u32| {
        let (stream, made) = (&streams[number], &chain.made[number]);
        let (delay, self_start) = reached[number];
        let times = (stream.action_count > 1).then(|| stream.action_count - 1);
        let next =
            nexts.get(number).and_then(|next| index(*next)).map(|stream| Next { stream, times });
        let stream = ProfileStream {
            name: name(*number),
            port: setting.port,
            packet: PacketSource::Octets(made.packet.clone().into()),
            size: made.sizes.clone(),
            rate: rate(even(stream.mode.rate, made, setting.speed), chain.factor_of(*number)),
            mode: match stream.mode.kind {
                Kind::Continuous => Mode::Continuous,
                Kind::SingleBurst { total_pkts } => Mode::Burst(total_pkts),
                Kind::MultiBurst { pkts_per_burst, ibg, count } => Mode::Bursts {
                    bursts: if count == 0 { u64::MAX } else { count },
                    packets: pkts_per_burst,
                    gap: micros(ibg),
                },
            },
            start_delay: micros(delay),
            self_start,
            next,
            latency: made.signed,
            trex_group: groups.get(number).filter(|(_, counted)| *counted).map(|(group, _)| *group),
            vary: made.vary.clone(),
            recompute: Recompute::Only(made.recompute.clone()),
            burst_end: BurstEnd::Frame,
            ..ProfileStream::default()
        };
        Translated { number: *number, stream, group: groups.get(number).map(|(group, _)| *group) }
    };
    Ok(numbers.iter().map(one).collect())
}

fn no_number() -> Problem {
    Problem::new(format!(
        "TRex's marks distinguish {TREX_GROUPS} packet groups, and all are in use"
    ))
}

/// Gives each stream with latency TRex's header, with an hw_id from `free`.
///
/// # Errors
/// `free` has too few entries.
pub fn with_headers(
    sent: &mut [Translated],
    streams: &BTreeMap<u32, Stream>,
    mut free: impl Iterator<Item = TrexMark>,
) -> Result<(), Problem> {
    for one in sent {
        let stream = &streams[&one.number];
        if stream.has_latency() {
            let mark = free.next().ok_or_else(|| {
                let text = format!(
                    "TRex's header tells {TREX_HW_IDS} streams with latency apart, and all are in use"
                );
                Problem::new(text).of(label(one.number, stream))
            })?;
            one.stream.trex = Some(mark);
        }
    }
    Ok(())
}

/// A load as a factor of the streams' own rates.
///
/// # Errors
/// A rate depends on the port's speed, which is unknown.
pub fn factor(
    load: Load,
    streams: &BTreeMap<u32, Stream>,
    speed: Option<f64>,
) -> Result<f64, Problem> {
    let (unit, total) = match load {
        Load::Factor(factor) => return Ok(factor),
        Load::Total(unit, total) => (unit, total),
    };
    let enabled = streams.values().filter(|stream| stream.enabled);
    let own = enabled.map(|stream| {
        let made = vm::make(stream, stream.packet.binary.clone(), false)?;
        Ok((stream, made.mean_len))
    });
    let own: Vec<(&Stream, f64)> = own.collect::<Result<_, Problem>>()?;
    factor_for(unit, total, own.into_iter(), speed)
}

/// The factor for streams, each with its mean length, that have a rate of `total` together. It is
/// of the streams without latency; 1 if there are none.
///
/// # Errors
/// The streams with latency alone have a higher rate, or a rate depends on the port's speed, which
/// is unknown.
fn factor_for<'a>(
    unit: Unit,
    total: f64,
    own: impl Iterator<Item = (&'a Stream, f64)>,
    speed: Option<f64>,
) -> Result<f64, Problem> {
    let (mut fixed, mut scaled) = (0.0, 0.0);
    for (stream, len) in own {
        let rate = in_unit(unit, stream.mode.rate, len, speed)?;
        *(if stream.has_latency() { &mut fixed } else { &mut scaled }) += rate;
    }
    if total < fixed {
        let unit = match unit {
            Unit::Pps => "pps",
            Unit::BpsL1 => "bit/s on layer 1",
            Unit::BpsL2 => "bit/s on layer 2",
            Unit::Percent => "%",
        };
        return Err(Problem::new(format!(
            "the streams with latency, whose rates no multiplier changes, have {fixed} {unit} \
             together, more than the total of {total} {unit}\n  try a lower rate of these streams, \
             or a higher total"
        )));
    }
    Ok(if scaled == 0.0 { 1.0 } else { (total - fixed) / scaled })
}

fn label(number: u32, stream: &Stream) -> String {
    stream
        .name
        .as_ref()
        .map_or_else(|| format!("stream {number}"), |name| format!("stream {name:?}"))
}

/// The order in which streams follow each other.
struct Chain<'a> {
    streams: &'a BTreeMap<u32, Stream>,
    made: BTreeMap<u32, Made>,
    factor: f64,
    speed: Option<f64>,
}

impl Chain<'_> {
    /// The factor of a stream's own rate.
    fn factor_of(&self, number: u32) -> f64 {
        if self.streams[&number].has_latency() { 1.0 } else { self.factor }
    }

    fn next_of(&self, number: u32) -> Option<u32> {
        let stream = &self.streams[&number];
        // A stream that may run once never starts its follower.
        if stream.packets().is_none() || stream.action_count == 1 {
            return None;
        }
        let next = u32::try_from(stream.next_stream_id).ok()?;
        self.streams.get(&next).filter(|next| next.enabled).map(|_| next)
    }

    /// The first stream with packets that starts after `number`, and its delay in microseconds;
    /// `None`: no packet follows.
    fn first_sent(&self, mut number: u32) -> Result<Option<(u32, f64)>, Problem> {
        let mut delay = 0.0;
        for _ in 0..=self.streams.len() {
            let stream = &self.streams[&number];
            delay += stream.isg;
            if !stream.is_null() {
                return Ok(Some((number, delay)));
            }
            let Some(next) = self.next_of(number) else { return Ok(None) };
            delay += self.lasts(number)?;
            number = next;
        }
        Err(Problem::new("streams that send nothing follow each other without end"))
    }

    /// Microseconds from a stream's first packet to its last.
    fn lasts(&self, number: u32) -> Result<f64, Problem> {
        let stream = &self.streams[&number];
        let pps = in_unit(Unit::Pps, stream.mode.rate, self.made[&number].mean_len, self.speed)?;
        let gap = 1e6 / (pps * self.factor_of(number));
        Ok(match stream.mode.kind {
            Kind::Continuous => 0.0,
            Kind::SingleBurst { total_pkts } => (total_pkts - 1) as f64 * gap,
            Kind::MultiBurst { pkts_per_burst, ibg, count } => {
                (pkts_per_burst - 1) as f64 * gap * count as f64
                    + count.saturating_sub(1) as f64 * ibg
            }
        })
    }
}

/// A stream's own rate in `unit`; `len` is its mean length without FCS.
pub(crate) fn in_unit(
    unit: Unit,
    rate: OwnRate,
    len: f64,
    speed: Option<f64>,
) -> Result<f64, Problem> {
    let bits = |unit: Unit| match unit {
        Unit::Pps => Ok(1.0),
        Unit::BpsL2 => Ok((len + f64::from(FCS_LEN)) * 8.0),
        Unit::BpsL1 => Ok((len + f64::from(FCS_LEN) + f64::from(L1_OVERHEAD)) * 8.0),
        Unit::Percent => {
            let speed = speed.ok_or_else(|| {
                Problem::new("the port has no known speed: expected pps or bps, not %")
            })?;
            Ok((len + f64::from(FCS_LEN) + f64::from(L1_OVERHEAD)) * 800.0 / speed)
        }
    };
    if unit == rate.unit {
        return Ok(rate.value);
    }
    Ok(rate.value / bits(rate.unit)? * bits(unit)?)
}

/// Converts a rate in bits to even gaps between frames of several lengths, so that the average rate
/// is the same.
fn even(own: OwnRate, made: &Made, speed: Option<f64>) -> OwnRate {
    if made.sizes == SizeLaw::Natural {
        // The port itself may not know its speed.
        return match (own.unit, speed) {
            (Unit::Percent, Some(speed)) => {
                OwnRate { unit: Unit::BpsL1, value: own.value * speed / 100.0 }
            }
            _ => own,
        };
    }
    match in_unit(Unit::Pps, own, made.mean_len, speed) {
        Ok(value) => OwnRate { unit: Unit::Pps, value },
        // If the speed is unknown, keep the percentage; the gaps then depend on frame lengths.
        Err(_) => own,
    }
}

fn micros(micros: f64) -> Nanos {
    Nanos((micros * 1000.0).round() as u64)
}

fn rate(own: OwnRate, factor: f64) -> Rate {
    let value = own.value * factor;
    let unit = match own.unit {
        Unit::Pps => RateUnit::Pps,
        Unit::BpsL1 => RateUnit::BpsL1,
        Unit::BpsL2 => RateUnit::BpsL2,
        Unit::Percent => RateUnit::Percent,
    };
    // Scale to a fraction that is exact within the precision of an f64.
    let mut den = 1u64;
    while den < 1_000_000_000_000
        && (value * den as f64).fract() != 0.0
        && value * (den as f64) < 1e15
    {
        den *= 10;
    }
    let num = (value * den as f64).round().max(1.0) as u64;
    let rate = Rate { num, den, unit };
    rate.scaled(1, 1).unwrap_or(rate)
}
