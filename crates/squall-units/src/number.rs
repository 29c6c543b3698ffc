//! Arithmetic that several crates use.

/// The greatest common divisor. gcd(0, n) is n.
pub fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The least common multiple of two nonzero numbers; `None` if it does not fit into 64 bits.
pub fn lcm(a: u64, b: u64) -> Option<u64> {
    (a / gcd(a.into(), b.into()) as u64).checked_mul(b)
}

/// The median, ignoring values that are not finite. For an even number of values, the mean of the
/// middle two.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    let n = values.len();
    match n {
        0 => None,
        _ if n % 2 == 1 => Some(values[n / 2]),
        _ => Some((values[n / 2 - 1] + values[n / 2]) / 2.0),
    }
}

/// The median. For an even number of values, the higher of the middle two, which makes the result
/// one of `values`.
pub fn median_high(values: impl IntoIterator<Item = u64>) -> Option<u64> {
    let mut values: Vec<u64> = values.into_iter().collect();
    let middle = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable(middle).1)
}

/// Standard deviation that remains if an independent part of known deviation is removed:
/// sqrt(total² - part²), at least 0.
pub fn remaining_sd(total: f64, part: f64) -> f64 {
    (total * total - part * part).max(0.0).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squares_of_independent_deviations_add_up() {
        assert_eq!((remaining_sd(5.0, 3.0), remaining_sd(3.0, 5.0)), (4.0, 0.0));
    }

    #[test]
    fn divisors_and_multiples_are_the_common_ones() {
        assert_eq!((gcd(12, 18), gcd(7, 0), gcd(0, 7), gcd(1 << 100, 3 << 80)), (6, 7, 7, 1 << 80));
        assert_eq!((lcm(4, 6), lcm(u64::MAX, 2)), (Some(12), None));
    }

    #[test]
    fn a_median_is_the_middle_or_between_the_two() {
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, f64::NAN, 2.0, 3.0]), Some(2.5));
        assert_eq!(median([]), None);
    }

    #[test]
    fn a_high_median_is_one_of_the_values() {
        assert_eq!((median_high([3, 1, 2]), median_high([4, 1, 2, 3])), (Some(2), Some(3)));
        assert_eq!(median_high([]), None);
    }
}
