//! The Internet checksum (RFC 1071), as unfolded sums that can be added up in any order.

/// Sum of the big-endian 16-bit words of `bytes`; an odd last octet counts as the upper half of a word.
pub fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<2>();
    let mut total: u64 = words.iter().map(|w| u64::from(u16::from_be_bytes(*w))).sum();
    if let [last] = rest {
        total += u64::from(*last) << 8;
    }
    total
}

/// Folds a sum into 16 bits, not complemented. Nonzero sums stay nonzero.
pub fn fold(mut sum: u64) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
