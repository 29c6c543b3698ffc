//! Decodes octets from a terminal into keys.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Up,
    Down,
    Tab,
    BackTab,
    Escape,
    /// Ctrl together with a letter.
    Control(char),
    Char(char),
}

/// Decoder. Keeps the start of a sequence that arrives in two pieces.
#[derive(Default)]
pub struct Keys {
    rest: Vec<u8>,
}

/// Maximum length of a sequence. Longer ones are discarded: no known key has such a sequence.
const LONGEST: usize = 32;

impl Keys {
    /// Decodes octets into keys. Skips unknown keys.
    pub fn read(&mut self, octets: &[u8]) -> Vec<Key> {
        self.rest.extend(octets);
        let mut keys = Vec::new();
        let octets = std::mem::take(&mut self.rest);
        let mut rest = octets.as_slice();
        while let Some((&first, after)) = rest.split_first() {
            rest = match (first, after.first()) {
                (0x1b, Some(b'[' | b'O')) => {
                    let end = after[1..].iter().position(|octet| (0x40..=0x7e).contains(octet));
                    match end {
                        Some(end) => {
                            keys.extend(sequence(&after[1..1 + end], after[1 + end]));
                            &after[end + 2..]
                        }
                        None if after.len() < LONGEST => break,
                        None => &[],
                    }
                }
                (0x1b, Some(0x1b) | None) => {
                    keys.push(Key::Escape);
                    after
                }
                // Skip Alt combinations, to which no function is assigned.
                (0x1b, Some(_)) => &after[1..],
                (b'\t', _) => {
                    keys.push(Key::Tab);
                    after
                }
                (1..=26, _) => {
                    keys.push(Key::Control((b'a' + first - 1).into()));
                    after
                }
                _ => {
                    let length = match first {
                        0xc0..=0xdf => 2,
                        0xe0..=0xef => 3,
                        0xf0..=0xf7 => 4,
                        _ => 1,
                    };
                    if rest.len() < length {
                        break;
                    }
                    let text = std::str::from_utf8(&rest[..length]).unwrap_or_default();
                    keys.extend(text.chars().filter(|c| !c.is_control()).map(Key::Char));
                    &rest[length..]
                }
            };
        }
        self.rest = rest.to_vec();
        keys
    }
}

fn sequence(parameters: &[u8], end: u8) -> Option<Key> {
    match (parameters, end) {
        ([], b'A') => Some(Key::Up),
        ([], b'B') => Some(Key::Down),
        ([], b'Z') => Some(Key::BackTab),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_decoded_at_any_cut() {
        let octets = "q\x1b[A\x1bOB+\t\x1b[Z\x03ß\x1b[15~\x1bx>".as_bytes();
        let keys = [
            Key::Char('q'),
            Key::Up,
            Key::Down,
            Key::Char('+'),
            Key::Tab,
            Key::BackTab,
            Key::Control('c'),
            Key::Char('ß'),
            Key::Char('>'),
        ];
        assert_eq!(Keys::default().read(octets), keys);
        for cut in 0..octets.len() {
            // An escape at the end of the first piece is decoded as a key of its own.
            if octets[..cut].last() != Some(&0x1b) {
                let mut reader = Keys::default();
                let read = [reader.read(&octets[..cut]), reader.read(&octets[cut..])].concat();
                assert_eq!(read, keys, "cut at {cut}");
            }
        }
        assert_eq!(Keys::default().read(b"\x1b"), [Key::Escape]);
    }

    #[test]
    fn octets_that_are_no_key_are_skipped() {
        let mut keys = Keys::default();
        keys.read(&[b"\x1b[".as_slice(), &[b'1'; 100]].concat());
        assert_eq!(keys.read(b"\xff\xfe\x00q"), [Key::Char('q')]);
    }
}
