//! `squall hosts`: hosts of one kind on a port. The arguments become a profile, which runs like a
//! profile from a file.

use std::process::ExitCode;

use clap::Subcommand;
use squall::Error;
use squall_profile::short::{self, Short};

use crate::{
    args::{Choice, Given, Options, Output},
    drive::drive,
    output,
};

/// Emulate hosts on a port: DHCP clients, hosts that answer ARP or ND, hosts that ping
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  squall hosts dhcp -i eth1 --count 1000 --rate 100/s          # until each has an address or failed
  squall hosts dhcp -i eth1 --count 100k --rate 2000/s --duration 10min --release
  squall hosts arp -i eth1 --address 10.0.0.2/16 --count 5000  # until Ctrl-C
  squall hosts ping -i eth1 --address 10.0.0.2/16 --count 50 --to 10.0.0.1 --rate 1000
  squall hosts nd -i eth1 --count 1000                         # addresses with the router's prefix
  squall hosts dhcp6 -i eth1 --count 1000 --rate 100/s --prefix 56

Profiles have the same hosts as [[host]], with other sources, and a DHCP server in memory.

Exit status: 0 done, 1 failed by --fail-if, 2 wrong usage or input, 3 environment, 4 NOT VALID \
                        (unless --allow-invalid), 129, 130, 143 interrupted before its end by \
                        SIGHUP, SIGINT, SIGTERM.")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Get addresses by DHCPv4 (RFC 2131)
    Dhcp(Box<Dhcp>),
    /// Get addresses and prefixes by DHCPv6 (RFC 9915)
    Dhcp6(Box<Dhcp6>),
    /// Answer ARP and echo requests for static addresses
    Arp(Box<Arp>),
    /// Answer neighbor solicitations and echo requests for IPv6 addresses (RFC 4861, 4862)
    Nd(Box<Nd>),
    /// Send echo requests from static addresses
    Ping(Box<Ping>),
}

#[derive(Debug, clap::Args)]
struct Dhcp {
    #[command(flatten)]
    keys: Given<DhcpKeys>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct Dhcp6 {
    #[command(flatten)]
    keys: Given<Dhcp6Keys>,
    /// Ask for other configuration only, with an address of the router's prefix
    #[arg(long, conflicts_with_all = ["prefix", "rapid_commit", "first_offer"])]
    stateless: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct Nd {
    #[command(flatten)]
    keys: Given<NdKeys>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct Arp {
    #[command(flatten)]
    keys: Given<ArpKeys>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct Ping {
    #[command(flatten)]
    keys: Given<PingKeys>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct DhcpKeys {
    /// Start N hosts per second, whether or not earlier ones have an address: 2000/s [default: all
    /// at once]
    #[arg(long = "rate", value_name = "N")]
    setup: Option<String>,
    /// Give the addresses back at the end of the run
    #[arg(long)]
    release: bool,
    /// Repeat a message for the first time after TIME; it doubles each time, up to 64 s [default:
    /// 4s]
    #[arg(long, value_name = "TIME")]
    retry: Option<String>,
    /// Give up after N messages without an answer [default: 5]
    #[arg(long, value_name = "N")]
    tries: Option<String>,
    /// Send TEXT as the vendor class (option 60)
    #[arg(long, value_name = "TEXT")]
    vendor: Option<String>,
}

#[derive(Debug, clap::Args)]
struct Dhcp6Keys {
    /// Start N hosts per second, whether or not earlier ones have an address: 2000/s [default: all
    /// at once]
    #[arg(long = "rate", value_name = "N")]
    setup: Option<String>,
    /// Give the addresses back at the end of the run
    #[arg(long)]
    release: bool,
    /// Ask for a prefix of N bits, too; 0: of any length
    #[arg(long, value_name = "N")]
    prefix: Option<String>,
    /// Ask for leases with two messages instead of four
    #[arg(long)]
    rapid_commit: bool,
    /// Take the first offer, and do not wait a second for better ones
    #[arg(long)]
    first_offer: bool,
    /// Repeat a message for the first time after TIME; it doubles each time [default: 1s]
    #[arg(long, value_name = "TIME")]
    retry: Option<String>,
    /// Give up after N messages without an answer [default: 5]
    #[arg(long, value_name = "N")]
    tries: Option<String>,
    /// Examine an address N times before its use [default: 1]
    #[arg(long, value_name = "N")]
    dad: Option<String>,
}

#[derive(Debug, clap::Args)]
struct NdKeys {
    /// Make addresses with the router's prefix, or give the first host this address, and each
    /// further one the next: 2001:db8::2/64
    #[arg(long = "address", value_name = "slaac|IP/PREFIX", default_value = "slaac")]
    ipv6: String,
    /// Start N hosts per second [default: all at once]
    #[arg(long = "rate", value_name = "N")]
    setup: Option<String>,
    /// Make the last 64 bits of addresses from the MAC address, or random ones (RFC 7217) [default:
    /// eui64]
    #[arg(long, value_name = "eui64|stable")]
    interface_id: Option<String>,
    /// Examine an address N times before its use [default: 1]
    #[arg(long, value_name = "N")]
    dad: Option<String>,
}

#[derive(Debug, clap::Args)]
struct ArpKeys {
    /// Give the first host this address, and each further one the next: 10.0.0.2/16
    #[arg(long = "address", value_name = "IP/PREFIX")]
    ipv4: String,
    /// Start N hosts per second [default: all at once]
    #[arg(long = "rate", value_name = "N")]
    setup: Option<String>,
}

#[derive(Debug, clap::Args)]
struct PingKeys {
    /// Give the first host this address, and each further one the next: 10.0.0.2/16, 2001:db8::2/64
    #[arg(long, value_name = "IP/PREFIX")]
    address: String,
    /// Send echo requests to this address, or to the gateway
    #[arg(long = "to", value_name = "IP|gateway", default_value = "gateway")]
    ping: String,
    /// Send packets to other networks to this router
    #[arg(long, value_name = "IP")]
    gateway: Option<String>,
    /// Send N echo requests per second, over all hosts in turn [default: 100]
    #[arg(long = "rate", value_name = "N")]
    ping_rate: Option<String>,
    /// Send N echo requests from each host [default: 3]
    #[arg(long = "requests", value_name = "N")]
    ping_count: Option<String>,
}

#[derive(Debug, clap::Args)]
struct Common {
    #[command(flatten)]
    keys: Given<CommonKeys>,
    /// Print the equivalent profile, and start nothing
    #[arg(long, help_heading = "Result")]
    print_profile: bool,
    #[command(flatten)]
    options: Options<OfHosts>,
    #[command(flatten)]
    output: Output,
}

/// Options that all hosts share.
#[derive(Debug, clap::Args)]
struct CommonKeys {
    /// Run on this port: eth1, af_packet:eth1, loop:NAME
    #[arg(short = 'i', long, value_name = "ADDR")]
    port: String,
    /// Emulate N hosts [default: 1]
    #[arg(long, value_name = "N")]
    count: Option<String>,
    /// Give the first host this MAC address, and each further one the next [default:
    /// 02:53:00:00:00:01]
    #[arg(long, value_name = "MAC")]
    mac: Option<String>,
    /// Put the hosts into this VLAN
    #[arg(long, value_name = "ID")]
    vlan: Option<String>,
    /// Examine each IPv4 address for conflicts before its use (RFC 5227)
    #[arg(long, conflicts_with = "silent")]
    probe: bool,
    /// Do not announce IPv4 addresses
    #[arg(long)]
    silent: bool,
}

/// Run options of hosts. A filter could drop frames that hosts need, and hosts send no frames that
/// a count could end.
#[derive(Debug)]
pub struct OfHosts;

impl Choice for OfHosts {
    fn has(name: &str) -> bool {
        !["octets", "packets", "receive", "filter", "labels", "cores", "mult"].contains(&name)
    }
}

pub fn hosts(args: &Args) -> Result<ExitCode, Error> {
    let (kind, arguments, common) = match &args.what {
        What::Dhcp(of) => ("dhcp", &of.keys.arguments, &of.common),
        What::Dhcp6(of) => ("dhcp6", &of.keys.arguments, &of.common),
        What::Arp(of) => ("arp", &of.keys.arguments, &of.common),
        What::Nd(of) => ("nd", &of.keys.arguments, &of.common),
        What::Ping(of) => ("ping", &of.keys.arguments, &of.common),
    };
    let mut arguments = [&arguments[..], &common.keys.arguments].concat();
    // A default of a command is an argument, too, because its key has another default.
    let default = match &args.what {
        What::Ping(ping) => Some(("ping", "--to", ping.keys.args.ping.as_str())),
        What::Nd(nd) => Some(("ipv6", "--address", nd.keys.args.ipv6.as_str())),
        What::Dhcp6(dhcp) if dhcp.stateless => Some(("ipv6", "--stateless", "stateless")),
        What::Dhcp6(_) => Some(("ipv6", "dhcp6", "dhcp")),
        What::Dhcp(_) | What::Arp(_) => None,
    };
    if let Some((key, name, text)) = default
        && arguments.iter().all(|argument| argument.key != key)
    {
        let (key, name, text) = (key.to_owned(), name.to_owned(), Some(text.to_owned()));
        arguments.push(short::Argument { key, name, text });
    }
    let port = &common.keys.args.port;
    let command = format!("squall hosts {kind}");
    let short = Short { command: &command, ports: &[port], arguments: &arguments };
    let session = common.options.session(short::hosts(short)?)?;
    if common.print_profile {
        output::print_data(&session.profile.to_toml());
        return Ok(ExitCode::SUCCESS);
    }
    drive(session, &common.output, &format!("{command} on {port}"))
}
