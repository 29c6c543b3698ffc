//! `squall hosts`: hosts of one kind on a port. The arguments become a profile, which runs like a
//! profile from a file.

use std::process::ExitCode;

use clap::Subcommand;
use squall::Error;
use squall_profile::{
    Diagnostics, Profile,
    short::{self, Argument, Short},
};

use crate::{
    args::{Choice, Given, Options, Output},
    drive::drive,
    output,
    server::{self, ShowArgs},
};

/// Emulate hosts on a port: DHCP, PPPoE, ARP, ND, ping, multicast groups, LLDP, CDP, DNS, LACP, 802.1X
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  squall hosts dhcp -i eth1 --count 1000 --rate 100/s          # until each has an address or failed
  squall hosts dhcp -i eth1 --count 100k --rate 2000/s --duration 10min --release
  squall hosts dhcp -i eth1 --relay 10.0.0.2 --circuit ge-0/0/1  # option 82
  squall hosts dhcp -i eth1 --count 254 --fault decline              # empties the server's pool
  squall hosts arp -i eth1 --address 10.0.0.2/16 --count 5000  # until Ctrl-C
  squall hosts ping -i eth1 --address 10.0.0.2/16 --count 50 --to 10.0.0.1 --rate 1000
  squall hosts nd -i eth1 --count 1000                         # addresses with the router's prefix
  squall hosts dhcp6 -i eth1 --count 1000 --rate 100/s --prefix 56
  squall hosts igmp -i eth1 --address 10.0.0.2/16 --join 239.1.0.1-239.1.39.16 --rate 1000/s
  squall hosts lldp -i eth1 --count 20 --name 'host-{}' -d 5min
  squall hosts cdp -i eth1 --count 20 --name 'phone-{}' -d 5min
  squall hosts dns -i eth1 --count 50 --name www.example.com --rate 1000/s --requests 100
  squall hosts dot1x -i eth1 --identity user --password secret -d 1min
  squall hosts dot1x -i eth1 --method peap --ca ca.pem --identity 'u{}' --password p --count 100
  squall hosts dot1x -i eth1 --method tls --ca ca.pem --certificate me.pem --key me.key \
                     --identity me
  squall hosts lacp -i eth1 --key 7 --address 10.0.0.2/16 -d 5min
  squall hosts pppoe -i eth1 --count 1000 --rate 100/s --identity 'user{}' --password secret
  squall hosts show 17                                         # of a live run of a daemon

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
    /// Join multicast groups by IGMP and MLD (RFC 3376, RFC 3810)
    Igmp(Box<Igmp>),
    /// Announce hosts by LLDP, and list their neighbors (IEEE 802.1AB)
    Lldp(Box<Lldp>),
    /// Announce hosts by CDP, Cisco's discovery protocol, and list their neighbors
    Cdp(Box<Cdp>),
    /// Ask a DNS server for names, with addresses by DHCP or static ones (RFC 1035)
    Dns(Box<Dns>),
    /// Authenticate by 802.1X with EAP-MD5, EAP-TLS, PEAP or EAP-TTLS
    Dot1x(Box<Dot1x>),
    /// Form an aggregate with the partner of the port (LACP, IEEE 802.1AX)
    Lacp(Box<Lacp>),
    /// Get addresses in sessions of PPPoE (RFC 2516)
    Pppoe(Box<Pppoe>),
    Show(ShowArgs),
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
struct Igmp {
    #[command(flatten)]
    keys: Given<IgmpKeys>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct Lldp {
    #[command(flatten)]
    keys: Given<LldpKeys>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct Cdp {
    #[command(flatten)]
    keys: Given<CdpKeys>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct Dns {
    #[command(flatten)]
    keys: Given<DnsKeys>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct Dot1x {
    #[command(flatten)]
    keys: Given<Dot1xKeys>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct Lacp {
    #[command(flatten)]
    keys: Given<LacpKeys>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct Pppoe {
    #[command(flatten)]
    keys: Given<PppoeKeys>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct IgmpKeys {
    /// Give the first host this address, and each further one the next: 10.0.0.2/16
    #[arg(long = "address", value_name = "IP/PREFIX")]
    ipv4: String,
    /// Join this multicast group, or each of a range: 239.1.0.1-239.1.3.255, or one of IPv6
    #[arg(long, value_name = "GROUP")]
    join: String,
    /// Join N groups with each host, in turn [default: all]
    #[arg(long = "each", value_name = "N")]
    join_each: Option<String>,
    /// Join N groups per second: 1000/s [default: all at once]
    #[arg(long = "rate", value_name = "N")]
    join_rate: Option<String>,
    /// Leave each group after TIME [default: at the end]
    #[arg(long = "for", value_name = "TIME")]
    join_time: Option<String>,
    /// Use this version of IGMP, 1 to 3, until a querier has an older one [default: 3]
    #[arg(long, value_name = "N")]
    igmp: Option<String>,
    /// Use this version of MLD, 1 or 2, until a querier has an older one [default: 2]
    #[arg(long, value_name = "N")]
    mld: Option<String>,
    /// Want only this source
    #[arg(long = "source", value_name = "IP")]
    sources: Option<String>,
    /// Want all sources but this one
    #[arg(long, requires = "sources")]
    exclude: bool,
    /// Leave the groups at the end of the run
    #[arg(long = "leave")]
    release: bool,
}

#[derive(Debug, clap::Args)]
struct LldpKeys {
    /// Announce each host at this interval
    #[arg(long = "interval", value_name = "TIME", default_value = "30s")]
    lldp: String,
    /// Let neighbors keep an announcement for N intervals [default: 4]
    #[arg(long = "hold", value_name = "N")]
    lldp_hold: Option<String>,
    /// Announce this system name, with the number of the host for {} [default: none]
    #[arg(long = "name", value_name = "TEXT")]
    lldp_name: Option<String>,
    /// Give the first host this address, and each further one the next
    #[arg(long = "address", value_name = "IP/PREFIX", default_value = "none")]
    ipv4: String,
}

#[derive(Debug, clap::Args)]
struct CdpKeys {
    /// Announce each host at this interval
    #[arg(long = "interval", value_name = "TIME", default_value = "60s")]
    cdp: String,
    /// Let neighbors keep an announcement for TIME, at most 255 s [default: 180s]
    #[arg(long = "hold", value_name = "TIME")]
    cdp_hold: Option<String>,
    /// Announce this device ID, with the number of the host for {} [default: its MAC address]
    #[arg(long = "name", value_name = "TEXT")]
    cdp_name: Option<String>,
    /// Give the first host this address, and each further one the next
    #[arg(long = "address", value_name = "IP/PREFIX", default_value = "none")]
    ipv4: String,
}

#[derive(Debug, clap::Args)]
struct DnsKeys {
    /// Ask for NAME, with the number of the host for {} and that of the question for {q}; repeatable
    #[arg(long = "name", value_name = "NAME", required = true)]
    resolve: Vec<String>,
    /// Ask for addresses of IPv4 (a), IPv6 (aaaa), or both [default: a]
    #[arg(long = "type", value_name = "a|aaaa|both")]
    resolve_type: Option<String>,
    /// Ask this server [default: that of DHCP]
    #[arg(long = "server", value_name = "IP")]
    dns_server: Option<String>,
    /// Give the first host this address, and each further one the next, or ask DHCP
    #[arg(long, value_name = "IP/PREFIX", default_value = "dhcp")]
    address: String,
    /// Send packets to other networks to this router
    #[arg(long, value_name = "IP")]
    gateway: Option<String>,
    /// Ask N questions per second, over all hosts in turn [default: 100]
    #[arg(long = "rate", value_name = "N")]
    resolve_rate: Option<String>,
    /// Ask N questions from each host [default: 1]
    #[arg(long = "requests", value_name = "N")]
    resolve_count: Option<String>,
    /// Repeat a question after TIME without an answer [default: 5s]
    #[arg(long = "timeout", value_name = "TIME")]
    resolve_timeout: Option<String>,
    /// Send each question at most N times [default: 2]
    #[arg(long = "tries", value_name = "N")]
    resolve_tries: Option<String>,
}

#[derive(Debug, clap::Args)]
struct Dot1xKeys {
    /// Authenticate by this method: md5, tls, peap (with MSCHAPv2), ttls-pap, ttls-mschapv2
    #[arg(long = "method", value_name = "NAME", default_value = "md5")]
    auth: String,
    /// Identify as TEXT, with the number of the host for {}
    #[arg(long, value_name = "TEXT")]
    identity: String,
    /// Identify as TEXT outside TLS, in plain text [default: as --identity]
    #[arg(long, value_name = "TEXT")]
    anonymous_identity: Option<String>,
    /// Use this password, with the number of the host for {}
    #[arg(long, value_name = "TEXT")]
    password: Option<String>,
    /// Trust only servers with a certificate of these authorities (PEM) [default: any server]
    #[arg(long, value_name = "FILE")]
    ca: Option<String>,
    /// Trust only a server with this name in its certificate [default: any name]
    #[arg(long, value_name = "NAME", requires = "ca")]
    server_name: Option<String>,
    /// Show this certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<String>,
    /// Use this key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<String>,
    /// Then get an address by "dhcp", or use this one: 10.0.0.2/16
    #[arg(long = "address", value_name = "IP/PREFIX", default_value = "none")]
    ipv4: String,
    /// Start N hosts per second [default: all at once]
    #[arg(long = "rate", value_name = "N")]
    setup: Option<String>,
    /// Repeat EAPOL-Start after TIME without an answer [default: 30s]
    #[arg(long = "start", value_name = "TIME")]
    auth_start: Option<String>,
    /// Begin again TIME after a failure [default: 60s]
    #[arg(long = "held", value_name = "TIME")]
    auth_held: Option<String>,
    /// Give up after N failures in a row [default: 3]
    #[arg(long = "tries", value_name = "N")]
    auth_tries: Option<String>,
    /// Authenticate again this long after each time [default: when the authenticator asks]
    #[arg(long = "again", value_name = "TIME")]
    auth_again: Option<String>,
    /// Log off at the end of the run
    #[arg(long = "logoff")]
    release: bool,
}

#[derive(Debug, clap::Args)]
struct LacpKeys {
    /// Begin at once, or wait for an active partner
    #[arg(long = "mode", value_name = "active|passive", default_value = "active")]
    lacp: String,
    /// Ask for an LACPDU each second or each 30 seconds [default: fast]
    #[arg(long = "rate", value_name = "fast|slow")]
    lacp_rate: Option<String>,
    /// Be a port of this system [default: the MAC address of the host]
    #[arg(long = "system", value_name = "MAC")]
    lacp_system: Option<String>,
    /// Be in the aggregate with this key [default: 1]
    #[arg(long = "key", value_name = "N")]
    lacp_key: Option<String>,
    /// Give the host this address
    #[arg(long = "address", value_name = "IP/PREFIX", default_value = "none")]
    ipv4: String,
}

#[derive(Debug, clap::Args)]
struct PppoeKeys {
    /// Authenticate by "pap", "chap", as the server wants it, or not at all
    #[arg(long = "auth", value_name = "any|pap|chap|none", default_value = "any")]
    pppoe: String,
    /// Identify as TEXT, with the number of the host for {}
    #[arg(long, value_name = "TEXT")]
    identity: Option<String>,
    /// Use this password, with the number of the host for {}
    #[arg(long, value_name = "TEXT")]
    password: Option<String>,
    /// Ask for this service [default: any]
    #[arg(long = "service", value_name = "TEXT")]
    pppoe_service: Option<String>,
    /// Accept offers only from this access concentrator [default: any]
    #[arg(long = "ac", value_name = "TEXT")]
    pppoe_ac: Option<String>,
    /// Start N hosts per second, whether or not earlier ones have an address: 100/s [default: all at
    /// once]
    #[arg(long = "rate", value_name = "N")]
    setup: Option<String>,
    /// Repeat a PADI or PADR for the first time after TIME; it doubles each time [default: 5s]
    #[arg(long, value_name = "TIME")]
    retry: Option<String>,
    /// Give up after N messages without an answer [default: 5]
    #[arg(long, value_name = "N")]
    tries: Option<String>,
    /// Ask for the addresses of name servers
    #[arg(long = "dns")]
    ppp_dns: bool,
    /// Negotiate IPv6, too
    #[arg(long)]
    ipv6cp: bool,
    /// Examine the session at this interval by Echo-Requests; 0s: never [default: 30s]
    #[arg(long = "echo", value_name = "TIME")]
    ppp_echo: Option<String>,
    /// End the sessions at the end of the run
    #[arg(long)]
    release: bool,
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
    /// Send this option: 61=0x01{mac}, where {mac} is the host's MAC address; repeatable
    #[arg(long = "option", value_name = "CODE=TEXT")]
    options: Vec<String>,
    /// Ask for this address for the first host, and for the next one for each further one
    #[arg(long, value_name = "IP")]
    requested: Option<String>,
    /// Begin with "discover", or "reboot" with the address of --requested [default: discover]
    #[arg(long = "begin", value_name = "HOW")]
    dhcp: Option<String>,
    /// Ask for an exchange of two messages (RFC 4039)
    #[arg(long)]
    rapid_commit: bool,
    /// Ask for answers by broadcast
    #[arg(long)]
    broadcast: bool,
    /// Put a relay agent with this address between the hosts and the port
    #[arg(long, value_name = "IP")]
    relay: Option<String>,
    /// Add TEXT as the circuit identifier of a relay agent or switch (option 82)
    #[arg(long, value_name = "TEXT")]
    circuit: Option<String>,
    /// Add TEXT as its remote identifier
    #[arg(long, value_name = "TEXT")]
    remote: Option<String>,
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
    /// Ask for a prefix of N bits, too; 0 leaves the length to the server
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
    /// Let the link of each host fail for a moment at this interval; it then confirms its address
    #[arg(long = "flap", value_name = "TIME")]
    link_flap: Option<String>,
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
    /// Answer datagrams to closed ports with errors of ICMPv6
    #[arg(long)]
    icmp_errors: bool,
}

#[derive(Debug, clap::Args)]
struct ArpKeys {
    /// Give the first host this address, and each further one the next: 10.0.0.2/16; or let hosts
    /// choose link-local addresses (RFC 3927)
    #[arg(long = "address", value_name = "IP/PREFIX|link-local")]
    ipv4: String,
    /// Answer datagrams to closed ports with errors of ICMP
    #[arg(long)]
    icmp_errors: bool,
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
    #[command(flatten)]
    how: HowToRun,
}

/// How a profile of hosts or routers runs, and what becomes of its result.
#[derive(Debug, clap::Args)]
pub struct HowToRun {
    /// Print the equivalent profile, and start nothing
    #[arg(long, help_heading = "Result")]
    print_profile: bool,
    #[command(flatten)]
    options: Options<OfHosts>,
    #[command(flatten)]
    output: Output,
}

/// Reads the profile of a command.
type Form = fn(Short<'_>) -> Result<Profile, Diagnostics>;

impl HowToRun {
    /// Runs the profile that `form` makes of the arguments of `command`, on one port.
    pub fn run(
        &self,
        form: Form,
        command: &str,
        port: &str,
        arguments: &[Argument],
    ) -> Result<ExitCode, Error> {
        let session = self.options.session(form(Short { command, ports: &[port], arguments })?)?;
        if self.print_profile {
            output::print_data(&session.profile.to_toml());
            return Ok(ExitCode::SUCCESS);
        }
        drive(session, &self.output, &format!("{command} on {port}"))
    }
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
    /// Do this wrong on purpose: flood, ignore-nak, late-answer, ...; repeatable
    #[arg(long = "fault", value_name = "NAME")]
    faults: Vec<String>,
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
        ![
            "octets",
            "packets",
            "receive",
            "filter",
            "labels",
            "key_log",
            "routes_csv",
            "cores",
            "mult",
        ]
        .contains(&name)
    }
}

pub fn hosts(args: &Args) -> Result<ExitCode, Error> {
    let (kind, arguments, common) = match &args.what {
        What::Dhcp(of) => ("dhcp", &of.keys.arguments, &of.common),
        What::Dhcp6(of) => ("dhcp6", &of.keys.arguments, &of.common),
        What::Arp(of) => ("arp", &of.keys.arguments, &of.common),
        What::Nd(of) => ("nd", &of.keys.arguments, &of.common),
        What::Ping(of) => ("ping", &of.keys.arguments, &of.common),
        What::Igmp(of) => ("igmp", &of.keys.arguments, &of.common),
        What::Lldp(of) => ("lldp", &of.keys.arguments, &of.common),
        What::Cdp(of) => ("cdp", &of.keys.arguments, &of.common),
        What::Dns(of) => ("dns", &of.keys.arguments, &of.common),
        What::Dot1x(of) => ("dot1x", &of.keys.arguments, &of.common),
        What::Show(args) => return server::show(args),
        What::Lacp(of) => ("lacp", &of.keys.arguments, &of.common),
        What::Pppoe(of) => ("pppoe", &of.keys.arguments, &of.common),
    };
    let mut arguments = [&arguments[..], &common.keys.arguments].concat();
    // A default of a command is an argument, too, because its key has another default.
    let defaults: &[(&str, &str, &str)] = match &args.what {
        What::Ping(of) => &[("ping", "--to", &of.keys.args.ping)],
        What::Nd(of) => &[("ipv6", "--address", &of.keys.args.ipv6)],
        What::Dhcp6(of) if of.stateless => &[("ipv6", "--stateless", "stateless")],
        What::Dhcp6(_) => &[("ipv6", "dhcp6", "dhcp")],
        What::Lldp(of) => {
            &[("lldp", "--interval", &of.keys.args.lldp), ("ipv4", "--address", &of.keys.args.ipv4)]
        }
        What::Cdp(of) => {
            &[("cdp", "--interval", &of.keys.args.cdp), ("ipv4", "--address", &of.keys.args.ipv4)]
        }
        What::Dot1x(of) => {
            let args = &of.keys.args;
            &[("ipv4", "--address", &args.ipv4), ("auth", "--method", &args.auth)]
        }
        What::Lacp(of) => {
            &[("lacp", "--mode", &of.keys.args.lacp), ("ipv4", "--address", &of.keys.args.ipv4)]
        }
        What::Pppoe(of) => &[("pppoe", "--auth", &of.keys.args.pppoe)],
        What::Dhcp(_) | What::Arp(_) | What::Igmp(_) | What::Dns(_) | What::Show(_) => &[],
    };
    for (key, name, text) in defaults {
        if arguments.iter().all(|argument| argument.key != *key) {
            let (key, name) = ((*key).to_owned(), (*name).to_owned());
            arguments.push(Argument { key, name, text: Some((*text).to_owned()) });
        }
    }
    let port = &common.keys.args.port;
    common.how.run(short::hosts, &format!("squall hosts {kind}"), port, &arguments)
}
