//! `squall lab`: a network namespace with two interfaces, which are connected to each other or have
//! a device between them; or several namespaces, with hosts, routers and bridges.

mod topology;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Subcommand;
use squall::Error;
use squall_machine::forward::forward;
use squall_port_linux::lab::{
    Device, DeviceKind, INTERFACES, Inside, Lab, LabError, LabOptions, SIDES, Side,
};
use squall_report::render::human;

use crate::{
    drive::Signals,
    output,
    table::{self, table},
};

/// Create a private network for experiments, without root: two interfaces, or hosts, routers and
/// bridges
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  squall lab up
  squall lab exec -- squall ports
  squall lab exec -- squall send --port veth-a --to veth-b --packet eth/ipv4/udp --rate 10kpps -d \
                        5s --latency
  squall lab exec -- sh          # a shell in the lab: tcpdump -i veth-b, ip link ...
  squall lab down
  squall lab up --device router --profile rig.toml    # a device under test between the interfaces
  squall lab exec -- squall run rig.toml
  squall lab exec --device -- ip neigh                # inside the device
  squall lab down
  squall lab up --device reference,drain=100kpps,buffer=200,delay=50us
  squall lab down
  squall lab up --device router,rate=10Mbps,queue=pfifo      # a queue discipline of the kernel
  squall lab down
  squall lab up --topology chain.toml                 # hosts, routers and bridges
  squall lab exec --node h1 -- ping -c 3 10.0.3.2
  squall lab link r1:eth1 down                        # cut a link
  squall lab status
  squall lab down

Devices: router, nat, firewall (stateful, opens from veth-a to veth-b) and haproxy have addresses; \
                        bridge and reference do not. reference forwards frames with the faults of \
                        a port (docs/guide/ports.md). The others take a rate, in both directions, \
                        with a queue discipline (default pfifo) and its limit in packets; results \
                        of squall test name them.")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Create a lab that stays until it is removed
    #[command(after_help = "\
Example of a topology, for --topology chain.toml:
  [[node]]
  name = \"h1\"
  kind = \"host\"
  gateway = \"10.0.1.1\"

  [[node]]
  name = \"r1\"
  kind = \"router\"
  ospf = \"0.0.0.0\"        # runs BIRD; or routes = [\"10.0.4.0/24 via 10.0.12.2\"]

  [[link]]
  ends = [\"h1:eth0 10.0.1.2/24\", \"r1:eth0 10.0.1.1/24\"]

  [[link]]
  ends = [\"r1:eth1 10.0.12.1/24\", \"veth-a\"]   # veth-a is a port for Squall

See docs/guide/labs.md for all keys.")]
    Up {
        /// Name of the lab
        #[arg(default_value = "lab")]
        name: String,
        /// MTU of the interfaces: the largest IP packet, in octets
        #[arg(long, default_value_t = LabOptions::default().mtu, value_parser = clap::value_parser!(u32).range(68..=65_535))]
        mtu: u32,
        /// Number of queues of each interface, in each direction
        #[arg(long, default_value_t = LabOptions::default().queues, value_parser = clap::value_parser!(u32).range(1..=64))]
        queues: u32,
        /// Put a device between the interfaces: router, bridge, nat, firewall, haproxy, or
        /// reference with faults
        #[arg(long, value_name = "KIND[,KEY=VALUE...]")]
        device: Option<Device>,
        /// Write a profile with streams through the device, both ways
        #[arg(long, value_name = "FILE.toml", requires = "device")]
        profile: Option<PathBuf>,
        /// Let the streams of the profile be IPv6
        #[arg(long, requires = "profile")]
        ipv6: bool,
        /// Create hosts, routers, bridges and links from a file, in place of the two interfaces
        #[arg(
            long,
            value_name = "FILE.toml",
            conflicts_with_all = ["device", "mtu", "queues", "profile", "ipv6"]
        )]
        topology: Option<PathBuf>,
        /// Write nodes, links and ports as JSON; - is standard output
        #[arg(long, value_name = "FILE|-", requires = "topology")]
        json: Option<String>,
    },
    /// Run a command in a lab and pass on its exit status
    Exec {
        /// Name of the lab
        #[arg(default_value = "lab")]
        name: String,
        /// Run it inside the lab's device
        #[arg(long)]
        device: bool,
        /// Run it inside a node of the lab's topology
        #[arg(long, value_name = "NODE", conflicts_with = "device")]
        node: Option<String>,
        /// Command to run, with its arguments
        #[arg(last = true, required = true, value_name = "COMMAND")]
        command: Vec<std::ffi::OsString>,
    },
    /// Remove a lab
    Down {
        /// Name of the lab
        #[arg(default_value = "lab")]
        name: String,
    },
    /// List the labs that are up
    List,
    /// Show the interfaces of a lab and its nodes, with their states, counters and routing daemons
    Status {
        /// Name of the lab
        #[arg(default_value = "lab")]
        name: String,
        /// Write it as JSON; - is standard output
        #[arg(long, value_name = "FILE|-")]
        json: Option<String>,
    },
    /// Switch an interface of a lab off or on, as if its cable were pulled
    #[command(after_help = "\
Examples:
  squall lab up --topology chain.toml
  squall lab link r1:eth1 down
  squall lab link r1:eth1 up
  squall lab down

The other end of the link loses its carrier, unless the link has faults. Addresses and static \
                            routes of the node come back with the interface.")]
    Link {
        /// Interface: NODE:INTERFACE, or the name of a port of the lab
        #[arg(value_name = "INTERFACE")]
        end: String,
        /// up or down
        state: LinkSwitch,
        /// Name of the lab
        #[arg(long, value_name = "NAME", default_value = "lab")]
        lab: String,
    },
    /// Forward frames between two ports, both ways, with the faults of the ports
    #[command(after_help = "\
Example:
  squall lab forward eth1,delay=5ms eth2,lose=gilbert:1/1000:1/4

A frame leaves when the faults of the port where it arrived say so. Ends with Ctrl-C.")]
    Forward {
        /// First port
        #[arg(value_name = "ADDR")]
        a: String,
        /// Second port
        #[arg(value_name = "ADDR")]
        b: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum LinkSwitch {
    Up,
    Down,
}

pub fn lab(args: &Args) -> Result<ExitCode, Error> {
    match &args.action {
        Action::Up { name, topology: Some(file), json, .. } => {
            topology::up(name, file, json.as_deref())?;
        }
        Action::Up { name, mtu, queues, device, profile, ipv6, .. } => {
            let options = LabOptions { mtu: *mtu, queues: *queues };
            up(name, &options, device.as_ref(), profile.as_deref(), *ipv6)?;
        }
        Action::Exec { name, device, node, command } => {
            let inside = match node {
                Some(node) => Inside::Node(node),
                None if *device => Inside::Device,
                None => Inside::Lab,
            };
            return Err(error(Lab::exec(name, inside, command)));
        }
        Action::Status { name, json } => topology::show(name, json.as_deref())?,
        Action::Link { end, state, lab } => {
            topology::link(lab, end, *state == LinkSwitch::Up)?;
        }
        Action::Forward { a, b } => {
            let signals = Signals::catch()?;
            let (counts, notes) = forward([a, b], &|| signals.came())?;
            for (from, to, count) in [(a, b, counts[0]), (b, a, counts[1])] {
                let (frames, refused) = (count.frames, count.refused);
                output::print(&format!(
                    "{from} to {to}: {}, {refused} refused\n",
                    human::counted(frames, "frame")
                ));
            }
            output::print(&notes.iter().map(|note| format!("note: {note}\n")).collect::<String>());
        }
        Action::Down { name } => Lab::down(name).map_err(error)?,
        Action::List => {
            let labs = Lab::list().map_err(error)?;
            let rows: Vec<_> =
                labs.iter().map(|lab| vec![lab.name.clone(), lab.pid.to_string()]).collect();
            output::print(&table(
                &[("LAB", table::Side::Left), ("PROCESS", table::Side::Left)],
                &rows,
            ));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn up(
    name: &str,
    options: &LabOptions,
    device: Option<&Device>,
    profile: Option<&Path>,
    ipv6: bool,
) -> Result<(), Error> {
    let streams = device.map(|device| Streams::through(device.kind, ipv6));
    let file = match (profile, &streams) {
        (Some(path), Some(streams)) => {
            if streams.0.is_empty() {
                return Err(Error::Usage(
                    "haproxy carries connections, and no streams that a profile could have\n  try \
                     it without --profile: the commands to use are printed"
                        .into(),
                ));
            }
            Some(output::create(&path.to_string_lossy())?)
        }
        _ => None,
    };
    let lab = Lab::up(name, options, device).map_err(error)?;
    // Commands for the lab with the default name need no name.
    let (lab, named) = match lab.name.as_str() {
        "lab" => ("the lab".to_owned(), String::new()),
        name => (format!("lab {name:?}"), format!(" {name}")),
    };
    let exec = format!("squall lab exec{named} --");
    let [a, b] = INTERFACES;
    let mut text = match device {
        None => format!("{lab} is up: {a} and {b} are each other's peer\n"),
        Some(device) => format!("{lab} is up: {a} - {device} - {b}\n{}", addresses(device.kind)),
    };
    let mut uses = Vec::new();
    if let (Some((name, file)), Some(streams), Some(device)) = (file, &streams, device) {
        output::write(&name, file, &streams.profile(device, &exec, &name))?;
        uses.push(format!("{exec} squall run {name}"));
        uses.push(format!("{exec} squall test rfc2544 {name} --quick --max-rate 100kpps"));
    }
    match device {
        Some(device) => uses.extend(commands(device.kind, &exec)),
        None => uses.push(format!("{exec} squall ports")),
    }
    if let Some(streams) = &streams {
        uses.extend(streams.0.iter().take(2).map(|stream| stream.command(&exec)));
        uses.push(format!("squall lab exec{named} --device -- ip addr"));
    }
    for (i, command) in uses.iter().enumerate() {
        let head = if i == 0 { "use it:   " } else { "" };
        text += &format!("  {head:10}  {command}\n");
    }
    output::print(&format!("{text}  remove it:  squall lab down{named}\n"));
    Ok(())
}

/// One line per side, with interfaces, MAC addresses and IP addresses.
fn addresses(kind: DeviceKind) -> String {
    let rows: Vec<Vec<String>> = SIDES.iter().map(|side| address_row(kind, side)).collect();
    let columns = ["INTERFACE", "MAC", "NETWORKS", "GATEWAYS", "GATEWAY MAC"]
        .map(|name| (name, table::Side::Left));
    let used = if kind.has_addresses() { columns.len() } else { 3 };
    table(&columns[..used], &rows)
}

fn address_row(kind: DeviceKind, side: &Side) -> Vec<String> {
    let both = |i: usize| format!("{} {}", side.ipv4[i], side.ipv6[i]);
    let mut row = vec![side.tester.to_owned(), side.tester_mac.to_owned(), both(0)];
    if kind.has_addresses() {
        row.extend([both(1), side.device_mac.to_owned()]);
    }
    row
}

/// Commands that open connections through the device.
fn commands(kind: DeviceKind, exec: &str) -> Vec<String> {
    let [a, b] = SIDES;
    let gateways = format!(" --gateway {} --gateway2 {}", a.ipv4[1], b.ipv4[1]);
    let gateways = if kind.has_addresses() { gateways } else { String::new() };
    match kind {
        DeviceKind::Haproxy => vec![
            format!("{exec} squall flows serve --port {} --servers {}", b.tester, b.ipv4[2]),
            format!(
                "{exec} squall flows http --url http://{}/ --port {} --clients \
                 198.18.1.10-198.18.1.99 --cps 100 --duration 5s",
                a.ipv4[1], a.tester
            ),
        ],
        _ => {
            let ends =
                format!("{gateways} --clients 198.18.1.10-198.18.1.99 --servers 198.18.2.10");
            let (a, b) = (a.tester, b.tester);
            vec![
                format!(
                    "{exec} squall flows app http --port {a} --port2 {b}{ends} --cps 100 \
                     --duration 5s"
                ),
                format!(
                    "{exec} squall test rfc9411 --port A={a} --port B={b}{ends} --quick --max-cps \
                     500"
                ),
            ]
        }
    }
}

/// Streams through a device in both directions.
struct Streams(Vec<Stream>);

struct Stream {
    name: String,
    /// Name of the sending port in the profile, its interface, and the interface on the other side.
    from: (&'static str, &'static str, &'static str),
    packet: String,
    /// Whether to start after the other direction, which must open the path first.
    later: bool,
}

/// UDP ports of client and server.
const PORTS: [u16; 2] = [1024, 9];

impl Streams {
    fn through(kind: DeviceKind, ipv6: bool) -> Self {
        let versions: &[&str] = match kind {
            DeviceKind::Haproxy => &[],
            _ if ipv6 => &["ipv6"],
            _ => &["ipv4"],
        };
        let streams = versions.iter().flat_map(|ip| {
            [0, 1].map(|from| Stream {
                name: format!("{} {ip}", if from == 0 { "A to B" } else { "B to A" }),
                from: (["A", "B"][from], SIDES[from].tester, SIDES[1 - from].tester),
                packet: packet(kind, ip, from),
                later: from == 1 && matches!(kind, DeviceKind::Nat | DeviceKind::Firewall),
            })
        });
        Self(streams.collect())
    }

    fn profile(&self, device: &Device, exec: &str, file: &str) -> String {
        let [a, b] = INTERFACES;
        let mut text = format!(
            "# Streams through the lab's device {device}, both ways.\n#   {exec} squall run \
             {file}\nduration = \"5 s\"\n\n[ports]\nA = \"{a}\"\nB = \"{b}\"\n"
        );
        for stream in &self.0 {
            let Stream { name, packet, .. } = stream;
            text += &format!(
                "\n[[stream]]\nname = \"{name}\"\nport = \"{}\"\npacket = \"{packet}\"\nsize \
                 = 128\nrate = \"1 kpps\"\nlatency = true\n",
                stream.from.0
            );
            if stream.later {
                // A stateful device passes this direction only after it has seen the other one.
                text += "start_delay = \"200 ms\"\n";
            }
        }
        text
    }
}

impl Stream {
    fn command(&self, exec: &str) -> String {
        let (_, from, to) = self.from;
        format!(
            "{exec} squall send --port {from} --to {to} --packet '{}' --size 128 --rate 10kpps -d \
             5s --latency",
            self.packet
        )
    }
}

/// A packet that enters the device on side `from`.
fn packet(kind: DeviceKind, ip: &str, from: usize) -> String {
    let (near, far) = (SIDES[from], SIDES[1 - from]);
    let next_hop = if kind.has_addresses() { near.device_mac } else { far.tester_mac };
    let of = |side: Side| if ip == "ipv4" { side.ipv4 } else { side.ipv6 };
    // With a NAT, side B sees side A under the device's own address.
    let hidden = kind == DeviceKind::Nat && from == 1;
    let (src, dst) = (of(near)[2], if hidden { of(near)[1] } else { of(far)[2] });
    let (sport, dport) = (PORTS[from], PORTS[1 - from]);
    format!(
        "eth(src={},dst={next_hop})/{ip}(src={src},dst={dst})/udp(sport={sport},dport={dport})",
        near.tester_mac
    )
}

fn error(error: LabError) -> Error {
    match &error {
        LabError::Usage(_) => Error::Usage(error.to_string()),
        LabError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            Error::Usage(error.to_string())
        }
        _ => Error::Environment(error.to_string()),
    }
}
