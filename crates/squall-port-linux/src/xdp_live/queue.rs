//! A transmit queue in front of a program in the kernel: frames are written where the program reads
//! them, in a ring of slots that both share, and a thread of ours sits in the call that runs it.
//!
//! Entering and leaving that call takes some 25 ms, and inside it the program looks for frames all
//! the time, so a queue that has had none for [`LINGER`] leaves it, and enters it again with the
//! next frame: frames that are sent [`AHEAD`] of their time are not late by that. Who owns the
//! queue must look after it now and then ([`TxQueue::fates`]).

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use squall_port::{BATCH, Fate, LinkState, Remote, SendError, TxBatch, TxMeta, TxQueue, monotonic};
use squall_units::Nanos;

use super::{
    Call, Station,
    program::{
        ATTENTION, BROKEN, DROPPED, FULL_SINCE, GONE, HEAD, Layout, REFUSED, RESULTS, SEEN,
        SHORTEST, SKIPPED, SLOTS, TAIL, UNDER_WAY, UNLINKED, WAITING,
    },
};
use crate::sys;

/// So far ahead of their instants frames are taken: several times what entering the call takes.
pub const AHEAD: Nanos = Nanos(100_000_000);
/// Without frames for so long the thread leaves the call.
const LINGER: Nanos = Nanos(50_000_000);
/// The longest that the program should take to see that it is to rest, or to begin; both are a
/// matter of milliseconds.
const PATIENCE: Nanos = Nanos(2_000_000_000);

pub struct LiveTx {
    station: Arc<Station>,
    interface: String,
    layout: Layout,
    meta: Vec<TxMeta>,
    /// Numbers of frames: the next to be told of, the next to be put into the ring; from there on
    /// `lent` slots are lent.
    told: u64,
    head: u64,
    lent: usize,
    fates: Vec<Fate>,
    ticket: u64,
    /// The link is down, and the program rests.
    resting: bool,
    /// Changes of the link for which an error of the kernel's was forgotten.
    pardoned: usize,
    /// Since when no frame is in the ring; only looked at now and then.
    idle_since: Option<Nanos>,
    runner: Arc<Runner>,
    thread: Option<JoinHandle<()>>,
}

/// What the queue and its thread share, beside the memory.
struct Runner {
    /// The thread is to be in the call; it is to end.
    wanted: AtomicBool,
    ending: AtomicBool,
    failed: AtomicBool,
    error: Mutex<Option<io::Error>>,
}

impl LiveTx {
    /// The program runs when this returns.
    ///
    /// # Errors
    /// The kernel has no live frames, or has not begun within some seconds.
    pub fn new(call: Call, layout: Layout) -> io::Result<Self> {
        let station = call.station.clone();
        let runner = Arc::new(Runner {
            wanted: AtomicBool::new(true),
            ending: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            error: Mutex::new(None),
        });
        let theirs = runner.clone();
        let work = move || {
            sys::go_elsewhere();
            theirs.run(&call);
        };
        let thread = thread::Builder::new().name("squall-live".into()).spawn(work)?;
        let mut queue = Self {
            interface: station.interface.clone(),
            station,
            layout,
            meta: vec![TxMeta::default(); SLOTS],
            told: 0,
            head: 0,
            lent: 0,
            fates: Vec::with_capacity(BATCH),
            ticket: 0,
            resting: false,
            pardoned: 0,
            idle_since: None,
            runner,
            thread: Some(thread),
        };
        // The first frames are not to wait for the program's first run.
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
        self.station.memory.word(word).load(Ordering::Acquire)
    }

    fn set(&self, word: usize, value: u64) {
        self.station.memory.word(word).store(value, Ordering::Release);
    }

    /// Until the program has seen that it is to rest, or does not run; false where neither is
    /// known.
    fn hold(&mut self) -> bool {
        self.ticket += 1;
        self.set(ATTENTION, self.ticket);
        let patience = monotonic() + PATIENCE;
        while self.get(SEEN) != self.ticket {
            let runs = self.runner.wanted.load(Ordering::Acquire) || self.station.is_in_call();
            if !runs || self.runner.failed.load(Ordering::Acquire) {
                return true;
            }
            if monotonic() > patience {
                return false;
            }
            thread::sleep(Duration::from_micros(20));
        }
        true
    }

    /// The program goes on, if nothing else keeps it.
    fn let_go(&self) {
        if !self.resting {
            self.set(ATTENTION, 0);
        }
    }

    /// While the link is down the program rests, and frames that become due are given up: it would
    /// offer each of them for long, and those behind it would leave in a burst when the link is up
    /// again.
    fn follow_link(&mut self) {
        let up = self.station.link.state() == LinkState::Up;
        if up && self.resting {
            self.resting = false;
            self.set(FULL_SINCE, 0);
            self.let_go();
        }
        if up || (!self.resting && !self.hold()) {
            return;
        }
        self.resting = true;
        // What is under way may still be put back; until then nobody but the program says how far
        // it is.
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
                self.set(RESULTS + slot, UNLINKED);
            }
            tail += 1;
        }
        // The program goes on behind them: what is told is forgotten, and would be sent.
        self.set(TAIL, tail);
    }

    /// The thread enters the call, if it is not there.
    fn wake(&mut self) {
        self.idle_since = None;
        if !self.runner.wanted.load(Ordering::Relaxed) {
            self.runner.wanted.store(true, Ordering::Release);
            self.thread.iter().for_each(|thread| thread.thread().unpark());
        }
    }

    /// The thread leaves the call when nothing has been there to be sent for long.
    fn rest_if_idle(&mut self) {
        if self.runner.wanted.load(Ordering::Relaxed) {
            let now = monotonic();
            let since = *self.idle_since.get_or_insert(now);
            if now.saturating_sub(since) < LINGER {
                return;
            }
            self.runner.wanted.store(false, Ordering::Release);
        }
        // Again, as long as it goes unnoticed.
        self.station.interrupt();
    }

    /// Why nothing more will leave.
    fn trouble(&mut self) -> io::Result<()> {
        let name = &self.interface;
        if self.get(BROKEN) != 0 {
            return Err(io::Error::other(format!(
                "{name}: the program in the kernel is in an impossible state; this is a bug in \
                 Squall"
            )));
        }
        let link = self.station.link.link();
        if self.get(GONE) != 0 {
            link.lose(monotonic());
        }
        if link.state() == LinkState::Lost {
            return Err(link.error());
        }
        let errors = [UNDER_WAY.driver_error, UNDER_WAY.redirect_error];
        for word in errors {
            let errno = (self.get(word) as i32).abs();
            let Some(why) = (errno != 0).then(|| self.station.fatal(errno)).flatten() else {
                continue;
            };
            let changes = link.changes();
            // The error may be one of the time when the link was down: what is still the case is
            // told again.
            if changes == self.pardoned || link.state() == LinkState::Lost {
                return Err(io::Error::new(io::ErrorKind::NetworkDown, why));
            }
            errors.into_iter().for_each(|word| self.set(word, 0));
            self.pardoned = changes;
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

    /// What became of slot `slot`'s frame, which is then forgotten; `None`: nothing yet.
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
        let free = SLOTS - (self.head - self.told) as usize;
        self.lent = want.min(BATCH).min(free).min(SLOTS - slot);
        if self.lent == 0 {
            return TxBatch::empty();
        }
        let octets = self.lent * self.layout.stride;
        let at = self.station.memory.octets(self.layout.frame(slot), octets);
        // SAFETY: within the mapping; the program reads no slot from HEAD on, and they are lent
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
            if !(SHORTEST..=self.layout.longest).contains(&len) {
                bad = Some(if len < SHORTEST { "too_short" } else { "too_long" });
                break;
            }
            let description = self.station.memory.word(Layout::description(slot));
            description.store(len.into(), Ordering::Relaxed);
            self.station.memory.word(Layout::description(slot) + 1).store(due.0, Ordering::Relaxed);
            taken += 1;
        }
        let refused = bad.filter(|_| taken == 0);
        if refused.is_some() {
            // Its slot stays empty: frames are in the order of their slots.
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

    fn fates(&mut self) -> io::Result<&[Fate]> {
        self.station.attend();
        self.follow_link();
        self.fates.clear();
        // Asked for where frames did not leave.
        let mut up = None;
        while self.told < self.head && self.fates.len() < BATCH {
            let Some(result) = self.take_result(self.told as usize % SLOTS) else { break };
            self.told += 1;
            match result {
                SKIPPED => {}
                UNLINKED => self.fates.push(Fate::Lost("link_down")),
                DROPPED | REFUSED
                    if *up.get_or_insert_with(|| self.station.link.look()) != LinkState::Up =>
                {
                    self.fates.push(Fate::Lost("link_down"));
                }
                DROPPED => self.fates.push(Fate::Lost("driver_full")),
                REFUSED => self.fates.push(Fate::Lost("interface_refused")),
                left => self.fates.push(Fate::Left(Nanos(left))),
            }
        }
        if self.told == self.head {
            self.rest_if_idle();
        }
        if self.fates.is_empty() {
            self.trouble()?;
        }
        Ok(&self.fates)
    }

    fn take_back(&mut self) -> usize {
        if self.told == self.head {
            return 0;
        }
        if !self.hold() {
            self.let_go();
            return 0;
        }
        // Of what the program has taken it may offer the last again, if the driver had no room:
        // that stays.
        let tail = self.get(TAIL).max(self.told);
        let skipped = (tail..self.head).filter(|&number| {
            let slot = number as usize % SLOTS;
            // No frame was there, or it was told already that it does not leave.
            self.get(RESULTS + slot) != WAITING
        });
        let skipped = skipped.count();
        let back = (self.head - tail) as usize - skipped;
        (tail..self.head).for_each(|number| self.set(RESULTS + number as usize % SLOTS, WAITING));
        self.head = tail;
        self.lent = 0;
        self.set(HEAD, tail);
        self.let_go();
        back
    }

    fn finish(&mut self) -> io::Result<()> {
        let mut patience = monotonic() + AHEAD + PATIENCE;
        let mut told = self.get(TAIL);
        let waiting = |queue: &Self| {
            (queue.told..queue.head).any(|n| queue.get(RESULTS + n as usize % SLOTS) == WAITING)
        };
        while waiting(self) {
            self.station.attend();
            self.follow_link();
            self.trouble()?;
            let now = self.get(TAIL);
            if now != told {
                (told, patience) = (now, monotonic() + AHEAD + PATIENCE);
            }
            if monotonic() > patience {
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
        // Nothing more leaves, also if the call is slow to end.
        self.ticket += 1;
        self.set(ATTENTION, self.ticket);
        if let Some(thread) = self.thread.take() {
            while !thread.is_finished() {
                self.station.interrupt();
                thread.thread().unpark();
                thread::sleep(Duration::from_micros(500));
            }
            let _ = thread.join();
        }
    }
}

impl Runner {
    /// In the call whenever that is wanted.
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
