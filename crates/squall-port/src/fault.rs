//! Faults on purpose, for the tests of every counter of loss: a layer over any port.
//!
//! Keys of an address (`loop:0,drop=0.01,seed=7`). The value is a probability, or `1/n`: exactly every nth frame.
//! What this port receives: `drop`, `dup`, `reorder` (the frame comes one later), `corrupt` (one bit), and `delay=NS`
//! (added to each arrival instant, nothing is held). What it sends: `full` (the queue takes no more in this call),
//! `refuse` (the frame is not sent: reason `fault`). `seed` seeds all of them.

use std::{io, str::FromStr};

use crate::{
    Address, AddressError, BATCH, Fate, Filter, Hosts, InterfaceCounters, Lent, Nanos, Port, PortFacts, RxBatch,
    RxFrame, RxQueue, SendError, Slots, TxBatch, TxQueue,
};

/// Which faults, and how often.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    pub drop: Chance,
    pub dup: Chance,
    pub reorder: Chance,
    pub corrupt: Chance,
    pub delay: Nanos,
    pub full: Chance,
    pub refuse: Chance,
    pub seed: u64,
}

/// How often something happens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Chance {
    #[default]
    Never,
    Probability(f64),
    /// Exactly every nth time; at least 1.
    EveryNth(u64),
}

impl FromStr for Chance {
    type Err = ();
    /// `0.01`, `1/100`.
    fn from_str(text: &str) -> Result<Self, ()> {
        if let Some(n) = text.strip_prefix("1/") {
            return n.parse().ok().filter(|&n| n > 0).map(Self::EveryNth).ok_or(());
        }
        let p = text.parse().ok().filter(|p| (0.0..=1.0).contains(p)).ok_or(())?;
        Ok(if p == 0.0 { Self::Never } else { Self::Probability(p) })
    }
}

impl Faults {
    pub const KEYS: &'static [&'static str] = &["drop", "dup", "reorder", "corrupt", "delay", "full", "refuse", "seed"];

    /// Takes the keys out of `address`.
    pub fn take(address: &mut Address) -> Result<Self, AddressError> {
        let mut chance =
            |key| address.take(key, "a probability from 0 to 1, or 1/n for every nth").map(Option::unwrap_or_default);
        Ok(Self {
            drop: chance("drop")?,
            dup: chance("dup")?,
            reorder: chance("reorder")?,
            corrupt: chance("corrupt")?,
            full: chance("full")?,
            refuse: chance("refuse")?,
            delay: Nanos(address.take("delay", "nanoseconds")?.unwrap_or(0)),
            seed: address.take("seed", "a number")?.unwrap_or(0),
        })
    }

    /// The port with these faults; itself if there are none.
    pub fn wrap(self, port: Box<dyn Port>) -> Box<dyn Port> {
        if (Self { seed: 0, ..self }) == Self::default() { port } else { Box::new(FaultPort { port, faults: self }) }
    }

    fn on_rx(&self) -> bool {
        (self.drop, self.dup, self.reorder, self.corrupt) != Default::default() || self.delay != Nanos::ZERO
    }

    fn on_tx(&self) -> bool {
        (self.full, self.refuse) != Default::default()
    }
}

struct FaultPort {
    port: Box<dyn Port>,
    faults: Faults,
}

impl Port for FaultPort {
    fn facts(&self) -> &PortFacts {
        self.port.facts()
    }

    fn open_tx(&mut self, queue: u32, max_frame: u32) -> io::Result<Box<dyn TxQueue>> {
        let inner = self.port.open_tx(queue, max_frame)?;
        let slots = Slots::new(BATCH, max_frame as usize);
        let f = self.faults;
        let die = |salt| Die::new(f.seed, queue, salt);
        Ok(if f.on_tx() {
            Box::new(FaultTx {
                inner,
                slots,
                lent: Lent::default(),
                full: die(1).of(f.full),
                refuse: die(2).of(f.refuse),
                refusing: None,
            })
        } else {
            inner
        })
    }

    fn open_rx(&mut self, queue: u32) -> io::Result<Box<dyn RxQueue>> {
        let inner = self.port.open_rx(queue)?;
        let f = self.faults;
        let die = |salt| Die::new(f.seed, queue, salt);
        Ok(if f.on_rx() {
            Box::new(FaultRx {
                inner,
                drop: die(3).of(f.drop),
                dup: die(4).of(f.dup),
                reorder: die(5).of(f.reorder),
                corrupt: die(6).of(f.corrupt),
                delay: f.delay,
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

    fn notes(&self) -> Vec<String> {
        self.port.notes()
    }

    fn interface_counters(&self) -> Option<InterfaceCounters> {
        self.port.interface_counters()
    }
}

/// Has slots of its own, so that a refused frame need not pass through the queue below.
struct FaultTx {
    inner: Box<dyn TxQueue>,
    slots: Slots,
    lent: Lent,
    full: Die,
    refuse: Die,
    /// Whether the next frame is refused, once that is decided.
    refusing: Option<bool>,
}

impl TxQueue for FaultTx {
    fn lend(&mut self, want: usize) -> TxBatch<'_> {
        let n = want.min(BATCH);
        self.lent.lend(0, n);
        self.slots.batch(0, n)
    }

    fn send(&mut self, n: usize) -> Result<usize, SendError> {
        for (taken, slot) in self.lent.range(n).enumerate() {
            if self.full.hits() {
                return Ok(taken);
            }
            if *self.refusing.get_or_insert_with(|| self.refuse.hits()) {
                // Else told at the next call, when it is the first.
                if taken == 0 {
                    self.pass();
                    return Err(SendError::Frame("fault"));
                }
                return Ok(taken);
            }
            match self.forward(slot) {
                Ok(true) => self.pass(),
                Ok(false) => return Ok(taken),
                // Told at the next call, when it is the first.
                Err(_) if taken > 0 => return Ok(taken),
                Err(error) => {
                    self.pass();
                    return Err(error);
                }
            }
        }
        Ok(n)
    }

    fn fates(&mut self) -> io::Result<&[Fate]> {
        self.inner.fates()
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

    /// Sends the frame in `slot`; false when the queue below is full.
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
    drop: Die,
    dup: Die,
    reorder: Die,
    corrupt: Die,
    delay: Nanos,
    /// Comes after the next frame.
    held: Option<(Vec<u8>, RxFrame)>,
    empty_calls: u32,
    octets: Vec<u8>,
    frames: Vec<RxFrame>,
}

/// Empty calls after which a held frame comes though none followed it.
const PATIENCE: u32 = 1000;

impl FaultRx {
    /// What becomes of the next batch; false when there was none.
    fn pass_on(&mut self) -> io::Result<bool> {
        let mut deliver = |octets: &[u8], frame: RxFrame| {
            self.frames.push(RxFrame { offset: self.octets.len(), ..frame });
            self.octets.extend_from_slice(octets);
        };
        let batch = self.inner.receive()?;
        for (octets, frame) in batch.iter() {
            let mut frame = RxFrame { time: frame.time + self.delay, ..*frame };
            if self.drop.hits() {
                continue;
            }
            let mut changed;
            let mut octets = octets;
            if self.corrupt.hits() && !octets.is_empty() {
                changed = octets.to_vec();
                let bit = self.corrupt.random() as usize % (8 * changed.len());
                changed[bit / 8] ^= 1 << (bit % 8);
                octets = &changed;
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
                frame.time = frame.time.max(late_frame.time);
                late_frame.time = frame.time;
                deliver(&late, late_frame);
            }
        }
        let any = !batch.frames.is_empty();
        self.empty_calls = if any { 0 } else { self.empty_calls + 1 };
        if self.empty_calls >= PATIENCE
            && let Some((late, frame)) = self.held.take()
        {
            deliver(&late, frame);
        }
        Ok(any)
    }
}

impl RxQueue for FaultRx {
    /// Empty only when the queue below is: a batch of which nothing is left is no sign that none follows.
    fn receive(&mut self) -> io::Result<RxBatch<'_>> {
        self.octets.clear();
        self.frames.clear();
        while self.frames.is_empty() && self.pass_on()? {}
        Ok(RxBatch { base: &self.octets, frames: &self.frames })
    }

    fn drops(&mut self) -> Vec<(&'static str, u64)> {
        self.inner.drops()
    }

    /// Of the queue below: what is lost on purpose has no counter.
    fn received(&mut self) -> Option<u64> {
        None
    }

    fn stop(&mut self) -> io::Result<()> {
        self.inner.stop()
    }
}

/// Decides, the same way for the same seed.
struct Die {
    chance: Chance,
    state: u64,
    turns: u64,
}

impl Die {
    fn new(seed: u64, queue: u32, salt: u64) -> Self {
        Self { chance: Chance::Never, state: seed ^ u64::from(queue) << 32 ^ salt << 56, turns: 0 }
    }

    fn of(self, chance: Chance) -> Self {
        Self { chance, ..self }
    }

    fn hits(&mut self) -> bool {
        match self.chance {
            Chance::Never => false,
            Chance::Probability(p) => ((self.random() >> 11) as f64) < p * (1u64 << 53) as f64,
            Chance::EveryNth(n) => {
                self.turns += 1;
                self.turns.is_multiple_of(n)
            }
        }
    }

    /// SplitMix64.
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends 10,000 numbered frames over a loop with `faults` at both ends: the numbers that came, the refusals, and the
    /// calls that found the queue full.
    fn run(name: &str, faults: &str) -> (Vec<u32>, u32, u32) {
        let address: Address = format!("loop:{name},{faults}").parse().unwrap();
        let open = || crate::loopback::open(&address).unwrap();
        let (mut a, mut b) = (open(), open());
        let (mut tx, mut rx) = (a.open_tx(0, 60).unwrap(), b.open_rx(0).unwrap());
        let (mut next, mut refused, mut full, mut received) = (0u32, 0, 0, Vec::new());
        let mut take = |rx: &mut dyn RxQueue| {
            let batch = rx.receive().unwrap();
            received.extend(batch.iter().map(|(octets, _)| u32::from_be_bytes(octets[..4].try_into().unwrap())));
            !batch.frames.is_empty()
        };
        while next < 10_000 {
            let mut batch = tx.lend(50);
            let mut left = batch.len();
            for i in 0..left {
                batch.frame(i, 60, Nanos::ZERO)[..4].copy_from_slice(&(next + i as u32).to_be_bytes());
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
        for _ in 0..=PATIENCE {
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

    #[test]
    fn a_refused_frame_is_told_and_the_others_go() {
        let (received, refused, full) = run("fault-refuse", "refuse=1/10,full=0.05");
        assert_eq!((received.len(), refused), (9000, 1000));
        assert!(full > 100, "{full}");
    }
}
