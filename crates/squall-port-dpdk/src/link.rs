//! Watches a device's link. Few drivers notify of changes, so a thread polls.

use std::{
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::device::Device;

const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A thread that polls the link until this value is dropped.
pub struct LinkWatch {
    thread: Option<(mpsc::Sender<()>, JoinHandle<()>)>,
}

impl LinkWatch {
    pub fn start(device: &Arc<Device>) -> std::io::Result<Self> {
        let (end, ended) = mpsc::channel::<()>();
        let device = device.clone();
        // Reads the state before the thread starts, because queues read it as soon as they are
        // open.
        device.refresh_link();
        let work = move || {
            while ended.recv_timeout(POLL_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                device.refresh_link();
            }
        };
        let thread = thread::Builder::new().name("squall-link".into()).spawn(work)?;
        Ok(Self { thread: Some((end, thread)) })
    }
}

impl Drop for LinkWatch {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.thread.take() {
            // Ends the thread's wait at once: closing a port must not take a whole interval.
            drop(end);
            let _ = thread.join();
        }
    }
}
