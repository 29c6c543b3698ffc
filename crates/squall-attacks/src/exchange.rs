//! Conversations before addresses, times and frames are assigned.

use std::{fmt, net::IpAddr};

use squall_rules::End;

/// Why an octet has its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// Arbitrary: another octet would work as well.
    Free,
    /// Required by the protocol.
    Framing,
    /// Required by an option of the rule, an index in [`squall_rules::Rule::options`].
    Option(u16),
    /// Required by a rule that is played earlier, an index in [`squall_rules::RuleSet::rules`].
    Setter(u32),
}

/// Octets with their origins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Octets {
    bytes: Vec<u8>,
    /// One origin for each octet.
    origins: Vec<Origin>,
}

impl Octets {
    pub fn new() -> Self {
        Self::default()
    }

    /// Octets that all have the same origin.
    pub fn of(bytes: impl Into<Vec<u8>>, origin: Origin) -> Self {
        let bytes = bytes.into();
        let origins = vec![origin; bytes.len()];
        Octets { bytes, origins }
    }

    pub fn framing(bytes: impl Into<Vec<u8>>) -> Self {
        Self::of(bytes, Origin::Framing)
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn origins(&self) -> &[Origin] {
        &self.origins
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn push(&mut self, byte: u8, origin: Origin) {
        self.bytes.push(byte);
        self.origins.push(origin);
    }

    pub fn append(&mut self, other: &Octets) {
        self.bytes.extend_from_slice(&other.bytes);
        self.origins.extend_from_slice(&other.origins);
    }

    pub fn extend(&mut self, bytes: &[u8], origin: Origin) {
        self.bytes.extend_from_slice(bytes);
        self.origins.resize(self.bytes.len(), origin);
    }

    /// Replaces an octet.
    ///
    /// # Panics
    ///
    /// If `at` is out of bounds.
    pub fn set(&mut self, at: usize, byte: u8, origin: Origin) {
        self.bytes[at] = byte;
        self.origins[at] = origin;
    }

    /// Copies a range with its origins.
    ///
    /// # Panics
    ///
    /// If the range is out of bounds.
    pub fn slice(&self, range: std::ops::Range<usize>) -> Octets {
        Octets { bytes: self.bytes[range.clone()].to_vec(), origins: self.origins[range].to_vec() }
    }
}

impl<const N: usize> From<&[u8; N]> for Octets {
    /// Creates octets with origin [`Origin::Framing`].
    fn from(bytes: &[u8; N]) -> Self {
        Self::framing(bytes.as_slice())
    }
}

impl From<&str> for Octets {
    /// Creates octets with origin [`Origin::Framing`].
    fn from(text: &str) -> Self {
        Self::framing(text.as_bytes())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// A connection with handshake and close.
    Tcp,
    /// Segments outside a connection, with the headers in their [`Shape`]. For rules that test
    /// flags.
    Segments,
    Udp,
    /// ICMP or ICMPv6, depending on the IP version.
    Icmp,
    /// Any IP protocol.
    Ip(u8),
}

impl Transport {
    /// The protocol number in an IP header with `address`, whose IP version decides between ICMP
    /// and ICMPv6.
    pub fn ip_protocol(self, address: IpAddr) -> u8 {
        match self {
            Transport::Tcp | Transport::Segments => 6,
            Transport::Udp => 17,
            Transport::Icmp if address.is_ipv6() => 58,
            Transport::Icmp => 1,
            Transport::Ip(protocol) => protocol,
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Transport::Tcp => f.write_str("TCP"),
            Transport::Segments => f.write_str("TCP segments without a connection"),
            Transport::Udp => f.write_str("UDP"),
            Transport::Icmp => f.write_str("ICMP"),
            Transport::Ip(protocol) => write!(f, "IP protocol {protocol}"),
        }
    }
}

/// A conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct Exchange {
    pub transport: Transport,
    pub client_port: u16,
    pub server_port: u16,
    /// Turns in order. A TCP turn is sent and acknowledged before the next one starts; other turns
    /// are single packets.
    pub turns: Vec<Turn>,
    /// Whether client and server have the same address (`sameip`).
    pub same_address: bool,
    /// The IP version (4 or 6) if the rule requires one.
    pub ip_version: Option<u8>,
}

/// The data that one end sends at once.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    pub from: End,
    /// The payload for TCP and UDP; for ICMP, the data after the first eight octets; otherwise the
    /// data after the IP header.
    pub octets: Octets,
    pub shape: Shape,
}

impl Turn {
    pub fn new(from: End, octets: Octets) -> Self {
        Turn { from, octets, shape: Shape::default() }
    }
}

/// Header fields for the packets of a turn. `None` means the default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shape {
    pub ttl: Option<u8>,
    pub tos: Option<u8>,
    /// Identification field of the IP header.
    pub id: Option<u16>,
    /// Options of the IP header, a multiple of four octets.
    pub ip_options: Vec<u8>,
    /// More fragments 1, don't fragment 2, reserved 4.
    pub fragment_bits: Option<u8>,
    /// Fragment offset in units of eight octets.
    pub fragment_offset: Option<u16>,
    pub flags: Option<u8>,
    pub sequence: Option<u32>,
    pub acknowledgment: Option<u32>,
    pub window: Option<u16>,
    /// Options in a SYN.
    pub mss: Option<u16>,
    pub window_scale: Option<u8>,
    pub icmp_type: Option<u8>,
    pub icmp_code: Option<u8>,
    /// The second and third 16-bit words of the ICMP header.
    pub icmp_id: Option<u16>,
    pub icmp_sequence: Option<u16>,
    /// Whether the payload must be a single segment (`dsize`).
    pub whole: bool,
    /// Idle time before the turn.
    pub pause_ns: u64,
}
