//! Numbers of any width at any bit offset.

/// Writes the low `bits` bits of `value` at bit `at`.
pub(crate) fn put(bytes: &mut [u8], at: usize, bits: usize, value: u128) {
    for i in 0..bits {
        let (octet, mask) = ((at + i) / 8, 0x80 >> ((at + i) % 8));
        if value >> (bits - 1 - i) & 1 == 1 {
            bytes[octet] |= mask;
        } else {
            bytes[octet] &= !mask;
        }
    }
}

pub(crate) fn get(bytes: &[u8], at: usize, bits: usize) -> u128 {
    (at..at + bits)
        .fold(0, |value, bit| value << 1 | u128::from(bytes[bit / 8] >> (7 - bit % 8) & 1))
}
