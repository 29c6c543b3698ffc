//! From rates to gaps.

use std::str::FromStr;

use squall_profile::{Diagnostic, Stream};
use squall_program::{Gap, Program};
use squall_units::{FCS_LEN, L1_OVERHEAD, Rate, RateUnit};

use crate::{Multiplier, PortLimits};

/// What files are written at when a stream asks for `max`: they have no speed of their own.
pub(crate) const FILE_SPEED_BPS: u64 = 10_000_000_000;

impl Multiplier {
    /// `None`: rates come to a total, whatever the profile says.
    pub fn factor(self) -> Option<f64> {
        match self {
            Self::Factor { num, den } => Some(num as f64 / den as f64),
            Self::Total(_) => None,
        }
    }

    /// All of it times `num / den`; `None` when there is no such rate.
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

    /// `2`, `0.5`, `2x`; or a rate with its unit: `1mpps`, `50%`, `2gbps`.
    ///
    /// ```
    /// use squall_plan::Multiplier;
    ///
    /// assert_eq!("2.5x".parse(), Ok(Multiplier::Factor { num: 25, den: 10 }));
    /// assert_eq!("1mpps".parse(), Ok(Multiplier::Total("1 Mpps".parse()?)));
    /// assert!("0".parse::<Multiplier>().is_err() && "max".parse::<Multiplier>().is_err());
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.trim().trim_end_matches(['x', 'X']).trim_end();
        match (decimal(number), text.parse::<Rate>()) {
            (Some((0, _)), _) => Err("sends nothing; try a factor above 0".into()),
            (Some((num, den)), _) => Ok(Self::Factor { num, den }),
            // A number in another form (1e3) would be a rate in frames a second, which nobody means
            // here.
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

/// A plain decimal as it is written, never through floating point.
fn decimal(text: &str) -> Option<(u64, u64)> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let digits = format!("{whole}{decimals}");
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let num = plain.then(|| digits.parse().ok())??;
    Some((num, 10u64.checked_pow(decimals.len() as u32)?))
}

/// Rates of all streams under the multiplier.
pub(crate) fn scaled(
    streams: &[(&Stream, f64)],
    limits: &[PortLimits],
    multiplier: Option<Multiplier>,
) -> Result<Vec<Rate>, String> {
    let too_big = || "the multiplied rate does not fit: use a smaller --mult".to_owned();
    let factor = |s: &Stream, num, den| s.rate.scaled(num, den).ok_or_else(too_big);
    match multiplier {
        None => Ok(streams.iter().map(|(s, _)| s.rate).collect()),
        Some(Multiplier::Factor { num, den }) => {
            streams.iter().map(|(s, _)| factor(s, num, den)).collect()
        }
        Some(Multiplier::Total(total)) => {
            let mut rates = Vec::new();
            for (s, _) in streams {
                let speed = limits[s.port].speed_bps;
                let (mut packets, mut wanted, mut l1, mut l2) = (0.0, 0.0, 0.0, 0.0);
                for (t, len) in streams.iter().filter(|(t, _)| t.port == s.port) {
                    let pps = t.rate.as_pps(*len, speed).ok_or_else(|| {
                        format!(
                            "--mult {total} needs rates to scale, but stream {:?} has {}",
                            t.name, t.rate
                        )
                    })?;
                    packets += pps;
                    l1 += pps * 8.0 * (len + f64::from(L1_OVERHEAD));
                    l2 += pps * 8.0 * len;
                }
                wanted += match total.unit {
                    RateUnit::Pps => total.value() / packets,
                    RateUnit::BpsL1 => total.value() / l1,
                    RateUnit::BpsL2 => total.value() / l2,
                    RateUnit::Percent => match speed {
                        Some(speed) => total.value() / 100.0 * speed as f64 / l1,
                        None => {
                            return Err(format!(
                                "--mult {total}: port has no speed to take a share of; give pps \
                                 or bps"
                            ));
                        }
                    },
                    RateUnit::Max => {
                        return Err("--mult takes a factor or a rate, not max".to_owned());
                    }
                };
                const DEN: u64 = 1_000_000_000_000;
                rates.push(factor(s, (wanted * DEN as f64).round() as u64, DEN)?);
            }
            Ok(rates)
        }
    }
}

/// The gap of a stream at `rate`, or why the port cannot carry it.
pub(crate) fn gap(
    s: &Stream,
    rate: Rate,
    program: &Program,
    limits: &PortLimits,
    port: &str,
    notes: &mut Vec<String>,
) -> Result<Gap, Diagnostic> {
    let problem =
        |message: String, details: Vec<String>| Diagnostic::at(s.rate_at, message, details);
    let (sizes, len) = (program.sizes(), program.mean_wire_len());
    if rate.is_zero() {
        return Err(problem(
            format!("stream {:?}: rate = {rate} sends nothing", s.name),
            vec!["try a rate above 0, or enabled = false".into()],
        ));
    }
    let mut rate = rate;
    if rate.unit == RateUnit::Max && limits.virtual_time {
        let speed = limits.speed_bps.unwrap_or(FILE_SPEED_BPS);
        rate = Rate { num: speed, den: 1, unit: RateUnit::BpsL1 };
        notes.push(format!(
            "stream {:?}: port {port} runs on virtual time, rate \"max\" became {rate}",
            s.name
        ));
    }
    if rate.unit == RateUnit::Percent {
        let Some(speed) = limits.speed_bps else {
            return Err(problem(
                format!(
                    "stream {:?}: rate = {rate} is a share of a speed that port {port} does not \
                     have",
                    s.name
                ),
                vec![
                    "try a rate in pps or bps, or give the port a speed: \"...,speed=10Gbps\""
                        .into(),
                ],
            ));
        };
        rate = Rate { num: speed, den: 1, unit: RateUnit::BpsL1 }
            .scaled(rate.num, rate.den.saturating_mul(100))
            .ok_or_else(|| {
                problem(format!("stream {:?}: rate = {rate} is too large", s.name), vec![])
            })?;
    }
    if let (Some(pps), Some(speed)) = (rate.as_pps(len, None), limits.speed_bps) {
        let most = speed as f64 / 8.0 / (len + f64::from(L1_OVERHEAD));
        // A millionth of tolerance: 100 % computed from a rounded mean size is no mistake.
        if pps > most * 1.000_001 {
            return Err(problem(
                format!(
                    "stream {:?}: rate = {} is more than port {port} can carry",
                    s.name, s.rate
                ),
                vec![
                    format!(
                        "port {port} is a {} Gb/s link: at most {:.4} Mpps of {len:.0}-octet \
                         frames, {:.3} Gbps of L2",
                        speed as f64 / 1e9,
                        most / 1e6,
                        most * len * 8.0 / 1e9
                    ),
                    "try rate = \"100 %\", or a second port".into(),
                ],
            ));
        }
    }
    let gap = match rate.unit {
        RateUnit::Max => return Ok(Gap::Zero),
        // A super-frame comes as seldom as it is many frames.
        RateUnit::Pps => {
            Gap::from_pps(rate.num, rate.den.saturating_mul(program.segments().into()))
        }
        RateUnit::BpsL1 | RateUnit::Percent => Gap::from_bps(rate.num, rate.den, true),
        RateUnit::BpsL2 => Gap::from_bps(rate.num, rate.den, false),
    };
    // 1e-6 pps is a frame in eleven days; beyond that picoseconds no longer fit.
    if gap.seconds(f64::from(sizes.range().1)) > 1e6 {
        return Err(problem(
            format!(
                "stream {:?}: rate = {rate} is less than one frame in a million seconds",
                s.name
            ),
            vec!["try a larger rate, or mode = {burst = 1} with a start_delay".into()],
        ));
    }
    let overhead = if rate.unit == RateUnit::BpsL2 { FCS_LEN } else { FCS_LEN + L1_OVERHEAD };
    // A gap adds the overhead of one frame.
    let on_wire = |len: u32| {
        let cut = program.cut();
        let more = cut.segments(len) - 1;
        len + more * (u32::from(cut.payload) + overhead)
    };
    Ok(sizes.only().map_or(gap, |len| gap.fixed(on_wire(len))))
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
