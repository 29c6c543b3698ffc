//! One end of a connection (RFC 9113).
//!
//! Nothing that the peer does makes a connection grow beyond [`Limits`]: field blocks, answers,
//! resets and empty frames are bounded, and data are given on where they lie.

use std::{fmt, mem};

use super::{
    Cause, Code, Counters, Error, Events, FRAME_HEADER, Fields, Head, HeadKind, Limits, PREFACE,
    PeerSettings, StreamId, Why,
    frame::{self, Header, flag, kind},
    settings::{DEFAULT_WINDOW, FRAME, MAX_WINDOW, setting},
    stream::{ANY_LENGTH, Stream},
    validate,
};
use crate::hpack::{DEFAULT_TABLE, Decoder, Encoder, Field, HpackError};

/// Which end a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Client,
    Server,
}

/// Why no stream can be opened now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// As many are open as the peer allows: wait for the end of one, or for new settings.
    Streams,
    /// One of both ends is going away, or the connection has ended.
    GoingAway,
    /// All numbers are used (RFC 9113 section 5.1.1): a new connection is needed.
    Ids,
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Streams => "cannot open a stream: the peer allows no more at a time",
            Self::GoingAway => "cannot open a stream: the connection is going away",
            Self::Ids => "cannot open a stream: the connection has used all numbers",
        })
    }
}

impl std::error::Error for Blocked {}

/// Buffers that connections need only while they read. One serves all connections of a thread.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    pub(crate) text: Vec<u8>,
    pub(crate) octets: Vec<u8>,
    pub(crate) lengths: Vec<(u32, u32)>,
    /// The block whose fields are in `octets` and `lengths`, with its coding and their size, if it
    /// has used no dynamic table. Servers without one send the same block for all requests of a
    /// second, because the only field that changes is the date.
    last: Vec<u8>,
    last_of: Coding,
    last_size: u32,
    /// The number of the block whose fields are in `octets` and `lengths`.
    number: u64,
    /// The response that these fields are, if they were found to be one.
    response: Option<validate::Message>,
}

/// How the fields of a block are coded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Coding {
    #[default]
    Hpack,
    Qpack,
}

impl Scratch {
    /// Octets on the heap: at most some times [`Limits::head`] and [`Limits::block`].
    pub fn memory(&self) -> usize {
        let lengths = self.lengths.capacity() * size_of::<(u32, u32)>();
        self.text.capacity() + self.octets.capacity() + self.last.capacity() + lengths
    }

    /// The size of the fields of `block`, if they are here already, and are no longer than `most`.
    pub(crate) fn known(&self, coding: Coding, block: &[u8], most: u32) -> Option<u32> {
        let same = !block.is_empty() && block == self.last && coding == self.last_of;
        Some(self.last_size).filter(|size| same && *size <= most)
    }

    /// Forgets the last block, before another is decoded.
    pub(crate) fn clear(&mut self) {
        self.last.clear();
        self.octets.clear();
        self.lengths.clear();
        self.number += 1;
        self.response = None;
    }

    /// The fields of the last block.
    pub(crate) fn fields(&self) -> Fields<'_> {
        Fields { octets: &self.octets, lengths: &self.lengths, number: self.number }
    }

    /// The response that the fields of the last block are; `None`: they are none.
    pub(crate) fn response(&mut self) -> Option<validate::Message> {
        self.response = self.response.or_else(|| validate::response(self.fields()));
        self.response
    }

    /// Remembers a block that has used no dynamic table, all of whose fields are here.
    pub(crate) fn remember(&mut self, coding: Coding, block: &[u8], size: u32) {
        self.last.extend_from_slice(block);
        (self.last_of, self.last_size) = (coding, size);
    }
}

/// Streams that were reset here and of which frames may be on their way: the oldest are forgotten.
const REMEMBERED: u8 = 16;
/// Octets that wait to be sent, above which a peer may open no further stream. Resets by the caller
/// are among them, which no other bound counts.
const PENDING: usize = 4 << 10;
/// The largest number of a stream (RFC 9113 section 5.1.1).
const LAST: u32 = (1 << 31) - 1;

/// One end of a connection. See the [module](super).
#[derive(Clone, Debug)]
pub struct Connection {
    /// In order of their numbers.
    streams: Vec<Stream>,
    /// The field block that is being received, if it is split.
    block: Vec<u8>,
    /// Frames that are due.
    pending: Vec<u8>,
    encoder: Encoder,
    decoder: Decoder,
    peer: PeerSettings,

    /// The frame that is being received, and the octets of it that have not come.
    frame: Header,
    left: u32,
    /// The beginning of a frame's header, or of the next unit of its payload, if split.
    partial: [u8; FRAME_HEADER],
    have: u8,
    in_frame: bool,
    /// DATA: padding at the end, whether its length is still to come, and whether the data are for
    /// the caller.
    pad: u8,
    padded: bool,
    deliver: bool,
    /// Field blocks, across frames: the stream, or 0; the promised stream, or 0; octets of
    /// complete frames; number of CONTINUATION frames; END_STREAM; a dependency on itself.
    block_stream: u32,
    promised: u32,
    block_done: u32,
    continuations: u8,
    block_end: bool,
    dependent: bool,

    /// Octets that this end may send; that the peer may send; that were consumed, and not yet
    /// returned to the peer by WINDOW_UPDATE.
    send: i32,
    receive: u32,
    credit: u32,
    /// Octets that the peer may send on a new stream.
    window: u32,

    /// The highest stream that the peer has opened; the next one of this end.
    last_peer: u32,
    next: u32,
    /// The highest number that the peer has left out, and the highest stream that was reset here
    /// and forgotten.
    skipped: u32,
    forgotten: u32,

    resets: u16,
    empty: u16,
    /// Answers among `pending`: octets and number.
    answers: u16,
    unanswered: u8,
    /// Streams among `streams` that were reset here.
    reset: u8,
    /// Octets of the preface that have come.
    preface: u8,
    role: Role,
    settings_seen: bool,
    settings_acked: bool,
    credit_due: bool,
    /// Whether a window that holds for all streams has grown.
    grown: bool,
    going_away: bool,
    peer_going_away: bool,
    over: bool,
}

/// Where a stream is.
enum Place {
    At(usize),
    Idle,
    Closed,
    /// Reset or refused here, or not processed: the peer may not know yet.
    Late,
}

fn wrong(code: Code, why: Why) -> Error {
    Error { code, why }
}

fn protocol(why: Why) -> Error {
    wrong(Code::PROTOCOL_ERROR, why)
}

impl Connection {
    /// A client's end. The preface and the settings are in the first octets to send. `fixed`: how
    /// many numbers [`Field::Fixed`] has on this connection.
    pub fn client(limits: &Limits, fixed: u16) -> Self {
        Self::new(Role::Client, limits, fixed)
    }

    /// A server's end. The settings are in the first octets to send.
    pub fn server(limits: &Limits, fixed: u16) -> Self {
        Self::new(Role::Server, limits, fixed)
    }

    fn new(role: Role, limits: &Limits, fixed: u16) -> Self {
        let settings = &limits.settings;
        let mut pending = vec![];
        if role == Role::Client {
            pending.extend_from_slice(PREFACE);
        }
        frame::settings(settings.list(), &mut pending);
        if settings.connection_window > DEFAULT_WINDOW {
            frame::window_update(0, settings.connection_window - DEFAULT_WINDOW, &mut pending);
        }
        Self {
            streams: vec![],
            block: vec![],
            pending,
            encoder: Encoder::new(fixed),
            // Until the peer knows the setting, it may use the default.
            decoder: Decoder::new(settings.header_table.max(DEFAULT_TABLE)),
            peer: PeerSettings::default(),
            frame: Header::default(),
            left: 0,
            partial: [0; FRAME_HEADER],
            have: 0,
            in_frame: false,
            pad: 0,
            padded: false,
            deliver: false,
            block_stream: 0,
            promised: 0,
            block_done: 0,
            continuations: 0,
            block_end: false,
            dependent: false,
            send: DEFAULT_WINDOW as i32,
            receive: settings.connection_window,
            credit: 0,
            window: DEFAULT_WINDOW,
            last_peer: 0,
            next: 1,
            skipped: 0,
            forgotten: 0,
            resets: 0,
            empty: 0,
            answers: 0,
            unanswered: 0,
            reset: 0,
            preface: if role == Role::Client { PREFACE.len() as u8 } else { 0 },
            role,
            settings_seen: false,
            settings_acked: false,
            credit_due: false,
            grown: false,
            going_away: false,
            peer_going_away: false,
            over: false,
        }
    }

    pub fn role(&self) -> Role {
        self.role
    }

    /// The settings that the peer has announced so far.
    pub fn peer(&self) -> &PeerSettings {
        &self.peer
    }

    /// The number of streams that are open or half closed.
    pub fn streams(&self) -> usize {
        self.streams.len() - usize::from(self.reset)
    }

    /// Whether the peer has sent its first settings: until then its limits are not known.
    pub fn has_settings(&self) -> bool {
        self.settings_seen
    }

    /// Whether the connection has ended by an error.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Octets on the heap.
    pub fn memory(&self) -> usize {
        self.streams.capacity() * size_of::<Stream>()
            + self.block.capacity()
            + self.pending.capacity()
            + self.encoder.memory()
            + self.decoder.memory()
    }

    /// Takes the next stream of a client. Its head is sent before another is taken.
    ///
    /// # Errors
    /// The peer's limit is reached, an end is going away, or all numbers are used.
    ///
    /// # Panics
    /// If this is a server, which opens none: it does not push.
    pub fn open(&mut self) -> Result<StreamId, Blocked> {
        assert!(self.role == Role::Client, "only clients open streams");
        if self.over || self.going_away || self.peer_going_away {
            return Err(Blocked::GoingAway);
        }
        if self.next > LAST {
            return Err(Blocked::Ids);
        }
        if self.streams() >= self.peer.max_streams as usize {
            return Err(Blocked::Streams);
        }
        let id = self.next;
        self.next += 2;
        let stream = Stream::new(id, self.peer.window, self.window);
        self.streams.push(Stream { opening: true, ..stream });
        Ok(StreamId(id))
    }

    /// Appends a field block to `out`: a request, a response, an interim response (`end` is false,
    /// another follows) or trailers (`end` is true). `fields` encodes the fields, pseudo-fields
    /// first.
    ///
    /// Returns false, without a call of `fields`, if nothing can be sent on the stream any more: it
    /// has ended, or was reset.
    pub fn head(
        &mut self,
        id: StreamId,
        end: bool,
        out: &mut Vec<u8>,
        fields: impl FnOnce(&mut Encoder, &mut Vec<u8>),
    ) -> bool {
        let Some(at) = self.sending(id) else { return false };
        self.flush(out);
        let start = out.len();
        out.extend_from_slice(&[0; FRAME_HEADER]);
        fields(&mut self.encoder, out);
        frame::block(out, start, id.0, end, self.peer.max_frame);
        self.streams[at].opening = false;
        if end {
            self.end_local(at);
        }
        true
    }

    /// The number of octets of data that can be sent in one frame now, at most `want`: both windows
    /// and the peer's frame size allow them. 0 if nothing can be sent on the stream any more.
    pub fn room(&self, id: StreamId, want: u32) -> u32 {
        let Some(at) = self.sending(id) else { return 0 };
        let stream = &self.streams[at];
        if stream.opening {
            return 0;
        }
        let window = u32::try_from(stream.send.min(self.send)).unwrap_or(0);
        window.min(self.peer.max_frame).min(want)
    }

    /// Appends the header of a DATA frame to `out`; the caller appends the `len` octets.
    ///
    /// # Panics
    /// If there is less [`room`](Self::room), or if the stream is not open for sending.
    pub fn data(&mut self, id: StreamId, len: u32, end: bool, out: &mut Vec<u8>) {
        assert!(len <= self.room(id, len), "data fit the room");
        let at = self.sending(id).expect("the stream is open for sending");
        assert!(!self.streams[at].opening, "a head goes first");
        self.flush(out);
        let flags = if end { flag::END_STREAM } else { 0 };
        Header { len, stream: id.0, kind: kind::DATA, flags }.write(out);
        let octets = i32::try_from(len).expect("room is below 2^31");
        self.send -= octets;
        self.streams[at].send -= octets;
        if end {
            self.end_local(at);
        }
    }

    /// Returns credit for octets that [`Events::data`] has given. Each of them is to be returned
    /// once, when it is consumed, also after its stream has ended. The peer stops when it has
    /// filled a window of octets that were not returned.
    ///
    /// # Panics
    /// If more octets are returned than were given.
    pub fn consumed(&mut self, id: StreamId, octets: u32, limits: &Limits) {
        if self.over {
            return;
        }
        let held = limits.settings.connection_window - self.receive - self.credit;
        assert!(octets <= held, "octets are returned once");
        self.release(octets, limits);
        let Ok(at) = self.find(id.0) else { return };
        let stream = &mut self.streams[at];
        // The peer sends nothing more.
        if stream.remote_ended || stream.reset {
            return;
        }
        stream.credit = stream.credit.saturating_add(octets);
        self.credit_due |= stream.credit >= due(limits.settings.window);
    }

    /// Returns credit for the connection alone.
    fn release(&mut self, octets: u32, limits: &Limits) {
        self.credit += octets;
        self.credit_due |= self.credit >= due(limits.settings.connection_window);
    }

    /// Ends a stream at once, by RST_STREAM with `code`. No event of it follows. Does nothing if it
    /// has ended. Returns whether the frame is sent: a peer that does not know the stream gets none.
    pub fn reset(&mut self, id: StreamId, code: Code) -> bool {
        let Ok(at) = self.find(id.0) else { return false };
        let stream = self.streams[at];
        if stream.reset {
            return false;
        }
        if stream.opening {
            self.streams.remove(at);
            return false;
        }
        frame::reset(id.0, code, &mut self.pending);
        self.remember(at);
        true
    }

    /// Sends GOAWAY: further streams of the peer are ignored, and none is opened here. Open streams
    /// go on.
    pub fn go_away(&mut self, code: Code) {
        if !self.over && !self.going_away {
            self.going_away = true;
            let last = if self.role == Role::Server { self.last_peer } else { 0 };
            frame::go_away(last, code, &mut self.pending);
        }
    }

    /// Appends the frames that are due to `out`: the preface, settings, acknowledgments, resets,
    /// credit, GOAWAY. To be called when there is room to send: until then, the answers that the
    /// peer asks for are bounded by [`Limits::control`].
    pub fn control(&mut self, limits: &Limits, out: &mut Vec<u8>) {
        self.flush(out);
        if !mem::take(&mut self.credit_due) {
            return;
        }
        if self.credit >= due(limits.settings.connection_window) {
            self.receive += self.credit;
            frame::window_update(0, mem::take(&mut self.credit), out);
        }
        for stream in &mut self.streams {
            let open = !stream.reset && !stream.remote_ended;
            if open && stream.credit >= due(limits.settings.window) {
                let credit = mem::take(&mut stream.credit);
                stream.receive = stream.receive.saturating_add_unsigned(credit);
                frame::window_update(stream.id, credit, out);
            }
        }
    }

    /// Whether frames of the connection itself are due, without those that give credit.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Frames that are due go before any other.
    fn flush(&mut self, out: &mut Vec<u8>) {
        if !self.pending.is_empty() {
            out.append(&mut mem::take(&mut self.pending));
            self.answers = 0;
            self.unanswered = 0;
        }
    }

    /// Reads all of `input`, the next octets that have arrived, and reports to `events`.
    ///
    /// # Errors
    /// The peer has broken a rule of the RFC or met a bound for the connection. It has ended:
    /// GOAWAY is due, and further input is ignored. Errors of a stream are events.
    pub fn receive(
        &mut self,
        input: &[u8],
        limits: &Limits,
        scratch: &mut Scratch,
        events: &mut impl Events,
    ) -> Result<(), Error> {
        if self.over {
            return Ok(());
        }
        let mut input = input;
        let result = self.read(&mut input, limits, scratch, events);
        if let Err(error) = result {
            self.fail(error, events.counters());
        } else if mem::take(&mut self.grown) {
            // Once: otherwise each small update would cost the caller a visit to all its streams.
            events.writable(None);
        }
        result
    }

    fn fail(&mut self, error: Error, counters: &mut Counters) {
        counters.errors += 1;
        match error.why {
            Why::ContinuationFlood => counters.continuation_floods += 1,
            Why::ResetFlood => counters.reset_floods += 1,
            Why::ControlFlood => counters.control_floods += 1,
            Why::EmptyFlood => counters.empty_floods += 1,
            _ => {}
        }
        let last = if self.role == Role::Server { self.last_peer } else { 0 };
        frame::go_away(last, error.code, &mut self.pending);
        self.over = true;
        self.credit_due = false;
        self.reset = 0;
        self.streams = vec![];
        self.block = vec![];
    }

    fn read(
        &mut self,
        input: &mut &[u8],
        limits: &Limits,
        scratch: &mut Scratch,
        events: &mut impl Events,
    ) -> Result<(), Error> {
        self.read_preface(input)?;
        loop {
            if !self.in_frame {
                let Some(header) = self.unit::<FRAME_HEADER>(input) else { return Ok(()) };
                self.frame = Header::read(header);
                self.left = self.frame.len;
                self.in_frame = true;
                self.begin(limits, events)?;
            }
            self.payload(input, limits, scratch, events)?;
            if self.left > 0 {
                return Ok(());
            }
            self.in_frame = false;
        }
    }

    /// Section 3.4.
    fn read_preface(&mut self, input: &mut &[u8]) -> Result<(), Error> {
        let expected = &PREFACE[usize::from(self.preface)..];
        let (begin, rest) = input.split_at(expected.len().min(input.len()));
        if begin != &expected[..begin.len()] {
            return Err(protocol(Why::Preface));
        }
        self.preface += begin.len() as u8;
        *input = rest;
        Ok(())
    }

    /// Takes `N` octets from `input`, after those of earlier calls; `None` if there are fewer.
    fn unit<const N: usize>(&mut self, input: &mut &[u8]) -> Option<[u8; N]> {
        let have = usize::from(self.have);
        let (taken, rest) = input.split_at(input.len().min(N - have));
        *input = rest;
        let now = have + taken.len();
        self.partial[have..now].copy_from_slice(taken);
        self.have = if now < N { now as u8 } else { 0 };
        if now < N { None } else { self.partial.first_chunk().copied() }
    }

    /// The same of the frame's payload.
    fn take<const N: usize>(&mut self, input: &mut &[u8]) -> Option<[u8; N]> {
        let unit = self.unit::<N>(input)?;
        self.left -= N as u32;
        Some(unit)
    }

    /// Checks the header of a frame.
    fn begin(&mut self, limits: &Limits, events: &mut impl Events) -> Result<(), Error> {
        let Header { len, kind, stream, .. } = self.frame;
        // Section 3.4: both ends begin with SETTINGS.
        if !self.settings_seen && (kind != kind::SETTINGS || self.frame.has(flag::ACK)) {
            return Err(protocol(Why::Preface));
        }
        // Section 4.2.
        if len > limits.settings.max_frame.max(FRAME) {
            return Err(wrong(Code::FRAME_SIZE_ERROR, Why::FrameSize));
        }
        // Section 4.3.
        let continues = kind == kind::CONTINUATION;
        if self.block_stream > 0 && !(continues && stream == self.block_stream) {
            return Err(protocol(Why::BrokenBlock));
        }
        let of_connection = match kind {
            kind::SETTINGS | kind::PING | kind::GOAWAY => true,
            kind::DATA..=kind::CONTINUATION if kind != kind::WINDOW_UPDATE => false,
            _ => stream == 0,
        };
        if of_connection != (stream == 0) {
            return Err(protocol(Why::UnexpectedFrame));
        }
        let fits = match kind {
            kind::PRIORITY => len == 5,
            kind::RST_STREAM | kind::WINDOW_UPDATE => len == 4,
            kind::SETTINGS if self.frame.has(flag::ACK) => len == 0,
            kind::SETTINGS => len.is_multiple_of(6),
            kind::PING => len == 8,
            kind::GOAWAY => len >= 8,
            _ => true,
        };
        if !fits {
            return Err(wrong(Code::FRAME_SIZE_ERROR, Why::FrameSize));
        }
        match kind {
            kind::DATA => self.begin_data(limits, events),
            kind::HEADERS | kind::PUSH_PROMISE | kind::CONTINUATION => {
                self.begin_block(limits, events)
            }
            kind::PRIORITY_UPDATE => {
                events.counters().priorities_ignored += 1;
                Ok(())
            }
            kind::PRIORITY..=kind::SETTINGS | kind::PING..=kind::WINDOW_UPDATE => Ok(()),
            // Section 5.5.
            _ => {
                events.counters().frames_ignored += 1;
                Ok(())
            }
        }
    }

    /// Takes what `input` has of the payload. Called at least once for each frame, and at the end
    /// of the payload exactly once.
    fn payload(
        &mut self,
        input: &mut &[u8],
        limits: &Limits,
        scratch: &mut Scratch,
        events: &mut impl Events,
    ) -> Result<(), Error> {
        match self.frame.kind {
            kind::DATA => self.data_payload(input, limits, events),
            kind::HEADERS | kind::PUSH_PROMISE | kind::CONTINUATION => {
                self.block_payload(input, limits, scratch, events)
            }
            kind::PRIORITY => {
                let Some([a, b, c, d, _]) = self.take(input) else { return Ok(()) };
                events.counters().priorities_ignored += 1;
                self.check_dependency([a, b, c, d])
            }
            kind::RST_STREAM => {
                let Some(code) = self.take(input) else { return Ok(()) };
                self.peer_resets(Code(u32::from_be_bytes(code)), limits, events)
            }
            kind::SETTINGS => self.settings_payload(input, limits, events),
            kind::PING => {
                let Some(octets) = self.take(input) else { return Ok(()) };
                // This end asks for none.
                if self.frame.has(flag::ACK) {
                    return Ok(());
                }
                frame::pong(octets, &mut self.pending);
                self.answered(17, limits)
            }
            kind::GOAWAY if self.left == self.frame.len => {
                let Some([a, b, c, d, code @ ..]) = self.take::<8>(input) else { return Ok(()) };
                self.peer_goes_away(u32::from_be_bytes([a, b, c, d]) & LAST, code, events);
                self.skip(input);
                Ok(())
            }
            kind::WINDOW_UPDATE => {
                let Some(octets) = self.take(input) else { return Ok(()) };
                self.window_grows(u32::from_be_bytes(octets) & LAST, limits, events)
            }
            _ => {
                self.skip(input);
                Ok(())
            }
        }
    }

    fn skip(&mut self, input: &mut &[u8]) {
        let len = input.len().min(self.left as usize);
        *input = &input[len..];
        self.left -= len as u32;
    }

    /// RFC 7540 section 5.3.1. RFC 9113 has deprecated priorities: they are checked and ignored.
    fn check_dependency(&self, stream: [u8; 4]) -> Result<(), Error> {
        let on = u32::from_be_bytes(stream) & LAST;
        if on == self.frame.stream { Err(protocol(Why::Dependency)) } else { Ok(()) }
    }

    // Streams.

    fn find(&self, id: u32) -> Result<usize, usize> {
        self.streams.binary_search_by_key(&id, |stream| stream.id)
    }

    /// A stream on which this end may send.
    fn sending(&self, id: StreamId) -> Option<usize> {
        let at = self.find(id.0).ok()?;
        let stream = &self.streams[at];
        (!stream.reset && !stream.local_ended).then_some(at)
    }

    /// Section 5.1.
    fn place(&self, id: u32) -> Place {
        if let Ok(at) = self.find(id) {
            return match self.streams[at] {
                Stream { opening: true, .. } => Place::Idle,
                Stream { reset: true, .. } => Place::Late,
                _ => Place::At(at),
            };
        }
        let odd = id % 2 == 1;
        match self.role {
            // Promised streams were all refused.
            Role::Client if !odd => {
                if id <= self.last_peer {
                    Place::Late
                } else {
                    Place::Idle
                }
            }
            Role::Client if id >= self.next => Place::Idle,
            Role::Server if !odd || id > self.last_peer => Place::Idle,
            _ if id <= self.forgotten => Place::Late,
            _ => Place::Closed,
        }
    }

    /// The place of the frame's stream, if frames other than HEADERS may come on it.
    fn known_place(&self) -> Result<Place, Error> {
        match self.place(self.frame.stream) {
            Place::Idle => Err(protocol(Why::UnexpectedFrame)),
            place => Ok(place),
        }
    }

    /// Keeps a stream that is reset here for the frames that are on their way.
    fn remember(&mut self, at: usize) {
        let stream = &mut self.streams[at];
        stream.reset = true;
        self.reset += 1;
        if self.reset > REMEMBERED {
            let oldest = self.streams.iter().position(|stream| stream.reset);
            let oldest = self.streams.remove(oldest.expect("some are reset"));
            self.forgotten = self.forgotten.max(oldest.id);
            self.reset -= 1;
        }
    }

    ends_of_streams!();

    /// Counts an answer to the peer that is due.
    fn answered(&mut self, octets: u16, limits: &Limits) -> Result<(), Error> {
        self.answers = self.answers.saturating_add(octets);
        self.unanswered = self.unanswered.saturating_add(1);
        if self.answers > limits.control || self.unanswered > limits.unanswered {
            return Err(wrong(Code::ENHANCE_YOUR_CALM, Why::ControlFlood));
        }
        Ok(())
    }

    /// Counts a reset of which the peer is the cause.
    fn caused_reset(&mut self, limits: &Limits) -> Result<(), Error> {
        self.resets = self.resets.saturating_add(1);
        if self.resets > limits.resets {
            return Err(wrong(Code::ENHANCE_YOUR_CALM, Why::ResetFlood));
        }
        Ok(())
    }

    /// Section 5.4.2, for a stream of which the caller knows.
    fn stream_error(
        &mut self,
        at: usize,
        code: Code,
        why: Why,
        limits: &Limits,
        events: &mut impl Events,
    ) -> Result<(), Error> {
        let id = self.streams[at].id;
        self.remember(at);
        events.reset(StreamId(id), code, Cause::Fault(why));
        self.send_reset(id, code, why, limits, events.counters())
    }

    fn send_reset(
        &mut self,
        id: u32,
        code: Code,
        why: Why,
        limits: &Limits,
        counters: &mut Counters,
    ) -> Result<(), Error> {
        counters.reset_sent(code);
        match why {
            Why::Malformed | Why::ContentLength => counters.malformed += 1,
            Why::HeadTooLong => counters.heads_too_long += 1,
            Why::TooManyStreams => counters.refused += 1,
            _ => {}
        }
        frame::reset(id, code, &mut self.pending);
        // A client that has not seen the limit cannot keep it (section 5.1.2).
        if why != Why::TooManyStreams || self.settings_acked {
            self.caused_reset(limits)?;
            self.answered(13, limits)?;
        } else if self.pending.len() > PENDING {
            return Err(wrong(Code::ENHANCE_YOUR_CALM, Why::ControlFlood));
        }
        Ok(())
    }

    // DATA (section 6.1).

    fn begin_data(&mut self, limits: &Limits, events: &mut impl Events) -> Result<(), Error> {
        let Header { len, .. } = self.frame;
        self.pad = 0;
        self.padded = self.frame.has(flag::PADDED);
        self.deliver = false;
        if self.padded && len == 0 {
            return Err(wrong(Code::FRAME_SIZE_ERROR, Why::FrameSize));
        }
        let end = self.frame.has(flag::END_STREAM);
        if len == 0 && !end {
            self.count_empty(limits)?;
        }
        // Section 5.2: data of all streams count, also of closed ones.
        self.receive =
            self.receive.checked_sub(len).ok_or(wrong(Code::FLOW_CONTROL_ERROR, Why::Window))?;
        let at = match self.known_place()? {
            Place::At(at) => at,
            Place::Closed => return Err(wrong(Code::STREAM_CLOSED, Why::StreamClosed)),
            Place::Late | Place::Idle => {
                events.counters().late_frames += 1;
                return Ok(());
            }
        };
        let stream = &mut self.streams[at];
        if stream.remote_ended {
            let code = Code::STREAM_CLOSED;
            return self.stream_error(at, code, Why::StreamClosed, limits, events);
        }
        if !stream.headed {
            let code = Code::PROTOCOL_ERROR;
            return self.stream_error(at, code, Why::Malformed, limits, events);
        }
        let octets = i32::try_from(len).expect("a frame is shorter than 16 MiB");
        if octets > stream.receive {
            let code = Code::FLOW_CONTROL_ERROR;
            return self.stream_error(at, code, Why::Window, limits, events);
        }
        stream.receive -= octets;
        self.deliver = true;
        Ok(())
    }

    fn count_empty(&mut self, limits: &Limits) -> Result<(), Error> {
        self.empty = self.empty.saturating_add(1);
        if self.empty > limits.empty {
            return Err(wrong(Code::ENHANCE_YOUR_CALM, Why::EmptyFlood));
        }
        Ok(())
    }

    fn data_payload(
        &mut self,
        input: &mut &[u8],
        limits: &Limits,
        events: &mut impl Events,
    ) -> Result<(), Error> {
        if self.padded {
            let Some([pad]) = self.take(input) else { return Ok(()) };
            if u32::from(pad) > self.left {
                return Err(protocol(Why::Padding));
            }
            (self.pad, self.padded) = (pad, false);
            let padding = u32::from(pad) + 1;
            events.counters().padding_octets += u64::from(padding);
            self.release(padding, limits);
            if let (true, Place::At(at)) = (self.deliver, self.place(self.frame.stream)) {
                let stream = &mut self.streams[at];
                stream.credit = stream.credit.saturating_add(padding);
                self.credit_due |= stream.credit >= due(limits.settings.window);
            }
            if self.left == u32::from(pad) && !self.frame.has(flag::END_STREAM) {
                self.count_empty(limits)?;
            }
        }
        let octets = self.left.saturating_sub(self.pad.into());
        let (data, rest) = input.split_at(input.len().min(octets as usize));
        *input = rest;
        let len = data.len() as u32;
        self.left -= len;
        let end = len == octets && self.frame.has(flag::END_STREAM);
        if self.deliver && (len > 0 || end) {
            // The end is reported with the last octets, before padding.
            self.deliver = !end;
            self.deliver_data(data, octets, limits, events)?;
        } else {
            self.release(len, limits);
        }
        if len == octets {
            self.skip(input);
        }
        Ok(())
    }

    /// `octets`: how many the frame has from the first of `data` on.
    fn deliver_data(
        &mut self,
        data: &[u8],
        octets: u32,
        limits: &Limits,
        events: &mut impl Events,
    ) -> Result<(), Error> {
        let len = data.len() as u32;
        // The caller may have reset the stream between two pieces of the frame.
        let Place::At(at) = self.place(self.frame.stream) else {
            self.release(len, limits);
            return Ok(());
        };
        let stream = &mut self.streams[at];
        let ends = self.frame.has(flag::END_STREAM);
        // Section 8.1.1, for the frame as a whole: wherever it is cut, all of it is refused.
        // Answers to HEAD have a length, and no data.
        let rest = stream.remaining.checked_sub(octets.into());
        let none = self.role == Role::Client && !stream.data && octets == 0;
        let exact = rest.is_some_and(|rest| !ends || rest == 0 || none);
        if stream.remaining != ANY_LENGTH && !exact {
            self.release(len, limits);
            self.deliver = false;
            let code = Code::PROTOCOL_ERROR;
            return self.stream_error(at, code, Why::ContentLength, limits, events);
        }
        if stream.remaining != ANY_LENGTH {
            stream.remaining -= u64::from(len);
        }
        stream.data |= len > 0;
        events.counters().data_octets += u64::from(len);
        let end = ends && len == octets;
        events.data(StreamId(self.frame.stream), data, end);
        if end {
            self.end_remote(at);
        }
        Ok(())
    }

    // Field blocks (sections 4.3, 6.2, 6.6 and 6.10).

    fn begin_block(&mut self, limits: &Limits, events: &mut impl Events) -> Result<(), Error> {
        let Header { len, kind, stream, .. } = self.frame;
        if kind == kind::CONTINUATION {
            if self.block_stream == 0 {
                return Err(protocol(Why::UnexpectedFrame));
            }
            self.continuations += 1;
        } else {
            if kind == kind::PUSH_PROMISE {
                // Section 8.4. A server may promise before it knows that it must not.
                let refused = !limits.settings.push && self.settings_acked;
                if self.role == Role::Server || refused {
                    return Err(protocol(Why::Push));
                }
                if !matches!(self.known_place()?, Place::At(_) | Place::Late) {
                    return Err(wrong(Code::STREAM_CLOSED, Why::StreamClosed));
                }
            } else {
                self.check_number(stream)?;
            }
            if self.frame.has(flag::PRIORITY) && kind == kind::HEADERS {
                events.counters().priorities_ignored += 1;
            }
            self.block_stream = stream;
            self.block_end = kind == kind::HEADERS && self.frame.has(flag::END_STREAM);
            self.block_done = 0;
            self.continuations = 0;
            self.promised = 0;
            self.dependent = false;
        }
        if self.block_done.saturating_add(len) > limits.block
            || self.continuations > limits.continuations
        {
            return Err(wrong(Code::ENHANCE_YOUR_CALM, Why::ContinuationFlood));
        }
        Ok(())
    }

    /// Section 5.1.1: whether HEADERS may come with this number.
    fn check_number(&self, id: u32) -> Result<(), Error> {
        match self.place(id) {
            Place::Idle if self.role == Role::Client || id.is_multiple_of(2) => {
                Err(protocol(Why::StreamNumber))
            }
            Place::Closed if id <= self.skipped => Err(protocol(Why::StreamNumber)),
            Place::Closed => Err(wrong(Code::STREAM_CLOSED, Why::StreamClosed)),
            _ => Ok(()),
        }
    }

    fn block_payload(
        &mut self,
        input: &mut &[u8],
        limits: &Limits,
        scratch: &mut Scratch,
        events: &mut impl Events,
    ) -> Result<(), Error> {
        let (part, rest) = input.split_at(input.len().min(self.left as usize));
        *input = rest;
        self.left -= part.len() as u32;
        let last = self.frame.has(flag::END_HEADERS);
        if self.block.is_empty() && self.left == 0 && last {
            // The usual case: a block of one frame that has arrived as a whole.
            let fragment = self.fragment(part)?;
            return self.end_block(fragment, limits, scratch, events);
        }
        self.block.extend_from_slice(part);
        if self.left > 0 {
            return Ok(());
        }
        let mut block = mem::take(&mut self.block);
        let frame = block.split_off(self.block_done as usize);
        block.extend_from_slice(self.fragment(&frame)?);
        self.block_done = block.len() as u32;
        if last {
            return self.end_block(&block, limits, scratch, events);
        }
        self.block = block;
        Ok(())
    }

    /// The fragment of the block in the payload of a frame.
    fn fragment<'a>(&mut self, payload: &'a [u8]) -> Result<&'a [u8], Error> {
        let short = wrong(Code::FRAME_SIZE_ERROR, Why::FrameSize);
        if self.frame.kind == kind::CONTINUATION {
            return Ok(payload);
        }
        let mut payload = payload;
        let mut pad = 0;
        if self.frame.has(flag::PADDED) {
            let (&octets, rest) = payload.split_first().ok_or(short)?;
            (pad, payload) = (usize::from(octets), rest);
        }
        if self.frame.kind == kind::PUSH_PROMISE {
            let (id, rest) = payload.split_first_chunk().ok_or(short)?;
            self.promised = u32::from_be_bytes(*id) & LAST;
            if self.promised == 0 || self.promised % 2 == 1 || self.promised <= self.last_peer {
                return Err(protocol(Why::StreamNumber));
            }
            payload = rest;
        } else if self.frame.has(flag::PRIORITY) {
            let ([on @ .., _], rest) = payload.split_first_chunk::<5>().ok_or(short)?;
            self.dependent = self.check_dependency(*on).is_err();
            payload = rest;
        }
        let len = payload.len().checked_sub(pad).ok_or(protocol(Why::Padding))?;
        Ok(&payload[..len])
    }

    fn end_block(
        &mut self,
        block: &[u8],
        limits: &Limits,
        scratch: &mut Scratch,
        events: &mut impl Events,
    ) -> Result<(), Error> {
        let id = mem::take(&mut self.block_stream);
        // Also of streams that are refused or closed: the table has to stay that of the peer.
        let sum = self.decode(block, limits.head, scratch)?;
        let counters = events.counters();
        counters.heads += 1;
        counters.head_octets += block.len() as u64;
        counters.head_octets_plain += scratch.octets.len() as u64;
        let too_long = sum > limits.head;
        if self.promised > 0 {
            return self.refuse_promise(limits, events);
        }
        match self.place(id) {
            Place::At(at) => self.head_received(at, scratch, too_long, limits, events),
            Place::Idle => self.request_received(id, scratch.fields(), too_long, limits, events),
            Place::Closed | Place::Late => {
                events.counters().late_frames += 1;
                Ok(())
            }
        }
    }

    /// Decodes a block to `scratch`, fields of at most `most` octets. Returns the size of all.
    fn decode(&mut self, block: &[u8], most: u32, scratch: &mut Scratch) -> Result<u32, Error> {
        if let Some(size) = scratch.known(Coding::Hpack, block, most) {
            return Ok(size);
        }
        scratch.clear();
        let Scratch { text, octets, lengths, .. } = &mut *scratch;
        let decoded = self.decoder.decode_marked(block, most, text, |name, value| {
            octets.extend_from_slice(name);
            octets.extend_from_slice(value);
            // Together at most the limit.
            lengths.push((name.len() as u32, value.len() as u32));
        });
        let (sum, used_table) = decoded.map_err(|error| match error {
            HpackError::Bomb => wrong(Code::ENHANCE_YOUR_CALM, Why::HeadTooLong),
            _ => wrong(Code::COMPRESSION_ERROR, Why::Compression),
        })?;
        if sum <= most && !used_table {
            scratch.remember(Coding::Hpack, block, sum);
        }
        Ok(sum)
    }

    fn refuse_promise(&mut self, limits: &Limits, events: &mut impl Events) -> Result<(), Error> {
        self.last_peer = self.promised;
        events.counters().pushes_refused += 1;
        events.counters().reset_sent(Code::REFUSED_STREAM);
        frame::reset(self.promised, Code::REFUSED_STREAM, &mut self.pending);
        self.caused_reset(limits)?;
        self.answered(13, limits)
    }

    /// The first HEADERS on a stream of a client. Only servers come here ([`Self::check_number`]).
    fn request_received(
        &mut self,
        id: u32,
        fields: Fields<'_>,
        too_long: bool,
        limits: &Limits,
        events: &mut impl Events,
    ) -> Result<(), Error> {
        let expected = if self.last_peer == 0 { 1 } else { self.last_peer + 2 };
        if id > expected {
            self.skipped = id - 2;
        }
        if self.going_away {
            // Section 6.8: the stream and all later frames on it are ignored.
            self.last_peer = id;
            self.forgotten = id;
            events.counters().late_frames += 1;
            return Ok(());
        }
        self.last_peer = id;
        if self.pending.len() > PENDING {
            return Err(wrong(Code::ENHANCE_YOUR_CALM, Why::ControlFlood));
        }
        let end = self.block_end;
        let open = self.streams();
        let stream = Stream::new(id, self.peer.window, self.window);
        self.streams.push(Stream { headed: true, ..stream });
        let at = self.streams.len() - 1;
        let message = validate::request(fields, limits.settings.connect_protocol);
        let refused = if open >= limits.settings.max_streams as usize {
            Some((Code::REFUSED_STREAM, Why::TooManyStreams))
        } else if self.dependent {
            Some((Code::PROTOCOL_ERROR, Why::Dependency))
        } else if too_long {
            self.answer_431(id);
            Some((Code::NO_ERROR, Why::HeadTooLong))
        } else if message.is_none() {
            Some((Code::PROTOCOL_ERROR, Why::Malformed))
        } else {
            None
        };
        let (Some(message), None) = (message, refused) else {
            let (code, why) = refused.expect("a reason");
            // The caller does not know the stream.
            self.remember(at);
            return self.send_reset(id, code, why, limits, events.counters());
        };
        if let Some(length) = message.content_length {
            if end && length > 0 {
                self.remember(at);
                let (code, why) = (Code::PROTOCOL_ERROR, Why::ContentLength);
                return self.send_reset(id, code, why, limits, events.counters());
            }
            self.streams[at].remaining = length;
        }
        events.head(StreamId(id), &Head { kind: message.kind, end, status: 0, fields });
        if end {
            self.end_remote(at);
        }
        Ok(())
    }

    /// A request whose fields are too long gets an answer (RFC 6585 section 5), and is reset.
    fn answer_431(&mut self, id: u32) {
        let start = self.pending.len();
        self.pending.extend_from_slice(&[0; FRAME_HEADER]);
        let status = Field::Literal { name: b":status", value: b"431" };
        self.encoder.field(status, &mut self.pending);
        frame::block(&mut self.pending, start, id, true, self.peer.max_frame);
    }

    /// Responses, and trailers of both.
    fn head_received(
        &mut self,
        at: usize,
        scratch: &mut Scratch,
        too_long: bool,
        limits: &Limits,
        events: &mut impl Events,
    ) -> Result<(), Error> {
        let stream = self.streams[at];
        let end = self.block_end;
        let (code, why) = (Code::PROTOCOL_ERROR, Why::Malformed);
        if stream.remote_ended {
            let code = Code::STREAM_CLOSED;
            return self.stream_error(at, code, Why::StreamClosed, limits, events);
        }
        if too_long {
            let code = Code::ENHANCE_YOUR_CALM;
            return self.stream_error(at, code, Why::HeadTooLong, limits, events);
        }
        let message = if stream.headed {
            (end && validate::trailers(scratch.fields())).then_some((HeadKind::Trailers, 0))
        } else {
            // An interim response does not end (section 8.1).
            scratch.response().filter(|message| message.kind == HeadKind::Response || !end).map(
                |message| {
                    let stream = &mut self.streams[at];
                    stream.headed = message.kind == HeadKind::Response;
                    stream.remaining = message.content_length.unwrap_or(ANY_LENGTH);
                    (message.kind, message.status)
                },
            )
        };
        let Some((kind, status)) = message else {
            return self.stream_error(at, code, why, limits, events);
        };
        if kind == HeadKind::Trailers {
            let short = !matches!(stream.remaining, 0 | ANY_LENGTH);
            if short && (self.role == Role::Server || stream.data) {
                return self.stream_error(at, code, Why::ContentLength, limits, events);
            }
        }
        let fields = scratch.fields();
        events.head(StreamId(stream.id), &Head { kind, end, status, fields });
        if end {
            self.end_remote(at);
        }
        Ok(())
    }

    // RST_STREAM (section 6.4), GOAWAY (section 6.8).

    fn peer_resets(
        &mut self,
        code: Code,
        limits: &Limits,
        events: &mut impl Events,
    ) -> Result<(), Error> {
        events.counters().resets_received += 1;
        let Place::At(at) = self.known_place()? else { return Ok(()) };
        let id = self.streams.remove(at).id;
        events.reset(StreamId(id), code, Cause::Peer);
        // A client asks for each stream itself: resets by a server are no attack on it.
        if self.role == Role::Server { self.caused_reset(limits) } else { Ok(()) }
    }

    fn peer_goes_away(&mut self, last: u32, code: [u8; 4], events: &mut impl Events) {
        self.peer_going_away = true;
        if self.role == Role::Client {
            // Section 8.7: these were not processed.
            while let Some(&stream) = self.streams.last()
                && stream.id > last
            {
                self.streams.pop();
                self.forgotten = self.forgotten.max(stream.id);
                if stream.reset {
                    self.reset -= 1;
                } else {
                    events.reset(StreamId(stream.id), Code::REFUSED_STREAM, Cause::GoAway);
                }
            }
        }
        events.going_away(StreamId(last), Code(u32::from_be_bytes(code)));
    }

    // SETTINGS (section 6.5).

    fn settings_payload(
        &mut self,
        input: &mut &[u8],
        limits: &Limits,
        events: &mut impl Events,
    ) -> Result<(), Error> {
        while self.left > 0 {
            let Some([a, b, value @ ..]) = self.take::<6>(input) else { return Ok(()) };
            let (number, value) = (u16::from_be_bytes([a, b]), u32::from_be_bytes(value));
            let window = self.peer.window;
            self.peer.apply(self.role, number, value)?;
            match number {
                setting::HEADER_TABLE_SIZE => self.encoder.limit(value),
                setting::INITIAL_WINDOW_SIZE => {
                    self.move_windows(window)?;
                    self.grown |= value > window;
                }
                _ => {}
            }
        }
        self.settings_seen = true;
        if self.frame.has(flag::ACK) {
            if !mem::replace(&mut self.settings_acked, true) {
                self.apply_own(limits);
            }
            return Ok(());
        }
        frame::settings_ack(&mut self.pending);
        self.answered(9, limits)?;
        events.settings(&self.peer);
        Ok(())
    }

    /// Section 6.9.2: the windows of all streams change by the difference of the setting.
    fn move_windows(&mut self, before: u32) -> Result<(), Error> {
        let change = i64::from(self.peer.window) - i64::from(before);
        for stream in &mut self.streams {
            stream.send = i32::try_from(i64::from(stream.send) + change)
                .map_err(|_| wrong(Code::FLOW_CONTROL_ERROR, Why::Window))?;
        }
        Ok(())
    }

    /// Section 6.5.3: the peer has applied the settings of this end.
    fn apply_own(&mut self, limits: &Limits) {
        self.decoder.limit(limits.settings.header_table);
        let change = i64::from(limits.settings.window) - i64::from(DEFAULT_WINDOW);
        self.window = limits.settings.window;
        for stream in &mut self.streams {
            // Negative if the peer has sent more than the new window before it knew it.
            let receive = i64::from(stream.receive) + change;
            stream.receive = i32::try_from(receive).unwrap_or(i32::MAX);
        }
    }

    // WINDOW_UPDATE (section 6.9).

    fn window_grows(
        &mut self,
        octets: u32,
        limits: &Limits,
        events: &mut impl Events,
    ) -> Result<(), Error> {
        let id = self.frame.stream;
        let grown = |window: i32| {
            let window = i64::from(window) + i64::from(octets);
            i32::try_from(window).ok().filter(|_| window <= i64::from(MAX_WINDOW))
        };
        if id == 0 {
            if octets == 0 {
                return Err(protocol(Why::Window));
            }
            let window = grown(self.send).ok_or(wrong(Code::FLOW_CONTROL_ERROR, Why::Window))?;
            self.send = window;
            self.grown = true;
            return Ok(());
        }
        let Place::At(at) = self.known_place()? else { return Ok(()) };
        let code = if octets == 0 { Code::PROTOCOL_ERROR } else { Code::FLOW_CONTROL_ERROR };
        match grown(self.streams[at].send) {
            Some(window) if octets > 0 => {
                self.streams[at].send = window;
                events.writable(Some(StreamId(id)));
                Ok(())
            }
            _ => self.stream_error(at, code, Why::Window, limits, events),
        }
    }

    /// The tables for sending and for receiving: entries and size (RFC 7541 section 4.1).
    #[cfg(test)]
    pub(super) fn tables(&self) -> [(usize, u32); 2] {
        [self.encoder.table(), self.decoder.table()]
    }
}

/// From how many consumed octets on a window of this size is updated.
fn due(window: u32) -> u32 {
    (window / 2).max(1)
}
