//! Keyed hashes: a fast one for the flow table, a strong one for initial sequence numbers.

use squall_wire::Ipv6Octets;

/// Hashes a flow's addresses and ports for the table. Keyed, because a peer that could predict the
/// hash could fill one run of slots with its flows and make each lookup linear.
#[inline]
pub(crate) fn fast(key: [u64; 2], a: u64, b: u64) -> u32 {
    let mixed = wide(key, a, b);
    (mixed ^ mixed >> 32) as u32
}

/// The same in twice as many bits.
#[inline]
pub(crate) fn wide(key: [u64; 2], a: u64, b: u64) -> u64 {
    // 2^64 over the golden ratio, and wyhash's first secret: odd constants, so that an operand of
    // zero does not clear the product.
    let mixed = fold(a ^ key[0], b ^ key[1] ^ 0x9e37_79b9_7f4a_7c15);
    fold(mixed ^ key[1], 0xa076_1d64_78bd_642f)
}

/// Hashes two IPv6 addresses to what [`fast`] takes of two IPv4 addresses. The key's halves change
/// places for the second one, so that swapped addresses differ.
#[inline]
pub(crate) fn pair(key: [u64; 2], a: Ipv6Octets, b: Ipv6Octets) -> u64 {
    let of = |[first, second]: [u64; 2], Ipv6Octets { upper, lower }: Ipv6Octets| {
        fold(upper ^ first ^ 0xe703_7ed1_a0b4_28db, lower ^ second)
    };
    of(key, a) ^ of([key[1], key[0]], b)
}

/// An IPv6 address in 64 bits that differ for the addresses of a network, and for most networks. Not
/// keyed: only for a table in which some more equal values cost little, and very many are refused.
#[inline]
pub(crate) fn short(address: Ipv6Octets) -> u64 {
    address.upper.wrapping_mul(0xe703_7ed1_a0b4_28db) ^ address.lower
}

/// Combines both halves of the product, so each result bit depends on all bits of `a` and `b`.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// SipHash-2-4 of `words`, the whole message: RFC 6528 §3 requires a pseudorandom function that
/// observers of ISNs cannot invert.
#[inline]
pub(crate) fn strong<const N: usize>(key: [u64; 2], words: [u64; N]) -> u64 {
    // The initial state is that of the SipHash paper ("somepseudorandomlygeneratedbytes").
    let mut v = [
        key[0] ^ 0x736f_6d65_7073_6575,
        key[1] ^ 0x646f_7261_6e64_6f6d,
        key[0] ^ 0x6c79_6765_6e65_7261,
        key[1] ^ 0x7465_6462_7974_6573,
    ];
    for word in words {
        compress(&mut v, word);
    }
    compress(&mut v, (N as u64 * 8) << 56);
    // The finalization mark of the paper.
    v[2] ^= 0xff;
    for _ in 0..4 {
        round(&mut v);
    }
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

#[inline(always)]
fn compress(v: &mut [u64; 4], word: u64) {
    v[3] ^= word;
    round(v);
    round(v);
    v[0] ^= word;
}

#[inline]
fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[2] = v[2].rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siphash_matches_the_reference_vectors() {
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        // vectors_sip64 of the reference implementation: messages of 0 and of 8 octets 00, 01, 02
        // ...
        assert_eq!(strong(key, []), 0x726f_db47_dd0e_0e31);
        assert_eq!(strong(key, [0x0706_0504_0302_0100]), 0x93f5_f579_9a93_2462);
    }

    #[test]
    fn adjacent_ports_spread_over_the_table() {
        let mut seen = vec![0u8; 1 << 12];
        for port in 0..1u64 << 12 {
            seen[fast([1, 2], 0x0a00_0001_0a00_0002, port << 16 | 80) as usize & 0xfff] += 1;
        }
        let empty = seen.iter().filter(|&&n| n == 0).count() as f64 / 4096.0;
        assert!((empty - (-1f64).exp()).abs() < 0.05, "{empty}");
        assert!(seen.iter().all(|&n| n < 12));
    }
}
