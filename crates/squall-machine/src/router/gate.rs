//! A link that can be silent: it then drops all frames in both directions, while the interface
//! stays up. It also notes when the daemon sends after a step.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use squall_port::{FrameLink, monotonic};
use squall_units::Nanos;

/// Time after a step in which the frames of the daemon are noted.
const WINDOW: Nanos = Nanos::SECOND;

#[derive(Default)]
pub struct Gate {
    silent: AtomicBool,
    /// Times by [`monotonic`], nanoseconds; 0: none. The beginning of the window, and the first and
    /// the last frame in it.
    from: AtomicU64,
    first: AtomicU64,
    last: AtomicU64,
}

impl Gate {
    pub fn silence(&self, silent: bool) {
        self.silent.store(silent, Ordering::Release);
    }

    /// Begins to note the daemon's frames.
    pub fn watch(&self, now: Nanos) {
        self.first.store(0, Ordering::Relaxed);
        self.last.store(0, Ordering::Relaxed);
        self.from.store(now.0, Ordering::Release);
    }

    /// The first and the last frame in the second after [`Gate::watch`].
    pub fn sent(&self) -> Option<(Nanos, Nanos)> {
        let times = [&self.first, &self.last].map(|time| Nanos(time.load(Ordering::Relaxed)));
        times.iter().all(|time| *time > Nanos::ZERO).then_some((times[0], times[1]))
    }

    fn note(&self, now: Nanos) {
        let from = Nanos(self.from.load(Ordering::Acquire));
        if from > Nanos::ZERO && now >= from && now.0 - from.0 <= WINDOW.0 {
            let _ = self.first.compare_exchange(0, now.0, Ordering::Relaxed, Ordering::Relaxed);
            self.last.store(now.0, Ordering::Relaxed);
        }
    }
}

pub struct GatedLink {
    link: Box<dyn FrameLink>,
    gate: Arc<Gate>,
}

impl GatedLink {
    pub fn new(link: Box<dyn FrameLink>, gate: Arc<Gate>) -> Self {
        Self { link, gate }
    }
}

impl FrameLink for GatedLink {
    fn take(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            let taken = self.link.take(into)?;
            // Frames of a silent daemon are dropped when they come, and not kept for later.
            if taken.is_none() || !self.gate.silent.load(Ordering::Acquire) {
                if taken.is_some() {
                    self.gate.note(monotonic());
                }
                return Ok(taken);
            }
        }
    }

    /// Frames for a silent daemon count as dropped.
    fn give(&mut self, frame: &[u8], partial: bool) -> io::Result<bool> {
        match self.gate.silent.load(Ordering::Acquire) {
            true => Ok(false),
            false => self.link.give(frame, partial),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has `0` frames to read, and room for all.
    struct Frames(usize);

    impl FrameLink for Frames {
        fn take(&mut self, _: &mut [u8]) -> io::Result<Option<usize>> {
            let any = self.0 > 0;
            self.0 -= usize::from(any);
            Ok(any.then_some(60))
        }

        fn give(&mut self, _: &[u8], _: bool) -> io::Result<bool> {
            Ok(true)
        }
    }

    #[test]
    fn a_silent_link_drops_frames_both_ways() {
        let gate = Arc::new(Gate::default());
        let mut link = GatedLink::new(Box::new(Frames(5)), gate.clone());
        assert_eq!(link.take(&mut []).unwrap(), Some(60));
        gate.silence(true);
        assert_eq!(link.take(&mut []).unwrap(), None);
        assert!(!link.give(&[], false).unwrap());
        gate.silence(false);
        assert_eq!(link.take(&mut []).unwrap(), None, "they are gone");
        assert!(link.give(&[], false).unwrap());
    }

    #[test]
    fn the_first_and_the_last_frame_after_a_step_are_noted() {
        let gate = Gate::default();
        let s = |seconds: f64| Nanos((seconds * 1e9) as u64);
        gate.note(s(1.0));
        assert_eq!(gate.sent(), None);
        gate.watch(s(2.0));
        [1.9, 2.1, 2.5, 3.0, 3.1].into_iter().for_each(|seconds| gate.note(s(seconds)));
        assert_eq!(gate.sent(), Some((s(2.1), s(3.0))));
        gate.watch(s(4.0));
        assert_eq!(gate.sent(), None);
    }
}
