//! Chunks that circulate between the receiving threads and the writer: a fixed number, allocated
//! before the capture begins and reused.
//!
//! The lock is taken once per chunk, that is, once per hundreds to thousands of frames. The most
//! recently returned chunk is lent next: while the writer keeps up, only a few chunks circulate and
//! stay in the cache, however large the buffer is.

use std::{
    collections::VecDeque,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

/// Consecutive records, in the format of the file.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    pub octets: Vec<u8>,
    pub used: usize,
    pub run: Run,
    /// The tap that filled it.
    pub source: usize,
}

/// Summary of consecutive records.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Run {
    pub packets: u64,
    /// Captured octets of the packets.
    pub data: u64,
    /// Times of the first and the last packet, in nanoseconds since 1970.
    pub first: u64,
    pub last: u64,
}

impl Run {
    #[inline]
    pub fn add(&mut self, time: u64, data: usize) {
        if self.packets == 0 {
            self.first = time;
        }
        self.packets += 1;
        self.data += data as u64;
        self.last = time;
    }

    pub fn minus(self, part: Self, first: u64) -> Self {
        Self { packets: self.packets - part.packets, data: self.data - part.data, first, ..self }
    }
}

impl Chunk {
    pub fn records(&self) -> &[u8] {
        &self.octets[..self.used]
    }

    pub fn empty(&mut self) {
        (self.used, self.run) = (0, Run::default());
    }
}

/// Number of chunks in use while the writer keeps up, with a reserve.
const WARM: usize = 16;

/// Number of waiting chunks at which a sleeping writer is woken: on a shared CPU, each wake-up
/// costs two context switches, as much as a dozen frames.
const TOGETHER: usize = 8;

/// The result of [`Pool::next`].
pub(crate) enum Next {
    Chunk(Chunk),
    /// No chunk arrived in time.
    Idle,
    /// All taps have finished.
    End,
}

pub(crate) struct Pool {
    state: Mutex<State>,
    work: Condvar,
    room: Condvar,
    /// Number of chunks waiting to be written, readable without the lock.
    full: AtomicUsize,
    /// The largest value of `full` so far.
    peak: AtomicUsize,
    /// Packets before this time were dropped although they belong in the file, because the buffer
    /// was too small.
    pub keeps_from: AtomicU64,
    chunks: usize,
    chunk_octets: usize,
}

#[derive(Default)]
struct State {
    free: Vec<Chunk>,
    full: VecDeque<Chunk>,
    /// Whether chunks are kept for a trigger instead of being written.
    holding: bool,
    /// Whether the writer sleeps.
    writer_sleeps: bool,
    /// Number of taps that have not finished.
    open: usize,
    closed: bool,
}

impl Pool {
    /// Allocates `chunks` chunks of `chunk_octets` octets each. Touches the pages of the first
    /// chunks that will be lent: a page fault during the capture costs as much as a dozen frames.
    /// Touching all pages would delay the start for longer than many captures last.
    pub fn new(chunks: usize, chunk_octets: usize, holding: bool) -> Self {
        let chunk = |i| {
            let mut octets = vec![0; chunk_octets];
            if i + WARM >= chunks {
                octets.fill(0xff);
            }
            Chunk { octets, ..Chunk::default() }
        };
        let free = (0..chunks).map(chunk).collect();
        Self {
            state: Mutex::new(State { free, holding, ..State::default() }),
            work: Condvar::new(),
            room: Condvar::new(),
            full: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            keeps_from: AtomicU64::new(0),
            chunks,
            chunk_octets,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Use the state even after a panic: no code that holds the lock can panic halfway through a
        // change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn octets(&self) -> usize {
        self.chunks * self.chunk_octets
    }

    /// Total number of chunks.
    pub fn chunks(&self) -> usize {
        self.chunks
    }

    /// Number of chunks that wait to be written.
    pub fn waiting(&self) -> usize {
        self.full.load(Ordering::Relaxed)
    }

    pub fn peak_octets(&self) -> usize {
        self.peak.load(Ordering::Relaxed) * self.chunk_octets
    }

    pub fn join(&self) {
        self.lock().open += 1;
    }

    /// Counts a tap as finished.
    pub fn leave(&self) {
        let mut state = self.lock();
        state.open -= 1;
        self.work.notify_one();
    }

    /// Announces that no further taps will be made.
    pub fn close(&self) {
        self.lock().closed = true;
        self.work.notify_one();
    }

    /// A free chunk, if there is one.
    pub fn lend(&self) -> Option<Chunk> {
        self.lock().free.pop()
    }

    /// As [`Pool::lend`], but waits for a free chunk.
    pub fn lend_or_wait(&self) -> Chunk {
        let mut state = self.lock();
        loop {
            match state.free.pop() {
                Some(chunk) => return chunk,
                None => {
                    if std::mem::take(&mut state.writer_sleeps) {
                        self.work.notify_one();
                    }
                    state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// Takes the oldest chunk that is not being written; its content is discarded.
    pub fn take_oldest(&self) -> Option<Chunk> {
        let mut state = self.lock();
        let oldest = state.full.pop_front();
        self.full.store(state.full.len(), Ordering::Relaxed);
        if let Some(chunk) = oldest.as_ref().filter(|_| state.holding) {
            self.keeps_from.store(chunk.run.last + 1, Ordering::Relaxed);
        }
        oldest
    }

    /// Whether full chunks are kept for a trigger, and the only free chunks are the reserve for the
    /// time after it.
    pub fn is_ring(&self) -> bool {
        let state = self.lock();
        state.holding && state.free.len() <= self.chunks / 8 + 1
    }

    /// Passes a filled chunk to the writer. The writer is woken when several chunks wait, by
    /// [`Pool::wake`], or by its timeout. Returns whether it was woken.
    pub fn hand_over(&self, chunk: Chunk) -> bool {
        let mut state = self.lock();
        state.full.push_back(chunk);
        let full = state.full.len();
        self.full.store(full, Ordering::Relaxed);
        self.peak.fetch_max(full, Ordering::Relaxed);
        let wake =
            full >= TOGETHER.min(self.chunks / 4) && std::mem::take(&mut state.writer_sleeps);
        drop(state);
        if wake {
            self.work.notify_one();
        }
        wake
    }

    /// Wakes the writer if chunks wait.
    #[inline]
    pub fn wake(&self) {
        if self.waiting() > 0 {
            self.wake_hungry();
        }
    }

    #[cold]
    fn wake_hungry(&self) {
        if std::mem::take(&mut self.lock().writer_sleeps) {
            self.work.notify_one();
        }
    }

    /// Releases the kept chunks for writing, after the trigger.
    pub fn release(&self) {
        self.lock().holding = false;
        self.work.notify_one();
    }

    /// The oldest chunk to write; waits for one at most `timeout`. Before the trigger, passes
    /// chunks that end before `keep_from` to `past`, and frees them.
    pub fn next(&self, timeout: Duration, keep_from: u64, mut past: impl FnMut(&Chunk)) -> Next {
        let mut state = self.lock();
        for waited in [false, true] {
            let ended = state.closed && state.open == 0;
            if state.holding {
                while state.full.front().is_some_and(|chunk| ended || chunk.run.last < keep_from) {
                    let Some(mut chunk) = state.full.pop_front() else { break };
                    past(&chunk);
                    chunk.empty();
                    state.free.push(chunk);
                }
                self.full.store(state.full.len(), Ordering::Relaxed);
            } else if let Some(chunk) = state.full.pop_front() {
                self.full.store(state.full.len(), Ordering::Relaxed);
                return Next::Chunk(chunk);
            }
            if ended {
                return Next::End;
            }
            if waited {
                break;
            }
            state.writer_sleeps = !state.holding;
            let result =
                self.work.wait_timeout(state, timeout).unwrap_or_else(PoisonError::into_inner);
            state = result.0;
            state.writer_sleeps = false;
        }
        Next::Idle
    }

    /// Whether the writer sleeps until it is woken, or until its timeout.
    #[cfg(test)]
    pub fn writer_sleeps(&self) -> bool {
        self.lock().writer_sleeps
    }

    /// Whether no chunk is free.
    pub fn is_short(&self) -> bool {
        self.lock().free.is_empty()
    }

    pub fn give_back(&self, mut chunk: Chunk) {
        chunk.empty();
        self.lock().free.push(chunk);
        self.room.notify_one();
    }
}
