//! Result of a comparison of capture tools. Names include the units.
//!
//! Packets are frames as on the link. Octets exclude the FCS, as in capture tools. Bit rates are at
//! layer 2 and include it, as in all of Squall.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use squall_report::render::human;
use squall_units::median;

use crate::compared::{Compared, Measured, Repeated, Spread};

/// Version of this structure.
pub const SCHEMA: &str = "squall-comparison/1";

/// A comparison of capture tools.
pub type Comparison = Compared<Method, Step, Sets>;

/// Data sets and output locations of a comparison, and the rates that a search found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sets {
    pub data: Vec<DataInfo>,
    /// Output locations, in the order of the command line.
    pub write: Vec<WriteInfo>,
    /// The highest lossless rate of each tool, data set and output location; only after a search.
    pub lossless: Vec<Lossless>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Method {
    pub rounds: u32,
    /// Duration of each step.
    pub step_s: f64,
    /// Loss ratio below which a search treats a rate as lossless.
    pub lossless_below: f64,
    /// CPU of the sender, and CPU of the tools; the same if there is only one.
    pub sender_cpu: Option<u32>,
    pub tool_cpu: Option<u32>,
    /// Maximum number of octets of an IP packet.
    pub mtu: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DataInfo {
    pub name: String,
    /// Origin: a file, or the kind of a distribution.
    pub origin: String,
    pub mean_octets: f64,
    /// Lengths in octets without FCS, with the fraction of each, 0 to 1. For a capture, only the
    /// ten most frequent.
    pub lengths: Vec<(u32, f64)>,
    /// Histogram of all lengths: fraction of each bin of RFC 2819 (without FCS).
    pub histogram: Vec<LengthBin>,
    /// Percentiles of all lengths: the smallest length that at least this share of the packets does
    /// not exceed.
    pub percentiles: LengthPercentiles,
    /// Number of packets of a capture.
    pub packets: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LengthBin {
    /// Octets without FCS, both limits inclusive.
    pub from: u32,
    pub to: u32,
    /// 0 to 1.
    pub share: f64,
}

/// Octets without FCS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LengthPercentiles {
    pub min: u32,
    pub p25: u32,
    pub p50: u32,
    pub p75: u32,
    pub p90: u32,
    pub max: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WriteInfo {
    /// `null`, `tmpfs`, `disk` or a folder.
    pub name: String,
    /// Absent for `null`.
    pub folder: Option<String>,
}

/// A tool with a data set at a rate: medians over the rounds that count, that is, those that did
/// not fail and whose sender reached the requested rate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    pub tool: String,
    pub data: String,
    pub write: String,
    /// As on the command line: `200 Mbps`, `max`.
    pub asked: String,
    /// Absent for `max`.
    pub asked_pps: Option<f64>,
    pub asked_bps: Option<f64>,
    /// Packets per second that arrived at the tool's interface, in all rounds that did not fail.
    pub actual_pps: Option<f64>,
    pub actual_bps: Option<f64>,
    pub actual_bps_spread: Option<Spread>,
    /// In no round did the sender, or the kernel, reach the requested rate, so there is no result
    /// of the tool at that rate.
    pub sender_bound: bool,
    /// Number of rounds that count.
    pub rounds_counted: u32,
    /// Packet loss ratio, 0 to 1: fraction of the arrived packets that are not in the file.
    pub plr: Option<f64>,
    pub plr_spread: Option<Spread>,
    /// Fraction of the sent packets that are not in the file.
    pub plr_of_sent: Option<f64>,
    /// CPU seconds of the tool per million captured packets.
    pub cpu_s_per_mpkt: Option<f64>,
    pub user_s_per_mpkt: Option<f64>,
    pub system_s_per_mpkt: Option<f64>,
    /// Maximum over the rounds.
    pub peak_memory_octets: u64,
    /// Whether the counts that the tool reports agree with its file and with the packets that
    /// arrived, in all rounds; absent if they cannot be compared.
    pub honest: Option<bool>,
    pub rounds: Vec<Round>,
}

/// One run of one tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Round {
    /// Packets counted by the sending interface.
    pub sent: u64,
    /// Packets counted by the receiving interface.
    pub arrived: u64,
    pub arrived_octets: u64,
    /// Packets dropped by the receiving interface itself.
    pub interface_dropped: u64,
    /// Time from the first to the last departure.
    pub sending_s: f64,
    /// The rate of arrival differs from the requested rate by more than 2 %, so the round does not
    /// count.
    pub off_rate: bool,
    pub claim: Claim,
    /// Packets in the tool's file, read by Squall; absent if it wrote to /dev/null.
    pub in_file: Option<u64>,
    pub file_octets: Option<u64>,
    /// Truncated packets in the file.
    pub cut: u64,
    pub plr: Option<f64>,
    pub plr_of_sent: Option<f64>,
    /// CPU time of the tool from when it was ready to its end.
    pub user_s: f64,
    pub system_s: f64,
    pub peak_memory_octets: u64,
    /// Wrong counts in the tool's output.
    pub disagreements: Vec<String>,
    /// Why the round does not count.
    pub failed: Option<String>,
}

/// Counts in the output of a tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Claim {
    /// Packets that it wrote.
    pub captured: Option<u64>,
    /// Packets lost by the tool, or by the kernel on its behalf.
    pub dropped: Option<u64>,
    /// Packets accepted by its filter.
    pub received: Option<u64>,
}

/// The highest rate at which a tool lost less than [`Method::lossless_below`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Lossless {
    pub tool: String,
    pub data: String,
    pub write: String,
    /// Median over the rounds, in arrived packets per second; 0 if all rates tried had loss.
    pub pps: f64,
    pub bps: f64,
    /// Minimum and maximum over the rounds.
    pub pps_range: (f64, f64),
    /// The sender could not send more, so the tool may reach a higher rate.
    pub sender_bound: bool,
    /// CPU time in the trials that count.
    pub cpu_s_per_mpkt: Option<f64>,
    pub rounds: Vec<SearchRound>,
}

/// One search, which starts at the maximum rate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SearchRound {
    pub pps: f64,
    pub sender_bound: bool,
    pub trials: Vec<Trial>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Trial {
    /// Absent for the maximum rate.
    pub asked_pps: Option<f64>,
    pub actual_pps: f64,
    /// Absent if the trial failed.
    pub plr: Option<f64>,
    pub cpu_s_per_mpkt: Option<f64>,
}

impl Round {
    /// Packets that the tool captured: those in its file, or if there is none, its own count.
    pub fn captured(&self) -> Option<u64> {
        self.in_file.or(self.claim.captured)
    }

    pub fn pps(&self) -> f64 {
        per_second(self.arrived, self.sending_s)
    }

    /// Bit rate at layer 2, including the FCS.
    pub fn bps(&self) -> f64 {
        8.0 * per_second(
            self.arrived_octets + u64::from(squall_units::FCS_LEN) * self.arrived,
            self.sending_s,
        )
    }

    /// CPU seconds (`user` or `system`) per million captured packets.
    pub fn per_mpkt(&self, seconds: f64) -> Option<f64> {
        self.captured().filter(|n| *n > 0).map(|n| seconds / n as f64 * 1e6)
    }

    /// Whether the sender reached the rate in packets or in bits. With random lengths, only the
    /// unit of the request is exact.
    fn kept(&self, asked_pps: f64, asked_bps: f64) -> bool {
        let near = |actual, asked| reached(actual, asked) && reached(asked, actual);
        near(self.pps(), asked_pps) || near(self.bps(), asked_bps)
    }

    /// Computes ratios and disagreements.
    pub fn judge(&mut self) {
        let Some(captured) = self.captured().filter(|_| self.failed.is_none()) else { return };
        let ratio = |of: u64| (of > 0).then(|| of.saturating_sub(captured) as f64 / of as f64);
        (self.plr, self.plr_of_sent) = (ratio(self.arrived), ratio(self.sent));
        let mut report = |text: String| self.disagreements.push(text);
        if captured > self.arrived {
            report(format!("has {captured} packets, and {} arrived", self.arrived));
        }
        if let (Some(claimed), Some(found)) = (self.claim.captured, self.in_file)
            && claimed != found
        {
            report(format!("reports {claimed} captured packets, and its file has {found}"));
        }
        let missing = self.arrived.saturating_sub(captured);
        match self.claim.dropped {
            Some(dropped) if dropped != missing => {
                report(format!(
                    "reports {dropped} lost packets, and {missing} of those that arrived are \
                     missing"
                ));
            }
            None if missing > 0 => {
                report(format!("does not report that {missing} of those that arrived are missing"))
            }
            _ => {}
        }
    }
}

impl Repeated for Round {
    fn failure(why: String) -> Self {
        Self { failed: Some(why), ..Self::default() }
    }

    fn failed(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    fn wrong(&self) -> Option<&str> {
        self.disagreements.first().map(String::as_str)
    }

    fn measured(&self) -> String {
        let plr = self.plr.map_or("n/a".into(), human::ratio);
        let cpu =
            self.per_mpkt(self.user_s + self.system_s).map_or("n/a".into(), |s| format!("{s:.2}"));
        let lies = self.disagreements.iter().map(|d| format!("; it {d}")).collect::<String>();
        format!("{} arrived, PLR {plr}, {cpu} CPU s/Mpkt{lies}", human::si(self.pps(), "pps"))
    }
}

impl Measured for Step {
    type Round = Round;

    fn rounds(&self) -> &Vec<Round> {
        &self.rounds
    }

    fn rounds_mut(&mut self) -> &mut Vec<Round> {
        &mut self.rounds
    }

    fn sum_up(&mut self) {
        let asked = self.asked_pps.zip(self.asked_bps);
        for round in &mut self.rounds {
            round.off_rate =
                round.failed.is_none() && asked.is_some_and(|(pps, bps)| !round.kept(pps, bps));
        }
        let good: Vec<&Round> = self.rounds.iter().filter(|r| r.failed.is_none()).collect();
        let counted: Vec<&Round> = good.iter().copied().filter(|r| !r.off_rate).collect();
        let middle =
            |f: &dyn Fn(&Round) -> Option<f64>| median(counted.iter().filter_map(|r| f(r)));
        self.rounds_counted = counted.len() as u32;
        self.sender_bound = counted.is_empty() && !good.is_empty();
        self.actual_pps = median(good.iter().map(|r| r.pps()));
        self.actual_bps = median(good.iter().map(|r| r.bps()));
        self.actual_bps_spread = Spread::of(good.iter().map(|r| r.bps()));
        self.plr = middle(&|r| r.plr);
        self.plr_spread = Spread::of(counted.iter().filter_map(|r| r.plr));
        self.plr_of_sent = middle(&|r| r.plr_of_sent);
        self.user_s_per_mpkt = middle(&|r| r.per_mpkt(r.user_s));
        self.system_s_per_mpkt = middle(&|r| r.per_mpkt(r.system_s));
        self.cpu_s_per_mpkt = middle(&|r| r.per_mpkt(r.user_s + r.system_s));
        self.peak_memory_octets = good.iter().map(|r| r.peak_memory_octets).max().unwrap_or(0);
        // Counts of a tool are checked at any rate, even in rounds that do not count.
        let speaks = |r: &&Round| r.claim.captured.is_some() || r.claim.dropped.is_some();
        let judged = good.iter().copied().filter(|r| r.captured().is_some()).filter(speaks);
        let agreeing: Vec<bool> = judged.map(|r| r.disagreements.is_empty()).collect();
        self.honest = (!agreeing.is_empty()).then(|| agreeing.iter().all(|good| *good));
    }
}

/// Whether the rate was reached: a sender may be short by up to 2 %.
pub fn reached(actual: f64, asked: f64) -> bool {
    actual >= 0.98 * asked
}

fn per_second(n: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { n as f64 / seconds } else { 0.0 }
}

/// The JSON schema of [`Comparison`], the contents of `schemas/comparison.schema.json`.
pub fn schema() -> String {
    let schema = schemars::schema_for!(Comparison);
    let mut text = serde_json::to_string_pretty(&schema).expect("a schema is plain JSON");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A round in which 1000 packets were sent and 900 arrived in one second.
    fn round(in_file: Option<u64>, captured: u64, dropped: u64) -> Round {
        let claim = Claim { captured: Some(captured), dropped: Some(dropped), received: None };
        let (sent, arrived, arrived_octets, sending_s) = (1000, 900, 54_000, 1.0);
        let mut round =
            Round { sent, arrived, arrived_octets, sending_s, claim, in_file, ..Round::default() };
        round.judge();
        round
    }

    #[test]
    fn loss_is_the_share_of_arrived_packets_missing_in_the_file() {
        let honest = round(Some(720), 720, 180);
        assert_eq!((honest.plr, honest.plr_of_sent), (Some(0.2), Some(0.28)));
        assert!(honest.disagreements.is_empty(), "{:?}", honest.disagreements);
        assert_eq!((honest.pps(), honest.bps()), (900.0, 8.0 * 64.0 * 900.0));
    }

    #[test]
    fn without_a_file_the_tools_count_is_used() {
        let round = round(None, 720, 180);
        assert_eq!((round.plr, round.disagreements.len()), (Some(0.2), 0));
    }

    #[test]
    fn wrong_counts_are_reported() {
        for (in_file, captured, dropped, expected) in [
            (Some(700), 720, 200, "reports 720 captured packets, and its file has 700"),
            (Some(720), 720, 0, "reports 0 lost packets, and 180"),
            (None, 900, 5, "reports 5 lost packets, and 0"),
            (Some(901), 901, 0, "901 packets, and 900 arrived"),
        ] {
            let round = round(in_file, captured, dropped);
            assert!(
                round.disagreements.iter().any(|d| d.contains(expected)),
                "{expected}: {:?}",
                round.disagreements
            );
        }
    }

    #[test]
    fn a_step_is_the_median_of_the_rounds_that_did_not_fail() {
        let failed = Round { failed: Some("it ended".into()), ..Round::default() };
        let rounds = vec![
            round(Some(900), 900, 0),
            round(Some(450), 450, 450),
            failed,
            round(Some(720), 720, 180),
        ];
        let mut step = Step { rounds, ..asked(900.0) };
        step.sum_up();
        assert_eq!((step.plr, step.honest, step.sender_bound), (Some(0.2), Some(true), false));
        assert_eq!(step.rounds_counted, 3);
        let spread = step.plr_spread.unwrap();
        assert_eq!((spread.min, spread.median, spread.max), (0.0, 0.2, 0.5));
        assert_eq!((spread.p25, spread.p75), (0.1, 0.35));
        step.rounds[0].disagreements.push("lied".into());
        step.sum_up();
        assert_eq!((step.honest, step.sender_bound), (Some(false), false));
    }

    /// A step at this rate, with 60-octet frames.
    fn asked(pps: f64) -> Step {
        Step { asked_pps: Some(pps), asked_bps: Some(pps * 512.0), ..Step::default() }
    }

    #[test]
    fn a_round_off_the_requested_rate_is_no_loss_of_the_tool() {
        // 900 packets arrive. In the round in which the sender reached its rate, half of them are
        // lost; in the others, all.
        let slow = Round { sending_s: 2.0, ..round(Some(0), 0, 900) };
        let fast = Round { sending_s: 0.5, ..round(Some(0), 0, 900) };
        let rounds = vec![slow.clone(), round(Some(450), 450, 450), fast];
        let mut step = Step { rounds, ..asked(905.0) };
        step.sum_up();
        let off: Vec<bool> = step.rounds.iter().map(|r| r.off_rate).collect();
        assert_eq!(off, [true, false, true]);
        assert_eq!((step.plr, step.rounds_counted, step.sender_bound), (Some(0.5), 1, false));
        let mut step = Step { rounds: vec![slow], ..asked(905.0) };
        step.sum_up();
        assert_eq!((step.plr, step.plr_spread, step.sender_bound), (None, None, true));
        assert_eq!((step.actual_pps, step.cpu_s_per_mpkt), (Some(450.0), None));
    }

    #[test]
    fn at_top_speed_every_round_counts() {
        let mut step = Step { rounds: vec![round(Some(450), 450, 450)], ..Step::default() };
        step.sum_up();
        assert_eq!((step.plr, step.rounds_counted, step.sender_bound), (Some(0.5), 1, false));
    }

    #[test]
    fn a_step_without_a_good_round_has_no_result() {
        let mut step = Step {
            rounds: vec![Round { failed: Some("no".into()), ..Round::default() }],
            ..Step::default()
        };
        step.sum_up();
        assert_eq!((step.plr, step.actual_pps, step.honest), (None, None, None));
    }

    /// `BLESS=1` rewrites the schema file.
    #[test]
    fn the_schema_that_is_checked_in_is_the_one_of_the_types() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schemas/comparison.schema.json");
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(path, schema()).unwrap();
        }
        let checked_in = std::fs::read_to_string(path).unwrap();
        assert!(
            checked_in == schema(),
            "{path} lags behind model.rs: BLESS=1 cargo test -p squall-compare schema"
        );
    }
}
