//! Converts captures to programs: the data of each conversation's client and server, with pauses.
//!
//! Octets are ordered by sequence numbers, which removes retransmissions, duplicates and
//! reordering; octets that the capture lacks are reported. The time of an octet is when its side
//! first sent it.

mod programs;
mod reassembly;

use std::{collections::HashMap, fmt, io::Read, net::IpAddr};

use squall_measure::flow::{FlowKey, Fragment, Headers, Link, protocol};
use squall_pcap::{CaptureError, CaptureReader, Packet};
use squall_units::Nanos;
use squall_wire::tcp_flags;

use crate::{Program, Transport};
use reassembly::Stream;

/// How conversations are converted to programs.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportOptions {
    pub delays: Delays,
    /// Shorter pauses are dropped: they are caused by the network and the machine, not by the
    /// application.
    pub shortest_delay: Nanos,
    pub holes: Holes,
    /// Time limit of a wait; `None`: a lost datagram makes its flow wait forever.
    pub udp_within: Option<Nanos>,
    /// Length of the silence that separates two UDP conversations with the same addresses and
    /// ports.
    pub udp_idle: Nanos,
    /// Maximum number of conversations.
    pub most_conversations: usize,
    /// Limit on memory for data, in bytes.
    pub most_octets: u64,
}

impl Default for ImportOptions {
    fn default() -> Self {
        Self {
            delays: Delays::Keep,
            shortest_delay: Nanos(1_000_000),
            holes: Holes::Cut,
            udp_within: Some(Nanos(5_000_000_000)),
            udp_idle: Nanos(60_000_000_000),
            most_conversations: 100_000,
            most_octets: 1 << 30,
        }
    }
}

/// Treatment of pauses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Delays {
    Keep,
    /// They are multiplied by this factor, which is not negative.
    Scale(f64),
    Drop,
}

/// Treatment of octets that the capture lacks ("holes").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holes {
    /// The conversation ends at the first hole.
    Cut,
    /// Zeros replace them.
    Zeros,
}

/// A conversation of a capture.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    pub client: Program,
    pub server: Program,
    /// The client's address and port, as captured.
    pub client_end: (IpAddr, u16),
    pub server_end: (IpAddr, u16),
    pub report: ConversationReport,
}

/// Facts about a captured conversation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConversationReport {
    /// Time of its first packet, in nanoseconds since 1970-01-01 UTC.
    pub begin_ns: u64,
    pub duration: Nanos,
    pub of_client: SideReport,
    pub of_server: SideReport,
    /// Whether the capture has the handshake, which identifies the client.
    pub handshake: bool,
    pub end: End,
    /// Missing octets, in the order of the programs.
    pub holes: Vec<Hole>,
    /// Number of octets that were dropped because they follow a hole ([`Holes::Cut`]).
    pub cut: u64,
}

/// Data of one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SideReport {
    pub packets: u64,
    /// Octets of application data, each counted once, without holes.
    pub octets: u64,
    /// Octets of retransmitted application data.
    pub again: u64,
    /// Retransmitted octets that differ from their first copy; the first copy is used.
    pub conflicting: u64,
    /// Segments with new data that arrived after later segments.
    pub out_of_order: u64,
    /// Number of empty datagrams, which programs leave out.
    pub empty: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum End {
    /// Both sides closed, or at least the side that sent last.
    Closed,
    Reset,
    /// The capture ended before the conversation, or the transport is UDP.
    #[default]
    Open,
}

/// Octets that a capture lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    pub of_client: bool,
    /// Relative to the side's first octet.
    pub offset: u64,
    pub octets: u64,
}

/// Result of [`import`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Import {
    /// Ordered by their first packets.
    pub conversations: Vec<Imported>,
    pub packets: u64,
    /// Packets that belong to no conversation.
    pub left_out: LeftOut,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Packets that are neither TCP nor UDP over IP.
    pub other_protocols: u64,
    /// Packets with truncated or contradictory headers.
    pub damaged: u64,
    pub fragments: u64,
    /// Packets to multicast or broadcast addresses, which no single server can answer.
    pub multicast: u64,
    /// Packets of conversations without data and without a handshake.
    pub silent: u64,
    /// Packets from or to port 0, which identifies no application (RFC 6335 §6): nothing can listen
    /// on it.
    pub port_zero: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error(transparent)]
    Capture(#[from] CaptureError),
    #[error(
        "packet {packet} begins a conversation beyond the limit of {most}; try a filter, or a \
         higher limit of conversations"
    )]
    Conversations { packet: u64, most: usize },
    #[error(
        "at packet {packet} the payload needs more than {most} octets of memory; try a filter, \
         or a higher limit of octets"
    )]
    Octets { packet: u64, most: u64 },
}

/// Reads a capture to its end and makes two programs from each conversation, whose names begin with
/// `name`.
///
/// The sender of the SYN is the client. If there is no SYN, it is the side with the higher port if
/// the other port is below 1024; otherwise the side seen first.
///
/// # Errors
/// If the capture is damaged, with the position; or if a limit of `options` is reached, with the
/// packet.
pub fn import<R: Read>(
    capture: &mut CaptureReader<R>,
    name: &str,
    options: &ImportOptions,
) -> Result<Import, ImportError> {
    import_where(capture, name, options, |_| true)
}

/// As [`import`], for the packets that `takes` accepts.
///
/// # Errors
/// As [`import`].
pub fn import_where<R: Read>(
    capture: &mut CaptureReader<R>,
    name: &str,
    options: &ImportOptions,
    mut takes: impl FnMut(&Packet<'_>) -> bool,
) -> Result<Import, ImportError> {
    let mut importer = Importer {
        options,
        by_flow: HashMap::new(),
        conversations: vec![],
        octets: 0,
        packets: 0,
        left_out: LeftOut::default(),
    };
    loop {
        let batch = capture.next_batch()?;
        if batch.is_empty() {
            break;
        }
        for packet in batch.iter().filter(|packet| takes(packet)) {
            importer.packet(&packet)?;
        }
    }
    Ok(importer.finish(name))
}

struct Importer<'a> {
    options: &'a ImportOptions,
    /// The last conversation of each pair of addresses and ports.
    by_flow: HashMap<FlowKey, usize>,
    conversations: Vec<Conversation>,
    octets: u64,
    packets: u64,
    left_out: LeftOut,
}

/// A conversation while the capture is read.
struct Conversation {
    transport: Transport,
    /// Both ends; `streams[0]` belongs to the side seen first.
    ends: [(IpAddr, u16); 2],
    streams: [Stream; 2],
    first_ns: u64,
    last_ns: u64,
    /// The sender of the SYN, if the SYN or the SYN-ACK was seen.
    began: Option<usize>,
    /// Times of the SYN, the SYN-ACK, and the client's next packet.
    handshake: [Option<u64>; 3],
    reset: Option<(usize, u64, u64)>,
}

/// Memory counted per conversation (`CONVERSATION`) and per packet in it (`CHUNK`), without data.
const CONVERSATION: u64 = 512;
const CHUNK: u64 = 64;

impl Importer<'_> {
    fn packet(&mut self, packet: &Packet<'_>) -> Result<(), ImportError> {
        self.packets += 1;
        let headers = Headers::parse(packet.data, Link::from(packet.link_type.0));
        let transport = match headers.key.protocol {
            protocol::TCP if headers.key.is_ip() => Transport::Tcp,
            protocol::UDP if headers.key.is_ip() => Transport::Udp,
            _ => {
                self.left_out.other_protocols += 1;
                return Ok(());
            }
        };
        if headers.fragment != Fragment::Whole {
            self.left_out.fragments += 1;
            return Ok(());
        }
        let (Some(src), Some(dst)) = (headers.key.src_ip(), headers.key.dst_ip()) else {
            return Ok(());
        };
        if is_group(dst) || is_group(src) {
            self.left_out.multicast += 1;
            return Ok(());
        }
        if headers.fault.is_none() && (headers.key.src_port == 0 || headers.key.dst_port == 0) {
            self.left_out.port_zero += 1;
            return Ok(());
        }
        let Some(segment) = Segment::of(packet, &headers, transport) else {
            self.left_out.damaged += 1;
            return Ok(());
        };
        let ends = [(src, headers.key.src_port), (dst, headers.key.dst_port)];
        let index =
            self.conversation(headers.key.canonical().0, transport, ends, packet, &segment)?;
        let conversation = &mut self.conversations[index];
        let side = usize::from(conversation.ends[0] != ends[0]);
        conversation.last_ns = conversation.last_ns.max(packet.time_ns);
        let stored = conversation.take(side, packet, &segment);
        self.octets += stored;
        if self.octets > self.options.most_octets {
            return Err(ImportError::Octets {
                packet: packet.number,
                most: self.options.most_octets,
            });
        }
        Ok(())
    }

    /// The conversation of the packet, created if necessary.
    fn conversation(
        &mut self,
        key: FlowKey,
        transport: Transport,
        ends: [(IpAddr, u16); 2],
        packet: &Packet<'_>,
        segment: &Segment<'_>,
    ) -> Result<usize, ImportError> {
        if let Some(&index) = self.by_flow.get(&key) {
            let conversation = &self.conversations[index];
            let over = match transport {
                Transport::Udp => {
                    packet.time_ns.saturating_sub(conversation.last_ns) > self.options.udp_idle.0
                }
                Transport::Tcp => {
                    conversation.is_over_for(usize::from(conversation.ends[0] != ends[0]), segment)
                }
            };
            if !over {
                return Ok(index);
            }
        }
        if self.conversations.len() >= self.options.most_conversations {
            return Err(ImportError::Conversations {
                packet: packet.number,
                most: self.options.most_conversations,
            });
        }
        self.octets += CONVERSATION;
        self.conversations.push(Conversation {
            transport,
            ends,
            streams: [Stream::default(), Stream::default()],
            first_ns: packet.time_ns,
            last_ns: packet.time_ns,
            began: None,
            handshake: [None; 3],
            reset: None,
        });
        self.by_flow.insert(key, self.conversations.len() - 1);
        Ok(self.conversations.len() - 1)
    }

    fn finish(self, name: &str) -> Import {
        let mut import =
            Import { packets: self.packets, left_out: self.left_out, ..Import::default() };
        for conversation in self.conversations {
            let packets: u64 =
                conversation.streams.iter().map(|stream| stream.report.packets).sum();
            let number = import.conversations.len() + 1;
            match programs::of(conversation, &format!("{name} {number}"), self.options) {
                Some(imported) => import.conversations.push(imported),
                None => import.left_out.silent += packets,
            }
        }
        import
    }
}

/// The relevant parts of a packet, without its addresses.
struct Segment<'a> {
    seq: u32,
    flags: u8,
    /// The captured part.
    payload: &'a [u8],
    /// Length on the wire, in octets.
    len: u32,
}

impl<'a> Segment<'a> {
    /// `None`: the headers are truncated.
    fn of(packet: &Packet<'a>, headers: &Headers, transport: Transport) -> Option<Self> {
        let octets = packet.data;
        let be16 = |at: usize| {
            octets.get(at..at + 2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1]))
        };
        if headers.fault.is_some() {
            return None;
        }
        let (network, transport_at, payload_at) =
            (headers.network as usize, headers.transport as usize, headers.payload as usize);
        let payload = octets.get(payload_at..headers.end as usize)?;
        let headers_len = payload_at - network;
        let total = match headers.key.version {
            4 => be16(network + 2)? as usize,
            _ => match be16(network + 4)? as usize {
                0 => 0,
                len => len + 40,
            },
        };
        // A length of 0 means a large segment that the NIC cut into packets after the capture
        // point.
        let len = if total == 0 {
            payload.len()
        } else {
            total.checked_sub(headers_len)?.max(payload.len())
        };
        let len = match transport {
            Transport::Tcp => len,
            // UDP's own length is used, if it is possible.
            Transport::Udp => {
                let own = (be16(transport_at + 4)? as usize).checked_sub(8);
                own.filter(|own| *own <= len).unwrap_or(len).min(65_527)
            }
        };
        let payload = &payload[..payload.len().min(len)];
        let (seq, flags) = match transport {
            Transport::Tcp => {
                (be16(transport_at + 4)? << 16 | be16(transport_at + 6)?, headers.tcp_flags)
            }
            Transport::Udp => (0, 0),
        };
        Some(Self { seq, flags, payload, len: len as u32 })
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

impl Conversation {
    /// Whether a SYN begins another conversation with the same addresses and ports.
    fn is_over_for(&self, side: usize, segment: &Segment<'_>) -> bool {
        if !segment.has(tcp_flags::SYN) || segment.has(tcp_flags::ACK) {
            return false;
        }
        match self.streams[side].first_seq {
            // A retransmitted SYN.
            Some(seq) if seq == segment.seq => false,
            None => self.began.is_none(),
            Some(_) => true,
        }
    }

    /// Adds a packet. Returns the number of bytes of memory used.
    fn take(&mut self, side: usize, packet: &Packet<'_>, segment: &Segment<'_>) -> u64 {
        let stream = &mut self.streams[side];
        stream.report.packets += 1;
        let at = (packet.time_ns, packet.number);
        if self.transport == Transport::Udp {
            stream.datagram(at, segment.payload, segment.len);
            return CHUNK + segment.payload.len() as u64;
        }
        let syn = segment.has(tcp_flags::SYN);
        if syn {
            stream.first_seq.get_or_insert(segment.seq);
            let answer = usize::from(segment.has(tcp_flags::ACK));
            self.began.get_or_insert(if answer == 1 { 1 - side } else { side });
            self.handshake[answer].get_or_insert(packet.time_ns);
        } else if self.began == Some(side) && self.handshake[1].is_some() {
            self.handshake[2].get_or_insert(packet.time_ns);
        }
        if segment.has(tcp_flags::RST) {
            // Data in a RST comes from the system, not from the application.
            self.reset.get_or_insert((side, packet.time_ns, packet.number));
            return 0;
        }
        let seq = segment.seq.wrapping_add(u32::from(syn));
        let fin = segment.has(tcp_flags::FIN);
        let before = stream.memory();
        stream.segment(at, seq, segment.payload, segment.len, fin, segment.has(tcp_flags::PSH));
        CHUNK * stream.chunks_since(before.0) + (stream.memory().1 - before.1)
    }
}

fn is_group(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            address.is_multicast() || address.is_broadcast() || address.is_unspecified()
        }
        IpAddr::V6(address) => address.is_multicast() || address.is_unspecified(),
    }
}

impl LeftOut {
    /// Reasons with a nonzero count, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let Self { other_protocols, damaged, fragments, multicast, silent, port_zero } = *self;
        let all = [
            ("other_protocols", other_protocols),
            ("damaged", damaged),
            ("fragments", fragments),
            ("multicast", multicast),
            ("silent", silent),
            ("port_zero", port_zero),
        ];
        all.into_iter().filter(|(_, n)| *n > 0)
    }
}

impl fmt::Display for Hole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = if self.of_client { "client" } else { "server" };
        write!(f, "{} octets of the {side} from octet {} on", self.octets, self.offset)
    }
}
