//! RFC 8239: switches of data centers. The method makes its own frames between stations on the ports
//! of the rig; TCP connections are those of the profile's clients and servers.

mod blocking;
mod buffer;
mod incast;
mod line_rate;
mod microburst;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    bench::{Bench, MethodError},
    outcome::Outcome,
    path,
    rig::Rig,
    settings::{WEEK, above_0, at_most, from, ports, settings, some, within},
    stations::{LEARN_S, learning, unicast},
    trial::{Lane, Measured, Trial},
};

/// Frame sizes of RFC 8239 §2.3.
pub const FRAME_SIZES: [u32; 9] = [64, 128, 256, 512, 1024, 1518, 4096, 8000, 9216];

/// The tests of the RFC, by their sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Test {
    /// §2: rate, latency and jitter at line rate, between pairs of ports and fully meshed
    LineRate,
    /// §3: the buffer of each egress port, of pairs of ports, and of the device; 3 ports or more
    Buffering,
    /// §4: the longest burst of all other ports to one without loss; 3 ports or more
    Microburst,
    /// §5: head-of-line blocking in groups of four ports; 4 ports or more
    HeadOfLine,
    /// §6: TCP goodput, and latency of microbursts to the same port; 3 ports or more
    Incast,
}

settings! {
    /// Settings of RFC 8239.
    "RFC 8239":
    /// Tests to run
    tests: Vec<Test> = vec![
        Test::LineRate,
        Test::Buffering,
        Test::Microburst,
        Test::HeadOfLine,
        Test::Incast,
    ]
        => each("TEST", value_enum), in some("line-rate");
    /// Frame sizes, octets with FCS
    frame_sizes: Vec<u32> = FRAME_SIZES.to_vec()
        => each("OCTETS", value_parser = crate::settings::frame_size()), in some("64,1518");
    /// Length of a trial at a constant rate, seconds
    trial_s: f64 = 30.0 => one("SECONDS", value_parser = crate::settings::seconds), quick at_most(1.0), in above_0(WEEK);
    /// Load of the line-rate test, as a part of the highest rate (§2.2: at most 0.9998)
    load: f64 = 0.9998 => one("RATIO"), in above_0(1.0);
    /// Load beyond the line rate by which a buffer is filled, as a part of the line rate (§3.2: 0.01)
    oversubscription: f64 = 0.01 => one("RATIO"), in within(1e-6..=1.0);
    /// The longest overload to try, seconds
    overload_s: f64 = 30.0 => one("SECONDS", value_parser = crate::settings::seconds), quick at_most(5.0), in above_0(WEEK);
    /// The longest microburst to try, seconds
    burst_s: f64 = 2.0 => one("SECONDS", value_parser = crate::settings::seconds), in above_0(WEEK);
    /// How often each buffer and microburst is searched for
    repetitions: u32 = 3 => one("N"), quick at_most(1), in from(1);
    /// Ports by which the roles of the ports are shifted, one after the other, in the tests of
    /// buffers, microbursts and head-of-line blocking [default: by all]
    shifts: Option<u32> = None => given("N"), quick |given: Option<u32>| given.or(Some(1));
    /// TCP connections of the incast test
    connections: u32 = 4 => one("N"), in from(1);
    /// Length of an incast trial, seconds
    incast_s: f64 = 10.0 => one("SECONDS", value_parser = crate::settings::seconds), quick at_most(3.0), in above_0(WEEK);
    /// Frames in each microburst of the incast test
    burst_frames: u64 = 50 => one("N"), in within(1.0..=1e9);
    /// Interval of these microbursts, seconds
    burst_interval_s: f64 = 0.5 => one("SECONDS", value_parser = crate::settings::seconds), in above_0(WEEK);
}

/// The most microbursts of a port in an incast trial: each is a stream of its own.
const MAX_BURSTS: f64 = 1000.0;

impl Settings {
    /// # Errors
    /// If a setting is out of range, or if the rig has too few ports.
    pub fn check(&self, rig: &Rig) -> Result<(), MethodError> {
        ports(rig, "RFC 8239 tests a switch, by 2 to 250 ports")?;
        self.limits()?;
        if self.incast_s / self.burst_interval_s > MAX_BURSTS {
            let (interval, least) = (self.burst_interval_s, self.incast_s / MAX_BURSTS);
            let text = format!("burst_interval_s = {interval}, expected at least {least}");
            return Err(MethodError::Usage(text));
        }
        Ok(())
    }

    /// The shifts of port roles, beginning with 0.
    fn shifts(&self, rig: &Rig) -> std::ops::Range<usize> {
        let all = rig.ports.len();
        0..self.shifts.map_or(all, |shifts| (shifts as usize).clamp(1, all))
    }
}

/// Lanes that prove the path: from each port to the next one.
pub(crate) fn path(settings: &Settings, rig: &Rig) -> Vec<Lane> {
    let n = rig.ports.len();
    let lane = |from: usize| Lane {
        rate_fps: path::FPS,
        frames: Some(path::FRAMES),
        frame_size: settings.frame_sizes.iter().copied().min(),
        ..named(rig, from, (from + 1) % n)
    };
    (0..if n > 1 { n } else { 0 }).map(lane).collect()
}

/// Runs the tests of `settings`, in the RFC's order.
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
    for test in [Test::LineRate, Test::Buffering, Test::Microburst, Test::HeadOfLine, Test::Incast]
        .into_iter()
        .filter(|test| settings.tests.contains(test))
    {
        let (name, takes) = match test {
            Test::LineRate => ("line rate (§2)", 2),
            Test::Buffering => ("buffering (§3)", 3),
            Test::Microburst => ("microbursts (§4)", 3),
            Test::HeadOfLine => ("head-of-line blocking (§5)", 4),
            Test::Incast => ("incast (§6)", 3),
        };
        if rig.ports.len() < takes {
            outcome.notes.push(format!("{name}: not run, as it takes {takes} ports"));
            continue;
        }
        match test {
            Test::LineRate => line_rate::all(settings, rig, bench, outcome)?,
            Test::Buffering => buffer::all(settings, rig, bench, outcome)?,
            Test::Microburst => microburst::all(settings, rig, bench, outcome)?,
            Test::HeadOfLine => blocking::all(settings, rig, bench, outcome)?,
            Test::Incast => incast::all(settings, rig, bench, outcome)?,
        }
    }
    Ok(())
}

/// A lane from one port to another, without rate and size.
fn named(rig: &Rig, from: usize, to: usize) -> Lane {
    Lane {
        name: format!("{} to {}", rig.ports[from], rig.ports[to]),
        template: Some(unicast(rig, from, to, 1)),
        ..Lane::default()
    }
}

/// A load from one port to another.
#[derive(Clone, Copy)]
struct Load {
    from: usize,
    to: usize,
    /// As a part of the line rate.
    part: f64,
    /// `None`: until the trial ends.
    frames: Option<u64>,
}

/// A trial in which the switch first learns the stations of all ports.
fn trial(rig: &Rig, size: u32, loads: &[Load], duration_s: f64, label: String) -> Trial {
    let line = rig.port_fps(size);
    let lane = |(i, load): (usize, &Load)| {
        let before = loads[..i].iter().filter(|other| other.from == load.from).count();
        let to_same = |other: &&Load| other.to == load.to;
        let all = loads.iter().filter(to_same).count();
        let nth = loads[..i].iter().filter(to_same).count();
        let rate_fps = load.part * line;
        // Frames of one port to several others leave in turn, and so do those of several ports to one:
        // frames that arrive at the same instant would fill the queue by one each.
        let turn_s = before as f64 / line + nth as f64 / all as f64 / rate_fps;
        Lane {
            frame_size: Some(size),
            rate_fps,
            frames: load.frames,
            start_s: LEARN_S + turn_s,
            ..named(rig, load.from, load.to)
        }
    };
    let lanes = learning(rig, 1).chain(loads.iter().enumerate().map(lane)).collect();
    Trial { label, lanes, duration_s: LEARN_S + duration_s, ..Trial::default() }
}

/// Notes a trial whose load the generator did not offer. Returns whether the trial counts.
fn counts(what: &str, measured: &Measured, outcome: &mut Outcome) -> bool {
    if !measured.kept() {
        outcome.not_measured(what, &measured.not_kept);
    }
    measured.kept()
}

#[cfg(test)]
mod tests;
