//! Recognition of signatures, shared by the code that writes and reads them and by ports that must
//! recognize frames of their own run.

/// Hash constants: multiplier of the low half, addend, and multiplier of the whole.
pub const SIGNATURE_HASH: [u64; 3] =
    [0x9fb2_1c65_1e98_df25, 0x5351_5541_4c4c_3031, 0xd6e8_feb8_6659_fd93];

/// Hash of everything except the check. The check is this hash XOR the run's key. Keys have 16
/// bits, so random octets match the key of some run with a probability of 2^-16, and the key of a
/// given run with 2^-32. The upper half of `high` is the check itself, so it is not hashed.
#[inline]
pub fn signature_check(high: u64, low: u64) -> u32 {
    let [of_low, constant, of_all] = SIGNATURE_HASH;
    let mut z = (high & 0xffff_ffff) ^ low.wrapping_mul(of_low) ^ constant;
    z = (z ^ (z >> 32)).wrapping_mul(of_all);
    (z >> 32) as u32
}

/// First octet of the header at the end of frames in TRex's latency streams.
pub const TREX_MAGIC: u8 = 0xab;

/// Number of latency streams that TRex distinguishes.
pub const TREX_HW_IDS: u16 = 128;

/// Number of packet groups that TRex distinguishes by their marks in IP headers.
pub const TREX_GROUPS: u16 = 1023;

/// Identification of a latency stream in TRex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrexMark {
    /// Below [`TREX_HW_IDS`].
    pub hw_id: u8,
    /// Changes with each start of the stream, so late frames of an earlier start are not counted.
    pub flow_seq: u8,
}
