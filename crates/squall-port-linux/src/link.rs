//! Watches an interface's link: a thread waits for the kernel to say that something changed, and
//! whoever is refused a frame asks at once.

use std::{
    io::{self, PipeReader, PipeWriter},
    os::fd::AsFd,
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use squall_port::{Link, LinkEvent, LinkState, OnLinkDown, monotonic};
use squall_units::Nanos;

use crate::{
    netlink::{LinkNews, Netlink},
    sys,
};

/// The kernel tells of a carrier that a NIC lost up to a second late (linkwatch), but knows at
/// once.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Where nothing waits for the link, it need not be asked for as often.
const LOOK_IDLY: Duration = Duration::from_millis(200);

/// An interface's link, and how to ask for its state.
#[derive(Debug)]
pub(crate) struct Watched {
    link: Arc<Link>,
    index: u32,
    asking: Mutex<Asking>,
}

#[derive(Debug)]
struct Asking {
    netlink: Netlink,
    /// How often the carrier had changed at the last look.
    changes: Option<u32>,
}

impl Watched {
    pub fn state(&self) -> LinkState {
        self.link.state()
    }

    pub fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// Frames that the interface has dropped instead of sending them.
    pub fn tx_dropped(&self) -> Option<u64> {
        let asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        asking.netlink.link(self.index).ok().map(|link| link.counters.tx_dropped)
    }

    /// Asks the kernel now, and says what it is.
    pub fn look(&self) -> LinkState {
        // One at a time: of two answers the later one is to be noted last.
        let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let now = monotonic();
        match asking.netlink.link(self.index) {
            Ok(found) => {
                let up = found.can_carry();
                let before = asking.changes.replace(found.carrier_changes);
                let changes = before.map_or(0, |before| found.carrier_changes.wrapping_sub(before));
                if up && changes >= 2 && self.link.is_up() {
                    self.link.flapped(now);
                }
                self.link.set(up, now);
                self.link.set_mtu(found.mtu, now);
            }
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => self.link.lose(now),
            // No memory for the answer, for example: the next look may tell.
            Err(_) => {}
        }
        self.link.state()
    }
}

/// Of a port: begins to watch when its first queue is opened, and ends with the port.
#[derive(Debug)]
pub(crate) struct PortLink {
    watched: Arc<Watched>,
    /// Until the thread has it.
    news: Option<LinkNews>,
    thread: Option<(PipeWriter, JoinHandle<()>)>,
}

impl PortLink {
    /// In the network namespace of the calling thread.
    pub fn new(name: &str, index: u32, on_down: OnLinkDown) -> io::Result<Self> {
        let asking = Asking { netlink: Netlink::open()?, changes: None };
        let link = Arc::new(Link::new(name, on_down));
        let watched = Arc::new(Watched { link, index, asking: Mutex::new(asking) });
        Ok(Self { watched, news: LinkNews::open().ok(), thread: None })
    }

    pub fn link(&self) -> &Arc<Link> {
        self.watched.link()
    }

    /// For a queue that is opened now.
    pub fn watch(&mut self) -> io::Result<Arc<Watched>> {
        self.watch_every(LOOK_EVERY)
    }

    fn watch_every(&mut self, every: Duration) -> io::Result<Arc<Watched>> {
        if self.thread.is_none() {
            let (ended, end) = io::pipe()?;
            let (theirs, news) = (self.watched.clone(), self.news.take());
            // What happened before is seen now, what happens from here on is told.
            theirs.look();
            let work = move || {
                // Not on the CPU of the worker that opens the queue.
                sys::go_elsewhere();
                watch(&theirs, news.as_ref(), &ended, every);
            };
            self.thread =
                Some((end, thread::Builder::new().name("squall-link".into()).spawn(work)?));
        }
        Ok(self.watched.clone())
    }
}

/// Notes when an interface's link changes, whether or not a port is open on it.
#[derive(Debug)]
pub struct LinkWatch {
    port: PortLink,
    /// What stood when it began to watch, which is no change.
    first: Option<LinkEvent>,
}

impl LinkWatch {
    /// From now on, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// There is no such interface, or no thread can be started.
    pub fn open(name: &str) -> io::Result<Self> {
        let links = Netlink::open()?.links()?;
        let index = links.iter().find(|link| link.name == name).map(|link| link.index);
        let index = index.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
        let mut port = PortLink::new(name, index, OnLinkDown::Wait)?;
        port.watched.look();
        let first = port.link().last();
        port.watch_every(LOOK_IDLY)?;
        Ok(Self { port, first })
    }

    /// When the link was last seen to go down or come up; `None`: not since it is watched.
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

/// Until the other end of `ended` is closed.
fn watch(watched: &Watched, news: Option<&LinkNews>, ended: &PipeReader, every: Duration) {
    loop {
        let mut waits = vec![ended.as_fd()];
        waits.extend(news.map(LinkNews::as_fd));
        let told = sys::wait_readable(&waits, every);
        if told.first() == Some(&true) {
            return;
        }
        // Where nothing is told, as often as one looks.
        if told.get(1) != Some(&true) || news.is_some_and(|news| news.concern(watched.index)) {
            watched.look();
        }
    }
}
