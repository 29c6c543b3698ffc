//! A device under test for a lab: the kernel as a router, a bridge, a NAT or a firewall; HAProxy;
//! or Squall's own forwarder with known faults.
//!
//! The device has its own network namespace, held by a child of the lab's process. The device's
//! programs are children of that child. Each dies with its parent, so a killed lab leaves nothing.
//!
//! `ip` and `nft` configure the kernel, as users would do: users can read the same commands and
//! inspect the result.

use std::{
    env, fmt, fs,
    io::{self, BufRead, BufReader, Read, Write},
    path::PathBuf,
    process::{Child, Command, Stdio},
    str::FromStr,
    time::{Duration, Instant},
};

use squall_port::{Address, fault::Faults};
use squall_units::{Rate, RateUnit};

use super::LabError;
use crate::{child, sys};

/// One side of a device: the lab's interface, and the device's own at the other end.
#[derive(Clone, Copy, Debug)]
pub struct Side {
    pub tester: &'static str,
    pub tester_mac: &'static str,
    pub device: &'static str,
    pub device_mac: &'static str,
    /// A network from RFC 2544 (appendix C.2.2) or RFC 5180 (section 8), the device's address in
    /// it, and the tester's first address.
    pub ipv4: [&'static str; 3],
    pub ipv6: [&'static str; 3],
}

pub const SIDES: [Side; 2] = [
    Side {
        tester: super::INTERFACES[0],
        tester_mac: "02:00:00:00:0a:02",
        device: "dev-a",
        device_mac: "02:00:00:00:0a:01",
        ipv4: ["198.18.1.0/24", "198.18.1.1", "198.18.1.2"],
        ipv6: ["2001:2:0:1::/64", "2001:2:0:1::1", "2001:2:0:1::2"],
    },
    Side {
        tester: super::INTERFACES[1],
        tester_mac: "02:00:00:00:0b:02",
        device: "dev-b",
        device_mac: "02:00:00:00:0b:01",
        ipv4: ["198.18.2.0/24", "198.18.2.1", "198.18.2.2"],
        ipv6: ["2001:2:0:2::/64", "2001:2:0:2::1", "2001:2:0:2::2"],
    },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    Router,
    Bridge,
    Nat,
    Firewall,
    Haproxy,
    Reference,
}

impl DeviceKind {
    pub const ALL: [Self; 6] =
        [Self::Router, Self::Bridge, Self::Nat, Self::Firewall, Self::Haproxy, Self::Reference];

    pub fn name(self) -> &'static str {
        match self {
            Self::Router => "router",
            Self::Bridge => "bridge",
            Self::Nat => "nat",
            Self::Firewall => "firewall",
            Self::Haproxy => "haproxy",
            Self::Reference => "reference",
        }
    }

    /// Whether frames carry the device's MAC address, not that of the other side.
    pub fn has_addresses(self) -> bool {
        !matches!(self, Self::Bridge | Self::Reference)
    }

    /// Programs that the device needs, each with the package that has it.
    fn tools(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Router | Self::Bridge | Self::Reference => &[("ip", "iproute2")],
            Self::Nat | Self::Firewall => &[("ip", "iproute2"), ("nft", "nftables")],
            Self::Haproxy => &[("ip", "iproute2"), ("haproxy", "haproxy")],
        }
    }

    /// Kernel modules without which the kernel refuses the setup.
    fn modules(self) -> &'static str {
        match self {
            Self::Bridge => "bridge",
            Self::Nat => "nf_tables nf_conntrack nft_masq nft_chain_nat",
            Self::Firewall => "nf_tables nf_conntrack nft_ct",
            Self::Router | Self::Haproxy | Self::Reference => "veth",
        }
    }

    /// Rules for the kernel's packet filter, as input for `nft -f -`.
    fn rules(self) -> Option<&'static str> {
        match self {
            Self::Nat => Some(
                "table inet squall {\n  chain out {\n    type nat hook postrouting priority 100\n    \
                 oifname \"dev-b\" masquerade\n  }\n}\n",
            ),
            Self::Firewall => Some(
                "table inet squall {\n  chain through {\n    type filter hook forward priority 0; \
                 policy drop\n    ct state established,related accept\n    iifname \"dev-a\" \
                 accept\n  }\n}\n",
            ),
            _ => None,
        }
    }
}

/// A rate at which the kernel sends through an interface, and the queue discipline of the packets
/// that wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shaper {
    /// Bits per second on layer 2.
    pub bps: u64,
    /// As `tc` names it: `pfifo`, `fq_codel`.
    pub discipline: String,
    /// The most packets that wait (`bfifo`: bytes); `None`: the discipline's default.
    pub limit: Option<u32>,
    /// The longest frame without FCS, because tbf drops frames longer than its burst.
    pub frame: u32,
}

impl Shaper {
    const KEYS: &[&str] = &["rate", "queue", "limit"];

    fn take(address: &mut Address) -> Result<Option<Self>, String> {
        let discipline = address.take("queue", "a queue discipline").map_err(text_of)?;
        let limit = address.take("limit", "a number of packets").map_err(text_of)?;
        let Some(rate) = address.take("rate", "a bit rate, such as 10Mbps").map_err(text_of)?
        else {
            return match (discipline, limit) {
                (None, None) => Ok(None),
                _ => Err("queue and limit take rate, such as rate=10Mbps,queue=pfifo".into()),
            };
        };
        let rate: Rate = rate;
        let bps = Some(rate).filter(|rate| matches!(rate.unit, RateUnit::BpsL2));
        let bps = bps.map(|rate| rate.value() as u64).filter(|bps| *bps >= 1000);
        let discipline: String = discipline.unwrap_or_else(|| "pfifo".into());
        if limit == Some(0) {
            return Err("limit=0: expected a number of packets, such as 50".into());
        }
        if !discipline.bytes().all(|c| c.is_ascii_lowercase() || c == b'_') {
            return Err(format!("queue={discipline}: expected a queue discipline, such as pfifo"));
        }
        Ok(Some(Self {
            bps: bps.ok_or_else(|| format!("rate={rate}: expected a bit rate, such as 10Mbps"))?,
            discipline,
            limit,
            frame: 0,
        }))
    }

    /// Input for `tc -batch -`, for both interfaces of a device.
    fn commands(&self) -> String {
        SIDES.map(|side| self.commands_for(side.device)).concat()
    }

    /// Input for `tc -batch -`: a token bucket that holds packets back, and the discipline below
    /// it.
    pub(super) fn commands_for(&self, interface: &str) -> String {
        let Self { bps, discipline, limit, frame } = self;
        // 2 ms, and at least two packets: the kernel's timer is as coarse as 4 ms, but on most
        // machines packets then leave in groups of a few.
        let burst = (bps / 8 / 500).max(4096).max(u64::from(*frame));
        let limit = limit.map_or(String::new(), |limit| format!(" limit {limit}"));
        format!(
            "qdisc add dev {interface} root handle 1: tbf rate {bps}bit burst {burst} latency \
             1s\nqdisc add dev {interface} parent 1:1 handle 10: {discipline}{limit}\n"
        )
    }

    /// A hint for the case that the kernel refuses the commands.
    pub(super) fn hint(&self) -> String {
        let discipline = &self.discipline;
        // Each discipline can be left out of a kernel, or be a module that is not installed.
        format!("try modprobe sch_{discipline}, or queue=pfifo")
    }
}

/// A device; the kind `reference` can have faults, and those of the kernel a shaper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    pub kind: DeviceKind,
    /// `,key=value` of the faults or of the shaper, as given.
    options: String,
    shaper: Option<Shaper>,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.kind.name(), self.options)
    }
}

impl FromStr for Device {
    type Err = String;

    /// Parses `router`, `router,rate=10Mbps,queue=fq_codel`, `reference,drain=100kpps,buffer=200`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, options) = text.split_at(text.find(',').unwrap_or(text.len()));
        let kind = DeviceKind::ALL.into_iter().find(|kind| kind.name() == name);
        let kind = kind.ok_or_else(|| {
            let names = DeviceKind::ALL.map(DeviceKind::name).join(", ");
            format!("expected {names}; reference takes faults, such as reference,drop=1/100")
        })?;
        let mut address: Address =
            format!("af_packet:{}{options}", SIDES[0].device).parse().map_err(text_of)?;
        let shaper = match kind {
            DeviceKind::Reference => {
                Faults::take(&mut address).map_err(text_of)?;
                address.finish(Faults::KEYS).map_err(text_of)?;
                None
            }
            _ => {
                let shaper = Shaper::take(&mut address)?;
                address.finish(Shaper::KEYS).map_err(|error| {
                    format!("{error}\n  {name} takes no faults; try reference{options}")
                })?;
                shaper
            }
        };
        Ok(Self { kind, options: options.to_owned(), shaper })
    }
}

fn text_of(error: impl fmt::Display) -> String {
    error.to_string()
}

impl Device {
    /// The device between interfaces of this MTU.
    pub(super) fn with_mtu(&self, mtu: u32) -> Self {
        // With a VLAN tag.
        let of_mtu = |shaper: &Shaper| Shaper { frame: mtu + 18, ..shaper.clone() };
        Self { shaper: self.shaper.as_ref().map(of_mtu), ..self.clone() }
    }

    /// Checks that the device's programs are installed.
    pub(super) fn check_tools(&self) -> Result<(), LabError> {
        let shaper = self.shaper.as_ref().map(|_| ("tc", "iproute2"));
        for (tool, package) in self.kind.tools().iter().copied().chain(shaper) {
            if find_program(tool).is_none() {
                return Err(self.problem(format!(
                    "{tool} is not installed\n  try apt-get install {package}, or your system's \
                     own package of it"
                )));
            }
        }
        Ok(())
    }

    fn problem(&self, problem: impl Into<String>) -> LabError {
        LabError::Device { device: self.kind.name().into(), problem: problem.into() }
    }

    /// Forks the process that holds the device, moves the interfaces into it, and waits until it is
    /// ready. To be called by the process that holds the lab.
    pub(super) fn start(&self) -> Result<u32, LabError> {
        let failed = |what: &str| {
            let what = what.to_owned();
            move |error: io::Error| self.problem(format!("{what}: {error}"))
        };
        let (from_device, mut to_lab) = io::pipe().map_err(failed("pipe"))?;
        let (mut from_lab, mut to_device) = io::pipe().map_err(failed("pipe"))?;
        match sys::fork().map_err(failed("fork"))? {
            0 => {
                drop((from_device, to_device));
                let holder = self.hold(&mut from_lab, &mut to_lab);
                let text = holder.as_ref().err().map(ToString::to_string).unwrap_or_default();
                let reported = to_lab.write_all(text.as_bytes());
                drop(to_lab);
                if holder.is_ok() && reported.is_ok() {
                    // The service is killed when this process ends, so this process must live.
                    sys::wait_forever();
                }
                sys::exit_now();
            }
            pid => {
                drop((from_lab, to_lab));
                let mut from_device = BufReader::new(from_device);
                let mut ready = String::new();
                from_device.read_line(&mut ready).map_err(failed("its process"))?;
                if ready == READY {
                    self.run("ip", &["-batch", "-"], &move_interfaces(pid))?;
                    to_device.write_all(b"\n").map_err(failed("its process"))?;
                    ready.clear();
                }
                from_device.read_to_string(&mut ready).map_err(failed("its process"))?;
                match ready.as_str() {
                    "" => Ok(pid),
                    problem => Err(LabError::Holder(problem.to_owned())),
                }
            }
        }
    }

    /// Runs in the device's process: sets the device up. Returns the service that keeps running, if
    /// the device has one.
    fn hold(
        &self,
        from_lab: &mut impl Read,
        to_lab: &mut impl Write,
    ) -> Result<Option<Child>, LabError> {
        let failed = |error: io::Error| self.problem(error.to_string());
        sys::set_parent_death_signal().map_err(failed)?;
        sys::name_process("squall-device");
        sys::unshare(libc::CLONE_NEWNET).map_err(failed)?;
        to_lab.write_all(READY.as_bytes()).map_err(failed)?;
        from_lab.read_exact(&mut [0]).map_err(failed)?;
        if self.kind.has_addresses() {
            self.route()?;
        } else {
            self.disable_ipv6();
        }
        match self.kind {
            DeviceKind::Bridge => self.run("ip", &["-batch", "-"], BRIDGE)?,
            DeviceKind::Reference => self.run("ip", &["-batch", "-"], UP)?,
            _ => {}
        }
        if let Some(rules) = self.kind.rules() {
            self.run("nft", &["-f", "-"], rules)?;
        }
        if let Some(shaper) = &self.shaper {
            self.shape(shaper)?;
        }
        match self.kind {
            DeviceKind::Haproxy => self.serve(haproxy()).map(Some),
            DeviceKind::Reference => self.serve(self.forwarder().map_err(failed)?).map(Some),
            _ => Ok(None),
        }
    }

    /// Sets addresses, and a route to each side through the tester's first address there. That
    /// address has a permanent neighbor entry, so frames for the side's network reach the tester's
    /// interface without ARP.
    fn route(&self) -> Result<(), LabError> {
        for (file, value) in [
            ("ipv4/ip_forward", "1"),
            ("ipv4/conf/all/rp_filter", "0"),
            ("ipv6/conf/all/disable_ipv6", "0"),
            ("ipv6/conf/all/forwarding", "1"),
        ] {
            self.set(file, value)?;
        }
        let mut batch = "link set lo up\n".to_owned();
        for side in SIDES {
            let Side { device, tester_mac, ipv4, ipv6, .. } = side;
            for (file, value) in [
                ("ipv4/conf/IF/rp_filter", "0"),
                ("ipv6/conf/IF/disable_ipv6", "0"),
                ("ipv6/conf/IF/addr_gen_mode", "1"),
                ("ipv6/conf/IF/accept_dad", "0"),
            ] {
                self.set(&file.replace("IF", device), value)?;
            }
            batch += &format!("link set {device} arp on up\n");
            for ([network, own, peer], host, flag) in [(ipv4, 32, ""), (ipv6, 128, " nodad")] {
                batch += &format!(
                    "addr add {own}/{host} dev {device}{flag}\nneigh replace {peer} lladdr \
                     {tester_mac} dev {device} nud permanent\nroute add {peer}/{host} dev \
                     {device}\nroute add {network} via {peer} dev {device}\n"
                );
            }
        }
        self.run("ip", &["-batch", "-"], &batch)
    }

    fn shape(&self, shaper: &Shaper) -> Result<(), LabError> {
        self.run("tc", &["-batch", "-"], &shaper.commands()).map_err(|error| {
            self.problem(format!(
                "the kernel does not take the queue discipline {}: {error}\n  {}, or a queue of \
                 Squall's own: reference,drain=1kpps,buffer=50",
                shaper.discipline,
                shaper.hint()
            ))
        })
    }

    /// Disables IPv6; if that is impossible, the device sends a few frames of its own.
    fn disable_ipv6(&self) {
        for which in ["all", "default", SIDES[0].device, SIDES[1].device] {
            let _ = self.set(&format!("ipv6/conf/{which}/disable_ipv6"), "1");
        }
    }

    fn set(&self, file: &str, value: &str) -> Result<(), LabError> {
        let path = format!("/proc/sys/net/{file}");
        fs::write(&path, value).map_err(|error| {
            self.problem(format!(
                "cannot write {value} to {path}: {error}\n  try outside of a container, or in one \
                 where /proc/sys can be written"
            ))
        })
    }

    /// Runs a program to its end, with `input` on its standard input.
    fn run(&self, program: &str, arguments: &[&str], input: &str) -> Result<(), LabError> {
        run_program(program, arguments, input).map_err(|error| {
            self.problem(format!(
                "{error}\n  if the kernel lacks a module, try modprobe -a {}",
                self.kind.modules()
            ))
        })
    }

    fn forwarder(&self) -> io::Result<Service> {
        let ends = SIDES.map(|side| format!("af_packet:{}{}", side.device, self.options));
        let [a, b] = ends;
        Ok(Service {
            program: env::current_exe()?,
            arguments: vec!["lab".into(), "forward".into(), a, b],
            input: String::new(),
            log: None,
            is_ready: Box::new(|| SIDES.iter().all(|side| child::has_receiver(side.device))),
        })
    }

    /// Starts a program that keeps running, and waits until it is ready.
    fn serve(&self, service: Service) -> Result<Child, LabError> {
        service.start().map_err(|problem| self.problem(problem))
    }
}

/// Runs a program to its end, with `input` on its standard input. The error has its arguments and
/// its messages.
pub(super) fn run_program(program: &str, arguments: &[&str], input: &str) -> Result<(), String> {
    let failed = |error: &dyn fmt::Display| format!("{program} {}: {error}", arguments.join(" "));
    let path = find_program(program).unwrap_or_else(|| program.into());
    let mut command = Command::new(path);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| failed(&e))?;
    // A program that ends early closes its input; its own message explains more than the write
    // error.
    let _ = child.stdin.take().expect("it is piped").write_all(input.as_bytes());
    let output = child.wait_with_output().map_err(|e| failed(&e))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(failed(&text.lines().map(str::trim).collect::<Vec<_>>().join(", ")))
}

/// A program that keeps running.
pub(super) struct Service {
    pub program: PathBuf,
    pub arguments: Vec<String>,
    pub input: String,
    /// The file that gets its messages. `None`: they are discarded once it is ready.
    pub log: Option<PathBuf>,
    pub is_ready: Box<dyn Fn() -> bool>,
}

impl Service {
    /// Starts the program, and waits until it is ready. The error has its messages.
    pub fn start(self) -> Result<Child, String> {
        let name = self.program.display().to_string();
        let failed = |error: io::Error| format!("{name}: {error}");
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stdin(Stdio::piped()).stdout(Stdio::null());
        match &self.log {
            Some(log) => command.stderr(fs::File::create(log).map_err(failed)?),
            None => command.stderr(Stdio::piped()),
        };
        let mut child = child::spawn(&mut command, None).map_err(failed)?;
        let _ = child.stdin.take().expect("it is piped").write_all(self.input.as_bytes());
        let deadline = Instant::now() + START_TIMEOUT;
        while !(self.is_ready)() {
            let ended = child.try_wait().map_err(failed)?.is_some();
            if ended || Instant::now() > deadline {
                let _ = child.kill();
                let output = child.wait_with_output().map_err(failed)?;
                let text = match &self.log {
                    Some(log) => fs::read(log).unwrap_or_default(),
                    None => output.stderr,
                };
                let text = String::from_utf8_lossy(&text);
                return Err(format!("{name} does not serve: {}", text.trim()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(child)
    }
}

/// A busy machine may take this long to start a program.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Sent by the device's process once it has a namespace.
const READY: &str = "ready\n";

const UP: &str = "link set dev-a up\nlink set dev-b up\n";

/// Disables spanning tree and multicast snooping, which would send frames of their own.
const BRIDGE: &str = "link add br0 type bridge stp_state 0 mcast_snooping 0\nlink set dev-a master \
                      br0\nlink set dev-b master br0\nlink set dev-a up\nlink set dev-b up\nlink set \
                      br0 up\n";

/// Sets fixed MAC addresses, so that an old profile fits a new lab, and moves the device's ends
/// into the namespace of process `pid`.
fn move_interfaces(pid: u32) -> String {
    let of_side = |side: Side| {
        let Side { tester, tester_mac, device, device_mac, .. } = side;
        format!(
            "link set {tester} address {tester_mac}\nlink set {device} address {device_mac}\nlink \
             set {device} netns {pid}\n"
        )
    };
    SIDES.map(of_side).concat()
}

/// HAProxy configuration: connections to side A's gateway, port 80, go to the tester's first
/// address on side B, port 80.
fn haproxy() -> Service {
    let [a, b] = SIDES;
    let config = format!(
        "global\n  maxconn 2000\ndefaults\n  mode http\n  timeout connect 2s\n  timeout client \
         30s\n  timeout server 30s\nlisten web\n  bind {}:80\n  server one {}:80\n",
        a.ipv4[1], b.ipv4[2]
    );
    Service {
        program: find_program("haproxy").unwrap_or_else(|| "haproxy".into()),
        arguments: ["-db", "-f", "/dev/stdin"].map(str::to_owned).into(),
        input: config,
        log: None,
        is_ready: Box::new(|| {
            // Looks for port 80 (0050) in state LISTEN (0A).
            let sockets = fs::read_to_string("/proc/thread-self/net/tcp").unwrap_or_default();
            sockets.lines().any(|line| line.contains(":0050 ") && line.contains(" 0A "))
        }),
    }
}

/// Searches PATH, then directories of system programs that an ordinary user's PATH lacks.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).collect::<Vec<_>>();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    folders.into_iter().chain(system).map(|folder| folder.join(name)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_a_kind_and_a_reference_has_faults() {
        for kind in DeviceKind::ALL {
            assert_eq!(kind.name().parse::<Device>().unwrap().kind, kind);
        }
        let text = "reference,drain=100kpps,buffer=200,delay=50us";
        assert_eq!(text.parse::<Device>().unwrap().to_string(), text);
        for (text, expected) in [
            ("switch", "expected router, bridge"),
            ("router,drop=0.1", "router takes no faults; try reference,drop=0.1"),
            ("router,queue=pfifo", "queue and limit take rate"),
            ("router,rate=10kpps", "expected a bit rate"),
            ("router,rate=1Mbps,queue=x;y", "expected a queue discipline"),
            ("router,rate=1Mbps,limit=0", "expected a number of packets"),
            ("reference,drip=0.1", "unknown option drip"),
            ("reference,drain=1kpps", "drain also needs buffer"),
        ] {
            let error = text.parse::<Device>().unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_device_of_the_kernel_has_a_rate_and_a_queue_discipline() {
        let text = "router,rate=10Mbps,queue=fq_codel,limit=100";
        let device = text.parse::<Device>().unwrap();
        assert_eq!(device.to_string(), text);
        let commands = device.with_mtu(9216).shaper.unwrap().commands();
        for line in [
            // Room for the longest frame, although 2 ms are 2500 octets.
            "qdisc add dev dev-a root handle 1: tbf rate 10000000bit burst 9234 latency 1s",
            "qdisc add dev dev-b parent 1:1 handle 10: fq_codel limit 100",
        ] {
            assert!(commands.lines().any(|one| one == line), "{line}: {commands}");
        }
        assert_eq!("router".parse::<Device>().unwrap().shaper, None);
    }

    #[test]
    fn a_program_of_the_system_is_found_whatever_path_is() {
        assert!(find_program("sh").is_some());
        assert_eq!(find_program("no-such-program"), None);
    }
}
