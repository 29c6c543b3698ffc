//! The packets of a conversation.

use squall_rules::End;
use squall_units::{Nanos, mix};
use squall_wire::tcp_flags::{ACK, FIN, PSH, RST, SYN};

use super::packet::{DONT, Head, Ip, Packet, Segment, Writer};
use super::{Error, Settings};
use crate::{Evasion, Exchange, Shape, Transport, Turn, evade};

/// Windows that Linux advertises: in a SYN, and in later segments with a scale of 7.
const FIRST_WINDOW: u16 = 64_240;
const WINDOW: u16 = 502;
const WINDOW_SCALE: u8 = 7;

/// Keys for the values drawn from the seed.
mod seeds {
    pub const SEQUENCE: u64 = 0;
    pub const IP_ID: u64 = 2;
    pub const ECHO_ID: u64 = 4;
    pub const STAMP: u64 = 6;
}

/// All packets of the conversation in order.
pub(super) fn packets(exchange: &Exchange, writer: &Writer<'_>) -> Result<Vec<Packet>, Error> {
    let mut conversation = Conversation::new(exchange, writer)?;
    match exchange.transport {
        Transport::Tcp => {
            conversation.connection(exchange);
            conversation.packets = evade::apply(conversation.packets, &writer.settings.evasions);
        }
        Transport::Segments => exchange.turns.iter().for_each(|turn| conversation.segment(turn)),
        Transport::Udp => {
            exchange.turns.iter().for_each(|turn| conversation.datagram(turn, Head::Udp))
        }
        Transport::Ip(protocol) => {
            exchange.turns.iter().for_each(|turn| conversation.datagram(turn, Head::None(protocol)))
        }
        Transport::Icmp => {
            for (i, turn) in exchange.turns.iter().enumerate() {
                let head = conversation.icmp(i, turn);
                let payload = match head {
                    Head::Icmp { kind, .. } if is_error(kind, writer.is_ipv4()) => {
                        writer.quoted(turn)
                    }
                    _ => turn.octets.bytes().to_vec(),
                };
                conversation.push(turn.from, head, payload, &turn.shape);
            }
        }
    }
    Ok(conversation.packets)
}

struct Conversation<'a> {
    writer: &'a Writer<'a>,
    packets: Vec<Packet>,
    /// The client's side and the server's side.
    sides: [Side; 2],
    echo_id: u16,
    behavior: Behavior,
}

/// Properties of a connection that evasions change.
struct Behavior {
    /// Maximum number of octets in a payload.
    most: usize,
    /// Segments per acknowledgment.
    every: usize,
    /// Window in the SYN, window in later segments, and scale, for both ends.
    windows: (u16, u16, u8),
    stamps: bool,
    nothing: &'static [u8],
    extensions: bool,
}

impl Behavior {
    fn of(settings: &Settings) -> Self {
        let evasions = &settings.evasions;
        let stamps = settings.timestamps || evasions.contains(&Evasion::PawsDecoy);
        let mut behavior = Behavior {
            most: usize::from(settings.mss.saturating_sub(if stamps { 12 } else { 0 }).max(1)),
            // Every second segment (RFC 9293 §3.8.6.3). Reordering needs several segments between
            // two acknowledgments.
            every: if evasions.contains(&Evasion::Reorder) { 8 } else { 2 },
            windows: (FIRST_WINDOW, WINDOW, WINDOW_SCALE),
            stamps,
            // NOP options, which options of a rule may follow.
            nothing: if evasions.contains(&Evasion::Ipv4Options) { &[1, 1, 1, 1] } else { &[] },
            extensions: evasions.contains(&Evasion::Ipv6Extensions),
        };
        for evasion in evasions {
            match *evasion {
                Evasion::Segments(n) => behavior.most = behavior.most.min(n.into()),
                Evasion::Window(n) => {
                    behavior.most = behavior.most.min(n.into());
                    behavior.every = 1;
                    behavior.windows = (n, n, 0);
                }
                _ => {}
            }
        }
        behavior
    }
}

/// The state of one end of the connection.
#[derive(Default)]
struct Side {
    /// The next sequence number.
    next: u32,
    /// The next IP identification.
    id: u32,
    /// The next timestamp, and the last one received.
    stamp: u32,
    echoed: u32,
    /// Whether it has sent a FIN.
    finished: bool,
    /// Value of the MSS option in its SYN.
    mss: u16,
    scale: u8,
}

impl<'a> Conversation<'a> {
    fn new(exchange: &Exchange, writer: &'a Writer<'a>) -> Result<Self, Error> {
        let settings = writer.settings;
        let behavior = Behavior::of(settings);
        let random = |what: u64, end: u64| mix(settings.seed, what + end) as u32;
        let mut sides = [0, 1].map(|end| Side {
            next: random(seeds::SEQUENCE, end),
            id: random(seeds::IP_ID, end),
            stamp: random(seeds::STAMP, end),
            mss: settings.mss,
            scale: behavior.windows.2,
            ..Side::default()
        });
        if exchange.transport == Transport::Tcp {
            for (side, required) in sides.iter_mut().zip(initial_sequences(exchange)?) {
                side.next = required.unwrap_or(side.next);
            }
        }
        for turn in &exchange.turns {
            let Shape { fragment_bits, fragment_offset, id, ip_options, mss, window_scale, .. } =
                &turn.shape;
            let side = &mut sides[index(turn.from)];
            side.mss = mss.unwrap_or(side.mss);
            side.scale = window_scale.unwrap_or(side.scale);
            let only = |what| Err(Error::OnlyIpv4 { what });
            match writer.is_ipv4() {
                false if !ip_options.is_empty() => return only("a header with options"),
                false if fragment_bits.is_some_and(|bits| bits & !1 != 0) => {
                    return only("a header with don't fragment or the reserved bit");
                }
                false
                    if id.is_some()
                        && fragment_bits.unwrap_or(0) == 0
                        && fragment_offset.unwrap_or(0) == 0 =>
                {
                    return only("a header with an identifier");
                }
                _ => {}
            }
        }
        let echo_id = random(seeds::ECHO_ID, 0) as u16;
        Ok(Conversation { writer, packets: vec![], sides, echo_id, behavior })
    }

    fn connection(&mut self, exchange: &Exchange) {
        use End::{Client, Server};
        let usual = Shape::default();
        self.tcp(Client, SYN, vec![], &usual);
        self.tcp(Server, SYN | ACK, vec![], &usual);
        self.tcp(Client, ACK, vec![], &usual);
        for turn in &exchange.turns {
            if self.turn(turn) {
                return;
            }
        }
        let first = if self.sides[1].finished { Server } else { Client };
        if !self.sides[index(first)].finished {
            self.tcp(first, FIN | ACK, vec![], &usual);
        }
        if !self.sides[index(first.other())].finished {
            self.tcp(first.other(), FIN | ACK, vec![], &usual);
            self.tcp(first, ACK, vec![], &usual);
        }
    }

    /// Sends a turn, including its acknowledgments. Returns whether it ended the connection.
    fn turn(&mut self, turn: &Turn) -> bool {
        let octets = turn.octets.bytes();
        let most = if turn.shape.whole { octets.len().max(1) } else { self.behavior.most };
        let count = octets.len().div_ceil(most).max(1);
        for i in 0..count {
            let piece = &octets[i * most..octets.len().min((i + 1) * most)];
            let last = i + 1 == count;
            let flags = match turn.shape.flags {
                // Only the last segment of a turn has these flags.
                Some(flags) if !last => flags & !(FIN | SYN | RST),
                Some(flags) => flags,
                None if last && !piece.is_empty() => PSH | ACK,
                None => ACK,
            };
            let shape = if i == 0 {
                turn.shape.clone()
            } else {
                Shape { pause_ns: 0, id: None, ..turn.shape.clone() }
            };
            self.tcp(turn.from, flags, piece.to_vec(), &shape);
            if flags & RST != 0 {
                return true;
            }
            if (!piece.is_empty() || flags & FIN != 0)
                && (last || (i + 1) % self.behavior.every == 0)
            {
                self.tcp(turn.from.other(), ACK, vec![], &Shape::default());
            }
        }
        false
    }

    /// Sends a segment of a connection.
    fn tcp(&mut self, from: End, flags: u8, payload: Vec<u8>, shape: &Shape) {
        let acknowledgment =
            if flags & ACK == 0 { 0 } else { self.sides[index(from.other())].next };
        let first = flags & SYN != 0;
        let segment = Segment {
            sequence: self.sides[index(from)].next,
            acknowledgment,
            flags,
            window: shape.window.unwrap_or(if first {
                self.behavior.windows.0
            } else {
                self.behavior.windows.1
            }),
            urgent: 0,
            options: self.options(from, first, flags & ACK != 0),
        };
        let side = &mut self.sides[index(from)];
        side.next = side.next.wrapping_add(span(&payload, flags));
        side.finished |= flags & FIN != 0;
        self.push(from, Head::Tcp(segment), payload, shape);
    }

    /// TCP options in the order in which Linux sends them.
    fn options(&mut self, from: End, first: bool, acknowledges: bool) -> Vec<u8> {
        const NOP: u8 = 1;
        let side = &mut self.sides[index(from)];
        let mut options = vec![];
        if first {
            options.extend_from_slice(&[2, 4]);
            options.extend_from_slice(&side.mss.to_be_bytes());
        }
        if self.behavior.stamps {
            options.extend_from_slice(if first { &[4, 2] } else { &[NOP, NOP] });
            let stamp = side.stamp;
            side.stamp = stamp.wrapping_add(1);
            options.extend_from_slice(&[8, 10]);
            options.extend_from_slice(&stamp.to_be_bytes());
            options.extend_from_slice(&(if acknowledges { side.echoed } else { 0 }).to_be_bytes());
            self.sides[index(from.other())].echoed = stamp;
        } else if first {
            options.extend_from_slice(&[NOP, NOP, 4, 2]);
        }
        if first {
            options.extend_from_slice(&[NOP, 3, 3, self.sides[index(from)].scale]);
        }
        options
    }

    /// Sends a segment outside of a connection.
    fn segment(&mut self, turn: &Turn) {
        let Shape { flags, sequence, acknowledgment, window, mss, window_scale, .. } = turn.shape;
        let flags = flags.unwrap_or(SYN);
        let peer = self.sides[index(turn.from.other())].next;
        let side = &mut self.sides[index(turn.from)];
        let sequence = sequence.unwrap_or(side.next);
        side.next = sequence.wrapping_add(span(turn.octets.bytes(), flags));
        let options = if flags & SYN != 0 || mss.is_some() || window_scale.is_some() {
            self.options(turn.from, true, flags & ACK != 0)
        } else {
            vec![]
        };
        let segment = Segment {
            sequence,
            acknowledgment: acknowledgment.unwrap_or(if flags & ACK == 0 { 0 } else { peer }),
            flags,
            window: window.unwrap_or(FIRST_WINDOW),
            urgent: 0,
            options,
        };
        self.push(turn.from, Head::Tcp(segment), turn.octets.bytes().to_vec(), &turn.shape);
    }

    /// The ICMP header of the `i`th turn. Echo messages have an identifier and a sequence number;
    /// others have zeros.
    fn icmp(&self, i: usize, turn: &Turn) -> Head {
        let shape = &turn.shape;
        let (request, reply) = if self.writer.is_ipv4() { (8, 0) } else { (128, 129) };
        let kind =
            shape.icmp_type.unwrap_or(if turn.from == End::Client { request } else { reply });
        let echo = kind == request || kind == reply;
        // A reply repeats the number of its request.
        let number = i as u16 / 2 + 1;
        Head::Icmp {
            kind,
            code: shape.icmp_code.unwrap_or(0),
            id: shape.icmp_id.unwrap_or(if echo { self.echo_id } else { 0 }),
            sequence: shape.icmp_sequence.unwrap_or(if echo { number } else { 0 }),
        }
    }

    fn datagram(&mut self, turn: &Turn, head: Head) {
        self.push(turn.from, head, turn.octets.bytes().to_vec(), &turn.shape);
    }

    fn push(&mut self, from: End, head: Head, payload: Vec<u8>, shape: &Shape) {
        let side = &mut self.sides[index(from)];
        let id = shape.id.map_or(side.id, u32::from);
        side.id = side.id.wrapping_add(1);
        let usual = if self.writer.is_ipv4() && matches!(head, Head::Tcp(_)) { DONT } else { 0 };
        // Fragments must not have DF set.
        let usual = if shape.fragment_offset.is_some_and(|offset| offset != 0) { 0 } else { usual };
        let ip = Ip {
            ttl: shape.ttl.unwrap_or(64),
            tos: shape.tos.unwrap_or(0),
            id,
            options: [self.behavior.nothing, &shape.ip_options].concat(),
            bits: shape.fragment_bits.unwrap_or(usual),
            offset: shape.fragment_offset.unwrap_or(0),
            extensions: self.behavior.extensions,
        };
        let (pause, whole) = (Nanos(shape.pause_ns), shape.whole);
        self.packets.push(Packet { from, pause, ip, head, payload, wrong_checksum: false, whole });
    }
}

/// Errors quote the packet that caused them (RFC 792, RFC 4443 §3).
fn is_error(kind: u8, ipv4: bool) -> bool {
    if ipv4 { matches!(kind, 3 | 4 | 5 | 11 | 12) } else { (1..=4).contains(&kind) }
}

/// Initial sequence numbers of both ends, chosen such that the first segment of a turn has the
/// number that the turn requires. `None` if no turn requires one.
fn initial_sequences(exchange: &Exchange) -> Result<[Option<u32>; 2], Error> {
    let mut initial = [None; 2];
    // The SYN occupies one sequence number.
    let mut sent = [1u32; 2];
    let require = |initial: &mut [Option<u32>; 2], end: End, required: u32, sent: u32, field| {
        let first = required.wrapping_sub(sent);
        match initial[index(end)].replace(first) {
            Some(before) if before != first => {
                Err(Error::Sequence { field, required, follows: before.wrapping_add(sent) })
            }
            _ => Ok(()),
        }
    };
    for turn in &exchange.turns {
        let other = turn.from.other();
        if let Some(required) = turn.shape.sequence {
            require(&mut initial, turn.from, required, sent[index(turn.from)], "sequence number")?;
        }
        if let Some(required) = turn.shape.acknowledgment {
            require(&mut initial, other, required, sent[index(other)], "acknowledgment number")?;
        }
        let flags = turn.shape.flags.unwrap_or(0);
        sent[index(turn.from)] =
            sent[index(turn.from)].wrapping_add(span(turn.octets.bytes(), flags));
    }
    Ok(initial)
}

/// Number of sequence numbers that a segment occupies (RFC 9293 §3.4).
fn span(payload: &[u8], flags: u8) -> u32 {
    payload.len() as u32 + u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0)
}

fn index(end: End) -> usize {
    match end {
        End::Client => 0,
        End::Server => 1,
    }
}
