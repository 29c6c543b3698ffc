//! Compares an engine's alerts with the traffic sent: labels and alerts in, a [`Score`] out.
//!
//! An alert belongs to the conversation with the same addresses, ports and protocol, in either
//! direction. If several match, it belongs to the last one that started before the alert. If times
//! are unknown, it belongs to the first one that is still owed an alert. Ports are ignored for
//! protocols and alerts that have none (for example an alert on a fragment).

pub mod alerts;

use std::{
    collections::HashMap,
    io::{self, BufRead, Write},
    net::IpAddr,
};

use serde::Serialize;
use squall_units::Nanos;

use crate::{
    Label, csv,
    labels::{Error, Kind},
};
pub use alerts::Alert;

/// Settings of the comparison.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// Nanoseconds to add to the times of alerts: the labels' clock minus the engine's.
    pub shift_ns: i64,
}

/// Holds the labels and collects alerts.
pub struct Scorer {
    labels: Vec<Label>,
    /// The alerts that belong to each label.
    seen: Vec<LabelAlerts>,
    /// Indices of labels by their two endpoints, in order of start.
    by_ends: HashMap<(u8, End, End), Vec<u32>>,
    by_addresses: HashMap<(IpAddr, IpAddr), Vec<u32>>,
    /// Used for alerts without times: the next label to consider. The key is the first label of the
    /// list, and the sid.
    next: HashMap<(u32, u32), usize>,
    others: HashMap<(u32, u32), Other>,
    settings: Settings,
    totals: Totals,
}

type End = (IpAddr, u16);

#[derive(Clone, Default)]
struct LabelAlerts {
    /// Number of alerts from its rule; for scenarios and benign traffic, from any rule.
    own: u64,
    first: Option<Nanos>,
    also: u64,
    collateral: u64,
}

#[derive(Default)]
struct Totals {
    alerts: u64,
    outside: u64,
}

/// Numbers of conversations, or of alerts where the name says so.
///
/// The number of conversations with labels is `attacks + owing_none + near_misses + benign`, plus
/// the conversations of scenarios. The number of alerts read is `alerts_own + alerts_unowed +
/// near_miss_alerts + benign_alerts + alerts_also + collateral`, plus the alerts in scenarios and
/// those outside all conversations.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Counts {
    /// Attacks for which an alert is owed.
    pub attacks: u64,
    /// Attacks with at least one alert from their rule.
    pub hit: u64,
    /// Attacks without an alert from their rule.
    pub missed: u64,
    /// Attacks with at least one alert, but fewer than owed.
    pub short: u64,
    /// Conversations of attacks that owe no alert: all conversations of an attack except the last,
    /// attacks cut short by the end of the run, and attacks sent in a form that does not match.
    pub owing_none: u64,
    /// Alerts from the rule of an attack in conversations that owe no alert.
    pub alerts_unowed: u64,
    /// Alerts that attacks owe.
    pub alerts_owed: u64,
    /// Alerts in attacks from the attack's own rule.
    pub alerts_own: u64,
    /// Alerts in attacks from the attack's own rule, beyond those owed.
    pub duplicates: u64,
    pub near_misses: u64,
    /// Near misses for which the rule raised an alert.
    pub near_misses_alerted: u64,
    /// Alerts in near misses from the rule that must not alert.
    pub near_miss_alerts: u64,
    pub benign: u64,
    /// Benign conversations with an alert from any rule.
    pub benign_alerted: u64,
    /// Alerts in benign conversations.
    pub benign_alerts: u64,
    /// Additional alerts that labels expect (`also`), in attacks and near misses.
    pub alerts_also: u64,
    /// Alerts in attacks and near misses from other rules, which no label expects.
    pub collateral: u64,
    /// Attacks and near misses with collateral alerts.
    pub collateral_conversations: u64,
}

/// Rates derived from the counts. `None` if the denominator is zero.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Attacks hit / attacks: detection rate, recall, true-positive rate.
    pub detection: Option<f64>,
    /// Near misses and benign conversations that alerted / all of them: false-positive rate.
    pub false_positive: Option<f64>,
    /// Benign conversations that alerted / all benign conversations.
    pub benign_false_positive: Option<f64>,
    /// Attacks hit / all conversations that alerted.
    pub precision: Option<f64>,
    /// The harmonic mean of precision and detection.
    pub f1: Option<f64>,
    /// Correct verdicts / all conversations.
    pub accuracy: Option<f64>,
}

/// The confusion matrix. Its unit is the conversation.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Confusion {
    /// Attacks hit.
    pub true_positives: u64,
    /// Near misses for which their rule raised an alert, and benign conversations with any alert.
    pub false_positives: u64,
    /// Near misses and benign conversations without such an alert.
    pub true_negatives: u64,
    /// Attacks missed.
    pub false_negatives: u64,
}

/// Time from a conversation to its first alert, in nanoseconds, for all hits with both times.
/// Negative if the alert came first.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    pub count: u64,
    pub min_ns: i64,
    pub mean_ns: i64,
    /// By the nearest-rank method, like p99.
    pub median_ns: i64,
    pub p99_ns: i64,
    pub max_ns: i64,
}

/// The score of one rule.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RuleScore {
    pub gid: u32,
    pub sid: u32,
    pub rev: u32,
    pub msg: String,
    #[serde(flatten)]
    pub counts: Counts,
    #[serde(flatten)]
    pub rates: Rates,
    /// Time from the first frame of the conversation to the alert, and from the last frame.
    pub latency_from_begin: Option<Latency>,
    pub latency_from_end: Option<Latency>,
    /// Numbers of the first ten attacks missed.
    pub missed_attacks: Vec<u64>,
    /// Numbers of the first ten near misses that alerted.
    pub alerted_near_misses: Vec<u64>,
}

/// Alerts from a rule outside the conversations with its labels.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Other {
    pub gid: u32,
    pub sid: u32,
    pub msg: String,
    /// Alerts in attacks for other rules.
    pub in_attacks: u64,
    /// Alerts in near misses for other rules.
    pub in_near_misses: u64,
    pub in_benign: u64,
    /// Alerts in no labeled conversation.
    pub outside: u64,
}

/// The score of a scenario (scan, flood, ...), which has no rule.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ScenarioScore {
    pub name: String,
    pub conversations: u64,
    /// Conversations with an alert from any rule.
    pub alerted: u64,
    pub alerts: u64,
    /// Time from the first frame of the scenario to the first alert.
    pub first_alert_ns: Option<i64>,
}

/// The result of the comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Score {
    /// Labeled conversations.
    pub labels: u64,
    /// Alerts read.
    pub alerts: u64,
    /// Alerts in no labeled conversation.
    pub outside: u64,
    pub counts: Counts,
    pub confusion: Confusion,
    pub rates: Rates,
    pub latency_from_begin: Option<Latency>,
    pub latency_from_end: Option<Latency>,
    /// Sorted by sid.
    pub rules: Vec<RuleScore>,
    pub scenarios: Vec<ScenarioScore>,
    /// Rules that raised alerts outside their labels, most alerts first.
    pub others: Vec<Other>,
}

/// The result for one conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict<'a> {
    pub label: &'a Label,
    /// Number of alerts from its rule; for scenarios and benign traffic, from any rule.
    pub own: u64,
    /// Time of the first of these alerts, on the labels' clock.
    pub first: Option<Nanos>,
    pub also: u64,
    pub collateral: u64,
}

impl Scorer {
    pub fn new(labels: Vec<Label>, settings: Settings) -> Self {
        let mut by_ends: HashMap<_, Vec<u32>> = HashMap::new();
        let mut by_addresses: HashMap<_, Vec<u32>> = HashMap::new();
        let mut order: Vec<u32> =
            (0..u32::try_from(labels.len()).expect("a run has fewer attacks than 2^32")).collect();
        order.sort_by_key(|&i| labels[i as usize].begin);
        for i in order {
            let l = &labels[i as usize];
            let ends = [(l.source, l.source_port), (l.destination, l.destination_port)];
            by_ends.entry(key(Some(l.protocol), ends)).or_default().push(i);
            by_addresses.entry(ordered(l.source, l.destination)).or_default().push(i);
        }
        let seen = vec![LabelAlerts::default(); labels.len()];
        Scorer {
            labels,
            seen,
            by_ends,
            by_addresses,
            next: HashMap::new(),
            others: HashMap::new(),
            settings,
            totals: Totals::default(),
        }
    }

    /// Reads all alerts of a log. Counts the lines that are not alerts, and keeps the first errors.
    pub fn read(&mut self, reader: &mut alerts::Reader<impl BufRead>) -> Read {
        let mut read = Read::default();
        for alert in reader.by_ref() {
            match alert {
                Ok(alert) => {
                    read.alerts = read.alerts.saturating_add(alert.count);
                    self.alert(&alert);
                }
                Err(error) => {
                    read.bad += 1;
                    if read.errors.len() < MAX_ERRORS {
                        read.errors.push(error);
                    }
                }
            }
        }
        read.lines = reader.lines();
        read.skipped = reader.skipped();
        read.format = reader.format();
        read
    }

    pub fn alert(&mut self, alert: &Alert) {
        self.totals.alerts = self.totals.alerts.saturating_add(alert.count);
        let at = alert.at.and_then(|at| at.0.checked_add_signed(self.settings.shift_ns)).map(Nanos);
        let ends = [(alert.source, alert.source_port), (alert.destination, alert.destination_port)];
        let list = self.by_ends.get(&key(alert.protocol, ends)).or_else(|| {
            let portless =
                alert.source_port == 0 || alert.destination_port == 0 || alert.protocol.is_none();
            self.by_addresses.get(&ordered(alert.source, alert.destination)).filter(|_| portless)
        });
        let Some(list) = list else {
            self.totals.outside = self.totals.outside.saturating_add(alert.count);
            let other = other(&mut self.others, alert);
            other.outside = other.outside.saturating_add(alert.count);
            return;
        };
        let at = at.filter(|&at| is_epoch(at) == is_epoch(self.labels[list[0] as usize].begin));
        if let Some(at) = at {
            let after = list.partition_point(|&i| {
                self.labels[i as usize].begin <= Nanos(at.0.saturating_add(ROUNDED))
            });
            let i = list[after.saturating_sub(1)] as usize;
            let (labels, seen) = (&self.labels, &mut self.seen[i]);
            credit(&labels[i], seen, alert, alert.count, Some(at), &mut self.others);
            return;
        }
        // Assign to each label, in order, as many alerts as it owes, and the rest to the last
        // label.
        let next = self.next.entry((list[0], alert.sid)).or_default();
        let mut left = alert.count;
        while left > 0 {
            let i = list[*next] as usize;
            let (label, seen) = (&self.labels[i], &mut self.seen[i]);
            let last = *next + 1 == list.len();
            let owed = if is_own(label, alert) {
                u64::from(label.alerts).saturating_sub(seen.own)
            } else {
                0
            };
            let taken = if last { left } else { owed.min(left) };
            if taken > 0 {
                credit(label, seen, alert, taken, None, &mut self.others);
                left -= taken;
            }
            if !last && left > 0 {
                *next += 1;
            }
        }
    }

    /// The result of each conversation so far, in the order of the labels.
    pub fn verdicts(&self) -> impl Iterator<Item = Verdict<'_>> {
        self.labels.iter().zip(&self.seen).map(|(label, seen)| Verdict {
            label,
            own: seen.own,
            first: seen.first,
            also: seen.also,
            collateral: seen.collateral,
        })
    }

    /// Moves alerts in earlier conversations of an attack to the conversation that owes the alert,
    /// because engines may count events differently.
    fn merge_conversations(&mut self) {
        let of_rule = |label: &Label| label.kind == Kind::Attack && label.sid != 0;
        let owing =
            self.labels.iter().enumerate().filter(|(_, label)| of_rule(label) && label.alerts > 0);
        let owing: HashMap<u64, usize> = owing.map(|(i, label)| (label.attack, i)).collect();
        for i in 0..self.labels.len() {
            let label = &self.labels[i];
            if !of_rule(label) || label.alerts > 0 || self.seen[i].own == 0 {
                continue;
            }
            if let Some(&to) = owing.get(&label.attack) {
                // Alerts from other rules stay with their conversation.
                let (own, first) =
                    (std::mem::take(&mut self.seen[i].own), self.seen[i].first.take());
                let seen = &mut self.seen[to];
                seen.own = seen.own.saturating_add(own);
                seen.first = [seen.first, first].into_iter().flatten().min();
            }
        }
    }

    pub fn finish(mut self) -> Score {
        self.merge_conversations();
        let mut all = Tally::default();
        let mut rules: HashMap<(u32, u32), (usize, Tally)> = HashMap::new();
        let mut scenarios: HashMap<&str, (ScenarioScore, Option<Nanos>, Option<Nanos>)> =
            HashMap::new();
        for (i, (label, seen)) in self.labels.iter().zip(&self.seen).enumerate() {
            if label.kind == Kind::Attack && label.sid == 0 {
                let (scenario, begin, first) = scenarios.entry(&label.name).or_default();
                scenario.conversations += 1;
                scenario.alerted += u64::from(seen.own > 0);
                scenario.alerts = scenario.alerts.saturating_add(seen.own);
                *begin = [*begin, Some(label.begin)].into_iter().flatten().min();
                *first = [*first, seen.first].into_iter().flatten().min();
                continue;
            }
            all.add(label, seen);
            if label.kind != Kind::Benign {
                rules
                    .entry((label.gid, label.sid))
                    .or_insert_with(|| (i, Tally::default()))
                    .1
                    .add(label, seen);
            }
        }
        let mut rules: Vec<RuleScore> = rules
            .into_iter()
            .map(|((gid, sid), (i, tally))| RuleScore {
                gid,
                sid,
                rev: self.labels[i].rev,
                msg: self.labels[i].msg.clone(),
                rates: tally.confusion().rates(&tally.counts),
                counts: tally.counts,
                latency_from_begin: latency(tally.from_begin),
                latency_from_end: latency(tally.from_end),
                missed_attacks: tally.missed,
                alerted_near_misses: tally.alerted,
            })
            .collect();
        rules.sort_by_key(|rule| (rule.sid, rule.gid));
        let mut scenarios: Vec<ScenarioScore> = scenarios
            .into_iter()
            .map(|(name, (scenario, begin, first))| ScenarioScore {
                name: name.to_string(),
                first_alert_ns: first.zip(begin).map(|(first, begin)| difference(first, begin)),
                ..scenario
            })
            .collect();
        scenarios.sort_by(|a, b| a.name.cmp(&b.name));
        let mut others: Vec<Other> = self.others.into_values().collect();
        let sum = |o: &Other| {
            [o.in_attacks, o.in_near_misses, o.in_benign, o.outside]
                .iter()
                .map(|&n| u128::from(n))
                .sum::<u128>()
        };
        others.sort_by_key(|o| (std::cmp::Reverse(sum(o)), o.sid, o.gid));
        let confusion = all.confusion();
        Score {
            labels: self.labels.len() as u64,
            alerts: self.totals.alerts,
            outside: self.totals.outside,
            rates: confusion.rates(&all.counts),
            confusion,
            counts: all.counts,
            latency_from_begin: latency(all.from_begin),
            latency_from_end: latency(all.from_end),
            rules,
            scenarios,
            others,
        }
    }
}

/// Maximum number of errors to keep per log.
const MAX_ERRORS: usize = 10;

/// Engines log in microseconds, so an alert may appear up to one microsecond too early.
const ROUNDED: u64 = 1_000;

/// Summary of a log.
#[derive(Debug, Default)]
pub struct Read {
    /// `None` if the format was not recognized.
    pub format: Option<alerts::Format>,
    pub lines: u64,
    pub alerts: u64,
    /// Events other than alerts.
    pub skipped: u64,
    /// Unreadable lines.
    pub bad: u64,
    /// The first errors.
    pub errors: Vec<Error>,
}

impl Score {
    /// Writes a header and a line per rule. A value is empty if its denominator is zero or no time
    /// is known.
    pub fn write_csv(&self, to: &mut impl Write) -> io::Result<()> {
        const HEADER: [&str; 22] = [
            "gid",
            "sid",
            "rev",
            "msg",
            "attacks",
            "hit",
            "missed",
            "short",
            "detection",
            "alerts_owed",
            "alerts_own",
            "duplicates",
            "near_misses",
            "near_misses_alerted",
            "false_positive",
            "collateral",
            "precision",
            "f1",
            "latency_min_ns",
            "latency_median_ns",
            "latency_p99_ns",
            "latency_max_ns",
        ];
        csv::write(to, &HEADER)?;
        for rule in &self.rules {
            let c = &rule.counts;
            let rate = |rate: Option<f64>| rate.map(|r| format!("{r:.6}")).unwrap_or_default();
            let time = |of: fn(&Latency) -> i64| {
                rule.latency_from_begin.as_ref().map(|l| of(l).to_string()).unwrap_or_default()
            };
            let fields = [
                rule.gid.to_string(),
                rule.sid.to_string(),
                rule.rev.to_string(),
                rule.msg.clone(),
                c.attacks.to_string(),
                c.hit.to_string(),
                c.missed.to_string(),
                c.short.to_string(),
                rate(rule.rates.detection),
                c.alerts_owed.to_string(),
                c.alerts_own.to_string(),
                c.duplicates.to_string(),
                c.near_misses.to_string(),
                c.near_misses_alerted.to_string(),
                rate(rule.rates.false_positive),
                c.collateral.to_string(),
                rate(rule.rates.precision),
                rate(rule.rates.f1),
                time(|l| l.min_ns),
                time(|l| l.median_ns),
                time(|l| l.p99_ns),
                time(|l| l.max_ns),
            ];
            let fields: [&str; 22] = std::array::from_fn(|i| fields[i].as_str());
            csv::write(to, &fields)?;
        }
        Ok(())
    }
}

/// Accumulates the counts of a score.
#[derive(Default)]
struct Tally {
    counts: Counts,
    from_begin: Vec<i64>,
    from_end: Vec<i64>,
    missed: Vec<u64>,
    alerted: Vec<u64>,
}

impl Tally {
    fn add(&mut self, label: &Label, seen: &LabelAlerts) {
        let c = &mut self.counts;
        let any = u64::from(seen.own > 0);
        match label.kind {
            // An attack that owes nothing, or whose rule raises no alerts: only alerts from other
            // rules count.
            Kind::Attack if label.alerts == 0 => {
                c.owing_none += 1;
                c.alerts_unowed = c.alerts_unowed.saturating_add(seen.own);
            }
            Kind::Attack => {
                let owed = u64::from(label.alerts);
                c.attacks += 1;
                c.hit += any;
                c.missed += 1 - any;
                c.short += u64::from(seen.own > 0 && seen.own < owed);
                c.alerts_owed += owed;
                c.alerts_own = c.alerts_own.saturating_add(seen.own);
                c.duplicates = c.duplicates.saturating_add(seen.own.saturating_sub(owed));
                if seen.own == 0 && self.missed.len() < MAX_ERRORS {
                    self.missed.push(label.attack);
                }
                if let Some(first) = seen.first {
                    self.from_begin.push(difference(first, label.begin));
                    self.from_end.push(difference(first, label.end));
                }
            }
            Kind::NearMiss => {
                c.near_misses += 1;
                c.near_misses_alerted += any;
                c.near_miss_alerts = c.near_miss_alerts.saturating_add(seen.own);
                if seen.own > 0 && self.alerted.len() < MAX_ERRORS {
                    self.alerted.push(label.attack);
                }
            }
            Kind::Benign => {
                c.benign += 1;
                c.benign_alerted += any;
                c.benign_alerts = c.benign_alerts.saturating_add(seen.own);
            }
        }
        c.alerts_also = c.alerts_also.saturating_add(seen.also);
        c.collateral = c.collateral.saturating_add(seen.collateral);
        c.collateral_conversations += u64::from(seen.collateral > 0);
    }

    fn confusion(&self) -> Confusion {
        let c = &self.counts;
        let false_positives = c.near_misses_alerted + c.benign_alerted;
        Confusion {
            true_positives: c.hit,
            false_positives,
            true_negatives: c.near_misses + c.benign - false_positives,
            false_negatives: c.missed,
        }
    }
}

impl Confusion {
    fn rates(&self, counts: &Counts) -> Rates {
        let rate = |part: u64, of: u64| (of > 0).then(|| part as f64 / of as f64);
        let Confusion {
            true_positives: tp,
            false_positives: fp,
            true_negatives: tn,
            false_negatives: fn_,
        } = *self;
        Rates {
            detection: rate(tp, tp + fn_),
            false_positive: rate(fp, fp + tn),
            benign_false_positive: rate(counts.benign_alerted, counts.benign),
            precision: rate(tp, tp + fp),
            f1: rate(2 * tp, 2 * tp + fp + fn_),
            accuracy: rate(tp + tn, tp + fp + tn + fn_),
        }
    }
}

/// Whether the alert is from the label's own rule.
fn is_own(label: &Label, alert: &Alert) -> bool {
    match label.kind {
        Kind::Benign => true,
        Kind::Attack if label.sid == 0 => true,
        // Some logs lack the generator ID.
        _ => label.sid == alert.sid && (alert.gid == 0 || label.gid == 0 || label.gid == alert.gid),
    }
}

fn credit(
    label: &Label,
    seen: &mut LabelAlerts,
    alert: &Alert,
    count: u64,
    at: Option<Nanos>,
    others: &mut HashMap<(u32, u32), Other>,
) {
    if is_own(label, alert) {
        seen.own = seen.own.saturating_add(count);
        seen.first = [seen.first, at].into_iter().flatten().min();
        if label.kind == Kind::Benign {
            let other = other(others, alert);
            other.in_benign = other.in_benign.saturating_add(count);
        }
    } else if label.also.contains(&alert.sid) {
        seen.also = seen.also.saturating_add(count);
    } else {
        seen.collateral = seen.collateral.saturating_add(count);
        let other = other(others, alert);
        let at = if label.kind == Kind::Attack {
            &mut other.in_attacks
        } else {
            &mut other.in_near_misses
        };
        *at = at.saturating_add(count);
    }
}

fn other<'a>(others: &'a mut HashMap<(u32, u32), Other>, alert: &Alert) -> &'a mut Other {
    others.entry((alert.gid, alert.sid)).or_insert_with(|| Other {
        gid: alert.gid,
        sid: alert.sid,
        msg: alert.msg.clone(),
        ..Other::default()
    })
}

/// The key of a conversation in both directions. All protocols without ports share one key.
fn key(protocol: Option<u8>, ends: [End; 2]) -> (u8, End, End) {
    let (protocol, mut ends) = match protocol {
        Some(protocol @ (6 | 17 | 132)) => (protocol, ends),
        _ => (0, ends.map(|(address, _)| (address, 0))),
    };
    ends.sort();
    (protocol, ends[0], ends[1])
}

fn ordered(one: IpAddr, other: IpAddr) -> (IpAddr, IpAddr) {
    (one.min(other), one.max(other))
}

/// Whether the time counts from 1970 and not from the start of a run, because no run lasts a year.
fn is_epoch(at: Nanos) -> bool {
    at.0 >= 365 * 86_400 * Nanos::SECOND.0
}

fn difference(to: Nanos, from: Nanos) -> i64 {
    i64::try_from(i128::from(to.0) - i128::from(from.0)).unwrap_or(if to > from {
        i64::MAX
    } else {
        i64::MIN
    })
}

fn latency(mut times: Vec<i64>) -> Option<Latency> {
    times.sort_unstable();
    let (min_ns, max_ns) = (*times.first()?, *times.last()?);
    let sum: i128 = times.iter().map(|&t| i128::from(t)).sum();
    let rank = |percent: usize| times[(times.len() * percent).div_ceil(100).max(1) - 1];
    Some(Latency {
        count: times.len() as u64,
        min_ns,
        mean_ns: (sum / times.len() as i128) as i64,
        median_ns: rank(50),
        p99_ns: rank(99),
        max_ns,
    })
}

#[cfg(test)]
mod tests;
