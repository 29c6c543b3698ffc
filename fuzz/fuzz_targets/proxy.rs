//! Any octets at the start of a flow whose server requires a header of the PROXY protocol, in parts:
//! nothing panics, the parts do not change the outcome, and no state of the flow is left. Input: an
//! octet with the length of the parts, then the octets.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use squall_apps::{
    Apps, Counts, FlowSocket, Listener, Program, ProgramId, State,
    proxy::{ProxyProtocol, parse},
};
use squall_tcp::{ClassId, Event, FlowId, FlowKind, Piece, Reason, Tuple};
use squall_units::Nanos;

fuzz_target!(|data: &[u8]| {
    let Some((&part, octets)) = data.split_first() else { return };
    let whole = parse(octets);
    for part in 0..octets.len() {
        match (parse(&octets[..part]), whole) {
            (Ok(None), _) => {}
            (of_part, whole) => assert_eq!(of_part, whole, "more octets change nothing"),
        }
    }
    if let Ok(Some(len)) = whole {
        assert!((1..=octets.len()).contains(&len));
        assert_eq!(parse(&octets[..len - 1]), Ok(None));
    }

    let program = Program::server("s").wait_peer_close().build().expect("right");
    let mut apps = Apps::new(1, Counts::default());
    let program: ProgramId = apps.add(&program).expect("right");
    apps.proxy(program, &Arc::new(ProxyProtocol::default()));
    let mut socket = Fake { state: State::default(), aborted: false };
    let tuple = socket.tuple();
    apps.listen(Listener {
        program,
        class: ClassId(0),
        addresses: tuple.local..=tuple.local,
        ports: tuple.local_port..=tuple.local_port,
        peers: None,
    });
    socket.state = apps.on_accept(Nanos(1), &tuple).expect("somebody listens").1;
    apps.on_event(&mut socket, Event::Established);
    for octets in octets.chunks(usize::from(part).max(1)) {
        apps.on_event(&mut socket, Event::Received(octets));
    }
    assert_eq!(apps.observer().established, u64::from(matches!(whole, Ok(Some(_)))));
    assert!(whole.is_ok() || socket.aborted);
    if let Ok(Some(len)) = whole {
        assert_eq!(apps.observer().received, (octets.len() - len) as u64);
    }
    apps.on_event(&mut socket, Event::PeerClosed);
    apps.on_event(&mut socket, Event::Timer);
    apps.on_event(&mut socket, Event::Gone(Reason::Closed));
    assert_eq!((apps.held(), apps.observer().gone), (0, 1));
});

struct Fake {
    state: State,
    aborted: bool,
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
            remote_port: 1024,
        }
    }
    fn state(&mut self) -> &mut State {
        &mut self.state
    }
    fn send(&mut self, _: Piece) -> bool {
        true
    }
    fn close(&mut self) {}
    fn abort(&mut self) {
        self.aborted = true;
    }
    fn wake_at(&mut self, _: Nanos) {}
    fn unacknowledged(&self) -> u32 {
        0
    }
    fn unsent(&self) -> u32 {
        0
    }
    fn pause(&mut self) {}
    fn resume(&mut self) {}
}
