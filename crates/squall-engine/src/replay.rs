//! Frames of captures: a thread of its own reads them ahead, the worker sends each by its port when it is due.
//!
//! One worker serves all ports of a replay, frame by frame in the order of the captures: what is n-th in them is handed to
//! its port before the one behind it is, whichever ports these are.

use std::{
    sync::mpsc::{self, Receiver, SyncSender, TryRecvError},
    thread::{self, JoinHandle},
};

use squall_measure::fingerprint;
use squall_port::{BATCH, SendError, TxQueue};
use squall_replay::{Chunk, Departure, ReplayError, Source};
use squall_stats::Fingerprint;
use squall_units::{Cut, FCS_LEN, Nanos, Picos};

use crate::{
    Clock, PortTx,
    clock::Watch,
    transmit::{Blocked, Budget, OVERTIME},
};

/// Chunks that are read ahead at most: some megabytes.
const AHEAD: usize = 24;

/// The reading thread's end, and ours.
pub(crate) struct Feed {
    full: Receiver<Result<Chunk, ReplayError>>,
    empty: mpsc::Sender<Chunk>,
    reader: JoinHandle<Source>,
    held: bool,
}

impl Feed {
    /// Begins to read ahead.
    pub fn start(mut source: Source) -> std::io::Result<Self> {
        let held = source.is_held();
        let (full, filled) = mpsc::sync_channel(AHEAD);
        let (empty, emptied) = mpsc::channel();
        let read = move || {
            read(&mut source, &full, &emptied);
            drop(full);
            // What has been sent until the end is told as it comes back.
            emptied.iter().for_each(|chunk| source.observe(&chunk));
            source
        };
        let reader = thread::Builder::new().name("squall-reader".into()).spawn(read)?;
        Ok(Self { full: filled, empty, reader, held })
    }
}

fn read(source: &mut Source, full: &SyncSender<Result<Chunk, ReplayError>>, emptied: &Receiver<Chunk>) {
    let mut made = 0;
    loop {
        let mut chunk = match emptied.try_recv() {
            Ok(chunk) => chunk,
            Err(_) if made < AHEAD => {
                made += 1;
                Chunk::default()
            }
            Err(TryRecvError::Disconnected) => return,
            Err(TryRecvError::Empty) => match emptied.recv() {
                Ok(chunk) => chunk,
                Err(_) => return,
            },
        };
        source.observe(&chunk);
        let filled = source.fill(&mut chunk);
        let over = !matches!(filled, Ok(true));
        let told = match filled {
            Ok(true) => full.send(Ok(chunk)),
            Ok(false) => return,
            Err(error) => full.send(Err(error)),
        };
        if told.is_err() || over {
            return;
        }
    }
}

/// A port's sending queue.
struct Out {
    queue: Box<dyn TxQueue>,
    /// Frames handed over at once.
    limit: usize,
    blocked: Blocked,
    counters: PortTx,
}

pub(crate) struct Replayer {
    outs: Vec<Out>,
    clock: Clock,
    feed: Option<Feed>,
    chunk: Chunk,
    /// Frames of the chunk before here are dealt with; those before `filled` are in slots of port `out`.
    at: usize,
    filled: usize,
    out: usize,
    /// Frames that may leave yet.
    allowed: u64,
    /// Time spent in pauses.
    shift: Picos,
    paused: Option<Picos>,
    /// Nothing comes behind the chunk at hand.
    ended: bool,
    overdue: bool,
    error: Option<ReplayError>,
    /// Since when the reader has been waited for, and how long in all.
    hungry: Option<Nanos>,
    starved: Nanos,
    source: Option<Source>,
    pub done: bool,
}

/// What a replay came to.
pub struct Replayed {
    /// With what it counted.
    pub source: Source,
    /// What ended it, if that was not its end.
    pub error: Option<ReplayError>,
    /// The sender had nothing to send, as reading was behind.
    pub starved: Nanos,
}

impl std::fmt::Debug for Replayed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replayed").field("error", &self.error).field("starved", &self.starved).finish_non_exhaustive()
    }
}

impl Replayer {
    /// `queues` in the order of the replay's ports: (port, queue, frames that it takes at once).
    pub fn new(queues: Vec<(usize, Box<dyn TxQueue>, usize)>, clock: Clock, feed: Feed, fingerprint: bool) -> Self {
        let out = |(port, queue, limit): (usize, Box<dyn TxQueue>, usize)| Out {
            queue,
            limit: limit.clamp(1, BATCH),
            blocked: Blocked::default(),
            counters: PortTx { port, fingerprint: fingerprint.then(Fingerprint::default), ..PortTx::default() },
        };
        let feed_held = feed.held;
        Self {
            outs: queues.into_iter().map(out).collect(),
            clock,
            feed: Some(feed),
            chunk: Chunk::default(),
            at: 0,
            filled: 0,
            out: 0,
            allowed: if feed_held { 0 } else { u64::MAX },
            shift: Picos(0),
            paused: None,
            ended: false,
            overdue: false,
            error: None,
            hungry: None,
            starved: Nanos::ZERO,
            source: None,
            done: false,
        }
    }

    pub fn ports(&self) -> impl Iterator<Item = &PortTx> {
        self.outs.iter().map(|out| &out.counters)
    }

    pub fn pause(&mut self, now: Picos) {
        self.paused.get_or_insert(now);
    }

    pub fn resume(&mut self, now: Picos) {
        if let Some(since) = self.paused.take() {
            self.shift.0 += now.0.saturating_sub(since.0);
        }
    }

    /// So many more frames may leave.
    pub fn step(&mut self, frames: u64) {
        self.allowed = self.allowed.saturating_add(frames);
    }

    /// When something is to be done next; `None`: never, as it stands.
    pub fn next_due(&self, end: Picos) -> Option<Picos> {
        if self.at < self.filled {
            return Some(Picos(0));
        }
        if self.paused.is_some() || self.allowed == 0 {
            return None;
        }
        match self.chunk.departures.get(self.at) {
            Some(frame) if frame.due == Departure::AT_ONCE => Some(Picos(0)),
            Some(frame) => Some(self.due(frame)).filter(|&due| due < end),
            None if self.ended => None,
            None => Some(Picos(0)),
        }
    }

    #[inline]
    fn due(&self, frame: &Departure) -> Picos {
        Picos(frame.due.0.saturating_add(self.shift.0))
    }

    /// One round: what is at hand, or what is due; whether frames moved.
    pub fn turn(&mut self, now: Nanos, watch: &mut Watch, budget: &mut Budget) -> bool {
        let at = self.clock.since_start(now);
        let real = self.clock != Clock::Virtual;
        if real && at.0 >= budget.end.0.saturating_add(OVERTIME) {
            (self.done, self.overdue) = (true, true);
            return false;
        }
        if self.at < self.filled {
            let moved = self.send(watch);
            if self.at < self.filled || self.done {
                return moved;
            }
        }
        if budget.packets == 0 || budget.octets == 0 {
            self.done = true;
            return false;
        }
        let waits = self.paused.is_some() || (self.allowed == 0 && self.at < self.chunk.departures.len());
        if waits || matches!(self.clock, Clock::Real(start) if now < start) || !self.have_frames(now) {
            return false;
        }
        let horizon = if real { at.0.min(budget.end.0.saturating_sub(1)) } else { budget.end.0.saturating_sub(1) };
        if !self.fill(now, horizon, at, budget) {
            let over = |due: Picos| if due == Departure::AT_ONCE { at >= budget.end } else { due >= budget.end };
            self.done = over(self.chunk.departures[self.at].due) && (!real || at >= budget.end);
            return false;
        }
        self.send(watch);
        true
    }

    /// Whether a frame is at hand, or has come now.
    fn have_frames(&mut self, now: Nanos) -> bool {
        if self.at < self.chunk.departures.len() {
            return true;
        }
        let Some(feed) = self.feed.as_ref().filter(|_| !self.ended) else {
            self.done = true;
            return false;
        };
        match feed.full.try_recv() {
            Ok(Ok(chunk)) => {
                let mut sent = std::mem::replace(&mut self.chunk, chunk);
                sent.done = sent.departures.len();
                // The reader is gone when all is read.
                let _ = feed.empty.send(sent);
                (self.at, self.filled) = (0, 0);
                if let Some(since) = self.hungry.take() {
                    self.starved = self.starved + now.saturating_sub(since);
                }
                true
            }
            Ok(Err(error)) => {
                (self.error, self.ended, self.done) = (Some(error), true, true);
                false
            }
            Err(TryRecvError::Disconnected) => {
                (self.ended, self.done) = (true, true);
                false
            }
            Err(TryRecvError::Empty) => {
                self.hungry.get_or_insert(now);
                // Where both share a CPU the reader comes on now.
                thread::yield_now();
                false
            }
        }
    }

    /// Puts the frames that leave next by one port into slots: whether there were any.
    fn fill(&mut self, now: Nanos, horizon: u64, at: Picos, budget: &mut Budget) -> bool {
        let frames = &self.chunk.departures[self.at..];
        let port = frames[0].port;
        let shift = self.shift.0;
        let may_leave = |frame: &Departure| match frame.due {
            Departure::AT_ONCE => at < budget.end,
            due => due.0.saturating_add(shift) <= horizon,
        };
        let out = &mut self.outs[usize::from(port)];
        let most = usize::try_from(budget.packets.min(self.allowed)).unwrap_or(BATCH).min(out.limit).min(frames.len());
        let mut count = frames[..most].iter().take_while(|frame| frame.port == port && may_leave(frame)).count();
        if count == 0 {
            return false;
        }
        let mut batch = out.queue.lend(count);
        count = count.min(batch.len());
        let blocked = count == 0;
        let mut filled = 0;
        for frame in &frames[..count] {
            if budget.octets == 0 {
                break;
            }
            let octets = self.chunk.frame(self.at + filled);
            let due = match frame.due {
                Departure::AT_ONCE => now,
                due => self.clock.instant(Picos(due.0 + shift)),
            };
            batch.frame(filled, octets.len(), due).copy_from_slice(octets);
            // What was there before is gone.
            (batch.meta[filled].owner, batch.meta[filled].mark) = (0, 0);
            if budget.octets != u64::MAX {
                budget.octets = budget.octets.saturating_sub(u64::from(frame.len + FCS_LEN));
            }
            filled += 1;
        }
        if budget.packets != u64::MAX {
            budget.packets -= filled as u64;
        }
        if self.allowed != u64::MAX {
            self.allowed -= filled as u64;
        }
        out.blocked.note(now, blocked, &mut out.counters);
        (self.filled, self.out) = (self.at + filled, usize::from(port));
        filled > 0
    }

    fn send(&mut self, watch: &mut Watch) -> bool {
        let before = watch.now();
        let wanted = self.filled - self.at;
        let out = &mut self.outs[self.out];
        match out.queue.send(wanted) {
            Ok(sent) => {
                let after = watch.now();
                out.counters.sending = out.counters.sending + after.saturating_sub(before);
                out.blocked.note(before, sent < wanted, &mut out.counters);
                out.counters.retried += (wanted - sent) as u64;
                out.credit(&self.chunk, self.at..self.at + sent, (before, after), self.clock, self.shift.0);
                self.at += sent;
                sent > 0
            }
            Err(SendError::Frame(reason)) => {
                out.counters.errors += 1;
                *out.counters.not_sent.entry(reason).or_default() += 1;
                self.chunk.departures[self.at].failed = true;
                self.at += 1;
                true
            }
            Err(SendError::Port(error)) => {
                out.counters.error = Some(error.to_string());
                self.drop_hand("port_lost");
                self.done = true;
                false
            }
        }
    }

    /// What is at hand does not leave.
    fn drop_hand(&mut self, reason: &'static str) {
        let waiting = self.at..self.filled.max(self.at);
        if !waiting.is_empty() {
            let counters = &mut self.outs[self.out].counters;
            *counters.not_sent.entry(reason).or_default() += waiting.len() as u64;
            self.chunk.departures[waiting.clone()].iter_mut().for_each(|frame| frame.failed = true);
        }
        self.at = waiting.end;
    }

    /// All is sent: what is at hand gets one more chance, what was due and is not sent is counted, as far as it was read.
    pub fn settle(&mut self, now: Nanos, watch: &mut Watch, end: Picos) {
        let lost = |outs: &[Out]| outs.iter().any(|out| out.counters.error.is_some());
        while self.at < self.filled && !lost(&self.outs) && self.send(watch) {}
        self.drop_hand("port_full");
        let until = if self.clock == Clock::Virtual { Picos(0) } else { self.clock.since_start(now).min(end) };
        let late = |frame: &&Departure| frame.due != Departure::AT_ONCE && self.due(frame) < until;
        let late: Vec<u8> = self.chunk.departures[self.at..].iter().take_while(late).map(|frame| frame.port).collect();
        // A run that is stopped from outside may leave one frame that was due just then.
        if late.len() > usize::from(!self.overdue) {
            for port in late {
                *self.outs[usize::from(port)].counters.not_sent.entry("late").or_default() += 1;
            }
        }
        self.done = true;
    }

    /// The end of the run: what was sent is to be out, and the reader comes home.
    pub fn close(&mut self) {
        for out in &mut self.outs {
            if let Err(error) = out.queue.finish() {
                out.counters.error.get_or_insert(error.to_string());
            }
        }
        if let Some(Feed { full, empty, reader, .. }) = self.feed.take() {
            let mut last = std::mem::take(&mut self.chunk);
            last.done = self.at;
            let _ = empty.send(last);
            drop((full, empty));
            self.source = reader.join().ok();
            if self.source.is_none() {
                let why = "the thread that reads captures ended in a panic; this is a defect in Squall";
                self.outs.iter_mut().for_each(|out| _ = out.counters.error.get_or_insert(why.into()));
            }
        }
    }

    pub fn take_result(&mut self) -> Option<Replayed> {
        let source = self.source.take()?;
        Some(Replayed { source, error: self.error.take(), starved: self.starved })
    }
}

impl Out {
    /// The port has taken these frames of `chunk`, between the two instants.
    #[inline]
    fn credit(
        &mut self,
        chunk: &Chunk,
        frames: std::ops::Range<usize>,
        (before, after): (Nanos, Nanos),
        clock: Clock,
        shift: u64,
    ) {
        let sent = frames.len() as u64;
        if sent == 0 {
            return;
        }
        let counters = &mut self.counters;
        counters.packets += sent;
        let (first, took) = (clock.since_start(before).0, clock.since_start(after).0);
        let each = (took - first) / sent;
        let mut errors = [0; BATCH];
        let mut late = 0;
        for (i, frame) in (1..).zip(&chunk.departures[frames.clone()]) {
            counters.octets += u64::from(frame.len + FCS_LEN);
            if frame.due != Departure::AT_ONCE && clock != Clock::Virtual {
                // Frames of one hand-over left one after the other: each is given its share of the time it took.
                errors[late] = (first + each * i).saturating_sub(frame.due.0 + shift) / 1000;
                late += 1;
            }
        }
        counters.departure_error.record_all(&errors[..late]);
        let last = &chunk.departures[frames.end - 1];
        counters.last = match clock {
            Clock::Virtual if last.due != Departure::AT_ONCE => clock.instant(Picos(last.due.0 + shift)),
            _ => after,
        };
        if let Some(print) = &mut counters.fingerprint {
            frames.for_each(|i| print.merge(fingerprint(chunk.frame(i), Cut::WHOLE)));
        }
    }
}
