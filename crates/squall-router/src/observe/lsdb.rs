//! The LSAs and LSPs that a router has received, as they came.

use std::collections::BTreeMap;

use squall_units::{Nanos, get_be16};

use super::{Lsa, Lsas, Protocol};

/// Octets that a database keeps at most.
const MOST: usize = 64 << 20;
/// Age in seconds at which an LSA is no longer valid (RFC 2328 section B).
const MAX_AGE: u16 = 3_600;

/// Entries by their type and identifier, which is unique in an area.
#[derive(Clone, Debug, Default)]
pub struct Database {
    entries: BTreeMap<(u8, Vec<u8>), Entry>,
    octets: usize,
    /// Entries that found no room.
    pub not_kept: u64,
}

/// An LSA or LSP with its header, and when it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Type of the LSA; level of the LSP.
    pub kind: u8,
    pub octets: Vec<u8>,
    pub received: Nanos,
}

impl Database {
    /// Takes over the LSAs of a packet of OSPF.
    pub fn ospf(&mut self, now: Nanos, packet: &[u8]) {
        for Lsa { kind, octets } in Lsas::of(packet) {
            // Link state ID and advertising router.
            let key = (kind, octets[4..12].to_vec());
            let is_valid = u16::from_be_bytes([octets[0] & 0x7f, octets[1]]) < MAX_AGE;
            // Sequence numbers are signed, and begin with the smallest (RFC 2328 section 12.1.6).
            let sequence =
                |octets: &[u8]| octets.get(12..16).map(|it| [it[0] ^ 0x80, it[1], it[2], it[3]]);
            if self.entries.get(&key).is_some_and(|old| sequence(&old.octets) > sequence(octets)) {
                continue;
            }
            self.set(key, is_valid.then_some((now, octets)));
        }
    }

    /// Takes over a packet of IS-IS, if it is an LSP.
    pub fn isis(&mut self, now: Nanos, packet: &[u8]) {
        let level = match packet.get(4).map(|kind| kind & 31) {
            Some(18) => 1,
            Some(20) => 2,
            _ => return,
        };
        // Remaining lifetime, and identifier.
        let Some((lifetime, id)) = packet.get(10..12).zip(packet.get(12..20)) else { return };
        let key = (level, id.to_vec());
        let sequence = |octets: &[u8]| octets.get(20..24).map(<[u8]>::to_vec);
        if self.entries.get(&key).is_some_and(|old| sequence(&old.octets) > sequence(packet)) {
            return;
        }
        self.set(key, (lifetime != [0, 0]).then_some((now, packet)));
    }

    /// Ends LSAs that have reached their age, and LSPs whose lifetime is over.
    pub fn expire(&mut self, now: Nanos, protocol: Protocol) {
        let octets = &mut self.octets;
        self.entries.retain(|_, entry| {
            let since = now.saturating_sub(entry.received).0 / Nanos::SECOND.0;
            let word = |at: usize| u64::from(get_be16(&entry.octets, at).unwrap_or(0));
            let is_valid = match protocol {
                Protocol::Isis => since < word(10),
                _ => (word(0) & 0x7fff) + since < MAX_AGE.into(),
            };
            *octets -= if is_valid { 0 } else { entry.octets.len() };
            is_valid
        });
    }

    /// The entries, by type and identifier.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// Takes over the newest instance; `None`: it has ended.
    fn set(&mut self, key: (u8, Vec<u8>), entry: Option<(Nanos, &[u8])>) {
        if let Some(before) = self.entries.remove(&key) {
            self.octets -= before.octets.len();
        }
        let Some((received, octets)) = entry else { return };
        if self.octets + octets.len() > MOST {
            self.not_kept += 1;
            return;
        }
        self.octets += octets.len();
        let kind = key.0;
        self.entries.insert(key, Entry { kind, octets: octets.to_vec(), received });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::tests::update;

    fn ages(database: &Database) -> Vec<(u8, u8)> {
        database.iter().map(|entry| (entry.kind, entry.octets[1])).collect()
    }

    #[test]
    fn the_newest_instance_of_an_lsa_is_kept_until_it_ends() {
        let mut database = Database::default();
        // LSAs begin after the header of the packet and their number.
        let give = |database: &mut Database, sequence: u8, age: [u8; 2]| {
            let mut packet = update(&[(5, 36)]);
            packet[28..30].copy_from_slice(&age);
            (packet[28 + 12], packet[28 + 15]) = (0x80, sequence);
            database.ospf(Nanos(7), &packet);
        };
        give(&mut database, 2, [0, 5]);
        give(&mut database, 1, [0, 6]);
        assert_eq!(ages(&database), [(5, 5)], "an older instance");
        give(&mut database, 3, [0, 7]);
        assert_eq!(ages(&database), [(5, 7)]);
        database.ospf(Nanos(7), &update(&[(1, 24)]));
        assert_eq!(ages(&database), [(1, 0), (5, 7)]);
        give(&mut database, 3, 3_600_u16.to_be_bytes());
        assert_eq!(ages(&database), [(1, 0)]);
        assert_eq!(database.octets, 24);
    }

    #[test]
    fn entries_end_with_their_time() {
        let at = |seconds: u64| Nanos(seconds * Nanos::SECOND.0);
        let mut database = Database::default();
        let mut packet = update(&[(5, 36)]);
        packet[28..30].copy_from_slice(&600_u16.to_be_bytes());
        database.ospf(at(7), &packet);
        for (now, left) in [(3_006, 1), (3_007, 0)] {
            database.expire(at(now), Protocol::Ospf2);
            assert_eq!((database.iter().count(), database.octets), (left, 36 * left));
        }
        let mut lsp = [0; 27];
        (lsp[4], lsp[11]) = (18, 9);
        database.isis(at(7), &lsp);
        for (now, left) in [(15, 1), (16, 0)] {
            database.expire(at(now), Protocol::Isis);
            assert_eq!((database.iter().count(), database.octets), (left, 27 * left));
        }
    }

    #[test]
    fn the_newest_instance_of_an_lsp_is_kept_until_it_ends() {
        let mut database = Database::default();
        let give = |database: &mut Database, kind: u8, sequence: u8, lifetime: u8| {
            let mut packet = [0; 27];
            (packet[4], packet[11], packet[23]) = (kind, lifetime, sequence);
            database.isis(Nanos(7), &packet);
        };
        let lifetimes = |database: &Database| -> Vec<(u8, u8)> {
            database.iter().map(|entry| (entry.kind, entry.octets[11])).collect()
        };
        give(&mut database, 18, 2, 9);
        give(&mut database, 18, 1, 8);
        give(&mut database, 20, 1, 7);
        give(&mut database, 24, 9, 9);
        assert_eq!(lifetimes(&database), [(1, 9), (2, 7)]);
        give(&mut database, 18, 2, 0);
        assert_eq!(lifetimes(&database), [(2, 7)]);
        database.isis(Nanos(7), &[0, 0, 0, 0, 20]);
        assert_eq!(lifetimes(&database), [(2, 7)]);
    }
}
