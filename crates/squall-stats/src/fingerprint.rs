//! A hash of a multiset of frames, which does not depend on their order or on the number of workers
//! that count them.

use std::fmt;

/// The wrapping sum of a 128-bit hash of each frame. With an XOR instead of a sum, two copies of a
/// frame would cancel out.
///
/// Equal values show that two ends have seen the same frames. The hash does not resist intentional
/// collisions. It never changes, because golden files contain its values.
///
/// ```
/// use squall_stats::Fingerprint;
/// let (mut sent, mut received) = (Fingerprint::new(), Fingerprint::new());
/// for frame in ["one", "two"] { sent.add(frame.as_bytes()) }
/// for frame in ["two", "one"] { received.add(frame.as_bytes()) }
/// assert_eq!(sent, received);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fingerprint(u128);

impl Fingerprint {
    /// The value for no frames: 0.
    pub const fn new() -> Self {
        Self(0)
    }

    #[inline]
    pub fn add(&mut self, frame: &[u8]) {
        self.0 = self.0.wrapping_add(hash(frame));
    }

    /// Merges the frames of another worker.
    pub fn merge(&mut self, other: Self) {
        self.0 = self.0.wrapping_add(other.0);
    }

    /// Subtracts frames that were added earlier, such as those of a previous snapshot.
    pub fn delta_since(self, earlier: Self) -> Self {
        Self(self.0.wrapping_sub(earlier.0))
    }

    pub const fn to_u128(self) -> u128 {
        self.0
    }
}

/// Writes 32 hexadecimal digits.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The constants of wyhash's first version, and two from the digits of pi (the second made odd).
const K: [u64; 6] = [
    0xa076_1d64_78bd_642f,
    0xe703_7ed1_a0b4_28db,
    0x8ebc_6af0_9c88_c6e3,
    0x5899_65cc_7537_4cc3,
    0x243f_6a88_85a3_08d3,
    0x1319_8a2e_0370_7345,
];

/// Two lanes like those of wyhash. Each takes 16 octets per step as two little-endian words, mixes
/// them with a constant and the lane's state, multiplies them to 128 bits, and folds the product.
/// In every 32 octets, lane `a` takes 0..16 and lane `b` 16..32. The remainder is the last 32
/// octets of the frame, or a shorter frame padded with zeros; as the length is hashed, too, padding
/// is unambiguous.
#[inline]
fn hash(frame: &[u8]) -> u128 {
    let len = frame.len() as u64;
    let (mut a, mut b) = (K[0] ^ len, K[1].wrapping_add(len));
    let (blocks, rest) = frame.as_chunks::<32>();
    for block in blocks {
        step(block, &mut a, &mut b);
    }
    if rest.is_empty() {
        // The last 32 octets are already hashed.
    } else if let Some(last) = frame.last_chunk() {
        step(last, &mut a, &mut b);
    } else {
        let mut block = [0; 32];
        block[..rest.len()].copy_from_slice(rest);
        step(&block, &mut a, &mut b);
    }
    let high = fold(a ^ K[2], b ^ K[3]);
    let low = fold(a ^ K[4] ^ len, b.rotate_left(32) ^ K[5]);
    u128::from(high) << 64 | u128::from(low)
}

#[inline]
fn step(block: &[u8; 32], a: &mut u64, b: &mut u64) {
    let word = |i: usize| u64::from_le_bytes(std::array::from_fn(|k| block[8 * i + k]));
    *a = fold(word(0) ^ K[2], word(1) ^ *a);
    *b = fold(word(2) ^ K[3], word(3) ^ *b);
}

/// XOR of the two halves of the product.
#[inline]
fn fold(x: u64, y: u64) -> u64 {
    let product = u128::from(x) * u128::from(y);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn of(frames: &[&[u8]]) -> Fingerprint {
        let mut f = Fingerprint::new();
        frames.iter().for_each(|frame| f.add(frame));
        f
    }

    #[test]
    fn order_and_split_do_not_matter() {
        let mut split = of(&[b"a", b"ccc"]);
        split.merge(of(&[b"bb"]));
        assert_eq!(of(&[b"a", b"bb", b"ccc"]), split);
        assert_eq!(of(&[b"ccc", b"bb", b"a"]), split);
        assert_eq!(split.delta_since(of(&[b"bb"])), of(&[b"ccc", b"a"]));
    }

    #[test]
    fn a_frame_more_or_less_or_twice_matters() {
        let one = of(&[b"a"]);
        assert_ne!(one, of(&[b"a", b"a"]));
        assert_ne!(one, of(&[b"a", b"a", b"a"]));
        assert_ne!(one, of(&[]));
        assert_ne!(of(&[b""]), of(&[]));
    }

    #[test]
    fn every_bit_and_every_length_changes_about_half_of_the_digits() {
        let base: Vec<u8> = (0..100u8).map(|i| i.wrapping_mul(37)).collect();
        let mut seen = HashSet::new();
        for len in 0..=base.len() {
            let plain = hash(&base[..len]);
            assert!(seen.insert(plain));
            for bit in 0..len * 8 {
                let mut changed = base[..len].to_vec();
                changed[bit / 8] ^= 1 << (bit % 8);
                let changed = hash(&changed);
                assert!(seen.insert(changed));
                let differ = (changed ^ plain).count_ones();
                assert!((24..=104).contains(&differ), "octets {len}, bit {bit}: {differ} of 128");
            }
        }
        // Padding does not count as content.
        assert_ne!(hash(&[0; 5]), hash(&[0; 6]));
        // The lanes do not commute.
        let swapped = [&base[16..32], &base[..16]].concat();
        assert_ne!(hash(&base[..32]), hash(&swapped));
    }

    /// Golden files contain fingerprints. If this test fails, the hash has changed, which is not
    /// allowed.
    #[test]
    fn the_hash_stays_as_it_is() {
        let frame: Vec<u8> = (0..=255).collect();
        let values = [0, 1, 31, 32, 60, 256].map(|len| of(&[&frame[..len]]).to_string());
        assert_eq!(values, GOLDEN);
    }

    const GOLDEN: [&str; 6] = [
        "12bc85e4b76af52f230fe87208303923",
        "7cf8b9c6ddad54f03d800f5fb453fe63",
        "ee2d7cd4d9d1f06cf7e6d46509c8db5d",
        "a04ace75b8818a126e596f3faeb48a87",
        "c229312fd50c288d2e9ccd65edf6adaf",
        "a39287ee0b00eab109391f83bca915ba",
    ];
}
