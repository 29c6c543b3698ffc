//! Files named in a profile, for programs that run other users' profiles and must restrict the
//! files; and the limit on a file's size.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use squall_wire::Packet;

use crate::{AttackOf, Departures, FlowContent, PacketSource, Profile, Routes, SplitRule, Tls};

/// Maximum size in octets of a file that is read into memory, because `/dev/zero` is endless.
pub const MAX_FILE_SIZE: u64 = 256 << 20;

/// Reads the file at `path`, which may be a pipe.
///
/// # Errors
/// If the file cannot be read, or has more than [`MAX_FILE_SIZE`].
pub fn read_file(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    read_all(File::open(path)?)
}

/// Like [`read_file`], but for UTF-8 text.
///
/// # Errors
/// Errors of [`read_file`]; invalid UTF-8.
pub fn read_text(path: impl AsRef<Path>) -> io::Result<String> {
    text(read_file(path)?)
}

/// Like [`read_text`], but for a file that is open already.
///
/// # Errors
/// Errors of [`read_text`].
pub fn read_open(read: impl Read) -> io::Result<String> {
    text(read_all(read)?)
}

fn read_all(read: impl Read) -> io::Result<Vec<u8>> {
    let mut octets = Vec::new();
    read.take(MAX_FILE_SIZE + 1).read_to_end(&mut octets)?;
    if octets.len() as u64 > MAX_FILE_SIZE {
        let text = format!("it has more than {} MiB", MAX_FILE_SIZE >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    Ok(octets)
}

fn text(octets: Vec<u8>) -> io::Result<String> {
    String::from_utf8(octets)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
}

/// Whether this option of an application names a file.
pub(crate) fn is_file(option: &str) -> bool {
    option.ends_with("_file")
}

/// A file named in the profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedFile<'a> {
    /// The key in the profile: `background of [[attack]]`.
    pub what: &'static str,
    /// The path, relative to the profile's directory (payload of packets, files of routers) or to
    /// the working directory (all others).
    pub path: &'a str,
    /// Whether the file may name other files, or be a directory of such files.
    pub includes: bool,
}

impl Profile {
    /// All files that a run of the profile reads, except those in port addresses. Files with field
    /// values are not included, because they were read together with the profile.
    pub fn files(&self) -> Vec<NamedFile<'_>> {
        let mut found = Vec::new();
        let mut add = |what, path| found.push(NamedFile { what, path, includes: false });
        for stream in &self.streams {
            match &stream.packet {
                PacketSource::Layers(packet) => {
                    Packet::files(packet).for_each(|path| add("file(..) of a packet", path))
                }
                PacketSource::Capture { path, .. } => add("capture of [[stream]]", path),
                PacketSource::Octets(_) => {}
            }
            if let Departures::File { path } = &stream.departures {
                add("file of departures", path);
            }
        }
        if let Some(flows) = &self.flows {
            if let Some(replay) = &flows.replay {
                add("capture of [flows.replay]", &replay.capture.text);
            }
            for template in &flows.templates {
                match &template.content {
                    FlowContent::Capture { path, .. } => add("capture of [[template]]", &path.text),
                    FlowContent::App { options, .. } => {
                        options.iter().filter(|(name, _)| is_file(name)).for_each(|(_, located)| {
                            add("file in options of [[template]]", &located.text)
                        })
                    }
                    FlowContent::Programs { .. } => {}
                }
                if let Some(data) = &template.data {
                    add("file of data", &data.file.text);
                }
                template.tls.iter().for_each(|tls| files_of_tls(tls, &mut add));
            }
        }
        for replay in &self.replays {
            // This includes standard input, which belongs to the process that runs the profile.
            replay.files.iter().for_each(|located| add("capture of [[replay]]", &located.text));
            if let Some((SplitRule::Cache, located)) = &replay.split {
                add("cache of [[replay]]", &located.text);
            }
        }
        for router in &self.routers {
            router.config.iter().for_each(|path| add("config of [[router]]", path));
            let groups = router.group.iter().flat_map(|group| &group.routes);
            let files = router.routes.iter().chain(groups).filter_map(Routes::file);
            files.for_each(|path| add("routes of [[router]]", path));
        }
        for tls in self.hosts.iter().filter_map(|group| group.tls.as_ref()) {
            files_of_tls(tls, &mut add);
        }
        for attack in &self.attacks {
            attack
                .background
                .iter()
                .for_each(|located| add("background of [[attack]]", &located.text));
            if let AttackOf::Rules(rules) = &attack.what {
                rules.config.iter().for_each(|located| add("config of [[attack]]", &located.text));
            }
        }
        for attack in &self.attacks {
            if let AttackOf::Rules(rules) = &attack.what {
                let files = rules.files.iter();
                found.extend(files.map(|located| NamedFile {
                    what: "rules of [[attack]]",
                    path: &located.text,
                    includes: true,
                }));
            }
        }
        found
    }
}

/// Adds the files that settings of TLS name.
fn files_of_tls<'a>(tls: &'a Tls, add: &mut impl FnMut(&'static str, &'a str)) {
    let named = [
        ("ca of tls", &tls.ca),
        ("certificate of tls", &tls.certificate),
        ("key of tls", &tls.key),
        ("client_certificate of tls", &tls.client_certificate),
        ("client_key of tls", &tls.client_key),
        ("client_ca of tls", &tls.client_ca),
    ];
    for (what, located) in named {
        located.iter().for_each(|located| add(what, &located.text));
    }
    let capture = tls.hello.as_ref().and_then(|hello| hello_capture(&hello.text));
    capture.iter().for_each(|(path, _)| add("hello of tls", path));
}

/// The path of a capture, and the number of a ClientHello in it (from 1), if `hello` of TLS names
/// one: `visit.pcapng`, `visit.pcap.gz:3`.
pub fn hello_capture(hello: &str) -> Option<(&str, u64)> {
    let numbered = hello.rsplit_once(':').and_then(|(path, n)| Some((path, n.parse().ok()?)));
    let (path, number) = numbered.unwrap_or((hello, 1));
    let lower = path.to_ascii_lowercase();
    let packed = [".gz", ".zst", ".lz4", ".xz", ".bz2"];
    let plain = packed.iter().find_map(|end| lower.strip_suffix(end)).unwrap_or(&lower);
    (plain.ends_with(".pcap") || plain.ends_with(".pcapng")).then_some((path, number))
}
