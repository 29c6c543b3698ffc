//! Frame lengths by index.

use std::sync::Arc;

use squall_units::{below, mix};

use crate::rng::Alias;

/// The law of frame lengths, in octets without FCS.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes(pub(crate) Kind);

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    Fixed(u32),
    /// These lengths in order, repeated.
    List(Arc<[u32]>),
    Uniform {
        min: u32,
        count: u64,
        seed: u64,
    },
    Drawn {
        sizes: Arc<[u32]>,
        alias: Alias,
        seed: u64,
    },
}

impl Sizes {
    pub fn fixed(len: u32) -> Self {
        Self(Kind::Fixed(len))
    }

    /// Lengths in the order of `sizes`, repeated.
    ///
    /// # Panics
    /// If `sizes` is empty.
    pub fn list(sizes: impl Into<Arc<[u32]>>) -> Self {
        let sizes = sizes.into();
        assert!(!sizes.is_empty(), "a list of sizes was checked not to be empty");
        Self(if sizes.len() == 1 { Kind::Fixed(sizes[0]) } else { Kind::List(sizes) })
    }

    pub fn uniform(min: u32, max: u32, seed: u64) -> Self {
        Self(Kind::Uniform { min, count: u64::from(max - min) + 1, seed })
    }

    /// Random lengths, in proportion to weights.
    ///
    /// # Panics
    /// If no weight is above 0.
    pub fn weighted(weights: &[(u32, f64)], seed: u64) -> Self {
        let alias = Alias::new(&weights.iter().map(|w| w.1).collect::<Vec<_>>());
        Self(Kind::Drawn { sizes: weights.iter().map(|w| w.0).collect(), alias, seed })
    }

    /// Whole lengths in `min..=max`, from a normal distribution truncated there.
    pub fn normal(mean: f64, sd: f64, min: u32, max: u32, seed: u64) -> Self {
        let weight = |len: u32| (-0.5 * ((f64::from(len) - mean) / sd).powi(2)).exp();
        // A mean far outside would make all weights 0, so the nearest length gets the smallest
        // positive weight.
        let nearest = (mean.round().clamp(f64::from(min), f64::from(max))) as u32;
        let weights: Vec<_> = (min..=max)
            .map(|len| (len, weight(len) + if len == nearest { f64::MIN_POSITIVE } else { 0.0 }))
            .collect();
        Self::weighted(&weights, seed)
    }

    /// The length of frame `k`.
    #[inline]
    pub fn at(&self, k: u64) -> u32 {
        match &self.0 {
            Kind::Fixed(len) => *len,
            Kind::List(sizes) => sizes[(k % sizes.len() as u64) as usize],
            Kind::Uniform { min, count, seed } => min + below(mix(*seed, k), *count) as u32,
            Kind::Drawn { sizes, alias, seed } => sizes[alias.draw(mix(*seed, k))],
        }
    }

    /// The index for frame `k` in a list.
    pub(crate) fn seek(&self, k: u64) -> u64 {
        if let Kind::List(sizes) = &self.0 { k % sizes.len() as u64 } else { k }
    }

    /// The lengths of frames `k`, `k + by`, `k + 2 by` ...
    pub fn fill(&self, k: u64, by: u64, out: &mut [u32]) {
        let indices = (0..).map(|j: u64| k.wrapping_add(j.wrapping_mul(by)));
        let places = out.iter_mut().zip(indices);
        match &self.0 {
            Kind::Drawn { sizes, alias, seed } => {
                places.for_each(|(len, k)| *len = sizes[alias.draw(mix(*seed, k))])
            }
            _ => places.for_each(|(len, k)| *len = self.at(k)),
        }
    }

    /// The length, if all frames have the same.
    #[inline]
    pub fn only(&self) -> Option<u32> {
        if let Kind::Fixed(len) = self.0 { Some(len) } else { None }
    }

    pub fn range(&self) -> (u32, u32) {
        let ends =
            |sizes: &[u32]| (*sizes.iter().min().unwrap_or(&0), *sizes.iter().max().unwrap_or(&0));
        match &self.0 {
            Kind::Fixed(len) => (*len, *len),
            Kind::List(sizes) | Kind::Drawn { sizes, .. } => ends(sizes),
            Kind::Uniform { min, count, .. } => (*min, min + (count - 1) as u32),
        }
    }

    /// Mean length in octets without FCS.
    pub fn mean(&self) -> f64 {
        match &self.0 {
            Kind::Fixed(len) => f64::from(*len),
            Kind::List(sizes) => {
                sizes.iter().map(|&s| f64::from(s)).sum::<f64>() / sizes.len() as f64
            }
            Kind::Uniform { min, count, .. } => f64::from(*min) + (*count - 1) as f64 / 2.0,
            // A sample is exact enough for planning, because there are few distinct lengths or
            // their distribution is smooth.
            Kind::Drawn { .. } => (0..4096).map(|k| f64::from(self.at(k))).sum::<f64>() / 4096.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filling_gives_the_lengths_of_the_frames() {
        for sizes in [
            Sizes::fixed(60),
            Sizes::list([60, 590, 1514]),
            Sizes::uniform(60, 100, 3),
            Sizes::weighted(&[(60, 7.0), (590, 4.0), (1514, 1.0)], 3),
        ] {
            let mut out = [0; 64];
            sizes.fill(1000, 3, &mut out);
            (0..64).for_each(|j| assert_eq!(out[j as usize], sizes.at(1000 + 3 * j)));
        }
    }

    #[test]
    fn normal_sizes_stay_within_their_range_and_near_their_mean() {
        let sizes = Sizes::normal(500.0, 100.0, 60, 1514, 9);
        let drawn: Vec<u32> = (0..10_000).map(|k| sizes.at(k)).collect();
        assert!(drawn.iter().all(|&s| (60..=1514).contains(&s)));
        let mean = drawn.iter().map(|&s| f64::from(s)).sum::<f64>() / 10_000.0;
        assert!((mean - 500.0).abs() < 5.0, "{mean}");
        assert_eq!(Sizes::normal(1e9, 1.0, 60, 100, 9).at(0), 100);
    }
}
