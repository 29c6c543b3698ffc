//! Frames on the way from reader to sender: contiguous in memory, and reused.

use squall_units::Picos;

use crate::stats::FlowId;

/// Frames that leave one after the other.
#[derive(Clone, Debug, Default)]
pub struct Chunk {
    /// The frames, contiguous, without FCS.
    pub octets: Vec<u8>,
    pub departures: Vec<Departure>,
    /// From each of these frames on, this number of address changes applies.
    pub changes: Vec<(usize, u64)>,
    /// Idle time before each frame with [`Departure::rests`].
    pub rest: Picos,
}

/// A frame of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Due time since the replay's start. [`Departure::AT_ONCE`]: as soon as the port accepts it;
    /// [`Departure::NEVER`]: beyond the representable range.
    pub due: Picos,
    /// Capture time since the first frame, continuing from loop to loop.
    pub time_ns: u64,
    /// Offset in [`Chunk::octets`].
    pub offset: u32,
    pub len: u32,
    /// The flow in the statistics.
    pub flow: FlowId,
    /// Index in the replay's list of ports.
    pub port: u8,
    /// The first frame of a loop without a due time: [`Chunk::rest`] passes after the preceding
    /// frame has left.
    pub rests: bool,
    /// The frame was truncated to the port's limit.
    pub truncated: bool,
    pub progress: Progress,
}

/// Progress of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// No port has it.
    #[default]
    Waiting,
    /// A port has it, and will report its result.
    UnderWay,
    Left,
    /// The frame was processed, but not sent.
    Failed,
}

impl Departure {
    /// As soon as the port accepts the frame: it was never due.
    pub const AT_ONCE: Picos = Picos(u64::MAX);
    /// Beyond the 64 bits of picoseconds: no run lasts that long, at any speed.
    pub const NEVER: Picos = Picos(u64::MAX - 1);
}

impl Chunk {
    /// Approximate octets per chunk: large enough to amortize passing it to another thread, small
    /// enough for the second-level cache.
    pub const OCTETS: usize = 128 << 10;
    /// Maximum number of frames in a chunk.
    pub const FRAMES: usize = 1024;

    pub fn clear(&mut self) {
        self.octets.clear();
        self.departures.clear();
        self.changes.clear();
    }

    /// Whether further frames belong in the next chunk.
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
