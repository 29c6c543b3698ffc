//! Parses the time formats of logs.

use squall_units::Nanos;
use time::{Date, Month};

const DAY: u64 = 86_400;
/// Julian day of 1970-01-01.
const EPOCH: i32 = 2_440_588;

/// Parses a time as nanoseconds since 1970 UTC: seconds with a fraction (`1700000000.123456`), ISO
/// 8601 (`2023-11-14T22:13:20.123456+0000`), or Snort's and Suricata's
/// `11/14/2023-22:13:20.123456`, where the year may have two digits, come first, or be missing.
/// `year` replaces a missing year. A time without an offset is UTC.
pub(crate) fn instant(text: &str, year: Option<i64>) -> Option<Nanos> {
    let text = text.trim();
    if text.bytes().all(|c| c.is_ascii_digit() || c == b'.') {
        return seconds(text);
    }
    let (date, clock, offset) =
        match text.split_once(['T', ' ']).filter(|(date, _)| date.contains('-')) {
            Some((date, clock)) => {
                let (clock, offset) = zone(clock)?;
                (iso_date(date)?, clock, offset)
            }
            None => {
                let (date, clock) = text.split_once('-')?;
                (american_date(date, year)?, clock, 0)
            }
        };
    let mut parts = clock.split(':');
    let (hour, minute) = (small(parts.next()?, 23)?, small(parts.next()?, 59)?);
    let second = seconds(parts.next().unwrap_or("0"))?;
    // Second 60 is a leap second.
    if parts.next().is_some() || second.0 >= 61 * Nanos::SECOND.0 {
        return None;
    }
    let days = u64::try_from(date.to_julian_day() - EPOCH).ok()?;
    let whole = days.checked_mul(DAY)? + hour * 3600 + minute * 60;
    let whole = whole.checked_add_signed(-offset)?;
    Some(Nanos(whole.checked_mul(Nanos::SECOND.0)?.checked_add(second.0)?))
}

/// Parses seconds with a fraction of any length. Ignores digits after the ninth.
pub(crate) fn seconds(text: &str) -> Option<Nanos> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|c| c.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) {
        return None;
    }
    let nine: String = fraction.chars().chain(std::iter::repeat('0')).take(9).collect();
    let whole: u64 = whole.parse().ok()?;
    Some(Nanos(whole.checked_mul(Nanos::SECOND.0)?.checked_add(nine.parse().ok()?)?))
}

/// The inverse of [`seconds`], with nine fractional digits.
pub(crate) fn print_seconds(at: Nanos) -> String {
    format!("{}.{:09}", at.0 / Nanos::SECOND.0, at.0 % Nanos::SECOND.0)
}

/// The year of a time.
pub(crate) fn year(at: Nanos) -> i64 {
    let day = EPOCH + (at.0 / Nanos::SECOND.0 / DAY) as i32;
    Date::from_julian_day(day).expect("64 bits of nanoseconds end in 2554").year().into()
}

fn day_of(year: i64, month: u64, day: u64) -> Option<Date> {
    let month = Month::try_from(u8::try_from(month).ok()?).ok()?;
    let year = i32::try_from(year).ok().filter(|year| (1970..=9999).contains(year))?;
    Date::from_calendar_date(year, month, u8::try_from(day).ok()?).ok()
}

fn iso_date(text: &str) -> Option<Date> {
    let mut parts = text.split('-');
    let (year, month) = (small(parts.next()?, 9999)?, small(parts.next()?, 12)?);
    let day = small(parts.next()?, 31)?;
    if parts.next().is_some() { None } else { day_of(year as i64, month, day) }
}

/// Parses `MM/DD`, `MM/DD/YYYY`, `MM/DD/YY` (Snort 2) or `YY/MM/DD` (Snort 3). If both of the
/// latter two are possible, prefers the order that agrees with `year`, otherwise Snort 2's.
fn american_date(text: &str, year: Option<i64>) -> Option<Date> {
    let parts: Vec<u64> = text.split('/').map(|part| small(part, 9999)).collect::<Option<_>>()?;
    match *parts.as_slice() {
        [month, day] => day_of(year?, month, day),
        [month, day, full] if full > 99 => day_of(full as i64, month, day),
        [a, b, c] => {
            let snort2 = day_of(2000 + c as i64, a, b);
            let snort3 = day_of(2000 + a as i64, b, c);
            match (snort2, snort3) {
                (Some(first), Some(date))
                    if year == Some(date.year().into()) && first.year() != date.year() =>
                {
                    snort3
                }
                (Some(_), _) => snort2,
                _ => snort3,
            }
        }
        _ => None,
    }
}

/// Splits off the UTC offset, and returns it in seconds.
fn zone(clock: &str) -> Option<(&str, i64)> {
    if let Some(clock) = clock.strip_suffix(['Z', 'z']) {
        return Some((clock, 0));
    }
    let Some(at) = clock.rfind(['+', '-']) else { return Some((clock, 0)) };
    let (clock, offset) = clock.split_at(at);
    let digits: String = offset[1..].chars().filter(|c| *c != ':').collect();
    if !(digits.len() == 2 || digits.len() == 4) || !digits.bytes().all(|c| c.is_ascii_digit()) {
        return None;
    }
    let hours: i64 = digits[..2].parse().ok()?;
    let minutes: i64 = digits.get(2..4).unwrap_or("0").parse().ok()?;
    let ahead = hours * 3600 + minutes * 60;
    Some((clock, if offset.starts_with('-') { -ahead } else { ahead }))
}

fn small(text: &str, most: u64) -> Option<u64> {
    let fits = (1..=4).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_digit());
    text.parse().ok().filter(|&n| fits && n <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_log_s_form_is_the_same_instant() {
        let at = Some(Nanos(1_700_000_000_123_456_000));
        for text in [
            "1700000000.123456",
            "2023-11-14T22:13:20.123456Z",
            "2023-11-14T22:13:20.123456+0000",
            "2023-11-14T17:13:20.123456-05:00",
            "2023-11-15 03:43:20.123456+0530",
            "2023-11-14 22:13:20.123456",
            "11/14/2023-22:13:20.123456",
            "11/14/23-22:13:20.123456 ",
            "23/11/14-22:13:20.123456",
        ] {
            assert_eq!(instant(text, None), at, "{text}");
        }
        assert_eq!(instant("11/14-22:13:20.123456", Some(2023)), at);
        assert_eq!(instant("11/14-22:13:20.123456", None), None);
        assert_eq!(instant("01/02/03-00:00:00", Some(2001)), instant("2001-02-03T00:00:00", None));
        assert_eq!(instant("01/02/03-00:00:00", None), instant("2003-01-02T00:00:00", None));
    }

    #[test]
    fn text_that_is_not_a_time_is_none() {
        for text in [
            "",
            ".",
            "x",
            "2023-02-29T00:00:00",
            "2023-13-01T00:00:00",
            "11/14/2023",
            "1969-12-31T23:59:59Z",
            "2023-11-14T24:00:00",
            "2023-11-14T00:00:00+1",
            "2023-11-14T00:00:61",
            "99999999999999999999",
            "9999-12-31T00:00:00",
            "1970-01-01T00:00:00+0100",
        ] {
            assert_eq!(instant(text, None), None, "{text}");
        }
    }

    #[test]
    fn a_year_is_that_of_its_first_and_last_instant() {
        for y in 1970..2554 {
            let first = instant(&format!("{y}-01-01T00:00:00"), None).unwrap();
            assert_eq!(
                (year(first), year(Nanos(first.0.saturating_sub(1)))),
                (y, (y - 1).max(1970))
            );
        }
        assert_eq!(year(Nanos(u64::MAX)), 2554);
    }

    #[test]
    fn seconds_print_and_read_back_to_the_nanosecond() {
        for at in [0, 1, 999_999_999, 1_700_000_000_123_456_789, u64::MAX] {
            assert_eq!(seconds(&print_seconds(Nanos(at))), Some(Nanos(at)));
        }
    }
}
