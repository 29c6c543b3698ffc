//! What interfaces carry, recorded into files that nobody else reads, whatever else is run on them.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use squall_pcap::{CaptureReader, Packet};
use squall_port_linux::shared;

use squall::{Error, Profile, RunOptions, Session};
use squall_options::{CaptureOptions, Time};

use crate::driving::{Driven, Start};

/// A recording ends within that time.
const PATIENCE: Duration = Duration::from_secs(10);
/// What the folders' names begin with.
const NAMED: &str = "squall-recordings";
const LOCK: &str = "lock";

/// The files of recordings, removed with it.
#[derive(Default)]
pub struct Recordings {
    folder: Option<Folder>,
}

/// What is recorded, or has been.
pub struct Recording {
    driven: Arc<Driven>,
    file: PathBuf,
}

/// Files that nobody else reads, for as long as the captures are there. The lock says that somebody
/// is.
struct Folder(PathBuf, #[expect(dead_code, reason = "held, not read")] fs::File);

impl Recordings {
    /// Opens ports (names and addresses) a second time, and records what matches the filter until
    /// [`Recording::end`].
    ///
    /// # Errors
    /// What the session refuses.
    pub fn start(
        &mut self,
        start: &mut dyn Start,
        (name, command): (&str, &str),
        ports: Vec<(String, String)>,
        filter: Option<String>,
        asked: CaptureOptions,
    ) -> Result<Recording, Error> {
        let file = self.file()?;
        let options = RunOptions {
            capture: Some(into(file.clone(), asked)),
            filter,
            // What has come is taken from the kernel's ring at the end, and nothing of this
            // session's is on its way.
            linger: Some(Time::default()),
            ..RunOptions::default()
        };
        let listen = Session::new(Profile::listening(ports));
        let driven = start.start(name, Session { options, ..listen }.command(command))?;
        Ok(Recording { driven, file })
    }

    /// A new name in the folder.
    ///
    /// # Errors
    /// There is no folder for it.
    pub fn file(&mut self) -> Result<PathBuf, Error> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = match &mut self.folder {
            Some(folder) => folder,
            none => none.insert(Folder::new()?),
        };
        Ok(folder.0.join(format!("{number}.pcapng")))
    }
}

impl Recording {
    /// Nothing more is recorded; what came before is written when this returns.
    pub fn end(&self) {
        self.driven.stop();
        self.driven.wait(PATIENCE);
    }

    /// The packets so far, as [`each`].
    ///
    /// # Errors
    /// The first of `of`.
    pub fn each<E>(&self, of: impl FnMut(&Packet<'_>) -> Result<bool, E>) -> Result<(), E> {
        each(&parts(&self.file), of)
    }
}

/// The packets of these files, as long as `of` says that it wants more.
///
/// # Errors
/// The first of `of`.
pub fn each<E>(
    files: &[PathBuf],
    mut of: impl FnMut(&Packet<'_>) -> Result<bool, E>,
) -> Result<(), E> {
    for file in files {
        let Ok(mut reader) = CaptureReader::open(file) else { continue };
        // One that is still written ends where it ends.
        while let Ok(Some(packet)) = reader.next() {
            if !of(&packet)? {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// A capture into this file, which shows packets as they arrive to a reader.
pub fn into(file: PathBuf, asked: CaptureOptions) -> CaptureOptions {
    CaptureOptions { file: Some(file), flush: Some(true), ..asked }
}

impl Folder {
    fn new() -> Result<Self, Error> {
        sweep();
        let made = || {
            let path = shared::own_folder(&std::env::temp_dir(), NAMED)?;
            let lock =
                fs::File::create(path.join(LOCK)).and_then(|file| file.lock().map(|()| file))?;
            Ok(Self(path, lock))
        };
        made().map_err(|error: std::io::Error| {
            Error::Environment(format!(
                "cannot make a folder for recordings in {}: {error}",
                std::env::temp_dir().display()
            ))
        })
    }
}

/// Removes what processes have left that were killed: nobody holds the lock of it.
pub fn sweep() {
    sweep_in(&std::env::temp_dir());
}

/// Only folders of this user: in those of others the lock may be anything, and the rest is not ours
/// to remove.
fn sweep_in(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(NAMED)) {
        let path = entry.path();
        let Ok(about) = entry.metadata() else { continue };
        if !shared::is_own_folder(&path) {
            continue;
        }
        let left = match shared::own_file_if_any(&path.join(LOCK)) {
            Ok(file) => file.try_lock().is_ok(),
            // One that is being made has none yet.
            Err(_) => about
                .modified()
                .is_ok_and(|at| at.elapsed().is_ok_and(|age| age > Duration::from_secs(60))),
        };
        if left {
            _ = fs::remove_dir_all(path);
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The files of a ring, in their order; the file itself where there is none.
fn parts(file: &Path) -> Vec<PathBuf> {
    if file.exists() {
        return vec![file.to_owned()];
    }
    let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let of = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.strip_prefix(stem).is_some_and(|rest| rest.starts_with(['_', '-', '.']))
    };
    let folder = file.parent().and_then(|folder| fs::read_dir(folder).ok());
    let mut files: Vec<_> =
        folder.into_iter().flatten().flatten().map(|entry| entry.path()).filter(of).collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_swept_away_is_ours_and_nothing_there_is_waited_for() {
        let tmp = shared::own_folder(&std::env::temp_dir(), "squall-sweep").unwrap();
        let at = |name: &str| tmp.join(format!("{NAMED}-{name}"));
        for name in ["left", "held", "fifo", "open"] {
            fs::create_dir(at(name)).unwrap();
            fs::set_permissions(at(name), std::os::unix::fs::PermissionsExt::from_mode(0o700))
                .unwrap();
            fs::write(at(name).join("file"), "x").unwrap();
        }
        let lock = |name: &str| fs::File::create(at(name).join(LOCK)).unwrap();
        drop(lock("left"));
        drop(lock("open"));
        // Others can change what is in it, so it is not known to be ours alone.
        fs::set_permissions(at("open"), std::os::unix::fs::PermissionsExt::from_mode(0o777))
            .unwrap();
        let held = lock("held");
        held.lock().unwrap();
        assert!(
            std::process::Command::new("mkfifo")
                .arg(at("fifo").join(LOCK))
                .status()
                .unwrap()
                .success()
        );
        std::os::unix::fs::symlink(at("held"), at("link")).unwrap();
        sweep_in(&tmp);
        let there = ["left", "held", "fifo", "open", "link"].map(|name| at(name).exists());
        assert_eq!(there, [false, true, true, true, true]);
        fs::remove_dir_all(tmp).unwrap();
    }
}
