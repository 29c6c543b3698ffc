//! Sequence numbers: arithmetic modulo 2^32 (RFC 9293 §3.4). Also used for ticks.

/// `a < b`, provided that they are less than 2^31 apart.
#[inline]
pub(crate) fn lt(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// `a <= b`.
#[inline]
pub(crate) fn le(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) <= 0
}

#[inline]
pub(crate) fn max(a: u32, b: u32) -> u32 {
    if lt(a, b) { b } else { a }
}

#[inline]
pub(crate) fn min(a: u32, b: u32) -> u32 {
    if lt(a, b) { a } else { b }
}

/// Octets from `a` to `b`; 0 if `b` precedes `a`.
#[inline]
pub(crate) fn distance(a: u32, b: u32) -> u32 {
    if lt(a, b) { b.wrapping_sub(a) } else { 0 }
}
