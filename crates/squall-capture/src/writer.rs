//! The writer thread: takes chunks, sorts those of several taps by time, and splits them at the end
//! of a file or of the capture.

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc,
        atomic::Ordering::{Acquire, Relaxed},
    },
    time::Duration,
};

use crate::{
    Shared, WrittenFile,
    files::{Failure, Files},
    pool::{Chunk, Next, Run},
    print::Printer,
    record::Record,
};

/// How long the writer waits for a chunk: limits the delay of sorting, and of the end of files and
/// captures that end at a given time.
const TIMEOUT: Duration = Duration::from_millis(20);
/// The same with a single tap, which wakes the writer whenever there is something to do. A thread
/// that wakes up ten times a second costs as much CPU time as some hundred packets do.
const TIMEOUT_OF_ONE: Duration = Duration::from_secs(1);
/// How long a packet waits for earlier packets of other taps.
const ORDER_NS: u64 = 150_000_000;

/// The result of the thread.
#[derive(Default)]
pub(crate) struct Done {
    pub files: Vec<WrittenFile>,
    pub error: Option<String>,
    pub ended_by: Option<&'static str>,
}

pub(crate) struct Writer {
    shared: Arc<Shared>,
    /// Reads records, which works the same way for all interfaces.
    record: Record,
    files: Option<Files>,
    printer: Option<Printer>,
    /// Chunks to write, by tap.
    sources: Vec<VecDeque<Part>>,
    /// Per tap: all its frames up to this time are in `sources` or already written.
    marks: Vec<u64>,
    /// Packets at `from` or later, and before `until`, are wanted.
    from: u64,
    until: u64,
    /// Number of packets that may still be written.
    left: u64,
    last: u64,
    error: Option<String>,
    ended_by: Option<&'static str>,
}

/// A chunk whose records from `at` on were not written yet.
struct Part {
    chunk: Chunk,
    at: usize,
    /// Summary of those records.
    run: Run,
}

impl Writer {
    pub fn new(shared: Arc<Shared>) -> io::Result<Self> {
        let options = &shared.options;
        let files =
            options.file.as_deref().map(|path| Files::create(shared.clone(), path)).transpose()?;
        Ok(Self {
            record: shared.record(0),
            printer: options.print.as_ref().map(|print| Printer::new(print, &options.interfaces)),
            left: options.stop.packets.unwrap_or(u64::MAX),
            files,
            sources: Vec::new(),
            marks: Vec::new(),
            from: 0,
            until: u64::MAX,
            last: 0,
            error: None,
            ended_by: None,
            shared,
        })
    }

    pub fn run(mut self) -> Done {
        let shared = self.shared.clone();
        let keep = shared.options.pre_trigger.as_ref();
        loop {
            let keep_from = match keep {
                Some(keep) if !shared.options.virtual_time => {
                    shared.now().saturating_sub(keep.keep.0)
                }
                _ => 0,
            };
            let past = |chunk: &Chunk| {
                shared.written.before.fetch_add(chunk.run.packets, Relaxed);
            };
            // Read before `next`: if no chunk waits after that call, all frames before these marks
            // have arrived.
            let marks: Vec<u64> = match shared.taps() {
                1 => Vec::new(),
                taps => (0..taps).map(|i| shared.tap(i).until.load(Acquire)).collect(),
            };
            let alone = shared.taps() == 1 && keep.is_none();
            let timeout = if alone { TIMEOUT_OF_ONE } else { TIMEOUT };
            let next = shared.pool.next(timeout, keep_from, past);
            if shared.pool.waiting() == 0 {
                self.marks = marks;
            }
            let triggered = shared.triggered.load(Relaxed);
            if let Some(keep) = keep.filter(|_| triggered > 0) {
                self.from = triggered.saturating_sub(keep.keep.0);
                self.until = keep.after.map_or(u64::MAX, |after| triggered.saturating_add(after.0));
                if !shared.options.virtual_time
                    && shared.now() > self.until.saturating_add(ORDER_NS)
                {
                    self.end("after the trigger");
                }
            }
            match next {
                Next::Chunk(chunk) if self.sources.is_empty() && shared.taps() == 1 => {
                    self.write_chunk(chunk)
                }
                Next::Chunk(chunk) => {
                    self.queue(chunk);
                    self.write_in_order(false);
                }
                Next::Idle => self.write_in_order(false),
                Next::End => break,
            }
            if shared.pool.waiting() == 0 {
                let flushed = self.files.as_mut().map_or(Ok(()), Files::flush);
                self.settle(flushed);
                if self.printer.as_mut().is_some_and(|printer| printer.flush().is_err()) {
                    self.end("reader gone");
                }
            }
        }
        self.write_in_order(true);
        if self.error.is_none() {
            let finished = self.files.as_mut().map_or(Ok(()), Files::finish);
            self.settle(finished);
        }
        let printed = self.printer.as_mut().map_or(Ok(()), Printer::flush);
        drop(printed);
        let list = self.files.take().map(|mut files| {
            files.remember();
            files.list
        });
        Done { files: list.unwrap_or_default().into(), error: self.error, ended_by: self.ended_by }
    }

    fn write_chunk(&mut self, chunk: Chunk) {
        self.write(chunk.records(), chunk.run, chunk.source);
        self.shared.pool.give_back(chunk);
    }

    fn queue(&mut self, chunk: Chunk) {
        if self.sources.len() <= chunk.source {
            self.sources.resize_with(chunk.source + 1, VecDeque::new);
        }
        let run = chunk.run;
        self.sources[chunk.source].push_back(Part { chunk, at: 0, run });
    }

    /// Writes the records of all taps in time order, up to the time before which no tap can deliver
    /// further records; `all`: writes every record.
    fn write_in_order(&mut self, all: bool) {
        if self.sources.iter().all(VecDeque::is_empty) {
            return;
        }
        // Without a free chunk the taps cannot deliver more: waiting for them would be a deadlock.
        let all = all || self.shared.pool.is_short();
        let long_ago = match self.shared.options.virtual_time {
            _ if all => u64::MAX,
            true => 0,
            false => self.shared.now().saturating_sub(ORDER_NS),
        };
        loop {
            let heads = self
                .sources
                .iter()
                .enumerate()
                .filter_map(|(i, queue)| Some((queue.front()?.run.first, i)));
            let Some((time, first)) = heads.min() else { break };
            // The earliest record that the other taps can still deliver: their next queued record,
            // or a record that they have not passed on yet.
            let others = (0..self.shared.taps()).filter(|&i| i != first).map(|i| {
                let queued = self.sources.get(i).and_then(|queue| queue.front());
                let mark = || self.marks.get(i).copied().unwrap_or(0).max(long_ago);
                queued.map_or_else(mark, |part| part.run.first)
            });
            let until = others.min().unwrap_or(u64::MAX);
            if time > until {
                break;
            }
            let Some(part) = self.sources[first].pop_front() else { break };
            let Part { chunk, at, run } = part;
            let (mut end, mut now) = (chunk.used, run);
            if run.last > until {
                (end, now) = (at, Run::default());
                while let Some(record) = self.record.read(&chunk.records()[end..]) {
                    if record.time_ns > until && now.packets > 0 {
                        break;
                    }
                    now.add(record.time_ns, record.data.len());
                    end += record.len;
                }
            }
            self.write(&chunk.records()[at..end], now, chunk.source);
            match self.record.read(&chunk.records()[end..]).map(|record| record.time_ns) {
                None => self.shared.pool.give_back(chunk),
                Some(time) => self.sources[first].push_front(Part {
                    chunk,
                    at: end,
                    run: run.minus(now, time),
                }),
            }
        }
    }

    /// Writes consecutive records of one tap, except unwanted ones.
    fn write(&mut self, records: &[u8], run: Run, source: usize) {
        let Run { packets, first, last, .. } = run;
        let stop = self.shared.options.stop;
        let plain = first >= self.from
            && last < self.until
            && packets <= self.left
            && !self.shared.is_over();
        if first < self.last {
            self.shared.written.out_of_order.fetch_add(1, Relaxed);
        }
        self.last = self.last.max(last);
        let len = records.len() as u64;
        let fits = |files: &Files| {
            files.room(len, &run) && stop.octets.is_none_or(|most| files.octets() + len <= most)
        };
        if plain && self.files.as_ref().is_none_or(fits) {
            return self.put(records, run, source);
        }
        // The file or the capture ends within these records.
        let (mut at, mut start, mut run) = (0, 0, Run::default());
        let record = self.record.clone();
        while let Some(placed) = record.read(&records[at..]) {
            let (begin, time) = (at, placed.time_ns);
            at += placed.len;
            let before = time < self.from;
            if before
                || self.shared.is_over()
                || self.is_beyond(time, run.packets, (at - start) as u64)
            {
                self.put(&records[start..begin], run, source);
                let written = &self.shared.written;
                let why = match self.error {
                    _ if before => &written.before,
                    Some(_) => &written.failed,
                    None => &written.after,
                };
                why.fetch_add(1, Relaxed);
                (start, run) = (at, Run::default());
                continue;
            }
            let is_full = |files: &Files| {
                let fresh = run.packets == 0 && files.is_fresh(time);
                let mut with = run;
                with.add(time, 0);
                !fresh && !files.room((at - start) as u64, &with)
            };
            if self.files.as_ref().is_some_and(is_full) {
                self.put(&records[start..begin], run, source);
                (start, run) = (begin, Run::default());
                if self
                    .files
                    .as_ref()
                    .is_some_and(|files| stop.files.is_some_and(|most| files.number() >= most))
                {
                    self.end("files");
                    self.shared.written.after.fetch_add(1, Relaxed);
                    start = at;
                    continue;
                }
                let changed = self.files.as_mut().map_or(Ok(()), Files::change);
                self.settle(changed);
            }
            run.add(time, placed.data.len());
        }
        self.put(&records[start..at], run, source);
    }

    /// Whether the record at `time` exceeds a limit. The `count` records before it are not added
    /// yet; together with it they have `octets` octets.
    fn is_beyond(&mut self, time: u64, count: u64, octets: u64) -> bool {
        let most = self.shared.options.stop.octets;
        let full = |files: &Files| most.is_some_and(|most| files.octets() + octets > most);
        let why = if time >= self.until {
            "after the trigger"
        } else if count >= self.left {
            "packets"
        } else if self.files.as_ref().is_some_and(full) {
            "octets"
        } else {
            return false;
        };
        self.end(why);
        true
    }

    fn put(&mut self, records: &[u8], run: Run, source: usize) {
        if run.packets == 0 {
            return;
        }
        if self.error.is_some() {
            self.shared.written.failed.fetch_add(run.packets, Relaxed);
            return;
        }
        self.left = self.left.saturating_sub(run.packets);
        if let Some(printer) = &mut self.printer {
            let interface = self.shared.tap(source).interface;
            let mut at = 0;
            while let Some(record) = self.record.read(&records[at..]) {
                printer.print(&record, interface);
                at += record.len;
            }
        }
        let result = match &mut self.files {
            Some(files) => files.add(records, run),
            None => {
                self.shared.written.packets.fetch_add(run.packets, Relaxed);
                self.shared.written.octets.fetch_add(run.data, Relaxed);
                Ok(())
            }
        };
        self.settle(result);
        if self.left == 0 {
            self.end("packets");
        }
    }

    /// Handles the result of a write. After a failure nothing more is written, and all further
    /// packets are counted.
    fn settle(&mut self, result: Result<(), Failure>) {
        match result {
            Ok(()) => {}
            Err(Failure::ReaderGone) => self.end("reader gone"),
            Err(Failure::Error(text)) => {
                self.error.get_or_insert(text);
                self.shared.failed.store(true, Relaxed);
                self.end("write error");
            }
        }
    }

    fn end(&mut self, why: &'static str) {
        self.ended_by.get_or_insert(why);
        self.shared.over.store(true, Relaxed);
    }
}
