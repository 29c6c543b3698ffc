//! Programs inside TLS sessions, over two stacks, in virtual time.

use std::sync::Arc;

use squall_apps::{
    Program, ProgramId, ProtocolError, Tls, TlsSettings, TlsVersion,
    builtin::{HttpClient, http_server},
};
use squall_tcp::{FlowKind, Reason};
use squall_tls::{Browser, Hello};

use crate::common::{Pair, secs};

/// A pair of programs. Each side has its own TLS settings; `None`: no TLS.
fn pair(
    programs: (Program, Program),
    client: Option<&TlsSettings>,
    server: Option<&TlsSettings>,
) -> Pair {
    let mut pair = Pair::new(1, &[programs]);
    for (side, settings) in [(0, client), (1, server)] {
        if let Some(settings) = settings {
            let tls = Tls::new(settings).expect("right settings");
            pair.stacks[side].app_mut().apps.secure(ProgramId(side as u16), &tls);
        }
    }
    pair
}

fn http(body: u32) -> (Program, Program) {
    let client = HttpClient { requests: 3, ..HttpClient::default() };
    (client.program("http").expect("right"), http_server("http", body).expect("right"))
}

fn errors(pair: &Pair, side: usize, error: ProtocolError) -> u64 {
    pair.counts(side).protocol_errors[error as usize]
}

#[test]
fn http_runs_inside_of_tls_as_without() {
    let settings = TlsSettings::default();
    let mut pair = pair(http(100_000), Some(&settings), Some(&settings));
    pair.begin(0, FlowKind::Tcp);
    pair.run(secs(100));
    for side in [0, 1] {
        let counts = pair.counts(side);
        assert_eq!(
            (counts.established, counts.secured, counts.resumed, counts.insecure),
            (1, 1, 0, 0)
        );
        assert_eq!((counts.finished, counts.gone, counts.truncated), (1, 1, 0));
        assert_eq!(counts.statuses[2], 3);
        assert_eq!(counts.protocol_errors, [0; ProtocolError::COUNT]);
    }
    assert_eq!(pair.stacks[0].app().ended, [(20_000, Reason::Closed)]);
    assert_eq!(pair.counts(0).received, pair.counts(1).sent, "plain octets are counted");
    pair.assert_nothing_left();
}

#[test]
fn octets_arrive_whole_and_in_order_under_loss() {
    // Checks that each octet is at its offset: the program reads up to a mark that occurs only
    // once.
    let text = "${random:alnum:300000:flow}";
    let client = Program::client("c")
        .send("go\r\n")
        .recv_until("\r\n")
        .send("thanks")
        .close()
        .build()
        .expect("right");
    let server = Program::server("s")
        .recv_until("\r\n")
        .send(&format!("{text}${{repeat:2000000:0123456789}}\r\n"))
        .recv(6)
        .close()
        .build()
        .expect("right");
    let settings = TlsSettings::default();
    let mut pair = pair((client, server), Some(&settings), Some(&settings));
    pair.loss = 20;
    for _ in 0..10 {
        pair.begin(0, FlowKind::Tcp);
    }
    pair.run(secs(1000));
    for side in [0, 1] {
        let counts = pair.counts(side);
        assert_eq!((counts.secured, counts.finished, counts.insecure), (10, 10, 0), "{counts:?}");
    }
    assert_eq!(pair.counts(0).received, 10 * 2_300_002);
    pair.assert_nothing_left();
}

#[test]
fn sessions_are_resumed_only_if_enabled() {
    for (client, server, resumed) in [(true, true, 4), (true, false, 0), (false, true, 0)] {
        let settings = |resumption| TlsSettings { resumption, ..TlsSettings::default() };
        let mut pair = pair(http(1000), Some(&settings(client)), Some(&settings(server)));
        for _ in 0..5 {
            pair.begin(0, FlowKind::Tcp);
            pair.run(secs(1000));
        }
        for side in [0, 1] {
            let counts = pair.counts(side);
            assert_eq!(
                (counts.secured, counts.resumed, counts.finished),
                (5, resumed, 5),
                "{client} {server}"
            );
        }
        pair.assert_nothing_left();
    }
}

#[test]
fn many_users_at_once_have_a_ticket_each() {
    let settings = TlsSettings { resumption: true, ..TlsSettings::default() };
    let mut pair = pair(http(1000), Some(&settings), Some(&settings));
    for _ in 0..3 {
        for _ in 0..100 {
            pair.begin(0, FlowKind::Tcp);
        }
        pair.run(secs(1000));
    }
    // More than a worker keeps for itself.
    assert_eq!((pair.counts(0).secured, pair.counts(0).resumed), (300, 200));
    pair.assert_nothing_left();
}

/// Settings of both sides with early data.
fn early() -> Tls {
    let settings = TlsSettings { resumption: true, ..TlsSettings::default() };
    let mut tls = Tls::new(&settings).expect("right settings");
    tls.enable_early_data().expect("TLS 1.3");
    tls
}

/// A pair of programs with early data.
fn early_pair(programs: (Program, Program)) -> Pair {
    let mut pair = Pair::new(1, &[programs]);
    let tls = early();
    for side in [0, 1] {
        pair.stacks[side].app_mut().apps.secure(ProgramId(side as u16), &tls);
    }
    pair
}

/// Sessions of both sides with early data that were offered, accepted and refused, and the octets.
fn early_data(pair: &Pair) -> [(u64, [u64; 2], [u64; 2]); 2] {
    let of = |side| pair.counts(side);
    [0, 1].map(of).map(|of| (of.early_offered, of.early_accepted, of.early_refused))
}

#[test]
fn a_client_with_a_ticket_sends_its_request_early_and_again_if_it_is_refused() {
    // The limit of the ticket includes the octets that are added to a record.
    for (post, limit) in [(3_000, u64::MAX), (100_000, 16_384 - 17)] {
        let client = HttpClient { requests: 2, post: Some(post), ..HttpClient::default() };
        let client = client.program("http").expect("right");
        let mut pair = early_pair((client, http_server("http", 50_000).expect("right")));
        pair.begin(0, FlowKind::Tcp);
        pair.run(secs(100));
        assert_eq!(early_data(&pair), [(0, [0; 2], [0; 2]); 2], "there was no ticket");
        let request = pair.counts(0).sent / 2;
        pair.begin(0, FlowKind::Tcp);
        pair.run(secs(200));
        let accepted = [1, request.min(limit)];
        assert_eq!(early_data(&pair), [(1, accepted, [0; 2]), (0, accepted, [0; 2])]);
        // A server that has forgotten the session.
        pair.stacks[1].app_mut().apps.secure(ProgramId(1), &early());
        pair.begin(0, FlowKind::Tcp);
        pair.run(secs(300));
        assert_eq!(early_data(&pair), [(2, accepted, accepted), (0, accepted, [0; 2])]);
        for side in [0, 1] {
            let counts = pair.counts(side);
            assert_eq!((counts.secured, counts.resumed, counts.insecure), (3, 1, 0), "{counts:?}");
            assert_eq!((counts.finished, counts.statuses[2]), (3, 6), "{counts:?}");
            assert_eq!(counts.protocol_errors, [0; ProtocolError::COUNT]);
        }
        assert_eq!(pair.counts(1).received, pair.counts(0).sent, "each request arrives once");
        assert_eq!(pair.counts(0).received, pair.counts(1).sent);
        pair.assert_nothing_left();
    }
}

#[test]
fn early_data_arrive_under_loss() {
    let client = HttpClient { requests: 2, post: Some(40_000), ..HttpClient::default() };
    let client = client.program("http").expect("right");
    let mut pair = early_pair((client, http_server("http", 50_000).expect("right")));
    (pair.loss, pair.reordered, pair.duplicated) = (30, 30, 30);
    for flow in 1..=20 {
        pair.begin(0, FlowKind::Tcp);
        pair.run(secs(flow * 1000));
    }
    let [(offered, accepted, refused), _] = early_data(&pair);
    assert_eq!((offered, accepted, refused), (19, [19, 19 * (16_384 - 17)], [0; 2]));
    for side in [0, 1] {
        assert_eq!((pair.counts(side).finished, pair.counts(side).statuses[2]), (20, 40));
    }
    pair.assert_nothing_left();
}

#[test]
fn programs_of_all_kinds_run_with_early_data() {
    for (client, server, octets, error) in [
        (&["send \"ping\"", "recv 4", "close"][..], &["recv 4", "send \"pong\""][..], 4, None),
        // The server begins.
        (&["recv 4", "send \"pong\"", "close"], &["send \"ping\"", "recv 4"], 0, None),
        // The client closes before the handshake is complete.
        (&["send \"bye\"", "close"], &["recv 3", "wait_peer_close"], 3, None),
        // The program's timer does not take the place of the handshake's.
        (
            &["send \"ping\"", "recv 4 within 1 s", "close"],
            &["recv 4", "wait_peer_close"],
            4,
            Some(ProtocolError::NoAnswer),
        ),
    ] {
        let program = |role, lines: &[&str]| {
            let lines = lines.iter().copied();
            Program::parse("p", role, squall_apps::Transport::Tcp, lines, Default::default())
        };
        let client = program(squall_apps::Role::Client, client).expect("right");
        let server = program(squall_apps::Role::Server, server).expect("right");
        let mut pair = early_pair((client, server));
        for flow in 1..=2 {
            pair.begin(0, FlowKind::Tcp);
            pair.run(secs(flow * 100));
        }
        let n = u64::from(octets > 0);
        let accepted = [n, octets];
        let expected = [(n, accepted, [0; 2]), (0, accepted, [0; 2])];
        assert_eq!(early_data(&pair), expected, "{:?}", pair.counts(0));
        if let Some(error) = error {
            assert_eq!(errors(&pair, 0, error), 2, "{:?}", pair.counts(0));
            assert_eq!((pair.counts(0).secured, pair.counts(0).resumed), (2, 1));
        } else {
            assert_eq!([0, 1].map(|side| pair.counts(side).finished), [2; 2]);
        }
        pair.assert_nothing_left();
    }
}

#[test]
fn a_program_that_has_finished_fails_if_its_early_data_are_followed_by_no_session() {
    let client = Program::client("c").send("bye").close().build().expect("right");
    let server = Program::server("s").recv(3).wait_peer_close().build().expect("right");
    let mut pair = early_pair((client, server));
    pair.begin(0, FlowKind::Tcp);
    pair.run(secs(100));
    let old = TlsSettings { versions: vec![TlsVersion::Tls12], ..TlsSettings::default() };
    let old = Tls::new(&old).expect("right settings");
    pair.stacks[1].app_mut().apps.secure(ProgramId(1), &old);
    pair.begin(0, FlowKind::Tcp);
    pair.run(secs(200));
    assert_eq!(early_data(&pair)[0], (1, [0; 2], [0; 2]));
    assert_eq!(errors(&pair, 0, ProtocolError::TlsAlert), 1, "{:?}", pair.counts(0));
    assert_eq!((pair.counts(0).secured, pair.counts(0).insecure), (1, 1));
    pair.assert_nothing_left();
}

#[test]
fn early_data_need_tls_1_3() {
    let mut tls = Tls::new(&TlsSettings {
        versions: vec![TlsVersion::Tls12],
        resumption: true,
        ..TlsSettings::default()
    });
    let why = tls.as_mut().expect("right settings").enable_early_data().expect_err("none");
    assert!(why.contains("TLS 1.3"), "{why}");
}

#[test]
fn incompatible_versions_are_reported_by_both_sides() {
    let of = |version: &[TlsVersion]| TlsSettings {
        versions: version.to_vec(),
        ..TlsSettings::default()
    };
    let (old, new) = (of(&[TlsVersion::Tls12]), of(&[]));
    let mut refused = pair(http(10), Some(&old), Some(&new));
    refused.begin(0, FlowKind::Tcp);
    refused.run(secs(1000));
    assert_eq!(errors(&refused, 0, ProtocolError::TlsAlert), 1, "{:?}", refused.counts(0));
    assert_eq!(errors(&refused, 1, ProtocolError::TlsIncompatible), 1, "{:?}", refused.counts(1));
    assert_eq!(
        (refused.counts(0).secured, refused.counts(0).insecure, refused.counts(0).finished),
        (0, 1, 0)
    );
    refused.assert_nothing_left();

    let mut met = pair(
        http(10),
        Some(&of(&[TlsVersion::Tls12])),
        Some(&of(&[TlsVersion::Tls12, TlsVersion::Tls13])),
    );
    met.begin(0, FlowKind::Tcp);
    met.run(secs(1000));
    assert_eq!((met.counts(0).secured, met.counts(0).finished, met.counts(1).finished), (1, 1, 1));
    met.assert_nothing_left();
}

#[test]
fn protocols_are_agreed_on() {
    let of = |names: &[&str]| TlsSettings {
        alpn: names.iter().map(|&n| n.into()).collect(),
        ..TlsSettings::default()
    };
    for (client, server, secured) in [
        (&["h2", "http/1.1"][..], &["http/1.1"][..], 1),
        (&["h2"], &["http/1.1"], 0),
        (&[], &["http/1.1"], 1),
    ] {
        let mut pair = pair(http(10), Some(&of(client)), Some(&of(server)));
        pair.begin(0, FlowKind::Tcp);
        pair.run(secs(1000));
        assert_eq!(pair.counts(0).secured, secured, "{client:?} {server:?}");
        assert_eq!(errors(&pair, 1, ProtocolError::TlsIncompatible), 1 - secured);
        pair.assert_nothing_left();
    }
}

/// Settings of clients that send the hello of a browser, with these protocols inside.
fn browser(name: &str, protocols: &[&str]) -> TlsSettings {
    let mut hello = Hello::named(name).expect("a browser of the list");
    let protocols: Vec<String> = protocols.iter().map(ToString::to_string).collect();
    hello.set_alpn(&protocols).expect("right");
    TlsSettings { hello: Some(Arc::new(hello)), ..TlsSettings::default() }
}

#[test]
fn http_runs_inside_of_sessions_with_the_hello_of_each_browser() {
    for name in Browser::all().map(|browser| browser.name) {
        for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
            let server = TlsSettings {
                versions: vec![version],
                alpn: vec!["http/1.1".into()],
                resumption: true,
                ..TlsSettings::default()
            };
            let client = browser(name, &["http/1.1"]);
            let mut pair = pair(http(5000), Some(&client), Some(&server));
            pair.loss = 20;
            pair.begin(0, FlowKind::Tcp);
            pair.run(secs(1000));
            for side in [0, 1] {
                let counts = pair.counts(side);
                assert_eq!(
                    (counts.secured, counts.resumed, counts.insecure, counts.truncated),
                    (1, 0, 0, 0),
                    "{name} {version:?} {counts:?}"
                );
                assert_eq!((counts.finished, counts.statuses[2]), (1, 3), "{name} {version:?}");
            }
            pair.assert_nothing_left();
        }
    }
}

#[test]
fn sessions_with_the_hello_of_a_browser_fail_with_the_usual_errors() {
    let first = Browser::all().next().expect("a browser").name;
    let any = browser(first, &["http/1.1"]);
    let both = browser(first, &["h2", "http/1.1"]);
    let h2 = TlsSettings { alpn: vec!["h2".into()], ..TlsSettings::default() };
    let (_, certificate) = authority();
    let verified = TlsSettings { ca: Some(authority().0), ..any.clone() };
    let own = TlsSettings { certificate: Some(certificate), ..TlsSettings::default() };
    for (client, server, error) in [
        (&any, Some(&h2), ProtocolError::TlsAlert),
        (&both, Some(&h2), ProtocolError::TlsIncompatible),
        (&verified, Some(&own), ProtocolError::TlsCertificate),
        (&any, None, ProtocolError::TlsBroken),
    ] {
        let mut pair = pair(http(10), Some(client), server);
        pair.begin(0, FlowKind::Tcp);
        pair.run(secs(1000));
        assert_eq!(errors(&pair, 0, error), 1, "{error:?} {:?}", pair.counts(0));
        assert_eq!(pair.counts(0).finished, 0);
        pair.assert_nothing_left();
    }
}

#[test]
fn a_certificate_is_verified_if_an_authority_is_given() {
    let (ca, certificate) = authority();
    let server = TlsSettings { certificate: Some(certificate), ..TlsSettings::default() };
    let verified =
        TlsSettings { ca: Some(ca), server_name: Some("a.test".into()), ..TlsSettings::default() };
    let other_name = TlsSettings { server_name: Some("b.test".into()), ..verified.clone() };
    for (client, server, errors_of_client) in [
        (&verified, &server, 0),
        (&other_name, &server, 1),
        // The certificate is signed by an unknown authority.
        (&verified, &TlsSettings::default(), 1),
    ] {
        let mut pair = pair(http(10), Some(client), Some(server));
        pair.begin(0, FlowKind::Tcp);
        pair.run(secs(1000));
        assert_eq!(pair.counts(0).secured, 1 - errors_of_client);
        assert_eq!(errors(&pair, 0, ProtocolError::TlsCertificate), errors_of_client);
        assert_eq!(errors(&pair, 1, ProtocolError::TlsAlert), errors_of_client);
        pair.assert_nothing_left();
    }
}

/// An authority, and a certificate for a.test that it signed, with its key.
fn authority() -> (Vec<u8>, (Vec<u8>, Vec<u8>)) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new([]).expect("right");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca = rcgen::CertifiedIssuer::self_signed(params, key).expect("a certificate");
    let leaf_key = rcgen::KeyPair::generate().expect("a key");
    let params = rcgen::CertificateParams::new(["a.test".to_owned()]).expect("right");
    let leaf = params.signed_by(&leaf_key, &ca).expect("a certificate");
    let certificate =
        (pem(leaf.der(), "CERTIFICATE"), pem(&leaf_key.serialize_der(), "PRIVATE KEY"));
    (pem(ca.der(), "CERTIFICATE"), certificate)
}

fn pem(der: &[u8], kind: &str) -> Vec<u8> {
    let mut text = String::new();
    // Base64 in lines of any length, as rustls accepts it.
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for three in der.chunks(3) {
        let word = three.iter().fold(0u32, |word, octet| word << 8 | u32::from(*octet))
            << (8 * (3 - three.len()));
        let digits = (0..4).map(|i| DIGITS[(word >> (18 - 6 * i)) as usize & 63] as char);
        text.extend(digits.take(three.len() + 1));
        text.extend(std::iter::repeat_n('=', 3 - three.len()));
    }
    format!("-----BEGIN {kind}-----\n{text}\n-----END {kind}-----\n").into_bytes()
}

#[test]
fn clients_show_a_certificate_to_servers_that_ask_for_one() {
    let ((ca, certificate), (_, of_another)) = (authority(), authority());
    for (versions, resumption) in [(&[][..], false), (&[TlsVersion::Tls12], false), (&[], true)] {
        let of = |client_certificate: Option<&(Vec<u8>, Vec<u8>)>| TlsSettings {
            client_certificate: client_certificate.cloned(),
            versions: versions.to_vec(),
            resumption,
            ..TlsSettings::default()
        };
        let server = TlsSettings { client_ca: Some(ca.clone()), ..of(None) };
        for (client, errors_of_server) in
            [(of(Some(&certificate)), 0), (of(None), 1), (of(Some(&of_another)), 1)]
        {
            let mut pair = pair(http(10), Some(&client), Some(&server));
            pair.begin(0, FlowKind::Tcp);
            pair.run(secs(1000));
            assert_eq!(pair.counts(1).secured, 1 - errors_of_server, "{:?}", pair.counts(1));
            assert_eq!(errors(&pair, 1, ProtocolError::TlsCertificate), errors_of_server);
            assert_eq!(
                errors(&pair, 0, ProtocolError::TlsAlert),
                errors_of_server,
                "{:?}",
                pair.counts(0)
            );
            assert_eq!(pair.counts(0).finished, 1 - errors_of_server);
            pair.assert_nothing_left();
        }
        // A certificate is sent only on request.
        let mut pair = pair(http(10), Some(&of(Some(&certificate))), Some(&of(None)));
        pair.begin(0, FlowKind::Tcp);
        pair.run(secs(1000));
        assert_eq!(pair.counts(0).finished, 1);
    }
}

#[test]
fn a_peer_without_tls_is_an_error_and_ends() {
    let settings = TlsSettings::default();
    let mut plain_client = pair(http(10), None, Some(&settings));
    plain_client.begin(0, FlowKind::Tcp);
    plain_client.run(secs(1000));
    assert_eq!(
        errors(&plain_client, 1, ProtocolError::TlsBroken),
        1,
        "{:?}",
        plain_client.counts(1)
    );
    plain_client.assert_nothing_left();
    let mut plain_server = pair(http(10), Some(&settings), None);
    plain_server.begin(0, FlowKind::Tcp);
    plain_server.run(secs(1000));
    assert_eq!(
        errors(&plain_server, 0, ProtocolError::TlsBroken),
        1,
        "{:?}",
        plain_server.counts(0)
    );
    plain_server.assert_nothing_left();
}

#[test]
fn a_silent_or_closing_peer_ends_the_handshake() {
    let settings = TlsSettings::default();
    let silent = Program::client("c").wait_peer_close().build().expect("right");
    let mut waited = pair((silent, http(10).1), None, Some(&settings));
    waited.begin(0, FlowKind::Tcp);
    waited.run(secs(1000));
    assert_eq!(errors(&waited, 1, ProtocolError::TlsTimeout), 1, "{:?}", waited.counts(1));
    waited.assert_nothing_left();
    let gone = Program::client("c").close().build().expect("right");
    let mut closed = pair((gone, http(10).1), None, Some(&settings));
    closed.begin(0, FlowKind::Tcp);
    closed.run(secs(1000));
    assert_eq!(errors(&closed, 1, ProtocolError::TlsClosed), 1, "{:?}", closed.counts(1));
    closed.assert_nothing_left();
}

#[test]
fn programs_with_several_variables_keep_none_when_a_session_fails() {
    let lines = ["set x 1", "set y 2", "loop 3", "send \"a\"", "recv 1", "end"];
    let client = Program::parse(
        "c",
        squall_apps::Role::Client,
        squall_apps::Transport::Tcp,
        lines,
        Default::default(),
    );
    let server = http(10).1;
    let settings = TlsSettings::default();
    let mut pair = pair((client.expect("right"), server), Some(&settings), None);
    pair.begin(0, FlowKind::Tcp);
    pair.run(secs(1000));
    assert_eq!(pair.counts(0).insecure, 1);
    pair.assert_nothing_left();
}

#[test]
fn wrong_settings_are_named() {
    let right = TlsSettings::default();
    let ((_, (certificate, _)), (_, (_, key))) = (authority(), authority());
    let chain = certificate.clone();
    for (settings, setting) in [
        (TlsSettings { server_name: Some("a b".into()), ..right.clone() }, "server_name"),
        (TlsSettings { alpn: vec![String::new()], ..right.clone() }, "alpn"),
        (TlsSettings { ca: Some(b"x".to_vec()), ..right.clone() }, "ca"),
        (
            TlsSettings { certificate: Some((b"x".to_vec(), b"y".to_vec())), ..right.clone() },
            "certificate",
        ),
        (
            TlsSettings {
                client_certificate: Some((b"x".to_vec(), b"y".to_vec())),
                ..right.clone()
            },
            "client_certificate",
        ),
        (
            TlsSettings { client_certificate: Some((certificate, b"y".to_vec())), ..right.clone() },
            "client_key",
        ),
        (TlsSettings { client_certificate: Some((chain, key)), ..right.clone() }, "client_key"),
        (TlsSettings { client_ca: Some(b"x".to_vec()), ..right.clone() }, "client_ca"),
    ] {
        assert_eq!(Tls::new(&settings).expect_err("wrong").setting, setting);
    }
}
