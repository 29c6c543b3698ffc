//! Text to quantities and back.

use std::fmt;

use crate::{MacAddr, Nanos, Rate};

/// What was found, and what would have been right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is not {expected}; try {hint}")]
pub struct UnitError {
    pub found: String,
    /// "a rate", "a duration", ...
    pub expected: &'static str,
    /// Examples: `"10 kpps", "1.5 Gbps", "30 %"`.
    pub hint: &'static str,
}

/// `"1000"`, `"10k"`, `"2M"`, `"1_000"`, `"1.5M"` (must come out whole).
pub fn parse_count(_text: &str) -> Result<u64, UnitError> {
    unimplemented!()
}

/// Octets: `"64"`, `"1500B"`, `"10 kB"`, `"2MiB"`, `"1GB"`.
pub fn parse_octets(_text: &str) -> Result<u64, UnitError> {
    unimplemented!()
}

pub(crate) fn duration(_text: &str) -> Result<Nanos, UnitError> {
    unimplemented!()
}

pub(crate) fn print_duration(_ns: u64, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
    unimplemented!()
}

pub(crate) fn rate(_text: &str) -> Result<Rate, UnitError> {
    unimplemented!()
}

pub(crate) fn print_rate(_rate: &Rate, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
    unimplemented!()
}

pub(crate) fn mac(_text: &str) -> Result<MacAddr, UnitError> {
    unimplemented!()
}
