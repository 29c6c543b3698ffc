//! Programs over streams of HTTP/3, over two stacks, in virtual time.

use std::time::Instant;

use squall_apps::{
    Apps, Check, Counts, Http3, Http3Counts, Listener, Program, ProgramId, ProtocolError, Role,
    Tls, TlsSettings,
    builtin::{HttpClient, http_server},
};
use squall_tcp::{ClassId, FlowId, FlowKind, Reason};
use squall_units::Nanos;

use crate::common::{
    Pair, SERVER, secs,
    streams::{checked, errors, http, program, slow},
};

fn h3() -> TlsSettings {
    TlsSettings { alpn: vec!["h3".into()], ..TlsSettings::default() }
}

/// A pair of programs. `http3`: the settings of each side; `None`: datagrams of its program.
fn pair(
    seed: u64,
    programs: (Program, Program),
    http3: [Option<Http3>; 2],
    tls: [&TlsSettings; 2],
) -> Pair {
    let mut pair = Pair::new(seed, &[programs]);
    for side in [0, 1] {
        let apps = &mut pair.stacks[side].app_mut().apps;
        let program = ProgramId(side as u16);
        let Some(settings) = http3[side] else { continue };
        let tls = Tls::new(tls[side]).expect("right settings");
        apps.over_http3(program, &settings, &tls, Instant::now());
        if side == 1 {
            listen(apps);
        }
    }
    pair
}

/// Listens again: over UDP.
fn listen(apps: &mut Apps<Counts>) {
    let program = ProgramId(1);
    apps.stop_listening(program);
    let (class, addresses, ports) = (ClassId(0), SERVER..=SERVER, 80..=80);
    apps.listen(Listener { program, class, addresses, ports, peers: None });
}

/// Both sides with these settings.
fn both(seed: u64, programs: (Program, Program), http3: Http3) -> Pair {
    pair(seed, programs, [Some(http3); 2], [&h3(); 2])
}

fn figures(pair: &Pair, side: usize) -> Http3Counts {
    pair.stacks[side].app().apps.http3_counts(ProgramId(side as u16)).expect("it is over HTTP/3")
}

/// Runs a flow in which nothing goes wrong, with this number of streams.
fn run_well(pair: &mut Pair, streams: u64) {
    let port = pair.begin(0, FlowKind::Udp);
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
        // Streams share packets.
        assert!(figures.packets_sent > streams / 4, "{figures:?}");
    }
    for (from, to) in [(0, 1), (1, 0)] {
        assert_eq!(pair.counts(to).received, figures(pair, from).sent_octets, "from {from}");
    }
    assert_eq!(pair.stacks[0].app().ended, [(port, Reason::Closed)]);
    pair.assert_nothing_left();
}

#[test]
fn a_client_with_a_table_of_fields_closes_without_an_answer() {
    let lines = [r#"send "GET / HTTP/1.1\r\nHost: a\r\n\r\n""#, "close"];
    let server = ["recv_until \"\\r\\n\\r\\n\"", "delay 100 s"];
    let programs = (program(Role::Client, &lines), program(Role::Server, &server));
    let idle = Nanos(9_000_000_000);
    let mut pair = both(1, programs, Http3 { qpack_table: 4_096, idle, ..Http3::default() });
    pair.begin(0, FlowKind::Udp);
    pair.run(secs(1000));
    assert_eq!(pair.counts(0).finished, 1, "{:?}", pair.counts(0));
}

#[test]
fn each_request_is_a_stream_and_fields_are_compressed() {
    let client = HttpClient { requests: 3, ..HttpClient::default() };
    let mut pair = both(1, http(&client, 100_000), Http3::default());
    run_well(&mut pair, 3);
    assert_eq!((pair.counts(0).requested, pair.counts(0).transactions), (3, 3));
    assert_eq!(pair.stacks[0].app().apps.requests(ProgramId(0)), Some(3));
    let sent = figures(&pair, 0);
    assert!(sent.compressed_octets_sent < sent.head_octets_sent, "{sent:?}");
    assert_eq!(sent.head_octets_sent, figures(&pair, 1).head_octets_received);
    assert_eq!(sent.compressed_octets_sent, figures(&pair, 1).compressed_octets_received);
    for of in [sent, figures(&pair, 1)] {
        assert_eq!((of.packets_lost, of.retries, of.version_negotiations), (0, 0, 0));
    }
}

#[test]
fn lanes_share_a_connection_under_loss_reordering_and_duplication() {
    let client = HttpClient { requests: 3, post: Some(60_000), ..HttpClient::default() };
    // A server whose client's last packet is lost ends before the flow does by itself.
    let idle = Nanos(9_000_000_000);
    let settings = Http3 { streams: 4, window: 30_000, idle, ..Http3::default() };
    let mut lost = 0;
    for seed in 1..=6 {
        let mut pair = both(seed, http(&client, 80_000), settings);
        (pair.loss, pair.reordered, pair.duplicated) = (20, 50, 30);
        assert_eq!(pair.stacks[0].app().apps.requests(ProgramId(0)), Some(12));
        run_well(&mut pair, 12);
        lost += figures(&pair, 0).packets_lost + figures(&pair, 1).packets_lost;
    }
    assert!(lost > 0);
}

#[test]
fn a_table_of_fields_saves_octets_in_whatever_order_streams_arrive() {
    let client = HttpClient {
        requests: 4,
        headers: vec![("X-Trace".into(), "0123456789abcdef".into())],
        ..HttpClient::default()
    };
    let idle = Nanos(9_000_000_000);
    let mut octets = [0; 2];
    for (table, octets) in [0, 4_096].into_iter().zip(&mut octets) {
        let settings = Http3 { streams: 4, qpack_table: table, idle, ..Http3::default() };
        for seed in 1..=4 {
            let mut pair = both(seed, http(&client, 3_000), settings);
            (pair.loss, pair.reordered, pair.duplicated) = (30, 200, 30);
            run_well(&mut pair, 16);
            let of = [0, 1].map(|side| figures(&pair, side));
            assert_eq!(of[0].compressed_octets_sent, of[1].compressed_octets_received);
            assert_eq!(of[1].compressed_octets_sent, of[0].compressed_octets_received);
            *octets += of[0].compressed_octets_sent + of[1].compressed_octets_sent;
        }
    }
    assert!(octets[1] * 2 < octets[0], "{octets:?}");
}

#[test]
fn a_client_has_no_more_streams_than_the_server_allows() {
    let client = HttpClient { requests: 5, ..HttpClient::default() };
    let of = |streams, max_streams| Http3 { streams, max_streams, ..Http3::default() };
    let settings = [Some(of(8, 100)), Some(of(1, 2))];
    let mut pair = pair(1, http(&client, 20_000), settings, [&h3(); 2]);
    run_well(&mut pair, 40);
}

#[test]
fn a_server_lets_its_clients_prove_their_addresses() {
    let client = HttpClient { requests: 2, ..HttpClient::default() };
    let settings = Http3 { retry: true, ..Http3::default() };
    let mut pair = both(1, http(&client, 1_000), settings);
    run_well(&mut pair, 2);
    assert_eq!((figures(&pair, 0).retries, figures(&pair, 1).retries), (1, 1));
}

#[test]
fn a_client_that_returns_sends_its_requests_early_and_again_if_they_are_refused() {
    let client = HttpClient { requests: 2, post: Some(3_000), ..HttpClient::default() };
    let mut pair = Pair::new(1, &[http(&client, 5_000)]);
    let mut tls = Tls::new(&h3()).expect("right settings");
    tls.enable_early_data().expect("TLS 1.3");
    // A connection has 4 requests, and those that are sent again do not count twice.
    let settings = Http3 { streams: 2, migrate_after: 5, ..Http3::default() };
    let server = |pair: &mut Pair, tls: &Tls| {
        let apps = &mut pair.stacks[1].app_mut().apps;
        apps.over_http3(ProgramId(1), &settings, tls, Instant::now());
        listen(apps);
    };
    pair.stacks[0].app_mut().apps.over_http3(ProgramId(0), &settings, &tls, Instant::now());
    server(&mut pair, &tls);
    let early = |pair: &Pair| {
        [0, 1].map(|side| figures(pair, side)).map(|of| (of.early_accepted, of.early_refused))
    };
    for (flows, expected) in [(1, [(0, 0), (0, 0)]), (2, [(1, 0), (1, 0)])] {
        pair.begin(0, FlowKind::Udp);
        pair.run(secs(flows * 100));
        assert_eq!(early(&pair), expected);
        let counts = [0, 1].map(|side| pair.counts(side));
        assert_eq!(counts.map(|of| of.statuses[2]), [4 * flows; 2], "{counts:?}");
        assert_eq!(counts.map(|of| of.established), [flows; 2], "{counts:?}");
    }
    assert_eq!(pair.counts(1).received, figures(&pair, 0).sent_octets);
    // A server that has forgotten the session, and all counts.
    let mut other = Tls::new(&h3()).expect("right settings");
    other.enable_early_data().expect("TLS 1.3");
    server(&mut pair, &other);
    pair.begin(0, FlowKind::Udp);
    pair.run(secs(1000));
    assert_eq!(early(&pair), [(1, 1), (0, 0)]);
    assert_eq!((pair.counts(0).statuses[2], pair.counts(0).finished), (12, 3));
    assert_eq!((figures(&pair, 0).streams, figures(&pair, 1).streams), (12, 4));
    assert_eq!(pair.counts(1).received, figures(&pair, 0).sent_octets);
    assert_eq!(pair.counts(0).protocol_errors, [0; ProtocolError::COUNT]);
    assert_eq!(figures(&pair, 0).migrations, 0);
    pair.assert_nothing_left();
}

#[test]
fn moves_that_are_due_at_once_follow_one_another() {
    let client = HttpClient { requests: 9, ..HttpClient::default() };
    let of = Http3 { migrate_after: 4, rebind_after: 4, ..Http3::default() };
    let mut pair = both(1, http(&client, 1_000), of);
    pair.begin(0, FlowKind::Udp);
    pair.run(secs(1000));
    assert_eq!(pair.counts(0).statuses[2], 9);
    let [client, server] = [0, 1].map(|side| figures(&pair, side));
    assert!(client.migrations > 0 && client.rebindings > 0, "{client:?}");
    assert_eq!(server.migrations, client.migrations + client.rebindings);
}

#[test]
fn a_connection_goes_on_when_its_client_moves() {
    let idle = Nanos(9_000_000_000);
    for (migrate_after, rebind_after, moves) in [(5, 0, [4, 0]), (0, 7, [0, 3]), (5, 11, [4, 2])] {
        for (seed, streams, loss) in [(1, 1, 0), (2, 3, 30), (3, 3, 30)] {
            let requests = 24 / u32::from(streams);
            let client = HttpClient { requests, post: Some(9_000), ..HttpClient::default() };
            let of = Http3 { streams, migrate_after, rebind_after, idle, ..Http3::default() };
            let mut pair = both(seed, http(&client, 60_000), of);
            pair.loss = loss;
            pair.begin(0, FlowKind::Udp);
            pair.run(secs(1000));
            let of = [0, 1].map(|side| figures(&pair, side));
            assert!(of[0].not_moved.is_empty() && of[0].paths_failed == 0, "{of:?}");
            let moved = [of[0].migrations, of[0].rebindings];
            let seen = (of[1].migrations, of[1].paths_failed, of[1].strays);
            // Loss delays the confirmation of the handshake and the validation of paths.
            let exact = moved == moves && seen == (moves.iter().sum(), 0, 0);
            assert!(loss > 0 || exact, "{moved:?} of {moves:?}, {seen:?}");
            assert!(moved.iter().sum::<u64>() > 0 && seen.0 > 0, "{of:?}");
            for side in [0, 1] {
                let counts = pair.counts(side);
                assert_eq!((counts.established, counts.finished, counts.gone), (1, 1, 1));
                assert_eq!((counts.statuses[2], of[side].streams), (24, 24), "{side}");
                assert_eq!(counts.protocol_errors, [0; ProtocolError::COUNT], "{counts:?}");
                assert_eq!(pair.counts(1 - side).received, of[side].sent_octets);
            }
            let server = pair.stacks[1].counters(ClassId(0));
            assert_eq!(server.accepts, 1, "the flow has moved, too");
            pair.assert_nothing_left();
        }
    }
}

#[test]
fn a_client_moves_to_the_port_of_a_connection_that_the_server_still_has() {
    let idle = Nanos(9_000_000_000);
    for (migrate_after, rebind_after) in [(2, 0), (0, 2)] {
        // The server waits for more of the first request.
        let post = Some(100_000);
        let client = HttpClient { requests: 3, post, ..HttpClient::default() };
        let of = Http3 { migrate_after, rebind_after, idle, ..Http3::default() };
        let mut pair = both(1, http(&client, 60_000), of);
        let port = pair.begin(0, FlowKind::Udp);
        let mut until = Nanos::ZERO;
        while figures(&pair, 1).connections == 0 {
            until = until + Nanos(10_000);
            pair.run(until);
        }
        // The client forgets the connection, and has its port again.
        let client = &mut pair.stacks[0];
        client.with(pair.now, FlowId(0), |_, socket| socket.abort()).expect("the first flow");
        client.app_mut().left.insert(port);
        pair.begin(0, FlowKind::Udp);
        pair.port = port;
        pair.run(secs(1000));
        let of = [0, 1].map(|side| figures(&pair, side));
        let moved = (of[0].migrations + of[0].rebindings, of[1].migrations, of[1].paths_failed);
        assert_eq!((moved, of[0].not_moved.len()), ((1, 1, 0), 0), "{of:?}");
        assert_eq!(pair.stacks[0].app().ended[1..], [(port, Reason::Closed)]);
        let counts = pair.counts(0);
        assert_eq!((counts.finished, counts.gone, counts.statuses[2]), (1, 2, 3), "{counts:?}");
        assert_eq!(pair.stacks[1].counters(ClassId(0)).accepts, 2);
        let counts = pair.counts(1);
        assert_eq!((counts.finished, counts.gone), (1, 2), "{counts:?}");
        assert_eq!(errors(&pair, 1, ProtocolError::QuicTimeout), 1, "{counts:?}");
        pair.assert_nothing_left();
    }
}

#[test]
fn a_server_goes_back_from_a_path_that_it_cannot_use() {
    let client = HttpClient { requests: 4, ..HttpClient::default() };
    let settings = Http3 { migrate_after: 2, ..Http3::default() };
    let mut pair = both(1, http(&client, 60_000), settings);
    let port = pair.begin(0, FlowKind::Udp);
    pair.unreachable = Some(port + 1);
    pair.run(secs(1000));
    let of = [0, 1].map(|side| figures(&pair, side));
    assert!(of[0].migrations >= 1 && of[1].migrations >= 1, "{of:?}");
    assert!(of[1].paths_failed >= 1, "{of:?}");
    assert_eq!((pair.counts(0).statuses[2], pair.counts(0).finished), (1, 0), "{of:?}");
    assert_eq!(errors(&pair, 0, ProtocolError::QuicTimeout), 1, "{:?}", pair.counts(0));
    pair.assert_nothing_left();
}

#[test]
fn a_client_stays_without_another_port_or_where_the_server_forbids_to_move() {
    let client = HttpClient { requests: 5, ..HttpClient::default() };
    let settings = Http3 { migrate_after: 2, ..Http3::default() };
    for forbid_migration in [false, true] {
        let of = Http3 { forbid_migration, ..settings };
        let mut pair = both(1, http(&client, 1_000), of);
        pair.moves = forbid_migration;
        run_well(&mut pair, 5);
        let of = figures(&pair, 0);
        let reasons = if forbid_migration { [("forbidden", 1)] } else { [("no_port", 2)] };
        assert_eq!((of.migrations, of.not_moved), (0, reasons.into()));
        assert_eq!(figures(&pair, 1).migrations, 0);
    }
    // A NAT needs no permission.
    let of = Http3 { rebind_after: 2, forbid_migration: true, ..Http3::default() };
    let mut pair = both(1, http(&client, 1_000), of);
    pair.begin(0, FlowKind::Udp);
    pair.run(secs(1000));
    assert_eq!((figures(&pair, 0).rebindings, figures(&pair, 1).migrations), (1, 0));
    assert!(figures(&pair, 1).strays > 0);
    assert_eq!(errors(&pair, 0, ProtocolError::QuicTimeout), 1, "{:?}", pair.counts(0));
    pair.assert_nothing_left();
}

#[test]
fn a_client_whose_only_request_was_early_closes_after_the_handshake() {
    let mut pair = Pair::new(1, &[http(&HttpClient::default(), 100)]);
    let mut tls = Tls::new(&h3()).expect("right settings");
    tls.enable_early_data().expect("TLS 1.3");
    let settings = Http3::default();
    for side in [0, 1] {
        let (apps, program) = (&mut pair.stacks[side].app_mut().apps, ProgramId(side as u16));
        apps.over_http3(program, &settings, &tls, Instant::now());
    }
    listen(&mut pair.stacks[1].app_mut().apps);
    for flow in 1..=4 {
        pair.begin(0, FlowKind::Udp);
        pair.run(secs(flow * 100));
    }
    for side in [0, 1] {
        let counts = pair.counts(side);
        assert_eq!(counts.protocol_errors, [0; ProtocolError::COUNT], "{side}: {counts:?}");
        assert_eq!((counts.finished, figures(&pair, side).early_accepted), (4, 3), "{side}");
    }
    pair.assert_nothing_left();
}

#[test]
fn a_client_can_begin_with_a_version_that_no_server_knows() {
    let client = HttpClient { requests: 2, ..HttpClient::default() };
    let idle = Nanos(9_000_000_000);
    let settings = Http3 { reserved_version: true, idle, ..Http3::default() };
    for (seed, loss) in [(1, 0), (2, 300), (3, 300)] {
        let mut pair = both(seed, http(&client, 1_000), settings);
        pair.loss = loss;
        pair.begin(0, FlowKind::Udp);
        // The first packet is sent three times, each of which may be lost.
        pair.run(secs(1000));
        let of = [0, 1].map(|side| figures(&pair, side));
        if of[0].version_negotiations == 0 {
            assert_eq!(errors(&pair, 0, ProtocolError::QuicTimeout), 1, "{:?}", pair.counts(0));
            continue;
        }
        assert_eq!(of[0].version_negotiations, 1);
        assert!(of[1].version_negotiations >= 1);
        assert!(loss > 0 || pair.counts(0).statuses[2] == 2, "{:?}", pair.counts(0));
        pair.assert_nothing_left();
    }
    let mut pair = pair(1, http(&client, 10), [Some(settings), None], [&h3(); 2]);
    pair.begin(0, FlowKind::Udp);
    pair.run(secs(1000));
    assert_eq!((pair.counts(0).finished, pair.counts(0).gone), (0, 1), "nothing listens there");
    pair.assert_nothing_left();
}

#[test]
fn answers_are_evaluated_as_those_of_http1() {
    let mut good = both(1, checked(), Http3::default());
    good.begin(0, FlowKind::Udp);
    good.run(secs(1000));
    assert_eq!((good.counts(0).finished, good.counts(1).finished), (1, 1), "{:?}", good.counts(0));
    assert_eq!(good.counts(0).statuses[2], 2);
    good.assert_nothing_left();

    let client = HttpClient { checks: vec![Check::Status(201)], ..HttpClient::default() };
    let mut failed = both(1, http(&client, 10), Http3 { streams: 2, ..Http3::default() });
    failed.begin(0, FlowKind::Udp);
    failed.run(secs(1000));
    assert_eq!(errors(&failed, 0, ProtocolError::CheckStatus), 1, "one lane ends the flow");
    assert_eq!((failed.counts(0).finished, failed.counts(0).gone), (0, 1));
    failed.assert_nothing_left();
}

#[test]
fn each_lane_has_a_timer_of_its_own() {
    let settings = Http3 { streams: 3, ..Http3::default() };
    for (wait, answered) in [("uniform 10 ms 900 ms", true), ("3 s", false)] {
        let within = Some(Nanos(1_000_000_000));
        let client = HttpClient { requests: 4, within, ..HttpClient::default() };
        let client = client.program("p").expect("right");
        let mut pair = both(1, (client, slow(wait)), settings);
        pair.begin(0, FlowKind::Udp);
        pair.run(secs(1000));
        assert_eq!(pair.counts(0).finished, u64::from(answered), "{wait}: {:?}", pair.counts(0));
        assert_eq!(errors(&pair, 0, ProtocolError::NoAnswer), u64::from(!answered));
        pair.assert_nothing_left();
    }
}

#[test]
fn a_request_without_an_awaited_answer_arrives_before_the_connection_closes() {
    let lines = [r#"send "GET / HTTP/1.1\r\nHost: a\r\n\r\n""#, "close"];
    let server = http_server("http", 10).expect("right");
    let settings = Http3 { idle: Nanos(9_000_000_000), ..Http3::default() };
    let mut pair = both(1, (program(Role::Client, &lines), server), settings);
    pair.loss = 100;
    pair.begin(0, FlowKind::Udp);
    pair.run(secs(1000));
    assert_eq!((pair.counts(0).finished, pair.counts(0).gone), (1, 1), "{:?}", pair.counts(0));
    assert_eq!(figures(&pair, 1).heads_received, 1, "{:?}", figures(&pair, 1));
    pair.assert_nothing_left();
}

#[test]
fn a_server_that_does_not_know_http3_or_the_certificate_is_counted() {
    let client = HttpClient::default();
    let none = TlsSettings { alpn: vec!["h2".into()], ..TlsSettings::default() };
    let mut pair = pair(1, http(&client, 10), [Some(Http3::default()); 2], [&h3(), &none]);
    pair.begin(0, FlowKind::Udp);
    pair.run(secs(1000));
    assert_eq!(errors(&pair, 0, ProtocolError::TlsAlert), 1, "{:?}", pair.counts(0));
    assert_eq!(errors(&pair, 1, ProtocolError::TlsIncompatible), 1, "{:?}", pair.counts(1));
    assert_eq!((pair.counts(0).insecure, pair.counts(0).established), (1, 0));
    pair.assert_nothing_left();
}

#[test]
fn a_silent_server_is_given_up_after_the_idle_timeout() {
    let mut pair = both(1, http(&HttpClient::default(), 10), Http3::default());
    pair.loss = 1000;
    pair.begin(0, FlowKind::Udp);
    pair.run(secs(1000));
    assert_eq!(errors(&pair, 0, ProtocolError::QuicTimeout), 1, "{:?}", pair.counts(0));
    assert_eq!((pair.counts(0).finished, pair.counts(0).gone), (0, 1));
    pair.assert_nothing_left();
}

#[test]
fn a_server_offers_its_versions_and_ignores_other_datagrams() {
    // A packet of a reserved version (RFC 9000 section 15) with connection IDs of 8 octets.
    let mut unknown = vec![0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8];
    unknown.extend([1; 8]);
    unknown.push(8);
    unknown.extend([2; 8]);
    unknown.resize(1200, 0);
    let client = Program::udp_client("c")
        .send_octets(vec![0x40; 30])
        .send_octets(unknown)
        .recv_packets(1, Some(Nanos(1_000_000_000)));
    let programs = (client.build().expect("right"), http_server("s", 10).expect("right"));
    let mut pair = pair(1, programs, [None, Some(Http3::default())], [&h3(); 2]);
    let port = pair.begin(0, FlowKind::Udp);
    pair.run(secs(1000));
    let server = figures(&pair, 1);
    assert_eq!((server.version_negotiations, server.strays, server.connections), (1, 0, 0));
    assert_eq!(pair.stacks[1].strays().late, 1, "a short header begins no flow");
    // A Version Negotiation packet (RFC 9000 section 17.2.1) with the IDs in the other order.
    let answer = pair.received(0, port);
    assert_eq!((answer[0] & 0x80, &answer[1..5]), (0x80, &[0; 4][..]));
    assert_eq!((&answer[6..14], &answer[15..23]), (&[2; 8][..], &[1; 8][..]));
    assert_eq!(pair.counts(0).finished, 1, "{:?}", pair.counts(0));
    pair.assert_nothing_left();
}
