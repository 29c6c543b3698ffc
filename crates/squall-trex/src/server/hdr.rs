//! Encodes a histogram for TRex's clients: HdrHistogram's V2 format, compressed, in base 64.

use std::io::Write;

use base64::{Engine, engine::general_purpose::STANDARD};
use flate2::{Compression, write::ZlibEncoder};

/// Values from 1 us to 10 s, recorded with three digits as in TRex.
const LOWEST: i64 = 1;
const HIGHEST: i64 = 10_000_000;
const DIGITS: i32 = 3;
/// Three digits need 1,024 cells per power of two.
const CELL_BITS: u32 = 10;

const COOKIE: i32 = 0x1c84_9303 | 0x10;
const COMPRESSED_COOKIE: i32 = 0x1c84_9304 | 0x10;

/// Encodes bins of `[lower edge, upper edge, count]` in nanoseconds. Each is recorded at its
/// middle.
pub fn encoded<'a>(bins: impl Iterator<Item = &'a (u64, u64, u64)>) -> String {
    let mut counts: Vec<i64> = Vec::new();
    for (lower, upper, count) in bins {
        let micros = (lower / 2 + upper / 2) / 1000;
        let cell = cell_of(micros.min(HIGHEST as u64));
        if counts.len() <= cell {
            counts.resize(cell + 1, 0);
        }
        counts[cell] += *count as i64;
    }
    STANDARD.encode(compressed(&plain(&counts)))
}

/// The cell of a value: one per value below 2,048, 1,024 per power of two above.
fn cell_of(value: u64) -> usize {
    let shift = value.checked_ilog2().unwrap_or(0).saturating_sub(CELL_BITS);
    ((u64::from(shift) << CELL_BITS) + (value >> shift)) as usize
}

fn plain(counts: &[i64]) -> Vec<u8> {
    let payload = payload(counts);
    let mut out = Vec::with_capacity(40 + payload.len());
    out.extend(COOKIE.to_be_bytes());
    out.extend((payload.len() as i32).to_be_bytes());
    // Normalizing offset: counts are not shifted.
    out.extend(0i32.to_be_bytes());
    out.extend(DIGITS.to_be_bytes());
    out.extend(LOWEST.to_be_bytes());
    out.extend(HIGHEST.to_be_bytes());
    out.extend(1f64.to_be_bytes());
    out.extend(payload);
    out
}

/// Encodes counts; a negative value is the length of a run of zeros.
fn payload(counts: &[i64]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut zeros = 0;
    for count in counts {
        if *count == 0 {
            zeros += 1;
            continue;
        }
        if zeros > 0 {
            put(&mut out, -zeros);
            zeros = 0;
        }
        put(&mut out, *count);
    }
    out
}

/// Encodes ZigZag in groups of seven bits, lowest first; a ninth octet has eight.
fn put(out: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    for _ in 0..8 {
        if rest < 0x80 {
            out.push(rest as u8);
            return;
        }
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn compressed(plain: &[u8]) -> Vec<u8> {
    let mut packer = ZlibEncoder::new(Vec::new(), Compression::default());
    let written = packer.write_all(plain);
    let packed = written.and_then(|()| packer.finish()).expect("a Vec takes all octets");
    [&COMPRESSED_COOKIE.to_be_bytes()[..], &(packed.len() as i32).to_be_bytes(), &packed].concat()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::ZlibDecoder;

    use super::*;

    #[test]
    fn cells_are_those_of_three_digits() {
        // HdrHistogram has buckets of 2,048 cells, whose upper half is used.
        for (value, cell) in
            [(0, 0), (1, 1), (2047, 2047), (2048, 2048), (2049, 2048), (4095, 3071), (4096, 3072)]
        {
            assert_eq!(cell_of(value), cell, "{value}");
        }
    }

    #[test]
    fn a_histogram_is_packed_with_runs_of_zeros() {
        let text = encoded([(2000, 4000, 5), (3_000_000, 3_000_000, 200)].iter());
        let octets = STANDARD.decode(text).expect("base 64");
        assert_eq!(octets[..4], [0x1c, 0x84, 0x93, 0x14]);
        assert_eq!(octets[4..8], ((octets.len() - 8) as u32).to_be_bytes());
        let mut plain = Vec::new();
        ZlibDecoder::new(&octets[8..]).read_to_end(&mut plain).expect("zlib");
        assert_eq!(plain[..4], [0x1c, 0x84, 0x93, 0x13]);
        // Three zeros, 5 at 3 us; 2,520 zeros, and 200 at 3,000 us, which is cell 2,524.
        assert_eq!(plain[40..], [5, 10, 0xaf, 0x27, 0x90, 0x03]);
        assert_eq!(plain[4..8], 6u32.to_be_bytes());
    }

    #[test]
    fn an_empty_histogram_has_a_head_alone() {
        assert_eq!(plain(&[]).len(), 40);
    }
}
