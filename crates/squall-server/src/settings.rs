//! What the daemon is told when it starts.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use crate::{Origin, cluster::Controller, trex::Trex};

/// How the daemon serves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// HTTPS; port 0: any that is free.
    pub listen: SocketAddr,
    /// gRPC of OTG; `None`: off. Off loopback it has TLS.
    pub grpc: Option<SocketAddr>,
    /// gRPC has no TLS off loopback either.
    pub grpc_plain: bool,
    /// HTTP instead of HTTPS.
    pub plain: bool,
    /// Where token, certificate, history and files are.
    pub data: PathBuf,
    pub token: Token,
    /// How long a dead client keeps a port.
    pub lease: Duration,
    /// Addresses that may be used besides those in memory, files and labs; with `*`.
    pub allow: Vec<String>,
    /// Certificate and key (PEM); `None`: one of its own.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Names, besides localhost and addresses, under which it may be asked.
    pub names: Vec<String>,
    /// Other daemons, whose pages may ask this one with its token, and which its page may ask.
    pub peers: Vec<Origin>,
    /// Started as root, it becomes this user.
    pub user: Option<String>,
    /// `None`: TRex's clients are not served.
    pub trex: Option<Trex>,
    /// Files of the nodes on which runs can go.
    pub inventories: Vec<PathBuf>,
    pub controller: Controller,
}

impl Settings {
    /// Patterns of the ports that may be used. A port that `--trex` names is named by that.
    pub(crate) fn allowed(&self) -> Vec<String> {
        let of_trex = self.trex.iter().flat_map(|trex| &trex.ports);
        let of_trex = of_trex.filter_map(|address| address.parse::<squall_port::Address>().ok());
        let whole = of_trex.map(|address| match address.kind() {
            "" => address.name().to_owned(),
            kind => format!("{kind}:{}", address.name()),
        });
        self.allow.iter().cloned().chain(whole).collect()
    }

    /// Stock clients of OTG know no TLS of gRPC, and on loopback there is nobody to keep it from.
    pub(crate) fn grpc_has_tls(&self) -> bool {
        self.grpc.is_some_and(|address| !address.ip().is_loopback()) && !self.grpc_plain
    }
}

#[cfg(test)]
impl Settings {
    /// On loopback without TLS, for tests.
    pub fn of_test(data: PathBuf) -> Self {
        Self {
            listen: ([127, 0, 0, 1], 0).into(),
            grpc: None,
            grpc_plain: false,
            plain: true,
            data,
            token: Token::None,
            lease: Duration::from_secs(30),
            allow: Vec::new(),
            certificate: None,
            names: Vec::new(),
            peers: Vec::new(),
            user: None,
            trex: None,
            inventories: Vec::new(),
            controller: Controller::default(),
        }
    }
}

/// Who has to know the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    /// Everybody but the daemon's own user and root, who are known on a unix socket and, where only
    /// loopback is listened on, on TCP. Everybody if its user has no number in this user namespace.
    Auto,
    /// Everybody.
    Always,
    /// As `Always`; it is in this file.
    File(PathBuf),
    /// Nobody; refused for other addresses than loopback.
    None,
}

/// Who has to show the token, as it turned out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    Everybody,
    /// All but this user and root, on this machine.
    Others(u32),
    Nobody,
}

/// Where TRex's clients are served.
#[derive(Clone, Debug)]
pub struct BoundTrex {
    /// Requests, and events.
    pub sync: SocketAddr,
    pub asynchronous: SocketAddr,
    /// The same over unix sockets.
    pub sockets: Option<(PathBuf, PathBuf)>,
    /// Who is not let in.
    pub needs: Needs,
}

/// Where it listens, when it does.
#[derive(Clone, Debug)]
pub struct Bound {
    pub https: SocketAddr,
    pub grpc: Option<SocketAddr>,
    pub grpc_tls: bool,
    pub trex: Option<BoundTrex>,
    /// A unix socket for all of it, without TLS.
    pub socket: Option<PathBuf>,
    pub token_file: PathBuf,
    pub needs: Needs,
    /// Interfaces that requests may not use, and why.
    pub withheld: Vec<(String, &'static str)>,
    /// Only when it was made now.
    pub new_token: Option<String>,
}
