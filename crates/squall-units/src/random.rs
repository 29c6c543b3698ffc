//! Random numbers in a sequence that is the same on all machines (SplitMix64: Steele, Lea, Flood
//! 2014).

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A uniform 64-bit number that depends only on `seed` and `k`: the same as draw `k` of
/// [`SplitMix64`] with that seed, but computed without the previous draws.
#[inline]
pub fn mix(seed: u64, k: u64) -> u64 {
    mixed(seed.wrapping_add(k.wrapping_add(1).wrapping_mul(STEP)))
}

/// A number, uniform in `0..n`, with a bias below n / 2^64. `n` = 0 means 2^64.
#[inline]
pub fn below(random: u64, n: u64) -> u64 {
    if n == 0 { random } else { ((u128::from(random) * u128::from(n)) >> 64) as u64 }
}

/// A permutation of `0..n` that depends on `key`: see [`Shuffle`].
#[inline]
pub fn shuffled(k: u64, n: u64, key: u64) -> u64 {
    Shuffle::new(n, key).at(k)
}

/// A permutation of `0..n` that depends on a key: multiplications by odd numbers and xor-shifts,
/// each of which is a bijection over a power of two, repeated until the value is below `n` (fewer
/// than two rounds on average). Computed instead of shuffled in a table, because that of a pool
/// with 2^24 addresses and 64,512 ports would have 10^12 entries.
#[derive(Clone, Copy, Debug)]
pub struct Shuffle {
    n: u64,
    mask: u64,
    half: u32,
    third: u32,
    multiplier: u64,
    other: u64,
    added: u64,
}

impl Shuffle {
    /// `n`: at least 1.
    #[inline]
    pub fn new(n: u64, key: u64) -> Self {
        let bits = 64 - (n - 1).leading_zeros();
        // A pool of one address has no bits, and the shift for `mask` would overflow.
        let mask = if bits == 0 { 0 } else { u64::MAX >> (64 - bits) };
        let (half, third) = (bits.div_ceil(2), bits.div_ceil(3));
        let (multiplier, other) = (key | 1, mix(key, 1) | 1);
        // With two numbers, `added` swaps them, and a single one stays.
        let added = if mask < 2 { key & mask } else { key >> 7 };
        Self { n, mask, half, third, multiplier, other, added }
    }

    /// The number at position `k`, which is below `n`.
    #[inline]
    pub fn at(&self, k: u64) -> u64 {
        let Self { n, mask, half, third, multiplier, other, added } = *self;
        if mask < 2 {
            return k ^ added;
        }
        let mut x = k;
        loop {
            x = x.wrapping_add(added).wrapping_mul(multiplier) & mask;
            x ^= x >> half;
            x = x.wrapping_mul(other) & mask;
            x ^= x >> third;
            // The golden ratio in 64 bits (Fibonacci hashing).
            x = x.wrapping_mul(STEP) & mask;
            x ^= x >> half;
            if x < n {
                return x;
            }
        }
    }
}

#[inline]
fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A sequence of random numbers. The field is the seed.
#[derive(Clone, Debug)]
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    #[inline]
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mixed(self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_size_is_shuffled_one_to_one(n in 1u64..3000, key in any::<u64>()) {
            let mut all: Vec<_> = (0..n).map(|k| shuffled(k, n, key)).collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..n).collect::<Vec<_>>());
        }
    }

    #[test]
    fn draws_are_those_of_the_published_generator_and_of_their_indices() {
        let mut random = SplitMix64(1_234_567);
        let drawn: Vec<u64> = (0..3).map(|_| random.draw()).collect();
        // Values of the reference implementation (splitmix64.c, Vigna 2015).
        let published =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(drawn, published);
        assert_eq!(drawn, [0, 1, 2].map(|k| mix(1_234_567, k)));
    }
}
