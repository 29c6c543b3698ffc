//! Any octets as announcements of LLDP and CDP, in virtual time: nothing panics, texts have no control
//! characters, the table of neighbors is bounded, and no number of new neighbors makes a speaker send
//! more than its credit. Input: announcements, each after five bits of time and its length in 11 bits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use squall_host::{LldpSettings, NeighborTable, Speaker, cdp, lldp};
use squall_units::Nanos;

fuzz_target!(|data: &[u8]| {
    let mut neighbors = NeighborTable::default();
    let (mut now, mut rest) = (Nanos(0), data);
    let timers = LldpSettings::default().timers;
    let (mut speaker, mut sent) = (Speaker::default(), Vec::new());
    speaker.start(now, &timers);
    while let [high, low, more @ ..] = rest {
        let len = usize::from(u16::from_be_bytes([*high & 7, *low])).min(more.len());
        let (octets, more) = more.split_at(len);
        rest = more;
        // From a second down to nothing.
        now = Nanos(now.0 + (1_000_000_000_u64 >> (high >> 3)));
        if speaker.timer(now, &timers) {
            sent.retain(|at: &Nanos| at.0 + 1_000_000_000 > now.0);
            sent.push(now);
            assert!(sent.len() <= 6, "txCreditMax, and one more in the second: {sent:?}");
        }
        neighbors.age(now);
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
            if neighbors.learn(now, announcement) {
                speaker.speed_up(now, &timers);
            }
        }
    }
    assert!(neighbors.len() <= 4096);
});
