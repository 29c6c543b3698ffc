//! TCP as Suricata tracks it passively: the state of a connection, and for each direction the data
//! that the other end has acknowledged.

use std::collections::BTreeMap;

use squall_rules::End;
use squall_wire::tcp_flags::{ACK, FIN, RST, SYN};

use crate::packet::{Packet, Tcp};

/// Maximum octets to inspect in each direction: Suricata's `stream.reassembly.depth`.
const REASSEMBLY_DEPTH: u64 = 1024 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    SynSent,
    SynReceived,
    Established,
    /// The server has sent its FIN.
    ServerClosed,
    /// The client or both ends have sent their FIN. From now on even a short rest of data is
    /// inspected.
    ClientClosed,
    Closed,
}

#[derive(Debug)]
pub(crate) struct Session {
    pub state: State,
    /// The streams sent by the client and by the server.
    pub streams: [Stream; 2],
    /// Whether the client's SYN has a window scale option.
    scaled: bool,
}

/// The data of one direction.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// Sequence number of the stream's first octet.
    first: u32,
    known: bool,
    /// End of the acknowledged data, as an offset in octets.
    pub acknowledged: u64,
    /// End of the receiver's window, as an offset in octets.
    allowed: u64,
    /// Received data by offset. Blocks neither touch nor overlap.
    blocks: BTreeMap<u64, Vec<u8>>,
    /// Data before this offset has been dropped.
    dropped_to: u64,
    /// Offset of the next octet for rules without a buffer.
    pub raw: u64,
    /// Offset of the next octet for the application parser.
    pub application: u64,
    /// A transaction is complete, so the stream must be inspected now.
    pub trigger: bool,
    finished: bool,
    /// End of the segment with the highest sequence number, as an offset in octets.
    pub next: u64,
    /// Window scale that this end has announced.
    scale: u8,
}

/// The effect of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// The segment's data is part of the stream.
    pub added: bool,
    /// A `stream-event:` name.
    pub event: Option<&'static str>,
}

impl Session {
    /// The session that `packet` opens. `None` if it is not a SYN: connections opened before the
    /// capture are not tracked.
    pub fn open(tcp: &Tcp) -> Option<Self> {
        if tcp.flags & (SYN | ACK | RST | FIN) != SYN {
            return None;
        }
        let mut session = Session {
            state: State::SynSent,
            streams: Default::default(),
            scaled: tcp.window_scale.is_some(),
        };
        let client = &mut session.streams[0];
        client.first = tcp.sequence.wrapping_add(1);
        client.known = true;
        client.scale = tcp.window_scale.unwrap_or(0);
        client.allowed = u64::from(tcp.window.max(1));
        Some(session)
    }

    /// Whether the connection is over, so a new one may reuse its addresses and ports.
    pub fn is_over(&self) -> bool {
        self.state >= State::ClientClosed
    }

    pub fn is_established(&self) -> bool {
        self.state >= State::Established
    }

    pub fn stream(&mut self, of: End) -> &mut Stream {
        &mut self.streams[of as usize]
    }

    /// Processes a packet from `from`.
    pub fn packet(&mut self, from: End, packet: &Packet, tcp: &Tcp) -> Taken {
        let flags = tcp.flags;
        let mut taken = Taken::default();
        if flags & RST != 0 {
            if self.streams[from as usize].known || flags & ACK != 0 {
                self.acknowledge(from, tcp);
                self.state = State::Closed;
            }
            return taken;
        }
        match (self.state, from) {
            (State::SynSent, End::Server) if flags & (SYN | ACK) == SYN | ACK => {
                if tcp.acknowledgment != self.streams[0].first {
                    taken.event = Some("3whs_synack_with_wrong_ack");
                    return taken;
                }
                let [client, server] = &mut self.streams;
                server.first = tcp.sequence.wrapping_add(1);
                server.known = true;
                // Window scaling applies only if both SYNs have the option (RFC 7323).
                match tcp.window_scale.filter(|_| self.scaled) {
                    Some(scale) => server.scale = scale,
                    None => client.scale = 0,
                }
                server.allowed = client.allowed;
                client.allowed = tcp.window.into();
                self.state = State::SynReceived;
                return taken;
            }
            (State::SynSent, _) => return taken,
            (State::SynReceived, End::Server) => return taken,
            (State::SynReceived, End::Client) => {
                if flags & SYN != 0 || flags & ACK == 0 {
                    return taken;
                }
                if tcp.acknowledgment != self.streams[1].first {
                    taken.event = Some("3whs_wrong_seq_wrong_ack");
                    return taken;
                }
                self.state = State::Established;
            }
            (State::Closed, _) => return taken,
            _ => (),
        }
        if flags & SYN != 0 {
            return taken;
        }
        if flags & ACK != 0 && !self.acknowledge(from, tcp) {
            taken.event = Some("est_invalid_ack");
            return taken;
        }
        let stream = &mut self.streams[from as usize];
        taken.added = stream.segment(tcp.sequence, &packet.payload);
        if !packet.payload.is_empty() && !taken.added {
            taken.event = Some("est_packet_out_of_window");
        }
        let end = stream.offset(tcp.sequence).saturating_add(packet.payload.len() as i64);
        if flags & FIN != 0 && end >= 0 && end as u64 <= stream.allowed.saturating_add(1) {
            stream.finished = true;
            let both = self.streams.iter().all(|stream| stream.finished);
            self.state = match (from, self.state) {
                _ if both => State::ClientClosed,
                (End::Client, _) => State::ClientClosed,
                (End::Server, _) => State::ServerClosed,
            };
        }
        taken
    }

    /// Processes an acknowledgment from `from`. Returns false if it covers data beyond the window.
    fn acknowledge(&mut self, from: End, tcp: &Tcp) -> bool {
        if tcp.flags & ACK == 0 {
            return true;
        }
        let scale = self.streams[from as usize].scale;
        let other = &mut self.streams[from.other() as usize];
        if !other.known {
            return true;
        }
        let acknowledged =
            (tcp.acknowledgment.wrapping_sub(other.first.wrapping_add(other.acknowledged as u32)))
                as i32;
        let to = other.acknowledged as i64 + i64::from(acknowledged);
        // The FIN occupies a sequence number, hence + 1.
        if to > other.allowed as i64 + 1 {
            return false;
        }
        other.acknowledged = other.acknowledged.max(to.max(0) as u64);
        other.allowed = other.allowed.max(other.acknowledged + (u64::from(tcp.window) << scale));
        true
    }
}

impl Stream {
    /// Converts `sequence` to an offset.
    fn offset(&self, sequence: u32) -> i64 {
        let near = self.next;
        near as i64 + i64::from(sequence.wrapping_sub(self.first.wrapping_add(near as u32)) as i32)
    }

    /// Adds the data of a segment. Returns false if it is empty or outside the window.
    fn segment(&mut self, sequence: u32, octets: &[u8]) -> bool {
        if octets.is_empty() || !self.known {
            return false;
        }
        let start = self.offset(sequence);
        let end = start + octets.len() as i64;
        if end > self.allowed as i64 || end <= self.dropped_to as i64 || end <= 0 {
            return false;
        }
        self.next = self.next.max(end as u64);
        let floor = self.dropped_to as i64;
        let cut = (floor - start).max(0) as usize;
        let start = start.max(floor) as u64;
        if start >= REASSEMBLY_DEPTH {
            return false;
        }
        let octets = &octets[cut..];
        let octets = &octets[..octets.len().min((REASSEMBLY_DEPTH - start) as usize)];
        self.insert(start, octets);
        true
    }

    /// Adds data. In an overlap the first data is kept: this is the Windows policy, which
    /// Suricata's default configuration assigns to all hosts.
    fn insert(&mut self, start: u64, octets: &[u8]) {
        let end = start + octets.len() as u64;
        // Merges all blocks that the data touches.
        let touched: Vec<u64> = self
            .blocks
            .range(..=end)
            .rev()
            .take_while(|(at, block)| *at + block.len() as u64 >= start)
            .map(|(at, _)| *at)
            .collect();
        if let [one] = touched[..]
            && one <= start
            && let Some(block) = self.blocks.get_mut(&one)
        {
            // The common case: the data continues or repeats a block.
            let have = one + block.len() as u64;
            if have < end {
                block.extend_from_slice(&octets[(have - start) as usize..]);
            }
            return;
        }
        let first = touched.last().map_or(start, |&at| at.min(start));
        let mut merged = Vec::with_capacity(octets.len());
        let mut old: Vec<(u64, Vec<u8>)> = touched
            .iter()
            .rev()
            .filter_map(|at| self.blocks.remove(at).map(|block| (*at, block)))
            .collect();
        for (at, block) in old.drain(..) {
            let have = first + merged.len() as u64;
            if have < at {
                let from = (have - start) as usize;
                merged.extend_from_slice(&octets[from..(at - start) as usize]);
            }
            merged.extend_from_slice(&block);
        }
        let have = first + merged.len() as u64;
        if have < end {
            merged.extend_from_slice(&octets[(have - start) as usize..]);
        }
        self.blocks.insert(first, merged);
    }

    /// The contiguous data between `from` and `to`.
    pub fn octets(&self, from: u64, to: u64) -> &[u8] {
        let Some((at, block)) = self.blocks.range(..=from).next_back() else { return &[] };
        let skip = usize::try_from(from - at).unwrap_or(usize::MAX).min(block.len());
        let length = usize::try_from(to.saturating_sub(from)).unwrap_or(usize::MAX);
        &block[skip..skip + length.min(block.len() - skip)]
    }

    /// The offset at which data starts again after a gap at `from`, if that data is acknowledged.
    pub fn after_gap(&self, from: u64) -> Option<u64> {
        self.blocks.range(from..).next().map(|(at, _)| *at).filter(|at| *at < self.acknowledged)
    }

    /// All data between `from` and `to`, as contiguous runs with their offsets.
    pub fn runs(&self, from: u64, to: u64) -> Vec<(u64, &[u8])> {
        self.blocks
            .iter()
            .map(|(at, block)| (*at, *at + block.len() as u64))
            .filter(|(at, end)| *end > from && *at < to)
            .map(|(at, end)| (at.max(from), self.octets(at.max(from), end.min(to))))
            .filter(|(_, octets)| !octets.is_empty())
            .collect()
    }

    /// The size that `stream_size` tests: a count of sequence numbers, including that of the SYN; 0
    /// before the SYN.
    pub fn size(&self) -> u64 {
        if self.known { self.next + 1 } else { 0 }
    }

    /// End of the received data, as an offset.
    pub fn end(&self) -> u64 {
        self.blocks.last_key_value().map_or(self.dropped_to, |(at, block)| *at + block.len() as u64)
    }

    /// Drops data that both readers have passed, if that frees at least 64 KiB.
    pub fn tidy(&mut self) {
        let keep = self.raw.min(self.application);
        if keep < self.dropped_to + 65_536 {
            return;
        }
        if let Some((&at, _)) = self.blocks.range(..=keep).next_back()
            && let Some(mut block) = self.blocks.remove(&at)
        {
            let cut = usize::try_from(keep - at).unwrap_or(usize::MAX).min(block.len());
            block.drain(..cut);
            if !block.is_empty() {
                self.blocks.insert(keep, block);
            }
        }
        self.blocks = self.blocks.split_off(&keep);
        self.dropped_to = keep;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> Stream {
        Stream { first: u32::MAX - 2, known: true, allowed: 1 << 20, ..Stream::default() }
    }

    #[test]
    fn segments_in_any_order_become_one_run_across_the_end_of_the_sequence_numbers() {
        let mut stream = stream();
        assert!(stream.segment(3, b"ghi"));
        assert!(stream.segment(u32::MAX - 2, b"abc"));
        assert_eq!(stream.octets(0, 100), b"abc");
        assert!(stream.segment(0, b"def"));
        assert_eq!(stream.octets(0, 100), b"abcdefghi");
        assert_eq!(stream.octets(4, 7), b"efg");
        assert_eq!(stream.runs(2, 8), [(2, &b"cdefgh"[..])]);
    }

    #[test]
    fn the_first_data_stays_where_segments_overlap() {
        let mut stream = stream();
        stream.segment(u32::MAX, b"cd");
        stream.segment(2, b"fg");
        stream.segment(u32::MAX - 2, b"XXXXXXXXX");
        assert_eq!(stream.octets(0, 100), b"XXcdXfgXX");
    }

    #[test]
    fn octets_beyond_the_window_are_not_taken() {
        let mut stream = Stream { allowed: 4, ..stream() };
        assert!(!stream.segment(u32::MAX - 2, b"abcde"));
        assert!(stream.segment(u32::MAX - 2, b"abcd"));
        assert!(!stream.segment(u32::MAX - 2, b""));
    }
}
