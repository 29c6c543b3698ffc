//! Tells a frame that a driver will never take from one that finds no room now: both are refused in
//! the same words (ENOBUFS, EBUSY). A frame longer than a veth's peer takes is of the first kind:
//! the interface counts each try as a drop, which it does not while a device's queue is stopped
//! (pause frames, for example).

use squall_port::monotonic;
use squall_units::Nanos;

/// A frame that is dropped for so long, ...
const PATIENCE: Nanos = Nanos(10_000_000);
/// ... and so often, is not one that only waits for room: a machine may stand still for the time
/// alone.
const TRIES: u32 = 16;

/// Of one queue.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    /// The next frame was refused so often, since then.
    tries: u32,
    since: Nanos,
    /// What the interface had dropped when these tries began, once patience was at an end.
    dropped: Option<u64>,
    /// Frames of so many octets were given up, and none as long has left since: others as long need
    /// no patience.
    hopeless: Option<u32>,
}

impl Refused {
    /// Frames have left, the longest of so many octets.
    #[inline]
    pub fn left(&mut self, longest: impl FnOnce() -> u32) {
        (self.tries, self.dropped) = (0, None);
        if let Some(hopeless) = self.hopeless
            && longest() >= hopeless
        {
            self.hopeless = None;
        }
    }

    /// The next frame, of `len` octets, was refused once more: whether to give it up. `dropped`
    /// asks the interface how many frames it has dropped.
    pub fn again(&mut self, len: u32, dropped: impl FnOnce() -> Option<u64>) -> bool {
        let now = monotonic();
        if self.tries == 0 {
            self.since = now;
        }
        self.tries += 1;
        if self.hopeless.is_none_or(|hopeless| len < hopeless) {
            let enough =
                self.tries.is_multiple_of(TRIES) && now.saturating_sub(self.since) >= PATIENCE;
            let Some(counted) = enough.then(dropped).flatten() else { return false };
            let before = self.dropped.replace(counted);
            if before.is_none_or(|before| counted.wrapping_sub(before) < u64::from(TRIES)) {
                return false;
            }
        }
        (self.tries, self.dropped) = (0, None);
        self.hopeless = Some(self.hopeless.map_or(len, |hopeless| hopeless.min(len)));
        true
    }

    /// What was refused until now was for another reason.
    pub fn forget(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_frame_is_tried_for_long_and_those_alike_are_given_up_at_once() {
        let (mut refused, mut drops) = (Refused::default(), 0);
        let mut again = |refused: &mut Refused, len| {
            drops += 1;
            refused.again(len, || Some(drops))
        };
        let begin = monotonic();
        let mut tries = 1;
        while !again(&mut refused, 1500) {
            tries += 1;
        }
        assert!(tries >= 2 * TRIES && monotonic().saturating_sub(begin) >= PATIENCE);
        assert!(again(&mut refused, 1600) && again(&mut refused, 1500), "as long, or longer");
        assert!(!again(&mut refused, 1499));
        refused.left(|| 1400);
        assert!(again(&mut refused, 1500), "a shorter one says nothing of it");
        refused.left(|| 1500);
        assert!(!again(&mut refused, 1500), "there was only no room");
    }

    #[test]
    fn what_the_interface_does_not_count_as_dropped_is_tried_on() {
        let mut refused = Refused::default();
        let begin = monotonic();
        while monotonic().saturating_sub(begin) < Nanos(3 * PATIENCE.0) {
            assert!(!refused.again(1500, || Some(7)));
        }
    }
}
