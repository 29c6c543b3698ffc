//! Captures -> frames, each with the port that it leaves by and the instant at which it is due.
//!
//! In go captures ([`Replay`] names them and says what is to be done with them), out come
//! [`Chunk`]s of frames, on and on, loop after loop, in constant memory ([`Reader`]). What comes
//! out is a function of what goes in: no clock is read here, nothing is sent. Ports are but
//! numbers.
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
