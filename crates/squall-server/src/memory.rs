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

/// Whether there is such. An allocator keeps what was freed below what is still used: after a large
/// configuration that is gigabytes, for as long as the daemon runs.
#[derive(Default)]
pub struct Memory(Mutex<Option<Instant>>);

impl Memory {
    /// A request of so many octets is answered; `None`: it did not say how many.
    pub fn used(&self, octets: Option<u64>) {
        if octets.is_none_or(|octets| octets >= LARGE) {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
    }

    /// Gives it back to the system, when that is due.
    pub fn give_back(&self) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_some_and(|last| last.elapsed() >= CALM) {
            *last = None;
            drop(last);
            squall::give_back_memory();
        }
    }
}
