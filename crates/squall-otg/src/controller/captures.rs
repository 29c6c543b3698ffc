//! What ports capture while a client wants it, and the octets of it.

use std::{
    collections::HashMap,
    fs,
    io::Write,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use squall::{
    Capture, Error, RunOptions, Session,
    driving::{Driven, Start},
    filter,
    options::Time,
};
use squall_capture::{Format, Options, Rotate, Stop};
use squall_pcap::{CaptureReader, InterfaceFormat, LinkType, PacketNotes, PcapFormat, Section};
use squall_port_linux::shared;

use super::{Refusal, unknown};
use crate::{CaptureInfo, Translated};

/// What is kept of a port's frames, in octets.
const MOST: u64 = 256 << 20;
/// A capture ends within that time.
const PATIENCE: Duration = Duration::from_secs(10);

/// Captures by the port's name.
#[derive(Default)]
pub struct Captures {
    of: HashMap<String, Recording>,
    /// Files of runs that captured themselves, of all ports.
    shared: Vec<PathBuf>,
    folder: Option<Folder>,
}

/// What one port captures, or has captured.
struct Recording {
    on: bool,
    by: By,
}

enum By {
    /// A second opening of its interface.
    Itself { driven: Arc<Driven>, file: PathBuf },
    /// The run, which has the port: files from this one of [`Captures::shared`] to before that one.
    Run { from: usize, to: Option<usize> },
}

/// Files that nobody else reads, for as long as the captures are there. The lock says that somebody
/// is.
struct Folder(PathBuf, #[expect(dead_code, reason = "held, not read")] fs::File);

/// What the folders' names begin with.
const NAMED: &str = "squall-otg";
const LOCK: &str = "lock";

impl Captures {
    pub fn is_on(&self, port: &str) -> bool {
        self.of.get(port).is_some_and(|recording| recording.on)
    }

    /// `ports`: names; all that a capture is configured for without any. `busy`: a run has ports
    /// open.
    ///
    /// # Errors
    /// Ports without a configuration; ports that only a run can have, while it has them.
    pub fn start(
        &mut self,
        start: &mut dyn Start,
        translated: &Translated,
        ports: &[String],
        busy: bool,
    ) -> Result<(), Refusal> {
        for (port, info) in configured(translated, ports)? {
            if let Some(mut before) = self.of.remove(port) {
                before.end();
            }
            let by = self.begin(start, translated, port, info, busy)?;
            self.of.insert(port.to_owned(), Recording { on: true, by });
        }
        Ok(())
    }

    fn begin(
        &mut self,
        start: &mut dyn Start,
        translated: &Translated,
        port: &str,
        info: &CaptureInfo,
        busy: bool,
    ) -> Result<By, Refusal> {
        let address = address(translated, port);
        let Some(interface) = squall::interface_of(address) else {
            if busy {
                let text = format!(
                    "port {port} ({address}) can only be captured by its run, which has started\n  \
                     try to start the capture before the traffic"
                );
                return Err(Error::Usage(text).into());
            }
            return Ok(By::Run { from: self.shared.len(), to: None });
        };
        let file = self.file()?;
        let mut options = options(file.clone());
        options.snaplen = info.packet_size.filter(|&size| size > 0).unwrap_or(options.snaplen);
        // A ring keeps its last file and the one that is written.
        (options.rotate, options.stop) = match info.overwrite {
            true => (
                Rotate { octets: Some(MOST / 2), ring: Some(2), ..Rotate::default() },
                Stop::default(),
            ),
            false => (Rotate::default(), Stop { octets: Some(MOST), ..Stop::default() }),
        };
        let capture = Capture { options, ..Capture::default() };
        let listen = Session::listen([(port, format!("af_packet:{interface}"))]);
        let options = RunOptions {
            filter: info.filter.clone(),
            // What has come is taken from the kernel's ring at the end, and nothing of this
            // session's is on its way.
            linger: Some(Time::default()),
            ..RunOptions::default()
        };
        let session = Session { options, capture: Some(capture), command: "otg".into(), ..listen };
        let driven = start.start(&format!("otg capture {port}"), session)?;
        Ok(By::Itself { driven, file })
    }

    /// # Errors
    /// Ports without a configuration.
    pub fn stop(&mut self, translated: &Translated, ports: &[String]) -> Result<(), Refusal> {
        for (port, _) in configured(translated, ports)? {
            let files = self.shared.len();
            if let Some(recording) = self.of.get_mut(port) {
                recording.end();
                if let By::Run { to: to @ None, .. } = &mut recording.by {
                    *to = Some(files);
                }
            }
        }
        Ok(())
    }

    pub fn stop_all(&mut self) {
        self.of.values_mut().for_each(Recording::end);
    }

    /// What a run that begins now is to capture for ports that only it can have.
    pub fn wanted_of_run(&mut self, _translated: &Translated) -> Option<Capture> {
        let waits = |recording: &Recording| recording.on && matches!(recording.by, By::Run { .. });
        if !self.of.values().any(waits) {
            return None;
        }
        let file = self.file().ok()?;
        self.shared.push(file.clone());
        let options =
            Options { stop: Stop { octets: Some(MOST), ..Stop::default() }, ..options(file) };
        Some(Capture { options, beside: true, ..Capture::default() })
    }

    /// Whether the run has begun that was to capture.
    pub fn recorded(&mut self, begun: bool) {
        if !begun {
            self.shared.retain(|file| file.exists());
        }
    }

    /// As a file; `initial`: so many frames only. Each has its FCS, as far as it is there whole.
    ///
    /// # Errors
    /// Nothing was captured on the port; the files cannot be read.
    pub fn fetch(
        &self,
        translated: &Translated,
        port: &str,
        initial: Option<u64>,
    ) -> Result<Vec<u8>, Error> {
        let recording = self.of.get(port).ok_or_else(|| {
            Error::Usage(format!(
                "nothing was captured on port {port}\n  try a capture for it in the \
                 configuration, and start it"
            ))
        })?;
        let info =
            translated.captures.iter().find(|info| info.port_names.iter().any(|name| name == port));
        let pcapng = info.is_some_and(|info| info.pcapng);
        let mut out = Out::new(pcapng, port, initial.unwrap_or(u64::MAX))?;
        match &recording.by {
            By::Itself { file, .. } => {
                for file in parts(file) {
                    out.copy(&file, |_, _, _| true)?;
                }
            }
            By::Run { from, to } => {
                let number =
                    translated.ports.iter().position(|p| p.name == port).unwrap_or(0) as u32;
                let expression = info.and_then(|info| info.filter.as_deref());
                let wanted = expression
                    .map(|text| filter::compile_file(text, LinkType::ETHERNET.0))
                    .transpose()
                    .map_err(Error::from)?;
                out.snaplen = info
                    .and_then(|info| info.packet_size)
                    .filter(|&size| size > 0)
                    .unwrap_or(u32::MAX);
                let files =
                    self.shared.get(*from..to.unwrap_or(self.shared.len())).unwrap_or_default();
                for file in files.iter().filter(|file| file.exists()) {
                    out.copy(file, |interface, octets, wire_len| {
                        interface == number
                            && wanted.as_ref().is_none_or(|f| f.keep(octets, wire_len) > 0)
                    })?;
                }
            }
        }
        Ok(out.octets)
    }

    /// A new name in the folder.
    fn file(&mut self) -> Result<PathBuf, Error> {
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
    fn end(&mut self) {
        self.on = false;
        if let By::Itself { driven, .. } = &self.by {
            driven.stop();
            driven.wait(PATIENCE);
        }
    }
}

impl Drop for Captures {
    fn drop(&mut self) {
        self.stop_all();
    }
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
                "cannot make a folder for captures in {}: {error}",
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

/// Names of the ports that are asked for, with what is configured for each; the last configuration
/// counts.
fn configured<'a>(
    translated: &'a Translated,
    ports: &[String],
) -> Result<Vec<(&'a str, &'a CaptureInfo)>, Refusal> {
    let all: HashMap<&str, &CaptureInfo> = translated
        .captures
        .iter()
        .flat_map(|info| info.port_names.iter().map(move |name| (name.as_str(), info)))
        .collect();
    if ports.is_empty() {
        return Ok(all.into_iter().collect());
    }
    let find = |name: &String| {
        let found = all.get_key_value(name.as_str()).map(|(name, info)| (*name, *info));
        found.ok_or_else(|| unknown("port_names", "port with a capture", name, all.keys().copied()))
    };
    ports.iter().map(find).collect()
}

fn address<'a>(translated: &'a Translated, port: &str) -> &'a str {
    translated.ports.iter().find(|p| p.name == port).map_or("", |p| p.address.as_str())
}

fn options(file: PathBuf) -> Options {
    // Whoever fetches while it goes on finds what has come.
    Options { file: Some(file), format: Format::Pcapng, flush: true, ..Options::default() }
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

/// What is told of a capture.
struct Out {
    octets: Vec<u8>,
    pcapng: bool,
    left: u64,
    snaplen: u32,
}

impl Out {
    fn new(pcapng: bool, port: &str, left: u64) -> Result<Self, Error> {
        let mut octets = Vec::new();
        let written = match pcapng {
            true => Section::default()
                .write_header(&mut octets)
                .and_then(|()| interface(Some(port.to_owned())).write_description(&mut octets)),
            false => pcap().write_header(&mut octets),
        };
        written.map_err(|error| Error::Environment(error.to_string()))?;
        Ok(Self { octets, pcapng, left, snaplen: u32::MAX })
    }

    /// The packets of a file that are `wanted` (interface, octets, octets on the wire). One that is
    /// still written ends where it ends.
    fn copy(&mut self, file: &Path, wanted: impl Fn(u32, &[u8], u32) -> bool) -> Result<(), Error> {
        let Ok(mut reader) = CaptureReader::open(file) else { return Ok(()) };
        let mut frame = Vec::new();
        while self.left > 0
            && let Ok(Some(packet)) = reader.next()
        {
            if !wanted(packet.interface, packet.data, packet.wire_len) {
                continue;
            }
            frame.clear();
            frame.extend_from_slice(packet.data);
            if packet.data.len() == packet.wire_len as usize {
                let _ = frame.write_all(&fcs(packet.data).to_le_bytes());
            }
            frame.truncate(self.snaplen as usize);
            let wire_len = packet.wire_len.saturating_add(squall_units::FCS_LEN);
            let written = match self.pcapng {
                true => interface(None).write_packet(
                    &mut self.octets,
                    0,
                    packet.time_ns,
                    wire_len,
                    &frame,
                    &PacketNotes::default(),
                ),
                false => pcap().write_packet(&mut self.octets, packet.time_ns, wire_len, &frame),
            };
            written.map_err(|error| Error::Environment(error.to_string()))?;
            self.left -= 1;
        }
        Ok(())
    }
}

fn pcap() -> PcapFormat {
    // Microseconds: what the clients' readers have known for longest.
    PcapFormat { nanoseconds: false, ..PcapFormat::default() }
}

fn interface(name: Option<String>) -> InterfaceFormat {
    InterfaceFormat { name, ..InterfaceFormat::default() }
}

/// The frame check sequence (IEEE 802.3 §3.2.9), as the number whose octets follow the frame,
/// lowest first.
fn fcs(frame: &[u8]) -> u32 {
    const TABLE: [u32; 256] = table();
    !frame.iter().fold(u32::MAX, |crc, octet| TABLE[usize::from(crc as u8 ^ octet)] ^ (crc >> 8))
}

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let (mut crc, mut bit) = (i as u32, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frame_check_sequence_is_that_of_the_standard() {
        // The check value of CRC-32/ISO-HDLC.
        assert_eq!(fcs(b"123456789"), 0xcbf4_3926);
    }

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
