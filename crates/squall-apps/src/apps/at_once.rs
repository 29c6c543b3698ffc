//! All events of a segment, handled at once.
//!
//! Programs of most load tests only send messages, count received octets, and close. For these a
//! [`Track`] replaces the events of a segment, with the same effects.

use squall_tcp::{Deed, Events, FlowId, Piece};
use squall_units::Nanos;

use super::{
    ANSWERING, ASKED, AT, Apps, CLOSED, PEER_CLOSED, PIECES, ProgramId, STARTED, State, WAITING,
    since, ticks,
};
use crate::{Calls, Observer, Report};

mod tracks;

pub(crate) use tracks::Track;
use tracks::{
    ANSWERED, ASKS, AWAITS, CLIENT, CLOSES, COUNTS, END, FINISHES, ON_CLOSE, RUNS, SENDS, SETS,
    SETS_FIRST,
};

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
        let owner = code.owner[(state.at & AT) as usize];
        // The length fits a packet.
        let len = events.received.len() as u32;
        let mut at = state.at & if events.acknowledged { !PIECES } else { !0 };
        at |= if events.peer_closed { PEER_CLOSED } else { 0 };
        if owner.track <= END {
            // After the end, only the peer's last segments follow. A failed flow has not started.
            let is_over = at & (STARTED | WAITING) == STARTED | WAITING;
            if owner.track != END || !is_over || events.established || len > 0 {
                return None;
            }
            state.at = at;
            return Some(Deed::default());
        }
        let mut track = &code.tracks[owner.track as usize];
        let started = if events.established { 0 } else { STARTED };
        if at & track.mask != started {
            return None;
        }
        if len == 0 && !events.established && !events.peer_closed {
            state.at = at;
            return Some(Deed::default());
        }
        // A client's first message precedes its first answer, which received octets would begin.
        if len > 0 && events.established && track.flags & CLIENT != 0 {
            return None;
        }
        let (have, closed) = (state.have.checked_add(len)?, at & PEER_CLOSED != 0);
        if have < track.need || track.flags & ON_CLOSE != 0 && !closed {
            return self.on_part(state, (flow, now), (at, have), events);
        }
        let mut register = state.register;
        if track.flags & COUNTS != 0 {
            register = register.wrapping_sub(1);
            if register == 0 {
                track = &code.tracks[owner.track as usize + 1];
            }
        }
        let (flags, rest) = (track.flags, have - track.need);
        if flags & RUNS == 0 || rest > track.room || closed && flags & AWAITS != 0 {
            return None;
        }
        if flags & (COUNTS | SETS) != 0 {
            state.register = if flags & SETS != 0 { track.register } else { register };
        }
        let began = since(state.began, now);
        let is_asked = at & ASKED != 0;
        let is_first = len > 0 && at & (ASKED | ANSWERING) == ASKED;
        let is_answered = is_asked && flags & ANSWERED != 0;
        let close = flags & CLOSES != 0 && at & CLOSED == 0;
        if flags & ASKS != 0 && is_asked == is_answered {
            state.began = ticks(now);
        }
        at |= if is_first { ANSWERING } else { 0 };
        state.have = rest;
        state.at = at & track.keep | track.set;
        let report = Report {
            established: setup(&mut self.calls, flow, events, flags, began),
            received: len,
            first_octet: is_first.then_some(began),
            sent: track.len,
            requested: track.requests,
            transaction: is_answered.then_some(began),
            finished: flags & FINISHES != 0,
        };
        self.observer.at_once(ProgramId(owner.program), flow, now, report);
        let send = (flags & SENDS != 0).then(|| {
            let nth = state.sent;
            state.sent = nth.wrapping_add(1);
            Piece { message: track.piece, nth, len: track.len }
        });
        Some(Deed { send, close })
    }

    /// [`Apps::on_events`] for a flow that goes on waiting, with `have` octets; `at`: its state's
    /// field.
    #[inline(never)]
    fn on_part(
        &mut self,
        state: &mut State,
        (flow, now): (FlowId, Nanos),
        (mut at, have): (u32, u32),
        events: Events<'_>,
    ) -> Option<Deed> {
        let code = &*self.code;
        let owner = code.owner[(at & AT) as usize];
        let Track { wait, first, flags, .. } = code.tracks[owner.track as usize];
        if at & PEER_CLOSED != 0 {
            return None;
        }
        let (received, began) = (events.received.len() as u32, since(state.began, now));
        let is_first = received > 0 && at & (ASKED | ANSWERING) == ASKED;
        at |= if is_first { ANSWERING } else { 0 };
        state.have = if flags & ON_CLOSE != 0 { 0 } else { have };
        state.register = if flags & SETS_FIRST != 0 { first } else { state.register };
        state.at = at & !AT | wait | STARTED;
        let report = Report {
            established: setup(&mut self.calls, flow, events, flags, began),
            received,
            first_octet: is_first.then_some(began),
            ..Report::default()
        };
        self.observer.at_once(ProgramId(owner.program), flow, now, report);
        Some(Deed::default())
    }

    /// Handles the regular end of a flow whose program has finished, as [`squall_tcp::Event::Gone`]
    /// does, but without a report. Returns the program if it is one.
    #[inline]
    pub fn on_closed(&mut self, state: &State, flow: FlowId) -> Option<ProgramId> {
        let owner = self.code.owner[(state.at & AT) as usize];
        let at_end = state.at & (STARTED | WAITING) == STARTED | WAITING;
        if owner.track != END || !at_end {
            return None;
        }
        self.calls.gone(flow);
        Some(ProgramId(owner.program))
    }
}

/// Records that a flow is established, if it is. Returns its set-up time for the report.
#[inline(always)]
fn setup(
    calls: &mut Calls,
    flow: FlowId,
    events: Events<'_>,
    flags: u16,
    began: Nanos,
) -> Option<Nanos> {
    events.established.then(|| {
        calls.started(flow);
        if flags & CLIENT != 0 { began } else { Nanos::ZERO }
    })
}
