//! Flows with something to send, in order.

/// A queue that is emptied often: a vector and where it begins.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Flows, each with the tick at which its packets were due.
    entries: Vec<(u32, u32)>,
    first: usize,
}

/// Number of free places in front from which on the others move there.
const MOST_FREE: usize = 1 << 12;

impl Queue {
    #[inline(always)]
    pub fn push_back(&mut self, entry: (u32, u32)) {
        self.entries.push(entry);
    }

    /// Puts the entry back that was taken last.
    #[inline]
    pub fn put_back(&mut self, entry: (u32, u32)) {
        match self.first.checked_sub(1) {
            Some(place) => (self.first, self.entries[place]) = (place, entry),
            None => self.entries.insert(0, entry),
        }
    }

    #[inline(always)]
    pub fn pop_front(&mut self) -> Option<(u32, u32)> {
        let entry = *self.entries.get(self.first)?;
        self.first += 1;
        if self.first == self.entries.len() {
            self.entries.clear();
            self.first = 0;
        } else if self.first >= MOST_FREE {
            self.trim();
        }
        Some(entry)
    }

    /// Frees the places in front, if at least half of all are: each entry moves once at most.
    #[cold]
    fn trim(&mut self) {
        if self.first * 2 >= self.entries.len() {
            self.entries.drain(..self.first);
            self.first = 0;
        }
    }

    /// The flow that is next.
    #[inline]
    pub fn front(&self) -> Option<u32> {
        self.entries.get(self.first).map(|(flow, _)| *flow)
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Octets.
    pub fn memory(&self) -> usize {
        self.entries.capacity() * size_of::<(u32, u32)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_leave_in_order_and_their_places_are_used_again() {
        let mut queue = Queue::default();
        let mut next = 0;
        for n in 0..100_000 {
            queue.push_back((n, n));
            queue.push_back((n, n));
            for _ in 0..if n % 2 == 0 { 1 } else { 3 } {
                let entry = queue.pop_front().expect("an entry");
                assert_eq!(entry.0, next / 2);
                queue.put_back(entry);
                assert_eq!(queue.pop_front(), Some(entry));
                next += 1;
            }
        }
        assert!(queue.is_empty() && queue.pop_front().is_none());
        for n in 0..20_000 {
            queue.push_back((n, 0));
        }
        for n in 0..200_000 {
            queue.push_back((20_000 + n, 0));
            assert_eq!(queue.pop_front(), Some((n, 0)));
        }
        assert!(queue.memory() <= 1 << 19, "{}", queue.memory());
    }
}
