#![no_main]
//! A rule file: each line is either a rule or a problem, the parts of a rule refer to options that
//! exist, and parsing a rule's text again gives the same rule. Input: an octet whose lowest bit
//! enables commented-out rules, then the text, which may also set variables.

use std::collections::HashSet;

use libfuzzer_sys::fuzz_target;
use squall_rules::{Place, Reader, Reason, RuleSet, Variables};

fuzz_target!(|data: &[u8]| {
    let Some((&flags, text)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(text);
    let mut variables = Variables::standard();
    variables.read(&text);
    let set = Reader { disabled: flags & 1 == 1, ..Reader::default() }.parse(&text, &variables);

    let lines = text.split('\n').count();
    assert!(set.rules.len() + set.problems.len() <= lines);
    let mut places = HashSet::new();
    for place in set
        .rules
        .iter()
        .map(|rule| rule.place)
        .chain(set.problems.iter().map(|problem| problem.place))
    {
        assert!(place.line as usize <= lines && places.insert(place), "{place:?} twice");
    }
    for rule in &set.rules {
        let known = |option: u16| usize::from(option) < rule.options.len();
        assert!(rule.options.iter().all(|option| !rule.text[option.clone()].is_empty()));
        assert!(rule.options.is_sorted_by_key(|option| option.start));
        for inspection in &rule.inspections {
            assert!(!inspection.steps.is_empty());
            assert!(inspection.steps.iter().all(|step| known(step.option)));
            assert!(inspection.transforms.iter().all(|transform| known(transform.option)));
        }
        assert!(rule.packet.iter().map(|test| test.option).all(known));
        assert!(rule.application.iter().map(|test| test.option).all(known));
        // Previous lines may set variables, and a trailing backslash would join the next line.
        if rule.text.ends_with('\\') || text.contains("var") {
            continue;
        }
        let again = RuleSet::parse(&rule.text, &variables);
        let mut expected = rule.clone();
        expected.place = Place { file: 0, line: 1 };
        expected.disabled = false;
        assert_eq!(again.rules, [expected]);
        assert!(again.problems.is_empty());
    }
    assert!(
        set.problems
            .iter()
            .all(|problem| !problem.text.is_empty() || problem.reason == Reason::Duplicate)
    );
});
