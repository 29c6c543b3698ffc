//! What tells a signature from other octets: for the program that writes and reads signatures, and
//! for ports that have to know their own frames.

/// Multiplier of the low half, constant, multiplier of all.
pub const SIGNATURE_HASH: [u64; 3] =
    [0x9fb2_1c65_1e98_df25, 0x5351_5541_4c4c_3031, 0xd6e8_feb8_6659_fd93];

/// A hash of everything but the check, which is this hash XOR the key of the run. Keys have 16 bits:
/// other octets pass as some run's with a chance of 2^-16, as a certain run's with 2^-32. Of `high`,
/// the upper half is the check itself and does not count.
#[inline]
pub fn signature_check(high: u64, low: u64) -> u32 {
    let [of_low, constant, of_all] = SIGNATURE_HASH;
    let mut z = (high & 0xffff_ffff) ^ low.wrapping_mul(of_low) ^ constant;
    z = (z ^ (z >> 32)).wrapping_mul(of_all);
    (z >> 32) as u32
}

/// The first octet of the header with which TRex's streams with latency end.
pub const TREX_MAGIC: u8 = 0xab;

/// TRex tells so many streams with latency apart.
pub const TREX_HW_IDS: u16 = 128;

/// TRex distinguishes so many packet groups by the marks in their IP headers.
pub const TREX_GROUPS: u16 = 1023;

/// By what TRex knows a stream with latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrexMark {
    /// Below [`TREX_HW_IDS`].
    pub hw_id: u8,
    /// Changes each time that the stream starts, so that late frames of the time before are not
    /// counted.
    pub flow_seq: u8,
}
