//! The frames of a batch, in order of departure, and grouped by stream so that each stream fills all of its own at once.

use squall_port::BATCH;

const NONE: u8 = u8::MAX;

/// Which stream has which slots.
#[derive(Debug)]
pub struct Groups {
    next: [u8; BATCH],
    /// (stream, first slot, last slot, slots)
    groups: Vec<(u32, u8, u8, u8)>,
}

/// A stream's memory of the batch at hand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Membership {
    /// Number of the batch, times 256, plus the group: one word, see `Sender`.
    batch_and_group: u64,
}

impl Default for Groups {
    fn default() -> Self {
        Self { next: [NONE; BATCH], groups: Vec::with_capacity(BATCH) }
    }
}

impl Groups {
    #[inline]
    pub fn clear(&mut self) {
        self.groups.clear();
    }

    /// Slots `first .. first + count` (behind all that were added) are `stream`'s.
    #[inline]
    pub fn add(&mut self, batch: u64, member: &mut Membership, stream: u32, first: usize, count: usize) {
        let last = first + count - 1;
        for slot in first..last {
            self.next[slot] = slot as u8 + 1;
        }
        self.next[last] = NONE;
        if member.batch_and_group >> 8 == batch {
            let group = &mut self.groups[usize::from(member.batch_and_group as u8)];
            self.next[usize::from(group.2)] = first as u8;
            group.2 = last as u8;
            group.3 += count as u8;
        } else {
            member.batch_and_group = batch << 8 | self.groups.len() as u64;
            self.groups.push((stream, first as u8, last as u8, count as u8));
        }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Stream of group `g`, its first slot, and its number of slots; the slots themselves, ascending, in `list`, unless
    /// they are in a row.
    #[inline]
    pub fn get<'a>(&self, g: usize, list: &'a mut [u8; BATCH]) -> (u32, usize, usize, Option<&'a [u8]>) {
        let (stream, first, last, count) = self.groups[g];
        let (start, n) = (usize::from(first), usize::from(count));
        if usize::from(last) - start + 1 == n {
            return (stream, start, n, None);
        }
        let mut slot = first;
        for place in &mut list[..n] {
            *place = slot;
            slot = self.next[usize::from(slot)];
        }
        (stream, start, n, Some(&list[..n]))
    }
}
