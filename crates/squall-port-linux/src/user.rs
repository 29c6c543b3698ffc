//! Switches this process to another user permanently, and keeps the capabilities that ports need.

use std::{ffi::CString, fs, io};

use libc::{c_int, c_ulong};

use crate::sys::check;

/// An entry of `/etc/passwd`, or of another source that nsswitch.conf(5) names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
}

/// Numbers of capabilities, from linux/capability.h.
pub const NET_BIND_SERVICE: u8 = 10;
const NET_ADMIN: u8 = 12;
const NET_RAW: u8 = 13;
const IPC_LOCK: u8 = 14;
const PERFMON: u8 = 38;
const BPF: u8 = 39;

/// Capabilities that a kind of port needs; packaging/squall.service grants the same. `None`: the
/// kind needs root.
pub fn capabilities_of(kind: &str) -> Option<&'static [u8]> {
    match kind {
        "af_packet" => Some(&[NET_RAW]),
        "af_xdp" => Some(&[NET_RAW, NET_ADMIN, BPF, IPC_LOCK]),
        "xdp_live" => Some(&[NET_RAW, NET_ADMIN, BPF, PERFMON, IPC_LOCK]),
        "dpdk" => None,
        _ => Some(&[]),
    }
}

impl User {
    /// Looks the user up by name.
    ///
    /// # Errors
    /// There is no such user, or it is root.
    pub fn find(name: &str) -> io::Result<Self> {
        let wrong =
            |why: &str| io::Error::new(io::ErrorKind::InvalidInput, format!("user {name:?} {why}"));
        let text = CString::new(name).map_err(|_| wrong("is not a valid name"))?;
        let mut buffer = vec![0; 1 << 16];
        // SAFETY: all zero is a valid `passwd`.
        let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
        let mut found = std::ptr::null_mut();
        // SAFETY: the name ends with 0, the buffer has the length given, and all of it outlives the
        // call.
        let error = unsafe {
            libc::getpwnam_r(
                text.as_ptr(),
                &mut entry,
                buffer.as_mut_ptr(),
                buffer.len(),
                &mut found,
            )
        };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        if found.is_null() {
            return Err(wrong("does not exist"));
        }
        if entry.pw_uid == 0 {
            return Err(wrong("is root"));
        }
        Ok(Self { name: name.into(), uid: entry.pw_uid, gid: entry.pw_gid })
    }

    /// Switches this process to the user, with the capabilities in `keep` and no way to gain more.
    /// The process must have one thread: the kernel changes ids and capabilities per thread.
    ///
    /// # Errors
    /// The process is not root's, or has several threads. After an error, its permissions are
    /// undefined.
    pub fn switch_permanently(&self, keep: &[u8]) -> io::Result<()> {
        let threads = fs::read_dir("/proc/self/task").map_or(1, |tasks| tasks.count());
        if threads > 1 {
            return Err(io::Error::other(format!("this process has {threads} threads")));
        }
        let name = CString::new(self.name.as_str())?;
        // Replaces root's supplementary groups by the user's.
        // SAFETY: the name ends with 0.
        check(unsafe { libc::initgroups(name.as_ptr(), self.gid) })?;
        for capability in 0..=63u8 {
            // EINVAL: the kernel does not know this capability or any higher one.
            if !keep.contains(&capability)
                && prctl(libc::PR_CAPBSET_DROP, capability.into()).is_err()
            {
                break;
            }
            // Without KEEPCAPS, setresuid() from root to another user clears all capabilities.
        }
        prctl(libc::PR_SET_KEEPCAPS, 1)?;
        // SAFETY: takes no pointers.
        check(unsafe { libc::setresgid(self.gid, self.gid, self.gid) })?;
        // SAFETY: takes no pointers.
        check(unsafe { libc::setresuid(self.uid, self.uid, self.uid) })?;
        set_capabilities(keep)?;
        prctl(libc::PR_SET_KEEPCAPS, 0)?;
        // Programs that the process starts gain nothing from file capabilities or set-user-id.
        prctl(libc::PR_SET_NO_NEW_PRIVS, 1)
    }
}

fn prctl(option: c_int, value: c_ulong) -> io::Result<()> {
    // SAFETY: these options take numbers.
    check(unsafe { libc::prctl(option, value, 0, 0, 0) }).map(drop)
}

/// Sets the effective and permitted capabilities of the calling thread; none is inheritable.
fn set_capabilities(keep: &[u8]) -> io::Result<()> {
    // struct __user_cap_header_struct and two of struct __user_cap_data_struct
    // (linux/capability.h), version 3.
    const VERSION: u32 = 0x2008_0522;
    let header = [VERSION, 0];
    let set = keep.iter().fold(0u64, |set, capability| set | 1 << capability);
    let [low, high] = [set as u32, (set >> 32) as u32];
    let data = [low, low, 0, high, high, 0];
    // SAFETY: both have the length that the version implies, and are only read.
    let done = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_root_is_none() {
        let nobody = User::find("nobody").unwrap();
        assert!(nobody.uid > 0 && nobody.name == "nobody");
        for (name, why) in
            [("root", "is root"), ("no such user", "does not exist"), ("a\0b", "name")]
        {
            assert!(User::find(name).unwrap_err().to_string().contains(why), "{name}");
        }
        assert!(
            capabilities_of("dpdk").is_none()
                && capabilities_of("loop").is_some_and(<[u8]>::is_empty)
        );
    }
}
