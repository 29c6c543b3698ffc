//! Any text as a program, and any octets from the peer: nothing panics, handling of each event
//! terminates, a program that is written can be parsed again, and no state of the flow is left.
//! Input: an octet that selects side and transport, lines up to a zero octet, then the octets from
//! the peer.

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use squall_apps::{
    Apps, Counts, FlowSocket, Instruction, Listener, Program, Role, State, Transport,
};
use squall_tcp::{ClassId, Event, FlowId, FlowKind, Piece, Reason, Tuple};
use squall_units::Nanos;

fuzz_target!(|data: &[u8]| {
    let Some((&choice, rest)) = data.split_first() else { return };
    let end = rest.iter().position(|octet| *octet == 0).unwrap_or(rest.len());
    let Ok(text) = std::str::from_utf8(&rest[..end]) else { return };
    let role = if choice & 1 == 0 { Role::Client } else { Role::Server };
    let (transport, kind) = if choice & 2 == 0 {
        (Transport::Tcp, FlowKind::Tcp)
    } else {
        (Transport::Udp, FlowKind::Udp)
    };
    let program = match Program::parse("fuzz", role, transport, text.lines(), BTreeMap::new()) {
        Ok(program) => program,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    for instruction in &program.instructions {
        let written = instruction.to_string();
        assert_eq!(written.parse::<Instruction>().as_ref(), Ok(instruction), "{written}");
    }
    let mut apps = Apps::new(7, Counts::default());
    let id = apps.add(&program).expect("it was checked");
    let mut socket = Fake {
        now: Nanos(1 << 40),
        kind,
        wake: None,
        sent: vec![],
        over: false,
        state: State::default(),
    };
    socket.state = match role {
        Role::Client => apps.client(id, 5, Nanos(1)),
        Role::Server => {
            let Tuple { local, local_port, .. } = socket.tuple();
            let (class, ports) = (ClassId(0), local_port..=local_port);
            apps.listen(Listener {
                program: id,
                class,
                addresses: local..=local,
                ports,
                peers: None,
            });
            apps.on_accept(socket.now, &socket.tuple()).expect("somebody listens").1
        }
    };
    apps.on_event(&mut socket, Event::Established);
    let mut input = &rest[end.min(rest.len())..];
    // The input itself selects the next event.
    while let Some((&how, after)) = input.split_first() {
        let len = usize::from(how >> 3).min(after.len());
        let (octets, next) = after.split_at(len);
        input = next;
        socket.now = socket.now + Nanos(1 << (how >> 3));
        if !octets.is_empty() {
            apps.on_event(&mut socket, Event::Received(octets));
        }
        let outstanding = socket.sent.len();
        socket.write(&apps, outstanding);
        if how & 1 != 0 && kind == FlowKind::Tcp {
            socket.sent.clear();
            apps.on_event(&mut socket, Event::Acknowledged { octets: 1, all: true });
        }
        if let Some(wake) = socket.wake.take_if(|_| how & 2 != 0) {
            socket.now = socket.now.max(wake);
            apps.on_event(&mut socket, Event::Timer);
        }
        if how == 4 && kind == FlowKind::Tcp {
            apps.on_event(&mut socket, Event::PeerClosed);
        }
    }
    apps.on_event(&mut socket, Event::Gone(Reason::Closed));
    assert_eq!(apps.held(), 0);
    let counts = apps.observer();
    assert!(
        counts.finished <= 1 && counts.gone == 1 && counts.protocol_errors.iter().sum::<u64>() <= 1
    );
});

struct Fake {
    now: Nanos,
    kind: FlowKind,
    wake: Option<Nanos>,
    sent: Vec<Piece>,
    over: bool,
    state: State,
}

impl Fake {
    /// Checks that sent data can be produced again, in whole or in part, with the same octets.
    fn write(&self, apps: &Apps<Counts>, pieces: usize) {
        for piece in &self.sent[..pieces] {
            let len = piece.len.min(3000) as usize;
            let (mut whole, mut part) = (vec![0; len], vec![0; len / 2]);
            apps.write(&self.state, &self.tuple(), *piece, 0, &mut whole);
            apps.write(&self.state, &self.tuple(), *piece, (len - len / 2) as u32, &mut part);
            assert_eq!(whole[len - len / 2..], part);
        }
    }
}

impl FlowSocket for Fake {
    fn now(&self) -> Nanos {
        self.now
    }
    fn due(&self) -> Nanos {
        self.now()
    }
    fn id(&self) -> FlowId {
        FlowId(3)
    }
    fn tuple(&self) -> Tuple {
        let (local, remote) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        Tuple { kind: self.kind, local, local_port: 1, remote, remote_port: 2 }
    }
    fn state(&mut self) -> &mut State {
        &mut self.state
    }
    fn send(&mut self, piece: Piece) -> bool {
        assert!(piece.len > 0 && !self.over);
        // UDP has no acknowledgments.
        if self.kind == FlowKind::Udp {
            self.sent.clear();
        }
        self.sent.push(piece);
        assert!(self.sent.len() <= 15, "a peer that takes nothing holds back who sends");
        piece.len <= 65_507 || self.kind == FlowKind::Tcp
    }
    fn close(&mut self) {
        self.over = true;
    }
    fn abort(&mut self) {
        self.over = true;
    }
    fn wake_at(&mut self, at: Nanos) {
        assert!(at >= self.now);
        self.wake = Some(at);
    }
    fn unacknowledged(&self) -> u32 {
        if self.kind == FlowKind::Udp {
            0
        } else {
            self.sent.iter().fold(0, |sum, piece| sum.saturating_add(piece.len))
        }
    }
    fn unsent(&self) -> u32 {
        0
    }
    fn pause(&mut self) {}
    fn resume(&mut self) {}
}
