//! Returns memory to the system after large requests.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Minimum octets of a request's body after which memory is returned. Small, because the parsed
/// values take ten to thirty times as much.
const MIN_BODY: u64 = 256 << 10;
/// Time from the last large request to the return of memory. An earlier return would slow down a
/// series of requests, because the kernel must supply each freed page again on its next use.
const IDLE_TIME: Duration = Duration::from_secs(2);
/// Maximum time from the first large request to the return of memory, so that a steady series
/// cannot postpone it forever.
const MAX_DELAY: Duration = Duration::from_secs(6);

/// Large requests since memory was last returned. Without returning it, the allocator keeps freed
/// memory that lies below memory in use: gigabytes after a large configuration, for as long as the
/// daemon runs.
#[derive(Default)]
pub struct Memory(Mutex<Option<Used>>);

#[derive(Clone, Copy)]
struct Used {
    first: Instant,
    last: Instant,
}

impl Memory {
    /// Notes the end of a request with a body of `octets` (`None`: no declared length).
    pub fn used(&self, octets: Option<u64>) {
        if octets.is_none_or(|octets| octets >= MIN_BODY) {
            let now = Instant::now();
            let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            used.get_or_insert(Used { first: now, last: now }).last = now;
        }
    }

    /// Returns memory to the system if it is time to.
    pub fn give_back(&self) {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due =
            |used: Used| used.last.elapsed() >= IDLE_TIME || used.first.elapsed() >= MAX_DELAY;
        if used.is_some_and(due) {
            *used = None;
            drop(used);
            squall_port_linux::trim_heap();
        }
    }

    #[cfg(test)]
    pub fn is_due(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}
