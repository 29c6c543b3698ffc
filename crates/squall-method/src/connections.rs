//! Searches for a load of connections, shared by several methods.

use crate::{
    bench::{Bench, MethodError},
    bracket::{Bracket, TrialResult},
    outcome::Limit,
    trial::{FlowsMeasured, Trial},
};

/// Parameters of a search.
pub struct Search<'a> {
    /// The highest load, in the unit of the search (for example connections per second).
    pub most: f64,
    pub resolution: f64,
    /// Wait after a failed trial, seconds.
    pub recovery_s: f64,
    /// Returns the trial of a load.
    pub trial: &'a dyn Fn(f64) -> Trial,
    /// Whether a trial with the requested load passed.
    pub passes: &'a dyn Fn(f64, &FlowsMeasured) -> bool,
}

/// The result of a search.
pub struct Searched {
    /// The highest load that passed; 0: no load passed.
    pub found: f64,
    pub bracket: Bracket,
    /// Results at the highest load that passed.
    pub best: Option<FlowsMeasured>,
    /// Load, and failed connections in percent.
    pub points: Vec<(f64, f64)>,
    /// Why the lowest failing load failed.
    pub failure: String,
}

impl Searched {
    pub fn limit(&self) -> Limit {
        match self.bracket {
            _ if self.bracket.generator_bound() => Limit::Generator,
            _ if self.bracket.failed.is_none() => Limit::Offered,
            _ => Limit::Device,
        }
    }
}

impl Search<'_> {
    /// Searches for the highest load that passes.
    ///
    /// # Errors
    /// If a trial cannot run, or if the test is stopped.
    pub fn run(&self, bench: &mut Bench<'_>) -> Result<Searched, MethodError> {
        let lowest = (1.0 / self.most).min(0.5);
        let mut searched = Searched {
            found: 0.0,
            bracket: Bracket::new(self.resolution, lowest),
            best: None,
            points: Vec::new(),
            failure: String::new(),
        };
        while let Some(load) = searched.bracket.next() {
            bench.search_bounds(Some(searched.bracket.bounds()));
            let measured = bench.trial((self.trial)(load * self.most))?;
            let flows = measured.flows.clone().unwrap_or_default();
            let failed = 100.0 * flows.failed_ratio();
            let judged = match () {
                () if !measured.kept() => TrialResult::NotKept(None),
                () if flows.attempted > 0 && (self.passes)(load * self.most, &flows) => {
                    TrialResult::Passed
                }
                () => TrialResult::Failed(Some(load * (1.0 - flows.failed_ratio()))),
            };
            if measured.kept() {
                searched.points.push((load * self.most, failed));
            }
            match judged {
                TrialResult::Passed if load > searched.bracket.passed => {
                    searched.best = Some(flows)
                }
                TrialResult::Failed(_) => {
                    searched.failure = why(&flows);
                    bench.settle(self.recovery_s)?;
                }
                _ => {}
            }
            searched.bracket.record(load, judged);
        }
        bench.search_bounds(None);
        searched.found = searched.bracket.passed * self.most;
        searched.points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Ok(searched)
    }
}

/// The most frequent reason for failure.
pub fn why(flows: &FlowsMeasured) -> String {
    let most = flows.failed.iter().max_by_key(|(_, count)| **count);
    match (flows.failures(), most) {
        (0, _) => format!("{:.1} connections/s completed", flows.completed_cps),
        (failures, most) => {
            let reason = most.map_or("errors of the protocol", |(reason, _)| reason.as_str());
            format!("{failures} of {} failed ({reason})", flows.attempted)
        }
    }
}
