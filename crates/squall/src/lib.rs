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
#[cfg(not(feature = "attacks"))]
#[path = "no_attacks.rs"]
pub mod attacking;
pub mod capture;
mod cpus;
pub mod doctor;
pub mod driving;
mod error;
mod flows;
pub mod forward;
mod host;
pub mod import;
pub mod kinds;
pub mod listing;
mod names;
mod offline;
mod played;
mod ports;
pub mod probe;
pub mod recordings;
pub mod replay;
mod room;
pub mod selftest;
mod session;
mod sources;
pub mod speaking;
pub mod totals;
pub mod trials;

pub use capture::Capture;
pub use cpus::allowed as allowed_cpus;
pub use error::Error;
pub use host::{host, wall_offset};
pub use names::Names;
#[cfg(feature = "attacks")]
pub use offline::scoring;
pub use offline::{edit, info, prep};
pub use ports::{interface_of, is_there as port_is_there, open as open_port};
pub use session::{Amount, Held, Opened, Planned, Run, Session};
pub use squall_apps as importing;
#[cfg(feature = "attacks")]
pub use squall_attacking as attacking;
pub use squall_capture as capturing;
pub use squall_engine::{Busy, EngineError};
pub use squall_flows::{FlowInfo, FlowState, Ignored, OpenFlow, Services};
pub use squall_measure::{
    By, FlowSettings, Pace,
    kinds::{Kind as SequenceKind, Wanted as SequenceKinds},
};
pub use squall_method as method;
pub use squall_options::{self as options, Multiplier, RunOptions};
pub use squall_plan::{
    Placement, Plan, PlanPort, PlanReplay, PlanStream, PlanWorker, PlannedLoad, PlannedPool,
    PlannedTemplate, PortLimits, StreamDivision, explain,
    flows::{applications, catalogue},
};
pub use squall_port::{
    Address, AddressError, CommonClock, PortFacts, Timestamps, elsewhere::KIND as ELSEWHERE,
    monotonic, output,
};
pub use squall_port_linux::{
    Channels, InterfaceInfo, InterfaceState, Offload, Permissions, Timestamping, Xdp, XdpFeatures,
    XdpMode, filter, give_back_memory, keep_memory_together, lab, list_interfaces, tcp_user, user,
};
pub use squall_profile::{
    Diagnostic, Diagnostics, Format, Mode as ProfileMode, Profile, Stream as ProfileStream,
    read_file, read_open, read_text, schema as profile_schema, short,
};
pub use squall_replay as replaying;
pub use squall_report::{conversations, merge::whole, render, report};
pub use squall_units as units;
pub use squall_wire as wire;
