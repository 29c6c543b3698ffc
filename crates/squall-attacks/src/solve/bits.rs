//! Finds the rules that set the bits that another rule tests.

use std::collections::BTreeMap;

use squall_rules::{BitVerb, Bits, Comparison, IntValue, IntVerb, Protocol, Rule, RuleSet};

use super::ends;
use super::plan;

/// Maximum number of ways to set the bits of one rule.
const MAX_WAYS: usize = 8;
/// Maximum length of a chain of setters.
const MAX_DEPTH: usize = 6;

/// For each bit, the rules that set it.
#[derive(Debug, Default)]
pub(super) struct Setters {
    flow: BTreeMap<String, Vec<usize>>,
    host: BTreeMap<String, Vec<usize>>,
    int: BTreeMap<String, Vec<(usize, u32)>>,
}

/// The rules to play before another rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Prerequisites {
    /// Rules to play in the same flow, in this order.
    pub flow: Vec<usize>,
    /// Rules to play in earlier flows between the same hosts.
    pub host: Vec<usize>,
}

impl Setters {
    pub(super) fn of(rules: &RuleSet) -> Setters {
        let mut setters = Setters::default();
        for (index, rule) in rules.rules.iter().enumerate() {
            for bits in &rule.bits {
                match &bits.is {
                    Bits::Flow {
                        verb: BitVerb::Set | BitVerb::SetExclusively | BitVerb::Toggle,
                        names,
                        ..
                    } => {
                        for name in names {
                            push_once(setters.flow.entry(name.clone()).or_default(), index);
                        }
                    }
                    Bits::Host {
                        verb: BitVerb::Set | BitVerb::SetExclusively | BitVerb::Toggle,
                        name,
                        ..
                    } => {
                        push_once(setters.host.entry(name.clone()).or_default(), index);
                    }
                    Bits::Int { name, verb: IntVerb::Add | IntVerb::Set, value } => {
                        let by = if let IntValue::Is(by) = value { *by } else { 1 };
                        setters.int.entry(name.clone()).or_default().push((index, by));
                    }
                    _ => {}
                }
            }
        }
        setters
    }

    /// Ways to satisfy the bits that `rule` tests, most likely first. `Err` has the name of a bit
    /// that no rule sets.
    pub(super) fn before(
        &self,
        rules: &RuleSet,
        rule: usize,
    ) -> Result<Vec<Prerequisites>, String> {
        self.ways(rules, rule, &mut vec![rule])
    }

    fn ways(
        &self,
        rules: &RuleSet,
        index: usize,
        above: &mut Vec<usize>,
    ) -> Result<Vec<Prerequisites>, String> {
        let rule = &rules.rules[index];
        // All conditions must hold. Each has alternatives.
        let mut required: Vec<(Vec<Prerequisites>, bool)> = vec![];
        for bits in &rule.bits {
            match &bits.is {
                Bits::Flow { verb: BitVerb::IsSet, names, all } => {
                    let mut of_names = vec![];
                    for name in names {
                        let setters = self.flow.get(name).map_or(&[][..], Vec::as_slice);
                        let ways = self.of_setters(
                            rules,
                            index,
                            setters.iter().map(|&setter| (setter, 1)),
                            above,
                            true,
                        );
                        if ways.is_empty() && (*all || names.len() == 1) {
                            return Err(name.clone());
                        }
                        of_names.push(ways);
                    }
                    if *all {
                        required.extend(of_names.into_iter().map(|ways| (ways, true)));
                    } else {
                        let any: Vec<Prerequisites> = of_names.into_iter().flatten().collect();
                        if any.is_empty() {
                            return Err(names.join("|"));
                        }
                        required.push((any, true));
                    }
                }
                Bits::Host { verb: BitVerb::IsSet, name, .. } => {
                    let setters = self.host.get(name).map_or(&[][..], Vec::as_slice);
                    let ways = self.of_setters(
                        rules,
                        index,
                        setters.iter().map(|&setter| (setter, 1)),
                        above,
                        false,
                    );
                    if ways.is_empty() {
                        return Err(name.clone());
                    }
                    required.push((ways, false));
                }
                Bits::Int { name, verb, value } => {
                    let value = if let IntValue::Is(value) = value { *value } else { 1 };
                    let needed = match verb {
                        IntVerb::Is(Comparison::Greater) => value.saturating_add(1),
                        IntVerb::Is(Comparison::GreaterOrEqual | Comparison::Equal) => value,
                        IntVerb::Is(Comparison::Less | Comparison::LessOrEqual)
                        | IntVerb::IsSet
                        | IntVerb::IsNot => 1,
                        _ => continue,
                    };
                    // The rule itself increments the counter when it matches.
                    let setters = self.int.get(name).map_or(&[][..], Vec::as_slice);
                    let times = |by: u32| needed.div_ceil(by.max(1)).clamp(1, 256) as usize;
                    let others = setters
                        .iter()
                        .filter(|(setter, _)| *setter != index)
                        .map(|&(setter, by)| (setter, times(by)));
                    let ways = self.of_setters(rules, index, others, above, true);
                    if ways.is_empty() {
                        if setters.iter().any(|(setter, _)| *setter == index) {
                            continue;
                        }
                        return Err(name.clone());
                    }
                    required.push((ways, true));
                }
                _ => {}
            }
        }
        if required.is_empty() {
            return Ok(vec![Prerequisites::default()]);
        }
        let count = required.iter().map(|(ways, _)| ways.len()).max().unwrap_or(1).min(MAX_WAYS);
        let mut all: Vec<Prerequisites> = vec![];
        for turn in 0..count {
            let mut before = Prerequisites::default();
            for (ways, _) in &required {
                let way = &ways[turn % ways.len()];
                for &setter in &way.host {
                    push_once(&mut before.host, setter);
                }
                for &setter in &way.flow {
                    // A setter that counts occurs several times within a way. Others are played
                    // only once.
                    if !before.flow.contains(&setter)
                        || way.flow.iter().filter(|&&other| other == setter).count() > 1
                    {
                        before.flow.push(setter);
                    }
                }
            }
            if !all.contains(&before) {
                all.push(before);
            }
        }
        Ok(all)
    }

    fn of_setters(
        &self,
        rules: &RuleSet,
        index: usize,
        setters: impl Iterator<Item = (usize, usize)>,
        above: &mut Vec<usize>,
        same_flow: bool,
    ) -> Vec<Prerequisites> {
        if above.len() > MAX_DEPTH {
            return vec![];
        }
        let rule = &rules.rules[index];
        let mut known: Vec<(usize, usize)> =
            setters.filter(|(setter, _)| !above.contains(setter)).collect();
        known.sort_by_cached_key(|&(setter, _)| effort(rule, &rules.rules[setter]));
        let fitting = known.into_iter().filter(|&(setter, _)| {
            let other = &rules.rules[setter];
            (!same_flow || share_a_flow(rule, other)) && !sets_a_forbidden_bit(rule, other)
        });
        let mut ways = vec![];
        // Try fewer alternatives at deeper levels, because their numbers multiply.
        for (setter, times) in fitting.take((MAX_WAYS >> (above.len() - 1)).max(1)) {
            above.push(setter);
            let before = self.ways(rules, setter, above);
            above.pop();
            for mut way in before.into_iter().flatten().take(2) {
                if same_flow {
                    way.flow.extend(std::iter::repeat_n(setter, times));
                } else {
                    // The setters of this rule are found when it is played.
                    way = Prerequisites { flow: vec![], host: vec![setter] };
                }
                ways.push(way);
            }
        }
        ways
    }
}

/// The cost of a setter: whether it needs another protocol, whether it raises an alert of its own,
/// and its number of steps.
fn effort(rule: &Rule, setter: &Rule) -> (bool, bool, bool, usize) {
    let of = plan::applications(rule);
    let of_setter = plan::applications(setter);
    let steps: usize = setter.inspections.iter().map(|inspection| inspection.steps.len()).sum();
    let needs =
        setter.bits.iter().any(|bits| matches!(bits.is, Bits::Flow { verb: BitVerb::IsSet, .. }));
    (!of_setter.iter().any(|one| of.contains(one)) && of_setter != of, needs, !setter.silent, steps)
}

fn carrier(rule: &Rule) -> Option<u8> {
    use squall_rules::Application::*;
    match rule.header.protocol {
        Protocol::Tcp | Protocol::TcpSegments | Protocol::TcpReassembled => Some(6),
        Protocol::Udp => Some(17),
        Protocol::Icmp | Protocol::Icmp6 => Some(1),
        Protocol::Sctp => Some(132),
        Protocol::Application(
            Http | Http1 | Http2 | Tls | Ssh | Ftp | FtpData | Smtp | Pop3 | Imap | Rfb | Mqtt
            | Modbus,
        ) => Some(6),
        _ => None,
    }
}

fn share_a_flow(rule: &Rule, setter: &Rule) -> bool {
    let carried = match (carrier(rule), carrier(setter)) {
        (Some(one), Some(other)) => one == other,
        _ => true,
    };
    let both = [rule, setter];
    carried
        && ends::ports(&both, None, 0).is_some()
        && ends::endpoints_of(&both, 0, &ends::Hosts::default()).is_some()
}

/// Whether the setter sets a bit that the rule requires to be unset.
fn sets_a_forbidden_bit(rule: &Rule, setter: &Rule) -> bool {
    let not: Vec<&String> = rule
        .bits
        .iter()
        .filter_map(|bits| match &bits.is {
            Bits::Flow { verb: BitVerb::IsNotSet, names, .. } => Some(names),
            _ => None,
        })
        .flatten()
        .collect();
    setter.bits.iter().any(|bits| match &bits.is {
        Bits::Flow { verb: BitVerb::Set | BitVerb::SetExclusively, names, .. } => {
            names.iter().any(|name| not.contains(&name))
        }
        _ => false,
    })
}

fn push_once(to: &mut Vec<usize>, index: usize) {
    if !to.contains(&index) {
        to.push(index);
    }
}
