//! Link headers other than Ethernet. They are only parsed: sent frames are always Ethernet.

use std::ops::Range;

use squall_units::{be16, be32, get_be16};

use crate::table::{MAC_1, MAC_2};

/// Supported numbers in the tcpdump.org list of link-layer header types.
mod number {
    pub const NULL: u16 = 0;
    pub const TOKEN_RING: u16 = 6;
    pub const PPP: u16 = 9;
    pub const FDDI: u16 = 10;
    /// 12 and 14 are internal values of some systems that occur in files.
    pub const RAW: [u16; 3] = [12, 14, 101];
    pub const PPP_HDLC: u16 = 50;
    pub const PPP_ETHER: u16 = 51;
    pub const C_HDLC: u16 = 104;
    pub const IEEE802_11: u16 = 105;
    pub const FRAME_RELAY: u16 = 107;
    pub const LOOP: u16 = 108;
    pub const ENC: u16 = 109;
    pub const LINUX_SLL: u16 = 113;
    pub const PFLOG: u16 = 117;
    pub const IP_OVER_FC: u16 = 122;
    pub const RADIOTAP: u16 = 127;
    pub const PPP_PPPD: u16 = 166;
    pub const PPP_WITH_DIR: u16 = 204;
    pub const IPV4: u16 = 228;
    pub const IPV6: u16 = 229;
    pub const NFLOG: u16 = 239;
    pub const IPOIB: u16 = 242;
    pub const LINUX_SLL2: u16 = 276;
}

/// The only one that is also built.
pub const ETHERNET: u16 = 1;

pub const IPV4: u16 = 0x0800;
pub const IPV6: u16 = 0x86dd;
pub const PPPOE_SESSION: u16 = 0x8864;

/// A packet without its link header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inner {
    /// EtherType of the network packet at `octets`.
    pub ethertype: u16,
    /// Range of the network packet in the whole packet, without a trailer of the link.
    pub octets: Range<usize>,
    /// The link's addresses, if they have six octets.
    pub dst: Option<[u8; 6]>,
    pub src: Option<[u8; 6]>,
    /// The text of `tcpdump -n` for the link, with a trailing blank; usually empty.
    pub prefix: String,
}

/// Parses the link header. `link_type` is a number of the tcpdump.org list; `octets` are a whole
/// packet or its beginning.
///
/// # Errors
/// A description of a packet without a readable network packet: "802.11 data, encrypted".
pub fn inner(link_type: u16, octets: &[u8]) -> Result<Inner, String> {
    match link_type {
        ETHERNET => {
            let ethertype = get_be16(octets, 12).ok_or("Ethernet, cut off")?;
            let (dst, src) = (mac(octets, 0), mac(octets, 6));
            Ok(Inner { dst, src, ..Inner::after(14, ethertype, octets) })
        }
        n if number::RAW.contains(&n) => raw(octets, 0),
        number::IPV4 => Ok(Inner::after(0, IPV4, octets)),
        number::IPV6 => Ok(Inner::after(0, IPV6, octets)),
        number::NULL | number::LOOP => loopback(octets),
        // Address family, SPI and flags, in host byte order.
        number::ENC => raw(octets, 12),
        number::LINUX_SLL => cooked_v1(octets),
        number::LINUX_SLL2 => cooked_v2(octets),
        number::PPP | number::PPP_HDLC | number::PPP_PPPD => ppp(octets, 0),
        number::PPP_WITH_DIR => ppp(octets, 1),
        number::PPP_ETHER => pppoe(octets, 0),
        number::C_HDLC => {
            let ethertype = get_be16(octets, 2).ok_or("Cisco HDLC, cut off")?;
            Ok(Inner::after(4, ethertype, octets))
        }
        number::IEEE802_11 => wlan(octets, 0..octets.len(), false),
        number::RADIOTAP => radiotap(octets),
        number::FDDI => fddi(octets),
        number::TOKEN_RING => token_ring(octets),
        number::IP_OVER_FC => ip_over_fc(octets),
        number::IPOIB => {
            // As operating systems and tcpdump define it: 40 octets of InfiniBand's global route
            // header, which may be zeros, then EtherType and two reserved octets (RFC 4391 §6).
            let ethertype = get_be16(octets, 40).ok_or("IP over InfiniBand, cut off")?;
            Ok(Inner::after(44, ethertype, octets))
        }
        number::FRAME_RELAY => frame_relay(octets),
        number::PFLOG => pflog(octets),
        number::NFLOG => nflog(octets),
        other => Err(format!("link type {other}, which is not supported")),
    }
}

/// Whether packets of `link_type` consist of one link header and one packet that extends to their
/// end, and can therefore be rewritten. 802.11 frames may be aggregates, or end with their FCS.
pub fn is_plain(link_type: u16) -> bool {
    use number::*;
    let plain = [
        ETHERNET,
        NULL,
        TOKEN_RING,
        PPP,
        FDDI,
        PPP_HDLC,
        PPP_ETHER,
        C_HDLC,
        FRAME_RELAY,
        LOOP,
        ENC,
        LINUX_SLL,
        PFLOG,
        IP_OVER_FC,
        PPP_PPPD,
        PPP_WITH_DIR,
        IPV4,
        IPV6,
        NFLOG,
        IPOIB,
        LINUX_SLL2,
    ];
    RAW.contains(&link_type) || plain.contains(&link_type)
}

/// Converts the packet to an Ethernet frame that can be sent, with the link's addresses if it has
/// any, otherwise the default addresses of `eth`.
///
/// # Errors
/// If `octets` contain no readable network packet.
pub fn to_ethernet(link_type: u16, octets: &[u8]) -> Result<Vec<u8>, String> {
    if link_type == ETHERNET {
        return Ok(octets.to_vec());
    }
    let Inner { ethertype, octets: range, dst, src, .. } = inner(link_type, octets)?;
    let default = |mac: u128| std::array::from_fn(|i| (mac >> (40 - 8 * i)) as u8);
    let (dst, src) = (dst.unwrap_or_else(|| default(MAC_2)), src.unwrap_or_else(|| default(MAC_1)));
    Ok([&dst[..], &src, &ethertype.to_be_bytes(), &octets[range]].concat())
}

/// The content of a PPPoE session, whose header is at octet `at`.
pub(crate) fn pppoe(octets: &[u8], at: usize) -> Result<Inner, String> {
    let session = get_be16(octets, at + 2).ok_or("PPPoE, cut off")?;
    let header = octets.get(at..at + 6).ok_or("PPPoE, cut off")?;
    if header[..2] != [0x11, 0] {
        return Err(format!("PPPoE, code {:#04x}, session {session:#x}", header[1]));
    }
    let prefix = format!("PPPoE [ses {session:#x}] ");
    match ppp(octets, at + 6) {
        Ok(inner) => Ok(Inner { prefix, ..inner }),
        Err(what) => Err(prefix + &what),
    }
}

impl Inner {
    fn after(at: usize, ethertype: u16, octets: &[u8]) -> Self {
        let octets = at.min(octets.len())..octets.len();
        Self { ethertype, octets, dst: None, src: None, prefix: String::new() }
    }
}

fn mac(octets: &[u8], at: usize) -> Option<[u8; 6]> {
    octets.get(at..)?.first_chunk().copied()
}

fn raw(octets: &[u8], at: usize) -> Result<Inner, String> {
    match octets.get(at).map(|first| first >> 4) {
        Some(4) => Ok(Inner::after(at, IPV4, octets)),
        Some(6) => Ok(Inner::after(at, IPV6, octets)),
        Some(version) => Err(format!("raw IP of version {version}")),
        None => Err("raw IP, cut off".into()),
    }
}

/// The family is in the byte order of the capturing machine (NULL), which files do not record, or
/// of the network (LOOP).
fn loopback(octets: &[u8]) -> Result<Inner, String> {
    let family = octets.first_chunk().ok_or("BSD loopback, cut off")?;
    match u32::from_le_bytes(*family).min(u32::from_be_bytes(*family)) {
        2 => Ok(Inner::after(4, IPV4, octets)),
        // Linux; NetBSD and OpenBSD; FreeBSD; macOS.
        10 | 24 | 28 | 30 => Ok(Inner::after(4, IPV6, octets)),
        family => Err(format!("BSD loopback, address family {family}")),
    }
}

fn cooked_v1(octets: &[u8]) -> Result<Inner, String> {
    const CUT: &str = "Linux cooked v1, cut off";
    let (hardware, address_len) =
        (get_be16(octets, 2).ok_or(CUT)?, get_be16(octets, 4).ok_or(CUT)?);
    let src = mac(octets, 6).filter(|_| address_len == 6);
    let inner = cooked(octets, hardware, get_be16(octets, 14).ok_or(CUT)?, 16)?;
    Ok(Inner { src, ..inner })
}

fn cooked_v2(octets: &[u8]) -> Result<Inner, String> {
    let header = octets.first_chunk::<20>().ok_or("Linux cooked v2, cut off")?;
    let interface = be32(header, 4);
    let direction = match header[10] {
        0 => "In",
        1 => "B",
        2 => "M",
        3 => "P",
        4 => "Out",
        _ => "?",
    };
    let hardware = be16(header, 8);
    let inner = cooked(octets, hardware, be16(header, 0), 20)?;
    let prefix = format!("ifindex {interface} {direction:<3} ");
    Ok(Inner { src: mac(octets, 12).filter(|_| header[11] == 6), prefix, ..inner })
}

/// Parses a Linux cooked header, whose protocol is an EtherType only for some kinds of hardware.
fn cooked(octets: &[u8], hardware: u16, protocol: u16, at: usize) -> Result<Inner, String> {
    match (hardware, protocol) {
        (824, _) => Err("netlink message".into()),
        (_, 12) => Err("CAN frame".into()),
        // ARPHRD_NONE is the type of tunnels, whose protocol may be missing.
        (0xfffe, 0) => raw(octets, at),
        (_, 1 | 4) => llc(octets, at, octets.len()),
        _ => Ok(Inner::after(at, protocol, octets)),
    }
}

/// HDLC's address and control may precede the header, and the protocol may be compressed to one
/// octet (RFC 1661 §6.5, RFC 1662).
fn ppp(octets: &[u8], mut at: usize) -> Result<Inner, String> {
    const CUT: &str = "PPP, cut off";
    if octets.get(at..at + 2) == Some(&[0xff, 3]) {
        at += 2;
    }
    let first = *octets.get(at).ok_or(CUT)?;
    let (protocol, len) = match first & 1 {
        1 => (u16::from(first), 1),
        _ => (get_be16(octets, at).ok_or(CUT)?, 2),
    };
    at += len;
    match protocol {
        0x0021 => Ok(Inner::after(at, IPV4, octets)),
        0x0057 => Ok(Inner::after(at, IPV6, octets)),
        0x0281 => Ok(Inner::after(at, 0x8847, octets)),
        0xc021 => Err("PPP, LCP".into()),
        0xc023 => Err("PPP, PAP".into()),
        0xc223 => Err("PPP, CHAP".into()),
        0x8021 => Err("PPP, IPCP".into()),
        0x8057 => Err("PPP, IP6CP".into()),
        other => Err(format!("PPP, protocol {other:#06x}")),
    }
}

/// ANSI X3.139: frame control, destination, source; asynchronous frames contain LLC. Addresses are
/// in Ethernet's bit order, as Linux and most BSDs deliver them.
fn fddi(octets: &[u8]) -> Result<Inner, String> {
    let header = octets.first_chunk::<13>().ok_or("FDDI, cut off")?;
    if header[0] & 0xf0 != 0x50 {
        return Err(format!("FDDI, frame control {:#04x}", header[0]));
    }
    let inner = llc(octets, 13, octets.len())?;
    Ok(Inner { dst: mac(octets, 1), src: mac(octets, 7), ..inner })
}

/// IEEE 802.5 §3: access control, frame control, destination, source, and routing information if
/// the first bit of the source is set. Its length is in the lower five bits of its first octet.
fn token_ring(octets: &[u8]) -> Result<Inner, String> {
    const CUT: &str = "token ring, cut off";
    let header = octets.first_chunk::<14>().ok_or(CUT)?;
    if header[1] & 0xc0 != 0x40 {
        return Err(format!("token ring, frame control {:#04x}", header[1]));
    }
    let routed = header[8] & 0x80 != 0;
    let routing_len =
        if routed { usize::from(octets.get(14).ok_or(CUT)? & 0x1f).max(2) } else { 0 };
    let mut src = mac(octets, 8);
    src.iter_mut().for_each(|src| src[0] &= 0x7f);
    Ok(Inner { dst: mac(octets, 2), src, ..llc(octets, 14 + routing_len, octets.len())? })
}

/// RFC 2625 §3.2: Fibre Channel's network header, in which each address has a type (1: a MAC
/// address), then LLC and SNAP.
fn ip_over_fc(octets: &[u8]) -> Result<Inner, String> {
    let header = octets.first_chunk::<16>().ok_or("IP over Fibre Channel, cut off")?;
    let address = |at: usize| mac(octets, at + 2).filter(|_| header[at] >> 4 == 1);
    Ok(Inner { dst: address(0), src: address(8), ..llc(octets, 16, octets.len())? })
}

/// Q.922's address of 2 to 4 octets, the last of which has its lowest bit set, then the
/// encapsulation of RFC 2427 or Cisco's EtherType.
fn frame_relay(octets: &[u8]) -> Result<Inner, String> {
    const CUT: &str = "frame relay, cut off";
    let address = octets.iter().take(4).position(|octet| octet & 1 == 1);
    let at = 1 + address.filter(|last| *last > 0).ok_or(CUT)?;
    if octets.get(at) != Some(&3) {
        return match get_be16(octets, at).ok_or(CUT)? {
            ethertype @ 0x600.. => Ok(Inner::after(at + 2, ethertype, octets)),
            other => Err(format!("frame relay, control {:#04x}", other >> 8)),
        };
    }
    // A zero may pad to an even length.
    let at = at + 1 + usize::from(octets.get(at + 1) == Some(&0));
    match *octets.get(at).ok_or(CUT)? {
        0xcc => Ok(Inner::after(at + 1, IPV4, octets)),
        0x8e => Ok(Inner::after(at + 1, IPV6, octets)),
        0x80 => match octets.get(at + 1..at + 4).ok_or(CUT)? {
            [0, 0, 0] => Ok(Inner::after(at + 6, get_be16(octets, at + 4).ok_or(CUT)?, octets)),
            oui => Err(format!("frame relay, SNAP of {:02x}{:02x}{:02x}", oui[0], oui[1], oui[2])),
        },
        other => Err(format!("frame relay, protocol {other:#04x}")),
    }
}

/// The header of pf begins with its length without padding and the address family.
fn pflog(octets: &[u8]) -> Result<Inner, String> {
    const CUT: &str = "pflog, cut off";
    let &[len, family] = octets.first_chunk().ok_or(CUT)?;
    let at = usize::from(len).next_multiple_of(4);
    if octets.len() < at {
        return Err(CUT.into());
    }
    match family {
        2 => Ok(Inner::after(at, IPV4, octets)),
        // Linux; OpenBSD and NetBSD; FreeBSD; macOS.
        10 | 24 | 28 | 30 => Ok(Inner::after(at, IPV6, octets)),
        family => Err(format!("pflog, address family {family}")),
    }
}

/// Family, version and resource, then attributes (linux/netfilter/nfnetlink_log.h). Their length
/// and type are in the byte order of the capturing machine, which the file does not record.
fn nflog(octets: &[u8]) -> Result<Inner, String> {
    const CUT: &str = "NFLOG, cut off";
    const PACKET_HEADER: u16 = 1;
    const HARDWARE_ADDRESS: u16 = 8;
    const PAYLOAD: u16 = 9;
    let header = octets.first_chunk::<8>().ok_or(CUT)?;
    // There are only about twenty types, so a small number shows the byte order.
    let little = u16::from_le_bytes([header[6], header[7]]) < 0x100;
    let number = |at: usize| {
        let two = octets.get(at..at + 2)?.first_chunk().copied()?;
        Some(if little { u16::from_le_bytes(two) } else { u16::from_be_bytes(two) })
    };
    let (mut hook_protocol, mut src) = (None, None);
    let mut at = 4;
    loop {
        let (len, kind) = (usize::from(number(at).ok_or(CUT)?), number(at + 2).ok_or(CUT)?);
        if len < 4 {
            return Err(format!("NFLOG, attribute of {len} octets"));
        }
        match kind & 0x7fff {
            PACKET_HEADER => hook_protocol = get_be16(octets, at + 4),
            HARDWARE_ADDRESS if get_be16(octets, at + 4) == Some(6) => src = mac(octets, at + 8),
            PAYLOAD => {
                let ethertype = match (header[0], hook_protocol) {
                    (2, _) => IPV4,
                    (10, _) => IPV6,
                    // The packet comes from a bridge, from ARP, or from an interface.
                    (_, Some(protocol)) => protocol,
                    (family, None) => return Err(format!("NFLOG, address family {family}")),
                };
                let inner = Inner::after(at + 4, ethertype, octets);
                let end = (at + len).min(octets.len()).max(inner.octets.start);
                return Ok(Inner { octets: inner.octets.start..end, src, ..inner });
            }
            _ => {}
        }
        at += len.next_multiple_of(4);
    }
}

/// A SNAP header contains an EtherType (RFC 1042); other LLC content is not parsed here.
pub(crate) fn llc(octets: &[u8], at: usize, end: usize) -> Result<Inner, String> {
    match octets.get(at..at + 8) {
        Some(&[0xaa, 0xaa, 3, 0, 0, 0 | 0xf8, high, low]) => {
            let inner = Inner::after(at + 8, u16::from_be_bytes([high, low]), octets);
            Ok(Inner { octets: inner.octets.start..end.max(inner.octets.start), ..inner })
        }
        _ => match octets.get(at..at + 3) {
            Some(&[dsap, ssap, control]) => {
                Err(format!("LLC, dsap {dsap:#04x}, ssap {ssap:#04x}, control {control:#04x}"))
            }
            _ => Err("LLC, cut off".into()),
        },
    }
}

/// The radiotap header states its own length, and whether an FCS or padding follows (radiotap.org).
fn radiotap(octets: &[u8]) -> Result<Inner, String> {
    const CUT: &str = "802.11 with radiotap, cut off";
    let le32 = |at: usize| octets.get(at..)?.first_chunk().map(|four| u32::from_le_bytes(*four));
    let len =
        octets.get(2..4).map(|two| usize::from(u16::from_le_bytes([two[0], two[1]]))).ok_or(CUT)?;
    if octets[0] != 0 || len < 8 || octets.len() < len {
        return Err(CUT.into());
    }
    let present = le32(4).ok_or(CUT)?;
    let mut at = 8;
    // Each bitmap word may announce a further one.
    let mut word = present;
    while word >> 31 == 1 && at < len {
        word = le32(at).ok_or(CUT)?;
        at += 4;
    }
    if present & 1 != 0 {
        // Skips the hardware's time, which is aligned.
        at = at.next_multiple_of(8) + 8;
    }
    let flags = if present & 2 != 0 && at < len { octets[at] } else { 0 };
    let fcs = if flags & 0x10 != 0 { 4 } else { 0 };
    wlan(octets, len..octets.len().saturating_sub(fcs).max(len), flags & 0x20 != 0)
}

/// IEEE 802.11-2020 §9.2 and 9.3. `padded`: the header is padded to a multiple of 4.
fn wlan(octets: &[u8], frame: Range<usize>, padded: bool) -> Result<Inner, String> {
    const CUT: &str = "802.11, cut off";
    const MANAGEMENT: [&str; 16] = [
        "association request",
        "association response",
        "reassociation request",
        "reassociation response",
        "probe request",
        "probe response",
        "timing advertisement",
        "reserved",
        "beacon",
        "ATIM",
        "disassociation",
        "authentication",
        "deauthentication",
        "action",
        "action without acknowledgment",
        "reserved",
    ];
    const CONTROL: [&str; 16] = [
        "reserved",
        "reserved",
        "trigger",
        "TACK",
        "beamforming report poll",
        "NDP announcement",
        "control extension",
        "control wrapper",
        "block ack request",
        "block ack",
        "PS-poll",
        "RTS",
        "CTS",
        "ack",
        "CF-end",
        "CF-end with CF-ack",
    ];
    let start = frame.start;
    let control = octets.get(start..start + 2).ok_or(CUT)?;
    let (kind, subtype, flags) = (control[0] >> 2 & 3, control[0] >> 4, control[1]);
    match kind {
        0 => return Err(format!("802.11 {}", MANAGEMENT[usize::from(subtype)])),
        1 => return Err(format!("802.11 {}", CONTROL[usize::from(subtype)])),
        3 => return Err("802.11 extension".into()),
        _ => {}
    }
    let (to_ds, from_ds, protected, order) =
        (flags & 1 != 0, flags & 2 != 0, flags & 0x40 != 0, flags & 0x80 != 0);
    let qos = subtype & 8 != 0;
    if subtype & 4 != 0 {
        return Err("802.11 null data".into());
    }
    if protected {
        return Err("802.11 data, encrypted".into());
    }
    let mut len = 24;
    if to_ds && from_ds {
        len += 6;
    }
    let mut aggregated = false;
    if qos {
        aggregated = octets.get(start + len).ok_or(CUT)? & 0x80 != 0;
        len += if order { 6 } else { 2 };
    }
    let at = start + if padded { len.next_multiple_of(4) } else { len };
    let address = |i: usize| mac(octets, start + [4, 10, 16, 24][i - 1]);
    let (mut dst, mut src) = match (to_ds, from_ds) {
        (false, false) => (address(1), address(2)),
        (false, true) => (address(1), address(3)),
        (true, false) => (address(3), address(2)),
        (true, true) => (address(3), address(4)),
    };
    let inner = if aggregated {
        // The first packet of an aggregate: its addresses and length precede it.
        (dst, src) = (mac(octets, at), mac(octets, at + 6));
        let end = at + 14 + usize::from(get_be16(octets, at + 12).ok_or(CUT)?);
        llc(octets, at + 14, end.min(frame.end))?
    } else {
        llc(octets, at, frame.end)?
    };
    Ok(Inner { dst, src, ..inner })
}

#[cfg(test)]
mod tests {
    use super::*;

    const IP: [u8; 4] = [0x45, 1, 2, 3];
    const SNAP: [u8; 8] = [0xaa, 0xaa, 3, 0, 0, 0, 8, 0];

    /// The packet header, a hardware address, a prefix, and the payload with its own header.
    fn nflog(family: u8, order: impl Fn(u16) -> [u8; 2]) -> Vec<u8> {
        let attribute =
            |len: u16, kind: u16, value: &[u8]| [&order(len)[..], &order(kind), value].concat();
        [
            vec![family, 0, 0, 5],
            attribute(8, 1, &[8, 0, 1, 0]),
            attribute(16, 8, &[0, 6, 0, 0, 2, 0, 0, 0, 0, 9, 0, 0]),
            attribute(6, 10, &[b'p', 0, 0, 0]),
            attribute(4 + IP.len() as u16, 9, &[]),
        ]
        .concat()
    }

    fn found(link_type: u16, parts: &[&[u8]]) -> Result<(u16, Vec<u8>), String> {
        let octets = parts.concat();
        inner(link_type, &octets).map(|inner| (inner.ethertype, octets[inner.octets].to_vec()))
    }

    #[test]
    fn the_network_packet_is_found_after_each_link_header() {
        let sll = [&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 9, 0, 0][..], &[8, 0]].concat();
        let sll2 = [&[8, 0, 0, 0, 0, 0, 0, 2, 0, 1, 4, 6, 2, 0, 0, 0, 0, 9, 0, 0][..]].concat();
        for (link_type, front) in [
            (1, [&[0; 12][..], &[8, 0]].concat()),
            (0, vec![2, 0, 0, 0]),
            (0, vec![0, 0, 0, 2]),
            (108, vec![0, 0, 0, 2]),
            (12, vec![]),
            (14, vec![]),
            (101, vec![]),
            (228, vec![]),
            (113, sll),
            (276, sll2),
            (9, vec![0xff, 3, 0, 0x21]),
            (9, vec![0, 0x21]),
            (9, vec![0x21]),
            (204, vec![1, 0xff, 3, 0, 0x21]),
            (50, vec![0xff, 3, 0, 0x21]),
            (51, vec![0x11, 0, 0, 7, 0, 6, 0, 0x21]),
            (104, vec![0x0f, 0, 8, 0]),
            (109, vec![0; 12]),
            (10, [&[0x50][..], &[2; 12], &SNAP].concat()),
            (6, [&[0x10, 0x40][..], &[2; 12], &SNAP].concat()),
            (
                6,
                [
                    &[0x10, 0x40][..],
                    &[2; 6],
                    &[0x82, 2, 2, 2, 2, 2],
                    &[6, 0x30, 0, 0x11, 0, 0x20],
                    &SNAP,
                ]
                .concat(),
            ),
            (122, [&[0x10, 0][..], &[2; 6], &[0x10, 0], &[2; 6], &SNAP].concat()),
            (242, [&[0; 40][..], &[8, 0, 0, 0]].concat()),
            (107, vec![0x18, 0x41, 3, 0xcc]),
            (107, vec![0x18, 0x40, 2, 3, 3, 0xcc]),
            (107, vec![0x18, 0x41, 3, 0, 0x80, 0, 0, 0, 8, 0]),
            (107, vec![0x18, 0x41, 8, 0]),
            (117, [&[61, 2][..], &[0; 62]].concat()),
            (117, [&[100, 2][..], &[0; 98]].concat()),
            (239, nflog(2, |number| number.to_le_bytes())),
            (239, nflog(2, |number| number.to_be_bytes())),
            (239, nflog(7, |number| number.to_le_bytes())),
        ] {
            assert_eq!(
                found(link_type, &[&front, &IP]),
                Ok((IPV4, IP.to_vec())),
                "{link_type} {front:02x?}"
            );
            for cut in 0..front.len() {
                let _ = inner(link_type, &front[..cut]);
            }
        }
        assert_eq!(found(0, &[&[30, 0, 0, 0], &[0x60]]), Ok((IPV6, vec![0x60])));
        assert_eq!(found(107, &[&[0x18, 0x41, 3, 0x8e], &[0x60]]), Ok((IPV6, vec![0x60])));
        assert_eq!(found(117, &[&[61, 24], &[0; 62], &[0x60]]), Ok((IPV6, vec![0x60])));
        assert_eq!(found(101, &[&[0x60]]), Ok((IPV6, vec![0x60])));
        assert!(
            inner(101, &[0x50]).is_err() && inner(189, &IP).is_err() && inner(101, &[]).is_err()
        );
    }

    #[test]
    fn data_frames_of_802_11_have_a_packet_unless_encrypted() {
        let header = |control: [u8; 2], len: usize| [&control[..], &vec![7; len - 2]].concat();
        for (control, len) in [
            ([0x08, 0x01], 24), // to the distribution system
            ([0x08, 0x02], 24),
            ([0x08, 0x03], 30), // four addresses
            ([0x88, 0x01], 26), // QoS
            ([0x88, 0x03], 32),
            ([0x88, 0x81], 30), // with HT control
        ] {
            assert_eq!(
                found(105, &[&header(control, len), &SNAP, &IP]),
                Ok((IPV4, IP.to_vec())),
                "{control:02x?}"
            );
        }
        let prefix =
            |control: [u8; 2]| found(105, &[&header(control, 24), &SNAP, &IP]).unwrap_err();
        assert_eq!(prefix([0x08, 0x41]), "802.11 data, encrypted");
        assert_eq!(prefix([0x80, 0]), "802.11 beacon");
        assert_eq!(prefix([0xd4, 0]), "802.11 ack");
        assert_eq!(prefix([0x48, 1]), "802.11 null data");

        // Radiotap with the hardware's time, and with flags for an FCS and for padding after the
        // header.
        let tap = [&[0, 0, 17, 0, 3, 0, 0, 0][..], &[9; 8], &[0x30]].concat();
        let qos = header([0x88, 0x02], 26);
        assert_eq!(
            found(127, &[&tap, &qos, &[0, 0], &SNAP, &IP, &[1, 2, 3, 4]]),
            Ok((IPV4, IP.to_vec()))
        );
        // An aggregate's first packet, which has its own length.
        let mut qos = header([0x88, 0x02], 26);
        qos[24] = 0x80;
        let sub = [&[1; 6][..], &[2; 6], &[0, 12]].concat();
        assert_eq!(found(105, &[&qos, &sub, &SNAP, &IP, &[9; 20]]), Ok((IPV4, IP.to_vec())));
    }

    #[test]
    fn other_links_become_ethernet_with_the_addresses_they_have() {
        let frame = to_ethernet(101, &IP).unwrap();
        assert_eq!(frame, [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0][..], &IP].concat());
        let sll = [&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 9, 0, 0, 8, 0][..], &IP].concat();
        assert_eq!(to_ethernet(113, &sll).unwrap()[6..12], [2, 0, 0, 0, 0, 9]);
        assert_eq!(to_ethernet(1, &[1, 2]).unwrap(), [1, 2]);
        let (dst, src) = ([2, 0, 0, 0, 0, 8], [2, 0, 0, 0, 0, 9]);
        for (link_type, front, has_dst) in [
            (10, [&[0x50][..], &dst, &src, &SNAP].concat(), true),
            // The source's first bit announces routing information.
            (6, [&[0x10, 0x40][..], &dst, &[0x82], &src[1..], &[2, 0], &SNAP].concat(), true),
            (122, [&[0x10, 0][..], &dst, &[0x10, 0], &src, &SNAP].concat(), true),
            (239, nflog(2, |number| number.to_le_bytes()), false),
        ] {
            let frame = to_ethernet(link_type, &[&front[..], &IP].concat()).unwrap();
            assert_eq!(frame[6..], [&src[..], &[8, 0], &IP].concat(), "{link_type}");
            assert_eq!(frame[..6] == dst, has_dst, "{link_type}");
        }
        assert!(to_ethernet(189, &[0; 64]).unwrap_err().contains("189"));
    }
}
