//! Whether a receiver's interface is still there: nothing that arrives says that nothing can arrive
//! any more.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use squall_port::LinkState;

use crate::link::Watched;

/// Every so many times that there is nothing, somebody looks: who does not sleep finds nothing a
/// million times a second.
const LOOKS: u32 = 16;

/// Looks after the interface of one receiving queue.
#[derive(Debug)]
pub(crate) struct Watch {
    /// `None`: the queue is of all interfaces.
    link: Option<Arc<Watched>>,
    /// After so long the kernel has given what came before.
    patience: Duration,
    /// Times that there was nothing, in a row or not.
    empty: u32,
    /// Since when the interface is lost.
    lost: Option<Instant>,
}

impl Watch {
    pub fn new(link: Option<Arc<Watched>>, patience: Duration) -> Self {
        Self { link, patience, empty: 0, lost: None }
    }

    /// To be called when nothing has come; `changed` is asked now and then whether the socket says
    /// that its interface may have been taken down, or away. It has to take that sign off: poll(2)
    /// would return at once as long as it is there.
    ///
    /// # Errors
    /// The interface is gone, or is down and must not be ([`squall_port::OnLinkDown`]), when what
    /// had come before was given. While it is down and may come up again, nothing comes.
    pub fn nothing_came(&mut self, changed: impl FnOnce() -> io::Result<bool>) -> io::Result<()> {
        self.empty = self.empty.wrapping_add(1);
        let Some(link) = &self.link else { return Ok(()) };
        if let Some(since) = self.lost {
            return if since.elapsed() < self.patience { Ok(()) } else { Err(link.link().error()) };
        }
        if !self.empty.is_multiple_of(LOOKS) {
            return Ok(());
        }
        let state = if changed()? { link.look() } else { link.state() };
        self.lost = (state == LinkState::Lost).then(Instant::now);
        Ok(())
    }
}
