//! CPUs for workers: the set that the system allows, their topology, and locks which ensure that no
//! two runs bind workers to the same CPU.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use squall_options::parse_cpus;
use squall_plan::{Cpu, Plan};
use squall_port::Address;
use squall_port_linux::{Permissions, shared};

use crate::Error;

/// CPUs that this thread may use, and therefore the workers that it starts.
pub fn allowed() -> Vec<u32> {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let list = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:"));
    list.and_then(|list| parse_cpus(list).ok()).unwrap_or_default()
}

fn describe(number: u32) -> Cpu {
    let folder = PathBuf::from(format!("/sys/devices/system/cpu/cpu{number}"));
    // Name a core by its first CPU, because core_id is unique only within a package.
    let siblings =
        fs::read_to_string(folder.join("topology/thread_siblings_list")).unwrap_or_default();
    let core = parse_cpus(&siblings).ok().and_then(|list| list.into_iter().min()).unwrap_or(number);
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let node =
        entries.filter_map(|e| e.file_name().to_str()?.strip_prefix("node")?.parse().ok()).next();
    Cpu { number, core, node: node.unwrap_or(0) }
}

/// NUMA node of the device of a port: the interface or, for `dpdk`, the device with that PCI
/// address.
pub fn node_of_port(address: &str) -> Option<u32> {
    let address: Address = address.parse().ok()?;
    let device = match address.kind() {
        "dpdk" => Path::new("/sys/bus/pci/devices").join(address.name()),
        _ => Path::new("/sys/class/net").join(address.name()).join("device"),
    };
    // The file contains -1, which does not parse, if the machine has one node or its topology is
    // unknown.
    fs::read_to_string(device.join("numa_node")).ok()?.trim().parse().ok()
}

/// The CPUs given by `--cpus`, or all allowed CPUs to which no other run has bound a worker.
///
/// # Errors
/// If a CPU is not allowed, or there are more workers than CPUs.
pub fn choose(requested: Option<&[u32]>, cores: Option<usize>) -> Result<Vec<Cpu>, Error> {
    let allowed = allowed();
    let Some(requested) = requested else {
        return Ok(allowed
            .into_iter()
            .filter(|&cpu| Claim::take(cpu).is_some())
            .map(describe)
            .collect());
    };
    if let Some(cpu) = requested.iter().find(|cpu| !allowed.contains(cpu)) {
        let list = allowed.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        return Err(Error::Usage(format!(
            "this process may not use CPU {cpu}\n  expected one of {list}"
        )));
    }
    if let Some(cores) = cores.filter(|&cores| cores > requested.len()) {
        return Err(Error::Usage(format!(
            "{cores} workers do not fit on {} CPUs: each needs its own\n  try fewer cores, or \
             more CPUs",
            requested.len()
        )));
    }
    Ok(requested.iter().copied().map(describe).collect())
}

/// Locks on the CPUs to which this run binds workers, and on the interfaces where it bypasses the
/// packet taps. They are held until this is dropped. The system releases them regardless of how the
/// process ends.
#[derive(Debug, Default)]
pub struct Claim(#[allow(dead_code, reason = "held, not read")] Vec<File>);

impl Claim {
    /// Locks the CPUs in `plan`. Returns the first one that another run has locked in the meantime.
    /// CPUs chosen by number may be shared.
    pub fn of(plan: &Plan, by_number: bool) -> Result<Self, u32> {
        let mut held = Vec::new();
        for cpu in plan.workers.iter().filter_map(|w| w.cpu) {
            match Self::take(cpu) {
                Some(file) => held.extend(file),
                None if by_number => {}
                None => return Err(cpu),
            }
        }
        Ok(Self(held))
    }

    /// Also holds `marks` until this is dropped.
    pub fn with(mut self, marks: Vec<File>) -> Self {
        self.0.extend(marks);
        self
    }

    /// Returns `None` if another run has the CPU. `Some(None)` if that is unknown, because no lock
    /// file can be made.
    fn take(cpu: u32) -> Option<Option<File>> {
        Self::take_in(&[PathBuf::from("/run/lock"), std::env::temp_dir()], cpu)
    }

    /// Locks in the first directory of `folders` in which this user can make a lock file. Each user
    /// has a separate file (`squall-cpu3.1000.lock`), because locking another user's file for
    /// writing would require opening a path that they control.
    fn take_in(folders: &[PathBuf], cpu: u32) -> Option<Option<File>> {
        let own = Permissions::of_this_process().uid;
        let name = |user: u32| format!("squall-cpu{cpu}.{user}.lock");
        let mut open = folders
            .iter()
            .filter_map(|folder| Some((folder, shared::own_file(&folder.join(name(own))).ok()?)));
        let Some((folder, file)) = open.next() else { return Some(None) };
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return None,
            Err(fs::TryLockError::Error(_)) => return Some(None),
        }
        let (before, after) = (format!("squall-cpu{cpu}."), ".lock");
        let others = fs::read_dir(folder).into_iter().flatten().flatten().filter_map(|entry| {
            let found = entry.file_name();
            let user = found.to_str()?.strip_prefix(&before)?.strip_suffix(after)?.parse().ok()?;
            // `007` is another spelling of a user's number, and not the name of their file.
            (user != own && found.to_str() == Some(&name(user)))
                .then(|| shared::file_of(&entry.path(), user).ok())?
        });
        // If two runs lock at the same time, both may fail, but never will both succeed.
        let held = |file: File| matches!(file.try_lock_shared(), Err(fs::TryLockError::WouldBlock));
        (!others.into_iter().any(held)).then_some(Some(file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_is_claimed_by_one_run_at_a_time() {
        // A number higher than on any machine, so that no other test uses it.
        let plan = Plan {
            seed: 0,
            key: 0,
            part: squall_units::Division::WHOLE,
            replays: Vec::new(),
            flows: None,
            hosts: Vec::new(),
            routers: Vec::new(),
            afters: Vec::new(),
            stop: squall_profile::Stop::default(),
            counted: false,
            ports: Vec::new(),
            streams: Vec::new(),
            workers: vec![squall_plan::PlanWorker {
                cpu: Some(4095),
                ..squall_plan::PlanWorker::default()
            }],
            notes: Vec::new(),
        };
        let first = Claim::of(&plan, false).unwrap();
        assert_eq!(Claim::of(&plan, false).err(), Some(4095));
        assert!(Claim::of(&plan, true).is_ok(), "who asks by number shares");
        drop(first);
        // A child that another test has just forked holds the file, too, until it calls exec.
        let free = || {
            (0..200).any(|_| {
                std::thread::sleep(std::time::Duration::from_millis(5));
                Claim::of(&plan, false).is_ok()
            })
        };
        assert!(free());
    }

    /// Without this, any user with write access to the directory could block all runs.
    #[test]
    fn files_of_other_users_block_nothing() {
        let own = Permissions::of_this_process().uid;
        let folder = shared::own_folder(&std::env::temp_dir(), "squall-claims").unwrap();
        let (fifo, spare) = (folder.join(format!("squall-cpu7.{own}.lock")), folder.join("spare"));
        fs::create_dir(&spare).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        assert!(
            std::process::Command::new("mkfifo")
                .arg(folder.join("squall-cpu8.99999.lock"))
                .status()
                .unwrap()
                .success()
        );
        assert!(
            matches!(Claim::take_in(std::slice::from_ref(&folder), 7), Some(None)),
            "nobody can tell"
        );
        assert!(
            matches!(Claim::take_in(&[folder.clone(), spare.clone()], 7), Some(Some(_))),
            "the next folder does"
        );
        let held = Claim::take_in(std::slice::from_ref(&folder), 8)
            .flatten()
            .expect("another's FIFO is no claim");
        assert!(Claim::take_in(std::slice::from_ref(&folder), 8).is_none());
        drop(held);
        assert!(matches!(Claim::take_in(std::slice::from_ref(&folder), 8), Some(Some(_))));
        fs::remove_dir_all(folder).unwrap();
    }
}
