//! Sets of octets.

/// A set of octets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ByteSet([u64; 4]);

impl ByteSet {
    pub const NONE: ByteSet = ByteSet([0; 4]);
    pub const ALL: ByteSet = ByteSet([u64::MAX; 4]);

    pub const fn of(byte: u8) -> Self {
        Self::NONE.with(byte)
    }

    /// Inclusive.
    pub const fn range(first: u8, last: u8) -> Self {
        let mut set = Self::NONE;
        let mut byte = first as u16;
        while byte <= last as u16 {
            set = set.with(byte as u8);
            byte += 1;
        }
        set
    }

    pub const fn from_bytes(bytes: &[u8]) -> Self {
        let mut set = Self::NONE;
        let mut index = 0;
        while index < bytes.len() {
            set = set.with(bytes[index]);
            index += 1;
        }
        set
    }

    #[must_use]
    pub const fn with(mut self, byte: u8) -> Self {
        self.0[(byte >> 6) as usize] |= 1 << (byte & 63);
        self
    }

    #[must_use]
    pub const fn without(mut self, byte: u8) -> Self {
        self.0[(byte >> 6) as usize] &= !(1 << (byte & 63));
        self
    }

    pub const fn has(&self, byte: u8) -> bool {
        self.0[(byte >> 6) as usize] & (1 << (byte & 63)) != 0
    }

    #[must_use]
    pub const fn and(self, other: ByteSet) -> Self {
        let (a, b) = (self.0, other.0);
        ByteSet([a[0] & b[0], a[1] & b[1], a[2] & b[2], a[3] & b[3]])
    }

    #[must_use]
    pub const fn or(self, other: ByteSet) -> Self {
        let (a, b) = (self.0, other.0);
        ByteSet([a[0] | b[0], a[1] | b[1], a[2] | b[2], a[3] | b[3]])
    }

    /// The complement.
    #[must_use]
    pub const fn not(self) -> Self {
        ByteSet([!self.0[0], !self.0[1], !self.0[2], !self.0[3]])
    }

    pub const fn is_empty(&self) -> bool {
        self.0[0] | self.0[1] | self.0[2] | self.0[3] == 0
    }

    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Iterates over the octets in ascending order.
    pub fn iter(self) -> impl Iterator<Item = u8> {
        (0..=255).filter(move |byte| self.has(*byte))
    }

    /// The only member, if there is exactly one.
    pub fn single(&self) -> Option<u8> {
        if self.len() == 1 { self.iter().next() } else { None }
    }

    /// Adds the other case of each ASCII letter. Engines fold no other letters.
    #[must_use]
    pub fn caseless(self) -> Self {
        // All letters are in the second word, and their cases differ by 32.
        const UPPER: u64 = 0x07ff_fffe;
        let word = self.0[1];
        let folded = word | ((word & UPPER) << 32) | ((word >> 32) & UPPER);
        ByteSet([self.0[0], folded, self.0[2], self.0[3]])
    }

    /// A set with the octet, or with both of its cases if case is ignored.
    pub fn letter(byte: u8, caseless: bool) -> Self {
        if caseless { Self::of(byte).caseless() } else { Self::of(byte) }
    }
}

impl std::fmt::Debug for ByteSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (shown, negated) = if self.len() > 128 { (self.not(), "^") } else { (*self, "") };
        let bytes: Vec<u8> = shown.iter().collect();
        write!(f, "[{negated}{}]", bytes.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folding_adds_the_other_case_of_letters_and_nothing_else() {
        for byte in 0..=255_u8 {
            let expected =
                ByteSet::of(byte).with(byte.to_ascii_lowercase()).with(byte.to_ascii_uppercase());
            assert_eq!(ByteSet::of(byte).caseless(), expected, "{byte}");
        }
    }

    #[test]
    fn a_range_has_its_ends() {
        let set = ByteSet::range(b'a', b'c').or(ByteSet::range(250, 255));
        assert_eq!(
            set.iter().collect::<Vec<_>>(),
            [b'a', b'b', b'c', 250, 251, 252, 253, 254, 255]
        );
        assert_eq!(set.not().len(), 247);
    }
}
