//! Settings that no test can be run with.

use std::ops::RangeInclusive;

use crate::{bench::Halt, rig::Rig};

/// Seconds.
pub const WEEK: f64 = 7.0 * 86_400.0;

/// Each is above 0, and at most `most`.
///
/// # Errors
/// The first that is not.
pub fn positive(settings: &[(&str, f64)], most: f64) -> Result<(), Halt> {
    match settings.iter().find(|(_, value)| !(*value > 0.0 && *value <= most)) {
        Some((name, value)) => {
            Err(Halt::Usage(format!("{name} = {value}, expected above 0, to {most}")))
        }
        None => Ok(()),
    }
}

/// Each is within `range`.
///
/// # Errors
/// The first that is not.
pub fn within(settings: &[(&str, f64)], range: RangeInclusive<f64>) -> Result<(), Halt> {
    match settings.iter().find(|(_, value)| !range.contains(value)) {
        Some((name, value)) => {
            let (least, most) = (range.start(), range.end());
            Err(Halt::Usage(format!("{name} = {value}, expected {least} to {most}")))
        }
        None => Ok(()),
    }
}

/// A switch is tested by 2 to 250 ports, of which `takes` says more.
///
/// # Errors
/// More or fewer.
pub fn ports(rig: &Rig, takes: &str) -> Result<(), Halt> {
    match rig.ports.len() {
        2..=250 => Ok(()),
        n => Err(Halt::Usage(format!(
            "{n} port(s): {takes}\n  try --port A=eth1 --port B=eth2 --port C=eth3"
        ))),
    }
}

/// # Errors
/// The first that is empty, with what could be in it.
pub fn given(settings: &[(&str, bool, &str)]) -> Result<(), Halt> {
    match settings.iter().find(|(_, empty, _)| *empty) {
        Some((name, _, example)) => Err(Halt::Usage(format!("{name} is empty\n  try {example}"))),
        None => Ok(()),
    }
}
