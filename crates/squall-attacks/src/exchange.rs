//! What both ends of an attack say, before it has addresses, times and frames.

use std::net::IpAddr;

use squall_rules::End;

/// Where an octet comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// Nothing asks for it: another would do as well.
    Free,
    /// The protocol asks for it.
    Framing,
    /// An option of the rule: index in [`squall_rules::Rule::options`].
    Option(u16),
    /// An option of a rule that is played before: index in [`squall_rules::RuleSet::rules`].
    Setter(u32),
}

/// Octets that know where they come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Octets {
    bytes: Vec<u8>,
    /// As many as `bytes`.
    origins: Vec<Origin>,
}

impl Octets {
    pub fn new() -> Self {
        Self::default()
    }

    /// All of one origin.
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

    /// # Panics
    /// If `at` is outside.
    pub fn set(&mut self, at: usize, byte: u8, origin: Origin) {
        self.bytes[at] = byte;
        self.origins[at] = origin;
    }

    /// # Panics
    /// If the range is outside.
    pub fn slice(&self, range: std::ops::Range<usize>) -> Octets {
        Octets { bytes: self.bytes[range.clone()].to_vec(), origins: self.origins[range].to_vec() }
    }
}

impl<const N: usize> From<&[u8; N]> for Octets {
    /// Framing.
    fn from(bytes: &[u8; N]) -> Self {
        Self::framing(bytes.as_slice())
    }
}

impl From<&str> for Octets {
    /// Framing.
    fn from(text: &str) -> Self {
        Self::framing(text.as_bytes())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// With handshake and close.
    Tcp,
    /// Segments without a connection, as their shapes say: for rules on flags.
    Segments,
    Udp,
    /// Of the version that addresses have.
    Icmp,
    /// Whatever the IP header's protocol says.
    Ip(u8),
}

impl Transport {
    /// What the IP header says, to or from `address`.
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

/// A conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct Exchange {
    pub transport: Transport,
    pub client_port: u16,
    pub server_port: u16,
    /// In their order. Of TCP each is sent and acknowledged before the next; of others each is a
    /// packet.
    pub turns: Vec<Turn>,
    /// The client's address is the server's (`sameip`).
    pub same_address: bool,
    /// Only of one family, where the rule says so: 4, 6.
    pub ip_version: Option<u8>,
}

/// What one end sends at once.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    pub from: End,
    /// The payload of TCP and UDP; of ICMP what follows the first eight octets; of others what
    /// follows the IP header.
    pub octets: Octets,
    pub shape: Shape,
}

impl Turn {
    pub fn new(from: End, octets: Octets) -> Self {
        Turn { from, octets, shape: Shape::default() }
    }
}

/// What packets of a turn have in their headers; `None` is what is usual.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shape {
    pub ttl: Option<u8>,
    pub tos: Option<u8>,
    /// Of the IP header.
    pub id: Option<u16>,
    /// Octets of the IP header's options, a multiple of four.
    pub ip_options: Vec<u8>,
    /// More fragments 1, don't fragment 2, reserved 4.
    pub fragment_bits: Option<u8>,
    /// In units of eight octets.
    pub fragment_offset: Option<u16>,
    pub flags: Option<u8>,
    pub sequence: Option<u32>,
    pub acknowledgment: Option<u32>,
    pub window: Option<u16>,
    /// Of a SYN.
    pub mss: Option<u16>,
    pub window_scale: Option<u8>,
    pub icmp_type: Option<u8>,
    pub icmp_code: Option<u8>,
    /// The third and fourth pair of octets of the ICMP header.
    pub icmp_id: Option<u16>,
    pub icmp_sequence: Option<u16>,
    /// The payload is one segment, and not cut (`dsize`).
    pub whole: bool,
    /// Nothing is sent for so long before it.
    pub pause_ns: u64,
}
