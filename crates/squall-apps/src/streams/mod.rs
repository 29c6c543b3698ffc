//! Common parts of HTTP/2 and HTTP/3, whose streams are flows to their programs
//! (docs/adr/0065-http2-http3.md).
//!
//! A client's connection has *lanes*, each a run of the program with a state of its own; each of
//! its requests opens the next stream. A server's program runs once for each stream. Programs write
//! and read HTTP/1.1.

mod check;
mod counts;
pub mod heads;
pub mod parts;

use std::collections::VecDeque;

use squall_http::h2::{Head, HeadKind};
use squall_tcp::{Event, FlowId, Piece, Tuple};
use squall_units::Nanos;

pub use self::counts::{StreamCounts, add, add_all};
use self::heads::{Body, HeadText, Heads, MAX_HEAD, Outline, Prepared};
use crate::{Apps, FlowSocket, Observer, Role, State};

/// Numbers of lanes, with which their early octets are found. `MARK`: the bits that no flow and no
/// lane of another protocol has.
#[derive(Debug, Default)]
pub struct LaneIds<const MARK: u32> {
    next: u32,
    free: Vec<u32>,
}

impl<const MARK: u32> LaneIds<MARK> {
    pub fn take(&mut self) -> FlowId {
        let number = self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        FlowId(MARK | number)
    }

    pub fn put(&mut self, FlowId(number): FlowId) {
        self.free.push(number & !MARK);
    }

    /// Number of lanes that have a number.
    pub fn taken(&self) -> usize {
        self.next as usize - self.free.len()
    }
}

/// A run of the program, and the stream that it uses: a `T`.
#[derive(Debug)]
pub struct Lane<T> {
    pub id: FlowId,
    pub state: State,
    pub stream: Option<T>,
    /// Messages of the program that have not begun.
    pub messages: VecDeque<Piece>,
    /// A message whose body is being sent, from this octet on.
    pub sending: Option<(Piece, u32)>,
    /// The program's timer.
    pub wake: Option<Nanos>,
    /// The framing of the message that is being received.
    pub body: Body,
    /// Whether the request had the method HEAD.
    pub asked_head: bool,
    /// Whether the answer has been sent completely (servers).
    pub answered: bool,
    /// Whether the peer has ended the stream (servers).
    pub ended: bool,
    pub aborted: bool,
    /// Whether the program cannot take more, and the octets for which no credit was given.
    pub paused: bool,
    pub withheld: u32,
    /// The request while nothing of its answer has come: it can be sent again.
    pub request: Option<Piece>,
    /// Whether the program has sent its last message after all answers. Values of an answer may
    /// change the octets of other requests, so these are not sent again.
    pub alone: bool,
    /// How often the server has refused the request, and whether the lane waits for the end of
    /// another stream since then.
    pub repeats: u8,
    pub refused: bool,
    /// Whether the stream carries octets of WebSocket (RFC 8441).
    pub tunnel: bool,
    /// Whether the program has closed.
    pub closing: bool,
    /// Whether a head was sent whose messages have not ended (gRPC).
    pub open: bool,
    /// The stream of a call that the program has canceled.
    pub canceled: Option<T>,
    /// Whether the program has sent messages and was not notified that they have become frames.
    pub unreported: bool,
}

impl<T> Lane<T> {
    pub fn new(id: FlowId, state: State, stream: Option<T>) -> Self {
        Self {
            id,
            state,
            stream,
            messages: VecDeque::new(),
            sending: None,
            wake: None,
            body: Body::None,
            asked_head: false,
            answered: false,
            ended: false,
            aborted: false,
            paused: false,
            withheld: 0,
            request: None,
            alone: false,
            repeats: 0,
            refused: false,
            tunnel: false,
            closing: false,
            open: false,
            canceled: None,
            unreported: false,
        }
    }

    /// Octets of the program that have not become frames. An end without octets counts as one.
    pub fn queued(&self) -> u32 {
        let rest = self.sending.map_or(0, |(piece, from)| piece.len - from);
        // The usual case, asked several times for each message.
        if self.messages.is_empty() {
            return rest;
        }
        self.messages.iter().fold(rest, |sum, piece| sum.saturating_add(piece.len.max(1)))
    }

    /// Whether nothing of the program has to be sent, the end of a tunnel included.
    pub fn has_sent_all(&self) -> bool {
        self.queued() == 0 && !(self.tunnel && self.closing && !self.answered)
    }

    /// Whether the peer has ended its message before the length that it announced.
    pub fn is_short(&self) -> bool {
        // The connection has no part in this: an answer to HEAD has a length, and no octets.
        matches!(self.body, Body::Length(1..))
    }

    /// Writes a received head to `text`, as the program reads it.
    pub fn read_head(&mut self, head: &Head<'_>, text: &mut HeadText) {
        if head.kind == HeadKind::Trailers {
            text.clear();
            if self.body == Body::Chunked {
                heads::write_chunk(&[], true, &mut text.text);
            }
        } else if heads::opens_tunnel(head, self.tunnel) {
            text.clear();
            heads::write_tunnel(head, &mut text.text);
            self.body = Body::Tunnel;
        } else {
            self.body = text.write(head, self.asked_head);
        }
    }

    /// The text with which the program gets received octets of a body; `text` is a buffer. `None`:
    /// the message has no body.
    pub fn read_data<'t>(
        &mut self,
        octets: &'t [u8],
        end: bool,
        text: &'t mut Vec<u8>,
    ) -> Option<&'t [u8]> {
        match &mut self.body {
            Body::None => octets.is_empty().then_some(octets),
            Body::Length(rest) => {
                *rest = rest.saturating_sub(octets.len() as u64);
                Some(octets)
            }
            Body::Tunnel => Some(octets),
            Body::Chunked => {
                text.clear();
                heads::write_chunk(octets, end, text);
                Some(text)
            }
        }
    }

    /// Translates the head of a message that the program sends.
    ///
    /// # Errors
    /// Why it has no head, or why streams cannot carry it.
    pub fn write_head<O: Observer>(
        &self,
        apps: &Apps<O>,
        (heads, role, secure): (&Heads, Role, bool),
        (piece, tuple): (Piece, &Tuple),
        (text, prepared): (&mut Vec<u8>, &mut Prepared),
    ) -> Result<Outline, &'static str> {
        let outline = match heads.known(piece.message, prepared) {
            Some(outline) => outline,
            None => {
                text.clear();
                text.resize((piece.len as usize).min(MAX_HEAD), 0);
                apps.write(&self.state, tuple, piece, 0, text);
                heads.prepare(text, role, secure, prepared)?
            }
        };
        outline.with_body(piece.len)
    }
}

/// Runs a lane's program. `ends`: see [`LaneSocket`].
pub fn run<O: Observer, S: FlowSocket, T>(
    apps: &mut Apps<O>,
    socket: &mut S,
    ends: Option<&Tuple>,
    lane: &mut Lane<T>,
    event: Event<'_>,
) {
    apps.run_program(&mut LaneSocket { socket, lane, ends }, event);
}

/// A stream as its program sees it.
pub struct LaneSocket<'a, S, T> {
    pub socket: &'a mut S,
    pub lane: &'a mut Lane<T>,
    /// The ends that the program knows, if they are not the flow's: a connection may move while a
    /// message waits whose length depends on them.
    pub ends: Option<&'a Tuple>,
}

impl<S: FlowSocket, T> FlowSocket for LaneSocket<'_, S, T> {
    const SECURED: bool = S::SECURED;
    const PART: bool = true;

    fn now(&self) -> Nanos {
        self.socket.now()
    }
    fn due(&self) -> Nanos {
        self.socket.due()
    }
    fn id(&self) -> FlowId {
        self.lane.id
    }
    fn tuple(&self) -> Tuple {
        self.ends.copied().unwrap_or_else(|| self.socket.tuple())
    }
    fn state(&mut self) -> &mut State {
        &mut self.lane.state
    }
    fn is_stream(&self) -> bool {
        self.lane.stream.is_some()
    }
    fn send(&mut self, piece: Piece) -> bool {
        self.lane.alone = self.lane.stream.is_none() && self.lane.queued() == 0;
        self.lane.unreported = true;
        self.lane.push(piece);
        true
    }
    fn close(&mut self) {
        // Only a tunnel needs it: a message says by itself where it ends.
        self.lane.closing = true;
    }
    fn abort(&mut self) {
        self.lane.aborted = true;
        self.lane.messages.clear();
        self.lane.sending = None;
    }
    fn wake_at(&mut self, at: Nanos) {
        self.lane.wake = Some(at);
    }
    fn unacknowledged(&self) -> u32 {
        self.lane.queued()
    }
    fn unsent(&self) -> u32 {
        self.lane.queued()
    }
    fn pause(&mut self) {
        self.lane.paused = true;
    }
    fn resume(&mut self) {
        self.lane.paused = false;
    }
}
