//! Settings of TLS sessions, and the configuration of rustls that is made from them: certificates,
//! names, versions. Flows and the 802.1X supplicants of hosts have the sessions themselves.
#![forbid(unsafe_code)]

#[cfg(feature = "rustls")]
mod config;
#[cfg(feature = "rustls")]
mod key_log;
mod settings;

#[cfg(feature = "rustls")]
pub use config::{client_config, server_config, server_name};
#[cfg(feature = "rustls")]
pub use key_log::KeyLogFile;
pub use settings::{TlsSettings, TlsSettingsError, TlsVersion};
