//! Repeats experiments of papers about traffic generators. Each is a single call that measures the
//! paper's tables and figures in a private lab, in the units of the paper, next to its values if it
//! has them.
//!
//! The input is [`ExperimentSettings`], the result an [`Experiment`]. An experiment is a [`Known`],
//! with a function that fills in a [`Run`]. If this machine lacks something for a part, the result
//! states that, and the other parts run.

mod collector;
mod kute;
pub(crate) mod limits;
mod model;
mod ntg;
mod receivers;
mod render;
mod stateful;
mod tcpdump;
mod tcpreplay;
mod trex;
mod validate;

use std::{
    path::PathBuf,
    time::{Instant, SystemTime},
};

use squall::Error;
use squall_port_linux::lab::{LabOptions, enter_private};
use squall_units::Nanos;

pub use model::{
    EXPERIMENT_SCHEMA, Experiment, Fact, Figure, Missing, Series, Source, Table, Value, schema,
};
pub use render::{csv, html, summary};

use crate::{
    Work,
    compared::{ToolInfo, usable},
};

/// Settings of an experiment.
#[derive(Clone, Debug)]
pub struct ExperimentSettings {
    /// Run the full experiment, not the short form of at most two minutes.
    pub full: bool,
    /// Comma-separated names of the tools; absent: all tools of the experiment.
    pub tools: Option<String>,
    /// Duration of each step, instead of that of the experiment.
    pub step: Option<Nanos>,
    /// Path of this program, which is one of the tools.
    pub squall: PathBuf,
    /// The command line, for the result.
    pub command: String,
}

/// An experiment of a paper.
pub struct Known {
    pub name: &'static str,
    pub title: &'static str,
    pub paper: &'static str,
    /// The measured quantities, in one line.
    pub about: &'static str,
    /// Approximate duration of the short form and of the full experiment, seconds.
    pub takes_s: [u32; 2],
    run: fn(&mut Run<'_>) -> Result<(), Error>,
}

/// All experiments, in the order of the papers' years of publication.
pub const EXPERIMENTS: &[Known] = &[
    kute::EXPERIMENT,
    tcpdump::EXPERIMENT,
    tcpreplay::EXPERIMENT,
    trex::EXPERIMENT,
    ntg::EXPERIMENT,
];

/// Finds an experiment by its name.
///
/// # Errors
/// The name is unknown; the message lists the known ones.
pub fn find(name: &str) -> Result<&'static Known, Error> {
    EXPERIMENTS.iter().find(|known| known.name == name).ok_or_else(|| {
        let names = EXPERIMENTS.iter().map(|known| known.name).collect::<Vec<_>>().join(", ");
        Error::Usage(format!("cannot find experiment {name:?}\n  expected {names}"))
    })
}

/// A running experiment, and its result up to now.
pub(crate) struct Run<'a> {
    pub settings: &'a ExperimentSettings,
    pub result: Experiment,
    /// A directory for logs and captures, removed at the end.
    pub work: Work,
    progress: &'a mut dyn FnMut(&str),
    stop: &'a dyn Fn() -> bool,
}

/// Runs an experiment. `progress` receives a line for each step; `stop` is polled.
///
/// The process moves into the network namespace of a lab and stays there, so it must have a single
/// thread.
///
/// # Errors
///
/// No lab, or no usable tool. Steps that fail are part of the result.
pub fn run(
    known: &Known,
    settings: &ExperimentSettings,
    progress: &mut dyn FnMut(&str),
    stop: &dyn Fn() -> bool,
) -> Result<Experiment, Error> {
    let began = Instant::now();
    let result = Experiment {
        schema: EXPERIMENT_SCHEMA.into(),
        command: settings.command.clone(),
        squall_version: env!("CARGO_PKG_VERSION").into(),
        started: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        host: squall_machine::host(),
        name: known.name.into(),
        title: known.title.into(),
        paper: known.paper.into(),
        full: settings.full,
        ..Experiment::default()
    };
    let mut run = Run { settings, result, work: Work::new()?, progress, stop };
    (known.run)(&mut run)?;
    run.result.interrupted = stop();
    run.result.duration_s = began.elapsed().as_secs_f64();
    Ok(run.result)
}

impl Run<'_> {
    /// Duration of a step: that of the settings, or one of these two.
    pub fn step(&self, short: Nanos, full: Nanos) -> Nanos {
        self.settings.step.unwrap_or(if self.settings.full { full } else { short })
    }

    /// Whether the user has interrupted the experiment.
    pub fn stopped(&self) -> bool {
        (self.stop)()
    }

    pub fn stop(&self) -> &dyn Fn() -> bool {
        self.stop
    }

    pub fn progress(&mut self, line: &str) {
        (self.progress)(line);
    }

    pub fn fact(&mut self, name: &str, value: impl Into<String>) {
        self.result.method.push(Fact { name: name.into(), value: value.into() });
    }

    pub fn note(&mut self, text: impl Into<String>) {
        self.result.notes.push(text.into());
    }

    pub fn missing(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.result.missing.push(Missing { what: what.into(), why: why.into() });
    }

    /// The usable tools. The others are listed as missing in the result, from their `infos`.
    ///
    /// # Errors
    ///
    /// The same as of [`usable`].
    pub fn usable<T>(
        &mut self,
        tools: impl IntoIterator<Item = T>,
        infos: &[ToolInfo],
    ) -> Result<Vec<T>, Error> {
        for info in infos {
            if let Some(why) = &info.why_not {
                self.missing(&info.name, why);
            }
        }
        usable(tools, infos)
    }

    /// Moves this process into a private lab. Returns the names of its two interfaces.
    pub fn enter_lab(&self, mtu: u32) -> Result<[String; 2], Error> {
        let options = LabOptions { mtu, ..LabOptions::default() };
        enter_private(&options).map_err(|error| Error::Environment(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_answered_with_those_that_there_are() {
        assert_eq!(find("ntg").unwrap().name, "ntg");
        let error = find("nothing").err().unwrap().to_string();
        assert!(error.contains("ntg"), "{error}");
    }

    #[test]
    fn every_short_form_takes_at_most_two_minutes() {
        for known in EXPERIMENTS {
            assert!(known.takes_s[0] <= 120, "{}", known.name);
        }
    }
}
