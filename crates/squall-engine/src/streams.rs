//! A worker's streams as a [`Source`]: a [`Transmitter`] for each port that takes frames, a
//! [`Driver`] for each port that generates them itself.

use std::{collections::HashSet, sync::Arc};

use squall_plan::{Part, Plan};
use squall_program::Scratch;
use squall_units::{Nanos, Picos};

use crate::{
    Clock, Counters, PortTx, Snapshot, StreamTx,
    clock::Stalls,
    command::{Action, Command, Content, Rate},
    generate::Driver,
    hosts::HostTables,
    sink::Shown,
    source::{Outlets, Rest, STREAMS_AT_ONCE, Source, Turn, earlier_of_others},
    transmit::{Share, Transmitter},
};

/// Maximum number of batches per turn while no other source needs a turn. Bounded, because the
/// mailbox is read only between turns.
const MOST_ROUNDS: u32 = 8;

pub(crate) struct Streams {
    clock: Clock,
    tx: Vec<Transmitter>,
    drivers: Vec<Driver>,
    /// Whether to hash all sent frames.
    fingerprint: bool,
    scratch: Scratch,
    /// When each port's next frame is due, in virtual time.
    due: Vec<Option<Picos>>,
    /// Numbers of the streams that others wait for.
    awaited: Arc<HashSet<u32>>,
    /// Whether any stream waits for another.
    chained: bool,
    tables: HostTables,
}

impl Streams {
    pub fn new(
        clock: Clock,
        drivers: Vec<Driver>,
        fingerprint: bool,
        plan: &Plan,
        tables: HostTables,
    ) -> Self {
        let (tx, due) = (Vec::new(), Vec::new());
        let of = |part: &Part| match part {
            Part::Stream(number) => Some(*number as u32),
            _ => None,
        };
        let awaited = plan.afters.iter().flat_map(|after| after.of.iter().filter_map(of));
        Self {
            clock,
            tx,
            drivers,
            fingerprint,
            scratch: Scratch::default(),
            due,
            awaited: Arc::new(awaited.collect()),
            chained: !plan.afters.is_empty(),
            tables,
        }
    }

    /// Loads the streams of a port that has an outlet on this worker: see [`Transmitter::load`].
    pub fn load(
        &mut self,
        port: usize,
        outlets: &mut Outlets,
        streams: Vec<Share>,
        is_stopped: &dyn Fn() -> bool,
    ) {
        let Some(member) = outlets.join(port) else { return };
        let limit = outlets.of(member).limit;
        let (print, tables) = (self.fingerprint, self.tables.clone());
        let mut tx = Transmitter::new(port, member, self.clock, limit, print, tables);
        tx.await_ends(self.awaited.clone());
        tx.load(streams, outlets, is_stopped);
        self.tx.push(tx);
        self.due.push(None);
    }

    /// On virtual time any port could use up the whole count of the run. Therefore only the port
    /// with the earliest due frame may send, until another port's frame is due.
    fn in_turn(&mut self, turn: &Turn<'_>) -> bool {
        let in_turn = self.clock == Clock::Virtual
            && (turn.budget.is_counted() || self.chained)
            && !turn.budget.is_spent()
            && self.tx.len() > 1;
        if in_turn {
            for (tx, due) in self.tx.iter_mut().zip(&mut self.due) {
                let open = !tx.done;
                *due = open.then(|| tx.next_due(turn.outlets, turn.budget.end)).flatten();
            }
        }
        in_turn
    }
}

impl Source for Streams {
    fn turn(&mut self, turn: &mut Turn<'_>) -> bool {
        let (mut moved, until) = (false, turn.until);
        let in_turn = self.in_turn(turn);
        let rounds = if turn.alone && self.tx.len() == 1 { MOST_ROUNDS } else { 1 };
        for i in 0..self.tx.len() {
            let tx = &mut self.tx[i];
            if tx.done {
                continue;
            }
            // This reading becomes the timestamp in the frames. It is fresh, because the time
            // since the previous reading must not count as network delay.
            if moved {
                turn.now = turn.watch.now();
            }
            if in_turn {
                turn.until = until.min(earlier_of_others(&self.due, i));
            }
            for _ in 0..rounds {
                let sent = tx.turn(turn, &mut self.scratch);
                moved |= sent;
                if !sent || tx.done {
                    break;
                }
                // Right after a batch the previous reading is exact enough, and cheaper than a new
                // one.
                turn.now = turn.watch.last();
            }
            tx.report_ends(turn);
            if tx.done {
                // After the last frame of a run that ends by a count no frame is due, so none is
                // late.
                let early = turn.budget.is_spent() && turn.at() < turn.budget.end;
                tx.settle(turn, if early { Picos(0) } else { turn.budget.end });
            }
        }
        turn.until = until;
        for driver in self.drivers.iter_mut().filter(|driver| !driver.done) {
            driver.turn(turn.at());
        }
        moved
    }

    fn owe(&mut self, outlets: &mut Outlets) {
        self.tx.iter_mut().for_each(|tx| tx.owe(outlets));
    }

    fn next_due(&mut self, outlets: &Outlets, end: Picos) -> Option<Picos> {
        let open = self.tx.iter_mut().filter(|tx| !tx.done);
        open.filter_map(|tx| tx.next_due(outlets, end)).min()
    }

    fn is_done(&self) -> bool {
        self.tx.iter().all(|tx| tx.done) && self.drivers.iter().all(|driver| driver.done)
    }

    fn rest(&mut self, _now: Nanos) -> Rest {
        if self.tx.is_empty() { Rest::Supervise } else { Rest::Awake }
    }

    fn time(&self) -> Nanos {
        self.tx.iter().map(|tx| tx.counters.last).max().unwrap_or_default()
    }

    fn apply(&mut self, command: &Command, at: Picos, turn: &mut Turn<'_>) -> u64 {
        let Some(number) = command.stream() else { return 0 };
        if let Action::Replace(Content::Stream(stream)) = &command.action
            && self.tx.iter().all(|tx| tx.counters.port != stream.port)
        {
            // The first stream on a port on which other sources send. Other workers have no outlet
            // for it.
            self.load(stream.port, turn.outlets, Vec::new(), &|| false);
        }
        self.drivers.iter_mut().for_each(|driver| driver.apply(number, &command.action, at));
        let mut added = 0;
        for tx in &mut self.tx {
            match (number, &command.action) {
                (_, Action::Pause) => tx.pause(number, at),
                (_, Action::Resume) => tx.resume(number, at),
                (Some(number), Action::Rate(Rate::Gap(gap))) => {
                    tx.set_rate(number, *gap, at);
                }
                (Some(number), Action::Begin) => tx.begin(number, at),
                (Some(number), Action::Replace(Content::Nothing)) => {
                    tx.remove(number, at);
                }
                (Some(number), Action::Replace(Content::Stream(stream)))
                    if stream.port == tx.counters.port =>
                {
                    tx.add(number, stream.clone(), at);
                    added += 1;
                }
                _ => {}
            }
        }
        added
    }

    fn used(&self) -> (u64, u64) {
        let of = |tx: &Transmitter| {
            let (waiting, octets) = tx.at_hand();
            (tx.counters.packets + tx.counters.errors + waiting, tx.counters.octets + octets)
        };
        self.tx.iter().map(of).fold((0, 0), |sum, tx| (sum.0 + tx.0, sum.1 + tx.1))
    }

    fn settle(&mut self, turn: &mut Turn<'_>) -> bool {
        let end = turn.budget.end;
        self.tx.iter_mut().filter(|tx| !tx.done).for_each(|tx| tx.settle(turn, end));
        let at = turn.at();
        self.drivers.iter_mut().for_each(|driver| driver.close(at));
        true
    }

    fn close(&mut self, outlets: &mut Outlets) {
        self.tx.iter_mut().for_each(|tx| tx.close(outlets));
    }

    fn snapshot(&self, full: bool, stalls: Stalls, into: &mut Snapshot) {
        into.tx.extend(self.tx.iter().map(|tx| PortTx { stalls, ..tx.port() }));
        into.tx.extend(self.drivers.iter().map(Driver::port));
        into.streams.extend(self.drivers.iter().flat_map(|driver| driver.streams(full)));
        for driver in &self.drivers {
            into.cpu_time = into.cpu_time + driver.cpu_time();
        }
    }

    fn streams(&self, full: bool, done: usize, into: &mut Vec<StreamTx>) -> bool {
        let all: usize = self.tx.iter().map(Transmitter::count).sum();
        if done == 0 {
            into.reserve_exact(all);
        }
        let (mut before, wanted) = (0, done..done + STREAMS_AT_ONCE);
        for tx in &self.tx {
            let at = |number: usize| number.saturating_sub(before).min(tx.count());
            into.extend(tx.streams(full, at(wanted.start)..at(wanted.end)));
            before += tx.count();
        }
        wanted.end < all
    }

    fn remains(&mut self) -> Option<Shown> {
        Some(Box::new(std::mem::take(&mut self.tx)))
    }

    fn counters(&self, into: &mut Counters) {
        let stream = |s: StreamTx| (s.number, s.packets, s.octets);
        into.tx.extend(self.tx.iter().map(|tx| tx.counters.sent()));
        into.tx.extend(self.drivers.iter().map(|driver| driver.port().sent()));
        into.streams.extend(self.tx.iter().flat_map(Transmitter::counts));
        into.streams.extend(self.drivers.iter().flat_map(|d| d.streams(false)).map(stream));
        into.threads.extend(self.drivers.iter().filter_map(Driver::busy));
    }
}
