//! Two kinds of threads. Those that serve give way to those that make traffic: what many clients
//! ask must not slow what they measure. A thread starts as willing to give way as the one that made
//! it, and cannot be less so later without privileges, so whatever starts traffic is done on
//! threads that never served.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, mpsc},
    thread,
};

use tokio::sync::oneshot;

use crate::{author::author, error::Refusal, service::Service, work};

/// How much those that serve give way: with the CPUs full of traffic they have a tenth of one each,
/// which answers still.
const WAY: i32 = 10;

type Job = Box<dyn FnOnce() + Send>;

/// Does what starts traffic.
#[derive(Clone)]
pub struct Acting(mpsc::Sender<Job>);

impl Acting {
    /// As willing to give way as the thread that calls this.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn new() -> Result<Self, squall::Error> {
        let (send, jobs) = mpsc::channel::<Job>();
        let each = move || {
            for job in jobs {
                // What cannot have a thread is dropped, and with it the sender that its client
                // waits for.
                _ = thread::Builder::new().name("squall-act".into()).spawn(job);
            }
        };
        let started = thread::Builder::new().name("squall-acting".into()).spawn(each);
        started.map_err(|error| {
            squall::Error::Environment(format!("cannot start a thread: {error}"))
        })?;
        Ok(Self(send))
    }

    /// Does `work` on a thread where it may take its time, and start others that make traffic;
    /// `None`: it panicked.
    pub async fn act<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (tell, told) = oneshot::channel();
        let (author, of) = (author(), work::current());
        let job = move || {
            // Held for its memory: what was begun here ends whether or not its client waits.
            let _of = of;
            if let Ok(done) = catch_unwind(AssertUnwindSafe(|| author.with(work))) {
                // Who has gone away misses what was done.
                _ = tell.send(done);
            }
        };
        self.0.send(Box::new(job)).ok()?;
        told.await.ok()
    }
}

/// Does `work`, which starts traffic or changes it, on a thread where it may take its time.
///
/// # Errors
/// Those of `work`; a panic in it.
pub async fn acting<T: Send + 'static>(
    service: Arc<Service>,
    work: impl FnOnce(&Arc<Service>) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let acting = service.acting.clone();
    acting.act(move || work(&service)).await.unwrap_or_else(|| Err(Refusal::defect()))
}

/// Does `work`, which starts no traffic, on a thread where it may take its time.
///
/// # Errors
/// Those of `work`; a panic in it.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    looking(work).await.unwrap_or_else(|| Err(Refusal::defect()))
}

/// As [`blocking`]; `None`: it panicked.
pub async fn looking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (author, of) = (author(), work::current());
    let work = move || author.with(work);
    tokio::task::spawn_blocking(move || match of {
        Some(of) => of.with(work),
        None => work(),
    })
    .await
    .ok()
}

/// What a thread does first to give way to those that make traffic, which give way as much as the
/// one that calls this.
pub fn giving_way() -> impl Fn() + Send + Sync + 'static {
    let way = rustix::process::getpriority_process(None).map(|own| (own + WAY).min(19));
    move || {
        // Where this is refused it is a thread as the others.
        _ = way.and_then(|way| rustix::process::setpriority_process(None, way));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_serve_give_way_and_those_that_act_do_not() {
        let way = || rustix::process::getpriority_process(None).expect("of this thread");
        let before = way();
        let acting = Acting::new().expect("a thread");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .on_thread_start(giving_way())
            .build();
        let served = runtime.expect("threads").block_on(async {
            tokio::spawn(async move {
                let looked = blocking(move || Ok(way())).await.expect("it does not fail");
                let panicked = acting.act(|| panic!("on purpose")).await.map(|(): ()| 0);
                (way(), looked, acting.act(way).await, panicked)
            })
            .await
        });
        let gives = (before + WAY).min(19);
        assert_eq!(served.expect("it ends"), (gives, gives, Some(before), None));
    }
}
