//! Converts rates to gaps.

use squall_profile::{Diagnostic, Stream};
use squall_program::{Gap, Program, Shape, ShapeError, Stage};
use squall_units::{FCS_LEN, L1_OVERHEAD, Rate, RateUnit, gcd};

use crate::{Multiplier, PortLimits};

/// The assumed link speed of files, for a stream with the rate `max`, because files have no speed.
pub(crate) const FILE_SPEED_BPS: u64 = 10_000_000_000;

/// The rates of all streams after applying the multiplier.
pub(crate) fn scaled(
    streams: &[(&Stream, f64)],
    limits: &[PortLimits],
    multiplier: Option<Multiplier>,
) -> Result<Vec<Rate>, String> {
    let too_big = || "the multiplied rate is out of range: try a smaller --mult".to_owned();
    let factor = |s: &Stream, num, den| s.rate.scaled(num, den).ok_or_else(too_big);
    match multiplier {
        None => Ok(streams.iter().map(|(s, _)| s.rate).collect()),
        Some(Multiplier::Factor { num, den }) => {
            streams.iter().map(|(s, _)| factor(s, num, den)).collect()
        }
        Some(Multiplier::Total(total)) => {
            // For each port, per second: frames, octets on the link, octets of frames.
            let mut sums = vec![(0.0, 0.0, 0.0); limits.len()];
            for (t, len) in streams {
                let pps = t.rate.as_pps(*len, limits[t.port].speed_bps).ok_or_else(|| {
                    format!(
                        "--mult {total} needs rates to scale, but stream {:?} has {}",
                        t.name, t.rate
                    )
                })?;
                let (packets, l1, l2) = &mut sums[t.port];
                *packets += pps;
                *l1 += pps * 8.0 * (len + f64::from(L1_OVERHEAD));
                *l2 += pps * 8.0 * len;
            }
            let mut rates = Vec::new();
            for (s, _) in streams {
                let speed = limits[s.port].speed_bps;
                let (packets, l1, l2) = sums[s.port];
                let wanted = match total.unit {
                    RateUnit::Pps => total.value() / packets,
                    RateUnit::BpsL1 => total.value() / l1,
                    RateUnit::BpsL2 => total.value() / l2,
                    RateUnit::Percent => match speed {
                        Some(speed) => total.value() / 100.0 * speed as f64 / l1,
                        None => {
                            return Err(format!(
                                "--mult {total}: the port has no speed to take a share of; try \
                                 pps or bps"
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

/// The shape of a stream's own rate.
pub(crate) fn shape(s: &Stream) -> Result<Option<Shape>, Diagnostic> {
    if s.stages.is_empty() {
        return Ok(None);
    }
    let rates = || s.stages.iter().map(|stage| stage.to).chain([s.rate]);
    // Levels are exact if there is a common denominator of their fractions.
    let most = u128::from(u64::MAX);
    let common = rates().try_fold(1u128, |common, rate| {
        let den = u128::from(rate.den);
        Some(common / gcd(common, den) * den).filter(|common| *common <= most)
    });
    let whole =
        |rate: Rate| u64::try_from(u128::from(rate.num) * (common? / u128::from(rate.den))).ok();
    let share = |rate: Rate| {
        let of = |rate: Rate| rate.num as f64 / rate.den as f64;
        (of(rate) / of(s.rate) * 1e9).round() as u64
    };
    let exact = rates().all(|rate| whole(rate).is_some());
    let level = |rate: Rate| whole(rate).filter(|_| exact).unwrap_or_else(|| share(rate));
    let stage =
        |stage: &squall_profile::Stage<Rate>| Stage { lasts: stage.lasts, to: level(stage.to) };
    let stages: Vec<_> = s.stages.iter().map(stage).collect();
    Shape::new(&stages, level(s.rate)).map(Some).map_err(|error| {
        let text = match error {
            ShapeError::TooLong(i) => {
                format!("stage {}: the rate changes for more than 24 h", i + 1)
            }
            ShapeError::Nothing | ShapeError::Endless => "the stages have no rate or no end".into(),
        };
        Diagnostic::at(
            s.rate_at,
            format!("stream {:?}: {text}", s.name),
            vec![r#"try stages = [{ duration = "10 s", to = "10 kpps" }]"#.into()],
        )
    })
}

/// The gap for a stream at `rate`, or the reason why the port cannot reach it.
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
            "stream {:?}: port {port} runs on virtual time, so rate \"max\" became {rate}",
            s.name
        ));
    }
    if rate.unit == RateUnit::Percent {
        let Some(speed) = limits.speed_bps else {
            return Err(problem(
                format!(
                    "stream {:?}: rate = {rate} is a share of the port's speed, but port {port} \
                     has none",
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
        // Allow a tolerance of 1e-6, so that 100 % computed from a rounded mean size is valid.
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
        // A GSO frame counts as the frames into which it is segmented.
        RateUnit::Pps => {
            Gap::from_pps(rate.num, rate.den.saturating_mul(program.segments().into()))
        }
        RateUnit::BpsL1 | RateUnit::Percent => Gap::from_bps(rate.num, rate.den, true),
        RateUnit::BpsL2 => Gap::from_bps(rate.num, rate.den, false),
    };
    // 1e-6 pps is one frame in eleven days. Longer gaps would overflow in picoseconds.
    if gap.seconds(f64::from(sizes.range().1)) > 1e6 {
        return Err(problem(
            format!(
                "stream {:?}: rate = {rate} is less than one frame per million seconds",
                s.name
            ),
            vec!["try a larger rate, or mode = {burst = 1} with a start_delay".into()],
        ));
    }
    let overhead = if rate.unit == RateUnit::BpsL2 { FCS_LEN } else { FCS_LEN + L1_OVERHEAD };
    // The gap includes the overhead of a single frame.
    let on_wire = |len: u32| {
        let cut = program.cut();
        let more = cut.segments(len) - 1;
        len + more * (u32::from(cut.payload) + overhead)
    };
    Ok(sizes.only().map_or(gap, |len| gap.fixed(on_wire(len))))
}
