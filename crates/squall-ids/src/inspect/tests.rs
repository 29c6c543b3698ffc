use squall_rules::{Numbers, Pcre};

use super::*;

fn content(pattern: &[u8]) -> Content {
    Content { pattern: pattern.to_vec(), ..Content::default() }
}

fn at(number: i64) -> Option<Number> {
    Some(Number::Is(number))
}

fn run(operations: Vec<Operation>, octets: &[u8]) -> bool {
    run_with(operations, octets, BufferProperties::default())
}

fn run_with(operations: Vec<Operation>, octets: &[u8], properties: BufferProperties) -> bool {
    let steps: Vec<Step> =
        operations.into_iter().map(|operation| Step { option: 0, operation }).collect();
    let steps: Vec<&Step> = steps.iter().collect();
    let ready = compile_steps(&steps, &[]).unwrap();
    matches(&ready, octets, &mut [0; 4], properties)
}

fn c(content: Content) -> Operation {
    Operation::Content(content)
}

#[test]
fn a_content_is_tried_again_if_the_next_step_does_not_match() {
    let steps =
        || vec![c(content(b"abc")), c(Content { distance: at(0), within: at(1), ..content(b"d") })];
    assert!(run(steps(), b"abcabcd"));
    assert!(!run(steps(), b"abcabc d"));
}

#[test]
fn an_expression_is_tried_again_after_its_first_octet() {
    let pcre = Pcre { pattern: "super".into(), ..Pcre::default() };
    let steps = vec![
        Operation::Pcre(pcre),
        c(Content { distance: at(1), within: at(4), ..content(b"nova") }),
    ];
    assert!(run(steps, b"this is a super duper nova in super nova now"));
}

#[test]
fn depth_counts_from_the_offset_and_contains_the_whole_pattern() {
    let placed =
        |offset, depth| vec![c(Content { offset: at(offset), depth: at(depth), ..content(b"cd") })];
    assert!(run(placed(1, 3), b"abcdef"));
    assert!(!run(placed(1, 2), b"abcdef"));
    assert!(!run(placed(3, 3), b"abcdef"));
}

#[test]
fn a_negated_content_holds_where_there_is_no_room_for_it() {
    let not = |offset| vec![c(Content { negated: true, offset: at(offset), ..content(b"a") })];
    assert!(run(not(1), b"abc") && !run(not(0), b"abc"));
    assert!(run(not(10), b"abc"));
}

#[test]
fn a_negative_distance_goes_back_and_stops_at_the_beginning() {
    let steps =
        |distance| vec![c(content(b"cd")), c(Content { distance: at(distance), ..content(b"ab") })];
    assert!(run(steps(-4), b"abcd") && run(steps(-10), b"abcd") && !run(steps(-3), b"abcd"));
}

#[test]
fn endswith_needs_the_last_octets_and_negated_it_needs_others() {
    let ends = |negated| vec![c(Content { endswith: true, negated, ..content(b"a") })];
    assert!(run(ends(false), b"aba") && !run(ends(false), b"ab"));
    assert!(run(ends(true), b"ab") && !run(ends(true), b"ba"));
}

#[test]
fn a_relative_isdataat_counts_remaining_octets_an_absolute_one_is_an_index() {
    let is = |at, relative, negated| {
        Operation::IsDataAt(IsDataAt { at: Number::Is(at), relative, negated })
    };
    assert!(run(vec![c(content(b"ab")), is(1, true, false)], b"abc"));
    assert!(!run(vec![c(content(b"ab")), is(2, true, false)], b"abc"));
    assert!(run(vec![c(content(b"ab")), is(1, true, true)], b"ab"));
    assert!(run(vec![is(2, false, false)], b"abc") && !run(vec![is(3, false, false)], b"abc"));
}

fn test(count: i64, operator: Comparison, value: i64, offset: i64, reading: Reading) -> Operation {
    let (count, value, offset) = (Number::Is(count), Number::Is(value), Number::Is(offset));
    Operation::ByteTest(ByteTest { count, negated: false, operator, value, offset, reading })
}

#[test]
fn byte_test_reads_numbers_of_either_order_and_digits() {
    let reading = Reading::default();
    assert!(run(vec![test(2, Comparison::Equal, 0x0102, 0, reading)], b"\x01\x02"));
    let little = Reading { little_endian: true, ..reading };
    assert!(run(vec![test(2, Comparison::Equal, 0x0201, 0, little)], b"\x01\x02"));
    let digits = Reading { digits: Some(10), ..reading };
    assert!(run(vec![test(4, Comparison::Greater, 12, 0, digits)], b" 13x"));
    assert!(!run(vec![test(4, Comparison::Greater, 12, 0, digits)], b"x13 "));
    let as_in_c = Reading { digits: Some(0), ..reading };
    assert!(run(vec![test(5, Comparison::Equal, 175, 0, as_in_c)], b"00257"));
    assert!(run(vec![test(5, Comparison::Equal, 257, 0, as_in_c)], b"  257"));
    let masked = Reading { bitmask: Some(0xf0), ..reading };
    assert!(run(vec![test(1, Comparison::Equal, 7, 0, masked)], b"\x7f"));
    let dce = Reading { dce: true, ..reading };
    assert!(run_with(
        vec![test(2, Comparison::Equal, 1, 0, dce)],
        b"\x01\x00",
        BufferProperties { little_endian: true, ..BufferProperties::default() }
    ));
}

#[test]
fn a_number_of_no_octets_is_0_and_one_of_no_digits_is_all_that_follow() {
    let reading = Reading::default();
    assert!(run(vec![test(0, Comparison::Equal, 0, 1, reading)], b"\x07\x08"));
    assert!(!run(vec![test(0, Comparison::Greater, 0, 0, reading)], b"\x07\x08"));
    let digits = Reading { digits: Some(10), ..reading };
    assert!(run(vec![test(0, Comparison::Equal, 123_456, 1, digits)], b"x123456y"));
    assert!(!run(vec![test(0, Comparison::Greater, 0, 0, digits)], b"x123456y"));
    let jump = ByteJump {
        count: Number::Is(0),
        offset: Number::Is(0),
        reading: digits,
        multiplier: 1,
        align: false,
        from: JumpFrom::Here,
        post_offset: Number::Is(0),
    };
    let after = vec![
        Operation::ByteJump(jump),
        c(Content { distance: at(0), within: at(1), ..content(b"d") }),
    ];
    assert!(run(after, b"03abcde"));
}

#[test]
fn an_offset_before_the_beginning_begins_there_and_its_depth_counts_from_it() {
    let placed = |offset, depth| vec![c(Content { offset: at(offset), depth, ..content(b"s3t") })];
    assert!(run(placed(-1, None), b"s3t") && !run(placed(-1, None), b"s3"));
    assert!(run(placed(-1, at(4)), b"s3t") && !run(placed(-2, at(4)), b"s3t"));
    let not = Content { negated: true, offset: at(-1), ..content(b"s3t") };
    assert!(!run(vec![c(not.clone())], b"s3t") && run(vec![c(not)], b"abc"));
}

#[test]
fn byte_test_beyond_the_end_does_not_match_even_negated() {
    let mut steps = vec![test(4, Comparison::Equal, 0, 0, Reading::default())];
    if let Operation::ByteTest(test) = &mut steps[0] {
        test.negated = true;
    }
    assert!(!run(steps, b"\x01\x02"));
}

fn jump(count: i64, from: JumpFrom) -> ByteJump {
    ByteJump {
        count: Number::Is(count),
        offset: Number::Is(0),
        reading: Reading::default(),
        multiplier: 1,
        align: false,
        from,
        post_offset: Number::Is(0),
    }
}

#[test]
fn byte_jump_moves_on_from_the_end_of_the_number_and_never_beyond_the_buffer() {
    let then = |pattern: &[u8]| c(Content { distance: at(0), within: at(1), ..content(pattern) });
    assert!(run(vec![Operation::ByteJump(jump(1, JumpFrom::Here)), then(b"d")], b"\x02abd"));
    assert!(run(vec![Operation::ByteJump(jump(1, JumpFrom::Here))], b"\x03abd"));
    assert!(!run(vec![Operation::ByteJump(jump(1, JumpFrom::Here))], b"\x04abd"));
    assert!(run(vec![Operation::ByteJump(jump(1, JumpFrom::Beginning)), then(b"b")], b"\x02abd"));
    let aligned = ByteJump { align: true, ..jump(1, JumpFrom::Here) };
    assert!(run(vec![Operation::ByteJump(aligned), then(b"e")], b"\x01abcde"));
    let back = ByteJump { post_offset: Number::Is(-1), ..jump(0, JumpFrom::End) };
    assert!(run(vec![Operation::ByteJump(back), then(b"d")], b"abcd"));
}

#[test]
fn extracted_values_are_used_by_later_steps_of_the_same_attempt_only() {
    let extract = ByteExtract {
        count: 1,
        offset: Number::Is(0),
        variable: 0,
        reading: Reading { relative: true, ..Reading::default() },
        multiplier: 1,
        align: 0,
    };
    let variable = Some(Number::Variable(0));
    let steps = || {
        vec![
            c(content(b"L")),
            Operation::ByteExtract(extract.clone()),
            c(Content { distance: at(0), within: variable, ..content(b"xy") }),
        ]
    };
    assert!(run(steps(), b"L\x03axy"));
    assert!(!run(steps(), b"L\x02axy"));
}

#[test]
fn byte_math_never_divides_by_zero() {
    let math = |operator, value| {
        Operation::ByteMath(ByteMath {
            count: Number::Is(1),
            offset: Number::Is(0),
            operator,
            value: Number::Is(value),
            result: 0,
            reading: Reading::default(),
        })
    };
    let is =
        Operation::IsDataAt(IsDataAt { at: Number::Variable(0), relative: false, negated: false });
    assert!(run(vec![math(Arithmetic::Add, 1), is.clone()], b"\x01ab"));
    assert!(!run(vec![math(Arithmetic::Add, 2), is], b"\x01ab"));
    assert!(!run(vec![math(Arithmetic::Divide, 0)], b"\x01"));
}

#[test]
fn contents_after_base64_decode_are_matched_in_the_decoded_data() {
    let decode =
        Operation::Base64Decode(Base64Decode { relative: true, ..Base64Decode::default() });
    let steps: Vec<Step> = [c(content(b"x:")), decode]
        .into_iter()
        .map(|operation| Step { option: 0, operation })
        .collect();
    let inner = Step { option: 1, operation: c(content(b"hello")) };
    let steps: Vec<&Step> = steps.iter().collect();
    let ready = compile_steps(&steps, &[&inner]).unwrap();
    assert!(matches(&ready, b"x:aGVsbG8=", &mut [], BufferProperties::default()));
    assert!(!matches(&ready, b"x:aGVsbG-=", &mut [], BufferProperties::default()));
}

#[test]
fn a_look_that_would_go_on_for_ever_ends() {
    let mut steps: Vec<Operation> = vec![c(content(b"a"))];
    steps.extend((0..30).map(|_| c(Content { distance: at(0), within: at(40), ..content(b"a") })));
    steps.push(c(Content { distance: at(0), within: at(40), ..content(b"b") }));
    assert!(!run(steps, &[b'a'; 2000]));
}

#[test]
fn the_size_is_that_of_the_whole_buffer() {
    assert!(run(vec![Operation::Size(Numbers::range(3..=4))], b"abc"));
    assert!(!run(vec![Operation::Size(Numbers::range(3..=4))], b"ab"));
}

#[test]
fn nocase_ignores_case() {
    assert_eq!(find(b"xxAbC", b"aBc", true), Some(2));
    assert_eq!(find(b"xxAbC", b"aBc", false), None);
    assert_eq!(find(b"ab", b"abc", true), None);
}
