//! Peers that want to cost memory or time: each meets its bound, and is counted.

use super::*;
use crate::h2::{Why, setting};

const CALM: Code = Code::ENHANCE_YOUR_CALM;

/// Receives `input` until the connection ends; returns how often, and why.
fn until_the_end(server: &mut End, input: impl Fn(u32) -> Vec<u8>, answers: bool) -> (u32, Error) {
    for nth in 0..100_000 {
        if let Err(error) = server.receive(&input(nth)) {
            assert!(server.connection.is_over());
            assert_eq!(server.receive(&input(nth)), Ok(()), "what follows is ignored");
            let sent = server.sent();
            let (kind, _, payload) = sent.last().expect("GOAWAY is sent");
            assert_eq!((*kind, code_of(payload)), (kind::GOAWAY, error.code));
            return (nth, error);
        }
        if answers {
            server.sent();
        }
        let most = 16 << 10;
        assert!(server.connection.memory() <= most, "{}", server.connection.memory());
    }
    panic!("the peer never meets a bound");
}

fn error(why: Why) -> Error {
    Error { code: CALM, why }
}

#[test]
fn a_flood_of_continuations_ends_by_frames_and_by_octets() {
    // 8 frames, or 16 KiB with those of the first frame.
    for (octets, most) in [(0, 9), (1, 9), (4000, 4)] {
        let mut server = End::server().ready();
        let fragment = vec![0; octets];
        let (nth, why) = until_the_end(
            &mut server,
            |nth| match nth {
                0 => raw(kind::HEADERS, 0, 1, &fragment),
                _ => raw(kind::CONTINUATION, 0, 1, &fragment),
            },
            true,
        );
        assert_eq!((nth, why), (most, error(Why::ContinuationFlood)));
        assert_eq!(server.seen.counters.continuation_floods, 1);
        assert_eq!(server.connection.memory(), 0);
    }
}

/// Inserts an entry of about 4,000 octets, and refers to it `references` times.
fn bomb(references: usize) -> Vec<u8> {
    let mut out = block(&GET);
    out.extend_from_slice(b"\x40\x01a\x7f\xe1\x1d");
    out.extend(vec![b'x'; 3936]);
    out.extend(vec![0xbe; references]);
    out
}

#[test]
fn a_head_that_is_too_long_is_answered_by_431_and_the_table_stays_in_step() {
    let mut server = End::server().ready();
    server.receive(&request(1, &bomb(4))).unwrap();
    let sent = server.sent();
    assert_eq!(sent[0], (kind::HEADERS, 1, b"\x08\x03431".to_vec()));
    assert_eq!(sent[1], (kind::RST_STREAM, 1, vec![0; 4]));
    assert!(server.take_events().is_empty());
    assert_eq!(server.seen.counters.heads_too_long, 1);
    // The entry of the refused request is in the table.
    server.receive(&request(3, &[&block(&GET)[..], b"\xbe"].concat())).unwrap();
    assert_eq!(server.take_events(), [Event::Head(3, HeadKind::Request, 0, true)]);
}

#[test]
fn a_bomb_ends_the_connection_before_it_is_unpacked() {
    let mut server = End::server().ready();
    let why = server.receive(&request(1, &bomb(10_000))).unwrap_err();
    assert_eq!(why, error(Why::HeadTooLong));
    let counters = &server.seen.counters;
    assert_eq!((counters.errors, counters.heads_too_long), (1, 0), "it is counted once");
    let most = 3 * server.limits.head as usize;
    assert!(server.scratch.memory() <= most, "{}", server.scratch.memory());
}

fn opened_and_reset(nth: u32) -> Vec<u8> {
    join(&[request(2 * nth + 1, &block(&GET)), reset(2 * nth + 1, Code::CANCEL)])
}

#[test]
fn a_rapid_reset_ends_after_a_hundred() {
    let mut server = End::server().ready();
    let (nth, why) = until_the_end(&mut server, opened_and_reset, true);
    assert_eq!((nth, why), (100, error(Why::ResetFlood)));
    let counters = server.seen.counters;
    assert_eq!((counters.reset_floods, counters.resets_received), (1, 101));
}

#[test]
fn streams_that_end_well_give_resets_back() {
    let mut server = End::server().ready();
    for nth in 0..500 {
        server.receive(&opened_and_reset(2 * nth)).unwrap();
        server.receive(&request(4 * nth + 3, &block(&GET))).unwrap();
        assert!(server.head(4 * nth + 3, true, &OK));
    }
    assert_eq!(server.connection.streams(), 0);
}

#[test]
fn resets_that_the_peer_makes_this_end_send_count_too() {
    type Fault = fn(u32) -> Vec<u8>;
    let faults: [(&str, Fault); 4] = [
        ("a window of 0", |id| join(&[opening(id, &block(&GET)), window(id, 0)])),
        ("a window that is too large", |id| {
            join(&[opening(id, &block(&GET)), window(id, (1 << 31) - 1)])
        }),
        ("a malformed request", |id| request(id, &block(&GET[1..]))),
        ("data after the end", |id| join(&[request(id, &block(&GET)), data(id, true, b"x")])),
    ];
    for (name, fault) in faults {
        let mut server = End::server().ready();
        let (nth, why) = until_the_end(&mut server, |nth| fault(2 * nth + 1), true);
        assert_eq!((nth, why), (100, error(Why::ResetFlood)), "{name}");
        assert_eq!(server.seen.counters.resets_sent.iter().sum::<u64>(), 101, "{name}");
    }
}

#[test]
fn pings_and_settings_end_if_their_answers_cannot_be_sent() {
    for (input, most) in [
        (ping(b"01234567"), 60), // 1 KiB, of 17 octets each
        (settings(&[]), 64),
        (join(&[settings(&[(setting::INITIAL_WINDOW_SIZE, 0)]), ping(b"01234567")]), 32),
    ] {
        let mut server = End::server().ready();
        let (nth, why) = until_the_end(&mut server, |_| input.clone(), false);
        assert_eq!((nth, why), (most, error(Why::ControlFlood)));
        assert_eq!(server.seen.counters.control_floods, 1);
    }
    let mut server = End::server().ready();
    for _ in 0..10_000 {
        server.receive(&ping(b"01234567")).unwrap();
        assert_eq!(server.sent(), [(kind::PING, 0, b"01234567".to_vec())]);
    }
}

#[test]
fn empty_frames_end_after_a_hundred() {
    for empty in [data(1, false, b""), raw(kind::DATA, flag::PADDED, 1, &[3, 0, 0, 0])] {
        let mut server = End::server().ready();
        server.receive(&opening(1, &block(&POST))).unwrap();
        let (nth, why) = until_the_end(&mut server, |_| empty.clone(), true);
        assert_eq!((nth, why), (100, error(Why::EmptyFlood)));
        assert_eq!(server.seen.counters.empty_floods, 1);
        assert_eq!(server.seen.events.len(), 1, "none of them is reported");
    }
}

#[test]
fn streams_above_the_limit_are_refused_and_the_others_go_on() {
    let mut server = End::server().ready();
    for nth in 0..110 {
        server.receive(&opening(2 * nth + 1, &block(&POST))).unwrap();
        server.receive(&data(2 * nth + 1, false, b"late")).unwrap();
    }
    assert_eq!((server.connection.streams(), server.seen.counters.refused), (100, 10));
    let resets = server.sent().into_iter().filter(|(kind, ..)| *kind == kind::RST_STREAM);
    for (nth, (_, id, code)) in (100..).zip(resets) {
        assert_eq!((id, code_of(&code)), (2 * nth + 1, Code::REFUSED_STREAM));
    }
    assert!(server.head(1, true, &OK));
    server.receive(&data(1, true, b"end")).unwrap();
    assert_eq!(server.connection.streams(), 99);
    server.receive(&request(221, &block(&GET))).unwrap();
    assert_eq!(server.connection.streams(), 100);
}

#[test]
fn streams_that_wait_for_a_window_cost_32_octets_each() {
    let mut server = End::server().ready();
    server.receive(&settings(&[(setting::INITIAL_WINDOW_SIZE, 0)])).unwrap();
    for nth in 0..100 {
        server.receive(&request(2 * nth + 1, &block(&GET))).unwrap();
        server.head(2 * nth + 1, false, &OK);
        assert_eq!(server.data(2 * nth + 1, 1 << 30, true), 0);
    }
    server.out.clear();
    assert!(server.connection.memory() <= 128 * size_of::<Stream>());
}

#[test]
fn credit_that_is_withheld_stops_the_peer() {
    let mut server = End::server().ready();
    server.receive(&opening(1, &block(&POST))).unwrap();
    let window = server.limits.settings.window();
    let frame = data(1, false, &[0; 16_384]);
    for _ in 0..window / 16_384 {
        server.receive(&frame).unwrap();
    }
    assert!(server.sent().is_empty());
    server.consumed(1, window / 2);
    let credit = (window / 2).to_be_bytes().to_vec();
    assert_eq!(server.sent(), [(kind::WINDOW_UPDATE, 1, credit)]);
    // The second half of the window is full, and half of it was returned.
    for _ in 0..window / 2 / 16_384 {
        server.receive(&frame).unwrap();
    }
    server.take_events();
    server.receive(&data(1, false, &[0; 1])).unwrap();
    let (code, why) = (Code::FLOW_CONTROL_ERROR, Why::Window);
    assert_eq!(server.take_events(), [Event::Reset(1, code, Cause::Fault(why))]);
}

#[test]
fn a_connection_window_holds_for_all_streams_together() {
    let mut server = End::server().ready();
    let frame = |nth: u32| {
        let id = 2 * (nth / 16) + 1;
        let octets = data(id, false, &[0; 16_384]);
        if nth.is_multiple_of(16) { join(&[opening(id, &block(&POST)), octets]) } else { octets }
    };
    let (nth, why) = until_the_end(&mut server, frame, true);
    assert_eq!(nth, (1 << 20) / 16_384);
    assert_eq!(why, Error { code: Code::FLOW_CONTROL_ERROR, why: Why::Window });
}

#[test]
fn data_of_streams_that_were_reset_give_their_credit_back() {
    let mut server = End::server().ready();
    server.receive(&opening(1, &block(&POST))).unwrap();
    server.connection.reset(StreamId(1), Code::CANCEL);
    server.sent();
    for _ in 0..1000 {
        server.receive(&data(1, false, &[0; 16_384])).unwrap();
        server.control();
    }
    let credit: u32 = server
        .sent()
        .iter()
        .map(|(kind, id, octets)| {
            assert_eq!((*kind, *id), (kind::WINDOW_UPDATE, 0));
            u32::from_be_bytes(octets[..].try_into().unwrap())
        })
        .sum();
    assert!(credit >= 1000 * 16_384 - (1 << 19), "{credit}");
    assert_eq!(server.seen.counters.late_frames, 1000);
}

#[test]
fn resets_by_the_caller_are_forgotten_in_time_and_bounded() {
    let mut client = End::client().ready();
    for nth in 0..1000 {
        let id = client.connection.open().unwrap();
        client.head(id.0, true, &GET);
        client.connection.reset(id, Code::CANCEL);
        client.sent();
        // Frames that were on their way for any of them are no error.
        client.receive(&opening(id.0 - 2 * (nth / 2), &block(&OK))).unwrap();
    }
    assert!(client.connection.memory() <= 2048, "{}", client.connection.memory());
    assert_eq!(client.connection.streams(), 0);
}

#[test]
fn a_peer_that_makes_the_caller_reset_streams_is_stopped_while_it_reads_nothing() {
    let mut server = End::server().ready();
    let mut ended = None;
    for nth in 0..1000 {
        let id = 2 * nth + 1;
        if let Err(why) = server.receive(&request(id, &block(&GET))) {
            ended = Some(why);
            break;
        }
        server.connection.reset(StreamId(id), Code::CANCEL);
    }
    assert_eq!(ended, Some(error(Why::ControlFlood)));
    assert!(server.connection.memory() <= 16 << 10, "{}", server.connection.memory());
}
