//! A packet as written: layers with the fields that were set.

use std::{io, ops::Range};

use crate::{Frame, HeaderDef};

/// Layers from the outermost inwards, as text or Python wrote them.
#[derive(Clone, Debug, PartialEq)]
pub struct Packet {
    pub layers: Vec<Layer>,
}

/// One layer: a header of the table, options, or payload.
#[derive(Clone, Debug)]
pub struct Layer {
    pub header: &'static HeaderDef,
}

impl PartialEq for Layer {
    fn eq(&self, other: &Self) -> bool {
        self.header.name == other.header.name
    }
}

/// A mistake in packet text: where, what was found, what was expected, what to try.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("found {found}, expected {expected}; {hint}")]
pub struct SyntaxError {
    /// Octets of the text.
    pub at: Range<usize>,
    pub found: String,
    pub expected: String,
    /// "did you mean ipv4?"
    pub hint: String,
}

#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("the headers take {need} octets, more than the frame of {len}")]
    TooShort { need: usize, len: usize },
    #[error("{path}: {error}")]
    File { path: String, error: io::Error },
    #[error("{0}")]
    Invalid(String),
}

impl Packet {
    /// Reads `"eth/vlan(id=5)/ipv4(dst=48.0.0.1)/udp(dport=53)/text(hello)"`.
    pub fn parse(_text: &str) -> Result<Self, SyntaxError> {
        unimplemented!()
    }

    /// Octets without FCS. `len`: the frame's length without FCS; the payload is extended (or cut) to it. Without
    /// `len`, the natural length, padded with a trailer to 60. `load` reads files that a payload names; `seed` feeds
    /// random payloads.
    pub fn build(
        &self,
        _len: Option<usize>,
        _load: &dyn Fn(&str) -> io::Result<Vec<u8>>,
        _seed: u64,
    ) -> Result<Frame, BuildError> {
        unimplemented!()
    }
}
