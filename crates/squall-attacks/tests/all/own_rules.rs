//! The rules in `tests/rules`, one for each construct of the three dialects. Each has the outcome
//! noted with it, except the rules in `shortfalls.txt`, which lists their actual outcomes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use squall_attacks::solve::Settings;
use squall_attacks::{Solver, Unsolved};
use squall_rules::{KeywordReading, Rule, RuleSet, Variables};

fn directory() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rules"))
}

fn expected(rule: &Rule) -> &str {
    let expected = rule.metadata.iter().find(|(key, _)| key == "squall_expect");
    &expected.unwrap_or_else(|| panic!("sid {} expects nothing", rule.sid)).1
}

/// A rule that starts to reach its expected outcome must leave the list, and a rule that stops to
/// do so must enter it. `BLESS=1` rewrites the list.
#[test]
fn each_rule_has_its_expected_outcome() {
    let set = RuleSet::read(&[directory()], &Variables::standard());
    assert!(set.rules.len() >= 300, "{} rules", set.rules.len());
    let solver = Solver::new(&set, Settings::default());
    let mut real = BTreeMap::new();
    for (index, rule) in set.rules.iter().enumerate() {
        let (outcome, why) = match solver.solve(index, 0) {
            Ok(_) => ("solved".to_owned(), String::new()),
            Err(Unsolved { reason, text, .. }) => {
                (format!("unsolved {reason:?}"), format!(": {text}"))
            }
        };
        if outcome != expected(rule) {
            let why = why.lines().next().unwrap_or("");
            real.insert(
                rule.sid,
                (outcome, format!("{}, expected {}{why}", rule.msg, expected(rule))),
            );
        }
    }
    let path = directory().join("shortfalls.txt");
    if std::env::var_os("BLESS").is_some() {
        let lines: String =
            real.iter().map(|(sid, (outcome, why))| format!("{sid} {outcome} # {why}\n")).collect();
        std::fs::write(&path, lines).unwrap();
        return;
    }
    let text = std::fs::read_to_string(&path).unwrap();
    let known: BTreeMap<u32, &str> = text
        .lines()
        .filter_map(|line| line.split(" # ").next()?.split_once(' '))
        .map(|(sid, outcome)| (sid.parse().unwrap(), outcome))
        .collect();
    let mut differences = vec![];
    for sid in real.keys().chain(known.keys()).collect::<BTreeSet<_>>() {
        match (real.get(sid), known.get(sid)) {
            (Some((outcome, why)), Some(known)) if outcome != known => {
                differences.push(format!("{sid} {outcome} # {why}; the list says {known}"));
            }
            (Some((outcome, why)), None) => differences.push(format!("{sid} {outcome} # {why}")),
            (None, Some(known)) => {
                differences.push(format!("{sid} does what it should, and no longer {known}"))
            }
            _ => {}
        }
    }
    let count = differences.len();
    assert!(
        count == 0,
        "{count} differences from the list, which BLESS=1 writes anew:\n{}",
        differences.join("\n")
    );
}

/// A line `# expect: problem Reason` precedes each line that must be a problem. No other line may
/// be one.
#[test]
fn each_bad_line_has_its_expected_problem() {
    let set = RuleSet::read(&[directory()], &Variables::standard());
    let mut real = BTreeSet::new();
    for problem in &set.problems {
        assert!(!problem.text.is_empty());
        let file = set.files[problem.place.file as usize].file_name().unwrap().to_str().unwrap();
        real.insert((file.to_owned(), problem.place.line, format!("{:?}", problem.reason)));
    }
    let mut wanted = BTreeSet::new();
    for path in &set.files {
        let Ok(text) = std::fs::read_to_string(path) else { continue };
        for (number, line) in text.lines().enumerate() {
            if let Some(reason) = line.strip_prefix("# expect: problem ") {
                let file = path.file_name().unwrap().to_str().unwrap();
                wanted.insert((file.to_owned(), number as u32 + 2, reason.to_owned()));
            }
        }
    }
    assert!(wanted.len() >= 40);
    assert_eq!(real, wanted);
}

const REFERENCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/rules.md");

/// The text above the table of docs/reference/rules.md.
const PREFACE: &str = "\
# Rules

Keywords of the rules of Snort 2, Snort 3 and Suricata, and what Squall does with them. All rules
are converted to one form. Its semantics are those of Suricata 8 with default settings, or Snort's
where Suricata has no equivalent. A line that is not a rule never stops its file: it is reported
with file, line, column, a reason and a hint.

- *engine*: 2 is Snort 2, 3 is Snort 3, S is Suricata 7 and 8 (also with the names of older
  versions), 7 or 8 only that version of Suricata, 9 neither of them (other versions). With
  `--engine`, rules with a keyword that the engine does not have are refused (NotLoaded).
- *read*: `yes`; `ignored` if the keyword has no effect on the traffic; `problem` if rules with it
  are refused (UnsupportedKeyword). Any other word is refused as UnknownKeyword, with the most
  similar keyword.
- *solved*: a rule of `crates/squall-attacks/tests/rules` with this keyword for which Squall made
  traffic, and in which the evaluator found the rule (it shares no code with the solver). Empty:
  none yet.

Files can also contain `include FILE` (relative to the folder of the including file), `var`, `ipvar`
and `portvar`. A backslash at the end of a line continues a rule; rules of Snort 3 end when their
parenthesis closes. Of two rules with the same gid and sid, the newer revision counts. Variables
that are not set have the values of suricata.yaml; a suricata.yaml, a snort.conf or a
snort_defaults.lua can set them.

| keyword | engine | read | solved |
|---|---|---|---|
";

/// `BLESS=1` rewrites the page.
#[test]
fn the_reference_names_each_keyword_correctly() {
    let set = RuleSet::read(&[directory()], &Variables::standard());
    let solver = Solver::new(&set, Settings::default());
    let mut solved: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for (index, rule) in set.rules.iter().enumerate() {
        if solver.solve(index, 0).is_ok() {
            for option in &rule.options {
                let name = rule.text[option.clone()].split(':').next().unwrap_or("").trim();
                solved.entry(name).or_default().insert(rule.sid);
            }
        }
    }
    if std::env::var_os("BLESS").is_some() {
        let mut text = PREFACE.to_owned();
        for keyword in squall_rules::keywords() {
            let read = reading(keyword.reading());
            let by = solved
                .get(keyword.name)
                .and_then(|sids| sids.first())
                .map(u32::to_string)
                .unwrap_or_default();
            text.push_str(&format!(
                "| `{}` | {} | {read} | {by} |\n",
                keyword.name, keyword.engines
            ));
        }
        std::fs::write(REFERENCE, text).unwrap();
        return;
    }
    let text = std::fs::read_to_string(REFERENCE).unwrap();
    let rows = text
        .strip_prefix(PREFACE)
        .expect("the text above the table differs: BLESS=1 writes it anew");
    let keywords = squall_rules::keywords();
    assert_eq!(
        rows.lines().count(),
        keywords.len(),
        "a row for each keyword: BLESS=1 writes them anew"
    );
    for (row, keyword) in rows.lines().zip(keywords) {
        let (known, by) = row.trim_end_matches(" |").rsplit_once(" |").unwrap();
        assert_eq!(
            known,
            format!("| `{}` | {} | {}", keyword.name, keyword.engines, reading(keyword.reading()))
        );
        if let Ok(sid) = by.trim().parse::<u32>() {
            assert!(
                solved.get(keyword.name).is_some_and(|sids| sids.contains(&sid)),
                "{}: {sid}",
                keyword.name
            );
        }
    }
}

fn reading(reading: KeywordReading) -> &'static str {
    match reading {
        KeywordReading::Read => "yes",
        KeywordReading::Ignored => "ignored",
        KeywordReading::Unsupported => "problem",
    }
}
