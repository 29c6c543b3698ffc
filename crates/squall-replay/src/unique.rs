//! New addresses for each loop ([`Unique`]), which make its flows new ones: tcpreplay's
//! `--unique-ip`.
//!
//! Each loop replaces addresses by one permutation for all packets, so both directions of a
//! conversation stay one flow, and different flows stay different. The permutation maps each of
//! these sets to itself:
//!
//! - the IPv4 addresses that are not routed on the Internet: private (RFC 1918), shared (RFC 6598),
//!   benchmarking (RFC 2544), 22,216,704 in total. So packets of a test network stay in that
//!   network.
//! - all other IPv4 host addresses: 3,702,259,712,
//! - for IPv6, the last 64 bits of an address within its network: 2^64.
//!
//! Addresses that are not host addresses are kept: multicast, broadcast, loopback, link-local,
//! unspecified, 0/8, 240/4, and for IPv6 all of 0::/64 (with IPv4-mapped addresses).
//!
//! A set of `n` addresses is put in a pseudorandom order, in which loop k advances by k·s, with s
//! coprime to n. So an address (or a pair of addresses) first recurs after n changes. Then the set
//! gets another order, in which a pair recurs only by chance, after some thousand times n.
//!
//! Only the outermost IP header changes, with the checksums that cover its addresses (RFC 1624).
//! Other addresses are kept: those in ARP, in packets that ICMP quotes, in neighbor discovery and
//! in tunnels.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use squall_edit::{Delta, TransportSum, is_routed};
use squall_measure::flow::{FlowKey, Headers, Link, protocol};
use squall_units::be16;

/// Computes the address change of each loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unique {
    loops_per_change: u64,
    link: Link,
}

impl Unique {
    /// Addresses change with every `loops_per_change`-th loop. `link`: the packets' link type.
    ///
    /// # Panics
    /// If `loops_per_change` is 0.
    pub fn new(loops_per_change: u64, link: Link) -> Self {
        assert!(loops_per_change > 0, "addresses change after some loops");
        Self { loops_per_change, link }
    }

    /// Number of address changes before loop `loop_number`, which counts from 0.
    #[inline]
    pub fn change_number(&self, loop_number: u64) -> u64 {
        if self.loops_per_change == 1 { loop_number } else { loop_number / self.loops_per_change }
    }

    /// The address change of a loop. Compute it once for many packets.
    #[inline]
    pub fn change(&self, loop_number: u64) -> Change {
        Change::new(self.change_number(loop_number), self.link)
    }

    /// Changes a packet in place. Returns whether it was changed. Loop 0 changes nothing. Each call
    /// computes the [`Unique::change`], which takes some nanoseconds.
    #[inline]
    pub fn apply(&self, octets: &mut [u8], loop_number: u64) -> bool {
        self.change(loop_number).apply(octets)
    }

    /// Whether the addresses of a flow can change at all.
    pub fn changes(key: &FlowKey) -> bool {
        match key.version {
            4 => [key.src, key.dst].iter().any(|a| Region::of(be16(a, 0)).is_some()),
            6 => is_host(u128::from_be_bytes(key.src)) || is_host(u128::from_be_bytes(key.dst)),
            _ => false,
        }
    }
}

/// An address change, which is the same for all packets of a loop.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    number: u64,
    link: Link,
    /// One permutation for each of [`REGIONS`].
    turns: [Turn; 2],
    interface: u64,
}

/// A region's permutation: to the pseudorandom order given by `keys`, some positions onward, and
/// back by the keys of change 0.
#[derive(Clone, Copy, Debug)]
struct Turn {
    keys: Keys,
    places: u32,
}

impl Change {
    #[inline]
    fn new(number: u64, link: Link) -> Self {
        let turn = |region: &Region| {
            let n = region.addresses();
            let (round, places) = if number < n { (0, number) } else { (number / n, number % n) };
            let keys = if round == 0 { KEYS } else { keys(round) };
            Turn { keys, places: (places * u64::from(region.step) % n) as u32 }
        };
        let interface = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self { number, link, turns: REGIONS.each_ref().map(turn), interface }
    }

    /// Whether this change leaves packets unchanged.
    pub fn is_none(&self) -> bool {
        self.number == 0
    }

    /// Changes a packet in place, which may be truncated. Returns whether it was changed.
    #[inline]
    pub fn apply(&self, octets: &mut [u8]) -> bool {
        self.number != 0 && self.rewrite::<false>(octets)
    }

    /// Reverts [`Change::apply`]. Returns whether anything changed.
    pub fn undo(&self, octets: &mut [u8]) -> bool {
        self.number != 0 && self.rewrite::<true>(octets)
    }

    /// The replacement of an address.
    pub fn address(&self, address: IpAddr) -> IpAddr {
        match address {
            _ if self.number == 0 => address,
            IpAddr::V4(a) => Ipv4Addr::from_bits(self.ipv4::<false>(a.to_bits())).into(),
            IpAddr::V6(a) => Ipv6Addr::from_bits(self.ipv6::<false>(a.to_bits())).into(),
        }
    }

    #[inline]
    fn rewrite<const BACK: bool>(&self, octets: &mut [u8]) -> bool {
        if self.link == Link::Ethernet
            && let Some(key) = Headers::plain(octets)
        {
            let tcp = key.protocol == protocol::TCP;
            let sum = TransportSum { at: 34 + if tcp { 16 } else { 6 }, may_be_none: !tcp };
            return self.rewrite_ipv4::<BACK>(octets, 14, Some(sum));
        }
        self.rewrite_any::<BACK>(octets)
    }

    #[cold]
    fn rewrite_any<const BACK: bool>(&self, octets: &mut [u8]) -> bool {
        let headers = Headers::parse(octets, self.link);
        let network = headers.network as usize;
        match headers.key.version {
            4 => self.rewrite_ipv4::<BACK>(octets, network, TransportSum::of(&headers)),
            6 => {
                // The checksum covers the final destination rather than that in the header (RFC
                // 8200 §8.1).
                let routed = is_routed(octets, &headers);
                self.rewrite_ipv6::<BACK>(octets, network, TransportSum::of(&headers), routed)
            }
            _ => false,
        }
    }

    #[inline]
    fn rewrite_ipv4<const BACK: bool>(
        &self,
        octets: &mut [u8],
        network: usize,
        sum: Option<TransportSum>,
    ) -> bool {
        let Some(header) = octets[network..].first_chunk_mut::<20>() else { return false };
        let old = u64::from_be_bytes([
            header[12], header[13], header[14], header[15], header[16], header[17], header[18],
            header[19],
        ]);
        let (src, dst) = ((old >> 32) as u32, old as u32);
        let new = u64::from(self.ipv4::<BACK>(src)) << 32 | u64::from(self.ipv4::<BACK>(dst));
        if new == old {
            return false;
        }
        header[12..].copy_from_slice(&new.to_be_bytes());
        let delta = Delta::of_words(old, new);
        delta.apply(header, 10);
        if let Some(sum) = sum {
            sum.change(octets, delta);
        }
        true
    }

    fn rewrite_ipv6<const BACK: bool>(
        &self,
        octets: &mut [u8],
        network: usize,
        sum: Option<TransportSum>,
        routed: bool,
    ) -> bool {
        let Some(header) = octets[network..].first_chunk_mut::<40>() else { return false };
        let mut delta = Delta::default();
        let mut changed = false;
        for (at, covered) in [(8, true), (24, !routed)] {
            let old = u128::from_be_bytes(std::array::from_fn(|i| header[at + i]));
            let new = self.ipv6::<BACK>(old);
            header[at..at + 16].copy_from_slice(&new.to_be_bytes());
            changed |= old != new;
            if covered {
                // The network half of an IPv6 address does not change.
                delta = delta.and(Delta::of_words(old as u64, new as u64));
            }
        }
        if let Some(sum) = sum {
            sum.change(octets, delta);
        }
        changed
    }

    #[inline]
    fn ipv4<const BACK: bool>(&self, address: u32) -> u32 {
        let Some((which, network)) = Region::of((address >> 16) as u16) else { return address };
        let (region, turn) = (&REGIONS[which], &self.turns[which]);
        let rank = network << 16 | address & 0xffff;
        let (into, out) = if BACK { (&KEYS, &turn.keys) } else { (&turn.keys, &KEYS) };
        let n = region.addresses();
        let places = if BACK { n - u64::from(turn.places) } else { u64::from(turn.places) };
        let place = u64::from(scramble(region.networks, into, rank)) + places;
        let place = if place >= n { place - n } else { place };
        let rank = unscramble(region.networks, out, place as u32);
        region.network(rank >> 16) << 16 | rank & 0xffff
    }

    #[inline]
    fn ipv6<const BACK: bool>(&self, address: u128) -> u128 {
        if !is_host(address) {
            return address;
        }
        let place = scramble64(address as u64);
        let place = if BACK {
            place.wrapping_sub(self.interface)
        } else {
            place.wrapping_add(self.interface)
        };
        address >> 64 << 64 | u128::from(unscramble64(place))
    }
}

// --- sets of addresses
// --------------------------------------------------------------------------------------------

/// A set of whole /16 networks that the permutation maps to itself.
struct Region {
    networks: u32,
    /// Coprime to the number of addresses, and close to that number divided by the golden ratio.
    step: u32,
    /// The networks in order, without gaps: from network `begins[i]` on, whose index is
    /// `places[i]`, `left_out[i]` more are skipped before it. Signed, because the compiler then
    /// compares all of them at once.
    begins: [i32; 8],
    places: [i32; 8],
    left_out: [i32; 8],
}

/// Ranges of /16 networks: first and last network.
const LOCAL: [(u32, u32); 5] =
    [(0x0a00, 0x0aff), (0x6440, 0x647f), (0xac10, 0xac1f), (0xc0a8, 0xc0a8), (0xc612, 0xc613)];
/// All other networks, without 0/8, 127/8, 169.254/16, 224/3.
const GLOBAL: [(u32, u32); 8] = [
    (0x0100, 0x09ff),
    (0x0b00, 0x643f),
    (0x6480, 0x7eff),
    (0x8000, 0xa9fd),
    (0xa9ff, 0xac0f),
    (0xac20, 0xc0a7),
    (0xc0a9, 0xc611),
    (0xc614, 0xdfff),
];

static REGIONS: [Region; 2] =
    [Region::new(&LOCAL, 13_730_677), Region::new(&GLOBAL, 2_288_122_337)];

impl Region {
    const fn new(ranges: &[(u32, u32)], step: u32) -> Self {
        let (mut begins, mut places, mut left_out) = ([i32::MAX; 8], [i32::MAX; 8], [0; 8]);
        let (mut networks, mut next, mut i) = (0, 0, 0);
        while i < ranges.len() {
            let (first, last) = ranges[i];
            (begins[i], places[i], left_out[i]) =
                (first as i32, networks as i32, (first - next) as i32);
            networks += last - first + 1;
            next = last + 1;
            i += 1;
        }
        assert!(have_no_divisor_in_common((networks as u64) << 16, step as u64));
        Self { networks, step, begins, places, left_out }
    }

    const fn addresses(&self) -> u64 {
        (self.networks as u64) << 16
    }

    /// The region of a /16 network, and its index there; `None` if its addresses are not host
    /// addresses.
    #[inline]
    fn of(network: u16) -> Option<(usize, u32)> {
        let which = match network {
            0x0a00..=0x0aff | 0x6440..=0x647f | 0xac10..=0xac1f | 0xc0a8 | 0xc612 | 0xc613 => 0,
            0..=0x00ff | 0x7f00..=0x7fff | 0xa9fe | 0xe000.. => return None,
            _ => 1,
        };
        let region = &REGIONS[which];
        let mut place = i32::from(network);
        for (begin, left_out) in region.begins.iter().zip(&region.left_out) {
            place -= if i32::from(network) >= *begin { *left_out } else { 0 };
        }
        Some((which, place as u32))
    }

    /// The network with this index.
    #[inline]
    fn network(&self, place: u32) -> u32 {
        let mut network = place as i32;
        for (from, left_out) in self.places.iter().zip(&self.left_out) {
            network += if place as i32 >= *from { *left_out } else { 0 };
        }
        network as u32
    }
}

const fn have_no_divisor_in_common(mut a: u64, mut b: u64) -> bool {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a == 1
}

/// Whether an IPv6 network is neither link-local nor multicast nor 0::/64.
#[inline]
fn is_host(address: u128) -> bool {
    let network = (address >> 64) as u64;
    network != 0 && network >> 56 != 0xff && network >> 54 != 0xfe80 >> 6
}

// --- pseudorandom orders
// ----------------------------------------------------------------------------------

type Keys = [u64; 3];

/// The keys of change 0, and of all changes until the addresses recur.
const KEYS: Keys = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344, 0xa409_3822_299f_31d0];

/// The keys after `round` recurrences.
#[cold]
fn keys(round: u64) -> Keys {
    [1, 2, 3].map(|i| scramble64(round.wrapping_mul(4).wrapping_add(i)))
}

/// A permutation of `networks` times 65,536 addresses: three rounds of a Feistel network, each half
/// modulo its own size.
#[inline]
fn scramble(networks: u32, keys: &Keys, rank: u32) -> u32 {
    let (mut high, mut low) = (rank >> 16, rank & 0xffff);
    low = (low + (mix(high, keys[0]) >> 16)) & 0xffff;
    high += below(networks, mix(low, keys[1]));
    high = if high >= networks { high - networks } else { high };
    low = (low + (mix(high, keys[2]) >> 16)) & 0xffff;
    high << 16 | low
}

#[inline]
fn unscramble(networks: u32, keys: &Keys, rank: u32) -> u32 {
    let (mut high, mut low) = (rank >> 16, rank & 0xffff);
    low = low.wrapping_sub(mix(high, keys[2]) >> 16) & 0xffff;
    high += networks - below(networks, mix(low, keys[1]));
    high = if high >= networks { high - networks } else { high };
    low = low.wrapping_sub(mix(high, keys[0]) >> 16) & 0xffff;
    high << 16 | low
}

/// A hash of 16 bits. The product includes their square, so adjacent addresses do not keep their
/// distance.
#[inline]
fn mix(value: u32, key: u64) -> u32 {
    let value = u64::from(value);
    let product =
        (value ^ key).wrapping_mul(value << 32 ^ key.rotate_left(24) ^ 0x9e6c_63d0_676a_9a99);
    (product >> 32) as u32
}

#[inline]
fn below(limit: u32, chance: u32) -> u32 {
    ((u64::from(chance) * u64::from(limit)) >> 32) as u32
}

const ODD: [u64; 2] = [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53];
const ODD_INVERSE: [u64; 2] = [inverse(ODD[0]), inverse(ODD[1])];

/// MurmurHash3's finalizer, a permutation of 64 bits.
#[inline]
fn scramble64(mut x: u64) -> u64 {
    x = (x ^ x >> 32).wrapping_mul(ODD[0]);
    x = (x ^ x >> 32).wrapping_mul(ODD[1]);
    x ^ x >> 32
}

#[inline]
fn unscramble64(mut x: u64) -> u64 {
    x = (x ^ x >> 32).wrapping_mul(ODD_INVERSE[1]);
    x = (x ^ x >> 32).wrapping_mul(ODD_INVERSE[0]);
    x ^ x >> 32
}

/// Inverse of an odd number modulo 2^64 (Newton: each step doubles the number of correct bits,
/// starting with three).
const fn inverse(odd: u64) -> u64 {
    let mut x = odd;
    let mut i = 0;
    while i < 5 {
        x = x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x)));
        i += 1;
    }
    x
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;
    use squall_wire::checksum::{fold, sum};

    use super::*;

    const UNIQUE: Unique = Unique { loops_per_change: 1, link: Link::Ethernet };

    /// The headers that precede the network header.
    #[derive(Clone, Copy, Debug)]
    enum Front {
        Plain,
        Tagged,
        Labelled,
    }

    /// A packet with correct checksums: an Ethernet frame, IP from `src` to `dst`, and `payload` of
    /// `protocol`.
    fn packet(front: Front, src: IpAddr, dst: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let ethertype: [u8; 2] = if src.is_ipv4() { [8, 0] } else { [0x86, 0xdd] };
        let mut octets = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        match front {
            Front::Plain => octets.extend(ethertype),
            Front::Tagged => {
                octets.extend([&[0x88, 0xa8, 0, 7, 0x81, 0, 0, 8][..], &ethertype].concat())
            }
            Front::Labelled => octets.extend([0x88, 0x47, 0, 0, 0x10, 64, 0, 0, 0x11, 64]),
        }
        let (mut segment, field) = match protocol {
            protocol::TCP => (
                vec![0x30, 0x39, 0, 80, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 16, 1, 0, 0, 0, 0, 0],
                Some(16),
            ),
            protocol::UDP => (vec![0x30, 0x39, 0, 53, 0, 8 + payload.len() as u8, 0, 0], Some(6)),
            protocol::UDP_LITE => (vec![0x30, 0x39, 0, 53, 0, 0, 0, 0], Some(6)),
            protocol::ICMPV6 => (vec![128, 0, 0, 0, 0, 1, 0, 1], Some(2)),
            _ => (vec![8, 0, 0xf7, 0xfd, 0, 1, 0, 1], None),
        };
        segment.extend(payload);
        if let Some(field) = field {
            let sum = !fold(pseudo(src, dst, protocol, segment.len()) + sum(&segment));
            let sum = if sum == 0 { 0xffff } else { sum };
            segment[field..field + 2].copy_from_slice(&sum.to_be_bytes());
        }
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let mut header =
                    vec![0x45, 0, 0, 20 + segment.len() as u8, 1, 2, 0x40, 0, 64, protocol, 0, 0];
                header.extend([src.octets(), dst.octets()].concat());
                let sum = !fold(sum(&header));
                header[10..12].copy_from_slice(&sum.to_be_bytes());
                octets.extend(header);
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                octets.extend([0x60, 0, 0, 0, 0, segment.len() as u8, protocol, 64]);
                octets.extend([src.octets(), dst.octets()].concat());
            }
            _ => unreachable!("one version"),
        }
        octets.extend(segment);
        octets
    }

    fn pseudo(src: IpAddr, dst: IpAddr, protocol: u8, len: usize) -> u64 {
        let octets = |address| match address {
            IpAddr::V4(a) => a.octets().to_vec(),
            IpAddr::V6(a) => a.octets().to_vec(),
        };
        sum(&octets(src)) + sum(&octets(dst)) + u64::from(protocol) + len as u64
    }

    /// Whether all checksums are correct.
    fn verifies(octets: &[u8]) -> bool {
        let headers = Headers::parse(octets, Link::Ethernet);
        let (network, transport) = (headers.network as usize, headers.transport as usize);
        let segment = &octets[transport..headers.end as usize];
        let key = headers.key;
        let (src, dst) = (key.src_ip().unwrap(), key.dst_ip().unwrap());
        let header = key.version == 6 || fold(sum(&octets[network..transport])) == 0xffff;
        let covered = match key.protocol {
            protocol::ICMP => 0,
            protocol => pseudo(src, dst, protocol, segment.len()),
        };
        header && fold(covered + sum(segment)) == 0xffff
    }

    fn key(octets: &[u8]) -> FlowKey {
        Headers::parse(octets, Link::Ethernet).key
    }

    fn any_address() -> impl Strategy<Value = IpAddr> {
        prop_oneof![
            any::<u32>().prop_map(|a| Ipv4Addr::from_bits(a).into()),
            (
                prop::sample::select(vec![
                    0x0a00_0000u32,
                    0xac10_0000,
                    0xc0a8_0000,
                    0x6440_0000,
                    0xc612_0000
                ]),
                any::<u16>()
            )
                .prop_map(|(network, a)| Ipv4Addr::from_bits(network | u32::from(a)).into()),
        ]
    }

    fn any_address6() -> impl Strategy<Value = IpAddr> {
        (
            prop::sample::select(vec![
                0x2001_0db8u128 << 96,
                0xfd00 << 112,
                0x2a00 << 112 | 7 << 64,
            ]),
            any::<u64>(),
        )
            .prop_map(|(network, a)| Ipv6Addr::from_bits(network | u128::from(a)).into())
    }

    fn any_packet() -> impl Strategy<Value = Vec<u8>> {
        let front =
            prop::sample::select(vec![Front::Plain, Front::Plain, Front::Tagged, Front::Labelled]);
        let pair = prop_oneof![(any_address(), any_address()), (any_address6(), any_address6())];
        let protocol = prop::sample::select(vec![
            protocol::TCP,
            protocol::UDP,
            protocol::UDP_LITE,
            1,
            protocol::ICMPV6,
        ]);
        (front, pair, protocol, prop::collection::vec(any::<u8>(), 0..40)).prop_map(
            |(front, (src, dst), protocol, payload)| {
                let other = |protocol| match protocol {
                    protocol::ICMP if src.is_ipv6() => protocol::ICMPV6,
                    protocol::ICMPV6 if src.is_ipv4() => protocol::ICMP,
                    same => same,
                };
                // ICMP's checksum only covers its header here.
                let payload = if other(protocol) == protocol::ICMP { &[][..] } else { &payload };
                packet(front, src, dst, other(protocol), payload)
            },
        )
    }

    fn special(address: IpAddr) -> bool {
        match address {
            IpAddr::V4(a) => {
                let [first, ..] = a.octets();
                first == 0 || first == 127 || first >= 224 || a.is_link_local()
            }
            IpAddr::V6(a) => {
                a.is_multicast() || a.is_unicast_link_local() || a.to_bits() >> 64 == 0
            }
        }
    }

    proptest! {
        #[test]
        fn a_change_can_be_taken_back_and_keeps_checksums_right(octets in any_packet(), loop_number in any::<u64>()) {
            prop_assert!(verifies(&octets));
            let change = UNIQUE.change(loop_number);
            let mut changed = octets.clone();
            let was_changed = change.apply(&mut changed);
            prop_assert!(verifies(&changed));
            prop_assert_eq!(was_changed, changed != octets);
            if was_changed {
                prop_assert!(Unique::changes(&key(&octets)));
            }
            let mut back = changed.clone();
            prop_assert_eq!(change.undo(&mut back), was_changed);
            prop_assert_eq!(key(&back), key(&octets));
            prop_assert!(verifies(&back));
        }

        #[test]
        fn both_directions_stay_one_flow(src in any_address(), dst in any_address(), loop_number in any::<u64>()) {
            let there = packet(Front::Plain, src, dst, protocol::UDP, &[1]);
            let back = packet(Front::Tagged, dst, src, protocol::UDP, &[2, 3]);
            let [there, back] = [there, back].map(|mut octets| {
                UNIQUE.apply(&mut octets, loop_number);
                key(&octets)
            });
            prop_assert_eq!((there.src, there.dst), (back.dst, back.src));
        }

        #[test]
        fn no_address_of_a_host_becomes_or_was_another_kind(address in any_address(), loop_number in any::<u64>()) {
            let is_local = |address: IpAddr| match address {
                IpAddr::V4(a) => {
                    let [first, second, ..] = a.octets();
                    a.is_private() || first == 100 && second >> 6 == 1 || first == 198 && second >> 1 == 9
                }
                IpAddr::V6(_) => false,
            };
            let changed = UNIQUE.change(loop_number).address(address);
            prop_assert_eq!(special(address), special(changed));
            prop_assert_eq!(is_local(address), is_local(changed));
            if special(address) || loop_number == 0 {
                prop_assert_eq!(address, changed);
            }
        }

        #[test]
        fn an_ipv6_address_stays_in_its_network(address in any::<u128>(), loop_number in any::<u64>()) {
            let before = Ipv6Addr::from_bits(address);
            let IpAddr::V6(after) = UNIQUE.change(loop_number).address(before.into()) else { unreachable!() };
            prop_assert_eq!(after.to_bits() >> 64, address >> 64);
            prop_assert_eq!(after == before, special(before.into()) || loop_number == 0);
        }

        #[test]
        fn any_octets_are_changed_without_panic(
            mut octets in prop::collection::vec(any::<u8>(), 0..100), whole in any_packet(), cut in 0..100usize, number in 1..9u64,
            link in prop::sample::select(vec![0u16, 1, 101, 113, 276, 9]),
        ) {
            Unique::new(2, link.into()).apply(&mut octets, number);
            let mut octets = whole;
            octets.truncate(cut);
            UNIQUE.apply(&mut octets, number);
        }
    }

    #[test]
    fn special_addresses_stay() {
        let stay = "0.0.0.0 0.1.2.3 127.0.0.1 169.254.9.9 224.0.0.251 239.255.255.250 240.0.0.1 \
                    255.255.255.255 :: ::1 fe80::1 febf::1 ff02::1 ff0e::1 ::ffff:10.0.0.1";
        for address in stay.split_whitespace() {
            let address: IpAddr = address.parse().unwrap();
            for number in [1, 2, 1_000_000, u64::MAX] {
                assert_eq!(UNIQUE.change(number).address(address), address);
            }
        }
    }

    #[test]
    fn loops_share_addresses_as_configured() {
        let unique = Unique::new(3, Link::Ethernet);
        let original =
            packet(Front::Plain, [10, 0, 0, 1].into(), [10, 0, 0, 2].into(), protocol::TCP, &[]);
        let of = |number| {
            let mut octets = original.clone();
            assert_eq!(unique.apply(&mut octets, number), number >= 3);
            octets
        };
        assert_eq!((of(0), of(2), of(3)), (original.clone(), original.clone(), of(5)));
        assert_ne!(of(3), of(6));
    }

    #[test]
    fn udp_without_checksum_stays_without_and_none_becomes_0() {
        let (src, dst) = ([192, 168, 0, 1].into(), [8, 8, 8, 8].into());
        let mut none = packet(Front::Plain, src, dst, protocol::UDP, &[1]);
        none[40..42].fill(0);
        assert!(UNIQUE.apply(&mut none, 1));
        assert_eq!(none[40..42], [0, 0]);
        for loop_number in 0..200_000 {
            let mut octets = packet(Front::Plain, src, dst, protocol::UDP, &[1]);
            UNIQUE.apply(&mut octets, loop_number);
            assert_ne!(octets[40..42], [0, 0]);
        }
    }

    #[test]
    fn later_fragments_change_in_their_header_alone_and_first_ones_in_both() {
        let whole = packet(
            Front::Plain,
            [10, 0, 0, 1].into(),
            [10, 0, 0, 2].into(),
            protocol::UDP,
            &[7; 16],
        );
        let mut later = whole.clone();
        (later[20], later[21]) = (0x20, 3);
        let before = later.clone();
        assert!(UNIQUE.apply(&mut later, 1));
        assert_eq!(later[34..], before[34..]);
        let (mut first, mut same) = (whole.clone(), whole);
        first[20] = 0x20;
        assert!(UNIQUE.apply(&mut first, 1) && UNIQUE.apply(&mut same, 1));
        assert_eq!(first[26..], same[26..]);
    }

    #[test]
    fn arp_stays_as_it_is() {
        let mut arp = vec![0xff; 60];
        arp[12..14].copy_from_slice(&[8, 6]);
        let before = arp.clone();
        assert!(!UNIQUE.apply(&mut arp, 5));
        assert_eq!(arp, before);
    }

    #[test]
    fn a_destination_outside_of_the_checksum_leaves_it_unchanged() {
        let (src, dst, last) = ("2001:db8::1", "2001:db8::2", "2001:db8:9::3");
        let [src, dst, last] = [src, dst, last].map(|a| a.parse::<IpAddr>().unwrap());
        // The checksum covers the final destination, which is in the routing header (RFC 8200
        // §8.1).
        let mut octets = packet(Front::Plain, src, last, protocol::TCP, &[]);
        let IpAddr::V6(on_the_way) = dst else { unreachable!() };
        octets[38..54].copy_from_slice(&on_the_way.octets());
        let mut routing = vec![protocol::TCP, 2, 4, 1, 0, 0, 0, 0];
        let IpAddr::V6(segment) = last else { unreachable!() };
        routing.extend(segment.octets());
        octets.splice(54..54, routing);
        (octets[19], octets[20]) = (octets[19] + 24, 43);
        assert!(UNIQUE.apply(&mut octets, 4));
        let IpAddr::V6(src) = UNIQUE.change(4).address(src) else { unreachable!() };
        assert_eq!(octets[22..38], src.octets());
        assert_eq!(fold(pseudo(src.into(), last, protocol::TCP, 20) + sum(&octets[78..])), 0xffff);
    }

    #[test]
    fn no_pair_of_addresses_comes_twice() {
        let pairs = [
            ([10, 0, 0, 1], [10, 0, 0, 2]),
            ([192, 168, 1, 1], [8, 8, 8, 8]),
            ([1, 1, 1, 1], [9, 9, 9, 9]),
        ];
        // The flows of any two loops differ.
        let mut seen = HashSet::new();
        for number in 0..300_000 {
            let change = UNIQUE.change(number);
            for (src, dst) in pairs {
                assert!(
                    seen.insert((change.address(src.into()), change.address(dst.into()))),
                    "{number}"
                );
            }
        }
        // Checks the whole order of the smaller set: an address recurs only after all others.
        let n = REGIONS[0].addresses();
        let first: IpAddr = [10, 0, 0, 1].into();
        let of = |number| UNIQUE.change(number).address(first);
        let mut seen = vec![0u64; n as usize / 64];
        for number in (0..n).step_by(16) {
            let IpAddr::V4(address) = of(number) else { unreachable!() };
            let (which, network) = Region::of((address.to_bits() >> 16) as u16).unwrap();
            let rank = (network << 16 | address.to_bits() & 0xffff) as usize;
            assert_eq!((which, seen[rank / 64] >> (rank % 64) & 1), (0, 0), "{number}");
            seen[rank / 64] |= 1 << (rank % 64);
        }
        assert_ne!((of(n), of(n + 1)), (of(0), of(1)));
    }

    #[test]
    fn the_sets_are_those_documented() {
        assert_eq!(REGIONS.each_ref().map(Region::addresses), [22_216_704, 3_702_259_712]);
        for network in 0..=u16::MAX {
            match Region::of(network) {
                Some((which, place)) => {
                    assert_eq!(REGIONS[which].network(place), u32::from(network))
                }
                None => assert!(
                    special(Ipv4Addr::from_bits(u32::from(network) << 16 | 1).into()),
                    "{network:#x}"
                ),
            }
        }
    }

    // --- The Toeplitz hash of network cards (Microsoft, "RSS hashing types" and "Verifying the RSS
    // hash calculation") ---

    const RSS_KEY: [u8; 40] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f,
        0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
        0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    fn toeplitz(input: &[u8]) -> u32 {
        let mut window = squall_units::be32(&RSS_KEY, 0);
        let mut hash = 0;
        for (i, octet) in input.iter().enumerate() {
            for bit in (0..8).rev() {
                if octet >> bit & 1 != 0 {
                    hash ^= window;
                }
                window =
                    window << 1 | u32::from(RSS_KEY.get(i + 4).map_or(0, |key| key >> bit & 1));
            }
        }
        hash
    }

    /// The hash over the addresses, followed by the ports if given.
    fn rss(src: IpAddr, dst: IpAddr, ports: Option<(u16, u16)>) -> u32 {
        let mut input = Vec::with_capacity(36);
        for address in [src, dst] {
            match address {
                IpAddr::V4(a) => input.extend(a.octets()),
                IpAddr::V6(a) => input.extend(a.octets()),
            }
        }
        for port in ports.iter().flat_map(|(src, dst)| [src, dst]) {
            input.extend(port.to_be_bytes());
        }
        toeplitz(&input)
    }

    #[test]
    fn the_hash_is_microsofts() {
        let vectors = [
            ("161.142.100.80", 1766, "66.9.149.187", 2794, 0x323e_8fc2, 0x51cc_c178),
            ("65.69.140.83", 4739, "199.92.111.2", 14230, 0xd718_262a, 0xc626_b0ea),
            ("12.22.207.184", 38024, "24.19.198.95", 12898, 0xd2d0_a5de, 0x5c2b_394a),
            ("209.142.163.6", 2217, "38.27.205.30", 48228, 0x8298_9176, 0xafc7_327f),
            ("202.188.127.2", 1303, "153.39.163.191", 44251, 0x5d18_09c5, 0x10e8_28a2),
            ("3ffe:2501:200:3::1", 1766, "3ffe:2501:200:1fff::7", 2794, 0x2cc1_8cd5, 0x4020_7d3d),
            ("ff02::1", 4739, "3ffe:501:8::260:97ff:fe40:efab", 14230, 0x0f0c_461c, 0xdde5_1bbf),
            (
                "fe80::200:f8ff:fe21:67cf",
                38024,
                "3ffe:1900:4545:3:200:f8ff:fe21:67cf",
                44251,
                0x4b61_e985,
                0x02d1_feef,
            ),
        ];
        for (dst, dst_port, src, src_port, addresses, all) in vectors {
            let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
            assert_eq!(rss(src, dst, None), addresses, "{src} {dst}");
            assert_eq!(rss(src, dst, Some((src_port, dst_port))), all, "{src} {dst}");
        }
    }

    #[test]
    fn few_flows_spread_evenly_over_the_queues_of_a_card() {
        type Flow = (IpAddr, IpAddr, Option<(u16, u16)>);
        let flows: [Flow; 5] = [
            ([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), Some((1024, 80))),
            ([192, 168, 1, 10].into(), [93, 184, 216, 34].into(), Some((40_000, 443))),
            ([172, 16, 3, 4].into(), [224, 0, 0, 251].into(), Some((5353, 5353))),
            ([203, 0, 113, 9].into(), [198, 18, 0, 1].into(), None),
            ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap(), Some((1024, 53))),
        ];
        const LOOPS: u64 = 640_000;
        for (src, dst, ports) in flows {
            let mut queues = [0u64; 128];
            for number in 0..LOOPS {
                let change = UNIQUE.change(number);
                // Network cards use the last seven bits as index into a table of 128 entries, which
                // lists the queues in rotation.
                queues[rss(change.address(src), change.address(dst), ports) as usize % 128] += 1;
            }
            for (count, most) in
                [(2, 0.01), (4, 0.01), (8, 0.015), (16, 0.02), (32, 0.03), (64, 0.045)]
            {
                let even = LOOPS as f64 / count as f64;
                for queue in 0..count {
                    let packets: u64 = queues.iter().skip(queue).step_by(count).sum();
                    let off = (packets as f64 / even - 1.0).abs();
                    assert!(
                        off < most,
                        "{src} > {dst}: queue {queue} of {count}: {packets} of {LOOPS}, {off:.3} \
                         from even"
                    );
                }
            }
        }
    }
}
