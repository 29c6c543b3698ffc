//! Checks this machine: which features work, how fast and how accurately, with advice on those that
//! do not work.
//!
//! [`examine`] reads facts and changes nothing. [`Trial`] sends a few frames with each kind of
//! port, in memory, into a file and through a private lab, and counts the frames that arrive.
//! [`nic`] examines a network card. [`probe`] sends at full rate with each kind of port on an
//! interface. [`selftest`] measures how
//! much receiving adds to the gaps of a steady stream. Each of these is an ordinary session.
#![forbid(unsafe_code)]

pub mod nic;
pub mod probe;
pub mod selftest;

use std::{fs, path::PathBuf, time::Duration};

use serde::Serialize;
use squall_options::{Clock, Count, RunOptions};
use squall_pcap::CaptureReader;
use squall_port_linux::{InterfaceInfo, Permissions, filter, list_interfaces};
use squall_profile::{Format, Profile};
use squall_units::Nanos;

use squall::{Error, Session, report::Report};
use squall_machine::kinds::{KINDS, Kind};
use squall_report::render::human;

/// Number of frames that each kind of port sends in its trial.
pub const FRAMES: u64 = 1_000;

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The feature works as well as it can.
    Ok,
    /// The feature works, but less accurately or more slowly than possible.
    Limited,
    /// The feature does not work here.
    Missing,
    /// The feature should work here, but failed in a trial.
    Failed,
}

/// The result of the check of one feature.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// Heading: `cpu`, `permissions`, `kernel`, `libraries`, `ports`; a network card has `link`,
    /// `queues`, `time`, `offloads`, `xdp`, `dpdk`.
    pub topic: &'static str,
    pub name: &'static str,
    pub state: State,
    /// The result, on one line.
    pub found: String,
    /// How to improve the result, if possible.
    pub advice: Option<String>,
}

impl Finding {
    fn ok(topic: &'static str, name: &'static str, found: impl Into<String>) -> Self {
        Self { topic, name, state: State::Ok, found: found.into(), advice: None }
    }

    fn advised(mut self, state: State, advice: impl Into<String>) -> Self {
        (self.state, self.advice) = (state, Some(advice.into()));
        self
    }

    /// Splits an `Err` at "try": the text from there on is the advice.
    fn of(
        topic: &'static str,
        name: &'static str,
        result: Result<String, String>,
        state: State,
    ) -> Self {
        match result {
            Ok(found) => Self::ok(topic, name, found),
            Err(why) => {
                let line = why.split_whitespace().collect::<Vec<_>>().join(" ");
                let (found, advice) = match line.split_once("try ") {
                    Some((found, advice)) => (
                        found.trim_end_matches([' ', ';', ':', ',']).to_owned(),
                        Some(advice.to_owned()),
                    ),
                    None => (line, None),
                };
                Self { topic, name, state, found, advice }
            }
        }
    }
}

/// Checks everything except the ports: CPUs and clock, permissions, kernel, libraries. Changes
/// nothing.
pub fn examine() -> Vec<Finding> {
    let permissions = Permissions::of_this_process();
    vec![
        cpus(),
        quota(),
        machine(),
        clock(),
        governor(),
        isolation(),
        Finding::of(
            "permissions",
            "packet sockets",
            permissions.packet_sockets().map(|()| "allowed".into()),
            State::Missing,
        ),
        Finding::of(
            "permissions",
            "XDP programs",
            permissions.xdp_programs().map(|()| "allowed".into()),
            State::Missing,
        ),
        locked_memory(&permissions),
        kernel(),
        af_xdp(),
        jit(),
        huge_pages(),
        Finding::of(
            "libraries",
            "libpcap (--filter)",
            filter::compile_file("udp port 53", 1)
                .map(|_| "filters compile".into())
                .map_err(|e| e.to_string()),
            State::Missing,
        ),
    ]
}

fn cpus() -> Finding {
    let allowed = squall_machine::cpus::allowed().len();
    // Without /sys, as in a bare chroot, only the allowed CPUs are known.
    let all = online().max(allowed);
    let found = match allowed == all {
        true => format!("{all} CPUs, {}", squall_machine::host().cpu_model),
        false => format!("{allowed} of {all} CPUs allowed, {}", squall_machine::host().cpu_model),
    };
    let finding = Finding::ok("cpu", "CPUs", found);
    match allowed {
        0 | 1 => finding.advised(
            State::Limited,
            "2 or more CPUs: one that sends and one that receives, else they take turns",
        ),
        _ => finding,
    }
}

fn online() -> usize {
    squall_options::parse_cpus(line("/sys/devices/system/cpu/online").trim())
        .map_or(0, |list| list.len())
}

/// The CPU limit set by the control groups (version 2) of this process.
fn quota() -> Finding {
    let limits = squall_machine::of_control_groups("cpu.max");
    let limits = limits.iter().filter_map(|max| cpus_of_quota(max));
    match limits.min_by(f64::total_cmp) {
        None => Finding::ok("cpu", "quota", "none"),
        Some(cpus) => Finding::ok("cpu", "quota", format!("{cpus:.2} CPUs")).advised(
            State::Limited,
            "a container without a CPU limit: a throttled run stops for milliseconds and is NOT \
             VALID",
        ),
    }
}

/// Converts a quota: `150000 100000` is 1.5 CPUs, and `max 100000` is no limit.
fn cpus_of_quota(max: &str) -> Option<f64> {
    let mut words = max.split_whitespace().map(str::parse::<f64>);
    match (words.next()?, words.next()?) {
        (Ok(quota), Ok(period)) if period > 0.0 => Some(quota / period),
        _ => None,
    }
}

fn machine() -> Finding {
    let flags = text("/proc/cpuinfo");
    let is_virtual = flags
        .lines()
        .filter(|l| l.starts_with("flags"))
        .any(|l| l.split_whitespace().any(|flag| flag == "hypervisor"));
    match is_virtual {
        false => Finding::ok("cpu", "machine", "no hypervisor"),
        true => {
            let stat = line("/proc/stat");
            let steal = stat.split_whitespace().nth(8).and_then(|w| w.parse::<f64>().ok());
            let found = format!("virtual, steal {:.0} s since boot", steal.unwrap_or(0.0) / 100.0);
            Finding::ok("cpu", "machine", found).advised(
                State::Limited,
                "bare metal, or CPUs that the host gives to this machine alone, for exact gaps",
            )
        }
    }
}

fn clock() -> Finding {
    const READS: u32 = 10_000;
    let begin = squall_port::monotonic();
    let mut last = begin;
    for _ in 1..READS {
        last = squall_port::monotonic();
    }
    let each = (last - begin).0 as f64 / f64::from(READS);
    let source = line("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    let source = if source.trim().is_empty() { "source unknown" } else { source.trim() };
    let finding = Finding::ok("cpu", "clock", format!("{source}, {each:.0} ns to read"));
    // If the vDSO does not support the clock source, each reading is a system call of 200 ns or
    // more.
    match each < 150.0 {
        true => finding,
        false => finding.advised(
            State::Limited,
            "the clock source tsc: clocksource=tsc on the kernel's command line",
        ),
    }
}

fn governor() -> Finding {
    let governors = each_cpu("cpufreq/scaling_governor");
    let slow = governors.iter().filter(|g| *g != "performance").count();
    match (governors.is_empty(), slow) {
        (true, _) => {
            Finding::ok("cpu", "governor", "none: the frequency is not controlled by Linux")
        }
        (false, 0) => Finding::ok("cpu", "governor", "performance"),
        (false, n) => Finding::ok("cpu", "governor", format!("{} on {n} CPUs", governors[0]))
            .advised(State::Limited, "sudo cpupower frequency-set -g performance"),
    }
}

/// The content of `file` for each allowed CPU for which it exists.
fn each_cpu(file: &str) -> Vec<String> {
    let all = squall_machine::cpus::allowed().into_iter();
    let read = |cpu| fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/{file}"));
    all.filter_map(|cpu| Some(read(cpu).ok()?.trim().to_owned())).collect()
}

fn isolation() -> Finding {
    let isolated = line("/sys/devices/system/cpu/isolated");
    match isolated.trim() {
        "" => Finding::ok("cpu", "isolated CPUs", "none").advised(
            State::Limited,
            "isolcpus=2-5 nohz_full=2-5 on the kernel's command line, then --cpus 2-5, for gaps \
             exact to microseconds",
        ),
        list => Finding::ok("cpu", "isolated CPUs", format!("{list}: use them with --cpus {list}")),
    }
}

fn locked_memory(permissions: &Permissions) -> Finding {
    const ENOUGH: u64 = 8 << 20;
    match permissions.memlock {
        None => Finding::ok("permissions", "locked memory", "no limit"),
        Some(octets) => {
            let found = format!("at most {}", human::si(octets as f64, "B"));
            let finding = Finding::ok("permissions", "locked memory", found);
            match octets < ENOUGH && !permissions.names().any(|name| name == "CAP_IPC_LOCK") {
                false => finding,
                true => finding.advised(State::Limited, "ulimit -l 8192, for af_xdp"),
            }
        }
    }
}

fn kernel() -> Finding {
    Finding::ok("kernel", "Linux", squall_machine::host().kernel)
}

fn af_xdp() -> Finding {
    let known = text("/proc/net/protocols").lines().any(|l| l.starts_with("XDP "));
    match known {
        true => Finding::ok("kernel", "AF_XDP", "there"),
        false => Finding::ok("kernel", "AF_XDP", "not in this kernel")
            .advised(State::Missing, "a kernel with CONFIG_XDP_SOCKETS"),
    }
}

fn jit() -> Finding {
    match line("/proc/sys/net/core/bpf_jit_enable").trim() {
        "0" => Finding::ok("kernel", "BPF compiler", "off")
            .advised(State::Limited, "sudo sysctl net.core.bpf_jit_enable=1"),
        "" => Finding::ok("kernel", "BPF compiler", "unknown: only root can read the setting"),
        _ => Finding::ok("kernel", "BPF compiler", "on"),
    }
}

fn huge_pages() -> Finding {
    let memory = text("/proc/meminfo");
    let number = |key: &str| -> u64 {
        let line = memory.lines().find_map(|l| l.strip_prefix(key));
        line.and_then(|l| l.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    };
    let (free, kib) = (number("HugePages_Free:"), number("Hugepagesize:"));
    match free * kib {
        0 => Finding::ok("kernel", "huge pages", "none free").advised(
            State::Limited,
            "sudo sysctl vm.nr_hugepages=512, for dpdk ports; nothing else needs them",
        ),
        kib => Finding::ok("kernel", "huge pages", human::si(kib as f64 * 1024.0, "B") + " free"),
    }
}

fn text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn line(path: &str) -> String {
    text(path).lines().next().unwrap_or_default().to_owned()
}

/// The resources for the trial of each kind of port.
#[derive(Debug)]
pub struct Trial {
    /// Two interfaces of a private lab, connected to each other; or the reason why there is no lab.
    pub lab: Result<[String; 2], String>,
    /// Directory for the file that the trial of `pcap:` ports writes and removes.
    pub folder: PathBuf,
}

impl Trial {
    /// Sends [`FRAMES`] frames with each kind of port, and reports each finding.
    pub fn run(&self, mut report_finding: impl FnMut(&Finding)) {
        for kind in KINDS {
            report_finding(&self.kind(kind));
        }
        report_finding(&self.lab());
    }

    fn lab(&self) -> Finding {
        let lab = self.lab.clone().map(|[a, b]| format!("{a} and {b}, each other's peer"));
        Finding::of("permissions", "private lab", lab, State::Missing)
    }

    fn kind(&self, kind: &'static Kind) -> Finding {
        if let Err(why) = (kind.here)() {
            return Finding::of("ports", kind.name, Err(why), State::Missing);
        }
        let done = match kind.interface {
            Some(_) => return self.on_interface(kind),
            None => match kind.name {
                "loop" => both("loop:squall-doctor", "loop:squall-doctor"),
                "pcap" => self.file(),
                // DPDK's virtual device that discards frames.
                "dpdk" => sent("dpdk:vdev=net_null0"),
                squall_port::elsewhere::KIND => Ok("another node's: nothing to try here".into()),
                name => sent(&format!("{name}:")),
            },
        };
        Finding::of("ports", kind.name, done, State::Failed)
    }

    fn on_interface(&self, kind: &'static Kind) -> Finding {
        let on = kind.interface.expect("asked for such a kind alone");
        let name = kind.name;
        let Ok([a, b]) = &self.lab else {
            let why = "not tried: there is no private lab here".to_owned();
            return Finding::of("ports", name, Err(why), State::Missing);
        };
        let permissions = Permissions::of_this_process();
        let tried = || -> Result<Result<String, String>, Error> {
            // Open it before the check: whether an interface accepts frames from XDP may depend on
            // its peer.
            let _sink = probe::attach_sink(name, Some(b));
            let [at, peer] = [interface(a)?, interface(b)?];
            if let Err(why) = (on.can)(&at, &permissions) {
                return Ok(Err(why));
            }
            Ok(Ok(if on.receive.is_none() {
                let time = Nanos(50_000_000);
                let size = probe::SIZES[0];
                let done = probe::send(kind.name, &at, Some(&peer.name), size, time, &|| false)?;
                counted(done.sent, done.received.unwrap_or(0))?
            } else if receives(kind, &peer) {
                both(&format!("{name}:{a}"), &format!("{name}:{b}")).map_err(Error::Environment)?
            } else {
                both(&format!("{name}:{a}"), &format!("af_packet:{b}"))
                    .map_err(Error::Environment)?
                    + "; cannot receive here"
            }))
        };
        match tried() {
            Ok(Ok(found)) => Finding::ok("ports", name, found),
            Ok(Err(why)) => Finding::of("ports", name, Err(why), State::Missing),
            Err(why) => Finding::of("ports", name, Err(why.to_string()), State::Failed),
        }
    }

    fn file(&self) -> Result<String, String> {
        let file = self.folder.join(format!("squall-doctor-{}.pcap", std::process::id()));
        let written = session(&[&format!("pcap:{}", file.display())]).map_err(|e| e.to_string());
        let read = CaptureReader::open(&file).map_err(|e| e.to_string()).and_then(|mut reader| {
            let mut packets = 0;
            while reader.next().map_err(|e| e.to_string())?.is_some() {
                packets += 1;
            }
            Ok(packets)
        });
        _ = fs::remove_file(&file);
        counted(written?.ports[0].tx.packets, read?).map_err(|e| e.to_string())
    }
}

fn interface(name: &str) -> Result<InterfaceInfo, Error> {
    let found = list_interfaces()
        .map_err(|e| Error::Environment(format!("cannot list the interfaces: {e}")))?;
    Ok(squall_machine::listing::find(name, &found)?.clone())
}

/// Whether a port of this kind can open a receive queue on the interface.
fn receives(kind: &Kind, at: &InterfaceInfo) -> bool {
    let opened =
        squall_machine::ports::open(&format!("{}:{}", kind.name, at.name), Default::default());
    opened.is_ok_and(|(port, ..)| port.facts().rx_queues > 0)
}

fn sent(address: &str) -> Result<String, String> {
    let report = session(&[address]).map_err(|e| e.to_string())?;
    let sent = report.ports[0].tx.packets;
    match sent == FRAMES {
        true => Ok(format!("{} frames sent", human::count(sent))),
        false => Err(format!("sent {sent} of {FRAMES} frames")),
    }
}

fn both(from: &str, to: &str) -> Result<String, String> {
    let report = session(&[from, to]).map_err(|e| e.to_string())?;
    counted(report.ports[0].tx.packets, report.ports[1].rx.packets).map_err(|e| e.to_string())
}

fn counted(sent: u64, received: u64) -> Result<String, Error> {
    match sent == received && sent > 0 {
        true => Ok(format!("{} frames sent, all received", human::count(sent))),
        false => Err(Error::Environment(format!("sent {sent} frames, received {received}"))),
    }
}

/// Sends [`FRAMES`] frames from the first port, to the second if there is one.
fn session(addresses: &[&str]) -> Result<Report, Error> {
    let ports: String = addresses
        .iter()
        .zip(["A", "B"])
        .map(|(address, name)| format!("{name} = {address:?}\n"))
        .collect();
    let profile = format!(
        "[ports]\n{ports}[[stream]]\nport = \"A\"\npacket = \
         \"eth/ipv4(src=198.18.0.1,dst=198.19.0.1)/udp(sport=1024,dport=1025)\"\nsize = 128\nrate \
         = \"50 kpps\"\n"
    );
    let options = RunOptions {
        packets: Some(Count(FRAMES)),
        clock: Some(Clock::Real),
        receive: Some(addresses.len() > 1),
        ..RunOptions::default()
    };
    let session = Session::new(Profile::parse(&profile, "<doctor>", Format::Toml)?);
    let mut run = session.with(options)?.open()?.start()?;
    while !run.wait(Duration::from_millis(20)) {}
    run.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_in_cpus_and_max_is_none() {
        assert_eq!(cpus_of_quota("150000 100000\n"), Some(1.5));
        assert_eq!(cpus_of_quota("max 100000\n"), None);
        assert_eq!(cpus_of_quota(""), None);
    }

    #[test]
    fn the_hint_of_a_message_is_the_advice() {
        let why = "needs CAP_NET_RAW; try sudo, or the lab".to_owned();
        let finding = Finding::of("permissions", "x", Err(why), State::Missing);
        assert_eq!(finding.found, "needs CAP_NET_RAW");
        assert_eq!(finding.advice.as_deref(), Some("sudo, or the lab"));
    }

    #[test]
    fn each_kind_is_tried_once_and_those_in_memory_or_a_file_work_everywhere() {
        let trial = Trial { lab: Err("none".into()), folder: std::env::temp_dir() };
        let mut found = Vec::new();
        trial.run(|finding| found.push(finding.clone()));
        assert_eq!(found.len(), KINDS.len() + 1);
        for kind in ["loop", "null", "pcap"] {
            let finding = found.iter().find(|f| f.name == kind).unwrap();
            assert_eq!(finding.state, State::Ok, "{finding:?}");
        }
        let lab = found.iter().find(|f| f.name == "af_packet").unwrap();
        assert_eq!(lab.state, State::Missing);
    }
}
