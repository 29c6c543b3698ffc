//! Converts captures to frames, each with a port and a due time.
//!
//! Input: a [`Replay`], which names captures and configures how they are sent. Output: [`Chunk`]s
//! of frames, loop after loop, in constant memory ([`Reader`]). The output depends on the input
//! alone: this crate reads no clock and sends nothing. Ports are only numbers.
#![forbid(unsafe_code)]

pub mod cache;
mod chunk;
mod preview;
mod reader;
mod speed;
pub mod split;
pub mod stats;
mod timing;
pub mod unique;

pub use cache::{Cache, CacheError};
pub use chunk::{Chunk, Departure, Progress};
pub use preview::Preview;
pub use reader::{
    Input, Open, Reader, Replay, ReplayError, Sent, SplitBy, Survey, Tally, TooLong, input,
};
pub use speed::{Decimal, Ramp, Speed};
pub use split::{Side, Split, SplitError, Splitter};
pub use squall_edit::{Edits, Numbers, ValueError};
pub use squall_program::Gap;
pub use stats::Stats;
pub use timing::{Schedule, Timing};
pub use unique::Unique;
