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
    use super::*;

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
