//! Programs over streams of HTTP/2, over two stacks, in virtual time.

use squall_apps::{
    Check, Delay, Http2, Http2Counts, Program, ProgramId, ProtocolError, Role, Tls, TlsSettings,
    builtin::{HttpClient, WebSocketClient, http_server, websocket_server},
};
use squall_tcp::{FlowKind, Reason};
use squall_units::{Nanos, mix};

use crate::common::{
    Pair, secs,
    streams::{checked, errors, http, program, slow},
};

/// A pair of programs. `http2`, `tls`: the settings of each side.
fn pair(
    programs: (Program, Program),
    http2: [Option<Http2>; 2],
    tls: [Option<&TlsSettings>; 2],
) -> Pair {
    let mut pair = Pair::new(1, &[programs]);
    for side in [0, 1] {
        let apps = &mut pair.stacks[side].app_mut().apps;
        let program = ProgramId(side as u16);
        if let Some(settings) = tls[side] {
            apps.secure(program, &Tls::new(settings).expect("right settings"));
        }
        if let Some(settings) = http2[side] {
            apps.over_http2(program, &settings);
        }
    }
    pair
}

/// Both sides with these settings, without TLS.
fn both(programs: (Program, Program), http2: Http2) -> Pair {
    pair(programs, [Some(http2); 2], [None; 2])
}

fn figures(pair: &Pair, side: usize) -> Http2Counts {
    pair.stacks[side].app().apps.http2_counts(ProgramId(side as u16)).expect("it is over HTTP/2")
}

/// Runs a flow in which nothing goes wrong, with this number of streams.
fn run_well(pair: &mut Pair, streams: u64) -> u16 {
    let port = pair.begin(0, FlowKind::Tcp);
    pair.run(secs(1000));
    for side in [0, 1] {
        let counts = pair.counts(side);
        assert_eq!(counts.protocol_errors, [0; ProtocolError::COUNT], "{side}: {counts:?}");
        assert_eq!((counts.established, counts.finished, counts.gone), (1, 1, 1), "{counts:?}");
        assert_eq!(counts.statuses[2], streams, "{side}");
        let figures = figures(pair, side);
        assert_eq!((figures.connections, figures.streams), (1, streams), "{side}");
        assert_eq!((figures.heads_sent, figures.heads_received), (streams, streams), "{side}");
        assert!(figures.violations.is_empty() && figures.resets_sent.is_empty(), "{figures:?}");
    }
    assert_eq!(pair.counts(0).received, pair.counts(1).sent, "octets of all frames are counted");
    assert_eq!(pair.counts(1).received, pair.counts(0).sent);
    assert_eq!(pair.stacks[0].app().ended, [(port, Reason::Closed)]);
    pair.assert_nothing_left();
    port
}

#[test]
fn each_request_is_a_stream_and_fields_are_compressed() {
    let client = HttpClient { requests: 3, ..HttpClient::default() };
    let mut pair = both(http(&client, 100_000), Http2::default());
    let port = run_well(&mut pair, 3);
    assert!(pair.received(1, port).starts_with(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
    assert_eq!((pair.counts(0).requested, pair.counts(0).transactions), (3, 3));
    assert_eq!(pair.stacks[0].app().apps.requests(ProgramId(0)), Some(3));
    let sent = figures(&pair, 0);
    assert!(sent.compressed_octets_sent * 2 < sent.head_octets_sent, "{sent:?}");
    assert_eq!(sent.head_octets_sent, figures(&pair, 1).head_octets_received);
    assert_eq!(sent.compressed_octets_sent, figures(&pair, 1).compressed_octets_received);
}

#[test]
fn lanes_share_a_connection_and_its_windows_under_loss() {
    let client = HttpClient { requests: 3, post: Some(200_000), ..HttpClient::default() };
    let settings = Http2 { streams: 4, window: 10_000, ..Http2::default() };
    let mut pair = both(http(&client, 300_000), settings);
    pair.loss = 20;
    assert_eq!(pair.stacks[0].app().apps.requests(ProgramId(0)), Some(12));
    run_well(&mut pair, 12);
}

#[test]
fn requests_of_all_streams_are_early_data_if_the_protocol_is_known() {
    for fallback in [false, true] {
        let alpn = if fallback { &["h2", "http/1.1"][..] } else { &["h2"] };
        let settings = TlsSettings {
            resumption: true,
            alpn: alpn.iter().map(ToString::to_string).collect(),
            ..TlsSettings::default()
        };
        let early = || {
            let mut tls = Tls::new(&settings).expect("right settings");
            tls.enable_early_data().expect("TLS 1.3");
            tls
        };
        let client = HttpClient { requests: 2, ..HttpClient::default() };
        let http2 = Http2 { streams: 3, fallback, ..Http2::default() };
        let mut pair = Pair::new(1, &[http(&client, 10_000)]);
        let tls = early();
        for side in [0, 1] {
            let apps = &mut pair.stacks[side].app_mut().apps;
            apps.secure(ProgramId(side as u16), &tls);
            apps.over_http2(ProgramId(side as u16), &http2);
        }
        for flow in 1..=3 {
            if flow == 3 {
                // A server that has forgotten the session.
                pair.stacks[1].app_mut().apps.secure(ProgramId(1), &early());
            }
            pair.begin(0, FlowKind::Tcp);
            pair.run(secs(flow * 100));
        }
        let counts = [0, 1].map(|side| pair.counts(side));
        let found = counts.map(|of| (of.early_accepted[0], of.early_refused[0]));
        let early = u64::from(!fallback);
        assert_eq!(found, [(early, early), (early, 0)], "{counts:?}");
        assert_eq!(counts.map(|of| of.statuses[2]), [18; 2], "{counts:?}");
        assert_eq!(counts.map(|of| of.protocol_errors), [[0; ProtocolError::COUNT]; 2]);
        assert_eq!(figures(&pair, 1).streams, 18);
        // A server that refuses the protocol.
        let other = TlsSettings { alpn: vec!["http/1.0".into()], ..TlsSettings::default() };
        let tls = Tls::new(&other).expect("right settings");
        pair.stacks[1].app_mut().apps.secure(ProgramId(1), &tls);
        pair.begin(0, FlowKind::Tcp);
        pair.run(secs(400));
        assert_eq!(errors(&pair, 0, ProtocolError::TlsAlert), 1, "{:?}", pair.counts(0));
        pair.assert_nothing_left();
    }
}

#[test]
fn a_client_has_no_more_streams_than_the_server_allows() {
    let client = HttpClient { requests: 5, ..HttpClient::default() };
    let of = |streams, max_streams| Http2 { streams, max_streams, ..Http2::default() };
    // Requests after the first wait for the server's settings.
    let mut pair = pair(http(&client, 50_000), [Some(of(8, 100)), Some(of(1, 2))], [None; 2]);
    run_well(&mut pair, 40);
}

#[test]
fn a_server_refuses_more_streams_than_it_allows_and_counts_each_reset() {
    let answer = r#"send "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok""#;
    let server = program(Role::Server, &[r#"recv_until "\r\n\r\n""#, "delay 1 s", answer]);
    let mut frames = [&PREFACE[..], &frame(4, 0, 0, &[])].concat();
    for stream in [1, 3, 5] {
        frames.extend(frame(1, 5, stream, GET));
    }
    // A later request has no path.
    let malformed = frame(1, 5, 7, &GET[..2]);
    let client = Program::client("c")
        .send_octets(frames)
        .delay("5 s")
        .send_octets(malformed)
        .close()
        .wait_peer_close();
    let settings = Http2 { max_streams: 2, ..Http2::default() };
    let client = client.build().expect("right");
    let mut pair = pair((client, server), [None, Some(settings)], [None; 2]);
    pair.begin(0, FlowKind::Tcp);
    pair.run(secs(1000));
    let server = figures(&pair, 1);
    assert_eq!((server.streams, server.heads_sent), (2, 2), "{server:?}");
    let expected = [("malformed", 1), ("too_many_streams", 1)];
    assert_eq!(server.violations, expected.into(), "{server:?}");
    let expected = [("PROTOCOL_ERROR", 1), ("REFUSED_STREAM", 1)];
    assert_eq!(server.resets_sent, expected.into(), "{server:?}");
    pair.assert_nothing_left();
}

#[test]
fn runs_of_a_server_end_with_their_streams() {
    let server = [
        "loop forever",
        r#"recv_until "\r\n\r\n""#,
        r#"send "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok""#,
        "delay 1000 s",
        "end",
    ];
    let client = HttpClient { requests: 50, ..HttpClient::default() };
    let client = client.program("p").expect("right");
    let mut pair = both((client, program(Role::Server, &server)), Http2::default());
    pair.begin(0, FlowKind::Tcp);
    pair.run(secs(100));
    assert_eq!((pair.counts(0).finished, pair.counts(1).finished), (1, 1));
    pair.assert_nothing_left();
}

#[test]
fn answers_are_evaluated_as_those_of_http1() {
    let mut good = both(checked(), Http2::default());
    let port = good.begin(0, FlowKind::Tcp);
    good.run(secs(1000));
    assert_eq!((good.counts(0).finished, good.counts(1).finished), (1, 1), "{:?}", good.counts(0));
    assert_eq!(good.counts(0).statuses[2], 2);
    assert!(!good.received(1, port).is_empty());
    good.assert_nothing_left();

    let client = HttpClient { checks: vec![Check::Status(201)], ..HttpClient::default() };
    let mut failed = both(http(&client, 10), Http2 { streams: 2, ..Http2::default() });
    failed.begin(0, FlowKind::Tcp);
    failed.run(secs(1000));
    assert_eq!(errors(&failed, 0, ProtocolError::CheckStatus), 1, "one lane ends the flow");
    assert_eq!((failed.counts(0).finished, failed.counts(0).gone), (0, 1));
    failed.assert_nothing_left();
}

#[test]
fn each_lane_has_a_timer_of_its_own() {
    let settings = Http2 { streams: 3, ..Http2::default() };
    for (wait, answered) in [("uniform 10 ms 900 ms", true), ("3 s", false)] {
        let within = Some(Nanos(1_000_000_000));
        let client = HttpClient { requests: 4, within, ..HttpClient::default() };
        let client = client.program("p").expect("right");
        let mut pair = both((client, slow(wait)), settings);
        pair.begin(0, FlowKind::Tcp);
        pair.run(secs(1000));
        assert_eq!(pair.counts(0).finished, u64::from(answered), "{wait}: {:?}", pair.counts(0));
        assert_eq!(errors(&pair, 0, ProtocolError::NoAnswer), u64::from(!answered));
        pair.assert_nothing_left();
    }
}

#[test]
fn http2_is_agreed_on_inside_of_tls() {
    let of = |names: &[&str]| TlsSettings {
        alpn: names.iter().map(|&name| name.into()).collect(),
        ..TlsSettings::default()
    };
    let client = HttpClient { requests: 3, post: Some(50_000), ..HttpClient::default() };
    let settings = Http2 { streams: 2, ..Http2::default() };
    let h2 = of(&["h2"]);
    let mut agreed = pair(http(&client, 200_000), [Some(settings); 2], [Some(&h2); 2]);
    agreed.loss = 10;
    run_well(&mut agreed, 6);
    assert_eq!((agreed.counts(0).secured, agreed.counts(1).secured), (1, 1));

    // A server that does not know of ALPN.
    let none = of(&[]);
    let programs = http(&client, 10);
    let mut refused = pair(programs, [Some(settings), None], [Some(&h2), Some(&none)]);
    refused.begin(0, FlowKind::Tcp);
    refused.run(secs(1000));
    assert_eq!(errors(&refused, 0, ProtocolError::TlsIncompatible), 1, "{:?}", refused.counts(0));
    assert_eq!((refused.counts(0).insecure, refused.counts(0).finished), (1, 0));
    refused.assert_nothing_left();
}

#[test]
fn without_an_agreement_on_http2_all_requests_follow_one_another_over_http1() {
    let of = |names: &[&str]| TlsSettings {
        alpn: names.iter().map(|&name| name.into()).collect(),
        ..TlsSettings::default()
    };
    let (both, old, none) = (of(&["h2", "http/1.1"]), of(&["http/1.1"]), of(&[]));
    let settings = Http2 { streams: 3, fallback: true, ..Http2::default() };
    let client = HttpClient { requests: 2, post: Some(50_000), ..HttpClient::default() };
    // (The settings and the protocols of client and server, connections of HTTP/1.1, requests.)
    for (http2, [a, b], fallbacks, requests) in [
        ([Some(settings), None], [&both, &old], [1, 0], 6),
        ([Some(settings), None], [&both, &none], [1, 0], 6),
        ([None, Some(settings)], [&old, &both], [0, 1], 2),
        ([Some(settings); 2], [&none, &none], [1, 1], 6),
        ([Some(settings); 2], [&both, &both], [0, 0], 6),
    ] {
        let mut pair = pair(http(&client, 200_000), http2, [Some(a), Some(b)]);
        pair.loss = 10;
        pair.begin(0, FlowKind::Tcp);
        pair.run(secs(1000));
        for side in [0, 1] {
            let counts = pair.counts(side);
            assert_eq!(counts.protocol_errors, [0; ProtocolError::COUNT], "{counts:?}");
            assert_eq!((counts.finished, counts.gone), (1, 1), "{counts:?}");
            assert_eq!(counts.statuses[2], requests, "{fallbacks:?}");
            if http2[side].is_some() {
                let figures = figures(&pair, side);
                let found = (figures.fallbacks, figures.connections);
                assert_eq!(found, (fallbacks[side], 1 - fallbacks[side]), "side {side}");
            }
        }
        assert_eq!(pair.counts(0).sent, pair.counts(1).received, "{fallbacks:?}");
        assert_eq!(pair.counts(1).sent, pair.counts(0).received, "{fallbacks:?}");
        pair.assert_nothing_left();
    }

    // A server that closes after the requests of the first stream.
    let closes = [
        r#"recv_until "\r\n\r\n""#,
        r#"send "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok""#,
    ];
    let client = HttpClient::default().program("c").expect("right");
    let programs = (client, program(Role::Server, &closes));
    let mut closed = pair(programs, [Some(settings), None], [Some(&both), Some(&old)]);
    closed.begin(0, FlowKind::Tcp);
    closed.run(secs(1000));
    assert_eq!(all_errors(&closed), 1, "{:?}", closed.counts(0));
    assert_eq!((closed.counts(0).statuses[2], closed.counts(0).finished), (1, 0));
    closed.assert_nothing_left();
}

#[test]
fn websocket_falls_back_to_the_handshake_of_http1() {
    let alpn = vec!["http/1.1".into()];
    let old = TlsSettings { alpn, ..TlsSettings::default() };
    let settings = Http2 { fallback: true, ..Http2::default() };
    let client = WebSocketClient { messages: 3, size: 70_000, ..WebSocketClient::default() };
    let programs = (client.program("c").expect("right"), websocket_server("s").expect("right"));
    let mut pair = pair(programs, [Some(settings); 2], [Some(&old); 2]);
    pair.begin(0, FlowKind::Tcp);
    pair.run(secs(1000));
    for side in [0, 1] {
        let counts = pair.counts(side);
        assert_eq!(counts.protocol_errors, [0; ProtocolError::COUNT], "{counts:?}");
        assert_eq!((counts.finished, counts.statuses[1]), (1, 1), "{counts:?}");
        assert_eq!(figures(&pair, side).fallbacks, 1);
    }
    assert_eq!(pair.counts(0).transactions, 3, "round trips");
    pair.assert_nothing_left();
}

#[test]
fn a_peer_that_speaks_http1_is_counted_and_ended() {
    let client = HttpClient::default();
    let mut pair = pair(http(&client, 10), [None, Some(Http2::default())], [None; 2]);
    pair.begin(0, FlowKind::Tcp);
    pair.run(secs(1000));
    assert_eq!(errors(&pair, 1, ProtocolError::Http2), 1, "{:?}", pair.counts(1));
    assert_eq!(figures(&pair, 1).violations.get("preface"), Some(&1));
    assert_eq!((pair.counts(1).finished, pair.counts(1).gone), (0, 1));
    pair.assert_nothing_left();
}

#[test]
fn a_stream_that_the_server_resets_ends_the_flow_with_its_code() {
    // SETTINGS without values, then RST_STREAM of stream 1 (RFC 9113 section 6.4).
    let settings = r#"send "\x00\x00\x00\x04\x00\x00\x00\x00\x00""#;
    let reset = r#"send "\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x08""#;
    let server = program(Role::Server, &["recv 80", settings, reset, "wait_peer_close"]);
    let client = HttpClient::default().program("p").expect("right");
    let mut pair = pair((client, server), [Some(Http2::default()), None], [None; 2]);
    pair.begin(0, FlowKind::Tcp);
    pair.run(secs(1000));
    assert_eq!(errors(&pair, 0, ProtocolError::StreamReset), 1, "{:?}", pair.counts(0));
    assert_eq!(figures(&pair, 0).resets_received.get("CANCEL"), Some(&1));
    assert_eq!((pair.counts(0).finished, pair.counts(0).gone), (0, 1));
    pair.assert_nothing_left();
}

#[test]
fn an_answer_of_unknown_length_and_head_requests_have_their_framing() {
    let lines = [r#"recv_until "\r\n\r\n""#, r#"send "HTTP/1.1 200 OK\r\n\r\n""#];
    let client = HttpClient { method: Some("HEAD".into()), requests: 3, ..HttpClient::default() };
    let mut heads = both(http(&client, 4_000), Http2::default());
    run_well(&mut heads, 3);
    let client = HttpClient { checks: vec![Check::Length(0)], ..HttpClient::default() };
    let client = client.program("p").expect("right");
    let mut empty = both((client, program(Role::Server, &lines)), Http2::default());
    empty.begin(0, FlowKind::Tcp);
    empty.run(secs(1000));
    assert_eq!(empty.counts(0).finished, 1, "{:?}", empty.counts(0));
    empty.assert_nothing_left();
}

/// A frame (RFC 9113 section 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u32).to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The block of GET http://a/ (RFC 7541 section 6).
const GET: &[u8] = &[0x82, 0x86, 0x84, 0x41, 1, b'a'];
/// The block of an answer with status 200.
const OK: &[u8] = &[0x88];

/// A field as a literal.
fn field(name: &str, value: &str) -> Vec<u8> {
    let len = |text: &str| [text.len() as u8];
    [&[0], &len(name)[..], name.as_bytes(), &len(value)[..], value.as_bytes()].concat()
}

/// Runs a client's flow to a server that sends settings and then these frames.
fn against(client: Program, frames: &[Vec<u8>]) -> (Pair, u16) {
    let octets = [frame(4, 0, 0, &[]), frames.concat()].concat();
    let server = Program::server("s").recv(80).send_octets(octets).wait_peer_close();
    let programs = (client, server.build().expect("right"));
    let mut pair = pair(programs, [Some(Http2::default()), None], [None; 2]);
    let port = pair.begin(0, FlowKind::Tcp);
    (pair, port)
}

fn all_errors(pair: &Pair) -> u64 {
    pair.counts(0).protocol_errors.iter().sum()
}

#[test]
fn an_answer_without_the_content_that_it_announces_ends_the_flow() {
    let head = |flags| frame(1, flags, 1, &[OK, &field("content-length", "5")].concat());
    for frames in [
        vec![head(5)],
        vec![head(4), frame(0, 1, 1, &[])],
        vec![head(4), frame(1, 5, 1, &field("x", "y"))],
    ] {
        let client = HttpClient::default().program("p").expect("right");
        let (mut pair, _) = against(client, &frames);
        pair.run(secs(1000));
        assert_eq!(errors(&pair, 0, ProtocolError::Http2), 1, "{frames:?}: {:?}", pair.counts(0));
        assert_eq!(figures(&pair, 0).violations.get("malformed"), Some(&1));
        assert_eq!((pair.counts(0).finished, pair.counts(0).gone), (0, 1));
        pair.assert_nothing_left();
    }
}

#[test]
fn a_reset_ends_the_flow_of_a_program_that_has_finished() {
    // The window lets only the beginning of the request leave.
    let request = "POST / HTTP/1.1\\r\\nHost: a\\r\\nContent-Length: 200000\\r\\n\\r\\n";
    let line = format!("send \"{request}${{repeat:200000:x}}\"");
    let client = program(Role::Client, &[&line]);
    let (mut pair, _) = against(client, &[frame(3, 0, 1, &[0, 0, 0, 8])]);
    pair.run(secs(1000));
    assert_eq!(errors(&pair, 0, ProtocolError::StreamReset), 1, "{:?}", pair.counts(0));
    assert_eq!((pair.counts(0).finished, pair.counts(0).gone), (0, 1));
    pair.assert_nothing_left();
}

#[test]
fn interim_answers_content_of_unknown_length_and_trailers_are_understood() {
    let client = HttpClient {
        checks: vec![Check::Status(200), Check::Regex("^hello$".into())],
        ..HttpClient::default()
    };
    let client = client.program("p").expect("right");
    let frames = [
        frame(1, 4, 1, &field(":status", "103")),
        frame(1, 4, 1, OK),
        frame(0, 0, 1, b"hel"),
        frame(0, 0, 1, b"lo"),
        frame(1, 5, 1, &field("x", "y")),
    ];
    let (mut pair, _) = against(client, &frames);
    pair.run(secs(1000));
    assert_eq!((pair.counts(0).finished, all_errors(&pair)), (1, 0), "{:?}", pair.counts(0));
    pair.assert_nothing_left();
}

#[test]
fn interim_answers_that_no_program_takes_use_little_memory() {
    let request = r#"send "GET / HTTP/1.1\r\nHost: a\r\n\r\n""#;
    let client = program(Role::Client, &[request, "delay 100 s", "http_response"]);
    let interim = [field(":status", "103"), field("link", &"x".repeat(100))].concat();
    let mut frames = vec![frame(1, 4, 1, &interim); 8_000];
    frames.push(frame(1, 5, 1, OK));
    let (mut pair, _) = against(client, &frames);
    pair.run(secs(50));
    let memory = pair.stacks[0].app().apps.memory();
    assert!(memory < 400_000, "{memory} octets");
    assert_eq!(figures(&pair, 0).heads_received, 8_001);
    pair.run(secs(1000));
    assert_eq!((pair.counts(0).finished, all_errors(&pair)), (1, 0), "{:?}", pair.counts(0));
    pair.assert_nothing_left();
}

/// A client's flow with these settings to a server that sends each list of frames after a second.
fn in_steps(client: Program, settings: Http2, steps: &[Vec<Vec<u8>>]) -> Pair {
    let mut server = Program::server("s").recv(80).send_octets(frame(4, 0, 0, &[]));
    for frames in steps {
        server = server.delay("1 s").send_octets(frames.concat());
    }
    let programs = (client, server.wait_peer_close().build().expect("right"));
    let mut pair = pair(programs, [Some(settings), None], [None; 2]);
    pair.begin(0, FlowKind::Tcp);
    pair.run(secs(1000));
    pair.assert_nothing_left();
    pair
}

#[test]
fn requests_of_refused_streams_are_sent_again() {
    // REFUSED_STREAM.
    let refusal = |stream| frame(3, 0, stream, &[0, 0, 0, 7]);
    let client = HttpClient { post: Some(100_000), ..HttpClient::default() };
    let client = client.program("p").expect("right");
    let steps = [vec![refusal(1)], vec![refusal(3)], vec![frame(1, 5, 5, OK)]];
    let pair = in_steps(client.clone(), Http2::default(), &steps);
    let counts = pair.counts(0);
    assert_eq!((counts.finished, all_errors(&pair), counts.statuses[2]), (1, 0, 1), "{counts:?}");
    assert_eq!((counts.requested, counts.transactions), (1, 1));
    let found = figures(&pair, 0);
    assert_eq!((found.streams, found.repeated), (3, 2), "{found:?}");
    assert_eq!(found.resets_received, [("REFUSED_STREAM", 2)].into());

    // Two lanes: the refused one waits until the other has its answer.
    let settings = Http2 { streams: 2, ..Http2::default() };
    let steps = [vec![refusal(3)], vec![frame(1, 5, 1, OK)], vec![frame(1, 5, 5, OK)]];
    let pair = in_steps(client.clone(), settings, &steps);
    assert_eq!((pair.counts(0).finished, all_errors(&pair)), (1, 0), "{:?}", pair.counts(0));

    // A server that refuses everything.
    let steps: Vec<_> = (0..10).map(|k| vec![refusal(2 * k + 1)]).collect();
    let pair = in_steps(client.clone(), Http2::default(), &steps);
    assert_eq!(errors(&pair, 0, ProtocolError::StreamReset), 1, "{:?}", pair.counts(0));
    assert_eq!((figures(&pair, 0).repeated, figures(&pair, 0).streams), (5, 6));

    // After the beginning of an answer.
    let steps = [vec![frame(1, 4, 1, OK)], vec![refusal(1)]];
    let pair = in_steps(client, Http2::default(), &steps);
    assert_eq!(errors(&pair, 0, ProtocolError::StreamReset), 1, "{:?}", pair.counts(0));
    assert_eq!(figures(&pair, 0).repeated, 0);
}

#[test]
fn after_a_goaway_the_other_streams_get_their_answers() {
    let client = HttpClient::default().program("p").expect("right");
    let settings = Http2 { streams: 2, ..Http2::default() };
    // Stream 1 is the last one that the server processes.
    let goaway = frame(7, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]);
    let pair = in_steps(client, settings, &[vec![goaway], vec![frame(1, 5, 1, OK)]]);
    assert_eq!(pair.counts(0).statuses[2], 1, "{:?}", pair.counts(0));
    assert_eq!((errors(&pair, 0, ProtocolError::ClosedEarly), all_errors(&pair)), (1, 1));
    let found = figures(&pair, 0);
    assert_eq!((found.left_out, found.repeated, found.streams), (1, 0, 2), "{found:?}");
}

#[test]
fn streams_that_a_goaway_leaves_out_are_counted_apart_from_resets() {
    let client = HttpClient::default().program("p").expect("right");
    let (mut pair, _) = against(client, &[frame(7, 0, 0, &[0; 8])]);
    pair.run(secs(1000));
    let client = figures(&pair, 0);
    assert_eq!((client.left_out, client.resets_received.len()), (1, 0), "{client:?}");
    assert_eq!(client.goaways_received, [("NO_ERROR", 1)].into());
    assert_eq!(errors(&pair, 0, ProtocolError::ClosedEarly), 1, "{:?}", pair.counts(0));
    pair.assert_nothing_left();
}

#[test]
fn a_flow_fails_once_and_says_goodbye() {
    // The answer is not the expected one, and a PING that is too short comes with it.
    let answer = [frame(1, 5, 1, OK), frame(6, 0, 0, &[0; 3])];
    let checks = vec![Check::Status(201)];
    let client = HttpClient { checks, ..HttpClient::default() }.program("p").expect("right");
    let (mut pair, _) = against(client, &answer);
    pair.run(secs(1000));
    assert_eq!(all_errors(&pair), 1, "{:?}", pair.counts(0));
    pair.assert_nothing_left();
    // Also of a program that has values of its own.
    let client = HttpClient { cookies: true, ..HttpClient::default() }.program("p").expect("right");
    let (mut pair, port) = against(client, &answer[1..]);
    pair.run(secs(1000));
    assert_eq!(errors(&pair, 0, ProtocolError::Http2), 1, "{:?}", pair.counts(0));
    let goaway = frame(7, 0, 0, &[0; 8]);
    let sent = pair.received(1, port);
    assert!(sent.windows(9).any(|header| header == &goaway[..9]), "{sent:?}");
    pair.assert_nothing_left();
}

#[test]
fn a_request_has_one_line_for_its_length_and_one_for_its_cookies() {
    let head = [
        &[0x83, 0x86, 0x84, 0x41, 1, b'a'][..],
        &field("content-length", "3"),
        &field("content-length", "3"),
        &field("cookie", "a=1"),
        &field("x", "y"),
        &field("cookie", "b=2"),
    ];
    let frames = [frame(4, 0, 0, &[]), frame(1, 4, 1, &head.concat()), frame(0, 1, 1, b"abc")];
    let octets = [&PREFACE[..], &frames.concat()].concat();
    let client = Program::client("c").send_octets(octets).close().wait_peer_close();
    let server = program(
        Role::Server,
        &[
            r#"recv_until "\r\ncontent-length: 3\r\ncookie: a=1; b=2\r\nx: y\r\n\r\n""#,
            "recv 3",
            r#"send "HTTP/1.1 204 No Content\r\n\r\n""#,
        ],
    );
    let programs = (client.build().expect("right"), server);
    let mut pair = pair(programs, [None, Some(Http2::default())], [None; 2]);
    pair.begin(0, FlowKind::Tcp);
    pair.run(secs(1000));
    assert_eq!(figures(&pair, 1).heads_sent, 1, "{:?}", pair.counts(1));
    pair.assert_nothing_left();
}

#[test]
fn a_get_whose_end_comes_in_a_frame_of_its_own_is_one_request() {
    let frames = [frame(4, 0, 0, &[]), frame(1, 4, 1, GET), frame(0, 1, 1, b"")];
    let octets = [&PREFACE[..], &frames.concat()].concat();
    let client = Program::client("c").send_octets(octets).delay("1 s").close().wait_peer_close();
    let server = program(
        Role::Server,
        &[
            "loop forever",
            r#"recv_until "\r\n\r\n""#,
            r#"send "HTTP/1.1 204 No Content\r\n\r\n""#,
            "end",
        ],
    );
    let programs = (client.build().expect("right"), server);
    let mut pair = pair(programs, [None, Some(Http2::default())], [None; 2]);
    pair.begin(0, FlowKind::Tcp);
    pair.run(secs(1000));
    assert_eq!(figures(&pair, 1).heads_sent, 1, "{:?}", pair.counts(1));
    assert_eq!(pair.counts(1).protocol_errors.iter().sum::<u64>(), 0, "{:?}", pair.counts(1));
    pair.assert_nothing_left();
}

/// Programs of WebSocket: messages that the server returns.
fn websocket(client: &WebSocketClient) -> (Program, Program) {
    (client.program("c").expect("right"), websocket_server("s").expect("right"))
}

#[test]
fn each_stream_carries_a_websocket() {
    for (size, streams, window, tls) in
        [(5, 1, 65_535, false), (200_000, 3, 65_535, true), (70_000, 2, 10_000, false)]
    {
        let settings = Http2 { streams, window, ..Http2::default() };
        let secure = TlsSettings { alpn: vec!["h2".into()], ..TlsSettings::default() };
        let secure = tls.then_some(&secure);
        let client =
            WebSocketClient { size, messages: 4, ping: true, ..WebSocketClient::default() };
        let mut pair = pair(websocket(&client), [Some(settings); 2], [secure; 2]);
        pair.loss = 10;
        run_well(&mut pair, streams.into());
        let all = 4 * u64::from(streams);
        assert_eq!(pair.counts(0).transactions, all, "round trips");
        for side in [0, 1] {
            let counted = &pair.counts(side).counted;
            // Messages in both directions, and closes with code 1000.
            assert_eq!((counted[0], counted[1], counted[5]), (all, all, streams.into()));
        }
    }
}

#[test]
fn a_websocket_over_a_stream_keeps_no_octets_that_have_left() {
    let pause = secs(1);
    let client = WebSocketClient { size: 20_000, messages: 100, pause, ..Default::default() };
    let mut pair = both(websocket(&client), Http2::default());
    pair.begin(0, FlowKind::Tcp);
    pair.run(secs(50));
    assert!(pair.counts(1).counted[0] > 40, "{:?}", pair.counts(1));
    let memory = pair.stacks[1].app().apps.memory();
    assert!(memory < 200_000, "{memory} octets");
    pair.run(secs(1000));
    assert_eq!((pair.counts(0).finished, pair.counts(1).finished), (1, 1));
    pair.assert_nothing_left();
}

#[test]
fn a_request_for_websocket_waits_for_a_server_that_allows_it() {
    let client = WebSocketClient::default().program("c").expect("right");
    // SETTINGS without ENABLE_CONNECT_PROTOCOL, after those of the client.
    let server = Program::server("s").recv(60).send_octets(frame(4, 0, 0, &[])).wait_peer_close();
    let programs = (client, server.build().expect("right"));
    let mut pair = pair(programs, [Some(Http2::default()), None], [None; 2]);
    pair.begin(0, FlowKind::Tcp);
    pair.run(secs(1000));
    assert_eq!(errors(&pair, 0, ProtocolError::BadWebsocket), 1, "{:?}", pair.counts(0));
    assert_eq!(figures(&pair, 0).streams, 0);
    pair.assert_nothing_left();
}

#[test]
fn a_server_of_websocket_answers_extended_connect_alone() {
    let request = |protocol: &str| {
        let fields = [
            &field(":method", "CONNECT")[..],
            // :scheme and :path.
            &[0x86, 0x84],
            &field(":authority", "a"),
            &field(":protocol", protocol),
            &field("sec-websocket-version", "13"),
        ];
        frame(1, 4, 1, &fields.concat())
    };
    // RFC 6455 section 5.7: "Hello", masked; a close with code 1001.
    let hello = frame(0, 0, 1, b"\x81\x857\xfa!=\x7f\x9fMQX");
    let close = frame(0, 1, 1, b"\x88\x82\0\0\0\0\x03\xe9");
    for (frames, answer, error) in [
        (vec![request("websocket"), hello, close], Some(&b"\x81\x05Hello"[..]), None),
        (vec![request("connect-udp")], None, Some(ProtocolError::BadHttp)),
        (vec![frame(1, 5, 1, GET)], None, Some(ProtocolError::BadHttp)),
    ] {
        let octets = [&PREFACE[..], &frame(4, 0, 0, &[]), &frames.concat()].concat();
        let client = Program::client("raw").send_octets(octets).delay("1 s").close();
        let client = client.wait_peer_close().build().expect("right");
        let programs = (client, websocket_server("s").expect("right"));
        let mut pair = pair(programs, [None, Some(Http2::default())], [None; 2]);
        let port = pair.begin(0, FlowKind::Tcp);
        pair.run(secs(1000));
        let received = pair.received(0, port).to_vec();
        let has = |octets: &[u8]| received.windows(octets.len()).any(|part| part == octets);
        assert!(has(&[0, 8, 0, 0, 0, 1]), "SETTINGS_ENABLE_CONNECT_PROTOCOL");
        // HEADERS without END_STREAM.
        assert_eq!(has(&[1, 4, 0, 0, 0, 1]), answer.is_some(), "{received:?}");
        if let Some(answer) = answer {
            assert!(has(&frame(0, 0, 1, answer)), "{received:?}");
            assert!(has(&frame(0, 0, 1, b"\x88\x02\x03\xe9")), "{received:?}");
            assert!(has(&frame(0, 1, 1, b"")), "the end of the stream: {received:?}");
        }
        let found: u64 = pair.counts(1).protocol_errors.iter().sum();
        assert_eq!(found, u64::from(error.is_some()), "{:?}", pair.counts(1));
        assert_eq!(error.map_or(1, |error| errors(&pair, 1, error)), 1);
        assert!(figures(&pair, 1).resets_sent.is_empty(), "{:?}", figures(&pair, 1));
        pair.assert_nothing_left();
    }
}

#[test]
fn nothing_is_left_of_the_flow_of_a_client_that_sends_any_frames() {
    let mut answered = 0;
    for seed in 0..300 {
        let mut drawn = 0;
        let mut draw = |below: u64| {
            drawn += 1;
            mix(seed, drawn) % below
        };
        let mut octets = PREFACE.to_vec();
        octets.extend(frame(4, 0, 0, &[]));
        let mut next = 1;
        for _ in 0..draw(20) + 1 {
            let stream = draw(8) as u32;
            let flags = draw(256) as u8;
            octets.extend(match draw(8) {
                // END_HEADERS, with END_STREAM or without.
                0..4 => {
                    next += 2;
                    frame(1, 4 | flags & 1, next - 2, GET)
                }
                4 => frame(0, flags & 1, stream, &[7; 9][..draw(9) as usize]),
                5 => frame(3, 0, stream, &[0, 0, 0, 8]),
                6 => frame(8, 0, stream, &(draw(1 << 31) as u32).to_be_bytes()),
                _ => frame(draw(11) as u8, flags, stream, &[1; 20][..draw(20) as usize]),
            });
        }
        let client = Program::client("c").send_octets(octets).close().wait_peer_close();
        let programs = (client.build().expect("right"), http_server("s", 100_000).expect("right"));
        let mut pair = pair(programs, [None, Some(Http2::default())], [None; 2]);
        pair.begin(0, FlowKind::Tcp);
        pair.run(secs(1000));
        pair.assert_nothing_left();
        assert_eq!(pair.counts(1).gone, 1, "{seed}");
        answered += pair.counts(1).statuses[2];
    }
    assert!(answered > 100, "{answered} requests were answered");
}

#[test]
fn an_idle_connection_takes_little_memory() {
    const CONNECTIONS: usize = 200;
    let think = Some(Delay::Fixed(secs(100)));
    let client = HttpClient { requests: 2, think, ..HttpClient::default() };
    let mut pair = both(http(&client, 50_000), Http2::default());
    let before = [0, 1].map(|side: usize| pair.stacks[side].app().apps.memory());
    for _ in 0..CONNECTIONS {
        pair.begin(0, FlowKind::Tcp);
    }
    pair.run(secs(50));
    for side in [0, 1] {
        assert_eq!(figures(&pair, side).streams, CONNECTIONS as u64, "half of the requests");
        let each = (pair.stacks[side].app().apps.memory() - before[side]) / CONNECTIONS;
        assert!(each < 4_800, "{each} octets on side {side}");
    }
    pair.run(secs(1000));
    pair.assert_nothing_left();
}
