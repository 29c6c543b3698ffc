//! Reports. The input is figures of a run ([`report`]) or of captures ([`info`]). The output is a
//! verdict ([`verdict`]), criteria that are met or not ([`report::fail_if`]), text, pages and live
//! views ([`render`]), received flows by conversation and by host ([`conversations`]), and the
//! merged report of a run with several parts ([`merge`]).
//!
//! The crate has no ports, plans, clocks or files. From Squall's other crates it uses only
//! histograms: callers that measured fill in the figures.
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
