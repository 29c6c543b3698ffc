//! The attacks of a run as text.

use std::fmt::Write;

use crate::report::{Report, attack::AttackReport};

/// Lines for the end of a run's summary. Empty for runs without attacks.
pub fn attack(report: &Report) -> String {
    report.attacks.iter().map(one_attack).collect()
}

/// Lines about one `[[attack]]`.
pub fn one_attack(report: &AttackReport) -> String {
    let mut text = format!("\nAttack {:?}:", report.name);
    let mut add = |args: std::fmt::Arguments<'_>| {
        // Writing to a String cannot fail.
        let _ = text.write_fmt(args);
    };
    if report.chosen > 0 {
        // Rules that never raise alerts cannot be attacked, so these are not failures.
        let silent = report.unsolved.get("silent").copied().unwrap_or(0);
        let alerting = report.chosen.saturating_sub(silent);
        let share = report.solved as f64 * 100.0 / alerting.max(1) as f64;
        add(format_args!(" {} of {alerting} rules solved ({share:.1} %)", report.solved));
        if silent > 0 {
            let rules = if silent == 1 { "rule never alerts" } else { "rules never alert" };
            add(format_args!(", {silent} {rules}"));
        }
        let problems: u64 = report.problems.values().sum();
        if problems > 0 {
            add(format_args!(", {problems} invalid lines ({})", counts(&report.problems)));
        }
        add(format_args!("\n"));
        let mut unsolved = report.unsolved.clone();
        unsolved.remove("silent");
        if !unsolved.is_empty() {
            add(format_args!("  not solved: {} (--list names them)\n", counts(&unsolved)));
        }
    } else {
        add(format_args!("\n"));
    }
    add(format_args!(
        "  {} attacks{}, {} frames, {} octets, {:.3} s as planned\n",
        report.attacks,
        if report.near_misses > 0 {
            format!(" and {} near misses", report.near_misses)
        } else {
            String::new()
        },
        report.frames,
        report.octets,
        report.duration_s
    ));
    if report.without_twin > 0 {
        add(format_args!("  {} rules without a near miss\n", report.without_twin));
    }
    if report.varied > 0 {
        add(format_args!("  {} rules with reworded messages that still match\n", report.varied));
    }
    if !report.left_out.is_empty() {
        let first = report
            .left_out_first
            .as_ref()
            .map_or_else(String::new, |why| format!(" (first: {why})"));
        add(format_args!("  left out: {}{first}\n", counts(&report.left_out)));
    }
    if report.unseen > 0 {
        add(format_args!(
            "  {} attacks do not match as they are sent, by the evaluator: no alert is expected \
             for them\n",
            report.unseen
        ));
    }
    if !report.unsent.is_empty() {
        add(format_args!("  not sent as a whole: {}\n", counts(&report.unsent)));
    }
    if let Some(passage) = &report.passage {
        add(format_args!(
            "  through the device: {} of {} passed",
            passage.passed, passage.conversations
        ));
        if passage.as_frames > 0 {
            add(format_args!(" ({} as prepared frames)", passage.as_frames));
        }
        if passage.altered > 0 {
            add(format_args!(", {} of them altered", passage.altered));
        }
        if passage.near_misses > 0 {
            add(format_args!(
                ", near misses {} of {}",
                passage.near_misses_passed, passage.near_misses
            ));
        }
        if !passage.blocked.is_empty() {
            add(format_args!(", blocked: {}", counts(&passage.blocked)));
        }
        add(format_args!("\n"));
        const MOST: usize = 20;
        let blocked = || passage.rules.iter().filter(|rule| rule.blocked > 0);
        for rule in blocked().take(MOST) {
            add(format_args!(
                "    {}:{} {}: {} of {} blocked\n",
                rule.gid, rule.sid, rule.msg, rule.blocked, rule.attacks
            ));
        }
        if let more @ 1.. = blocked().count().saturating_sub(MOST) {
            add(format_args!("    and {more} more rules, all in --json\n"));
        }
    }
    text
}

fn counts(counts: &std::collections::BTreeMap<String, u64>) -> String {
    counts.iter().map(|(name, n)| format!("{n} {name}")).collect::<Vec<_>>().join(", ")
}
