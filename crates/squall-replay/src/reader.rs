//! Reads captures packet by packet and loop by loop, and fills chunks with frames that are ready to
//! leave.

use std::{
    borrow::Cow,
    collections::VecDeque,
    fs::File,
    io::{self, Read},
    path::Path,
    sync::Arc,
};

use squall_bpf::{classic::Filter, owner};
use squall_edit::{EditError, Editor, Edits, Meta, Numbers};
use squall_measure::flow::Link;
use squall_pcap::{CaptureError, CaptureReader};
use squall_units::{Cannot, Division, Picos};

use crate::{
    Cache, Chunk, Departure, Progress, Schedule, Side, Split, SplitError, Splitter, Stats, Timing,
    Unique,
    split::{Auto, AutoMode, By},
    stats::{self, FlowId, Summary},
};

/// Configuration of a replay.
#[derive(Clone, Debug)]
pub struct Replay {
    /// Captures to send one after the other, or merged by their timestamps.
    pub inputs: Vec<Input>,
    pub merge: bool,
    pub timing: Timing,
    /// Capture time in nanoseconds at which the run begins; by default the time of the first frame.
    pub since: Option<u64>,
    /// Upper limit of the gaps in the capture, nanoseconds.
    pub longest_gap: Option<u64>,
    /// Number of loops; 0: endless.
    pub loops: u64,
    /// Delay between two loops.
    pub loop_delay: Picos,
    /// Maximum number of frames in total.
    pub limit: Option<u64>,
    /// Keep all frames in memory after the first reading.
    pub preload: bool,
    /// No frame leaves until the replay is released.
    pub held: bool,
    pub too_long: TooLong,
    /// The rule that assigns packets to two ports. By default, a host is a client if it sends
    /// before it receives.
    pub split: Option<SplitBy>,
    /// Addresses change with every N-th loop.
    pub unique: Option<u64>,
    /// Edits that apply to every packet.
    pub edits: Edits,
    /// How flows are counted; `None`: not at all.
    pub flows: Option<stats::Settings>,
    /// Frames that the filter rejects are not sent. It is applied to Ethernet frames with their
    /// VLAN tags.
    pub filter: Option<Arc<Filter>>,
    /// Packet numbers, counted over all files from 1. Packets that are not in `include` or that are
    /// in `exclude` are not sent.
    pub include: Option<Numbers>,
    pub exclude: Option<Numbers>,
    /// The share of the conversations to send, chosen by the addresses and ports with which a
    /// packet leaves in the first loop. Packets other than TCP and UDP belong to the first part.
    /// Frames leave at the same time as in an undivided replay.
    pub part: Division,
    /// Return only the frames of this port, at the same times as with both; `None`: the frames of
    /// both ports.
    pub only: Option<u8>,
}

impl Default for Replay {
    /// No captures, sent once, at the captured speed.
    fn default() -> Self {
        Self {
            inputs: Vec::new(),
            merge: false,
            timing: Timing::ORIGINAL,
            since: None,
            longest_gap: None,
            loops: 1,
            loop_delay: Picos(0),
            limit: None,
            preload: false,
            held: false,
            too_long: TooLong::default(),
            split: None,
            unique: None,
            edits: Edits::default(),
            flows: Some(stats::Settings::default()),
            filter: None,
            include: None,
            exclude: None,
            part: Division::WHOLE,
            only: None,
        }
    }
}

/// The rule that determines a packet's port.
#[derive(Clone, Debug)]
pub enum SplitBy {
    /// A cache file. Packets beyond its end are not sent.
    Cache(Arc<Cache>),
    Rule(Box<Split>),
    /// By capture, with merged captures: packets of the first capture leave through the first port.
    Capture,
}

/// Handling of frames that exceed their port's maximum length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TooLong {
    /// The frame is counted and not sent.
    #[default]
    Skip,
    /// The frame is truncated.
    Truncate,
    /// IP packets are fragmented; others are handled as by [`TooLong::Skip`].
    Fragment,
}

/// A capture.
#[derive(Clone)]
pub struct Input {
    /// The capture's name in messages.
    pub name: String,
    pub open: Open,
    /// The capture can be read only once.
    pub once: bool,
}

/// Opens a capture.
pub type Open = Arc<dyn Fn() -> io::Result<Box<dyn Read + Send>> + Send + Sync>;

/// The capture at `path`; `-` is the standard input, which can be read only once.
///
/// ```
/// assert!(squall_replay::input("-".as_ref()).once);
/// ```
pub fn input(path: &Path) -> Input {
    let name = path.display().to_string();
    if name == "-" {
        let open = || Ok(Box::new(io::stdin()) as Box<dyn Read + Send>);
        return Input { name: "standard input".into(), open: Arc::new(open), once: true };
    }
    let path = path.to_owned();
    // A pipe cannot be read a second time.
    let once = path.metadata().is_ok_and(|about| !about.is_file());
    let open = move || File::open(&path).map(|file| Box::new(file) as Box<dyn Read + Send>);
    Input { name, open: Arc::new(open), once }
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Input")
            .field("name", &self.name)
            .field("once", &self.once)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error(transparent)]
    Open(Cannot),
    /// Everything before the error is replayed.
    #[error("{0}")]
    Capture(CaptureError),
    #[error(
        "{0} can only be read once, and there are several loops\n  try --preload, or a \
         file"
    )]
    Once(String),
    #[error("there are no packets to send: {0}")]
    Nothing(String),
    /// The frame is due after the last representable time of a run.
    #[error(
        "{unsent} of {asked} packets are due more than 106 days after the start, where every run \
         ends; try --maxsleep, or a higher speed"
    )]
    Beyond { unsent: u64, asked: u64 },
    #[error(transparent)]
    Split(#[from] SplitError),
    #[error(
        "{0} can only be read once, and must be read completely to find clients and servers\n  try \
         auto=first, or a file"
    )]
    Learn(String),
    #[error(transparent)]
    Edit(#[from] EditError),
}

/// Packets read, by result. A packet that is read again in a later loop counts again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub packets: u64,
    pub octets: u64,
    /// Not sent because of the filter or the packet numbers.
    pub unwanted: u64,
    /// Not sent because the split rule assigns them to neither port.
    pub sideless: u64,
    /// Not sent because an edit dropped them.
    pub edited_out: u64,
    /// Not sent because they exceed their port's maximum length.
    pub too_long: u64,
    /// Not sent because they cannot be converted to Ethernet frames.
    pub not_ethernet: u64,
    /// Captured with fewer octets than were on the wire.
    pub cut: u64,
}

/// Results for the frames of one port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Frames passed to the port: `successful` plus `failed`.
    pub attempted: u64,
    pub successful: u64,
    pub failed: u64,
    /// Octets of the successful frames, without FCS.
    pub octets: u64,
    /// Frames truncated to the port's maximum length.
    pub truncated: u64,
}

/// Extent of one loop of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Frames and octets per port.
    pub ports: Vec<(u64, u64)>,
    /// When the last frame is due.
    pub last: Picos,
    /// When the next loop begins.
    pub end: Picos,
    /// The first frame that is due after the given time: its 1-based number, and when it is due.
    pub beyond: Option<(u64, Picos)>,
    /// The loop was read to its end.
    pub whole: bool,
}

/// Maximum octets that a survey reads, which takes some 10 ms.
const SURVEYED: u64 = 16 << 20;

/// A running replay: fills chunks with its frames.
pub struct Reader {
    replay: Replay,
    pass: Pass,
    gathered: Gathered,
    /// With [`Replay::preload`], all frames of a loop, and the read position among them.
    stored: Vec<Gathered>,
    next: usize,
    departing: Departing,
    sent: Vec<Sent>,
    /// For each loop that was read but not completely sent: the number of frames up to its end,
    /// over all loops.
    ends: VecDeque<u64>,
    loops_sent: u64,
    stats: Option<Stats>,
    /// Frames of previous loops: in total, of this part, and per port.
    frames_before: u64,
    of_part_before: u64,
    before: Vec<u64>,
    /// Frames per port in the last loop that was read completely.
    of_loop: Vec<u64>,
    fault: Option<ReplayError>,
    over: bool,
}

impl Reader {
    /// Opens the captures. `ports` are the maximum frame lengths of the ports, in octets without
    /// FCS; with [`Replay::only`], only that port's. With [`Replay::preload`], reads all captures.
    ///
    /// # Errors
    /// [`ReplayError`]. Damage within a capture is not an error here: the part before it is
    /// replayed.
    ///
    /// # Panics
    /// If there are no ports, or more than 127.
    pub fn open(replay: Replay, ports: Vec<u32>) -> Result<Self, ReplayError> {
        assert!((1..128).contains(&ports.len()), "a replay has 1 to 127 ports");
        let ports = if replay.only.is_some() { vec![ports[0]; 2] } else { ports };
        if let Some(input) =
            replay.inputs.iter().find(|input| input.once && !replay.preload && replay.loops != 1)
        {
            return Err(ReplayError::Once(input.name.clone()));
        }
        let ports_count = ports.len();
        let sent = vec![Sent::default(); ports_count];
        let mut source = Self {
            pass: Pass::new(ports, &replay),
            gathered: Gathered::default(),
            stored: Vec::new(),
            next: 0,
            departing: Departing::new(&replay, ports_count),
            sent,
            ends: VecDeque::new(),
            loops_sent: 0,
            stats: replay.flows.map(Stats::new),
            frames_before: 0,
            of_part_before: 0,
            before: vec![0; ports_count],
            of_loop: vec![0; ports_count],
            fault: None,
            over: false,
            replay,
        };
        source.pass.learn(&source.replay.inputs)?;
        source.pass.begin(&source.replay)?;
        if source.replay.preload {
            source.preload();
        }
        Ok(source)
    }

    /// Reads the first loop before a run, up to a limit that keeps this quick. `None` if an input
    /// can be read only once, or has to be read twice anyway.
    ///
    /// # Errors
    /// As for [`Reader::open`]. Errors within captures are left to the run.
    ///
    /// # Panics
    /// As for [`Reader::open`].
    pub fn survey(
        replay: &Replay,
        ports: Vec<u32>,
        horizon: Picos,
    ) -> Result<Option<Survey>, ReplayError> {
        let learns = Pass::new(ports.clone(), replay).learns();
        if learns || replay.inputs.iter().any(|input| input.once) {
            return Ok(None);
        }
        let once = Replay { loops: 1, preload: false, flows: None, ..replay.clone() };
        let mut reader = Self::open(once, ports)?;
        let mut survey = Survey { ports: vec![(0, 0); reader.sent.len()], ..Survey::default() };
        let (mut chunk, mut number, mut octets) = (Chunk::default(), 0, 0);
        while octets < SURVEYED {
            match reader.fill(&mut chunk) {
                Ok(true) => {}
                Ok(false) => {
                    survey.whole = true;
                    break;
                }
                Err(_) => break,
            }
            for frame in &chunk.departures {
                number += 1;
                octets += u64::from(frame.len);
                let port = &mut survey.ports[usize::from(frame.port)];
                *port = (port.0 + 1, port.1 + u64::from(frame.len));
                if frame.due != Departure::AT_ONCE {
                    survey.last = frame.due;
                    if frame.due > horizon {
                        survey.beyond.get_or_insert((number, frame.due));
                    }
                }
            }
        }
        survey.end = Picos(reader.departing.schedule.end().0.saturating_add(replay.loop_delay.0));
        Ok(Some(survey))
    }

    /// The number of frames per port that were never passed to that port. Reads the captures to the
    /// end of a loop to count them. `None` for an endless replay.
    ///
    /// # Errors
    /// As for [`Reader::fill`].
    pub fn unsent(&mut self) -> Result<Option<Vec<u64>>, ReplayError> {
        let mut chunk = Chunk::default();
        while !self.over && self.departing.loops == 0 {
            self.fill(&mut chunk)?;
        }
        let asked: Vec<u64> = if self.over {
            self.departing.of_ports.clone()
        } else {
            // Each loop has as many frames as the one before.
            let loops = match (self.replay.loops, self.replay.limit) {
                (0, None) => return Ok(None),
                (0, Some(_)) => u64::MAX,
                (loops, _) => loops - self.departing.loops,
            };
            let mut room = self.departing.limit.saturating_sub(self.frames_before);
            let ported = self.before.iter().zip(&self.of_loop).map(|(before, of_loop)| {
                let more = of_loop.saturating_mul(loops).min(room);
                room -= more;
                before.saturating_add(more)
            });
            ported.collect()
        };
        let sent = self.sent.iter().map(|sent| sent.attempted);
        Ok(Some(asked.iter().zip(sent).map(|(asked, sent)| asked - sent).collect()))
    }

    fn preload(&mut self) {
        loop {
            match self.pass.gather(&self.replay.inputs, &mut self.stats, &mut self.gathered) {
                Ok(true) => self.stored.push(self.gathered.compact()),
                Ok(false) => return,
                // The error is reported after all frames before it were sent.
                Err(fault) => {
                    self.fault = Some(fault);
                    return;
                }
            }
        }
    }

    /// Fills `chunk` with the next frames. Returns whether there are any. An error is returned only
    /// after all frames before it, and ends the replay.
    ///
    /// # Errors
    /// [`ReplayError`]: a capture that is damaged, missing, or has no frames.
    pub fn fill(&mut self, chunk: &mut Chunk) -> Result<bool, ReplayError> {
        chunk.clear();
        while !self.over && !chunk.is_full() {
            self.add(chunk);
            // All frames in the full chunk belonged to other parts.
            if chunk.is_full() && chunk.departures.is_empty() {
                chunk.clear();
            }
        }
        if chunk.departures.is_empty() {
            return self.fault.take().map_or(Ok(false), Err);
        }
        Ok(true)
    }

    /// Adds the next frames of this loop, or starts the next loop.
    fn add(&mut self, chunk: &mut Chunk) {
        let found = match (self.replay.preload, self.stored.get(self.next)) {
            (true, Some(stored)) => {
                self.next += 1;
                self.departing.add(stored, chunk);
                true
            }
            (true, None) => false,
            (false, _) => {
                match self.pass.gather(&self.replay.inputs, &mut self.stats, &mut self.gathered) {
                    Ok(true) => {
                        self.departing.add(&self.gathered, chunk);
                        true
                    }
                    Ok(false) => false,
                    Err(fault) => {
                        self.fault = Some(fault);
                        false
                    }
                }
            }
        };
        self.over |= self.departing.is_over();
        if !found && !self.over {
            self.turn();
        }
    }

    /// Handles the end of a loop.
    fn turn(&mut self) {
        let given = self.departing.given - self.frames_before;
        self.frames_before = self.departing.given;
        let of_part = self.departing.of_part - self.of_part_before;
        self.of_part_before = self.departing.of_part;
        let of_ports = &self.departing.of_ports;
        for (i, all) in of_ports.iter().enumerate() {
            self.of_loop[i] = all - std::mem::replace(&mut self.before[i], *all);
        }
        self.departing.loops += 1;
        let all = self.replay.loops != 0 && self.departing.loops >= self.replay.loops;
        if self.fault.is_none() {
            self.ends.push_back(self.departing.of_part);
        }
        if given == 0 && self.fault.is_none() {
            self.fault = Some(ReplayError::Nothing(self.pass.tally.reasons()));
        }
        // Each loop has the same frames as the one before.
        if all || self.fault.is_some() || of_part == 0 {
            self.over = true;
            return;
        }
        self.departing.is_new_loop = true;
        self.next = 0;
        if !self.replay.preload
            && let Err(fault) = self.pass.begin(&self.replay)
        {
            (self.fault, self.over) = (Some(fault), true);
        }
    }

    /// Records the results of the frames in a chunk that the sender returned.
    pub fn observe(&mut self, chunk: &Chunk) {
        let mut changes = chunk.changes.iter().peekable();
        for (i, frame) in chunk.departures.iter().enumerate() {
            if matches!(frame.progress, Progress::Waiting | Progress::UnderWay) {
                continue;
            }
            while let (Some((_, change)), Some(stats)) =
                (changes.next_if(|(first, _)| *first <= i), &mut self.stats)
            {
                stats.addresses_change(*change);
            }
            let sent = &mut self.sent[usize::from(frame.port)];
            sent.attempted += 1;
            if frame.progress == Progress::Failed {
                sent.failed += 1;
                continue;
            }
            sent.successful += 1;
            sent.octets += u64::from(frame.len);
            sent.truncated += u64::from(frame.truncated);
            if let Some(stats) = &mut self.stats {
                stats.sent(frame.flow, frame.len, frame.time_ns);
            }
        }
        let attempted: u64 = self.sent.iter().map(|sent| sent.attempted).sum();
        while attempted > 0 && self.ends.pop_front_if(|end| *end <= attempted).is_some() {
            self.loops_sent += 1;
        }
    }

    /// Statistics of sent flows; `None` if they are not counted.
    pub fn flows(&self) -> Option<Summary> {
        self.stats.as_ref().map(Stats::result)
    }

    /// Counters of edits.
    pub fn edited(&self) -> squall_edit::Counts {
        let mut counts = self.pass.edited.clone();
        if let Some(editor) = &self.pass.editor {
            counts.merge(editor.counts());
        }
        counts
    }

    /// Results by port.
    pub fn sent(&self) -> &[Sent] {
        &self.sent
    }

    pub fn is_held(&self) -> bool {
        self.replay.held
    }

    /// Packets read so far.
    pub fn tally(&self) -> Tally {
        self.pass.tally
    }

    /// Number of loops whose frames were all processed.
    pub fn loops(&self) -> u64 {
        self.loops_sent
    }

    /// Number of frames with an earlier timestamp than one before them; they leave right after it.
    pub fn backward(&self) -> u64 {
        self.departing.schedule.backward()
    }
}

impl Tally {
    fn reasons(&self) -> String {
        if self.packets == 0 {
            return "the capture is empty".to_owned();
        }
        let kinds = [
            (self.unwanted, "left out by filter or numbers"),
            (self.sideless, "neither from a client nor from a server"),
            (self.edited_out, "dropped by the edits"),
            (self.too_long, "too long for their port"),
            (self.not_ethernet, "not Ethernet"),
        ];
        let counts: Vec<_> =
            kinds.iter().filter(|r| r.0 > 0).map(|(n, kind)| format!("{n} are {kind}")).collect();
        format!("of {} read, {}", self.packets, counts.join(", "))
    }
}

/// Frames kept as read, to be sent again in every loop.
#[derive(Debug, Default)]
struct Gathered {
    octets: Vec<u8>,
    /// Capture times, nanoseconds since 1970.
    times: Vec<u64>,
    marks: Vec<Mark>,
    flows: Vec<FlowId>,
}

/// Length, port, whether the frame was truncated, and whether it is the first of a capture. With
/// time and flow this takes 16 octets, as much as a pcap record header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark(u32);

impl Mark {
    fn new(len: usize, port: u8, truncated: bool, begins: bool) -> Self {
        Self(
            len as u32
                | u32::from(truncated) << 23
                | u32::from(port) << 24
                | u32::from(begins) << 31,
        )
    }

    fn truncated(self) -> bool {
        self.0 >> 23 & 1 != 0
    }

    fn len(self) -> u32 {
        self.0 & MAX_FRAME_LEN
    }

    fn port(self) -> u8 {
        (self.0 >> 24) as u8 & 0x7f
    }

    fn begins(self) -> bool {
        self.0 >> 31 != 0
    }
}

/// Maximum length of a frame; the capture readers enforce it.
const MAX_FRAME_LEN: u32 = 0x7f_ffff;

impl Gathered {
    fn clear(&mut self) {
        self.octets.clear();
        self.times.clear();
        self.marks.clear();
        self.flows.clear();
    }

    fn is_full(&self) -> bool {
        self.octets.len() >= Chunk::OCTETS || self.marks.len() >= Chunk::FRAMES
    }

    /// Adds a frame; its flow is found later, together with those of the others.
    fn push(&mut self, octets: &[u8], time_ns: u64, mark: Mark) {
        self.octets.extend_from_slice(octets);
        self.times.push(time_ns);
        self.marks.push(mark);
    }

    /// Finds the flows of all frames.
    fn find_flows(&mut self, stats: &mut Option<Stats>) {
        let Self { octets, marks, flows, .. } = self;
        let Some(stats) = stats else { return flows.resize(marks.len(), FlowId::default()) };
        let mut rest = octets.as_slice();
        let frames = marks.iter().map(|mark| {
            let (frame, after) = rest.split_at(mark.len() as usize);
            rest = after;
            frame
        });
        stats.flows_of(frames, flows);
    }

    /// Copies the frames without spare capacity.
    fn compact(&self) -> Self {
        Self {
            octets: self.octets.clone(),
            times: self.times.clone(),
            marks: self.marks.clone(),
            flows: self.flows.clone(),
        }
    }
}

/// State that changes with each loop.
struct Departing {
    schedule: Schedule,
    loop_delay: Picos,
    unique: Option<Unique>,
    limit: u64,
    given: u64,
    /// The frames that belong to this part, in total and per port.
    of_part: u64,
    of_ports: Vec<u64>,
    part: Division,
    parts: Option<Filter>,
    only: Option<u8>,
    /// Completed loops.
    loops: u64,
    /// The next frame is the first of a later loop.
    is_new_loop: bool,
    /// Capture time of the file's first frame, time elapsed before it, and time elapsed so far.
    first: u64,
    before: u64,
    passed: u64,
}

impl Departing {
    fn new(replay: &Replay, ports: usize) -> Self {
        Self {
            schedule: Schedule::new(replay.timing, replay.longest_gap).since(replay.since),
            loop_delay: replay.loop_delay,
            unique: replay.unique.map(|loops| Unique::new(loops.max(1), Link::Ethernet)),
            limit: replay.limit.unwrap_or(u64::MAX),
            given: 0,
            of_part: 0,
            of_ports: vec![0; ports],
            part: replay.part,
            parts: (!replay.part.is_whole()).then(|| {
                let program = owner::program(replay.part.of(), owner::PacketView::Frame);
                Filter::new(program).expect("a program of ours is valid")
            }),
            only: replay.only,
            loops: 0,
            is_new_loop: false,
            first: 0,
            before: 0,
            passed: 0,
        }
    }

    fn is_over(&self) -> bool {
        self.given >= self.limit
    }

    /// Adds as many of `frames` to `chunk` as fit.
    fn add(&mut self, frames: &Gathered, chunk: &mut Chunk) {
        let mut offset = chunk.octets.len() as u32;
        chunk.octets.extend_from_slice(&frames.octets);
        let change = self.unique.map(|unique| unique.change(self.loops));
        if let Some(unique) = self.unique {
            chunk.changes.push((chunk.departures.len(), unique.change_number(self.loops)));
        }
        chunk.rest = self.loop_delay;
        let (mut given, of_part) = (0, chunk.departures.len());
        for ((&time_ns, &mark), &flow) in frames.times.iter().zip(&frames.marks).zip(&frames.flows)
        {
            if self.given + given >= self.limit {
                break;
            }
            let mut rests = false;
            if mark.begins() {
                let delay =
                    if std::mem::take(&mut self.is_new_loop) { self.loop_delay } else { Picos(0) };
                self.schedule.begin(delay);
                rests = delay > Picos(0);
                (self.first, self.before) = (time_ns, self.passed);
            }
            self.passed =
                self.passed.max(self.before.saturating_add(time_ns.saturating_sub(self.first)));
            let len = mark.len();
            let due = self.schedule.next(time_ns, len);
            given += 1;
            if self.only.is_some_and(|port| port != mark.port()) {
                offset += len;
                continue;
            }
            if let Some(parts) = &self.parts {
                let octets = &chunk.octets[offset as usize..][..len as usize];
                if parts.run(octets, len) != self.part.index() {
                    offset += len;
                    continue;
                }
            }
            if let Some(change) = &change {
                change.apply(&mut chunk.octets[offset as usize..][..len as usize]);
            }
            let port = if self.only.is_some() { 0 } else { mark.port() };
            self.of_ports[usize::from(port)] += 1;
            chunk.departures.push(Departure {
                due,
                time_ns: self.passed,
                offset,
                len,
                flow,
                port,
                rests: rests && due == Departure::AT_ONCE,
                truncated: mark.truncated(),
                progress: Progress::Waiting,
            });
            offset += len;
        }
        self.given += given;
        self.of_part += (chunk.departures.len() - of_part) as u64;
    }
}

/// One pass over all captures.
struct Pass {
    ports: Vec<u32>,
    too_long: TooLong,
    merge: bool,
    filter: Option<Arc<Filter>>,
    include: Option<Numbers>,
    exclude: Option<Numbers>,
    chooser: Option<Chooser>,
    editor: Option<Editor>,
    /// Edit counters of earlier passes.
    edited: squall_edit::Counts,
    heads: Vec<Head>,
    /// Number of packets read in this pass.
    number: u64,
    /// Index of the capture to open next.
    next: usize,
    /// The next frame is the first of its capture, or of all captures.
    begins: bool,
    tally: Tally,
}

/// Determines a packet's port.
enum Chooser {
    Cache(Arc<Cache>),
    Rule(Box<Splitter>),
    Capture,
}

impl Chooser {
    fn new(split: &SplitBy) -> Self {
        match split {
            SplitBy::Cache(cache) => Self::Cache(cache.clone()),
            SplitBy::Rule(split) => Self::Rule(Box::new(Splitter::new(split, Link::Ethernet))),
            SplitBy::Capture => Self::Capture,
        }
    }

    #[inline]
    fn side(&mut self, octets: &[u8], number: u64, which: usize) -> Side {
        match self {
            Self::Capture if which == 0 => Side::Primary,
            Self::Capture => Side::Secondary,
            Self::Cache(cache) => cache.side(number).unwrap_or(Side::Skip),
            Self::Rule(splitter) => splitter.side(octets, number),
        }
    }
}

/// An open capture, with some packets read ahead.
struct Head {
    name: String,
    reader: CaptureReader<Box<dyn Read + Send>>,
    octets: Vec<u8>,
    packets: Vec<Held>,
    at: usize,
    fault: Option<ReplayError>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    time_ns: u64,
    begin: usize,
    end: usize,
    wire_len: u32,
    link_type: u16,
}

impl Pass {
    fn new(ports: Vec<u32>, replay: &Replay) -> Self {
        let first_seen = SplitBy::Rule(Box::new(Split::new(By::Auto(Auto {
            mode: AutoMode::First,
            ..Auto::default()
        }))));
        let default = (ports.len() > 1).then_some(&first_seen);
        Self {
            chooser: replay.split.as_ref().or(default).map(Chooser::new),
            editor: None,
            edited: squall_edit::Counts::default(),
            ports,
            too_long: replay.too_long,
            merge: replay.merge,
            filter: replay.filter.clone(),
            include: replay.include.clone(),
            exclude: replay.exclude.clone(),
            heads: Vec::new(),
            number: 0,
            next: 0,
            begins: true,
            tally: Tally::default(),
        }
    }

    /// Whether all packets must be read before the first is sent.
    fn learns(&self) -> bool {
        matches!(&self.chooser, Some(Chooser::Rule(splitter)) if splitter.must_learn())
    }

    /// Passes all packets to a rule that must see them before it can assign sides.
    fn learn(&mut self, inputs: &[Input]) -> Result<(), ReplayError> {
        let Some(Chooser::Rule(splitter)) = &mut self.chooser else { return Ok(()) };
        if !splitter.must_learn() {
            return Ok(());
        }
        let mut number = 0;
        for input in inputs {
            if input.once {
                return Err(ReplayError::Learn(input.name.clone()));
            }
            let mut head = Head::open(input)?;
            while !head.packets.is_empty() {
                for held in &head.packets {
                    number += 1;
                    if let Ok(octets) = held.ethernet(&head.octets) {
                        splitter.learn(&octets, number);
                    }
                }
                head.refill();
            }
        }
        Ok(splitter.learned()?)
    }

    fn begin(&mut self, replay: &Replay) -> Result<(), ReplayError> {
        let inputs = &replay.inputs;
        self.edits(replay)?;
        (self.next, self.number, self.begins) = (0, 0, true);
        self.heads.clear();
        self.open_next(inputs)?;
        while self.merge && self.next < inputs.len() {
            self.open_next(inputs)?;
        }
        Ok(())
    }

    /// Creates a new editor for the pass, so every loop is edited in the same way.
    fn edits(&mut self, replay: &Replay) -> Result<(), ReplayError> {
        let mut edits = replay.edits.clone();
        if replay.too_long == TooLong::Fragment {
            // The maximum length of the port with the shortest frames, less the headers before the
            // packet.
            let shortest = self
                .ports
                .iter()
                .min()
                .map_or(u32::MAX, |most| most.saturating_sub(ETHERNET_AND_TAG));
            edits.fragment = Some(edits.fragment.unwrap_or(u32::MAX).min(shortest));
        }
        if let Some(before) = self.editor.take() {
            self.edited.merge(before.counts());
        }
        if !edits.is_empty() {
            let editor = Editor::new(&edits, ETHERNET)?;
            if editor.link_type() != ETHERNET {
                let text = "a replay sends only Ethernet\n  try --dlt enet".into();
                return Err(EditError { option: "dlt", text }.into());
            }
            self.editor = Some(editor);
        }
        Ok(())
    }

    /// Opens the next capture. Returns whether there was one.
    fn open_next(&mut self, inputs: &[Input]) -> Result<bool, ReplayError> {
        let Some(input) = inputs.get(self.next) else { return Ok(false) };
        self.next += 1;
        self.heads.push(Head::open(input)?);
        Ok(true)
    }

    /// Fills `frames`. Returns false at the end.
    fn gather(
        &mut self,
        inputs: &[Input],
        stats: &mut Option<Stats>,
        frames: &mut Gathered,
    ) -> Result<bool, ReplayError> {
        frames.clear();
        while !frames.is_full() {
            let Some(which) = self.earliest() else {
                if let Some(fault) = self.heads.iter_mut().find_map(|head| head.fault.take()) {
                    // Return the frames before the error first.
                    if !frames.marks.is_empty() {
                        self.heads[0].fault = Some(fault);
                        break;
                    }
                    return Err(fault);
                }
                self.heads.clear();
                match self.open_next(inputs) {
                    Ok(true) => {
                        self.begins = true;
                        continue;
                    }
                    Ok(false) => break,
                    // The next call reports this error.
                    Err(_) if !frames.marks.is_empty() => {
                        self.next -= 1;
                        break;
                    }
                    Err(fault) => return Err(fault),
                }
            };
            self.take(which, frames);
        }
        frames.find_flows(stats);
        Ok(!frames.marks.is_empty())
    }

    /// The capture whose next packet is the earliest.
    fn earliest(&self) -> Option<usize> {
        let heads = self.heads.iter().enumerate();
        heads
            .filter_map(|(i, head)| Some((head.packets.get(head.at)?.time_ns, i)))
            .min()
            .map(|(_, i)| i)
    }

    fn take(&mut self, which: usize, frames: &mut Gathered) {
        let head = &mut self.heads[which];
        let held = head.packets[head.at];
        head.at += 1;
        self.number += 1;
        self.tally.packets += 1;
        self.tally.octets += (held.end - held.begin) as u64;
        self.tally.cut += u64::from(((held.end - held.begin) as u32) < held.wire_len);
        let Self { ports, tally, begins, editor, chooser, number, .. } = self;
        let Ok(octets) = held.ethernet(&head.octets) else {
            tally.not_ethernet += 1;
            return head.advance();
        };
        let number = *number;
        let listed = self.include.as_ref().is_none_or(|numbers| numbers.hold(number))
            && !self.exclude.as_ref().is_some_and(|numbers| numbers.hold(number));
        if !listed
            || self.filter.as_ref().is_some_and(|filter| filter.run(&octets, held.wire_len) == 0)
        {
            tally.unwanted += 1;
            return head.advance();
        }
        let side = chooser.as_mut().map(|chooser| chooser.side(&octets, number, which));
        let port = match side {
            None | Some(Side::Primary) => 0,
            Some(Side::Secondary) => (ports.len() - 1).min(1),
            Some(Side::Skip) => {
                tally.sideless += 1;
                return head.advance();
            }
        };
        let most = ports[port].min(MAX_FRAME_LEN) as usize;
        let mut put = |octets: &[u8], time_ns: u64| {
            let truncated = octets.len() > most;
            if truncated && self.too_long != TooLong::Truncate {
                tally.too_long += 1;
                return;
            }
            let octets = &octets[..octets.len().min(most)];
            let mark = Mark::new(octets.len(), port as u8, truncated, std::mem::take(begins));
            frames.push(octets, time_ns, mark);
        };
        match editor {
            None => put(&octets, held.time_ns),
            Some(editor) => {
                let wire_len = held.wire_len.max(octets.len() as u32);
                let side = side.and_then(Side::sender);
                let meta = Meta { time_ns: held.time_ns, wire_len, number, side };
                let mut made = 0;
                editor.edit(&octets, meta, &mut |octets, meta| {
                    made += 1;
                    put(octets, meta.time_ns);
                });
                tally.edited_out += u64::from(made == 0);
            }
        }
        head.advance();
    }
}

/// LINKTYPE_ETHERNET.
const ETHERNET: u16 = 1;
/// Octets of an Ethernet header with one VLAN tag.
const ETHERNET_AND_TAG: u32 = 18;

impl Held {
    /// The packet as an Ethernet frame.
    fn ethernet<'a>(&self, octets: &'a [u8]) -> Result<Cow<'a, [u8]>, String> {
        let octets = &octets[self.begin..self.end];
        match self.link_type {
            ETHERNET => Ok(Cow::Borrowed(octets)),
            link_type => squall_wire::link::to_ethernet(link_type, octets).map(Cow::Owned),
        }
    }
}

impl Head {
    fn open(input: &Input) -> Result<Self, ReplayError> {
        let name = input.name.clone();
        let read =
            (input.open)().map_err(|error| ReplayError::Open(Cannot::read(&name, &error)))?;
        let reader = CaptureReader::from_read(read).map_err(|error| at_fault(&name, error))?;
        let mut head =
            Self { name, reader, octets: Vec::new(), packets: Vec::new(), at: 0, fault: None };
        head.refill();
        Ok(head)
    }

    /// Advances to the next packet.
    fn advance(&mut self) {
        if self.at == self.packets.len() {
            self.refill();
        }
    }

    fn refill(&mut self) {
        self.octets.clear();
        self.packets.clear();
        self.at = 0;
        match self.reader.next_batch() {
            Ok(batch) => {
                for packet in batch.iter() {
                    let begin = self.octets.len();
                    self.octets.extend_from_slice(packet.data);
                    self.packets.push(Held {
                        time_ns: packet.time_ns,
                        begin,
                        end: self.octets.len(),
                        wire_len: packet.wire_len,
                        link_type: packet.link_type.0,
                    });
                }
            }
            Err(error) => {
                self.fault = Some(at_fault(&self.name, error));
            }
        }
    }
}

fn at_fault(name: &str, error: CaptureError) -> ReplayError {
    ReplayError::Capture(CaptureError { path: Some(name.into()), ..error })
}

#[cfg(test)]
mod tests;
