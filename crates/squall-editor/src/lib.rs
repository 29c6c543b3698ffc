//! Functions for profile editors: list headers and their fields, decode and build packets, check
//! and convert profiles, show captures.
//!
//! Input and output are values with a schema, and nothing here opens a port. Only functions that
//! take a path or a reader read files. Pages and HTTP are handled by the server that uses this
//! crate.
#![forbid(unsafe_code)]

mod capture;
mod headers;
mod import;
mod packet;
mod profile;
mod python;
mod variations;
mod yaml;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use squall_profile::Diagnostic;
use squall_wire::{HexError, SyntaxError};
pub use squall_wire::{parse_hex, to_hex};

pub use capture::{Captures, OnePacket, PacketPage, PacketRow};
pub use headers::{FieldInfo, HeaderInfo, NameInfo, headers};
pub use import::{Import, Imported, import};
pub use packet::{FieldView, FrameView, LayerView, PacketText, PacketView, packet, show};
pub use profile::{
    Checked, FileAccess, To, Written, check, convert, plan_text, planned, read, read_to_run,
};
pub use python::python;
pub use variations::{VariationsView, Varied, variations};

/// An error, and its place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// Line of the text, from 1; 0 if there is no text, or no place in it.
    pub line: u32,
    /// Column in characters, from 1; 0 as for `line`.
    pub column: u32,
    /// The key, as in JSON: `stream[3].rate`; empty if it is not known.
    pub path: String,
    pub message: String,
    /// The expected form and a suggestion; one line each.
    pub details: Vec<String>,
    /// Wrong characters of a one-line text, from 0; the end is exclusive.
    pub span: Option<(usize, usize)>,
}

impl Problem {
    fn new(message: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { message: message.into(), details: vec![detail.into()], ..Self::default() }
    }

    /// Converts an error in packet text, or in text that represents a packet.
    fn of_syntax(error: &SyntaxError, text: &str) -> Self {
        let chars = |octets: usize| text.get(..octets).map_or(0, |before| before.chars().count());
        let line_start =
            text.get(..error.at.start).and_then(|before| before.rfind('\n')).map_or(0, |at| at + 1);
        Self {
            line: 1 + text.get(..error.at.start).map_or(0, |before| before.matches('\n').count())
                as u32,
            column: 1 + (chars(error.at.start) - chars(line_start)) as u32,
            message: format!("found {}, expected {}", error.found, error.expected),
            details: vec![error.hint.clone()],
            span: Some((chars(error.at.start), chars(error.at.end))),
            ..Self::default()
        }
    }
}

impl From<HexError> for Problem {
    fn from(from: HexError) -> Self {
        Self { line: from.line, column: from.column, ..Self::new(from.message, from.hint) }
    }
}

impl From<Diagnostic> for Problem {
    fn from(from: Diagnostic) -> Self {
        let Diagnostic { line, column, path, message, details, .. } = from;
        Self { line, column, path, message, details, span: None }
    }
}

/// A number of up to 128 bits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Number {
    /// At most 2^53 - 1, which every JSON reader supports.
    Small(u64),
    /// Hexadecimal, `0x...`
    Large(String),
}

impl From<u128> for Number {
    fn from(number: u128) -> Self {
        match u64::try_from(number) {
            Ok(small) if small < 1 << 53 => Self::Small(small),
            _ => Self::Large(format!("{number:#x}")),
        }
    }
}
