//! The Huffman code of strings (RFC 7541 section 5.2 and appendix B).
//!
//! The code is canonical: within a length, codes ascend with their symbols. So the lengths define
//! it, and all tables are computed from them when the crate is compiled.

use super::HpackError;

/// Octets, and the end of the string (EOS).
const SYMBOLS: usize = 257;
/// The longest code, in bits.
const LONGEST: usize = 30;

/// The lengths of all codes, in bits, by symbol.
#[rustfmt::skip]
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5,
    6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23,
    23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20,
    22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22,
    22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26,
    27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25,
    25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

/// All codes by symbol, in their last bits.
const CODES: [u32; SYMBOLS] = codes();

/// Codes of a length, for decoding: the first of them, their number, and where their symbols are.
#[derive(Clone, Copy)]
struct OfLength {
    first: u32,
    /// The first code that is longer, with its first bit at bit 31.
    end: u64,
    at: u16,
}

const OF_LENGTHS: [OfLength; LONGEST + 1] = of_lengths();
/// Symbols in the order of their codes.
const SORTED: [u16; SYMBOLS] = sorted();
/// By the next 8 bits: the symbol and the length of its code, or 0 if that is longer.
const SHORT: [(u8, u8); 256] = short();

const fn sorted() -> [u16; SYMBOLS] {
    let mut sorted = [0; SYMBOLS];
    let (mut at, mut length) = (0, 1);
    while length <= LONGEST {
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] as usize == length {
                sorted[at] = symbol as u16;
                at += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    sorted
}

const fn codes() -> [u32; SYMBOLS] {
    let sorted = sorted();
    let mut codes = [0; SYMBOLS];
    let (mut at, mut code, mut length) = (0, 0, 0);
    while at < SYMBOLS {
        let symbol = sorted[at] as usize;
        code <<= LENGTHS[symbol] - length;
        length = LENGTHS[symbol];
        codes[symbol] = code;
        code += 1;
        at += 1;
    }
    codes
}

const fn of_lengths() -> [OfLength; LONGEST + 1] {
    let (sorted, codes) = (sorted(), codes());
    let mut all = [OfLength { first: 0, end: 0, at: 0 }; LONGEST + 1];
    let mut at = 0;
    while at < SYMBOLS {
        let symbol = sorted[at] as usize;
        let length = LENGTHS[symbol] as usize;
        if all[length].end == 0 {
            all[length].first = codes[symbol];
            all[length].at = at as u16;
        }
        all[length].end = (codes[symbol] as u64 + 1) << (32 - length);
        at += 1;
    }
    all
}

const fn short() -> [(u8, u8); 256] {
    let codes = codes();
    let mut short = [(0, 0); 256];
    let mut symbol = 0;
    while symbol < 256 {
        let length = LENGTHS[symbol];
        if length <= 8 {
            let first = (codes[symbol] << (8 - length)) as usize;
            let mut more = 0;
            while more < 1 << (8 - length) {
                short[first + more] = (symbol as u8, length);
                more += 1;
            }
        }
        symbol += 1;
    }
    short
}

/// The length of `octets` in this code.
pub(crate) fn len(octets: &[u8]) -> usize {
    let bits: usize = octets.iter().map(|&octet| usize::from(LENGTHS[usize::from(octet)])).sum();
    bits.div_ceil(8)
}

/// Appends `octets` in this code, padded with ones.
pub(crate) fn encode(octets: &[u8], out: &mut Vec<u8>) {
    // `have` bits (fewer than 8 between two symbols) wait at the end of `bits`.
    let (mut bits, mut have) = (0_u64, 0);
    for &octet in octets {
        let length = u32::from(LENGTHS[usize::from(octet)]);
        bits = bits << length | u64::from(CODES[usize::from(octet)]);
        have += length;
        while have >= 8 {
            have -= 8;
            out.push((bits >> have) as u8);
        }
    }
    if have > 0 {
        out.push((bits << (8 - have)) as u8 | 0xff >> have);
    }
}

/// Appends the string that `input` is the code of: at most 8/5 of its length.
pub(crate) fn decode(input: &[u8], out: &mut Vec<u8>) -> Result<(), HpackError> {
    let mut input = input.iter();
    // The next bit is bit 63; after `have` bits, all are zero.
    let (mut bits, mut have) = (0_u64, 0_u32);
    loop {
        while have <= 56 {
            let Some(&octet) = input.next() else { break };
            bits |= u64::from(octet) << (56 - have);
            have += 8;
        }
        let (symbol, length) = match SHORT[(bits >> 56) as usize] {
            (_, 0) => long(bits),
            (symbol, length) => (u16::from(symbol), u32::from(length)),
        };
        if length > have {
            // The rest is padding: fewer than 8 bits, all ones (RFC 7541 section 5.2).
            let ones = have < 8 && (bits >> 56) as u8 == !(0xff >> have);
            return if ones { Ok(()) } else { Err(HpackError::Huffman) };
        }
        let Ok(octet) = u8::try_from(symbol) else { return Err(HpackError::Huffman) };
        out.push(octet);
        bits <<= length;
        have -= length;
    }
}

/// The symbol whose code of more than 8 bits `bits` begin with, and the code's length.
fn long(bits: u64) -> (u16, u32) {
    let window = bits >> 32;
    for (length, of) in (9..).zip(&OF_LENGTHS[9..LONGEST]) {
        if window < of.end {
            let nth = (window >> (32 - length)) as usize - of.first as usize;
            return (SORTED[usize::from(of.at) + nth], length);
        }
    }
    // All others have the longest code.
    let of = OF_LENGTHS[LONGEST];
    let nth = (window >> (32 - LONGEST)) as usize - of.first as usize;
    (SORTED[usize::from(of.at) + nth], LONGEST as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_is_complete_and_has_the_codes_of_appendix_b() {
        let sum: u64 = LENGTHS.iter().map(|&length| 1 << (LONGEST - usize::from(length))).sum();
        assert_eq!(sum, 1 << LONGEST);
        let known = [
            (u16::from(b'0'), 0x0, 5),
            (u16::from(b't'), 0x9, 5),
            (u16::from(b' '), 0x14, 6),
            (u16::from(b':'), 0x5c, 7),
            (u16::from(b'&'), 0xf8, 8),
            (u16::from(b'!'), 0x3f8, 10),
            (u16::from(b'\\'), 0x7fff0, 19),
            (0, 0x1ff8, 13),
            (1, 0x007f_ffd8, 23),
            (10, 0x3fff_fffc, 30),
            (127, 0x0fff_fffc, 28),
            (255, 0x03ff_ffee, 26),
            (256, 0x3fff_ffff, 30),
        ];
        for (symbol, code, length) in known {
            let symbol = usize::from(symbol);
            assert_eq!((CODES[symbol], LENGTHS[symbol]), (code, length), "symbol {symbol}");
        }
    }

    #[test]
    fn every_symbol_is_decoded_after_every_other() {
        for first in 0..=255 {
            for second in 0..=255 {
                let octets = [first, second, first];
                let (mut code, mut back) = (vec![], vec![]);
                encode(&octets, &mut code);
                assert_eq!(code.len(), len(&octets));
                decode(&code, &mut back).unwrap();
                assert_eq!(back, octets);
            }
        }
    }

    #[test]
    fn padding_is_shorter_than_an_octet_and_has_only_ones() {
        let mut out = vec![];
        for (code, expected) in [
            (&b"\x07"[..], Ok(())),                  // '0' and 3 ones
            (b"\x06", Err(HpackError::Huffman)),     // '0' and 110
            (b"\x07\xff", Err(HpackError::Huffman)), // 11 ones
            (b"\xff", Err(HpackError::Huffman)),     // only padding, of a whole octet
            (b"", Ok(())),
            (b"\xff\xff\xff\xff", Err(HpackError::Huffman)), // EOS
            (b"\x3f\xff\xff\xff\xfc", Err(HpackError::Huffman)), // '7', ones: EOS within
        ] {
            out.clear();
            assert_eq!(decode(code, &mut out), expected, "{code:x?}");
        }
    }
}
