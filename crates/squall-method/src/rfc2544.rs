//! RFC 2544, with back-to-back frames by RFC 9004.

mod back_to_back;
mod frame_loss;
mod latency;
mod recovery;
mod throughput;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    bench::{Bench, Halt},
    checks,
    outcome::{Better, Figure, Limit, Outcome},
    rig::Rig,
};

pub(crate) use latency::LATENCY_NOTE;
pub use throughput::{Found, search as throughput};

/// RFC 2544 §9.1.
pub const FRAME_SIZES: [u32; 7] = [64, 128, 256, 512, 1024, 1280, 1518];

/// The tests of the RFC, by their sections.
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

/// What RFC 2544 leaves to the tester.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "clap", derive(clap::Args), command(next_help_heading = "RFC 2544"))]
pub struct Settings {
    /// Tests to run
    #[cfg_attr(feature = "clap", arg(long, value_enum, value_delimiter = ',', value_name = "TEST",
        default_values_t = Settings::default().tests))]
    pub tests: Vec<Test>,
    /// Frame sizes, octets with FCS
    #[cfg_attr(feature = "clap", arg(long, value_delimiter = ',', value_name = "OCTETS",
        value_parser = clap::value_parser!(u32).range(64..=65_535),
        default_values_t = FRAME_SIZES))]
    pub frame_sizes: Vec<u32>,
    /// Length of a throughput or frame loss trial, seconds (RFC 2544 asks for at least 60)
    #[cfg_attr(feature = "clap", arg(long, value_name = "SECONDS",
        default_value_t = Settings::default().trial_s))]
    pub trial_s: f64,
    /// End the search when less than this part of the rate is unknown
    #[cfg_attr(feature = "clap", arg(long, value_name = "RATIO",
        default_value_t = Settings::default().resolution))]
    pub resolution: f64,
    /// Loss ratio up to which a throughput trial passes (RFC 2544: 0)
    #[cfg_attr(feature = "clap", arg(long, value_name = "RATIO",
        default_value_t = Settings::default().loss_tolerance))]
    pub loss_tolerance: f64,
    /// Length of a latency trial, seconds (RFC 2544: at least 120)
    #[cfg_attr(feature = "clap", arg(long, value_name = "SECONDS",
        default_value_t = Settings::default().latency_s))]
    pub latency_s: f64,
    /// Latency trials (RFC 2544: at least 20)
    #[cfg_attr(feature = "clap", arg(long, value_name = "N",
        default_value_t = Settings::default().latency_trials))]
    pub latency_trials: u32,
    /// Step of the frame loss test, as a part of the highest rate (RFC 2544: at most 0.1)
    #[cfg_attr(feature = "clap", arg(long, value_name = "RATIO",
        default_value_t = Settings::default().loss_step))]
    pub loss_step: f64,
    /// The longest burst to try, seconds (RFC 2544: at least 2; RFC 9004 §6.2: up to 30)
    #[cfg_attr(feature = "clap", arg(long, value_name = "SECONDS",
        default_value_t = Settings::default().burst_s))]
    pub burst_s: f64,
    /// How often the longest burst is searched for (RFC 2544 §26.4: at least 50)
    #[cfg_attr(feature = "clap", arg(long, value_name = "N",
        default_value_t = Settings::default().bursts))]
    pub bursts: u32,
    /// Length of the overload before recovery, seconds (RFC 2544: at least 60)
    #[cfg_attr(feature = "clap", arg(long, value_name = "SECONDS",
        default_value_t = Settings::default().overload_s))]
    pub overload_s: f64,
    /// Length of a reset trial, seconds
    #[cfg_attr(feature = "clap", arg(long, value_name = "SECONDS",
        default_value_t = Settings::default().reset_s))]
    pub reset_s: f64,
    /// Command that resets the device, started 2 s into the trial; without one, reset it by hand
    #[cfg_attr(feature = "clap", arg(long, value_name = "COMMAND"))]
    pub reset_command: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        use Test::{BackToBack, FrameLoss, Latency, Recovery, Throughput};
        Self {
            tests: vec![Throughput, Latency, FrameLoss, BackToBack, Recovery],
            frame_sizes: FRAME_SIZES.to_vec(),
            trial_s: 60.0,
            resolution: 0.001,
            loss_tolerance: 0.0,
            latency_s: 120.0,
            latency_trials: 20,
            loss_step: 0.1,
            burst_s: 2.0,
            bursts: 50,
            overload_s: 60.0,
            reset_s: 60.0,
            reset_command: None,
        }
    }
}

impl Settings {
    /// Seconds for minutes.
    pub fn quick(self) -> Self {
        Self {
            trial_s: self.trial_s.min(1.0),
            latency_s: self.latency_s.min(2.0),
            latency_trials: self.latency_trials.min(2),
            bursts: self.bursts.min(3),
            overload_s: self.overload_s.min(2.0),
            reset_s: self.reset_s.min(10.0),
            resolution: self.resolution.max(0.005),
            ..self
        }
    }

    /// # Errors
    /// What no test can be run with.
    pub fn check(&self) -> Result<(), Halt> {
        let seconds = [
            ("trial_s", self.trial_s),
            ("latency_s", self.latency_s),
            ("burst_s", self.burst_s),
            ("overload_s", self.overload_s),
            ("reset_s", self.reset_s),
        ];
        checks::positive(&seconds, checks::WEEK)?;
        let parts = [("resolution", self.resolution), ("loss_step", self.loss_step)];
        checks::within(&parts, 1e-6..=0.5)?;
        checks::within(&[("loss_tolerance", self.loss_tolerance)], 0.0..=0.999)?;
        checks::given(&[
            ("frame_sizes", self.frame_sizes.is_empty(), "64,1518"),
            ("tests", self.tests.is_empty(), "throughput"),
        ])?;
        let empty = [
            (self.latency_trials == 0, "latency_trials = 0, expected at least 1"),
            (self.bursts == 0, "bursts = 0, expected at least 1"),
        ];
        match empty.iter().find(|(wrong, _)| *wrong) {
            Some((_, text)) => Err(Halt::Usage((*text).into())),
            None => Ok(()),
        }
    }

    fn wants(&self, test: Test) -> bool {
        self.tests.contains(&test)
    }
}

/// Runs the tests that `settings` names, size by size as the RFC's tables have them.
///
/// # Errors
/// Why it stopped.
pub fn run(
    settings: &Settings,
    rig: &Rig,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), Halt> {
    run_on(settings, rig, bench, outcome).map(|_| ())
}

/// The same, with the throughput of each frame size.
pub(crate) fn run_on(
    settings: &Settings,
    rig: &Rig,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<Vec<Found>, Halt> {
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
