//! Experiments of papers, repeated.

pub mod kute;
mod receivers;
