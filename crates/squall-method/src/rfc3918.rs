//! RFC 3918: IP multicast. The first port sends to groups; the others join and leave them with
//! plain IGMP or MLD frames, as hosts do.

mod capacity;
mod delay;
mod groups;
mod throughput;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    bench::{Bench, Halt},
    checks,
    outcome::{Outcome, Table},
    rfc2544::FRAME_SIZES,
    rig::Rig,
};

pub use groups::Membership;

/// The tests of the RFC, by their sections.
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

/// What RFC 3918 leaves to the tester.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "clap", derive(clap::Args), command(next_help_heading = "RFC 3918"))]
pub struct Settings {
    /// Tests to run
    #[cfg_attr(feature = "clap", arg(long, value_enum, value_delimiter = ',', value_name = "TEST",
        default_values_t = Settings::default().tests))]
    pub tests: Vec<Test>,
    /// Frame sizes, octets with FCS; MLD: at least 84
    #[cfg_attr(feature = "clap", arg(long, value_delimiter = ',', value_name = "OCTETS",
        value_parser = clap::value_parser!(u32).range(64..=65_535),
        default_values_t = FRAME_SIZES))]
    pub frame_sizes: Vec<u32>,
    /// How receivers join and leave
    #[cfg_attr(feature = "clap", arg(long, value_enum, default_value_t = Membership::Igmpv2))]
    pub membership: Membership,
    /// Groups to send to
    #[cfg_attr(feature = "clap", arg(long, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=2_000_000),
        default_value_t = Settings::default().groups))]
    pub groups: u32,
    /// Numbers of groups of the group matrix (RFC 3918 §4.2: from 10 on, in steps of 10)
    #[cfg_attr(feature = "clap", arg(long, value_delimiter = ',', value_name = "N",
        default_values_t = Settings::default().matrix))]
    pub matrix: Vec<u32>,
    /// Shares of multicast in the mixed class test
    #[cfg_attr(feature = "clap", arg(long, value_delimiter = ',', value_name = "RATIO",
        default_values_t = Settings::default().multicast_shares))]
    pub multicast_shares: Vec<f64>,
    /// The most groups to try in the search for the capacity
    #[cfg_attr(feature = "clap", arg(long, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=2_000_000),
        default_value_t = Settings::default().max_groups))]
    pub max_groups: u32,
    /// Length of a trial, seconds (RFC 3918 §3.1.5: at least 30)
    #[cfg_attr(feature = "clap", arg(long, value_name = "SECONDS",
        default_value_t = Settings::default().trial_s))]
    pub trial_s: f64,
    /// Length of a latency trial, seconds (RFC 3918 §5.1: 120)
    #[cfg_attr(feature = "clap", arg(long, value_name = "SECONDS",
        default_value_t = Settings::default().latency_s))]
    pub latency_s: f64,
    /// End the search when less than this part of the rate is unknown
    #[cfg_attr(feature = "clap", arg(long, value_name = "RATIO",
        default_value_t = Settings::default().resolution))]
    pub resolution: f64,
    /// Joins and leaves per second, of each receiver
    #[cfg_attr(feature = "clap", arg(long, value_name = "FPS",
        default_value_t = Settings::default().join_rate))]
    pub join_rate: f64,
    /// Wait after the last join, seconds
    #[cfg_attr(feature = "clap", arg(long, value_name = "SECONDS",
        default_value_t = Settings::default().settle_s))]
    pub settle_s: f64,
    /// Frames per second that measure the join and the leave delay: they are exact to one gap
    #[cfg_attr(feature = "clap", arg(long, value_name = "FPS",
        default_value_t = Settings::default().probe_rate))]
    pub probe_rate: f64,
    /// The longest join or leave delay that is waited for, seconds
    #[cfg_attr(feature = "clap", arg(long, value_name = "SECONDS",
        default_value_t = Settings::default().delay_s))]
    pub delay_s: f64,
    /// Trials of the join and the leave delay
    #[cfg_attr(feature = "clap", arg(long, value_name = "N",
        default_value_t = Settings::default().repetitions))]
    pub repetitions: u32,
    /// Command that makes the device forget all groups, at the start of each capacity trial
    #[cfg_attr(feature = "clap", arg(long, value_name = "COMMAND"))]
    pub flush_command: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        use Test::{
            Aggregated, GroupCapacity, GroupMatrix, JoinDelay, Latency, LeaveDelay, MixedClass,
        };
        Self {
            tests: vec![
                MixedClass,
                GroupMatrix,
                Aggregated,
                Latency,
                JoinDelay,
                LeaveDelay,
                GroupCapacity,
            ],
            frame_sizes: FRAME_SIZES.to_vec(),
            membership: Membership::Igmpv2,
            groups: 10,
            matrix: (1..=10).map(|n| n * 10).collect(),
            multicast_shares: vec![0.5],
            max_groups: 65_536,
            trial_s: 30.0,
            latency_s: 120.0,
            resolution: 0.001,
            join_rate: 1000.0,
            settle_s: 1.0,
            probe_rate: 10_000.0,
            delay_s: 5.0,
            repetitions: 10,
            flush_command: None,
        }
    }
}

impl Settings {
    /// Seconds for minutes.
    pub fn quick(self) -> Self {
        Self {
            trial_s: self.trial_s.min(1.0),
            latency_s: self.latency_s.min(2.0),
            matrix: self.matrix.into_iter().take(3).collect(),
            resolution: self.resolution.max(0.005),
            settle_s: self.settle_s.min(0.5),
            repetitions: self.repetitions.min(2),
            max_groups: self.max_groups.min(4096),
            ..self
        }
    }

    /// # Errors
    /// What no test can be run with.
    pub fn check(&self, rig: &Rig) -> Result<(), Halt> {
        let wrong = |text: String| Err(Halt::Usage(text));
        checks::ports(rig, "RFC 3918 takes one port that sends and 1 to 249 that receive")?;
        let seconds = [
            ("trial_s", self.trial_s),
            ("latency_s", self.latency_s),
            ("settle_s", self.settle_s),
            ("delay_s", self.delay_s),
        ];
        checks::positive(&seconds, checks::WEEK)?;
        let rates = [("join_rate", self.join_rate), ("probe_rate", self.probe_rate)];
        checks::within(&rates, 1.0..=1e7)?;
        checks::within(&[("resolution", self.resolution)], 1e-6..=0.5)?;
        if self.multicast_shares.iter().any(|share| !(*share > 0.0 && *share < 1.0)) {
            return wrong("multicast_shares: expected shares above 0, below 1".into());
        }
        if self.matrix.iter().any(|groups| !(1..=2_000_000).contains(groups)) {
            return wrong("matrix: expected 1 to 2,000,000 groups".into());
        }
        if self.repetitions == 0 {
            return wrong("repetitions = 0, expected at least 1".into());
        }
        checks::given(&[
            ("tests", self.tests.is_empty(), "aggregated"),
            ("frame_sizes", self.frame_sizes.is_empty(), "64,1518"),
        ])
    }

    /// Frame sizes that hold the headers: those of IPv6 are longer.
    fn sizes(&self) -> Vec<u32> {
        let least = if self.membership == Membership::Mldv1 { 84 } else { 64 };
        let mut sizes: Vec<_> = self.frame_sizes.iter().map(|size| *size.max(&least)).collect();
        sizes.dedup();
        sizes
    }
}

/// What the RFC's reporting formats ask for of each test: the conditions.
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

/// Runs the tests that `settings` names, in the RFC's order; but the capacity before the group
/// matrix, which must not have more groups (§4.2).
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
