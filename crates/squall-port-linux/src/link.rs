//! Watches an interface's link: a thread waits for the kernel's notifications, and a queue whose
//! frame was refused asks immediately.

use std::{
    io::{self, PipeReader, PipeWriter},
    os::fd::AsFd,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use squall_port::{Link, LinkEvent, LinkState, OnLinkDown, monotonic};
use squall_units::Nanos;

use crate::{
    netlink::{LinkEvents, Netlink},
    sys,
};

/// Interval of polling in milliseconds: the kernel notifies up to a second late that a NIC lost its
/// carrier (linkwatch limits the rate of events), but answers requests at once.
const POLL_MS: u64 = 10;
/// The same while queues only receive, because no frame is lost in a link that is down, and the
/// kernel counts the changes in between. A request takes 50 to 100 us: 100 a second were a quarter
/// of the CPU time of a capture at 300 kpps.
const RECEIVING_POLL_MS: u64 = 100;
/// The same while no queue waits for the link.
const IDLE_POLL_MS: u64 = 200;

/// An interface's link, and a socket to request its state.
#[derive(Debug)]
pub(crate) struct WatchedLink {
    link: Arc<Link>,
    index: u32,
    query: Mutex<Query>,
    /// Interval of polling, milliseconds.
    interval_ms: AtomicU64,
}

#[derive(Debug)]
struct Query {
    netlink: Netlink,
    /// The kernel's count of carrier changes at the last request.
    changes: Option<u32>,
    /// Changes of this count that are not recorded yet. The flags that also decide whether the link
    /// is up may follow a second later.
    unrecorded: u32,
}

impl WatchedLink {
    pub fn state(&self) -> LinkState {
        self.link.state()
    }

    pub fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// Number of frames that the interface was given and dropped.
    pub fn tx_dropped(&self) -> Option<u64> {
        let query = self.query.lock().unwrap_or_else(PoisonError::into_inner);
        query.netlink.link(self.index).ok().map(|link| link.counters.tx_dropped)
    }

    /// Asks the kernel, and returns the state.
    pub fn look(&self) -> LinkState {
        // One request at a time, because answers must be recorded in order.
        let mut query = self.query.lock().unwrap_or_else(PoisonError::into_inner);
        let now = monotonic();
        match query.netlink.link_state(self.index) {
            Ok(found) => {
                let before = query.changes.replace(found.carrier_changes);
                let more = before.map_or(0, |before| found.carrier_changes.wrapping_sub(before));
                query.unrecorded = query.unrecorded.saturating_add(more);
                query.unrecorded = self.link.set_after(found.can_carry(), query.unrecorded, now);
                self.link.set_mtu(found.mtu, now);
            }
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => self.link.lose(now),
            // The failure may be temporary (no memory for the answer, for example): the next
            // request may succeed.
            Err(_) => {}
        }
        self.link.state()
    }
}

/// The link of a port: watched from the opening of the first queue until the port is dropped.
#[derive(Debug)]
pub(crate) struct PortLink {
    watched: Arc<WatchedLink>,
    /// The subscription; `None` once the thread has it.
    events: Option<LinkEvents>,
    thread: Option<(PipeWriter, JoinHandle<()>)>,
}

impl PortLink {
    /// Watches in the network namespace of the calling thread.
    pub fn new(name: &str, index: u32, on_down: OnLinkDown) -> io::Result<Self> {
        let query = Query { netlink: Netlink::open()?, changes: None, unrecorded: 0 };
        let link = Arc::new(Link::new(name, on_down));
        let interval_ms = AtomicU64::new(u64::MAX);
        let watched = WatchedLink { link, index, query: Mutex::new(query), interval_ms };
        let watched = Arc::new(watched);
        Ok(Self { watched, events: LinkEvents::open().ok(), thread: None })
    }

    pub fn link(&self) -> &Arc<Link> {
        self.watched.link()
    }

    /// The link for a queue that is being opened; starts the thread for the first one.
    pub fn watch(&mut self) -> io::Result<Arc<WatchedLink>> {
        self.watch_every(POLL_MS)
    }

    /// The same for a queue that only receives.
    pub fn watch_receiving(&mut self) -> io::Result<Arc<WatchedLink>> {
        self.watch_every(RECEIVING_POLL_MS)
    }

    fn watch_every(&mut self, interval_ms: u64) -> io::Result<Arc<WatchedLink>> {
        self.watched.interval_ms.fetch_min(interval_ms, Relaxed);
        if self.thread.is_none() {
            let (ended, end) = io::pipe()?;
            let (shared, events) = (self.watched.clone(), self.events.take());
            // The first request gets the state before any change; later changes arrive as
            // notifications. The subscription was opened earlier, so no change is lost in between.
            shared.look();
            let work = move || {
                // The thread must not run on the CPU of the worker that opens the queue.
                sys::move_to_other_cpus();
                watch(&shared, events.as_ref(), &ended);
            };
            self.thread =
                Some((end, thread::Builder::new().name("squall-link".into()).spawn(work)?));
        }
        Ok(self.watched.clone())
    }
}

/// Records changes of an interface's link, whether or not a port is open on it.
#[derive(Debug)]
pub struct LinkWatch {
    port: PortLink,
    /// The last event before the watch began, which does not count as a change.
    first: Option<LinkEvent>,
}

impl LinkWatch {
    /// Watches from now on, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// There is no such interface, or the thread cannot be started.
    pub fn open(name: &str) -> io::Result<Self> {
        let links = Netlink::open()?.links()?;
        let index = links.iter().find(|link| link.name == name).map(|link| link.index);
        let index = index.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
        let mut port = PortLink::new(name, index, OnLinkDown::Wait)?;
        port.watched.look();
        let first = port.link().last();
        port.watch_every(IDLE_POLL_MS)?;
        Ok(Self { port, first })
    }

    /// Time at which the link was last seen to go down or come up; `None`: it has not changed
    /// during the watch.
    pub fn last_change(&self) -> Option<Nanos> {
        let last = self.port.link().last();
        last.filter(|_| last != self.first).map(|event| event.at)
    }
}

impl Drop for PortLink {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.thread.take() {
            drop(end);
            let _ = thread.join();
        }
    }
}

/// Runs until the other end of `ended` is closed.
fn watch(watched: &WatchedLink, events: Option<&LinkEvents>, ended: &PipeReader) {
    loop {
        let every = Duration::from_millis(watched.interval_ms.load(Relaxed));
        let mut waits = vec![ended.as_fd()];
        waits.extend(events.map(LinkEvents::as_fd));
        let ready = sys::wait_readable(&waits, every);
        if ready.first() == Some(&true) {
            return;
        }
        // Without notifications, every timeout is a poll.
        if ready.get(1) != Some(&true)
            || events.is_some_and(|events| events.concerns(watched.index))
        {
            watched.look();
        }
    }
}
