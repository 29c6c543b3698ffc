//! A client and a server against each other, wherever octets are cut and in whatever order streams
//! arrive.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::qpack::Fixed;

/// Octets of a stream that have not arrived, and whether they end it.
#[derive(Default)]
struct Way {
    octets: VecDeque<u8>,
    ends: bool,
    blocked: bool,
    over: bool,
}

/// One end, and the streams on their way to it, by number.
struct Side {
    end: End,
    ways: BTreeMap<u64, Way>,
    /// Number of events that were handled.
    read: usize,
}

impl Side {
    fn new(role: Role, sends: u32, receives: u32) -> Self {
        let end = End::with_tables(role, sends, receives);
        Self { end, ways: BTreeMap::new(), read: 0 }
    }

    /// Puts what the other end has to send on its unidirectional streams on their way.
    fn carry(&mut self, other: &mut Self) {
        let role = self.end.connection.role();
        for (nth, own) in (0..).zip(Own::ALL) {
            let sent = other.end.sent(own);
            if !sent.is_empty() {
                self.ways.entry(peer_uni(role, nth)).or_default().octets.extend(sent);
            }
        }
    }

    fn put(&mut self, id: u64, octets: &[u8], ends: bool) {
        let way = self.ways.entry(id).or_default();
        way.octets.extend(octets);
        way.ends |= ends;
    }

    /// Lets up to `len` octets of the `nth` stream arrive that has any. Returns false if there is
    /// none.
    fn arrive(&mut self, nth: usize, len: usize) -> bool {
        let ready: Vec<u64> = self
            .ways
            .iter()
            .filter(|(_, way)| !way.blocked && !way.over && (!way.octets.is_empty() || way.ends))
            .map(|(id, _)| *id)
            .collect();
        if ready.is_empty() {
            return false;
        }
        let id = ready[nth % ready.len()];
        let way = self.ways.get_mut(&id).unwrap();
        let piece: Vec<u8> = way.octets.iter().copied().take(len).collect();
        let last = way.ends && piece.len() == way.octets.len();
        let taken = match self.end.receive(id, &piece, last).unwrap() {
            Progress::Taken => piece.len(),
            Progress::Blocked(taken) => {
                way.blocked = true;
                taken
            }
            Progress::Over => {
                way.over = true;
                piece.len()
            }
        };
        way.octets.drain(..taken);
        for event in &self.end.seen.events[self.read..] {
            if let Event::Unblocked(id) = event {
                self.ways.get_mut(id).unwrap().blocked = false;
            }
        }
        self.read = self.end.seen.events.len();
        true
    }
}

fn fixed() -> [Fixed; 2] {
    [Fixed::new(b"user-agent", b"squall"), Fixed::new(b"x-trace", b"0123456789")]
}

/// Sends a message with both fixed fields and a body; returns its octets.
fn message(end: &mut End, id: u64, fields: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let (table, mut out) = (fixed(), vec![]);
    let sent = end.connection.head(StreamId(id), body.is_empty(), &mut out, |encoder, out| {
        for (name, value) in fields {
            let (name, value) = (name.as_bytes(), value.as_bytes());
            encoder.field(Field::Literal { name, value }, out);
        }
        for (number, field) in (0..).zip(&table) {
            encoder.field(Field::Fixed(number, field), out);
        }
    });
    assert!(sent);
    if !body.is_empty() {
        let len = body.len().try_into().unwrap();
        assert!(end.connection.data(StreamId(id), len, true, &mut out));
        out.extend_from_slice(body);
    }
    out
}

/// Heads, data and ends of a stream.
fn of_stream(end: &End, id: u64) -> Vec<Event> {
    let mut all: Vec<Event> = vec![];
    for event in &end.seen.events {
        match (event, all.last_mut()) {
            (Event::Data(of, more), Some(Event::Data(_, octets))) if *of == id => {
                octets.extend_from_slice(more);
            }
            (Event::Head(of, ..) | Event::Data(of, _) | Event::End(of), _) if *of == id => {
                all.push(event.clone());
            }
            _ => {}
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn all_requests_complete_in_any_order_and_pieces(
        tables in prop::array::uniform4(prop::sample::select(&[0_u32, 60, 4096][..])),
        bodies in prop::collection::vec((0_usize..300, 0_usize..300), 1..12),
        choices in prop::collection::vec((any::<bool>(), 0_usize..8, 1_usize..400), 1..300),
    ) {
        let mut client = Side::new(Role::Client, tables[0], tables[1]);
        let mut server = Side::new(Role::Server, tables[2], tables[3]);
        let mut asked = 0;
        let mut answered = vec![];
        let mut choices = choices.into_iter().cycle();
        loop {
            let (to_client, nth, len) = choices.next().unwrap();
            client.carry(&mut server);
            server.carry(&mut client);
            let mut ends = [&mut client, &mut server];
            if !to_client {
                ends.reverse();
            }
            let moved = ends.into_iter().any(|end| end.arrive(nth, len));
            // One request after the other, so that insertions can be of use.
            let id = 4 * asked as u64;
            let next = asked < bodies.len() && (nth == 0 || !moved);
            if next {
                client.end.connection.open(StreamId(id));
                let fields = if bodies[asked].0 == 0 { GET } else { POST };
                let octets = message(&mut client.end, id, &fields, &vec![b'q'; bodies[asked].0]);
                server.put(id, &octets, true);
                asked += 1;
            }
            let mut answers = false;
            for id in (0..asked as u64).map(|nth| 4 * nth) {
                if !answered.contains(&id) && server.end.seen.events.contains(&Event::End(id)) {
                    let body = vec![b'a'; bodies[answered.len() % bodies.len()].1];
                    let octets = message(&mut server.end, id, &OK, &body);
                    client.put(id, &octets, true);
                    answered.push(id);
                    answers = true;
                }
            }
            if !moved && !next && !answers {
                break;
            }
        }
        prop_assert_eq!(answered.len(), bodies.len());
        for (nth, (asks, _)) in bodies.iter().enumerate() {
            let id = 4 * nth as u64;
            let mut expected = vec![Event::Head(id, HeadKind::Request, 0)];
            if *asks > 0 {
                expected.push(Event::Data(id, vec![b'q'; *asks]));
            }
            expected.push(Event::End(id));
            prop_assert_eq!(of_stream(&server.end, id), expected);
            let events = of_stream(&client.end, id);
            prop_assert_eq!(&events[0], &Event::Head(id, HeadKind::Response, 200));
            prop_assert_eq!(events.last(), Some(&Event::End(id)));
        }
        for side in [&client, &server] {
            prop_assert_eq!(side.end.connection.streams(), 0);
            prop_assert_eq!(side.end.seen.counters.errors, 0);
            // An encoder refers only to acknowledged entries.
            prop_assert_eq!(side.end.seen.counters.blocked, 0);
            prop_assert_eq!(side.end.seen.counters.heads, bodies.len() as u64);
        }
    }
}

#[test]
fn both_ends_use_the_table_once_insertions_are_acknowledged() {
    let mut client = Side::new(Role::Client, 4096, 0);
    let mut server = Side::new(Role::Server, 0, 4096);
    let mut lengths = vec![];
    for id in [0, 4, 8] {
        loop {
            client.carry(&mut server);
            server.carry(&mut client);
            let to_client = client.arrive(0, 1000);
            if !server.arrive(0, 1000) && !to_client {
                break;
            }
        }
        client.end.connection.open(StreamId(id));
        let octets = message(&mut client.end, id, &GET, &[]);
        lengths.push(octets.len());
        server.put(id, &octets, true);
    }
    assert!(lengths[1] < lengths[0] && lengths[2] == lengths[1], "{lengths:?}");
    assert_eq!(server.end.seen.counters.insertions, 2);
}
