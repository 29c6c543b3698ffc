//! Any octets as field blocks, and any fields through an encoder: nothing panics, memory is
//! bounded, and encoded fields are decoded, with the same table at both ends. Input: blocks after
//! their lengths, each also taken as names and values.
#![no_main]

use libfuzzer_sys::fuzz_target;
use squall_http::hpack::{DEFAULT_TABLE, Decoder, Encoder, Field, Fixed};

const MOST: u32 = 4096;

fuzz_target!(|data: &[u8]| {
    let (mut hostile, mut decoder) = (Decoder::new(DEFAULT_TABLE), Decoder::new(DEFAULT_TABLE));
    let table: Vec<Fixed> =
        (0..8_u8).map(|n| Fixed::new(&[b'a', n], &[n; 40][..5 * usize::from(n)])).collect();
    let mut encoder = Encoder::new(8);
    let (mut rest, mut scratch) = (data, vec![]);
    while let [len, more @ ..] = rest {
        let (octets, more) = more.split_at(usize::from(*len).min(more.len()));
        rest = more;
        let mut given = 0;
        let mut each = |name: &[u8], value: &[u8]| given += name.len() + value.len() + 32;
        let broken = hostile.decode(octets, MOST, &mut scratch, &mut each).is_err();
        assert!(given <= MOST as usize && hostile.memory() <= 4096 + 128 * 12);
        if broken {
            hostile = Decoder::new(DEFAULT_TABLE);
        }

        let (mut block, mut sent) = (vec![], vec![]);
        for (nth, piece) in octets.chunks(7).enumerate() {
            let first = usize::from(piece[0]);
            let (left, right) = piece.split_at(first % (piece.len() + 1));
            if nth == 0 && first >= 250 {
                encoder.limit(u32::from(*len) * 20);
            }
            let (field, pair) = match first % 2 {
                0 => {
                    let fixed = &table[first % 8];
                    let number = u16::try_from(first % 8).expect("below 8");
                    (Field::Fixed(number, fixed), (fixed.name(), fixed.value()))
                }
                _ => (Field::Literal { name: left, value: right }, (left, right)),
            };
            encoder.field(field, &mut block);
            sent.push((pair.0.to_vec(), pair.1.to_vec()));
        }
        let mut fields = vec![];
        let result = decoder.decode(&block, u32::MAX, &mut scratch, |name, value| {
            fields.push((name.to_vec(), value.to_vec()));
        });
        assert!(result.is_ok());
        assert_eq!(fields, sent);
        if !sent.is_empty() {
            assert_eq!(encoder.table(), decoder.table());
        }
    }
});
