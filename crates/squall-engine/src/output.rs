//! Output of sources whose frames answer others, and are not known ahead of time: flows and hosts
//! fill lent slots, hand them to the port, and count the frames that it took.

use squall_measure::fingerprint;
use squall_port::{BATCH, PortFacts, SendError, TxBatch};
use squall_stats::Fingerprint;
use squall_units::{Cut, FCS_LEN, L1_OVERHEAD, Nanos, Picos};

use crate::{
    Clock, PortTx,
    source::{Member, Outlets, Turn},
    transmit::{Blocked, LINK_DOWN},
};

/// Makes the frames of one port.
pub(crate) trait FrameMaker {
    /// Whether frames wait for slots.
    fn has_frames(&self) -> bool;

    /// Fills slots. `now` is real time, from which the port's traffic clock lags by `lag`.
    fn fill(&mut self, now: Nanos, lag: Nanos, room: &mut Room<'_>);
}

/// Frames of one source on their way to one port.
pub(crate) struct Output {
    pub member: Member,
    limit: usize,
    longest: usize,
    /// The emulated wire. Present on virtual time, until the run ends.
    pub wire: Option<Wire>,
    /// Frames in lent slots: length, segmentation, and due time in real time. Those before `done`
    /// are sent.
    hand: [(u32, Cut, Nanos); BATCH],
    filled: usize,
    done: usize,
    /// Hashes of the frames in lent slots; empty if frames are not hashed.
    prints: Vec<Fingerprint>,
    blocked: Blocked,
    pub counters: PortTx,
    /// Received frames without a receive timestamp.
    pub uncertain: u64,
    /// Due time of the earliest frame that the source owed at the start of the turn; picoseconds,
    /// without lag.
    pub owed: Option<u64>,
}

impl Output {
    /// The output to a port whose longest frame has `longest` octets without FCS. `counters` has
    /// the port and the source, and a fingerprint if frames are to be hashed.
    pub fn new(member: Member, facts: &PortFacts, longest: usize, counters: PortTx) -> Self {
        let prints = if counters.fingerprint.is_some() { BATCH } else { 0 };
        Self {
            member,
            limit: facts.batch.clamp(1, BATCH),
            longest,
            wire: None,
            hand: [(0, Cut::WHOLE, Nanos::ZERO); BATCH],
            filled: 0,
            done: 0,
            prints: vec![Fingerprint::default(); prints],
            blocked: Blocked::default(),
            counters,
            uncertain: 0,
            owed: None,
        }
    }

    /// Whether no frame waits for room in the port.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.done == self.filled && self.counters.error.is_none()
    }

    #[inline]
    pub fn wire_has_room(&self, now: Nanos) -> bool {
        self.wire.is_none_or(|wire| wire.has_room(now))
    }

    /// Whether frames wait for room in the port.
    pub fn is_full(&self) -> bool {
        self.done < self.filled && self.counters.error.is_none()
    }

    /// Sends frames that wait in slots, then new frames of `maker`. Returns whether anything moved.
    #[inline]
    pub fn turn<M: FrameMaker>(
        &mut self,
        (now, lag): (Nanos, Nanos),
        maker: &mut M,
        turn: &mut Turn<'_>,
    ) -> bool {
        let mut moved = false;
        if self.counters.error.is_some() {
            return false;
        }
        if turn.outlets.of(self.member).lost().is_some() {
            return self.drop_pending(now, turn.outlets);
        }
        if self.done < self.filled {
            moved |= self.send(now, turn);
        }
        while self.has_room() && self.wire_has_room(now) && maker.has_frames() {
            let batch = turn.outlets.lend(self.member, self.limit);
            if batch.is_empty() {
                self.blocked.note(now, true, &mut self.counters);
                break;
            }
            let mut room = Room {
                batch,
                hand: &mut self.hand,
                filled: 0,
                now,
                due: now,
                longest: self.longest,
            };
            maker.fill(now, lag, &mut room);
            room.hash(&mut self.prints);
            (self.filled, self.done) = (room.filled, 0);
            if self.filled == 0 {
                break;
            }
            moved |= self.send(now, turn);
        }
        moved
    }

    fn send(&mut self, now: Nanos, turn: &mut Turn<'_>) -> bool {
        if !turn.outlets.of(self.member).is_up() {
            return self.drop_pending(now, turn.outlets);
        }
        let wanted = self.filled - self.done;
        match turn.outlets.send(self.member, wanted) {
            Ok(sent) => {
                self.blocked.note(now, sent < wanted, &mut self.counters);
                let before = (self.counters.packets, self.counters.octets);
                if sent > 0 {
                    self.credit(sent, turn);
                }
                if let Some(wire) = &mut self.wire {
                    let PortTx { packets, octets, .. } = self.counters;
                    wire.take(now, packets - before.0, octets - before.1);
                }
                self.done += sent;
                if sent > 0 {
                    self.counters.last = now.max(turn.watch.last());
                }
                sent > 0
            }
            Err(SendError::Frame(reason)) => {
                self.counters.errors += 1;
                *self.counters.not_sent.entry(reason).or_default() += 1;
                self.done += 1;
                true
            }
            Err(SendError::Port(error)) => {
                self.counters.error = Some(error.to_string());
                self.drop_hand("port_lost", turn.outlets);
                false
            }
        }
    }

    /// Counts the next `sent` frames, which the port has taken.
    #[inline]
    fn credit(&mut self, sent: usize, turn: &mut Turn<'_>) {
        let outlet = turn.outlets.of_mut(self.member);
        let before = (self.counters.packets, self.counters.octets);
        // A new clock reading, because the thread may have been preempted during the turn.
        let at = turn.watch.now();
        let mut longest = 0;
        let audited = turn.clock != Clock::Virtual;
        for (len, cut, due) in &self.hand[self.done..self.done + sent] {
            let segments = u64::from(cut.segments(*len));
            let size = if cut.is_whole() { u64::from(len + FCS_LEN) } else { cut.octets(*len) };
            if audited {
                outlet.audit_due(turn.clock.since_start((*due).min(at)).0, segments, size);
            }
            longest = longest.max(len + FCS_LEN);
            self.counters.packets += segments;
            self.counters.octets += size;
            if !cut.is_whole() {
                self.counters.gso_frames += 1;
                self.counters.segments += segments;
            }
        }
        if let Some(all) = &mut self.counters.fingerprint {
            self.prints[self.done..self.done + sent].iter().for_each(|print| all.merge(*print));
        }
        if audited {
            let (packets, octets) =
                (self.counters.packets - before.0, self.counters.octets - before.1);
            outlet.audit_left(turn.clock.since_start(at).0, packets, octets, longest);
            if let Some(due) = self.owed {
                let at = turn.clock.since_start(at).0;
                outlet.left(at, outlet.lag(at), due);
            }
            if self.uncertain > 0 {
                outlet.audit_uncertain(std::mem::take(&mut self.uncertain));
            }
        }
    }

    /// Drops the waiting frames, because the link is down. They are lost as for any host, and
    /// protocols repeat theirs.
    #[cold]
    fn drop_pending(&mut self, now: Nanos, outlets: &mut Outlets) -> bool {
        self.blocked.note(now, false, &mut self.counters);
        if let Some(error) = outlets.of(self.member).lost() {
            self.counters.error = Some(error.to_string());
            self.drop_hand("port_lost", outlets);
            return false;
        }
        self.drop_hand(LINK_DOWN, outlets);
        true
    }

    fn drop_hand(&mut self, reason: &'static str, outlets: &mut Outlets) {
        outlets.release(self.member);
        let frames: u64 = self.hand[self.done..self.filled]
            .iter()
            .map(|(len, cut, _)| u64::from(cut.segments(*len)))
            .sum();
        if frames > 0 {
            *self.counters.not_sent.entry(reason).or_default() += frames;
        }
        self.done = self.filled;
    }

    pub fn close(&mut self, outlets: &mut Outlets) {
        self.drop_hand("port_full", outlets);
        if let Err(error) = outlets.of_mut(self.member).finish() {
            self.counters.error.get_or_insert(error.to_string());
        }
    }
}

/// Slots to fill.
pub(crate) struct Room<'a> {
    batch: TxBatch<'a>,
    hand: &'a mut [(u32, Cut, Nanos); BATCH],
    filled: usize,
    now: Nanos,
    /// Due time of the next frames, in real time.
    pub due: Nanos,
    longest: usize,
}

impl Room<'_> {
    /// The current time, in real time.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// The octets of the longest frame, without FCS.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Hashes the filled frames, if `prints` has places for them.
    fn hash(&self, prints: &mut [Fingerprint]) {
        let slots = self.batch.base.chunks(self.batch.stride).zip(self.hand.iter());
        for ((slot, (len, cut, _)), print) in slots.take(self.filled).zip(prints) {
            *print = fingerprint(&slot[..*len as usize], *cut);
        }
    }

    /// The next slot, for a frame of `len` octets that is due at `self.due`; `None` if all are
    /// filled.
    #[inline]
    pub fn frame(&mut self, len: usize, cut: Cut) -> Option<&mut [u8]> {
        let at = self.filled;
        if at == self.batch.len() {
            return None;
        }
        self.filled += 1;
        self.hand[at] = (len as u32, cut, self.due);
        self.batch.frame(at, len, self.now);
        let meta = &mut self.batch.meta[at];
        // Reset, because a reused slot has the metadata of its previous frame.
        (meta.owner, meta.mark, meta.cut) = (0, 0, cut);
        let start = at * self.batch.stride;
        Some(&mut self.batch.base[start..][..len])
    }
}

/// The wire of a port on virtual time. A link in memory takes any number of frames in no time, so a
/// program that sends until a deadline would never end. Frames therefore take time as on a NIC: its
/// queue holds frames that the wire has not taken, and the port is full while the queue is. A frame
/// counts as departed when it enters the queue, so the wire adds no delay while the queue has room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wire {
    bits_per_second: u64,
    /// When the wire will have taken all frames so far.
    free: Picos,
}

/// Length of the queue in wire time: 1 ms, like a NIC's ring (docs/adr/0051). At 10 Gb/s, some 800
/// frames of 1500 octets.
const QUEUE: Picos = Picos(1_000_000_000);

impl Wire {
    pub fn new(bits_per_second: u64) -> Self {
        Self { bits_per_second, free: Picos(0) }
    }

    pub fn has_room(&self, now: Nanos) -> bool {
        self.free.0 < Picos::from(now).0.saturating_add(QUEUE.0)
    }

    /// When a sixteenth of the full queue will be free: filling it frame by frame would cost a turn
    /// per frame.
    pub fn room_at(&self) -> Nanos {
        Nanos(self.free.0.saturating_sub(QUEUE.0 / 16 * 15).div_ceil(1000))
    }

    /// Adds `frames` frames with a total of `octets` octets with FCS.
    fn take(&mut self, now: Nanos, frames: u64, octets: u64) {
        let bits = 8 * u128::from(octets + frames * u64::from(L1_OVERHEAD));
        let time = bits * u128::from(Picos::SECOND.0) / u128::from(self.bits_per_second);
        let begin = self.free.max(now.into());
        self.free = Picos(begin.0.saturating_add(u64::try_from(time).unwrap_or(u64::MAX)));
    }
}
