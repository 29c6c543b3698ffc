//! Detects that a receiver's interface is gone: a ring that stays empty looks the same on a quiet
//! link and on a removed interface.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use squall_port::LinkState;

use crate::link::WatchedLink;

/// Checks only at every 16th empty poll: a reader that does not sleep finds nothing a million times
/// a second.
const CHECK_EVERY: u32 = 16;

/// Watches the interface of one receive queue.
#[derive(Debug)]
pub(crate) struct Watch {
    /// `None`: the queue is for all interfaces.
    link: Option<Arc<WatchedLink>>,
    /// Time after which the kernel has delivered everything that came before the loss.
    settle: Duration,
    /// Number of empty polls, consecutive or not.
    empty: u32,
    /// When the interface was lost.
    lost: Option<Instant>,
}

impl Watch {
    pub fn new(link: Option<Arc<WatchedLink>>, settle: Duration) -> Self {
        Self { link, settle, empty: 0, lost: None }
    }

    /// To be called when a poll found nothing. `changed` is called now and then: whether the socket
    /// reports that its interface may have been taken down or removed. It has to clear that report,
    /// since poll(2) returns at once while it is pending.
    ///
    /// # Errors
    /// The interface is gone, or is down and must not be ([`squall_port::OnLinkDown`]), and frames
    /// that came before were delivered. While it is down and may come up again, nothing arrives and
    /// there is no error.
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
