//! Open Traffic Generator (OTG): translates configurations and implements a session.
//!
//! [`translate`] converts a JSON configuration ([`Config`]) to a [`squall_profile::Profile`] with a
//! list of its ports, flows and devices by their OTG names, or lists every invalid or unsupported
//! part with its path ([`Problems`]). [`replies`] has the other messages, and [`lsas`] the databases
//! of routers. All of these are pure and
//! open no port.
//!
//! A [`Controller`] runs a configuration, with flows that start and stop, captures and devices. It
//! is independent of the transport.
//!
//! ```
//! use serde_json::json;
//! use squall_otg::{Config, translate};
//!
//! let config = Config::from_json(&json!({
//!     "ports": [{ "name": "tx", "location": "loop:0" }],
//!     "flows": [{ "name": "web", "tx_rx": { "port": { "tx_name": "tx" } }, "rate": { "choice": "pps", "pps": 10 } }],
//! }))?;
//! let translated = translate(&config)?;
//! assert_eq!((translated.profile.streams.len(), translated.flows[0].tx_port.as_str()), (1, "tx"));
//! # Ok::<(), squall_otg::Problems>(())
//! ```
#![forbid(unsafe_code)]

mod bgp;
mod captures;
mod config;
mod controller;
mod devices;
mod dhcpv6;
mod extended;
mod flows;
mod headers;
mod lags;
mod lldp;
pub mod lsas;
mod packet;
mod patterns;
mod problems;
mod read;
mod reference;
pub mod replies;
mod routers;
mod translate;

pub use config::Config;
pub use controller::{Controller, Refusal};
pub use problems::{Problem, Problems};
pub use reference::reference;
pub use translate::{
    BgpPeerInfo, CaptureInfo, Counting, DeviceInfo, Dhcp6ClientInfo, Dhcp6ServerInfo,
    DhcpClientInfo, DhcpServerInfo, EgressInfo, EgressTag, FlowInfo, IpInfo, LagInfo,
    LagMemberInfo, LldpInfo, MetricsInfo, PortInfo, Resolved, RouteBlock, RouteRangeInfo,
    RouterInfo, StreamInfo, TagValue, Translated, Unresolved, VlanInfo, translate, translate_with,
};
