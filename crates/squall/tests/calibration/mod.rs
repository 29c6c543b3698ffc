//! How fast the machine is now, as the unit of what a test may take.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

/// The time in which this machine counts to `n`, from a hundredth of it.
pub fn time_to_count(n: u32) -> Duration {
    let begun = Instant::now();
    let mut i = 0;
    while black_box(i) < n / 100 {
        i += 1;
    }
    begun.elapsed() * 100
}

/// Measures until the result is right: a machine that was stopped elsewhere meanwhile says nothing.
///
/// # Panics
/// With all errors after 20 times.
pub fn measure(mut once: impl FnMut() -> Result<(), String>) {
    let mut wrong = Vec::new();
    while let Err(error) = once() {
        wrong.push(error);
        assert!(wrong.len() < 20, "measured {} times: {wrong:#?}", wrong.len());
    }
}
