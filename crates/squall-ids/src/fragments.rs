//! Reassembles IP fragments.

use std::collections::HashMap;
use std::net::IpAddr;

use squall_units::Nanos;

/// Maximum number of incomplete packets. Beyond it, the oldest is dropped.
const MAX_PACKETS: usize = 1024;
/// Time for which an incomplete packet is kept: Suricata's `defrag.timeout`.
const TIMEOUT_NS: u64 = 60_000_000_000;

pub(crate) struct Fragment<'a> {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub protocol: u8,
    pub id: u32,
    /// Offset in octets.
    pub offset: usize,
    pub more: bool,
    /// The IP header.
    pub header: &'a [u8],
    pub octets: &'a [u8],
}

type Key = (IpAddr, IpAddr, u8, u32);

#[derive(Default)]
pub(crate) struct Fragments {
    policy: Policy,
    waiting: HashMap<Key, Waiting>,
}

struct Waiting {
    since: Nanos,
    /// The header of the first fragment.
    header: Vec<u8>,
    /// Sorted by offset. Parts with the same offset are in order of arrival.
    parts: Vec<Part>,
    /// Offset of the last fragment, once that was accepted.
    last: Option<usize>,
}

/// A fragment that is kept.
struct Part {
    offset: usize,
    octets: Vec<u8>,
    /// Number of leading octets that an earlier fragment already has.
    trimmed: usize,
}

impl Part {
    fn end(&self) -> usize {
        self.offset + self.octets.len()
    }
}

/// Which data is kept where fragments overlap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Policy {
    /// BSD, Suricata's default: the fragment with the lower offset is kept or, at equal offsets,
    /// the earlier one. A last fragment without data of its own is dropped, and with it the end of
    /// the packet, which stays incomplete.
    #[default]
    Bsd,
    /// Linux, Snort's default: the fragment with the lower offset is kept. The end of the packet is
    /// recorded even if the last fragment's data is dropped.
    Linux,
}

impl Fragments {
    pub fn new(policy: Policy) -> Self {
        Fragments { policy, waiting: HashMap::new() }
    }

    /// Adds a fragment. If that completes a packet, returns the packet's header and data.
    pub fn add(&mut self, at: Nanos, fragment: Fragment<'_>) -> Option<(Vec<u8>, Vec<u8>)> {
        fragment.offset.checked_add(fragment.octets.len()).filter(|&end| end <= 65_535)?;
        let key = (fragment.source, fragment.destination, fragment.protocol, fragment.id);
        if self.waiting.len() >= MAX_PACKETS && !self.waiting.contains_key(&key) {
            self.forget(at);
        }
        let waiting = self.waiting.entry(key).or_insert_with(|| Waiting::new(at));
        if at.0.saturating_sub(waiting.since.0) > TIMEOUT_NS {
            *waiting = Waiting::new(at);
        }
        if fragment.offset == 0 {
            waiting.header = fragment.header.to_vec();
        }
        waiting.insert(&fragment, self.policy);
        let whole = waiting.whole()?;
        let header = std::mem::take(&mut waiting.header);
        self.waiting.remove(&key);
        Some((header, whole))
    }

    fn forget(&mut self, at: Nanos) {
        self.waiting.retain(|_, waiting| at.0.saturating_sub(waiting.since.0) <= TIMEOUT_NS);
        if self.waiting.len() >= MAX_PACKETS
            && let Some(oldest) = self
                .waiting
                .iter()
                .min_by_key(|(key, waiting)| (waiting.since, **key))
                .map(|(key, _)| *key)
        {
            self.waiting.remove(&oldest);
        }
    }
}

impl Waiting {
    fn new(since: Nanos) -> Self {
        Waiting { since, header: vec![], parts: vec![], last: None }
    }

    fn insert(&mut self, fragment: &Fragment<'_>, policy: Policy) {
        let (offset, end) = (fragment.offset, fragment.offset + fragment.octets.len());
        let stays = |part: &Part| match policy {
            Policy::Bsd => part.offset <= offset,
            Policy::Linux => part.offset < offset,
        };
        if policy == Policy::Linux && !fragment.more {
            self.last = Some(offset);
        }
        // Only the first fragment that extends beyond the start of this one matters.
        let mut trimmed = 0;
        if let Some(at) = self.parts.iter().position(|part| offset < part.end()) {
            let part = &self.parts[at];
            if stays(part) {
                if part.end() >= end {
                    return;
                }
                trimmed = part.end() - offset;
            } else if end > part.offset + part.trimmed {
                let part = &mut self.parts[at];
                part.trimmed = part.trimmed.max(end - part.offset);
            }
            if let Some(next) = self.parts.get_mut(at + 1).filter(|next| end > next.offset) {
                next.trimmed = end - next.offset;
            }
            self.parts.retain(|part| part.trimmed < part.octets.len());
        }
        let offset = offset + trimmed;
        if offset == end {
            return;
        }
        let at = self.parts.partition_point(|part| part.offset <= offset);
        self.parts
            .insert(at, Part { offset, octets: fragment.octets[trimmed..].to_vec(), trimmed: 0 });
        if !fragment.more {
            self.last = Some(offset);
        }
    }

    fn whole(&self) -> Option<Vec<u8>> {
        let last = self.last.filter(|_| !self.header.is_empty())?;
        let mut whole = vec![];
        for part in self.parts.iter().take_while(|part| part.offset <= last) {
            if part.offset > whole.len() {
                return None;
            }
            // Skip the octets that an earlier fragment already has.
            let from = part.offset + part.trimmed;
            whole.resize(whole.len().max(part.end()), 0);
            whole[from..part.end()].copy_from_slice(&part.octets[part.trimmed..]);
        }
        Some(whole)
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
    fn the_first_fragment_stays_unless_it_begins_later() {
        let mut fragments = Fragments::default();
        fragments.add(Nanos(0), fragment(8, b"BBBBBBBB", true));
        fragments.add(Nanos(0), fragment(0, b"aaaaaaaaaaaaaaaa", true));
        let (_, whole) = fragments.add(Nanos(0), fragment(8, b"cccccccccccc", false)).unwrap();
        assert_eq!(whole, b"aaaaaaaaaaaaaaaacccc");
    }

    #[test]
    fn a_last_fragment_without_octets_of_its_own_never_ends_a_packet_but_for_snort() {
        for (policy, ends) in [(Policy::Bsd, false), (Policy::Linux, true)] {
            let mut fragments = Fragments::new(policy);
            fragments.add(Nanos(0), fragment(0, b"aaaaaaaabbbbbbbb", true));
            let whole = fragments.add(Nanos(0), fragment(8, b"bbbbbbbb", false));
            assert_eq!(whole.is_some(), ends, "{policy:?}");
        }
    }

    #[test]
    fn fragments_that_overlap_or_come_twice_are_put_together() {
        let mut fragments = Fragments::default();
        fragments.add(Nanos(0), fragment(0, b"0123456789abcdef", true));
        fragments.add(Nanos(0), fragment(0, b"0123456789abcdef", true));
        fragments.add(Nanos(0), fragment(8, b"89abcdefghijklmn", true));
        let (_, whole) = fragments.add(Nanos(0), fragment(16, b"ghijklmnop", false)).unwrap();
        assert_eq!(whole, b"0123456789abcdefghijklmnop");
    }
}
