//! Which of many rules can match at all: one pattern of each is looked for together with those of
//! all others.

use std::collections::HashMap;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use squall_rules::Buffer;

use crate::compiled::Prepared;

/// With fewer rules than this, looking for each costs less than making this.
const WORTHWHILE: usize = 48;

pub(crate) struct Prefilter {
    /// Of payloads ([`Buffer::Payload`]) and of each buffer.
    groups: HashMap<Buffer, Group>,
    /// By rule: whether it has a pattern, and in which look it last was seen.
    rules: Vec<Option<u32>>,
    look: u32,
}

struct Group {
    patterns: AhoCorasick,
    /// By pattern.
    rules: Vec<u32>,
}

impl Prefilter {
    /// `None`: not worth it.
    pub fn of(rules: &[&Prepared<'_>]) -> Option<Self> {
        if rules.len() < WORTHWHILE {
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
        Some(Prefilter { groups, rules: seen, look: 0 })
    }

    /// Begins a look: what was seen before counts no more.
    pub fn begin(&mut self) {
        self.look = self.look.wrapping_add(1).max(1);
    }

    pub fn see(&mut self, buffer: Buffer, octets: &[u8]) {
        let Some(group) = self.groups.get(&buffer) else { return };
        for found in group.patterns.find_overlapping_iter(octets) {
            self.rules[group.rules[found.pattern().as_usize()] as usize] = Some(self.look);
        }
    }

    /// Whether the rule can match what was seen since the look began.
    pub fn can_match(&self, place: u32) -> bool {
        self.rules[place as usize].is_none_or(|seen| seen == self.look)
    }
}
