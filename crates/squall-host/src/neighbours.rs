//! Who has which MAC address, and who is to be asked.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    hash::{BuildHasherDefault, Hasher},
    net::IpAddr,
};

use squall_units::{MacAddr, Nanos};

/// The neighbours on a link.
#[derive(Debug, Default)]
pub struct Neighbours {
    table: HashMap<IpAddr, Entry, BuildHasherDefault<Mixer>>,
    /// Questions by the instant at which they are to be asked; out of date where the entry says
    /// otherwise.
    questions: BinaryHeap<Reverse<(Nanos, IpAddr)>>,
    asking: usize,
}

#[derive(Clone, Copy, Debug)]
enum Entry {
    Known(MacAddr),
    /// Asked so many times.
    Asked {
        tries: u8,
        next: Nanos,
    },
    /// Nobody has answered; asked again when somebody wants to know at that instant or later.
    Silent {
        until: Nanos,
    },
}

/// What is known of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Mac(MacAddr),
    /// It is being asked for.
    Wait,
    /// Nobody answers.
    Silent,
}

/// Between two questions for one address, at first; then twice as long each time.
const PATIENCE: Nanos = Nanos(100_000_000);
/// 0.1 + 0.2 + ... + 3.2 s: as patient as those who wait a second for an interface to come up.
const TRIES: u8 = 6;
/// Who was silent is not asked again for so long.
const REST: Nanos = Nanos(1_000_000_000);
/// Addresses that are asked for at once at most: further ones have their turn when these have
/// answered.
const ASKING: usize = 1024;
/// Addresses that are remembered.
const MOST: usize = 1 << 22;

impl Neighbours {
    /// What is known of `address`. Who is not known is asked for from now on.
    #[inline]
    pub fn find(&mut self, now: Nanos, address: IpAddr) -> Answer {
        match self.table.get(&address) {
            Some(Entry::Known(mac)) => Answer::Mac(*mac),
            Some(Entry::Asked { .. }) => Answer::Wait,
            Some(Entry::Silent { until }) if now < *until => Answer::Silent,
            _ => {
                if self.asking < ASKING && self.table.len() < MOST {
                    self.asking += 1;
                    self.table.insert(address, Entry::Asked { tries: 0, next: now });
                    self.questions.push(Reverse((now, address)));
                }
                Answer::Wait
            }
        }
    }

    /// `address` has spoken with this MAC address. True if it was being asked for.
    pub fn learn(&mut self, address: IpAddr, mac: MacAddr) -> bool {
        let known = self.table.len();
        let was_asked = match self.table.get_mut(&address) {
            Some(entry) => {
                matches!(std::mem::replace(entry, Entry::Known(mac)), Entry::Asked { .. })
            }
            None if known < MOST => self.table.insert(address, Entry::Known(mac)).is_some(),
            None => false,
        };
        self.asking -= usize::from(was_asked);
        was_asked
    }

    /// When [`Neighbours::question`] has something to say.
    #[inline]
    pub fn next_due(&self) -> Option<Nanos> {
        self.questions.peek().map(|Reverse((due, _))| *due)
    }

    /// The next address that is to be asked for by `now`; `Err`: nobody answers for this one, it is
    /// given up.
    pub fn question(&mut self, now: Nanos) -> Option<Result<IpAddr, IpAddr>> {
        loop {
            let Reverse((due, address)) =
                *self.questions.peek().filter(|Reverse((due, _))| *due <= now)?;
            self.questions.pop();
            match self.table.get_mut(&address) {
                Some(Entry::Asked { tries, next }) if *next == due => {
                    if *tries == TRIES {
                        self.table.insert(address, Entry::Silent { until: now + REST });
                        self.asking -= 1;
                        return Some(Err(address));
                    }
                    *next = now + Nanos(PATIENCE.0 << *tries);
                    *tries += 1;
                    self.questions.push(Reverse((*next, address)));
                    return Some(Ok(address));
                }
                // Answered meanwhile.
                _ => {}
            }
        }
    }
}

/// A hash of addresses that is looked up for each packet. Who could send many that collide could as
/// well send many.
#[derive(Debug, Default)]
struct Mixer(u64);

impl Mixer {
    #[inline]
    fn mix(&mut self, word: u64) {
        let product =
            u128::from(self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

impl Hasher for Mixer {
    #[inline]
    fn write(&mut self, octets: &[u8]) {
        let (words, rest) = octets.as_chunks::<8>();
        words.iter().for_each(|word| self.mix(u64::from_le_bytes(*word)));
        self.mix(rest.iter().fold(1, |sum, octet| sum << 8 | u64::from(*octet)));
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.mix(word.into());
    }

    // The family: one bit, and mixed in before the address.
    #[inline]
    fn write_isize(&mut self, family: isize) {
        self.0 = self.0.rotate_left(32) ^ family as u64;
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_answers_is_known_and_who_does_not_is_given_up_after_some_tries() {
        let mut neighbours = Neighbours::default();
        let (a, b): (IpAddr, IpAddr) = ("16.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap());
        assert_eq!(
            (neighbours.find(Nanos(5), a), neighbours.find(Nanos(5), b)),
            (Answer::Wait, Answer::Wait)
        );
        let mut asked: Vec<_> = std::iter::from_fn(|| neighbours.question(Nanos(5))).collect();
        asked.sort_unstable();
        assert_eq!(asked, [Ok(a), Ok(b)]);
        assert!(neighbours.learn(a, MacAddr([1; 6])));
        assert_eq!(neighbours.find(Nanos(6), a), Answer::Mac(MacAddr([1; 6])));
        let mut tries = 1;
        let now = loop {
            let now = neighbours.next_due().expect("it is still asked for");
            match neighbours.question(now) {
                Some(Ok(again)) => assert_eq!(again, b),
                Some(Err(silent)) => {
                    assert_eq!(silent, b);
                    break now;
                }
                // That of the one who has answered.
                None => continue,
            }
            tries += 1;
        };
        assert_eq!(tries, TRIES);
        assert_eq!((neighbours.find(now, b), neighbours.question(now)), (Answer::Silent, None));
        assert_eq!(neighbours.find(now + REST, b), Answer::Wait);
    }

    #[test]
    fn questions_at_once_are_bounded() {
        let mut neighbours = Neighbours::default();
        for i in 0..10_000u32 {
            neighbours.find(Nanos(0), IpAddr::V4(i.into()));
        }
        assert_eq!(std::iter::from_fn(|| neighbours.question(Nanos(0))).count(), ASKING);
    }
}
