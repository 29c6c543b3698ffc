//! The TCP connections of all sessions, and the pieces that they send.

use std::{collections::VecDeque, ops::Range, sync::Arc};

use squall_bgp::{Envelope, Packed, Way};
use squall_tcp::{FlowId, Piece};
use squall_units::Nanos;

/// A flow's state in the stack: the number of its connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag(pub u32);

/// Parts of routes that wait in a connection at most. Others than these, such as a KEEPALIVE, wait
/// for half a megabyte at most.
const RUNS: usize = 8;

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub peer: u32,
    pub way: Way,
    pub flow: Option<FlowId>,
    /// The session still has it.
    pub is_live: bool,
    /// When it is reset, because it was closed before.
    pub reset_due: Option<Nanos>,
    /// Pieces that are not acknowledged, in order.
    queue: VecDeque<Queued>,
    /// Number of the first element of the queue, which is the message of its piece.
    first: u32,
    /// Octets of it that are acknowledged.
    acknowledged: u32,
    runs: usize,
}

/// A piece of a connection's stream.
#[derive(Debug)]
struct Queued {
    len: u32,
    what: Content,
}

#[derive(Debug)]
enum Content {
    Message(Box<[u8]>),
    /// UPDATEs that the routes of several sets of attributes have made.
    Updates(Box<[u8]>),
    Routes {
        packed: Packed,
        envelope: Arc<Envelope>,
        messages: Range<u32>,
    },
}

impl Connection {
    fn new(peer: u32, way: Way) -> Self {
        Self {
            peer,
            way,
            flow: None,
            is_live: true,
            reset_due: None,
            queue: VecDeque::new(),
            first: 0,
            acknowledged: 0,
            runs: 0,
        }
    }

    /// Whether a further part of the routes may be queued.
    pub fn has_room(&self) -> bool {
        self.runs < RUNS
    }

    /// Whether everything is acknowledged.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub fn push_message(&mut self, message: Vec<u8>) -> Piece {
        let len = message.len() as u32;
        self.push(len, Content::Message(message.into()))
    }

    /// Queues whole UPDATEs, as a part of the routes.
    pub fn push_updates(&mut self, updates: Vec<u8>) -> Piece {
        self.runs += 1;
        let len = updates.len() as u32;
        self.push(len, Content::Updates(updates.into()))
    }

    pub fn push_routes(
        &mut self,
        packed: &Packed,
        envelope: &Arc<Envelope>,
        messages: Range<u32>,
    ) -> Piece {
        self.runs += 1;
        let len = packed.len(envelope, messages.clone());
        let (packed, envelope) = (packed.clone(), envelope.clone());
        self.push(len, Content::Routes { packed, envelope, messages })
    }

    fn push(&mut self, len: u32, what: Content) -> Piece {
        let message = self.first.wrapping_add(self.queue.len() as u32);
        self.queue.push_back(Queued { len, what });
        Piece { message, nth: 0, len }
    }

    /// Writes octets of a piece.
    pub fn copy(&self, piece: Piece, offset: u32, out: &mut [u8]) {
        let place = piece.message.wrapping_sub(self.first) as usize;
        match self.queue.get(place).map(|queued| &queued.what) {
            Some(Content::Message(message) | Content::Updates(message)) => {
                out.copy_from_slice(&message[offset as usize..][..out.len()]);
            }
            Some(Content::Routes { packed, envelope, messages }) => {
                packed.copy(envelope, messages.clone(), offset, out);
            }
            None => debug_assert!(false, "the stack keeps pieces until they are acknowledged"),
        }
    }

    /// The peer has acknowledged more octets.
    pub fn acknowledge(&mut self, octets: u32) {
        self.acknowledged += octets;
        while let Some(first) = self.queue.front().filter(|it| it.len <= self.acknowledged) {
            self.acknowledged -= first.len;
            self.runs -= usize::from(!matches!(first.what, Content::Message(_)));
            self.queue.pop_front();
            self.first = self.first.wrapping_add(1);
        }
    }
}

/// Connections by their numbers, which are used again.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    all: Vec<Option<Connection>>,
    free: Vec<u32>,
}

impl Connections {
    /// Adds a connection. Returns its number.
    pub fn add(&mut self, peer: u32, way: Way) -> u32 {
        let connection = Some(Connection::new(peer, way));
        match self.free.pop() {
            Some(number) => {
                self.all[number as usize] = connection;
                number
            }
            None => {
                self.all.push(connection);
                self.all.len() as u32 - 1
            }
        }
    }

    pub fn get(&self, number: u32) -> Option<&Connection> {
        self.all.get(number as usize)?.as_ref()
    }

    pub fn get_mut(&mut self, number: u32) -> Option<&mut Connection> {
        self.all.get_mut(number as usize)?.as_mut()
    }

    /// Removes a connection whose flow has ended.
    pub fn remove(&mut self, number: u32) -> Option<Connection> {
        let removed = self.all.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(removed)
    }

    /// Whether none is left.
    pub fn is_empty(&self) -> bool {
        self.free.len() == self.all.len()
    }

    /// Octets of UPDATEs with attributes of their own that are not acknowledged.
    #[cfg(test)]
    pub fn own_updates(&self) -> u32 {
        let queued = self.all.iter().flatten().flat_map(|of| &of.queue);
        queued.filter(|of| matches!(of.what, Content::Updates(_))).map(|of| of.len).sum()
    }
}

#[cfg(test)]
mod tests {
    use squall_bgp::{Family, PathIds, Prefix, pack};

    use super::*;

    #[test]
    fn pieces_are_kept_until_they_are_acknowledged() {
        let mut connections = Connections::default();
        let number = connections.add(7, Way::Active);
        let connection = connections.get_mut(number).unwrap();
        let prefixes = (0..100u8).map(|n| Prefix { address: [10, n, 0, 0].into(), length: 16 });
        let packed = pack(Family::Ipv4, prefixes, 21, PathIds::None);
        let envelope = Arc::new(Envelope::withdraw(Family::Ipv4));
        let message = connection.push_message(vec![1, 2, 3]);
        let routes = connection.push_routes(&packed, &envelope, 0..2);
        let mut octets = [0; 2];
        connection.copy(message, 1, &mut octets);
        assert_eq!(octets, [2, 3]);
        let mut before = vec![0; routes.len as usize];
        connection.copy(routes, 0, &mut before);

        connection.acknowledge(2);
        connection.copy(message, 1, &mut octets);
        connection.acknowledge(10);
        let mut after = vec![0; routes.len as usize];
        connection.copy(routes, 0, &mut after);
        assert_eq!(before, after);
        assert!(!connection.is_empty());
        connection.acknowledge(routes.len - 9);
        assert!(connection.is_empty());
    }

    #[test]
    fn there_is_room_for_eight_parts_of_routes() {
        let mut connections = Connections::default();
        let number = connections.add(0, Way::Passive);
        let connection = connections.get_mut(number).unwrap();
        let prefix = Prefix { address: [10, 0, 0, 0].into(), length: 8 };
        let packed = pack(Family::Ipv4, std::iter::once(prefix), 21, PathIds::None);
        let envelope = Arc::new(Envelope::withdraw(Family::Ipv4));
        let mut len = 0;
        let one = packed.len(&envelope, 0..1);
        while connection.has_room() {
            len += connection.push_routes(&packed, &envelope, 0..1).len;
            if connection.has_room() {
                len += connection.push_updates(vec![7; one as usize]).len;
            }
        }
        assert_eq!(len, 8 * one);
        connection.acknowledge(len / 8);
        assert!(connection.has_room());
    }

    #[test]
    fn numbers_are_used_again() {
        let mut connections = Connections::default();
        let first = connections.add(1, Way::Active);
        let second = connections.add(2, Way::Active);
        assert!(connections.remove(first).is_some() && connections.remove(first).is_none());
        assert!(!connections.is_empty());
        assert_eq!(connections.add(3, Way::Passive), first);
        assert!(connections.remove(first).is_some() && connections.remove(second).is_some());
        assert!(connections.is_empty());
    }
}
