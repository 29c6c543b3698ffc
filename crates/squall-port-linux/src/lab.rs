//! A private lab: a network namespace with a veth pair in it, for root and for ordinary users.
//!
//! [`enter_private`] moves the calling process into a lab that ends with this process (`squall
//! demo`, tests). A [`Lab`] stays until it is taken down (`squall lab up|exec|down`): a small
//! process holds its namespaces.
//!
//! The interfaces are quiet: no addresses, no ARP, no IPv6, so that counters show only frames that
//! were sent on purpose. The interfaces of a [`Lab`] use NAPI (GRO is on), so that each accepts
//! frames from an XDP program on the other.
//!
//! A lab may have a [`Device`] between the two interfaces, in a network namespace of its own; or it
//! has [`Nodes`], each in a namespace, and any number of interfaces.

mod device;
mod nodes;

use std::{
    ffi::OsStr,
    fs::{self, File, TryLockError},
    io::{self, BufRead, BufReader, Write},
    os::unix::{
        fs::{DirBuilderExt, MetadataExt},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

pub use device::{Device, DeviceKind, SIDES, Shaper, Side, find_program};
pub use nodes::{
    Cable, CableEnd, LabInterface, Node, NodeProcess, NodeProgram, NodeState, Nodes, Sysctl,
};

use squall_units::Cannot;

use crate::{
    interface::set_gro,
    netlink::{Link, Netlink},
    shared, sys,
};

/// The two interfaces of a lab, which are each other's peer.
pub const INTERFACES: [&str; 2] = ["veth-a", "veth-b"];

/// Identifies a lab's interfaces. A forged alias is no risk: setting it takes the permission to
/// control the interface anyway.
const ALIAS: &str = "squall lab";
/// Identifies the interfaces of a lab in the namespace of the process that made it: only
/// [`remove_here`] removes them. Other labs end with their namespaces.
const ALIAS_HERE: &str = "squall lab here";

/// Whether an interface with this alias belongs to a lab.
pub(crate) fn is_alias(alias: &str) -> bool {
    alias == ALIAS || alias == ALIAS_HERE
}

#[derive(Clone, Copy, Debug)]
pub struct LabOptions {
    /// Longest IP packet, octets; the Ethernet header adds 14.
    pub mtu: u32,
    /// Number of queues of each interface, in each direction.
    pub queues: u32,
}

impl Default for LabOptions {
    /// An MTU with room for jumbo frames, and one queue.
    fn default() -> Self {
        Self { mtu: 9216, queues: 1 }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum LabError {
    #[error(
        "no lab: the kernel does not allow user {uid} to make a user namespace ({source})\n  see \
         sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone (Debian), \
         kernel.apparmor_restrict_unprivileged_userns (Ubuntu), or the container's seccomp \
         profile\n  try sudo, or the loop port"
    )]
    Forbidden { uid: u32, source: io::Error },
    #[error(
        "no lab: this process has {0} threads, and only a process with one thread can enter a \
         user namespace"
    )]
    Threads(usize),
    #[error(transparent)]
    Usage(Cannot),
    #[error("cannot set up the device {device}: {problem}")]
    Device { device: String, problem: String },
    #[error("cannot set up node {node}: {problem}")]
    Node { node: String, problem: String },
    /// An error of the process that holds the lab, the device or a node, as text.
    #[error("{0}")]
    Holder(String),
    /// `what` begins with "cannot".
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
}

fn io_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> LabError {
    let what = what.into();
    move |source| LabError::Io { what, source }
}

/// Moves this process into a new network namespace with a veth pair in it, and returns the
/// interfaces' names.
///
/// The process must have one thread: other threads would stay in the old namespace.
pub fn enter_private(options: &LabOptions) -> Result<[String; 2], LabError> {
    let threads = fs::read_dir("/proc/self/task").map_or(1, |tasks| tasks.count());
    if threads > 1 {
        return Err(LabError::Threads(threads));
    }
    enter_namespaces()?;
    disable_ipv6("all");
    let netlink = make_links(options, &[INTERFACES])?;
    bring_up_all(&netlink)?;
    Ok(INTERFACES.map(str::to_owned))
}

/// Makes the interfaces of a lab in the network namespace of the calling thread, for a process that
/// cannot enter another one. They stay until [`remove_here`]. A lab that is there is kept.
///
/// # Errors
/// Missing permission (`CAP_NET_ADMIN`), or other interfaces have the names.
pub fn make_here(options: &LabOptions) -> Result<(), LabError> {
    if here()?.is_some() {
        return Ok(());
    }
    let netlink = make_links(options, &[INTERFACES])?;
    use_napi();
    let made = quiet_and_up(&netlink, ALIAS_HERE, &INTERFACES)
        .and_then(|()| wait_for_carrier(&netlink, &INTERFACES));
    if made.is_err() {
        // Without their alias, the interfaces would not be recognized later.
        let _ = remove(&netlink);
    }
    made
}

/// A lab in the network namespace of the calling thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabHere {
    /// Whether [`make_here`] made it; a private lab ends with its namespace.
    pub removable: bool,
}

/// The lab in the network namespace of the calling thread, if there is one.
///
/// # Errors
/// The interfaces cannot be listed, or other interfaces have the names.
pub fn here() -> Result<Option<LabHere>, LabError> {
    let netlink = Netlink::open().map_err(io_error("cannot open a netlink socket"))?;
    let links = links_here(&netlink)?;
    if let Some(link) = links.iter().find(|link| !is_alias(&link.alias)) {
        let why = format!("interface {} exists already, and is not of a lab", link.name);
        let hint = format!("use it, or ip link del {}", link.name);
        return Err(LabError::Usage(Cannot::new("make a lab here", why).with_hint(hint)));
    }
    let complete = links.len() == INTERFACES.len();
    let removable = links.iter().any(|link| link.alias == ALIAS_HERE);
    Ok(complete.then_some(LabHere { removable }))
}

/// Removes the lab that [`make_here`] made. Returns whether there was one.
///
/// # Errors
/// Missing permission.
pub fn remove_here() -> Result<bool, LabError> {
    let netlink = Netlink::open().map_err(io_error("cannot open a netlink socket"))?;
    let found = links_here(&netlink)?.iter().any(|link| link.alias == ALIAS_HERE);
    if found {
        remove(&netlink)?;
    }
    Ok(found)
}

fn links_here(netlink: &Netlink) -> Result<Vec<Link>, LabError> {
    links_named(netlink, &INTERFACES)
}

fn links_named(netlink: &Netlink, names: &[&str]) -> Result<Vec<Link>, LabError> {
    let links = netlink.links().map_err(io_error("cannot list the links"))?;
    Ok(links.into_iter().filter(|link| names.contains(&link.name.as_str())).collect())
}

fn remove(netlink: &Netlink) -> Result<(), LabError> {
    // The peer goes with it.
    links_here(netlink)?.first().map_or(Ok(()), |link| {
        let removed = netlink.remove(link.index);
        removed.map_err(io_error(format!("cannot remove {}", link.name)))
    })
}

fn enter_namespaces() -> Result<(), LabError> {
    // Root stays in its user namespace, and so keeps access to files and processes of its user id
    // outside; a root without CAP_SYS_ADMIN, as in containers, is treated as an ordinary user.
    match sys::unshare(libc::CLONE_NEWNET) {
        Ok(()) => Ok(()),
        Err(_) => enter_user_namespace(),
    }
}

fn enter_user_namespace() -> Result<(), LabError> {
    let (uid, gid) = (sys::euid(), sys::egid());
    // A program with file capabilities (setcap cap_net_raw+ep) is not dumpable, so its /proc/self
    // belongs to root and it could not write the files below.
    sys::set_dumpable();
    sys::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET)
        .map_err(|source| LabError::Forbidden { uid, source })?;
    // An ordinary user can map groups only when setgroups is denied (user_namespaces(7)). Ids are
    // mapped to 0, because exec in a user namespace keeps capabilities for user 0 only.
    for (file, content) in [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("0 {uid} 1")),
        ("gid_map", format!("0 {gid} 1")),
    ] {
        fs::write(format!("/proc/self/{file}"), content)
            .map_err(|source| LabError::Forbidden { uid, source })?;
    }
    Ok(())
}

/// Makes the pairs of interfaces, all of them down.
fn make_links(options: &LabOptions, pairs: &[[&str; 2]]) -> Result<Netlink, LabError> {
    let netlink = Netlink::open().map_err(io_error("cannot open a netlink socket"))?;
    for pair in pairs {
        netlink
            .add_veth(*pair, options.mtu, options.queues)
            .map_err(io_error("cannot make a veth pair (is the kernel module veth available?)"))?;
    }
    Ok(netlink)
}

/// Disables IPv6 on an interface, or on `all` of the namespace and those that come. Next to the
/// address mode of [`quiet_and_up`], because /proc/sys is read-only in some containers, and an old
/// kernel may refuse the mode.
fn disable_ipv6(interface: &str) {
    let also = (interface == "all").then_some("default");
    for which in [interface].into_iter().chain(also) {
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6"), "1");
    }
}

/// Brings all interfaces of the namespace up, those of the lab as the last.
fn bring_up_all(netlink: &Netlink) -> Result<(), LabError> {
    for link in netlink.links().map_err(io_error("cannot list the links"))? {
        if !INTERFACES.contains(&link.name.as_str()) {
            set_link_up(netlink, &link)?;
        }
    }
    quiet_and_up(netlink, ALIAS, &INTERFACES)?;
    wait_for_carrier(netlink, &INTERFACES)
}

fn set_link_up(netlink: &Netlink, link: &Link) -> Result<(), LabError> {
    netlink.set_up(link.index).map_err(io_error(format!("cannot bring {} up", link.name)))
}

/// Marks the interfaces `names` of a lab by `alias` and brings them up without IPv6.
fn quiet_and_up(netlink: &Netlink, alias: &str, names: &[&str]) -> Result<(), LabError> {
    for link in links_named(netlink, names)? {
        let _ = netlink.set_no_ipv6_address(link.index);
        disable_ipv6(&link.name);
        netlink
            .set_alias(link.index, alias)
            .map_err(io_error(format!("cannot set the alias of {}", link.name)))?;
        set_link_up(netlink, &link)?;
    }
    Ok(())
}

/// A veth accepts frames from XDP (xdp_live) only while its peer uses NAPI. If the driver refuses
/// that setting, everything else works.
fn use_napi() {
    INTERFACES.iter().for_each(|interface| _ = set_gro(interface, true));
}

/// Waits for a carrier, which the kernel reports only some time after the interface is up; until
/// then the link looks dead.
fn wait_for_carrier(netlink: &Netlink, names: &[&str]) -> Result<(), LabError> {
    for _ in 0..2000 {
        if links_named(netlink, names)?.iter().all(Link::is_running) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    Ok(())
}

/// A lab that stays until taken down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lab {
    pub name: String,
    /// Id of the process that holds the namespaces.
    pub pid: u32,
    /// Start time of that process, clock ticks since boot: distinguishes it from a later process
    /// with the same id.
    start_time: u64,
    /// Id of the process that holds the device's namespace, if there is a device.
    device: Option<u32>,
    /// The device as it was given: `router,rate=10Mbps,queue=fq_codel`; empty without one.
    device_text: String,
}

/// Environment variable of commands in a lab: the device between its interfaces, for reports.
pub const DEVICE_VARIABLE: &str = "SQUALL_LAB_DEVICE";

impl Lab {
    /// Makes the lab, with `device` between its interfaces; without a device, the interfaces are
    /// each other's peers. The calling process must have one thread, because it forks.
    pub fn up(name: &str, options: &LabOptions, device: Option<&Device>) -> Result<Self, LabError> {
        check_name(name)?;
        device.map_or(Ok(()), Device::check_tools)?;
        Self::start(name, &Content::Pair { options, device })
    }

    /// Makes a lab of nodes. The calling process must have one thread, because it forks.
    pub fn up_nodes(name: &str, nodes: &Nodes) -> Result<Self, LabError> {
        check_name(name)?;
        nodes.check_tools()?;
        Self::start(name, &Content::Nodes { nodes, folder: &folder_of(name)? })
    }

    fn start(name: &str, content: &Content<'_>) -> Result<Self, LabError> {
        let threads = fs::read_dir("/proc/self/task").map_or(1, |tasks| tasks.count());
        if threads > 1 {
            return Err(LabError::Threads(threads));
        }
        let claim = NameClaim::of(name)?;
        if let Ok(lab) = Self::find(name) {
            claim.release();
            let why = format!("it is up already (process {})", lab.pid);
            let hint = format!("squall lab exec {name} -- COMMAND, or squall lab down {name}");
            return Err(LabError::Usage(cannot("start", name, why).with_hint(hint)));
        }
        start_holder(content, &state_directory()?.join(file_name(name)), claim)?;
        Self::find(name)
    }

    /// Finds the lab of that name, if it is up.
    pub fn find(name: &str) -> Result<Self, LabError> {
        Self::find_to("use", name)
    }

    fn find_to(verb: &str, name: &str) -> Result<Self, LabError> {
        check_name(name)?;
        let file = state_directory()?.join(file_name(name));
        let lab = fs::read_to_string(&file).ok().and_then(|text| {
            let mut numbers = text.split_ascii_whitespace();
            Some(Self {
                name: name.into(),
                pid: numbers.next()?.parse().ok()?,
                start_time: numbers.next()?.parse().ok()?,
                device: numbers.next().and_then(|pid| pid.parse().ok()),
                device_text: numbers.next().unwrap_or_default().into(),
            })
        });
        match lab {
            Some(lab) if lab.is_up() => Ok(lab),
            stale => {
                if stale.is_some() {
                    let _ = fs::remove_file(file);
                    let _ = nodes::remove_folder(&folder_of(name)?);
                }
                let hint = format!("squall lab list, or squall lab up {name}");
                Err(LabError::Usage(cannot(verb, name, "it is not up").with_hint(hint)))
            }
        }
    }

    /// All labs that are up.
    pub fn list() -> Result<Vec<Self>, LabError> {
        let directory = state_directory()?;
        let entries = fs::read_dir(&directory)
            .map_err(io_error(format!("cannot read {}", directory.display())))?;
        let names = entries.flatten().filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            Some(name.strip_prefix("lab-")?.to_owned())
        });
        let mut labs: Vec<_> = names.filter_map(|name| Self::find(&name).ok()).collect();
        labs.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(labs)
    }

    /// Ends the lab; processes that were started in it keep its interfaces until they end.
    pub fn down(name: &str) -> Result<(), LabError> {
        let lab = Self::find_to("stop", name)?;
        let nodes = lab.nodes()?;
        lab.end();
        Self::wait_for_end(&nodes);
        nodes::remove_folder(&lab.folder()?)?;
        let file = state_directory()?.join(file_name(name));
        fs::remove_file(&file).map_err(io_error(format!("cannot remove {}", file.display())))
    }

    /// Replaces this process by `argv`, inside the lab, its device or one of its nodes; returns
    /// only if that fails. The process must have only one thread.
    pub fn exec<S: AsRef<OsStr>>(name: &str, inside: Inside<'_>, argv: &[S]) -> LabError {
        let Some((program, arguments)) = argv.split_first() else {
            return LabError::Usage(cannot("use", name, "no command given"));
        };
        let enter = |lab: Self| match (inside, lab.device) {
            (Inside::Lab, _) => lab.enter(),
            (Inside::Node(node), _) => enter_namespaces_of(lab.node(node)?.pid),
            (Inside::Device, Some(pid)) => enter_namespaces_of(pid),
            (Inside::Device, None) => {
                let hint = "squall lab up --device router";
                Err(LabError::Usage(cannot("use", name, "it has no device").with_hint(hint)))
            }
        };
        let lab = match Self::find(name) {
            Err(error) => return error,
            Ok(lab) => lab,
        };
        let mut command = Command::new(program);
        command.args(arguments).env_remove(DEVICE_VARIABLE);
        if !lab.device_text.is_empty() {
            command.env(DEVICE_VARIABLE, &lab.device_text);
        }
        match enter(lab) {
            Err(error) => error,
            Ok(()) => {
                let what = format!("cannot run {}", program.as_ref().to_string_lossy());
                io_error(what)(command.exec())
            }
        }
    }

    /// Moves this process, which must have one thread, into the lab.
    pub fn enter(&self) -> Result<(), LabError> {
        enter_namespaces_of(self.pid)
    }

    /// The device between its interfaces; empty without one.
    pub fn device(&self) -> &str {
        &self.device_text
    }

    fn folder(&self) -> Result<PathBuf, LabError> {
        folder_of(&self.name)
    }

    fn is_up(&self) -> bool {
        start_time(self.pid) == Some(self.start_time)
    }

    fn end(&self) {
        sys::kill(self.pid, libc::SIGTERM);
        let deadline = Instant::now() + Duration::from_secs(2);
        while self.is_up() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        if self.is_up() {
            sys::kill(self.pid, libc::SIGKILL);
        }
    }
}

/// The right to set up the lab of a name, which one process at a time has. It ends with
/// [`NameClaim::release`], or with all processes that have it.
struct NameClaim {
    path: PathBuf,
    /// Locked.
    file: File,
}

impl NameClaim {
    /// # Errors
    /// Another process has it, or the file cannot be locked.
    fn of(name: &str) -> Result<Self, LabError> {
        let path = state_directory()?.join(format!("up-{name}"));
        let failed = |error| io_error(format!("cannot lock {}", path.display()))(error);
        loop {
            let file = match shared::own_file(&path) {
                // Another process has just removed it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                file => file.map_err(failed)?,
            };
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let why = "another process is setting it up";
                    let hint = format!("squall lab status {name}, or another name");
                    return Err(LabError::Usage(cannot("start", name, why).with_hint(hint)));
                }
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
            // The process that had it before may have removed the file since it was opened.
            let own = file.metadata().map_err(failed)?.ino();
            if fs::metadata(&path).is_ok_and(|found| found.ino() == own) {
                return Ok(Self { path, file });
            }
        }
    }

    fn release(self) {
        // In this order: once it is unlocked, the file may be another process's.
        let _ = fs::remove_file(&self.path);
        let _ = self.file.unlock();
    }
}

/// Where a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inside<'a> {
    Lab,
    Device,
    Node(&'a str),
}

/// The content of a lab, which the process that holds the lab makes.
enum Content<'a> {
    /// Two interfaces, with a device between them or not.
    Pair { options: &'a LabOptions, device: Option<&'a Device> },
    /// Nodes, with their files in a folder.
    Nodes { nodes: &'a Nodes, folder: &'a Path },
}

impl Content<'_> {
    /// Makes it, and returns what follows the process in the state file.
    fn set_up(&self) -> Result<String, LabError> {
        match self {
            Self::Pair { options, device } => {
                let pid = set_up_lab(options, *device)?;
                use_napi();
                let described = device.map_or(String::new(), Device::to_string);
                Ok(pid.map_or(String::new(), |pid| format!(" {pid} {described}")))
            }
            Self::Nodes { nodes, folder } => {
                let made = nodes.set_up(folder).map(|()| String::new());
                made.inspect_err(|_| _ = nodes::remove_folder(folder))
            }
        }
    }
}

fn enter_namespaces_of(pid: u32) -> Result<(), LabError> {
    let open = |kind: &str| {
        let path = format!("/proc/{}/ns/{kind}", pid);
        fs::File::open(&path).map_err(io_error(format!("cannot open {path}")))
    };
    let (user, net) = (open("user")?, open("net")?);
    // Enters a namespace only if it is not the current one: setns(2) into the current user
    // namespace is an error.
    let id = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let current =
        fs::metadata("/proc/self/ns/user").map_err(io_error("cannot read /proc/self/ns/user"))?;
    let target = user.metadata().map_err(io_error("cannot read the lab's user namespace"))?;
    if id(current) != id(target) {
        sys::setns(&user, libc::CLONE_NEWUSER)
            .map_err(io_error("cannot enter the lab's user namespace"))?;
    }
    sys::setns(&net, libc::CLONE_NEWNET)
        .map_err(io_error("cannot enter the lab's network namespace"))?;
    show_own_sysfs();
    Ok(())
}

/// Mounts a new sysfs for programs that read /sys/class/net: a sysfs shows the interfaces of the
/// namespace in which it was mounted. If the kernel or container forbids the mount, nothing
/// changes.
fn show_own_sysfs() {
    if sys::unshare(libc::CLONE_NEWNS).is_ok() && sys::make_mounts_private().is_ok() {
        let _ = sys::mount_sysfs();
    }
}

/// Forks the process that holds the namespaces (the holder), and waits until the links exist. The
/// holder writes `state` and releases `claim` itself: its parent may be killed at any time, and a
/// lab without a state file could never be taken down.
fn start_holder(content: &Content<'_>, state: &Path, claim: NameClaim) -> Result<(), LabError> {
    let (reader, mut writer) = io::pipe().map_err(io_error("cannot make a pipe"))?;
    match sys::fork().map_err(io_error("cannot start a process"))? {
        0 => {
            drop(reader);
            sys::become_daemon("squall-lab");
            let outcome = content.set_up().and_then(|more| {
                let pid = std::process::id();
                let text = format!("{pid} {}{more}\n", start_time(pid).unwrap_or(0));
                fs::write(state, text)
                    .map_err(io_error(format!("cannot write {}", state.display())))
            });
            claim.release();
            let text = outcome.as_ref().err().map(ToString::to_string).unwrap_or_default();
            // The zero octet ends the message. Closing the pipe would not: the device's process
            // inherits it and keeps it open.
            let reported = writer.write_all(&[text.as_bytes(), &[0]].concat());
            drop(writer);
            if outcome.is_ok() && reported.is_ok() {
                sys::wait_forever();
            }
            sys::exit_now();
        }
        pid => {
            drop(writer);
            let mut text = Vec::new();
            let read = BufReader::new(reader).read_until(0, &mut text);
            read.map_err(io_error("cannot read from the process that holds the lab"))?;
            if text == [0] {
                return Ok(());
            }
            let text = String::from_utf8_lossy(&text).trim_end_matches('\0').to_owned();
            sys::reap(pid);
            Err(LabError::Holder(text))
        }
    }
}

/// First steps of the process that holds a lab. Returns the process that holds the device, if there
/// is one.
fn set_up_lab(options: &LabOptions, device: Option<&Device>) -> Result<Option<u32>, LabError> {
    let Some(device) = device else { return enter_private(options).map(|_| None) };
    enter_namespaces()?;
    disable_ipv6("all");
    let netlink = make_links(options, &SIDES.each_ref().map(|side| [side.tester, side.device]))?;
    let pid = device.with_mtu(options.mtu).start()?;
    bring_up_all(&netlink)?;
    Ok(Some(pid))
}

/// Takes down an interface of the calling thread's network namespace, as if its cable were pulled.
pub fn set_down(interface: &str) -> io::Result<()> {
    let netlink = Netlink::open()?;
    let link = netlink.links()?.into_iter().find(|link| link.name == interface);
    netlink.set_down(link.ok_or(io::ErrorKind::NotFound)?.index)
}

/// Reverts [`set_down`].
pub fn set_up(interface: &str) -> io::Result<()> {
    let netlink = Netlink::open()?;
    let link = netlink.links()?.into_iter().find(|link| link.name == interface);
    netlink.set_up(link.ok_or(io::ErrorKind::NotFound)?.index)
}

fn check_name(name: &str) -> Result<(), LabError> {
    let ok = (1..=32).contains(&name.len())
        && name.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_'));
    if ok {
        return Ok(());
    }
    let why = "expected a name of 1 to 32 letters, digits, '-' and '_'";
    Err(LabError::Usage(cannot("use", name, why)))
}

fn cannot(verb: &str, name: &str, why: impl std::fmt::Display) -> Cannot {
    Cannot::new(format!("{verb} lab {name:?}"), why)
}

fn file_name(name: &str) -> String {
    format!("lab-{name}")
}

/// The folder with the files of a lab's nodes.
fn folder_of(name: &str) -> Result<PathBuf, LabError> {
    Ok(state_directory()?.join(format!("nodes-{name}")))
}

/// Directory of the labs' state files: `$XDG_RUNTIME_DIR/squall`, or `/tmp/squall-UID`; writable
/// for this user only.
pub fn state_directory() -> Result<PathBuf, LabError> {
    // Under su and sudo the variable may name another user's directory.
    let is_own = |d: &PathBuf| fs::metadata(d).is_ok_and(|m| m.is_dir() && m.uid() == sys::uid());
    let directory = match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(is_own) {
        Some(runtime) => runtime.join("squall"),
        None => PathBuf::from(format!("/tmp/squall-{}", sys::uid())),
    };
    let what = format!("cannot use {}", directory.display());
    match fs::DirBuilder::new().mode(0o700).create(&directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(io_error(what)(error));
        }
        _ => {}
    }
    // Anyone can write to /tmp: another user's directory or link could make this process signal
    // processes of their choice.
    let metadata = fs::symlink_metadata(&directory).map_err(io_error(what.clone()))?;
    if !metadata.is_dir() || metadata.uid() != sys::uid() || metadata.mode() & 0o022 != 0 {
        let source = io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it is not a directory that only this user can write",
        );
        return Err(io_error(what)(source));
    }
    Ok(directory)
}

/// Field 22 of /proc/PID/stat; `None` if there is no such process, or it is a zombie.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name, in brackets, and may contain spaces and brackets.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    match fields.next()? {
        "Z" | "X" => None,
        _ => fields.nth(18)?.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_at_a_time_sets_up_the_lab_of_a_name() {
        let name = format!("claim-{}", std::process::id());
        let first = NameClaim::of(&name).unwrap();
        let Err(refused) = NameClaim::of(&name) else { panic!("two have it") };
        assert!(refused.to_string().contains("another process is setting it up"), "{refused}");
        assert!(NameClaim::of(&format!("{name}-b")).map(NameClaim::release).is_ok());
        let path = first.path.clone();
        first.release();
        assert!(!path.exists());
        // That of a process that was killed.
        drop(NameClaim::of(&name).unwrap());
        assert!(path.exists());
        NameClaim::of(&name).unwrap().release();
    }
}
