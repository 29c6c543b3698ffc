//! What the daemon is told when it starts.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

/// How the daemon serves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// HTTPS; port 0: any that is free.
    pub listen: SocketAddr,
    /// gRPC of OTG; `None`: off.
    pub grpc: Option<SocketAddr>,
    /// HTTP instead of HTTPS.
    pub plain: bool,
    /// Where token, certificate, history and files are.
    pub data: PathBuf,
    pub token: Token,
    /// How long a dead client keeps a port.
    pub lease: Duration,
    /// Addresses that may be used, with `*`; none: all.
    pub allow: Vec<String>,
    /// Certificate and key (PEM); `None`: one of its own.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Names, besides localhost and addresses, under which it may be asked.
    pub names: Vec<String>,
}

#[cfg(test)]
impl Settings {
    /// On loopback without TLS, for tests.
    pub fn of_test(data: PathBuf) -> Self {
        Self {
            listen: ([127, 0, 0, 1], 0).into(),
            grpc: None,
            plain: true,
            data,
            token: Token::Auto,
            lease: Duration::from_secs(30),
            allow: Vec::new(),
            certificate: None,
            names: Vec::new(),
        }
    }
}

/// Who has to know the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    /// Everybody, unless only loopback is listened on.
    Auto,
    /// Everybody.
    Always,
    /// As `Always`; it is in this file.
    File(PathBuf),
    /// Nobody; refused for other addresses than loopback.
    None,
}

/// Where it listens, when it does.
#[derive(Clone, Debug)]
pub struct Bound {
    pub https: SocketAddr,
    pub grpc: Option<SocketAddr>,
    pub token_file: PathBuf,
    /// Whether requests have to show the token.
    pub token_required: bool,
    /// Only when it was made now.
    pub new_token: Option<String>,
}
