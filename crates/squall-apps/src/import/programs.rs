//! What both sides said, one after the other, becomes what each side does.

use squall_units::Nanos;

use super::{
    Conversation, ConversationReport, Delays, End, Hole, Holes, ImportOptions, Imported,
    reassembly::{Instant, Said, Stream},
};
use crate::{Delay, Instruction, Message, MessageRef, Part, Program, Role, Transport};

/// `None`: nothing was said, nor a connection begun.
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
    /// Which of the streams is the client's.
    fn client(&self) -> usize {
        const WELL_KNOWN: u16 = 1024;
        match (self.began, self.transport) {
            (Some(side), _) => side,
            // A server of UDP hears of a flow by its first datagram.
            (None, Transport::Udp) => 0,
            (None, Transport::Tcp) => {
                usize::from(self.ends[0].1 < WELL_KNOWN && self.ends[1].1 >= WELL_KNOWN)
            }
        }
    }

    fn both_closed(&self) -> bool {
        self.streams.iter().all(Stream::has_fin)
    }

    /// From a packet of the other side to what this one makes of it, as seen where the capture was
    /// made: time that the network takes, and no pause of the application.
    fn way(&self, client: bool) -> u64 {
        let (from, to) = if client { (1, 2) } else { (0, 1) };
        match (self.handshake[from], self.handshake[to]) {
            (Some(from), Some(to)) => to.saturating_sub(from),
            _ => 0,
        }
    }
}

/// One message is so long at most: two of them fit what a flow may have under way.
const LONGEST: u64 = 512 << 20;

/// What one side does.
#[derive(Default)]
struct Side {
    done: Vec<Instruction>,
    /// Said and not yet written; a datagram each over UDP.
    saying: Vec<Part>,
    saying_len: u64,
    /// Heard and not yet written: octets, or datagrams.
    hearing: u64,
    /// How long the other side paused meanwhile.
    waited: u64,
    /// Octets said so far.
    said: u64,
    closed: bool,
}

struct Writer<'a> {
    options: &'a ImportOptions,
    conversation: &'a Conversation,
    client: usize,
    /// The client's first.
    sides: [Side; 2],
    /// Who spoke last, when, and whether that was all that he had to say.
    last: Option<(usize, u64, bool)>,
}

impl Writer<'_> {
    fn write(&mut self, report: &mut ConversationReport) {
        let udp = self.conversation.transport == Transport::Udp;
        let mut events = self.events();
        while let Some((side, (time, _), said)) = events.next() {
            let lacks = |octets, writer: &Self| Hole {
                of_client: side == 0,
                offset: writer.sides[side].said,
                octets,
            };
            match said {
                Some(Said::Missing { octets }) => {
                    report.holes.push(lacks(octets, self));
                    if self.options.holes == Holes::Cut {
                        report.cut = events.map(|(_, _, said)| said_octets(said.as_ref())).sum();
                        break;
                    }
                    self.say(side, time, None, octets, false);
                }
                Some(Said::Octets { range, push }) => {
                    let octets = &self.conversation.streams[self.stream(side)].octets()[range];
                    if udp {
                        self.sides[side].end_datagram();
                    }
                    self.say(side, time, Some(octets), octets.len() as u64, push);
                }
                Some(Said::Fin) => {
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

    /// What was said by whom, in order; `None` is a reset, behind which nothing counts.
    fn events(&self) -> std::vec::IntoIter<(usize, Instant, Option<Said>)> {
        let udp = self.conversation.transport == Transport::Udp;
        let of = |side: usize| {
            let said = self.conversation.streams[self.stream(side)].in_order(udp).into_iter();
            said.map(move |(time, said)| (side, time, Some(said)))
        };
        let mut all: Vec<_> = of(0).chain(of(1)).collect();
        if let Some((stream, time, number)) = self.conversation.reset
            && !self.conversation.both_closed()
        {
            all.push((if stream == self.client { 0 } else { 1 }, (time, number), None));
        }
        // Stable: what one side said at one instant stays in order.
        all.sort_by_key(|&(_, time, _)| time);
        all.into_iter()
    }

    /// `octets` of `side`; zeros if there are none.
    fn say(&mut self, side: usize, time: u64, octets: Option<&[u8]>, len: u64, push: bool) {
        let first_of_datagram = self.sides[side].saying.is_empty();
        self.pause(side, time, octets.is_none());
        let transport = self.conversation.transport;
        let (sides, other) = (&mut self.sides, 1 - side);
        sides[side].said += len;
        match transport {
            Transport::Tcp => {
                sides[other].hear(len, transport, self.options);
                sides[side].say(octets, len, transport, self.options);
            }
            Transport::Udp => {
                if first_of_datagram && len > 0 {
                    sides[other].hear(1, transport, self.options);
                }
                sides[side].say(octets, len, transport, self.options);
            }
        }
        self.last = Some((side, time, push));
    }

    /// What `side` waited for before it spoke at `time`. `goes_on`: it is a part of what it says
    /// already.
    fn pause(&mut self, side: usize, time: u64, goes_on: bool) {
        let conversation = self.conversation;
        let gap = match self.last {
            _ if goes_on => 0,
            // TCP made the gap: the application had given more.
            Some((last, _, push)) if last == side && !push => 0,
            Some((last, at, _)) if last == side => time.saturating_sub(at),
            Some((_, at, _)) => time.saturating_sub(at).saturating_sub(conversation.way(side == 0)),
            None => {
                let begin = conversation.handshake[2].unwrap_or(conversation.first_ns);
                let way = if side == 0 { 0 } else { conversation.way(false) };
                time.saturating_sub(begin).saturating_sub(way)
            }
        };
        let pause = match self.options.delays {
            _ if gap < self.options.shortest_delay.0 => 0,
            Delays::Drop => 0,
            Delays::Keep => gap,
            Delays::Scale(factor) => (gap as f64 * factor.max(0.0)) as u64,
        };
        // What waits for a day is no test; and what programs refuse.
        let pause = pause.min(86_400 * 1_000_000_000);
        if pause > 0 {
            self.sides[1 - side].waited += pause;
            self.sides[side].flush(conversation.transport, self.options);
            self.sides[side].done.push(Instruction::Delay(Delay::Fixed(Nanos(pause))));
        }
    }
}

fn said_octets(said: Option<&Said>) -> u64 {
    match said {
        Some(Said::Octets { range, .. }) => range.len() as u64,
        _ => 0,
    }
}

impl Side {
    fn say(
        &mut self,
        octets: Option<&[u8]>,
        mut len: u64,
        transport: Transport,
        options: &ImportOptions,
    ) {
        if self.hearing > 0 {
            self.flush(transport, options);
        }
        let Some(octets) = octets else {
            while len > 0 {
                let now = len.min(LONGEST - self.saying_len.min(LONGEST - 1));
                self.saying.push(Part::Repeat { pattern: [0].into(), len: now as u32 });
                self.saying_len += now;
                len -= now;
                if self.saying_len >= LONGEST {
                    self.flush(transport, options);
                }
            }
            return;
        };
        if self.saying_len + len > LONGEST {
            self.flush(transport, options);
        }
        if len > 0 {
            self.saying.push(Part::Octets(octets.into()));
            self.saying_len += len;
        }
    }

    fn hear(&mut self, len: u64, transport: Transport, options: &ImportOptions) {
        if !self.saying.is_empty() {
            self.flush(transport, options);
        }
        self.hearing += len;
    }

    fn end_datagram(&mut self) {
        if !self.saying.is_empty() {
            let message = self.message();
            self.done.push(Instruction::SendPacket(MessageRef::Given(message)));
        }
    }

    /// What was said and not written yet, as one message.
    fn message(&mut self) -> Message {
        self.saying_len = 0;
        let parts = std::mem::take(&mut self.saying);
        let octets = |part: &Part| match part {
            Part::Octets(octets) => Some(octets.clone()),
            _ => None,
        };
        // One run of octets: flows find their segments in it without searching.
        match parts.iter().map(octets).collect::<Option<Vec<_>>>() {
            Some(all) if all.len() > 1 => Message::octets(all.concat()),
            _ => Message { parts },
        }
    }

    fn flush(&mut self, transport: Transport, options: &ImportOptions) {
        match transport {
            Transport::Udp => {
                // Heard, then said: one of them is empty otherwise.
                while self.hearing > 0 {
                    let packets = self.hearing.min(u64::from(u32::MAX)) as u32;
                    let within = options.udp_within.map(|within| {
                        Nanos(within.0.saturating_add(self.waited).min(86_400 * 1_000_000_000))
                    });
                    self.done.push(Instruction::RecvPackets { packets, take: None, within });
                    self.hearing -= u64::from(packets);
                    self.waited = 0;
                }
                self.end_datagram();
            }
            Transport::Tcp => {
                while self.hearing > 0 {
                    let octets = self.hearing.min(LONGEST) as u32;
                    self.done.push(Instruction::Recv { octets, within: None });
                    self.hearing -= u64::from(octets);
                }
                if !self.saying.is_empty() {
                    let message = self.message();
                    self.done.push(Instruction::Send(MessageRef::Given(message)));
                }
            }
        }
    }
}
