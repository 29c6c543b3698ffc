//! Raw mode of a terminal, in which each key is delivered at once.

use std::{io, os::fd::AsFd};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

/// Puts the terminal into raw mode: each key is delivered immediately, without echo, and Ctrl-C is
/// an ordinary key. Dropping this restores the terminal, even after a panic.
pub struct Raw<T: AsFd> {
    terminal: T,
    before: Termios,
}

impl<T: AsFd> Raw<T> {
    /// # Errors
    /// If `terminal` is not a terminal.
    pub fn enter(terminal: T) -> io::Result<Self> {
        let before = tcgetattr(&terminal)?;
        let mut raw = before.clone();
        // Output processing stays enabled: a newline must still return the cursor.
        raw.local_modes
            .remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG | LocalModes::IEXTEN);
        tcsetattr(&terminal, OptionalActions::Now, &raw)?;
        Ok(Self { terminal, before })
    }
}

impl<T: AsFd> Drop for Raw<T> {
    fn drop(&mut self) {
        // Ignore errors: a closed terminal has no modes to restore.
        _ = tcsetattr(&self.terminal, OptionalActions::Now, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};

    #[test]
    fn a_terminal_is_as_it_was_even_after_a_panic() {
        let main = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&main).expect("it is ours");
        unlockpt(&main).expect("it is open");
        let terminal = ioctl_tiocgptpeer(&main, OpenptFlags::RDWR | OpenptFlags::NOCTTY)
            .expect("its other end");
        let modes = || tcgetattr(&terminal).expect("modes").local_modes;
        let before = modes();
        assert!(before.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG));
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _raw = Raw::enter(&terminal).expect("it can");
            assert!(!modes().intersects(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG));
            panic!("on purpose");
        }));
        assert_eq!(panicked.unwrap_err().downcast_ref::<&str>(), Some(&"on purpose"));
        assert_eq!(modes(), before);
        assert!(Raw::enter(io::pipe().expect("a pipe").0).is_err(), "no terminal");
    }
}
