//! State that rules keep: bits per flow, address and address pair; integers per flow; alert counts.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use squall_rules::{BitVerb, Bits, Comparison, Count, CountKind, IntValue, IntVerb, Track};
use squall_units::Nanos;

/// The state of one flow.
#[derive(Clone, Debug, Default)]
pub(crate) struct FlowBits {
    bits: BTreeSet<String>,
    numbers: BTreeMap<String, u32>,
}

/// The state shared by all flows.
#[derive(Debug, Default)]
pub(crate) struct HostBits {
    /// When each bit expires, if ever.
    bits: HashMap<(String, Scope), Option<Nanos>>,
    counts: HashMap<(usize, usize, Scope), Window>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Scope {
    Host(IpAddr),
    Pair(IpAddr, IpAddr),
    Flow(u64),
    All,
}

/// Addresses, time and flow of the packet being inspected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketInfo {
    pub at: Nanos,
    pub source: IpAddr,
    pub destination: IpAddr,
    /// The unique number of its flow, if it has one.
    pub flow: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    since: Nanos,
    count: u32,
    /// For a backoff: the number of matches at which the next alert will be raised.
    next: u32,
}

/// Maximum number of entries in a table. Beyond it, expired entries are dropped, or all entries if
/// that is not enough.
const MAX_ENTRIES: usize = 1 << 20;

impl PacketInfo {
    fn scope(&self, track: Track) -> Scope {
        match track {
            Track::BySource => Scope::Host(self.source),
            Track::ByDestination => Scope::Host(self.destination),
            Track::ByPair | Track::ByBoth => {
                Scope::Pair(self.source.min(self.destination), self.source.max(self.destination))
            }
            Track::ByFlow => self.flow.map_or(Scope::All, Scope::Flow),
            Track::ByRule | Track::Global => Scope::All,
        }
    }
}

/// Whether a rule's conditions on bits hold. After a match, [`set`] makes the rule's changes.
pub(crate) fn holds(
    bits: &Bits,
    flow: Option<&FlowBits>,
    hosts: &HostBits,
    info: &PacketInfo,
) -> bool {
    match bits {
        Bits::Flow { verb, names, all } => {
            let is_set = |name: &String| flow.is_some_and(|flow| flow.bits.contains(name));
            let required =
                |all: bool| if all { names.iter().all(is_set) } else { names.iter().any(is_set) };
            match verb {
                BitVerb::IsSet => required(*all),
                // If the rule lists several bits, Suricata matches when one of them is unset,
                // unless the rule requires all to be unset.
                BitVerb::IsNotSet if flow.is_none() => false,
                BitVerb::IsNotSet if *all => !names.iter().any(is_set),
                BitVerb::IsNotSet => !names.iter().all(is_set),
                _ => true,
            }
        }
        Bits::Host { verb, name, track, .. } => {
            let is_set = hosts.is_set(name, info.scope(*track), info.at);
            match verb {
                BitVerb::IsSet => is_set,
                BitVerb::IsNotSet => !is_set,
                _ => true,
            }
        }
        Bits::Int { name, verb, value } => {
            let Some(flow) = flow else { return false };
            let found = flow.numbers.get(name).copied();
            match verb {
                IntVerb::IsSet => found.is_some(),
                IntVerb::NotSet => found.is_none(),
                IntVerb::Is(comparison) => match (found, flow.value(value)) {
                    (Some(found), Some(value)) => match comparison {
                        Comparison::Less => found < value,
                        Comparison::LessOrEqual => found <= value,
                        Comparison::Equal => found == value,
                        Comparison::Greater => found > value,
                        Comparison::GreaterOrEqual => found >= value,
                        Comparison::And => found & value != 0,
                        Comparison::Xor => found ^ value != 0,
                    },
                    _ => false,
                },
                IntVerb::IsNot => match (found, flow.value(value)) {
                    (Some(found), Some(value)) => found != value,
                    _ => false,
                },
                _ => true,
            }
        }
    }
}

/// Applies the changes that a matched rule makes to bits.
pub(crate) fn set(
    bits: &Bits,
    flow: Option<&mut FlowBits>,
    hosts: &mut HostBits,
    info: &PacketInfo,
) {
    match bits {
        Bits::Flow { verb, names, .. } => {
            let Some(flow) = flow else { return };
            for name in names {
                match verb {
                    BitVerb::Set | BitVerb::SetExclusively => {
                        flow.bits.insert(name.clone());
                    }
                    BitVerb::Unset => {
                        flow.bits.remove(name);
                    }
                    BitVerb::Toggle => {
                        if !flow.bits.remove(name) {
                            flow.bits.insert(name.clone());
                        }
                    }
                    BitVerb::IsSet | BitVerb::IsNotSet => (),
                }
            }
        }
        Bits::Host { verb, name, track, seconds } => {
            let scope = info.scope(*track);
            // Suricata's default expiry is 30 seconds.
            let until =
                Nanos(info.at.0.saturating_add(u64::from(seconds.unwrap_or(30)) * 1_000_000_000));
            match verb {
                BitVerb::Set | BitVerb::SetExclusively => hosts.set(name, scope, until, info.at),
                BitVerb::Unset => {
                    hosts.bits.remove(&(name.clone(), scope));
                }
                BitVerb::Toggle => {
                    if hosts.is_set(name, scope, info.at) {
                        hosts.bits.remove(&(name.clone(), scope));
                    } else {
                        hosts.set(name, scope, until, info.at);
                    }
                }
                BitVerb::IsSet | BitVerb::IsNotSet => (),
            }
        }
        Bits::Int { name, verb, value } => {
            let Some(flow) = flow else { return };
            let Some(value) = flow.value(value) else { return };
            let found = flow.numbers.get(name).copied();
            let made = match verb {
                IntVerb::Set => value,
                // An integer that was never set is 0.
                IntVerb::Add => found.unwrap_or(0).wrapping_add(value),
                IntVerb::Subtract => found.unwrap_or(0).wrapping_sub(value),
                _ => return,
            };
            flow.numbers.insert(name.clone(), made);
        }
    }
}

impl FlowBits {
    fn value(&self, value: &IntValue) -> Option<u32> {
        match value {
            IntValue::Is(value) => Some(*value),
            IntValue::Of(name) => self.numbers.get(name).copied(),
            IntValue::None => None,
        }
    }
}

impl HostBits {
    fn is_set(&self, name: &str, scope: Scope, at: Nanos) -> bool {
        match self.bits.get(&(name.to_string(), scope)) {
            Some(Some(until)) => at <= *until,
            Some(None) => true,
            None => false,
        }
    }

    fn set(&mut self, name: &str, scope: Scope, until: Nanos, at: Nanos) {
        if self.bits.len() >= MAX_ENTRIES {
            self.bits.retain(|_, until| until.is_none_or(|until| at <= until));
            if self.bits.len() >= MAX_ENTRIES {
                self.bits.clear();
            }
        }
        self.bits.insert((name.to_string(), scope), Some(until));
    }

    /// Whether a match of rule `rule` raises an alert according to `count`, the rule's count with
    /// index `index`.
    pub fn counts(&mut self, rule: usize, index: usize, count: &Count, info: &PacketInfo) -> bool {
        if self.counts.len() >= MAX_ENTRIES {
            self.counts.clear();
        }
        let over = |window: &Window| {
            count.seconds != 0
                && info.at.0.saturating_sub(window.since.0)
                    > u64::from(count.seconds) * 1_000_000_000
        };
        let new = Window { since: info.at, count: 0, next: count.count.max(1) };
        let window = self.counts.entry((rule, index, info.scope(count.track))).or_insert(new);
        if over(window) {
            *window = new;
        }
        window.count = window.count.saturating_add(1);
        match count.kind {
            CountKind::Limit => window.count <= count.count,
            CountKind::Threshold => {
                let reached = window.count >= count.count;
                if reached {
                    *window = Window { count: 0, ..new };
                }
                reached
            }
            CountKind::Both => window.count == count.count,
            CountKind::DetectionFilter => window.count > count.count,
            CountKind::Backoff { multiplier } => {
                let reached = window.count == window.next;
                if reached {
                    window.next = window.next.saturating_mul(multiplier.max(1));
                }
                reached
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(at: u64) -> PacketInfo {
        let (source, destination) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        PacketInfo { at: Nanos(at * 1_000_000_000), source, destination, flow: Some(1) }
    }

    fn alerts(kind: CountKind, count: u32, seconds: u32, at: &[u64]) -> Vec<bool> {
        let count = Count { kind, track: Track::BySource, count, seconds };
        let mut hosts = HostBits::default();
        at.iter().map(|&at| hosts.counts(0, 0, &count, &info(at))).collect()
    }

    #[test]
    fn a_limit_lets_the_first_through_a_threshold_every_nth_both_one() {
        assert_eq!(alerts(CountKind::Limit, 1, 60, &[0, 1, 2, 70]), [true, false, false, true]);
        assert_eq!(alerts(CountKind::Threshold, 2, 60, &[0, 1, 2, 3]), [false, true, false, true]);
        assert_eq!(alerts(CountKind::Both, 2, 60, &[0, 1, 2, 3]), [false, true, false, false]);
        assert_eq!(
            alerts(CountKind::DetectionFilter, 2, 60, &[0, 1, 2, 3]),
            [false, false, true, true]
        );
    }

    #[test]
    fn a_bit_of_an_address_ends_with_its_time() {
        let bit =
            |verb| Bits::Host { verb, name: "a".into(), track: Track::BySource, seconds: Some(10) };
        let mut hosts = HostBits::default();
        set(&bit(BitVerb::Set), None, &mut hosts, &info(5));
        assert!(holds(&bit(BitVerb::IsSet), None, &hosts, &info(15)));
        assert!(holds(&bit(BitVerb::IsNotSet), None, &hosts, &info(16)));
    }

    #[test]
    fn an_integer_of_a_flow_counts_from_zero() {
        let int = |verb, value| Bits::Int { name: "n".into(), verb, value };
        let (mut flow, mut hosts) = (FlowBits::default(), HostBits::default());
        let is_two = int(IntVerb::Is(Comparison::Equal), IntValue::Is(2));
        for _ in 0..2 {
            assert!(!holds(&is_two, Some(&flow), &hosts, &info(0)));
            set(&int(IntVerb::Add, IntValue::Is(1)), Some(&mut flow), &mut hosts, &info(0));
        }
        assert!(holds(&is_two, Some(&flow), &hosts, &info(0)));
        assert!(holds(&int(IntVerb::IsSet, IntValue::None), Some(&flow), &hosts, &info(0)));
    }
}
