//! The port of a device, and its queues.

use std::{
    io,
    mem::{self, offset_of},
    sync::Arc,
    time::{Duration, Instant},
};

use squall_port::{
    Address, BATCH, Cut, ETHERNET, Hosts, InterfaceCounters, Lent, Link, LinkState, Port,
    PortFacts, RxBatch, RxFrame, RxQueue, Segmentation, SendError, SteerRules, Timestamps, TxBatch,
    TxMeta, TxQueue,
};
use squall_units::Nanos;

use crate::{
    Options,
    clock::pair,
    cut::{self, device_cut},
    device::{Bus, Device, DeviceName},
    eal::Eal,
    link::LinkWatch,
    shim::{self, Api, ClockPair, DeviceCut, Frame, Region, Rx, SlotPlace, Tx},
    steer,
};

/// Octets added to an MTU for sending: Ethernet header and one VLAN tag, as for every port.
const TX_HEADERS: u32 = 18;
/// Octets added to an MTU for receiving: as above, with room for a second tag.
const RX_HEADERS: u32 = 22;
const CACHE_LINE: u32 = 64;

// The shim reads due times as 64-bit numbers.
const _: () = assert!(size_of::<Nanos>() == size_of::<u64>());

pub fn open(
    address: &Address,
    eal: Eal,
    name: &DeviceName,
    options: &Options,
) -> io::Result<Box<dyn Port>> {
    let about = eal.about.clone();
    let device = Device::open(address, eal, name, options)?;
    let uses = |bit| device.config.using & bit != 0;
    let facts = PortFacts {
        kind: "dpdk",
        address: address.to_string(),
        max_frame: device.config.mtu + TX_HEADERS,
        speed_bps: device.speed_bps().filter(|_| name.bus == Bus::Pci),
        mac: device.mac(),
        tx_queues: device.config.tx_queues,
        rx_queues: device.config.rx_queues,
        timestamps: if uses(shim::RX_TIMESTAMP) {
            Timestamps::Hardware
        } else {
            Timestamps::Process
        },
        virtual_time: false,
        batch: BATCH,
        segmentation: match uses(shim::TX_TCP_CUT) {
            true => Segmentation::Port(cut::OFFLOAD),
            false => Segmentation::Engine,
        },
        link_type: ETHERNET,
        ahead: Nanos::ZERO,
    };
    let mut note = format!("{address}: driver {}, {about}", device.driver());
    if device.facts.offers & shim::RX_TIMESTAMP != 0
        && device.facts.offers & shim::CLOCK != 0
        && !uses(shim::RX_TIMESTAMP)
    {
        note += "; it supports hardware timestamps (timestamps=hardware)";
    }
    if uses(shim::RSS) && device.facts.rss_entries > 0 {
        let both = if uses(shim::SYMMETRIC) { ", both directions of one to one queue" } else { "" };
        let (entries, queues) = (device.facts.rss_entries, device.config.rx_queues);
        note += &format!("; RSS ({entries} entries) spreads flows over {queues} queues{both}");
    }
    let queues = |n: u32| vec![false; n as usize];
    let (tx_open, rx_open) = (queues(facts.tx_queues), queues(facts.rx_queues));
    let (device, launch_ns) = (Arc::new(device), options.launch_ns);
    let rules =
        options.steer.clone().map(|steer| SteerRules::new(steer, 0..device.config.rx_queues));
    Ok(Box::new(DpdkPort {
        facts,
        watch: None,
        device,
        launch_ns,
        rules,
        steered: false,
        tx_open,
        rx_open,
        notes: vec![note],
    }))
}

struct DpdkPort {
    facts: PortFacts,
    watch: Option<LinkWatch>,
    device: Arc<Device>,
    launch_ns: Option<u32>,
    /// Rules for the frames to receive, if not all are received.
    rules: Option<SteerRules>,
    /// Whether the rules are set.
    steered: bool,
    tx_open: Vec<bool>,
    rx_open: Vec<bool>,
    notes: Vec<String>,
}

impl Port for DpdkPort {
    fn facts(&self) -> &PortFacts {
        &self.facts
    }

    fn open_tx(&mut self, queue: u32, max_frame: u32) -> io::Result<Box<dyn TxQueue>> {
        self.facts.check_tx(queue, max_frame)?;
        if mem::replace(&mut self.tx_open[queue as usize], true) {
            return Err(self.facts.already_open(queue));
        }
        self.device.wait_for_link();
        self.watch()?;
        DpdkTx::open(self.device.clone(), queue, max_frame, self.launch_ns)
            .map(|tx| Box::new(tx) as _)
    }

    fn open_rx(&mut self, queue: u32) -> io::Result<Box<dyn RxQueue>> {
        self.facts.check_rx(queue)?;
        if mem::replace(&mut self.rx_open[queue as usize], true) {
            return Err(self.facts.already_open(queue));
        }
        self.steer()?;
        self.watch()?;
        DpdkRx::open(self.device.clone(), queue).map(|rx| Box::new(rx) as _)
    }

    fn interface_counters(&self) -> Option<InterfaceCounters> {
        self.device.interface_counters()
    }

    fn link(&self) -> Option<Arc<Link>> {
        Some(self.device.link.clone())
    }

    fn serve(&mut self, hosts: &Hosts) -> io::Result<()> {
        match &mut self.rules {
            Some(rules) => {
                rules.serve(hosts).map_err(|problem| self.device.address.error(problem).into())
            }
            None => Ok(()),
        }
    }

    fn serves(&self, hosts: &Hosts) -> bool {
        self.rules.as_ref().is_none_or(|rules| rules.serves(hosts))
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }
}

impl DpdkPort {
    /// Sets the rules for received frames, before the first receive queue opens.
    fn steer(&mut self) -> io::Result<()> {
        if let Some(rules) = self.rules.as_ref().filter(|_| !self.steered) {
            let rules = rules.get().map_err(|problem| self.device.address.error(problem))?;
            self.notes.extend(steer::set(&self.device, &rules)?);
            self.steered = true;
        }
        Ok(())
    }

    /// Starts the link's watch with the first queue.
    fn watch(&mut self) -> io::Result<()> {
        if self.watch.is_none() {
            self.watch = Some(LinkWatch::start(&self.device)?);
        }
        Ok(())
    }
}

struct DpdkTx {
    api: &'static Api,
    tx: *mut Tx,
    slots: SlotPlace,
    meta: Box<[TxMeta]>,
    lent: Lent,
    queue: u32,
    launch_ns: Option<u32>,
    /// How the device cuts the frames of a batch, if it does.
    cuts: Option<Box<[DeviceCut; BATCH]>>,
    /// Number of consecutive calls in which the device took no frame.
    blocked: u32,
    /// The last field, so that it is dropped last: the device must outlive its queues.
    device: Arc<Device>,
}

// SAFETY: the queue and its slots belong to this value, and DPDK allows any thread to use a queue,
// one at a time.
unsafe impl Send for DpdkTx {}

impl DpdkTx {
    fn open(
        device: Arc<Device>,
        queue: u32,
        max_frame: u32,
        launch_ns: Option<u32>,
    ) -> io::Result<Self> {
        let api = device.eal.api;
        let mut tx = std::ptr::null_mut();
        let mut slots = SlotPlace { base: std::ptr::null_mut(), stride: 0, count: 0 };
        let launch = if launch_ns.is_some() { shim::TX_LAUNCH } else { 0 };
        let cuts = device.config.using & shim::TX_TCP_CUT;
        // The shim counts down only for net_null, because that driver only frees frames, one by
        // one.
        let using =
            launch | cuts | if device.driver() == "net_null" { shim::COUNT_DOWN } else { 0 };
        // SAFETY: a queue of a started port, not opened before; room for the results.
        let code = unsafe {
            (api.tx_open)(device.port, queue as u16, max_frame, using, &mut tx, &mut slots)
        };
        if code != 0 {
            let doing = format!(
                "get memory for transmit queue {queue} (memory=MB gives more; without an IOMMU, \
                 1 GB hugepages or fewer descriptors)"
            );
            return Err(api.error(&device.address, &doing, code));
        }
        let meta = vec![TxMeta::default(); slots.count as usize].into_boxed_slice();
        Ok(Self {
            api,
            tx,
            slots,
            meta,
            lent: Lent::default(),
            queue,
            launch_ns,
            cuts: (cuts != 0).then(|| Box::new([DeviceCut::default(); BATCH])),
            blocked: 0,
            device,
        })
    }

    /// Prepares the lent slots of a batch for a device that cuts frames. Returns what the shim gets.
    fn prepare(&mut self, slots: std::ops::Range<usize>) -> *const DeviceCut {
        let Some(cuts) = &mut self.cuts else { return std::ptr::null() };
        let stride = self.slots.stride as usize;
        for (slot, cut) in slots.zip(cuts.iter_mut()) {
            let meta = self.meta[slot];
            let len = (meta.len as usize).min(stride);
            // SAFETY: the slot is lent, so that only this queue accesses its `stride` octets.
            let octets =
                unsafe { std::slice::from_raw_parts_mut(self.slots.base.add(slot * stride), len) };
            *cut = device_cut(octets, meta.cut);
        }
        cuts.as_ptr()
    }

    /// Handles a call in which the device took no frame: the queue is full, or there is no link.
    #[cold]
    fn full(&mut self) -> Result<usize, SendError> {
        self.blocked += 1;
        // Checked only every 1024 calls, because the driver reads device registers for the link's
        // state.
        if self.blocked.is_multiple_of(1024) && self.device.refresh_link() == LinkState::Lost {
            return Err(SendError::Port(self.device.link.error()));
        }
        Ok(0)
    }
}

impl TxQueue for DpdkTx {
    #[inline]
    fn lend(&mut self, want: usize) -> TxBatch<'_> {
        let mut first = 0;
        // SAFETY: an open queue, used by this thread only; room for the result.
        let n = unsafe { (self.api.tx_lend)(self.tx, want.min(BATCH) as u32, &mut first) } as usize;
        let first = first as usize;
        self.lent.lend(first, n);
        let stride = self.slots.stride as usize;
        let at = self.slots.base.wrapping_add(first * stride);
        // SAFETY: the shim lends these slots, which neither it nor the device accesses until they
        // are sent; they are adjacent, and `&mut self` stays borrowed as long as they are.
        let base = unsafe { std::slice::from_raw_parts_mut(at, n * stride) };
        TxBatch { base, stride, meta: &mut self.meta[first..first + n] }
    }

    #[inline]
    fn send(&mut self, n: usize) -> Result<usize, SendError> {
        let slots = self.lent.range(n);
        if n == 0 {
            return Ok(0);
        }
        let cuts = self.prepare(slots.clone());
        let clock = self.launch_ns.and_then(|later| Some(pair(&self.device.clock()?, later)));
        let clock = clock.as_ref().map_or(std::ptr::null(), |clock: &ClockPair| clock);
        // The shim gets the size of a `TxMeta` as its step between frames, so lengths and due times
        // need not be copied to separate arrays.
        let first = self.meta[slots].as_ptr().cast::<u8>();
        let lengths = first.wrapping_add(offset_of!(TxMeta, len)).cast();
        let dues = first.wrapping_add(offset_of!(TxMeta, due)).cast();
        // SAFETY: `n` slots are lent, and there is a `TxMeta` for each from `first` on; `clock` is
        // set if launch times are used, and `cuts` has one for each slot if the device cuts.
        let taken = unsafe {
            (self.api.tx_send)(self.tx, n as u32, lengths, dues, size_of::<TxMeta>(), clock, cuts)
        };
        match taken {
            0 => self.full(),
            1.. => {
                self.blocked = 0;
                self.lent.pass(taken as usize);
                self.device.taken(self.queue).add(taken as u64);
                Ok(taken as usize)
            }
            refused => {
                self.lent.pass(1);
                Err(SendError::Frame(match refused {
                    shim::TOO_SHORT => "too_short",
                    shim::REFUSED => "dropped_by_driver",
                    _ => "too_long",
                }))
            }
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + Duration::from_secs(2);
        loop {
            // SAFETY: an open queue, used by this thread only.
            let held = unsafe { (self.api.tx_held)(self.tx) };
            // Drivers keep frames that have left until they need the slots, and another port of
            // this process keeps frames that it has not read.
            if held == 0 || self.device.all_sent() {
                return Ok(());
            }
            if Instant::now() > deadline {
                let text = format!(
                    "{}: {held} frames still wait in the device after 2 s",
                    self.device.address
                );
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for DpdkTx {
    fn drop(&mut self) {
        // SAFETY: an open queue, not used again. Frames that the device still has keep their
        // memory.
        unsafe { (self.api.tx_close)(self.tx) };
    }
}

struct DpdkRx {
    api: &'static Api,
    rx: *mut Rx,
    /// Memory of the queue's mbufs, in which the shim lends frames.
    region: Region,
    /// The frames of the last batch if they were copied, each aligned to a cache line.
    octets: Vec<u8>,
    /// Octets reserved for each frame.
    room: u32,
    raw: Box<[Frame; BATCH]>,
    frames: Vec<RxFrame>,
    queue: u32,
    hardware: bool,
    device: Arc<Device>,
}

// SAFETY: as for `DpdkTx`.
unsafe impl Send for DpdkRx {}

impl DpdkRx {
    fn open(device: Arc<Device>, queue: u32) -> io::Result<Self> {
        let api = device.eal.api;
        let mut rx = std::ptr::null_mut();
        let mut region = Region { base: std::ptr::null(), octets: 0 };
        // SAFETY: a queue of a started port, not opened before; room for the results.
        let code = unsafe { (api.rx_open)(device.port, queue as u16, &mut rx, &mut region) };
        if code != 0 {
            return Err(api.error(&device.address, &format!("open receive queue {queue}"), code));
        }
        let room = (device.config.mtu + RX_HEADERS).next_multiple_of(CACHE_LINE);
        Ok(Self {
            api,
            rx,
            region,
            // Allocates in advance, because a batch must not allocate.
            octets: vec![0; room as usize * BATCH],
            room,
            raw: Box::new([Frame::default(); BATCH]),
            frames: Vec::with_capacity(BATCH),
            queue,
            hardware: device.config.using & shim::RX_TIMESTAMP != 0,
            device,
        })
    }
}

impl RxQueue for DpdkRx {
    fn receive(&mut self) -> io::Result<RxBatch<'_>> {
        let (mut now, mut lent) = (0, 0);
        // SAFETY: an open queue, used by this thread only; `octets` has `room`, a multiple of 64,
        // for each of 64 frames, and `raw` an element for each. No frame that was lent before is
        // borrowed any more.
        let n = unsafe {
            (self.api.rx_receive)(
                self.rx,
                self.octets.as_mut_ptr(),
                self.room,
                self.raw.as_mut_ptr(),
                &mut now,
                &mut lent,
            )
        };
        self.frames.clear();
        if n == 0 {
            return Ok(RxBatch::empty());
        }
        let frame = |raw: &Frame, time| RxFrame {
            offset: raw.offset as usize,
            len: raw.len,
            wire_len: raw.wire_len,
            outgoing: false,
            partial: false,
            cut: Cut::WHOLE,
            time,
        };
        let raw = &self.raw[..n as usize];
        match if self.hardware { self.device.clock() } else { None } {
            None => self.frames.extend(raw.iter().map(|raw| frame(raw, Nanos(now)))),
            Some(clock) => self.frames.extend(raw.iter().map(|raw| {
                // A frame may have no timestamp: some NICs stamp PTP only.
                frame(raw, if raw.ticks == 0 { Nanos(now) } else { clock.instant(raw.ticks) })
            })),
        }
        let base = match lent {
            0 => &self.octets[..],
            // SAFETY: the shim checked that the frames are in this memory, which exists as long as
            // the queue. They do not change until the next call, which takes `&mut self`; other
            // mbufs, which the device writes to, are not read.
            _ => unsafe {
                std::slice::from_raw_parts(self.region.base, self.region.octets as usize)
            },
        };
        Ok(RxBatch { base, frames: &self.frames })
    }

    fn drops(&mut self) -> Vec<(&'static str, u64)> {
        // The device counts for all queues together, so only queue 0 reports.
        if self.queue == 0 { self.device.drops() } else { Vec::new() }
    }

    /// The reader must not sleep: 1,000 descriptors fill in 10 us at 100 Gb/s, and most devices'
    /// frames are stamped only when they are read.
    fn rest(&self) -> Nanos {
        Nanos::ZERO
    }
}

impl Drop for DpdkRx {
    fn drop(&mut self) {
        // SAFETY: an open queue, not used again.
        unsafe { (self.api.rx_close)(self.rx) };
    }
}
