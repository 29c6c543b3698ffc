//! A histogram with bins of a fixed width.

/// Counts values in equal bins from 0 on. Unlike [`crate::Histogram`], whose bins grow with the
/// values, it has a limited range.
///
/// ```
/// let mut bins = squall_stats::EqualBins::new(3, 10);
/// [0, 9, 10, 29, 30].into_iter().for_each(|value| bins.record(value));
/// assert_eq!((bins.counts(), bins.beyond()), (&[2, 1, 1][..], 1));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EqualBins {
    width: u64,
    counts: Vec<u64>,
    beyond: u64,
}

impl EqualBins {
    /// An empty histogram of `bins` bins of `width` each, from 0 on.
    ///
    /// # Panics
    /// If `width` is 0.
    pub fn new(bins: usize, width: u64) -> Self {
        assert!(width > 0, "bins are at least 1 wide");
        Self { width, counts: vec![0; bins], beyond: 0 }
    }

    #[inline]
    pub fn record(&mut self, value: u64) {
        match usize::try_from(value / self.width).ok().and_then(|bin| self.counts.get_mut(bin)) {
            Some(count) => *count += 1,
            None => self.beyond += 1,
        }
    }

    /// Merges the values of `other`.
    ///
    /// # Panics
    /// If `other` has different bins.
    pub fn merge(&mut self, other: &Self) {
        assert_eq!(
            (self.width, self.counts.len()),
            (other.width, other.counts.len()),
            "the bins are the same"
        );
        self.counts.iter_mut().zip(&other.counts).for_each(|(bin, added)| *bin += added);
        self.beyond += other.beyond;
    }

    pub fn width(&self) -> u64 {
        self.width
    }

    /// Counts by bin. Bin i has the values from i times the width to below (i + 1) times the width.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Number of values above the range of the bins.
    pub fn beyond(&self) -> u64 {
        self.beyond
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_bins_are_those_of_all_values_together() {
        let of = |values: &[u64]| {
            let mut bins = EqualBins::new(4, 7);
            values.iter().for_each(|v| bins.record(*v));
            bins
        };
        let mut merged = of(&[0, 6, 7, u64::MAX]);
        merged.merge(&of(&[27, 28]));
        assert_eq!(merged, of(&[0, 6, 7, u64::MAX, 27, 28]));
        assert_eq!((merged.counts(), merged.beyond()), (&[2, 1, 0, 1][..], 2));
    }
}
