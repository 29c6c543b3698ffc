//! What a run of programs tells.

use std::fmt;

use squall_tcp::Reason;
use squall_units::Nanos;

use crate::ProgramId;

/// Is told what happens to the flows of [`crate::Apps`]. Each call is inlined; those that are left
/// out cost nothing.
///
/// Durations are measured in steps of 256 ns, up to 18 minutes (longer ones lose whole turns of
/// 18.3 minutes).
pub trait Observer {
    /// The handshake is done, `setup` after the instant that [`crate::Apps::client`] was given;
    /// servers: 0.
    #[inline]
    fn established(&mut self, _program: ProgramId, _setup: Nanos) {}

    /// The first octet of an answer came, so long after its request was begun (clients).
    #[inline]
    fn first_octet(&mut self, _program: ProgramId, _took: Nanos) {}

    /// A request was answered: from the begin of sending to the last octet that was waited for
    /// (clients).
    #[inline]
    fn transaction(&mut self, _program: ProgramId, _took: Nanos) {}

    /// So many requests were handed over as a whole, whose answers are waited for (clients).
    #[inline]
    fn requested(&mut self, _program: ProgramId, _requests: u32) {}

    /// An answer redirects, and one more request follows it ([`crate::Apps::requests`] does not
    /// have it).
    #[inline]
    fn redirected(&mut self, _program: ProgramId) {}

    /// Octets that the program handed over to be sent.
    #[inline]
    fn sent(&mut self, _program: ProgramId, _octets: u32) {}

    /// Octets that came in order.
    #[inline]
    fn received(&mut self, _program: ProgramId, _octets: u32) {}

    /// An HTTP response that came as a whole (client), or what was answered (server): the class of
    /// its status, 1 to 5; 6 and 7 of what is no status of HTTP.
    #[inline]
    fn status(&mut self, _program: ProgramId, _class: u8) {}

    /// The handshake of TLS is done, `took` after that of TCP; of an earlier session, `resumed`;
    /// with this cipher suite (`TLS13_AES_128_GCM_SHA256`).
    #[inline]
    fn secured(
        &mut self,
        _program: ProgramId,
        _took: Nanos,
        _resumed: bool,
        _cipher: &'static str,
    ) {
    }

    /// A TLS session failed, in its handshake or later.
    #[inline]
    fn insecure(&mut self, _program: ProgramId, _why: &dyn fmt::Display) {}

    /// So many more octets of what the program handed over went into a TLS session.
    #[inline]
    fn encrypted(&mut self, _program: ProgramId, _octets: u32) {}

    /// The peer closed the flow without closing its TLS session: whether something is missing,
    /// nobody knows.
    #[inline]
    fn truncated(&mut self, _program: ProgramId) {}

    /// The program added to its counter of this number ([`crate::Apps::counters`]).
    #[inline]
    fn counted(&mut self, _program: ProgramId, _counter: u16, _amount: u32) {}

    /// The program came to its end.
    #[inline]
    fn finished(&mut self, _program: ProgramId) {}

    /// The peer did not do what the program says; the flow is ended.
    #[inline]
    fn protocol_error(&mut self, _program: ProgramId, _error: ProtocolError) {}

    /// The flow is no more; `finished`: the program had come to its end.
    #[inline]
    fn gone(&mut self, _program: ProgramId, _reason: Reason, _finished: bool) {}
}

/// Nobody listens.
impl Observer for () {}

/// How a peer departed from the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProtocolError {
    /// Octets that no instruction waits for.
    UnexpectedData,
    /// The peer closed before all was there that is waited for; a datagram shorter than what is
    /// taken from it.
    TooShort,
    /// Nothing came `within` the time that the instruction allows.
    NoAnswer,
    /// No HTTP, or lengths that contradict each other.
    BadHttp,
    /// Our own: a datagram is longer than a packet may be.
    LongDatagram,
    /// An answer has another status than it should ...
    CheckStatus,
    /// ... or a body of another length ...
    CheckLength,
    /// ... or of another hash ...
    CheckHash,
    /// ... or one in which a regular expression matches nowhere.
    CheckRegex,
    /// An answer still redirects: to another host, or after all redirections that are followed.
    CheckRedirect,
    /// What is to be taken from an answer is not in it.
    NoValue,
    /// An answer that is to be looked at is longer than is kept (16 MiB).
    LongAnswer,
    /// The server closes behind this answer, and the program has more to ask (RFC 9112 §9.6).
    ClosedEarly,
    /// Our own: a flow that the program begins could not begin.
    NotBegun,
    /// The peer refused the TLS session by an alert.
    TlsAlert,
    /// Its certificate is not what it should be.
    TlsCertificate,
    /// There is no version, cipher or protocol that both have.
    TlsIncompatible,
    /// What came is no TLS, or was damaged.
    TlsBroken,
    /// The peer closed before the session began.
    TlsClosed,
    /// ... or took too long for it.
    TlsTimeout,
}

impl ProtocolError {
    pub const COUNT: usize = 20;
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
        Self::TlsAlert,
        Self::TlsCertificate,
        Self::TlsIncompatible,
        Self::TlsBroken,
        Self::TlsClosed,
        Self::TlsTimeout,
    ];

    /// For reports: `unexpected_data`.
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
            Self::TlsAlert => "tls_alert",
            Self::TlsCertificate => "tls_certificate",
            Self::TlsIncompatible => "tls_incompatible",
            Self::TlsBroken => "tls_broken",
            Self::TlsClosed => "tls_closed",
            Self::TlsTimeout => "tls_timeout",
        }
    }

    /// Of the session that the program is inside of.
    pub(crate) fn is_of_tls(self) -> bool {
        self >= Self::TlsAlert
    }
}

/// An observer that counts, for tests and small tools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub established: u64,
    pub first_octets: u64,
    pub transactions: u64,
    pub requested: u64,
    pub redirected: u64,
    pub sent: u64,
    pub received: u64,
    /// By hundreds: `statuses[2]` are 2xx.
    pub statuses: [u64; 10],
    pub finished: u64,
    /// By the numbers of counters, whose programs they are of does not matter.
    pub counted: Vec<u64>,
    /// In the order of [`ProtocolError::ALL`].
    pub protocol_errors: [u64; ProtocolError::COUNT],
    pub secured: u64,
    pub resumed: u64,
    pub insecure: u64,
    pub truncated: u64,
    pub gone: u64,
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
    fn insecure(&mut self, _: ProgramId, _: &dyn fmt::Display) {
        self.insecure += 1;
    }
    fn truncated(&mut self, _: ProgramId) {
        self.truncated += 1;
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
