//! Programs that evaluate whole answers, over two real stacks.

use squall_apps::{
    Check, Data, DataOrder, Instruction, Message, Origin, Program, ProtocolError, Role, Transport,
    builtin::HttpClient,
};
use squall_tcp::FlowKind;

use crate::common::{Pair, secs};

const USERS: &str = "user,password\nann,a1\nbartholomew,b2b2\neve,\n";

fn users(order: DataOrder) -> Data {
    Data::from_csv(USERS.as_bytes(), order).expect("a table")
}

fn server(lines: &[&str]) -> Program {
    Program::server("test").lines(lines.iter().copied()).build().expect("a right server")
}

fn error(pair: &Pair, error: ProtocolError) -> u64 {
    pair.counts(0).protocol_errors[error as usize]
}

/// The server's input per flow, in order.
fn received(pair: &mut Pair) -> Vec<String> {
    let received = &pair.stacks[1].app().received;
    received.values().map(|octets| String::from_utf8_lossy(octets).into_owned()).collect()
}

const LOGIN: &str = "POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: ${content_length}\r\n\r\n\
                     user=${data:user}&password=${data:password}";
const PAGE: &str =
    "GET /${data:user} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${value:token}\r\n\r\n";

#[test]
fn a_token_of_an_answer_is_in_the_next_request_under_loss() {
    let data = users(DataOrder::Circular);
    let message = |text: &str| {
        Message::raw(text.as_bytes()).expect("right marks").with_data(&data).expect("right columns")
    };
    let client = Program::client("test")
        .send_message(message(LOGIN))
        .lines(["http_response", "check status 200", "extract token = json auth.token"])
        .send_message(message(PAGE))
        .lines(["http_response", "check regex \"welcome\""])
        .close()
        .build()
        .expect("a right client");
    // The token is a function of the flow: the server can expect it in the next request.
    let json = r#"{\"auth\": {\"token\": \"${random:hex:24:flow:token}\"}}"#;
    let token =
        format!(r#"send "HTTP/1.1 200 OK\r\nContent-Length: ${{content_length}}\r\n\r\n{json}""#);
    let server = server(&[
        "recv_until \"&password=\"",
        &token,
        r#"recv_until "Bearer ""#,
        r#"recv_until "\r\n\r\n""#,
        r#"send "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nwelc\r\n3\r\nome\r\n0\r\n\r\n""#,
        "close",
    ]);
    let mut pair = Pair::new(5, &[(client, server)]);
    pair.loss = 50;
    for _ in 0..30 {
        pair.begin(0, FlowKind::Tcp);
    }
    pair.run(secs(300));
    assert_eq!(pair.counts(0).protocol_errors, [0; ProtocolError::COUNT], "{:?}", pair.counts(0));
    assert_eq!(pair.counts(0).finished, 30);
    let mut tokens = std::collections::BTreeSet::new();
    for (i, text) in received(&mut pair).iter().enumerate() {
        let (user, password) = [("ann", "a1"), ("bartholomew", "b2b2"), ("eve", "")][i % 3];
        let body = format!("user={user}&password={password}");
        let login = format!("Content-Length: {}\r\n\r\n{body}GET /{user} HTTP/1.1", body.len());
        assert!(text.contains(&login), "{text}");
        let token = text.split("Bearer ").nth(1).expect("a token").trim();
        assert!(token.len() == 24 && tokens.insert(token.to_owned()), "{token}");
    }
    assert_eq!(tokens.len(), 30);
    pair.assert_nothing_left();
}

#[test]
fn failed_checks_are_counted_by_reason() {
    let hello = "cc8c1c6bcb0cf4fb1cb52f6f4a8a6d6a4d7ad10df7d0be1e7c2a5a3d6d9f0a11";
    for (line, reason) in [
        ("check status 201", ProtocolError::CheckStatus),
        ("check length 6", ProtocolError::CheckLength),
        ("check regex \"^ello\"", ProtocolError::CheckRegex),
        (&format!("check sha256 {hello}"), ProtocolError::CheckHash),
        ("extract x = header X-None", ProtocolError::NoValue),
    ] {
        let right = [
            "http_response",
            "check status 200",
            "check length 5",
            "check regex \"^hel+o$\"",
            "check sha256 2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
            "extract x = header Server",
            line,
        ];
        let client = Program::client("test")
            .send(r"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            .lines(right)
            .close()
            .build()
            .expect("a right client");
        let server = server(&[
            r#"recv_until "\r\n\r\n""#,
            r#"send "HTTP/1.1 200 OK\r\nServer: s\r\nContent-Length: 5\r\n\r\nhello""#,
            "wait_peer_close",
        ]);
        let mut pair = Pair::new(1, &[(client, server)]);
        pair.begin(0, FlowKind::Tcp);
        pair.run(secs(60));
        let counts = pair.counts(0).clone();
        assert_eq!((error(&pair, reason), counts.finished), (1, 0), "{line}: {counts:?}");
        assert_eq!(counts.protocol_errors.iter().sum::<u64>(), 1, "{line}: {counts:?}");
        pair.assert_nothing_left();
    }
}

#[test]
fn redirections_are_followed_with_the_cookies_that_they_set() {
    let client = HttpClient {
        host: "a.test".into(),
        cookies: true,
        redirects: 2,
        checks: vec![Check::Regex("there".into())],
        ..HttpClient::default()
    };
    let answer = |head: &str, body: &str| {
        let len = body.len();
        format!(r#"send "HTTP/1.1 {head}\r\nContent-Length: {len}\r\n\r\n{body}""#)
    };
    let server = server(&[
        r#"recv_until "\r\n\r\n""#,
        &answer(r"302 Found\r\nSet-Cookie: a=1\r\nLocation: /b", ""),
        r#"recv_until "\r\n\r\n""#,
        &answer(r"301 x\r\nSet-Cookie: c=2\r\nLocation: http://a.test/d?e", "gone"),
        r#"recv_until "\r\n\r\n""#,
        &answer("200 OK", "there"),
        "wait_peer_close",
    ]);
    let mut pair = Pair::new(1, &[(client.program("test").expect("right"), server)]);
    pair.begin(0, FlowKind::Tcp);
    pair.run(secs(60));
    assert_eq!(pair.counts(0).finished, 1, "{:?}", pair.counts(0));
    assert_eq!(pair.counts(0).statuses[2..4], [1, 2]);
    let all = received(&mut pair).remove(0);
    let requests: Vec<&str> = all.split_inclusive("\r\n\r\n").collect();
    assert!(requests[0].starts_with("GET / HTTP/1.1\r\n") && !requests[0].contains("Cookie"));
    assert!(requests[1].starts_with("GET /b HTTP/1.1\r\n"), "{all}");
    assert!(requests[1].contains("\r\nCookie: a=1\r\n"), "{all}");
    assert!(requests[2].starts_with("GET /d?e HTTP/1.1\r\nHost: a.test\r\n"), "{all}");
    assert!(requests[2].contains("\r\nCookie: a=1; c=2\r\n"), "{all}");
    pair.assert_nothing_left();
}

#[test]
fn an_unfollowed_redirection_fails_the_flow() {
    for location in ["http://b.test/", "https://a.test/", "/again"] {
        let client = HttpClient { host: "a.test".into(), redirects: 1, ..HttpClient::default() };
        let answer = format!(
            r#"send "HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n""#
        );
        let server = server(&["loop forever", r#"recv_until "\r\n\r\n""#, &answer, "end"]);
        let mut pair = Pair::new(1, &[(client.program("test").expect("right"), server)]);
        pair.begin(0, FlowKind::Tcp);
        pair.run(secs(60));
        assert_eq!(error(&pair, ProtocolError::CheckRedirect), 1, "{location}");
        let asked = if location == "/again" { 2 } else { 1 };
        assert_eq!(pair.counts(0).statuses[3], asked, "{location}");
        pair.assert_nothing_left();
    }
}

#[test]
fn a_request_has_the_given_method_headers_and_body() {
    let client = HttpClient {
        paths: vec![(1, "/${data:user}?n=${flow:4}".into())],
        method: Some("PUT".into()),
        headers: vec![
            ("user-agent".into(), "tester".into()),
            ("X-User".into(), "${data:user}".into()),
        ],
        body: Some(br#"{"user": "${data:user}"}"#.to_vec()),
        data: Some(users(DataOrder::Circular)),
        ..HttpClient::default()
    };
    let server = squall_apps::builtin::http_server("test", 10).expect("right");
    let mut pair = Pair::new(1, &[(client.program("test").expect("right"), server)]);
    for _ in 0..2 {
        pair.begin(0, FlowKind::Tcp);
    }
    pair.run(secs(60));
    assert_eq!((pair.counts(0).finished, pair.counts(1).statuses[2]), (2, 2));
    let expected = |user: &str, number: u32, len: usize| {
        format!(
            "PUT /{user}?n={number:04} HTTP/1.1\r\nHost: squall\r\nAccept: */*\r\nContent-Type: \
             application/octet-stream\r\nuser-agent: tester\r\nX-User: {user}\r\nContent-Length: \
             {len}\r\n\r\n{{\"user\": \"{user}\"}}"
        )
    };
    assert_eq!(received(&mut pair), [expected("ann", 0, 15), expected("bartholomew", 1, 23)]);
}

#[test]
fn paths_are_drawn_by_their_weights() {
    let client = HttpClient {
        paths: vec![(6, "/a".into()), (3, "/b".into()), (1, "/c".into())],
        requests: 50,
        ..HttpClient::default()
    };
    let server = squall_apps::builtin::http_server("test", 1).expect("right");
    let mut pair = Pair::new(3, &[(client.program("test").expect("right"), server)]);
    for _ in 0..40 {
        pair.begin(0, FlowKind::Tcp);
    }
    pair.run(secs(60));
    assert_eq!((pair.counts(0).finished, pair.counts(0).statuses[2]), (40, 2_000));
    let all = received(&mut pair).concat();
    let of = |path: &str| all.matches(&format!("GET {path} ")).count();
    let found = [of("/a"), of("/b"), of("/c")];
    assert_eq!(found.iter().sum::<usize>(), 2_000);
    let expected = [1_200, 600, 200];
    assert!(found.iter().zip(expected).all(|(n, of)| n.abs_diff(of) < 80), "{found:?}");
}

#[test]
fn an_answer_that_closes_is_checked_before_the_program_ends() {
    for (requests, body, finished, wrong) in [
        (1, "right", 1, None),
        (1, "wrong", 0, Some(ProtocolError::CheckRegex)),
        (3, "right", 0, Some(ProtocolError::ClosedEarly)),
        (3, "wrong", 0, Some(ProtocolError::CheckRegex)),
    ] {
        let client = HttpClient {
            requests,
            checks: vec![Check::Regex("right".into())],
            extracts: vec![("x".into(), Origin::Regex("^.".into()))],
            ..HttpClient::default()
        };
        let server = server(&[
            r#"recv_until "\r\n\r\n""#,
            &format!(r#"send "HTTP/1.0 200 OK\r\n\r\n{body}""#),
            "close",
        ]);
        let mut pair = Pair::new(1, &[(client.program("test").expect("right"), server)]);
        pair.begin(0, FlowKind::Tcp);
        pair.run(secs(60));
        let counts = pair.counts(0).clone();
        assert_eq!(counts.finished, finished, "{counts:?}");
        assert_eq!(counts.protocol_errors.iter().sum::<u64>(), 1 - finished, "{counts:?}");
        assert!(wrong.is_none_or(|wrong| error(&pair, wrong) == 1), "{counts:?}");
        pair.assert_nothing_left();
    }
}

#[test]
fn checks_that_are_impossible_are_mistakes() {
    let client = |lines: &[&str]| {
        let built = Program::client("p").lines(lines.iter().copied()).build();
        built.expect_err("it is wrong").to_string()
    };
    for (found, expected) in [
        (client(&["check status 200"]), "add `http_response` before it"),
        (client(&["http_response", "check regex \"(\""]), "\"(\" is not a regular expression"),
        (client(&["http_response", "check sha256 12"]), "64 hexadecimal digits"),
        (client(&["http_response", "extract x = xml a"]), "and json, regex or header"),
        (
            client(&[r#"send "${value:x}""#, "http_response", "extract y = json a"]),
            "${value:x} is never extracted; expected an `extract x = ...` in the program; there \
             are y",
        ),
        (client(&[r#"send "${content_length}\r\n""#]), "no empty line after it"),
    ] {
        assert!(found.contains(expected), "{found}");
    }
    for line in [
        "extract a = json b[0].c",
        r#"extract a = regex "x=(\d+) \"q\"""#,
        "extract a = header ETag",
        "check status 404",
        "check length 1024",
        "check no_redirect",
        r#"check regex "a|b""#,
        "check sha256 2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
        "unless_redirect done",
        "unless_redirect done www.test:8080",
        "unless_redirect done https://www.test",
    ] {
        let read: Instruction = line.parse().expect(line);
        assert_eq!(read.to_string(), line);
    }
    let raw = |text: &str| {
        let message = Message::raw(text.as_bytes())?;
        message.with_data(&users(DataOrder::Once)).map(|message| message.to_string())
    };
    assert_eq!(
        raw(r#"a${data:user}${value:token}}b{$ "\n" \${x}"#).expect("right"),
        r#"a${data:user}${value:token}}b{\$ \"\\n\" \${x}"#
    );
    let error = raw("${data:usr}").expect_err("no column").to_string();
    assert!(
        error.contains("${data:usr}: the data has no such column")
            && error.contains("user, password"),
        "{error}"
    );
    assert!(raw("${usr}").expect_err("no mark").to_string().contains("data:COLUMN"));
}

#[test]
fn columns_need_data_and_a_server_draws_its_record() {
    let parse = |role, data: Option<&Data>| {
        let line = [r#"send "${data:user}""#];
        let none = Default::default();
        Program::parse_with_data("p", role, Transport::Tcp, line, none, data)
    };
    let error = |role, data: Option<&Data>| parse(role, data).expect_err("wrong").to_string();
    assert!(error(Role::Client, None).contains("data = { file ="));
    assert!(error(Role::Server, Some(&users(DataOrder::Once))).contains("order = \"random\""));
    assert!(parse(Role::Client, Some(&users(DataOrder::Once))).expect("right").uses_data());
    parse(Role::Server, Some(&users(DataOrder::Random))).expect("right");
}
