//! Traffic from rules. The input is a [`squall_rules::RuleSet`]. The output is attacks:
//! conversations that make an intrusion detection system raise the alert of one rule, each with a
//! label.
//!
//! ```text
//! rule -> solve (octets of each buffer; regex) -> assemble (messages of a protocol) -> Exchange -> wire (frames)
//!                                    `---------- examined by squall-ids; retried if the rule does not match
//! ```
//!
//! Payloads are octets that match patterns, not exploits. This crate knows no ports, clocks or
//! files: callers pass the time.
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
