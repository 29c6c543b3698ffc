//! `squall serve`: the daemon.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode, time::Duration};

use serde_json::json;
use squall::{Error, units::Nanos};
use squall_server::{Bound, Needs, Origin, Settings, Token};
use tracing_subscriber::filter::LevelFilter;

use super::logging;

/// Run traffic for many users: an HTTPS API, Open Traffic Generator (HTTPS and gRPC) and a web
/// page
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  squall serve                                   # https://127.0.0.1:8443, for this machine only
  squall serve --listen 0.0.0.0:8443 --grpc 0.0.0.0:40051 --name lab7.example   # for others, who need the token
  squall serve --allow 'af_packet:ens*' --allow eth2           # these interfaces besides labs
  sudo squall serve --user squall --allow af_packet:eth1       # with CAP_NET_RAW alone
  squall serve --listen 127.0.0.1:0 --grpc off --json          # any free port, told as JSON
  squall serve --peer https://lab2.example:8443                # lab2's page shows this one, and this one's lab2
  curl -k https://127.0.0.1:8443/squall/v1/info
  curl --unix-socket ~/.local/state/squall/socket http://localhost/squall/v1/runs

SIGTERM and SIGINT stop all traffic, write the history and end, within two seconds.
The token is in DATA/token; it is printed when it is made, and never again.")]
pub struct Args {
    /// Where to listen for HTTPS; port 0 takes any that is free
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8443")]
    listen: SocketAddr,
    /// Where to listen for gRPC of Open Traffic Generator, with TLS unless it is loopback; off:
    /// nowhere
    #[arg(long, value_name = "ADDR:PORT|off", default_value = "127.0.0.1:40051", value_parser = grpc)]
    grpc: Grpc,
    /// No TLS for gRPC off loopback either: token and configurations can be read on the way
    #[arg(long)]
    grpc_plain: bool,
    /// HTTP instead of HTTPS: behind a proxy that has a certificate; then everybody needs the token
    #[arg(long)]
    plain: bool,
    /// Token, certificate, history and files [default: $XDG_STATE_HOME/squall,
    /// ~/.local/state/squall; of root /var/lib/squall]
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
    /// Who needs the token: auto (all but you and root on this machine; all where it listens for
    /// other machines, or with --plain), always, none, or FILE to read it from
    #[arg(long, value_name = "auto|always|none|FILE", default_value = "auto")]
    token: String,
    /// How long a client that is gone keeps its ports, and its traffic
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = crate::args::parse_time)]
    lease: Nanos,
    /// Interfaces and devices that may be used, * for any text: eth1, 'af_packet:ens*', 'dpdk:*';
    /// repeatable. Labs, ports in memory and files always may; an interface with a default route
    /// only by its full name
    #[arg(long, value_name = "ADDR-PATTERN")]
    allow: Vec<String>,
    /// Certificate (PEM, with its chain) [default: one of its own, made on the first start]
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Its key (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Name under which it is asked, besides localhost and its addresses; repeatable
    #[arg(long, value_name = "HOST")]
    name: Vec<String>,
    /// Another daemon, https://HOST:PORT: its page may ask this one, with this one's token, and this
    /// one's page may ask it; repeatable
    #[arg(long, value_name = "URL")]
    peer: Vec<Origin>,
    /// Least level that is logged on standard error, or to the journal: error, warn, info, debug,
    /// trace
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: LevelFilter,
    /// Started as root: become this user, and keep no capabilities but those that the allowed kinds
    /// of ports need (not dpdk)
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Says where it listens as one line of JSON
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
            .map_err(|_| format!("{address:?} is no address\n  try 127.0.0.1:40051, or off")),
    }
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
            "socket": bound.socket,
            "token_file": bound.token_file,
            // Who comes over TCP from elsewhere has a user that nobody knows.
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
        let tls = if bound.grpc_tls { ", by TLS" } else { "" };
        text += &format!("gRPC of Open Traffic Generator at {grpc}{tls}\n");
    }
    if let Some(socket) = &bound.socket {
        text += &format!("unix socket {}\n", socket.display());
    }
    if !bound.withheld.is_empty() {
        let names: Vec<_> = bound.withheld.iter().map(|(name, _)| name.as_str()).collect();
        text += &format!("not allowed: {}; --allow NAME allows one\n", names.join(", "));
    }
    let needed = match bound.needs {
        Needs::Everybody => "needed".to_owned(),
        Needs::Others(0) => "not needed by root on this machine".to_owned(),
        Needs::Others(own) => format!("not needed by user {own} and root on this machine"),
        Needs::Nobody => "not needed by anybody on this machine".to_owned(),
    };
    text += &match &bound.new_token {
        Some(token) => format!(
            "token ({needed}; told this once, kept in {}):\n{token}\n",
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
    let root = squall::Permissions::of_this_process();
    if root.uid == 0 && !root.user_namespace && variable("XDG_STATE_HOME").is_none() {
        return Ok("/var/lib/squall".into());
    }
    let state = variable("XDG_STATE_HOME").or(home.map(|home| home.join(".local/state")));
    let state =
        state.ok_or_else(|| Error::Usage("there is no home folder\n  try --data FOLDER".into()))?;
    Ok(state.join("squall"))
}
