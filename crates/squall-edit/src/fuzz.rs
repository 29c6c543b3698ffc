//! Random changes of payloads, to test protocols above TCP and UDP.

use squall_units::mix;

use crate::frame::Frame;

/// Result of fuzzing a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fuzzed {
    No,
    Drop,
    /// An octet of the payload was overwritten.
    Octets,
    /// The payload was shortened: the remaining octets of the IP payload, with its header.
    Shorter(usize),
}

/// Length of a payload's beginning and end, in octets, which are overwritten more often than the
/// middle: parsers depend on them most.
const REACH: u64 = 64;

/// Drops, truncates or overwrites one of `factor` packets: an octet 0, 255 or random at the
/// beginning, in the middle or at the end of its payload. A function of the seed and the packet's
/// number, so that results repeat.
pub fn fuzz(frame: &mut Frame, number: u64, seed: u64, factor: u32) -> Fuzzed {
    let draw = |k: u64| mix(mix(seed, number), k);
    let below = |k: u64, n: u64| draw(k) % n;
    if below(0, u64::from(factor)) != 0 {
        return Fuzzed::No;
    }
    // The payload follows the transport header; in non-IP packets, the link's header.
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
        // A GSO frame's length does not fit into the header.
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
