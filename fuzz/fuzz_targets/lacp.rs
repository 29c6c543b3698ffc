//! Any frames of slow protocols to a port with LACP: nothing panics, at most three PDUs leave in a
//! fast interval, no timer is in the past, and frames are only distributed to a partner that is in
//! sync. Input: records of an octet of time, an octet that selects the form, a length, and the PDU.
#![no_main]

use libfuzzer_sys::fuzz_target;
use squall_host::{
    LacpInfo, LacpPort, LacpSettings,
    lacp::{self, COLLECTING, SYNCHRONIZATION},
};
use squall_units::{MacAddr, Nanos};

fuzz_target!(|data: &[u8]| {
    let default = LacpSettings::default();
    let actor = LacpInfo { system: MacAddr([2, 0, 0, 0, 0, 1]), ..default.actor };
    let settings = LacpSettings { actor, ..default };
    let mut port = LacpPort::default();
    let (mut now, mut rest) = (Nanos(1_000_000_000), data);
    let mut sent: Vec<Nanos> = Vec::new();
    port.start(now, &settings);
    while let [time, form, len, more @ ..] = rest {
        let (octets, more) = more.split_at(usize::from(*len).min(more.len()));
        rest = more;
        let until = Nanos(now.0 + u64::from(*time) * 50_000_000);
        while let Some(due) = port.due().filter(|due| *due <= until) {
            now = due.max(now);
            let step = port.timer(now, &settings);
            sent.extend(step.send.iter().map(|_| now));
            assert!(port.due().is_none_or(|due| due > now), "a timer is in the past: {port:?}");
        }
        now = until;
        let pdu = match (form & 1, octets) {
            // A PDU of a partner that knows the port, with any state.
            (1, [state, key, ..]) => {
                let partner =
                    LacpInfo { system: MacAddr([2, 0, 0, 0, 0, 9]), key: u16::from(*key), ..actor };
                lacp::write(&LacpInfo { state: *state, ..partner }, port.ends().0)
            }
            _ => octets.to_vec(),
        };
        let step = port.receive(now, &pdu, &settings);
        sent.extend(step.send.iter().filter(|(word, _)| *word == "lacpdu").map(|_| now));
        sent.retain(|at| at.0 + 1_000_000_000 > now.0);
        assert!(sent.len() <= 3, "{sent:?}");
        if port.is_up() {
            let state = port.ends().1.state;
            assert_eq!(state & (SYNCHRONIZATION | COLLECTING), SYNCHRONIZATION | COLLECTING);
        }
    }
});
