//! A packet as its text describes it: layers with explicitly set fields.

use std::{fmt, io, ops::Range};

use squall_units::Cannot;

use crate::{
    header::{HeaderDef, Proto},
    octets::to_hex,
    options::{OptionDef, OptionForm, U8, written},
};

/// Layers from the outermost inward, as given in text or in Python.
#[derive(Clone, Debug, PartialEq)]
pub struct Packet {
    pub layers: Vec<Layer>,
}

/// One layer: a header of the table, options, or payload.
#[derive(Clone, Debug)]
pub struct Layer {
    pub header: &'static HeaderDef,
    pub(crate) content: Content,
}

impl PartialEq for Layer {
    fn eq(&self, other: &Self) -> bool {
        self.header.name == other.header.name && self.content == other.content
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Content {
    /// Field index and value, ordered by index.
    Fields(Vec<(usize, Value)>),
    Text(String),
    Octets(Vec<u8>),
    /// Octets; `None`: as many as fit.
    Count(Option<usize>),
    Path(String),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Number(u128),
    Auto,
    /// A deliberately wrong checksum.
    Bad,
    Options(Vec<Opt>),
}

#[derive(Clone, Debug)]
pub(crate) enum Opt {
    Known(&'static OptionDef, Vec<Arg>),
    Hex(Vec<u8>),
    Address(u128),
}

/// An argument in an option's parentheses.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Arg {
    Number(u128),
    Text(String),
    Octets(Vec<u8>),
}

impl Arg {
    pub(crate) fn number(&self) -> u128 {
        if let Self::Number(number) = self { *number } else { 0 }
    }

    pub(crate) fn octets(&self) -> &[u8] {
        match self {
            Self::Number(_) => &[],
            Self::Text(text) => text.as_bytes(),
            Self::Octets(octets) => octets,
        }
    }
}

impl PartialEq for Opt {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Known(a, x), Self::Known(b, y)) => a.name == b.name && x == y,
            (Self::Hex(a), Self::Hex(b)) => a == b,
            (Self::Address(a), Self::Address(b)) => a == b,
            _ => false,
        }
    }
}

/// An error in packet text: its range, the text there, the expected form and a suggestion.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("found {found}, expected {expected}; {hint}")]
pub struct SyntaxError {
    /// Range in the text, in octets.
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
    #[error("{}", Cannot::read(path, error))]
    File { path: String, error: io::Error },
    #[error("{0}")]
    Invalid(String),
}

impl Packet {
    /// The length to which `truncate(n)` cuts every frame, in octets without FCS.
    pub fn truncated(&self) -> Option<usize> {
        match self.layers.last() {
            Some(Layer { header, content: Content::Count(n) })
                if header.proto == Proto::Truncate =>
            {
                *n
            }
            _ => None,
        }
    }

    /// The files that payload layers refer to.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.layers.iter().filter_map(|l| match &l.content {
            Content::Path(path) => Some(path.as_str()),
            _ => None,
        })
    }
}

impl Layer {
    /// Length of a payload layer; `None` for a header, a file, or as many octets as fit.
    pub fn payload_len(&self) -> Option<usize> {
        match &self.content {
            Content::Text(text) => Some(text.len()),
            Content::Octets(octets) => Some(octets.len()),
            Content::Count(count) => *count,
            Content::Fields(_) | Content::Path(_) => None,
        }
    }

    pub(crate) fn value(&self, index: usize) -> Option<&Value> {
        match &self.content {
            Content::Fields(set) => set.iter().find(|(i, _)| *i == index).map(|(_, v)| v),
            _ => None,
        }
    }

    /// The value set for a field, by its name in the table.
    pub(crate) fn value_of(&self, name: &str) -> Option<&Value> {
        self.value(self.header.fields.iter().position(|f| f.name == name)?)
    }
}

/// Writes text that [`Packet::parse`] parses to an equal packet.
impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, layer) in self.layers.iter().enumerate() {
            write!(f, "{}{layer}", if i > 0 { "/" } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.header.name)?;
        match &self.content {
            Content::Fields(set) => {
                for (i, (field, value)) in set.iter().enumerate() {
                    let field = &self.header.fields[*field];
                    write!(f, "{}{}=", if i > 0 { "," } else { "(" }, field.name)?;
                    match value {
                        Value::Number(n) => f.write_str(&field.kind.format(*n))?,
                        Value::Auto => f.write_str("auto")?,
                        Value::Bad => f.write_str("bad")?,
                        Value::Options(options) => {
                            for (i, option) in options.iter().enumerate() {
                                write!(f, "{}{option}", if i > 0 { "," } else { "[" })?;
                            }
                            f.write_str(if options.is_empty() { "[]" } else { "]" })?;
                        }
                    }
                }
                f.write_str(if set.is_empty() { "" } else { ")" })
            }
            Content::Text(text) | Content::Path(text) => {
                f.write_str("(")?;
                quoted(f, text)?;
                f.write_str(")")
            }
            Content::Octets(octets) => write!(f, "({})", to_hex(octets)),
            Content::Count(Some(n)) => write!(f, "({n})"),
            Content::Count(None) => Ok(()),
        }
    }
}

/// Writes `text` quoted as in the syntax.
fn quoted(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str("\"")?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            '\n' => f.write_str("\\n")?,
            '\r' => f.write_str("\\r")?,
            '\t' => f.write_str("\\t")?,
            c if (c as u32) < 0x20 || c == '\x7f' => write!(f, "\\x{:02x}", c as u32)?,
            c => write!(f, "{c}")?,
        }
    }
    f.write_str("\"")
}

impl fmt::Display for Opt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(def, args) => {
                f.write_str(def.name)?;
                let parts = if let OptionForm::Value(parts) = def.form { parts } else { &[U8] };
                for (i, (arg, part)) in args.iter().zip(written(parts)).enumerate() {
                    f.write_str(if i > 0 { "," } else { "(" })?;
                    match arg {
                        Arg::Number(number) => f.write_str(&part.format(*number))?,
                        Arg::Text(text) => quoted(f, text)?,
                        Arg::Octets(octets) => write!(f, "hex({})", to_hex(octets))?,
                    }
                }
                f.write_str(if args.is_empty() { "" } else { ")" })
            }
            Self::Hex(octets) => write!(f, "hex({})", to_hex(octets)),
            Self::Address(a) => write!(f, "{}", std::net::Ipv6Addr::from_bits(*a)),
        }
    }
}
