//! `loop:NAME`: two ports opened with the same address are the ends of one link in memory; a single
//! port is a link to itself.
//!
//! Queue i of one end sends to queue i of the other. A full ring is a full queue: no frame is lost
//! between the ends. As on a wire, frames to an end that does not receive are lost.
//!
//! Options: `queues=N`, `ring=FRAMES` (in flight per queue), `max_frame=OCTETS`, `virtual` (use
//! virtual time), and the keys of [`crate::fault`]. Both ends must have the same options, except
//! for the faults.
//!
//! The arrival time is `CLOCK_MONOTONIC`, read by the sender once in [`TxQueue::send`], so it
//! excludes the delay of the receiving thread; with `virtual` it is the frame's due time.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use rtrb::{Consumer, Producer, RingBuffer};

use crate::{
    Address, AddressError, BATCH, ETHERNET, FastClock, Lent, Nanos, Port, PortFacts, RxBatch,
    RxFrame, RxQueue, Segmentation, SendError, Slots, Timestamps, TxBatch, TxQueue, fault::Faults,
};

pub fn open(address: &Address) -> io::Result<Box<dyn Port>> {
    let mut a = address.clone();
    let shape = Shape {
        queues: a.take_in("queues", 1..=256, 64)?,
        ring: a.take_in("ring", 1..=1 << 24, 4096)? as usize,
        max_frame: a.take_in("max_frame", 14..=65_535, 65_535)?,
        virtual_time: a.take_flag("virtual")?.unwrap_or(false),
    };
    let faults = Faults::take(&mut a)?;
    a.finish(&[&["queues", "ring", "max_frame", "virtual"], Faults::KEYS].concat())?;

    let (link, end) = join(address, &shape)?;
    let facts = PortFacts {
        kind: "loop",
        address: address.to_string(),
        max_frame: shape.max_frame,
        speed_bps: None,
        mac: None,
        tx_queues: shape.queues,
        rx_queues: shape.queues,
        timestamps: if shape.virtual_time { Timestamps::Virtual } else { Timestamps::Process },
        virtual_time: shape.virtual_time,
        batch: BATCH,
        segmentation: Segmentation::Engine,
        link_type: ETHERNET,
        ahead: Nanos::ZERO,
    };
    let port = Box::new(LoopPort { facts, link, end });
    Ok(faults.wrap(port))
}

/// Options that must be the same at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    queues: u32,
    ring: usize,
    max_frame: u32,
    virtual_time: bool,
}

struct Link {
    shape: Shape,
    state: Mutex<LinkState>,
}

#[derive(Default)]
struct LinkState {
    has_second: bool,
    /// Whether a queue was opened: a second end can no longer join.
    settled: bool,
    /// Channels by (sending end, queue), with the halves that were not opened yet.
    channels: BTreeMap<(usize, u32), (Option<Sender>, Option<Receiver>)>,
}

impl Link {
    fn lock(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Links that a second end may still join, by name. Weak, so that a name becomes free when its port
/// is closed.
static LINKS: Mutex<BTreeMap<String, Weak<Link>>> = Mutex::new(BTreeMap::new());

/// The link with the name of `address`, and the index of the new end.
fn join(address: &Address, shape: &Shape) -> Result<(Arc<Link>, usize), AddressError> {
    let mut links = LINKS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(link) = links.get(address.name()).and_then(Weak::upgrade) {
        let mut state = link.lock();
        if !state.settled && !state.has_second {
            if link.shape != *shape {
                let Shape { queues, ring, max_frame, virtual_time } = link.shape;
                let virtual_time = if virtual_time { ",virtual" } else { "" };
                return Err(address.error(format!(
                    "the first end was opened with different options: \
                     queues={queues},ring={ring},max_frame={max_frame}{virtual_time}"
                )));
            }
            state.has_second = true;
            drop(state);
            // Removes the name: a third port with this name starts a new link.
            links.remove(address.name());
            return Ok((link, 1));
        }
    }
    let link = Arc::new(Link { shape: *shape, state: Mutex::default() });
    links.insert(address.name().to_owned(), Arc::downgrade(&link));
    Ok((link, 0))
}

struct LoopPort {
    facts: PortFacts,
    link: Arc<Link>,
    end: usize,
}

impl LoopPort {
    /// Takes this end's half of the channel on which end `from` sends.
    fn channel<T>(
        &self,
        from: impl FnOnce(&LinkState) -> usize,
        queue: u32,
        half: impl FnOnce(&mut (Option<Sender>, Option<Receiver>)) -> Option<T>,
    ) -> io::Result<T> {
        let mut state = self.link.lock();
        state.settled = true;
        let from = from(&state);
        let ring = self.link.shape.ring;
        let halves = state.channels.entry((from, queue)).or_insert_with(|| {
            let (sender, receiver) = channel(ring);
            (Some(sender), Some(receiver))
        });
        half(halves).ok_or_else(|| self.facts.already_open(queue))
    }
}

impl Port for LoopPort {
    fn facts(&self) -> &PortFacts {
        &self.facts
    }

    fn open_tx(&mut self, queue: u32, max_frame: u32) -> io::Result<Box<dyn TxQueue>> {
        self.facts.check_tx(queue, max_frame)?;
        let sender = self.channel(|_| self.end, queue, |halves| halves.0.take())?;
        Ok(Box::new(LoopTx {
            slots: Slots::new(BATCH, max_frame as usize),
            lent: Lent::default(),
            max_frame: self.facts.max_frame,
            clock: (!self.facts.virtual_time).then(FastClock::new),
            sender,
        }))
    }

    fn open_rx(&mut self, queue: u32) -> io::Result<Box<dyn RxQueue>> {
        self.facts.check_rx(queue)?;
        let other_end = |state: &LinkState| if state.has_second { 1 - self.end } else { self.end };
        let receiver = self.channel(other_end, queue, |halves| halves.1.take())?;
        receiver.listening.store(true, Ordering::Release);
        Ok(Box::new(receiver))
    }
}

/// Densely packed frames, on their way to the other end or back to be refilled.
#[derive(Debug, Default)]
struct Parcel {
    octets: Vec<u8>,
    frames: Vec<RxFrame>,
}

struct Sender {
    parcels: Producer<Parcel>,
    returned: Consumer<Parcel>,
    /// A stack: the parcel returned last is used first, while its memory is still in the cache.
    idle: Vec<Parcel>,
    in_flight: usize,
    capacity: usize,
    listening: Arc<AtomicBool>,
}

struct Receiver {
    parcels: Consumer<Parcel>,
    returned: Producer<Parcel>,
    current: Option<Parcel>,
    listening: Arc<AtomicBool>,
}

fn channel(capacity: usize) -> (Sender, Receiver) {
    // A parcel holds at least one frame, so neither ring can be full while at most `capacity`
    // frames are in flight.
    let (parcels, parcels_rx) = RingBuffer::new(capacity);
    let (returned_tx, returned) = RingBuffer::new(capacity);
    let listening = Arc::new(AtomicBool::new(false));
    let sender = Sender {
        parcels,
        returned,
        idle: Vec::new(),
        in_flight: 0,
        capacity,
        listening: listening.clone(),
    };
    (sender, Receiver { parcels: parcels_rx, returned: returned_tx, current: None, listening })
}

impl Sender {
    /// Number of frames that may be sent now.
    #[inline]
    fn room(&mut self) -> usize {
        while let Ok(parcel) = self.returned.pop() {
            self.in_flight -= parcel.frames.len();
            // Single frames need many parcels, each of which has grown to the size of a batch:
            // frees the surplus.
            if self.idle.len() <= self.capacity / BATCH + 8 {
                self.idle.push(parcel);
            }
        }
        self.capacity - self.in_flight
    }

    fn empty_parcel(&mut self) -> Parcel {
        let mut parcel = self.idle.pop().unwrap_or_default();
        parcel.octets.clear();
        parcel.frames.clear();
        parcel
    }

    fn push(&mut self, parcel: Parcel) {
        self.in_flight += parcel.frames.len();
        self.parcels.push(parcel).expect("the ring has a place for each frame in flight");
    }
}

struct LoopTx {
    slots: Slots,
    lent: Lent,
    max_frame: u32,
    /// `None` in virtual time.
    clock: Option<FastClock>,
    sender: Sender,
}

impl TxQueue for LoopTx {
    #[inline]
    fn lend(&mut self, want: usize) -> TxBatch<'_> {
        let n = want.min(BATCH).min(self.sender.room());
        self.lent.lend(0, n);
        self.slots.batch(0, n)
    }

    fn reads_due(&self) -> bool {
        false
    }

    fn send(&mut self, n: usize) -> Result<usize, SendError> {
        let slots = self.lent.range(n);
        // There is room: `lend` returned at most as many slots.
        let listening = self.sender.listening.load(Ordering::Acquire);
        let now = if n == 0 { None } else { self.clock.as_mut().map(FastClock::now) };
        let mut parcel = self.sender.empty_parcel();
        parcel.frames.reserve(n);
        let mut taken = 0;
        for i in slots {
            let (octets, meta) = self.slots.frame(i);
            if meta.len > self.max_frame {
                break;
            }
            let time = now.unwrap_or(meta.due);
            parcel.frames.push(RxFrame {
                offset: parcel.octets.len(),
                len: meta.len,
                wire_len: meta.len,
                time,
                ..RxFrame::default()
            });
            parcel.octets.extend_from_slice(octets);
            taken += 1;
        }
        let too_long = taken == 0 && n > 0;
        let done = taken + usize::from(too_long);
        self.lent.pass(done);
        // Drops the frames if the other end does not receive; otherwise the ring would stay full.
        if taken > 0 && listening {
            self.sender.push(parcel);
        } else {
            self.sender.idle.push(parcel);
        }
        if too_long { Err(SendError::Frame("too_long")) } else { Ok(taken) }
    }
}

impl RxQueue for Receiver {
    fn receive(&mut self) -> io::Result<RxBatch<'_>> {
        if let Some(parcel) = self.current.take() {
            // Fails only if the sender is gone and no longer needs the parcel.
            let _ = self.returned.push(parcel);
        }
        self.current = self.parcels.pop().ok();
        Ok(self
            .current
            .as_ref()
            .map_or(RxBatch::empty(), |p| RxBatch { base: &p.octets, frames: &p.frames }))
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.listening.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Nanos;

    fn port(address: &str) -> Box<dyn Port> {
        open(&address.parse().expect(address)).expect(address)
    }

    fn send(tx: &mut dyn TxQueue, n: usize) -> usize {
        let mut batch = tx.lend(n);
        let n = batch.len();
        for i in 0..n {
            batch.frame(i, 60, Nanos(i as u64));
        }
        tx.send(n).expect("short frames are taken")
    }

    fn count(rx: &mut dyn RxQueue) -> usize {
        let mut n = 0;
        loop {
            match rx.receive().expect("a loop has no errors").frames.len() {
                0 => return n,
                more => n += more,
            }
        }
    }

    #[test]
    fn one_end_alone_receives_its_own_frames() {
        let mut alone = port("loop:alone");
        let (mut tx, mut rx) = (alone.open_tx(0, 60).unwrap(), alone.open_rx(0).unwrap());
        assert_eq!((send(&mut *tx, 5), count(&mut *rx)), (5, 5));
    }

    #[test]
    fn queues_do_not_mix_nor_do_directions() {
        let (mut a, mut b) = (port("loop:pair"), port("loop:pair"));
        let (mut a0, mut a1, mut b0) =
            (a.open_tx(0, 60).unwrap(), a.open_tx(1, 60).unwrap(), b.open_tx(0, 60).unwrap());
        let mut rx = [a.open_rx(0).unwrap(), b.open_rx(0).unwrap(), b.open_rx(1).unwrap()];
        send(&mut *a0, 1);
        send(&mut *a1, 2);
        send(&mut *b0, 4);
        assert_eq!(rx.each_mut().map(|rx| count(&mut **rx)), [4, 1, 2]);
        assert!(a.open_tx(0, 60).is_err(), "a queue has one owner");
    }

    #[test]
    fn a_full_ring_takes_no_more_until_the_receiver_has_let_go() {
        let (mut a, mut b) = (port("loop:full,ring=100"), port("loop:full,ring=100"));
        let (mut tx, mut rx) = (a.open_tx(0, 60).unwrap(), b.open_rx(0).unwrap());
        assert_eq!([64; 3].map(|n| send(&mut *tx, n)), [64, 36, 0]);
        assert_eq!(count(&mut *rx), 100);
        assert_eq!(send(&mut *tx, 64), 64);
    }

    #[test]
    fn frames_to_a_closed_end_are_lost_as_on_a_wire() {
        let (mut a, mut b) = (port("loop:deaf,ring=10"), port("loop:deaf,ring=10"));
        let mut tx = a.open_tx(0, 60).unwrap();
        assert_eq!([64; 3].map(|n| send(&mut *tx, n)), [10; 3]);
        let mut rx = b.open_rx(0).unwrap();
        assert_eq!((send(&mut *tx, 3), count(&mut *rx)), (3, 3));
        drop(rx);
        assert_eq!([64; 3].map(|n| send(&mut *tx, n)), [10, 10, 10]);
    }

    #[test]
    fn between_two_threads_all_frames_arrive_in_order() {
        const FRAMES: u64 = 300_000;
        let (mut a, mut b) =
            (port("loop:threads,ring=256,virtual"), port("loop:threads,ring=256,virtual"));
        let (mut tx, mut rx) = (a.open_tx(0, 60).unwrap(), b.open_rx(0).unwrap());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut next = 0;
                while next < FRAMES {
                    let mut batch = tx.lend((1 + next % 64).min(FRAMES - next) as usize);
                    let n = batch.len();
                    for i in 0..n {
                        let number = next + i as u64;
                        batch.frame(i, 8, Nanos(number)).copy_from_slice(&number.to_be_bytes());
                    }
                    match tx.send(n).unwrap() {
                        0 => std::thread::yield_now(),
                        taken => next += taken as u64,
                    }
                }
            });
            let mut next = 0;
            while next < FRAMES {
                let batch = rx.receive().unwrap();
                for (octets, frame) in batch.iter() {
                    assert_eq!((octets, frame.time), (&next.to_be_bytes()[..], Nanos(next)));
                    next += 1;
                }
                if batch.frames.is_empty() {
                    std::thread::yield_now();
                }
            }
        });
    }

    #[test]
    fn ends_that_disagree_are_refused() {
        let _a = port("loop:disagree,ring=10");
        let error = open(&"loop:disagree,ring=11".parse().unwrap()).err().unwrap();
        assert!(error.to_string().contains("ring=10"), "{error}");
    }

    #[test]
    fn a_name_is_free_again_when_its_link_is_gone() {
        drop(port("loop:again,ring=10"));
        drop(port("loop:again,ring=11"));
    }
}
