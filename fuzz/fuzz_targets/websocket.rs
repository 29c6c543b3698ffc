//! Any octets as frames of WebSocket, in parts: nothing panics, the parts do not change the events,
//! sent octets can be made again, from any offset, and no state of a flow is left. Input: an octet
//! that selects the side, whether a correct handshake comes first, and how rare acknowledgements
//! are, an octet with the length of the parts, then the octets.
#![no_main]

use libfuzzer_sys::fuzz_target;
use squall_apps::{
    Apps, Counts, FlowSocket, Listener, Program, ProgramId, State,
    builtin::websocket_server,
    websocket::{Found, Reader, Violation},
};
use squall_tcp::{ClassId, Event, FlowId, FlowKind, Piece, Reason, Tuple};
use squall_units::Nanos;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: \
    Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

fuzz_target!(|data: &[u8]| {
    let Some((&[choice, part], octets)) = data.split_first_chunk() else { return };
    let part = usize::from(part).max(1);
    let masked = choice & 1 == 1;
    assert_eq!(read(octets, part, masked), read(octets, octets.len().max(1), masked));

    let (client, every) = (choice & 2 == 2, usize::from(choice >> 4) + 1);
    let from = usize::from(choice) << 8 | part;
    let mut end = End::new(client);
    end.event(Event::Established);
    let request = end.take(from, true);
    let first = match (choice & 4 == 4, client) {
        (false, _) => vec![],
        (true, false) => REQUEST.to_vec(),
        (true, true) => answer(&request),
    };
    for (i, octets) in first.chunks(part).chain(octets.chunks(part)).enumerate() {
        end.event(Event::Received(octets));
        end.take(from, i % every == every - 1);
    }
    end.event(Event::PeerClosed);
    end.event(Event::Timer);
    end.take(from, true);
    end.event(Event::Gone(Reason::Closed));
    assert_eq!((end.apps.held(), end.apps.observer().gone), (0, 1));
});

/// A server's answer to this request.
fn answer(request: &[u8]) -> Vec<u8> {
    let mut server = End::new(false);
    server.event(Event::Established);
    server.event(Event::Received(request));
    let answer = server.take(0, true);
    assert!(answer.starts_with(b"HTTP/1.1 101 "));
    answer
}

/// The events, the payload of messages, and the violation.
fn read(octets: &[u8], part: usize, masked: bool) -> (Vec<Found>, Vec<u8>, Option<Violation>) {
    const MOST: u64 = 1000;
    let (mut reader, mut events, mut payload) = (Reader::default(), vec![], vec![]);
    for mut part in octets.chunks(part) {
        loop {
            match reader.read(&mut part, masked, MOST, |of| payload.extend_from_slice(of)) {
                Ok(Found::More) => break,
                Ok(found) => events.push(found),
                Err(violation) => {
                    // How much of a text is read before its violation is found depends on the parts.
                    payload.clear();
                    return (events, payload, Some(violation));
                }
            }
            assert!(reader.control().len() <= 125);
        }
    }
    (events, payload, None)
}

/// One side of a flow.
struct End {
    apps: Apps<Counts>,
    socket: Fake,
    /// The octets of each piece that is not acknowledged, as they were made first.
    made: Vec<Vec<u8>>,
}

impl End {
    fn new(client: bool) -> Self {
        let lines = ["websocket \"/\"", "ws_ping", "ws_send \"hello\"", "ws_recv 1", "ws_close"];
        let program = match client {
            true => Program::client("c").lines(lines).build(),
            false => websocket_server("s"),
        };
        let mut apps = Apps::new(1, Counts::default());
        let program: ProgramId = apps.add(&program.expect("right")).expect("right");
        let mut socket = Fake { client, sent: vec![], state: State::default() };
        let tuple = socket.tuple();
        socket.state = if client {
            apps.client(program, 1, Nanos(1))
        } else {
            let (class, ports) = (ClassId(0), tuple.local_port..=tuple.local_port);
            let addresses = tuple.local..=tuple.local;
            apps.listen(Listener { program, class, addresses, ports, peers: None });
            apps.on_accept(Nanos(1), &tuple).expect("somebody listens").1
        };
        Self { apps, socket, made: vec![] }
    }

    fn event(&mut self, event: Event<'_>) {
        self.apps.on_event(&mut self.socket, event);
    }

    /// Makes all data that is not acknowledged, also from an offset, as retransmissions do. Returns
    /// it.
    fn take(&mut self, from: usize, acknowledges: bool) -> Vec<u8> {
        let (tuple, state) = (self.socket.tuple(), self.socket.state);
        for (i, piece) in self.socket.sent.iter().enumerate() {
            let len = piece.len as usize;
            let (mut whole, offset) = (vec![0; len], from % len);
            self.apps.write(&state, &tuple, *piece, 0, &mut whole);
            let mut part = vec![0; len - offset];
            self.apps.write(&state, &tuple, *piece, offset as u32, &mut part);
            assert_eq!(whole[offset..], part);
            match self.made.get(i) {
                Some(made) => assert_eq!(*made, whole),
                None => self.made.push(whole),
            }
        }
        let all = self.made.concat();
        if acknowledges && !all.is_empty() {
            self.made.clear();
            self.socket.sent.clear();
            self.event(Event::Acknowledged { octets: all.len() as u32, all: true });
        }
        all
    }
}

struct Fake {
    client: bool,
    sent: Vec<Piece>,
    state: State,
}

impl FlowSocket for Fake {
    fn now(&self) -> Nanos {
        Nanos(1 << 40)
    }
    fn due(&self) -> Nanos {
        self.now()
    }
    fn id(&self) -> FlowId {
        FlowId(3)
    }
    fn tuple(&self) -> Tuple {
        Tuple {
            kind: FlowKind::Tcp,
            local: [10, 0, 0, 1].into(),
            local_port: 80,
            remote: [10, 0, 0, 2].into(),
            remote_port: 80 + u16::from(self.client),
        }
    }
    fn state(&mut self) -> &mut State {
        &mut self.state
    }
    fn send(&mut self, piece: Piece) -> bool {
        assert!(piece.len > 0);
        self.sent.push(piece);
        true
    }
    fn close(&mut self) {}
    fn abort(&mut self) {}
    fn wake_at(&mut self, _: Nanos) {}
    fn unacknowledged(&self) -> u32 {
        self.sent.iter().map(|piece| piece.len).sum()
    }
    fn unsent(&self) -> u32 {
        self.unacknowledged()
    }
    fn pause(&mut self) {}
    fn resume(&mut self) {}
}
