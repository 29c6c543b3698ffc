//! A wire between two ports: frames that arrive on one port leave on the other, with the
//! impairments of both.
//!
//! Input: two addresses. Output: the frames in each direction. A frame leaves at its arrival time,
//! plus the delays that the options of a port cause (`delay`, `drain`). A simulated device on the
//! path to a port thus becomes a device through which other programs can send.

use std::{
    collections::VecDeque,
    io,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use squall_port::{BATCH, Port, RxQueue, SendError, TxQueue, monotonic};
use squall_units::{Cut, Nanos};

use crate::{Error, kinds::Wanted, ports::open};

/// Counts of frames from one port to the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forwarded {
    pub frames: u64,
    /// Frames that could not be sent because they were too long or truncated on arrival.
    pub refused: u64,
}

/// Forwards frames between the two ports in both directions until `stop` returns true.
///
/// # Errors
/// If a port cannot be opened, or is lost.
pub fn forward(
    addresses: [&str; 2],
    stop: &dyn Fn() -> bool,
) -> Result<([Forwarded; 2], Vec<String>), Error> {
    // Frames must be received one by one, not only when a block of the receive ring is full.
    let wanted = Wanted { answers: true, ..Wanted::default() };
    let (mut a, ..) = open(addresses[0], wanted)?;
    let (mut b, ..) = open(addresses[1], wanted)?;
    let failed = |error: io::Error| Error::Environment(error.to_string());
    let lines = [Direction::between(&mut *a, &mut *b), Direction::between(&mut *b, &mut *a)];
    let [there, back] = lines.map(|line| line.map_err(failed));
    let (mut there, mut back) = (there?, back?);
    let over = AtomicBool::new(false);
    let outcomes = std::thread::scope(|scope| {
        let threads = [&mut there, &mut back].map(|line| scope.spawn(|| line.run(&over)));
        while !stop() && !threads.iter().any(|thread| thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(10));
        }
        over.store(true, Ordering::Relaxed);
        threads.map(|thread| thread.join().expect("a line does not panic"))
    });
    for outcome in outcomes {
        outcome.map_err(failed)?;
    }
    let notes = [a.notes(), b.notes()].concat();
    Ok(([there.counts, back.counts], notes))
}

/// One of the two directions.
struct Direction {
    from: Box<dyn RxQueue>,
    to: Box<dyn TxQueue>,
    max_frame: u32,
    /// Frames to send, in order of departure.
    waiting: VecDeque<(Nanos, Cut, Vec<u8>)>,
    counts: Forwarded,
}

/// For waits shorter than this, yield instead of sleeping, because a sleep takes up to 0.1 ms
/// longer.
const YIELD_BELOW: Nanos = Nanos(150_000);
/// Duration of a sleep. Receive queues can hold the frames that arrive in this time.
const SLEEP: Duration = Duration::from_micros(50);

impl Direction {
    fn between(from: &mut dyn Port, to: &mut dyn Port) -> io::Result<Self> {
        let max_frame = to.facts().max_slot();
        let (waiting, counts) = Default::default();
        Ok(Self {
            from: from.open_rx(0)?,
            to: to.open_tx(0, max_frame)?,
            max_frame,
            waiting,
            counts,
        })
    }

    fn run(&mut self, over: &AtomicBool) -> io::Result<()> {
        while !over.load(Ordering::Relaxed) {
            let arrived = self.receive()?;
            let left = self.send(monotonic())?;
            let next = self.waiting.front().map(|(due, ..)| *due);
            if arrived || left {
                continue;
            }
            match next.filter(|due| *due < monotonic() + YIELD_BELOW) {
                Some(_) => std::thread::yield_now(),
                None => std::thread::sleep(SLEEP),
            }
        }
        self.to.finish()
    }

    /// Receives frames. Returns whether any arrived.
    fn receive(&mut self) -> io::Result<bool> {
        let batch = self.from.receive()?;
        for (octets, frame) in batch.iter() {
            if frame.len < frame.wire_len || frame.len > self.max_frame {
                self.counts.refused += 1;
            } else {
                self.waiting.push_back((frame.time, frame.cut, octets.to_vec()));
            }
        }
        Ok(!batch.frames.is_empty())
    }

    /// Sends the frames that are due. Returns whether any left.
    fn send(&mut self, now: Nanos) -> io::Result<bool> {
        let due = self.waiting.iter().take(BATCH).take_while(|(due, ..)| *due <= now).count();
        if due == 0 {
            return Ok(false);
        }
        let mut batch = self.to.lend(due);
        let lent = batch.len();
        for (i, (due, cut, octets)) in self.waiting.iter().take(lent).enumerate() {
            batch.frame(i, octets.len(), *due).copy_from_slice(octets);
            batch.meta[i].cut = *cut;
        }
        let passed = match self.to.send(lent) {
            Ok(sent) => {
                self.counts.frames += sent as u64;
                sent
            }
            Err(SendError::Frame(_)) => {
                self.counts.refused += 1;
                1
            }
            Err(SendError::Port(error)) => return Err(error),
        };
        self.waiting.drain(..passed);
        Ok(passed > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn frames_go_both_ways_with_the_faults_of_the_port_where_they_arrive() {
        let open = |address: &str| open(address, Wanted::default()).unwrap().0;
        let (mut left, mut right) = (open("loop:forward-a"), open("loop:forward-b"));
        let mut ends = None;
        let mut came: [Vec<u8>; 2] = Default::default();
        let deadline = Instant::now() + Duration::from_secs(20);
        let take = std::cell::RefCell::new(|| {
            // Created only when both ends of each link are open, because a single end would be a
            // link to itself.
            let ends = ends.get_or_insert_with(|| {
                [&mut left, &mut right].map(|port| {
                    let (mut tx, rx) = (port.open_tx(0, 60).unwrap(), port.open_rx(0).unwrap());
                    let mut batch = tx.lend(50);
                    (0..50).for_each(|i| batch.frame(i, 60, Nanos::ZERO)[0] = i as u8);
                    assert_eq!(tx.send(50).unwrap(), 50);
                    (tx, rx)
                })
            });
            for ((_, rx), came) in ends.iter_mut().zip(&mut came) {
                came.extend(rx.receive().unwrap().iter().map(|(octets, _)| octets[0]));
            }
            [came[0].len(), came[1].len()] == [50, 40] || Instant::now() > deadline
        });
        let addresses = ["loop:forward-a,drop=1/5", "loop:forward-b,delay=1ms"];
        let (counts, _) = forward(addresses, &|| (take.borrow_mut())()).unwrap();
        assert_eq!(counts.map(|c| (c.frames, c.refused)), [(40, 0), (50, 0)]);
        assert_eq!(came[0], (0..50).collect::<Vec<u8>>());
        assert_eq!(came[1], (0..50).filter(|n| n % 5 != 4).collect::<Vec<u8>>());
    }

    #[test]
    fn a_port_that_is_not_there_is_an_error() {
        assert!(forward(["loop:forward-c", "nothing:"], &|| true).is_err());
    }
}
