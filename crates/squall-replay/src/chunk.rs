//! Frames on their way from who reads captures to who sends: beside each other in one stretch, and
//! used again.

use squall_units::Picos;

use crate::stats::FlowId;

/// Frames that leave one after the other.
#[derive(Clone, Debug, Default)]
pub struct Chunk {
    /// The frames beside each other, without FCS.
    pub octets: Vec<u8>,
    pub departures: Vec<Departure>,
    /// From which frame on addresses have changed so often.
    pub changes: Vec<(usize, u64)>,
    /// How long nothing leaves before each frame that [`Departure::rests`].
    pub rest: Picos,
}

/// A frame of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Since the replay's start. [`Departure::AT_ONCE`]: as soon as the port takes it;
    /// [`Departure::NEVER`]: later than can be said.
    pub due: Picos,
    /// As captured: since the first frame, and going on from loop to loop.
    pub time_ns: u64,
    /// In [`Chunk::octets`].
    pub offset: u32,
    pub len: u32,
    /// Of the statistics.
    pub flow: FlowId,
    /// The place in the replay's list of ports.
    pub port: u8,
    /// The first of a loop that has no instant: [`Chunk::rest`] passes after the frame before it
    /// has left.
    pub rests: bool,
    /// It has lost its end: the port takes no such long frame.
    pub truncated: bool,
    pub progress: Progress,
}

/// How far a frame has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// No port has it.
    #[default]
    Waiting,
    /// A port has it, and will tell what becomes of it.
    UnderWay,
    Left,
    /// It was dealt with, and has not left.
    Failed,
}

impl Departure {
    /// Never was due.
    pub const AT_ONCE: Picos = Picos(u64::MAX);
    /// Due after all instants that 64 bits of picoseconds can say: no run gets there, whatever its
    /// speed.
    pub const NEVER: Picos = Picos(u64::MAX - 1);
}

impl Chunk {
    /// Octets of a chunk, about: large enough that handing it over costs nothing, small enough for
    /// the second-level cache.
    pub const OCTETS: usize = 128 << 10;
    /// Frames of a chunk at most.
    pub const FRAMES: usize = 1024;

    pub fn clear(&mut self) {
        self.octets.clear();
        self.departures.clear();
        self.changes.clear();
    }

    /// Whether another frame had better go into the next one.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.octets.len() >= Self::OCTETS || self.departures.len() >= Self::FRAMES
    }

    /// Frame `i`.
    #[inline]
    pub fn frame(&self, i: usize) -> &[u8] {
        let Departure { offset, len, .. } = self.departures[i];
        &self.octets[offset as usize..][..len as usize]
    }
}
