//! The highest load of which a device loses nothing, found by trials.

use squall_report::render::human::ratio;

use crate::{
    bench::{Bench, Halt},
    bracket::{Bracket, Judged},
    outcome::Limit,
    trial::{Measured, Trial},
};

/// Loads below this part of the most are not tried.
const LOWEST: f64 = 1e-5;
/// Arrivals have whole nanoseconds; what came out is rounded down by more than that.
const CLOCK: f64 = 1e-6;

/// When a trial passes, and when the search ends.
#[derive(Clone, Copy)]
pub(crate) struct Search<'a> {
    pub resolution: f64,
    /// The loss ratio up to which a trial passes.
    pub tolerance: f64,
    /// A trial with loss is repeated up to so often, and passes if a repetition does.
    pub verifications: u32,
    /// The loss ratio of a trial.
    pub loss: &'a dyn Fn(&Measured) -> f64,
}

/// What a search found.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Highest {
    /// The load that came out without loss, as a part of the most; 0: nothing passed.
    pub load: f64,
    /// The load that was offered then.
    pub offered: f64,
    pub limit: Limit,
    /// Loads with their results, of the trials that count.
    pub trials: Vec<(f64, Measured)>,
}

impl Search<'_> {
    /// Searches with the trials of `trial`, a load and a label each.
    ///
    /// # Errors
    /// Why it stopped.
    pub fn highest(
        &self,
        label: &str,
        bench: &mut Bench<'_>,
        trial: &dyn Fn(f64, String) -> Trial,
    ) -> Result<Highest, Halt> {
        let mut bracket = Bracket::new(self.resolution, LOWEST);
        let (mut came_out, mut trials) = (0.0, Vec::new());
        while let Some(load) = bracket.next() {
            bench.searches(Some(bracket.bounds()));
            let text = format!("{label}, {}", ratio(load));
            let (judged, measured) = self.verified(load, &text, bench, trial)?;
            if judged == Judged::Passed && load > bracket.passed {
                came_out = load * output(&measured);
            }
            if judged != Judged::NotKept {
                trials.push((load, measured));
            }
            bracket.record(load, judged);
        }
        bench.searches(None);
        let limit = match bracket {
            _ if bracket.generator_bound() => Limit::Generator,
            // What the buffer took was not carried.
            _ if bracket.passed >= 1.0 && came_out >= 1.0 - self.resolution => Limit::Offered,
            _ => Limit::Device,
        };
        Ok(Highest { load: came_out, offered: bracket.passed, limit, trials })
    }

    /// One trial, and its repetitions while it fails (ETSI GS NFV-TST 009 §12.3.3).
    fn verified(
        &self,
        load: f64,
        label: &str,
        bench: &mut Bench<'_>,
        trial: &dyn Fn(f64, String) -> Trial,
    ) -> Result<(Judged, Measured), Halt> {
        let mut again = 0;
        loop {
            let label = match again {
                0 => label.to_owned(),
                n => format!("{label}, verification {n}"),
            };
            let measured = bench.trial(trial(load, label))?;
            let judged = self.judge(&measured, load);
            if !matches!(judged, Judged::Failed(_)) || again == self.verifications {
                return Ok((judged, measured));
            }
            again += 1;
        }
    }

    fn judge(&self, measured: &Measured, load: f64) -> Judged {
        let loss = (self.loss)(measured);
        match measured.kept() {
            false => Judged::NotKept,
            true if measured.sent() > 0 && loss <= self.tolerance => Judged::Passed,
            true => Judged::Failed(Some(load * output(measured).min(1.0 - loss / 2.0))),
        }
    }
}

/// The part of the load that came out while it was offered. A buffer that fills during the trial
/// would else be taken for throughput.
fn output(measured: &Measured) -> f64 {
    match measured.kept_up() {
        part if part < 1.0 => part * (1.0 - CLOCK),
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bounds, Device, Method, Patience, Rig, Watch, rfc2544};

    #[derive(Default)]
    struct Seen(Vec<Option<Bounds>>);

    impl Watch for Seen {
        fn searches(&mut self, bounds: Option<Bounds>) {
            self.0.push(bounds);
        }
    }

    #[test]
    fn bounds_of_a_search_close_around_what_it_finds() {
        let mut device = Device { capacity_fps: 3e5, buffer: 0.0, ..Device::ideal() };
        let mut watch = Seen::default();
        let mut bench = Bench::new(&mut device, &mut watch, Patience::default());
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
