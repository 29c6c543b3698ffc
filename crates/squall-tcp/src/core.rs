//! State of the stack: flows and their table, timers, classes, pending packets.

use std::{collections::VecDeque, net::IpAddr};

use squall_units::Nanos;
use squall_wire::tcp_flags::{ACK, RST};

use crate::{
    ClassId, Congestion, ConnectError, Counters, FlowId, Piece, SendError, Settings, StateParts,
    Tunables, Tuple, UnmatchedCounters,
    addresses::{Addresses6, Packed, WHOLE},
    congestion::{self, initial_window},
    extra::Extra,
    flow::{Bits, Duration, EXTRA, Flow, State},
    hash,
    packet::{
        Addresses, ICMP, ICMP6, Key, OptionWords, TCP, TCP_HEADER, TcpHeader, UDP, UDP_HEADER,
        ip_len, put16, write_ip, write_tcp, write_udp,
    },
    pieces::{NO_PIECE, Pieces, Placed},
    queue::Queue,
    rest::{Numbers, Place, Rest},
    seq::{self, le},
    stack::FlowHint,
    table::Table,
    wait_table::{Home, WaitTable},
    waits::{Wait, WaitBits, Waits},
    wheel::{Records, Wheel, tick, tick_after, ticks},
};

/// Maximum number of pending answers to packets that belong to no flow. A flood of them would
/// otherwise use memory without bound.
const MAX_ANSWERS: usize = 4096;

/// Maximum number of outstanding octets: a quarter of the sequence space, the largest window of RFC
/// 7323 §2.3. Comparisons modulo 2^32 need less than half of the space.
const MAX_OUTSTANDING: u32 = 1 << 30;

/// Maximum number of received octets that may stay unacknowledged: the size of a GRO packet.
pub(crate) const MAX_UNACKED: u32 = 1 << 16;

/// Ticks for which a flow must have waited to be put to rest: 17 ms, longer than most round trips.
const REST_AFTER: i32 = 256;

/// Records that are tried, one after the other, when a flow is to be put to rest.
const REST_TRIES: usize = 8;

type PartsOf<S> = (fn(&S) -> Option<StateParts>, fn(&StateParts) -> S);

pub(crate) struct Core<S> {
    /// Records, by index. The functions of the stack take these indices as `flow`; applications,
    /// tables and timers have numbers, because an index changes while a flow is at rest.
    pub flows: Slab<S>,
    /// Head of the list of free records.
    free: u32,
    pub numbers: Numbers,
    pub rest: Rest,
    /// The record that was tried last.
    hand: usize,
    /// [`crate::Application::divide`] and [`crate::Application::join`].
    pub parts_of: PartsOf<S>,
    /// Maps hashes to the numbers of flows that are not in [`Core::waits`].
    pub table: Table,
    /// Has the positions in [`Core::waits`]. Apart from the flows, because thousands of
    /// tuples in TIME-WAIT would otherwise drive a table of few open flows out of the near caches.
    wait_table: WaitTable,
    pub wheel: Wheel,
    /// Flows in TIME-WAIT with nothing to send. A flow that owes an ACK, or received a segment, has
    /// a record until it has answered.
    waits: Waits,
    pub pieces: Pieces,
    pub extras: Vec<Extra>,
    spare_extras: Vec<u32>,
    pub addresses6: Addresses6,
    /// Flows with something to send, in order, each with the tick at which its packets were due
    /// ([`Core::cause_tick`]). An entry counts only if its flow has [`Bits::QUEUED`], so that a
    /// released flow need not be searched here.
    pub queue: Queue,
    pub answers: VecDeque<Answer>,
    /// Datagrams of flows to other ends than the flow's.
    pub detours: VecDeque<Detour>,
    /// Flows that get [`crate::Event::Settle`], and the causes of the steps that requested it.
    pub unsettled: Vec<Unsettled>,
    /// The ends of the datagram that is being received, if its peer has moved.
    pub moved: Option<Key>,
    /// The flow to which the application has passed that datagram on.
    pub passed_on: Option<FlowId>,
    pub classes: Vec<Class>,
    pub strays: UnmatchedCounters,
    pub settings: Settings,
    /// Out-of-order octets buffered by all flows.
    pub reassembly_used: u64,
    pub ip_id: u16,
    /// Start of the current second, and the number of challenge ACKs in it.
    challenges: (Nanos, u32),
    /// Whether some flow has [`MAX_UNACKED`] unacknowledged octets.
    pub ack_overdue: bool,
    /// Lag of `now` against real time ([`crate::Stack::set_lag`]), and the lag before the last
    /// change.
    pub lag: Nanos,
    pub lag_before: Nanos,
    /// Arrival of the next received packet, in real time; 0: now.
    pub arrived: Nanos,
    /// When the next opened flow was due, on the timer clock; 0: now.
    pub connect_due: Nanos,
    /// When the current step was due, on the timer clock and in ticks of real time.
    pub cause: Nanos,
    pub cause_tick: u32,
    /// Number of flows, without those in TIME-WAIT.
    pub active: u32,
    pub time_wait: u32,
}

/// The records, in one vector that grows with the flows: chunks would cost a further load at each
/// access. Growing moves pages, not octets (mremap): 1 ms for 4 million flows, measured with glibc.
pub(crate) struct Slab<S>(pub Vec<Flow<S>>);

impl<S> std::ops::Index<u32> for Slab<S> {
    type Output = Flow<S>;
    #[inline]
    fn index(&self, flow: u32) -> &Flow<S> {
        &self.0[flow as usize]
    }
}

impl<S> std::ops::IndexMut<u32> for Slab<S> {
    #[inline]
    fn index_mut(&mut self, flow: u32) -> &mut Flow<S> {
        &mut self.0[flow as usize]
    }
}

/// The records as the wheel sees them.
struct Timers<'a, S> {
    flows: &'a Slab<S>,
    numbers: &'a mut Numbers,
    rest: &'a Rest,
    extras: &'a [Extra],
}

impl<S> Records for Timers<'_, S> {
    #[inline]
    fn slot(&mut self, number: u32) -> &mut u16 {
        self.numbers.slot(number)
    }

    #[inline]
    fn deadline(&self, number: u32, now: u32) -> Option<u32> {
        let first = |at: &u32| at.wrapping_sub(now) as i32;
        let f = match self.numbers.place(number) {
            Place::Record(flow) => &self.flows[flow],
            Place::Rest(row) => {
                return self.rest.deadlines(row).into_iter().flatten().min_by_key(first);
            }
            Place::Free => return None,
        };
        let rtx = f.bits.has(Bits::RTX).then_some(f.rtx_at);
        let app = f.bits.has(Bits::APP).then_some(f.app_at);
        let ack = f.bits.delays_ack().then(|| f.ack_due(now));
        let pace = if f.has_extra() { pace_tick(&self.extras[f.extra_place()]) } else { None };
        [rtx, app, ack, pace].into_iter().flatten().min_by_key(first)
    }

    #[inline]
    fn is_free(&self, number: u32) -> bool {
        self.numbers.place(number) == Place::Free
    }

    #[inline]
    fn count(&self) -> usize {
        self.numbers.count()
    }
}

/// A class of flows: its tunables, times in ticks, and its counters.
pub(crate) struct Class {
    pub tunables: Tunables,
    pub counters: Counters,
    /// Receive window in octets, a multiple of `1 << scale`.
    pub window: u32,
    /// The window field of segments, never 0, and its octets: without scaling, and with it.
    pub advertised: [(u16, u32); 2],
    /// Shift of the local windows, if scaling is agreed.
    pub scale: u8,
    pub rto_initial: u32,
    pub rto_min: u32,
    pub rto_max: u32,
    pub delayed_ack: u32,
    /// Octets; `u32::MAX` if there is no limit.
    pub send_buffer: u32,
    pub time_wait: u32,
    /// 0: none.
    pub keepidle: u32,
    pub fin_wait: u32,
    /// The initial congestion windows of flows with the MSS of the tunables, over IPv4 and IPv6.
    initial: [(u16, u32); 2],
    /// Flows whose SRTT and RTTVAR are at most this, as bits of a [`Duration`], have the least RTO.
    calm: u16,
    /// Flags of the options that its SYNs offer.
    pub offers: u32,
    /// Whether its flows use [`crate::Application::at_once`].
    pub at_once: bool,
    /// The last samples of round-trip times: SRTT, RTTVAR and sample, and the new SRTT and RTTVAR.
    pub samples: Samples,
    /// Its queue in [`Core::waits`].
    ring: usize,
}

impl Class {
    pub fn new(tunables: Tunables) -> Self {
        let scale = tunables.wscale.unwrap_or(0);
        // A window that is not a multiple of the scale would shrink by rounding (RFC 7323 §2.4),
        // and a receiver must not shrink its window.
        let window = (tunables.window >> scale).max(1) << scale;
        Self {
            window,
            advertised: [0, scale].map(|scale| advertised(window, scale)),
            scale,
            rto_initial: ticks(tunables.rto_initial),
            rto_min: ticks(tunables.rto_min),
            rto_max: ticks(tunables.rto_max),
            delayed_ack: ticks(tunables.delayed_ack),
            send_buffer: if tunables.send_buffer == 0 { u32::MAX } else { tunables.send_buffer },
            time_wait: ticks(tunables.time_wait),
            keepidle: ticks(tunables.keepidle),
            fin_wait: ticks(tunables.fin_wait),
            initial: [tunables.mss, tunables.mss6()]
                .map(|mss| (mss, initial_window(tunables.initwnd, mss.into()))),
            calm: calm(ticks(tunables.rto_min)),
            offers: if tunables.timestamps { Bits::TIMESTAMPS } else { 0 }
                | if tunables.sack { Bits::SACK } else { 0 }
                | if tunables.ecn { Bits::ECN } else { 0 },
            at_once: tunables.congestion != Congestion::Bbr && tunables.ack_octets == 0,
            samples: [(u64::MAX, [Duration::default(); 2]); 8],
            ring: 0,
            tunables,
            counters: Counters::default(),
        }
    }

    /// The initial congestion window of a flow over IPv6 (`v6`) or IPv4 with this MSS.
    #[inline(always)]
    pub fn initial_window(&self, v6: bool, mss: u16) -> u32 {
        match self.initial[usize::from(v6)] {
            (of, window) if of == mss => window,
            _ => initial_window(self.tunables.initwnd, mss.into()),
        }
    }

    /// Adds a round-trip time sample in microseconds to a flow of this class. Flows on one path
    /// have the same few values, so these are kept.
    #[inline(always)]
    pub fn sample<S>(samples: &mut Samples, f: &mut Flow<S>, us: u32) {
        let (srtt, rttvar) = (u64::from(f.srtt.bits()), u64::from(f.rttvar.bits()));
        let key = u64::from(us) << 32 | srtt << 16 | rttvar;
        let place = &mut samples[(srtt ^ rttvar ^ rttvar >> 6) as usize % samples.len()];
        if place.0 != key {
            *place = (key, smoothed(f.srtt, f.rttvar, us));
        }
        [f.srtt, f.rttvar] = place.1;
    }
}

/// SRTT, RTTVAR and sample of some samples, and the SRTT and RTTVAR after them.
pub(crate) type Samples = [(u64, [Duration; 2]); 8];

#[inline(never)]
fn smoothed(srtt: Duration, rttvar: Duration, us: u32) -> [Duration; 2] {
    let (srtt, rttvar) = congestion::smooth(srtt.micros(), rttvar.micros(), us);
    [srtt, rttvar].map(Duration::from_micros)
}

/// The longest SRTT and RTTVAR for which [`rto`] is `rto_min` ticks.
fn calm(rto_min: u32) -> u16 {
    // SRTT + max(1 ms, 4 RTTVAR) is less than 5 times the longer one and 1 ms, in whole ticks,
    // rounded up.
    let us = (u64::from(rto_min.saturating_sub(1)) << 16) / 1000;
    Duration::from_micros((us.saturating_sub(1000) / 5) as u32).bits()
}

/// A packet that is sent without a flow.
pub(crate) struct Answer {
    pub class: ClassId,
    pub cause_tick: u32,
    pub tuple: Tuple,
    pub len: u8,
    // The longest have 100: IPv6 and TCP headers with 40 octets of options.
    pub octets: [u8; 104],
}

/// A flow that requested [`crate::Event::Settle`], with [`Core::cause`] and [`Core::cause_tick`].
pub(crate) struct Unsettled {
    /// The flow's number: its record may become another's meanwhile.
    pub number: u32,
    pub cause: Nanos,
    pub cause_tick: u32,
}

/// A datagram to another end than the flow's.
pub(crate) struct Detour {
    pub class: ClassId,
    pub cause_tick: u32,
    pub key: Key,
    /// With its headers.
    pub packet: Vec<u8>,
}

const NONE: u32 = u32::MAX;

/// Number of ended TIME-WAITs that are removed from the table in one batch.
const EXPIRY_BATCH: usize = 16;

/// Borrows [`Keys`] apart from the tables, which are borrowed mutably.
macro_rules! keys {
    ($core:expr) => {
        Keys {
            flows: &$core.flows,
            numbers: &$core.numbers,
            rest: &$core.rest,
            addresses6: &$core.addresses6,
            secret: $core.settings.key,
        }
    };
}

impl<S: Copy + Default> Core<S> {
    pub fn new(settings: Settings) -> Self {
        let waits = Waits::new(settings.flows);
        Self {
            flows: Slab(Vec::new()),
            free: NONE,
            numbers: Numbers::new(),
            rest: Rest::new(),
            hand: 0,
            parts_of: (|_| None, |_| S::default()),
            table: Table::new(settings.flows, settings.flows as usize),
            wait_table: WaitTable::new(settings.flows, waits.most()),
            wheel: Wheel::new(),
            waits,
            pieces: Pieces::new(),
            extras: Vec::new(),
            spare_extras: Vec::new(),
            addresses6: Addresses6::new(),
            queue: Queue::default(),
            answers: VecDeque::new(),
            detours: VecDeque::new(),
            unsettled: Vec::new(),
            moved: None,
            passed_on: None,
            classes: Vec::new(),
            strays: UnmatchedCounters::default(),
            settings,
            reassembly_used: 0,
            ip_id: 0,
            challenges: (Nanos::ZERO, 0),
            ack_overdue: false,
            lag: Nanos::ZERO,
            lag_before: Nanos::ZERO,
            arrived: Nanos::ZERO,
            connect_due: Nanos::ZERO,
            cause: Nanos::ZERO,
            cause_tick: 0,
            active: 0,
            time_wait: 0,
        }
    }

    pub fn add_class(&mut self, tunables: Tunables) {
        let mut class = Class::new(tunables);
        class.ring = self.waits.ring(class.time_wait);
        self.classes.push(class);
    }

    /// A flow and its class, both mutable.
    #[inline(always)]
    pub fn parts(&mut self, flow: u32) -> (&mut Flow<S>, &mut Class) {
        let f = &mut self.flows.0[flow as usize];
        let class = &mut self.classes[usize::from(f.class)];
        (f, class)
    }

    #[inline]
    pub fn class_mut(&mut self, flow: u32) -> &mut Class {
        &mut self.classes[usize::from(self.flows[flow].class)]
    }

    #[inline]
    pub fn class(&self, flow: u32) -> &Class {
        &self.classes[usize::from(self.flows[flow].class)]
    }

    #[inline]
    pub fn counters(&mut self, flow: u32) -> &mut Counters {
        &mut self.class_mut(flow).counters
    }

    pub fn memory(&self) -> usize {
        let extras: usize = self.extras.iter().map(|e| size_of::<Extra>() + e.capacity()).sum();
        self.flows.0.len() * size_of::<Flow<S>>()
            + self.numbers.memory()
            + self.rest.memory()
            + self.tables_memory()
            + self.wheel.memory()
            + self.waits.memory()
            + self.pieces.memory()
            + extras
            + self.addresses6.memory()
            + self.queue.memory()
            + self.spare_extras.capacity() * 4
            + self.detours.iter().map(|of| size_of::<Detour>() + of.packet.len()).sum::<usize>()
    }

    /// Memory of the table of flows and that of TIME-WAIT, octets.
    #[inline]
    pub fn tables_memory(&self) -> usize {
        self.table.memory() + self.wait_table.memory()
    }

    // Lookup.

    #[inline]
    pub fn hash(&self, key: &Key) -> u32 {
        hash_with(self.settings.key, key)
    }

    /// Finds the TCP flow of a packet. If that takes its hash, `near` gets it.
    #[inline(always)]
    pub fn find_near(&mut self, near: &mut FlowHint, key: &Key) -> Option<u32> {
        match self.numbers.record(near.flow.wrapping_sub(1)) {
            Some(flow) if self.is(flow, key) => Some(flow),
            _ => {
                let hash = near.hash.unwrap_or_else(|| self.hash(key));
                near.hash = Some(hash);
                self.find_flow(hash, key)
            }
        }
    }

    /// The record of the flow with this key, which ends its rest.
    #[inline(always)]
    fn find_flow(&mut self, hash: u32, key: &Key) -> Option<u32> {
        for number in self.table.find(hash) {
            match self.numbers.record(number) {
                Some(flow) if self.is(flow, key) => return Some(flow),
                // By value, because a key whose address is taken is written to memory.
                None if self.rests_with(number, *key) => return Some(self.end_rest(number)),
                _ => {}
            }
        }
        None
    }

    #[inline]
    pub fn find(&mut self, hash: u32, key: &Key) -> Option<Found> {
        match self.find_flow(hash, key) {
            Some(flow) => Some(Found::Flow(flow)),
            None => self.find_wait(key).map(Found::Wait),
        }
    }

    /// The position in [`Core::waits`] of a flow in TIME-WAIT without a record.
    #[inline(always)]
    pub fn find_wait(&self, key: &Key) -> Option<u32> {
        // As at servers whose clients close first: a look-up would only load a bucket.
        if self.wait_table.is_empty() || key.udp { None } else { self.find_among_waits(*key) }
    }

    #[inline(never)]
    fn find_among_waits(&self, key: Key) -> Option<u32> {
        let home = home_with(self.settings.key, &key);
        self.wait_table.find(home, |place| self.is_wait(place, &key))
    }

    /// Prefetches the slots of a key with this hash: its flow number + 1, or 0 without a flow.
    #[inline]
    pub fn peek(&self, hash: u32, key: &Key) -> u32 {
        let flow = self.table.peek(hash);
        if flow == 0 && !self.wait_table.is_empty() {
            // Then it may be in TIME-WAIT, or a new flow, which is looked for there, too.
            self.wait_table.touch(home_with(self.settings.key, key));
        }
        flow
    }

    /// The record of the open flow with this number, which ends its rest.
    #[inline(always)]
    pub fn record(&mut self, number: u32) -> u32 {
        match self.numbers.record(number) {
            Some(flow) => flow,
            None => self.end_rest(number),
        }
    }

    #[inline(never)]
    fn rests_with(&self, number: u32, key: Key) -> bool {
        let Place::Rest(row) = self.numbers.place(number) else { return false };
        self.rest.key(row, &self.addresses6) == key
    }

    #[inline(always)]
    fn is(&self, flow: u32, key: &Key) -> bool {
        let f = &self.flows[flow];
        // In the order of the fields, so that each pair is one load and one comparison.
        let ports = |local: u16, remote: u16| u32::from(remote) << 16 | u32::from(local);
        let pair = |local: u32, remote: u32| u64::from(remote) << 32 | u64::from(local);
        ports(f.local_port, f.remote_port) == ports(key.local_port, key.remote_port)
            && f.bits.is_udp() == key.udp
            && match key.addresses {
                Addresses::V4 { local, remote } => {
                    pair(f.local, f.remote) == pair(local, remote) && !f.bits.has(Bits::V6)
                }
                Addresses::V6 { local, remote } => {
                    f.bits.has(Bits::V6) && self.addresses6.get(f.packed()) == (local, remote)
                }
            }
    }

    #[inline(never)]
    fn is_wait(&self, place: u32, key: &Key) -> bool {
        self.waits.find(place).is_some_and(|wait| {
            wait.local_port == key.local_port
                && wait.remote_port == key.remote_port
                && wait.key(&self.addresses6) == *key
        })
    }

    #[inline]
    pub fn key(&self, flow: u32) -> Key {
        self.flows[flow].key(&self.addresses6)
    }

    // Allocation and release.

    /// Whether no further flow fits.
    pub fn is_full(&self) -> bool {
        self.active + self.time_wait >= self.settings.flows
    }

    /// Allocates a record for a new flow and adds it to the table; `None`: full.
    pub fn allocate(
        &mut self,
        class: ClassId,
        key: &Key,
        hash: u32,
        tcp_state: State,
        state: S,
    ) -> Option<u32> {
        if self.is_full() {
            return None;
        }
        let (flow, number) = self.take_number();
        let of = &mut self.classes[usize::from(class.0)];
        of.counters.active += 1;
        let mut bits = Bits::default();
        bits.set_state(tcp_state);
        let (packed, mss) = match key.addresses {
            Addresses::V4 { local, remote } => {
                (Packed { local, remote, upper: 0 }, of.tunables.mss)
            }
            Addresses::V6 { local, remote } => {
                bits.set(Bits::V6);
                (self.addresses6.pack((local, remote)), of.tunables.mss6())
            }
        };
        self.flows[flow] = Flow {
            local: packed.local,
            remote: packed.remote,
            upper: packed.upper,
            local_port: key.local_port,
            remote_port: key.remote_port,
            class: class.0,
            mss,
            bits,
            number,
            state,
            ..Flow::new()
        };
        let keys = keys!(self);
        self.table.insert(hash, number, |number| keys.of_flow(number));
        self.active += 1;
        Some(flow)
    }

    /// A record for a new flow, and its number.
    #[inline(always)]
    fn take_record(&mut self) -> (u32, u32) {
        let (flow, number) = self.take_number();
        self.flows[flow] = Flow { number, ..Flow::new() };
        (flow, number)
    }

    /// [`Core::take_record`] without a change of the record.
    #[inline(always)]
    fn take_number(&mut self) -> (u32, u32) {
        let flow = self.free_record();
        let (number, slot) = self.numbers.take(flow);
        self.wheel.unpark(slot);
        (flow, number)
    }

    #[inline]
    fn free_record(&mut self) -> u32 {
        let flow = self.free;
        if flow != NONE {
            self.free = self.flows[flow].local;
            return flow;
        }
        self.another_record()
    }

    /// A record for a further flow, from one that waits or a new one.
    #[inline(never)]
    fn another_record(&mut self) -> u32 {
        let count = self.flows.0.len();
        if count >= self.settings.records as usize {
            for _ in 0..REST_TRIES.min(count) {
                self.hand = if self.hand + 1 < count { self.hand + 1 } else { 0 };
                let flow = self.hand as u32;
                if self.begin_rest(flow) {
                    return flow;
                }
            }
        }
        self.flows.0.push(Flow::new());
        count as u32
    }

    /// Puts a flow to rest, if it waits with nothing to send. Returns whether it does; its record
    /// is then free.
    fn begin_rest(&mut self, flow: u32) -> bool {
        // Flows with one of these will soon send or have an event.
        const BUSY: u32 = Bits::QUEUED
            | Bits::ACK_NOW
            | Bits::ACK_LATER
            | Bits::CLOSE
            | Bits::TIMING
            | Bits::PERSIST
            | Bits::HEAD
            | Bits::PROBE
            | Bits::ABORT;
        let f = &self.flows[flow];
        let waits = f.tcp_state() == State::Established
            && !f.bits.has(BUSY)
            && f.aside == NO_PIECE
            && f.flight() == 0;
        // As in `Stack::after_idle`: the time of the last acknowledgment, or the keepalive deadline.
        let keepalive = if f.bits.has(Bits::RTX) { self.class(flow).keepidle } else { 0 };
        // Not the wheel's time, which moves only when a timer is due.
        let now = tick(self.cause);
        let waited = now.wrapping_sub(f.rtx_at.wrapping_sub(keepalive));
        // Received data leaves its mark in the time of the last delayed acknowledgment.
        let acks = f.ack_due(now).wrapping_sub(now) as i32;
        let receives = (-REST_AFTER..=self.class(flow).delayed_ack as i32 + 1).contains(&acks);
        if !waits || receives || (waited as i32) < REST_AFTER {
            return false;
        }
        let (number, parts) = (f.number, (self.parts_of.0)(&f.state));
        let row = parts.and_then(|parts| self.rest.pack(f, parts));
        row.inspect(|row| self.numbers.set(number, Place::Rest(*row))).is_some()
    }

    /// Gives a flow at rest a record again.
    #[inline(never)]
    fn end_rest(&mut self, number: u32) -> u32 {
        let flow = self.free_record();
        let Place::Rest(row) = self.numbers.place(number) else {
            unreachable!("an open flow has a record or is at rest");
        };
        self.flows[flow] = Flow { number, ..self.rest.get(row, self.parts_of.1) };
        self.rest.release(row);
        self.numbers.set(number, Place::Record(flow));
        flow
    }

    #[inline(always)]
    fn give_record(&mut self, flow: u32) {
        let f = &mut self.flows.0[flow as usize];
        self.wheel.park(self.numbers.give(f.number));
        f.bits = Bits::default();
        f.local = std::mem::replace(&mut self.free, flow);
        let piece = std::mem::replace(&mut f.aside, NO_PIECE);
        if piece != NO_PIECE {
            self.pieces.give(piece);
        }
    }

    /// Removes the flow from all structures and frees its record.
    pub fn release(&mut self, flow: u32) {
        self.leave_table(flow);
        let f = &self.flows[flow];
        let counters = &mut self.classes[usize::from(f.class)].counters;
        if f.tcp_state() == State::TimeWait {
            self.time_wait -= 1;
            counters.time_wait -= 1;
        } else {
            self.active -= 1;
            counters.active -= 1;
        }
        if f.bits.has(Bits::V6) {
            self.addresses6.release(f.packed());
        }
        if f.has_extra() {
            self.release_extra(flow);
        }
        self.give_record(flow);
    }

    fn enter_table(&mut self, flow: u32) {
        let (keys, number) = (keys!(self), self.flows[flow].number);
        self.table.insert(keys.of_flow(number), number, |number| keys.of_flow(number));
    }

    #[inline(always)]
    fn leave_table(&mut self, flow: u32) {
        let (keys, f) = (keys!(self), &self.flows[flow]);
        let hash = hash_with(self.settings.key, &f.key(&self.addresses6));
        self.table.remove(hash, f.number, |number| keys.of_flow(number));
    }

    /// Gives a UDP flow other ends of the same IP version. Queued datagrams use them, too.
    pub fn rebind(&mut self, flow: u32, key: &Key) -> Result<(), ConnectError> {
        let hash = self.hash(key);
        if self.find(hash, key).is_some() {
            return Err(ConnectError::InUse);
        }
        let v6 = self.flows[flow].bits.has(Bits::V6);
        if v6 != matches!(key.addresses, Addresses::V6 { .. }) {
            return Err(ConnectError::Family);
        }
        self.leave_table(flow);
        let f = &mut self.flows.0[flow as usize];
        (f.local_port, f.remote_port) = (key.local_port, key.remote_port);
        match key.addresses {
            Addresses::V4 { local, remote } => (f.local, f.remote) = (local, remote),
            Addresses::V6 { local, remote } => {
                self.addresses6.release(f.packed());
                let packed = self.addresses6.pack((local, remote));
                (f.local, f.remote, f.upper) = (packed.local, packed.remote, packed.upper);
            }
        }
        self.enter_table(flow);
        Ok(())
    }

    /// Gives a UDP flow another remote end. A UDP flow that a peer has begun from there gets the
    /// flow's own end in exchange.
    pub fn follow(&mut self, flow: u32, key: &Key) -> Result<(), ConnectError> {
        match self.find(self.hash(key), key) {
            Some(Found::Flow(other)) if other != flow => {
                let f = &self.flows[other];
                if f.tcp_state() != State::Udp || !f.bits.has(Bits::PASSIVE) {
                    return Err(ConnectError::InUse);
                }
                self.exchange_ends([flow, other]);
                Ok(())
            }
            _ => self.rebind(flow, key),
        }
    }

    fn exchange_ends(&mut self, flows: [u32; 2]) {
        flows.into_iter().for_each(|flow| self.leave_table(flow));
        let places = flows.map(|flow| flow as usize);
        let [a, b] = self.flows.0.get_disjoint_mut(places).expect("two open flows");
        std::mem::swap(&mut a.local, &mut b.local);
        std::mem::swap(&mut a.remote, &mut b.remote);
        std::mem::swap(&mut a.upper, &mut b.upper);
        std::mem::swap(&mut a.local_port, &mut b.local_port);
        std::mem::swap(&mut a.remote_port, &mut b.remote_port);
        flows.into_iter().for_each(|flow| self.enter_table(flow));
    }

    // TIME-WAIT.

    /// Replaces the record of a flow in TIME-WAIT by a [`Wait`]. If that is impossible, the record
    /// stays and its timer runs.
    pub fn compact(&mut self, now: Nanos, flow: u32) {
        let f = &self.flows[flow];
        let class = &self.classes[usize::from(f.class)];
        let ends = match f.bits.has(Bits::RTX) {
            true => f.rtx_at,
            false => tick(now).wrapping_add(lag_ticks(self.lag, class.time_wait) + 1),
        };
        let scaled = if f.bits.wscale().is_some() { WaitBits::SCALED } else { 0 };
        let may = !f.has_extra() && !f.bits.has(Bits::QUEUED);
        let v6 = f.bits.has(Bits::V6) && may;
        let mut wait = Wait {
            local: f.local,
            remote: f.remote,
            local_port: f.local_port,
            remote_port: f.remote_port,
            class: f.class,
            bits: WaitBits((f.bits.0 & TIME_WAIT_BITS) as u16 | scaled),
            snd_nxt: f.snd_nxt,
            rcv_nxt: f.rcv_nxt,
            ts_recent: f.ts_recent,
            ends,
        };
        let packed = f.packed();
        if v6 {
            // The upper bits have no place in an entry.
            wait.remote = self.addresses6.unpack(packed);
        }
        let secret = self.settings.key;
        let key = f.key(&self.addresses6);
        let place = if may { self.waits.push(class.ring, wait) } else { None };
        let has_place = place.is_some_and(|place| {
            let home_of = |place| Some(home_of(secret, self.waits.find(place)?, &self.addresses6));
            self.wait_table.insert(home_with(secret, &key), place, home_of)
        });
        if !has_place {
            if let Some(place) = place {
                self.waits.take(place);
            }
            if v6 && packed.upper != WHOLE {
                self.addresses6.release(wait.packed());
            }
            let f = &mut self.flows[flow];
            f.rtx_at = ends;
            f.bits.set(Bits::RTX);
            return self.wake(now, flow, ends);
        }
        let (keys, number) = (keys!(self), self.flows[flow].number);
        self.table.remove(hash_with(secret, &key), number, |number| keys.of_flow(number));
        self.give_record(flow);
    }

    /// Replaces an entry of TIME-WAIT by a record.
    pub fn expand(&mut self, now: Nanos, place: u32) -> u32 {
        let (flow, number) = self.take_record();
        let wait = self.waits.take(place);
        let (keys, key) = (keys!(self), wait.key(&self.addresses6));
        self.wait_table.remove(home_with(self.settings.key, &key), place);
        let hash = hash_with(self.settings.key, &key);
        self.table.insert(hash, number, |number| keys.of_flow(number));
        let class = &self.classes[usize::from(wait.class)];
        let f = &mut self.flows.0[flow as usize];
        (f.local, f.remote, f.local_port, f.remote_port, f.class) =
            (wait.local, wait.remote, wait.local_port, wait.remote_port, wait.class);
        f.upper = WHOLE;
        f.bits = Bits(u32::from(wait.bits.0) & TIME_WAIT_BITS | Bits::CLOSE | Bits::ABORT);
        f.bits.set_state(State::TimeWait);
        let scaled = wait.bits.has(WaitBits::SCALED);
        f.bits.set_wscale(scaled.then_some(0));
        f.mss = if f.bits.has(Bits::V6) { class.tunables.mss6() } else { class.tunables.mss };
        (f.snd_una, f.snd_nxt) = (wait.snd_nxt, wait.snd_nxt);
        f.rcv_nxt = wait.rcv_nxt;
        let window = if scaled { class.window } else { class.window.min(u16::MAX.into()) };
        f.rcv_adv = wait.rcv_nxt.wrapping_add(window);
        (f.ts_recent, f.rtx_at) = (wait.ts_recent, wait.ends);
        f.bits.set(Bits::RTX);
        self.wake(now, flow, wait.ends);
        flow
    }

    #[inline]
    pub fn wait(&self, place: u32) -> &Wait {
        self.waits.get(place)
    }

    /// Ends a TIME-WAIT early.
    pub fn end_wait(&mut self, place: u32) {
        let wait = self.waits.take(place);
        self.forget(place, &wait, home_of(self.settings.key, &wait, &self.addresses6));
    }

    /// Ends all TIME-WAITs that are due, in batches, so that the cache misses of the table overlap.
    #[inline]
    pub fn expire_waits(&mut self, now: Nanos) {
        while let Some(first) = self.waits.expire(tick(now)) {
            let home = |wait: &Wait| home_of(self.settings.key, wait, &self.addresses6);
            let mut ended = [(first, home(&first.1)); EXPIRY_BATCH];
            let mut n = 1;
            while n < EXPIRY_BATCH
                && let Some(next) = self.waits.expire(tick(now))
            {
                ended[n] = (next, home(&next.1));
                n += 1;
            }
            ended[..n].iter().for_each(|of| self.wait_table.touch(of.1));
            for ((place, wait), home) in &ended[..n] {
                self.forget(*place, wait, *home);
            }
        }
    }

    fn forget(&mut self, place: u32, wait: &Wait, home: Home) {
        self.wait_table.remove(home, place);
        if u32::from(wait.bits.0) & Bits::V6 != 0 {
            self.addresses6.release(wait.packed());
        }
        self.time_wait -= 1;
        self.classes[usize::from(wait.class)].counters.time_wait -= 1;
    }

    /// Time of the next timer, or a lower bound of it.
    #[inline]
    pub fn next_due(&self) -> Option<Nanos> {
        let wait = self.waits.next(self.wheel.now()).map(|ends| self.wheel.instant(ends));
        self.wheel.next().into_iter().chain(wait).min()
    }

    #[inline]
    pub fn extra(&mut self, flow: u32) -> Option<&mut Extra> {
        let f = &self.flows[flow];
        f.has_extra().then(|| &mut self.extras[f.extra_place()])
    }

    #[inline]
    pub fn extra_ref(&self, flow: u32) -> Option<&Extra> {
        let f = &self.flows[flow];
        f.has_extra().then(|| &self.extras[f.extra_place()])
    }

    pub fn make_extra(&mut self, flow: u32) -> &mut Extra {
        let f = &mut self.flows[flow];
        if !f.has_extra() {
            let place = self.spare_extras.pop().unwrap_or_else(|| {
                self.extras.push(Extra::default());
                self.extras.len() as u32 - 1
            });
            self.extras[place as usize].first = std::mem::replace(&mut f.aside, place | EXTRA);
        }
        &mut self.extras[f.extra_place()]
    }

    pub fn release_extra(&mut self, flow: u32) {
        let f = &mut self.flows[flow];
        if f.has_extra() {
            let place = f.extra_place();
            let extra = &mut self.extras[place];
            f.aside = extra.first;
            self.reassembly_used -= u64::from(extra.reassembly.cost());
            extra.clear();
            self.spare_extras.push(place as u32);
        }
    }

    // Pending data.

    #[inline(always)]
    pub fn enqueue(&mut self, flow: u32) {
        let bits = &mut self.flows[flow].bits;
        if !bits.has(Bits::QUEUED) {
            bits.set(Bits::QUEUED);
            self.queue.push_back((flow, self.cause_tick));
        }
    }

    /// The sequence number after the last octet that the application has queued.
    #[inline]
    pub fn stream_end(&self, flow: u32) -> u32 {
        let f = &self.flows[flow];
        if f.aside != NO_PIECE
            && let Some(end) = self.last_end(flow)
        {
            return end;
        }
        match f.tcp_state() {
            // SND.NXT includes the FIN, which is not an octet.
            State::FinWait1 | State::Closing | State::LastAck => f.snd_nxt.wrapping_sub(1),
            _ => f.snd_nxt,
        }
    }

    /// The sequence number after the last octet of the flow's last piece.
    #[inline(never)]
    fn last_end(&self, flow: u32) -> Option<u32> {
        let first = self.first_piece(flow);
        let last = self.extra_ref(flow).and_then(Extra::end);
        (first.piece.len > 0).then(|| last.unwrap_or(first.end()))
    }

    pub fn send(&mut self, flow: u32, piece: Piece) -> Result<(), SendError> {
        let f = &self.flows[flow];
        let udp = f.tcp_state() == State::Udp;
        if piece.len == 0 {
            return Err(SendError::Empty);
        }
        if f.bits.has(Bits::CLOSE | Bits::ABORT) || f.tcp_state() == State::Closed {
            return Err(SendError::Closed);
        }
        if udp && piece.len as usize > self.datagram_max(flow) {
            return Err(SendError::TooLong);
        }
        let end = self.stream_end(flow);
        if end.wrapping_sub(f.snd_una).saturating_add(piece.len) > MAX_OUTSTANDING {
            return Err(SendError::Full);
        }
        match self.first_row(flow) {
            NO_PIECE => {
                let row = self.pieces.take(Placed { at: end, piece });
                match self.extra(flow) {
                    Some(extra) => extra.first = row,
                    None => self.flows[flow].aside = row,
                }
            }
            _ => self.make_extra(flow).pieces.push_back((end, piece)),
        }
        self.enqueue(flow);
        Ok(())
    }

    /// Queues a datagram from a UDP flow to another remote end. Returns whether that was possible.
    pub fn send_to(&mut self, flow: u32, (remote, port): (IpAddr, u16), payload: &[u8]) -> bool {
        let own = self.key(flow);
        let addresses = Addresses::of(own.addresses.local(), remote);
        let Some(addresses) = addresses.filter(|_| payload.len() <= self.datagram_max(flow)) else {
            return false;
        };
        if self.detours.len() >= MAX_ANSWERS {
            self.strays.answers_dropped += 1;
            return false;
        }
        let key = Key { addresses, remote_port: port, ..own };
        let class = ClassId(self.flows[flow].class);
        let (tos, ttl) = self.ip_fields(class);
        let ip = ip_len(addresses);
        let mut packet = vec![0; ip + UDP_HEADER + payload.len()];
        packet[ip + UDP_HEADER..].copy_from_slice(payload);
        write_udp(&mut packet[ip..], addresses, key.local_port, port);
        self.ip_id = self.ip_id.wrapping_add(1);
        write_ip(&mut packet, addresses, (UDP, addresses.pseudo(UDP)), tos, ttl, self.ip_id);
        self.detours.push_back(Detour { class, cause_tick: self.cause_tick, key, packet });
        true
    }

    /// Longest payload of a datagram, octets.
    pub fn datagram_max(&self, flow: u32) -> usize {
        usize::from(self.flows[flow].mss) + TCP_HEADER - UDP_HEADER
    }

    /// Drops the pieces that end at `una` or before.
    #[inline]
    pub fn drop_pieces(&mut self, flow: u32, una: u32) {
        let f = &mut self.flows.0[flow as usize];
        let (row, mut others) = match f.has_extra() {
            true => {
                let extra = &mut self.extras[f.extra_place()];
                (&mut extra.first, Some(&mut extra.pieces))
            }
            false => (&mut f.aside, None),
        };
        while *row != NO_PIECE && le(self.pieces.get(*row).end(), una) {
            match others.as_mut().and_then(|others| others.pop_front()) {
                Some((at, piece)) => *self.pieces.get_mut(*row) = Placed { at, piece },
                None => self.pieces.give(std::mem::replace(row, NO_PIECE)),
            }
        }
    }

    /// Drops the piece of a flow without an `Extra` if all of it is acknowledged. Returns whether
    /// no piece is left, and whether part of one was never sent.
    #[inline(always)]
    pub fn drop_piece(&mut self, flow: u32) -> (bool, bool) {
        let f = &mut self.flows.0[flow as usize];
        let row = f.aside;
        if row == NO_PIECE {
            return (true, false);
        }
        let end = self.pieces.get(row).end();
        if le(end, f.snd_una) {
            f.aside = NO_PIECE;
            self.pieces.give(row);
            return (true, false);
        }
        (false, end != f.snd_nxt)
    }

    /// The oldest piece of a flow that is not fully acknowledged; `len` 0: none.
    #[inline]
    pub fn first_piece(&self, flow: u32) -> Placed {
        *self.pieces.get(self.first_row(flow))
    }

    #[inline]
    fn first_row(&self, flow: u32) -> u32 {
        self.extra_ref(flow).map_or_else(|| self.flows[flow].aside, |extra| extra.first)
    }

    // Time.

    /// Sets when the current step was due, on the timer clock.
    #[inline]
    pub fn caused_at(&mut self, at: Nanos) {
        (self.cause, self.cause_tick) = (at, tick(at + self.lag));
    }

    /// Sets the cause to the arrival of a packet. The previous lag applies: packets that arrived
    /// during a stall were spaced, and the timers that they start keep that spacing.
    #[inline]
    pub fn caused_by_packet(&mut self, now: Nanos) {
        match std::mem::take(&mut self.arrived) {
            Nanos::ZERO => self.caused_at(now),
            arrived => {
                (self.cause, self.cause_tick) =
                    (arrived.saturating_sub(self.lag_before), tick(arrived));
            }
        }
    }

    /// Retransmission time-out, ticks (RFC 6298).
    #[inline]
    pub fn rto(&self, flow: u32) -> u32 {
        let f = &self.flows[flow];
        rto(f, &self.classes[usize::from(f.class)])
    }

    /// Starts the timer for retransmission, persist, keepalive or TIME-WAIT (only one of them runs
    /// at a time), to fire in `wait` ticks.
    #[inline(always)]
    pub fn start_rtx(&mut self, now: Nanos, flow: u32, wait: u32) {
        let f = &mut self.flows.0[flow as usize];
        let (number, at) = (f.number, f.start_rtx(now, self.lag, wait));
        self.wake_number(now, number, at);
    }

    /// Makes the wheel wake the flow by tick `at`. An entry for an earlier tick stays and is put in
    /// again when that has come, because most deadlines are postponed before they are due.
    #[inline(always)]
    pub fn wake(&mut self, now: Nanos, flow: u32, at: u32) {
        self.wake_number(now, self.flows[flow].number, at);
    }

    /// [`Core::wake`] for the flow with this number.
    #[inline(always)]
    pub fn wake_number(&mut self, now: Nanos, number: u32, at: u32) {
        if self.wheel.is_late(*self.numbers.slot(number), at) {
            self.wake_earlier(now, number, at);
        }
    }

    /// Not inlined, because what the wheel needs for it would be collected before the question.
    #[inline(never)]
    fn wake_earlier(&mut self, now: Nanos, number: u32, at: u32) {
        let (wheel, mut timers) = self.timers();
        wheel.wake(&mut timers, number, at, now);
    }

    /// The next flow that the wheel wakes by `now`.
    #[inline]
    pub fn expire(&mut self, now: Nanos) -> Option<u32> {
        let (wheel, mut timers) = self.timers();
        let number = wheel.expire(&mut timers, now)?;
        Some(self.record(number))
    }

    #[inline(always)]
    fn timers(&mut self) -> (&mut Wheel, Timers<'_, S>) {
        let Self { wheel, flows, numbers, rest, extras, .. } = self;
        (wheel, Timers { flows, numbers, rest, extras })
    }

    /// Arms the timer of the delayed acknowledgment.
    #[inline(never)]
    pub fn arm_ack(&mut self, now: Nanos, flow: u32) {
        let at = self.flows[flow].ack_due(tick(now));
        self.wake(now, flow, at);
    }

    /// Puts a woken flow back into the wheel if it has deadlines left.
    pub fn arm(&mut self, now: Nanos, flow: u32) {
        let f = &self.flows[flow];
        let (bits, rtx_at, app_at) = (f.bits, f.rtx_at, f.app_at);
        if bits.has(Bits::RTX) {
            self.wake(now, flow, rtx_at);
        }
        if bits.has(Bits::APP) {
            self.wake(now, flow, app_at);
        }
        if bits.delays_ack() {
            self.arm_ack(now, flow);
        }
        if let Some(at) = self.pace_tick(flow) {
            self.wake(now, flow, at);
        }
    }

    /// The tick of the packet that the flow's pace holds back.
    fn pace_tick(&self, flow: u32) -> Option<u32> {
        self.extra_ref(flow).and_then(pace_tick)
    }

    /// Queues the flow if the time of its next paced packet has come.
    pub fn release_paced(&mut self, now: Nanos, flow: u32) {
        if self.pace_tick(flow).is_some_and(|at| le(at, tick(now))) {
            if let Some(bbr) = self.extra(flow).and_then(|extra| extra.bbr.as_mut()) {
                bbr.stop_waiting();
            }
            self.enqueue(flow);
        }
    }

    /// Which of the flow's deadlines have passed: retransmission, application, acknowledgment.
    pub fn due(&self, now: Nanos, flow: u32) -> (bool, bool, bool) {
        let (f, clock) = (&self.flows[flow], tick(now));
        (
            f.bits.has(Bits::RTX) && le(f.rtx_at, clock),
            f.bits.has(Bits::APP) && le(f.app_at, clock),
            f.bits.has(Bits::ACK_LATER) && le(f.ack_due(clock), clock),
        )
    }

    // Answers.

    /// Whether one more challenge ACK may be sent this second (RFC 5961 §7).
    pub fn may_challenge(&mut self, now: Nanos) -> bool {
        if now.saturating_sub(self.challenges.0) >= Nanos::SECOND || self.challenges.1 == 0 {
            self.challenges = (now, 0);
        }
        let may = self.challenges.1 < self.settings.challenges;
        self.challenges.1 += u32::from(may);
        may
    }

    /// Queues a segment without payload. `class` provides its time to live and counts it.
    pub fn answer_tcp(&mut self, class: ClassId, key: &Key, seq: u32, ack: Option<u32>, flags: u8) {
        let header = TcpHeader {
            local_port: key.local_port,
            remote_port: key.remote_port,
            seq,
            ack: ack.unwrap_or(0),
            flags: flags | if ack.is_some() { ACK } else { 0 },
            window: 0,
        };
        self.answer_with(class, key, &header, &OptionWords::default());
    }

    /// Queues a segment without payload. Returns whether there was room.
    pub fn answer_with(
        &mut self,
        class: ClassId,
        key: &Key,
        header: &TcpHeader,
        options: &OptionWords,
    ) -> bool {
        let (tos, ttl) = self.ip_fields(class);
        let ip = ip_len(key.addresses);
        let mut octets = [0; 104];
        let packet = &mut octets[..ip + TCP_HEADER + options.octets()];
        let pseudo = key.addresses.pseudo(TCP);
        write_tcp(&mut packet[ip..], pseudo, header, options, false);
        self.ip_id = self.ip_id.wrapping_add(1);
        write_ip(packet, key.addresses, (TCP, pseudo), tos, ttl, self.ip_id);
        let len = packet.len();
        let queued = self.answer(class, key, len, octets);
        if queued && header.flags & RST != 0 {
            match self.classes.get_mut(usize::from(class.0)) {
                Some(class) => class.counters.resets_out += 1,
                None => self.strays.resets_out += 1,
            }
        }
        queued
    }

    /// Queues an ICMP port unreachable about `packet`. It quotes the IP header and 8 octets, which
    /// identify the flow (RFC 792).
    pub fn answer_unreachable(&mut self, key: &Key, packet: &[u8]) {
        let (tos, ttl) = self.ip_fields(ClassId::STRAY);
        let ip = ip_len(key.addresses);
        let quote = packet.len().min(ip + 8);
        let mut octets = [0; 104];
        let len = ip + 8 + quote;
        let (protocol, kind, code) = match key.addresses {
            Addresses::V4 { .. } => (ICMP, 3, 3),
            Addresses::V6 { .. } => (ICMP6, 1, 4),
        };
        let message = &mut octets[ip..len];
        (message[0], message[1]) = (kind, code);
        message[8..].copy_from_slice(&packet[..quote]);
        let pseudo = match key.addresses {
            Addresses::V4 { .. } => 0,
            Addresses::V6 { .. } => key.addresses.pseudo(ICMP6) + message.len() as u64,
        };
        let sum = !squall_wire::checksum::fold(pseudo + squall_wire::checksum::sum(message));
        put16(message, 2, sum);
        self.ip_id = self.ip_id.wrapping_add(1);
        let of = (protocol, key.addresses.pseudo(protocol));
        write_ip(&mut octets[..len], key.addresses, of, tos, ttl, self.ip_id);
        if self.answer(ClassId::STRAY, key, len, octets) {
            self.strays.icmp_out += 1;
        }
    }

    fn answer(&mut self, class: ClassId, key: &Key, len: usize, octets: [u8; 104]) -> bool {
        if self.answers.len() >= MAX_ANSWERS {
            self.strays.answers_dropped += 1;
            return false;
        }
        self.answers.push_back(Answer {
            class,
            cause_tick: self.cause_tick,
            tuple: key.tuple(),
            len: len as u8,
            octets,
        });
        true
    }

    fn ip_fields(&self, class: ClassId) -> (u8, u8) {
        self.classes.get(usize::from(class.0)).map_or((0, 64), |c| (c.tunables.tos, c.tunables.ttl))
    }

    /// Queues a reset for a synchronized flow (RFC 9293 §3.10.5).
    pub fn reset(&mut self, flow: u32) {
        let f = &self.flows[flow];
        let (class, seq, ack) = (ClassId(f.class), f.snd_nxt, f.rcv_nxt);
        let key = self.key(flow);
        self.answer_tcp(class, &key, seq, Some(ack), RST);
    }
}

/// The tick of the packet that BBR holds back.
fn pace_tick(extra: &Extra) -> Option<u32> {
    extra.bbr.as_ref()?.waiting().map(tick_after)
}

/// Result of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Flow(u32),
    /// In TIME-WAIT, at this position in [`Core::waits`].
    Wait(u32),
}

/// Flags that a flow keeps in TIME-WAIT.
const TIME_WAIT_BITS: u32 = Bits::TIMESTAMPS | Bits::SACK | Bits::ECN | Bits::V6 | Bits::PASSIVE;

/// Computes the hashes of entries of the table.
struct Keys<'a, S> {
    flows: &'a Slab<S>,
    numbers: &'a Numbers,
    rest: &'a Rest,
    addresses6: &'a Addresses6,
    secret: [u64; 2],
}

impl<S> Keys<'_, S> {
    #[inline]
    fn of_flow(&self, number: u32) -> u32 {
        let key = match self.numbers.place(number) {
            Place::Record(flow) => self.flows[flow].key(self.addresses6),
            Place::Rest(row) => self.rest.key(row, self.addresses6),
            Place::Free => unreachable!("only open flows are in the table"),
        };
        hash_with(self.secret, &key)
    }
}

impl Wait {
    #[inline]
    fn packed(&self) -> Packed {
        Packed { local: self.local, remote: self.remote, upper: WHOLE }
    }

    #[inline]
    fn key(&self, addresses6: &Addresses6) -> Key {
        let v6 = u32::from(self.bits.0) & Bits::V6 != 0;
        Key {
            addresses: addresses(v6, self.packed(), addresses6),
            local_port: self.local_port,
            remote_port: self.remote_port,
            udp: false,
        }
    }
}

/// The addresses of a record or an entry.
#[inline]
pub(crate) fn addresses(v6: bool, packed: Packed, addresses6: &Addresses6) -> Addresses {
    if v6 {
        let (local, remote) = addresses6.get(packed);
        Addresses::V6 { local, remote }
    } else {
        Addresses::V4 { local: packed.local, remote: packed.remote }
    }
}

impl<S> Flow<S> {
    /// The record's part of [`Core::start_rtx`]. Returns the tick at which the timer fires.
    #[inline(always)]
    pub fn start_rtx(&mut self, now: Nanos, lag: Nanos, wait: u32) -> u32 {
        // One tick more: the current one is partly over, and no timer may fire early.
        self.rtx_at = tick(now).wrapping_add(lag_ticks(lag, wait) + 1);
        self.bits.set(Bits::RTX);
        self.rtx_at
    }

    #[inline]
    fn addresses(&self, addresses6: &Addresses6) -> Addresses {
        addresses(self.bits.has(Bits::V6), self.packed(), addresses6)
    }

    #[inline]
    pub fn key(&self, addresses6: &Addresses6) -> Key {
        Key {
            addresses: self.addresses(addresses6),
            local_port: self.local_port,
            remote_port: self.remote_port,
            udp: self.bits.is_udp(),
        }
    }
}

#[inline]
fn hash_with(secret: [u64; 2], key: &Key) -> u32 {
    let ports = u32::from(key.local_port) << 16 | u32::from(key.remote_port);
    match key.addresses {
        Addresses::V4 { local, remote } => {
            hash4(secret, u64::from(local) << 32 | u64::from(remote), ports, key.udp)
        }
        Addresses::V6 { local, remote } => {
            let ports = u64::from(ports) << 16 | u64::from(key.udp) | 1 << 63;
            hash::fast(secret, hash::pair(secret, local, remote), ports)
        }
    }
}

/// Where a tuple is in the table of TIME-WAIT.
#[inline(always)]
fn home_with(secret: [u64; 2], key: &Key) -> Home {
    let (local, remote) = match key.addresses {
        Addresses::V4 { local, remote } => (local.into(), remote.into()),
        Addresses::V6 { local, remote } => (hash::short(local), hash::short(remote)),
    };
    Home::new(secret, (local, key.local_port), (remote, key.remote_port))
}

fn home_of(secret: [u64; 2], wait: &Wait, addresses6: &Addresses6) -> Home {
    home_with(secret, &wait.key(addresses6))
}

/// Hash of IPv4 addresses and ports, the local ones in the upper halves. The only such function,
/// because lookups from packets and from records must agree.
#[inline]
fn hash4(secret: [u64; 2], addresses: u64, ports: u32, udp: bool) -> u32 {
    hash::fast(secret, addresses, u64::from(ports) << 16 | u64::from(udp))
}

/// The window field for `open` octets, and the octets that it advertises.
#[inline]
pub(crate) fn advertised(open: u32, scale: u8) -> (u16, u32) {
    let field = (open >> scale).min(u16::MAX.into());
    (field as u16, field << scale)
}

/// Ticks of a protocol timer. While a lag is being recovered, the timer clock runs up to 0.8 %
/// (1/124) faster than real time; the timer is longer by that much, because it must not be early in
/// real time either.
#[inline]
pub(crate) fn lag_ticks(lag: Nanos, wait: u32) -> u32 {
    if lag == Nanos::ZERO { wait } else { wait + (wait / 124 + 1).min(ticks(lag)) }
}

/// Retransmission time-out, ticks (RFC 6298 §2), with backoff.
#[inline(always)]
pub(crate) fn rto<S>(f: &Flow<S>, class: &Class) -> u32 {
    // The least one, without backoff; usual on a local network.
    if f.srtt.bits().wrapping_sub(1) < class.calm
        && f.rttvar.bits() <= class.calm
        && f.bits.retries() == 0
    {
        return class.rto_min.min(class.rto_max);
    }
    // That of a first SYN, without a sample and backoff.
    let connects = matches!(f.tcp_state(), State::SynSent | State::SynReceived);
    if connects && f.srtt.bits() | f.rttvar.bits() == 0 && f.bits.retries() == 0 {
        return class.rto_initial.min(class.rto_max);
    }
    general_rto(f, class)
}

/// [`rto`] in any case.
#[inline(never)]
fn general_rto<S>(f: &Flow<S>, class: &Class) -> u32 {
    let srtt = f.srtt.micros();
    let base = if srtt > 0 {
        // SRTT + max(G, 4 RTTVAR) with G = 1 ms, the granularity of timestamps. A tick is 65.536
        // us; the result is rounded up.
        let us = u64::from(srtt) + u64::from(f.rttvar.micros() * 4).max(1000);
        (((us * 1000) >> 16) as u32 + 1).max(class.rto_min)
    } else if matches!(f.tcp_state(), State::SynSent | State::SynReceived) {
        class.rto_initial
    } else {
        // The SYN was lost, so there is no sample: at least 3 s (RFC 6298 §5.7).
        ticks(Nanos(3_000_000_000)).clamp(class.rto_initial, class.rto_max)
    };
    // Exponential backoff (RFC 6298 §5.5).
    (u64::from(base) << (f.bits.retries() + f.kept_backoff())).min(u64::from(class.rto_max)) as u32
}

/// A flow, as the application accesses it.
pub struct Socket<'a, S> {
    pub(crate) core: &'a mut Core<S>,
    pub(crate) flow: u32,
    pub(crate) now: Nanos,
}

impl<S: Copy + Default> Socket<'_, S> {
    /// The timer clock.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Real time, for measurements.
    #[inline]
    pub fn real(&self) -> Nanos {
        self.now + self.core.lag
    }

    /// When the current step was due, on the timer clock: the time of a timer, or the arrival of a
    /// packet. A program's next timer counts from it, so that a late step does not delay the
    /// following ones.
    #[inline]
    pub fn due(&self) -> Nanos {
        self.core.cause
    }

    pub fn id(&self) -> FlowId {
        FlowId(self.core.flows[self.flow].number)
    }

    pub fn class(&self) -> ClassId {
        ClassId(self.core.flows[self.flow].class)
    }

    pub fn tuple(&self) -> Tuple {
        self.core.key(self.flow).tuple()
    }

    /// From where the datagram of the current event came: from the flow's remote end, unless the
    /// peer has moved ([`crate::Application::moved`]).
    pub fn sender(&self) -> (IpAddr, u16) {
        let key = self.core.moved.unwrap_or_else(|| self.core.key(self.flow));
        (key.addresses.remote(), key.remote_port)
    }

    /// Gives a UDP flow another remote end of the same IP version. A flow that a peer has begun from
    /// there gets the flow's own end in exchange.
    pub fn follow(&mut self, (remote, port): (IpAddr, u16)) -> Result<(), ConnectError> {
        let own = self.core.key(self.flow);
        let addresses = Addresses::of(own.addresses.local(), remote);
        let addresses = addresses.ok_or(ConnectError::Family)?;
        self.core.follow(self.flow, &Key { addresses, remote_port: port, ..own })
    }

    /// Passes the datagram of the current event on to another UDP flow with the same local end,
    /// whose peer has moved to this flow's remote end ([`crate::Application::moved`]).
    pub fn pass_on(&mut self, to: FlowId) {
        self.core.passed_on = Some(to);
    }

    /// Queues a datagram of a UDP flow to another remote end than the flow's. Returns false if it
    /// does not fit a packet, if the end has another IP version, or if too many wait.
    pub fn send_to(&mut self, remote: (IpAddr, u16), payload: &[u8]) -> bool {
        self.core.send_to(self.flow, remote, payload)
    }

    /// The application's state of this flow.
    pub fn state(&mut self) -> &mut S {
        &mut self.core.flows[self.flow].state
    }

    pub fn tcp_state(&self) -> State {
        self.core.flows[self.flow].tcp_state()
    }

    /// Whether the peer opened the flow.
    pub fn is_passive(&self) -> bool {
        self.core.flows[self.flow].bits.has(Bits::PASSIVE)
    }

    /// Queues `piece`. Data waits until the handshake is complete.
    pub fn send(&mut self, piece: Piece) -> Result<(), SendError> {
        self.core.send(self.flow, piece)
    }

    /// Closes the sending direction after the queued data. The peer's data is still received until
    /// it closes. A flow in SYN-SENT ends at once ([`crate::Reason::Aborted`]).
    pub fn close(&mut self) {
        let bits = &mut self.core.flows[self.flow].bits;
        bits.set(Bits::CLOSE);
        if bits.state() == State::SynSent {
            bits.set(Bits::ABORT);
        }
        self.core.enqueue(self.flow);
    }

    /// Ends the flow with a reset and discards queued data.
    pub fn abort(&mut self) {
        if !self.core.flows[self.flow].bits.has(Bits::ABORT) {
            // RFC 9293 §3.10.5 ABORT: only a synchronized peer gets a reset.
            if !matches!(
                self.tcp_state(),
                State::SynSent | State::Udp | State::Closed | State::TimeWait
            ) {
                self.core.reset(self.flow);
            }
            self.core.flows[self.flow].bits.set(Bits::CLOSE | Bits::ABORT);
        }
    }

    /// Delivers [`crate::Event::Timer`] at `at`, up to 66 us later (one tick); at most 29 h ahead
    /// (3/8 of the tick range). Replaces an earlier request.
    pub fn wake_at(&mut self, at: Nanos) {
        let wait = at.saturating_sub(self.now);
        let f = &mut self.core.flows[self.flow];
        // Rounded up from the time itself: rounding from `now` would add up over a program's steps.
        f.app_at = crate::wheel::tick_after(self.now + Nanos(wait.0.min(3 << 45)));
        f.bits.set(Bits::APP);
        let at = f.app_at;
        self.core.wake(self.now, self.flow, at);
    }

    /// Delivers [`crate::Event::Settle`] before packets are sent next, after all packets that have
    /// arrived by then: messages that the application sends in that event share packets. To be
    /// requested once; a flow that has begun in place of an ended one may get the event, too.
    pub fn settle_later(&mut self) {
        let Core { cause, cause_tick, .. } = *self.core;
        let number = self.core.flows[self.flow].number;
        self.core.unsettled.push(Unsettled { number, cause, cause_tick });
    }

    pub fn no_wake(&mut self) {
        self.core.flows[self.flow].bits.clear(Bits::APP);
    }

    /// Octets that were given to [`Socket::send`] and are not acknowledged; for UDP, not sent.
    pub fn unacknowledged(&self) -> u32 {
        let (f, first) = (&self.core.flows[self.flow], self.core.first_piece(self.flow));
        if first.piece.len == 0 {
            return 0;
        }
        self.core.stream_end(self.flow).wrapping_sub(seq::max(f.snd_una, first.at))
    }

    /// The part of [`Socket::unacknowledged`] that was never sent.
    pub fn unsent(&self) -> u32 {
        let (f, first) = (&self.core.flows[self.flow], self.core.first_piece(self.flow));
        if first.piece.len == 0 {
            return 0;
        }
        self.core.stream_end(self.flow).wrapping_sub(seq::max(f.snd_nxt, first.at))
    }

    /// Stops moving the window's right edge, as a slow reader would: the peer may fill the
    /// advertised window, and then finds a zero window until [`Socket::resume`].
    pub fn pause(&mut self) {
        if self.tcp_state() != State::Udp {
            self.core.make_extra(self.flow).paused = true;
        }
    }

    pub fn resume(&mut self) {
        if let Some(extra) = self.core.extra(self.flow)
            && std::mem::take(&mut extra.paused)
        {
            self.core.flows[self.flow].bits.set(Bits::ACK_NOW);
            self.core.enqueue(self.flow);
        }
    }

    /// Smoothed round-trip time; `None`: no sample yet. With timestamps, its steps are 1.05 ms.
    pub fn rtt(&self) -> Option<Nanos> {
        match self.core.flows[self.flow].srtt.micros() {
            0 => None,
            us => Some(Nanos(u64::from(us) * 1000)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    fn key(number: u32, v6: bool) -> Key {
        let addresses = match v6 {
            true => {
                let address = |bits: u128| Ipv6Addr::from_bits(bits).into();
                let remote = address(u128::from(number >> 10) << 64);
                Addresses::V6 { local: address(1), remote }
            }
            false => Addresses::V4 { local: 1, remote: number >> 10 },
        };
        Key { addresses, local_port: number as u16 & 1023, remote_port: 80, udp: false }
    }

    #[test]
    fn short_ways_to_time_outs_and_samples_give_what_the_general_ones_do() {
        for ms in [1, 5, 200, 1000] {
            let (rto_min, rto_initial) = (Nanos(ms * 1_000_000), Nanos(1_000_000_000));
            let tunables = Tunables { rto_min, rto_initial, ..Tunables::default() };
            let mut class = Class::new(tunables);
            let mut f = Flow::<()>::new();
            let samples = (0..26).flat_map(|bits| [1_u32 << bits, (1 << bits) + 1]);
            for (us, state) in samples
                .map(|us| (us, State::Established))
                .chain([State::SynSent, State::SynReceived, State::Established].map(|s| (0, s)))
            {
                f.bits.set_state(state);
                for retries in 0..2 {
                    f.bits.set_retries(retries);
                    assert_eq!(rto(&f, &class), general_rto(&f, &class), "{state:?} {retries}");
                }
                f.bits.set_retries(0);
                for var in [0, us / 4, us, 2 * us] {
                    for backoff in 0..4 {
                        f.srtt = Duration::from_micros(us);
                        f.rttvar = Duration::from_micros(var);
                        f.keep_backoff(backoff);
                        assert_eq!(rto(&f, &class), general_rto(&f, &class), "{us} {var}");
                        let expected = smoothed(f.srtt, f.rttvar, var.max(524));
                        Class::sample(&mut class.samples, &mut f, var.max(524));
                        assert_eq!([f.srtt, f.rttvar], expected);
                    }
                }
            }
        }
    }

    #[test]
    fn a_timer_may_be_a_day_ahead() {
        let mut core = Core::new(Settings::default());
        core.add_class(Tunables::default());
        let key = key(1, false);
        let hash = core.hash(&key);
        let flow = core.allocate(ClassId(0), &key, hash, State::SynSent, 0u32).expect("room");
        let day = Nanos(86_400 * 1_000_000_000);
        Socket { core: &mut core, flow, now: Nanos::ZERO }.wake_at(day);
        assert_eq!(core.flows[flow].app_at, crate::wheel::tick_after(day));
    }

    /// Adds a flow in TIME-WAIT.
    fn wait(core: &mut Core<u32>, now: Nanos, number: u32, v6: bool) {
        let key = key(number, v6);
        let hash = core.hash(&key);
        let flow = core.allocate(ClassId(0), &key, hash, State::TimeWait, 0).expect("room");
        (core.active, core.time_wait) = (core.active - 1, core.time_wait + 1);
        core.classes[0].counters.time_wait += 1;
        core.compact(now, flow);
    }

    /// More and more flows: positions of those that have ended are used again while entries move to a
    /// larger table.
    #[test]
    fn tuples_end_while_their_table_grows() {
        for most in [20, 23, 26] {
            let mut core = Core::new(Settings { flows: 1 << 20, ..Settings::default() });
            core.add_class(Tunables::default());
            let mut number = 0;
            for ms in 1..6000_u32 {
                let now = Nanos(u64::from(ms) * 1_000_000);
                core.expire_waits(now);
                for _ in 0..1 + ms * most / 6000 {
                    wait(&mut core, now, number, false);
                    number += 1;
                }
                let last = key(number - 1, false);
                assert!(matches!(core.find(core.hash(&last), &last), Some(Found::Wait(_))));
            }
            core.expire_waits(Nanos(8_000_000_000));
            assert_eq!(core.time_wait, 0);
        }
    }

    #[test]
    fn time_wait_enlarges_its_own_table_and_not_that_of_open_flows() {
        const WAITS: u32 = 20_000;
        for v6 in [false, true] {
            let mut core = Core::new(Settings { flows: 1 << 20, ..Settings::default() });
            core.add_class(Tunables::default());
            let empty = core.table.memory();
            (0..WAITS).for_each(|number| wait(&mut core, Nanos::ZERO, number, v6));
            assert_eq!((core.table.memory(), core.flows.0.len()), (empty, 1));
            assert!(core.wait_table.memory() >= 8 * WAITS as usize);

            let found = |core: &mut Core<u32>, number| {
                let key = key(number, v6);
                core.find(core.hash(&key), &key)
            };
            assert!((0..WAITS).all(|n| matches!(found(&mut core, n), Some(Found::Wait(_)))));
            assert_eq!(found(&mut core, WAITS), None);

            // A tuple that answers a segment has a record, and is in the other table.
            let Some(Found::Wait(place)) = found(&mut core, 7) else {
                panic!("it is in TIME-WAIT")
            };
            let flow = core.expand(Nanos::ZERO, place);
            assert_eq!(found(&mut core, 7), Some(Found::Flow(flow)));
            core.compact(Nanos::ZERO, flow);
            assert!(matches!(found(&mut core, 7), Some(Found::Wait(_))));

            core.expire_waits(Nanos(2_000_000_000));
            assert!((0..WAITS).all(|n| found(&mut core, n).is_none()));
            assert_eq!(core.time_wait, 0);
        }
    }
}
