//! Frames that wait for a port.

use std::collections::VecDeque;

use squall_units::Nanos;

use crate::host::MIN_FRAME;

/// Frames in the order in which they leave, stored back to back: hosts make hundreds of thousands
/// per second, and an allocation for each would cost as much as the rest.
#[derive(Debug, Default)]
pub struct FrameQueue {
    octets: Vec<u8>,
    /// Start of the first frame.
    begin: usize,
    /// Lengths, and the times at which the frames were due.
    frames: VecDeque<(usize, Nanos)>,
    /// Frames that found the queue full.
    dropped: u64,
}

/// Most frames that wait. A port that takes none for longer loses answers, as an interface does.
const MOST: usize = 8192;
/// Octets at the start of the buffer that may be unused.
const UNUSED: usize = 1 << 20;

impl FrameQueue {
    /// Appends a frame that `write` writes, and that was due at `due`. Short frames are padded to
    /// Ethernet's minimum.
    pub fn push(&mut self, due: Nanos, write: impl FnOnce(&mut Vec<u8>)) {
        if self.frames.len() >= MOST {
            self.dropped += 1;
            return;
        }
        let at = self.octets.len();
        write(&mut self.octets);
        let len = (self.octets.len() - at).max(MIN_FRAME);
        self.octets.resize(at + len, 0);
        self.frames.push_back((len, due));
    }

    /// The next frame, and when it was due.
    pub fn first(&self) -> Option<(&[u8], Nanos)> {
        let (len, due) = self.frames.front()?;
        Some((&self.octets[self.begin..][..*len], *due))
    }

    /// Removes the next frame.
    pub fn pop(&mut self) {
        let Some((len, _)) = self.frames.pop_front() else { return };
        self.begin += len;
        if self.frames.is_empty() {
            self.octets.clear();
            self.begin = 0;
        } else if self.begin > UNUSED {
            self.octets.drain(..self.begin);
            self.begin = 0;
        }
    }

    pub fn len(&self) -> usize {
        self.frames.len()
    }

    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Frames that were dropped because the queue was full.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_leave_in_order_and_short_ones_are_padded() {
        let mut queue = FrameQueue::default();
        for i in 0..3u8 {
            queue.push(Nanos(i.into()), |out| out.extend(vec![i; 50 + 20 * usize::from(i)]));
        }
        for i in 0..3u8 {
            let (frame, due) = queue.first().unwrap();
            assert_eq!(
                (frame[0], frame.len(), due),
                (i, [60, 70, 90][usize::from(i)], Nanos(i.into()))
            );
            queue.pop();
        }
        assert!(queue.is_empty() && queue.first().is_none());
    }

    #[test]
    fn a_full_queue_drops_and_counts_and_its_memory_is_bounded() {
        let mut queue = FrameQueue::default();
        for i in 0..MOST + 5 {
            queue.push(Nanos::ZERO, |out| out.extend((i as u32).to_be_bytes()));
        }
        assert_eq!((queue.len(), queue.dropped()), (MOST, 5));
        for i in 0..200_000 {
            queue.pop();
            queue.push(Nanos::ZERO, |out| out.extend([(i % 251) as u8; 300]));
        }
        assert!(queue.octets.len() < UNUSED + MOST * 300 + 300);
    }
}
