//! Connections against octets that peers may send.

mod hostile;
mod must;
mod pair;

use super::{
    Cause, Code, Connection, Counters, Error, Events, Head, HeadKind, Limits, Own, PeerSettings,
    Progress, Role, Scratch, Settings, StreamId, Why, plain_head, setting,
    stream::{Stream, varint},
};
use crate::qpack::{Encoder, Field, Fixed};

const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "https"), (":authority", "a.test"), (":path", "/")];
const POST: [(&str, &str); 4] =
    [(":method", "POST"), (":scheme", "https"), (":authority", "a.test"), (":path", "/")];
const OK: [(&str, &str); 1] = [(":status", "200")];

/// Types of frames.
const DATA: u64 = 0x0;
const HEADERS: u64 = 0x1;
const CANCEL_PUSH: u64 = 0x3;
const SETTINGS: u64 = 0x4;
const PUSH_PROMISE: u64 = 0x5;
const GOAWAY: u64 = 0x7;
const MAX_PUSH_ID: u64 = 0xd;

/// Types of streams.
const CONTROL: u64 = 0x0;
const PUSH: u64 = 0x1;
const ENCODER: u64 = 0x2;
const DECODER: u64 = 0x3;

/// A field section of literals.
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = vec![0, 0];
    for (name, value) in fields {
        let (name_len, value_len) = (name.len() as u8, value.len() as u8);
        assert!(name_len < 100 && value_len < 127, "lengths have one or two octets");
        match name_len {
            0..7 => out.push(0x20 | name_len),
            _ => out.extend([0x27, name_len - 7]),
        }
        out.extend_from_slice(name.as_bytes());
        out.push(value_len);
        out.extend_from_slice(value.as_bytes());
    }
    out
}

fn raw(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![];
    varint(kind, &mut out);
    varint(payload.len() as u64, &mut out);
    out.extend_from_slice(payload);
    out
}

fn headers(fields: &[(&str, &str)]) -> Vec<u8> {
    raw(HEADERS, &block(fields))
}

fn with(fields: &[(&str, &str)], more: &[(&str, &str)]) -> Vec<u8> {
    headers(&[fields, more].concat())
}

/// A frame that has a number alone.
fn number(kind: u64, value: u64) -> Vec<u8> {
    let mut payload = vec![];
    varint(value, &mut payload);
    raw(kind, &payload)
}

fn settings(list: &[(u64, u64)]) -> Vec<u8> {
    let mut payload = vec![];
    for (number, value) in list {
        varint(*number, &mut payload);
        varint(*value, &mut payload);
    }
    raw(SETTINGS, &payload)
}

/// The beginning of a unidirectional stream.
fn uni(kind: u64, rest: &[Vec<u8>]) -> Vec<u8> {
    let mut out = vec![];
    varint(kind, &mut out);
    out.extend(rest.concat());
    out
}

/// The `nth` unidirectional stream of the peer of an end with this role.
fn peer_uni(role: Role, nth: u64) -> u64 {
    4 * nth + if role == Role::Server { 2 } else { 3 }
}

/// An event of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    Head(u64, HeadKind, u16),
    Data(u64, Vec<u8>),
    End(u64),
    Reset(u64, Code, Cause),
    Stop(u64, Code),
    Unblocked(u64),
    Settings(PeerSettings),
    GoingAway(u64),
}

#[derive(Debug, Default)]
struct Seen {
    events: Vec<Event>,
    counters: Counters,
    /// The path in the latest head.
    path: Vec<u8>,
}

/// Pieces of data become one event, and ends are events of their own, so that it makes no
/// difference where octets are cut.
impl Events for Seen {
    fn head(&mut self, id: StreamId, head: &Head<'_>) {
        self.path = head.fields.get(b":path").unwrap_or_default().to_vec();
        self.events.push(Event::Head(id.0, head.kind, head.status));
        if head.end {
            self.events.push(Event::End(id.0));
        }
    }

    fn data(&mut self, id: StreamId, octets: &[u8], end: bool) {
        assert!(end || !octets.is_empty(), "empty only with the end");
        match self.events.last_mut() {
            Some(Event::Data(last, all)) if *last == id.0 => all.extend_from_slice(octets),
            _ if octets.is_empty() => {}
            _ => self.events.push(Event::Data(id.0, octets.to_vec())),
        }
        if end {
            self.events.push(Event::End(id.0));
        }
    }

    fn reset(&mut self, id: StreamId, code: Code, cause: Cause) {
        self.events.push(Event::Reset(id.0, code, cause));
    }

    fn stop(&mut self, id: StreamId, code: Code) {
        self.events.push(Event::Stop(id.0, code));
    }

    fn unblocked(&mut self, id: StreamId) {
        self.events.push(Event::Unblocked(id.0));
    }

    fn settings(&mut self, peer: &PeerSettings) {
        self.events.push(Event::Settings(*peer));
    }

    fn going_away(&mut self, first: u64) {
        self.events.push(Event::GoingAway(first));
    }

    fn counters(&mut self) -> &mut Counters {
        &mut self.counters
    }
}

/// One end, and its events.
struct End {
    connection: Connection,
    limits: Limits,
    scratch: Scratch,
    seen: Seen,
}

impl End {
    /// Without a dynamic table.
    fn new(role: Role) -> Self {
        Self::with(role, Limits::new(Settings::new(&[]).unwrap()))
    }

    /// With tables of these sizes for sending and for receiving.
    fn with_tables(role: Role, sends: u32, receives: u32) -> Self {
        let list = [
            (setting::QPACK_MAX_TABLE_CAPACITY, receives.into()),
            (setting::QPACK_BLOCKED_STREAMS, 16),
        ];
        let limits = Limits::new(Settings::new(&list).unwrap());
        Self::with(role, Limits { encoder_table: sends, ..limits })
    }

    fn with(role: Role, limits: Limits) -> Self {
        let connection = match role {
            Role::Client => Connection::client(&limits, 2),
            Role::Server => Connection::server(&limits, 2),
        };
        Self { connection, limits, scratch: Scratch::default(), seen: Seen::default() }
    }

    fn receive(&mut self, id: u64, input: &[u8], end: bool) -> Result<Progress, Error> {
        let Self { connection, limits, scratch, seen } = self;
        connection.receive(StreamId(id), input, end, limits, scratch, seen)
    }

    fn peer_reset(&mut self, id: u64, code: Code) -> Result<(), Error> {
        self.connection.peer_reset(StreamId(id), code, &self.limits, &mut self.seen)
    }

    fn head(&mut self, id: u64, end: bool, fields: &[(&str, &str)]) -> Option<Vec<u8>> {
        let mut out = vec![];
        let sent = self.connection.head(StreamId(id), end, &mut out, |encoder, out| {
            for (name, value) in fields {
                let (name, value) = (name.as_bytes(), value.as_bytes());
                encoder.field(Field::Literal { name, value }, out);
            }
        });
        sent.then_some(out)
    }

    fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.seen.events)
    }

    /// Takes what waits on a stream of this end.
    fn sent(&mut self, own: Own) -> Vec<u8> {
        let sent = self.connection.waiting(own).to_vec();
        self.connection.written(own, sent.len());
        sent
    }
}

#[test]
fn a_connection_and_a_stream_are_small() {
    assert!(size_of::<Connection>() <= 520, "{}", size_of::<Connection>());
    assert!(size_of::<Stream>() <= 72, "{}", size_of::<Stream>());
    // Nothing is on the heap before the first octet, except for the settings that are to be sent.
    let mut end = End::new(Role::Server);
    assert_eq!(end.sent(Own::Control), uni(CONTROL, &[settings(&[])]));
    assert_eq!(end.connection.memory(), 0);
}

#[test]
fn a_server_answers_a_request() {
    let mut end = End::new(Role::Server);
    let control = uni(CONTROL, &[settings(&[(setting::MAX_FIELD_SECTION_SIZE, 9000)])]);
    assert_eq!(end.receive(2, &control, false), Ok(Progress::Taken));
    let peer = PeerSettings { max_field_section: 9000, ..PeerSettings::default() };
    assert_eq!(end.take_events(), [Event::Settings(peer)]);
    assert_eq!((end.connection.has_settings(), *end.connection.peer()), (true, peer));

    let request = [headers(&POST), raw(DATA, b"abc"), raw(DATA, b"d"), with(&[], &[("x", "y")])];
    assert_eq!(end.receive(0, &request.concat(), true), Ok(Progress::Over));
    let expected = [
        Event::Head(0, HeadKind::Request, 0),
        Event::Data(0, b"abcd".to_vec()),
        Event::Head(0, HeadKind::Trailers, 0),
        Event::End(0),
    ];
    assert_eq!(end.take_events(), expected);
    assert_eq!(end.seen.counters.data_octets, 4);

    // An empty prefix, and the name of static entry 24.
    let interim = raw(HEADERS, b"\0\0\x5f\x09\x82\x08\x19");
    assert_eq!(end.head(0, false, &[(":status", "103")]), Some(interim));
    let response = raw(HEADERS, b"\0\0\x5f\x09\x82\x10\x01");
    assert_eq!(end.head(0, false, &OK), Some(response));
    let mut out = vec![];
    assert!(end.connection.data(StreamId(0), 70, true, &mut out));
    assert_eq!(out, [0, 0x40, 70]);
    assert!(!end.connection.data(StreamId(0), 1, true, &mut out), "it has ended");
    assert_eq!((end.head(0, true, &OK), end.connection.streams()), (None, 0));
}

#[test]
fn a_client_gets_an_answer_whose_end_comes_alone() {
    let mut end = End::new(Role::Client);
    assert!(end.connection.can_open());
    end.connection.open(StreamId(4));
    assert!(end.head(4, true, &GET).is_some());
    let answer = [headers(&[(":status", "103")]), headers(&OK), raw(DATA, b"abc")].concat();
    assert_eq!(end.receive(4, &answer, false), Ok(Progress::Taken));
    assert_eq!(end.receive(4, &[], true), Ok(Progress::Over));
    let expected = [
        Event::Head(4, HeadKind::Interim, 103),
        Event::Head(4, HeadKind::Response, 200),
        Event::Data(4, b"abc".to_vec()),
        Event::End(4),
    ];
    assert_eq!(end.take_events(), expected);
    assert_eq!(end.connection.streams(), 0);
    // Octets on a closed stream are ignored.
    assert_eq!(end.receive(4, &answer, false), Ok(Progress::Over));
    assert_eq!((end.seen.counters.late, end.seen.events.len()), (1, 0));
}

#[test]
fn a_plain_head_is_that_of_a_connection_without_a_table() {
    let fields = GET.map(|(name, value)| Fixed::new(name.as_bytes(), value.as_bytes()));
    let write = |encoder: &mut Encoder, block: &mut Vec<u8>| {
        for (number, fixed) in (0..).zip(&fields) {
            encoder.field(Field::Fixed(number, fixed), block);
        }
    };
    let (mut plain, mut own) = (vec![9], vec![9]);
    plain_head(&mut plain, write);
    let mut client = Connection::client(&Limits::new(Settings::new(&[]).unwrap()), 4);
    client.open(StreamId(0));
    assert!(client.sends_plain_heads() && client.head(StreamId(0), true, &mut own, write));
    assert_eq!(plain, own);
    client.open(StreamId(4));
    assert!(client.head_known(StreamId(4), true));
    assert!(!client.head_known(StreamId(4), true), "it has ended");
}

#[test]
fn an_answer_to_head_has_a_length_and_no_octets() {
    let mut end = End::new(Role::Client);
    end.connection.open(StreamId(0));
    let answer = with(&OK, &[("content-length", "5")]);
    assert_eq!(end.receive(0, &answer, true), Ok(Progress::Over));
    let expected = [Event::Head(0, HeadKind::Response, 200), Event::End(0)];
    assert_eq!(end.take_events(), expected);
}

#[test]
fn a_reset_by_the_peer_ends_a_request() {
    let mut server = End::new(Role::Server);
    assert_eq!(server.receive(0, &headers(&POST), false), Ok(Progress::Taken));
    server.take_events();
    server.peer_reset(0, Code::REQUEST_CANCELLED).unwrap();
    let expected = [Event::Reset(0, Code::REQUEST_CANCELLED, Cause::Peer)];
    assert_eq!((&server.take_events()[..], server.head(0, true, &OK)), (&expected[..], None));

    // A server that has stopped reading may still answer.
    let mut client = End::new(Role::Client);
    client.connection.open(StreamId(0));
    client.head(0, false, &POST).unwrap();
    let End { connection, limits, seen, .. } = &mut client;
    connection.peer_stops(StreamId(0), Code::NO_ERROR, limits, seen).unwrap();
    assert!(!client.connection.data(StreamId(0), 1, false, &mut vec![]));
    assert_eq!(client.receive(0, &headers(&OK), true), Ok(Progress::Over));
    assert_eq!(client.take_events().len(), 2);

    // The same by a client ends the request.
    server.receive(4, &headers(&GET), true).map(|_| ()).unwrap();
    server.take_events();
    let End { connection, limits, seen, .. } = &mut server;
    connection.peer_stops(StreamId(4), Code::REQUEST_CANCELLED, limits, seen).unwrap();
    let expected = [Event::Reset(4, Code::REQUEST_CANCELLED, Cause::Peer)];
    assert_eq!(server.take_events(), expected);
}

#[test]
fn a_request_that_this_end_abandons_has_no_further_events() {
    let mut end = End::with_tables(Role::Server, 0, 4096);
    assert_eq!(end.receive(0, &headers(&POST), false), Ok(Progress::Taken));
    end.take_events();
    assert!(end.connection.abandon(StreamId(0)));
    assert!(!end.connection.abandon(StreamId(0)));
    // The decoder's stream, and a cancellation (RFC 9204 section 2.2.2.2).
    assert_eq!(end.sent(Own::Decoder), [3, 0x40]);
    assert_eq!((end.take_events(), end.connection.streams()), (vec![], 0));
}

#[test]
fn a_server_that_goes_away_refuses_further_requests() {
    let mut end = End::new(Role::Server);
    end.sent(Own::Control);
    assert_eq!(end.receive(4, &headers(&POST), false), Ok(Progress::Taken));
    end.connection.go_away();
    end.connection.go_away();
    assert_eq!(end.sent(Own::Control), number(GOAWAY, 8));
    end.take_events();
    // A lower number was on its way.
    assert_eq!(end.receive(0, &headers(&GET), true), Ok(Progress::Over));
    assert_eq!(end.receive(8, &headers(&GET), true), Ok(Progress::Over));
    let expected = [
        Event::Head(0, HeadKind::Request, 0),
        Event::End(0),
        Event::Reset(8, Code::REQUEST_REJECTED, Cause::Fault(Why::GoingAway)),
    ];
    assert_eq!((end.take_events(), end.seen.counters.refused), (expected.to_vec(), 1));
    assert!(end.head(4, true, &OK).is_some(), "open requests go on");
}

#[test]
fn a_client_opens_nothing_once_a_server_goes_away() {
    let mut end = End::new(Role::Client);
    for id in [0, 4, 8] {
        end.connection.open(StreamId(id));
    }
    let control = uni(CONTROL, &[settings(&[]), number(GOAWAY, 8), number(GOAWAY, 4)]);
    assert_eq!(end.receive(3, &control, false), Ok(Progress::Taken));
    let left_out = |id| Event::Reset(id, Code::REQUEST_CANCELLED, Cause::GoAway);
    let expected = [
        Event::Settings(PeerSettings::default()),
        left_out(8),
        Event::GoingAway(8),
        left_out(4),
        Event::GoingAway(4),
    ];
    assert_eq!(end.take_events(), expected);
    assert!(!end.connection.can_open());
    assert_eq!(end.connection.streams(), 1);
}

#[test]
fn unknown_codes_are_no_errors() {
    for (code, is_error, name) in [
        (Code::NO_ERROR, false, "H3_NO_ERROR"),
        (Code(0), false, "error code 0x0"),
        (Code(0x21), false, "error code 0x21"),
        (Code::MESSAGE_ERROR, true, "H3_MESSAGE_ERROR"),
        (Code::QPACK_DECODER_STREAM_ERROR, true, "QPACK_DECODER_STREAM_ERROR"),
    ] {
        assert_eq!((code.is_error(), code.to_string().as_str()), (is_error, name));
    }
}

#[test]
fn settings_that_cannot_be_announced_are_refused() {
    let many: Vec<(u64, u64)> = (0x100..0x141).map(|number| (number, 0)).collect();
    for (list, message) in [
        (&[(0x2, 0)][..], "setting 2 with value 0; try another number"),
        (&[(setting::QPACK_MAX_TABLE_CAPACITY, 65_537)], "try 0 to 65536"),
        (&[(setting::QPACK_BLOCKED_STREAMS, 17)], "try 0 to 16"),
        (&[(setting::ENABLE_CONNECT_PROTOCOL, 2)], "try 0 or 1"),
        (&[(0x21, 1 << 62)], "below 2^62"),
        (&[(0x21, 1), (0x21, 1)], "setting 33 twice"),
        (&many, "cannot announce 65 settings; try at most 64"),
    ] {
        let error = Settings::new(list).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}
