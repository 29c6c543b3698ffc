//! What a device between two ports did with attacks that left as prepared frames: the octets that
//! arrived behind it, held against those that were sent.
//!
//! The receiving queues count, for each direction of each attack, frames and octets of payload. A
//! device may put fragments together or cut what was whole, and may change who sends: attacks are
//! known by their addresses as far as no other has them.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use squall_attacks::{End, Label};
use squall_engine::{Frames, MakeSink, Outcome, PortRx, Shown, Sink};
use squall_measure::flow::{Fragment, Headers, Link, protocol};
use squall_port::RxBatch;
use squall_units::Nanos;

/// Who sends what to whom. Fragments have no ports: the first may have them, the others do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Way {
    protocol: u8,
    source: (IpAddr, u16),
    destination: (IpAddr, u16),
}

/// What was sent, or has arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub frames: u64,
    /// Of payloads.
    pub octets: u64,
    /// The sum of the payloads' hashes, whatever their order.
    digest: u64,
}

impl Tally {
    fn add(&mut self, other: Tally) {
        self.frames += other.frames;
        self.octets += other.octets;
        self.digest = self.digest.wrapping_add(other.digest);
    }
}

/// A frame's way, and what it adds to the tally; `None`: no IP.
fn read(octets: &[u8]) -> Option<(Way, Tally)> {
    let mut headers = Headers::parse(octets, Link::Ethernet);
    let mut octets = octets;
    // What goes through a tunnel is known by its own addresses (RFC 2784, without key and
    // checksum).
    if headers.key.protocol == protocol::GRE && headers.fragment == Fragment::Whole {
        let inner = octets.get(headers.transport as usize + 4..headers.end as usize)?;
        (headers, octets) = (Headers::parse(inner, Link::Raw), inner);
    }
    let key = headers.key;
    let whole = headers.fragment == Fragment::Whole;
    let port = |port: u16| if whole { port } else { 0 };
    let way = Way {
        protocol: key.protocol,
        source: (key.src_ip()?, port(key.src_port)),
        destination: (key.dst_ip()?, port(key.dst_port)),
    };
    let (transport, end) = (headers.transport as usize, headers.end as usize);
    // Behind the transport's header, wherever a fragment cut it.
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
    Some((way, Tally { frames: 1, octets: payload.len() as u64, digest }))
}

/// Where a fragment's octets stand in the packet; of IPv6 only whether it is the first is known.
fn offset(octets: &[u8], headers: &Headers) -> usize {
    let at = headers.network as usize + 6;
    match (headers.key.version, octets.get(at..at + 2)) {
        (4, Some(&[high, low])) => usize::from(u16::from_be_bytes([high & 0x1f, low])) * 8,
        _ if headers.fragment == Fragment::First => 0,
        _ => usize::from(u16::MAX),
    }
}

/// FNV-1a.
fn hash(octets: &[u8]) -> u64 {
    octets.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &octet| {
        (hash ^ u64::from(octet)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// What attacks are made of, as they leave.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    places: HashMap<Way, u32>,
    /// By protocol and addresses, and by protocol and receiver: a way of the one attack that has
    /// them; `None`: several do.
    pairs: HashMap<(u8, IpAddr, IpAddr), Option<u32>>,
    receivers: HashMap<(u8, IpAddr), Option<u32>>,
    ways: Vec<SentWay>,
    /// Attacks that leave as frames.
    attacks: Vec<Framed>,
}

#[derive(Debug)]
struct SentWay {
    from: End,
    /// Which attack's, by its label.
    label: usize,
    tally: Tally,
}

/// An attack that leaves as frames.
#[derive(Clone, Debug)]
struct Framed {
    /// Place of its last label, which names the rule.
    label: usize,
    ways: Vec<u32>,
}

impl Sent {
    /// Takes the frames of one attack, of which the last label stands at `label`.
    pub fn add<'a>(&mut self, label: usize, frames: impl Iterator<Item = (End, &'a [u8])>) {
        let mut ways = Vec::new();
        for (from, octets) in frames {
            let Some((way, tally)) = read(octets) else { continue };
            let place = self.place(way, from, label);
            self.ways[place as usize].tally.add(tally);
            if !ways.contains(&place) {
                ways.push(place);
            }
        }
        self.attacks.push(Framed { label, ways });
    }

    fn place(&mut self, way: Way, from: End, label: usize) -> u32 {
        if let Some(&place) = self.places.get(&way) {
            return place;
        }
        let place = self.ways.len() as u32;
        self.places.insert(way, place);
        self.ways.push(SentWay { from, label, tally: Tally::default() });
        let ways = &self.ways;
        let same = |known: &u32| ways[*known as usize].label == label;
        let pair = self
            .pairs
            .entry((way.protocol, way.source.0, way.destination.0))
            .or_insert(Some(place));
        *pair = pair.filter(same);
        let receiver =
            self.receivers.entry((way.protocol, way.destination.0)).or_insert(Some(place));
        *receiver = receiver.filter(same);
        place
    }

    pub fn is_empty(&self) -> bool {
        self.ways.is_empty()
    }

    fn find(&self, way: &Way, from: End) -> Option<u32> {
        let (source, destination) = (way.source.0, way.destination.0);
        let known = self.places.get(way).copied();
        let of_pair = || self.pairs.get(&(way.protocol, source, destination)).copied();
        let place = known.or_else(|| match of_pair() {
            Some(place) => place,
            None => self.receivers.get(&(way.protocol, destination)).copied().flatten(),
        })?;
        (self.ways[place as usize].from == from).then_some(place)
    }
}

/// What arrives at both ports.
#[derive(Clone, Debug)]
pub struct Heard {
    sent: Arc<Sent>,
    tallies: Tallies,
}

/// By way.
#[derive(Clone, Debug, Default)]
struct Tallies(HashMap<u32, Tally>);

/// What became of an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    Passed,
    /// As many octets, and others.
    Altered,
    /// Some of it.
    Partly,
    Nothing,
}

impl Heard {
    pub(crate) fn of(sent: Arc<Sent>) -> Self {
        Heard { sent, tallies: Tallies::default() }
    }

    /// What takes the frames of the port where the other end of `from` stands.
    pub(crate) fn sinks(&self, from: End) -> MakeSink {
        let sent = self.sent.clone();
        Arc::new(move |_queue| Box::new(Listener::new(sent.clone(), from)))
    }

    /// Adds what was heard at all queues of a run.
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

    /// Attacks that left as frames, each with what became of it, until `end`.
    pub(crate) fn attacks<'a>(
        &'a self,
        labels: &'a [Label],
        end: Nanos,
    ) -> impl Iterator<Item = (&'a Label, Passage)> + 'a {
        let whole =
            move |framed: &&Framed| labels.get(framed.label).is_some_and(|label| label.end <= end);
        self.sent
            .attacks
            .iter()
            .filter(whole)
            .map(|framed| (&labels[framed.label], self.passage(&framed.ways)))
    }

    /// By what carries octets; where nothing does, by the frames. Each direction for itself.
    fn passage(&self, ways: &[u32]) -> Passage {
        let mut both =
            [End::Client, End::Server].map(|from| (from, Tally::default(), Tally::default()));
        for &place in ways {
            let way = &self.sent.ways[place as usize];
            for (_, sent, heard) in both.iter_mut().filter(|(from, ..)| *from == way.from) {
                sent.add(way.tally);
                heard.add(self.tally(place));
            }
        }
        let carries = both.iter().any(|(_, sent, _)| sent.octets > 0);
        let measure = |tally: &Tally| if carries { tally.octets } else { tally.frames };
        let decisive = || {
            both.iter()
                .filter(|(_, sent, _)| measure(sent) > 0)
                .map(|(_, sent, heard)| (sent, heard))
        };
        if decisive().all(|(sent, heard)| measure(heard) >= measure(sent)) {
            let is_other = |(sent, heard): (&Tally, &Tally)| {
                (sent.frames, sent.octets) == (heard.frames, heard.octets)
                    && sent.digest != heard.digest
            };
            return if decisive().any(is_other) { Passage::Altered } else { Passage::Passed };
        }
        if decisive().any(|(_, heard)| measure(heard) > 0) {
            Passage::Partly
        } else {
            Passage::Nothing
        }
    }
}

/// Counts what one receiving queue gives.
struct Listener {
    sent: Arc<Sent>,
    from: End,
    tallies: Tallies,
}

impl Listener {
    fn new(sent: Arc<Sent>, from: End) -> Self {
        Self { sent, from, tallies: Tallies::default() }
    }

    fn hear(&mut self, frames: &RxBatch<'_>) {
        for (octets, frame) in frames.iter() {
            if frame.outgoing {
                continue;
            }
            let Some((way, mut tally)) = read(octets) else { continue };
            let Some(place) = self.sent.find(&way, self.from) else { continue };
            tally.frames = frame.cut.segments(frame.wire_len).into();
            self.tallies.0.entry(place).or_default().add(tally);
        }
    }
}

impl Sink for Listener {
    fn take(&mut self, frames: &mut Frames<'_>) {
        self.hear(&frames.batch());
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
        let says = |from, text: &str| Turn::new(from, Octets::from(text));
        let turns = vec![
            says(End::Client, "squall asks, and asks at some length"),
            says(End::Server, "yes"),
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

    fn heard(sent: &[wire::Frame]) -> Heard {
        let mut all = Sent::default();
        all.add(0, sent.iter().map(|frame| (frame.from, frame.octets.as_slice())));
        Heard::of(Arc::new(all))
    }

    /// The device hands on `frames`, each at the port of the other end.
    fn arrive(heard: &mut Heard, frames: &[wire::Frame]) {
        for from in [End::Client, End::Server] {
            let mut listener = Listener::new(heard.sent.clone(), from);
            for frame in frames.iter().filter(|frame| frame.from == from) {
                let len = frame.octets.len() as u32;
                let one = RxFrame { len, wire_len: len, ..RxFrame::default() };
                listener.hear(&RxBatch { base: &frame.octets, frames: &[one] });
            }
            heard.add(listener.tallies);
        }
    }

    #[test]
    fn what_arrives_decides_whether_an_attack_passed() {
        let sent = frames(Transport::Udp, &wire::Settings::default());
        let passage = |arrives: &[wire::Frame]| {
            let mut heard = heard(&sent);
            arrive(&mut heard, arrives);
            heard.passage(&heard.sent.attacks[0].ways)
        };
        assert_eq!(passage(&sent), Passage::Passed);
        assert_eq!(passage(&sent[..1]), Passage::Partly);
        assert_eq!(passage(&[]), Passage::Nothing);
        let mut other = sent.clone();
        *other[0].octets.last_mut().unwrap() ^= 1;
        assert_eq!(passage(&other), Passage::Altered);
        // What comes back to where it was sent from has not passed.
        let back: Vec<_> =
            sent.iter().map(|f| wire::Frame { from: f.from.other(), ..f.clone() }).collect();
        assert_eq!(passage(&back), Passage::Nothing);
    }

    #[test]
    fn a_connection_without_what_it_carries_has_not_passed() {
        let sent = frames(Transport::Tcp, &wire::Settings::default());
        let mut heard = heard(&sent);
        let without: Vec<_> =
            sent.iter().filter(|frame| frame.octets.len() < 80).cloned().collect();
        assert!(without.len() > 4);
        arrive(&mut heard, &without);
        assert_eq!(heard.passage(&heard.sent.attacks[0].ways), Passage::Partly);
    }

    #[test]
    fn fragments_that_a_device_puts_together_have_passed() {
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
            let mut heard = heard(&sent);
            arrive(&mut heard, &frames(transport, &wire::Settings::default()));
            assert_eq!(
                heard.passage(&heard.sent.attacks[0].ways),
                Passage::Passed,
                "{transport:?}"
            );
        }
    }

    #[test]
    fn a_tunnel_and_another_sender_are_seen_through() {
        let gre = wire::Gre {
            source: "192.0.2.1".parse().unwrap(),
            destination: "192.0.2.2".parse().unwrap(),
        };
        let inside = frames(Transport::Udp, &wire::Settings::default());
        let outside = frames(
            Transport::Udp,
            &wire::Settings { gre: Some(gre), vlans: vec![7], ..Default::default() },
        );
        let mut heard = heard(&outside);
        arrive(&mut heard, &inside);
        assert_eq!(heard.passage(&heard.sent.attacks[0].ways), Passage::Passed);
        let way = Way {
            protocol: 17,
            source: ("203.0.113.9".parse().unwrap(), 1),
            destination: ("10.1.0.1".parse().unwrap(), 9000),
        };
        assert!(heard.sent.find(&way, End::Client).is_some());
        assert!(heard.sent.find(&way, End::Server).is_none());
    }
}
