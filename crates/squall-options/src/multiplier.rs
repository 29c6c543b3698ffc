//! Scales the rates of a profile.

use std::{fmt, str::FromStr};

use squall_units::Rate;

/// The value of `--mult`, which applies to the whole profile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Multiplier {
    /// Multiply every rate by `num / den`.
    Factor { num: u64, den: u64 },
    /// Scale the streams of each port to this total rate.
    Total(Rate),
}

impl Multiplier {
    /// The factor; `None` for a total, which is independent of the profile's rates.
    pub fn factor(self) -> Option<f64> {
        match self {
            Self::Factor { num, den } => Some(num as f64 / den as f64),
            Self::Total(_) => None,
        }
    }

    /// Multiplies by `num / den`. `None` if there is no such rate.
    pub fn times(self, num: u64, den: u64) -> Option<Self> {
        match self {
            Self::Factor { num: n, den: d } => {
                let (num, den) = squall_units::near(
                    u128::from(n) * u128::from(num),
                    u128::from(d) * u128::from(den),
                )?;
                Some(Self::Factor { num, den })
            }
            Self::Total(rate) => rate.times(num, den).map(Self::Total),
        }
    }
}

impl FromStr for Multiplier {
    type Err = String;

    /// Parses `2`, `0.5`, `2x`, or a rate with its unit: `1mpps`, `50%`, `2gbps`.
    ///
    /// ```
    /// use squall_options::Multiplier;
    ///
    /// assert_eq!("2.5x".parse(), Ok(Multiplier::Factor { num: 25, den: 10 }));
    /// assert_eq!("1mpps".parse(), Ok(Multiplier::Total("1 Mpps".parse()?)));
    /// assert!("0".parse::<Multiplier>().is_err() && "max".parse::<Multiplier>().is_err());
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.trim().trim_end_matches(['x', 'X']).trim_end();
        match (decimal(number), text.parse::<Rate>()) {
            (Some((0, _)), _) => Err("a factor of 0 sends nothing; try a factor above 0".into()),
            (Some((num, den)), _) => Ok(Self::Factor { num, den }),
            // In another form (1e3), the number would be parsed as a rate in frames per second,
            // which is probably not intended.
            _ if number.parse::<f64>().is_ok() => {
                Err("expected a factor in plain digits (2, 0.5)".into())
            }
            (None, Ok(rate)) if rate == Rate::MAX || rate.is_zero() => {
                Err("expected a factor or a rate above 0 and below max".into())
            }
            (None, Ok(rate)) => Ok(Self::Total(rate)),
            (None, Err(_)) => {
                Err("expected a factor (2, 0.5) or a rate (1mpps, 50%, 2gbps)".into())
            }
        }
    }
}

impl fmt::Display for Multiplier {
    /// Prints a text that parses back to the same value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Factor { num, den: 1 } => num.fmt(f),
            Self::Factor { num, den } => {
                let decimals = den.ilog10();
                match 10u64.pow(decimals) == *den {
                    true => {
                        let width = decimals as usize;
                        write!(f, "{}.{:0width$}", num / den, num % den)
                    }
                    // The factor was computed, so it has no exact decimal form.
                    false => (*num as f64 / *den as f64).fmt(f),
                }
            }
            Self::Total(rate) => rate.fmt(f),
        }
    }
}

/// Parses a plain decimal exactly, without floating point.
fn decimal(text: &str) -> Option<(u64, u64)> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let digits = format!("{whole}{decimals}");
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let num = plain.then(|| digits.parse().ok())??;
    Some((num, 10u64.checked_pow(decimals.len() as u32)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_multiplier_is_a_factor_or_a_rate() {
        for (text, num, den) in [("2", 2, 1), ("0.5", 5, 10), ("1.25x", 125, 100)] {
            assert_eq!(text.parse::<Multiplier>(), Ok(Multiplier::Factor { num, den }), "{text}");
        }
        for text in ["1mpps", "50%", "2 Gbps", "2gbps l1"] {
            assert!(
                matches!(text.parse::<Multiplier>(), Ok(Multiplier::Total(_))),
                "{text}: {:?}",
                text.parse::<Multiplier>()
            );
        }
        for text in ["", "x", "0", "max", "-1", "12 Gb", "1e3"] {
            assert!(text.parse::<Multiplier>().is_err(), "{text}");
        }
    }
}
