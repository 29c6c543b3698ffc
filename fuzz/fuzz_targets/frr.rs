//! Any octets as replies of FRR: nothing panics, and a complete reply is a part of what came. Input:
//! the replies to all questions, with an octet 255 between two of them.
#![no_main]

use std::net::Ipv4Addr;

use libfuzzer_sys::fuzz_target;
use squall_router::{Bgp, Daemon, Isis, Neighbor, RouterSettings, frr};
use squall_units::{MacAddr, Nanos};

fuzz_target!(|data: &[u8]| {
    let settings = settings();
    let texts = data.split(|octet| *octet == 255).map(String::from_utf8_lossy);
    let questions = frr::questions(&settings).into_iter().map(|(_, text)| text);
    let replies = questions.zip(texts.map(|text| text.into_owned())).collect();
    let protocols = frr::protocols(&settings, &replies);
    assert_eq!(protocols.len(), 7);
    for reply in replies.values() {
        if let Some(len) = frr::reply(reply) {
            let _ = frr::refusal(&reply[..len]);
        }
    }
    let _ = frr::kernel_routes(replies.values().map(String::as_str));
});

/// A router with all protocols.
fn settings() -> RouterSettings {
    let area = Some(Ipv4Addr::UNSPECIFIED);
    let second = Nanos::SECOND;
    RouterSettings {
        igp: squall_router::Igp::default(),
        daemon: Daemon::Frr,
        mac: MacAddr([2, 0, 0, 0, 0, 1]),
        ipv4: Some((Ipv4Addr::new(10, 0, 0, 1), 24)),
        ipv6: None,
        router_id: Ipv4Addr::new(10, 0, 0, 1),
        bgp: Some(Bgp {
            asn: 65001,
            neighbors: vec![Neighbor { address: [10, 0, 0, 2].into(), asn: 65002 }],
            hold: second,
            password: None,
        }),
        ospf: area,
        ospf3: area,
        isis: Some(Isis {
            area: "49".into(),
            levels: [true, true],
            metric: 1,
            point_to_point: false,
        }),
        hello: second,
        dead: second,
        rip: true,
        ripng: true,
        rip_update: second,
        bfd: Some(second),
        groups: Vec::new(),
        graceful_restart: false,
        configuration: None,
    }
}
