//! Excludes rules that cannot match: searches for one pattern of each rule, for all rules in one
//! pass.

use std::collections::HashMap;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use squall_rules::Buffer;

use crate::compiled::CompiledRule;

/// Minimum number of rules: matching fewer rules one by one costs less than building the automaton.
const MIN_RULES: usize = 48;

pub(crate) struct Prefilter {
    /// Groups by buffer. [`Buffer::Payload`] has the patterns for payloads.
    groups: HashMap<Buffer, Group>,
    /// For each rule with a pattern, the generation in which the pattern was last found.
    rules: Vec<Option<u32>>,
    generation: u32,
}

struct Group {
    patterns: AhoCorasick,
    /// The rule that each pattern belongs to, as an index.
    rules: Vec<u32>,
}

impl Prefilter {
    /// Builds the automata; `None` if there are too few rules.
    pub fn of(rules: &[&CompiledRule<'_>]) -> Option<Self> {
        if rules.len() < MIN_RULES {
            return None;
        }
        let mut patterns: HashMap<Buffer, (Vec<&[u8]>, Vec<u32>)> = HashMap::new();
        let mut seen = vec![None; rules.len()];
        for (place, rule) in rules.iter().enumerate() {
            if let Some((buffer, pattern)) = rule.fast {
                let group = patterns.entry(buffer).or_default();
                group.0.push(pattern);
                group.1.push(place as u32);
                seen[place] = Some(0);
            }
        }
        let groups = patterns
            .into_iter()
            .map(|(buffer, (patterns, rules))| {
                let patterns = AhoCorasick::builder()
                    .ascii_case_insensitive(true)
                    .match_kind(MatchKind::Standard)
                    .kind(Some(AhoCorasickKind::ContiguousNFA))
                    .build(patterns)
                    .ok()?;
                Some((buffer, Group { patterns, rules }))
            })
            .collect::<Option<_>>()?;
        Some(Prefilter { groups, rules: seen, generation: 0 })
    }

    /// Starts a new generation, which forgets all patterns found.
    pub fn begin(&mut self) {
        self.generation = self.generation.wrapping_add(1).max(1);
    }

    pub fn see(&mut self, buffer: Buffer, octets: &[u8]) {
        let Some(group) = self.groups.get(&buffer) else { return };
        for found in group.patterns.find_overlapping_iter(octets) {
            self.rules[group.rules[found.pattern().as_usize()] as usize] = Some(self.generation);
        }
    }

    /// Whether the rule can match the data seen in this generation.
    pub fn can_match(&self, place: u32) -> bool {
        self.rules[place as usize].is_none_or(|seen| seen == self.generation)
    }
}
