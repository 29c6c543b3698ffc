//! Profiles as values and as text. A profile describes what a run sends and measures.
//!
//! [`Profile::parse`] reads TOML, YAML or JSON, which all have the same schema. It returns a
//! checked [`Profile`], or [`Diagnostics`] with file, line and column. This crate knows neither the
//! capabilities of ports nor how frames are made.
#![forbid(unsafe_code)]

mod after;
mod attacks;
mod diagnostics;
mod emit;
mod explain;
mod files;
mod flows;
mod hosts;
mod mistakes;
mod model;
mod replay;
mod routers;
mod source;
mod stage;
mod topology;

pub use after::{After, Part};
pub use attacks::*;
pub use diagnostics::{Diagnostic, Diagnostics};
pub use files::{MAX_FILE_SIZE, NamedFile, hello_capture, read_file, read_open, read_text};
pub use flows::*;
pub use hosts::*;
pub use mistakes::ErrorCollector;
pub use model::*;
pub use replay::*;
pub use routers::*;
pub use source::{
    Arrival, Attack, Begin, Conversations, Data, FieldRef, Files, Flows, Format, HostGroup, Http,
    Interface, Network, Pool, PortPair, ProxyProtocol, Replay, Router, RouterGroup, RouterStep,
    Stream, Target, Template, Tls, Vary, schema, short, value_of,
};
pub use stage::Stage;
pub use topology::*;
