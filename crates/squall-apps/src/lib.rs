//! Application content of flows: takes programs, and provides an [`squall_tcp::Application`] that
//! runs them and reports to an [`Observer`].
//!
//! A [`Program`] is plain data: made by a [`ProgramBuilder`], from text ([`Instruction`] and
//! [`Message`] are `FromStr` and `Display`), [built in](builtin), or from a capture ([`import()`]).
//! [`Apps::add`] checks it and compiles it to operations that run without allocating; the state of
//! one flow is a [`State`] of 24 octets. Nothing here has a clock, a thread or a packet.
//!
//! ```
//! use squall_apps::{Apps, Program, Role};
//!
//! let client: Program = Program::client("echo")
//!     .send("hello ${random:hex:8}\r\n")
//!     .recv_until("\r\n")
//!     .delay("uniform 1 ms 5 ms")
//!     .close()
//!     .build()?;
//! let mut apps = Apps::new(1, ());
//! let program = apps.add(&client)?;
//! assert_eq!(apps.role(program), Role::Client);
//! # Ok::<(), squall_apps::ProgramError>(())
//! ```
#![forbid(unsafe_code)]

mod answers;
mod apps;
mod builder;
pub mod builtin;
mod calls;
mod code;
mod data;
pub mod grpc;
mod http;
mod http2;
mod http3;
mod import;
mod layers;
mod message;
mod model;
mod observer;
pub mod proxy;
mod requests;
mod streams;
mod text;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "no_tls.rs"]
mod tls;
pub mod websocket;

pub use apps::{Apps, FlowSocket, Listener, Peers, ProgramId, State, quic_worker};
pub use builder::ProgramBuilder;
pub use calls::{Call, Calls};
pub use data::{Data, DataError, DataOrder};
pub use http2::{Http2, Http2Counts};
pub use http3::{Http3, Http3Counts, MigrateTo};
pub use import::{
    ConversationReport, Delays, End, Hole, Holes, Import, ImportError, ImportOptions, Imported,
    LeftOut, SideReport, import, import_where,
};
pub use message::{Alphabet, Mark, Message, MessageError, NumberForm, Part, Scope};
pub use model::{
    Amount, Check, Compare, Condition, Delay, Instruction, MessageRef, Mistake, Origin, Program,
    ProgramError, Role, Take, TakeForm, Times, Transport, Value,
};
pub use observer::{Counts, EarlyData, Observer, ProtocolError, Report};
pub use squall_tls::{TlsSettings, TlsSettingsError, TlsVersion};
pub use streams::StreamCounts;
pub use tls::{KeyLog, Tls};
