//! Helpers of the tests of HTTP/2 and HTTP/3.

use squall_apps::{
    Check, Origin, Program, ProtocolError, Role, Transport,
    builtin::{HttpClient, http_server},
};

use super::Pair;

/// A client, and a server whose answers have this number of octets.
pub fn http(client: &HttpClient, body: u32) -> (Program, Program) {
    (client.program("http").expect("right"), http_server("http", body).expect("right"))
}

pub fn program(role: Role, lines: &[&str]) -> Program {
    let lines = lines.iter().copied();
    Program::parse("p", role, Transport::Tcp, lines, Default::default()).expect("right")
}

/// A client that checks two answers, and sends a field of the first again; its server.
pub fn checked() -> (Program, Program) {
    let server = [
        "loop forever",
        r#"recv_until "\r\n\r\n""#,
        r#"send "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nSet-Cookie: a=1\r\nETag: t\r\n\r\nhello""#,
        "end",
    ];
    let client = HttpClient {
        requests: 2,
        cookies: true,
        checks: vec![Check::Status(200), Check::Length(5), Check::Regex("^hello$".into())],
        extracts: vec![("tag".into(), Origin::Header("etag".into()))],
        headers: vec![("X-Tag".into(), "${value:tag}".into())],
        ..HttpClient::default()
    };
    (client.program("p").expect("right"), program(Role::Server, &server))
}

/// A server that answers after this delay.
pub fn slow(delay: &str) -> Program {
    let delay = format!("delay {delay}");
    let lines = [
        "loop forever",
        r#"recv_until "\r\n\r\n""#,
        &delay,
        r#"send "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok""#,
        "end",
    ];
    program(Role::Server, &lines)
}

pub fn errors(pair: &Pair, side: usize, error: ProtocolError) -> u64 {
    pair.counts(side).protocol_errors[error as usize]
}
