//! ETSI GS NFV-TST 009 §12.3.3: throughput by binary search with loss verification. A trial with
//! loss is repeated, so that a transient of a software device does not set the result.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use squall_report::render::human::{ratio, si};

use crate::{
    bench::{Bench, Halt},
    checks,
    outcome::{Better, Figure, Outcome, Table},
    rfc2544::FRAME_SIZES,
    rig::Rig,
    search::{Highest, Search},
    trial::Measured,
};

/// What TST 009 leaves to the tester.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "clap", derive(clap::Args), command(next_help_heading = "TST 009"))]
pub struct Settings {
    /// Frame sizes, octets with FCS
    #[cfg_attr(feature = "clap", arg(long, value_delimiter = ',', value_name = "OCTETS",
        value_parser = clap::value_parser!(u32).range(64..=65_535),
        default_values_t = FRAME_SIZES))]
    pub frame_sizes: Vec<u32>,
    /// Length of a trial, seconds
    #[cfg_attr(feature = "clap", arg(long, value_name = "SECONDS",
        default_value_t = Settings::default().trial_s))]
    pub trial_s: f64,
    /// Repeat a trial with loss up to N times; it passes if one of them does
    #[cfg_attr(feature = "clap", arg(long, value_name = "N",
        default_value_t = Settings::default().verifications))]
    pub verifications: u32,
    /// End the search when less than this part of the rate is unknown
    #[cfg_attr(feature = "clap", arg(long, value_name = "RATIO",
        default_value_t = Settings::default().resolution))]
    pub resolution: f64,
    /// Loss ratio up to which a trial passes
    #[cfg_attr(feature = "clap", arg(long, value_name = "RATIO",
        default_value_t = Settings::default().loss_tolerance))]
    pub loss_tolerance: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            frame_sizes: FRAME_SIZES.to_vec(),
            trial_s: 60.0,
            verifications: 1,
            resolution: 0.001,
            loss_tolerance: 0.0,
        }
    }
}

impl Settings {
    /// Seconds for minutes.
    pub fn quick(self) -> Self {
        Self { trial_s: self.trial_s.min(1.0), resolution: self.resolution.max(0.005), ..self }
    }

    /// # Errors
    /// What no test can be run with.
    pub fn check(&self) -> Result<(), Halt> {
        checks::positive(&[("trial_s", self.trial_s)], checks::WEEK)?;
        checks::within(&[("resolution", self.resolution)], 1e-6..=0.5)?;
        checks::within(&[("loss_tolerance", self.loss_tolerance)], 0.0..=0.999)?;
        checks::given(&[("frame_sizes", self.frame_sizes.is_empty(), "64,1518")])
    }
}

/// Searches the throughput of each frame size.
///
/// # Errors
/// Why it stopped.
pub fn run(
    settings: &Settings,
    rig: &Rig,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), Halt> {
    settings.check()?;
    let columns = ["Frame size", "Frames/s", "Of the highest rate", "Layer 1", "Verified", ""];
    let title = "Throughput (ETSI GS NFV-TST 009, binary search with loss verification)";
    let mut table = Table::new(title, &columns);
    let mut each = Vec::new();
    for &size in &settings.frame_sizes {
        let (highest, again) = search(settings, rig, size, bench)?;
        let fps = highest.load * rig.total_fps(size);
        outcome.figures.push(Figure {
            name: format!("throughput/{size}"),
            value: fps,
            unit: "frames/s".into(),
            better: Better::Higher,
            uncertainty: fps * settings.resolution,
            limit: highest.limit,
        });
        table.rows.push(vec![
            size.to_string(),
            format!("{:.0}", fps.floor()),
            ratio(highest.load),
            si(fps * 8.0 * (f64::from(size) + 20.0), "bit/s"),
            format!("{again} trials repeated"),
            highest.limit.mark().into(),
        ]);
        each.push(format!("{} frames/s at {size}", si(fps, "").trim()));
    }
    outcome.tables.push(table);
    outcome.verdict.text.push(format!("throughput: {}", each.join(", ")));
    Ok(())
}

/// The throughput, and how many trials were repeated.
fn search(
    settings: &Settings,
    rig: &Rig,
    size: u32,
    bench: &mut Bench<'_>,
) -> Result<(Highest, usize), Halt> {
    let before = bench.trials().len();
    let goal = Search {
        resolution: settings.resolution,
        tolerance: settings.loss_tolerance,
        verifications: settings.verifications,
        loss: &Measured::loss_ratio,
    };
    let trial = |load, label| rig.trial(label, size, load, settings.trial_s);
    let highest = goal.highest(&format!("throughput, {size} octets"), bench, &trial)?;
    let all = bench.trials()[before..].iter();
    let again = all.filter(|one| one.trial.label.contains(", verification ")).count();
    Ok((highest, again))
}
