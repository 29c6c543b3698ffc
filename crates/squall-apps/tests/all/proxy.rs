//! Headers of the PROXY protocol in front of programs and of TLS sessions, over two stacks, in
//! virtual time.

use std::sync::Arc;

use squall_apps::{
    Program, ProgramId, ProtocolError, Tls, TlsSettings,
    builtin::{HttpClient, http_server},
    proxy::{ProxyProtocol, ProxyVersion},
};
use squall_tcp::{FlowKind, Reason};

use crate::common::{Pair, secs};

/// A pair of programs, whose client sends these headers, and whose server requires one.
fn pair(programs: (Program, Program), client: Option<&ProxyProtocol>) -> Pair {
    let mut pair = Pair::new(1, &[programs]);
    let required = ProxyProtocol::default();
    for (side, settings) in [(0, client), (1, Some(&required))] {
        if let Some(settings) = settings {
            let settings = Arc::new(settings.clone());
            pair.stacks[side].app_mut().apps.proxy(ProgramId(side as u16), &settings);
        }
    }
    pair
}

fn http() -> (Program, Program) {
    let client = HttpClient { requests: 3, ..HttpClient::default() };
    (client.program("http").expect("right"), http_server("http", 10_000).expect("right"))
}

/// A client that sends these messages, and a server that sends first.
fn greeted(client: &[&str]) -> (Program, Program) {
    let start = Program::client("c");
    let client = client.iter().fold(start, |of, text| of.send(text).line("flush")).recv(5).close();
    let server = Program::server("s").send("hello").recv(4).close();
    (client.build().expect("right"), server.build().expect("right"))
}

fn errors(pair: &Pair, error: ProtocolError) -> u64 {
    pair.counts(1).protocol_errors[error as usize]
}

fn v1() -> ProxyProtocol {
    ProxyProtocol { version: ProxyVersion::V1, ..ProxyProtocol::default() }
}

#[test]
fn a_header_precedes_the_octets_of_each_flow() {
    let sources = "203.0.113.7".parse().expect("right")..="203.0.113.9".parse().expect("right");
    let full = ProxyProtocol {
        sources: Some(sources),
        authority: Some("a.test".into()),
        unique_id: true,
        checksum: true,
        ..ProxyProtocol::default()
    };
    for settings in [v1(), full, ProxyProtocol { local: true, ..ProxyProtocol::default() }] {
        for secure in [false, true] {
            let mut pair = pair(http(), Some(&settings));
            if secure {
                let tls = Tls::new(&TlsSettings::default()).expect("right");
                for side in [0, 1] {
                    pair.stacks[side].app_mut().apps.secure(ProgramId(side as u16), &tls);
                }
            }
            // Lost headers are sent again.
            pair.loss = 30;
            let ports: Vec<_> = (0..20).map(|_| pair.begin(0, FlowKind::Tcp)).collect();
            pair.run(secs(1000));
            for side in [0, 1] {
                let counts = pair.counts(side);
                assert_eq!((counts.established, counts.finished, counts.gone), (20, 20, 20));
                assert_eq!(counts.statuses[2], 60, "{settings:?} {secure}");
                assert_eq!(counts.protocol_errors, [0; ProtocolError::COUNT]);
            }
            assert_eq!(pair.counts(1).received, pair.counts(0).sent, "without headers");
            let mut header_octets = 0;
            for port in ports {
                let octets = pair.received(1, port);
                let after = match settings.version {
                    ProxyVersion::V1 => {
                        let line = format!("PROXY TCP4 10.0.0.1 10.0.0.2 {port} 80\r\n");
                        assert!(octets.starts_with(line.as_bytes()), "{port}");
                        line.len()
                    }
                    ProxyVersion::V2 => {
                        assert!(octets.starts_with(b"\r\n\r\n\0\r\nQUIT\n"), "{port}");
                        16 + usize::from(octets[15])
                    }
                };
                let first: &[u8] = if secure { &[22, 3] } else { b"GET /" };
                assert!(octets[after..].starts_with(first), "{port}");
                header_octets += after as u64;
                if settings.sources.is_some() {
                    let turn = u8::try_from((port - 20_000) % 3).expect("less than 3");
                    assert_eq!(octets[16..20], [203, 0, 113, 7 + turn]);
                }
            }
            assert_eq!(pair.counts(0).proxied, header_octets);
            pair.assert_nothing_left();
        }
    }
}

#[test]
fn a_server_sends_nothing_before_the_header_is_complete() {
    let parts = ["PROXY TCP4 10.0.0.1 10.0", ".0.2 20000 80\\r", "\\nping"];
    let mut pair = pair(greeted(&parts), None);
    let port = pair.begin(0, FlowKind::Tcp);
    pair.run(secs(100));
    assert_eq!(pair.received(0, port), b"hello");
    let server = pair.counts(1);
    assert_eq!((server.established, server.received, server.finished), (1, 4, 1));
    assert_eq!(server.protocol_errors, [0; ProtocolError::COUNT]);
    pair.assert_nothing_left();
}

#[test]
fn a_flow_without_a_correct_header_is_reset_and_its_reason_is_counted() {
    let long = "\\r\\n\\r\\n\\0\\r\\nQUIT\\n!\\x11\\x20\\x00";
    let damaged = "\\r\\n\\r\\n\\0\\r\\nQUIT\\n!\\x11\\0\\x13\\n\\0\\0\\x01\\n\\0\\0\\x02\\0\\x01\\0\\x02\
                   \\x03\\0\\x04\\0\\0\\0\\0";
    for (octets, error) in [
        ("ping", ProtocolError::ProxyMissing),
        ("PROXY TCP4 10.0.0.1 10.0.0.2 1 x\\r\\n", ProtocolError::ProxyMalformed),
        (long, ProtocolError::ProxyLong),
        (damaged, ProtocolError::ProxyChecksum),
    ] {
        let mut pair = pair(greeted(&[octets]), None);
        pair.begin(0, FlowKind::Tcp);
        pair.run(secs(100));
        assert_eq!(errors(&pair, error), 1, "{octets}: {:?}", pair.counts(1));
        assert_eq!((pair.counts(1).established, pair.counts(1).sent), (0, 0), "{octets}");
        assert_eq!(pair.stacks[0].app().ended, [(20_000, Reason::Reset)], "{octets}");
        assert_eq!(pair.stacks[1].app().ended, [(20_000, Reason::Aborted)], "{octets}");
        pair.assert_nothing_left();
    }
}

#[test]
fn a_peer_that_sends_too_little_or_closes_is_not_waited_for() {
    let close = |text: &str| {
        let client = Program::client("c").send(text).close().wait_peer_close();
        (client.build().expect("right"), greeted(&[]).1)
    };
    // Both sides wait for the other one; a part of a header; a client that closes.
    for programs in [greeted(&[]), greeted(&["PROXY TCP4"]), close("PROXY TCP4 10.0.0.1")] {
        let mut pair = pair(programs, None);
        pair.begin(0, FlowKind::Tcp);
        pair.run(secs(100));
        assert_eq!(errors(&pair, ProtocolError::ProxyMissing), 1, "{:?}", pair.counts(1));
        assert_eq!(pair.stacks[0].app().ended, [(20_000, Reason::Reset)]);
        pair.assert_nothing_left();
    }
}
