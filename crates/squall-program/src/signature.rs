//! The mark that a stream with `latency` carries: the last 16 octets of each frame, before the FCS.
//!
//! At the end, not behind the last header, so that a receiver finds it without parsing, below any
//! encapsulation that a device under test adds. Big-endian: check (32 bits), stream (16), sequence
//! (32), transmit time (48 bits of nanoseconds, wraps after 78 hours).

use squall_units::signature_check;

/// Octets of the signature: what UDP over IPv4 leaves free in a frame of 64 is 18.
pub const LEN: usize = 16;

/// What the mark says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    pub stream: u16,
    /// Index of the frame in its stream, modulo 2^32.
    pub sequence: u32,
    /// Nanoseconds on the sender's clock, modulo 2^48.
    pub time: u64,
}

const TIME_BITS: u32 = 48;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;

impl Signature {
    /// Two big-endian halves.
    #[inline]
    pub fn halves(self) -> (u64, u64) {
        let high = (u64::from(self.stream) << 16) | u64::from(self.sequence >> 16);
        let low = (u64::from(self.sequence & 0xffff) << TIME_BITS) | (self.time & TIME_MASK);
        ((u64::from(signature_check(high, low)) << 32) | high, low)
    }

    /// Reads the end of `frame` (octets without FCS); `None` where there is no signature.
    #[inline]
    pub fn read(frame: &[u8]) -> Option<Self> {
        let (high, low) = frame.last_chunk::<LEN>()?.split_at(8);
        let high = u64::from_be_bytes(high.try_into().ok()?);
        let low = u64::from_be_bytes(low.try_into().ok()?);
        if signature_check(high, low) != (high >> 32) as u32 {
            return None;
        }
        Some(Self {
            stream: (high >> 16) as u16,
            sequence: ((high as u32 & 0xffff) << 16) | (low >> TIME_BITS) as u32,
            time: low & TIME_MASK,
        })
    }

    /// Nanoseconds from the transmit time to `now`, both on one clock; negative when clocks differ.
    #[inline]
    pub fn delay(&self, now: u64) -> i64 {
        let difference = (now.wrapping_sub(self.time) & TIME_MASK) << (64 - TIME_BITS);
        (difference as i64) >> (64 - TIME_BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn octets(s: Signature) -> Vec<u8> {
        let (high, low) = s.halves();
        [high.to_be_bytes(), low.to_be_bytes()].concat()
    }

    #[test]
    fn what_is_written_is_read() {
        for k in 0..1000u64 {
            let r = crate::mix(3, k);
            let s = Signature {
                stream: r as u16,
                sequence: (r >> 16) as u32,
                time: crate::mix(4, k) & TIME_MASK,
            };
            assert_eq!(Signature::read(&octets(s)), Some(s));
        }
    }

    #[test]
    fn one_changed_bit_is_not_a_signature() {
        let good = octets(Signature { stream: 1, sequence: 2, time: 3 });
        for bit in 0..128 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Signature::read(&bad), None, "bit {bit}");
        }
    }

    #[test]
    fn foreign_octets_are_not_a_signature() {
        assert_eq!(Signature::read(&[0; 60]), None);
        assert_eq!(Signature::read(&[0xff; 60]), None);
        assert_eq!(Signature::read(&[]), None);
        let found = (0..100_000u64)
            .filter(|&k| {
                let r =
                    [crate::mix(5, 2 * k).to_be_bytes(), crate::mix(5, 2 * k + 1).to_be_bytes()]
                        .concat();
                Signature::read(&r).is_some()
            })
            .count();
        assert_eq!(found, 0);
    }

    #[test]
    fn delay_survives_the_wrap_and_keeps_its_sign() {
        let s = Signature { stream: 0, sequence: 0, time: TIME_MASK };
        assert_eq!(s.delay(1 << TIME_BITS), 1);
        assert_eq!(s.delay(TIME_MASK - 5), -5);
    }
}
