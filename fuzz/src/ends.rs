//! Two ends of a flow, for layers between TCP and programs.

use squall_apps::{Apps, Counts, FlowSocket, Listener, ProgramId, State};
use squall_tcp::{ClassId, Event, FlowId, FlowKind, Piece, Reason, Tuple};
use squall_units::Nanos;

/// A correct exchange of the server and the client in `ends`, then any octets to one of them, then
/// the end of both. `data`: an octet that selects the side and the length of the exchange, then
/// pieces of octets, each preceded by its length. Nothing of a flow is left.
pub fn exchange(mut ends: [End; 2], data: &[u8]) {
    let Some((&choice, mut input)) = data.split_first() else { return };
    ends.iter_mut().for_each(|end| end.event(Event::Established));
    // The number of turns for each side.
    for turn in 0..choice >> 1 & 7 {
        let from = usize::from(1 - (turn & 1));
        for piece in ends[from].take() {
            ends[1 - from].receive(&piece);
        }
    }
    let victim = &mut ends[usize::from(choice & 1)];
    while let Some((&len, after)) = input.split_first() {
        let (octets, next) = after.split_at(usize::from(len).min(after.len()));
        input = next;
        victim.receive(octets);
        if len & 1 == 0 {
            victim.take();
        }
    }
    for end in &mut ends {
        end.event(Event::PeerClosed);
        end.event(Event::Timer);
        end.event(Event::Gone(Reason::Closed));
        assert_eq!(end.apps.held(), 0);
        assert_eq!(end.apps.observer().gone, 1);
    }
}

/// One side, with the data that it sent.
pub struct End {
    apps: Apps<Counts>,
    socket: Fake,
}

impl End {
    /// An end that runs `program`, over TCP.
    #[allow(dead_code, reason = "each target uses one of the constructors")]
    pub fn new(apps: Apps<Counts>, program: ProgramId, client: bool) -> Self {
        Self::of_kind(apps, program, client, FlowKind::Tcp)
    }

    /// An end that runs `program`.
    pub fn of_kind(
        mut apps: Apps<Counts>,
        program: ProgramId,
        client: bool,
        kind: FlowKind,
    ) -> Self {
        let mut socket = Fake { client, kind, sent: vec![], state: State::default() };
        let tuple = socket.tuple();
        socket.state = if client {
            apps.client(program, 1, Nanos(1))
        } else {
            let (class, ports) = (ClassId(0), tuple.local_port..=tuple.local_port);
            apps.listen(Listener {
                program,
                class,
                addresses: tuple.local..=tuple.local,
                ports,
                peers: None,
            });
            apps.on_accept(Nanos(1), &tuple).expect("somebody listens").1
        };
        Self { apps, socket }
    }

    fn event(&mut self, event: Event<'_>) {
        self.apps.on_event(&mut self.socket, event);
    }

    fn receive(&mut self, octets: &[u8]) {
        if !octets.is_empty() {
            self.event(Event::Received(octets));
        }
    }

    /// Takes the pieces of sent data, and acknowledges them.
    fn take(&mut self) -> Vec<Vec<u8>> {
        let (mut all, mut octets) = (vec![], 0);
        for piece in std::mem::take(&mut self.socket.sent) {
            let mut out = vec![0; piece.len as usize];
            self.apps.write(&self.socket.state, &self.socket.tuple(), piece, 0, &mut out);
            all.push(out);
            octets += piece.len;
        }
        if octets > 0 {
            self.event(Event::Acknowledged { octets, all: true });
        }
        all
    }
}

struct Fake {
    client: bool,
    kind: FlowKind,
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
        let (local, remote) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        Tuple {
            kind: self.kind,
            local,
            local_port: 443,
            remote,
            remote_port: 443 + u16::from(self.client),
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
