//! Sends frames: they are written in place, and listed in the transmit ring.
//!
//! In copy mode the kernel copies frames within the sendto() call, one after the other, and reports
//! the number that it consumed: a frame is taken when its descriptor is consumed. A frame that the
//! driver dropped (EBUSY) is offered again, as if the queue were full. Descriptors that were not
//! consumed still belong to Squall, and are withdrawn when the caller gives the frames up. With
//! zero-copy the driver takes descriptors at its own pace: frames in the ring count as taken.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use libc::xdp_desc;
use squall_port::{BATCH, LinkState, SendError, TxBatch, TxMeta, TxQueue, monotonic};
use squall_units::Nanos;

use super::umem::{Side, TX_HEADROOM, TX_METADATA, Umem};
use crate::{af_packet::ETHERNET_HEADER, link::WatchedLink, refused::RefusalTracker, sys};

/// Number of consecutive calls that sent nothing after which the carrier is checked.
const CHECK_LINK_AFTER: u32 = 64;
/// Socket option for the number of frames per system call, from Linux 6.17 on. Earlier kernels send
/// 32.
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;
/// `XDP_TXMD_FLAGS_TIMESTAMP`
const TIMESTAMP: u64 = 1 << 0;
/// `XDP_TXMD_FLAGS_LAUNCH_TIME`
const LAUNCH_TIME: u64 = 1 << 2;
/// A descriptor that the kernel skips: it has an unknown option.
const WITHDRAWN: xdp_desc = xdp_desc { addr: 0, len: 0, options: u32::MAX };

pub struct XdpTx {
    side: Side,
    interface: String,
    link: Arc<WatchedLink>,
    max_frame: u32,
    batch: usize,
    need_wakeup: bool,
    /// Nanoseconds to add to the due time to get the launch time on the device's clock; `None`: no
    /// launch time.
    launch: Option<i64>,
    /// The driver's transmit timestamps, if requested.
    departures: Option<Arc<Departures>>,
    /// Offset from `CLOCK_MONOTONIC` to the clock of drivers and devices (TAI), ns.
    to_tai: i64,
    slots: Slots,
    /// Slots `next..next + lent` are lent and not sent.
    next: usize,
    lent: usize,
    /// The kernel's index in the ring; ahead of the shared word if the kernel has consumed a frame
    /// that was dropped.
    consumed: u32,
    /// The index up to which the ring is written.
    written: u32,
    /// Per frame of the current batch, the index in the ring after its last descriptor.
    ends: Vec<u32>,
    /// Number of consecutive calls that found the queue full.
    blocked: u32,
    refused: RefusalTracker,
}

/// Transmit slots, in groups of one batch. The kernel owns a slot until all descriptors for it have
/// completed, which may happen in any order.
struct Slots {
    start: usize,
    stride: usize,
    meta: Vec<TxMeta>,
    /// Number of descriptors per slot that have not completed: it can be large, if frames are
    /// dropped and offered again faster than descriptors complete.
    pending: Vec<u32>,
    /// One bit per slot, set if the slot is free; a group is one word.
    free: Vec<u64>,
}

impl Slots {
    fn new(count: usize, stride: usize) -> Self {
        Self {
            start: TX_HEADROOM,
            stride,
            meta: vec![TxMeta::default(); count],
            pending: vec![0; count],
            free: vec![u64::MAX; count / BATCH],
        }
    }

    /// The first run of `want` free slots within a group, or else the longest. First fit reuses
    /// recent slots, which are in the cache.
    fn find(&self, want: usize) -> (usize, usize) {
        let mut best = (0, 0);
        for (group, &free) in self.free.iter().enumerate() {
            let (mut bits, mut at) = (free, 0);
            while bits != 0 {
                let skip = bits.trailing_zeros();
                let run = (bits >> skip).trailing_ones();
                if run as usize > best.1 {
                    best = (group * BATCH + at + skip as usize, run as usize);
                    if best.1 >= want {
                        return (best.0, want);
                    }
                }
                bits = bits.checked_shr(skip + run).unwrap_or(0);
                at += (skip + run) as usize;
            }
        }
        best
    }

    fn take(&mut self, slot: usize, descriptors: u8) {
        self.pending[slot] += u32::from(descriptors);
        self.free[slot / BATCH] &= !(1 << (slot % BATCH));
    }

    /// Records a completed descriptor. Returns its slot. After a link was down, Linux 6.18 may
    /// complete descriptors that were never sent: for these the function returns `None`.
    fn give_back(&mut self, address: u64) -> Option<usize> {
        let slot = (address as usize).checked_sub(self.start)? / self.stride;
        let pending = self.pending.get_mut(slot).filter(|pending| **pending > 0)?;
        *pending -= 1;
        if *pending == 0 {
            self.free[slot / BATCH] |= 1 << (slot % BATCH);
        }
        Some(slot)
    }

    fn address(&self, slot: usize) -> usize {
        self.start + slot * self.stride
    }
}

impl XdpTx {
    /// `port_max`: the interface's longest frame; `max_frame`: the longest frame to send.
    pub fn new(
        side: Side,
        interface: &str,
        link: Arc<WatchedLink>,
        (port_max, max_frame): (u32, u32),
        options: &super::Options,
        departures: Option<Arc<Departures>>,
    ) -> Self {
        let layout = side.umem.layout;
        let stride = layout.tx_stride(max_frame as usize);
        let room = (layout.tx_octets - TX_HEADROOM) / stride;
        let count = room.min(layout.tx_ring as usize) / BATCH * BATCH;
        assert!(count > 0, "the memory was made for a batch of the longest frames");
        // With this budget the frames of one call leave together. Older kernels refuse the option
        // and take 32 frames per call; they are called again.
        let _ = side.socket().set(libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, layout.tx_ring);
        // Room for a few batches of jumbo frames; the kernel clips it to net.core.wmem_max.
        let _ = side.socket().set(libc::SOL_SOCKET, libc::SO_SNDBUF, 4 << 20);
        let (consumed, written) = (side.ring.consumer(), side.ring.producer());
        Self {
            interface: interface.to_owned(),
            link,
            max_frame: port_max,
            batch: options.batch,
            need_wakeup: options.need_wakeup,
            launch: options.launch_us.map(|us| i64::from(us) * 1000),
            departures,
            to_tai: tai_offset(),
            slots: Slots::new(count, stride),
            next: 0,
            lent: 0,
            consumed,
            written,
            ends: Vec::with_capacity(BATCH),
            blocked: 0,
            refused: RefusalTracker::default(),
            side,
        }
    }

    /// Frees the slots whose descriptors have completed.
    fn reap(&mut self) {
        let completion = &self.side.addresses;
        let (from, to) = (completion.consumer(), completion.producer());
        if from == to {
            return;
        }
        let (mut at, mut sums) = (from, Sums::default());
        while at != to {
            let slot = self.slots.give_back(completion.get(at));
            if let Some(slot) = slot.filter(|_| self.departures.is_some()) {
                let left = read_stamp(&self.side.umem, self.slots.address(slot)) - self.to_tai;
                sums.record(left - self.slots.meta[slot].due.0 as i64);
            }
            at = at.wrapping_add(1);
        }
        if let Some(departures) = &self.departures {
            departures.add(&sums);
        }
        completion.consume(to);
    }

    /// Whether each frame has metadata: the time at which it should leave, or at which it left.
    fn has_metadata(&self) -> bool {
        self.launch.is_some() || self.departures.is_some()
    }

    fn copies(&self) -> bool {
        !self.side.umem.layout.zero_copy
    }

    /// Writes descriptors for frames `next..next + n` from the kernel's index on, as far as the
    /// ring has room, and up to the first invalid frame. Returns the number of frames.
    fn write(&mut self, n: usize, from: u32) -> usize {
        let layout = self.side.umem.layout;
        let room = self.side.ring.size();
        // In copy mode the shared word lags for dropped frames, although the kernel has finished
        // with them.
        let kernel = if self.copies() { from } else { self.side.ring.consumer() };
        let with_metadata = self.has_metadata();
        let metadata = if with_metadata { libc::XDP_TX_METADATA } else { 0 };
        self.ends.clear();
        let mut at = from;
        for slot in self.next..self.next + n {
            let meta = self.slots.meta[slot];
            if meta.len > self.max_frame || meta.len < ETHERNET_HEADER {
                break;
            }
            let (mut address, mut left) = (self.slots.address(slot), meta.len as usize);
            let first = at;
            while left > 0 {
                if at.wrapping_sub(kernel) >= room {
                    at = first;
                    break;
                }
                let piece = layout.piece(address, left);
                let more = if left > piece { libc::XDP_PKT_CONTD } else { 0 };
                let with = if at == first { metadata } else { 0 };
                self.side.ring.set(
                    at,
                    xdp_desc { addr: address as u64, len: piece as u32, options: more | with },
                );
                at = at.wrapping_add(1);
                (address, left) = (address + piece, left - piece);
            }
            if left > 0 {
                break;
            }
            if with_metadata {
                self.write_metadata(slot, meta.due);
            }
            self.ends.push(at);
        }
        // Withdraws descriptors that an earlier call left in the ring.
        let end = at;
        while is_before(at, self.written) {
            self.side.ring.set(at, WITHDRAWN);
            at = at.wrapping_add(1);
        }
        if is_before(self.written, end) {
            self.written = end;
            self.side.ring.produce(end);
        }
        self.ends.len()
    }

    /// Writes the frame's request to the driver in front of it.
    fn write_metadata(&mut self, slot: usize, due: Nanos) {
        let at = self.side.umem.memory.at(self.slots.address(slot) - TX_METADATA, TX_METADATA);
        let stamp = if self.departures.is_some() { TIMESTAMP } else { 0 };
        // struct xsk_tx_metadata: flags; csum_start and csum_offset, launch_time; or, when done,
        // tx_timestamp.
        let metadata = match self.launch {
            Some(later) => [LAUNCH_TIME | stamp, 0, due.0.wrapping_add_signed(later + self.to_tai)],
            None => [stamp, 0, 0],
        };
        // SAFETY: 24 octets of the headroom before the slot, which only this queue uses.
        unsafe { at.as_ptr().cast::<[u64; 3]>().write_unaligned(metadata) };
    }

    /// Withdraws the frames in the ring that were not consumed.
    fn withdraw(&mut self) {
        if self.copies() && self.consumed != self.written {
            self.write(0, self.consumed);
        }
    }

    fn send_copied(&mut self, n: usize) -> Result<usize, SendError> {
        let n = n.min(self.lent);
        let mut taken = 0;
        while taken < n {
            let frames = self.write((n - taken).min(self.batch), self.consumed);
            if frames == 0 && taken == 0 && self.is_invalid(self.next) {
                return Err(self.refuse());
            }
            if frames == 0 {
                break;
            }
            let (sent, outcome) = self.kick_copied();
            taken += sent;
            if sent > 0 {
                self.blocked = 0;
                let (first, meta) = (self.next - sent, &self.slots.meta);
                self.refused.left(|| {
                    meta[first..first + sent].iter().map(|meta| meta.len).max().unwrap_or(0)
                });
            }
            match outcome {
                Outcome::Done => {}
                _ if taken > 0 => break,
                outcome => return self.blocked(outcome).map(|()| 0),
            }
        }
        Ok(taken)
    }

    /// Lets the kernel consume the frames that end at `ends`. Returns how many left, and why the
    /// others did not.
    fn kick_copied(&mut self) -> (usize, Outcome) {
        let frames = self.ends.len();
        let mut gone = 0;
        loop {
            let result = self.side.socket().kick_tx();
            let kernel = self.side.ring.consumer();
            let before = self.consumed;
            if is_before(self.consumed, kernel) {
                self.consumed = kernel;
            }
            let code = result.as_ref().err().and_then(io::Error::raw_os_error);
            let dropped = code == Some(libc::EBUSY);
            if dropped && self.consumed == before {
                // The kernel consumed the first frame of the call, but updates the shared word only
                // with the next.
                self.consumed = self.ends[gone];
            }
            let first = gone;
            while gone < frames && !is_before(self.consumed, self.ends[gone]) {
                let start = if gone == 0 { None } else { Some(self.ends[gone - 1]) };
                self.slots.take(self.next + gone, self.descriptors(gone, start));
                gone += 1;
            }
            let outcome = match code {
                None | Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR | libc::ENOMEM)
                    if gone == frames =>
                {
                    Outcome::Done
                }
                // The call's budget is used up, or there was no memory for the next frame.
                None | Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR | libc::ENOMEM)
                    if gone > first =>
                {
                    continue;
                }
                None | Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR | libc::ENOMEM) => {
                    Outcome::Full
                }
                // The last frame that was consumed was dropped; it is offered again.
                Some(libc::EBUSY) => {
                    gone = gone.saturating_sub(1);
                    Outcome::Dropped
                }
                _ => Outcome::Lost(result.err().unwrap_or_else(|| io::Error::other("unknown"))),
            };
            self.next += gone;
            self.lent -= gone;
            return (gone, outcome);
        }
    }

    /// Number of descriptors of frame `i` of the current batch; `start` is its index in the ring.
    /// For the first frame, whose start is unknown, the number follows from its length.
    fn descriptors(&self, i: usize, start: Option<u32>) -> u8 {
        match start {
            Some(start) => self.ends[i].wrapping_sub(start) as u8,
            None => {
                let layout = self.side.umem.layout;
                let (mut at, mut left) =
                    (self.slots.address(self.next), self.slots.meta[self.next].len as usize);
                let mut n = 0;
                while left > 0 {
                    let piece = layout.piece(at, left);
                    (at, left, n) = (at + piece, left - piece, n + 1);
                }
                n
            }
        }
    }

    fn send_in_place(&mut self, n: usize) -> Result<usize, SendError> {
        if n == 0 {
            return Ok(0);
        }
        let frames = self.write(n, self.written);
        self.consumed = self.side.ring.consumer();
        for i in 0..frames {
            let start = if i == 0 { None } else { Some(self.ends[i - 1]) };
            self.slots.take(self.next + i, self.descriptors(i, start));
        }
        let kicked = if !self.need_wakeup || self.side.ring.needs_wakeup() {
            self.side.socket().kick_tx()
        } else {
            Ok(())
        };
        // Checked before the outcome of the call: the driver owns the frames in the ring, whatever
        // the call returned.
        let is_invalid = frames == 0 && self.is_invalid(self.next);
        self.next += frames;
        self.lent -= frames;
        let outcome = match kicked.as_ref().err().and_then(io::Error::raw_os_error) {
            None | Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR) => Outcome::Full,
            Some(_) => Outcome::Lost(kicked.err().unwrap_or_else(|| io::Error::other("unknown"))),
        };
        match outcome {
            _ if is_invalid => Err(self.refuse()),
            Outcome::Lost(_) => self.blocked(outcome).map(|()| frames),
            _ if frames > 0 => {
                self.blocked = 0;
                Ok(frames)
            }
            full => self.blocked(full).map(|()| 0),
        }
    }

    fn is_invalid(&self, slot: usize) -> bool {
        !(ETHERNET_HEADER..=self.max_frame).contains(&self.slots.meta[slot].len)
    }

    /// Skips the next frame, which cannot be sent.
    fn refuse(&mut self) -> SendError {
        let short = self.slots.meta[self.next].len < ETHERNET_HEADER;
        self.next += 1;
        self.lent -= 1;
        SendError::Frame(if short { "too_short" } else { "too_long" })
    }

    /// Handles a call that took no frame: returns an error if a retry is useless.
    fn blocked(&mut self, outcome: Outcome) -> Result<(), SendError> {
        self.blocked += 1;
        // Dropped frames complete too, and without room in the completion ring the kernel takes no
        // frame.
        self.reap();
        match outcome {
            Outcome::Lost(error) => match error.raw_os_error() {
                Some(libc::ENETDOWN) => return self.no_link(true),
                Some(libc::ENXIO | libc::ENODEV) => {
                    self.link.link().lose(monotonic());
                    return self.no_link(false);
                }
                _ => return Err(SendError::Port(error)),
            },
            Outcome::Dropped => {
                let len = self.slots.meta[self.next].len;
                if self.refused.again(len, || self.link.tx_dropped())
                    && self.link.state() == LinkState::Up
                {
                    self.next += 1;
                    self.lent -= 1;
                    return Err(SendError::Frame("dropped_by_driver"));
                }
            }
            Outcome::Full | Outcome::Done => {}
        }
        // Without a carrier the driver reports the same error forever.
        if self.blocked.is_multiple_of(CHECK_LINK_AFTER) && self.link.look() != LinkState::Up {
            return self.no_link(false);
        }
        Ok(())
    }

    /// Sends nothing until the link is up again; fails if `on_link_down` makes the loss final.
    fn no_link(&mut self, refresh: bool) -> Result<(), SendError> {
        self.refused.forget();
        match if refresh { self.link.look() } else { self.link.state() } {
            LinkState::Lost => Err(SendError::Port(self.link.link().error())),
            LinkState::Up | LinkState::Down => Ok(()),
        }
    }
}

/// Why the kernel stopped.
#[derive(Debug)]
enum Outcome {
    Done,
    Full,
    Dropped,
    Lost(io::Error),
}

impl TxQueue for XdpTx {
    fn lend(&mut self, want: usize) -> TxBatch<'_> {
        self.withdraw();
        self.reap();
        let want = want.min(BATCH);
        let (first, n) = self.slots.find(want);
        (self.next, self.lent) = (first, n.min(want));
        if self.lent == 0 {
            return TxBatch::empty();
        }
        let octets = self.lent * self.slots.stride;
        let at = self.side.umem.memory.at(self.slots.address(first), octets);
        // SAFETY: free slots: the kernel has no descriptor for them, and each is lent only once at
        // a time, as the batch borrows the queue. The receiving side's memory follows all slots.
        let base = unsafe { std::slice::from_raw_parts_mut(at.as_ptr(), octets) };
        TxBatch {
            base,
            stride: self.slots.stride,
            meta: &mut self.slots.meta[first..first + self.lent],
        }
    }

    fn reads_due(&self) -> bool {
        self.has_metadata()
    }

    fn send(&mut self, n: usize) -> Result<usize, SendError> {
        assert!(n <= self.lent, "more frames sent than lent");
        if self.copies() { self.send_copied(n) } else { self.send_in_place(n) }
    }

    fn finish(&mut self) -> io::Result<()> {
        self.withdraw();
        for _ in 0..1000 {
            self.reap();
            if self.slots.free.iter().all(|group| *group == u64::MAX) {
                return Ok(());
            }
            if !self.copies() {
                let _ = self.side.socket().kick_tx();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let text = format!("{}: frames still wait in the driver after 1 s", self.interface);
        Err(io::Error::new(io::ErrorKind::TimedOut, text))
    }
}

/// Compares indices that are less than 2^31 apart.
#[inline]
fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// The driver's timestamp in front of the frame at `address`, `CLOCK_TAI`.
fn read_stamp(umem: &Umem, address: usize) -> i64 {
    let at = umem.memory.at(address - TX_METADATA + 8, 8);
    // SAFETY: 8 octets of the headroom before a slot that has completed: the kernel has written
    // them.
    unsafe { at.as_ptr().cast::<i64>().read_unaligned() }
}

/// Departure errors by the driver's timestamps.
#[derive(Debug, Default)]
pub struct Departures(Mutex<Sums>);

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    count: u64,
    sum_ns: i64,
    min_ns: i64,
    max_ns: i64,
}

impl Sums {
    fn record(&mut self, late_ns: i64) {
        let first = self.count == 0;
        self.min_ns = if first { late_ns } else { self.min_ns.min(late_ns) };
        self.max_ns = if first { late_ns } else { self.max_ns.max(late_ns) };
        self.count += 1;
        self.sum_ns += late_ns;
    }
}

impl Departures {
    fn add(&self, batch: &Sums) {
        let mut sums = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let first = sums.count == 0;
        sums.min_ns = if first { batch.min_ns } else { sums.min_ns.min(batch.min_ns) };
        sums.max_ns = if first { batch.max_ns } else { sums.max_ns.max(batch.max_ns) };
        sums.count += batch.count;
        sums.sum_ns += batch.sum_ns;
    }

    /// The summary; `None` if no frame was stamped.
    pub fn summary(&self) -> Option<String> {
        let Sums { count, sum_ns, min_ns, max_ns } =
            *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let us = |ns: i64| ns as f64 / 1000.0;
        let mean = us(sum_ns) / count.max(1) as f64;
        let text = format!(
            "the driver stamped {count} frames: {mean:.1} us after their due times on average \
             ({:.1} to {:.1})",
            us(min_ns),
            us(max_ns)
        );
        (count > 0).then_some(text)
    }
}

fn tai_offset() -> i64 {
    sys::clock(libc::CLOCK_TAI) - sys::clock(libc::CLOCK_MONOTONIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_lent_again_only_when_all_its_descriptors_have_completed() {
        let mut slots = Slots::new(128, 192);
        assert_eq!(slots.find(64), (0, 64));
        for slot in 0..64 {
            slots.take(slot, 1);
        }
        assert_eq!(slots.find(64), (64, 64), "the next group");
        for slot in 64..128 {
            slots.take(slot, if slot == 70 { 2 } else { 1 });
        }
        assert_eq!(slots.find(1).1, 0, "none is free");
        // The slots complete out of order.
        for slot in [70, 72, 71, 9] {
            let address = slots.address(slot) as u64;
            slots.give_back(address);
        }
        assert_eq!(slots.find(64), (71, 2), "the longest run");
        assert_eq!(slots.find(1), (9, 1), "the first run that is long enough");
        let address = slots.address(70) as u64;
        slots.give_back(address + 20);
        assert_eq!(slots.find(64), (70, 3));
    }

    #[test]
    fn indices_wrap() {
        assert!(is_before(u32::MAX, 0) && !is_before(0, u32::MAX) && !is_before(5, 5));
    }
}
