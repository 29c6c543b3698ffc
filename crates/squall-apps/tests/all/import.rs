//! Captures are converted to programs that send the same data.

use proptest::prelude::*;
use squall_apps::{Delays, End, Holes, Import, ImportOptions, Imported, Program, ProtocolError};
use squall_tcp::FlowKind;
use squall_wire::tcp_flags::{ACK, FIN, PSH, RST, SYN};

use crate::common::{Pair, capture::Capture, secs};

fn lines(program: &Program) -> Vec<String> {
    program.lines()
}

fn options() -> ImportOptions {
    ImportOptions::default()
}

fn only(import: &Import) -> &Imported {
    assert_eq!(import.conversations.len(), 1, "{import:?}");
    &import.conversations[0]
}

#[test]
fn a_conversation_has_each_sides_actions_and_pauses() {
    let mut capture = Capture::default();
    capture.handshake().wait_us(3_000).tcp(0, ACK | PSH, 1001, 5001, b"GET a\r\n").wait_us(20_000);
    capture
        .tcp(1, ACK, 5001, 1008, b"200 ")
        .tcp(1, ACK | PSH, 5005, 1008, b"OK\r\n")
        .wait_us(500_000);
    capture
        .tcp(0, ACK | PSH, 1008, 5009, b"BYE\r\n")
        .tcp(1, ACK | FIN, 5009, 1013, b"")
        .wait_us(2_000);
    capture.tcp(0, ACK | FIN, 1013, 5010, b"").tcp(1, ACK, 5010, 1014, b"");
    let import = capture.import(&options());
    let one = only(&import);
    // The capture spaces packets by 10 us, and the handshake shows a network delay of 10 us.
    assert_eq!(
        lines(&one.client),
        [
            "delay 3.01 ms",
            r#"send "GET a\r\n""#,
            "recv 8",
            "delay 500 ms",
            r#"send "BYE\r\n""#,
            "wait_peer_close",
            "delay 2 ms",
            "close"
        ]
    );
    assert_eq!(
        lines(&one.server),
        ["recv 7", "delay 20 ms", r#"send "200 OK\r\n""#, "recv 5", "close"]
    );
    let report = &one.report;
    assert_eq!((report.of_client.octets, report.of_server.octets), (12, 8));
    assert_eq!((report.handshake, report.end, report.holes.len()), (true, End::Closed, 0));
    assert_eq!((one.client_end.1, one.server_end.1), (40_000, 80));
    let dropped = capture_again(|capture| {
        capture.handshake().wait_us(9_000).tcp(0, ACK | PSH, 1001, 5001, b"a");
    });
    let halved = ImportOptions { delays: Delays::Scale(0.5), ..options() };
    assert_eq!(lines(&only(&dropped(&halved)).client)[0], "delay 4.505 ms");
    let none = ImportOptions { delays: Delays::Drop, ..options() };
    assert_eq!(lines(&only(&dropped(&none)).client)[0], r#"send "a""#);
}

fn capture_again(write: impl Fn(&mut Capture)) -> impl Fn(&ImportOptions) -> Import {
    move |options| {
        let mut capture = Capture::default();
        write(&mut capture);
        capture.import(options)
    }
}

#[test]
fn repeated_late_and_reordered_data_appears_once_and_in_order() {
    let mut capture = Capture::default();
    capture.handshake();
    capture.tcp(0, ACK, 1001, 5001, b"abc").tcp(0, ACK, 1007, 5001, b"ghi").wait_us(200_000);
    // The lost segment is retransmitted after a timeout, which is not a pause of the application.
    // Then segments overlap, one of them with different octets.
    capture.tcp(0, ACK, 1004, 5001, b"defGHI").tcp(0, ACK | PSH, 1001, 5001, b"aBc").tcp(
        1,
        ACK | PSH,
        5001,
        1010,
        b"ok",
    );
    let import = capture.import(&options());
    let one = only(&import);
    assert_eq!(lines(&one.client), [r#"send "abcdefghi""#, "recv 2"]);
    let report = &one.report.of_client;
    assert_eq!(
        (report.octets, report.again, report.conflicting, report.out_of_order),
        (9, 6, 4, 1)
    );
    assert_eq!(one.report.end, End::Open);
}

#[test]
fn holes_are_reported_and_cut_or_filled() {
    let write = capture_again(|capture| {
        capture.handshake();
        capture.tcp(0, ACK, 1001, 5001, b"abc").tcp(1, ACK | PSH, 5001, 1004, b"x");
        capture.tcp(0, ACK | PSH, 1104, 5002, b"def").tcp(1, ACK | PSH, 5002, 1107, b"y");
    });
    let cut = write(&options());
    let one = only(&cut);
    assert_eq!(lines(&one.client), [r#"send "abc""#, "recv 1"]);
    assert_eq!(lines(&one.server), ["recv 3", r#"send "x""#]);
    assert_eq!(one.report.holes.len(), 1);
    assert_eq!(one.report.holes[0].to_string(), "100 octets of the client from octet 3 on");
    assert_eq!(one.report.cut, 4);
    let filled = write(&ImportOptions { holes: Holes::Zeros, ..options() });
    let one = only(&filled);
    assert_eq!(
        lines(&one.client),
        [r#"send "abc""#, "recv 1", r#"send "${repeat:100:\x00}def""#, "recv 1"]
    );
    assert_eq!((one.report.holes.len(), one.report.cut), (1, 0));
}

#[test]
fn truncated_packets_are_holes() {
    let mut capture = Capture::default();
    capture.snaplen = 64;
    capture.handshake().tcp(0, ACK | PSH, 1001, 5001, &[b'a'; 100]).tcp(
        1,
        ACK | PSH,
        5001,
        1101,
        b"z",
    );
    let filled = capture.import(&ImportOptions { holes: Holes::Zeros, ..options() });
    let one = only(&filled);
    assert_eq!(
        lines(&one.client),
        [format!(r#"send "{}${{repeat:90:\x00}}""#, "a".repeat(10)), "recv 1".into()]
    );
    assert_eq!((one.report.holes[0].offset, one.report.holes[0].octets), (10, 90));
}

#[test]
fn ipv6_and_vlan_tags_parse() {
    for v6 in [false, true] {
        let mut capture = Capture::default();
        capture.v6 = v6;
        capture
            .handshake()
            .tcp(0, ACK | PSH, 1001, 5001, b"a")
            .tcp(1, ACK | PSH, 5001, 1002, b"bc")
            .udp(0, b"d");
        let import = capture.import(&options());
        let [tcp, udp] = &import.conversations[..] else { panic!("{import:?}") };
        assert_eq!((tcp.client_end.0.is_ipv6(), udp.client_end.0.is_ipv6()), (v6, v6));
        assert_eq!(lines(&tcp.client), [r#"send "a""#, "recv 2"]);
        assert_eq!(lines(&udp.client), [r#"send_packet "d""#]);
    }
}

#[test]
fn sequence_numbers_wrap() {
    let mut capture = Capture::default();
    capture.tcp(0, SYN, u32::MAX - 2, 0, b"").tcp(1, SYN | ACK, u32::MAX, u32::MAX - 1, b"");
    capture.tcp(0, ACK, u32::MAX - 1, 0, b"abc").tcp(0, ACK | PSH, 4, 0, b"gh").tcp(
        0,
        ACK | PSH,
        1,
        0,
        b"def",
    );
    capture.tcp(1, ACK | PSH, 0, 6, b"xyz");
    let import = capture.import(&options());
    let one = only(&import);
    assert_eq!(lines(&one.client), [r#"send "abcdefgh""#, "recv 3"]);
    assert_eq!(lines(&one.server), ["recv 8", r#"send "xyz""#]);
    assert_eq!(one.report.holes, []);
}

#[test]
fn without_a_handshake_the_ports_identify_the_client() {
    let mut capture = Capture::default();
    capture.tcp(1, ACK | PSH, 77, 99, b"banner").tcp(0, ACK | PSH, 99, 83, b"user");
    let import = capture.import(&options());
    let one = only(&import);
    assert_eq!((one.client_end.1, one.server_end.1, one.report.handshake), (40_000, 80, false));
    assert_eq!(lines(&one.client), ["recv 6", r#"send "user""#]);
}

#[test]
fn a_reset_and_a_reused_port_start_a_new_conversation() {
    let mut capture = Capture::default();
    capture.handshake().tcp(0, ACK | PSH, 1001, 5001, b"a").tcp(1, RST | ACK, 5001, 1002, b"");
    capture.tcp(0, SYN, 9000, 0, b"").tcp(0, SYN, 9000, 0, b"").tcp(1, SYN | ACK, 70, 9001, b"");
    capture.tcp(0, ACK, 9001, 71, b"").tcp(0, ACK | PSH, 9001, 71, b"b");
    let import = capture.import(&options());
    let [first, second] = &import.conversations[..] else { panic!("{import:?}") };
    assert_eq!(lines(&first.server), ["recv 1", "reset"]);
    assert_eq!(
        (lines(&first.client), first.report.end),
        (vec![r#"send "a""#.to_string()], End::Reset)
    );
    assert_eq!(lines(&second.client), [r#"send "b""#]);
    assert_eq!((first.client.name.as_str(), second.client.name.as_str()), ("test 1", "test 2"));
}

#[test]
fn datagrams_stay_separate_and_waits_are_limited() {
    let mut capture = Capture::default();
    capture
        .udp(0, b"one")
        .udp(0, b"two")
        .wait_us(50_000)
        .udp(1, b"three")
        .udp(1, b"")
        .wait_us(70_000_000)
        .udp(0, b"x");
    let import = capture.import(&options());
    let [first, second] = &import.conversations[..] else { panic!("{import:?}") };
    assert_eq!(
        lines(&first.client),
        [r#"send_packet "one""#, r#"send_packet "two""#, "recv_packets 1 within 5050.01 ms"]
    );
    assert_eq!(
        lines(&first.server),
        ["recv_packets 2 within 5 s", "delay 50.01 ms", r#"send_packet "three""#]
    );
    assert_eq!(first.report.of_server.empty, 1);
    assert_eq!(lines(&second.client), [r#"send_packet "x""#]);
}

#[test]
fn packets_in_no_conversation_are_counted() {
    let mut capture = Capture::default();
    capture.tcp(0, ACK, 1, 1, b"").tcp(1, ACK, 1, 1, b"");
    let import = capture.import(&options());
    assert_eq!((import.conversations.len(), import.packets, import.left_out.silent), (0, 2, 2));
    let mut zero = Capture::default();
    zero.ports[1] = 0;
    zero.udp(0, b"nothing can listen there").udp(1, b"yet it answers");
    let import = zero.import(&options());
    assert_eq!((import.conversations.len(), import.packets, import.left_out.port_zero), (0, 2, 2));
    let mut many = Capture::default();
    for port in 0..10 {
        many.ports[0] = 1024 + port;
        many.udp(0, b"x");
    }
    let file = many.file();
    let limit = |options| {
        let mut reader = squall_pcap::CaptureReader::from_read(file.as_slice()).expect("a capture");
        squall_apps::import(&mut reader, "x", &options).expect_err("a limit").to_string()
    };
    let error = limit(ImportOptions { most_conversations: 4, ..options() });
    assert!(error.starts_with("packet 5 begins a conversation beyond the limit of 4"), "{error}");
    let error = limit(ImportOptions { most_octets: 2000, ..options() });
    assert!(error.starts_with("at packet 4 the payload needs more than 2000 octets"), "{error}");
}

/// One side sends; the other may follow after a pause.
#[derive(Clone, Debug)]
struct Turn {
    side: usize,
    octets: Vec<u8>,
    pause_us: u64,
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let turn = (
        0usize..2,
        prop::collection::vec(any::<u8>(), 1..4000),
        prop_oneof![Just(0u64), 0u64..100_000],
    )
        .prop_map(|(side, octets, pause_us)| Turn { side, octets, pause_us });
    prop::collection::vec(turn, 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn an_imported_conversation_sends_the_captured_data(
        turns in turns(),
        segment in 1usize..1500,
        shuffle in any::<u64>(),
        closes in 0u8..4,
    ) {
        let mut capture = Capture::default();
        capture.handshake();
        let mut seq = [1001u32, 5001];
        let mut random = shuffle;
        let mut chance = |n: u64| { random = squall_units::mix(random, 1); random % n == 0 };
        for turn in &turns {
            capture.wait_us(turn.pause_us);
            let (side, ack) = (turn.side, seq[1 - turn.side]);
            let mut segments: Vec<(u32, &[u8])> = vec![];
            for piece in turn.octets.chunks(segment) {
                segments.push((seq[side], piece));
                seq[side] = seq[side].wrapping_add(piece.len() as u32);
            }
            // Segments are reordered, repeated and split differently, but none is missing.
            for i in 1..segments.len() {
                if chance(4) {
                    segments.swap(i - 1, i);
                }
            }
            for (i, (at, piece)) in segments.iter().enumerate() {
                let last = if i + 1 == segments.len() { PSH } else { 0 };
                capture.tcp(side, ACK | last, *at, ack, piece);
                if chance(5) {
                    capture.tcp(side, ACK, *at, ack, piece);
                }
                if chance(7) {
                    capture.tcp(side, ACK, at.wrapping_add(piece.len() as u32 / 2), ack, &piece[piece.len() / 2..]);
                }
            }
            capture.tcp(1 - side, ACK, ack, seq[side], b"");
        }
        if closes < 2 {
            let first = usize::from(closes);
            capture.tcp(first, FIN | ACK, seq[first], seq[1 - first], b"");
            capture.tcp(1 - first, FIN | ACK, seq[1 - first], seq[first].wrapping_add(1), b"");
        } else if closes == 2 {
            capture.tcp(0, FIN | ACK, seq[0], seq[1], b"");
        }
        let import = capture.import(&options());
        let one = only(&import);
        prop_assert!(one.report.holes.is_empty());
        let mut pair = Pair::new(3, &[(one.client.clone(), one.server.clone())]);
        let port = pair.begin(0, FlowKind::Tcp);
        pair.run(secs(100));
        for side in 0..2 {
            let sent: Vec<u8> = turns.iter().filter(|t| t.side != side).flat_map(|t| t.octets.clone()).collect();
            prop_assert!(pair.received(side, port) == sent, "side {side} heard something else: {:?}", lines(&one.client));
            let counts = pair.counts(side);
            prop_assert_eq!((counts.finished, counts.gone, counts.protocol_errors), (1, 1, [0; ProtocolError::COUNT]), "side {}", side);
        }
        pair.assert_nothing_left();
        // Printed programs parse to the same programs.
        for program in [&one.client, &one.server] {
            let texts = lines(program);
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let read = Program::parse(program.name.clone(), program.role, program.transport, texts, Default::default());
            prop_assert_eq!(&read.expect("what was written"), program);
        }
    }
}

/// A real capture (curl, Python's web server, datagrams): `BLESS=1` rewrites the text, and a person
/// reviews the difference.
#[test]
fn each_capture_becomes_its_reviewed_programs() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/import");
    let mut reader =
        squall_pcap::CaptureReader::open(folder.join("web-and-datagrams.pcap")).expect("a capture");
    let import = squall_apps::import(&mut reader, "web", &options()).expect("within all limits");
    let mut text = format!("{} packets, left out: {:?}\n", import.packets, import.left_out);
    for one in &import.conversations {
        let Imported { client_end, server_end, report, .. } = one;
        text += &format!("\n{} -> {}, {report:#?}\n", client_end.0, server_end.1);
        for (side, program) in [("client", &one.client), ("server", &one.server)] {
            text += &format!("{side}:\n  {}\n", lines(program).join("\n  "));
        }
    }
    let golden = folder.join("web-and-datagrams.txt");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&golden, &text).expect("the folder can be written to");
    }
    assert_eq!(
        text,
        std::fs::read_to_string(&golden).unwrap_or_default(),
        "BLESS=1 rewrites {}",
        golden.display()
    );
    // The programs can be played.
    let programs: Vec<_> =
        import.conversations.iter().map(|one| (one.client.clone(), one.server.clone())).collect();
    let mut pair = Pair::new(1, &programs);
    for (i, (client, _)) in programs.iter().enumerate() {
        let udp = client.transport == squall_apps::Transport::Udp;
        pair.begin(i as u16, if udp { FlowKind::Udp } else { FlowKind::Tcp });
    }
    pair.run(secs(100));
    let all = programs.len() as u64;
    assert_eq!((pair.counts(0).finished, pair.counts(1).finished), (all, all));
    pair.assert_nothing_left();
}
