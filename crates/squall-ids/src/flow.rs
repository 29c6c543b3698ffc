//! Who talks to whom, and what was seen of it.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use squall_rules::{Application, End};
use squall_units::Nanos;

use crate::bits::FlowBits;
use crate::packet::{Embedded, ICMP, ICMP6, Packet, SCTP, TCP, UDP};
use crate::protocols::{Reader, Transaction};
use crate::stream::Session;

/// Flows that are followed, at most: the oldest is finished then.
const FLOWS: usize = 1 << 18;

/// Protocol, VLAN, both ends with the lesser first.
pub(crate) type Key = (u8, u32, (IpAddr, u16), (IpAddr, u16));

pub(crate) struct Flow {
    /// No other flow's.
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
    /// By [`End`], as all pairs here.
    pub packets: [u64; 2],
    pub octets: [u64; 2],
    pub session: Option<Session>,
    pub application: Spoken,
    pub reader: Option<Box<dyn Reader + Send>>,
    pub transactions: Vec<Transaction>,
    pub looked: Vec<Looked>,
    /// Rules whose headers are those of packets of this direction, in their order; known from the
    /// first such packet on.
    pub candidates: [Option<std::sync::Arc<Candidates>>; 2],
    pub addresses_done: [bool; 2],
    /// A rule has let it pass.
    pub passed: bool,
    pub bits: FlowBits,
    /// First octets, until it is known what is spoken.
    pub begun: [Vec<u8>; 2],
}

/// What was found of one transaction.
#[derive(Default)]
pub(crate) struct Looked {
    /// What it was like when rules were last looked for, of each direction.
    pub like: [Option<(usize, usize, [bool; 2])>; 2],
    /// By direction and rule: what of it has matched so far.
    pub rules: HashMap<(End, usize), Partly>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Partly {
    /// All of it: it is not looked for again.
    pub done: bool,
    pub header: bool,
    pub payload: bool,
    /// Bits by index of the looks that have matched.
    pub looks: u64,
    pub variables: Vec<u64>,
}

/// Indexes into the engine's rules.
#[derive(Default)]
pub(crate) struct Candidates {
    pub of_packets: Vec<u32>,
    pub of_transactions: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spoken {
    NotKnownYet,
    /// Nothing that is known.
    Nothing,
    Is(Application),
}

impl Spoken {
    pub fn application(self) -> Option<Application> {
        match self {
            Spoken::Is(application) => Some(application),
            _ => None,
        }
    }
}

impl Flow {
    /// Who of both ends has sent `packet`.
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

    /// Transactions of which `from` has sent something that was not looked at.
    pub fn has_news(&self, from: End) -> bool {
        self.transactions.iter().enumerate().any(|(index, transaction)| {
            self.looked.get(index).and_then(|looked| looked.like[from as usize])
                != Some(like(transaction))
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

/// What tells whether a transaction has changed.
pub(crate) fn like(transaction: &Transaction) -> (usize, usize, [bool; 2]) {
    (transaction.buffers.len(), transaction.facts.len(), transaction.done)
}

#[derive(Default)]
pub(crate) struct Flows {
    places: HashMap<Key, usize>,
    flows: Vec<Option<Box<Flow>>>,
    free: Vec<usize>,
    /// In the order in which they began.
    order: VecDeque<(usize, u64)>,
    made: u64,
}

impl Flows {
    /// Takes the flow of `packet` out, or makes it. `None`: the packet has none. To be put back.
    pub fn take(&mut self, packet: &Packet) -> Option<(usize, Box<Flow>)> {
        if packet.is_icmp_error() {
            // It belongs to the flow that it is about, and makes none.
            let place = *self.places.get(&embedded_key(packet, &packet.icmp?.about?))?;
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
            application: Spoken::NotKnownYet,
            reader: None,
            transactions: vec![],
            looked: vec![],
            candidates: [None, None],
            addresses_done: [false; 2],
            passed: false,
            bits: FlowBits::default(),
            begun: [vec![], vec![]],
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

    /// Forgets the flow that was taken from `place`.
    pub fn forget(&mut self, place: usize, flow: &Flow) {
        self.places.remove(&flow.key);
        self.free.push(place);
    }

    /// The flow that has to go, if there are too many; all of them in turn, if `all`.
    pub fn oldest(&mut self, all: bool) -> Option<Box<Flow>> {
        while all || self.places.len() > FLOWS {
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

fn embedded_key(packet: &Packet, about: &Embedded) -> Key {
    ordered(
        about.protocol,
        packet.vlan,
        (about.source, about.source_port),
        (about.destination, about.destination_port),
    )
}

fn ordered(protocol: u8, vlan: u32, one: (IpAddr, u16), other: (IpAddr, u16)) -> Key {
    (protocol, vlan, one.min(other), one.max(other))
}

/// What answers a kind of ICMP message, and what is answered by it; 255: nothing.
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
