//! The Internet checksum (RFC 1071), as unfolded sums that can be added in any order.

/// Sum of the big-endian 16-bit words of `bytes`, modulo 65,535 (0 only if all are 0), in 33 bits.
/// An odd last octet counts as the upper half of a word.
#[inline]
pub fn sum(bytes: &[u8]) -> u64 {
    let total = native(bytes);
    // The byte order only swaps the octets of the sum (RFC 1071 §2 B); a rotation by eight bits
    // swaps the octets of each word.
    let total = if cfg!(target_endian = "little") { total.rotate_left(8) } else { total };
    (total & 0xffff_ffff) + (total >> 32)
}

/// The sum of words of 64 bits in host byte order, modulo 2^64 - 1, which is a multiple of 65,535:
/// its [`fold`] is that of the 16-bit words, with its octets swapped on little-endian machines.
#[inline]
pub fn native(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let (blocks, words) = words.as_chunks::<4>();
    // Two sums, because each addition would otherwise wait for the one before.
    let (mut even, mut odd) = (0, 0);
    for [a, b, c, d] in blocks {
        even = add(even, u64::from_ne_bytes(*a));
        odd = add(odd, u64::from_ne_bytes(*b));
        even = add(even, u64::from_ne_bytes(*c));
        odd = add(odd, u64::from_ne_bytes(*d));
    }
    let mut total = add(even, odd);
    for word in words {
        total = add(total, u64::from_ne_bytes(*word));
    }
    let (words, rest) = rest.as_chunks::<4>();
    for word in words {
        total = add(total, u32::from_ne_bytes(*word).into());
    }
    let last = match *rest {
        [a] => u16::from_ne_bytes([a, 0]).into(),
        [a, b] => u16::from_ne_bytes([a, b]).into(),
        [a, b, c] => u64::from(u16::from_ne_bytes([a, b])) + u64::from(u16::from_ne_bytes([c, 0])),
        _ => 0,
    };
    add(total, last)
}

/// Adds modulo 2^64 - 1: the carry counts as one. 0 only if both are 0.
#[inline(always)]
pub fn add(a: u64, b: u64) -> u64 {
    let (sum, carry) = a.overflowing_add(b);
    sum + u64::from(carry)
}

/// Folds a sum to 16 bits, without complementing it. Nonzero sums stay nonzero.
#[inline]
pub fn fold(sum: u64) -> u16 {
    // Adds the halves, including the carry from the lower one.
    let sum = (sum.wrapping_add(sum.rotate_left(32)) >> 32) as u32;
    (sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
}

/// SCTP's CRC of a packet, computed with a checksum field (octets 8 to 11) of 0 (RFC 9260 §6.8). It
/// is sent with the least significant octet first.
///
/// # Panics
/// If the packet is shorter than its header of 12 octets.
pub fn sctp(packet: &[u8]) -> u32 {
    let crc = crc32c::crc32c_append(crc32c::crc32c(&packet[..8]), &[0; 4]);
    crc32c::crc32c_append(crc, &packet[12..])
}

/// How the [`sctp`] checksum of a packet of `len` octets changes, as exclusive or, when its octets
/// at `at` change from `old` to `new`. The packet itself is not needed: a CRC without its
/// inversions is linear.
///
/// # Panics
/// If `old` and `new` differ in length, or exceed the packet.
pub fn sctp_change(old: &[u8], new: &[u8], at: usize, len: usize) -> u32 {
    assert!(old.len() == new.len() && at + old.len() <= len, "changes lie in the packet");
    const ZEROS: [u8; 1024] = [0; 1024];
    let change: Vec<u8> = old.iter().zip(new).map(|(old, new)| old ^ new).collect();
    let mut crc = crc32c::crc32c_append(!0, &change);
    let mut left = len - at - old.len();
    while left > 0 {
        let step = left.min(ZEROS.len());
        crc = crc32c::crc32c_append(crc, &ZEROS[..step]);
        left -= step;
    }
    !crc
}

/// The ICRC of an RoCEv2 packet from its IP header to its payload; `bth` is the offset of the base
/// transport header. Fields that routers change count as ones, as do 8 octets in front (InfiniBand
/// annex A17). It is sent with the least significant octet first. `None` if there is no IP header.
pub fn icrc(packet: &[u8], bth: usize) -> Option<u32> {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&[0xff; 8]);
    let mut masked = [0; 64];
    let udp = bth.checked_sub(8)?;
    // RoCEv2 uses neither IPv6 extension headers nor IPv4 options.
    let head = masked.get_mut(..bth + 12)?;
    head.copy_from_slice(packet.get(..bth + 12)?);
    match head[0] >> 4 {
        4 => [1, 8, 10, 11].into_iter().for_each(|at| head[at] = 0xff),
        6 => {
            head[0] |= 0x0f;
            [1, 2, 3, 7].into_iter().for_each(|at| head[at] = 0xff);
        }
        _ => return None,
    }
    [udp + 6, udp + 7, bth + 4].into_iter().for_each(|at| head[at] = 0xff);
    crc.update(head);
    crc.update(&packet[bth + 12..]);
    Some(crc.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_equals_that_of_single_words() {
        let octets: Vec<u8> = (0..600u32).map(|i| (i * 37 + i / 7) as u8).collect();
        for len in 0..octets.len() {
            for from in 0..8.min(len) {
                let part = &octets[from..len];
                let words = part
                    .chunks(2)
                    .map(|w| u64::from(w[0]) << 8 | u64::from(*w.get(1).unwrap_or(&0)));
                assert_eq!(fold(sum(part)), fold(words.sum()), "{from}..{len}");
            }
        }
        assert_eq!(sum(&[0xff; 65_535]) % 0xffff, 0xff00);
        assert_eq!((sum(&[0; 40]), fold(sum(&[0xff; 40]))), (0, 0xffff));
    }

    #[test]
    fn a_crc_change_equals_the_recomputed_crc() {
        for len in [12, 13, 16, 1500, 1036, 65_000] {
            let old: Vec<u8> = (0..len as u32).map(|i| (i * 37 + i / 7) as u8).collect();
            for at in [0, 2, 12, len - 4].into_iter().filter(|at| *at + 4 <= 8 || *at >= 12) {
                let mut new = old.clone();
                let Some(changed) = new.get_mut(at..at + 4) else { continue };
                changed.copy_from_slice(&[0xff, 0, 0x80, 7]);
                let change = sctp_change(&old[at..at + 4], &new[at..at + 4], at, len);
                assert_eq!(sctp(&old) ^ change, sctp(&new), "{at} of {len}");
            }
        }
        assert_eq!(sctp_change(&[1, 2], &[1, 2], 3, 900), 0);
    }

    #[test]
    fn folding_keeps_the_remainder() {
        for sum in [0, 1, 0xffff, 0x1_0000, 0xffff_ffff, 0x1_2345_6789, u64::MAX] {
            let folded = u64::from(fold(sum));
            assert_eq!(folded % 0xffff, sum % 0xffff, "{sum:x}");
            assert_eq!(folded == 0, sum == 0);
        }
    }
}
