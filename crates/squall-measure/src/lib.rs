//! A received frame -> its stream, sequence and delay.
//!
//! In go octets with their arrival instant ([`Receiver::observe`]); out come counters and trackers per stream, found by
//! the signature at the frame's end. Frames without one are counted, not judged. Does not know ports or clocks.
#![forbid(unsafe_code)]

use squall_program::signature::Signature;
use squall_stats::{DelayTracker, EqualBins, Fingerprint, Histogram, SequenceTracker};
use squall_units::{FCS_LEN, Nanos};

/// What one receiving queue has seen.
#[derive(Clone, Debug, Default)]
pub struct Receiver {
    pub packets: u64,
    /// Octets with FCS.
    pub octets: u64,
    /// Frames without a signature of ours.
    pub unsigned: u64,
    /// Gaps between consecutive frames, nanoseconds.
    pub gaps: Histogram,
    /// The same gaps in equal bins, when asked for.
    pub gap_bins: Option<EqualBins>,
    /// Hash over all frames, when asked for.
    pub fingerprint: Option<Fingerprint>,
    last: Option<Nanos>,
    /// By the signature's stream number; grows with the numbers seen.
    streams: Vec<Option<Box<StreamRx>>>,
}

/// What one receiving queue has seen of one stream.
#[derive(Clone, Debug, Default)]
pub struct StreamRx {
    pub packets: u64,
    /// Octets with FCS.
    pub octets: u64,
    pub sequence: SequenceTracker,
    pub delay: DelayTracker,
}

impl Receiver {
    /// `fingerprint`: also hash every frame.
    pub fn new(fingerprint: bool) -> Self {
        Self { fingerprint: fingerprint.then(Fingerprint::default), ..Self::default() }
    }

    /// Also counts the gaps between frames in `bins`, nanoseconds.
    pub fn with_gap_bins(self, bins: Option<EqualBins>) -> Self {
        Self { gap_bins: bins, ..self }
    }

    /// Takes one frame: `octets` as they came, `wire_len` octets without FCS, at `time` on the sender's clock.
    #[inline]
    pub fn observe(&mut self, octets: &[u8], wire_len: u32, time: Nanos) {
        let len = u64::from(wire_len + FCS_LEN);
        self.packets += 1;
        self.octets += len;
        if let Some(last) = self.last.replace(time) {
            let gap = time.0.saturating_sub(last.0);
            self.gaps.record(gap);
            if let Some(bins) = &mut self.gap_bins {
                bins.record(gap);
            }
        }
        if let Some(fingerprint) = &mut self.fingerprint {
            fingerprint.add(octets);
        }
        let Some(signature) = Signature::read(octets) else {
            self.unsigned += 1;
            return;
        };
        let stream = self.stream_mut(signature.stream);
        stream.packets += 1;
        stream.octets += len;
        if stream.sequence.observe(signature.sequence).is_new() {
            stream.delay.observe(signature.sequence, signature.delay(time.0), time.0);
        }
    }

    #[inline]
    fn stream_mut(&mut self, number: u16) -> &mut StreamRx {
        let number = usize::from(number);
        if number >= self.streams.len() {
            self.streams.resize_with(number + 1, || None);
        }
        self.streams[number].get_or_insert_default()
    }

    /// A copy without histograms: for watching thousands of streams.
    pub fn light(&self) -> Self {
        let light = |s: &StreamRx| {
            Box::new(StreamRx {
                packets: s.packets,
                octets: s.octets,
                sequence: s.sequence.clone(),
                ..StreamRx::default()
            })
        };
        Self {
            streams: self.streams.iter().map(|s| s.as_deref().map(light)).collect(),
            gaps: Histogram::default(),
            gap_bins: None,
            ..*self
        }
    }

    /// What was seen of stream `number`.
    pub fn stream(&self, number: u16) -> Option<&StreamRx> {
        self.streams.get(usize::from(number))?.as_deref()
    }

    /// Streams that were seen, ascending.
    pub fn streams(&self) -> impl Iterator<Item = (u16, &StreamRx)> {
        self.streams.iter().enumerate().filter_map(|(i, s)| Some((i as u16, s.as_deref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(stream: u16, sequence: u32, time: u64) -> Vec<u8> {
        let mut octets = vec![0; 60];
        let (high, low) = Signature { stream, sequence, time }.halves();
        octets[44..52].copy_from_slice(&high.to_be_bytes());
        octets[52..60].copy_from_slice(&low.to_be_bytes());
        octets
    }

    #[test]
    fn signed_frames_are_judged_and_foreign_ones_counted() {
        let mut rx = Receiver::new(false);
        for (sequence, sent, came) in [(0, 100, 150), (1, 200, 260), (3, 400, 450)] {
            rx.observe(&frame(7, sequence, sent), 60, Nanos(came));
        }
        rx.observe(&[0; 60], 60, Nanos(500));
        assert_eq!((rx.packets, rx.octets, rx.unsigned), (4, 256, 1));
        let stream = rx.stream(7).unwrap();
        assert_eq!((stream.packets, stream.sequence.lost(4), stream.sequence.missing_so_far()), (3, 1, 1));
        assert_eq!((stream.delay.delay().min(), stream.delay.delay().max()), (50, 60));
        assert_eq!(rx.streams().map(|s| s.0).collect::<Vec<_>>(), [7]);
        assert!(rx.stream(6).is_none() && rx.stream(8).is_none());
    }
}
