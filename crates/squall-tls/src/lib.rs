//! Settings of TLS sessions, and the configuration of rustls that is made from them: certificates,
//! names, versions. Flows and the 802.1X supplicants of hosts have the sessions themselves. Hellos
//! of browsers and of captures, which clients send in place of rustls's own, and the sessions of
//! these clients.
#![forbid(unsafe_code)]

#[cfg(feature = "hello")]
mod client;
#[cfg(feature = "rustls")]
mod config;
mod hello;
#[cfg(feature = "hello")]
mod hybrid;
#[cfg(feature = "rustls")]
mod key_log;
#[cfg(feature = "rustls")]
mod per_name;
mod settings;
#[cfg(feature = "rustls")]
mod shares;

#[cfg(feature = "hello")]
pub use client::{HelloClient, HelloClientConfig, HelloClientError, HelloProgress};
#[cfg(feature = "hello")]
pub use config::hello_client_config;
#[cfg(feature = "rustls")]
pub use config::{client_config, server_config, server_name};
pub use hello::{Body, Browser, Extension, Fresh, Hello, HelloError, Psk, Retry};
#[cfg(feature = "rustls")]
pub use key_log::KeyLogFile;
pub use settings::{TlsSettings, TlsSettingsError, TlsVersion};
#[cfg(feature = "rustls")]
pub use shares::client_resumes;
