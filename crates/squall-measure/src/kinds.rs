//! Detects and reads the sequence numbers that other tools put in their packets.
//!
//! A flow's kind is adopted only once consecutive packets have confirmed it ([`Kind::evidence`]);
//! these packets count, too. This module reads no clock: the caller provides arrival times and the
//! offset of the receiver's clock from the wall clock.

use squall_program::signature::Signature;
use squall_stats::{DelayTracker, SequenceTracker};
use squall_units::{Nanos, get_be16, get_be32};

use crate::flow::{Fragment, Headers, protocol};

/// The tool that numbered the packets of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The signature at the end of Squall's frames, which are counted by stream instead of by flow.
    Squall,
    /// MGEN 4 and 5 (NRL), `mgenMsg.cpp`.
    Mgen,
    /// RUDE and CRUDE, `rude.h`: `struct udp_data`.
    Crude,
    /// TRex, stateless streams with latency: `struct flow_stat_payload_header`.
    Trex,
    /// iperf3 -u, `iperf_udp.c`; also with --udp-counters-64bit.
    Iperf3,
    Iperf3Wide,
    /// RFC 3550.
    Rtp,
}

/// The kinds to search for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// All kinds, each confirmed by its evidence.
    #[default]
    Auto,
    /// Only this kind, from the first packet that can be parsed as such.
    Only(Kind),
    None,
}

/// Parses `auto`, `none`, or the name of a kind.
impl std::str::FromStr for Wanted {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let kinds = [Kind::Squall, Kind::Mgen, Kind::Crude, Kind::Trex, Kind::Iperf3, Kind::Rtp];
        match text {
            "auto" => Ok(Self::Auto),
            "none" => Ok(Self::None),
            name => match kinds.into_iter().find(|kind| kind.name() == name) {
                Some(kind) => Ok(Self::Only(kind)),
                None => Err(format!(
                    "{name:?} is not a kind of sequence: expected auto, squall, mgen, crude, trex, \
                     iperf3, rtp or none"
                )),
            },
        }
    }
}

/// In the order in which they are tried: kinds with more evidence first.
const KINDS: [Kind; 6] =
    [Kind::Mgen, Kind::Crude, Kind::Trex, Kind::Iperf3Wide, Kind::Iperf3, Kind::Rtp];
/// Number of packets of a flow in which to look for a kind.
const TRIED: u64 = 64;
/// Maximum difference of two numbers for the second to confirm the first. Loss and reordering also
/// happen at the start of a flow.
const NEAR: u32 = 100;
/// Maximum difference of two clocks that are taken as one, nanoseconds.
const ONE_CLOCK: u64 = 2_000_000_000;

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Squall => "squall",
            Self::Mgen => "mgen",
            Self::Crude => "crude",
            Self::Trex => "trex",
            Self::Iperf3 | Self::Iperf3Wide => "iperf3",
            Self::Rtp => "rtp",
        }
    }

    /// Whether the packets contain their own destination address.
    fn is_addressed(self) -> bool {
        matches!(self, Self::Mgen | Self::Crude)
    }

    /// Number of packets, each numbered one above the previous, that confirm a kind. Two suffice
    /// for MGEN, where length, port and address in the header are 80 bits that must match. An RTP
    /// header has only 2 fixed bits and a constant.
    fn evidence(self) -> usize {
        match self {
            Self::Squall => 1,
            Self::Mgen | Self::Crude => 2,
            Self::Trex => 3,
            Self::Iperf3 | Self::Iperf3Wide => 6,
            Self::Rtp => 8,
        }
    }
}

/// A packet and its headers.
#[derive(Clone, Copy)]
pub struct Packet<'a> {
    pub octets: &'a [u8],
    pub headers: &'a Headers,
}

/// Sequence number and timestamp of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub sequence: u32,
    pub stamp: Stamp,
    /// Equal for all packets of one sequence of a sender: a flow id, or the SSRC of RTP.
    pub id: u64,
}

/// The departure time that a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// Nanoseconds since an unknown epoch.
    Nanos(i64),
    /// CPU ticks of unknown frequency.
    Ticks(u64),
    /// RTP timestamp, and its rate in Hz if the payload type defines one.
    Media(u32, Option<u32>),
}

/// Parses seconds and microseconds, 32 bits each.
fn timeval(octets: &[u8], at: usize) -> Option<Stamp> {
    let (s, us) = (get_be32(octets, at)?, get_be32(octets, at + 4)?);
    (us < 1_000_000).then(|| Stamp::Nanos(i64::from(s) * 1_000_000_000 + i64::from(us) * 1000))
}

impl<'a> Packet<'a> {
    /// The UDP payload.
    fn payload(&self) -> Option<&'a [u8]> {
        let h = self.headers;
        let udp =
            h.key.protocol == protocol::UDP && h.fault.is_none() && h.fragment != Fragment::Later;
        self.octets.get(self.headers.payload as usize..self.headers.end as usize).filter(|_| udp)
    }

    /// The destination address.
    fn dst(&self) -> &[u8] {
        let key = &self.headers.key;
        if key.version == 4 { &key.dst[..4] } else { &key.dst }
    }

    /// The packet's mark, if it can be parsed as `kind`.
    pub fn mark(&self, kind: Kind) -> Option<Mark> {
        match kind {
            Kind::Squall => None,
            Kind::Mgen => self.mgen(),
            Kind::Crude => self.crude(),
            Kind::Trex => self.trex(),
            Kind::Iperf3 => self.iperf3(8),
            Kind::Iperf3Wide => self.iperf3(12),
            Kind::Rtp => self.rtp(),
        }
    }

    /// messageSize (16 bits), version (8), flags (8), flowId (32), sequenceNumber (32), txTime
    /// (64), dstPort (16), dstAddrType (8; 1 is IPv4, 2 IPv6), dstAddrLen (8), dstAddr.
    fn mgen(&self) -> Option<Mark> {
        let p = self.payload()?;
        let dst = self.dst();
        // From the UDP length, because the payload may be truncated or fragmented.
        let len = get_be16(self.octets, self.headers.transport as usize + 4)?.checked_sub(8)?;
        let fits = get_be16(p, 0)? == len
            && (1..=6).contains(p.get(2)?)
            && get_be16(p, 20)? == self.headers.key.dst_port
            && *p.get(22)? == if dst.len() == 4 { 1 } else { 2 }
            && usize::from(*p.get(23)?) == dst.len()
            && p.get(24..24 + dst.len())? == dst;
        let stamp = timeval(p, 12).filter(|_| fits)?;
        Some(Mark { sequence: get_be32(p, 8)?, stamp, id: get_be32(p, 4)?.into() })
    }

    /// Sequence number, seconds, microseconds, flow id (32 bits each), then the IPv4 destination
    /// address, or a `sockaddr_storage` with it.
    fn crude(&self) -> Option<Mark> {
        let p = self.payload()?;
        let dst = self.dst();
        let plain = p.get(16..16 + dst.len()) == Some(dst);
        let within = [20, 24].iter().any(|&at| p.get(at..at + dst.len()) == Some(dst));
        let stamp = timeval(p, 4).filter(|_| plain || within)?;
        Some(Mark { sequence: get_be32(p, 0)?, stamp, id: get_be32(p, 12)?.into() })
    }

    /// The last 16 octets, in the byte order of the sender: magic 0xab, flow_seq (8 bits), hw_id
    /// (16), seq (32), time_stamp (64). The IPv4 identification is 0xffff, or on NICs that filter
    /// by it, starts with 0xff.
    fn trex(&self) -> Option<Mark> {
        let h = self.headers;
        let fixed = match h.key.version {
            4 => self.octets.get(h.network as usize + 4)? == &0xff,
            6 => true,
            _ => false,
        };
        let header: &[u8; 16] = self.octets.get(..h.end as usize)?.last_chunk()?;
        let fits = fixed && header[0] == 0xab && header[3] < 0x10 && h.end - h.transport >= 16;
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| header[at + i]));
        let stamp = u64::from(word(8)) | u64::from(word(12)) << 32;
        fits.then(|| Mark { sequence: word(4), stamp: Stamp::Ticks(stamp), id: u64::from(word(0)) })
    }

    /// Seconds, microseconds (32 bits each), packet count (32 bits, or 64 with the lower half at
    /// `low` + 4).
    fn iperf3(&self, low: usize) -> Option<Mark> {
        let p = self.payload()?;
        Some(Mark { sequence: get_be32(p, low)?, stamp: timeval(p, 0)?, id: 0 })
    }

    /// The header of RFC 3550 §5.1, with the validity checks of appendix A.1.
    fn rtp(&self) -> Option<Mark> {
        let p = self.payload()?;
        let (flags, payload_type) = (*p.first()?, *p.get(1)? & 0x7f);
        let header = 12 + 4 * usize::from(flags & 15);
        let extension =
            if flags & 0x10 == 0 { 0 } else { 4 + 4 * usize::from(get_be16(p, header + 2)?) };
        let padding = if flags & 0x20 == 0 { 0 } else { usize::from(*p.last()?).max(1) };
        // RFC 5761 §4: payload types 64 to 95 are RTCP.
        let fits = flags >> 6 == 2
            && !(64..96).contains(&payload_type)
            && header + extension + padding <= p.len();
        let (sequence, stamp) = (get_be16(p, 2)?, get_be32(p, 4)?);
        let id = u64::from(get_be32(p, 8)?) << 8 | u64::from(payload_type);
        fits.then(|| Mark {
            sequence: sequence.into(),
            stamp: Stamp::Media(stamp, media_rate(payload_type)),
            id,
        })
    }
}

/// Clock rate of static payload types (RFC 3551 §6, tables 4 and 5); dynamic ones do not define it.
fn media_rate(payload_type: u8) -> Option<u32> {
    Some(match payload_type {
        0 | 3 | 4 | 5 | 7 | 8 | 9 | 12 | 13 | 15 | 18 => 8000,
        6 => 16_000,
        10 | 11 => 44_100,
        16 => 11_025,
        17 => 22_050,
        14 | 25 | 26 | 28 | 31 | 32 | 33 | 34 => 90_000,
        _ => return None,
    })
}

/// The difference from `then` to `now`, modulo the kind's range.
fn step(kind: Kind, then: u32, now: u32) -> i32 {
    match kind {
        Kind::Rtp => i32::from((now as u16).wrapping_sub(then as u16) as i16),
        _ => now.wrapping_sub(then) as i32,
    }
}

/// Whether two packets can have the same sender. The second arrived `passed` after the first.
fn agree(kind: Kind, then: &Mark, now: &Mark, passed: u64) -> bool {
    if then.id != now.id || step(kind, then.sequence, now.sequence).unsigned_abs() > NEAR {
        return false;
    }
    match (then.stamp, now.stamp) {
        // Tolerates a quarter of a second, because packets wait in queues.
        (Stamp::Nanos(then), Stamp::Nanos(now)) => {
            (now - then).abs_diff(passed as i64) < 250_000_000
        }
        (Stamp::Ticks(then), Stamp::Ticks(now)) => then != now,
        // Tolerates ten seconds of video at 90 kHz.
        (Stamp::Media(then, _), Stamp::Media(now, _)) => {
            (now.wrapping_sub(then) as i32).unsigned_abs() < 900_000
        }
        _ => false,
    }
}

/// Whether departure times, if any, advanced at the rate of arrivals since the first packet, which
/// arrived `passed` ago. Constant fields and packet counters do not.
fn keeps_time(first: &Mark, last: &Mark, passed: u64) -> bool {
    match (first.stamp, last.stamp) {
        (Stamp::Nanos(first), Stamp::Nanos(last)) => {
            last > first && (last - first).abs_diff(passed as i64) < passed / 2 + 5_000_000
        }
        _ => true,
    }
}

/// Relation of the sender's clock to the receiver's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SenderClock {
    /// Packets have no departure time, or one in an unknown unit.
    #[default]
    None,
    /// Another clock, so only the variation of delays is known.
    Other,
    /// The wall clock or the receiver's own clock: the time in the first packet was within two
    /// seconds of it.
    Wall,
    Receiver,
}

/// Measurements of a flow with sequence numbers.
#[derive(Clone, Debug)]
pub struct Sequenced {
    pub kind: Kind,
    pub sequence: SequenceTracker,
    pub delay: DelayTracker,
    pub clock: SenderClock,
    /// Number of packets of the flow that have no number.
    pub unnumbered: u64,
    /// Number (extended to 32 bits) and id of the last packet.
    last: (u32, u64),
    /// The previous id. Packets that still have it are late.
    before: Option<u64>,
    /// The number that would confirm an unexpected number.
    suspect: Option<u32>,
    first_arrival: Nanos,
    last_arrival: Nanos,
    /// RTP timestamps, extended to 64 bits.
    media: Option<(u32, i64)>,
}

/// Offset of the wall clock from the receiver's clock, nanoseconds; `None` in virtual time, which
/// has no such offset.
pub type WallOffset = Option<i64>;

impl Sequenced {
    fn new(kind: Kind, mark: &Mark, arrival: Nanos) -> Self {
        Self {
            kind,
            sequence: SequenceTracker::new(),
            delay: DelayTracker::new(),
            clock: SenderClock::None,
            unnumbered: 0,
            last: (mark.sequence, mark.id),
            before: None,
            suspect: None,
            first_arrival: arrival,
            last_arrival: arrival,
            media: None,
        }
    }

    fn take(&mut self, mark: &Mark, arrival: Nanos, wall: WallOffset) {
        if mark.id != self.last.1 {
            if self.before == Some(mark.id) {
                self.unnumbered += 1;
                return;
            }
            (self.before, self.last.1) = (Some(self.last.1), mark.id);
            self.restart(arrival);
        }
        let sequence = self.last.0.wrapping_add(step(self.kind, self.last.0, mark.sequence) as u32);
        let delay = self.transit(mark.stamp, arrival, wall);
        if self.has_restarted(sequence, delay, arrival) {
            self.restart(arrival);
        }
        if self.suspect.is_some() {
            // The next packet may confirm the number. Until then, this one counts as unnumbered, as
            // a stray packet would.
            self.unnumbered += 1;
            return;
        }
        self.last.0 = sequence;
        self.last_arrival = arrival;
        if self.sequence.observe(sequence).is_new()
            && let Some(delay) = delay
        {
            let one = matches!(self.clock, SenderClock::Wall | SenderClock::Receiver);
            self.delay.observe_sent(sequence, delay, arrival.0, one);
        }
    }

    fn restart(&mut self, arrival: Nanos) {
        self.sequence.restart();
        self.delay.restart();
        (self.first_arrival, self.media) = (arrival, None);
    }

    /// Whether a sender has restarted: a lower number was sent after all others, or the number is
    /// ahead by more than four times what the flow has sent in the same time until now. (RFC 3550
    /// appendix A.1 requires two consecutive packets if timestamps are no evidence, as in RTP.)
    fn has_restarted(&mut self, sequence: u32, delay: Option<i64>, arrival: Nanos) -> bool {
        let borne_out = self.suspect.take() == Some(sequence);
        let is_lower = self.sequence.is_below_expected(sequence);
        if is_lower && self.kind != Kind::Rtp {
            return delay.is_some_and(|delay| self.delay.is_newer(delay, arrival.0, 0));
        }
        let limit = match is_lower {
            true => 100,
            false => {
                let span = self.sequence.span().map_or(0, |span| span.unique);
                let so_far = self.last_arrival.saturating_sub(self.first_arrival).0.max(1);
                let since = arrival.saturating_sub(self.last_arrival).0;
                3000 + (u128::from(span) * u128::from(since) * 4 / u128::from(so_far)) as u64
            }
        };
        let off = match is_lower {
            true => u64::from(step(self.kind, sequence, self.last.0).unsigned_abs()),
            false => u64::from(self.sequence.ahead(sequence)),
        };
        if off <= limit {
            return false;
        }
        if !borne_out {
            self.suspect = Some(sequence.wrapping_add(1));
        }
        borne_out
    }

    /// Arrival time minus departure time; with different clocks, plus an unknown constant.
    fn transit(&mut self, stamp: Stamp, arrival: Nanos, wall: WallOffset) -> Option<i64> {
        let arrival = arrival.0 as i64;
        match stamp {
            Stamp::Nanos(sent) => {
                let own = arrival.wrapping_sub(sent);
                let on_wall = wall.map(|offset| own.wrapping_add(offset));
                if self.clock == SenderClock::None {
                    self.clock = match () {
                        () if own.unsigned_abs() < ONE_CLOCK => SenderClock::Receiver,
                        () if on_wall.is_some_and(|delay| delay.unsigned_abs() < ONE_CLOCK) => {
                            SenderClock::Wall
                        }
                        () => SenderClock::Other,
                    };
                }
                Some(if self.clock == SenderClock::Receiver { own } else { on_wall.unwrap_or(own) })
            }
            Stamp::Media(stamp, rate) => {
                let rate = i64::from(rate?);
                self.clock = SenderClock::Other;
                let (last, so_far) = self.media.unwrap_or((stamp, 0));
                let ticks = so_far + i64::from(stamp.wrapping_sub(last) as i32);
                self.media = Some((stamp, ticks));
                Some(
                    arrival.wrapping_sub(
                        (i128::from(ticks) * 1_000_000_000 / i128::from(rate)) as i64,
                    ),
                )
            }
            Stamp::Ticks(_) => None,
        }
    }
}

/// The kind of a flow, once known.
#[derive(Clone, Debug, Default)]
pub enum Recognition {
    #[default]
    New,
    Looking(Box<Looking>),
    /// None of the known kinds.
    Unknown,
    /// Squall's frames, all of this stream; `None`: the flow has several streams.
    Signed(Option<u16>),
    Known(Box<Sequenced>),
}

/// Candidates for the kind of a flow.
#[derive(Clone, Debug, Default)]
pub struct Looking {
    tried: u64,
    /// The signature of the last packet that had one.
    signature: Option<Signature>,
    candidates: Vec<Candidate>,
}

#[derive(Clone, Debug)]
struct Candidate {
    kind: Kind,
    /// Number of packets numbered one above the previous one.
    agreed: usize,
    marks: Vec<(Mark, Nanos)>,
}

impl Recognition {
    /// Heap usage in bytes.
    pub fn memory(&self) -> usize {
        match self {
            Self::New | Self::Unknown | Self::Signed(_) => 0,
            Self::Looking(looking) => {
                let marks = looking
                    .candidates
                    .iter()
                    .map(|c| c.marks.capacity() * size_of::<(Mark, Nanos)>());
                size_of::<Looking>() + marks.sum::<usize>()
            }
            Self::Known(known) => {
                size_of::<Sequenced>() + known.sequence.memory() + known.delay.memory()
            }
        }
    }

    /// Counts a packet of the flow. `signed` is its possible signature, which is accepted if it has
    /// the key `trusted` or the same key as an earlier packet.
    #[inline]
    pub fn take(
        &mut self,
        packet: Packet<'_>,
        signed: Option<Signature>,
        trusted: Option<u16>,
        arrival: Nanos,
        wanted: Wanted,
        wall: WallOffset,
    ) {
        match self {
            Self::Unknown => {}
            Self::Known(sequenced) => match packet.mark(sequenced.kind) {
                Some(mark) => sequenced.take(&mark, arrival, wall),
                None => sequenced.unnumbered += 1,
            },
            Self::Signed(stream) => {
                if signed.is_some_and(|signed| Some(signed.stream) != *stream) {
                    *stream = None;
                }
            }
            Self::New | Self::Looking(_) => {
                self.look(packet, signed, trusted, arrival, wanted, wall)
            }
        }
    }

    #[cold]
    fn look(
        &mut self,
        packet: Packet<'_>,
        signed: Option<Signature>,
        trusted: Option<u16>,
        arrival: Nanos,
        wanted: Wanted,
        wall: WallOffset,
    ) {
        let kinds: &[Kind] = match &wanted {
            Wanted::None => &[],
            Wanted::Only(Kind::Iperf3) => &[Kind::Iperf3Wide, Kind::Iperf3],
            Wanted::Only(kind) => std::slice::from_ref(kind),
            Wanted::Auto => &KINDS,
        };
        // By chance, one in 65,536 packets contains a valid signature of some run, but two with the
        // same key are unlikely unless the packets are equal.
        let before = match self {
            Self::Looking(looking) => looking.signature,
            _ => None,
        };
        let is_sure = |signed: &Signature| {
            let shown = |before: Signature| before.key == signed.key && before != *signed;
            trusted == Some(signed.key) || before.is_some_and(shown)
        };
        let sure = signed.filter(is_sure);
        if let Some(sure) = sure
            && matches!(wanted, Wanted::Auto | Wanted::Only(Kind::Squall))
        {
            let stream = Some(sure.stream);
            let several = before.filter(|before| before.stream != sure.stream);
            *self = Self::Signed(stream.filter(|_| several.is_none()));
            return;
        }
        // Later fragments have no header of any kind. Without UDP, only TRex's kind is possible.
        let mut looking = match std::mem::take(self) {
            Self::Looking(looking) => looking,
            _ => Box::default(),
        };
        looking.tried += 1;
        looking.signature = signed.or(looking.signature);
        if let Some(mut known) =
            looking.take(packet, kinds, arrival, matches!(wanted, Wanted::Only(_)), wall)
        {
            let numbered = known.sequence.counts().received + known.unnumbered;
            known.unnumbered += looking.tried.saturating_sub(numbered);
            *self = Self::Known(known);
        } else if kinds.is_empty() || looking.tried >= TRIED && !matches!(wanted, Wanted::Only(_)) {
            *self = Self::Unknown;
        } else {
            *self = Self::Looking(looking);
        }
    }
}

impl Looking {
    fn take(
        &mut self,
        packet: Packet<'_>,
        kinds: &[Kind],
        arrival: Nanos,
        forced: bool,
        wall: WallOffset,
    ) -> Option<Box<Sequenced>> {
        for &kind in kinds {
            let at = self.candidates.iter().position(|c| c.kind == kind);
            let Some(mark) = packet.mark(kind) else {
                if let Some(at) = at {
                    self.candidates.remove(at);
                }
                continue;
            };
            let at = at.unwrap_or_else(|| {
                self.candidates.push(Candidate { kind, agreed: 0, marks: Vec::new() });
                self.candidates.len() - 1
            });
            let candidate = &mut self.candidates[at];
            match candidate.marks.last() {
                Some((last, then))
                    if candidate.marks.len() < TRIED as usize
                        && agree(kind, last, &mark, arrival.saturating_sub(*then).0) =>
                {
                    candidate.agreed += usize::from(step(kind, last.sequence, mark.sequence) == 1);
                }
                Some(_) => {
                    candidate.marks.clear();
                    candidate.agreed = 0;
                }
                None => {}
            }
            candidate.marks.push((mark, arrival));
            // The width of iperf3's counter has to be detected even if the user named iperf3.
            let enough = match (forced, kind) {
                (true, Kind::Iperf3 | Kind::Iperf3Wide) => 1,
                (true, _) => 0,
                (false, _) => kind.evidence(),
            };
            let (first, begun) = candidate.marks[0];
            let in_time = forced
                || kind.is_addressed()
                || keeps_time(&first, &mark, arrival.saturating_sub(begun).0);
            if candidate.agreed >= enough && in_time {
                let arrival = begun;
                let mut known = Box::new(Sequenced::new(kind, &first, arrival));
                candidate.marks.iter().for_each(|(mark, arrival)| known.take(mark, *arrival, wall));
                return Some(known);
            }
        }
        None
    }
}
