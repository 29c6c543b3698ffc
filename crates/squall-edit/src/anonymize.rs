//! Replaces addresses consistently, by a prefix-preserving map (Crypto-PAn) or a seeded
//! permutation.

use aes::{
    Aes128, Block,
    cipher::{BlockEncrypt, KeyInit},
};
use squall_units::mix;

/// A mask for the upper `len` of 128 bits.
#[inline]
pub fn mask(len: u32) -> u128 {
    if len == 0 { 0 } else { u128::MAX << (128 - len) }
}

/// A prefix-preserving map: two addresses with exactly n leading bits in common are mapped to two
/// addresses that also have exactly n leading bits in common (Xu, Fan, Ammar, Moon:
/// Prefix-Preserving IP Address Anonymization, ICNP 2002). With the same key, other implementations
/// of Crypto-PAn give the same addresses.
pub struct CryptoPan {
    cipher: Aes128,
    pad: u128,
    /// Direct-mapped cache of replacements: captures repeat the same addresses.
    known: Vec<Option<(u128, bool, u128)>>,
}

const PLACES: usize = 1 << 12;
/// Number of blocks to encrypt together: the CPU pipelines several blocks at the cost of one.
const AT_ONCE: usize = 32;

impl CryptoPan {
    /// The first half of `key` is the encryption key; the second half is encrypted and becomes the
    /// padding.
    pub fn new(key: &[u8; 32]) -> Self {
        let (key, pad) = key.split_at(16);
        let cipher = Aes128::new_from_slice(key).expect("half a key has 16 octets");
        let mut block = Block::clone_from_slice(pad);
        cipher.encrypt_block(&mut block);
        Self { cipher, pad: u128::from_be_bytes(block.into()), known: vec![None; PLACES] }
    }

    /// Maps an address, which is in the upper bits: in the upper 32 unless `v6`.
    pub fn map(&mut self, address: u128, v6: bool) -> u128 {
        let place = mix(address as u64, (address >> 64) as u64) as usize % PLACES;
        if let Some((known, of_v6, mapped)) = self.known[place]
            && (known, of_v6) == (address, v6)
        {
            return mapped;
        }
        let mapped = self.compute(address, if v6 { 128 } else { 32 });
        self.known[place] = Some((address, v6, mapped));
        mapped
    }

    fn compute(&self, address: u128, bits: u32) -> u128 {
        let mut flips = 0;
        for first in (0..bits).step_by(AT_ONCE) {
            let mut blocks: [Block; AT_ONCE] = std::array::from_fn(|i| {
                let prefix = mask(first + i as u32);
                Block::from((address & prefix | self.pad & !prefix).to_be_bytes())
            });
            self.cipher.encrypt_blocks(&mut blocks);
            for (i, block) in blocks.iter().enumerate() {
                flips |= u128::from(block[0] >> 7) << (127 - first - i as u32);
            }
        }
        address ^ flips
    }
}

/// A bijection on numbers of `bits` bits, which must be even. It is a Feistel network, which is
/// invertible, so different numbers stay different.
pub fn permute(number: u128, bits: u32, seed: u64) -> u128 {
    let half = bits / 2;
    let low = (1 << half) - 1;
    let (mut left, mut right) = (number >> half, number & low);
    for round in 0..6 {
        (left, right) = (right, (left ^ u128::from(mix(mix(seed, round), right as u64))) & low);
    }
    left << half | right
}

/// A random bijection on addresses that keeps their kind: multicast addresses stay multicast, and
/// well-known addresses (unspecified, loopback, link-local IPv4, broadcast) do not change. The
/// address is in the upper bits.
pub fn random_address(address: u128, v6: bool, seed: u64) -> u128 {
    if v6 {
        // The first 16 bits determine the kind.
        let (kind, rest) = (address & mask(16), address & !mask(16));
        if kind == 0 && rest <= 1 {
            return address;
        }
        let mut rest = rest;
        loop {
            rest = permute(rest, 112, seed);
            if kind != 0 || rest > 1 {
                return kind | rest;
            }
        }
    }
    let mut number = (address >> 96) as u32;
    match number >> 24 {
        224..=239 => {
            let group = permute(u128::from(number & 0x0fff_ffff), 28, seed);
            u128::from(number & 0xf000_0000 | group as u32) << 96
        }
        _ if !is_plain(number) => address,
        _ => loop {
            // Permute until the result is a host address again. This terminates: an iterated
            // permutation eventually returns to its start.
            number = permute(u128::from(number), 32, seed) as u32;
            if is_plain(number) {
                return u128::from(number) << 96;
            }
        },
    }
}

/// Whether a host can have this address.
fn is_plain(address: u32) -> bool {
    matches!(address >> 24, 1..=126 | 128..=223) && address >> 16 != 0xa9fe
}

/// Like [`random_address`], for MAC addresses. Keeps the first `keep` octets (0..=6), and the
/// multicast and local bits in the first octet.
pub fn random_mac(mac: [u8; 6], keep: u8, seed: u64) -> [u8; 6] {
    if mac == [0xff; 6] {
        return mac;
    }
    let number =
        u128::from(u64::from_be_bytes([0, 0, mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]]));
    let mixed = if keep == 0 {
        // Permute the number without the multicast and local bits, which are in the middle.
        let (high, flags, low) = (number >> 42, number >> 40 & 3, number & 0xff_ffff_ffff);
        let mixed = permute(high << 40 | low, 46, seed);
        (mixed >> 40) << 42 | flags << 40 | mixed & 0xff_ffff_ffff
    } else {
        let bits = 48 - 8 * u32::from(keep.min(6));
        let low = (1 << bits) - 1;
        number & !low | permute(number & low, bits, seed)
    };
    std::array::from_fn(|i| (mixed >> (40 - 8 * i)) as u8)
}

/// The key for a text: 64 hexadecimal digits are the key itself, any other text is hashed.
pub fn key_of(text: &str) -> [u8; 32] {
    let digits = text.as_bytes();
    if digits.len() == 64 && digits.iter().all(u8::is_ascii_hexdigit) {
        return std::array::from_fn(|i| {
            u8::from_str_radix(&text[2 * i..2 * i + 2], 16).expect("two hexadecimal digits")
        });
    }
    let seed = digits.iter().fold(0, |seed, octet| mix(seed, u64::from(*octet)));
    let mut key = [0; 32];
    for (i, part) in key.chunks_exact_mut(8).enumerate() {
        part.copy_from_slice(&mix(seed, i as u64).to_be_bytes());
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn v4(text: &str) -> u128 {
        u128::from(u32::from(text.parse::<std::net::Ipv4Addr>().unwrap())) << 96
    }

    #[test]
    fn crypto_pan_gives_the_addresses_of_its_authors_sample() {
        // The key and the first lines of the sample trace that comes with the authors'
        // implementation.
        let key = [
            21, 34, 23, 141, 51, 164, 207, 128, 19, 10, 91, 22, 73, 144, 125, 16, 216, 152, 143,
            131, 121, 121, 101, 39, 98, 87, 76, 45, 42, 132, 34, 2,
        ];
        let mut pan = CryptoPan::new(&key);
        for (from, to) in
            [("128.11.68.132", "135.242.180.132"), ("129.118.74.4", "134.136.186.123")]
        {
            assert_eq!(pan.map(v4(from), false), v4(to), "{from}");
            assert_eq!(pan.map(v4(from), false), v4(to), "{from} again");
        }
        // The example in the documentation of yacryptopan.
        let mut pan = CryptoPan::new(b"32-char-str-for-AES-key-and-pad.");
        assert_eq!(pan.map(v4("192.0.2.1"), false), v4("192.0.125.244"));
    }

    #[test]
    fn crypto_pan_keeps_exactly_the_common_prefix() {
        let mut pan = CryptoPan::new(&key_of("7"));
        for v6 in [false, true] {
            let bits = if v6 { 128 } else { 32 };
            let address = (mix(1, 2) as u128 * 0x1_0000_0000_0000_0003) & mask(bits);
            for at in 0..bits {
                let other = address ^ 1 << (127 - at);
                let (a, b) = (pan.map(address, v6), pan.map(other, v6));
                assert_eq!((a ^ b).leading_zeros(), at, "bit {at}");
                assert_eq!(a & !mask(bits), 0);
            }
        }
    }

    #[test]
    fn random_addresses_stay_of_their_kind_and_never_meet() {
        let mut seen = HashSet::new();
        for i in 0..100_000_u32 {
            let address = 0x0a00_0000 + i;
            let mapped = (random_address(u128::from(address) << 96, false, 3) >> 96) as u32;
            assert!(is_plain(mapped), "{address:x} -> {mapped:x}");
            assert!(seen.insert(mapped));
        }
        for kept in ["0.0.0.0", "127.0.0.1", "255.255.255.255", "169.254.7.7"] {
            assert_eq!(random_address(v4(kept), false, 3), v4(kept));
        }
        assert_eq!(random_address(v4("239.1.2.3"), false, 3) >> 124, 0xe);
        let v6 = 0x2001_0db8_u128 << 96 | 1;
        assert_eq!(random_address(v6, true, 3) >> 112, 0x2001);
        assert_ne!(random_address(v6, true, 3), v6);
        assert_eq!(random_address(1, true, 3), 1);
    }

    #[test]
    fn random_macs_keep_the_prefix_and_the_multicast_bit() {
        let mac = [0x02, 1, 2, 3, 4, 5];
        for keep in 0..=6 {
            let mapped = random_mac(mac, keep, 9);
            assert_eq!(mapped[..usize::from(keep)], mac[..usize::from(keep)]);
            assert_eq!(mapped[0] & 3, mac[0] & 3, "{mapped:?}");
        }
        assert_eq!(random_mac([0xff; 6], 0, 9), [0xff; 6]);
        let seen: HashSet<_> = (0..=u16::MAX)
            .map(|i| random_mac([2, 0, 0, 0, (i >> 8) as u8, i as u8], 3, 1))
            .collect();
        assert_eq!(seen.len(), 1 << 16);
    }
}
