//! Received flows as in Wireshark's *Conversations* and *Endpoints*. The input is the flows of a
//! run ([`Flows`]) and a [`Question`]; the output is a page of rows.
//!
//! Rows are sorted, filtered and limited here instead of in the program that shows them: a receiver
//! may have a million flows, which a browser cannot display.

mod filter;

use std::{
    borrow::Cow, cmp::Ordering, collections::HashMap, fmt, hash::Hash, net::IpAddr, sync::Arc,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use filter::{Filter, FilterError};

use crate::report::{Report, RestReport};

/// Default and maximum number of rows in an answer.
pub const ROWS: usize = 200;
pub const MAX_ROWS: usize = 10_000;

/// Received flows. Each is one direction of a 5-tuple.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flows {
    /// Names of the run's ports.
    pub ports: Vec<String>,
    pub flows: Vec<Flow>,
    /// Number of flows in the run; higher than the length of `flows` if not all of them were read.
    pub total: u64,
    /// Frames of flows beyond the flow limit of the run.
    pub rest: Option<RestReport>,
}

/// One flow. Octets include the FCS; times count from the first frame of the run.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Index in [`Flows::ports`] of the receiving port.
    pub port: usize,
    pub src: HostAddress,
    pub dst: HostAddress,
    /// Source and destination port; `None` if the protocol has no ports (ICMP, ARP).
    pub ports: Option<(u16, u16)>,
    pub protocol: Cow<'static, str>,
    pub packets: u64,
    pub octets: u64,
    pub first_s: f64,
    pub last_s: f64,
    /// Mean layer-2 rate from the first to the last frame.
    pub bps: f64,
    /// Number of missing sequence numbers; `None` if packets have no sequence numbers of a known
    /// kind.
    pub lost: Option<u64>,
}

/// An IP address, or a text: a MAC address, or empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostAddress {
    Ip(IpAddr),
    Other(Arc<str>),
}

/// Selects the rows to return.
#[derive(Clone, Debug)]
pub struct Question<C> {
    pub filter: Filter,
    pub sort: C,
    pub descending: bool,
    /// Number of rows to skip at the start.
    pub offset: usize,
    pub limit: usize,
}

/// Key of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// Two addresses, two ports and a protocol: the 5-tuple, both directions together.
    #[default]
    Tuple,
    /// Two addresses.
    Pair,
}

/// Columns of conversations, for sorting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConversationColumn {
    A,
    APort,
    B,
    BPort,
    Protocol,
    Flows,
    Packets,
    #[default]
    Octets,
    PacketsAb,
    OctetsAb,
    PacketsBa,
    OctetsBa,
    StartS,
    DurationS,
    BpsAb,
    BpsBa,
    Lost,
}

/// Columns of endpoints, for sorting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndpointColumn {
    Address,
    Flows,
    Packets,
    #[default]
    Octets,
    TxPackets,
    TxOctets,
    RxPackets,
    RxOctets,
    StartS,
    DurationS,
    Lost,
}

/// A page of rows, and totals. Octets are L2, FCS included.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "{R}Page")]
pub struct Page<R> {
    /// Number of flows in the run, up to its limit.
    pub flows: u64,
    /// Number of flows that were read: during a run, at most about 100,000 per receive queue.
    pub flows_read: u64,
    /// Number of rows without the filter.
    pub total: u64,
    /// Number of rows that match the filter.
    pub matching: u64,
    /// Sums over all matching rows.
    pub packets: u64,
    pub octets: u64,
    /// Frames of flows beyond the run's limit. These have no row.
    pub rest: Option<RestReport>,
    pub rows: Vec<R>,
}

/// A conversation: frames between A and B, where A is the sender of the first received frame.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Conversation {
    /// IP address, or MAC address if there is no IP layer.
    pub a: String,
    /// `null` if the protocol has no ports, or if rows are address pairs.
    pub a_port: Option<u16>,
    pub b: String,
    pub b_port: Option<u16>,
    /// `UDP`, `TCP`, ...; name or number of the EtherType if there is no IP layer; empty for
    /// address pairs.
    pub protocol: String,
    /// Ports of the run that received it.
    pub received_on: Vec<String>,
    /// Number of flows: each direction of a 5-tuple counts.
    pub flows: u64,
    pub packets: u64,
    pub octets: u64,
    /// Frames from A to B.
    pub packets_ab: u64,
    pub octets_ab: u64,
    pub packets_ba: u64,
    pub octets_ba: u64,
    /// Time of the first frame, counted from the first frame that the run received.
    pub start_s: f64,
    /// Time from the first to the last frame.
    pub duration_s: f64,
    /// Mean L2 rate of each direction from its first to its last frame; 0 if there is only one
    /// frame.
    pub bps_ab: f64,
    pub bps_ba: f64,
    /// Number of missing sequence numbers; `null` if packets have none of a known kind.
    pub lost: Option<u64>,
}

/// Frames that one address sent and received.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Endpoint {
    pub address: String,
    /// Number of flows: each direction of a 5-tuple counts.
    pub flows: u64,
    pub packets: u64,
    pub octets: u64,
    /// Frames with this source address.
    pub tx_packets: u64,
    pub tx_octets: u64,
    /// Frames with this destination address.
    pub rx_packets: u64,
    pub rx_octets: u64,
    pub start_s: f64,
    pub duration_s: f64,
    /// Number of frames lost that it sent; `null` if packets have no sequence numbers of a known
    /// kind.
    pub lost: Option<u64>,
}

impl HostAddress {
    pub fn parse(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Other(text.into()), Self::Ip)
    }
}

impl fmt::Display for HostAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl Flows {
    /// The flows in a report; `None` if flows were not measured.
    pub fn of(report: &Report) -> Option<Self> {
        let all = report.received_flows.as_ref()?;
        let ports: Vec<String> = report.ports.iter().map(|port| port.name.clone()).collect();
        let flows = all.flows.iter().map(|flow| Flow {
            port: ports.iter().position(|name| *name == flow.port).unwrap_or(usize::MAX),
            src: HostAddress::parse(&flow.src),
            dst: HostAddress::parse(&flow.dst),
            ports: flow.src_port.zip(flow.dst_port),
            protocol: flow.protocol.clone().into(),
            packets: flow.packets,
            octets: flow.octets,
            first_s: flow.first_s,
            last_s: flow.last_s,
            bps: flow.bps_l2,
            // Losses of frames that Squall signed are reported with the streams.
            lost: flow.sequence.as_ref().filter(|s| s.kind != "squall").map(|s| s.lost),
        });
        let flows: Vec<Flow> = flows.collect();
        Some(Self { ports, total: flows.len() as u64, flows, rest: all.rest.clone() })
    }

    pub fn conversations(
        &self,
        by: By,
        question: &Question<ConversationColumn>,
    ) -> Page<Conversation> {
        let key = |flow: &Flow| {
            let end = |address: &HostAddress, port: Option<u16>| match by {
                By::Tuple => (address.clone(), port),
                By::Pair => (address.clone(), None),
            };
            let (src, dst) = (
                end(&flow.src, flow.ports.map(|ports| ports.0)),
                end(&flow.dst, flow.ports.map(|ports| ports.1)),
            );
            let protocol = if by == By::Tuple { flow.protocol.clone() } else { Cow::Borrowed("") };
            let swapped = dst < src;
            (if swapped { (dst, src, protocol) } else { (src, dst, protocol) }, swapped)
        };
        let mut rows = Rows::default();
        for flow in &self.flows {
            let (key, swapped) = key(flow);
            let matches = question.filter.matches(flow, &self.ports);
            rows.add(key, flow, usize::from(swapped), matches);
        }
        // Before sorting, because the first frame determines which address is A.
        let rows = rows.map(|(one, two, protocol), sum| {
            if sum.ways[1].first_s < sum.ways[0].first_s {
                sum.ways.swap(0, 1);
                (two, one, protocol)
            } else {
                (one, two, protocol)
            }
        });
        let order = |x: &(Tuple, Sum), y: &(Tuple, Sum)| {
            use ConversationColumn as C;
            let ((a, b, protocol), sum) = x;
            let ((a2, b2, protocol2), sum2) = y;
            let [ab, ba] = &sum.ways;
            let [ab2, ba2] = &sum2.ways;
            match question.sort {
                C::A => a.0.cmp(&a2.0),
                C::APort => a.1.cmp(&a2.1),
                C::B => b.0.cmp(&b2.0),
                C::BPort => b.1.cmp(&b2.1),
                C::Protocol => protocol.cmp(protocol2),
                C::Flows => sum.flows.cmp(&sum2.flows),
                C::Packets => sum.packets().cmp(&sum2.packets()),
                C::Octets => sum.octets().cmp(&sum2.octets()),
                C::PacketsAb => ab.packets.cmp(&ab2.packets),
                C::OctetsAb => ab.octets.cmp(&ab2.octets),
                C::PacketsBa => ba.packets.cmp(&ba2.packets),
                C::OctetsBa => ba.octets.cmp(&ba2.octets),
                C::StartS => sum.start_s().total_cmp(&sum2.start_s()),
                C::DurationS => sum.duration_s().total_cmp(&sum2.duration_s()),
                C::BpsAb => ab.bps.total_cmp(&ab2.bps),
                C::BpsBa => ba.bps.total_cmp(&ba2.bps),
                C::Lost => sum.lost.cmp(&sum2.lost),
            }
        };
        self.page(rows, question, order, |((a, b, protocol), sum)| {
            let [ab, ba] = &sum.ways;
            Conversation {
                a: a.0.to_string(),
                a_port: a.1,
                b: b.0.to_string(),
                b_port: b.1,
                protocol: protocol.clone().into_owned(),
                received_on: sum
                    .on
                    .iter()
                    .filter_map(|&port| self.ports.get(port))
                    .cloned()
                    .collect(),
                flows: sum.flows,
                packets: sum.packets(),
                octets: sum.octets(),
                packets_ab: ab.packets,
                octets_ab: ab.octets,
                packets_ba: ba.packets,
                octets_ba: ba.octets,
                start_s: sum.start_s(),
                duration_s: sum.duration_s(),
                bps_ab: ab.bps,
                bps_ba: ba.bps,
                lost: sum.lost,
            }
        })
    }

    /// Frames that each address sent and received. A frame counts for two addresses, so the sums
    /// over all rows are twice those of the conversations.
    pub fn endpoints(&self, question: &Question<EndpointColumn>) -> Page<Endpoint> {
        let mut rows = Rows::default();
        for flow in &self.flows {
            let matches = question.filter.matches(flow, &self.ports);
            for (address, way) in [(&flow.src, 0), (&flow.dst, 1)] {
                // If only sources were measured, flows have no destination address.
                if *address != HostAddress::Other("".into()) {
                    rows.add(address.clone(), flow, way, matches);
                }
            }
        }
        let order = |(address, sum): &(HostAddress, Sum), y: &(HostAddress, Sum)| {
            use EndpointColumn as C;
            let (address2, sum2) = y;
            let [tx, rx] = &sum.ways;
            let [tx2, rx2] = &sum2.ways;
            match question.sort {
                C::Address => address.cmp(address2),
                C::Flows => sum.flows.cmp(&sum2.flows),
                C::Packets => sum.packets().cmp(&sum2.packets()),
                C::Octets => sum.octets().cmp(&sum2.octets()),
                C::TxPackets => tx.packets.cmp(&tx2.packets),
                C::TxOctets => tx.octets.cmp(&tx2.octets),
                C::RxPackets => rx.packets.cmp(&rx2.packets),
                C::RxOctets => rx.octets.cmp(&rx2.octets),
                C::StartS => sum.start_s().total_cmp(&sum2.start_s()),
                C::DurationS => sum.duration_s().total_cmp(&sum2.duration_s()),
                C::Lost => tx.lost.cmp(&tx2.lost),
            }
        };
        self.page(rows, question, order, |(address, sum)| {
            let [tx, rx] = &sum.ways;
            Endpoint {
                address: address.to_string(),
                flows: sum.flows,
                packets: sum.packets(),
                octets: sum.octets(),
                tx_packets: tx.packets,
                tx_octets: tx.octets,
                rx_packets: rx.packets,
                rx_octets: rx.octets,
                start_s: sum.start_s(),
                duration_s: sum.duration_s(),
                lost: tx.lost,
            }
        })
    }

    /// Sorts all rows, but formats only those that are shown.
    fn page<K: Ord, C, R>(
        &self,
        rows: Rows<K>,
        question: &Question<C>,
        order: impl Fn(&(K, Sum), &(K, Sum)) -> Ordering,
        row: impl Fn(&(K, Sum)) -> R,
    ) -> Page<R> {
        let total = rows.rows.len() as u64;
        let mut rows: Vec<(K, Sum)> =
            rows.rows.into_iter().filter(|(_, sum)| sum.flows > 0).collect();
        rows.sort_unstable_by(|x, y| {
            let by_column = order(x, y);
            let by_column = if question.descending { by_column.reverse() } else { by_column };
            // Ties are broken by key, so equal rows have the same order in every answer.
            by_column.then_with(|| x.0.cmp(&y.0))
        });
        Page {
            flows: self.total,
            flows_read: self.flows.len() as u64,
            total,
            matching: rows.len() as u64,
            packets: rows.iter().map(|(_, sum)| sum.packets()).sum(),
            octets: rows.iter().map(|(_, sum)| sum.octets()).sum(),
            rest: self.rest.clone(),
            rows: rows.iter().skip(question.offset).take(question.limit).map(row).collect(),
        }
    }
}

type End = (HostAddress, Option<u16>);
type Tuple = (End, End, Cow<'static, str>);

/// Sums of flows by row key.
struct Rows<K> {
    rows: HashMap<K, Sum>,
}

impl<K> Default for Rows<K> {
    fn default() -> Self {
        Self { rows: HashMap::new() }
    }
}

impl<K: Eq + Hash> Rows<K> {
    /// A flow that does not match also creates its row, which counts in the total but stays empty.
    fn add(&mut self, key: K, flow: &Flow, way: usize, matches: bool) {
        let sum = self.rows.entry(key).or_default();
        if matches {
            sum.add(flow, way);
        }
    }

    fn map(self, new: impl Fn(K, &mut Sum) -> K) -> Self {
        let rows = self.rows.into_iter().map(|(key, mut sum)| (new(key, &mut sum), sum));
        Self { rows: rows.collect() }
    }
}

/// Sum of the flows in one row, in both directions.
#[derive(Clone, Debug, Default)]
struct Sum {
    ways: [Way; 2],
    flows: u64,
    lost: Option<u64>,
    on: Vec<usize>,
}

#[derive(Clone, Debug)]
struct Way {
    packets: u64,
    octets: u64,
    first_s: f64,
    last_s: f64,
    bps: f64,
    lost: Option<u64>,
}

impl Default for Way {
    fn default() -> Self {
        Self {
            packets: 0,
            octets: 0,
            first_s: f64::INFINITY,
            last_s: f64::NEG_INFINITY,
            bps: 0.0,
            lost: None,
        }
    }
}

impl Sum {
    fn add(&mut self, flow: &Flow, way: usize) {
        self.flows += 1;
        add_to(&mut self.lost, flow.lost);
        if !self.on.contains(&flow.port) {
            self.on.push(flow.port);
        }
        let way = &mut self.ways[way];
        way.packets += flow.packets;
        way.octets += flow.octets;
        way.first_s = way.first_s.min(flow.first_s);
        way.last_s = way.last_s.max(flow.last_s);
        way.bps += flow.bps;
        add_to(&mut way.lost, flow.lost);
    }

    fn packets(&self) -> u64 {
        self.ways[0].packets + self.ways[1].packets
    }

    fn octets(&self) -> u64 {
        self.ways[0].octets + self.ways[1].octets
    }

    fn start_s(&self) -> f64 {
        self.ways[0].first_s.min(self.ways[1].first_s)
    }

    fn duration_s(&self) -> f64 {
        self.ways[0].last_s.max(self.ways[1].last_s) - self.start_s()
    }
}

fn add_to(sum: &mut Option<u64>, more: Option<u64>) {
    *sum = sum.map_or(more, |sum| Some(sum + more.unwrap_or(0)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(src: &str, dst: &str, ports: (u16, u16), packets: u64, times: (f64, f64)) -> Flow {
        Flow {
            port: usize::from(src < dst),
            src: HostAddress::parse(src),
            dst: HostAddress::parse(dst),
            ports: Some(ports),
            protocol: "UDP".into(),
            packets,
            octets: packets * 100,
            first_s: times.0,
            last_s: times.1,
            bps: packets as f64,
            lost: None,
        }
    }

    fn flows() -> Flows {
        let flows = vec![
            // The answer is listed before the request, but is later in time.
            flow("10.0.0.1", "10.0.0.9", (53, 4000), 2, (0.5, 0.75)),
            flow("10.0.0.9", "10.0.0.1", (4000, 53), 3, (0.25, 0.5)),
            flow("10.0.0.9", "10.0.0.1", (4001, 53), 1, (2.0, 2.0)),
            flow("10.0.0.2", "10.0.0.10", (5, 6), 7, (0.0, 3.0)),
            Flow {
                ports: None,
                protocol: "ARP".into(),
                lost: Some(4),
                ..flow("02:00:00:00:00:01", "ff:ff:ff:ff:ff:ff", (0, 0), 1, (1.0, 1.0))
            },
        ];
        let ports = vec!["left".to_owned(), "right".to_owned()];
        Flows { ports, total: flows.len() as u64, flows, rest: None }
    }

    fn question<C: Default>(filter: &str, limit: usize) -> Question<C> {
        let filter = filter.parse().expect("a filter");
        Question { filter, sort: C::default(), descending: true, offset: 0, limit }
    }

    #[test]
    fn both_directions_are_one_conversation_and_a_sent_the_first_frame() {
        let page = flows().conversations(By::Tuple, &question("", 10));
        let row = page.rows.iter().find(|row| row.a_port == Some(4000)).expect("it is there");
        assert_eq!(
            (row.a.as_str(), row.b.as_str(), row.b_port),
            ("10.0.0.9", "10.0.0.1", Some(53))
        );
        assert_eq!((row.packets_ab, row.packets_ba, row.packets), (3, 2, 5));
        assert_eq!((row.octets_ab, row.octets_ba, row.octets), (300, 200, 500));
        assert_eq!((row.start_s, row.duration_s), (0.25, 0.5));
        assert_eq!((row.bps_ab, row.bps_ba, row.flows, row.lost), (3.0, 2.0, 2, None));
        assert_eq!(row.received_on, ["right", "left"]);
        assert_eq!((page.total, page.matching, page.packets, page.flows), (4, 4, 14, 5));
    }

    #[test]
    fn pairs_of_addresses_have_the_sums_of_their_conversations() {
        let page = flows().conversations(By::Pair, &question("", 10));
        let seen: Vec<_> =
            page.rows.iter().map(|r| (r.a.as_str(), r.b.as_str(), r.packets, r.flows)).collect();
        assert_eq!(
            seen,
            [
                ("10.0.0.2", "10.0.0.10", 7, 1),
                ("10.0.0.9", "10.0.0.1", 6, 3),
                ("02:00:00:00:00:01", "ff:ff:ff:ff:ff:ff", 1, 1)
            ]
        );
        assert!(page.rows.iter().all(|row| row.a_port.is_none() && row.protocol.is_empty()));
    }

    #[test]
    fn an_endpoint_sent_and_received_what_its_flows_say() {
        let page = flows().endpoints(&question("", 10));
        let of = |address: &str| page.rows.iter().find(|r| r.address == address).expect("a row");
        let client = of("10.0.0.9");
        assert_eq!((client.tx_packets, client.rx_packets, client.packets), (4, 2, 6));
        assert_eq!((client.tx_octets, client.rx_octets, client.flows), (400, 200, 3));
        assert_eq!((client.start_s, client.duration_s), (0.25, 1.75));
        // Losses count for the sending address.
        assert_eq!(of("02:00:00:00:00:01").lost, Some(4));
        assert_eq!(of("ff:ff:ff:ff:ff:ff").lost, None);
        assert_eq!((page.total, page.packets), (6, 2 * 14));
    }

    #[test]
    fn addresses_sort_as_numbers_and_a_limit_says_of_how_many() {
        let sorted = Question {
            sort: EndpointColumn::Address,
            descending: false,
            offset: 1,
            limit: 3,
            ..question("udp", 0)
        };
        let page = flows().endpoints(&sorted);
        let seen: Vec<_> = page.rows.iter().map(|row| row.address.as_str()).collect();
        assert_eq!(seen, ["10.0.0.2", "10.0.0.9", "10.0.0.10"]);
        assert_eq!((page.matching, page.total), (4, 6));
    }

    #[test]
    fn a_filter_of_one_direction_leaves_the_other_out() {
        let page = flows().conversations(By::Tuple, &question("src port 53", 10));
        assert_eq!((page.matching, page.packets), (1, 2));
        assert_eq!((page.rows[0].a.as_str(), page.rows[0].packets_ba), ("10.0.0.1", 0));
    }

    #[test]
    fn of_a_report_losses_are_those_of_numbers_that_are_not_a_streams() {
        use crate::report::{PortReport, ReceivedFlowReport, ReceivedFlowsReport, SequenceReport};
        let flow = |kind: &str, port: &str| ReceivedFlowReport {
            src: "10.0.0.1".into(),
            dst: "10.0.0.2".into(),
            src_port: Some(1),
            dst_port: Some(2),
            port: port.into(),
            sequence: Some(SequenceReport { kind: kind.into(), lost: 3, ..Default::default() }),
            ..ReceivedFlowReport::default()
        };
        let report = Report {
            ports: vec![PortReport { name: "A".into(), ..PortReport::default() }],
            received_flows: Some(ReceivedFlowsReport {
                flows: vec![flow("rtp", "A"), flow("squall", "A")],
                ..ReceivedFlowsReport::default()
            }),
            ..Report::default()
        };
        let flows = Flows::of(&report).expect("flows were told apart");
        let lost: Vec<_> = flows.flows.iter().map(|flow| (flow.port, flow.lost)).collect();
        assert_eq!(lost, [(0, Some(3)), (0, None)]);
        assert_eq!(Flows::of(&Report::default()), None);
    }
}
