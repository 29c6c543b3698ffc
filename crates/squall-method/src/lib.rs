//! Standard tests of network devices: methods that request trials, evaluate their results, and
//! decide on the next one.
//!
//! Input: a method ([`Method`]) and a [`Rig`]. A [`Runner`] sends and measures the trials. Output:
//! an [`Outcome`] with verdict, figures, tables, plots, and every trial. The crate uses no port,
//! clock or file: the same trials with the same results give the same outcome.
//!
//! ```
//! use squall_method::{Bench, Device, Method, NoWatch, RetryPolicy, Rig, rfc2544};
//!
//! let rig = Rig::one_stream("A to B", 1e9);
//! let settings = rfc2544::Settings { frame_sizes: vec![64], ..Default::default() };
//! let mut device = Device { capacity_fps: 1e6, buffer: 100.0, delay_ns: 5_000, ..Device::ideal() };
//! let mut watch = NoWatch;
//! let mut bench = Bench::new(&mut device, &mut watch, RetryPolicy::default());
//! let outcome = Method::Rfc2544(settings).run(&rig, &mut bench)?;
//! let found = outcome.figure("throughput/64").unwrap().value;
//! assert!(found <= 1e6 && found > 0.995e6);
//! # Ok::<_, squall_method::MethodError>(())
//! ```
#![forbid(unsafe_code)]

pub mod ab;
mod bench;
mod bracket;
pub mod bufferbloat;
mod burst;
pub mod capacity;
mod connections;
mod fields;
mod method;
pub mod mlrsearch;
mod model;
mod outage;
mod outcome;
mod path;
pub mod render;
pub mod rfc2544;
pub mod rfc2889;
pub mod rfc3918;
pub mod rfc6349;
pub mod rfc8219;
pub mod rfc8239;
pub mod rfc9411;
mod rig;
mod search;
mod settings;
pub mod soak;
mod stations;
pub mod trend;
mod trial;
pub mod tst009;
pub mod y1564;

pub use bench::{Bench, Bounds, MethodError, NoWatch, RecordedTrial, RetryPolicy, Runner, Watch};
pub use bracket::{Bracket, TrialResult};
pub use method::{Estimate, Method, MethodInfo};
pub use model::Device;
pub use outcome::{
    Better, Comparison, Figure, Limit, Outcome, Plot, Series, Status, Table, Verdict, compare,
    schema,
};
pub use path::Path;
pub use rig::{MaxLoad, Rig, RigLane};
#[cfg(feature = "clap")]
pub use settings::seconds;
pub use squall_report::report::{ArrivedRange, LossPeriods};
pub use trial::{
    Action, Bulk, Delay, Dns, FlowLoad, FlowsMeasured, Goodput, Http, Kept, Lane, LaneMeasured,
    Measured, PortMeasured, ReceiverMeasured, Second, Template, Trial,
};
