//! `squall flows`: flows of one application, as arguments. They become the profile that a file
//! would hold, and run as it does.

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::{Map, Value, json};
use squall::{Error, Profile};

use crate::{
    args::{Choice, Options, Output},
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
  squall flows http \
                  --url https://10.0.0.2/ --port eth1 --clients 10.0.1.1 --users 20 --tls-option \
                  ca=ca.pem \\
    --tls-option client_certificate=me.pem --tls-option client_key=me.key
  squall flows app http --port eth1 --wrap 'vlan 7' --port2 eth2 --wrap2 'vlan 8' --clients \
                  16.0.0.0/24 --servers 48.0.0.1 --cps 1k
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
    /// List the built-in applications and their options
    Apps,
}

/// Run HTTP clients against an external server
#[derive(Debug, clap::Args)]
struct Http {
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
    #[command(flatten)]
    clients: Clients,
    #[command(flatten)]
    common: Common,
}

/// Run servers for external clients
#[derive(Debug, clap::Args)]
struct Serve {
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
    #[command(flatten)]
    common: Common,
}

/// Run clients and servers with a device between two ports
#[derive(Debug, clap::Args)]
struct App {
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
    #[command(flatten)]
    clients: Clients,
    #[command(flatten)]
    common: Common,
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
    /// Start N flows per second, however many are still open: 10k, 0.5
    #[arg(
        long,
        value_name = "N",
        help_heading = "Load",
        required_unless_present = "users",
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
    /// Run on this port: eth1, af_packet:eth1, loop:NAME
    #[arg(short, long, value_name = "ADDR")]
    port: String,
    /// Set an option of the application, as in the list of `squall flows apps`; repeatable
    #[arg(short, long, value_name = "NAME=VALUE")]
    option: Vec<String>,
    /// Set an option of TCP: mss=1400, time_wait=1s, sack=false; repeatable
    #[arg(long, value_name = "NAME=VALUE")]
    tcp: Vec<String>,
    /// Use TLS 1.3, at each end that Squall runs (https URLs do not need this option)
    #[arg(long)]
    tls: bool,
    /// Set an option of TLS: server_name=www.example.net, alpn=http/1.1, ca=FILE, certificate=FILE,
    /// key=FILE, client_certificate=FILE, client_key=FILE, client_ca=FILE, resumption=true,
    /// versions=1.2,1.3; repeatable
    #[arg(long, value_name = "NAME=VALUE")]
    tls_option: Vec<String>,
    /// Send all packets to this router; once for each of IPv4 and IPv6
    #[arg(long, value_name = "IP", help_heading = "Network")]
    gateway: Vec<String>,
    /// Send all packets to this MAC address, without ARP or ND
    #[arg(long, value_name = "MAC", conflicts_with = "gateway", help_heading = "Network")]
    next_hop: Option<String>,
    /// Encapsulate packets, from outside in: 'vlan 7', 'mpls 1000', 'gre FROM TO'; repeatable
    #[arg(long, value_name = "LAYER", help_heading = "Network")]
    wrap: Vec<String>,
    /// Print the equivalent profile, and start nothing
    #[arg(long, help_heading = "Result")]
    print_profile: bool,
    #[command(flatten)]
    options: Options<OfFlows>,
    #[command(flatten)]
    output: Output,
}

/// They receive what they need, and a filter would take it from them.
#[derive(Debug)]
pub struct OfFlows;

impl Choice for OfFlows {
    fn has(name: &str) -> bool {
        !["octets", "receive", "filter", "labels"].contains(&name)
    }
}

pub fn flows(args: &Args) -> Result<ExitCode, Error> {
    let (common, profile, title) = match &args.what {
        What::Http(http) => {
            (&http.common, http.profile()?, format!("squall flows http {}", http.url.join(" ")))
        }
        What::Serve(serve) => {
            (&serve.common, serve.profile()?, format!("squall flows serve {}", serve.app))
        }
        What::App(app) => (&app.common, app.profile()?, format!("squall flows {}", app.app)),
        What::Apps => {
            output::print(&squall_plan::flows::applications());
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

/// What an HTTP client does, and what a server answers: of the application's options.
const OF_HTTP_CLIENTS: [&str; 15] = [
    "url",
    "method",
    "header",
    "content",
    "content_file",
    "post",
    "cookies",
    "follow",
    "check",
    "extract",
    "requests",
    "pipeline",
    "think",
    "close",
    "within",
];
const OF_HTTP_SERVERS: [&str; 1] = ["body"];

impl Http {
    fn profile(&self) -> Result<Profile, Error> {
        let mut options = self.common.options()?;
        let list = |texts: &[String]| (!texts.is_empty()).then(|| json!(texts));
        let (content, content_file) = match self.content.as_deref() {
            Some(text) => match text.strip_prefix('@') {
                Some(path) => (None, Some(json!(path))),
                None => (Some(json!(text)), None),
            },
            None => (None, None),
        };
        let said = [
            ("url", list(&self.url)),
            ("method", self.method.as_ref().map(|method| json!(method))),
            ("header", list(&self.header)),
            ("content", content),
            ("content_file", content_file),
            ("post", self.post.as_ref().map(|octets| json!(octets))),
            ("cookies", self.cookies.then(|| json!(true))),
            ("follow", self.follow.map(|n| json!(n))),
            ("check", list(&self.check)),
            ("extract", list(&self.extract)),
            ("requests", self.requests.map(|n| json!(n))),
            ("pipeline", self.pipeline.map(|n| json!(n))),
        ];
        if let Some((name, _)) =
            said.iter().find(|(name, given)| given.is_some() && options.contains_key(*name))
        {
            return Err(no_effect(
                &format!("--option {name}"),
                &format!("--{} sets it already", name.trim_end_matches("_file")),
            ));
        }
        self.common.only(
            &options,
            &OF_HTTP_SERVERS,
            "the servers are external, and decide it themselves",
        )?;
        self.common.only_clients()?;
        for (name, given) in said {
            options.extend(given.map(|given| (name.to_owned(), given)));
        }
        // The others are held against it where all of them are read.
        let first = self.url.first().map_or("", String::as_str);
        let (server, port) = authority(first).ok_or_else(|| {
            Error::Usage(format!(
                "--url {first}: expected [WEIGHT:]http://HOST[:PORT]/PATH or https://...\n  try \
                 http://10.0.0.2/, http://[fd00::2]:8080/x or 3:https://www.example.net/"
            ))
        })?;
        let mut template = self.common.template("http", options)?;
        template.insert("servers".into(), json!(server));
        template.insert("listen".into(), json!(port));
        self.common.profile(None, Some(&self.clients), vec![template])
    }
}

impl Serve {
    fn profile(&self) -> Result<Profile, Error> {
        let mut options = self.common.options()?;
        if self.app == "http" {
            self.common.only(
                &options,
                &OF_HTTP_CLIENTS,
                "the clients are external, and decide it themselves",
            )?;
        }
        if self.body.is_some() && options.contains_key("body") {
            return Err(no_effect("--option body", "--body sets it already"));
        }
        self.common.only_servers()?;
        options.extend(self.body.as_ref().map(|octets| ("body".into(), json!(octets))));
        if self.servers.is_empty() {
            return Err(Error::Usage(
                "--servers is missing\n  try --servers 10.0.2.1-10.0.2.9".into(),
            ));
        }
        let template = self.common.template(&self.app, options)?;
        let (v6, v4): (Vec<_>, Vec<_>) =
            self.servers.iter().partition(|servers| servers.contains(':'));
        // A template has one family of addresses.
        let both = !v4.is_empty() && !v6.is_empty();
        let of = |(servers, family, anyone): (Vec<&String>, &str, &str)| {
            let mut template = template.clone();
            if both {
                template.insert("name".into(), json!(format!("{} {family}", self.app)));
            }
            template.insert("servers".into(), json!(servers));
            template.insert("clients".into(), json!(anyone));
            template.extend(self.listen.map(|port| ("listen".into(), json!(port))));
            template
        };
        let families = [(v4, "IPv4", "0.0.0.1"), (v6, "IPv6", "::1")];
        let served = families.into_iter().filter(|(servers, ..)| !servers.is_empty());
        self.common.profile(None, None, served.map(of).collect())
    }
}

impl App {
    fn profile(&self) -> Result<Profile, Error> {
        if self.servers.is_empty() {
            return Err(Error::Usage("--servers is missing\n  try --servers 48.0.0.1".into()));
        }
        let options = self.common.options()?;
        if self.port2.is_none() {
            let servers = if self.app == "http" { &OF_HTTP_SERVERS[..] } else { &[] };
            self.common.only(
                &options,
                servers,
                "the servers are external; try --port2 to run them as well",
            )?;
            self.common.only_clients()?;
        }
        let mut template = self.common.template(&self.app, options)?;
        template.insert("servers".into(), json!(self.servers));
        template.extend(self.listen.map(|port| ("listen".into(), json!(port))));
        self.common.profile(Some(self), Some(&self.clients), vec![template])
    }

    /// What stands around the servers' packets.
    fn network(&self) -> Option<Value> {
        network(&self.gateway2, self.next_hop2.as_ref(), &self.wrap2)
    }
}

/// As a profile says it; `None`: nothing of it.
fn network(gateway: &[String], next_hop: Option<&String>, wrap: &[String]) -> Option<Value> {
    let mut network = Map::new();
    if !gateway.is_empty() {
        network.insert("gateway".into(), json!(gateway));
    }
    network.extend(next_hop.map(|mac| ("next_hop".into(), json!(mac))));
    if !wrap.is_empty() {
        network.insert("wrap".into(), json!(wrap));
    }
    (!network.is_empty()).then_some(Value::Object(network))
}

fn no_effect(what: &str, why: &str) -> Error {
    Error::Usage(format!("{what} has no effect here: {why}"))
}

impl Common {
    /// Those of one name are a list.
    fn options(&self) -> Result<Map<String, Value>, Error> {
        let mut options: Map<String, Value> = Map::new();
        for text in &self.option {
            for (name, value) in pairs("--option", std::slice::from_ref(text))? {
                match options.get_mut(&name) {
                    Some(Value::Array(list)) => list.push(value),
                    Some(first) => *first = json!([first.take(), value]),
                    None => drop(options.insert(name, value)),
                }
            }
        }
        Ok(options)
    }

    /// Refuses those of `strays` that are said.
    fn only(&self, options: &Map<String, Value>, strays: &[&str], why: &str) -> Result<(), Error> {
        match strays.iter().find(|name| options.contains_key(**name)) {
            Some(name) => Err(no_effect(&format!("--option {name}"), why)),
            None => Ok(()),
        }
    }

    /// Refuses what is of servers.
    fn only_clients(&self) -> Result<(), Error> {
        let said = pairs("--tls-option", &self.tls_option)?;
        match said.contains_key("client_ca") {
            true => Err(no_effect(
                "--tls-option client_ca",
                "servers verify clients with it, and Squall runs no servers here",
            )),
            false => Ok(()),
        }
    }

    /// Refuses what is of clients.
    fn only_servers(&self) -> Result<(), Error> {
        let said = pairs("--tls-option", &self.tls_option)?;
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
        ] {
            if said.contains_key(name) {
                return Err(no_effect(&format!("--tls-option {name}"), why));
            }
        }
        if said.contains_key("server_name") && said.contains_key("certificate") {
            return Err(no_effect("--tls-option server_name", "the certificate contains the name"));
        }
        Ok(())
    }

    fn template(
        &self,
        app: &str,
        options: Map<String, Value>,
    ) -> Result<Map<String, Value>, Error> {
        let mut template = Map::new();
        template.insert("name".into(), json!(app));
        template.insert("app".into(), json!(app));
        if !options.is_empty() {
            template.insert("options".into(), Value::Object(options));
        }
        let tcp = pairs("--tcp", &self.tcp)?;
        if !tcp.is_empty() {
            template.insert("tcp".into(), Value::Object(tcp));
        }
        let mut tls = pairs("--tls-option", &self.tls_option)?;
        for (name, value) in &mut tls {
            match value.as_str() {
                Some(text) if name == "resumption" => {
                    let truth: bool = text.parse().map_err(|_| {
                        Error::Usage(format!("--tls-option {name}={text}: expected true or false"))
                    })?;
                    *value = json!(truth);
                }
                Some(text) if matches!(name.as_str(), "alpn" | "versions") => {
                    *value = text.split(',').map(|one| json!(one)).collect();
                }
                _ => {}
            }
        }
        if self.tls || !tls.is_empty() {
            template.insert(
                "tls".into(),
                if tls.is_empty() { json!(true) } else { Value::Object(tls) },
            );
        }
        Ok(template)
    }

    fn profile(
        &self,
        both: Option<&App>,
        load: Option<&Clients>,
        mut templates: Vec<Map<String, Value>>,
    ) -> Result<Profile, Error> {
        let (clients, port2) = (load.is_some(), both.and_then(|app| app.port2.as_ref()));
        let mut ports = Map::new();
        ports.insert("A".into(), json!(self.port));
        ports.extend(port2.map(|port| ("B".into(), json!(port))));
        let mut flows = Map::new();
        flows.insert(if clients { "clients" } else { "servers" }.into(), json!("A"));
        flows.extend(port2.map(|_| ("servers".into(), json!("B"))));
        flows.extend(both.and_then(App::network).map(|network| ("server_network".into(), network)));
        let mut profile = Map::new();
        for template in &mut templates {
            if let Some(load) = load {
                load.put(template, &mut flows, &mut profile);
            }
            // A word without a dot would be the name of a pool.
            let word = template.get("servers").and_then(Value::as_str);
            if let Some(host) = word.filter(|word| !word.contains(['.', ':'])) {
                let pool = json!({ "name": "servers", "addresses": [host] });
                if let Some(pools) = profile.get_mut("pool").and_then(Value::as_array_mut) {
                    pools.push(pool);
                }
                template.insert("servers".into(), json!("servers"));
            }
        }
        let network = network(&self.gateway, self.next_hop.as_ref(), &self.wrap);
        let side = if clients { "client_network" } else { "server_network" };
        flows.extend(network.map(|network| (side.into(), network)));
        profile.insert("ports".into(), Value::Object(ports));
        profile.insert("flows".into(), Value::Object(flows));
        profile.insert("template".into(), json!(templates));
        Ok(Profile::from_value(&Value::Object(profile), "squall flows")?)
    }
}

impl Clients {
    fn put(
        &self,
        template: &mut Map<String, Value>,
        flows: &mut Map<String, Value>,
        profile: &mut Map<String, Value>,
    ) {
        let mut pool = Map::new();
        pool.insert("name".into(), json!("clients"));
        pool.insert("addresses".into(), json!(self.clients));
        pool.extend(self.client_ports.as_ref().map(|ports| ("ports".into(), json!(ports))));
        pool.extend(self.order.as_ref().map(|order| ("order".into(), json!(order))));
        profile.insert("pool".into(), json!([pool]));
        let mut set = |key: &str, value: Option<Value>| {
            template.extend(value.map(|value| (key.to_owned(), value)))
        };
        set("clients", Some(json!("clients")));
        set("cps", self.cps.as_ref().map(|cps| json!(cps)));
        set("users", self.users.map(|users| json!(users)));
        set("think", self.think.as_ref().map(|think| json!(think)));
        set("spacing", self.poisson.then_some(json!("poisson")));
        set("limit", self.flows.as_ref().map(|limit| json!(limit)));
        let data = |file: &String| match &self.csv_order {
            Some(order) => json!({ "file": file, "order": order }),
            None => json!(file),
        };
        set("data", self.csv.as_ref().map(data));
        flows.extend(self.ramp_up.as_ref().map(|time| ("ramp_up".into(), json!(time))));
    }
}

/// `NAME=VALUE` each.
pub fn pairs(flag: &str, texts: &[String]) -> Result<Map<String, Value>, Error> {
    let pair = |text: &String| match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), json!(value))),
        _ => Err(Error::Usage(format!("{flag} {text}: expected NAME=VALUE"))),
    };
    texts.iter().map(pair).collect()
}

/// Host and port of a server, of a URL with or without a weight in front.
fn authority(url: &str) -> Option<(String, u16)> {
    let url = match url.split_once(':') {
        Some((weight, url)) if weight.bytes().all(|octet| octet.is_ascii_digit()) => url,
        _ => url,
    };
    let (scheme, rest) = url.split_once("://")?;
    let usual = match () {
        () if scheme.eq_ignore_ascii_case("http") => 80,
        () if scheme.eq_ignore_ascii_case("https") => 443,
        () => return None,
    };
    let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    let (host, port) = match authority.strip_prefix('[') {
        Some(v6) => {
            let (host, rest) = v6.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (host, rest.strip_prefix(':'))
        }
        None => {
            authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port)))
        }
    };
    let name = |octet: u8| octet.is_ascii_alphanumeric() || b"-_.:".contains(&octet);
    (!host.is_empty() && host.bytes().all(name)).then_some(())?;
    Some((host.to_owned(), port.map_or(Some(usual), |port| port.parse().ok())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_found_in_a_url() {
        for (url, expected) in [
            ("http://10.0.0.2/", Some(("10.0.0.2", 80))),
            ("http://10.0.0.2:8080", Some(("10.0.0.2", 8080))),
            ("http://[fd00::2]/x", Some(("fd00::2", 80))),
            ("http://[fd00::2]:81/x", Some(("fd00::2", 81))),
            ("http://example.net/", Some(("example.net", 80))),
            ("3:http://example.net:81?x", Some(("example.net", 81))),
            ("x:http://example.net/", None),
            ("http:///x", None),
            ("http://[fd00::z]/", None),
            ("https://10.0.0.2/", Some(("10.0.0.2", 443))),
            ("https://[fd00::2]:8443/", Some(("fd00::2", 8443))),
            ("HTTP://10.0.0.2:8080/up", Some(("10.0.0.2", 8080))),
            ("2:Https://10.0.0.2/", Some(("10.0.0.2", 443))),
            ("ftp://10.0.0.2/", None),
            ("http://10.0.0.2:x/", None),
        ] {
            assert_eq!(
                authority(url),
                expected.map(|(host, port)| (host.to_owned(), port)),
                "{url}"
            );
        }
    }
}
