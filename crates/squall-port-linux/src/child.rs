//! Runs another program as a child that dies with its parent, is bound to a CPU, and does not get
//! the terminal's Ctrl-C. Reads its CPU time, memory and sockets from /proc.

use std::{
    collections::HashSet,
    fs, io, mem,
    os::unix::{fs::MetadataExt, process::CommandExt},
    path::Path,
    process::{Child, Command},
    time::Duration,
};

use crate::{interface, sys};

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuTime {
    pub user: Duration,
    pub system: Duration,
}

impl CpuTime {
    pub fn total(self) -> Duration {
        self.user + self.system
    }

    /// Splits `total`, a more exact sum, into user and system time in the proportion of these two;
    /// returns `self` unchanged if `total` is zero.
    pub fn of_total(self, total: Duration) -> Self {
        if total.is_zero() {
            return self;
        }
        let ticks = self.total();
        let share =
            if ticks.is_zero() { 0.0 } else { self.user.as_secs_f64() / ticks.as_secs_f64() };
        let user = total.mul_f64(share);
        Self { user, system: total.saturating_sub(user) }
    }

    /// CPU time used from `earlier` to `self`.
    pub fn since(self, earlier: Self) -> Self {
        let Self { user, system } = self;
        Self {
            user: user.saturating_sub(earlier.user),
            system: system.saturating_sub(earlier.system),
        }
    }
}

/// Starts `command` on CPU `cpu`, as the leader of its own process group. The kernel kills it when
/// the calling thread ends, for whatever reason.
///
/// # Errors
/// As [`Command::spawn`]; also for a CPU that this process may not use.
pub fn spawn(command: &mut Command, cpu: Option<u32>) -> io::Result<Child> {
    let set = cpu.map(one_cpu);
    command.process_group(0);
    let prepare = move || {
        // SAFETY: takes no pointers.
        sys::check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) })?;
        if let Some(set) = &set {
            // SAFETY: `set` is readable in the length given.
            sys::check(unsafe {
                libc::sched_setaffinity(0, mem::size_of::<libc::cpu_set_t>(), set)
            })?;
        }
        Ok(())
    };
    // SAFETY: `prepare` makes two system calls and touches memory that it owns; it takes no lock
    // and allocates nothing.
    unsafe { command.pre_exec(prepare) };
    command.spawn()
}

/// Binds the calling thread to a CPU; false if that is not allowed.
pub fn bind_thread(cpu: u32) -> bool {
    let set = one_cpu(cpu);
    // SAFETY: `set` is readable in the length given.
    unsafe { libc::sched_setaffinity(0, mem::size_of::<libc::cpu_set_t>(), &set) == 0 }
}

fn one_cpu(cpu: u32) -> libc::cpu_set_t {
    // SAFETY: all zero is an empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: CPU_SET checks the bounds of the set.
    unsafe { libc::CPU_SET(cpu as usize, &mut set) };
    set
}

/// Asks the process group that [`spawn`] made for process `pid` to end, as Ctrl-C on a terminal
/// does.
pub fn interrupt(pid: u32) {
    signal_group(pid, libc::SIGINT);
}

/// As [`interrupt`], with SIGTERM.
pub fn terminate(pid: u32) {
    signal_group(pid, libc::SIGTERM);
}

/// Kills the group at once.
pub fn kill(pid: u32) {
    signal_group(pid, libc::SIGKILL);
}

fn signal_group(leader: u32, signal: libc::c_int) {
    if let Some(leader) = libc::pid_t::try_from(leader).ok().filter(|pid| *pid > 1) {
        // SAFETY: takes no pointers. An error means that the group is gone, which is fine.
        unsafe { libc::kill(-leader, signal) };
    }
}

/// CPU time of a process and of its children that have been waited for, in steps of 10 ms. Still
/// available after the process has ended, until its parent waits for it.
pub fn cpu_time(pid: u32) -> CpuTime {
    let fields = stat(pid).unwrap_or_default();
    let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0);
    // Ticks of USER_HZ, which Linux fixes at 100 in /proc. These are fields 14 to 17 of proc(5);
    // the first field here, the state, is field 3 there.
    let time =
        |own: usize, children: usize| Duration::from_millis(10 * (ticks(own) + ticks(children)));
    CpuTime { user: time(11, 13), system: time(12, 14) }
}

/// Time that the threads of a process have run, without its children: exact, but not available once
/// the process has ended.
pub fn run_time(pid: u32) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let nanos = |task: fs::DirEntry| -> Option<u64> {
        fs::read_to_string(task.path().join("schedstat")).ok()?.split(' ').next()?.parse().ok()
    };
    Duration::from_nanos(tasks.filter_map(nanos).sum())
}

/// Peak memory of a process in RAM, octets; rings shared with the kernel count once they are
/// mapped.
pub fn peak_memory(pid: u32) -> u64 {
    memory(pid, "VmHWM:")
}

/// Memory of a process in RAM now, octets.
pub fn resident_memory(pid: u32) -> u64 {
    memory(pid, "VmRSS:")
}

/// A line of /proc/PID/status, octets.
fn memory(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// A process and its descendants.
pub fn tree(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    let mut next = 0;
    while let Some(pid) = all.get(next) {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let children = tasks.filter_map(|t| fs::read_to_string(t.path().join("children")).ok());
        let children = children.collect::<String>();
        all.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        next += 1;
    }
    all
}

/// Whether the process has ended, even if its parent has not waited for it.
pub fn has_ended(pid: u32) -> bool {
    stat(pid)
        .is_none_or(|fields| fields.first().is_none_or(|state| matches!(state.as_str(), "Z" | "X")))
}

/// The fields of /proc/PID/stat, from the third on.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name, in brackets, and may contain spaces and brackets.
    let rest = text.rsplit_once(')')?.1;
    Some(rest.split_ascii_whitespace().map(str::to_owned).collect())
}

/// Whether another process receives frames that arrive on `interface`: through a packet socket
/// bound to it (or to all), or with an XDP program. Considers only the calling thread's network
/// namespace.
pub fn has_receiver(interface: &str) -> bool {
    let Ok(interfaces) = interface::list_interfaces() else { return false };
    let Some(found) = interfaces.into_iter().find(|i| i.name == interface) else { return false };
    if !found.xdp.programs.is_empty() {
        return true;
    }
    let sockets = fs::read_to_string("/proc/thread-self/net/packet").unwrap_or_default();
    let own = own_sockets();
    packet_sockets(&sockets)
        .any(|s| s.receives && !own.contains(&s.inode) && [0, found.index].contains(&s.interface))
}

struct PacketSocket {
    /// Index of the interface; 0: all interfaces.
    interface: u32,
    receives: bool,
    inode: u64,
}

/// Parses lines of `sk RefCnt Type Proto Iface R Rmem User Inode`, after a heading.
fn packet_sockets(text: &str) -> impl Iterator<Item = PacketSocket> + '_ {
    text.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, _, _, protocol, interface, running, _, _, inode] = fields[..] else { return None };
        let receives = running == "1" && u16::from_str_radix(protocol, 16).is_ok_and(|p| p != 0);
        Some(PacketSocket {
            interface: interface.parse().ok()?,
            receives,
            inode: inode.parse().ok()?,
        })
    })
}

fn own_sockets() -> HashSet<u64> {
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    entries.filter_map(|entry| Some(fs::metadata(entry.path()).ok()?.ino())).collect()
}

/// Whether the directory `folder` is in memory (tmpfs).
pub fn is_in_memory(folder: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let Ok(folder) = folder.canonicalize() else { return false };
    let mount = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    let longest = mount.filter(|(at, _)| folder.starts_with(at)).max_by_key(|(at, _)| at.len());
    longest.is_some_and(|(_, kind)| kind == "tmpfs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_sockets_are_those_that_receive() {
        let text = "sk               RefCnt Type Proto  Iface R Rmem   User   \
                    Inode\n0000000077170161 3      3    0003   2     1 0      0      \
                    835950\n000000004f96296b 2      3    0000   0     0 0      0      \
                    835513\nhalf a line\n";
        let sockets: Vec<_> =
            packet_sockets(text).map(|s| (s.interface, s.receives, s.inode)).collect();
        assert_eq!(sockets, [(2, true, 835_950), (0, false, 835_513)]);
    }

    #[test]
    fn the_time_of_a_child_is_known_even_after_its_end() {
        let mut command = Command::new("sh");
        command.args(["-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"]);
        let mut child = spawn(&mut command, None).unwrap();
        let pid = child.id();
        while !has_ended(pid) {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(cpu_time(pid).total() >= Duration::from_millis(10), "{:?}", cpu_time(pid));
        child.wait().unwrap();
        assert!(has_ended(pid));
        assert_eq!(cpu_time(pid), CpuTime::default());
    }

    #[test]
    fn an_exact_total_is_split_in_proportion_to_the_ticks() {
        let ms = Duration::from_millis;
        let ticks = CpuTime { user: ms(10), system: ms(30) };
        assert_eq!(ticks.of_total(ms(44)), CpuTime { user: ms(11), system: ms(33) });
        assert_eq!(ticks.of_total(Duration::ZERO), ticks);
        assert_eq!(
            CpuTime::default().of_total(ms(7)),
            CpuTime { user: Duration::ZERO, system: ms(7) }
        );
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        assert_eq!(
            spawn(&mut Command::new("no-such-program"), None).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }
}
