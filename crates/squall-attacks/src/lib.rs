//! Traffic from rules: what goes in is a [`squall_rules::RuleSet`], what comes out are attacks,
//! each a conversation that makes an intrusion detection raise one rule's alert, with a label that
//! says so.
//!
//! ```text
//! rule -> solve (octets of each buffer; regex) -> assemble (messages of a protocol) -> Exchange -> wire (frames)
//!                                    `---------- examined by squall-ids, tried otherwise where it does not match
//! ```
//!
//! Payloads are octets that match patterns, not exploits. Knows no ports, clocks and files: time is
//! what a caller says.
#![forbid(unsafe_code)]

pub mod assemble;
mod csv;
pub mod evade;
pub mod exchange;
pub mod labels;
mod log_time;
pub mod near_misses;
#[cfg(test)]
mod receiver;
pub mod regex;
pub mod score;
pub mod solve;
pub mod suite;
pub mod templates;
pub mod wire;

pub use evade::Evasion;
pub use exchange::{Exchange, Octets, Origin, Shape, Transport, Turn};
pub use labels::Label;
pub use near_misses::{NearMiss, near_miss};
pub use solve::{Solution, Solver, Unsolved};
pub use squall_rules::{End, EngineVersion};
