//! Quantities in readable form, with three significant digits and a suitable unit. The JSON has the
//! exact values.

/// `si(1.23e6, "pps")` is `1.23 Mpps`. For values from 0 up to 10^18; `n/a` for NaN and infinity.
pub fn si(value: f64, unit: &str) -> String {
    if !value.is_finite() {
        return "n/a".into();
    }
    let mut scaled = value;
    let mut prefixes = ["k", "M", "G", "T", "P", "E"].iter();
    let mut prefix = "";
    // Above 999.5, rounding would give the four digits of 1000.
    while scaled.abs() >= 999.5
        && let Some(next) = prefixes.next()
    {
        scaled /= 1000.0;
        prefix = next;
    }
    format!("{} {prefix}{unit}", three_digits(scaled)).trim_end().into()
}

/// A count with all digits: `12,345,678`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count with its noun in the right number: `1 frame`, `2,000 frames`.
pub fn counted(n: u64, one: &str) -> String {
    format!("{} {one}{}", count(n), if n == 1 { "" } else { "s" })
}

/// A short count: with all digits below 100,000, otherwise `12.3 M`.
pub fn short_count(n: u64) -> String {
    if n < 100_000 { count(n) } else { si(n as f64, "") }
}

/// Formats nanoseconds as `850 ns`, `1.23 µs`, `4.56 ms`, `7.89 s`.
pub fn ns(ns: f64) -> String {
    if !ns.is_finite() {
        return "n/a".into();
    }
    let mut scaled = ns;
    let mut units = ["µs", "ms", "s"].iter();
    let mut unit = "ns";
    while scaled.abs() >= 999.5
        && let Some(next) = units.next()
    {
        scaled /= 1000.0;
        unit = next;
    }
    if unit == "ns" && scaled.fract() == 0.0 {
        return format!("{scaled:.0} ns");
    }
    format!("{} {unit}", three_digits(scaled))
}

/// A duration in seconds: `250 ms`, `10.0 s`, `2 min 05 s`, `1 h 30 min`.
pub fn seconds(s: f64) -> String {
    let whole = s.round() as u64;
    match whole {
        _ if s < 120.0 || !s.is_finite() => ns(s * 1e9),
        120..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole % 3600 / 60),
    }
}

/// Formats a ratio as `0.123 %`. Only exactly 1 gives `100 %`, and only exactly 0 gives `0 %`.
pub fn ratio(share: f64) -> String {
    let percent = share * 100.0;
    if !percent.is_finite() {
        "n/a".into()
    } else if percent == 0.0 {
        "0 %".into()
    } else if percent.abs() < 0.001 {
        format!("{percent:.1e} %")
    } else if percent == 100.0 {
        "100 %".into()
    } else if percent.abs() < 1.0 {
        format!("{percent:.3} %")
    } else if (99.95..100.0).contains(&percent) {
        format!("{:.2} %", (percent * 100.0).floor() / 100.0)
    } else {
        format!("{} %", three_digits(percent))
    }
}

/// Formats a relative difference with its sign: `+0.012 %`. Gives `0 %` below a millionth.
pub fn deviation(share: f64) -> String {
    let percent = share * 100.0;
    if !percent.is_finite() {
        "n/a".into()
    } else if percent.abs() < 1e-4 {
        "0 %".into()
    } else if percent.abs() < 0.1 {
        format!("{percent:+.4} %")
    } else {
        format!("{percent:+.2} %")
    }
}

fn three_digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        a if a < 9.995 => format!("{value:.2}"),
        a if a < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_three_digits_and_the_prefix_that_fits() {
        let cases = [
            (0.0, "0 pps"),
            (0.5, "0.50 pps"),
            (12.0, "12.0 pps"),
            (999.4, "999 pps"),
            (999.6, "1.00 kpps"),
        ];
        for (value, text) in cases {
            assert_eq!(si(value, "pps"), text);
        }
        assert_eq!(si(1.234e6, "pps"), "1.23 Mpps");
        assert_eq!(si(9.999e9, "b/s"), "10.0 Gb/s");
        assert_eq!(si(2.5e7, ""), "25.0 M");
        assert_eq!(si(3.0, ""), "3.00");
        assert_eq!(si(f64::NAN, "pps"), "n/a");
    }

    #[test]
    fn times_have_the_unit_that_fits() {
        for (value, text) in [
            (0.0, "0 ns"),
            (1.0, "1 ns"),
            (1.5, "1.50 ns"),
            (999.0, "999 ns"),
            (999.6, "1.00 µs"),
            (1234.0, "1.23 µs"),
        ] {
            assert_eq!(ns(value), text);
        }
        assert_eq!(ns(2.5e12), "2500 s");
        assert_eq!(seconds(0.25), "250 ms");
        assert_eq!(seconds(10.0), "10.0 s");
        assert_eq!(seconds(125.2), "2 min 05 s");
        assert_eq!(seconds(5400.0), "1 h 30 min");
    }

    #[test]
    fn a_share_never_rounds_to_all_or_nothing() {
        for (value, text) in [
            (0.0, "0 %"),
            (1e-7, "1.0e-5 %"),
            (0.00123, "0.123 %"),
            (0.5, "50.0 %"),
            (0.999_999, "99.99 %"),
            (1.0, "100 %"),
        ] {
            assert_eq!(ratio(value), text);
        }
        assert_eq!(deviation(-0.000_123), "-0.0123 %");
        assert_eq!(deviation(0.05), "+5.00 %");
    }

    #[test]
    fn counts_group_their_thousands() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1000), "1,000");
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!([0, 1, 2000].map(|n| counted(n, "flow")), ["0 flows", "1 flow", "2,000 flows"]);
        assert_eq!(short_count(99_999), "99,999");
        assert_eq!(short_count(12_345_678), "12.3 M");
    }
}
