//! Points in time, and durations.

use std::{fmt, ops, str::FromStr};

use crate::UnitError;

/// Nanoseconds: a time on the engine's clock (`CLOCK_MONOTONIC`, or virtual time from 0), or a
/// duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

/// Picoseconds since the start of a run, up to 213 days. Departures are computed with this
/// resolution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Picos(pub u64);

impl Nanos {
    pub const ZERO: Self = Self(0);
    pub const SECOND: Self = Self(1_000_000_000);

    /// Rounds to the nearest nanosecond. Negative values and NaN become 0.
    pub fn from_secs_f64(secs: f64) -> Self {
        Self((secs * 1e9).round() as u64)
    }

    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl ops::Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl ops::Sub for Nanos {
    type Output = Self;
    /// # Panics
    /// In debug builds, if `other` is greater than `self`.
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl Picos {
    pub const SECOND: Self = Self(1_000_000_000_000);
    /// Maximum duration of a run: 2^63 ps, or 106 days 18 hours. The longest gap after it still
    /// fits in 64 bits.
    pub const LONGEST_RUN: Self = Self(1 << 63);

    pub fn as_nanos(self) -> Nanos {
        Nanos(self.0 / 1000)
    }
}

impl From<Nanos> for Picos {
    /// Saturates at 213 days.
    fn from(n: Nanos) -> Self {
        Self(n.0.saturating_mul(1000))
    }
}

impl FromStr for Nanos {
    type Err = UnitError;
    /// Parses `"10s"`, `"1.5 ms"`, `"250us"`, `"3 ns"`, `"2 min"`, `"1 h"`, `"1h30m"`. A number
    /// without a unit is in seconds.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        crate::parse::duration(text)
    }
}

impl fmt::Display for Nanos {
    /// Prints the exact value in the largest unit for which it is at least 1 and needs at most
    /// three decimals: `1.5 ms`. With a precision (`{:.1}`), rounds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::parse::print_duration(self.0, f)
    }
}
