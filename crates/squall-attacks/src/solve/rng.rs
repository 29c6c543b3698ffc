//! Pseudorandom numbers from a seed.

use squall_units::mix;

/// A sequence of numbers, determined by the seed.
#[derive(Clone, Debug)]
pub(super) struct Rng {
    seed: u64,
    drawn: u64,
}

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Rng { seed, drawn: 0 }
    }

    pub(super) fn next(&mut self) -> u64 {
        self.drawn += 1;
        mix(self.seed, self.drawn)
    }

    /// A number below `count`, or 0 if `count` is 0.
    pub(super) fn below(&mut self, count: usize) -> usize {
        match count {
            0 => 0,
            _ => (self.next() % count as u64) as usize,
        }
    }

    pub(super) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// Random lower-case letters.
    pub(super) fn letters(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| b'a' + self.below(26) as u8).collect()
    }
}
