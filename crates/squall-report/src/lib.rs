//! Reports. Input: figures of a run ([`report`]) or of captures ([`info`]). Output: a verdict
//! ([`verdict`]), criteria that are met or not ([`report::fail_if`]), text, pages and live views
//! ([`render`]), received flows by conversation and by host ([`conversations`]), and the report of
//! a run of several parts ([`merge`]).
//!
//! The crate has no ports, plans, clocks or files, and uses only histograms from Squall's other
//! crates: callers that measured fill in the figures.
//!
//! ```
//! use squall_report::{render, report::{Report, fail_if::FailIf}};
//!
//! let report = Report { command: "squall send".into(), ..Report::default() };
//! assert_eq!(FailIf::parse("loss > 0").unwrap().check(&report).len(), 1, "nothing was measured");
//! assert!(render::html(&report).starts_with("<!doctype html>"));
//! ```
#![forbid(unsafe_code)]

pub mod conversations;
pub mod info;
pub mod merge;
pub mod render;
pub mod report;
pub mod verdict;
