//! Instructions of gRPC.
//!
//! Streams of HTTP/2 give programs with gRPC their heads and data, not text of HTTP/1.1: a message
//! is only counted, so nothing of it is kept.

use squall_http::h2::{Head, HeadKind};
use squall_tcp::Piece;
use squall_units::Nanos;

use super::{
    ANSWERING, ASKED, AT, Apps, FlowSocket, PEER_CLOSED, PIECE, ProgramId, ProtocolError, Role,
    Running, Step, WAITING, ticks,
};
use crate::{
    Observer,
    code::Op,
    grpc::{
        Call, Incoming, RECEIVED, SENT, Stage, Status, Statuses, Violation, counter_of, is_grpc,
    },
    streams::parts::{CANCEL, CONTENT, LAST, OPEN, TRAILERS},
};

impl<O: Observer> Apps<O> {
    /// Whether the program's streams carry calls of gRPC.
    #[inline]
    pub(crate) fn speaks_grpc(&self, program: ProgramId) -> bool {
        self.code.programs[usize::from(program.0)].traits.grpc
    }

    /// Handles what the stream of a call has received.
    pub(crate) fn grpc_event(&mut self, socket: &mut impl FlowSocket, incoming: Incoming<'_>) {
        let mut state = *socket.state();
        let program = self.program(&state);
        let traits = self.code.programs[usize::from(program.0)].traits;
        let mut flow = Running { apps: self, state: &mut state, socket, program, traits };
        if !flow.has_failed() {
            flow.grpc_incoming(incoming);
        }
        *socket.state() = state;
    }
}

impl<O: Observer, S: FlowSocket> Running<'_, O, S> {
    fn grpc_incoming(&mut self, incoming: Incoming<'_>) {
        if self.state.at & (ASKED | ANSWERING) == ASKED {
            self.state.at |= ANSWERING;
            let (program, took) = (self.program, self.since_began());
            self.apps.observer.first_octet(program, took);
        }
        // A deadline that passes now does not count if the server has ended the call.
        let ends = match incoming {
            Incoming::Head(head) => head.end,
            Incoming::Data { end, .. } => end,
            Incoming::End | Incoming::Reset(_) => false,
        };
        match incoming {
            Incoming::Head(head) if self.traits.role == Role::Server => self.grpc_request(head),
            Incoming::Head(head) => self.grpc_answer(head),
            Incoming::Data { octets, .. } => self.grpc_data(octets),
            Incoming::End => {
                let Some(call) = self.call_mut() else { return };
                call.stage = Stage::Over;
                if !call.reader.is_between() {
                    self.fail(ProtocolError::TooShort);
                }
            }
            Incoming::Reset(code) => {
                let now = self.socket.now();
                let Some(call) = self.call_mut() else { return };
                // Servers cancel a call at its deadline, too, which can come before this end's timer.
                let late = call.deadline.is_some_and(|at| at <= now);
                let status = match Status::of_reset(code) {
                    Status::CANCELLED if late => Status::DEADLINE_EXCEEDED,
                    status => status,
                };
                (call.stage, call.status) = (Stage::Over, Some(status));
            }
        }
        if !ends {
            self.run(&[]);
        }
    }

    fn call_mut(&mut self) -> Option<&mut Call> {
        self.apps.grpc_calls.get_mut(&self.socket.id())
    }

    fn call(&self) -> Call {
        self.apps.grpc_calls.get(&self.socket.id()).copied().unwrap_or_default()
    }

    /// The head of a request.
    fn grpc_request(&mut self, head: &Head<'_>) {
        let Op::GrpcAccept { accept } = self.op() else { return };
        let of = &self.apps.code.accepts[accept as usize];
        let path = head.fields.get(b":path").unwrap_or_default();
        let known = of.methods.is_empty() || of.methods.iter().any(|method| **method == *path);
        let is_call = head.fields.get(b":method") == Some(b"POST") && is_grpc(head.fields);
        let (unsupported, unimplemented, program) =
            (of.unsupported, of.unimplemented, self.program);
        if is_call && known {
            let Some(call) = self.call_mut() else { return };
            (call.stage, call.accept) = (Stage::Open, accept);
            self.state.at += 1;
            return;
        }
        if let Some(call) = self.call_mut() {
            call.stage = Stage::Over;
        }
        let piece = if is_call {
            self.apps.observer.counted(program, counter_of(Status::UNIMPLEMENTED), 1);
            unimplemented
        } else {
            unsupported
        };
        self.apps.observer.status(program, if is_call { 2 } else { 4 });
        self.send_part(piece, 0);
        self.jump_to_end();
    }

    /// The head of an answer, or its trailers.
    fn grpc_answer(&mut self, head: &Head<'_>) {
        if head.kind == HeadKind::Interim {
            return;
        }
        let program = self.program;
        // Other heads have none: the trailers are missing then.
        let status = head.fields.get(b"grpc-status").filter(|_| head.end).map(Status::of_field);
        let Some(call) = self.call_mut() else { return };
        call.status = status.or(call.status);
        if head.kind == HeadKind::Response {
            call.http_status = head.status;
            call.foreign = !is_grpc(head.fields);
            self.apps.observer.status(program, (head.status / 100) as u8);
        }
    }

    fn grpc_data(&mut self, octets: &[u8]) {
        let program = self.program;
        let Some(call) = self.call_mut() else { return };
        if call.stage == Stage::Over || call.foreign {
            return;
        }
        match call.reader.read(octets) {
            Ok(0) => {}
            Ok(messages) => {
                call.messages = call.messages.saturating_add(messages);
                self.apps.observer.counted(program, RECEIVED, messages);
            }
            Err(Violation::Compressed) => self.fail(ProtocolError::GrpcCompressed),
            Err(Violation::Flag(_)) => self.fail(ProtocolError::BadGrpc),
        }
    }

    /// Begins a call. `deadline`: nanoseconds; 0: without one.
    pub(super) fn grpc_call(&mut self, piece: u32, deadline: u64) -> Step {
        if !S::PART {
            // Nothing would bring the answer. Plans refuse such programs.
            self.fail(ProtocolError::BadGrpc);
            return Step::Over;
        }
        if !self.may_send() {
            self.state.at |= WAITING;
            return Step::Waits;
        }
        self.state.at &= !WAITING;
        let deadline = (deadline > 0).then(|| self.socket.due() + Nanos(deadline));
        if let Some(call) = self.call_mut() {
            *call = Call { stage: Stage::Open, deadline, ..Call::default() };
        }
        self.send_part(piece, OPEN);
        let program = self.program;
        self.apps.observer.requested(program, 1);
        Step::On
    }

    pub(super) fn grpc_send(&mut self, piece: u32) -> Step {
        let call = self.call();
        if self.is_over(call) {
            return self.jump_to_status();
        }
        if !self.may_send() {
            self.state.at |= WAITING;
            self.await_deadline(call);
            return Step::Waits;
        }
        self.state.at &= !WAITING;
        let program = self.program;
        if self.traits.role == Role::Server && call.stage == Stage::Open {
            if let Some(call) = self.call_mut() {
                call.stage = Stage::Answering;
            }
            let answer = self.apps.code.accepts[call.accept as usize].answer;
            self.send_part(answer, OPEN);
            self.apps.observer.status(program, 2);
        }
        self.send_part(piece, CONTENT);
        self.apps.observer.counted(program, SENT, 1);
        Step::On
    }

    /// Ends the client's messages.
    pub(super) fn grpc_end(&mut self) -> Step {
        if self.call().stage == Stage::Open {
            self.socket.send(Piece { message: LAST, nth: 0, len: 0 });
        }
        Step::On
    }

    pub(super) fn grpc_recv(&mut self, messages: u32) -> Step {
        if let Some(call) = self.call_mut().filter(|call| call.messages >= messages) {
            call.messages -= messages;
            return Step::On;
        }
        let call = self.call();
        if self.is_over(call) {
            if let Some(call) = self.call_mut() {
                call.short = true;
            }
            return self.jump_to_status();
        }
        if self.is(PEER_CLOSED) {
            self.fail(ProtocolError::TooShort);
            return Step::Over;
        }
        self.await_deadline(call);
        Step::Waits
    }

    /// Waits for the client's next message, and jumps if there is none.
    pub(super) fn grpc_next(&mut self, to: u32) -> Step {
        if let Some(call) = self.call_mut().filter(|call| call.messages > 0) {
            call.messages -= 1;
            return Step::On;
        }
        if !self.is(PEER_CLOSED) {
            return Step::Waits;
        }
        if !self.call().reader.is_between() {
            self.fail(ProtocolError::TooShort);
            return Step::Over;
        }
        self.jump(to)
    }

    /// Waits for the end of the call.
    pub(super) fn grpc_status(&mut self, expected: Statuses) -> Step {
        let call = self.call();
        match call.stage {
            Stage::Idle => return Step::On,
            _ if self.is_over(call) => {}
            _ if self.is(PEER_CLOSED) => {
                self.fail(ProtocolError::TooShort);
                return Step::Over;
            }
            _ => {
                self.await_deadline(call);
                return Step::Waits;
            }
        }
        // A deadline may have ended it now.
        let Call { status, http_status, short, .. } = self.call();
        if let Some(call) = self.call_mut() {
            call.stage = Stage::Idle;
        }
        let status = status.unwrap_or_else(|| Status::of_http(http_status));
        let program = self.program;
        self.apps.observer.counted(program, counter_of(status), 1);
        self.answered(true);
        let error = match expected.contains(status) {
            false => ProtocolError::GrpcStatus,
            true if short && status == Status::OK => ProtocolError::TooShort,
            true => return Step::On,
        };
        self.fail(error);
        Step::Over
    }

    pub(super) fn grpc_cancel(&mut self) -> Step {
        if self.call().stage == Stage::Open {
            self.end_call(Status::CANCELLED);
        }
        Step::On
    }

    /// Ends a server's call, and its program.
    pub(super) fn grpc_finish(&mut self, finish: u32) -> Step {
        if !self.may_send() {
            self.state.at |= WAITING;
            return Step::Waits;
        }
        self.state.at &= !WAITING;
        let (of, program) = (self.apps.code.finishes[finish as usize], self.program);
        if self.call().stage == Stage::Answering {
            self.send_part(of.trailers, TRAILERS);
        } else {
            self.send_part(of.alone, 0);
            self.apps.observer.status(program, 2);
        }
        self.apps.observer.counted(program, counter_of(of.status), 1);
        if let Some(call) = self.call_mut() {
            call.stage = Stage::Over;
        }
        self.jump_to_end()
    }

    /// The stream of a server has ended: the client has canceled its call.
    pub(super) fn grpc_gone(&mut self) {
        let open = matches!(self.call().stage, Stage::Open | Stage::Answering);
        if open && self.traits.role == Role::Server && !self.has_failed() {
            let program = self.program;
            self.apps.observer.counted(program, counter_of(Status::CANCELLED), 1);
        }
    }

    /// Whether a client's call has ended, or ends now at its deadline.
    fn is_over(&mut self, call: Call) -> bool {
        if call.stage == Stage::Open && call.deadline.is_some_and(|at| at <= self.socket.due()) {
            self.end_call(Status::DEADLINE_EXCEEDED);
            return true;
        }
        self.traits.role == Role::Client && call.stage == Stage::Over
    }

    /// Ends a client's call before the server does.
    fn end_call(&mut self, status: Status) {
        if let Some(call) = self.call_mut() {
            (call.stage, call.status) = (Stage::Over, Some(status));
        }
        self.socket.send(Piece { message: CANCEL, nth: 0, len: 0 });
    }

    /// There is one timer, which a delay may have used for itself.
    fn await_deadline(&mut self, call: Call) {
        if let Some(at) = call.deadline {
            self.socket.wake_at(at);
        }
    }

    /// Continues where the program waits for the end of its call.
    fn jump_to_status(&mut self) -> Step {
        let from = self.state.at & AT;
        let rest = &self.apps.code.ops[from as usize..];
        let ends = |op: &Op| matches!(op, Op::GrpcStatus { .. } | Op::Finish);
        let next = rest.iter().position(ends).expect("each program ends with an operation");
        self.state.at &= !WAITING;
        self.jump(from + next as u32)
    }

    /// Sends a piece as a part of a call.
    fn send_part(&mut self, piece: u32, part: u32) {
        let of = self.apps.code.pieces[piece as usize];
        let nth = of.register.map_or(self.state.sent, |register| self.register(register));
        self.state.sent = self.state.sent.wrapping_add(1);
        let len = match of.len {
            0 => {
                let tuple = self.socket.tuple();
                let sending = || self.apps.sending(self.state, &tuple, nth);
                self.apps.code.messages[of.message as usize].len(sending)
            }
            len => len,
        };
        if !self.is(ASKED) && self.traits.role == Role::Client {
            self.state.at |= ASKED;
            self.state.at &= !ANSWERING;
            self.state.began = ticks(self.socket.now());
        }
        self.state.at += PIECE;
        self.socket.send(Piece { message: part | piece, nth, len });
    }
}
