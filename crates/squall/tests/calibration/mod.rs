//! The current speed of the machine, as a unit for time limits in tests.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

/// The time that this machine takes to count to `n`, estimated from a hundredth of that.
pub fn time_to_count(n: u32) -> Duration {
    let begun = Instant::now();
    let mut i = 0;
    while black_box(i) < n / 100 {
        i += 1;
    }
    begun.elapsed() * 100
}

/// Repeats a measurement until it succeeds: a failure may only mean that the machine was preempted.
///
/// # Panics
/// After 20 failures; the message has all errors.
pub fn measure(mut once: impl FnMut() -> Result<(), String>) {
    let mut wrong = Vec::new();
    while let Err(error) = once() {
        wrong.push(error);
        assert!(wrong.len() < 20, "measured {} times: {wrong:#?}", wrong.len());
    }
}
