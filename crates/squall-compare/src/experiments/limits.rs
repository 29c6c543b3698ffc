//! Limits of CPU time and memory for the programs of an experiment, by a control group of cgroup
//! v2, or of v1 if v2 has no controllers here.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// A control group, removed when dropped. All programs in it must have ended before that.
pub struct Limits {
    folders: Vec<PathBuf>,
}

const ROOT: &str = "/sys/fs/cgroup";
/// Period of the CPU limit, microseconds: the default of the kernel.
const PERIOD_US: u64 = 100_000;
/// Maximum wait for an empty group: the kernel removes processes slightly after their end.
const EMPTY: Duration = Duration::from_secs(2);

impl Limits {
    /// Creates a group that may use the time of `cpus` CPUs and `memory` octets.
    ///
    /// # Errors
    /// No control group can be created; the error is the reason.
    pub fn new(cpus: u32, memory: u64) -> Result<Self, String> {
        let quota = u64::from(cpus) * PERIOD_US;
        let controllers = fs::read_to_string(format!("{ROOT}/cgroup.controllers"));
        let name = format!("squall-experiment-{}", std::process::id());
        let mut limits = Self { folders: Vec::new() };
        if let Ok(controllers) = controllers {
            for wanted in ["cpu", "memory"] {
                if !controllers.split_whitespace().any(|controller| controller == wanted) {
                    return Err(format!("control groups have no controller {wanted}"));
                }
            }
            write(Path::new(ROOT), "cgroup.subtree_control", "+cpu +memory")?;
            let folder = limits.make(&Path::new(ROOT).join(name))?;
            write(&folder, "cpu.max", &format!("{quota} {PERIOD_US}"))?;
            write(&folder, "memory.max", &memory.to_string())?;
            return Ok(limits);
        }
        let folder = limits.make(&Path::new(ROOT).join("cpu").join(&name))?;
        write(&folder, "cpu.cfs_period_us", &PERIOD_US.to_string())?;
        write(&folder, "cpu.cfs_quota_us", &quota.to_string())?;
        let folder = limits.make(&Path::new(ROOT).join("memory").join(&name))?;
        write(&folder, "memory.limit_in_bytes", &memory.to_string())?;
        Ok(limits)
    }

    fn make(&mut self, folder: &Path) -> Result<PathBuf, String> {
        fs::create_dir(folder).map_err(|e| format!("cannot make {}: {e}", folder.display()))?;
        self.folders.push(folder.into());
        Ok(folder.into())
    }

    /// Moves a process into the group, along with the children that it starts from then on.
    ///
    /// # Errors
    /// The reason, as text.
    pub fn add(&self, pid: u32) -> Result<(), String> {
        self.folders.iter().try_for_each(|folder| write(folder, "cgroup.procs", &pid.to_string()))
    }
}

impl Drop for Limits {
    fn drop(&mut self) {
        let started = Instant::now();
        for folder in &self.folders {
            while fs::remove_dir(folder).is_err() && started.elapsed() < EMPTY {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

fn write(folder: &Path, file: &str, text: &str) -> Result<(), String> {
    let path = folder.join(file);
    fs::write(&path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_in_the_group_is_limited_and_the_group_goes() {
        let limits = match Limits::new(2, 4 << 30) {
            Ok(limits) => limits,
            Err(why) => {
                eprintln!("SKIPPED: no control group: {why}");
                return;
            }
        };
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        limits.add(child.id()).unwrap();
        let own = fs::read_to_string(format!("/proc/{}/cgroup", child.id())).unwrap();
        assert!(own.contains("squall-experiment-"), "{own}");
        child.kill().unwrap();
        child.wait().unwrap();
        let folders = limits.folders.clone();
        drop(limits);
        assert!(folders.iter().all(|folder| !folder.exists()), "{folders:?}");
    }
}
