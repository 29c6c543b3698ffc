//! The memory shared with a device's queue, and the sockets that use it.
//!
//! One region: first the transmit slots, then the chunks that the kernel receives into. In copy
//! mode chunks may start anywhere (`XDP_UMEM_UNALIGNED_CHUNK_FLAG`): the stride of the slots suits
//! the frames, a jumbo frame is one piece, and strides are odd numbers of cache lines. Zero-copy
//! drivers use aligned chunks, because only memory within a page is contiguous for the device.

use std::{io, sync::Arc, time::Duration};

use squall_port::stride;

use super::ring::{Ring, RingKind};
use crate::sys::{Map, Socket};

/// Smallest transmit slot with aligned chunks: a power of two, so slots do not cross chunks.
const MIN_ALIGNED_SLOT: usize = 128;
/// Headroom that the kernel keeps in a chunk before a received frame (`XDP_PACKET_HEADROOM`).
pub const RX_HEADROOM: usize = 256;
/// Odd numbers of cache lines: with strides of 2048 and 4096, the same field of all chunks falls
/// into a few cache sets (docs/adr/0007-slots.md).
const SMALL_CHUNK: usize = 2112;
const LARGE_CHUNK: usize = 4032;
const PAGE: usize = 4096;
const HUGE_PAGE: usize = 2 << 20;
/// Octets before each transmit slot; they hold the frame's metadata.
pub const TX_HEADROOM: usize = 64;
/// Size of `struct xsk_tx_metadata`.
pub const TX_METADATA: usize = 24;

/// How the memory is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub zero_copy: bool,
    /// Octets per chunk: it holds a received frame or a piece of one, after [`RX_HEADROOM`]; or a
    /// piece of a frame to send.
    pub chunk: usize,
    /// Octets of transmit slots, from offset 0.
    pub tx_octets: usize,
    pub rx_chunks: u32,
    /// Entries of the transmit ring.
    pub tx_ring: u32,
}

impl Layout {
    /// The layout for frames of up to `max_frame` octets; `tx_octets` is rounded up to pages.
    pub fn new(
        zero_copy: bool,
        max_frame: usize,
        tx_octets: usize,
        rx_chunks: u32,
        tx_ring: u32,
    ) -> Self {
        let small = max_frame + RX_HEADROOM <= if zero_copy { 2048 } else { SMALL_CHUNK };
        let chunk = match (zero_copy, small) {
            (true, true) => 2048,
            (true, false) => PAGE,
            (false, true) => SMALL_CHUNK,
            (false, false) => LARGE_CHUNK,
        };
        Self { zero_copy, chunk, tx_octets: tx_octets.next_multiple_of(PAGE), rx_chunks, tx_ring }
    }

    pub fn octets(&self) -> usize {
        (self.tx_octets + self.rx_chunks as usize * self.chunk).next_multiple_of(PAGE)
    }

    /// Stride of the transmit slots in octets, for frames of up to `max_frame` with [`TX_HEADROOM`]
    /// before each.
    pub fn tx_stride(&self, max_frame: usize) -> usize {
        let octets = max_frame + TX_HEADROOM;
        match self.zero_copy {
            false => stride(octets),
            true if octets <= self.chunk => octets.next_power_of_two().max(MIN_ALIGNED_SLOT),
            true => octets.next_multiple_of(self.chunk),
        }
    }

    /// How many of the `len` octets from `at` one descriptor can cover.
    pub fn piece(&self, at: usize, len: usize) -> usize {
        let room = if self.zero_copy { self.chunk - at % self.chunk } else { self.chunk };
        len.min(room)
    }

    /// Offset of receive chunk `i`.
    pub fn rx_chunk(&self, i: u32) -> usize {
        self.tx_octets + i as usize * self.chunk
    }
}

/// The memory of a device queue: exists as long as any of its sockets does.
#[derive(Debug)]
pub struct Umem {
    pub layout: Layout,
    pub memory: Map,
    /// The socket that registered the memory and owns the fill and completion rings, which other
    /// sockets share.
    base: Socket,
    queue: u32,
    /// Whether frames of several pieces can be sent and received (XDP_USE_SG).
    pub pieces: bool,
}

/// Parameters of a queue's sockets.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    pub ifindex: u32,
    pub queue: u32,
    pub need_wakeup: bool,
    pub busy_poll_us: u32,
    pub busy_budget: u32,
}

/// One direction of a queue, with its rings.
#[derive(Debug)]
pub struct Side {
    pub umem: Arc<Umem>,
    /// `None`: uses the socket that registered the memory.
    pub socket: Option<Socket>,
    /// The receive or transmit ring.
    pub ring: Ring<libc::xdp_desc>,
    /// The fill or completion ring.
    pub addresses: Ring<u64>,
}

impl Side {
    pub fn socket(&self) -> &Socket {
        self.socket.as_ref().unwrap_or(&self.umem.base)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Rx,
    Tx,
}

impl Direction {
    /// The socket option for the direction's own ring; the kind of that ring; and the kind of the
    /// ring that belongs to the memory.
    fn ring(self) -> (libc::c_int, RingKind, RingKind) {
        match self {
            Self::Rx => (libc::XDP_RX_RING, RingKind::Rx, RingKind::Fill),
            Self::Tx => (libc::XDP_TX_RING, RingKind::Tx, RingKind::Completion),
        }
    }
}

impl Umem {
    /// Makes the memory and binds it to a queue, initially with one direction.
    ///
    /// # Errors
    /// EBUSY: the queue has another owner. ENOBUFS: more memory than this user may lock.
    /// EOPNOTSUPP: the driver has no zero-copy.
    pub fn bind(
        layout: Layout,
        metadata: bool,
        first: Direction,
        binding: &Binding,
    ) -> io::Result<Side> {
        let base = Socket::new(libc::AF_XDP, libc::SOCK_RAW, 0)?;
        let octets = layout.octets();
        // struct xdp_umem_reg: addr, len, chunk_size and headroom, flags and tx_metadata_len.
        let unaligned = if layout.zero_copy { 0 } else { libc::XDP_UMEM_UNALIGNED_CHUNK_FLAG };
        let (with, meta) =
            if metadata { (libc::XDP_UMEM_TX_METADATA_LEN, TX_METADATA as u64) } else { (0, 0) };
        let register = |memory: Map| {
            let at = memory.at(0, octets).as_ptr() as u64;
            let register =
                [at, octets as u64, layout.chunk as u64, u64::from(unaligned | with) | meta << 32];
            base.set(libc::SOL_XDP, libc::XDP_UMEM_REG, register).map(|()| memory)
        };
        // Huge pages are scarce, so a small region uses none. A container may be denied the free
        // ones, which fails only when the kernel pins them.
        let huge = octets >= HUGE_PAGE / 2;
        let huge = huge
            .then(|| Map::anonymous(octets.next_multiple_of(HUGE_PAGE), true).and_then(register));
        let memory = match huge {
            Some(Ok(memory)) => memory,
            _ => register(Map::anonymous(octets, false)?)?,
        };
        let (fill, completion) = (layout.rx_chunks.max(2).next_power_of_two(), layout.tx_ring);
        base.set(libc::SOL_XDP, libc::XDP_UMEM_FILL_RING, fill)?;
        base.set(libc::SOL_XDP, libc::XDP_UMEM_COMPLETION_RING, completion)?;
        let size = layout.ring_size(first);
        base.set(libc::SOL_XDP, first.ring().0, size)?;

        let copy = if layout.zero_copy { libc::XDP_ZEROCOPY } else { libc::XDP_COPY };
        let wakeup = if binding.need_wakeup { libc::XDP_USE_NEED_WAKEUP } else { 0 };
        let mut pieces = true;
        let mut bound = bind_with_retries(&base, binding, copy | wakeup | libc::XDP_USE_SG);
        if bound.as_ref().is_err_and(|e| e.raw_os_error() == Some(libc::EINVAL)) {
            // Fails before Linux 6.6, or with a driver whose device has no multi-buffer support.
            pieces = false;
            bound = bind_with_retries(&base, binding, copy | wakeup);
        }
        bound?;
        set_busy_poll(&base, binding)?;
        let umem = Arc::new(Self { layout, memory, base, queue: binding.queue, pieces });
        umem.side(first, None)
    }

    /// Opens the other direction, with its own socket, which shares the memory.
    pub fn second(self: &Arc<Self>, direction: Direction, binding: &Binding) -> io::Result<Side> {
        let socket = Socket::new(libc::AF_XDP, libc::SOCK_RAW, 0)?;
        socket.set(libc::SOL_XDP, direction.ring().0, self.layout.ring_size(direction))?;
        socket.bind_xdp(binding.ifindex, self.queue, libc::XDP_SHARED_UMEM, Some(&self.base))?;
        set_busy_poll(&socket, binding)?;
        self.side(direction, Some(socket))
    }

    fn side(self: &Arc<Self>, direction: Direction, socket: Option<Socket>) -> io::Result<Side> {
        let (_, own, addresses) = direction.ring();
        let size = self.layout.ring_size(direction);
        Ok(Side {
            ring: Ring::new(socket.as_ref().unwrap_or(&self.base), own, size)?,
            addresses: Ring::new(&self.base, addresses, size)?,
            umem: self.clone(),
            socket,
        })
    }
}

impl Layout {
    fn ring_size(&self, direction: Direction) -> u32 {
        match direction {
            Direction::Rx => self.rx_chunks.max(2).next_power_of_two(),
            Direction::Tx => self.tx_ring,
        }
    }
}

/// Retries on EBUSY: the kernel frees a closed socket's queue in the background, which once took more
/// than 1.6 s on a busy machine. After 4 s, returns the error: something else uses the queue.
fn bind_with_retries(socket: &Socket, binding: &Binding, flags: u16) -> io::Result<()> {
    let mut tries = 0;
    loop {
        match socket.bind_xdp(binding.ifindex, binding.queue, flags, None) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && tries < 1000 => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(4));
            }
            done => return done,
        }
    }
}

fn set_busy_poll(socket: &Socket, binding: &Binding) -> io::Result<()> {
    if binding.busy_poll_us == 0 {
        return Ok(());
    }
    let level = libc::SOL_SOCKET;
    let explain = |error: io::Error| {
        io::Error::new(
            error.kind(),
            format!(
                "cannot enable busy polling: {error}\n  it needs CAP_NET_ADMIN, and Linux 5.11"
            ),
        )
    };
    socket.set(level, libc::SO_PREFER_BUSY_POLL, 1).map_err(explain)?;
    socket.set(level, libc::SO_BUSY_POLL, binding.busy_poll_us).map_err(explain)?;
    socket.set(level, libc::SO_BUSY_POLL_BUDGET, binding.busy_budget).map_err(explain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_descriptor_crosses_a_chunk_where_chunks_are_aligned() {
        for max_frame in [60, 200, 1514, 1900, 3000, 4032, 9018, 65_535] {
            for zero_copy in [false, true] {
                let layout = Layout::new(zero_copy, max_frame, 1 << 20, 64, 2048);
                let stride = layout.tx_stride(max_frame);
                for slot in 0..70 {
                    let (mut at, mut left) = (slot * stride + TX_HEADROOM, max_frame);
                    let mut pieces = 0;
                    while left > 0 {
                        let piece = layout.piece(at, left);
                        assert!(piece <= layout.chunk && piece > 0);
                        let crosses = at / layout.chunk != (at + piece - 1) / layout.chunk;
                        assert!(!(zero_copy && crosses), "{max_frame}: {piece} octets at {at}");
                        (at, left, pieces) = (at + piece, left - piece, pieces + 1);
                    }
                    // The kernel's limit is 17 (MAX_SKB_FRAGS).
                    assert!(pieces <= 17, "{max_frame}: {pieces} pieces");
                }
            }
        }
    }
}
