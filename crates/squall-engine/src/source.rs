//! The interface between a worker and the sources of frames.
//!
//! A worker has one list of [`Source`]s. In each turn every source sends its due frames through the
//! ports' [`Outlet`]s, which sources share. Receivers of frames are in [`crate::sink`].

use std::{io, sync::Arc};

use squall_plan::Part;
use squall_port::{CommonClock, Link, LinkState, SendError, TxBatch, TxOutcome, TxQueue};
use squall_program::{
    audit::{Auditor, bin},
    clock::Allowance,
};
use squall_units::{Cut, Nanos, Picos};

use crate::{
    Clock, Counters, Snapshot, StreamTx,
    clock::{Stalls, Watch},
    command::Command,
    pacing::PortPace,
    sink::{Shown, Sink, Wanted},
};

/// A frame whose timestamp is further in the future than this is held until then. Smaller
/// differences are ignored, because the clock readings of two threads may differ by that much.
pub(crate) const LATER: Nanos = Nanos(100_000);
/// Number of streams whose counters are copied in one turn: some 0.1 ms.
pub(crate) const STREAMS_AT_ONCE: usize = 512;
/// Timers and arrivals may be later than the start of the turn by this time, because the turn
/// itself takes time.
pub(crate) const SLIP: Nanos = Nanos(100_000);
/// Retry interval for a full port, in virtual time.
const TRY_AGAIN: Nanos = Nanos(1000);

/// Moves the virtual time of a source whose timers react to frames: to `next`, its next timer, if
/// that is before `until`; a little if its ports are full.
pub(crate) fn pass(now: &mut Nanos, next: Option<Nanos>, is_full: bool, until: Picos) {
    match next {
        _ if is_full => *now = *now + TRY_AGAIN,
        Some(next) => {
            let next = next.max(*now + Nanos(1));
            if Picos::from(next) < until {
                *now = next;
            }
        }
        None => std::thread::yield_now(),
    }
}

/// A source of frames: a worker's streams, a replay, or its share of the flows. The worker treats
/// them alike.
pub(crate) trait Source {
    /// One turn, at `turn.now`: sends due frames. Returns whether anything moved. Also called after
    /// the source is done, because a command may add frames.
    fn turn(&mut self, turn: &mut Turn<'_>) -> bool;

    /// Reports the due time of its earliest unsent frame, without lag, to the outlets
    /// ([`Outlets::owe`]). If several sources share an outlet, this is called before any of them
    /// takes its turn: after a stall the lag of all must be known first, otherwise the first source
    /// would send ahead of the others.
    fn owe(&mut self, _outlets: &mut Outlets) {}

    /// Begins the worker's turn: the horizons of shared outlets are known, and nothing has been
    /// received yet.
    fn begin_turn(&mut self, _now: Nanos, _outlets: &Outlets) {}

    /// Time of its next turn. `None`: only after a command or a received frame.
    fn next_due(&mut self, outlets: &Outlets, end: Picos) -> Option<Picos>;

    /// Whether it sends nothing more without a further command.
    fn is_done(&self) -> bool;

    /// Whether it answers received frames; if so, a received frame must wake the worker.
    fn reacts(&self) -> bool {
        false
    }

    /// How the worker may wait for it.
    fn rest(&mut self, now: Nanos) -> Rest;

    /// On virtual time, when nothing moved: advances to its next due time before `until`. Returns
    /// whether it keeps its own time.
    fn pass(&mut self, _until: Picos) -> bool {
        false
    }

    /// Its current time, in virtual time.
    fn time(&self) -> Nanos {
        Nanos::ZERO
    }

    /// Applies `command`. Returns the number of streams added.
    fn apply(&mut self, command: &Command, at: Picos, turn: &mut Turn<'_>) -> u64;

    /// Frames sent or about to be sent, and their octets with FCS: compared with the budget in a
    /// run that ends by a count.
    fn used(&self) -> (u64, u64) {
        (0, 0)
    }

    /// Ends sending: counts frames that were due and not sent. Called until it returns true; the
    /// worker receives in between.
    fn settle(&mut self, turn: &mut Turn<'_>) -> bool;

    /// Called after [`Source::settle`]: waits until frames that ports took have left.
    fn close(&mut self, outlets: &mut Outlets);

    /// Adds its counters and, if `full`, its histograms, except those of
    /// [`streams`](Source::streams). `stalls` are those of the worker.
    fn snapshot(&self, full: bool, stalls: Stalls, into: &mut Snapshot);

    /// Adds the counters of the [`STREAMS_AT_ONCE`] streams after the first `done` to `into`, and
    /// their histograms if `full`. Returns whether there are more.
    fn streams(&self, _full: bool, _done: usize, _into: &mut Vec<StreamTx>) -> bool {
        false
    }

    /// Adds its counters only.
    fn counters(&self, into: &mut Counters);

    /// Returns a value for display while it runs.
    fn show(&self, _now: Nanos, _wanted: &Wanted) -> Option<Shown> {
        None
    }

    /// Returns its final value; called once, after [`Source::close`].
    fn leave(&mut self) -> Option<Shown> {
        None
    }

    /// Returns its memory, which another thread may free; called after everything else.
    fn remains(&mut self) -> Option<Shown> {
        None
    }

    /// Its hosts at `port`, if any, which are the last sink of the port.
    fn sink(&mut self, _port: usize) -> Option<&mut dyn Sink> {
        None
    }
}

/// How a worker may wait for a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Sleep until shortly before the due time, then spin, because a CPU that slept wakes up late
    /// and with cold caches.
    Awake,
    /// Sleep; the port itself waits until each frame is due.
    Port,
    /// Sleep long: it makes no frames and only supervises threads that do.
    Supervise,
    /// Sleep until it is due or a frame arrives, whichever is first: hosts answer frames.
    Frames,
    /// As [`Rest::Frames`], but let several frames gather for this time before a wake-up.
    Gather(Nanos),
    /// Sleep briefly: its frames wait for room in the port.
    Full,
}

/// The remaining budget of the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub packets: u64,
    /// Remaining octets, with FCS. The frame that reaches the limit is the last.
    pub octets: u64,
    /// The time from which on due frames are not sent.
    pub end: Picos,
}

impl Budget {
    /// Whether a count of frames or octets ends the run.
    pub fn is_counted(&self) -> bool {
        self.packets != u64::MAX || self.octets != u64::MAX
    }

    pub fn is_spent(&self) -> bool {
        self.packets == 0 || self.octets == 0
    }
}

/// One turn of a source.
pub(crate) struct Turn<'a> {
    pub clock: Clock,
    /// On the engine's clock.
    pub now: Nanos,
    /// The clock that stamps frames.
    pub common: CommonClock,
    /// In virtual time, frames due at or after this time wait for the frames of another source.
    pub until: Picos,
    /// Nothing is received here and no other source sends: several batches may leave in one turn.
    pub alone: bool,
    pub watch: &'a mut Watch,
    pub budget: &'a mut Budget,
    pub outlets: &'a mut Outlets,
    /// Parts that ended and that others wait for, each with its end; a part is reported once.
    pub ended: &'a mut Vec<(Part, Picos)>,
}

impl Turn<'_> {
    /// The time from the start of the run.
    pub fn at(&self) -> Picos {
        self.clock.since_start(self.now)
    }
}

/// A worker's send queues.
#[derive(Default)]
pub(crate) struct Outlets {
    all: Vec<Outlet>,
    /// Whether some outlet is shared. Sources must then report overdue frames, because the members
    /// together determine the lag of the turn.
    shared: bool,
}

/// A port's send queue, shared by all sources of the worker that send on the port.
pub(crate) struct Outlet {
    pub port: usize,
    queue: Box<dyn TxQueue>,
    link: Option<Arc<Link>>,
    /// Maximum number of frames per send call.
    pub limit: usize,
    /// See [`squall_port::PortFacts::ahead`].
    pub ahead: Nanos,
    /// The member with unsent frames in lent slots. No other member gets slots before these are
    /// sent, because slots leave in order.
    holder: Option<Member>,
    members: u32,
    finished: bool,
    pace: Arc<PortPace>,
    auditor: Auditor,
    /// Rate of each member in frames/s, if known, and the burst allowed after a stall.
    rates: Vec<Option<f64>>,
    allowance: Allowance,
    /// Time of the worker's last turn, and the time between it and the previous turn; picoseconds.
    came: u64,
    passed: u64,
    /// The due time of the earliest frame that any member owes, and the traffic time of this turn.
    /// Used if several members determine them together.
    owed: u64,
    shared: bool,
    horizon: u64,
}

/// A source's membership in an outlet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    outlet: usize,
    number: u32,
}

impl Outlets {
    pub fn add(&mut self, outlet: Outlet) {
        self.all.push(outlet);
    }

    /// Adds a member to the outlet of `port`.
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

    /// Paces the member by the turn, together with others: see [`Source::owe`].
    pub fn share(&mut self, member: Member) {
        self.of_mut(member).shared = true;
        self.shared = true;
    }

    /// Sets the member's highest rate in frames per second; `None`: unknown.
    pub fn set_rate(&mut self, member: Member, pps: Option<f64>) {
        let outlet = self.of_mut(member);
        outlet.rates[member.number as usize - 1] = pps;
        outlet.allowance = Allowance::of(outlet.rates.iter().copied().sum());
    }

    /// Reports the due time of the member's earliest unsent frame, without lag.
    #[inline]
    pub fn owe(&mut self, member: Member, due: u64) {
        let outlet = self.of_mut(member);
        outlet.owed = outlet.owed.min(due);
    }

    /// Whether sources must report overdue frames.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// Begins the worker's turn at `at`. Members of shared outlets must have reported overdue
    /// frames before.
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

    /// When the member's timer for `due` in traffic time is due in real time, with the outlet's lag.
    pub fn real_due(&self, member: Member, clock: Clock, due: Nanos) -> Nanos {
        let due = clock.since_start(due).0;
        // Rounded up: a time rounded down would be requested again and again.
        clock.instant(Picos(self.of(member).real(due) + 999))
    }

    /// The time by which a hand-over may be late on every queue: see [`TxQueue::launches_after`].
    pub fn launches_after(&self) -> Nanos {
        self.all.iter().map(Outlet::launches_after).min().unwrap_or_default()
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

    /// Lends at most `want` slots; none if the port is full or another member has unsent frames in
    /// slots.
    #[inline]
    pub fn lend(&mut self, member: Member, want: usize) -> TxBatch<'_> {
        let outlet = &mut self.all[member.outlet];
        match outlet.holder {
            Some(holder) if holder != member => TxBatch::empty(),
            _ => outlet.queue.lend(want),
        }
    }

    /// Sends the frames in the next `n` lent slots. Returns the number that the port took.
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

    /// Discards the member's unsent frames in slots.
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

    /// Traffic time up to which frames may leave at `at`, if the first was due at `due`. A backlog
    /// above the allowance becomes lag of the port, because it would otherwise leave in a burst.
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

    /// The real time at which a frame due at `due` may leave.
    #[inline]
    pub fn real(&self, due: u64) -> u64 {
        self.pace.clock.real(due)
    }

    /// Records that paced frames left at `at`, with traffic time lagging by `lag`; the first was
    /// due at `due`, without lag.
    #[inline]
    pub fn left(&self, at: u64, lag: u64, due: u64) {
        self.pace.left(at, lag, due, self.allowance);
    }

    /// Real time minus traffic time.
    #[inline]
    pub fn lag(&self, at: u64) -> u64 {
        self.pace.clock.lag(at)
    }

    /// Sum of all lag ever added to traffic time.
    pub fn moved(&self) -> Nanos {
        self.pace.clock.moved()
    }

    /// Audits frames that left and were due at `due` in real time.
    #[inline]
    pub fn audit_due(&mut self, due: u64, frames: u64, octets: u64) {
        self.auditor.due(bin(due), frames, octets);
    }

    /// Audits frames that left at `at`.
    #[inline]
    pub fn audit_left(&mut self, at: u64, frames: u64, octets: u64, longest: u32) {
        self.auditor.left(bin(at), frames, octets, longest.into());
    }

    /// Audits frames whose due times are only roughly known.
    pub fn audit_uncertain(&mut self, frames: u64) {
        self.auditor.uncertain(frames);
    }

    /// Why the port can never send again; `None` if it can.
    #[inline]
    pub fn lost(&self) -> Option<io::Error> {
        let link = self.link.as_ref().filter(|link| link.state() == LinkState::Lost)?;
        Some(link.error())
    }

    #[inline]
    pub fn is_up(&self) -> bool {
        self.link.as_ref().is_none_or(|link| link.is_up())
    }

    /// The outcomes of frames that the port took ahead of their time.
    pub fn outcomes(&mut self) -> io::Result<(&[TxOutcome], &mut Auditor)> {
        Ok((self.queue.outcomes()?, &mut self.auditor))
    }

    /// See [`TxQueue::launches_after`].
    pub fn launches_after(&self) -> Nanos {
        self.queue.launches_after()
    }

    /// See [`TxQueue::reads_due`].
    pub fn reads_due(&self) -> bool {
        self.queue.reads_due()
    }

    /// Takes frames back that the port took ahead of their time. Returns their number.
    pub fn take_back(&mut self) -> usize {
        self.queue.take_back()
    }

    /// For a refused GSO frame, the segments and octets that have left: see [`crate::cut`].
    pub fn partly_sent(&self, cut: Cut) -> (u64, u64) {
        crate::cut::partly_sent(&*self.queue, cut)
    }

    /// Waits until frames that the port took are out. Only the first caller gets the error, so that
    /// it is counted once.
    pub fn finish(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.finished, true) {
            return Ok(());
        }
        self.queue.finish()
    }
}

/// How far source `i` may advance on virtual time: until another source is due. If two are due at
/// the same time, the one with the lower number goes first.
pub(crate) fn earlier_of_others(due: &[Option<Picos>], i: usize) -> Picos {
    let others = due.iter().enumerate().filter(|(other, _)| *other != i);
    let until = others.filter_map(|(other, due)| {
        due.map(|due| if i < other { Picos(due.0.saturating_add(1)) } else { due })
    });
    until.min().unwrap_or(Picos(u64::MAX))
}
