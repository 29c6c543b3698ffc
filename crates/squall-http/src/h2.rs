//! Connections of HTTP/2 (RFC 9113), for clients and servers.
//!
//! ```text
//! let mut client = Connection::client(&limits, 7);
//! let id = client.open()?;
//! client.head(id, false, &mut out, |encoder, block| encoder.field(field, block));
//! let len = client.room(id, body);
//! client.data(id, len, len == body, &mut out); // the caller appends `len` octets to `out`
//! client.receive(&input, &limits, &mut scratch, &mut events)?;
//! client.control(&limits, &mut out); // acknowledgments, credit, resets
//! ```

mod connection;
mod events;
mod frame;
mod settings;
mod stream;
pub(crate) mod validate;

#[cfg(test)]
mod tests;

pub(crate) use connection::Coding;
pub use connection::{Blocked, Connection, Role, Scratch};
pub use events::{Cause, Code, Counters, Error, Events, FieldIter, Fields, Head, HeadKind, Why};
pub use settings::{
    DEFAULT_WINDOW, Limits, MAX_WINDOW, PeerSettings, Settings, SettingsError, setting,
};

/// The first octets of a client (RFC 9113 section 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The length of a frame's header (RFC 9113 section 4.1).
pub const FRAME_HEADER: usize = 9;

/// A stream's number. Clients have odd numbers; 0 is the connection, which never is a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);
