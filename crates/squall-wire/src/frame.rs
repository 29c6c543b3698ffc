//! A frame's octets, and the fields that depend on others.

use std::{iter::once, ops::Range};

use squall_units::nearest;

use crate::bits::get;
use crate::header::{FieldKind, HeaderDef, Presence, Proto, Space, Sum, find, number};
use crate::packet::BuildError;
use crate::{checksum, dissect};

/// A frame without FCS.
#[derive(Clone, Debug)]
pub struct Frame {
    pub bytes: Vec<u8>,
    /// Headers from the outermost inward.
    pub layers: Vec<LayerAt>,
    /// Length fields that depend on the frame's length.
    pub lengths: Vec<LengthField>,
    /// Checksums to keep correct, inner ones first: an outer one may cover an inner one.
    /// Deliberately wrong or missing ones are not listed.
    pub checksums: Vec<ChecksumField>,
    /// 32-bit CRCs to keep correct; computed before `checksums`, which may cover them.
    pub crcs: Vec<CrcField>,
    /// Start of the innermost payload: the first octet after all headers.
    pub payload: usize,
    /// Number of octets at the end that no length field counts (padding to the minimum frame).
    pub trailer: usize,
}

/// A header in a frame.
#[derive(Clone, Copy, Debug)]
pub struct LayerAt {
    pub header: &'static HeaderDef,
    pub offset: usize,
    pub len: usize,
}

/// A big-endian 16-bit field with the value `frame_len - from`; `from` includes the trailer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LengthField {
    pub at: usize,
    pub from: usize,
}

/// A 16-bit checksum field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChecksumField {
    pub at: usize,
    pub kind: ChecksumKind,
    /// First octet covered.
    pub from: usize,
    /// End of the covered octets; `None`: the end of the frame without its trailer.
    pub to: Option<usize>,
    /// Other octets that the sum includes (the addresses of a pseudo-header), at an even
    /// distance from `from`.
    pub pseudo: Vec<Range<usize>>,
    /// Next header or protocol number of the pseudo-header, if there is one; it is added together
    /// with the covered length.
    pub protocol: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumKind {
    Internet,
    /// Sent as 0xffff if it computes to 0 (RFC 768).
    Udp,
}

/// A 32-bit CRC, sent with the least significant octet first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrcField {
    pub kind: CrcKind,
    /// First octet covered.
    pub from: usize,
    /// End of the packet; `None`: the end of the frame without its trailer.
    pub to: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrcKind {
    /// SCTP's CRC, in octets 8 to 11 of the covered octets.
    Sctp,
    /// RoCEv2's ICRC, in the last 4 octets of the packet. The base transport header begins `bth`
    /// octets after the first covered octet.
    Icrc { bth: usize },
}

/// The position of a field in a frame.
#[derive(Clone, Copy, Debug)]
pub struct FieldAt {
    /// Offset of the most significant bit from the start of the frame.
    pub bit: usize,
    pub bits: usize,
    pub kind: &'static FieldKind,
}

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("no field {name:?} in {layers}; {hint}")]
pub struct FieldError {
    pub name: String,
    /// The headers, as `eth/ipv4/udp`.
    pub layers: String,
    pub hint: String,
}

static OCTETS: FieldKind = FieldKind::Number(&[]);

impl Frame {
    /// Finds headers, lengths and checksums in the octets of any frame. Never fails: unknown octets
    /// are payload. A length or checksum that is wrong in `bytes` is not listed, and is therefore
    /// preserved.
    pub fn dissect(bytes: Vec<u8>) -> Self {
        dissect::dissect(bytes)
    }

    /// As [`dissect`](Self::dissect), for a packet of link type `link_type` (a number in the
    /// tcpdump.org list of link-layer header types). Only Ethernet's link header becomes a layer;
    /// otherwise the first layer is that of the network.
    pub fn dissect_link(link_type: u16, bytes: Vec<u8>) -> Self {
        dissect::dissect_link(link_type, bytes)
    }

    /// Finds `"ipv4.src"`, `"vlan[1].id"` (the second, from the outside), `"udp[-1].sport"` (the
    /// innermost); `"payload[4:2]"`: 2 octets (1 to 8) from the payload's fifth; `"frame[12:2]"`:
    /// counted from the frame's start.
    ///
    /// ```
    /// # use squall_wire::Packet;
    /// let packet = Packet::parse("eth/vlan(id=7)/vlan(id=8)/ipv4/udp").unwrap();
    /// let frame = packet.build(None, &|_| unreachable!(), 0).unwrap();
    /// let id = frame.field("vlan[1].id").unwrap();
    /// assert_eq!((id.bit, id.bits), (18 * 8 + 4, 12));
    /// assert_eq!(frame.value(&id), 8);
    /// ```
    pub fn field(&self, name: &str) -> Result<FieldAt, FieldError> {
        let fail = |hint: String| FieldError { name: name.into(), layers: self.names(), hint };
        let usage = || fail("try names such as ipv4.src, vlan[1].id, payload[0:4]".into());
        let (path, inner) = match name.trim().split_once('[') {
            Some((path, rest)) => {
                let (inner, rest) = rest.split_once(']').ok_or_else(usage)?;
                ((path, rest), Some(inner))
            }
            None => {
                (name.trim().split_at(name.trim().find('.').unwrap_or(name.trim().len())), None)
            }
        };
        let (layer, rest) = (path.0.trim(), path.1.trim());
        if rest.is_empty() && (layer == "payload" || layer == "frame") {
            let (offset, len) = inner.and_then(|i| i.split_once(':')).ok_or_else(usage)?;
            let base = if layer == "payload" { self.payload } else { 0 };
            return match (number(offset.trim()), number(len.trim())) {
                (Some(offset), Some(len @ 1..=8))
                    if (base as u128).saturating_add(offset.saturating_add(len))
                        <= self.bytes.len() as u128 =>
                {
                    Ok(FieldAt {
                        bit: (base + offset as usize) * 8,
                        bits: len as usize * 8,
                        kind: &OCTETS,
                    })
                }
                (Some(_), Some(1..=8)) => {
                    Err(fail(format!("{layer} has {} octets", self.bytes.len() - base)))
                }
                _ => Err(fail(format!("try {layer}[offset:length] with a length of 1 to 8"))),
            };
        }
        let field = rest.strip_prefix('.').ok_or_else(usage)?.trim();
        let Some(header) = find(layer).filter(|h| !h.is_payload()) else {
            let near = nearest(layer, self.layers.iter().map(|l| l.header.name));
            return Err(fail(
                near.map_or("try layer.field with one of these layers".into(), |n| {
                    format!("did you mean {n}.{field}?")
                }),
            ));
        };
        let found: Vec<&LayerAt> =
            self.layers.iter().filter(|l| l.header.name == header.name).collect();
        let index = match inner {
            None => 0,
            Some(i) => match i.trim().parse::<isize>() {
                Ok(i) if i < 0 => found.len().wrapping_add_signed(i),
                Ok(i) => i as usize,
                Err(_) => {
                    return Err(fail(format!(
                        "an index is a number: {layer}[0].{field}, {layer}[-1].{field}"
                    )));
                }
            },
        };
        let Some(at) = found.get(index) else {
            return Err(fail(match found.len() {
                0 => format!("the frame has no {}", header.name),
                n => format!("the frame has {n} {}, counted from 0", header.name),
            }));
        };
        let Some((_, def)) = header.field(field) else {
            return Err(fail(match nearest(field, header.field_names()) {
                Some(n) => format!("did you mean {}.{n}?", header.name),
                None => format!(
                    "{} has {}",
                    header.name,
                    crate::header::list(header.fields.iter().map(|f| f.name))
                ),
            }));
        };
        let first = self.bytes.get(at.offset).copied().unwrap_or(0);
        match header.bit_of(def, at.offset, first) {
            Some(bit) if bit + def.bits <= (at.offset + at.len) * 8 => {
                Ok(FieldAt { bit, bits: def.bits, kind: &def.kind })
            }
            Some(_) => Err(fail("it is cut off".into())),
            None if def.presence == Presence::End => {
                Err(fail("it is at the end of the packet; try frame[offset:length]".into()))
            }
            None if def.bits == 0 => {
                Err(fail("options have no fixed offset; try frame[offset:length]".into()))
            }
            None => Err(fail(format!(
                "this {} does not have it; it exists if the packet sets it",
                header.name
            ))),
        }
    }

    /// The value of a field in the frame.
    ///
    /// # Panics
    /// If the field belongs to another frame and lies outside of this one.
    pub fn value(&self, field: &FieldAt) -> u128 {
        get(&self.bytes, field.bit, field.bits)
    }

    /// The names of the headers, as `eth/ipv4/udp`.
    pub fn names(&self) -> String {
        self.layers.iter().map(|l| l.header.name).collect::<Vec<_>>().join("/")
    }

    /// Extends the payload with zeros, or truncates it, so that the frame has `len` octets. Updates
    /// the listed lengths and checksums. If the length changes, a trailer becomes payload.
    ///
    /// # Errors
    /// If the headers do not fit, or a length field cannot hold the length.
    pub fn resize(&mut self, len: usize) -> Result<(), BuildError> {
        if len == self.bytes.len() {
            return Ok(());
        }
        let need = self.payload.min(self.bytes.len());
        if len < need {
            return Err(BuildError::TooShort { need, len });
        }
        if let Some(field) =
            self.lengths.iter().find(|l| len + self.trailer > l.from + usize::from(u16::MAX))
        {
            let value = len + self.trailer - field.from;
            return Err(BuildError::Invalid(format!(
                "a length field cannot hold {value}: at most 65535"
            )));
        }
        // A checksum over removed octets can no longer be updated.
        self.checksums.retain(|c| c.to.is_none_or(|to| to <= len));
        self.crcs.retain(|c| c.to.is_none_or(|to| to <= len));
        let ends = self.layers.iter().map(|l| l.header.end_octets()).sum::<usize>();
        let counted = self.bytes.len() - self.trailer;
        self.bytes.truncate(len.min(counted - ends.min(counted - need)));
        self.bytes.resize(len, 0);
        for l in &mut self.lengths {
            l.from -= self.trailer;
            let value = (len - l.from) as u16;
            self.bytes[l.at..l.at + 2].copy_from_slice(&value.to_be_bytes());
        }
        self.trailer = 0;
        self.fill_checksums();
        Ok(())
    }

    /// Pads the frame to `len` octets after its packet, which does not change: length fields no
    /// longer depend on the frame's length, and checksums cover the same octets as before.
    ///
    /// # Panics
    /// If the packet (the frame without its trailer) is longer than `len`.
    pub fn pad(&mut self, len: usize) {
        let end = self.bytes.len() - self.trailer;
        assert!(len >= end, "padding makes a packet no shorter");
        self.checksums.iter_mut().for_each(|c| _ = c.to.get_or_insert(end));
        self.crcs.iter_mut().for_each(|c| _ = c.to.get_or_insert(end));
        self.lengths.clear();
        self.trailer = 0;
        self.bytes.resize(len, 0);
    }

    /// Recomputes the listed checksums.
    pub fn fill_checksums(&mut self) {
        for c in &self.crcs {
            let end = c.to.unwrap_or(self.bytes.len() - self.trailer);
            c.write(&mut self.bytes[..end]);
        }
        for c in &self.checksums {
            let value = c.compute(&self.bytes, self.trailer);
            self.bytes[c.at..c.at + 2].copy_from_slice(&value.to_be_bytes());
        }
    }

    /// Keeps only the first `n` octets, and no lengths or checksums.
    pub(crate) fn cut(&mut self, n: usize) {
        let n = n.min(self.bytes.len());
        let counted = self.bytes.len() - self.trailer;
        self.bytes.truncate(n);
        self.layers.retain(|l| l.offset < n);
        if let Some(last) = self.layers.last_mut() {
            last.len = last.len.min(n - last.offset);
        }
        self.lengths.clear();
        self.checksums.clear();
        self.crcs.clear();
        self.payload = self.payload.min(n);
        self.trailer = n.saturating_sub(counted);
    }

    /// The length field in layer `i` that depends on the frame's length.
    pub(crate) fn length_of(&self, i: usize) -> Option<LengthField> {
        let layer = &self.layers[i];
        let (at, after) = match layer.header.proto {
            Proto::Ipv4 => (2, 0),
            Proto::Ipv6 => (4, 40),
            Proto::Udp => (4, 0),
            Proto::Gtpu => (2, 8),
            _ => layer.header.counting(*self.bytes.get(layer.offset)?)?,
        };
        Some(LengthField { at: layer.offset + at, from: layer.offset + after + self.trailer })
    }

    /// The checksum of layer `i`, whose packet ends at octet `end`.
    pub(crate) fn checksum_of(&self, i: usize, end: usize) -> Option<ChecksumField> {
        let LayerAt { header, offset, len } = self.layers[i];
        let (at, protocol) = match header.proto {
            Proto::Ipv4 => (10, None),
            Proto::Gre if self.bytes[offset] & 0x80 != 0 => (4, None),
            Proto::Udp => (6, Some(17)),
            Proto::Tcp => (16, Some(6)),
            Proto::Icmpv6 => (2, Some(58)),
            Proto::Icmp | Proto::Igmp => (2, None),
            _ => match header.sum {
                Sum::Packet => (header.octet_of("checksum"), None),
                Sum::Pseudo(protocol) => (header.octet_of("checksum"), Some(protocol)),
                Sum::No | Sum::Crc32c | Sum::Icrc => return None,
            },
        };
        let to = match header.proto {
            Proto::Ipv4 => Some(offset + len),
            _ if end == self.bytes.len() - self.trailer => None,
            _ => Some(end),
        };
        let pseudo = if protocol.is_some() { self.pseudo(i)? } else { Vec::new() };
        let kind =
            if header.proto == Proto::Udp { ChecksumKind::Udp } else { ChecksumKind::Internet };
        Some(ChecksumField { at: offset + at, kind, from: offset, to, pseudo, protocol })
    }

    /// The CRC of layer `i`, whose packet ends at octet `end`.
    pub(crate) fn crc_of(&self, i: usize, end: usize) -> Option<CrcField> {
        let LayerAt { header, offset, .. } = self.layers[i];
        let to = (end != self.bytes.len() - self.trailer).then_some(end);
        match header.sum {
            Sum::Crc32c => Some(CrcField { kind: CrcKind::Sctp, from: offset, to }),
            Sum::Icrc => {
                let ip = self.layers[..i].iter().rev().nth(1)?;
                // The ICRC is only computed if there are no options and extension headers.
                let bare = match ip.header.proto {
                    Proto::Ipv4 => ip.len == 20,
                    Proto::Ipv6 => true,
                    _ => false,
                };
                let kind = CrcKind::Icrc { bth: offset - ip.offset };
                bare.then_some(CrcField { kind, from: ip.offset, to })
            }
            Sum::No | Sum::Packet | Sum::Pseudo(_) => None,
        }
    }

    /// The octets of layer `i`'s pseudo-header addresses (RFC 9293 §3.1, RFC 8200 §8.1).
    fn pseudo(&self, i: usize) -> Option<Vec<Range<usize>>> {
        let mut last_stop = None;
        for layer in self.layers[..i].iter().rev() {
            let at = layer.offset;
            match layer.header.proto {
                Proto::Ipv4 => return Some(once(at + 12..at + 20).collect()),
                Proto::Ipv6 => {
                    let Some(stop) = last_stop else {
                        return Some(once(at + 8..at + 40).collect());
                    };
                    return Some(vec![at + 8..at + 24, stop]);
                }
                Proto::Routing => last_stop = self.last_stop(layer).or(last_stop),
                Proto::HopOpts | Proto::DstOpts | Proto::Fragment => {}
                // An authentication header.
                Proto::Plain if layer.header.chooses == Some(Space::Ip) => {}
                _ => return None,
            }
        }
        None
    }

    /// The final destination, if a routing header has addresses left.
    fn last_stop(&self, routing: &LayerAt) -> Option<Range<usize>> {
        let (kind, left) = (self.bytes[routing.offset + 2], self.bytes[routing.offset + 3]);
        let addresses = routing.offset + 8..routing.offset + routing.len;
        if left == 0 || addresses.len() < 16 {
            return None;
        }
        match kind {
            // A segment list is in reverse order (RFC 8754 §2).
            4 => Some(addresses.start..addresses.start + 16),
            0 | 2 => {
                let start = addresses.start + (addresses.len() / 16 - 1) * 16;
                Some(start..start + 16)
            }
            _ => None,
        }
    }

    /// Whether the UDP header in layer `i` has no checksum by default: in front of RoCEv2, whose
    /// ICRC covers more (InfiniBand annex A17), and in front of tunnels over IPv4.
    pub(crate) fn needs_no_checksum(&self, i: usize) -> bool {
        let icrc = self.layers.get(i + 1).is_some_and(|l| l.header.sum == Sum::Icrc);
        icrc || self.is_tunnel_over_ipv4(i)
    }

    /// Outer UDP headers of tunnels have 0 for "no checksum" (RFC 7348 §5). Over IPv6 that is an
    /// exception that receivers have to enable (RFC 6935), so there a checksum is computed.
    fn is_tunnel_over_ipv4(&self, i: usize) -> bool {
        let tunnel = |l: &LayerAt| matches!(l.header.proto, Proto::Vxlan | Proto::Gtpu);
        self.layers[i].header.proto == Proto::Udp
            && self.layers.get(i + 1).is_some_and(tunnel)
            && i > 0
            && self.layers[i - 1].header.proto == Proto::Ipv4
    }
}

impl CrcField {
    /// The range of the CRC's octets in a packet that ends at octet `end`.
    pub fn place(&self, end: usize) -> Range<usize> {
        match self.kind {
            CrcKind::Sctp => self.from + 8..self.from + 12,
            CrcKind::Icrc { .. } => end.saturating_sub(4)..end,
        }
    }

    /// Computes the CRC over the packet's octets and stores it.
    ///
    /// # Panics
    /// If the field belongs to another packet and lies outside of this one.
    #[inline]
    pub fn write(&self, packet: &mut [u8]) {
        let place = self.place(packet.len());
        let crc = match self.kind {
            CrcKind::Sctp => checksum::sctp(&packet[self.from..]),
            CrcKind::Icrc { bth } => {
                checksum::icrc(&packet[self.from..place.start], bth).unwrap_or(0)
            }
        };
        packet[place].copy_from_slice(&crc.to_le_bytes());
    }

    /// Whether the stored checksum is correct.
    pub(crate) fn is_right(&self, packet: &[u8]) -> bool {
        let mut copy = packet.to_vec();
        self.write(&mut copy);
        copy == packet
    }
}

impl ChecksumField {
    /// The correct value of the field in `bytes`, whose last `trailer` octets are padding.
    ///
    /// # Panics
    /// If the field belongs to another frame and lies outside of this one.
    pub fn compute(&self, bytes: &[u8], trailer: usize) -> u16 {
        let covered = &bytes[self.from..self.to.unwrap_or(bytes.len() - trailer)];
        let at = self.at - self.from;
        let mut sum = checksum::sum(&covered[..at]) + checksum::sum(&covered[at + 2..]);
        for range in &self.pseudo {
            sum += checksum::sum(&bytes[range.clone()]);
        }
        if let Some(protocol) = self.protocol {
            sum += u64::from(protocol) + covered.len() as u64;
        }
        match !checksum::fold(sum) {
            0 if self.kind == ChecksumKind::Udp => 0xffff,
            value => value,
        }
    }
}
