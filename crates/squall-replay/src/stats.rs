//! Statistics of a replay, in tcpreplay's terms: flows, flow packets, non-flow packets, expired
//! flows ([`Stats`]).
//!
//! A flow has one direction: addresses, protocol and ports, as in tcpreplay's counters and
//! NetFlow's records. A flow that recurs in a later loop is the same flow, unless it was idle for
//! too long in between ([`Settings::expiry_ns`]) or its addresses changed
//! ([`Stats::addresses_change`]).
//!
//! Counting takes two steps, because only sent packets count, and their addresses have changed by
//! then. [`Stats::flows_of`] finds the flows of packets as captured, **before** [`crate::Unique`]
//! changes their addresses. This takes some tens of nanoseconds, and only once for a packet that is
//! kept for all loops. [`Stats::sent`] counts the packet after it has left, which takes some
//! nanoseconds. So memory holds the flows of the captures, regardless of the number of loops, and
//! the busiest hosts are shown with their addresses in the captures.

use std::{collections::HashMap, net::IpAddr};

use squall_measure::{
    census::Share,
    flow::{FlowKey, FlowTable, Fragment, Headers, Link, Seen},
};

use crate::unique::Unique;

/// How flows are distinguished, and how many are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    pub link: Link,
    /// A flow that is idle for longer than this has ended, and its next packet begins another flow:
    /// tcpreplay's `--flow-expiry`.
    pub expiry_ns: Option<u64>,
    /// Maximum number of flows, each of which takes 104 octets of memory. Packets of further flows
    /// count as overflow packets.
    pub max_flows: u32,
    /// Number of rows in the lists of busiest hosts and flows.
    pub top: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { link: Link::Ethernet, expiry_ns: None, max_flows: 1 << 20, top: 10 }
    }
}

/// Packets sent so far.
#[derive(Clone, Debug)]
pub struct Stats {
    settings: Settings,
    flows: FlowTable<SentFlow>,
    /// Number of address changes.
    change: u64,
    counts: FlowCounts,
    /// Packets whose flow is not in the table, by IP version and protocol: IPv4 from 0, IPv6 from
    /// 256, then non-IP.
    other: Vec<Share>,
}

#[derive(Clone, Copy, Debug, Default)]
struct SentFlow {
    /// Packets and octets sent.
    share: Share,
    last_ns: u64,
    change: u64,
    /// Whether an address change makes this a new flow.
    changes: bool,
}

/// Identifies the flow of a packet, or the kind of a packet whose flow is not in the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowId(u32);

impl FlowId {
    /// Values from here on mark packets whose flow is not in the table; the lower bits are an index
    /// into [`Stats::other`].
    const OTHER: u32 = 1 << 31;
    /// The packet's headers are truncated or contradictory.
    const INVALID: u32 = 1 << 30;
    /// The packet's flow does not fit into the table.
    const OVERFLOW: u32 = 1 << 29;
    const PLACE: u32 = 0xffff;
}

/// Index of non-IP packets in [`Stats::other`].
const NO_IP: usize = 512;
/// Number of frames whose flows are fetched from memory together.
const BATCH: usize = 64;

/// Counters of flows, with tcpreplay's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounts {
    /// Flows begun: new ones, and those that began again after they expired.
    pub flows: u64,
    /// New flows: `flows` less `expired_flows`.
    pub unique_flows: u64,
    /// Flows that began again after too long an idle time.
    pub expired_flows: u64,
    /// Packets of flows.
    pub flow_packets: u64,
    /// All other packets: non-IP packets, fragments without ports, and packets with truncated or
    /// contradictory headers.
    pub non_flow_packets: u64,
    /// Non-flow packets with truncated or contradictory headers: tcpreplay's invalid packets.
    pub invalid_packets: u64,
    /// Packets whose flows do not fit into the table; these flows are not counted.
    pub overflow_packets: u64,
}

/// Result of [`Stats::result`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub counts: FlowCounts,
    /// Packets and octets by IP version (0: not IP) and protocol, the busiest first.
    pub protocols: Vec<(u8, u8, Share)>,
    /// The hosts that sent the most octets, with their addresses in the captures.
    pub talkers: Vec<(IpAddr, Share)>,
    /// The flows with the most octets, with their addresses in the captures.
    pub top_flows: Vec<(FlowKey, Share)>,
}

impl Stats {
    /// # Panics
    /// If `max_flows` is more than 2^31.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            flows: FlowTable::new(settings.max_flows as usize, None),
            change: 0,
            counts: FlowCounts::default(),
            other: vec![Share::default(); NO_IP + 1],
        }
    }

    /// Finds the flow of each of `frames`, before [`Unique::apply`], and appends it to `into`. A
    /// packet is counted only when it is passed to [`Stats::sent`].
    pub fn flows_of<'a>(
        &mut self,
        frames: impl IntoIterator<Item = &'a [u8]>,
        into: &mut Vec<FlowId>,
    ) {
        let mut frames = frames.into_iter();
        // The memory of many flows is fetched for several frames at once.
        let none: &[u8] = &[];
        let mut batch = [(None, none); BATCH];
        loop {
            let (mut hashes, mut n) = ([0; BATCH], 0);
            for octets in frames.by_ref().take(BATCH) {
                let key = self.plain(octets);
                hashes[n] = key.map_or(0, |key| self.flows.hash(&key));
                batch[n] = (key, octets);
                n += 1;
            }
            self.flows.prefetch(&hashes[..n]);
            for ((key, octets), hash) in batch[..n].iter().zip(hashes) {
                into.push(match key {
                    Some(key) => self.place(key, hash),
                    None => self.look_closer(octets),
                });
            }
            if n < BATCH {
                return;
            }
        }
    }

    #[inline]
    fn plain(&self, octets: &[u8]) -> Option<FlowKey> {
        match self.settings.link {
            Link::Ethernet => Headers::plain(octets),
            _ => None,
        }
    }

    #[inline]
    fn place(&mut self, key: &FlowKey, hash: u64) -> FlowId {
        let Some((index, seen)) = self.flows.index_hashed(key, hash, 0) else {
            return FlowId(FlowId::OTHER | FlowId::OVERFLOW | kind(key) as u32);
        };
        if seen == Seen::New {
            self.flows.value_mut(index).changes = Unique::changes(key);
        }
        FlowId(index as u32)
    }

    #[cold]
    fn look_closer(&mut self, octets: &[u8]) -> FlowId {
        let headers = Headers::parse(octets, self.settings.link);
        let is_ip = headers.key.is_ip();
        if is_ip && headers.fault.is_none() && headers.fragment != Fragment::Later {
            return self.place(&headers.key, self.flows.hash(&headers.key));
        }
        let invalid = if headers.fault.is_some() { FlowId::INVALID } else { 0 };
        FlowId(FlowId::OTHER | invalid | if is_ip { kind(&headers.key) } else { NO_IP } as u32)
    }

    /// Sets the number of address changes so far ([`Unique::change_number`]). Call it before the
    /// first packet of a loop is counted. If the number changes, flows whose addresses can change
    /// become new flows.
    pub fn addresses_change(&mut self, change_number: u64) {
        self.change = change_number;
    }

    /// Counts a packet of `len` octets that left at `time_ns`.
    ///
    /// # Panics
    /// If `flow` belongs to other statistics.
    #[inline]
    pub fn sent(&mut self, flow: FlowId, len: u32, time_ns: u64) {
        if flow.0 >= FlowId::OTHER {
            return self.sent_other(flow, len);
        }
        self.counts.flow_packets += 1;
        let flow = self.flows.value_mut(flow.0 as usize);
        if flow.share.packets == 0 || flow.changes && flow.change != self.change {
            self.counts.unique_flows += 1;
        } else if self
            .settings
            .expiry_ns
            .is_some_and(|most| time_ns.saturating_sub(flow.last_ns) > most)
        {
            self.counts.expired_flows += 1;
        }
        flow.change = self.change;
        flow.last_ns = flow.last_ns.max(time_ns);
        add(&mut flow.share, len);
    }

    #[cold]
    fn sent_other(&mut self, flow: FlowId, len: u32) {
        add(&mut self.other[(flow.0 & FlowId::PLACE) as usize], len);
        if flow.0 & FlowId::OVERFLOW != 0 {
            self.counts.flow_packets += 1;
            self.counts.overflow_packets += 1;
        } else {
            self.counts.non_flow_packets += 1;
            self.counts.invalid_packets += u64::from(flow.0 & FlowId::INVALID != 0);
        }
    }

    /// Flow counters so far.
    pub fn counts(&self) -> FlowCounts {
        FlowCounts { flows: self.counts.unique_flows + self.counts.expired_flows, ..self.counts }
    }

    /// All results so far.
    pub fn result(&self) -> Summary {
        let flows = || self.flows.iter().filter(|flow| flow.value.share.packets > 0);
        let mut protocols = self.other.clone();
        let mut talkers: HashMap<IpAddr, Share> = HashMap::new();
        for flow in flows() {
            protocols[kind(&flow.key)] += flow.value.share;
            if let Some(src) = flow.key.src_ip() {
                *talkers.entry(src).or_default() += flow.value.share;
            }
        }
        let protocols = protocols.into_iter().zip(0..).map(|(share, place)| {
            let version = [4, 6, 0][place / 256];
            (version, (place % 256) as u8, share)
        });
        let protocols = protocols.filter(|row| row.2.packets > 0).collect();
        let top_flows = flows().map(|flow| (flow.key, flow.value.share)).collect();
        Summary {
            counts: self.counts(),
            protocols: busiest(protocols, usize::MAX, |row| (row.2, (row.0, row.1))),
            talkers: busiest(talkers.into_iter().collect(), self.settings.top, |row| {
                (row.1, row.0)
            }),
            top_flows: busiest(top_flows, self.settings.top, |row| (row.1, row.0)),
        }
    }
}

impl FlowCounts {
    /// New flows per second; 0 if `elapsed_s` is 0.
    pub fn flows_per_second(&self, elapsed_s: f64) -> f64 {
        if elapsed_s > 0.0 { self.flows as f64 / elapsed_s } else { 0.0 }
    }
}

/// Sorts rows by octets, then packets, then their natural order, and keeps the first `most`.
fn busiest<T, O: Ord>(mut rows: Vec<T>, most: usize, by: impl Fn(&T) -> (Share, O)) -> Vec<T> {
    let order = |a: &T, b: &T| {
        let ((a, a_is), (b, b_is)) = (by(a), by(b));
        (b.octets, b.packets).cmp(&(a.octets, a.packets)).then(a_is.cmp(&b_is))
    };
    // There may be a million rows, of which ten are shown.
    if most < rows.len() {
        rows.select_nth_unstable_by(most, order);
        rows.truncate(most);
    }
    rows.sort_unstable_by(order);
    rows
}

/// Index of an IP packet in [`Stats::other`].
#[inline]
fn kind(key: &FlowKey) -> usize {
    usize::from(key.protocol) + if key.version == 6 { 256 } else { 0 }
}

#[inline]
fn add(share: &mut Share, len: u32) {
    share.packets += 1;
    share.octets += u64::from(len);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An Ethernet frame with IPv4 and UDP.
    fn udp(src: [u8; 4], dst: [u8; 4], src_port: u8) -> Vec<u8> {
        let mut frame = vec![0; 60];
        frame[12] = 8;
        frame[14..24].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
        frame[26..30].copy_from_slice(&src);
        frame[30..34].copy_from_slice(&dst);
        frame[35] = src_port;
        frame[39] = 26;
        frame
    }

    const A: [u8; 4] = [10, 0, 0, 1];
    const B: [u8; 4] = [10, 0, 0, 2];
    const GROUP: [u8; 4] = [224, 0, 0, 251];
    const S: u64 = 1_000_000_000;

    impl Stats {
        /// Counts a packet whose addresses do not change.
        fn observe(&mut self, octets: &[u8], len: u32, time_ns: u64) {
            let mut flows = Vec::new();
            self.flows_of([octets], &mut flows);
            self.sent(flows[0], len, time_ns);
        }
    }

    fn stats(settings: Settings) -> Stats {
        Stats::new(settings)
    }

    #[test]
    fn flows_are_counted_by_direction_and_other_packets_separately() {
        let mut stats = stats(Settings::default());
        let mut arp = vec![0; 60];
        arp[12..14].copy_from_slice(&[8, 6]);
        let mut later = udp(A, B, 1);
        later[21] = 5;
        let cut = udp(A, B, 1)[..30].to_vec();
        for octets in
            [&udp(A, B, 1), &udp(B, A, 1), &udp(A, B, 1), &udp(A, B, 2), &arp, &later, &cut]
        {
            stats.observe(octets, octets.len() as u32, 0);
        }
        let counts = stats.counts();
        assert_eq!((counts.flows, counts.unique_flows, counts.expired_flows), (3, 3, 0));
        assert_eq!(
            (counts.flow_packets, counts.non_flow_packets, counts.invalid_packets),
            (4, 3, 1)
        );
        assert_eq!(counts.flows_per_second(1.5), 2.0);
        let summary = stats.result();
        assert_eq!(summary.protocols[0], (4, 17, Share { packets: 5, octets: 300 }));
        assert_eq!(summary.protocols.iter().map(|row| row.2.packets).sum::<u64>(), 7);
        assert_eq!(summary.talkers[0], (A.into(), Share { packets: 3, octets: 180 }));
        assert_eq!((summary.top_flows[0].0.src_port, summary.top_flows[0].1.packets), (1, 2));
    }

    #[test]
    fn frames_together_have_the_flows_of_frames_one_by_one() {
        let frame = |i: u8| udp(A, [10, 0, i % 7, 2], i);
        let mut frames: Vec<_> = (0..3 * BATCH as u8).map(frame).collect();
        frames[BATCH - 1][12] = 9;
        frames[BATCH].truncate(30);
        let settings = Settings { max_flows: 100, ..Settings::default() };
        let (mut together, mut single) = (stats(settings), stats(settings));
        let (mut found, mut expected) = (Vec::new(), Vec::new());
        together.flows_of(frames.iter().map(Vec::as_slice), &mut found);
        for frame in &frames {
            single.flows_of([frame.as_slice()], &mut expected);
        }
        assert_eq!((found.len(), &found), (frames.len(), &expected));
        assert!(found.contains(&FlowId(99)) && !found.contains(&FlowId(100)));
    }

    #[test]
    fn a_flow_in_the_next_loop_is_new_only_if_it_expired() {
        let frame = udp(A, B, 1);
        for (expiry, flows, expired) in [(None, 1, 0), (Some(2 * S), 1, 0), (Some(S), 10, 9)] {
            let mut stats = stats(Settings { expiry_ns: expiry, ..Settings::default() });
            for number in 0..10 {
                stats.addresses_change(0);
                stats.observe(&frame, 60, number * 2 * S);
                stats.observe(&frame, 60, number * 2 * S + S / 2);
            }
            let counts = stats.counts();
            assert_eq!(
                (counts.flows, counts.expired_flows, counts.unique_flows),
                (flows, expired, 1),
                "{expiry:?}"
            );
        }
    }

    #[test]
    fn flows_with_changed_addresses_are_new() {
        let frames = [udp(A, B, 1), udp(B, A, 1), udp(A, GROUP, 1), udp([0; 4], [255; 4], 68)];
        let unique = Unique::new(2, Link::Ethernet);
        let mut stats = stats(Settings { expiry_ns: Some(S), ..Settings::default() });
        for number in 0..100 {
            stats.addresses_change(unique.change_number(number));
            for _ in 0..10 {
                frames.iter().for_each(|frame| stats.observe(frame, 60, number));
            }
        }
        let counts = stats.counts();
        assert_eq!(
            (counts.flows, counts.unique_flows, counts.flow_packets),
            (50 * 3 + 1, 50 * 3 + 1, 4000)
        );
        assert_eq!(stats.result().talkers[0], (A.into(), Share { packets: 2000, octets: 120_000 }));
    }

    #[test]
    fn memory_is_bounded_and_overflow_is_counted() {
        let mut stats = stats(Settings { max_flows: 2, top: 1, ..Settings::default() });
        for port in 0..5 {
            stats.observe(&udp(A, B, port), 60, 0);
        }
        let Summary { counts, talkers, top_flows, protocols } = stats.result();
        assert_eq!((counts.flows, counts.flow_packets, counts.overflow_packets), (2, 5, 3));
        assert_eq!((talkers.len(), top_flows.len(), protocols[0].2.packets), (1, 1, 5));
    }
}
