//! Frames into slots: operation by operation over a batch, so that dispatch is paid once for up to 64 frames.

use squall_units::{Nanos, TxMeta};

use crate::{
    BATCH, Program,
    build::{Place, Sum, Var},
    signature::{self, Signature},
};

/// Where one worker stands in a stream: the index of its next frame and the places of its variables.
#[derive(Clone, Debug)]
pub struct Cursor {
    /// Index in the stream of the next frame to be filled.
    pub next: u64,
    /// Distance between this worker's frames: 1, or the number of workers that share the stream.
    by: u64,
    /// The filler's mark in [`TxMeta::owner`].
    owner: u32,
    vars: Box<[VarPlace]>,
}

#[derive(Clone, Debug, Default)]
struct VarPlace {
    /// What [`crate::Law::fill`] carries on; with `every` above 1, the law's index.
    place: u64,
    /// With `every` above 1: frames since the law advanced, and the value since.
    since: u64,
    value: u64,
}

/// Memory for one batch, one a worker.
#[derive(Debug)]
pub struct Scratch {
    values: [u64; BATCH],
    sums: Vec<[u64; BATCH]>,
}

impl Default for Scratch {
    fn default() -> Self {
        Self { values: [0; BATCH], sums: vec![[0; BATCH]; 4] }
    }
}

/// Which slots of a batch a stream's frames go to.
pub trait Places {
    fn count(&self) -> usize;
    fn each(&self, base: &mut [u8], stride: usize, f: impl FnMut(usize, &mut [u8]));
    fn each_meta(&self, meta: &mut [TxMeta], f: impl FnMut(usize, &mut TxMeta));
}

/// Slots in a row.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub start: usize,
    pub count: usize,
}

impl Places for Run {
    fn count(&self) -> usize {
        self.count
    }

    #[inline(always)]
    fn each(&self, base: &mut [u8], stride: usize, mut f: impl FnMut(usize, &mut [u8])) {
        let slots = &mut base[self.start * stride..(self.start + self.count) * stride];
        for (j, slot) in slots.chunks_exact_mut(stride).enumerate() {
            f(j, slot);
        }
    }

    #[inline(always)]
    fn each_meta(&self, meta: &mut [TxMeta], mut f: impl FnMut(usize, &mut TxMeta)) {
        for (j, m) in meta[self.start..self.start + self.count].iter_mut().enumerate() {
            f(j, m);
        }
    }
}

/// Slots here and there, ascending.
impl Places for [u8] {
    fn count(&self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn each(&self, base: &mut [u8], stride: usize, mut f: impl FnMut(usize, &mut [u8])) {
        for (j, &at) in self.iter().enumerate() {
            f(j, &mut base[usize::from(at) * stride..][..stride]);
        }
    }

    #[inline(always)]
    fn each_meta(&self, meta: &mut [TxMeta], mut f: impl FnMut(usize, &mut TxMeta)) {
        for (j, &at) in self.iter().enumerate() {
            f(j, &mut meta[usize::from(at)]);
        }
    }
}

impl Program {
    /// A cursor that begins at frame `first` and takes every `by`-th. `owner` is unique to this program among those
    /// that fill the same slots, and not 0.
    pub fn cursor(&self, first: u64, by: u64, owner: u32) -> Cursor {
        let place = |v: &Var| {
            if v.every == 1 {
                return VarPlace { place: v.law.seek(first), ..VarPlace::default() };
            }
            let place = first / v.every;
            VarPlace { place, since: first % v.every, value: v.law.at(place) as u64 }
        };
        Cursor { next: first, by, owner, vars: self.vars.iter().map(place).collect() }
    }

    /// Writes the cursor's next frames, as many as `places` has (at most [`BATCH`]), and moves the cursor behind them.
    /// Lengths are taken from `meta`, where the scheduler has put them ([`crate::Sizes::at`]). `now` goes into the
    /// signature; without it, each frame's due instant.
    #[inline]
    pub fn fill<P: Places + ?Sized>(
        &self,
        cursor: &mut Cursor,
        scratch: &mut Scratch,
        (base, stride, meta): (&mut [u8], usize, &mut [TxMeta]),
        places: &P,
        now: Option<Nanos>,
    ) {
        let n = places.count();
        assert!(n <= BATCH, "a batch has at most {BATCH} frames");
        self.copy_template(cursor.owner, base, stride, meta, places);
        if scratch.sums.len() < self.sums.len() {
            scratch.sums.resize(self.sums.len(), [0; BATCH]);
        }
        for (sum, acc) in self.sums.iter().zip(&mut scratch.sums) {
            match self.sizes.only() {
                Some(len) => acc[..n].fill(sum.start(len as usize)),
                None => places.each_meta(meta, |j, m| acc[j] = sum.start(m.len as usize)),
            }
        }
        for (var, place) in self.vars.iter().zip(&mut cursor.vars) {
            if let Place::Wide { offset, octets } = var.place {
                var.write_wide(cursor.next, cursor.by, &mut scratch.sums, base, stride, places, offset, octets);
                continue;
            }
            var.values(place, cursor.by, &mut scratch.values[..n]);
            for add in &var.adds {
                for (acc, v) in scratch.sums[add.sum][..n].iter_mut().zip(&scratch.values) {
                    *acc += ((v >> 32) + (v & 0xffff_ffff)) << add.shift;
                }
            }
            var.place.write(&scratch.values, base, stride, places);
        }
        if !self.lengths.is_empty() {
            self.write_lengths(base, stride, meta, places);
        }
        if let Some(stream) = self.signature {
            self.sign(stream, cursor, scratch, base, stride, meta, places, now);
        }
        self.write_sums(scratch, base, stride, places);
        cursor.next += cursor.by * n as u64;
    }

    /// Slots remember whose template they hold ([`TxMeta::owner`]) and how many octets of it are intact
    /// ([`TxMeta::mark`]): a slot of the same stream needs no copy.
    #[inline]
    fn copy_template<P: Places + ?Sized>(
        &self,
        owner: u32,
        base: &mut [u8],
        stride: usize,
        meta: &mut [TxMeta],
        places: &P,
    ) {
        let mut stale = 0u64;
        places.each_meta(meta, |j, m| {
            if m.owner != owner {
                m.owner = owner;
                m.mark = 0;
            }
            stale |= u64::from(m.mark < m.len) << j;
        });
        if stale == 0 {
            return;
        }
        let mut from = [(0u32, 0u32); BATCH];
        // Frames of several lengths end in signatures at several places: what is behind the shortest so far is spoilt.
        let spoilt = if self.signature.is_some() && self.sizes.only().is_none() { signature::LEN as u32 } else { 0 };
        places.each_meta(meta, |j, m| {
            from[j] = (m.mark, m.len);
            m.mark = m.mark.max(m.len) - spoilt;
        });
        places.each(base, stride, |j, slot| {
            let (a, b) = (from[j].0 as usize, from[j].1 as usize);
            if a < b {
                slot[a..b].copy_from_slice(&self.template[a..b]);
            }
        });
    }

    fn write_lengths<P: Places + ?Sized>(&self, base: &mut [u8], stride: usize, meta: &mut [TxMeta], places: &P) {
        let mut lens = [0u32; BATCH];
        places.each_meta(meta, |j, m| lens[j] = m.len);
        for l in &self.lengths {
            places.each(base, stride, |j, slot| {
                let value = (lens[j] as usize - l.from) as u16;
                slot[l.at..l.at + 2].copy_from_slice(&value.to_be_bytes());
            });
        }
    }

    #[allow(clippy::too_many_arguments)]
    #[inline]
    fn sign<P: Places + ?Sized>(
        &self,
        stream: u16,
        cursor: &Cursor,
        scratch: &mut Scratch,
        base: &mut [u8],
        stride: usize,
        meta: &mut [TxMeta],
        places: &P,
        now: Option<Nanos>,
    ) {
        let mut ends = [(0u32, 0u64); BATCH];
        places.each_meta(meta, |j, m| ends[j] = (m.len, now.unwrap_or(m.due).0));
        let Scratch { sums, .. } = scratch;
        places.each(base, stride, |j, slot| {
            let sequence = (cursor.next + cursor.by * j as u64) as u32;
            let (high, low) = Signature { stream, sequence, time: ends[j].1 }.halves();
            let at = ends[j].0 as usize - signature::LEN;
            slot[at..at + 8].copy_from_slice(&high.to_be_bytes());
            slot[at + 8..at + 16].copy_from_slice(&low.to_be_bytes());
            let words = (high >> 32) + (high & 0xffff_ffff) + (low >> 32) + (low & 0xffff_ffff);
            for (sum, acc) in self.sums.iter().zip(sums.iter_mut()).filter(|(sum, _)| sum.signed) {
                acc[j] += words << (((at - sum.from) & 1) * 8);
            }
        });
    }

    #[inline]
    fn write_sums<P: Places + ?Sized>(&self, scratch: &mut Scratch, base: &mut [u8], stride: usize, places: &P) {
        let n = places.count();
        for (s, sum) in self.sums.iter().enumerate() {
            let (done, rest) = scratch.sums.split_at_mut(s + 1);
            let acc = &mut done[s];
            for v in &mut acc[..n] {
                *v = u64::from(!fold(*v));
            }
            if sum.udp {
                for v in &mut acc[..n] {
                    *v = if *v == 0 { 0xffff } else { *v };
                }
            }
            for add in &sum.adds {
                for (outer, v) in rest[add.sum - s - 1][..n].iter_mut().zip(&*acc) {
                    *outer += v << add.shift;
                }
            }
            let Sum { at, .. } = *sum;
            places.each(base, stride, |j, slot| slot[at..at + 2].copy_from_slice(&(acc[j] as u16).to_be_bytes()));
        }
    }
}

/// Folds a sum below 2^62 to 16 bits without a branch.
#[inline]
fn fold(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    ((sum >> 16) + (sum & 0xffff)) as u16
}

impl Var {
    #[inline]
    fn values(&self, place: &mut VarPlace, by: u64, out: &mut [u64]) {
        if self.every == 1 {
            return self.law.fill(&mut place.place, by, out);
        }
        for v in out {
            *v = place.value;
            place.since += by;
            if place.since >= self.every {
                place.place += place.since / self.every;
                place.since %= self.every;
                place.value = self.law.at(place.place) as u64;
            }
        }
    }

    /// Values of more than 64 bits (IPv6 addresses): one by one.
    #[allow(clippy::too_many_arguments)]
    fn write_wide<P: Places + ?Sized>(
        &self,
        next: u64,
        by: u64,
        sums: &mut [[u64; BATCH]],
        base: &mut [u8],
        stride: usize,
        places: &P,
        offset: usize,
        octets: usize,
    ) {
        places.each(base, stride, |j, slot| {
            let v = self.law.at((next + by * j as u64) / self.every);
            slot[offset..offset + octets].copy_from_slice(&v.to_be_bytes()[16 - octets..]);
            let (high, low) = ((v >> 64) as u64, v as u64);
            let words = (high >> 32) + (high & 0xffff_ffff) + (low >> 32) + (low & 0xffff_ffff);
            for add in &self.adds {
                sums[add.sum][j] += words << add.shift;
            }
        });
    }
}

impl Place {
    #[inline]
    fn write<P: Places + ?Sized>(self, values: &[u64; BATCH], base: &mut [u8], stride: usize, places: &P) {
        match self {
            Self::Octets1(o) => places.each(base, stride, |j, slot| slot[o] = values[j] as u8),
            Self::Octets2(o) => {
                places.each(base, stride, |j, slot| {
                    slot[o..o + 2].copy_from_slice(&(values[j] as u16).to_be_bytes());
                });
            }
            Self::Octets4(o) => {
                places.each(base, stride, |j, slot| {
                    slot[o..o + 4].copy_from_slice(&(values[j] as u32).to_be_bytes());
                });
            }
            Self::Octets6(o) => {
                places.each(base, stride, |j, slot| slot[o..o + 6].copy_from_slice(&values[j].to_be_bytes()[2..]));
            }
            Self::Octets8(o) => {
                places.each(base, stride, |j, slot| slot[o..o + 8].copy_from_slice(&values[j].to_be_bytes()));
            }
            Self::Bits { offset, octets, shift, mask } => {
                places.each(base, stride, |j, slot| {
                    let window = &mut slot[offset..offset + octets];
                    let mut bytes = [0; 8];
                    bytes[8 - octets..].copy_from_slice(window);
                    let old = u64::from_be_bytes(bytes);
                    let new = (old & !mask) | ((values[j] << shift) & mask);
                    window.copy_from_slice(&new.to_be_bytes()[8 - octets..]);
                });
            }
            Self::Wide { .. } => unreachable!("wide values are written one by one"),
        }
    }
}
