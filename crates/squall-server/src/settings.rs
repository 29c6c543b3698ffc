//! Settings of the daemon.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use crate::{Origin, cluster::Controller, trex::Trex};

/// Settings of the daemon.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address for HTTPS; port 0 means any free port.
    pub listen: SocketAddr,
    /// Address for OTG's gRPC; `None` if it is off. It uses TLS unless the address is loopback.
    pub grpc: Option<SocketAddr>,
    /// Whether gRPC runs without TLS even off loopback.
    pub grpc_plain: bool,
    /// Whether to serve plain HTTP.
    pub plain: bool,
    /// Directory for token, certificate, history and files.
    pub data: PathBuf,
    pub token: Token,
    /// Time after which a port held by an unreachable client becomes free.
    pub lease: Duration,
    /// Patterns (with `*`) of further addresses that requests may use. Addresses in memory, files
    /// and labs need none.
    pub allow: Vec<String>,
    /// Certificate and key (PEM); `None` if the daemon makes its own.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Further host names of the daemon. Requests for other host names are refused.
    pub names: Vec<String>,
    /// Other daemons. Their pages may access this one with its token, and this daemon's page may
    /// access them.
    pub peers: Vec<Origin>,
    /// User to become after a start as root.
    pub user: Option<String>,
    /// `None` if TRex's clients are not served.
    pub trex: Option<Trex>,
    /// Inventory files of the nodes that runs can use.
    pub inventories: Vec<PathBuf>,
    pub controller: Controller,
}

impl Settings {
    /// Patterns of the ports that requests may use. Includes the ports of `--trex`, so that users
    /// need not name them again with `--allow`.
    pub(crate) fn allowed(&self) -> Vec<String> {
        let of_trex = self.trex.iter().flat_map(|trex| &trex.ports);
        let of_trex = of_trex.filter_map(|address| address.parse::<squall_port::Address>().ok());
        let whole = of_trex.map(|address| match address.kind() {
            "" => address.name().to_owned(),
            kind => format!("{kind}:{}", address.name()),
        });
        self.allow.iter().cloned().chain(whole).collect()
    }

    /// Whether gRPC uses TLS. It does not on loopback, because stock OTG clients cannot use TLS for
    /// gRPC, and the traffic does not leave the machine.
    pub(crate) fn grpc_has_tls(&self) -> bool {
        self.grpc.is_some_and(|address| !address.ip().is_loopback()) && !self.grpc_plain
    }
}

#[cfg(test)]
impl Settings {
    /// Settings for tests: loopback without TLS.
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

/// Which clients need the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    /// All clients need it except the daemon's own user and root, whom the kernel identifies on a
    /// Unix socket and, if the daemon listens only on loopback, on TCP. There is no exception if
    /// the daemon's user has no number in this user namespace.
    Auto,
    /// All clients need it.
    Always,
    /// As `Always`, with the token from this file.
    File(PathBuf),
    /// No client needs it; refused for addresses off loopback.
    None,
}

/// Which clients need the token, as determined when the daemon starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    Everybody,
    /// All clients except this user and root on this machine.
    Others(u32),
    Nobody,
}

/// Addresses of the TRex server.
#[derive(Clone, Debug)]
pub struct BoundTrex {
    /// Addresses for requests and events.
    pub sync: SocketAddr,
    pub asynchronous: SocketAddr,
    /// Paths of the Unix sockets for requests and events.
    pub sockets: Option<(PathBuf, PathBuf)>,
    /// Which clients are refused.
    pub needs: Needs,
}

/// Addresses of the running daemon.
#[derive(Clone, Debug)]
pub struct Bound {
    pub https: SocketAddr,
    pub grpc: Option<SocketAddr>,
    pub grpc_tls: bool,
    pub trex: Option<BoundTrex>,
    /// Path of a Unix socket that serves all APIs without TLS.
    pub socket: Option<PathBuf>,
    pub token_file: PathBuf,
    pub needs: Needs,
    /// Interfaces that requests may not use, each with the reason.
    pub withheld: Vec<(String, &'static str)>,
    /// The token, if it was made at this start.
    pub new_token: Option<String>,
}
