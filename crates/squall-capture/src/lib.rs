//! A capture: the frames of receiving queues go in ([`Capture::tap`]), files come out, and what is
//! not in them has a counter and a reason.
//!
//! Each tap writes frames as records into chunks of memory, once; one thread puts the chunks of
//! all taps in order, compresses them, changes files and writes
//! ([docs/adr/0017-capture.md](../../../docs/adr/0017-capture.md)). Knows ports and the capture
//! formats; not where frames come from, nor who reads the counters.
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

/// What is captured, and what becomes of it.
#[derive(Clone, Debug)]
pub struct Options {
    /// `-` is the standard output. `None`: no file is written.
    pub file: Option<PathBuf>,
    /// What may be done to write the files.
    pub permit: Permit,
    pub format: Format,
    /// Octets of a packet to keep.
    pub snaplen: u32,
    /// In the order of the numbers that [`Capture::tap`] is given. A pcap has one link type for
    /// all.
    pub interfaces: Vec<InterfaceFormat>,
    /// Each packet of a pcapng says whether it came in or went out.
    pub directed: bool,
    pub rotate: Rotate,
    pub compress: Option<Compression>,
    /// Octets of memory between the wire and the file.
    pub buffer: usize,
    pub on_full: OnFull,
    pub gso_frames: GsoFrames,
    pub pre_trigger: Option<PreTrigger>,
    pub stop: Stop,
    pub print: Option<Print>,
    /// Packets go to the file as soon as the writer is free, not by the chunk.
    pub flush: bool,
    /// Instants of frames are on a clock of their own, which begins at 1970.
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

/// tcpdump's and Wireshark's.
pub const SNAPLEN: u32 = 262_144;
/// 50 ms of 10 Gb/s.
pub const BUFFER: usize = 64 << 20;
/// Half of a small second-level cache.
const CHUNK: usize = 256 << 10;
/// A GSO frame of 64 KiB fits into the smallest, with what a record has beside it.
const LEAST_CHUNK: usize = 80 << 10;
/// One that is filled, one that is written, and some between.
const LEAST_CHUNKS: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Pcapng,
    /// Else in microseconds.
    Pcap {
        nanoseconds: bool,
    },
}

/// When another file is begun; by whichever comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotate {
    /// A file has at most so many octets (one packet at least); compressed, it is looked at chunk
    /// by chunk.
    pub octets: Option<u64>,
    /// By the packets' own time, in steps from the start of the first file on.
    pub time: Option<Nanos>,
    pub packets: Option<u64>,
    /// So many files are kept: the oldest go.
    pub ring: Option<u32>,
}

impl Rotate {
    pub fn is_asked_for(&self) -> bool {
        *self != Self::default()
    }
}

/// What happens to frames when the writer is behind and the buffer is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFull {
    /// Those that come are lost.
    #[default]
    DropNewest,
    /// Those that have waited longest are lost, by the chunk.
    DropOldest,
    /// From half full on only so many octets of a packet are kept; if it still gets full, those
    /// that come are lost.
    Truncate(u32),
    /// The receiver waits: for sources that do, too (files).
    Wait,
}

/// `drop-newest`, `drop-oldest`, `truncate` or `truncate:96`.
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

/// What becomes of several frames that the kernel or the NIC has joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GsoFrames {
    /// They are written as the frames that they are on the wire.
    #[default]
    Cut,
    Keep,
}

/// The capture begins in the past of an event.
#[derive(Clone, Debug)]
pub struct PreTrigger {
    /// Packets that came so long before it are written, as far as the buffer holds them.
    pub keep: Nanos,
    /// And those that come so long behind it; then the capture ends.
    pub after: Option<Nanos>,
    /// A frame that is the event, by interface as in [`Options::interfaces`]: what frames begin
    /// with differs. Of none, [`Capture::trigger`] says so.
    pub filters: Vec<Arc<Filter>>,
}

/// When the capture ends by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stop {
    pub packets: Option<u64>,
    /// Of all files together.
    pub octets: Option<u64>,
    pub files: Option<u64>,
}

/// A file that was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WrittenFile {
    pub name: String,
    pub packets: u64,
    /// Its size.
    pub octets: u64,
    /// Of the first and the last packet, nanoseconds since 1970; 0 if it has none.
    pub first_ns: u64,
    pub last_ns: u64,
}

/// What an interface has counted so far, for the statistics in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceCounts {
    /// Frames that came to the interface, whether wanted or not, where it is known.
    pub received: Option<u64>,
    /// Lost in the kernel behind the filter.
    pub dropped_by_system: u64,
    pub dropped_by_interface: Option<u64>,
}

/// Packets that reached the capture, and what became of them: `received` is the sum of `written`,
/// `dropped` and `unwanted`, and of what still waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub received: u64,
    /// In files, or printed where there are none.
    pub written: u64,
    /// Octets of them, as captured.
    pub written_octets: u64,
    /// Octets of all files.
    pub file_octets: u64,
    /// By reason.
    pub dropped: Vec<(&'static str, u64)>,
    /// Came before or after what was asked for, by reason.
    pub unwanted: Vec<(&'static str, u64)>,
    /// Packets of which octets were cut off because the buffer was filling.
    pub truncated: u64,
    /// GSO frames that came, and the frames in them.
    pub gso_frames: u64,
    pub segments: u64,
    /// Frames in files that were cut out of GSO frames without all their octets: their checksums
    /// are not their own.
    pub unsummed: u64,
    /// Packets that stand in a file behind a later one.
    pub out_of_order: u64,
    /// Octets of memory, and how much of it was in use at most.
    pub buffer: u64,
    pub buffer_peak: u64,
    pub files: u64,
    /// In files that the ring has removed; among the written.
    pub removed_files: u64,
    pub removed_packets: u64,
    pub removed_octets: u64,
}

/// How a capture came out.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub counters: Counters,
    /// The newest, at most 1000.
    pub files: Vec<WrittenFile>,
    /// Why not everything could be written.
    pub error: Option<String>,
    /// The condition that ended it, if one did: `packets`, `octets`, `files`, `after the trigger`.
    pub ended_by: Option<&'static str>,
    /// When the trigger came, nanoseconds since 1970.
    pub triggered_ns: Option<u64>,
    /// The buffer was too small to keep all of the time before the trigger: packets from this
    /// instant on are there.
    pub kept_from_ns: Option<u64>,
}

/// A capture on its way.
pub struct Capture {
    shared: Arc<Shared>,
    thread: JoinHandle<writer::Done>,
}

/// What taps, writer and owner share.
pub(crate) struct Shared {
    options: Options,
    pool: Pool,
    /// From the frames' clock to nanoseconds since 1970, measured once: stamps in a file never
    /// step.
    offset: u64,
    /// When it began, nanoseconds since 1970.
    start: u64,
    over: AtomicBool,
    /// Over because nothing can be written.
    failed: AtomicBool,
    /// Waits for its trigger.
    armed: AtomicBool,
    triggered: AtomicU64,
    taps: Mutex<Vec<Arc<TapCounters>>>,
    tap_count: AtomicUsize,
    written: Written,
    counts: Mutex<Vec<InterfaceCounts>>,
}

/// By the writer.
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
    // A counter is never half written.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    fn is_armed(&self) -> bool {
        self.armed.load(Relaxed)
    }

    /// The event has come, at `time` since 1970; the first one counts.
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

    /// Octets of a packet that are kept now, if that is fewer than asked for.
    fn truncate_to(&self) -> Option<usize> {
        match self.options.on_full {
            OnFull::Truncate(octets) if self.pool.waiting() * 2 >= self.pool.chunks() => {
                Some(octets as usize)
            }
            _ => None,
        }
    }

    /// Nanoseconds since 1970 on the frames' clock.
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

    /// How packets of `interface` are written.
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
    /// Opens the first file, makes the memory and starts the writer.
    ///
    /// # Errors
    /// A file that cannot be made; options that contradict each other
    /// ([`io::ErrorKind::InvalidInput`]).
    ///
    /// # Panics
    /// Without an interface.
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
        // An allocation that fails aborts, and one that does not ends the process when it is used.
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

    /// What makes taps for the queues of `interface` (an index in [`Options::interfaces`]), on
    /// whatever thread has them.
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

    /// It has ended by itself, or cannot go on.
    pub fn is_over(&self) -> bool {
        self.shared.is_over()
    }

    /// Waits for a trigger.
    pub fn is_armed(&self) -> bool {
        self.shared.is_armed()
    }

    /// The event that it waits for is now.
    pub fn trigger(&self) {
        self.shared.trigger(self.shared.now());
    }

    /// What an interface has counted so far: the statistics of files that end from now on say so.
    pub fn tell(&self, interface: usize, counts: InterfaceCounts) {
        lock(&self.shared.counts)[interface] = counts;
    }

    /// Waits until everything is written. All taps must be finished, or gone.
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

/// As asked for, else by the name of the file.
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

/// Octets of memory that this machine has; `None` where /proc does not tell.
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
