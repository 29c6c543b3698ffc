//! Any octets on the streams of a connection of HTTP/3, to a client or a server: nothing panics,
//! memory is bounded, events are in order, and it makes no difference where the octets are cut.
//! Input: an octet that selects the end, its settings and whether the peer begins well; one that
//! selects the pieces; then pieces of streams, each after its stream and its length.
#![no_main]

use std::collections::{HashMap, HashSet};

use libfuzzer_sys::fuzz_target;
use squall_http::{
    h3::{
        Cause, Code, Connection, Counters, Events, Head, HeadKind, Limits, Own, PeerSettings,
        Progress, Role, Scratch, Settings, StreamId, setting,
    },
    qpack::{Field, Fixed},
};

#[derive(Debug, Default, PartialEq)]
struct Program {
    /// Octets of data of each request, and whether the peer has ended or reset it.
    requests: HashMap<u64, (u64, bool)>,
    stopped: HashSet<u64>,
    unblocked: Vec<u64>,
    /// Requests to answer.
    asked: Vec<u64>,
    counters: Counters,
}

impl Events for Program {
    fn head(&mut self, id: StreamId, head: &Head<'_>) {
        let (_, over) = self.requests.entry(id.0).or_default();
        assert!(!*over, "nothing follows an end");
        *over = head.end;
        let pseudo = head.fields.iter().take_while(|(name, _)| name.starts_with(b":")).count();
        for (name, value) in head.fields.iter().skip(pseudo) {
            assert!(!name.is_empty() && !name.contains(&b':'));
            assert!(!name.iter().chain(value).any(|octet| b"\r\n\0".contains(octet)));
        }
        match head.kind {
            HeadKind::Request => self.asked.push(id.0),
            HeadKind::Trailers => assert!(pseudo == 0),
            HeadKind::Interim | HeadKind::Response => assert!(head.status >= 100),
        }
    }

    fn data(&mut self, id: StreamId, octets: &[u8], end: bool) {
        let (sum, over) = self.requests.get_mut(&id.0).expect("a head comes first");
        assert!(!*over && (end || !octets.is_empty()));
        *sum += octets.len() as u64;
        *over = end;
    }

    fn reset(&mut self, id: StreamId, _: Code, _: Cause) {
        self.requests.entry(id.0).or_default().1 = true;
    }

    fn stop(&mut self, id: StreamId, _: Code) {
        assert!(!id.is_bidirectional() && self.stopped.insert(id.0));
    }

    fn unblocked(&mut self, id: StreamId) {
        assert!(self.requests.contains_key(&id.0), "its head comes first");
        self.unblocked.push(id.0);
    }

    fn settings(&mut self, _: &PeerSettings) {}

    fn going_away(&mut self, _: u64) {}

    fn counters(&mut self) -> &mut Counters {
        &mut self.counters
    }
}

struct End {
    connection: Connection,
    limits: Limits,
    scratch: Scratch,
    program: Program,
    /// Streams of which nothing more is given, and what waits on blocked ones.
    over: HashSet<u64>,
    waiting: HashMap<u64, (Vec<u8>, bool)>,
}

impl End {
    fn receive(&mut self, id: u64, input: &[u8], end: bool) {
        if self.over.contains(&id) {
            return;
        }
        if let Some((octets, ends)) = self.waiting.get_mut(&id) {
            octets.extend_from_slice(input);
            *ends |= end;
            return;
        }
        let Self { connection, limits, scratch, program, .. } = self;
        match connection.receive(StreamId(id), input, end, limits, scratch, program) {
            Ok(Progress::Taken) => {}
            Ok(Progress::Blocked(taken)) => {
                assert!(taken <= input.len());
                self.waiting.insert(id, (input[taken..].to_vec(), end));
            }
            Ok(Progress::Over) => {
                self.over.insert(id);
            }
            Err(_) => assert!(connection.is_over()),
        }
        // A request that was reset is over.
        let requests = self.program.requests.iter().filter(|(_, (_, over))| *over);
        self.over.extend(requests.map(|(id, _)| *id));
        for id in std::mem::take(&mut self.program.unblocked) {
            if let Some((octets, end)) = self.waiting.remove(&id) {
                self.receive(id, &octets, end);
            }
        }
    }
}

fn run(choice: u8, input: &[u8], piece: usize) -> (Program, Vec<Vec<u8>>, bool) {
    let table = if choice & 2 == 0 { 0 } else { 300 };
    let list = [
        (setting::QPACK_MAX_TABLE_CAPACITY, table),
        (setting::QPACK_BLOCKED_STREAMS, if choice & 4 == 0 { 16 } else { 2 }),
        (setting::ENABLE_CONNECT_PROTOCOL, u64::from(choice & 8 == 0)),
    ];
    let limits = Limits::new(Settings::new(&list).expect("allowed values"));
    let limits = Limits { encoder_table: if choice & 64 == 0 { 0 } else { 4096 }, ..limits };
    let server = choice & 1 == 0;
    let connection =
        if server { Connection::server(&limits, 1) } else { Connection::client(&limits, 1) };
    let mut end = End {
        connection,
        limits,
        scratch: Scratch::default(),
        program: Program::default(),
        over: HashSet::new(),
        waiting: HashMap::new(),
    };
    let fixed = Fixed::new(b"user-agent", b"squall");
    let peer = if server { 2 } else { 3 };
    if choice & 16 == 0 {
        end.receive(peer, b"\0\x04\x05\x01\x50\0\x21\x01", false);
        end.receive(peer + 4, b"\x02\x3f\x45", false);
    }
    let mut out = vec![];
    if !server {
        for id in (0..16).step_by(4).map(StreamId) {
            end.connection.open(id);
            let sent = end.connection.head(id, choice & 32 == 0, &mut out, |encoder, out| {
                let fields: [(&[u8], &[u8]); 2] = [(b":method", b"GET"), (b":path", b"/")];
                for (name, value) in fields {
                    encoder.field(Field::Literal { name, value }, out);
                }
                encoder.field(Field::Fixed(0, &fixed), out);
            });
            assert!(sent);
        }
    }
    let mut rest = input;
    while let [stream, len, more @ ..] = rest {
        let (octets, more) = more.split_at(usize::from(*len).min(more.len()));
        rest = more;
        let id = match stream % 8 {
            nth @ 0..4 => u64::from(nth) * 4,
            nth => peer + u64::from(nth - 4) * 4,
        };
        if stream & 0x40 != 0 {
            if !end.over.contains(&id) {
                let End { connection, limits, program, over, .. } = &mut end;
                let _ = connection.peer_reset(StreamId(id), Code(u64::from(*len)), limits, program);
                over.insert(id);
                end.waiting.remove(&id);
            }
        } else {
            for piece in octets.chunks(piece) {
                end.receive(id, piece, false);
            }
            if stream & 0x80 != 0 {
                end.receive(id, &[], true);
            }
        }
        for id in std::mem::take(&mut end.program.asked) {
            let id = StreamId(id);
            end.connection.head(id, false, &mut out, |encoder, out| {
                encoder.field(Field::Literal { name: b":status", value: b"200" }, out);
                encoder.field(Field::Fixed(0, &fixed), out);
            });
            if end.connection.data(id, 3, choice & 32 == 0, &mut out) {
                out.extend_from_slice(b"abc");
            }
        }
        assert!(end.connection.memory() <= 300 << 10, "{}", end.connection.memory());
        assert!(end.connection.role() == Role::Client || end.connection.streams() <= 4);
    }
    let mut sent = vec![out];
    sent.extend(Own::ALL.map(|own| end.connection.waiting(own).to_vec()));
    // Increments for insertions come as often as octets do.
    if let Some(answers) = sent.last_mut().filter(|_| table > 0) {
        answers.clear();
    }
    (end.program, sent, end.connection.is_over())
}

fuzz_target!(|data: &[u8]| {
    let [choice, piece, input @ ..] = data else { return };
    let whole = run(*choice, input, 255);
    let cut = run(*choice, input, usize::from(*piece % 63) + 1);
    // Answers differ in their number with a table, and so does the moment at which they are too
    // many.
    if *choice & 2 == 0 {
        assert_eq!(whole, cut);
    }
});
