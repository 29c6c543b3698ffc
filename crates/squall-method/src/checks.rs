//! Settings that no test can be run with.

use std::ops::RangeInclusive;

use crate::bench::Halt;

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

/// # Errors
/// The first that is empty, with what could be in it.
pub fn given(settings: &[(&str, bool, &str)]) -> Result<(), Halt> {
    match settings.iter().find(|(_, empty, _)| *empty) {
        Some((name, _, example)) => Err(Halt::Usage(format!("{name} is empty\n  try {example}"))),
        None => Ok(()),
    }
}
