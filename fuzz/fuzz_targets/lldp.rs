//! Any octets as announcements of LLDP and CDP: nothing panics, texts have no control characters, and the
//! table of neighbors is bounded. Input: announcements, each after its length.
#![no_main]

use libfuzzer_sys::fuzz_target;
use squall_host::{NeighborTable, cdp, lldp};
use squall_units::Nanos;

fuzz_target!(|data: &[u8]| {
    let mut neighbors = NeighborTable::default();
    let (mut now, mut rest) = (Nanos(0), data);
    while let [high, low, more @ ..] = rest {
        let len = usize::from(u16::from_be_bytes([*high & 7, *low])).min(more.len());
        let (octets, more) = more.split_at(len);
        rest = more;
        now = Nanos(now.0 + 1_000_000_000);
        if let Ok(unit) = lldp::Lldpdu::parse(octets) {
            let texts = [unit.system, unit.description, unit.port_description];
            let ids = [unit.chassis.chassis(), unit.port.port()];
            for text in texts.into_iter().flatten().chain(ids) {
                assert!(!text.chars().any(char::is_control), "{text:?}");
            }
        }
        let length = octets.len() as u16;
        for announcement in [lldp::parse(octets), cdp::parse(octets, length)].into_iter().flatten()
        {
            for text in [&announcement.chassis, &announcement.port, &announcement.system] {
                assert!(!text.chars().any(char::is_control), "{text:?}");
            }
            neighbors.learn(now, announcement);
        }
    }
    assert!(neighbors.len() <= 4096);
});
