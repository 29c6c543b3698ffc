//! The values of a variable: each is determined by the frame's index.

use std::sync::Arc;

use squall_units::{below, mix};

use crate::rng::{Alias, draw};

/// The law of a variable; values have up to 128 bits.
#[derive(Clone, Debug, PartialEq)]
pub enum Law {
    /// `first + ((start + k) mod count) · step`, modulo 2^128; `count` 0 means 2^64.
    Step { first: u128, step: i128, count: u64, start: u64 },
    /// `values[(start + k) mod len]`.
    List { values: Arc<[u128]>, start: u64 },
    /// Uniform over `min .. min + count`; `count` 0 means 2^64. With `limit`, the sequence repeats
    /// after that number of values.
    Random { min: u128, count: u64, limit: Option<u64>, seed: u64 },
    /// As [`Law::Random`], with up to 128 bits; `count` 0 means 2^128.
    RandomWide { min: u128, count: u128, limit: Option<u64>, seed: u64 },
    /// Random values, in proportion to weights.
    Weighted { values: Arc<[u128]>, alias: Alias, seed: u64 },
    /// A value that the sender supplies for each frame: a column of those that a
    /// [`Supply`](crate::Supply) draws, below [`COLUMNS`](crate::COLUMNS). It is not determined by
    /// the frame's index; without a supply it is 0.
    Supplied { column: usize },
}

impl Law {
    /// A law with weights.
    ///
    /// # Panics
    /// If no weight is above 0.
    pub fn weighted(values: &[(u128, u32)], seed: u64) -> Self {
        let alias = Alias::new(&values.iter().map(|v| f64::from(v.1)).collect::<Vec<_>>());
        Self::Weighted { values: values.iter().map(|v| v.0).collect(), alias, seed }
    }

    /// The number of values after which the sequence repeats; `None` if it does not.
    pub fn period(&self) -> Option<u64> {
        match self {
            Self::Step { count: 0, .. } | Self::Weighted { .. } | Self::Supplied { .. } => None,
            Self::Step { count, .. } => Some(*count),
            Self::List { values, .. } => Some(values.len() as u64),
            Self::Random { limit, .. } | Self::RandomWide { limit, .. } => *limit,
        }
    }

    /// The number of values that the law skips at its start.
    pub fn start(&self) -> u64 {
        match self {
            Self::Step { start, .. } | Self::List { start, .. } => *start,
            _ => 0,
        }
    }

    /// Value `k`.
    #[inline]
    pub fn at(&self, k: u64) -> u128 {
        match self {
            Self::Step { first, step, count, start } => {
                let i = start.wrapping_add(k);
                let i = if *count == 0 { i } else { sum_mod(*start, k, *count) };
                first.wrapping_add(step.wrapping_mul(i128::from(i)) as u128)
            }
            Self::List { values, start } => {
                let n = values.len() as u64;
                values[sum_mod(*start, k, n) as usize]
            }
            Self::Random { min, count, limit, seed } => {
                let k = limit.map_or(k, |limit| k % limit);
                min.wrapping_add(u128::from(below(draw(*seed, k), *count)))
            }
            Self::RandomWide { min, count, limit, seed } => {
                let k = limit.map_or(k, |limit| k % limit);
                min.wrapping_add(below_wide([mix(*seed, 2 * k), mix(*seed, 2 * k + 1)], *count))
            }
            Self::Weighted { values, alias, seed } => values[alias.draw(mix(*seed, k))],
            Self::Supplied { .. } => 0,
        }
    }

    /// The largest value, to check it against the field's width.
    pub fn max(&self) -> u128 {
        let largest = |values: &[u128]| values.iter().copied().max().unwrap_or(0);
        match self {
            Self::Step { first, step, count, .. } => {
                let last = i128::from(count.wrapping_sub(1));
                (*first).max(first.wrapping_add(step.wrapping_mul(last) as u128))
            }
            Self::List { values, .. } | Self::Weighted { values, .. } => largest(values),
            Self::Random { min, count, .. } => min.wrapping_add(u128::from(count.wrapping_sub(1))),
            Self::RandomWide { min, count, .. } => min.wrapping_add(count.wrapping_sub(1)),
            // The sender draws values that fit.
            Self::Supplied { .. } => 0,
        }
    }

    /// The state of a worker that begins at value `k`, which [`Law::fill`] carries from call to
    /// call.
    pub(crate) fn seek(&self, k: u64) -> u64 {
        match self {
            Self::Step { start, count: 0, .. } => start.wrapping_add(k),
            Self::Step { start, count, .. } => sum_mod(*start, k, *count),
            Self::List { start, values } => sum_mod(*start, k, values.len() as u64),
            Self::Random { limit: Some(limit), .. }
            | Self::RandomWide { limit: Some(limit), .. } => k % limit,
            _ => k,
        }
    }

    /// Writes the low bits of every `by`-th value from `place` on. Each law has its own tight loop
    /// without division, which makes a call for one value cheap too.
    #[inline]
    pub(crate) fn fill<W: Word>(&self, place: &mut u64, by: u64, out: &mut [W]) {
        let mut i = *place;
        match self {
            Self::Step { first, step, count, .. } => {
                let (first, step) = (*first as u64, *step as u64);
                let by = if by == 1 || *count == 0 { by } else { by % count };
                let each = step.wrapping_mul(by);
                // Works in runs up to the next wrap, so that the inner loop is a single addition.
                let mut out = out;
                while !out.is_empty() {
                    let n = match (*count, by) {
                        (0, _) | (_, 0) => out.len(),
                        (count, 1) => {
                            usize::try_from(count - i).unwrap_or(usize::MAX).min(out.len())
                        }
                        (count, by) => usize::try_from((count - i).div_ceil(by))
                            .unwrap_or(usize::MAX)
                            .min(out.len()),
                    };
                    let (stretch, rest) = out.split_at_mut(n);
                    let mut v = first.wrapping_add(step.wrapping_mul(i));
                    for o in stretch {
                        *o = W::low(v);
                        v = v.wrapping_add(each);
                    }
                    // Every step except the last stays below the count.
                    i = add_mod(i.wrapping_add(by.wrapping_mul(n as u64 - 1)), by, *count);
                    out = rest;
                }
            }
            Self::List { values, .. } => {
                let n = values.len() as u64;
                let by = if by == 1 { by } else { by % n };
                for o in out {
                    *o = W::low(values[i as usize] as u64);
                    i = add_mod(i, by, n);
                }
            }
            Self::Random { min, count, limit, seed } => {
                let (min, count, seed) = (*min as u64, *count, *seed);
                let value = |i| W::low(min.wrapping_add(below(draw(seed, i), count)));
                let n = limit.unwrap_or(0);
                let by = if n == 0 || by == 1 { by } else { by % n };
                // One loop per case: a test inside would be repeated for each value.
                if n != 0 {
                    for o in out {
                        *o = value(i);
                        i = add_mod(i, by, n);
                    }
                } else if count != 0 {
                    for o in out {
                        *o = value(i);
                        i = i.wrapping_add(by);
                    }
                } else {
                    for o in out {
                        *o = W::low(min.wrapping_add(draw(seed, i)));
                        i = i.wrapping_add(by);
                    }
                }
            }
            // Their fields do not use `fill`; this arm only makes the match exhaustive.
            Self::RandomWide { .. } | Self::Supplied { .. } => {
                for o in out {
                    *o = W::low(self.at(i) as u64);
                    i = i.wrapping_add(by);
                }
            }
            Self::Weighted { values, alias, seed } => {
                for o in out {
                    *o = W::low(values[alias.draw(mix(*seed, i))] as u64);
                    i = i.wrapping_add(by);
                }
            }
        }
        *place = i;
    }
}

/// The type of a batch of values: 32 bits if they suffice, because a vector register then holds
/// twice as many.
pub(crate) trait Word: Copy {
    fn low(value: u64) -> Self;
}

impl Word for u32 {
    #[inline(always)]
    fn low(value: u64) -> Self {
        value as Self
    }
}

impl Word for u64 {
    #[inline(always)]
    fn low(value: u64) -> Self {
        value
    }
}

/// A uniform number in `0..n` from 128 random bits: the upper half of their product. `n` 0 means
/// 2^128.
fn below_wide([high, low]: [u64; 2], n: u128) -> u128 {
    if n == 0 {
        return u128::from(high) << 64 | u128::from(low);
    }
    let (high, low) = (u128::from(high), u128::from(low));
    let (n_high, n_low) = (n >> 64, n & u128::from(u64::MAX));
    let middle = ((low * n_low) >> 64)
        + ((high * n_low) & u128::from(u64::MAX))
        + ((low * n_high) & u128::from(u64::MAX));
    high * n_high + ((high * n_low) >> 64) + ((low * n_high) >> 64) + (middle >> 64)
}

/// `(a + b) mod n`, without overflow.
fn sum_mod(a: u64, b: u64, n: u64) -> u64 {
    ((u128::from(a) + u128::from(b)) % u128::from(n)) as u64
}

/// `(i + by) mod n` for `i` and `by` below `n` (or `by` = `n` = 1): wraps at most once; `n` 0 means
/// 2^64.
#[inline]
pub(crate) fn add_mod(i: u64, by: u64, n: u64) -> u64 {
    let (sum, over) = i.overflowing_add(by);
    if n != 0 && (over || sum >= n) { sum.wrapping_sub(n) } else { sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_begins_again_after_its_count() {
        let law = Law::Step { first: 1, step: 3, count: 4, start: 2 };
        assert_eq!((0..6).map(|k| law.at(k)).collect::<Vec<_>>(), [7, 10, 1, 4, 7, 10]);
        let down = Law::Step { first: 10, step: -5, count: 3, start: 0 };
        assert_eq!((0..4).map(|k| down.at(k)).collect::<Vec<_>>(), [10, 5, 0, 10]);
    }

    #[test]
    fn a_limit_makes_random_draws_repeat() {
        let law = Law::Random { min: 5, count: 1000, limit: Some(3), seed: 1 };
        let v: Vec<_> = (0..9).map(|k| law.at(k)).collect();
        assert_eq!(v[..3], v[3..6]);
        assert_ne!(v[0], v[1]);
    }

    #[test]
    fn wide_draws_reach_all_bits_and_stay_within() {
        let (min, count) = (5u128 << 120, (1u128 << 96) - 1);
        let law = Law::RandomWide { min, count, limit: None, seed: 3 };
        let drawn: Vec<u128> = (0..2000).map(|k| law.at(k) - min).collect();
        assert!(drawn.iter().all(|v| *v < count));
        assert_eq!(drawn.iter().fold(0, |a, v| a | v), (1 << 96) - 1);
        let mean = drawn.iter().map(|v| *v as f64 / count as f64).sum::<f64>() / 2000.0;
        assert!((mean - 0.5).abs() < 0.02, "{mean}");
        assert_eq!(below_wide([u64::MAX, u64::MAX], u128::MAX), u128::MAX - 1);
        assert_eq!(below_wide([1 << 63, 0], 7 << 100), 7 << 99);
        assert_ne!(Law::RandomWide { min: 0, count: 0, limit: None, seed: 3 }.at(0) >> 64, 0);
    }

    #[test]
    fn filling_equals_asking_one_by_one() {
        let laws = [
            Law::Step { first: 9, step: -2, count: 5, start: 3 },
            Law::Step { first: u128::MAX, step: 7, count: 0, start: 11 },
            Law::List { values: [3, 1, 4, 1, 5].into(), start: 2 },
            Law::Random { min: 100, count: 37, limit: None, seed: 8 },
            Law::Random { min: 0, count: 0, limit: Some(10), seed: 8 },
            Law::RandomWide { min: 1 << 100, count: 3 << 70, limit: Some(10), seed: 8 },
            Law::weighted(&[(1, 1), (2, 3)], 6),
        ];
        for law in laws {
            for (k, by) in [(0, 1), (17, 1), (1, 2), (3, 5), (2, 7), (u32::MAX.into(), 3)] {
                let mut out = [0u64; 64];
                let mut place = law.seek(k);
                let (a, b) = out.split_at_mut(40);
                law.fill(&mut place, by, a);
                law.fill(&mut place, by, b);
                for (j, v) in out.iter().enumerate() {
                    assert_eq!(*v, law.at(k + by * j as u64) as u64, "{law:?} {k} {by} {j}");
                }
            }
        }
    }
}
