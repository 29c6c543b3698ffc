//! Links to programs of this machine that speak for themselves.

use std::io;

/// One end of a link whose other end is the interface of another program, such as a routing daemon
/// in a network namespace of its own.
pub trait FrameLink: Send {
    /// Reads the next frame that the program has sent into `into`, without waiting. Returns its
    /// length; `None`: there is none.
    ///
    /// # Errors
    /// The link is gone.
    fn take(&mut self, into: &mut [u8]) -> io::Result<Option<usize>>;

    /// Writes a frame to the program. Returns whether there was room. `partial`: the checksum of
    /// TCP or UDP covers only the pseudo header, because the frame came from a virtual interface.
    ///
    /// # Errors
    /// The link is gone.
    fn give(&mut self, frame: &[u8], partial: bool) -> io::Result<bool>;
}
