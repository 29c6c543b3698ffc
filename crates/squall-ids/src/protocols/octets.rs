//! Reads numbers and slices from the front of a slice of octets.

use squall_units::be16;

/// The unread data. Each method consumes octets from the front, or none if there are too few.
#[derive(Clone, Copy, Debug)]
pub(super) struct Octets<'a>(pub &'a [u8]);

impl<'a> Octets<'a> {
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub fn skip(&mut self, count: usize) -> Option<()> {
        self.take(count).map(|_| ())
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|octets| octets[0])
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|octets| be16(octets, 0))
    }

    pub fn u24(&mut self) -> Option<u32> {
        self.take(3).map(|octets| u32::from_be_bytes([0, octets[0], octets[1], octets[2]]))
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_be_bytes)
    }

    pub fn u16_le(&mut self) -> Option<u16> {
        self.u16().map(u16::swap_bytes)
    }

    pub fn u32_le(&mut self) -> Option<u32> {
        self.u32().map(u32::swap_bytes)
    }

    /// Octets preceded by their number in one octet.
    pub fn counted_u8(&mut self) -> Option<&'a [u8]> {
        let mut rest = *self;
        let count = rest.u8()?;
        let taken = rest.take(usize::from(count))?;
        *self = rest;
        Some(taken)
    }

    /// Octets preceded by their number in two octets.
    pub fn counted_u16(&mut self) -> Option<&'a [u8]> {
        let mut rest = *self;
        let count = rest.u16()?;
        let taken = rest.take(usize::from(count))?;
        *self = rest;
        Some(taken)
    }

    /// A BER or DER element: its tag and content.
    pub fn element(&mut self) -> Option<(u8, &'a [u8])> {
        let mut rest = *self;
        let tag = rest.u8()?;
        let first = rest.u8()?;
        let length = if first < 0x80 {
            usize::from(first)
        } else {
            let count = usize::from(first & 0x7f);
            if count == 0 || count > 4 {
                return None;
            }
            rest.take(count)?.iter().fold(0, |length, &octet| length << 8 | usize::from(octet))
        };
        let content = rest.take(length)?;
        *self = rest;
        Some((tag, content))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// A BER integer of up to eight octets, read as unsigned.
pub(super) fn integer(content: &[u8]) -> Option<u64> {
    let content = match content {
        [0, rest @ ..] if !rest.is_empty() => rest,
        _ => content,
    };
    (!content.is_empty() && content.len() <= 8)
        .then(|| content.iter().fold(0, |value, &octet| value << 8 | u64::from(octet)))
}

/// Buffers a stream until its next record is complete.
#[derive(Default)]
pub(super) struct Records {
    pending: Vec<u8>,
    /// Octets of `pending` that were returned. They are removed when data is added, which keeps the
    /// cost of a record linear in its length.
    consumed: usize,
    /// Number of octets still to skip of a record that is too long.
    skip: usize,
}

impl Records {
    pub fn push(&mut self, octets: &[u8]) {
        self.pending.drain(..self.consumed);
        self.consumed = 0;
        let skipped = self.skip.min(octets.len());
        self.skip -= skipped;
        self.pending.extend_from_slice(&octets[skipped..]);
    }

    /// The next complete record. `length` computes the record's length, including its header, from
    /// the data so far (`None`: more data is needed). A record longer than `most` is truncated to
    /// `most` octets.
    pub fn next(
        &mut self,
        most: usize,
        length: impl Fn(&[u8]) -> Option<usize>,
    ) -> Option<Vec<u8>> {
        let left = &self.pending[self.consumed..];
        if left.is_empty() {
            return None;
        }
        let whole = length(left)?.max(1);
        let record = left.get(..whole.min(most))?.to_vec();
        self.consumed += record.len();
        let after = whole - record.len();
        let there = after.min(self.pending.len() - self.consumed);
        self.consumed += there;
        self.skip = after - there;
        Some(record)
    }

    pub fn clear(&mut self) {
        *self = Records::default();
    }
}

/// Formats octets as hexadecimal in lower case.
pub(super) fn hexadecimal(octets: &[u8]) -> Vec<u8> {
    octets
        .iter()
        .flat_map(|octet| [octet >> 4, octet & 15])
        .map(|digit| b"0123456789abcdef"[usize::from(digit)])
        .collect()
}

pub(super) fn md5_hexadecimal(octets: &[u8]) -> Vec<u8> {
    use md5::Digest as _;
    hexadecimal(&md5::Md5::digest(octets))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_returned_when_complete_and_cut_when_too_long() {
        let length = |octets: &[u8]| Some(1 + usize::from(*octets.first()?));
        let mut records = Records::default();
        records.push(&[2, 1]);
        assert_eq!(records.next(4, length), None);
        records.push(&[9, 6, 1, 2, 3]);
        assert_eq!(records.next(4, length), Some(vec![2, 1, 9]));
        assert_eq!(records.next(4, length), Some(vec![6, 1, 2, 3]));
        records.push(&[4, 5]);
        records.push(&[6, 1, 7]);
        assert_eq!(records.next(4, length), Some(vec![1, 7]));
    }

    #[test]
    fn an_element_of_ber_has_a_short_or_a_long_length() {
        assert_eq!(Octets(&[2, 1, 5, 9]).element(), Some((2, &[5][..])));
        assert_eq!(Octets(&[4, 0x81, 2, 5, 9]).element(), Some((4, &[5, 9][..])));
        assert_eq!(Octets(&[4, 0x80, 2]).element(), None);
        assert_eq!(Octets(&[4, 5, 2]).element(), None);
    }
}
