//! Parsers for numbers and text in option values.

use crate::Numbers;
use crate::rule::{Parsed, bad, unsupported};
use crate::set::quoted;

/// Names of numbers.
pub(crate) type Names = &'static [(&'static str, u64)];

/// Parses a set of numbers up to `most`: `5`, `=5`, `!5`, `>5`, `>=5`, `<5`, `<=5`, `!=5`, `!1-9`,
/// `&0xc0=0x80`, lists in brackets, and names. As in Suricata, `1<>9` and `1-9` exclude both ends;
/// Snort 3's `1<=>9` includes them.
///
/// Source: Suricata's user guide, "Integer Keywords"; Snort 3's manual, "ranges".
pub(crate) fn numbers(text: &str, most: u64, names: Names) -> Parsed<Numbers> {
    let text = text.trim().trim_matches('"').trim();
    if let Some(inside) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        let (mut with, mut without) = (vec![], vec![]);
        for element in inside.split(',') {
            let element = element.trim();
            match element.strip_prefix('!') {
                Some(element) => without.push(one_set(element, most, names, 0)?),
                None => with.push(one_set(element, most, names, 0)?),
            }
        }
        let all = |sets: &[Numbers]| sets.iter().flat_map(Numbers::ranges).collect::<Numbers>();
        let base = if with.is_empty() { Numbers::range(0..=most) } else { all(&with) };
        return Ok(base.without(&all(&without)));
    }
    // In Suricata 8, an index after a comma selects one of several numbers in a transaction.
    let text = match text.split_once(',') {
        Some((text, "any")) => text.trim(),
        Some((text, index)) if index.trim() == "any" => text.trim(),
        Some(_) => return unsupported("only `any` can select one of several numbers"),
        None => text,
    };
    one_set(text, most, names, 1)
}

/// Like [`numbers`], but `1<>9` and `1-9` include both ends.
pub(crate) fn numbers_inclusive(text: &str, most: u64, names: Names) -> Parsed<Numbers> {
    one_set(text.trim(), most, names, 0)
}

/// Parses a set. `gap`: how many values each end of a range excludes, 0 or 1.
fn one_set(text: &str, most: u64, names: Names, gap: u64) -> Parsed<Numbers> {
    let mut text = text.trim();
    let mut negated = false;
    // A loop, not recursion: a line may contain more `!` than the stack has room for calls.
    while let Some(rest) = text.strip_prefix('!').filter(|rest| !rest.starts_with('=')) {
        negated = !negated;
        text = rest.trim_start();
    }
    let set = plain_set(text, most, names, gap)?;
    Ok(if negated { Numbers::range(0..=most).without(&set) } else { set })
}

/// Like [`one_set`], but without a leading `!` other than that in `!=`.
fn plain_set(text: &str, most: u64, names: Names, gap: u64) -> Parsed<Numbers> {
    let number = |text: &str| -> Parsed<u64> {
        let text = text.trim();
        let found = unsigned(text).or_else(|| {
            names
                .iter()
                .find(|(name, _)| name.eq_ignore_ascii_case(text))
                .map(|&(_, number)| number)
        });
        match found {
            Some(number) if number <= most => Ok(number),
            Some(number) => bad(format!("{number} is out of range: at most {most}")),
            None => bad(format!("{} is not a number", quoted(text))),
        }
    };
    if let Some(rest) = text.strip_prefix('&') {
        let Some((mask, value)) = rest.split_once('=') else {
            return bad("a mask is written as &0xc0=0x80");
        };
        let (mask, negated) =
            mask.trim().strip_suffix('!').map_or((mask, false), |mask| (mask, true));
        let (mask, value) = (number(mask)?, number(value)?);
        if value & !mask != 0 {
            return bad("impossible: the value has bits outside the mask");
        }
        if most > u64::from(u16::MAX) {
            return unsupported("a mask of more than 16 bits");
        }
        let found: Numbers =
            (0..=most).filter(|n| (n & mask == value) != negated).map(|n| n..=n).collect();
        return Ok(found);
    }
    if let Some(rest) = text.strip_prefix("!=") {
        return Ok(Numbers::range(0..=most).without(&Numbers::one(number(rest)?)));
    }
    if let Some(rest) = text.strip_prefix(">=") {
        return Ok(Numbers::range(number(rest)?..=most));
    }
    if let Some(rest) = text.strip_prefix("<=") {
        return Ok(Numbers::range(0..=number(rest)?));
    }
    if let Some(rest) = text.strip_prefix('>') {
        let above = number(rest)?;
        return if above < most {
            Ok(Numbers::range(above + 1..=most))
        } else {
            bad(format!("no number is above {above}"))
        };
    }
    if let Some(rest) = text.strip_prefix('<') {
        return match number(rest)?.checked_sub(1) {
            Some(last) => Ok(Numbers::range(0..=last)),
            None => bad("no number is below 0"),
        };
    }
    let range = |first: &str, last: &str, gap: u64| -> Parsed<Numbers> {
        let (first, last) = (number(first)?, number(last)?);
        match (first.checked_add(gap), last.checked_sub(gap)) {
            (Some(first), Some(last)) if first <= last => Ok(Numbers::range(first..=last)),
            _ => bad(format!("no number is between {first} and {last}")),
        }
    };
    if let Some((first, last)) = text.split_once("<=>") {
        return range(first, last, 0);
    }
    if let Some((first, last)) = text.split_once("<>") {
        return range(first, last, gap);
    }
    if let Some((first, last)) = text.split_once('-')
        && unsigned(first.trim()).is_some()
    {
        return range(first, last, gap);
    }
    number(text.strip_prefix('=').unwrap_or(text)).map(Numbers::one)
}

/// Parses `10`, `0x0a` or `2kb`.
pub(crate) fn unsigned(text: &str) -> Option<u64> {
    let text = text.trim();
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return if digits.starts_with('+') { None } else { u64::from_str_radix(digits, 16).ok() };
    }
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..end].parse().ok()?;
    let unit = match text[end..].trim().to_ascii_lowercase().as_str() {
        "" => 1,
        "kb" | "kib" => 1 << 10,
        "mb" | "mib" => 1 << 20,
        "gb" | "gib" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(unit)
}

/// Parses a number with an optional sign.
pub(crate) fn signed(text: &str) -> Option<i64> {
    let text = text.trim();
    match text.strip_prefix('-') {
        Some(rest) => {
            unsigned(rest).and_then(|number| i64::try_from(number).ok()).map(|number| -number)
        }
        None => unsigned(text.strip_prefix('+').unwrap_or(text))
            .and_then(|number| i64::try_from(number).ok()),
    }
}

/// Removes the quotes and backslashes of `"a\"b"` or `a"b`.
pub(crate) fn plain(text: &str) -> String {
    let text = text.trim();
    let inside = text.strip_prefix('"').map_or(text, |text| text.strip_suffix('"').unwrap_or(text));
    let mut out = String::with_capacity(inside.len());
    let mut chars = inside.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.extend(chars.next()),
            _ => out.push(c),
        }
    }
    out
}

/// Parses the value of `content`: text that may have hexadecimal octets between bars and special
/// characters after a backslash. Returns the pattern, whether it is negated, and the text after the
/// closing quote.
pub(crate) fn pattern(text: &str) -> Parsed<(Vec<u8>, bool, &str)> {
    let text = text.trim();
    let (text, negated) =
        text.strip_prefix('!').map_or((text, false), |rest| (rest.trim_start(), true));
    let Some(inside) = text.strip_prefix('"') else { return bad("expected a content in quotes") };
    let mut pattern = vec![];
    let mut bytes = inside.bytes().enumerate();
    let mut hex: Option<Option<u8>> = None;
    while let Some((at, byte)) = bytes.next() {
        match (&mut hex, byte) {
            (None, b'|') => hex = Some(None),
            (Some(None), b'|') => hex = None,
            (Some(Some(_)), b'|') => return bad("expected two digits per hexadecimal octet"),
            (None, b'"') => {
                if pattern.is_empty() {
                    return bad("the content is empty");
                }
                pattern.shrink_to_fit();
                return Ok((pattern, negated, inside[at + 1..].trim()));
            }
            (None, b'\\') => pattern.extend(bytes.next().map(|(_, byte)| byte)),
            (None, byte) => pattern.push(byte),
            (Some(half), byte) => match (char::from(byte).to_digit(16), *half) {
                (Some(digit), None) => *half = Some(digit as u8),
                (Some(digit), Some(high)) => {
                    pattern.push(high << 4 | digit as u8);
                    *half = None;
                }
                (None, None) if byte.is_ascii_whitespace() => {}
                _ => {
                    return bad(
                        "expected hexadecimal octets between bars, each with two digits: |0D 0A|",
                    );
                }
            },
        }
    }
    bad(if hex.is_some() { "a bar `|` is not closed" } else { "a quote is not closed" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> Vec<(u64, u64)> {
        numbers(text, 255, &[("echo", 8)])
            .unwrap()
            .ranges()
            .map(|range| range.into_inner())
            .collect()
    }

    #[test]
    fn ranges_leave_their_ends_out_but_those_of_snort_3_with_an_equal_sign() {
        assert_eq!(set("1<>9"), [(2, 8)]);
        assert_eq!(set("1-9"), [(2, 8)]);
        assert_eq!(set("1<=>9"), [(1, 9)]);
        assert_eq!(set("!1-9"), [(0, 1), (9, 255)]);
        assert!(numbers("5<>6", 255, &[]).is_err() && numbers("9<>1", 255, &[]).is_err());
    }

    #[test]
    fn comparisons_masks_lists_names_and_units_are_sets() {
        assert_eq!(set("7"), [(7, 7)]);
        assert_eq!(set("=0x07"), [(7, 7)]);
        assert_eq!(set("!7"), [(0, 6), (8, 255)]);
        assert_eq!(set("!=7"), [(0, 6), (8, 255)]);
        assert_eq!(set(">= 7"), [(7, 255)]);
        assert_eq!(set("<7"), [(0, 6)]);
        assert_eq!(
            set("&0x0c=0x08"),
            (0..16).map(|n| (n * 16 + 8, n * 16 + 11)).collect::<Vec<_>>()
        );
        assert_eq!(set("[1,2,!2,5-7]"), [(1, 1), (5, 7)]);
        assert_eq!(set("echo"), [(8, 8)]);
        assert_eq!(set("!echo,any"), [(0, 7), (9, 255)]);
        assert_eq!(unsigned("2 kb"), Some(2048));
        for wrong in [
            "",
            "256",
            "-1",
            "<0",
            ">255",
            "&1=2",
            "x",
            "1<>",
            "[",
            "0x",
            "0x+1",
            "99999999999999999999",
        ] {
            assert!(numbers(wrong, 255, &[]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_number_with_a_million_negations_before_it_takes_no_stack() {
        for (marks, is) in [(1_000_000, vec![(7, 7)]), (1_000_001, vec![(0, 6), (8, 255)])] {
            assert_eq!(set(&format!("{}7", "!".repeat(marks))), is);
            assert_eq!(set(&format!("{}7", "! ".repeat(marks))), is);
        }
        let refused = numbers(&format!("{}[[a]]", "!".repeat(1_000_000)), 255, &[]).unwrap_err();
        assert!(
            refused.1.contains("[[a]]") && refused.1.contains("is not a number"),
            "{}",
            refused.1
        );
        assert_eq!(set("!!=7"), [(7, 7)]);
    }

    #[test]
    fn a_pattern_has_octets_in_hexadecimal_and_backslashes() {
        assert_eq!(
            pattern(r#"!"a|0D 0a62|\"\;|7c|""#).unwrap(),
            (b"a\r\nb\";|".to_vec(), true, "")
        );
        assert_eq!(pattern(r#""a",nocase"#).unwrap(), (b"a".to_vec(), false, ",nocase"));
        for wrong in ["a", r#""a"#, r#""""#, r#""|0|""#, r#""|0g|""#, r#""|0D"#, r#""|0 D|""#] {
            assert!(pattern(wrong).is_err(), "{wrong}");
        }
    }
}
