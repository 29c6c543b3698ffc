//! The facade: loads a [`Profile`], plans it, runs it, observes it and reports it ([`Session`]).
//!
//! The only entry point for the command line, the daemon and Python. It selects backends by
//! address, and does no work per frame.
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

#[cfg(feature = "attacks")]
use squall_attacking as attacking;
#[cfg(not(feature = "attacks"))]
#[path = "no_attacks.rs"]
mod attacking;
pub mod capture;
mod error;
mod routers;
mod session;
mod settings;

pub use error::Error;
pub use session::{Amount, Caller, Held, Listeners, Opened, Planned, Resolved, Run, Session};
pub use squall_engine::{EngineError, ThreadLoad};
pub use squall_flows::{FlowInfo, FlowState, Ignored, OpenFlow, Services};
pub use squall_options::{Multiplier, RunOptions};
pub use squall_plan::{
    Placement, Plan, PlanPort, PlanReplay, PlanStream, PlanWorker, PlannedLoad, PlannedPool,
    PlannedTemplate, PortLimits, StreamDivision,
};
pub use squall_port::{CommonClock, PortFacts};
pub use squall_profile::{
    Diagnostic, Diagnostics, Format, Mode as ProfileMode, Profile, Stream as ProfileStream,
};
pub use squall_record::{host_table::HostSearch, totals};
pub use squall_report::{host_table, report};
