//! RFC 2889: LAN switches. The method defines its own streams, between simulated stations on the
//! ports of the rig.

mod addresses;
mod broadcast;
mod congestion;
mod errored;
mod forwarding;
mod mesh;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    bench::{Bench, MethodError},
    outcome::{Better, Figure, Limit, Outcome},
    path,
    rfc2544::FRAME_SIZES,
    rig::Rig,
    settings::{WEEK, above_0, at_least, at_most, ports, settings, some, within},
    stations::unicast,
    trial::Lane,
};

/// The tests, with the sections of RFC 2889.
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

settings! {
    /// Settings of RFC 2889.
    "RFC 2889":
    /// Tests to run
    tests: Vec<Test> = vec![
        Test::FullMesh,
        Test::OneToMany,
        Test::ManyToOne,
        Test::Unidirectional,
        Test::Congestion,
        Test::ForwardPressure,
        Test::ForwardingRate,
        Test::AddressCapacity,
        Test::AddressLearning,
        Test::ErroredFrames,
        Test::Broadcast,
    ]
        => each("TEST", value_enum), in some("full-mesh");
    /// Frame sizes, octets with FCS
    frame_sizes: Vec<u32> = FRAME_SIZES.to_vec()
        => each("OCTETS", value_parser = crate::settings::frame_size()), in some("64,1518");
    /// Length of a trial, seconds (RFC 2889 recommends 30)
    trial_s: f64 = 30.0 => one("SECONDS", value_parser = crate::settings::seconds), quick at_most(1.0), in above_0(WEEK);
    /// End the search when less than this part of the rate is unknown
    resolution: f64 = 0.001 => one("RATIO"), quick at_least(0.005), in within(1e-6..=0.5);
    /// Stations on each port
    addresses_per_port: u32 = 1
        => one("N", value_parser = clap::value_parser!(u32).range(1..=65_536));
    /// Step of the load in the test of the forwarding rate, as a part of the highest rate
    load_step: f64 = 0.01 => one("RATIO"), quick at_least(0.1), in within(1e-6..=0.5);
    /// Addresses with which the search for the capacity begins
    initial_addresses: u32 = 1024
        => one("N", value_parser = clap::value_parser!(u32).range(2..=16_000_000));
    /// The most addresses to try
    max_addresses: u32 = 131_072
        => one("N", value_parser = clap::value_parser!(u32).range(2..=16_000_000)),
        quick at_most(8192);
    /// Addresses to learn in the test of the learning rate [default: the capacity, if it is
    /// measured, else those of --initial-addresses]
    learn_addresses: Option<u32> = None => given("N");
    /// Frames per second that teach addresses, and that test whether they are known (RFC 2889 §3: as
    /// low as 50 for a device that learns slowly)
    address_rate: f64 = 1000.0 => one("FPS"), in within(1.0..=1e7);
    /// Pause in which the device forgets all addresses, seconds; longer than its aging time (§5.7.3)
    // Most devices have an aging time of 300 s.
    age_s: f64 = 310.0 => one("SECONDS", value_parser = crate::settings::seconds), in above_0(WEEK);
    /// Command that empties the device's address table, instead of a wait for --age-s
    flush_command: Option<String> = None => given("COMMAND");
    /// Further loads at which to measure broadcast latency, as parts of the broadcast throughput;
    /// RFC 2889 §5.10.3 measures one frame alone
    latency_loads: Vec<f64> = vec![0.5, 1.0] => each("RATIO");
}

impl Settings {
    /// Checks that all settings are in range and fit `rig`.
    ///
    /// # Errors
    /// If a setting is out of range, or if the rig has too few ports.
    pub fn check(&self, rig: &Rig) -> Result<(), MethodError> {
        let wrong = |text: String| Err(MethodError::Usage(text));
        ports(rig, "RFC 2889 tests a switch, by 2 to 250 ports")?;
        self.limits()?;
        if self.initial_addresses > self.max_addresses {
            let (first, most) = (self.initial_addresses, self.max_addresses);
            return wrong(format!(
                "initial_addresses = {first} is more than max_addresses = {most}"
            ));
        }
        if self.latency_loads.iter().any(|load| !(*load > 0.0 && *load <= 1.0)) {
            return wrong("latency_loads: expected parts of the throughput, above 0 to 1".into());
        }
        Ok(())
    }
}

/// Lanes that verify the path: one from each port that sends in these tests, and one to each port
/// that receives.
pub(crate) fn path(settings: &Settings, rig: &Rig) -> Vec<Lane> {
    let mut lanes: Vec<((usize, usize), Lane)> = Vec::new();
    for (from, to) in settings.tests.iter().flat_map(|test| pairs(*test, rig.ports.len())) {
        let proved =
            |of: fn(&(usize, usize)) -> usize, port| lanes.iter().any(|(pair, _)| of(pair) == port);
        if proved(|pair| pair.0, from) && proved(|pair| pair.1, to) {
            continue;
        }
        let lane = Lane {
            name: format!("{} to {}", rig.ports[from], rig.ports[to]),
            template: Some(unicast(rig, from, to, 1)),
            frame_size: settings.frame_sizes.iter().copied().min(),
            rate_fps: path::FPS,
            frames: Some(path::FRAMES),
            ..Lane::default()
        };
        lanes.push(((from, to), lane));
    }
    lanes.into_iter().map(|(_, lane)| lane).collect()
}

/// Pairs of ports (from, to) between which `test` sends.
fn pairs(test: Test, ports: usize) -> Vec<(usize, usize)> {
    let pairs = match test {
        Test::FullMesh
        | Test::OneToMany
        | Test::ManyToOne
        | Test::Backbone
        | Test::Unidirectional => return mesh::pairs(test, ports),
        Test::Congestion if ports >= 4 => vec![(0, 2), (0, 3), (1, 3)],
        Test::Congestion | Test::ForwardPressure => Vec::new(),
        Test::ForwardingRate | Test::ErroredFrames => vec![(0, 1)],
        Test::AddressCapacity | Test::AddressLearning if ports < 3 => Vec::new(),
        Test::AddressCapacity | Test::AddressLearning => vec![(1, 0)],
        Test::Broadcast => (1..ports).map(|to| (0, to)).collect(),
    };
    pairs.into_iter().filter(|(_, to)| *to < ports).collect()
}

/// Runs the tests of `settings`, in the order of the RFC.
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

/// Returns the figure of a rate.
fn rate(name: String, value: f64, uncertainty: f64, limit: Limit) -> Figure {
    let (better, unit) = (Better::Higher, "frames/s".into());
    Figure { name, value, unit, better, uncertainty, limit }
}
