#![no_main]
//! Parses a packet script and plays it against Squall's TCP over IPv4 and IPv6: the stack neither
//! panics nor hangs at any action of peer and application, at any time.

use libfuzzer_sys::fuzz_target;
use runner::{
    play::{Manner, play},
    script::{Action, Script, Segment, Verb, Who},
    squall::Squall,
};
use squall_units::Nanos;

#[path = "../../crates/squall-tcp/tests/runner"]
mod runner {
    #![allow(dead_code, reason = "Linux is not played against here")]
    pub mod packet;
    pub mod play;
    pub mod script;
    pub mod squall;
}

fuzz_target!(|text: &str| {
    let Ok(script) = Script::parse("fuzz", text) else { return };
    // Skip slow scripts: hours of timers, megabytes of segments.
    let seconds: u64 = script.steps.iter().map(|step| step.time.to.0 / Nanos::SECOND.0).sum();
    let octets: u64 = script.steps.iter().map(|step| octets(&step.action)).sum();
    if seconds > 600 || octets > 100_000 {
        return;
    }
    for family in script.families.clone() {
        // Tunables out of range are rejected.
        let Ok(mut subject) = Squall::new(&script, family) else { continue };
        let manner = Manner {
            who: Who::Squall,
            family,
            tolerance: script.tolerance,
            stretch: 0.0,
            grace: Nanos::ZERO,
        };
        // A script may expect anything, so ignore its result.
        let _ = play(&script, manner, &mut subject);
    }
});

fn octets(action: &Action) -> u64 {
    match action {
        Action::Inject(Segment { start, end, count, .. }) => {
            u64::from(end.wrapping_sub(*start)) + 40 * u64::from(count.unwrap_or(1))
        }
        Action::Do(Verb::Send(octets)) => u64::from(*octets),
        _ => 0,
    }
}
