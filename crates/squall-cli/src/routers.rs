//! `squall routers`: a router on a port. The arguments become a profile, which runs like a profile
//! from a file.

use std::process::ExitCode;

use clap::Subcommand;
use squall::Error;
use squall_profile::short::{self, Argument};

use crate::{
    args::Given,
    hosts::HowToRun,
    server::{self, OrderArgs, ShowRoutersArgs},
};

/// Put a router on a port: a routing daemon (BIRD 2 or FRR) that speaks BGP, OSPF, IS-IS or RIP
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  squall routers bgp -i eth1 --address 10.0.0.1/24 --as 65001 --neighbor '10.0.0.2 as 65002' \
                     --routes '16.0.0.0/24 x 100000'                   # until Ctrl-C
  squall routers bgp -i eth1 --address 10.0.0.1/24 --as 65001 --neighbor 10.0.0.2 --bfd 100ms
  squall routers bgp -i eth1 --address 10.0.1.1/16 --as 65001 --neighbor '10.0.0.2 as 65002' \
                     --daemon native --count 1000 --asn-step 1 --routes '16.0.0.0/24 x 1000'
  squall routers ospf -i eth1 --address 10.0.0.1/24 --address 2001:db8::1/64 \
                     --routes '198.51.100.0/24 x 10' -d 10min
  squall routers isis -i eth1 --address 10.0.0.1/24 --area 49.0001 --routes 198.51.100.0/24
  squall routers rip -i eth1 --address 10.0.0.1/24 --routes 198.51.100.0/24
  squall routers bird -i eth1 --address 10.0.0.1/24 --config bird.conf
  squall routers show                            # of a live run of a daemon
  squall routers order withdraw --group edge     # the same

Profiles have the same routers as [[router]], several protocols in one of them, with streams, \
                        flows and hosts in the same run.

Exit status: 0 done, 1 failed by --fail-if, 2 wrong usage or input, 3 environment, 4 NOT VALID \
                        (unless --allow-invalid), 129, 130, 143 interrupted before its end by \
                        SIGHUP, SIGINT, SIGTERM.")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Announce routes by BGP (RFC 4271)
    Bgp(Box<Bgp>),
    /// Announce routes by OSPFv2 (RFC 2328), OSPFv3 (RFC 5340), or both
    Ospf(Box<Ospf>),
    /// Announce routes by IS-IS (ISO/IEC 10589, RFC 1195), with FRR
    Isis(Box<Isis>),
    /// Announce routes by RIPv2 (RFC 2453), RIPng (RFC 2080), or both
    Rip(Box<Rip>),
    /// Run BIRD with a configuration file of your own
    Bird(Box<Bird>),
    Show(ShowRoutersArgs),
    Order(Box<OrderArgs>),
}

#[derive(Debug, clap::Args)]
struct Bgp {
    #[command(flatten)]
    keys: Given<BgpKeys>,
    #[command(flatten)]
    routes: Given<RouteKeys>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct Ospf {
    #[command(flatten)]
    keys: Given<OspfKeys>,
    #[command(flatten)]
    routes: Given<RouteKeys>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct Isis {
    #[command(flatten)]
    keys: Given<IsisKeys>,
    #[command(flatten)]
    routes: Given<RouteKeys>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct Rip {
    #[command(flatten)]
    keys: Given<RipKeys>,
    #[command(flatten)]
    routes: Given<RouteKeys>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct Bird {
    #[command(flatten)]
    keys: Given<BirdKeys>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct BgpKeys {
    /// Use this daemon: bird, frr, or native, which is a part of Squall [default: bird]
    #[arg(long, value_name = "NAME")]
    daemon: Option<String>,
    /// Make N routers whose addresses follow each other, with --daemon native [default: 1]
    #[arg(long, value_name = "N")]
    count: Option<String>,
    /// Let their autonomous systems differ by N [default: 0]
    #[arg(long, value_name = "N")]
    asn_step: Option<String>,
    /// Be in the autonomous system with this number
    #[arg(long = "as", value_name = "N")]
    asn: String,
    /// Have a session with this neighbor: '10.0.0.2 as 65002', or 10.0.0.2 in the same system;
    /// repeatable
    #[arg(long = "neighbor", value_name = "IP as N", required = true)]
    neighbors: Vec<String>,
    /// Offer this hold time, whole seconds [default: 90s]
    #[arg(long, value_name = "TIME")]
    hold: Option<String>,
    /// Sign TCP segments with this password (RFC 2385)
    #[arg(long, value_name = "TEXT")]
    password: Option<String>,
    /// Announce routes with this MULTI_EXIT_DISC [default: none]
    #[arg(long, value_name = "N")]
    med: Option<String>,
    /// Put the own number into the AS path N more times [default: 0]
    #[arg(long, value_name = "N")]
    prepend: Option<String>,
    /// Announce routes with this community (RFC 1997): 65001:100; repeatable
    #[arg(long = "community", value_name = "N:N")]
    communities: Vec<String>,
    /// Watch the neighbors by BFD (RFC 5880), with packets at this interval [default: no BFD]
    #[arg(long, value_name = "TIME")]
    bfd: Option<String>,
}

#[derive(Debug, clap::Args)]
struct OspfKeys {
    /// Be in this area
    #[arg(long, value_name = "AREA", default_value = "0.0.0.0")]
    area: String,
    /// Send hello packets at this interval, whole seconds [default: 10s]
    #[arg(long, value_name = "TIME")]
    hello: Option<String>,
    /// Give a neighbor up after TIME without one, whole seconds [default: four intervals]
    #[arg(long, value_name = "TIME")]
    dead: Option<String>,
    /// Watch the neighbors by BFD (RFC 5880), with packets at this interval [default: no BFD]
    #[arg(long, value_name = "TIME")]
    bfd: Option<String>,
}

#[derive(Debug, clap::Args)]
struct IsisKeys {
    /// Be in this area
    #[arg(long = "area", value_name = "AREA", default_value = "49.0001")]
    isis: String,
    /// Speak this level: 1, 2 or 1-2 [default: 1-2]
    #[arg(long = "level", value_name = "LEVEL")]
    isis_level: Option<String>,
    /// Give the interface this metric [default: 10]
    #[arg(long = "metric", value_name = "N")]
    isis_metric: Option<String>,
    /// Be on a network of this kind: broadcast or point-to-point [default: broadcast]
    #[arg(long = "network", value_name = "KIND")]
    isis_network: Option<String>,
    /// Send hello packets at this interval, whole seconds [default: 10s]
    #[arg(long, value_name = "TIME")]
    hello: Option<String>,
    /// Give a neighbor up after TIME without one, 2 to 100 intervals [default: four intervals]
    #[arg(long, value_name = "TIME")]
    dead: Option<String>,
    /// Watch the neighbors by BFD (RFC 5880), with packets at this interval [default: no BFD]
    #[arg(long, value_name = "TIME")]
    bfd: Option<String>,
}

#[derive(Debug, clap::Args)]
struct RipKeys {
    /// Send updates at this interval, whole seconds [default: 30s]
    #[arg(long = "update", value_name = "TIME")]
    rip_update: Option<String>,
}

#[derive(Debug, clap::Args)]
struct BirdKeys {
    /// Use this configuration; its interface is eth0
    #[arg(long, value_name = "FILE")]
    config: String,
}

#[derive(Debug, clap::Args)]
struct RouteKeys {
    /// Announce this route, or consecutive ones: '10.0.0.0/24 x 1000'; repeatable
    #[arg(long, value_name = "PREFIX [x N]")]
    routes: Vec<String>,
}

#[derive(Debug, clap::Args)]
struct Common {
    #[command(flatten)]
    keys: Given<CommonKeys>,
    #[command(flatten)]
    how: HowToRun,
}

/// Options that all routers share.
#[derive(Debug, clap::Args)]
struct CommonKeys {
    /// Run on this port: eth1, af_packet:eth1
    #[arg(short = 'i', long, value_name = "ADDR")]
    port: String,
    /// Give the router this address; at most one of each IP version
    #[arg(long, value_name = "IP/LEN", required = true)]
    address: Vec<String>,
    /// Give the router this MAC address [default: 02:54:01:00:00:01]
    #[arg(long, value_name = "MAC")]
    mac: Option<String>,
    /// Use this router ID [default: the IPv4 address]
    #[arg(long, value_name = "ID")]
    router_id: Option<String>,
}

pub fn routers(args: &Args) -> Result<ExitCode, Error> {
    let (kind, keys, common) = match &args.what {
        What::Bgp(of) => {
            ("bgp", [&of.keys.arguments[..], &of.routes.arguments].concat(), &of.common)
        }
        What::Ospf(of) => {
            let mut keys = [&of.keys.arguments[..], &of.routes.arguments].concat();
            // A default is an argument, too: without an area there is no OSPF.
            if keys.iter().all(|argument| argument.key != "area") {
                keys.push(argument("area", "--area", Some(&of.keys.args.area)));
            }
            ("ospf", keys, &of.common)
        }
        What::Isis(of) => {
            let mut keys = [&of.keys.arguments[..], &of.routes.arguments].concat();
            // As for OSPF.
            if keys.iter().all(|argument| argument.key != "isis") {
                keys.push(argument("isis", "--area", Some(&of.keys.args.isis)));
            }
            ("isis", keys, &of.common)
        }
        What::Rip(of) => {
            let mut keys = [&of.keys.arguments[..], &of.routes.arguments].concat();
            keys.push(argument("rip", "rip", None));
            ("rip", keys, &of.common)
        }
        What::Bird(of) => ("bird", of.keys.arguments.clone(), &of.common),
        What::Show(args) => return server::show_routers(args),
        What::Order(args) => return server::order_routers(args),
    };
    let arguments = [&keys[..], &common.keys.arguments].concat();
    let port = &common.keys.args.port;
    common.how.run(short::router, &format!("squall routers {kind}"), port, &arguments)
}

fn argument(key: &str, name: &str, text: Option<&str>) -> Argument {
    Argument { key: key.to_owned(), name: name.to_owned(), text: text.map(str::to_owned) }
}
