//! Runs programs over the flows of a stack.

use std::{collections::HashMap, fmt, net::IpAddr, ops::RangeInclusive, sync::Arc, time::Instant};

use squall_program::unit;
use squall_tcp::{
    Application, ClassId, Deed, Event, Events, FlowId, FlowKind, Piece, Reason, SendError, Socket,
    StateParts, Tuple,
};
use squall_units::{Nanos, below, mix};

use crate::{
    Delay, Observer, Program, ProgramError, ProtocolError, Role, Transport,
    answers::Kept,
    calls::{Calls, RequestState},
    code::{Code, NO_TAKE, Op, Owner, TakeOf, Traits, compile},
    grpc::Call,
    http::{Found, Kind, LastHead, Parser},
    http2::{self, Http2, Http2Counts, STREAMS},
    http3::{self, DATAGRAMS, Http3, Http3Counts, MigrateTo},
    message::{Ready, Sending},
    model::TakeForm,
    proxy::{self, ProxyProtocol},
    requests,
    tls::{Layer, SESSION, Tls},
    websocket::{Connections, FRAMED, KEPT, SHARED},
};

pub(crate) mod at_once;
mod grpc;
mod websocket;

/// A program in an [`Apps`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProgramId(pub u16);

/// The interpreter's state for a flow: its position, its pending receive, and the seeds of its next
/// octets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The flow's number, from which its octets are derived.
    flow: u32,
    /// Received but not yet consumed octets, matched octets of a pattern, or datagrams; for an HTTP
    /// body, the remaining octets.
    have: u32,
    /// When the request began (before the first request: the flow), in steps of 256 ns.
    began: u32,
    /// The program's single variable or loop counter; if it has several, the index of the flow's
    /// row in `rows`.
    register: u32,
    /// Number of messages sent. In programs with HTTP, only the lowest 13 bits; the class of the
    /// current answer's status follows, and the upper half is an [`http::Parser`](Parser).
    sent: u32,
    /// The operation, 22 bits; number of sent messages that are not acknowledged, 4 bits; flags.
    at: u32,
}

impl State {
    /// The flow's number.
    pub(crate) fn number(&self) -> u32 {
        self.flow
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.at & (STARTED | PIECES) == FAILED
    }

    /// See [`Application::divide`]: flows of a template that wait do so at the same operation.
    #[must_use]
    pub fn divide(&self) -> StateParts {
        let Self { flow, have, began, register, sent, at } = *self;
        StateParts { own: [flow, began, register], common: [have, sent, at] }
    }

    /// See [`Application::join`].
    #[must_use]
    pub fn join(parts: &StateParts) -> Self {
        let StateParts { own: [flow, began, register], common: [have, sent, at] } = *parts;
        Self { flow, have, began, register, sent, at }
    }
}

const AT: u32 = (1 << 22) - 1;
const PIECE: u32 = 1 << 22;
const PIECES: u32 = 15 << 22;
/// A client's request waits for its answer.
const ASKED: u32 = 1 << 26;
/// The first octets of that answer have arrived.
const ANSWERING: u32 = 1 << 27;
/// The operation waits for a timer, or for room to send.
const WAITING: u32 = 1 << 28;
const PEER_CLOSED: u32 = 1 << 29;
/// The program has closed its direction.
const CLOSED: u32 = 1 << 30;
/// The first event has occurred.
const STARTED: u32 = 1 << 31;
/// The flow has failed: all bits of `PIECES` without `STARTED`, which does not occur otherwise.
const FAILED: u32 = PIECES;

/// Mask for programs with HTTP: the number of messages sent. The status class follows.
const SENT: u32 = (1 << STATUS_AT) - 1;
const STATUS_AT: u32 = 13;
const STATUS: u32 = 7 << STATUS_AT;

/// Maximum unacknowledged octets with which another message may begin.
const SEND_AHEAD: u32 = 1 << 20;
/// Maximum early octets stored if they cannot just be counted; at this amount, the window stops
/// advancing.
const MAX_STASHED: usize = 64 << 10;

/// Programs and listeners. `O` observes the flows.
///
/// A clone shares the programs' memory; each worker has its own.
#[derive(Clone, Debug, Default)]
pub struct Apps<O = ()> {
    code: Arc<Code>,
    seed: u64,
    listeners: Listeners,
    /// Variables and loop counters of flows whose programs have more than one.
    rows: Vec<[u32; crate::code::MAX_REGISTERS]>,
    free_rows: Vec<u32>,
    /// Stored parts of answers, keyed by the flow's row.
    kept: HashMap<u32, Kept>,
    /// For streams of HTTP/2 and HTTP/3.
    last_head: LastHead,
    stash: HashMap<FlowId, Vec<u8>>,
    spare: Vec<Vec<u8>>,
    calls: Calls,
    websockets: Connections,
    /// Calls of gRPC, by the lanes of their streams.
    grpc_calls: HashMap<FlowId, Call>,
    /// Headers of the PROXY protocol; `None` if no program has them.
    proxy: Option<Box<proxy::Layer>>,
    /// TLS sessions; `None` if no program has TLS.
    pub(crate) secure: Option<Box<Layer>>,
    /// Connections of HTTP/2; `None` if no program is over HTTP/2.
    http2: Option<Box<http2::Layer>>,
    /// Connections of HTTP/3; `None` if no program is over HTTP/3.
    http3: Option<Box<http3::Layer>>,
    /// Number of flows from peers that no listener includes.
    unknown_peers: u64,
    /// Number of flows in a delay, which continue on their own, and of UDP flows that only wait for
    /// their peers to be silent.
    delaying: usize,
    lingering: usize,
    observer: O,
}

/// Where a server's program listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    pub program: ProgramId,
    /// The class of accepted flows.
    pub class: ClassId,
    /// Inclusive, of one IP version.
    pub addresses: RangeInclusive<IpAddr>,
    pub ports: RangeInclusive<u16>,
    /// `None`: any peer.
    pub peers: Option<Peers>,
}

/// The peers that a listener serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peers {
    /// Inclusive ranges.
    pub addresses: Vec<RangeInclusive<IpAddr>>,
    /// A peer's port has this remainder ...
    pub rank: u16,
    /// ... modulo this number, which is at least 1.
    pub of: u16,
}

impl Peers {
    #[inline]
    fn includes(&self, tuple: &Tuple) -> bool {
        tuple.remote_port % self.of == self.rank
            && self.addresses.iter().any(|range| range.contains(&tuple.remote))
    }
}

/// A flow as programs use it: [`squall_tcp::Socket`], a TLS session, or a pipe in a test.
pub trait FlowSocket {
    /// Whether a TLS session lies in between, in which case the two handshakes are reported
    /// separately.
    const SECURED: bool = false;
    /// Whether it is a stream of a flow, whose start and end are not those of the flow.
    const PART: bool = false;

    /// Whether it is a stream of HTTP/2 now, on which WebSocket has another handshake (RFC 8441).
    fn is_stream(&self) -> bool {
        false
    }
    /// Whether TLS has agreed on HTTP/1.1, or on nothing, for a program over HTTP/2.
    fn chose_http1(&self) -> bool {
        false
    }

    /// Real time, for measurements.
    fn now(&self) -> Nanos;
    /// When the current event was due, on the timer clock; the next timer counts from it.
    fn due(&self) -> Nanos;
    /// The timer clock.
    fn clock(&self) -> Nanos {
        self.due()
    }
    fn id(&self) -> FlowId;
    fn tuple(&self) -> Tuple;
    /// From where the datagram of the current event came, for flows of datagrams.
    fn sender(&self) -> (IpAddr, u16) {
        let tuple = self.tuple();
        (tuple.remote, tuple.remote_port)
    }
    /// Gives a flow of datagrams another remote end. An earlier flow that has it gets this flow's.
    fn follow(&mut self, _remote: (IpAddr, u16)) {}
    /// Passes the datagram of the current event on to another flow at the same local end.
    fn pass_on(&mut self, _to: FlowId) {}
    /// Sends a datagram to another remote end than the flow's.
    fn send_to(&mut self, _remote: (IpAddr, u16), _datagram: &[u8]) {}
    fn state(&mut self) -> &mut State;
    /// Returns false if the piece is a datagram that does not fit a packet.
    fn send(&mut self, piece: Piece) -> bool;
    fn close(&mut self);
    fn abort(&mut self);
    /// Requests [`Event::Timer`] at `at` on the timer clock. Replaces an earlier request.
    fn wake_at(&mut self, at: Nanos);
    /// Requests [`Event::Settle`] after all packets that have arrived. Returns false if it does not
    /// come, and the flow has to settle at once.
    fn settle_later(&mut self) -> bool {
        false
    }
    /// Sent octets that the peer has not acknowledged.
    fn unacknowledged(&self) -> u32;
    /// The part of them that was never sent.
    fn unsent(&self) -> u32;
    /// Sent octets whose content may still be asked for.
    fn unwritten(&self) -> u32 {
        self.unacknowledged()
    }
    /// Stops advancing the window: the peer stops once it has filled it.
    fn pause(&mut self);
    /// Ends [`pause`](Self::pause).
    fn resume(&mut self);
}

impl<O: Observer> Apps<O> {
    /// Equal seeds (of the run) give equal octets.
    pub fn new(seed: u64, observer: O) -> Self {
        Self {
            code: Arc::default(),
            seed,
            listeners: Listeners::default(),
            rows: vec![],
            free_rows: vec![],
            kept: HashMap::new(),
            last_head: LastHead::default(),
            stash: HashMap::new(),
            spare: vec![],
            calls: Calls::default(),
            websockets: Connections::default(),
            grpc_calls: HashMap::new(),
            proxy: None,
            secure: None,
            http2: None,
            http3: None,
            unknown_peers: 0,
            delaying: 0,
            lingering: 0,
            observer,
        }
    }

    /// The same programs and listeners without flows, for another worker.
    pub fn share<P: Observer>(&self, observer: P) -> Apps<P> {
        Apps {
            code: self.code.clone(),
            listeners: self.listeners.clone(),
            proxy: self.proxy.clone(),
            secure: self.secure.clone(),
            http2: self.http2.clone(),
            http3: self.http3.clone(),
            ..Apps::new(self.seed, observer)
        }
    }

    /// Adds a program.
    ///
    /// # Errors
    /// The first error in it, with the number of the instruction.
    pub fn add(&mut self, program: &Program) -> Result<ProgramId, ProgramError> {
        let code = compile(program)?;
        let all = Arc::make_mut(&mut self.code);
        let number = all.append(code).map_err(|mistake| program.error(0, mistake))?;
        all.add_tracks(number);
        Ok(ProgramId(number))
    }

    /// Runs this program's flows inside TLS sessions.
    ///
    /// # Panics
    /// If the program is over UDP.
    pub fn secure(&mut self, program: ProgramId, tls: &Tls) {
        assert!(self.transport(program) == Transport::Tcp, "TLS is over TCP");
        self.secure.get_or_insert_default().add(program, tls);
        Arc::make_mut(&mut self.code).remove_tracks(program.0);
    }

    /// Puts headers of the PROXY protocol in front of this program's flows: clients send one,
    /// servers require one.
    ///
    /// # Panics
    /// If the program is over UDP.
    pub fn proxy(&mut self, program: ProgramId, settings: &Arc<ProxyProtocol>) {
        let tcp = self.transport(program) == Transport::Tcp;
        assert!(tcp, "the PROXY protocol is over TCP");
        self.proxy.get_or_insert_default().add(program, settings);
        Arc::make_mut(&mut self.code).remove_tracks(program.0);
    }

    /// Runs this program over streams of HTTP/2, several times in each flow: inside of TLS if
    /// [`secure`](Self::secure) was called before, and otherwise by prior knowledge.
    ///
    /// # Panics
    /// If the program is over UDP, or a setting is out of its range.
    pub fn over_http2(&mut self, program: ProgramId, settings: &Http2) {
        assert!(self.transport(program) == Transport::Tcp, "HTTP/2 is over TCP");
        let role = self.role(program);
        let secure = self.secure.as_ref().is_some_and(|layer| layer.has(program));
        let websocket = self.code.programs[usize::from(program.0)].traits.websocket;
        let layers = (secure, websocket);
        // HTTP/1.1 has no streams for calls.
        let settings =
            &Http2 { fallback: settings.fallback && !self.speaks_grpc(program), ..*settings };
        // Before the code is shared for a moment, which would make this a copy of all of it.
        Arc::make_mut(&mut self.code).remove_tracks(program.0);
        let code = self.code.clone();
        let messages = messages_of(&code, program);
        self.http2.get_or_insert_default().add(program, role, layers, settings, messages);
    }

    /// Runs this program over streams of HTTP/3, several times in each flow, which is one of
    /// datagrams. To be called before [`listen`](Self::listen). `origin`: the clock's time at the
    /// beginning of the run's time; the same for all programs.
    ///
    /// # Panics
    /// If the program is over UDP, or a setting is out of its range.
    pub fn over_http3(&mut self, program: ProgramId, settings: &Http3, tls: &Tls, origin: Instant) {
        assert!(self.transport(program) == Transport::Tcp, "programs write octets in order");
        let role = self.role(program);
        // As in `over_http2`.
        Arc::make_mut(&mut self.code).remove_tracks(program.0);
        let code = self.code.clone();
        let messages = messages_of(&code, program);
        self.http3.get_or_insert_default().add(program, role, settings, tls, origin, messages);
    }

    /// Counts over all connections of a program; `None` if it is not over HTTP/3.
    #[must_use]
    pub fn http3_counts(&self, program: ProgramId) -> Option<Http3Counts> {
        self.http3.as_ref()?.counts(program)
    }

    /// Sets the number of the worker whose flows these are, of at most 256, for the connection IDs
    /// of HTTP/3's servers ([`quic_worker`]). To be called after [`over_http3`](Self::over_http3).
    pub fn set_worker(&mut self, worker: u8) {
        if let Some(layer) = &mut self.http3 {
            layer.set_worker(worker);
        }
    }

    /// Whether flows of clients wait for another port or address.
    #[must_use]
    #[inline]
    pub fn has_moves(&self) -> bool {
        self.http3.as_ref().is_some_and(|layer| layer.has_moves())
    }

    /// Takes a client's flow whose connection of QUIC moves to another port or address. The owner of
    /// the stack gives the flow one ([`squall_tcp::Stack::rebind`]), and then calls
    /// [`rebound`](Self::rebound).
    pub fn take_move(&mut self) -> Option<(FlowId, MigrateTo)> {
        self.http3.as_mut()?.take_move()
    }

    /// Continues the flow of [`take_move`](Self::take_move); `moved`: whether there was one.
    pub fn rebound(&mut self, socket: &mut impl FlowSocket, moved: bool) {
        let Some(mut layer) = self.http3.take() else { return };
        if layer.has(self.program(socket.state())) {
            layer.rebound(self, socket, moved);
        }
        self.http3 = Some(layer);
    }

    /// Counts over all connections of a program; `None` if it is not over HTTP/2.
    #[must_use]
    pub fn http2_counts(&self, program: ProgramId) -> Option<Http2Counts> {
        self.http2.as_ref()?.counts(program)
    }

    /// Serves flows to these addresses and ports with this program. If several listeners match, the
    /// one added first is used; a peer that no listener includes gets the first listener.
    ///
    /// # Panics
    /// If the program is a client's.
    pub fn listen(&mut self, listener: Listener) {
        let info = &self.code.programs[usize::from(listener.program.0)];
        assert!(info.traits.role == Role::Server, "{:?} is not a server's program", info.name);
        let datagrams = self.http3.as_ref().is_some_and(|layer| layer.has(listener.program));
        let transport = if datagrams { Transport::Udp } else { info.traits.transport };
        self.listeners.add(listener, transport);
    }

    /// Removes the program's listeners; open flows continue.
    pub fn stop_listening(&mut self, program: ProgramId) {
        self.listeners.remove(program);
    }

    /// Initial state of a flow of a client program. `number` is the flow's number within its
    /// template over all workers; its set-up time is measured from `due`, when it should have
    /// started.
    #[must_use]
    pub fn client(&self, program: ProgramId, number: u32, due: Nanos) -> State {
        let info = &self.code.programs[usize::from(program.0)];
        debug_assert!(
            info.traits.role == Role::Client,
            "{:?} is not a client's program",
            info.name
        );
        State { flow: number, began: ticks(due), at: info.traits.start, ..State::default() }
    }

    /// The program that a flow runs.
    #[must_use]
    pub fn program(&self, state: &State) -> ProgramId {
        ProgramId(self.code.owner[(state.at & AT) as usize].program)
    }

    #[must_use]
    pub fn name(&self, program: ProgramId) -> &str {
        &self.code.programs[usize::from(program.0)].name
    }

    /// Flows that programs have requested.
    #[must_use]
    #[inline]
    pub fn calls(&self) -> &Calls {
        &self.calls
    }

    /// As [`calls`](Self::calls), mutable for the code that opens the flows.
    #[inline]
    pub fn calls_mut(&mut self) -> &mut Calls {
        &mut self.calls
    }

    /// Names of the program's counters, in order of their numbers.
    #[must_use]
    pub fn counters(&self, program: ProgramId) -> &[Arc<str>] {
        &self.code.programs[usize::from(program.0)].counters
    }

    /// Number of requests that each flow of a client program makes, without redirects; `None`: it
    /// makes none, or the number depends on chance or on the peer.
    #[must_use]
    pub fn requests(&self, program: ProgramId) -> Option<u64> {
        let requests = self.code.programs[usize::from(program.0)].traits.requests?;
        let http2 = self.http2.as_ref().and_then(|layer| layer.lanes(program));
        let http3 = self.http3.as_ref().and_then(|layer| layer.lanes(program));
        Some(requests.saturating_mul(http2.or(http3).unwrap_or(1).into()))
    }

    #[must_use]
    pub fn role(&self, program: ProgramId) -> Role {
        self.code.programs[usize::from(program.0)].traits.role
    }

    #[must_use]
    pub fn transport(&self, program: ProgramId) -> Transport {
        self.code.programs[usize::from(program.0)].traits.transport
    }

    pub fn observer(&self) -> &O {
        &self.observer
    }

    pub fn observer_mut(&mut self) -> &mut O {
        &mut self.observer
    }

    /// Memory usage in bytes, without the flows' records: programs, variables, early octets.
    #[must_use]
    pub fn memory(&self) -> usize {
        let stashed: usize = self.stash.values().chain(&self.spare).map(Vec::capacity).sum();
        self.code.ops.capacity() * size_of::<Op>()
            + self.code.owner.capacity() * size_of::<Owner>()
            + self.code.tracks.capacity() * size_of::<at_once::Track>()
            + self.rows.capacity() * size_of::<[u32; 8]>()
            + self.kept.values().map(Kept::memory).sum::<usize>()
            + stashed
            + self.calls.memory()
            + self.websockets.memory()
            + self.grpc_calls.capacity() * size_of::<(FlowId, Call)>()
            + self.proxy.as_ref().map_or(0, |layer| layer.memory())
            + self.secure.as_ref().map_or(0, |layer| layer.memory())
            + self.http2.as_ref().map_or(0, |layer| layer.memory())
            + self.http3.as_ref().map_or(0, |layer| layer.memory())
    }

    /// Runs of programs that share the connections of HTTP/2 and HTTP/3: the streams of servers, and
    /// what clients have open at a time.
    #[must_use]
    pub fn lanes(&self) -> usize {
        self.http2.as_ref().map_or(0, |layer| layer.open_lanes())
            + self.http3.as_ref().map_or(0, |layer| layer.open_lanes())
    }

    /// Number of streams of HTTP/2 and HTTP/3 that have begun.
    #[must_use]
    pub fn streams(&self) -> u64 {
        self.http2.as_ref().map_or(0, |layer| layer.streams())
            + self.http3.as_ref().map_or(0, |layer| layer.streams())
    }

    /// Number of flows with state outside of their record; 0 if no flow is left.
    #[must_use]
    pub fn held(&self) -> usize {
        self.rows.len() - self.free_rows.len()
            + self.stash.len()
            + self.kept.len()
            + self.calls.len()
            + self.websockets.len()
            + self.grpc_calls.len()
            + self.proxy.as_ref().map_or(0, |layer| layer.len())
            + self.secure.as_ref().map_or(0, |layer| layer.len())
            + self.http2.as_ref().map_or(0, |layer| layer.len())
            + self.http3.as_ref().map_or(0, |layer| layer.len())
    }

    /// See [`Application::event`].
    #[inline]
    pub fn on_event(&mut self, socket: &mut impl FlowSocket, event: Event<'_>) {
        if let Some(layer) = &self.proxy
            && layer.has(self.program(socket.state()))
        {
            return self.on_proxy_event(socket, event);
        }
        self.after_proxy(socket, event);
    }

    #[inline(never)]
    fn on_proxy_event(&mut self, socket: &mut impl FlowSocket, event: Event<'_>) {
        let Some(mut layer) = self.proxy.take() else { return };
        layer.event(self, socket, event);
        self.proxy = Some(layer);
    }

    /// Handles an event of the stream after the header of the PROXY protocol.
    #[inline]
    pub(crate) fn after_proxy(&mut self, socket: &mut impl FlowSocket, event: Event<'_>) {
        if let Some(layer) = &self.secure
            && layer.has(self.program(socket.state()))
        {
            return self.on_secure_event(socket, event);
        }
        self.run_event(socket, event);
    }

    #[inline(never)]
    fn on_secure_event(&mut self, socket: &mut impl FlowSocket, event: Event<'_>) {
        let Some(mut layer) = self.secure.take() else { return };
        layer.event(self, socket, event);
        self.secure = Some(layer);
    }

    /// Handles an event of the stream inside of TLS, or of the flow without TLS.
    #[inline]
    pub(crate) fn run_event(&mut self, socket: &mut impl FlowSocket, event: Event<'_>) {
        if let Some(layer) = &self.http2
            && layer.has(self.program(socket.state()))
        {
            return self.on_http2_event(socket, event);
        }
        if let Some(layer) = &self.http3
            && layer.has(self.program(socket.state()))
        {
            return self.on_http3_event(socket, event);
        }
        self.run_program(socket, event);
    }

    #[inline(never)]
    fn on_http3_event(&mut self, socket: &mut impl FlowSocket, event: Event<'_>) {
        let Some(mut layer) = self.http3.take() else { return };
        layer.event(self, socket, event);
        self.http3 = Some(layer);
    }

    #[inline(never)]
    fn on_http2_event(&mut self, socket: &mut impl FlowSocket, event: Event<'_>) {
        let Some(mut layer) = self.http2.take() else { return };
        layer.event(self, socket, event);
        self.http2 = Some(layer);
    }

    /// Handles an event of the program's own stream.
    #[inline]
    pub(crate) fn run_program(&mut self, socket: &mut impl FlowSocket, event: Event<'_>) {
        if let Event::Acknowledged { all, .. } = event {
            if all && !self.websockets.is_empty() {
                self.websocket_acknowledged(socket);
            }
            // Most of these events only change the number of unacknowledged messages.
            let state = socket.state();
            if state.at & (WAITING | STARTED) == STARTED {
                state.at &= if all { !PIECES } else { !0 };
                return;
            }
        }
        let mut state = *socket.state();
        let program = self.program(&state);
        let traits = self.code.programs[usize::from(program.0)].traits;
        let mut flow = Running { apps: self, state: &mut state, socket, program, traits };
        flow.event(event);
        *socket.state() = state;
    }

    /// Called when TCP is established; the program waits for a layer between it and the flow.
    pub(crate) fn report_established(&mut self, state: &State, now: Nanos) {
        let program = self.program(state);
        let client = self.role(program) == Role::Client;
        self.observer
            .established(program, if client { since(state.began, now) } else { Nanos::ZERO });
    }

    /// Handles the failure of the TLS session, which ends the flow unless the program had finished.
    /// `open`: whether the handshake was complete; without it, not even early data may have arrived.
    #[cfg_attr(not(feature = "tls"), expect(dead_code))]
    #[cold]
    pub(crate) fn secure_failed(
        &mut self,
        socket: &mut impl FlowSocket,
        error: ProtocolError,
        why: &dyn fmt::Display,
        open: bool,
    ) {
        let mut state = *socket.state();
        let program = self.program(&state);
        let traits = self.code.programs[usize::from(program.0)].traits;
        let mut flow = Running { apps: self, state: &mut state, socket, program, traits };
        if flow.has_failed() || flow.has_finished() && open {
            return;
        }
        flow.apps.observer.insecure(program, why);
        flow.fail(error);
        *socket.state() = state;
    }

    /// Whether the program is over HTTP/2, so that TLS has to agree on it.
    #[cfg_attr(not(feature = "tls"), expect(dead_code))]
    pub(crate) fn is_over_http2(&self, program: ProgramId) -> bool {
        self.http2.as_ref().is_some_and(|layer| layer.has(program))
    }

    /// Whether the program runs over HTTP/1.1 if TLS has not agreed on HTTP/2.
    #[cfg_attr(not(feature = "tls"), expect(dead_code))]
    pub(crate) fn falls_back(&self, program: ProgramId) -> bool {
        self.http2.as_ref().is_some_and(|layer| layer.falls_back(program))
    }

    /// Whether a server's program is where its client may end the flow.
    pub(crate) fn is_idle(&mut self, socket: &mut impl FlowSocket) -> bool {
        let mut state = *socket.state();
        let program = self.program(&state);
        let traits = self.code.programs[usize::from(program.0)].traits;
        Running { apps: self, state: &mut state, socket, program, traits }.is_idle()
    }

    /// Records the begin of a flow whose streams run the program; `report`: whether that was not
    /// reported before.
    pub(crate) fn begin_flow(&mut self, socket: &mut impl FlowSocket, report: bool) {
        self.calls.started(socket.id());
        if report {
            let state = *socket.state();
            self.report_established(&state, socket.now());
        }
    }

    /// Ends a flow, or one of its streams, as failed; `None`: the error was reported before, and the
    /// caller closes the flow.
    #[cold]
    pub(crate) fn fail_flow(&mut self, socket: &mut impl FlowSocket, error: Option<ProtocolError>) {
        let mut state = *socket.state();
        let program = self.program(&state);
        let traits = self.code.programs[usize::from(program.0)].traits;
        let mut flow = Running { apps: self, state: &mut state, socket, program, traits };
        if flow.has_failed() || flow.has_finished() {
            return;
        }
        match error {
            Some(error) => flow.end_by(error, true),
            None => flow.fall(),
        }
        *socket.state() = state;
    }

    /// Reports the end of a flow whose streams have all run the program to its end.
    pub(crate) fn finish_flow(&mut self, socket: &mut impl FlowSocket) {
        let mut state = *socket.state();
        let program = self.program(&state);
        let traits = self.code.programs[usize::from(program.0)].traits;
        Running { apps: self, state: &mut state, socket, program, traits }.finished();
        *socket.state() = state;
    }

    /// Reports that a flow with streams has ended; `idle`: it had none open.
    pub(crate) fn flow_gone(&mut self, socket: &mut impl FlowSocket, reason: Reason, idle: bool) {
        let state = *socket.state();
        let program = self.program(&state);
        let finished = self.has_finished(&state);
        // The peer's reset lost no data: everything is acknowledged.
        let complete = reason == Reason::Reset
            && socket.unacknowledged() == 0
            && (finished || idle && !state.has_failed());
        let (reason, finished) = if complete { (Reason::Closed, true) } else { (reason, finished) };
        self.calls.gone(socket.id());
        self.observer.gone(program, reason, finished);
    }

    pub(crate) fn has_finished(&self, state: &State) -> bool {
        state.at & WAITING != 0 && self.code.ops[(state.at & AT) as usize] == Op::Finish
    }

    /// The state of run `number` of a flow's program, of `all` runs: each has its own records and
    /// random values.
    pub(crate) fn lane(&self, flow: &State, number: u32, all: u32) -> State {
        State { flow: flow.flow.wrapping_mul(all).wrapping_add(number), ..*flow }
    }

    /// The state of a run of a server's program for a stream.
    pub(crate) fn stream(&self, program: ProgramId, number: u32, now: Nanos) -> State {
        let start = self.code.programs[usize::from(program.0)].traits.start;
        State { flow: number, began: ticks(now), at: start, ..State::default() }
    }

    /// Ends a flow whose peer sent no correct header of the PROXY protocol.
    #[cold]
    pub(crate) fn proxy_failed(&mut self, socket: &mut impl FlowSocket, error: ProtocolError) {
        let mut state = *socket.state();
        let program = self.program(&state);
        let traits = self.code.programs[usize::from(program.0)].traits;
        Running { apps: self, state: &mut state, socket, program, traits }.fail(error);
        *socket.state() = state;
    }

    /// The seed of the run and the flow's number, from which its octets are derived.
    pub(crate) fn seeds(&self, state: &State) -> (u64, u32) {
        (self.seed, state.flow)
    }

    /// See [`Application::copy`].
    #[inline]
    pub fn write(&self, state: &State, tuple: &Tuple, piece: Piece, offset: u32, out: &mut [u8]) {
        if piece.message & DATAGRAMS == DATAGRAMS {
            let layer =
                self.http3.as_ref().expect("datagrams are sent while there are connections");
            return layer.copy(piece, offset, out);
        }
        if piece.message & SESSION != 0 {
            let layer = self
                .secure
                .as_ref()
                .expect("what a session sends is sent while there are sessions");
            return layer.copy(piece, offset, out);
        }
        if piece.message & STREAMS != 0 {
            let layer = self.http2.as_ref().expect("frames are sent while there are connections");
            return layer.copy(piece, offset, out);
        }
        if piece.message == proxy::HEADER {
            let layer = self.proxy.as_ref().expect("a header is sent while there are headers");
            return layer.copy(self.program(state), self.seeds(state), tuple, offset, out);
        }
        if piece.message & (FRAMED | KEPT | SHARED) != 0 {
            if piece.message & KEPT != 0 {
                return self.websockets.copy(piece, offset, out);
            }
            if piece.message & SHARED != 0 {
                let place = piece.message & !SHARED;
                return self.websockets.groups.copy(place, piece.nth, offset, out);
            }
            return self.write_frames(state, tuple, piece, offset, out);
        }
        let code = &*self.code;
        let of = code.pieces[piece.message as usize];
        let sending = || self.sending(state, tuple, piece.nth);
        code.messages[of.message as usize].copy(sending, of.from + offset, out);
    }

    /// See [`Application::fixed`].
    #[must_use]
    #[inline]
    pub fn fixed(&self, piece: Piece) -> Option<(&[u8], u64)> {
        let of = self.code.pieces.get(piece.message as usize)?;
        let (octets, sum) = self.code.messages[of.message as usize].fixed()?;
        (of.from == 0 && octets.len() == piece.len as usize).then_some((octets, sum))
    }

    #[cold]
    fn sending(&self, state: &State, tuple: &Tuple, nth: u32) -> Sending<'_> {
        let program = usize::from(self.program(state).0);
        let values = match self.code.programs[program].traits.answers {
            Some(_) => self.kept.get(&state.register).map_or(&[][..], |kept| &kept.values),
            None => &[],
        };
        let (local, remote) = ((tuple.local, tuple.local_port), (tuple.remote, tuple.remote_port));
        let (client, server) = match self.role(self.program(state)) {
            Role::Client => (local, remote),
            Role::Server => (remote, local),
        };
        Sending { seed: self.seed, flow: state.flow, nth, client, server, values }
    }

    /// See [`Application::accept`].
    #[inline]
    pub fn on_accept(&mut self, now: Nanos, tuple: &Tuple) -> Option<(ClassId, State)> {
        let (class, program) = self.server_of(tuple)?;
        Some((class, self.server(program, now, tuple)))
    }

    /// The class and the program of a flow that a peer opens.
    #[inline]
    pub fn server_of(&mut self, tuple: &Tuple) -> Option<(ClassId, ProgramId)> {
        let (listener, known) = self.listeners.find(tuple)?;
        let (class, program) = (listener.class, listener.program);
        self.unknown_peers += u64::from(!known);
        Some((class, program))
    }

    /// Number of flows assigned to the first of several programs because no listener includes their
    /// peer.
    #[must_use]
    pub fn unknown_peers(&self) -> u64 {
        self.unknown_peers
    }

    /// Number of flows in a delay, which continue on their own.
    #[must_use]
    pub fn delaying(&self) -> usize {
        self.delaying
    }

    /// Number of UDP flows whose programs have finished and that stay open for late datagrams.
    #[must_use]
    pub fn lingering(&self) -> usize {
        self.lingering
    }

    /// Initial state of a flow that a server's program serves.
    #[must_use]
    #[inline]
    pub fn server(&self, program: ProgramId, now: Nanos, tuple: &Tuple) -> State {
        let start = self.code.programs[usize::from(program.0)].traits.start;
        // A number that depends on neither the worker nor earlier flows.
        let flow = number_of(tuple);
        State { flow, began: ticks(now), at: start, ..State::default() }
    }

    /// See [`Application::begins`].
    #[must_use]
    pub fn on_begins(&self, tuple: &Tuple, datagram: &[u8]) -> bool {
        let Some(layer) = &self.http3 else { return true };
        let listener = self.listeners.find(tuple);
        let streams = listener.is_some_and(|(listener, _)| layer.has(listener.program));
        !streams || http3::may_begin(datagram)
    }

    /// See [`Application::moved`].
    #[must_use]
    pub fn on_moved(&self, tuple: &Tuple, datagram: &[u8]) -> Option<FlowId> {
        let layer = self.http3.as_ref()?;
        let (listener, _) = self.listeners.find(tuple)?;
        layer.moved(datagram).filter(|_| layer.has(listener.program))
    }

    /// See [`Application::listens`].
    #[must_use]
    pub fn on_listens(&self, tuple: &Tuple) -> bool {
        self.listeners.find(tuple).is_some()
    }
}

impl<O: Observer> Application for Apps<O> {
    type State = State;

    #[inline]
    fn event(&mut self, socket: &mut Socket<'_, State>, event: Event<'_>) {
        self.on_event(socket, event);
    }

    #[inline]
    fn at_once(
        &mut self,
        state: &mut State,
        flow: FlowId,
        now: Nanos,
        events: Events<'_>,
    ) -> Option<Deed> {
        self.on_events(state, flow, now, events)
    }

    #[inline]
    fn fixed(&self, piece: Piece) -> Option<(&[u8], u64)> {
        self.fixed(piece)
    }

    #[inline]
    fn copy(&self, state: &State, flow: &Tuple, piece: Piece, offset: u32, out: &mut [u8]) {
        self.write(state, flow, piece, offset, out);
    }

    #[inline]
    fn accept(&mut self, now: Nanos, flow: &Tuple) -> Option<(ClassId, State)> {
        self.on_accept(now, flow)
    }

    fn divide(state: &State) -> Option<StateParts> {
        Some(state.divide())
    }

    fn join(parts: &StateParts) -> State {
        State::join(parts)
    }

    fn begins(&self, flow: &Tuple, datagram: &[u8]) -> bool {
        self.on_begins(flow, datagram)
    }

    fn listens(&self, flow: &Tuple) -> bool {
        self.on_listens(flow)
    }

    fn moved(&self, flow: &Tuple, datagram: &[u8]) -> Option<FlowId> {
        self.on_moved(flow, datagram)
    }
}

impl FlowSocket for Socket<'_, State> {
    #[inline]
    fn now(&self) -> Nanos {
        self.real()
    }
    #[inline]
    fn due(&self) -> Nanos {
        self.due()
    }
    #[inline]
    fn clock(&self) -> Nanos {
        self.now()
    }
    #[inline]
    fn id(&self) -> FlowId {
        self.id()
    }
    #[inline]
    fn tuple(&self) -> Tuple {
        self.tuple()
    }
    fn sender(&self) -> (IpAddr, u16) {
        self.sender()
    }
    fn follow(&mut self, remote: (IpAddr, u16)) {
        // If that is impossible, the peer's datagrams go there by `send_to`.
        self.follow(remote).ok();
    }
    fn pass_on(&mut self, to: FlowId) {
        self.pass_on(to);
    }
    fn send_to(&mut self, remote: (IpAddr, u16), datagram: &[u8]) {
        self.send_to(remote, datagram);
    }
    #[inline]
    fn state(&mut self) -> &mut State {
        self.state()
    }
    #[inline]
    fn send(&mut self, piece: Piece) -> bool {
        // A closed flow gets its last event anyway, and other errors cannot occur here.
        !matches!(self.send(piece), Err(SendError::TooLong))
    }
    #[inline]
    fn close(&mut self) {
        self.close();
    }
    #[inline]
    fn abort(&mut self) {
        self.abort();
    }
    #[inline]
    fn wake_at(&mut self, at: Nanos) {
        self.wake_at(at);
    }
    #[inline]
    fn settle_later(&mut self) -> bool {
        self.settle_later();
        true
    }
    #[inline]
    fn unacknowledged(&self) -> u32 {
        self.unacknowledged()
    }
    #[inline]
    fn unsent(&self) -> u32 {
        self.unsent()
    }
    fn pause(&mut self) {
        self.pause();
    }
    fn resume(&mut self) {
        self.resume();
    }
}

/// The messages of a program, with the numbers of their pieces.
fn messages_of(code: &Code, program: ProgramId) -> impl Iterator<Item = (u32, &Ready)> {
    code.pieces_of(program.0).filter_map(|piece| {
        let of = code.pieces[piece as usize];
        let message: &Ready = &code.messages[of.message as usize];
        Some((piece, message)).filter(|_| of.from == 0)
    })
}

/// The worker of the server's flow to which a datagram (its payload) to a server of HTTP/3 belongs,
/// from whatever address it comes, as the connection ID of a packet with a short header says.
/// `None`: a datagram that begins a connection, which belongs to the worker of its addresses.
#[must_use]
#[inline]
pub fn quic_worker(datagram: &[u8]) -> Option<u8> {
    http3::home_of(datagram).map(|(worker, _)| worker)
}

fn number_of(tuple: &Tuple) -> u32 {
    let address = |address: IpAddr| match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    };
    let (local, remote) = (address(tuple.local), address(tuple.remote));
    let ports = u64::from(tuple.local_port) << 16 | u64::from(tuple.remote_port);
    let mut hash = mix(ports, local as u64 ^ (remote as u64).rotate_left(32));
    if tuple.local.is_ipv6() {
        hash = mix(hash, (local >> 64) as u64 ^ ((remote >> 64) as u64).rotate_left(32));
    }
    hash as u32
}

fn ticks(at: Nanos) -> u32 {
    (at.0 >> 8) as u32
}

fn millis(at: Nanos) -> u32 {
    (at.0 / 1_000_000) as u32
}

fn since(began: u32, now: Nanos) -> Nanos {
    Nanos(u64::from(ticks(now).wrapping_sub(began)) << 8)
}

/// A flow during one of its events.
struct Running<'a, O, S> {
    apps: &'a mut Apps<O>,
    state: &'a mut State,
    socket: &'a mut S,
    program: ProgramId,
    traits: Traits,
}

/// Where the program continues.
enum Step {
    /// At the next operation.
    On,
    /// At the operation that `at` names.
    There,
    Waits,
    Over,
}

impl<O: Observer, S: FlowSocket> Running<'_, O, S> {
    #[inline]
    fn event(&mut self, event: Event<'_>) {
        if self.has_failed() && !matches!(event, Event::Gone(_)) {
            if self.traits.websocket && matches!(event, Event::Timer) {
                self.end_late_member();
            }
            return;
        }
        match event {
            Event::Established => {
                self.start();
                self.run(&[]);
            }
            Event::Received(octets) => self.received(octets),
            Event::Acknowledged { all, .. } => {
                if all {
                    self.state.at &= !PIECES;
                }
                if self.is(WAITING)
                    && matches!(
                        self.op(),
                        Op::Send { .. }
                            | Op::SendSlice { .. }
                            | Op::HttpServe { .. }
                            | Op::HttpResponse { .. }
                            | Op::Extract { .. }
                            | Op::UnlessRedirect { .. }
                            | Op::WsSend { .. }
                            | Op::WsFanOut { .. }
                            | Op::WsPing
                            | Op::GrpcCall { .. }
                            | Op::GrpcSend { .. }
                            | Op::GrpcFinish { .. }
                            | Op::Flush
                    )
                {
                    self.run(&[]);
                }
            }
            Event::PeerClosed => {
                self.state.at |= PEER_CLOSED;
                self.run(&[]);
            }
            Event::Timer => self.timer(),
            Event::Settle => {}
            Event::Gone(reason) => {
                let finished = self.has_finished();
                // The peer's reset lost no data: everything is acknowledged, and only the peer's
                // close was outstanding.
                let complete = reason == Reason::Reset
                    && self.socket.unacknowledged() == 0
                    && (finished || self.is_idle());
                // A resting flow is complete, whatever ends it.
                let complete = complete || self.is_resting();
                let (reason, finished) =
                    if complete { (Reason::Closed, true) } else { (reason, finished) };
                self.stop_waiting();
                if self.traits.grpc {
                    self.grpc_gone();
                }
                self.release();
                if S::PART {
                    return;
                }
                self.apps.calls.gone(self.socket.id());
                let program = self.program;
                self.apps.observer.gone(program, reason, finished);
            }
        }
    }

    fn start(&mut self) {
        if self.is(STARTED) {
            return;
        }
        self.state.at |= STARTED;
        if !S::PART {
            self.apps.calls.started(self.socket.id());
        }
        let program = self.program;
        let (client, registers) = (self.traits.role == Role::Client, self.traits.registers);
        let setup = if client { self.since_began() } else { Nanos::ZERO };
        if registers > 1 {
            self.state.register = self.apps.free_rows.pop().unwrap_or_else(|| {
                self.apps.rows.push([0; _]);
                self.apps.rows.len() as u32 - 1
            });
            self.apps.rows[self.state.register as usize] = [0; _];
            if let Some(slots) = self.traits.answers {
                self.apps.kept.insert(self.state.register, Kept::new(slots.count.into()));
            }
        }
        if self.traits.websocket {
            self.apps.websockets.begin(self.socket.id());
        }
        if self.traits.grpc {
            self.apps.grpc_calls.insert(self.socket.id(), Call::default());
        }
        if !S::SECURED && !S::PART {
            self.apps.observer.established(program, setup);
        }
    }

    /// Frees the flow's state outside of its record.
    fn release(&mut self) {
        self.release_row();
        if self.traits.websocket {
            self.apps.websockets.end(self.socket.id());
        }
        if self.traits.grpc {
            self.apps.grpc_calls.remove(&self.socket.id());
        }
        if !self.apps.stash.is_empty()
            && let Some(octets) = self.apps.stash.remove(&self.socket.id())
        {
            self.apps.keep_spare(octets);
        }
    }

    fn release_row(&mut self) {
        if self.is(STARTED) && self.traits.registers > 1 {
            self.apps.free_rows.push(self.state.register);
            if self.traits.answers.is_some() {
                self.apps.kept.remove(&self.state.register);
            }
        }
    }

    #[inline]
    fn received(&mut self, octets: &[u8]) {
        let program = self.program;
        if !self.is(STARTED) {
            // The first datagram opens the flow.
            self.start();
            self.run(&[]);
        }
        if !S::PART {
            self.apps.observer.received(program, octets.len() as u32);
        }
        if self.state.at & (ASKED | ANSWERING) == ASKED {
            self.state.at |= ANSWERING;
            let took = self.since_began();
            self.apps.observer.first_octet(program, took);
        }
        if self.traits.keepalive
            && let Some((nanos, true)) = self.allowed()
        {
            let at = self.socket.due() + Nanos(nanos);
            self.socket.wake_at(at);
        }
        if self.traits.transport == Transport::Udp {
            return self.datagram(octets);
        }
        if self.traits.websocket {
            return self.websocket_received(octets);
        }
        if self.traits.counts {
            self.state.have = self.state.have.saturating_add(octets.len() as u32);
            return self.run(&[]);
        }
        if self.apps.stash.is_empty() {
            return self.run(octets);
        }
        match self.apps.stash.remove(&self.socket.id()) {
            None => self.run(octets),
            Some(mut early) => {
                early.extend_from_slice(octets);
                self.run_stashed(early);
            }
        }
    }

    fn datagram(&mut self, octets: &[u8]) {
        if self.is_resting() {
            return;
        }
        if self.traits.takes
            && let Some(take) = self.next_take()
        {
            match take.form.read(octets, take.offset as usize) {
                Some(value) => self.set_register(take.register, value),
                None => return self.fail(ProtocolError::TooShort),
            }
        }
        let one = if self.traits.packets { 1 } else { octets.len() as u32 };
        self.state.have = self.state.have.saturating_add(one);
        self.run(&[]);
    }

    /// The extraction by the next receive instruction, which may be an earlier instruction of a
    /// loop.
    fn next_take(&self) -> Option<TakeOf> {
        let code = &self.apps.code;
        let next = |from: u32| {
            code.ops[from as usize..].iter().find_map(|op| match op {
                Op::RecvPackets { take, .. } => Some(Some(*take)),
                Op::Finish => Some(None),
                _ => None,
            })
        };
        let take = next(self.state.at & AT).flatten().or_else(|| next(self.traits.start).flatten());
        take.filter(|take| *take != NO_TAKE).map(|take| code.takes[usize::from(take)])
    }

    fn timer(&mut self) {
        match self.op() {
            Op::Delay { .. } if self.is(WAITING) => {
                self.stop_waiting();
                self.state.at &= !WAITING;
                self.state.at += 1;
                self.run(&[]);
            }
            Op::Recv { .. }
            | Op::RecvUntil { .. }
            | Op::RecvPackets { .. }
            | Op::RecvPacketOctets { .. }
            | Op::WaitPeerClose
            | Op::HttpResponse { .. }
            | Op::HttpServe { .. }
            | Op::WsOpen { .. }
            | Op::WsAccept
            | Op::WsRecv { .. }
            | Op::WsEcho
            | Op::WsClose { .. }
                if self.allowed().is_some() =>
            {
                self.fail(ProtocolError::NoAnswer);
            }
            // The deadline of a call.
            Op::GrpcSend { .. } | Op::GrpcRecv { .. } | Op::GrpcStatus { .. } => self.run(&[]),
            Op::Begin { .. } | Op::WsPush { .. } | Op::WsFanOut { .. } => self.run(&[]),
            Op::Finish if self.traits.websocket => self.end_late_member(),
            // The timer belongs to an operation that has already completed.
            _ => {}
        }
    }

    /// Time limit of the current operation, if any, and whether it is relative to the last received
    /// data.
    fn allowed(&self) -> Option<(u64, bool)> {
        let before = (self.state.at & AT).checked_sub(1)?;
        match self.apps.code.ops[before as usize] {
            Op::Within { nanos, keepalive } => Some((nanos, keepalive)),
            _ => None,
        }
    }

    /// Executes operations until one waits. `input`: octets received and not yet consumed.
    fn run(&mut self, mut input: &[u8]) {
        if input.is_empty()
            && !self.apps.stash.is_empty()
            && let Some(early) = self.apps.stash.remove(&self.socket.id())
        {
            return self.run_stashed(early);
        }
        if !self.is(STARTED) {
            return;
        }
        loop {
            match self.step(&mut input) {
                Step::On => self.state.at += 1,
                Step::There => {}
                Step::Waits => break,
                Step::Over => return,
            }
        }
        if !input.is_empty() {
            self.keep(input);
        }
    }

    /// Executes operations on early octets from the stash.
    #[cold]
    fn run_stashed(&mut self, early: Vec<u8>) {
        let many = early.len() >= MAX_STASHED;
        self.run(&early);
        if many
            && self.apps.stash.get(&self.socket.id()).is_none_or(|kept| kept.len() < MAX_STASHED)
        {
            self.socket.resume();
        }
        self.apps.keep_spare(early);
    }

    #[inline]
    fn step(&mut self, input: &mut &[u8]) -> Step {
        match self.op() {
            Op::Send { piece, requests } => return self.send_when_possible(piece, requests),
            Op::SendSlice { first, register } => {
                let slice = self.register(register);
                return self.send_when_possible(first + slice, 0);
            }
            Op::Recv { octets, answered } => {
                let take = (octets - self.state.have.min(octets)).min(input.len() as u32);
                *input = &input[take as usize..];
                self.state.have += take;
                if self.state.have < octets {
                    return self.wait_for_peer();
                }
                self.state.have -= octets;
                self.answered(answered);
            }
            Op::RecvUntil { pattern, answered } => {
                let pattern = &self.apps.code.patterns[pattern as usize];
                let (used, have, all) = pattern.find(self.state.have as usize, input);
                *input = &input[used..];
                self.state.have = have as u32;
                if !all {
                    return self.wait_for_peer();
                }
                self.answered(answered);
            }
            Op::RecvPackets { packets: wanted, answered, .. }
            | Op::RecvPacketOctets { octets: wanted, answered } => {
                if self.state.have < wanted {
                    return self.wait_for_peer();
                }
                // A datagram belongs entirely to one instruction.
                self.state.have = if self.traits.packets { self.state.have - wanted } else { 0 };
                self.answered(answered);
            }
            Op::Delay { delay } => return self.delay(delay),
            Op::Set { register, value } => self.set_register(register, value),
            Op::SetRandom { register, low, high } => {
                let value = low + below(self.draw(), u64::from(high - low) + 1) as u32;
                self.set_register(register, value);
            }
            Op::Add { register, value } => {
                let sum = self.register(register).saturating_add_signed(value);
                self.set_register(register, sum);
            }
            Op::SetClock { register } => {
                let now = millis(self.socket.now());
                self.set_register(register, now);
            }
            Op::Jump { to } => return self.jump(to),
            Op::JumpIf { register, elapsed, compare, value, to } => {
                if compare.holds(self.value(register, elapsed), value) {
                    return self.jump(to);
                }
            }
            Op::Count { counter, register, elapsed } => {
                let (program, value) = (self.program, self.value(register, elapsed));
                self.apps.observer.counted(program, counter, value);
            }
            Op::CountConstant { counter, value } => {
                let program = self.program;
                self.apps.observer.counted(program, counter, value);
            }
            Op::Again { register, to } => {
                let left = self.register(register) - 1;
                self.set_register(register, left);
                if left > 0 {
                    return self.jump(to);
                }
            }
            Op::NextSlice { register, slices, to } => {
                let slice = self.register(register) + 1;
                self.set_register(register, slice);
                if slice < slices {
                    return self.jump(to);
                }
            }
            Op::Next { template } => {
                let template = self.template(template);
                self.apps.calls.set_next(self.socket.id(), template);
            }
            Op::Begin { template } => return self.begin(template),
            Op::Close => self.close(),
            Op::Reset => {
                self.finished();
                self.socket.abort();
                return Step::Over;
            }
            Op::Flush => {
                if self.waits_for_acknowledgement() {
                    return Step::Waits;
                }
            }
            Op::WaitPeerClose => {
                *input = &[];
                self.state.have = 0;
                if self.traits.transport == Transport::Udp {
                    return self.rest();
                }
                if !self.is(PEER_CLOSED) {
                    return Step::Waits;
                }
            }
            Op::Within { nanos, .. } => {
                let at = self.socket.due() + Nanos(nanos);
                self.socket.wake_at(at);
            }
            Op::HttpResponse { head, answered } => {
                return self.http_response(head, answered, input);
            }
            Op::HttpServe { serve } => return self.http_serve(serve, input),
            Op::Extract { extract } => return self.extract(extract),
            Op::Check { check } => return self.check(check),
            Op::UnlessRedirect { redirect, to } => return self.unless_redirect(redirect, to),
            Op::WsOpen { message } => return self.websocket_open(message),
            Op::WsAccept => return self.websocket_accept(),
            Op::WsSend { frame } => return self.websocket_send(frame),
            Op::WsRecv { messages, answered } => return self.websocket_recv(messages, answered),
            Op::WsEcho => return self.websocket_echo(),
            Op::WsFanOut { groups } => return self.websocket_fan_out(groups),
            Op::WsPush { frame } => return self.websocket_push(frame),
            Op::WsPing => return self.websocket_ping(),
            Op::WsClose { code } => return self.websocket_close(code),
            Op::GrpcCall { piece, deadline } => return self.grpc_call(piece, deadline),
            Op::GrpcSend { piece } => return self.grpc_send(piece),
            Op::GrpcEnd => return self.grpc_end(),
            Op::GrpcRecv { messages } => return self.grpc_recv(messages),
            Op::GrpcStatus { expected } => return self.grpc_status(expected),
            Op::GrpcCancel => return self.grpc_cancel(),
            // The request's head ends the wait.
            Op::GrpcAccept { .. } => return Step::Waits,
            Op::GrpcNext { to } => return self.grpc_next(to),
            Op::GrpcFinish { finish } => return self.grpc_finish(finish),
            Op::Finish => return self.finish(input),
        }
        Step::On
    }

    fn jump(&mut self, to: u32) -> Step {
        self.state.at = self.state.at & !AT | to;
        Step::There
    }

    #[inline]
    fn send_when_possible(&mut self, piece: u32, requests: u32) -> Step {
        if self.is(CLOSED) {
            return self.jump_to_end();
        }
        if self.traits.answers.is_some() && self.is_closing() {
            return self.closed_by_server(true);
        }
        if !self.may_send() {
            self.state.at |= WAITING;
            return Step::Waits;
        }
        self.state.at &= !WAITING;
        if !self.send_piece(piece, None) {
            self.fail(ProtocolError::LongDatagram);
            return Step::Over;
        }
        if requests > 0 {
            let program = self.program;
            self.apps.observer.requested(program, requests);
        }
        Step::On
    }

    /// Whether the flow may send another message. The limit gives a peer that does not read a way
    /// to throttle the sender.
    #[inline]
    fn may_send(&self) -> bool {
        self.state.at & PIECES < PIECES && self.socket.unacknowledged() < SEND_AHEAD
    }

    /// Sends a piece, or its first `len` octets.
    #[inline]
    fn send_piece(&mut self, piece: u32, len: Option<u32>) -> bool {
        let of = self.apps.code.pieces[piece as usize];
        let http = self.traits.http;
        let nth = match of.register {
            Some(register) => self.register(register),
            None if http => self.state.sent & SENT,
            None => self.state.sent,
        };
        self.state.sent = if http {
            self.state.sent & !SENT | (self.state.sent + 1) & SENT
        } else {
            self.state.sent.wrapping_add(1)
        };
        let len = len.unwrap_or_else(|| match of.len {
            0 => {
                let tuple = self.socket.tuple();
                let sending = || self.apps.sending(self.state, &tuple, nth);
                self.apps.code.messages[of.message as usize].len(sending)
            }
            len => len,
        });
        // All marks in the message are empty.
        if len == 0 {
            return true;
        }
        if !self.is(ASKED) && self.traits.role == Role::Client {
            self.state.at |= ASKED;
            self.state.at &= !ANSWERING;
            self.state.began = ticks(self.socket.now());
        }
        let program = self.program;
        if !S::PART {
            self.apps.observer.sent(program, len);
        }
        if self.traits.transport == Transport::Tcp {
            self.state.at += PIECE;
        }
        self.socket.send(Piece { message: piece, nth, len })
    }

    fn answered(&mut self, all: bool) {
        if self.is(ASKED) && all {
            self.state.at &= !(ASKED | ANSWERING);
            let (program, took) = (self.program, self.since_began());
            self.apps.observer.transaction(program, took);
        }
    }

    /// Whether a server is at a point where a client may close: before a request, or before a pass
    /// of its endless loop.
    fn is_idle(&self) -> bool {
        if self.traits.role == Role::Client || !self.is(STARTED) || self.has_failed() {
            return false;
        }
        match self.op() {
            Op::HttpServe { .. } => {
                Parser::load(self.state.have, (self.state.sent >> 16) as u16).at_start()
            }
            _ => self.is_between_passes(),
        }
    }

    fn is_between_passes(&self) -> bool {
        let idle = self.traits.idle.map(|idle| self.traits.start + idle);
        idle == Some(self.state.at & AT) && self.state.have == 0
    }

    fn wait_for_peer(&mut self) -> Step {
        if self.is(PEER_CLOSED) {
            if self.is_between_passes() {
                return self.jump_to_end();
            }
            self.fail(ProtocolError::TooShort);
            return Step::Over;
        }
        Step::Waits
    }

    fn delay(&mut self, delay: u32) -> Step {
        if self.is(WAITING) {
            return Step::Waits;
        }
        let time = match self.apps.code.delays[delay as usize] {
            Delay::Fixed(time) => time.0,
            Delay::Uniform(low, high) => low.0 + below(self.draw(), high.0 - low.0 + 1),
            Delay::Exponential(mean) => {
                let times = -unit(self.draw()).ln();
                (mean.0 as f64 * times.min(100.0)) as u64
            }
        };
        if time == 0 {
            return Step::On;
        }
        self.state.at |= WAITING;
        self.apps.delaying += 1;
        let at = self.socket.due() + Nanos(time);
        self.socket.wake_at(at);
        Step::Waits
    }

    /// Enters the rest after the program: ignores further datagrams until the flow is silent.
    fn rest(&mut self) -> Step {
        if !self.is(WAITING) {
            self.state.at |= WAITING;
            self.apps.lingering += 1;
            let program = self.program;
            self.apps.observer.finished(program);
        }
        Step::Waits
    }

    fn is_resting(&self) -> bool {
        self.traits.transport == Transport::Udp
            && self.state.at & (STARTED | WAITING) == STARTED | WAITING
            && matches!(self.op(), Op::WaitPeerClose)
    }

    /// Ends the flow's delay or rest.
    fn stop_waiting(&mut self) {
        let waits = self.state.at & (STARTED | WAITING) == STARTED | WAITING;
        match self.op() {
            Op::Delay { .. } if waits => self.apps.delaying -= 1,
            Op::WaitPeerClose if self.is_resting() => self.apps.lingering -= 1,
            _ => {}
        }
    }

    #[cold]
    fn begin(&mut self, template: Option<u16>) -> Step {
        let (tuple, template) = (self.socket.tuple(), template.map(|at| self.template(at)));
        match self.apps.calls.ask(self.socket.id(), tuple, template) {
            RequestState::Waits => Step::Waits,
            RequestState::Refused => {
                self.fail(ProtocolError::NotBegun);
                Step::Over
            }
            _ => Step::On,
        }
    }

    /// The name of a template whose flows the program begins.
    fn template(&self, at: u16) -> Arc<str> {
        let info = &self.apps.code.programs[usize::from(self.program.0)];
        info.templates[usize::from(at)].clone()
    }

    /// A random number for this operation of this flow, different in each pass of a loop.
    fn draw(&self) -> u64 {
        let pass = u64::from(self.state.sent) << 32 | u64::from(self.state.register);
        let row = match self.traits.registers > 1 {
            true => self.apps.rows[self.state.register as usize]
                .iter()
                .fold(0, |h, &v| mix(h, v.into())),
            false => pass,
        };
        let place = u64::from((self.state.at & AT) - self.traits.start);
        mix(
            mix(mix(self.apps.seed, self.state.flow.into()), place),
            row ^ u64::from(self.state.sent) << 32,
        )
    }

    fn http_response(&mut self, head: bool, answered: bool, input: &mut &[u8]) -> Step {
        if let Some(slots) = self.traits.answers {
            if self.is_closing() {
                return self.closed_by_server(true);
            }
            if slots.cookies.is_some() && self.waits_for_acknowledgement() {
                return Step::Waits;
            }
        }
        let mut parser = Parser::load(self.state.have, (self.state.sent >> 16) as u16);
        let program = self.program;
        let close = loop {
            let (used, found) = self.read_http(&mut parser, Kind::Response { head }, input);
            let octets = &input[..used];
            *input = &input[used..];
            if self.traits.answers.is_some()
                && let Err(error) = self.keep_answer(octets)
            {
                self.fail(error);
                return Step::Over;
            }
            match found {
                // Counted once the answer is complete.
                Found::Status(status) => {
                    let class = u32::from(status / 100).min(STATUS >> STATUS_AT);
                    self.state.sent = self.state.sent & !STATUS | class << STATUS_AT;
                }
                Found::End { close, .. } => break close,
                Found::More if self.is(PEER_CLOSED) && parser.ends_by_close() => {
                    parser = Parser::default();
                    break true;
                }
                Found::More => {
                    self.keep_parser(parser);
                    return self.wait_for_peer();
                }
                Found::Expect | Found::Bad => {
                    self.fail(ProtocolError::BadHttp);
                    return Step::Over;
                }
            }
        };
        self.keep_parser(parser);
        self.apps.observer.status(program, ((self.state.sent & STATUS) >> STATUS_AT) as u8);
        self.state.sent &= !STATUS;
        if self.is(ASKED) {
            let took = self.since_began();
            self.apps.observer.transaction(program, took);
            if answered {
                self.state.at &= !(ASKED | ANSWERING);
            }
        }
        if self.traits.answers.is_some() {
            // The check of the answer comes next; a request after it will find the flow closed.
            self.complete_answer(close);
            return Step::On;
        }
        if close { self.closed_by_server(self.has_more_to_ask()) } else { Step::On }
    }

    /// The server closed the flow after an answer. A program with a variable number of requests
    /// ends there; for others, `left` says whether requests are missing.
    #[cold]
    fn closed_by_server(&mut self, left: bool) -> Step {
        if !left || self.traits.requests.is_none() {
            return self.jump_to_end();
        }
        self.fail(ProtocolError::ClosedEarly);
        Step::Over
    }

    #[cold]
    fn has_more_to_ask(&self) -> bool {
        let next = (self.state.at & AT) as usize + 1;
        self.traits.requests.is_some()
            && requests::is_left(&self.apps.code.ops, next, |register| self.register(register))
    }

    #[cold]
    fn is_closing(&self) -> bool {
        self.apps.kept.get(&self.state.register).is_some_and(|kept| kept.closing)
    }

    /// Waits until no data made from values is outstanding: a changed value would change the octets
    /// of a retransmission.
    fn waits_for_acknowledgement(&mut self) -> bool {
        let waits = self.socket.unacknowledged() > 0;
        self.state.at &= !WAITING;
        if waits {
            self.state.at |= WAITING;
        }
        waits
    }

    #[cold]
    fn keep_answer(&mut self, octets: &[u8]) -> Result<(), ProtocolError> {
        match self.apps.kept.get_mut(&self.state.register) {
            Some(kept) => kept.receive(octets),
            None => Ok(()),
        }
    }

    #[cold]
    fn complete_answer(&mut self, close: bool) {
        let cookies = self.traits.answers.and_then(|slots| slots.cookies).map(usize::from);
        if let Some(kept) = self.apps.kept.get_mut(&self.state.register) {
            kept.complete(close, cookies);
        }
    }

    #[cold]
    fn extract(&mut self, extract: u32) -> Step {
        if self.waits_for_acknowledgement() {
            return Step::Waits;
        }
        let of = &self.apps.code.extracts[extract as usize];
        let Some(kept) = self.apps.kept.get_mut(&self.state.register) else { return Step::On };
        match kept.take(&of.from) {
            Ok(value) => kept.values[usize::from(of.slot)] = value,
            Err(error) => {
                self.fail(error);
                return Step::Over;
            }
        }
        Step::On
    }

    #[cold]
    fn check(&mut self, check: u32) -> Step {
        let check = &self.apps.code.checks[check as usize];
        let kept = self.apps.kept.get(&self.state.register);
        match kept.map_or(Ok(()), |kept| kept.check(check)) {
            Ok(()) => Step::On,
            Err(error) => {
                self.fail(error);
                Step::Over
            }
        }
    }

    #[cold]
    fn unless_redirect(&mut self, redirect: u32, to: u32) -> Step {
        if self.waits_for_acknowledgement() {
            return Step::Waits;
        }
        let of = &self.apps.code.redirects[redirect as usize];
        if let Some(kept) = self.apps.kept.get_mut(&self.state.register)
            && let Some(path) = kept.redirection(&of.host)
        {
            kept.values[usize::from(of.slot)] = path;
            let program = self.program;
            self.apps.observer.redirected(program);
            return Step::On;
        }
        self.jump(to)
    }

    fn http_serve(&mut self, serve: u32, input: &mut &[u8]) -> Step {
        let serve = self.apps.code.serves[serve as usize];
        let program = self.program;
        let mut parser = Parser::load(self.state.have, (self.state.sent >> 16) as u16);
        loop {
            if !self.may_send() {
                // Unread octets are kept until there is room for the answer.
                self.keep_parser(parser);
                self.state.at |= WAITING;
                return Step::Waits;
            }
            self.state.at &= !WAITING;
            let (used, found) = self.read_http(&mut parser, Kind::Request, input);
            *input = &input[used..];
            match found {
                Found::Expect => {
                    self.send_piece(serve.proceed, None);
                }
                Found::End { head, close } => {
                    self.apps.observer.status(program, (serve.status / 100) as u8);
                    let (piece, header) = if close { serve.close } else { serve.keep };
                    self.send_piece(piece, head.then_some(header));
                    if close {
                        self.keep_parser(parser);
                        return self.jump_to_end();
                    }
                }
                Found::More if self.is(PEER_CLOSED) => {
                    self.keep_parser(parser);
                    if parser.at_start() {
                        return Step::On;
                    }
                    self.fail(ProtocolError::TooShort);
                    return Step::Over;
                }
                Found::More => {
                    self.keep_parser(parser);
                    return Step::Waits;
                }
                Found::Status(_) | Found::Bad => {
                    self.apps.observer.status(program, 4);
                    self.send_piece(serve.refuse, None);
                    self.fail(ProtocolError::BadHttp);
                    return Step::Over;
                }
            }
        }
    }

    /// Reads up to the next event. Streams give each head by itself.
    #[inline]
    fn read_http(&mut self, parser: &mut Parser, kind: Kind, input: &[u8]) -> (usize, Found) {
        match S::PART {
            true => self.apps.last_head.read(parser, kind, input),
            false => parser.read(kind, input),
        }
    }

    fn keep_parser(&mut self, parser: Parser) {
        let (want, more) = parser.store();
        self.state.have = want;
        self.state.sent = self.state.sent & 0xffff | u32::from(more) << 16;
    }

    /// Continues with the program's last operation.
    fn jump_to_end(&mut self) -> Step {
        let owner = self.apps.code.owner[(self.state.at & AT) as usize].program;
        self.jump(self.apps.code.range_of(owner).end - 1)
    }

    fn close(&mut self) {
        if !self.is(CLOSED) {
            self.state.at |= CLOSED;
            self.socket.close();
        }
    }

    fn finish(&mut self, input: &mut &[u8]) -> Step {
        let tcp = self.traits.transport == Transport::Tcp;
        if tcp && (!input.is_empty() || self.traits.counts && self.state.have > 0) {
            self.fail(ProtocolError::UnexpectedData);
            return Step::Over;
        }
        self.finished();
        self.close();
        Step::Waits
    }

    /// Reports the end once: `at` becomes the last operation, and `WAITING` marks the report as
    /// done.
    fn finished(&mut self) {
        if self.has_finished() {
            return;
        }
        self.jump_to_end();
        self.state.at |= WAITING;
        if !S::PART {
            let program = self.program;
            self.apps.observer.finished(program);
        }
    }

    /// Ends the flow: the peer deviated from the program.
    #[cold]
    fn fail(&mut self, error: ProtocolError) {
        self.end_by(error, false);
    }

    /// Does so. `framed`: the flow has frames of HTTP/2, which keep their octets by themselves.
    #[cold]
    fn end_by(&mut self, error: ProtocolError, framed: bool) {
        let program = self.program;
        self.apps.observer.protocol_error(program, error);
        self.fall();
        let regular = matches!(
            error,
            ProtocolError::TooShort
                | ProtocolError::ClosedEarly
                | ProtocolError::StreamReset
                | ProtocolError::Http2
                | ProtocolError::Http3
                | ProtocolError::QuicClosed
                | ProtocolError::QuicTimeout
                | ProtocolError::QuicBroken
                | ProtocolError::GrpcStatus
                | ProtocolError::GrpcCompressed
                | ProtocolError::BadGrpc
        ) || error.is_of_tls()
            || self.traits.transport == Transport::Udp;
        // A regular close would retransmit data made from values that are freed now.
        let kept = framed || self.traits.answers.is_none() || self.socket.unacknowledged() == 0;
        let regular = regular && kept;
        // The refusal must arrive before the reset.
        let refused = error == ProtocolError::BadHttp && self.traits.role == Role::Server
            || error == ProtocolError::BadWebsocket;
        if regular || refused { self.close() } else { self.socket.abort() }
    }

    /// Leaves the program without having finished it.
    #[cold]
    fn fall(&mut self) {
        self.stop_waiting();
        self.release_row();
        self.jump_to_end();
        self.state.at &= !(WAITING | STARTED);
        self.state.at |= FAILED;
        self.state.have = 0;
    }

    /// Stores early octets until an instruction consumes them.
    #[cold]
    fn keep(&mut self, octets: &[u8]) {
        if octets.len() >= MAX_STASHED {
            self.socket.pause();
        }
        let mut kept = self.apps.spare.pop().unwrap_or_default();
        kept.extend_from_slice(octets);
        self.apps.stash.insert(self.socket.id(), kept);
    }

    #[inline]
    fn op(&self) -> Op {
        self.apps.code.ops[(self.state.at & AT) as usize]
    }

    #[inline]
    fn has_failed(&self) -> bool {
        self.state.has_failed()
    }

    fn has_finished(&self) -> bool {
        matches!(self.op(), Op::Finish) && self.is(WAITING)
    }

    #[inline]
    fn is(&self, flag: u32) -> bool {
        self.state.at & flag != 0
    }

    fn since_began(&self) -> Nanos {
        since(self.state.began, self.socket.now())
    }

    fn register(&self, register: u8) -> u32 {
        if self.traits.registers > 1 {
            self.apps.rows[self.state.register as usize][usize::from(register)]
        } else {
            self.state.register
        }
    }

    /// A register's value, or the milliseconds since it was set to the clock.
    fn value(&self, register: u8, elapsed: bool) -> u32 {
        let value = self.register(register);
        match elapsed {
            true => millis(self.socket.now()).wrapping_sub(value).cast_signed().max(0) as u32,
            false => value,
        }
    }

    fn set_register(&mut self, register: u8, value: u32) {
        if self.traits.registers > 1 {
            self.apps.rows[self.state.register as usize][usize::from(register)] = value;
        } else {
            self.state.register = value;
        }
    }
}

impl<O> Apps<O> {
    fn keep_spare(&mut self, mut octets: Vec<u8>) {
        const MAX_SPARE: usize = 64;
        if self.spare.len() < MAX_SPARE {
            octets.clear();
            self.spare.push(octets);
        }
    }
}

impl TakeForm {
    fn read(self, octets: &[u8], at: usize) -> Option<u32> {
        let of = octets.get(at..)?;
        Some(match self {
            Self::Be8 => u32::from(*of.first()?),
            Self::Be16 => u32::from(u16::from_be_bytes(*of.first_chunk()?)),
            Self::Be32 => u32::from_be_bytes(*of.first_chunk()?),
            Self::Hex8 => {
                let digits: &[u8; 8] = of.first_chunk()?;
                let digit =
                    |value: u32, octet: &u8| Some(value << 4 | (*octet as char).to_digit(16)?);
                digits.iter().try_fold(0, digit)?
            }
        })
    }
}

/// Listeners, in the order in which they were added.
#[derive(Clone, Debug, Default)]
struct Listeners {
    all: Vec<Listening>,
    /// Indexes of the listeners on each port, for TCP and UDP; built if there are many.
    by_port: Vec<Vec<u32>>,
    /// Whether one of them serves only some peers.
    of_peers: bool,
}

/// A listener, with its ranges in the form that is compared for each flow.
#[derive(Clone, Debug)]
struct Listening {
    transport: Transport,
    ports: (u16, u16),
    addresses: Addresses,
    listener: Listener,
}

/// First and last address.
#[derive(Clone, Copy, Debug)]
enum Addresses {
    V4(u32, u32),
    V6(u128, u128),
}

/// Most listeners for which a linear search is used.
const MAX_LINEAR: usize = 8;

impl Listening {
    fn new(listener: Listener, transport: Transport) -> Self {
        let ports = (*listener.ports.start(), *listener.ports.end());
        let addresses = match (*listener.addresses.start(), *listener.addresses.end()) {
            (IpAddr::V4(first), IpAddr::V4(last)) => Addresses::V4(first.to_bits(), last.to_bits()),
            (IpAddr::V6(first), IpAddr::V6(last)) => Addresses::V6(first.to_bits(), last.to_bits()),
            _ => panic!("a range of addresses has one family"),
        };
        Self { transport, ports, addresses, listener }
    }

    #[inline]
    fn fits(&self, transport: Transport, tuple: &Tuple) -> bool {
        let (first, last) = self.ports;
        let has_port = first <= tuple.local_port && tuple.local_port <= last;
        self.transport == transport
            && has_port
            && match (self.addresses, tuple.local) {
                (Addresses::V4(first, last), IpAddr::V4(local)) => {
                    (first..=last).contains(&local.to_bits())
                }
                (Addresses::V6(first, last), IpAddr::V6(local)) => {
                    (first..=last).contains(&local.to_bits())
                }
                _ => false,
            }
    }
}

impl Listeners {
    fn add(&mut self, listener: Listener, transport: Transport) {
        self.of_peers |= listener.peers.is_some();
        self.all.push(Listening::new(listener, transport));
        let mut from = self.all.len() - 1;
        if self.all.len() > MAX_LINEAR && self.by_port.is_empty() {
            (self.by_port, from) = (vec![vec![]; 1 << 17], 0);
        }
        if self.by_port.is_empty() {
            return;
        }
        for (i, of) in self.all.iter().enumerate().skip(from) {
            for port in of.listener.ports.clone() {
                self.by_port[row(of.transport, port)].push(i as u32);
            }
        }
    }

    fn remove(&mut self, program: ProgramId) {
        let all = std::mem::take(self).all;
        let others = all.into_iter().filter(|of| of.listener.program != program);
        others.for_each(|of| self.add(of.listener, of.transport));
    }

    /// The listener of a flow, and whether it includes the flow's peer.
    #[inline]
    fn find(&self, tuple: &Tuple) -> Option<(&Listener, bool)> {
        if !self.by_port.is_empty() || self.of_peers {
            return self.find_among_many(tuple);
        }
        let transport = transport_of(tuple);
        let first = self.all.iter().find(|of| of.fits(transport, tuple))?;
        Some((&first.listener, true))
    }

    /// [`Listeners::find`] if there are many, or if some serve only some peers.
    #[inline(never)]
    fn find_among_many(&self, tuple: &Tuple) -> Option<(&Listener, bool)> {
        let transport = transport_of(tuple);
        let fits = |of: &&Listening| of.fits(transport, tuple);
        match self.by_port.get(row(transport, tuple.local_port)) {
            None => Self::first(self.all.iter().filter(fits), tuple),
            Some(these) => {
                Self::first(these.iter().map(|&i| &self.all[i as usize]).filter(fits), tuple)
            }
        }
    }

    /// One pass over the listeners that fit: the first that names the flow's peer, otherwise the
    /// first that names none, otherwise the first.
    fn first<'a>(
        fit: impl Iterator<Item = &'a Listening>,
        tuple: &Tuple,
    ) -> Option<(&'a Listener, bool)> {
        let (mut of_all, mut of_others) = (None, None);
        for Listening { listener, .. } in fit {
            match &listener.peers {
                Some(peers) if peers.includes(tuple) => return Some((listener, true)),
                Some(_) => of_others = of_others.or(Some(listener)),
                None => of_all = of_all.or(Some(listener)),
            }
        }
        let of_all = of_all.map(|listener| (listener, true));
        of_all.or_else(|| of_others.map(|listener| (listener, false)))
    }
}

#[inline]
fn transport_of(tuple: &Tuple) -> Transport {
    match tuple.kind {
        FlowKind::Tcp => Transport::Tcp,
        FlowKind::Udp => Transport::Udp,
    }
}

fn row(transport: Transport, port: u16) -> usize {
    (transport as usize) << 16 | usize::from(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_costs_24_octets() {
        assert_eq!(size_of::<State>(), 24);
    }
}
