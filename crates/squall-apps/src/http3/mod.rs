//! HTTP/3 between programs and their flow of datagrams: QUIC with TLS inside, and its streams.

#[cfg(feature = "tls")]
mod endpoints;
#[cfg(feature = "tls")]
mod layer;
#[cfg(not(feature = "tls"))]
#[path = "no_layer.rs"]
mod layer;
#[cfg(feature = "tls")]
mod versions;

use std::{
    collections::BTreeMap,
    ops::{Deref, DerefMut},
};

use squall_units::Nanos;

#[cfg(feature = "tls")]
pub(crate) use self::endpoints::home_of;
#[cfg(not(feature = "tls"))]
pub(crate) use self::layer::home_of;
pub(crate) use self::layer::{DATAGRAMS, Layer};
use crate::streams::{StreamCounts, add_all};

/// The shortest datagram with an Initial packet (RFC 9000 section 14.1).
const SHORTEST_FIRST: usize = 1200;
/// QUIC version 1 (RFC 9000 section 15).
const VERSION_1: [u8; 4] = [0, 0, 0, 1];

/// Whether a server can begin a connection, or offer its versions, because of this datagram. Late
/// datagrams of earlier connections would otherwise begin flows that nothing ends.
pub(crate) fn may_begin(datagram: &[u8]) -> bool {
    let Some(&[first, ref version @ .., _]) = datagram.first_chunk::<6>() else { return false };
    // The bits are: a long header, and type 0, Initial (section 17.2).
    let long = first & 0x80 != 0;
    let initial = *version != VERSION_1 || first & 0x30 == 0;
    datagram.len() >= SHORTEST_FIRST && long && initial
}

/// Settings of HTTP/3 for the flows of a template, at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http3 {
    /// Streams that a client has open at a time, 1..=100. Each runs the program by itself.
    pub streams: u16,
    /// Octets that the peer may send on a stream before some are consumed; four times as many on
    /// the connection. At most 2^31-1.
    pub window: u32,
    /// Streams that a server accepts at a time.
    pub max_streams: u32,
    /// Octets of the table of fields that the peer may use, and that this end uses of the peer's, at
    /// most 4,096 (QPACK).
    pub qpack_table: u32,
    /// Whether servers answer the first packet of a client with a Retry, so that it proves its
    /// address (RFC 9000 section 8.1.2).
    pub retry: bool,
    /// Whether clients begin with a packet of a reserved version, and with version 1 when the server
    /// has answered it (RFC 9000 section 6).
    pub reserved_version: bool,
    /// Requests after which a client moves its connection to another port or address, each time,
    /// with another connection ID (RFC 9000 section 9.2); 0: never.
    pub migrate_after: u32,
    pub migrate_to: MigrateTo,
    /// Requests after which a client's port changes, each time, as by a NAT that has forgotten it:
    /// with the same connection ID (RFC 9000 section 9.3); 0: never.
    pub rebind_after: u32,
    /// Whether servers forbid clients to move, and drop their datagrams from other addresses.
    pub forbid_migration: bool,
    /// Silence after which a connection ends (RFC 9000 section 10.1); 0: never.
    pub idle: Nanos,
}

/// The end that a client changes when its connection moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MigrateTo {
    /// Its port.
    #[default]
    Port,
    /// Its address and port.
    Address,
}

impl Default for Http3 {
    fn default() -> Self {
        Self {
            streams: 1,
            window: 65_535,
            max_streams: 100,
            qpack_table: 0,
            retry: false,
            reserved_version: false,
            migrate_after: 0,
            migrate_to: MigrateTo::Port,
            rebind_after: 0,
            forbid_migration: false,
            idle: Nanos(10_000_000_000),
        }
    }
}

/// Counts over all connections of a program. Packets are counted when a connection ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Http3Counts {
    /// The counts that HTTP/2 has, too.
    pub common: StreamCounts,
    /// Octets of requests and responses on their streams, frames included.
    pub sent_octets: u64,
    /// Connections that the peer has announced to end.
    pub goaways_received: u64,
    /// Packets sent, and those that were lost as the peer's acknowledgments show.
    pub packets_sent: u64,
    pub packets_lost: u64,
    /// Times that loss reduced the congestion window.
    pub congestion_events: u64,
    /// Retry packets: sent by servers, received by clients.
    pub retries: u64,
    /// Version Negotiation packets: sent by servers, received by clients.
    pub version_negotiations: u64,
    /// Connections whose client sent requests before the end of the handshake (0-RTT, RFC 9001
    /// section 4.6), which the server accepted, or refused, so that they were sent again.
    pub early_accepted: u64,
    pub early_refused: u64,
    /// Datagrams that belong to no connection of their flow, or come from another address where the
    /// server forbids that.
    pub strays: u64,
    /// Moves to another address or port. A client counts those with another connection ID, a server
    /// all.
    pub migrations: u64,
    /// Changes of a client's port with the same connection ID.
    pub rebindings: u64,
    /// Addresses of clients that did not prove to be theirs in time (RFC 9000 section 8.2), so that
    /// servers went back to the former ones.
    pub paths_failed: u64,
    /// Moves of clients that were not possible, by the reason.
    pub not_moved: BTreeMap<&'static str, u64>,
}

impl Http3Counts {
    /// Adds those of another worker or template.
    pub fn merge(&mut self, other: &Self) {
        let Self {
            common,
            sent_octets,
            goaways_received,
            packets_sent,
            packets_lost,
            congestion_events,
            retries,
            version_negotiations,
            early_accepted,
            early_refused,
            strays,
            migrations,
            rebindings,
            paths_failed,
            not_moved,
        } = other;
        self.common.merge(common);
        self.sent_octets += sent_octets;
        self.goaways_received += goaways_received;
        self.packets_sent += packets_sent;
        self.packets_lost += packets_lost;
        self.congestion_events += congestion_events;
        self.retries += retries;
        self.version_negotiations += version_negotiations;
        self.early_accepted += early_accepted;
        self.early_refused += early_refused;
        self.strays += strays;
        self.migrations += migrations;
        self.rebindings += rebindings;
        self.paths_failed += paths_failed;
        add_all(&mut self.not_moved, not_moved);
    }
}

impl Deref for Http3Counts {
    type Target = StreamCounts;

    fn deref(&self) -> &StreamCounts {
        &self.common
    }
}

impl DerefMut for Http3Counts {
    fn deref_mut(&mut self) -> &mut StreamCounts {
        &mut self.common
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_enough_initial_packets_and_unknown_versions_begin_flows() {
        let datagram = |first: u8, version: u8, len: usize| {
            let mut datagram = vec![first, 0, 0, 0, version];
            datagram.resize(len, 0);
            may_begin(&datagram)
        };
        assert!(datagram(0xc0, 1, 1200) && datagram(0xcf, 1, 1500));
        assert!(!datagram(0xc0, 1, 1199), "too short");
        assert!(!datagram(0xe0, 1, 1200), "Handshake");
        assert!(datagram(0xe0, 9, 1200), "types of another version have other meanings");
        assert!(!datagram(0x40, 1, 1200), "a short header");
        assert!(!may_begin(&[]) && !may_begin(&[0xc0]));
    }
}
