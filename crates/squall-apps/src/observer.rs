//! What a run of programs tells.

use squall_tcp::Reason;
use squall_units::Nanos;

use crate::ProgramId;

/// Is told what happens to the flows of [`crate::Apps`]. Each call is inlined; those that are left out cost nothing.
///
/// Durations are measured in steps of 256 ns, up to 18 minutes (longer ones lose whole turns of 18.3 minutes).
pub trait Observer {
    /// The handshake is done, `setup` after the instant that [`crate::Apps::client`] was given; servers: 0.
    #[inline]
    fn established(&mut self, _program: ProgramId, _setup: Nanos) {}

    /// The first octet of an answer came, so long after its request was begun (clients).
    #[inline]
    fn first_octet(&mut self, _program: ProgramId, _took: Nanos) {}

    /// A request was answered: from the begin of sending to the last octet that was waited for (clients).
    #[inline]
    fn transaction(&mut self, _program: ProgramId, _took: Nanos) {}

    /// Octets that the program handed over to be sent.
    #[inline]
    fn sent(&mut self, _program: ProgramId, _octets: u32) {}

    /// Octets that came in order.
    #[inline]
    fn received(&mut self, _program: ProgramId, _octets: u32) {}

    /// An HTTP response (client) or what was answered (server): its status, 100..=999.
    #[inline]
    fn status(&mut self, _program: ProgramId, _status: u16) {}

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
    /// The peer closed before all was there that is waited for; a datagram shorter than what is taken from it.
    TooShort,
    /// Nothing came `within` the time that the instruction allows.
    NoAnswer,
    /// No HTTP, or lengths that contradict each other.
    BadHttp,
    /// Our own: a datagram is longer than a packet may be.
    LongDatagram,
}

impl ProtocolError {
    pub const ALL: [Self; 5] =
        [Self::UnexpectedData, Self::TooShort, Self::NoAnswer, Self::BadHttp, Self::LongDatagram];

    /// For reports: `unexpected_data`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::UnexpectedData => "unexpected_data",
            Self::TooShort => "too_short",
            Self::NoAnswer => "no_answer",
            Self::BadHttp => "bad_http",
            Self::LongDatagram => "long_datagram",
        }
    }
}

/// An observer that counts, for tests and small tools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub established: u64,
    pub first_octets: u64,
    pub transactions: u64,
    pub sent: u64,
    pub received: u64,
    /// By hundreds: `statuses[2]` are 2xx.
    pub statuses: [u64; 10],
    pub finished: u64,
    /// In the order of [`ProtocolError::ALL`].
    pub protocol_errors: [u64; 5],
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
    fn sent(&mut self, _: ProgramId, octets: u32) {
        self.sent += u64::from(octets);
    }
    fn received(&mut self, _: ProgramId, octets: u32) {
        self.received += u64::from(octets);
    }
    fn status(&mut self, _: ProgramId, status: u16) {
        self.statuses[usize::from(status / 100).min(9)] += 1;
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
