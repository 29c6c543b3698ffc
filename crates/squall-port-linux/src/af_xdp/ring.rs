//! A ring shared with the kernel: one side produces entries, the other consumes them, each with its
//! own index, which only grows.

use std::{
    io,
    marker::PhantomData,
    ptr::NonNull,
    sync::atomic::{AtomicU32, Ordering},
};

use crate::sys::{Map, Plain, Socket};

/// Selects the ring of a socket to map by mmap.
#[derive(Clone, Copy, Debug)]
pub enum RingKind {
    Rx,
    Tx,
    Fill,
    Completion,
}

/// A ring of `T` entries.
#[derive(Debug)]
pub struct Ring<T> {
    producer: NonNull<u8>,
    consumer: NonNull<u8>,
    flags: NonNull<u8>,
    entries: NonNull<T>,
    size: u32,
    /// The memory to which the pointers point.
    _map: Map,
    _entries: PhantomData<T>,
}

// SAFETY: the pointers are into the mapping, which moves with them and belongs to the process, not
// to a thread.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Plain> Ring<T> {
    /// Maps the ring of `size` entries that was configured on `socket` before.
    pub fn new(socket: &Socket, kind: RingKind, size: u32) -> io::Result<Self> {
        let none = libc::xdp_ring_offset { producer: 0, consumer: 0, desc: 0, flags: 0 };
        let none = libc::xdp_mmap_offsets { rx: none, tx: none, fr: none, cr: none };
        let offsets = socket.get(libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, none)?;
        let (at, page) = match kind {
            RingKind::Rx => (offsets.rx, libc::XDP_PGOFF_RX_RING as u64),
            RingKind::Tx => (offsets.tx, libc::XDP_PGOFF_TX_RING as u64),
            RingKind::Fill => (offsets.fr, libc::XDP_UMEM_PGOFF_FILL_RING),
            RingKind::Completion => (offsets.cr, libc::XDP_UMEM_PGOFF_COMPLETION_RING),
        };
        let octets = size as usize * size_of::<T>();
        let map = Map::at_offset(socket, at.desc as usize + octets, page)?;
        Ok(Self {
            producer: map.at(at.producer as usize, 4),
            consumer: map.at(at.consumer as usize, 4),
            flags: map.at(at.flags as usize, 4),
            entries: map.at(at.desc as usize, octets).cast(),
            size,
            _map: map,
            _entries: PhantomData,
        })
    }

    pub fn size(&self) -> u32 {
        self.size
    }

    /// The producer's index. Loaded with Acquire: entries before it are readable.
    #[inline]
    pub fn producer(&self) -> u32 {
        word(&self.producer).load(Ordering::Acquire)
    }

    /// The consumer's index. Loaded with Acquire: the consumer has finished with the entries before
    /// it.
    #[inline]
    pub fn consumer(&self) -> u32 {
        word(&self.consumer).load(Ordering::Acquire)
    }

    /// Publishes entries before `index`, as the producer.
    #[inline]
    pub fn produce(&self, index: u32) {
        word(&self.producer).store(index, Ordering::Release);
    }

    /// Releases entries before `index`, as the consumer.
    #[inline]
    pub fn consume(&self, index: u32) {
        word(&self.consumer).store(index, Ordering::Release);
    }

    /// Whether the kernel reads the ring only when kicked (XDP_USE_NEED_WAKEUP).
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        word(&self.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// Entry number `index`, modulo the ring's size.
    #[inline]
    pub fn get(&self, index: u32) -> T {
        let entry = self.entry(index);
        // SAFETY: within the mapping and aligned, as the kernel lays it out; any content is a `T`.
        unsafe { entry.as_ptr().read_volatile() }
    }

    /// Writes entry number `index`, modulo the ring's size.
    #[inline]
    pub fn set(&mut self, index: u32, value: T) {
        let entry = self.entry(index);
        // SAFETY: within the mapping and aligned, as the kernel lays it out.
        unsafe { entry.as_ptr().write_volatile(value) }
    }

    #[inline]
    fn entry(&self, index: u32) -> NonNull<T> {
        // SAFETY: the size is a power of two, so the remainder is within the entries.
        unsafe { self.entries.add((index & (self.size - 1)) as usize) }
    }
}

#[inline]
fn word(at: &NonNull<u8>) -> &AtomicU32 {
    // SAFETY: points at four aligned octets of the mapping (`Ring::new`), which both sides access
    // as one word.
    unsafe { AtomicU32::from_ptr(at.as_ptr().cast()) }
}
