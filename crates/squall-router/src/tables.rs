//! Tables of routes: random ones that have the prefix lengths of a real table, and prefixes from
//! text.

use std::net::IpAddr;

use squall_units::{mix, shuffled};

use crate::Prefix;

/// Routes of IPv4 by the length of their prefixes, in the table of a router. Source: the counts of
/// DPDK's `app/test/test_lpm_routes.c` (BSD-3-Clause, "dumped from a real router"), without those
/// below 8 and above 24.
const LENGTHS4: [(u8, u64); 17] = [
    (8, 200),
    (9, 37),
    (10, 55),
    (11, 97),
    (12, 381),
    (13, 775),
    (14, 2_104),
    (15, 3_712),
    (16, 69_319),
    (17, 12_983),
    (18, 23_667),
    (19, 69_068),
    (20, 62_354),
    (21, 48_531),
    (22, 72_355),
    (23, 85_427),
    (24, 583_898),
];

/// Routes of IPv6 by the length of their prefixes, in percent. An assumption, as no counts for each
/// length are public: the mean is 42.8; that of the table of AS131072 was 42.87, with 222,878
/// routes on 2025-04-24 (bgp.potaroo.net).
const LENGTHS6: [(u8, u64); 12] = [
    (29, 2),
    (32, 12),
    (33, 3),
    (34, 3),
    (36, 5),
    (40, 10),
    (42, 1),
    (44, 11),
    (45, 1),
    (46, 3),
    (47, 3),
    (48, 46),
];

/// Blocks with a special purpose (RFC 6890 and its registries), in 16.0.0.0 to 223.255.255.255.
const SPECIAL4: [([u8; 4], u8); 14] = [
    ([100, 64, 0, 0], 10),
    ([127, 0, 0, 0], 8),
    ([169, 254, 0, 0], 16),
    ([172, 16, 0, 0], 12),
    ([192, 0, 0, 0], 24),
    ([192, 0, 2, 0], 24),
    ([192, 31, 196, 0], 24),
    ([192, 52, 193, 0], 24),
    ([192, 88, 99, 0], 24),
    ([192, 168, 0, 0], 16),
    ([192, 175, 48, 0], 24),
    ([198, 18, 0, 0], 15),
    ([198, 51, 100, 0], 24),
    ([203, 0, 113, 0], 24),
];

/// The same in 2000::/4: the first 32 bits of each.
const SPECIAL6: [(u32, u8); 4] =
    [(0x2001_0000, 23), (0x2001_0db8, 32), (0x2002_0000, 16), (0x2620_004f, 32)];

/// Why a table cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    #[error("there are not as many prefixes of length {0}")]
    TooMany(u8),
    #[error("line {line}: {text:?} is not a prefix without host bits, such as 198.51.100.0/24")]
    Line { line: usize, text: String },
}

/// `count` different prefixes of one IP version, in ascending order. Their lengths are those of a
/// real table, except that at most half of all prefixes of a length are taken, because the counts
/// include duplicates; the rest is /24 or /48. The addresses are uniform over 16.0.0.0 to
/// 223.255.255.255 or 2000::/4, without special blocks and what overlaps with `used`.
///
/// # Errors
/// There are not as many prefixes.
pub fn random(
    seed: u64,
    is_ipv6: bool,
    count: u32,
    used: &[Prefix],
) -> Result<Vec<Prefix>, TableError> {
    let special4 = SPECIAL4.map(|(octets, length)| Prefix { address: octets.into(), length });
    let special6 = SPECIAL6.map(|(bits, length)| Prefix {
        address: IpAddr::V6((u128::from(bits) << 96).into()),
        length,
    });
    let special = if is_ipv6 { &special6[..] } else { &special4[..] };
    let left_out: Vec<Prefix> = special
        .iter()
        .chain(used)
        .filter(|prefix| prefix.address.is_ipv6() == is_ipv6)
        .copied()
        .collect();
    let space = if is_ipv6 { SPACE6 } else { SPACE4 };
    let shares = space.shares(count.into());
    if let Some((length, _)) = shares.iter().find(|(length, n)| *n > space.prefixes(*length)) {
        return Err(TableError::TooMany(*length));
    }
    let mut prefixes = Vec::with_capacity(count as usize);
    for (length, share) in shares {
        let all = space.prefixes(length);
        let key = mix(seed, length.into());
        // A network of the profile may have nearly all of 2^44 prefixes. All of IPv4 are tried.
        let tries = if is_ipv6 { all.min((1 << 20) + 64 * share) } else { all };
        let of_length = (0..tries)
            .map(|k| space.prefix(shuffled(k, all, key), length))
            .filter(|prefix| !left_out.iter().any(|other| prefix.overlaps(*other)));
        let before = prefixes.len() as u64;
        prefixes.extend(of_length.take(share as usize));
        if prefixes.len() as u64 - before < share {
            return Err(TableError::TooMany(length));
        }
    }
    prefixes.sort_unstable();
    Ok(prefixes)
}

/// Where the random prefixes of an IP version are.
struct Space {
    lengths: &'static [(u8, u64)],
    /// The length that gets the routes which no other length takes.
    rest: u8,
    /// The first address, and the number of /4 from there on.
    first: u128,
    blocks: u64,
    width: u8,
}

const SPACE4: Space =
    Space { lengths: &LENGTHS4, rest: 24, first: 16 << 24, blocks: 13, width: 32 };
const SPACE6: Space =
    Space { lengths: &LENGTHS6, rest: 48, first: 0x2000 << 112, blocks: 1, width: 128 };

impl Space {
    /// Number of all prefixes of a length, which is at least 4.
    fn prefixes(&self, length: u8) -> u64 {
        self.blocks << (length - 4)
    }

    fn prefix(&self, number: u64, length: u8) -> Prefix {
        let bits = self.first + (u128::from(number) << (self.width - length));
        let address = match self.width {
            32 => IpAddr::V4((bits as u32).into()),
            _ => IpAddr::V6(bits.into()),
        };
        Prefix { address, length }
    }

    /// Number of routes of each length, of `count` in all.
    fn shares(&self, count: u64) -> Vec<(u8, u64)> {
        let total: u64 = self.lengths.iter().map(|(_, weight)| weight).sum();
        let share = |&(length, weight): &(u8, u64)| {
            let most = self.prefixes(length) / 2;
            (length, (count * weight / total).min(most))
        };
        let others = self.lengths.iter().filter(|(length, _)| *length != self.rest);
        let mut shares: Vec<_> = others.map(share).collect();
        let taken: u64 = shares.iter().map(|(_, share)| share).sum();
        shares.push((self.rest, count - taken));
        shares
    }
}

/// The prefixes of a text with one in each line. Empty lines, and what follows a `#`, are skipped.
///
/// # Errors
/// A line that is no prefix.
pub fn from_text(text: &str) -> Result<Vec<Prefix>, TableError> {
    let lines = text.lines().enumerate().filter_map(|(number, line)| {
        let text = line.split('#').next().unwrap_or_default().trim();
        (!text.is_empty()).then_some((number + 1, text))
    });
    let prefix = |(line, text): (usize, &str)| {
        let wrong = || TableError::Line { line, text: text.chars().take(60).collect() };
        Prefix::parse(text).ok_or_else(wrong)
    };
    lines.map(prefix).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashSet};

    use super::*;

    fn prefix(text: &str) -> Prefix {
        Prefix::parse(text).expect("a prefix")
    }

    fn by_length(table: &[Prefix]) -> BTreeMap<u8, usize> {
        let mut counts = BTreeMap::new();
        table.iter().for_each(|prefix| *counts.entry(prefix.length).or_default() += 1);
        counts
    }

    #[test]
    fn a_million_random_routes_are_distinct_and_have_real_lengths() {
        let table = random(7, false, 1_000_000, &[]).expect("there are as many");
        assert_eq!(table.len(), 1_000_000);
        assert_eq!(table.iter().collect::<HashSet<_>>().len(), 1_000_000);
        let counts = by_length(&table);
        // At most half of the prefixes of 16.0.0.0 to 223.255.255.255 of a length.
        assert_eq!((counts[&8], counts[&16]), (104, 26_624));
        assert_eq!(counts[&22], 69_910);
        assert!((600_000..610_000).contains(&counts[&24]), "{counts:?}");
        let first = |prefix: &Prefix| match prefix.address {
            IpAddr::V4(address) => address.octets()[0],
            IpAddr::V6(_) => 0,
        };
        assert!(table.iter().all(|prefix| (16..224).contains(&first(prefix))));
        assert!(table.is_sorted());
    }

    #[test]
    fn a_space_without_free_prefixes_is_given_up() {
        let used = [prefix("2000::/3")];
        assert_eq!(random(1, true, 5, &used), Err(TableError::TooMany(48)));
    }

    #[test]
    fn special_and_used_prefixes_are_left_out() {
        let used = prefix("16.0.0.0/5");
        let table = random(1, false, 200_000, &[used]).expect("there are as many");
        let is_special = |one: &Prefix| {
            let special = ["127.0.0.0/8", "192.168.0.0/16", "198.51.100.0/24"];
            special.into_iter().any(|block| one.overlaps(prefix(block)))
        };
        assert!(!table.iter().any(is_special));
        assert!(!table.iter().any(|one| one.overlaps(used)));
        let table = random(1, true, 200_000, &[]).expect("there are as many");
        assert!(!table.iter().any(|one| one.overlaps(prefix("2001:db8::/32"))));
        assert_eq!(by_length(&table)[&48], 92_000);
    }

    #[test]
    fn the_seed_selects_the_prefixes_and_too_many_are_an_error() {
        let of = |seed| random(seed, false, 1_000, &[]).expect("there are as many");
        assert_eq!(of(3), of(3));
        assert_ne!(of(3), of(4));
        assert_eq!(random(1, false, 30_000_000, &[]), Err(TableError::TooMany(24)));
    }

    #[test]
    fn a_text_has_a_prefix_in_each_line() {
        let table = from_text("# edge\n198.51.100.0/24\n\n 2001:db8::/32 # lab\n").expect("right");
        let texts: Vec<_> = table.iter().map(Prefix::to_string).collect();
        assert_eq!(texts, ["198.51.100.0/24", "2001:db8::/32"]);
        for (text, line) in [("198.51.100.1/24", 1), ("\n10.0.0.0", 2), ("10.0.0.0/33", 1)] {
            let error = from_text(text).expect_err("wrong");
            assert!(matches!(error, TableError::Line { line: found, .. } if found == line));
        }
    }
}
