#![no_main]
//! A PCRE2 expression and conditions on its text: the expression is parsed without a panic, or
//! refused with a position; its text is generated in a bounded number of steps and meets the
//! conditions. Input: options, minimum and maximum number of octets (8 bits each), a required
//! string that ends at a zero octet, the expression.

use libfuzzer_sys::fuzz_target;
use squall_attacks::regex::{Choices, Constraints, Expression, Flags, Held};

fuzz_target!(|data: &[u8]| {
    let Some((&[options, least, most], rest)) = data.split_first_chunk() else { return };
    let (held, pattern) =
        rest.split_at(rest.iter().position(|octet| *octet == 0).unwrap_or(rest.len()));
    let Ok(pattern) = std::str::from_utf8(pattern.get(1..).unwrap_or_default()) else { return };
    let bit = |bit: u8| options >> bit & 1 == 1;
    let flags = Flags {
        caseless: bit(0),
        dotall: bit(1),
        multiline: bit(2),
        extended: bit(3),
        anchored: bit(4),
        dollar_end_only: bit(5),
        ungreedy: bit(6),
    };
    let expression = match Expression::parse(pattern, flags) {
        Ok(expression) => expression,
        Err(error) => return assert!(error.at <= pattern.len(), "{error}"),
    };
    let holds = [Held { bytes: held, nocase: bit(7), gap: None }];
    let constraints = Constraints {
        least: least.into(),
        most: usize::from(most) + usize::from(least),
        holds: &holds,
        steps: 20_000,
        ..Constraints::default()
    };
    for choices in [Choices::plain(), Choices::varied(1), Choices::branch(2, u64::from(options))] {
        let Some(sampled) = expression.sample(&choices, &constraints) else { continue };
        assert!((constraints.least..=constraints.most).contains(&sampled.text.len()));
        assert!(sampled.text.iter().all(|slot| slot.allowed.has(slot.preferred)));
        assert!(sampled.matched.end <= sampled.text.len());
        let text = sampled.bytes();
        assert!(sampled.holds.iter().all(|range| text[range.clone()].eq_ignore_ascii_case(held)));
    }
    let _ = (expression.first_bytes(), expression.required_literals(), expression.least_length());
});
