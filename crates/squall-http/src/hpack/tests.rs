//! The vectors of RFC 7541 appendix C, and what hostile blocks do.

use proptest::prelude::*;

use super::{DEFAULT_TABLE, Decoder, Encoder, Field, Fixed, HpackError, integer};

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).unwrap().try_into().unwrap())
        .collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Fields, HpackError> {
    let mut fields = vec![];
    decoder.decode(block, 16 << 10, &mut vec![], |name, value| {
        fields.push((name.to_vec(), value.to_vec()));
    })?;
    Ok(fields)
}

fn pairs(text: &str) -> Fields {
    let field = |line: &str| {
        let (name, value) = line.trim().split_once(": ").unwrap();
        (name.into(), value.into())
    };
    text.lines().map(field).collect()
}

/// Blocks of a connection, the fields of each, and entries and size of the table after it.
fn blocks_decode(limit: u32, blocks: &[(&str, &str, (usize, u32))]) {
    let mut decoder = Decoder::new(limit);
    for (block, fields, table) in blocks {
        assert_eq!(decode(&mut decoder, &hex(block)).unwrap(), pairs(fields), "{block}");
        assert_eq!(decoder.table(), *table, "{block}");
    }
}

const REQUESTS: [&str; 3] = [
    ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com",
    ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\ncache-control: no-cache",
    ":method: GET\n:scheme: https\n:path: /index.html\n:authority: www.example.com\n\
     custom-key: custom-value",
];

const RESPONSES: [&str; 3] = [
    ":status: 302\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:21 GMT\n\
     location: https://www.example.com",
    ":status: 307\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:21 GMT\n\
     location: https://www.example.com",
    ":status: 200\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:22 GMT\n\
     location: https://www.example.com\ncontent-encoding: gzip\n\
     set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
];

const CODED_REQUESTS: [&str; 3] = [
    "828684418cf1e3c2e5f23a6ba0ab90f4ff",
    "828684be5886a8eb10649cbf",
    "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
];

#[test]
fn integers_are_those_of_appendix_c_1() {
    for (prefix, value, octets) in
        [(5, 10, &b"\x0a"[..]), (5, 1337, b"\x1f\x9a\x0a"), (7, 42, b"\x2a"), (5, 31, b"\x1f\x00")]
    {
        let mut out = vec![];
        integer::encode(prefix, 0, value, &mut out);
        assert_eq!(out, octets);
        let mut input = octets;
        assert_eq!(integer::decode(prefix, &mut input), Ok(value));
        assert!(input.is_empty());
    }
}

#[test]
fn integers_of_any_length_end() {
    for (octets, expected) in [
        (&b"\x1f"[..], Err(HpackError::Truncated)),
        (b"\x1f\x80", Err(HpackError::Truncated)),
        (b"\x1f\xff\xff\xff\x7f", Ok(31 + (1 << 28) - 1)),
        (b"\x1f\xff\xff\xff\xff\x01", Err(HpackError::Integer)),
        (b"\x1f\x80\x80\x80\x80\x00", Err(HpackError::Integer)),
        (b"", Err(HpackError::Truncated)),
    ] {
        assert_eq!(integer::decode(5, &mut &octets[..]), expected, "{octets:x?}");
    }
}

#[test]
fn literals_are_those_of_appendix_c_2() {
    let long = "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572";
    for (block, field, table) in [
        (long, "custom-key: custom-header", (1, 55)),
        ("040c 2f73 616d 706c 652f 7061 7468", ":path: /sample/path", (0, 0)),
        ("1008 7061 7373 776f 7264 0673 6563 7265 74", "password: secret", (0, 0)),
        ("82", ":method: GET", (0, 0)),
    ] {
        blocks_decode(DEFAULT_TABLE, &[(block, field, table)]);
    }
}

#[test]
fn requests_are_those_of_appendix_c_3() {
    let blocks = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    let tables = [(1, 57), (2, 110), (3, 164)];
    let all = [0, 1, 2].map(|nth| (blocks[nth], REQUESTS[nth], tables[nth]));
    blocks_decode(DEFAULT_TABLE, &all);
}

#[test]
fn requests_are_those_of_appendix_c_4_in_both_directions() {
    let tables = [(1, 57), (2, 110), (3, 164)];
    let all = [0, 1, 2].map(|nth| (CODED_REQUESTS[nth], REQUESTS[nth], tables[nth]));
    blocks_decode(DEFAULT_TABLE, &all);

    let fixed: Vec<Fixed> =
        pairs(&REQUESTS.join("\n")).iter().map(|(name, value)| Fixed::new(name, value)).collect();
    let mut encoder = Encoder::new(fixed.len().try_into().unwrap());
    for (nth, request) in REQUESTS.iter().enumerate() {
        let mut block = vec![];
        for (name, value) in pairs(request) {
            let found = fixed.iter().position(|field| {
                (field.name(), field.value()) == (name.as_slice(), value.as_slice())
            });
            let number = found.unwrap();
            let field = Field::Fixed(number.try_into().unwrap(), &fixed[number]);
            encoder.field(field, &mut block);
        }
        assert_eq!(block, hex(CODED_REQUESTS[nth]));
        assert_eq!(encoder.table(), tables[nth]);
    }
}

#[test]
fn responses_are_those_of_appendix_c_5_and_c_6_with_evictions() {
    let plain = [
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a
         3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04
         677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49
         553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
    ];
    let coded = [
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e
         919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7
         821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed
         4ee5 b106 3d50 07",
    ];
    let tables = [(4, 222), (4, 222), (3, 215)];
    for blocks in [plain, coded] {
        blocks_decode(256, &[0, 1, 2].map(|nth| (blocks[nth], RESPONSES[nth], tables[nth])));
    }
}

#[test]
fn blocks_that_cannot_be_decoded_are_errors() {
    for (block, expected) in [
        ("80", HpackError::Index),
        ("be", HpackError::Index),
        ("7e", HpackError::Index),
        ("40", HpackError::Truncated),
        ("4001", HpackError::Truncated),
        ("400161", HpackError::Truncated),
        ("40016102", HpackError::Truncated),
        ("4081ff00", HpackError::Huffman),
        ("4084ffffffff00", HpackError::Huffman),
        ("8220", HpackError::TableSize),
        ("3fe21f", HpackError::TableSize),
        ("7f01", HpackError::Index),
        ("ffffffffffff7f", HpackError::Integer),
    ] {
        let mut decoder = Decoder::new(DEFAULT_TABLE);
        assert_eq!(decode(&mut decoder, &hex(block)), Err(expected), "{block}");
    }
}

#[test]
fn a_smaller_table_evicts_and_a_new_limit_holds_for_later_changes() {
    let mut decoder = Decoder::new(DEFAULT_TABLE);
    decode(&mut decoder, &hex("4001610162 4001630164")).unwrap();
    assert_eq!(decoder.table(), (2, 68));
    decode(&mut decoder, &hex("3f03")).unwrap(); // 34
    assert_eq!(decoder.table(), (1, 34));
    let newest = (b"c".to_vec(), b"d".to_vec());
    assert_eq!(decode(&mut decoder, &hex("be")).unwrap(), [newest]);
    decoder.limit(100);
    assert_eq!(decode(&mut decoder, &hex("3fe11f")), Err(HpackError::TableSize));
    // An entry that is larger than the table empties it (RFC 7541 section 4.4).
    decode(&mut decoder, &hex("40026161 0162")).unwrap();
    assert_eq!(decoder.table(), (0, 0));
}

#[test]
fn fields_that_are_too_long_are_entered_but_not_given_on() {
    let mut decoder = Decoder::new(DEFAULT_TABLE);
    let mut given = 0;
    let block = hex("4001610162 4001630164 be");
    let sum = decoder.decode(&block, 34 + 33, &mut vec![], |_, _| given += 1).unwrap();
    assert_eq!((sum, given, decoder.table()), (102, 1, (2, 68)));
}

#[test]
fn uses_and_changes_of_the_dynamic_table_are_marked() {
    let mut decoder = Decoder::new(DEFAULT_TABLE);
    for (block, used) in [
        ("82 00 0161 0162", false),
        ("40 0161 0162", true),
        ("be", true),
        ("0f2f 0162", true),
        ("82", false),
        ("20", true),
    ] {
        let decoded = decoder.decode_marked(&hex(block), 1_000, &mut vec![], |_, _| {});
        assert_eq!(decoded.map(|(_, used)| used), Ok(used), "{block}");
    }
}

#[test]
fn references_to_a_long_entry_end_soon() {
    let mut decoder = Decoder::new(DEFAULT_TABLE);
    let mut block = hex("40 01 61 7f e1 1d"); // a value of 3,936 octets
    block.extend_from_slice(&[b'x'; 3936]);
    let most = 16 << 10;
    let (mut given, mut scratch) = (0, vec![]);
    let mut each = |name: &[u8], value: &[u8]| given += name.len() + value.len();
    decoder.decode(&block, most, &mut scratch, &mut each).unwrap();
    let bomb = [0xbe; 1000];
    assert_eq!(decoder.decode(&bomb, most, &mut scratch, &mut each), Err(HpackError::Bomb));
    // Names are copied only where the table needs them.
    let mut names = hex("40 7f e1 1d");
    names.extend_from_slice(&[b'y'; 3936]);
    names.push(0);
    names.extend([0x0f, 0x2f, 0x00].repeat(1000));
    assert_eq!(decoder.decode(&names, most, &mut scratch, &mut each), Err(HpackError::Bomb));
    assert!(given <= 3 * most as usize, "{given}");
    assert!(scratch.capacity() <= 4096, "{}", scratch.capacity());
    assert!(decoder.memory() <= 4096 + 4 * 12, "{}", decoder.memory());
}

#[test]
fn a_table_takes_no_more_memory_than_its_size() {
    let mut decoder = Decoder::new(DEFAULT_TABLE);
    assert_eq!(decoder.memory(), 0);
    for nth in 0_u32..5_000 {
        let mut block = vec![];
        let value = vec![b'v'; (nth * 37 % 900) as usize];
        integer::encode(6, 0x40, 0, &mut block);
        integer::encode(7, 0, 1, &mut block);
        block.push(b'n');
        integer::encode(7, 0, value.len().try_into().unwrap(), &mut block);
        block.extend_from_slice(&value);
        block.push(0xbe);
        let fields = decode(&mut decoder, &block).unwrap();
        assert_eq!(fields[1], (b"n".to_vec(), value));
        assert!(decoder.table().1 <= DEFAULT_TABLE);
    }
    assert!(decoder.memory() <= 4096 + 128 * 12, "{}", decoder.memory());
}

#[test]
fn an_encoder_and_a_decoder_have_the_sizes_of_the_decision() {
    assert_eq!((size_of::<Encoder>(), size_of::<Decoder>()), (32, 72));
    assert_eq!(Encoder::new(7).memory(), 0);
}

#[test]
fn the_second_use_of_a_fixed_field_is_an_index() {
    let agent = Fixed::new(b"user-agent", b"squall");
    let other = Fixed::new(b"x-other", b"1");
    let mut encoder = Encoder::new(2);
    let mut block = vec![];
    encoder.field(Field::Fixed(0, &agent), &mut block);
    encoder.field(Field::Fixed(1, &other), &mut block);
    block.clear();
    encoder.field(Field::Fixed(0, &agent), &mut block);
    encoder.field(Field::Fixed(1, &other), &mut block);
    assert_eq!(block, [0xbf, 0xbe]);
    assert_eq!(encoder.memory(), 4);
}

#[test]
fn a_field_that_does_not_fit_stays_a_literal() {
    let large = Fixed::new(b"x-large", &[b'~'; 100]);
    let mut encoder = Encoder::new(1);
    encoder.limit(100);
    let mut decoder = Decoder::new(DEFAULT_TABLE);
    for _ in 0..3 {
        let mut block = vec![];
        encoder.field(Field::Fixed(0, &large), &mut block);
        let fields = decode(&mut decoder, &block).unwrap();
        assert_eq!(fields, [(b"x-large".to_vec(), vec![b'~'; 100])]);
        assert_eq!((encoder.table(), decoder.table()), ((0, 0), (0, 0)));
    }
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..60)
}

proptest! {
    #[test]
    fn encoded_fields_are_decoded_for_any_table_sizes(
        fixed in prop::collection::vec((text(), text()), 1..40),
        blocks in prop::collection::vec(
            (prop::option::of(0_u32..5000), prop::collection::vec((0_usize..80, text()), 0..12)),
            1..20,
        ),
    ) {
        let table: Vec<Fixed> =
            fixed.iter().map(|(name, value)| Fixed::new(name, value)).collect();
        let mut encoder = Encoder::new(table.len().try_into().unwrap());
        let mut decoder = Decoder::new(DEFAULT_TABLE);
        for (limit, fields) in blocks {
            if let Some(limit) = limit {
                encoder.limit(limit);
            }
            let (mut block, mut sent) = (vec![], vec![]);
            for (choice, value) in &fields {
                let number = choice / 2 % table.len();
                let name = table[number].name();
                if choice % 2 == 0 {
                    sent.push((name.to_vec(), table[number].value().to_vec()));
                    let field = Field::Fixed(number.try_into().unwrap(), &table[number]);
                    encoder.field(field, &mut block);
                } else {
                    sent.push((name.to_vec(), value.clone()));
                    encoder.field(Field::Literal { name, value }, &mut block);
                }
            }
            prop_assert_eq!(decode(&mut decoder, &block).unwrap(), sent);
            if !fields.is_empty() {
                prop_assert_eq!(encoder.table(), decoder.table());
            }
        }
    }

    #[test]
    fn no_block_makes_a_decoder_panic_or_grow(
        blocks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..20),
    ) {
        let mut decoder = Decoder::new(DEFAULT_TABLE);
        for block in blocks {
            let _ = decode(&mut decoder, &block);
            prop_assert!(decoder.memory() <= 4096 + 128 * 12);
        }
    }
}
