//! Rules of intrusion detection as values: what goes in is the text of rule files in the syntax of
//! Snort 2, Snort 3 or Suricata, what comes out is a [`RuleSet`], in which each rule has one form
//! whatever it was written in.
//!
//! Knows nothing of packets, of how a rule is matched (squall-ids) and of how one is satisfied
//! (squall-attacks). Rules are data: nothing in them is run, no line stops its file, and each line
//! that is not understood is told of.
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
