//! What a replay sends, in tcpreplay's words: flows, flow packets, non-flow packets, expired flows ([`Stats`]).
//!
//! A flow is what goes one way: addresses, protocol and ports, as tcpreplay counts it and as NetFlow exports it. Which
//! flow comes again in a later loop is the same, unless it was idle for too long meanwhile ([`Settings::expiry_ns`]) or
//! the addresses changed ([`Stats::addresses_change`]).
//!
//! Packets are shown as they are **before** [`crate::Unique`] gives them other addresses. So the flows that are kept are
//! those of the captures, however many loops there are, and the busiest hosts have the addresses that the user knows. A
//! packet costs a look into a table, whose place in memory was asked for a batch of packets earlier.

use std::{collections::HashMap, net::IpAddr};

use squall_measure::{
    census::{BATCH, Share},
    flow::{FlowKey, FlowTable, Fragment, Headers, Link, Seen},
};

use crate::unique::Unique;

/// How flows are told apart and how much of them is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    pub link: Link,
    /// A flow that is idle for longer has ended, and its next packet begins another: tcpreplay's `--flow-expiry`.
    pub expiry_ns: Option<u64>,
    /// Flows of the captures that are told apart at most, 88 octets of memory each. Packets of others are counted.
    pub max_flows: usize,
    /// Rows of the lists of hosts and flows.
    pub top: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { link: Link::Ethernet, expiry_ns: None, max_flows: 1 << 20, top: 10 }
    }
}

/// What was sent so far.
#[derive(Clone, Debug)]
pub struct Stats {
    settings: Settings,
    flows: FlowTable<FlowState>,
    /// How often addresses changed.
    change: u64,
    waiting: [Waiting; BATCH],
    waiting_len: usize,
    counts: FlowCounts,
    /// By IP version and protocol: IPv6 from 256 on.
    protocols: Vec<Share>,
    /// What is no IP.
    others: Share,
}

#[derive(Clone, Copy, Debug, Default)]
struct FlowState {
    share: Share,
    change: u64,
}

/// A packet whose flow's place in memory was asked for.
#[derive(Clone, Copy, Debug, Default)]
struct Waiting {
    key: FlowKey,
    hash: u64,
    time_ns: u64,
    len: u32,
}

/// Figures of flows, by tcpreplay's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounts {
    /// Flows begun: those that were not there before, and those that began anew after they had expired.
    pub flows: u64,
    /// Those that were not there before: `flows` without the expired.
    pub unique_flows: u64,
    /// Flows that were idle for too long when their next packet came.
    pub expired_flows: u64,
    /// Packets of flows.
    pub flow_packets: u64,
    /// All others: no IP, a fragment without ports, or headers that are cut or contradict themselves.
    pub non_flow_packets: u64,
    /// Of the non-flow packets, those whose headers are cut or contradict themselves: tcpreplay's invalid packets.
    pub invalid_packets: u64,
    /// Of the flow packets, those of flows that there was no room for: these flows are not counted.
    pub overflow_packets: u64,
}

/// What [`Stats::result`] tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub counts: FlowCounts,
    /// Of each IP version (0: no IP) and protocol, the busiest first.
    pub protocols: Vec<(u8, u8, Share)>,
    /// Who sent most octets, with the captures' addresses.
    pub talkers: Vec<(IpAddr, Share)>,
    /// The flows with most octets, with the captures' addresses.
    pub top_flows: Vec<(FlowKey, Share)>,
}

impl Stats {
    /// # Panics
    /// If `max_flows` is more than 2^31.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            flows: FlowTable::new(settings.max_flows, settings.expiry_ns),
            change: 0,
            waiting: [Waiting::default(); BATCH],
            waiting_len: 0,
            counts: FlowCounts::default(),
            protocols: vec![Share::default(); 512],
            others: Share::default(),
        }
    }

    /// From here on packets have other addresses: to be called with [`Unique::change_number`] when a loop begins. Flows
    /// with an address that changes are others, if the number is another than before.
    pub fn addresses_change(&mut self, change_number: u64) {
        if change_number != self.change {
            self.flush();
            self.change = change_number;
        }
    }

    /// Counts a packet of `len` octets on the wire that is due at `time_ns`; `octets` before [`Unique::apply`].
    #[inline]
    pub fn observe(&mut self, octets: &[u8], len: u32, time_ns: u64) {
        let key = match self.settings.link {
            Link::Ethernet => Headers::plain(octets),
            _ => None,
        };
        let Some(key) = key.or_else(|| self.look_closer(octets, len)) else { return };
        add(&mut self.protocols[kind(&key)], len);
        let hash = self.flows.hash(&key);
        std::hint::black_box(self.flows.touch(hash));
        self.waiting[self.waiting_len] = Waiting { key, hash, time_ns, len };
        self.waiting_len += 1;
        if self.waiting_len == BATCH {
            self.flush();
        }
    }

    /// The flow of what is not plain; what is in none is counted.
    #[cold]
    fn look_closer(&mut self, octets: &[u8], len: u32) -> Option<FlowKey> {
        let headers = Headers::parse(octets, self.settings.link);
        if headers.key.is_ip() && headers.fault.is_none() && headers.fragment != Fragment::Later {
            return Some(headers.key);
        }
        self.counts.non_flow_packets += 1;
        self.counts.invalid_packets += u64::from(headers.fault.is_some());
        add(if headers.key.is_ip() { &mut self.protocols[kind(&headers.key)] } else { &mut self.others }, len);
        None
    }

    fn flush(&mut self) {
        let waiting = &self.waiting[..self.waiting_len];
        self.counts.flow_packets += waiting.len() as u64;
        for Waiting { key, hash, time_ns, len } in waiting {
            let Some((flow, seen)) = self.flows.seen_hashed(key, *hash, *time_ns) else {
                self.counts.overflow_packets += 1;
                continue;
            };
            add(&mut flow.share, *len);
            match seen {
                Seen::New => self.counts.unique_flows += 1,
                _ if flow.change != self.change && Unique::changes(key) => self.counts.unique_flows += 1,
                Seen::Expired => self.counts.expired_flows += 1,
                Seen::Again => {}
            }
            flow.change = self.change;
        }
        self.counts.flows = self.counts.unique_flows + self.counts.expired_flows;
        self.waiting_len = 0;
    }

    /// Figures of flows until here.
    pub fn counts(&mut self) -> FlowCounts {
        self.flush();
        self.counts
    }

    /// All that was found until here.
    pub fn result(&mut self) -> Summary {
        let counts = self.counts();
        let protocols = self.protocols.iter().zip(0u16..).map(|(share, kind)| {
            let version = if kind < 256 { 4 } else { 6 };
            (version, kind as u8, *share)
        });
        let protocols = protocols.chain([(0, 0, self.others)]).filter(|row| row.2.packets > 0);
        let mut talkers: HashMap<IpAddr, Share> = HashMap::new();
        for flow in &self.flows {
            if let Some(src) = flow.key.src_ip() {
                *talkers.entry(src).or_default() += flow.value.share;
            }
        }
        let top_flows = self.flows.iter().map(|flow| (flow.key, flow.value.share)).collect();
        Summary {
            counts,
            protocols: busiest(protocols.collect(), usize::MAX, |row| (row.2, (row.0, row.1))),
            talkers: busiest(talkers.into_iter().collect(), self.settings.top, |row| (row.1, row.0)),
            top_flows: busiest(top_flows, self.settings.top, |row| (row.1, row.0)),
        }
    }
}

impl FlowCounts {
    /// Flows that began in each second of so many; 0 of none.
    pub fn flows_per_second(&self, elapsed_s: f64) -> f64 {
        if elapsed_s > 0.0 { self.flows as f64 / elapsed_s } else { 0.0 }
    }
}

/// Most octets first, then most packets, then in the order of what they are.
fn busiest<T, O: Ord>(mut rows: Vec<T>, most: usize, by: impl Fn(&T) -> (Share, O)) -> Vec<T> {
    rows.sort_unstable_by(|a, b| {
        let ((a, a_is), (b, b_is)) = (by(a), by(b));
        (b.octets, b.packets).cmp(&(a.octets, a.packets)).then(a_is.cmp(&b_is))
    });
    rows.truncate(most);
    rows
}

/// Where in `protocols` a packet of IP is counted.
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

    /// Ethernet, IPv4, UDP.
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

    fn stats(settings: Settings) -> Stats {
        Stats::new(settings)
    }

    #[test]
    fn flows_are_counted_each_way_and_what_is_none_apart() {
        let mut stats = stats(Settings::default());
        let mut arp = vec![0; 60];
        arp[12..14].copy_from_slice(&[8, 6]);
        let mut later = udp(A, B, 1);
        later[21] = 5;
        let cut = udp(A, B, 1)[..30].to_vec();
        for octets in [&udp(A, B, 1), &udp(B, A, 1), &udp(A, B, 1), &udp(A, B, 2), &arp, &later, &cut] {
            stats.observe(octets, octets.len() as u32, 0);
        }
        let counts = stats.counts();
        assert_eq!((counts.flows, counts.unique_flows, counts.expired_flows), (3, 3, 0));
        assert_eq!((counts.flow_packets, counts.non_flow_packets, counts.invalid_packets), (4, 3, 1));
        assert_eq!(counts.flows_per_second(1.5), 2.0);
        let summary = stats.result();
        assert_eq!(summary.protocols[0], (4, 17, Share { packets: 5, octets: 300 }));
        assert_eq!(summary.protocols.iter().map(|row| row.2.packets).sum::<u64>(), 7);
        assert_eq!(summary.talkers[0], (A.into(), Share { packets: 3, octets: 180 }));
        assert_eq!((summary.top_flows[0].0.src_port, summary.top_flows[0].1.packets), (1, 2));
    }

    #[test]
    fn a_flow_that_comes_again_in_the_next_loop_is_new_only_if_it_expired() {
        let frame = udp(A, B, 1);
        for (expiry, flows, expired) in [(None, 1, 0), (Some(2 * S), 1, 0), (Some(S), 10, 9)] {
            let mut stats = stats(Settings { expiry_ns: expiry, ..Settings::default() });
            for number in 0..10 {
                stats.addresses_change(0);
                stats.observe(&frame, 60, number * 2 * S);
                stats.observe(&frame, 60, number * 2 * S + S / 2);
            }
            let counts = stats.counts();
            assert_eq!((counts.flows, counts.expired_flows, counts.unique_flows), (flows, expired, 1), "{expiry:?}");
        }
    }

    #[test]
    fn with_fresh_addresses_all_flows_are_new_whose_addresses_change() {
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
        assert_eq!((counts.flows, counts.unique_flows, counts.flow_packets), (50 * 3 + 1, 50 * 3 + 1, 4000));
        assert_eq!(stats.result().talkers[0], (A.into(), Share { packets: 2000, octets: 120_000 }));
    }

    #[test]
    fn memory_is_bounded_and_what_has_no_room_is_counted() {
        let mut stats = stats(Settings { max_flows: 2, top: 1, ..Settings::default() });
        for port in 0..5 {
            stats.observe(&udp(A, B, port), 60, 0);
        }
        let Summary { counts, talkers, top_flows, protocols } = stats.result();
        assert_eq!((counts.flows, counts.flow_packets, counts.overflow_packets), (2, 5, 3));
        assert_eq!((talkers.len(), top_flows.len(), protocols[0].2.packets), (1, 1, 5));
    }
}
