//! WebSocket connections (RFC 6455) of programs, in addition to the records of their flows.
//! `apps/websocket.rs` runs the instructions.

mod fan;
mod frame;
mod handshake;

use std::collections::HashMap;

use squall_tcp::{FlowId, Piece};
use squall_units::mix;

pub(crate) use fan::{Frames, Groups, Late};
pub(crate) use frame::{Control, Framing, control_frame, message_header};
pub use frame::{Found, Kind, Reader, Violation};
pub(crate) use handshake::{
    ANSWER_ON_STREAM, REFUSAL, accepts, accepts_on_stream, answer, asks_on_stream, end_of_head,
    key_of, status_of,
};

/// Maximum octets of a received message.
pub const MAX_MESSAGE: u64 = 1 << 20;
/// Marks pieces that are messages of programs in frames; the other bits are the index of a
/// [`crate::code::FrameOf`].
pub(crate) const FRAMED: u32 = 1 << 28;
/// Marks pieces with octets that are kept; the other bits are the place of the connection, and
/// `nth` is the offset in all octets that it has kept.
pub(crate) const KEPT: u32 = 1 << 27;

/// Marks pieces with frames that a group keeps; the other bits are the place of the group, and `nth`
/// is the lower half of their offset.
pub(crate) const SHARED: u32 = 1 << 26;

/// Names of the counters of a program with WebSocket, in order of their numbers.
pub(crate) const COUNTERS: [&str; 13] = [
    "ws_messages_sent",
    "ws_messages_received",
    "ws_pings_sent",
    "ws_pings_received",
    "ws_pongs_received",
    "ws_close_1000",
    "ws_close_1001",
    "ws_close_1002",
    "ws_close_1007",
    "ws_close_1009",
    "ws_close_other",
    "ws_close_no_code",
    "ws_messages_skipped",
];
pub(crate) const SENT: u16 = 0;
pub(crate) const RECEIVED: u16 = 1;
pub(crate) const PINGS_SENT: u16 = 2;
pub(crate) const PINGS_RECEIVED: u16 = 3;
pub(crate) const PONGS_RECEIVED: u16 = 4;
pub(crate) const SKIPPED: u16 = 12;

/// The counter for received closes with this code.
pub(crate) fn counter_of_close(code: Option<u16>) -> u16 {
    match code {
        Some(1000) => 5,
        Some(1001) => 6,
        Some(1002) => 7,
        Some(1007) => 8,
        Some(1009) => 9,
        Some(_) => 10,
        None => 11,
    }
}

/// The mask of frame `number` of the flow's message `nth` (RFC 6455 section 5.3 asks for masks that
/// a script in a browser cannot predict; here they have to be made again).
pub(crate) fn mask_of(seed: u64, flow: u32, nth: u32, number: u32) -> [u8; 4] {
    let key = mix(mix(seed, 0x6d61_736b), flow.into());
    (mix(key, u64::from(nth) << 32 | u64::from(number)) as u32).to_be_bytes()
}

/// The connections of all flows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connections {
    places: HashMap<FlowId, u32>,
    all: Vec<Option<Box<Connection>>>,
    free: Vec<u32>,
    /// Groups whose members get the same messages.
    pub groups: Groups,
}

/// A connection of one flow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connection {
    /// Octets that arrived before the connection was open.
    pub early: Vec<u8>,
    pub reader: Reader,
    pub open: bool,
    /// Whether a close was sent, and received.
    pub close_sent: bool,
    pub closed_by_peer: bool,
    /// Octets that no function makes again, until all data is acknowledged: handshakes of servers,
    /// echoes, control frames. The first has offset `begins`.
    pub kept: Vec<u8>,
    pub begins: u32,
    /// The message that is echoed when it is complete.
    pub message: Vec<u8>,
    /// Whether the peer is held back until kept octets are acknowledged.
    pub paused: bool,
    /// The number of the next message that the server sends by itself.
    pub next: Option<u64>,
    /// The place of the connection's group.
    pub group: Option<u32>,
}

impl Connections {
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub fn len(&self) -> usize {
        self.places.len() + self.groups.len()
    }

    /// Memory usage in bytes.
    pub fn memory(&self) -> usize {
        let of = |one: &Connection| {
            size_of::<Connection>()
                + one.early.capacity()
                + one.reader.memory()
                + one.kept.capacity()
                + one.message.capacity()
        };
        self.all.iter().flatten().map(|one| of(one)).sum::<usize>()
            + self.groups.memory()
            + self.all.capacity() * size_of::<usize>()
            + self.places.capacity() * size_of::<(FlowId, u32)>()
    }

    pub fn begin(&mut self, id: FlowId) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.all.push(None);
            self.all.len() as u32 - 1
        });
        self.all[place as usize] = Some(Box::default());
        self.places.insert(id, place);
    }

    pub fn end(&mut self, id: FlowId) {
        if let Some(place) = self.places.remove(&id) {
            let group = self.all[place as usize].take().and_then(|connection| connection.group);
            self.free.push(place);
            if let Some(group) = group {
                self.groups.leave(group, id);
            }
        }
    }

    /// Takes a flow's connection out, with its place for [`put`](Self::put).
    pub fn take(&mut self, id: FlowId) -> Option<(u32, Box<Connection>)> {
        let place = *self.places.get(&id)?;
        Some((place, self.all[place as usize].take()?))
    }

    pub fn put(&mut self, place: u32, connection: Box<Connection>) {
        self.all[place as usize] = Some(connection);
    }

    /// Copies octets from `offset` of a piece that is [`KEPT`].
    ///
    /// # Panics
    /// If all data was acknowledged: the stack asks only for outstanding octets.
    pub fn copy(&self, piece: Piece, offset: u32, out: &mut [u8]) {
        let connection = self.all[(piece.message & !KEPT) as usize].as_ref();
        let connection = connection.expect("an open flow's connection");
        let from = piece.nth.wrapping_add(offset).wrapping_sub(connection.begins) as usize;
        out.copy_from_slice(&connection.kept[from..from + out.len()]);
    }

    /// All data of the flow is acknowledged. Returns whether the peer was held back.
    pub fn acknowledged(&mut self, id: FlowId) -> bool {
        let Some((place, mut connection)) = self.take(id) else { return false };
        connection.begins = connection.begins.wrapping_add(connection.kept.len() as u32);
        // Frees the memory of idle connections.
        connection.kept = Vec::new();
        let resumes = std::mem::take(&mut connection.paused);
        if let Some(group) = connection.group {
            self.groups.acknowledged(group, id);
        }
        self.put(place, connection);
        resumes
    }
}
