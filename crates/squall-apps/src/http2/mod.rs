//! HTTP/2 between programs and their flow, inside of TLS if there is any: a stream is a flow to its
//! program (docs/adr/0065-http2-http3.md).
//!
//! A client's connection has *lanes*, each a run of the program with a state of its own; each of
//! its requests opens the next stream. A server's program runs once for each stream. Programs write
//! and read HTTP/1.1.

mod check;
mod heads;

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    mem,
};

use squall_http::h2::{
    self, Blocked, Cause, Code, Events, Head, HeadKind, Limits, PeerSettings, Scratch, Settings,
    StreamId, Why, setting,
};
use squall_tcp::{Event, FlowId, Piece, Reason, Tuple};
use squall_units::{Nanos, mix};

use self::heads::{Body, Heads, MAX_HEAD, Outline, Prepared};
use crate::{
    Apps, FlowSocket, Observer, ProgramId, ProtocolError, Role, State, layers, message::Ready,
};

/// Marks pieces that belong to a connection, whose index is in the other bits; `nth` is the piece's
/// offset in the connection's sent octets.
pub(crate) const STREAMS: u32 = 1 << 30;

/// Frames are made until this number of octets has not been sent: several full GSO packets. Bounds
/// the memory for a peer that does not read.
const AHEAD: usize = 128 << 10;
/// The longest DATA frame. Longer ones would let a stream delay the others.
const MAX_DATA: u32 = 16 << 10;
/// A connection's window is this number of windows of a stream.
const WINDOWS: u32 = 4;

/// Settings of HTTP/2 for the flows of a template, at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http2 {
    /// Streams that a client has open at a time, 1..=100. Each runs the program by itself.
    pub streams: u16,
    /// Octets that the peer may send on a stream before some are consumed; four times as many on
    /// the connection. At most 2^31-1.
    pub window: u32,
    /// Octets of the table of fields that the peer may use, at most 65,536.
    pub header_table: u32,
    /// Streams that a server accepts at a time.
    pub max_streams: u32,
}

impl Default for Http2 {
    fn default() -> Self {
        Self { streams: 1, window: 65_535, header_table: 4_096, max_streams: 100 }
    }
}

/// Counts over all connections of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Http2Counts {
    pub connections: u64,
    /// Streams that were opened (clients), or on which a request arrived (servers).
    pub streams: u64,
    /// Field blocks, the octets of their names and values, and their octets as compressed.
    pub heads_sent: u64,
    pub head_octets_sent: u64,
    pub compressed_octets_sent: u64,
    pub heads_received: u64,
    pub head_octets_received: u64,
    pub compressed_octets_received: u64,
    /// Streams that were reset, by error code.
    pub resets_sent: BTreeMap<&'static str, u64>,
    pub resets_received: BTreeMap<&'static str, u64>,
    /// Streams that a GOAWAY of the server left out: it has not processed them.
    pub left_out: u64,
    /// Connections that the peer has announced to end, by error code.
    pub goaways_received: BTreeMap<&'static str, u64>,
    /// Actions of peers that RFC 9113 forbids, or that exceeded a bound.
    pub violations: BTreeMap<&'static str, u64>,
    /// Priorities and unknown frames of the peer.
    pub ignored: u64,
}

impl Http2Counts {
    /// Adds those of another worker or template.
    pub fn merge(&mut self, other: &Self) {
        let Self {
            connections,
            streams,
            heads_sent,
            head_octets_sent,
            compressed_octets_sent,
            heads_received,
            head_octets_received,
            compressed_octets_received,
            resets_sent,
            resets_received,
            left_out,
            goaways_received,
            violations,
            ignored,
        } = other;
        self.connections += connections;
        self.streams += streams;
        self.heads_sent += heads_sent;
        self.head_octets_sent += head_octets_sent;
        self.compressed_octets_sent += compressed_octets_sent;
        self.heads_received += heads_received;
        self.head_octets_received += head_octets_received;
        self.compressed_octets_received += compressed_octets_received;
        self.left_out += left_out;
        self.ignored += ignored;
        for (sums, added) in [
            (&mut self.resets_sent, resets_sent),
            (&mut self.resets_received, resets_received),
            (&mut self.goaways_received, goaways_received),
            (&mut self.violations, violations),
        ] {
            added.iter().for_each(|(name, n)| add(sums, name, *n));
        }
    }
}

/// Connections of all flows whose programs are over HTTP/2.
#[derive(Debug, Default)]
pub(crate) struct Layer {
    /// The settings of each program, if it is over HTTP/2.
    programs: Vec<Option<Box<Speaker>>>,
    places: HashMap<FlowId, u32>,
    connections: Vec<Option<Box<Connection>>>,
    free: Vec<u32>,
    ids: LaneIds,
    buffers: Buffers,
}

/// Settings and counts that the connections of a program share.
#[derive(Clone, Debug)]
struct Speaker {
    role: Role,
    secure: bool,
    lanes: u16,
    limits: Limits,
    heads: Heads,
    tally: Tally,
}

#[derive(Clone, Debug, Default)]
struct Tally {
    counts: Http2Counts,
    /// Counts by the connections themselves.
    seen: h2::Counters,
}

/// Buffers that all connections share.
#[derive(Debug, Default)]
struct Buffers {
    /// Frames on their way to TCP or TLS.
    out: Vec<u8>,
    text: Vec<u8>,
    prepared: Prepared,
    scratch: Scratch,
    /// Received octets of data that programs have taken, by stream.
    taken: Vec<(StreamId, u32)>,
    /// Streams that this end resets.
    resets: Vec<(StreamId, Code)>,
}

/// Numbers of lanes, with which their early octets are found: no flow has the upper half.
#[derive(Debug, Default)]
struct LaneIds {
    next: u32,
    free: Vec<u32>,
}

impl LaneIds {
    fn take(&mut self) -> FlowId {
        let number = self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        FlowId(1 << 31 | number)
    }

    fn put(&mut self, FlowId(number): FlowId) {
        self.free.push(number & !(1 << 31));
    }
}

#[derive(Debug)]
struct Connection {
    peer: h2::Connection,
    /// Sent octets whose content may still be asked for, and their offset among all.
    kept: VecDeque<u8>,
    begins: u32,
    lanes: Vec<Lane>,
    /// The lane that is next to send.
    turn: usize,
    /// The earliest time that a lane waits for, as the flow's timer is set.
    wake: Option<Nanos>,
    peer_closed: bool,
    /// Whether the flow has ended: nothing more is read or sent.
    over: bool,
}

/// A run of the program, and the stream that it uses.
#[derive(Debug)]
struct Lane {
    id: FlowId,
    state: State,
    stream: Option<StreamId>,
    /// Messages of the program that have not begun.
    messages: VecDeque<Piece>,
    /// A message whose body is being sent, from this octet on.
    sending: Option<(Piece, u32)>,
    /// The program's timer.
    wake: Option<Nanos>,
    /// The framing of the message that is being received.
    body: Body,
    /// Whether the request had the method HEAD.
    asked_head: bool,
    /// Whether the answer has been sent completely (servers).
    answered: bool,
    /// Whether the peer has ended the stream (servers).
    ended: bool,
    aborted: bool,
    /// Whether the program cannot take more, and the octets for which no credit was given.
    paused: bool,
    withheld: u32,
}

impl Lane {
    fn new(id: FlowId, state: State, stream: Option<StreamId>) -> Self {
        Self {
            id,
            state,
            stream,
            messages: VecDeque::new(),
            sending: None,
            wake: None,
            body: Body::None,
            asked_head: false,
            answered: false,
            ended: false,
            aborted: false,
            paused: false,
            withheld: 0,
        }
    }

    /// Octets of the program that have not become frames.
    fn queued(&self) -> u32 {
        let rest = self.sending.map_or(0, |(piece, from)| piece.len - from);
        self.messages.iter().fold(rest, |sum, piece| sum.saturating_add(piece.len))
    }
}

/// Clones only the programs: another worker has its own flows and counts.
impl Clone for Layer {
    fn clone(&self) -> Self {
        let of = |speaker: &Speaker| Speaker { tally: Tally::default(), ..speaker.clone() };
        let programs = self.programs.iter().map(|own| own.as_deref().map(|own| Box::new(of(own))));
        Self { programs: programs.collect(), ..Self::default() }
    }
}

impl Layer {
    /// `messages`: the program's messages, with the numbers of their pieces.
    ///
    /// # Panics
    /// If a setting is out of its range.
    pub fn add<'a>(
        &mut self,
        program: ProgramId,
        role: Role,
        secure: bool,
        settings: &Http2,
        messages: impl Iterator<Item = (u32, &'a Ready)>,
    ) {
        let mut list = vec![
            (setting::HEADER_TABLE_SIZE, settings.header_table),
            (setting::INITIAL_WINDOW_SIZE, settings.window),
        ];
        list.push(match role {
            Role::Client => (setting::ENABLE_PUSH, 0),
            Role::Server => (setting::MAX_CONCURRENT_STREAMS, settings.max_streams),
        });
        list.push((setting::MAX_HEADER_LIST_SIZE, Limits::HEAD));
        let window = settings.window.saturating_mul(WINDOWS).clamp((1 << 16) - 1, (1 << 31) - 1);
        let announced = Settings::new(&list, window).expect("the profile's settings are in range");
        let mut heads = Heads::default();
        for (piece, message) in messages {
            heads.learn(piece, message, role, secure);
        }
        let speaker = Speaker {
            role,
            secure,
            lanes: settings.streams,
            limits: Limits::new(announced),
            heads,
            tally: Tally::default(),
        };
        layers::set(&mut self.programs, program, Box::new(speaker));
    }

    #[inline]
    pub fn has(&self, program: ProgramId) -> bool {
        self.speaker(program).is_some()
    }

    #[inline]
    fn speaker(&self, program: ProgramId) -> Option<&Speaker> {
        self.programs.get(usize::from(program.0))?.as_deref()
    }

    /// Runs of a client's program in a flow.
    pub fn lanes(&self, program: ProgramId) -> Option<u16> {
        self.speaker(program).map(|speaker| speaker.lanes)
    }

    pub fn counts(&self, program: ProgramId) -> Option<Http2Counts> {
        self.speaker(program).map(|speaker| speaker.tally.all())
    }

    /// Memory usage in bytes.
    pub fn memory(&self) -> usize {
        let of = |connection: &Connection| {
            let queued = |lane: &Lane| lane.messages.capacity() * size_of::<Piece>();
            size_of::<Connection>()
                + connection.peer.memory()
                + connection.kept.capacity()
                + connection.lanes.capacity() * size_of::<Lane>()
                + connection.lanes.iter().map(queued).sum::<usize>()
        };
        let programs = self.programs.iter().flatten().map(|speaker| speaker.heads.memory());
        programs.sum::<usize>()
            + self.connections.iter().flatten().map(|connection| of(connection)).sum::<usize>()
            + self.connections.capacity() * size_of::<usize>()
            + self.places.capacity() * size_of::<(FlowId, u32)>()
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Copies octets from `offset` of a connection's piece.
    ///
    /// # Panics
    /// If these octets were acknowledged or encrypted: only outstanding ones are asked for.
    pub fn copy(&self, piece: Piece, offset: u32, out: &mut [u8]) {
        let connection = self.connections[(piece.message & !STREAMS) as usize]
            .as_ref()
            .expect("an open flow's connection");
        let from = piece.nth.wrapping_add(offset).wrapping_sub(connection.begins) as usize;
        layers::copy_kept(&connection.kept, from, out);
    }

    /// Handles a flow's event before its programs.
    pub fn event<O: Observer>(
        &mut self,
        apps: &mut Apps<O>,
        socket: &mut impl FlowSocket,
        event: Event<'_>,
    ) {
        let id = socket.id();
        let program = apps.program(socket.state());
        if let Event::Established = event {
            self.begin(apps, socket, program);
        }
        let Some(&place) = self.places.get(&id) else { return apps.run_program(socket, event) };
        let Some(mut own) = self.connections[place as usize].take() else { return };
        let speaker =
            self.programs[usize::from(program.0)].as_deref_mut().expect("`has` was asked before");
        let (buffers, ids) = (&mut self.buffers, &mut self.ids);
        let connection = &mut *own;
        let mut flow = Flow { apps, socket, connection, speaker, program, place, buffers, ids };
        match event {
            Event::Established => flow.established(),
            Event::Received(octets) => flow.received(octets),
            Event::Acknowledged { .. } => flow.settle(),
            Event::PeerClosed => flow.peer_closed(),
            Event::Timer => flow.timer(),
            Event::Gone(reason) => {
                flow.gone(reason);
                self.places.remove(&id);
                self.free.push(place);
                return;
            }
        }
        self.connections[place as usize] = Some(own);
    }

    fn begin<O: Observer>(
        &mut self,
        apps: &mut Apps<O>,
        socket: &mut impl FlowSocket,
        program: ProgramId,
    ) {
        let Some(speaker) = self.programs[usize::from(program.0)].as_deref_mut() else { return };
        speaker.tally.counts.connections += 1;
        let fixed = speaker.heads.fixed();
        let state = *socket.state();
        let (peer, lanes) = match speaker.role {
            Role::Client => (h2::Connection::client(&speaker.limits, fixed), speaker.lanes),
            Role::Server => (h2::Connection::server(&speaker.limits, fixed), 0),
        };
        let lane = |number| {
            let state = apps.lane(&state, u32::from(number), u32::from(lanes));
            Lane::new(self.ids.take(), state, None)
        };
        let lanes = (0..lanes).map(lane).collect();
        let connection = Connection {
            peer,
            kept: VecDeque::new(),
            begins: 0,
            lanes,
            turn: 0,
            wake: None,
            peer_closed: false,
            over: false,
        };
        let place = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() as u32 - 1
        });
        self.connections[place as usize] = Some(Box::new(connection));
        self.places.insert(socket.id(), place);
    }
}

impl Tally {
    /// All counts, those of connections included.
    fn all(&self) -> Http2Counts {
        let mut all = self.counts.clone();
        let seen = &self.seen;
        all.heads_received = seen.heads;
        all.head_octets_received = seen.head_octets_plain;
        all.compressed_octets_received = seen.head_octets;
        all.ignored = seen.priorities_ignored + seen.frames_ignored;
        // Streams that ended before a program knew of them.
        let known = |counts: &BTreeMap<_, u64>| counts.values().sum::<u64>();
        let received = seen.resets_received.saturating_sub(known(&all.resets_received));
        add(&mut all.resets_received, "unknown stream", received);
        for (name, n) in [
            ("malformed", seen.malformed),
            ("too_many_streams", seen.refused),
            ("head_too_long", seen.heads_too_long),
            ("push", seen.pushes_refused),
        ] {
            add(&mut all.violations, name, n);
        }
        for (code, n) in (0..).zip(seen.resets_sent) {
            add(&mut all.resets_sent, name_of(Code(code)), n);
        }
        all
    }

    fn reset_sent(&mut self, code: Code) {
        add(&mut self.counts.resets_sent, name_of(code), 1);
    }
}

fn add(counts: &mut BTreeMap<&'static str, u64>, name: &'static str, n: u64) {
    if n > 0 {
        *counts.entry(name).or_default() += n;
    }
}

fn name_of(code: Code) -> &'static str {
    code.name().unwrap_or("unknown code")
}

/// A flow during one of its events.
struct Flow<'a, O, S> {
    apps: &'a mut Apps<O>,
    socket: &'a mut S,
    connection: &'a mut Connection,
    speaker: &'a mut Speaker,
    program: ProgramId,
    place: u32,
    buffers: &'a mut Buffers,
    ids: &'a mut LaneIds,
}

/// Runs a lane's program.
fn run<O: Observer, S: FlowSocket>(
    apps: &mut Apps<O>,
    socket: &mut S,
    lane: &mut Lane,
    event: Event<'_>,
) {
    apps.run_program(&mut LaneSocket { socket, lane }, event);
}

impl<O: Observer, S: FlowSocket> Flow<'_, O, S> {
    fn established(&mut self) {
        self.apps.begin_flow(self.socket, !S::SECURED);
        for at in 0..self.connection.lanes.len() {
            self.run(at, Event::Established);
        }
        self.settle();
    }

    fn received(&mut self, octets: &[u8]) {
        self.apps.observer_mut().received(self.program, octets.len() as u32);
        if self.connection.over {
            // Data after the end is ignored.
            return;
        }
        let Connection { peer, lanes, .. } = &mut *self.connection;
        let Buffers { text, scratch, taken, resets, .. } = &mut *self.buffers;
        let Speaker { role, limits, tally, .. } = &mut *self.speaker;
        let mut failed = None;
        let mut receiver = Receiver {
            apps: &mut *self.apps,
            socket: &mut *self.socket,
            role: *role,
            tally,
            program: self.program,
            lanes,
            ids: &mut *self.ids,
            text,
            taken,
            resets,
            failed: &mut failed,
        };
        let result = peer.receive(octets, limits, scratch, &mut receiver);
        if let Err(error) = result {
            taken.clear();
            resets.clear();
            add(&mut tally.counts.violations, error.why.name(), 1);
            self.fail(ProtocolError::Http2, error.code);
            return;
        }
        if let Some(error) = failed {
            taken.clear();
            resets.clear();
            return self.fail(error, Code::NO_ERROR);
        }
        self.settle();
    }

    fn peer_closed(&mut self) {
        self.connection.peer_closed = true;
        if self.connection.over {
            return;
        }
        for at in 0..self.connection.lanes.len() {
            if !self.connection.lanes[at].ended {
                self.run(at, Event::PeerClosed);
            }
        }
        self.settle();
    }

    fn timer(&mut self) {
        self.connection.wake = None;
        if self.connection.over {
            return;
        }
        let due = self.socket.due();
        for at in 0..self.connection.lanes.len() {
            let lane = &mut self.connection.lanes[at];
            if lane.wake.is_some_and(|wake| wake <= due) {
                lane.wake = None;
                self.run(at, Event::Timer);
            }
        }
        self.settle();
    }

    fn gone(&mut self, reason: Reason) {
        for lane in &mut self.connection.lanes {
            run(self.apps, self.socket, lane, Event::Gone(reason));
            self.ids.put(lane.id);
        }
        // A server between two requests has nothing left to do.
        let idle = self.speaker.role == Role::Server
            && self.connection.lanes.is_empty()
            && !self.connection.over;
        self.apps.flow_gone(self.socket, reason, idle);
    }

    /// Runs a lane's program, unless another has ended the flow.
    fn run(&mut self, at: usize, event: Event<'_>) {
        if self.has_failed_lane() {
            return;
        }
        run(self.apps, self.socket, &mut self.connection.lanes[at], event);
    }

    /// Sends all frames for which there is room, lets the programs continue that waited for it, and
    /// ends the streams and the flow if their programs have finished.
    fn settle(&mut self) {
        self.drop_unneeded();
        if self.connection.over {
            return;
        }
        loop {
            self.credit();
            if let Err((error, code)) = self.pump() {
                return self.fail(error, code);
            }
            if self.has_failed_lane() {
                return self.give_up();
            }
            if !self.continue_lanes() {
                break;
            }
        }
        self.reap();
        // A peer that has closed opens no window any more, so what waits for one never leaves.
        let blocked = |lane: &Lane| lane.queued() > 0;
        if self.connection.peer_closed
            && self.has_room()
            && self.connection.lanes.iter().any(blocked)
        {
            return self.fail(ProtocolError::TooShort, Code::NO_ERROR);
        }
        self.end_if_done();
        self.send();
        let next = self.connection.lanes.iter().filter_map(|lane| lane.wake).min();
        if let Some(at) = next.filter(|_| next != self.connection.wake) {
            self.connection.wake = next;
            self.socket.wake_at(at);
        }
    }

    /// Drops sent octets that TCP has acknowledged, or that TLS has encrypted.
    fn drop_unneeded(&mut self) {
        let Connection { kept, begins, .. } = &mut *self.connection;
        let unneeded = kept.len().saturating_sub(self.socket.unwritten() as usize);
        *begins = begins.wrapping_add(unneeded as u32);
        if unneeded == kept.len() {
            // Free the memory of idle connections.
            *kept = VecDeque::new();
        } else {
            kept.drain(..unneeded);
        }
    }

    /// Gives the peer credit for data that programs have taken, and resets streams.
    fn credit(&mut self) {
        let Connection { peer, lanes, .. } = &mut *self.connection;
        for lane in lanes.iter_mut().filter(|lane| !lane.paused && lane.withheld > 0) {
            let octets = mem::take(&mut lane.withheld);
            self.buffers.taken.extend(lane.stream.map(|stream| (stream, octets)));
        }
        for (stream, octets) in self.buffers.taken.drain(..) {
            peer.consumed(stream, octets, &self.speaker.limits);
        }
        for (stream, code) in self.buffers.resets.drain(..) {
            if peer.reset(stream, code) {
                self.speaker.tally.reset_sent(code);
            }
        }
    }

    /// Makes frames, in turn for each lane, until TCP has enough of them.
    fn pump(&mut self) -> Result<(), (ProtocolError, Code)> {
        self.answer();
        let mut idle = 0;
        while idle < self.connection.lanes.len() && self.has_room() {
            self.connection.turn = (self.connection.turn + 1) % self.connection.lanes.len();
            idle = if self.pump_lane(self.connection.turn)? { 0 } else { idle + 1 };
        }
        self.send();
        Ok(())
    }

    /// Makes the frames that the connection itself has to send. Without room they wait, so that
    /// their number is bounded.
    fn answer(&mut self) {
        if self.has_room() {
            self.connection.peer.control(&self.speaker.limits, &mut self.buffers.out);
        }
    }

    fn has_room(&self) -> bool {
        self.socket.unsent() as usize + self.buffers.out.len() < AHEAD
    }

    /// Makes the next frame of a lane. Returns whether there was one.
    fn pump_lane(&mut self, at: usize) -> Result<bool, (ProtocolError, Code)> {
        let tuple = self.socket.tuple();
        let lane = &mut self.connection.lanes[at];
        if let (Some((piece, from)), Some(stream)) = (lane.sending, lane.stream) {
            let left = piece.len - from;
            let len = self.connection.peer.room(stream, left.min(MAX_DATA));
            if len == 0 {
                return Ok(false);
            }
            let out = &mut self.buffers.out;
            self.connection.peer.data(stream, len, len == left, out);
            let begin = out.len();
            out.resize(begin + len as usize, 0);
            self.apps.write(&lane.state, &tuple, piece, from, &mut out[begin..]);
            lane.sending = (len < left).then_some((piece, from + len));
            lane.answered |= len == left;
            return Ok(true);
        }
        let Some(&piece) = lane.messages.front() else { return Ok(false) };
        match (self.speaker.role, lane.stream) {
            // One request at a time.
            (Role::Client, Some(_)) => return Ok(false),
            // Further ones could be more than the server allows, which its settings say.
            (Role::Client, None)
                if self.connection.peer.streams() > 0 && !self.connection.peer.has_settings() =>
            {
                return Ok(false);
            }
            (Role::Server, _) if lane.answered => {
                return Err((ProtocolError::BadHttp, Code::INTERNAL_ERROR));
            }
            _ => {}
        }
        let outline = self.prepare(at, piece, &tuple)?;
        let lane = &mut self.connection.lanes[at];
        let peer = &mut self.connection.peer;
        let stream = match lane.stream {
            Some(stream) => stream,
            None if self.connection.peer_closed => {
                return Err((ProtocolError::ClosedEarly, Code::NO_ERROR));
            }
            None => match peer.open() {
                Ok(stream) => stream,
                Err(Blocked::Streams) => return Ok(false),
                Err(Blocked::GoingAway | Blocked::Ids) => {
                    return Err((ProtocolError::ClosedEarly, Code::NO_ERROR));
                }
            },
        };
        lane.messages.pop_front();
        let end = outline.len == piece.len && !outline.interim;
        let (heads, prepared) = (&self.speaker.heads, &self.buffers.prepared);
        let mut compressed = 0;
        let sent = peer.head(stream, end, &mut self.buffers.out, |encoder, block| {
            compressed = heads.encode(prepared, encoder, block);
        });
        let counts = &mut self.speaker.tally.counts;
        counts.heads_sent += u64::from(sent);
        counts.head_octets_sent += u64::from(prepared.plain);
        counts.compressed_octets_sent += u64::from(compressed);
        if lane.stream.is_none() {
            counts.streams += 1;
            lane.stream = Some(stream);
            lane.asked_head = outline.asks_head;
        }
        lane.sending = (outline.len < piece.len).then_some((piece, outline.len));
        lane.answered |= end;
        Ok(true)
    }

    /// Translates the head of a message.
    fn prepare(
        &mut self,
        at: usize,
        piece: Piece,
        tuple: &Tuple,
    ) -> Result<Outline, (ProtocolError, Code)> {
        let Speaker { heads, role, secure, .. } = &*self.speaker;
        let Buffers { text, prepared, .. } = &mut *self.buffers;
        let known = heads.known(piece.message, prepared);
        let outline = match known {
            Some(outline) => Ok(outline),
            None => {
                text.clear();
                text.resize((piece.len as usize).min(MAX_HEAD), 0);
                self.apps.write(&self.connection.lanes[at].state, tuple, piece, 0, text);
                heads.prepare(text, *role, *secure, prepared)
            }
        };
        let checked = outline.and_then(|outline| {
            let body = piece.len.saturating_sub(outline.len);
            outline.check_body(body.into()).map(|()| outline)
        });
        checked.map_err(|_| (ProtocolError::BadHttp, Code::INTERNAL_ERROR))
    }

    /// Lets programs continue whose messages have become frames. Returns whether one has sent more.
    fn continue_lanes(&mut self) -> bool {
        let mut more = false;
        for at in 0..self.connection.lanes.len() {
            let lane = &self.connection.lanes[at];
            if lane.queued() == 0 && lane.state.has_pieces() {
                self.run(at, Event::Acknowledged { octets: 0, all: true });
                more |= self.connection.lanes[at].queued() > 0;
            }
        }
        more || self.has_failed_lane()
    }

    fn has_failed_lane(&self) -> bool {
        self.connection.lanes.iter().any(|lane| lane.state.has_failed())
    }

    /// Ends the runs of a server's program that are done, with their streams. Those whose stream has
    /// ended are done, whatever the program would wait for: otherwise a client could begin any number
    /// of them, as ended streams do not count for `max_streams`.
    fn reap(&mut self) {
        if self.speaker.role == Role::Client {
            return;
        }
        for at in (0..self.connection.lanes.len()).rev() {
            let lane = &self.connection.lanes[at];
            let done = lane.answered && lane.ended || self.apps.has_finished(&lane.state);
            if lane.queued() > 0 || !done {
                continue;
            }
            let mut lane = self.connection.lanes.swap_remove(at);
            let reset = match (lane.answered, lane.ended) {
                (true, true) => None,
                // The answer came before the end of the request (RFC 9113 section 8.1).
                (true, false) => Some(Code::NO_ERROR),
                (false, _) => Some(Code::INTERNAL_ERROR),
            };
            if let (Some(stream), Some(code)) = (lane.stream, reset)
                && self.connection.peer.reset(stream, code)
            {
                self.speaker.tally.reset_sent(code);
            }
            if let Some(stream) = lane.stream.filter(|_| lane.withheld > 0) {
                self.connection.peer.consumed(stream, lane.withheld, &self.speaker.limits);
            }
            run(self.apps, self.socket, &mut lane, Event::Gone(Reason::Closed));
            self.ids.put(lane.id);
        }
        self.answer();
    }

    /// Closes the flow when all programs are done.
    fn end_if_done(&mut self) {
        let Connection { lanes, peer, peer_closed, .. } = &mut *self.connection;
        match self.speaker.role {
            Role::Client => {
                let mut lanes = lanes.iter();
                if !lanes.all(|lane| self.apps.has_finished(&lane.state) && lane.queued() == 0) {
                    return;
                }
                peer.go_away(Code::NO_ERROR);
                peer.control(&self.speaker.limits, &mut self.buffers.out);
            }
            Role::Server if *peer_closed && lanes.is_empty() => {}
            Role::Server => return,
        }
        self.send();
        self.connection.over = true;
        self.apps.finish_flow(self.socket);
        self.socket.close();
    }

    /// Ends the flow: the peer or a program has broken a rule.
    #[cold]
    fn fail(&mut self, error: ProtocolError, code: Code) {
        if self.has_failed_lane() {
            return self.give_up();
        }
        if !self.connection.peer.is_over() {
            self.connection.peer.go_away(code);
        }
        self.connection.peer.control(&self.speaker.limits, &mut self.buffers.out);
        self.send();
        self.connection.over = true;
        self.apps.fail_flow(self.socket, Some(error));
    }

    /// Ends the flow after the error of a lane, which is counted already.
    #[cold]
    fn give_up(&mut self) {
        self.connection.over = true;
        let aborted = self.connection.lanes.iter().any(|lane| lane.aborted);
        if !aborted {
            self.connection.peer.go_away(Code::NO_ERROR);
            self.connection.peer.control(&self.speaker.limits, &mut self.buffers.out);
        }
        self.send();
        self.apps.fail_flow(self.socket, None);
        if aborted {
            self.socket.abort();
        } else {
            self.socket.close();
        }
    }

    /// Passes frames to TCP or TLS.
    fn send(&mut self) {
        let out = &mut self.buffers.out;
        if out.is_empty() {
            return;
        }
        let Connection { kept, begins, .. } = &mut *self.connection;
        let (nth, len) = (begins.wrapping_add(kept.len() as u32), out.len() as u32);
        kept.extend(out.iter());
        out.clear();
        self.apps.observer_mut().sent(self.program, len);
        self.socket.send(Piece { message: STREAMS | self.place, nth, len });
    }
}

/// Takes what a connection has received to the programs.
struct Receiver<'a, O, S> {
    apps: &'a mut Apps<O>,
    socket: &'a mut S,
    role: Role,
    tally: &'a mut Tally,
    program: ProgramId,
    lanes: &'a mut Vec<Lane>,
    ids: &'a mut LaneIds,
    text: &'a mut Vec<u8>,
    taken: &'a mut Vec<(StreamId, u32)>,
    resets: &'a mut Vec<(StreamId, Code)>,
    /// An error that ends the flow although no lane can report it.
    failed: &'a mut Option<ProtocolError>,
}

impl<O: Observer, S: FlowSocket> Receiver<'_, O, S> {
    fn lane(&self, id: StreamId) -> Option<usize> {
        self.lanes.iter().position(|lane| lane.stream == Some(id))
    }

    /// Whether the flow is to end.
    fn has_failed(&self) -> bool {
        self.failed.is_some() || self.lanes.iter().any(|lane| lane.state.has_failed())
    }

    /// Gives `text` to a lane's program.
    fn give(&mut self, at: usize) {
        if !self.text.is_empty() && !self.has_failed() {
            let text = &self.text[..];
            run(self.apps, self.socket, &mut self.lanes[at], Event::Received(text));
        }
    }

    /// The peer has ended a stream.
    fn end(&mut self, at: usize) {
        let lane = &mut self.lanes[at];
        if self.role == Role::Server {
            lane.ended = true;
            if !self.has_failed() {
                run(self.apps, self.socket, &mut self.lanes[at], Event::PeerClosed);
            }
            return;
        }
        // The connection has no part in this: an answer to HEAD has a length, and no octets.
        let short = matches!(lane.body, Body::Length(1..));
        let stream = lane.stream.take();
        // The answer came before the end of the request, so the rest of that is not needed.
        if lane.sending.take().is_some() {
            self.resets.extend(stream.map(|stream| (stream, Code::CANCEL)));
        }
        self.return_withheld(at, stream);
        if short {
            add(&mut self.tally.counts.violations, "malformed", 1);
            self.fail(at, ProtocolError::Http2);
        }
    }

    /// Returns the credit of a stream that a lane has left.
    fn return_withheld(&mut self, at: usize, stream: Option<StreamId>) {
        let octets = mem::take(&mut self.lanes[at].withheld);
        if let Some(stream) = stream.filter(|_| octets > 0) {
            self.taken.push((stream, octets));
        }
    }

    fn fail(&mut self, at: usize, error: ProtocolError) {
        if self.has_failed() {
            return;
        }
        let lane = &mut self.lanes[at];
        if self.apps.has_finished(&lane.state) {
            // The program has not waited until its last request had left.
            *self.failed = Some(error);
            return;
        }
        self.apps.fail_flow(&mut LaneSocket { socket: &mut *self.socket, lane }, Some(error));
    }
}

impl<O: Observer, S: FlowSocket> Events for Receiver<'_, O, S> {
    fn head(&mut self, id: StreamId, head: &Head<'_>) {
        let at = match (self.lane(id), head.kind) {
            (Some(at), _) => at,
            (None, HeadKind::Request) => {
                self.tally.counts.streams += 1;
                let flow = u64::from(self.socket.state().number());
                let now = self.socket.now();
                let number = mix(flow, id.0.into()) as u32;
                let state = self.apps.stream(self.program, number, now);
                self.lanes.push(Lane::new(self.ids.take(), state, Some(id)));
                let at = self.lanes.len() - 1;
                run(self.apps, self.socket, &mut self.lanes[at], Event::Established);
                at
            }
            (None, _) => return,
        };
        // No window limits interim answers, so a paused program gets no further ones.
        if head.kind == HeadKind::Interim && self.lanes[at].paused {
            return;
        }
        self.text.clear();
        if head.kind == HeadKind::Trailers {
            if self.lanes[at].body == Body::Chunked {
                heads::write_chunk(&[], true, self.text);
            }
        } else {
            let asked_head = self.lanes[at].asked_head;
            self.lanes[at].body = heads::write_text(head, asked_head, self.text);
        }
        self.give(at);
        if head.end {
            self.end(at);
        }
    }

    fn data(&mut self, id: StreamId, octets: &[u8], end: bool) {
        let len = octets.len() as u32;
        let Some(at) = self.lane(id) else {
            self.taken.push((id, len));
            return;
        };
        match self.lanes[at].body {
            Body::None if len > 0 => self.fail(at, ProtocolError::Http2),
            Body::None => {}
            Body::Length(rest) => {
                self.lanes[at].body = Body::Length(rest.saturating_sub(len.into()));
                if len > 0 && !self.has_failed() {
                    run(self.apps, self.socket, &mut self.lanes[at], Event::Received(octets));
                }
            }
            Body::Chunked => {
                self.text.clear();
                heads::write_chunk(octets, end, self.text);
                self.give(at);
            }
        }
        match self.lanes[at].paused {
            true => self.lanes[at].withheld += len,
            false => self.taken.push((id, len)),
        }
        if end {
            self.end(at);
        }
    }

    fn reset(&mut self, id: StreamId, code: Code, cause: Cause) {
        let counts = &mut self.tally.counts;
        let error = match cause {
            Cause::Peer | Cause::GoAway => ProtocolError::StreamReset,
            Cause::Fault(_) => ProtocolError::Http2,
        };
        match cause {
            Cause::Peer => add(&mut counts.resets_received, name_of(code), 1),
            Cause::GoAway => counts.left_out += 1,
            Cause::Fault(why) => {
                // These are counted by the connection, also for streams without a program.
                let counted = [
                    Why::Malformed,
                    Why::ContentLength,
                    Why::HeadTooLong,
                    Why::TooManyStreams,
                    Why::Push,
                ];
                if !counted.contains(&why) {
                    add(&mut counts.violations, why.name(), 1);
                }
            }
        }
        let Some(at) = self.lane(id) else { return };
        match self.role {
            Role::Client => {
                let lane = &mut self.lanes[at];
                let stream = lane.stream.take();
                lane.messages.clear();
                lane.sending = None;
                self.return_withheld(at, stream);
                self.fail(at, error);
            }
            Role::Server => {
                self.return_withheld(at, Some(id));
                let mut lane = self.lanes.swap_remove(at);
                run(self.apps, self.socket, &mut lane, Event::Gone(Reason::Reset));
                self.ids.put(lane.id);
            }
        }
    }

    fn writable(&mut self, _: Option<StreamId>) {
        // All lanes are asked after each event.
    }

    fn settings(&mut self, _: &PeerSettings) {
        // As above.
    }

    fn going_away(&mut self, _: StreamId, code: Code) {
        add(&mut self.tally.counts.goaways_received, name_of(code), 1);
    }

    fn counters(&mut self) -> &mut h2::Counters {
        &mut self.tally.seen
    }
}

/// A stream as its program sees it.
struct LaneSocket<'a, S> {
    socket: &'a mut S,
    lane: &'a mut Lane,
}

impl<S: FlowSocket> FlowSocket for LaneSocket<'_, S> {
    const SECURED: bool = S::SECURED;
    const PART: bool = true;

    fn now(&self) -> Nanos {
        self.socket.now()
    }
    fn due(&self) -> Nanos {
        self.socket.due()
    }
    fn id(&self) -> FlowId {
        self.lane.id
    }
    fn tuple(&self) -> Tuple {
        self.socket.tuple()
    }
    fn state(&mut self) -> &mut State {
        &mut self.lane.state
    }
    fn send(&mut self, piece: Piece) -> bool {
        self.lane.messages.push_back(piece);
        true
    }
    fn close(&mut self) {
        // A message says by itself where it ends.
    }
    fn abort(&mut self) {
        self.lane.aborted = true;
        self.lane.messages.clear();
        self.lane.sending = None;
    }
    fn wake_at(&mut self, at: Nanos) {
        self.lane.wake = Some(at);
    }
    fn unacknowledged(&self) -> u32 {
        self.lane.queued()
    }
    fn unsent(&self) -> u32 {
        self.lane.queued()
    }
    fn pause(&mut self) {
        self.lane.paused = true;
    }
    fn resume(&mut self) {
        self.lane.paused = false;
    }
}
