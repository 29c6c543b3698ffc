//! Launch times: due times as the ticks of a device's clock.

use squall_port::DeviceClock;

use crate::shim::ClockPair;

/// Parameters with which the shim converts due times to ticks of `clock`; each result is `later` ns
/// after the due time.
pub fn pair(clock: &DeviceClock, later: u32) -> ClockPair {
    let (last, ticks_per_ns) = clock.line();
    ClockPair {
        monotonic_ns: last.monotonic.0 as i64 - i64::from(later),
        ticks: last.ticks as i64,
        ticks_per_ns,
    }
}

#[cfg(test)]
mod tests {
    use squall_port::Reading;
    use squall_units::Nanos;

    use super::*;

    #[test]
    fn launch_times_are_dues_and_the_delay_asked_for() {
        let reading = |monotonic: u64, ticks: u64| Reading { monotonic: Nanos(monotonic), ticks };
        let pair = pair(&DeviceClock::new(reading(0, 0), reading(1000, 2000)), 100);
        // Computes as the shim does.
        let ticks =
            |due: i64| pair.ticks + ((due - pair.monotonic_ns) as f64 * pair.ticks_per_ns) as i64;
        assert_eq!(ticks(1000), 2200);
        assert_eq!(ticks(5000), 10_200);
    }
}
