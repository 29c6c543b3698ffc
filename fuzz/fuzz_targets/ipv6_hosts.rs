//! Any octets as an IPv6 packet to hosts: nothing panics, messages that were read are written again,
//! and groups are settled or have a timer. Input: an octet that selects the headers and the moment,
//! then the packet, or the message of a server or of a router.
#![no_main]

use libfuzzer_sys::fuzz_target;
use squall_host::{
    Datagram6, Dhcp6Settings, FrameQueue, GroupSettings, HostGroup, InterfaceIdentifier,
    Ipv6Addressing, Ipv6Settings, Message6, NdMessage, NdTimers, RouterSettings, Server6Settings,
    duid_of,
};
use squall_units::{MacAddr, Nanos};
use squall_wire::checksum::{fold, sum};

fuzz_target!(|data: &[u8]| {
    let Some((&choice, octets)) = data.split_first() else { return };
    if let Ok(message) = Message6::parse(octets) {
        let mut packet = Vec::new();
        let address = "fe80::1".parse().expect("an address");
        message.write(address, address, &mut packet);
        let payload = Datagram6::parse(&packet, false).expect("its own packet").payload;
        assert_eq!(Message6::parse(payload), Ok(message));
    }
    if let Ok(Some(NdMessage::RouterAdvertisement(message))) = NdMessage::parse(octets) {
        let again = NdMessage::parse(&message.octets());
        assert_eq!(again, Ok(Some(NdMessage::RouterAdvertisement(message))));
    }
    let dhcp = Dhcp6Settings {
        prefix: Some(56),
        rapid_commit: choice & 64 != 0,
        flap: Some(Nanos(1_000_000_000)),
        ..Dhcp6Settings::default()
    };
    let addressing = if choice & 128 != 0 { Ipv6Addressing::Slaac } else { Ipv6Addressing::Dhcp };
    let mut clients = HostGroup::new(settings(1, addressing, Some(dhcp), false), BEGIN);
    let first = "2001:db8::1".parse().expect("an address");
    let fixed = Ipv6Addressing::Static { first, prefix: 64 };
    let mut server = HostGroup::new(settings(2, fixed, None, true), BEGIN);
    let (mut to_server, mut to_clients) = (FrameQueue::default(), FrameQueue::default());
    let mut now = BEGIN;
    // The packet comes before the exchange, in its middle, or after it.
    for turn in 0..8 {
        if turn == choice >> 3 & 7 {
            let frame = frame(choice & 7, octets);
            clients.receive(now, (&frame, true), &mut to_server);
            server.receive(now, (&frame, true), &mut to_clients);
        }
        for _ in 0..4 {
            clients.advance(now, &mut to_server);
            server.advance(now, &mut to_clients);
            now = Nanos(now.0 + 1_000_000);
            pass(&mut to_server, now, &mut server, &mut to_clients);
            pass(&mut to_clients, now, &mut clients, &mut to_server);
        }
        now = clients.next_due().unwrap_or(now).max(now);
    }
    assert!(clients.is_settled() || clients.next_due().is_some(), "it waits for nothing");
});

const BEGIN: Nanos = Nanos(1_000_000_000);

/// A frame with headers that lead to each parser.
fn frame(choice: u8, octets: &[u8]) -> Vec<u8> {
    let to: [u8; 6] = if choice & 1 == 0 { [0x33, 0x33, 0, 0, 0, 1] } else { [2, 0, 0, 1, 0, 1] };
    let mut frame = [&to[..], &[2, 0, 0, 9, 0, 9, 0x86, 0xdd]].concat();
    let mut addresses = [0; 32];
    addresses[..2].copy_from_slice(&[0xfe, 0x80]);
    addresses[15] = 9;
    addresses[16..18].copy_from_slice(&[0xff, 2]);
    addresses[31] = 1;
    match choice >> 1 {
        0 => frame.extend(octets),
        1 => {
            frame.extend([0x60, 0, 0, 0]);
            frame.extend((octets.len() as u16).to_be_bytes());
            frame.extend([58, 255]);
            frame.extend(addresses);
            frame.extend(octets);
            if octets.len() >= 4 {
                frame[56..58].fill(0);
                let pseudo = sum(&frame[22..54]) + octets.len() as u64 + 58;
                let check = !fold(pseudo + sum(&frame[54..]));
                frame[56..58].copy_from_slice(&check.to_be_bytes());
            }
        }
        port => {
            let len = (octets.len() as u16).saturating_add(8).to_be_bytes();
            frame.extend([0x60, 0, 0, 0]);
            frame.extend(len);
            frame.extend([17, 64]);
            frame.extend(addresses);
            frame.extend(if port == 2 { [2, 0x23, 2, 0x22] } else { [2, 0x22, 2, 0x23] });
            frame.extend(len);
            frame.extend([0, 0]);
            frame.extend(octets);
        }
    }
    frame
}

fn pass(from: &mut FrameQueue, now: Nanos, to: &mut HostGroup, out: &mut FrameQueue) {
    while let Some((frame, _)) = from.first() {
        to.receive(now, (frame, false), out);
        from.pop();
    }
}

fn settings(
    third: u8,
    addressing: Ipv6Addressing,
    dhcp: Option<Dhcp6Settings>,
    serves: bool,
) -> GroupSettings {
    let server = Server6Settings {
        identifier: duid_of(MacAddr([2, 0, 0, third, 0, 1])),
        first: "2001:db8::100".parse().expect("an address"),
        count: 2,
        ..Server6Settings::default()
    };
    let ipv6 = Ipv6Settings {
        addressing,
        identifier: InterfaceIdentifier::Eui64,
        gateway: None,
        timers: NdTimers::default(),
        dhcp,
        router: serves.then(RouterSettings::default),
        server: serves.then_some(server),
    };
    GroupSettings {
        mac: MacAddr([2, 0, 0, third, 0, 1]),
        ipv6: Some(ipv6),
        icmp_errors: true,
        ..GroupSettings::default()
    }
}
