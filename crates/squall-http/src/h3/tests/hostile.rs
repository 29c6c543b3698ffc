//! Peers that ask for memory or time: each bound ends the connection, and is counted.

use super::*;

/// An end with a dynamic table of 4,096 octets for what the peer inserts.
fn with_table(role: Role) -> End {
    let mut end = End::with_tables(role, 0, 4096);
    end.sent(Own::Control);
    end.sent(Own::Decoder);
    end
}

/// Gives an input again and again, until the connection ends.
fn until_error(end: &mut End, id: u64, input: &[u8], most: usize) -> (usize, Error) {
    for nth in 0..most {
        if let Err(error) = end.receive(id, input, false) {
            assert!(end.connection.is_over());
            assert_eq!(end.seen.counters.errors, 1);
            return (nth, error);
        }
    }
    panic!("no bound was met");
}

fn flood(why: Why) -> Error {
    Error { code: Code::EXCESSIVE_LOAD, why }
}

/// Set the capacity to 4,096, and insert `a` with an empty value.
const INSERT: &[u8] = b"\x3f\xe1\x1f\x41a\x00";
/// A section that refers to the first entry.
const FIRST: &[u8] = b"\x02\x00\x80";

#[test]
fn an_unknown_frame_of_any_length_costs_no_memory() {
    let mut end = End::new(Role::Server);
    end.sent(Own::Control);
    let mut control = uni(CONTROL, &[settings(&[])]);
    for (id, begin) in [(0, &mut vec![]), (2, &mut control)] {
        varint(0x21, begin);
        varint((1 << 62) - 1, begin);
        assert_eq!(end.receive(id, begin, false), Ok(Progress::Taken));
        for _ in 0..100 {
            assert_eq!(end.receive(id, &[0; 10_000], false), Ok(Progress::Taken));
        }
    }
    assert!(end.connection.memory() < 1000, "{}", end.connection.memory());
    assert_eq!(end.seen.counters.frames_ignored, 2);
}

#[test]
fn a_head_that_is_too_long_ends_its_request_and_one_that_is_far_too_long_the_connection() {
    let mut end =
        End::with(Role::Server, Limits { head: 300, ..Limits::new(Settings::new(&[]).unwrap()) });
    let octets = with(&GET, &[("cookie", "12345678"); 5]);
    assert_eq!(end.receive(0, &octets, true), Ok(Progress::Over));
    let why = Why::HeadTooLong;
    let expected = [Event::Reset(0, Code::EXCESSIVE_LOAD, Cause::Fault(why))];
    assert_eq!((end.take_events(), end.seen.counters.heads_too_long), (expected.to_vec(), 1));
    // Static entry 85 has 94 octets: a bomb of few octets.
    let bomb = [&[0, 0][..], &[0xff, 22].repeat(100)].concat();
    let error = end.receive(4, &raw(HEADERS, &bomb), true).unwrap_err();
    assert_eq!(error, flood(why));
}

#[test]
fn field_blocks_have_a_length_each_and_in_sum() {
    let mut end = End::new(Role::Server);
    let mut begin = vec![];
    varint(HEADERS, &mut begin);
    varint((16 << 10) + 1, &mut begin);
    assert_eq!(end.receive(0, &begin, false), Err(flood(Why::BlockFlood)));
    assert_eq!(end.seen.counters.block_floods, 1);

    let mut end = End::new(Role::Server);
    begin.clear();
    varint(HEADERS, &mut begin);
    varint(16 << 10, &mut begin);
    begin.extend_from_slice(&[0; 10_000]);
    for id in 0..6 {
        assert_eq!(end.receive(4 * id, &begin, false), Ok(Progress::Taken));
    }
    // A stream that ends gives back its memory.
    end.peer_reset(0, Code::REQUEST_CANCELLED).unwrap();
    assert_eq!(end.receive(24, &begin, false), Ok(Progress::Taken));
    assert!(end.connection.memory() < 128 << 10, "{}", end.connection.memory());
    assert_eq!(end.receive(28, &begin, false), Err(flood(Why::BlockFlood)));
    assert_eq!((end.connection.streams(), end.seen.counters.block_floods), (0, 1));
}

#[test]
fn blocked_streams_wait_for_insertions_and_go_on_where_they_were() {
    let mut end = with_table(Role::Server);
    // Two insertions are required; the last field is the second.
    let mut section = b"\x03\x00".to_vec();
    section.extend_from_slice(&block(&POST)[2..]);
    section.push(0x80);
    let octets = [raw(HEADERS, &section), raw(DATA, b"abc")].concat();
    let taken = raw(HEADERS, &section).len();
    assert_eq!(end.receive(0, &octets, true), Ok(Progress::Blocked(taken)));
    assert_eq!(end.receive(0, &octets[taken..], true), Ok(Progress::Blocked(0)));
    assert_eq!(end.receive(2, &uni(ENCODER, &[INSERT.to_vec()]), false), Ok(Progress::Taken));
    assert!(end.seen.events.is_empty(), "one insertion is missing");
    assert_eq!(end.sent(Own::Decoder), [1]);
    assert_eq!(end.receive(2, b"\x41b\x00", false), Ok(Progress::Taken));
    assert_eq!(end.take_events(), [Event::Head(0, HeadKind::Request, 0), Event::Unblocked(0)]);
    // The acknowledgment of the section covers the insertion.
    assert_eq!(end.sent(Own::Decoder), [0x80]);
    assert_eq!(end.receive(0, &octets[taken..], true), Ok(Progress::Over));
    assert_eq!(end.take_events(), [Event::Data(0, b"abc".to_vec()), Event::End(0)]);
    let counters = end.seen.counters;
    assert_eq!((counters.blocked, counters.insertions, counters.heads), (1, 2, 1));
}

#[test]
fn no_more_streams_or_octets_wait_for_insertions_than_announced() {
    let mut end = with_table(Role::Server);
    for id in 0..16 {
        let progress = end.receive(4 * id, &raw(HEADERS, FIRST), false);
        assert_eq!(progress, Ok(Progress::Blocked(5)));
    }
    // One that is reset makes room, and is canceled.
    end.peer_reset(4, Code::REQUEST_CANCELLED).unwrap();
    assert_eq!(end.sent(Own::Decoder), [0x44]);
    assert_eq!(end.receive(64, &raw(HEADERS, FIRST), false), Ok(Progress::Blocked(5)));
    let error = end.receive(68, &raw(HEADERS, FIRST), false).unwrap_err();
    assert_eq!((error.code, error.why), (Code::QPACK_DECOMPRESSION_FAILED, Why::BlockedFlood));
    assert_eq!(end.seen.counters.blocked_floods, 1);

    let mut end = with_table(Role::Server);
    let long = [FIRST, &[0x80; 9_000]].concat();
    let taken = raw(HEADERS, &long).len();
    assert_eq!(end.receive(0, &raw(HEADERS, &long), false), Ok(Progress::Blocked(taken)));
    assert!(end.connection.memory() < 16 << 10, "{}", end.connection.memory());
    assert_eq!(end.receive(4, &raw(HEADERS, &long), false), Err(flood(Why::BlockedFlood)));
    assert_eq!(end.seen.counters.blocked_floods, 1);
}

#[test]
fn insertions_without_field_blocks_end() {
    let mut end = with_table(Role::Server);
    assert_eq!(end.receive(2, &uni(ENCODER, &[INSERT.to_vec()]), false), Ok(Progress::Taken));
    assert_eq!(end.sent(Own::Decoder), [1]);
    // Duplicates of the newest entry; their acknowledgments are read.
    let mut sent = 0;
    let error = loop {
        match end.receive(2, &[0; 100], false) {
            Ok(_) => sent += 100,
            Err(error) => break error,
        }
        assert_eq!(end.sent(Own::Decoder).len(), 2);
    };
    assert_eq!((sent, error), (1000, flood(Why::InsertionFlood)));
    assert_eq!(end.seen.counters.insertion_floods, 1);

    // With requests in between there is no end.
    let mut end = with_table(Role::Server);
    end.receive(2, &uni(ENCODER, &[INSERT.to_vec()]), false).map(|_| ()).unwrap();
    for nth in 0..100 {
        end.receive(2, &[0; 100], false).map(|_| ()).unwrap();
        end.receive(4 * nth, &headers(&GET), true).map(|_| ()).unwrap();
        end.head(4 * nth, true, &OK).unwrap();
        end.sent(Own::Decoder);
    }
    assert!(end.connection.memory() < 16 << 10, "{}", end.connection.memory());
}

#[test]
fn a_peer_that_reads_no_answers_ends() {
    let mut end = with_table(Role::Server);
    end.receive(2, &uni(ENCODER, &[INSERT.to_vec()]), false).map(|_| ()).unwrap();
    let mut section = b"\x02\x00".to_vec();
    section.extend_from_slice(&block(&GET)[2..]);
    section.push(0x80);
    let mut id = 0;
    let error = loop {
        if let Err(error) = end.receive(id, &raw(HEADERS, &section), true) {
            break error;
        }
        end.head(id, true, &OK).unwrap();
        id += 4;
        assert!(end.connection.memory() < 16 << 10, "{}", end.connection.memory());
    };
    assert_eq!(error, flood(Why::ControlFlood));
    assert_eq!(end.seen.counters.control_floods, 1);
}

#[test]
fn resets_by_the_peer_and_because_of_it_end() {
    let mut end = End::new(Role::Server);
    let malformed = headers(&GET[1..]);
    for nth in 0..50 {
        assert_eq!(end.receive(8 * nth, &malformed, true), Ok(Progress::Over));
        assert_eq!(end.receive(8 * nth + 4, &headers(&GET), false), Ok(Progress::Taken));
        end.peer_reset(8 * nth + 4, Code::REQUEST_CANCELLED).unwrap();
    }
    // One that ends well gives one back.
    end.receive(400, &headers(&GET), true).map(|_| ()).unwrap();
    end.head(400, true, &OK).unwrap();
    end.peer_reset(404, Code::REQUEST_CANCELLED).unwrap();
    assert_eq!(end.peer_reset(408, Code::REQUEST_CANCELLED), Err(flood(Why::ResetFlood)));
    assert_eq!((end.seen.counters.reset_floods, end.seen.counters.malformed), (1, 50));

    // A client asks for each request itself.
    let mut end = End::new(Role::Client);
    for nth in 0..200 {
        end.connection.open(StreamId(4 * nth));
        end.peer_reset(4 * nth, Code::REQUEST_REJECTED).unwrap();
    }
}

#[test]
fn frames_that_do_nothing_end() {
    let control = uni(CONTROL, &[settings(&[])]);
    for (id, begin, frame) in [
        (0, headers(&POST), raw(DATA, b"")),
        (0, vec![], raw(0x21, b"")),
        (2, control.clone(), raw(0x21, b"")),
        (2, control.clone(), number(GOAWAY, 0)),
        (2, control, number(MAX_PUSH_ID, 0)),
    ] {
        let mut end = End::new(Role::Server);
        end.receive(id, &begin, false).map(|_| ()).unwrap();
        assert_eq!(until_error(&mut end, id, &frame, 200), (100, flood(Why::EmptyFlood)));
        assert_eq!(end.seen.counters.empty_floods, 1);
    }
}

#[test]
fn streams_of_unknown_types_end() {
    let mut end = End::new(Role::Server);
    for nth in 0..100 {
        assert_eq!(end.receive(4 * nth + 2, &uni(0x21, &[]), false), Ok(Progress::Over));
    }
    assert_eq!(end.receive(402, &uni(0x21, &[]), false), Err(flood(Why::StreamFlood)));
    assert_eq!((end.seen.counters.stream_floods, end.seen.counters.streams_ignored), (1, 101));

    // Types that do not come cost memory.
    let mut end = End::new(Role::Server);
    end.sent(Own::Control);
    for nth in 0..100 {
        assert_eq!(end.receive(4 * nth + 2, &[0x40], false), Ok(Progress::Taken));
    }
    assert!(end.connection.memory() < 4096, "{}", end.connection.memory());
    assert_eq!(end.receive(402, &[0x40], false), Err(flood(Why::StreamFlood)));
}

#[test]
fn settings_have_a_length() {
    for frame in [settings(&[(0x21, 1); 600]), raw(SETTINGS, &[0x21; 1025])[..5].to_vec()] {
        let mut end = End::new(Role::Client);
        let input = uni(CONTROL, &[frame]);
        assert_eq!(end.receive(3, &input, false), Err(flood(Why::SettingsFlood)));
        assert_eq!(end.seen.counters.settings_floods, 1);
    }
}
