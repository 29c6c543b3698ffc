//! Violations of RFC 9114 (sections 4 to 7), RFC 9204 and RFC 8441, and the error of each.

use super::*;

/// The result of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// The connection ends.
    Ends(Code, Why),
    /// The request is reset.
    Resets(Code, Why),
    /// Neither.
    Passes,
}

use Expected::{Ends, Passes, Resets};

/// Octets of a stream: its number, and whether they are its last.
type Step = (u64, Vec<u8>, bool);

/// Gives the octets to a new end, in pieces of at most `piece`. A client has asked for stream 0.
fn run(role: Role, steps: &[Step], piece: usize) -> (Expected, End) {
    let mut end = End::new(role);
    if role == Role::Client {
        end.connection.open(StreamId(0));
        end.head(0, true, &GET).unwrap();
    }
    for (id, octets, ends) in steps {
        let mut pieces: Vec<&[u8]> = octets.chunks(piece).collect();
        if pieces.is_empty() {
            pieces.push(&[]);
        }
        for (nth, part) in (1..).zip(&pieces) {
            let last = *ends && nth == pieces.len();
            match end.receive(*id, part, last) {
                Ok(Progress::Taken) => assert!(!last),
                Ok(progress) => {
                    assert_eq!(progress, Progress::Over);
                    break;
                }
                Err(error) => {
                    assert!(end.connection.is_over() && end.connection.streams() == 0);
                    assert_eq!(end.receive(0, &[], false), Ok(Progress::Over));
                    assert_eq!(end.seen.counters.errors, 1);
                    return (Ends(error.code, error.why), end);
                }
            }
        }
    }
    let reset = end.seen.events.iter().find_map(|event| match event {
        Event::Reset(_, code, Cause::Fault(why)) => Some(Resets(*code, *why)),
        _ => None,
    });
    (reset.unwrap_or(Passes), end)
}

/// Whole, and octet by octet: the same has to come of it.
fn check(name: &str, role: Role, steps: &[Step], expected: Expected) {
    let (whole, seen) = run(role, steps, usize::MAX);
    assert_eq!(whole, expected, "{name}: {:?}", seen.seen.events);
    let (cut, seen) = run(role, steps, 1);
    assert_eq!(cut, expected, "{name}, octet by octet: {:?}", seen.seen.events);
}

fn all(role: Role, cases: &[(&str, &[Step], Expected)]) {
    for (name, steps, expected) in cases {
        check(name, role, steps, *expected);
    }
}

fn request(octets: &[Vec<u8>]) -> Step {
    (0, octets.concat(), true)
}

/// A request that goes on.
fn open(octets: &[Vec<u8>]) -> Step {
    (0, octets.concat(), false)
}

/// The control stream of the peer of an end with this role, after settings.
fn control(role: Role, frames: &[Vec<u8>]) -> Step {
    let octets = [uni(CONTROL, &[settings(&[])]), frames.concat()].concat();
    (peer_uni(role, 0), octets, false)
}

const UNEXPECTED: Expected = Ends(Code::FRAME_UNEXPECTED, Why::UnexpectedFrame);
const MALFORMED: Expected = Resets(Code::MESSAGE_ERROR, Why::Malformed);
const LENGTH: Expected = Resets(Code::MESSAGE_ERROR, Why::ContentLength);
const SIZE: Expected = Ends(Code::FRAME_ERROR, Why::FrameSize);
const ID: Expected = Ends(Code::ID_ERROR, Why::Id);
const CREATION: Expected = Ends(Code::STREAM_CREATION_ERROR, Why::StreamCreation);
const CLOSED: Expected = Ends(Code::CLOSED_CRITICAL_STREAM, Why::ClosedCritical);
const SETTING: Expected = Ends(Code::SETTINGS_ERROR, Why::Setting);

#[test]
fn section_4_1_sequences_of_frames() {
    let trailers = || headers(&[("x", "y")]);
    let interim = || headers(&[(":status", "100")]);
    all(
        Role::Server,
        &[
            ("a request", &[request(&[headers(&GET)])], Passes),
            (
                "a body and trailers",
                &[request(&[headers(&POST), raw(DATA, b"a"), trailers()])],
                Passes,
            ),
            ("trailers without a body", &[request(&[headers(&POST), trailers()])], Passes),
            ("DATA before HEADERS", &[open(&[raw(DATA, b"a")])], UNEXPECTED),
            (
                "HEADERS after trailers",
                &[open(&[headers(&POST), trailers(), trailers()])],
                UNEXPECTED,
            ),
            (
                "DATA after trailers",
                &[open(&[headers(&POST), trailers(), raw(DATA, b"a")])],
                UNEXPECTED,
            ),
            (
                "an unknown frame between others",
                &[request(&[
                    raw(0x21, b"abc"),
                    headers(&POST),
                    raw(0x40, b""),
                    raw(DATA, b"a"),
                    raw(0x1f * 9 + 0x21, b"a"),
                    trailers(),
                    raw(0x21, b"a"),
                ])],
                Passes,
            ),
            (
                "a request ends without octets",
                &[request(&[])],
                Resets(Code::REQUEST_INCOMPLETE, Why::Incomplete),
            ),
            (
                "a request ends before its head",
                &[request(&[raw(0x21, b"a")])],
                Resets(Code::REQUEST_INCOMPLETE, Why::Incomplete),
            ),
        ],
    );
    all(
        Role::Client,
        &[
            ("a response", &[request(&[headers(&OK), raw(DATA, b"a")])], Passes),
            ("interim responses", &[request(&[interim(), interim(), headers(&OK)])], Passes),
            ("DATA after an interim response", &[open(&[interim(), raw(DATA, b"a")])], UNEXPECTED),
            ("no final response", &[request(&[interim()])], MALFORMED),
            ("no response", &[request(&[])], MALFORMED),
            ("DATA before HEADERS", &[open(&[raw(DATA, b"a")])], UNEXPECTED),
            (
                "DATA after trailers",
                &[open(&[headers(&OK), trailers(), raw(DATA, b"a")])],
                UNEXPECTED,
            ),
        ],
    );
}

#[test]
fn section_4_1_2_content_length() {
    let post = |length| with(&POST, &[("content-length", length)]);
    let ok = |length| with(&OK, &[("content-length", length)]);
    all(
        Role::Server,
        &[
            ("as long", &[request(&[post("3"), raw(DATA, b"ab"), raw(DATA, b"c")])], Passes),
            ("none of 0", &[request(&[post("0")])], Passes),
            ("too long", &[open(&[post("3"), raw(DATA, b"abcd")])], LENGTH),
            ("too long in sum", &[open(&[post("3"), raw(DATA, b"ab"), raw(DATA, b"cd")])], LENGTH),
            ("too short", &[request(&[post("3"), raw(DATA, b"ab")])], LENGTH),
            ("nothing", &[request(&[post("3")])], LENGTH),
            (
                "too short before trailers",
                &[open(&[post("3"), raw(DATA, b"ab"), headers(&[("x", "y")])])],
                LENGTH,
            ),
            ("no number", &[request(&[post("3a")])], MALFORMED),
            (
                "two different",
                &[request(&[with(&POST, &[("content-length", "1"), ("content-length", "2")])])],
                MALFORMED,
            ),
        ],
    );
    all(
        Role::Client,
        &[
            ("as long", &[request(&[ok("3"), raw(DATA, b"abc")])], Passes),
            ("too long", &[open(&[ok("3"), raw(DATA, b"abcd")])], LENGTH),
            ("too short", &[request(&[ok("3"), raw(DATA, b"ab")])], LENGTH),
            (
                "304 has none",
                &[request(&[headers(&[(":status", "304"), ("content-length", "3")])])],
                Passes,
            ),
        ],
    );
}

#[test]
fn sections_4_2_to_4_5_fields() {
    let cases: [(&str, Vec<u8>, Expected); 30] = [
        ("4.2 a name in upper case", with(&GET, &[("X", "y")]), MALFORMED),
        ("4.2 an empty name", with(&GET, &[("", "y")]), MALFORMED),
        ("4.2 a name with a space", with(&GET, &[("x y", "y")]), MALFORMED),
        ("10.3 a line end in a value", with(&GET, &[("x", "y\r\nz: 1")]), MALFORMED),
        ("4.2 connection", with(&GET, &[("connection", "close")]), MALFORMED),
        ("4.2 keep-alive", with(&GET, &[("keep-alive", "1")]), MALFORMED),
        ("4.2 proxy-connection", with(&GET, &[("proxy-connection", "close")]), MALFORMED),
        ("4.2 transfer-encoding", with(&GET, &[("transfer-encoding", "chunked")]), MALFORMED),
        ("4.2 upgrade", with(&GET, &[("upgrade", "h2c")]), MALFORMED),
        ("4.2 te: trailers", with(&GET, &[("te", "trailers")]), Passes),
        ("4.2 te: gzip", with(&GET, &[("te", "gzip")]), MALFORMED),
        (
            "4.2.1 cookies in several fields",
            with(&GET, &[("cookie", "a"), ("cookie", "b")]),
            Passes,
        ),
        ("4.3 a pseudo-field after others", with(&[("x", "y")], &GET), MALFORMED),
        ("4.3 an unknown pseudo-field", with(&GET, &[(":x", "y")]), MALFORMED),
        ("4.3 a pseudo-field of responses", with(&GET, &[(":status", "200")]), MALFORMED),
        ("4.3.1 a pseudo-field twice", with(&GET, &[(":path", "/")]), MALFORMED),
        ("4.3.1 no method", headers(&GET[1..]), MALFORMED),
        ("4.3.1 no scheme", with(&GET[..1], &GET[2..]), MALFORMED),
        ("4.3.1 no path", headers(&GET[..3]), MALFORMED),
        ("4.3.1 an empty path", with(&GET[..3], &[(":path", "")]), MALFORMED),
        ("4.3.1 no authority", with(&GET[..2], &GET[3..]), MALFORMED),
        (
            "4.3.1 an empty authority",
            with(&GET[..2], &[(":authority", ""), (":path", "/")]),
            MALFORMED,
        ),
        (
            "4.3.1 userinfo",
            with(&GET[..2], &[(":authority", "me@a.test"), (":path", "/")]),
            MALFORMED,
        ),
        ("4.3.1 host alone", with(&GET[..2], &[(":path", "/"), ("host", "a.test")]), Passes),
        ("4.3.1 host as the authority", with(&GET, &[("host", "a.test")]), Passes),
        ("4.3.1 another host", with(&GET, &[("host", "b.test")]), MALFORMED),
        (
            "4.3.1 another scheme without authority",
            headers(&[(":method", "GET"), (":scheme", "urn"), (":path", "/")]),
            Passes,
        ),
        ("4.4 CONNECT", headers(&[(":method", "CONNECT"), (":authority", "a:1")]), Passes),
        (
            "4.4 CONNECT with a path",
            headers(&[(":method", "CONNECT"), (":authority", "a:1"), (":path", "/")]),
            MALFORMED,
        ),
        ("4.4 CONNECT without authority", headers(&[(":method", "CONNECT")]), MALFORMED),
    ];
    for (name, octets, expected) in cases {
        check(name, Role::Server, &[(0, octets, true)], expected);
    }
    let trailers = |fields: &[(&str, &str)]| [request(&[headers(&POST), headers(fields)])];
    check("4.3 :path in trailers", Role::Server, &trailers(&[(":path", "/")]), MALFORMED);
    check("4.2 connection in trailers", Role::Server, &trailers(&[("upgrade", "x")]), MALFORMED);
    let tunnel = || headers(&[(":method", "CONNECT"), (":authority", "a:1")]);
    let steps = [open(&[tunnel(), raw(DATA, b"a"), headers(&[("x", "y")])])];
    check("4.4 HEADERS in a tunnel", Role::Server, &steps, UNEXPECTED);

    let responses: [(&str, Vec<u8>); 6] = [
        ("4.3.2 no status", headers(&[("x", "y")])),
        ("4.3.2 a status twice", headers(&[(":status", "200"), (":status", "200")])),
        ("4.3.2 a status of two digits", headers(&[(":status", "20")])),
        ("4.3.2 a pseudo-field of requests", with(&OK, &[(":path", "/")])),
        ("4.2 connection", with(&OK, &[("connection", "close")])),
        ("4.5 status 101", headers(&[(":status", "101")])),
    ];
    for (name, octets) in responses {
        check(name, Role::Client, &[(0, octets, true)], MALFORMED);
    }
}

#[test]
fn section_4_6_and_6_2_2_pushes() {
    let promise = raw(PUSH_PROMISE, &[0, 0, 0, 0xd1]);
    let push = Ends(Code::ID_ERROR, Why::Push);
    all(
        Role::Client,
        &[
            ("a promise that was not allowed", &[open(std::slice::from_ref(&promise))], push),
            ("a pushed stream", &[(3, uni(PUSH, &[vec![0]]), false)], push),
        ],
    );
    all(
        Role::Server,
        &[
            ("a promise of a client", &[open(&[promise])], UNEXPECTED),
            ("a pushed stream of a client", &[(2, uni(PUSH, &[]), false)], CREATION),
        ],
    );
}

#[test]
fn section_5_2_goaway() {
    let of = |numbers: &[u64]| numbers.iter().map(|n| number(GOAWAY, *n)).collect::<Vec<_>>();
    for role in [Role::Client, Role::Server] {
        let falls = [control(role, &of(&[8, 8, 0]))];
        check("a number that falls", role, &falls, Passes);
        check("a number that rises", role, &[control(role, &of(&[4, 8]))], ID);
    }
    let steps = [control(Role::Client, &of(&[2]))];
    check("a number that is not that of a request", Role::Client, &steps, ID);
    check("a push of any number", Role::Server, &[control(Role::Server, &of(&[3]))], Passes);
}

#[test]
fn section_6_1_and_6_2_kinds_of_streams() {
    let steps = [(1, headers(&OK), false)];
    check("6.1 a request of a server", Role::Client, &steps, CREATION);
    for role in [Role::Client, Role::Server] {
        let at = |nth| peer_uni(role, nth);
        let begins = |kind| uni(kind, &[]);
        all(
            role,
            &[
                ("6.2 a stream ends before its type", &[(at(0), vec![], true)], Passes),
                ("6.2 a type of two octets ends", &[(at(0), vec![0x40], true)], Passes),
                (
                    "6.2.1 a second control stream",
                    &[control(role, &[]), (at(1), begins(CONTROL), false)],
                    CREATION,
                ),
                (
                    "6.2.1 the control stream ends",
                    &[(at(0), uni(CONTROL, &[settings(&[])]), true)],
                    CLOSED,
                ),
                (
                    "6.2.1 the control stream does not begin with SETTINGS",
                    &[(at(0), uni(CONTROL, &[number(GOAWAY, 0)]), false)],
                    Ends(Code::MISSING_SETTINGS, Why::MissingSettings),
                ),
                (
                    "6.2.1 the control stream begins with a reserved frame",
                    &[(at(0), uni(CONTROL, &[raw(0x21, b"a")]), false)],
                    Ends(Code::MISSING_SETTINGS, Why::MissingSettings),
                ),
                (
                    "9204 4.2 a second encoder stream",
                    &[(at(0), begins(ENCODER), false), (at(1), begins(ENCODER), false)],
                    CREATION,
                ),
                (
                    "9204 4.2 a second decoder stream",
                    &[(at(0), begins(DECODER), false), (at(1), begins(DECODER), false)],
                    CREATION,
                ),
                ("9204 4.2 the encoder stream ends", &[(at(0), begins(ENCODER), true)], CLOSED),
                ("9204 4.2 the decoder stream ends", &[(at(0), begins(DECODER), true)], CLOSED),
            ],
        );
        // Unknown types are not read, and stopped.
        let (result, end) = run(role, &[(at(0), uni(0x40, &[vec![1, 2, 3]]), false)], 1);
        assert_eq!(result, Passes);
        assert_eq!(end.seen.events, [Event::Stop(at(0), Code::STREAM_CREATION_ERROR)]);
        assert_eq!(end.seen.counters.streams_ignored, 1);
    }
}

#[test]
fn section_6_2_1_streams_that_have_to_stay_open() {
    for (kind, nth) in [(CONTROL, 0), (ENCODER, 1), (DECODER, 2)] {
        let mut end = End::new(Role::Server);
        end.receive(peer_uni(Role::Server, nth), &uni(kind, &[]), false).map(|_| ()).unwrap();
        let error = end.peer_reset(peer_uni(Role::Server, nth), Code::NO_ERROR).unwrap_err();
        assert_eq!((error.code, error.why), (Code::CLOSED_CRITICAL_STREAM, Why::ClosedCritical));
    }
    // Before its type has come, a stream may be reset.
    let mut end = End::new(Role::Server);
    assert_eq!(end.receive(2, &[0x40], false), Ok(Progress::Taken));
    assert_eq!(end.peer_reset(2, Code::NO_ERROR), Ok(()));
    assert!(end.seen.events.is_empty());
    // The peer must not ask for an end either.
    let End { connection, seen, .. } = &mut end;
    assert_eq!(connection.own_stopped(seen).code, Code::CLOSED_CRITICAL_STREAM);
    assert!(end.connection.is_over());
}

#[test]
fn section_7_1_lengths_of_frames() {
    let server = Role::Server;
    let kinds = [GOAWAY, MAX_PUSH_ID, CANCEL_PUSH];
    for kind in kinds {
        for payload in [&b""[..], b"\0\0", b"\x40", b"\0\0\0\0", b"\x40\0\0\0", &[0; 9]] {
            let name = format!("7.1 frame {kind} with {payload:x?}");
            check(&name, server, &[control(server, &[raw(kind, payload)])], SIZE);
        }
    }
    // The longer forms of an integer are allowed (RFC 9000 section 16).
    check("8 octets", server, &[control(server, &[raw(GOAWAY, b"\xc0\0\0\0\0\0\0\0")])], Passes);
    let settings = |payload| [(2, uni(CONTROL, &[raw(SETTINGS, payload)]), false)];
    check("7.1 a setting without a value", server, &settings(b"\x06"), SIZE);
    check("7.1 half of a value", server, &settings(b"\x06\x40"), SIZE);
    for (name, octets) in [
        ("7.1 the end in a type", vec![0x40]),
        ("7.1 the end before a length", vec![0]),
        ("7.1 the end in a length", vec![0, 0x40]),
        ("7.1 the end in a payload", vec![0, 2, b'a']),
    ] {
        check(name, server, &[request(&[headers(&POST), octets])], SIZE);
    }
    check("7.1 the end in a head", server, &[request(&[vec![1, 40, 0, 0]])], SIZE);
}

#[test]
fn section_7_2_frames_on_the_wrong_stream() {
    for role in [Role::Client, Role::Server] {
        let head = if role == Role::Client { headers(&OK) } else { headers(&POST) };
        for kind in [DATA, HEADERS, PUSH_PROMISE, 0x2, 0x6, 0x8, 0x9, SETTINGS] {
            let name = format!("frame {kind} on the control stream");
            check(&name, role, &[control(role, &[raw(kind, b"\0\0")])], UNEXPECTED);
        }
        for kind in [CANCEL_PUSH, SETTINGS, GOAWAY, MAX_PUSH_ID, 0x2, 0x6, 0x8, 0x9] {
            let name = format!("frame {kind} on a request");
            check(&name, role, &[open(&[head.clone(), raw(kind, b"\0")])], UNEXPECTED);
            check(&name, role, &[open(&[raw(kind, b"\0")])], UNEXPECTED);
        }
        // Section 7.2.8, and PRIORITY_UPDATE (RFC 9218 section 7.2).
        let ignored = [raw(0x21, b"abc"), raw(0xf0700, b"\0u=1"), raw(0x3fff_ffff, b"a")];
        let (result, end) = run(role, &[control(role, &ignored)], 1);
        assert_eq!(result, Passes);
        let counters = end.seen.counters;
        assert_eq!((counters.frames_ignored, counters.priorities_ignored), (2, 1));
    }
    let client = Role::Client;
    let steps = [control(client, &[number(MAX_PUSH_ID, 3)])];
    check("7.2.7 MAX_PUSH_ID to a client", client, &steps, UNEXPECTED);
}

#[test]
fn sections_7_2_3_and_7_2_7_numbers_of_pushes() {
    for role in [Role::Client, Role::Server] {
        let steps = [control(role, &[number(CANCEL_PUSH, 0)])];
        check("7.2.3 no push to cancel", role, &steps, ID);
    }
    let of = |numbers: &[u64]| {
        let frames: Vec<_> = numbers.iter().map(|n| number(MAX_PUSH_ID, *n)).collect();
        [control(Role::Server, &frames)]
    };
    check("7.2.7 a number that rises", Role::Server, &of(&[3, 3, 4]), Passes);
    check("7.2.7 a number that falls", Role::Server, &of(&[3, 2]), ID);
}

#[test]
fn section_7_2_4_settings() {
    for role in [Role::Client, Role::Server] {
        let of =
            |list: &[(u64, u64)]| [(peer_uni(role, 0), uni(CONTROL, &[settings(list)]), false)];
        for reserved in [0x0, 0x2, 0x3, 0x4, 0x5] {
            let name = format!("setting {reserved} of HTTP/2");
            check(&name, role, &of(&[(0x6, 1), (reserved, 1)]), SETTING);
        }
        check("a number twice", role, &of(&[(0x6, 1), (0x6, 1)]), SETTING);
        check("8441 3: a value of 2", role, &of(&[(0x8, 2)]), SETTING);
        check("9297 2.1.1: a value of 2", role, &of(&[(0x33, 2)]), SETTING);
        let reserved = [(0x21, 0), (0x1f * 100 + 0x21, 1 << 60), (0x8, 1), (0x33, 1)];
        let (result, end) = run(role, &of(&reserved), 1);
        assert_eq!((result, end.seen.counters.settings_ignored), (Passes, 3));
        assert!(end.connection.peer().connect_protocol);
    }
}

#[test]
fn rfc_9204_sections_2_and_4_errors_of_qpack() {
    let server = Role::Server;
    let failed = Ends(Code::QPACK_DECOMPRESSION_FAILED, Why::Compression);
    let encoder = Ends(Code::QPACK_ENCODER_STREAM_ERROR, Why::Instruction);
    let decoder = Ends(Code::QPACK_DECODER_STREAM_ERROR, Why::Instruction);
    all(
        server,
        &[
            ("an empty section", &[open(&[raw(HEADERS, b"")])], failed),
            ("an entry that no table has", &[open(&[raw(HEADERS, b"\0\0\xff\x24")])], failed),
            ("a required insertion without a table", &[open(&[raw(HEADERS, b"\x02\0")])], failed),
            (
                "4.3.1 a table that was not allowed",
                &[(2, uni(ENCODER, &[vec![0x21]]), false)],
                encoder,
            ),
            ("4.3.1 a table of no octets", &[(2, uni(ENCODER, &[vec![0x20]]), false)], Passes),
            (
                "4.3.2 an entry without a table",
                &[(2, uni(ENCODER, &[vec![0xc0, 0]]), false)],
                encoder,
            ),
            ("4.4.1 of no section", &[(2, uni(DECODER, &[vec![0x80]]), false)], decoder),
            ("4.4.2 of any stream", &[(2, uni(DECODER, &[vec![0x40]]), false)], Passes),
            ("4.4.3 by nothing", &[(2, uni(DECODER, &[vec![0]]), false)], decoder),
            ("4.4.3 of no insertion", &[(2, uni(DECODER, &[vec![1]]), false)], decoder),
        ],
    );
}
