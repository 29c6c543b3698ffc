//! The table of a stateful device: it passes frames of known entries, and frames of new entries
//! while there is room.
//!
//! Parses only an entry's key from a frame, with its own code: this crate does not depend on header
//! definitions (docs/architecture.md).

use std::{
    collections::{BTreeSet, HashMap},
    hash::Hash,
};

use squall_units::{Nanos, get_be16};

use super::Counts;

/// Maximum number of entries, and the time without frames after which an entry expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableSize {
    pub entries: usize,
    /// `None`: entries never expire.
    pub idle: Option<Nanos>,
}

/// Entries, each with the time of its last frame. Expiry is exact: an entry is removed `idle` after
/// its last frame.
#[derive(Clone, Debug)]
pub struct Table<K> {
    size: TableSize,
    last: HashMap<K, Nanos>,
    /// The same entries by age, because expiry must not scan all of them; empty if entries never
    /// expire.
    by_age: BTreeSet<(Nanos, K)>,
    now: Nanos,
    counts: Counts,
}

impl<K: Copy + Ord + Hash> Table<K> {
    pub fn new(size: TableSize) -> Self {
        let (last, by_age, now, counts) = Default::default();
        Self { size, last, by_age, now, counts }
    }

    /// Whether a frame with `key` that arrives at `now` passes. A frame that is earlier than the
    /// one before it (from another queue) counts as simultaneous.
    pub fn takes(&mut self, now: Nanos, key: K) -> bool {
        self.now = self.now.max(now);
        self.forget();
        self.counts.frames += 1;
        if !self.last.contains_key(&key) && self.last.len() >= self.size.entries {
            self.counts.dropped += 1;
            return false;
        }
        let before = self.last.insert(key, self.now);
        if self.size.idle.is_some() {
            before.map(|before| self.by_age.remove(&(before, key)));
            self.by_age.insert((self.now, key));
        }
        true
    }

    fn forget(&mut self) {
        let Some(idle) = self.size.idle else { return };
        while let Some(&(last, key)) = self.by_age.first()
            && last + idle <= self.now
        {
            self.by_age.pop_first();
            self.last.remove(&key);
        }
    }

    /// Removes all entries; the counts continue.
    pub fn clear(&mut self) {
        self.last.clear();
        self.by_age.clear();
    }

    pub fn len(&self) -> usize {
        self.last.len()
    }

    pub fn is_empty(&self) -> bool {
        self.last.is_empty()
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }
}

/// The 5-tuple of a frame, in one direction: the reverse direction has another. Ports are 0 if the
/// protocol has none, and in fragments after the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow {
    addresses: [[u8; 16]; 2],
    protocol: u8,
    ports: [u16; 2],
}

impl Flow {
    /// `None` if the frame has no complete IP header.
    pub fn of(frame: &[u8]) -> Option<Self> {
        let (ether_type, packet) = untagged(frame)?;
        match ether_type {
            0x0800 => Self::of_ipv4(packet),
            0x86dd => Self::of_ipv6(packet),
            _ => None,
        }
    }

    fn of_ipv4(packet: &[u8]) -> Option<Self> {
        let header = packet.get(..20)?;
        let address = |at: usize| {
            let mut address = [0; 16];
            address[..4].copy_from_slice(&header[at..at + 4]);
            address
        };
        let protocol = header[9];
        // The fragment offset matters, because only the first fragment has ports (RFC 791).
        let first = get_be16(header, 6)? & 0x1fff == 0;
        let segment = packet.get(usize::from(header[0] & 15) * 4..)?;
        let ports = if first { ports(protocol, segment) } else { [0; 2] };
        Some(Self { addresses: [address(12), address(16)], protocol, ports })
    }

    fn of_ipv6(packet: &[u8]) -> Option<Self> {
        let header = packet.get(..40)?;
        let address = |at: usize| <[u8; 16]>::try_from(&header[at..at + 16]).ok();
        let addresses = [address(8)?, address(24)?];
        let (mut protocol, mut rest, mut first) = (header[6], &packet[40..], true);
        loop {
            let len = match protocol {
                // Hop-by-hop options, routing, destination options (RFC 8200 section 4).
                0 | 43 | 60 => 8 + 8 * usize::from(*rest.get(1)?),
                // A fragment header: the fragment offset is in the upper 13 bits (RFC 8200 section
                // 4.5).
                44 => {
                    first &= get_be16(rest, 2)? & 0xfff8 == 0;
                    8
                }
                _ => break,
            };
            (protocol, rest) = (rest[0], rest.get(len..)?);
        }
        let ports = if first { ports(protocol, rest) } else { [0; 2] };
        Some(Self { addresses, protocol, ports })
    }
}

/// Source address of an Ethernet frame.
pub fn source_mac(frame: &[u8]) -> Option<[u8; 6]> {
    frame.get(6..12)?.try_into().ok()
}

/// EtherType after VLAN tags, and the octets after it.
fn untagged(frame: &[u8]) -> Option<(u16, &[u8])> {
    let mut at = 12;
    loop {
        match get_be16(frame, at)? {
            // 802.1Q, 802.1ad, and the type that devices used for stacked tags before 802.1ad.
            0x8100 | 0x88a8 | 0x9100 => at += 4,
            ether_type => return Some((ether_type, &frame[at + 2..])),
        }
    }
}

/// Ports of TCP, UDP, DCCP, SCTP or UDP-Lite.
fn ports(protocol: u8, segment: &[u8]) -> [u16; 2] {
    let has_ports = matches!(protocol, 6 | 17 | 33 | 132 | 136);
    let port = |at| get_be16(segment, at).filter(|_| has_ports).unwrap_or(0);
    [port(0), port(2)]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn table(entries: usize, idle: Option<u64>) -> Table<u32> {
        Table::new(TableSize { entries, idle: idle.map(Nanos) })
    }

    #[test]
    fn a_full_table_takes_frames_of_its_entries_and_of_no_other() {
        let mut table = table(3, None);
        let taken: Vec<bool> =
            [1, 2, 1, 3, 4, 2, 4, 1].map(|key| table.takes(Nanos(7), key)).into();
        assert_eq!(taken, [true, true, true, true, false, true, false, true]);
        assert_eq!(table.counts(), Counts { frames: 8, dropped: 2 });
        table.clear();
        assert!(table.takes(Nanos(7), 4));
        assert_eq!((table.len(), table.counts().frames), (1, 9));
    }

    #[test]
    fn an_entry_is_gone_when_it_was_idle_for_the_time_and_not_before() {
        let mut table = table(2, Some(100));
        let mut takes = |now, key| table.takes(Nanos(now), key);
        assert!(takes(0, 1) && takes(10, 2) && !takes(99, 3));
        assert!(takes(100, 3), "1 is gone");
        assert!(takes(109, 2) && !takes(199, 1), "2 was used again");
        assert!(takes(200, 1) && !takes(208, 4) && takes(209, 4));
    }

    /// Ethernet, `tags` VLAN tags, and `packet`.
    fn frame(tags: usize, ether_type: u16, packet: &[u8]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        (0..tags).for_each(|_| frame.extend([0x81, 0, 0, 5]));
        frame.extend(ether_type.to_be_bytes());
        frame.extend(packet);
        frame
    }

    /// A packet from 10.0.0.1 to 10.0.0.2, ports 1 and `port`, with 4 octets of options.
    fn ipv4(protocol: u8, fragment: u16, port: u16) -> Vec<u8> {
        let mut packet = vec![0x46, 0, 0, 60, 0, 0];
        packet.extend(fragment.to_be_bytes());
        packet.extend([64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 1, 1, 1, 1, 0, 1]);
        packet.extend(port.to_be_bytes());
        packet
    }

    /// A packet with the headers `before` (number, octets), then UDP of ports 1 and `port`.
    fn ipv6(before: &[(u8, [u8; 8])], port: u16) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, 20];
        packet.push(before.first().map_or(17, |(number, _)| *number));
        packet.push(64);
        packet.extend([1; 32]);
        for (i, (_, octets)) in before.iter().enumerate() {
            packet.push(before.get(i + 1).map_or(17, |(number, _)| *number));
            packet.extend(&octets[1..]);
        }
        packet.extend([0, 1]);
        packet.extend(port.to_be_bytes());
        packet
    }

    #[test]
    fn a_flow_is_its_5_tuple_with_any_tags_options_and_extension_headers() {
        let flow = |tags, ether_type, packet: &[u8]| Flow::of(&frame(tags, ether_type, packet));
        let udp = flow(0, 0x800, &ipv4(17, 0, 9)).unwrap();
        assert_eq!((udp.protocol, udp.ports), (17, [1, 9]));
        assert_eq!(udp.addresses.map(|a| a[3]), [1, 2]);
        assert_eq!(flow(2, 0x800, &ipv4(17, 0, 9)), Some(udp));
        for other in [ipv4(17, 0, 10), ipv4(6, 0, 9), ipv4(17, 0x2001, 9)] {
            assert_ne!(flow(0, 0x800, &other), Some(udp));
        }
        // Fragments after the first have no ports, and neither has ICMP.
        assert_eq!(flow(0, 0x800, &ipv4(17, 0x2001, 9)).unwrap().ports, [0, 0]);
        assert_eq!(flow(0, 0x800, &ipv4(1, 0, 9)).unwrap().ports, [0, 0]);

        let plain = flow(0, 0x86dd, &ipv6(&[], 9)).unwrap();
        assert_eq!((plain.protocol, plain.ports), (17, [1, 9]));
        let options = [(0, [0; 8]), (60, [0; 8]), (44, [0; 8])];
        assert_eq!(flow(1, 0x86dd, &ipv6(&options, 9)), Some(plain));
        let later = [(44, [0, 0, 0, 8, 0, 0, 0, 0])];
        assert_eq!(flow(0, 0x86dd, &ipv6(&later, 9)).unwrap().ports, [0, 0]);
    }

    #[test]
    fn a_frame_without_ip_or_cut_off_has_no_flow() {
        assert_eq!(Flow::of(&frame(0, 0x806, &[0; 46])), None);
        let whole = frame(1, 0x86dd, &ipv6(&[(0, [0; 8])], 9));
        // 18 octets of Ethernet and tag, 40 of IPv6, 8 of options: a shorter frame has no flow.
        for len in 0..whole.len() {
            assert_eq!(Flow::of(&whole[..len]).is_some(), len >= 18 + 40 + 8, "{len}");
        }
        assert_eq!(source_mac(&[1; 11]), None);
        assert_eq!(source_mac(&whole), Some([2; 6]));
    }

    proptest! {
        /// The naive definition, which compares with all entries each time.
        #[test]
        fn a_table_does_as_one_that_looks_at_every_entry(
            size in 1..6usize,
            idle in prop::option::of(1..40u64),
            frames in prop::collection::vec((0..20u64, 0..9u32), 1..200),
        ) {
            let (mut table, mut plain, mut now) = (table(size, idle), HashMap::new(), 0);
            for (gap, key) in frames {
                now += gap;
                plain.retain(|_, last| idle.is_none_or(|idle| now - *last < idle));
                let taken = plain.contains_key(&key) || plain.len() < size;
                if taken {
                    plain.insert(key, now);
                }
                prop_assert_eq!(table.takes(Nanos(now), key), taken);
                prop_assert_eq!(table.len(), plain.len());
            }
        }

        #[test]
        fn no_octets_make_the_reader_panic(octets in prop::collection::vec(any::<u8>(), 0..120), ip in 0..3usize) {
            let mut octets = octets;
            if octets.len() > 14 {
                octets[12..14].copy_from_slice(&[[8, 0], [0x86, 0xdd], [0x81, 0]][ip]);
            }
            let _ = (Flow::of(&octets), source_mac(&octets));
        }
    }
}
