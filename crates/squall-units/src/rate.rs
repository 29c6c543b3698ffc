//! Rates: of frames, of octets on two layers, of a share of the port.

use std::{fmt, str::FromStr};

use crate::{L1_OVERHEAD, UnitError};

/// An exact rate: `num / den` in `unit`. Decimal input stays exact: `"33.3 pps"` is 333/10.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    pub num: u64,
    /// At least 1.
    pub den: u64,
    pub unit: RateUnit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RateUnit {
    /// Frames a second.
    Pps,
    /// Bits a second on the link: frame with FCS and [`L1_OVERHEAD`].
    BpsL1,
    /// Bits a second of frames with FCS.
    BpsL2,
    /// Per cent of the port's L1 speed.
    Percent,
    /// As fast as the port takes frames; `num` and `den` are 1.
    Max,
}

impl Rate {
    pub const MAX: Self = Self { num: 1, den: 1, unit: RateUnit::Max };

    pub fn pps(frames_per_second: u64) -> Self {
        Self { num: frames_per_second, den: 1, unit: RateUnit::Pps }
    }

    pub fn is_zero(&self) -> bool {
        self.num == 0
    }

    /// `self · num / den`, reduced; [`RateUnit::Max`] stays. `None` when it does not fit 64 bits.
    pub fn scaled(self, num: u64, den: u64) -> Option<Self> {
        if self.unit == RateUnit::Max {
            return Some(self);
        }
        let (n, d) = (u128::from(self.num) * u128::from(num), u128::from(self.den) * u128::from(den));
        let g = gcd(n, d).max(1);
        Some(Self { num: u64::try_from(n / g).ok()?, den: u64::try_from(d / g).ok()?, unit: self.unit })
    }

    /// The value in its unit.
    pub fn value(&self) -> f64 {
        self.num as f64 / self.den as f64
    }

    /// Frames a second at a mean size of `frame_len` octets with FCS; `speed_bps` is the port's. `None` for
    /// [`RateUnit::Max`], and for a share of an unknown speed.
    pub fn as_pps(&self, frame_len: f64, speed_bps: Option<u64>) -> Option<f64> {
        let l1_bits = 8.0 * (frame_len + f64::from(L1_OVERHEAD));
        match self.unit {
            RateUnit::Pps => Some(self.value()),
            RateUnit::BpsL1 => Some(self.value() / l1_bits),
            RateUnit::BpsL2 => Some(self.value() / (8.0 * frame_len)),
            RateUnit::Percent => Some(self.value() / 100.0 * speed_bps? as f64 / l1_bits),
            RateUnit::Max => None,
        }
    }
}

pub(crate) fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl FromStr for Rate {
    type Err = UnitError;
    /// `"10 Mpps"`, `"1.5 Gbps"` (L2), `"2 Gbps l1"` or `"2 Gbps_l1"`, `"30 %"`, `"max"`; a bare number is pps.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        crate::parse::rate(text)
    }
}

impl fmt::Display for Rate {
    /// A form that [`Rate::from_str`] reads back to the same value; with a precision (`{:.1}`), rounded.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::parse::print_rate(self, f)
    }
}
