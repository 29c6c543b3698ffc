//! tcpprep's cache files: the port of each packet ([`Cache`]).
//!
//! Version 04, with all numbers in network byte order: `tcpprep\0`; the version as text in four
//! octets; number of packets (64 bits); packets per octet (16 bits: 4); length of the comment (16
//! bits); the comment; two bits per packet, with the first packet in the lowest bits of an octet.
//! Bit value 1 selects the primary port instead of the secondary; bit value 2 means that the packet
//! is sent at all.

use std::fmt;

use squall_units::be16;

use crate::split::Side;

const MAGIC: &[u8; 8] = b"tcpprep\0";
const HEADER: usize = 24;
/// The value of "packets per octet" in the header.
const PACKETS_PER_OCTET: u16 = 4;

const PRIMARY: u8 = 1;
const SENT: u8 = 2;

/// A side for each packet of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cache {
    comment: Vec<u8>,
    packets: u64,
    sides: Vec<u8>,
}

/// Why a file is not a valid cache.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("octet {offset}: {problem}")]
pub struct CacheError {
    /// Offset of the error in the file.
    pub offset: usize,
    pub problem: String,
}

impl Cache {
    /// Maximum length of a comment in tcpprep's format; longer ones are truncated.
    pub const LONGEST_COMMENT: usize = 0xffff;

    pub fn new(comment: &str) -> Self {
        let mut len = comment.len().min(Self::LONGEST_COMMENT);
        while !comment.is_char_boundary(len) {
            len -= 1;
        }
        Self { comment: comment.as_bytes()[..len].to_vec(), ..Self::default() }
    }

    /// Adds the next packet's side.
    pub fn push(&mut self, side: Side) {
        let shift = self.packets % 4 * 2;
        if shift == 0 {
            self.sides.push(0);
        }
        let bits = match side {
            Side::Primary => SENT | PRIMARY,
            Side::Secondary => SENT,
            Side::Skip => 0,
        };
        *self.sides.last_mut().expect("an octet for the packet") |= bits << shift;
        self.packets += 1;
    }

    /// The side of packet `number` (1-based); `None` after the last.
    #[inline]
    pub fn side(&self, number: u64) -> Option<Side> {
        let index = number.checked_sub(1).filter(|index| *index < self.packets)?;
        let bits = self.sides[(index / 4) as usize] >> (index % 4 * 2);
        Some(match bits & (SENT | PRIMARY) {
            SENT => Side::Secondary,
            bits if bits & SENT != 0 => Side::Primary,
            _ => Side::Skip,
        })
    }

    /// Number of packets.
    pub fn len(&self) -> u64 {
        self.packets
    }

    pub fn is_empty(&self) -> bool {
        self.packets == 0
    }

    pub fn sides(&self) -> impl Iterator<Item = Side> + '_ {
        (1..=self.packets).filter_map(|number| self.side(number))
    }

    /// The command line of tcpprep, or a comment given by its user.
    pub fn comment(&self) -> String {
        String::from_utf8_lossy(&self.comment).into_owned()
    }

    /// Number of packets for the primary port, for the secondary port, and for neither.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for side in self.sides() {
            counts.add(side);
        }
        counts
    }

    /// # Errors
    /// If `octets` are not exactly one complete cache file of version 04.
    pub fn parse(octets: &[u8]) -> Result<Self, CacheError> {
        let wrong = |offset: usize, problem: String| Err(CacheError { offset, problem });
        if octets.get(..8) != Some(MAGIC) {
            return wrong(0, "not a cache of tcpprep: expected the text \"tcpprep\"".into());
        }
        let Some(header) = octets.first_chunk::<HEADER>() else {
            return wrong(octets.len(), format!("ends within the header of {HEADER} octets"));
        };
        let text = String::from_utf8_lossy(&header[8..12]);
        let version = text.trim_end_matches('\0');
        if version != "04" {
            return wrong(
                8,
                format!(
                    "version {version:?}: expected 04; try to make it again with tcpprep or squall \
                     prep"
                ),
            );
        }
        let packets = u64::from_be_bytes(std::array::from_fn(|i| header[12 + i]));
        let per_octet = be16(header, 20);
        if per_octet != PACKETS_PER_OCTET {
            return wrong(
                20,
                format!("{per_octet} packets in an octet: expected {PACKETS_PER_OCTET}"),
            );
        }
        let comment_len = usize::from(be16(header, 22));
        let Some((comment, sides)) = octets[HEADER..].split_at_checked(comment_len) else {
            return wrong(octets.len(), format!("ends within the comment of {comment_len} octets"));
        };
        let expected = packets.div_ceil(4);
        if (sides.len() as u64) < expected {
            let room = sides.len() * 4;
            return wrong(
                octets.len(),
                format!("ends within the sides of {packets} packets: it has at most {room}"),
            );
        }
        if sides.len() as u64 > expected {
            // tcpprep writes the entry of a packet that --include or --exclude omits once per pass,
            // so the entries after it belong to other packets.
            let offset = HEADER + comment_len + expected as usize;
            let try_it = "tcpprep's --auto with --include or --exclude writes such caches; try \
                          squall prep";
            return wrong(offset, format!("more sides than packets ({packets}); {try_it}"));
        }
        Ok(Self { comment: comment.to_vec(), packets, sides: sides.to_vec() })
    }

    /// The content of the cache file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut octets = Vec::with_capacity(HEADER + self.comment.len() + self.sides.len());
        octets.extend(MAGIC);
        octets.extend(b"04\0\0");
        octets.extend(self.packets.to_be_bytes());
        octets.extend(PACKETS_PER_OCTET.to_be_bytes());
        octets.extend((self.comment.len() as u16).to_be_bytes());
        octets.extend(&self.comment);
        octets.extend(&self.sides);
        octets
    }
}

/// Number of packets by side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub primary: u64,
    pub secondary: u64,
    pub skipped: u64,
}

impl Counts {
    pub fn add(&mut self, side: Side) {
        match side {
            Side::Primary => self.primary += 1,
            Side::Secondary => self.secondary += 1,
            Side::Skip => self.skipped += 1,
        }
    }
}

/// The format of tcpprep's `--print-stats`.
impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { primary, secondary, skipped } = self;
        writeln!(
            f,
            "Primary packets:\t{primary}\nSecondary packets:\t{secondary}\nSkipped \
             packets:\t{skipped}"
        )?;
        writeln!(
            f,
            "------------------------------\nTotal packets:\t\t{}",
            primary + secondary + skipped
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Packets for each side, and more than fit into one octet.
    const SIDES: [Side; 5] =
        [Side::Primary, Side::Secondary, Side::Skip, Side::Primary, Side::Secondary];

    fn some() -> Cache {
        let mut cache = Cache::new("-a first");
        SIDES.into_iter().for_each(|side| cache.push(side));
        cache
    }

    #[test]
    fn a_cache_equals_tcppreps() {
        let expected = b"tcpprep\x0004\0\0\0\0\0\0\0\0\0\x05\0\x04\0\x08-a first\xcb\x02";
        assert_eq!(some().to_bytes(), expected);
        let read = Cache::parse(expected).unwrap();
        assert_eq!((read.comment().as_str(), read.len()), ("-a first", 5));
        assert_eq!(read.sides().collect::<Vec<_>>(), SIDES);
        assert_eq!(read.counts(), Counts { primary: 2, secondary: 2, skipped: 1 });
        assert_eq!((read.side(0), read.side(6)), (None, None));
    }

    #[test]
    fn invalid_caches_are_reported_with_the_place() {
        let whole = some().to_bytes();
        for len in 0..whole.len() {
            let error = Cache::parse(&whole[..len]).unwrap_err();
            assert_eq!(error.offset, if len < 8 { 0 } else { len }, "{error}");
        }
        let with = |at: usize, octet: u8| {
            let mut wrong = whole.clone();
            wrong[at] = octet;
            Cache::parse(&wrong).unwrap_err()
        };
        assert_eq!(
            with(9, b'3').to_string(),
            "octet 8: version \"03\": expected 04; try to make it again with tcpprep or squall prep"
        );
        assert_eq!((with(21, 8).offset, with(12, 0xff).offset), (20, whole.len()));
        let more = Cache::parse(&[&whole[..], &[0]].concat()).unwrap_err();
        assert_eq!(more.offset, whole.len());
        assert!(more.problem.contains("more sides"), "{more}");
    }

    proptest! {
        #[test]
        fn written_caches_parse(
            sides in prop::collection::vec(prop::sample::select(vec![Side::Primary, Side::Secondary, Side::Skip]), 0..100),
            comment in ".{0,40}",
        ) {
            let mut cache = Cache::new(&comment);
            sides.iter().for_each(|side| cache.push(*side));
            let read = Cache::parse(&cache.to_bytes()).unwrap();
            prop_assert_eq!(&read, &cache);
            prop_assert_eq!(read.sides().collect::<Vec<_>>(), sides);
            prop_assert_eq!(read.comment(), comment);
        }
    }
}
