//! The outcome of each rule as text.

use std::fmt::Write;

use squall_attacks::suite::Outcome;
use squall_report::report::attack::AttackReport;
use squall_rules::RuleSet;

/// One line per rule, with its outcome.
pub fn attack_list(rules: &RuleSet, outcomes: &[Outcome], report: &AttackReport) -> String {
    let mut text = String::new();
    let mut unsolved = report.unsolved_rules.iter();
    for outcome in outcomes {
        let rule = &rules.rules[outcome.rule];
        let status = match outcome.solved.first() {
            Some(first) => {
                let setters = match first.solution.setters.len() {
                    0 => String::new(),
                    _ => {
                        let sids =
                            first.solution.setters.iter().map(|&i| rules.rules[i].sid.to_string());
                        format!(" after {}", sids.collect::<Vec<_>>().join(", "))
                    }
                };
                format!("solved{setters}")
            }
            None => {
                unsolved.next().map_or_else(String::new, |of| format!("{}: {}", of.reason, of.text))
            }
        };
        let _ = writeln!(text, "{}:{}:{}  {}  {status}", rule.gid, rule.sid, rule.rev, rule.msg);
    }
    text
}
