//! Files that requests may name: those below one directory. Requests cannot read or write other
//! files, because a daemon that runs as root would otherwise be a way to do so as root (ADR 0034).

use std::{
    fs,
    path::{Component, Path, PathBuf},
    time::SystemTime,
};

use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use squall::{Error, Profile, report::Report};
use squall_units::Cannot;

use crate::{Refusal, budget, error::Detail};

/// Maximum size of an upload, in octets.
pub const MOST: u64 = 512 << 20;
/// Maximum size of a rule file that is scanned for includes, in octets.
const MOST_RULES: u64 = 64 << 20;

/// Resolves names to paths, all inside the data directory.
#[derive(Clone, Debug)]
pub struct Files {
    /// Path without symbolic links, so that it can be compared with resolved paths.
    root: PathBuf,
    /// Directory for incomplete uploads; emptied at the start.
    unfinished: PathBuf,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FileRow {
    pub name: String,
    /// Octets.
    pub size: u64,
    /// RFC 3339.
    pub modified: String,
    /// `capture`, `rules`, `profile` or `other`.
    pub kind: &'static str,
}

impl Files {
    /// Creates the directories `files` and `unfinished` in `data`.
    ///
    /// # Errors
    /// If a directory cannot be created, or its path cannot be part of a port address.
    pub fn open(data: &Path) -> Result<Self, Error> {
        let (root, unfinished) = (data.join("files"), data.join("unfinished"));
        let wrong = |path: &Path, error: std::io::Error| {
            Error::Environment(Cannot::write(path, &error).to_string())
        };
        // Remove the uploads that a killed daemon left.
        _ = fs::remove_dir_all(&unfinished);
        for folder in [&root, &unfinished] {
            fs::create_dir_all(folder).map_err(|error| wrong(folder, error))?;
        }
        let root = fs::canonicalize(&root).map_err(|error| wrong(&root, error))?;
        if root.to_str().is_none_or(|text| text.contains(',')) {
            return Err(Error::Usage(format!(
                "{}: addresses of files cannot contain a comma, or text that is not UTF-8\n  try \
                 another --data FOLDER",
                root.display()
            )));
        }
        Ok(Self { root, unfinished })
    }

    /// The directory of all files.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The path to pass to the reader of a profile, so that relative names in it resolve to the
    /// daemon's files.
    pub fn origin(&self, name: &str) -> String {
        self.root.join(name).to_string_lossy().into_owned()
    }

    /// A path for a new upload.
    pub fn unfinished(&self) -> PathBuf {
        self.unfinished.join(crate::auth::random())
    }

    /// The path of the file `name`, which need not exist.
    ///
    /// # Errors
    /// A name that leads outside the directory.
    pub fn path(&self, name: &str) -> Result<PathBuf, Refusal> {
        self.inside(Path::new(name), name)
    }

    /// The name as [`Files::list`] shows it, without `.` and empty components.
    ///
    /// # Errors
    /// As [`Files::path`].
    pub fn plain(&self, name: &str) -> Result<String, Refusal> {
        let path = self.path(name)?;
        let relative: PathBuf =
            path.strip_prefix(&self.root).unwrap_or(&path).components().collect();
        Ok(relative.to_string_lossy().into_owned())
    }

    /// Resolves an absolute or relative path. Refuses one that leads outside, also by symbolic
    /// links.
    fn inside(&self, path: &Path, shown: &str) -> Result<PathBuf, Refusal> {
        let shown = self.without_root(shown);
        let outside = |why: &str| {
            let message = format!(
                "{shown:?}: {why}\n  expected the name of a file that was sent to the daemon (PUT \
                 /squall/v1/files/NAME)"
            );
            Refusal::bad_request("bad_path", message)
        };
        let relative = path.strip_prefix(&self.root).unwrap_or(path);
        if relative.as_os_str().is_empty() || shown.contains('\0') || shown.len() > 512 {
            return Err(outside("is not a file name"));
        }
        if !relative.components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(outside("is outside the daemon's folder"));
        }
        let whole = self.root.join(relative);
        // Resolves links in the deepest existing ancestor only, because the rest does not exist and
        // contains no links.
        let there = whole.ancestors().find_map(|part| fs::canonicalize(part).ok());
        match there {
            Some(there) if there.starts_with(&self.root) => {}
            _ => return Err(outside("is outside the daemon's folder")),
        }
        if fs::symlink_metadata(&whole)
            .is_ok_and(|about| about.is_symlink() && fs::canonicalize(&whole).is_err())
        {
            return Err(outside("is a broken link"));
        }
        Ok(whole)
    }

    /// Parses a profile. Files named in it are read from the daemon's directory.
    ///
    /// # Errors
    /// Errors of the profile; a file outside the directory.
    pub fn profile(&self, text: &str, format: squall::Format) -> Result<Profile, Refusal> {
        let name = "profile";
        let read = |path: &Path| {
            let path = self.inside(path, &path.to_string_lossy());
            let path = path.map_err(|refusal| std::io::Error::other(refusal.message))?;
            fs::read_to_string(path)
        };
        let parsed = Profile::parse_with(text, &self.origin(name), format, &read);
        let profile =
            parsed.map_err(|mistakes| self.without_paths(Error::Input(mistakes).into()))?;
        budget::check(&profile)?;
        self.check(&profile)?;
        Ok(profile)
    }

    /// Refuses a profile that names a file outside the directory. Files of ports are checked
    /// together with the port addresses.
    ///
    /// # Errors
    /// The first file outside the directory.
    pub fn check(&self, profile: &Profile) -> Result<(), Refusal> {
        for named in profile.files() {
            let wrong = |refusal: Refusal| {
                let detail = Detail {
                    path: named.what.into(),
                    message: refusal.message.clone(),
                    ..Detail::default()
                };
                Refusal {
                    message: format!("{}: {}", named.what, refusal.message),
                    details: vec![detail],
                    ..refusal
                }
            };
            let path = self.inside(Path::new(named.path), named.path).map_err(wrong)?;
            if named.includes {
                self.includes_nothing(&path).map_err(wrong)?;
            }
        }
        Ok(())
    }

    /// Refuses rules that include other files, because those could be outside the directory.
    pub fn includes_nothing(&self, path: &Path) -> Result<(), Refusal> {
        let refuse =
            |message: String| Err(Refusal::bad_request("bad_path", self.without_root(&message)));
        if path.is_dir() {
            return refuse(format!(
                "{}: folders of rules are not accepted here\n  try a list of files",
                path.display()
            ));
        }
        // A file that cannot be read is reported by the reader of the rules.
        let Ok(about) = fs::metadata(path) else { return Ok(()) };
        if about.len() > MOST_RULES {
            return refuse(format!("{}: more than 64 MiB of rules", path.display()));
        }
        let Ok(octets) = fs::read(path) else { return Ok(()) };
        // Skip zero octets, so that an include in UTF-16 is found, too.
        let text: String =
            octets.iter().filter(|octet| **octet != 0).map(|octet| char::from(*octet)).collect();
        let asks = |line: &str| {
            let word = line.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
            word.get(..7).is_some_and(|word| word.eq_ignore_ascii_case("include"))
        };
        match text.lines().find(|line| asks(line)) {
            Some(line) => refuse(format!(
                "{}: {line:?} is not supported here\n  try all rules in one file",
                path.display()
            )),
            None => Ok(()),
        }
    }

    /// All files, sorted by name.
    pub fn list(&self) -> Vec<FileRow> {
        let mut rows = Vec::new();
        let mut folders = vec![self.root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                // Read the metadata of a link itself, because links are not followed.
                let Ok(about) = entry.metadata() else { continue };
                let path = entry.path();
                if about.is_dir() {
                    folders.push(path);
                } else if let (true, Ok(name)) = (about.is_file(), path.strip_prefix(&self.root)) {
                    let name = name.to_string_lossy().into_owned();
                    let modified = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                    let modified = humantime::format_rfc3339_millis(modified).to_string();
                    rows.push(FileRow { kind: kind(&name), name, size: about.len(), modified });
                }
            }
        }
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        rows
    }

    /// Removes the path of the daemon's directory from the refusal.
    pub fn without_paths(&self, mut refusal: Refusal) -> Refusal {
        refusal.message = self.without_root(&refusal.message);
        for detail in &mut refusal.details {
            detail.message = self.without_root(&detail.message);
        }
        refusal
    }

    /// Replaces the daemon's paths in the report by the names that users know.
    pub fn with_user_names(&self, mut report: Report) -> Report {
        for port in &mut report.ports {
            port.address = self.without_root(&port.address);
        }
        for file in report.capture.iter_mut().flat_map(|capture| &mut capture.files) {
            // Only the last component of other paths is shown, because they are temporary files of
            // the daemon (captures of Open Traffic Generator).
            let name = self.without_root(&file.name);
            file.name = if name.starts_with('/') {
                name.rsplit('/').next().unwrap_or_default().to_owned()
            } else {
                name
            };
        }
        report
    }

    pub fn without_root(&self, text: &str) -> String {
        text.replace(&format!("{}/", self.root.display()), "")
    }

    /// The path of an existing file.
    ///
    /// # Errors
    ///
    /// If the file does not exist.
    pub fn there(&self, name: &str) -> Result<PathBuf, Refusal> {
        let path = self.path(name)?;
        if path.is_file() {
            return Ok(path);
        }
        Err(Refusal::new(StatusCode::NOT_FOUND, "not_found", format!("there is no file {name:?}")))
    }
}

fn kind(name: &str) -> &'static str {
    let lower = name.to_ascii_lowercase();
    let plain = [".gz", ".zst", ".xz", ".bz2", ".lz4"]
        .iter()
        .find_map(|end| lower.strip_suffix(end))
        .unwrap_or(&lower);
    match plain.rsplit('.').next() {
        Some("pcap" | "pcapng" | "cap") => "capture",
        Some("rules") => "rules",
        Some("toml" | "yaml" | "yml") => "profile",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall::Format;

    fn files(name: &str) -> (PathBuf, Files) {
        let data = std::env::temp_dir().join(format!("squall-files-{name}-{}", std::process::id()));
        _ = fs::remove_dir_all(&data);
        fs::create_dir_all(&data).expect("a folder");
        let files = Files::open(&data).expect("it opens");
        (data, files)
    }

    #[test]
    fn names_lead_nowhere_else() {
        let (data, files) = files("names");
        fs::write(data.join("secret"), "x").expect("written");
        std::os::unix::fs::symlink(data.join("secret"), data.join("files/link")).expect("a link");
        std::os::unix::fs::symlink("/nowhere/at/all", data.join("files/dangling")).expect("a link");
        std::os::unix::fs::symlink(&data, data.join("files/up")).expect("a link");
        for wrong in [
            "../secret",
            "/etc/passwd",
            "a/../../secret",
            "",
            ".",
            "link",
            "up/secret",
            "up/new",
            "dangling",
            "a\0b",
            "..",
        ] {
            let refusal = files.path(wrong).expect_err(wrong);
            assert_eq!((refusal.status, refusal.code), (400, "bad_path"), "{wrong}");
            assert!(!refusal.message.contains(&data.display().to_string()), "{refusal}");
        }
        assert!(files.path("a.pcap").is_ok() && files.path("deep/er/a.pcap").is_ok());
        fs::remove_dir_all(data).expect("removed");
    }

    #[test]
    fn each_kind_of_file_that_a_profile_names_is_kept_inside() {
        let (data, files) = files("profile");
        let stream = |what: &str| {
            format!(
                "[ports]\nA = \"null:\"\n[[stream]]\nname = \"x\"\npacket = \
                 \"eth/ipv4/udp\"\nrate = \"1 kpps\"\n{what}\n"
            )
        };
        let attack = |what: &str| {
            format!("[ports]\nA = \"null:\"\n[[attack]]\nname = \"a\"\nrate = 1\n{what}\n")
        };
        let other = |packet: &str| stream("").replace("packet = \"eth/ipv4/udp\"", packet);
        for wrong in [
            other("packet = 'eth/ipv4/udp/file(\"/etc/passwd\")'"),
            other("packet = 'eth/ipv4/udp/file(\"../token\")'"),
            other("pcap = \"/etc/passwd#1\""),
            other("pcap = \"../x.pcap#1\""),
            stream("departures = { file = \"/etc/passwd\" }"),
            stream("vary = [{ field = \"udp.dport\", op = \"file\", path = \"/etc/passwd\" }]"),
            attack("rules = [\"/etc/passwd\"]"),
            attack("rules = [\"x.rules\"]\nconfig = \"/etc/passwd\""),
            attack("rules = [\"x.rules\"]\nbackground = \"/etc/passwd\""),
        ] {
            let refusal = files.profile(&wrong, Format::Toml).expect_err(&wrong);
            assert!(
                refusal.message.contains("is outside")
                    || refusal.message.contains("expected the name of a file"),
                "{wrong}\n{refusal}"
            );
        }
        files.profile(&stream(""), Format::Toml).expect("it names none");
        fs::write(data.join("files/x.rules"), "  include /etc/passwd\n").expect("written");
        let refusal = files
            .profile(&attack("rules = [\"x.rules\"]"), Format::Toml)
            .expect_err("it includes another");
        assert!(refusal.message.contains("not supported here"), "{refusal}");
        fs::remove_dir_all(data).expect("removed");
    }
}
