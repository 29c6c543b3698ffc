//! Receiving: the kernel puts frames into chunks of the memory and names them in the receive ring.
//! What was given out is given back for new frames at the next call.

use std::{io, os::fd::BorrowedFd, sync::Arc, time::Duration};

use libc::{c_int, xdp_desc};
use squall_port::{BATCH, Cut, RxBatch, RxFrame, RxQueue, monotonic};
use squall_units::Nanos;

use super::{
    program::{Receiving, STAMP},
    umem::{Side, Umem},
};
use crate::{counted::Counted, link::Watched, sys, watch::Watch};

/// Where a chunk begins; how far in it the frame does is in the bits above
/// (`XSK_UNALIGNED_BUF_OFFSET_SHIFT`).
const ADDRESS_BITS: u32 = 48;
const ADDRESS: u64 = (1 << ADDRESS_BITS) - 1;

/// One or more queues of the device.
pub struct XdpRx {
    // Before the program that sends frames to them goes.
    queues: Vec<Queue>,
    /// The queue to look at next.
    turn: usize,
    frames: Vec<RxFrame>,
    /// Frames of several pieces, in one piece each.
    joined: Vec<u8>,
    busy_poll: bool,
    /// Frames given out so far.
    given: u64,
    receiving: Arc<Receiving>,
    counted: Arc<Counted>,
    watch: Watch,
    /// When the sockets were asked last whether the interface has gone.
    asked: Nanos,
}

/// Who spins must not spend its time on asking.
const ASK_EVERY: Nanos = Nanos(10_000_000);
/// What the driver still handed over is in the ring then.
const PATIENCE: Duration = Duration::from_millis(20);

struct Queue {
    number: u32,
    side: Side,
    /// Consumed in the receive ring.
    consumed: u32,
    /// Produced in the fill ring.
    filled: u32,
    /// Chunks that are given out.
    held: Vec<u64>,
    receiving: Arc<Receiving>,
}

impl XdpRx {
    pub fn new(
        sides: Vec<(u32, Side)>,
        link: Arc<Watched>,
        busy_poll: bool,
        receiving: Arc<Receiving>,
        counted: Arc<Counted>,
    ) -> io::Result<Self> {
        let mut queues = Vec::new();
        for (number, side) in sides {
            let queue = Queue::new(number, side, receiving.clone());
            receiving.add(number, queue.side.socket())?;
            queues.push(queue);
        }
        let frames = Vec::with_capacity(BATCH);
        Ok(Self {
            queues,
            turn: 0,
            frames,
            joined: Vec::new(),
            busy_poll,
            given: 0,
            receiving,
            counted,
            watch: Watch::new(Some(link), PATIENCE),
            asked: monotonic(),
        })
    }

    /// The error that nothing can come any more.
    fn check_interface(&mut self) -> io::Result<()> {
        let (queues, asked) = (&self.queues, &mut self.asked);
        self.watch.nothing_came(|| {
            let now = monotonic();
            if now.saturating_sub(*asked) < ASK_EVERY {
                return Ok(false);
            }
            *asked = now;
            // They tell when the interface goes, but not when it is taken down.
            let mut gone = false;
            for queue in queues {
                gone |= queue.side.socket().get(libc::SOL_SOCKET, libc::SO_ERROR, 0 as c_int)? != 0;
            }
            Ok(gone)
        })
    }
}

impl Queue {
    fn new(number: u32, mut side: Side, receiving: Arc<Receiving>) -> Self {
        let layout = side.umem.layout;
        for i in 0..layout.rx_chunks {
            side.addresses.set(i, layout.rx_chunk(i) as u64);
        }
        side.addresses.produce(layout.rx_chunks);
        let consumed = side.ring.consumer();
        Self {
            number,
            filled: layout.rx_chunks,
            consumed,
            held: Vec::with_capacity(4 * BATCH),
            side,
            receiving,
        }
    }

    /// The kernel may have back what was given out.
    fn give_back(&mut self) {
        if self.held.is_empty() {
            return;
        }
        for &address in &self.held {
            self.side.addresses.set(self.filled, address);
            self.filled = self.filled.wrapping_add(1);
        }
        self.held.clear();
        self.side.addresses.produce(self.filled);
    }

    fn kick(&self, busy_poll: bool) {
        if busy_poll || (self.side.umem.layout.zero_copy && self.side.addresses.needs_wakeup()) {
            // What is wrong with the interface, the next frames not arriving will tell.
            let _ = self.side.socket().kick_rx();
        }
    }

    /// The next frame's descriptors, all of them there: how many, and its length.
    fn next(&self, at: u32, end: u32) -> Option<(u32, usize)> {
        let (mut n, mut len) = (0, 0);
        while at.wrapping_add(n) != end {
            let desc = self.side.ring.get(at.wrapping_add(n));
            (n, len) = (n + 1, len + desc.len as usize);
            if desc.options & libc::XDP_PKT_CONTD == 0 {
                return Some((n, len));
            }
        }
        None
    }

    /// Frames in the receive ring.
    fn waiting(&self) -> u64 {
        let end = self.side.ring.producer();
        let mut at = self.consumed;
        std::iter::from_fn(|| {
            let (pieces, _) = self.next(at, end)?;
            at = at.wrapping_add(pieces);
            Some(())
        })
        .count() as u64
    }

    /// Reads up to a batch of frames that are one piece each, or several that are not: those are
    /// put together in `joined`.
    fn read(&mut self, frames: &mut Vec<RxFrame>, joined: &mut Vec<u8>, stamped: bool) {
        let end = self.side.ring.producer();
        let arrival = if stamped || self.consumed == end { Nanos::ZERO } else { monotonic() };
        joined.clear();
        while frames.len() < BATCH
            && let Some((pieces, len)) = self.next(self.consumed, end)
        {
            if !frames.is_empty() && (pieces > 1) == joined.is_empty() {
                break;
            }
            let first = self.side.ring.get(self.consumed);
            let at = place(first);
            let time = if stamped { Nanos(stamp(&self.side.umem, at)) } else { arrival };
            let offset =
                if pieces == 1 { at - self.side.umem.layout.tx_octets } else { joined.len() };
            for i in 0..pieces {
                let desc = self.side.ring.get(self.consumed.wrapping_add(i));
                if pieces > 1 {
                    joined.extend_from_slice(octets(
                        &self.side.umem,
                        place(desc),
                        desc.len as usize,
                    ));
                }
                self.held.push(desc.addr & ADDRESS);
            }
            // The kernel wrote it on another CPU, perhaps: all frames of a batch are on their way
            // at once.
            sys::prefetch(octets(&self.side.umem, at, first.len as usize), 0, first.len as usize);
            self.consumed = self.consumed.wrapping_add(pieces);
            let len = len as u32;
            frames.push(RxFrame {
                offset,
                len,
                wire_len: len,
                cut: Cut::WHOLE,
                time,
                outgoing: false,
                // A veth hands over the frames of a host's stack as they are, and XDP says nothing
                // of their checksums.
                partial: true,
            });
        }
        self.side.ring.consume(self.consumed);
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.receiving.remove(self.number);
    }
}

fn place(desc: xdp_desc) -> usize {
    (desc.addr & ADDRESS) as usize + (desc.addr >> ADDRESS_BITS) as usize
}

/// `len` octets of a received frame.
fn octets(umem: &Umem, at: usize, len: usize) -> &[u8] {
    assert!(at >= umem.layout.tx_octets, "received frames lie behind the transmit slots");
    let at = umem.memory.at(at, len);
    // SAFETY: in a chunk that the receive ring gave us: the kernel writes there again after we have
    // given it back only.
    unsafe { std::slice::from_raw_parts(at.as_ptr(), len) }
}

fn stamp(umem: &Umem, at: usize) -> u64 {
    let stamp = octets(umem, at - STAMP, STAMP);
    stamp.first_chunk().map_or(0, |octets| u64::from_ne_bytes(*octets))
}

/// Frames per second that come to one queue at most: what a core copies, about, and 100 Gb/s of the
/// shortest.
const MOST_FRAMES: u64 = 5_000_000;
const MOST_FRAMES_OF_A_NIC: u64 = 148_809_523;

impl RxQueue for XdpRx {
    fn receive(&mut self) -> io::Result<RxBatch<'_>> {
        self.frames.clear();
        let stamped = !self.receiving.counters().cannot_stamp();
        let queues = self.queues.len();
        for _ in 0..queues {
            let queue = &mut self.queues[self.turn];
            queue.give_back();
            queue.read(&mut self.frames, &mut self.joined, stamped);
            if !self.frames.is_empty() {
                break;
            }
            queue.kick(self.busy_poll);
            self.turn = (self.turn + 1) % queues;
        }
        if self.frames.is_empty() {
            self.check_interface()?;
            return Ok(RxBatch::empty());
        }
        self.given += self.frames.len() as u64;
        let queue = &self.queues[self.turn];
        self.turn = (self.turn + 1) % queues;
        if !self.joined.is_empty() {
            return Ok(RxBatch { base: &self.joined, frames: &self.frames });
        }
        let umem = &queue.side.umem;
        let first = umem.layout.tx_octets;
        let octets = umem.layout.octets() - first;
        let at = umem.memory.at(first, octets);
        // SAFETY: the chunks, behind the slots that the sending side has, for the receiver to find
        // its frames in: they stay as they are until given back, which takes `&mut self`. The rest,
        // which the kernel writes to, is not read.
        let base = unsafe { std::slice::from_raw_parts(at.as_ptr(), octets) };
        Ok(RxBatch { base, frames: &self.frames })
    }

    fn drops(&mut self) -> Vec<(&'static str, u64)> {
        // struct xdp_statistics: rx_dropped, rx_invalid_descs, tx_invalid_descs, rx_ring_full, ...
        let (mut ring_full, mut no_chunk) = (0, 0);
        for queue in &self.queues {
            if let Ok(stats) =
                queue.side.socket().get(libc::SOL_XDP, libc::XDP_STATISTICS, [0u64; 6])
            {
                no_chunk += stats[0];
                ring_full += stats[3];
            }
        }
        vec![("ring_full", ring_full), ("no_buffer", no_chunk)]
    }

    fn received(&mut self) -> Option<u64> {
        let waiting: u64 = self.queues.iter().map(Queue::waiting).sum();
        Some(self.given + waiting + self.drops().iter().map(|(_, n)| n).sum::<u64>())
    }

    fn stop(&mut self) -> io::Result<()> {
        self.counted.stop(|| self.receiving.counters().passed());
        self.queues.iter().for_each(|queue| queue.receiving.remove(queue.number));
        Ok(())
    }

    fn poll_on<'a>(&'a self, descriptors: &mut Vec<BorrowedFd<'a>>) -> bool {
        descriptors.extend(self.queues.iter().map(|queue| queue.side.socket().as_fd()));
        // Who polls the device asked not to wait for its interrupts.
        !self.busy_poll
    }

    fn rest(&self) -> Nanos {
        if self.busy_poll || self.receiving.counters().cannot_stamp() {
            return Nanos::ZERO;
        }
        let bears = |queue: &Queue| {
            let layout = &queue.side.umem.layout;
            let most = if layout.zero_copy { MOST_FRAMES_OF_A_NIC } else { MOST_FRAMES };
            u64::from(layout.rx_chunks) * 1_000_000_000 / most / 4
        };
        Nanos(self.queues.iter().map(bears).min().unwrap_or(0))
    }
}
