//! ETSI GS NFV-TST 009 §12.3.3: throughput by binary search with loss verification. A trial with
//! loss is repeated, so a transient of a software device does not determine the result.

use squall_report::render::human::{ratio, si};

use crate::{
    bench::{Bench, MethodError},
    outcome::{Better, Figure, Outcome, Table},
    rfc2544::FRAME_SIZES,
    rig::Rig,
    search::{Highest, Search},
    settings::{WEEK, above_0, at_least, at_most, settings, some, within},
    trial::Measured,
};

settings! {
    /// Settings of TST 009.
    "TST 009":
    /// Frame sizes, octets with FCS
    frame_sizes: Vec<u32> = FRAME_SIZES.to_vec()
        => each("OCTETS", value_parser = crate::settings::frame_size()), in some("64,1518");
    /// Length of a trial, seconds
    trial_s: f64 = 60.0 => one("SECONDS", value_parser = crate::settings::seconds), quick at_most(1.0), in above_0(WEEK);
    /// Repeat a trial with loss up to N times; it passes if one of them does
    verifications: u32 = 1 => one("N");
    /// End the search when less than this part of the rate is unknown
    resolution: f64 = 0.001 => one("RATIO"), quick at_least(0.005), in within(1e-6..=0.5);
    /// Loss ratio up to which a trial passes
    loss_tolerance: f64 = 0.0 => one("RATIO"), in within(0.0..=0.999);
}

impl Settings {
    /// Checks that all settings are in range.
    ///
    /// # Errors
    /// If a setting is out of range.
    pub fn check(&self) -> Result<(), MethodError> {
        self.limits()
    }
}

/// Searches for the throughput of each frame size.
///
/// # Errors
/// If a trial cannot run, or if the test is stopped.
pub fn run(
    settings: &Settings,
    rig: &Rig,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), MethodError> {
    settings.check()?;
    let columns = ["Frame size", "Frames/s", "Of the highest rate", "Layer 1", "Verified", ""];
    let title = "Throughput (ETSI GS NFV-TST 009, binary search with loss verification)";
    let mut table = Table::new(title, &columns);
    let mut each = Vec::new();
    for &size in &settings.frame_sizes {
        let (highest, again) = search(settings, rig, size, bench)?;
        let fps = highest.load * rig.total_fps(size);
        outcome.figures.push(Figure::new(
            format!("throughput/{size}"),
            fps,
            "frames/s",
            Better::Higher,
            fps * settings.resolution,
            highest.limit,
        ));
        table.rows.push(vec![
            size.to_string(),
            format!("{:.0}", fps.floor()),
            ratio(highest.load),
            si(fps * 8.0 * (f64::from(size) + 20.0), "b/s"),
            format!("{again} trials repeated"),
            highest.limit.mark().into(),
        ]);
        each.push(format!("{} frames/s at {size}", si(fps, "").trim()));
    }
    outcome.tables.push(table);
    outcome.verdict.text.push(format!("throughput: {}", each.join(", ")));
    Ok(())
}

/// Returns the throughput and the number of repeated trials.
fn search(
    settings: &Settings,
    rig: &Rig,
    size: u32,
    bench: &mut Bench<'_>,
) -> Result<(Highest, usize), MethodError> {
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
