//! Frames on their way from reader to sender: contiguous in memory, in reused buffers.

use squall_units::Picos;

use crate::stats::FlowId;

/// Frames that leave one after the other.
#[derive(Clone, Debug, Default)]
pub struct Chunk {
    /// The frames, contiguous, without FCS.
    pub octets: Vec<u8>,
    pub departures: Vec<Departure>,
    /// Pairs of a frame index and the number of address changes that applies from that frame on.
    pub changes: Vec<(usize, u64)>,
    /// Idle time before each frame that has [`Departure::rests`] set.
    pub rest: Picos,
}

/// A frame of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Due time since the start of the replay. [`Departure::AT_ONCE`]: as soon as the port accepts
    /// the frame; [`Departure::NEVER`]: beyond the representable range.
    pub due: Picos,
    /// Capture time since that of the first frame; continues from loop to loop.
    pub time_ns: u64,
    /// Offset in [`Chunk::octets`].
    pub offset: u32,
    pub len: u32,
    /// The frame's flow in the statistics.
    pub flow: FlowId,
    /// Index in the replay's list of ports.
    pub port: u8,
    /// Set for the first frame of a loop that has no due time: [`Chunk::rest`] passes between the
    /// departure of the preceding frame and this one.
    pub rests: bool,
    /// The frame was truncated to the port's limit.
    pub truncated: bool,
    pub progress: Progress,
}

/// Progress of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// The frame was not passed to a port yet.
    #[default]
    Waiting,
    /// The frame was passed to a port, which will report its result.
    UnderWay,
    Left,
    /// The frame was processed but not sent.
    Failed,
}

impl Departure {
    /// As soon as the port accepts the frame: there is no due time.
    pub const AT_ONCE: Picos = Picos(u64::MAX);
    /// A due time beyond 64 bits of picoseconds, longer than any run.
    pub const NEVER: Picos = Picos(u64::MAX - 1);
}

impl Chunk {
    /// Approximate number of octets per chunk: large enough to amortize passing it to another
    /// thread, small enough for the L2 cache.
    pub const OCTETS: usize = 128 << 10;
    /// Maximum number of frames in a chunk.
    pub const FRAMES: usize = 1024;

    pub fn clear(&mut self) {
        self.octets.clear();
        self.departures.clear();
        self.changes.clear();
    }

    /// Whether the chunk is full, so further frames belong in the next one.
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
