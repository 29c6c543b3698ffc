//! Ports that make their frames themselves: a program runs in them. No memory is lent, and counters
//! are read from memory shared with the program.

use std::{
    io,
    sync::{Arc, atomic::AtomicU64},
};

use squall_bpf::Object;

/// A program that makes frames, and its inputs. The program and its compiler agree on the meaning
/// of the words.
#[derive(Clone, Debug)]
pub struct Generation {
    /// The program. It runs once per frame, and redirects the frame to entry 0 of map number
    /// `exit`.
    pub object: Object,
    /// Programs for raw tracepoints, by name, with the maps of `object`: they count the frames that
    /// the driver took.
    pub witnesses: Vec<(&'static str, Object)>,
    /// Index of the map that is the shared memory; `words` has the initial values of its words.
    pub memory: usize,
    pub words: Vec<u64>,
    pub exit: usize,
    /// Index of the map with tables (it has one value), and that value.
    pub tables: (usize, Vec<u8>),
    /// Initial content of the frames.
    pub frame: Vec<u8>,
    /// Maximum number of frames to pass to the driver together, 1 to 256.
    pub batch: u32,
}

/// A loaded program.
pub trait Generator: Send {
    /// Runs the program repeatedly, until interrupted or after a long time; the caller may call
    /// again.
    fn run(&mut self) -> io::Result<()>;

    fn remote(&self) -> Arc<dyn Remote>;
}

/// The part that other threads can use while the program runs.
pub trait Remote: Send + Sync {
    /// Word `index` of the shared memory.
    ///
    /// # Panics
    /// If it is out of bounds.
    fn word(&self, index: usize) -> &AtomicU64;

    /// Makes [`Generator::run`] return soon. A call just before the program starts may have no
    /// effect, so repeat it.
    fn interrupt(&self);

    /// Passes up to `batch` frames to the driver together, in place of [`Generation::batch`]. The
    /// program may have to run again for that, so repeat the call until it returns true.
    fn set_batch(&self, batch: u32) -> bool;

    /// Call this many times per second. The program may use all CPU time of its group (a
    /// container's quota), so no other thread of the group runs before it leaves the kernel.
    /// Therefore, if this is not called for some time, [`Generator::run`] returns by itself; it can
    /// be called again.
    fn keep_alive(&self);

    /// Why the kernel's error `errno` means that no frame will ever leave; `None` if the error may
    /// be temporary.
    fn fatal(&self, errno: i32) -> Option<String>;
}
