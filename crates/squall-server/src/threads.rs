//! Two kinds of threads: serving threads have a lower priority than those that generate traffic, so
//! that many clients cannot slow down the traffic that they measure. Linux gives a new thread the
//! nice value of its creator, and lowering the value again needs a privilege (setpriority(2)). All
//! work that starts traffic therefore runs on threads whose ancestors never served.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, mpsc},
    thread,
};

use tokio::sync::oneshot;

use crate::{error::Refusal, identity::identity, service::Service, work};

/// Nice value added to serving threads. They yield to traffic, because many watchers would
/// otherwise slow it (ADR 0034). On CPUs that are busy with traffic, they get about a tenth of a
/// CPU each, which still suffices to reply.
const NICE: i32 = 10;

type Job = Box<dyn FnOnce() + Send>;

/// Runs work that starts or changes traffic.
#[derive(Clone)]
pub struct Acting(mpsc::Sender<Job>);

impl Acting {
    /// Starts the thread that creates workers. They inherit the caller's priority.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn new() -> Result<Self, squall::Error> {
        let (send, jobs) = mpsc::channel::<Job>();
        let each = move || {
            for job in jobs {
                // If no thread can be started, the job and its sender are dropped, so the client
                // gets an error.
                _ = thread::Builder::new().name("squall-act".into()).spawn(job);
            }
        };
        let started = thread::Builder::new().name("squall-acting".into()).spawn(each);
        started.map_err(|error| {
            squall::Error::Environment(format!("cannot start a thread: {error}"))
        })?;
        Ok(Self(send))
    }

    /// Runs `work` on a thread that may block and may start threads that generate traffic. Returns
    /// `None` if it panicked.
    pub async fn act<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (send, result) = oneshot::channel();
        let (identity, of) = (identity(), work::current());
        let job = move || {
            // Holds the memory accounting until the end. Not set as the current work, because this
            // work continues even if its client leaves.
            let _of = of;
            if let Ok(done) = catch_unwind(AssertUnwindSafe(|| identity.with(work))) {
                // The client may have left by now.
                _ = send.send(done);
            }
        };
        self.0.send(Box::new(job)).ok()?;
        result.await.ok()
    }
}

/// Runs `work`, which starts or changes traffic, on a thread that may block.
///
/// # Errors
/// Errors of `work`; a panic in it.
pub async fn acting<T: Send + 'static>(
    service: Arc<Service>,
    work: impl FnOnce(&Arc<Service>) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let acting = service.acting.clone();
    acting.act(move || work(&service)).await.unwrap_or_else(|| Err(Refusal::defect()))
}

/// Runs `work`, which starts no traffic, on a thread that may block.
///
/// # Errors
/// Errors of `work`; a panic in it.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    looking(work).await.unwrap_or_else(|| Err(Refusal::defect()))
}

/// As [`blocking`], but returns `None` if it panicked.
pub async fn looking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (identity, of) = (identity(), work::current());
    let work = move || identity.with(work);
    tokio::task::spawn_blocking(move || match of {
        Some(of) => of.with(work),
        None => work(),
    })
    .await
    .ok()
}

/// A hook for thread starts that lowers a thread's priority relative to the caller's.
pub fn giving_way() -> impl Fn() + Send + Sync + 'static {
    // 19 is Linux's lowest priority.
    let nice = rustix::process::getpriority_process(None).map(|own| (own + NICE).min(19));
    move || {
        // If the kernel refuses, the thread keeps its priority.
        _ = nice.and_then(|nice| rustix::process::setpriority_process(None, nice));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_serve_give_way_and_those_that_act_do_not() {
        let nice = || rustix::process::getpriority_process(None).expect("of this thread");
        let before = nice();
        let acting = Acting::new().expect("a thread");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .on_thread_start(giving_way())
            .build();
        let served = runtime.expect("threads").block_on(async {
            tokio::spawn(async move {
                let looked = blocking(move || Ok(nice())).await.expect("it does not fail");
                let panicked = acting.act(|| panic!("on purpose")).await.map(|(): ()| 0);
                (nice(), looked, acting.act(nice).await, panicked)
            })
            .await
        });
        let gives = (before + NICE).min(19);
        assert_eq!(served.expect("it ends"), (gives, gives, Some(before), None));
    }
}
