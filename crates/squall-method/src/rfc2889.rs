//! RFC 2889: LAN switches. Streams are the method's own, between stations on the ports of the rig.

mod addresses;
mod broadcast;
mod congestion;
mod errored;
mod forwarding;
mod mesh;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    bench::{Bench, Halt},
    checks,
    outcome::{Better, Figure, Limit, Outcome},
    rfc2544::FRAME_SIZES,
    rig::Rig,
};

/// The tests of the RFC, by their sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Test {
    /// §5.1: from each port to all others
    FullMesh,
    /// §5.2: from the first port to all others
    OneToMany,
    /// §5.2: from all others to the first port
    ManyToOne,
    /// §5.3: between the first and the second half of the ports, over the link of two devices
    Backbone,
    /// §5.4: from the first half of the ports to the second
    Unidirectional,
    /// §5.5: head-of-line blocking and back pressure; the first four ports
    Congestion,
    /// §5.6.3.2: frames with less than the minimum gap (not run)
    ForwardPressure,
    /// §5.6.3.1: the highest rate that is forwarded, with loss; the first two ports
    ForwardingRate,
    /// §5.7: addresses that the device can learn; the first three ports or more
    AddressCapacity,
    /// §5.8: the rate at which it learns them; the first three ports or more
    AddressLearning,
    /// §5.9: frames that it should not forward; the first two ports
    ErroredFrames,
    /// §5.10: broadcast from the first port: rate and latency
    Broadcast,
}

/// What RFC 2889 leaves to the tester.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "clap", derive(clap::Args), command(next_help_heading = "RFC 2889"))]
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
    /// Length of a trial, seconds (RFC 2889 recommends 30)
    #[cfg_attr(feature = "clap", arg(long, value_name = "SECONDS",
        default_value_t = Settings::default().trial_s))]
    pub trial_s: f64,
    /// End the search when less than this part of the rate is unknown
    #[cfg_attr(feature = "clap", arg(long, value_name = "RATIO",
        default_value_t = Settings::default().resolution))]
    pub resolution: f64,
    /// Stations on each port
    #[cfg_attr(feature = "clap", arg(long, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=65_536),
        default_value_t = Settings::default().addresses_per_port))]
    pub addresses_per_port: u32,
    /// Step of the load in the test of the forwarding rate, as a part of the highest rate
    #[cfg_attr(feature = "clap", arg(long, value_name = "RATIO",
        default_value_t = Settings::default().load_step))]
    pub load_step: f64,
    /// Addresses with which the search for the capacity begins
    #[cfg_attr(feature = "clap", arg(long, value_name = "N",
        value_parser = clap::value_parser!(u32).range(2..=16_000_000),
        default_value_t = Settings::default().initial_addresses))]
    pub initial_addresses: u32,
    /// The most addresses to try
    #[cfg_attr(feature = "clap", arg(long, value_name = "N",
        value_parser = clap::value_parser!(u32).range(2..=16_000_000),
        default_value_t = Settings::default().max_addresses))]
    pub max_addresses: u32,
    /// Addresses to learn in the test of the learning rate [default: the capacity, if it is
    /// measured, else those of --initial-addresses]
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub learn_addresses: Option<u32>,
    /// Frames per second that teach addresses, and that test whether they are known (RFC 2889 §3: as
    /// low as 50 for a device that learns slowly)
    #[cfg_attr(feature = "clap", arg(long, value_name = "FPS",
        default_value_t = Settings::default().address_rate))]
    pub address_rate: f64,
    /// Pause in which the device forgets all addresses, seconds; longer than its aging time (§5.7.3)
    #[cfg_attr(feature = "clap", arg(long, value_name = "SECONDS",
        default_value_t = Settings::default().age_s))]
    pub age_s: f64,
    /// Command that empties the device's address table, instead of a wait for --age-s
    #[cfg_attr(feature = "clap", arg(long, value_name = "COMMAND"))]
    pub flush_command: Option<String>,
    /// Further loads at which to measure broadcast latency, as parts of the broadcast throughput;
    /// RFC 2889 §5.10.3 measures one frame alone
    #[cfg_attr(feature = "clap", arg(long, value_delimiter = ',', value_name = "RATIO",
        default_values_t = Settings::default().latency_loads))]
    pub latency_loads: Vec<f64>,
}

impl Default for Settings {
    fn default() -> Self {
        use Test::{
            AddressCapacity, AddressLearning, Broadcast, Congestion, ErroredFrames,
            ForwardPressure, ForwardingRate, FullMesh, ManyToOne, OneToMany, Unidirectional,
        };
        Self {
            tests: vec![
                FullMesh,
                OneToMany,
                ManyToOne,
                Unidirectional,
                Congestion,
                ForwardPressure,
                ForwardingRate,
                AddressCapacity,
                AddressLearning,
                ErroredFrames,
                Broadcast,
            ],
            frame_sizes: FRAME_SIZES.to_vec(),
            trial_s: 30.0,
            resolution: 0.001,
            addresses_per_port: 1,
            load_step: 0.01,
            initial_addresses: 1024,
            max_addresses: 131_072,
            learn_addresses: None,
            address_rate: 1000.0,
            // Above 300 s, to which most devices are set.
            age_s: 310.0,
            flush_command: None,
            latency_loads: vec![0.5, 1.0],
        }
    }
}

impl Settings {
    /// Seconds for minutes; a table's age stays, as the device has it.
    pub fn quick(self) -> Self {
        Self {
            trial_s: self.trial_s.min(1.0),
            resolution: self.resolution.max(0.005),
            load_step: self.load_step.max(0.1),
            max_addresses: self.max_addresses.min(8192),
            ..self
        }
    }

    /// # Errors
    /// What no test can be run with.
    pub fn check(&self, rig: &Rig) -> Result<(), Halt> {
        let wrong = |text: String| Err(Halt::Usage(text));
        checks::ports(rig, "RFC 2889 tests a switch, by 2 to 250 ports")?;
        let times = [("trial_s", self.trial_s), ("age_s", self.age_s)];
        checks::positive(&times, checks::WEEK)?;
        let parts = [("resolution", self.resolution), ("load_step", self.load_step)];
        checks::within(&parts, 1e-6..=0.5)?;
        checks::within(&[("address_rate", self.address_rate)], 1.0..=1e7)?;
        if self.initial_addresses > self.max_addresses {
            let (first, most) = (self.initial_addresses, self.max_addresses);
            return wrong(format!(
                "initial_addresses = {first} is more than max_addresses = {most}"
            ));
        }
        if self.latency_loads.iter().any(|load| !(*load > 0.0 && *load <= 1.0)) {
            return wrong("latency_loads: expected parts of the throughput, above 0 to 1".into());
        }
        checks::given(&[
            ("tests", self.tests.is_empty(), "full-mesh"),
            ("frame_sizes", self.frame_sizes.is_empty(), "64,1518"),
        ])
    }
}

/// Runs the tests that `settings` names, in the RFC's order.
///
/// # Errors
/// Why it stopped.
pub fn run(
    settings: &Settings,
    rig: &Rig,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), Halt> {
    settings.check(rig)?;
    mesh::all(settings, rig, bench, outcome)?;
    let wants = |test| settings.tests.contains(&test);
    if wants(Test::Congestion) {
        congestion::all(settings, rig, bench, outcome)?;
    }
    if wants(Test::ForwardPressure) {
        let text = "forward pressure (§5.6.3.2): not run, as no port here can send with a gap \
                    of 88 bits";
        outcome.notes.push(text.into());
    }
    if wants(Test::ForwardingRate) {
        forwarding::all(settings, rig, bench, outcome)?;
    }
    if wants(Test::AddressCapacity) || wants(Test::AddressLearning) {
        addresses::all(settings, rig, bench, outcome)?;
    }
    if wants(Test::ErroredFrames) {
        errored::all(settings, rig, bench, outcome)?;
    }
    if wants(Test::Broadcast) {
        broadcast::all(settings, rig, bench, outcome)?;
    }
    Ok(())
}

/// A rate: more is better.
fn rate(name: String, value: f64, uncertainty: f64, limit: Limit) -> Figure {
    let (better, unit) = (Better::Higher, "frames/s".into());
    Figure { name, value, unit, better, uncertainty, limit }
}
