//! Receives reports from running programs.

use std::fmt;

use squall_tcp::{FlowId, Reason};
use squall_units::Nanos;

use crate::ProgramId;

/// Observes the events of the flows of [`crate::Apps`]. Calls are inlined; methods that are not
/// implemented cost nothing.
///
/// Durations have steps of 256 ns and wrap after 18.3 minutes.
pub trait Observer {
    /// The handshake is complete, `setup` after the `due` time of [`crate::Apps::client`]; 0 for
    /// servers.
    #[inline]
    fn established(&mut self, _program: ProgramId, _setup: Nanos) {}

    /// The first octet of an answer arrived, `took` after the request began (clients).
    #[inline]
    fn first_octet(&mut self, _program: ProgramId, _took: Nanos) {}

    /// A request was answered; `took` runs from the start of sending to the last expected octet
    /// (clients).
    #[inline]
    fn transaction(&mut self, _program: ProgramId, _took: Nanos) {}

    /// `requests` requests with awaited answers were passed to the stack completely (clients).
    #[inline]
    fn requested(&mut self, _program: ProgramId, _requests: u32) {}

    /// An answer redirects, and another request follows, which [`crate::Apps::requests`] does not
    /// count.
    #[inline]
    fn redirected(&mut self, _program: ProgramId) {}

    /// The program passed octets to the stack for sending.
    #[inline]
    fn sent(&mut self, _program: ProgramId, _octets: u32) {}

    /// Octets arrived in order.
    #[inline]
    fn received(&mut self, _program: ProgramId, _octets: u32) {}

    /// A complete HTTP response arrived (client) or was sent (server); the class of its status, 1
    /// to 5; 6 and 7 for numbers that HTTP does not define.
    #[inline]
    fn status(&mut self, _program: ProgramId, _class: u8) {}

    /// The TLS handshake is complete, `took` after TCP's. `resumed`: whether an earlier session was
    /// resumed. The last argument is the cipher suite (`TLS13_AES_128_GCM_SHA256`).
    #[inline]
    fn secured(
        &mut self,
        _program: ProgramId,
        _took: Nanos,
        _resumed: bool,
        _cipher: &'static str,
    ) {
    }

    /// The outcome of a session's early data (0-RTT), which clients send before the end of the
    /// handshake.
    #[inline]
    fn early_data(&mut self, _program: ProgramId, _early: EarlyData) {}

    /// A TLS session failed, in its handshake or later.
    #[inline]
    fn insecure(&mut self, _program: ProgramId, _why: &dyn fmt::Display) {}

    /// `octets` more of the program's data were encrypted.
    #[inline]
    fn encrypted(&mut self, _program: ProgramId, _octets: u32) {}

    /// The peer closed the flow without closing its TLS session: data may be missing.
    #[inline]
    fn truncated(&mut self, _program: ProgramId) {}

    /// `octets` more of the header of the PROXY protocol were acknowledged (clients).
    #[inline]
    fn proxied(&mut self, _program: ProgramId, _octets: u32) {}

    /// The program added to the counter with this number ([`crate::Apps::counters`]).
    #[inline]
    fn counted(&mut self, _program: ProgramId, _counter: u16, _amount: u32) {}

    /// The program reached its end.
    #[inline]
    fn finished(&mut self, _program: ProgramId) {}

    /// The peer deviated from the program; the flow is ended.
    #[inline]
    fn protocol_error(&mut self, _program: ProgramId, _error: ProtocolError) {}

    /// The flow has ended; `finished`: whether the program had reached its end.
    #[inline]
    fn gone(&mut self, _program: ProgramId, _reason: Reason, _finished: bool) {}

    /// The calls above for one segment of `flow`, at `now`, with the values of the report. An observer
    /// that finds its counters by the program can do so once.
    #[inline]
    fn at_once(&mut self, program: ProgramId, _flow: FlowId, _now: Nanos, report: Report) {
        if let Some(setup) = report.established {
            self.established(program, setup);
        }
        if report.received > 0 {
            self.received(program, report.received);
        }
        if let Some(took) = report.first_octet {
            self.first_octet(program, took);
        }
        if report.sent > 0 {
            self.sent(program, report.sent);
        }
        if report.requested > 0 {
            self.requested(program, report.requested);
        }
        if let Some(took) = report.transaction {
            self.transaction(program, took);
        }
        if report.finished {
            self.finished(program);
        }
    }
}

/// The effects of one segment: the arguments of the methods of [`Observer`] with these names. 0 and
/// `None`: it has not happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub established: Option<Nanos>,
    pub received: u32,
    pub first_octet: Option<Nanos>,
    pub sent: u32,
    pub requested: u32,
    pub transaction: Option<Nanos>,
    pub finished: bool,
}

/// Ignores all events.
impl Observer for () {}

/// Early data of a TLS session (RFC 8446 section 4.2.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlyData {
    /// A client has begun to send some.
    Offered,
    /// The server has accepted them, this many octets; reported by both sides, at the end of the
    /// handshake.
    Accepted(u32),
    /// The server has refused them; the client sends these octets again.
    Refused(u32),
}

/// How a peer deviated from the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProtocolError {
    /// Octets arrived that no instruction waits for.
    UnexpectedData,
    /// The peer closed before all expected octets had arrived; or a datagram is too short for an
    /// extraction.
    TooShort,
    /// Nothing arrived `within` the instruction's time.
    NoAnswer,
    /// The peer's octets are not HTTP, or have contradictory lengths.
    BadHttp,
    /// An error of this side: a datagram does not fit a packet.
    LongDatagram,
    /// An answer has an unexpected status.
    CheckStatus,
    /// An answer's body has an unexpected length.
    CheckLength,
    /// An answer's body has an unexpected hash.
    CheckHash,
    /// A regular expression does not match an answer's body.
    CheckRegex,
    /// An answer still redirects: to another host, or beyond the number of redirects that are
    /// followed.
    CheckRedirect,
    /// An answer lacks a value that the program extracts.
    NoValue,
    /// An answer that the program evaluates exceeds 16 MiB.
    LongAnswer,
    /// The server closes after this answer, but the program has further requests (RFC 9112 §9.6).
    ClosedEarly,
    /// An error of this side: a flow that the program requested could not begin.
    NotBegun,
    /// The peer's octets are not WebSocket: a header that is not allowed, a text that is not UTF-8,
    /// or a message that is too long.
    BadWebsocket,
    /// The peer has not taken messages of its group of WebSocket, 1 MiB of them.
    LateMember,
    /// A call of gRPC ended with a status that the program does not expect.
    GrpcStatus,
    /// The peer sent a compressed message of gRPC, which Squall does not read.
    GrpcCompressed,
    /// The peer's octets are not messages of gRPC.
    BadGrpc,
    /// The peer sent no header of the PROXY protocol: other octets, or nothing more.
    ProxyMissing,
    /// The peer's header of the PROXY protocol has a field that the protocol does not allow.
    ProxyMalformed,
    /// The peer's header of the PROXY protocol exceeds 2 KiB.
    ProxyLong,
    /// The peer's header of the PROXY protocol has a wrong checksum.
    ProxyChecksum,
    /// The peer reset a stream of HTTP/2, or ended its connection before the request.
    StreamReset,
    /// The peer broke a rule of HTTP/2.
    Http2,
    /// The peer broke a rule of HTTP/3.
    Http3,
    /// The peer closed the QUIC connection with an error, or does not know it any more.
    QuicClosed,
    /// Nothing came from the peer of a QUIC connection for the idle timeout.
    QuicTimeout,
    /// The peer's packets are not QUIC, or break its rules.
    QuicBroken,
    /// The peer refused the TLS session with an alert.
    TlsAlert,
    /// The peer's certificate was not accepted.
    TlsCertificate,
    /// The sides have no common version, cipher suite or protocol, or the peer chose one that the
    /// hello of a browser offers, but this side does not speak.
    TlsIncompatible,
    /// The peer's octets are not TLS, or are damaged.
    TlsBroken,
    /// The peer closed before the session was established.
    TlsClosed,
    /// The session was not established in time.
    TlsTimeout,
}

impl ProtocolError {
    pub const COUNT: usize = 35;
    pub const ALL: [Self; Self::COUNT] = [
        Self::UnexpectedData,
        Self::TooShort,
        Self::NoAnswer,
        Self::BadHttp,
        Self::LongDatagram,
        Self::CheckStatus,
        Self::CheckLength,
        Self::CheckHash,
        Self::CheckRegex,
        Self::CheckRedirect,
        Self::NoValue,
        Self::LongAnswer,
        Self::ClosedEarly,
        Self::NotBegun,
        Self::BadWebsocket,
        Self::LateMember,
        Self::GrpcStatus,
        Self::GrpcCompressed,
        Self::BadGrpc,
        Self::ProxyMissing,
        Self::ProxyMalformed,
        Self::ProxyLong,
        Self::ProxyChecksum,
        Self::StreamReset,
        Self::Http2,
        Self::Http3,
        Self::QuicClosed,
        Self::QuicTimeout,
        Self::QuicBroken,
        Self::TlsAlert,
        Self::TlsCertificate,
        Self::TlsIncompatible,
        Self::TlsBroken,
        Self::TlsClosed,
        Self::TlsTimeout,
    ];

    /// The name in reports: `unexpected_data`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::UnexpectedData => "unexpected_data",
            Self::TooShort => "too_short",
            Self::NoAnswer => "no_answer",
            Self::BadHttp => "bad_http",
            Self::LongDatagram => "long_datagram",
            Self::CheckStatus => "check_status",
            Self::CheckLength => "check_length",
            Self::CheckHash => "check_hash",
            Self::CheckRegex => "check_regex",
            Self::CheckRedirect => "check_redirect",
            Self::NoValue => "no_value",
            Self::LongAnswer => "long_answer",
            Self::ClosedEarly => "closed_early",
            Self::NotBegun => "flow_not_begun",
            Self::BadWebsocket => "bad_websocket",
            Self::LateMember => "late_member",
            Self::GrpcStatus => "grpc_status",
            Self::GrpcCompressed => "grpc_compressed",
            Self::BadGrpc => "bad_grpc",
            Self::ProxyMissing => "proxy_missing",
            Self::ProxyMalformed => "proxy_malformed",
            Self::ProxyLong => "proxy_long",
            Self::ProxyChecksum => "proxy_checksum",
            Self::StreamReset => "stream_reset",
            Self::Http2 => "http2",
            Self::Http3 => "http3",
            Self::QuicClosed => "quic_closed",
            Self::QuicTimeout => "quic_timeout",
            Self::QuicBroken => "quic_broken",
            Self::TlsAlert => "tls_alert",
            Self::TlsCertificate => "tls_certificate",
            Self::TlsIncompatible => "tls_incompatible",
            Self::TlsBroken => "tls_broken",
            Self::TlsClosed => "tls_closed",
            Self::TlsTimeout => "tls_timeout",
        }
    }

    /// Whether the error concerns the TLS session around the program.
    pub(crate) fn is_of_tls(self) -> bool {
        self >= Self::TlsAlert
    }
}

/// An observer that only counts, for tests and small tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts {
    pub established: u64,
    pub first_octets: u64,
    pub transactions: u64,
    pub requested: u64,
    pub redirected: u64,
    pub sent: u64,
    pub received: u64,
    /// Answers by the first digit of their status: `statuses[2]` counts 2xx.
    pub statuses: [u64; 10],
    pub finished: u64,
    /// Sums per counter number, over all programs.
    pub counted: Vec<u64>,
    /// In the order of [`ProtocolError::ALL`].
    pub protocol_errors: [u64; ProtocolError::COUNT],
    pub secured: u64,
    pub resumed: u64,
    /// Sessions whose client sent early data, those whose server accepted or refused them, and
    /// the octets of the latter two.
    pub early_offered: u64,
    pub early_accepted: [u64; 2],
    pub early_refused: [u64; 2],
    pub insecure: u64,
    pub truncated: u64,
    /// Acknowledged octets of headers of the PROXY protocol.
    pub proxied: u64,
    pub gone: u64,
}

// Not derived, because arrays of more than 32 items have no default.
impl Default for Counts {
    fn default() -> Self {
        Self {
            established: 0,
            first_octets: 0,
            transactions: 0,
            requested: 0,
            redirected: 0,
            sent: 0,
            received: 0,
            statuses: [0; 10],
            finished: 0,
            counted: vec![],
            protocol_errors: [0; ProtocolError::COUNT],
            secured: 0,
            resumed: 0,
            early_offered: 0,
            early_accepted: [0; 2],
            early_refused: [0; 2],
            insecure: 0,
            truncated: 0,
            proxied: 0,
            gone: 0,
        }
    }
}

impl Observer for Counts {
    fn established(&mut self, _: ProgramId, _: Nanos) {
        self.established += 1;
    }
    fn first_octet(&mut self, _: ProgramId, _: Nanos) {
        self.first_octets += 1;
    }
    fn transaction(&mut self, _: ProgramId, _: Nanos) {
        self.transactions += 1;
    }
    fn requested(&mut self, _: ProgramId, requests: u32) {
        self.requested += u64::from(requests);
    }
    fn redirected(&mut self, _: ProgramId) {
        self.redirected += 1;
    }
    fn sent(&mut self, _: ProgramId, octets: u32) {
        self.sent += u64::from(octets);
    }
    fn received(&mut self, _: ProgramId, octets: u32) {
        self.received += u64::from(octets);
    }
    fn status(&mut self, _: ProgramId, class: u8) {
        self.statuses[usize::from(class).min(9)] += 1;
    }
    fn secured(&mut self, _: ProgramId, _: Nanos, resumed: bool, _: &'static str) {
        self.secured += 1;
        self.resumed += u64::from(resumed);
    }
    fn early_data(&mut self, _: ProgramId, early: EarlyData) {
        let (counts, octets) = match early {
            EarlyData::Offered => return self.early_offered += 1,
            EarlyData::Accepted(octets) => (&mut self.early_accepted, octets),
            EarlyData::Refused(octets) => (&mut self.early_refused, octets),
        };
        counts[0] += 1;
        counts[1] += u64::from(octets);
    }
    fn insecure(&mut self, _: ProgramId, _: &dyn fmt::Display) {
        self.insecure += 1;
    }
    fn truncated(&mut self, _: ProgramId) {
        self.truncated += 1;
    }
    fn proxied(&mut self, _: ProgramId, octets: u32) {
        self.proxied += u64::from(octets);
    }
    fn counted(&mut self, _: ProgramId, counter: u16, amount: u32) {
        let at = usize::from(counter);
        self.counted.resize(self.counted.len().max(at + 1), 0);
        self.counted[at] += u64::from(amount);
    }
    fn finished(&mut self, _: ProgramId) {
        self.finished += 1;
    }
    fn protocol_error(&mut self, _: ProgramId, error: ProtocolError) {
        self.protocol_errors[error as usize] += 1;
    }
    fn gone(&mut self, _: ProgramId, _: Reason, _: bool) {
        self.gone += 1;
    }
}
