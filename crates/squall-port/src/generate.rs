//! Ports that make their frames themselves, by a program that runs in them: no memory is lent, and
//! what is counted is read from memory that is shared with the program.

use std::{
    io,
    sync::{Arc, atomic::AtomicU64},
};

use squall_bpf::Object;

/// A program that makes frames, and what it needs. What the words mean is between the program and
/// whoever compiled it.
#[derive(Clone, Debug)]
pub struct Generation {
    /// Runs for each frame, and redirects it to entry 0 of its map number `exit`.
    pub object: Object,
    /// Raw tracepoints, and the programs for them, with the maps of `object`: they count what the
    /// driver took.
    pub witnesses: Vec<(&'static str, Object)>,
    /// The map that is shared memory, and its words at first.
    pub memory: usize,
    pub words: Vec<u64>,
    pub exit: usize,
    /// A map of one value, and the value.
    pub tables: (usize, Vec<u8>),
    /// What frames hold at first.
    pub frame: Vec<u8>,
    /// Frames that may be handed to the driver together, 1 to 256.
    pub batch: u32,
}

/// A loaded program.
pub trait Generator: Send {
    /// Runs the program over and over, until interrupted or after a long time; the caller calls
    /// again as long as it likes.
    fn run(&mut self) -> io::Result<()>;

    fn remote(&self) -> Arc<dyn Remote>;
}

/// What other threads can reach while the program runs.
pub trait Remote: Send + Sync {
    /// Word `index` of the shared memory.
    ///
    /// # Panics
    /// If it lies outside.
    fn word(&self, index: usize) -> &AtomicU64;

    /// Lets [`Generator::run`] return soon. If it was just about to begin, that may go unnoticed:
    /// say it again.
    fn interrupt(&self);

    /// To be said many times a second. The program may use what CPU time its group has (a
    /// container's quota), and all other threads of the group then wait for it to leave the kernel:
    /// not said for long, [`Generator::run`] returns by itself, and can be begun again.
    fn attend(&self);

    /// Why an error number of the kernel's means that nothing will ever leave; `None`: it may be
    /// over in a moment.
    fn fatal(&self, errno: i32) -> Option<String>;
}
