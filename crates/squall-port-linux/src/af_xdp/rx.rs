//! Receives frames: the kernel puts frames into chunks of the memory and lists them in the receive
//! ring. The chunks of a batch are returned to the kernel at the next call.

use std::{io, os::fd::BorrowedFd, sync::Arc, time::Duration};

use libc::{c_int, xdp_desc};
use squall_port::{BATCH, Cut, RxBatch, RxFrame, RxQueue, monotonic};
use squall_units::Nanos;

use super::{
    program::{Receiving, STAMP},
    umem::{Side, Umem},
};
use crate::{link::WatchedLink, port_counters::PortCounters, sys, watch::Watch};

/// A descriptor's address has the chunk in its lower bits and the frame's offset in the upper 16
/// (`XSK_UNALIGNED_BUF_OFFSET_SHIFT`).
const ADDRESS_BITS: u32 = 48;
const ADDRESS: u64 = (1 << ADDRESS_BITS) - 1;

/// Receives from one or more queues of the device.
pub struct XdpRx {
    // Dropped before `receiving`: each queue removes itself from the program's map.
    queues: Vec<Queue>,
    /// Index of the next queue to read.
    turn: usize,
    frames: Vec<RxFrame>,
    /// Frames that arrived in several pieces, joined together.
    joined: Vec<u8>,
    busy_poll: bool,
    /// Frames delivered so far.
    delivered: u64,
    receiving: Arc<Receiving>,
    counters: Arc<PortCounters>,
    watch: Watch,
    /// Time at which the sockets were last checked for pending errors.
    checked: Nanos,
}

/// Interval of these checks: each costs a system call, so a busy reader must not make them for each
/// batch.
const CHECK_EVERY: Nanos = Nanos(10_000_000);
/// Time after which the driver's last frames are in the ring.
const SETTLE_TIME: Duration = Duration::from_millis(20);

struct Queue {
    number: u32,
    side: Side,
    /// Consumer index of the receive ring.
    consumed: u32,
    /// Producer index of the fill ring.
    filled: u32,
    /// Chunks of the batch that was returned to the caller.
    held: Vec<u64>,
    receiving: Arc<Receiving>,
}

impl XdpRx {
    pub fn new(
        sides: Vec<(u32, Side)>,
        link: Arc<WatchedLink>,
        busy_poll: bool,
        receiving: Arc<Receiving>,
        counters: Arc<PortCounters>,
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
            delivered: 0,
            receiving,
            counters,
            watch: Watch::new(Some(link), SETTLE_TIME),
            checked: monotonic(),
        })
    }

    /// Returns an error if nothing can arrive any more.
    fn check_interface(&mut self) -> io::Result<()> {
        let (queues, checked) = (&self.queues, &mut self.checked);
        self.watch.nothing_came(|| {
            let now = monotonic();
            if now.saturating_sub(*checked) < CHECK_EVERY {
                return Ok(false);
            }
            *checked = now;
            // Sockets report that the interface is gone, but not that it was taken down.
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

    /// Returns the chunks of the last batch to the kernel.
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
            // The error is ignored, because an error of the interface also shows as missing frames,
            // which are checked for.
            let _ = self.side.socket().kick_rx();
        }
    }

    /// Number of descriptors and length of the frame at `at`; `None` if the ring lacks some of its
    /// pieces.
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

    /// Number of frames in the receive ring.
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

    /// Reads a batch of single-piece frames, or of frames in several pieces, which are joined in
    /// `joined`; not both, because a batch has one base address.
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
            // The kernel may have written it on another CPU: prefetches transfer the cache lines of
            // a batch in parallel.
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
                // A veth passes on frames from a host's stack with partial checksums, and XDP does
                // not report which.
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
    // SAFETY: in a chunk named by the receive ring, which the kernel writes again only after it is
    // returned.
    unsafe { std::slice::from_raw_parts(at.as_ptr(), len) }
}

fn stamp(umem: &Umem, at: usize) -> u64 {
    let stamp = octets(umem, at - STAMP, STAMP);
    stamp.first_chunk().map_or(0, |octets| u64::from_ne_bytes(*octets))
}

/// Highest frame rates of a queue, in frames/s: in copy mode about what one core copies; with
/// zero-copy, 100 Gb/s of 64-octet frames.
const MAX_COPY_RATE: u64 = 5_000_000;
const MAX_NIC_RATE: u64 = 148_809_523;

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
        self.delivered += self.frames.len() as u64;
        let queue = &self.queues[self.turn];
        self.turn = (self.turn + 1) % queues;
        if !self.joined.is_empty() {
            return Ok(RxBatch { base: &self.joined, frames: &self.frames });
        }
        let umem = &queue.side.umem;
        let first = umem.layout.tx_octets;
        let octets = umem.layout.octets() - first;
        let at = umem.memory.at(first, octets);
        // SAFETY: the chunks, which follow the sending side's slots. Chunks of this batch stay as
        // they are until returned, which takes `&mut self`; the others, which the kernel writes to,
        // are not read.
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
        Some(self.delivered + waiting + self.drops().iter().map(|(_, n)| n).sum::<u64>())
    }

    fn stop(&mut self) -> io::Result<()> {
        self.counters.stop(
            || self.receiving.counters().passed(),
            || {
                self.queues.iter().for_each(|queue| queue.receiving.remove(queue.number));
                // Not known: a queue has no count of its own.
                Ok(0)
            },
        )
    }

    fn poll_on<'a>(&'a self, descriptors: &mut Vec<BorrowedFd<'a>>) -> bool {
        descriptors.extend(self.queues.iter().map(|queue| queue.side.socket().as_fd()));
        // With busy polling the device's interrupts are deferred, so poll(2) would wait too long.
        !self.busy_poll
    }

    fn rest(&self) -> Nanos {
        if self.busy_poll || self.receiving.counters().cannot_stamp() {
            return Nanos::ZERO;
        }
        let quarter_ring = |queue: &Queue| {
            let layout = &queue.side.umem.layout;
            let rate = if layout.zero_copy { MAX_NIC_RATE } else { MAX_COPY_RATE };
            u64::from(layout.rx_chunks) * 1_000_000_000 / rate / 4
        };
        Nanos(self.queues.iter().map(quarter_ring).min().unwrap_or(0))
    }
}
