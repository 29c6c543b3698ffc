//! Statistics of frames. From values, sequence numbers, delays or octets, they compute
//! distributions, loss, reordering, delay variation or a fingerprint.
//!
//! Pure arithmetic: no clock, no thread, no I/O, and no allocation once the range of a stream is
//! known. Times are in nanoseconds. `squall-measure` parses the frames.
//!
//! | | |
//! |---|---|
//! | [`Histogram`] | values of any size, quantiles within 1/128 |
//! | [`SequenceTracker`] | loss (RFC 7680), duplicates (RFC 5560), reordering (RFC 4737), loss periods (RFC 3357) |
//! | [`DelayTracker`] | one-way delay (RFC 7679), IPDV (RFC 3393), jitter (RFC 3550), arrival gaps |
//! | [`Sparse`] | the same as [`Histogram`], small while there are few values |
//! | [`EqualBins`] | values in bins of one width |
//! | [`Fingerprint`] | a hash of a set of frames, whatever their order |
#![forbid(unsafe_code)]

mod delay;
mod equal;
mod fingerprint;
mod histogram;
mod sequence;
mod sparse;

pub use delay::{DelaySummary, DelayTracker, RUN};
pub use equal::EqualBins;
pub use fingerprint::Fingerprint;
pub use histogram::Histogram;
pub use sequence::{
    LossPeriods, Observation, Patterns, ReceivedRange, SequenceCounts, SequenceTracker, Span,
    seen_in_turn, seen_together,
};
pub use sparse::Sparse;
