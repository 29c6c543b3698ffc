//! Tests each operation of a rule, alone and combined with others.

use squall_rules::{
    Arithmetic, Base64Decode, ByteExtract, ByteJump, ByteMath, ByteTest, Comparison, Content,
    IsDataAt, JumpFrom, Number, Numbers, Operation, Reading, Step,
};
use squall_units::be16;

use super::expression::Expressions;
use super::layout::{BufferSpec, Failed, Style, lay_out};
use super::rng::Rng;
use crate::{Octets, Origin};

fn steps(operations: Vec<Operation>) -> Vec<Step> {
    operations
        .into_iter()
        .enumerate()
        .map(|(at, operation)| Step { option: at as u16, operation })
        .collect()
}

fn content(pattern: &str) -> Content {
    Content { pattern: pattern.as_bytes().to_vec(), ..Content::default() }
}

fn laid(operations: Vec<Operation>, style: Style, attempt: u32) -> Result<Vec<u8>, Failed> {
    laid_with(operations, style, attempt, None, 0)
}

fn laid_with(
    operations: Vec<Operation>,
    style: Style,
    attempt: u32,
    decoded: Option<Octets>,
    variables: usize,
) -> Result<Vec<u8>, Failed> {
    let steps = steps(operations);
    let spec = BufferSpec {
        steps: &steps,
        size: Numbers::any(),
        style,
        decoded,
        lead: Octets::new(),
        form: None,
        variables,
    };
    let mut budget = 100_000;
    lay_out(&spec, &Expressions::default(), &[], attempt, &mut Rng::new(7), &mut budget)
        .map(|layout| layout.octets.bytes().to_vec())
}

fn find(octets: &[u8], pattern: &str) -> usize {
    octets.windows(pattern.len()).position(|window| window == pattern.as_bytes()).expect(pattern)
}

fn is(value: i64) -> Option<Number> {
    Some(Number::Is(value))
}

#[test]
fn contents_are_where_offset_depth_distance_and_within_allow() {
    for attempt in 0..12 {
        let octets = laid(
            vec![
                Operation::Content(Content { offset: is(4), depth: is(8), ..content("ABCD") }),
                Operation::Content(Content { distance: is(3), within: is(10), ..content("EF") }),
                Operation::Content(Content { distance: is(-20), within: is(64), ..content("gh") }),
                Operation::Content(content("XYZ")),
            ],
            Style::Plain,
            attempt,
        )
        .unwrap();
        let first = find(&octets, "ABCD");
        assert!((4..=8).contains(&first), "{first}");
        let second = find(&octets, "EF") - (first + 4);
        assert!((3..=11).contains(&second), "{second}");
        find(&octets, "XYZ");
        find(&octets, "gh");
    }
}

#[test]
fn the_last_content_ends_the_buffer_and_its_size_is_kept() {
    for attempt in 0..8 {
        let octets = laid(
            vec![
                Operation::Size(Numbers::one(12)),
                Operation::Content(Content { endswith: true, ..content(".php") }),
                Operation::Content(Content { offset: is(0), depth: is(1), ..content("/") }),
            ],
            Style::Text,
            attempt,
        )
        .unwrap();
        assert_eq!(octets.len(), 12);
        assert!(octets.starts_with(b"/") && octets.ends_with(b".php"));
    }
}

#[test]
fn a_repeated_content_occurs_once_unless_the_second_is_relative_to_the_first() {
    let once = laid(
        vec![Operation::Content(content("same")), Operation::Content(content("same"))],
        Style::Plain,
        0,
    )
    .unwrap();
    assert_eq!(once, b"same");
    let after = Operation::Content(Content { distance: is(0), ..content("same") });
    let twice = laid(vec![Operation::Content(content("same")), after], Style::Plain, 0).unwrap();
    assert_eq!(twice, b"samesame");
}

#[test]
fn negated_contents_occur_in_no_window() {
    for attempt in 0..8 {
        let octets = laid(
            vec![
                Operation::Content(content("begin")),
                Operation::Content(Content { negated: true, within: is(50), ..content("a") }),
                Operation::IsDataAt(IsDataAt {
                    at: Number::Is(50),
                    relative: true,
                    negated: false,
                }),
            ],
            Style::Plain,
            attempt,
        )
        .unwrap();
        let after = find(&octets, "begin") + 5;
        assert!(octets.len() >= after + 50);
        assert!(!octets[after..after + 50].contains(&b'a'));
    }
    let both = laid(
        vec![
            Operation::Content(content("never")),
            Operation::Content(Content { negated: true, ..content("eve") }),
        ],
        Style::Plain,
        0,
    );
    assert!(matches!(both, Err(Failed::NoRoom { .. })));
}

#[test]
fn is_data_at_makes_a_buffer_long_and_its_negation_keeps_it_short() {
    let at = |at, relative, negated| {
        Operation::IsDataAt(IsDataAt { at: Number::Is(at), relative, negated })
    };
    let octets = laid(vec![at(141, false, false), at(142, false, true)], Style::Plain, 0).unwrap();
    assert_eq!(octets.len(), 142);
    let octets =
        laid(vec![Operation::Content(content("end")), at(1, true, true)], Style::Plain, 0).unwrap();
    assert!(octets.ends_with(b"end"));
}

#[test]
fn tests_of_one_number_are_met_together() {
    let test = |operator, value| {
        Operation::ByteTest(ByteTest {
            count: Number::Is(2),
            negated: false,
            operator,
            value: Number::Is(value),
            offset: Number::Is(1),
            reading: Reading { relative: true, little_endian: true, ..Reading::default() },
        })
    };
    for attempt in 0..6 {
        let octets = laid(
            vec![
                Operation::Content(content("N")),
                test(Comparison::Greater, 1000),
                test(Comparison::Less, 1003),
            ],
            Style::Plain,
            attempt,
        )
        .unwrap();
        let at = find(&octets, "N") + 2;
        let number = u16::from_le_bytes([octets[at], octets[at + 1]]);
        assert!(number == 1001 || number == 1002, "{number}");
    }
}

#[test]
fn digits_of_a_header_line_are_followed_by_its_end() {
    let test = Operation::ByteTest(ByteTest {
        count: Number::Is(10),
        negated: false,
        operator: Comparison::Greater,
        value: Number::Is(95),
        offset: Number::Is(0),
        reading: Reading { relative: true, digits: Some(10), ..Reading::default() },
    });
    let octets =
        laid(vec![Operation::Content(content("Content-Length: ")), test], Style::Lines, 0).unwrap();
    let octets = String::from_utf8(octets).unwrap();
    let digits = octets.strip_prefix("Content-Length: ").unwrap().split("\r\n").next().unwrap();
    assert!(digits.parse::<u32>().unwrap() > 95 && !digits.starts_with('0'), "{octets}");
}

#[test]
fn a_jump_leads_to_the_next_content() {
    for (from, align, multiplier, post) in [
        (JumpFrom::Here, false, 1, 0),
        (JumpFrom::Beginning, false, 2, 0),
        (JumpFrom::Here, true, 1, 4),
        (JumpFrom::Here, false, 1, -2),
    ] {
        let jump = ByteJump {
            count: Number::Is(2),
            offset: Number::Is(0),
            reading: Reading { relative: true, ..Reading::default() },
            multiplier,
            align,
            from,
            post_offset: Number::Is(post),
        };
        let octets = laid(
            vec![
                Operation::Content(content("LEN")),
                Operation::ByteJump(jump),
                Operation::Content(Content { distance: is(0), within: is(4), ..content("HERE") }),
            ],
            Style::Plain,
            0,
        )
        .unwrap();
        let at = find(&octets, "LEN") + 3;
        let mut by = i64::from(be16(&octets, at)) * i64::from(multiplier);
        if align {
            by = (by + 3) / 4 * 4;
        }
        let base = if from == JumpFrom::Beginning { 0 } else { at as i64 + 2 };
        assert_eq!(
            base + by + post,
            find(&octets, "HERE") as i64,
            "{from:?} {align} {multiplier} {post}"
        );
    }
}

#[test]
fn an_extracted_number_is_one_that_later_options_can_use() {
    let extract = ByteExtract {
        count: 1,
        offset: Number::Is(0),
        variable: 0,
        reading: Reading { relative: true, ..Reading::default() },
        multiplier: 1,
        align: 0,
    };
    let octets = laid_with(
        vec![
            Operation::Content(content("LEN")),
            Operation::ByteExtract(extract),
            Operation::Content(Content {
                distance: is(0),
                within: Some(Number::Variable(0)),
                ..content("long enough a text")
            }),
            Operation::IsDataAt(IsDataAt {
                at: Number::Variable(0),
                relative: false,
                negated: false,
            }),
        ],
        Style::Plain,
        0,
        None,
        1,
    )
    .unwrap();
    let number = usize::from(octets[find(&octets, "LEN") + 3]);
    assert!(number >= 18 && octets.len() > number, "{number} of {}", octets.len());

    let math = ByteMath {
        count: Number::Is(1),
        offset: Number::Is(0),
        operator: Arithmetic::Multiply,
        value: Number::Is(3),
        result: 0,
        reading: Reading::default(),
    };
    let test = ByteTest {
        count: Number::Is(1),
        negated: false,
        operator: Comparison::Equal,
        value: Number::Variable(0),
        offset: Number::Is(1),
        reading: Reading::default(),
    };
    let octets = laid_with(
        vec![Operation::ByteMath(math), Operation::ByteTest(test)],
        Style::Plain,
        0,
        None,
        1,
    )
    .unwrap();
    assert_eq!(u32::from(octets[0]) * 3, u32::from(octets[1]));
}

#[test]
fn decoded_contents_are_encoded_in_base64() {
    let decoded = Octets::of(*b"secret", Origin::Option(9));
    let octets = laid_with(
        vec![
            Operation::Content(content("data=")),
            Operation::Base64Decode(Base64Decode { octets: None, offset: 2, relative: true }),
        ],
        Style::Plain,
        0,
        Some(decoded),
        0,
    )
    .unwrap();
    assert_eq!(find(&octets, "c2VjcmV0"), find(&octets, "data=") + 7);
}

#[test]
fn contents_of_a_header_are_lines_of_their_own() {
    let octets = laid(
        vec![
            Operation::Content(content("Accept: */*")),
            Operation::Content(content("User-Agent: x\r\n")),
            Operation::Content(content("; MSIE 7.0")),
        ],
        Style::Lines,
        0,
    )
    .unwrap();
    let text = String::from_utf8(octets).unwrap();
    for line in text.split("\r\n").filter(|line| !line.is_empty()) {
        assert!(line.split_once(": ").is_some_and(|(name, _)| !name.contains(' ')), "{text:?}");
    }
}

#[test]
fn a_budget_that_is_spent_ends_the_search() {
    let steps = steps(
        (0..40)
            .map(|_| {
                Operation::Content(Content { distance: is(0), within: is(30), ..content("aab") })
            })
            .chain([
                Operation::Content(Content { distance: is(0), within: is(1), ..content("z") }),
                Operation::Content(Content { negated: true, ..content("z") }),
            ])
            .collect(),
    );
    let spec = BufferSpec {
        form: None,
        steps: &steps,
        size: Numbers::any(),
        style: Style::Plain,
        decoded: None,
        lead: Octets::new(),
        variables: 0,
    };
    let mut budget = 2_000;
    let result = lay_out(&spec, &Expressions::default(), &[], 0, &mut Rng::new(1), &mut budget);
    assert!(matches!(result, Err(Failed::TooLong)));
}

#[test]
fn similar_long_contents_have_linear_cost() {
    const OCTETS: usize = 30_000;
    let long = Content { pattern: vec![b'x'; OCTETS], ..Content::default() };
    let operations: Vec<Operation> = (0..30).map(|_| Operation::Content(long.clone())).collect();
    let steps = steps(operations);
    let spec = BufferSpec {
        form: None,
        steps: &steps,
        size: Numbers::any(),
        style: Style::Plain,
        decoded: None,
        lead: Octets::new(),
        variables: 0,
    };
    const BUDGET: u64 = 50_000;
    let mut budget = BUDGET;
    let layout =
        lay_out(&spec, &Expressions::default(), &[], 0, &mut Rng::new(1), &mut budget).unwrap();
    assert_eq!(layout.octets.bytes(), long.pattern);
    // Cost per content: it depends on its position in the buffer, plus comparisons of a few times
    // its length.
    let each = (OCTETS / 32 + 4 * OCTETS / 1_024 + 2) as u64;
    assert!(BUDGET - budget <= 31 * each, "{} of {BUDGET} were spent", BUDGET - budget);
}
