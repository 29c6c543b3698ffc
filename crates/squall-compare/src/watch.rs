//! Watches a program from outside: each second, the frames that arrive at an interface, and the CPU
//! time and memory of the program's processes. No figure depends on the program's output.

use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use squall_port_linux::{
    child::{self, CpuTime},
    interface_counters,
};

/// One second of a run, or the whole run if it is shorter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Second {
    /// Actual duration: the thread that reads the counters may be late.
    pub length_s: f64,
    /// Frames per second that arrived.
    pub pps: f64,
    /// Octets of these frames per second, without FCS.
    pub octets_per_s: f64,
    /// CPU seconds per second of all processes of the program. The kernel reports them in steps of
    /// 10 ms.
    pub user_cpus: f64,
    pub system_cpus: f64,
    /// Resident memory of all processes of the program at the end of the second.
    pub memory_octets: u64,
}

const SECOND: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(10);

/// Watches process `pid` and its descendants for `time`, and the frames that `interface` receives.
/// Ends early if `stop` returns true.
///
/// # Errors
/// The counters of the interface cannot be read; the error is the reason.
pub fn seconds(
    pid: u32,
    interface: &str,
    time: Duration,
    stop: &dyn Fn() -> bool,
) -> Result<Vec<Second>, String> {
    let count = || interface_counters(interface).map_err(|e| format!("{interface}: {e}"));
    let start = Instant::now();
    let (mut at, mut counters, mut cpu) = (start, count()?, cpu_time(pid));
    let intervals = (time.as_secs_f64() / SECOND.as_secs_f64()).floor().max(1.0) as u32;
    let mut seconds = Vec::with_capacity(intervals as usize);
    for i in 1..=intervals {
        let next = start + SECOND.min(time) * i;
        while Instant::now() < next && !stop() {
            std::thread::sleep(LOOK.min(next.saturating_duration_since(Instant::now())));
        }
        // Read the clock together with the counters, because this thread may be late.
        let (now, arrived, used) = (Instant::now(), count()?, cpu_time(pid));
        let length_s = (now - at).as_secs_f64();
        let per_s = |n: u64| n as f64 / length_s;
        let worked = used.since(cpu);
        seconds.push(Second {
            length_s,
            pps: per_s(arrived.rx_packets - counters.rx_packets),
            octets_per_s: per_s(arrived.rx_octets - counters.rx_octets),
            user_cpus: worked.user.as_secs_f64() / length_s,
            system_cpus: worked.system.as_secs_f64() / length_s,
            memory_octets: child::tree(pid).into_iter().map(child::resident_memory).sum(),
        });
        (at, counters, cpu) = (now, arrived, used);
        if stop() {
            break;
        }
    }
    Ok(seconds)
}

/// CPU time of a process and its descendants.
pub fn cpu_time(pid: u32) -> CpuTime {
    let sum =
        |a: CpuTime, b: CpuTime| CpuTime { user: a.user + b.user, system: a.system + b.system };
    child::tree(pid).into_iter().map(child::cpu_time).fold(CpuTime::default(), sum)
}
