//! TLS between a program and its flow; the program sends and receives plaintext.
//!
//! Unlike a program's messages, ciphertext cannot be produced twice, so it is stored until the peer
//! has acknowledged it.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
};

use rustls::{
    HandshakeKind,
    client::{ClientConnectionData, UnbufferedClientConnection},
    server::{ServerConnectionData, UnbufferedServerConnection},
    unbuffered::{
        ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic,
    },
};
use squall_tcp::{Event, FlowId, Piece, Reason, Tuple};
use squall_tls::{HelloClient, HelloClientError};
use squall_units::Nanos;

use crate::{Apps, FlowSocket, Observer, ProgramId, ProtocolError, Role, State, layers, tls::Tls};

/// Marks pieces that belong to a session, whose index is in the other bits; `nth` is the piece's
/// offset in the session's sent octets.
pub(crate) const SESSION: u32 = 1 << 31;

/// Maximum plaintext of a record (RFC 8446 §5.1).
const RECORD: u32 = 1 << 14;
/// Maximum octets encrypted before TCP has sent them: several full GSO packets. Bounds the memory
/// for a peer that does not read.
const AHEAD: u32 = 128 << 10;
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
    places: HashMap<FlowId, u32>,
    sessions: Vec<Option<Box<Session>>>,
    free: Vec<u32>,
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
    /// Ciphertext that is not acknowledged, and its offset in the sent octets.
    kept: VecDeque<u8>,
    begins: u32,
    /// Pieces of plaintext that are not encrypted yet, each from this octet on.
    pending: VecDeque<(Piece, u32)>,
    started: Nanos,
    /// Whether the handshake is complete.
    open: bool,
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
                + session.kept.capacity()
                + pending
        };
        let sessions: usize = self.sessions.iter().flatten().map(|session| of(session)).sum();
        sessions
            + self.sessions.capacity() * size_of::<usize>()
            + self.places.capacity() * size_of::<(FlowId, u32)>()
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Copies octets from `offset` of a session's piece.
    ///
    /// # Panics
    /// If these octets were acknowledged: the stack asks only for outstanding ones.
    pub fn copy(&self, piece: Piece, offset: u32, out: &mut [u8]) {
        let session = self.sessions[(piece.message & !SESSION) as usize]
            .as_ref()
            .expect("an open flow's session");
        let from = piece.nth.wrapping_add(offset).wrapping_sub(session.begins) as usize;
        layers::copy_kept(&session.kept, from, out);
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
                Ok(session) => self.put(id, session),
                Err(error) => {
                    apps.secure_failed(socket, ProtocolError::TlsBroken, &error);
                    return;
                }
            }
        }
        let Some(&place) = self.places.get(&id) else { return apps.run_event(socket, event) };
        let Some(mut session) = self.sessions[place as usize].take() else { return };
        let buffers = &mut self.buffers;
        let mut flow = Secured { apps, socket, session: &mut session, program, place, buffers };
        match event {
            Event::Established => flow.established(),
            Event::Received(octets) => flow.received(octets),
            Event::Acknowledged { octets, .. } => flow.acknowledged(octets),
            Event::PeerClosed => flow.peer_closed(),
            Event::Timer => flow.timer(),
            Event::Gone(_) => {
                flow.gone(event);
                self.places.remove(&id);
                self.free.push(place);
                return;
            }
        }
        self.sessions[place as usize] = Some(session);
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
            kept: VecDeque::new(),
            begins: 0,
            pending: VecDeque::new(),
            started: socket.now(),
            open: false,
            closing: false,
            closed: false,
            ends: 0,
            peer_closed: false,
            over: false,
            http1: false,
        })
    }

    fn put(&mut self, id: FlowId, session: Session) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.sessions.push(None);
            self.sessions.len() as u32 - 1
        });
        self.sessions[place as usize] = Some(Box::new(session));
        self.places.insert(id, place);
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
        let Progress { used, peer_closed, result } =
            self.session.peer.progress(&mut incoming, &mut self.buffers.cipher, &mut plain);
        if used < incoming.len() && !peer_closed && result.is_ok() {
            self.session.incoming.extend_from_slice(&incoming[used..]);
        }
        incoming.clear();
        self.buffers.incoming = incoming;
        self.send();
        let complete = !self.session.open && result.is_ok() && !self.session.peer.is_handshaking();
        if complete && self.apps.is_over_http2(self.program) {
            self.session.http1 = self.session.peer.protocol() != Some(b"h2");
        }
        if complete && self.session.http1 && !self.may_use_http1() {
            let why = "the peer did not agree on HTTP/2 (ALPN h2)";
            self.fail(ProtocolError::TlsIncompatible, &why);
        } else if complete && self.chose_unspoken_h2() {
            let why = "the peer chose HTTP/2 (ALPN h2), which the hello offers, but the program does \
                       not speak\n  try alpn = \"http/1.1\"";
            self.fail(ProtocolError::TlsIncompatible, &why);
        } else if complete {
            self.session.open = true;
            let took = self.socket.now().saturating_sub(self.session.started);
            let resumed = self.session.peer.kind() == Some(HandshakeKind::Resumed);
            let cipher = self.session.peer.cipher();
            self.apps.observer_mut().secured(self.program, took, resumed, cipher);
            self.program(Event::Established);
        }
        if !plain.is_empty() && self.session.open {
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
        self.session.begins = self.session.begins.wrapping_add(octets);
        if octets as usize == self.session.kept.len() {
            // Free the memory of idle sessions.
            self.session.kept = VecDeque::new();
        } else {
            self.session.kept.drain(..octets as usize);
        }
        self.flush();
        if self.session.open && !self.session.over {
            let all = self.session.kept.is_empty() && self.session.pending.is_empty();
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

    fn gone(&mut self, event: Event<'_>) {
        if !self.session.open && !self.session.over {
            self.apps.observer_mut().insecure(self.program, &"the flow ended during the handshake");
        }
        // A peer that closed first no longer reads this side's close_notify, so its host resets the
        // flow after both sides have received all data.
        let Session { open, peer_closed, closed, begins, ends, .. } = *self.session;
        let complete = open && peer_closed && closed && begins.wrapping_sub(ends) < 1 << 31;
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
        let mut plain = Plain { socket: &mut *self.socket, session: &mut *self.session };
        self.apps.secure_failed(&mut plain, error, why);
        // The alert, which states the reason, is sent before the close.
        self.session.closing = true;
    }

    /// Encrypts pending plaintext as far as TCP needs it, and closes after the last piece.
    fn flush(&mut self) {
        let tuple = self.socket.tuple();
        while let Some((piece, from)) = self.session.pending.front_mut() {
            if self.socket.unsent() + self.buffers.cipher.len() as u32 >= AHEAD {
                break;
            }
            let (whole, begin, len) = (*piece, *from, (piece.len - *from).min(RECORD));
            *from += len;
            if *from == piece.len {
                self.session.pending.pop_front();
            }
            self.buffers.text.resize(len as usize, 0);
            self.apps.write(self.socket.state(), &tuple, whole, begin, &mut self.buffers.text);
            if !self.session.encrypt(Some(&self.buffers.text), &mut self.buffers.cipher) {
                self.fail(ProtocolError::TlsBroken, &"the session cannot encrypt more");
                break;
            }
            self.apps.observer_mut().encrypted(self.program, len);
        }
        let closes =
            self.session.closing && !self.session.closed && self.session.pending.is_empty();
        if closes {
            self.session.closed = true;
            let outstanding = self.session.kept.len() + self.buffers.cipher.len();
            self.session.ends = self.session.begins.wrapping_add(outstanding as u32);
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
        let nth = self.session.begins.wrapping_add(self.session.kept.len() as u32);
        self.session.kept.extend(cipher.iter());
        self.socket.send(Piece { message: SESSION | self.place, nth, len: cipher.len() as u32 });
        cipher.clear();
    }
}

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
        self.socket.wake_at(at);
    }
    fn unacknowledged(&self) -> u32 {
        self.unwritten().saturating_add(self.session.kept.len() as u32)
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
    result: Result<(), Failure>,
}

impl Session {
    /// Adds a record with `text`, or a close_notify, to `cipher`. Returns whether that was
    /// possible.
    fn encrypt(&mut self, text: Option<&[u8]>, cipher: &mut Vec<u8>) -> bool {
        match &mut self.peer {
            Connection::Client(peer) => encrypt(peer, &mut self.incoming, text, cipher),
            Connection::Hello(peer) => peer.encrypt(text, cipher),
            Connection::Server(peer) => encrypt(peer, &mut self.incoming, text, cipher),
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
}

/// Processes whole records, and answers them.
fn progress(
    peer: &mut impl Records,
    incoming: &mut [u8],
    cipher: &mut Vec<u8>,
    plain: &mut Vec<u8>,
) -> Progress {
    let (mut used, mut peer_closed) = (0, false);
    loop {
        let UnbufferedStatus { mut discard, state, .. } = peer.records(&mut incoming[used..]);
        match state {
            Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                while let Some(Ok(record)) = traffic.next_record() {
                    discard += record.discard;
                    plain.extend_from_slice(record.payload);
                }
            }
            Ok(ConnectionState::EncodeTlsData(data)) => encode(data, cipher),
            Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
            Ok(ConnectionState::PeerClosed) => peer_closed = true,
            // Closed by both sides, by this one first.
            Ok(ConnectionState::Closed) => {
                return Progress { used: used + discard, peer_closed: true, result: Ok(()) };
            }
            // The session needs more input, or can send. Early data is never requested, so it need
            // not be handled.
            Ok(_) => return Progress { used: used + discard, peer_closed, result: Ok(()) },
            Err(error) => {
                used += discard;
                // Encodes the queued alert for the peer.
                while peer.has_queued()
                    && let Ok(ConnectionState::EncodeTlsData(data)) =
                        peer.records(&mut incoming[used..]).state
                {
                    encode(data, cipher);
                }
                return Progress { used, peer_closed, result: Err(Failure::Rustls(error)) };
            }
        }
        used += discard;
    }
}

fn encode<D>(mut data: EncodeTlsData<'_, D>, cipher: &mut Vec<u8>) {
    let begin = cipher.len();
    if let Err(EncodeError::InsufficientSize(needs)) = data.encode(&mut []) {
        cipher.resize(begin + needs.required_size, 0);
        let written = data.encode(&mut cipher[begin..]).unwrap_or(0);
        cipher.truncate(begin + written);
    }
}

fn encrypt(
    peer: &mut impl Records,
    incoming: &mut [u8],
    text: Option<&[u8]>,
    cipher: &mut Vec<u8>,
) -> bool {
    loop {
        match peer.records(incoming).state {
            Ok(ConnectionState::EncodeTlsData(data)) => encode(data, cipher),
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
