//! Memory that a large request needed, and nobody needs any more.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Octets of a body that leave much behind: its values take ten to thirty times as much.
const LARGE: u64 = 256 << 10;
/// After the last such request. Others may follow, and who reads a page of freed memory again has
/// to wait for it.
const CALM: Duration = Duration::from_secs(2);
/// After the first of them, however many follow.
const LATEST: Duration = Duration::from_secs(6);

/// Whether there is such. An allocator keeps what was freed below what is still used: after a large
/// configuration that is gigabytes, for as long as the daemon runs.
#[derive(Default)]
pub struct Memory(Mutex<Option<Used>>);

#[derive(Clone, Copy)]
struct Used {
    first: Instant,
    last: Instant,
}

impl Memory {
    /// The work for a request of that many octets has ended; `None`: it did not declare them.
    pub fn used(&self, octets: Option<u64>) {
        if octets.is_none_or(|octets| octets >= LARGE) {
            let now = Instant::now();
            let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            used.get_or_insert(Used { first: now, last: now }).last = now;
        }
    }

    /// Gives it back to the system, when that is due.
    pub fn give_back(&self) {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due = |used: Used| used.last.elapsed() >= CALM || used.first.elapsed() >= LATEST;
        if used.is_some_and(due) {
            *used = None;
            drop(used);
            squall_port_linux::give_back_memory();
        }
    }

    #[cfg(test)]
    pub fn is_due(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}
