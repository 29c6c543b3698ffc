//! Sources of frames, by their numbers in the plan.

/// A source of frames. The code that sends and counts its frames knows only this number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(u32);

impl SourceId {
    /// All streams.
    pub const STREAMS: Self = Self(0);
    /// All flows.
    pub const FLOWS: Self = Self(1);

    /// A replay by its number in the plan: captures, and attacks as frames.
    pub const fn replay(number: u32) -> Self {
        Self(number + 2)
    }

    /// The replay's number, if the source is a replay.
    pub const fn as_replay(self) -> Option<u32> {
        self.0.checked_sub(2)
    }
}
