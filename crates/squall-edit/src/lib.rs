//! A packet of a capture -> those that take its place: rewritten, mapped, cut, filled up, or none.
//!
//! Pure: what comes out depends on the packet, on what was asked for, and on a seed.
#![forbid(unsafe_code)]
