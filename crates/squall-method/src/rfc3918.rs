//! RFC 3918: IP multicast. The first port sends to groups. The other ports join and leave them with
//! IGMP or MLD messages, as hosts do.

mod capacity;
mod delay;
mod groups;
mod throughput;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    bench::{Bench, MethodError},
    outcome::{Outcome, Table},
    path,
    rfc2544::FRAME_SIZES,
    rig::Rig,
    settings::{WEEK, above_0, at_least, at_most, first, from, ports, settings, some, within},
    trial::Lane,
};
use groups::{Groups, members};

pub use groups::Membership;

/// The tests, with the sections of RFC 3918.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Test {
    /// §4.1: the highest rate of unicast and multicast together
    MixedClass,
    /// §4.2: the forwarding rate of more and more groups
    GroupMatrix,
    /// §4.3: the highest rate that all receivers get
    Aggregated,
    /// §5.1 and §5.2: multicast latency, and its range
    Latency,
    /// §6.1: from the join to the first frame of the group
    JoinDelay,
    /// §6.2: from the leave to the last frame of the group
    LeaveDelay,
    /// §7.1: groups that the device keeps
    GroupCapacity,
}

settings! {
    /// Settings of RFC 3918.
    "RFC 3918":
    /// Tests to run
    tests: Vec<Test> = vec![
        Test::MixedClass,
        Test::GroupMatrix,
        Test::Aggregated,
        Test::Latency,
        Test::JoinDelay,
        Test::LeaveDelay,
        Test::GroupCapacity,
    ]
        => each("TEST", value_enum), in some("aggregated");
    /// Frame sizes, octets with FCS; MLD: at least 84
    frame_sizes: Vec<u32> = FRAME_SIZES.to_vec()
        => each("OCTETS", value_parser = crate::settings::frame_size()), in some("64,1518");
    /// How receivers join and leave
    membership: Membership = Membership::Igmpv2 => one("MEMBERSHIP", value_enum);
    /// Groups to send to
    groups: u32 = 10 => one("N", value_parser = clap::value_parser!(u32).range(1..=2_000_000));
    /// Numbers of groups of the group matrix (RFC 3918 §4.2: from 10 on, in steps of 10)
    matrix: Vec<u32> = (1..=10).map(|n| n * 10).collect() => each("N"), quick first(3);
    /// Shares of multicast in the mixed class test
    multicast_shares: Vec<f64> = vec![0.5] => each("RATIO");
    /// The most groups to try in the search for the capacity
    max_groups: u32 = 65_536
        => one("N", value_parser = clap::value_parser!(u32).range(1..=2_000_000)),
        quick at_most(4096);
    /// Length of a trial, seconds (RFC 3918 §3.1.5: at least 30)
    trial_s: f64 = 30.0 => one("SECONDS", value_parser = crate::settings::seconds), quick at_most(1.0), in above_0(WEEK);
    /// Length of a latency trial, seconds (RFC 3918 §5.1: 120)
    latency_s: f64 = 120.0 => one("SECONDS", value_parser = crate::settings::seconds), quick at_most(2.0), in above_0(WEEK);
    /// End the search when less than this part of the rate is unknown
    resolution: f64 = 0.001 => one("RATIO"), quick at_least(0.005), in within(1e-6..=0.5);
    /// Joins and leaves per second, of each receiver
    join_rate: f64 = 1000.0 => one("FPS"), in within(1.0..=1e7);
    /// Wait after the last join, seconds
    settle_s: f64 = 1.0 => one("SECONDS", value_parser = crate::settings::seconds), quick at_most(0.5), in above_0(WEEK);
    /// Frames per second that measure the join and the leave delay: they are exact to one gap
    probe_rate: f64 = 10_000.0 => one("FPS"), in within(1.0..=1e7);
    /// The longest join or leave delay that is waited for, seconds
    delay_s: f64 = 5.0 => one("SECONDS", value_parser = crate::settings::seconds), in above_0(WEEK);
    /// Trials of the join and the leave delay
    repetitions: u32 = 10 => one("N"), quick at_most(2), in from(1);
    /// Command that makes the device forget all groups, at the start of each capacity trial
    flush_command: Option<String> = None => given("COMMAND");
}

impl Settings {
    /// Checks that all settings are in range and fit `rig`.
    ///
    /// # Errors
    /// If a setting is out of range, or if the rig has too few or too many ports.
    pub fn check(&self, rig: &Rig) -> Result<(), MethodError> {
        let wrong = |text: &str| Err(MethodError::Usage(text.into()));
        ports(rig, "RFC 3918 takes one port that sends and 1 to 249 that receive")?;
        self.limits()?;
        if self.multicast_shares.iter().any(|share| !(*share > 0.0 && *share < 1.0)) {
            return wrong("multicast_shares: expected shares above 0, below 1");
        }
        if self.matrix.iter().any(|groups| !(1..=2_000_000).contains(groups)) {
            return wrong("matrix: expected 1 to 2,000,000 groups");
        }
        Ok(())
    }

    /// Frame sizes long enough for the headers, which are longer with IPv6.
    fn sizes(&self) -> Vec<u32> {
        let least = if self.membership == Membership::Mldv1 { 84 } else { 64 };
        let mut sizes: Vec<_> = self.frame_sizes.iter().map(|size| *size.max(&least)).collect();
        sizes.dedup();
        sizes
    }
}

/// The test conditions that the RFC's reporting formats require.
fn conditions(settings: &Settings, rig: &Rig) -> Table {
    let mut table = Table::new("Conditions (RFC 3918)", &["", "Value"]);
    for (name, value) in [
        ("egress interfaces", (rig.ports.len() - 1).to_string()),
        ("membership", settings.membership.name().into()),
        ("groups", settings.groups.to_string()),
        ("test duration", format!("{} s", settings.trial_s)),
        ("test duration, latency", format!("{} s", settings.latency_s)),
        ("offered load, join and leave delay", format!("{} frames/s", settings.probe_rate)),
    ] {
        table.rows.push(vec![name.into(), value]);
    }
    table
}

/// Lanes that verify the path: receivers join a group that no test uses, receive its frames, and
/// leave.
pub(crate) fn path(settings: &Settings, rig: &Rig) -> Vec<Lane> {
    /// The last group of the range. The tests use groups that start at 0, 0x10_0000 and 0x20_0000.
    const GROUP: u32 = 0x3f_ffff;
    /// Time for the device to add a member to the group, seconds.
    const SETTLE_S: f64 = 0.02;
    if rig.ports.len() < 2 {
        return Vec::new();
    }
    let groups = Groups::new(settings, GROUP, 1);
    let sent_s = SETTLE_S + path::FRAMES as f64 / path::FPS;
    let size = settings.sizes().into_iter().min();
    let data = Lane {
        name: "multicast".into(),
        template: Some(groups.data(rig, 0)),
        frame_size: size,
        rate_fps: path::FPS,
        frames: Some(path::FRAMES),
        start_s: SETTLE_S,
        ..Lane::default()
    };
    let mut lanes =
        members(settings, rig, groups, receivers(settings, rig), 0.0, sent_s + SETTLE_S);
    lanes.push(data);
    lanes
}

/// Ports that join. The tests of delays and of the capacity use only the first receiver.
pub(crate) fn receivers(settings: &Settings, rig: &Rig) -> std::ops::Range<usize> {
    let one = [Test::JoinDelay, Test::LeaveDelay, Test::GroupCapacity];
    let all = settings.tests.iter().any(|test| !one.contains(test));
    1..if all { rig.ports.len() } else { 2.min(rig.ports.len()) }
}

/// Runs the tests of `settings` in the order of the RFC, except that the capacity comes before the
/// group matrix: §4.2 limits the matrix to the capacity.
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
    outcome.tables.push(conditions(settings, rig));
    let wants = |test| settings.tests.contains(&test);
    let capacity = match wants(Test::GroupCapacity) {
        true => capacity::all(settings, rig, bench, outcome)?,
        false => None,
    };
    if wants(Test::MixedClass) {
        throughput::mixed(settings, rig, bench, outcome)?;
    }
    if wants(Test::GroupMatrix) {
        throughput::matrix(settings, rig, capacity, bench, outcome)?;
    }
    if wants(Test::Aggregated) || wants(Test::Latency) {
        throughput::aggregated(settings, rig, bench, outcome)?;
    }
    if wants(Test::JoinDelay) {
        delay::join(settings, rig, bench, outcome)?;
    }
    if wants(Test::LeaveDelay) {
        delay::leave(settings, rig, bench, outcome)?;
    }
    let text = "encapsulation and decapsulation (§4.4): not run, as its tunnels are the device's \
                configuration; send them as streams of a profile with squall test rfc2544";
    outcome.notes.push(text.into());
    let text = "latency and join delay of a burdened device (§8): not run";
    outcome.notes.push(text.into());
    Ok(())
}
