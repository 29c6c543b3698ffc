//! Reports. The input is figures of a run ([`report`]) or of captures ([`info`]). The output is a
//! verdict ([`verdict`]), results of criteria ([`report::fail_if`]), text, pages and live views
//! ([`render`]), received flows by conversation and by host ([`conversations`]), emulated hosts one
//! by one ([`host_table`]), and merged reports
//! of runs that consist of several parts ([`merge`]).
//!
//! The crate uses no ports, plans, clocks or files, and of Squall's other crates only the
//! histograms. Callers fill in the figures that they measured.
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
pub mod host_table;
pub mod info;
pub mod merge;
pub mod render;
pub mod report;
pub mod verdict;
