//! A histogram for the many of whom most see few values.

use crate::Histogram;

/// Values that are kept one by one at first.
const FEW: usize = 8;

/// Values as a [`Histogram`] counts them, in 72 octets as long as there are at most eight: a
/// receiver of a hundred thousand flows has one for each, and most flows are short.
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
    Few([u64; FEW], u8),
    Many(Box<Histogram>),
}

impl Sparse {
    pub const fn new() -> Self {
        Self(Values::Few([0; FEW], 0))
    }

    #[inline]
    pub fn record(&mut self, value: u64) {
        match &mut self.0 {
            Values::Many(histogram) => histogram.record(value),
            Values::Few(values, n) if usize::from(*n) < FEW => {
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

    /// Octets on the heap.
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
    fn few_and_many_count_as_a_histogram_does() {
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
