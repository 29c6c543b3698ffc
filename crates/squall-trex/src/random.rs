//! TRex's random numbers: a linear congruential generator with 32 bits of state, of which 15 are
//! used.

/// Number of packets after which Squall's copy of an endless random sequence repeats; TRex's own
/// repeats after 2^31 draws.
pub(crate) const REPEATS: usize = 1 << 16;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Congruence(u32);

impl Congruence {
    /// A generator seeded for a variable with its own seed.
    pub fn new(seed: u64) -> Self {
        Self(seed as u32)
    }

    /// A generator seeded for the random variables of a stream on TRex's first core.
    pub fn of_stream(seed: u32) -> Self {
        Self(seed.wrapping_mul(514_229))
    }

    fn draw15(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(214_013).wrapping_add(2_531_011);
        u64::from((self.0 >> 16) & 0x7fff)
    }

    fn draw31(&mut self) -> u64 {
        let high = self.draw15();
        ((high << 16) + self.draw15()) & 0xffff_ffff
    }

    /// Draws a number within `min..=max` for a variable with a length of `octets`.
    pub fn within(&mut self, octets: u8, min: u64, max: u64) -> u64 {
        let count = (max - min).wrapping_add(1);
        let drawn = match octets {
            1 | 2 => self.draw15(),
            4 => self.draw31(),
            _ => {
                let high = self.draw31();
                (high << 32).wrapping_add(self.draw31())
            }
        };
        min.wrapping_add(if count == 0 { drawn } else { drawn % count })
    }

    /// Draws an index below `count`.
    pub fn below(&mut self, count: usize) -> usize {
        self.draw15() as usize % count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_those_of_the_congruence() {
        // 214013 * 1 + 2531011 = 2745024; bits 16 to 30 are 41.
        assert_eq!(Congruence::new(1).draw15(), 41);
        let mut one = Congruence::new(4661);
        let values: Vec<u64> = (0..1000).map(|_| one.within(4, 10, 20)).collect();
        assert!(values.iter().all(|value| (10..=20).contains(value)));
        assert_eq!(Congruence::new(7).within(8, 0, u64::MAX), {
            let mut by_hand = Congruence::new(7);
            let high = by_hand.draw31();
            (high << 32).wrapping_add(by_hand.draw31())
        });
    }
}
