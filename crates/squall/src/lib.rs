//! The facade: load a [`Profile`], plan it, start it, watch it, report it ([`Session`]).
//!
//! The only door for the command line, the daemon and Python. It chooses backends by address, and
//! does nothing per frame.
//!
//! ```
//! let profile = squall::Profile::parse(
//!     r#"
//!     [ports]
//!     A = "loop:7,virtual"
//!     [[stream]]
//!     packet = "eth/ipv4/udp"
//!     rate = "1 Mpps"
//!     mode = { burst = 1000 }
//!     latency = true
//!     "#,
//!     "example",
//!     squall::Format::Toml,
//! )?;
//! let report = squall::Session::new(profile).open()?.start()?.finish()?;
//! assert_eq!((report.ports[0].tx.packets, report.streams[0].rx.as_ref().unwrap().lost), (1000, 0));
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod assemble;
pub mod attacking;
pub mod capture;
pub mod compare;
mod cpus;
pub mod design;
pub mod driving;
pub mod edit;
mod error;
mod filter;
mod flows;
mod host;
pub mod info;
pub mod kinds;
mod loading;
pub mod looking;
pub mod otg;
mod ports;
pub mod prep;
pub mod probe;
pub mod render;
pub mod replay;
pub mod report;
pub mod scoring;
pub mod selftest;
mod session;
mod unseen;
mod verdict;

pub use capture::Capture;
pub use cpus::parse_cpus;
pub use error::Error;
pub use loading::{PlannedLoad, PlannedPool, PlannedTemplate, applications, import};
pub use ports::{interface_of, open as open_port};
pub use session::{Amount, Opened, Planned, Run, Session};
pub use squall_apps as importing;
pub use squall_capture as capturing;
pub use squall_engine::EngineError;
pub use squall_measure::{
    By, FlowSettings, Pace,
    kinds::{Kind as SequenceKind, Wanted as SequenceKinds},
};
pub use squall_plan::{
    Multiplier, Placement, Plan, PlanPort, PlanStream, PlanWorker, PortLimits, explain,
};
pub use squall_port::{Address, AddressError, PortFacts, Timestamps};
pub use squall_port_linux::{
    Channels, InterfaceInfo, InterfaceState, Offload, Permissions, Timestamping, Xdp, XdpFeatures,
    XdpMode, give_back_memory, keep_memory_together, lab, list_interfaces, tcp_user, user,
};
pub use squall_profile::{
    Diagnostic, Diagnostics, Format, Mode as ProfileMode, Profile, Stream as ProfileStream,
    read_file, read_open, read_text, schema as profile_schema, suggest,
};
pub use squall_replay as replaying;
pub use squall_units as units;
pub use squall_wire as wire;
