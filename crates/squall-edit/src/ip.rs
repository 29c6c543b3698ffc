//! Accesses fields of IP headers that edits need and that `Headers` does not have.

use squall_measure::flow::{Headers, Link};
use squall_units::be16;

use crate::sums::Delta;

/// The end of the packet according to its header, which may be beyond the captured octets. If the
/// length in the header is 0 (a GSO frame, a jumbogram), the end of the captured octets.
pub fn end(octets: &[u8], headers: &Headers) -> usize {
    let at = headers.network as usize;
    let (before, len) = match headers.key.version {
        4 => (0, usize::from(be16(octets, at + 2))),
        6 => (40, usize::from(be16(octets, at + 4))),
        _ => return octets.len(),
    };
    if len == 0 { octets.len() } else { at + before + len }
}

/// Sets the packet's length in its header to `len` octets. Also adapts the lengths in headers
/// before it on `link`, which PPPoE and 802.3 have.
pub fn set_len(octets: &mut [u8], link: Link, headers: &Headers, len: usize) {
    let at = headers.network as usize;
    if headers.key.version == 4 {
        let new = (len as u16).to_be_bytes();
        let mut delta = Delta::default();
        delta.replace(&octets[at + 2..at + 4], &new, false);
        octets[at + 2..at + 4].copy_from_slice(&new);
        delta.apply(octets, at + 10);
    } else {
        octets[at + 4..at + 6].copy_from_slice(&((len - 40) as u16).to_be_bytes());
    }
    set_outer_len(octets, link, at, len);
}

/// LINKTYPE_PPP_ETHER: packets begin with a PPPoE header.
const PPPOE: Link = Link::Rare(51);
/// LINKTYPE_NFLOG.
const NFLOG: Link = Link::Rare(239);

/// Sets the lengths in the headers before `network`, if they have any, for a packet of `len`
/// octets.
pub fn set_outer_len(octets: &mut [u8], link: Link, network: usize, len: usize) {
    // A PPPoE header has version and type, code 0, session and length; the PPP protocol follows it.
    let in_pppoe = network >= 8
        && octets[network - 8..network - 6] == [0x11, 0]
        && matches!(octets[network - 2..network], [0, 0x21] | [0, 0x57])
        && (link == PPPOE || network >= 10 && octets[network - 10..network - 8] == [0x88, 0x64]);
    if in_pppoe {
        octets[network - 4..network - 2]
            .copy_from_slice(&((len + 2).min(0xffff) as u16).to_be_bytes());
    } else if link == Link::Ethernet
        && network >= 10
        && octets[network - 8..network - 2] == [0xaa, 0xaa, 3, 0, 0, 0]
        && be16(octets, network - 10) <= 1500
        && len + 8 <= 1500
    {
        octets[network - 10..network - 8].copy_from_slice(&((len + 8) as u16).to_be_bytes());
    } else if link == NFLOG && network >= 8 {
        // The payload attribute, in the byte order in which its type is 9.
        let with_header = (len + 4).min(0xffff) as u16;
        let length = match octets[network - 2] {
            9 => with_header.to_le_bytes(),
            _ => with_header.to_be_bytes(),
        };
        octets[network - 4..network - 2].copy_from_slice(&length);
    }
}

/// An IPv6 extension header that may be before a fragment header, or that the destination processes
/// (RFC 8200 §4).
pub struct Extension {
    pub kind: u8,
    pub at: usize,
    pub len: usize,
    /// Offset of the next-header field that gives the type of this header.
    pub next_header_at: usize,
}

/// The extension headers of an IPv6 packet that were completely captured, in order; ends at a
/// fragment header.
pub fn extensions<'a>(
    octets: &'a [u8],
    headers: &Headers,
) -> impl Iterator<Item = Extension> + use<'a> {
    let network = headers.network as usize;
    let mut next_header_at = network + 6;
    let mut at = network + 40;
    let mut over = headers.key.version != 6;
    std::iter::from_fn(move || {
        if over {
            return None;
        }
        let kind = octets[next_header_at];
        let len = match kind {
            0 | 43 | 60 | 135 | 139 | 140 => 8 * usize::from(*octets.get(at + 1)?) + 8,
            51 => 4 * usize::from(*octets.get(at + 1)?) + 8,
            44 => 8,
            _ => return None,
        };
        if at + len > octets.len() {
            return None;
        }
        over = kind == 44;
        let extension = Extension { kind, at, len, next_header_at };
        next_header_at = at;
        at += len;
        Some(extension)
    })
}

/// Whether the transport checksum covers a destination other than the one in the header (RFC 8200
/// §8.1), because a routing header has segments left.
pub fn is_routed(octets: &[u8], headers: &Headers) -> bool {
    extensions(octets, headers).any(|header| header.kind == 43 && octets[header.at + 3] > 0)
}
