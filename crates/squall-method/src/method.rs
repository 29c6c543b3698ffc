//! All methods behind one door.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    bench::{Bench, Halt, Patience, Unwatched},
    model::Device,
    outcome::{Outcome, Status},
    rfc2544, rfc2889, rfc3918, rfc8219,
    rig::Rig,
    soak, tst009,
};

/// A standard test, with its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    Rfc2544(rfc2544::Settings),
    Rfc2889(rfc2889::Settings),
    Rfc3918(rfc3918::Settings),
    Rfc8219(rfc8219::Settings),
    Soak(soak::Settings),
    Tst009(tst009::Settings),
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
            Self::Rfc2889(_) => "rfc2889",
            Self::Rfc3918(_) => "rfc3918",
            Self::Rfc8219(_) => "rfc8219",
            Self::Soak(_) => "soak",
            Self::Tst009(_) => "tst009",
        }
    }

    pub fn title(&self) -> &'static str {
        match self {
            Self::Rfc2544(_) => "RFC 2544: benchmarking network interconnect devices",
            Self::Rfc2889(_) => "RFC 2889: benchmarking LAN switching devices",
            Self::Rfc3918(_) => "RFC 3918: IP multicast benchmarking",
            Self::Rfc8219(_) => "RFC 8219: benchmarking IPv6 transition technologies",
            Self::Soak(_) => "Soak test: constant load over time",
            Self::Tst009(_) => "ETSI GS NFV-TST 009: throughput with loss verification",
        }
    }

    /// The same with short trials and few repetitions.
    pub fn quick(self) -> Self {
        match self {
            Self::Rfc2544(settings) => Self::Rfc2544(settings.quick()),
            Self::Rfc2889(settings) => Self::Rfc2889(settings.quick()),
            Self::Rfc3918(settings) => Self::Rfc3918(settings.quick()),
            Self::Rfc8219(settings) => Self::Rfc8219(settings.quick()),
            Self::Soak(settings) => Self::Soak(settings.quick()),
            Self::Tst009(settings) => Self::Tst009(settings.quick()),
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
            Self::Rfc2889(settings) => rfc2889::run(settings, rig, bench, &mut outcome),
            Self::Rfc3918(settings) => rfc3918::run(settings, rig, bench, &mut outcome),
            Self::Rfc8219(settings) => rfc8219::run(settings, rig, bench, &mut outcome),
            Self::Soak(settings) => soak::run(settings, rig, bench, &mut outcome),
            Self::Tst009(settings) => tst009::run(settings, rig, bench, &mut outcome),
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
            Self::Rfc2889(settings) => serde_json::to_value(settings),
            Self::Rfc3918(settings) => serde_json::to_value(settings),
            Self::Rfc8219(settings) => serde_json::to_value(settings),
            Self::Soak(settings) => serde_json::to_value(settings),
            Self::Tst009(settings) => serde_json::to_value(settings),
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
        let mut watch = Unwatched;
        let trials = {
            let mut bench = Bench::new(&mut device, &mut watch, patience);
            self.run(rig, &mut bench)?.trials.len()
        };
        Ok(Estimate { trials, seconds: device.spent_s })
    }
}
