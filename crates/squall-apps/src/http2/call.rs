//! Calls of gRPC: their messages become data of a stream that stays open.

use squall_http::h2::{Code, StreamId};

use super::{Connection, Flow, Receiver};
use crate::{
    FlowSocket, Observer,
    grpc::Incoming,
    streams::{
        LaneSocket,
        parts::{self, CANCEL, CONTENT, LAST},
    },
};

impl<O: Observer, S: FlowSocket> Flow<'_, O, S> {
    /// Begins the next message of a call, or ends its stream. Returns whether there was something;
    /// `None`: trailers are next.
    pub(super) fn pump_call(&mut self, at: usize, stream: StreamId) -> Option<bool> {
        let Connection { peer, lanes, .. } = &mut *self.connection;
        let lane = &mut lanes[at];
        let Some(&piece) = lane.messages.front() else { return Some(false) };
        if !matches!(parts::of(piece), CONTENT | LAST) {
            return None;
        }
        lane.messages.pop_front();
        if piece.len > 0 {
            lane.sending = Some((piece, 0));
        } else {
            peer.data(stream, 0, true, &mut self.buffers.out);
            lane.open = false;
        }
        Some(true)
    }

    /// Ends the stream whose head was made last, if its call was canceled before.
    pub(super) fn cancel_if_asked(&mut self, at: usize) {
        let Connection { peer, lanes, .. } = &mut *self.connection;
        let lane = &mut lanes[at];
        if lane.messages.front().is_none_or(|piece| parts::of(*piece) != CANCEL) {
            return;
        }
        lane.messages.pop_front();
        lane.open = false;
        if let Some(stream) = lane.stream.take()
            && peer.reset(stream, Code::CANCEL)
        {
            self.speaker.tally.reset_sent(Code::CANCEL);
        }
        self.answer();
    }
}

impl<O: Observer, S: FlowSocket> Receiver<'_, O, S> {
    /// Gives a lane's program what the stream of its call has received.
    pub(super) fn call(&mut self, at: usize, incoming: Incoming<'_>) {
        if !self.has_failed() {
            let (socket, lane) = (&mut *self.socket, &mut self.lanes[at]);
            self.apps.grpc_event(&mut LaneSocket { socket, lane, ends: None }, incoming);
        }
    }
}
