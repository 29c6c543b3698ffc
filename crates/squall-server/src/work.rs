//! Tracks the work for a request: work without side effects stops when the client disconnects, and
//! its memory returns to the system.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use crate::memory::Memory;

tokio::task_local! {
    static WORK: Work;
}

/// Shared by all threads that work for one request. Dropping the last copy reports the request's
/// memory as free.
#[derive(Clone)]
pub struct Work(Arc<State>);

struct State {
    /// Whether the client has left.
    gone: AtomicBool,
    /// Octets of the request's body, if declared.
    octets: Option<u64>,
    memory: Arc<Memory>,
}

impl Drop for State {
    fn drop(&mut self) {
        self.memory.used(self.octets);
    }
}

/// Held while the client waits. When the client disconnects, hyper drops the handler, and with it
/// this guard.
pub struct Waiting(Work);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.0.gone.store(true, Ordering::Relaxed);
    }
}

impl Work {
    /// Work for a request with a body of `octets` (`None`: unknown).
    pub fn of(octets: Option<u64>, memory: &Arc<Memory>) -> Self {
        Self(Arc::new(State { gone: AtomicBool::new(false), octets, memory: memory.clone() }))
    }

    pub fn waiting(&self) -> Waiting {
        Waiting(self.clone())
    }

    pub async fn during<F: Future>(self, work: F) -> F::Output {
        WORK.scope(self, work).await
    }

    pub fn with<T>(self, work: impl FnOnce() -> T) -> T {
        WORK.sync_scope(self, work)
    }
}

/// The work of the current thread or task; `None` for the daemon's own work.
pub fn current() -> Option<Work> {
    WORK.try_with(Clone::clone).ok()
}

/// Whether the client of the current work has left. Only work without side effects checks this. A
/// run whose client has left must start anyway, because other requests may show it already; its
/// lease ends it.
pub fn is_abandoned() -> bool {
    WORK.try_with(|work| work.0.gone.load(Ordering::Relaxed)).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_knows_on_every_thread_that_its_client_has_left() {
        let memory = Arc::new(Memory::default());
        let work = Work::of(Some(1 << 20), &memory);
        let waiting = work.waiting();
        assert!(!is_abandoned() && !work.clone().with(is_abandoned));
        drop(waiting);
        let there = work.clone();
        assert!(std::thread::spawn(move || there.with(is_abandoned)).join().expect("it ends"));
        assert!(!memory.is_due(), "a thread still works");
        drop(work);
        assert!(memory.is_due());
    }
}
