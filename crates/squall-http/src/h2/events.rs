//! Events of a connection: heads, data, ends; and its counters.

use std::{fmt, slice};

use super::{PeerSettings, StreamId};

/// Gets what a connection has received, in order.
///
/// The octets of each call are borrowed from the input or from the scratch buffer. A stream is over
/// for the receiver with the first `end` in [`head`](Self::head) or [`data`](Self::data), or with
/// [`reset`](Self::reset), after which nothing of it follows.
pub trait Events {
    /// A valid field block: a request, a response, an interim response or trailers.
    fn head(&mut self, id: StreamId, head: &Head<'_>);

    /// Octets of a body, at most a frame's. Empty only with `end`. The caller returns them later by
    /// [`Connection::consumed`](super::Connection::consumed), also those of streams that have
    /// ended.
    fn data(&mut self, id: StreamId, octets: &[u8], end: bool);

    /// The stream has ended by an error or a reset; nothing is sent or received on it any more.
    /// Only for streams of which the receiver knows: opened here, or reported by a head.
    fn reset(&mut self, id: StreamId, code: Code, cause: Cause);

    /// A stream may send more than before; `None`: any of them, once per call of
    /// [`Connection::receive`](super::Connection::receive).
    fn writable(&mut self, id: Option<StreamId>);

    /// The peer has sent settings. More streams may be open now.
    fn settings(&mut self, peer: &PeerSettings);

    /// The peer will process no streams above `last`: those were reset before this call
    /// ([`Cause::GoAway`]), and [`open`](super::Connection::open) refuses new ones.
    fn going_away(&mut self, last: StreamId, code: Code);

    /// The counters of this connection.
    fn counters(&mut self) -> &mut Counters;
}

/// The kind of a field block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadKind {
    /// For servers.
    Request,
    /// A final response: status 200 to 999.
    Response,
    /// Status 100 to 199; another head follows.
    Interim,
    /// Fields after the body. Ends the stream.
    Trailers,
}

/// A field block that has passed the checks of RFC 9113 sections 8.2 and 8.3.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    pub kind: HeadKind,
    /// Whether the peer sends nothing more on the stream.
    pub end: bool,
    /// The status of a response; otherwise 0.
    pub status: u16,
    /// In order, pseudo-fields first. Names are lower case; names and values have no CR, LF or NUL.
    /// `cookie` may come more than once (RFC 9113 section 8.2.3).
    pub fields: Fields<'a>,
}

/// Fields of a block: pairs of a name and a value.
#[derive(Clone, Copy)]
pub struct Fields<'a> {
    pub(crate) octets: &'a [u8],
    /// The lengths of name and value of each.
    pub(crate) lengths: &'a [(u32, u32)],
    pub(crate) number: u64,
}

impl<'a> Fields<'a> {
    /// The value of the first field with this name.
    pub fn get(&self, name: &[u8]) -> Option<&'a [u8]> {
        self.iter().find(|field| field.0 == name).map(|field| field.1)
    }

    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// The number of these fields among those that were decoded with the same
    /// [`Scratch`](super::Scratch): blocks with the same number have equal fields.
    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn iter(&self) -> FieldIter<'a> {
        FieldIter { octets: self.octets, lengths: self.lengths.iter() }
    }
}

impl<'a> IntoIterator for Fields<'a> {
    type Item = (&'a [u8], &'a [u8]);
    type IntoIter = FieldIter<'a>;

    fn into_iter(self) -> FieldIter<'a> {
        self.iter()
    }
}

impl fmt::Debug for Fields<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |octets: &[u8]| octets.escape_ascii().to_string();
        f.debug_map().entries(self.iter().map(|(name, value)| (text(name), text(value)))).finish()
    }
}

/// Iterates over [`Fields`].
#[derive(Clone, Debug)]
pub struct FieldIter<'a> {
    octets: &'a [u8],
    lengths: slice::Iter<'a, (u32, u32)>,
}

impl<'a> Iterator for FieldIter<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let &(name, value) = self.lengths.next()?;
        let (name, rest) = self.octets.split_at(name as usize);
        let (value, rest) = rest.split_at(value as usize);
        self.octets = rest;
        Some((name, value))
    }
}

/// The reason why a stream ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The peer, by RST_STREAM.
    Peer,
    /// This end, because of what the peer sent; RST_STREAM is sent.
    Fault(Why),
    /// The peer, by a GOAWAY that leaves the stream out: it was not processed (RFC 9113 section
    /// 8.7).
    GoAway,
}

/// An error code (RFC 9113 section 7), known or unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Code(pub u32);

impl Code {
    pub const NO_ERROR: Self = Self(0x0);
    pub const PROTOCOL_ERROR: Self = Self(0x1);
    pub const INTERNAL_ERROR: Self = Self(0x2);
    pub const FLOW_CONTROL_ERROR: Self = Self(0x3);
    pub const SETTINGS_TIMEOUT: Self = Self(0x4);
    pub const STREAM_CLOSED: Self = Self(0x5);
    pub const FRAME_SIZE_ERROR: Self = Self(0x6);
    pub const REFUSED_STREAM: Self = Self(0x7);
    pub const CANCEL: Self = Self(0x8);
    pub const COMPRESSION_ERROR: Self = Self(0x9);
    pub const CONNECT_ERROR: Self = Self(0xa);
    pub const ENHANCE_YOUR_CALM: Self = Self(0xb);
    pub const INADEQUATE_SECURITY: Self = Self(0xc);
    pub const HTTP_1_1_REQUIRED: Self = Self(0xd);

    /// How many codes have names, from 0 on.
    pub const KNOWN: usize = 14;

    /// As the RFC writes it; `None` for unknown codes.
    pub fn name(self) -> Option<&'static str> {
        const NAMES: [&str; Code::KNOWN] = [
            "NO_ERROR",
            "PROTOCOL_ERROR",
            "INTERNAL_ERROR",
            "FLOW_CONTROL_ERROR",
            "SETTINGS_TIMEOUT",
            "STREAM_CLOSED",
            "FRAME_SIZE_ERROR",
            "REFUSED_STREAM",
            "CANCEL",
            "COMPRESSION_ERROR",
            "CONNECT_ERROR",
            "ENHANCE_YOUR_CALM",
            "INADEQUATE_SECURITY",
            "HTTP_1_1_REQUIRED",
        ];
        NAMES.get(self.0 as usize).copied()
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::show_code(f, self.name(), self.0.into())
    }
}

/// The connection has ended by what the peer sent: GOAWAY with `code` is in the next
/// [`control`](super::Connection::control), and further input is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    pub code: Code,
    pub why: Why,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HTTP/2: {}: {}", self.code, self.why)
    }
}

impl std::error::Error for Error {}

/// The rule that the peer has broken, or the bound that it has met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// The connection does not begin with the preface or with SETTINGS (section 3.4).
    Preface,
    /// A frame is longer than announced, or has the wrong length for its type (section 4.2).
    FrameSize,
    /// A field block cannot be decoded (section 4.3).
    Compression,
    /// Frames of another kind or stream within a field block (section 4.3).
    BrokenBlock,
    /// A frame of this kind is not allowed on this stream or on the connection (sections 5.1, 6).
    UnexpectedFrame,
    /// A stream's number is even, too low, or not that of an open stream (section 5.1.1).
    StreamNumber,
    /// A frame on a stream that the peer has ended or reset (section 5.1).
    StreamClosed,
    /// More data than a window allows, or a window of more than 2^31-1 octets (section 5.2, 6.9).
    Window,
    /// A setting with a value that it must not have (section 6.5.2).
    Setting,
    /// Padding of a whole frame or more (section 6.1).
    Padding,
    /// A stream depends on itself (RFC 7540 section 5.3.1).
    Dependency,
    /// Fields that must not be in a message, or are missing (sections 8.1 to 8.5).
    Malformed,
    /// The body is not as long as its content-length (section 8.1.1).
    ContentLength,
    /// A promise although push is disabled, or from a client (section 8.4).
    Push,
    /// More streams at a time than announced (section 5.1.2).
    TooManyStreams,
    /// Fields of a block are longer in sum than [`Limits::head`](super::Limits::head).
    HeadTooLong,
    /// A field block is longer, or has more frames, than [`Limits`](super::Limits) allow.
    ContinuationFlood,
    /// More streams were reset, by either end because of the peer, than ended well.
    ResetFlood,
    /// More pings and settings than answers were sent.
    ControlFlood,
    /// Frames without octets and without an end.
    EmptyFlood,
}

impl Why {
    /// A short name, for reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Preface => "preface",
            Self::FrameSize => "frame_size",
            Self::Compression => "compression",
            Self::BrokenBlock => "broken_block",
            Self::UnexpectedFrame => "unexpected_frame",
            Self::StreamNumber => "stream_number",
            Self::StreamClosed => "stream_closed",
            Self::Window => "window",
            Self::Setting => "setting",
            Self::Padding => "padding",
            Self::Dependency => "dependency",
            Self::Malformed => "malformed",
            Self::ContentLength => "content_length",
            Self::Push => "push",
            Self::TooManyStreams => "too_many_streams",
            Self::HeadTooLong => "head_too_long",
            Self::ContinuationFlood => "continuation_flood",
            Self::ResetFlood => "reset_flood",
            Self::ControlFlood => "control_flood",
            Self::EmptyFlood => "empty_flood",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Preface => "the connection does not begin with the preface and SETTINGS",
            Self::FrameSize => "a frame has a wrong length",
            Self::Compression => "a field block cannot be decoded",
            Self::BrokenBlock => "another frame came within a field block",
            Self::UnexpectedFrame => "a frame came where its kind is not allowed",
            Self::StreamNumber => "a frame has a stream number that is not allowed",
            Self::StreamClosed => "a frame came on a closed stream",
            Self::Window => "a flow-control window was exceeded",
            Self::Setting => "a setting has a value that is not allowed",
            Self::Padding => "padding is as long as its frame",
            Self::Dependency => "a stream depends on itself",
            Self::Malformed => "a message has fields that are not allowed, or lacks some",
            Self::ContentLength => "a body is not as long as its content-length",
            Self::Push => "a promise came although push is disabled",
            Self::TooManyStreams => "more streams were opened than allowed",
            Self::HeadTooLong => "the fields of a message are too long",
            Self::ContinuationFlood => "a field block is too long or has too many frames",
            Self::ResetFlood => "too many streams were reset",
            Self::ControlFlood => "pings or settings came faster than answers were sent",
            Self::EmptyFlood => "too many frames were empty",
        })
    }
}

/// Counts since connections began. Any number of connections can share one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Received field blocks, their octets as compressed, and the octets of names and values.
    pub heads: u64,
    pub head_octets: u64,
    pub head_octets_plain: u64,
    /// Received octets of bodies, and of padding.
    pub data_octets: u64,
    pub padding_octets: u64,
    /// Received RST_STREAM frames.
    pub resets_received: u64,
    /// RST_STREAM frames because of what the peer sent, by error code; without those of
    /// [`reset`](super::Connection::reset).
    pub resets_sent: [u64; Code::KNOWN],
    /// Streams refused because too many were open ([`Why::TooManyStreams`]).
    pub refused: u64,
    /// Promised streams that were refused.
    pub pushes_refused: u64,
    /// Messages that break sections 8.1 to 8.5 ([`Why::Malformed`], [`Why::ContentLength`]).
    pub malformed: u64,
    /// PRIORITY and PRIORITY_UPDATE frames, and priorities in HEADERS: all ignored.
    pub priorities_ignored: u64,
    /// Frames of unknown types.
    pub frames_ignored: u64,
    /// Frames on streams that this end has reset: they were on their way.
    pub late_frames: u64,
    /// Streams whose fields were too long ([`Why::HeadTooLong`]), except for a block that ended its
    /// connection.
    pub heads_too_long: u64,
    /// Connections ended by [`Why::ContinuationFlood`].
    pub continuation_floods: u64,
    /// Connections ended by [`Why::ResetFlood`].
    pub reset_floods: u64,
    /// Connections ended by [`Why::ControlFlood`].
    pub control_floods: u64,
    /// Connections ended by [`Why::EmptyFlood`].
    pub empty_floods: u64,
    /// Connections ended by any error, those above included.
    pub errors: u64,
}

impl Counters {
    pub(super) fn reset_sent(&mut self, code: Code) {
        if let Some(sent) = self.resets_sent.get_mut(code.0 as usize) {
            *sent += 1;
        }
    }

    /// Adds those of another.
    pub fn add(&mut self, other: &Self) {
        let Self {
            heads,
            head_octets,
            head_octets_plain,
            data_octets,
            padding_octets,
            resets_received,
            resets_sent,
            refused,
            pushes_refused,
            malformed,
            priorities_ignored,
            frames_ignored,
            late_frames,
            heads_too_long,
            continuation_floods,
            reset_floods,
            control_floods,
            empty_floods,
            errors,
        } = other;
        self.heads += heads;
        self.head_octets += head_octets;
        self.head_octets_plain += head_octets_plain;
        self.data_octets += data_octets;
        self.padding_octets += padding_octets;
        self.resets_received += resets_received;
        for (sum, added) in self.resets_sent.iter_mut().zip(resets_sent) {
            *sum += added;
        }
        self.refused += refused;
        self.pushes_refused += pushes_refused;
        self.malformed += malformed;
        self.priorities_ignored += priorities_ignored;
        self.frames_ignored += frames_ignored;
        self.late_frames += late_frames;
        self.heads_too_long += heads_too_long;
        self.continuation_floods += continuation_floods;
        self.reset_floods += reset_floods;
        self.control_floods += control_floods;
        self.empty_floods += empty_floods;
        self.errors += errors;
    }
}
