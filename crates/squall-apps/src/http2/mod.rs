//! HTTP/2 between programs and their flow, inside of TLS if there is any.

mod call;

use std::{
    collections::BTreeMap,
    mem,
    ops::{Deref, DerefMut},
};

use squall_http::h2::{
    self, Blocked, Cause, Code, Events, Head, HeadKind, Limits, PeerSettings, Scratch, Settings,
    StreamId, Why, setting,
};
use squall_tcp::{Event, Piece, Reason};
use squall_units::{Nanos, mix};

use crate::{
    Apps, FlowSocket, Observer, ProgramId, ProtocolError, Role,
    grpc::Incoming,
    layers::{self, Kept, Slab},
    message::Ready,
    streams::{
        self, LaneIds, LaneSocket, StreamCounts, add, add_all,
        heads::{Body, HeadText, Heads, Prepared},
        parts, run,
    },
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
/// How often a request is sent again because the server has refused its stream.
const MAX_REPEATS: u8 = 5;

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
    /// Whether a connection uses HTTP/1.1 if TLS has not agreed on HTTP/2 (ALPN). The runs of a
    /// client's program then follow one another.
    pub fallback: bool,
}

impl Default for Http2 {
    fn default() -> Self {
        Self {
            streams: 1,
            window: h2::DEFAULT_WINDOW,
            header_table: 4_096,
            max_streams: 100,
            fallback: false,
        }
    }
}

/// Counts over all connections of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Http2Counts {
    /// The counts that HTTP/3 has, too.
    pub common: StreamCounts,
    /// Connections that use HTTP/1.1, because TLS has not agreed on HTTP/2.
    pub fallbacks: u64,
    /// Requests that were sent again, because the server had refused their streams.
    pub repeated: u64,
    /// Connections that the peer has announced to end, by error code.
    pub goaways_received: BTreeMap<&'static str, u64>,
}

impl Http2Counts {
    /// Adds those of another worker or template.
    pub fn merge(&mut self, other: &Self) {
        let Self { common, fallbacks, repeated, goaways_received } = other;
        self.common.merge(common);
        self.fallbacks += fallbacks;
        self.repeated += repeated;
        add_all(&mut self.goaways_received, goaways_received);
    }
}

impl Deref for Http2Counts {
    type Target = StreamCounts;

    fn deref(&self) -> &StreamCounts {
        &self.common
    }
}

impl DerefMut for Http2Counts {
    fn deref_mut(&mut self) -> &mut StreamCounts {
        &mut self.common
    }
}

/// Connections of all flows whose programs are over HTTP/2.
#[derive(Debug, Default)]
pub(crate) struct Layer {
    /// The settings of each program, if it is over HTTP/2.
    programs: Vec<Option<Box<Speaker>>>,
    connections: Slab<Connection>,
    ids: Ids,
    buffers: Buffers,
}

/// Settings and counts that the connections of a program share.
#[derive(Clone, Debug)]
struct Speaker {
    role: Role,
    secure: bool,
    lanes: u16,
    fallback: bool,
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
    head: HeadText,
    text: Vec<u8>,
    prepared: Prepared,
    scratch: Scratch,
    /// Received octets of data that programs have taken, by stream.
    taken: Vec<(StreamId, u32)>,
    /// Streams that this end resets.
    resets: Vec<(StreamId, Code)>,
}

#[derive(Debug)]
struct Connection {
    peer: h2::Connection,
    kept: Kept,
    lanes: Vec<Lane>,
    /// The lane that is next to send.
    turn: usize,
    /// The earliest time that a lane waits for, as the flow's timer is set.
    wake: Option<Nanos>,
    peer_closed: bool,
    /// Whether the flow settles after all segments that have arrived.
    unsettled: bool,
    /// Whether the flow has ended: nothing more is read or sent.
    over: bool,
    /// Whether the connection uses HTTP/1.1: the lanes run one after the other, `turn` is the
    /// number of the running lane, and `peer` is not used.
    plain: bool,
    /// Whether TCP holds the peer back for that lane.
    held_back: bool,
}

type Lane = streams::Lane<StreamId>;
/// No flow has the upper half.
type Ids = LaneIds<{ 1 << 31 }>;

/// Clones only the programs: another worker has its own flows and counts.
impl Clone for Layer {
    fn clone(&self) -> Self {
        let of = |speaker: &Speaker| Speaker { tally: Tally::default(), ..speaker.clone() };
        let programs = self.programs.iter().map(|own| own.as_deref().map(|own| Box::new(of(own))));
        Self { programs: programs.collect(), ..Self::default() }
    }
}

impl Layer {
    /// `secure`: inside of TLS. `websocket`: the program uses WebSocket. `messages`: the program's
    /// messages, with the numbers of their pieces.
    ///
    /// # Panics
    /// If a setting is out of its range.
    pub fn add<'a>(
        &mut self,
        program: ProgramId,
        role: Role,
        (secure, websocket): (bool, bool),
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
        if websocket && role == Role::Server {
            list.push((setting::ENABLE_CONNECT_PROTOCOL, 1));
        }
        let window = settings.window.saturating_mul(WINDOWS);
        let window = window.clamp(h2::DEFAULT_WINDOW, h2::MAX_WINDOW);
        let announced = Settings::new(&list, window).expect("the profile's settings are in range");
        let mut heads = Heads::default();
        for (piece, message) in messages {
            heads.learn(piece, message, role, secure);
        }
        let speaker = Speaker {
            role,
            secure,
            lanes: settings.streams,
            fallback: settings.fallback,
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

    /// Whether connections use HTTP/1.1 if TLS has not agreed on HTTP/2.
    pub fn falls_back(&self, program: ProgramId) -> bool {
        self.speaker(program).is_some_and(|speaker| speaker.fallback)
    }

    /// Lanes of all connections.
    pub fn open_lanes(&self) -> usize {
        self.ids.taken()
    }

    /// Streams of all connections so far.
    pub fn streams(&self) -> u64 {
        self.programs.iter().flatten().map(|speaker| speaker.tally.counts.streams).sum()
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
                + connection.kept.memory()
                + connection.lanes.capacity() * size_of::<Lane>()
                + connection.lanes.iter().map(queued).sum::<usize>()
        };
        let programs = self.programs.iter().flatten().map(|speaker| speaker.heads.memory());
        programs.sum::<usize>() + self.connections.memory(of)
    }

    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// Copies octets from `offset` of a connection's piece.
    ///
    /// # Panics
    /// If these octets were acknowledged or encrypted: only outstanding ones are asked for.
    pub fn copy(&self, piece: Piece, offset: u32, out: &mut [u8]) {
        let connection = self.connections.get(piece.message & !STREAMS);
        let connection = connection.expect("an open flow's connection");
        connection.kept.copy(piece.nth.wrapping_add(offset), out);
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
        let Some((place, mut own)) = self.connections.take(id) else {
            return apps.run_program(socket, event);
        };
        let speaker =
            self.programs[usize::from(program.0)].as_deref_mut().expect("`has` was asked before");
        let (buffers, ids) = (&mut self.buffers, &mut self.ids);
        let connection = &mut *own;
        let mut flow = Flow { apps, socket, connection, speaker, program, place, buffers, ids };
        match event {
            Event::Established => flow.established(),
            Event::Received(octets) => flow.received(octets),
            Event::Acknowledged { .. } => flow.settle_later(),
            Event::PeerClosed => flow.peer_closed(),
            Event::Timer => flow.timer(),
            Event::Settle => flow.settle_if_due(),
            Event::Gone(reason) => {
                flow.gone(reason);
                return self.connections.remove(id);
            }
        }
        self.connections.put(place, own);
    }

    fn begin<O: Observer>(
        &mut self,
        apps: &mut Apps<O>,
        socket: &mut impl FlowSocket,
        program: ProgramId,
    ) {
        let Some(speaker) = self.programs[usize::from(program.0)].as_deref_mut() else { return };
        let plain = socket.chose_http1();
        speaker.tally.counts.connections += u64::from(!plain);
        speaker.tally.counts.fallbacks += u64::from(plain);
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
        let mut lanes: Vec<Lane> = (0..lanes).map(lane).collect();
        if plain && speaker.role == Role::Server {
            lanes.push(Lane::new(self.ids.take(), state, None));
        }
        let connection = Connection {
            peer,
            kept: Kept::default(),
            lanes,
            turn: 0,
            wake: None,
            peer_closed: false,
            unsettled: false,
            over: false,
            plain,
            held_back: false,
        };
        self.connections.add(socket.id(), connection);
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
    ids: &'a mut Ids,
}

impl<O: Observer, S: FlowSocket> Flow<'_, O, S> {
    fn established(&mut self) {
        self.apps.begin_flow(self.socket, !S::SECURED);
        let begin = if self.connection.plain { 1 } else { self.connection.lanes.len() };
        for at in 0..begin {
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
        if self.connection.plain {
            self.run(self.connection.turn, Event::Received(octets));
            return self.settle();
        }
        let Connection { peer, lanes, .. } = &mut *self.connection;
        let Buffers { head, text, scratch, taken, resets, .. } = &mut *self.buffers;
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
            head,
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
        // Other connections use the same list.
        self.credit();
        self.settle_later();
    }

    fn peer_closed(&mut self) {
        self.connection.peer_closed = true;
        if self.connection.over {
            return;
        }
        for at in 0..self.connection.lanes.len() {
            let lane = &mut self.connection.lanes[at];
            let ended = lane.ended;
            lane.ended |= lane.tunnel;
            if !ended {
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
        // Answers that came with the end may have been the last. Nothing can be sent any more.
        if mem::take(&mut self.connection.unsettled) && !self.connection.over {
            self.reap();
            self.end_if_done();
        }
        let Connection { lanes, over, plain, .. } = &mut *self.connection;
        // A server between two requests has nothing left to do.
        let mut idle = self.speaker.role == Role::Server && !*over && (*plain || lanes.is_empty());
        for lane in lanes {
            let socket = &mut *self.socket;
            idle &= self.apps.is_idle(&mut LaneSocket { socket, lane: &mut *lane, ends: None });
            run(self.apps, self.socket, None, lane, Event::Gone(reason));
            self.ids.put(lane.id);
        }
        self.apps.flow_gone(self.socket, reason, idle);
    }

    /// Runs a lane's program, unless another has ended the flow.
    fn run(&mut self, at: usize, event: Event<'_>) {
        if self.has_failed_lane() {
            return;
        }
        run(self.apps, self.socket, None, &mut self.connection.lanes[at], event);
    }

    /// Settles after all segments that have arrived: the frames that answer them then share a
    /// segment. Frames of the connection itself do not wait, because their number is bounded.
    fn settle_later(&mut self) {
        let Connection { peer, unsettled, over, plain, .. } = &mut *self.connection;
        let waits = !*over && !*plain && !peer.has_pending();
        if waits && (*unsettled || self.socket.settle_later()) {
            *unsettled = true;
        } else {
            self.settle();
        }
    }

    fn settle_if_due(&mut self) {
        if self.connection.unsettled {
            self.settle();
        }
    }

    /// Sends all frames for which there is room, lets the programs continue that waited for it, and
    /// ends the streams and the flow if their programs have finished.
    fn settle(&mut self) {
        self.connection.unsettled = false;
        // TCP has acknowledged the others, or TLS has encrypted them.
        self.connection.kept.keep_last(self.socket.unwritten() as usize);
        if self.connection.over {
            return;
        }
        if self.connection.plain {
            return self.settle_plain();
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
        self.set_timer();
    }

    /// The same for a connection of HTTP/1.1, whose lanes run one after the other.
    fn settle_plain(&mut self) {
        loop {
            self.pump_plain();
            if self.has_failed_lane() {
                return self.give_up();
            }
            let more = self.continue_lanes();
            let Connection { lanes, turn, peer_closed, .. } = &mut *self.connection;
            if self.apps.has_finished(&lanes[*turn].state) && lanes[*turn].queued() == 0 {
                if *turn + 1 == lanes.len() {
                    return self.finish();
                }
                if *peer_closed {
                    return self.fail(ProtocolError::ClosedEarly, Code::NO_ERROR);
                }
                *turn += 1;
                self.run(self.connection.turn, Event::Established);
            } else if !more {
                break;
            }
        }
        let Connection { lanes, turn, held_back, .. } = &mut *self.connection;
        let paused = lanes[*turn].paused;
        match (mem::replace(held_back, paused), paused) {
            (false, true) => self.socket.pause(),
            (true, false) => self.socket.resume(),
            _ => {}
        }
        self.set_timer();
    }

    /// Passes on the messages of the running lane without frames, until TCP has enough.
    fn pump_plain(&mut self) {
        let tuple = self.socket.tuple();
        while self.has_room() {
            let lane = &mut self.connection.lanes[self.connection.turn];
            let next = lane.sending.or_else(|| lane.messages.pop_front().map(|piece| (piece, 0)));
            let Some((piece, from)) = next else { break };
            let len = (piece.len - from).min(MAX_DATA);
            let out = &mut self.buffers.out;
            let begin = out.len();
            out.resize(begin + len as usize, 0);
            self.apps.write(&lane.state, &tuple, piece, from, &mut out[begin..]);
            lane.sending = (from + len < piece.len).then_some((piece, from + len));
        }
        self.send();
    }

    /// Sets the flow's timer to the earliest of the lanes.
    fn set_timer(&mut self) {
        let next = self.connection.lanes.iter().filter_map(|lane| lane.wake).min();
        if let Some(at) = next.filter(|_| next != self.connection.wake) {
            self.connection.wake = next;
            self.socket.wake_at(at);
        }
    }

    /// Gives the peer credit for data that programs have taken, and resets streams.
    fn credit(&mut self) {
        let Connection { peer, lanes, .. } = &mut *self.connection;
        for lane in lanes.iter_mut().filter(|lane| !lane.paused && lane.withheld > 0) {
            let octets = mem::take(&mut lane.withheld);
            self.buffers.taken.extend(lane.stream.map(|stream| (stream, octets)));
        }
        let canceled = lanes.iter_mut().filter_map(|lane| lane.canceled.take());
        self.buffers.resets.extend(canceled.map(|stream| (stream, Code::CANCEL)));
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
            let end = len == left && !lane.tunnel && parts::is_last(piece);
            let out = &mut self.buffers.out;
            self.connection.peer.data(stream, len, end, out);
            let begin = out.len();
            out.resize(begin + len as usize, 0);
            self.apps.write(&lane.state, &tuple, parts::plain(piece), from, &mut out[begin..]);
            lane.sending = (len < left).then_some((piece, from + len));
            lane.answered |= end;
            lane.open &= !end;
            return Ok(true);
        }
        if let (true, Some(stream)) = (lane.tunnel, lane.stream) {
            return Ok(self.pump_tunnel(at, stream));
        }
        if let (true, Some(stream)) = (lane.open, lane.stream)
            && let Some(sent) = self.pump_call(at, stream)
        {
            return Ok(sent);
        }
        let lane = &mut self.connection.lanes[at];
        let Some(&piece) = lane.messages.front() else { return Ok(false) };
        let (part, piece) = (parts::of(piece), parts::plain(piece));
        match (self.speaker.role, lane.stream) {
            // One request at a time.
            (Role::Client, Some(_)) => return Ok(false),
            // Further ones could be more than the server allows, which its settings say.
            (Role::Client, None)
                if self.connection.peer.streams() > 0 && !self.connection.peer.has_settings() =>
            {
                return Ok(false);
            }
            // At once, it would be refused again.
            (Role::Client, None) if lane.refused && self.connection.peer.streams() > 0 => {
                return Ok(false);
            }
            (Role::Server, _) if lane.answered => {
                return Err((ProtocolError::BadHttp, Code::INTERNAL_ERROR));
            }
            _ => {}
        }
        let Speaker { heads, role, secure, .. } = &*self.speaker;
        let Buffers { text, prepared, .. } = &mut *self.buffers;
        let of = (heads, *role, *secure);
        let outline = lane.write_head(self.apps, of, (piece, &tuple), (text, prepared));
        let outline = outline.map_err(|_| (ProtocolError::BadHttp, Code::INTERNAL_ERROR))?;
        if outline.trailers != (part == parts::TRAILERS) {
            return Err((ProtocolError::BadHttp, Code::INTERNAL_ERROR));
        }
        let lane = &mut self.connection.lanes[at];
        let peer = &mut self.connection.peer;
        let tunnel = match self.speaker.role {
            Role::Client => outline.tunnel,
            Role::Server => outline.tunnel && lane.body == Body::Tunnel,
        };
        // RFC 8441 section 3.
        if tunnel && self.speaker.role == Role::Client && !peer.peer().connect_protocol {
            return match peer.has_settings() {
                true => Err((ProtocolError::BadWebsocket, Code::NO_ERROR)),
                false => Ok(false),
            };
        }
        let stream = match lane.stream {
            Some(stream) => stream,
            None if self.connection.peer_closed => {
                return Err((ProtocolError::ClosedEarly, Code::NO_ERROR));
            }
            None => match peer.open() {
                Ok(stream) => stream,
                Err(Blocked::Streams) => return Ok(false),
                // Other streams may still get their answers.
                Err(Blocked::GoingAway) if peer.streams() > 0 => return Ok(false),
                Err(Blocked::GoingAway | Blocked::Ids) => {
                    return Err((ProtocolError::ClosedEarly, Code::NO_ERROR));
                }
            },
        };
        lane.messages.pop_front();
        let open = part == parts::OPEN;
        let end = outline.len == piece.len && !outline.interim && !tunnel && !open;
        let (heads, prepared) = (&self.speaker.heads, &self.buffers.prepared);
        let mut compressed = 0;
        let sent = peer.head(stream, end, &mut self.buffers.out, |encoder, block| {
            compressed = heads.encode(prepared, block, |field, block| encoder.field(field, block));
        });
        let counts = &mut self.speaker.tally.counts;
        counts.heads_sent += u64::from(sent);
        counts.head_octets_sent += u64::from(prepared.plain);
        counts.compressed_octets_sent += u64::from(compressed);
        if lane.stream.is_none() {
            counts.streams += 1;
            lane.stream = Some(stream);
            lane.asked_head = outline.asks_head;
            lane.request = Some(piece).filter(|_| lane.alone && part == 0);
        }
        lane.tunnel = tunnel;
        lane.sending = (outline.len < piece.len).then_some((piece, outline.len));
        lane.answered |= end;
        lane.open = open;
        if open {
            self.cancel_if_asked(at);
        }
        Ok(true)
    }

    /// Makes the next frame of a tunnel: messages become data without a head, and the program's
    /// close becomes the end of the stream (RFC 8441 section 5). Returns whether there was a frame
    /// to make.
    fn pump_tunnel(&mut self, at: usize, stream: StreamId) -> bool {
        let Connection { peer, lanes, .. } = &mut *self.connection;
        let lane = &mut lanes[at];
        if let Some(piece) = lane.messages.pop_front() {
            lane.sending = Some((piece, 0));
            return true;
        }
        let ends = lane.closing && !lane.answered;
        if ends {
            peer.data(stream, 0, true, &mut self.buffers.out);
            lane.answered = true;
        }
        ends
    }

    /// Lets programs continue whose messages have become frames. Returns whether one has sent more.
    fn continue_lanes(&mut self) -> bool {
        let mut more = false;
        for at in 0..self.connection.lanes.len() {
            let lane = &mut self.connection.lanes[at];
            if lane.queued() == 0 && mem::take(&mut lane.unreported) {
                let paused = lane.paused;
                self.run(at, Event::Acknowledged { octets: 0, all: true });
                let lane = &self.connection.lanes[at];
                more |= lane.queued() > 0 || paused && !lane.paused;
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
            let ended = lane.answered && lane.ended;
            // After the close of a tunnel, its other end closes, too.
            let done = ended || !lane.tunnel && self.apps.has_finished(&lane.state);
            if !lane.has_sent_all() || !done {
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
            run(self.apps, self.socket, None, &mut lane, Event::Gone(Reason::Closed));
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
                if !lanes.all(|lane| self.apps.has_finished(&lane.state) && lane.has_sent_all()) {
                    return;
                }
                peer.go_away(Code::NO_ERROR);
                peer.control(&self.speaker.limits, &mut self.buffers.out);
            }
            Role::Server if *peer_closed && lanes.is_empty() => {}
            Role::Server => return,
        }
        self.finish();
    }

    /// Closes the flow, whose programs have all reached their end.
    fn finish(&mut self) {
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
        self.send_goaway(code);
        self.connection.over = true;
        self.apps.fail_flow(self.socket, Some(error));
    }

    /// Ends the flow after the error of a lane, which is counted already.
    #[cold]
    fn give_up(&mut self) {
        self.connection.over = true;
        let aborted = self.connection.lanes.iter().any(|lane| lane.aborted);
        if aborted {
            self.send();
        } else {
            self.send_goaway(Code::NO_ERROR);
        }
        self.apps.fail_flow(self.socket, None);
        if aborted {
            self.socket.abort();
        } else {
            self.socket.close();
        }
    }

    /// Sends GOAWAY, after all frames that were made.
    fn send_goaway(&mut self, code: Code) {
        let Connection { peer, plain: false, .. } = &mut *self.connection else {
            return self.send();
        };
        if !peer.is_over() {
            peer.go_away(code);
        }
        peer.control(&self.speaker.limits, &mut self.buffers.out);
        self.send();
    }

    /// Passes frames to TCP or TLS.
    fn send(&mut self) {
        let out = &mut self.buffers.out;
        if out.is_empty() {
            return;
        }
        let (nth, len) = (self.connection.kept.push(out), out.len() as u32);
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
    ids: &'a mut Ids,
    head: &'a mut HeadText,
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

    /// The peer has ended a stream.
    fn end(&mut self, at: usize) {
        // The server may accept another stream now.
        self.lanes.iter_mut().for_each(|lane| lane.refused = false);
        let lane = &mut self.lanes[at];
        if self.role == Role::Server || lane.tunnel {
            lane.ended = true;
            if !self.has_failed() {
                run(self.apps, self.socket, None, &mut self.lanes[at], Event::PeerClosed);
            }
            return;
        }
        let short = lane.is_short();
        let stream = lane.stream.take();
        // The answer came before the end of the request, so the rest of that is not needed.
        let unsent = lane.sending.take().is_some();
        if lane.leave_call() || unsent {
            self.resets.extend(stream.map(|stream| (stream, Code::CANCEL)));
        }
        self.return_withheld(at, stream);
        if short {
            add(&mut self.tally.counts.violations, "malformed", 1);
            self.fail(at, ProtocolError::Http2);
        }
        if self.apps.speaks_grpc(self.program) {
            self.call(at, Incoming::End);
        }
    }

    /// Returns the credit of a stream that a lane has left.
    fn return_withheld(&mut self, at: usize, stream: Option<StreamId>) {
        let octets = mem::take(&mut self.lanes[at].withheld);
        if let Some(stream) = stream.filter(|_| octets > 0) {
            self.taken.push((stream, octets));
        }
    }

    /// Puts the request of a lane back, which the server has not processed (RFC 9113 section 8.7).
    /// Returns whether that is possible.
    fn put_back(&mut self, at: usize, cause: Cause) -> bool {
        let lane = &mut self.lanes[at];
        let Some(piece) = lane.request.take().filter(|_| lane.repeats < MAX_REPEATS) else {
            return false;
        };
        lane.sending = None;
        lane.tunnel = false;
        lane.alone = lane.messages.is_empty();
        lane.messages.push_front(piece);
        lane.unreported = true;
        // After GOAWAY, no stream can be opened: the lane fails when the others have their answers.
        if cause == Cause::Peer {
            lane.repeats += 1;
            lane.refused = true;
            self.tally.counts.repeated += 1;
        }
        true
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
        let socket = &mut *self.socket;
        self.apps.fail_flow(&mut LaneSocket { socket, lane, ends: None }, Some(error));
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
                run(self.apps, self.socket, None, &mut self.lanes[at], Event::Established);
                at
            }
            (None, _) => return,
        };
        let lane = &mut self.lanes[at];
        (lane.request, lane.repeats) = (None, 0);
        // No window limits interim answers, so a paused program gets no further ones. A handshake of
        // WebSocket has none.
        if head.kind == HeadKind::Interim && (lane.paused || lane.tunnel) {
            return;
        }
        if self.apps.speaks_grpc(self.program) {
            self.call(at, Incoming::Head(head));
        } else {
            self.lanes[at].read_head(head, self.head);
            let text = &self.head.text[..];
            if !text.is_empty() && !self.has_failed() {
                run(self.apps, self.socket, None, &mut self.lanes[at], Event::Received(text));
            }
        }
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
        let failed = self.has_failed();
        match self.lanes[at].read_data(octets, end, self.text) {
            _ if self.apps.speaks_grpc(self.program) => {
                self.call(at, Incoming::Data { octets, end });
            }
            None => self.fail(at, ProtocolError::Http2),
            Some(text) if !text.is_empty() && !failed => {
                run(self.apps, self.socket, None, &mut self.lanes[at], Event::Received(text));
            }
            Some(_) => {}
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
                let stream = self.lanes[at].stream.take();
                self.return_withheld(at, stream);
                let refused = cause == Cause::Peer && code == Code::REFUSED_STREAM;
                let unprocessed = refused || cause == Cause::GoAway;
                if unprocessed && self.put_back(at, cause) {
                    return;
                }
                let lane = &mut self.lanes[at];
                lane.messages.clear();
                lane.sending = None;
                lane.open = false;
                // After the closes of WebSocket, its stream may end in any way.
                if lane.tunnel && self.apps.has_finished(&lane.state) {
                    lane.answered = true;
                    return;
                }
                let of_server = matches!(cause, Cause::Peer | Cause::GoAway);
                if of_server && self.apps.speaks_grpc(self.program) {
                    return self.call(at, Incoming::Reset(code));
                }
                self.fail(at, error);
            }
            Role::Server => {
                self.return_withheld(at, Some(id));
                let mut lane = self.lanes.swap_remove(at);
                run(self.apps, self.socket, None, &mut lane, Event::Gone(Reason::Reset));
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
