//! Instructions of WebSocket (RFC 6455).
//!
//! Messages of programs are functions, in frames whose masks are functions, too. Handshakes of
//! servers, echoes and control frames depend on the peer; they are kept until all data of the flow
//! is acknowledged.

use squall_tcp::{FlowId, Piece};
use squall_units::Nanos;

use super::{
    ANSWERING, ASKED, Apps, FlowSocket, MAX_STASHED, PEER_CLOSED, PIECE, ProtocolError, Role,
    Running, Step, WAITING, ticks,
};
use crate::{
    Observer,
    code::{FrameOf, Op, Push},
    message::Sending,
    websocket::{
        ANSWER_ON_STREAM, Connection, Control, FRAMED, Found, Frames, KEPT, Late, MAX_MESSAGE,
        PINGS_RECEIVED, PINGS_SENT, PONGS_RECEIVED, RECEIVED, REFUSAL, SENT, SHARED, SKIPPED,
        accepts, accepts_on_stream, answer, asks_on_stream, control_frame, counter_of_close,
        end_of_head, key_of, mask_of, message_header, status_of,
    },
};

/// Maximum octets of the head of a handshake.
const MAX_HEAD: usize = 8 << 10;
/// Maximum octets that are kept before the peer is held back, in addition to those of the messages
/// that have arrived by then.
const MAX_KEPT: usize = 256 << 10;
/// The number of the frame in the mask of a control frame. No message has this many frames.
const CONTROL: u32 = u32::MAX;

impl<O: Observer> Apps<O> {
    /// Writes octets from `offset` of the frames of a program's message.
    pub(super) fn write_frames(
        &self,
        state: &super::State,
        tuple: &squall_tcp::Tuple,
        piece: Piece,
        offset: u32,
        out: &mut [u8],
    ) {
        let of = self.code.frames[(piece.message & !FRAMED) as usize];
        let message = &self.code.messages[of.message as usize];
        let sending = || self.sending_frame(state, tuple, of, piece.nth);
        let mask = |number| mask_of(self.seed, state.flow, piece.nth, number);
        let copy = |from: u32, out: &mut [u8]| message.copy(sending, from, out);
        of.framing.write(message.len(sending), mask, offset, out, copy);
    }

    /// Marks in a message of a group have the values of the group.
    fn sending_frame(
        &self,
        state: &super::State,
        tuple: &squall_tcp::Tuple,
        of: FrameOf,
        nth: u32,
    ) -> Sending<'_> {
        let sending = self.sending(state, tuple, nth);
        let flow = of.push.map_or(sending.flow, |push| state.flow % push.groups);
        Sending { flow, ..sending }
    }

    /// All data of a flow with WebSocket may be acknowledged: nothing is kept any more.
    #[cold]
    pub(super) fn websocket_acknowledged(&mut self, socket: &mut impl FlowSocket) {
        // During the same event the program may have sent more.
        if socket.unacknowledged() == 0 && self.websockets.acknowledged(socket.id()) {
            socket.resume();
        }
    }
}

impl<O: Observer, S: FlowSocket> Running<'_, O, S> {
    /// Handles octets of the peer, before and after the handshake.
    pub(super) fn websocket_received(&mut self, octets: &[u8]) {
        self.with_connection(|flow, place, connection| {
            if connection.open {
                // Octets that came with the handshake are first.
                flow.read_kept(place, connection);
                flow.read_frames(place, connection, octets);
                return;
            }
            connection.early.extend_from_slice(octets);
            if connection.early.len() > MAX_HEAD && end_of_head(&connection.early).is_none() {
                flow.fail(ProtocolError::BadHttp);
            } else if connection.early.len() >= MAX_STASHED {
                connection.paused = true;
                flow.socket.pause();
            }
        });
        self.run(&[]);
    }

    /// The end of a client's handshake, whose request is `message`.
    pub(super) fn websocket_open(&mut self, message: u32) -> Step {
        let tuple = self.socket.tuple();
        let sending = || self.apps.sending(self.state, &tuple, 0);
        let request = &self.apps.code.messages[message as usize];
        let mut octets = vec![0; request.len(sending) as usize];
        request.copy(sending, 0, &mut octets);
        let key = key_of(&octets).map(<[u8]>::to_vec).unwrap_or_default();
        self.handshake(|flow, _, connection, end| {
            let head = &connection.early[..end];
            let program = flow.program;
            if let Some(status) = status_of(head) {
                flow.apps.observer.status(program, (status / 100) as u8);
            }
            let accepted =
                if flow.socket.is_stream() { accepts_on_stream(head) } else { accepts(head, &key) };
            if accepted {
                flow.state.at &= !(ASKED | ANSWERING);
                return true;
            }
            flow.fail(ProtocolError::BadHttp);
            false
        })
    }

    /// A server's handshake.
    pub(super) fn websocket_accept(&mut self) -> Step {
        self.handshake(|flow, place, connection, end| {
            let (program, stream) = (flow.program, flow.socket.is_stream());
            let head = &connection.early[..end];
            let answer = match stream {
                true => asks_on_stream(head).then(|| ANSWER_ON_STREAM.to_owned()),
                false => key_of(head).map(answer),
            };
            let Some(answer) = answer else {
                flow.apps.observer.status(program, 4);
                flow.send_kept(place, connection, |kept| kept.extend_from_slice(REFUSAL));
                flow.fail(ProtocolError::BadHttp);
                return false;
            };
            flow.apps.observer.status(program, if stream { 2 } else { 1 });
            flow.send_kept(place, connection, |kept| kept.extend_from_slice(answer.as_bytes()));
            true
        })
    }

    /// Waits for the peer's head, and opens the connection if `then` returns true. It gets the
    /// length of the head.
    fn handshake(
        &mut self,
        then: impl FnOnce(&mut Self, u32, &mut Connection, usize) -> bool,
    ) -> Step {
        let mut step = None;
        self.with_connection(|flow, place, connection| {
            let Some(end) = end_of_head(&connection.early) else { return };
            if !then(flow, place, connection, end) {
                step = Some(Step::Over);
                return;
            }
            step = Some(Step::On);
            connection.open = true;
            if std::mem::take(&mut connection.paused) {
                flow.socket.resume();
            }
            connection.early.drain(..end);
        });
        step.unwrap_or_else(|| self.wait_for_peer())
    }

    pub(super) fn websocket_send(&mut self, frame: u32) -> Step {
        if let Some(step) = self.cannot_send() {
            return step;
        }
        let of = self.apps.code.frames[frame as usize];
        let nth = of.register.map_or(self.state.sent, |register| self.register(register));
        self.state.sent = self.state.sent.wrapping_add(1);
        let tuple = self.socket.tuple();
        let sending = || self.apps.sending(self.state, &tuple, nth);
        let len = self.apps.code.messages[of.message as usize].len(sending);
        // All marks in the message are empty.
        if len == 0 {
            return Step::On;
        }
        if !self.is(ASKED) && self.traits.role == Role::Client {
            self.state.at |= ASKED;
            self.state.at &= !ANSWERING;
            self.state.began = ticks(self.socket.now());
        }
        let program = self.program;
        self.count_sent(len);
        self.apps.observer.counted(program, SENT, 1);
        self.state.at += PIECE;
        let len = of.framing.total(len) as u32;
        self.socket.send(Piece { message: FRAMED | frame, nth, len });
        Step::On
    }

    /// Counts octets of a message. On a stream, the octets of all frames are counted instead.
    fn count_sent(&mut self, octets: u32) {
        if !S::PART {
            let program = self.program;
            self.apps.observer.sent(program, octets);
        }
    }

    /// The step instead of sending, if nothing may be sent now. A server has finished when the client
    /// closes.
    fn cannot_send(&mut self) -> Option<Step> {
        self.state.at &= !WAITING;
        self.read_early();
        if self.has_failed() {
            return Some(Step::Over);
        }
        let (mut closing, mut paused) = (false, false);
        self.with_connection(|_, _, connection| {
            (closing, paused) = (connection.closed_by_peer, connection.paused);
        });
        if closing {
            let server = self.traits.role == Role::Server;
            return Some(if server { self.jump_to_end() } else { self.closed_early() });
        }
        // The acknowledgement of all data ends a pause, so further data have to wait.
        if paused || !self.may_send() {
            self.state.at |= WAITING;
            return Some(Step::Waits);
        }
        None
    }

    pub(super) fn websocket_recv(&mut self, messages: u32, answered: bool) -> Step {
        self.read_early();
        if self.has_failed() {
            return Step::Over;
        }
        if self.state.have >= messages {
            self.state.have -= messages;
            self.answered(answered);
            return Step::On;
        }
        if self.is_closing_websocket() {
            return if self.is_between_passes() { self.jump_to_end() } else { self.closed_early() };
        }
        self.wait_for_peer()
    }

    /// Returns each message until the peer closes; the messages are returned when they arrive.
    pub(super) fn websocket_echo(&mut self) -> Step {
        self.read_early();
        if self.has_failed() {
            return Step::Over;
        }
        if self.is_closing_websocket() { self.jump_to_end() } else { self.wait_for_peer() }
    }

    /// Sends each message of a group to its connections. They arrive in `read_frames`, which wakes
    /// the other members.
    pub(super) fn websocket_fan_out(&mut self, groups: u32) -> Step {
        // Acknowledgments make room, also for the group.
        self.state.at &= !WAITING;
        let id = self.socket.id();
        let (program, number) = (self.program.0, self.state.flow % groups);
        let mut group = None;
        self.with_connection(|flow, _, connection| {
            let joined = connection.group;
            let groups = &mut flow.apps.websockets.groups;
            let place = joined.unwrap_or_else(|| groups.join(program, number, id));
            connection.group = Some(place);
            group = connection.group;
        });
        let Some(place) = group else { return Step::Waits };
        self.read_early();
        if self.has_failed() {
            return Step::Over;
        }
        let unacknowledged = self.socket.unacknowledged();
        // The acknowledgement of all data ends a pause, so further data have to wait.
        let mut paused = false;
        self.with_connection(|_, _, connection| paused = connection.paused);
        let frames = self.apps.websockets.groups.next(place, id, unacknowledged);
        if self.is_closing_websocket() {
            return self.jump_to_end();
        }
        if self.is(PEER_CLOSED) {
            return self.closed_early();
        }
        match frames {
            Err(Late) => {
                self.fail(ProtocolError::LateMember);
                return Step::Over;
            }
            // The rest of the ring is for others.
            Ok(Some(frames)) if !paused && (unacknowledged as usize) < MAX_KEPT => {
                self.apps.websockets.groups.sent(place, id, frames);
                self.count_sent(frames.octets);
                let program = self.program;
                self.apps.observer.counted(program, SENT, frames.messages);
                let Frames { nth, octets: len, .. } = frames;
                self.socket.send(Piece { message: SHARED | place, nth, len });
            }
            Ok(_) => {}
        }
        self.state.at |= WAITING;
        Step::Waits
    }

    /// Ends a flow that is over for its program, but not for its group, because the peer does not
    /// acknowledge messages.
    #[cold]
    pub(super) fn end_late_member(&mut self) {
        let (id, unacknowledged) = (self.socket.id(), self.socket.unacknowledged());
        let mut late = false;
        self.with_connection(|flow, _, connection| {
            let Some(place) = connection.group else { return };
            let groups = &mut flow.apps.websockets.groups;
            if unacknowledged == 0 {
                // It sends nothing else, and nothing of it is asked for again.
                connection.group = None;
                groups.leave(place, id);
                return;
            }
            late = groups.next(place, id, unacknowledged).is_err();
        });
        if late {
            self.socket.abort();
        }
    }

    /// Sends message k of the connection's group at time k of the timers' clock, until the client
    /// closes. Messages for which there is no room are left out.
    pub(super) fn websocket_push(&mut self, frame: u32) -> Step {
        self.read_early();
        if self.has_failed() {
            return Step::Over;
        }
        if self.is_closing_websocket() {
            return self.jump_to_end();
        }
        if self.is(PEER_CLOSED) {
            return self.closed_early();
        }
        let of = self.apps.code.frames[frame as usize];
        let Push { every: Nanos(every), groups } = of.push.expect("a message with a time");
        // The times of the groups are evenly spread.
        let group = u64::from(self.state.flow % groups);
        let begins = (u128::from(every) * u128::from(group) / u128::from(groups)) as u64;
        let last = self.socket.due().0.saturating_sub(begins) / every;
        let (mut messages, mut paused) = (0..0, false);
        self.with_connection(|_, _, connection| {
            let next = connection.next.replace(last + 1).unwrap_or(last + 1);
            connection.next = Some(next.max(last + 1));
            messages = next..last + 1;
            paused = connection.paused;
        });
        let program = self.program;
        // The acknowledgement of all data ends a pause, so further data have to wait.
        while !paused && !messages.is_empty() && (self.socket.unacknowledged() as usize) < MAX_KEPT
        {
            let Some(number) = messages.next() else { break };
            // Only the lower half is used, so that numbers may come again.
            let nth = number as u32;
            let tuple = self.socket.tuple();
            let sending = || self.apps.sending_frame(self.state, &tuple, of, nth);
            let len = self.apps.code.messages[of.message as usize].len(sending);
            // All marks in the message are empty.
            if len == 0 {
                continue;
            }
            self.count_sent(len);
            self.apps.observer.counted(program, SENT, 1);
            let len = of.framing.total(len) as u32;
            self.socket.send(Piece { message: FRAMED | frame, nth, len });
        }
        let skipped = messages.end.saturating_sub(messages.start);
        if skipped > 0 {
            let skipped = u32::try_from(skipped).unwrap_or(u32::MAX);
            self.apps.observer.counted(program, SKIPPED, skipped);
        }
        let mut next = last + 1;
        self.with_connection(|_, _, connection| next = connection.next.unwrap_or(next));
        self.socket.wake_at(Nanos(next * every + begins));
        Step::Waits
    }

    pub(super) fn websocket_ping(&mut self) -> Step {
        if let Some(step) = self.cannot_send() {
            return step;
        }
        self.state.at += PIECE;
        self.with_connection(|flow, place, connection| {
            flow.send_control(place, connection, Control::Ping, &[]);
        });
        let program = self.program;
        self.apps.observer.counted(program, PINGS_SENT, 1);
        Step::On
    }

    /// Sends a close, and waits for the peer's.
    pub(super) fn websocket_close(&mut self, code: u16) -> Step {
        self.read_early();
        if self.has_failed() {
            return Step::Over;
        }
        self.with_connection(|flow, place, connection| {
            if !connection.close_sent {
                connection.close_sent = true;
                flow.send_control(place, connection, Control::Close, &code.to_be_bytes());
            }
        });
        if !self.is_closing_websocket() {
            return self.wait_for_peer();
        }
        // Messages that were in flight are not waited for.
        self.state.have = 0;
        Step::On
    }

    /// Whether the peer has closed the connection.
    fn is_closing_websocket(&mut self) -> bool {
        let mut closing = false;
        self.with_connection(|_, _, connection| closing = connection.closed_by_peer);
        closing
    }

    fn closed_early(&mut self) -> Step {
        self.fail(ProtocolError::ClosedEarly);
        Step::Over
    }

    /// Reads the frames that arrived together with the handshake.
    fn read_early(&mut self) {
        self.with_connection(|flow, place, connection| flow.read_kept(place, connection));
    }

    fn read_kept(&mut self, place: u32, connection: &mut Connection) {
        let early = std::mem::take(&mut connection.early);
        if !early.is_empty() {
            self.read_frames(place, connection, &early);
        }
    }

    fn with_connection(&mut self, then: impl FnOnce(&mut Self, u32, &mut Connection)) {
        let id: FlowId = self.socket.id();
        if let Some((place, mut connection)) = self.apps.websockets.take(id) {
            then(self, place, &mut connection);
            self.apps.websockets.put(place, connection);
        }
    }

    fn read_frames(&mut self, place: u32, connection: &mut Connection, mut input: &[u8]) {
        let program = self.program;
        let masked = self.traits.role == Role::Server;
        let echo = matches!(self.op(), Op::WsEcho | Op::WsFanOut { .. });
        // Data after a close is ignored (section 5.5.1).
        while !connection.closed_by_peer && !self.has_failed() {
            let Connection { reader, message, .. } = &mut *connection;
            let each = |octets: &[u8]| {
                if echo {
                    message.extend_from_slice(octets);
                }
            };
            match reader.read(&mut input, masked, MAX_MESSAGE, each) {
                Ok(Found::More) => break,
                Ok(Found::Message(kind)) => {
                    self.apps.observer.counted(program, RECEIVED, 1);
                    if !echo {
                        self.state.have = self.state.have.saturating_add(1);
                        continue;
                    }
                    let message = std::mem::take(&mut connection.message);
                    if let Some(group) = connection.group {
                        let Apps { websockets, calls, .. } = &mut *self.apps;
                        websockets.groups.push(group, kind, &message, |id| calls.wake(id));
                        continue;
                    }
                    self.apps.observer.counted(program, SENT, 1);
                    self.count_sent(message.len() as u32);
                    self.send_kept(place, connection, |kept| {
                        message_header(kind, message.len() as u32, kept);
                        kept.extend_from_slice(&message);
                    });
                }
                Ok(Found::Ping) => {
                    self.apps.observer.counted(program, PINGS_RECEIVED, 1);
                    let payload = connection.reader.control().to_vec();
                    self.send_control(place, connection, Control::Pong, &payload);
                }
                Ok(Found::Pong) => self.apps.observer.counted(program, PONGS_RECEIVED, 1),
                Ok(Found::Close(code)) => {
                    self.apps.observer.counted(program, counter_of_close(code), 1);
                    connection.closed_by_peer = true;
                    if !connection.close_sent {
                        connection.close_sent = true;
                        let payload = code.map(u16::to_be_bytes);
                        let payload = payload.as_ref().map_or(&[][..], |code| code);
                        self.send_control(place, connection, Control::Close, payload);
                    }
                }
                Err(violation) => {
                    if !connection.close_sent {
                        connection.close_sent = true;
                        let code = violation.code().to_be_bytes();
                        self.send_control(place, connection, Control::Close, &code);
                    }
                    self.fail(ProtocolError::BadWebsocket);
                }
            }
        }
        if connection.kept.len() > MAX_KEPT && !connection.paused {
            connection.paused = true;
            self.socket.pause();
        }
    }

    fn send_control(
        &mut self,
        place: u32,
        connection: &mut Connection,
        kind: Control,
        payload: &[u8],
    ) {
        let end = connection.begins.wrapping_add(connection.kept.len() as u32);
        let mask = mask_of(self.apps.seed, self.state.flow, end, CONTROL);
        let mask = (self.traits.role == Role::Client).then_some(mask);
        self.send_kept(place, connection, |kept| control_frame(kind, payload, mask, kept));
    }

    /// Sends what `write` appends to the kept octets.
    fn send_kept(
        &mut self,
        place: u32,
        connection: &mut Connection,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let before = connection.kept.len();
        write(&mut connection.kept);
        let nth = connection.begins.wrapping_add(before as u32);
        let len = (connection.kept.len() - before) as u32;
        self.socket.send(Piece { message: KEPT | place, nth, len });
    }
}
