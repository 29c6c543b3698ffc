//! Sets of numbers and addresses, used in the headers and options of rules.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

/// A set of numbers (ports, sizes, types, identifiers), stored as ascending ranges that neither
/// touch nor overlap.
///
/// All comparisons (`>5`, `1<>9`, `!3`, `[1,2,5:7]`) are parsed to such a set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Numbers(Vec<(u64, u64)>);

impl Numbers {
    /// All numbers.
    pub fn any() -> Self {
        Numbers(vec![(0, u64::MAX)])
    }

    pub fn none() -> Self {
        Numbers(vec![])
    }

    pub fn one(number: u64) -> Self {
        Numbers(vec![(number, number)])
    }

    /// The numbers in `range`, which may be empty.
    pub fn range(range: RangeInclusive<u64>) -> Self {
        if range.is_empty() { Self::none() } else { Numbers(vec![(*range.start(), *range.end())]) }
    }

    pub fn union(&self, other: &Self) -> Self {
        self.0.iter().chain(&other.0).map(|&(first, last)| first..=last).collect()
    }

    pub fn complement(&self) -> Self {
        let mut holes = vec![];
        let mut next = Some(0);
        for &(first, last) in &self.0 {
            if let Some(from) = next
                && from < first
            {
                holes.push((from, first - 1));
            }
            next = last.checked_add(1);
        }
        if let Some(from) = next {
            holes.push((from, u64::MAX));
        }
        Numbers(holes)
    }

    pub fn without(&self, other: &Self) -> Self {
        self.complement().union(other).complement()
    }

    pub fn intersection(&self, other: &Self) -> Self {
        self.complement().union(&other.complement()).complement()
    }

    pub fn contains(&self, number: u64) -> bool {
        let after = self.0.partition_point(|&(first, _)| first <= number);
        after > 0 && self.0[after - 1].1 >= number
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn is_any(&self) -> bool {
        self.0 == [(0, u64::MAX)]
    }

    pub fn ranges(&self) -> impl Iterator<Item = RangeInclusive<u64>> + '_ {
        self.0.iter().map(|&(first, last)| first..=last)
    }

    /// The smallest member that is at least `least`.
    pub fn at_least(&self, least: u64) -> Option<u64> {
        self.0.iter().find(|&&(_, last)| last >= least).map(|&(first, _)| first.max(least))
    }

    pub fn first(&self) -> Option<u64> {
        self.at_least(0)
    }

    pub fn last(&self) -> Option<u64> {
        self.0.last().map(|&(_, last)| last)
    }
}

impl FromIterator<RangeInclusive<u64>> for Numbers {
    /// The union of the ranges, which may overlap and be in any order.
    fn from_iter<I: IntoIterator<Item = RangeInclusive<u64>>>(ranges: I) -> Self {
        let mut all: Vec<_> = ranges
            .into_iter()
            .filter(|range| !range.is_empty())
            .map(RangeInclusive::into_inner)
            .collect();
        all.sort_unstable();
        let mut merged: Vec<(u64, u64)> = vec![];
        for (first, last) in all {
            match merged.last_mut() {
                Some(before) if before.1 >= first.saturating_sub(1) => {
                    before.1 = before.1.max(last)
                }
                _ => merged.push((first, last)),
            }
        }
        Numbers(merged)
    }
}

/// A set of IPv4 and IPv6 addresses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Addresses {
    /// Ranges of IPv4 addresses as integers (`Ipv4Addr::to_bits`).
    pub v4: Numbers,
    /// Ascending ranges of IPv6 addresses (`Ipv6Addr::to_bits`) that neither touch nor overlap.
    pub v6: Vec<(u128, u128)>,
}

impl Addresses {
    pub fn any() -> Self {
        Addresses { v4: Numbers::range(0..=u64::from(u32::MAX)), v6: vec![(0, u128::MAX)] }
    }

    pub fn none() -> Self {
        Addresses { v4: Numbers::none(), v6: vec![] }
    }

    /// The addresses from `first` to `last`; empty if these are of different families.
    pub fn range(first: IpAddr, last: IpAddr) -> Self {
        match (first, last) {
            (IpAddr::V4(first), IpAddr::V4(last)) => Addresses {
                v4: Numbers::range(first.to_bits().into()..=last.to_bits().into()),
                v6: vec![],
            },
            (IpAddr::V6(first), IpAddr::V6(last)) if first <= last => {
                Addresses { v4: Numbers::none(), v6: vec![(first.to_bits(), last.to_bits())] }
            }
            _ => Self::none(),
        }
    }

    pub fn union(&self, other: &Self) -> Self {
        Self::union_of([self, other])
    }

    /// The union of the sets.
    pub fn union_of<'a>(sets: impl IntoIterator<Item = &'a Self> + Clone) -> Self {
        let mut all: Vec<_> = sets.clone().into_iter().flat_map(|set| &set.v6).copied().collect();
        all.sort_unstable();
        let mut v6: Vec<(u128, u128)> = vec![];
        for (first, last) in all {
            match v6.last_mut() {
                Some(before) if before.1 >= first.saturating_sub(1) => {
                    before.1 = before.1.max(last)
                }
                _ => v6.push((first, last)),
            }
        }
        Addresses { v4: sets.into_iter().flat_map(|set| set.v4.ranges()).collect(), v6 }
    }

    pub fn complement(&self) -> Self {
        let mut v6 = vec![];
        let mut next = Some(0);
        for &(first, last) in &self.v6 {
            if let Some(from) = next
                && from < first
            {
                v6.push((from, first - 1));
            }
            next = last.checked_add(1);
        }
        if let Some(from) = next {
            v6.push((from, u128::MAX));
        }
        Addresses { v4: Self::any().v4.without(&self.v4), v6 }
    }

    pub fn without(&self, other: &Self) -> Self {
        self.complement().union(other).complement()
    }

    pub fn intersection(&self, other: &Self) -> Self {
        self.complement().union(&other.complement()).complement()
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.v4.contains(address.to_bits().into()),
            IpAddr::V6(address) => {
                let bits = address.to_bits();
                let after = self.v6.partition_point(|&(first, _)| first <= bits);
                after > 0 && self.v6[after - 1].1 >= bits
            }
        }
    }

    pub fn is_any(&self) -> bool {
        *self == Self::any()
    }

    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    pub fn v4_ranges(&self) -> impl Iterator<Item = RangeInclusive<Ipv4Addr>> + '_ {
        self.v4.ranges().map(|range| {
            Ipv4Addr::from(*range.start() as u32)..=Ipv4Addr::from(*range.end() as u32)
        })
    }

    pub fn v6_ranges(&self) -> impl Iterator<Item = RangeInclusive<Ipv6Addr>> + '_ {
        self.v6.iter().map(|&(first, last)| first.into()..=last.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_of_sets_has_the_members_of_the_first_only() {
        let ports =
            Numbers::range(1..=100).without(&Numbers::range(10..=20).union(&Numbers::one(50)));
        assert_eq!(ports.ranges().collect::<Vec<_>>(), [1..=9, 21..=49, 51..=100]);
        assert!(
            ports.contains(9) && !ports.contains(10) && !ports.contains(50) && !ports.contains(101)
        );
        assert_eq!(ports.at_least(10), Some(21));
        assert_eq!(Numbers::any().complement(), Numbers::none());
        assert!(Numbers::none().complement().is_any());
    }

    #[test]
    fn addresses_of_both_families_are_negated_together() {
        let home = Addresses::range("10.0.0.0".parse().unwrap(), "10.255.255.255".parse().unwrap());
        let external = home.complement();
        assert!(
            !external.contains("10.1.2.3".parse().unwrap())
                && external.contains("11.0.0.0".parse().unwrap())
        );
        assert!(external.contains("fe80::1".parse().unwrap()));
        assert!(home.union(&external).is_any() && home.intersection(&external).is_empty());
    }
}
