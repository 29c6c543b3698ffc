//! The flows or sources seen by one receive queue, in bounded memory.

use squall_program::signature::Signature;
use squall_stats::EqualBins;
use squall_units::Nanos;

use crate::{
    flow::{FlowKey, FlowTable, Headers, Link},
    kinds::{Packet, Recognition, WallOffset, Wanted},
    traffic::{Gaps, Pace, Traffic},
};

/// How received frames are grouped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// By addresses, protocol and ports.
    #[default]
    Flow,
    /// By source address only. Sequence numbers are not detected, because each flow of a source has
    /// its own sequence.
    Source,
    /// No grouping.
    None,
}

/// Parses `flow`, `source` or `none`.
impl std::str::FromStr for By {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "flow" => Ok(Self::Flow),
            "source" => Ok(Self::Source),
            "none" => Ok(Self::None),
            _ => Err(format!("{text:?}: expected flow, source or none")),
        }
    }
}

/// How flows are measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowSettings {
    pub by: By,
    /// Maximum number of flows. Frames of further flows are counted together.
    pub limit: usize,
    pub pace: Pace,
    pub sequence: Wanted,
    pub wall: WallOffset,
    /// Whether Squall's senders may restart. They cannot while this process is the sender.
    pub restarts: bool,
}

impl Default for FlowSettings {
    fn default() -> Self {
        Self {
            by: By::Flow,
            limit: 10_000,
            pace: Pace::default(),
            sequence: Wanted::Auto,
            wall: None,
            restarts: true,
        }
    }
}

/// One flow at one receive queue.
#[derive(Clone, Debug, Default)]
pub struct FlowRx {
    pub traffic: Traffic,
    pub gaps: Gaps,
    pub sequence: Recognition,
}

/// Measurements of one queue.
#[derive(Clone, Debug)]
pub struct Flows {
    settings: FlowSettings,
    /// The link type of the frames.
    link: Link,
    bins: Option<EqualBins>,
    /// All frames together; their gaps are in [`crate::Receiver::gaps`].
    pub total: Traffic,
    pub table: FlowTable<FlowRx>,
    /// Frames of flows that did not fit in the table.
    pub rest: Traffic,
    /// Resolution of the timestamps: the greatest common divisor of the first gaps; 0: no gaps yet.
    resolution: u64,
    /// Key of a run whose signatures are accepted without a second one as evidence.
    trusted: Option<u16>,
}

/// The flows with the most octets, for a live view.
#[derive(Clone, Debug, Default)]
pub struct TopFlows {
    /// Number of flows in the table.
    pub flows: usize,
    pub top: Vec<TopFlow>,
}

/// The state of one flow.
#[derive(Clone, Copy, Debug)]
pub struct TopFlow {
    pub key: FlowKey,
    pub packets: u64,
    pub octets: u64,
    /// Number of missing sequence numbers; `None` if packets have none.
    pub missing: Option<u64>,
}

/// Counters of one flow, without histograms.
#[derive(Clone, Copy, Debug)]
pub struct FlowCount {
    pub key: FlowKey,
    pub packets: u64,
    /// Octets, including the FCS.
    pub octets: u64,
    /// Times of the first and the last frame.
    pub first: Nanos,
    pub last: Nanos,
    /// Number of missing sequence numbers; `None` if packets have none of a known kind.
    pub missing: Option<u64>,
}

impl Flows {
    pub fn new(settings: &FlowSettings, bins: Option<&EqualBins>) -> Self {
        Self {
            settings: settings.clone(),
            link: Link::Ethernet,
            bins: bins.cloned(),
            total: Traffic::default(),
            table: FlowTable::new(settings.limit, None),
            rest: Traffic::default(),
            resolution: 0,
            trusted: None,
        }
    }

    pub(crate) fn trusting(self, trusted: Option<u16>) -> Self {
        Self { trusted, ..self }
    }

    pub(crate) fn trust(&mut self, key: Option<u16>) {
        self.trusted = key;
    }

    /// Sets the link type of the frames.
    pub fn on(self, link: Link) -> Self {
        Self { link, ..self }
    }

    /// Counts a frame of `len` octets with FCS.
    #[inline]
    pub fn observe(&mut self, octets: &[u8], len: u64, time: Nanos) {
        let s = &self.settings;
        if let Some(gap) = self.total.arrive(len, time, s.pace)
            && self.resolution != 1
        {
            self.resolution = divisor(self.resolution, gap);
        }
        if s.by == By::None {
            return;
        }
        let headers = Headers::parse(octets, self.link);
        let key = match s.by {
            By::Source => source(&headers.key),
            _ => headers.key,
        };
        let Some(flow) = self.table.entry(&key, time.0) else {
            self.rest.arrive(len, time, s.pace);
            return;
        };
        if let Some(gap) = flow.traffic.arrive(len, time, s.pace) {
            flow.gaps.record(gap, self.bins.as_ref());
        }
        if s.by == By::Flow && !matches!(flow.sequence, Recognition::Unknown) {
            let signed = match flow.sequence {
                Recognition::Known(_) => None,
                _ => Signature::read(octets),
            };
            flow.sequence.take(
                Packet { octets, headers: &headers },
                signed,
                self.trusted,
                time,
                s.sequence,
                s.wall,
            );
        }
    }

    pub fn settings(&self) -> &FlowSettings {
        &self.settings
    }

    /// Memory usage in bytes, including heap memory of the flows.
    pub fn memory(&self) -> usize {
        let heap = |flow: &FlowRx| flow.gaps.memory() + flow.sequence.memory();
        self.table.memory() + self.table.iter().map(|flow| heap(&flow.value)).sum::<usize>()
    }

    /// Counters of at most `most` flows from index `from` on, in the order of their first frames.
    /// Flows keep their index in the table, so consecutive calls cover all of them.
    pub fn counts(&self, from: usize, most: usize) -> Vec<FlowCount> {
        let count = |flow: &crate::flow::Flow<FlowRx>| FlowCount {
            key: flow.key,
            packets: flow.value.traffic.packets,
            octets: flow.value.traffic.octets,
            first: flow.value.traffic.first,
            last: flow.value.traffic.last,
            missing: match &flow.value.sequence {
                Recognition::Known(known) => Some(known.sequence.missing_so_far()),
                _ => None,
            },
        };
        self.table.iter().skip(from).take(most).map(count).collect()
    }

    /// The resolution of the timestamps in nanoseconds; `None` if no gap has been seen.
    pub fn resolution(&self) -> Option<Nanos> {
        (self.resolution > 0).then_some(Nanos(self.resolution))
    }

    /// The `n` flows with the most octets.
    pub fn top(&self, n: usize) -> TopFlows {
        let mut top: Vec<_> = self.table.iter().collect();
        let order =
            |flow: &&crate::flow::Flow<FlowRx>| std::cmp::Reverse(flow.value.traffic.octets);
        if top.len() > n {
            top.select_nth_unstable_by_key(n, order);
            top.truncate(n);
        }
        top.sort_by_key(order);
        let flow = |flow: &crate::flow::Flow<FlowRx>| TopFlow {
            key: flow.key,
            packets: flow.value.traffic.packets,
            octets: flow.value.traffic.octets,
            missing: match &flow.value.sequence {
                Recognition::Known(known) => Some(known.sequence.missing_so_far()),
                _ => None,
            },
        };
        TopFlows { flows: self.table.len(), top: top.into_iter().map(flow).collect() }
    }
}

/// The part of the key that is the same for all flows of a source.
pub fn source(key: &FlowKey) -> FlowKey {
    FlowKey { src: key.src, version: key.version, ..FlowKey::default() }
}

/// Euclid's algorithm. Every number divides 0, so the divisor with 0 is the other number.
fn divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_of_microseconds_show_as_such() {
        let mut flows = Flows::new(&FlowSettings { by: By::None, ..FlowSettings::default() }, None);
        assert_eq!(flows.resolution(), None);
        for time in [5_000_123_000, 5_000_126_000, 5_000_126_000, 5_000_131_000] {
            flows.observe(&[0; 60], 64, Nanos(time));
        }
        assert_eq!(flows.resolution(), Some(Nanos(1000)));
    }

    #[test]
    fn flows_beyond_the_limit_are_counted_together() {
        let mut flows = Flows::new(&FlowSettings { limit: 2, ..FlowSettings::default() }, None);
        for k in 0..30u64 {
            let mut frame = [0; 60];
            frame[11] = (k % 3) as u8;
            flows.observe(&frame, 64, Nanos(k * 100));
        }
        assert_eq!((flows.table.len(), flows.total.packets, flows.rest.packets), (2, 30, 10));
        let top = flows.top(1);
        assert_eq!((top.flows, top.top.len(), top.top[0].packets), (2, 1, 10));
        assert_eq!((flows.rest.first, flows.rest.last), (Nanos(200), Nanos(2900)));
    }

    #[test]
    fn the_parts_of_the_table_together_are_all_flows() {
        let mut flows = Flows::new(&FlowSettings::default(), None);
        for k in 0..30u64 {
            let mut frame = [0; 60];
            frame[11] = (k % 5) as u8;
            flows.observe(&frame, 64, Nanos(100 + k));
        }
        let parts: Vec<_> = (0..6).step_by(2).flat_map(|from| flows.counts(from, 2)).collect();
        let seen: Vec<_> = parts.iter().map(|f| (f.key.src[5], f.packets, f.octets)).collect();
        assert_eq!(seen, [0, 1, 2, 3, 4].map(|host| (host, 6, 6 * 64)));
        assert_eq!((parts[4].first, parts[4].last), (Nanos(104), Nanos(129)));
        assert!(flows.counts(5, 2).is_empty());
    }
}
