//! `squall replay --stateful`: the conversations of a capture over real TCP and UDP. The arguments
//! are converted to a profile, which runs like one from a file.

use std::process::ExitCode;

use squall::Error;
use squall_profile::short::{self, Short};

use crate::{drive::drive, output, replay::Args};

/// Options of conversations.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Conversations (--stateful)")]
pub struct Stateful {
    /// Play the capture's conversations over Squall's own TCP/UDP stack: on -i as clients of live
    /// servers, with -I also as the servers, with a device in between
    #[arg(long, conflicts_with_all = REFUSED)]
    pub stateful: bool,
    /// Send all conversations to this server: 10.0.0.2, 10.0.0.2:8080, [fd00::2]:80 [default: the
    /// captured servers]
    #[arg(long, value_name = "ADDR[:PORT]", requires = "stateful")]
    server: Option<String>,
    /// Replace the captured clients' addresses with these, one for each in turn: 10.0.1.0/24;
    /// repeatable [default: the captured addresses]
    #[arg(long, value_name = "RANGE", requires = "stateful")]
    clients: Vec<String>,
    /// Start N conversations per second, in their order
    #[arg(long, value_name = "N", requires = "stateful", group = "speed")]
    cps: Option<String>,
    /// Keep the pauses inside conversations, drop them, or multiply them by a factor such as 0.5
    /// [default: as set by --multiplier, keep with --cps, drop with --topspeed]
    #[arg(long, value_name = "keep|drop|FACTOR", requires = "stateful")]
    delays: Option<String>,
    /// Drop pauses shorter than this, which come from the network [default: 1ms]
    #[arg(long, value_name = "TIME", requires = "stateful")]
    shortest_delay: Option<String>,
    /// Open at most N conversations at once; others wait
    #[arg(long, value_name = "N", requires = "stateful")]
    at_once: Option<String>,
    /// Skip conversations whose beginning or octets are missing in the capture, cut them at the
    /// first hole, or fill holes with zeros [default: skip]
    #[arg(long, value_name = "skip|cut|zeros", requires = "stateful")]
    incomplete: Option<String>,
    /// Give up a conversation when nothing arrived for this time plus the captured pause of the
    /// other side; 0: never [default: 10s]
    #[arg(long, value_name = "TIME", requires = "stateful")]
    within: Option<String>,
    /// Set an option of TCP: mss=1400, time_wait=0s; repeatable
    #[arg(long, value_name = "NAME=VALUE", requires = "stateful")]
    tcp: Vec<String>,
    /// Send all packets of clients to this router; once for each of IPv4 and IPv6
    #[arg(long, value_name = "IP", requires = "stateful")]
    gateway: Vec<String>,
    /// Send all packets of servers to this router; once for each of IPv4 and IPv6
    #[arg(long, value_name = "IP", requires = "stateful")]
    gateway2: Vec<String>,
    /// Send all packets of clients to this MAC address, without ARP or ND
    #[arg(long, value_name = "MAC", requires = "stateful", conflicts_with = "gateway")]
    next_hop: Option<String>,
}

/// Options for frames. They do not apply to conversations, whose packets are made by the TCP/UDP
/// stack.
const REFUSED: [&str; 30] = [
    "dualfile",
    "pktlen",
    "stats",
    "merge",
    "preload",
    "pps",
    "pps_multi",
    "mbps",
    "oneatatime",
    "verbose",
    "rate",
    "ramp",
    "maxsleep",
    "limit",
    "cache",
    "auto",
    "cidr",
    "regex",
    "by_port",
    "mac",
    "reverse",
    "unique_ip",
    "unique_ip_loops",
    "flow_expiry",
    "no_flow_stats",
    "max_flows",
    "include",
    "exclude",
    "too_long",
    "EditArgs",
];

pub fn stateful(args: &Args) -> Result<ExitCode, Error> {
    let what = &args.what;
    let [file] = &what.args.files[..] else {
        return Err(Error::Usage(format!(
            "--stateful plays one capture, and there are {}\n  try squall edit --merge first, or \
             one run for each",
            what.args.files.len()
        )));
    };
    if file.as_os_str() == "-" {
        return Err(Error::Usage(
            "--stateful reads its capture before the first packet leaves\n  try a file instead \
             of -"
                .into(),
        ));
    }
    let profile = short::conversations(Short {
        command: "squall replay",
        ports: &what.args.ports(),
        arguments: &[&what.arguments[..], &args.stateful.arguments].concat(),
    })?;
    let session = args.options.session(profile)?;
    if args.print_profile {
        output::print_data(&session.profile.to_toml());
        return Ok(ExitCode::SUCCESS);
    }
    drive(session, &args.output, &format!("squall replay --stateful {}", file.display()))
}
