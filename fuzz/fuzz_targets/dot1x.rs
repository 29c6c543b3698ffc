//! Any frames from an authenticator to a supplicant: nothing panics, each frame has at most one
//! answer, the port is open only after a challenge was answered, and the supplicant has a timer or
//! a result. Input: records of an octet of time, a length, and the frame.
#![no_main]

use libfuzzer_sys::fuzz_target;
use squall_host::{Supplicant, SupplicantEvent, SupplicantSettings};
use squall_units::Nanos;

fuzz_target!(|data: &[u8]| {
    let settings = SupplicantSettings {
        identity: "user{}".into(),
        password: "secret".into(),
        ..SupplicantSettings::default()
    };
    let mut supplicant = Supplicant::default();
    let (mut now, mut rest) = (Nanos(0), data);
    let mut steps = vec![supplicant.start(now, &settings)];
    let mut challenged = false;
    while let [time, len, more @ ..] = rest {
        let (frame, more) = more.split_at(usize::from(*len).min(more.len()));
        rest = more;
        now = Nanos(now.0 + u64::from(*time) * 1_000_000_000);
        while supplicant.due().is_some_and(|due| due <= now) {
            steps.push(supplicant.timer(now, &settings));
        }
        steps.push(supplicant.receive(now, frame, 7, &settings));
        for step in steps.drain(..) {
            challenged |= step.send.as_ref().is_some_and(|(word, _)| *word == "md5");
            if let Some(SupplicantEvent::Authenticated(_)) = step.event {
                assert!(challenged, "open without a challenge");
            }
        }
        assert!(supplicant.due().is_some() || !supplicant.is_pending(), "it waits for nothing");
    }
});
