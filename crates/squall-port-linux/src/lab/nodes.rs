//! A lab of several nodes: each is a network namespace, held by a child of the lab's process. The
//! programs of a node are children of that child. Each dies with its parent, so a killed lab leaves
//! no process, namespace or interface.
//!
//! The caller knows the kind of a node, such as host or router: here a node is settings of the
//! kernel, commands for `ip` and `tc`, and at most one program.

use std::{
    env, fs,
    io::{self, BufRead, BufReader, PipeReader, PipeWriter, Read, Write},
    os::unix::{fs::DirBuilderExt, net::UnixStream},
    path::{Path, PathBuf},
    process::Child,
    time::{Duration, Instant},
};

use squall_port::InterfaceCounters;
use squall_units::MacAddr;

use super::{
    ALIAS, Lab, LabError, cannot,
    device::{Service, Shaper, find_program, run_program},
    disable_ipv6, enter_namespaces, enter_namespaces_of, io_error, quiet_and_up, set_link_up,
    start_time, wait_for_carrier,
};
use crate::{
    child,
    interface::{set_gro, set_tx_checksum_off},
    netlink::Netlink,
    sys,
};

/// Nodes, and the cables between them and the lab.
#[derive(Clone, Debug, Default)]
pub struct Nodes {
    pub nodes: Vec<Node>,
    pub cables: Vec<Cable>,
    /// A text about them, for [`Lab::description`].
    pub description: String,
}

/// A network namespace.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// Unique; 1 to 32 letters, digits, '-', '_' and '.': files have this name.
    pub name: String,
    /// Set before there are interfaces, so that those inherit the values of `default`.
    pub sysctls: Vec<Sysctl>,
    /// Commands of `ip -batch` without which the node cannot work: a bridge, for example.
    pub commands: String,
    /// Commands of `ip -batch` for addresses and routes. They can be given again, after an
    /// interface was down.
    pub addresses: String,
    pub routes: String,
    /// Interfaces with a rate.
    pub shapers: Vec<(String, Shaper)>,
    pub program: Option<NodeProgram>,
}

/// A setting of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sysctl {
    /// A path below /proc/sys/net.
    pub file: String,
    pub value: String,
    /// Whether the lab cannot do without it.
    pub must: bool,
}

impl Sysctl {
    fn is_of_an_interface(&self) -> bool {
        let mut parts = self.file.split('/').skip(1);
        matches!(parts.next(), Some("conf" | "neigh"))
            && parts.next().is_some_and(|name| !matches!(name, "all" | "default"))
    }
}

#[derive(Clone, Debug)]
pub enum NodeProgram {
    /// A BIRD 2 with this configuration.
    Bird { configuration: String },
    /// `squall lab forward` between these ports.
    Forward { ports: [String; 2] },
}

/// A veth pair.
#[derive(Clone, Debug)]
pub struct Cable {
    pub ends: [CableEnd; 2],
    /// Longest IP packet, octets.
    pub mtu: u32,
}

#[derive(Clone, Debug)]
pub struct CableEnd {
    /// Index of the node; `None`: an interface of the lab, which sends no frames of its own.
    pub node: Option<usize>,
    pub interface: String,
    pub mac: MacAddr,
}

/// A node of a lab that is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeProcess {
    pub name: String,
    pub pid: u32,
    start_time: u64,
}

/// The interfaces of a node, or of the lab itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeState {
    /// `None`: the lab itself.
    pub name: Option<String>,
    pub pid: u32,
    /// Whether its process runs; without it, there are no interfaces.
    pub runs: bool,
    /// Whether its program runs: a daemon or a forwarder. `None`: it has none.
    pub program_runs: Option<bool>,
    /// Without `lo`.
    pub interfaces: Vec<LabInterface>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabInterface {
    pub name: String,
    pub mac: Option<MacAddr>,
    pub mtu: u32,
    /// Whether it is switched on.
    pub is_up: bool,
    /// Whether it is up, and has a carrier.
    pub can_carry: bool,
    pub counters: InterfaceCounters,
}

/// Sent by a node's process once it has a namespace, and once its interfaces are up.
const READY: &str = "ready\n";
const UP: &str = "up\n";
/// Time for interfaces to get a carrier, and for processes to end.
const END_LIMIT: Duration = Duration::from_secs(5);
/// Processes of nodes, in the folder of the lab's files: name, id and start time in each line.
const PROCESSES: &str = ".processes";
const DESCRIPTION: &str = ".description";
/// Id and start time of a node's program, in the folder of its files.
const PROGRAM: &str = "process";

impl Nodes {
    /// Checks that the programs are installed.
    pub(super) fn check_tools(&self) -> Result<(), LabError> {
        let is_bird = |node: &Node| matches!(node.program, Some(NodeProgram::Bird { .. }));
        for (tool, package, needed) in [
            ("ip", "iproute2", true),
            ("tc", "iproute2", self.nodes.iter().any(|node| !node.shapers.is_empty())),
            ("bird", "bird2", self.nodes.iter().any(is_bird)),
        ] {
            if needed && find_program(tool).is_none() {
                return Err(LabError::Holder(format!(
                    "no lab: {tool} is not installed\n  try apt-get install {package}, or your \
                     system's own package of it"
                )));
            }
        }
        Ok(())
    }

    /// Makes all of the lab, with its files in `folder`. To be called by the process that holds it.
    pub(super) fn set_up(&self, folder: &Path) -> Result<(), LabError> {
        make_folder(folder)?;
        enter_namespaces()?;
        disable_ipv6("all");
        let mut started = Vec::new();
        for (number, node) in self.nodes.iter().enumerate() {
            let interfaces = self.interfaces(Some(number));
            started.push(node.start(&interfaces, folder)?);
        }
        let pids: Vec<u32> = started.iter().map(|one| one.pid).collect();
        let cables: String = self.cables.iter().map(|cable| cable.command(&pids)).collect();
        run_program("ip", &["-batch", "-"], &cables).map_err(|error| {
            LabError::Holder(format!(
                "cannot make the links: {error}\n  try modprobe veth, or a newer iproute2"
            ))
        })?;
        started.iter_mut().try_for_each(Started::go_on)?;
        started.iter_mut().try_for_each(|one| one.expect(UP))?;
        self.ports_up()?;
        started.iter_mut().try_for_each(Started::go_on)?;
        started.iter_mut().try_for_each(|one| one.expect(""))?;
        let write = |name: &str, text: &str| {
            let file = folder.join(name);
            fs::write(&file, text).map_err(io_error(format!("cannot write {}", file.display())))
        };
        write(DESCRIPTION, &self.description)?;
        let processes =
            self.nodes.iter().zip(pids).map(|(node, pid)| {
                format!("{} {pid} {}\n", node.name, start_time(pid).unwrap_or(0))
            });
        write(PROCESSES, &processes.collect::<String>())
    }

    /// Names of the interfaces of a node.
    fn interfaces(&self, node: Option<usize>) -> Vec<String> {
        let ends = self.cables.iter().flat_map(|cable| &cable.ends);
        ends.filter(|end| end.node == node).map(|end| end.interface.clone()).collect()
    }

    fn ports_up(&self) -> Result<(), LabError> {
        let names = self.interfaces(None);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let netlink = Netlink::open().map_err(io_error("cannot open a netlink socket"))?;
        for link in netlink.links().map_err(io_error("cannot list the links"))? {
            if link.name == "lo" {
                set_link_up(&netlink, &link)?;
            }
        }
        quiet_and_up(&netlink, ALIAS, &names)?;
        // As for the interfaces of a lab without nodes.
        names.iter().for_each(|name| _ = set_gro(name, true));
        wait_for_carrier(&netlink, &names)
    }
}

impl Cable {
    /// The command of `ip -batch` that makes both interfaces where they belong.
    fn command(&self, pids: &[u32]) -> String {
        let end = |end: &CableEnd| {
            let CableEnd { node, interface, mac } = end;
            let node = node.and_then(|node| pids.get(node));
            let place = node.map_or(String::new(), |pid| format!(" netns {pid}"));
            format!("name {interface} address {mac} mtu {}{place}", self.mtu)
        };
        let [a, b] = self.ends.each_ref().map(end);
        format!("link add {a} type veth peer {b}\n")
    }
}

/// The process of a node that is being set up.
struct Started {
    pid: u32,
    name: String,
    from_node: BufReader<PipeReader>,
    to_node: PipeWriter,
}

impl Started {
    /// Waits for a line of the process, or for its end of the pipe if the line is empty. Other text
    /// is an error's.
    fn expect(&mut self, line: &str) -> Result<(), LabError> {
        let failed = |error: io::Error| problem(&self.name, format!("its process: {error}"));
        let mut text = String::new();
        self.from_node.read_line(&mut text).map_err(failed)?;
        if text == line {
            return Ok(());
        }
        self.from_node.read_to_string(&mut text).map_err(failed)?;
        match text.as_str() {
            "" => Err(problem(&self.name, "its process ended")),
            _ => Err(LabError::Holder(text)),
        }
    }

    fn go_on(&mut self) -> Result<(), LabError> {
        let written = self.to_node.write_all(b"\n");
        written.map_err(|error| problem(&self.name, format!("its process: {error}")))
    }
}

fn problem(node: &str, problem: impl ToString) -> LabError {
    LabError::Node { node: node.to_owned(), problem: problem.to_string() }
}

impl Node {
    fn problem(&self, text: impl ToString) -> LabError {
        problem(&self.name, text)
    }

    /// Forks the process that holds the node, and waits until it has its namespace.
    fn start(&self, interfaces: &[String], folder: &Path) -> Result<Started, LabError> {
        let failed = |error: io::Error| self.problem(error);
        let (from_node, mut to_lab) = io::pipe().map_err(failed)?;
        let (mut from_lab, to_node) = io::pipe().map_err(failed)?;
        match sys::fork().map_err(failed)? {
            0 => {
                drop((from_node, to_node));
                let held = self.hold(interfaces, folder, &mut from_lab, &mut to_lab);
                let text = held.as_ref().err().map(ToString::to_string).unwrap_or_default();
                let reported = to_lab.write_all(text.as_bytes());
                drop(to_lab);
                if held.is_ok() && reported.is_ok() {
                    // The program is killed when this process ends, so this process must live.
                    sys::wait_forever();
                }
                sys::exit_now();
            }
            pid => {
                drop((from_lab, to_lab));
                let from_node = BufReader::new(from_node);
                let mut started = Started { pid, name: self.name.clone(), from_node, to_node };
                started.expect(READY)?;
                Ok(started)
            }
        }
    }

    /// Runs in the node's process. Returns the program that keeps running, if the node has one.
    fn hold(
        &self,
        interfaces: &[String],
        folder: &Path,
        from_lab: &mut impl Read,
        to_lab: &mut impl Write,
    ) -> Result<Option<Child>, LabError> {
        let failed = |error: io::Error| self.problem(error);
        sys::set_parent_death_signal().map_err(failed)?;
        sys::name_process("squall-node");
        sys::unshare(libc::CLONE_NEWNET).map_err(failed)?;
        self.set(false)?;
        to_lab.write_all(READY.as_bytes()).map_err(failed)?;
        from_lab.read_exact(&mut [0]).map_err(failed)?;
        let up = interfaces.iter().map(|name| format!("link set dev {name} up\n"));
        let batch = format!("link set lo up\n{}{}", self.commands, self.addresses);
        self.run("ip", &(batch + &up.collect::<String>()))?;
        self.set(true)?;
        // Without checksum offload, peers receive frames as on a wire. Old drivers refuse the change.
        interfaces.iter().for_each(|name| _ = set_tx_checksum_off(name));
        to_lab.write_all(UP.as_bytes()).map_err(failed)?;
        from_lab.read_exact(&mut [0]).map_err(failed)?;
        let netlink = Netlink::open().map_err(failed)?;
        let names: Vec<&str> = interfaces.iter().map(String::as_str).collect();
        wait_for_carrier(&netlink, &names)?;
        self.run("ip", &self.routes)?;
        for (interface, shaper) in &self.shapers {
            self.run("tc", &shaper.commands_for(interface))
                .map_err(|error| LabError::Holder(format!("{error}\n  {}", shaper.hint())))?;
        }
        let again = folder.join(again_file(&self.name));
        fs::write(again, format!("{}{}", self.addresses, self.routes)).map_err(failed)?;
        let Some(program) = &self.program else { return Ok(None) };
        let folder = folder.join(&self.name);
        let started = program.service(&folder).and_then(Service::start);
        let child = started.map_err(|error| self.problem(error))?;
        let id = child.id();
        let text = format!("{id} {}\n", start_time(id).unwrap_or(0));
        fs::write(folder.join(PROGRAM), text).map_err(failed)?;
        Ok(Some(child))
    }

    /// Writes the settings of the namespace, or those of interfaces, which exist only with them.
    fn set(&self, of_interfaces: bool) -> Result<(), LabError> {
        let settings = self.sysctls.iter().filter(|one| one.is_of_an_interface() == of_interfaces);
        for Sysctl { file, value, must } in settings {
            let path = format!("/proc/sys/net/{file}");
            if let Err(error) = fs::write(&path, value)
                && *must
            {
                let hint = match error.kind() {
                    io::ErrorKind::NotFound => {
                        "a namespace has no such setting; see ls /proc/sys/net"
                    }
                    _ => "try outside of a container, or in one where /proc/sys can be written",
                };
                let text = format!("cannot write {value} to {path}: {error}\n  {hint}");
                return Err(self.problem(text));
            }
        }
        Ok(())
    }

    fn run(&self, program: &str, commands: &str) -> Result<(), LabError> {
        if commands.is_empty() {
            return Ok(());
        }
        run_program(program, &["-batch", "-"], commands).map_err(|error| self.problem(error))
    }
}

impl NodeProgram {
    fn service(&self, folder: &Path) -> Result<Service, String> {
        let failed = |error: io::Error| format!("{}: {error}", folder.display());
        match self {
            Self::Bird { configuration } => {
                make_private(folder).map_err(failed)?;
                let file = folder.join("bird.conf");
                fs::write(&file, configuration).map_err(failed)?;
                // A BIRD that is starting has its socket before it has read its configuration.
                run_program("bird", &["-p", "-c", &file.to_string_lossy()], "")?;
                let control = folder.join("control");
                let text = |path: &Path| path.to_string_lossy().into_owned();
                let arguments =
                    ["-f".into(), "-c".into(), text(&file), "-s".into(), text(&control)];
                Ok(Service {
                    program: find_program("bird").unwrap_or_else(|| "bird".into()),
                    arguments: arguments.into(),
                    input: String::new(),
                    log: Some(folder.join("log")),
                    is_ready: Box::new(move || UnixStream::connect(&control).is_ok()),
                })
            }
            Self::Forward { ports } => {
                make_private(folder).map_err(failed)?;
                let [a, b] = ports.clone();
                let interface = |port: &str| {
                    let name = port.split_once(':').map_or(port, |(_, name)| name);
                    name.split(',').next().unwrap_or_default().to_owned()
                };
                let names = [interface(&a), interface(&b)];
                Ok(Service {
                    program: env::current_exe().map_err(|error| error.to_string())?,
                    arguments: vec!["lab".into(), "forward".into(), a, b],
                    input: String::new(),
                    log: Some(folder.join("log")),
                    is_ready: Box::new(move || names.iter().all(|name| child::has_receiver(name))),
                })
            }
        }
    }
}

/// The file with commands of `ip` that may be given again.
fn again_file(node: &str) -> String {
    format!("{node}.ip")
}

fn make_private(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(folder)
}

/// Makes the folder of a lab's files, without those of an earlier lab.
fn make_folder(folder: &Path) -> Result<(), LabError> {
    remove_folder(folder)?;
    make_private(folder).map_err(io_error(format!("cannot make {}", folder.display())))
}

pub(super) fn remove_folder(folder: &Path) -> Result<(), LabError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(io_error(format!("cannot remove {}", folder.display()))(error))
        }
        _ => Ok(()),
    }
}

impl NodeProcess {
    fn runs(&self) -> bool {
        start_time(self.pid) == Some(self.start_time)
    }
}

impl Lab {
    /// The nodes of the lab; none if it was made without.
    pub fn nodes(&self) -> Result<Vec<NodeProcess>, LabError> {
        let text = fs::read_to_string(self.folder()?.join(PROCESSES)).unwrap_or_default();
        let node = |line: &str| {
            let mut words = line.split_ascii_whitespace();
            Some(NodeProcess {
                name: words.next()?.into(),
                pid: words.next()?.parse().ok()?,
                start_time: words.next()?.parse().ok()?,
            })
        };
        Ok(text.lines().filter_map(node).collect())
    }

    /// The text of [`Nodes::description`]; empty if the lab has no nodes.
    pub fn description(&self) -> Result<String, LabError> {
        Ok(fs::read_to_string(self.folder()?.join(DESCRIPTION)).unwrap_or_default())
    }

    /// The folder with the files of a node's program: `log`, and those of a daemon, `bird.conf` and
    /// the socket `control`.
    pub fn daemon_folder(&self, node: &str) -> Result<PathBuf, LabError> {
        Ok(self.folder()?.join(node))
    }

    /// Whether the program of a node runs; `None`: it has none.
    fn program_runs(&self, node: &str) -> Result<Option<bool>, LabError> {
        let text = fs::read_to_string(self.daemon_folder(node)?.join(PROGRAM)).unwrap_or_default();
        let mut numbers = text.split_ascii_whitespace();
        let number = |text: &str| text.parse::<u64>().ok();
        let found = numbers.next().and_then(number).zip(numbers.next().and_then(number));
        Ok(found.map(|(id, began)| u32::try_from(id).ok().and_then(start_time) == Some(began)))
    }

    /// Finds a node.
    ///
    /// # Errors
    /// There is no node of this name, or its process has ended.
    pub(super) fn node(&self, name: &str) -> Result<NodeProcess, LabError> {
        let nodes = self.nodes()?;
        match nodes.iter().find(|node| node.name == name) {
            Some(node) if node.runs() => Ok(node.clone()),
            Some(_) => {
                let why = format!("the process of node {name:?} has ended");
                let hint = format!("squall lab down {}, and up again", self.name);
                Err(LabError::Usage(cannot("use", &self.name, why).with_hint(hint)))
            }
            None => {
                // Those with a dot are links with faults.
                let names = nodes.iter().map(|node| node.name.as_str());
                let names: Vec<&str> = names.filter(|name| !name.contains('.')).collect();
                let (why, hint) = match names[..] {
                    [] => ("it has no nodes".to_owned(), "squall lab up --topology FILE.toml"),
                    _ => {
                        let why = format!("it has no node {name:?}; it has {}", names.join(", "));
                        (why, "squall lab status")
                    }
                };
                Err(LabError::Usage(cannot("use", &self.name, why).with_hint(hint)))
            }
        }
    }

    /// Switches an interface of a node, or of the lab itself, off or on. Addresses and routes of
    /// the node that the kernel removed with the interface come back. Moves this process, which
    /// must have one thread, into the node.
    ///
    /// # Errors
    /// There is no such node or interface.
    pub fn switch(&self, node: Option<&str>, interface: &str, on: bool) -> Result<(), LabError> {
        let again = match node {
            Some(node) => {
                let file = self.folder()?.join(again_file(node));
                let process = self.node(node)?;
                let text = fs::read_to_string(file).unwrap_or_default();
                enter_namespaces_of(process.pid)?;
                Some(text)
            }
            None => {
                self.enter()?;
                None
            }
        };
        let netlink = Netlink::open().map_err(io_error("cannot open a netlink socket"))?;
        let links = netlink.links().map_err(io_error("cannot list the links"))?;
        let Some(link) = links.iter().find(|link| link.name == interface && interface != "lo")
        else {
            let names = links.iter().map(|link| link.name.as_str()).filter(|name| *name != "lo");
            let names = names.collect::<Vec<_>>().join(", ");
            let of = node.map_or_else(|| "it".to_owned(), |node| format!("node {node:?}"));
            let why = match names.as_str() {
                "" => format!("{of} has no interface {interface:?}"),
                _ => format!("{of} has no interface {interface:?}; it has {names}"),
            };
            let hint = "NODE:INTERFACE, as in squall lab status";
            return Err(LabError::Usage(cannot("use", &self.name, why).with_hint(hint)));
        };
        let failed = |source| {
            let state = if on { "up" } else { "down" };
            LabError::Io { what: format!("cannot bring {interface} {state}"), source }
        };
        match again {
            _ if !on => netlink.set_down(link.index).map_err(failed),
            // Without ARP, as at first.
            None => netlink.set_up(link.index).map_err(failed),
            Some(again) => {
                let commands = format!("link set dev {interface} up\n{again}");
                // Commands for interfaces that are still off fail.
                let run = run_program("ip", &["-force", "-batch", "-"], &commands);
                let is_up = netlink.link(link.index).map_err(failed)?.is_up();
                match (is_up, run) {
                    (false, Err(error)) => Err(LabError::Holder(error)),
                    _ => Ok(()),
                }
            }
        }
    }

    /// The states of all interfaces, first those of the lab itself. Moves this process, which must
    /// have one thread, into the namespaces.
    ///
    /// # Errors
    /// A namespace cannot be entered.
    pub fn states(&self) -> Result<Vec<NodeState>, LabError> {
        let nodes = self.nodes()?;
        let open = |pid: u32| {
            let path = format!("/proc/{pid}/ns/net");
            fs::File::open(&path).map_err(io_error(format!("cannot open {path}")))
        };
        // Read from outside of the lab's user namespace, in which /proc/PID may be another one.
        let programs = nodes
            .iter()
            .map(|node| self.program_runs(&node.name))
            .collect::<Result<Vec<_>, _>>()?;
        let namespaces = nodes
            .iter()
            .map(|node| if node.runs() { open(node.pid).map(Some) } else { Ok(None) })
            .collect::<Result<Vec<_>, _>>()?;
        self.enter()?;
        let mut states = vec![NodeState {
            name: None,
            pid: self.pid,
            runs: true,
            program_runs: None,
            interfaces: interfaces_here()?,
        }];
        let nodes = nodes.into_iter().zip(programs).zip(namespaces);
        for ((NodeProcess { name, pid, .. }, program_runs), namespace) in nodes {
            let interfaces = match &namespace {
                Some(namespace) => {
                    let what = format!("cannot enter the namespace of node {name:?}");
                    sys::setns(namespace, libc::CLONE_NEWNET).map_err(io_error(what))?;
                    interfaces_here()?
                }
                None => Vec::new(),
            };
            let (name, runs) = (Some(name), namespace.is_some());
            states.push(NodeState { name, pid, runs, program_runs, interfaces });
        }
        Ok(states)
    }

    /// Waits until the processes of `nodes` have ended, with their interfaces.
    pub(super) fn wait_for_end(nodes: &[NodeProcess]) {
        let until = Instant::now() + END_LIMIT;
        while nodes.iter().any(NodeProcess::runs) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn interfaces_here() -> Result<Vec<LabInterface>, LabError> {
    let netlink = Netlink::open().map_err(io_error("cannot open a netlink socket"))?;
    let links = netlink.links().map_err(io_error("cannot list the links"))?;
    let interface = |link: crate::netlink::Link| LabInterface {
        is_up: link.is_up(),
        can_carry: link.can_carry(),
        name: link.name,
        mac: link.mac,
        mtu: link.mtu,
        counters: link.counters,
    };
    Ok(links.into_iter().filter(|link| link.name != "lo").map(interface).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_interfaces_are_those_that_need_one() {
        let of = |file: &str| {
            Sysctl { file: file.into(), value: "1".into(), must: true }.is_of_an_interface()
        };
        assert!(of("ipv4/conf/eth0/proxy_arp") && of("ipv6/neigh/br0/gc_stale_time"));
        assert!(!of("ipv4/conf/all/rp_filter") && !of("ipv4/conf/default/rp_filter"));
        assert!(!of("ipv4/tcp_ecn"));
    }

    #[test]
    fn a_cable_is_made_in_the_namespaces_of_its_ends() {
        let end = |node, interface: &str, last| CableEnd {
            node,
            interface: interface.into(),
            mac: MacAddr([2, 0, 0, 0, 0, last]),
        };
        let cable = Cable { ends: [end(Some(1), "eth0", 1), end(None, "veth-a", 2)], mtu: 1500 };
        assert_eq!(
            cable.command(&[100, 200]),
            "link add name eth0 address 02:00:00:00:00:01 mtu 1500 netns 200 type veth peer name \
             veth-a address 02:00:00:00:00:02 mtu 1500\n"
        );
    }

    #[test]
    fn a_folder_of_an_earlier_lab_is_replaced() {
        let folder = env::temp_dir().join(format!("squall-nodes-{}", std::process::id()));
        make_folder(&folder).unwrap();
        fs::write(folder.join("old"), "").unwrap();
        make_folder(&folder).unwrap();
        assert!(!folder.join("old").exists());
        remove_folder(&folder).unwrap();
        remove_folder(&folder).unwrap();
        assert!(!folder.exists());
    }
}
