//! Output files: opens, fills, rotates and removes them. Each file is a complete capture with its
//! own header, and with the interface counters at its end.

use std::{
    collections::VecDeque,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering::Relaxed},
};

use squall_pcap::{InterfaceFormat, PcapFormat, Section, Statistics};
use squall_port::output::{self, Room};
use squall_units::Cannot;

use crate::{
    Format, Options, Shared, WrittenFile,
    compress::{Compressor, Method},
    lock,
    pool::Run,
    record::Record,
    time::Civil,
};

/// Runs of at least this length are written directly. Shorter ones are staged: the copy costs less
/// than a system call.
const DIRECT: usize = 32 << 10;
/// Number of staged octets that triggers a write.
const STAGE: usize = 256 << 10;
/// Maximum number of files whose names are kept.
const REMEMBERED: usize = 1_000;

pub(crate) struct Files {
    shared: Arc<Shared>,
    path: PathBuf,
    /// Finds the records in a partial write; the record format of any interface will do.
    record: Record,
    compressor: Option<Compressor>,
    head: Vec<u8>,
    /// Octets of the statistics at the end of a file.
    tail: u64,
    open: Option<Open>,
    /// Number of files begun.
    number: u64,
    /// Start of the first file, from which rotation intervals count.
    start: Option<u64>,
    pub list: VecDeque<WrittenFile>,
    /// Octets of closed files.
    closed_octets: u64,
}

struct Open {
    file: Sink,
    written: WrittenFile,
    /// Staged records.
    stage: Vec<u8>,
    staged: Run,
    /// Octets before compression, and packets; both include staged ones.
    octets: u64,
    packets: u64,
    /// Packets from this time on go to the next file.
    until: u64,
}

enum Sink {
    File(File, Room),
    /// Standard output may be a pipe, which cannot be truncated.
    Stdout(io::Stdout),
}

/// Why writing ended.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The reader of the pipe has closed it.
    ReaderGone,
    Error(String),
}

impl Files {
    /// Opens the first file.
    pub fn create(shared: Arc<Shared>, path: &Path) -> io::Result<Self> {
        let options = &shared.options;
        let compressor = options.compress.map(Compressor::new).transpose()?;
        let mut files = Self {
            record: shared.record(0),
            head: head(options)?,
            tail: if options.format == Format::Pcapng {
                (options.interfaces.len() * Statistics::MAX_LEN) as u64
            } else {
                0
            },
            path: path.to_owned(),
            compressor,
            open: None,
            number: 0,
            start: None,
            list: VecDeque::new(),
            closed_octets: 0,
            shared: shared.clone(),
        };
        // In virtual time, the start of the first file, which is part of its name, is not known
        // yet.
        if options.virtual_time && options.rotate.is_asked_for() {
            return Ok(files);
        }
        let first = files.name(shared.start);
        if first.as_os_str() != "-" {
            output::check(&first, options.permit)
                .map_err(|error| io::Error::new(error.kind(), cannot_write(&first, &error)))?;
        }
        files.begin(shared.start).map_err(|failure| match failure {
            Failure::ReaderGone => io::ErrorKind::BrokenPipe.into(),
            Failure::Error(text) => io::Error::other(text),
        })?;
        // Intervals start with the first packet.
        if let Some(open) = &mut files.open {
            open.until = u64::MAX;
        }
        Ok(files)
    }

    /// Adds records, for which there must be room ([`Files::room`]).
    pub fn add(&mut self, records: &[u8], run: Run) -> Result<(), Failure> {
        let Run { packets, data, first, last } = run;
        if self.open.is_none() {
            self.begin(first)?;
        }
        if self.start.is_none() {
            self.start = Some(first);
            let until = self.period_end(first);
            self.open.iter_mut().for_each(|open| open.until = until);
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        if open.packets == 0 {
            open.written.first_ns = first;
        }
        open.written.last_ns = last;
        open.octets += records.len() as u64;
        open.packets += packets;
        if open.stage.is_empty() && records.len() >= DIRECT {
            return self.write(records, run);
        }
        open.stage.extend_from_slice(records);
        open.staged = Run {
            packets: open.staged.packets + packets,
            data: open.staged.data + data,
            first,
            last,
        };
        if open.stage.len() >= STAGE { self.flush() } else { Ok(()) }
    }

    /// Whether `octets` octets of records fit into the open file or, if none is open, into the next
    /// one.
    pub fn room(&self, octets: u64, run: &Run) -> bool {
        let rotate = &self.shared.options.rotate;
        let (before, packets) =
            self.open.as_ref().map_or((self.head.len() as u64, 0), |o| (o.octets, o.packets));
        let on_disk = match (&self.compressor, &self.open) {
            (Some(_), open) => open.as_ref().map_or(0, |open| open.written.octets),
            (None, _) => before + octets,
        };
        // Intervals start with the very first packet.
        let until = match (&self.open, self.start) {
            (Some(open), Some(_)) => open.until,
            (_, start) => self.step_end(start.unwrap_or(run.first), run.first),
        };
        rotate.octets.is_none_or(|most| on_disk + self.tail <= most)
            && rotate.packets.is_none_or(|most| packets + run.packets <= most)
            && run.last < until
    }

    /// Whether the open file has no packet yet: a single packet fits in any case.
    pub fn is_fresh(&self, time: u64) -> bool {
        self.open.as_ref().is_none_or(|open| open.packets == 0 && time < open.until)
    }

    /// Closes the open file; the next file begins with its first packet.
    pub fn change(&mut self) -> Result<(), Failure> {
        self.flush()?;
        self.end()
    }

    /// Number of files begun so far.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Octets of all files. With compression, only those written; otherwise staged octets are
    /// included.
    pub fn octets(&self) -> u64 {
        let open = self.open.as_ref().map_or(0, |open| match self.compressor {
            Some(_) => open.written.octets,
            None => open.octets,
        });
        self.closed_octets + open
    }

    /// Writes the staged records.
    pub fn flush(&mut self) -> Result<(), Failure> {
        let Some(open) = self.open.as_mut().filter(|open| !open.stage.is_empty()) else {
            return Ok(());
        };
        let (mut stage, run) = (std::mem::take(&mut open.stage), std::mem::take(&mut open.staged));
        let written = self.write(&stage, run);
        stage.clear();
        if let Some(open) = &mut self.open {
            open.stage = stage;
        }
        written
    }

    /// Closes the last file.
    pub fn finish(&mut self) -> Result<(), Failure> {
        self.change()
    }

    fn begin(&mut self, time: u64) -> Result<(), Failure> {
        let path = self.name(time);
        let file = match path.to_str() {
            Some("-") => Sink::Stdout(io::stdout()),
            _ => {
                let permit = self.shared.options.permit;
                let file = output::create(&path, permit).map_err(|error| failure(&path, &error))?;
                let room = Room::of(&file, permit);
                Sink::File(file, room)
            }
        };
        self.number += 1;
        self.shared.written.files.store(self.number, Relaxed);
        let until = self.period_end(time);
        let stage = Vec::with_capacity(STAGE + DIRECT);
        let written =
            WrittenFile { name: path.to_string_lossy().into_owned(), ..WrittenFile::default() };
        self.open = Some(Open {
            file,
            written,
            stage,
            staged: Run::default(),
            octets: 0,
            packets: 0,
            until,
        });
        let head = self.head.clone();
        self.write(&head, Run::default())?;
        self.open.iter_mut().for_each(|open| open.octets = head.len() as u64);
        self.make_room_in_ring();
        Ok(())
    }

    /// Writes `octets`, which contain the records of `run` or no records, and counts the part that
    /// was written.
    fn write(&mut self, octets: &[u8], run: Run) -> Result<(), Failure> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let counters = &self.shared.written;
        let is_compressed = self.compressor.is_some();
        let compressed = match &mut self.compressor {
            None => octets,
            Some(compressor) => compressor.compress(octets).map_err(|error| {
                counters.failed.fetch_add(run.packets, Relaxed);
                Failure::Error(format!("{}: {error}", open.written.name))
            })?,
        };
        let mut count = |run: Run, octets: u64| {
            open.written.octets += octets;
            open.written.packets += run.packets;
            counters.packets.fetch_add(run.packets, Relaxed);
            counters.octets.fetch_add(run.data, Relaxed);
            counters.file_octets.fetch_add(octets, Relaxed);
        };
        let Err((done, error)) = open.file.write(compressed) else {
            count(run, compressed.len() as u64);
            return Ok(());
        };
        // Truncates a partly written record, so that the file stays readable.
        let (kept, whole) = match run.packets == 0 || is_compressed {
            true => (Run::default(), 0),
            false => whole_records(&self.record, octets, done),
        };
        count(kept, whole as u64);
        let name = PathBuf::from(&open.written.name);
        if let Sink::File(file, _) = &open.file {
            // A device or pipe has no length.
            let _ = file.set_len(open.written.octets);
        }
        let gone = error.kind() == io::ErrorKind::BrokenPipe;
        let lost = if gone { &counters.unread } else { &counters.failed };
        lost.fetch_add(run.packets - kept.packets, Relaxed);
        if gone { Err(Failure::ReaderGone) } else { Err(failure(&name, &error)) }
    }

    /// Writes the statistics, and records the file in the list.
    fn end(&mut self) -> Result<(), Failure> {
        if self.open.is_none() {
            return Ok(());
        }
        let mut tail = Vec::new();
        if self.shared.options.format == Format::Pcapng {
            let last = self.open.as_ref().map_or(0, |open| open.written.last_ns);
            statistics(&self.shared, last, &mut tail);
        }
        let written = if tail.is_empty() { Ok(()) } else { self.write(&tail, Run::default()) };
        self.remember();
        written
    }

    /// Closes the open file without statistics, and records it in the list.
    pub fn remember(&mut self) {
        let Some(open) = self.open.take() else { return };
        self.closed_octets += open.written.octets;
        self.list.push_back(open.written);
        if self.list.len() > REMEMBERED {
            self.list.pop_front();
        }
    }

    /// Removes files beyond the ring's size.
    fn make_room_in_ring(&mut self) {
        let Some(most) = self.shared.options.rotate.ring else { return };
        // The open file counts, too.
        while self.list.len() + 1 > most as usize {
            let Some(file) = self.list.pop_front() else { break };
            // Another process may have removed it already.
            let _ = fs::remove_file(&file.name);
            let counters = &self.shared.written;
            counters.removed_files.fetch_add(1, Relaxed);
            counters.removed_packets.fetch_add(file.packets, Relaxed);
            counters.removed_octets.fetch_add(file.octets, Relaxed);
        }
    }

    /// The end of the rotation interval that contains `time`, if files rotate by time.
    fn period_end(&self, time: u64) -> u64 {
        self.start.map_or(u64::MAX, |start| self.step_end(start, time))
    }

    fn step_end(&self, start: u64, time: u64) -> u64 {
        let Some(step) = self.shared.options.rotate.time.map(|step| step.0.max(1)) else {
            return u64::MAX;
        };
        let passed = time.saturating_sub(start) / step;
        start.saturating_add((passed + 1).saturating_mul(step))
    }

    /// `out.pcapng`, or `out_00001_20261121T205500.pcapng` (UTC) if there may be several.
    fn name(&self, time: u64) -> PathBuf {
        if !self.shared.options.rotate.is_asked_for() || self.path.as_os_str() == "-" {
            return self.path.clone();
        }
        numbered(&self.path, self.number + 1, time)
    }
}

/// `dir/out.pcapng.zst` -> `dir/out_00001_20261121T205500.pcapng.zst`
fn numbered(path: &Path, number: u64, time: u64) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut stem = name.as_ref();
    if let Some((before, _)) = stem.rsplit_once('.').filter(|_| Method::of_name(stem).is_some()) {
        stem = before;
    }
    if let Some((before, _)) = stem.rsplit_once('.').filter(|(before, _)| !before.is_empty()) {
        stem = before;
    }
    let suffix = &name[stem.len()..];
    path.with_file_name(format!("{stem}_{number:05}_{}{suffix}", Civil::of(time).compact()))
}

/// The header of every file.
fn head(options: &Options) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let snaplen = options.snaplen;
    match options.format {
        Format::Pcap { nanoseconds } => {
            PcapFormat { link_type: options.interfaces[0].link_type, snaplen, nanoseconds }
                .write_header(&mut head)?;
        }
        Format::Pcapng => {
            let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
            let section = Section {
                os: Some(format!("Linux {}", release.trim())),
                application: Some(concat!("squall ", env!("CARGO_PKG_VERSION")).into()),
                ..Section::default()
            };
            section.write_header(&mut head)?;
            for interface in &options.interfaces {
                InterfaceFormat { snaplen, ..interface.clone() }.write_description(&mut head)?;
            }
        }
    }
    Ok(head)
}

/// Writes the interfaces' current counters; on virtual time, their time is the arrival of the
/// `last` packet.
fn statistics(shared: &Shared, last: u64, out: &mut Vec<u8>) {
    let virtual_time = shared.options.virtual_time;
    let now = if virtual_time { last } else { shared.now() };
    let counts = lock(&shared.counts).clone();
    let taps = lock(&shared.taps).clone();
    for (i, counts) in counts.iter().enumerate() {
        let delivered =
            taps.iter().filter(|s| s.interface == i).map(|s| s.packets.load(Relaxed)).sum::<u64>();
        let accepted = delivered + counts.dropped_by_system;
        let statistics = Statistics {
            start_ns: (!virtual_time).then_some(shared.start),
            end_ns: (!virtual_time).then_some(now),
            received: Some(counts.received.unwrap_or(accepted).max(accepted)),
            dropped_by_interface: Some(counts.dropped_by_interface.unwrap_or(0)),
            accepted: Some(accepted),
            dropped_by_system: Some(counts.dropped_by_system),
            delivered: Some(delivered),
        };
        // Writing to memory cannot fail.
        let _ = statistics.write_block(out, i as u32, now);
    }
}

/// The records that are completely within the first `done` octets, and the end of the last of them.
fn whole_records(record: &Record, octets: &[u8], done: usize) -> (Run, usize) {
    let (mut run, mut at) = (Run::default(), 0);
    while let Some(placed) = record.read(&octets[at..]).filter(|placed| at + placed.len <= done) {
        run.add(placed.time_ns, placed.data.len());
        at += placed.len;
    }
    (run, at)
}

impl Sink {
    /// Writes all of `octets`.
    ///
    /// # Errors
    /// The error, with the number of octets written before it.
    fn write(&mut self, octets: &[u8]) -> Result<(), (usize, io::Error)> {
        if let Self::File(file, room) = self {
            room.take(octets.len(), &*file).map_err(|error| (0, error))?;
        }
        let mut done = 0;
        while done < octets.len() {
            let written = match self {
                Self::File(file, _) => file.write(&octets[done..]),
                Self::Stdout(stdout) => stdout.lock().write(&octets[done..]),
            };
            match written {
                Ok(0) => return Err((done, io::ErrorKind::WriteZero.into())),
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err((done, error)),
            }
        }
        match self {
            Self::Stdout(stdout) => stdout.flush().map_err(|error| (done, error)),
            Self::File(..) => Ok(()),
        }
    }
}

fn failure(path: &Path, error: &io::Error) -> Failure {
    Failure::Error(cannot_write(path, error))
}

fn cannot_write(path: &Path, error: &io::Error) -> String {
    let cannot = Cannot::write(path, error);
    // An error without a system error number comes from Squall, and already has a hint.
    if error.kind() == io::ErrorKind::StorageFull && error.raw_os_error().is_some() {
        let hint = "another disk, --rotate-count with --ring-files, --compress zstd or --snaplen";
        return cannot.with_hint(hint).to_string();
    }
    cannot.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_numbered_before_their_suffixes() {
        let name = |path: &str| {
            numbered(Path::new(path), 7, 1_700_000_000_000_000_000).display().to_string()
        };
        assert_eq!(name("d/out.pcapng"), "d/out_00007_20231114T221320.pcapng");
        assert_eq!(name("out.pcap.zst"), "out_00007_20231114T221320.pcap.zst");
        assert_eq!(name("out"), "out_00007_20231114T221320");
        assert_eq!(name("/a.b/.out"), "/a.b/.out_00007_20231114T221320");
    }
}
