//! Interfaces on which runs send past the queueing discipline. The kernel's packet taps do not see
//! such frames, so a capture of sent frames would silently lack them.
//!
//! Every such run holds a shared lock on a file per interface and network namespace while it may
//! send. A check honors only locks of this user and of root, because otherwise any user could keep
//! root from capturing.

use std::{
    fs::{self, File, TryLockError},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use squall_port::Address;

use crate::{Permissions, shared};

const LOOPBACK: &str = "lo";
/// In the names of the lock files.
const SUBJECT: &str = "unseen";
/// Number of attempts to lock: a check holds its lock only for microseconds.
const TRIES: u32 = 5;

pub(crate) fn folders() -> [PathBuf; 2] {
    [PathBuf::from("/run/lock"), std::env::temp_dir()]
}

/// Prefix of the names of files about interfaces, such as `squall-unseen-4026531840-` for the
/// subject `unseen`.
pub(crate) fn prefix(subject: &str) -> Option<String> {
    // The thread's namespace, not the process's: a thread may have entered another.
    Some(format!("squall-{subject}-{}-", fs::metadata("/proc/thread-self/ns/net").ok()?.ino()))
}

/// Whether a port of this kind at `address` sends frames that the kernel's packet taps do not see.
pub fn bypasses_taps(kind: &str, address: &str) -> bool {
    match kind {
        "af_packet" => {
            let bypass = address
                .parse::<Address>()
                .ok()
                .and_then(|mut address| address.take_flag("bypass").ok()?);
            bypass.unwrap_or(true)
        }
        "af_xdp" | "xdp_live" => true,
        _ => false,
    }
}

/// Marks `interface` until the returned file is dropped; `None` if no file can be made or locked.
pub fn mark(interface: &str) -> Option<File> {
    mark_in(&folders(), interface)
}

fn mark_in(folders: &[PathBuf], interface: &str) -> Option<File> {
    let name =
        format!("{}{interface}.{}.lock", prefix(SUBJECT)?, Permissions::of_this_process().uid);
    let file = folders.iter().find_map(|folder| shared::own_file(&folder.join(&name)).ok())?;
    held_after(|| file.try_lock_shared()).then_some(file)
}

pub(crate) fn held_after(mut lock: impl FnMut() -> Result<(), TryLockError>) -> bool {
    (0..TRIES).any(|number| {
        thread::sleep(Duration::from_millis(u64::from(number)));
        lock().is_ok()
    })
}

/// Refuses a capture of sent frames on an interface where another run bypasses the taps.
///
/// # Errors
/// Names the interface and what to try.
pub fn check(address: &str) -> Result<(), String> {
    check_in(&folders(), address)
}

fn check_in(folders: &[PathBuf], address: &str) -> Result<(), String> {
    let Ok(mut parsed) = address.parse::<Address>() else { return Ok(()) };
    let direction: Option<String> = parsed.take("direction", "in, out or both").ok().flatten();
    let interface = parsed.name();
    // On loopback, `both` receives only arriving frames, and every sent frame arrives.
    let asks = match direction.as_deref() {
        Some("out") => true,
        Some("both" | "inout") => interface != LOOPBACK,
        _ => false,
    };
    let found = asks.then(|| marked(folders, (interface != "any").then_some(interface))).flatten();
    found.map_or(Ok(()), |interface| {
        Err(format!(
            "{address}: another run of Squall sends on {interface} and bypasses the queueing \
             discipline, so that a capture of sent frames does not see them\n  try the sender with \
             af_packet:{interface},bypass=0, --direction in, or a capture at the other end of the \
             link"
        ))
    })
}

/// The interface of a mark that a run holds: `interface`, or any interface if that is `None`.
fn marked(folders: &[PathBuf], interface: Option<&str>) -> Option<String> {
    let prefix = prefix(SUBJECT)?;
    let held = |folder: &Path, user: u32| {
        let suffix = format!(".{user}.lock");
        fs::read_dir(folder).into_iter().flatten().flatten().find_map(|entry| {
            let name = entry.file_name();
            let found = name.to_str()?.strip_prefix(&prefix)?.strip_suffix(&suffix)?;
            let file = interface
                .is_none_or(|wanted| wanted == found)
                .then(|| shared::file_of(&entry.path(), user).ok())??;
            // A check holds its lock only briefly, a run for longer.
            (!held_after(|| file.try_lock())).then(|| found.to_owned())
        })
    };
    let own = Permissions::of_this_process().uid;
    let users = [own, 0];
    let users = if own == 0 { &users[..1] } else { &users[..] };
    folders.iter().find_map(|folder| users.iter().find_map(|&user| held(folder, user)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sent_frames_are_captured_only_if_no_run_bypasses_the_taps() {
        let folder = shared::own_folder(&std::env::temp_dir(), "squall-unseen-test").unwrap();
        let folders = [folder.clone()];
        let check = |address: &str| check_in(&folders, address);
        let both = "af_packet:eth7,direction=both";
        assert!(check(both).is_ok());

        let (first, second) =
            (mark_in(&folders, "eth7").unwrap(), mark_in(&folders, "eth7").unwrap());
        drop(first);
        for address in [both, "af_packet:eth7,direction=out", "af_packet:any,direction=both"] {
            let refused = check(address).unwrap_err();
            assert!(refused.contains("sends on eth7") && refused.contains("bypass=0"), "{refused}");
        }
        for address in [
            "af_packet:eth7",
            "af_packet:eth7,direction=in",
            "af_packet:eth70,direction=both",
            "loop:x",
        ] {
            assert_eq!(check(address), Ok(()), "{address}");
        }
        drop(second);
        assert!(check(both).is_ok(), "a run that has ended");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn only_what_goes_through_the_qdisc_is_seen() {
        for (kind, address, unseen) in [
            ("af_packet", "af_packet:eth1", true),
            ("af_packet", "af_packet:eth1,bypass=0,batch=1", false),
            ("af_xdp", "af_xdp:eth1", true),
            ("xdp_live", "xdp_live:eth1", true),
            ("pcap", "pcap:x.pcap", false),
        ] {
            assert_eq!(bypasses_taps(kind, address), unseen, "{address}");
        }
    }
}
