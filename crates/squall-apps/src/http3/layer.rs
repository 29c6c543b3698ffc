//! Connections of QUIC by quinn-proto, and their programs.
//!
//! A connection belongs to one flow. Unlike a program's messages, packets cannot be produced twice,
//! so they are stored until the flow has sent them; QUIC itself keeps data that it may have to repeat.
//!
//! A connection that moves to another address or port takes its flow along (RFC 9000 section 9). A
//! client asks the owner of the stack for another port or address. A server's flow follows its
//! client: a datagram of an unknown flow, or of an earlier one from the same address, finds it by the
//! connection ID, and the flow has the new address from when QUIC sends to it. Datagrams to another
//! address, such as a challenge of the former path, are sent without a flow.

use std::{collections::BTreeMap, fmt, mem, net::SocketAddr, sync::Arc, time::Instant};

use bytes::{Bytes, BytesMut};
use quinn_proto::{
    self as quic, ClientConfig, ConnectionError, ConnectionHandle, DatagramEvent, Dir, Endpoint,
    EndpointEvent, Incoming, ReadError, StreamEvent, StreamId, TransportErrorCode, VarInt,
};
use squall_http::h3::{
    self, Cause, Code, Events, Head, HeadKind, Limits, Own, PeerSettings, Progress, Scratch,
    Settings, setting,
};
use squall_tcp::{Event, FlowId, Piece, Reason, Tuple};
use squall_units::{Nanos, mix};

use super::{
    Http3, Http3Counts, MigrateTo,
    endpoints::{
        Home, RunTime, client_config, endpoint_config, forbids_migration, home_of, server_config,
        server_endpoint_config,
    },
    versions::Ids as FirstIds,
};
use crate::{
    Apps, FlowSocket, Observer, ProgramId, ProtocolError, Role, Tls,
    layers::{self, Kept, Slab},
    message::Ready,
    streams::{
        self, LaneIds, LaneSocket, add,
        heads::{HeadText, Heads, Outline, Prepared},
    },
};

/// Marks pieces that are datagrams of a connection, whose index is in the other bits; `nth` is the
/// piece's offset in the flow's sent octets.
pub(crate) const DATAGRAMS: u32 = 3 << 30;

/// Octets of a body that are made at a time. Longer ones would let a stream delay the others.
const CHUNK: u32 = 16 << 10;
/// Octets of a body that leave with the head of their message.
const SHORT: u32 = 1 << 10;
/// The longest DATA frame, whose length has to fit four octets.
const MAX_DATA: u32 = 1 << 29;
/// Streams of the peer that may wait for fields of the table.
const MAX_BLOCKED: u64 = 16;
/// Octets of a stream that are read before its program may pause.
const READ_AHEAD: usize = 64 << 10;
/// Heap memory of a connection of QUIC after a handshake and a request, its place in the endpoint
/// included (of the memory of a process with 5,000 connections: docs/adr/0065-http2-http3.md).
const QUIC_HEAP: usize = 21 << 10;

type Lane = streams::Lane<Stream>;
/// Neither a flow nor a lane of HTTP/2 has both bits.
type Ids = LaneIds<DATAGRAMS>;

/// Connections of all flows whose programs are over HTTP/3.
#[derive(Default)]
pub(crate) struct Layer {
    /// The settings of each program, if it is over HTTP/3.
    programs: Vec<Option<Box<Speaker>>>,
    time: Option<RunTime>,
    /// The endpoint of the clients of all programs.
    clients: Option<Box<Endpoint>>,
    connections: Slab<Connection>,
    /// The worker that has this layer.
    worker: u8,
    home: Home,
    /// Flows of clients that are to get another end.
    moves: Vec<(FlowId, MigrateTo)>,
    ids: Ids,
    buffers: Buffers,
}

/// An input of a flow.
enum Input<'a> {
    Event(Event<'a>),
    /// It has got another end, or there is none.
    Rebound(bool),
}

/// Prints no keys.
impl fmt::Debug for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layer").field("connections", &self.connections).finish_non_exhaustive()
    }
}

/// Settings and counts that the connections of a program share.
struct Speaker {
    settings: Http3,
    tls: Tls,
    end: End,
    limits: Limits,
    heads: Heads,
    /// The frames of heads that are always the same, by the numbers of their pieces. Each worker
    /// has its own, because it counts the references to them.
    frames: BTreeMap<u32, HeadFrame>,
    tally: Tally,
}

/// A head that is always the same, as a frame that refers to no dynamic table.
struct HeadFrame {
    outline: Outline,
    frame: Bytes,
    /// Octets of names and values.
    plain: u32,
}

enum End {
    Client(ClientConfig),
    Server(Box<Endpoint>),
}

#[derive(Clone, Debug, Default)]
struct Tally {
    counts: Http3Counts,
    /// Counts by the connections themselves.
    seen: h3::Counters,
}

/// Buffers that all connections share.
#[derive(Default)]
struct Buffers {
    /// A datagram on its way to the flow.
    out: Vec<u8>,
    head: HeadText,
    text: Vec<u8>,
    /// Frames on their way to a stream.
    frames: Vec<u8>,
    prepared: Prepared,
    scratch: Scratch,
    /// Streams that can be read.
    readable: Vec<StreamId>,
    chunks: Vec<Bytes>,
    /// Streams that this end gives up.
    given_up: Vec<GivenUp>,
    /// Streams whose fields have come.
    unblocked: Vec<StreamId>,
}

/// A stream that waits for insertions into the table of fields, and its chunks.
struct Blocked {
    id: StreamId,
    chunks: Vec<Bytes>,
    /// Whether the peer has finished the stream after these.
    ended: bool,
}

struct GivenUp {
    id: StreamId,
    code: Code,
    /// Whether this end also stops reading.
    stop: bool,
}

struct Connection {
    flow: FlowId,
    /// The flow's ends at the beginning. Its programs know no others, wherever it moves.
    ends: Tuple,
    /// `None`: a server's flow whose client has not sent a valid first packet, or a client's whose
    /// first packet is of a reserved version.
    quic: Option<(ConnectionHandle, quic::Connection)>,
    probe: Option<Probe>,
    /// Whether the endpoint has forgotten the connection.
    drained: bool,
    h3: h3::Connection,
    /// The unidirectional streams of this end, in the order of [`Own::ALL`].
    own: [Option<StreamId>; 3],
    /// Datagrams that the flow has not sent.
    kept: Kept,
    lanes: Vec<Lane>,
    /// The lane whose stream was searched last.
    found: usize,
    /// Whether the program of a lane has failed.
    failed: bool,
    /// At most as many as the settings allow, each with the chunks of one reading.
    blocked: Vec<Blocked>,
    /// The lane that is next to send.
    turn: usize,
    /// The time for which the flow's timer is set.
    wake: Option<Nanos>,
    /// Streams that a client has opened.
    opened: u32,
    /// The numbers of them at which the client moves; 0: never.
    migrates_at: u32,
    rebinds_at: u32,
    /// The move for which another end was requested.
    moving: Option<Move>,
    /// Whether requests can be sent: the handshake is complete, or the client has early data.
    open: bool,
    /// Whether the handshake is not complete although requests can be sent.
    early: bool,
    /// Octets of requests that a client has sent as early data.
    early_octets: u64,
    /// Octets of the fields of those requests, before and after compression.
    early_fields: [u64; 2],
    /// Whether the flow settles after all datagrams that have arrived.
    unsettled: bool,
    /// Whether the flow has ended: nothing more is read or sent.
    over: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    Migration,
    Rebinding,
}

/// A client's first packet of a reserved version, until it is answered.
struct Probe {
    ids: FirstIds,
    /// When it is sent again.
    again: Nanos,
    /// The wait before that.
    wait: Nanos,
}

/// The first wait, which doubles, and the longest: as for Initial packets (RFC 9002 section 6.2).
const FIRST_WAIT: Nanos = Nanos(1_000_000_000);
const LAST_WAIT: Nanos = Nanos(4_000_000_000);

/// A lane's stream.
#[derive(Debug)]
pub struct Stream {
    id: StreamId,
    /// Frames that QUIC has not taken at once, without the octets of longer bodies, and how many of
    /// their octets it has taken since.
    frames: Vec<u8>,
    taken: usize,
    /// The end of the DATA frame, in octets of the message that is being sent.
    framed: u32,
    /// Whether the stream ends after this message.
    last: bool,
    /// Whether it was not read because the program was paused.
    unread: bool,
}

impl Stream {
    fn new(id: StreamId) -> Self {
        Self { id, frames: Vec::new(), taken: 0, framed: 0, last: false, unread: false }
    }

    fn is_sent(&self) -> bool {
        self.frames.is_empty() && !self.last
    }
}

/// Clones only the programs: another worker has its own flows, endpoints and counts.
impl Clone for Layer {
    fn clone(&self) -> Self {
        let mut other = Self { time: self.time.clone(), worker: self.worker, ..Self::default() };
        let (Some(time), programs) = (&self.time, &self.programs) else { return other };
        for (number, speaker) in (0..).zip(programs) {
            let Some(of) = speaker.as_deref() else { continue };
            let role = of.role();
            let with = (time, &other.home);
            let own = Speaker::new(role, &of.settings, &of.tls, with, of.heads.clone());
            layers::set(&mut other.programs, ProgramId(number), Box::new(own));
        }
        other
    }
}

impl Speaker {
    fn new(
        role: Role,
        settings: &Http3,
        tls: &Tls,
        (time, home): (&RunTime, &Home),
        heads: Heads,
    ) -> Self {
        let mut list = vec![(setting::MAX_FIELD_SECTION_SIZE, u64::from(Limits::HEAD))];
        if settings.qpack_table > 0 {
            list.push((setting::QPACK_MAX_TABLE_CAPACITY, settings.qpack_table.into()));
            list.push((setting::QPACK_BLOCKED_STREAMS, MAX_BLOCKED));
        }
        let announced = Settings::new(&list).expect("the profile's settings are in range");
        let limits = Limits { encoder_table: settings.qpack_table, ..Limits::new(announced) };
        // Workers do not wait for each other's tickets.
        let tls = tls.for_worker();
        let end = match role {
            Role::Client => End::Client(client_config(settings, &tls)),
            Role::Server => {
                let config = server_config(settings, &tls, time);
                let server = Some(Arc::new(config));
                let endpoint = server_endpoint_config(home);
                End::Server(Box::new(Endpoint::new(endpoint, server, true, None)))
            }
        };
        let (settings, frames) = (*settings, head_frames(&heads));
        Self { settings, tls, end, limits, heads, frames, tally: Tally::default() }
    }

    fn role(&self) -> Role {
        match self.end {
            End::Client(_) => Role::Client,
            End::Server(_) => Role::Server,
        }
    }
}

fn head_frames(heads: &Heads) -> BTreeMap<u32, HeadFrame> {
    let mut prepared = Prepared::default();
    let frame_of = |piece| {
        let outline = heads.known(piece, &mut prepared)?;
        let mut frame = Vec::new();
        h3::plain_head(&mut frame, |encoder, block| {
            heads.encode(&prepared, block, |field, block| encoder.field(field, block));
        });
        Some((piece, HeadFrame { outline, frame: frame.into(), plain: prepared.plain }))
    };
    heads.all_known().filter_map(frame_of).collect()
}

impl Layer {
    /// `origin`: the clock's time at the beginning of the run's time. `messages`: the program's
    /// messages, with the numbers of their pieces.
    ///
    /// # Panics
    /// If a setting is out of its range.
    pub fn add<'a>(
        &mut self,
        program: ProgramId,
        role: Role,
        settings: &Http3,
        tls: &Tls,
        origin: Instant,
        messages: impl Iterator<Item = (u32, &'a Ready)>,
    ) {
        let time = self.time.get_or_insert_with(|| RunTime::new(origin));
        let mut heads = Heads::default();
        for (piece, message) in messages {
            heads.learn(piece, message, role, true);
        }
        let speaker = Speaker::new(role, settings, tls, (&*time, &self.home), heads);
        layers::set(&mut self.programs, program, Box::new(speaker));
    }

    /// The number of the worker that has this layer, for the connection IDs of its servers.
    pub fn set_worker(&mut self, worker: u8) {
        self.worker = worker;
    }

    /// The flow of the server whose client has sent this datagram from an unknown address.
    pub fn moved(&self, datagram: &[u8]) -> Option<FlowId> {
        owner_of(datagram, self.worker, &self.connections)
    }

    /// Takes a flow that is to get another end; its owner then calls [`rebound`](Self::rebound).
    pub fn take_move(&mut self) -> Option<(FlowId, MigrateTo)> {
        self.moves.pop()
    }

    pub fn has_moves(&self) -> bool {
        !self.moves.is_empty()
    }

    #[inline]
    pub fn has(&self, program: ProgramId) -> bool {
        layers::has(&self.programs, program)
    }

    fn speaker(&self, program: ProgramId) -> Option<&Speaker> {
        self.programs.get(usize::from(program.0))?.as_deref()
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
        self.speaker(program).map(|speaker| speaker.settings.streams)
    }

    pub fn counts(&self, program: ProgramId) -> Option<Http3Counts> {
        self.speaker(program).map(|speaker| speaker.tally.all())
    }

    /// Memory usage in bytes.
    pub fn memory(&self) -> usize {
        let of = |connection: &Connection| {
            let of_lane = |lane: &Lane| {
                let frames = lane.stream.as_ref().map_or(0, |stream| stream.frames.capacity());
                lane.messages.capacity() * size_of::<Piece>() + frames
            };
            size_of::<Connection>()
                + connection.quic.as_ref().map_or(0, |_| QUIC_HEAP)
                + connection.h3.memory()
                + connection.kept.memory()
                + connection.lanes.capacity() * size_of::<Lane>()
                + connection.lanes.iter().map(of_lane).sum::<usize>()
        };
        let of_frames = |speaker: &Speaker| {
            let frames = speaker.frames.values();
            frames.map(|head| head.frame.len() + size_of::<HeadFrame>()).sum::<usize>()
        };
        let programs = self.programs.iter().flatten();
        let programs = programs.map(|speaker| speaker.heads.memory() + of_frames(speaker));
        programs.sum::<usize>() + self.connections.memory(of)
    }

    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// Copies octets from `offset` of a datagram.
    ///
    /// # Panics
    /// If the datagram was sent: it is asked for only once.
    pub fn copy(&self, piece: Piece, offset: u32, out: &mut [u8]) {
        let connection = self.connections.get(piece.message & !DATAGRAMS);
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
        self.handle(apps, socket, Input::Event(event));
    }

    /// Continues a flow that has got another end, or could not get one.
    pub fn rebound<O: Observer>(
        &mut self,
        apps: &mut Apps<O>,
        socket: &mut impl FlowSocket,
        moved: bool,
    ) {
        self.handle(apps, socket, Input::Rebound(moved));
    }

    fn handle<O: Observer>(
        &mut self,
        apps: &mut Apps<O>,
        socket: &mut impl FlowSocket,
        input: Input<'_>,
    ) {
        let id = socket.id();
        let program = apps.program(socket.state());
        let (Some(time), Some(speaker)) =
            (&self.time, self.programs[usize::from(program.0)].as_deref_mut())
        else {
            return;
        };
        let now = time.set(socket.now());
        let clients = self
            .clients
            .get_or_insert_with(|| Box::new(Endpoint::new(endpoint_config(), None, true, None)));
        let (place, mut own) = match self.connections.take(id) {
            Some(own) => own,
            None => match input {
                Input::Event(event @ Event::Gone(_)) => return apps.run_program(socket, event),
                Input::Rebound(_) | Input::Event(Event::Settle) => return,
                Input::Event(_) => {
                    let connection = begin(apps, &*speaker, &mut self.ids, socket);
                    (self.connections.reserve(id), Box::new(connection))
                }
            },
        };
        self.home.set(self.worker, place);
        let (buffers, ids) = (&mut self.buffers, &mut self.ids);
        let connection = &mut *own;
        let mut flow = Flow {
            apps,
            socket,
            connection,
            speaker,
            clients,
            time,
            now,
            program,
            place,
            buffers,
            ids,
            moves: &mut self.moves,
        };
        match input {
            Input::Event(Event::Established) => flow.established(),
            Input::Event(Event::Received(octets)) => {
                if flow.received(octets) {
                    // Its client has moved to an address that this flow still has, because the
                    // close of an earlier connection was lost.
                    match owner_of(octets, self.worker, &self.connections) {
                        Some(other) => socket.pass_on(other),
                        None => speaker.tally.counts.strays += 1,
                    }
                }
            }
            Input::Event(Event::Timer) => flow.timer(),
            Input::Event(Event::Settle) => flow.settle_if_due(),
            Input::Event(Event::Acknowledged { .. } | Event::PeerClosed) => {}
            Input::Rebound(moved) => flow.rebound(moved),
            Input::Event(Event::Gone(reason)) => {
                flow.gone(reason);
                return self.connections.remove(id);
            }
        }
        self.connections.put(place, own);
    }
}

/// The flow of the connection that the connection ID of a datagram to a server names.
fn owner_of(datagram: &[u8], worker: u8, connections: &Slab<Connection>) -> Option<FlowId> {
    let (of, place) = home_of(datagram)?;
    connections.get(place).filter(|_| of == worker).map(|connection| connection.flow)
}

/// The connection of a new flow.
fn begin<O: Observer>(
    apps: &Apps<O>,
    speaker: &Speaker,
    ids: &mut Ids,
    socket: &mut impl FlowSocket,
) -> Connection {
    let (fixed, state) = (speaker.heads.fixed(), *socket.state());
    let (h3, lanes) = match speaker.role() {
        Role::Client => (h3::Connection::client(&speaker.limits, fixed), speaker.settings.streams),
        Role::Server => (h3::Connection::server(&speaker.limits, fixed), 0),
    };
    let lane = |number| {
        let state = apps.lane(&state, u32::from(number), u32::from(lanes));
        Lane::new(ids.take(), state, None)
    };
    Connection {
        flow: socket.id(),
        ends: socket.tuple(),
        quic: None,
        probe: None,
        drained: false,
        h3,
        own: [None; 3],
        kept: Kept::default(),
        lanes: (0..lanes).map(lane).collect(),
        found: 0,
        failed: false,
        blocked: Vec::new(),
        turn: 0,
        wake: None,
        opened: 0,
        migrates_at: speaker.settings.migrate_after,
        rebinds_at: speaker.settings.rebind_after,
        moving: None,
        open: false,
        early: false,
        early_octets: 0,
        early_fields: [0; 2],
        unsettled: false,
        over: false,
    }
}

impl Tally {
    /// All counts, those of connections included.
    fn all(&self) -> Http3Counts {
        let mut all = self.counts.clone();
        let seen = &self.seen;
        all.heads_received = seen.heads;
        all.head_octets_received = seen.head_octets_plain;
        all.compressed_octets_received = seen.head_octets;
        all.ignored = seen.priorities_ignored + seen.frames_ignored + seen.streams_ignored;
        for (name, n) in [
            ("malformed", seen.malformed),
            ("incomplete", seen.incomplete),
            ("refused", seen.refused),
            ("head_too_long", seen.heads_too_long),
        ] {
            add(&mut all.violations, name, n);
        }
        all
    }

    fn reset_sent(&mut self, code: Code) {
        add(&mut self.counts.resets_sent, name_of(code), 1);
    }

    /// Adds the counts of a connection that ends.
    fn ended(&mut self, quic: &quic::Connection) {
        let path = quic.stats().path;
        self.counts.packets_sent += path.sent_packets;
        self.counts.packets_lost += path.lost_packets;
        self.counts.congestion_events += path.congestion_events;
    }
}

fn name_of(code: Code) -> &'static str {
    code.name().unwrap_or("unknown code")
}

fn varint(code: Code) -> VarInt {
    VarInt::from_u64(code.0).unwrap_or(VarInt::MAX)
}

/// A number as both libraries have it (RFC 9000 section 2.1).
fn quic_id(h3::StreamId(number): h3::StreamId) -> StreamId {
    let initiator = if number & 1 == 0 { quic::Side::Client } else { quic::Side::Server };
    let dir = if number & 2 == 0 { Dir::Bi } else { Dir::Uni };
    StreamId::new(initiator, dir, number >> 2)
}

fn h3_id(id: StreamId) -> h3::StreamId {
    h3::StreamId(u64::from(id))
}

/// The octets of a frame's payload, by those of the whole frame (RFC 9114 section 7.1, RFC 9000
/// section 16): the type takes one.
fn payload_len(frame: usize) -> usize {
    let length = match frame {
        0..=65 => 1,
        66..=16_386 => 2,
        _ => 4,
    };
    frame.saturating_sub(1 + length)
}

/// Writes octets on a stream. Returns how many QUIC has taken: none of a stream that the peer has
/// stopped.
fn write(quic: &mut quic::Connection, id: StreamId, octets: &[u8]) -> usize {
    quic.send_stream(id).write(octets).unwrap_or(0)
}

/// The lane of a stream. The last one, `found`, and the next are tried first: streams come in the
/// order of their lanes as a rule.
#[inline]
fn lane_of(lanes: &[Lane], found: &mut usize, id: StreamId) -> Option<usize> {
    let has = |at: &usize| lanes.get(*at).is_some_and(|lane| lane.has_stream(id));
    let near = [*found, *found + 1].into_iter().find(has);
    let at = near.or_else(|| lanes.iter().position(|lane| lane.has_stream(id)))?;
    *found = at;
    Some(at)
}

/// Runs the program of a lane. `failed`: whether that of any lane has failed.
fn run<O: Observer, S: FlowSocket>(
    apps: &mut Apps<O>,
    socket: &mut S,
    ends: &Tuple,
    lane: &mut Lane,
    failed: &mut bool,
    event: Event<'_>,
) {
    streams::run(apps, socket, Some(ends), lane, event);
    *failed |= lane.state.has_failed();
}

/// The endpoint of a flow's end.
fn endpoint<'e>(end: &'e mut End, clients: &'e mut Endpoint) -> &'e mut Endpoint {
    match end {
        End::Client(_) => clients,
        End::Server(endpoint) => endpoint,
    }
}

/// A flow during one of its events.
struct Flow<'a, O, S> {
    apps: &'a mut Apps<O>,
    socket: &'a mut S,
    connection: &'a mut Connection,
    speaker: &'a mut Speaker,
    clients: &'a mut Endpoint,
    time: &'a RunTime,
    now: Instant,
    program: ProgramId,
    place: u32,
    buffers: &'a mut Buffers,
    ids: &'a mut Ids,
    moves: &'a mut Vec<(FlowId, MigrateTo)>,
}

/// The state of a stream after the chunks that were read.
enum Next {
    /// More can be read.
    Octets,
    /// More may come.
    Nothing,
    End,
    Reset(Code),
    /// The stream is not read any more.
    Closed,
}

impl<O: Observer, S: FlowSocket> Flow<'_, O, S> {
    fn established(&mut self) {
        if self.speaker.role() == Role::Client && self.speaker.settings.reserved_version {
            let ids = FirstIds::of(self.socket.state().number());
            self.send_probe(Probe { ids, again: self.socket.due(), wait: FIRST_WAIT });
            return self.set_timer();
        }
        self.connect();
    }

    /// Sends the packet of a reserved version.
    fn send_probe(&mut self, probe: Probe) {
        probe.ids.write(&mut self.buffers.out);
        self.put(self.buffers.out.len());
        let again = probe.again + probe.wait;
        self.connection.probe = Some(Probe { again, wait: probe.wait + probe.wait, ..probe });
    }

    /// Begins the connection of a client.
    fn connect(&mut self) {
        if let End::Client(config) = &self.speaker.end {
            let tuple = self.socket.tuple();
            let server = SocketAddr::new(tuple.remote, tuple.remote_port);
            let name = self.speaker.tls.name_of(tuple.remote);
            match self.clients.connect(self.now, config.clone(), server, &name.to_str()) {
                Ok(quic) => {
                    let early = quic.1.has_0rtt();
                    self.connection.quic = Some(quic);
                    if early {
                        (self.connection.early, self.connection.open) = (true, true);
                        self.run_all();
                    }
                }
                Err(error) => return self.fail_session(ProtocolError::TlsBroken, &error),
            }
        }
        self.settle();
    }

    fn run_all(&mut self) {
        for at in 0..self.connection.lanes.len() {
            self.run(at, Event::Established);
        }
    }

    /// Returns whether the datagram is for another connection of the server.
    fn received(&mut self, datagram: &[u8]) -> bool {
        if self.connection.over {
            return false;
        }
        if let Some(probe) = &self.connection.probe {
            match probe.ids.answered_by(datagram) {
                None => self.speaker.tally.counts.strays += 1,
                Some(false) => {
                    let why = ConnectionError::VersionMismatch;
                    self.fail_session(ProtocolError::TlsIncompatible, &why);
                }
                Some(true) => {
                    self.speaker.tally.counts.version_negotiations += 1;
                    self.connection.probe = None;
                    self.connect();
                }
            }
            return false;
        }
        let (tuple, sender) = (self.socket.tuple(), SocketAddr::from(self.socket.sender()));
        // Version Negotiation has version 0, and Retry is the type 3 of long headers of version 1
        // (RFC 9000 sections 17.2.1 and 17.2.5).
        let negotiates = matches!(datagram, [first, 0, 0, 0, 0, ..] if first & 0x80 != 0);
        let retry = matches!(datagram, [first, 0, 0, 0, 1, ..] if first & 0xf0 == 0xf0)
            && self.speaker.role() == Role::Client
            && (self.connection.early || !self.connection.open);
        self.speaker.tally.counts.retries += u64::from(retry);
        let out = &mut self.buffers.out;
        out.clear();
        let endpoint = endpoint(&mut self.speaker.end, self.clients);
        let datagram = BytesMut::from(datagram);
        let found = endpoint.handle(self.now, sender, Some(tuple.local), None, datagram, out);
        match (found, &mut self.connection.quic) {
            (Some(DatagramEvent::ConnectionEvent(of, event)), Some((own, quic))) if of == *own => {
                self.speaker.tally.counts.version_negotiations += u64::from(negotiates);
                let before = quic.remote_address();
                // QUIC drops it.
                let forbidden = self.speaker.settings.forbid_migration && sender != before;
                self.speaker.tally.counts.strays += u64::from(forbidden);
                quic.handle_event(event);
                if quic.remote_address() != before {
                    self.speaker.tally.counts.migrations += 1;
                    self.follow();
                }
            }
            (Some(DatagramEvent::NewConnection(incoming)), None) => self.accept(incoming),
            (Some(DatagramEvent::NewConnection(incoming)), Some(_)) => {
                endpoint.ignore(incoming);
                self.speaker.tally.counts.strays += 1;
            }
            (Some(DatagramEvent::Response(transmit)), _) => {
                let negotiates = out.get(1..5) == Some(&[0_u8; 4][..]);
                self.speaker.tally.counts.version_negotiations += u64::from(negotiates);
                self.put_to(&tuple, &transmit);
            }
            (Some(DatagramEvent::ConnectionEvent(..)), _)
                if self.speaker.role() == Role::Server =>
            {
                return true;
            }
            (Some(DatagramEvent::ConnectionEvent(..)) | None, _) => {
                self.speaker.tally.counts.strays += 1;
            }
        }
        self.settle_later();
        false
    }

    /// Accepts the connection of a client, or asks it to prove its address.
    fn accept(&mut self, incoming: Incoming) {
        let endpoint = endpoint(&mut self.speaker.end, self.clients);
        let out = &mut self.buffers.out;
        if self.speaker.settings.retry && !incoming.remote_address_validated() {
            let answer = endpoint.retry(incoming, out);
            if let Ok(transmit) = answer {
                self.speaker.tally.counts.retries += 1;
                self.put(transmit.size);
            }
            return;
        }
        match endpoint.accept(incoming, self.now, out, None) {
            Ok(quic) => self.connection.quic = Some(quic),
            Err(error) => {
                if let Some(transmit) = error.response {
                    self.put(transmit.size);
                }
                self.end_session(&error.cause);
            }
        }
    }

    fn timer(&mut self) {
        self.connection.wake = None;
        if self.connection.over {
            return;
        }
        let due = self.socket.due();
        if let Some(probe) = self.connection.probe.take_if(|probe| probe.again <= due) {
            if probe.wait > LAST_WAIT {
                return self.fail(ProtocolError::QuicTimeout, Code::NO_ERROR);
            }
            self.drop_sent();
            self.send_probe(probe);
            return self.set_timer();
        }
        for at in 0..self.connection.lanes.len() {
            let lane = &mut self.connection.lanes[at];
            if lane.wake.is_some_and(|wake| wake <= due) {
                lane.wake = None;
                self.run(at, Event::Timer);
            }
        }
        if let Some((_, quic)) = &mut self.connection.quic {
            let before = quic.remote_address();
            quic.handle_timeout(self.now);
            // The client's new address was not validated in time.
            if quic.remote_address() != before {
                self.speaker.tally.counts.paths_failed += 1;
                self.follow();
            }
        }
        self.settle();
    }

    /// Lets the flow of a server follow its client to the address of the connection's path.
    fn follow(&mut self) {
        let Some((_, quic)) = &self.connection.quic else { return };
        let to = quic.remote_address();
        self.socket.follow((to.ip(), to.port()));
    }

    /// A client has another end now, or cannot get one.
    fn rebound(&mut self, moved: bool) {
        let Connection { moving, quic: Some((handle, quic)), over: false, .. } =
            &mut *self.connection
        else {
            return;
        };
        let counts = &mut self.speaker.tally.counts;
        // Each kind sends a packet at once: the server would otherwise send to the former port for
        // as long as the client has nothing to say.
        match (moving.take(), moved) {
            (Some(Move::Migration), true) => {
                quic.local_address_changed();
                // Another ID comes with its token for resets. Without one, the server has issued no
                // other, and sees a move as by a NAT.
                if let Some(event) = quic.poll_endpoint_events() {
                    counts.migrations += 1;
                    let endpoint = endpoint(&mut self.speaker.end, self.clients);
                    if let Some(event) = endpoint.handle_event(*handle, event) {
                        quic.handle_event(event);
                    }
                } else {
                    counts.rebindings += 1;
                    add(&mut counts.not_moved, "no_connection_id", 1);
                }
            }
            (Some(Move::Rebinding), true) => {
                counts.rebindings += 1;
                quic.ping();
            }
            (Some(Move::Migration), false) => {
                let why = match self.speaker.settings.migrate_to {
                    MigrateTo::Port => "no_port",
                    MigrateTo::Address => "no_address",
                };
                add(&mut counts.not_moved, why, 1);
            }
            (Some(Move::Rebinding), false) => add(&mut counts.not_moved, "no_port", 1),
            (None, _) => return,
        }
        self.settle();
    }

    /// Requests another end for a client whose connection is to move now.
    fn move_if_due(&mut self) {
        let Connection { quic, opened, migrates_at, rebinds_at, moving, .. } =
            &mut *self.connection;
        let is_due = |at: u32| at > 0 && *opened >= at;
        if !is_due(*migrates_at) && !is_due(*rebinds_at) || moving.is_some() {
            return;
        }
        // The handshake has to be confirmed (RFC 9000 section 9).
        let confirmed = |quic: &quic::Connection| quic.stats().frame_rx.handshake_done > 0;
        let Some((_, quic)) = quic.as_ref().filter(|(_, quic)| confirmed(quic)) else { return };
        let Http3 { migrate_after, migrate_to, rebind_after, .. } = self.speaker.settings;
        if is_due(*migrates_at) && forbids_migration(quic) {
            add(&mut self.speaker.tally.counts.not_moved, "forbidden", 1);
            *migrates_at = 0;
            return;
        }
        let (of, to) = if is_due(*migrates_at) {
            *migrates_at = opened.saturating_add(migrate_after);
            // Both at once would be one move: queued packets leave from the last port.
            if is_due(*rebinds_at) {
                *rebinds_at = opened.saturating_add(1);
            }
            (Move::Migration, migrate_to)
        } else {
            *rebinds_at = opened.saturating_add(rebind_after);
            (Move::Rebinding, MigrateTo::Port)
        };
        *moving = Some(of);
        self.moves.push((self.connection.flow, to));
    }

    fn gone(&mut self, reason: Reason) {
        // Answers that came with the end may have been the last. Nothing can be sent any more.
        if mem::take(&mut self.connection.unsettled) && !self.connection.over {
            self.reap();
            self.end_if_done();
        }
        let Connection { lanes, ends, .. } = &mut *self.connection;
        for lane in lanes {
            streams::run(self.apps, self.socket, Some(ends), lane, Event::Gone(reason));
            self.ids.put(lane.id);
        }
        if self.connection.moving.is_some() {
            self.moves.retain(|(flow, _)| *flow != self.connection.flow);
        }
        if let Some((handle, quic)) = &mut self.connection.quic {
            self.speaker.tally.ended(quic);
            if !self.connection.drained {
                let endpoint = endpoint(&mut self.speaker.end, self.clients);
                endpoint.handle_event(*handle, EndpointEvent::drained());
            }
        }
        // Its client has closed, and that packet was lost.
        let silent = matches!(reason, Reason::Refused | Reason::Idle | Reason::Aborted);
        let complete = self.is_idle() && silent;
        if complete {
            self.apps.finish_flow(self.socket);
        }
        let reason = if complete { Reason::Closed } else { reason };
        self.apps.flow_gone(self.socket, reason, false);
    }

    /// Whether it is a server without requests.
    fn is_idle(&self) -> bool {
        self.speaker.role() == Role::Server
            && self.connection.open
            && self.connection.lanes.is_empty()
            && !self.connection.over
    }

    /// Runs a lane's program, unless another has ended the flow.
    fn run(&mut self, at: usize, event: Event<'_>) {
        let Connection { lanes, ends, failed, .. } = &mut *self.connection;
        if !*failed {
            run(self.apps, self.socket, ends, &mut lanes[at], failed, event);
        }
    }

    /// Reads the datagrams so far, and settles after all others that have arrived: requests, answers
    /// and acknowledgments then share packets.
    fn settle_later(&mut self) {
        if self.connection.over || !self.connection.unsettled && !self.socket.settle_later() {
            return self.settle();
        }
        self.connection.unsettled = true;
        self.take_events();
    }

    fn settle_if_due(&mut self) {
        if self.connection.unsettled {
            self.settle();
        }
    }

    /// Handles what QUIC has to say, sends all for which there is room, lets the programs continue
    /// that waited for it, and ends the streams and the flow if their programs have finished.
    fn settle(&mut self) {
        self.connection.unsettled = false;
        self.drop_sent();
        if self.connection.over {
            return;
        }
        loop {
            self.take_events();
            if self.connection.over {
                return;
            }
            self.write_own();
            if self.connection.open
                && let Err((error, code)) = self.pump()
            {
                return self.fail(error, code);
            }
            if self.connection.failed {
                return self.give_up();
            }
            if !self.continue_lanes() {
                break;
            }
        }
        self.reap();
        self.end_if_done();
        if !self.connection.over {
            self.move_if_due();
            // Fields that were added to the table, and acknowledgments of the peer's.
            self.write_own();
            self.transmit();
            self.set_timer();
        }
    }

    /// Drops datagrams that the flow has sent.
    fn drop_sent(&mut self) {
        self.connection.kept.keep_last(self.socket.unwritten() as usize);
    }

    /// Handles the events of QUIC, and reads its streams.
    fn take_events(&mut self) {
        loop {
            let Some((handle, quic)) = &mut self.connection.quic else { return };
            while let Some(event) = quic.poll_endpoint_events() {
                self.connection.drained |= event.is_drained();
                let endpoint = endpoint(&mut self.speaker.end, self.clients);
                if let Some(event) = endpoint.handle_event(*handle, event) {
                    quic.handle_event(event);
                }
            }
            let Some(event) = quic.poll() else { return };
            match event {
                quic::Event::Connected => self.connected(),
                quic::Event::ConnectionLost { reason } => self.end_session(&reason),
                quic::Event::Stream(StreamEvent::Opened { dir }) => {
                    // The peer is a client whose handshake is not complete.
                    let early = !self.connection.open;
                    while let Some(id) = quic.streams().accept(dir) {
                        self.buffers.readable.push(id);
                    }
                    if early {
                        (self.connection.early, self.connection.open) = (true, true);
                        self.speaker.tally.counts.early_accepted += 1;
                        self.begin();
                    }
                    self.read_all();
                }
                quic::Event::Stream(StreamEvent::Readable { id }) => {
                    self.buffers.readable.push(id);
                    self.read_all();
                }
                quic::Event::Stream(StreamEvent::Stopped { id, error_code }) => {
                    self.stopped(id, Code(error_code.into_inner()));
                }
                // All lanes are asked after each event.
                quic::Event::Stream(
                    StreamEvent::Finished { .. }
                    | StreamEvent::Writable { .. }
                    | StreamEvent::Available { .. },
                )
                | quic::Event::HandshakeDataReady
                | quic::Event::DatagramReceived
                | quic::Event::DatagramsUnblocked => {}
            }
            if self.connection.over || self.connection.failed {
                self.buffers.readable.clear();
                self.buffers.unblocked.clear();
                return;
            }
        }
    }

    /// The handshake is complete.
    fn connected(&mut self) {
        let early = mem::take(&mut self.connection.early);
        match (self.speaker.role(), early) {
            // It has begun with its first request.
            (Role::Server, true) => return,
            (Role::Client, true) => self.early_decided(),
            (_, false) => {}
        }
        self.begin();
        if !mem::replace(&mut self.connection.open, true) {
            self.run_all();
        }
    }

    fn begin(&mut self) {
        self.speaker.tally.counts.connections += 1;
        self.apps.begin_flow(self.socket, true);
    }

    /// The server has accepted early data, or all streams are to be opened again.
    fn early_decided(&mut self) {
        let Connection { quic, h3, own, lanes, opened, early_octets, early_fields, .. } =
            &mut *self.connection;
        let counts = &mut self.speaker.tally.counts;
        if quic.as_ref().is_some_and(|(_, quic)| quic.accepted_0rtt()) {
            counts.early_accepted += 1;
            return;
        }
        counts.early_refused += 1;
        counts.sent_octets -= *early_octets;
        counts.head_octets_sent -= early_fields[0];
        counts.compressed_octets_sent -= early_fields[1];
        *h3 = h3::Connection::client(&self.speaker.limits, self.speaker.heads.fixed());
        *own = [None; 3];
        for lane in lanes.iter_mut().filter(|lane| lane.stream.is_some()) {
            lane.drop_rest();
            lane.stream = None;
            if let Some(request) = lane.request.take() {
                lane.messages.push_front(request);
            }
            *opened -= 1;
            counts.streams -= 1;
            counts.heads_sent -= 1;
        }
    }

    /// Reads streams until they are empty, until their programs pause, or until they wait for fields.
    fn read_all(&mut self) {
        while let Some(id) = self.buffers.readable.pop() {
            while !self.is_held(id) {
                let next = self.read(id);
                let chunks = mem::take(&mut self.buffers.chunks);
                if id.dir() == Dir::Bi {
                    let len: usize = chunks.iter().map(Bytes::len).sum();
                    self.apps.observer_mut().received(self.program, len as u32);
                }
                if !self.give(id, &chunks, &next) || !self.resume() {
                    return;
                }
                self.buffers.chunks = chunks;
                if !matches!(next, Next::Octets) {
                    break;
                }
            }
        }
    }

    /// Whether a stream cannot be read now.
    fn is_held(&mut self, id: StreamId) -> bool {
        let Connection { lanes, found, blocked, .. } = &mut *self.connection;
        if id.dir() == Dir::Bi
            && let Some(at) = lane_of(lanes, found, id)
            && let Lane { paused: true, stream: Some(stream), .. } = &mut lanes[at]
        {
            stream.unread = true;
            return true;
        }
        blocked.iter().any(|of| of.id == id)
    }

    /// Gives what waited for fields that have come. Returns whether the flow continues.
    fn resume(&mut self) -> bool {
        while let Some(id) = self.buffers.unblocked.pop() {
            let blocked = &mut self.connection.blocked;
            let Some(at) = blocked.iter().position(|of| of.id == id) else { continue };
            let Blocked { chunks, ended, .. } = blocked.swap_remove(at);
            let next = if ended { Next::End } else { Next::Octets };
            if !self.give(id, &chunks, &next) {
                return false;
            }
            self.buffers.readable.push(id);
        }
        true
    }

    /// Reads chunks of a stream.
    fn read(&mut self, id: StreamId) -> Next {
        self.buffers.chunks.clear();
        let Some((_, quic)) = &mut self.connection.quic else { return Next::Closed };
        let mut stream = quic.recv_stream(id);
        let Ok(mut chunks) = stream.read(true) else { return Next::Closed };
        let mut len = 0;
        while len < READ_AHEAD {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => {
                    len += chunk.bytes.len();
                    self.buffers.chunks.push(chunk.bytes);
                }
                Ok(None) => return Next::End,
                Err(ReadError::Blocked) => return Next::Nothing,
                Err(ReadError::Reset(code)) => return Next::Reset(Code(code.into_inner())),
            }
        }
        Next::Octets
    }

    /// Gives the chunks of a stream to the programs. Returns whether the flow continues.
    fn give(&mut self, id: StreamId, chunks: &[Bytes], next: &Next) -> bool {
        let ended = matches!(next, Next::End);
        let none = [Bytes::new()];
        let chunks = if ended && chunks.is_empty() { &none[..] } else { chunks };
        for (at, chunk) in chunks.iter().enumerate() {
            let end = ended && at + 1 == chunks.len();
            let progress = self.with_h3(|peer, (limits, scratch), receiver| {
                peer.receive(h3_id(id), chunk, end, limits, scratch, receiver)
            });
            match progress {
                None => return false,
                Some(Progress::Taken) => {}
                Some(Progress::Over) => break,
                Some(Progress::Blocked(taken)) => {
                    let rest = chunks[at + 1..].iter().cloned();
                    let chunks = [chunk.slice(taken..)].into_iter().chain(rest).collect();
                    self.connection.blocked.push(Blocked { id, chunks, ended });
                    break;
                }
            }
        }
        match next {
            Next::Reset(code) => {
                let reset = self.with_h3(|peer, (limits, _), receiver| {
                    peer.peer_reset(h3_id(id), *code, limits, receiver)
                });
                reset.is_some()
            }
            _ => true,
        }
    }

    /// The peer has stopped reading a stream.
    fn stopped(&mut self, id: StreamId, code: Code) {
        let own = self.connection.own.contains(&Some(id));
        let Connection { lanes, found, .. } = &mut *self.connection;
        let lane = lane_of(lanes, found, id).map(|at| &mut lanes[at]);
        match (self.speaker.role(), lane) {
            (Role::Client, Some(lane)) => {
                lane.drop_rest();
                self.buffers.given_up.push(GivenUp { id, code: Code::NO_ERROR, stop: false });
            }
            // It gets no answer, so nothing else of it is read, even if its head has not come.
            (Role::Server, _) if !own => {
                let code = Code::REQUEST_CANCELLED;
                self.buffers.given_up.push(GivenUp { id, code, stop: true });
            }
            _ => {}
        }
        self.with_h3(|peer, (limits, _), receiver| match own {
            true => Err(peer.own_stopped(receiver)),
            false => peer.peer_stops(h3_id(id), code, limits, receiver),
        });
    }

    /// Lets HTTP/3 process something, and the programs with it. `None`: the flow ends.
    fn with_h3<T>(
        &mut self,
        process: impl FnOnce(
            &mut h3::Connection,
            (&Limits, &mut Scratch),
            &mut Receiver<'_, O, S>,
        ) -> Result<T, h3::Error>,
    ) -> Option<T> {
        let role = self.speaker.role();
        let Connection { h3, lanes, ends, found, failed: lane_failed, .. } = &mut *self.connection;
        let Buffers { head, text, scratch, given_up, unblocked, .. } = &mut *self.buffers;
        let Speaker { limits, tally, .. } = &mut *self.speaker;
        let mut failed = None;
        let mut receiver = Receiver {
            apps: &mut *self.apps,
            socket: &mut *self.socket,
            role,
            tally: &mut *tally,
            program: self.program,
            ends,
            lanes,
            found,
            ids: &mut *self.ids,
            head,
            text,
            given_up,
            unblocked,
            lane_failed,
            failed: &mut failed,
        };
        let result = process(h3, (limits, scratch), &mut receiver);
        let done = match (result, failed) {
            (Err(error), _) => {
                add(&mut tally.counts.violations, error.why.name(), 1);
                self.fail(ProtocolError::Http3, error.code);
                None
            }
            (Ok(_), Some(error)) => {
                self.fail(error, Code::NO_ERROR);
                None
            }
            (Ok(done), None) => Some(done),
        };
        self.give_up_streams();
        done.filter(|_| !self.connection.over && !self.connection.failed)
    }

    /// Resets and stops the streams that this end gives up.
    fn give_up_streams(&mut self) {
        let Connection { quic: Some((_, quic)), h3, blocked, .. } = &mut *self.connection else {
            return;
        };
        for GivenUp { id, code, stop } in self.buffers.given_up.drain(..) {
            // It sends nothing else, and is forgotten if the peer has ended it, too.
            h3.finish(h3_id(id));
            if stop {
                blocked.retain(|of| of.id != id);
            }
            // The stream may have ended by itself, of which QUIC would say an error.
            if id.dir() == Dir::Bi && quic.send_stream(id).reset(varint(code)).is_ok() {
                self.speaker.tally.reset_sent(code);
            }
            if stop {
                quic.recv_stream(id).stop(varint(code)).ok();
            }
        }
    }

    /// Writes what the connection itself has to send.
    fn write_own(&mut self) {
        let Connection { quic, h3, own, open: true, .. } = &mut *self.connection else { return };
        let Some((_, quic)) = quic else { return };
        for (which, stream) in Own::ALL.into_iter().zip(own) {
            if h3.waiting(which).is_empty() {
                continue;
            }
            *stream = stream.or_else(|| quic.streams().open(Dir::Uni));
            if let Some(id) = *stream {
                let taken = write(quic, id, h3.waiting(which));
                h3.written(which, taken);
            }
        }
    }

    /// Writes the messages of the lanes, in turn, as far as QUIC takes them.
    fn pump(&mut self) -> Result<(), (ProtocolError, Code)> {
        let mut idle = 0;
        while idle < self.connection.lanes.len() {
            let next = self.connection.turn + 1;
            self.connection.turn = if next < self.connection.lanes.len() { next } else { 0 };
            let done = self.connection.lanes[self.connection.turn].has_output()
                && self.pump_lane(self.connection.turn)?;
            idle = if done { 0 } else { idle + 1 };
        }
        Ok(())
    }

    /// Writes the next part of a lane's message. Returns whether something was done.
    fn pump_lane(&mut self, at: usize) -> Result<bool, (ProtocolError, Code)> {
        let Connection {
            quic: Some((_, quic)),
            ends: tuple,
            h3,
            lanes,
            opened,
            early,
            early_octets,
            early_fields,
            ..
        } = &mut *self.connection
        else {
            return Ok(false);
        };
        let Buffers { text, frames, prepared, .. } = &mut *self.buffers;
        let role = self.speaker.role();
        let Speaker { heads, frames: known, tally, .. } = &mut *self.speaker;
        let lane = &mut lanes[at];
        if let Some(stream) = &mut lane.stream {
            if !stream.frames.is_empty() {
                let taken = write(quic, stream.id, &stream.frames[stream.taken..]);
                stream.taken += taken;
                tally.counts.sent_octets += taken as u64;
                *early_octets += if *early { taken as u64 } else { 0 };
                if stream.taken == stream.frames.len() {
                    (stream.frames, stream.taken) = (Vec::new(), 0);
                }
                return Ok(taken > 0);
            }
            if let Some((piece, from)) = lane.sending {
                if from == stream.framed {
                    let len = (piece.len - from).min(MAX_DATA);
                    let end = from + len == piece.len && stream.last;
                    stream.framed += len;
                    if !h3.data(h3_id(stream.id), len, end, &mut stream.frames) {
                        lane.drop_rest();
                    }
                    return Ok(true);
                }
                let len = (stream.framed - from).min(CHUNK);
                text.clear();
                text.resize(len as usize, 0);
                self.apps.write(&lane.state, tuple, piece, from, text);
                let taken = write(quic, stream.id, text);
                tally.counts.sent_octets += taken as u64;
                *early_octets += if *early { taken as u64 } else { 0 };
                let from = from + taken as u32;
                lane.sending = (from < piece.len).then_some((piece, from));
                return Ok(taken > 0);
            }
            if mem::take(&mut stream.last) {
                // A stream that the peer has stopped needs no end.
                quic.send_stream(stream.id).finish().ok();
                lane.answered = true;
                return Ok(true);
            }
        }
        let Some(&piece) = lane.messages.front() else { return Ok(false) };
        match (role, &lane.stream) {
            // One request at a time.
            (Role::Client, Some(_)) => return Ok(false),
            (Role::Client, None) if !h3.can_open() => {
                return Err((ProtocolError::ClosedEarly, Code::NO_ERROR));
            }
            (Role::Client, None) => {
                // The server allows no further one now.
                let Some(id) = quic.streams().open(Dir::Bi) else { return Ok(false) };
                h3.open(h3_id(id));
                *opened += 1;
                tally.counts.streams += 1;
                lane.stream = Some(Stream::new(id));
            }
            (Role::Server, _) if lane.answered => {
                return Err((ProtocolError::BadHttp, Code::INTERNAL_ERROR));
            }
            (Role::Server, _) => {}
        }
        let known = known.get(&piece.message).filter(|_| h3.sends_plain_heads());
        let outline = match known {
            Some(known) => known.outline.with_body(piece.len),
            None => {
                let (of, buffers) = ((&*heads, role, true), (&mut *text, &mut *prepared));
                lane.write_head(self.apps, of, (piece, &*tuple), buffers)
            }
        };
        let outline = outline.map_err(|_| (ProtocolError::BadHttp, Code::INTERNAL_ERROR))?;
        lane.messages.pop_front();
        let Some(stream) = &mut lane.stream else { return Ok(false) };
        let end = outline.len == piece.len && !outline.interim;
        frames.clear();
        let (sent, plain) = match known {
            Some(HeadFrame { frame, plain, .. }) => {
                let sent = h3.head_known(h3_id(stream.id), end);
                frames.extend_from_slice(if sent { &frame[..] } else { &[] });
                (sent, *plain)
            }
            None => {
                let sent = h3.head(h3_id(stream.id), end, frames, |encoder, block| {
                    heads.encode(prepared, block, |field, block| encoder.field(field, block));
                });
                (sent, prepared.plain)
            }
        };
        tally.counts.heads_sent += u64::from(sent);
        let octets = [plain.into(), payload_len(frames.len()) as u64];
        tally.counts.head_octets_sent += octets[0];
        tally.counts.compressed_octets_sent += octets[1];
        if *early {
            *early_fields = [early_fields[0] + octets[0], early_fields[1] + octets[1]];
        }
        stream.framed = outline.len;
        stream.last = !outline.interim;
        if role == Role::Client {
            lane.asked_head = outline.asks_head;
            lane.request = Some(piece).filter(|_| *early);
        }
        let body = piece.len.saturating_sub(outline.len);
        lane.sending = (body > 0).then_some((piece, outline.len));
        if (1..=SHORT).contains(&body) {
            lane.sending = None;
            if h3.data(h3_id(stream.id), body, stream.last, frames) {
                let begin = frames.len();
                frames.resize(begin + body as usize, 0);
                self.apps.write(&lane.state, tuple, piece, outline.len, &mut frames[begin..]);
            } else {
                stream.last = false;
            }
        }
        // Usually QUIC takes all at once.
        let taken = match known {
            // The same octets for all streams, without a copy.
            Some(head) if frames.len() == head.frame.len() => {
                let mut chunk = [head.frame.clone()];
                let written = quic.send_stream(stream.id).write_chunks(&mut chunk);
                written.map_or(0, |written| written.bytes)
            }
            _ => write(quic, stream.id, frames),
        };
        tally.counts.sent_octets += taken as u64;
        *early_octets += if *early { taken as u64 } else { 0 };
        stream.frames.extend_from_slice(&frames[taken..]);
        if taken == frames.len() && lane.sending.is_none() && mem::take(&mut stream.last) {
            quic.send_stream(stream.id).finish().ok();
            lane.answered = true;
        }
        Ok(true)
    }

    /// Lets programs continue whose messages QUIC has taken, or that can read again. Returns whether
    /// there is more to send.
    fn continue_lanes(&mut self) -> bool {
        let mut more = false;
        for at in 0..self.connection.lanes.len() {
            let lane = &mut self.connection.lanes[at];
            if lane.unreported && lane.queued() == 0 {
                lane.unreported = false;
                self.run(at, Event::Acknowledged { octets: 0, all: true });
                more |= self.connection.lanes[at].queued() > 0;
            }
        }
        for lane in self.connection.lanes.iter_mut().filter(|lane| !lane.paused) {
            let stream = lane.stream.as_mut().filter(|stream| stream.unread);
            self.buffers.readable.extend(stream.map(|stream| {
                stream.unread = false;
                stream.id
            }));
        }
        more |= !self.buffers.readable.is_empty();
        self.read_all();
        let ends = self.connection.over || self.connection.failed;
        if ends {
            // Numbers of streams of this connection.
            self.buffers.readable.clear();
            self.buffers.unblocked.clear();
        }
        more || ends
    }

    /// Ends the runs of a server's program that are done, with their streams. Those whose stream has
    /// ended are done, whatever the program would wait for.
    fn reap(&mut self) {
        if self.speaker.role() == Role::Client {
            return;
        }
        for at in (0..self.connection.lanes.len()).rev() {
            let lane = &self.connection.lanes[at];
            let done = lane.answered && lane.ended || self.apps.has_finished(&lane.state);
            let is_sent = lane.stream.as_ref().is_none_or(Stream::is_sent);
            if lane.queued() > 0 || !is_sent || !done {
                continue;
            }
            let mut lane = self.connection.lanes.swap_remove(at);
            let code = match (lane.answered, lane.ended) {
                (true, true) => None,
                // The answer came before the end of the request (RFC 9114 section 4.1).
                (true, false) => Some(Code::NO_ERROR),
                (false, _) => Some(Code::INTERNAL_ERROR),
            };
            if let (Some(stream), Some(code)) = (&lane.stream, code) {
                self.connection.h3.abandon(h3_id(stream.id));
                self.connection.blocked.retain(|of| of.id != stream.id);
                if let Some((_, quic)) = &mut self.connection.quic {
                    let mut sender = quic.send_stream(stream.id);
                    if !lane.answered && sender.reset(varint(code)).is_ok() {
                        self.speaker.tally.reset_sent(code);
                    }
                    quic.recv_stream(stream.id).stop(varint(code)).ok();
                }
            }
            let ends = Some(&self.connection.ends);
            streams::run(self.apps, self.socket, ends, &mut lane, Event::Gone(Reason::Closed));
            self.ids.put(lane.id);
        }
    }

    /// Closes the flow when all programs of a client are done. A server waits for the client.
    fn end_if_done(&mut self) {
        let early_octets = self.connection.early_octets;
        let Connection { lanes, own, quic: Some((_, quic)), open: true, early: false, .. } =
            &mut *self.connection
        else {
            return;
        };
        if self.speaker.role() == Role::Server {
            return;
        }
        // Answers to early data may come before the client's Finished has left. The server would
        // then take the close as an error of the handshake (RFC 9000 section 10.2.3), and send no
        // ticket for the next connection.
        if early_octets > 0 && quic.stats().frame_rx.handshake_done == 0 {
            return;
        }
        let sent =
            |lane: &Lane| lane.queued() == 0 && lane.stream.as_ref().is_none_or(Stream::is_sent);
        if !lanes.iter().all(|lane| self.apps.has_finished(&lane.state) && sent(lane)) {
            return;
        }
        // Answered requests have arrived. For others, only acknowledgments show that, and closing
        // discards outstanding data; the connection's own streams remain open.
        let answered = lanes.iter().all(|lane| lane.stream.is_none());
        if answered || quic.streams().send_streams() <= own.iter().flatten().count() {
            self.close(Code::NO_ERROR);
            self.apps.finish_flow(self.socket);
            self.socket.close();
        }
    }

    /// Closes the connection, and sends that to the peer. Nothing follows.
    fn close(&mut self, code: Code) {
        if let Some((_, quic)) = &mut self.connection.quic {
            quic.close(self.now, varint(code), Bytes::new());
        }
        self.transmit();
        self.connection.over = true;
    }

    /// Ends the flow: the peer or a program has broken a rule.
    #[cold]
    fn fail(&mut self, error: ProtocolError, code: Code) {
        self.buffers.given_up.clear();
        if self.connection.failed {
            return self.give_up();
        }
        self.close(code);
        self.apps.fail_flow(self.socket, Some(error));
        self.socket.close();
    }

    /// Ends the flow after the error of a lane, which is counted already.
    #[cold]
    fn give_up(&mut self) {
        self.close(Code::NO_ERROR);
        self.apps.fail_flow(self.socket, None);
        self.socket.close();
    }

    /// Ends the flow: its connection was not established, or has been closed or lost.
    #[cold]
    fn end_session(&mut self, why: &ConnectionError) {
        if self.connection.unsettled {
            // Lanes of earlier datagrams of this batch.
            self.reap();
        }
        let idle = self.is_idle();
        let complete = match why {
            ConnectionError::ApplicationClosed(close) => {
                !Code(close.error_code.into_inner()).is_error()
            }
            ConnectionError::ConnectionClosed(close) => {
                close.error_code == TransportErrorCode::NO_ERROR
            }
            // Its client may have closed, too, and that packet was lost.
            ConnectionError::TimedOut => idle,
            _ => false,
        };
        if complete && idle {
            self.connection.over = true;
            self.apps.finish_flow(self.socket);
            self.transmit();
            return self.socket.close();
        }
        if complete {
            let error = match self.speaker.role() {
                Role::Client => ProtocolError::ClosedEarly,
                Role::Server => ProtocolError::TooShort,
            };
            return self.fail(error, Code::NO_ERROR);
        }
        match error_of(why) {
            error @ (ProtocolError::QuicClosed
            | ProtocolError::QuicTimeout
            | ProtocolError::QuicBroken) => self.fail(error, Code::NO_ERROR),
            error => self.fail_session(error, why),
        }
    }

    /// Ends the flow after an error of its TLS session.
    #[cold]
    fn fail_session(&mut self, error: ProtocolError, why: &dyn fmt::Display) {
        self.close(Code::NO_ERROR);
        self.apps.secure_failed(self.socket, error, why, true);
        self.socket.close();
    }

    /// Passes the datagrams of QUIC to the flow.
    fn transmit(&mut self) {
        let tuple = self.socket.tuple();
        loop {
            let Some((_, quic)) = &mut self.connection.quic else { return };
            self.buffers.out.clear();
            let Some(transmit) = quic.poll_transmit(self.now, 1, &mut self.buffers.out) else {
                return;
            };
            self.put_to(&tuple, &transmit);
        }
    }

    /// Passes a datagram to the flow, or to another address if it is not for the flow's.
    fn put_to(&mut self, tuple: &Tuple, transmit: &quic::Transmit) {
        let to = transmit.destination;
        if (to.ip(), to.port()) == (tuple.remote, tuple.remote_port) {
            return self.put(transmit.size);
        }
        let len = transmit.size.min(self.buffers.out.len());
        // One that cannot be sent is lost on its way.
        self.socket.send_to((to.ip(), to.port()), &self.buffers.out[..len]);
    }

    /// Passes a datagram of this length to the flow.
    fn put(&mut self, len: usize) {
        let datagram = &self.buffers.out[..len.min(self.buffers.out.len())];
        let (nth, len) = (self.connection.kept.push(datagram), datagram.len());
        let piece = Piece { message: DATAGRAMS | self.place, nth, len: len as u32 };
        if !self.socket.send(piece) {
            // A probe of the path's MTU that is too long for this end; QUIC will count it as lost.
            self.connection.kept.take_back(len);
        }
    }

    fn set_timer(&mut self) {
        // QUIC has the time of measurements, timers have a clock of their own.
        let lag = self.socket.now().saturating_sub(self.socket.clock());
        let quic = self.connection.quic.as_mut().and_then(|(_, quic)| quic.poll_timeout());
        let quic = quic.map(|at| self.time.of(at).saturating_sub(lag));
        let lanes = self.connection.lanes.iter().filter_map(|lane| lane.wake);
        let probe = self.connection.probe.as_ref().map(|probe| probe.again);
        let next = lanes.chain(quic).chain(probe).min();
        if let Some(at) = next.filter(|_| next != self.connection.wake) {
            self.connection.wake = next;
            self.socket.wake_at(at);
        }
    }
}

impl Lane {
    fn has_stream(&self, id: StreamId) -> bool {
        self.stream.as_ref().is_some_and(|stream| stream.id == id)
    }

    /// Whether there are octets or an end to send.
    fn has_output(&self) -> bool {
        let of_stream = self.stream.as_ref().is_some_and(|stream| !stream.is_sent());
        of_stream || self.sending.is_some() || !self.messages.is_empty()
    }

    /// Drops the rest of a message that is being sent.
    fn drop_rest(&mut self) {
        self.sending = None;
        if let Some(stream) = &mut self.stream {
            (stream.frames, stream.taken, stream.last) = (Vec::new(), 0, false);
        }
    }
}

fn error_of(why: &ConnectionError) -> ProtocolError {
    match why {
        ConnectionError::VersionMismatch => ProtocolError::TlsIncompatible,
        ConnectionError::TimedOut => ProtocolError::QuicTimeout,
        ConnectionError::TransportError(error) => match alert(error.code) {
            // Names of alerts: RFC 8446 section 6.
            Some(42..=46 | 48 | 116) => ProtocolError::TlsCertificate,
            Some(40 | 70 | 71 | 109 | 112 | 120) => ProtocolError::TlsIncompatible,
            Some(_) => ProtocolError::TlsBroken,
            None => ProtocolError::QuicBroken,
        },
        ConnectionError::ConnectionClosed(close) => match alert(close.error_code) {
            Some(_) => ProtocolError::TlsAlert,
            None => ProtocolError::QuicClosed,
        },
        ConnectionError::ApplicationClosed(_) | ConnectionError::Reset => ProtocolError::QuicClosed,
        ConnectionError::LocallyClosed | ConnectionError::CidsExhausted => {
            ProtocolError::QuicBroken
        }
    }
}

/// The alert of TLS with which a handshake has failed (RFC 9001 section 4.8).
fn alert(code: TransportErrorCode) -> Option<u8> {
    let code = u64::from(code);
    (code >> 8 == 1).then_some(code as u8)
}

/// Takes what a connection has received to the programs.
struct Receiver<'a, O, S> {
    apps: &'a mut Apps<O>,
    socket: &'a mut S,
    role: Role,
    tally: &'a mut Tally,
    program: ProgramId,
    ends: &'a Tuple,
    lanes: &'a mut Vec<Lane>,
    found: &'a mut usize,
    ids: &'a mut Ids,
    head: &'a mut HeadText,
    text: &'a mut Vec<u8>,
    given_up: &'a mut Vec<GivenUp>,
    unblocked: &'a mut Vec<StreamId>,
    /// Whether the program of a lane has failed.
    lane_failed: &'a mut bool,
    /// An error that ends the flow although no lane can report it.
    failed: &'a mut Option<ProtocolError>,
}

impl<O: Observer, S: FlowSocket> Receiver<'_, O, S> {
    fn lane(&mut self, id: h3::StreamId) -> Option<usize> {
        lane_of(self.lanes, self.found, quic_id(id))
    }

    /// Whether the flow is to end.
    fn has_failed(&self) -> bool {
        self.failed.is_some() || *self.lane_failed
    }

    fn run(&mut self, at: usize, event: Event<'_>) {
        let lane = &mut self.lanes[at];
        run(self.apps, self.socket, self.ends, lane, self.lane_failed, event);
    }

    /// The peer has ended a stream.
    fn end(&mut self, at: usize) {
        let lane = &mut self.lanes[at];
        if self.role == Role::Server {
            lane.ended = true;
            if !self.has_failed() {
                self.run(at, Event::PeerClosed);
            }
            return;
        }
        let short = lane.is_short();
        let unsent = lane.sending.is_some() || lane.stream.as_ref().is_some_and(|s| !s.is_sent());
        // The answer came before the end of the request, so the rest of that is not needed.
        lane.drop_rest();
        if let Some(stream) = lane.stream.take().filter(|_| unsent) {
            let (id, code) = (stream.id, Code::REQUEST_CANCELLED);
            self.given_up.push(GivenUp { id, code, stop: false });
        }
        if short {
            add(&mut self.tally.counts.violations, "malformed", 1);
            self.fail(at, ProtocolError::Http3);
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
        let (socket, ends) = (&mut *self.socket, Some(self.ends));
        self.apps.fail_flow(&mut LaneSocket { socket, lane, ends }, Some(error));
        *self.lane_failed |= self.lanes[at].state.has_failed();
    }
}

impl<O: Observer, S: FlowSocket> Events for Receiver<'_, O, S> {
    fn head(&mut self, id: h3::StreamId, head: &Head<'_>) {
        let at = match (self.lane(id), head.kind) {
            (Some(at), _) => at,
            (None, HeadKind::Request) => {
                self.tally.counts.streams += 1;
                let flow = u64::from(self.socket.state().number());
                let now = self.socket.now();
                let state = self.apps.stream(self.program, mix(flow, id.0) as u32, now);
                let stream = Stream::new(quic_id(id));
                self.lanes.push(Lane::new(self.ids.take(), state, Some(stream)));
                let at = self.lanes.len() - 1;
                self.run(at, Event::Established);
                at
            }
            (None, _) => return,
        };
        // A program that was paused within a chunk gets no further interim answers.
        if head.kind == HeadKind::Interim && self.lanes[at].paused {
            return;
        }
        self.lanes[at].read_head(head, self.head);
        if !self.head.text.is_empty() && !self.has_failed() {
            let (lane, text) = (&mut self.lanes[at], Event::Received(&self.head.text));
            run(self.apps, self.socket, self.ends, lane, self.lane_failed, text);
        }
        if head.end {
            self.end(at);
        }
    }

    fn data(&mut self, id: h3::StreamId, octets: &[u8], end: bool) {
        let Some(at) = self.lane(id) else { return };
        let failed = self.has_failed();
        match self.lanes[at].read_data(octets, end, self.text) {
            None => self.fail(at, ProtocolError::Http3),
            Some(text) if !text.is_empty() && !failed => {
                let (lane, text) = (&mut self.lanes[at], Event::Received(text));
                run(self.apps, self.socket, self.ends, lane, self.lane_failed, text);
            }
            Some(_) => {}
        }
        if end {
            self.end(at);
        }
    }

    fn reset(&mut self, id: h3::StreamId, code: Code, cause: Cause) {
        let counts = &mut self.tally.counts;
        let error = match cause {
            Cause::Peer | Cause::GoAway => ProtocolError::StreamReset,
            Cause::Fault(_) => ProtocolError::Http3,
        };
        let (answer, stop) = match cause {
            Cause::Peer => {
                add(&mut counts.resets_received, name_of(code), 1);
                (Code::REQUEST_CANCELLED, false)
            }
            Cause::GoAway => {
                counts.left_out += 1;
                (Code::REQUEST_CANCELLED, true)
            }
            // The connection counts why.
            Cause::Fault(_) => (code, true),
        };
        self.given_up.push(GivenUp { id: quic_id(id), code: answer, stop });
        let Some(at) = self.lane(id) else { return };
        match self.role {
            Role::Client => {
                let lane = &mut self.lanes[at];
                lane.drop_rest();
                lane.stream = None;
                lane.messages.clear();
                self.fail(at, error);
            }
            Role::Server => {
                let mut lane = self.lanes.swap_remove(at);
                let gone = Event::Gone(Reason::Reset);
                streams::run(self.apps, self.socket, Some(self.ends), &mut lane, gone);
                self.ids.put(lane.id);
            }
        }
    }

    fn stop(&mut self, id: h3::StreamId, code: Code) {
        self.given_up.push(GivenUp { id: quic_id(id), code, stop: true });
    }

    fn unblocked(&mut self, id: h3::StreamId) {
        self.unblocked.push(quic_id(id));
    }

    fn settings(&mut self, _: &PeerSettings) {
        // They concern fields only, and the encoder has taken them.
    }

    fn going_away(&mut self, _: u64) {
        self.tally.counts.goaways_received += 1;
    }

    fn counters(&mut self) -> &mut h3::Counters {
        &mut self.tally.seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_numbers_are_those_of_quic() {
        for number in [0, 1, 2, 3, 4, 7, 400, (1 << 60) + 3] {
            assert_eq!(h3_id(quic_id(h3::StreamId(number))), h3::StreamId(number));
        }
        assert_eq!(quic_id(h3::StreamId(2)).dir(), Dir::Uni);
        assert_eq!(quic_id(h3::StreamId(1)).initiator(), quic::Side::Server);
    }

    #[test]
    fn the_length_of_a_frame_has_one_two_or_four_octets() {
        let lens = [2, 65, 67, 16_386, 16_389].map(payload_len);
        assert_eq!(lens, [0, 63, 64, 16_383, 16_384]);
    }

    #[test]
    fn each_cause_of_a_lost_connection_has_its_error() {
        let code = TransportErrorCode::crypto;
        let of = |code: TransportErrorCode| error_of(&ConnectionError::TransportError(code.into()));
        assert_eq!(of(code(48)), ProtocolError::TlsCertificate, "unknown_ca");
        assert_eq!(of(code(120)), ProtocolError::TlsIncompatible, "no_application_protocol");
        assert_eq!(of(code(50)), ProtocolError::TlsBroken, "decode_error");
        assert_eq!(of(TransportErrorCode::PROTOCOL_VIOLATION), ProtocolError::QuicBroken);
        assert_eq!(error_of(&ConnectionError::Reset), ProtocolError::QuicClosed);
        assert_eq!(error_of(&ConnectionError::TimedOut), ProtocolError::QuicTimeout);
    }
}
