//! Compares two profiles, or two results.

use squall_method::{Outcome, RecordedTrial, RetryPolicy, Status, Trial, Verdict, Watch, ab};
use squall_options::RunOptions;
use squall_profile::Profile;

use crate::{Job, Place, StartTime, add_places, error, measured::measured_whole, settle};
use squall::Error;

/// A comparison of two profiles or two devices by alternating trials.
#[derive(Clone, Debug)]
pub struct Comparison {
    pub a: Profile,
    pub b: Profile,
    pub settings: ab::Settings,
    /// Options of each trial.
    pub options: RunOptions,
    pub retry: RetryPolicy,
    pub command: String,
}

impl Comparison {
    /// Runs trials of A and B in alternation, one of each per pair. Discards a pair if the
    /// generator missed its schedule in all repetitions of either trial.
    ///
    /// # Errors
    /// Invalid settings, a profile that never ends, ports that do not open, or too few valid pairs.
    pub fn run(&self, watch: &mut dyn Watch, stop: &dyn Fn() -> bool) -> Result<Outcome, Error> {
        self.run_at(Place::Here, watch, stop)
    }

    /// The same as [`Comparison::run`], with trials at `place`.
    ///
    /// # Errors
    /// The same as of [`Comparison::run`], or a node that is no longer reachable.
    pub fn run_at(
        &self,
        place: Place<'_>,
        watch: &mut dyn Watch,
        stop: &dyn Fn() -> bool,
    ) -> Result<Outcome, Error> {
        self.settings.check().map_err(error)?;
        let began = StartTime::now();
        let places = place.description();
        let profiles = [place.placed(self.a.clone())?, place.placed(self.b.clone())?];
        let (mut a, mut b, mut trials) = (Vec::new(), Vec::new(), Vec::new());
        let mut bench =
            Pairs { comparison: self, profiles, place, watch, stop, trials: &mut trials };
        let (mut left_out, mut stopped) = (0, false);
        for pair in ab::sequence(self.settings.pairs).chunks(2) {
            let (first, second) = match (bench.trial(pair[0])?, bench.trial(pair[1])?) {
                (Turn::Kept(first), Turn::Kept(second)) => (first, second),
                (Turn::Stopped, _) | (_, Turn::Stopped) => {
                    stopped = true;
                    break;
                }
                _ => {
                    left_out += 1;
                    continue;
                }
            };
            let of_a = pair[0] == ab::Side::A;
            let (of_a, of_b) = if of_a { (first, second) } else { (second, first) };
            a.push(of_a);
            b.push(of_b);
        }
        let settings = ab::Settings { pairs: a.len(), ..self.settings.clone() };
        let text = format!("stopped after {} pairs", a.len());
        if stopped && a.len() < ab::fewest(settings.level) {
            let mut outcome = Outcome::new("ab", ab::TITLE, &settings);
            outcome.verdict = Verdict { status: Status::Stopped, text: vec![text] };
            outcome.trials = trials;
            return Ok(began.complete(outcome, self.a.to_toml(), &self.command));
        }
        let mut outcome = ab::outcome(&settings, &a, &b, ab::metric).map_err(|halt| {
            Error::Environment(format!(
                "{halt}: the generator missed its schedule in at least one trial of {left_out} \
                 pairs"
            ))
        })?;
        if left_out > 0 {
            let text = format!("{left_out} pairs left out: the generator missed its schedule");
            outcome.notes.push(text);
        }
        if stopped {
            outcome.verdict.status = Status::Stopped;
            outcome.verdict.text.insert(0, text);
        }
        outcome.trials = trials;
        outcome.add_clock_uncertainty();
        let mut outcome = began.complete(outcome, self.a.to_toml(), &self.command);
        add_places(&mut outcome, places);
        Ok(outcome)
    }
}

/// Outcome of a trial of a comparison.
enum Turn {
    Kept(ab::Metrics),
    /// The generator missed its schedule in every repetition.
    NotKept,
    Stopped,
}

/// Runs the trials of a comparison.
struct Pairs<'a> {
    comparison: &'a Comparison,
    /// A and B.
    profiles: [Profile; 2],
    place: Place<'a>,
    watch: &'a mut dyn Watch,
    stop: &'a dyn Fn() -> bool,
    trials: &'a mut Vec<RecordedTrial>,
}

impl Pairs<'_> {
    fn trial(&mut self, side: ab::Side) -> Result<Turn, Error> {
        let (profile, name) = match side {
            ab::Side::A => (&self.profiles[0], "A"),
            ab::Side::B => (&self.profiles[1], "B"),
        };
        for attempt in 1..=self.comparison.retry.repeats + 1 {
            let trial = Trial { label: name.into(), ..Trial::default() };
            if !self.trials.is_empty() && !settle(self.comparison.retry.rest_s, self.stop) {
                return Ok(Turn::Stopped);
            }
            self.watch.trial_started(&trial, self.trials.len() + 1);
            let job = Job {
                label: name,
                profile: profile.clone(),
                options: self.comparison.options.clone(),
                action: None,
                seconds_s: 0.0,
                lasts_s: None,
            };
            let Some(ran) = self.place.run(job, self.stop)? else { return Ok(Turn::Stopped) };
            let measured = measured_whole(&ran)?;
            let recorded = RecordedTrial { trial, measured, attempt };
            self.trials.push(recorded.clone());
            if !self.watch.trial_ended(&recorded) {
                return Ok(Turn::Stopped);
            }
            if recorded.measured.kept() {
                return Ok(Turn::Kept(ab::metrics(&recorded.measured)));
            }
        }
        Ok(Turn::NotKept)
    }
}

/// Compares two saved results of the same method. Trials with equal labels form pairs, in their
/// order.
///
/// # Errors
/// Invalid settings, or too few common trials.
pub fn compare_results(
    a: &Outcome,
    b: &Outcome,
    settings: &ab::Settings,
    command: &str,
) -> Result<Outcome, Error> {
    let began = StartTime::now();
    let kept = |outcome: &Outcome| -> Vec<RecordedTrial> {
        outcome.trials.iter().filter(|recorded| recorded.measured.kept()).cloned().collect()
    };
    let (of_a, mut of_b) = (kept(a), kept(b));
    let (mut left, mut right) = (Vec::new(), Vec::new());
    for one in of_a {
        let same = |other: &RecordedTrial| other.trial == one.trial;
        if let Some(at) = of_b.iter().position(same) {
            left.push(ab::metrics(&one.measured));
            right.push(ab::metrics(&of_b.remove(at).measured));
        }
    }
    let settings = ab::Settings { pairs: left.len(), ..settings.clone() };
    let outcome = ab::outcome(&settings, &left, &right, ab::metric).map_err(error)?;
    Ok(began.complete(outcome, a.profile.clone(), command))
}
