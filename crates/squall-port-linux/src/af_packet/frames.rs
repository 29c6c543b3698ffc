//! A TPACKET_V2 receive ring: each frame is handed over when it has come.

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
    Counts, Look, MOST_OCTETS, Options, Receives, Said, Shape, VIRTIO_HEADER, WallClock, changed,
    half, make_frame, word,
};
use crate::{
    counted::Counted,
    link::Watched,
    sys::{self, Map, Socket},
    watch::Watch,
};

pub(super) struct FrameRing {
    map: Map,
    socket: Socket,
    counted: Arc<Counted>,
    slots: usize,
    slot_octets: usize,
    /// The slot that is ours next.
    next: usize,
    /// So many before it are given out, and to be given back.
    held: usize,
    watch: Watch,
    frames: Vec<RxFrame>,
    /// Frames that are longer than a slot, in one piece each.
    long: Vec<u8>,
    clock: WallClock,
    gro: bool,
    look: Look,
    counts: Counts,
    /// Frames of which the kernel had room for the beginning only.
    incomplete: u64,
}

/// What stands in front of a frame in its slot: `tpacket2_hdr` and `sockaddr_ll`, a virtio header,
/// room for alignment.
const BEFORE: usize = 128;
/// `tpacket2_hdr`, behind which the `sockaddr_ll` is.
const HEADER: usize = 32;
/// Long frames in a batch at most, and octets from one to the next.
const LONG: usize = 8;
const LONG_SLOT: usize = MOST_OCTETS as usize + 2 * BEFORE;
/// For frames that are longer than a slot, octets: some hundred, as the kernel counts them.
const LONG_OCTETS: c_int = 32 << 20;
/// A frame comes a quarter of a microsecond after the other at most.
const MOST_FRAMES: u64 = 4_000_000;

impl FrameRing {
    /// `longest`: of a frame that is none of several.
    pub(super) fn new(
        socket: Socket,
        link: Option<Arc<Watched>>,
        options: &Options,
        shape: &Shape,
        snaplen: u32,
        longest: u32,
        counted: Arc<Counted>,
    ) -> io::Result<Self> {
        socket.set(
            libc::SOL_PACKET,
            libc::PACKET_VERSION,
            libc::tpacket_versions::TPACKET_V2 as c_int,
        )?;
        let gro = options.gro
            && shape.link_type == ETHERNET
            && socket.set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1).is_ok();
        let slot_octets = (longest as usize + BEFORE).next_power_of_two().min(1 << 17);
        let block_octets = (options.block_octets as usize).max(slot_octets);
        let octets = block_octets * options.blocks as usize;
        let slots = octets / slot_octets;
        let request = libc::tpacket_req {
            tp_block_size: block_octets as u32,
            tp_block_nr: options.blocks,
            tp_frame_size: slot_octets as u32,
            tp_frame_nr: slots as u32,
        };
        // Of what does not fit a slot there is a copy in the socket's queue, if that has room.
        socket.set(libc::SOL_PACKET, libc::PACKET_COPY_THRESH, 1 as c_int)?;
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
            counted,
            slots,
            slot_octets,
            next: 0,
            held: 0,
            watch: Watch::new(link, Duration::from_millis(20)),
            frames: Vec::with_capacity(BATCH),
            long: Vec::new(),
            clock: WallClock::new(),
            gro,
            look: Look::new(options, shape, snaplen),
            counts: Counts::default(),
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

    /// What the kernel says of the frame in the next slot, if one is there.
    fn said(&self) -> Option<Said> {
        let status = self.status(self.next).load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        let at = self.map.at(self.next * self.slot_octets, HEADER);
        // SAFETY: the status says that the kernel is done with the slot; until we give it back it
        // is ours alone.
        let header = unsafe { std::slice::from_raw_parts(at.as_ptr(), HEADER) };
        Some(Said {
            status,
            len: word(header, 8),
            wire_len: word(header, 4),
            offset: half(header, 12).into(),
            address: HEADER,
            time: (word(header, 16), word(header, 20)),
            tci: half(header, 24),
            tpid: half(header, 26),
        })
    }

    /// Reads the frame in the next slot from the socket's queue to place `nth` of `long`: the
    /// slot's first octets, the frame.
    fn read_long(&mut self, said: Said, nth: usize) {
        const ADDRESS: usize = mem::size_of::<libc::sockaddr_ll>();
        // The VLAN tag or what a cooked frame has in front, and the virtio header.
        const FRAME: usize = BEFORE;
        self.long.resize(LONG * LONG_SLOT, 0);
        let place = &mut self.long[nth * LONG_SLOT..][..LONG_SLOT];
        let from = self.map.at(self.next * self.slot_octets + said.address, ADDRESS);
        // SAFETY: as in `said`; the slot is ours.
        let address = unsafe { std::slice::from_raw_parts(from.as_ptr(), ADDRESS) };
        place[said.address..][..ADDRESS].copy_from_slice(address);
        let virtio = if self.gro { VIRTIO_HEADER } else { 0 };
        match self.socket.recv_now(&mut place[FRAME - virtio..]) {
            Ok(octets) if octets > virtio => {
                let said = Said { len: (octets - virtio) as u32, offset: FRAME, ..said };
                let frame = make_frame(place, 0, said, &self.clock, self.gro, self.look);
                self.frames.push(RxFrame { offset: frame.offset + nth * LONG_SLOT, ..frame });
            }
            _ => self.incomplete += 1,
        }
    }
}

impl Receives for FrameRing {
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
            && let Some(said) = self.said()
        {
            let is_long = said.status & libc::TP_STATUS_COPY != 0;
            // A batch is of one kind.
            if !self.frames.is_empty() && is_long != (long > 0) || long == LONG {
                break;
            }
            if is_long {
                self.read_long(said, long);
                long += 1;
            } else if said.len < said.wire_len.min(self.look.snaplen) {
                self.incomplete += 1;
            } else {
                let start = self.next * self.slot_octets;
                let at = self.map.at(start, self.slot_octets);
                // SAFETY: as in `said`; nothing else refers to the slot, which is ours until we
                // give it back.
                let slot = unsafe { std::slice::from_raw_parts_mut(at.as_ptr(), self.slot_octets) };
                let frame = make_frame(slot, 0, said, &self.clock, self.gro, self.look);
                // The kernel wrote it on another CPU, perhaps: all frames of a batch are on their
                // way at once.
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
        // SAFETY: the slots of these frames stay as they are until given back, which takes
        // `&mut self`. The rest, which the kernel writes to, is not read.
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
        self.counted.stop(|| (0, 0));
        self.socket.attach_deaf_filter()
    }

    fn poll_on<'a>(&'a self, descriptors: &mut Vec<BorrowedFd<'a>>) -> bool {
        descriptors.push(self.socket.as_fd());
        true
    }

    fn rest(&self) -> Nanos {
        Nanos(self.slots as u64 * 1_000_000_000 / MOST_FRAMES / 4)
    }
}
