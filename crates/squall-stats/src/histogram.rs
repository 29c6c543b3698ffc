//! A log-linear histogram like HdrHistogram: each octave has 128 equal bins.

/// Number of bins per octave, the inverse of the largest relative error.
const BINS: usize = 128;
/// Octave 0 holds 0..128, octave k the values from 64·2^k to twice that; 57 is the last octave of a
/// `u64`.
const OCTAVES: usize = 58;
/// The number of the top bit of octave 0, as [`place`] has it.
const FIRST: usize = 6;
/// Beyond all bins, so that one comparison finds missing octaves.
const NO_BLOCK: u8 = u8::MAX;

/// Counts of values. Values below 256 are exact, larger values within 1/128; count, minimum,
/// maximum, sum and sum of squares are exact.
///
/// Memory grows by octaves (1 KiB) as values occur: none for an unused histogram, four or five
/// octaves for the delays of a quiet link.
///
/// ```
/// let mut h = squall_stats::Histogram::new();
/// for delay_ns in [4_000, 4_100, 5_000, 90_000] {
///     h.record(delay_ns);
/// }
/// assert_eq!((h.min(), h.max(), h.mean()), (4_000, 90_000, 25_775.0));
/// assert_eq!(h.quantile(0.5), 4_127); // the highest value that shares a bin with 4,100
/// ```
#[derive(PartialEq, Eq)]
pub struct Histogram {
    /// For each octave, at the number of the top bit of its values, the index of its bins in `bins`
    /// in units of `BINS`; [`NO_BLOCK`]: no bins yet. 64 entries, so that a number of a bit is in
    /// bounds.
    block_of: [u8; 64],
    bins: Vec<u64>,
    count: u64,
    /// `u64::MAX` while the histogram is empty.
    min: u64,
    max: u64,
    sum: u128,
    /// Saturates, for example after 2^48 values of 18 minutes each; `stddev` then uses the bins.
    sum_of_squares: u128,
}

impl Histogram {
    pub const fn new() -> Self {
        Self {
            block_of: [NO_BLOCK; 64],
            bins: Vec::new(),
            count: 0,
            min: u64::MAX,
            max: 0,
            sum: 0,
            sum_of_squares: 0,
        }
    }

    #[inline]
    pub fn record(&mut self, value: u64) {
        let (top, bin) = place(value);
        let at = self.index(top, bin);
        let Some(count) = self.bins.get_mut(at) else { return self.record_first(value) };
        *count += 1;
        self.count += 1;
        // Branches, because most values change neither, and then nothing is stored.
        if value < self.min {
            self.min = value;
        }
        if value > self.max {
            self.max = value;
        }
        self.sum += u128::from(value);
        let square = u128::from(value) * u128::from(value);
        let (sum, overflows) = self.sum_of_squares.overflowing_add(square);
        self.sum_of_squares = sum;
        if overflows {
            self.saturate();
        }
    }

    /// Records the first value of an octave.
    #[cold]
    fn record_first(&mut self, value: u64) {
        self.grow(place(value).0);
        self.record(value);
    }

    #[cold]
    fn saturate(&mut self) {
        self.sum_of_squares = u128::MAX;
    }

    /// Records `values` as a batch. This takes less than half the time of single values, and still
    /// less if adjacent values are equal.
    #[inline]
    pub fn record_all(&mut self, values: &[u64]) {
        let Some(&first) = values.first() else { return };
        let (mut min, mut max, mut sum, mut squares) = (first, first, 0u64, 0u64);
        // Adjacent values usually share a bin. Counting them together avoids a dependency through
        // memory for each value.
        let (mut value, mut bin, mut in_bin) = (first, place(first), 0);
        for &v in values {
            sum = sum.wrapping_add(v);
            squares = squares.wrapping_add(v.wrapping_mul(v));
            if v != value {
                value = v;
                min = min.min(v);
                max = max.max(v);
                let at = place(v);
                if at != bin {
                    *self.bin_at(bin) += in_bin;
                    (bin, in_bin) = (at, 0);
                }
            }
            in_bin += 1;
        }
        *self.bin_at(bin) += in_bin;
        self.count += values.len() as u64;
        self.min = self.min.min(min);
        self.max = self.max.max(max);
        // The squares of 256 values below 2^28 fit in 64 bits, and so does the sum of 256 values
        // below 2^56.
        let few = values.len() <= 256;
        self.sum += match few && max >> 56 == 0 {
            true => u128::from(sum),
            false => values.iter().map(|&v| u128::from(v)).sum(),
        };
        let squares = match few && max >> 28 == 0 {
            true => u128::from(squares),
            false => values
                .iter()
                .fold(0, |sum: u128, &v| sum.saturating_add(u128::from(v) * u128::from(v))),
        };
        self.sum_of_squares = self.sum_of_squares.saturating_add(squares);
    }

    /// Records `n` values, evenly spaced from `first` to `last`. If they share a bin, the time does
    /// not depend on `n`. Sum and sum of squares are those of the exact values, rounded down once.
    #[inline]
    pub fn record_evenly(&mut self, first: u64, last: u64, n: u64) {
        if n < 2 {
            return self.record_n(first, n);
        }
        let (low, high) = (first.min(last), first.max(last));
        let span = high - low;
        if place(low) == place(high) {
            *self.bin_mut(low) += n;
        } else {
            self.count_evenly(low, span, n);
        }
        self.count += n;
        self.min = self.min.min(low);
        self.max = self.max.max(high);
        let (low, n) = (u128::from(low), u128::from(n));
        self.sum += n * low + n * u128::from(span) / 2;
        // The sum of the squares of low + span·j/(n - 1) for j from 0 to n - 1. Small numbers avoid
        // a 128-bit division.
        let (part, of) = (n * (2 * n - 1), 6 * (n - 1));
        let spread = match u128::from(span) * u128::from(span) {
            square if span < 1 << 22 && n <= 256 => u128::from((square * part) as u64 / of as u64),
            square => square
                .checked_mul(part)
                .map_or((square / of).saturating_mul(part), |product| product / of),
        };
        let squares = (low * low)
            .saturating_mul(n)
            .saturating_add((low * u128::from(span)).saturating_mul(n));
        self.sum_of_squares = self.sum_of_squares.saturating_add(squares).saturating_add(spread);
    }

    /// Adds `low + span·j/(n - 1)`, rounded down, to the bins.
    fn count_evenly(&mut self, low: u64, span: u64, n: u64) {
        let (step, rest) = (span / (n - 1), span % (n - 1));
        let (mut value, mut over) = (low, 0);
        let (mut last, mut seen) = (place(low), 0);
        for _ in 0..n {
            let at = place(value);
            if at != last {
                *self.bin_at(last) += seen;
                (last, seen) = (at, 0);
            }
            seen += 1;
            over += rest;
            let carry = over >= n - 1;
            over -= if carry { n - 1 } else { 0 };
            // After the last value, which may be the largest number, the addition may wrap.
            value = value.wrapping_add(step + u64::from(carry));
        }
        *self.bin_at(last) += seen;
    }

    /// Records `value` `n` times.
    #[inline]
    pub fn record_n(&mut self, value: u64, n: u64) {
        if n == 0 {
            return;
        }
        *self.bin_mut(value) += n;
        self.count += n;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.sum += u128::from(value) * u128::from(n);
        let squares = (u128::from(value) * u128::from(value)).saturating_mul(u128::from(n));
        self.sum_of_squares = self.sum_of_squares.saturating_add(squares);
    }

    /// A histogram of counts that another program made with the same bins: (bin, count), where bin
    /// 128·k + j is bin j of octave k. The sum of squares is computed from the bins.
    pub fn from_bins(
        bins: impl Iterator<Item = (usize, u64)>,
        min: u64,
        max: u64,
        sum: u64,
    ) -> Self {
        let mut all = Self::new();
        for (bin, n) in bins.filter(|b| b.0 < OCTAVES * BINS) {
            let (lower, upper) = edges(bin / BINS, bin % BINS);
            let middle = u128::from(lower + (highest(upper) - lower) / 2);
            *all.bin_at((bin / BINS + FIRST, bin % BINS)) += n;
            all.count += n;
            all.sum_of_squares = all.sum_of_squares.saturating_add(middle * middle * u128::from(n));
        }
        if all.count > 0 {
            (all.min, all.max, all.sum) = (min, max, sum.into());
        }
        all
    }

    /// Merges the values of `other`.
    pub fn merge(&mut self, other: &Self) {
        for octave in other.octaves() {
            let bins = self.octave_mut(octave);
            bins.iter_mut().zip(other.octave(octave)).for_each(|(bin, added)| *bin += added);
        }
        self.count += other.count;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum += other.sum;
        self.sum_of_squares = self.sum_of_squares.saturating_add(other.sum_of_squares);
    }

    /// The values recorded since `earlier`, a previous copy of this histogram. For percentiles of
    /// an interval.
    ///
    /// Count, mean and standard deviation are exact. The minimum and maximum of the interval are
    /// not stored; the result has the limits of the outermost bins, within the total's minimum and
    /// maximum.
    pub fn delta_since(&self, earlier: &Self) -> Self {
        if earlier.is_empty() {
            return self.clone();
        }
        let mut delta = Self::new();
        for octave in self.octaves() {
            let before = earlier.octave(octave);
            let grown =
                |i: usize, now: u64| now.saturating_sub(before.get(i).copied().unwrap_or(0));
            if self.octave(octave).iter().enumerate().all(|(i, &now)| grown(i, now) == 0) {
                continue;
            }
            let bins = delta.octave_mut(octave).iter_mut();
            for (i, (bin, &now)) in bins.zip(self.octave(octave)).enumerate() {
                *bin = grown(i, now);
            }
        }
        delta.count = self.count.saturating_sub(earlier.count);
        delta.sum = self.sum.saturating_sub(earlier.sum);
        delta.sum_of_squares = self.sum_of_squares.saturating_sub(earlier.sum_of_squares);
        let (first, last) = (delta.bins().next(), delta.bins().last());
        if let (Some((lower, ..)), Some((_, upper, _))) = (first, last) {
            (delta.min, delta.max) = (lower.max(self.min), highest(upper).min(self.max));
        }
        delta
    }

    /// The value that a fraction `q` (0 to 1) of the values does not exceed, as the upper end of
    /// its bin, at most the maximum. 0 if the histogram is empty.
    pub fn quantile(&self, q: f64) -> u64 {
        if q <= 0.0 {
            return self.min();
        }
        let rank = ((q * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (_, upper, n) in self.bins() {
            seen += n;
            if seen >= rank {
                return highest(upper).min(self.max);
            }
        }
        self.max
    }

    /// The mean; 0 if the histogram is empty.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// The population standard deviation (divided by the count); 0 if the histogram is empty.
    pub fn stddev(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        if self.sum_of_squares == u128::MAX {
            return self.stddev_of_bins();
        }
        // Integers until the end: in floating point, the two terms would cancel for large values
        // such as nanoseconds since an epoch. With sum = n·mean + rest, sum²/n = n·mean² +
        // 2·mean·rest + rest²/n.
        let n = u128::from(self.count);
        let (mean, rest) = (self.sum / n, self.sum % n);
        let whole =
            self.sum_of_squares.saturating_sub(n * mean * mean).saturating_sub(2 * mean * rest);
        ((whole as f64 - rest as f64 / n as f64 * rest as f64).max(0.0) / n as f64).sqrt()
    }

    /// The minimum; 0 if the histogram is empty.
    pub fn min(&self) -> u64 {
        if self.count == 0 { 0 } else { self.min }
    }

    /// The maximum; 0 if the histogram is empty.
    pub fn max(&self) -> u64 {
        self.max
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn sum(&self) -> u128 {
        self.sum
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Nonempty bins in ascending order: (lowest value, highest value + 1, count). The last
    /// possible bin ends at `u64::MAX`.
    pub fn bins(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.octaves().flat_map(move |octave| {
            self.octave(octave).iter().enumerate().filter(|(_, n)| **n > 0).map(move |(i, &n)| {
                let (lower, upper) = edges(octave, i);
                (lower, upper, n)
            })
        })
    }

    /// Heap usage in bytes.
    pub fn memory(&self) -> usize {
        self.bins.capacity() * size_of::<u64>()
    }

    /// Removes all values but keeps the memory.
    pub fn clear(&mut self) {
        let (block_of, mut bins) = (self.block_of, std::mem::take(&mut self.bins));
        bins.fill(0);
        *self = Self { block_of, bins, ..Self::new() };
    }

    #[inline]
    fn bin_mut(&mut self, value: u64) -> &mut u64 {
        self.bin_at(place(value))
    }

    #[inline]
    fn bin_at(&mut self, (top, bin): (usize, usize)) -> &mut u64 {
        let mut at = self.index(top, bin);
        if at >= self.bins.len() {
            at = self.grow(top) + bin;
        }
        &mut self.bins[at]
    }

    /// The index in `bins`; beyond its end if the octave has no bins yet.
    #[inline]
    fn index(&self, top: usize, bin: usize) -> usize {
        usize::from(self.block_of[top % 64]) * BINS + bin
    }

    /// Adds an octave. Returns the index in `bins` of its first bin.
    #[cold]
    fn grow(&mut self, top: usize) -> usize {
        let at = self.bins.len();
        // Exactly that number: with thousands of streams, the doubling by `resize` would waste most
        // of the memory.
        self.bins.reserve_exact(BINS);
        self.bins.resize(at + BINS, 0);
        self.block_of[top] = (at / BINS) as u8;
        at
    }

    fn octaves(&self) -> impl Iterator<Item = usize> + use<> {
        let block_of = self.block_of;
        (0..OCTAVES).filter(move |&octave| block_of[octave + FIRST] != NO_BLOCK)
    }

    /// The octave's bins; empty if the octave was never used.
    fn octave(&self, octave: usize) -> &[u64] {
        match self.block_of[octave + FIRST] {
            NO_BLOCK => &[],
            block => &self.bins[usize::from(block) * BINS..][..BINS],
        }
    }

    /// The octave's bins, which are added if it was never used.
    fn octave_mut(&mut self, octave: usize) -> &mut [u64] {
        let at = match self.block_of[octave + FIRST] {
            NO_BLOCK => self.grow(octave + FIRST),
            block => usize::from(block) * BINS,
        };
        &mut self.bins[at..][..BINS]
    }

    fn stddev_of_bins(&self) -> f64 {
        let mean = self.mean();
        let squares = |(lower, upper, n): (u64, u64, u64)| {
            let distance = (lower as f64 + (upper - lower) as f64 / 2.0) - mean;
            distance * distance * n as f64
        };
        (self.bins().map(squares).sum::<f64>() / self.count as f64).sqrt()
    }
}

/// Lowest value and highest value + 1 of a bin.
fn edges(octave: usize, bin: usize) -> (u64, u64) {
    let shift = octave.saturating_sub(1);
    let first = if octave == 0 { bin } else { BINS + bin };
    let lower = (first as u64) << shift;
    (lower, lower.saturating_add(1 << shift))
}

/// The highest value of a bin that ends at `upper`; the last possible bin includes `u64::MAX`.
fn highest(upper: u64) -> u64 {
    if upper == u64::MAX { upper } else { upper - 1 }
}

/// Octave, as the number of its top bit, and bin of a value.
#[inline]
fn place(value: u64) -> (usize, usize) {
    // `| 127` gives all values of octave 0 the same top bit, which avoids a branch.
    let top = (value | 127).ilog2();
    (top as usize, (value >> top.saturating_sub(7)) as usize % BINS)
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Clone for Histogram {
    fn clone(&self) -> Self {
        Self { bins: self.bins.clone(), ..*self }
    }

    /// Keeps the allocated memory: a snapshot every 100 ms allocates only once.
    fn clone_from(&mut self, source: &Self) {
        let mut bins = std::mem::take(&mut self.bins);
        bins.clone_from(&source.bins);
        *self = Self { bins, ..*source };
    }
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count)
            .field("min", &self.min())
            .field("p50", &self.quantile(0.5))
            .field("p99", &self.quantile(0.99))
            .field("max", &self.max)
            .field("bins", &self.bins().collect::<Vec<_>>())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn of(values: &[u64]) -> Histogram {
        let mut h = Histogram::new();
        values.iter().for_each(|&v| h.record(v));
        h
    }

    /// Values of all magnitudes with equal probability, up to an hour in nanoseconds and above.
    fn value() -> impl Strategy<Value = u64> {
        (any::<u64>(), 0..64u32).prop_map(|(v, shift)| v >> shift)
    }

    #[test]
    fn a_batch_counts_as_its_values_one_by_one() {
        for values in [
            vec![],
            vec![5],
            (0..200).map(|i| i * i).collect::<Vec<u64>>(),
            vec![1, u64::MAX, 3],
            vec![1 << 28, 1 << 55, 3],
        ] {
            let (mut all, mut each) = (Histogram::new(), Histogram::new());
            all.record_all(&values);
            values.iter().for_each(|&v| each.record(v));
            assert_eq!(all, each);
        }
    }

    #[test]
    fn evenly_spaced_values_count_as_one_by_one() {
        for (first, last, n) in [
            (5, 5, 1),
            (5, 900, 0),
            (1_000_000, 1_000_063, 64),
            (70_000, 3, 64),
            (0, 1 << 40, 63),
            (1 << 50, (1 << 50) + 7, 64),
            (0, u64::MAX, 3),
            (3, 4, 64),
        ] {
            let (mut all, mut each) = (Histogram::new(), Histogram::new());
            all.record_evenly(first, last, n);
            let (low, span) = (u128::from(first.min(last)), u128::from(first.abs_diff(last)));
            (0..u128::from(n))
                .for_each(|j| each.record((low + span * j / u128::from(n - 1).max(1)) as u64));
            assert_eq!(all.bins().collect::<Vec<_>>(), each.bins().collect::<Vec<_>>());
            assert_eq!((all.count(), all.min(), all.max()), (each.count(), each.min(), each.max()));
            assert!(
                all.sum().abs_diff(each.sum()) <= u128::from(n),
                "{} {}",
                all.sum(),
                each.sum()
            );
            let (a, b) = (all.sum_of_squares as f64, each.sum_of_squares as f64);
            // The reference rounds the other values down before squaring.
            assert!(
                (a - b).abs() <= 2.0 * (first.max(last) as f64 + 1.0) * n as f64,
                "{first} {last} {n}: {a} {b}"
            );
        }
    }

    #[test]
    fn every_value_is_in_its_bin_and_no_bin_is_wider_than_a_128th() {
        let near_edges = (0..64)
            .flat_map(|bit| (0..4).map(move |d| (1u64 << bit).wrapping_add(d).wrapping_sub(2)));
        for v in near_edges.chain(0..1000).chain([u64::MAX, u64::MAX - 1]) {
            assert_eq!((of(&[v]).quantile(0.5), of(&[v]).min()), (v, v));
            let (lower, upper, n) = of(&[v]).bins().next().unwrap();
            assert!(
                n == 1 && lower <= v && (v < upper || v == u64::MAX),
                "{v} in {lower}..{upper}"
            );
            assert!(
                upper - lower == 1 || (upper - lower) as f64 <= lower as f64 / 128.0,
                "{v} in {lower}..{upper}"
            );
        }
    }

    #[test]
    fn bins_meet_without_gap_or_overlap() {
        let mut expected = 0;
        for octave in 0..OCTAVES {
            for bin in 0..BINS {
                let (lower, upper) = edges(octave, bin);
                assert_eq!(lower, expected);
                expected = upper;
            }
        }
        assert_eq!(expected, u64::MAX);
    }

    #[test]
    fn an_unused_histogram_is_small_and_a_used_one_grows_by_the_octave() {
        assert!(size_of::<Histogram>() <= 160, "{}", size_of::<Histogram>());
        let h = of(&[1000, 1010, 1020]);
        assert_eq!((Histogram::new().bins.capacity(), h.bins.capacity()), (0, BINS));
    }

    #[test]
    fn nothing_recorded_is_all_zeros() {
        let h = Histogram::new();
        assert_eq!((h.min(), h.max(), h.quantile(0.5), h.mean(), h.stddev()), (0, 0, 0, 0.0, 0.0));
        assert_eq!(h.bins().count(), 0);
    }

    #[test]
    fn a_small_spread_far_from_zero_keeps_its_deviation() {
        let epoch = 1_763_735_249_000_000_000;
        let h = of(&[epoch - 10, epoch + 10, epoch - 10, epoch + 10]);
        assert_eq!(h.stddev(), 10.0);
    }

    #[test]
    fn squares_beyond_128_bits_still_give_a_deviation() {
        let mut h = of(&[0, 0]);
        h.record_n(u64::MAX, 2);
        let half = u64::MAX as f64 / 2.0;
        assert!((h.stddev() / half - 1.0).abs() < 1.0 / 128.0, "{}", h.stddev());
    }

    #[test]
    fn clear_forgets_and_clone_from_copies() {
        let mut h = of(&[1, 1_000_000]);
        h.clear();
        assert!(h.is_empty() && h.bins().count() == 0 && h.min() == 0);
        h.record(7);
        assert_eq!((h.min(), h.max(), h.count()), (7, 7, 1));
        let mut copy = of(&[5; 20]);
        copy.clone_from(&h);
        assert_eq!(copy, h);
    }

    proptest! {
        #[test]
        fn quantiles_are_those_of_the_sorted_values_within_a_128th(
            mut values in vec(value(), 1..300), q in prop_oneof![0.0..=1.0, Just(0.5), Just(0.999), Just(1.0)],
        ) {
            let h = of(&values);
            values.sort_unstable();
            let q: f64 = q;
            let rank = ((q * values.len() as f64).ceil() as usize).clamp(1, values.len());
            let exact = values[rank - 1];
            let got = h.quantile(q);
            prop_assert!(got >= exact && got - exact <= exact / 128, "{got} for {exact}");
            prop_assert_eq!((h.min(), h.max()), (values[0], values[values.len() - 1]));
            prop_assert_eq!(h.count(), values.len() as u64);
            prop_assert_eq!(h.sum(), values.iter().map(|&v| u128::from(v)).sum::<u128>());
            prop_assert_eq!(h.quantile(1.0), h.max());
            prop_assert_eq!(h.bins().map(|b| b.2).sum::<u64>(), h.count());
            prop_assert!(h.bins().is_sorted());
        }

        #[test]
        fn mean_and_deviation_are_those_of_the_values(values in vec(0..1u64 << 40, 1..300)) {
            let n = values.len() as f64;
            let mean = values.iter().map(|&v| v as f64).sum::<f64>() / n;
            let deviation = (values.iter().map(|&v| (v as f64 - mean).powi(2)).sum::<f64>() / n).sqrt();
            let h = of(&values);
            prop_assert!((h.mean() - mean).abs() <= mean * 1e-12);
            prop_assert!((h.stddev() - deviation).abs() <= deviation * 1e-9 + 1e-3, "{} {deviation}", h.stddev());
        }

        #[test]
        fn merging_is_recording_both(a in vec(value(), 0..100), b in vec(value(), 0..100)) {
            let mut merged = of(&a);
            merged.merge(&of(&b));
            let both = of(&[a, b].concat());
            prop_assert!(merged.bins().eq(both.bins()));
            prop_assert_eq!((merged.count(), merged.min(), merged.max()), (both.count(), both.min(), both.max()));
            prop_assert_eq!((merged.sum(), merged.stddev()), (both.sum(), both.stddev()));
        }

        #[test]
        fn recording_n_is_recording_n_times(v in value(), n in 0..50u64) {
            let mut h = Histogram::new();
            h.record_n(v, n);
            prop_assert_eq!(h, of(&vec![v; n as usize]));
        }

        #[test]
        fn a_delta_holds_the_values_recorded_since(a in vec(0..1u64 << 50, 0..100), b in vec(0..1u64 << 50, 0..100)) {
            let earlier = of(&a);
            let mut now = earlier.clone();
            b.iter().for_each(|&v| now.record(v));
            let (delta, expected) = (now.delta_since(&earlier), of(&b));
            prop_assert!(delta.bins().eq(expected.bins()));
            prop_assert_eq!((delta.count(), delta.sum()), (expected.count(), expected.sum()));
            prop_assert_eq!(delta.stddev(), expected.stddev());
            prop_assert!(delta.min() <= expected.min() && delta.max() >= expected.max());
            prop_assert!(delta.max() - expected.max() <= expected.max() / 128);
        }
    }
}
