//! A compact histogram, for collections in which most histograms have few values.

use crate::Histogram;

/// Maximum number of values that are stored individually.
const MAX_SINGLE: usize = 8;

/// A [`Histogram`] that takes only 72 octets for up to eight values. A receiver of 100,000 flows
/// has one for each, and most flows are short.
///
/// ```
/// let mut values = squall_stats::Sparse::new();
/// (1..=9).for_each(|value| values.record(value));
/// assert_eq!((values.len(), values.histogram().max()), (9, 9));
/// ```
#[derive(Clone, Debug)]
pub struct Sparse(Values);

#[derive(Clone, Debug)]
enum Values {
    Few([u64; MAX_SINGLE], u8),
    Many(Box<Histogram>),
}

impl Sparse {
    pub const fn new() -> Self {
        Self(Values::Few([0; MAX_SINGLE], 0))
    }

    #[inline]
    pub fn record(&mut self, value: u64) {
        match &mut self.0 {
            Values::Many(histogram) => histogram.record(value),
            Values::Few(values, n) if usize::from(*n) < MAX_SINGLE => {
                values[usize::from(*n)] = value;
                *n += 1;
            }
            Values::Few(..) => {
                let mut histogram = Box::new(self.histogram());
                histogram.record(value);
                self.0 = Values::Many(histogram);
            }
        }
    }

    pub fn len(&self) -> u64 {
        match &self.0 {
            Values::Few(_, n) => u64::from(*n),
            Values::Many(histogram) => histogram.count(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Heap usage in bytes.
    pub fn memory(&self) -> usize {
        match &self.0 {
            Values::Few(..) => 0,
            Values::Many(histogram) => size_of::<Histogram>() + histogram.memory(),
        }
    }

    pub fn histogram(&self) -> Histogram {
        match &self.0 {
            Values::Many(histogram) => histogram.as_ref().clone(),
            Values::Few(values, n) => {
                let mut histogram = Histogram::new();
                values[..usize::from(*n)].iter().for_each(|value| histogram.record(*value));
                histogram
            }
        }
    }
}

impl Default for Sparse {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_and_many_values_count_as_in_a_histogram() {
        let (mut sparse, mut histogram) = (Sparse::new(), Histogram::new());
        for value in (0..20u64).map(|k| k * k * 977) {
            assert_eq!(sparse.histogram(), histogram);
            assert_eq!(
                (sparse.len(), sparse.is_empty()),
                (histogram.count(), histogram.is_empty())
            );
            sparse.record(value);
            histogram.record(value);
        }
        assert_eq!(size_of::<Sparse>(), 72);
    }
}
