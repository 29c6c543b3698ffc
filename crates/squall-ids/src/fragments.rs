//! Fragments of IP to whole packets.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use squall_units::Nanos;

/// Packets that wait for fragments, at most; the oldest is forgotten.
const PACKETS: usize = 1024;
/// A packet waits for its fragments for so long (Suricata's `defrag.timeout`).
const TIMEOUT_NS: u64 = 60_000_000_000;

pub(crate) struct Fragment<'a> {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub protocol: u8,
    pub id: u32,
    /// In octets.
    pub offset: usize,
    pub more: bool,
    /// Of the IP header.
    pub header: &'a [u8],
    pub octets: &'a [u8],
}

type Key = (IpAddr, IpAddr, u8, u32);

#[derive(Default)]
pub(crate) struct Fragments {
    waiting: HashMap<Key, Waiting>,
}

struct Waiting {
    since: Nanos,
    /// Of the first fragment.
    header: Vec<u8>,
    /// By their offset; none covers octets of another.
    parts: BTreeMap<usize, Vec<u8>>,
    /// Known once the last fragment was there.
    length: Option<usize>,
}

impl Fragments {
    /// The header and the octets of the packet that `fragment` completes.
    pub fn add(&mut self, at: Nanos, fragment: Fragment<'_>) -> Option<(Vec<u8>, Vec<u8>)> {
        let end = fragment.offset.checked_add(fragment.octets.len()).filter(|&end| end <= 65_535)?;
        let key = (fragment.source, fragment.destination, fragment.protocol, fragment.id);
        if self.waiting.len() >= PACKETS && !self.waiting.contains_key(&key) {
            self.forget(at);
        }
        let waiting = self.waiting.entry(key).or_insert_with(|| Waiting::new(at));
        if at.0.saturating_sub(waiting.since.0) > TIMEOUT_NS {
            *waiting = Waiting::new(at);
        }
        if fragment.offset == 0 {
            waiting.header = fragment.header.to_vec();
        }
        if !fragment.more {
            waiting.length = Some(end);
        }
        waiting.insert(fragment.offset, fragment.octets);
        let whole = waiting.whole()?;
        let header = std::mem::take(&mut waiting.header);
        self.waiting.remove(&key);
        Some((header, whole))
    }

    fn forget(&mut self, at: Nanos) {
        self.waiting.retain(|_, waiting| at.0.saturating_sub(waiting.since.0) <= TIMEOUT_NS);
        if self.waiting.len() >= PACKETS
            && let Some(oldest) =
                self.waiting.iter().min_by_key(|(key, waiting)| (waiting.since, **key)).map(|(key, _)| *key)
        {
            self.waiting.remove(&oldest);
        }
    }
}

impl Waiting {
    fn new(since: Nanos) -> Self {
        Waiting { since, header: vec![], parts: BTreeMap::new(), length: None }
    }

    /// What came first stays, but where the new fragment begins before an old one: Suricata's policy of BSD, its default.
    fn insert(&mut self, offset: usize, octets: &[u8]) {
        let end = offset + octets.len();
        let overlapping: Vec<usize> =
            self.parts.range(..end).filter(|(at, part)| *at + part.len() > offset).map(|(at, _)| *at).collect();
        let (mut from, mut cut) = (offset, vec![]);
        for at in overlapping {
            let part = self.parts[&at].len();
            if at <= offset {
                from = from.max(at + part);
            } else if at + part > end {
                // Its beginning is overwritten.
                if let Some(old) = self.parts.remove(&at) {
                    cut.push((end, old[end - at..].to_vec()));
                }
            } else {
                self.parts.remove(&at);
            }
        }
        self.parts.extend(cut);
        if from < end {
            self.parts.insert(from, octets[from - offset..].to_vec());
        }
    }

    fn whole(&self) -> Option<Vec<u8>> {
        let length = self.length?;
        if self.header.is_empty() {
            return None;
        }
        let mut whole = Vec::with_capacity(length);
        for (&at, part) in &self.parts {
            if at != whole.len() {
                return None;
            }
            whole.extend_from_slice(part);
        }
        (whole.len() >= length).then(|| {
            whole.truncate(length);
            whole
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragment(offset: usize, octets: &[u8], more: bool) -> Fragment<'_> {
        Fragment {
            source: "10.0.0.1".parse().unwrap(),
            destination: "10.0.0.2".parse().unwrap(),
            protocol: 17,
            id: 7,
            offset,
            more,
            header: &[0x45; 20],
            octets,
        }
    }

    #[test]
    fn fragments_in_any_order_make_the_packet_when_the_last_is_there() {
        let mut fragments = Fragments::default();
        assert!(fragments.add(Nanos(0), fragment(16, b"end", false)).is_none());
        assert!(fragments.add(Nanos(1), fragment(0, b"01234567", true)).is_none());
        let (_, whole) = fragments.add(Nanos(2), fragment(8, b"89abcdef", true)).unwrap();
        assert_eq!(whole, b"0123456789abcdefend");
        assert!(fragments.waiting.is_empty());
    }

    #[test]
    fn what_came_first_stays_but_for_what_begins_later_than_the_new() {
        let mut fragments = Fragments::default();
        fragments.add(Nanos(0), fragment(8, b"BBBBBBBB", true));
        fragments.add(Nanos(0), fragment(0, b"aaaaaaaaaaaaaaaa", true));
        let (_, whole) = fragments.add(Nanos(0), fragment(8, b"cccccccccccc", false)).unwrap();
        assert_eq!(whole, b"aaaaaaaaaaaaaaaacccc");
    }
}
