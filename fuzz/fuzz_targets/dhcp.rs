//! Any octets as a frame to hosts: nothing panics, no host loses its address by a message of another
//! exchange, and the group stays settled or has a timer. Input: an octet that selects the headers,
//! then the frame, or the message of a server.
#![no_main]

use libfuzzer_sys::fuzz_target;
use squall_host::{
    Addressing, ConflictTimers, Datagram, DhcpTimers, FrameQueue, GroupSettings, HostGroup,
    Message, ServerSettings,
};
use squall_units::{MacAddr, Nanos};

fuzz_target!(|data: &[u8]| {
    let Some((&choice, octets)) = data.split_first() else { return };
    if let Ok(message) = Message::parse(octets) {
        let mut packet = Vec::new();
        message.write([10, 0, 0, 1].into(), [10, 0, 0, 9].into(), b"\x3c\x04fuzz", &mut packet);
        let payload = Datagram::parse(&packet, false).expect("its own packet").payload;
        assert_eq!(Message::parse(payload), Ok(message));
    }
    let mut clients = HostGroup::new(settings(1, Addressing::Dhcp(DhcpTimers::default())), BEGIN);
    let fixed = Addressing::Static { first: [10, 0, 0, 1].into(), prefix: 16 };
    let server = ServerSettings {
        address: [10, 0, 0, 1].into(),
        first: [10, 0, 1, 0].into(),
        count: 2,
        ..ServerSettings::default()
    };
    let mut server =
        HostGroup::new(GroupSettings { server: Some(server), ..settings(2, fixed) }, BEGIN);
    let (mut to_server, mut to_clients) = (FrameQueue::default(), FrameQueue::default());
    let mut now = BEGIN;
    // The frame comes before the exchange, in its middle, or after it.
    for turn in 0..4 {
        if turn == choice >> 2 & 3 {
            let headers: &[u8] = match choice & 3 {
                0 => &[],
                1 => &[2, 0, 0, 1, 0, 1, 2, 0, 0, 9, 0, 9, 8, 6, 0, 1, 8, 0, 6, 4, 0],
                2 => &[2, 0, 0, 1, 0, 1, 2, 0, 0, 9, 0, 9, 8, 0, 0x45, 0],
                _ => &[255, 255, 255, 255, 255, 255, 2, 0, 0, 9, 0, 9, 8, 0, 0x45, 0],
            };
            let frame = [headers, octets].concat();
            clients.receive(now, (&frame, true), &mut to_server);
            server.receive(now, (&frame, true), &mut to_clients);
        }
        clients.advance(now, &mut to_server);
        server.advance(now, &mut to_clients);
        now = Nanos(now.0 + 1_000_000);
        pass(&mut to_server, now, &mut server, &mut to_clients);
        pass(&mut to_clients, now, &mut clients, &mut to_server);
    }
    assert!(clients.is_settled() || clients.next_due().is_some(), "it waits for nothing");
});

const BEGIN: Nanos = Nanos(1_000_000_000);

fn pass(from: &mut FrameQueue, now: Nanos, to: &mut HostGroup, out: &mut FrameQueue) {
    while let Some((frame, _)) = from.first() {
        to.receive(now, (frame, false), out);
        from.pop();
    }
}

fn settings(third: u8, addressing: Addressing) -> GroupSettings {
    GroupSettings {
        mac: MacAddr([2, 0, 0, third, 0, 1]),
        addressing,
        conflict: ConflictTimers { probes: 0, ..ConflictTimers::default() },
        ..GroupSettings::default()
    }
}
