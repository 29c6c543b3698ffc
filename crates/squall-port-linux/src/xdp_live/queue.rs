//! A transmit queue for a program in the kernel: the queue writes frames into a ring of slots that
//! it shares with the program, and its own thread is in the system call that runs the program.
//!
//! Entering and leaving that call takes some 25 ms, and inside it the program polls for frames all
//! the time. So a queue without frames for [`LINGER`] leaves the call, and enters it again with the
//! next frame. Frames that are sent [`AHEAD`] of their time are still punctual. The owner of the
//! queue must call [`TxQueue::outcomes`] regularly.

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use squall_port::{
    BATCH, LinkState, Remote, SendError, TxBatch, TxMeta, TxOutcome, TxQueue, monotonic,
};
use squall_units::Nanos;

use super::{
    Call, SharedCall,
    program::{
        ATTENTION, BROKEN, DROPPED, FULL_SINCE, GONE, HEAD, LINK_DOWN, Layout, MIN_FRAME, REFUSED,
        RESULTS, SEEN, SKIPPED, SLOTS, TAIL, UNDER_WAY, WAITING,
    },
};
use crate::sys;

/// How long before their departure frames are taken: several times as long as entering the call
/// takes.
pub const AHEAD: Nanos = Nanos(100_000_000);
/// The thread leaves the call after this time without frames.
const LINGER: Nanos = Nanos(50_000_000);
/// Timeout for the program to see that it has to rest, or to start; each takes milliseconds.
const TIMEOUT: Nanos = Nanos(2_000_000_000);

pub struct LiveTx {
    shared: Arc<SharedCall>,
    interface: String,
    layout: Layout,
    meta: Vec<TxMeta>,
    /// Number of the next frame to report, and of the next frame to put into the ring; `lent` slots
    /// from the latter on are lent.
    reported: u64,
    head: u64,
    lent: usize,
    outcomes: Vec<TxOutcome>,
    hold_number: u64,
    /// The link is down, and the program rests.
    resting: bool,
    /// Number of link changes when a kernel error was last discarded.
    discarded_at: usize,
    /// When the ring became empty; not updated in each call.
    idle_since: Option<Nanos>,
    runner: Arc<Runner>,
    thread: Option<JoinHandle<()>>,
}

/// State that the queue and its thread share, in addition to the memory.
struct Runner {
    /// Whether the thread should be in the call; and whether it should end.
    wanted: AtomicBool,
    ending: AtomicBool,
    failed: AtomicBool,
    error: Mutex<Option<io::Error>>,
}

impl LiveTx {
    /// Returns once the program runs.
    ///
    /// # Errors
    /// The kernel has no live frames, or did not start the program within some seconds.
    pub fn new(call: Call, layout: Layout) -> io::Result<Self> {
        let shared = call.shared.clone();
        let runner = Arc::new(Runner {
            wanted: AtomicBool::new(true),
            ending: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            error: Mutex::new(None),
        });
        let for_thread = runner.clone();
        let work = move || {
            sys::move_to_other_cpus();
            for_thread.run(&call);
        };
        let thread = thread::Builder::new().name("squall-live".into()).spawn(work)?;
        let mut queue = Self {
            interface: shared.interface.clone(),
            shared,
            layout,
            meta: vec![TxMeta::default(); SLOTS],
            reported: 0,
            head: 0,
            lent: 0,
            outcomes: Vec::with_capacity(BATCH),
            hold_number: 0,
            resting: false,
            discarded_at: 0,
            idle_since: None,
            runner,
            thread: Some(thread),
        };
        // Waits for the program's first run, which the first frames would otherwise wait for.
        let begun = queue.hold();
        queue.set(ATTENTION, 0);
        queue.trouble()?;
        if !begun {
            let text = format!("{}: the program did not start within 2 s", queue.interface);
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        Ok(queue)
    }

    fn get(&self, word: usize) -> u64 {
        self.shared.memory.word(word).load(Ordering::Acquire)
    }

    fn set(&self, word: usize, value: u64) {
        self.shared.memory.word(word).store(value, Ordering::Release);
    }

    /// Waits until the program has seen that it has to rest, or does not run; false after a
    /// timeout.
    fn hold(&mut self) -> bool {
        self.hold_number += 1;
        self.set(ATTENTION, self.hold_number);
        let deadline = monotonic() + TIMEOUT;
        while self.get(SEEN) != self.hold_number {
            let runs = self.runner.wanted.load(Ordering::Acquire) || self.shared.is_in_call();
            if !runs || self.runner.failed.load(Ordering::Acquire) {
                return true;
            }
            if monotonic() > deadline {
                return false;
            }
            thread::sleep(Duration::from_micros(20));
        }
        true
    }

    /// Lets the program continue if the link is up.
    fn release(&self) {
        if !self.resting {
            self.set(ATTENTION, 0);
        }
    }

    /// While the link is down the program rests, and frames that become due are given up. Otherwise
    /// the program would offer each of them to the driver for a long time, and later ones would
    /// leave in a burst when the link is up.
    fn follow_link(&mut self) {
        let up = self.shared.link.state() == LinkState::Up;
        if up && self.resting {
            self.resting = false;
            self.set(FULL_SINCE, 0);
            self.release();
        }
        if up || (!self.resting && !self.hold()) {
            return;
        }
        self.resting = true;
        // Frames in flight may still be put back; until then only the program knows the number of
        // the next frame.
        if self.get(UNDER_WAY.pending) != 0 {
            return;
        }
        let now = monotonic();
        let mut tail = self.get(TAIL);
        while tail < self.head {
            let slot = tail as usize % SLOTS;
            if self.get(RESULTS + slot) == WAITING {
                if self.meta[slot].due > now {
                    break;
                }
                self.set(RESULTS + slot, LINK_DOWN);
            }
            tail += 1;
        }
        // The program continues after these frames: otherwise it would send them once their results
        // are cleared.
        self.set(TAIL, tail);
    }

    /// Makes the thread enter the call, if it is outside.
    fn wake(&mut self) {
        self.idle_since = None;
        if !self.runner.wanted.load(Ordering::Relaxed) {
            self.runner.wanted.store(true, Ordering::Release);
            self.thread.iter().for_each(|thread| thread.thread().unpark());
        }
    }

    /// Makes the thread leave the call when the ring has been empty for a while.
    fn rest_if_idle(&mut self) {
        if self.runner.wanted.load(Ordering::Relaxed) {
            let now = monotonic();
            let since = *self.idle_since.get_or_insert(now);
            if now.saturating_sub(since) < LINGER {
                return;
            }
            self.runner.wanted.store(false, Ordering::Release);
        }
        // Repeated until the thread leaves, because a signal just before the call has no effect.
        self.shared.interrupt();
    }

    /// Returns an error if nothing more will leave.
    fn trouble(&mut self) -> io::Result<()> {
        let name = &self.interface;
        if self.get(BROKEN) != 0 {
            return Err(io::Error::other(format!(
                "{name}: the program in the kernel is in an impossible state; this is a bug in \
                 Squall"
            )));
        }
        let link = self.shared.link.link();
        if self.get(GONE) != 0 {
            link.lose(monotonic());
        }
        if link.state() == LinkState::Lost {
            return Err(link.error());
        }
        let errors = [UNDER_WAY.driver_error, UNDER_WAY.redirect_error];
        for word in errors {
            let errno = (self.get(word) as i32).abs();
            let Some(why) = (errno != 0).then(|| self.shared.fatal(errno)).flatten() else {
                continue;
            };
            let changes = link.changes();
            // The error may date from when the link was down; a lasting cause is reported again.
            if changes == self.discarded_at || link.state() == LinkState::Lost {
                return Err(io::Error::new(io::ErrorKind::NetworkDown, why));
            }
            errors.into_iter().for_each(|word| self.set(word, 0));
            self.discarded_at = changes;
            break;
        }
        if self.runner.failed.load(Ordering::Acquire) {
            let error = self.runner.error.lock().unwrap_or_else(PoisonError::into_inner).take();
            return Err(
                error.unwrap_or_else(|| io::Error::other(format!("{name}: its thread has ended")))
            );
        }
        Ok(())
    }

    /// The result for the frame in slot `slot`, which is then cleared; `None` if there is none yet.
    fn take_result(&self, slot: usize) -> Option<u64> {
        let result = self.get(RESULTS + slot);
        if result != WAITING {
            self.set(RESULTS + slot, WAITING);
        }
        (result != WAITING).then_some(result)
    }
}

impl TxQueue for LiveTx {
    fn lend(&mut self, want: usize) -> TxBatch<'_> {
        let slot = self.head as usize % SLOTS;
        let free = SLOTS - (self.head - self.reported) as usize;
        self.lent = want.min(BATCH).min(free).min(SLOTS - slot);
        if self.lent == 0 {
            return TxBatch::empty();
        }
        let octets = self.lent * self.layout.stride;
        let at = self.shared.memory.octets(self.layout.frame(slot), octets);
        // SAFETY: within the mapping; the program reads no slot from HEAD on, and slots are lent
        // once at a time, as the batch borrows the queue.
        let base = unsafe { std::slice::from_raw_parts_mut(at.as_ptr(), octets) };
        TxBatch { base, stride: self.layout.stride, meta: &mut self.meta[slot..slot + self.lent] }
    }

    fn send(&mut self, n: usize) -> Result<usize, SendError> {
        assert!(n <= self.lent, "more frames sent than lent");
        let mut bad = None;
        let mut taken = 0;
        for i in 0..n {
            let slot = self.head as usize % SLOTS + i;
            let TxMeta { len, due, .. } = self.meta[slot];
            if !(MIN_FRAME..=self.layout.longest).contains(&len) {
                bad = Some(if len < MIN_FRAME { "too_short" } else { "too_long" });
                break;
            }
            let description = self.shared.memory.word(Layout::description(slot));
            description.store(len.into(), Ordering::Relaxed);
            self.shared.memory.word(Layout::description(slot) + 1).store(due.0, Ordering::Relaxed);
            taken += 1;
        }
        let refused = bad.filter(|_| taken == 0);
        if refused.is_some() {
            // The frame's slot stays empty, because frames keep the order of their slots.
            self.set(RESULTS + self.head as usize % SLOTS, SKIPPED);
        }
        let passed = taken + usize::from(refused.is_some());
        self.head += passed as u64;
        self.lent -= passed;
        self.set(HEAD, self.head);
        if passed > 0 {
            self.wake();
        }
        match refused {
            Some(reason) => Err(SendError::Frame(reason)),
            None => Ok(taken),
        }
    }

    fn outcomes(&mut self) -> io::Result<&[TxOutcome]> {
        self.shared.keep_alive();
        self.follow_link();
        self.outcomes.clear();
        // The link's state is requested only if frames did not leave.
        let mut up = None;
        while self.reported < self.head && self.outcomes.len() < BATCH {
            let Some(result) = self.take_result(self.reported as usize % SLOTS) else { break };
            self.reported += 1;
            match result {
                SKIPPED => {}
                LINK_DOWN => self.outcomes.push(TxOutcome::Lost("link_down")),
                DROPPED | REFUSED
                    if *up.get_or_insert_with(|| self.shared.link.look()) != LinkState::Up =>
                {
                    self.outcomes.push(TxOutcome::Lost("link_down"));
                }
                DROPPED => self.outcomes.push(TxOutcome::Lost("driver_full")),
                REFUSED => self.outcomes.push(TxOutcome::Lost("interface_refused")),
                left => self.outcomes.push(TxOutcome::Left(Nanos(left))),
            }
        }
        if self.reported == self.head {
            self.rest_if_idle();
        }
        if self.outcomes.is_empty() {
            self.trouble()?;
        }
        Ok(&self.outcomes)
    }

    fn take_back(&mut self) -> usize {
        if self.reported == self.head {
            return 0;
        }
        if !self.hold() {
            self.release();
            return 0;
        }
        // The program may offer the last frames that it took again, if the driver had no room:
        // those cannot be taken back.
        let tail = self.get(TAIL).max(self.reported);
        let skipped = (tail..self.head).filter(|&number| {
            let slot = number as usize % SLOTS;
            // The slot was empty, or its frame was already given up.
            self.get(RESULTS + slot) != WAITING
        });
        let skipped = skipped.count();
        let back = (self.head - tail) as usize - skipped;
        (tail..self.head).for_each(|number| self.set(RESULTS + number as usize % SLOTS, WAITING));
        self.head = tail;
        self.lent = 0;
        self.set(HEAD, tail);
        self.release();
        back
    }

    fn finish(&mut self) -> io::Result<()> {
        let mut deadline = monotonic() + AHEAD + TIMEOUT;
        let mut last = self.get(TAIL);
        let waiting = |queue: &Self| {
            (queue.reported..queue.head).any(|n| queue.get(RESULTS + n as usize % SLOTS) == WAITING)
        };
        while waiting(self) {
            self.shared.keep_alive();
            self.follow_link();
            self.trouble()?;
            let now = self.get(TAIL);
            if now != last {
                (last, deadline) = (now, monotonic() + AHEAD + TIMEOUT);
            }
            if monotonic() > deadline {
                let text = format!("{}: frames still wait in the ring after 2 s", self.interface);
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }
}

impl Drop for LiveTx {
    fn drop(&mut self) {
        self.runner.ending.store(true, Ordering::Release);
        self.runner.wanted.store(false, Ordering::Release);
        // Stops all sending, even if the call is slow to end.
        self.hold_number += 1;
        self.set(ATTENTION, self.hold_number);
        if let Some(thread) = self.thread.take() {
            while !thread.is_finished() {
                self.shared.interrupt();
                thread.thread().unpark();
                thread::sleep(Duration::from_micros(500));
            }
            let _ = thread.join();
        }
    }
}

impl Runner {
    /// Makes the call repeatedly while `wanted` is set.
    fn run(&self, call: &Call) {
        while !self.ending.load(Ordering::Acquire) {
            if !self.wanted.load(Ordering::Acquire) {
                thread::park();
                continue;
            }
            if let Err(error) = call.run() {
                *self.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                self.failed.store(true, Ordering::Release);
                return;
            }
        }
    }
}
