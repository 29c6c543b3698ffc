//! Search for the highest load without loss.

use squall_report::render::human::ratio;

use crate::{
    bench::{Bench, MethodError},
    bracket::{Bracket, TrialResult},
    outcome::Limit,
    trial::{Measured, Trial},
};

/// Lowest load to try: 15 frames/s of 64 octets at 1 Gb/s.
const LOWEST: f64 = 1e-5;
/// Arrival times are rounded to nanoseconds. An output rate below the offered one by less than this
/// fraction is rounding.
const CLOCK: f64 = 1e-6;

/// Criteria of a pass and of the search's end.
#[derive(Clone, Copy)]
pub(crate) struct Search<'a> {
    pub resolution: f64,
    /// The loss ratio up to which a trial passes.
    pub tolerance: f64,
    /// A trial with loss is repeated up to this number of times, and passes if a repetition does.
    pub verifications: u32,
    /// The loss ratio of a trial.
    pub loss: &'a dyn Fn(&Measured) -> f64,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Highest {
    /// The load at which the device forwarded frames without loss; 0: no load passed.
    pub load: f64,
    /// The load offered in the trial that passed.
    pub offered: f64,
    /// Frames that were still in a queue of the device when the last frame of that trial was sent.
    pub absorbed: f64,
    pub limit: Limit,
    /// Load and result of each valid trial.
    pub trials: Vec<(f64, Measured)>,
}

impl Search<'_> {
    /// Searches with the trials that `trial` returns for a load and a label.
    ///
    /// # Errors
    /// If a trial cannot run, or if the test is stopped.
    pub fn highest(
        &self,
        label: &str,
        bench: &mut Bench<'_>,
        trial: &dyn Fn(f64, String) -> Trial,
    ) -> Result<Highest, MethodError> {
        let mut bracket = Bracket::new(self.resolution, LOWEST);
        let (mut came_out, mut absorbed, mut trials) = (0.0, 0.0, Vec::new());
        while let Some(load) = bracket.next() {
            bench.search_bounds(Some(bracket.bounds()));
            let text = format!("{label}, {}", ratio(load));
            let (judged, measured) = self.verified(load, &text, bench, trial)?;
            if judged == TrialResult::Passed && load > bracket.passed {
                came_out = load * output(&measured);
                absorbed = measured.sent() as f64 * (1.0 - output(&measured));
            }
            if measured.kept() {
                trials.push((load, measured));
            }
            bracket.record(load, judged);
        }
        bench.search_bounds(None);
        let limit = match bracket {
            _ if bracket.generator_bound() => Limit::Generator,
            // Frames that only filled a buffer do not count as forwarded.
            _ if bracket.passed >= 1.0 && came_out >= 1.0 - self.resolution => Limit::Offered,
            _ => Limit::Device,
        };
        Ok(Highest { load: came_out, offered: bracket.passed, absorbed, limit, trials })
    }

    /// Runs a trial and repeats it while it fails (ETSI GS NFV-TST 009 §12.3.3).
    fn verified(
        &self,
        load: f64,
        label: &str,
        bench: &mut Bench<'_>,
        trial: &dyn Fn(f64, String) -> Trial,
    ) -> Result<(TrialResult, Measured), MethodError> {
        let mut again = 0;
        loop {
            let label = match again {
                0 => label.to_owned(),
                n => format!("{label}, verification {n}"),
            };
            let trial = trial(load, label);
            let due: u64 = trial.lanes.iter().map(|lane| lane.due(trial.duration_s)).sum();
            let measured = bench.trial(trial)?;
            let judged = self.judge(&measured, load, due);
            if !matches!(judged, TrialResult::Failed(_)) || again == self.verifications {
                return Ok((judged, measured));
            }
            again += 1;
        }
    }

    /// `due`: frames to send at this load.
    fn judge(&self, measured: &Measured, load: f64, due: u64) -> TrialResult {
        let loss = (self.loss)(measured);
        match measured.kept() {
            false => TrialResult::NotKept(Some(load * measured.sent() as f64 / due.max(1) as f64)),
            true if measured.sent() > 0 && loss <= self.tolerance => TrialResult::Passed,
            true => TrialResult::Failed(Some(load * output(measured).min(1.0 - loss / 2.0))),
        }
    }
}

/// The output rate as a part of the offered rate. Without it, a buffer that fills during the trial
/// would count as throughput.
fn output(measured: &Measured) -> f64 {
    match measured.output_ratio() {
        part if part < 1.0 => part * (1.0 - CLOCK),
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bounds, Device, Method, RetryPolicy, Rig, Watch, rfc2544};

    #[derive(Default)]
    struct Seen(Vec<Option<Bounds>>);

    impl Watch for Seen {
        fn search_bounds(&mut self, bounds: Option<Bounds>) {
            self.0.push(bounds);
        }
    }

    #[test]
    fn bounds_of_a_search_close_around_what_it_finds() {
        let mut device = Device { capacity_fps: 3e5, buffer: 0.0, ..Device::ideal() };
        let mut watch = Seen::default();
        let mut bench = Bench::new(&mut device, &mut watch, RetryPolicy::default());
        let tests = vec![rfc2544::Test::Throughput];
        let settings = rfc2544::Settings { tests, frame_sizes: vec![64], ..Default::default() };
        let rig = Rig::one_stream("A to B", 1e9);
        let most = rig.total_fps(64);
        Method::Rfc2544(settings).run(&rig, &mut bench).expect("it runs");
        assert_eq!(watch.0.pop(), Some(None));
        let seen: Vec<Bounds> = watch.0.into_iter().flatten().collect();
        assert_eq!(seen[0], Bounds::default());
        let width = |bounds: &Bounds| bounds.failed.unwrap_or(1.0) - bounds.passed;
        assert!(
            seen.len() > 2 && seen.windows(2).all(|w| width(&w[1]) <= width(&w[0])),
            "{seen:?}"
        );
        let last = seen[seen.len() - 1];
        let found = 3e5 / most;
        assert!(last.passed <= found && last.failed.is_some_and(|f| f > found), "{last:?} {found}");
    }
}
