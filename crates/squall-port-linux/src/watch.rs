//! Whether a receiver's interface is still there and up: nothing that arrives says that nothing can arrive any more.

use std::{
    io,
    time::{Duration, Instant},
};

use libc::c_int;

use crate::sys::Socket;

/// Every so many times that there is nothing, somebody looks: who does not sleep finds nothing a million times a second.
const LOOKS: u32 = 16;

/// Looks after the interface of one receiving queue.
#[derive(Debug)]
pub(crate) struct Watch {
    interface: String,
    /// After so long the kernel has given what came before.
    patience: Duration,
    /// Times that there was nothing, in a row or not.
    empty: u32,
    /// Since when the interface is lost.
    lost: Option<(Instant, io::ErrorKind, &'static str)>,
}

/// What the receiving socket says of its interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    /// Nothing.
    None,
    /// That it may have been taken down, or away.
    Changed,
    /// That it is gone, though there may be another of its name.
    Gone,
}

impl Watch {
    pub fn new(interface: &str, patience: Duration) -> Self {
        Self { interface: interface.to_owned(), patience, empty: 0, lost: None }
    }

    /// To be called when nothing has come; `sign` is asked for now and then. `asking` is any socket of the interface's
    /// namespace that is not AF_XDP's.
    ///
    /// # Errors
    /// The interface is gone or was taken down, when what had come before was given. One that was taken down and up again
    /// at once is none: the kernel gives its frames again.
    pub fn nothing_came(&mut self, asking: &Socket, sign: impl FnOnce() -> io::Result<Sign>) -> io::Result<()> {
        self.empty = self.empty.wrapping_add(1);
        if let Some((since, kind, why)) = self.lost {
            if since.elapsed() < self.patience {
                return Ok(());
            }
            return Err(io::Error::new(kind, format!("{}: {why}", self.interface)));
        }
        if !self.empty.is_multiple_of(LOOKS) {
            return Ok(());
        }
        let gone = (io::ErrorKind::NotFound, "the interface is gone");
        let found = match sign()? {
            Sign::None => None,
            Sign::Gone => Some(gone),
            Sign::Changed => match asking.ifreq(libc::SIOCGIFFLAGS as _, &self.interface, [0; 16]) {
                Ok(flags) if c_int::from(i16::from_ne_bytes([flags[0], flags[1]])) & libc::IFF_UP != 0 => None,
                Ok(_) => Some((io::ErrorKind::NetworkDown, "the interface was taken down")),
                Err(_) => Some(gone),
            },
        };
        self.lost = found.map(|(kind, why)| (Instant::now(), kind, why));
        Ok(())
    }
}
