//! Files and directories where other users can write: /tmp, /run/lock, /dev/shm.
//!
//! There, any user may have planted a name: a FIFO that blocks a process when it opens it, a link
//! to a file of this user, a directory whose owner changes its contents. So only this module opens
//! anything by name in them.

use std::{
    fs::{self, DirBuilder, File, Metadata, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use crate::sys;

/// Opens or makes a file that belongs to this user; others can read it.
///
/// # Errors
/// Something else has that name.
pub fn own_file(path: &Path) -> io::Result<File> {
    let open = |new| {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create_new(new)
            .mode(0o644)
            .custom_flags(OPEN_FLAGS)
            .open(path)
    };
    // Does not use O_CREAT on a file that exists: fs.protected_regular can refuse that in sticky
    // directories such as /tmp.
    let file = match open(true) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => open(false)?,
        other => other?,
    };
    is_file_of(&file.metadata()?, sys::euid()).map(|()| file)
}

/// Opens a file of `user` for reading.
///
/// # Errors
/// There is no such file, or something else has that name.
pub fn file_of(path: &Path, user: u32) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(OPEN_FLAGS).open(path)?;
    is_file_of(&file.metadata()?, user).map(|()| file)
}

/// As [`file_of`], for this user.
///
/// # Errors
/// There is no such file, or something else has that name.
pub fn own_file_if_any(path: &Path) -> io::Result<File> {
    file_of(path, sys::euid())
}

/// Makes a directory that only this user can enter, with the path `FOLDER/PREFIX-PID-NUMBER`.
///
/// # Errors
/// No directory can be made there.
pub fn own_folder(folder: &Path, prefix: &str) -> io::Result<PathBuf> {
    let process = std::process::id();
    let mut number = 0;
    loop {
        let path = folder.join(format!("{prefix}-{process}-{number}"));
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return Ok(path),
            // The directory was left by an earlier process with the same pid in another pid
            // namespace, or planted by a user after guessing the name.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 100_000 => {
                number += 1
            }
            Err(error) => return Err(error),
        }
    }
}

/// Whether `path` is a directory (not a link to one) that only this user can write to.
pub fn is_own_folder(path: &Path) -> bool {
    fs::symlink_metadata(path)
        .is_ok_and(|m| m.is_dir() && m.uid() == sys::euid() && m.mode() & 0o022 == 0)
}

/// With these flags, open(2) does not wait for a FIFO's other end, and does not follow a link.
const OPEN_FLAGS: i32 = libc::O_NONBLOCK | libc::O_NOFOLLOW | libc::O_NOCTTY;

fn is_file_of(found: &Metadata, user: u32) -> io::Result<()> {
    // A file with several hard links is refused: its owner may not know this name of it.
    if found.is_file() && found.uid() == user && found.nlink() == 1 {
        return Ok(());
    }
    let what = format!("is not a file of user {user} without further hard links");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn fifos_and_links_of_other_users_are_neither_waited_for_nor_followed() {
        let folder = own_folder(&std::env::temp_dir(), "squall-shared").unwrap();
        assert!(is_own_folder(&folder));
        let at = |name: &str| folder.join(name);
        let user = sys::euid();
        assert!(Command::new("mkfifo").arg(at("fifo")).status().unwrap().success());
        std::os::unix::fs::symlink(at("target"), at("link")).unwrap();
        fs::create_dir(at("folder")).unwrap();
        fs::write(at("first"), "x").unwrap();
        fs::hard_link(at("first"), at("second")).unwrap();
        for name in ["fifo", "link", "folder", "second"] {
            assert!(own_file(&at(name)).is_err(), "{name}");
            assert!(file_of(&at(name), user).is_err(), "{name}");
        }
        assert!(!at("target").exists() && !is_own_folder(&at("link")));
        assert!(file_of(&at("file"), user).is_err());
        drop(own_file(&at("file")).unwrap());
        assert!(own_file(&at("file")).is_ok() && file_of(&at("file"), user).is_ok());
        assert!(file_of(&at("file"), user + 1).is_err(), "somebody else's");
        fs::remove_dir_all(folder).unwrap();
    }
}
