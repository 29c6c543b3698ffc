//! Length-prefixed messages of gRPC
//! (<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>).

/// A flag and a length of 32 bits precede each message.
const HEADER: usize = 5;

/// The octets before a message of `len` octets, which is not compressed.
#[must_use]
pub fn header(len: u32) -> [u8; HEADER] {
    let [a, b, c, d] = len.to_be_bytes();
    [0, a, b, c, d]
}

/// Reads the messages of a stream in parts of any lengths, and keeps none of their octets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reader {
    header: [u8; HEADER],
    /// Octets of the header that have arrived.
    have: u8,
    /// Octets of the message that have not arrived.
    left: u32,
}

/// Why a message is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// It is compressed, which this end has not offered to read.
    Compressed,
    /// Its flag is neither 0 nor 1.
    Flag(u8),
}

impl Reader {
    /// Reads all of `input`. Returns the number of messages that end in it.
    ///
    /// # Errors
    /// A message that is refused. Nothing can be read after it.
    pub fn read(&mut self, mut input: &[u8]) -> Result<u32, Violation> {
        let mut messages = 0;
        loop {
            let have = usize::from(self.have);
            if have < HEADER {
                let now = input.len().min(HEADER - have);
                let (of_header, rest) = input.split_at(now);
                self.header[have..have + now].copy_from_slice(of_header);
                self.have += now as u8;
                input = rest;
                if usize::from(self.have) < HEADER {
                    return Ok(messages);
                }
                let [flag, length @ ..] = self.header;
                match flag {
                    0 => self.left = u32::from_be_bytes(length),
                    1 => return Err(Violation::Compressed),
                    flag => return Err(Violation::Flag(flag)),
                }
            }
            let now = input.len().min(self.left as usize);
            input = &input[now..];
            self.left -= now as u32;
            if self.left > 0 {
                return Ok(messages);
            }
            self.have = 0;
            messages += 1;
        }
    }

    /// Whether all octets so far belong to whole messages.
    #[must_use]
    pub fn is_between(self) -> bool {
        self.have == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(len: u32) -> Vec<u8> {
        [&header(len)[..], &vec![7; len as usize]].concat()
    }

    #[test]
    fn messages_are_counted_in_parts_of_any_length() {
        let all: Vec<u8> = [0, 1, 300, 0, 70_000].into_iter().flat_map(message).collect();
        for part in [1, 2, 5, 6, 1000, all.len()] {
            let mut reader = Reader::default();
            let found: u32 = all.chunks(part).map(|part| reader.read(part).expect("right")).sum();
            assert_eq!((found, reader.is_between()), (5, true), "in parts of {part}");
        }
        let mut reader = Reader::default();
        assert_eq!(reader.read(&all[..all.len() - 1]), Ok(4));
        assert!(!reader.is_between(), "an octet is missing");
        assert_eq!(header(0x0102_0304), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn other_flags_are_refused() {
        for (flag, violation) in [(1, Violation::Compressed), (2, Violation::Flag(2))] {
            let octets = [&message(3)[..], &[flag, 0, 0, 0, 0]].concat();
            assert_eq!(Reader::default().read(&octets), Err(violation));
            // The length does not matter, so it is not waited for any longer than the flag.
            let mut reader = Reader::default();
            assert_eq!(reader.read(&octets[..octets.len() - 1]), Ok(1));
            assert_eq!(reader.read(&[9]), Err(violation));
        }
    }
}
