//! Distinguishes frames that a driver will never take from frames that it has no room for at the
//! moment: both fail with the same error (ENOBUFS, EBUSY). A frame longer than a veth's peer
//! accepts is of the first kind: the interface counts each attempt as a drop. It counts no drops
//! while a device's queue is stopped (by pause frames, for example).

use squall_port::monotonic;
use squall_units::Nanos;

/// A frame is given up only after the interface has dropped it for at least this time.
const MIN_TIME: Nanos = Nanos(10_000_000);
/// Minimum number of attempts between two readings of the drop counter before a frame is given up:
/// the time alone is no proof, as the machine may have been stopped.
const MIN_TRIES: u32 = 16;

/// The refusals of one queue.
#[derive(Debug, Default)]
pub(crate) struct RefusalTracker {
    /// Number of attempts to send the next frame from `since` on.
    tries: u32,
    since: Nanos,
    /// The interface's drop counter after `MIN_TIME` had passed.
    dropped: Option<u64>,
    /// Length of a frame that was given up, until a frame of that length leaves. Frames as long or
    /// longer are given up without waiting.
    given_up: Option<u32>,
}

impl RefusalTracker {
    /// Call this when frames have left; `longest` returns the length of the longest of them.
    #[inline]
    pub fn left(&mut self, longest: impl FnOnce() -> u32) {
        (self.tries, self.dropped) = (0, None);
        if let Some(given_up) = self.given_up
            && longest() >= given_up
        {
            self.given_up = None;
        }
    }

    /// Call this when the next frame, of `len` octets, was refused again. Returns whether to give
    /// it up. `dropped` reads the interface's drop counter.
    pub fn again(&mut self, len: u32, dropped: impl FnOnce() -> Option<u64>) -> bool {
        let now = monotonic();
        if self.tries == 0 {
            self.since = now;
        }
        self.tries += 1;
        if self.given_up.is_none_or(|given_up| len < given_up) {
            let enough =
                self.tries.is_multiple_of(MIN_TRIES) && now.saturating_sub(self.since) >= MIN_TIME;
            let Some(counted) = enough.then(dropped).flatten() else { return false };
            let before = self.dropped.replace(counted);
            if before.is_none_or(|before| counted.wrapping_sub(before) < u64::from(MIN_TRIES)) {
                return false;
            }
        }
        (self.tries, self.dropped) = (0, None);
        self.given_up = Some(self.given_up.map_or(len, |given_up| given_up.min(len)));
        true
    }

    /// Discards the attempts so far: they failed for another reason.
    pub fn forget(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_frame_is_retried_and_frames_as_long_are_given_up_at_once() {
        let (mut refused, mut drops) = (RefusalTracker::default(), 0);
        let mut again = |refused: &mut RefusalTracker, len| {
            drops += 1;
            refused.again(len, || Some(drops))
        };
        let begin = monotonic();
        let mut tries = 1;
        while !again(&mut refused, 1500) {
            tries += 1;
        }
        assert!(tries >= 2 * MIN_TRIES && monotonic().saturating_sub(begin) >= MIN_TIME);
        assert!(again(&mut refused, 1600) && again(&mut refused, 1500), "as long, or longer");
        assert!(!again(&mut refused, 1499));
        refused.left(|| 1400);
        assert!(again(&mut refused, 1500), "a shorter one says nothing of it");
        refused.left(|| 1500);
        assert!(!again(&mut refused, 1500), "there was only no room");
    }

    #[test]
    fn frames_that_the_interface_does_not_count_as_dropped_are_retried() {
        let mut refused = RefusalTracker::default();
        let begin = monotonic();
        while monotonic().saturating_sub(begin) < Nanos(3 * MIN_TIME.0) {
            assert!(!refused.again(1500, || Some(7)));
        }
    }
}
