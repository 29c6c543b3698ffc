//! HTTP/2 (RFC 9113) and HPACK (RFC 7541) without sockets: octets go in, events and octets come
//! out.
//!
//! An [`h2::Connection`] is one end of a connection, a client or a server. Its caller gives it what
//! arrived ([`h2::Connection::receive`]), gets heads, data and ends of streams through
//! [`h2::Events`], and asks it for frames when there is room to send them: nothing is queued,
//! except for short answers that a bound holds down. Fields are validated before they are given on.
//! Knows no TCP, no TLS, no programs and no time, and has no threads and no dependencies.
#![forbid(unsafe_code)]

pub mod h2;
pub mod hpack;
