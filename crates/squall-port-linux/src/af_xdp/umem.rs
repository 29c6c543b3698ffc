//! The memory that a device's queue and we share, and the sockets that use it.
//!
//! One stretch: first the transmit slots, then the chunks that the kernel receives into. In copy
//! mode it is cut where we like (`XDP_UMEM_UNALIGNED_CHUNK_FLAG`): slots are as far apart as the
//! frames ask for, a jumbo frame lies in one piece, and the strides are odd numbers of cache lines.
//! Drivers that copy nothing want chunks on their own boundaries, because only what lies in one
//! page lies in one piece for the device.

use std::{io, sync::Arc, time::Duration};

use squall_port::stride;

use super::ring::{Ring, Which};
use crate::sys::{Map, Socket};

/// Smallest transmit slot when chunks are aligned: a power of two, so that slots do not cross
/// chunks.
const LEAST_ALIGNED: usize = 128;
/// The kernel keeps so much of a chunk free in front of a received frame (`XDP_PACKET_HEADROOM`).
pub const RX_HEADROOM: usize = 256;
/// Cache lines make 2112 and 4032 spread where 2048 and 4096 collide.
const SMALL_CHUNK: usize = 2112;
const LARGE_CHUNK: usize = 4032;
const PAGE: usize = 4096;
const HUGE_PAGE: usize = 2 << 20;
/// Octets in front of each transmit slot where metadata of the frame can be.
pub const TX_HEADROOM: usize = 64;
/// `struct xsk_tx_metadata`.
pub const TX_METADATA: usize = 24;

/// How the memory is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub zero_copy: bool,
    /// Octets: a received frame, or a piece of it, with [`RX_HEADROOM`]; a piece of a frame that is
    /// sent.
    pub chunk: usize,
    /// Octets for transmit slots, from 0 on.
    pub tx_octets: usize,
    pub rx_chunks: u32,
    /// Frames in the transmit ring.
    pub tx_ring: u32,
}

impl Layout {
    /// For frames of up to `max_frame` octets. `tx_octets` is what is asked for.
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

    /// Octets from transmit slot to slot, for frames of up to `max_frame` and [`TX_HEADROOM`] in
    /// front of each.
    pub fn tx_stride(&self, max_frame: usize) -> usize {
        let octets = max_frame + TX_HEADROOM;
        match self.zero_copy {
            false => stride(octets),
            true if octets <= self.chunk => octets.next_power_of_two().max(LEAST_ALIGNED),
            true => octets.next_multiple_of(self.chunk),
        }
    }

    /// Octets from `at` on that one descriptor can name, of `len`.
    pub fn piece(&self, at: usize, len: usize) -> usize {
        let room = if self.zero_copy { self.chunk - at % self.chunk } else { self.chunk };
        len.min(room)
    }

    /// Where receive chunk number `i` begins.
    pub fn rx_chunk(&self, i: u32) -> usize {
        self.tx_octets + i as usize * self.chunk
    }
}

/// The memory of a device's queue. Sockets come and go; it stays as long as one of them is there.
#[derive(Debug)]
pub struct Umem {
    pub layout: Layout,
    pub memory: Map,
    /// The socket that brought the memory in, with the fill and completion rings: others share
    /// them.
    base: Socket,
    queue: u32,
    /// Frames of several pieces can be sent and received.
    pub pieces: bool,
}

/// What a queue is bound with.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    pub ifindex: u32,
    pub queue: u32,
    pub need_wakeup: bool,
    pub busy_poll_us: u32,
    pub busy_budget: u32,
}

/// A direction of a queue, with what it alone uses of the memory.
#[derive(Debug)]
pub struct Side {
    pub umem: Arc<Umem>,
    /// `None`: the socket that brought the memory in.
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
    /// Socket options and rings: of the socket's own ring, and of the one that goes with the
    /// memory.
    fn ring(self) -> (libc::c_int, Which, Which) {
        match self {
            Self::Rx => (libc::XDP_RX_RING, Which::Rx, Which::Fill),
            Self::Tx => (libc::XDP_TX_RING, Which::Tx, Which::Completion),
        }
    }
}

impl Umem {
    /// Makes the memory and binds it to a queue, for one direction to begin with.
    ///
    /// # Errors
    /// EBUSY: the queue has another owner. ENOBUFS: more memory than this user may lock.
    /// EOPNOTSUPP: not without copying.
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
        // A whole huge page for little memory would be a waste of what others wait for. A container
        // may be allowed none of those that are there, which shows when they are pinned.
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
        let mut bound = bind_patiently(&base, binding, copy | wakeup | libc::XDP_USE_SG);
        if bound.as_ref().is_err_and(|e| e.raw_os_error() == Some(libc::EINVAL)) {
            // Before Linux 6.6, or a driver whose device takes no frames in pieces.
            pieces = false;
            bound = bind_patiently(&base, binding, copy | wakeup);
        }
        bound?;
        set_busy_poll(&base, binding)?;
        let umem = Arc::new(Self { layout, memory, base, queue: binding.queue, pieces });
        umem.side(first, None)
    }

    /// The other direction, by a socket of its own that shares the memory.
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

/// A queue that another socket has just left is free a little later: the kernel tidies up behind
/// our back, on a busy machine half a second. Who really has another owner is told after 1.6 s.
fn bind_patiently(socket: &Socket, binding: &Binding, flags: u16) -> io::Result<()> {
    let mut tries = 0;
    loop {
        match socket.bind_xdp(binding.ifindex, binding.queue, flags, None) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && tries < 400 => {
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
                    // The kernel takes 17 at most (MAX_SKB_FRAGS).
                    assert!(pieces <= 17, "{max_frame}: {pieces} pieces");
                }
            }
        }
    }
}
