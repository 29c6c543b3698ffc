//! WebSocket over two stacks, with TLS and without, in virtual time.

use std::collections::BTreeMap;

use squall_apps::{
    Data, DataOrder, Listener, Message, Program, ProgramBuilder, ProgramId, ProtocolError, Role,
    Tls, TlsSettings, Transport,
    builtin::{WebSocketClient, websocket_push_server, websocket_server},
};
use squall_tcp::{ClassId, FlowKind, Reason};
use squall_units::Nanos;

use crate::common::{Pair, SERVER, secs};

/// The numbers of the counters of WebSocket.
const SENT: usize = 0;
const RECEIVED: usize = 1;
const PINGS_RECEIVED: usize = 3;
const PONGS_RECEIVED: usize = 4;
const CLOSE_1000: usize = 5;
const CLOSE_1001: usize = 6;
const CLOSE_1002: usize = 7;
const CLOSE_1007: usize = 8;
const CLOSE_1009: usize = 9;
const SKIPPED: usize = 12;

fn counted(pair: &Pair, side: usize, counter: usize) -> u64 {
    pair.counts(side).counted.get(counter).copied().unwrap_or(0)
}

fn build(builder: ProgramBuilder) -> Program {
    builder.build().expect("a right program")
}

/// A server that returns messages, and a client without a library, which sends these octets.
fn raw(octets: &str) -> Pair {
    let client = Program::client("raw").send(octets).wait_peer_close();
    Pair::new(1, &[(build(client), websocket_server("echo").expect("right"))])
}

/// A client's program, and a server without a library, which sends the answer to its request
/// together with `first`, and then what `then` adds.
fn raw_server(
    client: &Program,
    first: &[u8],
    then: impl FnOnce(ProgramBuilder) -> ProgramBuilder,
) -> Pair {
    // The same flow has the same key again: a server with a library finds the answer to it.
    let echo = websocket_server("echo").expect("right");
    let mut pair = Pair::new(1, &[(client.clone(), echo)]);
    let port = pair.begin(0, FlowKind::Tcp);
    pair.run(secs(100));
    let received = pair.received(0, port);
    let answer = &received[..end_of_head(received)];
    let server = Program::server("raw").recv_until("\\r\\n\\r\\n");
    let server = then(server.send_octets([answer, first].concat())).wait_peer_close();
    Pair::new(1, &[(client.clone(), build(server))])
}

fn end_of_head(octets: &[u8]) -> usize {
    octets.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4
}

const REQUEST: &str = "GET / HTTP/1.1\\r\\nHost: a\\r\\nUpgrade: websocket\\r\\nConnection: \
                       Upgrade\\r\\nSec-WebSocket-Version: 13\\r\\nSec-WebSocket-Key: \
                       dGhlIHNhbXBsZSBub25jZQ==\\r\\n\\r\\n";

#[test]
fn messages_are_returned_whole_under_loss_with_tls_and_without() {
    for (size, fragment, secure) in
        [(5, None, false), (200_000, None, false), (70_000, Some(1000), true), (126, None, true)]
    {
        let client =
            WebSocketClient { size, messages: 5, fragment, ping: true, ..Default::default() };
        let client = client.program("client").expect("right");
        let mut pair = Pair::new(1, &[(client, websocket_server("echo").expect("right"))]);
        if secure {
            let tls = Tls::new(&TlsSettings::default()).expect("right");
            for side in [0, 1] {
                pair.stacks[side].app_mut().apps.secure(ProgramId(side as u16), &tls);
            }
        }
        pair.loss = 20;
        for _ in 0..3 {
            pair.begin(0, FlowKind::Tcp);
        }
        pair.run(secs(1000));
        for side in [0, 1] {
            let counts = pair.counts(side);
            assert_eq!(counts.protocol_errors, [0; ProtocolError::COUNT], "{size}: {counts:?}");
            assert_eq!((counts.finished, counts.gone), (3, 3), "{size}: {counts:?}");
            assert_eq!((counted(&pair, side, SENT), counted(&pair, side, RECEIVED)), (15, 15));
            assert_eq!(counted(&pair, side, CLOSE_1000), 3);
            assert_eq!(counts.statuses[1], 3);
        }
        assert_eq!(pair.counts(0).transactions, 15, "round trips");
        assert_eq!(counted(&pair, 0, PONGS_RECEIVED), 15);
        assert_eq!(counted(&pair, 1, PINGS_RECEIVED), 15);
        assert_eq!(pair.counts(1).sent, 15 * u64::from(size), "messages without headers");
        pair.assert_nothing_left();
    }
}

#[test]
fn messages_are_returned_as_they_were_sent() {
    // RFC 6455 section 5.7: "Hello", masked, in one frame and in two, with a ping in between.
    let hello = "\\x81\\x857\\xfa!=\\x7f\\x9fMQX";
    let parts = "\\x01\\x837\\xfa!=\\x7f\\x9fM\\x89\\x801234\\x80\\x827\\xfa!=[\\x95";
    let close = "\\x88\\x82\\0\\0\\0\\0\\x03\\xe9";
    let mut pair = raw(&format!("{REQUEST}{hello}{parts}{close}"));
    let port = pair.begin(0, FlowKind::Tcp);
    pair.run(secs(100));
    let received = pair.received(0, port);
    let head = end_of_head(received);
    let answer = String::from_utf8_lossy(&received[..head]);
    assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
    assert!(answer.contains("\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"));
    assert_eq!(
        received[head..],
        *b"\x81\x05Hello\x8a\x00\x81\x05Hello\x88\x02\x03\xe9",
        "the echoes, the pong, the close"
    );
    assert_eq!(counted(&pair, 1, CLOSE_1001), 1);
    assert_eq!(pair.counts(1).finished, 1);
    assert_eq!(pair.counts(1).statuses[1], 1);
    pair.assert_nothing_left();
}

/// The messages that a client has received: frames of fewer than 126 octets, until a close.
fn messages(received: &[u8]) -> Vec<Vec<u8>> {
    let mut rest = &received[end_of_head(received)..];
    let mut messages = Vec::new();
    while let [0x81, len, after @ ..] = rest {
        let (message, after) = after.split_at((*len).into());
        messages.push(message.to_vec());
        rest = after;
    }
    messages
}

#[test]
fn a_server_sends_the_same_messages_at_the_same_times_to_all_of_a_group() {
    let client = WebSocketClient { messages: 20, listens: true, ..Default::default() };
    let client = client.program("client").expect("right");
    let every = Nanos(100_000_000);
    let server = websocket_push_server("server", 50, false, (every, 3)).expect("right");
    let mut pair = Pair::new(1, &[(client, server)]);
    let mut ports = Vec::new();
    for _ in 0..12 {
        ports.push(pair.begin(0, FlowKind::Tcp));
        // The flows begin one after the other, within ten messages.
        pair.run(pair.now + Nanos(80_000_000));
    }
    pair.run(secs(1000));
    let counts = pair.counts(0);
    assert_eq!(counts.protocol_errors, [0; ProtocolError::COUNT], "{counts:?}");
    assert_eq!((counts.finished, pair.counts(1).finished), (12, 12), "{counts:?}");
    assert_eq!((counted(&pair, 0, RECEIVED), counted(&pair, 1, SKIPPED)), (240, 0));
    pair.assert_nothing_left();
    // Members of a group have a common part of the same messages, others have none.
    let received: Vec<Vec<Vec<u8>>> =
        ports.iter().map(|&port| messages(pair.received(0, port))).collect();
    let shared = |a: &[Vec<u8>], b: &[Vec<u8>]| a.iter().filter(|of| b.contains(of)).count();
    let mut groups: Vec<usize> = Vec::new();
    for (i, all) in received.iter().enumerate() {
        assert_eq!(all.len(), 20);
        assert!((1..20).all(|k| all[k] != all[k - 1]), "{all:?}");
        let known = received[..i].iter().position(|other| shared(all, other) > 0);
        groups.push(known.map_or(i, |known| groups[known]));
    }
    for (i, all) in received.iter().enumerate() {
        for (j, other) in received.iter().enumerate().skip(i + 1) {
            // Each flow began at most one message after the one before it.
            let common = if groups[i] == groups[j] { 20 - (j - i) } else { 0 };
            let found = shared(all, other);
            assert!(found >= common && (common > 0 || found == 0), "{i} {j}: {found}");
        }
    }
    let mut distinct = groups.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), 3, "{groups:?}");
}

#[test]
fn messages_for_which_a_slow_path_has_no_room_are_left_out() {
    let client = Program::client("c").line("websocket \"/\"").line("ws_recv 1");
    let client = build(client.line("delay 100 s").line("ws_close"));
    let every = Nanos(10_000_000);
    let server = websocket_push_server("server", 100_000, true, (every, 1)).expect("right");
    let mut pair = Pair::new(1, &[(client, server)]);
    pair.delay = secs(1);
    pair.begin(0, FlowKind::Tcp);
    pair.run(secs(1000));
    assert_eq!((pair.counts(0).finished, pair.counts(1).finished), (1, 1));
    let (sent, skipped) = (counted(&pair, 1, SENT), counted(&pair, 1, SKIPPED));
    assert!(sent > 1 && skipped > 1000, "{sent} sent, {skipped} left out");
    assert!(counted(&pair, 0, RECEIVED) <= sent);
    pair.assert_nothing_left();
}

#[test]
fn a_message_goes_to_all_of_its_group() {
    // Each sends one message a second, and waits for those of all.
    let client = |all: u32| {
        let lines = [
            "websocket \"/\"".to_owned(),
            "delay 1 s".into(),
            "loop 5".into(),
            "ws_send \"${random:alnum:2000}\"".into(),
            "delay 1 s".into(),
            "end".into(),
            format!("ws_recv {all}"),
            "ws_close".into(),
        ];
        build(lines.iter().fold(Program::client("c"), |client, line| client.line(line)))
    };
    for (line, groups) in [("ws_fan_out", 1), ("ws_fan_out groups 2", 2)] {
        let server = build(Program::server("s").line("ws_accept").line(line));
        let members = if groups == 1 { 4 } else { 1 };
        let mut pair = Pair::new(1, &[(client(5 * members), server)]);
        pair.loss = 10;
        for _ in 0..4 {
            pair.begin(0, FlowKind::Tcp);
        }
        pair.run(secs(1000));
        for side in [0, 1] {
            let counts = pair.counts(side);
            assert_eq!(counts.protocol_errors, [0; ProtocolError::COUNT], "{line}: {counts:?}");
            assert_eq!(counts.finished, 4, "{line}: {counts:?}");
        }
        assert_eq!(counted(&pair, 1, RECEIVED), 20);
        if groups == 1 {
            assert_eq!((counted(&pair, 1, SENT), counted(&pair, 0, RECEIVED)), (80, 80));
        } else {
            // Members of the other group get nothing.
            let sent = counted(&pair, 1, SENT);
            assert!((40..80).contains(&sent), "{sent}");
        }
        pair.assert_nothing_left();
    }
}

#[test]
fn a_member_that_takes_nothing_is_ended_and_the_others_get_all() {
    // 3 MB in all.
    let sends = ["websocket \"/\"", "delay 1 s", "loop 30", "ws_send \"${random:alnum:100000}\""];
    let sends = sends.iter().fold(Program::client("c"), |client, line| client.line(line));
    let sends = build(sends.line("delay 100 ms").line("end").line("ws_recv 30").line("ws_close"));
    // It stops reading after 64 KiB of early octets.
    let mute = Program::client("mute").send(REQUEST).delay("1000 s").recv_until("never");
    let mute = build(mute);
    let server = build(Program::server("s").line("ws_accept").line("ws_fan_out"));
    let programs = [(sends, server.clone()), (mute, server)];
    let mut pair = Pair::new(1, &programs);
    // Both ports have the same program, and so the same groups.
    let stack = &mut pair.stacks[1];
    stack.app_mut().apps.stop_listening(ProgramId(3));
    stack.app_mut().apps.listen(Listener {
        program: ProgramId(1),
        class: ClassId(0),
        addresses: SERVER..=SERVER,
        ports: 81..=81,
        peers: None,
    });
    pair.begin(0, FlowKind::Tcp);
    pair.begin(1, FlowKind::Tcp);
    pair.run(secs(900));
    let counts = pair.counts(1);
    assert_eq!(counts.protocol_errors[ProtocolError::LateMember as usize], 1, "{counts:?}");
    assert_eq!((counts.finished, counts.gone), (1, 2), "{counts:?}");
    assert_eq!((counted(&pair, 0, RECEIVED), pair.counts(0).finished), (30, 1));
    pair.run(secs(3000));
    pair.assert_nothing_left();
}

#[test]
fn violations_are_answered_with_their_code() {
    for (frames, code) in [
        // Without a mask; a text that is not UTF-8; a message of more than 1 MiB.
        ("\\x81\\x05Hello", 1002u16),
        ("\\x81\\x81\\0\\0\\0\\0\\xff", 1007),
        ("\\x82\\xff\\0\\0\\0\\0\\0\\x10\\0\\x01\\0\\0\\0\\0", 1009),
    ] {
        let mut pair = raw(&format!("{REQUEST}{frames}"));
        let port = pair.begin(0, FlowKind::Tcp);
        pair.run(secs(100));
        let [high, low] = code.to_be_bytes();
        let received = pair.received(0, port);
        assert!(received.ends_with(&[0x88, 2, high, low]), "{code}: {received:?}");
        let server = pair.counts(1);
        assert_eq!(server.protocol_errors[ProtocolError::BadWebsocket as usize], 1, "{code}");
        assert_eq!(pair.stacks[0].app().ended, [(20_000, Reason::Closed)], "{code}");
        pair.assert_nothing_left();
    }
}

#[test]
fn a_client_counts_the_code_of_a_server_that_closes() {
    for (code, counter) in
        [(1001, CLOSE_1001), (1002, CLOSE_1002), (1007, CLOSE_1007), (1009, CLOSE_1009)]
    {
        let server = Program::server("s").line("ws_accept").line("ws_recv 1");
        let server = build(server.line(&format!("ws_close {code}")));
        let client = Program::client("c").line(r#"websocket "/" "Host: a.test\r\n""#);
        let client = build(client.line(r#"ws_send "hello""#).line("ws_recv 1"));
        let mut pair = Pair::new(1, &[(client, server)]);
        pair.begin(0, FlowKind::Tcp);
        pair.run(secs(100));
        assert_eq!(counted(&pair, 0, counter), 1, "{code}");
        assert_eq!(counted(&pair, 1, counter), 1, "the client returns the code");
        let errors = pair.counts(0).protocol_errors;
        assert_eq!(errors[ProtocolError::ClosedEarly as usize], 1, "{code}");
        assert_eq!((pair.counts(0).finished, pair.counts(1).finished), (0, 1), "{code}");
        pair.assert_nothing_left();
    }
}

#[test]
fn servers_send_messages_of_their_own_and_clients_may_close_between_passes() {
    let server =
        ["ws_accept", "loop forever", "ws_recv 2", "ws_send binary \"${counter:4}\"", "end"];
    let client = ["websocket \"/push\"", "loop 3", "ws_send \"a\"", "ws_send \"b\"", "ws_recv 1"];
    let client = client.into_iter().chain(["delay 10 ms", "end", "ws_close"]);
    let programs =
        (build(Program::client("c").lines(client)), build(Program::server("s").lines(server)));
    let mut pair = Pair::new(1, &[programs]);
    pair.begin(0, FlowKind::Tcp);
    pair.run(secs(100));
    for side in [0, 1] {
        let counts = pair.counts(side);
        assert_eq!(counts.protocol_errors, [0; ProtocolError::COUNT], "{side}");
        assert_eq!((counts.finished, counted(&pair, side, CLOSE_1000)), (1, 1), "{side}");
    }
    assert_eq!((counted(&pair, 0, RECEIVED), counted(&pair, 1, RECEIVED)), (3, 6));
    assert_eq!(pair.counts(0).transactions, 3);
    pair.assert_nothing_left();
}

#[test]
fn frames_that_begin_with_the_handshake_continue_while_the_program_waits() {
    let client = ["websocket \"/\"", "delay 1 s", "ws_recv 2", "ws_close"];
    let client = build(Program::client("c").lines(client));
    let mut pair = raw_server(&client, b"\x81\x05He", |server| {
        let server = server.delay("100 ms").send_octets(*b"llo\x81\x01a");
        server.recv_until("\\x88").send_octets(*b"\x88\x02\x03\xe8")
    });
    pair.begin(0, FlowKind::Tcp);
    pair.run(secs(100));
    let counts = pair.counts(0);
    assert_eq!(counts.protocol_errors, [0; ProtocolError::COUNT]);
    assert_eq!((counts.finished, counted(&pair, 0, RECEIVED)), (1, 2));
    assert_eq!(counted(&pair, 0, CLOSE_1000), 1);
    pair.assert_nothing_left();
}

#[test]
fn a_server_that_pushes_has_finished_when_the_client_closes() {
    for sends in ["ws_send \"tick\"", "ws_ping"] {
        let server = ["ws_accept", "loop forever", "delay 10 ms", sends, "end"];
        let server = build(Program::server("s").lines(server));
        let client = ["websocket \"/\"", "delay 1 s", "ws_close"];
        let client = build(Program::client("c").lines(client));
        let mut pair = Pair::new(1, &[(client, server.clone())]);
        pair.begin(0, FlowKind::Tcp);
        pair.run(secs(100));
        for side in [0, 1] {
            let counts = pair.counts(side);
            assert_eq!(counts.protocol_errors, [0; ProtocolError::COUNT], "{sends} {side}");
            assert_eq!((counts.finished, counted(&pair, side, CLOSE_1000)), (1, 1), "{sends}");
        }
        pair.assert_nothing_left();

        // The close comes with the request.
        let octets = format!("{REQUEST}\\x88\\x82\\0\\0\\0\\0\\x03\\xe9");
        let client = build(Program::client("raw").send(&octets).wait_peer_close());
        let mut pair = Pair::new(1, &[(client, server)]);
        let port = pair.begin(0, FlowKind::Tcp);
        pair.run(secs(100));
        assert_eq!((pair.counts(1).finished, counted(&pair, 1, CLOSE_1001)), (1, 1), "{sends}");
        assert!(pair.received(0, port).ends_with(b"\x88\x02\x03\xe9"), "{sends}");
        pair.assert_nothing_left();
    }
}

#[test]
fn a_server_that_keeps_sending_reads_on_after_its_answers_are_acknowledged() {
    const PINGS: u32 = 6000;
    let ping = [&b"\x89\xfd\0\0\0\0"[..], &[b'a'; 125]].concat();
    let len = ping.len() as u32 * PINGS;
    let client = Program::client("raw").send(REQUEST).send_message(Message::repeat(ping, len));
    let client = build(client.send_octets(*b"\x88\x82\0\0\0\0\x03\xe8").wait_peer_close());
    let server = ["ws_accept", "loop forever", "ws_send \"a\"", "delay 50 us", "end"];
    let server = build(Program::server("s").lines(server));
    let mut pair = Pair::new(1, &[(client, server)]);
    pair.begin(0, FlowKind::Tcp);
    pair.run(secs(3));
    assert_eq!(counted(&pair, 1, PINGS_RECEIVED), u64::from(PINGS));
    assert_eq!((pair.counts(1).finished, counted(&pair, 1, CLOSE_1000)), (1, 1));
}

#[test]
fn nothing_is_sent_after_a_close() {
    let client = build(Program::client("c").line("websocket \"/\"").line("ws_close"));
    let mut pair = raw_server(&client, b"", |server| {
        // A frame with a mask, which servers do not use.
        server.recv_until("\\x88").send_octets(*b"\x81\x81\0\0\0\0a")
    });
    let port = pair.begin(0, FlowKind::Tcp);
    pair.run(secs(100));
    let received = pair.received(1, port);
    assert_eq!(received.len() - end_of_head(received), 8, "one close with a mask and a code");
    assert_eq!(pair.counts(0).protocol_errors[ProtocolError::BadWebsocket as usize], 1);
    pair.assert_nothing_left();
}

#[test]
fn requests_have_columns_of_data_and_values_of_templates() {
    let data = Data::from_csv(b"user\nann\n", DataOrder::Once).expect("a table");
    let of = |line: &str| {
        let (role, transport) = (Role::Client, Transport::Tcp);
        let messages = BTreeMap::new();
        Program::parse_with_data("c", role, transport, [line], messages, Some(&data))
    };
    let fields = of(r#"websocket "/" "Host: ${data:user}\r\n""#).expect("right");
    assert!(fields.uses_data());
    let client = of(r#"websocket "/${data:user}""#).expect("right");
    assert!(client.uses_data() && !of("websocket \"/\"").expect("right").uses_data());
    let mut pair = Pair::new(1, &[(client, websocket_server("echo").expect("right"))]);
    let port = pair.begin(0, FlowKind::Tcp);
    pair.run(secs(100));
    assert!(pair.received(1, port).starts_with(b"GET /ann HTTP/1.1\r\n"));
    assert!(of(r#"websocket "/${data:name}""#).is_err(), "no such column");

    let line = r#"websocket "/${template:room}" "Host: ${template:room}\r\n""#;
    let instructions = vec![line.parse().expect("right")];
    let program = Program { instructions, ..fields };
    let values = BTreeMap::from([("room".to_owned(), "one".to_owned())]);
    let program = program.with_values(&values).expect("a value");
    assert_eq!(program.lines(), [r#"websocket "/one" "Host: one\r\n""#]);
}

#[test]
fn handshakes_that_are_not_websocket_are_refused() {
    let mut pair = raw("GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n");
    let port = pair.begin(0, FlowKind::Tcp);
    pair.run(secs(100));
    assert!(pair.received(0, port).starts_with(b"HTTP/1.1 400 "));
    assert_eq!(pair.counts(1).protocol_errors[ProtocolError::BadHttp as usize], 1);
    pair.assert_nothing_left();

    let client = WebSocketClient { messages: 1, ..Default::default() }.program("c");
    let server = build(Program::server("http").line("http_serve 200 text/html 10"));
    let mut pair = Pair::new(1, &[(client.expect("right"), server)]);
    pair.begin(0, FlowKind::Tcp);
    pair.run(secs(100));
    let client = pair.counts(0);
    assert_eq!(client.protocol_errors[ProtocolError::BadHttp as usize], 1);
    assert_eq!((client.statuses[2], client.finished), (1, 0));
    pair.assert_nothing_left();
}

#[test]
fn a_peer_that_closes_without_a_close_is_an_error_and_one_that_is_silent_ends() {
    let server = Program::server("s").line("ws_accept").line("ws_recv 1").close();
    let client = Program::client("c").line("websocket \"/\"").line("ws_send \"a\"");
    let client = client.line("ws_recv 1 within 2 s");
    let mut pair = Pair::new(1, &[(build(client), build(server))]);
    pair.begin(0, FlowKind::Tcp);
    pair.run(secs(100));
    assert_eq!(pair.counts(0).protocol_errors[ProtocolError::TooShort as usize], 1);
    pair.assert_nothing_left();

    let server = Program::server("s").line("ws_accept").line("ws_recv 2");
    let client = Program::client("c").line("websocket \"/\"").line("ws_send \"a\"");
    let client = client.line("ws_recv 1 within 2 s");
    let mut pair = Pair::new(1, &[(build(client), build(server))]);
    pair.begin(0, FlowKind::Tcp);
    let begun = pair.now;
    pair.run(secs(100));
    assert_eq!(pair.counts(0).protocol_errors[ProtocolError::NoAnswer as usize], 1);
    assert!(pair.now >= begun + Nanos(2_000_000_000));
    pair.assert_nothing_left();
}

#[test]
fn mistakes_in_programs_with_websocket_are_reported() {
    for (lines, expected) in [
        (&["ws_send \"a\""][..], "needs a connection of WebSocket"),
        (&["websocket \"/\"", "send \"a\""], "`send` cannot be used with WebSocket"),
        (&["websocket \"chat\""], "a path that begins with /"),
        (&["websocket \"/\"", "ws_close 1005"], "the code of the close is 1005"),
        (&["websocket \"/\"", "ws_send fragments 0 \"a\""], "octets of a fragment is 0"),
        (&["count pages", "websocket \"/\""], "`count` before"),
        (&["ws_accept"], "only for the program of a server"),
        (&["websocket \"/\"", "websocket \"/\""], "2: `websocket` would run more than once"),
        (&["loop 2", "websocket \"/\"", "end"], "2: `websocket` would run more than once"),
        (&["label a", "websocket \"/\"", "jump a"], "2: `websocket` would run more than once"),
        (&[r#"websocket "/" "Origin: a\r\nCONNECTION: b\r\n""#], "the header field CONNECTION"),
        (&[r#"websocket "/" "Upgrade: h2c\r\n""#], "the header field Upgrade"),
        (
            &[r#"websocket "/" "Host: ${server}\r\nSec-WebSocket-Protocol: chat\r\n""#],
            "the header field Sec-WebSocket-Protocol",
        ),
        (&["loop forever", "wait_peer_close", "end"], "this loop never waits"),
        (&["loop forever", "flush", "end"], "this loop never waits"),
    ] {
        let error = Program::client("c").lines(lines.iter().copied()).build().expect_err("wrong");
        assert!(error.to_string().contains(expected), "{lines:?}: {error}");
    }
    for (lines, expected) in [
        (&["ws_accept", "ws_recv 1", "ws_echo"][..], "3: `ws_echo` handles all messages"),
        (&["ws_accept", "ws_echo", "wait_peer_close"], "`ws_accept` directly before it"),
        (&["ws_accept", "ws_push \"a\" every 1 s", "ws_close"], "2: `ws_push` sends until"),
        (&["ws_accept", "ws_push \"a\" every 1 us"], "at least 1 ms"),
        (&["ws_accept", "ws_push \"a\" every 1 s groups 0"], "groups is 0"),
        (&["ws_accept", "ws_push \"a\""], "a message, `every` and a time"),
        (&["ws_accept", "ws_accept"], "`ws_accept` would run more than once"),
        (&["ws_accept", "ws_close 1010"], "only clients close with 1010"),
        (&["ws_accept", "loop forever", "ws_close", "end"], "this loop never waits"),
        (&["loop forever", "http_serve 200 text/html 10", "end"], "this loop never waits"),
    ] {
        let error = Program::server("s").lines(lines.iter().copied()).build().expect_err("wrong");
        assert!(error.to_string().contains(expected), "{lines:?}: {error}");
    }
    let client = Program::client("c").line("websocket \"/\"").line("ws_close 1010");
    assert!(client.build().is_ok());
}
