//! Ports move batches of octets, whatever they contain: [`TxQueue`] sends frames, [`RxQueue`]
//! receives them.
//!
//! This crate has the traits and the ports that need no operating system: [`null`], [`loopback`]
//! and [`pcap`]. Frames never hold the FCS. Ports know neither the contents of a frame nor its due
//! time: the engine passes only frames that must leave now. Only a simulated [`device`] reads
//! addresses.
#![forbid(unsafe_code)]

mod address;
mod clock;
pub mod conformance;
pub mod device;
mod device_clock;
pub mod elsewhere;
pub mod fault;
mod frame_link;
mod generate;
mod link;
pub mod loopback;
pub mod null;
pub mod output;
pub mod pcap;
mod slots;
mod steer;

use std::{
    io,
    net::IpAddr,
    ops::{Range, RangeInclusive},
    os::fd::BorrowedFd,
    sync::Arc,
};

pub use address::{Address, AddressError};
pub use clock::{CommonClock, FastClock, monotonic};
pub use device_clock::{DeviceClock, Reading};
pub use frame_link::FrameLink;
pub use generate::{Generation, Generator, Remote};
pub use link::{Link, LinkEvent, LinkState, MtuChange, OnLinkDown};
pub use slots::{Lent, Slots, stride};
pub use squall_units::{Cut, Offload, Segmentation, TxMeta};
use squall_units::{MacAddr, Nanos};
pub use steer::{Prefix, Steer, SteerRule, SteerRules, Steered, Transport, address_ranges};

/// Maximum number of frames in a batch: enough to amortize a dynamic call, few enough to stay in
/// the L1 cache.
pub const BATCH: usize = 64;

/// Opens the port at `address`; `None` if its kind belongs to another crate. A bad address is an
/// [`io::ErrorKind::InvalidInput`] error.
pub fn open(address: &Address) -> io::Result<Option<Box<dyn Port>>> {
    match address.kind() {
        "null" => null::open(address).map(Some),
        elsewhere::KIND => elsewhere::open(address).map(Some),
        "loop" => loopback::open(address).map(Some),
        "pcap" => pcap::open(address).map(Some),
        _ => Ok(None),
    }
}

/// Properties and capabilities of a port, as plain data.
#[derive(Clone, Debug)]
pub struct PortFacts {
    /// The kind in the address, such as `af_packet`.
    pub kind: &'static str,
    /// The whole address.
    pub address: String,
    /// Length of the largest frame, octets without FCS.
    pub max_frame: u32,
    /// Link speed; `None` if the port has no real one (a veth's is fictitious).
    pub speed_bps: Option<u64>,
    pub mac: Option<MacAddr>,
    pub tx_queues: u32,
    pub rx_queues: u32,
    pub timestamps: Timestamps,
    /// Whether the port has no clock, as a file, and can therefore run in virtual time.
    pub virtual_time: bool,
    /// Maximum number of frames to pass to the kernel at once if they must leave close together;
    /// limits the engine's batches.
    pub batch: usize,
    /// Where GSO frames are segmented ([`TxMeta::cut`]).
    pub segmentation: Segmentation,
    /// Link type of received frames, in the tcpdump.org list.
    pub link_type: u16,
    /// How far ahead of their due times frames may be sent: the port itself waits until each is
    /// due, and reports later whether it left ([`TxQueue::outcomes`]). Zero: frames leave when they
    /// are sent.
    pub ahead: Nanos,
}

/// LINKTYPE_ETHERNET.
pub const ETHERNET: u16 = 1;

impl PortFacts {
    /// Whether frames sent on queue i of the other end arrive only in queue i.
    pub fn pairs_queues(&self) -> bool {
        self.kind == "loop"
    }

    /// The longest frame that a slot can hold; GSO frames are included if the port segments them.
    pub fn max_slot(&self) -> u32 {
        match self.segmentation {
            Segmentation::Port(offload) => self.max_frame.max(offload.max_frame),
            Segmentation::Engine | Segmentation::Nowhere => self.max_frame,
        }
    }

    /// Checks that transmit queue `queue` can be opened for frames of `max_frame` octets.
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

/// Source of receive timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timestamps {
    None,
    /// Read by the receiving process after the frame arrived.
    Process,
    /// Software timestamp in the kernel's receive path.
    Kernel,
    /// Hardware timestamp of the NIC.
    Hardware,
    /// The sender's due time (virtual time).
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

/// A port, opened from an address. Each queue can be opened once and moves to its worker.
pub trait Port: Send {
    fn facts(&self) -> &PortFacts;
    /// `max_frame`: length of the largest frame that will be sent, octets without FCS; GSO frames
    /// are included if the port segments them.
    fn open_tx(&mut self, queue: u32, max_frame: u32) -> io::Result<Box<dyn TxQueue>>;
    fn open_rx(&mut self, queue: u32) -> io::Result<Box<dyn RxQueue>>;
    /// Why the port cannot receive although that was requested; `None` if it can, or if it was not
    /// requested.
    fn cannot_receive(&self) -> Option<&str> {
        None
    }
    /// Notes for the user, one line each: which fallbacks the port uses, and why. Read after
    /// opening, and again at the end of a run.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
    /// Restricts queues opened from now on to frames that match `filter`, truncated to its snaplen.
    /// Returns false if the port delivers all frames, so that the caller must filter.
    ///
    /// # Errors
    ///
    /// The port filters itself and cannot run this filter.
    fn set_filter(&mut self, _filter: &Filter) -> io::Result<bool> {
        Ok(false)
    }

    /// Lets queues opened from now on also receive frames for `hosts`, which the port would
    /// otherwise leave to the machine's stack.
    ///
    /// # Errors
    /// The port selects frames by address, and cannot select the frames for these hosts.
    fn serve(&mut self, _hosts: &Hosts) -> io::Result<()> {
        Ok(())
    }

    /// Sets the key of the run's signatures; `None` accepts signatures of any run. Applies to ports
    /// that leave unsigned frames to the machine's stack.
    fn expect_signatures(&mut self, _key: Option<u16>) {}

    /// Whether open queues also receive frames for `hosts`.
    fn serves(&self, _hosts: &Hosts) -> bool {
        true
    }

    /// Whether all frames are received, whatever they contain. If not, some are left to the
    /// machine's stack: for example unsigned frames to its own address.
    fn receives_all(&self) -> bool {
        true
    }

    /// Whether the port makes its frames itself: it then has a generator per transmit queue, and no
    /// [`TxQueue`].
    fn generates(&self) -> bool {
        false
    }

    /// Opens a queue's generator, once per queue; only for ports that make their frames themselves.
    fn open_generator(
        &mut self,
        queue: u32,
        _generation: &Generation,
    ) -> io::Result<Box<dyn Generator>> {
        let text = format!("{}: queue {queue} does not make its own frames", self.facts().address);
        Err(io::Error::new(io::ErrorKind::Unsupported, text))
    }

    /// Sets the permission to write files, for queues opened from now on; without a call, nothing
    /// is permitted.
    fn permit(&mut self, _permit: output::Permit) {}

    /// The interface's own counters, for the audit; `None` if there is no interface.
    fn interface_counters(&self) -> Option<InterfaceCounters> {
        None
    }

    /// The port's link, watched while a queue is open; `None` if it has no link that can go down.
    fn link(&self) -> Option<Arc<Link>> {
        None
    }
}

/// Hosts that Squall emulates on a port: their addresses belong to no interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    /// Ranges, each within one address family.
    pub addresses: Vec<RangeInclusive<IpAddr>>,
    /// Whether their packets carry MPLS labels.
    pub labels: bool,
    /// Whether the port has other uses: then it still receives the frames that it would receive
    /// without these hosts.
    pub shared: bool,
    /// Whether they exchange UDP datagrams, which GSO and GRO join: their ends must not be lost.
    pub datagrams: bool,
    /// Number of workers. Receive queue i belongs to worker i and should get the frames of its
    /// flows ([`squall_bpf::owner`]); others may get them, too. 1: one worker has all flows.
    pub workers: u32,
}

/// The interface's own counters (`/sys/class/net/*/statistics`): totals, not differences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceCounters {
    pub tx_packets: u64,
    pub tx_octets: u64,
    pub tx_dropped: u64,
    pub tx_errors: u64,
    pub rx_packets: u64,
    pub rx_octets: u64,
    /// Frames that arrived and were dropped by kernel or driver.
    pub rx_dropped: u64,
    pub rx_errors: u64,
    /// Frames that the device missed because it had no buffers; some drivers also count them in
    /// `rx_dropped` or `rx_errors`.
    pub rx_missed: u64,
    /// Overruns of the device's queue; drivers overlap as for `rx_missed`.
    pub rx_fifo: u64,
}

/// A transmit queue of a port.
pub trait TxQueue: Send {
    /// Lends at most `want` (and [`BATCH`]) frames to fill; fewer or none if the queue is full.
    /// Frames that were lent earlier and not sent are discarded.
    fn lend(&mut self, want: usize) -> TxBatch<'_>;

    /// Sends the next `n` of the lent frames, in order. Returns the number of frames that the port
    /// took. They cannot be taken back, except from a port that takes frames ahead of their time
    /// ([`PortFacts::ahead`]). If it took fewer than `n`, the queue is full or the link is down
    /// ([`Port::link`]): call again for the rest. An error concerns the first frame that was not
    /// taken, which is dropped: the next call continues after it.
    fn send(&mut self, n: usize) -> Result<usize, SendError>;

    /// Whether the port reads [`TxMeta::due`] in real time. If not, senders leave it unchanged,
    /// because the conversion to nanoseconds costs 5 of 45 instructions per frame. In virtual time
    /// it is always set.
    fn reads_due(&self) -> bool {
        true
    }

    /// By how much a hand-over may be late so that its frames still leave at their launch times,
    /// until which the kernel or the NIC holds them. Zero: frames leave when they are sent.
    fn launches_after(&self) -> Nanos {
        Nanos::ZERO
    }

    /// How many segments of the next GSO frame to send have already left; above 0 only if the queue
    /// became full in the middle of that frame. After an error, the count for the dropped frame,
    /// until the next call.
    fn partly(&self) -> u32 {
        0
    }

    /// Outcomes of the frames that [`TxQueue::send`] took, for a port that takes them ahead of
    /// their time ([`PortFacts::ahead`]): each is reported once, in order; a call may return only
    /// some of them, or none if no more are known. Slots are not lent again before their frames are
    /// reported. Other ports report nothing: the frames that they took have left.
    ///
    /// # Errors
    /// The port cannot be used any more: frames that were not reported have not left.
    fn outcomes(&mut self) -> io::Result<&[TxOutcome]> {
        Ok(&[])
    }

    /// Takes back frames that are not about to leave, which are the last ones taken. Returns their
    /// number. They are not reported; the frames before them are, some perhaps a little later. For
    /// ports as in [`TxQueue::outcomes`].
    fn take_back(&mut self) -> usize {
        0
    }

    /// Waits until all sent frames are out (completions, file buffers). Called once, at the end.
    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The outcome of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxOutcome {
    /// It left at this time on the engine's clock (`CLOCK_MONOTONIC`).
    Left(Nanos),
    /// It did not leave. The text is the reason, as in counters.
    Lost(&'static str),
}

/// The error of a single frame, or of the whole port.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// This frame cannot be sent; the next one may. The text is the reason, as in counters:
    /// `too_long`, `no_buffer`.
    #[error("frame not sent: {0}")]
    Frame(&'static str),
    /// The port cannot be used any more.
    #[error("port lost: {0}")]
    Port(#[from] io::Error),
}

/// Frames to fill: equal slots in one region of memory.
pub struct TxBatch<'a> {
    /// `stride * meta.len()` octets. Slots keep their content between uses: see [`TxMeta::owner`].
    pub base: &'a mut [u8],
    pub stride: usize,
    pub meta: &'a mut [TxMeta],
}

impl TxBatch<'_> {
    /// A batch without frames.
    pub fn empty() -> Self {
        Self { base: &mut [], stride: 1, meta: &mut [] }
    }

    pub fn len(&self) -> usize {
        self.meta.len()
    }

    pub fn is_empty(&self) -> bool {
        self.meta.is_empty()
    }

    /// Sets frame `i` to `len` octets due at `due`, and returns it.
    ///
    /// # Panics
    /// If `i` is not lent or `len` is more than the stride.
    pub fn frame(&mut self, i: usize, len: usize, due: Nanos) -> &mut [u8] {
        assert!(len <= self.stride, "frame longer than the slot that was asked for");
        self.meta[i].len = len as u32;
        // Resets the cut, because slots keep their content between uses.
        self.meta[i].cut = Cut::WHOLE;
        self.meta[i].due = due;
        &mut self.base[i * self.stride..][..len]
    }
}

pub trait RxQueue: Send {
    /// Returns frames that arrived after the last call, perhaps none; never waits. They are valid
    /// until the next call.
    fn receive(&mut self) -> io::Result<RxBatch<'_>>;

    /// Totals of frames that arrived but were lost before [`RxQueue::receive`], by reason.
    fn drops(&mut self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Total of frames that reached this queue after the port's filter, including frames for which
    /// there was no room. Equals the sum of the frames that [`RxQueue::receive`] returned, those
    /// that still wait, and [`RxQueue::drops`]; a GSO frame counts as one. `None` if they are not
    /// counted.
    fn received(&mut self) -> Option<u64> {
        None
    }

    /// Stops the arrival of new frames. Earlier frames are still returned by [`RxQueue::receive`],
    /// some perhaps a few milliseconds later.
    fn stop(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Adds the descriptors on which poll(2) can wait for frames. Returns false if there are none,
    /// so that [`RxQueue::receive`] must be called regularly.
    fn poll_on<'a>(&'a self, _descriptors: &mut Vec<BorrowedFd<'a>>) -> bool {
        false
    }

    /// Longest time between calls of [`RxQueue::receive`] such that no frame is lost at the highest
    /// rate, and frames have the timestamp of their arrival, not of the call. Zero: the reader must
    /// not pause.
    fn rest(&self) -> Nanos {
        REST
    }
}

/// A queue of a few hundred frames has room for the frames that arrive in this time.
const REST: Nanos = Nanos(200_000);

/// Which frames to receive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Expression in the language of tcpdump (pcap-filter(7)); empty for all frames.
    pub expression: String,
    /// Maximum number of octets of a frame to keep.
    pub snaplen: u32,
    /// Program for frames of the port's link type; `tags` describes how they treat VLAN tags.
    pub program: squall_bpf::classic::Filter,
    pub tags: Tags,
}

/// How a filter treats an Ethernet frame's outer VLAN tag (docs/adr/0020-filters.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tags {
    /// Left in its position: `udp` matches no tagged frame, and `vlan` finds the tag in the octets.
    /// tcpdump reads files this way.
    InPlace,
    /// Removed: `udp` also matches tagged frames. Linux shows frames to packet sockets this way,
    /// and tcpdump filters this way on an interface.
    Aside,
}

impl Filter {
    /// Matches all frames and keeps `snaplen` octets of each.
    pub fn all(snaplen: u32) -> Self {
        let program = squall_bpf::classic::Filter::all(snaplen);
        Self { expression: String::new(), snaplen, program, tags: Tags::Aside }
    }

    /// Number of `octets` to keep, including tags; 0 if the frame does not match. `wire_len`: the
    /// frame's length on the wire.
    #[inline]
    pub fn keep(&self, octets: &[u8], wire_len: u32) -> u32 {
        let kept = match self.tags {
            Tags::InPlace => self.program.run(octets, wire_len),
            Tags::Aside => self.program.run_untagged(octets, wire_len),
        };
        if kept == 0 { 0 } else { self.snaplen.min(octets.len() as u32) }
    }
}

/// Where the header after Ethernet and any VLAN tags begins, for ports whose device or kernel wants
/// to know it to cut a GSO frame. Beyond the end for a frame that ends before.
pub fn network_header(frame: &[u8]) -> usize {
    const ETHERNET: usize = 14;
    const TAG: usize = 4;
    let mut at = ETHERNET;
    while matches!(frame.get(at - 2..at), Some([0x81, 0x00] | [0x88, 0xa8])) {
        at += TAG;
    }
    at
}

/// Received frames.
#[derive(Clone, Copy)]
pub struct RxBatch<'a> {
    pub base: &'a [u8],
    pub frames: &'a [RxFrame],
}

#[derive(Clone, Copy, Debug, Default)]
pub struct RxFrame {
    /// Offset of the first octet in [`RxBatch::base`].
    pub offset: usize,
    /// Number of captured octets.
    pub len: u32,
    /// Length of the frame on the wire, octets without FCS.
    pub wire_len: u32,
    /// [`Cut::WHOLE`] for a frame as on the wire. Any other value marks a GSO frame of `wire_len`
    /// octets, joined (GRO) or not yet segmented by the kernel or the NIC; its checksums may be
    /// missing.
    pub cut: Cut,
    /// Arrival time on the engine's clock (`CLOCK_MONOTONIC`), from the source [`Timestamps`].
    pub time: Nanos,
    /// Whether this host sent the frame; such frames come only from ports that were asked for them.
    pub outgoing: bool,
    /// Whether its TCP or UDP checksum may be partial: only the sum of the pseudo-header, because
    /// its host left the rest to a NIC that the frame never passed. Also set if the port does not
    /// know.
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
