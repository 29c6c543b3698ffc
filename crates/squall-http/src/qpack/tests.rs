//! The examples of RFC 9204 appendix B, and what hostile encoders and decoders do.

use proptest::prelude::*;

use super::{Decoder, Encoder, Field, Fixed, MOST_TABLE, QpackError, Section, integer, table};

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).unwrap().try_into().unwrap())
        .collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// `None`: the section has to wait.
fn decode(decoder: &Decoder, section: &[u8]) -> Result<Option<(Fields, Section)>, QpackError> {
    let mut fields = vec![];
    let section = decoder.decode(section, 16 << 10, &mut vec![], |name, value| {
        fields.push((name.to_vec(), value.to_vec()));
    })?;
    Ok(section.map(|section| (fields, section)))
}

fn pairs(text: &str) -> Fields {
    let field = |line: &str| {
        let (name, value) = line.trim().split_once('=').unwrap();
        (name.into(), value.into())
    };
    text.lines().map(field).collect()
}

/// Decodes a section of a stream, and returns its acknowledgment.
fn decodes(decoder: &mut Decoder, stream: u64, section: &str, fields: &str) -> Vec<u8> {
    let (found, section) = decode(decoder, &hex(section)).unwrap().unwrap();
    assert_eq!(found, pairs(fields));
    let mut out = vec![];
    if section.required > 0 {
        decoder.acknowledge(stream, section, &mut out);
    }
    out
}

/// A decoder after the instructions of appendix B.2, and the next ones.
fn after_b2(instructions: &[&str]) -> Decoder {
    let mut decoder = Decoder::new(220);
    for instructions in
        ["3fbd01 c00f 7777 772e 6578 616d 706c 652e 636f 6d c10c 2f73 616d 706c 652f 7061 7468"]
            .iter()
            .chain(instructions)
    {
        decoder.instructions(&hex(instructions)).unwrap();
    }
    decoder
}

const B3: &str = "4a63 7573 746f 6d2d 6b65 790c 6375 7374 6f6d 2d76 616c 7565";
const B4: &str = "02";
const B5: &str = "810d 6375 7374 6f6d 2d76 616c 7565 32";

#[test]
fn a_literal_with_a_name_of_the_static_table_is_that_of_appendix_b_1() {
    let mut decoder = Decoder::new(0);
    let section = "0000 510b 2f69 6e64 6578 2e68 746d 6c";
    assert!(decodes(&mut decoder, 0, section, ":path=/index.html").is_empty());
}

#[test]
fn a_blocked_section_is_that_of_appendix_b_2() {
    let mut decoder = Decoder::new(220);
    let section = "0381 10 11";
    assert_eq!(decode(&decoder, &hex(section)), Ok(None));
    decoder = after_b2(&[]);
    assert_eq!(decoder.table(), (2, 106));
    let fields = ":authority=www.example.com\n:path=/sample/path";
    assert_eq!(decodes(&mut decoder, 4, section, fields), hex("84"));
    // The acknowledgment covers both insertions.
    let mut out = vec![];
    decoder.increment(&mut out);
    assert!(out.is_empty());
}

#[test]
fn an_insertion_ahead_of_its_use_is_that_of_appendix_b_3() {
    let mut decoder = after_b2(&[]);
    decodes(&mut decoder, 4, "0381 10 11", ":authority=www.example.com\n:path=/sample/path");
    assert_eq!(decoder.instructions(&hex(B3)), Ok(1));
    assert_eq!(decoder.table(), (3, 160));
    let mut out = vec![];
    decoder.increment(&mut out);
    decoder.increment(&mut out);
    assert_eq!(out, hex("01"));
}

#[test]
fn a_duplicate_and_a_cancellation_are_those_of_appendix_b_4() {
    let mut decoder = after_b2(&[B3, B4]);
    assert_eq!(decoder.table(), (4, 217));
    let fields = ":authority=www.example.com\n:path=/\ncustom-key=custom-value";
    assert_eq!(decodes(&mut decoder, 8, "0500 80 c1 81", fields), hex("88"));
    let mut out = vec![];
    decoder.cancel(8, &mut out);
    assert_eq!(out, hex("48"));
}

#[test]
fn an_insertion_with_eviction_is_that_of_appendix_b_5() {
    let mut decoder = after_b2(&[B3, B4, B5]);
    assert_eq!(decoder.table(), (4, 215));
    // Entry 0 is gone, so the section of B.2 can no longer be decoded; entry 4 is the newest.
    assert_eq!(decode(&decoder, &hex("0381 10")), Err(QpackError::Index));
    decodes(&mut decoder, 12, "0600 80", "custom-key=custom-value2");
}

#[test]
fn instructions_come_in_any_pieces() {
    let all = hex(&["3fbd01", B3, B3, B3, B4, B5].concat());
    let mut whole = Decoder::new(220);
    assert_eq!(whole.instructions(&all), Ok(5));
    for piece in 1..all.len() {
        let mut decoder = Decoder::new(220);
        let inserted: u64 =
            all.chunks(piece).map(|piece| decoder.instructions(piece).unwrap()).sum();
        assert_eq!((inserted, decoder.table()), (5, whole.table()));
        assert_eq!(decode(&decoder, &hex("0500 80")), decode(&whole, &hex("0500 80")));
    }
}

#[test]
fn integers_have_up_to_62_bits() {
    for (prefix, value, octets) in [
        (5, 10, &b"\x0a"[..]),
        (5, 1337, b"\x1f\x9a\x0a"),
        (8, 42, b"\x2a"),
        (8, 255, b"\xff\x00"),
        (7, (1 << 62) - 1, b"\x7f\x80\xff\xff\xff\xff\xff\xff\xff\x3f"),
    ] {
        let mut out = vec![];
        integer::encode(prefix, 0, value, &mut out);
        assert_eq!(out, octets);
        let mut input = octets;
        assert_eq!(integer::decode(prefix, &mut input), Ok(value));
        assert!(input.is_empty());
        let cut = &mut &octets[..octets.len() - 1];
        assert_eq!(integer::decode(prefix, cut), Err(QpackError::Truncated));
    }
    for long in [&b"\x7f\x81\xff\xff\xff\xff\xff\xff\xff\x3f"[..], &[0xff; 12], &[0x80; 12]] {
        let mut octets = vec![0x7f];
        octets.extend_from_slice(&long[1..]);
        assert_eq!(integer::decode(7, &mut &octets[..]), Err(QpackError::Integer), "{long:x?}");
    }
}

#[test]
fn the_static_table_is_that_of_appendix_a() {
    for (index, name, value) in [
        (0, ":authority", ""),
        (1, ":path", "/"),
        (25, ":status", "200"),
        (63, ":status", "100"),
        (74, "access-control-allow-credentials", "TRUE"),
        (98, "x-frame-options", "sameorigin"),
    ] {
        assert_eq!(table::get(index), Some((name.as_bytes(), value.as_bytes())));
        assert_eq!(table::exact(name.as_bytes(), value.as_bytes()), Some(index));
    }
    assert_eq!((table::get(99), table::name(b":status")), (None, Some(24)));
}

#[test]
fn sections_that_cannot_be_decoded_are_errors() {
    let decoder = after_b2(&[B3]);
    for (section, expected) in [
        ("", QpackError::Truncated),
        ("00", QpackError::Truncated),
        ("0000 51", QpackError::Truncated),
        ("0000 5103 6161", QpackError::Truncated),
        ("0000 ff24", QpackError::Index), // static 99
        ("0000 80", QpackError::Index),   // dynamic, but none is required
        ("0000 10", QpackError::Index),   // after the base, the same
        ("0200 81", QpackError::Index),   // before entry 0
        ("0300 11", QpackError::Index),   // beyond the required ones
        ("0d00", QpackError::Prefix),     // six entries: at most 12
        ("0182", QpackError::Prefix),     // a required count of 0
        ("0283", QpackError::Prefix),     // a base below 0
        ("0000 21ff", QpackError::Truncated),
        ("0000 2981 ff", QpackError::Huffman),
        ("0000 5f80 8080 8080 8080 8080 8080", QpackError::Integer),
    ] {
        assert_eq!(decode(&decoder, &hex(section)), Err(expected), "{section}");
    }
}

#[test]
fn instructions_that_cannot_be_executed_are_errors() {
    for (instructions, expected) in [
        ("3fbe01", QpackError::Capacity),         // 221 of 220
        ("c001 61", QpackError::Entry),           // no capacity yet
        ("3fbd01 ff24 00", QpackError::Index),    // static 99
        ("3fbd01 80 00", QpackError::Index),      // no entry
        ("3fbd01 00", QpackError::Index),         // a duplicate of none
        ("3fbd01 61ff 00", QpackError::Huffman),  // eight ones
        ("3fbd01 5f ffff 7f", QpackError::Entry), // a name of 2^21 octets
        ("22 4161 00", QpackError::Entry),        // 33 octets into 2
    ] {
        let mut decoder = Decoder::new(220);
        assert_eq!(decoder.instructions(&hex(instructions)), Err(expected), "{instructions}");
    }
}

#[test]
fn required_counts_wrap_with_the_size_of_the_table() {
    // RFC 9204 section 4.5.1.1: for a table of 100 octets the count is modulo 6.
    let mut decoder = Decoder::new(100);
    decoder.instructions(&hex("3f45")).unwrap();
    for _ in 0..10 {
        decoder.instructions(&hex("4161 0162")).unwrap();
    }
    // 9 is encoded as 9 % 6 + 1 = 4.
    let (_, section) = decode(&decoder, &hex("0400 80")).unwrap().unwrap();
    assert_eq!(section.required, 9);
    let (_, section) = decode(&decoder, &hex("0500 80")).unwrap().unwrap();
    assert_eq!(section.required, 10);
    assert_eq!(decode(&decoder, &hex("0600 80")), Ok(None));
}

#[test]
fn fields_that_are_too_long_are_not_given_on_and_end_soon() {
    let mut decoder = Decoder::new(MOST_TABLE);
    let mut instructions = hex("3fe11f 41 61 7f e1 1d"); // a value of 3,936 octets
    instructions.extend_from_slice(&[b'x'; 3936]);
    assert_eq!(decoder.instructions(&instructions), Ok(1));
    let mut section = hex("0200");
    section.extend([0x80; 100]);
    let (mut given, mut scratch) = (0, vec![]);
    let mut each = |name: &[u8], value: &[u8]| given += name.len() + value.len();
    let sum = decoder.decode(&section[..12], 16 << 10, &mut scratch, &mut each).unwrap().unwrap();
    assert_eq!(sum.sum, 10 * (3937 + 32));
    assert_eq!(decoder.decode(&section, 16 << 10, &mut scratch, &mut each), Err(QpackError::Bomb));
    assert!(given <= 2 * (16 << 10), "{given}");
}

#[test]
fn a_table_takes_no_more_memory_than_its_size() {
    let mut decoder = Decoder::new(MOST_TABLE);
    assert_eq!(decoder.memory(), 0);
    decoder.instructions(&hex("3fe11f")).unwrap();
    for nth in 0..5_000_usize {
        let mut instruction = hex("416e");
        integer::encode(7, 0, (nth * 37 % 900) as u64, &mut instruction);
        instruction.extend(vec![b'v'; nth * 37 % 900]);
        for piece in instruction.chunks(100) {
            decoder.instructions(piece).unwrap();
        }
        assert!(decoder.table().1 <= MOST_TABLE);
    }
    assert!(decoder.memory() <= 2 * 4096 + 128 * 12, "{}", decoder.memory());
}

/// Gives the encoder's instructions to the decoder, and its acknowledgments back.
fn exchange(encoder: &mut Encoder, decoder: &mut Decoder) {
    let instructions = std::mem::take(encoder.instructions());
    decoder.instructions(&instructions).unwrap();
    let mut answers = vec![];
    decoder.increment(&mut answers);
    encoder.acknowledgments(&answers).unwrap();
}

#[test]
fn a_fixed_field_is_an_index_once_its_insertion_is_acknowledged() {
    let (agent, path) = (Fixed::new(b"user-agent", b"squall"), Fixed::new(b":path", b"/"));
    let mut encoder = Encoder::new(2, MOST_TABLE);
    let mut decoder = Decoder::new(MOST_TABLE);
    encoder.limit(MOST_TABLE.into());
    let section = |encoder: &mut Encoder| {
        let mut out = vec![];
        encoder.section(4, &mut out, |encoder, out| {
            encoder.field(Field::Fixed(0, &agent), out);
            encoder.field(Field::Fixed(1, &path), out);
        });
        out
    };
    let literal = section(&mut encoder);
    assert_eq!(literal, [&[0, 0][..], agent.line(), &[0xc1]].concat());
    // Not yet: it could wait for the other stream.
    assert_eq!(section(&mut encoder), literal);
    exchange(&mut encoder, &mut decoder);
    assert_eq!((encoder.table(), decoder.table()), ((1, 48), (1, 48)));
    let short = section(&mut encoder);
    assert_eq!(short, [2, 0, 0x80, 0xc1]);
    let (fields, section) = decode(&decoder, &short).unwrap().unwrap();
    assert_eq!(fields, pairs("user-agent=squall\n:path=/"));
    let mut answers = vec![];
    decoder.acknowledge(4, section, &mut answers);
    assert_eq!(encoder.acknowledgments(&answers), Ok(()));
    assert_eq!(encoder.acknowledgments(&answers), Err(QpackError::Acknowledgment));
}

#[test]
fn acknowledgments_of_what_was_not_sent_are_errors() {
    for answers in ["00", "01", "84"] {
        let mut encoder = Encoder::new(0, MOST_TABLE);
        encoder.limit(MOST_TABLE.into());
        assert_eq!(encoder.acknowledgments(&hex(answers)), Err(QpackError::Acknowledgment));
    }
    // A decoder cancels streams without knowing whether they refer to anything.
    let mut encoder = Encoder::new(0, 0);
    assert_eq!(encoder.acknowledgments(&hex("44 7f80 8001")), Ok(()));
    assert_eq!(encoder.acknowledgments(&[0xff; 11]), Err(QpackError::Integer));
}

#[test]
fn a_peer_that_acknowledges_no_section_gets_literals() {
    let field = Fixed::new(b"a", b"b");
    let (mut encoder, mut decoder) = (Encoder::new(1, 100), Decoder::new(100));
    encoder.limit(100);
    let mut sizes = vec![];
    for stream in 0..200 {
        let mut out = vec![];
        encoder.section(stream, &mut out, |encoder, out| {
            encoder.field(Field::Fixed(0, &field), out);
        });
        sizes.push(out.len());
        exchange(&mut encoder, &mut decoder);
    }
    let literal = field.line().len() + 2;
    assert_eq!(sizes.iter().filter(|len| **len == 3).count(), 128);
    assert_eq!(sizes.iter().filter(|len| **len == literal).count(), 72);
    assert!(encoder.memory() < 4096, "{}", encoder.memory());
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..60)
}

proptest! {
    #[test]
    fn encoded_fields_are_decoded_for_any_tables_and_any_order_of_answers(
        fixed in prop::collection::vec((text(), text()), 1..40),
        wish in 0_u32..5000,
        limit in 0_u32..5000,
        sections in prop::collection::vec(
            (any::<u8>(), prop::collection::vec((0_usize..80, text()), 0..12)),
            1..30,
        ),
    ) {
        let fields: Vec<Fixed> =
            fixed.iter().map(|(name, value)| Fixed::new(name, value)).collect();
        let mut encoder = Encoder::new(fields.len().try_into().unwrap(), wish);
        let mut decoder = Decoder::new(limit);
        encoder.limit(limit.into());
        let (mut answers, mut sent_answers) = (vec![], 0);
        for (stream, (choice, section)) in (0..).zip(sections) {
            let mut expected = vec![];
            let mut block = vec![];
            encoder.section(stream, &mut block, |encoder, out| {
                for (number, value) in &section {
                    let at = number / 2 % fields.len();
                    let name = fields[at].name();
                    if number % 2 == 0 {
                        expected.push((name.to_vec(), fields[at].value().to_vec()));
                        encoder.field(Field::Fixed(at.try_into().unwrap(), &fields[at]), out);
                    } else {
                        expected.push((name.to_vec(), value.clone()));
                        encoder.field(Field::Literal { name, value }, out);
                    }
                }
            });
            // It never waits, even if instructions are late.
            let (found, section) = decode(&decoder, &block).unwrap().unwrap();
            prop_assert_eq!(found, expected);
            if section.required > 0 {
                if choice & 1 == 0 {
                    decoder.acknowledge(stream, section, &mut answers);
                } else {
                    decoder.cancel(stream, &mut answers);
                }
            }
            if choice & 2 == 0 {
                let instructions = std::mem::take(encoder.instructions());
                for piece in instructions.chunks(usize::from(choice >> 4) + 1) {
                    decoder.instructions(piece).unwrap();
                }
                decoder.increment(&mut answers);
            }
            if choice & 4 == 0 {
                encoder.acknowledgments(&answers[sent_answers..]).unwrap();
                sent_answers = answers.len();
            }
        }
        let instructions = std::mem::take(encoder.instructions());
        decoder.instructions(&instructions).unwrap();
        prop_assert_eq!(encoder.table(), decoder.table());
        prop_assert!(encoder.table().1 <= wish.min(limit));
    }

    #[test]
    fn nothing_makes_a_decoder_or_an_encoder_panic_or_grow(
        inputs in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..20),
    ) {
        let mut decoder = Decoder::new(MOST_TABLE);
        let mut encoder = Encoder::new(0, MOST_TABLE);
        let _ = decoder.instructions(&hex("3fe11f"));
        for input in inputs {
            let _ = decode(&decoder, &input);
            let _ = decoder.instructions(&input);
            let _ = encoder.acknowledgments(&input);
            prop_assert!(decoder.memory() <= 8 * 4096 + 1000, "{}", decoder.memory());
            prop_assert_eq!(encoder.memory(), 0);
        }
    }
}
