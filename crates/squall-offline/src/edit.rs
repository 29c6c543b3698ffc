//! Edits captures ([`edit`]): reads one or more, edits packet by packet, and writes one or more.
//!
//! Captures are streamed: memory does not grow with the size of the files. It grows with the number
//! of flows if flows are distinguished.

use std::{
    collections::VecDeque,
    fs::{File, OpenOptions},
    io::{self, BufWriter, Read, Write},
    path::{Path, PathBuf},
    time::Instant,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use squall_edit::{Counts, Editor, Edits, Meta, Operation, Reason};
use squall_measure::flow::{FlowTable, Headers, Link};
use squall_pcap::{
    CaptureError, CaptureReader, Direction, Interface, InterfaceFormat, LinkType, PacketNotes,
    PcapFormat, Section,
};
use squall_port::output::{self, Permit, Room, Space};
use squall_replay::Cache;
use squall_report::info::FileFault;
use squall_units::Cannot;

pub use squall_edit::{self as edits, parse_shift, parse_vlan_mode, parse_when, set};

use crate::{Error, prep};

/// Version of [`Edited`].
pub const SCHEMA: &str = "squall-edit/1";

/// Configuration of an edit.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    pub edits: Edits,
    /// Merge several files in time order; if false, they are concatenated.
    pub merge: bool,
    pub split: Option<Split>,
    /// A tcpprep cache, which has the sender of each packet. Packets that it leaves out are not
    /// edited.
    pub cache: Option<PathBuf>,
    /// Permissions for writing the files.
    pub permit: Permit,
}

/// When to start a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// After this many packets.
    Count(u64),
    /// After this many nanoseconds, by the timestamps of the packets.
    Time(u64),
    /// Give each conversation (addresses, protocol and ports, both directions) a file of its own.
    Flows,
}

/// Number of packets between two calls of `go_on`.
const ASK_EACH: u64 = 4096;
/// Maximum number of conversations with a file of their own. Packets of further conversations go to
/// the last file.
const MAX_FLOWS: usize = 100_000;
/// Maximum overhead of a record in bytes, without comments.
const MAX_AROUND: u64 = 64;
/// Maximum number of open files, below the limits of common systems.
const MAX_OPEN: usize = 200;

/// Results of an edit. Octets are captured ones, without FCS.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Edited {
    /// `squall-edit/1`.
    pub schema: String,
    /// The command line, or `python`.
    pub command: String,
    /// Version of the program that edited them.
    pub squall_version: String,
    pub inputs: Vec<Input>,
    pub outputs: Vec<Output>,
    /// Files written beyond those in `outputs`, which has the first 1000.
    pub more_outputs: u64,
    /// Packets in all files.
    pub packets_read: u64,
    pub packets_written: u64,
    /// Packets that were written with other octets, length or time.
    pub packets_changed: u64,
    /// Packets that were read and not written.
    pub packets_dropped: u64,
    /// Octets captured, without FCS.
    pub octets_read: u64,
    pub octets_written: u64,
    pub operations: Vec<Done>,
    /// Edits that could not be applied to packets.
    pub not_done: Vec<NotDone>,
    /// The user stopped the edit; packets read before are written.
    pub stopped: bool,
    /// Reason why the edit ended before the end of its inputs: the disk is almost full.
    pub error: Option<String>,
    pub elapsed_s: f64,
    pub notes: Vec<String>,
}

/// A file that was read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "EditedInput")]
pub struct Input {
    /// `-` is the standard input.
    pub path: String,
    pub packets: u64,
    /// Fault that ended reading before the end of the file; all packets before it are written.
    pub fault: Option<FileFault>,
}

/// A file that was written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "EditedOutput")]
pub struct Output {
    pub path: String,
    pub packets: u64,
}

/// Packets that an operation changed, and dropped.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "EditDone")]
pub struct Done {
    /// `ttl`, `portmap` ...; `macs` and `addresses` cover several options.
    pub operation: String,
    pub changed: u64,
    pub dropped: u64,
}

/// An edit that could not be applied, and to how many packets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "EditNotDone")]
pub struct NotDone {
    pub reason: String,
    pub packets: u64,
}

/// The JSON schema of [`Edited`].
pub fn schema() -> String {
    let schema = schemars::schema_for!(Edited);
    let mut text = serde_json::to_string_pretty(&schema).expect("a schema is plain JSON");
    text.push('\n');
    text
}

impl Edited {
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("figures are plain JSON")
    }
}

/// Progress of an edit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    pub packets: u64,
    /// Number so far over all files, in decompressed octets.
    pub octets: u64,
    /// Number over all files; `None` if one is a pipe or compressed.
    pub all_octets: Option<u64>,
}

/// Edits `inputs` and writes `out`; `-` is standard input or output. Calls `go_on` every few
/// thousand packets; if it returns false, the edit stops, and the packets read until then are
/// written.
///
/// If a file is damaged, the packets before the damage are written, and the result has the error.
///
/// # Errors
/// If edits contradict each other or the packets' link type, or a file cannot be opened or written.
pub fn edit(
    inputs: &[PathBuf],
    out: &Path,
    settings: &Settings,
    mut go_on: impl FnMut(&Progress) -> bool,
) -> Result<Edited, Error> {
    let began = Instant::now();
    let cache = settings.cache.as_deref().map(prep::read).transpose()?;
    let mut sources: Vec<Source> =
        inputs.iter().map(|path| Source::open(path)).collect::<Result<_, _>>()?;
    let all_octets: Option<u64> = sources.iter().map(|source| source.octets).sum();
    let format = Format::of(out, &sources, settings)?;
    for source in &mut sources {
        source.refuse_as_output(out)?;
    }
    let permit = fitting(out, settings, all_octets)?;
    let mut run = Run {
        edits: &settings.edits,
        cache,
        editors: Vec::new(),
        origin_ns: None,
        sink: Sink::new(
            out,
            format,
            settings.split,
            sources.iter().filter_map(|source| source.id).collect(),
            permit,
        ),
        read: Counted::default(),
    };
    // Report contradictory options before a file is created.
    let first_type =
        sources.first().and_then(|source| Some(source.reader.interfaces().first()?.link_type.0));
    run.editor(first_type.unwrap_or(LinkType::ETHERNET.0))?;
    let mut ask = |read: Counted, offset: u64| {
        go_on(&Progress { packets: read.packets, octets: offset, all_octets })
    };
    let pass = if settings.merge { merge } else { chain };
    let passed = pass(&mut sources, &mut run, &mut ask);
    let (stopped, mut edited) = passed
        .and_then(|stopped| Ok((stopped, run.finish()?)))
        .inspect_err(|_| run.sink.discard())?;
    edited.inputs = sources.into_iter().map(|source| source.input).collect();
    edited.stopped = stopped;
    edited.elapsed_s = began.elapsed().as_secs_f64();
    Ok(edited)
}

/// Permission to write `out`. The output is expected to be as large as the input (`all_octets`),
/// unless packets are dropped or shortened.
fn fitting(out: &Path, settings: &Settings, all_octets: Option<u64>) -> Result<Permit, Error> {
    let (permit, edits) = (settings.permit, &settings.edits);
    if out == Path::new("-") {
        return Ok(Permit::FORCE);
    }
    if settings.split.is_none() {
        output::check(out, permit).map_err(|error| Cannot::write(out, &error))?;
    }
    let less = edits.packets.is_some()
        || edits.from.is_some()
        || edits.to.is_some()
        || edits.snaplen.is_some()
        || edits.truncate.is_some();
    let Some(octets) = all_octets.filter(|_| !less && !permit.fill) else { return Ok(permit) };
    // If the directory is missing, the error is reported when the file is created.
    let Ok(Some(space)) = Space::at(out) else { return Ok(permit) };
    if octets > space.free / 2 {
        return Err(Error::Usage(format!(
            "about {} would be written to {}, more than half of the {} that are free on its \
             disk\n  try another disk, or --force",
            output::size(octets),
            out.display(),
            output::size(space.free)
        )));
    }
    Ok(Permit { fill: true, ..permit })
}

/// Reads one file after the other. Returns whether the edit was stopped.
fn chain(
    sources: &mut [Source],
    run: &mut Run<'_>,
    ask: &mut dyn FnMut(Counted, u64) -> bool,
) -> Result<bool, Error> {
    let (mut before, mut packet) = (0, Held::default());
    for (number, source) in sources.iter_mut().enumerate() {
        while source.next_into(&mut packet) {
            source.describe(number, &mut run.sink);
            run.packet(number, &packet)?;
            if run.read.packets.is_multiple_of(ASK_EACH)
                && !ask(run.read, before + source.reader.offset())
            {
                return Ok(true);
            }
            if run.is_over() {
                return Ok(false);
            }
        }
        before += source.reader.offset();
    }
    Ok(false)
}

/// Writes packets in time order over all files. At equal times, the file that was named first
/// precedes. Returns whether the edit was stopped.
fn merge(
    sources: &mut [Source],
    run: &mut Run<'_>,
    ask: &mut dyn FnMut(Counted, u64) -> bool,
) -> Result<bool, Error> {
    let mut held: Vec<Option<Held>> = Vec::new();
    for source in sources.iter_mut() {
        let mut place = Held::default();
        held.push(source.next_into(&mut place).then_some(place));
    }
    loop {
        let earliest = (0..held.len()).filter_map(|i| Some((held[i].as_ref()?.time_ns, i))).min();
        let Some((_, number)) = earliest else { return Ok(false) };
        let mut packet = held[number].take().expect("it was the earliest");
        sources[number].describe(number, &mut run.sink);
        run.packet(number, &packet)?;
        if sources[number].next_into(&mut packet) {
            held[number] = Some(packet);
        }
        if run.read.packets.is_multiple_of(ASK_EACH)
            && !ask(run.read, sources.iter().map(|source| source.reader.offset()).sum())
        {
            return Ok(true);
        }
        if run.is_over() {
            return Ok(false);
        }
    }
}

fn fault_of(error: &CaptureError) -> FileFault {
    FileFault { offset: error.offset, text: error.fault.to_string() }
}

/// Identifies a file independently of its name: device and inode.
type Id = (u64, u64);

fn id_of(metadata: &std::fs::Metadata) -> Id {
    use std::os::unix::fs::MetadataExt;
    (metadata.dev(), metadata.ino())
}

/// An input.
struct Source {
    reader: CaptureReader<Box<dyn Read>>,
    input: Input,
    id: Option<Id>,
    /// Size of the file, if it is not compressed.
    octets: Option<u64>,
    /// Number of interfaces that are already described in the output.
    described: usize,
}

/// The next packet of a file, held until its time comes.
#[derive(Default)]
struct Held {
    time_ns: u64,
    /// Whether the packet has a timestamp in the capture.
    timed: bool,
    wire_len: u32,
    link_type: u16,
    interface: u32,
    direction: Option<Direction>,
    dropped: u64,
    comment: Option<String>,
    data: Vec<u8>,
}

/// Source of a packet, and its link type after the edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct From {
    source: usize,
    interface: u32,
    link_type: u16,
}

/// Attributes of a packet that are written in addition to its octets and time.
struct Kept<'a> {
    /// `false` if the packet had no timestamp, and was given that of the preceding packet.
    timed: bool,
    notes: PacketNotes<'a>,
}

impl Source {
    fn open(path: &Path) -> Result<Self, Error> {
        let cannot = |error: io::Error| Cannot::read(path, &error);
        let (read, metadata): (Box<dyn Read>, _) = if path == Path::new("-") {
            (Box::new(io::stdin()), None)
        } else {
            let file = File::open(path).map_err(cannot)?;
            let metadata = file.metadata().map_err(cannot)?;
            (Box::new(file), Some(metadata))
        };
        let reader = CaptureReader::from_read(read)
            .map_err(|error| CaptureError { path: Some(path.into()), ..error })?;
        let metadata = metadata.filter(std::fs::Metadata::is_file);
        let octets = metadata
            .as_ref()
            .filter(|_| reader.compression().is_none())
            .map(std::fs::Metadata::len);
        Ok(Self {
            reader,
            input: Input { path: path.display().to_string(), ..Input::default() },
            id: metadata.as_ref().map(id_of),
            octets,
            described: 0,
        })
    }

    fn refuse_as_output(&self, out: &Path) -> Result<(), Error> {
        if out != Path::new("-")
            && self.id.is_some()
            && std::fs::metadata(out).ok().map(|found| id_of(&found)) == self.id
        {
            return Err(same_file(out));
        }
        Ok(())
    }

    /// Copies the descriptions of new interfaces.
    fn describe(&mut self, number: usize, sink: &mut Sink) {
        let interfaces = self.reader.interfaces();
        for (index, interface) in interfaces.iter().enumerate().skip(self.described) {
            sink.describe(number, index as u32, interface);
        }
        self.described = interfaces.len();
    }

    /// Reads the next packet. Returns false at the end of the file and on an error.
    fn next_into(&mut self, held: &mut Held) -> bool {
        match self.reader.next() {
            Ok(Some(packet)) => {
                held.data.clear();
                held.data.extend_from_slice(packet.data);
                (held.time_ns, held.wire_len) = (packet.time_ns, packet.wire_len);
                held.timed = packet.timed;
                (held.link_type, held.interface) = (packet.link_type.0, packet.interface);
                held.direction = packet.options.direction();
                held.dropped = packet.options.dropped().unwrap_or(0);
                held.comment = packet.options.comments().next().map(Into::into);
                self.input.packets += 1;
                true
            }
            Ok(None) => false,
            Err(error) => {
                self.input.fault = Some(fault_of(&error));
                false
            }
        }
    }
}

fn same_file(out: &Path) -> Error {
    Error::Usage(format!(
        "{} is both input and output: it would be lost\n  try another name, and rename it \
         afterward",
        out.display()
    ))
}

#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    packets: u64,
    octets: u64,
}

/// State between reading and writing.
struct Run<'a> {
    edits: &'a Edits,
    cache: Option<Cache>,
    /// Editors by link type of the input.
    editors: Vec<(u16, Editor)>,
    origin_ns: Option<u64>,
    sink: Sink,
    read: Counted,
}

impl Run<'_> {
    fn packet(&mut self, source: usize, packet: &Held) -> Result<(), Error> {
        self.read.packets += 1;
        self.read.octets += packet.data.len() as u64;
        let Held { time_ns, wire_len, .. } = *packet;
        let number = self.read.packets;
        let side = match self.cache.as_ref().map(|cache| cache.side(number).ok_or(cache.len())) {
            None => None,
            Some(Ok(side)) => Some(side.sender()),
            Some(Err(packets)) => {
                return Err(Error::Usage(format!(
                    "packet {number}: the cache belongs to a capture of {packets} packets\n  try \
                     squall prep with this capture"
                )));
            }
        };
        let meta = Meta { time_ns, wire_len, number, side: side.flatten() };
        self.origin_ns.get_or_insert(time_ns);
        let index = self.editor(packet.link_type)?;
        let (editor, sink) = (&mut self.editors[index].1, &mut self.sink);
        let from = From { source, interface: packet.interface, link_type: editor.link_type() };
        let notes = PacketNotes {
            direction: packet.direction,
            dropped: packet.dropped,
            comment: packet.comment.as_deref(),
        };
        let kept = Kept { timed: packet.timed, notes };
        if side == Some(None) && from.link_type == packet.link_type {
            return sink.write(from, &packet.data, &meta, &kept);
        }
        let mut failed = None;
        editor.edit(&packet.data, meta, &mut |octets, meta| {
            if failed.is_none() {
                failed = sink.write(from, octets, &meta, &kept).err();
            }
        });
        failed.map_or(Ok(()), Err)
    }

    /// Index of the editor for a link type.
    fn editor(&mut self, link_type: u16) -> Result<usize, Error> {
        if let Some(index) = self.editors.iter().position(|(known, _)| *known == link_type) {
            if let Some(origin_ns) = self.origin_ns {
                self.editors[index].1.set_origin(origin_ns);
            }
            return Ok(index);
        }
        let mut editor =
            Editor::new(self.edits, link_type).map_err(|error| Error::Usage(error.to_string()))?;
        if let Some(origin_ns) = self.origin_ns {
            editor.set_origin(origin_ns);
        }
        self.editors.push((link_type, editor));
        Ok(self.editors.len() - 1)
    }

    /// Whether no further packet is selected or can be written.
    fn is_over(&self) -> bool {
        self.sink.full.is_some()
            || self
                .edits
                .packets
                .as_ref()
                .is_some_and(|packets| self.read.packets >= packets.last())
    }

    fn finish(&mut self) -> Result<Edited, Error> {
        let mut counts = Counts::default();
        self.editors.iter().for_each(|(_, editor)| counts.merge(editor.counts()));
        let link_type =
            self.editors.first().map_or(LinkType::ETHERNET.0, |(_, editor)| editor.link_type());
        let mut edited = self.sink.finish(link_type)?;
        edited.schema = SCHEMA.into();
        edited.squall_version = env!("CARGO_PKG_VERSION").into();
        edited.packets_read = self.read.packets;
        edited.octets_read = self.read.octets;
        edited.packets_changed = counts.changed;
        edited.packets_dropped = counts.dropped;
        let done = Operation::ALL.iter().map(|&operation| Done {
            operation: operation.name().into(),
            changed: counts.changed_by(operation),
            dropped: counts.dropped_by(operation),
        });
        edited.operations = done.filter(|done| done.changed + done.dropped > 0).collect();
        let not_done = Reason::ALL.iter().map(|&reason| NotDone {
            reason: reason.text().into(),
            packets: counts.refused(reason),
        });
        edited.not_done = not_done.filter(|not_done| not_done.packets > 0).collect();
        Ok(edited)
    }
}

/// Format of the output files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Pcapng,
    Pcap { nanoseconds: bool },
}

impl Format {
    /// The format that the name's suffix implies. If there is no known suffix, that of the first
    /// input.
    fn of(out: &Path, sources: &[Source], settings: &Settings) -> Result<Self, Error> {
        let first = sources.first().map_or("pcap", |source| source.reader.format());
        let end = out.extension().map(|end| end.to_string_lossy().to_ascii_lowercase());
        let format = match end.as_deref() {
            Some("pcapng" | "ntar") => "pcapng",
            Some("pcap" | "cap" | "dmp") => "pcap",
            Some(packed @ ("gz" | "zst" | "lz4" | "xz" | "bz2")) => {
                let what = format!("write {}", out.display());
                let cannot = Cannot::new(what, format!(".{packed} is not supported"))
                    .with_hint("OUT.pcapng, and compress it afterward");
                return Err(Error::Usage(cannot.to_string()));
            }
            _ => first,
        };
        if format == "pcapng" {
            return Ok(Self::Pcapng);
        }
        // Microseconds are sufficient if the input has no finer resolution, and its times are not
        // changed.
        let coarse = |source: &Source| {
            source.reader.format() == "pcap" && source.reader.interfaces().iter().all(is_coarse)
        };
        let retimed =
            settings.edits.time_scale.is_some() || settings.edits.time_shift_ns % 1000 != 0;
        Ok(Self::Pcap { nanoseconds: retimed || !sources.iter().all(coarse) })
    }
}

fn is_coarse(interface: &Interface) -> bool {
    interface.resolution.0 <= 6
}

/// Output files.
struct Sink {
    out: PathBuf,
    format: Format,
    split: Option<Split>,
    inputs: Vec<Id>,
    permit: Permit,
    room: Room,
    /// The reason why nothing more can be written.
    full: Option<String>,
    files: Vec<OutFile>,
    /// Numbers of the open files, in order of use, the most recent last.
    open: VecDeque<usize>,
    current: usize,
    /// Start time of the current file.
    began_ns: Option<u64>,
    flows: FlowTable<u32>,
    interfaces: Vec<((usize, u32), InterfaceFormat)>,
    packets: u64,
    octets: u64,
}

struct OutFile {
    path: PathBuf,
    write: Option<BufWriter<Box<dyn Write>>>,
    /// For a pcap, the link type; `None` before the first packet.
    link_type: Option<u16>,
    /// For a pcapng, the described interfaces.
    interfaces: Vec<From>,
    packets: u64,
}

impl Sink {
    fn new(
        out: &Path,
        format: Format,
        split: Option<Split>,
        inputs: Vec<Id>,
        permit: Permit,
    ) -> Self {
        Self {
            out: out.into(),
            format,
            split,
            inputs,
            permit,
            room: Room::at(out, permit),
            full: None,
            files: Vec::new(),
            open: VecDeque::new(),
            current: 0,
            began_ns: None,
            flows: FlowTable::new(MAX_FLOWS, None),
            interfaces: Vec::new(),
            packets: 0,
            octets: 0,
        }
    }

    /// Stores the description of an interface, for pcapng output.
    fn describe(&mut self, source: usize, index: u32, interface: &Interface) {
        let format = InterfaceFormat {
            name: interface.name.clone(),
            description: interface.description.clone(),
            filter: interface.filter.clone(),
            os: interface.os.clone(),
            hardware: interface.hardware.clone(),
            comment: interface.comment.clone(),
            mac: interface.mac,
            speed_bps: interface.speed_bps,
            ..InterfaceFormat::default()
        };
        self.interfaces.push(((source, index), format));
    }

    fn write(
        &mut self,
        from: From,
        octets: &[u8],
        meta: &Meta,
        kept: &Kept<'_>,
    ) -> Result<(), Error> {
        // Check this before any part of the record is written, so the file ends with a complete
        // record.
        let len = octets.len() as u64 + MAX_AROUND;
        if let Err(full) = self.room.take_where(len, || Space::at(&self.out)) {
            self.full.get_or_insert_with(|| Cannot::write(&self.out, &full).to_string());
            return Ok(());
        }
        let number = self.file_of(from.link_type, octets, meta)?;
        self.ready(number, from.link_type)?;
        let file = &mut self.files[number];
        let write = file.write.as_mut().expect("it is open");
        let written = match self.format {
            Format::Pcap { nanoseconds } => {
                let link_type = file.link_type.unwrap_or(from.link_type);
                if link_type != from.link_type {
                    return Err(Error::Usage(format!(
                        "{}: a pcap file has one link type, and these packets have two: {} and \
                         {}\n  try a name that ends in .pcapng, or --dlt enet",
                        file.path.display(),
                        LinkType(link_type),
                        LinkType(from.link_type)
                    )));
                }
                let format = PcapFormat {
                    link_type: LinkType(link_type),
                    nanoseconds,
                    ..PcapFormat::default()
                };
                format.write_packet(write, meta.time_ns, meta.wire_len, octets)
            }
            Format::Pcapng => {
                let described = match file.interfaces.iter().position(|known| *known == from) {
                    Some(index) => Ok(index),
                    None => {
                        let known = self
                            .interfaces
                            .iter()
                            .find(|(known, _)| *known == (from.source, from.interface));
                        let format = known.map(|(_, format)| format.clone()).unwrap_or_default();
                        file.interfaces.push(from);
                        let format = InterfaceFormat {
                            link_type: LinkType(from.link_type),
                            snaplen: 0,
                            ..format
                        };
                        format.write_description(write).map(|()| file.interfaces.len() - 1)
                    }
                };
                // The snap length is the same for all interfaces: whole packets.
                let format = InterfaceFormat { snaplen: 0, ..InterfaceFormat::default() };
                // A block type without timestamps has no captured length either, and belongs to the
                // first interface.
                let is_simple = |index: usize| {
                    !kept.timed && index == 0 && octets.len() == meta.wire_len as usize
                };
                described.and_then(|index| match is_simple(index) {
                    true => InterfaceFormat::write_simple_packet(write, octets),
                    false => format.write_packet(
                        write,
                        index as u32,
                        meta.time_ns,
                        meta.wire_len,
                        octets,
                        &kept.notes,
                    ),
                })
            }
        };
        written.map_err(|error| Cannot::write(&file.path, &error))?;
        file.packets += 1;
        self.packets += 1;
        self.octets += octets.len() as u64;
        Ok(())
    }

    /// The number of the file into which a packet goes.
    fn file_of(&mut self, link_type: u16, octets: &[u8], meta: &Meta) -> Result<usize, Error> {
        match self.split {
            Some(Split::Count(count))
                if self.files.get(self.current).is_some_and(|file| file.packets >= count) =>
            {
                self.close(self.current)?;
                self.current += 1;
            }
            None | Some(Split::Count(_)) => {}
            Some(Split::Time(step)) => {
                let began = *self.began_ns.get_or_insert(meta.time_ns);
                if meta.time_ns >= began.saturating_add(step) {
                    self.began_ns = Some(began + (meta.time_ns - began) / step * step);
                    self.close(self.current)?;
                    self.current = self.files.len();
                }
            }
            Some(Split::Flows) => {
                let key = Headers::parse(octets, Link::from(link_type)).key.canonical().0;
                let next = self.flows.len() as u32;
                let number = self.flows.seen(&key, meta.time_ns).map(|(number, seen)| {
                    if seen == squall_measure::flow::Seen::New {
                        *number = next;
                    }
                    *number
                });
                return Ok(number.unwrap_or(MAX_FLOWS as u32) as usize);
            }
        }
        Ok(self.current)
    }

    /// Opens the file if it is not open.
    fn ready(&mut self, number: usize, link_type: u16) -> Result<(), Error> {
        while self.files.len() <= number {
            let path = self.path(self.files.len());
            self.files.push(OutFile {
                path,
                write: None,
                link_type: None,
                interfaces: Vec::new(),
                packets: 0,
            });
        }
        if self.files[number].write.is_some() {
            return Ok(());
        }
        if self.open.len() >= MAX_OPEN
            && let Some(oldest) = self.open.pop_front()
        {
            self.close(oldest)?;
        }
        let flows = self.split == Some(Split::Flows);
        let file = &mut self.files[number];
        let path = &file.path;
        let again = file.link_type.is_some();
        let write: Box<dyn Write> = if file.path == Path::new("-") {
            Box::new(io::stdout())
        } else {
            if std::fs::metadata(&file.path).is_ok_and(|found| self.inputs.contains(&id_of(&found)))
            {
                return Err(same_file(&file.path));
            }
            let opened = if again {
                OpenOptions::new().append(true).open(&file.path)
            } else {
                output::create(&file.path, self.permit)
            };
            Box::new(opened.map_err(|error| Cannot::write(path, &error))?)
        };
        file.link_type.get_or_insert(link_type);
        let mut write = BufWriter::with_capacity(if flows { 16 << 10 } else { 256 << 10 }, write);
        if !again {
            let begun = match self.format {
                Format::Pcapng => Section {
                    application: Some(concat!("squall ", env!("CARGO_PKG_VERSION")).into()),
                    ..Section::default()
                }
                .write_header(&mut write),
                Format::Pcap { nanoseconds } => {
                    let format = PcapFormat {
                        link_type: LinkType(link_type),
                        nanoseconds,
                        ..PcapFormat::default()
                    };
                    format.write_header(&mut write)
                }
            };
            begun.map_err(|error| Cannot::write(path, &error))?;
        }
        file.write = Some(write);
        self.open.push_back(number);
        Ok(())
    }

    /// The name of file number `number`: `OUT-00001.pcap` ... if there are several files.
    fn path(&self, number: usize) -> PathBuf {
        if self.split.is_none() {
            return self.out.clone();
        }
        let stem = self
            .out
            .file_stem()
            .map(|stem| stem.to_string_lossy().into_owned())
            .unwrap_or_default();
        let end = self
            .out
            .extension()
            .map(|end| format!(".{}", end.to_string_lossy()))
            .unwrap_or_default();
        self.out.with_file_name(format!("{stem}-{:05}{end}", number + 1))
    }

    fn close(&mut self, number: usize) -> Result<(), Error> {
        self.open.retain(|open| *open != number);
        let Some(file) = self.files.get_mut(number) else { return Ok(()) };
        match file.write.take().map(|mut write| write.flush()) {
            Some(Err(error)) => Err(Cannot::write(&file.path, &error).into()),
            _ => Ok(()),
        }
    }

    /// Removes the incomplete output after an error. Keeps anything that is not a regular file, and
    /// files that existed before.
    fn discard(&self) {
        for file in self.files.iter().filter(|file| file.link_type.is_some()) {
            let written = std::fs::canonicalize(&file.path);
            if let Ok(path) = written.as_deref()
                && path.is_file()
            {
                // Ignore this error, because the original one is reported.
                let _ = std::fs::remove_file(path);
            }
        }
    }

    /// Finishes the output. If there were no packets, writes an empty capture of `link_type`.
    fn finish(&mut self, link_type: u16) -> Result<Edited, Error> {
        if self.files.is_empty() {
            self.ready(0, link_type)?;
        }
        while let Some(&number) = self.open.front() {
            self.close(number)?;
        }
        const SHOWN: usize = 1000;
        let output = |file: &OutFile| Output {
            path: file.path.display().to_string(),
            packets: file.packets,
        };
        let mut notes = Vec::new();
        if self.flows.counts().overflow_packets > 0 {
            notes.push(format!(
                "{} packets belong to conversations beyond the first {MAX_FLOWS}: they are in the \
                 last file",
                self.flows.counts().overflow_packets
            ));
        }
        Ok(Edited {
            outputs: self.files.iter().take(SHOWN).map(output).collect(),
            more_outputs: self.files.len().saturating_sub(SHOWN) as u64,
            packets_written: self.packets,
            octets_written: self.octets,
            notes,
            error: self.full.take(),
            ..Edited::default()
        })
    }
}
