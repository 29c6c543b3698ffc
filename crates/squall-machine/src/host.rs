//! Facts about the machine of a run, read from /proc.

use std::{fs, path::Path};

use squall_report::report::{Contention, Cpu, Host, Memory};

/// Name, system and CPUs of this machine.
pub fn host() -> Host {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let line = |text: &str, key: &str, separator: char| {
        let found = text.lines().find(|l| l.starts_with(key));
        found
            .and_then(|l| l.split_once(separator))
            .map(|(_, v)| v.trim().trim_matches('"').to_owned())
            .unwrap_or_default()
    };
    Host {
        name: read("/proc/sys/kernel/hostname").trim().to_owned(),
        os: line(&read("/etc/os-release"), "PRETTY_NAME", '='),
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        cpu_model: line(&read("/proc/cpuinfo"), "model name", ':'),
        cpus: cpus_here() as u32,
    }
}

/// CPUs that this process may use.
pub fn cpus_here() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Wall clock minus engine clock, in nanoseconds.
pub fn wall_offset() -> i64 {
    let before = squall_port::monotonic();
    let wall =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let after = squall_port::monotonic();
    wall.as_nanos() as i64 - (before.0 + (after - before).0 / 2) as i64
}

/// CPU time of the process so far.
pub fn cpu() -> Cpu {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Skip the command name, which may contain spaces and parentheses.
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |s| s.1).split_whitespace().collect();
    // Ticks of USER_HZ, which Linux fixes at 100 for /proc.
    let seconds =
        |i: usize| fields.get(i).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0) / 100.0;
    Cpu { user_s: seconds(11), system_s: seconds(12), per_mpkt_s: None }
}

/// Totals kept by the kernel. Context switches are not included, because the workers count their
/// own.
pub fn contention() -> Contention {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    Contention {
        involuntary_switches: 0,
        throttled_s: throttled_s(),
        // some avg10=0.00 avg60=0.00 avg300=0.00 total=123456
        pressure_s: number_after(&read("/proc/pressure/cpu"), "total=") / 1e6,
        steal_s: read("/proc/stat").lines().next().map_or(0.0, |all| field(all, 8)) / 100.0,
    }
}

/// Time for which this process's control group (version 2), or a group above it, was throttled.
fn throttled_s() -> f64 {
    let all = of_control_groups("cpu.stat").into_iter();
    all.map(|stat| number_after(&stat, "throttled_usec ") / 1e6).fold(0.0, f64::max)
}

/// The texts of the file with this name of this process's control group (version 2) and of the
/// groups above it, as far as they have one.
pub fn of_control_groups(file: &str) -> Vec<String> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"));
    let above = path.into_iter().flat_map(|path| Path::new(path).ancestors());
    let root = Path::new("/sys/fs/cgroup");
    above.filter_map(|group| fs::read_to_string(root.join(group).join(file)).ok()).collect()
}

fn field(line: &str, i: usize) -> f64 {
    line.split_whitespace().nth(i).and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

fn number_after(text: &str, key: &str) -> f64 {
    text.split_once(key).map_or(0.0, |(_, rest)| field(rest, 0))
}

pub fn memory() -> Memory {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = status
        .lines()
        .find_map(|l| l.strip_prefix("VmHWM:"))
        .and_then(|v| v.trim().split(' ').next()?.parse().ok());
    Memory { peak_rss_octets: kib.unwrap_or(0u64) * 1024 }
}
