//! Numbers encoded in octets, for `byte_test`, `byte_jump`, `byte_extract` and `byte_math`.

use squall_rules::{Arithmetic, ByteMath, Comparison, Reading};

/// Reads a number and applies the bitmask. `None` if there are invalid digits.
pub(super) fn read(octets: &[u8], reading: &Reading) -> Option<u64> {
    let number = match reading.digits {
        Some(base) => {
            let text: String = octets.iter().map(|&octet| octet as char).collect();
            let text = text.trim_start();
            let (base, text) = match (base, text.strip_prefix("0x").or(text.strip_prefix("0X"))) {
                (0 | 16, Some(digits)) => (16, digits),
                (0, None) if text.starts_with('0') => (8, text),
                (0, None) => (10, text),
                (base, None) | (base, Some(_)) => (base, text),
            };
            let digits: String =
                text.chars().take_while(|digit| digit.is_digit(base.into())).collect();
            u64::from_str_radix(&digits, base.into()).ok()?
        }
        None => {
            let mut number = 0_u64;
            for index in 0..octets.len().min(8) {
                let octet = if reading.little_endian {
                    octets[octets.len().min(8) - 1 - index]
                } else {
                    octets[index]
                };
                number = number << 8 | u64::from(octet);
            }
            number
        }
    };
    Some(masked(number, reading))
}

fn masked(number: u64, reading: &Reading) -> u64 {
    match reading.bitmask {
        Some(0) | None => number,
        Some(mask) => (number & mask) >> mask.trailing_zeros(),
    }
}

/// Writes `number` in `count` octets. `None` if it does not fit.
pub(super) fn write(number: u64, count: usize, reading: &Reading) -> Option<Vec<u8>> {
    if let Some(base) = reading.digits {
        let digits = match base {
            8 => format!("{number:o}"),
            16 => format!("{number:x}"),
            _ => number.to_string(),
        };
        // Pad with blanks, because a leading 0 would mean octal if the rule gives no base.
        let padded =
            if base == 0 { format!("{digits: >count$}") } else { format!("{digits:0>count$}") };
        return (digits.len() <= count && count > 0).then(|| padded.into_bytes());
    }
    let number = match reading.bitmask {
        Some(0) | None => number,
        Some(mask) => {
            let shifted = number.checked_shl(mask.trailing_zeros())?;
            if shifted & !mask != 0 || shifted >> mask.trailing_zeros() != number {
                return None;
            }
            shifted
        }
    };
    if count == 0 || count > 8 || (count < 8 && number >> (8 * count) != 0) {
        return None;
    }
    let mut octets = number.to_be_bytes()[8 - count..].to_vec();
    if reading.little_endian {
        octets.reverse();
    }
    Some(octets)
}

/// The largest number that fits into `count` octets.
pub(super) fn greatest(count: usize, reading: &Reading) -> u64 {
    let all = match (reading.digits, count) {
        (Some(base), _) => {
            let base = if base == 0 { 10 } else { u64::from(base) };
            base.checked_pow(u32::try_from(count).unwrap_or(u32::MAX))
                .map_or(u64::MAX, |power| power.saturating_sub(1))
        }
        (None, 8..) => u64::MAX,
        (None, _) => (1 << (8 * count)) - 1,
    };
    masked(all, reading)
}

pub(super) fn holds(number: u64, operator: Comparison, value: u64, negated: bool) -> bool {
    let holds = match operator {
        Comparison::Less => number < value,
        Comparison::LessOrEqual => number <= value,
        Comparison::Equal => number == value,
        Comparison::Greater => number > value,
        Comparison::GreaterOrEqual => number >= value,
        Comparison::And => number & value != 0,
        Comparison::Xor => number ^ value != 0,
    };
    holds != negated
}

/// The result of `byte_math`. `None` for a division by zero or a result beyond 64 bits.
pub(super) fn calculate(math: &ByteMath, number: u64, value: u64) -> Option<u64> {
    match math.operator {
        Arithmetic::Add => number.checked_add(value),
        Arithmetic::Subtract => number.checked_sub(value),
        Arithmetic::Multiply => number.checked_mul(value),
        Arithmetic::Divide => number.checked_div(value),
        Arithmetic::ShiftLeft => number.checked_shl(u32::try_from(value).ok()?),
        Arithmetic::ShiftRight => number.checked_shr(u32::try_from(value).ok()?),
    }
}

/// Numbers to try that may satisfy `tests`, simplest first.
pub(super) fn candidates(tests: &[(Comparison, u64, bool)], greatest: u64) -> Vec<u64> {
    let mut numbers = vec![];
    for &(operator, value, _) in tests {
        let first = match operator {
            Comparison::Less => value.saturating_sub(1),
            Comparison::Greater => value.saturating_add(1),
            Comparison::Xor => !value,
            _ => value,
        };
        numbers.extend([first, value, value.saturating_add(1), value.saturating_sub(1)]);
        if operator == Comparison::And {
            numbers.extend((0..64).map(|bit| 1_u64 << bit).filter(|bit| bit & value != 0));
            numbers.push(!value & greatest);
        }
    }
    numbers.extend([0, 1, 2, 4, 8, 16, 32, 64, 128, 255, greatest]);
    let mut seen = vec![];
    for number in numbers {
        if number <= greatest
            && !seen.contains(&number)
            && tests
                .iter()
                .all(|&(operator, value, negated)| holds(number, operator, value, negated))
        {
            seen.push(number);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_numbers_are_read_back() {
        for reading in [
            Reading::default(),
            Reading { little_endian: true, ..Reading::default() },
            Reading { digits: Some(10), ..Reading::default() },
            Reading { digits: Some(16), ..Reading::default() },
            Reading { digits: Some(8), ..Reading::default() },
            Reading { digits: Some(0), ..Reading::default() },
            Reading { bitmask: Some(0xff0), ..Reading::default() },
        ] {
            for count in 1..=4 {
                for number in [0, 1, 7, 99, 255, 4095, 65_535] {
                    if let Some(octets) = write(number, count, &reading) {
                        assert_eq!(octets.len(), count);
                        assert_eq!(read(&octets, &reading), Some(number), "{reading:?} {octets:?}");
                    } else {
                        assert!(number > greatest(count, &reading) || reading.bitmask.is_some());
                    }
                }
            }
        }
    }

    #[test]
    fn numbers_for_several_tests_hold_for_all() {
        let tests = [
            (Comparison::Greater, 95, false),
            (Comparison::Less, 115, false),
            (Comparison::Equal, 96, true),
        ];
        let numbers = candidates(&tests, 1 << 20);
        assert!(
            !numbers.is_empty()
                && numbers.iter().all(|&number| number > 95 && number < 115 && number != 96)
        );
        assert!(candidates(&[(Comparison::Greater, 255, false)], 255).is_empty());
        assert!(
            candidates(&[(Comparison::And, 0x40, true)], 255)
                .iter()
                .all(|number| number & 0x40 == 0)
        );
    }
}
