//! Fragments of TLS messages in EAP packets (RFC 5216 section 3, RFC 5281 section 9.1).

/// L, M and S of the first octet. The lowest three bits are the version of PEAP and EAP-TTLS.
const LENGTH: u8 = 0x80;
const MORE: u8 = 0x40;
const START: u8 = 0x20;

/// Longest TLS message that is received, in octets. Chains of certificates are much shorter.
const MOST: usize = 64 << 10;
/// TLS data of a packet at most, so that a frame with it has at most 1,500 octets after its Ethernet
/// header (wpa_supplicant has the same limit).
const FRAGMENT: usize = 1398;

/// What follows the type of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment<'a> {
    pub start: bool,
    pub more: bool,
    /// TLS Message Length.
    pub total: Option<u32>,
    pub data: &'a [u8],
}

impl<'a> Fragment<'a> {
    /// # Errors
    /// The reason for which the packet is ignored.
    pub fn parse(octets: &'a [u8]) -> Result<Self, &'static str> {
        let (flags, rest) = octets.split_first().ok_or("truncated")?;
        let (total, data) = match flags & LENGTH != 0 {
            true => {
                let (total, data) = rest.split_first_chunk::<4>().ok_or("truncated")?;
                (Some(u32::from_be_bytes(*total)), data)
            }
            false => (None, rest),
        };
        Ok(Self { start: flags & START != 0, more: flags & MORE != 0, total, data })
    }
}

/// A message of which fragments arrive. Stores at most 64 KiB.
#[derive(Clone, Debug, Default)]
pub struct FragmentReader {
    message: Vec<u8>,
    total: Option<u32>,
}

impl FragmentReader {
    /// Adds a fragment. Returns the message, if it is complete.
    ///
    /// # Errors
    /// The reason for which the fragment is ignored; what was received before is forgotten then.
    pub fn read(&mut self, fragment: &Fragment<'_>) -> Result<Option<Vec<u8>>, &'static str> {
        let added = self.add(fragment);
        if added != Ok(false) {
            self.total = None;
            let message = std::mem::take(&mut self.message);
            return added.map(|_| Some(message));
        }
        Ok(None)
    }

    /// Octets of the message so far.
    pub fn stored(&self) -> usize {
        self.message.len()
    }

    /// Whether the message is complete.
    fn add(&mut self, fragment: &Fragment<'_>) -> Result<bool, &'static str> {
        if let Some(total) = fragment.total {
            if total as usize > MOST {
                return Err("long_message");
            }
            let late = self.total.is_none() && !self.message.is_empty();
            if late || self.total.is_some_and(|known| known != total) {
                return Err("bad_message_length");
            }
            self.total = Some(total);
        }
        let most = self.total.map_or(MOST, |total| total as usize);
        let len = self.message.len() + fragment.data.len();
        if len > most {
            return Err(if self.total.is_some() { "bad_message_length" } else { "long_message" });
        }
        if fragment.more && fragment.data.is_empty() {
            return Err("empty_fragment");
        }
        self.message.extend_from_slice(fragment.data);
        if !fragment.more && self.total.is_some_and(|total| total as usize != len) {
            return Err("bad_message_length");
        }
        Ok(!fragment.more)
    }
}

/// A message that is sent in fragments.
#[derive(Clone, Debug, Default)]
pub(super) struct FragmentWriter {
    message: Vec<u8>,
    sent: usize,
}

impl FragmentWriter {
    pub fn is_empty(&self) -> bool {
        self.message.is_empty()
    }

    /// Begins a message.
    pub fn begin(&mut self, message: Vec<u8>) {
        (self.message, self.sent) = (message, 0);
    }

    /// The next fragment after the type of its packet; without a message, an acknowledgement.
    pub fn next(&mut self) -> Vec<u8> {
        let rest = &self.message[self.sent..];
        let (more, first) = (rest.len() > FRAGMENT, self.sent == 0);
        let part = &rest[..rest.len().min(FRAGMENT)];
        let mut octets = vec![if more { MORE } else { 0 }];
        if more && first {
            octets[0] |= LENGTH;
            octets.extend_from_slice(&(self.message.len() as u32).to_be_bytes());
        }
        octets.extend_from_slice(part);
        self.sent += part.len();
        if !more {
            self.begin(Vec::new());
        }
        octets
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(reader: &mut FragmentReader, octets: &[u8]) -> Result<Option<Vec<u8>>, &'static str> {
        reader.read(&Fragment::parse(octets)?)
    }

    proptest! {
        #[test]
        fn a_message_arrives_as_it_was_sent(message in prop::collection::vec(any::<u8>(), 0..6000)) {
            let (mut writer, mut reader) = (FragmentWriter::default(), FragmentReader::default());
            writer.begin(message.clone());
            let mut packets = 0;
            let received = loop {
                let packet = writer.next();
                packets += 1;
                prop_assert!(packet.len() <= FRAGMENT + 5);
                if let Some(whole) = read(&mut reader, &packet).unwrap() {
                    break whole;
                }
            };
            prop_assert!(writer.is_empty());
            prop_assert_eq!(packets, message.len().div_ceil(FRAGMENT).max(1));
            prop_assert_eq!(received, message);
        }
    }

    #[test]
    fn only_the_first_of_several_fragments_has_the_length() {
        let mut writer = FragmentWriter::default();
        writer.begin(vec![7; 3000]);
        let heads: Vec<_> = (0..3).map(|_| writer.next()[..5].to_vec()).collect();
        assert_eq!(heads, [[0xc0, 0, 0, 11, 184], [0x40, 7, 7, 7, 7], [0, 7, 7, 7, 7]]);
        assert_eq!(writer.next(), [0], "an acknowledgement");
    }

    #[test]
    fn lengths_that_do_not_fit_are_refused_and_forgotten() {
        let mut reader = FragmentReader::default();
        assert_eq!(read(&mut reader, &[]), Err("truncated"));
        assert_eq!(read(&mut reader, &[0x80, 0, 0, 0]), Err("truncated"));
        assert_eq!(read(&mut reader, &[0x80, 0, 1, 0, 1]), Err("long_message"));
        assert_eq!(read(&mut reader, &[0x80, 0, 0, 0, 2, 1]), Err("bad_message_length"));
        assert_eq!(read(&mut reader, &[0x80, 0, 0, 0, 1, 1, 2]), Err("bad_message_length"));
        assert_eq!(read(&mut reader, &[0x40]), Err("empty_fragment"));
        assert_eq!(read(&mut reader, &[0xc0, 0, 0, 0, 4, 1, 2]), Ok(None));
        assert_eq!(read(&mut reader, &[0x80, 0, 0, 0, 5, 3]), Err("bad_message_length"));
        assert_eq!(read(&mut reader, &[0x40, 1]), Ok(None));
        assert_eq!(read(&mut reader, &[0x80, 0, 0, 0, 2, 2]), Err("bad_message_length"), "late");
        assert_eq!(read(&mut reader, &[0, 3]), Ok(Some(vec![3])));
        assert_eq!(reader.message.capacity(), 0);
    }

    #[test]
    fn a_message_without_a_length_is_bounded() {
        let mut reader = FragmentReader::default();
        let packet = [&[0x40][..], &[1; 1400]].concat();
        let error = (0..100).find_map(|_| read(&mut reader, &packet).err());
        assert_eq!(error, Some("long_message"));
    }
}
