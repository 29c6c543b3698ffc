//! State that only some of the flows need: several pieces in flight, out-of-order data, loss
//! recovery.

use std::collections::VecDeque;

use crate::{
    Piece,
    bbr::Bbr,
    congestion::Cubic,
    seq::{self, distance, le, lt},
};

/// Maximum number of ranges in the scoreboard, against peers that acknowledge every other octet.
/// Further ranges are ignored: at worst data is retransmitted needlessly.
const MAX_RANGES: usize = 128;

/// Memory that a run of out-of-order octets counts for in addition to its octets: without this
/// overhead, single octets could take many times the limit.
const RUN_COST: u32 = 64;

#[derive(Debug, Default)]
pub(crate) struct Extra {
    /// Row of the flow's oldest piece: the record has this index in its place.
    pub first: u32,
    /// Pieces after the first, and where each begins in the stream.
    pub pieces: VecDeque<(u32, Piece)>,
    pub reassembly: Reassembly,
    pub sacked: Scoreboard,
    pub recovery: Recovery,
    /// Recovery ends when this number is acknowledged (RecoveryPoint in RFC 6675, "recover" in RFC
    /// 6582).
    pub recover: u32,
    /// The number after the highest retransmitted octet of this recovery (HighRxt).
    pub high_rxt: u32,
    /// All octets below the first number that were sent again in this recovery left before those from
    /// the second one on, a former SND.NXT.
    pub again: (u32, u32),
    /// Whether the receive window's right edge is fixed.
    pub paused: bool,
    /// `None`: no loss yet.
    pub ssthresh: Option<u32>,
    /// The peer's largest window, stored from the first window on that is too small for a segment;
    /// 0 before.
    pub widest: u32,
    pub cubic: Cubic,
    /// The model of a flow with BBR, from the end of its handshake on.
    pub bbr: Option<Box<Bbr>>,
    /// Octets acknowledged in congestion avoidance after the window last grew.
    pub counted: u32,
}

/// Phase of loss recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Recovery {
    #[default]
    None,
    /// RFC 6582, without SACK.
    NewReno,
    /// RFC 6675.
    Sack,
    /// After a time-out: everything unacknowledged is retransmitted in slow start.
    Loss,
    /// ECN has reduced the window; no loss (RFC 3168 §6.1.2).
    Reduced,
}

impl Extra {
    /// Whether the state equals a new one. If so, it can be released.
    pub fn is_spare(&self) -> bool {
        self.pieces.is_empty()
            && self.reassembly.is_empty()
            && self.sacked.is_empty()
            && self.recovery == Recovery::None
            && self.ssthresh.is_none()
            && self.widest == 0
            && !self.paused
            && self.bbr.is_none()
    }

    /// IsLost (RFC 6675 §4): unsacked octets below this number are lost. After a time-out, all sent
    /// octets are.
    pub fn lost_below(&self, una: u32, mss: u32) -> u32 {
        match self.recovery {
            Recovery::Loss => self.recover,
            _ => self.sacked.lost_below(mss).unwrap_or(una),
        }
    }

    /// SetPipe (RFC 6675 §4): outstanding octets, which are those not lost and those retransmitted.
    pub fn pipe(&self, una: u32, nxt: u32, mss: u32) -> u32 {
        let edge = seq::max(self.lost_below(una, mss), una);
        // RFC 6675 counts an octet twice that was retransmitted but is not lost; here it counts
        // once.
        let again = seq::min(self.high_rxt, edge);
        self.sacked.holes(edge, nxt)
            + if lt(una, again) { self.sacked.holes(una, again) } else { 0 }
    }

    /// Notes at an acknowledgment which octets were sent again, once those noted before have arrived.
    pub fn note_again(&mut self, una: u32, nxt: u32) {
        if le(self.again.0, una) {
            self.again = (self.high_rxt, nxt);
        }
    }

    /// Whether octets from `una` on were lost again after their retransmission in SACK recovery: more
    /// than two segments' worth of octets that left later are selectively acknowledged. RFC 6675
    /// would wait for the time-out, which costs a short path many round trips.
    pub fn are_lost_again(&self, una: u32, mss: u32) -> bool {
        let (below, later) = self.again;
        self.recovery == Recovery::Sack
            && lt(una, below)
            && self.sacked.octets_from(later) > 2 * mss
    }

    /// Outstanding octets, without those that the peer has selectively acknowledged; in recovery,
    /// also without lost ones.
    pub fn inflight(&self, una: u32, nxt: u32, mss: u32) -> u32 {
        match self.recovery {
            Recovery::Sack | Recovery::Loss => self.pipe(una, nxt, mss),
            _ => self.sacked.holes(una, nxt),
        }
    }

    /// Resets to a new state, but keeps the allocated memory.
    pub fn clear(&mut self) {
        let Self { pieces, sacked, .. } = std::mem::take(self);
        (self.pieces, self.sacked) = (pieces, sacked);
        self.pieces.clear();
        self.sacked.clear();
    }

    /// Allocated octets.
    pub fn capacity(&self) -> usize {
        self.pieces.capacity() * size_of::<(u32, Piece)>()
            + self.sacked.ranges.capacity() * 8
            + self.bbr.as_ref().map_or(0, |bbr| bbr.memory())
            + self
                .reassembly
                .runs
                .iter()
                .map(|r| size_of::<Run>() + r.octets.capacity())
                .sum::<usize>()
    }

    /// The number after the last octet of the last piece here, if any.
    pub fn end(&self) -> Option<u32> {
        self.pieces.back().map(|(at, piece)| at.wrapping_add(piece.len))
    }

    /// The piece that contains octet `at` of the stream.
    pub fn piece(&self, at: u32) -> (u32, Piece) {
        self.pieces[self.pieces.partition_point(|(begin, _)| le(*begin, at)) - 1]
    }
}

/// Out-of-order data from the peer.
#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    /// In order, with gaps between them.
    runs: Vec<Run>,
    /// Position of the peer's FIN in the stream.
    fin: Option<u32>,
    arrivals: u32,
}

#[derive(Debug)]
struct Run {
    at: u32,
    octets: Vec<u8>,
    /// Higher for runs that were extended more recently.
    arrival: u32,
}

impl Run {
    fn end(&self) -> u32 {
        self.at.wrapping_add(self.octets.len() as u32)
    }
}

impl Reassembly {
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.fin.is_none()
    }

    /// Memory that counts against the limits.
    pub fn cost(&self) -> u32 {
        self.runs.iter().map(|r| r.octets.len() as u32 + RUN_COST).sum()
    }

    pub fn note_fin(&mut self, at: u32) {
        self.fin = Some(at);
    }

    pub fn fin(&self) -> Option<u32> {
        self.fin
    }

    /// Adds the new part of `octets` at `at`, while the total stays within `limit`. Returns the
    /// number of octets dropped.
    pub fn insert(&mut self, mut at: u32, mut octets: &[u8], limit: u32) -> usize {
        let mut dropped = 0;
        self.arrivals = self.arrivals.wrapping_add(1);
        while !octets.is_empty() {
            // The first run that begins after `at`, and the one before it.
            let next = self.runs.partition_point(|r| le(r.at, at));
            if let Some(before) = next.checked_sub(1) {
                let known = distance(at, self.runs[before].end()) as usize;
                if known > 0 {
                    self.runs[before].arrival = self.arrivals;
                    let skip = known.min(octets.len());
                    (at, octets) = (at.wrapping_add(skip as u32), &octets[skip..]);
                    continue;
                }
            }
            let room = self
                .runs
                .get(next)
                .map_or(octets.len(), |r| (distance(at, r.at) as usize).min(octets.len()));
            let (new, rest) = octets.split_at(room);
            if self.cost() + new.len() as u32 + RUN_COST > limit {
                dropped += new.len();
            } else {
                self.add(next, at, new);
            }
            (at, octets) = (at.wrapping_add(room as u32), rest);
        }
        dropped
    }

    /// Adds `new`, which lies in the gap before run `next`.
    fn add(&mut self, next: usize, at: u32, new: &[u8]) {
        let mut here = next;
        match next.checked_sub(1).map(|before| &mut self.runs[before]) {
            Some(before) if before.end() == at => {
                before.octets.extend_from_slice(new);
                before.arrival = self.arrivals;
                here -= 1;
            }
            _ => self.runs.insert(here, Run { at, octets: new.to_vec(), arrival: self.arrivals }),
        }
        if self.runs.get(here + 1).is_some_and(|after| after.at == self.runs[here].end()) {
            let after = self.runs.remove(here + 1);
            self.runs[here].octets.extend_from_slice(&after.octets);
        }
    }

    /// Removes the run that continues the stream at `at`. Returns its octets, and the number of old
    /// octets among them.
    pub fn take(&mut self, at: u32) -> Option<(usize, Vec<u8>)> {
        while let Some(first) = self.runs.first()
            && le(first.at, at)
        {
            let run = self.runs.remove(0);
            let old = distance(run.at, at) as usize;
            if old < run.octets.len() {
                return Some((old, run.octets));
            }
        }
        None
    }

    /// Fills the SACK option: the most recently changed run first (RFC 2018 §4), because ACKs may
    /// be lost.
    pub fn blocks(&self, blocks: &mut [(u32, u32)]) -> usize {
        let mut taken = 0;
        let mut below = None;
        while taken < blocks.len() {
            // At most four blocks and few runs: a linear search costs less than keeping an order.
            let next = self
                .runs
                .iter()
                .filter(|r| below.is_none_or(|b| lt(r.arrival, b)))
                .reduce(|best, r| if lt(best.arrival, r.arrival) { r } else { best });
            let Some(run) = next else { break };
            blocks[taken] = (run.at, run.end());
            below = Some(run.arrival);
            taken += 1;
        }
        taken
    }
}

/// Data that the peer has selectively acknowledged (RFC 6675 §4).
#[derive(Debug, Default)]
pub(crate) struct Scoreboard {
    /// In ascending order, neither overlapping nor adjacent.
    ranges: Vec<(u32, u32)>,
}

impl Scoreboard {
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub fn clear(&mut self) {
        self.ranges.clear();
    }

    /// Adds a block between SND.UNA and SND.NXT. Returns whether any of it is new.
    pub fn insert(&mut self, left: u32, right: u32) -> bool {
        let from = self.ranges.partition_point(|r| lt(r.1, left));
        let to = self.ranges.partition_point(|r| le(r.0, right));
        if from == to {
            if self.ranges.len() == MAX_RANGES {
                return false;
            }
            self.ranges.insert(from, (left, right));
            return true;
        }
        let old = (self.ranges[from].0, self.ranges[to - 1].1);
        if to - from == 1 && le(old.0, left) && le(right, old.1) {
            return false;
        }
        self.ranges[from] = (seq::min(old.0, left), seq::max(old.1, right));
        self.ranges.drain(from + 1..to);
        true
    }

    /// Removes everything below `una`. A range that begins at `una` is removed, too: an ACK that
    /// stops there shows that the peer has discarded it (RFC 2018 §8).
    pub fn acknowledge(&mut self, una: u32) {
        let gone = self.ranges.partition_point(|r| le(r.0, una));
        self.ranges.drain(..gone);
    }

    /// The number after the highest sacked octet.
    pub fn highest(&self) -> Option<u32> {
        self.ranges.last().map(|r| r.1)
    }

    /// IsLost (RFC 6675 §4) holds for unsacked octets below this number: three ranges, or more than
    /// two segments' worth of octets, are sacked above it.
    pub fn lost_below(&self, mss: u32) -> Option<u32> {
        let (mut octets, mut ranges) = (0u32, 0);
        for range in self.ranges.iter().rev() {
            octets = octets.saturating_add(distance(range.0, range.1));
            ranges += 1;
            if ranges >= 3 || octets > 2 * mss {
                return Some(range.0);
            }
        }
        None
    }

    /// Unsacked octets between `from` and `to`.
    pub fn holes(&self, from: u32, to: u32) -> u32 {
        let sacked: u32 =
            self.ranges.iter().map(|r| distance(seq::max(r.0, from), seq::min(r.1, to))).sum();
        distance(from, to) - sacked
    }

    /// Sacked octets from `from` on.
    pub fn octets_from(&self, from: u32) -> u32 {
        self.ranges.iter().map(|r| distance(seq::max(r.0, from), r.1)).sum()
    }

    /// The first hole at or after `from` and before `to`.
    pub fn hole(&self, from: u32, to: u32) -> Option<(u32, u32)> {
        let mut at = from;
        for range in &self.ranges {
            if lt(at, range.0) {
                break;
            }
            at = seq::max(at, range.1);
        }
        let end = self.ranges.iter().find(|r| lt(at, r.0)).map_or(to, |r| seq::min(r.0, to));
        lt(at, end).then_some((at, end))
    }

    #[cfg(test)]
    pub fn ranges(&self) -> &[(u32, u32)] {
        &self.ranges
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BASE: u32 = u32::MAX - 50;

    proptest! {
        /// Compares with one flag per octet, across the wrap of the sequence numbers.
        #[test]
        fn the_scoreboard_is_a_set_of_octets(blocks in proptest::collection::vec((0u32..200, 1u32..40), 0..30), una in 0u32..100) {
            let mut board = Scoreboard::default();
            let mut model = [false; 240];
            for (at, len) in blocks {
                let new = (at..at + len).any(|i| !model[i as usize]);
                model[at as usize..(at + len) as usize].fill(true);
                prop_assert_eq!(board.insert(BASE.wrapping_add(at), BASE.wrapping_add(at + len)), new);
            }
            for pair in board.ranges().windows(2) {
                prop_assert!(lt(pair[0].1, pair[1].0));
            }
            let holes = model[una as usize..].iter().filter(|sacked| !**sacked).count() as u32;
            prop_assert_eq!(board.holes(BASE.wrapping_add(una), BASE.wrapping_add(240)), holes);
            let first = (una..240).find(|&i| !model[i as usize]);
            let end = first.map(|f| (f..240).find(|&i| model[i as usize]).unwrap_or(240));
            let expected = first.zip(end).map(|(a, b)| (BASE.wrapping_add(a), BASE.wrapping_add(b)));
            prop_assert_eq!(board.hole(BASE.wrapping_add(una), BASE.wrapping_add(240)), expected);
        }

        #[test]
        fn octets_out_of_order_come_back_in_order(pieces in proptest::collection::vec((0u32..200, 1u32..40), 1..30)) {
            let mut ahead = Reassembly::default();
            let octet = |i: u32| (i * 7) as u8;
            let mut model = [false; 240];
            for (at, len) in pieces {
                let octets: Vec<u8> = (at..at + len).map(octet).collect();
                prop_assert_eq!(ahead.insert(BASE.wrapping_add(at), &octets, u32::MAX), 0);
                model[at as usize..(at + len) as usize].fill(true);
                let mut blocks = [(0, 0); 4];
                let n = ahead.blocks(&mut blocks);
                prop_assert!(n > 0);
                let newest = blocks[0].0.wrapping_sub(BASE)..blocks[0].1.wrapping_sub(BASE);
                prop_assert!(newest.start <= at && at + len <= newest.end);
            }
            let mut at = 0;
            while at < 240 {
                match ahead.take(BASE.wrapping_add(at)) {
                    Some((old, octets)) => for o in &octets[old..] {
                        prop_assert!(model[at as usize]);
                        prop_assert_eq!(*o, octet(at));
                        at += 1;
                    },
                    None => {
                        prop_assert!(!model[at as usize]);
                        at += 1;
                    }
                }
            }
            prop_assert!(ahead.is_empty());
        }
    }

    #[test]
    fn retransmissions_are_lost_if_more_than_two_later_segments_arrive() {
        let mut extra = Extra { recovery: Recovery::Sack, high_rxt: 2000, ..Extra::default() };
        extra.note_again(1000, 10_000);
        extra.high_rxt = 4000;
        extra.note_again(1000, 11_000);
        extra.sacked.insert(4000, 12_000);
        assert!(!extra.are_lost_again(1000, 1000), "two segments");
        extra.sacked.insert(12_000, 13_000);
        assert!(extra.are_lost_again(1000, 1000));
        assert!(!extra.are_lost_again(2000, 1000), "it was sent again after octet 10,000, perhaps");
        extra.note_again(2000, 13_000);
        assert!(!extra.are_lost_again(2000, 1000));
        extra.sacked.insert(13_000, 16_000);
        assert!(extra.are_lost_again(2000, 1000) && extra.are_lost_again(3000, 1000));
        extra.recovery = Recovery::Loss;
        assert!(!extra.are_lost_again(2000, 1000), "after a time-out all is sent again anyway");
    }

    #[test]
    fn out_of_order_data_is_bounded() {
        let mut ahead = Reassembly::default();
        let dropped: usize = (0..1000).map(|i| ahead.insert(i * 10, &[0; 5], 2000)).sum();
        assert!(ahead.cost() <= 2000);
        assert_eq!(dropped, 5 * 1000 - 5 * (2000 / 69));
    }

    #[test]
    fn three_ranges_or_two_segments_above_mean_lost() {
        let mut board = Scoreboard::default();
        board.insert(1000, 1100);
        board.insert(1200, 1300);
        assert_eq!(board.lost_below(1000), None);
        board.insert(1400, 1500);
        assert_eq!(board.lost_below(1000), Some(1000));
        board.insert(2000, 4001);
        assert_eq!(board.lost_below(1000), Some(2000));
        assert_eq!(
            [0, 1250, 1400, 3000, 5000].map(|at| board.octets_from(at)),
            [2301, 2151, 2101, 1001, 0]
        );
    }
}
