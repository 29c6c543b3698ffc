//! Wall clock time.

use squall_port::monotonic;
use time::UtcDateTime;

/// The offset from `CLOCK_MONOTONIC` to nanoseconds since 1970. The thread may be preempted between
/// two clock readings, so one clock is read between two readings of the other, several times, and
/// the reading with the shortest interval is used.
pub(crate) fn offset() -> u64 {
    let reading = || {
        let before = monotonic().0;
        let real = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let after = monotonic().0;
        let real =
            (real.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(real.tv_nsec as u64);
        (after - before, real.wrapping_sub(before + (after - before) / 2))
    };
    (0..10).map(|_| reading()).min().map_or(0, |(_, offset)| offset)
}

/// A UTC date and time in the proleptic Gregorian calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Civil(UtcDateTime);

impl Civil {
    /// From nanoseconds since 1970.
    pub fn of(time_ns: u64) -> Self {
        let time = UtcDateTime::from_unix_timestamp_nanos(time_ns.into());
        Self(time.expect("64 bits of nanoseconds end in 2554"))
    }

    /// `20261121T205500`
    pub fn compact(self) -> String {
        let ((year, month, day), (hour, minute, second)) =
            (self.0.to_calendar_date(), self.0.as_hms());
        format!("{year:04}{:02}{day:02}T{hour:02}{minute:02}{second:02}", u8::from(month))
    }

    /// `20:55:00.000000001`
    pub fn clock(self) -> String {
        let (hour, minute, second, ns) = self.0.as_hms_nano();
        format!("{hour:02}:{minute:02}:{second:02}.{ns:09}")
    }

    /// `2026-11-21`
    pub fn date(self) -> String {
        self.0.date().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, date) in [
            (0, "19700101T000000"),
            (68_169_599, "19720228T235959"),
            (68_169_600, "19720229T000000"),
            (951_782_400, "20000229T000000"),
            (1_700_000_000, "20231114T221320"),
            (4_107_542_400, "21000301T000000"),
        ] {
            assert_eq!(Civil::of(seconds * 1_000_000_000).compact(), date);
        }
        let civil = Civil::of(1_700_000_000_000_000_007);
        assert_eq!(
            (civil.date(), civil.clock()),
            ("2023-11-14".into(), "22:13:20.000000007".into())
        );
    }

    #[test]
    fn the_offset_leads_to_the_wall_clock() {
        let now = monotonic().0.wrapping_add(offset()) / 1_000_000_000;
        let wall =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        assert!(now.abs_diff(wall) <= 1, "{now} {wall}");
    }
}
