//! Files that a profile names: for who reads profiles of others and has to say which files they may
//! read; and how much of a file is read at most.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use squall_wire::Packet;

use crate::{AttackOf, Departures, PacketSource, Profile, Says, SplitOf};

/// Octets of a file that is held in memory as a whole, at most: `/dev/zero` has no end.
pub const MOST_OCTETS: u64 = 256 << 20;

/// What is in the file at `path`, which may be a pipe.
///
/// # Errors
/// As reading it; if it has more than [`MOST_OCTETS`].
pub fn read_file(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    read_all(File::open(path)?)
}

/// As [`read_file`], of UTF-8.
///
/// # Errors
/// As [`read_file`]; if it is no text.
pub fn read_text(path: impl AsRef<Path>) -> io::Result<String> {
    text(read_file(path)?)
}

/// As [`read_text`], of what is open.
///
/// # Errors
/// As [`read_text`].
pub fn read_open(read: impl Read) -> io::Result<String> {
    text(read_all(read)?)
}

fn read_all(read: impl Read) -> io::Result<Vec<u8>> {
    let mut octets = Vec::new();
    read.take(MOST_OCTETS + 1).read_to_end(&mut octets)?;
    if octets.len() as u64 > MOST_OCTETS {
        let text = format!("it has more than {} MiB", MOST_OCTETS >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    Ok(octets)
}

fn text(octets: Vec<u8>) -> io::Result<String> {
    String::from_utf8(octets)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
}

/// Whether an option of an application names a file.
pub(crate) fn is_file(option: &str) -> bool {
    option.ends_with("_file")
}

/// A file, as the profile names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedFile<'a> {
    /// The key: `background of [[attack]]`.
    pub what: &'static str,
    /// Relative to the profile's folder (payload of packets), or to where Squall runs (all others).
    pub path: &'a str,
    /// It may name others itself, and so may be a folder of such.
    pub includes: bool,
}

impl Profile {
    /// All files that a run of the profile reads, besides those of port addresses. Values of fields
    /// have been read when the profile was.
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
                match &template.says {
                    Says::Capture { path, .. } => add("capture of [[template]]", &path.text),
                    Says::App { options, .. } => options
                        .iter()
                        .filter(|(name, _)| is_file(name))
                        .for_each(|(_, said)| add("file in options of [[template]]", &said.text)),
                    Says::Programs { .. } => {}
                }
                if let Some(data) = &template.data {
                    add("file of data", &data.file.text);
                }
                if let Some(tls) = &template.tls {
                    let named = [
                        ("ca of tls", &tls.ca),
                        ("certificate of tls", &tls.certificate),
                        ("key of tls", &tls.key),
                        ("client_certificate of tls", &tls.client_certificate),
                        ("client_key of tls", &tls.client_key),
                        ("client_ca of tls", &tls.client_ca),
                    ];
                    named.into_iter().for_each(|(what, said)| {
                        said.iter().for_each(|said| add(what, &said.text))
                    });
                }
            }
        }
        for replay in &self.replays {
            // The standard input, too, which is whose the process is.
            replay.files.iter().for_each(|said| add("capture of [[replay]]", &said.text));
            if let Some((SplitOf::Cache, said)) = &replay.split {
                add("cache of [[replay]]", &said.text);
            }
        }
        for attack in &self.attacks {
            attack.background.iter().for_each(|said| add("background of [[attack]]", &said.text));
            if let AttackOf::Rules(rules) = &attack.what {
                rules.config.iter().for_each(|said| add("config of [[attack]]", &said.text));
            }
        }
        for attack in &self.attacks {
            if let AttackOf::Rules(rules) = &attack.what {
                let files = rules.files.iter();
                found.extend(files.map(|said| NamedFile {
                    what: "rules of [[attack]]",
                    path: &said.text,
                    includes: true,
                }));
            }
        }
        found
    }
}
