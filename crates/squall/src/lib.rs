//! The facade: load a profile, plan it, start it, watch it, report it.
#![forbid(unsafe_code)]

pub mod render;
pub mod report;
