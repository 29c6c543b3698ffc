//! `pcap:FILE` writes sent frames with their due times; `pcap:FILE,read` receives a file's frames.
//!
//! Writes pcap with nanoseconds, or pcapng if the name FILE ends in `.pcapng`; reads all formats of
//! `squall-pcap`. A file has no clock of its own: times are those of the engine's clock, from the
//! start of the epoch or from `epoch=SECONDS` after it, which is added when writing and subtracted
//! when reading. Simulated faults are keys of [`crate::fault`].

use std::{
    fs::File,
    io::{self, ErrorKind, Write},
    path::Path,
};

use squall_pcap::{
    CaptureError, CaptureReader, Fault, InterfaceFormat, LinkType, PacketNotes, PcapFormat, Section,
};
use squall_units::Cannot;

use crate::{
    Address, BATCH, ETHERNET, Lent, Nanos, Port, PortFacts, RxBatch, RxFrame, RxQueue,
    Segmentation, SendError, Slots, Timestamps, TxBatch, TxQueue,
    fault::Faults,
    output::{self, Permit, Room},
};

pub fn open(address: &Address) -> io::Result<Box<dyn Port>> {
    let mut a = address.clone();
    let read = a.take_flag("read")?.unwrap_or(false);
    let seconds: u32 = a.take("epoch", "seconds since 1970, a whole number")?.unwrap_or(0);
    let faults = Faults::take(&mut a)?;
    a.finish(&[&["read", "epoch"], Faults::KEYS].concat())?;
    let path = Path::new(address.name());
    // The file itself is opened with its queue: reading a port's facts must not truncate it.
    if path.file_name().is_none() {
        return Err(address.error("expected a file name: try pcap:out.pcap").into());
    }
    // Checks the path early: the error must come before the run starts.
    let directory = path.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !read && !directory.is_dir() {
        return Err(missing(Cannot::write(path, &ErrorKind::NotFound.into())));
    }
    if read && !path.exists() {
        return Err(missing(Cannot::read(path, &ErrorKind::NotFound.into())));
    }
    let facts = PortFacts {
        kind: "pcap",
        address: address.to_string(),
        max_frame: 65_535,
        speed_bps: None,
        mac: None,
        tx_queues: u32::from(!read),
        rx_queues: u32::from(read),
        timestamps: if read { Timestamps::Virtual } else { Timestamps::None },
        virtual_time: true,
        batch: BATCH,
        segmentation: Segmentation::Engine,
        link_type: if read { link_of(path) } else { ETHERNET },
        ahead: Nanos::ZERO,
    };
    Ok(faults.wrap(Box::new(PcapPort {
        facts,
        path: path.into(),
        epoch: u64::from(seconds) * Nanos::SECOND.0,
        permit: Permit::default(),
        opened: false,
    })))
}

/// Link type of the file's first packet. An error is reported when frames are read; a pipe is not
/// opened, because it cannot be read twice.
fn link_of(path: &Path) -> u16 {
    if !path.is_file() {
        return ETHERNET;
    }
    let first = CaptureReader::open(path)
        .ok()
        .and_then(|mut reader| reader.next().ok().flatten().map(|p| p.link_type.0));
    first.unwrap_or(ETHERNET)
}

struct PcapPort {
    facts: PortFacts,
    path: Box<Path>,
    epoch: u64,
    permit: Permit,
    opened: bool,
}

impl PcapPort {
    fn mark_opened(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.opened, true) {
            Err(self.facts.already_open(0))
        } else {
            Ok(())
        }
    }
}

impl Port for PcapPort {
    fn facts(&self) -> &PortFacts {
        &self.facts
    }

    fn open_tx(&mut self, queue: u32, max_frame: u32) -> io::Result<Box<dyn TxQueue>> {
        self.facts.check_tx(queue, max_frame)?;
        self.mark_opened()?;
        let writer = Writer::create(&self.path, self.permit)
            .map_err(|error| cannot_write(&self.path, &error))?;
        Ok(Box::new(PcapTx {
            slots: Slots::new(BATCH, max_frame as usize),
            lent: Lent::default(),
            max_frame: self.facts.max_frame,
            epoch: self.epoch,
            writer: Some(writer),
            ends: Vec::with_capacity(BATCH),
            failure: None,
            path: self.path.clone(),
        }))
    }

    fn open_rx(&mut self, queue: u32) -> io::Result<Box<dyn RxQueue>> {
        self.facts.check_rx(queue)?;
        self.mark_opened()?;
        let reader = CaptureReader::open(&self.path).map_err(capture_error)?;
        Ok(Box::new(PcapRx {
            reader,
            path: self.path.clone(),
            epoch: self.epoch,
            link_type: LinkType(self.facts.link_type),
            octets: Vec::new(),
            frames: Vec::new(),
            failure: None,
        }))
    }

    fn permit(&mut self, permit: Permit) {
        self.permit = permit;
    }
}

/// Reports a bad path as an error in the address, like a wrong option.
fn missing(cannot: Cannot) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, cannot)
}

fn cannot_write(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), Cannot::write(path, error))
}

fn capture_error(error: CaptureError) -> io::Error {
    let kind = match &error.fault {
        Fault::Open(error) | Fault::Read(error) => error.kind(),
        _ => ErrorKind::InvalidData,
    };
    io::Error::new(kind, error)
}

/// A file that is written in each call: frames kept longer in a buffer would count as sent, and be
/// lost when the disk is full.
struct Writer {
    file: File,
    format: Format,
    /// Records that were not written yet.
    octets: Vec<u8>,
    /// Length of the file up to the end of its last whole record; `None` if it cannot be truncated
    /// (a pipe).
    len: Option<u64>,
    room: Room,
}

enum Format {
    Pcap(PcapFormat),
    Pcapng(InterfaceFormat),
}

impl Writer {
    fn create(path: &Path, permit: Permit) -> io::Result<Self> {
        let mut file = output::create(path, permit)?;
        let mut head = Vec::new();
        let format = if path.extension().is_some_and(|suffix| suffix == "pcapng") {
            let interface = InterfaceFormat::default();
            Section::default().write_header(&mut head)?;
            interface.write_description(&mut head)?;
            Format::Pcapng(interface)
        } else {
            let format = PcapFormat::default();
            format.write_header(&mut head)?;
            Format::Pcap(format)
        };
        file.write_all(&head)?;
        let len =
            file.metadata().ok().filter(std::fs::Metadata::is_file).map(|_| head.len() as u64);
        let room = Room::of(&file, permit);
        Ok(Self { file, format, octets: Vec::new(), len, room })
    }

    /// Adds a record for [`Self::write_out`]. Returns its end.
    #[inline]
    fn add(&mut self, time_ns: u64, octets: &[u8]) -> io::Result<usize> {
        let (wire_len, out) = (octets.len() as u32, &mut self.octets);
        match &self.format {
            Format::Pcap(format) => format.write_packet(out, time_ns, wire_len, octets)?,
            Format::Pcapng(format) => {
                format.write_packet(out, 0, time_ns, wire_len, octets, &PacketNotes::default())?;
            }
        }
        Ok(self.octets.len())
    }

    /// Writes the records that end at `ends`. Returns the number that are in the file, which is
    /// lower than the total only if there is an error. A partly written record is removed if the
    /// file can be truncated.
    fn write_out(&mut self, ends: &[usize]) -> (usize, Option<io::Error>) {
        let (at, failure) = match self.room.take(self.octets.len(), &self.file) {
            Ok(()) => write_until_error(&mut self.file, &self.octets),
            Err(full) => (0, Some(full)),
        };
        self.octets.clear();
        (self.settle(ends, at, failure.is_some()), failure)
    }

    /// Number of whole records after `at` octets were written; removes a partly written one.
    fn settle(&mut self, ends: &[usize], at: usize, failed: bool) -> usize {
        let written = ends.partition_point(|end| *end <= at);
        let whole = written.checked_sub(1).map_or(0, |last| ends[last]) as u64;
        self.len = self.len.map(|len| len + whole);
        if let Some(len) = self.len.filter(|_| failed && whole < at as u64) {
            // If this fails too, readers report a truncated last record.
            _ = self.file.set_len(len);
        }
        written
    }
}

/// Writes as much as possible. Returns the octets written, and the error if there are fewer.
fn write_until_error(out: &mut impl Write, octets: &[u8]) -> (usize, Option<io::Error>) {
    let mut at = 0;
    while at < octets.len() {
        match out.write(&octets[at..]) {
            Ok(0) => return (at, Some(ErrorKind::WriteZero.into())),
            Ok(n) => at += n,
            // A signal is not an error of the file: tries again.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return (at, Some(error)),
        }
    }
    (at, None)
}

struct PcapTx {
    slots: Slots,
    lent: Lent,
    max_frame: u32,
    epoch: u64,
    /// `None` after the end or a failure: a capture cannot continue after a partly written record.
    writer: Option<Writer>,
    /// Ends of the records written in this call.
    ends: Vec<usize>,
    /// Reported by the next call.
    failure: Option<io::Error>,
    path: Box<Path>,
}

impl TxQueue for PcapTx {
    fn lend(&mut self, want: usize) -> TxBatch<'_> {
        let n = want.min(BATCH);
        self.lent.lend(0, n);
        self.slots.batch(0, n)
    }

    fn send(&mut self, n: usize) -> Result<usize, SendError> {
        let slots = self.lent.range(n);
        if let Some(error) = self.failure.take() {
            return Err(error.into());
        }
        let Some(writer) = &mut self.writer else {
            let gone = io::Error::other("the file was closed, after an error or at its end");
            return Err(cannot_write(&self.path, &gone).into());
        };
        self.ends.clear();
        let (mut too_long, mut refused) = (false, None);
        for slot in slots {
            let (octets, meta) = self.slots.frame(slot);
            too_long = meta.len > self.max_frame;
            if too_long {
                break;
            }
            match writer.add(self.epoch + meta.due.0, octets) {
                Ok(end) => self.ends.push(end),
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        if too_long && self.ends.is_empty() {
            self.lent.pass(1);
            return Err(SendError::Frame("too_long"));
        }
        let (taken, unwritten) = writer.write_out(&self.ends);
        self.lent.pass(taken);
        if let Some(error) = unwritten.or(refused) {
            self.writer = None;
            let error = cannot_write(&self.path, &error);
            if taken == 0 {
                return Err(error.into());
            }
            // The next call reports the error, because this one reports the frames that were
            // written.
            self.failure = Some(error);
        }
        Ok(taken)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.writer = None;
        self.failure.take().map_or(Ok(()), Err)
    }
}

struct PcapRx {
    reader: CaptureReader,
    path: Box<Path>,
    epoch: u64,
    /// The link type that the port's facts announce: all packets must have it.
    link_type: LinkType,
    octets: Vec<u8>,
    frames: Vec<RxFrame>,
    /// Reported after the frames before it.
    failure: Option<io::Error>,
}

impl RxQueue for PcapRx {
    fn receive(&mut self) -> io::Result<RxBatch<'_>> {
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        self.octets.clear();
        self.frames.clear();
        while self.frames.len() < BATCH && self.failure.is_none() {
            match self.reader.next() {
                Ok(None) => break,
                Ok(Some(packet)) if packet.link_type != self.link_type => {
                    let text = format!(
                        "packet {} has link type {}, earlier ones have {}; a port has one link \
                         type: try splitting the file, as with tshark -Y \
                         'frame.interface_id == 0' -w",
                        packet.number, packet.link_type, self.link_type
                    );
                    let cannot = Cannot::new(format!("read {}", self.path.display()), text);
                    self.failure = Some(io::Error::new(ErrorKind::InvalidData, cannot));
                }
                Ok(Some(packet)) => {
                    let (offset, len) = (self.octets.len(), packet.data.len() as u32);
                    let time = Nanos(packet.time_ns.saturating_sub(self.epoch));
                    self.octets.extend_from_slice(packet.data);
                    self.frames.push(RxFrame {
                        offset,
                        len,
                        wire_len: packet.wire_len,
                        time,
                        ..RxFrame::default()
                    });
                }
                Err(error) => self.failure = Some(capture_error(error)),
            }
        }
        match self.failure.take_if(|_| self.frames.is_empty()) {
            Some(error) => Err(error),
            None => Ok(RxBatch { base: &self.octets, frames: &self.frames }),
        }
    }
}

#[cfg(test)]
mod tests {
    use squall_pcap::PcapngWriter;

    use super::*;

    fn port(address: &str) -> io::Result<Box<dyn Port>> {
        open(&address.parse()?)
    }

    fn send_one(tx: &mut dyn TxQueue, len: usize, due: Nanos) -> Result<usize, SendError> {
        tx.lend(1).frame(0, len, due).fill(0x55);
        tx.send(1)
    }

    #[test]
    fn a_file_holds_the_due_instants_from_its_epoch_on() {
        let path =
            std::env::temp_dir().join(format!("squall-port-epoch-{}.pcap", std::process::id()));
        let address = format!("pcap:{},epoch=1700000000", path.display());
        let mut tx = port(&address).unwrap().open_tx(0, 60).unwrap();
        assert_eq!(send_one(&mut *tx, 60, Nanos(1_500_000_007)).unwrap(), 1);
        tx.finish().unwrap();
        let packet_time = CaptureReader::open(&path).unwrap().next().unwrap().unwrap().time_ns;
        let mut rx = port(&format!("{address},read")).unwrap().open_rx(0).unwrap();
        let time = rx.receive().unwrap().frames[0].time;
        std::fs::remove_file(&path).unwrap();
        assert_eq!((packet_time, time), (1_700_000_001_500_000_007, Nanos(1_500_000_007)));
    }

    #[test]
    fn a_file_has_a_link_type_and_a_packet_of_another_is_a_fault() {
        let path =
            std::env::temp_dir().join(format!("squall-port-links-{}.pcapng", std::process::id()));
        let links = [LinkType::RAW, LinkType::RAW, LinkType::ETHERNET];
        let interfaces =
            links.map(|link_type| InterfaceFormat { link_type, ..InterfaceFormat::default() });
        let mut writer = PcapngWriter::create(&path, interfaces.to_vec()).unwrap();
        for interface in 0..3 {
            writer.write(interface, 1, 40, &[0x45; 40]).unwrap();
        }
        writer.finish().unwrap();
        let mut port = port(&format!("pcap:{},read", path.display())).unwrap();
        assert_eq!(port.facts().link_type, LinkType::RAW.0);
        let mut rx = port.open_rx(0).unwrap();
        assert_eq!(rx.receive().unwrap().frames.len(), 2);
        let error = rx.receive().err().expect("a port has one link type").to_string();
        std::fs::remove_file(&path).unwrap();
        assert!(
            error.contains("packet 3 has link type Ethernet, earlier ones have raw IP"),
            "{error}"
        );
    }

    #[test]
    fn a_full_disk_is_reported_with_the_name_of_the_file() {
        let error = port("pcap:/dev/full")
            .unwrap()
            .open_tx(0, 1514)
            .err()
            .expect("not even the header fits");
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        assert!(error.to_string().contains("/dev/full"), "{error}");
    }

    /// A disk that takes a limited number of octets per write, until it is full.
    struct Disk {
        free: usize,
        at_once: usize,
    }

    impl Write for Disk {
        fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
            let taken = octets.len().min(self.at_once).min(self.free);
            self.free -= taken;
            if taken == 0 { Err(ErrorKind::StorageFull.into()) } else { Ok(taken) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_disk_takes_as_many_octets_as_it_has_room_for() {
        for free in [0, 1, 99, 100, 101] {
            for at_once in [1, 64, 1000] {
                let (written, failure) = write_until_error(&mut Disk { free, at_once }, &[0; 100]);
                assert_eq!((written, failure.is_some()), (free.min(100), free < 100));
            }
        }
    }

    #[test]
    fn a_record_that_was_cut_is_removed_and_not_counted() {
        let path =
            std::env::temp_dir().join(format!("squall-port-full-{}.pcap", std::process::id()));
        let mut writer = Writer::create(&path, Permit::default()).unwrap();
        let whole = writer.add(1, &[0x55; 100]).unwrap();
        writer.add(1, &[0x55; 100]).unwrap();
        // The disk becomes full within the second record.
        writer.octets.truncate(whole + 50);
        let (at, _) = write_until_error(&mut writer.file, &writer.octets);
        assert_eq!(writer.settle(&[whole, 2 * whole], at, true), 1);
        let mut reader = CaptureReader::open(&path).unwrap();
        assert_eq!(reader.next().unwrap().unwrap().data, [0x55; 100]);
        assert!(reader.next().unwrap().is_none(), "nothing is left of the second");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn the_frames_before_a_fault_are_delivered_and_then_the_fault() {
        let path =
            std::env::temp_dir().join(format!("squall-port-cut-{}.pcap", std::process::id()));
        let mut tx = port(&format!("pcap:{}", path.display())).unwrap().open_tx(0, 60).unwrap();
        for i in 0..3 {
            send_one(&mut *tx, 60, Nanos(i)).unwrap();
        }
        tx.finish().unwrap();
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        let mut rx = port(&format!("pcap:{},read", path.display())).unwrap().open_rx(0).unwrap();
        assert_eq!(rx.receive().unwrap().frames.len(), 2);
        let error = rx.receive().err().expect("the cut is told");
        std::fs::remove_file(&path).unwrap();
        assert!(error.to_string().contains("squall-port-cut"), "{error}");
    }
}
