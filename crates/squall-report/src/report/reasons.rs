//! Counts by reason that are small where there is only one reason.

use std::{borrow::Cow, collections::BTreeMap, iter, ops::Index, slice};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Counts by reason, sorted by reason. The text in reports is that of a map, which would take 400
/// octets for each of a million streams that are late.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reasons(Vec<Count>);

type Count = (Cow<'static, str>, u64);

impl Reasons {
    pub fn get(&self, reason: &str) -> Option<&u64> {
        let at = self.0.binary_search_by(|(known, _)| known.as_ref().cmp(reason)).ok()?;
        Some(&self.0[at].1)
    }

    /// Adds `count` to that of `reason`.
    pub fn add(&mut self, reason: impl Into<Cow<'static, str>>, count: u64) {
        let reason = reason.into();
        match self.0.binary_search_by(|(known, _)| known.cmp(&reason)) {
            Ok(at) => self.0[at].1 += count,
            Err(at) => {
                // Most have one reason, for which a list that grows by itself has room for four.
                self.0.reserve_exact(1);
                self.0.insert(at, (reason, count));
            }
        }
    }

    pub fn values(&self) -> impl Iterator<Item = &u64> {
        self.0.iter().map(|(_, count)| count)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<R: Into<Cow<'static, str>>> FromIterator<(R, u64)> for Reasons {
    fn from_iter<I: IntoIterator<Item = (R, u64)>>(counts: I) -> Self {
        let mut all = Self::default();
        counts.into_iter().for_each(|(reason, count)| all.add(reason, count));
        all
    }
}

impl<const N: usize> From<[(String, u64); N]> for Reasons {
    fn from(counts: [(String, u64); N]) -> Self {
        counts.into_iter().collect()
    }
}

impl From<BTreeMap<String, u64>> for Reasons {
    fn from(counts: BTreeMap<String, u64>) -> Self {
        counts.into_iter().collect()
    }
}

impl<'a> IntoIterator for &'a Reasons {
    type Item = (&'a str, &'a u64);
    type IntoIter = iter::Map<slice::Iter<'a, Count>, fn(&'a Count) -> Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        let pair: fn(&'a Count) -> Self::Item = |(reason, count)| (reason.as_ref(), count);
        self.0.iter().map(pair)
    }
}

impl Index<&str> for Reasons {
    type Output = u64;

    /// # Panics
    /// If there is no such reason.
    fn index(&self, reason: &str) -> &u64 {
        self.get(reason).unwrap_or_else(|| panic!("no count has the reason {reason:?}"))
    }
}

impl Serialize for Reasons {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self)
    }
}

impl<'de> Deserialize<'de> for Reasons {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BTreeMap::deserialize(deserializer).map(|counts: BTreeMap<String, u64>| counts.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_by_reason_are_those_of_a_map_and_read_and_write_as_one() {
        let counts = [("no_host", 2), ("late", 1), ("link_down", 0), ("late", 4)];
        let mut map: BTreeMap<String, u64> = BTreeMap::new();
        counts.iter().for_each(|(reason, n)| *map.entry((*reason).into()).or_default() += n);
        let reasons: Reasons = counts.into_iter().collect();
        assert_eq!(reasons, Reasons::from(map.clone()));
        assert!(reasons.into_iter().eq(map.iter().map(|(reason, n)| (reason.as_str(), n))));
        assert_eq!((reasons.get("late"), reasons.get("x")), (Some(&5), None));
        assert_eq!(reasons["no_host"], 2);
        assert_eq!((reasons.len(), reasons.values().sum::<u64>()), (3, 7));
        let text = serde_json::to_string(&map).unwrap();
        assert_eq!(serde_json::to_string(&reasons).unwrap(), text);
        assert_eq!(serde_json::from_str::<Reasons>(&text).unwrap(), reasons);
    }
}
