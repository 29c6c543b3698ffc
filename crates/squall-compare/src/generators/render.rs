//! Renders a comparison of generators: speed, steadiness and CPU cost.

use squall_report::render::{
    human,
    page::{self, Axis, Plot, Unit},
    table::{Cell, Style},
};
use squall_units::FCS_LEN;

use super::model::{GeneratorStep, Generators};
use crate::{
    compared::Spread,
    render::{Columns, Group, Shown, ShownStep, Steps, counts, in_order, or_dash},
};

impl Shown<GeneratorStep> for Generators {
    const SUBJECT: &'static str = "generators";

    fn facts(&self) -> Vec<(&'static str, String)> {
        let method = &self.method;
        vec![
            ("Rounds", method.rounds.to_string()),
            ("Step", human::seconds(method.step_s)),
            ("CPU of the tools", method.sender_cpu.map_or("any".into(), |cpu| cpu.to_string())),
        ]
    }

    fn groups(&self) -> Vec<Group<'_, GeneratorStep>> {
        let group = |octets: u32| Group {
            title: format!("{} octets with FCS, UDP", octets + FCS_LEN),
            heading: format!("Frames of {} octets", octets + FCS_LEN),
            steps: self.steps.iter().filter(|step| step.octets == octets).collect(),
            below: None,
        };
        in_order(self.steps.iter().map(|step| step.octets)).into_iter().map(group).collect()
    }

    fn plots(&self, steps: &Steps<'_, GeneratorStep>) -> Vec<Plot> {
        let (rates, boxes) = steps.at_rates(|step| page::five_numbers(&step.samples()));
        let spread = |step: &GeneratorStep| {
            let spread = Spread::of(step.samples().into_iter())?;
            Some(Spread { median: step.mean_pps?, ..spread })
        };
        vec![
            Plot::boxes("Rate", "requested", rates, Axis::new("arrived", Unit::Pps), boxes)
                .subtitle("a box has the seconds of all rounds"),
            steps.actual(("requested", "arrived", Unit::Pps), |step| {
                Some((step.asked_pps?, spread(step)?))
            }),
            steps.bars("CPU time, user and system", Axis::new("CPUs", Unit::Count), |step| {
                Some(step.user_cpus? + step.system_cpus?)
            }),
            steps.bars("Peak memory", Axis::new("octets", Unit::Octets), |step| {
                Some(step.peak_memory_octets as f64)
            }),
        ]
    }
}

impl ShownStep for GeneratorStep {
    const COLUMNS: Columns = &[
        ("TOOL", 0, "Tool"),
        ("ASKED", 0, "Requested"),
        ("MEAN", 0, "Mean"),
        ("SD", 0, "SD"),
        ("VARIANCE", 6, "Variance"),
        ("L2", 3, "L2"),
        ("L1", 5, "L1"),
        ("REACHED", 1, "Reached"),
        ("USER", 2, "User CPUs"),
        ("SYSTEM", 2, "System CPUs"),
        ("MEMORY", 4, "Peak memory"),
        ("COUNT", 1, "Its own count"),
    ];

    fn row(&self) -> Vec<Cell> {
        let si = |value: Option<f64>, unit: &str| or_dash(value, |v| human::si(v, unit));
        let cpus = |value: Option<f64>| or_dash(value, |v| format!("{v:.2}"));
        // Whether the tool's own count agrees with the number of arrived frames.
        let claims = self.rounds.iter().any(|round| round.claimed.is_some());
        let right = self.rounds.iter().all(|round| round.disagreement.is_none());
        vec![
            self.tool.as_str().into(),
            self.asked.as_str().into(),
            self.mean_pps.map_or("failed".into(), |v| human::si(v, "pps")).into(),
            si(self.sd_pps, "pps"),
            or_dash(self.variance_pps, |v| format!("{v:.3e}")),
            si(self.bps_l2, "b/s"),
            si(self.bps_l1, "b/s"),
            or_dash(self.reached, |v| format!("{:.1} %", 100.0 * v)),
            cpus(self.user_cpus),
            cpus(self.system_cpus),
            si(self.mean_pps.map(|_| self.peak_memory_octets as f64), "B"),
            counts(claims.then_some(right)),
        ]
    }

    fn tool(&self) -> &str {
        &self.tool
    }

    fn asked(&self) -> &str {
        &self.asked
    }

    fn condition(&self) -> String {
        format!("{} octets", self.octets + FCS_LEN)
    }

    fn remarks(&self) -> Vec<(Style, String)> {
        let reasons: Vec<_> = self.rounds.iter().filter_map(|r| r.not_valid.as_ref()).collect();
        let (n, of) = (reasons.len(), self.rounds.len());
        let remark =
            |why| (Style::Bad, format!("NOT VALID by its report, {n} of {of} rounds: {why}"));
        reasons.first().map(remark).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::model::{GENERATORS_SCHEMA, GeneratorRound},
        *,
    };
    use crate::{
        compared::{Measured, ToolInfo},
        render::{html, summary},
        watch::Second,
    };

    fn sample() -> Generators {
        let step = |tool: &str, asked: &str, asked_pps, claimed| {
            let mut round = GeneratorRound {
                seconds: [90e3, 110e3].map(|pps| Second { pps, ..Second::default() }).into(),
                user_cpus: 0.25,
                arrived: 200_000,
                claimed,
                ..GeneratorRound::default()
            };
            round.judge();
            round.not_valid = (asked == "200 kpps").then(|| "250 ms late".into());
            let mut step = GeneratorStep {
                tool: tool.into(),
                octets: 60,
                asked: asked.into(),
                asked_pps,
                rounds: vec![round],
                ..GeneratorStep::default()
            };
            step.sum_up();
            step
        };
        let info = |name: &str, why: Option<&str>| ToolInfo {
            name: name.into(),
            why_not: why.map(str::to_owned),
            ..ToolInfo::default()
        };
        Generators {
            schema: GENERATORS_SCHEMA.into(),
            tools: vec![info("squall", None), info("<b>", Some("not installed: try apt"))],
            steps: vec![
                step("squall", "100 kpps", Some(100e3), Some(200_000)),
                step("squall", "200 kpps", Some(200e3), Some(200_000)),
                step("<b>", "max", None, Some(300_000)),
            ],
            ..Generators::default()
        }
    }

    #[test]
    fn the_table_and_the_page_show_rates_and_wrong_counts() {
        let text = summary(&sample(), 140, false);
        for expected in [
            "100 kpps",
            "100.0 %",
            "squall, 64 octets at 200 kpps: NOT VALID by its report, 1 of 1 rounds: 250 ms late",
            "50.0 %",
            "14.1 kpps",
            "2.000e8",
            "51.2 Mb/s",
            "67.2 Mb/s",
            "correct",
            "wrong",
            "claims 300,000 sent frames, 200,000 arrived",
            "<b> was not compared: not installed",
        ] {
            assert!(text.contains(expected), "{expected}:\n{text}");
        }
        let page = html(&sample());
        for expected in ["Actual against requested rate", "CPU time", "Peak memory", "51.2 Mb/s"] {
            assert!(page.contains(expected), "{expected}");
        }
        assert!(!page.contains("<td><b>") && page.contains("&lt;b&gt;"));
    }
}
