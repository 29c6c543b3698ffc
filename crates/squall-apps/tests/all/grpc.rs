//! Calls of gRPC, over two stacks, in virtual time.

use squall_apps::{
    Http2, Program, ProgramId, ProtocolError, Role, Transport,
    builtin::{GrpcClient, GrpcServer, filler},
    grpc::{Status, Statuses},
};
use squall_tcp::{FlowKind, Reason};
use squall_units::Nanos;

use crate::common::{Pair, secs};

fn pair(client: Program, server: Program, http2: Http2) -> Pair {
    let mut pair = Pair::new(1, &[(client, server)]);
    for side in [0, 1] {
        pair.stacks[side].app_mut().apps.over_http2(ProgramId(side as u16), &http2);
    }
    pair
}

fn program(role: Role, lines: &[&str]) -> Program {
    let lines = lines.iter().copied();
    Program::parse("p", role, Transport::Tcp, lines, Default::default()).expect("right")
}

/// The counter of a side's program.
fn counter(pair: &Pair, side: usize, name: &str) -> u64 {
    let names = pair.stacks[side].app().apps.counters(ProgramId(side as u16));
    let at = names.iter().position(|known| **known == *name).expect(name);
    pair.counts(side).counted.get(at).copied().unwrap_or(0)
}

/// Calls by status, on both sides.
fn ended(pair: &Pair, name: &str) -> (u64, u64) {
    let name = format!("grpc_{name}");
    (counter(pair, 0, &name), counter(pair, 1, &name))
}

fn messages(pair: &Pair, side: usize) -> (u64, u64) {
    (counter(pair, side, "grpc_messages_sent"), counter(pair, side, "grpc_messages_received"))
}

fn errors(pair: &Pair, side: usize, error: ProtocolError) -> u64 {
    pair.counts(side).protocol_errors[error as usize]
}

/// Runs a flow in which nothing goes wrong.
fn run_well(pair: &mut Pair) {
    let port = pair.begin(0, FlowKind::Tcp);
    pair.run(secs(1000));
    for side in [0, 1] {
        let counts = pair.counts(side);
        assert_eq!(counts.protocol_errors, [0; ProtocolError::COUNT], "{side}: {counts:?}");
        assert_eq!((counts.established, counts.finished, counts.gone), (1, 1, 1), "{counts:?}");
    }
    assert_eq!(pair.stacks[0].app().ended, [(port, Reason::Closed)]);
    pair.assert_nothing_left();
}

/// Runs clients and servers with these settings.
fn exchange(client: &GrpcClient, server: &GrpcServer, streams: u16) -> Pair {
    let http2 = Http2 { streams, window: 70_000, ..Http2::default() };
    let mut pair =
        pair(client.program("c").expect("right"), server.program("s").expect("right"), http2);
    run_well(&mut pair);
    pair
}

#[test]
fn a_client_cancels_a_call_after_some_answers_of_the_server() {
    let expect = Status::CANCELLED.into();
    let client = GrpcClient { cancel: Some(1), answers: 3, expect, ..GrpcClient::default() };
    let server = GrpcServer { answers: 3, ..GrpcServer::default() };
    let pair = exchange(&client, &server, 1);
    assert_eq!((ended(&pair, "cancelled").0, messages(&pair, 0).1), (1, 1));
}

#[test]
fn calls_have_messages_in_each_direction() {
    // Unary, both kinds of streams in one direction, both directions, none.
    for (sent, answers) in [(1, 1), (20, 1), (1, 20), (30, 7), (0, 0), (0, 3), (2, 0)] {
        let client = GrpcClient { calls: 3, messages: sent, answers, ..GrpcClient::default() };
        let server = GrpcServer { answers, ..GrpcServer::default() };
        let pair = exchange(&client, &server, 2);
        assert_eq!(ended(&pair, "ok"), (6, 6), "{sent} {answers}");
        let (sent, answers) = (u64::from(sent) * 6, u64::from(answers) * 6);
        assert_eq!(messages(&pair, 0), (sent, answers));
        assert_eq!(messages(&pair, 1), (answers, sent));
        let counts = pair.counts(0);
        assert_eq!((counts.requested, counts.transactions, counts.statuses[2]), (6, 6, 6));
        assert_eq!(pair.stacks[0].app().apps.requests(ProgramId(0)), Some(6));
        let figures = pair.stacks[1].app().apps.http2_counts(ProgramId(1)).expect("HTTP/2");
        assert_eq!(figures.streams, 6);
        assert!(figures.resets_sent.is_empty() && figures.resets_received.is_empty());
    }
}

#[test]
fn messages_are_answered_in_turn_and_large_ones_pass_the_windows() {
    let large = || filler(80_000);
    let client = GrpcClient { message: large(), messages: 3, ..GrpcClient::default() };
    let server = GrpcServer { answer: filler(90_000), answers: 1, ..GrpcServer::default() };
    let pair = exchange(&client, &server, 3);
    assert_eq!((ended(&pair, "ok"), messages(&pair, 0)), ((3, 3), (9, 3)));
    for answers in [1, 3] {
        let client =
            GrpcClient { lockstep: true, message: large(), messages: 5, answers, ..client.clone() };
        let server = GrpcServer { lockstep: true, answers, ..server.clone() };
        let pair = exchange(&client, &server, 1);
        let answers = u64::from(answers) * 5;
        assert_eq!((ended(&pair, "ok"), messages(&pair, 0)), ((1, 1), (5, answers)));
    }
}

#[test]
fn more_messages_than_fit_a_queue_are_sent() {
    let client = GrpcClient { messages: 2_000, answers: 0, ..GrpcClient::default() };
    let server = GrpcServer { answers: 0, ..GrpcServer::default() };
    let pair = exchange(&client, &server, 1);
    assert_eq!(messages(&pair, 1), (0, 2_000));
}

#[test]
fn a_status_that_is_not_expected_fails_the_flow() {
    let client = GrpcClient { calls: 2, answers: 0, ..GrpcClient::default() };
    let status = "NOT_FOUND".parse().expect("a status");
    let server =
        GrpcServer { answers: 0, status, text: "no such ☺".into(), ..Default::default() };
    let mut wrong = pair(
        client.program("c").expect("right"),
        server.program("s").expect("right"),
        Http2::default(),
    );
    wrong.begin(0, FlowKind::Tcp);
    wrong.run(secs(1000));
    assert_eq!(errors(&wrong, 0, ProtocolError::GrpcStatus), 1);
    assert_eq!(ended(&wrong, "not_found"), (1, 1));
    wrong.assert_nothing_left();
    for expect in ["NOT_FOUND", "OK NOT_FOUND", "any"] {
        let client = GrpcClient { expect: expect.parse().expect("statuses"), ..client.clone() };
        let pair = exchange(&client, &server, 1);
        assert_eq!(ended(&pair, "not_found"), (2, 2), "{expect}");
    }
    // After messages, the status is in trailers.
    let (client, server) = (
        GrpcClient { answers: 2, expect: Statuses::ANY, ..client },
        GrpcServer { answers: 2, ..server },
    );
    let pair = exchange(&client, &server, 1);
    assert_eq!((ended(&pair, "not_found"), messages(&pair, 0)), ((2, 2), (2, 4)));
}

#[test]
fn missing_messages_fail_a_call_that_ends_well() {
    let client = GrpcClient { answers: 3, ..GrpcClient::default() };
    let server = GrpcServer { answers: 2, ..GrpcServer::default() };
    let mut pair = pair(
        client.program("c").expect("right"),
        server.program("s").expect("right"),
        Http2::default(),
    );
    pair.begin(0, FlowKind::Tcp);
    pair.run(secs(1000));
    assert_eq!((errors(&pair, 0, ProtocolError::TooShort), ended(&pair, "ok")), (1, (1, 1)));
}

#[test]
fn clients_cancel_calls_and_go_on_with_the_next() {
    let expect = Statuses::from(Status::CANCELLED);
    for cancel in [0, 1] {
        // The end of the call would come after a time.
        let server = program(
            Role::Server,
            &[
                "grpc_accept",
                "grpc_next done",
                "grpc_send \"a\"",
                "delay 10 s",
                "label done",
                "grpc_finish OK",
            ],
        );
        let client = GrpcClient { calls: 5, cancel: Some(cancel), expect, ..Default::default() };
        let mut pair = pair(client.program("c").expect("right"), server, Http2::default());
        run_well(&mut pair);
        assert_eq!(ended(&pair, "cancelled"), (5, 5), "{cancel}");
        assert_eq!(messages(&pair, 0).1, u64::from(5 * cancel));
        let figures = pair.stacks[1].app().apps.http2_counts(ProgramId(1)).expect("HTTP/2");
        assert_eq!(figures.resets_received, [("CANCEL", 5)].into());
    }
}

#[test]
fn a_deadline_ends_a_call() {
    let deadline = Some(Nanos(50_000_000));
    let client = GrpcClient { calls: 2, deadline, ..GrpcClient::default() };
    let server = GrpcServer { delay: secs(1), ..GrpcServer::default() };
    let late = GrpcClient { expect: Status::DEADLINE_EXCEEDED.into(), ..client.clone() };
    let pair = exchange(&late, &server, 1);
    assert_eq!((ended(&pair, "deadline_exceeded"), ended(&pair, "cancelled")), ((2, 0), (0, 2)));
    // The server is in time.
    let server = GrpcServer { delay: Nanos(10_000_000), ..server };
    let pair = exchange(&client, &server, 1);
    assert_eq!(ended(&pair, "ok"), (2, 2));
}

#[test]
fn streams_that_the_server_resets_have_the_status_of_the_code() {
    for (code, status, counted) in [
        (0x2, "INTERNAL", "grpc_internal"),
        (0x7, "UNAVAILABLE", "grpc_unavailable"),
        (0x8, "CANCELLED", "grpc_cancelled"),
        (0xb, "RESOURCE_EXHAUSTED", "grpc_resource_exhausted"),
        (0xc, "PERMISSION_DENIED", "grpc_permission_denied"),
    ] {
        // SETTINGS, and RST_STREAM for stream 1 (RFC 9113 section 6.4).
        let frames =
            format!(r#"send "\0\0\0\x04\0\0\0\0\0\0\0\x04\x03\0\0\0\0\x01\0\0\0\x{code:02x}""#);
        let server = program(Role::Server, &[&frames, "wait_peer_close"]);
        let expect = status.parse().expect("a status");
        let client = GrpcClient { deadline: Some(secs(5)), expect, ..GrpcClient::default() };
        let mut pair = Pair::new(1, &[(client.program("c").expect("right"), server)]);
        let apps = &mut pair.stacks[0].app_mut().apps;
        apps.over_http2(ProgramId(0), &Http2::default());
        run_well(&mut pair);
        assert_eq!(counter(&pair, 0, counted), 1, "{status}");
    }
}

#[test]
fn an_answer_ends_a_call_whose_client_still_sends() {
    let server = program(Role::Server, &["grpc_accept", "grpc_finish RESOURCE_EXHAUSTED"]);
    let client = GrpcClient {
        message: filler(100_000),
        messages: 50,
        calls: 2,
        expect: Statuses::ANY,
        ..GrpcClient::default()
    };
    let mut pair = pair(client.program("c").expect("right"), server, Http2::default());
    run_well(&mut pair);
    assert_eq!(ended(&pair, "resource_exhausted"), (2, 2));
    assert!(messages(&pair, 0).0 < 100, "the rest is not sent: {:?}", messages(&pair, 0));
}

#[test]
fn other_methods_and_other_requests_are_refused() {
    let methods = vec!["/a.B/C".into()];
    let server = GrpcServer { methods, ..GrpcServer::default() };
    let client = GrpcClient { expect: Status::UNIMPLEMENTED.into(), ..GrpcClient::default() };
    assert_eq!(ended(&exchange(&client, &server, 1), "unimplemented"), (1, 1));
    let client = GrpcClient { method: "/a.B/C".into(), ..GrpcClient::default() };
    assert_eq!(ended(&exchange(&client, &server, 1), "ok"), (1, 1));
    // A request that is no call gets 415, which clients of HTTP can check.
    let get = program(
        Role::Client,
        &["send \"GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n\"", "http_response", "check status 415"],
    );
    let mut other = pair(get, server.program("s").expect("right"), Http2::default());
    run_well(&mut other);
    assert_eq!(other.counts(1).statuses[4], 1);
    // The page of a server of HTTP is no answer of gRPC.
    let page = squall_apps::builtin::http_server("s", 1000).expect("right");
    let client = GrpcClient { expect: Status::UNKNOWN.into(), ..GrpcClient::default() };
    let mut page = pair(client.program("c").expect("right"), page, Http2::default());
    page.begin(0, FlowKind::Tcp);
    page.run(secs(1000));
    assert_eq!(errors(&page, 0, ProtocolError::TooShort), 0);
    assert_eq!(counter(&page, 0, "grpc_unknown"), 1);
    assert_eq!(counter(&page, 0, "grpc_messages_received"), 0);
}

#[test]
fn messages_that_are_compressed_or_no_messages_fail_the_flow() {
    // A client of HTTP writes the messages.
    for (octets, error, counted) in [
        ("\\x01\\0\\0\\0\\x01a", ProtocolError::GrpcCompressed, 0),
        ("\\0\\0\\0\\0\\x01a\\x02\\0\\0\\0\\0", ProtocolError::BadGrpc, 0),
        ("\\0\\0\\0\\0\\x01a\\0\\0\\0\\0\\x02b", ProtocolError::TooShort, 1),
    ] {
        let len = octets.matches('\\').count() + octets.matches(['a', 'b']).count();
        let request = format!(
            "send \"POST /a.B/C HTTP/1.1\\r\\nHost: a\\r\\nContent-Type: \
             application/grpc\\r\\nContent-Length: {len}\\r\\n\\r\\n{octets}\""
        );
        let client = program(Role::Client, &[&request, "http_response"]);
        let server = GrpcServer::default().program("s").expect("right");
        let mut pair = pair(client, server, Http2::default());
        pair.begin(0, FlowKind::Tcp);
        pair.run(secs(1000));
        assert_eq!(errors(&pair, 1, error), 1, "{octets}: {:?}", pair.counts(1));
        assert_eq!(messages(&pair, 1).1, counted);
    }
}

#[test]
fn wrong_programs_are_refused() {
    for (role, lines, error) in [
        (Role::Client, &["grpc_send \"a\""][..], "needs a call"),
        (Role::Client, &["grpc_call \"/a/b\"", "grpc_call \"/a/b\""], "grpc_status"),
        (Role::Client, &["grpc_call \"/a/b\"", "grpc_end", "grpc_recv 1"], "grpc_status"),
        (Role::Client, &["loop 3", "grpc_call \"/a/b\"", "end", "grpc_status OK"], "grpc_status"),
        (Role::Client, &["grpc_call \"a/b\""], "a path"),
        (Role::Client, &["grpc_call \"/a/b\" \"TE: x\\r\\n\""], "the field TE"),
        (Role::Client, &["grpc_call \"/a/b\" deadline 0 s"], "more than 0"),
        (Role::Client, &["grpc_call \"/a/b\"", "grpc_send \"${client}\""], "same length"),
        (Role::Client, &["grpc_call \"/a/b\"", "send \"a\""], "cannot be used with gRPC"),
        (Role::Client, &["grpc_accept"], "only for the program of a server"),
        (Role::Server, &["grpc_accept"], "grpc_finish"),
        (Role::Server, &["grpc_finish OK"], "`grpc_accept`"),
        (Role::Server, &["delay 1 s", "grpc_accept", "grpc_finish OK"], "first instruction"),
        (Role::Server, &["grpc_accept", "label a", "grpc_next a", "grpc_finish OK"], "never waits"),
    ] {
        let lines = lines.iter().copied();
        let found = Program::parse("p", role, Transport::Tcp, lines, Default::default());
        let found = found.expect_err(error).to_string();
        assert!(found.contains(error), "{found}");
    }
    let alone = GrpcClient::default().program("c").expect("right");
    let found = alone.check_without_http2().expect_err("it needs streams").to_string();
    assert!(found.contains("instruction 1: `grpc_call` needs streams of HTTP/2"), "{found}");
    assert_eq!(alone.check_over_http2(), Ok(()));
}
