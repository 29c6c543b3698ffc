//! A TLS client that begins with a given ClientHello, and accepts what that offers (RFC 8446, and
//! RFC 5246 with RFC 8422, 5288, 7627 and 7905). It has no I/O: octets go in and out.
//!
//! Unlike a client that protects its data, it speaks for a hello that others have made: a server
//! may choose what the hello offers and this client does not speak, which is an error with a name
//! of its own.

mod keys;
mod messages;
pub(crate) mod shares;
mod tickets;
mod tls12;
mod tls13;

use std::{fmt, sync::Arc};

use ring::{
    digest,
    rand::{SecureRandom, SystemRandom},
};
use rustls::{
    AlertDescription, CipherSuite, KeyLog, NamedGroup, NoKeyLog, SignatureScheme,
    client::danger::ServerCertVerifier,
    crypto::WebPkiSupportedAlgorithms,
    pki_types::{CertificateDer, ServerName},
    time_provider::TimeProvider,
};

use crate::{Fresh, Hello, Retry};
use keys::{
    ALERT, APPLICATION_DATA, CHANGE_CIPHER_SPEC, HANDSHAKE, HEADER, RECORD, RecordKeys, Secret,
    Suite, length,
};
use messages::ServerHello;
use shares::Share;
use tickets::{Ticket, Tickets};
use tls12::Exchange12;
use tls13::Exchange13;

/// Maximum size of a handshake message, as in rustls. Chains of certificates are the longest.
const MESSAGE: usize = 1 << 16;
/// Maximum number of records or messages in a row that carry nothing for the program: tickets,
/// KeyUpdates, ignored alerts, empty records. BoringSSL has the same limit for some of them.
const IDLE: u32 = 32;
/// Records that a key protects before the client sends a KeyUpdate: AES-GCM may have 2^24.5 (RFC
/// 8446 section 5.5).
const REKEY: u64 = 1 << 23;

/// Numbers of alerts (RFC 8446 section 6).
mod alert {
    pub const CLOSE_NOTIFY: u8 = 0;
    pub const UNEXPECTED_MESSAGE: u8 = 10;
    pub const BAD_RECORD_MAC: u8 = 20;
    pub const RECORD_OVERFLOW: u8 = 22;
    pub const HANDSHAKE_FAILURE: u8 = 40;
    pub const BAD_CERTIFICATE: u8 = 42;
    pub const ILLEGAL_PARAMETER: u8 = 47;
    pub const DECODE_ERROR: u8 = 50;
    pub const DECRYPT_ERROR: u8 = 51;
    pub const PROTOCOL_VERSION: u8 = 70;
    pub const INTERNAL_ERROR: u8 = 80;
    pub const USER_CANCELED: u8 = 90;
    pub const MISSING_EXTENSION: u8 = 109;
    pub const UNSUPPORTED_EXTENSION: u8 = 110;
    pub const NO_APPLICATION_PROTOCOL: u8 = 120;
}

/// Kinds of extensions that the client reads (IANA, TLS ExtensionType Values).
mod extension {
    pub const MAX_FRAGMENT_LENGTH: u16 = 1;
    pub const STATUS_REQUEST: u16 = 5;
    pub const ALPN: u16 = 16;
    pub const EXTENDED_MASTER_SECRET: u16 = 23;
    pub const COMPRESS_CERTIFICATE: u16 = 27;
    pub const RECORD_SIZE_LIMIT: u16 = 28;
    pub const SESSION_TICKET: u16 = 35;
    pub const PRE_SHARED_KEY: u16 = 41;
    pub const SUPPORTED_VERSIONS: u16 = 43;
    pub const COOKIE: u16 = 44;
    pub const POST_HANDSHAKE_AUTH: u16 = 49;
    pub const KEY_SHARE: u16 = 51;
    /// Settings of protocols inside, in two drafts (draft-vvv-tls-alps).
    pub const ALPS: [u16; 2] = [17513, 17613];
    pub const RENEGOTIATION_INFO: u16 = 0xff01;
}

/// Types of handshake messages (RFC 8446 section 4, RFC 5246 section 7.4, RFC 8879).
mod message {
    pub const HELLO_REQUEST: u8 = 0;
    pub const SERVER_HELLO: u8 = 2;
    pub const NEW_SESSION_TICKET: u8 = 4;
    pub const ENCRYPTED_EXTENSIONS: u8 = 8;
    pub const CERTIFICATE: u8 = 11;
    pub const SERVER_KEY_EXCHANGE: u8 = 12;
    pub const CERTIFICATE_REQUEST: u8 = 13;
    pub const SERVER_HELLO_DONE: u8 = 14;
    pub const CERTIFICATE_VERIFY: u8 = 15;
    pub const CLIENT_KEY_EXCHANGE: u8 = 16;
    pub const FINISHED: u8 = 20;
    pub const CERTIFICATE_STATUS: u8 = 22;
    pub const KEY_UPDATE: u8 = 24;
    pub const COMPRESSED_CERTIFICATE: u8 = 25;
    pub const MESSAGE_HASH: u8 = 254;
}

/// Why a session has failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HelloClientError {
    /// The server has ended the session.
    #[error("received fatal alert: {0:?}")]
    Alert(AlertDescription),
    /// The server's certificate, or its signature, was not accepted.
    #[error("{0}")]
    Certificate(String),
    /// The server has chosen what the hello offers and the client does not speak, or what the
    /// program does not speak.
    #[error("the server chose {0}, which the hello offers, but this client does not speak")]
    Incompatible(String),
    /// The server's octets are not TLS, are damaged, or break a rule.
    #[error("{what}")]
    Broken {
        what: &'static str,
        /// The alert that is sent.
        alert: u8,
    },
    /// The server answered an extension that the hello does not have.
    #[error("the server sent the extension {0}, which the hello does not offer")]
    UnofferedExtension(u16),
}

impl HelloClientError {
    /// The alert for the server.
    fn alert(&self) -> Option<u8> {
        match self {
            Self::Alert(_) => None,
            Self::Certificate(_) => Some(alert::BAD_CERTIFICATE),
            Self::Incompatible(_) => Some(alert::HANDSHAKE_FAILURE),
            Self::Broken { alert, .. } => Some(*alert),
            Self::UnofferedExtension(_) => Some(alert::UNSUPPORTED_EXTENSION),
        }
    }
}

const fn broken(what: &'static str, alert: u8) -> HelloClientError {
    HelloClientError::Broken { what, alert }
}

/// A message that cannot be read; `what` names it.
const fn unreadable(what: &'static str) -> HelloClientError {
    broken(what, alert::DECODE_ERROR)
}

type Done = Result<(), HelloClientError>;

/// The configuration that all sessions of a client share.
#[derive(Clone, Debug)]
pub struct HelloClientConfig {
    hello: Arc<Hello>,
    verifier: Option<Verifier>,
    /// The tickets of all sessions, if they are kept.
    tickets: Option<Arc<Tickets>>,
    pub key_log: Arc<dyn KeyLog>,
}

/// How a client verifies the server.
#[derive(Clone, Debug)]
pub(crate) struct Verifier {
    pub chain: Arc<dyn ServerCertVerifier>,
    pub signatures: WebPkiSupportedAlgorithms,
    pub time: Arc<dyn TimeProvider>,
}

impl HelloClientConfig {
    pub(crate) fn new(hello: Arc<Hello>, verifier: Option<Verifier>) -> Self {
        Self { hello, verifier, tickets: None, key_log: Arc::new(NoKeyLog {}) }
    }

    /// Lets clients resume sessions with the tickets of earlier ones, if servers may give tickets to
    /// the hello. Copies that are made later have the same tickets. `clock`: for their
    /// lifetimes.
    pub fn keep_tickets(&mut self, clock: Arc<dyn TimeProvider>) {
        self.tickets = self.hello.resumes().then(|| Arc::new(Tickets::new(clock)));
    }
}

/// The result of [`HelloClient::progress`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelloProgress {
    /// Number of octets that were consumed.
    pub used: usize,
    /// Whether the server has sent close_notify.
    pub peer_closed: bool,
    pub result: Result<(), HelloClientError>,
}

/// One session.
pub struct HelloClient {
    config: Arc<HelloClientConfig>,
    /// `None` after the handshake.
    handshake: Option<Box<Handshake>>,
    reading: Option<RecordKeys>,
    writing: Option<RecordKeys>,
    /// The beginning of an incomplete handshake message.
    messages: Vec<u8>,
    suite: Option<&'static Suite>,
    protocol: Option<Vec<u8>>,
    /// Whether it goes on from an earlier session.
    resumed: bool,
    /// For the tickets that the server gives: its name, and their secret.
    resumption: Option<Box<(ServerName<'static>, Secret)>>,
    /// Maximum plaintext of a record for the server.
    record: usize,
    /// Number of records or messages in a row that carry nothing for the program.
    idle: u32,
    peer_closed: bool,
    error: Option<HelloClientError>,
}

/// The state during the handshake.
struct Handshake {
    name: ServerName<'static>,
    /// The random of the hello, then its session ID, and the octets of that.
    random: [u8; 64],
    session_id: u8,
    shares: Vec<Share>,
    /// The ticket that the hello has.
    ticket: Option<Ticket>,
    transcript: Transcript,
    /// The suite of a HelloRetryRequest, and its group, or 0.
    retried: Option<(u16, u16)>,
    /// Whether the ChangeCipherSpec of the compatibility mode is sent (RFC 8446 appendix D.4).
    compatibility: bool,
    state: State,
}

enum State {
    Start,
    ServerHello,
    Tls13(Box<Exchange13>),
    Tls12(Box<Exchange12>),
}

/// The messages so far.
enum Transcript {
    /// Before the server has chosen a hash.
    Messages(Vec<u8>),
    Hash(digest::Context),
}

impl Transcript {
    fn add(&mut self, message: &[u8]) {
        match self {
            Self::Messages(messages) => messages.extend_from_slice(message),
            Self::Hash(context) => context.update(message),
        }
    }

    fn choose(&mut self, suite: &Suite) {
        if let Self::Messages(messages) = self {
            let mut context = digest::Context::new(suite.digest());
            context.update(messages);
            *self = Self::Hash(context);
        }
    }

    /// The hash of the messages.
    ///
    /// # Panics
    /// Before `choose`.
    fn hash(&self) -> digest::Digest {
        match self {
            Self::Hash(context) => context.clone().finish(),
            Self::Messages(_) => unreachable!("a suite is chosen before the first hash"),
        }
    }

    /// Replaces the first hello by its hash (RFC 8446 section 4.4.1).
    fn retry(&mut self, suite: &Suite) {
        self.choose(suite);
        let hash = self.hash();
        let mut context = digest::Context::new(suite.digest());
        let [high, low] = length(hash.as_ref().len());
        context.update(&[message::MESSAGE_HASH, 0, high, low]);
        context.update(hash.as_ref());
        *self = Self::Hash(context);
    }
}

impl Handshake {
    fn session_id(&self) -> &[u8] {
        &self.random[32..][..self.session_id.into()]
    }

    /// Whether the hello has a ticket of TLS 1.3.
    fn offers_psk(&self) -> bool {
        self.ticket.as_ref().is_some_and(|ticket| !ticket.is_of_tls12())
    }

    /// Sends a hello. `retry`: the second one.
    fn hello(&mut self, hello: &Hello, retry: Option<Retry<'_>>, out: &mut Vec<u8>) {
        let keys = self.shares.iter().map(|share| (share.group, &share.public[..]));
        let keys: Vec<_> = keys.collect();
        let name = match &self.name {
            // RFC 6066 section 3: without a trailing dot.
            ServerName::DnsName(name) => {
                let name = name.as_ref();
                Some(name.strip_suffix('.').unwrap_or(name))
            }
            _ => None,
        };
        let mut message = Vec::with_capacity(2048);
        let (psk, ticket) = self.ticket.as_ref().map_or((None, None), Ticket::offer);
        let fresh = Fresh { name, shares: &keys, random: &self.random, retry, psk, ticket };
        hello.write(&fresh, &mut message);
        self.session_id = hello.session_id_len(&fresh);
        if let Some(ticket) = self.ticket.as_ref().filter(|_| psk.is_some()) {
            ticket.bind(&self.transcript, &mut message);
        }
        self.transcript.add(&message);
        let version = if retry.is_some() { 0x0303 } else { hello.record_version };
        for part in message.chunks(RECORD) {
            out.push(HANDSHAKE);
            out.extend_from_slice(&version.to_be_bytes());
            out.extend_from_slice(&length(part.len()));
            out.extend_from_slice(part);
        }
    }
}

/// Prints no keys.
impl fmt::Debug for HelloClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HelloClient {}", self.cipher())
    }
}

impl HelloClient {
    /// The server's certificate is verified for `name`, which the hello contains unless it is an
    /// address.
    pub fn new(config: Arc<HelloClientConfig>, name: ServerName<'static>) -> Self {
        let handshake = Handshake {
            name,
            random: [0; 64],
            session_id: 0,
            shares: vec![],
            ticket: None,
            transcript: Transcript::Messages(vec![]),
            retried: None,
            compatibility: false,
            state: State::Start,
        };
        Self {
            config,
            handshake: Some(Box::new(handshake)),
            reading: None,
            writing: None,
            messages: vec![],
            suite: None,
            protocol: None,
            resumed: false,
            resumption: None,
            record: RECORD,
            idle: 0,
            peer_closed: false,
            error: None,
        }
    }

    /// Processes whole records of `incoming`, and appends the answers to `out` and the program's
    /// data to `plain`. The first call, for which `incoming` may be empty, sends the hello. After
    /// an error, whose alert is in `out`, each call has the same error.
    pub fn progress(
        &mut self,
        incoming: &mut [u8],
        out: &mut Vec<u8>,
        plain: &mut Vec<u8>,
    ) -> HelloProgress {
        let (mut used, mut result) = (0, self.error.clone().map_or(Ok(()), Err));
        if result.is_ok() {
            result = self.start(out);
            while result.is_ok() && !self.peer_closed {
                match self.record(&mut incoming[used..], out, plain) {
                    Ok(0) => break,
                    Ok(octets) => used += octets,
                    Err(error) => result = Err(error),
                }
            }
            if let Err(error) = &result {
                if let Some(alert) = error.alert() {
                    self.write(ALERT, &[2, alert], out);
                }
                self.error = Some(error.clone());
            }
        }
        HelloProgress { used, peer_closed: self.peer_closed, result }
    }

    /// Appends records with `text`, or a close_notify, to `out`. Returns whether that was possible:
    /// not before the handshake is complete, and not after an error.
    pub fn encrypt(&mut self, text: Option<&[u8]>, out: &mut Vec<u8>) -> bool {
        if self.is_handshaking() || self.error.is_some() {
            return false;
        }
        if self.writing.as_ref().is_some_and(|keys| keys.sequence() >= REKEY) {
            self.update_writing(out);
        }
        match text {
            Some(text) => {
                text.chunks(self.record).for_each(|part| self.write(APPLICATION_DATA, part, out));
            }
            None => self.write(ALERT, &[1, alert::CLOSE_NOTIFY], out),
        }
        true
    }

    pub fn is_handshaking(&self) -> bool {
        self.handshake.is_some()
    }

    /// `TLS13_AES_128_GCM_SHA256`
    pub fn cipher(&self) -> &'static str {
        self.suite.map_or("other", |suite| suite.name)
    }

    /// Whether the server goes on from an earlier session, whose ticket the hello had.
    pub fn is_resumed(&self) -> bool {
        self.resumed
    }

    /// The protocol inside that the server has chosen (ALPN).
    pub fn protocol(&self) -> Option<&[u8]> {
        self.protocol.as_deref()
    }

    /// Sends the hello, unless it is sent.
    fn start(&mut self, out: &mut Vec<u8>) -> Done {
        const NO_RANDOM: HelloClientError =
            broken("the system has no random octets", alert::INTERNAL_ERROR);
        let Some(handshake) = &mut self.handshake else { return Ok(()) };
        if !matches!(handshake.state, State::Start) {
            return Ok(());
        }
        handshake.state = State::ServerHello;
        SystemRandom::new().fill(&mut handshake.random).map_err(|_| NO_RANDOM)?;
        for group in self.config.hello.share_groups() {
            let share = match group {
                // A server that chooses it must be able to read it.
                shares::KYBER => Share::kyber(),
                group if shares::is_supported(group) => Share::new(group),
                _ => continue,
            };
            handshake.shares.push(share.ok_or(NO_RANDOM)?);
        }
        let tickets = self.config.tickets.as_ref();
        handshake.ticket = tickets.and_then(|tickets| tickets.take(&handshake.name));
        handshake.hello(&self.config.hello, None, out);
        Ok(())
    }

    /// Appends a record, which is protected if there are keys.
    fn write(&mut self, kind: u8, text: &[u8], out: &mut Vec<u8>) {
        match &mut self.writing {
            Some(keys) => keys.seal(kind, text, out),
            None => {
                out.extend_from_slice(&[kind, 3, 3]);
                out.extend_from_slice(&length(text.len()));
                out.extend_from_slice(text);
            }
        }
    }

    /// Appends the ChangeCipherSpec of the compatibility mode once, before what the client sends
    /// after its first hello (RFC 8446 appendix D.4).
    fn write_compatibility(&mut self, handshake: &mut Handshake, out: &mut Vec<u8>) {
        if self.config.hello.session_id > 0 && !handshake.compatibility {
            out.extend_from_slice(&[CHANGE_CIPHER_SPEC, 3, 3, 0, 1, 1]);
        }
        handshake.compatibility = true;
    }

    fn update_writing(&mut self, out: &mut Vec<u8>) {
        if self.writing.as_ref().is_some_and(RecordKeys::is_of_tls13) {
            self.write(HANDSHAKE, &[message::KEY_UPDATE, 0, 0, 1, 0], out);
            self.writing.as_mut().expect("checked above").update();
        }
    }

    /// Processes the first record. Returns its length; 0: it is not complete.
    fn record(
        &mut self,
        incoming: &mut [u8],
        out: &mut Vec<u8>,
        plain: &mut Vec<u8>,
    ) -> Result<usize, HelloClientError> {
        let Some((header, rest)) = incoming.split_first_chunk_mut::<HEADER>() else { return Ok(0) };
        let [kind, major, _, high, low] = *header;
        if !(CHANGE_CIPHER_SPEC..=APPLICATION_DATA).contains(&kind) || major != 3 {
            return Err(broken("the server's octets are not TLS", alert::UNEXPECTED_MESSAGE));
        }
        let len = usize::from(u16::from_be_bytes([high, low]));
        let is_protected = self.reading.is_some() && kind != CHANGE_CIPHER_SPEC;
        let most = match &self.reading {
            Some(keys) if keys.is_of_tls13() => RECORD + 256,
            Some(_) => RECORD + 2048,
            None => RECORD,
        };
        if len > most {
            return Err(broken("the server's record is too long", alert::RECORD_OVERFLOW));
        }
        let Some(body) = rest.get_mut(..len) else { return Ok(0) };
        // Servers and devices that give up have no keys yet, or no longer.
        let is_plain_alert = kind == ALERT && len == 2 && self.is_handshaking();
        let (kind, text) = match &mut self.reading {
            Some(keys) if is_protected && !(is_plain_alert && keys.is_of_tls13()) => {
                if keys.is_of_tls13() && kind != APPLICATION_DATA {
                    return Err(broken(
                        "the server's record is not encrypted",
                        alert::UNEXPECTED_MESSAGE,
                    ));
                }
                keys.open(*header, body)?
            }
            _ => (kind, &*body),
        };
        match kind {
            CHANGE_CIPHER_SPEC if !is_protected => self.change_cipher_spec(text)?,
            ALERT => self.alert(text)?,
            HANDSHAKE => self.handshake(text, out)?,
            APPLICATION_DATA if self.is_handshaking() => {
                return Err(broken(
                    "the server sent data during the handshake",
                    alert::UNEXPECTED_MESSAGE,
                ));
            }
            APPLICATION_DATA if text.is_empty() => self.count_idle()?,
            APPLICATION_DATA => {
                self.idle = 0;
                plain.extend_from_slice(text);
            }
            _ => {
                return Err(broken(
                    "the server's record has an unknown type",
                    alert::UNEXPECTED_MESSAGE,
                ));
            }
        }
        Ok(HEADER + len)
    }

    fn count_idle(&mut self) -> Done {
        self.idle += 1;
        if self.idle > IDLE {
            return Err(broken(
                "the server sent more than 32 tickets, key updates, warnings or empty records in a \
                 row",
                alert::UNEXPECTED_MESSAGE,
            ));
        }
        Ok(())
    }

    fn change_cipher_spec(&mut self, text: &[u8]) -> Done {
        const UNEXPECTED: HelloClientError =
            broken("the server sent an unexpected ChangeCipherSpec", alert::UNEXPECTED_MESSAGE);
        let Some(handshake) = &mut self.handshake else { return Err(UNEXPECTED) };
        if text != [1] {
            return Err(UNEXPECTED);
        }
        match &mut handshake.state {
            State::Tls12(exchange) => {
                // Keys do not change within a message (RFC 5246 section 7.1).
                let keys = exchange.change_cipher_spec().filter(|_| self.messages.is_empty());
                self.reading = Some(keys.ok_or(UNEXPECTED)?);
                Ok(())
            }
            // The compatibility mode has one, which is ignored (RFC 8446 section 5).
            _ => self.count_idle(),
        }
    }

    fn alert(&mut self, text: &[u8]) -> Done {
        let &[level, description] = text else {
            return Err(unreadable("the server's alert has another length than 2"));
        };
        let is_ignored = match &self.handshake {
            Some(handshake) if !matches!(handshake.state, State::Tls13(_)) => level == 1,
            _ if self.reading.as_ref().is_some_and(RecordKeys::is_of_tls13) => {
                // The level has no meaning (RFC 8446 section 6).
                description == alert::USER_CANCELED
            }
            _ => level == 1,
        };
        if description == alert::CLOSE_NOTIFY {
            self.peer_closed = true;
            Ok(())
        } else if is_ignored {
            self.count_idle()
        } else {
            Err(HelloClientError::Alert(AlertDescription::from(description)))
        }
    }

    /// Processes a record with handshake messages, or parts of them.
    fn handshake(&mut self, text: &[u8], out: &mut Vec<u8>) -> Done {
        if text.is_empty() {
            return Err(broken(
                "the server's record with handshake messages is empty",
                alert::UNEXPECTED_MESSAGE,
            ));
        }
        self.messages.extend_from_slice(text);
        while let Some(&[_, high, middle, low]) = self.messages.first_chunk() {
            let len = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
            if len > MESSAGE {
                return Err(broken(
                    "the server's handshake message is longer than 64 KiB",
                    alert::ILLEGAL_PARAMETER,
                ));
            }
            if self.messages.len() < 4 + len {
                break;
            }
            let rest = self.messages.split_off(4 + len);
            let message = std::mem::replace(&mut self.messages, rest);
            self.message(&message, out)?;
        }
        Ok(())
    }

    /// Processes a whole message with its header.
    fn message(&mut self, message: &[u8], out: &mut Vec<u8>) -> Done {
        let Some(mut handshake) = self.handshake.take() else {
            return self.message_after_handshake(message, out);
        };
        let state = std::mem::replace(&mut handshake.state, State::Start);
        let next = match state {
            State::Start | State::ServerHello => self.server_hello(&mut handshake, message, out),
            State::Tls13(exchange) => self.message13(exchange, &mut handshake, message, out),
            State::Tls12(exchange) => self.message12(exchange, &mut handshake, message, out),
        };
        // `None`: the handshake is complete.
        match next.transpose() {
            Some(Ok(state)) => handshake.state = state,
            Some(Err(error)) => {
                self.handshake = Some(handshake);
                return Err(error);
            }
            None => return Ok(()),
        }
        self.handshake = Some(handshake);
        Ok(())
    }

    fn message_after_handshake(&mut self, message: &[u8], out: &mut Vec<u8>) -> Done {
        let (kind, body) = (message[0], &message[4..]);
        let is_of_tls13 = self.reading.as_ref().is_some_and(RecordKeys::is_of_tls13);
        match kind {
            message::NEW_SESSION_TICKET if is_of_tls13 => {
                self.count_idle()?;
                self.keep_ticket(body)
            }
            message::KEY_UPDATE if is_of_tls13 => {
                let &[requested @ (0 | 1)] = body else {
                    return Err(unreadable("the server's KeyUpdate cannot be read"));
                };
                self.ends_record()?;
                self.count_idle()?;
                self.reading.iter_mut().for_each(RecordKeys::update);
                if requested == 1 {
                    self.update_writing(out);
                }
                Ok(())
            }
            message::CERTIFICATE_REQUEST
                if is_of_tls13
                    && self.config.hello.offers_extension(extension::POST_HANDSHAKE_AUTH) =>
            {
                Err(HelloClientError::Incompatible("authentication after the handshake".into()))
            }
            // Another handshake, which a client may ignore (RFC 5246 section 7.4.1.1).
            message::HELLO_REQUEST if !is_of_tls13 && body.is_empty() => self.count_idle(),
            _ => Err(UNEXPECTED_MESSAGE),
        }
    }

    /// Reads a NewSessionTicket (RFC 8446 section 4.6.1), if tickets are kept.
    fn keep_ticket(&self, body: &[u8]) -> Done {
        let (Some(tickets), Some(suite), Some(session)) =
            (&self.config.tickets, self.suite, &self.resumption)
        else {
            return Ok(());
        };
        let (server, secret) = &**session;
        let ticket = Ticket::read(body, suite, secret, tickets.now())
            .ok_or(unreadable("the server's NewSessionTicket cannot be read"))?;
        tickets.add(server, ticket);
        Ok(())
    }

    /// Keys change after this message, so it has to end its record (RFC 8446 section 5.1).
    fn ends_record(&self) -> Done {
        if self.messages.is_empty() {
            return Ok(());
        }
        Err(broken(
            "the server's record has handshake messages after a change of keys",
            alert::UNEXPECTED_MESSAGE,
        ))
    }

    /// ServerHello or HelloRetryRequest. Returns the next state.
    fn server_hello(
        &mut self,
        handshake: &mut Handshake,
        message: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<State>, HelloClientError> {
        if message[0] != message::SERVER_HELLO {
            return Err(UNEXPECTED_MESSAGE);
        }
        let hello = self.config.hello.clone();
        let server = ServerHello::read(&message[4..], &hello, handshake.offers_psk())?;
        let version = server.version()?;
        if !hello.offers_version(version) {
            return Err(broken(
                "the server chose a version that the hello does not offer",
                alert::PROTOCOL_VERSION,
            ));
        }
        if !matches!(version, 0x0303 | 0x0304) {
            let name = if version == 0x0302 { "TLS 1.1" } else { "TLS 1.0" };
            return Err(HelloClientError::Incompatible(name.into()));
        }
        let tls13 = version == 0x0304;
        if !tls13 && server.resumes()? {
            return Err(HelloClientError::UnofferedExtension(extension::PRE_SHARED_KEY));
        }
        let suite = Suite::find(server.suite, tls13)
            .ok_or_else(|| HelloClientError::Incompatible(suite_name(server.suite)))?;
        self.suite = Some(suite);
        let next = if server.is_retry() && tls13 {
            self.retry(handshake, &server, suite, message, out)?;
            State::ServerHello
        } else if tls13 {
            State::Tls13(self.begin13(handshake, &server, suite, message)?.into())
        } else {
            State::Tls12(self.begin12(handshake, &server, suite, message)?.into())
        };
        Ok(Some(next))
    }

    /// HelloRetryRequest (RFC 8446 section 4.1.4).
    fn retry(
        &mut self,
        handshake: &mut Handshake,
        server: &ServerHello<'_>,
        suite: &'static Suite,
        message: &[u8],
        out: &mut Vec<u8>,
    ) -> Done {
        let hello = self.config.hello.clone();
        if handshake.retried.is_some() {
            return Err(broken(
                "the server sent a second HelloRetryRequest",
                alert::UNEXPECTED_MESSAGE,
            ));
        }
        self.ends_record()?;
        server.check_session_id(handshake.session_id())?;
        let (group, cookie) = server.retry()?;
        if group != 0 {
            // Also a group that the client could speak, but has sent.
            if !hello.groups().any(|one| one == group)
                || hello.share_groups().any(|one| one == group)
            {
                return Err(broken(
                    "the server's HelloRetryRequest has a group that was not offered, or was sent",
                    alert::ILLEGAL_PARAMETER,
                ));
            }
            let share = Share::new(group)
                .ok_or_else(|| HelloClientError::Incompatible(group_name(group)))?;
            handshake.shares = vec![share];
        } else if cookie.is_empty() {
            return Err(broken(
                "the server's HelloRetryRequest changes nothing",
                alert::ILLEGAL_PARAMETER,
            ));
        }
        handshake.retried = Some((suite.id, group));
        // Only those for the hash of the chosen suite are left (section 4.1.4).
        handshake.ticket.take_if(|ticket| !ticket.is_of_tls12() && !ticket.fits(suite));
        handshake.transcript.retry(suite);
        handshake.transcript.add(message);
        self.write_compatibility(handshake, out);
        handshake.hello(&hello, Some(Retry { group, cookie }), out);
        Ok(())
    }

    /// Reads the protocol inside of an extension of the server.
    fn choose_protocol(&mut self, body: &[u8]) -> Done {
        let name = messages::protocol(body)
            .ok_or(unreadable("the server's extension for protocols (ALPN) cannot be read"))?;
        if !self.config.hello.alpn().any(|offered| offered == name) {
            return Err(broken(
                "the server chose a protocol (ALPN) that the hello does not offer",
                alert::NO_APPLICATION_PROTOCOL,
            ));
        }
        self.protocol = Some(name.to_vec());
        Ok(())
    }

    /// Reads the limits for the client's records (RFC 6066 section 4, RFC 8449).
    fn limit_records(&mut self, kind: u16, body: &[u8], tls13: bool) -> Done {
        const BAD: HelloClientError =
            broken("the server's limit for records is not allowed", alert::ILLEGAL_PARAMETER);
        match (kind, body) {
            (extension::MAX_FRAGMENT_LENGTH, &[code @ 1..=4]) => self.record = 256 << code,
            (extension::RECORD_SIZE_LIMIT, &[high, low]) => {
                let limit = usize::from(u16::from_be_bytes([high, low]));
                if limit < 64 {
                    return Err(BAD);
                }
                // In TLS 1.3 it includes the content type.
                self.record = (limit - usize::from(tls13)).min(RECORD);
            }
            _ => return Err(BAD),
        }
        Ok(())
    }

    /// Verifies the chain, if the client has authorities.
    fn verify_chain(
        &self,
        handshake: &Handshake,
        chain: &[CertificateDer<'_>],
        status: &[u8],
    ) -> Done {
        let Some(verifier) = &self.config.verifier else { return Ok(()) };
        let wrong = |error: rustls::Error| HelloClientError::Certificate(error.to_string());
        let (leaf, rest) =
            chain.split_first().ok_or_else(|| wrong(rustls::Error::NoCertificatesPresented))?;
        let now = verifier
            .time
            .current_time()
            .ok_or_else(|| wrong(rustls::Error::FailedToGetCurrentTime))?;
        verifier
            .chain
            .verify_server_cert(leaf, rest, &handshake.name, status, now)
            .map(drop)
            .map_err(wrong)
    }

    /// Verifies a signature by the key of the server's certificate, if the client has authorities.
    fn verify_signature(
        &self,
        chain: &[CertificateDer<'_>],
        scheme: u16,
        message: &[u8],
        signature: &[u8],
        tls13: bool,
    ) -> Done {
        let Some(verifier) = &self.config.verifier else { return Ok(()) };
        let wrong = |why: &str| HelloClientError::Certificate(format!("invalid signature: {why}"));
        let mut offered = self.config.hello.signature_schemes().peekable();
        let is_offered = offered.peek().is_none() || offered.any(|one| one == scheme);
        // RFC 8446 section 4.4.3: RSASSA-PKCS1-v1_5 is for certificates alone.
        if !is_offered || tls13 && matches!(scheme, 0x0401 | 0x0501 | 0x0601) {
            return Err(broken(
                "the server signed with an algorithm that the hello does not offer for this",
                alert::ILLEGAL_PARAMETER,
            ));
        }
        let leaf = chain.first().ok_or_else(|| wrong("there is no certificate"))?;
        let leaf = webpki::EndEntityCert::try_from(leaf).map_err(|why| wrong(&why.to_string()))?;
        let scheme = SignatureScheme::from(scheme);
        let mapping = verifier.signatures.mapping.iter().find(|(known, _)| *known == scheme);
        let (_, algorithms) = mapping.ok_or_else(|| wrong("its algorithm is not supported"))?;
        // In TLS 1.2 the scheme does not determine the curve.
        let algorithms = if tls13 { &algorithms[..algorithms.len().min(1)] } else { algorithms };
        let mut result = Err(wrong("its algorithm is not supported"));
        for algorithm in algorithms {
            result = leaf
                .verify_signature(*algorithm, message, signature)
                .map_err(|why| wrong(&why.to_string()));
            if result.is_ok() {
                break;
            }
        }
        result
    }

    fn log(&self, label: &str, handshake: &Handshake, secret: &[u8]) {
        self.config.key_log.log(label, &handshake.random[..32], secret);
    }
}

const UNEXPECTED_MESSAGE: HelloClientError =
    broken("the server sent an unexpected handshake message", alert::UNEXPECTED_MESSAGE);

fn suite_name(id: u16) -> String {
    let suite = CipherSuite::from(id);
    suite.as_str().map_or_else(|| format!("{suite:?}"), Into::into)
}

fn group_name(group: u16) -> String {
    format!("{:?}", NamedGroup::from(group))
}
