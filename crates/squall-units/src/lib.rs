//! Quantities with units, and their text forms: `"10 Mpps"` is a [`Rate`].
//!
//! Also contains what all crates share: numbers from octets, random numbers, divisors, medians, the
//! form of error messages, and suggestions for misspelled names. Depends on no other crate of
//! Squall. Departure times are computed in integers.
#![forbid(unsafe_code)]

mod addr;
mod cannot;
mod division;
mod number;
mod octets;
mod parse;
mod random;
mod rate;
mod signature;
mod slot;
mod suggest;
mod time;

pub use addr::MacAddr;
pub use cannot::Cannot;
pub use division::Division;
pub use number::{gcd, lcm, median, median_high, remaining_sd};
pub use octets::{be16, be32, get_be16, get_be32};
pub use parse::{UnitError, parse_count, parse_octets};
pub use random::{Shuffle, SplitMix64, below, mix, shuffled};
pub use rate::{Rate, RateUnit, near};
pub use signature::{
    SIGNATURE_HASH, TREX_GROUPS, TREX_HW_IDS, TREX_MAGIC, TrexMark, signature_check,
};
pub use slot::{Cut, Offload, Segmentation, TxMeta};
pub use suggest::{edit_distance, nearest, suggest};
pub use time::{Nanos, Picos};

/// Overhead per frame on a link, in octets: preamble 7, SFD 1, inter-packet gap 12 (IEEE 802.3
/// §4.2.7).
pub const L1_OVERHEAD: u32 = 20;
/// Length of the frame check sequence in octets. Frame lengths in profiles and reports include it
/// (RFC 2544 §9); buffers do not contain it.
pub const FCS_LEN: u32 = 4;
