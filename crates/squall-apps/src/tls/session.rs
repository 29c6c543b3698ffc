//! TLS between a program and its flow; the program sends and receives plaintext.
//!
//! Unlike a program's messages, ciphertext cannot be produced twice, so it is stored until the peer
//! has acknowledged it.
//!
//! A client that resumes a session may have early data (0-RTT, RFC 8446 section 2.3): its program
//! then begins before the handshake. A server may refuse them, so their plaintext is stored until
//! the end of the handshake.

use std::{collections::VecDeque, fmt};

use rustls::{
    HandshakeKind,
    client::{ClientConnectionData, UnbufferedClientConnection},
    server::{ServerConnectionData, UnbufferedServerConnection},
    unbuffered::{
        ConnectionState, EncodeError, EncodeTlsData, EncryptError, ReadEarlyData, TransmitTlsData,
        UnbufferedStatus, WriteTraffic,
    },
};
use squall_tcp::{Event, FlowId, Piece, Reason, Tuple};
use squall_tls::{HelloClient, HelloClientError};
use squall_units::Nanos;

use crate::{
    Apps, EarlyData, FlowSocket, Observer, ProgramId, ProtocolError, Role, State,
    layers::{self, Kept, Slab},
    tls::Tls,
};

/// Marks pieces that belong to a session, whose index is in the other bits; `nth` is the piece's
/// offset in the session's sent octets.
pub(crate) const SESSION: u32 = 1 << 31;

/// Maximum plaintext of a record (RFC 8446 §5.1).
const RECORD: u32 = 1 << 14;
/// Maximum octets encrypted before TCP has sent them: several full GSO packets. Bounds the memory
/// for a peer that does not read.
const AHEAD: u32 = 128 << 10;
/// Maximum early data of a client: OpenSSL's servers and nginx allow a quarter of it.
const EARLY: u32 = 64 << 10;
/// Octets that TLS 1.3 adds to the content of a record: its type, and the tag.
const SEALED: usize = 1 + 16;
/// The same with the record's header.
const ADDED: usize = 5 + SEALED;
/// Length of the record with EndOfEarlyData, a message of 4 octets. No other record of a handshake
/// has it, nor one with an alert, which has 2 octets.
const END_OF_EARLY_DATA: usize = ADDED + 4;
/// Time limit of a handshake.
const HANDSHAKE: Nanos = Nanos(30_000_000_000);
/// Heap memory of a session in addition to its octets, after the handshake (estimated from the
/// memory of a process with many sessions: docs/guide/flows.md).
const SESSION_HEAP: usize = 2 << 10;

/// Sessions of all flows whose programs have TLS.
#[derive(Debug, Default)]
pub(crate) struct Layer {
    /// The settings of each program, if it has TLS.
    programs: Vec<Option<Tls>>,
    sessions: Slab<Session>,
    buffers: Buffers,
}

/// Scratch buffers of all sessions.
#[derive(Debug, Default)]
struct Buffers {
    incoming: Vec<u8>,
    plain: Vec<u8>,
    cipher: Vec<u8>,
    text: Vec<u8>,
}

#[derive(Debug)]
struct Session {
    peer: Connection,
    /// The beginning of an incomplete record.
    incoming: Vec<u8>,
    /// Ciphertext that is not acknowledged.
    kept: Kept,
    /// Pieces of plaintext that are not encrypted yet, each from this octet on.
    pending: VecDeque<(Piece, u32)>,
    started: Nanos,
    /// Whether the handshake is complete.
    open: bool,
    /// Whether the program runs: it begins with the handshake's end, or with early data.
    running: bool,
    /// Octets of early data that were sent (client), or received and accepted (server).
    early_octets: u32,
    /// A client's early data, until the handshake is complete.
    early: Vec<u8>,
    /// Octets of early data that a client may still send, including those added to records: servers
    /// with rustls skip no more than that if they refuse early data.
    early_left: u32,
    /// Whether the client has sent EndOfEarlyData, which it does if the server has accepted them.
    early_accepted: bool,
    /// The timer that the program has requested during the handshake, which has its own.
    wake: Option<Nanos>,
    /// Whether the program has closed.
    closing: bool,
    /// Whether close_notify was sent.
    closed: bool,
    /// The offset at which the program's data ends, once it has closed.
    ends: u32,
    peer_closed: bool,
    /// Whether the session has ended: nothing more is read or sent.
    over: bool,
    /// Whether the sides have not agreed on HTTP/2, for a program over HTTP/2.
    http1: bool,
}

enum Connection {
    Client(UnbufferedClientConnection),
    /// A client that sends a given hello.
    Hello(Box<HelloClient>),
    Server(UnbufferedServerConnection),
}

/// Prints no keys.
impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = match self {
            Self::Client(_) | Self::Hello(_) => "client",
            Self::Server(_) => "server",
        };
        write!(f, "{role} {:?} {}", self.kind(), self.cipher())
    }
}

/// Clones only the programs: another worker has its own flows.
impl Clone for Layer {
    fn clone(&self) -> Self {
        let programs = self.programs.iter().map(|tls| tls.as_ref().map(Tls::for_worker)).collect();
        Self { programs, ..Self::default() }
    }
}

impl Layer {
    pub fn add(&mut self, program: ProgramId, tls: &Tls) {
        layers::set(&mut self.programs, program, tls.for_worker());
    }

    #[inline]
    pub fn has(&self, program: ProgramId) -> bool {
        layers::has(&self.programs, program)
    }

    /// Memory usage in bytes.
    pub fn memory(&self) -> usize {
        let of = |session: &Session| {
            let pending = session.pending.capacity() * size_of::<(Piece, u32)>();
            size_of::<Session>()
                + SESSION_HEAP
                + session.incoming.capacity()
                + session.kept.memory()
                + session.early.capacity()
                + pending
        };
        self.sessions.memory(of)
    }

    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Copies octets from `offset` of a session's piece.
    ///
    /// # Panics
    /// If these octets were acknowledged: the stack asks only for outstanding ones.
    pub fn copy(&self, piece: Piece, offset: u32, out: &mut [u8]) {
        let session = self.sessions.get(piece.message & !SESSION).expect("an open flow's session");
        session.kept.copy(piece.nth.wrapping_add(offset), out);
    }

    /// Handles a flow's event before its program.
    pub fn event<O: Observer>(
        &mut self,
        apps: &mut Apps<O>,
        socket: &mut impl FlowSocket,
        event: Event<'_>,
    ) {
        let id = socket.id();
        let program = apps.program(socket.state());
        if let Event::Established = event {
            let seeds = apps.seeds(socket.state());
            match self.begin(apps.role(program), program, seeds, socket) {
                Ok(session) => self.sessions.add(id, session),
                Err(error) => {
                    apps.secure_failed(socket, ProtocolError::TlsBroken, &error, false);
                    return;
                }
            }
        }
        let Some((place, mut session)) = self.sessions.take(id) else {
            return apps.run_event(socket, event);
        };
        let buffers = &mut self.buffers;
        let mut flow = Secured { apps, socket, session: &mut session, program, place, buffers };
        match event {
            Event::Established => flow.established(),
            Event::Received(octets) => flow.received(octets),
            Event::Acknowledged { octets, .. } => flow.acknowledged(octets),
            Event::PeerClosed => flow.peer_closed(),
            Event::Timer => flow.timer(),
            Event::Settle => flow.settle(),
            Event::Gone(_) => {
                flow.gone(event);
                return self.sessions.remove(id);
            }
        }
        self.sessions.put(place, session);
    }

    fn begin(
        &self,
        role: Role,
        program: ProgramId,
        seeds: (u64, u32),
        socket: &impl FlowSocket,
    ) -> Result<Session, rustls::Error> {
        let tls = self.programs[usize::from(program.0)].as_ref().expect("`has` was asked before");
        let peer = match role {
            Role::Client => {
                let name = tls.name_of_flow(socket.tuple().remote, seeds);
                match &tls.hello {
                    Some(hello) => {
                        Connection::Hello(Box::new(HelloClient::new(hello.clone(), name)))
                    }
                    None => {
                        let client = UnbufferedClientConnection::new(tls.client.clone(), name);
                        // Its hello is made. Shares that it makes later are new.
                        squall_tls::client_resumes(false);
                        Connection::Client(client?)
                    }
                }
            }
            Role::Server => {
                Connection::Server(UnbufferedServerConnection::new(tls.server.clone())?)
            }
        };
        Ok(Session {
            peer,
            incoming: Vec::new(),
            kept: Kept::default(),
            pending: VecDeque::new(),
            started: socket.now(),
            open: false,
            running: false,
            early_octets: 0,
            early: Vec::new(),
            early_left: if role == Role::Client { tls.early_limit().min(EARLY) } else { 0 },
            early_accepted: false,
            wake: None,
            closing: false,
            closed: false,
            ends: 0,
            peer_closed: false,
            over: false,
            http1: false,
        })
    }
}

/// A flow during one of its events.
struct Secured<'a, O, S> {
    apps: &'a mut Apps<O>,
    socket: &'a mut S,
    session: &'a mut Session,
    program: ProgramId,
    place: u32,
    buffers: &'a mut Buffers,
}

impl<O: Observer, S: FlowSocket> Secured<'_, O, S> {
    fn established(&mut self) {
        let state = *self.socket.state();
        self.apps.report_established(&state, self.socket.now());
        let at = self.socket.due() + HANDSHAKE;
        self.socket.wake_at(at);
        self.received(&[]);
    }

    fn received(&mut self, octets: &[u8]) {
        if self.session.over || self.session.peer_closed {
            // Data after the end is ignored.
            return;
        }
        // Usually whole records arrive, so nothing must be buffered.
        let mut incoming = std::mem::take(&mut self.session.incoming);
        if incoming.is_empty() {
            incoming = std::mem::take(&mut self.buffers.incoming);
        }
        incoming.extend_from_slice(octets);
        let mut plain = std::mem::take(&mut self.buffers.plain);
        let Progress { used, peer_closed, early, may_send_early, result } =
            self.session.peer.progress(&mut incoming, &mut self.buffers.cipher, &mut plain);
        if used < incoming.len() && !peer_closed && result.is_ok() {
            self.session.incoming.extend_from_slice(&incoming[used..]);
        }
        incoming.clear();
        self.buffers.incoming = incoming;
        self.session.early_accepted |= early == Early::Ended;
        self.send();
        let complete = !self.session.open && result.is_ok() && !self.session.peer.is_handshaking();
        if let Early::Received(octets) = early {
            self.session.early_octets += octets;
        }
        // A client over HTTP/2 with a fallback learns the protocol at the end of the handshake.
        let early = !self.session.running
            && result.is_ok()
            && (!plain.is_empty() || may_send_early && !self.apps.falls_back(self.program));
        let unfit = if complete || early && !may_send_early { self.unfit() } else { None };
        if let Some(why) = unfit {
            self.fail(ProtocolError::TlsIncompatible, &why);
        } else {
            if complete {
                self.complete();
            }
            if complete || early {
                self.begin_program();
            }
        }
        if !plain.is_empty() && self.session.running {
            self.program(Event::Received(&plain));
        }
        plain.clear();
        self.buffers.plain = plain;
        if peer_closed && !self.session.peer_closed {
            self.session.peer_closed = true;
            if self.session.open {
                self.program(Event::PeerClosed);
            } else {
                self.fail(ProtocolError::TlsClosed, &"the peer closed during the handshake");
            }
        }
        if let Err(error) = result {
            self.fail(error.kind(), &error);
        }
        self.flush();
    }

    /// Why the program cannot run over the protocol that both sides have agreed on.
    fn unfit(&mut self) -> Option<&'static str> {
        if self.apps.is_over_http2(self.program) {
            self.session.http1 = self.session.peer.protocol() != Some(b"h2");
        }
        if self.session.http1 && !self.may_use_http1() {
            return Some("the peer did not agree on HTTP/2 (ALPN h2)");
        }
        self.chose_unspoken_h2().then_some(
            "the peer chose HTTP/2 (ALPN h2), which the hello offers, but the program does not \
             speak\n  try alpn = \"http/1.1\"",
        )
    }

    /// The end of the handshake.
    fn complete(&mut self) {
        self.session.open = true;
        let took = self.socket.now().saturating_sub(self.session.started);
        let resumed = self.session.peer.kind() == Some(HandshakeKind::Resumed);
        let cipher = self.session.peer.cipher();
        self.apps.observer_mut().secured(self.program, took, resumed, cipher);
        if let Some(at) = self.session.wake.take() {
            self.socket.wake_at(at);
        }
        let octets = std::mem::take(&mut self.session.early_octets);
        if octets == 0 {
            return;
        }
        let early = std::mem::take(&mut self.session.early);
        let is_server = matches!(self.session.peer, Connection::Server(_));
        if is_server || self.session.early_accepted {
            self.apps.observer_mut().early_data(self.program, EarlyData::Accepted(octets));
            return;
        }
        self.apps.observer_mut().early_data(self.program, EarlyData::Refused(octets));
        for text in early.chunks(RECORD as usize) {
            if self.session.encrypt(Some(text), &mut self.buffers.cipher).is_none() {
                return self.fail(ProtocolError::TlsBroken, &CANNOT_ENCRYPT);
            }
        }
    }

    fn begin_program(&mut self) {
        if !self.session.running && !self.session.over {
            self.session.running = true;
            self.program(Event::Established);
        }
    }

    /// Whether the program may run over what the sides have agreed on in place of HTTP/2.
    fn may_use_http1(&self) -> bool {
        let protocol = self.session.peer.protocol();
        self.apps.falls_back(self.program) && matches!(protocol, None | Some(b"http/1.1"))
    }

    /// Whether the peer chose HTTP/2 of a given hello, for a program without it.
    fn chose_unspoken_h2(&self) -> bool {
        matches!(self.session.peer, Connection::Hello(_))
            && self.session.peer.protocol() == Some(b"h2")
            && !self.apps.is_over_http2(self.program)
    }

    fn acknowledged(&mut self, octets: u32) {
        let octets = octets.min(self.session.kept.len() as u32);
        self.session.kept.drop_first(octets as usize);
        self.flush();
        if self.session.running && !self.session.over {
            let all = self.session.kept.len() == 0 && self.session.pending.is_empty();
            self.program(Event::Acknowledged { octets, all });
            self.flush();
        }
    }

    fn peer_closed(&mut self) {
        if self.session.over || self.session.peer_closed {
            return;
        }
        self.session.peer_closed = true;
        if !self.session.open {
            self.fail(ProtocolError::TlsClosed, &"the peer closed during the handshake");
        } else {
            if !self.session.closing {
                self.apps.observer_mut().truncated(self.program);
            }
            self.program(Event::PeerClosed);
        }
        self.flush();
    }

    fn timer(&mut self) {
        if self.session.open {
            self.program(Event::Timer);
        } else if !self.session.over {
            self.fail(ProtocolError::TlsTimeout, &"the peer took too long for the handshake");
        }
        self.flush();
    }

    fn settle(&mut self) {
        self.program(Event::Settle);
        self.flush();
    }

    fn gone(&mut self, event: Event<'_>) {
        if !self.session.open && !self.session.over {
            self.apps.observer_mut().insecure(self.program, &"the flow ended during the handshake");
        }
        // A peer that closed first no longer reads this side's close_notify, so its host resets the
        // flow after both sides have received all data.
        let Session { open, peer_closed, closed, ref kept, ends, .. } = *self.session;
        let arrived = kept.begins().wrapping_sub(ends) < 1 << 31;
        let complete = open && peer_closed && closed && arrived;
        self.program(match event {
            Event::Gone(Reason::Reset) if complete => Event::Gone(Reason::Closed),
            event => event,
        });
    }

    /// Runs the program.
    fn program(&mut self, event: Event<'_>) {
        let mut plain = Plain { socket: &mut *self.socket, session: &mut *self.session };
        self.apps.run_event(&mut plain, event);
    }

    #[cold]
    fn fail(&mut self, error: ProtocolError, why: &dyn fmt::Display) {
        self.session.over = true;
        self.session.pending.clear();
        let open = self.session.open;
        let mut plain = Plain { socket: &mut *self.socket, session: &mut *self.session };
        self.apps.secure_failed(&mut plain, error, why, open);
        // The alert, which states the reason, is sent before the close.
        self.session.closing = true;
    }

    /// Encrypts pending plaintext as far as TCP needs it, and closes after the last piece.
    fn flush(&mut self) {
        let tuple = self.socket.tuple();
        while let Some(&(whole, begin)) = self.session.pending.front() {
            let enough = self.socket.unsent() + self.buffers.cipher.len() as u32 >= AHEAD;
            if enough || !self.session.open && !self.session.may_write_early() {
                break;
            }
            let len = (whole.len - begin).min(RECORD);
            self.buffers.text.resize(len as usize, 0);
            self.apps.write(self.socket.state(), &tuple, whole, begin, &mut self.buffers.text);
            let first = self.session.early_octets == 0;
            let taken = self.session.encrypt(Some(&self.buffers.text), &mut self.buffers.cipher);
            let Some(taken) = taken else {
                self.fail(ProtocolError::TlsBroken, &CANNOT_ENCRYPT);
                break;
            };
            if first && self.session.early_octets > 0 {
                self.apps.observer_mut().early_data(self.program, EarlyData::Offered);
            }
            if begin + taken == whole.len {
                self.session.pending.pop_front();
            } else if let Some((_, from)) = self.session.pending.front_mut() {
                *from += taken;
            }
            self.apps.observer_mut().encrypted(self.program, taken);
            if taken < len {
                // The server's limit for early data.
                break;
            }
        }
        let closes = self.session.closing
            && !self.session.closed
            && self.session.pending.is_empty()
            && (self.session.open || self.session.over);
        if closes {
            self.session.closed = true;
            let cipher = self.buffers.cipher.len() as u32;
            self.session.ends = self.session.kept.end().wrapping_add(cipher);
            // A peer that closed first usually no longer reads, and its host would reset the flow
            // (nginx also omits close_notify in this case).
            if self.session.open && !self.session.over && !self.session.peer_closed {
                // The flow ends even if the message cannot be encoded.
                self.session.encrypt(None, &mut self.buffers.cipher);
            }
        }
        self.send();
        if closes {
            self.socket.close();
        }
    }

    /// Passes ciphertext to TCP.
    fn send(&mut self) {
        let cipher = &mut self.buffers.cipher;
        if cipher.is_empty() {
            return;
        }
        let nth = self.session.kept.push(cipher);
        self.socket.send(Piece { message: SESSION | self.place, nth, len: cipher.len() as u32 });
        cipher.clear();
    }
}

const CANNOT_ENCRYPT: &str = "the session cannot encrypt more";

/// Why a session has failed.
enum Failure {
    Rustls(rustls::Error),
    Hello(HelloClientError),
}

impl Failure {
    fn kind(&self) -> ProtocolError {
        use rustls::Error;
        match self {
            Self::Rustls(Error::AlertReceived(_)) | Self::Hello(HelloClientError::Alert(_)) => {
                ProtocolError::TlsAlert
            }
            Self::Rustls(Error::InvalidCertificate(_) | Error::NoCertificatesPresented)
            | Self::Hello(HelloClientError::Certificate(_)) => ProtocolError::TlsCertificate,
            Self::Rustls(Error::PeerIncompatible(_) | Error::NoApplicationProtocol)
            | Self::Hello(HelloClientError::Incompatible(_)) => ProtocolError::TlsIncompatible,
            Self::Rustls(_) | Self::Hello(_) => ProtocolError::TlsBroken,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rustls(error) => error.fmt(f),
            Self::Hello(error) => error.fmt(f),
        }
    }
}

/// The flow as its program sees it.
struct Plain<'a, S> {
    socket: &'a mut S,
    session: &'a mut Session,
}

impl<S: FlowSocket> FlowSocket for Plain<'_, S> {
    const SECURED: bool = true;

    fn chose_http1(&self) -> bool {
        self.session.http1
    }

    fn now(&self) -> Nanos {
        self.socket.now()
    }
    fn due(&self) -> Nanos {
        self.socket.due()
    }
    fn id(&self) -> FlowId {
        self.socket.id()
    }
    fn tuple(&self) -> Tuple {
        self.socket.tuple()
    }
    fn state(&mut self) -> &mut State {
        self.socket.state()
    }
    fn send(&mut self, piece: Piece) -> bool {
        if !self.session.over && piece.len > 0 {
            self.session.pending.push_back((piece, 0));
        }
        true
    }
    fn close(&mut self) {
        self.session.closing = true;
    }
    fn abort(&mut self) {
        self.session.over = true;
        self.session.pending.clear();
        self.socket.abort();
    }
    fn wake_at(&mut self, at: Nanos) {
        if self.session.open { self.socket.wake_at(at) } else { self.session.wake = Some(at) }
    }
    fn settle_later(&mut self) -> bool {
        self.socket.settle_later()
    }
    fn unacknowledged(&self) -> u32 {
        // Early data may have to be sent again until the handshake is complete.
        let early = self.session.early.len() as u32;
        self.unwritten().saturating_add(self.session.kept.len() as u32).saturating_add(early)
    }
    fn unsent(&self) -> u32 {
        self.unwritten().saturating_add(self.socket.unsent())
    }
    /// Plaintext that is not encrypted.
    fn unwritten(&self) -> u32 {
        let left = |sum: u32, (piece, from): &(Piece, u32)| sum.saturating_add(piece.len - from);
        self.session.pending.iter().fold(0, left)
    }
    fn pause(&mut self) {
        self.socket.pause();
    }
    fn resume(&mut self) {
        self.socket.resume();
    }
}

/// The result of processing received records.
struct Progress {
    /// Number of octets that were consumed.
    used: usize,
    peer_closed: bool,
    early: Early,
    /// Whether a client may send early data.
    may_send_early: bool,
    result: Result<(), Failure>,
}

/// The outcome of early data.
#[derive(PartialEq)]
enum Early {
    Nothing,
    /// A server has received and accepted this many octets.
    Received(u32),
    /// A client's server has accepted them.
    Ended,
}

impl Session {
    /// Adds a record with `text`, or a close_notify, to `cipher`. Returns the number of octets that
    /// it has: all, except for early data; `None`: that was not possible.
    fn encrypt(&mut self, text: Option<&[u8]>, cipher: &mut Vec<u8>) -> Option<u32> {
        let all = text.map_or(0, <[u8]>::len) as u32;
        let done = match &mut self.peer {
            Connection::Client(peer) => match text.filter(|_| !self.open) {
                Some(text) => {
                    let most = (self.early_left as usize).saturating_sub(SEALED);
                    let text = &text[..text.len().min(most)];
                    let taken = encrypt_early(peer, &mut self.incoming, text, cipher);
                    self.early.extend_from_slice(&text[..taken]);
                    self.early_octets += taken as u32;
                    self.early_left = self.early_left.saturating_sub((taken + SEALED) as u32);
                    return Some(taken as u32);
                }
                None => encrypt(peer, &mut self.incoming, text, cipher),
            },
            Connection::Hello(peer) => peer.encrypt(text, cipher),
            Connection::Server(peer) => encrypt(peer, &mut self.incoming, text, cipher),
        };
        done.then_some(all)
    }

    /// Whether data can be sent before the handshake is complete: a client's early data, or what a
    /// server answers them.
    fn may_write_early(&mut self) -> bool {
        match &mut self.peer {
            Connection::Client(peer) => {
                self.early_left as usize > SEALED
                    && match peer.process_tls_records(&mut self.incoming).state {
                        Ok(ConnectionState::TransmitTlsData(mut data)) => {
                            data.may_encrypt_early_data().is_some()
                        }
                        _ => false,
                    }
            }
            Connection::Hello(_) => false,
            Connection::Server(peer) => matches!(
                peer.process_tls_records(&mut self.incoming).state,
                Ok(ConnectionState::WriteTraffic(_))
            ),
        }
    }
}

impl Connection {
    fn progress(
        &mut self,
        incoming: &mut [u8],
        cipher: &mut Vec<u8>,
        plain: &mut Vec<u8>,
    ) -> Progress {
        match self {
            Self::Client(peer) => progress(peer, incoming, cipher, plain),
            Self::Hello(peer) => {
                let progress = peer.progress(incoming, cipher, plain);
                Progress {
                    used: progress.used,
                    peer_closed: progress.peer_closed,
                    early: Early::Nothing,
                    may_send_early: false,
                    result: progress.result.map_err(Failure::Hello),
                }
            }
            Self::Server(peer) => progress(peer, incoming, cipher, plain),
        }
    }

    fn is_handshaking(&self) -> bool {
        match self {
            Self::Client(peer) => peer.is_handshaking(),
            Self::Hello(peer) => peer.is_handshaking(),
            Self::Server(peer) => peer.is_handshaking(),
        }
    }

    fn kind(&self) -> Option<HandshakeKind> {
        match self {
            Self::Client(peer) => peer.handshake_kind(),
            Self::Hello(peer) if peer.is_resumed() => Some(HandshakeKind::Resumed),
            Self::Hello(_) => Some(HandshakeKind::Full),
            Self::Server(peer) => peer.handshake_kind(),
        }
    }

    /// The protocol on which both sides have agreed by ALPN (RFC 7301).
    fn protocol(&self) -> Option<&[u8]> {
        match self {
            Self::Client(peer) => peer.alpn_protocol(),
            Self::Hello(peer) => peer.protocol(),
            Self::Server(peer) => peer.alpn_protocol(),
        }
    }

    /// `TLS13_AES_128_GCM_SHA256`
    fn cipher(&self) -> &'static str {
        let suite = match self {
            Self::Client(peer) => peer.negotiated_cipher_suite(),
            Self::Hello(peer) => return peer.cipher(),
            Self::Server(peer) => peer.negotiated_cipher_suite(),
        };
        suite.and_then(|suite| suite.suite().as_str()).unwrap_or("other")
    }
}

/// rustls has the same methods for clients and servers, but no common trait.
trait Records {
    type Data;
    fn records<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data>;
    fn has_queued(&self) -> bool;
    /// Whether early data may follow the encoded record.
    fn may_send_early(data: &mut TransmitTlsData<'_, Self::Data>) -> bool;
    /// Takes early data, and adds the octets to discard for them.
    fn read_early(
        data: ReadEarlyData<'_, '_, Self::Data>,
        plain: &mut Vec<u8>,
        discard: &mut usize,
    );
}

impl Records for UnbufferedClientConnection {
    type Data = ClientConnectionData;
    fn records<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }
    fn has_queued(&self) -> bool {
        self.wants_write()
    }
    fn may_send_early(data: &mut TransmitTlsData<'_, Self::Data>) -> bool {
        data.may_encrypt_early_data().is_some()
    }
    fn read_early(_: ReadEarlyData<'_, '_, Self::Data>, _: &mut Vec<u8>, _: &mut usize) {}
}

impl Records for UnbufferedServerConnection {
    type Data = ServerConnectionData;
    fn records<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }
    fn has_queued(&self) -> bool {
        self.wants_write()
    }
    fn may_send_early(_: &mut TransmitTlsData<'_, Self::Data>) -> bool {
        false
    }
    fn read_early(
        mut data: ReadEarlyData<'_, '_, Self::Data>,
        plain: &mut Vec<u8>,
        discard: &mut usize,
    ) {
        while let Some(Ok(record)) = data.next_record() {
            *discard += record.discard;
            plain.extend_from_slice(record.payload);
        }
    }
}

/// Processes whole records, and answers them.
fn progress<R: Records>(
    peer: &mut R,
    incoming: &mut [u8],
    cipher: &mut Vec<u8>,
    plain: &mut Vec<u8>,
) -> Progress {
    let mut progress = Progress {
        used: 0,
        peer_closed: false,
        early: Early::Nothing,
        may_send_early: false,
        result: Ok(()),
    };
    loop {
        let UnbufferedStatus { mut discard, state, .. } =
            peer.records(&mut incoming[progress.used..]);
        let mut goes_on = true;
        match state {
            Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                while let Some(Ok(record)) = traffic.next_record() {
                    discard += record.discard;
                    plain.extend_from_slice(record.payload);
                }
            }
            Ok(ConnectionState::ReadEarlyData(data)) => {
                // They come before all other data.
                R::read_early(data, plain, &mut discard);
                progress.early = Early::Received(plain.len() as u32);
            }
            Ok(ConnectionState::EncodeTlsData(data)) => {
                // Only rustls's connections with buffers say whether early data were accepted.
                let ended = encode(data, cipher) == END_OF_EARLY_DATA;
                if ended && progress.early == Early::Nothing {
                    progress.early = Early::Ended;
                }
            }
            Ok(ConnectionState::TransmitTlsData(mut data)) => {
                if R::may_send_early(&mut data) {
                    // Early data can be encrypted in this state only: it is left when the server
                    // has accepted or refused them.
                    progress.may_send_early = true;
                    goes_on = false;
                } else {
                    data.done();
                }
            }
            Ok(ConnectionState::PeerClosed) => progress.peer_closed = true,
            // Closed by both sides, by this one first.
            Ok(ConnectionState::Closed) => {
                progress.peer_closed = true;
                goes_on = false;
            }
            // The session needs more input, or can send.
            Ok(_) => goes_on = false,
            Err(error) => {
                progress.used += discard;
                // Encodes the queued alert for the peer.
                while peer.has_queued()
                    && let Ok(ConnectionState::EncodeTlsData(data)) =
                        peer.records(&mut incoming[progress.used..]).state
                {
                    encode(data, cipher);
                }
                progress.result = Err(Failure::Rustls(error));
                return progress;
            }
        }
        progress.used += discard;
        if !goes_on {
            return progress;
        }
    }
}

/// Returns the number of octets that were encoded.
fn encode<D>(mut data: EncodeTlsData<'_, D>, cipher: &mut Vec<u8>) -> usize {
    let begin = cipher.len();
    if let Err(EncodeError::InsufficientSize(needs)) = data.encode(&mut []) {
        cipher.resize(begin + needs.required_size, 0);
        let written = data.encode(&mut cipher[begin..]).unwrap_or(0);
        cipher.truncate(begin + written);
    }
    cipher.len() - begin
}

/// Adds a record of early data with at most as much of `text` as the server allows. Returns the
/// number of octets.
fn encrypt_early(
    peer: &mut UnbufferedClientConnection,
    incoming: &mut [u8],
    text: &[u8],
    cipher: &mut Vec<u8>,
) -> usize {
    let begin = cipher.len();
    // Enough at once: rustls counts what does not fit as sent.
    cipher.resize(begin + text.len() + ADDED, 0);
    let written = match peer.process_tls_records(incoming).state {
        Ok(ConnectionState::TransmitTlsData(mut data)) => data
            .may_encrypt_early_data()
            .and_then(|mut early| early.encrypt(text, &mut cipher[begin..]).ok()),
        _ => None,
    };
    cipher.truncate(begin + written.unwrap_or(0));
    written.unwrap_or(0).saturating_sub(ADDED)
}

fn encrypt(
    peer: &mut impl Records,
    incoming: &mut [u8],
    text: Option<&[u8]>,
    cipher: &mut Vec<u8>,
) -> bool {
    loop {
        match peer.records(incoming).state {
            Ok(ConnectionState::EncodeTlsData(data)) => {
                encode(data, cipher);
            }
            Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
            Ok(ConnectionState::PeerClosed) => {}
            Ok(ConnectionState::WriteTraffic(traffic)) => {
                return encrypt_record(traffic, text, cipher);
            }
            _ => return false,
        }
    }
}

fn encrypt_record<D>(
    mut traffic: WriteTraffic<'_, D>,
    text: Option<&[u8]>,
    cipher: &mut Vec<u8>,
) -> bool {
    // More octets than any cipher suite adds to a record.
    const MORE: usize = 64;
    let begin = cipher.len();
    let mut room = text.map_or(0, <[u8]>::len) + MORE;
    loop {
        cipher.resize(begin + room, 0);
        let written = match text {
            Some(text) => traffic.encrypt(text, &mut cipher[begin..]),
            None => traffic.queue_close_notify(&mut cipher[begin..]),
        };
        match written {
            Ok(written) => {
                cipher.truncate(begin + written);
                return true;
            }
            Err(EncryptError::InsufficientSize(needs)) if needs.required_size > room => {
                room = needs.required_size
            }
            Err(_) => {
                cipher.truncate(begin);
                return false;
            }
        }
    }
}
