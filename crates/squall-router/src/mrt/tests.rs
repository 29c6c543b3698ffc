use proptest::prelude::*;

use super::*;
use crate::Origin;

fn record(kind: u16, subtype: u16, body: &[u8]) -> Vec<u8> {
    let mut octets = vec![0x65, 0, 0, 0];
    octets.extend(kind.to_be_bytes());
    octets.extend(subtype.to_be_bytes());
    octets.extend((body.len() as u32).to_be_bytes());
    octets.extend(body);
    octets
}

/// Peers with IPv4 and a number of 16 bits, with IPv4 and 32 bits, and with IPv6.
fn index() -> Vec<u8> {
    let mut body = vec![192, 0, 2, 9, 0, 3];
    body.extend(b"lab");
    body.extend([0, 3]);
    body.extend([0, 1, 1, 1, 1, 10, 0, 0, 1, 0xfd, 0xe8]);
    body.extend([2, 2, 2, 2, 2, 10, 0, 0, 2, 0, 1, 0, 0]);
    body.extend([3, 3, 3, 3, 3, 0x20, 1, 0x0d, 0xb8]);
    body.extend([0; 11]);
    body.extend([7, 0, 0, 0xfd, 0xe9]);
    record(13, 1, &body)
}

/// A route with its octets of the prefix, from some peers, with attributes of 5 octets.
fn route(subtype: u16, length: u8, prefix: &[u8], peers: &[u16]) -> Vec<u8> {
    let mut body = vec![0, 0, 0, 1, length];
    body.extend(prefix);
    body.extend((peers.len() as u16).to_be_bytes());
    for peer in peers {
        body.extend(peer.to_be_bytes());
        body.extend([0x65, 0, 0, 0]);
        if subtype >= 8 {
            body.extend([0, 0, 0, 4]);
        }
        body.extend([0, 5, 0x40, 1, 1, 0, 0]);
    }
    record(13, subtype, &body)
}

fn dump() -> Vec<u8> {
    [
        index(),
        route(2, 24, &[198, 51, 100], &[0, 1]),
        // Bits after the prefix, a message of BGP4MP, and a multicast route are ignored.
        route(2, 20, &[203, 0, 0x1f], &[1]),
        record(16, 4, &[1, 2, 3]),
        route(3, 8, &[10], &[1]),
        route(4, 32, &[0x20, 1, 0x0d, 0xb8], &[2]),
        route(8, 0, &[], &[0, 1, 1]),
        route(10, 48, &[0x20, 1, 0x0d, 0xb8, 0, 1], &[2]),
    ]
    .concat()
}

fn texts(routes: &MrtRoutes) -> Vec<String> {
    routes.prefixes.iter().map(Prefix::to_string).collect()
}

#[test]
fn the_routes_of_the_peer_with_most_or_of_a_given_peer_are_read() {
    let routes = read(&dump()[..], None, None).expect("a table");
    assert_eq!(texts(&routes), ["198.51.100.0/24", "203.0.16.0/20", "0.0.0.0/0"]);
    assert_eq!(routes.peer.to_string(), "peer 1, 10.0.0.2 in AS 65536");
    let routes = read(&dump()[..], Some(0), None).expect("a table");
    assert_eq!(texts(&routes), ["198.51.100.0/24", "0.0.0.0/0"]);
    assert_eq!(routes.peer.asn, 65000);
    let routes = read(&dump()[..], Some(2), None).expect("a table");
    assert_eq!(texts(&routes), ["2001:db8::/32", "2001:db8:1::/48"]);
    assert_eq!(routes.peer.address.to_string(), "2001:db8::7");
    for peer in [None, Some(1)] {
        let routes = read(&dump()[..], peer, Some(2)).expect("a table");
        assert_eq!(texts(&routes), ["198.51.100.0/24", "203.0.16.0/20"]);
    }
}

/// Routes of peer 1 with these attributes; peer 0 has others.
fn routes_with(attributes: &[&[u8]]) -> Vec<u8> {
    let route = |(number, attributes): (usize, &&[u8])| {
        let mut body = vec![0, 0, 0, 1, 24, 10, 0, number as u8, 0, 2];
        body.extend([0, 0, 0x65, 0, 0, 0, 0, 4, 0x40, 1, 1, 1]);
        body.extend([0, 1, 0x65, 0, 0, 0, 0, attributes.len() as u8]);
        body.extend(*attributes);
        record(13, 2, &body)
    };
    let all: Vec<_> = attributes.iter().enumerate().map(route).collect();
    [index(), all.concat()].concat()
}

#[test]
fn routes_with_equal_attributes_are_a_set() {
    let (igp, egp, wrong) = (&[0x40, 1, 1, 0][..], &[0x40, 1, 1, 1][..], &[0x40, 1, 1, 9][..]);
    let octets = routes_with(&[igp, egp, igp, wrong, egp]);
    let table = read_table(&octets[..], 1, None).expect("a table");
    let found: Vec<_> = (0..table.sets())
        .map(|set| {
            let prefixes: Vec<_> = table.of_set(set).iter().map(Prefix::to_string).collect();
            (table.attributes(set).origin, prefixes)
        })
        .collect();
    let texts = |numbers: [u8; 2]| numbers.map(|number| format!("10.0.{number}.0/24")).to_vec();
    let expected =
        [(Some(Origin::Igp), texts([0, 2])), (Some(Origin::Egp), texts([1, 4]))].to_vec();
    assert_eq!(found, expected);
    assert_eq!((table.left_out, table.prefixes().len(), table.peer.index), (1, 4, 1));
    assert_eq!([0, 1, 2, 3].map(|prefix| table.set_of(prefix)), [0, 0, 1, 1]);
    let first = read_table(&octets[..], 1, Some(1)).expect("a table");
    assert_eq!((first.sets(), first.prefixes().len()), (1, 1));
    let error = read_table(&octets[..], 2, None).expect_err("it has none").to_string();
    assert_eq!(error, "it has no routes of peer 2; its peers are 0 to 2");
}

#[test]
fn a_route_that_occurs_again_is_one() {
    let again = route(2, 24, &[198, 51, 100], &[1]);
    let routes = read(&[dump(), again].concat()[..], None, None).expect("a table");
    assert_eq!(routes.prefixes.len(), 3);
}

#[test]
fn a_file_that_is_cut_anywhere_is_an_error_with_its_place() {
    let whole = dump();
    let ends: Vec<usize> = {
        let length = |at: usize| u32::from_be_bytes(*whole[at + 8..].first_chunk().expect("4"));
        let next = |at: usize| Some(at + 12 + length(at) as usize).filter(|at| *at < whole.len());
        std::iter::successors(Some(0), |&at| next(at)).collect()
    };
    for end in 1..whole.len() {
        match read(&whole[..end], None, None) {
            Ok(_) | Err(MrtError::NoRoutes) => assert!(ends.contains(&end), "cut at {end}"),
            Err(MrtError::Cut { at }) => {
                let begins = ends.iter().rfind(|begin| **begin < end).expect("a record");
                assert_eq!(at, *begins as u64, "cut at {end}");
            }
            Err(other) => panic!("cut at {end}: {other}"),
        }
    }
}

#[test]
fn wrong_files_have_reasons() {
    let error = |octets: &[u8], peer| read(octets, peer, None).expect_err("wrong").to_string();
    assert_eq!(error(b"", None), "it has no table of routes (TABLE_DUMP_V2), only other records");
    assert!(error(b"198.51.100.0/24\n", None).starts_with("octet 0: this is no record of MRT"));
    assert!(error(&record(16, 4, &[1]), None).starts_with("it has no table of routes"));
    assert_eq!(error(&index(), None), "it has no routes of IPv4 or IPv6");
    assert_eq!(error(&index(), Some(9)), "it has no routes of peer 9; its peers are 0 to 2");
    // A route before the peers, with an unknown peer, and with a prefix that is too long.
    assert!(error(&route(2, 8, &[10], &[0]), None).ends_with("subtype 2 is malformed"));
    for wrong in [route(2, 8, &[10], &[3]), route(2, 33, &[10, 0, 0, 0, 0], &[0])] {
        assert!(error(&[index(), wrong].concat(), None).ends_with("subtype 2 is malformed"));
    }
    let mut long = index();
    long[8] = 0x7f;
    assert!(error(&long, None).starts_with("octet 0: a record has"));
}

#[test]
fn the_bits_of_many_peers_belong_to_their_routes() {
    let mut body = vec![0, 0, 0, 0, 0, 0, 0, 200];
    for peer in 0..200u8 {
        body.extend([2, 0, 0, 0, 0, 10, 0, 0, peer, 0, 0, 0, peer]);
    }
    // Peer p has the routes from p on; peer 130 has all.
    let routes = (0..200u8).map(|n| {
        let peers: Vec<u16> = (0..=u16::from(n)).chain((n < 130).then_some(130)).collect();
        route(2, 24, &[20, 0, n], &peers)
    });
    let octets = std::iter::once(record(13, 1, &body)).chain(routes).collect::<Vec<_>>().concat();
    for peer in [0u16, 63, 64, 127, 199] {
        let found = read(&octets[..], Some(peer), None).expect("a table");
        assert_eq!(found.prefixes.len(), 200 - usize::from(peer));
    }
    let most = read(&octets[..], None, None).expect("a table");
    assert_eq!((most.peer.index, most.prefixes.len()), (0, 200), "the first of those with most");
}

proptest! {
    #[test]
    fn damaged_files_end_with_a_table_or_an_error(
        at in 0usize..400, octet: u8, peer in prop::option::of(0u16..5), most in prop::option::of(0u32..4),
    ) {
        let mut octets = dump();
        let at = at % octets.len();
        octets[at] = octet;
        if let Ok(table) = read_table(&octets[..], peer.unwrap_or(1), most) {
            let of_sets = (0..table.sets()).map(|set| table.of_set(set).len());
            prop_assert_eq!(of_sets.sum::<usize>(), table.prefixes().len());
            (0..table.sets()).for_each(|set| drop(table.attributes(set)));
        }
        if let Ok(routes) = read(&octets[..], peer, most) {
            prop_assert!(!routes.prefixes.is_empty());
            prop_assert!(most.is_none_or(|most| routes.prefixes.len() <= most as usize));
            for prefix in &routes.prefixes {
                prop_assert_eq!(Prefix::parse(&prefix.to_string()), Some(*prefix));
            }
        }
    }

    #[test]
    fn any_octets_end_with_a_table_or_an_error(octets in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = read(&octets[..], None, None);
        let _ = read(&[index(), record(13, 2, &octets), record(13, 10, &octets)].concat()[..], None, None);
    }
}
