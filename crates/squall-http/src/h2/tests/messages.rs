//! Messages of both ends: their events, their errors, and the frames that are sent.

use super::*;
use crate::h2::{Blocked, Why};

fn sent_kinds(end: &mut End) -> Vec<(u8, u32)> {
    end.sent().into_iter().map(|(kind, id, _)| (kind, id)).collect()
}

#[test]
fn a_connection_begins_with_the_preface_settings_and_a_window() {
    let mut client = End::client();
    client.control();
    assert!(client.out.starts_with(PREFACE));
    let out = client.out.clone();
    let sent = frames(&out);
    assert_eq!(sent[0].1, b"\x00\x02\x00\x00\x00\x00\x00\x04\x00\x04\x00\x00");
    assert_eq!((sent[1].0.kind, sent[1].0.stream), (kind::WINDOW_UPDATE, 0));
    assert_eq!(sent[1].1, ((1_u32 << 20) - 65_535).to_be_bytes());
    assert!(client.sent().len() == 2 && client.sent().is_empty(), "once");
    // A head that is sent at once is after them.
    let mut client = End::client();
    let id = client.connection.open().unwrap();
    assert!(client.head(id.0, true, &GET));
    let out = client.out.clone();
    let kinds: Vec<u8> = frames(&out).iter().map(|(header, _)| header.kind).collect();
    assert_eq!(kinds, [kind::SETTINGS, kind::WINDOW_UPDATE, kind::HEADERS]);
}

#[test]
fn both_ends_begin_with_settings() {
    for first in [ping(&[0; 8]), acknowledged(), window(0, 1)] {
        let error = Error { code: Code::PROTOCOL_ERROR, why: Why::Preface };
        assert_eq!(End::client().receive(&first), Err(error));
        let mut server = End::server();
        server.receive(PREFACE).unwrap();
        assert_eq!(server.receive(&first), Err(error));
    }
}

/// Connections share the fields of the last block, if these do not depend on their tables.
#[test]
fn equal_blocks_have_the_fields_of_their_connection() {
    let mut ends = [End::server().ready(), End::server().ready()];
    let mut scratch = Scratch::default();
    let mut path_of = |end: &mut End, id, block: &[u8]| {
        std::mem::swap(&mut end.scratch, &mut scratch);
        end.receive(&request(id, block)).unwrap();
        std::mem::swap(&mut end.scratch, &mut scratch);
        String::from_utf8(end.seen.path.clone()).unwrap()
    };
    // GET, http, and a path that is entered into the table.
    assert_eq!(path_of(&mut ends[0], 1, b"\x82\x86\x44\x02/x"), "/x");
    assert_eq!(path_of(&mut ends[1], 1, b"\x82\x86\x44\x02/y"), "/y");
    for id in [3, 5] {
        assert_eq!(path_of(&mut ends[0], id, b"\x82\x86\xbe"), "/x");
        assert_eq!(path_of(&mut ends[1], id, b"\x82\x86\xbe"), "/y");
    }
    // A path that is not.
    for id in [7, 9] {
        for end in &mut ends {
            assert_eq!(path_of(end, id, b"\x82\x86\x04\x02/z"), "/z");
        }
    }
    for end in &ends {
        let counters = end.seen.counters;
        assert_eq!((counters.heads, counters.head_octets), (5, 6 + 3 + 3 + 6 + 6));
        assert_eq!(counters.head_octets_plain, 5 * (7 + 3 + 7 + 4 + 5 + 2));
    }
}

#[test]
fn responses_come_after_interim_ones_and_before_trailers() {
    let mut client = End::client().ready();
    let id = client.connection.open().unwrap().0;
    client.head(id, false, &POST);
    assert_eq!(client.data(id, 3, true), 3);
    for step in [
        opening(id, &block(&[(":status", "103"), ("link", "</a>")])),
        opening(id, &block(&[(":status", "100")])),
        opening(id, &block(&[(":status", "200"), ("content-length", "7")])),
        data(id, false, b"four"),
        raw(kind::DATA, flag::PADDED, id, b"\x02all\0\0"),
        request(id, &block(&[("x-checksum", "1")])),
    ] {
        client.receive(&step).unwrap();
    }
    assert_eq!(
        client.take_events(),
        [
            Event::Head(id, HeadKind::Interim, 103, false),
            Event::Head(id, HeadKind::Interim, 100, false),
            Event::Head(id, HeadKind::Response, 200, false),
            Event::Data(id, 4, false),
            Event::Data(id, 3, false),
            Event::Head(id, HeadKind::Trailers, 0, true),
        ]
    );
    assert_eq!(client.connection.streams(), 0);
    let counters = client.seen.counters;
    assert_eq!((counters.heads, counters.data_octets, counters.padding_octets), (4, 7, 3));
}

#[test]
fn responses_that_break_the_rules_reset_their_stream() {
    let status = |value| vec![(":status", value)];
    let first = |fields: &[(&str, &str)]| vec![opening(1, &block(fields))];
    let cases: Vec<(&str, Vec<Vec<u8>>, Why)> = vec![
        ("no status", first(&[("server", "x")]), Why::Malformed),
        ("two", first(&[(":status", "200"), (":status", "200")]), Why::Malformed),
        ("not a number", first(&status("2x0")), Why::Malformed),
        ("too short", first(&status("20")), Why::Malformed),
        ("below 100", first(&status("099")), Why::Malformed),
        ("switching", first(&status("101")), Why::Malformed),
        ("a request's field", first(&[(":status", "200"), (":path", "/")]), Why::Malformed),
        ("an interim end", vec![request(1, &block(&status("103")))], Why::Malformed),
        ("data first", vec![data(1, false, b"x")], Why::Malformed),
        (
            "trailers that do not end",
            vec![opening(1, &block(&OK)), opening(1, &block(&[("a", "b")]))],
            Why::Malformed,
        ),
        (
            "too much data",
            vec![
                opening(1, &block(&[(":status", "200"), ("content-length", "3")])),
                data(1, false, b"four"),
            ],
            Why::ContentLength,
        ),
        (
            "too few data",
            vec![
                opening(1, &block(&[(":status", "200"), ("content-length", "5")])),
                data(1, true, b"four"),
            ],
            Why::ContentLength,
        ),
        (
            "trailers instead of data",
            vec![
                opening(1, &block(&[(":status", "200"), ("content-length", "5")])),
                data(1, false, b"four"),
                request(1, &block(&[("a", "b")])),
            ],
            Why::ContentLength,
        ),
    ];
    for (name, steps, why) in cases {
        let mut client = End::client().ready();
        client.connection.open().unwrap();
        client.head(1, true, &GET);
        steps.iter().for_each(|step| client.receive(step).unwrap());
        let code = Code::PROTOCOL_ERROR;
        let last = client.take_events().pop();
        assert_eq!(last, Some(Event::Reset(1, code, Cause::Fault(why))), "{name}");
        assert_eq!(client.seen.counters.malformed, 1, "{name}");
        assert_eq!(client.connection.streams(), 0, "{name}");
        let sent = client.sent();
        let sent = sent.last().map(|(kind, id, payload)| (*kind, *id, code_of(payload)));
        assert_eq!(sent, Some((kind::RST_STREAM, 1, code)), "{name}");
    }
}

#[test]
fn responses_without_data_may_have_a_length() {
    let fields = [(":status", "200"), ("content-length", "1000")];
    for steps in [
        vec![request(1, &block(&fields))],
        vec![opening(1, &block(&fields)), data(1, true, b"")],
        vec![opening(1, &block(&[(":status", "304"), fields[1]])), data(1, true, b"")],
    ] {
        let mut client = End::client().ready();
        client.connection.open().unwrap();
        client.head(1, true, &GET);
        steps.iter().for_each(|step| client.receive(step).unwrap());
        assert_eq!(client.connection.streams(), 0);
        assert_eq!(client.seen.counters.malformed, 0);
    }
}

#[test]
fn requests_are_validated_before_they_become_text() {
    let [method, scheme, path, authority] = GET;
    let connect = [(":method", "CONNECT"), (":authority", "example:443")];
    let tunnel = |fields: &[(&'static str, &'static str)]| {
        [&[(":method", "CONNECT"), (":protocol", "websocket")][..], fields].concat()
    };
    let regular = |field| vec![method, scheme, path, authority, field];
    let cases = [
        (true, GET.to_vec()),
        (true, vec![authority, path, scheme, method]),
        (true, vec![method, scheme, path]),
        (true, vec![(":method", "OPTIONS"), scheme, (":path", "*")]),
        (false, vec![method, scheme, (":path", "*")]),
        (false, vec![method, scheme, (":path", "example/")]),
        (false, vec![method, scheme, (":path", "/a b")]),
        (false, vec![method, scheme, (":path", "/a\r\nx: y")]),
        (false, vec![(":method", "GET /"), scheme, path]),
        (false, vec![(":method", ""), scheme, path]),
        (false, vec![method, (":scheme", ""), path]),
        (false, vec![method, scheme, path, (":authority", "a\nb")]),
        (true, connect.to_vec()),
        (false, connect[..1].to_vec()),
        (false, [&connect[..], &[("content-length", "0")]].concat()),
        (false, [&connect[..], &[scheme, path]].concat()),
        (false, tunnel(&[scheme, path, authority])), // not announced
        (true, regular(("te", "trailers"))),
        (false, regular(("te", "gzip"))),
        (false, regular(("connection", "close"))),
        (false, regular(("proxy-connection", "close"))),
        (false, regular(("keep-alive", "1"))),
        (false, regular(("transfer-encoding", "chunked"))),
        (false, regular(("upgrade", "h2c"))),
        (false, regular(("", "empty"))),
        (false, regular(("a b", "space"))),
        (false, regular(("a:b", "colon"))),
        (false, regular(("\u{e9}", "not ascii"))),
        (true, regular(("x-utf8", "\u{e9}"))),
        (true, regular(("x-empty", ""))),
        (false, regular(("x", " before"))),
        (false, regular(("x", "after\t"))),
        (false, regular(("x", "a\rb"))),
        (false, regular(("x", "a\nb"))),
        (false, regular(("x", "a\0b"))),
        (true, regular(("content-length", "0"))),
        (false, regular(("content-length", "1"))), // the stream has ended
        (false, regular(("content-length", "-1"))),
        (false, regular(("content-length", ""))),
        (false, regular(("content-length", "99999999999999999999"))),
    ];
    for (allowed, fields) in cases {
        let mut server = End::server().ready();
        server.receive(&request(1, &block(&fields))).unwrap();
        let events = server.take_events();
        let expected: &[Event] =
            if allowed { &[Event::Head(1, HeadKind::Request, 0, true)] } else { &[] };
        assert_eq!(events, expected, "{fields:?}");
        let resets = if allowed { vec![] } else { vec![(kind::RST_STREAM, 1)] };
        assert_eq!(sent_kinds(&mut server), resets, "{fields:?}");
    }
    // Two lengths are allowed if they are equal.
    for (second, allowed) in [("4", 1), ("5", 0)] {
        let mut server = End::server().ready();
        let lengths = [("content-length", "4"), ("content-length", second)];
        server.receive(&opening(1, &with(&POST, &lengths))).unwrap();
        assert_eq!(server.take_events().len(), allowed);
    }
    // Extended CONNECT, where it was announced.
    let list = [(setting::ENABLE_CONNECT_PROTOCOL, 1)];
    let limits = Limits::new(Settings::new(&list, 65_535).unwrap());
    for (allowed, fields) in [
        (1, tunnel(&[scheme, path, authority])),
        (0, tunnel(&[authority])),
        (0, tunnel(&[scheme, path, authority, ("content-length", "40")])),
        (0, tunnel(&[scheme, path])),
    ] {
        let mut server = End::new(Connection::server(&limits, 0), limits.clone()).ready();
        server.receive(&opening(1, &block(&fields))).unwrap();
        assert_eq!(server.take_events().len(), allowed, "{fields:?}");
    }
}

#[test]
fn a_block_is_cut_into_the_peers_frames_and_put_together() {
    let mut client = End::client().ready();
    let mut limits = Limits::new(of_servers());
    (limits.head, limits.block) = (100_000, 100_000);
    let mut server = End::new(Connection::server(&limits, 0), limits).ready();
    let id = client.connection.open().unwrap();
    let path = format!("/{}", "\"".repeat(40_000));
    client.connection.head(id, true, &mut client.out, |encoder, out| {
        for (name, value) in [GET[0], GET[1], (":path", path.as_str()), GET[3]] {
            let (name, value) = (name.as_bytes(), value.as_bytes());
            encoder.field(Field::Literal { name, value }, out);
        }
    });
    let out = std::mem::take(&mut client.out);
    let sent: Vec<(u8, u8, u32)> =
        frames(&out).iter().map(|(header, _)| (header.kind, header.flags, header.len)).collect();
    assert_eq!(sent[0], (kind::HEADERS, flag::END_STREAM, 1 << 14));
    assert_eq!(sent[1], (kind::CONTINUATION, 0, 1 << 14));
    assert_eq!((sent[2].0, sent[2].1, sent.len()), (kind::CONTINUATION, flag::END_HEADERS, 3));
    for piece in out.chunks(1000) {
        server.receive(piece).unwrap();
    }
    assert_eq!(server.take_events(), [Event::Head(1, HeadKind::Request, 0, true)]);
    assert_eq!(server.seen.path, path.as_bytes());
}

#[test]
fn a_client_opens_as_many_streams_as_the_server_allows() {
    let mut client = End::client().ready();
    client.receive(&settings(&[(setting::MAX_CONCURRENT_STREAMS, 2)])).unwrap();
    for id in [1, 3] {
        assert_eq!(client.connection.open(), Ok(StreamId(id)));
        assert_eq!(client.connection.room(StreamId(id), 9), 0, "the head goes first");
        client.head(id, true, &GET);
    }
    assert_eq!(client.connection.open(), Err(Blocked::Streams));
    client.receive(&request(1, &block(&OK))).unwrap();
    assert_eq!(client.connection.open(), Ok(StreamId(5)));
    // One that was opened, but not sent, is not known to the server.
    client.connection.reset(StreamId(5), Code::CANCEL);
    client.out.clear();
    assert!(sent_kinds(&mut client).is_empty());
    client.receive(&settings(&[(setting::MAX_CONCURRENT_STREAMS, 0)])).unwrap();
    assert_eq!(client.connection.open(), Err(Blocked::Streams));
}

#[test]
fn a_server_that_goes_away_leaves_out_what_it_has_not_processed() {
    let mut client = End::client().ready();
    for id in [1, 3, 5] {
        assert_eq!(client.connection.open(), Ok(StreamId(id)));
        client.head(id, true, &GET);
    }
    let payload = [&1_u32.to_be_bytes()[..], &[0; 4], b"maintenance"].concat();
    client.receive(&raw(kind::GOAWAY, 0, 0, &payload)).unwrap();
    let unprocessed = |id| Event::Reset(id, Code::REFUSED_STREAM, Cause::GoAway);
    assert_eq!(
        client.take_events(),
        [unprocessed(5), unprocessed(3), Event::GoingAway(1, Code::NO_ERROR)]
    );
    assert_eq!(client.connection.open(), Err(Blocked::GoingAway));
    client.receive(&request(1, &block(&OK))).unwrap();
    assert_eq!(client.take_events(), [Event::Head(1, HeadKind::Response, 200, true)]);
    assert_eq!(client.connection.streams(), 0);
}

#[test]
fn a_server_that_goes_away_ignores_later_streams_and_ends_the_others() {
    let mut server = End::server().ready();
    server.receive(&opening(1, &block(&POST))).unwrap();
    server.connection.go_away(Code::NO_ERROR);
    let (kind, _, payload) = server.sent().remove(0);
    assert_eq!((kind, &payload[..4]), (kind::GOAWAY, &1_u32.to_be_bytes()[..]));
    server.receive(&join(&[opening(3, &block(&POST)), data(3, true, b"late")])).unwrap();
    server.receive(&data(1, true, b"end")).unwrap();
    assert!(server.head(1, true, &OK));
    assert_eq!(server.connection.streams(), 0);
    assert_eq!(
        server.take_events(),
        [Event::Head(1, HeadKind::Request, 0, false), Event::Data(1, 3, true)]
    );
}

#[test]
fn pushes_are_refused_or_end_the_connection() {
    let promise = |promised: u32, flags: u8| {
        let payload = [&promised.to_be_bytes()[..], &block(&GET)].concat();
        raw(kind::PUSH_PROMISE, flags, 1, &payload)
    };
    let push = Error { code: Code::PROTOCOL_ERROR, why: Why::Push };
    let mut client = End::client().ready();
    client.connection.open().unwrap();
    client.head(1, true, &GET);
    assert_eq!(client.receive(&promise(2, flag::END_HEADERS)), Err(push));
    // A client that does not forbid them refuses each, and ignores what follows on it.
    let limits = Limits::new(Settings::new(&[], 65_535).unwrap());
    let mut client = End::new(Connection::client(&limits, 0), limits).ready();
    client.connection.open().unwrap();
    client.head(1, true, &GET);
    client.out.clear();
    client.receive(&promise(2, flag::END_HEADERS)).unwrap();
    client.receive(&join(&[opening(2, &block(&OK)), data(2, true, b"pushed")])).unwrap();
    assert!(client.take_events().is_empty());
    let sent = client.sent();
    assert_eq!(sent, [(kind::RST_STREAM, 2, Code::REFUSED_STREAM.0.to_be_bytes().to_vec())]);
    assert_eq!(client.seen.counters.pushes_refused, 1);
    let refused = client.seen.counters.resets_sent[Code::REFUSED_STREAM.0 as usize];
    assert_eq!(refused, 1, "each frame is counted");
    let number = Error { code: Code::PROTOCOL_ERROR, why: Why::StreamNumber };
    assert_eq!(client.receive(&promise(2, flag::END_HEADERS)), Err(number));
}

#[test]
fn frames_on_a_stream_that_was_reset_here_are_ignored() {
    let mut client = End::client().ready();
    client.connection.open().unwrap();
    client.head(1, false, &POST);
    client.connection.reset(StreamId(1), Code::CANCEL);
    assert!(!client.head(1, true, &GET), "nothing is sent any more");
    assert_eq!(client.connection.room(StreamId(1), 100), 0);
    for late in [
        opening(1, &block(&OK)),
        data(1, false, b"data"),
        window(1, 10),
        window(1, 0),
        reset(1, Code::NO_ERROR),
        data(1, true, b"end"),
    ] {
        client.receive(&late).unwrap();
    }
    assert!(client.take_events().is_empty());
    assert_eq!(client.connection.streams(), 0);
}

#[test]
fn a_reset_by_the_peer_is_reported_once() {
    let mut client = End::client().ready();
    client.connection.open().unwrap();
    client.head(1, false, &POST);
    client.receive(&reset(1, Code::HTTP_1_1_REQUIRED)).unwrap();
    client.receive(&reset(1, Code::CANCEL)).unwrap();
    assert_eq!(client.take_events(), [Event::Reset(1, Code::HTTP_1_1_REQUIRED, Cause::Peer)]);
    client.connection.reset(StreamId(1), Code::CANCEL);
    client.out.clear();
    assert!(sent_kinds(&mut client).is_empty());
}

#[test]
fn windows_and_settings_that_grow_are_reported() {
    let mut client = End::client().ready();
    client.connection.open().unwrap();
    client.head(1, false, &POST);
    assert_eq!(client.data(1, 100_000, true), 16_384);
    while client.data(1, 100_000, true) > 0 {}
    client.receive(&window(1, 5)).unwrap();
    client.receive(&window(0, 7)).unwrap();
    assert_eq!(client.data(1, 100_000, true), 5);
    client.receive(&settings(&[(setting::INITIAL_WINDOW_SIZE, 65_536)])).unwrap();
    assert_eq!(client.data(1, 100_000, true), 1);
    assert_eq!(
        client.take_events(),
        [Event::Writable(Some(1)), Event::Writable(None), Event::Settings, Event::Writable(None)]
    );
    assert_eq!(client.connection.peer().window, 65_536);
    // Data of no octets can end a stream whatever its window is.
    assert_eq!(client.data(1, 0, true), 0);
    let (kind, id, payload) = client.sent().pop().unwrap();
    assert_eq!((kind, id, payload.len()), (kind::DATA, 1, 0));
}

#[test]
fn padding_gives_its_credit_back_at_once() {
    let limits =
        Limits::new(Settings::new(&[(setting::INITIAL_WINDOW_SIZE, 1000)], 65_535).unwrap());
    let mut server = End::new(Connection::server(&limits, 0), limits).ready();
    server.receive(&opening(1, &block(&POST))).unwrap();
    let padded = [&[255][..], b"x", &[0; 255]].concat();
    for _ in 0..100 {
        server.receive(&raw(kind::DATA, flag::PADDED, 1, &padded)).unwrap();
        server.consumed(1, 1);
        server.control();
    }
    assert_eq!(server.connection.streams(), 1);
    assert_eq!(server.seen.counters.padding_octets, 100 * 256);
}

#[test]
#[should_panic(expected = "octets are returned once")]
fn octets_are_returned_once() {
    let mut server = End::server().ready();
    server.receive(&join(&[opening(1, &block(&POST)), data(1, false, b"four")])).unwrap();
    server.consumed(1, 4);
    server.consumed(1, 1);
}

#[test]
#[should_panic(expected = "data fit the room")]
fn data_fit_the_windows() {
    let mut client = End::client().ready();
    let id = client.connection.open().unwrap();
    client.head(id.0, false, &POST);
    client.connection.data(id, 70_000, false, &mut client.out);
}

#[test]
fn a_reset_says_whether_the_peer_gets_one() {
    let mut client = End::client().ready();
    let unsent = client.connection.open().unwrap();
    assert!(!client.connection.reset(unsent, Code::CANCEL), "the peer does not know it");
    let id = client.connection.open().unwrap();
    client.head(id.0, false, &POST);
    assert!(client.connection.reset(id, Code::CANCEL));
    assert!(!client.connection.reset(id, Code::CANCEL), "once");
}

#[test]
fn pings_are_answered_by_both_ends_and_answers_are_not() {
    for mut end in [End::client().ready(), End::server().ready()] {
        end.receive(&ping(b"how long")).unwrap();
        assert_eq!(end.sent(), [(kind::PING, 0, b"how long".to_vec())]);
        end.receive(&raw(kind::PING, flag::ACK, 0, b"how long")).unwrap();
        assert!(end.sent().is_empty() && end.take_events().is_empty());
    }
}

#[test]
fn settings_that_cannot_be_announced_say_what_can() {
    for (list, window, expected) in [
        (
            vec![(setting::MAX_FRAME_SIZE, 100)],
            65_535,
            "cannot announce setting 5 with value 100; try 16384 to 16777215",
        ),
        (
            vec![(setting::HEADER_TABLE_SIZE, 1 << 20)],
            65_535,
            "cannot announce setting 1 with value 1048576; try 0 to 65536",
        ),
        (vec![], 100, "cannot announce a connection window of 100 octets; try 65535 to 2147483647"),
        (vec![(0xff, 0); 65], 65_535, "cannot announce 65 settings; try at most 64"),
    ] {
        let error = Settings::new(&list, window).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    let list = [(0x0a0a, 7), (setting::ENABLE_PUSH, 0)];
    assert_eq!(Settings::new(&list, 65_535).unwrap().list(), list);
}

#[test]
fn a_peer_may_use_the_default_table_until_it_knows_a_smaller_one() {
    let limits = Limits::new(Settings::new(&[(setting::HEADER_TABLE_SIZE, 0)], 65_535).unwrap());
    let mut server = End::new(Connection::server(&limits, 0), limits);
    let indexed = |id: u32, more: &[u8]| request(id, &[&block(&GET)[..], more].concat());
    server.receive(&join(&[PREFACE.to_vec(), settings(&[])])).unwrap();
    server.receive(&indexed(1, b"\x40\x01a\x01b")).unwrap();
    server.receive(&indexed(3, b"\xbe")).unwrap();
    assert_eq!(server.connection.tables()[1], (1, 34));
    server.receive(&acknowledged()).unwrap();
    server.receive(&request(5, &[&b"\x20"[..], &block(&GET)].concat())).unwrap();
    assert_eq!(server.connection.tables()[1], (0, 0));
    let error = server.receive(&request(7, &[&b"\x21"[..], &block(&GET)].concat())).unwrap_err();
    assert_eq!(error.why, Why::Compression);
}

#[test]
fn counters_add_up() {
    let mut all = Counters::default();
    let one = Counters { heads: 1, errors: 2, ..Counters::default() };
    all.add(&one);
    all.add(&one);
    assert_eq!((all.heads, all.errors, all.refused), (2, 4, 0));
}
