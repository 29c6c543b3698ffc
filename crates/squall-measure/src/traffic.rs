//! Arrival patterns: rates, gaps and bursts of a flow, a source or a port.

use squall_stats::{EqualBins, Histogram, Sparse};
use squall_units::Nanos;

/// Parameters of arrival patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Interval over which peak rates are measured.
    pub interval: Nanos,
    /// Largest gap between frames of a burst.
    pub burst_gap: Nanos,
}

impl Default for Pace {
    fn default() -> Self {
        Self { interval: Nanos(100_000_000), burst_gap: Nanos(10_000) }
    }
}

/// Frames and octets (with FCS), and their arrival pattern.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    pub packets: u64,
    pub octets: u64,
    /// Times of the first and the last frame.
    pub first: Nanos,
    pub last: Nanos,
    pub peak: Peak,
    pub bursts: Bursts,
}

/// The busiest of consecutive intervals, which start at multiples of their length.
#[derive(Clone, Copy, Debug, Default)]
pub struct Peak {
    /// Counts of the busiest interval, separately by frames and by octets.
    packets: u64,
    octets: u64,
    /// End of the current interval.
    end: u64,
    now_packets: u64,
    now_octets: u64,
}

/// Groups of two or more frames, each at most [`Pace::burst_gap`] after the previous one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bursts {
    pub bursts: u64,
    /// Frames in all bursts, and in the longest.
    pub packets: u64,
    pub longest: u64,
    /// Longest time from the first to the last frame of a burst.
    pub longest_lasting: Nanos,
    /// Frames of the current burst, and its start.
    run: u64,
    begun: Nanos,
}

impl Traffic {
    /// Counts a frame of `octets` (with FCS) at `time`. Returns the gap to the previous frame; 0 if
    /// the clock stepped back.
    #[inline]
    pub fn arrive(&mut self, octets: u64, time: Nanos, pace: Pace) -> Option<u64> {
        let first = self.packets == 0;
        self.packets += 1;
        self.octets += octets;
        self.peak.arrive(octets, time, pace.interval);
        if first {
            (self.first, self.last) = (time, time);
            (self.bursts.run, self.bursts.begun) = (1, time);
            return None;
        }
        let gap = time.saturating_sub(self.last);
        self.bursts.arrive(gap, time, pace.burst_gap);
        self.last = time;
        Some(gap.0)
    }

    /// Time from the first to the last frame.
    pub fn span(&self) -> Nanos {
        self.last.saturating_sub(self.first)
    }

    /// Merges the measurements of another queue. Gaps between frames of different queues are
    /// unknown, and so are bursts and peaks that span both, so the larger value is a lower bound.
    pub fn merge(&mut self, other: &Self) {
        if other.packets == 0 {
            return;
        }
        if self.packets == 0 {
            return *self = other.clone();
        }
        self.packets += other.packets;
        self.octets += other.octets;
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
        let (own, added) = (self.peak.highest(), other.peak.highest());
        (self.peak.packets, self.peak.octets) = (own.0.max(added.0), own.1.max(added.1));
        self.bursts.bursts += other.bursts.bursts;
        self.bursts.packets += other.bursts.packets;
        self.bursts.longest = self.bursts.longest.max(other.bursts.longest);
        self.bursts.longest_lasting = self.bursts.longest_lasting.max(other.bursts.longest_lasting);
    }
}

impl Peak {
    #[inline]
    fn arrive(&mut self, octets: u64, time: Nanos, interval: Nanos) {
        if time.0 >= self.end {
            (self.packets, self.octets) = self.highest();
            (self.now_packets, self.now_octets) = (0, 0);
            let interval = interval.0.max(1);
            self.end = (time.0 / interval).saturating_add(1).saturating_mul(interval);
        }
        self.now_packets += 1;
        self.now_octets += octets;
    }

    /// Maximum number of frames, and of octets, in an interval.
    pub fn highest(&self) -> (u64, u64) {
        (self.packets.max(self.now_packets), self.octets.max(self.now_octets))
    }
}

impl Bursts {
    #[inline]
    fn arrive(&mut self, gap: Nanos, time: Nanos, most: Nanos) {
        if gap > most {
            (self.run, self.begun) = (1, time);
            return;
        }
        self.run += 1;
        let second = self.run == 2;
        self.bursts += u64::from(second);
        self.packets += 1 + u64::from(second);
        self.longest = self.longest.max(self.run);
        self.longest_lasting = self.longest_lasting.max(time.saturating_sub(self.begun));
    }
}

/// Gaps between the frames of one flow.
#[derive(Clone, Debug, Default)]
pub struct Gaps {
    values: Sparse,
    bins: Option<Box<EqualBins>>,
}

impl Gaps {
    /// Counts a gap. `bins`: empty bins, if gaps in bins are requested.
    #[inline]
    pub fn record(&mut self, gap: u64, bins: Option<&EqualBins>) {
        self.values.record(gap);
        if let Some(empty) = bins {
            self.bins.get_or_insert_with(|| Box::new(empty.clone())).record(gap);
        }
    }

    pub fn histogram(&self) -> Histogram {
        self.values.histogram()
    }

    pub fn bins(&self) -> Option<&EqualBins> {
        self.bins.as_deref()
    }

    /// Heap usage in bytes.
    pub fn memory(&self) -> usize {
        self.values.memory() + self.bins.as_ref().map_or(0, |bins| size_of_val(bins.counts()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace = Pace { interval: Nanos(1000), burst_gap: Nanos(10) };

    fn of(times: &[u64]) -> Traffic {
        let mut traffic = Traffic::default();
        for &time in times {
            traffic.arrive(100, Nanos(time), PACE);
        }
        traffic
    }

    #[test]
    fn a_burst_is_two_frames_or_more_that_are_close() {
        let bursts = of(&[0, 100, 110, 120, 131, 500, 505, 900]).bursts;
        assert_eq!((bursts.bursts, bursts.packets, bursts.longest), (2, 5, 3));
        assert_eq!(bursts.longest_lasting, Nanos(20));
    }

    #[test]
    fn the_peak_is_that_of_the_busiest_interval_whenever_it_was() {
        assert_eq!(of(&[0, 1, 2, 1000, 1500, 5000]).peak.highest(), (3, 300));
        assert_eq!(of(&[0, 5000, 5001]).peak.highest(), (2, 200));
    }

    #[test]
    fn a_clock_that_steps_back_makes_a_gap_of_zero() {
        let mut traffic = of(&[1000]);
        assert_eq!(traffic.arrive(1, Nanos(900), PACE), Some(0));
    }
}
