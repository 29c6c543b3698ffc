//! Result of a comparison of generators. Names include the units. Frame sizes exclude the FCS. Bit
//! rates at layer 2 include it, and at layer 1 also preamble and gap.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use squall_report::render::human;
use squall_units::{FCS_LEN, L1_OVERHEAD, median};

use crate::{
    compared::{Compared, Measured, Repeated},
    stats::mean_and_sd,
    watch::Second,
};

/// Version of this structure.
pub const GENERATORS_SCHEMA: &str = "squall-generators/1";

/// A comparison of traffic generators.
pub type Generators = Compared<Method, GeneratorStep, Nothing>;

/// Comparisons of generators have no data of their own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Nothing {}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Method {
    pub rounds: u32,
    pub step_s: f64,
    /// CPU of the tools; absent if they are not bound to a CPU.
    pub sender_cpu: Option<u32>,
    pub mtu: u32,
}

/// A tool with a frame size and a rate, over all rounds that did not fail.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GeneratorStep {
    pub tool: String,
    pub octets: u32,
    /// `10 kpps`, `max`.
    pub asked: String,
    /// Absent for `max`.
    pub asked_pps: Option<f64>,
    /// Mean, standard deviation and variance (n - 1) over the seconds of all rounds, frames per
    /// second.
    pub mean_pps: Option<f64>,
    pub sd_pps: Option<f64>,
    pub variance_pps: Option<f64>,
    pub bps_l2: Option<f64>,
    pub bps_l1: Option<f64>,
    /// Mean rate divided by requested rate.
    pub reached: Option<f64>,
    /// CPUs in use: CPU seconds per second of all processes of the tool, median over the rounds.
    pub user_cpus: Option<f64>,
    pub system_cpus: Option<f64>,
    /// Maximum over all rounds.
    pub peak_memory_octets: u64,
    pub rounds: Vec<GeneratorRound>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GeneratorRound {
    /// Measurements of each second of the step, or of the whole step if it is shorter.
    pub seconds: Vec<Second>,
    pub user_cpus: f64,
    pub system_cpus: f64,
    pub peak_memory_octets: u64,
    /// Frames that arrived from the start to the end of the tool, and those that it claims to have
    /// sent.
    pub arrived: u64,
    pub claimed: Option<u64>,
    /// Difference between the claimed and the counted number.
    pub disagreement: Option<String>,
    /// Why Squall's own report of the round is not valid.
    pub not_valid: Option<String>,
    pub failed: Option<String>,
}

/// The JSON schema of [`Generators`], as text.
pub fn schema() -> String {
    let schema = schemars::schema_for!(Generators);
    format!("{:#}\n", schema.as_value())
}

/// Allowance for frames that are not the tool's traffic: its control connection, neighbor
/// discovery.
const OTHER_FRAMES: u64 = 50;
const OTHER_SHARE: f64 = 0.001;

impl GeneratorRound {
    /// A round with these measurements. CPU times are their mean.
    pub fn of(seconds: Vec<Second>) -> Self {
        let mean = |value: fn(&Second) -> f64| {
            let weighted: f64 = seconds.iter().map(|s| value(s) * s.length_s).sum();
            weighted / seconds.iter().map(|s| s.length_s).sum::<f64>().max(f64::MIN_POSITIVE)
        };
        let (user_cpus, system_cpus) = (mean(|s| s.user_cpus), mean(|s| s.system_cpus));
        Self { seconds, user_cpus, system_cpus, ..Self::default() }
    }

    /// Arrived frames per second, for each second.
    pub fn pps(&self) -> impl Iterator<Item = f64> + '_ {
        self.seconds.iter().map(|second| second.pps)
    }

    /// Compares the claim with the number of arrived frames.
    pub fn judge(&mut self) {
        let Some(claimed) = self.claimed else { return };
        let difference = claimed.abs_diff(self.arrived);
        if difference > OTHER_FRAMES && difference as f64 > OTHER_SHARE * self.arrived as f64 {
            self.disagreement = Some(format!(
                "claims {} sent frames, {} arrived",
                human::count(claimed),
                human::count(self.arrived)
            ));
        }
    }
}

impl Repeated for GeneratorRound {
    fn failure(why: String) -> Self {
        Self { failed: Some(why), ..Self::default() }
    }

    fn failed(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    fn wrong(&self) -> Option<&str> {
        self.disagreement.as_deref()
    }

    fn measured(&self) -> String {
        let (mean, sd) = mean_and_sd(&self.pps().collect::<Vec<_>>()).unwrap_or_default();
        let cpus = self.user_cpus + self.system_cpus;
        let wrong = self.disagreement.as_ref().map_or(String::new(), |text| format!(", {text}"));
        format!("{}, SD {}, {cpus:.2} CPUs{wrong}", human::si(mean, "pps"), human::si(sd, "pps"))
    }
}

impl Measured for GeneratorStep {
    type Round = GeneratorRound;

    fn rounds(&self) -> &Vec<GeneratorRound> {
        &self.rounds
    }

    fn rounds_mut(&mut self) -> &mut Vec<GeneratorRound> {
        &mut self.rounds
    }

    fn sum_up(&mut self) {
        let good = || self.rounds.iter().filter(|round| round.failed.is_none());
        let samples: Vec<f64> = good().flat_map(GeneratorRound::pps).collect();
        let Some((mean, sd)) = mean_and_sd(&samples) else { return };
        let bits = |more: u32| mean * 8.0 * f64::from(self.octets + FCS_LEN + more);
        (self.bps_l2, self.bps_l1) = (Some(bits(0)), Some(bits(L1_OVERHEAD)));
        self.user_cpus = median(good().map(|round| round.user_cpus));
        self.system_cpus = median(good().map(|round| round.system_cpus));
        self.peak_memory_octets = good().map(|round| round.peak_memory_octets).max().unwrap_or(0);
        self.reached = self.asked_pps.map(|asked| mean / asked);
        (self.mean_pps, self.sd_pps, self.variance_pps) = (Some(mean), Some(sd), Some(sd * sd));
    }
}

impl GeneratorStep {
    /// Rates of the successful rounds, frames per second.
    pub fn samples(&self) -> Vec<f64> {
        let good = self.rounds.iter().filter(|round| round.failed.is_none());
        good.flat_map(GeneratorRound::pps).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_summed_up_over_the_seconds_of_all_rounds() {
        let round = |pps: &[f64], cpus| GeneratorRound {
            seconds: pps.iter().map(|pps| Second { pps: *pps, ..Second::default() }).collect(),
            user_cpus: cpus,
            peak_memory_octets: (cpus * 100.0) as u64,
            ..GeneratorRound::default()
        };
        let mut step = GeneratorStep {
            octets: 60,
            asked_pps: Some(10.0),
            rounds: vec![
                round(&[2.0, 4.0, 4.0, 4.0], 0.1),
                round(&[5.0, 5.0, 7.0, 9.0], 0.3),
                GeneratorRound::failure("it broke".into()),
            ],
            ..GeneratorStep::default()
        };
        step.sum_up();
        // The squared differences from 5 are 9 1 1 1 0 0 4 16; their sum is divided by 7.
        assert_eq!(step.mean_pps, Some(5.0));
        assert!((step.variance_pps.unwrap() - 32.0 / 7.0).abs() < 1e-9);
        assert_eq!((step.bps_l2, step.bps_l1), (Some(5.0 * 512.0), Some(5.0 * 672.0)));
        assert_eq!(
            (step.reached, step.user_cpus, step.peak_memory_octets),
            (Some(0.5), Some(0.2), 30)
        );
        assert_eq!(step.samples().len(), 8);
    }

    #[test]
    fn wrong_claims_are_reported_and_a_few_foreign_frames_ignored() {
        let judged = |arrived, claimed| {
            let mut round = GeneratorRound { arrived, claimed, ..GeneratorRound::default() };
            round.judge();
            round.disagreement
        };
        assert_eq!(judged(1000, Some(1040)), None);
        assert_eq!(judged(1000, None), None);
        assert_eq!(
            judged(1000, Some(2000)).as_deref(),
            Some("claims 2,000 sent frames, 1,000 arrived")
        );
        assert_eq!(judged(1_000_000, Some(1_000_900)), None);
        assert!(judged(1_000_000, Some(1_002_000)).is_some());
    }
}
