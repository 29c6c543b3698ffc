//! Parts of a call of gRPC: its stream stays open between messages, which a program sends as
//! separate pieces.

use squall_tcp::Piece;

use super::Lane;

/// The bits of a piece's message that say which part it is; without them, it is a whole message of
/// HTTP.
pub const PARTS: u32 = 7 << 24;
/// A head after which messages follow.
pub const OPEN: u32 = 1 << 24;
/// A message.
pub const CONTENT: u32 = 2 << 24;
/// The last message of this side; without octets, there is none.
pub const LAST: u32 = 3 << 24;
/// The fields after all messages, which end the stream.
pub const TRAILERS: u32 = 4 << 24;
/// Ends the stream at once.
pub const CANCEL: u32 = 5 << 24;

pub fn of(piece: Piece) -> u32 {
    piece.message & PARTS
}

/// The piece as the program's code has it.
pub fn plain(piece: Piece) -> Piece {
    Piece { message: piece.message & !PARTS, ..piece }
}

/// Whether the stream ends after the octets of this piece.
pub fn is_last(piece: Piece) -> bool {
    matches!(of(piece), 0 | LAST)
}

impl<T> Lane<T> {
    /// Adds a piece to those that are to be sent.
    pub fn push(&mut self, piece: Piece) {
        match of(piece) {
            LAST => self.end_messages(piece),
            CANCEL => self.cancel(piece),
            _ => self.messages.push_back(piece),
        }
    }

    /// Ends the messages of this side, with the last of them if it has not left.
    fn end_messages(&mut self, end: Piece) {
        let last = match self.messages.back_mut() {
            Some(last) => Some(last),
            None => self.sending.as_mut().map(|(piece, _)| piece),
        };
        match last.filter(|last| of(**last) == CONTENT) {
            Some(last) => last.message = plain(*last).message | LAST,
            None => self.messages.push_back(end),
        }
    }

    /// Ends the stream, or makes that follow its head if that has not left.
    fn cancel(&mut self, cancel: Piece) {
        // Calls that were canceled before may wait, too.
        if let Some(head) = self.messages.iter().rposition(|piece| of(*piece) == OPEN) {
            self.messages.truncate(head + 1);
            self.messages.push_back(cancel);
            return;
        }
        self.messages.clear();
        self.sending = None;
        self.open = false;
        self.canceled = self.stream.take();
    }

    /// Drops the messages of a call that the peer has ended. Returns whether this side had not
    /// ended it.
    pub fn leave_call(&mut self) -> bool {
        self.messages.retain(|piece| matches!(of(*piece), 0 | OPEN));
        std::mem::take(&mut self.open)
    }
}

#[cfg(test)]
mod tests {
    use squall_tcp::FlowId;

    use super::*;
    use crate::State;

    fn lane(parts: &[(u32, u32)], stream: Option<u8>) -> Lane<u8> {
        let mut lane = Lane::new(FlowId(1), State::default(), stream);
        parts.iter().for_each(|&(part, len)| lane.push(Piece { message: part | 7, nth: 0, len }));
        lane
    }

    fn queue(lane: &Lane<u8>) -> Vec<(u32, u32)> {
        lane.messages.iter().map(|piece| (of(*piece), piece.len)).collect()
    }

    #[test]
    fn the_last_message_carries_the_end() {
        let waits = lane(&[(OPEN, 50), (CONTENT, 9), (CONTENT, 9), (LAST, 0)], None);
        assert_eq!(queue(&waits), [(OPEN, 50), (CONTENT, 9), (LAST, 9)]);
        assert_eq!(plain(waits.messages[2]).message, 7);
        let none = lane(&[(OPEN, 50), (LAST, 0)], None);
        assert_eq!(queue(&none), [(OPEN, 50), (LAST, 0)]);
        assert_eq!(none.queued(), 51, "the end itself has to be sent");
        let mut leaves = lane(&[], Some(1));
        leaves.sending = Some((Piece { message: CONTENT | 7, nth: 0, len: 9 }, 4));
        leaves.push(Piece { message: LAST, nth: 0, len: 0 });
        assert!(leaves.sending.is_some_and(|(piece, _)| is_last(piece)));
        assert_eq!(queue(&leaves), []);
    }

    #[test]
    fn a_canceled_call_keeps_only_a_head_that_waits() {
        let mut early = lane(&[(OPEN, 50), (CONTENT, 9), (CANCEL, 0)], None);
        assert_eq!(queue(&early), [(OPEN, 50), (CANCEL, 0)]);
        assert_eq!(early.canceled, None);
        let calls = [(OPEN, 50), (CANCEL, 0), (OPEN, 60), (CONTENT, 9), (CANCEL, 0)];
        let expected = [(OPEN, 50), (CANCEL, 0), (OPEN, 60), (CANCEL, 0)];
        assert_eq!(queue(&lane(&calls, None)), expected);
        let mut late = lane(&[(CONTENT, 9), (CANCEL, 0)], Some(5));
        assert_eq!((queue(&late), late.stream, late.canceled), (vec![], None, Some(5)));
        late.open = true;
        late.messages = early.messages.split_off(0);
        assert!(late.leave_call() && !late.leave_call());
        assert_eq!(queue(&late), [(OPEN, 50)]);
    }
}
