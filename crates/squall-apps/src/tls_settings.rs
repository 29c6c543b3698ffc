//! What can be said of TLS sessions, as values.

/// What can be said of the TLS sessions of a template. Default: TLS 1.3, a new handshake for each
/// flow, a certificate that is made for the run, and no look at that of the peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsSettings {
    /// Whom clients ask for (SNI), and whom the certificate that is made is for; an address is not
    /// sent. `None`: the server's address.
    pub server_name: Option<String>,
    /// Protocols that are offered or accepted, in order (ALPN).
    pub alpn: Vec<String>,
    /// PEM: clients verify the certificate of the server by these.
    pub ca: Option<Vec<u8>>,
    /// PEM: the chain of the server, and its key.
    pub certificate: Option<(Vec<u8>, Vec<u8>)>,
    /// PEM: the chain that clients show to servers that ask for one, and its key.
    pub client_certificate: Option<(Vec<u8>, Vec<u8>)>,
    /// PEM: servers ask clients for a certificate, and verify it by these.
    pub client_ca: Option<Vec<u8>>,
    /// Servers give tickets, and clients use them.
    pub resumption: bool,
    /// Of which the highest that both have is used. Empty: TLS 1.3.
    pub versions: Vec<TlsVersion>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TlsVersion {
    Tls12,
    Tls13,
}

/// What is wrong with a setting, which is `setting`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct TlsSettingsError {
    pub setting: &'static str,
    pub text: String,
}
