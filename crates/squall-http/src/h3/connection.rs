//! One end of a connection (RFC 9114).
//!
//! Nothing that the peer does makes a connection grow beyond [`Limits`]: field blocks, answers,
//! resets and frames that do nothing are bounded, and data are given on where they lie. The number
//! of streams is bounded by QUIC.

use std::mem;

use super::{
    Cause, Code, Counters, Error, Events, Fields, Head, HeadKind, Limits, PeerSettings, Role,
    Scratch, StreamId, Why, settings,
    stream::{ANY_LENGTH, Frame, Part, Stream, Varint, varint},
};
use crate::{
    h2::{Coding, validate},
    qpack::{Decoder, Encoder, QpackError, Section},
};

/// Types of frames (RFC 9114 section 11.2.1, RFC 9218 section 7.2).
mod kind {
    pub const DATA: u64 = 0x0;
    pub const HEADERS: u64 = 0x1;
    pub const CANCEL_PUSH: u64 = 0x3;
    pub const SETTINGS: u64 = 0x4;
    pub const PUSH_PROMISE: u64 = 0x5;
    pub const GOAWAY: u64 = 0x7;
    pub const MAX_PUSH_ID: u64 = 0xd;
    pub const PRIORITY_UPDATE: u64 = 0xf0700;
    pub const PRIORITY_UPDATE_PUSH: u64 = 0xf0701;
}

/// Types of unidirectional streams (RFC 9114 section 11.2.4, RFC 9204 section 4.2).
mod uni {
    pub const CONTROL: u64 = 0x0;
    pub const PUSH: u64 = 0x1;
    pub const ENCODER: u64 = 0x2;
    pub const DECODER: u64 = 0x3;
}

/// The unidirectional streams of this end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own {
    Control,
    /// Insertions into the peer's table of QPACK.
    Encoder,
    /// Acknowledgments of the peer's insertions.
    Decoder,
}

impl Own {
    pub const ALL: [Self; 3] = [Self::Control, Self::Encoder, Self::Decoder];
}

/// The effect of octets that a connection was given.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All were taken; more may follow.
    Taken,
    /// The stream waits for insertions into the table of QPACK. This number of octets was taken;
    /// the caller gives the rest, which may be empty, and the end again after
    /// [`Events::unblocked`]. Never without a setting that allows it.
    Blocked(usize),
    /// The caller gives nothing else of this stream: it has ended, or an event has reset or stopped it.
    Over,
}

/// One end of a connection. See the [module](super).
#[derive(Clone, Debug)]
pub struct Connection {
    /// Requests, in order of their numbers.
    streams: Vec<Stream>,
    /// Octets that wait to be sent on the control stream and on that of the decoder.
    control: Vec<u8>,
    answers: Vec<u8>,
    encoder: Encoder,
    decoder: Decoder,
    peer: PeerSettings,

    /// The peer's unidirectional streams that have to stay open, and those without a type so far.
    peer_control: Option<StreamId>,
    peer_encoder: Option<StreamId>,
    peer_decoder: Option<StreamId>,
    untyped: Vec<(StreamId, Varint)>,

    /// The frame on the peer's control stream: its next integer, its type, and octets that have not
    /// come.
    integer: Varint,
    frame: ControlPart,
    left: u64,
    /// The number of a setting whose value is still to come.
    setting: Option<u64>,
    /// Settings that have come, by number, up to 63.
    seen: u64,

    /// The lowest request that the peer has not opened, and the first that this end has refused.
    next_peer: u64,
    refused_from: Option<u64>,
    /// The number in the peer's GOAWAY, and in its MAX_PUSH_ID.
    peer_goes: Option<u64>,
    pushes: Option<u64>,

    /// Octets of field blocks in `streams`, of those whose end has not come and of those that wait.
    held: u32,
    waiting: u32,
    /// Streams that wait.
    blocked: u16,
    /// Entries that were inserted since the last field block.
    insertions: u64,
    resets: u16,
    empty: u16,
    unknown: u16,
    role: Role,
    settings_begun: bool,
    settings_seen: bool,
    over: bool,
}

/// Which part of a frame of the control stream comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ControlPart {
    Type,
    Length(ControlFrame),
    Payload(ControlFrame),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ControlFrame {
    Settings,
    GoAway,
    MaxPushId,
    CancelPush,
    /// Ignored.
    Unknown,
}

fn wrong(code: Code, why: Why) -> Error {
    Error { code, why }
}

fn flood(why: Why) -> Error {
    wrong(Code::EXCESSIVE_LOAD, why)
}

fn unexpected() -> Error {
    wrong(Code::FRAME_UNEXPECTED, Why::UnexpectedFrame)
}

impl Connection {
    /// A client's end. The settings are in the first octets of the control stream. `fixed`: how
    /// many numbers [`Field::Fixed`](crate::qpack::Field::Fixed) has on this connection.
    pub fn client(limits: &Limits, fixed: u16) -> Self {
        Self::new(Role::Client, limits, fixed)
    }

    /// A server's end. The settings are in the first octets of the control stream.
    pub fn server(limits: &Limits, fixed: u16) -> Self {
        Self::new(Role::Server, limits, fixed)
    }

    fn new(role: Role, limits: &Limits, fixed: u16) -> Self {
        let mut payload = vec![];
        for (number, value) in limits.settings.list() {
            varint(*number, &mut payload);
            varint(*value, &mut payload);
        }
        let mut control = vec![];
        varint(uni::CONTROL, &mut control);
        frame(kind::SETTINGS, &payload, &mut control);
        let mut answers = vec![];
        if limits.settings.qpack_table > 0 {
            varint(uni::DECODER, &mut answers);
        }
        Self {
            streams: vec![],
            control,
            answers,
            encoder: Encoder::new(fixed, limits.encoder_table),
            decoder: Decoder::new(limits.settings.qpack_table),
            peer: PeerSettings::default(),
            peer_control: None,
            peer_encoder: None,
            peer_decoder: None,
            untyped: vec![],
            integer: Varint::default(),
            frame: ControlPart::Type,
            left: 0,
            setting: None,
            seen: 0,
            next_peer: 0,
            refused_from: None,
            peer_goes: None,
            pushes: None,
            held: 0,
            waiting: 0,
            blocked: 0,
            insertions: 0,
            resets: 0,
            empty: 0,
            unknown: 0,
            role,
            settings_begun: false,
            settings_seen: false,
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

    /// Whether the peer has sent its settings.
    pub fn has_settings(&self) -> bool {
        self.settings_seen
    }

    /// Whether the connection has ended by an error.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// The number of requests that are open or half closed.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Octets on the heap.
    pub fn memory(&self) -> usize {
        self.streams.capacity() * size_of::<Stream>()
            + self.streams.iter().map(|stream| stream.block.capacity()).sum::<usize>()
            + self.untyped.capacity() * size_of::<(StreamId, Varint)>()
            + self.control.capacity()
            + self.answers.capacity()
            + self.encoder.memory()
            + self.decoder.memory()
    }

    /// Whether a client may open a further request: neither end is going away. Their number is
    /// limited by QUIC.
    pub fn can_open(&self) -> bool {
        !self.over && self.refused_from.is_none() && self.peer_goes.is_none()
    }

    /// Registers the stream of a request that the caller has opened.
    ///
    /// # Panics
    /// If this is a server, which opens none, or if the number is not that of a new bidirectional
    /// stream of a client.
    pub fn open(&mut self, id: StreamId) {
        assert!(self.role == Role::Client, "only clients open requests");
        assert!(id.is_bidirectional() && id.is_of_client(), "requests are on clients' streams");
        let at = self.find(id).expect_err("a stream is opened once");
        self.streams.insert(at, Stream::new(id));
    }

    /// Appends a HEADERS frame to `out`: a request, a response, an interim response (`end` is
    /// false, another follows) or trailers (`end` is true). `fields` encodes the fields,
    /// pseudo-fields first. The caller ends the stream after it if `end`.
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
        headers(&mut self.encoder, id, out, fields);
        if end {
            self.end_local(at);
        }
        true
    }

    /// Whether heads refer to no dynamic table, so that frames of [`plain_head`] can be sent.
    pub fn sends_plain_heads(&self) -> bool {
        !self.encoder.has_table()
    }

    /// As [`head`](Self::head), for a frame of [`plain_head`], which the caller has.
    pub fn head_known(&mut self, id: StreamId, end: bool) -> bool {
        let Some(at) = self.sending(id) else { return false };
        if end {
            self.end_local(at);
        }
        true
    }

    /// Appends the header of a DATA frame to `out`; the caller appends the `len` octets, and ends
    /// the stream after them if `end`. Returns false, and appends nothing, if nothing can be sent
    /// on the stream any more.
    ///
    /// # Panics
    /// If `len` is 2^30 or more.
    pub fn data(&mut self, id: StreamId, len: u32, end: bool, out: &mut Vec<u8>) -> bool {
        assert!(len < 1 << 30, "a frame is shorter than 1 GiB");
        let Some(at) = self.sending(id) else { return false };
        varint(kind::DATA, out);
        varint(len.into(), out);
        if end {
            self.end_local(at);
        }
        true
    }

    /// Ends sending on a request, without further octets: the caller ends the stream.
    pub fn finish(&mut self, id: StreamId) {
        if let Some(at) = self.sending(id) {
            self.end_local(at);
        }
    }

    /// Gives up a request: the caller resets and stops its stream, with the code that it chooses.
    /// No event of it follows, and nothing else of it is given. Returns whether it was open.
    pub fn abandon(&mut self, id: StreamId) -> bool {
        let Ok(at) = self.find(id) else { return false };
        self.remove(at);
        true
    }

    /// Sends GOAWAY: further requests of the peer are refused, and none is opened here. Open ones
    /// go on.
    pub fn go_away(&mut self) {
        if self.over || self.refused_from.is_some() {
            return;
        }
        // A client's number is that of a push, of which it takes none.
        let first = if self.role == Role::Server { self.next_peer } else { 0 };
        self.refused_from = Some(first);
        let mut payload = vec![];
        varint(first, &mut payload);
        frame(kind::GOAWAY, &payload, &mut self.control);
    }

    /// Octets that wait to be sent on a unidirectional stream of this end, its type first. The
    /// caller opens the stream when there are any for the first time: the encoder's and the
    /// decoder's are not opened without a dynamic table.
    pub fn waiting(&self, own: Own) -> &[u8] {
        match own {
            Own::Control => &self.control,
            Own::Encoder => self.encoder.waiting(),
            Own::Decoder => &self.answers,
        }
    }

    /// Removes octets of [`waiting`](Self::waiting) that the caller has sent.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn written(&mut self, own: Own, octets: usize) {
        let waiting = match own {
            Own::Control => &mut self.control,
            Own::Encoder => self.encoder.instructions(),
            Own::Decoder => &mut self.answers,
        };
        if octets == waiting.len() {
            // Free the memory of idle connections.
            *waiting = vec![];
        } else {
            waiting.drain(..octets);
        }
    }

    /// Reads the next octets of a stream: a request, or a unidirectional stream of the peer. `end`:
    /// the peer has ended the stream after them. Reports to `events`, also on other streams.
    ///
    /// # Errors
    /// The peer has broken a rule of the RFC or met a bound for the connection. It has ended, and
    /// further input is ignored. Errors of a request are events.
    pub fn receive(
        &mut self,
        id: StreamId,
        input: &[u8],
        end: bool,
        limits: &Limits,
        scratch: &mut Scratch,
        events: &mut impl Events,
    ) -> Result<Progress, Error> {
        if self.over {
            return Ok(Progress::Over);
        }
        // Requests that this end has abandoned since the last call have left answers, too.
        let result = self.answered(limits).and_then(|()| match id.is_bidirectional() {
            true => self.read_request(id, input, end, limits, scratch, events),
            false => self.read_unidirectional(id, input, end, limits, scratch, events),
        });
        result.inspect_err(|error| self.fail(*error, events.counters()))
    }

    /// The peer has reset a stream (RESET_STREAM).
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn peer_reset(
        &mut self,
        id: StreamId,
        code: Code,
        limits: &Limits,
        events: &mut impl Events,
    ) -> Result<(), Error> {
        if self.over {
            return Ok(());
        }
        let result = self.reset_by_peer(id, code, limits, events);
        result.inspect_err(|error| self.fail(*error, events.counters()))
    }

    /// The peer stops reading a request (STOP_SENDING). To a server, that is a reset of the
    /// request. A client stops sending it: the response may still come.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn peer_stops(
        &mut self,
        id: StreamId,
        code: Code,
        limits: &Limits,
        events: &mut impl Events,
    ) -> Result<(), Error> {
        if self.role == Role::Server {
            return self.peer_reset(id, code, limits, events);
        }
        self.finish(id);
        Ok(())
    }

    /// The peer has stopped a unidirectional stream of this end, all of which have to stay open
    /// (RFC 9114 section 6.2.1).
    pub fn own_stopped(&mut self, events: &mut impl Events) -> Error {
        let error = wrong(Code::CLOSED_CRITICAL_STREAM, Why::ClosedCritical);
        if !self.over {
            self.fail(error, events.counters());
        }
        error
    }

    fn fail(&mut self, error: Error, counters: &mut Counters) {
        counters.errors += 1;
        match error.why {
            Why::BlockFlood => counters.block_floods += 1,
            Why::BlockedFlood => counters.blocked_floods += 1,
            Why::InsertionFlood => counters.insertion_floods += 1,
            Why::ResetFlood => counters.reset_floods += 1,
            Why::ControlFlood => counters.control_floods += 1,
            Why::EmptyFlood => counters.empty_floods += 1,
            Why::StreamFlood => counters.stream_floods += 1,
            Why::SettingsFlood => counters.settings_floods += 1,
            _ => {}
        }
        self.over = true;
        self.streams = vec![];
        self.untyped = vec![];
    }

    // Streams.

    fn find(&self, id: StreamId) -> Result<usize, usize> {
        self.streams.binary_search_by_key(&id, |stream| stream.id)
    }

    /// A request on which this end may send.
    fn sending(&self, id: StreamId) -> Option<usize> {
        let at = self.find(id).ok()?;
        (!self.streams[at].local_ended).then_some(at)
    }

    ends_of_streams!();

    /// Forgets a request before its end.
    fn remove(&mut self, at: usize) {
        let stream = self.streams.remove(at);
        let octets = stream.block.len() as u32;
        if stream.blocked {
            self.waiting -= octets;
            self.blocked -= 1;
        } else {
            self.held -= octets;
        }
        if !stream.remote_ended {
            // RFC 9204 section 2.2.2.2: its field blocks may not have been read.
            self.decoder.cancel(stream.id.0, &mut self.answers);
        }
    }

    /// Section 4.1.2 and others, for a request whose stream is reset here.
    fn stream_error(
        &mut self,
        at: usize,
        code: Code,
        why: Why,
        limits: &Limits,
        events: &mut impl Events,
    ) -> Result<(), Error> {
        let id = self.streams[at].id;
        self.remove(at);
        let counters = events.counters();
        match why {
            Why::Malformed | Why::ContentLength => counters.malformed += 1,
            Why::Incomplete => counters.incomplete += 1,
            Why::HeadTooLong => counters.heads_too_long += 1,
            _ => {}
        }
        events.reset(id, code, Cause::Fault(why));
        self.answered(limits)?;
        self.caused_reset(limits)
    }

    fn reset_by_peer(
        &mut self,
        id: StreamId,
        code: Code,
        limits: &Limits,
        events: &mut impl Events,
    ) -> Result<(), Error> {
        if !id.is_bidirectional() {
            if self.is_critical(id) {
                return Err(wrong(Code::CLOSED_CRITICAL_STREAM, Why::ClosedCritical));
            }
            self.untyped.retain(|stream| stream.0 != id);
            return Ok(());
        }
        match self.find(id) {
            Ok(at) => {
                self.remove(at);
                events.reset(id, code, Cause::Peer);
            }
            // A request of which nothing has come.
            Err(_) if self.role == Role::Server && id.0 >= self.next_peer => {
                self.next_peer = id.0 + 4;
                self.decoder.cancel(id.0, &mut self.answers);
            }
            Err(_) => return Ok(()),
        }
        self.answered(limits)?;
        // A client asks for each stream itself: resets by a server are no attack on it.
        if self.role == Role::Server { self.caused_reset(limits) } else { Ok(()) }
    }

    /// Bounds what waits for a peer that does not read.
    fn answered(&mut self, limits: &Limits) -> Result<(), Error> {
        if self.answers.len() > usize::from(limits.control) {
            return Err(flood(Why::ControlFlood));
        }
        Ok(())
    }

    /// Counts a reset of which the peer is the cause.
    fn caused_reset(&mut self, limits: &Limits) -> Result<(), Error> {
        self.resets = self.resets.saturating_add(1);
        if self.resets > limits.resets {
            return Err(flood(Why::ResetFlood));
        }
        Ok(())
    }

    /// Counts a frame that does nothing.
    fn count_empty(&mut self, limits: &Limits) -> Result<(), Error> {
        self.empty = self.empty.saturating_add(1);
        if self.empty > limits.empty {
            return Err(flood(Why::EmptyFlood));
        }
        Ok(())
    }

    // Requests (sections 4.1, 6.1 and 7.2).

    fn read_request(
        &mut self,
        id: StreamId,
        input: &[u8],
        end: bool,
        limits: &Limits,
        scratch: &mut Scratch,
        events: &mut impl Events,
    ) -> Result<Progress, Error> {
        if !id.is_of_client() {
            // Section 6.1.
            return Err(wrong(Code::STREAM_CREATION_ERROR, Why::StreamCreation));
        }
        let at = match self.find(id) {
            Ok(at) if self.streams[at].remote_ended => return Ok(Progress::Over),
            Ok(at) if self.streams[at].blocked => return Ok(Progress::Blocked(0)),
            Ok(at) => at,
            Err(_) if self.role == Role::Client => {
                events.counters().late += 1;
                return Ok(Progress::Over);
            }
            Err(at) => {
                self.next_peer = self.next_peer.max(id.0 + 4);
                if self.refused_from.is_some_and(|first| id.0 >= first) {
                    // Section 5.2.
                    events.counters().refused += 1;
                    let cause = Cause::Fault(Why::GoingAway);
                    events.reset(id, Code::REQUEST_REJECTED, cause);
                    return self.caused_reset(limits).map(|()| Progress::Over);
                }
                self.streams.insert(at, Stream::new(id));
                at
            }
        };
        let mut rest = input;
        loop {
            let stream = &mut self.streams[at];
            match stream.part {
                Part::Type => {
                    let Some(kind) = stream.varint.take(&mut rest) else { break };
                    self.streams[at].part = Part::Length(self.frame_of(at, kind, events)?);
                }
                Part::Length(frame) => {
                    let Some(len) = stream.varint.take(&mut rest) else { break };
                    stream.left = len;
                    stream.part = Part::Payload(frame);
                    self.begin_frame(at, frame, limits, events)?;
                }
                Part::Payload(frame) => {
                    if stream.left > 0 && rest.is_empty() {
                        break;
                    }
                    let payload = take(&mut rest, &mut stream.left);
                    let whole = stream.left == 0;
                    if whole {
                        stream.part = Part::Type;
                    }
                    let ends = end && whole && rest.is_empty();
                    match frame {
                        Frame::Data => self.data_received(at, payload, ends, limits, events)?,
                        Frame::Headers => {
                            self.block_part(at, payload, ends, limits, scratch, events)?;
                        }
                        Frame::Unknown => {}
                    }
                }
            }
            match self.streams.get(at).filter(|stream| stream.id == id) {
                None | Some(Stream { remote_ended: true, .. }) => return Ok(Progress::Over),
                Some(stream) if stream.blocked => {
                    return Ok(Progress::Blocked(input.len() - rest.len()));
                }
                Some(_) => {}
            }
        }
        if end {
            self.end_received(at, limits, events)?;
            return Ok(Progress::Over);
        }
        Ok(Progress::Taken)
    }

    /// Whether a frame of this type may come now (section 7.2).
    fn frame_of(&self, at: usize, kind: u64, events: &mut impl Events) -> Result<Frame, Error> {
        let stream = &self.streams[at];
        match kind {
            kind::DATA if stream.headed && !stream.trailers => Ok(Frame::Data),
            kind::HEADERS if !stream.trailers && !stream.tunnel => Ok(Frame::Headers),
            // This end has allowed none (section 7.2.5).
            kind::PUSH_PROMISE if self.role == Role::Client => {
                Err(wrong(Code::ID_ERROR, Why::Push))
            }
            _ if is_known(kind) => Err(unexpected()),
            _ => {
                ignore_frame(kind, events.counters());
                Ok(Frame::Unknown)
            }
        }
    }

    /// Checks the length of a frame.
    fn begin_frame(
        &mut self,
        at: usize,
        frame: Frame,
        limits: &Limits,
        events: &mut impl Events,
    ) -> Result<(), Error> {
        let stream = &self.streams[at];
        let (len, remaining) = (stream.left, stream.remaining);
        match frame {
            Frame::Headers if len > u64::from(limits.block) => Err(flood(Why::BlockFlood)),
            Frame::Data | Frame::Unknown if len == 0 => self.count_empty(limits),
            Frame::Data if remaining != ANY_LENGTH && len > remaining => {
                let (code, why) = (Code::MESSAGE_ERROR, Why::ContentLength);
                self.stream_error(at, code, why, limits, events)
            }
            _ => Ok(()),
        }
    }

    fn data_received(
        &mut self,
        at: usize,
        data: &[u8],
        ends: bool,
        limits: &Limits,
        events: &mut impl Events,
    ) -> Result<(), Error> {
        let stream = &mut self.streams[at];
        let id = stream.id;
        if stream.remaining != ANY_LENGTH {
            // The length of the frame was checked.
            stream.remaining -= data.len() as u64;
        }
        stream.data |= !data.is_empty();
        events.counters().data_octets += data.len() as u64;
        let ends_well = ends && self.has_whole_body(at);
        if !data.is_empty() || ends_well {
            events.data(id, data, ends_well);
        }
        if ends_well {
            self.end_remote(at);
        } else if ends {
            let (code, why) = (Code::MESSAGE_ERROR, Why::ContentLength);
            return self.stream_error(at, code, why, limits, events);
        }
        Ok(())
    }

    /// Whether a body may end here (section 4.1.2). Answers to HEAD have a length, and no data.
    fn has_whole_body(&self, at: usize) -> bool {
        let stream = &self.streams[at];
        let none = self.role == Role::Client && !stream.data;
        none || matches!(stream.remaining, 0 | ANY_LENGTH)
    }

    /// The end of a stream, if it has not come with a frame that was of use.
    fn end_received(
        &mut self,
        at: usize,
        limits: &Limits,
        events: &mut impl Events,
    ) -> Result<(), Error> {
        let stream = &self.streams[at];
        // Section 7.1.
        if stream.part != Part::Type || stream.varint.has_begun() {
            return Err(wrong(Code::FRAME_ERROR, Why::FrameSize));
        }
        let (id, headed) = (stream.id, stream.headed);
        let (code, why) = match self.role {
            Role::Server if !headed => (Code::REQUEST_INCOMPLETE, Why::Incomplete),
            Role::Client if !headed => (Code::MESSAGE_ERROR, Why::Malformed),
            _ if !self.has_whole_body(at) => (Code::MESSAGE_ERROR, Why::ContentLength),
            _ => {
                events.data(id, &[], true);
                self.end_remote(at);
                return Ok(());
            }
        };
        self.stream_error(at, code, why, limits, events)
    }

    // Field blocks (sections 4.2, 4.3 and 7.2.2).

    fn block_part(
        &mut self,
        at: usize,
        part: &[u8],
        ends: bool,
        limits: &Limits,
        scratch: &mut Scratch,
        events: &mut impl Events,
    ) -> Result<(), Error> {
        let stream = &mut self.streams[at];
        if stream.left == 0 && stream.block.is_empty() {
            // The usual case: a block that has arrived as a whole.
            return self.block_received(at, part, ends, limits, scratch, events);
        }
        // Together at most the limit.
        self.held += part.len() as u32;
        stream.block.extend_from_slice(part);
        if self.held > limits.held {
            return Err(flood(Why::BlockFlood));
        }
        if stream.left > 0 {
            return Ok(());
        }
        let block = mem::take(&mut stream.block);
        self.held -= block.len() as u32;
        self.block_received(at, &block, ends, limits, scratch, events)
    }

    fn block_received(
        &mut self,
        at: usize,
        block: &[u8],
        ends: bool,
        limits: &Limits,
        scratch: &mut Scratch,
        events: &mut impl Events,
    ) -> Result<(), Error> {
        if self.decode(at, block, limits, scratch, events)? {
            return self.head_received(at, ends, limits, scratch, events);
        }
        events.counters().blocked += 1;
        self.blocked += 1;
        if self.blocked > limits.settings.qpack_blocked {
            // RFC 9204 section 2.1.2.
            return Err(wrong(Code::QPACK_DECOMPRESSION_FAILED, Why::BlockedFlood));
        }
        self.waiting += block.len() as u32;
        if self.waiting > limits.blocked {
            return Err(flood(Why::BlockedFlood));
        }
        let stream = &mut self.streams[at];
        stream.block = block.to_vec();
        stream.blocked = true;
        Ok(())
    }

    /// Reads the streams that wait, as far as the insertions allow that have come.
    fn unblock(
        &mut self,
        limits: &Limits,
        scratch: &mut Scratch,
        events: &mut impl Events,
    ) -> Result<(), Error> {
        let mut at = 0;
        while self.blocked > 0 && at < self.streams.len() {
            let stream = &mut self.streams[at];
            if !stream.blocked {
                at += 1;
                continue;
            }
            let (id, block) = (stream.id, mem::take(&mut stream.block));
            if !self.decode(at, &block, limits, scratch, events)? {
                self.streams[at].block = block;
                at += 1;
                continue;
            }
            self.streams[at].blocked = false;
            self.blocked -= 1;
            self.waiting -= block.len() as u32;
            self.head_received(at, false, limits, scratch, events)?;
            if self.streams.get(at).is_some_and(|stream| stream.id == id) {
                events.unblocked(id);
                at += 1;
            }
        }
        Ok(())
    }

    /// Decodes a block into `scratch`. Returns false if it has to wait. A block that is too long
    /// leaves no fields.
    fn decode(
        &mut self,
        at: usize,
        block: &[u8],
        limits: &Limits,
        scratch: &mut Scratch,
        events: &mut impl Events,
    ) -> Result<bool, Error> {
        let section = match scratch.known(Coding::Qpack, block, limits.head) {
            Some(sum) => Section { sum, required: 0 },
            None => match self.decode_new(block, limits, scratch)? {
                Some(section) => section,
                None => return Ok(false),
            },
        };
        let octets = &scratch.octets;
        let counters = events.counters();
        counters.heads += 1;
        counters.head_octets += block.len() as u64;
        counters.head_octets_plain += octets.len() as u64;
        self.insertions = 0;
        if section.required > 0 {
            let id = self.streams[at].id;
            self.decoder.acknowledge(id.0, section, &mut self.answers);
            self.answered(limits)?;
        }
        self.streams[at].too_long = section.sum > limits.head;
        Ok(true)
    }

    /// Decodes a block whose fields `scratch` does not have. `None`: it has to wait.
    fn decode_new(
        &mut self,
        block: &[u8],
        limits: &Limits,
        scratch: &mut Scratch,
    ) -> Result<Option<Section>, Error> {
        scratch.clear();
        let Scratch { text, octets, lengths, .. } = &mut *scratch;
        let section = self
            .decoder
            .decode(block, limits.head, text, |name, value| {
                octets.extend_from_slice(name);
                octets.extend_from_slice(value);
                // Together at most the limit.
                lengths.push((name.len() as u32, value.len() as u32));
            })
            .map_err(|error| match error {
                QpackError::Bomb => flood(Why::HeadTooLong),
                _ => wrong(Code::QPACK_DECOMPRESSION_FAILED, Why::Compression),
            })?;
        let fixed = section.filter(|section| section.required == 0 && section.sum <= limits.head);
        if let Some(section) = fixed {
            scratch.remember(Coding::Qpack, block, section.sum);
        }
        Ok(section)
    }

    /// A request, a response or trailers, which `scratch` has.
    fn head_received(
        &mut self,
        at: usize,
        ends: bool,
        limits: &Limits,
        scratch: &mut Scratch,
        events: &mut impl Events,
    ) -> Result<(), Error> {
        let stream = &mut self.streams[at];
        let id = stream.id;
        if stream.too_long {
            let (code, why) = (Code::EXCESSIVE_LOAD, Why::HeadTooLong);
            return self.stream_error(at, code, why, limits, events);
        }
        let message = if stream.headed {
            stream.trailers = true;
            validate::trailers(scratch.fields()).then_some((HeadKind::Trailers, 0))
        } else {
            let message = match self.role {
                Role::Server => {
                    let fields = scratch.fields();
                    stream.tunnel = fields.get(b":method") == Some(&b"CONNECT"[..]);
                    validate::request(fields, limits.settings.connect_protocol)
                        .filter(|_| names_authority(fields))
                }
                // An interim response does not end (section 4.1).
                Role::Client => {
                    scratch.response().filter(|message| message.kind == HeadKind::Response || !ends)
                }
            };
            message.map(|message| {
                stream.headed = message.kind != HeadKind::Interim;
                stream.remaining = message.content_length.unwrap_or(ANY_LENGTH);
                (message.kind, message.status)
            })
        };
        let Some((kind, status)) = message else {
            let (code, why) = (Code::MESSAGE_ERROR, Why::Malformed);
            return self.stream_error(at, code, why, limits, events);
        };
        if (ends || kind == HeadKind::Trailers) && !self.has_whole_body(at) {
            let (code, why) = (Code::MESSAGE_ERROR, Why::ContentLength);
            return self.stream_error(at, code, why, limits, events);
        }
        events.head(id, &Head { kind, end: ends, status, fields: scratch.fields() });
        if ends {
            self.end_remote(at);
        }
        Ok(())
    }

    // Unidirectional streams (section 6.2).

    fn is_critical(&self, id: StreamId) -> bool {
        [self.peer_control, self.peer_encoder, self.peer_decoder].contains(&Some(id))
    }

    fn read_unidirectional(
        &mut self,
        id: StreamId,
        input: &[u8],
        end: bool,
        limits: &Limits,
        scratch: &mut Scratch,
        events: &mut impl Events,
    ) -> Result<Progress, Error> {
        let mut rest = input;
        if !self.is_critical(id) {
            let at = self.untyped.iter().position(|stream| stream.0 == id);
            let mut read = at.map(|at| self.untyped.swap_remove(at).1).unwrap_or_default();
            let Some(kind) = read.take(&mut rest) else {
                // Streams may end before their type has come.
                if end {
                    return Ok(Progress::Over);
                }
                self.untyped.push((id, read));
                if self.untyped.len() > usize::from(limits.streams) {
                    return Err(flood(Why::StreamFlood));
                }
                return Ok(Progress::Taken);
            };
            if !self.begin_stream(id, kind, end, limits, events)? {
                return Ok(Progress::Over);
            }
        }
        if self.peer_control == Some(id) {
            self.read_control(rest, limits, events)?;
        } else if self.peer_encoder == Some(id) {
            self.read_encoder(rest, limits, scratch, events)?;
        } else {
            self.encoder
                .acknowledgments(rest)
                .map_err(|_| wrong(Code::QPACK_DECODER_STREAM_ERROR, Why::Instruction))?;
        }
        if end {
            return Err(wrong(Code::CLOSED_CRITICAL_STREAM, Why::ClosedCritical));
        }
        Ok(Progress::Taken)
    }

    /// Notes the type of a stream. Returns whether it is read.
    fn begin_stream(
        &mut self,
        id: StreamId,
        kind: u64,
        end: bool,
        limits: &Limits,
        events: &mut impl Events,
    ) -> Result<bool, Error> {
        let place = match kind {
            uni::CONTROL => &mut self.peer_control,
            uni::ENCODER => &mut self.peer_encoder,
            uni::DECODER => &mut self.peer_decoder,
            // This end has allowed none (section 4.6).
            uni::PUSH if self.role == Role::Client => {
                return Err(wrong(Code::ID_ERROR, Why::Push));
            }
            uni::PUSH => return Err(wrong(Code::STREAM_CREATION_ERROR, Why::StreamCreation)),
            _ => {
                events.counters().streams_ignored += 1;
                self.unknown = self.unknown.saturating_add(1);
                if self.unknown > limits.streams {
                    return Err(flood(Why::StreamFlood));
                }
                if !end {
                    events.stop(id, Code::STREAM_CREATION_ERROR);
                }
                return Ok(false);
            }
        };
        if place.replace(id).is_some() {
            return Err(wrong(Code::STREAM_CREATION_ERROR, Why::StreamCreation));
        }
        Ok(true)
    }

    fn read_encoder(
        &mut self,
        input: &[u8],
        limits: &Limits,
        scratch: &mut Scratch,
        events: &mut impl Events,
    ) -> Result<(), Error> {
        // An octet can copy an entry of a whole table: the bound is checked often.
        for piece in input.chunks(256) {
            let inserted = self
                .decoder
                .instructions(piece)
                .map_err(|_| wrong(Code::QPACK_ENCODER_STREAM_ERROR, Why::Instruction))?;
            if inserted == 0 {
                continue;
            }
            events.counters().insertions += inserted;
            self.insertions += inserted;
            self.unblock(limits, scratch, events)?;
            if self.insertions > u64::from(limits.insertions) {
                return Err(flood(Why::InsertionFlood));
            }
            self.decoder.increment(&mut self.answers);
            self.answered(limits)?;
        }
        Ok(())
    }

    // The control stream (sections 6.2.1 and 7.2).

    fn read_control(
        &mut self,
        input: &[u8],
        limits: &Limits,
        events: &mut impl Events,
    ) -> Result<(), Error> {
        let mut rest = input;
        loop {
            match self.frame {
                ControlPart::Type => {
                    let Some(kind) = self.integer.take(&mut rest) else { return Ok(()) };
                    self.frame = ControlPart::Length(self.control_frame(kind, events)?);
                }
                ControlPart::Length(frame) => {
                    let Some(len) = self.integer.take(&mut rest) else { return Ok(()) };
                    self.left = len;
                    self.frame = ControlPart::Payload(frame);
                    self.begin_control_frame(frame, limits)?;
                }
                ControlPart::Payload(frame) => {
                    if self.left > 0 && rest.is_empty() {
                        return Ok(());
                    }
                    let payload = take(&mut rest, &mut self.left);
                    match frame {
                        ControlFrame::Settings => self.settings_payload(payload, limits, events)?,
                        ControlFrame::Unknown => {}
                        _ => self.number_payload(frame, payload, events)?,
                    }
                    if self.left == 0 {
                        self.frame = ControlPart::Type;
                    }
                }
            }
        }
    }

    fn control_frame(
        &mut self,
        kind: u64,
        events: &mut impl Events,
    ) -> Result<ControlFrame, Error> {
        let begun = mem::replace(&mut self.settings_begun, true);
        match kind {
            kind::SETTINGS if !begun => Ok(ControlFrame::Settings),
            _ if !begun => Err(wrong(Code::MISSING_SETTINGS, Why::MissingSettings)),
            kind::GOAWAY => Ok(ControlFrame::GoAway),
            kind::CANCEL_PUSH => Ok(ControlFrame::CancelPush),
            kind::MAX_PUSH_ID if self.role == Role::Server => Ok(ControlFrame::MaxPushId),
            _ if is_known(kind) => Err(unexpected()),
            _ => {
                ignore_frame(kind, events.counters());
                Ok(ControlFrame::Unknown)
            }
        }
    }

    /// Checks the length of a frame.
    fn begin_control_frame(&mut self, frame: ControlFrame, limits: &Limits) -> Result<(), Error> {
        match frame {
            ControlFrame::Settings if self.left > u64::from(limits.settings_octets) => {
                Err(flood(Why::SettingsFlood))
            }
            ControlFrame::Settings => Ok(()),
            ControlFrame::Unknown if self.left > 0 => Ok(()),
            ControlFrame::Unknown => self.count_empty(limits),
            // An integer alone.
            _ if !matches!(self.left, 1 | 2 | 4 | 8) => {
                Err(wrong(Code::FRAME_ERROR, Why::FrameSize))
            }
            _ => self.count_empty(limits),
        }
    }

    /// Section 7.2.4.
    fn settings_payload(
        &mut self,
        payload: &[u8],
        limits: &Limits,
        events: &mut impl Events,
    ) -> Result<(), Error> {
        let mut rest = payload;
        while let Some(integer) = self.integer.take(&mut rest) {
            let Some(number) = self.setting.take() else {
                self.setting = Some(integer);
                continue;
            };
            let bit = if number < 64 { 1_u64 << number } else { 0 };
            if self.seen & bit != 0 || !settings::is_allowed(number, integer) {
                return Err(wrong(Code::SETTINGS_ERROR, Why::Setting));
            }
            self.seen |= bit;
            if !self.peer.apply(number, integer) {
                events.counters().settings_ignored += 1;
            }
        }
        if self.left > 0 {
            return Ok(());
        }
        if self.integer.has_begun() || self.setting.is_some() {
            return Err(wrong(Code::FRAME_ERROR, Why::FrameSize));
        }
        self.settings_seen = true;
        if limits.encoder_table > 0 && self.peer.qpack_table > 0 {
            varint(uni::ENCODER, self.encoder.instructions());
            self.encoder.limit(self.peer.qpack_table);
        }
        events.settings(&self.peer);
        Ok(())
    }

    /// A frame that has an integer alone: sections 7.2.3, 7.2.6 and 7.2.7.
    fn number_payload(
        &mut self,
        frame: ControlFrame,
        payload: &[u8],
        events: &mut impl Events,
    ) -> Result<(), Error> {
        let mut rest = payload;
        let number = self.integer.take(&mut rest);
        // As long as the frame.
        if number.is_some() != (self.left == 0) || !rest.is_empty() {
            return Err(wrong(Code::FRAME_ERROR, Why::FrameSize));
        }
        let Some(number) = number else { return Ok(()) };
        let wrong = wrong(Code::ID_ERROR, Why::Id);
        match frame {
            ControlFrame::GoAway => {
                let of_request = self.role == Role::Client;
                let rises = self.peer_goes.is_some_and(|before| number > before);
                if rises || (of_request && !number.is_multiple_of(4)) {
                    return Err(wrong);
                }
                self.peer_goes = Some(number);
                if of_request {
                    self.leave_out(StreamId(number), events);
                }
                events.going_away(number);
                Ok(())
            }
            ControlFrame::MaxPushId if self.pushes.is_none_or(|before| number >= before) => {
                self.pushes = Some(number);
                Ok(())
            }
            // A number that has become smaller; or a push is to end, but there are none.
            _ => Err(wrong),
        }
    }

    /// Section 5.2: requests from `first` on were not processed.
    fn leave_out(&mut self, first: StreamId, events: &mut impl Events) {
        while let Some(id) = self.streams.last().map(|stream| stream.id)
            && id >= first
        {
            self.remove(self.streams.len() - 1);
            events.reset(id, Code::REQUEST_CANCELLED, Cause::GoAway);
        }
    }
}

/// Types that have a meaning, here or in HTTP/2 (RFC 9114 section 7.2.8).
fn is_known(kind: u64) -> bool {
    matches!(kind, kind::DATA..=0x9 | kind::MAX_PUSH_ID)
}

fn ignore_frame(kind: u64, counters: &mut Counters) {
    match kind {
        kind::PRIORITY_UPDATE | kind::PRIORITY_UPDATE_PUSH => counters.priorities_ignored += 1,
        _ => counters.frames_ignored += 1,
    }
}

/// Takes what `input` has of the `left` octets of a payload.
fn take<'a>(input: &mut &'a [u8], left: &mut u64) -> &'a [u8] {
    let most = usize::try_from(*left).unwrap_or(usize::MAX);
    let (part, rest) = input.split_at(most.min(input.len()));
    *input = rest;
    *left -= part.len() as u64;
    part
}

/// Appends a HEADERS frame that refers to no dynamic table. Connections without one
/// ([`Connection::sends_plain_heads`]) can send its octets any number of times.
pub fn plain_head(out: &mut Vec<u8>, fields: impl FnOnce(&mut Encoder, &mut Vec<u8>)) {
    headers(&mut Encoder::new(0, 0), StreamId(0), out, fields);
}

fn headers(
    encoder: &mut Encoder,
    id: StreamId,
    out: &mut Vec<u8>,
    fields: impl FnOnce(&mut Encoder, &mut Vec<u8>),
) {
    let start = out.len();
    encoder.section(id.0, out, fields);
    let end = out.len();
    varint(kind::HEADERS, out);
    varint((end - start) as u64, out);
    let header = out.len() - end;
    out[start..].rotate_right(header);
}

fn frame(kind: u64, payload: &[u8], out: &mut Vec<u8>) {
    varint(kind, out);
    varint(payload.len() as u64, out);
    out.extend_from_slice(payload);
}

/// Section 4.3.1: requests for http and https name an authority, once or twice the same. A tunnel
/// has no scheme.
fn names_authority(fields: Fields<'_>) -> bool {
    let Some(scheme) = fields.get(b":scheme") else { return true };
    if !scheme.eq_ignore_ascii_case(b"http") && !scheme.eq_ignore_ascii_case(b"https") {
        return true;
    }
    let (authority, host) = (fields.get(b":authority"), fields.get(b"host"));
    let same = authority.is_none() || host.is_none() || authority == host;
    authority.or(host).is_some_and(|name| same && !name.is_empty() && !name.contains(&b'@'))
}
