//! The counts that connections of HTTP/2 and HTTP/3 share.

use std::collections::BTreeMap;

/// Counts over all connections of a program, of HTTP/2 or HTTP/3.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamCounts {
    /// HTTP/2: connections that sent their preface; HTTP/3: whose handshake is complete, or, at
    /// servers, whose early data were accepted.
    pub connections: u64,
    /// Streams that were opened (clients), or on which a request arrived (servers).
    pub streams: u64,
    /// Field blocks, the octets of their names and values, and their octets as compressed.
    pub heads_sent: u64,
    pub head_octets_sent: u64,
    pub compressed_octets_sent: u64,
    pub heads_received: u64,
    pub head_octets_received: u64,
    pub compressed_octets_received: u64,
    /// Streams that were reset, by error code.
    pub resets_sent: BTreeMap<&'static str, u64>,
    pub resets_received: BTreeMap<&'static str, u64>,
    /// Streams that a GOAWAY of the server left out: it has not processed them.
    pub left_out: u64,
    /// Actions of peers that RFC 9113 or RFC 9114 forbids, or that exceeded a bound.
    pub violations: BTreeMap<&'static str, u64>,
    /// Priorities, unknown frames and, over HTTP/3, unknown streams of the peer.
    pub ignored: u64,
}

impl StreamCounts {
    /// Adds those of another worker or template.
    pub fn merge(&mut self, other: &Self) {
        let Self {
            connections,
            streams,
            heads_sent,
            head_octets_sent,
            compressed_octets_sent,
            heads_received,
            head_octets_received,
            compressed_octets_received,
            resets_sent,
            resets_received,
            left_out,
            violations,
            ignored,
        } = other;
        self.connections += connections;
        self.streams += streams;
        self.heads_sent += heads_sent;
        self.head_octets_sent += head_octets_sent;
        self.compressed_octets_sent += compressed_octets_sent;
        self.heads_received += heads_received;
        self.head_octets_received += head_octets_received;
        self.compressed_octets_received += compressed_octets_received;
        self.left_out += left_out;
        self.ignored += ignored;
        for (sums, added) in [
            (&mut self.resets_sent, resets_sent),
            (&mut self.resets_received, resets_received),
            (&mut self.violations, violations),
        ] {
            add_all(sums, added);
        }
    }
}

pub fn add(counts: &mut BTreeMap<&'static str, u64>, name: &'static str, n: u64) {
    if n > 0 {
        *counts.entry(name).or_default() += n;
    }
}

/// Adds each count of another map.
pub fn add_all(sums: &mut BTreeMap<&'static str, u64>, added: &BTreeMap<&'static str, u64>) {
    added.iter().for_each(|(name, n)| add(sums, name, *n));
}
