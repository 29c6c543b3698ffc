//! Load: pools of addresses, arrivals of flows, what became of them. Frames and the time go in, frames come out.
//!
//! Knows no clock, no thread and no port.
#![forbid(unsafe_code)]
