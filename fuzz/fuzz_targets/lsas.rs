//! Any octets as packets of OSPF and IS-IS: nothing panics, the number of counted LSAs is bounded
//! by that of octets, and the states of received LSAs and LSPs are lists of the schema. Input: a
//! protocol, then frames, each after its length.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use serde_json::json;
use squall_otg::{Config, RouterInfo, lsas, translate};
use squall_router::observe::{
    IsisCounts, OspfCounts, Protocol, fragments::Fragments, lsdb::Database, senders::Senders,
};
use squall_units::Nanos;

/// A router of each protocol.
fn routers() -> &'static [RouterInfo] {
    static ROUTERS: OnceLock<Vec<RouterInfo>> = OnceLock::new();
    ROUTERS.get_or_init(|| {
        let config = json!({
            "ports": [{ "name": "p", "location": "va" }],
            "devices": [{
                "name": "d",
                "ethernets": [{
                    "name": "e", "connection": { "port_name": "p" },
                    "ipv4_addresses": [
                        { "name": "i4", "address": "10.0.0.1", "gateway": "10.0.0.2" },
                    ],
                    "ipv6_addresses": [
                        { "name": "i6", "address": "fd00::1", "gateway": "fd00::2" },
                    ],
                }],
                "ospfv2": { "name": "a", "interfaces": [{ "name": "x", "ipv4_name": "i4" }] },
                "ospfv3": { "instances": [
                    { "name": "b", "interfaces": [{ "name": "y", "ipv6_name": "i6" }] },
                ] },
                "isis": { "name": "c", "system_id": "640000000001",
                    "interfaces": [{ "name": "z", "eth_name": "e" }] },
            }],
        });
        let config = Config::from_json(&config).expect("an object");
        translate(&config).expect("a configuration").routers
    })
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, mut rest)) = data.split_first() else { return };
    let info = &routers()[usize::from(*kind) % 3];
    let (mut ospf, mut isis) = (OspfCounts::default(), IsisCounts::default());
    let mut database = Database::default();
    let (mut fragments, mut senders) = (Fragments::default(), Senders::default());
    while let [high, low, more @ ..] = rest {
        let len = usize::from(u16::from_be_bytes([*high & 7, *low])).min(more.len());
        let (frame, more) = more.split_at(len);
        rest = more;
        let whole = fragments.take(Nanos(1), info.protocol, frame);
        for packet in whole.as_deref().into_iter().chain([frame]) {
            senders.is_taken_from(info.protocol, &info.settings, &[2; 6], packet);
            ospf.count(packet);
            isis.count(packet);
            match info.protocol {
                Protocol::Isis => database.isis(Nanos(1), packet),
                _ => database.ospf(Nanos(1), packet),
            }
        }
    }
    // Each packet is counted twice at most, and an LSA has 20 octets.
    assert!(ospf.lsas.max(ospf.acknowledged) <= (2 * data.len() / 20) as u64);
    let state = lsas::state(info, &database, Nanos(9_000_000_000));
    let lists = state.as_object().expect("an object").values();
    assert!(
        lists.filter_map(|list| list.as_array()).all(|list| !list.is_empty()) || *kind % 3 == 2
    );
});
