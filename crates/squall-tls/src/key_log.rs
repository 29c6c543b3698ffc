//! The secrets of sessions as a file.

use std::{
    fmt::Write as _,
    fs::{File, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
    sync::{Mutex, OnceLock, PoisonError},
};

/// A file with the secrets of sessions, with which Wireshark, tshark and others read their captures
/// (RFC 9850, known as SSLKEYLOGFILE). Only its owner may read it.
#[derive(Debug)]
pub struct KeyLogFile {
    file: Mutex<File>,
    failure: OnceLock<String>,
}

impl KeyLogFile {
    /// An empty file at `path`, in place of an existing one.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
        // The mode above is that of a new file. A device or a pipe keeps its own.
        if file.metadata()?.is_file() {
            file.set_permissions(Permissions::from_mode(0o600))?;
        }
        Ok(Self { file: Mutex::new(file), failure: OnceLock::new() })
    }

    /// Why secrets are missing in the file, if any are.
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }
}

impl rustls::KeyLog for KeyLogFile {
    /// Writes the line with one call, so that readers find whole lines while a run lasts.
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let mut line = format!("{label} ");
        let mut hex = |octets: &[u8], end: char| {
            octets.iter().for_each(|octet| _ = write!(line, "{octet:02x}"));
            line.push(end);
        };
        hex(client_random, ' ');
        hex(secret, '\n');
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = file.write_all(line.as_bytes()) {
            _ = self.failure.set(error.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use rustls::KeyLog;

    use super::*;

    #[test]
    fn a_secret_is_a_line_and_a_full_disk_is_a_failure() {
        let path = std::env::temp_dir().join(format!("squall-key-log-{}", std::process::id()));
        std::fs::write(&path, "of an earlier run").unwrap();
        let log = KeyLogFile::create(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        log.log("CLIENT_RANDOM", &[0x01, 0xab], &[0xff]);
        log.log("EXPORTER_SECRET", &[0], &[1, 2]);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(text, "CLIENT_RANDOM 01ab ff\nEXPORTER_SECRET 00 0102\n");
        assert_eq!(log.failure(), None);
        let full = KeyLogFile::create(Path::new("/dev/full")).unwrap();
        full.log("CLIENT_RANDOM", &[1], &[2]);
        assert!(full.failure().is_some_and(|why| why.contains("space")));
    }
}
