//! Pools: addresses and ports of clients and servers, and the order in which flows use them.

use std::{fmt, net::IpAddr, ops::RangeInclusive, str::FromStr};

use squall_units::{Shuffle, mix};

/// Addresses from `first` to `last` (inclusive), of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddrRange {
    first: IpAddr,
    last: IpAddr,
}

/// Addresses and ports of clients, or of servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    pub name: String,
    /// At least one, all of one family, without overlaps; [`Tuples::new`] checks this.
    pub ranges: Vec<AddrRange>,
    /// Source ports of clients. Unused for servers, which listen on their templates' ports.
    pub ports: RangeInclusive<u16>,
    pub order: Order,
    /// The clients or servers are the hosts of the group with this number. Hosts that have an
    /// address take turns, clients each with its next port. `ranges` then has as many addresses as
    /// the group has hosts, which represent those of the hosts.
    pub hosts: Option<usize>,
    /// Whether all templates draw from one sequence of tuples. If not, each template begins with
    /// the first tuple. For client pools.
    pub shared: bool,
}

/// The address and port of the k-th flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// All addresses in order, then the next port. Servers: in order.
    #[default]
    Sequential,
    /// Pseudo-random: each address and port once, then all of them again in another order. Servers
    /// likewise.
    Random,
    /// Selected by a hash of the flow's number: a tuple may repeat before another has appeared.
    /// Servers: selected by a hash of the client's address, so that a client always has the same
    /// server.
    Hash,
}

/// Default source ports of clients, as in TRex: all except the well-known ports (RFC 6335: 0 to
/// 1023).
pub const PORTS: RangeInclusive<u16> = 1024..=65535;

/// Maximum number of addresses in a pool: the counters per address must fit in memory.
pub const MAX_ADDRESSES: u64 = 1 << 24;

/// Why a pool or the text of a range is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    #[error(
        "{text:?} is not a range of addresses\n  expected \"16.0.0.1-16.0.0.255\", \
         \"16.0.0.0/24\", \"fd00::1-fd00::ffff\" or a single address"
    )]
    Range { text: String },
    #[error("pool {0:?} has no addresses\n  expected at least one range")]
    Empty(String),
    #[error("pool {0:?} has IPv4 and IPv6 addresses\n  try two pools, and a template for each")]
    Families(String),
    #[error("pool {name:?}: {range} overlaps another of its ranges")]
    Overlap { name: String, range: AddrRange },
    #[error("pool {name:?} has {addresses} addresses, expected at most {MAX_ADDRESSES}")]
    TooMany { name: String, addresses: u128 },
    #[error("pool {0:?} has no ports\n  expected a range such as 1024-65535")]
    Ports(String),
}

impl AddrRange {
    /// Creates a range; `None` unless both addresses are of the same family and `first <= last`.
    pub fn new(first: IpAddr, last: IpAddr) -> Option<Self> {
        (first.is_ipv4() == last.is_ipv4() && first <= last).then_some(Self { first, last })
    }

    pub fn first(&self) -> IpAddr {
        self.first
    }

    pub fn last(&self) -> IpAddr {
        self.last
    }

    fn addresses(&self) -> u128 {
        (number(self.last) - number(self.first)).saturating_add(1)
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(a) => u32::from(a).into(),
        IpAddr::V6(a) => a.into(),
    }
}

impl fmt::Display for AddrRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            self.first.fmt(f)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

impl FromStr for AddrRange {
    type Err = PoolError;

    /// Parses `"16.0.0.1-16.0.0.255"`, `"fd00::1-fd00::ff"` or `"16.0.0.1"`. A prefix
    /// `"16.0.0.0/24"` means its hosts: without the network and broadcast addresses, if IPv4 has
    /// them.
    fn from_str(text: &str) -> Result<Self, PoolError> {
        let wrong = || PoolError::Range { text: text.to_owned() };
        let address = |text: &str| text.trim().parse::<IpAddr>().map_err(|_| wrong());
        if let Some((first, last)) = text.split_once('-') {
            return Self::new(address(first)?, address(last)?).ok_or_else(wrong);
        }
        let Some((base, len)) = text.split_once('/') else {
            let only = address(text)?;
            return Ok(Self { first: only, last: only });
        };
        let (base, len) = (address(base)?, len.trim().parse::<u32>().map_err(|_| wrong())?);
        prefix(base, len).ok_or_else(wrong)
    }
}

fn prefix(base: IpAddr, len: u32) -> Option<AddrRange> {
    match base {
        IpAddr::V4(base) => {
            let rest = u32::MAX.checked_shr(len).unwrap_or(0);
            let (low, high) = (u32::from(base) & !rest, u32::from(base) | rest);
            // RFC 3021: a /31 has no network and broadcast address.
            let ends = u32::from(len < 31);
            (len <= 32).then(|| AddrRange {
                first: IpAddr::V4((low + ends).into()),
                last: IpAddr::V4((high - ends).into()),
            })
        }
        IpAddr::V6(base) => {
            // IPv6 has no broadcast address (RFC 4291 §2), so no address is left out.
            let rest = u128::MAX.checked_shr(len).unwrap_or(0);
            let base = u128::from(base);
            (len <= 128).then(|| AddrRange {
                first: IpAddr::V6((base & !rest).into()),
                last: IpAddr::V6((base | rest).into()),
            })
        }
    }
}

/// A validated pool: a tuple is a function of the seed and a number.
#[derive(Clone, Debug)]
pub struct Tuples {
    /// The ranges, each with the index of its first address.
    ranges: Vec<(u64, AddrRange)>,
    /// The ranges, sorted by address: first, last, index of the first. A copy, because `ranges` has
    /// the order in which flows use the addresses.
    by_address: Vec<(u128, u128, u64)>,
    /// Set in the usual case of a single IPv4 range: its first address and its size. Most lookups
    /// are then one subtraction instead of a search.
    only: Option<(u32, u32)>,
    v4: bool,
    addresses: u64,
    /// 2^64 / `addresses`, rounded up; 0 for one address.
    inverse: u64,
    first_port: u16,
    /// Distance from one port to the next.
    step: u16,
    ports: u64,
    order: Order,
    seed: u64,
}

impl Tuples {
    /// # Errors
    /// A pool that breaks the conditions of [`Pool`].
    pub fn new(pool: &Pool, seed: u64) -> Result<Self, PoolError> {
        let first = pool.ranges.first().ok_or_else(|| PoolError::Empty(pool.name.clone()))?;
        let v4 = first.first.is_ipv4();
        if pool.ranges.iter().any(|range| range.first.is_ipv4() != v4) {
            return Err(PoolError::Families(pool.name.clone()));
        }
        if pool.ports.is_empty() {
            return Err(PoolError::Ports(pool.name.clone()));
        }
        let addresses =
            pool.ranges.iter().fold(0u128, |sum, range| sum.saturating_add(range.addresses()));
        if addresses > MAX_ADDRESSES.into() {
            return Err(PoolError::TooMany { name: pool.name.clone(), addresses });
        }
        let mut before = 0;
        let mut ranges = Vec::with_capacity(pool.ranges.len());
        for range in &pool.ranges {
            ranges.push((before, *range));
            before += range.addresses() as u64;
        }
        let mut by_address: Vec<_> =
            ranges.iter().map(|(at, r)| (number(r.first), number(r.last), *at)).collect();
        by_address.sort_unstable();
        if let Some(pair) = by_address.windows(2).find(|pair| pair[1].0 <= pair[0].1) {
            let range =
                ranges.iter().find(|(at, _)| *at == pair[1].2).map_or(*first, |(_, range)| *range);
            return Err(PoolError::Overlap { name: pool.name.clone(), range });
        }
        let only = match (&pool.ranges[..], first.first) {
            ([_], IpAddr::V4(first)) => Some((first.into(), addresses as u32)),
            _ => None,
        };
        Ok(Self {
            ranges,
            by_address,
            only,
            v4,
            addresses: addresses as u64,
            inverse: (u64::MAX / addresses as u64).wrapping_add(1),
            first_port: *pool.ports.start(),
            step: 1,
            ports: u64::from(pool.ports.end() - pool.ports.start()) + 1,
            order: pool.order,
            seed,
        })
    }

    /// The tuples with `port % of == rank`; `None` if no port has that remainder.
    pub fn share(&self, rank: u16, of: u16) -> Option<Self> {
        let first = u64::from(self.first_port);
        let of = of.max(1);
        let skipped = (u64::from(rank) + u64::from(of) - first % u64::from(of)) % u64::from(of);
        let ports = self.ports.checked_sub(skipped).filter(|ports| *ports > 0)?.div_ceil(of.into());
        Some(Self { first_port: (first + skipped) as u16, step: of, ports, ..self.clone() })
    }

    pub fn is_ipv4(&self) -> bool {
        self.v4
    }

    pub fn addresses(&self) -> u64 {
        self.addresses
    }

    /// The first and the last address, if the pool has one range.
    pub fn only_range(&self) -> Option<(IpAddr, IpAddr)> {
        match self.ranges[..] {
            [(_, range)] => Some((range.first, range.last)),
            _ => None,
        }
    }

    /// Number of ports per address.
    pub fn ports(&self) -> u64 {
        self.ports
    }

    /// The port with this index, modulo [`Tuples::ports`].
    pub fn port(&self, index: u64) -> u16 {
        self.first_port + (index % self.ports) as u16 * self.step
    }

    /// Number of addresses times number of ports.
    pub fn len(&self) -> u64 {
        self.addresses * self.ports
    }

    /// Always false: a pool has at least one address.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The address with this index, which is below [`Tuples::addresses`].
    #[inline]
    pub fn address(&self, index: u64) -> IpAddr {
        if let Some((first, _)) = self.only {
            return IpAddr::V4((first + index as u32).into());
        }
        let at = match self.ranges.len() {
            1 => 0,
            _ => self.ranges.partition_point(|(first, _)| *first <= index) - 1,
        };
        let (first, range) = self.ranges[at];
        let number = number(range.first) + u128::from(index - first);
        if self.v4 { IpAddr::V4((number as u32).into()) } else { IpAddr::V6(number.into()) }
    }

    /// The index of `address`; `None` if it is not in the pool.
    #[inline]
    pub fn index_of(&self, address: IpAddr) -> Option<u64> {
        if let (Some((first, addresses)), IpAddr::V4(address)) = (self.only, address) {
            // Wraps for addresses before the first, so that one comparison excludes both sides.
            let index = u32::from(address).wrapping_sub(first);
            return (index < addresses).then_some(index.into());
        }
        if address.is_ipv4() != self.v4 {
            return None;
        }
        let number = number(address);
        let find = |&(first, last, at): &(u128, u128, u64)| {
            (first <= number && number <= last).then(|| at + (number - first) as u64)
        };
        if let [only] = &self.by_address[..] {
            return find(only);
        }
        let after = self.by_address.partition_point(|(first, ..)| *first <= number);
        find(self.by_address.get(after.checked_sub(1)?)?)
    }

    /// The first rounds of flows of these clients.
    pub(crate) fn rounds(&self, servers: &Self) -> Rounds {
        Rounds {
            clients: Round::of(self.len(), self.seed, 0),
            servers: Round::of(servers.addresses, servers.seed, 0),
        }
    }

    /// The address index and port of flow `k`. `rounds` are kept from flow to flow.
    #[inline(always)]
    pub(crate) fn tuple(&self, k: u64, rounds: &mut Rounds) -> (u64, u16) {
        let len = self.len();
        let at = match self.order {
            Order::Sequential => divided(k, len).1,
            Order::Random => rounds.clients.at(k, self.seed),
            Order::Hash => scaled(mix(self.seed, k), len),
        };
        let (port, address) = self.split(at);
        (address, self.first_port + port as u16 * self.step)
    }

    /// The server index of flow `k`; `wrap`: how often its client's tuple was used before.
    #[inline(always)]
    pub(crate) fn server(&self, k: u64, wrap: u64, client: IpAddr, rounds: &mut Rounds) -> u64 {
        let n = self.addresses;
        match self.order {
            _ if n == 1 => 0,
            // Moved by one at each wrap: a client's port then meets all servers before it meets one
            // again. Otherwise the same tuple would repeat, and fail if the peer still has the
            // previous connection in TIME-WAIT.
            Order::Sequential => divided(k.wrapping_add(wrap), n).1,
            Order::Random => rounds.servers.at(k.wrapping_add(wrap), self.seed),
            Order::Hash => {
                let number = number(client);
                scaled(mix(self.seed ^ (number >> 64) as u64, number as u64), n)
            }
        }
    }

    /// Quotient and remainder of `at` by the number of addresses.
    #[inline]
    fn split(&self, at: u64) -> (u64, u64) {
        if (at | self.addresses) >> 32 != 0 || self.inverse == 0 {
            return divided(at, self.addresses);
        }
        // Exact below 2^32 (Lemire, Kaser, Kurz: Faster remainder by direct computation, 2019).
        let quotient = ((u128::from(self.inverse) * u128::from(at)) >> 64) as u64;
        (quotient, at - quotient * self.addresses)
    }
}

/// The rounds of a template's clients and servers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rounds {
    pub clients: Round,
    pub servers: Round,
}

/// A round of a random order: each index comes once in it. It is kept from flow to flow, because to
/// compute it costs more than an index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    /// The first number in it, and the numbers in each round.
    from: u64,
    len: u64,
    order: Shuffle,
}

impl Round {
    fn of(len: u64, seed: u64, round: u64) -> Self {
        let order = Shuffle::new(len, mix(seed, round));
        Self { from: round.wrapping_mul(len), len, order }
    }

    /// The index of number `k`. Moves to its round.
    #[inline(always)]
    fn at(&mut self, k: u64, seed: u64) -> u64 {
        // Wraps for numbers before the round.
        if k.wrapping_sub(self.from) >= self.len {
            self.move_to(k, seed);
        }
        self.order.at(k.wrapping_sub(self.from))
    }

    #[inline(never)]
    fn move_to(&mut self, k: u64, seed: u64) {
        *self = Self::of(self.len, seed, divided(k, self.len).0);
    }
}

/// Quotient and remainder. Avoids a 64-bit division, which costs as much as the rest of a tuple:
/// most numbers are below `n` or below 2^32.
#[inline]
pub(crate) fn divided(k: u64, n: u64) -> (u64, u64) {
    if k < n {
        (0, k)
    } else if (k | n) >> 32 == 0 {
        let (k, n) = (k as u32, n as u32);
        ((k / n).into(), (k % n).into())
    } else {
        (k / n, k % n)
    }
}

/// A uniform number in `0..n`, by a multiplication instead of a division.
#[inline]
fn scaled(random: u64, n: u64) -> u64 {
    ((u128::from(random) * u128::from(n)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pool(ranges: &[&str], ports: RangeInclusive<u16>, order: Order) -> Pool {
        let ranges = ranges.iter().map(|r| r.parse().expect(r)).collect();
        Pool { name: "clients".into(), ranges, ports, order, hosts: None, shared: false }
    }

    fn tuples(ranges: &[&str], ports: RangeInclusive<u16>, order: Order) -> Tuples {
        Tuples::new(&pool(ranges, ports, order), 7).expect("a good pool")
    }

    /// Whether the `len()` consecutive numbers from `from` on give distinct tuples.
    fn each_once(t: &Tuples, from: u64) -> bool {
        let mut seen = vec![0u64; t.len().div_ceil(64) as usize];
        let mut rounds = t.rounds(t);
        for k in from..from + t.len() {
            let (address, port) = t.tuple(k, &mut rounds);
            assert!(address < t.addresses());
            let at = address * t.ports() + u64::from(port - t.first_port);
            if seen[(at / 64) as usize] >> (at % 64) & 1 == 1 {
                return false;
            }
            seen[(at / 64) as usize] |= 1 << (at % 64);
        }
        true
    }

    #[test]
    fn sixteen_million_tuples_come_once_each_before_any_comes_again() {
        let random =
            tuples(&["16.0.0.0-16.0.1.3", "17.0.0.0-17.0.0.3"], 1024..=65535, Order::Random);
        assert!(random.len() > 16 << 20, "{}", random.len());
        assert!(each_once(&random, 0));
        let again: Vec<_> = (0..1000)
            .map(|k| random.tuple(random.len() + k, &mut random.rounds(&random)))
            .collect();
        assert_ne!(
            again,
            (0..1000).map(|k| random.tuple(k, &mut random.rounds(&random))).collect::<Vec<_>>(),
            "and then in another order"
        );
        let sequential = tuples(&["16.0.0.0-16.0.0.9"], 1024..=65535, Order::Sequential);
        assert!(each_once(&sequential, 5));
    }

    #[test]
    fn rounds_that_are_kept_give_the_same_as_those_of_one_flow() {
        for ranges in [["16.0.0.0-16.0.0.0"], ["16.0.0.0-16.0.0.1"], ["16.0.0.0-16.0.0.8"]] {
            let t = tuples(&ranges, 10..=16, Order::Random);
            let mut kept = t.rounds(&t);
            let client = t.address(0);
            // On, back, and over several rounds at once.
            for k in (0..200).chain((0..200).rev()).chain([5_000, 70, 1 << 40, 3]) {
                assert_eq!(t.tuple(k, &mut kept), t.tuple(k, &mut t.rounds(&t)));
                let server = t.server(k, 1, client, &mut kept);
                assert_eq!(server, t.server(k, 1, client, &mut t.rounds(&t)));
            }
        }
    }

    #[test]
    fn an_inverse_divides_as_a_division() {
        for last in ["16.0.0.0", "16.0.0.1", "16.0.0.6", "16.0.3.233", "16.255.255.254"] {
            let t = tuples(&[&format!("16.0.0.0-{last}")], PORTS, Order::Random);
            let n = t.addresses();
            let near = |at: u64| at.saturating_sub(2)..at + 3;
            let all = (0..200).flat_map(|i| near(i * n)).chain(near(1 << 32)).chain(near(1 << 40));
            for at in all.chain([u64::from(u32::MAX) / n * n - 1, u64::from(u32::MAX) / n * n]) {
                assert_eq!(t.split(at), (at / n, at % n), "{at} by {n}");
            }
        }
    }

    #[test]
    fn a_random_order_looks_random() {
        let t = tuples(&["16.0.0.0/16"], PORTS, Order::Random);
        // Consecutive tuples are far apart, and the addresses spread evenly over 256 classes.
        let mut met = [0u32; 256];
        let mut near = 0;
        for k in 0..65_536 {
            let (address, _) = t.tuple(k, &mut t.rounds(&t));
            met[(address * 256 / t.addresses()) as usize] += 1;
            near += u32::from(t.tuple(k + 1, &mut t.rounds(&t)).0.abs_diff(address) < 64);
        }
        assert!(near < 300, "{near} of 65536 neighbours are near");
        let chi: f64 = met.iter().map(|&n| (f64::from(n) - 256.0).powi(2) / 256.0).sum();
        assert!(chi < 400.0, "chi squared {chi} with 255 degrees of freedom");
    }

    #[test]
    fn ranges_are_read_as_they_are_written() {
        for (text, read) in [
            ("16.0.0.0/24", "16.0.0.1-16.0.0.254"),
            ("16.0.0.7", "16.0.0.7"),
            ("10.0.0.0/31", "10.0.0.0-10.0.0.1"),
            ("10.0.0.9/32", "10.0.0.9"),
            ("fd00::/120", "fd00::-fd00::ff"),
            ("fd00::1 - fd00::2", "fd00::1-fd00::2"),
        ] {
            assert_eq!(
                text.parse::<AddrRange>().map(|r| r.to_string()),
                Ok(read.to_owned()),
                "{text}"
            );
        }
        for wrong in [
            "",
            "16.0.0.9-16.0.0.1",
            "16.0.0.1-fd00::1",
            "16.0.0.0/33",
            "fd00::/129",
            "a-b",
            "1.2.3.4/x",
        ] {
            assert!(wrong.parse::<AddrRange>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn shares_of_a_pool_are_apart_and_together_all_of_it() {
        for (ports, of) in [(1000..=1009, 3), (1024..=65535, 3), (7..=9, 3), (65_530..=65_535, 4)] {
            let all = Tuples::new(&pool(&["16.0.0.1-16.0.0.2"], ports.clone(), Order::Random), 3)
                .unwrap();
            let mut met = Vec::new();
            for rank in 0..of {
                let share = all.share(rank, of).expect("a port for each");
                let tuples: Vec<_> =
                    (0..share.len()).map(|k| share.tuple(k, &mut share.rounds(&share))).collect();
                assert!(tuples.iter().all(|(_, port)| port % of == rank));
                met.extend(tuples);
            }
            met.sort_unstable();
            met.dedup();
            assert_eq!(met.len() as u64, all.len());
            assert!(met.iter().all(|(_, port)| ports.contains(port)));
        }
        let two = Tuples::new(&pool(&["16.0.0.1"], 10..=11, Order::Random), 3).unwrap();
        assert_eq!((0..3).filter(|rank| two.share(*rank, 3).is_some()).count(), 2);
    }

    #[test]
    fn a_pool_that_cannot_be_is_refused_with_the_reason() {
        let error =
            |ranges: &[&str], ports| Tuples::new(&pool(ranges, ports, Order::Hash), 0).err();
        assert!(matches!(error(&[], 1..=2), Some(PoolError::Empty(_))));
        assert!(matches!(error(&["16.0.0.1", "fd00::1"], 1..=2), Some(PoolError::Families(_))));
        assert!(matches!(
            error(&["16.0.0.1-16.0.0.9", "16.0.0.9"], 1..=2),
            Some(PoolError::Overlap { .. })
        ));
        assert!(matches!(error(&["fd00::/64"], 1..=2), Some(PoolError::TooMany { .. })));
        assert!(matches!(
            error(&["16.0.0.1"], RangeInclusive::new(2, 1)),
            Some(PoolError::Ports(_))
        ));
    }

    #[test]
    fn a_client_has_always_the_same_server_by_hash_and_all_in_turn_else() {
        let servers = |order| tuples(&["48.0.0.0-48.0.0.9"], PORTS, order);
        let server = |of: &Tuples, k, wrap, client| of.server(k, wrap, client, &mut of.rounds(of));
        let (client, other) = ("16.0.0.1".parse().unwrap(), "16.0.0.2".parse().unwrap());
        let hash = servers(Order::Hash);
        assert!((0..100).all(|k| server(&hash, k, k, client) == server(&hash, 0, 0, client)));
        assert_ne!(server(&hash, 0, 0, client), server(&hash, 0, 0, other));
        for order in [Order::Sequential, Order::Random] {
            let mut met: Vec<_> = (0..10).map(|k| server(&servers(order), k, 0, client)).collect();
            met.sort_unstable();
            assert_eq!(met, (0..10).collect::<Vec<_>>());
            assert_ne!(
                server(&servers(Order::Sequential), 20, 0, client),
                server(&servers(order), 20, 1, client)
            );
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_a_range_panic(text in "[0-9a-f:./ -]{0,40}") {
            if let Ok(range) = text.parse::<AddrRange>() {
                prop_assert_eq!(range.to_string().parse::<AddrRange>(), Ok(range));
            }
        }

        #[test]
        fn an_index_and_its_address_belong_together(index in 0u64..300) {
            for t in [
                tuples(&["17.0.0.0-17.0.0.99", "16.0.0.0-16.0.0.199"], 1..=2, Order::Hash),
                tuples(&["fd01::-fd01::63", "fd00::-fd00::c7"], 1..=2, Order::Hash),
            ] {
                let index = index % t.addresses();
                prop_assert_eq!(t.index_of(t.address(index)), Some(index));
                prop_assert_eq!(t.index_of("18.0.0.1".parse().unwrap()), None);
                prop_assert_eq!(t.index_of("fd02::1".parse().unwrap()), None);
            }
        }
    }
}
