//! Two ends of a flow, for layers between TCP and programs.

use std::time::Instant;

use squall_apps::{
    Apps, Counts, FlowSocket, Http3, Listener, ProgramId, State, Tls,
    builtin::{HttpClient, http_server},
};
use squall_tcp::{ClassId, Event, FlowId, FlowKind, Piece, Reason, Tuple};
use squall_units::Nanos;

/// A correct exchange of the server and the client in `ends`, then any octets to one of them, then
/// the end of both. `data`: an octet that selects the side and the length of the exchange, and
/// whether another flow precedes it, then pieces of octets, each preceded by its length. Nothing of
/// a flow is left.
#[allow(dead_code, reason = "some targets play the other end themselves")]
pub fn exchange(mut ends: [End; 2], data: &[u8]) {
    let Some((&choice, mut input)) = data.split_first() else { return };
    if choice & 0x80 != 0 {
        // With TLS, the client then has a ticket.
        take_turns(&mut ends, 12);
        ends.iter_mut().for_each(End::again);
    }
    take_turns(&mut ends, choice >> 1 & 7);
    let victim = &mut ends[usize::from(choice & 1)];
    while let Some((&len, after)) = input.split_first() {
        let (octets, next) = after.split_at(usize::from(len).min(after.len()));
        input = next;
        victim.receive(octets);
        if len & 1 == 0 {
            victim.take();
        }
    }
    ends.iter_mut().for_each(End::finish);
}

/// Begins the flow. Each turn, one side receives what the other has sent.
fn take_turns(ends: &mut [End; 2], turns: u8) {
    ends.iter_mut().for_each(|end| end.event(Event::Established));
    for turn in 0..turns {
        let from = usize::from(1 - (turn & 1));
        for piece in ends[from].take() {
            ends[1 - from].receive(&piece);
        }
    }
}

/// One side, with the data that it sent.
pub struct End {
    apps: Apps<Counts>,
    socket: Fake,
    /// The state of a flow that begins.
    first: State,
    flows: u64,
}

impl End {
    /// An end that runs `program`, over TCP.
    #[allow(dead_code, reason = "each target uses one of the constructors")]
    pub fn new(apps: Apps<Counts>, program: ProgramId, client: bool) -> Self {
        Self::of_kind(apps, program, client, FlowKind::Tcp)
    }

    /// A client with two requests over HTTP/3, or its server.
    #[allow(dead_code, reason = "each target uses one of the constructors")]
    pub fn over_http3(tls: &Tls, settings: &Http3, client: bool) -> Self {
        let program = if client {
            let client = HttpClient { requests: 2, post: Some(3_000), ..HttpClient::default() };
            client.program("c")
        } else {
            http_server("s", 3_000)
        };
        let mut apps = Apps::new(1, Counts::default());
        let program = apps.add(&program.expect("right")).expect("right");
        apps.over_http3(program, settings, tls, Instant::now());
        Self::of_kind(apps, program, client, FlowKind::Udp)
    }

    /// An end that runs `program`.
    pub fn of_kind(
        mut apps: Apps<Counts>,
        program: ProgramId,
        client: bool,
        kind: FlowKind,
    ) -> Self {
        let now = Nanos(1 << 40);
        let mut socket =
            Fake { client, kind, now, sent: vec![], state: State::default(), unsettled: false };
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
        Self { apps, first: socket.state, socket, flows: 1 }
    }

    #[allow(dead_code, reason = "some targets play the other end themselves")]
    pub fn begin(&mut self) {
        self.event(Event::Established);
    }

    /// Lets time pass.
    #[allow(dead_code, reason = "some targets play the other end themselves")]
    pub fn wait(&mut self, time: Nanos) {
        self.socket.now = self.socket.now + time;
        self.event(Event::Timer);
    }

    /// Ends the flow, of which nothing is left.
    pub fn finish(&mut self) {
        self.event(Event::PeerClosed);
        self.event(Event::Timer);
        self.event(Event::Gone(Reason::Closed));
        assert_eq!(self.apps.held(), 0);
        assert_eq!(self.apps.observer().gone, self.flows);
    }

    /// Ends the flow, and makes another one.
    fn again(&mut self) {
        self.finish();
        self.socket.state = self.first;
        self.socket.sent.clear();
        self.socket.unsettled = false;
        self.flows += 1;
    }

    fn event(&mut self, event: Event<'_>) {
        self.apps.on_event(&mut self.socket, event);
    }

    pub fn receive(&mut self, octets: &[u8]) {
        if !octets.is_empty() {
            self.event(Event::Received(octets));
        }
    }

    /// Takes the pieces of sent data, and acknowledges them.
    pub fn take(&mut self) -> Vec<Vec<u8>> {
        if std::mem::take(&mut self.socket.unsettled) {
            self.event(Event::Settle);
        }
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
    now: Nanos,
    sent: Vec<Piece>,
    state: State,
    /// Whether the flow wants [`Event::Settle`] before its data are sent.
    unsettled: bool,
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
    fn settle_later(&mut self) -> bool {
        self.unsettled = true;
        true
    }
}
