//! All methods behind one door.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    bench::{Bench, Halt, Patience, Unwatched},
    capacity,
    model::Device,
    outcome::{Outcome, Status},
    rfc2544,
    rig::Rig,
};

/// A standard test, with its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    Rfc2544(rfc2544::Settings),
    Capacity(capacity::Settings),
}

/// What a test takes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Estimate {
    pub trials: usize,
    pub seconds: f64,
}

impl Method {
    /// As the command line calls it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Rfc2544(_) => "rfc2544",
            Self::Capacity(_) => "capacity",
        }
    }

    pub fn title(&self) -> &'static str {
        match self {
            Self::Rfc2544(_) => "RFC 2544: benchmarking network interconnect devices",
            Self::Capacity(_) => "Capacity of devices that keep state",
        }
    }

    /// Whether it opens connections, for which a profile has to say where clients and servers are.
    pub fn wants_flows(&self) -> bool {
        match self {
            Self::Rfc2544(_) => false,
            Self::Capacity(settings) => settings.of.iter().any(|of| *of != capacity::Of::Table),
        }
    }

    /// Whether its loads are parts of what a link carries.
    pub fn wants_rate(&self) -> bool {
        matches!(self, Self::Rfc2544(_))
    }

    /// The same with short trials and few repetitions.
    pub fn quick(self) -> Self {
        match self {
            Self::Rfc2544(settings) => Self::Rfc2544(settings.quick()),
            Self::Capacity(settings) => Self::Capacity(settings.quick()),
        }
    }

    /// Runs it to its end. Stopped on the way, the outcome has what was found by then.
    ///
    /// # Errors
    /// Wrong settings, and whatever makes further trials pointless.
    pub fn run(&self, rig: &Rig, bench: &mut Bench<'_>) -> Result<Outcome, Halt> {
        let mut outcome = Outcome::new(self.name(), self.title(), &self.settings());
        let done = match self {
            Self::Rfc2544(settings) => rfc2544::run(settings, rig, bench, &mut outcome),
            Self::Capacity(settings) => capacity::run(settings, rig, bench, &mut outcome),
        };
        outcome.rig = Some(rig.clone());
        outcome.trials = bench.trials().to_vec();
        match done {
            Ok(()) => outcome.settle(),
            Err(Halt::Stopped) => outcome.verdict.status = Status::Stopped,
            Err(halt) => return Err(halt),
        }
        Ok(outcome)
    }

    fn settings(&self) -> serde_json::Value {
        let value = match self {
            Self::Rfc2544(settings) => serde_json::to_value(settings),
            Self::Capacity(settings) => serde_json::to_value(settings),
        };
        value.unwrap_or_default()
    }

    /// How long it takes on a device that carries half of the most that is offered: one that
    /// carries all is done sooner.
    ///
    /// # Errors
    /// Wrong settings.
    pub fn estimate(&self, rig: &Rig, patience: Patience) -> Result<Estimate, Halt> {
        let half = rig.total_fps(64) / 2.0;
        let mut device = Device { capacity_fps: half, buffer: 100.0, ..Device::ideal() };
        if let Self::Capacity(settings) = self {
            device.cps = settings.max_cps / 2.0;
            device.connections = settings.max_concurrent as f64 / 2.0;
        }
        let mut watch = Unwatched;
        let trials = {
            let mut bench = Bench::new(&mut device, &mut watch, patience);
            self.run(rig, &mut bench)?.trials.len()
        };
        Ok(Estimate { trials, seconds: device.spent_s })
    }
}
