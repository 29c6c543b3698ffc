//! Converts the ordered data of both sides to the instructions of each side.

use squall_units::Nanos;

use super::{
    Conversation, ConversationReport, Delays, End, Hole, Holes, ImportOptions, Imported,
    reassembly::{Instant, Stream, StreamPart},
};
use crate::{Delay, Instruction, Message, MessageRef, Part, Program, Role, Transport};

/// The programs of a conversation; `None` if it has neither data nor a handshake.
pub fn of(conversation: Conversation, name: &str, options: &ImportOptions) -> Option<Imported> {
    let udp = conversation.transport == Transport::Udp;
    let silent = conversation.streams.iter().all(Stream::is_silent);
    if silent && (udp || conversation.began.is_none()) {
        return None;
    }
    let client = conversation.client();
    let mut report = ConversationReport {
        begin_ns: conversation.first_ns,
        duration: Nanos(conversation.last_ns - conversation.first_ns),
        of_client: conversation.streams[client].report,
        of_server: conversation.streams[1 - client].report,
        handshake: conversation.began.is_some(),
        end: match conversation.reset {
            Some(_) if !conversation.both_closed() => End::Reset,
            _ if conversation.streams.iter().any(Stream::has_fin) => End::Closed,
            _ => End::Open,
        },
        ..ConversationReport::default()
    };
    let mut writer = Writer {
        options,
        conversation: &conversation,
        client,
        sides: [Side::default(), Side::default()],
        last: None,
    };
    writer.write(&mut report);
    let [client_side, server_side] = writer.sides;
    let program = |role: Role, side: Side| {
        let mut instructions = side.done;
        if instructions.is_empty() {
            instructions.push(if role == Role::Client {
                Instruction::Connect
            } else {
                Instruction::Accept
            });
        }
        let transport = conversation.transport;
        Program { name: name.into(), role, transport, instructions, messages: Default::default() }
    };
    Some(Imported {
        client: program(Role::Client, client_side),
        server: program(Role::Server, server_side),
        client_end: conversation.ends[client],
        server_end: conversation.ends[1 - client],
        report,
    })
}

impl Conversation {
    /// The index of the client's stream.
    fn client(&self) -> usize {
        const WELL_KNOWN: u16 = 1024;
        match (self.began, self.transport) {
            (Some(side), _) => side,
            // A UDP server learns of a flow from its first datagram.
            (None, Transport::Udp) => 0,
            (None, Transport::Tcp) => {
                usize::from(self.ends[0].1 < WELL_KNOWN && self.ends[1].1 >= WELL_KNOWN)
            }
        }
    }

    fn both_closed(&self) -> bool {
        self.streams.iter().all(Stream::has_fin)
    }

    /// The time from a packet of the other side to the answer of this one, as seen at the capture
    /// point; this is network delay, not a pause of the application.
    fn network_delay(&self, client: bool) -> u64 {
        let (from, to) = if client { (1, 2) } else { (0, 1) };
        match (self.handshake[from], self.handshake[to]) {
            (Some(from), Some(to)) => to.saturating_sub(from),
            _ => 0,
        }
    }
}

/// Maximum length of a message: two of these fit into the octets that a flow may have outstanding.
const MAX_MESSAGE: u64 = 512 << 20;

/// Instructions of one side.
#[derive(Default)]
struct Side {
    done: Vec<Instruction>,
    /// Data that is not in an instruction yet; for UDP, one part per datagram.
    outgoing: Vec<Part>,
    outgoing_len: u64,
    /// Received octets or datagrams that are not in an instruction yet.
    incoming: u64,
    /// Sum of the other side's pauses meanwhile.
    waited: u64,
    /// Octets sent so far.
    sent: u64,
    closed: bool,
}

struct Writer<'a> {
    options: &'a ImportOptions,
    conversation: &'a Conversation,
    client: usize,
    /// The client's side first.
    sides: [Side; 2],
    /// The last sender, its time, and whether it pushed.
    last: Option<(usize, u64, bool)>,
}

impl Writer<'_> {
    fn write(&mut self, report: &mut ConversationReport) {
        let udp = self.conversation.transport == Transport::Udp;
        let mut events = self.events();
        while let Some((side, (time, _), part)) = events.next() {
            let lacks = |octets, writer: &Self| Hole {
                of_client: side == 0,
                offset: writer.sides[side].sent,
                octets,
            };
            match part {
                Some(StreamPart::Missing { octets }) => {
                    report.holes.push(lacks(octets, self));
                    if self.options.holes == Holes::Cut {
                        report.cut = events.map(|(_, _, part)| part_octets(part.as_ref())).sum();
                        break;
                    }
                    self.send(side, time, None, octets, false);
                }
                Some(StreamPart::Octets { range, push }) => {
                    let octets = &self.conversation.streams[self.stream(side)].octets()[range];
                    if udp {
                        self.sides[side].end_datagram();
                    }
                    self.send(side, time, Some(octets), octets.len() as u64, push);
                }
                Some(StreamPart::Fin) => {
                    self.pause(side, time, false);
                    let other = &mut self.sides[1 - side];
                    other.flush(self.conversation.transport, self.options);
                    if !other.closed {
                        other.done.push(Instruction::WaitPeerClose);
                    }
                    self.sides[side].flush(self.conversation.transport, self.options);
                    self.sides[side].done.push(Instruction::Close);
                    self.sides[side].closed = true;
                    self.last = Some((side, time, true));
                }
                None => {
                    self.pause(side, time, false);
                    self.sides[side].flush(self.conversation.transport, self.options);
                    self.sides[side].done.push(Instruction::Reset);
                    break;
                }
            }
        }
        for side in &mut self.sides {
            side.flush(self.conversation.transport, self.options);
        }
    }

    fn stream(&self, side: usize) -> usize {
        if side == 0 { self.client } else { 1 - self.client }
    }

    /// The data of both sides in order; `None` is a reset, after which data is ignored.
    fn events(&self) -> std::vec::IntoIter<(usize, Instant, Option<StreamPart>)> {
        let udp = self.conversation.transport == Transport::Udp;
        let of = |side: usize| {
            let parts = self.conversation.streams[self.stream(side)].in_order(udp).into_iter();
            parts.map(move |(time, part)| (side, time, Some(part)))
        };
        let mut all: Vec<_> = of(0).chain(of(1)).collect();
        if let Some((stream, time, number)) = self.conversation.reset
            && !self.conversation.both_closed()
        {
            all.push((if stream == self.client { 0 } else { 1 }, (time, number), None));
        }
        // A stable sort keeps one side's data with equal times in order.
        all.sort_by_key(|&(_, time, _)| time);
        all.into_iter()
    }

    /// Adds `octets` of `side`; zeros if `None`.
    fn send(&mut self, side: usize, time: u64, octets: Option<&[u8]>, len: u64, push: bool) {
        let first_of_datagram = self.sides[side].outgoing.is_empty();
        self.pause(side, time, octets.is_none());
        let transport = self.conversation.transport;
        let (sides, other) = (&mut self.sides, 1 - side);
        sides[side].sent += len;
        match transport {
            Transport::Tcp => {
                sides[other].receive(len, transport, self.options);
                sides[side].send(octets, len, transport, self.options);
            }
            Transport::Udp => {
                if first_of_datagram && len > 0 {
                    sides[other].receive(1, transport, self.options);
                }
                sides[side].send(octets, len, transport, self.options);
            }
        }
        self.last = Some((side, time, push));
    }

    /// Adds the pause of `side` before it sent at `time`. `goes_on`: whether the data continues a
    /// message.
    fn pause(&mut self, side: usize, time: u64, goes_on: bool) {
        let conversation = self.conversation;
        let gap = match self.last {
            _ if goes_on => 0,
            // TCP caused the gap: the application had already supplied the data.
            Some((last, _, push)) if last == side && !push => 0,
            Some((last, at, _)) if last == side => time.saturating_sub(at),
            Some((_, at, _)) => {
                time.saturating_sub(at).saturating_sub(conversation.network_delay(side == 0))
            }
            None => {
                let begin = conversation.handshake[2].unwrap_or(conversation.first_ns);
                let network_delay = if side == 0 { 0 } else { conversation.network_delay(false) };
                time.saturating_sub(begin).saturating_sub(network_delay)
            }
        };
        let pause = match self.options.delays {
            _ if gap < self.options.shortest_delay.0 => 0,
            Delays::Drop => 0,
            Delays::Keep => gap,
            Delays::Scale(factor) => (gap as f64 * factor.max(0.0)) as u64,
        };
        // Programs do not accept a delay of more than a day.
        let pause = pause.min(86_400 * 1_000_000_000);
        if pause > 0 {
            self.sides[1 - side].waited += pause;
            self.sides[side].flush(conversation.transport, self.options);
            self.sides[side].done.push(Instruction::Delay(Delay::Fixed(Nanos(pause))));
        }
    }
}

fn part_octets(part: Option<&StreamPart>) -> u64 {
    match part {
        Some(StreamPart::Octets { range, .. }) => range.len() as u64,
        _ => 0,
    }
}

impl Side {
    fn send(
        &mut self,
        octets: Option<&[u8]>,
        mut len: u64,
        transport: Transport,
        options: &ImportOptions,
    ) {
        if self.incoming > 0 {
            self.flush(transport, options);
        }
        let Some(octets) = octets else {
            while len > 0 {
                let now = len.min(MAX_MESSAGE - self.outgoing_len.min(MAX_MESSAGE - 1));
                self.outgoing.push(Part::Repeat { pattern: [0].into(), len: now as u32 });
                self.outgoing_len += now;
                len -= now;
                if self.outgoing_len >= MAX_MESSAGE {
                    self.flush(transport, options);
                }
            }
            return;
        };
        if self.outgoing_len + len > MAX_MESSAGE {
            self.flush(transport, options);
        }
        if len > 0 {
            self.outgoing.push(Part::Octets(octets.into()));
            self.outgoing_len += len;
        }
    }

    fn receive(&mut self, len: u64, transport: Transport, options: &ImportOptions) {
        if !self.outgoing.is_empty() {
            self.flush(transport, options);
        }
        self.incoming += len;
    }

    fn end_datagram(&mut self) {
        if !self.outgoing.is_empty() {
            let message = self.message();
            self.done.push(Instruction::SendPacket(MessageRef::Given(message)));
        }
    }

    /// Combines the data that is not in an instruction yet into one message.
    fn message(&mut self) -> Message {
        self.outgoing_len = 0;
        let parts = std::mem::take(&mut self.outgoing);
        let octets = |part: &Part| match part {
            Part::Octets(octets) => Some(octets.clone()),
            _ => None,
        };
        // A single run of octets: flows find an offset in it without a search.
        match parts.iter().map(octets).collect::<Option<Vec<_>>>() {
            Some(all) if all.len() > 1 => Message::octets(all.concat()),
            _ => Message { parts },
        }
    }

    fn flush(&mut self, transport: Transport, options: &ImportOptions) {
        match transport {
            Transport::Udp => {
                // Receives come before sends; in the other order, one of them would be empty.
                while self.incoming > 0 {
                    let packets = self.incoming.min(u64::from(u32::MAX)) as u32;
                    let within = options.udp_within.map(|within| {
                        Nanos(within.0.saturating_add(self.waited).min(86_400 * 1_000_000_000))
                    });
                    self.done.push(Instruction::RecvPackets { packets, take: None, within });
                    self.incoming -= u64::from(packets);
                    self.waited = 0;
                }
                self.end_datagram();
            }
            Transport::Tcp => {
                while self.incoming > 0 {
                    let octets = self.incoming.min(MAX_MESSAGE) as u32;
                    self.done.push(Instruction::Recv { octets, within: None });
                    self.incoming -= u64::from(octets);
                }
                if !self.outgoing.is_empty() {
                    let message = self.message();
                    self.done.push(Instruction::Send(MessageRef::Given(message)));
                }
            }
        }
    }
}
