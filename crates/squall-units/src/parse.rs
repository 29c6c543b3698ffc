//! Converts quantities from and to text. Numbers are parsed as exact fractions, never through
//! floating point.

use std::fmt;

use crate::{MacAddr, Nanos, Rate, RateUnit};

/// Error for an invalid text, with the expected form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is not {expected}; try {hint}")]
pub struct UnitError {
    pub found: String,
    /// The expected kind of value: "a rate", "a duration", ...
    pub expected: &'static str,
    /// Examples, such as `"10 kpps", "1.5 Gbps", "30 %"`.
    pub hint: &'static str,
}

/// Parses `"1000"`, `"10k"`, `"2M"`, `"1_000"`, `"1.5M"`. The result must be an integer. Prefixes
/// are decimal, in upper or lower case.
pub fn parse_count(text: &str) -> Result<u64, UnitError> {
    let error = |hint| UnitError { found: text.into(), expected: "a count", hint };
    let (number, unit) = split_number(text).ok_or(error(r#""1000", "10k", "1.5M""#))?;
    let scale =
        decimal_prefix(&unit.to_ascii_lowercase()).ok_or(error(r#""1000", "10k", "1.5M""#))?;
    number.times(scale).and_then(Fraction::whole).ok_or(error("a whole number below 2^64"))
}

/// Parses octets: `"64"`, `"1500B"`, `"10 kB"`, `"2MiB"`, `"1GB"`. Rejects a lower-case `b`, which
/// means bits.
pub fn parse_octets(text: &str) -> Result<u64, UnitError> {
    let error = |hint| UnitError { found: text.into(), expected: "a number of octets", hint };
    const EXAMPLES: &str = r#""1500", "10 kB", "2 MiB""#;
    let (number, unit) = split_number(text).ok_or(error(EXAMPLES))?;
    let prefix = ["octets", "bytes", "B"]
        .iter()
        .find_map(|end| unit.strip_suffix(end))
        .unwrap_or(unit)
        .trim_end();
    let scale = match prefix.to_ascii_lowercase().as_str() {
        "ki" => 1 << 10,
        "mi" => 1 << 20,
        "gi" => 1 << 30,
        "ti" => 1 << 40,
        decimal => decimal_prefix(decimal).ok_or(error(EXAMPLES))?,
    };
    number.times(scale).and_then(Fraction::whole).ok_or(error("a whole number below 2^64"))
}

/// Parses a duration. Rounds to the nearest nanosecond.
pub(crate) fn duration(text: &str) -> Result<Nanos, UnitError> {
    let error = |hint| UnitError { found: text.into(), expected: "a duration", hint };
    const EXAMPLES: &str = r#""10 s", "1.5 ms", "250 us", "1h30m""#;
    let mut total = 0u64;
    let mut above = u64::MAX;
    let mut rest = text.trim();
    loop {
        let (number, tail) = split_number(rest).ok_or(error(EXAMPLES))?;
        let end = tail.find(|c: char| !c.is_alphabetic()).unwrap_or(tail.len());
        let (name, tail) = tail.split_at(end);
        let unit = match name {
            "ns" | "nsec" => 1,
            "us" | "µs" | "μs" | "usec" => 1_000,
            "ms" | "msec" => 1_000_000,
            "s" | "sec" | "second" | "seconds" => 1_000_000_000,
            "m" | "min" | "minute" | "minutes" => 60_000_000_000,
            "h" | "hour" | "hours" => 3_600_000_000_000,
            "" if above == u64::MAX && tail.is_empty() => 1_000_000_000,
            _ => return Err(error(EXAMPLES)),
        };
        if unit >= above {
            return Err(error(r#"larger units first: "1h30m""#));
        }
        above = unit;
        let part =
            number.times(unit).and_then(Fraction::rounded).ok_or(error("less than 584 years"))?;
        total = total.checked_add(part).ok_or(error("less than 584 years"))?;
        rest = tail.trim_start();
        if rest.is_empty() {
            return Ok(Nanos(total));
        }
    }
}

/// Prints in the largest unit in which the value is at least 1 and needs at most three decimals.
/// With a precision (`{:.1}`), uses the largest unit in which the value is at least 1, and rounds
/// to that number of decimals.
pub(crate) fn print_duration(ns: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    const UNITS: [(u64, &str); 6] = [
        (3_600_000_000_000, "h"),
        (60_000_000_000, "min"),
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1_000, "us"),
        (1, "ns"),
    ];
    if let Some(decimals) = f.precision() {
        let (unit, name) = UNITS.into_iter().find(|(unit, _)| ns >= *unit).unwrap_or((1, "ns"));
        return write!(f, "{:.decimals$} {name}", ns as f64 / unit as f64);
    }
    for (unit, name) in UNITS {
        if ns >= unit
            && let Some(number) = decimal(u128::from(ns), u128::from(unit), 3)
        {
            return write!(f, "{number} {name}");
        }
    }
    f.write_str(if ns == 0 {
        "0 s"
    } else {
        unreachable!("every duration is a whole number of ns")
    })
}

/// Suffixes of rates in bits per second, as in profiles, reports and other tools. Longer ones
/// first, because the first match is taken.
const BITS: [&str; 6] = ["bits/s", "bit/s", "b/s", "bps", "bits", "bit"];

/// Parses a rate. Prefixes may be in lower case (TRex writes `1mpps`). `MBps` is rejected: `B`
/// means octets, and reading it as bits would give an eighth of the rate.
pub(crate) fn rate(text: &str) -> Result<Rate, UnitError> {
    let error = |hint| UnitError { found: text.into(), expected: "a rate", hint };
    const EXAMPLES: &str = r#""10 kpps", "1.5 Gbps", "2 Gbps l1", "30 %", "max""#;
    let trimmed = text.trim();
    if trimmed.eq_ignore_ascii_case("max") {
        return Ok(Rate::MAX);
    }
    let (mut number, mut unit) = split_number(trimmed).ok_or(error(EXAMPLES))?;
    if let Some(denominator) = unit.strip_prefix('/') {
        let (by, rest) = split_number(denominator.trim_start()).ok_or(error(EXAMPLES))?;
        number = number.over(by).ok_or(error(EXAMPLES))?;
        unit = rest;
    }
    if unit.contains('B') {
        return Err(error(r#"bits per second, with a small b: "8 Mbps""#));
    }
    let unit = unit.to_ascii_lowercase();
    let layer = |name: &'static str| Some(unit.strip_suffix(name)?.trim_end_matches([' ', '_']));
    let bits = |text: &str| BITS.iter().find_map(|end| text.strip_suffix(end)).map(str::to_owned);
    let (prefix, unit) = if decimal_prefix(&unit).is_some() {
        // A number without a unit, possibly with a prefix.
        (unit, RateUnit::Pps)
    } else if unit == "%" || unit == "percent" {
        (String::new(), RateUnit::Percent)
    } else if let Some(prefix) = unit.strip_suffix("pps").or(unit.strip_suffix("fps")) {
        (prefix.to_owned(), RateUnit::Pps)
    } else if let Some(prefix) = layer("l1").and_then(bits) {
        (prefix, RateUnit::BpsL1)
    } else if let Some(prefix) = bits(layer("l2").unwrap_or(&unit)) {
        (prefix, RateUnit::BpsL2)
    } else {
        return Err(error(EXAMPLES));
    };
    let scale = decimal_prefix(prefix.trim_end()).ok_or(error(EXAMPLES))?;
    let (num, den) = number
        .times(scale)
        .and_then(Fraction::narrow)
        .ok_or(error("fewer digits: at most 2^64"))?;
    Ok(Rate { num, den, unit })
}

/// Prints like durations. A value without a short decimal form is printed as a fraction: `1000/3
/// pps`.
pub(crate) fn print_rate(rate: &Rate, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (unit, layer) = match rate.unit {
        RateUnit::Max => return f.write_str("max"),
        RateUnit::Percent => ("%", ""),
        RateUnit::Pps => ("pps", ""),
        RateUnit::BpsL1 => ("bps", " l1"),
        RateUnit::BpsL2 => ("bps", ""),
    };
    const PREFIXES: [(u128, &str); 4] =
        [(1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k"), (1, "")];
    let prefixes = if rate.unit == RateUnit::Percent { &PREFIXES[3..] } else { &PREFIXES };
    let (num, den) = (u128::from(rate.num), u128::from(rate.den));
    if let Some(decimals) = f.precision() {
        let (scale, prefix) =
            prefixes.iter().find(|(scale, _)| num >= den * scale).unwrap_or(&(1, ""));
        return write!(f, "{:.decimals$} {prefix}{unit}{layer}", rate.value() / *scale as f64);
    }
    for (scale, prefix) in prefixes {
        if num >= den * scale
            && let Some(number) = decimal(num, den * scale, 3)
        {
            return write!(f, "{number} {prefix}{unit}{layer}");
        }
    }
    match decimal(num, den, 9) {
        Some(number) => write!(f, "{number} {unit}{layer}"),
        None => write!(f, "{num}/{den} {unit}{layer}"),
    }
}

pub(crate) fn mac(text: &str) -> Result<MacAddr, UnitError> {
    const EXAMPLES: &str = r#""02:00:00:00:00:01", "02-00-00-00-00-01", "0200.0000.0001""#;
    let error = || UnitError { found: text.into(), expected: "a MAC address", hint: EXAMPLES };
    let trimmed = text.trim();
    let (separator, widths) = match trimmed.find([':', '-', '.']).map(|at| trimmed.as_bytes()[at]) {
        Some(b'.') => ('.', 4..=4),
        Some(b'-') => ('-', 1..=2),
        Some(_) => (':', 1..=2),
        None => return Err(error()),
    };
    let digits = *widths.end();
    let (mut value, mut parts) = (0u64, 0);
    for part in trimmed.split(separator) {
        parts += 1;
        if parts > 12 / digits
            || !widths.contains(&part.len())
            || !part.bytes().all(|b| b.is_ascii_hexdigit())
        {
            return Err(error());
        }
        value = value << (4 * digits) | u64::from_str_radix(part, 16).map_err(|_| error())?;
    }
    if parts * digits != 12 {
        return Err(error());
    }
    let [_, _, octets @ ..] = value.to_be_bytes();
    Ok(MacAddr(octets))
}

/// A non-negative exact number in lowest terms.
#[derive(Clone, Copy)]
struct Fraction {
    num: u128,
    den: u128,
}

impl Fraction {
    fn new(num: u128, den: u128) -> Option<Self> {
        let divisor = crate::gcd(num, den);
        (den != 0).then(|| Self { num: num / divisor, den: den / divisor })
    }

    fn times(self, factor: u64) -> Option<Self> {
        let scale = Self::new(u128::from(factor), self.den)?;
        Self::new(self.num.checked_mul(scale.num)?, scale.den)
    }

    fn over(self, other: Self) -> Option<Self> {
        Self::new(self.num.checked_mul(other.den)?, self.den.checked_mul(other.num)?)
    }

    fn whole(self) -> Option<u64> {
        if self.den == 1 { u64::try_from(self.num).ok() } else { None }
    }

    fn rounded(self) -> Option<u64> {
        let up = self.num % self.den >= self.den.div_ceil(2);
        u64::try_from(self.num / self.den + u128::from(up)).ok()
    }

    fn narrow(self) -> Option<(u64, u64)> {
        Some((u64::try_from(self.num).ok()?, u64::try_from(self.den).ok()?))
    }
}

/// Splits off the number at the start of `text`: `"1_000.5e3 x"`. Returns the number and the
/// trimmed rest. Digits may be grouped with `_`. A sign is not allowed.
fn split_number(text: &str) -> Option<(Fraction, &str)> {
    let text = text.trim();
    let mut num = 0u128;
    let mut exponent = 0i32;
    let (mut digits, mut point) = (0, false);
    let mut at = 0;
    let bytes = text.as_bytes();
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'0'..=b'9' => {
                num = num.checked_mul(10)?.checked_add(u128::from(byte - b'0'))?;
                digits += 1;
                exponent -= i32::from(point);
            }
            b'.' if !point => point = true,
            b'_' if digits > 0 => {}
            _ => break,
        }
        at += 1;
    }
    if digits == 0 || matches!(bytes[at - 1], b'_' | b'.') {
        return None;
    }
    if let Some((written, len)) = exponent_at(&text[at..]) {
        exponent = exponent.checked_add(written)?;
        at += len;
    }
    let power = 10u128.checked_pow(exponent.unsigned_abs())?;
    let number = if exponent < 0 {
        Fraction::new(num, power)
    } else {
        Fraction::new(num.checked_mul(power)?, 1)
    };
    Some((number?, text[at..].trim_start()))
}

/// Parses an exponent such as `e6` or `E-3`. Returns it with the length of its text.
fn exponent_at(text: &str) -> Option<(i32, usize)> {
    let digits = text.strip_prefix(['e', 'E'])?;
    let signed = digits.strip_prefix(['+', '-']).unwrap_or(digits);
    let len = signed.bytes().take_while(u8::is_ascii_digit).count();
    let value: i32 = signed[..len].parse().ok()?;
    Some((if digits.starts_with('-') { -value } else { value }, text.len() - signed.len() + len))
}

fn decimal_prefix(lower_case: &str) -> Option<u64> {
    Some(match lower_case {
        "" => 1,
        "k" => 1_000,
        "m" => 1_000_000,
        "g" => 1_000_000_000,
        "t" => 1_000_000_000_000,
        _ => return None,
    })
}

/// `num / den` with at most `places` decimals; `None` if that would round.
fn decimal(num: u128, den: u128, places: u32) -> Option<String> {
    let (whole, mut rest) = (num / den, num % den);
    let mut text = whole.to_string();
    for place in 0..places {
        if rest == 0 {
            break;
        }
        if place == 0 {
            text.push('.');
        }
        rest *= 10;
        text.push(char::from(b'0' + (rest / den) as u8));
        rest %= den;
    }
    (rest == 0).then_some(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rate_of(text: &str) -> (u64, u64, RateUnit) {
        let rate: Rate = text.parse().unwrap_or_else(|e| panic!("{e}"));
        (rate.num, rate.den, rate.unit)
    }

    fn nanos(text: &str) -> u64 {
        text.parse::<Nanos>().unwrap_or_else(|e| panic!("{e}")).0
    }

    #[test]
    fn rates_are_read_in_every_spelling_of_their_unit() {
        use RateUnit::*;
        for (text, expected) in [
            ("1000", (1000, 1, Pps)),
            ("10 Mpps", (10_000_000, 1, Pps)),
            ("1mpps", (1_000_000, 1, Pps)),
            (" 2.5 kpps ", (2500, 1, Pps)),
            ("33.3 pps", (333, 10, Pps)),
            ("1e6pps", (1_000_000, 1, Pps)),
            ("1_000 fps", (1000, 1, Pps)),
            ("1000/3 pps", (1000, 3, Pps)),
            ("1.5 Gbps", (1_500_000_000, 1, BpsL2)),
            ("2gbps", (2_000_000_000, 1, BpsL2)),
            ("2 Gbps l2", (2_000_000_000, 1, BpsL2)),
            ("2 Gbps_l1", (2_000_000_000, 1, BpsL1)),
            ("2 Gbps L1", (2_000_000_000, 1, BpsL1)),
            ("10kbpsl1", (10_000, 1, BpsL1)),
            // The form of reports.
            ("1 Gb/s", (1_000_000_000, 1, BpsL2)),
            ("33.5 kb/s L1", (33_500, 1, BpsL1)),
            ("512 kb/s l2", (512_000, 1, BpsL2)),
            ("1.2 k", (1200, 1, Pps)),
            ("1k", (1000, 1, Pps)),
            ("2M", (2_000_000, 1, Pps)),
            // The form of tc.
            ("4Mbit", (4_000_000, 1, BpsL2)),
            ("4 mbit/s", (4_000_000, 1, BpsL2)),
            ("9600 bits/s", (9600, 1, BpsL2)),
            ("100 bit", (100, 1, BpsL2)),
            ("50%", (50, 1, Percent)),
            ("0.1 %", (1, 10, Percent)),
            ("MAX", (1, 1, Max)),
            ("0", (0, 1, Pps)),
        ] {
            assert_eq!(rate_of(text), expected, "{text}");
        }
    }

    #[test]
    fn invalid_rates_are_refused() {
        for text in [
            "",
            " ",
            "-1 pps",
            "+1",
            "NaN",
            "inf",
            "pps",
            "10 xpps",
            "10 K l1",
            "10 kk",
            "10 pps l1",
            "10 MBps",
            "10 MB/s",
            "10 MByte",
            "10 /s",
            "10 Mb",
            "1..5 pps",
            "1. pps",
            "_1",
            "1_ pps",
            "1/0 pps",
            "1/ pps",
            "1e40",
            "99999999999999999999 pps",
            "20000000000 Gbps",
            "10 %l1",
            "1e",
            "0.00000000000000000001 pps",
            "max pps",
            "5 µpps",
        ] {
            assert!(
                text.parse::<Rate>().is_err(),
                "{text:?} was read as {:?}",
                text.parse::<Rate>()
            );
        }
        assert_eq!(
            "12 Gbp".parse::<Rate>().unwrap_err().to_string(),
            r#""12 Gbp" is not a rate; try "10 kpps", "1.5 Gbps", "2 Gbps l1", "30 %", "max""#
        );
    }

    #[test]
    fn rates_print_with_the_largest_short_prefix() {
        for text in [
            "10 Mpps",
            "33.3 pps",
            "1.5 Gbps l1",
            "1234.567 kpps",
            "0.000000001 pps",
            "1000/3 pps",
            "30 %",
            "max",
            "0 pps",
            "150000 %",
            "999 bps",
        ] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), text);
        }
        assert_eq!(format!("{:.2}", "1234567 pps".parse::<Rate>().unwrap()), "1.23 Mpps");
    }

    #[test]
    fn durations_are_read_in_every_unit_and_compound() {
        for (text, ns) in [
            ("10", 10_000_000_000),
            ("0.5", 500_000_000),
            ("3 ns", 3),
            ("250us", 250_000),
            ("250 µs", 250_000),
            ("250 μs", 250_000),
            ("1.5 ms", 1_500_000),
            ("10s", 10_000_000_000),
            ("2 sec", 2_000_000_000),
            ("2 min", 120_000_000_000),
            ("2m", 120_000_000_000),
            ("1 h", 3_600_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("1 h 30 m 0.5 s", 5_400_500_000_000),
            ("0.4 ns", 0),
            ("0.5 ns", 1),
        ] {
            assert_eq!(nanos(text), ns, "{text}");
        }
        for text in [
            "",
            "s",
            "-1s",
            "1x",
            "1h30",
            "30m1h",
            "1s1s",
            "10M",
            "1e30 h",
            "NaN",
            "1 h -2 m",
            "600 000 s",
        ] {
            assert!(text.parse::<Nanos>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn durations_print_exactly_and_rounded_when_asked() {
        for (ns, text) in [
            (0, "0 s"),
            (1, "1 ns"),
            (1_500_000, "1.5 ms"),
            (1_234_567_891, "1234567.891 us"),
            (60_000_000_000, "1 min"),
            (100_000_000_000, "100 s"),
            (5_400_000_000_000, "1.5 h"),
        ] {
            assert_eq!(Nanos(ns).to_string(), text);
        }
        assert_eq!(format!("{:.3}", Nanos(1_234_567_891)), "1.235 s");
    }

    #[test]
    fn counts_and_octets_take_prefixes_and_must_be_whole() {
        assert_eq!(parse_count("1_000"), Ok(1000));
        assert_eq!(parse_count("1.5M"), Ok(1_500_000));
        assert_eq!(parse_count("2g"), Ok(2_000_000_000));
        assert_eq!(parse_octets("64"), Ok(64));
        assert_eq!(parse_octets("1500B"), Ok(1500));
        assert_eq!(parse_octets("10 kB"), Ok(10_000));
        assert_eq!(parse_octets("2MiB"), Ok(2 << 20));
        assert_eq!(parse_octets("1 GB"), Ok(1_000_000_000));
        for text in ["1.5", "-1", "k", "1 kk", "", "99999999T"] {
            assert!(parse_count(text).is_err(), "{text:?}");
        }
        for text in ["0.5B", "10 Mb", "1 KiBB", "1 i"] {
            assert!(parse_octets(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn mac_addresses_are_read_in_three_notations() {
        for text in ["02:00:5e:00:00:fb", "02-00-5E-00-00-FB", "0200.5e00.00fb", "2:0:5e:0:0:fb"] {
            assert_eq!(mac(text).unwrap(), MacAddr([2, 0, 0x5e, 0, 0, 0xfb]), "{text}");
        }
        for text in [
            "",
            ":",
            "02:00:5e:00:00",
            "02:00:5e:00:00:fb:00",
            "02:00-5e:00:00:fb",
            "0200.5e00.fb",
            "02005e0000fb",
            "02:00:5e:00:00:xx",
            "+2:0:0:0:0:0",
        ] {
            assert!(mac(text).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn a_printed_duration_reads_back(ns: u64) {
            prop_assert_eq!(Nanos(ns).to_string().parse(), Ok(Nanos(ns)));
        }

        #[test]
        fn a_printed_rate_in_lowest_terms_reads_back(num: u64, den in 1u64.., small in 1u64..1000, unit in 0..4) {
            let unit = [RateUnit::Pps, RateUnit::BpsL1, RateUnit::BpsL2, RateUnit::Percent][unit as usize];
            for (n, d) in [(num, den), (num, small), (num % 100_000, small), (num, 1)] {
                let rate = Rate { num: n, den: d, unit }.scaled(1, 1).unwrap();
                prop_assert_eq!(rate.to_string().parse(), Ok(rate));
            }
        }

        #[test]
        fn a_printed_mac_address_reads_back(octets: [u8; 6]) {
            prop_assert_eq!(MacAddr(octets).to_string().parse(), Ok(MacAddr(octets)));
        }

        #[test]
        fn no_text_makes_a_parser_panic(text in "\\PC*", near in "[-+]?[0-9._/eE]{0,40} ?[a-zA-Zµ%_: ]{0,8}") {
            for text in [text, near] {
                let _ = (text.parse::<Rate>(), text.parse::<Nanos>(), mac(&text));
                let _ = (parse_count(&text), parse_octets(&text));
            }
        }
    }
}
