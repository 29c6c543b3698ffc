//! Wall clock.

use squall_port::monotonic;

const DAY_NS: u64 = 86_400_000_000_000;

/// From `CLOCK_MONOTONIC` to nanoseconds since 1970: the best of some readings, that is the one
/// between two of the other clock that are closest.
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

/// A UTC instant in the proleptic Gregorian calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Civil {
    pub year: u64,
    pub month: u64,
    pub day: u64,
    pub hour: u64,
    pub minute: u64,
    pub second: u64,
    pub ns: u64,
}

impl Civil {
    /// Of nanoseconds since 1970.
    pub fn of(time_ns: u64) -> Self {
        // Days from 0000-03-01 on, eras of 400 years (H. Hinnant, "chrono-Compatible Low-Level Date
        // Algorithms").
        let days = time_ns / DAY_NS + 719_468;
        let (era, day) = (days / 146_097, days % 146_097);
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let in_day = time_ns % DAY_NS;
        let seconds = in_day / 1_000_000_000;
        Self {
            year: era * 400 + year + u64::from(month >= 10),
            month: if month < 10 { month + 3 } else { month - 9 },
            day: day - (153 * month + 2) / 5 + 1,
            hour: seconds / 3_600,
            minute: seconds / 60 % 60,
            second: seconds % 60,
            ns: in_day % 1_000_000_000,
        }
    }

    /// `20261121T205500`
    pub fn compact(self) -> String {
        let Self { year, month, day, hour, minute, second, .. } = self;
        format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}")
    }

    /// `20:55:00.000000001`
    pub fn clock(self) -> String {
        format!("{:02}:{:02}:{:02}.{:09}", self.hour, self.minute, self.second, self.ns)
    }

    /// `2026-11-21`
    pub fn date(self) -> String {
        format!("{:04}-{:02}-{:02}", self.year, self.month, self.day)
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
