//! The contents of a capture: lengths, times, protocols, flows ([`Census`]). Its two halves
//! ([`Census::split`]) can work on two threads, one after the other on the same packets.
//!
//! Designed for the speed of memory: a packet takes a few table increments, and figures that follow
//! from the tables are computed only at the end. Memory use: 0.5 MB for the tables, plus the flow
//! table.

use std::collections::BTreeMap;

use squall_stats::Histogram;
use squall_units::be16;
use squall_wire::checksum::{fold, sum};

use crate::flow::{
    FlowCounts, FlowKey, FlowTable, Fragment, HeaderFault, Headers, Link, Seen, protocol,
};

/// Number of packets processed together. Their flow table entries are prefetched before the first
/// one is needed.
pub const BATCH: usize = 32;
/// Lengths below this are counted in a table, longer ones in a map.
const SHORT: usize = 1 << 16;

/// Limits, and which of the more expensive figures to compute.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Maximum number of flows. Each takes 72 octets, plus 16 for the index.
    pub flows: usize,
    /// Idle time after which a flow has ended.
    pub idle_ns: Option<u64>,
    /// Whether to verify the checksums of IPv4, TCP, UDP, ICMP and ICMPv6.
    pub checksums: bool,
    /// Number of previous packets with which each packet is compared; 0: none.
    pub duplicates: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { flows: 1 << 19, idle_ns: None, checksums: false, duplicates: 0 }
    }
}

/// A packet of a capture.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// The captured octets.
    pub octets: &'a [u8],
    /// Length on the wire; at least the captured length.
    pub wire_len: u32,
    /// Nanoseconds since 1970. 0 means unknown, unless the capture really starts at that time.
    pub time_ns: u64,
    /// Whether the capture has a time for this packet.
    pub timed: bool,
    pub link: Link,
}

/// Number of packets, and their octets on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    pub packets: u64,
    pub octets: u64,
}

impl Share {
    #[inline]
    fn add(&mut self, wire_len: u32) {
        self.packets += 1;
        self.octets += u64::from(wire_len);
    }
}

impl std::ops::AddAssign for Share {
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.octets += other.octets;
    }
}

/// The statistics of a flow.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlowStats {
    pub share: Share,
    pub first_ns: u64,
}

/// Number of correct and of wrong checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    pub good: u64,
    pub bad: u64,
}

/// The statistics of a capture up to now.
#[derive(Clone, Debug)]
pub struct Census {
    headers: HeaderCensus,
    flows: FlowCensus,
}

/// The half of a [`Census`] that parses packets.
#[derive(Clone, Debug)]
pub struct HeaderCensus {
    settings: Settings,
    lengths: Vec<u64>,
    /// Packets by length, for lengths that are not in the table.
    long: BTreeMap<u32, u64>,
    /// Octets on the wire.
    octets: u64,
    packets: u64,
    cut: Share,
    cut_octets: u64,
    /// Packets that belong to no flow, by IP version and protocol: [`kind`].
    unassigned: Vec<Share>,
    /// Packets without IP, by EtherType.
    others: BTreeMap<u16, Share>,
    tagged: Share,
    labeled: Share,
    fragments: Share,
    later_fragments: Share,
    malformed: u64,
    cut_headers: u64,
    /// Results per row of [`CHECKSUMS`].
    checksums: [Checked; 5],
    /// Hashes of the last packets, in a ring.
    recent: Vec<u64>,
    duplicates: u64,
}

/// The half of a [`Census`] that counts flows and times. It needs no packets, but what the other
/// half has parsed.
#[derive(Clone, Debug)]
pub struct FlowCensus {
    octets: u64,
    packets: u64,
    times: Times,
    flows: FlowTable<FlowStats>,
    /// Packets whose flow has no room in the table, by IP version and protocol: [`kind`].
    overflow: Vec<Share>,
}

/// A packet as [`HeaderCensus`] passes it to [`FlowCensus`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Digest {
    /// Its flow; IP version 0 if it belongs to none.
    key: FlowKey,
    time_ns: u64,
    wire_len: u32,
    timed: bool,
}

/// Names of the rows of [`Census::checksums`].
pub const CHECKSUMS: [&str; 5] = ["ipv4", "tcp", "udp", "icmp", "icmpv6"];

impl Census {
    pub fn new(settings: Settings) -> Self {
        let headers = HeaderCensus {
            settings,
            lengths: vec![0; SHORT],
            long: BTreeMap::new(),
            octets: 0,
            packets: 0,
            cut: Share::default(),
            cut_octets: 0,
            unassigned: vec![Share::default(); KINDS],
            others: BTreeMap::new(),
            tagged: Share::default(),
            labeled: Share::default(),
            fragments: Share::default(),
            later_fragments: Share::default(),
            malformed: 0,
            cut_headers: 0,
            checksums: Default::default(),
            recent: vec![0; settings.duplicates],
            duplicates: 0,
        };
        let flows = FlowCensus {
            octets: 0,
            packets: 0,
            times: Times::default(),
            flows: FlowTable::new(settings.flows, settings.idle_ns),
            overflow: vec![Share::default(); KINDS],
        };
        Self { headers, flows }
    }

    /// Counts packets in capture order. Fastest in batches of [`BATCH`].
    pub fn add(&mut self, packets: &[Sample<'_>]) {
        let mut digests = [Digest::default(); BATCH];
        for batch in packets.chunks(BATCH) {
            let digests = &mut digests[..batch.len()];
            self.headers.digest(batch, digests);
            self.flows.add(digests);
        }
    }

    /// The two halves: [`HeaderCensus::add`] makes a digest of each packet for
    /// [`FlowCensus::add`], in the same order.
    pub fn split(self) -> (HeaderCensus, FlowCensus) {
        (self.headers, self.flows)
    }

    /// Joins the halves, which have seen the same packets.
    pub fn join(headers: HeaderCensus, flows: FlowCensus) -> Self {
        Self { headers, flows }
    }
}

impl HeaderCensus {
    /// Counts packets in capture order, and appends a digest of each to `into`.
    pub fn add(&mut self, packets: &[Sample<'_>], into: &mut Vec<Digest>) {
        let begin = into.len();
        into.resize(begin + packets.len(), Digest::default());
        self.digest(packets, &mut into[begin..]);
    }

    /// Packets counted so far.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Counts packets, and writes a digest of each into `digests`, which has as many.
    #[inline]
    fn digest(&mut self, packets: &[Sample<'_>], digests: &mut [Digest]) {
        for (packet, digest) in packets.iter().zip(digests) {
            let &Sample { octets, wire_len, time_ns, timed, link } = packet;
            match self.lengths.get_mut(wire_len as usize) {
                Some(count) => *count += 1,
                None => *self.long.entry(wire_len).or_default() += 1,
            }
            self.octets += u64::from(wire_len);
            if octets.len() < wire_len as usize {
                self.cut.add(wire_len);
                self.cut_octets += u64::from(wire_len) - octets.len() as u64;
            }
            let key = match link {
                Link::Ethernet if !self.settings.checksums => Headers::plain(octets),
                _ => None,
            };
            let key = key.unwrap_or_else(|| self.look_closer(packet));
            *digest = Digest { key, time_ns, wire_len, timed };
        }
        self.packets += packets.len() as u64;
        if self.settings.duplicates > 0 {
            self.compare(packets);
        }
    }

    /// The flow of a packet that may have any headers; a key of IP version 0 if it belongs to none.
    fn look_closer(&mut self, packet: &Sample<'_>) -> FlowKey {
        let headers = Headers::parse(packet.octets, packet.link);
        let plain = headers.key.version != 0
            && headers.fault.is_none()
            && headers.fragment == Fragment::Whole
            && headers.tags == 0
            && headers.mpls_labels == 0;
        let in_flow = plain || self.is_in_flow(&headers, packet);
        if self.settings.checksums {
            self.verify(&headers, packet);
        }
        if in_flow { headers.key } else { FlowKey::default() }
    }

    /// Counts a packet that is not plain. Returns whether it still belongs to a flow.
    #[cold]
    fn is_in_flow(&mut self, headers: &Headers, packet: &Sample<'_>) -> bool {
        let len = packet.wire_len;
        if headers.tags > 0 {
            self.tagged.add(len);
        }
        if headers.mpls_labels > 0 {
            self.labeled.add(len);
        }
        if headers.fragment != Fragment::Whole {
            self.fragments.add(len);
        }
        match headers.fault {
            Some(HeaderFault::Malformed) => self.malformed += 1,
            Some(HeaderFault::Cut) => self.cut_headers += 1,
            None => {}
        }
        if headers.key.version == 0 {
            self.others.entry(headers.ethertype).or_default().add(len);
            return false;
        }
        // A later fragment has no ports, so it would be counted for a wrong flow.
        if headers.fragment == Fragment::Later {
            self.later_fragments.add(len);
        } else if headers.fault.is_none() {
            return true;
        }
        self.unassigned[kind(&headers.key)].add(len);
        false
    }

    /// Verifies the checksums of complete packets. Fragments are not verified.
    fn verify(&mut self, headers: &Headers, packet: &Sample<'_>) {
        let octets = packet.octets;
        let (network, transport, end) =
            (headers.network as usize, headers.transport as usize, headers.end as usize);
        if headers.key.version == 0 || headers.fault.is_some() {
            return;
        }
        if headers.key.version == 4 {
            let header_len = usize::from(octets[network] & 15) * 4;
            if let Some(header) = octets.get(network..network + header_len) {
                self.judge(0, fold(sum(header)) == 0xffff);
            }
        }
        if headers.fragment != Fragment::Whole || octets.len() < packet.wire_len as usize {
            return;
        }
        let segment = &octets[transport..end];
        let addresses = match headers.key.version {
            4 => &octets[network + 12..network + 20],
            _ => &octets[network + 8..network + 40],
        };
        let with_pseudo = |number: u8| {
            fold(sum(addresses) + u64::from(number) + segment.len() as u64 + sum(segment)) == 0xffff
        };
        match headers.key.protocol {
            protocol::TCP => self.judge(1, with_pseudo(protocol::TCP)),
            protocol::UDP => {
                // The UDP length is less than this if the datagram is shorter than its IP packet.
                let len = usize::from(be16(segment, 4));
                let none = segment[6..8] == [0, 0] && headers.key.version == 4;
                if !none && (len == segment.len() || len == 0) {
                    self.judge(2, with_pseudo(protocol::UDP));
                } else if !none {
                    let right = len >= 8 && len <= segment.len() && {
                        let all = sum(addresses)
                            + u64::from(protocol::UDP)
                            + len as u64
                            + sum(&segment[..len]);
                        fold(all) == 0xffff
                    };
                    self.judge(2, right);
                }
            }
            protocol::ICMP if headers.key.version == 4 => {
                self.judge(3, fold(sum(segment)) == 0xffff)
            }
            protocol::ICMPV6 if headers.key.version == 6 => {
                self.judge(4, with_pseudo(protocol::ICMPV6))
            }
            _ => {}
        }
    }

    fn judge(&mut self, row: usize, right: bool) {
        let Checked { good, bad } = &mut self.checksums[row];
        *if right { good } else { bad } += 1;
    }

    fn compare(&mut self, packets: &[Sample<'_>]) {
        for (i, packet) in packets.iter().enumerate() {
            let mut fingerprint = squall_stats::Fingerprint::default();
            fingerprint.add(packet.octets);
            // 0 marks an empty entry of the ring, so a hash is never 0.
            let hash = (fingerprint.to_u128() as u64 ^ u64::from(packet.wire_len)) | 1;
            if self.recent.contains(&hash) {
                self.duplicates += 1;
            }
            let number = self.packets - packets.len() as u64 + i as u64;
            let places = self.recent.len() as u64;
            self.recent[(number % places) as usize] = hash;
        }
    }

    fn merge(&mut self, other: &Self) {
        for (sum, n) in self.lengths.iter_mut().zip(&other.lengths) {
            *sum += n;
        }
        for (len, n) in &other.long {
            *self.long.entry(*len).or_default() += n;
        }
        self.octets += other.octets;
        self.packets += other.packets;
        for (sum, share) in self.unassigned.iter_mut().zip(&other.unassigned) {
            *sum += *share;
        }
        for (ethertype, share) in &other.others {
            *self.others.entry(*ethertype).or_default() += *share;
        }
        self.cut += other.cut;
        self.cut_octets += other.cut_octets;
        self.tagged += other.tagged;
        self.labeled += other.labeled;
        self.fragments += other.fragments;
        self.later_fragments += other.later_fragments;
        self.malformed += other.malformed;
        self.cut_headers += other.cut_headers;
        for (sum, checked) in self.checksums.iter_mut().zip(&other.checksums) {
            sum.good += checked.good;
            sum.bad += checked.bad;
        }
        self.duplicates += other.duplicates;
    }
}

impl FlowCensus {
    /// Counts packets in capture order. Fastest in multiples of [`BATCH`].
    pub fn add(&mut self, packets: &[Digest]) {
        for batch in packets.chunks(BATCH) {
            self.add_batch(batch);
        }
    }

    #[inline]
    fn add_batch(&mut self, packets: &[Digest]) {
        let mut hashes = [0; BATCH];
        for (packet, hash) in packets.iter().zip(&mut hashes) {
            *hash = self.flows.hash(&packet.key);
        }
        self.flows.prefetch(&hashes[..packets.len()]);
        for (Digest { key, time_ns, wire_len, .. }, hash) in packets.iter().zip(hashes) {
            if key.version == 0 {
                continue;
            }
            match self.flows.seen_hashed(key, hash, *time_ns) {
                Some((flow, seen)) => {
                    flow.share.add(*wire_len);
                    if seen == Seen::New {
                        flow.first_ns = *time_ns;
                    }
                }
                None => self.overflow[kind(key)].add(*wire_len),
            }
        }
        let flows = self.flows.counts().flows;
        self.times.add(packets, (self.packets, self.octets), flows);
        self.packets += packets.len() as u64;
        self.octets += packets.iter().map(|p| u64::from(p.wire_len)).sum::<u64>();
    }

    fn merge(&mut self, other: &Self) {
        self.octets += other.octets;
        self.packets += other.packets;
        self.times.merge(&other.times);
        let mut without_room = 0;
        for flow in &other.flows {
            match self.flows.seen(&flow.key, flow.last_ns) {
                Some((sum, seen)) => {
                    sum.share += flow.value.share;
                    if seen == Seen::New || flow.value.first_ns < sum.first_ns {
                        sum.first_ns = flow.value.first_ns;
                    }
                }
                None => {
                    without_room += flow.value.share.packets - 1;
                    self.overflow[kind(&flow.key)] += flow.value.share;
                }
            }
        }
        // A flow that continues in the next file counts once. Restarts within the files add up.
        let counts = other.flows.counts();
        let again = counts.flows - other.flows.len() as u64;
        let overflow_packets = counts.overflow_packets + without_room;
        self.flows.merge_counts(FlowCounts {
            flows: again,
            expired: counts.expired,
            overflow_packets,
        });
        for (sum, share) in self.overflow.iter_mut().zip(&other.overflow) {
            *sum += *share;
        }
    }
}

/// Number of values of [`kind`].
const KINDS: usize = 512;

/// Number of an IP packet's IP version and protocol.
fn kind(key: &FlowKey) -> usize {
    usize::from(key.protocol) + if key.version == 6 { 256 } else { 0 }
}

impl Census {
    /// Adds the statistics of another capture. The peak is the higher one of the two, because the
    /// times of the captures may overlap.
    pub fn merge(&mut self, other: &Self) {
        self.headers.merge(&other.headers);
        self.flows.merge(&other.flows);
    }

    // --- results ---

    pub fn packets(&self) -> u64 {
        self.headers.packets
    }

    /// Octets on the wire.
    pub fn octets(&self) -> u64 {
        self.headers.octets
    }

    /// (length on the wire, packets), in ascending order, without empty entries.
    pub fn lengths(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        let short = self
            .headers
            .lengths
            .iter()
            .enumerate()
            .filter(|(_, n)| **n > 0)
            .map(|(len, n)| (len as u32, *n));
        short.chain(self.headers.long.iter().map(|(len, n)| (*len, *n)))
    }

    /// Truncated packets, and their octets on the wire.
    pub fn cut(&self) -> Share {
        self.headers.cut
    }

    /// Octets of the truncated packets that were not captured.
    pub fn cut_octets(&self) -> u64 {
        self.headers.cut_octets
    }

    pub fn times(&self) -> &Times {
        &self.flows.times
    }

    pub fn flows(&self) -> &FlowTable<FlowStats> {
        &self.flows.flows
    }

    pub fn flow_counts(&self) -> FlowCounts {
        self.flows.flows.counts()
    }

    /// Packets by IP version and protocol.
    pub fn protocols(&self) -> BTreeMap<(u8, u8), Share> {
        let mut all = self.headers.unassigned.clone();
        for (sum, share) in all.iter_mut().zip(&self.flows.overflow) {
            *sum += *share;
        }
        for flow in &self.flows.flows {
            all[kind(&flow.key)] += flow.value.share;
        }
        let filled = all.into_iter().enumerate().filter(|(_, share)| share.packets > 0);
        filled.map(|(kind, share)| ((if kind < 256 { 4 } else { 6 }, kind as u8), share)).collect()
    }

    /// Packets without IP, by EtherType; 0 if the link has none, or the packet ends before it.
    pub fn others(&self) -> &BTreeMap<u16, Share> {
        &self.headers.others
    }

    /// Packets with a VLAN tag.
    pub fn tagged(&self) -> Share {
        self.headers.tagged
    }

    /// Packets with MPLS labels.
    pub fn labeled(&self) -> Share {
        self.headers.labeled
    }

    /// Fragments, including the first of each datagram.
    pub fn fragments(&self) -> Share {
        self.headers.fragments
    }

    /// Fragments without ports, which belong to no flow.
    pub fn later_fragments(&self) -> Share {
        self.headers.later_fragments
    }

    /// Packets whose headers contradict themselves.
    pub fn malformed(&self) -> u64 {
        self.headers.malformed
    }

    /// Packets that end within a header.
    pub fn cut_headers(&self) -> u64 {
        self.headers.cut_headers
    }

    /// Checksum results in the order of [`CHECKSUMS`].
    pub fn checksums(&self) -> [Checked; 5] {
        self.headers.checksums
    }

    /// Packets that equal one of the previous packets in every octet.
    pub fn duplicates(&self) -> u64 {
        self.headers.duplicates
    }

    pub fn settings(&self) -> &Settings {
        &self.headers.settings
    }
}

const SECOND: u64 = 1_000_000_000;
/// Initial interval of the series, nanoseconds. It grows tenfold whenever there are too many
/// points.
const FINEST: u64 = 1_000_000;
const MOST_POINTS: usize = 10_000;

/// Packets over time.
#[derive(Clone, Debug, Default)]
pub struct Times {
    span: Option<(u64, u64)>,
    /// Whether a packet with a time was seen, and the time of the last such packet.
    begun: bool,
    last: u64,
    untimed: u64,
    backward: u64,
    largest_backward_ns: u64,
    gaps: Histogram,
    series: Series,
    /// The peak among captures that were merged into this one.
    merged_peak: (u64, u64),
}

/// A point of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    pub packets: u64,
    /// Octets on the wire.
    pub octets: u64,
    pub new_flows: u64,
}

impl Times {
    /// Counts a batch. `before`: packets and octets before the batch. `flows`: number of flows that
    /// have started by its end.
    #[inline]
    fn add(&mut self, batch: &[Digest], before: (u64, u64), flows: u64) {
        let mut gaps = [0; BATCH];
        let mut n = 0;
        let (packets, mut octets) = before;
        for (i, packet) in batch.iter().enumerate() {
            let time = packet.time_ns;
            if !packet.timed {
                self.untimed += 1;
                octets += u64::from(packet.wire_len);
                continue;
            }
            if time >= self.last && self.begun {
                gaps[n] = time - self.last;
                n += 1;
                self.last = time;
            } else if self.has_time(time) {
                self.last = time;
            }
            if time.wrapping_sub(self.series.tick) >= self.series.tick_len
                && (time != 0 || self.last == 0)
            {
                self.series
                    .turn(time, Point { packets: packets + i as u64, octets, new_flows: flows });
            }
            octets += u64::from(packet.wire_len);
        }
        self.gaps.record_all(&gaps[..n]);
        if let Some((_, latest)) = &mut self.span {
            *latest = self.last.max(*latest);
        }
        self.series.totals =
            Point { packets: packets + batch.len() as u64, octets, new_flows: flows };
    }

    /// Handles the first packet, a packet earlier than the previous one, and a packet without a
    /// time.
    #[cold]
    fn has_time(&mut self, time: u64) -> bool {
        if time == 0 && self.last > 0 {
            self.untimed += 1;
            return false;
        }
        self.begun = true;
        match &mut self.span {
            None => self.span = Some((time, time)),
            Some((earliest, latest)) => {
                (*earliest, *latest) = (time.min(*earliest), self.last.max(*latest));
                self.backward += 1;
                self.largest_backward_ns = self.largest_backward_ns.max(self.last - time);
            }
        }
        true
    }

    /// Earliest and latest time, in any order of capture.
    pub fn span(&self) -> Option<(u64, u64)> {
        self.span
    }

    pub fn duration_ns(&self) -> u64 {
        self.span.map_or(0, |(earliest, latest)| latest - earliest)
    }

    /// Packets without a time.
    pub fn untimed(&self) -> u64 {
        self.untimed
    }

    /// Packets with an earlier time than the previous packet.
    pub fn backward(&self) -> u64 {
        self.backward
    }

    pub fn largest_backward_ns(&self) -> u64 {
        self.largest_backward_ns
    }

    /// Gaps between consecutive packets, without those to an earlier time.
    pub fn gaps(&self) -> &Histogram {
        &self.gaps
    }

    /// Points of equal width (nanoseconds), from the first packet on. Earlier packets count in
    /// point 0.
    pub fn series(&self) -> (u64, Vec<Point>) {
        let mut series = self.series.clone();
        series.commit_tick();
        (series.width, series.points)
    }

    /// Maximum number of packets, and of octets, in one second. Seconds count from the first
    /// packet.
    pub fn peak_second(&self) -> (u64, u64) {
        let (packets, octets) = self.own_peak();
        (packets.max(self.merged_peak.0), octets.max(self.merged_peak.1))
    }

    fn merge(&mut self, other: &Self) {
        let (one, two) = (self.peak_second(), other.peak_second());
        self.merged_peak = (one.0.max(two.0), one.1.max(two.1));
        self.series = Series::default();
        self.span = match (self.span, other.span) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (a, b) => a.or(b),
        };
        self.untimed += other.untimed;
        self.backward += other.backward;
        self.largest_backward_ns = self.largest_backward_ns.max(other.largest_backward_ns);
        self.gaps.merge(&other.gaps);
    }

    fn own_peak(&self) -> (u64, u64) {
        let (width, points) = self.series();
        if width == 0 {
            return (0, 0);
        }
        if width <= SECOND {
            let seconds = || points.chunks((SECOND / width) as usize);
            let most =
                |f: fn(&Point) -> u64| seconds().map(|s| s.iter().map(f).sum()).max().unwrap_or(0);
            return (most(|p| p.packets), most(|p| p.octets));
        }
        let mut series = self.series.clone();
        series.commit_tick();
        series.end_second();
        (series.peak.packets, series.peak.octets)
    }
}

#[derive(Clone, Debug, Default)]
struct Series {
    /// Start of point 0.
    start: u64,
    /// 0 before the first packet.
    width: u64,
    points: Vec<Point>,
    /// The current counting interval: a point, or one second of a wider point.
    tick: u64,
    tick_len: u64,
    /// Totals at the start of the tick, and current totals.
    base: Point,
    totals: Point,
    /// The current second: its number and counts.
    second: (u64, Point),
    peak: Point,
}

impl Series {
    /// Advances to the tick of `time`; `before`: the totals until then.
    #[cold]
    fn turn(&mut self, time: u64, before: Point) {
        self.totals = before;
        if self.width == 0 {
            (self.start, self.width, self.tick, self.tick_len) = (time, FINEST, time, FINEST);
            return;
        }
        self.commit_tick();
        let since = time.saturating_sub(self.start);
        while since / self.width >= MOST_POINTS as u64 {
            self.width *= 10;
            let merged = self.points.chunks(10).map(|ten| {
                ten.iter().fold(Point::default(), |a, b| Point {
                    packets: a.packets + b.packets,
                    octets: a.octets + b.octets,
                    new_flows: a.new_flows + b.new_flows,
                })
            });
            self.points = merged.collect();
            self.tick_len = self.width.min(SECOND);
        }
        self.tick = self.start + since / self.tick_len * self.tick_len;
    }

    /// Adds the counts of the current tick.
    fn commit_tick(&mut self) {
        if self.width == 0 {
            return;
        }
        let (base, now) = (self.base, self.totals);
        let new = Point {
            packets: now.packets - base.packets,
            octets: now.octets - base.octets,
            new_flows: now.new_flows - base.new_flows,
        };
        self.base = now;
        let since = self.tick - self.start;
        let at = (since / self.width) as usize;
        if at >= self.points.len() {
            self.points.resize(at + 1, Point::default());
        }
        let second = since / SECOND;
        if second != self.second.0 {
            self.end_second();
            self.second.0 = second;
        }
        for sum in [&mut self.points[at], &mut self.second.1] {
            sum.packets += new.packets;
            sum.octets += new.octets;
            sum.new_flows += new.new_flows;
        }
    }

    fn end_second(&mut self) {
        let second = std::mem::take(&mut self.second.1);
        self.peak.packets = self.peak.packets.max(second.packets);
        self.peak.octets = self.peak.octets.max(second.octets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ethernet, IPv4, UDP from port `port`, `len` octets on the wire.
    fn udp(port: u8, len: usize) -> Vec<u8> {
        let mut frame = vec![0; len];
        frame[12] = 8;
        let ip = [
            0x45,
            0,
            0,
            len as u8 - 14,
            0,
            0,
            0,
            0,
            64,
            17,
            0,
            0,
            10,
            0,
            0,
            1,
            10,
            0,
            0,
            2,
            0,
            port,
            0,
            9,
        ];
        frame[14..38].copy_from_slice(&ip);
        frame[39] = len as u8 - 34;
        frame
    }

    fn sample(octets: &[u8], time_ns: u64) -> Sample<'_> {
        Sample { octets, wire_len: octets.len() as u32, time_ns, timed: true, link: Link::Ethernet }
    }

    #[test]
    fn packets_are_counted_by_length_time_protocol_and_flow() {
        let frames: Vec<Vec<u8>> = (0..100).map(|i| udp(i % 4, 60 + usize::from(i % 2))).collect();
        let mut census = Census::new(Settings::default());
        let packets: Vec<_> =
            frames.iter().zip(0u64..).map(|(f, i)| sample(f, 1_000 + i * 500_000)).collect();
        census.add(&packets);
        assert_eq!((census.packets(), census.octets()), (100, 6050));
        assert_eq!(census.lengths().collect::<Vec<_>>(), [(60, 50), (61, 50)]);
        assert_eq!(
            census.protocols(),
            BTreeMap::from([((4, 17), Share { packets: 100, octets: 6050 })])
        );
        assert_eq!((census.flows().len(), census.flow_counts().flows), (4, 4));
        let times = census.times();
        assert_eq!(
            (times.duration_ns(), times.backward(), times.gaps().count()),
            (49_500_000, 0, 99)
        );
        let (width, points) = times.series();
        assert_eq!((width, points.len(), points[7].packets), (1_000_000, 50, 2));
        assert_eq!(points.iter().map(|p| p.octets).sum::<u64>(), 6050);
        assert_eq!(times.peak_second(), (100, 6050));
    }

    #[test]
    fn the_series_widens_and_keeps_every_packet_and_the_peak() {
        let frame = udp(1, 60);
        let mut census = Census::new(Settings::default());
        let mut time = 5;
        let mut packets = Vec::new();
        for i in 0..30_000u64 {
            time += if i % 1000 < 900 { 1_000_000 } else { 10_000_000_000 };
            packets.push(sample(&frame, time));
        }
        census.add(&packets);
        let (width, points) = census.times().series();
        assert!(width > SECOND && points.len() <= MOST_POINTS);
        assert_eq!(points.iter().map(|p| p.packets).sum::<u64>(), 30_000);
        let mut seconds = BTreeMap::<u64, u64>::new();
        packets.iter().for_each(|p| {
            *seconds.entry((p.time_ns - packets[0].time_ns) / SECOND).or_default() += 1
        });
        assert_eq!(census.times().peak_second().0, *seconds.values().max().unwrap());
    }

    #[test]
    fn steps_backward_and_missing_times_are_counted() {
        let frame = udp(1, 60);
        let mut census = Census::new(Settings::default());
        let times = [100, 200, 150, 0, 150, 90, 300];
        census.add(&times.map(|time| sample(&frame, time)));
        let times = census.times();
        assert_eq!((times.backward(), times.largest_backward_ns(), times.untimed()), (2, 60, 1));
        assert_eq!((times.span(), times.gaps().count()), (Some((90, 300)), 3));
        assert_eq!(times.series().1[0].packets, 7);
    }

    #[test]
    fn packets_without_a_time_have_no_place_in_time() {
        let frame = udp(1, 60);
        let mut census = Census::new(Settings::default());
        let untimed = Sample { timed: false, ..sample(&frame, 0) };
        census.add(&[untimed, untimed]);
        let times = census.times();
        assert_eq!(
            (times.span(), times.untimed(), times.gaps().count(), times.series().1.len()),
            (None, 2, 0, 0)
        );
        census.add(&[sample(&frame, 5_000_000_000), untimed, sample(&frame, 5_000_000_100)]);
        let times = census.times();
        assert_eq!((times.span(), times.untimed()), (Some((5_000_000_000, 5_000_000_100)), 3));
        assert_eq!(
            (times.backward(), times.gaps().count(), times.series().1[0].packets),
            (0, 1, 5)
        );
    }

    #[test]
    fn packets_without_room_are_in_no_flow_but_in_their_protocol() {
        let frames = [udp(1, 60), udp(2, 60), udp(3, 60)];
        let mut census = Census::new(Settings { flows: 2, ..Settings::default() });
        census.add(&frames.each_ref().map(|f| sample(f, 1)));
        assert_eq!((census.flows().len(), census.flow_counts().overflow_packets), (2, 1));
        assert_eq!(census.protocols()[&(4, 17)].packets, 3);
    }

    #[test]
    fn halves_that_work_one_after_the_other_count_as_a_whole_does() {
        // More flows than the cache holds, some of which come again, and some have no room.
        let frames: Vec<Vec<u8>> = (0..20_000u32)
            .map(|i| {
                let mut frame = udp(1, 60);
                let host = i.wrapping_mul(0x9e37_79b9) % 12_000;
                frame[26..30].copy_from_slice(&host.to_be_bytes());
                if i % 100 == 0 {
                    frame[12..14].copy_from_slice(&[8, 6]);
                }
                frame
            })
            .collect();
        let packets: Vec<_> = frames.iter().zip(1u64..).map(|(f, i)| sample(f, i * 999)).collect();
        let settings = Settings { flows: 9_000, ..Settings::default() };
        let mut whole = Census::new(settings);
        packets.iter().for_each(|packet| whole.add(std::slice::from_ref(packet)));
        let (mut headers, mut flows) = Census::new(settings).split();
        let mut digests = Vec::new();
        packets.chunks(777).for_each(|some| headers.add(some, &mut digests));
        digests.chunks(1024).for_each(|some| flows.add(some));
        let halves = Census::join(headers, flows);
        assert_eq!((halves.packets(), halves.octets()), (whole.packets(), whole.octets()));
        assert_eq!(halves.flow_counts(), whole.flow_counts());
        assert!(whole.flow_counts().overflow_packets > 0 && whole.flows().len() == 9_000);
        let rows = |census: &Census| {
            let rows = census.flows().iter().map(|f| (f.key, f.last_ns, f.value.share.packets));
            rows.collect::<Vec<_>>()
        };
        assert_eq!(rows(&halves), rows(&whole));
        assert_eq!((halves.protocols(), halves.others()), (whole.protocols(), whole.others()));
        assert_eq!(halves.times().span(), whole.times().span());
        assert_eq!(halves.times().gaps(), whole.times().gaps());
        assert_eq!(halves.times().peak_second(), whole.times().peak_second());
    }

    #[test]
    fn two_censuses_merge_to_that_of_both_captures() {
        let frames: Vec<Vec<u8>> = (0..50).map(|i| udp(i % 7, 60 + usize::from(i % 3))).collect();
        let packets: Vec<_> = frames.iter().zip(1u64..).map(|(f, i)| sample(f, i)).collect();
        let of = |packets: &[Sample<'_>]| {
            let mut census = Census::new(Settings { flows: 5, ..Settings::default() });
            census.add(packets);
            census
        };
        let (mut both, whole) = (of(&packets[..20]), of(&packets));
        both.merge(&of(&packets[20..]));
        assert_eq!(
            (both.packets(), both.octets(), both.flows().len()),
            (whole.packets(), whole.octets(), 5)
        );
        assert_eq!(both.protocols(), whole.protocols());
        assert_eq!(both.flow_counts().flows, 5);
        assert_eq!((both.times().span(), both.times().gaps().count()), (Some((1, 50)), 48));
        assert_eq!(both.lengths().collect::<Vec<_>>(), whole.lengths().collect::<Vec<_>>());
    }

    #[test]
    fn wrong_checksums_and_repeated_packets_are_found() {
        let mut frame = udp(1, 60);
        let checksum = !fold(sum(&frame[14..34]));
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
        let wrong = udp(2, 60);
        let mut census =
            Census::new(Settings { checksums: true, duplicates: 2, ..Settings::default() });
        census.add(&[&frame, &wrong, &frame, &wrong, &wrong].map(|f| sample(f, 1)));
        assert_eq!(census.checksums()[0], Checked { good: 2, bad: 3 });
        assert_eq!((census.checksums()[2], census.duplicates()), (Checked::default(), 3));
    }
}
