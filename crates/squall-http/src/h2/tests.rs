//! Connections against octets that peers may send.

mod h2spec;
mod hostile;
mod messages;
mod pair;

use super::{
    Cause, Code, Connection, Counters, Error, Events, Head, HeadKind, Limits, PREFACE,
    PeerSettings, Scratch, Settings, StreamId,
    frame::{self, Header, flag, kind},
    setting,
    stream::Stream,
};
use crate::hpack::Field;

const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "127.0.0.1")];
const POST: [(&str, &str); 4] =
    [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "127.0.0.1")];
const OK: [(&str, &str); 1] = [(":status", "200")];

/// A block of literals that do not change the table.
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = vec![];
    for (name, value) in fields {
        out.push(0);
        for text in [name, value] {
            assert!(text.len() < 127, "lengths have one octet");
            out.push(text.len().try_into().unwrap());
            out.extend_from_slice(text.as_bytes());
        }
    }
    out
}

fn with(fields: &[(&str, &str)], more: &[(&str, &str)]) -> Vec<u8> {
    block(&[fields, more].concat())
}

fn raw(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![];
    let len = payload.len().try_into().unwrap();
    Header { len, stream, kind, flags }.write(&mut out);
    out.extend_from_slice(payload);
    out
}

/// HEADERS of a whole block, which end the stream.
fn request(id: u32, block: &[u8]) -> Vec<u8> {
    raw(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, id, block)
}

/// HEADERS of a whole block, after which data come.
fn opening(id: u32, block: &[u8]) -> Vec<u8> {
    raw(kind::HEADERS, flag::END_HEADERS, id, block)
}

fn data(id: u32, end: bool, octets: &[u8]) -> Vec<u8> {
    raw(kind::DATA, if end { flag::END_STREAM } else { 0 }, id, octets)
}

fn reset(id: u32, code: Code) -> Vec<u8> {
    raw(kind::RST_STREAM, 0, id, &code.0.to_be_bytes())
}

fn window(id: u32, octets: u32) -> Vec<u8> {
    raw(kind::WINDOW_UPDATE, 0, id, &octets.to_be_bytes())
}

fn ping(octets: &[u8; 8]) -> Vec<u8> {
    raw(kind::PING, 0, 0, octets)
}

fn settings(list: &[(u16, u32)]) -> Vec<u8> {
    let mut out = vec![];
    frame::settings(list, &mut out);
    out
}

fn acknowledged() -> Vec<u8> {
    raw(kind::SETTINGS, flag::ACK, 0, &[])
}

fn join(frames: &[Vec<u8>]) -> Vec<u8> {
    frames.concat()
}

/// The frames in `octets`, which has whole ones, without a preface.
fn frames(octets: &[u8]) -> Vec<(Header, &[u8])> {
    let mut rest = octets.strip_prefix(PREFACE).unwrap_or(octets);
    let mut frames = vec![];
    while let Some((header, more)) = rest.split_first_chunk() {
        let header = Header::read(*header);
        let (payload, more) = more.split_at(header.len as usize);
        frames.push((header, payload));
        rest = more;
    }
    assert!(rest.is_empty(), "a frame is incomplete");
    frames
}

fn code_of(payload: &[u8]) -> Code {
    Code(u32::from_be_bytes(*payload.last_chunk().unwrap()))
}

/// No push, 256 KiB a stream, 1 MiB in all.
fn of_clients() -> Settings {
    let list = [(setting::ENABLE_PUSH, 0), (setting::INITIAL_WINDOW_SIZE, 256 << 10)];
    Settings::new(&list, 1 << 20).unwrap()
}

/// 100 streams, 256 KiB a stream, 1 MiB in all.
fn of_servers() -> Settings {
    let list = [(setting::MAX_CONCURRENT_STREAMS, 100), (setting::INITIAL_WINDOW_SIZE, 256 << 10)];
    Settings::new(&list, 1 << 20).unwrap()
}

/// An event of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    Head(u32, HeadKind, u16, bool),
    Data(u32, usize, bool),
    Reset(u32, Code, Cause),
    Writable(Option<u32>),
    Settings,
    GoingAway(u32, Code),
}

#[derive(Debug, Default)]
struct Seen {
    events: Vec<Event>,
    counters: Counters,
    /// The field of this name in the latest head.
    path: Vec<u8>,
}

impl Events for Seen {
    fn head(&mut self, id: StreamId, head: &Head<'_>) {
        self.path = head.fields.get(b":path").unwrap_or_default().to_vec();
        self.events.push(Event::Head(id.0, head.kind, head.status, head.end));
    }

    fn data(&mut self, id: StreamId, octets: &[u8], end: bool) {
        self.events.push(Event::Data(id.0, octets.len(), end));
    }

    fn reset(&mut self, id: StreamId, code: Code, cause: Cause) {
        self.events.push(Event::Reset(id.0, code, cause));
    }

    fn writable(&mut self, id: Option<StreamId>) {
        self.events.push(Event::Writable(id.map(|id| id.0)));
    }

    fn settings(&mut self, _: &PeerSettings) {
        self.events.push(Event::Settings);
    }

    fn going_away(&mut self, last: StreamId, code: Code) {
        self.events.push(Event::GoingAway(last.0, code));
    }

    fn counters(&mut self) -> &mut Counters {
        &mut self.counters
    }
}

/// One end, its events, and the octets that it has sent.
struct End {
    connection: Connection,
    limits: Limits,
    scratch: Scratch,
    seen: Seen,
    out: Vec<u8>,
}

impl End {
    fn server() -> Self {
        let limits = Limits::new(of_servers());
        Self::new(Connection::server(&limits, 0), limits)
    }

    fn client() -> Self {
        let limits = Limits::new(of_clients());
        Self::new(Connection::client(&limits, 0), limits)
    }

    fn new(connection: Connection, limits: Limits) -> Self {
        let (scratch, seen, out) = (Scratch::default(), Seen::default(), vec![]);
        Self { connection, limits, scratch, seen, out }
    }

    /// The same after both ends have acknowledged settings, without events.
    fn ready(mut self) -> Self {
        let preface: &[u8] =
            if self.connection.role() == super::Role::Server { PREFACE } else { &[] };
        self.receive(preface).unwrap();
        self.receive(&join(&[settings(&[]), acknowledged()])).unwrap();
        self.control();
        self.out.clear();
        self.seen.events.clear();
        self
    }

    fn receive(&mut self, input: &[u8]) -> Result<(), Error> {
        self.connection.receive(input, &self.limits, &mut self.scratch, &mut self.seen)
    }

    fn control(&mut self) {
        self.connection.control(&self.limits, &mut self.out);
    }

    fn consumed(&mut self, id: u32, octets: u32) {
        self.connection.consumed(StreamId(id), octets, &self.limits);
    }

    fn head(&mut self, id: u32, end: bool, fields: &[(&str, &str)]) -> bool {
        self.connection.head(StreamId(id), end, &mut self.out, |encoder, out| {
            for (name, value) in fields {
                let (name, value) = (name.as_bytes(), value.as_bytes());
                encoder.field(Field::Literal { name, value }, out);
            }
        })
    }

    /// Sends up to `want` octets of data; `end`: after the last.
    fn data(&mut self, id: u32, want: u32, end: bool) -> u32 {
        let len = self.connection.room(StreamId(id), want);
        if len > 0 || (end && want == 0) {
            self.connection.data(StreamId(id), len, end && len == want, &mut self.out);
            self.out.extend(vec![b'd'; len as usize]);
        }
        len
    }

    /// The frames that were sent since the last call.
    fn sent(&mut self) -> Vec<(u8, u32, Vec<u8>)> {
        self.control();
        let out = std::mem::take(&mut self.out);
        frames(&out).iter().map(|(h, payload)| (h.kind, h.stream, payload.to_vec())).collect()
    }

    fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.seen.events)
    }
}

#[test]
fn a_connection_and_a_stream_have_the_sizes_of_the_decision() {
    assert!(size_of::<Connection>() <= 320, "{}", size_of::<Connection>());
    assert_eq!(size_of::<Stream>(), 32);
    // Nothing is on the heap before the first octet, except for the settings that are to be sent.
    let mut end = End::server();
    end.control();
    assert_eq!(end.connection.memory(), 0);
}
