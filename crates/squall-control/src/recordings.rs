//! Recordings of interfaces into private files, independent of other runs on these interfaces.

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

use crate::driving::{DrivenRun, Start};

/// Time limit for the end of a recording.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// Prefix of the directories' names.
const NAMED: &str = "squall-recordings";
const LOCK: &str = "lock";

/// The files of recordings. They are removed when this is dropped.
#[derive(Default)]
pub struct Recordings {
    folder: Option<Folder>,
}

/// A live or finished recording. It ends when this is dropped, and its files are removed.
pub struct Recording {
    driven: Arc<DrivenRun>,
    file: PathBuf,
}

/// A private directory for captures. The lock shows other processes that it is in use.
struct Folder(PathBuf, #[expect(dead_code, reason = "held, not read")] fs::File);

impl Recordings {
    /// Opens ports (names and addresses) a second time, and records the frames that match the
    /// filter until [`Recording::end`].
    ///
    /// # Errors
    /// Errors of the session.
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
            // There is no linger, because the kernel's ring is drained at the end, and this session
            // has sent no frames that could still arrive.
            linger: Some(Time::default()),
            ..RunOptions::default()
        };
        let listen = Session::new(Profile::listening(ports));
        let driven = start.start(name, Session { options, ..listen }.command(command))?;
        Ok(Recording { driven, file })
    }

    /// Returns a new file name in the directory.
    ///
    /// # Errors
    /// The directory cannot be created.
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
    /// Ends the recording. When this returns, the frames received so far are written.
    pub fn end(&self) {
        self.driven.stop();
        self.driven.wait(END_TIMEOUT);
    }

    /// Calls `of` with each packet recorded so far, until it returns false.
    ///
    /// # Errors
    /// The first error from `of`.
    pub fn each<E>(&self, of: impl FnMut(&Packet<'_>) -> Result<bool, E>) -> Result<(), E> {
        each(&parts(&self.file), of)
    }
}

impl Drop for Recording {
    /// The directory lives as long as its session, which may make many recordings.
    fn drop(&mut self) {
        self.end();
        for file in parts(&self.file) {
            _ = fs::remove_file(file);
        }
    }
}

/// Calls `of` with each packet of these files until it returns false.
///
/// # Errors
/// The first error from `of`.
pub fn each<E>(
    files: &[PathBuf],
    mut of: impl FnMut(&Packet<'_>) -> Result<bool, E>,
) -> Result<(), E> {
    for file in files {
        let Ok(mut reader) = CaptureReader::open(file) else { continue };
        // The last packet of a file that is still being written may be incomplete.
        while let Ok(Some(packet)) = reader.next() {
            if !of(&packet)? {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Options for a capture into this file. Each packet is flushed when it arrives, so that a
/// concurrent reader sees it.
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

/// Removes the directories of killed processes, whose locks the kernel has released.
pub fn sweep() {
    sweep_in(&std::env::temp_dir());
}

/// Removes only directories of this user, because other users control the locks in theirs.
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
            // A directory that is being created has no lock yet, so remove only old ones.
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

/// The files of a ring in order. If there is no ring, the file itself.
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
    use squall_options::Count;

    use super::*;
    use crate::driving::InProcess;

    #[test]
    fn a_recording_that_is_dropped_leaves_no_files() {
        let mut recordings = Recordings::default();
        let one = CaptureOptions::default();
        let ring = CaptureOptions {
            rotate_packets: Some(Count(5)),
            ring: Some(2),
            ..CaptureOptions::default()
        };
        let others = recordings.file().unwrap().with_file_name("other");
        fs::write(&others, "x").unwrap();
        for asked in [one, ring] {
            let ports = vec![("A".to_owned(), "loop:recording-dropped".to_owned())];
            let mut start = InProcess::default();
            let recording = recordings.start(&mut start, ("test", "test"), ports, None, asked);
            let recording = recording.unwrap();
            let file = recording.file.clone();
            recording.end();
            assert_eq!(parts(&file).len(), 1);
            drop(recording);
            assert!(parts(&file).is_empty());
        }
        assert!(others.exists());
    }

    #[test]
    fn folders_of_this_user_are_removed_unless_they_are_locked() {
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
        // Other users can write to this directory, so it may not be that of a recording.
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
