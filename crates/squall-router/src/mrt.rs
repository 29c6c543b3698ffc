//! Tables of routes in MRT files (RFC 6396, RFC 8050), as route collectors write them.
//!
//! A file has each route from many peers. The reader keeps the prefixes of one of them, and skips
//! the attributes of all by their length, unless those of that peer are wanted.

mod attributes;

use std::{
    collections::{HashMap, HashSet},
    fmt,
    io::{self, Read},
    net::IpAddr,
    sync::Arc,
};

use crate::Prefix;

pub use attributes::{MrtAttributes, MrtSegment};

/// The routes of one peer of a route collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MrtRoutes {
    pub peer: MrtPeer,
    /// Different prefixes, in the order of the file.
    pub prefixes: Vec<Prefix>,
}

/// The routes of one peer with their attributes. Routes with equal ones are a set, and follow each
/// other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MrtTable {
    pub peer: MrtPeer,
    /// Different prefixes, by set; the prefixes of a set are in the order of the file.
    prefixes: Vec<Prefix>,
    sets: Vec<MrtSet>,
    /// Routes that are left out, because their attributes are malformed or too long.
    pub left_out: u64,
}

/// Routes with equal attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MrtSet {
    /// As [`attributes::kept`] makes them.
    octets: Arc<[u8]>,
    /// The end of its prefixes.
    end: u32,
}

impl MrtTable {
    /// All prefixes, those of the first set first.
    pub fn prefixes(&self) -> &[Prefix] {
        &self.prefixes
    }

    /// Number of sets.
    pub fn sets(&self) -> usize {
        self.sets.len()
    }

    /// The prefixes of a set, by its number.
    pub fn of_set(&self, set: usize) -> &[Prefix] {
        let begin = set.checked_sub(1).map_or(0, |before| self.sets[before].end);
        &self.prefixes[begin as usize..self.sets[set].end as usize]
    }

    /// The attributes of a set.
    pub fn attributes(&self, set: usize) -> MrtAttributes {
        MrtAttributes::of(&self.sets[set].octets).expect("they were checked when they were read")
    }

    /// The set that has a prefix, by the index of the prefix.
    pub fn set_of(&self, prefix: u32) -> usize {
        self.sets.partition_point(|set| set.end <= prefix)
    }
}

/// A peer of a route collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MrtPeer {
    /// Its number in the file, from 0.
    pub index: u16,
    pub address: IpAddr,
    pub asn: u32,
}

impl fmt::Display for MrtPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "peer {}, {} in AS {}", self.index, self.address, self.asn)
    }
}

/// Why a file has no table of routes.
#[derive(Debug, thiserror::Error)]
pub enum MrtError {
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error("octet {at}: this is no record of MRT (RFC 6396)")]
    NotMrt { at: u64 },
    #[error("octet {at}: the file ends within a record")]
    Cut { at: u64 },
    #[error("octet {at}: a record of type {kind}, subtype {subtype} is malformed")]
    Malformed { at: u64, kind: u16, subtype: u16 },
    #[error("octet {at}: a record has {length} octets; at most {MAX_RECORD} are read")]
    TooLong { at: u64, length: u32 },
    #[error("it has no table of routes (TABLE_DUMP_V2), only other records")]
    NoTable,
    #[error("it has no routes of IPv4 or IPv6")]
    NoRoutes,
    #[error("it has no routes of peer {peer}; its peers are 0 to {last}")]
    NoPeer { peer: u16, last: usize },
    #[error("it has more than {MAX_ROUTES} routes, or too many routes times peers or attributes")]
    TooLarge,
}

/// Octets of a record. The record of a route with 60 peers has about 10,000.
const MAX_RECORD: u32 = 16 << 20;
/// Tables have about a million routes.
const MAX_ROUTES: usize = 10_000_000;
/// Octets of the bits that say which peers have a route.
const MAX_BITS: usize = 512 << 20;
/// Octets of all different attributes. A million routes have about 20 MB.
const MAX_ATTRIBUTES: usize = 256 << 20;
/// Octets of a record's header (RFC 6396 section 2).
const HEADER: u64 = 12;
/// Types of records (RFC 6396 section 4, RFC 6397), of which TABLE_DUMP_V2 is read.
const TYPES: [u16; 9] = [11, 12, TABLE_DUMP_V2, 16, 17, 32, 33, 48, 49];
const TABLE_DUMP_V2: u16 = 13;
/// Subtypes of TABLE_DUMP_V2 (RFC 6396 section 4.3, RFC 8050 section 4).
const PEER_INDEX_TABLE: u16 = 1;
const RIB_IPV4_UNICAST: u16 = 2;
const RIB_IPV6_UNICAST: u16 = 4;
const RIB_IPV4_UNICAST_ADDPATH: u16 = 8;
const RIB_IPV6_UNICAST_ADDPATH: u16 = 10;

/// The unicast routes of peer `peer` in a file, by default of the peer with most routes: at most
/// the first `most` of them.
///
/// # Errors
/// The file is damaged, is no MRT file, has no such routes, or is too large.
pub fn read(
    source: impl Read,
    peer: Option<u16>,
    most: Option<u32>,
) -> Result<MrtRoutes, MrtError> {
    let most = most.map_or(usize::MAX, |most| most as usize);
    table(source, peer, most, false)?.of_one_peer(most)
}

/// The unicast routes of peer `peer` in a file with their attributes: at most the first `most` of
/// them.
///
/// # Errors
/// As [`read`].
pub fn read_table(source: impl Read, peer: u16, most: Option<u32>) -> Result<MrtTable, MrtError> {
    let most = most.map_or(usize::MAX, |most| most as usize);
    table(source, Some(peer), most, true)?.with_attributes(peer, most)
}

/// Reads the records of a file; with `peer`, until it has `most` routes.
fn table(
    source: impl Read,
    peer: Option<u16>,
    most: usize,
    has_attributes: bool,
) -> Result<Table, MrtError> {
    let mut records = Records { source, at: 0, next: 0, kind: 0, subtype: 0, body: Vec::new() };
    let mut table: Option<Table> = None;
    while records.advance()? {
        if records.kind != TABLE_DUMP_V2 {
            continue;
        }
        let malformed = || records.malformed();
        match (records.subtype, &mut table) {
            // Another table, as in files that were put together, belongs to another dump.
            (PEER_INDEX_TABLE, Some(_)) => break,
            (PEER_INDEX_TABLE, None) => {
                let peers = peers(&records.body).ok_or_else(malformed)?;
                let sets = has_attributes.then(Sets::default);
                table = Some(Table { sets, ..Table::new(peers, peer) });
            }
            (
                RIB_IPV4_UNICAST
                | RIB_IPV6_UNICAST
                | RIB_IPV4_UNICAST_ADDPATH
                | RIB_IPV6_UNICAST_ADDPATH,
                Some(table),
            ) => {
                table.add(records.subtype, &records.body).ok_or_else(malformed)?;
                if table.is_too_large() {
                    return Err(MrtError::TooLarge);
                }
                if peer.is_some() && table.prefixes.len() >= most {
                    break;
                }
            }
            // The table of peers comes first (RFC 6396 section 4.3.1).
            (2..=12, None) => return Err(malformed()),
            _ => {}
        }
    }
    table.ok_or(MrtError::NoTable)
}

/// The records of a file, one after the other.
struct Records<R> {
    source: R,
    /// Where the record begins, and the next one.
    at: u64,
    next: u64,
    kind: u16,
    subtype: u16,
    body: Vec<u8>,
}

impl<R: Read> Records<R> {
    /// Reads the next record. Returns whether there is one.
    fn advance(&mut self) -> Result<bool, MrtError> {
        self.at = self.next;
        self.fill(HEADER)?;
        if self.body.is_empty() {
            return Ok(false);
        }
        let mut octets = Octets(&self.body);
        let header = (|| {
            octets.take(4)?;
            Some((octets.u16()?, octets.u16()?, octets.u32()?))
        })();
        let Some((kind, subtype, length)) = header else {
            return Err(MrtError::Cut { at: self.at });
        };
        if !TYPES.contains(&kind) {
            return Err(MrtError::NotMrt { at: self.at });
        }
        if length > MAX_RECORD {
            return Err(MrtError::TooLong { at: self.at, length });
        }
        self.fill(length.into())?;
        if self.body.len() < length as usize {
            return Err(MrtError::Cut { at: self.at });
        }
        (self.kind, self.subtype) = (kind, subtype);
        self.next = self.at + HEADER + u64::from(length);
        Ok(true)
    }

    /// Reads up to `length` octets to `body`.
    fn fill(&mut self, length: u64) -> io::Result<()> {
        self.body.clear();
        self.source.by_ref().take(length).read_to_end(&mut self.body).map(drop)
    }

    fn malformed(&self) -> MrtError {
        MrtError::Malformed { at: self.at, kind: self.kind, subtype: self.subtype }
    }
}

/// The routes so far.
struct Table {
    peers: Vec<MrtPeer>,
    /// The peer whose routes are kept; `None`: the routes of all, with a bit for each peer.
    peer: Option<u16>,
    prefixes: Vec<Prefix>,
    /// Words of 64 peers: the words of the first prefix, then those of the second.
    bits: Vec<u64>,
    /// The attributes of the kept routes, if these are wanted.
    sets: Option<Sets>,
}

/// Different attributes.
#[derive(Default)]
struct Sets {
    known: HashMap<Arc<[u8]>, u32>,
    /// By number.
    all: Vec<Arc<[u8]>>,
    octets: usize,
    /// The set of each prefix of the table.
    of_route: Vec<u32>,
    left_out: u64,
}

impl Sets {
    /// Adds the attributes of a route. Returns whether the route is kept.
    fn add(&mut self, attributes: &[u8]) -> bool {
        let Some(octets) = attributes::kept(attributes) else {
            self.left_out += 1;
            return false;
        };
        let number = match self.known.get(&octets[..]) {
            Some(number) => *number,
            None => {
                let (number, octets) = (self.all.len() as u32, Arc::<[u8]>::from(octets));
                self.octets += octets.len();
                self.all.push(octets.clone());
                self.known.insert(octets, number);
                number
            }
        };
        self.of_route.push(number);
        true
    }
}

impl Table {
    fn new(peers: Vec<MrtPeer>, peer: Option<u16>) -> Self {
        Self { peers, peer, prefixes: Vec::new(), bits: Vec::new(), sets: None }
    }

    fn words(&self) -> usize {
        self.peers.len().div_ceil(64)
    }

    /// Adds the route of a record. `None`: it is malformed.
    fn add(&mut self, subtype: u16, body: &[u8]) -> Option<()> {
        let mut octets = Octets(body);
        let _sequence = octets.u32()?;
        let is_ipv6 = matches!(subtype, RIB_IPV6_UNICAST | RIB_IPV6_UNICAST_ADDPATH);
        let has_path_id = matches!(subtype, RIB_IPV4_UNICAST_ADDPATH | RIB_IPV6_UNICAST_ADDPATH);
        let prefix = octets.prefix(is_ipv6)?;
        let first = self.bits.len();
        if self.peer.is_none() {
            self.bits.resize(first + self.words(), 0);
        }
        let (mut is_wanted, mut is_left_out) = (self.peer.is_none(), false);
        let entries = octets.u16()?;
        for _ in 0..entries {
            let peer = octets.u16()?;
            let _originated = octets.u32()?;
            if has_path_id {
                octets.u32()?;
            }
            let attributes = octets.u16()?;
            let attributes = octets.take(attributes.into())?;
            if usize::from(peer) >= self.peers.len() {
                return None;
            }
            match self.peer {
                // The first one of several paths is taken.
                Some(wanted) if wanted == peer && !is_wanted => {
                    is_wanted = true;
                    is_left_out = self.sets.as_mut().is_some_and(|sets| !sets.add(attributes));
                }
                Some(_) => {}
                None => self.bits[first + usize::from(peer / 64)] |= 1 << (peer % 64),
            }
        }
        if is_wanted && !is_left_out {
            self.prefixes.push(prefix);
        }
        octets.0.is_empty().then_some(())
    }

    fn is_too_large(&self) -> bool {
        let attributes = self.sets.as_ref().map_or(0, |sets| sets.octets);
        self.prefixes.len() > MAX_ROUTES
            || self.bits.len() > MAX_BITS / 8
            || attributes > MAX_ATTRIBUTES
    }

    fn has(&self, route: usize, peer: u16) -> bool {
        let word = self.bits.get(route * self.words() + usize::from(peer / 64));
        self.peer.is_some() || word.is_some_and(|word| word >> (peer % 64) & 1 == 1)
    }

    /// The first `most` routes of `peer`, by their attributes.
    fn with_attributes(self, peer: u16, most: usize) -> Result<MrtTable, MrtError> {
        let last = self.peers.len().saturating_sub(1);
        let sets = self.sets.unwrap_or_default();
        let mut seen = HashSet::new();
        let routes = sets.of_route.iter().copied().zip(self.prefixes);
        let mut routes: Vec<(u32, Prefix)> =
            routes.filter(|(_, prefix)| seen.len() < most && seen.insert(*prefix)).collect();
        // Stable: a set has its routes in the order of the file.
        routes.sort_by_key(|(set, _)| *set);
        let Some(of) = self.peers.get(usize::from(peer)).filter(|_| !routes.is_empty()) else {
            return Err(MrtError::NoPeer { peer, last });
        };
        let mut end = 0;
        let of_sets = routes.chunk_by(|(one, _), (next, _)| one == next).map(|routes| {
            end += routes.len() as u32;
            MrtSet { octets: sets.all[routes[0].0 as usize].clone(), end }
        });
        let of_sets: Vec<_> = of_sets.collect();
        let prefixes = routes.into_iter().map(|(_, prefix)| prefix).collect();
        Ok(MrtTable { peer: *of, prefixes, sets: of_sets, left_out: sets.left_out })
    }

    /// The first `most` routes of the wanted peer.
    fn of_one_peer(mut self, most: usize) -> Result<MrtRoutes, MrtError> {
        let last = self.peers.len().saturating_sub(1);
        let routes = 0..self.prefixes.len();
        let index = match self.peer {
            Some(peer) => peer,
            None => {
                let mut counts = vec![0u32; self.words() * 64];
                for (at, &word) in self.bits.iter().enumerate() {
                    let mut rest = word;
                    while rest != 0 {
                        counts[at % self.words() * 64 + rest.trailing_zeros() as usize] += 1;
                        rest &= rest - 1;
                    }
                }
                // If several peers have the same number of routes, the first one is taken.
                let most = |peer: &u16| counts[usize::from(*peer)];
                (0..self.peers.len() as u16).rev().max_by_key(most).unwrap_or(0)
            }
        };
        let wanted: Vec<bool> = routes.map(|route| self.has(route, index)).collect();
        let mut wanted = wanted.into_iter();
        let mut seen = HashSet::new();
        self.prefixes.retain(|prefix| {
            wanted.next() == Some(true) && seen.len() < most && seen.insert(*prefix)
        });
        let peer = self.peers.get(usize::from(index)).copied();
        match (peer, self.prefixes.is_empty()) {
            (Some(peer), false) => Ok(MrtRoutes { peer, prefixes: self.prefixes }),
            _ => Err(match self.peer {
                Some(peer) => MrtError::NoPeer { peer, last },
                None => MrtError::NoRoutes,
            }),
        }
    }
}

/// The peers in a record of that subtype (RFC 6396 section 4.3.1).
fn peers(body: &[u8]) -> Option<Vec<MrtPeer>> {
    let mut octets = Octets(body);
    let _collector = octets.u32()?;
    let name = octets.u16()?;
    octets.take(name.into())?;
    let count = octets.u16()?;
    (0..count)
        .map(|index| {
            let kind = octets.take(1)?[0];
            let _router_id = octets.u32()?;
            let address = match kind & 1 {
                0 => IpAddr::V4(octets.u32()?.into()),
                _ => IpAddr::from(*octets.take(16)?.first_chunk::<16>()?),
            };
            let asn = if kind & 2 == 0 { octets.u16()?.into() } else { octets.u32()? };
            Some(MrtPeer { index, address, asn })
        })
        .collect()
}

/// Octets that are not read yet.
struct Octets<'a>(&'a [u8]);

impl<'a> Octets<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2)?.first_chunk().copied().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.first_chunk().copied().map(u32::from_be_bytes)
    }

    /// A prefix. The record has only its octets with bits. Bits after them are irrelevant (RFC 4271
    /// section 4.3).
    fn prefix(&mut self, is_ipv6: bool) -> Option<Prefix> {
        let length = self.take(1)?[0];
        let width = if is_ipv6 { 128 } else { 32 };
        if length > width {
            return None;
        }
        let octets = self.take(usize::from(length).div_ceil(8))?;
        let mut address = [0; 16];
        address[..octets.len()].copy_from_slice(octets);
        let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
        let bits = u128::from_be_bytes(address) & mask;
        let address = match is_ipv6 {
            true => IpAddr::V6(bits.into()),
            false => IpAddr::V4(((bits >> 96) as u32).into()),
        };
        Some(Prefix { address, length })
    }
}

#[cfg(test)]
mod tests;
