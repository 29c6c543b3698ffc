//! Programs over two real stacks.

use proptest::prelude::*;
use squall_apps::{Program, ProgramBuilder, ProtocolError, Transport, builtin};
use squall_tcp::{FlowKind, Reason};
use squall_units::Nanos;

use crate::common::{Pair, secs};

fn kind(program: &Program) -> FlowKind {
    match program.transport {
        Transport::Tcp => FlowKind::Tcp,
        Transport::Udp => FlowKind::Udp,
    }
}

fn pair(client: &[&str], server: &[&str]) -> (Program, Program) {
    let client =
        Program::client("test").lines(client.iter().copied()).build().expect("a right client");
    let server =
        Program::server("test").lines(server.iter().copied()).build().expect("a right server");
    (client, server)
}

fn error(pair: &Pair, side: usize, error: ProtocolError) -> u64 {
    pair.counts(side).protocol_errors[error as usize]
}

#[test]
fn built_in_applications_finish_on_both_sides() {
    for name in builtin::NAMES {
        let application = builtin::application(name).expect("it is named");
        let transport = kind(&application.client);
        let mut pair = Pair::new(7, &[(application.client, application.server)]);
        for _ in 0..3 {
            pair.begin(0, transport);
        }
        pair.run(secs(300));
        for side in 0..2 {
            let counts = pair.counts(side);
            assert_eq!(
                counts.protocol_errors,
                [0; ProtocolError::COUNT],
                "{name}, side {side}: {counts:?}"
            );
            assert_eq!(
                (counts.established, counts.finished, counts.gone),
                (3, 3, 3),
                "{name}, side {side}: {counts:?}"
            );
        }
        assert_eq!(pair.counts(0).sent, pair.counts(1).received, "{name}");
        assert_eq!(pair.counts(1).sent, pair.counts(0).received, "{name}");
        assert!(pair.counts(0).transactions >= 3 || *name == "rtp", "{name}: {:?}", pair.counts(0));
        pair.assert_nothing_left();
    }
}

#[test]
fn built_in_tcp_applications_survive_loss() {
    for name in builtin::NAMES {
        let application = builtin::application(name).expect("it is named");
        if application.client.transport == Transport::Udp {
            continue;
        }
        let mut pair = Pair::new(11, &[(application.client, application.server)]);
        pair.loss = 30;
        pair.begin(0, FlowKind::Tcp);
        pair.run(secs(600));
        assert_eq!(pair.counts(0).finished, 1, "{name}: {:?}", pair.counts(0));
        assert_eq!(pair.counts(1).finished, 1, "{name}: {:?}", pair.counts(1));
        assert_eq!(pair.counts(0).protocol_errors, [0; ProtocolError::COUNT], "{name}");
        pair.assert_nothing_left();
    }
}

#[test]
fn a_pattern_matches_across_segments_and_early_data_waits() {
    // The client sends everything at once; the server matches it part by part, with pauses.
    let (client, server) = pair(
        &[r#"send "aab${repeat:3000:x}aaab--aaabENDtail1""#, r#"recv_until "ok""#, "close"],
        &[
            r#"recv_until "aaab""#,
            "delay 10 ms",
            r#"recv_until "aabEND""#,
            "delay 10 ms",
            "recv 5",
            r#"send "o""#,
            "delay 5 ms",
            r#"send "k""#,
            "wait_peer_close",
        ],
    );
    let mut pair = Pair::new(1, &[(client, server)]);
    pair.begin(0, FlowKind::Tcp);
    pair.run(secs(10));
    assert_eq!((pair.counts(0).finished, pair.counts(1).finished), (1, 1), "{:?}", pair.counts(1));
    assert!(pair.now >= Nanos(secs(1).0 + 25_000_000));
    pair.assert_nothing_left();
}

#[test]
fn early_data_is_counted_when_only_lengths_matter() {
    let (client, server) = pair(
        &[r#"send "${repeat:5000:x}""#, "recv 1"],
        &["delay 1 s", "recv 2000", "delay 1 s", "recv 3000", r#"send "!""#],
    );
    let mut pair = Pair::new(1, &[(client, server)]);
    pair.begin(0, FlowKind::Tcp);
    pair.run(secs(20));
    assert_eq!((pair.counts(0).finished, pair.counts(1).finished), (1, 1));
    assert!(pair.now >= secs(3));
    pair.assert_nothing_left();
}

#[test]
fn variables_loops_and_jumps_control_repetition() {
    let (client, server) = pair(
        &[
            "set n 3",
            "set m 0",
            "loop until n == 0",
            "loop 2",
            r#"send "${variable:m:2}""#,
            "add m 1",
            "end",
            "add n -1",
            "end",
            "jump over if m >= 6",
            r#"send "never""#,
            "label over",
            r#"send "!""#,
            "recv 1",
        ],
        &["recv_until \"!\"", r#"send "k""#],
    );
    let mut pair = Pair::new(1, &[(client, server)]);
    let port = pair.begin(0, FlowKind::Tcp);
    pair.run(secs(10));
    assert_eq!(pair.received(1, port), b"000102030405!");
    assert_eq!((pair.counts(0).finished, pair.counts(1).finished), (1, 1));
    pair.assert_nothing_left();
}

#[test]
fn datagrams_that_are_counted_down_need_no_wait_between_them() {
    let client = Program::udp_client("down")
        .lines(["set n 20", "label more", r#"send_packet "ab""#, "add n -1"])
        .lines(["jump more if n != 0", "loop 5", r#"send_packet "c""#, "end", "recv_packets 1"])
        .build()
        .expect("right");
    let server = Program::udp_server("down")
        .lines(["recv_packets 25", r#"send_packet "k""#])
        .build()
        .expect("right");
    let mut pair = Pair::new(1, &[(client, server)]);
    let port = pair.begin(0, FlowKind::Udp);
    pair.run(secs(10));
    assert_eq!(pair.received(1, port), format!("{}ccccc", "ab".repeat(20)).as_bytes());
    assert_eq!((pair.counts(0).finished, pair.counts(1).finished), (1, 1));
    pair.assert_nothing_left();
}

#[test]
fn a_clock_limits_the_duration_of_a_loop() {
    let (client, server) = pair(
        &[
            "set t clock",
            "label more",
            r#"send "x""#,
            "delay 100 ms",
            "jump more if elapsed t < 1 s",
            r#"send "!""#,
            "recv 1",
        ],
        &["recv_until \"!\"", r#"send "k""#],
    );
    let mut pair = Pair::new(1, &[(client, server)]);
    let port = pair.begin(0, FlowKind::Tcp);
    pair.run(secs(10));
    assert_eq!(pair.received(1, port), b"xxxxxxxxxx!");
    pair.assert_nothing_left();
}

#[test]
fn flush_waits_until_all_is_acknowledged() {
    // Far more than a window holds: without `flush`, the reset would discard most of it.
    let big = format!("send \"{}\"", "x".repeat(900_000));
    let (client, server) =
        pair(&[&big, "flush", "reset"], &["recv 900000", r#"send "never read""#]);
    let mut pair = Pair::new(1, &[(client, server)]);
    let port = pair.begin(0, FlowKind::Tcp);
    pair.run(secs(20));
    assert_eq!(pair.received(1, port).len(), 900_000);
    pair.assert_nothing_left();
}

#[test]
fn marks_repeat_in_retransmissions_and_differ_between_flows() {
    let line = "${random:hex:32} ${random:alnum:20:flow} ${random:digits:9:flow:x} \
                ${random:digits:9:flow:x} ${counter:4:7:3} ${flow:5} ${client}:${client_port} \
                ${server}:${server_port} ${choice:a|bb} ${repeat:5000:xyz}\\n";
    let (client, server) = pair(
        &["loop 5", &format!("send \"{line}\""), "end", "recv 1"],
        &["loop 5", r#"recv_until "\n""#, "end", r#"send "k""#],
    );
    let received = |loss| {
        let mut pair = Pair::new(5, &[(client.clone(), server.clone())]);
        pair.loss = loss;
        let ports = [pair.begin(0, FlowKind::Tcp), pair.begin(0, FlowKind::Tcp)];
        pair.run(secs(300));
        assert_eq!((pair.counts(0).finished, pair.counts(1).finished), (2, 2));
        pair.assert_nothing_left();
        ports.map(|port| String::from_utf8(pair.received(1, port).to_vec()).expect("text"))
    };
    let clean = received(0);
    assert_eq!(clean, received(100));
    assert_ne!(clean[0], clean[1]);
    let words: Vec<Vec<&str>> = clean[1].lines().map(|line| line.split(' ').collect()).collect();
    assert_eq!(words.len(), 5);
    assert!(words[0][0] != words[1][0] && words[0][1] == words[1][1]);
    assert!(
        words.iter().all(|line| line[2] == line[3] && line[0].len() == 32 && line[1].len() == 20)
    );
    assert_eq!(
        words.iter().map(|line| line[4]).collect::<Vec<_>>(),
        ["0007", "0010", "0013", "0016", "0019"]
    );
    assert_eq!(words[3][5..8], ["00001", "10.0.0.1:20001", "10.0.0.2:80"]);
    assert_eq!(words[3].last().map(|x| x.len()), Some(5000));
}

#[test]
fn a_rate_limits_sending() {
    let (client, server) = pair(
        &[
            "rate 100 kB every 5 ms",
            r#"send "${repeat:50000:x}""#,
            "rate 0",
            r#"send "y""#,
            "recv 1",
        ],
        &["recv 50001", r#"send "k""#],
    );
    let mut pair = Pair::new(1, &[(client, server)]);
    let port = pair.begin(0, FlowKind::Tcp);
    pair.run(Nanos(secs(1).0 + 250_000_000));
    let half = pair.received(1, port).len();
    assert!((24_000..=26_000).contains(&half), "{half} of 25,000 octets after 250 ms");
    pair.run(secs(10));
    assert_eq!(pair.received(1, port).len(), 50_001);
    assert_eq!(pair.counts(0).finished, 1);
    pair.assert_nothing_left();
}

#[test]
fn a_closed_side_still_receives() {
    let (client, server) = pair(
        &[r#"send "q""#, "close", "recv 5000"],
        &["recv 1", "wait_peer_close", r#"send "${repeat:5000:x}""#],
    );
    let mut pair = Pair::new(1, &[(client, server)]);
    pair.begin(0, FlowKind::Tcp);
    pair.run(secs(10));
    assert_eq!((pair.counts(0).finished, pair.counts(1).finished), (1, 1), "{:?}", pair.counts(0));
    assert_eq!(pair.stacks[0].app().ended[0].1, Reason::Closed);
    pair.assert_nothing_left();
}

#[test]
fn a_deviating_peer_is_reported_and_leaves_no_state() {
    for (client, server, side, wrong) in [
        (
            &[r#"send "abc""#, "recv 1"][..],
            &["recv 2", r#"send "k""#][..],
            1,
            ProtocolError::UnexpectedData,
        ),
        (&[r#"send "abc""#], &["recv 4"], 1, ProtocolError::TooShort),
        (
            &["recv 10 within 1 s"],
            &["delay 5 s", r#"send "0123456789""#],
            0,
            ProtocolError::NoAnswer,
        ),
        (
            &["keepalive 1 s", "recv 10"],
            &[r#"send "01""#, "delay 5 s", r#"send "23456789""#],
            0,
            ProtocolError::NoAnswer,
        ),
        (
            &[r#"send "x""#, "http_response"],
            &["recv 1", r#"send "SSH-2.0-x""#],
            0,
            ProtocolError::BadHttp,
        ),
        (
            &["set a 1", "set b 1", "http_response"],
            &[r#"send "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc""#],
            0,
            ProtocolError::TooShort,
        ),
        (
            &[r#"send "\x16\x03\x01""#, "wait_peer_close"],
            &["http_serve 200 text/plain 10"],
            1,
            ProtocolError::BadHttp,
        ),
        (&[r#"send "GET / HT""#], &["http_serve 200 text/plain 10"], 1, ProtocolError::TooShort),
    ] {
        let mut pair = Pair::new(1, &[pair(client, server)]);
        pair.begin(0, FlowKind::Tcp);
        pair.run(secs(100));
        assert_eq!(error(&pair, side, wrong), 1, "{client:?} {server:?}: {:?}", pair.counts(side));
        assert_eq!(pair.counts(0).gone, 1);
        pair.assert_nothing_left();
    }
}

#[test]
fn a_keepalive_counts_from_the_last_received_data() {
    let (client, server) = pair(
        &["keepalive 1 s", "recv 5"],
        &["loop 5", "delay 800 ms", r#"send "x""#, "end", "wait_peer_close"],
    );
    let mut pair = Pair::new(1, &[(client, server)]);
    pair.begin(0, FlowKind::Tcp);
    pair.run(secs(100));
    assert_eq!(
        (pair.counts(0).finished, pair.counts(0).protocol_errors),
        (1, [0; ProtocolError::COUNT])
    );
    pair.assert_nothing_left();
}

#[test]
fn a_reset_ends_both_sides() {
    let (client, server) =
        pair(&[r#"send "x""#, "recv 1", "reset"], &["recv 1", r#"send "y""#, "wait_peer_close"]);
    let mut pair = Pair::new(1, &[(client, server)]);
    pair.begin(0, FlowKind::Tcp);
    pair.run(secs(100));
    assert_eq!(
        (pair.stacks[0].app().ended[0].1, pair.stacks[1].app().ended[0].1),
        (Reason::Aborted, Reason::Reset)
    );
    pair.assert_nothing_left();
}

#[test]
fn a_server_that_serves_endless_ends_when_nothing_more_is_asked() {
    let server = &["loop forever", r#"recv_until "?""#, r#"send "${counter:1}""#, "end"];
    for (client, finished) in [
        (&["loop 3", r#"send "a?""#, "recv 1", "end"][..], 1),
        (&[r#"send "a??""#, "recv 2"][..], 1),
        (&["delay 1 ms"][..], 1),
    ] {
        let mut pair = Pair::new(1, &[pair(client, server)]);
        pair.begin(0, FlowKind::Tcp);
        pair.run(secs(100));
        assert_eq!((pair.counts(0).finished, pair.counts(1).finished), (1, finished), "{client:?}");
        pair.assert_nothing_left();
    }
    let mut pair = Pair::new(1, &[pair(&[r#"send "ab""#], &["loop forever", "recv 3", "end"])]);
    pair.begin(0, FlowKind::Tcp);
    pair.run(secs(100));
    assert_eq!(error(&pair, 1, ProtocolError::TooShort), 1);
}

/// An HTTP client whose server sends `answer` and closes.
fn answered_by(answer: &str, requests: u32) -> Pair {
    let client = builtin::HttpClient { requests, ..Default::default() };
    let server = Program::server("raw")
        .recv_until("\\r\\n\\r\\n")
        .send(answer)
        .close()
        .build()
        .expect("right");
    let mut pair = Pair::new(1, &[(client.program("raw").expect("right"), server)]);
    pair.begin(0, FlowKind::Tcp);
    pair.run(secs(100));
    pair.assert_nothing_left();
    pair
}

#[test]
fn http_clients_take_each_framing_and_count_statuses() {
    for (answer, class) in [
        (r"HTTP/1.1 200 OK\r\nContent-Length: 30000\r\n\r\n${repeat:30000:x}", 2),
        (
            r"HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n${repeat:2000:x}\r\n0\r\n\r\n",
            4,
        ),
        (r"HTTP/1.0 301 Moved\r\nLocation: /\r\n\r\n${repeat:50000:x}", 3),
        (
            r"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 Busy\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
            5,
        ),
    ] {
        let pair = answered_by(answer, 1);
        let counts = pair.counts(0);
        assert_eq!(counts.statuses[class], 1, "{answer}: {counts:?}");
        assert_eq!(
            (counts.finished, counts.transactions, counts.protocol_errors),
            (1, 1, [0; ProtocolError::COUNT]),
            "{answer}"
        );
    }
}

/// An HTTP client whose server answers three requests on a connection, and closes.
fn closed_after_three(client: &builtin::HttpClient, third: &str) -> Pair {
    const END: &str = r"\r\n\r\n";
    let server = Program::server("three")
        .repeat(2, |server| {
            server.recv_until(END).send(r"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
        })
        .recv_until(END)
        .send(third)
        .close()
        .wait_peer_close();
    let (client, server) = (client.program("three"), server.build());
    let mut pair = Pair::new(1, &[(client.expect("right"), server.expect("right"))]);
    pair.begin(0, FlowKind::Tcp);
    pair.run(secs(100));
    pair.assert_nothing_left();
    pair
}

#[test]
fn requests_after_the_server_closes_are_missing_and_the_flow_is_unfinished() {
    const CLOSE: &str = r"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello";
    let plain = |requests| builtin::HttpClient { requests, ..Default::default() };
    let checked = builtin::HttpClient {
        checks: vec![squall_apps::Check::Status(200)],
        cookies: true,
        ..plain(4)
    };
    let several =
        builtin::HttpClient { paths: vec![(1, "/a".into()), (2, "/b".into())], ..plain(4) };
    // Requests sent, answered, redirects, closed early.
    for (client, third, expected) in [
        (plain(3), CLOSE, (3, 3, 0, 0)),
        (plain(4), CLOSE, (3, 3, 0, 1)),
        (several, CLOSE, (3, 3, 0, 1)),
        (checked, CLOSE, (3, 3, 0, 1)),
        // Two requests were outstanding.
        (builtin::HttpClient { pipeline: 5, ..plain(5) }, CLOSE, (5, 3, 0, 1)),
        // A response without Content-Length is delimited by the close (RFC 9112 §6.3).
        (plain(9), r"HTTP/1.1 200 OK\r\n\r\nhello", (3, 3, 0, 1)),
        // A redirect after which no request follows.
        (
            builtin::HttpClient { redirects: 2, ..plain(3) },
            r"HTTP/1.1 302 Found\r\nLocation: /b\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
            (3, 3, 1, 1),
        ),
    ] {
        let pair = closed_after_three(&client, third);
        let counts = pair.counts(0);
        let early = error(&pair, 0, ProtocolError::ClosedEarly);
        assert_eq!(
            (counts.requested, counts.transactions, counts.redirected, early),
            expected,
            "{client:?} {third}: {counts:?}"
        );
        assert_eq!(counts.protocol_errors.iter().sum::<u64>(), early, "{counts:?}");
        assert_eq!((counts.finished, pair.stacks[0].app().ended[0].1), (1 - early, Reason::Closed));
    }
    // A client that sends requests as long as there are answers has received all of them.
    let endless = Program::client("forever").lines([
        "loop forever",
        r#"send "GET / HTTP/1.1\r\n\r\n""#,
        "http_response",
        "end",
    ]);
    let server = Program::server("one").recv_until(r"\r\n\r\n").send(CLOSE).close();
    let ends = (endless.build().expect("right"), server.build().expect("right"));
    let mut pair = Pair::new(1, &[ends]);
    pair.begin(0, FlowKind::Tcp);
    pair.run(secs(100));
    assert_eq!((pair.counts(0).finished, pair.counts(0).transactions), (1, 1));
}

#[test]
fn a_server_over_udp_rests_until_its_client_is_silent() {
    let client = Program::udp_client("slow")
        .lines(["loop 4", r#"send_packet "x""#, "delay 3 s", "end"])
        .build()
        .expect("right");
    let server = Program::udp_server("quick")
        .lines(["recv_packets 1", r#"send_packet "k""#, "wait_peer_close"])
        .build()
        .expect("right");
    let mut pair = Pair::new(1, &[(client, server)]);
    let port = pair.begin(0, FlowKind::Udp);
    pair.run(secs(5));
    let lingering = |pair: &Pair| pair.stacks[1].app().apps.lingering();
    assert_eq!((lingering(&pair), pair.stacks[0].app().apps.delaying()), (1, 1));
    pair.run(secs(100));
    // Late datagrams belong to the same flow, which ended after 10 s of silence.
    assert_eq!((pair.counts(1).established, pair.counts(1).finished), (1, 1));
    assert_eq!(pair.stacks[1].app().ended, [(port, Reason::Idle)]);
    assert_eq!(pair.now.0 / 1_000_000_000, 20, "begun at 1 s, the last was sent 9 s later");
    assert_eq!((pair.received(1, port), lingering(&pair)), (&b"xxxx"[..], 0));
    pair.assert_nothing_left();
}

#[test]
fn a_status_counts_once_its_answer_is_complete() {
    for (answer, statuses, error_of) in [
        // An answer that is shorter than declared, in the body or in the header; and a chunked one
        // without an end.
        (
            r"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n${repeat:4999:x}",
            0,
            ProtocolError::TooShort,
        ),
        (r"HTTP/1.1 200 OK\r\nContent-", 0, ProtocolError::TooShort),
        (
            r"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n",
            0,
            ProtocolError::TooShort,
        ),
        // A longer answer: it is complete, and the excess is a separate error.
        (r"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabcde", 1, ProtocolError::UnexpectedData),
    ] {
        let pair = answered_by(answer, 1);
        let counts = pair.counts(0);
        assert_eq!(counts.statuses.iter().sum::<u64>(), statuses, "{answer}: {counts:?}");
        assert_eq!((counts.finished, error(&pair, 0, error_of)), (0, 1), "{answer}: {counts:?}");
    }
}

#[test]
fn http_servers_answer_each_kind_of_request() {
    let response = |body: usize, connection: &str| {
        format!(
            "HTTP/1.1 200 OK\r\nServer: squall\r\nContent-Type: text/plain\r\nContent-Length: \
             1000\r\nConnection: {connection}\r\n\r\n{}",
            "squall serves octets\n".repeat(100).get(..body).expect("enough")
        )
    };
    for (request, expected) in [
        (r"GET / HTTP/1.1\r\nHost: x\r\n\r\n", response(1000, "keep-alive")),
        (r"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n", response(0, "keep-alive")),
        (r"GET / HTTP/1.0\r\n\r\n", response(1000, "close")),
        (r"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", response(1000, "close")),
        (
            r"POST / HTTP/1.1\r\nContent-Length: 5000\r\n\r\n${repeat:5000:z}GET / HTTP/1.1\r\nConnection: close\r\n\r\n",
            response(1000, "keep-alive") + &response(1000, "close"),
        ),
        (
            r"PUT / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nabcde",
            "HTTP/1.1 100 Continue\r\n\r\n".to_string() + &response(1000, "keep-alive"),
        ),
    ] {
        let client = Program::client("raw")
            .send(request)
            .line("delay 100 ms")
            .close()
            .wait_peer_close()
            .build()
            .expect("right");
        let server =
            Program::server("http").line("http_serve 200 text/plain 1000").build().expect("right");
        let mut pair = Pair::new(1, &[(client, server)]);
        let port = pair.begin(0, FlowKind::Tcp);
        pair.run(secs(100));
        let received = String::from_utf8_lossy(pair.received(0, port)).into_owned();
        assert_eq!(received, expected, "{request}");
        assert_eq!(
            (pair.counts(1).finished, pair.counts(1).protocol_errors),
            (1, [0; ProtocolError::COUNT]),
            "{request}"
        );
        pair.assert_nothing_left();
    }
}

#[test]
fn pipelined_requests_are_answered_one_by_one_and_many_do_not_pile_up() {
    let client =
        builtin::HttpClient { requests: 400, pipeline: 100, close: true, ..Default::default() };
    let client = client.program("http").expect("right");
    let server = builtin::http_server("http", 20_000).expect("right");
    let mut pair = Pair::new(1, &[(client, server)]);
    pair.stacks[0].app_mut().record = false;
    pair.stacks[1].app_mut().record = false;
    pair.begin(0, FlowKind::Tcp);
    pair.run(secs(300));
    assert_eq!(
        (pair.counts(0).statuses[2], pair.counts(0).transactions, pair.counts(0).finished),
        (400, 400, 1)
    );
    assert_eq!((pair.counts(1).statuses[2], pair.counts(1).finished), (400, 1));
    pair.assert_nothing_left();
}

#[test]
fn datagrams_bring_variables_and_are_counted() {
    let client = Program::udp_client("count")
        .lines(["set id random 256 65535", r#"send_packet "${variable:id:be16}${variable:id:5}""#])
        .lines([r#"recv_packets 2 within 1 s"#, r#"send_packet "end""#])
        .build()
        .expect("right");
    let server = Program::udp_server("count")
        .lines([
            "recv_packets 1 take id = be16 at 0",
            r#"send_packet "<${variable:id}>""#,
            r#"send_packet "2""#,
        ])
        .lines(["recv_packets 1 within 1 s"])
        .build()
        .expect("right");
    let mut pair = Pair::new(9, &[(client, server)]);
    let port = pair.begin(0, FlowKind::Udp);
    pair.run(secs(10));
    let asked = pair.received(1, port)[2..7].to_vec();
    let id = u16::from_be_bytes([pair.received(1, port)[0], pair.received(1, port)[1]]);
    assert_eq!(String::from_utf8_lossy(&asked), format!("{id:05}"));
    assert_eq!(String::from_utf8_lossy(pair.received(0, port)), format!("<{id}>2"));
    assert_eq!((pair.counts(0).finished, pair.counts(1).finished), (1, 1));
    pair.assert_nothing_left();
}

#[test]
fn a_datagram_longer_than_a_packet_is_a_local_error() {
    let client = Program::udp_client("long").send("${repeat:9000:x}").build().expect("right");
    let server = Program::udp_server("long").recv_packets(1, None).build().expect("right");
    let mut pair = Pair::new(9, &[(client, server)]);
    pair.begin(0, FlowKind::Udp);
    pair.run(secs(10));
    assert_eq!(error(&pair, 0, ProtocolError::LongDatagram), 1);
    pair.assert_nothing_left();
}

/// Steps of one side, with the matching steps of the other.
#[derive(Clone, Debug)]
enum Dual {
    Send { by_client: bool, len: u32 },
    Line { by_client: bool, len: u32 },
    Pause { by_client: bool, us: u32 },
    Again { times: u32, steps: Vec<Dual> },
}

fn duals() -> impl Strategy<Value = Vec<Dual>> {
    let len = prop_oneof![1u32..5, 1u32..5000, 1u32..200_000];
    let step = prop_oneof![
        (any::<bool>(), len.clone()).prop_map(|(by_client, len)| Dual::Send { by_client, len }),
        (any::<bool>(), 0u32..3000).prop_map(|(by_client, len)| Dual::Line { by_client, len }),
        (any::<bool>(), 0u32..50_000).prop_map(|(by_client, us)| Dual::Pause { by_client, us }),
    ];
    let step = step.prop_recursive(2, 16, 4, |inner| {
        (1u32..5, prop::collection::vec(inner, 1..4)).prop_map(|(times, mut steps)| {
            // A loop must wait for something.
            steps.push(Dual::Send { by_client: true, len: 1 });
            Dual::Again { times, steps }
        })
    });
    prop::collection::vec(step, 1..10)
}

fn write(
    steps: &[Dual],
    client: ProgramBuilder,
    server: ProgramBuilder,
) -> (ProgramBuilder, ProgramBuilder) {
    steps.iter().fold((client, server), |(client, server), step| {
        let with = |by_client: bool, own: String, other: Option<String>| {
            let other = other.unwrap_or_default();
            let add = |builder: ProgramBuilder, line: &str| {
                if line.is_empty() { builder } else { builder.line(line) }
            };
            let (of_client, of_server) = if by_client { (&own, &other) } else { (&other, &own) };
            (add(client.clone(), of_client), add(server.clone(), of_server))
        };
        match step {
            Dual::Send { by_client, len } => with(
                *by_client,
                format!(r#"send "${{repeat:{len}:ab}}""#),
                Some(format!("recv {len}")),
            ),
            Dual::Line { by_client, len } => {
                let text =
                    if *len == 0 { String::new() } else { format!("${{random:digits:{len}}}") };
                with(
                    *by_client,
                    format!(r#"send "{text}.\r.\r\n""#),
                    Some(r#"recv_until "\r\n""#.into()),
                )
            }
            Dual::Pause { by_client, us } => with(*by_client, format!("delay {us} us"), None),
            Dual::Again { times, steps } => {
                let begin = format!("loop {times}");
                let (client, server) = write(steps, client.line(&begin), server.line(&begin));
                (client.line("end"), server.line("end"))
            }
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) })]

    #[test]
    fn matching_programs_always_finish(steps in duals(), loss in prop_oneof![Just(0u64), Just(20u64)]) {
        let (client, server) = write(&steps, Program::client("dual").line("connect"), Program::server("dual").line("accept"));
        let server = server.wait_peer_close();
        let (client, server) = (client.build().expect("right"), server.build().expect("right"));
        let mut pair = Pair::new(1, &[(client.clone(), server.clone())]);
        pair.loss = loss;
        pair.begin(0, FlowKind::Tcp);
        pair.run(secs(3000));
        for side in 0..2 {
            let counts = pair.counts(side);
            prop_assert_eq!((counts.finished, counts.protocol_errors), (1, [0; ProtocolError::COUNT]), "side {}: {:?}", side, steps);
        }
        prop_assert_eq!(pair.counts(0).sent, pair.counts(1).received);
        pair.assert_nothing_left();
        for program in [client, server] {
            for instruction in &program.instructions {
                let text = instruction.to_string();
                let read: squall_apps::Instruction = text.parse().expect("what was written");
                prop_assert_eq!(&read, instruction);
            }
        }
    }
}
