//! Identifies sources of frames by number.

/// A source of frames. The code that sends and counts the frames knows only this number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(u32);

impl SourceId {
    /// All streams.
    pub const STREAMS: Self = Self(0);
    /// All flows.
    pub const FLOWS: Self = Self(1);
    /// All hosts.
    pub const HOSTS: Self = Self(u32::MAX);

    /// A replay by its index in the plan; attacks that are sent as frames are replays too.
    pub const fn replay(number: u32) -> Self {
        Self(number + 2)
    }

    /// The replay's index, if the source is a replay.
    pub const fn as_replay(self) -> Option<u32> {
        match self {
            Self::HOSTS => None,
            Self(number) => number.checked_sub(2),
        }
    }
}
