//! Simulated faults, for tests of every loss counter: a layer over any port.
//!
//! Keys of an address (`loop:0,drop=0.01,seed=7`). A value is a probability, or `1/n` for exactly
//! every nth frame. On received frames: `drop`, `dup`, `reorder` (the frame arrives one later),
//! `corrupt` (one bit), and `delay=TIME` (added to each timestamp; no frame is held). On sent
//! frames: `full` (the queue takes no more in this call), `refuse` (the frame is not sent: reason
//! `fault`). `seed` seeds all of them.
//!
//! More keys simulate a device of known behavior ([`crate::device`]) on the path to this port:
//! `lose=gilbert:P:R`, `reset=AT:FOR`, `learn=N`, `table=N`, `police=RATE,burst=N` and
//! `drain=RATE,buffer=N`, in this order. They apply to the port, not to a queue, and depend on the
//! frames and their timestamps only.

use std::{
    io,
    str::FromStr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use squall_units::{Rate, SplitMix64};

use crate::{
    Address, AddressError, BATCH, Filter, Hosts, InterfaceCounters, Lent, Link, Nanos, Port,
    PortFacts, RxBatch, RxFrame, RxQueue, SendError, Slots, TxBatch, TxOutcome, TxQueue,
    device::{self, Buffer, Counts, Flow, Limit, Outage, Phase, Policer, Reset, Table, TableSize},
};

/// The faults of a port, with their frequencies.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    pub drop: Chance,
    pub dup: Chance,
    pub reorder: Chance,
    pub corrupt: Chance,
    pub delay: Nanos,
    pub lose: Option<Gilbert>,
    pub reset: Option<Reset>,
    /// Table of source MAC addresses.
    pub learn: Option<TableSize>,
    /// Table of flows.
    pub table: Option<TableSize>,
    pub police: Option<Limit>,
    pub buffer: Option<Limit>,
    /// Recovery time of the buffer.
    pub recover: Nanos,
    pub full: Chance,
    pub refuse: Chance,
    pub seed: u64,
}

/// How often an event occurs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Chance {
    #[default]
    Never,
    Probability(f64),
    /// Exactly every nth time; n is at least 1.
    EveryNth(u64),
}

impl FromStr for Chance {
    type Err = ();
    /// Parses `0.01` or `1/100`.
    fn from_str(text: &str) -> Result<Self, ()> {
        if let Some(n) = text.strip_prefix("1/") {
            return n.parse().ok().filter(|&n| n > 0).map(Self::EveryNth).ok_or(());
        }
        let p = text.parse().ok().filter(|p| (0.0..=1.0).contains(p)).ok_or(())?;
        Ok(if p == 0.0 { Self::Never } else { Self::Probability(p) })
    }
}

/// Loss in bursts (Gilbert 1960): the path is good or bad, and loses frames while it is bad. Before
/// each frame it changes from good to bad with chance `worse`, from bad to good with chance
/// `better`. The share of lost frames is `worse / (worse + better)`, the mean length of a burst of
/// losses `1 / better`; with `1/n` and `1/m` both are exact.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gilbert {
    pub worse: Chance,
    pub better: Chance,
}

impl FromStr for Gilbert {
    type Err = ();

    /// Parses `gilbert:0.01:0.25` or `gilbert:1/100:1/4`.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (worse, better) =
            text.strip_prefix("gilbert:").and_then(|text| text.split_once(':')).ok_or(())?;
        Ok(Self { worse: worse.parse()?, better: better.parse()? })
    }
}

/// A time as the value of an option; bare numbers are nanoseconds.
struct Time(Nanos);

impl FromStr for Time {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        device::time(text).map(Self).ok_or(())
    }
}

impl Faults {
    pub const KEYS: &'static [&'static str] = &[
        "drop", "dup", "reorder", "corrupt", "delay", "lose", "reset", "learn", "table", "idle",
        "police", "burst", "drain", "buffer", "recover", "full", "refuse", "seed",
    ];

    /// Removes the keys for faults from `address`.
    pub fn take(address: &mut Address) -> Result<Self, AddressError> {
        let mut chance = |key| {
            address
                .take(key, "a probability from 0 to 1, or 1/n for every nth")
                .map(Option::unwrap_or_default)
        };
        let (drop, dup, reorder, corrupt) =
            (chance("drop")?, chance("dup")?, chance("reorder")?, chance("corrupt")?);
        let (full, refuse) = (chance("full")?, chance("refuse")?);
        let (learn, table) = tables(address)?;
        let buffer = limit(address, "drain", "buffer")?;
        let recover = time(address, "recover")?;
        if recover.is_some() && buffer.is_none() {
            return Err(address.error("recover also needs drain and buffer"));
        }
        Ok(Self {
            drop,
            dup,
            reorder,
            corrupt,
            full,
            refuse,
            delay: time(address, "delay")?.unwrap_or_default(),
            lose: address.take(
                "lose",
                "gilbert:P:R, with the probabilities (or 1/n) of getting bad and good again",
            )?,
            reset: address
                .take("reset", "AT:FOR, such as 5s:200ms from 5 s after the first frame")?,
            learn,
            table,
            police: limit(address, "police", "burst")?,
            buffer,
            recover: recover.unwrap_or_default(),
            seed: address.take("seed", "a number")?.unwrap_or(0),
        })
    }

    /// Wraps the port in these faults; returns it unchanged if there are none.
    pub fn wrap(self, port: Box<dyn Port>) -> Box<dyn Port> {
        if (Self { seed: 0, ..self }) == Self::default() {
            return port;
        }
        Box::new(FaultPort {
            port,
            faults: self,
            path: Arc::new(Mutex::new(Path::new(&self))),
            counters: Arc::default(),
        })
    }

    fn on_rx(&self) -> bool {
        (self.drop, self.dup, self.reorder, self.corrupt) != Default::default()
            || self.has_device()
            || self.delay != Nanos::ZERO
    }

    fn has_device(&self) -> bool {
        (self.lose, self.reset, self.learn, self.table) != Default::default()
            || (self.police, self.buffer) != Default::default()
    }

    fn on_tx(&self) -> bool {
        (self.full, self.refuse) != Default::default()
    }
}

fn time(address: &mut Address, key: &str) -> Result<Option<Nanos>, AddressError> {
    Ok(address
        .take::<Time>(key, "a time such as 50us (a bare number is nanoseconds)")?
        .map(|t| t.0))
}

/// Takes the keys `learn` and `table`, and `idle`, which applies to both.
fn tables(address: &mut Address) -> Result<(Option<TableSize>, Option<TableSize>), AddressError> {
    let mut entries = |key| match address.take::<usize>(key, "1 or more entries")? {
        Some(0) => Err(address.error(format!("{key}=0, expected 1 or more entries"))),
        given => Ok(given),
    };
    let (learn, table) = (entries("learn")?, entries("table")?);
    let idle = time(address, "idle")?;
    if idle.is_some() && learn.or(table).is_none() {
        return Err(address.error("idle also needs table or learn"));
    }
    if idle == Some(Nanos::ZERO) {
        return Err(address.error("idle=0, expected a time above 0"));
    }
    let sized = |entries: Option<usize>| entries.map(|entries| TableSize { entries, idle });
    Ok((sized(learn), sized(table)))
}

/// Removes the keys `rate` and `depth` from `address`, which are only valid together.
fn limit(address: &mut Address, rate: &str, depth: &str) -> Result<Option<Limit>, AddressError> {
    const RATE: &str = "a rate above 0 in frames or bits per second";
    const DEPTH: &str = "1 or more frames (octets if the rate is in bits per second)";
    let missing = |address: &Address, key, other, what| {
        Err(address.error(format!("{key} also needs {other}, expected {other}=<{what}>")))
    };
    match (address.take::<Rate>(rate, RATE)?, address.take::<u32>(depth, DEPTH)?) {
        (None, None) => Ok(None),
        (Some(_), None) => missing(address, rate, depth, DEPTH),
        (None, Some(_)) => missing(address, depth, rate, RATE),
        (Some(given), Some(n)) => match Limit::new(given, n) {
            Ok(limit) => Ok(Some(limit)),
            Err(expected) => {
                Err(address.error(format!("{rate}={given},{depth}={n}, expected {expected}")))
            }
        },
    }
}

/// A device on the path to a port: its parts, in the order in which a frame passes them.
struct Path {
    link: Option<BadLink>,
    outage: Option<Outage>,
    addresses: Option<Table<[u8; 6]>>,
    flows: Option<Table<Flow>>,
    policer: Option<Policer>,
    buffer: Option<Buffer>,
}

impl Path {
    fn new(faults: &Faults) -> Self {
        Self {
            link: faults.lose.map(|law| BadLink::new(law, faults.seed)),
            outage: faults.reset.map(Outage::new),
            addresses: faults.learn.map(Table::new),
            flows: faults.table.map(Table::new),
            policer: faults.police.map(Policer::new),
            buffer: faults.buffer.map(|limit| Buffer::with_recovery(limit, faults.recover)),
        }
    }

    /// When a frame that enters at `time` leaves; `None` if it is dropped.
    fn passes(&mut self, time: Nanos, octets: &[u8], wire_len: u32) -> Option<Nanos> {
        // The order matters: a frame that one part drops does not reach the parts after it, and so
        // uses no entry, token or room there.
        if self.link.as_mut().is_some_and(BadLink::loses) || !self.is_on(time) {
            return None;
        }
        if !self.knows(time, octets)
            || self.policer.as_mut().is_some_and(|policer| !policer.takes(time, wire_len))
        {
            return None;
        }
        let departure = match &mut self.buffer {
            Some(buffer) => buffer.departure(time, wire_len)?,
            None => time,
        };
        let caught = self.outage.as_mut().is_some_and(|outage| outage.catches(time, departure));
        (!caught).then_some(departure)
    }

    /// Whether the device works at `time`. Clears its state after a reset.
    fn is_on(&mut self, time: Nanos) -> bool {
        let phase = self.outage.as_mut().map(|outage| outage.phase(time));
        if phase == Some(Phase::Restarted) {
            self.addresses.as_mut().map(Table::clear);
            self.flows.as_mut().map(Table::clear);
            self.policer.as_mut().map(Policer::restart);
            self.buffer.as_mut().map(Buffer::restart);
        }
        phase != Some(Phase::During)
    }

    /// Whether the tables have an entry for the frame, or room for one. A frame without a key needs
    /// none.
    fn knows(&mut self, time: Nanos, octets: &[u8]) -> bool {
        fn takes<K: Copy + Ord + std::hash::Hash>(
            table: &mut Option<Table<K>>,
            time: Nanos,
            key: Option<K>,
        ) -> bool {
            table.as_mut().zip(key).is_none_or(|(table, key)| table.takes(time, key))
        }
        takes(&mut self.addresses, time, device::source_mac(octets))
            && takes(&mut self.flows, time, Flow::of(octets))
    }

    /// Counts of each part that frames have reached.
    fn notes(&self) -> impl Iterator<Item = String> {
        let parts = [
            ("link", self.link.as_ref().map(|link| link.counts)),
            ("reset", self.outage.as_ref().map(Outage::counts)),
            ("address table", self.addresses.as_ref().map(Table::counts)),
            ("flow table", self.flows.as_ref().map(Table::counts)),
            ("policer", self.policer.as_ref().map(Policer::counts)),
            ("buffer", self.buffer.as_ref().map(Buffer::counts)),
        ];
        let arrived = |(name, counts): (_, Option<Counts>)| {
            let Counts { frames, dropped } = counts.filter(|counts| counts.frames > 0)?;
            Some(format!("the {name} dropped {dropped} of {frames} frames"))
        };
        parts.into_iter().filter_map(arrived)
    }
}

/// A path with loss as in [`Gilbert`]; initially good.
struct BadLink {
    worse: Chooser,
    better: Chooser,
    bad: bool,
    counts: Counts,
}

impl BadLink {
    fn new(law: Gilbert, seed: u64) -> Self {
        // The path draws as queue 0, because all queues of a port share it.
        let chooser = |salt| Chooser::new(seed, 0, salt);
        let (worse, better) = (chooser(7).of(law.worse), chooser(8).of(law.better));
        Self { worse, better, bad: false, counts: Counts::default() }
    }

    /// Whether the next frame is lost.
    fn loses(&mut self) -> bool {
        let changes = if self.bad { self.better.hits() } else { self.worse.hits() };
        self.bad ^= changes;
        self.counts.frames += 1;
        self.counts.dropped += u64::from(self.bad);
        self.bad
    }
}

/// Counts of frames and octets, before and after the faults on received frames; a GSO frame counts
/// as one.
#[derive(Debug, Default)]
struct FaultCounters {
    arrived: [AtomicU64; 2],
    delivered: [AtomicU64; 2],
}

impl FaultCounters {
    fn add(&self, arrived: &[RxFrame], given: &[RxFrame]) {
        for (counters, frames) in [(&self.arrived, arrived), (&self.delivered, given)] {
            counters[0].fetch_add(frames.len() as u64, Relaxed);
            counters[1].fetch_add(frames.iter().map(|f| u64::from(f.wire_len)).sum(), Relaxed);
        }
    }

    /// The counts before and after the faults: frames, then octets.
    fn counts(&self) -> [(u64, u64); 2] {
        [0, 1].map(|i| (self.arrived[i].load(Relaxed), self.delivered[i].load(Relaxed)))
    }
}

struct FaultPort {
    port: Box<dyn Port>,
    faults: Faults,
    /// Shared by all receive queues, because a device on the path sees the frames of all of them.
    path: Arc<Mutex<Path>>,
    counters: Arc<FaultCounters>,
}

impl Port for FaultPort {
    fn facts(&self) -> &PortFacts {
        self.port.facts()
    }

    fn receives_all(&self) -> bool {
        self.port.receives_all()
    }

    fn open_tx(&mut self, queue: u32, max_frame: u32) -> io::Result<Box<dyn TxQueue>> {
        let inner = self.port.open_tx(queue, max_frame)?;
        let slots = Slots::new(BATCH, max_frame as usize);
        let f = self.faults;
        // Each fault has its own salt: the probability of one must not change the draws of the
        // others.
        let chooser = |salt| Chooser::new(f.seed, queue, salt);
        Ok(if f.on_tx() {
            Box::new(FaultTx {
                inner,
                slots,
                lent: Lent::default(),
                full: chooser(1).of(f.full),
                refuse: chooser(2).of(f.refuse),
                refusing: None,
            })
        } else {
            inner
        })
    }

    fn open_rx(&mut self, queue: u32) -> io::Result<Box<dyn RxQueue>> {
        let inner = self.port.open_rx(queue)?;
        let f = self.faults;
        let chooser = |salt| Chooser::new(f.seed, queue, salt);
        Ok(if f.on_rx() {
            Box::new(FaultRx {
                inner,
                drop: chooser(3).of(f.drop),
                dup: chooser(4).of(f.dup),
                reorder: chooser(5).of(f.reorder),
                corrupt: chooser(6).of(f.corrupt),
                delay: f.delay,
                path: f.has_device().then(|| self.path.clone()),
                counters: self.counters.clone(),
                held: None,
                empty_calls: 0,
                octets: Vec::new(),
                frames: Vec::new(),
            })
        } else {
            inner
        })
    }

    fn set_filter(&mut self, filter: &Filter) -> io::Result<bool> {
        self.port.set_filter(filter)
    }

    fn serve(&mut self, hosts: &Hosts) -> io::Result<()> {
        self.port.serve(hosts)
    }

    fn expect_signatures(&mut self, key: Option<u16>) {
        self.port.expect_signatures(key);
    }

    fn serves(&self, hosts: &Hosts) -> bool {
        self.port.serves(hosts)
    }

    fn cannot_receive(&self) -> Option<&str> {
        self.port.cannot_receive()
    }

    fn permit(&mut self, permit: crate::output::Permit) {
        self.port.permit(permit);
    }

    fn notes(&self) -> Vec<String> {
        let path = self.path.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = path.notes().map(|note| format!("{}: {note}", self.port.facts().address));
        let [(arrived, given), _] = self.counters.counts();
        let corrected = (arrived != given && self.port.interface_counters().is_some()).then(|| {
            format!(
                "{}: simulated faults turned {arrived} received frames into {given}; the interface's \
                 counters are reported as after the faults",
                self.port.facts().address
            )
        });
        self.port.notes().into_iter().chain(counted).chain(corrected).collect()
    }

    /// The interface's counters, corrected for the faults: the audit compares them with the frames
    /// that this port delivered, and the faults are not the interface's.
    fn interface_counters(&self) -> Option<InterfaceCounters> {
        let counters = self.port.interface_counters()?;
        let [frames, octets] = self.counters.counts();
        let after = |counted: u64, (arrived, given): (u64, u64)| {
            counted.wrapping_sub(arrived).wrapping_add(given)
        };
        Some(InterfaceCounters {
            rx_packets: after(counters.rx_packets, frames),
            rx_octets: after(counters.rx_octets, octets),
            ..counters
        })
    }

    fn link(&self) -> Option<Arc<Link>> {
        self.port.link()
    }
}

/// Has its own slots, because a refused frame must not reach the inner queue.
struct FaultTx {
    inner: Box<dyn TxQueue>,
    slots: Slots,
    lent: Lent,
    full: Chooser,
    refuse: Chooser,
    /// Whether to refuse the next frame, once that is decided.
    refusing: Option<bool>,
}

impl TxQueue for FaultTx {
    fn lend(&mut self, want: usize) -> TxBatch<'_> {
        let n = want.min(BATCH);
        self.lent.lend(0, n);
        self.slots.batch(0, n)
    }

    fn reads_due(&self) -> bool {
        self.inner.reads_due()
    }

    fn launches_after(&self) -> Nanos {
        self.inner.launches_after()
    }

    fn send(&mut self, n: usize) -> Result<usize, SendError> {
        for (taken, slot) in self.lent.range(n).enumerate() {
            if self.full.hits() {
                return Ok(taken);
            }
            if *self.refusing.get_or_insert_with(|| self.refuse.hits()) {
                // Reported by the next call, in which it is the first frame.
                if taken == 0 {
                    self.pass();
                    return Err(SendError::Frame("fault"));
                }
                return Ok(taken);
            }
            match self.forward(slot) {
                Ok(true) => self.pass(),
                Ok(false) => return Ok(taken),
                // Reported by the next call, in which it is the first frame.
                Err(_) if taken > 0 => return Ok(taken),
                Err(error) => {
                    self.pass();
                    return Err(error);
                }
            }
        }
        Ok(n)
    }

    fn outcomes(&mut self) -> io::Result<&[TxOutcome]> {
        self.inner.outcomes()
    }

    fn take_back(&mut self) -> usize {
        self.inner.take_back()
    }

    fn finish(&mut self) -> io::Result<()> {
        self.inner.finish()
    }
}

impl FaultTx {
    fn pass(&mut self) {
        self.refusing = None;
        self.lent.pass(1);
    }

    /// Sends the frame in `slot`; false if the inner queue is full.
    fn forward(&mut self, slot: usize) -> Result<bool, SendError> {
        let (octets, meta) = self.slots.frame(slot);
        let mut batch = self.inner.lend(1);
        if batch.is_empty() {
            return Ok(false);
        }
        batch.frame(0, octets.len(), meta.due).copy_from_slice(octets);
        batch.meta[0].cut = meta.cut;
        Ok(self.inner.send(1)? == 1)
    }
}

struct FaultRx {
    inner: Box<dyn RxQueue>,
    drop: Chooser,
    dup: Chooser,
    reorder: Chooser,
    corrupt: Chooser,
    delay: Nanos,
    path: Option<Arc<Mutex<Path>>>,
    counters: Arc<FaultCounters>,
    /// A frame that is delivered after the next one.
    held: Option<(Vec<u8>, RxFrame)>,
    empty_calls: u32,
    octets: Vec<u8>,
    frames: Vec<RxFrame>,
}

/// Number of empty calls after which a held frame is delivered although no frame followed it.
const MAX_EMPTY_CALLS: u32 = 1000;

impl FaultRx {
    /// Applies the faults to the next batch; false if there was none.
    fn pass_on(&mut self) -> io::Result<bool> {
        let before = self.frames.len();
        let mut deliver = |octets: &[u8], frame: RxFrame| {
            self.frames.push(RxFrame { offset: self.octets.len(), ..frame });
            self.octets.extend_from_slice(octets);
        };
        let batch = self.inner.receive()?;
        let mut path =
            self.path.as_ref().map(|path| path.lock().unwrap_or_else(PoisonError::into_inner));
        for (octets, frame) in batch.iter() {
            if self.drop.hits() {
                continue;
            }
            let passes = path
                .as_mut()
                .map_or(Some(frame.time), |path| path.passes(frame.time, octets, frame.wire_len));
            let Some(time) = passes else { continue };
            let mut frame = RxFrame { time: time + self.delay, ..*frame };
            let mut changed;
            let mut octets = octets;
            if self.corrupt.hits() && !octets.is_empty() {
                changed = octets.to_vec();
                let bit = self.corrupt.random.draw() as usize % (8 * changed.len());
                changed[bit / 8] ^= 1 << (bit % 8);
                octets = &changed;
                // A frame damaged on a wire would still have a complete checksum.
                frame.partial = false;
            }
            if self.reorder.hits() && self.held.is_none() {
                self.held = Some((octets.to_vec(), frame));
                continue;
            }
            deliver(octets, frame);
            if self.dup.hits() {
                deliver(octets, frame);
            }
            if let Some((late, mut late_frame)) = self.held.take() {
                // The late frame arrives after the other, so its time must not be earlier.
                frame.time = frame.time.max(late_frame.time);
                late_frame.time = frame.time;
                deliver(&late, late_frame);
            }
        }
        let any = !batch.frames.is_empty();
        self.empty_calls = if any { 0 } else { self.empty_calls + 1 };
        if self.empty_calls >= MAX_EMPTY_CALLS
            && let Some((late, frame)) = self.held.take()
        {
            deliver(&late, frame);
        }
        self.counters.add(batch.frames, &self.frames[before..]);
        Ok(any)
    }
}

impl RxQueue for FaultRx {
    /// Returns an empty batch only if the inner queue does: otherwise a batch of dropped frames
    /// would look like the end.
    fn receive(&mut self) -> io::Result<RxBatch<'_>> {
        self.octets.clear();
        self.frames.clear();
        while self.frames.is_empty() && self.pass_on()? {}
        Ok(RxBatch { base: &self.octets, frames: &self.frames })
    }

    fn drops(&mut self) -> Vec<(&'static str, u64)> {
        self.inner.drops()
    }

    /// `None`, although the inner queue may have a count: no counter includes the frames lost by
    /// faults, so the sum would not match.
    fn received(&mut self) -> Option<u64> {
        None
    }

    fn stop(&mut self) -> io::Result<()> {
        self.inner.stop()
    }
}

/// A random decision, reproducible by its seed.
struct Chooser {
    chance: Chance,
    random: SplitMix64,
    turns: u64,
}

impl Chooser {
    fn new(seed: u64, queue: u32, salt: u64) -> Self {
        // Each queue draws its own numbers: otherwise all queues would lose the same frames.
        let random = SplitMix64(seed ^ u64::from(queue) << 32 ^ salt << 56);
        Self { chance: Chance::Never, random, turns: 0 }
    }

    fn of(self, chance: Chance) -> Self {
        Self { chance, ..self }
    }

    fn hits(&mut self) -> bool {
        match self.chance {
            Chance::Never => false,
            // Compares 53 bits, the precision of an f64.
            Chance::Probability(p) => ((self.random.draw() >> 11) as f64) < p * (1u64 << 53) as f64,
            Chance::EveryNth(n) => {
                self.turns += 1;
                self.turns.is_multiple_of(n)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends 10,000 numbered frames over a loop with `faults` at both ends. Returns the numbers
    /// received, the refusals, and the calls that found the queue full.
    fn run(name: &str, faults: &str) -> (Vec<u32>, u32, u32) {
        let address: Address = format!("loop:{name},{faults}").parse().unwrap();
        let open = || crate::loopback::open(&address).unwrap();
        let (mut a, mut b) = (open(), open());
        let (mut tx, mut rx) = (a.open_tx(0, 60).unwrap(), b.open_rx(0).unwrap());
        let (mut next, mut refused, mut full, mut received) = (0u32, 0, 0, Vec::new());
        let mut take = |rx: &mut dyn RxQueue| {
            let batch = rx.receive().unwrap();
            received.extend(
                batch.iter().map(|(octets, _)| u32::from_be_bytes(octets[..4].try_into().unwrap())),
            );
            !batch.frames.is_empty()
        };
        while next < 10_000 {
            let mut batch = tx.lend(50);
            let mut left = batch.len();
            for i in 0..left {
                batch.frame(i, 60, Nanos::ZERO)[..4]
                    .copy_from_slice(&(next + i as u32).to_be_bytes());
            }
            next += left as u32;
            while left > 0 {
                match tx.send(left) {
                    Ok(n) => (left, full) = (left - n, full + u32::from(n < left)),
                    Err(SendError::Frame("fault")) => (left, refused) = (left - 1, refused + 1),
                    Err(error) => panic!("{error}"),
                }
            }
            while take(&mut *rx) {}
        }
        for _ in 0..=MAX_EMPTY_CALLS {
            take(&mut *rx);
        }
        (received, refused, full)
    }

    fn about(n: usize, expected: usize) -> bool {
        n.abs_diff(expected) < expected / 5
    }

    #[test]
    fn exactly_every_nth_frame_is_dropped() {
        let (received, ..) = run("fault-nth", "drop=1/100");
        let expected: Vec<u32> = (0..10_000).filter(|n| n % 100 != 99).collect();
        assert_eq!(received, expected);
    }

    #[test]
    fn faults_come_as_often_as_asked_and_the_same_for_the_same_seed() {
        let (dropped, ..) = run("fault-drop", "drop=0.1,seed=1");
        assert!(about(10_000 - dropped.len(), 1000), "{}", dropped.len());
        assert_eq!(dropped, run("fault-drop", "drop=0.1,seed=1").0);
        assert_ne!(dropped, run("fault-drop", "drop=0.1,seed=2").0);
        let (duplicated, ..) = run("fault-dup", "dup=0.1");
        assert!(about(duplicated.len() - 10_000, 1000), "{}", duplicated.len());
        let (corrupted, ..) = run("fault-corrupt", "corrupt=1");
        assert_eq!(corrupted.len(), 10_000);
    }

    #[test]
    fn reordered_frames_come_one_later_and_none_is_lost() {
        let (mut received, ..) = run("fault-reorder", "reorder=0.1");
        let late = received.windows(2).filter(|w| w[1] < w[0]).count();
        assert!(about(late, 950), "{late}");
        received.sort_unstable();
        assert_eq!(received, (0..10_000).collect::<Vec<_>>());
        let (last_one, ..) = run("fault-reorder-last", "reorder=1/10000");
        assert_eq!(last_one.len(), 10_000, "a held frame comes though none follows it");
    }

    /// Sends `frames` frames, `gap` ns of virtual time apart, over `loop:NAME,virtual` with
    /// `faults`. Returns the numbers received with their timestamps, and the port's notes.
    fn paced(name: &str, faults: &str, frames: u64, gap: u64) -> (Vec<(u32, Nanos)>, Vec<String>) {
        let address: Address = format!("loop:{name},virtual,{faults}").parse().unwrap();
        let open = || crate::loopback::open(&address).unwrap();
        let (mut a, mut b) = (open(), open());
        let (mut tx, mut rx) = (a.open_tx(0, 60).unwrap(), b.open_rx(0).unwrap());
        let mut received = Vec::new();
        for number in 0..frames {
            let octets = (number as u32).to_be_bytes();
            tx.lend(1).frame(0, 60, Nanos(1_000_000 + number * gap))[..4].copy_from_slice(&octets);
            assert_eq!(tx.send(1).unwrap(), 1);
            let batch = rx.receive().unwrap();
            received.extend(
                batch.iter().map(|(o, f)| (u32::from_be_bytes(o[..4].try_into().unwrap()), f.time)),
            );
        }
        (received, b.notes())
    }

    #[test]
    fn a_policer_drops_frames_above_its_rate_and_counts_them() {
        let (received, notes) = paced("fault-police", "police=10kpps,burst=5", 1000, 50_000);
        let numbers: Vec<u32> = received.iter().map(|(number, _)| *number).collect();
        assert_eq!(
            numbers[..12],
            [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14],
            "five at once, then every second"
        );
        assert_eq!(numbers.len(), 504);
        assert!(
            received
                .iter()
                .all(|(number, time)| *time == Nanos(1_000_000 + u64::from(*number) * 50_000))
        );
        let note = "loop:fault-police,virtual,police=10kpps,burst=5: the policer dropped 496 of \
                    1000 frames";
        assert_eq!(notes, [note]);
    }

    #[test]
    fn a_buffer_delays_frames_and_drops_those_that_find_it_full() {
        let (received, notes) =
            paced("fault-buffer", "drain=10kpps,buffer=3,delay=7", 1000, 50_000);
        let times: Vec<u64> = received.iter().map(|(_, time)| time.0).collect();
        assert_eq!(times[0], 1_100_007);
        assert!(times.windows(2).all(|w| w[1] - w[0] == 100_000), "at the rate of the buffer");
        assert!(notes[0].ends_with("the buffer dropped 498 of 1000 frames"), "{notes:?}");
        assert_eq!(received.len(), 502);
    }

    #[test]
    fn losses_come_in_bursts_as_the_law_has_them() {
        // 99 frames pass, the next 10 are lost, then one frame ends the burst and passes.
        let (received, notes) = paced("fault-gilbert", "lose=gilbert:1/100:1/10", 11_000, 1000);
        let numbers: Vec<u32> = received.iter().map(|(number, _)| *number).collect();
        let lost = |n: &u32| (99..109).contains(&(n % 110));
        assert_eq!(numbers, (0..11_000).filter(|n| !lost(n)).collect::<Vec<_>>());
        assert!(notes[0].ends_with("the link dropped 1000 of 11000 frames"), "{notes:?}");

        // The expected fraction of lost frames is 0.02 / (0.02 + 0.2) of 200,000, in bursts of 5 on
        // average.
        let law = "lose=gilbert:0.02:0.2,seed=3";
        let (received, _) = paced("fault-gilbert-random", law, 200_000, 1000);
        let gaps: Vec<u32> =
            received.windows(2).map(|w| w[1].0 - w[0].0 - 1).filter(|lost| *lost > 0).collect();
        let lost = 200_000 - received.len();
        assert!(lost.abs_diff(18_182) < 1200, "{lost}");
        let mean = gaps.iter().sum::<u32>() as f64 / gaps.len() as f64;
        assert!((mean - 5.0).abs() < 0.4, "{mean}");
        // A burst continues with probability 0.8, so lengths 1, 2, 3 ... have frequencies of 0.2,
        // 0.16, 0.128 ...
        for length in 1..4 {
            let share =
                gaps.iter().filter(|gap| **gap == length).count() as f64 / gaps.len() as f64;
            let expected = 0.2 * 0.8f64.powi(length as i32 - 1);
            assert!((share - expected).abs() < 0.03, "{length}: {share}");
        }
        assert_eq!(received, paced("fault-gilbert-again", law, 200_000, 1000).0);
    }

    /// As [`paced`], with frames from `flows` MAC addresses and flows in turn. Returns the numbers
    /// received.
    fn of_flows(name: &str, faults: &str, frames: u64, flows: u64) -> (Vec<u64>, Vec<String>) {
        let address: Address = format!("loop:{name},virtual,{faults}").parse().unwrap();
        let open = || crate::loopback::open(&address).unwrap();
        let (mut a, mut b) = (open(), open());
        let (mut tx, mut rx) = (a.open_tx(0, 60).unwrap(), b.open_rx(0).unwrap());
        let mut received = Vec::new();
        for number in 0..frames {
            let mut batch = tx.lend(1);
            let frame = batch.frame(0, 60, Nanos(1_000_000 + number * 1000));
            frame.fill(0);
            // Ethernet from the flow's MAC address, IPv4, UDP from the flow's port.
            frame[11] = (number % flows) as u8;
            (frame[12], frame[14], frame[23]) = (8, 0x45, 17);
            frame[35] = (number % flows) as u8;
            assert_eq!(tx.send(1).unwrap(), 1);
            let batch = rx.receive().unwrap();
            received.extend(batch.iter().map(|(_, frame)| (frame.time.0 - 1_000_000) / 1000));
        }
        (received, b.notes())
    }

    #[test]
    fn a_table_has_room_for_as_many_flows_or_addresses_as_it_was_given() {
        for (key, name) in [("table", "flow table"), ("learn", "address table")] {
            let (received, notes) =
                of_flows(&format!("fault-{key}"), &format!("{key}=7"), 1000, 10);
            assert_eq!(received, (0..1000).filter(|n| n % 10 < 7).collect::<Vec<_>>());
            let note = format!("the {name} dropped 300 of 1000 frames");
            assert!(notes[0].ends_with(&note), "{notes:?}");
        }
        // Frames of a flow are 10 us apart: with a shorter idle time, its entry expires in between.
        let all = |idle| of_flows("fault-idle", &format!("table=9,idle={idle}"), 1000, 10).0.len();
        assert_eq!((all("9001"), all("9us"), all("20us")), (900, 1000, 900));
    }

    #[test]
    fn a_reset_loses_frames_inside_frames_that_arrive_and_the_tables() {
        // The device serves 20,000 frames/s, and 10,000 frames/s arrive: each is inside for 50 us.
        let (received, notes) =
            paced("fault-reset", "drain=20kpps,buffer=9,reset=10ms:5ms", 1000, 100_000);
        let numbers: Vec<u32> = received.iter().map(|(number, _)| *number).collect();
        // 100 frames pass before the reset, and 50 arrive during it.
        assert_eq!(numbers, (0..1000).filter(|n| !(100..150).contains(n)).collect::<Vec<_>>());
        assert!(notes[0].ends_with("the reset dropped 50 of 1000 frames"), "{notes:?}");

        // At twice the service rate, 9 frames are inside when the reset begins, and none when it
        // ends.
        let (received, _) =
            paced("fault-reset-full", "drain=10kpps,buffer=9,reset=10ms:5ms", 1000, 50_000);
        let times: Vec<u64> = received.iter().map(|(_, time)| time.0 - 1_000_000).collect();
        let (before, after): (Vec<u64>, Vec<u64>) = times.iter().partition(|t| **t <= 10_000_000);
        assert_eq!((before.len(), before.last()), (100, Some(&10_000_000)));
        assert_eq!(after[0], 15_100_000, "the first frame after the reset finds an empty queue");

        let (received, _) = of_flows("fault-reset-table", "table=3,reset=100us:5us", 1000, 10);
        // The table has flows 0, 1 and 2; after the reset, the flows of frames 105, 106 and 107.
        let kept =
            |n: &u64| if *n < 100 { n % 10 < 3 } else { *n >= 105 && (5..8).contains(&(n % 10)) };
        assert_eq!(received, (0..1000).filter(kept).collect::<Vec<_>>());
    }

    #[test]
    fn a_buffer_that_has_to_recover_loses_for_that_time() {
        // 20,000 frames/s for 10 ms, twice the service rate.
        let faults = "drain=10kpps,buffer=3,recover=5ms";
        let (received, _) = paced("fault-recover", faults, 200, 50_000);
        assert_eq!(received.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        // The next frames arrive more slowly than the service rate.
        let (received, _) = paced("fault-recover-not", faults, 200, 100_000);
        assert_eq!(received.len(), 200);
    }

    #[test]
    fn queues_of_a_port_share_its_policer() {
        let address: Address = "loop:fault-shared,virtual,police=1pps,burst=10".parse().unwrap();
        let open = || crate::loopback::open(&address).unwrap();
        let (mut a, mut b) = (open(), open());
        let mut received = 0;
        for queue in 0..2 {
            let (mut tx, mut rx) = (a.open_tx(queue, 60).unwrap(), b.open_rx(queue).unwrap());
            (0..8).for_each(|i| tx.lend(8).frame(i, 60, Nanos(5)).fill(0));
            assert_eq!(tx.send(8).unwrap(), 8);
            received += rx.receive().unwrap().frames.len();
        }
        assert_eq!(received, 10);
    }

    /// A port whose interface has counted the arrived frames.
    struct Counting(Box<dyn Port>);

    impl Port for Counting {
        fn facts(&self) -> &PortFacts {
            self.0.facts()
        }
        fn open_tx(&mut self, queue: u32, max_frame: u32) -> io::Result<Box<dyn TxQueue>> {
            self.0.open_tx(queue, max_frame)
        }
        fn open_rx(&mut self, queue: u32) -> io::Result<Box<dyn RxQueue>> {
            self.0.open_rx(queue)
        }
        fn interface_counters(&self) -> Option<InterfaceCounters> {
            Some(InterfaceCounters { rx_packets: 60, rx_octets: 3600, ..Default::default() })
        }
    }

    #[test]
    fn the_interface_counters_agree_with_what_the_faults_left() {
        for (faults, expected) in [("drop=1/10", 54), ("dup=1/10", 66), ("police=1pps,burst=7", 7)]
        {
            let mut address: Address =
                format!("loop:fault-counted,virtual,{faults}").parse().unwrap();
            let faults = Faults::take(&mut address).unwrap();
            let open = || crate::loopback::open(&address).unwrap();
            let (mut a, b) = (open(), open());
            let mut b = faults.wrap(Box::new(Counting(b)));
            let (mut tx, mut rx) = (a.open_tx(0, 60).unwrap(), b.open_rx(0).unwrap());
            (0..60).for_each(|i| tx.lend(60).frame(i, 60, Nanos(5)).fill(0));
            assert_eq!(tx.send(60).unwrap(), 60);
            let mut received = 0;
            while received < expected {
                received += rx.receive().unwrap().frames.len() as u64;
            }
            let counters = b.interface_counters().unwrap();
            assert_eq!((counters.rx_packets, counters.rx_octets), (expected, 60 * expected));
            let notes = b.notes();
            let note = format!("faults turned 60 received frames into {expected}");
            assert!(notes.last().unwrap().contains(&note), "{notes:?}");
        }
    }

    #[test]
    fn half_a_device_is_refused_with_the_missing_key() {
        for (faults, expected) in [
            ("police=10kpps", "police also needs burst, expected burst=<1 or more frames"),
            ("buffer=10", "buffer also needs drain, expected drain=<a rate"),
            ("police=max,burst=1", "expected a rate above 0"),
            ("drain=10kpps,buffer=0", "1 or more"),
            ("recover=1ms", "recover also needs drain and buffer"),
            ("idle=1ms", "idle also needs table or learn"),
            ("table=5,idle=0", "expected a time above 0"),
            ("learn=0", "1 or more entries"),
            ("lose=0.1", "expected gilbert:P:R"),
            ("lose=gilbert:0.1", "expected gilbert:P:R"),
            ("lose=gilbert:2:1", "expected gilbert:P:R"),
            ("reset=5s", "expected AT:FOR"),
            ("delay=soon", "expected a time such as 50us"),
        ] {
            let address: Address = format!("loop:fault-half,{faults}").parse().unwrap();
            let error = crate::loopback::open(&address).err().expect(faults).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_refused_frame_is_reported_and_the_others_leave() {
        let (received, refused, full) = run("fault-refuse", "refuse=1/10,full=0.05");
        assert_eq!((received.len(), refused), (9000, 1000));
        assert!(full > 100, "{full}");
    }
}
