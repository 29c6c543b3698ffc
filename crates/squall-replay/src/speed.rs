//! Text form of a replay's speed.

use std::str::FromStr;

use squall_program::Gap;
use squall_units::{FCS_LEN, L1_OVERHEAD, Nanos, Picos, Rate, RateUnit, UnitError};

use crate::Timing;

const PICOS: u128 = Picos::SECOND.0 as u128;

/// Speed of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speed {
    /// A multiple of the captured speed.
    Captured(Decimal),
    /// Megabits per second, counting frames without FCS as tcpreplay does.
    Mbps(Decimal),
    Rate(Rate),
    Ramp(Ramp),
}

impl Default for Speed {
    /// The speed of the capture.
    fn default() -> Self {
        Self::Captured(Decimal { num: 1, den: 1 })
    }
}

impl Speed {
    /// Parses `text` by kind: `multiplier` (2.5), `mbps` (100), `rate` (10kpps), `ramp`
    /// (1kpps..10kpps:30s).
    ///
    /// # Errors
    /// The text is invalid; the error contains it and the expected form.
    pub fn parse(kind: &str, text: &str) -> Result<Self, String> {
        let wrong = |error: String| format!("{kind} = {error}");
        Ok(match kind {
            "multiplier" => Self::Captured(text.parse().map_err(wrong)?),
            "mbps" => Self::Mbps(text.parse().map_err(wrong)?),
            "rate" => {
                Self::Rate(text.parse().map_err(|error: UnitError| wrong(error.to_string()))?)
            }
            "ramp" => Self::Ramp(text.parse().map_err(wrong)?),
            other => {
                let expected = "multiplier, mbps, rate or ramp";
                return Err(format!("{other:?}: expected {expected}"));
            }
        })
    }

    /// The schedule for this speed; groups of `together` frames leave at once.
    ///
    /// # Errors
    /// A rate in percent, or one that does not fit into 64 bits.
    pub fn timing(self, together: u32) -> Result<Timing, String> {
        let paced = |gap| Timing::Paced { gap, together };
        let (gap, extra) = match self {
            Self::Captured(Decimal { num, den }) => return Ok(Timing::Captured { num, den }),
            Self::Ramp(Ramp { from, to, over }) => {
                let (octets, scale) = match to.unit {
                    RateUnit::BpsL1 => (Some(FCS_LEN + L1_OVERHEAD), 8.0),
                    RateUnit::BpsL2 => (Some(FCS_LEN), 8.0),
                    _ => (None, 1.0),
                };
                let a_second = |rate: Rate| rate.num as f64 / rate.den as f64 / scale;
                return Ok(Timing::Ramp {
                    from: a_second(from),
                    to: a_second(to),
                    over: over.into(),
                    octets,
                });
            }
            Self::Mbps(Decimal { num, den }) => {
                let bps = num.checked_mul(1_000_000);
                let bps = bps.ok_or("the rate does not fit 64 bits\n  try the top speed")?;
                (Gap::from_bps(bps, den, false), Some(0))
            }
            Self::Rate(rate) if rate.is_zero() => {
                return Err("a rate of 0 sends nothing\n  try 1pps".into());
            }
            Self::Rate(rate) => match rate.unit {
                RateUnit::Max => return Ok(Timing::Top),
                RateUnit::Pps => (Gap::from_pps(rate.num, rate.den), None),
                RateUnit::BpsL1 => (Gap::from_bps(rate.num, rate.den, true), None),
                RateUnit::BpsL2 => (Gap::from_bps(rate.num, rate.den, false), None),
                RateUnit::Percent => {
                    return Err(format!(
                        "{rate}: a replay does not support percentages\n  try 10kpps or 1Gbps"
                    ));
                }
            },
        };
        // A slower rate would silently be raised to the slowest one that fits, so refuse it.
        let too_slow = match (self, gap) {
            (Self::Rate(rate), Gap::PerFrame { .. }) => {
                (u128::from(rate.den) * PICOS / u128::from(rate.num)) >> 62 > 0
            }
            (Self::Rate(rate), Gap::PerOctet { .. }) => {
                (u128::from(rate.den) * 8 * PICOS / u128::from(rate.num)) >> 47 > 0
            }
            _ => false,
        };
        if too_slow {
            return Err("the rate is too low: a frame would take more than 53 days, or an octet \
                        more than 140 s\n  try 0.000001pps or 1bps"
                .into());
        }
        Ok(paced(match (gap, extra) {
            (Gap::PerOctet { num, den, .. }, Some(extra)) => Gap::PerOctet { num, den, extra },
            (gap, _) => gap,
        }))
    }
}

/// An exact decimal number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal {
    pub num: u64,
    /// The denominator, a power of ten.
    pub den: u64,
}

impl FromStr for Decimal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?}: expected a number above 0, with at most 6 decimal places");
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(part) || part.len() > 6 || (whole.len() + part.len()) == 0 {
            return Err(wrong());
        }
        let num: u64 = format!("{whole}{part}").parse().map_err(|_| wrong())?;
        match num {
            0 => Err(wrong()),
            num => Ok(Self { num, den: 10u64.pow(part.len() as u32) }),
        }
    }
}

/// A rate that changes linearly to another rate in the same unit: `FROM..TO:TIME`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ramp {
    pub from: Rate,
    pub to: Rate,
    pub over: Nanos,
}

impl FromStr for Ramp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?}: expected FROM..TO:TIME, as in 1kpps..100kpps:30s or 10Mbps..1Gbps:1m"
            )
        };
        let (rates, over) = text.rsplit_once(':').ok_or_else(wrong)?;
        let (from, to) = rates.split_once("..").ok_or_else(wrong)?;
        let rate = |text: &str| text.parse::<Rate>().map_err(|error| format!("{text:?}: {error}"));
        let ramp = Self {
            from: rate(from)?,
            to: rate(to)?,
            over: over.parse().map_err(|e| format!("{over:?}: {e}"))?,
        };
        let alike = ramp.from.unit == ramp.to.unit
            && !matches!(ramp.to.unit, RateUnit::Max | RateUnit::Percent);
        if !alike || ramp.to.is_zero() || ramp.over == Nanos::ZERO {
            return Err(format!(
                "{}; both rates need the same unit, the second rate and the time must be above 0",
                wrong()
            ));
        }
        Ok(ramp)
    }
}
