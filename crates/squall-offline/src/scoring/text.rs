//! A score as text and as HTML.

use squall_report::render::{
    human,
    page::{Axis, Group, Page, Plot, Unit, escape, table, tiles},
    table::printable,
};

use super::{Latency, RuleScore, Score, Scored};

/// If an alert precedes the last frame of its attack by more than this, the clocks differ, because
/// few attacks take as long.
const CLOCKS_DIFFER_NS: i64 = 10_000_000_000;

/// Maximum number of rules in the summary.
const MAX_ROWS: usize = 20;

pub fn score_text(scored: &Scored) -> String {
    let (score, counts, rates) = (&scored.score, &scored.score.counts, &scored.score.rates);
    let mut text = String::new();
    let mut pair = |name: &str, value: String| text += &format!("{name:<22} {value}\n");
    let of = |rate: Option<f64>| rate.map_or_else(|| "-".into(), human::ratio);
    pair("Attacks", format!("{}: {} hit, {} missed", counts.attacks, counts.hit, counts.missed));
    pair("Detection rate", of(rates.detection));
    pair("Precision", of(rates.precision));
    if counts.near_misses > 0 {
        pair(
            "Near misses",
            format!("{}: {} alerted", counts.near_misses, counts.near_misses_alerted),
        );
    }
    if counts.benign > 0 {
        pair(
            "Benign",
            format!("{} conversations: {} alerted", counts.benign, counts.benign_alerted),
        );
    }
    pair("False positive rate", of(rates.false_positive));
    if counts.owing_none > 0 {
        pair("No alert expected", format!("{} conversations of attacks", counts.owing_none));
    }
    pair("Alerts", format!("{}: {}", score.alerts, parts_of(score)));
    if let Some(latency) = &score.latency_from_end {
        pair("Time of alerts", latency_text(latency));
        if latency.median_ns < -CLOCKS_DIFFER_NS {
            pair(
                "",
                "alerts are earlier than their attacks: do the clocks differ? --shift adds seconds \
                 to the times of alerts"
                    .into(),
            );
        }
    }
    for file in &scored.alerts_files {
        if file.bad > 0 {
            let first = printable(file.errors.first().map_or("", String::as_str));
            pair("Invalid", format!("{} lines of {}: {first}", file.bad, printable(&file.path)));
        }
    }
    for scenario in &score.scenarios {
        let first = scenario
            .first_alert_ns
            .map_or_else(|| "none".into(), |ns| format!("first after {}", human::ns(ns as f64)));
        text += &format!(
            "scenario {:?}: {} conversations, {} alerted, {} alerts, {first}\n",
            scenario.name, scenario.conversations, scenario.alerted, scenario.alerts
        );
    }
    let missed: Vec<&RuleScore> =
        score.rules.iter().filter(|rule| rule.counts.missed > 0).collect();
    list(&mut text, "Missed", &missed, |rule| {
        format!("{} of {}", rule.counts.missed, rule.counts.attacks)
    });
    let false_ones: Vec<&RuleScore> =
        score.rules.iter().filter(|rule| rule.counts.near_misses_alerted > 0).collect();
    list(&mut text, "Alerted on near misses", &false_ones, |rule| {
        format!("{} of {}", rule.counts.near_misses_alerted, rule.counts.near_misses)
    });
    text
}

/// All alerts by kind. Each is counted once, so the parts add up to the total.
fn parts_of(score: &Score) -> String {
    let counts = &score.counts;
    let scenarios = score.scenarios.iter().fold(0u64, |sum, of| sum.saturating_add(of.alerts));
    let mut own = format!("{} of their rules", counts.alerts_own);
    if counts.duplicates > 0 {
        own += &format!(" ({} more than expected)", counts.duplicates);
    }
    let parts = [
        (counts.alerts_unowed, "of their rules where none is expected"),
        (counts.alerts_also, "of rules of earlier attacks"),
        (counts.near_miss_alerts, "in near misses"),
        (counts.benign_alerts, "in benign conversations"),
        (scenarios, "in scenarios"),
        (counts.collateral, "of other rules"),
        (score.outside, "outside of all conversations"),
    ];
    let parts = parts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!(", {n} {what}"));
    own + &parts.collect::<String>()
}

fn list(
    text: &mut String,
    heading: &str,
    rules: &[&RuleScore],
    detail: impl Fn(&RuleScore) -> String,
) {
    if rules.is_empty() {
        return;
    }
    *text += &format!("\n{heading}:\n");
    for rule in rules.iter().take(MAX_ROWS) {
        *text +=
            &format!("  {}:{}  {}  {}\n", rule.gid, rule.sid, detail(rule), printable(&rule.msg));
    }
    if let more @ 1.. = rules.len().saturating_sub(MAX_ROWS) {
        *text += &format!("  and {more} more, all in --csv\n");
    }
}

fn latency_text(latency: &Latency) -> String {
    format!(
        "median {}, p99 {}, latest {} the last frame of the attack",
        after(latency.median_ns),
        after(latency.p99_ns),
        after(latency.max_ns)
    )
}

/// A time relative to the last frame of an attack, which an alert for an earlier frame precedes.
fn after(ns: i64) -> String {
    let side = if ns < 0 { "before" } else { "after" };
    format!("{} {side}", human::ns(ns.unsigned_abs() as f64))
}

pub fn score_html(scored: &Scored) -> String {
    let (score, counts, rates) = (&scored.score, &scored.score.counts, &scored.score.rates);
    let mut page = Page::new("Squall score");
    let body = page.markup();
    *body += &format!("<h1>Score</h1>\n<p>{}</p>\n", escape(&scored.command));
    let of = |rate: Option<f64>| rate.map_or_else(|| "-".into(), human::ratio);
    let figures = [
        (
            "Detection rate",
            counts.missed > 0,
            (of(rates.detection), format!("{} of {} attacks", counts.hit, counts.attacks)),
        ),
        ("Precision", false, (of(rates.precision), "of conversations that alerted".to_owned())),
        (
            "False positive rate",
            counts.near_misses_alerted + counts.benign_alerted > 0,
            (
                of(rates.false_positive),
                format!(
                    "{} near misses, {} benign",
                    counts.near_misses_alerted, counts.benign_alerted
                ),
            ),
        ),
        (
            "Collateral",
            false,
            (human::count(counts.collateral), "alerts of other rules".to_owned()),
        ),
        (
            "Median time of alerts",
            false,
            score.latency_from_end.as_ref().map_or_else(
                || ("-".into(), String::new()),
                |latency| {
                    (
                        after(latency.median_ns),
                        format!("the last frame; p99 {}", after(latency.p99_ns)),
                    )
                },
            ),
        ),
    ];
    tiles(&figures, body);
    let verdicts = vec![
        "hit".to_owned(),
        "missed".into(),
        "near misses that alerted".into(),
        "benign that alerted".into(),
    ];
    let y = [counts.hit, counts.missed, counts.near_misses_alerted, counts.benign_alerted];
    let series = vec![Group {
        label: "conversations".into(),
        y: y.iter().map(|n| Some(*n as f64)).collect(),
    }];
    let plot = Plot::bars(
        "Outcome of conversations",
        "verdict",
        verdicts,
        Axis::new("conversations", Unit::Count),
        series,
    );
    page.plots("Verdicts", &[plot]);
    let body = page.markup();
    let row = |rule: &RuleScore| {
        let latency = rule
            .latency_from_end
            .as_ref()
            .map_or_else(String::new, |latency| after(latency.median_ns));
        vec![
            format!("{}:{}:{} {}", rule.gid, rule.sid, rule.rev, rule.msg),
            rule.counts.attacks.to_string(),
            rule.counts.hit.to_string(),
            rule.counts.missed.to_string(),
            rule.counts.near_misses.to_string(),
            rule.counts.near_misses_alerted.to_string(),
            rule.counts.collateral.to_string(),
            latency,
        ]
    };
    let columns =
        ["rule", "attacks", "hit", "missed", "near misses", "alerted", "collateral", "last frame"];
    let wrong = |rule: &&RuleScore| rule.counts.missed > 0 || rule.counts.near_misses_alerted > 0;
    let of_interest: Vec<_> = score.rules.iter().filter(wrong).map(row).collect();
    if !of_interest.is_empty() {
        table("Rules that missed attacks, or alerted on near misses", &columns, &of_interest, body);
    }
    let scenarios: Vec<_> = score
        .scenarios
        .iter()
        .map(|of| {
            let first = of.first_alert_ns.map_or_else(|| "-".into(), |ns| human::ns(ns as f64));
            vec![
                of.name.clone(),
                of.conversations.to_string(),
                of.alerted.to_string(),
                of.alerts.to_string(),
                first,
            ]
        })
        .collect();
    if !scenarios.is_empty() {
        table(
            "Scenarios",
            &["scenario", "conversations", "alerted", "alerts", "first after"],
            &scenarios,
            body,
        );
    }
    let others: Vec<_> = score
        .others
        .iter()
        .map(|other| {
            vec![
                format!("{}:{} {}", other.gid, other.sid, other.msg),
                other.in_attacks.to_string(),
                other.in_near_misses.to_string(),
                other.in_benign.to_string(),
                other.outside.to_string(),
            ]
        })
        .collect();
    if !others.is_empty() {
        let columns = [
            "rule",
            "in attacks of other rules",
            "in near misses of other rules",
            "in benign",
            "outside",
        ];
        table("Rules that alerted elsewhere", &columns, &others, body);
    }
    table("All rules", &columns, &score.rules.iter().map(row).collect::<Vec<_>>(), body);
    page.footer(&[&scored.labels_file]);
    page.finish()
}
