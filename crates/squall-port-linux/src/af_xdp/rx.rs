//! Receives frames: the kernel puts frames into chunks of the memory and lists them in the receive
//! ring. The chunks of a batch are returned to the kernel at the next call.

use std::{io, os::fd::BorrowedFd, sync::Arc, time::Duration};

use libc::{c_int, xdp_desc};
use squall_port::{BATCH, Cut, RxBatch, RxFrame, RxQueue, monotonic, network_header};
use squall_units::Nanos;

use super::{
    nic_time::NicTime,
    program::{Receiving, STAMP},
    umem::{Side, Umem},
};
use crate::{
    af_packet::ETHERNET_HEADER, link::WatchedLink, port_counters::PortCounters, sys, watch::Watch,
};

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
    /// The interface's longest IP packet, octets: longer ones are GSO frames.
    mtu: u32,
    /// Converts the stamps of the NIC, if the program asks for them.
    nic: Option<NicTime>,
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
        (busy_poll, mtu): (bool, u32),
        nic: Option<NicTime>,
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
            mtu,
            nic,
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
    fn read(&mut self, into: (&mut Vec<RxFrame>, &mut Vec<u8>), clocks: Clocks<'_>, mtu: u32) {
        let ((frames, joined), Clocks { stamped, nic }) = (into, clocks);
        let mut by_nic = 0;
        // In the driver there are no joined frames: a longer one exceeds the MTU on the wire.
        let cuts = self.receiving.is_generic();
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
            let mut time = if stamped { Nanos(stamp(&self.side.umem, at, 1)) } else { arrival };
            if let Some(nic) = nic.filter(|_| stamped)
                && let Some(arrival) = nic.arrival(stamp(&self.side.umem, at, 2), time)
            {
                (time, by_nic) = (arrival, by_nic + 1);
            }
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
            let mut cut = Cut::WHOLE;
            if cuts && len > (mtu + ETHERNET_HEADER) as usize {
                let single = || octets(&self.side.umem, at, len);
                cut = cut_of(if pieces == 1 { single() } else { &joined[offset..] }, mtu);
            }
            let len = len as u32;
            frames.push(RxFrame {
                offset,
                len,
                wire_len: len,
                cut,
                time,
                outgoing: false,
                // A veth passes on frames from a host's stack with partial checksums, and XDP does
                // not report which.
                partial: true,
            });
        }
        self.side.ring.consume(self.consumed);
        if let Some(nic) = nic {
            nic.stamps().count(by_nic, frames.len() as u64 - by_nic);
        }
    }
}

/// How the arrival times of frames are found.
#[derive(Clone, Copy)]
struct Clocks<'a> {
    /// Whether the program stamps frames.
    stamped: bool,
    nic: Option<&'a NicTime>,
}

/// How a frame that is longer than the interface's MTU allows is cut into frames on the wire. A
/// program in the stack (`mode=generic`) gets TCP segments that GRO joined, or that a veth's peer
/// passed on whole, but not the length of a segment: it is taken as the most that the MTU allows.
/// Joined datagrams of UDP may have any length, so they stay whole.
fn cut_of(frame: &[u8], mtu: u32) -> Cut {
    const TCP: u8 = 6;
    let network = network_header(frame);
    let octet = |at: usize| frame.get(at).copied().unwrap_or(0);
    let words = |octet: u8| usize::from(octet) * 4;
    let (protocol, header) = match (octet(network - 2), octet(network - 1)) {
        (0x08, 0x00) => (octet(network + 9), words(octet(network) & 15).max(20)),
        (0x86, 0xdd) => (octet(network + 6), 40),
        _ => return Cut::WHOLE,
    };
    let transport = network + header;
    let payload = match protocol {
        TCP => transport + words(octet(transport + 12) >> 4).max(20),
        _ => return Cut::WHOLE,
    };
    let size = (mtu as usize).checked_sub(payload - network).and_then(|n| u16::try_from(n).ok());
    match (size, u8::try_from(transport), u8::try_from(payload)) {
        (Some(size @ 1..), Ok(transport), Ok(payload))
            if frame.len() > usize::from(payload) + usize::from(size) =>
        {
            Cut { size, transport, payload }
        }
        _ => Cut::WHOLE,
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

/// The `nth` stamp in front of the frame at `at`, from 1.
fn stamp(umem: &Umem, at: usize, nth: usize) -> u64 {
    let stamp = octets(umem, at - nth * STAMP, STAMP);
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
        if let Some(nic) = &mut self.nic {
            nic.follow(monotonic());
        }
        let clocks = Clocks { stamped, nic: self.nic.as_ref() };
        for _ in 0..queues {
            let queue = &mut self.queues[self.turn];
            queue.give_back();
            queue.read((&mut self.frames, &mut self.joined), clocks, self.mtu);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame with `octets` of payload; `tags` VLAN tags.
    fn frame(ipv6: bool, tags: usize, protocol: u8, payload: usize) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend([0x81, 0, 0, 7].repeat(tags));
        frame.extend(if ipv6 { [0x86, 0xdd] } else { [8, 0] });
        let network = frame.len();
        frame.resize(network + if ipv6 { 40 } else { 20 }, 0);
        frame[network] = if ipv6 { 0x60 } else { 0x45 };
        frame[network + if ipv6 { 6 } else { 9 }] = protocol;
        let transport = frame.len();
        frame.resize(transport + if protocol == 6 { 32 } else { 8 }, 0);
        if protocol == 6 {
            frame[transport + 12] = 8 << 4;
        }
        frame.resize(frame.len() + payload, 0);
        frame
    }

    #[test]
    fn a_frame_beyond_the_mtu_is_cut_as_the_mtu_allows() {
        // As a kernel with the same MTU cuts it: 1,448 octets of TCP with timestamps over IPv4.
        for (ipv6, tags, protocol, size) in
            [(false, 0, 6, 1448), (true, 0, 6, 1428), (false, 2, 6, 1448), (true, 1, 6, 1428)]
        {
            let octets = frame(ipv6, tags, protocol, 10 * size as usize + 1);
            let cut = cut_of(&octets, 1500);
            let transport = 14 + 4 * tags as u8 + if ipv6 { 40 } else { 20 };
            let payload = transport + 32;
            assert_eq!(cut, Cut { size, transport, payload });
            assert_eq!(cut.segments(octets.len() as u32), 11);
        }
    }

    #[test]
    fn frames_that_cannot_be_cut_stay_whole() {
        // Longer than the MTU by a second VLAN tag only; another protocol; headers beyond the end.
        assert_eq!(cut_of(&frame(false, 1, 17, 14_720), 1500), Cut::WHOLE);
        let tagged = frame(false, 2, 6, 1448);
        let mut other = frame(false, 0, 50, 3000);
        assert_eq!([cut_of(&tagged, 1500), cut_of(&other, 1500)], [Cut::WHOLE; 2]);
        other[12] = 0x88;
        assert_eq!(cut_of(&other, 1500), Cut::WHOLE);
        for protocol in [6, 17] {
            let octets = frame(true, 1, protocol, 0);
            for len in 14..octets.len() {
                assert_eq!(cut_of(&octets[..len], 1500), Cut::WHOLE, "{len}");
            }
        }
        // A header that is longer than a packet of the MTU.
        assert_eq!(cut_of(&frame(true, 0, 6, 3000), 68), Cut::WHOLE);
    }
}
