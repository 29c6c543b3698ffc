//! Selects packets, and shifts and scales their times.

use squall_units::mix;

use crate::{Edits, Factor, Meta, Numbers, Operation, When};

pub struct Selection {
    packets: Option<Numbers>,
    from: Option<When>,
    to: Option<When>,
    recent: Option<Recent>,
}

impl Selection {
    pub fn new(edits: &Edits) -> Self {
        Self {
            packets: edits.packets.clone(),
            from: edits.from,
            to: edits.to,
            recent: edits.dedup.map(Recent::new),
        }
    }

    /// The operation that drops the packet, if any.
    pub fn refuses(&mut self, octets: &[u8], meta: &Meta, origin_ns: u64) -> Option<Operation> {
        if self.packets.as_ref().is_some_and(|packets| !packets.hold(meta.number)) {
            return Some(Operation::Packets);
        }
        if self.from.is_some_and(|from| meta.time_ns < from.ns(origin_ns))
            || self.to.is_some_and(|to| meta.time_ns > to.ns(origin_ns))
        {
            return Some(Operation::Window);
        }
        self.recent.as_mut()?.seen(octets).then_some(Operation::Dedup)
    }
}

/// Previous packets, identified by their length and a 128-bit hash.
struct Recent {
    ring: Vec<(u32, u128)>,
    next: usize,
}

impl Recent {
    /// As in editcap, the window includes the packet itself: with a window of 5, a packet is
    /// compared to the 4 before it.
    fn new(window: u32) -> Self {
        Self { ring: vec![(u32::MAX, 0); (window.max(2) - 1) as usize], next: 0 }
    }

    fn seen(&mut self, octets: &[u8]) -> bool {
        let this = (octets.len() as u32, hash(octets));
        let seen = self.ring.contains(&this);
        // Dropped packets are remembered as well, so only one packet of a burst of duplicates
        // remains.
        self.ring[self.next] = this;
        self.next = (self.next + 1) % self.ring.len();
        seen
    }
}

/// Two chains of splitmix64's finalizer, so different packets have the same hash only by chance.
fn hash(octets: &[u8]) -> u128 {
    let (mut a, mut b) = (0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344);
    let (words, rest) = octets.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    for word in words.iter().chain([&last]) {
        let word = u64::from_le_bytes(*word);
        a = mix(a, word);
        b = mix(b ^ word, 0x5899_65cc_7537_4cc3);
    }
    u128::from(a) << 64 | u128::from(b)
}

/// Computes `t' = t0 + (t - t0) * scale + shift` exactly. The result is never before 1970.
#[inline]
pub fn retimed(time_ns: u64, origin_ns: u64, scale: Option<Factor>, shift_ns: i64) -> u64 {
    let since = i128::from(time_ns) - i128::from(origin_ns);
    let since = scale.map_or(since, |Factor { num, den }| {
        since.saturating_mul(i128::from(num)) / i128::from(den)
    });
    let time = since.saturating_add(i128::from(origin_ns)).saturating_add(i128::from(shift_ns));
    time.clamp(0, i128::from(u64::MAX)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_of_n_compares_with_the_packets_before() {
        let mut recent = Recent::new(3);
        let seen: Vec<bool> = [b"a", b"b", b"a", b"c", b"d", b"a", b"a"]
            .iter()
            .map(|octets| recent.seen(*octets))
            .collect();
        assert_eq!(seen, [false, false, true, false, false, false, true]);
        // A packet that only has one more zero octet is different.
        assert!(!recent.seen(b"a\0"));
    }

    #[test]
    fn times_scale_about_the_first_packet_and_are_exact() {
        let half = Some(Factor { num: 5, den: 10 });
        let year = 365 * 86_400 * 1_000_000_000_u64;
        assert_eq!(retimed(10 * year + 7, 9 * year, half, 0), 9 * year + year / 2 + 3);
        assert_eq!(retimed(8 * year, 9 * year, half, -1), 8 * year + year / 2 - 1);
        assert_eq!(retimed(5, 5, None, -10), 0);
        assert_eq!(
            retimed(u64::MAX, 0, Some(Factor { num: u64::MAX, den: 1 }), i64::MAX),
            u64::MAX
        );
    }
}
