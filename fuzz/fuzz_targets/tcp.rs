#![no_main]
//! Any packets in any state of a stack, at any time: nothing panics, the number of flows and timers
//! is bounded, and no flow is left at the end. Segments start with a flow's actual sequence
//! numbers, which the input then modifies.

use libfuzzer_sys::fuzz_target;
use squall_tcp::{
    Application, ClassId, Congestion, Event, FlowKind, Output, Piece, Settings, Socket, Stack,
    Tunables, Tuple,
};
use squall_units::{Cut, Nanos};
use squall_wire::checksum;

const FLOWS: u32 = 8;
const REASSEMBLY: u64 = 4096;

#[derive(Default)]
struct App {
    gone: u64,
}

impl Application for App {
    type State = u32;

    fn event(&mut self, socket: &mut Socket<'_, u32>, event: Event<'_>) {
        match event {
            Event::Established => {
                let len = if socket.tuple().kind == FlowKind::Udp { 500 } else { 5000 };
                socket.send(Piece { message: 0, nth: 0, len }).expect("a new flow takes it");
            }
            Event::Received(octets) => {
                assert!(!octets.is_empty() || socket.tuple().kind == FlowKind::Udp);
                // The input selects the actions.
                match octets.first().map_or(0, |o| o % 8) {
                    1 => socket.close(),
                    2 => socket.abort(),
                    3 => socket.pause(),
                    4 => socket.resume(),
                    5 => drop(socket.send(Piece { message: 1, nth: 1, len: 70_000 })),
                    6 => {
                        let now = socket.now();
                        socket.wake_at(now + Nanos(5_000_000));
                    }
                    _ => drop(socket.send(Piece { message: 2, nth: 2, len: 1 })),
                }
            }
            Event::Acknowledged { octets, .. } => assert!(octets > 0),
            Event::PeerClosed | Event::Timer | Event::Settle => {}
            Event::Gone(_) => self.gone += 1,
        }
        assert!(socket.unacknowledged() <= 1 << 30);
    }

    fn copy(&self, _: &u32, _: &Tuple, piece: Piece, offset: u32, out: &mut [u8]) {
        assert!(u64::from(offset) + out.len() as u64 <= u64::from(piece.len));
        out.fill(piece.message as u8);
    }

    fn accept(&mut self, _: Nanos, flow: &Tuple) -> Option<(ClassId, u32)> {
        (flow.local_port != 9).then_some((ClassId(flow.local_port % 2), 0))
    }
}

/// Remembers the sequence numbers in the last segment of each local port.
#[derive(Default)]
struct Wire {
    last: [(u32, u32); 4],
    room: usize,
    octets: Vec<u8>,
}

impl Output for Wire {
    fn packet(&mut self, _: ClassId, flow: &Tuple, len: usize, _: Cut) -> Option<&mut [u8]> {
        self.keep();
        self.room = self.room.checked_sub(1)?;
        let _ = flow;
        self.octets = vec![0; len];
        Some(&mut self.octets)
    }
}

impl Wire {
    fn keep(&mut self) {
        if self.octets.len() >= 40 && self.octets[9] == 6 {
            let word = |at: usize| {
                u32::from_be_bytes(self.octets[at..at + 4].try_into().expect("four octets"))
            };
            let port = usize::from(self.octets[21]) % 4;
            let numbers = u32::from(self.octets[33] & 3 != 0);
            self.last[port] =
                (word(24).wrapping_add((self.octets.len() - 40) as u32 + numbers), word(28));
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let settings = Settings {
        flows: FLOWS,
        verify: false,
        gso_max_size: 9000,
        reassembly: REASSEMBLY,
        challenges: 5,
        ..Settings::default()
    };
    let mut stack = Stack::new(settings, App::default());
    let controls = [Congestion::NewReno, Congestion::Cubic, Congestion::Bbr];
    let drawn = data.last().map_or(0, |octet| usize::from(*octet));
    let base = Tunables {
        congestion: controls[drawn % 3],
        keepidle: Nanos::SECOND,
        keepcnt: 2,
        time_wait: Nanos::SECOND,
        ..Tunables::default()
    };
    stack.add_class(base.clone()).expect("in their ranges");
    let plain = Tunables {
        sack: false,
        timestamps: false,
        wscale: None,
        window: 4000,
        reassembly: 4000,
        congestion: controls[drawn / 3 % 3],
        ..base
    };
    stack.add_class(plain).expect("in their ranges");
    let mut now = Nanos(1 << 40);
    let mut wire = Wire::default();
    let mut rest = data;
    while let Some((&[what, a, b, c], tail)) = rest.split_first_chunk() {
        rest = tail;
        let port = u16::from(what & 3);
        let tuple = Tuple {
            kind: if what & 4 > 0 { FlowKind::Udp } else { FlowKind::Tcp },
            local: [10, 0, 0, 1].into(),
            local_port: port,
            remote: [10, 0, 0, 2].into(),
            remote_port: 7,
        };
        match what >> 4 {
            0 => drop(stack.connect(now, ClassId(port % 2), tuple, 0)),
            1 => now = now + Nanos(u64::from(a) << (b % 32)),
            2 => {
                // Use octets of the input unchanged.
                let len = usize::from(a).min(rest.len());
                let (packet, tail) = rest.split_at(len);
                rest = tail;
                stack.receive(now, packet);
            }
            _ => {
                let (nxt, ack) = wire.last[usize::from(port)];
                let moved = |number: u32, by: u8| match by {
                    0..=127 => number,
                    _ => number.wrapping_add_signed((i32::from(by as i8) + 64) << (by % 4 * 3)),
                };
                let len = usize::from(b % 64) * usize::from(what >> 4);
                let mut packet = vec![c; 52 + len];
                packet[..20].copy_from_slice(&[
                    0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1,
                ]);
                packet[2..4].copy_from_slice(&((52 + len) as u16).to_be_bytes());
                packet[20..24].copy_from_slice(&[0, 7, 0, port as u8]);
                packet[24..28].copy_from_slice(&moved(ack, b).to_be_bytes());
                packet[28..32].copy_from_slice(&moved(nxt, c).to_be_bytes());
                packet[32] = 0x80;
                // Most segments have an ACK.
                packet[33] = if what & 8 > 0 { a } else { a & 0xdb | 0x10 };
                packet[34..36].copy_from_slice(&(u16::from(c) << (b % 9)).to_be_bytes());
                packet[40..44].copy_from_slice(&[1, 1, 8, 10]);
                packet[44..48].copy_from_slice(&((now.0 >> 20) as u32).to_be_bytes());
                let sum = checksum::fold(checksum::sum(&packet[..20]));
                packet[10..12].copy_from_slice(&(!sum).to_be_bytes());
                stack.receive(now, &packet);
            }
        }
        stack.advance(now);
        wire.room = usize::from(c % 40);
        stack.transmit(now, &mut wire);
        wire.keep();
        assert!(stack.active() + stack.time_wait() <= FLOWS as usize);
        assert!(stack.next_due().is_none_or(|due| due > now), "a timer stalls");
    }
    // Without a peer, each flow ends by itself, except for flows that wait for the other side.
    let mut steps = 0;
    wire.room = 1000;
    stack.transmit(now, &mut wire);
    while let Some(due) = stack.next_due()
        && steps < 100_000
    {
        assert!(due > now);
        now = due;
        stack.advance(now);
        wire.room = 1000;
        stack.transmit(now, &mut wire);
        steps += 1;
    }
    assert_eq!((stack.active(), stack.time_wait()), (0, 0));
    assert!(steps < 100_000, "timers without end");
});
