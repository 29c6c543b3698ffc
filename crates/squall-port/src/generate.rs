//! Ports that make their frames themselves, by a program that runs in them: no memory is lent, and
//! counters are read from memory shared with the program.

use std::{
    io,
    sync::{Arc, atomic::AtomicU64},
};

use squall_bpf::Object;

/// A program that makes frames, and its inputs. The meaning of the words is an agreement between
/// the program and its compiler.
#[derive(Clone, Debug)]
pub struct Generation {
    /// The program: runs for each frame, and redirects it to entry 0 of map number `exit`.
    pub object: Object,
    /// Programs for raw tracepoints, by name, with the maps of `object`: they count the frames that
    /// the driver took.
    pub witnesses: Vec<(&'static str, Object)>,
    /// Index of the map that is shared memory; `words` are the initial values of its words.
    pub memory: usize,
    pub words: Vec<u64>,
    pub exit: usize,
    /// Index of a map with one value, and that value.
    pub tables: (usize, Vec<u8>),
    /// Initial content of the frames.
    pub frame: Vec<u8>,
    /// The most frames to pass to the driver together, 1 to 256.
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
    /// effect: repeat it.
    fn interrupt(&self);

    /// To be called many times per second. The program may use all CPU time of its group (a
    /// container's quota), so that no other thread of the group runs before it leaves the kernel:
    /// if this is not called for some time, [`Generator::run`] returns by itself, and can be called
    /// again.
    fn keep_alive(&self);

    /// Why the kernel's error number means that no frame will ever leave; `None`: the error may be
    /// temporary.
    fn fatal(&self, errno: i32) -> Option<String>;
}
