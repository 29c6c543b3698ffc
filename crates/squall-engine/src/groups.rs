//! Groups the frames of a batch by stream and keeps their departure order, so that each stream
//! fills all of its frames at once, with its template in the cache.

use squall_port::BATCH;

const NONE: u8 = u8::MAX;

/// The slots of each stream.
#[derive(Debug)]
pub struct Groups {
    /// Indexed by the first slot of a run: its number of slots, and the first slot of the group's
    /// next run.
    runs: [(u8, u8); BATCH],
    /// (stream, first slot, first slot of the last run, slots)
    groups: Vec<(u32, u8, u8, u8)>,
}

/// The group of a stream in the current batch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Membership {
    /// Batch number times 256, plus the group. One word, because it is read for every frame: see
    /// `Sender`.
    batch_and_group: u64,
}

impl Default for Groups {
    fn default() -> Self {
        Self { runs: [(0, NONE); BATCH], groups: Vec::with_capacity(BATCH) }
    }
}

impl Groups {
    #[inline]
    pub fn clear(&mut self) {
        self.groups.clear();
    }

    /// Assigns slots `first .. first + count`, which follow all earlier ones, to `stream`.
    #[inline]
    pub fn add(
        &mut self,
        batch: u64,
        member: &mut Membership,
        stream: u32,
        first: usize,
        count: usize,
    ) {
        self.runs[first] = (count as u8, NONE);
        if member.batch_and_group >> 8 == batch {
            let group = &mut self.groups[usize::from(member.batch_and_group as u8)];
            self.runs[usize::from(group.2)].1 = first as u8;
            group.2 = first as u8;
            group.3 += count as u8;
        } else {
            member.batch_and_group = batch << 8 | self.groups.len() as u64;
            self.groups.push((stream, first as u8, first as u8, count as u8));
        }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// The stream of group `g`, its first slot and its number of slots. `list` gets the slots in
    /// ascending order, unless they are consecutive.
    #[inline]
    pub fn get<'a>(
        &self,
        g: usize,
        list: &'a mut [u8; BATCH],
    ) -> (u32, usize, usize, Option<&'a [u8]>) {
        let (stream, first, last, count) = self.groups[g];
        let (start, n) = (usize::from(first), usize::from(count));
        if usize::from(last - first + self.runs[usize::from(last)].0) == n {
            return (stream, start, n, None);
        }
        let (mut run, mut slot, mut left) = (first, first, self.runs[start].0);
        for place in &mut list[..n] {
            if left == 0 {
                run = self.runs[usize::from(run)].1;
                (slot, left) = (run, self.runs[usize::from(run)].0);
            }
            *place = slot;
            (slot, left) = (slot + 1, left - 1);
        }
        (stream, start, n, Some(&list[..n]))
    }
}
