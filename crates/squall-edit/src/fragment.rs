//! Fragments packets that exceed an MTU (RFC 791 §3.2, RFC 8200 §4.5).

use squall_measure::flow::Link;
use squall_units::be16;

use crate::{Reason, frame::Frame, ip, sums::Delta};

/// How a packet is cut into fragments.
#[derive(Debug, PartialEq, Eq)]
pub struct Cuts {
    link: Link,
    network: usize,
    /// Octets of data in each fragment except the last; a multiple of 8.
    step: usize,
    /// Start and end of the data in the packet.
    data: usize,
    end: usize,
    /// Offset of the data in the original datagram, in octets.
    offset: usize,
    /// Whether the packet itself is a fragment, and not the last one.
    more: bool,
    kind: Kind,
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    V4 {
        identification: u16,
        header: usize,
    },
    /// The fragment header is inserted between the first `before` octets and the data, replacing
    /// anything between them.
    V6 {
        identification: u32,
        before: usize,
        next_header: u8,
        next_header_at: usize,
    },
}

/// Computes how to cut the packet; `None` if it fits.
///
/// # Errors
/// The [`Reason`] why the packet cannot be fragmented.
pub fn cuts(frame: &Frame, mtu: usize, identification: u32) -> Result<Option<Cuts>, Reason> {
    let (network, end) = (frame.headers.network as usize, frame.ip_end());
    if end.max(network) - network <= mtu {
        return Ok(None);
    }
    let octets = &frame.octets[..];
    if end > octets.len() {
        return Err(Reason::Cut);
    }
    let step = |room: Option<usize>| match room.map(|room| room & !7) {
        None | Some(0) => Err(Reason::SmallMtu),
        Some(step) => Ok(step),
    };
    if frame.headers.key.version == 4 {
        let header = usize::from(octets[network] & 15) * 4;
        if header < 20 || network + header > end {
            return Err(Reason::Headers);
        }
        let word = be16(octets, network + 6);
        // A packet with the don't-fragment flag may have no useful identification (RFC 6864).
        let identification = match be16(octets, network + 4) {
            0 => (identification % 0xffff) as u16 + 1,
            own => own,
        };
        return Ok(Some(Cuts {
            link: frame.link,
            network,
            step: step(mtu.checked_sub(header))?,
            data: network + header,
            end,
            offset: usize::from(word & 0x1fff) * 8,
            more: word & 0x2000 != 0,
            kind: Kind::V4 { identification, header },
        }));
    }
    // Each fragment repeats hop-by-hop options, the routing header, and destination options before
    // the routing header.
    let headers: Vec<_> = ip::extensions(octets, &frame.headers).collect();
    if let Some(own) = headers.last().filter(|header| header.kind == 44) {
        if own.at + 8 > end {
            return Err(Reason::Headers);
        }
        let word = be16(octets, own.at + 2);
        return Ok(Some(Cuts {
            link: frame.link,
            network,
            step: step(mtu.checked_sub(own.at + 8 - network))?,
            data: own.at + 8,
            end,
            offset: usize::from(word & !7),
            more: word & 1 != 0,
            kind: Kind::V6 {
                identification: u32::from_be_bytes([
                    octets[own.at + 4],
                    octets[own.at + 5],
                    octets[own.at + 6],
                    octets[own.at + 7],
                ]),
                before: own.at,
                next_header: octets[own.at],
                next_header_at: own.next_header_at,
            },
        }));
    }
    let routing = headers.iter().rposition(|header| header.kind == 43);
    let last = routing.or_else(|| headers.first().filter(|header| header.kind == 0).map(|_| 0));
    let (before, next_header_at) = last
        .map_or((network + 40, network + 6), |i| (headers[i].at + headers[i].len, headers[i].at));
    if before > end {
        return Err(Reason::Headers);
    }
    Ok(Some(Cuts {
        link: frame.link,
        network,
        step: step(mtu.checked_sub(before + 8 - network))?,
        data: before,
        end,
        offset: 0,
        more: false,
        kind: Kind::V6 {
            identification,
            before,
            next_header: octets[next_header_at],
            next_header_at,
        },
    }))
}

impl Cuts {
    /// Builds each fragment, including the link header, in `scratch` and passes it to `show`.
    pub fn each(&self, octets: &[u8], scratch: &mut Vec<u8>, mut show: impl FnMut(&[u8])) {
        let mut at = self.data;
        while at < self.end {
            let until = (at + self.step).min(self.end);
            let more = self.more || until < self.end;
            self.write(octets, at..until, more, scratch);
            show(scratch);
            at = until;
        }
    }

    fn write(&self, octets: &[u8], data: std::ops::Range<usize>, more: bool, out: &mut Vec<u8>) {
        let offset = self.offset + (data.start - self.data);
        let network = self.network;
        out.clear();
        match self.kind {
            Kind::V4 { identification, header } => {
                out.extend_from_slice(&octets[..network + 20]);
                let options = &octets[network + 20..network + header];
                if offset == 0 {
                    out.extend_from_slice(options);
                } else {
                    copied_options(options, out);
                }
                let words = (out.len() - network) / 4;
                out.extend_from_slice(&octets[data]);
                let len = out.len() - network;
                let old: [u8; 8] = out[network..network + 8].try_into().expect("8 octets");
                out[network] = 0x40 | words as u8;
                out[network + 2..network + 4].copy_from_slice(&(len as u16).to_be_bytes());
                out[network + 4..network + 6].copy_from_slice(&identification.to_be_bytes());
                let word = (offset / 8) as u16 & 0x1fff | u16::from(more) << 13;
                out[network + 6..network + 8].copy_from_slice(&word.to_be_bytes());
                // The checksum of each header stays as correct or as wrong as in the whole packet.
                let mut delta = Delta::default();
                delta.replace(&old, &out[network..network + 8], false);
                delta.replace(options, &out[network + 20..network + 4 * words], false);
                delta.apply(out, network + 10);
            }
            Kind::V6 { identification, before, next_header, next_header_at } => {
                out.extend_from_slice(&octets[..before]);
                out[next_header_at] = 44;
                out.extend_from_slice(&[next_header, 0]);
                out.extend_from_slice(&(offset as u16 & !7 | u16::from(more)).to_be_bytes());
                out.extend_from_slice(&identification.to_be_bytes());
                out.extend_from_slice(&octets[data]);
                let len = out.len() - network - 40;
                out[network + 4..network + 6].copy_from_slice(&(len as u16).to_be_bytes());
            }
        }
        let len = out.len() - network;
        ip::set_outer_len(out, self.link, network, len);
    }
}

/// Appends the options that have the copied flag (RFC 791 §3.1), padded to a multiple of 4.
fn copied_options(options: &[u8], out: &mut Vec<u8>) {
    let before = out.len();
    let mut at = 0;
    while at < options.len() {
        let len = match options[at] {
            0 => break,
            1 => 1,
            _ => usize::from(options.get(at + 1).copied().unwrap_or(0)),
        };
        if len == 0 || at + len > options.len() {
            break;
        }
        if options[at] & 0x80 != 0 {
            out.extend_from_slice(&options[at..at + len]);
        }
        at += len;
    }
    while !(out.len() - before).is_multiple_of(4) {
        out.push(0);
    }
}
