//! RFC 2544, with back-to-back frames as in RFC 9004.

mod back_to_back;
mod frame_loss;
mod latency;
mod recovery;
mod throughput;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    bench::{Bench, MethodError},
    outcome::{Better, Figure, Limit, Outcome},
    rig::Rig,
    settings::{WEEK, above_0, at_least, at_most, from, settings, some, within},
};

pub(crate) use latency::LATENCY_NOTE;
pub use throughput::{Found, search as throughput};

/// Frame sizes for Ethernet (RFC 2544 §9.1).
pub const FRAME_SIZES: [u32; 7] = [64, 128, 256, 512, 1024, 1280, 1518];

/// The tests, with the sections of RFC 2544.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Test {
    /// §26.1: the highest rate without loss
    Throughput,
    /// §26.2: delay at the throughput rate
    Latency,
    /// §26.3: loss from the highest rate down
    FrameLoss,
    /// §26.4, RFC 9004: the longest burst without loss, and the buffer's size
    BackToBack,
    /// §26.5: how long frames are lost after an overload
    Recovery,
    /// §26.6: how long a device is out after a reset
    Reset,
}

settings! {
    /// Settings of RFC 2544.
    "RFC 2544":
    /// Tests to run
    tests: Vec<Test> = vec![
        Test::Throughput,
        Test::Latency,
        Test::FrameLoss,
        Test::BackToBack,
        Test::Recovery,
    ]
        => each("TEST", value_enum), in some("throughput");
    /// Frame sizes, octets with FCS
    frame_sizes: Vec<u32> = FRAME_SIZES.to_vec()
        => each("OCTETS", value_parser = crate::settings::frame_size()), in some("64,1518");
    /// Length of a throughput or frame loss trial, seconds (RFC 2544 asks for at least 60)
    trial_s: f64 = 60.0 => one("SECONDS", value_parser = crate::settings::seconds), quick at_most(1.0), in above_0(WEEK);
    /// End the search when less than this part of the rate is unknown
    resolution: f64 = 0.001 => one("RATIO"), quick at_least(0.005), in within(1e-6..=0.5);
    /// Loss ratio up to which a throughput trial passes (RFC 2544: 0)
    loss_tolerance: f64 = 0.0 => one("RATIO"), in within(0.0..=0.999);
    /// Length of a latency trial, seconds (RFC 2544: at least 120)
    latency_s: f64 = 120.0 => one("SECONDS", value_parser = crate::settings::seconds), quick at_most(2.0), in above_0(WEEK);
    /// Latency trials (RFC 2544: at least 20)
    latency_trials: u32 = 20 => one("N"), quick at_most(2), in from(1);
    /// Step of the frame loss test, as a part of the highest rate (RFC 2544: at most 0.1)
    loss_step: f64 = 0.1 => one("RATIO"), in within(1e-6..=0.5);
    /// The longest burst to try, seconds (RFC 2544: at least 2; RFC 9004 §6.2: up to 30)
    burst_s: f64 = 2.0 => one("SECONDS", value_parser = crate::settings::seconds), in above_0(WEEK);
    /// How often the longest burst is searched for (RFC 2544 §26.4: at least 50)
    bursts: u32 = 50 => one("N"), quick at_most(3), in from(1);
    /// Length of the overload before recovery, seconds (RFC 2544: at least 60)
    overload_s: f64 = 60.0 => one("SECONDS", value_parser = crate::settings::seconds), quick at_most(2.0), in above_0(WEEK);
    /// Length of a reset trial, seconds
    reset_s: f64 = 60.0 => one("SECONDS", value_parser = crate::settings::seconds), quick at_most(10.0), in above_0(WEEK);
    /// Command that resets the device, started 2 s into the trial; without one, reset it by hand
    reset_command: Option<String> = None => given("COMMAND");
}

impl Settings {
    /// Checks that all settings are in range.
    ///
    /// # Errors
    /// If a setting is out of range.
    pub fn check(&self) -> Result<(), MethodError> {
        self.limits()
    }

    fn wants(&self, test: Test) -> bool {
        self.tests.contains(&test)
    }
}

/// Runs the tests of `settings`. Results are by frame size, as in the tables of the RFC.
///
/// # Errors
/// If a trial cannot run, or if the test is stopped.
pub fn run(
    settings: &Settings,
    rig: &Rig,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), MethodError> {
    run_on(settings, rig, bench, outcome).map(|_| ())
}

/// The same as [`run`]; returns the throughput of each frame size.
pub(crate) fn run_on(
    settings: &Settings,
    rig: &Rig,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<Vec<Found>, MethodError> {
    settings.check()?;
    let found = throughput::all(settings, rig, bench, outcome)?;
    if settings.wants(Test::Latency) {
        latency::all(settings, rig, &found, bench, outcome)?;
    }
    if settings.wants(Test::FrameLoss) {
        frame_loss::all(settings, rig, bench, outcome)?;
    }
    if settings.wants(Test::BackToBack) {
        back_to_back::all(settings, rig, &found, bench, outcome)?;
    }
    if settings.wants(Test::Recovery) {
        recovery::overload(settings, rig, &found, bench, outcome)?;
    }
    if settings.wants(Test::Reset) {
        recovery::reset(settings, rig, &found, bench, outcome)?;
    }
    Ok(found)
}

fn figure(
    name: &str,
    size: u32,
    value: f64,
    unit: &str,
    better: Better,
    uncertainty: f64,
    limit: Limit,
) -> Figure {
    Figure::new(format!("{name}/{size}"), value, unit, better, uncertainty, limit)
}
