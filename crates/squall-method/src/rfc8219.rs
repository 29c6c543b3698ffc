//! RFC 8219: devices that translate between IPv4 and IPv6. The streams are those of the profile.

mod delay;
mod dns64;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    bench::{Bench, MethodError},
    outcome::Outcome,
    rfc2544,
    rig::Rig,
    settings::{WEEK, above_0, at_least, at_most, from, settings},
};

/// IPv4 frame sizes (RFC 8219 §5.1.1). Translation to IPv6 makes each frame 20 octets longer, for
/// example 84 for 64.
pub const FRAME_SIZES: [u32; 13] =
    [64, 128, 256, 512, 768, 1024, 1280, 1518, 1522, 2048, 4096, 8192, 9216];
/// Difference between the lengths of the IPv6 (40) and the IPv4 header (20), octets.
const LONGER: u32 = 20;

/// The RFC's test setups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Setup {
    /// §4.1: IPv4 on one side, IPv6 on the other, with frames 20 octets longer
    #[default]
    Single,
    /// §4.2: two devices, translating there and back; the same frames on both sides
    Dual,
}

/// The tests, with the sections of RFC 8219.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Test {
    /// §7.1: the highest rate without loss
    Throughput,
    /// §7.2: typical and worst-case latency at the throughput rate
    Latency,
    /// §7.3.1: packet delay variation at the throughput rate
    Pdv,
    /// §7.3.2: inter-packet delay variation at the throughput rate
    Ipdv,
    /// §7.4: loss from the highest rate down
    FrameLoss,
    /// §7.5: the longest burst without loss, by RFC 9004
    BackToBack,
    /// §7.6: how long frames are lost after an overload
    Recovery,
    /// §7.7: how long the device is out after a reset
    Reset,
    /// §9: the highest rate of DNS64 queries that are all resolved in time
    Dns64,
}

settings! {
    /// Settings of RFC 8219.
    "RFC 8219":
    /// Tests to run
    tests: Vec<Test> = vec![Test::Throughput, Test::Latency, Test::Pdv, Test::Ipdv, Test::FrameLoss]
        => each("TEST", value_enum);
    /// How the device translates
    setup: Setup = Setup::Single => one("SETUP", value_enum);
    /// Frame sizes of IPv4, octets with FCS
    frame_sizes: Vec<u32> = FRAME_SIZES.to_vec()
        => each("OCTETS", value_parser = clap::value_parser!(u32).range(64..=65_500));
    /// Length of a throughput, frame loss or delay variation trial, seconds (at least 60)
    trial_s: f64 = 60.0 => one("SECONDS", value_parser = crate::settings::seconds), quick at_most(1.0);
    /// End the search when less than this part of the rate is unknown
    resolution: f64 = 0.001 => one("RATIO"), quick at_least(0.005);
    /// Length of a latency trial, seconds (RFC 8219: at least 120)
    latency_s: f64 = 120.0 => one("SECONDS", value_parser = crate::settings::seconds), quick at_most(2.0);
    /// Trials of latency and delay variation (RFC 8219: at least 20)
    repetitions: u32 = 20 => one("N"), quick at_most(2), in from(1);
    /// Step of the frame loss test, as a part of the highest rate (at most 0.1)
    loss_step: f64 = 0.1 => one("RATIO");
    /// Length of a reset trial, seconds
    reset_s: f64 = 60.0 => one("SECONDS", value_parser = crate::settings::seconds), quick at_most(10.0), in above_0(WEEK);
    /// Command that resets the device, started 2 s into the trial; without one, reset it by hand
    reset_command: Option<String> = None => given("COMMAND");
    /// The most DNS64 queries per second to try
    dns_max_qps: f64 = 10_000.0 => one("N"), in above_0(1e9);
    /// Time for the answer to a DNS64 query, seconds (RFC 8219 §9.2: at most 1)
    dns_timeout_s: f64 = 1.0 => one("SECONDS", value_parser = crate::settings::seconds), in above_0(1.0);
    /// How often the rate of DNS64 queries is searched for (RFC 8219: at least 20)
    dns_repetitions: u32 = 20 => one("N"), quick at_most(2), in from(1);
    /// Domain of the names that are queried: each has an A record there, and no AAAA record
    dns_domain: String = "dns64.test".into() => one("NAME"), in dns64::domain;
}

impl Settings {
    /// Checks that all settings are in range and fit `rig`.
    ///
    /// # Errors
    /// If a setting is out of range, or if the streams do not fit the setup.
    pub fn check(&self, rig: &Rig) -> Result<(), MethodError> {
        self.limits()?;
        if !self.sends_frames() {
            return Ok(());
        }
        let of_version = |ipv6| rig.lanes.iter().any(|lane| lane.ipv6 == ipv6);
        if self.setup == Setup::Single && !(of_version(true) && of_version(false)) {
            let text = "a single translation has IPv4 streams on one side and IPv6 on the other\n  \
                        add the streams of the other side to the profile, or try --setup dual";
            return Err(MethodError::Usage(text.into()));
        }
        self.as_rfc2544().check()
    }

    /// Whether any of the tests sends streams.
    pub(crate) fn sends_frames(&self) -> bool {
        self.tests.iter().any(|test| *test != Test::Dns64)
    }

    /// The settings of the tests that RFC 8219 takes from RFC 2544.
    fn as_rfc2544(&self) -> rfc2544::Settings {
        let test = |test: &Test| match test {
            Test::Throughput => Some(rfc2544::Test::Throughput),
            Test::FrameLoss => Some(rfc2544::Test::FrameLoss),
            Test::BackToBack => Some(rfc2544::Test::BackToBack),
            Test::Recovery => Some(rfc2544::Test::Recovery),
            Test::Reset => Some(rfc2544::Test::Reset),
            Test::Latency | Test::Pdv | Test::Ipdv | Test::Dns64 => None,
        };
        let mut tests: Vec<_> = self.tests.iter().filter_map(test).collect();
        if tests.is_empty() {
            tests.push(rfc2544::Test::Throughput);
        }
        rfc2544::Settings {
            tests,
            frame_sizes: self.frame_sizes.clone(),
            trial_s: self.trial_s,
            resolution: self.resolution,
            latency_s: self.latency_s,
            loss_step: self.loss_step,
            overload_s: self.trial_s,
            reset_s: self.reset_s,
            reset_command: self.reset_command.clone(),
            ..rfc2544::Settings::default()
        }
    }
}

/// Runs the tests of `settings`.
///
/// # Errors
/// If a trial cannot run, or if the test is stopped.
pub fn run(
    settings: &Settings,
    rig: &Rig,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), MethodError> {
    settings.check(rig)?;
    let wants = |test| settings.tests.contains(&test);
    if settings.sends_frames() {
        frames(settings, rig, bench, outcome)?;
    }
    if wants(Test::Dns64) {
        dns64::all(settings, bench, outcome)?;
    }
    let text = "connections of stateful devices (§8) and overload scalability (§10): not run; see \
                squall test capacity";
    outcome.notes.push(text.into());
    Ok(())
}

/// The tests of §7.
fn frames(
    settings: &Settings,
    rig: &Rig,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), MethodError> {
    let rig = translated(rig, settings.setup);
    let found = rfc2544::run_on(&settings.as_rfc2544(), &rig, bench, outcome)?;
    let wants = |test| settings.tests.contains(&test);
    if wants(Test::Latency) {
        delay::latency(settings, &rig, &found, bench, outcome)?;
    }
    if wants(Test::Pdv) || wants(Test::Ipdv) {
        delay::variation(settings, &rig, &found, bench, outcome)?;
    }
    Ok(())
}

/// The rig with IPv6 streams of the length of translated IPv4 frames.
fn translated(rig: &Rig, setup: Setup) -> Rig {
    let mut rig = rig.clone();
    let longer = if setup == Setup::Single { LONGER } else { 0 };
    rig.lanes.iter_mut().filter(|lane| lane.ipv6).for_each(|lane| lane.longer = longer);
    rig
}
