//! Compares the attacks sent as prepared frames to the frames that arrive, after a device between
//! two ports.
//!
//! Receive queues count frames and payload octets for each direction of each attack. A device may
//! reassemble fragments, fragment packets, or translate the sender's address (NAT), so an attack is
//! also identified by its pair of addresses or by its receiver, if no other attack shares them.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use squall_attacks::{End, Label};
use squall_engine::{Frames, MakeSink, Outcome, PortRx, Shown, Sink};
use squall_measure::flow::{Fragment, Headers, Link, protocol};
use squall_port::RxBatch;
use squall_units::Nanos;

use crate::hosts::is_cut_short;

/// Protocol and endpoints of one direction. Ports are 0 for fragments, because only the first
/// fragment has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Flow {
    protocol: u8,
    source: (IpAddr, u16),
    destination: (IpAddr, u16),
}

/// Counts of frames and payload, sent or received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub frames: u64,
    /// Octets of payload.
    pub octets: u64,
    /// Sum of the payloads' hashes, which is independent of the order of frames.
    digest: u64,
}

impl Tally {
    fn add(&mut self, other: Tally) {
        self.frames += other.frames;
        self.octets += other.octets;
        self.digest = self.digest.wrapping_add(other.digest);
    }
}

/// Parses a frame. Returns its flow, and a tally for this frame alone. `None` if it is not IP.
fn read(octets: &[u8]) -> Option<(Flow, Tally)> {
    let mut headers = Headers::parse(octets, Link::Ethernet);
    let mut octets = octets;
    // A tunneled packet is identified by its inner addresses (RFC 2784, without key and checksum).
    if headers.key.protocol == protocol::GRE && headers.fragment == Fragment::Whole {
        let inner = octets.get(headers.transport as usize + 4..headers.end as usize)?;
        (headers, octets) = (Headers::parse(inner, Link::Raw), inner);
    }
    let key = headers.key;
    let whole = headers.fragment == Fragment::Whole;
    let port = |port: u16| if whole { port } else { 0 };
    let flow = Flow {
        protocol: key.protocol,
        source: (key.src_ip()?, port(key.src_port)),
        destination: (key.dst_ip()?, port(key.dst_port)),
    };
    let (transport, end) = (headers.transport as usize, headers.end as usize);
    // Skip the transport header, even if a fragment boundary splits it.
    let from = match (key.protocol, whole) {
        (protocol::TCP | protocol::UDP, true) => headers.payload as usize,
        (protocol::ICMP | protocol::ICMPV6, true) => transport + 8,
        (_, true) => transport,
        (of, false) => {
            let header = if of == protocol::TCP { 20 } else { 8 };
            transport + header.max(offset(octets, &headers)) - offset(octets, &headers)
        }
    };
    let payload = octets.get(from.min(end)..end)?;
    let digest = hash(payload);
    Some((flow, Tally { frames: 1, octets: payload.len() as u64, digest }))
}

/// Offset of a fragment in its packet. For IPv6, it is only known whether it is the first fragment.
fn offset(octets: &[u8], headers: &Headers) -> usize {
    let at = headers.network as usize + 6;
    match (headers.key.version, octets.get(at..at + 2)) {
        (4, Some(&[high, low])) => usize::from(u16::from_be_bytes([high & 0x1f, low])) * 8,
        _ if headers.fragment == Fragment::First => 0,
        _ => usize::from(u16::MAX),
    }
}

/// The FNV-1a hash.
fn hash(octets: &[u8]) -> u64 {
    octets.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &octet| {
        (hash ^ u64::from(octet)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The attacks as sent.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    places: HashMap<Flow, u32>,
    /// The flow with this protocol and pair of addresses, or with this protocol and receiver, if it
    /// belongs to a single attack. `None` if several attacks share them.
    pairs: HashMap<(u8, IpAddr, IpAddr), Option<u32>>,
    receivers: HashMap<(u8, IpAddr), Option<u32>>,
    /// The same by sender, for attacks whose receivers are hosts.
    senders: HashMap<(u8, IpAddr), Option<u32>>,
    flows: Vec<SentFlow>,
    /// Attacks sent as frames.
    attacks: Vec<Framed>,
}

#[derive(Debug)]
struct SentFlow {
    flow: Flow,
    from: End,
    /// Index of its attack's label.
    label: usize,
    tally: Tally,
}

/// An attack that was sent as frames.
#[derive(Clone, Debug)]
struct Framed {
    /// Index of its last label, which has the rule.
    label: usize,
    /// The end that has an address of its own, if the other one is a host.
    own: Option<End>,
    flows: Vec<u32>,
}

impl Sent {
    /// Adds the frames of one attack, whose last label has index `label`. If one end is a host,
    /// whose address is not known yet, `own` is the other one.
    pub fn add<'a>(
        &mut self,
        label: usize,
        own: Option<End>,
        frames: impl Iterator<Item = (End, &'a [u8])>,
    ) {
        let mut flows = Vec::new();
        for (from, octets) in frames {
            let Some((flow, tally)) = read(octets) else { continue };
            let place = self.place(flow, from, own, label);
            self.flows[place as usize].tally.add(tally);
            if !flows.contains(&place) {
                flows.push(place);
            }
        }
        self.attacks.push(Framed { label, own, flows });
    }

    fn place(&mut self, flow: Flow, from: End, own: Option<End>, label: usize) -> u32 {
        if let Some(&place) = self.places.get(&flow) {
            return place;
        }
        let place = self.flows.len() as u32;
        self.places.insert(flow, place);
        self.flows.push(SentFlow { flow, from, label, tally: Tally::default() });
        let flows = &self.flows;
        let same = |known: &u32| flows[*known as usize].label == label;
        if own == Some(from) {
            let sender = self.senders.entry((flow.protocol, flow.source.0)).or_insert(Some(place));
            *sender = sender.filter(same);
            return place;
        }
        let pair = self
            .pairs
            .entry((flow.protocol, flow.source.0, flow.destination.0))
            .or_insert(Some(place));
        *pair = pair.filter(same);
        let receiver =
            self.receivers.entry((flow.protocol, flow.destination.0)).or_insert(Some(place));
        *receiver = receiver.filter(same);
        place
    }

    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    fn find(&self, flow: &Flow, from: End) -> Option<u32> {
        let (source, destination) = (flow.source.0, flow.destination.0);
        let known = self.places.get(flow).copied();
        let of_pair = || self.pairs.get(&(flow.protocol, source, destination)).copied();
        let place = known.or_else(|| match of_pair() {
            Some(place) => place,
            None => {
                let of = |ends: &HashMap<(u8, IpAddr), Option<u32>>, address| {
                    ends.get(&(flow.protocol, address)).copied().flatten()
                };
                of(&self.receivers, destination).or_else(|| of(&self.senders, source))
            }
        })?;
        (self.flows[place as usize].from == from).then_some(place)
    }

    /// Whether frames of the attack are recognized: if one end is a host, only if no other attack
    /// has the address of the other end.
    fn is_recognized(&self, attack: &Framed) -> bool {
        attack.own.is_none_or(|own| {
            attack.flows.iter().map(|place| &self.flows[*place as usize]).all(|sent| {
                let (ends, address) = match sent.from == own {
                    true => (&self.senders, sent.flow.source.0),
                    false => (&self.receivers, sent.flow.destination.0),
                };
                ends.get(&(sent.flow.protocol, address)).is_some_and(Option::is_some)
            })
        })
    }
}

/// Counts the frames received at both ports.
#[derive(Clone, Debug)]
pub struct PassageChecker {
    sent: Arc<Sent>,
    tallies: Tallies,
}

/// Tallies by flow.
#[derive(Clone, Debug, Default)]
struct Tallies(HashMap<u32, Tally>);

/// The effect of a device on an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    Passed,
    /// All octets arrived, but with other contents.
    Altered,
    /// Only some octets arrived.
    Partly,
    Nothing,
}

impl PassageChecker {
    pub(crate) fn of(sent: Arc<Sent>) -> Self {
        PassageChecker { sent, tallies: Tallies::default() }
    }

    /// Makes sinks for the port opposite to that of `from`.
    pub(crate) fn sinks(&self, from: End) -> MakeSink {
        let sent = self.sent.clone();
        Arc::new(move |_queue| Box::new(Listener::new(sent.clone(), from)))
    }

    /// Adds the tallies from all receive queues of a run.
    pub fn collect(&mut self, outcome: &mut Outcome) {
        outcome.take().into_iter().for_each(|tallies| self.add(tallies));
    }

    fn add(&mut self, Tallies(all): Tallies) {
        for (place, tally) in all {
            self.tallies.0.entry(place).or_default().add(tally);
        }
    }

    fn tally(&self, place: u32) -> Tally {
        self.tallies.0.get(&place).copied().unwrap_or_default()
    }

    /// The attacks that ended by `end`, each with the effect of the device on it. Attacks that
    /// ended early, or that are not recognized, are left out.
    pub(crate) fn attacks<'a>(
        &'a self,
        labels: &'a [Label],
        end: Nanos,
    ) -> impl Iterator<Item = (&'a Label, Passage)> + 'a {
        let whole = move |framed: &&Framed| {
            let label = labels.get(framed.label);
            label.is_some_and(|label| label.end <= end && !is_cut_short(label))
                && self.sent.is_recognized(framed)
        };
        self.sent
            .attacks
            .iter()
            .filter(whole)
            .map(|framed| (&labels[framed.label], self.passage(&framed.flows)))
    }

    /// Compares the octets of payload or, if no payload was sent, the frames. Each direction is
    /// evaluated separately.
    fn passage(&self, flows: &[u32]) -> Passage {
        let mut both =
            [End::Client, End::Server].map(|from| (from, Tally::default(), Tally::default()));
        for &place in flows {
            let flow = &self.sent.flows[place as usize];
            for (_, sent, received) in both.iter_mut().filter(|(from, ..)| *from == flow.from) {
                sent.add(flow.tally);
                received.add(self.tally(place));
            }
        }
        let carries = both.iter().any(|(_, sent, _)| sent.octets > 0);
        let measure = |tally: &Tally| if carries { tally.octets } else { tally.frames };
        let decisive = || {
            both.iter()
                .filter(|(_, sent, _)| measure(sent) > 0)
                .map(|(_, sent, received)| (sent, received))
        };
        if decisive().all(|(sent, received)| measure(received) >= measure(sent)) {
            let is_other = |(sent, received): (&Tally, &Tally)| {
                (sent.frames, sent.octets) == (received.frames, received.octets)
                    && sent.digest != received.digest
            };
            return if decisive().any(is_other) { Passage::Altered } else { Passage::Passed };
        }
        if decisive().any(|(_, received)| measure(received) > 0) {
            Passage::Partly
        } else {
            Passage::Nothing
        }
    }
}

/// Counts the frames of one receive queue.
struct Listener {
    sent: Arc<Sent>,
    from: End,
    tallies: Tallies,
}

impl Listener {
    fn new(sent: Arc<Sent>, from: End) -> Self {
        Self { sent, from, tallies: Tallies::default() }
    }

    fn count(&mut self, frames: &RxBatch<'_>) {
        for (octets, frame) in frames.iter() {
            if frame.outgoing {
                continue;
            }
            let Some((flow, mut tally)) = read(octets) else { continue };
            let Some(place) = self.sent.find(&flow, self.from) else { continue };
            tally.frames = frame.cut.segments(frame.wire_len).into();
            self.tallies.0.entry(place).or_default().add(tally);
        }
    }
}

impl Sink for Listener {
    fn take(&mut self, frames: &mut Frames<'_>) {
        self.count(&frames.batch());
    }

    fn leave(&mut self, _into: &mut PortRx) -> Option<Shown> {
        Some(Box::new(std::mem::take(&mut self.tallies)))
    }
}

#[cfg(test)]
mod tests {
    use squall_attacks::{Exchange, Octets, Transport, Turn, wire};
    use squall_port::RxFrame;

    use super::*;

    fn frames(transport: Transport, settings: &wire::Settings) -> Vec<wire::Frame> {
        let turn = |from, text: &str| Turn::new(from, Octets::from(text));
        let turns = vec![
            turn(End::Client, "squall asks, and asks at some length"),
            turn(End::Server, "yes"),
        ];
        let exchange = Exchange {
            transport,
            client_port: 40_000,
            server_port: 9000,
            turns,
            same_address: false,
            ip_version: None,
        };
        let ends = wire::Endpoints {
            client: "198.18.0.1".parse().unwrap(),
            server: "10.1.0.1".parse().unwrap(),
            client_mac: [2, 0, 0, 0, 0, 1],
            server_mac: [2, 0, 0, 0, 0, 2],
        };
        wire::frames(&exchange, &ends, settings).unwrap()
    }

    fn received(sent: &[wire::Frame]) -> PassageChecker {
        let mut all = Sent::default();
        all.add(0, None, sent.iter().map(|frame| (frame.from, frame.octets.as_slice())));
        PassageChecker::of(Arc::new(all))
    }

    /// Delivers `frames` like a device: each at the port opposite to its sender's.
    fn arrive(received: &mut PassageChecker, frames: &[wire::Frame]) {
        for from in [End::Client, End::Server] {
            let mut listener = Listener::new(received.sent.clone(), from);
            for frame in frames.iter().filter(|frame| frame.from == from) {
                let len = frame.octets.len() as u32;
                let one = RxFrame { len, wire_len: len, ..RxFrame::default() };
                listener.count(&RxBatch { base: &frame.octets, frames: &[one] });
            }
            received.add(listener.tallies);
        }
    }

    #[test]
    fn received_frames_decide_whether_an_attack_passed() {
        let sent = frames(Transport::Udp, &wire::Settings::default());
        let passage = |arrives: &[wire::Frame]| {
            let mut received = received(&sent);
            arrive(&mut received, arrives);
            received.passage(&received.sent.attacks[0].flows)
        };
        assert_eq!(passage(&sent), Passage::Passed);
        assert_eq!(passage(&sent[..1]), Passage::Partly);
        assert_eq!(passage(&[]), Passage::Nothing);
        let mut other = sent.clone();
        *other[0].octets.last_mut().unwrap() ^= 1;
        assert_eq!(passage(&other), Passage::Altered);
        // Frames that return to the port on which they were sent have not passed.
        let back: Vec<_> =
            sent.iter().map(|f| wire::Frame { from: f.from.other(), ..f.clone() }).collect();
        assert_eq!(passage(&back), Passage::Nothing);
    }

    #[test]
    fn a_connection_without_its_payload_has_not_passed() {
        let sent = frames(Transport::Tcp, &wire::Settings::default());
        let mut received = received(&sent);
        let without: Vec<_> =
            sent.iter().filter(|frame| frame.octets.len() < 80).cloned().collect();
        assert!(without.len() > 4);
        arrive(&mut received, &without);
        assert_eq!(received.passage(&received.sent.attacks[0].flows), Passage::Partly);
    }

    #[test]
    fn fragments_that_a_device_reassembles_have_passed() {
        let pieces = wire::Settings {
            evasions: vec![squall_attacks::Evasion::Fragments(8)],
            ..wire::Settings::default()
        };
        for transport in [Transport::Udp, Transport::Tcp] {
            let sent = frames(transport, &pieces);
            let mut octets = [0, 0];
            for set in [&sent, &frames(transport, &wire::Settings::default())] {
                let all: u64 =
                    set.iter().filter_map(|frame| Some(read(&frame.octets)?.1.octets)).sum();
                octets.rotate_left(1);
                octets[1] = all;
            }
            assert_eq!(octets[0], octets[1], "{transport:?}");
            let mut received = received(&sent);
            arrive(&mut received, &frames(transport, &wire::Settings::default()));
            assert_eq!(
                received.passage(&received.sent.attacks[0].flows),
                Passage::Passed,
                "{transport:?}"
            );
        }
    }

    #[test]
    fn tunneled_packets_and_translated_senders_are_recognized() {
        let gre = wire::Gre {
            source: "192.0.2.1".parse().unwrap(),
            destination: "192.0.2.2".parse().unwrap(),
        };
        let inside = frames(Transport::Udp, &wire::Settings::default());
        let outside = frames(
            Transport::Udp,
            &wire::Settings { gre: Some(gre), vlans: vec![7], ..Default::default() },
        );
        let mut received = received(&outside);
        arrive(&mut received, &inside);
        assert_eq!(received.passage(&received.sent.attacks[0].flows), Passage::Passed);
        let flow = Flow {
            protocol: 17,
            source: ("203.0.113.9".parse().unwrap(), 1),
            destination: ("10.1.0.1".parse().unwrap(), 9000),
        };
        assert!(received.sent.find(&flow, End::Client).is_some());
        assert!(received.sent.find(&flow, End::Server).is_none());
    }
}
