//! Ports move batches of octets and know nothing else: [`TxQueue`] takes frames, [`RxQueue`] gives
//! them.
//!
//! Here are the trait and the ports that need no operating system: [`null`], [`loopback`] and
//! [`pcap`]. Frames never hold the FCS. Ports do not know what is in a frame, nor when it is due:
//! the engine hands them what is to leave now. Only a simulated [`device`] reads addresses.
#![forbid(unsafe_code)]

mod address;
mod clock;
pub mod conformance;
pub mod device;
pub mod elsewhere;
pub mod fault;
mod generate;
mod link;
pub mod loopback;
pub mod null;
pub mod output;
pub mod pcap;
mod slots;

use std::{
    io,
    net::IpAddr,
    ops::{Range, RangeInclusive},
    os::fd::BorrowedFd,
    sync::Arc,
};

pub use address::{Address, AddressError};
pub use clock::{CommonClock, FastClock, monotonic};
pub use generate::{Generation, Generator, Remote};
pub use link::{Link, LinkEvent, LinkState, MtuChange, OnLinkDown};
pub use slots::{Lent, Slots, stride};
pub use squall_units::{Cut, Offload, Segmentation, TxMeta};
use squall_units::{MacAddr, Nanos};

/// Frames in a batch at most: enough to hoist dispatch, few enough to stay in L1.
pub const BATCH: usize = 64;

/// The port at `address`; `None` if its kind is not one of this crate. Bad addresses are
/// [`io::ErrorKind::InvalidInput`].
pub fn open(address: &Address) -> io::Result<Option<Box<dyn Port>>> {
    match address.kind() {
        "null" => null::open(address).map(Some),
        elsewhere::KIND => elsewhere::open(address).map(Some),
        "loop" => loopback::open(address).map(Some),
        "pcap" => pcap::open(address).map(Some),
        _ => Ok(None),
    }
}

/// What a port is and can do: plain data.
#[derive(Clone, Debug)]
pub struct PortFacts {
    /// As in the address: `af_packet`.
    pub kind: &'static str,
    /// The whole address.
    pub address: String,
    /// Largest frame, octets without FCS.
    pub max_frame: u32,
    /// Link speed, if there is one. A veth has none that means anything.
    pub speed_bps: Option<u64>,
    pub mac: Option<MacAddr>,
    pub tx_queues: u32,
    pub rx_queues: u32,
    pub timestamps: Timestamps,
    /// The port has no time of its own: it may run on virtual time (files).
    pub virtual_time: bool,
    /// Frames in one hand-over to the kernel that still leave close together; the engine's batch
    /// limit.
    pub batch: usize,
    /// Who cuts frames that are to be cut ([`TxMeta::cut`]).
    pub segmentation: Segmentation,
    /// What received frames begin with, in the tcpdump.org list of link types.
    pub link_type: u16,
    /// So far ahead of their due instants frames may be sent: the port itself waits until each is
    /// due, and tells later what became of it ([`TxQueue::fates`]). Zero: frames leave when they
    /// are sent.
    pub ahead: Nanos,
}

/// LINKTYPE_ETHERNET.
pub const ETHERNET: u16 = 1;

impl PortFacts {
    /// Whether what leaves by queue i of the other end arrives in queue i, and nowhere else.
    pub fn pairs_queues(&self) -> bool {
        self.kind == "loop"
    }

    /// The longest frame that a slot can be asked for: GSO frames included, where the port cuts.
    pub fn max_slot(&self) -> u32 {
        match self.segmentation {
            Segmentation::Port(offload) => self.max_frame.max(offload.max_frame),
            Segmentation::Engine | Segmentation::Nowhere => self.max_frame,
        }
    }

    /// Whether transmit queue `queue` may be opened for frames of `max_frame` octets.
    pub fn check_tx(&self, queue: u32, max_frame: u32) -> io::Result<()> {
        let most = self.max_slot();
        if max_frame > most {
            return Err(self.refuse(format!(
                "frames of {max_frame} octets (without FCS) do not fit, expected at most {most}"
            )));
        }
        self.check_queue(queue, self.tx_queues, "transmit")
    }

    pub fn check_rx(&self, queue: u32) -> io::Result<()> {
        self.check_queue(queue, self.rx_queues, "receive")
    }

    pub fn already_open(&self, queue: u32) -> io::Error {
        self.refuse(format!("queue {queue} is already open"))
    }

    fn check_queue(&self, queue: u32, queues: u32, which: &str) -> io::Result<()> {
        if queue >= queues {
            return Err(
                self.refuse(format!("no {which} queue {queue}, expected a number below {queues}"))
            );
        }
        Ok(())
    }

    fn refuse(&self, problem: String) -> io::Error {
        AddressError { address: self.address.clone(), problem }.into()
    }
}

/// Where the receive instants come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timestamps {
    None,
    /// Read by the receiving process after the frame came.
    Process,
    /// Software stamp in the kernel's receive path.
    Kernel,
    /// By the NIC.
    Hardware,
    /// The sender's due instant (virtual time).
    Virtual,
}

impl Timestamps {
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Process => "process",
            Self::Kernel => "kernel",
            Self::Hardware => "hardware",
            Self::Virtual => "virtual",
        }
    }
}

/// A port as opened from an address. Queues are opened once each and move to their worker.
pub trait Port: Send {
    fn facts(&self) -> &PortFacts;
    /// `max_frame`: the largest frame that will be sent, octets without FCS; GSO frames included
    /// where the port cuts.
    fn open_tx(&mut self, queue: u32, max_frame: u32) -> io::Result<Box<dyn TxQueue>>;
    fn open_rx(&mut self, queue: u32) -> io::Result<Box<dyn RxQueue>>;
    /// Why the port receives nothing although it was asked to; `None` where it receives, or was
    /// asked not to.
    fn cannot_receive(&self) -> Option<&str> {
        None
    }
    /// What the user should know of how the port works, a line each: what was fallen back to and
    /// why. Asked for when it is open, and again at the end of a run.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
    /// Queues that are opened from now on give but the frames that `filter` takes, and as much of
    /// each as it says; false if that is left to the caller, who then gets all.
    ///
    /// # Errors
    /// The port filters and cannot do so by this filter.
    fn set_filter(&mut self, _filter: &Filter) -> io::Result<bool> {
        Ok(false)
    }

    /// Queues that are opened from now on are for `hosts` of our own: what is for these is given to
    /// them, also where the port leaves to the machine's stack what it takes for that one's.
    ///
    /// # Errors
    /// The port tells frames apart, and cannot do so for these.
    fn serve(&mut self, _hosts: &Hosts) -> io::Result<()> {
        Ok(())
    }

    /// Signatures of the run have this key; `None`: those of any run are looked for. For ports that
    /// leave frames without one to the machine's stack.
    fn expect_signatures(&mut self, _key: Option<u16>) {}

    /// Whether queues that are open are given what is for `hosts`, too.
    fn serves(&self, _hosts: &Hosts) -> bool {
        true
    }

    /// Whether frames are received whatever is in them. Else some are left to the machine's stack:
    /// of those to its own address all but frames with a signature, say.
    fn takes_all(&self) -> bool {
        true
    }

    /// Whether the port makes its frames itself: then it has a generator for each sending queue,
    /// and no [`TxQueue`].
    fn generates(&self) -> bool {
        false
    }

    /// Of a port that makes its frames itself. Opened once each.
    fn open_generator(
        &mut self,
        queue: u32,
        _generation: &Generation,
    ) -> io::Result<Box<dyn Generator>> {
        let text = format!("{}: queue {queue} does not make its own frames", self.facts().address);
        Err(io::Error::new(io::ErrorKind::Unsupported, text))
    }

    /// What may be done to write the files of queues that are opened from now on; nothing unless it
    /// is called.
    fn permit(&mut self, _permit: output::Permit) {}

    /// What the interface itself has counted, for the audit; `None` where there is no interface.
    fn interface_counters(&self) -> Option<InterfaceCounters> {
        None
    }

    /// The port's link, watched as long as a queue is open; `None` where there is none that can go
    /// down.
    fn link(&self) -> Option<Arc<Link>> {
        None
    }
}

/// Hosts that a user of the port plays itself: their addresses are no interface's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    /// Ranges, each of one family.
    pub addresses: Vec<RangeInclusive<IpAddr>>,
    /// Their packets are behind MPLS labels.
    pub labels: bool,
    /// The port is not theirs alone: what it would be given without them it is given as well.
    pub shared: bool,
    /// Receiving queue i is that of worker i, of so many: what belongs to its flows
    /// ([`squall_bpf::owner`]) is best given by it, and may come by another. 1: all is one worker's.
    pub workers: u32,
}

/// The interface's own counters (`/sys/class/net/*/statistics`), absolute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceCounters {
    pub tx_packets: u64,
    pub tx_octets: u64,
    pub tx_dropped: u64,
    pub tx_errors: u64,
    pub rx_packets: u64,
    pub rx_octets: u64,
    /// Arrived, and dropped by kernel or driver.
    pub rx_dropped: u64,
    pub rx_errors: u64,
    /// Not received by the device for want of room; some drivers count these among `rx_dropped` or
    /// `rx_errors`, too.
    pub rx_missed: u64,
    /// The device's queue overran; as for `rx_missed`.
    pub rx_fifo: u64,
}

/// One direction of one queue of a port.
pub trait TxQueue: Send {
    /// At most `want` (and [`BATCH`]) frames to fill; fewer or none when the queue is full. Frames
    /// lent earlier and not sent are forgotten.
    fn lend(&mut self, want: usize) -> TxBatch<'_>;

    /// Sends the next `n` of the lent frames, in order, and says how many the port has taken: for
    /// good, unless it takes frames ahead of their time ([`PortFacts::ahead`]). Fewer: the queue is
    /// full or the link is down ([`Port::link`]), call again for the rest. An error is that of the
    /// first frame not yet taken, which is dropped: the next call goes on behind it.
    fn send(&mut self, n: usize) -> Result<usize, SendError>;

    /// Frames that have left of the GSO frame that is to be sent next: the queue was full in its
    /// midst. Behind an error: of the one that was dropped, before the next call.
    fn partly(&self) -> u32 {
        0
    }

    /// Of a port that takes frames ahead of their time ([`PortFacts::ahead`]): what has become of
    /// those that [`TxQueue::send`] took, each told once, in order; some at a time, none when no
    /// more is known. Slots whose frames were not told are not lent again. Other ports have nothing
    /// to tell: what they take is gone for good.
    ///
    /// # Errors
    /// The port is of no further use: what was not told has not left.
    fn fates(&mut self) -> io::Result<&[Fate]> {
        Ok(&[])
    }

    /// Of such a port: takes back the frames that are not about to leave, the last that were taken,
    /// and says how many. They are not told; those before them are, some of them perhaps a little
    /// later.
    fn take_back(&mut self) -> usize {
        0
    }

    /// Waits until what was sent is out (completions, file buffers). Called once, at the end.
    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What has become of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It left, at this instant of the engine's clock (`CLOCK_MONOTONIC`).
    Left(Nanos),
    /// It did not. The text is the counter's reason.
    Lost(&'static str),
}

/// A frame that did not leave, or a port that is gone.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// This frame cannot be sent; the next may. The text is the counter's reason: `too_long`,
    /// `no_buffer`.
    #[error("frame not sent: {0}")]
    Frame(&'static str),
    /// The port is of no further use.
    #[error("port lost: {0}")]
    Port(#[from] io::Error),
}

/// Frames to be filled: equal slots in one stretch of memory.
pub struct TxBatch<'a> {
    /// `stride * meta.len()` octets. Slots keep their content from use to use: see
    /// [`TxMeta::owner`].
    pub base: &'a mut [u8],
    pub stride: usize,
    pub meta: &'a mut [TxMeta],
}

impl TxBatch<'_> {
    /// A batch of no frames.
    pub fn empty() -> Self {
        Self { base: &mut [], stride: 1, meta: &mut [] }
    }

    pub fn len(&self) -> usize {
        self.meta.len()
    }

    pub fn is_empty(&self) -> bool {
        self.meta.is_empty()
    }

    /// Sets frame `i` to `len` octets due at `due` and gives them.
    ///
    /// # Panics
    /// If `i` is not lent or `len` is more than the stride.
    pub fn frame(&mut self, i: usize, len: usize, due: Nanos) -> &mut [u8] {
        assert!(len <= self.stride, "frame longer than the slot that was asked for");
        self.meta[i].len = len as u32;
        self.meta[i].cut = Cut::WHOLE;
        self.meta[i].due = due;
        &mut self.base[i * self.stride..][..len]
    }
}

pub trait RxQueue: Send {
    /// What has come since the last call, perhaps nothing; never waits. The next call takes the
    /// frames back.
    fn receive(&mut self) -> io::Result<RxBatch<'_>>;

    /// Frames that came and were lost before [`RxQueue::receive`], so far, by reason.
    fn drops(&mut self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Frames that came as far as this queue, so far: behind the port's filter, and whether or not
    /// there was room. Those that [`RxQueue::receive`] has given, those that still wait there, and
    /// [`RxQueue::drops`] add up to it; a GSO frame is one. `None` where nobody counts them.
    fn received(&mut self) -> Option<u64> {
        None
    }

    /// Nothing new comes any more. What has come until now is still given by [`RxQueue::receive`],
    /// some of it perhaps a few milliseconds later.
    fn stop(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Adds the descriptors that poll(2) can wait on for frames; false where there are none, and
    /// [`RxQueue::receive`] is to be called now and then.
    fn poll_on<'a>(&'a self, _descriptors: &mut Vec<BorrowedFd<'a>>) -> bool {
        false
    }

    /// For so long nobody need look for frames however fast they come: they find room, and are
    /// stamped when they come and not when they are looked for. Zero: who receives must not rest.
    fn rest(&self) -> Nanos {
        REST
    }
}

/// What a queue of some hundred frames can bear.
const REST: Nanos = Nanos(200_000);

/// Which frames are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// In the language of tcpdump (pcap-filter(7)); empty for all frames.
    pub expression: String,
    /// Octets of a frame that are wanted at most.
    pub snaplen: u32,
    /// Compiled for frames of the port's link type, as `tags` says.
    pub program: squall_bpf::classic::Filter,
    pub tags: Tags,
}

/// What a filter makes of an Ethernet frame's outer VLAN tag (docs/adr/0020-filters.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tags {
    /// It is in its place: `udp` takes no tagged frame, `vlan` finds the tag in the octets. So
    /// tcpdump reads files.
    InPlace,
    /// It is not there: `udp` takes tagged frames, too. So Linux shows frames to packet sockets,
    /// and tcpdump filters on an interface.
    Aside,
}

impl Filter {
    /// All frames, `snaplen` octets of each.
    pub fn all(snaplen: u32) -> Self {
        let program = squall_bpf::classic::Filter::all(snaplen);
        Self { expression: String::new(), snaplen, program, tags: Tags::Aside }
    }

    /// How many of `octets` are wanted, tags counted; 0: the frame is not. `wire_len`: octets that
    /// it had on the wire.
    #[inline]
    pub fn keep(&self, octets: &[u8], wire_len: u32) -> u32 {
        let kept = match self.tags {
            Tags::InPlace => self.program.run(octets, wire_len),
            Tags::Aside => self.program.run_untagged(octets, wire_len),
        };
        if kept == 0 { 0 } else { self.snaplen.min(octets.len() as u32) }
    }
}

/// Received frames.
#[derive(Clone, Copy)]
pub struct RxBatch<'a> {
    pub base: &'a [u8],
    pub frames: &'a [RxFrame],
}

#[derive(Clone, Copy, Debug, Default)]
pub struct RxFrame {
    /// Of the first octet in [`RxBatch::base`].
    pub offset: usize,
    /// Octets present.
    pub len: u32,
    /// Octets the frame had on the wire, without FCS.
    pub wire_len: u32,
    /// Whole for a frame as it was on the wire. Else several that the kernel or the NIC has joined
    /// or not cut yet: one GSO frame of `wire_len` octets, to be cut so. Checksums in it may be
    /// missing.
    pub cut: Cut,
    /// Arrival on the engine's clock (`CLOCK_MONOTONIC`), by the port's [`Timestamps`].
    pub time: Nanos,
    /// This host sends it; only where a port was asked for such frames.
    pub outgoing: bool,
    /// Its TCP or UDP checksum may be partial: the sum of the pseudo-header alone, as the host that
    /// sent it left the rest to a NIC that it never met. Where a port cannot tell, it may be.
    pub partial: bool,
}

impl RxFrame {
    fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.len as usize
    }
}

impl<'a> RxBatch<'a> {
    pub fn empty() -> Self {
        Self { base: &[], frames: &[] }
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&'a [u8], &'a RxFrame)> + Clone + use<'a> {
        let base = self.base;
        self.frames.iter().map(move |f| (&base[f.range()], f))
    }
}
