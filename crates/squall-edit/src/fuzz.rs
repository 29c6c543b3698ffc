//! Changes payloads at random, to test protocols above TCP and UDP.

use squall_units::mix;

use crate::frame::Frame;

/// Result of fuzzing a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fuzzed {
    No,
    Drop,
    /// An octet of the payload was overwritten.
    Octets,
    /// The payload was shortened: the new length of the IP payload, including the transport header.
    Shorter(usize),
}

/// Number of octets at either end of a payload that are overwritten more often than those in the
/// middle: parsers depend most on them.
const REACH: u64 = 64;

/// Drops, truncates or overwrites one in every `factor` packets. Overwriting sets an octet at the
/// beginning, in the middle or at the end of the payload to 0, 255 or a random value. The result
/// depends only on the seed and the packet's number, so a run is reproducible.
pub fn fuzz(frame: &mut Frame, number: u64, seed: u64, factor: u32) -> Fuzzed {
    let draw = |k: u64| mix(mix(seed, number), k);
    let below = |k: u64, n: u64| draw(k) % n;
    if below(0, u64::from(factor)) != 0 {
        return Fuzzed::No;
    }
    // The payload follows the transport header; in packets that are not IP, the link header.
    let (begin, end) = (frame.headers.payload as usize, frame.headers.end as usize);
    if begin >= end {
        return Fuzzed::No;
    }
    let len = (end - begin) as u64;
    let octet = match below(2, 3) {
        0 => 0,
        1 => 0xff,
        _ => draw(3) as u8,
    };
    let reach = len.min(REACH);
    let at = match below(1, 5) {
        0 => return Fuzzed::Drop,
        // Skip GSO frames, whose length does not fit into the header.
        1 if frame.is_ip()
            && frame.missing == 0
            && end - frame.headers.network as usize <= 0xffff =>
        {
            return Fuzzed::Shorter(
                begin + below(4, len) as usize - frame.headers.network as usize,
            );
        }
        2 => below(4, reach),
        3 => len - 1 - below(4, reach),
        _ => below(4, len),
    };
    let place = &mut frame.octets[begin + at as usize];
    if *place == octet {
        return Fuzzed::No;
    }
    *place = octet;
    Fuzzed::Octets
}
