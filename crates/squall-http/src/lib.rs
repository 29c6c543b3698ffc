//! HTTP/2 (RFC 9113) with HPACK (RFC 7541), and HTTP/3 (RFC 9114) with QPACK (RFC 9204), without
//! sockets: octets go in, events and octets come out.
//!
//! An [`h2::Connection`] or [`h3::Connection`] is one end of a connection, a client or a server.
//! Its caller gives it what arrived ([`h2::Connection::receive`]), gets heads, data and ends of
//! streams through [`h2::Events`], and asks it for frames when there is room to send them: nothing
//! is queued, except for short answers that a bound holds down. Fields are validated before they
//! are given on. For HTTP/3, the caller has the streams of QUIC, and gives the octets of each.
//! Knows no TCP, no TLS, no QUIC, no programs and no time, and has no threads and no dependencies.
#![forbid(unsafe_code)]

use std::fmt;

/// The methods by which a connection ends its streams, in one direction or in both; for the type's
/// `impl` block.
macro_rules! ends_of_streams {
    () => {
        fn end_local(&mut self, at: usize) {
            self.streams[at].local_ended = true;
            self.remove_ended(at);
        }

        fn end_remote(&mut self, at: usize) {
            self.streams[at].remote_ended = true;
            self.remove_ended(at);
        }

        fn remove_ended(&mut self, at: usize) {
            let stream = &self.streams[at];
            if stream.local_ended && stream.remote_ended {
                self.streams.remove(at);
                // Streams that end well give back what others took.
                self.resets = self.resets.saturating_sub(1);
                self.empty = self.empty.saturating_sub(1);
            }
        }
    };
}

/// Shows an error code, whose name may be unknown.
fn show_code(f: &mut fmt::Formatter<'_>, name: Option<&str>, number: u64) -> fmt::Result {
    match name {
        Some(name) => f.write_str(name),
        None => write!(f, "error code {number:#x}"),
    }
}

pub mod h2;
pub mod h3;
pub mod hpack;
pub mod qpack;
