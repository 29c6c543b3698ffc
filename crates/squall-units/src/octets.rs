//! Numbers in network byte order, read from octets.

/// The two octets at offset `at` as a number.
///
/// # Panics
/// If `octets` ends before `at + 2`.
#[inline]
pub fn be16(octets: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([octets[at], octets[at + 1]])
}

/// The four octets at offset `at` as a number.
///
/// # Panics
/// If `octets` ends before `at + 4`.
#[inline]
pub fn be32(octets: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]])
}

/// The same as [`be16`], but `None` if `octets` is too short.
#[inline]
pub fn get_be16(octets: &[u8], at: usize) -> Option<u16> {
    octets.get(at..)?.first_chunk().copied().map(u16::from_be_bytes)
}

/// The same as [`be32`], but `None` if `octets` is too short.
#[inline]
pub fn get_be32(octets: &[u8], at: usize) -> Option<u32> {
    octets.get(at..)?.first_chunk().copied().map(u32::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_at_their_place_and_not_past_the_end() {
        let octets = [0, 0x12, 0x34, 0x56, 0x78];
        assert_eq!((be16(&octets, 1), be32(&octets, 1)), (0x1234, 0x1234_5678));
        assert_eq!((get_be16(&octets, 3), get_be16(&octets, 4)), (Some(0x5678), None));
        assert_eq!((get_be32(&octets, 1), get_be32(&octets, 2)), (Some(0x1234_5678), None));
        assert_eq!(get_be16(&octets, 6), None);
    }
}
