//! Captures frames of receive queues ([`Capture::taps`]) into files; every frame that is not in a
//! file is counted by reason.
//!
//! Each tap writes frames as records into chunks of memory, without a further copy. One thread
//! sorts the chunks of all taps, compresses them, rotates files and writes
//! ([docs/adr/0017-capture.md](../../../docs/adr/0017-capture.md)). This crate knows ports and the
//! capture formats, but neither the origin of frames nor the readers of its counters.
#![forbid(unsafe_code)]

mod compress;
mod files;
mod pool;
mod print;
mod record;
mod tap;
mod time;
mod writer;

use std::{
    io,
    path::PathBuf,
    str::FromStr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    thread::JoinHandle,
};

use squall_pcap::{InterfaceFormat, PcapFormat};
use squall_port::{Filter, monotonic, output::Permit};
use squall_units::Nanos;

pub use compress::{Compression, Method};
use pool::Pool;
pub use print::{Print, Stamp};
use record::Record;
pub use tap::Tap;
use tap::TapCounters;

/// Options of a capture.
#[derive(Clone, Debug)]
pub struct Options {
    /// `-` is standard output. `None`: no file is written.
    pub file: Option<PathBuf>,
    /// Permission to overwrite files and fill disks.
    pub permit: Permit,
    pub format: Format,
    /// Maximum octets kept per packet.
    pub snaplen: u32,
    /// Formats of the interfaces, indexed by the number passed to [`Capture::taps`]. A pcap file
    /// has a single link type.
    pub interfaces: Vec<InterfaceFormat>,
    /// Whether each packet in a pcapng file has its direction.
    pub directed: bool,
    pub rotate: Rotate,
    pub compress: Option<Compression>,
    /// Size in octets of the buffer between the wire and the file.
    pub buffer: usize,
    pub on_full: OnFull,
    pub gso_frames: GsoFrames,
    pub pre_trigger: Option<PreTrigger>,
    pub stop: Stop,
    pub print: Option<Print>,
    /// Whether packets are written as soon as the writer is free, instead of chunk by chunk.
    pub flush: bool,
    /// Whether frames have virtual times, which start at 1970.
    pub virtual_time: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            file: None,
            permit: Permit::default(),
            format: Format::Pcapng,
            snaplen: SNAPLEN,
            interfaces: Vec::new(),
            directed: false,
            rotate: Rotate::default(),
            compress: None,
            buffer: BUFFER,
            on_full: OnFull::default(),
            gso_frames: GsoFrames::default(),
            pre_trigger: None,
            stop: Stop::default(),
            print: None,
            flush: false,
            virtual_time: false,
        }
    }
}

/// The default in tcpdump and Wireshark.
pub const SNAPLEN: u32 = 262_144;
/// 50 ms at 10 Gb/s.
pub const BUFFER: usize = 64 << 20;
/// Half of a small L2 cache.
const CHUNK: usize = 256 << 10;
/// The smallest chunk: holds a GSO frame of 64 KiB with the overhead of its record.
const LEAST_CHUNK: usize = 80 << 10;
/// One being filled, one being written, and a few in between.
const LEAST_CHUNKS: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Pcapng,
    /// Times are in microseconds, unless `nanoseconds` is set.
    Pcap {
        nanoseconds: bool,
    },
}

/// When the next file begins: when the first of these limits is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotate {
    /// Maximum octets in a file (which has at least one packet); a compressed file is checked once
    /// per chunk.
    pub octets: Option<u64>,
    /// Maximum duration of a file, in packet time; intervals are relative to the start of the first
    /// file.
    pub time: Option<Nanos>,
    pub packets: Option<u64>,
    /// Number of files to keep: older ones are removed.
    pub ring: Option<u32>,
}

impl Rotate {
    pub fn is_asked_for(&self) -> bool {
        *self != Self::default()
    }
}

/// The policy for frames that arrive when the buffer is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFull {
    /// New frames are dropped.
    #[default]
    DropNewest,
    /// The oldest frames are dropped, a chunk at a time.
    DropOldest,
    /// Once the buffer is half full, packets are truncated to this number of octets; if it still
    /// fills up, new frames are dropped.
    Truncate(u32),
    /// The receiver waits; for sources that can wait (files).
    Wait,
}

/// Parses `drop-newest`, `drop-oldest`, `truncate` or `truncate:96`.
impl FromStr for OnFull {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let octets = match text.split_once(':') {
            None if text == "drop-newest" => return Ok(Self::DropNewest),
            None if text == "drop-oldest" => return Ok(Self::DropOldest),
            None if text == "truncate" => return Ok(Self::Truncate(128)),
            None if text == "wait" => return Ok(Self::Wait),
            Some(("truncate", octets)) => octets.parse().ok(),
            _ => {
                let expected =
                    "expected drop-newest, drop-oldest, truncate, truncate:OCTETS or wait";
                return Err(expected.into());
            }
        };
        match octets {
            Some(0) => Ok(Self::Truncate(SNAPLEN)),
            Some(octets @ 1..=SNAPLEN) => Ok(Self::Truncate(octets)),
            _ => Err("expected 1 to 262144 octets, or 0 for all".into()),
        }
    }
}

/// The treatment of GSO frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GsoFrames {
    /// They are written as the segments on the wire.
    #[default]
    Cut,
    Keep,
}

/// A capture that begins before an event.
#[derive(Clone, Debug)]
pub struct PreTrigger {
    /// Packets are written from this time before the event on, as far as the buffer holds them.
    pub keep: Nanos,
    /// Packets up to this time after it are written; then the capture ends.
    pub after: Option<Nanos>,
    /// The filter that detects the event, one for each of [`Options::interfaces`], whose link types
    /// may differ. Without filters, only [`Capture::trigger`] is the event.
    pub filters: Vec<Arc<Filter>>,
}

/// Limits that end the capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stop {
    pub packets: Option<u64>,
    /// Total octets of all files.
    pub octets: Option<u64>,
    pub files: Option<u64>,
}

/// A written file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WrittenFile {
    pub name: String,
    pub packets: u64,
    /// Its size.
    pub octets: u64,
    /// Times of the first and the last packet, in nanoseconds since 1970; 0: no packet.
    pub first_ns: u64,
    pub last_ns: u64,
}

/// An interface's counters for the statistics in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceCounts {
    /// Frames that reached the interface, before filters; `None`: unknown.
    pub received: Option<u64>,
    /// Frames that passed the filter but were dropped in the kernel.
    pub dropped_by_system: u64,
    pub dropped_by_interface: Option<u64>,
}

/// Packets that reached the capture, by outcome: `received` is the sum of `written`, `dropped`,
/// `unwanted` and the packets still in the buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub received: u64,
    /// Packets in files, or packets printed if there is no file.
    pub written: u64,
    /// Captured octets of those packets.
    pub written_octets: u64,
    /// Total octets of all files.
    pub file_octets: u64,
    /// Packets dropped, by reason.
    pub dropped: Vec<(&'static str, u64)>,
    /// Packets outside the requested time, by reason.
    pub unwanted: Vec<(&'static str, u64)>,
    /// Packets truncated because the buffer was filling up.
    pub truncated: u64,
    /// Received GSO frames, and the number of their segments.
    pub gso_frames: u64,
    pub segments: u64,
    /// Segments from truncated GSO frames in the files: their checksums do not match.
    pub unsummed: u64,
    /// Packets written after a packet with a later time.
    pub out_of_order: u64,
    /// Size of the buffer in octets, and the most that was in use.
    pub buffer: u64,
    pub buffer_peak: u64,
    pub files: u64,
    /// Packets in files that the ring has removed; `written` includes them.
    pub removed_files: u64,
    pub removed_packets: u64,
    pub removed_octets: u64,
}

/// The results of a capture.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub counters: Counters,
    /// The most recent files, at most 1000.
    pub files: Vec<WrittenFile>,
    /// Why writing failed.
    pub error: Option<String>,
    /// The limit that ended the capture: `packets`, `octets`, `files`, `after the trigger`.
    pub ended_by: Option<&'static str>,
    /// When the trigger occurred, in nanoseconds since 1970.
    pub triggered_ns: Option<u64>,
    /// Set if the buffer was too small for the requested time before the trigger: only packets from
    /// this time on were kept.
    pub kept_from_ns: Option<u64>,
}

/// A capture in progress.
pub struct Capture {
    shared: Arc<Shared>,
    thread: JoinHandle<writer::Done>,
}

/// State shared by taps, writer and owner.
pub(crate) struct Shared {
    options: Options,
    pool: Pool,
    /// Offset from the frames' clock to Unix time, in nanoseconds. Measured only once: timestamps
    /// in a file must not step.
    offset: u64,
    /// When the capture began, in nanoseconds since 1970.
    start: u64,
    over: AtomicBool,
    /// Whether the capture ended because writing failed.
    failed: AtomicBool,
    /// Whether the capture waits for its trigger.
    armed: AtomicBool,
    triggered: AtomicU64,
    taps: Mutex<Vec<Arc<TapCounters>>>,
    tap_count: AtomicUsize,
    written: Written,
    counts: Mutex<Vec<InterfaceCounts>>,
}

/// Counters of the written packets, updated by the writer.
#[derive(Debug, Default)]
struct Written {
    packets: AtomicU64,
    octets: AtomicU64,
    file_octets: AtomicU64,
    failed: AtomicU64,
    unread: AtomicU64,
    before: AtomicU64,
    after: AtomicU64,
    out_of_order: AtomicU64,
    files: AtomicU64,
    removed_files: AtomicU64,
    removed_packets: AtomicU64,
    removed_octets: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Use the data even after a panic: each change of a counter is complete.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    fn is_armed(&self) -> bool {
        self.armed.load(Relaxed)
    }

    /// Records the trigger at `time`, in nanoseconds since 1970; only the first one counts.
    fn trigger(&self, time: u64) {
        if self.triggered.compare_exchange(0, time.max(1), Relaxed, Relaxed).is_ok() {
            self.armed.store(false, Relaxed);
            self.pool.release();
        }
    }

    fn taps(&self) -> usize {
        self.tap_count.load(Relaxed)
    }

    fn tap(&self, number: usize) -> Arc<TapCounters> {
        lock(&self.taps)[number].clone()
    }

    /// The current truncation length, if it is less than the snaplen.
    fn truncate_to(&self) -> Option<usize> {
        match self.options.on_full {
            OnFull::Truncate(octets) if self.pool.waiting() * 2 >= self.pool.chunks() => {
                Some(octets as usize)
            }
            _ => None,
        }
    }

    /// The current time in nanoseconds since 1970.
    fn now(&self) -> u64 {
        monotonic().0.wrapping_add(self.offset)
    }

    fn counters(&self) -> Counters {
        let get = |counter: &AtomicU64| counter.load(Relaxed);
        let (w, taps) = (&self.written, lock(&self.taps));
        let sum = |f: fn(&TapCounters) -> &AtomicU64| taps.iter().map(|s| get(f(s))).sum::<u64>();
        let reasons =
            |list: &[(&'static str, u64)]| list.iter().copied().filter(|(_, n)| *n > 0).collect();
        Counters {
            received: sum(|s| &s.packets),
            written: get(&w.packets),
            written_octets: get(&w.octets),
            file_octets: get(&w.file_octets),
            dropped: reasons(&[
                ("buffer_full", sum(|s| &s.newest)),
                ("buffer_full_oldest", sum(|s| &s.oldest)),
                ("headers_missing", sum(|s| &s.headless)),
                ("write_error", get(&w.failed) + sum(|s| &s.failed)),
            ]),
            unwanted: reasons(&[
                ("before_trigger", sum(|s| &s.before) + get(&w.before)),
                ("after_end", sum(|s| &s.after) + get(&w.after)),
                ("reader_gone", get(&w.unread)),
            ]),
            truncated: sum(|s| &s.truncated),
            gso_frames: sum(|s| &s.gso_frames),
            segments: sum(|s| &s.segments),
            unsummed: sum(|s| &s.unsummed),
            out_of_order: get(&w.out_of_order),
            buffer: self.pool.octets() as u64,
            buffer_peak: self.pool.peak_octets() as u64,
            files: get(&w.files),
            removed_files: get(&w.removed_files),
            removed_packets: get(&w.removed_packets),
            removed_octets: get(&w.removed_octets),
        }
    }

    /// The record format for packets of `interface`.
    fn record(&self, interface: usize) -> Record {
        let snaplen = self.options.snaplen;
        match self.options.format {
            Format::Pcapng => Record::Pcapng {
                interface: InterfaceFormat {
                    snaplen,
                    ..self.options.interfaces[interface].clone()
                },
                index: interface as u32,
                directed: self.options.directed,
            },
            Format::Pcap { nanoseconds } => {
                let link_type = self.options.interfaces[0].link_type;
                Record::Pcap(PcapFormat { link_type, snaplen, nanoseconds })
            }
        }
    }
}

impl Capture {
    /// Opens the first file, allocates the buffer and starts the writer.
    ///
    /// # Errors
    /// A file cannot be created; options contradict each other ([`io::ErrorKind::InvalidInput`]).
    ///
    /// # Panics
    /// If `options` has no interface.
    pub fn start(mut options: Options) -> io::Result<Self> {
        assert!(!options.interfaces.is_empty(), "a capture has an interface");
        options.compress = compression(&options)?;
        if matches!(options.format, Format::Pcap { .. })
            && options.interfaces.iter().any(|i| i.link_type != options.interfaces[0].link_type)
        {
            let text =
                "a pcap file has one link type, and these interfaces have several\n  try pcapng";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        // Checked in advance: a failed allocation aborts the process, and a process with
        // overcommitted memory may be killed by the kernel later.
        if let Some(memory) = machine_memory().filter(|memory| options.buffer as u64 > *memory) {
            let text = format!(
                "a buffer of {} bytes is more than the memory of this machine, {memory} bytes\n  \
                 try 1GiB",
                options.buffer
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let chunk = (options.buffer / 16).clamp(LEAST_CHUNK, CHUNK);
        let armed = options.pre_trigger.is_some();
        let pool = Pool::new((options.buffer / chunk).max(LEAST_CHUNKS), chunk, armed);
        let offset = if options.virtual_time { 0 } else { time::offset() };
        let shared = Arc::new(Shared {
            counts: Mutex::new(vec![InterfaceCounts::default(); options.interfaces.len()]),
            start: monotonic().0.wrapping_add(offset),
            options,
            pool,
            offset,
            over: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            armed: AtomicBool::new(armed),
            triggered: AtomicU64::new(0),
            taps: Mutex::default(),
            tap_count: AtomicUsize::new(0),
            written: Written::default(),
        });
        let writer = writer::Writer::new(shared.clone())?;
        let thread =
            std::thread::Builder::new().name("squall-writer".into()).spawn(move || writer.run())?;
        Ok(Self { shared, thread })
    }

    /// A function that makes taps for the queues of `interface` (an index into
    /// [`Options::interfaces`]); it must be called on the threads that own the queues.
    pub fn taps(&self, interface: usize) -> impl Fn() -> Tap + Send + Sync + use<> {
        let shared = self.shared.clone();
        move || {
            let counters = Arc::new(TapCounters { interface, ..TapCounters::default() });
            let mut taps = lock(&shared.taps);
            taps.push(counters.clone());
            shared.tap_count.store(taps.len(), Relaxed);
            shared.pool.join();
            Tap::new(shared.clone(), counters, taps.len() - 1, shared.record(interface))
        }
    }

    pub fn counters(&self) -> Counters {
        self.shared.counters()
    }

    /// Whether the capture has reached a limit or failed.
    pub fn is_over(&self) -> bool {
        self.shared.is_over()
    }

    /// Whether the capture waits for a trigger.
    pub fn is_armed(&self) -> bool {
        self.shared.is_armed()
    }

    /// Triggers the capture now.
    pub fn trigger(&self) {
        self.shared.trigger(self.shared.now());
    }

    /// Sets an interface's counters, for the statistics in files that end from now on.
    pub fn tell(&self, interface: usize, counts: InterfaceCounts) {
        lock(&self.shared.counts)[interface] = counts;
    }

    /// Waits until everything is written. All taps must have been finished or dropped.
    pub fn finish(self) -> Outcome {
        self.shared.pool.close();
        let done = self.thread.join().unwrap_or_else(|_| writer::Done {
            error: Some("the writer ended in a panic; this is a bug in Squall".into()),
            ..writer::Done::default()
        });
        let triggered = self.shared.triggered.load(Relaxed);
        let (keep, from) =
            (self.shared.options.pre_trigger.as_ref(), self.shared.pool.keeps_from.load(Relaxed));
        let short =
            keep.is_some_and(|keep| triggered > 0 && from > triggered.saturating_sub(keep.keep.0));
        Outcome {
            counters: self.shared.counters(),
            files: done.files,
            error: done.error,
            ended_by: done.ended_by,
            triggered_ns: (triggered > 0).then_some(triggered),
            kept_from_ns: short.then_some(from),
        }
    }
}

/// The requested method, or the method for the file name.
fn compression(options: &Options) -> io::Result<Option<Compression>> {
    let wrong = |text: String| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    let name = options.file.as_deref().map(|file| file.to_string_lossy().into_owned());
    let by_name =
        name.as_deref().and_then(Method::of_name).map(|method| Compression { method, level: None });
    match (options.compress, by_name, name) {
        (Some(asked), _, None) => wrong(format!(
            "{} compresses files, and no file is written\n  try it with a file",
            asked.method
        )),
        (Some(asked), Some(named), Some(name)) if asked.method != named.method => wrong(format!(
            "{name} would be compressed by {}, but its name means {}\n  try a name that ends in \
             .{}",
            asked.method,
            named.method,
            asked.method.suffix()
        )),
        (asked, named, _) => Ok(asked.or(named)),
    }
}

/// This machine's memory in octets; `None` if /proc does not show it.
pub fn machine_memory() -> Option<u64> {
    let facts = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kib = facts
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?
        .trim()
        .split(' ')
        .next()?
        .parse::<u64>();
    Some(kib.ok()? * 1024)
}
