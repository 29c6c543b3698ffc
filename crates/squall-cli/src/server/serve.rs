//! `squall serve`: the daemon.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode, time::Duration};

use serde_json::json;
use squall::Error;
use squall_server::{Bound, Controller, Needs, Origin, Settings, Token, Trex};
use squall_units::Nanos;
use tracing_subscriber::filter::LevelFilter;

use super::logging;

/// Run traffic for many users: an HTTPS API, Open Traffic Generator (HTTPS and gRPC) and a web
/// page
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  squall serve                                   # https://127.0.0.1:8443, for this machine only
  squall serve --listen 0.0.0.0:8443 --grpc 0.0.0.0:40051 --name lab7.example   # for other machines, with the token
  squall serve --allow 'af_packet:ens*' --allow eth2           # these interfaces as well as labs
  sudo squall serve --user squall --allow af_packet:eth1       # with CAP_NET_RAW only
  squall serve --listen 127.0.0.1:0 --grpc off --json          # any free port, printed as JSON
  squall serve --trex eth1,eth2                  # for your TRex clients and console, at port 4501
  squall serve --peer https://lab2.example:8443                # lab2's page can use this daemon, and this one's page lab2
  squall serve --inventory lab.toml              # with runs on several machines: \"nodes\": \"lab\"
  curl -k https://127.0.0.1:8443/squall/v1/info
  curl --unix-socket ~/.local/state/squall/socket http://localhost/squall/v1/runs

SIGTERM and SIGINT stop all traffic, write the history and end, within two seconds.
The token is in DATA/token; it is printed only once, when it is created.")]
pub struct Args {
    /// Listen for HTTPS on this address; port 0 is any free port
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8443")]
    listen: SocketAddr,
    /// Listen for gRPC of Open Traffic Generator on this address, with TLS unless it is loopback;
    /// off: do not listen
    #[arg(long, value_name = "ADDR:PORT|off", default_value = "127.0.0.1:40051", value_parser = grpc)]
    grpc: Grpc,
    /// Do not use TLS for gRPC, even if it is not on loopback: token and configurations can then be
    /// read in transit
    #[arg(long)]
    grpc_plain: bool,
    /// Use HTTP instead of HTTPS, behind a proxy that has a certificate; everyone then needs the
    /// token
    #[arg(long)]
    plain: bool,
    /// Keep token, certificate, history and files in this folder [default: $XDG_STATE_HOME/squall,
    /// ~/.local/state/squall; for root /var/lib/squall]
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
    /// Require the token from: auto (everyone except you and root on this machine; everyone if it
    /// listens for other machines, or with --plain), always (everyone), none (no one), or as
    /// always, with the token read from FILE
    #[arg(long, value_name = "auto|always|none|FILE", default_value = "auto")]
    token: String,
    /// Stop the traffic of a client that is gone after this time, and free its ports
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = crate::args::parse_time)]
    lease: Nanos,
    /// Allow these interfaces and devices, * for any text: eth1, 'af_packet:ens*', 'dpdk:*';
    /// repeatable. Labs, ports in memory and files are always allowed; an interface with a default
    /// route only by its full name
    #[arg(long, value_name = "ADDR-PATTERN")]
    allow: Vec<String>,
    /// Use this certificate (PEM, with its chain) [default: its own, created on the first start]
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Use this key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Answer requests to this host name, as well as to localhost and the machine's addresses;
    /// repeatable
    #[arg(long, value_name = "HOST")]
    name: Vec<String>,
    /// Let the page of this other daemon, https://HOST:PORT, use this one with this one's token,
    /// and this one's page use the other; repeatable
    #[arg(long, value_name = "URL")]
    peer: Vec<Origin>,
    /// Log to standard error, or to the journal, from this level on: error, warn, info, debug,
    /// trace
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: LevelFilter,
    /// Serve TRex's clients and console of root and of the daemon's user: these ports, which need no
    /// --allow, are TRex's 0, 1, ...
    #[arg(long, value_name = "PORT[,PORT...]", num_args = 1, help_heading = "TRex")]
    trex: Option<String>,
    /// Serve stateless clients (stl), or clients of flows on two ports, the first for the clients of
    /// the flows (astf)
    #[arg(long, value_name = "MODE", default_value = "stl", value_parser = ["stl", "astf"], help_heading = "TRex")]
    trex_mode: String,
    /// Header of the packets of streams with latency: Squall's signature (squall), which another
    /// TRex does not know, or TRex's own 16 octets (trex)
    #[arg(long, value_name = "FORM", default_value = "squall", value_parser = ["squall", "trex"], help_heading = "TRex")]
    trex_payload: String,
    /// Listen for TRex's requests on this port, or ADDR:PORT
    #[arg(long, value_name = "[ADDR:]PORT", default_value = "4501", value_parser = zmq, help_heading = "TRex")]
    trex_sync: SocketAddr,
    /// Listen for subscribers of TRex's events on this port, or ADDR:PORT
    #[arg(long, value_name = "[ADDR:]PORT", default_value = "4500", value_parser = zmq, help_heading = "TRex")]
    trex_async: SocketAddr,
    /// Let everyone with access to these addresses use the TRex ports, without a token: other users
    /// of this machine, and other machines if an address is not loopback
    #[arg(long, requires = "trex", help_heading = "TRex")]
    trex_allow_anyone: bool,
    /// When started as root, change to this user, and keep only the capabilities that the allowed
    /// kinds of ports need (not dpdk)
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Let runs go over the nodes of this inventory (squall run --nodes), which clients name by its
    /// name; repeatable
    #[arg(long, value_name = "INVENTORY.toml", help_heading = "Several machines")]
    inventory: Vec<PathBuf>,
    /// Print the addresses it listens on as one line of JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug)]
struct Grpc(Option<SocketAddr>);

fn grpc(text: &str) -> Result<Grpc, String> {
    match text {
        "off" => Ok(Grpc(None)),
        address => address
            .parse()
            .map(|address| Grpc(Some(address)))
            .map_err(|_| format!("{address:?} is not an address\n  try 127.0.0.1:40051, or off")),
    }
}

fn zmq(text: &str) -> Result<SocketAddr, String> {
    let port = text.parse::<u16>().map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    port.or_else(|_| text.parse())
        .map_err(|_| format!("{text:?} is no port and no address\n  try 4501, or 0.0.0.0:4501"))
}

/// Splits at commas into addresses. A part with a `=`, and `virtual`, are options of the port
/// before it.
fn trex_ports(text: &str) -> Vec<String> {
    let mut ports: Vec<String> = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let option = part.contains('=') || (!part.contains(':') && part == "virtual");
        match ports.last_mut().filter(|_| option) {
            Some(port) => *port = format!("{port},{part}"),
            None => ports.push(part.to_owned()),
        }
    }
    ports
}

pub fn serve(args: &Args) -> Result<ExitCode, Error> {
    let settings = Settings {
        listen: args.listen,
        grpc: args.grpc.0,
        grpc_plain: args.grpc_plain,
        plain: args.plain,
        data: args.data.clone().map_or_else(default_folder, Ok)?,
        token: match args.token.as_str() {
            "auto" => Token::Auto,
            "always" => Token::Always,
            "none" => Token::None,
            file => Token::File(file.into()),
        },
        lease: Duration::from_nanos(args.lease.0),
        allow: args.allow.clone(),
        certificate: args.cert.clone().zip(args.key.clone()),
        names: args.name.clone(),
        peers: args.peer.clone(),
        user: args.user.clone(),
        trex: args.trex.as_deref().map(|ports| Trex {
            ports: trex_ports(ports),
            flows: args.trex_mode == "astf",
            headers: args.trex_payload == "trex",
            sync: args.trex_sync,
            asynchronous: args.trex_async,
            allow_anyone: args.trex_allow_anyone,
        }),
        inventories: args.inventory.clone(),
        controller: Controller::default(),
    };
    logging::start(args.log_level);
    squall_server::serve(settings, |bound| tell(args, bound))?;
    Ok(ExitCode::SUCCESS)
}

fn tell(args: &Args, bound: &Bound) {
    let scheme = if args.plain { "http" } else { "https" };
    let page = format!("{scheme}://{}", bound.https);
    if args.json {
        let line = json!({
            "https": page,
            "grpc": bound.grpc.map(|grpc| grpc.to_string()),
            "grpc_tls": bound.grpc_tls,
            "trex": bound.trex.as_ref().map(|trex| json!({
                "sync": trex.sync.to_string(), "async": trex.asynchronous.to_string(),
                "sync_socket": trex.sockets.as_ref().map(|(sync, _)| sync),
                "async_socket": trex.sockets.as_ref().map(|(_, asynchronous)| asynchronous),
                "open_to_everyone": trex.needs == Needs::Nobody,
            })),
            "socket": bound.socket,
            "token_file": bound.token_file,
            // The kernel cannot identify the user of a TCP connection from another machine.
            "token_required": match bound.needs {
                Needs::Everybody => true,
                Needs::Others(_) => !bound.https.ip().is_loopback(),
                Needs::Nobody => false,
            },
            "new_token": bound.new_token,
            "not_allowed": bound.withheld.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        });
        return crate::output::print_data(&format!("{line}\n"));
    }
    let mut text = format!("squall serves {page}\n");
    if let Some(grpc) = bound.grpc {
        let tls = if bound.grpc_tls { ", with TLS" } else { "" };
        text += &format!("gRPC of Open Traffic Generator at {grpc}{tls}\n");
    }
    if let Some(socket) = &bound.socket {
        text += &format!("unix socket {}\n", socket.display());
    }
    if !bound.withheld.is_empty() {
        let names: Vec<_> = bound.withheld.iter().map(|(name, _)| name.as_str()).collect();
        text += &format!("not allowed: {}; --allow NAME allows one\n", names.join(", "));
    }
    if let Some(trex) = &bound.trex {
        let users = match trex.needs {
            Needs::Others(0) => "of root".to_owned(),
            Needs::Others(own) => format!("of user {own} and root"),
            Needs::Nobody | Needs::Everybody => "of everyone who can reach these addresses".into(),
        };
        text +=
            &format!("TRex's clients {users} at {}, events at {}\n", trex.sync, trex.asynchronous);
    }
    // The users of TCP connections are known only if the daemon listens on loopback alone.
    let loopback = bound.grpc.iter().chain([&bound.https]).all(|at| at.ip().is_loopback());
    let place = if loopback { "on this machine" } else { "on the unix socket" };
    let needed = match bound.needs {
        Needs::Everybody => "needed by everyone".to_owned(),
        Needs::Others(0) => format!("not needed by root {place}"),
        Needs::Others(own) => format!("not needed by user {own} and root {place}"),
        Needs::Nobody => "not needed by anyone on this machine".to_owned(),
    };
    text += &match &bound.new_token {
        Some(token) => format!(
            "token ({needed}; printed only this once, stored in {}):\n{token}\n",
            bound.token_file.display()
        ),
        None => format!("token in {} ({needed})\n", bound.token_file.display()),
    };
    crate::output::print(&text);
}

fn default_folder() -> Result<PathBuf, Error> {
    let variable =
        |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = variable("HOME");
    let root = squall_port_linux::Permissions::of_this_process();
    if root.uid == 0 && !root.user_namespace && variable("XDG_STATE_HOME").is_none() {
        return Ok("/var/lib/squall".into());
    }
    let state = variable("XDG_STATE_HOME").or(home.map(|home| home.join(".local/state")));
    let state =
        state.ok_or_else(|| Error::Usage("there is no home folder\n  try --data FOLDER".into()))?;
    Ok(state.join("squall"))
}
