//! `squall flows`: flows of one application. The arguments are converted to a profile, which runs
//! like one from a file.

use std::process::ExitCode;

use clap::Subcommand;
use squall::{Error, Profile};
use squall_profile::short::{self, Argument, Short};

use crate::{
    args::{Choice, Given, Options, Output, two},
    drive::drive,
    output,
};

/// Run application clients or servers on Squall's own TCP/UDP stack
#[derive(Debug, clap::Args)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "\
Examples:
  squall flows http --url http://10.0.0.2/ --port eth1 --clients 10.0.1.1-10.0.1.250 \
                  --cps 10k --duration 10s
  squall flows http --url http://10.0.0.2/big --port eth1 \
                  --clients 10.0.1.1 --users 100 --requests 10
  squall flows http --url http://www.example.net/a --url 3:http://www.example.net/b --port eth1 \
    --clients 10.0.1.1 --cps 100 --follow 5 --cookies --check 'status 200'
  squall flows http --url http://10.0.0.2/users --method PUT --header 'Content-Type: application/json' \
    --content '{\"name\": \"${data:user}\"}' --csv users.csv --csv-order once --port eth1 \
    --clients 10.0.1.1-10.0.1.9 --cps 500
  squall flows serve --port eth1 --servers \
                  10.0.2.1-10.0.2.9 --body 32KiB
  squall flows http --url https://10.0.0.2/ --port \
                  eth1 --clients 10.0.1.1 --users 20 --tls-option resumption=true
  squall flows http --url https://10.0.0.2/ --tls-option early_data=true --port eth1 \
    --clients 10.0.1.1 --users 20
  squall flows http \
                  --url https://10.0.0.2/ --port eth1 --clients 10.0.1.1 --users 20 --tls-option \
                  ca=ca.pem --tls-option client_certificate=me.pem --tls-option client_key=me.key
  squall flows http --url https://10.0.0.2/ --http2 --requests 100 --streams 10 --port eth1 \
    --clients 10.0.1.1 --users 20
  squall flows http --url https://10.0.0.2/ --http3 --requests 100 --streams 10 --port eth1 \
                  --clients 10.0.1.1 --users 20
  squall flows http --url https://www.example.net/ --hello chrome-131 --http2 --port eth1 \
    --clients 10.0.1.1 --cps 100
  squall flows http --url http://10.0.0.2/ --proxy-protocol v2 --proxy-option \
                  sources=203.0.113.0/24 --port eth1 --clients 10.0.1.1 --cps 100
  squall flows app http --port eth1 --wrap 'vlan 7' --port2 eth2 --wrap2 'vlan 8' --clients \
                  16.0.0.0/24 --servers 48.0.0.1 --cps 1k
  squall flows app grpc -o messages=20 -o lockstep=true --port eth1 --clients 10.0.1.1 \
                  --servers 10.0.0.2 --users 20
  squall flows app dns --port eth1 --port2 eth2 --clients 16.0.0.0/24 --servers 48.0.0.1 --cps 1k \
                  --flows 10k
  squall flows app http --port loop:x --port2 loop:x --clients 16.0.0.0/16 --servers 48.0.0.1 \
                  --cps 50k
  squall flows apps                                          # the built-in applications and their options

Addresses of clients and servers belong to Squall: no interface has them, and Squall answers ARP \
                  and ND for them.
For several applications, or your own, write a profile: --print-profile prints one to start from.

Exit status: 0 done, 1 failed by --fail-if, 2 wrong usage or input, 3 environment, 4 NOT VALID \
                  (unless --allow-invalid), 129, 130, 143 interrupted before its end by SIGHUP, \
                  SIGINT, SIGTERM."
)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Http(Http),
    Serve(Serve),
    App(App),
    /// List the built-in applications, the settings around them (TLS, HTTP/2, HTTP/3, PROXY), and
    /// the browsers of --hello
    Apps,
}

/// Run HTTP clients against an external server
#[derive(Debug, clap::Args)]
struct Http {
    #[command(flatten)]
    requests: Given<Requests>,
    #[command(flatten)]
    clients: Given<Clients>,
    #[command(flatten)]
    common: Common,
}

/// Requests of each client.
#[derive(Debug, clap::Args)]
struct Requests {
    /// Request this URL: http://10.0.0.2:8080/path, https://www.example.net/. Repeatable for one
    /// server: each request uses one of the URLs at random, with the weights in front:
    /// 3:http://10.0.0.2/b
    #[arg(long, value_name = "[WEIGHT:]URL", required = true)]
    url: Vec<String>,
    /// Use this request method [default: POST with a body, GET without]
    #[arg(long, value_name = "METHOD")]
    method: Option<String>,
    /// Add a header field, or replace Squall's own of the same name: 'X-Trace: ${random:hex:8}';
    /// repeatable
    #[arg(short = 'H', long, value_name = "NAME: VALUE")]
    header: Vec<String>,
    /// Send this request body: TEXT, or the contents of FILE (as curl's --data)
    #[arg(long, value_name = "TEXT|@FILE", conflicts_with = "post")]
    content: Option<String>,
    /// Send POST requests with a body of this size: 100, 64KiB
    #[arg(long, value_name = "OCTETS")]
    post: Option<String>,
    /// Send back the cookies that answers set, within a connection
    #[arg(long)]
    cookies: bool,
    /// Follow up to N redirections to the same scheme, host and port; further ones fail the flow
    #[arg(long, value_name = "N")]
    follow: Option<u32>,
    /// Fail a flow if an answer does not match CHECK: 'status 200', 'length 512', 'sha256 HEX',
    /// 'regex "ok"'; repeatable
    #[arg(long, value_name = "CHECK")]
    check: Vec<String>,
    /// Take a value from each answer, for ${value:NAME} in later requests of the connection:
    /// 'id = json data.id', 'id = regex "id=(\d+)"', 'tag = header ETag'; repeatable
    #[arg(long, value_name = "NAME = WHERE")]
    extract: Vec<String>,
    /// Send N requests over each connection
    #[arg(long, value_name = "N")]
    requests: Option<u32>,
    /// Send up to N requests before the first answer arrives
    #[arg(long, value_name = "N")]
    pipeline: Option<u32>,
}

/// Run servers for external clients
#[derive(Debug, clap::Args)]
struct Serve {
    #[command(flatten)]
    servers: Given<Servers>,
    #[command(flatten)]
    common: Common,
}

/// Application and addresses of servers.
#[derive(Debug, clap::Args)]
struct Servers {
    /// Serve this application
    #[arg(long, default_value = "http", value_name = "NAME")]
    app: String,
    /// Use these addresses for the servers: 10.0.2.1-10.0.2.9, 10.0.2.0/24, fd00::1
    #[arg(long, visible_alias = "address", value_name = "RANGE")]
    servers: Vec<String>,
    /// Listen on this TCP or UDP port [default: the application's usual one]
    #[arg(long, value_name = "PORT")]
    listen: Option<u16>,
    /// With http, send an answer body of this size
    #[arg(long, value_name = "OCTETS")]
    body: Option<String>,
}

/// Run clients and servers with a device between two ports
#[derive(Debug, clap::Args)]
struct App {
    #[command(flatten)]
    servers: Given<Between>,
    #[command(flatten)]
    clients: Given<Clients>,
    #[command(flatten)]
    common: Common,
}

/// Application and addresses of servers.
#[derive(Debug, clap::Args)]
struct Between {
    /// Name of the application, as in the list of `squall flows apps`
    #[arg(value_name = "NAME")]
    app: String,
    /// Use these addresses for the servers
    #[arg(long, value_name = "RANGE")]
    servers: Vec<String>,
    /// Let servers listen on this TCP or UDP port [default: the application's usual one]
    #[arg(long, value_name = "PORT")]
    listen: Option<u16>,
    /// Run the servers on this port; without it, the servers are external
    #[arg(long, value_name = "ADDR")]
    port2: Option<String>,
    /// Send all packets of the servers to this router; once for each of IPv4 and IPv6
    #[arg(long, value_name = "IP", requires = "port2", help_heading = "Network")]
    gateway2: Vec<String>,
    /// Send all packets of the servers to this MAC address, without ARP or ND
    #[arg(
        long,
        value_name = "MAC",
        requires = "port2",
        conflicts_with = "gateway2",
        help_heading = "Network"
    )]
    next_hop2: Option<String>,
    /// Encapsulate packets of the servers, from outside in, as --wrap; repeatable
    #[arg(long, value_name = "LAYER", requires = "port2", help_heading = "Network")]
    wrap2: Vec<String>,
}

#[derive(Debug, clap::Args)]
struct Clients {
    /// Use these addresses for the clients: 16.0.0.1-16.0.0.254, 16.0.0.0/24, fd00::1-fd00::ff;
    /// repeatable
    #[arg(long, value_name = "RANGE", required = true, help_heading = "Load")]
    clients: Vec<String>,
    /// Use these TCP or UDP ports for the clients
    #[arg(long, value_name = "FIRST-LAST", help_heading = "Load")]
    client_ports: Option<String>,
    /// Choose the address and port of the next flow in this order: sequential, random, hash
    #[arg(long, value_name = "ORDER", help_heading = "Load")]
    order: Option<String>,
    /// Use N streams at a time in each connection of HTTP/2 or HTTP/3, and divide its requests among
    /// them
    #[arg(long, value_name = "N", requires = "over", help_heading = "Load")]
    streams: Option<u16>,
    /// Move each connection of HTTP/3 to another port or address after N requests, each time, with
    /// another connection ID
    #[arg(long, value_name = "N", requires = "http3", help_heading = "Load")]
    migrate_after: Option<u32>,
    /// Migrate to another port of the client, or to another client's address: port, address
    /// [default: port]
    #[arg(long, value_name = "END", requires = "migrate_after", help_heading = "Load")]
    migrate_to: Option<String>,
    /// Change the port of each client of HTTP/3 after N requests, each time, as a NAT does: with the
    /// same connection ID
    #[arg(long, value_name = "N", requires = "http3", help_heading = "Load")]
    rebind_after: Option<u32>,
    /// Start N flows per second, even if earlier ones are still open: 10k, 0.5
    #[arg(
        long,
        value_name = "N",
        help_heading = "Load",
        required_unless_present_any = ["users", "stage"],
        conflicts_with = "users"
    )]
    cps: Option<String>,
    /// Simulate N users; each starts a flow when their last one has ended
    #[arg(long, value_name = "N", help_heading = "Load")]
    users: Option<u32>,
    /// Let users think for this time between two flows
    #[arg(long, value_name = "TIME", requires = "users", help_heading = "Load")]
    think: Option<String>,
    /// Draw the gaps between flows (and think times) from a Poisson process
    #[arg(long, help_heading = "Load")]
    poisson: bool,
    /// Stop after N flows: 1000, 10k
    #[arg(long, value_name = "N", help_heading = "Load")]
    flows: Option<String>,
    /// Increase the load linearly over this time
    #[arg(long, value_name = "TIME", help_heading = "Load")]
    ramp_up: Option<String>,
    /// Change the load linearly to LEVEL flows per second (or users, with --users) within TIME:
    /// 10s:500; repeatable, one stage after the other
    #[arg(long, value_name = "TIME:LEVEL", conflicts_with = "ramp_up", help_heading = "Load")]
    stage: Vec<String>,
    /// Use one record of this CSV file for each flow, as ${data:COLUMN} in URLs, headers and
    /// --content; its first line names the columns
    #[arg(long, value_name = "FILE", help_heading = "Load")]
    csv: Option<String>,
    /// Use the records in this order: circular, once (stop when all are used), random
    #[arg(long, value_name = "ORDER", requires = "csv", help_heading = "Load")]
    csv_order: Option<String>,
}

#[derive(Debug, clap::Args)]
struct Common {
    #[command(flatten)]
    all: Given<Any>,
    /// Print the equivalent profile, and start nothing
    #[arg(long, help_heading = "Result")]
    print_profile: bool,
    #[command(flatten)]
    options: Options<OfFlows>,
    #[command(flatten)]
    output: Output,
}

/// Options that clients and servers share.
#[derive(Debug, clap::Args)]
struct Any {
    /// Run on this port: eth1, af_packet:eth1, loop:NAME
    #[arg(short, long, value_name = "ADDR")]
    port: String,
    /// Set an option of the application, as in the list of `squall flows apps`; repeatable
    #[arg(short, long, value_name = "NAME=VALUE")]
    option: Vec<String>,
    /// Set an option of TCP: mss=1400, congestion=bbr (or cubic, reno), time_wait=1s, sack=false;
    /// repeatable
    #[arg(long, value_name = "NAME=VALUE")]
    tcp: Vec<String>,
    /// Make room for N flows per worker and port, of up to 170 octets each: 500k, 10M [default: as
    /// many as fit half of the memory, 2M at least]
    #[arg(long, value_name = "N")]
    max_flows: Option<String>,
    /// Use TLS 1.3, at each end that Squall runs (https URLs do not need this option)
    #[arg(long)]
    tls: bool,
    /// Set an option of TLS: server_name=www.example.net, alpn=http/1.1, ca=FILE, certificate=FILE,
    /// key=FILE, client_certificate=FILE, client_key=FILE, client_ca=FILE, resumption=true,
    /// fresh_key_shares=true, early_data=true, certificate_per_name=true, versions=1.2,1.3,
    /// ciphers=NAME,..., groups=NAME,..., hello=BROWSER (as --hello); repeatable
    #[arg(long, value_name = "NAME=VALUE")]
    tls_option: Vec<String>,
    /// Use TLS, and send the ClientHello of a browser, as in the list of `squall flows apps`, of a
    /// JA3 string or JA4_ro, or of a capture: chrome-131, visit.pcapng:3 (the third in the file)
    #[arg(long, value_name = "BROWSER")]
    hello: Option<String>,
    /// Begin each flow with a header of the PROXY protocol, v1 or v2: clients send it, servers
    /// require one of either version
    #[arg(long, value_name = "VERSION")]
    proxy_protocol: Option<String>,
    /// Set an option of the PROXY headers that clients send: sources=203.0.113.0/24 (addresses, in
    /// turn); with v2 also local=true, alpn=h2, authority=www.example.net, unique_id=true,
    /// checksum=true; repeatable
    #[arg(long, value_name = "NAME=VALUE", requires = "proxy_protocol")]
    proxy_option: Vec<String>,
    /// Use HTTP/2 in place of HTTP/1.1, at each end that Squall runs: agreed on by ALPN with TLS,
    /// and otherwise known to both ends (h2c)
    #[arg(long, group = "over")]
    http2: bool,
    /// With TLS, use HTTP/1.1 where the other end does not choose HTTP/2
    #[arg(long, requires = "http2")]
    http2_fallback: bool,
    /// Use HTTP/3 over QUIC and UDP, at each end that Squall runs, always with TLS
    #[arg(long, group = "over")]
    http3: bool,
    /// Send all packets to this router; once for each of IPv4 and IPv6
    #[arg(long, value_name = "IP", help_heading = "Network")]
    gateway: Vec<String>,
    /// Send all packets to this MAC address, without ARP or ND
    #[arg(long, value_name = "MAC", conflicts_with = "gateway", help_heading = "Network")]
    next_hop: Option<String>,
    /// Encapsulate packets, from outside in: 'vlan 7', 'mpls 1000', 'gre FROM TO'; repeatable
    #[arg(long, value_name = "LAYER", help_heading = "Network")]
    wrap: Vec<String>,
}

/// Run options of flows. There is no filter: it could drop frames that the flows need.
#[derive(Debug)]
pub struct OfFlows;

impl Choice for OfFlows {
    fn has(name: &str) -> bool {
        !["octets", "receive", "filter", "labels", "routes_csv"].contains(&name)
    }
}

pub fn flows(args: &Args) -> Result<ExitCode, Error> {
    let (common, profile, title) = match &args.what {
        What::Http(http) => {
            let urls = http.requests.args.url.join(" ");
            (&http.common, http.profile()?, format!("squall flows http {urls}"))
        }
        What::Serve(serve) => {
            let app = &serve.servers.args.app;
            (&serve.common, serve.profile()?, format!("squall flows serve {app}"))
        }
        What::App(app) => {
            (&app.common, app.profile()?, format!("squall flows {}", app.servers.args.app))
        }
        What::Apps => {
            output::print(&squall_plan::flows::applications());
            output::print(&squall_plan::flows::browsers());
            return Ok(ExitCode::SUCCESS);
        }
    };
    if common.options.run.packets.is_some() {
        return Err(no_effect(
            "--count",
            "it counts frames of streams; try --flows to stop after N flows",
        ));
    }
    let session = common.options.session(profile)?;
    if common.print_profile {
        output::print_data(&session.profile.to_toml());
        return Ok(ExitCode::SUCCESS);
    }
    drive(session, &common.output, &title)
}

impl Http {
    fn profile(&self) -> Result<Profile, Error> {
        self.common.only_once(&self.requests.arguments)?;
        self.common
            .refuse(of_servers("http"), "the servers are external, and decide it themselves")?;
        self.common.only_clients()?;
        self.common.short(None, &[&self.requests.arguments, &self.clients.arguments], short::http)
    }
}

impl Serve {
    fn profile(&self) -> Result<Profile, Error> {
        let Servers { app, servers, .. } = &self.servers.args;
        let known = squall_plan::flows::catalog().into_iter().find(|known| known.name == app);
        if let Some(known) = known.filter(|known| !known.of_servers.is_empty()) {
            let all = known.options.iter().map(|option| option.name);
            let of_clients = all.filter(|of| !known.of_servers.contains(of));
            self.common.refuse(
                &of_clients.collect::<Vec<_>>(),
                "the clients are external, and decide it themselves",
            )?;
        }
        self.common.only_once(&self.servers.arguments)?;
        self.common.only_servers()?;
        if servers.is_empty() {
            return Err(Error::Usage(
                "--servers is missing\n  try --servers 10.0.2.1-10.0.2.9".into(),
            ));
        }
        self.common.short(None, &[&self.servers.arguments], |of| short::serve(of, app))
    }
}

impl App {
    fn profile(&self) -> Result<Profile, Error> {
        let Between { app, servers, port2, .. } = &self.servers.args;
        if servers.is_empty() {
            return Err(Error::Usage("--servers is missing\n  try --servers 48.0.0.1".into()));
        }
        if port2.is_none() {
            self.common.refuse(
                of_servers(app),
                "the servers are external; try --port2 to run them as well",
            )?;
            self.common.only_clients()?;
        }
        let arguments = [&self.servers.arguments[..], &self.clients.arguments];
        self.common.short(port2.as_ref(), &arguments, |of| short::app(of, app))
    }
}

/// Options of an application that apply only to servers.
fn of_servers(app: &str) -> &'static [&'static str] {
    squall_plan::flows::catalog()
        .into_iter()
        .find(|of| of.name == app)
        .map_or(&[], |of| of.of_servers)
}

fn no_effect(what: &str, why: &str) -> Error {
    Error::Usage(format!("{what} has no effect here: {why}"))
}

impl Common {
    /// The profile that `short` makes from these arguments and `more`.
    fn short(
        &self,
        port2: Option<&String>,
        more: &[&[Argument]],
        short: impl FnOnce(Short<'_>) -> Result<Profile, squall::Diagnostics>,
    ) -> Result<Profile, Error> {
        let Given { args, arguments } = &self.all;
        Ok(short(Short {
            command: "squall flows",
            ports: &two(&args.port, port2),
            arguments: &[more.concat(), arguments.clone()].concat(),
        })?)
    }

    /// Whether option `name` is given, where `key` selects the options of the application or of
    /// TLS.
    fn has(&self, key: &str, name: &str) -> bool {
        let given = self.all.arguments.iter().filter(|one| one.key == key);
        let mut names = given.filter_map(|one| one.text.as_deref()?.split_once('='));
        names.any(|(given, _)| given == name)
    }

    /// Rejects options of the application that are also given as `arguments`.
    fn only_once(&self, arguments: &[Argument]) -> Result<(), Error> {
        for one in arguments {
            let file =
                one.key == "content" && one.text.as_deref().is_some_and(|t| t.starts_with('@'));
            let option = if file { "content_file" } else { &one.key };
            if self.has("option", option) {
                let why = format!("--{} sets it already", one.key);
                return Err(no_effect(&format!("--option {option}"), &why));
            }
        }
        Ok(())
    }

    /// Rejects the options in `strays`, with the reason `why`.
    fn refuse(&self, strays: &[&str], why: &str) -> Result<(), Error> {
        match strays.iter().find(|name| self.has("option", name)) {
            Some(name) => Err(no_effect(&format!("--option {name}"), why)),
            None => Ok(()),
        }
    }

    /// Rejects options that only servers use.
    fn only_clients(&self) -> Result<(), Error> {
        match self.has("tls_option", "client_ca") {
            true => Err(no_effect(
                "--tls-option client_ca",
                "servers verify clients with it, and Squall runs no servers here",
            )),
            false => Ok(()),
        }
    }

    /// Rejects options that only clients use.
    fn only_servers(&self) -> Result<(), Error> {
        for (name, why) in [
            (
                "ca",
                "clients verify servers with it, and Squall runs no clients here; try client_ca",
            ),
            (
                "client_certificate",
                "clients present it, and Squall runs no clients here; try certificate",
            ),
            ("client_key", "clients use it, and Squall runs no clients here; try key"),
            ("hello", "clients send it, and Squall runs no clients here"),
        ] {
            if self.has("tls_option", name) {
                return Err(no_effect(&format!("--tls-option {name}"), why));
            }
        }
        if self.all.arguments.iter().any(|one| one.key == "hello") {
            return Err(no_effect("--hello", "clients send it, and Squall runs no clients here"));
        }
        if self.has("tls_option", "server_name") && self.has("tls_option", "certificate") {
            return Err(no_effect("--tls-option server_name", "the certificate contains the name"));
        }
        Ok(())
    }
}
