//! Events of a connection: heads, data, ends; and its counters.

use std::fmt;

use super::{Head, PeerSettings, StreamId};

/// Gets what a connection has received, in order for each stream.
///
/// The octets of each call are borrowed from the input or from the scratch buffer. A request is
/// over for the receiver with the first `end` in [`head`](Self::head) or [`data`](Self::data), or
/// with [`reset`](Self::reset), after which nothing of it follows.
pub trait Events {
    /// A valid field block: a request, a response, an interim response or trailers. The end of the
    /// stream may have come with it; otherwise it comes by [`data`](Self::data), also after
    /// trailers.
    fn head(&mut self, id: StreamId, head: &Head<'_>);

    /// Octets of a body. Empty only with `end`.
    fn data(&mut self, id: StreamId, octets: &[u8], end: bool);

    /// A request has ended early, perhaps before its head. After [`Cause::Fault`] and
    /// [`Cause::GoAway`] the caller resets and stops the stream of QUIC with `code`, in both
    /// directions; after [`Cause::Peer`] it ends its own direction.
    fn reset(&mut self, id: StreamId, code: Code, cause: Cause);

    /// The caller stops a unidirectional stream of the peer with `code`: its type is unknown.
    fn stop(&mut self, id: StreamId, code: Code);

    /// The stream does not wait for insertions any more
    /// ([`Progress::Blocked`](super::Progress::Blocked)). Its head was given before this call; the
    /// caller gives the rest of its input.
    fn unblocked(&mut self, id: StreamId);

    /// The peer has sent its settings.
    fn settings(&mut self, peer: &PeerSettings);

    /// The peer is going away (RFC 9114 section 5.2): it processes no requests from `first` on. A
    /// client's were reset before this call ([`Cause::GoAway`]); for servers, the number is that of
    /// a push, and of no use.
    fn going_away(&mut self, first: u64);

    /// The counters of this connection.
    fn counters(&mut self) -> &mut Counters;
}

/// The reason why a request ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The peer, by RESET_STREAM or STOP_SENDING.
    Peer,
    /// This end, because of what the peer sent.
    Fault(Why),
    /// The peer, by a GOAWAY that leaves the request out: it was not processed.
    GoAway,
}

/// An error code (RFC 9114 section 8.1, RFC 9204 section 6), known or unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Code(pub u64);

impl Code {
    pub const NO_ERROR: Self = Self(0x100);
    pub const GENERAL_PROTOCOL_ERROR: Self = Self(0x101);
    pub const INTERNAL_ERROR: Self = Self(0x102);
    pub const STREAM_CREATION_ERROR: Self = Self(0x103);
    pub const CLOSED_CRITICAL_STREAM: Self = Self(0x104);
    pub const FRAME_UNEXPECTED: Self = Self(0x105);
    pub const FRAME_ERROR: Self = Self(0x106);
    pub const EXCESSIVE_LOAD: Self = Self(0x107);
    pub const ID_ERROR: Self = Self(0x108);
    pub const SETTINGS_ERROR: Self = Self(0x109);
    pub const MISSING_SETTINGS: Self = Self(0x10a);
    pub const REQUEST_REJECTED: Self = Self(0x10b);
    pub const REQUEST_CANCELLED: Self = Self(0x10c);
    pub const REQUEST_INCOMPLETE: Self = Self(0x10d);
    pub const MESSAGE_ERROR: Self = Self(0x10e);
    pub const CONNECT_ERROR: Self = Self(0x10f);
    pub const VERSION_FALLBACK: Self = Self(0x110);
    pub const QPACK_DECOMPRESSION_FAILED: Self = Self(0x200);
    pub const QPACK_ENCODER_STREAM_ERROR: Self = Self(0x201);
    pub const QPACK_DECODER_STREAM_ERROR: Self = Self(0x202);

    /// Whether it says that something went wrong: unknown codes do not (RFC 9114 section 8).
    pub fn is_error(self) -> bool {
        self != Self::NO_ERROR && self.name().is_some()
    }

    /// As the RFCs write it; `None` for unknown codes.
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::NO_ERROR => "H3_NO_ERROR",
            Self::GENERAL_PROTOCOL_ERROR => "H3_GENERAL_PROTOCOL_ERROR",
            Self::INTERNAL_ERROR => "H3_INTERNAL_ERROR",
            Self::STREAM_CREATION_ERROR => "H3_STREAM_CREATION_ERROR",
            Self::CLOSED_CRITICAL_STREAM => "H3_CLOSED_CRITICAL_STREAM",
            Self::FRAME_UNEXPECTED => "H3_FRAME_UNEXPECTED",
            Self::FRAME_ERROR => "H3_FRAME_ERROR",
            Self::EXCESSIVE_LOAD => "H3_EXCESSIVE_LOAD",
            Self::ID_ERROR => "H3_ID_ERROR",
            Self::SETTINGS_ERROR => "H3_SETTINGS_ERROR",
            Self::MISSING_SETTINGS => "H3_MISSING_SETTINGS",
            Self::REQUEST_REJECTED => "H3_REQUEST_REJECTED",
            Self::REQUEST_CANCELLED => "H3_REQUEST_CANCELLED",
            Self::REQUEST_INCOMPLETE => "H3_REQUEST_INCOMPLETE",
            Self::MESSAGE_ERROR => "H3_MESSAGE_ERROR",
            Self::CONNECT_ERROR => "H3_CONNECT_ERROR",
            Self::VERSION_FALLBACK => "H3_VERSION_FALLBACK",
            Self::QPACK_DECOMPRESSION_FAILED => "QPACK_DECOMPRESSION_FAILED",
            Self::QPACK_ENCODER_STREAM_ERROR => "QPACK_ENCODER_STREAM_ERROR",
            Self::QPACK_DECODER_STREAM_ERROR => "QPACK_DECODER_STREAM_ERROR",
            _ => return None,
        })
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::show_code(f, self.name(), self.0)
    }
}

/// The connection has ended by what the peer sent: the caller closes it with `code`, and further
/// input is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    pub code: Code,
    pub why: Why,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HTTP/3: {}: {}", self.code, self.why)
    }
}

impl std::error::Error for Error {}

/// The rule that the peer has broken, or the bound that it has met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// A stream of a kind that the peer must not open, or a second one of its type (RFC 9114
    /// sections 6.1 and 6.2, RFC 9204 section 4.2).
    StreamCreation,
    /// The control stream or a stream of QPACK has ended (RFC 9114 section 6.2.1, RFC 9204 section
    /// 4.2).
    ClosedCritical,
    /// A frame that is not allowed on its stream or at this place (sections 4.1 and 7.2).
    UnexpectedFrame,
    /// A frame whose length is not that of its fields, or that is cut off (section 7.1).
    FrameSize,
    /// The control stream does not begin with SETTINGS (section 6.2.1).
    MissingSettings,
    /// A setting that must not be sent, with a value that it must not have, or twice (section
    /// 7.2.4).
    Setting,
    /// A number that is larger or smaller than allowed (sections 5.2, 7.2.3, 7.2.5 and 7.2.7).
    Id,
    /// A push although none was allowed (sections 4.6 and 6.2.2).
    Push,
    /// A field block cannot be decoded (RFC 9204 section 2.2).
    Compression,
    /// Instructions of QPACK that cannot be executed (RFC 9204 sections 4.3 and 4.4).
    Instruction,
    /// A request has ended before its head (RFC 9114 section 4.1).
    Incomplete,
    /// Fields that must not be in a message, or are missing (sections 4.1.2 to 4.3).
    Malformed,
    /// The body is not as long as its content-length (section 4.1.2).
    ContentLength,
    /// A request after this end's GOAWAY (section 5.2).
    GoingAway,
    /// Fields of a block are longer in sum than [`Limits::head`](super::Limits::head).
    HeadTooLong,
    /// Field blocks, or blocks that have begun, are longer than [`Limits`](super::Limits) allow.
    BlockFlood,
    /// More streams, or octets of field blocks, wait for insertions than allowed (RFC 9204 section
    /// 2.1.2).
    BlockedFlood,
    /// More entries were inserted into the dynamic table than could be of use.
    InsertionFlood,
    /// More requests were reset, by either end because of the peer, than ended well.
    ResetFlood,
    /// More answers were asked for than the peer reads.
    ControlFlood,
    /// Frames that do nothing.
    EmptyFlood,
    /// Streams of unknown types.
    StreamFlood,
    /// A SETTINGS frame that is too long.
    SettingsFlood,
}

impl Why {
    /// A short name, for reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::StreamCreation => "stream_creation",
            Self::ClosedCritical => "closed_critical",
            Self::UnexpectedFrame => "unexpected_frame",
            Self::FrameSize => "frame_size",
            Self::MissingSettings => "missing_settings",
            Self::Setting => "setting",
            Self::Id => "id",
            Self::Push => "push",
            Self::Compression => "compression",
            Self::Instruction => "instruction",
            Self::Incomplete => "incomplete",
            Self::Malformed => "malformed",
            Self::ContentLength => "content_length",
            Self::GoingAway => "going_away",
            Self::HeadTooLong => "head_too_long",
            Self::BlockFlood => "block_flood",
            Self::BlockedFlood => "blocked_flood",
            Self::InsertionFlood => "insertion_flood",
            Self::ResetFlood => "reset_flood",
            Self::ControlFlood => "control_flood",
            Self::EmptyFlood => "empty_flood",
            Self::StreamFlood => "stream_flood",
            Self::SettingsFlood => "settings_flood",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::StreamCreation => "a stream was opened that is not allowed",
            Self::ClosedCritical => "a stream ended that has to stay open",
            Self::UnexpectedFrame => "a frame came where its kind is not allowed",
            Self::FrameSize => "a frame has a wrong length",
            Self::MissingSettings => "the control stream does not begin with SETTINGS",
            Self::Setting => "a setting is not allowed, or has a value that is not",
            Self::Id => "a number is larger or smaller than allowed",
            Self::Push => "a push came although none was allowed",
            Self::Compression => "a field block cannot be decoded",
            Self::Instruction => "instructions for a table of fields cannot be executed",
            Self::Incomplete => "a request ended before its head",
            Self::Malformed => "a message has fields that are not allowed, or lacks some",
            Self::ContentLength => "a body is not as long as its content-length",
            Self::GoingAway => "a request came after the announcement of the end",
            Self::HeadTooLong => "the fields of a message are too long",
            Self::BlockFlood => "field blocks are too long",
            Self::BlockedFlood => "too many field blocks wait for insertions",
            Self::InsertionFlood => "too many entries were inserted into a table of fields",
            Self::ResetFlood => "too many requests were reset",
            Self::ControlFlood => "more answers were asked for than were read",
            Self::EmptyFlood => "too many frames do nothing",
            Self::StreamFlood => "too many streams have unknown types",
            Self::SettingsFlood => "the settings are too long",
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
    /// Received octets of bodies.
    pub data_octets: u64,
    /// Entries that peers have inserted into dynamic tables.
    pub insertions: u64,
    /// Field blocks that waited for insertions.
    pub blocked: u64,
    /// Requests after this end's GOAWAY.
    pub refused: u64,
    /// Messages that break the rules of sections 4.1 to 4.3 ([`Why::Malformed`],
    /// [`Why::ContentLength`]).
    pub malformed: u64,
    /// Requests that ended before their heads ([`Why::Incomplete`]).
    pub incomplete: u64,
    /// PRIORITY_UPDATE frames (RFC 9218 section 7.2): all ignored.
    pub priorities_ignored: u64,
    /// Frames, streams and settings of unknown or reserved types.
    pub frames_ignored: u64,
    pub streams_ignored: u64,
    pub settings_ignored: u64,
    /// Input for requests that are closed.
    pub late: u64,
    /// Requests whose fields were too long ([`Why::HeadTooLong`]), except for a block that ended
    /// its connection.
    pub heads_too_long: u64,
    /// Connections ended by [`Why::BlockFlood`].
    pub block_floods: u64,
    /// Connections ended by [`Why::BlockedFlood`].
    pub blocked_floods: u64,
    /// Connections ended by [`Why::InsertionFlood`].
    pub insertion_floods: u64,
    /// Connections ended by [`Why::ResetFlood`].
    pub reset_floods: u64,
    /// Connections ended by [`Why::ControlFlood`].
    pub control_floods: u64,
    /// Connections ended by [`Why::EmptyFlood`].
    pub empty_floods: u64,
    /// Connections ended by [`Why::StreamFlood`].
    pub stream_floods: u64,
    /// Connections ended by [`Why::SettingsFlood`].
    pub settings_floods: u64,
    /// Connections ended by any error, those above included.
    pub errors: u64,
}
