//! Precomputed frames for short sequences, which TRex calls its cached mode.

use std::{fmt, sync::Arc};

use squall_units::{TxMeta, lcm};

use crate::{Program, Run, Scratch, build::Place};

/// Octets of a frame in one row of the ring: a cache line, which holds all headers up to TCP over
/// IPv6 with an 802.1Q tag.
const ROW: usize = 64;

/// A program's precomputed frames, if any. They do not count for the equality of programs, because
/// they do not change the octets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ahead(pub Option<Ring>);

impl PartialEq for Ahead {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// For each frame of a program's period, the range in which frames differ; other octets are the
/// template's.
#[derive(Clone)]
pub(crate) struct Ring {
    /// Start of the range.
    from: usize,
    rows: Arc<[[u8; ROW]]>,
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("from", &self.from).field("rows", &self.rows.len()).finish()
    }
}

impl Ring {
    /// The number of frames after which they repeat.
    pub fn period(&self) -> u64 {
        self.rows.len() as u64
    }

    /// Writes the range of frame `k`, which is below the period, into a slot that holds the
    /// template.
    #[inline]
    pub fn write(&self, slot: &mut [u8], k: u32) {
        let row = &self.rows[k as usize];
        let stretch = &mut slot[self.from..];
        match stretch.first_chunk_mut::<ROW>() {
            Some(whole) => *whole = *row,
            // A slot has room only for its frame. Octets after the frame do not matter.
            None => stretch.copy_from_slice(&row[..stretch.len()]),
        }
    }
}

impl Program {
    /// The same program with at most `most` octets of precomputed frames. `None`: frames have too
    /// long a period, several lengths, signatures, or differences that are spread too widely; or
    /// all are equal.
    pub fn with_ring(&self, most: usize) -> Option<Self> {
        if self.vars.is_empty() || self.signature.is_some() {
            return None;
        }
        let len = self.sizes.only()?;
        let period = self
            .vars
            .iter()
            .try_fold(1, |all, var| lcm(all, var.law.period()?.checked_mul(var.every)?))?;
        let frames = usize::try_from(period)
            .ok()
            .filter(|&n| n.checked_mul(ROW).is_some_and(|octets| octets <= most))?;
        let (first, end) = self.written();
        // A row aligned to 16 octets is copied slightly faster.
        let from = if end <= ROW {
            0
        } else if end - (first & !15) <= ROW {
            first & !15
        } else {
            first
        };
        if end - from > ROW {
            return None;
        }
        let plain = Self { ahead: Ahead(None), ..self.clone() };
        let (mut cursor, mut scratch) = (plain.cursor(0, 1, 1), Scratch::default());
        let stride = self.template.len().max(from + ROW);
        let mut slot = vec![0; stride];
        let mut meta = [TxMeta { len, ..TxMeta::default() }];
        let row = |_| {
            let slots = (&mut slot[..], stride, &mut meta[..]);
            plain.fill(&mut cursor, &mut scratch, slots, &Run { start: 0, count: 1 }, None);
            *slot[from..].first_chunk::<ROW>().expect("the slot has room for a row")
        };
        let rows = (0..frames).map(row).collect();
        Some(Self { ahead: Ahead(Some(Ring { from, rows })), ..plain })
    }

    /// The number of precomputed frames, if any.
    pub fn ring_frames(&self) -> Option<usize> {
        self.ahead.0.as_ref().map(|ring| ring.rows.len())
    }

    /// Memory usage of the precomputed frames in bytes.
    pub fn ring_octets(&self) -> usize {
        self.ring_frames().unwrap_or(0) * ROW
    }

    /// The first octet in which frames of one length differ, and the end of the last.
    fn written(&self) -> (usize, usize) {
        let place = |place: Place| match place {
            Place::Octets1(o) => (o, o + 1),
            Place::Octets2(o) => (o, o + 2),
            Place::Octets4(o) => (o, o + 4),
            Place::Octets6(o) => (o, o + 6),
            Place::Octets8(o) => (o, o + 8),
            Place::Bits { offset, octets, .. } | Place::Wide { offset, octets } => {
                (offset, offset + octets)
            }
        };
        let vars = self.vars.iter().map(|var| place(var.place));
        let end = self.longest as usize;
        let crcs =
            self.crcs.iter().map(|(crc, padding)| crc.place(crc.to.unwrap_or(end - padding)));
        let sums = self.sums.iter().map(|sum| (sum.at, sum.at + 2));
        let all = vars.chain(sums).chain(crcs.map(|place| (place.start, place.end)));
        all.fold((usize::MAX, 0), |(first, end), (from, to)| (first.min(from), end.max(to)))
    }
}
