//! The flow of a frame, regardless of its sender. [`Headers::parse`] finds the headers in any
//! octets, and [`FlowTable`] stores a value per flow in bounded memory.
//!
//! Unlike the dissector of `squall_wire`, this explains nothing: it runs once per captured or
//! received frame, in a few tens of nanoseconds, and reads only up to the ports. A tunnel is itself
//! a flow, unless it is MPLS or PPPoE.

use std::{
    fmt,
    hash::{BuildHasher, Hash, Hasher, RandomState},
    hint::black_box,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use squall_units::{MacAddr, be16};

/// Source and destination of a packet: addresses, protocol, ports. Missing fields are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowKey {
    /// IPv4 and MAC addresses occupy the first octets; the rest is 0.
    pub src: [u8; 16],
    pub dst: [u8; 16],
    pub src_port: u16,
    /// The EtherType if `version` is 0.
    pub dst_port: u16,
    /// Protocol of the IPv4 header. For IPv6, the first header that is not an extension.
    pub protocol: u8,
    /// IP version, 4 or 6; 0: not IP, and the addresses are MAC addresses.
    pub version: u8,
}

/// Protocol numbers of IP headers (IANA).
pub mod protocol {
    pub const ICMP: u8 = 1;
    pub const IGMP: u8 = 2;
    pub const TCP: u8 = 6;
    pub const UDP: u8 = 17;
    pub const DCCP: u8 = 33;
    pub const GRE: u8 = 47;
    pub const ESP: u8 = 50;
    pub const ICMPV6: u8 = 58;
    pub const OSPF: u8 = 89;
    pub const SCTP: u8 = 132;
    pub const UDP_LITE: u8 = 136;

    /// Name such as `TCP` or `UDP`; `None` for a rare protocol.
    pub fn name(protocol: u8) -> Option<&'static str> {
        Some(match protocol {
            0 => "HOPOPT",
            ICMP => "ICMP",
            IGMP => "IGMP",
            4 => "IPIP",
            TCP => "TCP",
            UDP => "UDP",
            DCCP => "DCCP",
            41 => "IPv6-in-IP",
            46 => "RSVP",
            GRE => "GRE",
            ESP => "ESP",
            51 => "AH",
            ICMPV6 => "ICMPv6",
            59 => "no next header",
            88 => "EIGRP",
            OSPF => "OSPF",
            103 => "PIM",
            112 => "VRRP",
            115 => "L2TP",
            SCTP => "SCTP",
            UDP_LITE => "UDP-Lite",
            _ => return None,
        })
    }
}

impl FlowKey {
    /// The key that both directions share, and whether it is that of the opposite direction.
    #[inline]
    pub fn canonical(&self) -> (Self, bool) {
        let ports_too = |address: &[u8; 16], port: u16| (u128::from_be_bytes(*address), port);
        if self.version == 0 {
            // Both directions have the same EtherType.
            let swapped = self.dst < self.src;
            return (
                if swapped { Self { src: self.dst, dst: self.src, ..*self } } else { *self },
                swapped,
            );
        }
        if ports_too(&self.src, self.src_port) <= ports_too(&self.dst, self.dst_port) {
            (*self, false)
        } else {
            (self.reversed(), true)
        }
    }

    /// The key of the opposite direction.
    #[inline]
    pub fn reversed(&self) -> Self {
        let (src_port, dst_port) = if self.version == 0 {
            (self.src_port, self.dst_port)
        } else {
            (self.dst_port, self.src_port)
        };
        Self { src: self.dst, dst: self.src, src_port, dst_port, ..*self }
    }

    pub fn is_ip(&self) -> bool {
        self.version != 0
    }

    /// The source address; `None` if the packet is not IP.
    pub fn src_ip(&self) -> Option<IpAddr> {
        self.ip(self.src)
    }

    pub fn dst_ip(&self) -> Option<IpAddr> {
        self.ip(self.dst)
    }

    fn ip(&self, octets: [u8; 16]) -> Option<IpAddr> {
        match self.version {
            4 => Some(Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3]).into()),
            6 => Some(Ipv6Addr::from(octets).into()),
            _ => None,
        }
    }

    /// A hash; equal for equal keys and the same `seed`.
    #[inline]
    pub fn hash_with(&self, seed: u64) -> u64 {
        // Read as whole integers: values that `plain` has just written are then in registers, not
        // in memory.
        let half = |octets: &[u8; 16], at: usize| (u128::from_le_bytes(*octets) >> (8 * at)) as u64;
        let rest = u64::from(self.src_port)
            | u64::from(self.dst_port) << 16
            | u64::from(self.protocol) << 32
            | u64::from(self.version) << 40;
        // Multiply and fold, as wyhash does. IPv4 takes one multiplication, longer addresses take
        // three.
        let mut hash = fold(
            half(&self.src, 0) ^ half(&self.dst, 0).rotate_left(32) ^ seed,
            rest ^ 0xa076_1d64_78bd_642f,
        );
        if self.version != 4 {
            hash = fold(hash ^ half(&self.src, 0), half(&self.src, 8) ^ 0xe703_7ed1_a0b4_28db);
            hash = fold(hash ^ half(&self.dst, 8), half(&self.dst, 0) ^ 0x8ebc_6af0_9c88_c6e3);
        }
        hash
    }
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    // Restores the entropy that a factor of zero removes.
    (product as u64 ^ (product >> 64) as u64) ^ a.rotate_left(17) ^ b
}

impl Hash for FlowKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash_with(0));
    }
}

/// `10.0.0.1:53 > 10.0.0.2:5353 UDP`, `[fe80::1]:53 > ...`, `10.0.0.1 > 10.0.0.2 ICMP`,
/// `02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff ARP`.
impl fmt::Display for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(src), Some(dst)) = (self.src_ip(), self.dst_ip()) else {
            let mac = |octets: &[u8; 16]| MacAddr(std::array::from_fn(|i| octets[i]));
            write!(f, "{} > {} ", mac(&self.src), mac(&self.dst))?;
            return match ethertype_name(self.dst_port) {
                Some(name) => f.write_str(name),
                None => write!(f, "EtherType {:#06x}", self.dst_port),
            };
        };
        let with_ports = self.src_port != 0 || self.dst_port != 0 || has_ports(self.protocol);
        for (address, port, end) in [(src, self.src_port, " > "), (dst, self.dst_port, " ")] {
            match address {
                _ if !with_ports => write!(f, "{address}")?,
                IpAddr::V4(address) => write!(f, "{address}:{port}")?,
                IpAddr::V6(address) => write!(f, "[{address}]:{port}")?,
            }
            f.write_str(end)?;
        }
        match protocol::name(self.protocol) {
            Some(name) => f.write_str(name),
            None => write!(f, "IP protocol {}", self.protocol),
        }
    }
}

/// Name such as `ARP` or `IPv4`; `None` for a rare EtherType.
pub fn ethertype_name(ethertype: u16) -> Option<&'static str> {
    Some(match ethertype {
        ethertype::LLC => "LLC",
        ethertype::IPV4 => "IPv4",
        ethertype::ARP => "ARP",
        ethertype::IPV6 => "IPv6",
        ethertype::MPLS | ethertype::MPLS_UPSTREAM => "MPLS",
        0x0842 => "Wake-on-LAN",
        0x8035 => "RARP",
        0x8808 => "Ethernet flow control",
        0x8809 => "slow protocols",
        0x8863 => "PPPoE discovery",
        ethertype::PPPOE => "PPPoE",
        0x888e => "EAPOL",
        0x88a2 => "ATA over Ethernet",
        0x88cc => "LLDP",
        0x88e5 => "MACsec",
        0x88f7 => "PTP",
        0x8906 => "FCoE",
        0x9000 => "loopback test",
        _ => return None,
    })
}

/// EtherTypes (IEEE 802 numbers).
pub mod ethertype {
    /// ETH_P_802_2 of Linux, not an IEEE number: the field is a length, and LLC follows.
    pub const LLC: u16 = 0x0004;
    pub const IPV4: u16 = 0x0800;
    pub const ARP: u16 = 0x0806;
    pub const VLAN: u16 = 0x8100;
    pub const IPV6: u16 = 0x86dd;
    pub const MPLS: u16 = 0x8847;
    pub const MPLS_UPSTREAM: u16 = 0x8848;
    pub const PPPOE: u16 = 0x8864;
    pub const QINQ: u16 = 0x88a8;

    /// Whether a tag of four octets starts here. 0x9100 and 0x9200 were used for QinQ before the
    /// standard (IEEE 802.1ad).
    #[inline]
    pub(super) fn is_tag(ethertype: u16) -> bool {
        matches!(ethertype, VLAN | QINQ | 0x9100 | 0x9200)
    }
}

/// The link type of a packet. `Rare` and `Other` have no parser in this module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Link {
    #[default]
    Ethernet,
    /// IPv4 or IPv6, by the version field.
    Raw,
    /// Linux cooked capture, as on tcpdump's interface `any`.
    LinuxCookedV1,
    LinuxCookedV2,
    /// The address family in either byte order (NULL) or in network order (LOOP).
    BsdLoopback,
    /// A rare link type, by its number; [`squall_wire::link`] locates the payload.
    Rare(u16),
    Other,
}

/// Converts a number in tcpdump.org's list of link-layer header types.
impl From<u16> for Link {
    fn from(link_type: u16) -> Self {
        match link_type {
            1 => Self::Ethernet,
            12 | 14 | 101 | 228 | 229 => Self::Raw,
            113 => Self::LinuxCookedV1,
            276 => Self::LinuxCookedV2,
            0 | 108 => Self::BsdLoopback,
            plain if squall_wire::link::is_plain(plain) => Self::Rare(plain),
            _ => Self::Other,
        }
    }
}

/// The kind of fragment that a packet is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fragment {
    #[default]
    Whole,
    First,
    /// A later fragment, which has no ports.
    Later,
}

/// Why headers could not be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderFault {
    /// A header extends past the last octet.
    Cut,
    /// A header is contradictory: IP version or header length.
    Malformed,
}

/// Offsets of the headers of a packet, and its flow. Offsets are in octets from the start of the
/// packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    pub key: FlowKey,
    /// The EtherType after tags, MPLS labels and PPPoE; 0 on a link without EtherTypes.
    pub ethertype: u16,
    /// Number of tags; the first two are in `vlan`.
    pub tags: u8,
    /// Tag control information: priority, DEI, 12 bits of VLAN id.
    pub vlan: [u16; 2],
    pub mpls_labels: u8,
    pub fragment: Fragment,
    /// Flags as in the TCP header: FIN is 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128.
    pub tcp_flags: u8,
    pub fault: Option<HeaderFault>,
    /// Offset of the IP header, or of what follows the link header.
    pub network: u32,
    /// Offset of the transport header (TCP, UDP, ...); `end` if it was not reached.
    pub transport: u32,
    /// Offset of the payload of TCP and UDP; otherwise `transport`.
    pub payload: u32,
    /// End of the IP packet without Ethernet padding, at most the number of captured octets.
    pub end: u32,
}

impl Headers {
    /// Parses `octets`, which may be truncated anywhere.
    #[inline]
    pub fn parse(octets: &[u8], link: Link) -> Self {
        let mut headers = Self { end: octets.len() as u32, ..Self::default() };
        let found = match link {
            Link::Ethernet => headers.ethernet(octets),
            Link::Raw => headers.raw(octets, 0),
            Link::LinuxCookedV1 => headers.cooked(octets, 14, 16, 6),
            Link::LinuxCookedV2 => headers.cooked(octets, 0, 20, 12),
            Link::BsdLoopback => headers.loopback(octets),
            Link::Rare(link_type) => headers.rare(octets, link_type),
            Link::Other => Ok(()),
        };
        headers.fault = found.err();
        if headers.fault.is_some() {
            let end = headers.end;
            headers.transport =
                if headers.transport == 0 { end } else { headers.transport.min(end) };
            headers.payload = if headers.payload == 0 { end } else { headers.payload.min(end) };
            headers.network = headers.network.min(end);
        }
        headers
    }

    /// The flow of the most common packets: Ethernet, IPv4 without tags, options and fragments, TCP
    /// or UDP with complete headers. `None` for all others, which need [`Headers::parse`]. Takes a
    /// quarter of its time.
    #[inline]
    pub fn plain(octets: &[u8]) -> Option<FlowKey> {
        let header: &[u8; 42] = octets.first_chunk()?;
        let end = 14 + usize::from(be16(header, 16));
        if be16(header, 12) != ethertype::IPV4
            || header[14] != 0x45
            || be16(header, 20) & 0x3fff != 0
            || end > octets.len()
            || end < 42
        {
            return None;
        }
        match header[23] {
            protocol::UDP => {}
            protocol::TCP => {
                let len = usize::from(octets.get(46)? >> 4) * 4;
                if len < 20 || 34 + len > end {
                    return None;
                }
            }
            _ => return None,
        }
        let address = |at: usize| {
            let octets = [header[at], header[at + 1], header[at + 2], header[at + 3]];
            u128::from(u32::from_le_bytes(octets)).to_le_bytes()
        };
        Some(FlowKey {
            src: address(26),
            dst: address(30),
            src_port: be16(header, 34),
            dst_port: be16(header, 36),
            protocol: header[23],
            version: 4,
        })
    }

    /// Number of captured octets of the transport payload.
    pub fn payload_len(&self) -> u32 {
        self.end - self.payload
    }

    #[inline]
    fn ethernet(&mut self, octets: &[u8]) -> Result<(), HeaderFault> {
        let header: &[u8; 14] = front(octets, 0)?;
        let ethertype = be16(header, 12);
        if ethertype == ethertype::IPV4 {
            self.ethertype = ethertype;
            return self.ipv4(octets, 14);
        }
        self.key.src[..6].copy_from_slice(&header[6..12]);
        self.key.dst[..6].copy_from_slice(&header[..6]);
        self.network_of(octets, ethertype, 14)
    }

    /// Parses the network header at octet `at`, whose type is `ethertype`.
    fn network_of(
        &mut self,
        octets: &[u8],
        mut ethertype: u16,
        mut at: usize,
    ) -> Result<(), HeaderFault> {
        self.set_ethertype(ethertype, at);
        while ethertype::is_tag(ethertype) {
            let tag: &[u8; 4] = front(octets, at)?;
            if let Some(vlan) = self.vlan.get_mut(usize::from(self.tags)) {
                *vlan = be16(tag, 0);
            }
            self.tags = self.tags.saturating_add(1);
            ethertype = be16(tag, 2);
            at += 4;
            self.set_ethertype(ethertype, at);
        }
        match ethertype {
            ethertype::IPV4 => self.ipv4(octets, at),
            ethertype::IPV6 => self.ipv6(octets, at),
            ethertype::MPLS | ethertype::MPLS_UPSTREAM => self.mpls(octets, at),
            ethertype::PPPOE => {
                let header: &[u8; 8] = front(octets, at)?;
                match be16(header, 6) {
                    0x0021 => self.reach(ethertype::IPV4, octets, at + 8),
                    0x0057 => self.reach(ethertype::IPV6, octets, at + 8),
                    _ => self.ends_at(at),
                }
            }
            0..=1500 => {
                self.set_ethertype(ethertype::LLC, at);
                // A SNAP header with organization code 0 contains an EtherType (RFC 1042).
                match octets.get(at..at + 8) {
                    Some(&[0xaa, 0xaa, 3, 0, 0, 0, high, low]) => {
                        match u16::from_be_bytes([high, low]) {
                            known @ (ethertype::IPV4 | ethertype::IPV6) => {
                                self.reach(known, octets, at + 8)
                            }
                            other => {
                                self.set_ethertype(other, at + 8);
                                self.ends_at(at + 8)
                            }
                        }
                    }
                    _ => self.ends_at(at),
                }
            }
            _ => self.ends_at(at),
        }
    }

    fn set_ethertype(&mut self, ethertype: u16, at: usize) {
        self.ethertype = ethertype;
        self.key.dst_port = ethertype;
        self.network = at as u32;
    }

    fn reach(&mut self, ethertype: u16, octets: &[u8], at: usize) -> Result<(), HeaderFault> {
        self.set_ethertype(ethertype, at);
        if ethertype == ethertype::IPV4 { self.ipv4(octets, at) } else { self.ipv6(octets, at) }
    }

    /// Ends the headers at `at`: the packet is not IP, and no known header follows.
    fn ends_at(&mut self, at: usize) -> Result<(), HeaderFault> {
        self.transport = (at as u32).min(self.end);
        self.payload = self.transport;
        Ok(())
    }

    fn mpls(&mut self, octets: &[u8], mut at: usize) -> Result<(), HeaderFault> {
        loop {
            let label: &[u8; 4] = front(octets, at)?;
            self.mpls_labels = self.mpls_labels.saturating_add(1);
            at += 4;
            if label[2] & 1 != 0 {
                break;
            }
        }
        // Labels do not identify their payload. As routers do, use the IP version nibble (RFC
        // 4928); any other value means a pseudowire.
        match octets.get(at).map(|o| o >> 4) {
            Some(4) => self.reach(ethertype::IPV4, octets, at),
            Some(6) => self.reach(ethertype::IPV6, octets, at),
            Some(_) => self.ends_at(at),
            None => Err(HeaderFault::Cut),
        }
    }

    fn raw(&mut self, octets: &[u8], at: usize) -> Result<(), HeaderFault> {
        match octets.get(at).ok_or(HeaderFault::Cut)? >> 4 {
            4 => self.reach(ethertype::IPV4, octets, at),
            6 => self.reach(ethertype::IPV6, octets, at),
            _ => Err(HeaderFault::Malformed),
        }
    }

    /// Linux cooked headers of `len` octets, with the EtherType at `ethertype` and the sender's
    /// address at `address`.
    fn cooked(
        &mut self,
        octets: &[u8],
        ethertype: usize,
        len: usize,
        address: usize,
    ) -> Result<(), HeaderFault> {
        let header = octets.get(..len).ok_or(HeaderFault::Cut)?;
        self.key.src[..6].copy_from_slice(&header[address..address + 6]);
        self.network_of(octets, be16(header, ethertype), len)
    }

    #[cold]
    fn rare(&mut self, octets: &[u8], link_type: u16) -> Result<(), HeaderFault> {
        let Ok(inner) = squall_wire::link::inner(link_type, octets) else {
            return self.ends_at(0);
        };
        for (address, found) in [(&mut self.key.src, inner.src), (&mut self.key.dst, inner.dst)] {
            address[..6].copy_from_slice(&found.unwrap_or_default());
        }
        self.end = inner.octets.end as u32;
        self.network_of(&octets[..inner.octets.end], inner.ethertype, inner.octets.start)
    }

    fn loopback(&mut self, octets: &[u8]) -> Result<(), HeaderFault> {
        let family: &[u8; 4] = front(octets, 0)?;
        let family =
            if family[0] == 0 { u32::from_be_bytes(*family) } else { u32::from_le_bytes(*family) };
        self.network = 4;
        match family {
            // AF_INET is 2 everywhere; AF_INET6 is 24 on NetBSD, 10 in Linux's libpcap, 28 on
            // FreeBSD, 30 on Darwin.
            2 | 10 | 24 | 28 | 30 => self.raw(octets, 4),
            _ => self.ends_at(4),
        }
    }

    #[inline]
    fn ipv4(&mut self, octets: &[u8], at: usize) -> Result<(), HeaderFault> {
        let header: &[u8; 20] = front(octets, at)?;
        self.network = at as u32;
        let header_len = usize::from(header[0] & 15) * 4;
        let total_len = usize::from(be16(header, 2));
        if header[0] >> 4 != 4 || header_len < 20 {
            return Err(HeaderFault::Malformed);
        }
        self.key = FlowKey { protocol: header[9], version: 4, ..FlowKey::default() };
        self.key.src[..4].copy_from_slice(&header[12..16]);
        self.key.dst[..4].copy_from_slice(&header[16..20]);
        // A total length of 0 means a GSO frame; its length is only in the kernel's descriptor.
        if total_len != 0 {
            if total_len < header_len {
                return Err(HeaderFault::Malformed);
            }
            self.end = self.end.min((at + total_len) as u32);
        }
        let fragment = be16(header, 6);
        if fragment & 0x3fff != 0 {
            self.fragment = if fragment & 0x1fff == 0 { Fragment::First } else { Fragment::Later };
        }
        self.transport(octets, at + header_len)
    }

    fn ipv6(&mut self, octets: &[u8], at: usize) -> Result<(), HeaderFault> {
        let header: &[u8; 40] = front(octets, at)?;
        self.network = at as u32;
        if header[0] >> 4 != 6 {
            return Err(HeaderFault::Malformed);
        }
        self.key = FlowKey { protocol: header[6], version: 6, ..FlowKey::default() };
        self.key.src.copy_from_slice(&header[8..24]);
        self.key.dst.copy_from_slice(&header[24..40]);
        let payload_len = usize::from(be16(header, 4));
        // A length of 0 means a jumbogram (RFC 2675) or a GSO frame.
        if payload_len != 0 {
            self.end = self.end.min((at + 40 + payload_len) as u32);
        }
        let mut at = at + 40;
        loop {
            let len = match self.key.protocol {
                // Hop-by-hop, routing, destination options, mobility, HIP, shim6.
                0 | 43 | 60 | 135 | 139 | 140 => 8 * usize::from(front::<2>(octets, at)?[1]) + 8,
                // The length field counts units of four octets (RFC 4302).
                51 => 4 * usize::from(front::<2>(octets, at)?[1]) + 8,
                44 => {
                    let fragment = be16(front::<8>(octets, at)?, 2);
                    // An atomic fragment is a complete packet (RFC 6946).
                    if fragment & !6 != 0 {
                        self.fragment =
                            if fragment >> 3 == 0 { Fragment::First } else { Fragment::Later };
                    }
                    8
                }
                _ => break,
            };
            self.key.protocol = octets[at];
            at += len;
            if self.fragment == Fragment::Later {
                break;
            }
        }
        self.transport(octets, at)
    }

    #[inline]
    fn transport(&mut self, octets: &[u8], at: usize) -> Result<(), HeaderFault> {
        self.transport = (at as u32).min(self.end);
        self.payload = self.transport;
        let octets = &octets[..self.end as usize];
        if at > octets.len() {
            return Err(HeaderFault::Cut);
        }
        if self.fragment == Fragment::Later || !has_ports(self.key.protocol) {
            return Ok(());
        }
        self.key.protocol_ports(front(octets, at)?);
        let header_len = match self.key.protocol {
            protocol::TCP => {
                let header: &[u8; 14] = front(octets, at)?;
                self.tcp_flags = header[13];
                let len = usize::from(header[12] >> 4) * 4;
                if len < 20 {
                    return Err(HeaderFault::Malformed);
                }
                len
            }
            protocol::UDP | protocol::UDP_LITE => 8,
            protocol::SCTP => 12,
            _ => 0,
        };
        self.payload = (at + header_len).min(octets.len()) as u32;
        if at + header_len > octets.len() { Err(HeaderFault::Cut) } else { Ok(()) }
    }
}

impl FlowKey {
    #[inline]
    fn protocol_ports(&mut self, ports: &[u8; 4]) {
        (self.src_port, self.dst_port) = (be16(ports, 0), be16(ports, 2));
    }
}

#[inline]
fn has_ports(protocol: u8) -> bool {
    matches!(
        protocol,
        protocol::TCP | protocol::UDP | protocol::DCCP | protocol::SCTP | protocol::UDP_LITE
    )
}

#[inline]
fn front<const N: usize>(octets: &[u8], at: usize) -> Result<&[u8; N], HeaderFault> {
    octets.get(at..).and_then(<[u8]>::first_chunk).ok_or(HeaderFault::Cut)
}

/// Stores a value per flow. At most `limit` flows, which bounds the memory; packets of further
/// flows are only counted.
///
/// Flows keep the order of their first packets, so results do not depend on the hash. A flow
/// without packets for longer than `idle_ns` has expired, and its next packet starts a new flow (as
/// with tcpreplay's `--flow-expiry`).
#[derive(Clone, Debug)]
pub struct FlowTable<V> {
    /// Hash table with a power of two of slots, at most half of them used. A slot has 32 bits of
    /// the hash and 32 bits of the index in `flows` plus 1; 0: free.
    slots: Vec<u64>,
    flows: Vec<Flow<V>>,
    limit: usize,
    idle_ns: Option<u64>,
    seed: u64,
    counts: FlowCounts,
}

/// Tables with fewer slots stay in the second-level cache, so their flows need no prefetch.
const CACHED_SLOTS: usize = 4096;

/// A flow in the table.
#[derive(Clone, Debug)]
pub struct Flow<V> {
    pub key: FlowKey,
    /// Arrival of the flow's last packet, nanoseconds.
    pub last_ns: u64,
    pub value: V,
}

/// Counters of a flow table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounts {
    /// Flows started, including restarts after expiry.
    pub flows: u64,
    /// Expired flows that were detected, by their next packet or by [`FlowTable::expire`].
    pub expired: u64,
    /// Packets of flows that did not fit in the table.
    pub overflow_packets: u64,
}

/// The role of a packet in its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The first packet.
    New,
    Again,
    /// The first packet after the flow had expired: a new flow with the same key. The value is
    /// still that of the old flow.
    Expired,
}

impl<V: Default> FlowTable<V> {
    /// Creates a table for at most `limit` flows, which expire when they have been idle for
    /// `idle_ns`.
    ///
    /// # Panics
    /// If `limit` is more than 2^31.
    pub fn new(limit: usize, idle_ns: Option<u64>) -> Self {
        assert!(limit <= 1 << 31, "flows have numbers of 32 bits");
        // A random seed, because a crafted capture could otherwise make all flows collide. Results
        // do not depend on it.
        let seed = RandomState::new().hash_one(0);
        Self {
            slots: vec![0; 64],
            flows: Vec::new(),
            limit,
            idle_ns,
            seed,
            counts: FlowCounts::default(),
        }
    }

    /// The value of flow `key`, created if necessary. `None` if the table is full; the packet is
    /// counted.
    #[inline]
    pub fn entry(&mut self, key: &FlowKey, now_ns: u64) -> Option<&mut V> {
        self.seen(key, now_ns).map(|(value, _)| value)
    }

    /// The same as [`FlowTable::entry`], plus the role of the packet.
    #[inline]
    pub fn seen(&mut self, key: &FlowKey, now_ns: u64) -> Option<(&mut V, Seen)> {
        self.seen_hashed(key, self.hash(key), now_ns)
    }

    /// The value of flow `key`, if it exists.
    pub fn get(&self, key: &FlowKey) -> Option<&V> {
        self.get_hashed(key, self.hash(key))
    }

    /// The same as [`FlowTable::get`], with the `hash` of `key` already computed.
    #[inline]
    pub fn get_hashed(&self, key: &FlowKey, hash: u64) -> Option<&V> {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        while self.slots[at] != 0 {
            let flow = &self.flows[self.slots[at] as u32 as usize - 1];
            if self.slots[at] >> 32 == hash >> 32 && flow.key == *key {
                return Some(&flow.value);
            }
            at = (at + 1) & mask;
        }
        None
    }

    /// Hash of a key, valid only for this table.
    #[inline]
    pub fn hash(&self, key: &FlowKey) -> u64 {
        key.hash_with(self.seed)
    }

    /// Brings the flows with these `hashes` into the cache. Call it for a few dozen packets, then
    /// [`FlowTable::seen_hashed`] or [`FlowTable::get_hashed`] for each.
    #[inline]
    pub fn prefetch(&self, hashes: &[u64]) {
        if self.slots.len() >= CACHED_SLOTS {
            self.load(hashes);
        }
    }

    fn load(&self, hashes: &[u64]) {
        let mask = self.slots.len() - 1;
        // Two loops of nothing but independent loads, because the processor then waits for all of
        // them at once. With the parsing of a packet between two loads, few fit into its window:
        // nearly half of the time of `squall info` on a capture with many flows were waits.
        let slots = hashes.iter().map(|hash| self.slots[*hash as usize & mask]);
        black_box(slots.fold(0, |all, slot| all ^ slot));
        let mut all = 0;
        for hash in hashes {
            let slot = self.slots[*hash as usize & mask];
            // Flows of other hashes are not needed, so loading them would only cost bandwidth.
            if slot >> 32 == hash >> 32
                && let Some(flow) = self.flows.get((slot as u32).wrapping_sub(1) as usize)
            {
                // A flow covers two cache lines.
                all ^= flow.last_ns ^ u64::from(flow.key.version);
            }
        }
        black_box(all);
    }

    /// The same as [`FlowTable::seen`], with the `hash` of `key` already computed.
    #[inline]
    pub fn seen_hashed(&mut self, key: &FlowKey, hash: u64, now_ns: u64) -> Option<(&mut V, Seen)> {
        let (index, seen) = self.index_hashed(key, hash, now_ns)?;
        Some((&mut self.flows[index].value, seen))
    }

    /// The same as [`FlowTable::seen_hashed`], with the flow's index in [`FlowTable::as_slice`]
    /// instead of its value. It is valid until flows are removed ([`FlowTable::expire`]).
    #[inline]
    pub fn index_hashed(&mut self, key: &FlowKey, hash: u64, now_ns: u64) -> Option<(usize, Seen)> {
        let (tag, mask) = (hash >> 32, self.slots.len() - 1);
        let mut at = hash as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                if self.is_full() {
                    self.counts.overflow_packets += 1;
                    return None;
                }
                return Some((self.insert(key, hash, at, now_ns), Seen::New));
            }
            let index = slot as u32 as usize - 1;
            if slot >> 32 == tag && self.flows[index].key == *key {
                let flow = &mut self.flows[index];
                let idle = now_ns.saturating_sub(flow.last_ns);
                flow.last_ns = flow.last_ns.max(now_ns);
                let expired = self.idle_ns.is_some_and(|most| idle > most);
                if expired {
                    self.counts.flows += 1;
                    self.counts.expired += 1;
                }
                return Some((index, if expired { Seen::Expired } else { Seen::Again }));
            }
            at = (at + 1) & mask;
        }
    }

    /// The value of the flow with this index.
    ///
    /// # Panics
    /// If there is no such flow.
    #[inline]
    pub fn value_mut(&mut self, index: usize) -> &mut V {
        &mut self.flows[index].value
    }

    #[cold]
    fn insert(&mut self, key: &FlowKey, hash: u64, at: usize, now_ns: u64) -> usize {
        self.counts.flows += 1;
        let index = self.flows.len();
        self.flows.push(Flow { key: *key, last_ns: now_ns, value: V::default() });
        self.slots[at] = hash >> 32 << 32 | (index as u64 + 1);
        if 2 * self.flows.len() > self.slots.len() {
            self.rebuild(2 * self.slots.len());
        }
        index
    }

    fn rebuild(&mut self, slots: usize) {
        self.slots.clear();
        self.slots.resize(slots, 0);
        for (index, flow) in self.flows.iter().enumerate() {
            let hash = flow.key.hash_with(self.seed);
            let mut at = hash as usize & (slots - 1);
            while self.slots[at] != 0 {
                at = (at + 1) & (slots - 1);
            }
            self.slots[at] = hash >> 32 << 32 | (index as u64 + 1);
        }
    }

    /// Adds the counters of a table that counted other packets.
    pub fn merge_counts(&mut self, other: FlowCounts) {
        self.counts.flows += other.flows;
        self.counts.expired += other.expired;
        self.counts.overflow_packets += other.overflow_packets;
    }

    /// Removes flows that have expired by `now_ns`, and passes each of them to `each`. For
    /// long-lived tables.
    pub fn expire(&mut self, now_ns: u64, mut each: impl FnMut(&Flow<V>)) {
        let Some(idle_ns) = self.idle_ns else { return };
        let before = self.flows.len();
        self.flows.retain(|flow| {
            let expired = now_ns.saturating_sub(flow.last_ns) > idle_ns;
            if expired {
                each(flow);
            }
            !expired
        });
        self.counts.expired += (before - self.flows.len()) as u64;
        if self.flows.len() < before {
            self.rebuild(self.slots.len());
        }
    }
}

impl<V> FlowTable<V> {
    /// Number of flows in the table.
    pub fn len(&self) -> usize {
        self.flows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    pub fn is_full(&self) -> bool {
        self.flows.len() >= self.limit
    }

    pub fn counts(&self) -> FlowCounts {
        self.counts
    }

    /// Number of flows that have not expired by `now_ns`; all flows if there is no idle time.
    pub fn active(&self, now_ns: u64) -> usize {
        let Some(idle_ns) = self.idle_ns else { return self.len() };
        self.flows.iter().filter(|flow| now_ns.saturating_sub(flow.last_ns) <= idle_ns).count()
    }

    /// Flows in the order of their first packets.
    pub fn iter(&self) -> std::slice::Iter<'_, Flow<V>> {
        self.flows.iter()
    }

    /// The same as [`FlowTable::iter`], as a slice.
    pub fn as_slice(&self) -> &[Flow<V>] {
        &self.flows
    }

    /// Memory usage in bytes, without memory that the values own.
    pub fn memory(&self) -> usize {
        self.slots.capacity() * 8 + self.flows.capacity() * size_of::<Flow<V>>()
    }
}

impl<'a, V> IntoIterator for &'a FlowTable<V> {
    type Item = &'a Flow<V>;
    type IntoIter = std::slice::Iter<'a, Flow<V>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn ipv4(protocol: u8, fragment: u16, rest: &[u8]) -> Vec<u8> {
        let mut packet =
            vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        packet[2..4].copy_from_slice(&((20 + rest.len()) as u16).to_be_bytes());
        packet[6..8].copy_from_slice(&fragment.to_be_bytes());
        packet.extend(rest);
        packet
    }

    fn ipv6(next: u8, rest: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, rest.len() as u8, next, 64];
        packet.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        packet.extend([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        packet.extend(rest);
        packet
    }

    fn ethernet(tail: &[&[u8]]) -> Vec<u8> {
        let macs: &[u8] = &[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        [&[macs], tail].concat().concat()
    }

    const UDP: [u8; 12] = [0, 53, 0x14, 0xe9, 0, 12, 0, 0, 1, 2, 3, 4];
    const TCP: [u8; 20] = [0, 80, 4, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x12, 0, 0, 0, 0, 0, 0];

    fn key(octets: &[u8], link: Link) -> String {
        Headers::parse(octets, link).key.to_string()
    }

    #[test]
    fn the_flow_is_found_under_tags_labels_and_sessions() {
        let udp = ipv4(17, 0, &UDP);
        let expected = "10.0.0.1:53 > 10.0.0.2:5353 UDP";
        let plain = ethernet(&[&[8, 0], &udp]);
        let headers = Headers::parse(&plain, Link::Ethernet);
        assert_eq!(
            (headers.network, headers.transport, headers.payload, headers.end),
            (14, 34, 42, 46)
        );
        assert_eq!(headers.key.to_string(), expected);
        let wrapped = [
            ethernet(&[&[0x81, 0, 0, 7, 8, 0], &udp]),
            ethernet(&[&[0x88, 0xa8, 0, 7, 0x81, 0, 0x20, 8, 8, 0], &udp]),
            ethernet(&[&[0x88, 0x47, 0, 0, 0x10, 64, 0, 0, 0x11, 64], &udp]),
            ethernet(&[&[0x88, 0x64, 0x11, 0, 0, 1, 0, 34, 0, 0x21], &udp]),
            ethernet(&[&[0, 40, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0], &udp]),
        ];
        for frame in &wrapped {
            assert_eq!(key(frame, Link::Ethernet), expected, "{frame:02x?}");
        }
        let tagged = Headers::parse(&wrapped[1], Link::Ethernet);
        assert_eq!((tagged.tags, tagged.vlan, tagged.ethertype), (2, [7, 0x2008], 0x800));
        assert_eq!(Headers::parse(&wrapped[2], Link::Ethernet).mpls_labels, 2);
        let cooked = [&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 8, 0][..], &udp].concat();
        assert_eq!(key(&cooked, Link::LinuxCookedV1), expected);
        let cooked =
            [&[8, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0][..], &udp].concat();
        assert_eq!(key(&cooked, Link::LinuxCookedV2), expected);
        assert_eq!(key(&udp, Link::from(101)), expected);
        assert_eq!(key(&[&[2, 0, 0, 0][..], &udp].concat(), Link::from(0)), expected);
        assert_eq!(key(&[&[0, 0, 0, 2][..], &udp].concat(), Link::from(108)), expected);
    }

    #[test]
    fn extension_headers_are_skipped_and_later_fragments_have_no_ports() {
        let hop = [44, 0, 1, 4, 0, 0, 0, 0];
        let fragment = |offset: u8| [6, 0, 0, offset, 0, 0, 0, 9];
        let first = ipv6(0, &[&hop[..], &fragment(1), &TCP].concat());
        let headers = Headers::parse(&first, Link::Raw);
        assert_eq!(headers.key.to_string(), "[fe80::1]:80 > [ff02::2]:1024 TCP");
        assert_eq!(
            (headers.fragment, headers.transport, headers.tcp_flags),
            (Fragment::First, 56, 0x12)
        );
        let later = Headers::parse(&ipv6(0, &[&hop[..], &fragment(8), &TCP].concat()), Link::Raw);
        assert_eq!(
            (later.fragment, later.key.src_port, later.key.protocol),
            (Fragment::Later, 0, 6)
        );
        let later = Headers::parse(&ipv4(17, 0x2001, &UDP), Link::Raw);
        assert_eq!((later.fragment, later.key.src_port, later.fault), (Fragment::Later, 0, None));
        assert_eq!(Headers::parse(&ipv4(17, 0x2000, &UDP), Link::Raw).fragment, Fragment::First);
        assert_eq!(Headers::parse(&ipv4(17, 0x4000, &UDP), Link::Raw).fragment, Fragment::Whole);
    }

    #[test]
    fn packets_without_ip_are_flows_of_macs() {
        let arp = ethernet(&[&[8, 6], &[0; 28]]);
        assert_eq!(key(&arp, Link::Ethernet), "02:00:00:00:00:01 > 02:00:00:00:00:02 ARP");
        assert_eq!(
            key(&ethernet(&[&[0x12, 0x34]]), Link::Ethernet),
            "02:00:00:00:00:01 > 02:00:00:00:00:02 EtherType 0x1234"
        );
        assert_eq!(
            Headers::parse(&ethernet(&[&[0, 3, 0x42, 0x42, 3]]), Link::Ethernet).ethertype,
            ethertype::LLC
        );
        assert_eq!(key(&ipv4(1, 0, &[8, 0, 0, 0]), Link::Raw), "10.0.0.1 > 10.0.0.2 ICMP");
        let both = Headers::parse(&arp, Link::Ethernet).key;
        assert_eq!(both.reversed().canonical().0, both.canonical().0);
    }

    #[test]
    fn cut_and_malformed_headers_are_faults() {
        let whole = ethernet(&[&[8, 0], &ipv4(6, 0, &TCP)]);
        for len in 0..whole.len() {
            let headers = Headers::parse(&whole[..len], Link::Ethernet);
            assert_eq!(headers.fault, Some(HeaderFault::Cut), "{len}");
        }
        assert_eq!(Headers::parse(&whole[..38], Link::Ethernet).key.src_port, 80);
        assert_eq!(Headers::parse(&whole, Link::Ethernet).fault, None);
        let fault = |at: usize, octet: u8| {
            let mut wrong = whole.clone();
            wrong[at] = octet;
            Headers::parse(&wrong, Link::Ethernet).fault
        };
        assert_eq!(fault(14, 0x55), Some(HeaderFault::Malformed));
        assert_eq!(fault(14, 0x43), Some(HeaderFault::Malformed));
        assert_eq!(fault(17, 19), Some(HeaderFault::Malformed));
        assert_eq!(fault(46, 0x40), Some(HeaderFault::Malformed));
        assert_eq!(Headers::parse(&[0x70; 60], Link::Raw).fault, Some(HeaderFault::Malformed));
    }

    #[test]
    fn a_flow_that_was_idle_for_too_long_is_another() {
        let mut table = FlowTable::<u32>::new(10, Some(1_000));
        let key = FlowKey { version: 4, ..FlowKey::default() };
        let mut seen = |now| table.seen(&key, now).map(|(_, seen)| seen);
        assert_eq!(
            [0, 1_000, 2_001, 1_500].map(&mut seen),
            [Seen::New, Seen::Again, Seen::Expired, Seen::Again].map(Some)
        );
        assert_eq!(table.counts(), FlowCounts { flows: 2, expired: 1, overflow_packets: 0 });
        assert_eq!((table.len(), table.active(3_001), table.active(3_002)), (1, 1, 0));
        let mut gone = Vec::new();
        table.expire(3_002, |flow| gone.push(flow.last_ns));
        assert_eq!((gone, table.len(), table.counts().expired), (vec![2_001], 0, 2));
        assert_eq!(table.seen(&key, 4_000).map(|s| s.1), Some(Seen::New));
    }

    fn any_key() -> impl Strategy<Value = FlowKey> {
        // Few distinct keys, so collisions are likely.
        (
            0..4u8,
            0..4u8,
            0..6u16,
            0..6u16,
            prop::sample::select(vec![1u8, 6, 17]),
            prop::sample::select(vec![0u8, 4, 6]),
        )
            .prop_map(|(a, b, src_port, dst_port, protocol, version)| {
                let (mut src, mut dst) = ([0; 16], [0; 16]);
                (src[3], dst[3]) = (a, b);
                if version == 6 {
                    (src[15], dst[15]) = (b, a);
                }
                FlowKey { src, dst, src_port, dst_port, protocol, version }
            })
    }

    proptest! {
        #[test]
        fn a_table_counts_as_a_hash_map_does(
            keys in prop::collection::vec(any_key(), 0..800), limit in 0..300usize,
        ) {
            let mut table = FlowTable::<u64>::new(limit, None);
            let (mut map, mut order, mut overflow) = (HashMap::new(), Vec::new(), 0);
            for (now, key) in keys.iter().enumerate() {
                if map.contains_key(key) || map.len() < limit {
                    *map.entry(*key).or_insert_with(|| { order.push(*key); 0 }) += 1;
                    *table.entry(key, now as u64).unwrap() += 1;
                } else {
                    overflow += 1;
                    prop_assert!(table.entry(key, now as u64).is_none());
                }
            }
            let counts = FlowCounts { flows: map.len() as u64, expired: 0, overflow_packets: overflow };
            prop_assert_eq!(table.counts(), counts);
            prop_assert_eq!(table.iter().map(|f| f.key).collect::<Vec<_>>(), order);
            prop_assert!(table.iter().all(|flow| map[&flow.key] == flow.value));
            prop_assert!(keys.iter().all(|key| table.get(key) == map.get(key)));
        }

        #[test]
        fn both_directions_have_one_canonical_key(key in any_key()) {
            let (one, swapped) = key.canonical();
            prop_assert_eq!(key.reversed().canonical().0, one);
            prop_assert_eq!(if swapped { one.reversed() } else { one }, key);
            prop_assert_eq!(key.reversed().reversed(), key);
        }

        #[test]
        fn plain_packets_are_parsed_alike(
            mut octets in prop::collection::vec(any::<u8>(), 30..80), len in 0..80u8, protocol in prop::sample::select(vec![1u8, 6, 17]),
            fragment in prop::sample::select(vec![0u8, 0, 0x40, 0x20, 1]), version in prop::sample::select(vec![0x45u8, 0x45, 0x46]),
        ) {
            octets[12..18].copy_from_slice(&[8, 0, version, 0, 0, len]);
            octets[20..24].copy_from_slice(&[fragment, 0, 64, protocol]);
            let parsed = Headers::parse(&octets, Link::Ethernet);
            match Headers::plain(&octets) {
                Some(key) => {
                    prop_assert_eq!((key, parsed.fault, parsed.fragment), (parsed.key, None, Fragment::Whole));
                    prop_assert_eq!((parsed.tags, parsed.mpls_labels), (0, 0));
                }
                // `plain` leaves these packets to the parser: they extend past the octets, have a
                // length of 0, or have options.
                None => prop_assert!(
                    parsed.fault.is_some() || parsed.fragment != Fragment::Whole || protocol == 1 || version != 0x45
                        || usize::from(len) + 14 > octets.len() || len < 28,
                    "{parsed:?}"
                ),
            }
        }

        #[test]
        fn offsets_ascend_and_stay_within_any_octets(
            octets in prop::collection::vec(any::<u8>(), 0..120), link in prop::sample::select(vec![0u16, 1, 101, 113, 276, 9]),
        ) {
            let h = Headers::parse(&octets, link.into());
            prop_assert!(h.network <= h.transport && h.transport <= h.payload && h.payload <= h.end, "{h:?}");
            prop_assert!(h.end as usize <= octets.len());
            prop_assert!(!h.key.to_string().is_empty());
        }
    }
}
