use proptest::prelude::*;
use squall_rules::End;
use squall_units::be16;

use super::*;
use crate::{
    Exchange, Octets, Transport, Turn,
    receiver::{Received, Receiver},
    wire::{self, Gre, Settings, frames, tests::ends},
};

fn exchange(transport: Transport, turns: &[(End, Vec<u8>)]) -> Exchange {
    let turns = turns
        .iter()
        .map(|(from, octets)| Turn::new(*from, Octets::framing(octets.as_slice())))
        .collect();
    Exchange {
        transport,
        client_port: 40_000,
        server_port: 80,
        turns,
        same_address: false,
        ip_version: None,
    }
}

fn receive(frames: &[wire::Frame], routers: u8) -> Received {
    Receiver::beyond(routers).receive(frames.iter().map(|f| &f.octets[..]))
}

/// The expected stream of each end.
fn streams(turns: &[(End, Vec<u8>)]) -> Vec<Vec<u8>> {
    [End::Client, End::Server]
        .map(|end| turns.iter().filter(|t| t.0 == end).flat_map(|t| t.1.clone()).collect())
        .to_vec()
}

fn get() -> Vec<(End, Vec<u8>)> {
    let request = b"GET /attack.cgi?x=1 HTTP/1.1\r\nHost: a\r\n\r\n".to_vec();
    let mut response = b"HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\n".to_vec();
    response.extend((0..3000u32).map(|i| (i / 3) as u8));
    vec![(End::Client, request), (End::Server, response), (End::Client, b"x".to_vec())]
}

#[test]
fn every_evasion_is_the_same_stream_to_a_standard_receiver_in_other_packets() {
    let conversation = exchange(Transport::Tcp, &get());
    for version in [4, 6] {
        let plain = frames(&conversation, &ends(version), &Settings::default()).unwrap();
        for help in EVASIONS {
            let settings = Settings { evasions: vec![help.usual], ..Settings::default() };
            let frames = match frames(&conversation, &ends(version), &settings) {
                Ok(frames) => frames,
                Err(e) => {
                    let only = (help.usual, version);
                    assert!(
                        matches!(only, (Evasion::Ipv4Options, 6) | (Evasion::Ipv6Extensions, 4)),
                        "{help:?}: {e}"
                    );
                    continue;
                }
            };
            assert_ne!(frames, plain, "{}", help.name);
            let routers = u8::from(matches!(help.usual, Evasion::TtlDecoy(_)));
            let received = receive(&frames, routers);
            let data: Vec<Vec<u8>> = received.data.into_values().flatten().collect();
            assert_eq!(data, streams(&get()), "{} over IPv{version}", help.name);
            assert_eq!(received.closed, [1, 2], "{}", help.name);
            let expected: &[&str] = match help.usual {
                Evasion::TtlDecoy(_) => &["ttl"],
                Evasion::ChecksumDecoy => &["checksum"],
                Evasion::RstDecoy | Evasion::FinDecoy => &["window"],
                Evasion::PawsDecoy => &["paws"],
                _ => &[],
            };
            let mut dropped = received.dropped;
            dropped.dedup();
            assert_eq!(dropped, expected, "{}", help.name);
            assert!(frames.iter().all(|f| f.octets.len() <= 1514), "{}", help.name);
        }
    }
}

/// For each frame with data, its offset and octets.
fn client_data(evasion: Evasion, payload: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let conversation = exchange(Transport::Tcp, &[(End::Client, payload.to_vec())]);
    let settings = Settings { evasions: vec![evasion], ..Settings::default() };
    let frames = frames(&conversation, &ends(4), &settings).unwrap();
    let sequence = |f: &wire::Frame| u32::from_be_bytes(*f.octets[38..].first_chunk().unwrap());
    let first = sequence(&frames[0]).wrapping_add(1);
    let data = |f: &wire::Frame| f.octets[14 + 20 + usize::from(f.octets[46] >> 4) * 4..].to_vec();
    let with_data = frames.iter().filter(|f| f.from == End::Client && !data(f).is_empty());
    with_data.map(|f| (sequence(f).wrapping_sub(first), data(f))).collect()
}

#[test]
fn each_evasion_cuts_segments_as_documented() {
    let data = |evasion| {
        let text = |(at, octets)| (at, String::from_utf8(octets).unwrap());
        client_data(evasion, b"abcdefgh").into_iter().map(text).collect::<Vec<_>>()
    };
    let expect = |list: &[(u32, &str)]| {
        list.iter().map(|&(at, text)| (at, text.to_string())).collect::<Vec<_>>()
    };
    assert_eq!(data(Evasion::Segments(3)), expect(&[(0, "abc"), (3, "def"), (6, "gh")]));
    assert_eq!(data(Evasion::Window(5)), expect(&[(0, "abcde"), (5, "fgh")]));
    assert_eq!(data(Evasion::Reorder), expect(&[(4, "efgh"), (0, "abcd")]));
    assert_eq!(data(Evasion::Duplicate), expect(&[(0, "abcdefgh"), (0, "abcdefgh")]));
    assert_eq!(data(Evasion::Overlap(2)), expect(&[(0, "abcd"), (2, "cdefgh")]));
    assert_eq!(data(Evasion::OverlapFirst), expect(&[(4, "efgh"), (4, "XXXX"), (0, "abcd")]));
    assert_eq!(data(Evasion::OverlapLast), expect(&[(1, "XXXXXXX"), (0, "abcdefgh")]));
    assert_eq!(data(Evasion::TtlDecoy(3)), expect(&[(0, "XXXXXXXX"), (0, "abcdefgh")]));
    assert_eq!(data(Evasion::ChecksumDecoy), expect(&[(0, "XXXXXXXX"), (0, "abcdefgh")]));
}

#[test]
fn each_evasion_cuts_fragments_as_documented() {
    let body: Vec<u8> = (0..40).collect();
    let pieces = |evasion| {
        let conversation = exchange(Transport::Udp, &[(End::Client, body.clone())]);
        let settings = Settings { evasions: vec![evasion], ..Settings::default() };
        let offset = |o: &[u8]| ((be16(o, 20) & 0x1fff) * 8, o.len() - 34);
        frames(&conversation, &ends(4), &settings)
            .unwrap()
            .iter()
            .map(|f| offset(&f.octets))
            .collect::<Vec<_>>()
    };
    assert_eq!(pieces(Evasion::Fragments(16)), [(0, 16), (16, 16), (32, 16)]);
    assert_eq!(pieces(Evasion::FragmentsReversed(16)), [(32, 16), (16, 16), (0, 16)]);
    assert_eq!(
        pieces(Evasion::FragmentsDuplicate(16)),
        [(0, 16), (0, 16), (16, 16), (16, 16), (32, 16)]
    );
    assert_eq!(pieces(Evasion::FragmentsOverlap(16)), [(0, 24), (16, 24), (32, 16)]);
}

#[test]
fn a_segment_with_a_required_length_is_not_cut() {
    let mut conversation = exchange(Transport::Tcp, &[(End::Client, b"abcdefgh".to_vec())]);
    conversation.turns[0].shape.whole = true;
    for evasion in
        [Evasion::Segments(3), Evasion::Reorder, Evasion::Overlap(2), Evasion::OverlapFirst]
    {
        let settings = Settings { evasions: vec![evasion], ..Settings::default() };
        let frames = frames(&conversation, &ends(4), &settings).unwrap();
        assert!(frames.iter().any(|f| f.octets.ends_with(b"abcdefgh")), "{evasion}");
    }
}

#[test]
fn names_parse_and_unknown_ones_are_errors() {
    for help in EVASIONS {
        assert_eq!(help.name.parse(), Ok(help.usual));
        assert_eq!(help.usual.to_string().parse(), Ok(help.usual));
        assert_eq!(help.usual.help(), &help);
        assert!(help.usual.is_possible());
    }
    let error = |text: &str| text.parse::<Evasion>().unwrap_err().to_string();
    assert!(error("segment").starts_with("found \"segment\", expected one of segments, window, "));
    assert_eq!(error("segments=0"), "segments: found \"0\", expected octets of 1 to 1460");
    assert_eq!(
        error("fragments=12"),
        "fragments: found \"12\", expected octets of 8 to 1456, a multiple of 8"
    );
    assert_eq!(error("ttl-decoy=256"), "ttl-decoy: found \"256\", expected hops of 1 to 255");
    assert_eq!(error("reorder=2"), "found \"reorder=2\", expected reorder without a number");
    let settings = Settings { evasions: vec![Evasion::Fragments(12)], ..Settings::default() };
    let error = frames(&exchange(Transport::Tcp, &[]), &ends(4), &settings).unwrap_err();
    assert_eq!(error.to_string(), "settings: fragments=12 has a number out of range");
}

fn turns(longest: usize) -> impl Strategy<Value = Vec<(End, Vec<u8>)>> {
    let end = prop::bool::ANY.prop_map(|server| if server { End::Server } else { End::Client });
    prop::collection::vec((end, prop::collection::vec(any::<u8>(), 0..longest)), 0..5)
}

fn settings() -> impl Strategy<Value = Settings> {
    let gre = prop::option::of(Just(Gre {
        source: "203.0.113.1".parse().unwrap(),
        destination: "203.0.113.2".parse().unwrap(),
    }));
    let evasions = prop::collection::vec(0..EVASIONS.len() - 2, 0..3);
    (
        1..2000u16,
        any::<u64>(),
        any::<bool>(),
        prop::collection::vec(0..4096u16, 0..3),
        gre,
        evasions,
    )
        .prop_map(|(mss, seed, timestamps, vlans, gre, evasions)| {
            let evasions = evasions.into_iter().map(|i| EVASIONS[i].usual).collect();
            Settings { mss, seed, timestamps, vlans, gre, evasions, ..Settings::default() }
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_stream_arrives_unchanged(turns in turns(3000), settings in settings(), version in prop::sample::select(vec![4, 6])) {
        let conversation = exchange(Transport::Tcp, &turns);
        let frames = match frames(&conversation, &ends(version), &settings) {
            Err(e) => {
                prop_assert!(e.to_string().contains("cannot be combined"), "{e}");
                return Ok(());
            }
            Ok(frames) => frames,
        };
        let routers = u8::from(settings.evasions.iter().any(|e| matches!(e, Evasion::TtlDecoy(_))));
        let received = receive(&frames, routers);
        prop_assert_eq!(received.data.into_values().flatten().collect::<Vec<_>>(), streams(&turns), "{:?}", settings.evasions);
        prop_assert_eq!(received.closed, [1, 2]);
        prop_assert!(frames.windows(2).all(|w| w[0].at < w[1].at));
    }

    #[test]
    fn any_datagrams_arrive_unchanged(
        turns in turns(4000), settings in settings(), version in prop::sample::select(vec![4, 6]),
        transport in prop::sample::select(vec![Transport::Udp, Transport::Icmp, Transport::Ip(103)]),
    ) {
        let Ok(frames) = frames(&exchange(transport, &turns), &ends(version), &settings) else { return Ok(()) };
        let mut received = receive(&frames, 0);
        for (mac, end) in [(1, End::Client), (2, End::Server)] {
            let data: Vec<Vec<u8>> = turns.iter().filter(|t| t.0 == end).map(|t| t.1.clone()).collect();
            prop_assert_eq!(received.data.remove(&mac).unwrap_or_default(), data);
        }
    }
}
