//! Files that packets are written to. One rule for `pcap:FILE`, captures and edits: a file with
//! content is not overwritten without an explicit option, and a disk is not filled up.
//!
//! The rule does not apply to pipes and devices (`/dev/null`), which lose no data and take no
//! space.

use std::{
    fs::{File, OpenOptions},
    io,
    os::{fd::AsFd, unix::fs::MetadataExt},
    path::Path,
};

use rustix::fs::{StatVfs, fstatvfs, statvfs};

/// Permissions to write a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Permit {
    /// Whether a file with content may be overwritten.
    pub overwrite: bool,
    /// Whether the disk may be filled completely.
    pub fill: bool,
}

impl Permit {
    /// All permissions.
    pub const FORCE: Self = Self { overwrite: true, fill: true };
}

/// Opens `path` and removes its content.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`] for a file with content, unless `permit` has `overwrite`; the
/// file is then unchanged. Otherwise the system's errors.
pub fn create(path: &Path, permit: Permit) -> io::Result<File> {
    // `File::create` is not used, because it truncates before the content can be checked. An empty
    // file may be used without permission: scripts make one with mktemp.
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

/// Whether [`create`] would open `path`, judged only by its content.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`], as for [`create`].
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

/// Bytes of a file system, as `df` counts them: blocks reserved for root are neither used nor free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    pub used: u64,
    pub free: u64,
    /// The file system's id.
    pub device: u64,
}

impl Space {
    /// The file system of a file at `path`, existing or new; `None` for a pipe or device.
    ///
    /// # Errors
    /// The system's errors, such as a missing directory.
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

    /// Bytes that may still be written before the disk is [`MAX_USED_PERCENT`] percent full.
    fn writable(self) -> u64 {
        let all = self.used.saturating_add(self.free);
        let most = u128::from(all) * u128::from(MAX_USED_PERCENT) / 100;
        u64::try_from(most).unwrap_or(u64::MAX).saturating_sub(self.used)
    }
}

/// Disks are filled up to this percentage, because reports and logs need the rest.
const MAX_USED_PERCENT: u64 = 95;
/// A file is not checked until it has this number of bytes: small files do no harm.
const UNCHECKED_BYTES: u64 = 4 << 20;
/// Bytes between two checks. A check costs about a microsecond.
const CHECK_INTERVAL: std::ops::RangeInclusive<u64> = 64 << 10..=64 << 20;

/// Checks the free space of a disk while a file of unknown size grows.
#[derive(Debug)]
pub struct Room {
    /// Bytes that may be written before the next check.
    left: u64,
}

impl Room {
    /// Checks for an open file.
    pub fn of(file: &File, permit: Permit) -> Self {
        let grows = file.metadata().is_ok_and(|found| found.is_file());
        Self { left: if grows && !permit.fill { UNCHECKED_BYTES } else { u64::MAX } }
    }

    /// Checks for files at `path`, or with names derived from it.
    pub fn at(path: &Path, permit: Permit) -> Self {
        let grows = path.metadata().map_or(true, |found| found.is_file());
        Self { left: if grows && !permit.fill { UNCHECKED_BYTES } else { u64::MAX } }
    }

    /// Call this before `octets` are written to `file`.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] if the disk is 95 % full: nothing more should be written.
    #[inline]
    pub fn take(&mut self, octets: usize, file: impl AsFd) -> io::Result<()> {
        self.take_where(octets as u64, || Ok(Some(Space::of(&fstatvfs(file)?, 0))))
    }

    /// As [`Room::take`], on the file system that `space` returns.
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
            None => self.check_space(octets, space),
        }
    }

    #[cold]
    fn check_space(
        &mut self,
        octets: u64,
        space: impl FnOnce() -> io::Result<Option<Space>>,
    ) -> io::Result<()> {
        // If the file system's free space is unknown, it does not count as full.
        let Ok(Some(space)) = space() else {
            self.left = *CHECK_INTERVAL.end();
            return Ok(());
        };
        let left = space.writable();
        if left < octets {
            let text = format!(
                "the disk is {MAX_USED_PERCENT} % full: {} of {} are free\n  try another disk, or --force to \
                 fill it",
                size(space.free),
                size(space.used.saturating_add(space.free))
            );
            return Err(io::Error::new(io::ErrorKind::StorageFull, text));
        }
        // Half of the rest: if several files grow at once, they must not exceed the limit by much.
        self.left = (left / 2)
            .clamp(*CHECK_INTERVAL.start(), *CHECK_INTERVAL.end())
            .min(left)
            .saturating_sub(octets);
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
            let (mut room, mut used) = (Room { left: UNCHECKED_BYTES }, 400_000_000);
            let full = loop {
                let space = || Ok(Some(Space { used, free: ALL - used, device: 0 }));
                match room.take_where(piece, space) {
                    Ok(()) => used += piece,
                    Err(error) => break error,
                }
            };
            assert_eq!(full.kind(), io::ErrorKind::StorageFull);
            assert!(used <= ALL / 100 * MAX_USED_PERCENT, "{piece}: {used}");
            let over = piece.max(*CHECK_INTERVAL.start());
            assert!(used > ALL / 100 * MAX_USED_PERCENT - 2 * over, "{piece}: {used}");
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
