//! A frame's octets, and the places in it that depend on others.

use std::ops::Range;

use crate::{FieldKind, HeaderDef};

/// A frame without FCS.
#[derive(Clone, Debug)]
pub struct Frame {
    pub bytes: Vec<u8>,
    /// From the outermost inwards.
    pub layers: Vec<LayerAt>,
    /// Length fields that follow the frame's length.
    pub lengths: Vec<LengthField>,
    /// Checksums that are to be kept right, innermost first (an outer one may cover an inner one). Deliberately wrong
    /// or absent ones are not listed.
    pub checksums: Vec<ChecksumField>,
    /// Where the innermost payload begins: the first octet that belongs to no header.
    pub payload: usize,
    /// Octets at the end that no length field counts (padding to the minimum frame).
    pub trailer: usize,
}

/// A header in a frame.
#[derive(Clone, Copy, Debug)]
pub struct LayerAt {
    pub header: &'static HeaderDef,
    pub offset: usize,
    pub len: usize,
}

/// A big-endian 16-bit field with the value `frame_len - from` (`from` includes the trailer).
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
    /// End of what is covered; `None`: the end of the frame less its trailer.
    pub to: Option<usize>,
    /// Octets elsewhere that the sum takes in (the addresses of a pseudo-header), at even distance from `from`.
    pub pseudo: Vec<Range<usize>>,
    /// Next header or protocol number of the pseudo-header, added to the sum, together with the covered length, where
    /// there is one.
    pub protocol: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumKind {
    Internet,
    /// Sent as 0xffff when it computes to 0 (RFC 768).
    Udp,
}

/// Where a field is in a frame.
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
    /// `eth/ipv4/udp`
    pub layers: String,
    pub hint: String,
}

impl Frame {
    /// Finds headers, lengths and checksums in the octets of any frame. Never fails: what is not understood is
    /// payload. A length or checksum that is wrong in `bytes` is not listed, so it stays as it is.
    pub fn dissect(_bytes: Vec<u8>) -> Self {
        unimplemented!()
    }

    /// Finds `"ipv4.src"`, `"vlan[1].id"` (the second, from the outside), `"udp[-1].sport"` (the innermost).
    pub fn field(&self, _name: &str) -> Result<FieldAt, FieldError> {
        unimplemented!()
    }

    /// One line in the manner of `tcpdump -n`.
    pub fn summary(&self) -> String {
        unimplemented!()
    }
}
