//! What a worker knows of whoever makes frames.
//!
//! A worker has one list of [`Source`]s. Each round it lets every source hand over what is due by
//! the ports' [`Outlet`]s, which sources share. Who takes frames is in [`crate::sink`].

use std::{io, ops::Range, sync::Arc};

use squall_plan::Part;
use squall_port::{CommonClock, Fate, Link, LinkState, SendError, TxBatch, TxQueue};
use squall_program::{
    audit::{Auditor, bin},
    clock::Allowance,
};
use squall_units::{Cut, Nanos, Picos};

use crate::{
    Clock, Counters, Snapshot,
    clock::{Stalls, Watch},
    command::Command,
    pacing::PortPace,
    sink::{Shown, Sink},
};

/// Makes frames: the streams of a worker, a replay, its share of the flows. A worker knows of none
/// which it is.
pub(crate) trait Source {
    /// One round at `turn.now`: hands over what is due; whether anything moved. Called after the
    /// source is done, too.
    fn turn(&mut self, turn: &mut Turn<'_>) -> bool;

    /// Tells the outlets when the earliest frame that it has not sent was due, as if there were no
    /// lag ([`Outlets::owe`]). Called before all sources take their turns, where several share an
    /// outlet: after a stall no source may go on before the lag of all is known.
    fn owe(&mut self, _outlets: &mut Outlets) {}

    /// The worker's turn begins: the horizons of shared outlets are known. Before anything is
    /// received.
    fn begin_turn(&mut self, _now: Nanos, _outlets: &Outlets) {}

    /// When it wants its next turn. `None`: when it is told something or receives something.
    fn next_due(&mut self, outlets: &Outlets, end: Picos) -> Option<Picos>;

    /// Nothing is left that it would send of its own accord.
    fn is_done(&self) -> bool;

    /// Whether it answers to what is received, and is to be woken by that.
    fn reacts(&self) -> bool {
        false
    }

    /// How the worker is to wait for it.
    fn rest(&mut self, now: Nanos) -> Rest;

    /// On virtual time, where nothing moved: goes on to its next instant before `until`. Whether it
    /// has a time of its own.
    fn pass(&mut self, _until: Picos) -> bool {
        false
    }

    /// On virtual time: how far it is.
    fn time(&self) -> Nanos {
        Nanos::ZERO
    }

    /// Does what it is told; how many streams that has added.
    fn apply(&mut self, command: &Command, at: Picos, turn: &mut Turn<'_>) -> u64;

    /// Frames, and their octets with FCS, that are sent or about to be: what a run that ends by a
    /// count has used up.
    fn used(&self) -> (u64, u64) {
        (0, 0)
    }

    /// The end of the run: what was due and is not sent is counted. Called until it is true, what
    /// was received in between.
    fn settle(&mut self, turn: &mut Turn<'_>) -> bool;

    /// After that: what was handed over is to be out.
    fn close(&mut self, outlets: &mut Outlets);

    /// Adds what it has counted; `full`: with histograms. `stalls` are those of the worker.
    fn snapshot(&self, full: bool, stalls: Stalls, into: &mut Snapshot);

    /// Adds its counters alone.
    fn counters(&self, into: &mut Counters);

    /// What it has to show while it runs, of its records with these numbers; a value of its own.
    fn show(&self, _now: Nanos, _records: Range<u32>) -> Option<Shown> {
        None
    }

    /// What it leaves behind; a value of its own. Once, after it is closed.
    fn leave(&mut self) -> Option<Shown> {
        None
    }

    /// Its hosts at `port`, if it has any: the last in the port's list of sinks.
    fn sink(&mut self, _port: usize) -> Option<&mut dyn Sink> {
        None
    }
}

/// How a worker may wait for a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Until shortly before it is due, then awake: a CPU that slept comes back late and cold.
    Awake,
    /// The port itself waits for the instants.
    Port,
    /// It makes no frames, and only looks after who does.
    Seldom,
    /// As a host: until it is due or a frame comes, whichever is first.
    Frames,
    /// As [`Rest::Frames`], but not woken by each frame: several come together.
    Gather,
    /// Its frames wait for a port that is full.
    Full,
}

/// What may still be sent in the whole run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub packets: u64,
    /// With FCS; the frame that reaches it is the last.
    pub octets: u64,
    /// Frames due from here on are not sent.
    pub end: Picos,
}

impl Budget {
    /// Whether a number of frames or octets ends the run.
    pub fn is_counted(&self) -> bool {
        self.packets != u64::MAX || self.octets != u64::MAX
    }

    pub fn is_spent(&self) -> bool {
        self.packets == 0 || self.octets == 0
    }
}

/// A source's turn.
pub(crate) struct Turn<'a> {
    pub clock: Clock,
    /// On the engine's clock.
    pub now: Nanos,
    /// The clock by which frames are stamped.
    pub common: CommonClock,
    /// On virtual time: what is due from here on has to wait for another source's frames.
    pub until: Picos,
    /// Nothing is received here and nobody else sends: several batches may go in one turn.
    pub alone: bool,
    pub watch: &'a mut Watch,
    pub budget: &'a mut Budget,
    pub outlets: &'a mut Outlets,
    /// Parts that others wait for and that have ended, and when; each is told once.
    pub ended: &'a mut Vec<(Part, Picos)>,
}

impl Turn<'_> {
    /// The time since the start of the run.
    pub fn at(&self) -> Picos {
        self.clock.since_start(self.now)
    }
}

/// The sending queues of a worker.
#[derive(Default)]
pub(crate) struct Outlets {
    all: Vec<Outlet>,
    /// Sources are to be asked what they owe, because any outlet has several.
    shared: bool,
}

/// A port's sending queue: all sources of the worker that send by the port share it.
pub(crate) struct Outlet {
    pub port: usize,
    queue: Box<dyn TxQueue>,
    link: Option<Arc<Link>>,
    /// Frames handed over at once.
    pub limit: usize,
    /// See [`squall_port::PortFacts::ahead`].
    pub ahead: Nanos,
    /// Whose frames are in lent slots and not handed over: until then nobody else gets any.
    holder: Option<Member>,
    members: u32,
    finished: bool,
    pace: Arc<PortPace>,
    auditor: Auditor,
    /// Frames a second of each member, where that is known, and what may follow at once.
    rates: Vec<Option<f64>>,
    allowance: Allowance,
    /// When the worker came last, and how long after the time before; picoseconds.
    came: u64,
    passed: u64,
    /// The earliest instant of what members owe, and how far traffic time is in this turn, where
    /// that is found out for all of them.
    owed: u64,
    shared: bool,
    horizon: u64,
}

/// One of those who send by an outlet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    outlet: usize,
    number: u32,
}

impl Outlets {
    pub fn add(&mut self, outlet: Outlet) {
        self.all.push(outlet);
    }

    /// The outlet of `port`, for one more who sends by it.
    pub fn join(&mut self, port: usize) -> Option<Member> {
        let outlet = self.all.iter().position(|outlet| outlet.port == port)?;
        let of = &mut self.all[outlet];
        of.members += 1;
        of.shared |= of.members > 1;
        self.shared |= of.shared;
        of.rates.push(None);
        of.allowance = Allowance::of(None);
        Some(Member { outlet, number: of.members })
    }

    /// The member is paced by the turn, as are others: see [`Source::owe`].
    pub fn share(&mut self, member: Member) {
        self.of_mut(member).shared = true;
        self.shared = true;
    }

    /// Frames a second that the member sends where it sends fastest; `None`: not known.
    pub fn set_rate(&mut self, member: Member, pps: Option<f64>) {
        let outlet = self.of_mut(member);
        outlet.rates[member.number as usize - 1] = pps;
        outlet.allowance = Allowance::of(outlet.rates.iter().copied().sum());
    }

    /// The earliest frame that the member has not sent was due at `due`, without lag.
    #[inline]
    pub fn owe(&mut self, member: Member, due: u64) {
        let outlet = self.of_mut(member);
        outlet.owed = outlet.owed.min(due);
    }

    /// Whether sources are to be asked what they owe.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// The worker's turn begins at `at`; members of shared outlets have said what they owe.
    #[inline]
    pub fn begin_turn(&mut self, at: u64) {
        for outlet in &mut self.all {
            outlet.passed = at.saturating_sub(outlet.came);
            outlet.came = at;
            outlet.auditor.pass(bin(at));
            if outlet.shared {
                let owed = std::mem::replace(&mut outlet.owed, u64::MAX).min(at);
                outlet.horizon = outlet.pace.owing(at, owed, outlet.passed, outlet.allowance);
            }
        }
    }

    /// The outlet of `port`.
    pub fn of_port(&self, port: usize) -> Option<&Outlet> {
        self.all.iter().find(|outlet| outlet.port == port)
    }

    pub fn ports(&self) -> impl Iterator<Item = usize> + '_ {
        self.all.iter().map(|outlet| outlet.port)
    }

    #[inline]
    pub fn of(&self, member: Member) -> &Outlet {
        &self.all[member.outlet]
    }

    #[inline]
    pub fn of_mut(&mut self, member: Member) -> &mut Outlet {
        &mut self.all[member.outlet]
    }

    /// At most `want` slots; none where the port is full, or another's frames wait in its slots.
    #[inline]
    pub fn lend(&mut self, member: Member, want: usize) -> TxBatch<'_> {
        let outlet = &mut self.all[member.outlet];
        match outlet.holder {
            Some(holder) if holder != member => TxBatch::empty(),
            _ => outlet.queue.lend(want),
        }
    }

    /// Hands over the next `n` frames in lent slots; how many the port has taken.
    #[inline]
    pub fn send(&mut self, member: Member, n: usize) -> Result<usize, SendError> {
        let outlet = &mut self.all[member.outlet];
        let result = outlet.queue.send(n);
        let left = match &result {
            Ok(sent) => sent < &n,
            Err(SendError::Frame(_)) => n > 1,
            Err(SendError::Port(_)) => false,
        };
        outlet.holder = left.then_some(member);
        result
    }

    /// What waits in slots does not leave.
    pub fn release(&mut self, member: Member) {
        let outlet = &mut self.all[member.outlet];
        if outlet.holder == Some(member) {
            outlet.holder = None;
        }
    }
}

impl Outlet {
    pub fn new(
        port: usize,
        queue: Box<dyn TxQueue>,
        link: Option<Arc<Link>>,
        limit: usize,
        ahead: Nanos,
        pace: Arc<PortPace>,
    ) -> Self {
        Self {
            port,
            queue,
            link,
            limit,
            ahead,
            holder: None,
            members: 0,
            finished: false,
            auditor: Auditor::new(&pace.audit),
            pace,
            rates: Vec::new(),
            allowance: Allowance::of(None),
            came: 0,
            passed: 0,
            owed: u64::MAX,
            shared: false,
            horizon: 0,
        }
    }

    /// Traffic time up to which frames may leave at `at`, when the first of them was due at `due`:
    /// what is owed beyond an allowance becomes lag of the port.
    #[inline]
    pub fn horizon(&self, at: u64, due: u64) -> u64 {
        if self.shared {
            self.horizon
        } else {
            self.pace.owing(at, due, self.passed, self.allowance)
        }
    }

    /// Traffic time at `at`.
    #[inline]
    pub fn traffic(&self, at: u64) -> u64 {
        if self.shared { self.horizon } else { self.pace.clock.traffic(at) }
    }

    /// The real time at which what is due at `due` may leave.
    #[inline]
    pub fn real(&self, due: u64) -> u64 {
        self.pace.clock.real(due)
    }

    /// Paced frames have left at `at`, when traffic time was less by `lag`, and the first of them was
    /// due at `due`, without lag.
    #[inline]
    pub fn left(&self, at: u64, lag: u64, due: u64) {
        self.pace.left(at, lag, due, self.allowance);
    }

    /// By how much traffic time is less than real time.
    #[inline]
    pub fn lag(&self, at: u64) -> u64 {
        self.pace.clock.lag(at)
    }

    /// All that traffic time was moved by.
    pub fn moved(&self) -> Nanos {
        self.pace.clock.moved()
    }

    /// Of frames that have left, one was due at `due` in real time.
    #[inline]
    pub fn audit_due(&mut self, due: u64, frames: u64, octets: u64) {
        self.auditor.due(bin(due), frames, octets);
    }

    /// Frames have left at `at`.
    #[inline]
    pub fn audit_left(&mut self, at: u64, frames: u64, octets: u64, longest: u32) {
        self.auditor.left(bin(at), frames, octets, longest.into());
    }

    /// Frames whose due instants are known only roughly.
    pub fn audit_uncertain(&mut self, frames: u64) {
        self.auditor.uncertain(frames);
    }

    /// Why nothing will ever leave again, if that is so.
    #[inline]
    pub fn lost(&self) -> Option<io::Error> {
        let link = self.link.as_ref().filter(|link| link.state() == LinkState::Lost)?;
        Some(link.error())
    }

    #[inline]
    pub fn is_up(&self) -> bool {
        self.link.as_ref().is_none_or(|link| link.is_up())
    }

    /// What has become of frames that the port took ahead of their time.
    pub fn fates(&mut self) -> io::Result<(&[Fate], &mut Auditor)> {
        Ok((self.queue.fates()?, &mut self.auditor))
    }

    /// See [`TxQueue::reads_due`].
    pub fn reads_due(&self) -> bool {
        self.queue.reads_due()
    }

    /// How many frames the port gives back, of those that it took ahead of their time.
    pub fn take_back(&mut self) -> usize {
        self.queue.take_back()
    }

    /// Of a frame that was cut and then refused: see [`crate::cut`].
    pub fn partly_sent(&self, cut: Cut) -> (u64, u64) {
        crate::cut::partly_sent(&*self.queue, cut)
    }

    /// What was handed over is to be out. The first who asks is told what went wrong.
    pub fn finish(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.finished, true) {
            return Ok(());
        }
        self.queue.finish()
    }
}

/// How far number `i` of several may go on virtual time, by when each has its next instant: until
/// that of another, and of two at the same instant the first has its turn first.
pub(crate) fn earlier_of_others(due: &[Option<Picos>], i: usize) -> Picos {
    let others = due.iter().enumerate().filter(|(other, _)| *other != i);
    let until = others.filter_map(|(other, due)| {
        due.map(|due| if i < other { Picos(due.0.saturating_add(1)) } else { due })
    });
    until.min().unwrap_or(Picos(u64::MAX))
}
