//! Routers of a port. A routing daemon has a link: its frames leave through the port, and received
//! frames for it go to it. Routers share a port's place among the sources with its hosts.

use squall_host::FrameQueue;
use squall_port::FrameLink;
use squall_router::DaemonState;
use squall_units::{MacAddr, Nanos};

use crate::native::NativeRouter;

/// Frames between a router and its port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouterStats {
    /// Number of the router in the plan.
    pub router: usize,
    /// Frames from the daemon, which wait for the port or have left.
    pub sent: u64,
    /// Frames that the daemon got, and frames for which its interface had no room.
    pub received: u64,
    pub dropped: u64,
    /// Why the link ended before the end of the run.
    pub error: Option<String>,
    /// The state of a native router, as of the end of the run.
    pub native: Option<Box<DaemonState>>,
}

/// Shortest and longest time between two reads of an idle link. Each is a system call, and delays
/// a daemon's packet by half of it on average.
const POLL: [Nanos; 2] = [Nanos(50_000), Nanos(1_000_000)];
/// Frames that are read at once, so that the other sources have their turn.
const BATCH: usize = 64;

/// Due time of routers' frames: the port's audit counts them as due when they leave. Their times
/// are those of a daemon or of TCP, and no schedule of the generator.
pub(crate) const UNSCHEDULED: Nanos = Nanos(u64::MAX);

/// A router of a port.
pub(crate) enum RouterEnd {
    Daemon(DaemonLink),
    Native(Box<NativeRouter>),
}

impl RouterEnd {
    /// Time of its next turn, on the engine's clock. `stopped`: the run is over, and no link is
    /// read.
    pub fn next_due(&self, stopped: bool) -> Option<Nanos> {
        match self {
            Self::Daemon(link) => (link.is_open() && !stopped).then_some(link.poll),
            Self::Native(router) => router.next_due(),
        }
    }

    /// Takes its turn. Returns whether anything moved.
    pub fn advance(&mut self, now: Nanos, stopped: bool, queues: &mut RouterQueues<'_>) -> bool {
        match self {
            // A daemon never stops to send, and the run would not end.
            Self::Daemon(link) => !stopped && link.read(now, queues.shared),
            Self::Native(router) => router.advance(now, queues.native),
        }
    }

    /// Handles a frame that arrived at `now`. Returns whether it was for this router alone.
    pub fn receive(&mut self, now: Nanos, octets: (&[u8], bool), native: &mut FrameQueue) -> bool {
        match self {
            Self::Daemon(link) => link.receive(octets.0, octets.1),
            Self::Native(router) => router.receive(now, octets, native),
        }
    }

    /// The run is over: native routers end their sessions.
    pub fn stop(&mut self, now: Nanos, native: &mut FrameQueue) {
        if let Self::Native(router) = self {
            router.stop(now, native);
        }
    }

    /// Whether nothing is left to do after the stop.
    pub fn is_over(&self) -> bool {
        match self {
            Self::Daemon(_) => true,
            Self::Native(router) => router.is_over(),
        }
    }

    pub fn stats(&self) -> RouterStats {
        match self {
            Self::Daemon(link) => link.stats.clone(),
            Self::Native(router) => router.stats(),
        }
    }
}

/// Queues of a port: that of all sources, and that of its native routers.
pub(crate) struct RouterQueues<'a> {
    pub shared: &'a mut FrameQueue,
    pub native: &'a mut FrameQueue,
}

/// The engine's end of the link of a daemon.
pub(crate) struct DaemonLink {
    mac: MacAddr,
    link: Box<dyn FrameLink>,
    pub stats: RouterStats,
    /// Time of the next read, and the pause after it if there is nothing, on the engine's clock.
    pub poll: Nanos,
    pause: Nanos,
    buffer: Vec<u8>,
}

impl DaemonLink {
    pub fn new(router: usize, mac: MacAddr, link: Box<dyn FrameLink>) -> Self {
        let stats = RouterStats { router, ..RouterStats::default() };
        let buffer = vec![0; 1 << 16];
        Self { mac, link, stats, poll: Nanos::ZERO, pause: POLL[0], buffer }
    }

    pub fn is_open(&self) -> bool {
        self.stats.error.is_none()
    }

    /// Reads frames of the daemon into `queue`, if it is time. Returns whether there were any.
    pub fn read(&mut self, now: Nanos, queue: &mut FrameQueue) -> bool {
        if now < self.poll || !self.is_open() {
            return false;
        }
        let before = self.stats.sent;
        for _ in 0..BATCH {
            match self.link.take(&mut self.buffer) {
                Ok(Some(len)) => {
                    let frame = &self.buffer[..len];
                    queue.push(UNSCHEDULED, |out| out.extend_from_slice(frame));
                    self.stats.sent += 1;
                }
                Ok(None) => break,
                Err(error) => {
                    self.stats.error = Some(error.to_string());
                    break;
                }
            }
        }
        let any = self.stats.sent > before;
        self.pause = if any { POLL[0] } else { Nanos(2 * self.pause.0).min(POLL[1]) };
        self.poll = if self.stats.sent - before == BATCH as u64 { now } else { now + self.pause };
        any
    }

    /// Passes a received frame to the daemon if it is for it or for a group. Returns whether it was
    /// for it alone.
    pub fn receive(&mut self, frame: &[u8], partial: bool) -> bool {
        let Some(to) = frame.first_chunk::<6>() else { return false };
        let is_own = *to == self.mac.0;
        if !self.is_open() || !is_own && to[0] & 1 == 0 {
            return false;
        }
        match self.link.give(frame, partial) {
            Ok(true) => self.stats.received += 1,
            Ok(false) => self.stats.dropped += 1,
            Err(error) => self.stats.error = Some(error.to_string()),
        }
        // An answer comes soon.
        (self.poll, self.pause) = (Nanos::ZERO, POLL[0]);
        is_own
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::VecDeque,
        io,
        sync::{Arc, Mutex},
    };

    use super::*;

    /// Both directions of a link.
    type Frames = Arc<Mutex<[VecDeque<Vec<u8>>; 2]>>;

    struct TestLink(Frames);

    impl FrameLink for TestLink {
        fn take(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
            let Some(frame) = self.0.lock().unwrap()[0].pop_front() else { return Ok(None) };
            if frame.is_empty() {
                return Err(io::Error::other("gone"));
            }
            into[..frame.len()].copy_from_slice(&frame);
            Ok(Some(frame.len()))
        }

        fn give(&mut self, frame: &[u8], _partial: bool) -> io::Result<bool> {
            let to = &mut self.0.lock().unwrap()[1];
            let has_room = to.len() < 2;
            to.extend(has_room.then(|| frame.to_vec()));
            Ok(has_room)
        }
    }

    fn end() -> (DaemonLink, Frames) {
        let frames = Frames::default();
        let link = Box::new(TestLink(frames.clone()));
        (DaemonLink::new(0, MacAddr([2, 0, 0, 0, 0, 9]), link), frames)
    }

    #[test]
    fn a_router_has_its_own_frames_and_those_of_groups() {
        let (mut end, frames) = end();
        let frame = |to: [u8; 6]| [&to[..], &[0; 60]].concat();
        assert!(end.receive(&frame([2, 0, 0, 0, 0, 9]), false));
        assert!(!end.receive(&frame([2, 0, 0, 0, 0, 8]), false));
        assert!(!end.receive(&frame([0xff; 6]), false));
        assert!(!end.receive(&[2, 0], false));
        assert_eq!((end.stats.received, end.stats.dropped), (2, 0));
        assert_eq!(frames.lock().unwrap()[1].len(), 2);
        // The interface is full.
        assert!(end.receive(&frame([2, 0, 0, 0, 0, 9]), false));
        assert_eq!((end.stats.received, end.stats.dropped), (2, 1));
    }

    #[test]
    fn an_idle_link_is_read_less_often_and_a_busy_one_at_once() {
        let (mut end, frames) = end();
        let mut queue = FrameQueue::default();
        let mut now = Nanos::ZERO;
        let mut reads = 0;
        while now < Nanos(10_000_000) {
            reads += u32::from(end.poll <= now);
            assert!(!end.read(now, &mut queue));
            now = now + Nanos(10_000);
        }
        assert!((10..20).contains(&reads), "{reads}");
        // A received frame ends the pause.
        end.receive(&[0xff; 60], false);
        frames.lock().unwrap()[0].extend((0..BATCH + 3).map(|_| vec![7; 70]));
        assert!(end.read(now, &mut queue));
        assert_eq!((queue.len(), end.poll), (BATCH, now));
        assert!(end.read(now, &mut queue));
        assert_eq!((queue.len(), end.poll), (BATCH + 3, now + POLL[0]));
        frames.lock().unwrap()[0].push_back(Vec::new());
        end.read(end.poll, &mut queue);
        assert_eq!(end.stats.error.as_deref(), Some("gone"));
        assert!(!end.receive(&[0xff; 60], false));
    }
}
