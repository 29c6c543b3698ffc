//! The mark that a stream with `latency` carries: the last 16 octets of each frame, before the FCS.
//!
//! It is at the end and not after the last header, so that a receiver finds it without parsing,
//! under any encapsulation that a device under test adds. Big-endian: check (32 bits), stream (16),
//! sequence (32), transmit time (48 bits of nanoseconds, wraps after 78 hours). The check is a hash
//! of the rest XOR the run's key of 16 bits: a receiver that reads a signature learns the key, and
//! the upper half of the check still verifies the signature.

use squall_units::signature_check;

/// Octets of the signature. They fit, because UDP over IPv4 leaves 18 octets free in a 64-octet
/// frame.
pub const LEN: usize = 16;

/// The contents of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The key of the run, which distinguishes the signatures of runs.
    pub key: u16,
    pub stream: u16,
    /// Index of the frame in its stream, modulo 2^32.
    pub sequence: u32,
    /// Nanoseconds on the sender's clock, modulo 2^48.
    pub time: u64,
}

const TIME_BITS: u32 = 48;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;

impl Signature {
    /// The signature as two big-endian halves.
    #[inline]
    pub fn halves(self) -> (u64, u64) {
        let high = (u64::from(self.stream) << 16) | u64::from(self.sequence >> 16);
        let low = (u64::from(self.sequence & 0xffff) << TIME_BITS) | (self.time & TIME_MASK);
        let check = signature_check(high, low) ^ u32::from(self.key);
        ((u64::from(check) << 32) | high, low)
    }

    /// Reads the signature at the end of `frame` (octets without FCS); `None`: there is none.
    /// Random octets pass with a probability of 2^-16.
    #[inline]
    pub fn read(frame: &[u8]) -> Option<Self> {
        let (high, low) = ends(frame)?;
        let key = u16::try_from(difference(high, low)).ok()?;
        Some(Self::of(key, high, low))
    }

    /// As [`Signature::read`], for the signatures of one run: random octets pass with a probability
    /// of 2^-32. The error is true if the signature belongs to another run.
    #[inline]
    pub fn read_of(frame: &[u8], key: u32) -> Result<Self, bool> {
        let Some((high, low)) = ends(frame) else { return Err(false) };
        let found = difference(high, low);
        if found == key {
            return Ok(Self::of(key as u16, high, low));
        }
        Err(found <= u16::MAX.into())
    }

    // Built in one expression: assembling it in steps costs 20 more instructions per frame.
    #[inline]
    fn of(key: u16, high: u64, low: u64) -> Self {
        Self {
            key,
            stream: (high >> 16) as u16,
            sequence: ((high as u32 & 0xffff) << 16) | (low >> TIME_BITS) as u32,
            time: low & TIME_MASK,
        }
    }

    /// Nanoseconds from `start` to the transmit time, modulo 2^48.
    #[inline]
    pub fn since(&self, start: u64) -> u64 {
        self.time.wrapping_sub(start) & TIME_MASK
    }

    /// Nanoseconds from the transmit time to `now`, both on one clock; negative if clocks differ.
    #[inline]
    pub fn delay(&self, now: u64) -> i64 {
        let difference = (now.wrapping_sub(self.time) & TIME_MASK) << (64 - TIME_BITS);
        (difference as i64) >> (64 - TIME_BITS)
    }
}

/// The last 16 octets of `frame` as halves.
#[inline]
fn ends(frame: &[u8]) -> Option<(u64, u64)> {
    let (high, low) = frame.last_chunk::<LEN>()?.split_at(8);
    Some((u64::from_be_bytes(high.try_into().ok()?), u64::from_be_bytes(low.try_into().ok()?)))
}

/// The check XOR the hash of the rest; this is the key if it is below 2^16.
#[inline]
fn difference(high: u64, low: u64) -> u32 {
    signature_check(high, low) ^ (high >> 32) as u32
}

/// The key of a run with this seed. The default seed has key 0, so that the octets are those of
/// versions without keys.
pub fn key_of(seed: u64) -> u16 {
    const USUAL: u64 = 1;
    let key = |seed| squall_units::mix(seed, 0x7369_676e) as u16;
    key(seed) ^ key(USUAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn octets(s: Signature) -> Vec<u8> {
        let (high, low) = s.halves();
        [high.to_be_bytes(), low.to_be_bytes()].concat()
    }

    #[test]
    fn written_signatures_are_read() {
        for k in 0..1000u64 {
            let r = squall_units::mix(3, k);
            let s = Signature {
                key: (r >> 48) as u16,
                stream: r as u16,
                sequence: (r >> 16) as u32,
                time: squall_units::mix(4, k) & TIME_MASK,
            };
            assert_eq!(Signature::read(&octets(s)), Some(s));
            assert_eq!(Signature::read_of(&octets(s), s.key.into()), Ok(s));
            assert_eq!(Signature::read_of(&octets(s), u32::from(s.key) ^ 1), Err(true));
        }
    }

    #[test]
    fn one_changed_bit_is_not_a_signature() {
        let good = Signature { key: 9, stream: 1, sequence: 2, time: 3 };
        for bit in 0..128 {
            let mut bad = octets(good);
            bad[bit / 8] ^= 1 << (bit % 8);
            // The third and fourth octets hold the key.
            let other = matches!(bit / 8, 2 | 3)
                .then(|| Signature { key: 9 ^ 1 << ((bit + 8) % 16), ..good });
            assert_eq!(Signature::read(&bad), other, "bit {bit}");
            assert_eq!(Signature::read_of(&bad, 9), Err(other.is_some()), "bit {bit}");
        }
    }

    #[test]
    fn foreign_octets_are_not_a_signature() {
        assert_eq!(Signature::read_of(&[0; 60], 0), Err(false));
        assert_eq!(Signature::read_of(&[0xff; 60], 0), Err(false));
        assert_eq!(Signature::read(&[]), None);
        let found = (0..100_000u64)
            .filter(|&k| {
                let r = [
                    squall_units::mix(5, 2 * k).to_be_bytes(),
                    squall_units::mix(5, 2 * k + 1).to_be_bytes(),
                ]
                .concat();
                assert!(Signature::read_of(&r, 0).is_err());
                Signature::read(&r).is_some()
            })
            .count();
        assert!(found < 10, "one of 2^16, {found} were found");
    }

    #[test]
    fn delay_survives_the_wrap_and_keeps_its_sign() {
        let s = Signature { key: 0, stream: 0, sequence: 0, time: TIME_MASK };
        assert_eq!(s.delay(1 << TIME_BITS), 1);
        assert_eq!(s.delay(TIME_MASK - 5), -5);
        assert_eq!((s.since(TIME_MASK - 7), s.since(TIME_MASK + 8)), (7, TIME_MASK - 7));
    }

    #[test]
    fn seeds_have_keys_and_the_usual_one_has_none() {
        assert_eq!(key_of(1), 0);
        let keys: std::collections::HashSet<u16> = (0..1000).map(key_of).collect();
        assert!(keys.len() > 980, "{} of 1000", keys.len());
    }
}
