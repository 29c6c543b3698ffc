//! Connections of HTTP/3 (RFC 9114), for clients and servers.
//!
//! QUIC has the streams: the caller opens, ends and resets them, and gives the octets of each. A
//! connection reads and writes their octets.
//!
//! ```text
//! let mut client = Connection::client(&limits, 7);
//! // The octets of `client.waiting(own)` go on unidirectional streams, as soon as there are any.
//! client.open(id); // the number of a bidirectional stream that QUIC has opened
//! client.head(id, false, &mut out, |encoder, block| encoder.field(field, block));
//! client.data(id, len, true, &mut out); // the caller appends `len` octets, and ends the stream
//! client.receive(id, &input, end, &limits, &mut scratch, &mut events)?;
//! ```

mod connection;
mod events;
mod settings;
mod stream;

#[cfg(test)]
mod tests;

pub use crate::h2::{FieldIter, Fields, Head, HeadKind, Role, Scratch};
pub use connection::{Connection, Own, Progress, plain_head};
pub use events::{Cause, Code, Counters, Error, Events, Why};
pub use settings::{Limits, PeerSettings, Settings, SettingsError, setting};

/// The number of a stream of QUIC (RFC 9000 section 2.1), below 2^62.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

impl StreamId {
    /// Whether both ends send: a request. Other streams begin with their type.
    pub fn is_bidirectional(self) -> bool {
        self.0 & 2 == 0
    }

    /// Whether the client has opened it.
    fn is_of_client(self) -> bool {
        self.0 & 1 == 0
    }
}
