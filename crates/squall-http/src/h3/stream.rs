//! The state of a request, and integers of any length.

use super::StreamId;

/// No content-length, or one that is not checked.
pub(super) const ANY_LENGTH: u64 = u64::MAX;

/// An integer of QUIC (RFC 9000 section 16) that comes in any number of pieces.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Varint {
    octets: [u8; 8],
    have: u8,
}

impl Varint {
    /// Takes the integer from `input`, after the octets of earlier calls; `None` if there are too
    /// few.
    #[inline]
    pub fn take(&mut self, input: &mut &[u8]) -> Option<u64> {
        match **input {
            // Most have one octet.
            [octet @ ..0x40, ref rest @ ..] if self.have == 0 => {
                *input = rest;
                Some(octet.into())
            }
            _ => self.take_octets(input),
        }
    }

    fn take_octets(&mut self, input: &mut &[u8]) -> Option<u64> {
        loop {
            let (&octet, rest) = input.split_first()?;
            *input = rest;
            self.octets[usize::from(self.have)] = octet;
            self.have += 1;
            let first = self.octets[0];
            let len = 1_u8 << (first >> 6);
            if self.have == len {
                self.have = 0;
                let more = self.octets[1..usize::from(len)].iter();
                let value =
                    more.fold(u64::from(first & 0x3f), |sum, octet| sum << 8 | u64::from(*octet));
                return Some(value);
            }
        }
    }

    /// Whether the beginning of an integer has come.
    pub fn has_begun(&self) -> bool {
        self.have > 0
    }
}

/// Appends an integer in its shortest form.
///
/// # Panics
/// If `value` has more than 62 bits.
pub(super) fn varint(value: u64, out: &mut Vec<u8>) {
    let (len, flag) = match value {
        0..=0x3f => (1, 0x00),
        0x40..=0x3fff => (2, 0x40),
        0x4000..=0x3fff_ffff => (4, 0x80),
        0x4000_0000..=0x3fff_ffff_ffff_ffff => (8, 0xc0),
        _ => panic!("integers of QUIC have 62 bits"),
    };
    let begin = out.len();
    out.extend_from_slice(&value.to_be_bytes()[8 - len..]);
    out[begin] |= flag;
}

/// The frames that may be on the stream of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Data,
    Headers,
    /// Ignored.
    Unknown,
}

/// Which part of a frame comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Type,
    Length(Frame),
    Payload(Frame),
}

/// A request that is open or half closed. There may be many: 72 octets.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    pub id: StreamId,
    /// Octets of the body that are still to come, or [`ANY_LENGTH`].
    pub remaining: u64,
    /// Octets of the frame's payload that are still to come.
    pub left: u64,
    /// The beginning of a field block, or one that waits for insertions.
    pub block: Vec<u8>,
    pub varint: Varint,
    pub part: Part,
    pub local_ended: bool,
    pub remote_ended: bool,
    /// Whether the request, or the final response, was received. A further block is trailers.
    pub headed: bool,
    pub trailers: bool,
    /// Whether any data came.
    pub data: bool,
    /// A tunnel (RFC 9114 section 4.4): only data come.
    pub tunnel: bool,
    /// Whether `block` waits for insertions.
    pub blocked: bool,
    /// Whether the latest fields are longer than this end takes.
    pub too_long: bool,
}

impl Stream {
    pub fn new(id: StreamId) -> Self {
        Self {
            id,
            remaining: ANY_LENGTH,
            left: 0,
            block: vec![],
            varint: Varint::default(),
            part: Part::Type,
            local_ended: false,
            remote_ended: false,
            headed: false,
            trailers: false,
            data: false,
            tunnel: false,
            blocked: false,
            too_long: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_those_of_rfc_9000_appendix_a_1() {
        for (octets, value) in [
            (&b"\xc2\x19\x7c\x5e\xff\x14\xe8\x8c"[..], 151_288_809_941_952_652),
            (b"\x9d\x7f\x3e\x7d", 494_878_333),
            (b"\x7b\xbd", 15_293),
            (b"\x25", 37),
        ] {
            let mut out = vec![];
            varint(value, &mut out);
            assert_eq!(out, octets);
            for cut in 0..octets.len() {
                let (mut left, mut right) = octets.split_at(cut);
                let mut read = Varint::default();
                assert_eq!(read.take(&mut left), None);
                assert_eq!(read.has_begun(), cut > 0);
                assert_eq!(read.take(&mut right), Some(value));
                assert!(right.is_empty() && !read.has_begun());
            }
        }
        // The shortest form is not required.
        assert_eq!(Varint::default().take(&mut &b"\x40\x25"[..]), Some(37));
    }
}
