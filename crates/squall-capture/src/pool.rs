//! Chunks on their way between the threads that receive and the one that writes: a bounded number,
//! made before the capture begins and used again and again.
//!
//! A lock is taken once a chunk, that is once in hundreds to thousands of frames. The chunk that
//! was given back last is lent next: where the writer keeps up, a few chunks go round and stay in
//! the cache, however large the buffer is.

use std::{
    collections::VecDeque,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

/// Records beside each other, as the file will have them.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    pub octets: Vec<u8>,
    pub used: usize,
    pub run: Run,
    /// Which tap filled it.
    pub source: usize,
}

/// What is in records beside each other.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Run {
    pub packets: u64,
    /// Octets of the packets, as captured.
    pub data: u64,
    /// Of the first and the last packet, nanoseconds since 1970.
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

/// Chunks that are used while the writer keeps up, and some more.
const WARM: usize = 16;

/// Chunks for which a writer that sleeps is woken: on a shared CPU two switches each time, which
/// cost as much as a dozen frames.
const TOGETHER: usize = 8;

/// What [`Pool::next`] gives.
pub(crate) enum Next {
    Chunk(Chunk),
    /// Nothing came for a while.
    Idle,
    /// Nothing comes any more.
    End,
}

pub(crate) struct Pool {
    state: Mutex<State>,
    work: Condvar,
    room: Condvar,
    /// Chunks to be written, for who only looks.
    full: AtomicUsize,
    /// Most there were.
    peak: AtomicUsize,
    /// Packets that are to be in the file were let go because the buffer was too small to keep
    /// them.
    pub keeps_from: AtomicU64,
    chunks: usize,
    chunk_octets: usize,
}

#[derive(Default)]
struct State {
    free: Vec<Chunk>,
    full: VecDeque<Chunk>,
    /// Chunks are kept, and not written yet.
    holding: bool,
    /// The writer sleeps.
    hungry: bool,
    /// Sinks that are not finished.
    open: usize,
    closed: bool,
}

impl Pool {
    /// `chunks` of `chunk_octets` each. Those that are lent first have their memory, not only the
    /// promise of it: a page that is first written during the capture costs as much as a dozen
    /// frames, and all of them at the start more than many a capture.
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
        // Nothing is half done where this could panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn octets(&self) -> usize {
        self.chunks * self.chunk_octets
    }

    /// Chunks in all.
    pub fn chunks(&self) -> usize {
        self.chunks
    }

    /// Chunks that wait to be written.
    pub fn waiting(&self) -> usize {
        self.full.load(Ordering::Relaxed)
    }

    pub fn peak_octets(&self) -> usize {
        self.peak.load(Ordering::Relaxed) * self.chunk_octets
    }

    pub fn join(&self) {
        self.lock().open += 1;
    }

    /// A tap is finished.
    pub fn leave(&self) {
        let mut state = self.lock();
        state.open -= 1;
        self.work.notify_one();
    }

    /// No tap comes any more.
    pub fn close(&self) {
        self.lock().closed = true;
        self.work.notify_one();
    }

    /// A chunk to fill, if there is one.
    pub fn lend(&self) -> Option<Chunk> {
        self.lock().free.pop()
    }

    /// As [`Pool::lend`], and waits for one.
    pub fn lend_or_wait(&self) -> Chunk {
        let mut state = self.lock();
        loop {
            match state.free.pop() {
                Some(chunk) => return chunk,
                None => {
                    if std::mem::take(&mut state.hungry) {
                        self.work.notify_one();
                    }
                    state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// The oldest chunk that is not being written, to be filled anew: what it held is lost.
    pub fn take_oldest(&self) -> Option<Chunk> {
        let mut state = self.lock();
        let oldest = state.full.pop_front();
        self.full.store(state.full.len(), Ordering::Relaxed);
        if let Some(chunk) = oldest.as_ref().filter(|_| state.holding) {
            self.keeps_from.store(chunk.run.last + 1, Ordering::Relaxed);
        }
        oldest
    }

    /// Whether what is in full chunks is kept for a trigger that has not come, and so much is that
    /// only what is to be free when it comes is left.
    pub fn is_ring(&self) -> bool {
        let state = self.lock();
        state.holding && state.free.len() <= self.chunks / 8 + 1
    }

    /// Hands a chunk with records over. The writer hears of it when there are several, by
    /// [`Pool::wake`], or when it looks by itself.
    pub fn hand_over(&self, chunk: Chunk) {
        let mut state = self.lock();
        state.full.push_back(chunk);
        let full = state.full.len();
        self.full.store(full, Ordering::Relaxed);
        self.peak.fetch_max(full, Ordering::Relaxed);
        let wake = full >= TOGETHER.min(self.chunks / 4) && std::mem::take(&mut state.hungry);
        drop(state);
        if wake {
            self.work.notify_one();
        }
    }

    /// The writer has something to do, if it sleeps: who handed chunks over has nothing else to do.
    #[inline]
    pub fn wake(&self) {
        if self.waiting() > 0 {
            self.wake_hungry();
        }
    }

    #[cold]
    fn wake_hungry(&self) {
        if std::mem::take(&mut self.lock().hungry) {
            self.work.notify_one();
        }
    }

    /// The trigger has come: what is kept is to be written.
    pub fn release(&self) {
        self.lock().holding = false;
        self.work.notify_one();
    }

    /// The oldest chunk to be written; waits at most `patience`. Until the trigger has come, gives
    /// chunks back that end before `keep_from`, by way of `past`.
    pub fn next(&self, patience: Duration, keep_from: u64, mut past: impl FnMut(&Chunk)) -> Next {
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
            state.hungry = !state.holding;
            let result =
                self.work.wait_timeout(state, patience).unwrap_or_else(PoisonError::into_inner);
            state = result.0;
            state.hungry = false;
        }
        Next::Idle
    }

    /// Whether no chunk is left to be filled.
    pub fn is_short(&self) -> bool {
        self.lock().free.is_empty()
    }

    pub fn give_back(&self, mut chunk: Chunk) {
        chunk.empty();
        self.lock().free.push(chunk);
        self.room.notify_one();
    }
}
