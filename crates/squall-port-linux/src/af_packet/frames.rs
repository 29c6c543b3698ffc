//! A TPACKET_V2 receive ring: the kernel delivers each frame on arrival.

use std::{
    io, mem,
    os::fd::BorrowedFd,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use libc::c_int;
use squall_port::{BATCH, ETHERNET, RxBatch, RxFrame, RxQueue};
use squall_units::Nanos;

use super::{
    Entry, Framing, MAX_IP_PACKET, Options, ReceiveRing, RingCounters, VIRTIO_HEADER, View,
    WallClock, changed, make_frame, u16_at, u32_at,
};
use crate::{
    link::WatchedLink,
    port_counters::PortCounters,
    sys::{self, Map, Socket},
    watch::Watch,
};

pub(super) struct FrameRing {
    map: Map,
    socket: Socket,
    counters: Arc<PortCounters>,
    slots: usize,
    slot_octets: usize,
    /// Index of the next slot to read.
    next: usize,
    /// Number of slots before `next` that the last batch uses and that must be returned to the
    /// kernel.
    held: usize,
    watch: Watch,
    frames: Vec<RxFrame>,
    /// Frames longer than a slot, each in one piece.
    long: Vec<u8>,
    clock: WallClock,
    gro: bool,
    view: View,
    counts: RingCounters,
    /// Number of long frames of which the kernel had room only for the first octets.
    incomplete: u64,
}

/// Octets in front of a frame in its slot: `tpacket2_hdr`, `sockaddr_ll`, a virtio header, and room
/// for alignment.
const HEADROOM: usize = 128;
/// Length of `tpacket2_hdr`; the `sockaddr_ll` follows it.
const HEADER: usize = 32;
/// Maximum number of long frames in a batch; and the stride of frames in `long`, octets.
const LONG_BATCH: usize = 8;
const LONG_SLOT: usize = MAX_IP_PACKET as usize + 2 * HEADROOM;
/// Size of the socket's receive buffer for frames longer than a slot, octets: enough for some
/// hundred frames, because the kernel counts their buffers' allocated size.
const LONG_OCTETS: c_int = 32 << 20;
/// The highest frame rate, in frames/s: one frame per quarter of a microsecond.
const MAX_FRAME_RATE: u64 = 4_000_000;

impl FrameRing {
    /// `longest`: length of the longest frame that is not a GSO frame, octets.
    pub(super) fn new(
        socket: Socket,
        link: Option<Arc<WatchedLink>>,
        options: &Options,
        framing: &Framing,
        snaplen: u32,
        longest: u32,
        counters: Arc<PortCounters>,
    ) -> io::Result<Self> {
        // As in `Ring::new`: version and virtio header come before the ring.
        socket.set(
            libc::SOL_PACKET,
            libc::PACKET_VERSION,
            libc::tpacket_versions::TPACKET_V2 as c_int,
        )?;
        let gro = options.gro
            && framing.link_type == ETHERNET
            && socket.set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1).is_ok();
        let slot_octets = (longest as usize + HEADROOM).next_power_of_two().min(1 << 17);
        let block_octets = (options.block_octets as usize).max(slot_octets);
        let octets = block_octets * options.blocks as usize;
        let slots = octets / slot_octets;
        let request = libc::tpacket_req {
            tp_block_size: block_octets as u32,
            tp_block_nr: options.blocks,
            tp_frame_size: slot_octets as u32,
            tp_frame_nr: slots as u32,
        };
        // With this option the kernel puts a copy of a frame that does not fit a slot into the
        // socket's queue, if the queue has room.
        socket.set(libc::SOL_PACKET, libc::PACKET_COPY_THRESH, 1 as c_int)?;
        // SO_RCVBUF is clipped to net.core.rmem_max; SO_RCVBUFFORCE is not, but needs
        // CAP_NET_ADMIN.
        if socket.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, LONG_OCTETS).is_err() {
            socket.set(libc::SOL_SOCKET, libc::SO_RCVBUF, LONG_OCTETS)?;
        }
        socket.set(libc::SOL_PACKET, libc::PACKET_RX_RING, request).map_err(|error| {
            let size = octets >> 20;
            io::Error::new(
                error.kind(),
                format!("cannot make a receive ring of {size} MiB: {error}; try blocks=8"),
            )
        })?;
        Ok(Self {
            map: Map::new(&socket, octets)?,
            socket,
            counters,
            slots,
            slot_octets,
            next: 0,
            held: 0,
            watch: Watch::new(link, Duration::from_millis(20)),
            frames: Vec::with_capacity(BATCH),
            long: Vec::new(),
            clock: WallClock::new(),
            gro,
            view: View::new(options, framing, snaplen),
            counts: RingCounters::default(),
            incomplete: 0,
        })
    }

    fn status(&self, slot: usize) -> &AtomicU32 {
        let at = self.map.at(slot * self.slot_octets, 4).cast();
        // SAFETY: four aligned octets of the mapping, which both sides access as one word.
        unsafe { AtomicU32::from_ptr(at.as_ptr()) }
    }

    fn give_back(&mut self) {
        for i in 0..mem::take(&mut self.held) {
            let slot = (self.next + self.slots - 1 - i) % self.slots;
            self.status(slot).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        }
    }

    /// The entry of the frame in the next slot, if there is one.
    fn entry(&self) -> Option<Entry> {
        let status = self.status(self.next).load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        let at = self.map.at(self.next * self.slot_octets, HEADER);
        // SAFETY: the status says that the kernel is done with the slot; until it is returned, only
        // this queue refers to it.
        let header = unsafe { std::slice::from_raw_parts(at.as_ptr(), HEADER) };
        Some(Entry {
            status,
            len: u32_at(header, 8),
            wire_len: u32_at(header, 4),
            offset: u16_at(header, 12).into(),
            address: HEADER,
            time: (u32_at(header, 16), u32_at(header, 20)),
            tci: u16_at(header, 24),
            tpid: u16_at(header, 26),
        })
    }

    /// Reads the frame in the next slot from the socket's queue into part `nth` of `long`: the
    /// slot's first octets, then the frame.
    fn read_long(&mut self, entry: Entry, nth: usize) {
        const ADDRESS: usize = mem::size_of::<libc::sockaddr_ll>();
        // Offset of the frame: leaves room for the VLAN tag or the cooked header, and the virtio
        // header.
        const FRAME: usize = HEADROOM;
        self.long.resize(LONG_BATCH * LONG_SLOT, 0);
        let place = &mut self.long[nth * LONG_SLOT..][..LONG_SLOT];
        let from = self.map.at(self.next * self.slot_octets + entry.address, ADDRESS);
        // SAFETY: as in `entry`; the slot is this queue's.
        let address = unsafe { std::slice::from_raw_parts(from.as_ptr(), ADDRESS) };
        place[entry.address..][..ADDRESS].copy_from_slice(address);
        let virtio = if self.gro { VIRTIO_HEADER } else { 0 };
        match self.socket.recv_now(&mut place[FRAME - virtio..]) {
            Ok(octets) if octets > virtio => {
                let entry = Entry { len: (octets - virtio) as u32, offset: FRAME, ..entry };
                let frame = make_frame(place, 0, entry, &self.clock, self.gro, self.view);
                self.frames.push(RxFrame { offset: frame.offset + nth * LONG_SLOT, ..frame });
            }
            _ => self.incomplete += 1,
        }
    }
}

impl ReceiveRing for FrameRing {
    fn socket(&self) -> &Socket {
        &self.socket
    }
}

impl RxQueue for FrameRing {
    fn receive(&mut self) -> io::Result<RxBatch<'_>> {
        self.give_back();
        self.frames.clear();
        self.clock.check();
        let octets = self.slots * self.slot_octets;
        let mut long = 0;
        while self.frames.len() < BATCH
            && self.held + 1 < self.slots
            && let Some(entry) = self.entry()
        {
            let is_long = entry.status & libc::TP_STATUS_COPY != 0;
            // A batch has one base address, so it holds either frames of the ring or long ones.
            if !self.frames.is_empty() && is_long != (long > 0) || long == LONG_BATCH {
                break;
            }
            if is_long {
                self.read_long(entry, long);
                long += 1;
            } else if entry.len < entry.wire_len.min(self.view.snaplen) {
                self.incomplete += 1;
            } else {
                let start = self.next * self.slot_octets;
                let at = self.map.at(start, self.slot_octets);
                // SAFETY: as in `entry`; nothing else refers to the slot until it is returned.
                let slot = unsafe { std::slice::from_raw_parts_mut(at.as_ptr(), self.slot_octets) };
                let frame = make_frame(slot, 0, entry, &self.clock, self.gro, self.view);
                // The kernel may have written it on another CPU: prefetches transfer the cache
                // lines of a batch in parallel.
                sys::prefetch(slot, frame.offset, frame.len as usize);
                self.frames.push(RxFrame { offset: frame.offset + start, ..frame });
            }
            self.next = (self.next + 1) % self.slots;
            self.held += 1;
        }
        if self.frames.is_empty() {
            if self.held == 0 {
                let socket = &self.socket;
                self.watch.nothing_came(|| changed(socket))?;
            }
            return Ok(RxBatch::empty());
        }
        if long > 0 {
            return Ok(RxBatch { base: &self.long, frames: &self.frames });
        }
        let at = self.map.at(0, octets);
        // SAFETY: the slots of these frames stay as they are until returned, which takes `&mut
        // self`. The other slots, which the kernel writes to, are not read.
        let base = unsafe { std::slice::from_raw_parts(at.as_ptr(), octets) };
        Ok(RxBatch { base, frames: &self.frames })
    }

    fn drops(&mut self) -> Vec<(&'static str, u64)> {
        self.counts.read(&self.socket);
        vec![("ring_full", self.counts.drops + self.incomplete)]
    }

    fn received(&mut self) -> Option<u64> {
        self.counts.read(&self.socket);
        Some(self.counts.received)
    }

    fn stop(&mut self) -> io::Result<()> {
        self.counts.read(&self.socket);
        let before = self.counts.received;
        let Self { counters, counts, socket, .. } = self;
        counters.stop(
            || (0, 0),
            || {
                socket.attach_drop_all_filter()?;
                counts.read(socket);
                Ok(counts.received - before)
            },
        )
    }

    fn poll_on<'a>(&'a self, descriptors: &mut Vec<BorrowedFd<'a>>) -> bool {
        descriptors.push(self.socket.as_fd());
        true
    }

    fn rest(&self) -> Nanos {
        Nanos(self.slots as u64 * 1_000_000_000 / MAX_FRAME_RATE / 4)
    }
}
