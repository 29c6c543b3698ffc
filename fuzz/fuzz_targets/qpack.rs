//! Any octets as field sections and instructions of QPACK, and any fields through an encoder: nothing
//! panics, memory is bounded, and encoded fields are decoded without waiting, however late the
//! instructions of either end arrive. Input: pieces after their lengths, each also taken as names
//! and values.
#![no_main]

use libfuzzer_sys::fuzz_target;
use squall_http::qpack::{Decoder, Encoder, Field, Fixed, MOST_TABLE};

const MOST: u32 = 4096;

fuzz_target!(|data: &[u8]| {
    let [choice, data @ ..] = data else { return };
    let table: Vec<Fixed> =
        (0..8_u8).map(|n| Fixed::new(&[b'a', n], &[n; 40][..5 * usize::from(n)])).collect();
    let (mut hostile, mut decoder) = (Decoder::new(MOST_TABLE), Decoder::new(MOST_TABLE));
    let mut encoder = Encoder::new(8, u32::from(choice & 0x7f) * 10);
    encoder.limit(if choice & 0x80 == 0 { u64::from(MOST_TABLE) } else { 100 });
    if choice & 0x80 != 0 {
        decoder = Decoder::new(100);
    }
    let mut answers = vec![];
    let (mut rest, mut scratch) = (data, vec![]);
    for stream in 0.. {
        let [len, more @ ..] = rest else { break };
        let (octets, more) = more.split_at(usize::from(*len).min(more.len()));
        rest = more;

        // The octets of a peer: to a decoder on both streams, and to an encoder.
        let mut given = 0;
        let mut each = |name: &[u8], value: &[u8]| given += name.len() + value.len() + 32;
        let _ = hostile.decode(octets, MOST, &mut scratch, &mut each);
        assert!(given <= MOST as usize);
        if hostile.instructions(octets).is_err() {
            hostile = Decoder::new(MOST_TABLE);
        }
        assert!(hostile.memory() <= 10 * MOST_TABLE as usize && hostile.table().1 <= MOST_TABLE);
        let _ = Encoder::new(0, MOST_TABLE).acknowledgments(octets);

        let (mut block, mut sent) = (vec![], vec![]);
        encoder.section(stream, &mut block, |encoder, block| {
            for piece in octets.chunks(7) {
                let first = usize::from(piece[0]);
                let (left, right) = piece.split_at(first % (piece.len() + 1));
                let (field, pair) = match first % 2 {
                    0 => {
                        let fixed = &table[first % 8];
                        let number = u16::try_from(first % 8).expect("below 8");
                        (Field::Fixed(number, fixed), (fixed.name(), fixed.value()))
                    }
                    _ => (Field::Literal { name: left, value: right }, (left, right)),
                };
                encoder.field(field, block);
                sent.push((pair.0.to_vec(), pair.1.to_vec()));
            }
        });
        let mut fields = vec![];
        let section = decoder.decode(&block, u32::MAX, &mut scratch, |name, value| {
            fields.push((name.to_vec(), value.to_vec()));
        });
        let section = section.expect("an encoder's section").expect("it never waits");
        assert_eq!(fields, sent);
        if section.required > 0 {
            match len % 3 {
                0 => decoder.acknowledge(stream, section, &mut answers),
                1 => decoder.cancel(stream, &mut answers),
                _ => {}
            }
        }
        if len % 2 == 0 {
            let instructions = std::mem::take(encoder.instructions());
            for piece in instructions.chunks(usize::from(*len % 11) + 1) {
                decoder.instructions(piece).expect("an encoder's instructions");
            }
            decoder.increment(&mut answers);
            assert_eq!(encoder.table(), decoder.table());
        }
        if len % 5 < 3 {
            encoder.acknowledgments(&answers).expect("a decoder's answers");
            answers.clear();
        }
        assert!(encoder.memory() <= 16 << 10);
    }
});
