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

pub mod h2;
pub mod h3;
pub mod hpack;
pub mod qpack;
