//! Any octets as the frames of a peer, to a client or a server: nothing panics, memory is bounded,
//! events are in order, and it makes no difference where the octets are cut. Input: an octet that
//! selects the end, its settings and whether the peer begins well; one that selects the pieces;
//! then frames.
#![no_main]

use std::collections::HashMap;

use libfuzzer_sys::fuzz_target;
use squall_http::{
    h2::{
        Cause, Code, Connection, Counters, Events, Head, HeadKind, Limits, PREFACE, PeerSettings,
        Role, Scratch, Settings, StreamId, setting,
    },
    hpack::Field,
};

#[derive(Debug, Default, PartialEq)]
struct Program {
    /// Octets of data of each stream, and whether the peer has ended or reset it.
    streams: HashMap<u32, (u64, bool)>,
    held: Vec<(u32, u32)>,
    /// Requests to answer.
    asked: Vec<u32>,
    counters: Counters,
}

impl Events for Program {
    fn head(&mut self, id: StreamId, head: &Head<'_>) {
        let (_, over) = self.streams.entry(id.0).or_default();
        assert!(!*over, "nothing follows an end");
        *over = head.end;
        let pseudo = head.fields.iter().take_while(|(name, _)| name.starts_with(b":")).count();
        for (name, value) in head.fields.iter().skip(pseudo) {
            assert!(!name.is_empty() && !name.contains(&b':'));
            assert!(!name.iter().chain(value).any(|octet| b"\r\n\0".contains(octet)));
        }
        match head.kind {
            HeadKind::Request => self.asked.push(id.0),
            HeadKind::Trailers => assert!(head.end && pseudo == 0),
            HeadKind::Interim | HeadKind::Response => assert!(head.status >= 100),
        }
    }

    fn data(&mut self, id: StreamId, octets: &[u8], end: bool) {
        let (sum, over) = self.streams.get_mut(&id.0).expect("a head comes first");
        assert!(!*over && (end || !octets.is_empty()));
        *sum += octets.len() as u64;
        *over = end;
        self.held.push((id.0, octets.len() as u32));
    }

    fn reset(&mut self, id: StreamId, _: Code, _: Cause) {
        self.streams.entry(id.0).or_default().1 = true;
    }

    fn writable(&mut self, _: Option<StreamId>) {}

    fn settings(&mut self, _: &PeerSettings) {}

    fn going_away(&mut self, _: StreamId, _: Code) {}

    fn counters(&mut self) -> &mut Counters {
        &mut self.counters
    }
}

fn run(choice: u8, input: &[u8], piece: usize) -> (Program, Vec<u8>, bool) {
    let list = [
        (setting::MAX_CONCURRENT_STREAMS, 8),
        (setting::INITIAL_WINDOW_SIZE, if choice & 2 == 0 { 100 } else { 100_000 }),
        (setting::HEADER_TABLE_SIZE, if choice & 4 == 0 { 4096 } else { 100 }),
        (setting::ENABLE_CONNECT_PROTOCOL, u32::from(choice & 8 == 0)),
    ];
    let limits = Limits::new(Settings::new(&list, 65_535).expect("allowed values"));
    let server = choice & 1 == 0;
    let mut end =
        if server { Connection::server(&limits, 0) } else { Connection::client(&limits, 0) };
    let (mut program, mut scratch, mut out) = (Program::default(), Scratch::default(), vec![]);
    end.control(&limits, &mut out);
    let mut begin = if server { PREFACE.to_vec() } else { vec![] };
    begin.extend_from_slice(b"\0\0\0\x04\0\0\0\0\0\0\0\0\x04\x01\0\0\0\0");
    if choice & 16 == 0 {
        end.receive(&begin, &limits, &mut scratch, &mut program).expect("a good beginning");
    }
    if !server {
        for _ in 0..4 {
            let Ok(id) = end.open() else { break };
            let sent = end.head(id, choice & 32 == 0, &mut out, |encoder, out| {
                let fields: [(&[u8], &[u8]); 4] = [
                    (b":method", b"GET"),
                    (b":scheme", b"https"),
                    (b":path", b"/"),
                    (b":authority", b"a"),
                ];
                for (name, value) in fields {
                    encoder.field(Field::Literal { name, value }, out);
                }
            });
            assert!(sent);
        }
    }
    // The program acts after each part, wherever its pieces end, so pieces make no difference.
    for part in input.chunks(64) {
        for piece in part.chunks(piece) {
            let result = end.receive(piece, &limits, &mut scratch, &mut program);
            assert!(result.is_ok() || end.is_over());
        }
        for id in std::mem::take(&mut program.asked) {
            end.head(StreamId(id), false, &mut out, |encoder, out| {
                encoder.field(Field::Literal { name: b":status", value: b"200" }, out);
            });
            let len = end.room(StreamId(id), 100);
            if len > 0 {
                end.data(StreamId(id), len, len == 100, &mut out);
                out.extend(vec![0; len as usize]);
            }
        }
        if choice & 64 == 0 {
            for (id, len) in std::mem::take(&mut program.held) {
                end.consumed(StreamId(id), len, &limits);
            }
        }
        end.control(&limits, &mut out);
        assert!(end.memory() <= 64 << 10, "{}", end.memory());
        assert!(end.role() == Role::Client || end.streams() <= 8);
    }
    // Data are reported in as many pieces as they came in.
    program.held.clear();
    (program, out, end.is_over())
}

fuzz_target!(|data: &[u8]| {
    let [choice, piece, input @ ..] = data else { return };
    let whole = run(*choice, input, 64);
    let cut = run(*choice, input, usize::from(*piece % 63) + 1);
    assert_eq!(whole, cut);
});
