//! The daemon: runs for many users at once.
//!
//! Takes requests over HTTP and gRPC, and provides reports, statistics and captures. Assigns ports
//! to owners ([`leases`]); the crates below run the traffic. [`Client`] is the other end, for the
//! command line. This crate does not know how frames are made, and opens no file outside its
//! directory for a request.
#![forbid(unsafe_code)]

mod api;
mod audit;
mod auth;
mod budget;
mod client;
mod cluster;
mod coding;
mod connection;
mod design;
mod drain;
mod error;
mod files;
mod gui;
mod history;
mod identity;
mod inventory;
mod job;
mod leases;
mod log;
mod memory;
mod metrics;
mod middleware;
mod otg;
mod peers;
mod places;
mod ports;
mod runs;
mod server;
mod service;
mod settings;
mod slow_body;
mod testing;
mod threads;
mod tls;
mod trex;
mod unprivileged;
mod watch;
mod work;
mod zmtp;

pub use api::document as openapi;
pub use client::{Client, ClientEvent, Verify};
pub use cluster::{ClusterProgress, Controller, NodeRow, OnLoss, Totals};
pub use error::Refusal;
pub use peers::Origin;
pub use runs::{Kind as RunKind, RunPort, RunRow, RunVerdict, State as RunState};
pub use server::{serve, serve_until};
pub use settings::{Bound, BoundTrex, Needs, Settings, Token};
pub use squall_trex::FlowMode;
pub use testing::{TestProgress, TrialRow};
pub use trex::Trex;
pub use watch::{WatchEvent, WatchedHosts, WatchedPort, WatchedSource, WatchedStream};
