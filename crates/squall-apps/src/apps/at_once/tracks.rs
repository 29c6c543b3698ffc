//! Tracks: the steps of a program from an operation where a flow waits to the next one.
//!
//! They are found by walking over the operations once, when the program is added, so that a segment
//! costs one look-up instead of a loop over operations.

use super::super::{ANSWERING, ASKED, AT, CLOSED, PIECE, PIECES, STARTED, WAITING};
use crate::{
    Role, Transport,
    code::{Code, Op, Traits},
};

/// The steps of a program from one operation to the next at which the flow waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Track {
    /// Octets that it takes first. With fewer, the flow waits at operation `wait`.
    pub need: u32,
    pub wait: u32,
    /// The most octets that may be left over at its end: with more, the program would go on.
    pub room: u32,
    /// The bits of the flow's state (flags, and the operation at which it waits) that are kept at
    /// its end, and those that are set.
    pub keep: u32,
    pub set: u32,
    /// The message, its octets, and the number of requests that it completes.
    pub piece: u32,
    pub len: u32,
    pub requests: u32,
    /// The register before the octets are taken, and after that.
    pub first: u32,
    pub register: u32,
    /// The flags of a flow's state that must be those of a flow that has started, or is about to.
    pub mask: u32,
    pub flags: u16,
}

/// It ends at an operation that waits. Without it, only the octets that it takes can be counted.
pub(crate) const RUNS: u16 = 1;
/// It takes octets first, or ...
pub(crate) const TAKES: u16 = 1 << 1;
/// ... begins when the peer has closed, and octets before that are dropped.
pub(crate) const ON_CLOSE: u16 = 1 << 2;
/// The program is a client's.
pub(crate) const CLIENT: u16 = 1 << 3;
/// The octets that it takes are the end of an answer.
pub(crate) const ANSWERED: u16 = 1 << 4;
pub(crate) const SENDS: u16 = 1 << 5;
/// The message is a client's request.
pub(crate) const ASKS: u16 = 1 << 6;
pub(crate) const CLOSES: u16 = 1 << 7;
pub(crate) const FINISHES: u16 = 1 << 8;
/// It ends where the peer's close would continue the program, or end it.
pub(crate) const AWAITS: u16 = 1 << 9;
pub(crate) const SETS_FIRST: u16 = 1 << 10;
pub(crate) const SETS: u16 = 1 << 11;
/// It counts the register down. If it reaches 0, the next track holds instead.
pub(crate) const COUNTS: u16 = 1 << 12;

/// In place of numbers of tracks: the operation has none, and the last one of a program. Numbers
/// of tracks follow.
pub(crate) const NO_TRACK: u32 = 0;
pub(crate) const END: u32 = 1;

/// Operations of one track.
const MOST: usize = 32;

/// Whether a program has tracks: it sends messages over TCP, counts octets, closes, and has one
/// counter of passes at most.
fn has_tracks(traits: &Traits) -> bool {
    traits.transport == Transport::Tcp
        && traits.registers <= 1
        && traits.answers.is_none()
        && traits.counts
        && !(traits.http
            || traits.websocket
            || traits.grpc
            || traits.packets
            || traits.takes
            || traits.keepalive)
}

/// The program's register during a walk.
#[derive(Clone, Copy)]
enum Register {
    Kept,
    Known(u32),
    /// Counted down once, to a number above 0.
    Counted,
}

impl Code {
    /// Adds the tracks of a program.
    pub(crate) fn add_tracks(&mut self, program: u16) {
        if self.tracks.is_empty() {
            self.tracks.resize(END as usize + 1, Track::default());
        }
        let traits = self.programs[usize::from(program)].traits;
        if !has_tracks(&traits) {
            return;
        }
        for at in self.range_of(program) {
            let track = match self.ops[at as usize] {
                Op::Finish => END,
                Op::Recv { .. } | Op::WaitPeerClose => self.add_track(at, traits.role),
                _ if at == traits.start => self.add_track(at, traits.role),
                _ => NO_TRACK,
            };
            self.owner[at as usize].track = track;
        }
    }

    /// Removes the tracks of a program whose flows have layers above TCP.
    pub(crate) fn remove_tracks(&mut self, program: u16) {
        for at in self.range_of(program) {
            self.owner[at as usize].track = NO_TRACK;
        }
    }

    /// Adds the track from operation `at`, and the one for a register that reaches 0. Returns its
    /// number.
    fn add_track(&mut self, at: u32, role: Role) -> u32 {
        let number = self.tracks.len() as u32;
        let mut track = Track::default();
        track.flags |= if role == Role::Client { CLIENT } else { 0 };
        let fork = self.walk(&mut track, at, Register::Kept);
        if track.flags & (RUNS | TAKES | ON_CLOSE | COUNTS) == 0 {
            return NO_TRACK;
        }
        // Nothing is outstanding; and what sends is left to the interpreter after a close.
        track.mask = STARTED | WAITING | PIECES;
        let over = fork.map(|(mut over, next)| {
            self.walk(&mut over, next, Register::Known(0));
            over
        });
        let sends = (track.flags | over.map_or(0, |over| over.flags)) & SENDS != 0;
        track.mask |= if sends { CLOSED } else { 0 };
        self.tracks.push(track);
        self.tracks.extend(over);
        number
    }

    /// Walks from operation `at` on, as the interpreter would, and adds the effects to the track.
    /// If that depends on the register, the track goes on with another pass; the other one and the
    /// operation after the last pass are returned.
    fn walk(&self, track: &mut Track, mut at: u32, mut register: Register) -> Option<(Track, u32)> {
        let mut fork = None;
        for _ in 0..MOST {
            let acted = track.flags & (TAKES | ON_CLOSE | SENDS | CLOSES | COUNTS) != 0;
            let mut next = at + 1;
            match self.ops[at as usize] {
                Op::Recv { octets, answered } if !acted => {
                    track.take(TAKES, octets, at, register);
                    track.flags |= if answered { ANSWERED } else { 0 };
                }
                Op::WaitPeerClose if !acted => track.take(ON_CLOSE, 0, at, register),
                Op::Recv { octets, .. } if octets > 0 => {
                    track.end(AWAITS, at, octets - 1, register);
                    break;
                }
                Op::WaitPeerClose => {
                    track.end(AWAITS, at, 0, register);
                    break;
                }
                Op::Finish => {
                    track.end(FINISHES | CLOSES, at, 0, register);
                    break;
                }
                Op::Send { piece, requests } => {
                    let of = self.pieces[piece as usize];
                    let may = track.flags & (SENDS | CLOSES) == 0;
                    if !may || of.len == 0 || of.register.is_some() {
                        break;
                    }
                    track.flags |= if track.flags & CLIENT != 0 { SENDS | ASKS } else { SENDS };
                    (track.piece, track.len, track.requests) = (piece, of.len, requests);
                }
                Op::Close => track.flags |= CLOSES,
                Op::Set { value, .. } => register = Register::Known(value),
                Op::Jump { to } => next = to,
                Op::Again { to, .. } => match register {
                    Register::Known(value) => {
                        let left = value.wrapping_sub(1);
                        register = Register::Known(left);
                        next = if left > 0 { to } else { next };
                    }
                    Register::Kept => {
                        track.flags |= COUNTS;
                        fork = Some((*track, next));
                        (register, next) = (Register::Counted, to);
                    }
                    Register::Counted => break,
                },
                _ => break,
            }
            at = next;
        }
        fork
    }
}

impl Track {
    /// Begins with octets, or with the peer's close.
    fn take(&mut self, how: u16, need: u32, at: u32, register: Register) {
        (self.need, self.wait) = (need, at);
        self.flags |= how;
        if let Register::Known(value) = register {
            self.first = value;
            self.flags |= SETS_FIRST;
        }
    }

    fn end(&mut self, how: u16, at: u32, room: u32, register: Register) {
        self.flags |= how | RUNS;
        self.room = room;
        let has = |flag, bits| if self.flags & flag != 0 { bits } else { 0 };
        self.keep = !(AT | has(ANSWERED, ASKED | ANSWERING));
        // All older pieces are acknowledged, so one piece is outstanding.
        self.set = at
            | STARTED
            | has(SENDS, PIECE)
            | has(ASKS, ASKED)
            | has(CLOSES, CLOSED)
            | has(FINISHES, WAITING);
        if let Register::Known(value) = register {
            self.register = value;
            self.flags |= SETS;
        }
    }
}
