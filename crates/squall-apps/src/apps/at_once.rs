//! All events of a segment, handled at once.
//!
//! Programs of most load tests only send messages, count received octets, and close. For these a
//! short interpreter replaces the events of a segment, with the same effects.

use squall_tcp::{Deed, Events, FlowId, Piece, Reason};
use squall_units::Nanos;

use super::{
    ANSWERING, ASKED, AT, Apps, CLOSED, PEER_CLOSED, PIECE, PIECES, ProgramId, STARTED, State,
    WAITING, since, ticks,
};
use crate::{
    Observer, Role, Transport,
    code::{Op, Traits},
};

/// Operations for one segment; with more, its events follow one by one.
const MOST: usize = 32;

/// The role of a program whose events can be handled at once.
pub(super) fn role(traits: &Traits) -> Option<Role> {
    let plain = traits.transport == Transport::Tcp
        && traits.registers <= 1
        && traits.answers.is_none()
        && traits.counts
        && !(traits.http
            || traits.websocket
            || traits.grpc
            || traits.packets
            || traits.takes
            || traits.keepalive);
    plain.then_some(traits.role)
}

/// Received octets, which fit a packet.
#[inline(always)]
fn len_of(events: Events<'_>) -> u32 {
    events.received.len() as u32
}

impl<O: Observer> Apps<O> {
    /// See [`squall_tcp::Application::at_once`].
    #[inline]
    pub fn on_events(
        &mut self,
        state: &mut State,
        flow: FlowId,
        now: Nanos,
        events: Events<'_>,
    ) -> Option<Deed> {
        let code = &*self.code;
        let mut s = *state;
        let mut at = s.at & AT;
        let program = ProgramId(code.owner[at as usize]);
        let client = self.at_once[usize::from(program.0)]? == Role::Client;
        let has = |s: &State, flag: u32| s.at & flag != 0;
        // A failed flow has not started.
        if has(&s, STARTED) == events.established {
            return None;
        }
        if has(&s, WAITING) {
            // After the end, only the peer's last segments follow.
            if len_of(events) > 0 || !matches!(code.ops[at as usize], Op::Finish) {
                return None;
            }
            state.at &= if events.acknowledged { !PIECES } else { !0 };
            state.at |= if events.peer_closed { PEER_CLOSED } else { 0 };
            return Some(Deed::default());
        }
        let (setup, len) = (since(s.began, now), len_of(events));
        s.at |= if events.established { STARTED } else { 0 };
        s.at &= if events.acknowledged { !PIECES } else { !0 };
        // A client's first message precedes its first answer, which received octets would begin.
        if has(&s, PIECES) || client && events.established && len > 0 {
            return None;
        }
        let is_first = len > 0 && s.at & (ASKED | ANSWERING) == ASKED;
        s.at |= if is_first { ANSWERING } else { 0 };
        s.at |= if events.peer_closed { PEER_CLOSED } else { 0 };
        s.have = s.have.checked_add(len)?;
        let mut deed = Deed::default();
        let (mut requests, mut took, mut finished) = (0, None, false);
        let mut left = MOST;
        let runs = events.established || len > 0 || events.peer_closed;
        if runs {
            loop {
                left = left.checked_sub(1)?;
                let mut next = at + 1;
                match code.ops[at as usize] {
                    Op::Send { piece, requests: completes } => {
                        let of = code.pieces[piece as usize];
                        let may = deed.send.is_none() && !has(&s, CLOSED);
                        if !may || of.len == 0 || of.register.is_some() {
                            return None;
                        }
                        deed.send = Some(Piece { message: piece, nth: s.sent, len: of.len });
                        requests = completes;
                        s.sent = s.sent.wrapping_add(1);
                        if client && !has(&s, ASKED) {
                            s.at = s.at & !ANSWERING | ASKED;
                            s.began = ticks(now);
                        }
                        s.at += PIECE;
                    }
                    Op::Recv { octets, answered } => {
                        if s.have < octets {
                            if has(&s, PEER_CLOSED) {
                                return None;
                            }
                            break;
                        }
                        s.have -= octets;
                        if answered && has(&s, ASKED) {
                            if took.is_some() {
                                return None;
                            }
                            s.at &= !(ASKED | ANSWERING);
                            took = Some(since(s.began, now));
                        }
                    }
                    Op::Set { value, .. } => s.register = value,
                    Op::Again { to, .. } => {
                        s.register = s.register.wrapping_sub(1);
                        if s.register > 0 {
                            next = to;
                        }
                    }
                    Op::Jump { to } => next = to,
                    Op::Close => {
                        deed.close |= !has(&s, CLOSED);
                        s.at |= CLOSED;
                    }
                    Op::WaitPeerClose => {
                        s.have = 0;
                        if !has(&s, PEER_CLOSED) {
                            break;
                        }
                    }
                    Op::Finish => {
                        if s.have > 0 {
                            return None;
                        }
                        finished = true;
                        deed.close |= !has(&s, CLOSED);
                        s.at |= WAITING | CLOSED;
                        break;
                    }
                    _ => return None,
                }
                at = next;
            }
        }
        s.at = s.at & !AT | at;
        let first_octet = since(state.began, now);
        *state = s;
        if events.established {
            self.calls.started(flow);
            self.observer.established(program, if client { setup } else { Nanos::ZERO });
        }
        if len > 0 {
            self.observer.received(program, len);
        }
        if is_first {
            self.observer.first_octet(program, first_octet);
        }
        if let Some(piece) = deed.send {
            self.observer.sent(program, piece.len);
        }
        if requests > 0 {
            self.observer.requested(program, requests);
        }
        if let Some(took) = took {
            self.observer.transaction(program, took);
        }
        if finished {
            self.observer.finished(program);
        }
        Some(deed)
    }

    /// Reports the regular end of a flow whose program has finished, as [`squall_tcp::Event::Gone`]
    /// does. Returns whether it is one.
    #[inline]
    pub fn on_closed(&mut self, state: &State, flow: FlowId) -> bool {
        let at = (state.at & AT) as usize;
        let program = ProgramId(self.code.owner[at]);
        let is_plain = self.at_once[usize::from(program.0)].is_some()
            && state.at & (STARTED | WAITING) == STARTED | WAITING
            && matches!(self.code.ops[at], Op::Finish);
        if is_plain {
            self.calls.gone(flow);
            self.observer.gone(program, Reason::Closed, true);
        }
        is_plain
    }
}
