//! Packets by their numbers.

use std::str::FromStr;

/// Numbers and ranges of them, from 1: `1-5,9,20-`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// Ascending, apart from each other; both ends are in.
    ranges: Vec<(u64, u64)>,
}

impl Numbers {
    #[inline]
    pub fn contains(&self, number: u64) -> bool {
        let at = self.ranges.partition_point(|range| range.1 < number);
        self.ranges.get(at).is_some_and(|range| range.0 <= number)
    }
}

impl FromStr for Numbers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut ranges = Vec::new();
        for part in text.split(',') {
            let wrong = || format!("{part:?}: expected packets by number, as in 1-5,9,20- (from 1)");
            let number = |text: &str| text.trim().parse::<u64>().map_err(|_| wrong());
            let (first, last) = match part.split_once('-') {
                None => (number(part)?, number(part)?),
                Some((first, last)) if last.trim().is_empty() => (number(first)?, u64::MAX),
                Some((first, last)) => (number(first)?, number(last)?),
            };
            if first == 0 || last < first {
                return Err(wrong());
            }
            ranges.push((first, last));
        }
        ranges.sort_unstable();
        // Those that overlap become one.
        ranges.dedup_by(|next, before| {
            let joined = next.0 <= before.1.saturating_add(1);
            if joined {
                before.1 = before.1.max(next.1);
            }
            joined
        });
        Ok(Self { ranges })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_in_their_ranges_however_these_are_written() {
        let numbers: Numbers = "9, 3-5,4-7,20-".parse().unwrap();
        let wanted = |n: u64| (3..=7).contains(&n) || n == 9 || n >= 20;
        assert!((1..40).all(|n| numbers.contains(n) == wanted(n)));
    }

    #[test]
    fn what_is_no_list_of_numbers_is_refused() {
        for text in ["", "0", "5-3", "a", "1,,2", "-5", "1-2-3"] {
            assert!(text.parse::<Numbers>().is_err(), "{text}");
        }
    }
}
