//! Captures of ports, from start to download.

use std::{collections::HashMap, fs, path::PathBuf};

use squall::Error;
use squall_control::{
    driving::Start,
    recordings::{self, Recording, Recordings},
};
use squall_options::{CaptureOptions, Octets};
use squall_pcap::{InterfaceFormat, LinkType, Packet, PacketNotes, PcapFormat, Section};
use squall_port_linux::filter;

use super::{Refusal, unknown};
use crate::{CaptureInfo, Translated};

/// Maximum octets of captured frames kept per port.
const MOST: u64 = 256 << 20;

/// Captures by port name.
#[derive(Default)]
pub struct Captures {
    of: HashMap<String, Recorded>,
    /// Capture files of runs, for all ports.
    shared: Vec<PathBuf>,
    recordings: Recordings,
}

/// Capture of one port, active or stopped.
struct Recorded {
    on: bool,
    source: Source,
}

enum Source {
    /// A second socket on the port's interface.
    Interface(Recording),
    /// The run captures the port, because the run has opened it: a range of [`Captures::shared`].
    Run { from: usize, to: Option<usize> },
}

impl Captures {
    pub fn is_on(&self, port: &str) -> bool {
        self.of.get(port).is_some_and(|recording| recording.on)
    }

    /// `ports`: port names; empty for all configured captures. `busy`: whether a run has ports
    /// open.
    ///
    /// # Errors
    /// A port without a capture configuration, or one that only the current run could capture.
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
            let source = self.begin(start, translated, port, info, busy)?;
            self.of.insert(port.to_owned(), Recorded { on: true, source });
        }
        self.remove_unused();
        Ok(())
    }

    /// Removes the files of runs from before all captures.
    fn remove_unused(&mut self) {
        let first = |recorded: &Recorded| match recorded.source {
            Source::Run { from, .. } => Some(from),
            Source::Interface(_) => None,
        };
        let unused = self.of.values().filter_map(first).min().unwrap_or(self.shared.len());
        self.shared.drain(..unused).for_each(|file| _ = fs::remove_file(file));
        for recorded in self.of.values_mut() {
            if let Source::Run { from, to } = &mut recorded.source {
                *from -= unused;
                *to = to.map(|to| to - unused);
            }
        }
    }

    fn begin(
        &mut self,
        start: &mut dyn Start,
        translated: &Translated,
        port: &str,
        info: &CaptureInfo,
        busy: bool,
    ) -> Result<Source, Refusal> {
        let address = address(translated, port);
        let Some(interface) = squall_machine::ports::interface_of(address) else {
            if busy {
                let text = format!(
                    "port {port} ({address}) can only be captured by its run, which has started\n  \
                     try to start the capture before the traffic"
                );
                return Err(Error::Usage(text).into());
            }
            return Ok(Source::Run { from: self.shared.len(), to: None });
        };
        let snaplen = info.packet_size.filter(|&size| size > 0);
        let asked = CaptureOptions { snaplen, ..CaptureOptions::default() };
        // A ring keeps the previous file and the current one, so each gets half of the limit.
        let asked = match info.overwrite {
            true => {
                CaptureOptions { rotate_octets: Some(Octets(MOST / 2)), ring: Some(2), ..asked }
            }
            false => CaptureOptions { octets: Some(Octets(MOST)), ..asked },
        };
        let ports = vec![(port.to_owned(), format!("af_packet:{interface}"))];
        let name = format!("otg capture {port}");
        let filter = info.filter.clone();
        Ok(Source::Interface(self.recordings.start(start, (&name, "otg"), ports, filter, asked)?))
    }

    /// # Errors
    /// Ports without a configuration.
    pub fn stop(&mut self, translated: &Translated, ports: &[String]) -> Result<(), Refusal> {
        for (port, _) in configured(translated, ports)? {
            let files = self.shared.len();
            if let Some(recording) = self.of.get_mut(port) {
                recording.end();
                if let Source::Run { to: to @ None, .. } = &mut recording.source {
                    *to = Some(files);
                }
            }
        }
        Ok(())
    }

    pub fn stop_all(&mut self) {
        self.of.values_mut().for_each(Recorded::end);
    }

    /// Capture options for a new run, if it must capture ports itself.
    pub fn run_options(&mut self, _translated: &Translated) -> Option<CaptureOptions> {
        let waits =
            |recording: &Recorded| recording.on && matches!(recording.source, Source::Run { .. });
        if !self.of.values().any(waits) {
            return None;
        }
        let file = self.recordings.file().ok()?;
        self.shared.push(file.clone());
        let most = CaptureOptions { octets: Some(Octets(MOST)), ..CaptureOptions::default() };
        Some(recordings::into(file, most))
    }

    /// Drops the file of a capturing run that did not start.
    pub fn run_started(&mut self, begun: bool) {
        if !begun {
            self.shared.retain(|file| file.exists());
        }
    }

    /// Converts a capture to a file. If `initial` is set, includes only that number of first
    /// frames. Frames captured completely get their FCS.
    ///
    /// # Errors
    /// The port has no capture, or its files cannot be read.
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
        let mut out = CaptureWriter::new(pcapng, port, initial.unwrap_or(u64::MAX))?;
        match &recording.source {
            Source::Interface(recording) => recording.each(|packet| out.copy(packet))?,
            Source::Run { from, to } => {
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
                recordings::each(files, |packet| {
                    let kept =
                        wanted.as_ref().is_none_or(|f| f.keep(packet.data, packet.wire_len) > 0);
                    if packet.interface == number && kept { out.copy(packet) } else { Ok(true) }
                })?;
            }
        }
        Ok(out.octets)
    }
}

impl Recorded {
    fn end(&mut self) {
        self.on = false;
        if let Source::Interface(recording) = &self.source {
            recording.end();
        }
    }
}

impl Drop for Captures {
    fn drop(&mut self) {
        self.stop_all();
    }
}

/// The requested ports with their capture configurations. If a port has several, the last one
/// applies.
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

/// A capture file under construction.
struct CaptureWriter {
    octets: Vec<u8>,
    pcapng: bool,
    left: u64,
    snaplen: u32,
    frame: Vec<u8>,
}

impl CaptureWriter {
    fn new(pcapng: bool, port: &str, left: u64) -> Result<Self, Error> {
        let mut octets = Vec::new();
        let written = match pcapng {
            true => Section::default()
                .write_header(&mut octets)
                .and_then(|()| interface(Some(port.to_owned())).write_description(&mut octets)),
            false => pcap().write_header(&mut octets),
        };
        written.map_err(|error| Error::Environment(error.to_string()))?;
        Ok(Self { octets, pcapng, left, snaplen: u32::MAX, frame: Vec::new() })
    }

    /// Appends a packet. Returns whether there is room for more.
    fn copy(&mut self, packet: &Packet<'_>) -> Result<bool, Error> {
        if self.left == 0 {
            return Ok(false);
        }
        self.frame.clear();
        self.frame.extend_from_slice(packet.data);
        if packet.data.len() == packet.wire_len as usize {
            self.frame.extend(fcs(packet.data).to_le_bytes());
        }
        self.frame.truncate(self.snaplen as usize);
        let wire_len = packet.wire_len.saturating_add(squall_units::FCS_LEN);
        let written = match self.pcapng {
            true => interface(None).write_packet(
                &mut self.octets,
                0,
                packet.time_ns,
                wire_len,
                &self.frame,
                &PacketNotes::default(),
            ),
            false => pcap().write_packet(&mut self.octets, packet.time_ns, wire_len, &self.frame),
        };
        written.map_err(|error| Error::Environment(error.to_string()))?;
        self.left -= 1;
        Ok(self.left > 0)
    }
}

fn pcap() -> PcapFormat {
    // Microsecond timestamps, which every reader in use by clients supports.
    PcapFormat { nanoseconds: false, ..PcapFormat::default() }
}

fn interface(name: Option<String>) -> InterfaceFormat {
    InterfaceFormat { name, ..InterfaceFormat::default() }
}

/// The frame check sequence (IEEE 802.3 §3.2.9), as a number whose octets follow the frame in
/// little-endian order.
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
    fn files_of_runs_are_removed_when_no_capture_has_them() {
        let mut captures = Captures::default();
        for _ in 0..3 {
            let file = captures.recordings.file().unwrap();
            fs::write(&file, "").unwrap();
            captures.shared.push(file);
        }
        let files = captures.shared.clone();
        let left = || files.iter().map(|file| file.exists()).collect::<Vec<_>>();
        let of = |from, to| Recorded { on: false, source: Source::Run { from, to } };
        captures.of.insert("a".into(), of(1, Some(2)));
        captures.of.insert("b".into(), of(2, None));
        captures.remove_unused();
        assert_eq!(left(), [false, true, true]);
        assert_eq!(captures.shared, files[1..]);
        assert!(matches!(captures.of["a"].source, Source::Run { from: 0, to: Some(1) }));
        assert!(matches!(captures.of["b"].source, Source::Run { from: 1, to: None }));
        captures.of.clear();
        captures.remove_unused();
        assert_eq!(left(), [false; 3]);
    }

    #[test]
    fn the_frame_check_sequence_is_that_of_the_standard() {
        // The check value of CRC-32/ISO-HDLC, which covers the digits 1 to 9.
        assert_eq!(fcs(b"123456789"), 0xcbf4_3926);
    }
}
