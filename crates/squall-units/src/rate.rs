//! Rates: frames per second, bits per second at layer 1 or 2, or a percentage of the port's speed.

use std::{fmt, str::FromStr};

use crate::{L1_OVERHEAD, UnitError, gcd};

/// An exact rate: `num / den` in `unit`. Decimal input stays exact: `"33.3 pps"` becomes 333/10.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    pub num: u64,
    /// Denominator, at least 1.
    pub den: u64,
    pub unit: RateUnit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RateUnit {
    /// Frames per second.
    Pps,
    /// Bits per second on the link: the frame with FCS, plus [`L1_OVERHEAD`].
    BpsL1,
    /// Bits per second of frames with FCS.
    BpsL2,
    /// Percent of the port's L1 speed.
    Percent,
    /// As fast as the port accepts frames; `num` and `den` are 1.
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

    /// `self · num / den` in lowest terms. [`RateUnit::Max`] does not change. `None` if the result
    /// does not fit into 64 bits.
    pub fn scaled(self, num: u64, den: u64) -> Option<Self> {
        if self.unit == RateUnit::Max {
            return Some(self);
        }
        let (n, d) =
            (u128::from(self.num) * u128::from(num), u128::from(self.den) * u128::from(den));
        let g = gcd(n, d).max(1);
        Some(Self {
            num: u64::try_from(n / g).ok()?,
            den: u64::try_from(d / g).ok()?,
            unit: self.unit,
        })
    }

    /// `self · num / den`, rounded to six digits if necessary, so the terms stay short if this is
    /// applied repeatedly. [`RateUnit::Max`] does not change. `None` if there is no such rate.
    pub fn times(self, num: u64, den: u64) -> Option<Self> {
        if self.unit == RateUnit::Max {
            return Some(self);
        }
        let (num, den) =
            near(u128::from(self.num) * u128::from(num), u128::from(self.den) * u128::from(den))?;
        Some(Self { num, den, unit: self.unit })
    }

    /// The value in its unit.
    pub fn value(&self) -> f64 {
        self.num as f64 / self.den as f64
    }

    /// Frames per second for frames with a mean length of `frame_len` octets (with FCS), on a port
    /// with speed `speed_bps`. `None` for [`RateUnit::Max`], and for a share of an unknown speed.
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

/// A fraction with short terms: `num / den` itself if its denominator has at most six digits,
/// otherwise rounded to at least six digits. `None` if it is too large or rounds to 0.
pub fn near(num: u128, den: u128) -> Option<(u64, u64)> {
    const SHORT: u128 = 1_000_000;
    let reduced = |num: u128, den: u128| {
        let g = gcd(num, den).max(1);
        Some((u64::try_from(num / g).ok()?, u64::try_from(den / g).ok()?))
    };
    let g = gcd(num, den).max(1);
    if den / g <= SHORT {
        return reduced(num, den);
    }
    let mut scale = 1;
    while num.checked_mul(scale)? / den < SHORT && scale < SHORT * SHORT {
        scale *= 10;
    }
    let rounded = (num.checked_mul(scale)?.checked_add(den / 2)?) / den;
    if rounded == 0 { None } else { reduced(rounded, scale) }
}

impl FromStr for Rate {
    type Err = UnitError;
    /// Parses `"10 Mpps"`, `"1.5 Gbps"` (L2), `"2 Gbps l1"` or `"2 Gbps_l1"`, `"30 %"`, `"max"`. A
    /// number without a unit is in pps.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        crate::parse::rate(text)
    }
}

impl fmt::Display for Rate {
    /// Prints a form that [`Rate::from_str`] parses to the same value. With a precision (`{:.1}`),
    /// the value is rounded.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::parse::print_rate(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_can_be_changed_by_tenths_repeatedly() {
        let mut rate: Rate = "399.9 Gbps".parse().unwrap();
        for _ in 0..500 {
            rate = rate.times(11, 10).unwrap().times(10, 11).unwrap();
            assert!(rate.den <= 1_000_000_000_000, "{rate:?}");
        }
        assert!((rate.value() / 399.9e9 - 1.0).abs() < 1e-6, "{rate:?}");
        assert_eq!(
            "3 pps".parse::<Rate>().unwrap().times(1, 2).unwrap(),
            "1.5 pps".parse().unwrap()
        );
        assert_eq!(Rate::MAX.times(1, 2), Some(Rate::MAX));
        assert_eq!(Rate::pps(u64::MAX).times(2, 1), None);
        assert_eq!(Rate::pps(1).times(1, u64::MAX), None, "it rounds to nothing");
    }
}
