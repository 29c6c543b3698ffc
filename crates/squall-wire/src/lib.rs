//! Packets: headers as tables, a text form, octets, and conversions between them.
//!
//! The input is `"eth/ipv4(dst=48.0.0.1)/udp(dport=53)"` ([`Packet::parse`]) or the octets of any
//! frame ([`Frame::dissect`]). The output is a [`Frame`]: octets, and the offsets of lengths and
//! checksums, which a field program needs to keep them correct. Frames never contain the FCS. Time,
//! ports and streams are outside of this crate.
#![forbid(unsafe_code)]

mod bits;
mod build;
pub mod checksum;
mod describe;
mod dissect;
mod frame;
mod header;
mod implied;
mod inspect;
mod ipv6_octets;
pub mod link;
mod messages;
mod octets;
mod options;
mod packet;
mod plain;
mod reference;
pub mod scapy;
mod segments;
mod summary;
mod syntax;
mod table;
pub mod tcp_flags;

pub use frame::{
    ChecksumField, ChecksumKind, CrcField, CrcKind, FieldAt, FieldError, Frame, LayerAt,
    LengthField,
};
pub use header::{FieldDef, FieldKind, HeaderDef, Presence, headers, payloads};
pub use implied::warnings;
pub use inspect::FieldValue;
pub use ipv6_octets::Ipv6Octets;
pub use octets::{HexError, MAX_FRAME, parse_hex, to_hex};
pub use options::{OptionDef, OptionForm, OptionSet, Part, usage as option_usage};
pub use packet::{BuildError, Layer, Packet, SyntaxError};
pub use reference::reference;
pub use segments::Segments;
pub use summary::summary;
