//! Any octets as messages of DNS and multicast DNS: nothing panics, readers come to an end, a
//! response answers each query, and groups are settled or have a timer. Input: an octet that selects
//! the port and the moment, then the message.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use squall_host::{
    Addressing, DnsZone, FrameQueue, GroupSettings, HostGroup, MdnsSettings, NameTemplate,
    ResolverSettings, ServiceSettings, dns,
};
use squall_units::{MacAddr, Nanos};
use squall_wire::checksum::{fold, sum};

fuzz_target!(|data: &[u8]| {
    let Some((&choice, octets)) = data.split_first() else { return };
    let mut reply = Vec::new();
    if zone().respond(octets, &mut reply).is_ok() {
        let (header, mut reader) = dns::DnsReader::new(&reply).expect("its own response");
        let mut name = dns::Name::default();
        reader.question(&mut name).expect("its own question");
        for _ in 0..header.answers {
            reader.record(&mut name).expect("its own record");
        }
        assert!(reply.len() <= 512, "{} octets", reply.len());
    }
    let text = String::from_utf8_lossy(octets);
    if let Some(template) = NameTemplate::new(&text) {
        let mut name = dns::Name::default();
        template.write(7, 9, &mut name).expect("names with shorter numbers fit");
        assert_eq!(dns::Name::default().read(name.octets(), 0), Ok(name.octets().len()));
    }
    let mut group = HostGroup::new(settings(), BEGIN);
    let (mut out, mut now) = (FrameQueue::default(), BEGIN);
    for turn in 0..8 {
        group.advance(now, &mut out);
        if turn == choice >> 3 & 7 {
            group.receive(now, (&frame(choice & 7, octets), true), &mut out);
        }
        now = group.next_due().unwrap_or(now).max(now);
    }
    assert!(group.is_settled() || group.next_due().is_some(), "it waits for nothing");
});

const BEGIN: Nanos = Nanos(1_000_000_000);
const OWN: [u8; 4] = [10, 0, 0, 2];

fn zone() -> DnsZone {
    let mut zone = DnsZone::new(60);
    for i in 0..40 {
        zone.add("a", [10, 0, 0, i].into());
    }
    zone.add("*.b", [10, 0, 0, 3].into());
    zone
}

fn settings() -> GroupSettings {
    let resolver = ResolverSettings {
        names: vec![NameTemplate::new("a").expect("a name")],
        server: Some([10, 0, 0, 9].into()),
        ..ResolverSettings::default()
    };
    let services = ServiceSettings {
        resolver: Some(Arc::new(resolver)),
        zone: Some(Arc::new(zone())),
        mdns: Some(MdnsSettings { name: "h".into(), ttl: 120 }),
        ..ServiceSettings::default()
    };
    GroupSettings {
        mac: MacAddr([2, 0, 0, 0, 0, 1]),
        addressing: Addressing::Static { first: OWN.into(), prefix: 24 },
        services,
        ..GroupSettings::default()
    }
}

/// A datagram from or to the port of a server, or of multicast DNS.
fn frame(choice: u8, octets: &[u8]) -> Vec<u8> {
    let ports: [u8; 4] = match choice {
        0 => [0, 53, 0xc0, 0],
        1 => [0xc0, 0, 0, 53],
        2 => [0xc0, 0, 0x14, 0xe9],
        _ => [0x14, 0xe9, 0x14, 0xe9],
    };
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 9, 0, 9, 8, 0];
    let len = octets.len().min(1400) as u16;
    frame.extend([0x45, 0]);
    frame.extend((28 + len).to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 9]);
    frame.extend(OWN);
    let check = !fold(sum(&frame[14..34]));
    frame[24..26].copy_from_slice(&check.to_be_bytes());
    frame.extend(ports);
    frame.extend((8 + len).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(&octets[..len.into()]);
    frame
}
