//! Multiple loss ratio search (RFC 9971): finds, for several goals at once, the highest load at
//! which loss stays within the goal.

mod goal;
mod outcome;
mod search;

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use squall_report::render::human::ratio;

use crate::{
    bench::{Bench, MethodError},
    fields,
    outcome::Outcome,
    rfc2544::FRAME_SIZES,
    rig::Rig,
    settings::{settings, some},
    trial::Measured,
};

pub use goal::Goal;
pub use search::{Found, Next, Search};

/// Search goals by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Preset {
    /// Throughput as in RFC 2544: one trial of 60 s without loss
    Rfc2544,
    /// Throughput as in ETSI TST 009: one of two trials of 60 s without loss
    Tst009,
    /// NDR and PDR as in FD.io CSIT: most of 21 trials of 1 s with a loss of at most 0 and 0.5 %
    #[default]
    Csit,
}

impl Preset {
    pub fn goals(self) -> Vec<Goal> {
        let csit = |name: &str, loss_ratio: f64| Goal {
            name: name.into(),
            final_s: 1.0,
            sum_s: 21.0,
            loss_ratio,
            exceed_ratio: 0.5,
            ..Goal::default()
        };
        match self {
            Self::Rfc2544 => vec![Goal::default()],
            Self::Tst009 => vec![Goal { sum_s: 120.0, exceed_ratio: 0.5, ..Goal::default() }],
            Self::Csit => vec![csit("NDR", 0.0), csit("PDR", 0.005)],
        }
    }
}

settings! {
    /// Settings of the search.
    own quick, "MLRsearch":
    /// Search for these goals
    preset: Preset = Preset::default() => one("GOALS", value_enum);
    /// Search for this goal instead; repeatable:
    /// name=PDR,loss_ratio=0.005,final_s=1,sum_s=21,exceed_ratio=0.5,width=0.005,initial_s=1
    goal: Vec<Goal> = Vec::new() => given("GOAL");
    /// Frame sizes, octets with FCS
    frame_sizes: Vec<u32> = FRAME_SIZES.to_vec()
        => each("OCTETS", value_parser = crate::settings::frame_size()), in some("64,1518");
    /// Lowest load to try, as a part of the highest rate
    min_load: f64 = 1e-4 => one("RATIO");
    /// Highest load to try, as a part of the highest rate
    max_load: f64 = 1.0 => one("RATIO");
}

impl FromStr for Goal {
    type Err = String;

    /// Parses `name=PDR,loss_ratio=0.005`: fields as in a settings file.
    ///
    /// ```
    /// use squall_method::mlrsearch::Goal;
    ///
    /// let goal: Goal = "name=PDR,loss_ratio=0.005,final_s=1,sum_s=21,exceed_ratio=0.5".parse()?;
    /// assert_eq!((goal.loss_ratio, goal.width), (0.005, 0.005));
    /// assert!("loss=0.005".parse::<Goal>().is_err());
    /// # Ok::<_, String>(())
    /// ```
    fn from_str(text: &str) -> Result<Self, String> {
        let goal: Self = fields::parse(text, &["name"])?;
        goal.check().map(|()| goal)
    }
}

impl Settings {
    /// The goals to search for.
    pub fn goals(&self) -> Vec<Goal> {
        if self.goal.is_empty() { self.preset.goals() } else { self.goal.clone() }
    }

    /// Shortens trials to 1 s and widens the goals, unless `goal` is in `given`.
    pub fn quick(self, given: &[&str]) -> Self {
        if given.contains(&"goal") {
            return self;
        }
        let short = |goal: Goal| Goal {
            final_s: goal.final_s.min(1.0),
            initial_s: goal.initial_s.min(1.0),
            // At most three trials per load.
            sum_s: (goal.sum_s / goal.final_s).min(3.0) * goal.final_s.min(1.0),
            width: goal.width.max(0.01),
            ..goal
        };
        Self { goal: self.goals().into_iter().map(short).collect(), ..self }
    }

    /// Checks that all settings are in range.
    ///
    /// # Errors
    /// If a setting is out of range.
    pub fn check(&self) -> Result<(), MethodError> {
        let goals = self.goals();
        for (i, goal) in goals.iter().enumerate() {
            goal.check().map_err(MethodError::Usage)?;
            if goals[..i].iter().any(|other| other.name == goal.name) {
                return Err(MethodError::Usage(format!("two goals are called \"{}\"", goal.name)));
            }
        }
        let (min, max) = (self.min_load, self.max_load);
        if !(min > 0.0 && min < max && max <= 1.0) {
            let text = format!("loads from {min} to {max}, expected above 0, at most 1");
            return Err(MethodError::Usage(text));
        }
        self.limits()
    }
}

/// The result of a search at one frame size.
struct Searched {
    size: u32,
    found: Vec<Found>,
    /// Duration and load of each trial.
    trials: Vec<(f64, f64)>,
}

/// Searches at each frame size. Figures are named by goal and size: `NDR/64`.
///
/// # Errors
///
/// If a trial cannot run, or if the test is stopped.
pub fn run(
    settings: &Settings,
    rig: &Rig,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), MethodError> {
    settings.check()?;
    let goals = settings.goals();
    let mut all = Vec::new();
    for &size in &settings.frame_sizes {
        let searched = search(settings, &goals, rig, size, bench)?;
        outcome.figures.extend(outcome::figures(settings, &goals, rig, &searched));
        all.push(searched);
    }
    outcome::report(settings, &goals, rig, &all, outcome);
    Ok(())
}

fn search(
    settings: &Settings,
    goals: &[Goal],
    rig: &Rig,
    size: u32,
    bench: &mut Bench<'_>,
) -> Result<Searched, MethodError> {
    let mut search = Search::new(goals, settings.min_load, settings.max_load);
    let mut trials = Vec::new();
    while let Next::Measure { load, duration_s } = search.next_trial() {
        let label = format!("search, {size} octets, {}", ratio(load));
        let measured = bench.trial(rig.trial(label, size, load, duration_s))?;
        match measured.kept() {
            true => search.record(load, duration_s, loss(&measured)),
            false => search.not_kept(load),
        }
        trials.push((duration_s, load));
    }
    Ok(Searched { size, found: search.found(), trials })
}

/// Loss ratio. It is 1 if no frame was sent, as the device then forwarded nothing.
fn loss(measured: &Measured) -> f64 {
    if measured.sent() == 0 { 1.0 } else { measured.loss_ratio() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, Limit, NoWatch, RetryPolicy};

    fn outcome(settings: &Settings, mut device: Device) -> Result<Outcome, MethodError> {
        let mut watch = NoWatch;
        let mut bench = Bench::new(&mut device, &mut watch, RetryPolicy::default());
        let mut outcome = Outcome::new("mlrsearch", "RFC 9971", settings);
        run(settings, &Rig::one_stream("A to B", 1e9), &mut bench, &mut outcome)?;
        outcome.note_generator_limit();
        Ok(outcome)
    }

    fn settings() -> Settings {
        Settings { frame_sizes: vec![64, 1518], ..Settings::default() }
    }

    #[test]
    fn ndr_and_pdr_of_each_size_are_figures() {
        // A link of 1 Gb/s carries 1.488 Mpps of 64 octets, or 81 kpps of 1518.
        let device = Device { capacity_fps: 5e5, buffer: 0.0, ..Device::ideal() };
        let outcome = outcome(&settings(), device).unwrap();
        let names: Vec<_> = outcome.figures.iter().map(|figure| figure.name.as_str()).collect();
        assert_eq!(names, ["NDR/64", "PDR/64", "NDR/1518", "PDR/1518"]);
        for name in ["NDR/64", "PDR/64"] {
            let figure = outcome.figure(name).unwrap();
            assert!((figure.value - 5e5).abs() <= 2500.0, "{figure:?}");
            assert!(figure.uncertainty > 0.0 && figure.uncertainty < 2600.0, "{figure:?}");
            assert_eq!(figure.limit, Limit::Device);
        }
        let figure = outcome.figure("NDR/1518").unwrap();
        assert!((figure.value - 1e9 / 8.0 / 1538.0).abs() < 1.0, "{figure:?}");
        assert_eq!(figure.limit, Limit::Offered);
        assert_eq!(outcome.tables[0].rows.len(), 4);
        assert_eq!(outcome.tables[1].rows.len(), 2);
        let points = |plot: &crate::Plot| plot.series.iter().map(|s| s.points.len()).sum::<usize>();
        assert!(points(&outcome.plots[0]) > 30 && points(&outcome.plots[1]) == 11);
    }

    #[test]
    fn the_generators_limit_is_no_figure_of_the_device() {
        let device = Device { generator_fps: 5e5, ..Device::ideal() };
        let outcome = outcome(&settings(), device).unwrap();
        let figure = outcome.figure("PDR/64").unwrap();
        assert!(figure.limit == Limit::Generator && figure.value <= 5e5, "{figure:?}");
        assert!(figure.value > 4.9e5, "{figure:?}");
        assert_eq!(outcome.figure("PDR/1518").unwrap().limit, Limit::Offered);
        assert_eq!(outcome.verdict.status, crate::Status::GeneratorBound);
    }

    #[test]
    fn a_device_that_carries_nothing_has_a_figure_of_0() {
        let device = Device { capacity_fps: 1.0, buffer: 0.0, ..Device::ideal() };
        let outcome = outcome(&settings(), device).unwrap();
        let figure = outcome.figure("NDR/64").unwrap();
        assert!(figure.value == 0.0 && figure.uncertainty < 150.0, "{figure:?}");
    }

    #[test]
    fn wrong_settings_are_refused_before_the_first_trial() {
        let wrong = [
            Settings { min_load: 0.0, ..settings() },
            Settings { max_load: 1.5, ..settings() },
            Settings { frame_sizes: vec![], ..settings() },
            Settings { goal: vec![Goal::default(), Goal::default()], ..settings() },
            Settings { goal: vec![Goal { width: 0.0, ..Goal::default() }], ..settings() },
        ];
        for wrong in wrong {
            assert!(
                matches!(outcome(&wrong, Device::ideal()), Err(MethodError::Usage(_))),
                "{wrong:?}"
            );
        }
    }
}
