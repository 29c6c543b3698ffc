//! Flows, with their endpoints and state.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use squall_rules::{Application, End};
use squall_units::Nanos;

use crate::bits::FlowBits;
use crate::packet::{Embedded, ICMP, ICMP6, Packet, SCTP, TCP, UDP};
use crate::protocols::{Reader, Transaction};
use crate::stream::Session;

/// Maximum number of tracked flows. Beyond it, the oldest flow is ended.
const MAX_FLOWS: usize = 1 << 18;

/// Protocol, VLAN, and both endpoints in ascending order.
pub(crate) type Key = (u8, u32, (IpAddr, u16), (IpAddr, u16));

pub(crate) struct Flow {
    /// Unique among all flows.
    pub number: u64,
    pub key: Key,
    pub protocol: u8,
    pub version: u8,
    pub client: IpAddr,
    pub client_port: u16,
    pub server: IpAddr,
    pub server_port: u16,
    pub first: Nanos,
    pub last: Nanos,
    /// Number of packets sent by each end. All pairs are indexed by [`End`].
    pub packets: [u64; 2],
    pub octets: [u64; 2],
    pub session: Option<Session>,
    pub application: Detection,
    pub reader: Option<Box<dyn Reader + Send>>,
    pub transactions: Vec<Transaction>,
    pub inspected: Vec<InspectionState>,
    /// Rules whose headers match packets in each direction, in order. Set by the first packet in
    /// that direction.
    pub candidates: [Option<std::sync::Arc<Candidates>>; 2],
    pub addresses_done: [bool; 2],
    /// A pass rule has matched.
    pub passed: bool,
    pub bits: FlowBits,
    /// The first octets from each end, until the protocol is detected.
    pub prefix: [Vec<u8>; 2],
}

/// The state of the inspection of one transaction.
#[derive(Default)]
pub(crate) struct InspectionState {
    /// Fingerprint of the transaction at the last evaluation, per direction.
    pub fingerprint: [Option<(usize, usize, [bool; 2])>; 2],
    /// Partial matches by direction and rule.
    pub rules: HashMap<(End, usize), RuleProgress>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct RuleProgress {
    /// The whole rule has matched and is not evaluated again.
    pub done: bool,
    pub header: bool,
    pub payload: bool,
    /// Bit set, by index, of the buffer tests that have matched.
    pub buffer_tests: u64,
    pub variables: Vec<u64>,
}

/// Rules to evaluate on a packet, as indices into the engine's list.
#[derive(Default)]
pub(crate) struct Candidates {
    pub of_packets: Vec<u32>,
    pub of_transactions: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detection {
    Pending,
    /// The protocol is not supported.
    Unknown,
    Known(Application),
}

impl Detection {
    pub fn application(self) -> Option<Application> {
        match self {
            Detection::Known(application) => Some(application),
            _ => None,
        }
    }
}

impl Flow {
    /// The end that sent `packet`.
    pub fn sender(&self, packet: &Packet) -> End {
        if matches!(packet.protocol, TCP | UDP | SCTP)
            && packet.source_port != packet.destination_port
        {
            let client = packet.source_port == self.client_port && packet.source == self.client
                || packet.destination_port == self.server_port && packet.destination == self.server;
            return if client { End::Client } else { End::Server };
        }
        if packet.source == self.client { End::Client } else { End::Server }
    }

    /// Whether a transaction has data from `from` that was not inspected yet.
    pub fn has_new_data(&self, from: End) -> bool {
        self.transactions.iter().enumerate().any(|(index, transaction)| {
            self.inspected.get(index).and_then(|inspected| inspected.fingerprint[from as usize])
                != Some(fingerprint(transaction))
        })
    }

    pub fn is_established(&self) -> bool {
        match &self.session {
            Some(session) => session.is_established(),
            None if self.protocol == TCP => false,
            None => self.packets[0] > 0 && self.packets[1] > 0,
        }
    }
}

/// A value that changes whenever `transaction` changes.
pub(crate) fn fingerprint(transaction: &Transaction) -> (usize, usize, [bool; 2]) {
    (transaction.buffers.len(), transaction.facts.len(), transaction.done)
}

#[derive(Default)]
pub(crate) struct Flows {
    places: HashMap<Key, usize>,
    flows: Vec<Option<Box<Flow>>>,
    free: Vec<usize>,
    /// Flows in order of creation.
    order: VecDeque<(usize, u64)>,
    made: u64,
}

impl Flows {
    /// Takes the flow of `packet` out of the table, or creates it. [`Flows::put_back`] returns it
    /// to the table. `None` if the packet belongs to no flow.
    pub fn take(&mut self, packet: &Packet) -> Option<(usize, Box<Flow>)> {
        if packet.is_icmp_error() {
            // An ICMP error belongs to the flow of the packet that it quotes, and never creates a
            // flow.
            let place = *self.places.get(&embedded_key(packet, &packet.icmp?.properties?))?;
            return self.flows[place].take().map(|flow| (place, flow));
        }
        if !packet.has_upper || !matches!(packet.protocol, TCP | UDP | ICMP | ICMP6 | SCTP | 50) {
            return None;
        }
        let key = key(packet);
        if let Some(&place) = self.places.get(&key) {
            return self.flows[place].take().map(|flow| (place, flow));
        }
        let (client_port, server_port) = (packet.source_port, packet.destination_port);
        self.made += 1;
        let flow = Box::new(Flow {
            number: self.made,
            key,
            protocol: packet.protocol,
            version: packet.version,
            client: packet.source,
            client_port,
            server: packet.destination,
            server_port,
            first: packet.at,
            last: packet.at,
            packets: [0; 2],
            octets: [0; 2],
            session: None,
            application: Detection::Pending,
            reader: None,
            transactions: vec![],
            inspected: vec![],
            candidates: [None, None],
            addresses_done: [false; 2],
            passed: false,
            bits: FlowBits::default(),
            prefix: [vec![], vec![]],
        });
        let place = self.free.pop().unwrap_or_else(|| {
            self.flows.push(None);
            self.flows.len() - 1
        });
        self.places.insert(key, place);
        self.order.push_back((place, flow.number));
        Some((place, flow))
    }

    pub fn put_back(&mut self, place: usize, flow: Box<Flow>) {
        self.flows[place] = Some(flow);
    }

    /// Drops the flow that was taken from index `place`.
    pub fn forget(&mut self, place: usize, flow: &Flow) {
        self.places.remove(&flow.key);
        self.free.push(place);
    }

    /// Removes and returns the oldest flow if there are too many, or unconditionally if `all`.
    pub fn oldest(&mut self, all: bool) -> Option<Box<Flow>> {
        while all || self.places.len() > MAX_FLOWS {
            let (place, number) = self.order.pop_front()?;
            if self.flows[place].as_ref().is_some_and(|flow| flow.number == number)
                && let Some(flow) = self.flows[place].take()
            {
                self.forget(place, &flow);
                return Some(flow);
            }
        }
        None
    }
}

fn key(packet: &Packet) -> Key {
    let (from, to) = match packet.icmp {
        Some(icmp) => (icmp.kind.into(), counterpart(packet.protocol, icmp.kind).into()),
        None => (packet.source_port, packet.destination_port),
    };
    ordered(packet.protocol, packet.vlan, (packet.source, from), (packet.destination, to))
}

fn embedded_key(packet: &Packet, properties: &Embedded) -> Key {
    ordered(
        properties.protocol,
        packet.vlan,
        (properties.source, properties.source_port),
        (properties.destination, properties.destination_port),
    )
}

fn ordered(protocol: u8, vlan: u32, one: (IpAddr, u16), other: (IpAddr, u16)) -> Key {
    (protocol, vlan, one.min(other), one.max(other))
}

/// The ICMP type that answers `kind`, or that `kind` answers; 255 if there is none.
fn counterpart(protocol: u8, kind: u8) -> u8 {
    match (protocol, kind) {
        (ICMP, 8) => 0,
        (ICMP, 0) => 8,
        (ICMP, 10) => 9,
        (ICMP, 9) => 10,
        (ICMP, 13) => 14,
        (ICMP, 14) => 13,
        (ICMP, 15) => 16,
        (ICMP, 16) => 15,
        (ICMP, 17) => 18,
        (ICMP, 18) => 17,
        (ICMP6, 128) => 129,
        (ICMP6, 129) => 128,
        (ICMP6, 133) => 134,
        (ICMP6, 134) => 133,
        (ICMP6, 135) => 136,
        (ICMP6, 136) => 135,
        _ => 255,
    }
}
