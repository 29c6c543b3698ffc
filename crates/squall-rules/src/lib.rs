//! Intrusion detection rules as values. The input is the text of rule files in the syntax of Snort
//! 2, Snort 3 or Suricata. The output is a [`RuleSet`], in which all rules have the same form,
//! whatever their dialect.
//!
//! This crate is independent of packets, and of how rules are matched (squall-ids) or satisfied
//! (squall-attacks). Rules are data: nothing in them is executed. An invalid line does not prevent
//! the rest of its file from being read; each line that is not understood becomes a [`Problem`].
#![forbid(unsafe_code)]

mod buffer;
mod keywords;
mod model;
mod numbers;
mod options;
mod rule;
mod set;
mod values;
mod variables;

pub use buffer::Buffer;
pub use keywords::{Keyword, KeywordReading, all as keywords};
pub use model::*;
pub use numbers::{Addresses, Numbers};
pub use set::Reader;
pub use variables::Variables;
