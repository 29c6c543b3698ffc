//! Random numbers by index: draw `k` does not depend on earlier draws, so that workers can share a
//! stream.

use squall_units::{below, mix};

/// As [`mix`] with one multiplication (wyrand: Wang Yi 2019), for fields, because each frame pays
/// for these (ADR 0003). `seed` should come from [`mix`].
#[inline]
pub fn draw(seed: u64, k: u64) -> u64 {
    let x = seed.wrapping_add(k.wrapping_mul(0xa076_1d64_78bd_642f));
    let product = u128::from(x) * u128::from(x ^ 0xe703_7ed1_a0b4_28db);
    (product >> 64) as u64 ^ product as u64
}

/// A uniform number in 0 < x <= 1, with 53 bits. Never 0, because laws take its logarithm.
#[inline]
pub fn unit(random: u64) -> f64 {
    ((random >> 11) + 1) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// A standard normal draw (Box and Muller 1958) from index `k`.
pub fn normal(seed: u64, k: u64) -> f64 {
    let (u, v) = (unit(mix(seed, 2 * k)), unit(mix(seed, 2 * k + 1)));
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

/// Weighted draws: Walker's alias method, two lookups per draw.
#[derive(Clone, Debug, PartialEq)]
pub struct Alias {
    /// Per cell: the probability of staying in it, as a fraction of 2^32, and the alternative.
    cells: Vec<(u32, u32)>,
}

impl Alias {
    /// Builds the table.
    ///
    /// # Panics
    /// If `weights` is empty or sums to 0, which the builder has already excluded.
    pub fn new(weights: &[f64]) -> Self {
        let total: f64 = weights.iter().sum();
        assert!(total > 0.0, "weights were checked to have a sum");
        let n = weights.len();
        let mut share: Vec<f64> = weights.iter().map(|w| w / total * n as f64).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..n).partition(|&i| share[i] < 1.0);
        let mut cells = vec![(u32::MAX, 0); n];
        for (i, cell) in cells.iter_mut().enumerate() {
            cell.1 = i as u32;
        }
        while let (Some(s), Some(&l)) = (small.pop(), large.last()) {
            cells[s] = ((share[s] * 4_294_967_296.0) as u32, l as u32);
            share[l] -= 1.0 - share[s];
            if share[l] < 1.0 {
                large.pop();
                small.push(l);
            }
        }
        Self { cells }
    }

    /// Per cell: the probability of staying in it, as a fraction of 2^32, and the alternative.
    pub fn cells(&self) -> &[(u32, u32)] {
        &self.cells
    }

    #[inline]
    pub fn draw(&self, random: u64) -> usize {
        let i = below(random, self.cells.len() as u64) as usize;
        let (stay, other) = self.cells[i];
        // The low bits are sufficiently independent of the high bits, which chose the cell. Both
        // comparisons are always evaluated, because the CPU mispredicts random branches.
        let stays = ((random as u32) < stay) | (stay == u32::MAX);
        if stays { i } else { other as usize }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alias_draws_in_proportion_to_the_weights() {
        let alias = Alias::new(&[7.0, 4.0, 1.0, 0.0]);
        let mut seen = [0u32; 4];
        for k in 0..120_000 {
            seen[alias.draw(mix(1, k))] += 1;
        }
        for (got, want) in seen.iter().zip([70_000.0, 40_000.0, 10_000.0, 0.0]) {
            assert!((f64::from(*got) - want).abs() < 900.0, "{seen:?}");
        }
    }

    #[test]
    fn normal_draws_have_mean_0_and_deviation_1() {
        let n = 100_000;
        let (mut sum, mut squares) = (0.0, 0.0);
        for k in 0..n {
            let x = normal(7, k);
            sum += x;
            squares += x * x;
        }
        assert!((sum / n as f64).abs() < 0.02 && (squares / n as f64 - 1.0).abs() < 0.03);
    }
}
