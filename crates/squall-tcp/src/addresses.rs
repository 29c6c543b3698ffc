//! IPv6 addresses of flows. The flows of a load differ in the lower 32 bits of their addresses,
//! which are in their records as those of IPv4 are; pairs of the upper 96 bits are here, once each.

use std::collections::HashMap;

use squall_wire::Ipv6Octets;

/// Local and remote address.
pub(crate) type Pair = (Ipv6Octets, Ipv6Octets);

/// In place of the number of an upper pair: `remote` is the row of a [whole pair](Addresses6).
pub(crate) const WHOLE: u16 = u16::MAX;

/// Addresses as in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packed {
    pub local: u32,
    pub remote: u32,
    /// The number of the upper pair, or [`WHOLE`].
    pub upper: u16,
}

pub(crate) struct Addresses6 {
    /// Upper 96 bits, by number. They stay, because there are at most 65,535.
    uppers: Vec<Pair>,
    numbers: HashMap<Pair, u16>,
    /// The number that was looked for last.
    last: u16,
    /// Addresses of flows with other upper bits, and of tuples in TIME-WAIT.
    whole: Vec<Pair>,
    spare: Vec<u32>,
}

impl Addresses6 {
    pub fn new() -> Self {
        let (uppers, whole) = (Vec::new(), Vec::new());
        Self { uppers, numbers: HashMap::new(), last: 0, whole, spare: Vec::new() }
    }

    pub fn memory(&self) -> usize {
        (self.uppers.capacity() + self.whole.capacity()) * size_of::<Pair>()
            + self.numbers.capacity() * size_of::<(Pair, u16)>()
            + self.spare.capacity() * 4
    }

    /// Packs the addresses of a new flow. To be released with [`Addresses6::release`].
    #[inline]
    pub fn pack(&mut self, (local, remote): Pair) -> Packed {
        let upper = (local.without_low(), remote.without_low());
        if self.uppers.get(usize::from(self.last)) != Some(&upper) {
            match self.number(upper) {
                Some(number) => self.last = number,
                None => {
                    let remote = self.store((local, remote));
                    return Packed { local: 0, remote, upper: WHOLE };
                }
            }
        }
        Packed { local: local.low(), remote: remote.low(), upper: self.last }
    }

    /// The number of an upper pair; `None`: there is none, and no room for it.
    #[inline(never)]
    fn number(&mut self, upper: Pair) -> Option<u16> {
        if let Some(number) = self.numbers.get(&upper) {
            return Some(*number);
        }
        let number = u16::try_from(self.uppers.len()).ok().filter(|number| *number != WHOLE)?;
        self.uppers.push(upper);
        self.numbers.insert(upper, number);
        Some(number)
    }

    #[inline(always)]
    pub fn get(&self, packed: Packed) -> Pair {
        if packed.upper == WHOLE {
            return self.whole[packed.remote as usize];
        }
        let (local, remote) = self.uppers[usize::from(packed.upper)];
        (local.with_low(packed.local), remote.with_low(packed.remote))
    }

    #[inline]
    pub fn release(&mut self, packed: Packed) {
        if packed.upper == WHOLE {
            self.spare.push(packed.remote);
        }
    }

    /// Replaces packed addresses by the row of a whole pair.
    pub fn unpack(&mut self, packed: Packed) -> u32 {
        if packed.upper == WHOLE { packed.remote } else { self.store(self.get(packed)) }
    }

    fn store(&mut self, pair: Pair) -> u32 {
        match self.spare.pop() {
            Some(row) => {
                self.whole[row as usize] = pair;
                row
            }
            None => {
                self.whole.push(pair);
                self.whole.len() as u32 - 1
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    #[test]
    fn addresses_come_back_also_beyond_the_most_upper_pairs() {
        let mut all = Addresses6::new();
        let of = |bits: u128| Ipv6Octets::from(Ipv6Addr::from_bits(bits));
        let pair = |n: u128| (of((n << 64) | (n + 1)), of((n << 32) | (0xffff_fff0 + n % 16)));
        let packed: Vec<_> = (0..65_600).map(|n| all.pack(pair(n))).collect();
        assert!(packed.iter().zip(0..).all(|(packed, n)| all.get(*packed) == pair(n)));
        assert_eq!(packed.iter().filter(|packed| packed.upper == WHOLE).count(), 65);
        assert_eq!((all.uppers.len(), all.whole.len()), (65_535, 65));
        // Known upper bits need no room, and rows are used again.
        assert_eq!(all.pack(pair(7)), packed[7]);
        packed.iter().for_each(|packed| all.release(*packed));
        let row = all.unpack(packed[7]);
        assert_eq!(all.get(Packed { local: 0, remote: row, upper: WHOLE }), pair(7));
        assert_eq!((all.uppers.len(), all.whole.len()), (65_535, 65));
    }
}
