//! The dynamic table of a decoder, for HPACK and for QPACK.

use std::collections::VecDeque;

use super::OVERHEAD;

/// Entries in the order of their insertion (RFC 7541 section 2.3.2, RFC 9204 section 3.2). Has
/// nothing on the heap before the first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dynamic {
    /// Names and values of all entries, the newest last; before them, octets of evicted ones.
    octets: Vec<u8>,
    /// The newest first.
    entries: VecDeque<Entry>,
    size: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: u32,
    name: u32,
    value: u32,
}

impl Entry {
    fn size(self) -> u32 {
        self.name + self.value + OVERHEAD
    }
}

impl Dynamic {
    /// Name and value of the `nth` entry from the newest on, which is the 0th.
    pub fn get(&self, nth: usize) -> Option<(&[u8], &[u8])> {
        let entry = self.entries.get(nth)?;
        let (name, rest) = self.octets[entry.at as usize..].split_at(entry.name as usize);
        Some((name, &rest[..entry.value as usize]))
    }

    /// Inserts an entry into a table of `most` octets; the oldest ones make room (RFC 7541 section
    /// 4.4). One that is longer than the table empties it, and is not inserted: returns false.
    pub fn insert(&mut self, name: &[u8], value: &[u8], most: u32) -> bool {
        let size = size_of_field(name.len(), value.len());
        if size > most {
            self.evict(0);
            return false;
        }
        self.evict(most - size);
        let len = name.len() + value.len();
        if self.octets.len() + len > self.octets.capacity() {
            self.compact();
            // The octets of a full table are fewer than its size, by the 32 of each entry.
            let need = self.octets.len() + len;
            let target = need.next_power_of_two().clamp(need, (most as usize).max(need));
            self.octets.reserve_exact(target - self.octets.len());
        }
        let count = |len: usize| u32::try_from(len).expect("not more than the table's size");
        self.entries.push_front(Entry {
            at: count(self.octets.len()),
            name: count(name.len()),
            value: count(value.len()),
        });
        self.octets.extend_from_slice(name);
        self.octets.extend_from_slice(value);
        self.size += size;
        true
    }

    /// Evicts the oldest entries until the table has at most `size` (RFC 7541 section 4.3).
    pub fn evict(&mut self, size: u32) {
        while self.size > size {
            let oldest = self.entries.pop_back().expect("the size is that of all entries");
            self.size -= oldest.size();
        }
        if self.entries.is_empty() {
            self.octets.clear();
        }
    }

    /// Removes the octets of evicted entries.
    fn compact(&mut self) {
        let Some(from) = self.entries.back().map(|oldest| oldest.at) else { return };
        self.octets.drain(..from as usize);
        self.entries.iter_mut().for_each(|entry| entry.at -= from);
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// RFC 7541 section 4.1.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Octets on the heap.
    pub fn memory(&self) -> usize {
        self.octets.capacity() + self.entries.capacity() * size_of::<Entry>()
    }
}

/// The size of a field in a table and in a limit (RFC 7541 section 4.1).
pub(crate) fn size_of_field(name: usize, value: usize) -> u32 {
    u32::try_from(name + value).unwrap_or(u32::MAX).saturating_add(OVERHEAD)
}
