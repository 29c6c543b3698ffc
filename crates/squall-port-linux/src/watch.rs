//! Detects that a receiver's interface is gone: without a check, the ring of a removed interface
//! just stays empty, as on a quiet link.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use squall_port::LinkState;

use crate::link::WatchedLink;

/// Number of empty polls per check, because a reader that does not sleep polls a million times per
/// second.
const CHECK_EVERY: u32 = 16;

/// Watches the interface of one receive queue.
#[derive(Debug)]
pub(crate) struct Watch {
    /// The interface's link; `None`: the queue is for all interfaces.
    link: Option<Arc<WatchedLink>>,
    /// How long after the loss of the interface the kernel delivers frames that arrived before it.
    settle: Duration,
    /// Number of empty polls, consecutive or not.
    empty: u32,
    /// Time at which the interface was lost.
    lost: Option<Instant>,
}

impl Watch {
    pub fn new(link: Option<Arc<WatchedLink>>, settle: Duration) -> Self {
        Self { link, settle, empty: 0, lost: None }
    }

    /// To be called when a poll found nothing. `changed`, which is called only once per
    /// [`CHECK_EVERY`] polls, returns whether the socket reports that its interface may have been
    /// taken down or removed. It has to clear that report, because poll(2) returns at once while
    /// the report is pending.
    ///
    /// # Errors
    ///
    /// The interface is gone, or is down although it must not be ([`squall_port::OnLinkDown`]);
    /// returned after the frames that arrived before that. While the interface is down and may come
    /// up again, nothing arrives and there is no error.
    pub fn nothing_came(&mut self, changed: impl FnOnce() -> io::Result<bool>) -> io::Result<()> {
        self.empty = self.empty.wrapping_add(1);
        let Some(link) = &self.link else { return Ok(()) };
        if let Some(since) = self.lost {
            return if since.elapsed() < self.settle { Ok(()) } else { Err(link.link().error()) };
        }
        if !self.empty.is_multiple_of(CHECK_EVERY) {
            return Ok(());
        }
        let state = if changed()? { link.look() } else { link.state() };
        self.lost = (state == LinkState::Lost).then(Instant::now);
        Ok(())
    }
}
