//! Two ends joined by a stream that is cut anywhere, with any windows: all requests that are not
//! reset complete, with their octets, and both ends have equal tables and no open streams.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::{h2::Blocked, hpack::Fixed};

/// Settings of an end, and how it is driven.
#[derive(Clone, Debug)]
struct Plan {
    list: Vec<(u16, u32)>,
    connection_window: u32,
    /// Octets that arrive at a time, again and again.
    chunks: Vec<usize>,
    /// Octets of data that are consumed at a time.
    consumes: u32,
}

#[derive(Clone, Debug)]
struct Request {
    body: u32,
    answer: u32,
    trailers: bool,
    /// Reset by the client after its head.
    abandoned: bool,
}

fn plan() -> impl Strategy<Value = Plan> {
    let list = (0_u32..200, 1_u32..100_000, 0_u32..5000, 16_384_u32..20_000, 1_u32..8).prop_map(
        |(small, window, table, frame, streams)| {
            // Very small windows are as likely as others.
            let window = if window % 2 == 0 { window } else { small.max(1) };
            vec![
                (setting::HEADER_TABLE_SIZE, table),
                (setting::INITIAL_WINDOW_SIZE, window),
                (setting::MAX_FRAME_SIZE, frame),
                (setting::MAX_CONCURRENT_STREAMS, streams),
            ]
        },
    );
    let chunks = prop::collection::vec(prop_oneof![1_usize..20, 1_usize..40_000], 1..8);
    (list, 65_535_u32..200_000, chunks, 100_u32..50_000).prop_map(
        |(list, connection_window, chunks, consumes)| Plan {
            list,
            connection_window,
            chunks,
            consumes,
        },
    )
}

fn request() -> impl Strategy<Value = Request> {
    let octets = || prop_oneof![Just(0_u32), 1_u32..300, 1_u32..20_000];
    (octets(), octets(), any::<bool>(), 0..6).prop_map(|(body, answer, trailers, abandoned)| {
        Request { body, answer, trailers, abandoned: abandoned == 0 }
    })
}

/// The octet of a body at `at`.
fn octet(id: u32, at: u32) -> u8 {
    (id.wrapping_mul(31) ^ at) as u8
}

/// A body that is being sent, and what follows.
#[derive(Debug)]
struct Sending {
    id: u32,
    at: u32,
    len: u32,
    trailers: bool,
}

#[derive(Debug, Default)]
struct Received {
    heads: usize,
    octets: u32,
    ended: bool,
    reset: bool,
    /// The length of the answer that a request asks for, and whether it has trailers.
    asks: Option<(u32, bool)>,
}

#[derive(Debug, Default)]
struct Program {
    streams: BTreeMap<u32, Received>,
    /// Octets that were received and not consumed.
    held: VecDeque<(u32, u32)>,
    /// Whether the other side's settings have come.
    ready: bool,
    counters: Counters,
}

impl Events for Program {
    fn head(&mut self, id: StreamId, head: &Head<'_>) {
        let stream = self.streams.entry(id.0).or_default();
        assert!(!stream.ended && !stream.reset);
        stream.heads += 1;
        stream.ended = head.end;
        if head.kind == HeadKind::Request {
            let number = |name: &[u8]| {
                let value = head.fields.get(name).expect("the field was sent");
                std::str::from_utf8(value).unwrap().parse::<u32>().unwrap()
            };
            stream.asks = Some((number(b"x-answer"), number(b"x-trailers") == 1));
            assert_eq!(head.fields.get(b"user-agent"), Some(&b"squall"[..]));
        }
    }

    fn data(&mut self, id: StreamId, octets: &[u8], end: bool) {
        let stream = self.streams.get_mut(&id.0).expect("a head came first");
        assert!(!stream.ended && !stream.reset);
        for (at, found) in (stream.octets..).zip(octets) {
            assert_eq!(*found, octet(id.0, at), "octet {at} of stream {}", id.0);
        }
        let len = u32::try_from(octets.len()).unwrap();
        stream.octets += len;
        stream.ended = end;
        if len > 0 {
            self.held.push_back((id.0, len));
        }
    }

    fn reset(&mut self, id: StreamId, _: Code, cause: Cause) {
        assert_eq!(cause, Cause::Peer, "neither end breaks a rule");
        self.streams.entry(id.0).or_default().reset = true;
    }

    fn writable(&mut self, _: Option<StreamId>) {}

    fn settings(&mut self, _: &PeerSettings) {
        self.ready = true;
    }

    fn going_away(&mut self, _: StreamId, _: Code) {
        panic!("neither end goes away");
    }

    fn counters(&mut self) -> &mut Counters {
        &mut self.counters
    }
}

struct Side {
    connection: Connection,
    limits: Limits,
    program: Program,
    sending: Vec<Sending>,
    /// Octets on their way to the other side.
    wire: VecDeque<u8>,
    consumes: u32,
}

impl Side {
    fn new(role: fn(&Limits, u16) -> Connection, plan: &Plan) -> Self {
        let settings = Settings::new(&plan.list, plan.connection_window).unwrap();
        let mut limits = Limits::new(settings);
        // Requests that are abandoned are not the subject here.
        limits.resets = u16::MAX;
        Self {
            connection: role(&limits, 4),
            limits,
            program: Program::default(),
            sending: vec![],
            wire: VecDeque::new(),
            consumes: plan.consumes,
        }
    }

    /// Sends what windows allow. Returns whether anything happened.
    fn send(&mut self) -> bool {
        let (connection, limits) = (&mut self.connection, &self.limits);
        let mut out = vec![];
        let mut budget = self.consumes;
        while budget > 0 {
            let Some((id, len)) = self.program.held.front_mut() else { break };
            let now = budget.min(*len);
            connection.consumed(StreamId(*id), now, limits);
            budget -= now;
            *len -= now;
            if *len == 0 {
                self.program.held.pop_front();
            }
        }
        self.sending.retain_mut(|body| {
            let id = StreamId(body.id);
            if self.program.streams.get(&body.id).is_some_and(|stream| stream.reset) {
                return false;
            }
            while body.at < body.len {
                let len = connection.room(id, body.len - body.at);
                if len == 0 {
                    return true;
                }
                let end = body.at + len == body.len && !body.trailers;
                connection.data(id, len, end, &mut out);
                out.extend((body.at..body.at + len).map(|at| octet(body.id, at)));
                body.at += len;
            }
            if body.trailers {
                let field = Field::Literal { name: b"x-checksum", value: b"1" };
                let sent = connection.head(id, true, &mut out, |e, block| e.field(field, block));
                assert!(sent);
            }
            false
        });
        connection.control(limits, &mut out);
        self.wire.extend(&out);
        !out.is_empty() || budget < self.consumes
    }

    fn receive(&mut self, octets: &[u8], scratch: &mut Scratch) {
        let program = &mut self.program;
        let result = self.connection.receive(octets, &self.limits, scratch, program);
        assert_eq!(result, Ok(()));
    }
}

struct Tables {
    request: [Fixed; 4],
    status: Fixed,
    server: Fixed,
}

impl Tables {
    fn new() -> Self {
        Self {
            request: [
                Fixed::new(b":method", b"POST"),
                Fixed::new(b":scheme", b"https"),
                Fixed::new(b":authority", b"example.com"),
                Fixed::new(b"user-agent", b"squall"),
            ],
            status: Fixed::new(b":status", b"207"),
            server: Fixed::new(b"server", b"squall"),
        }
    }

    fn ask(&self, client: &mut Side, id: StreamId, request: &Request) {
        let mut out = vec![];
        let end = request.body == 0 && !request.trailers;
        let numbers = [request.answer.to_string(), u8::from(request.trailers).to_string()];
        let sent = client.connection.head(id, end, &mut out, |encoder, out| {
            let [method, scheme, authority, agent] = &self.request;
            encoder.field(Field::Fixed(0, method), out);
            encoder.field(Field::Fixed(1, scheme), out);
            encoder.field(Field::Fixed(2, authority), out);
            let path = format!("/{}", id.0);
            encoder.field(Field::Literal { name: b":path", value: path.as_bytes() }, out);
            encoder.field(Field::Fixed(3, agent), out);
            for (name, value) in ["x-answer", "x-trailers"].into_iter().zip(&numbers) {
                let (name, value) = (name.as_bytes(), value.as_bytes());
                encoder.field(Field::Literal { name, value }, out);
            }
        });
        assert!(sent);
        client.wire.extend(&out);
        if request.abandoned {
            client.connection.reset(id, Code::CANCEL);
        } else if !end {
            let (len, trailers) = (request.body, request.trailers);
            client.sending.push(Sending { id: id.0, at: 0, len, trailers });
        }
    }

    fn answer(&self, server: &mut Side) {
        for (&id, stream) in &mut server.program.streams {
            if !stream.ended || stream.reset {
                continue;
            }
            let Some((len, trailers)) = stream.asks.take() else { continue };
            let mut out = vec![];
            let end = len == 0 && !trailers;
            let sent = server.connection.head(StreamId(id), end, &mut out, |encoder, out| {
                encoder.field(Field::Fixed(0, &self.status), out);
                encoder.field(Field::Fixed(1, &self.server), out);
            });
            assert!(sent);
            server.wire.extend(&out);
            if !end {
                server.sending.push(Sending { id, at: 0, len, trailers });
            }
        }
    }
}

/// Carries at most `most` octets. Returns whether there were any.
fn carry(from: &mut Side, to: &mut Side, most: Option<&usize>, scratch: &mut Scratch) -> bool {
    let len = from.wire.len().min(*most.expect("chunks come again"));
    let octets: Vec<u8> = from.wire.drain(..len).collect();
    to.receive(&octets, scratch);
    len > 0
}

fn run(client_plan: &Plan, server_plan: &Plan, requests: &[Request]) {
    let tables = Tables::new();
    let mut client = Side::new(Connection::client, client_plan);
    let mut server = Side::new(Connection::server, server_plan);
    let mut scratch = Scratch::default();
    let mut chunks = [&client_plan.chunks, &server_plan.chunks].map(|of| of.iter().cycle());
    let mut asked = BTreeMap::new();
    // A window of an octet takes a turn of both ends for each octet.
    let small = [client_plan, server_plan].iter().any(|plan| plan.list[1].1 < 200);
    let most = if small { 400 } else { u32::MAX };
    loop {
        let mut moved = false;
        // Before, the client does not know how many streams are allowed.
        while client.program.ready
            && let Some(request) = requests.get(asked.len())
        {
            match client.connection.open() {
                Ok(id) => {
                    let (body, answer) = (request.body % most, request.answer % most);
                    let request = Request { body, answer, ..request.clone() };
                    tables.ask(&mut client, id, &request);
                    asked.insert(id.0, request);
                    moved = true;
                }
                Err(blocked) => {
                    assert_eq!(blocked, Blocked::Streams);
                    break;
                }
            }
        }
        tables.answer(&mut server);
        moved |= client.send();
        moved |= server.send();
        let [up, down] = &mut chunks;
        moved |= carry(&mut client, &mut server, up.next(), &mut scratch);
        moved |= carry(&mut server, &mut client, down.next(), &mut scratch);
        if !moved {
            break;
        }
    }
    assert_eq!(asked.len(), requests.len(), "all were asked");
    for (id, request) in &asked {
        if request.abandoned {
            continue;
        }
        let (up, down) = (&server.program.streams[id], &client.program.streams[id]);
        assert_eq!((up.octets, up.ended), (request.body, true), "request {id}");
        assert_eq!((down.octets, down.ended), (request.answer, true), "answer {id}");
        let heads = 1 + usize::from(request.trailers);
        assert_eq!((up.heads, down.heads), (heads, heads), "heads of {id}");
    }
    assert_eq!((client.connection.streams(), server.connection.streams()), (0, 0));
    let [of_requests, of_answers] = client.connection.tables();
    assert_eq!(server.connection.tables(), [of_answers, of_requests]);
}

/// A frame, or a block in two, that a client may or may not send at this time.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let octets = prop::collection::vec(any::<u8>(), 0..20);
    (0..10, 0_u32..4, any::<bool>(), octets, any::<u8>()).prop_map(
        |(choice, nth, end, octets, flags)| {
            let id = 2 * nth + 1;
            let get = block(&GET);
            match choice {
                0 => super::request(id, &get),
                1 => opening(id, &with(&POST, &[("content-length", "12")])),
                2 => opening(id, &block(&POST)),
                3 => data(id, end, &octets),
                4 => {
                    let payload = [&[flags % 8][..], &octets].concat();
                    raw(kind::DATA, flags & flag::END_STREAM | flag::PADDED, id, &payload)
                }
                5 => super::request(id, &block(&[("x-trailer", "1")])),
                6 => window(if end { id } else { 0 }, flags.into()),
                7 => join(&[
                    raw(kind::HEADERS, flags & flag::END_STREAM, id, &get[..9]),
                    raw(kind::CONTINUATION, flag::END_HEADERS, id, &get[9..]),
                ]),
                8 => settings(&[(setting::INITIAL_WINDOW_SIZE, flags.into())]),
                _ => raw(flags % 12, flags, id, &octets),
            }
        },
    )
}

/// Events, with data of a stream that come one after the other as one event.
fn merged(events: Vec<Event>) -> Vec<Event> {
    let mut all: Vec<Event> = vec![];
    for event in events {
        match (all.last_mut(), event) {
            (Some(Event::Data(id, len, end)), Event::Data(same, more, last)) if *id == same => {
                *len += more;
                *end = last;
            }
            (_, event) => all.push(event),
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn it_makes_no_difference_where_octets_are_cut(
        frames in prop::collection::vec(any_frame(), 1..40),
        chunk in 1_usize..12,
    ) {
        let run = |chunk: usize| {
            let mut server = End::server().ready();
            for frame in &frames {
                for piece in frame.chunks(chunk) {
                    let _ = server.receive(piece);
                }
                server.control();
            }
            (merged(server.take_events()), server.seen.counters, server.out)
        };
        prop_assert_eq!(run(usize::MAX), run(chunk));
    }

    #[test]
    fn all_requests_complete_whatever_the_chunks_and_windows(
        client in plan(),
        server in plan(),
        requests in prop::collection::vec(request(), 1..20),
    ) {
        run(&client, &server, &requests);
    }

    #[test]
    fn no_octets_make_an_end_panic_or_grow(
        as_client in any::<bool>(),
        pieces in prop::collection::vec(
            (0_u8..12, any::<u8>(), 0_u32..8, prop::collection::vec(any::<u8>(), 0..40)),
            1..60,
        ),
    ) {
        let mut end = if as_client { End::client() } else { End::server() }.ready();
        if as_client {
            for _ in 0..3 {
                let id = end.connection.open().unwrap();
                end.head(id.0, false, &POST);
            }
        }
        for (kind, flags, id, payload) in pieces {
            let _ = end.receive(&raw(kind, flags, id, &payload));
            end.control();
            end.out.clear();
            prop_assert!(end.connection.memory() <= 48 << 10);
        }
    }
}
