//! Settings of TLS sessions, independent of the TLS library.

use std::sync::Arc;

use crate::Hello;

/// Settings of a template's TLS sessions. By default TLS 1.3, a new handshake for each flow, a
/// certificate generated for the run, and no verification of the peer's certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsSettings {
    /// The name that clients request (SNI) and that the generated certificate contains; an address
    /// is not sent. `None`: the server's address.
    pub server_name: Option<String>,
    /// Whether clients that verify the server accept a certificate for any name.
    pub any_name: bool,
    /// Protocols that are offered or accepted, in order of preference (ALPN).
    pub alpn: Vec<String>,
    /// PEM: certificate authorities with which clients verify the server.
    pub ca: Option<Vec<u8>>,
    /// PEM: the server's chain and key.
    pub certificate: Option<(Vec<u8>, Vec<u8>)>,
    /// PEM: the chain and key of clients, for servers that request a certificate.
    pub client_certificate: Option<(Vec<u8>, Vec<u8>)>,
    /// PEM: certificate authorities with which servers verify clients, whose certificate they then
    /// request.
    pub client_ca: Option<Vec<u8>>,
    /// Whether servers issue tickets and clients use them.
    pub resumption: bool,
    /// Whether servers make a certificate for each name that clients request.
    pub certificate_per_name: bool,
    /// Whether also clients with a ticket, and their servers, make a new key share each time.
    pub fresh_key_shares: bool,
    /// The highest common version is used. Empty: TLS 1.3.
    pub versions: Vec<TlsVersion>,
    /// Cipher suites and key exchange groups that are offered or accepted, in order of preference,
    /// by their names at IANA or OpenSSL. Empty: all of the library.
    pub ciphers: Vec<String>,
    pub groups: Vec<String>,
    /// The hello that clients send, which has their versions, protocols, cipher suites and groups.
    /// `None`: that of rustls.
    pub hello: Option<Arc<Hello>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TlsVersion {
    Tls12,
    Tls13,
}

/// An error in the setting named `setting`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct TlsSettingsError {
    pub setting: &'static str,
    pub text: String,
}

impl TlsSettingsError {
    /// The error of a build without TLS.
    pub fn unsupported() -> Self {
        let text = "this build does not support TLS\n  try a build with the feature: cargo build \
                    --release -p squall-cli --features tls";
        Self { setting: "", text: text.into() }
    }
}
