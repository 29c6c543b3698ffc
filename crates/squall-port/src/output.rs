//! Files that packets are written to. One rule for `pcap:FILE`, captures and edits: a file that has
//! content is not overwritten unless it is asked for, and a disk does not fill up.
//!
//! Pipes and devices (`/dev/null`) lose nothing and take no room, so the rule does not apply to
//! them.

use std::{
    fs::{File, OpenOptions},
    io,
    os::{fd::AsFd, unix::fs::MetadataExt},
    path::Path,
};

use rustix::fs::{StatVfs, fstatvfs, statvfs};

/// What may be done to write a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Permit {
    /// Overwrite a file that has content.
    pub overwrite: bool,
    /// Fill the disk to its end.
    pub fill: bool,
}

impl Permit {
    /// All of it.
    pub const FORCE: Self = Self { overwrite: true, fill: true };
}

/// Opens `path` and removes its content.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`] for a file that has content, unless `permit` has `overwrite`;
/// the file is then unchanged. Else those of the system.
pub fn create(path: &Path, permit: Permit) -> io::Result<File> {
    // Not `File::create`, because that truncates before anyone can look. An empty file has nothing
    // to lose: scripts make one with mktemp.
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    let found = file.metadata()?;
    if found.is_file() && found.len() > 0 {
        if !permit.overwrite {
            return Err(exists(found.len()));
        }
        file.set_len(0)?;
    }
    Ok(file)
}

/// Whether [`create`] would open `path`, as far as its content decides.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`], as there.
pub fn check(path: &Path, permit: Permit) -> io::Result<()> {
    match path.metadata() {
        Ok(found) if found.is_file() && found.len() > 0 && !permit.overwrite => {
            Err(exists(found.len()))
        }
        _ => Ok(()),
    }
}

fn exists(len: u64) -> io::Error {
    let text = format!(
        "the file exists and has {}\n  try another name, or --force to overwrite it",
        size(len)
    );
    io::Error::new(io::ErrorKind::AlreadyExists, text)
}

/// A file system's bytes. As `df` counts them: what is reserved for root is neither used nor free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    pub used: u64,
    pub free: u64,
    /// Which one it is.
    pub device: u64,
}

impl Space {
    /// Where a file at `path` would be, or is; `None` for a pipe or device.
    ///
    /// # Errors
    /// Those of the system: there is no such folder.
    pub fn at(path: &Path) -> io::Result<Option<Self>> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let (place, found) = match path.metadata() {
            Ok(found) if !found.is_file() => return Ok(None),
            Ok(found) => (path, found),
            Err(_) => {
                let folder = folder.unwrap_or(Path::new("."));
                (folder, folder.metadata()?)
            }
        };
        Ok(Some(Self::of(&statvfs(place)?, found.dev())))
    }

    fn of(found: &StatVfs, device: u64) -> Self {
        let octets = |blocks: u64| blocks.saturating_mul(found.f_frsize.max(1));
        let used = octets(found.f_blocks.saturating_sub(found.f_bfree));
        Self { used, free: octets(found.f_bavail), device }
    }

    /// Bytes that may still be written before it is [`FULL`] per cent full.
    fn left(self) -> u64 {
        let all = self.used.saturating_add(self.free);
        let most = u128::from(all) * u128::from(FULL) / 100;
        u64::try_from(most).unwrap_or(u64::MAX).saturating_sub(self.used)
    }
}

/// A disk is not filled further than to this, per cent: reports and logs need the rest.
const FULL: u64 = 95;
/// A file is not looked after before it has this many bytes: small ones do no harm.
const SMALL: u64 = 4 << 20;
/// Bytes between two looks. A look costs about a microsecond.
const STEP: std::ops::RangeInclusive<u64> = 64 << 10..=64 << 20;

/// Looks after the disk while a file grows whose size nobody knows beforehand.
#[derive(Debug)]
pub struct Room {
    /// Bytes that may be written without another look.
    left: u64,
}

impl Room {
    /// For a file that is open.
    pub fn of(file: &File, permit: Permit) -> Self {
        let grows = file.metadata().is_ok_and(|found| found.is_file());
        Self { left: if grows && !permit.fill { SMALL } else { u64::MAX } }
    }

    /// For files at `path`, or named after it.
    pub fn at(path: &Path, permit: Permit) -> Self {
        let grows = path.metadata().map_or(true, |found| found.is_file());
        Self { left: if grows && !permit.fill { SMALL } else { u64::MAX } }
    }

    /// `octets` are about to be written to `file`.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] if the disk is 95 % full: nothing more should be written.
    #[inline]
    pub fn take(&mut self, octets: usize, file: impl AsFd) -> io::Result<()> {
        self.take_where(octets as u64, || Ok(Some(Space::of(&fstatvfs(file)?, 0))))
    }

    /// As [`Room::take`], on the disk that `space` knows.
    ///
    /// # Errors
    /// As [`Room::take`].
    #[inline]
    pub fn take_where(
        &mut self,
        octets: u64,
        space: impl FnOnce() -> io::Result<Option<Space>>,
    ) -> io::Result<()> {
        match self.left.checked_sub(octets) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => self.look(octets, space),
        }
    }

    #[cold]
    fn look(
        &mut self,
        octets: u64,
        space: impl FnOnce() -> io::Result<Option<Space>>,
    ) -> io::Result<()> {
        // A file system that does not answer is not a full one.
        let Ok(Some(space)) = space() else {
            self.left = *STEP.end();
            return Ok(());
        };
        let left = space.left();
        if left < octets {
            let text = format!(
                "the disk is {FULL} % full: {} of {} are free\n  try another disk, or --force to \
                 fill it",
                size(space.free),
                size(space.used.saturating_add(space.free))
            );
            return Err(io::Error::new(io::ErrorKind::StorageFull, text));
        }
        // Half of what is left, so that several files that grow at once do not overshoot by much.
        self.left = (left / 2).clamp(*STEP.start(), *STEP.end()).min(left).saturating_sub(octets);
        Ok(())
    }
}

/// `1.2 GB`
pub fn size(octets: u64) -> String {
    let units = [("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)];
    match units.iter().find(|(_, unit)| octets as f64 >= *unit) {
        Some((name, unit)) => format!("{:.1} {name}", octets as f64 / unit),
        None => format!("{octets} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("squall-output-{name}-{}", std::process::id()))
    }

    #[test]
    fn only_a_file_with_content_needs_force_and_without_it_stays_as_it_is() {
        let path = path("exists");
        drop(create(&path, Permit::default()).unwrap());
        drop(create(&path, Permit::default()).expect("an empty file has nothing to lose"));
        std::fs::write(&path, "kept").unwrap();
        for error in [
            create(&path, Permit { fill: true, ..Permit::default() }).unwrap_err(),
            check(&path, Permit::default()).unwrap_err(),
        ] {
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
            assert!(error.to_string().contains("4 bytes\n  try"), "{error}");
        }
        assert_eq!(std::fs::read(&path).unwrap(), b"kept");
        check(&path, Permit::FORCE).unwrap();
        drop(create(&path, Permit::FORCE).unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), b"");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn devices_are_neither_files_to_lose_nor_disks_to_fill() {
        let null = Path::new("/dev/null");
        let file = create(null, Permit::default()).unwrap();
        assert_eq!(Space::at(null).unwrap(), None);
        let mut room = Room::of(&file, Permit::default());
        room.take(usize::MAX / 2, &file).unwrap();
    }

    #[test]
    fn a_disk_is_filled_up_to_95_per_cent_however_large_the_pieces_are() {
        const ALL: u64 = 1_000_000_000;
        for piece in [1_000u64, 65_536, 3_000_001, 80_000_000] {
            let (mut room, mut used) = (Room { left: SMALL }, 400_000_000);
            let full = loop {
                let space = || Ok(Some(Space { used, free: ALL - used, device: 0 }));
                match room.take_where(piece, space) {
                    Ok(()) => used += piece,
                    Err(error) => break error,
                }
            };
            assert_eq!(full.kind(), io::ErrorKind::StorageFull);
            assert!(used <= ALL / 100 * FULL, "{piece}: {used}");
            let over = piece.max(*STEP.start());
            assert!(used > ALL / 100 * FULL - 2 * over, "{piece}: {used}");
        }
    }

    #[test]
    fn a_place_has_the_space_of_its_folder_until_it_is_a_file() {
        let place = path("place");
        let before = Space::at(&place).unwrap().expect("a folder has space");
        std::fs::write(&place, "x").unwrap();
        let after = Space::at(&place).unwrap().expect("a file has space");
        std::fs::remove_file(&place).unwrap();
        assert_eq!(before.device, after.device);
        assert!(before.free > 0);
        assert!(Space::at(Path::new("/no/such/folder/file")).is_err());
    }
}
