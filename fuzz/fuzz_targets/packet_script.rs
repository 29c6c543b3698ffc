#![no_main]
//! A packet script is parsed or refused, and runs against Squall's TCP over IPv4 and IPv6. No
//! actions of peer and application, at any time, make the stack panic or loop forever.

use libfuzzer_sys::fuzz_target;
use runner::{
    play::{Mode, play},
    script::{Action, Script, Segment, Target, Verb},
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
    // A long run, with hours of timers or megabytes of segments, is legitimate but slow; skip it.
    let seconds: u64 = script.steps.iter().map(|step| step.time.to.0 / Nanos::SECOND.0).sum();
    let octets: u64 = script.steps.iter().map(|step| octets(&step.action)).sum();
    if seconds > 600 || octets > 100_000 {
        return;
    }
    for family in script.families.clone() {
        // Tunables that are out of range are refused.
        let Ok(mut subject) = Squall::new(&script, family) else { continue };
        let mode = Mode {
            target: Target::Squall,
            family,
            tolerance: script.tolerance,
            stretch: 0.0,
            grace: Nanos::ZERO,
        };
        // It is not an error here if an expectation in the script fails.
        let _ = play(&script, mode, &mut subject);
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
