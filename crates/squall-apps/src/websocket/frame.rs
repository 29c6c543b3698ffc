//! Frames of WebSocket (RFC 6455 section 5).

/// Opcodes (section 5.2).
const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

const FIN: u8 = 0x80;
const MASKED: u8 = 0x80;
/// The longest header: two octets, a length of eight, a mask.
const MAX_HEADER: usize = 14;
/// The longest payload of a control frame.
const MAX_CONTROL: usize = 125;

/// Why a peer's frames are refused, each with the code of the close frame that answers it (section
/// 7.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A header that the protocol does not allow.
    Protocol,
    /// A text, or the reason of a close, that is not UTF-8.
    Utf8,
    /// A message that is too long.
    TooLong,
}

impl Violation {
    #[must_use]
    pub fn code(self) -> u16 {
        match self {
            Self::Protocol => 1002,
            Self::Utf8 => 1007,
            Self::TooLong => 1009,
        }
    }
}

/// The event at which [`Reader::read`] stopped; there may be more input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// No event: the input is consumed.
    More,
    /// A message ended.
    Message(Kind),
    /// A ping, whose payload is [`Reader::control`].
    Ping,
    Pong,
    /// A close, with its code if it has one; its payload is [`Reader::control`].
    Close(Option<u16>),
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    #[default]
    Text,
    Binary,
}

/// Reads the frames of a peer, in parts of any length. Keeps control frames, but no messages.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    header: [u8; MAX_HEADER],
    /// Octets of the header that have arrived, and of the payload that have not. The payload begins
    /// when the header is complete.
    have: u8,
    left: u64,
    in_payload: bool,
    /// The place in the mask.
    turn: u8,
    /// The message that has begun, and its length so far.
    message: Option<Kind>,
    len: u64,
    utf8: Utf8,
    control: Vec<u8>,
}

impl Reader {
    /// Reads up to the next event, and removes the octets read from `input`. `masked`: the peer is a
    /// client, which masks its frames (section 5.1). A message has at most `most` octets.
    /// Payload of messages is passed to `each` in parts.
    ///
    /// # Errors
    /// The first violation; the connection has to be closed then.
    pub fn read(
        &mut self,
        input: &mut &[u8],
        masked: bool,
        most: u64,
        mut each: impl FnMut(&[u8]),
    ) -> Result<Found, Violation> {
        loop {
            while !self.in_payload {
                let Some((&octet, rest)) = input.split_first() else { return Ok(Found::More) };
                *input = rest;
                self.header[usize::from(self.have)] = octet;
                self.have += 1;
                if self.have == 2 {
                    self.check_start(masked)?;
                }
                if self.have >= 2 && usize::from(self.have) == self.header_len() {
                    self.begin_payload(most)?;
                }
            }
            let mut plain = [0; 512];
            while self.left > 0 && !input.is_empty() {
                let most = self.left.min(plain.len() as u64) as usize;
                let (now, rest) = input.split_at(most.min(input.len()));
                *input = rest;
                let plain = &mut plain[..now.len()];
                self.unmask(now, plain);
                self.left -= now.len() as u64;
                if self.opcode() >= CLOSE {
                    self.control.extend_from_slice(plain);
                    continue;
                }
                if self.message == Some(Kind::Text) && !self.utf8.push(plain) {
                    return Err(Violation::Utf8);
                }
                each(plain);
            }
            if self.left > 0 {
                return Ok(Found::More);
            }
            self.in_payload = false;
            self.have = 0;
            if let Some(found) = self.end_of_frame()? {
                return Ok(found);
            }
        }
    }

    /// The payload of the last control frame.
    #[must_use]
    pub fn control(&self) -> &[u8] {
        &self.control
    }

    /// Memory usage in bytes, beyond its own.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.control.capacity()
    }

    fn opcode(&self) -> u8 {
        self.header[0] & 15
    }

    fn header_len(&self) -> usize {
        let len = match self.header[1] & 127 {
            126 => 4,
            127 => 10,
            _ => 2,
        };
        len + if self.header[1] & MASKED == 0 { 0 } else { 4 }
    }

    /// Checks the first two octets.
    fn check_start(&self, masked: bool) -> Result<(), Violation> {
        let [first, second, ..] = self.header;
        let fits = match self.opcode() {
            CONTINUATION => self.message.is_some(),
            TEXT | BINARY => self.message.is_none(),
            CLOSE | PING | PONG => first & FIN != 0 && second & 127 <= 125,
            _ => false,
        };
        // Without an extension, the bits after FIN are 0.
        let fits = fits && first & 0x70 == 0 && (second & MASKED != 0) == masked;
        if fits { Ok(()) } else { Err(Violation::Protocol) }
    }

    fn begin_payload(&mut self, most: u64) -> Result<(), Violation> {
        let number =
            |octets: &[u8]| octets.iter().fold(0u64, |len, &octet| len << 8 | u64::from(octet));
        // The shortest form is required (section 5.2).
        self.left = match self.header[1] & 127 {
            126 => Some(number(&self.header[2..4])).filter(|len| *len > 125),
            127 => Some(number(&self.header[2..10])).filter(|len| *len > 0xffff && len >> 63 == 0),
            len => Some(len.into()),
        }
        .ok_or(Violation::Protocol)?;
        self.in_payload = true;
        self.turn = 0;
        match self.opcode() {
            CONTINUATION => {}
            TEXT => self.message = Some(Kind::Text),
            BINARY => self.message = Some(Kind::Binary),
            _ => {
                self.control.clear();
                return Ok(());
            }
        }
        self.len = self.len.saturating_add(self.left);
        if self.len > most { Err(Violation::TooLong) } else { Ok(()) }
    }

    fn unmask(&mut self, octets: &[u8], plain: &mut [u8]) {
        plain.copy_from_slice(octets);
        if self.header[1] & MASKED == 0 {
            return;
        }
        let at = self.header_len() - 4;
        let mask = [0, 1, 2, 3].map(|i| self.header[at + i]);
        apply_mask(mask, self.turn.into(), plain);
        self.turn = (usize::from(self.turn) + octets.len()) as u8 & 3;
    }

    fn end_of_frame(&mut self) -> Result<Option<Found>, Violation> {
        Ok(match self.opcode() {
            PING => Some(Found::Ping),
            PONG => Some(Found::Pong),
            CLOSE => Some(Found::Close(close_code(&self.control)?)),
            _ if self.header[0] & FIN == 0 => None,
            _ => {
                self.len = 0;
                if !std::mem::take(&mut self.utf8).is_complete() {
                    return Err(Violation::Utf8);
                }
                self.message.take().map(Found::Message)
            }
        })
    }
}

/// The code of a close frame (section 5.5.1).
fn close_code(payload: &[u8]) -> Result<Option<u16>, Violation> {
    let Some((code, reason)) = payload.split_first_chunk() else {
        return if payload.is_empty() { Ok(None) } else { Err(Violation::Protocol) };
    };
    let code = u16::from_be_bytes(*code);
    // The others are reserved, or must not be sent (section 7.4).
    if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
        return Err(Violation::Protocol);
    }
    let mut utf8 = Utf8::default();
    if !utf8.push(reason) || !utf8.is_complete() {
        return Err(Violation::Utf8);
    }
    Ok(Some(code))
}

/// Applies a mask to octets that begin at `from` of their payload (section 5.3).
pub(crate) fn apply_mask(mask: [u8; 4], from: usize, octets: &mut [u8]) {
    for (at, octet) in octets.iter_mut().enumerate() {
        *octet ^= mask[(from + at) & 3];
    }
}

/// Checks UTF-8 in parts (RFC 3629 section 4): the number of octets that a character still needs,
/// and the range of the next one less 0x80.
#[derive(Clone, Copy, Debug, Default)]
struct Utf8 {
    needs: u8,
    low: u8,
    high: u8,
}

impl Utf8 {
    /// Returns false if the octets cannot belong to a text.
    fn push(&mut self, octets: &[u8]) -> bool {
        let mut rest = octets;
        while let Some((&octet, after)) = rest.split_first() {
            rest = after;
            if self.needs > 0 {
                if !(self.low..=self.high).contains(&octet) {
                    return false;
                }
                *self = Self { needs: self.needs - 1, low: 0x80, high: 0xbf };
                continue;
            }
            let (needs, low, high) = match octet {
                0..=0x7f => continue,
                0xc2..=0xdf => (1, 0x80, 0xbf),
                0xe0 => (2, 0xa0, 0xbf),
                0xed => (2, 0x80, 0x9f),
                0xe1..=0xef => (2, 0x80, 0xbf),
                0xf0 => (3, 0x90, 0xbf),
                0xf1..=0xf3 => (3, 0x80, 0xbf),
                0xf4 => (3, 0x80, 0x8f),
                _ => return false,
            };
            *self = Self { needs, low, high };
        }
        true
    }

    fn is_complete(self) -> bool {
        self.needs == 0
    }
}

/// A control frame that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    Close,
    Ping,
    Pong,
}

/// Appends a control frame with at most 125 octets of payload.
pub(crate) fn control_frame(
    kind: Control,
    payload: &[u8],
    mask: Option<[u8; 4]>,
    out: &mut Vec<u8>,
) {
    let opcode = match kind {
        Control::Close => CLOSE,
        Control::Ping => PING,
        Control::Pong => PONG,
    };
    let payload = &payload[..payload.len().min(MAX_CONTROL)];
    let header = Header::new(FIN | opcode, payload.len() as u32, mask);
    out.extend_from_slice(header.octets());
    let begin = out.len();
    out.extend_from_slice(payload);
    apply_mask(mask.unwrap_or_default(), 0, &mut out[begin..]);
}

/// Appends the header of a whole message that a server sends.
pub(crate) fn message_header(kind: Kind, len: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(Header::new(FIN | opcode_of(kind), len, None).octets());
}

fn opcode_of(kind: Kind) -> u8 {
    match kind {
        Kind::Text => TEXT,
        Kind::Binary => BINARY,
    }
}

struct Header {
    octets: [u8; MAX_HEADER],
    len: usize,
}

impl Header {
    fn new(first: u8, payload: u32, mask: Option<[u8; 4]>) -> Self {
        let mut header = Self { octets: [0; MAX_HEADER], len: 2 };
        let masked = if mask.is_some() { MASKED } else { 0 };
        header.octets[0] = first;
        match payload {
            0..=125 => header.octets[1] = masked | payload as u8,
            126..=0xffff => {
                header.octets[1] = masked | 126;
                header.push(&(payload as u16).to_be_bytes());
            }
            _ => {
                header.octets[1] = masked | 127;
                header.push(&u64::from(payload).to_be_bytes());
            }
        }
        header.push(mask.as_ref().map_or(&[][..], |mask| mask));
        header
    }

    fn push(&mut self, octets: &[u8]) {
        self.octets[self.len..self.len + octets.len()].copy_from_slice(octets);
        self.len += octets.len();
    }

    fn octets(&self) -> &[u8] {
        &self.octets[..self.len]
    }
}

/// How a message that a program sends is divided into frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Framing {
    pub kind: Kind,
    /// Maximum octets of a frame's payload, at least 1.
    pub fragment: u32,
    pub masked: bool,
}

impl Framing {
    fn header_len(self, payload: u32) -> u32 {
        let len = match payload {
            0..=125 => 2,
            126..=0xffff => 4,
            _ => 10,
        };
        len + if self.masked { 4 } else { 0 }
    }

    /// The octets of all frames of a message with `len` octets, at least 1.
    pub fn total(self, len: u32) -> u64 {
        let (full, rest) = (len / self.fragment, len % self.fragment);
        let frame = |payload: u32| u64::from(self.header_len(payload)) + u64::from(payload);
        let rest = if rest > 0 { frame(rest) } else { 0 };
        u64::from(full) * frame(self.fragment.min(len)) + rest
    }

    /// Writes octets `offset..offset + out.len()` of the frames of a message with `len` octets.
    /// `mask_of` is the mask of the frame with this number; `copy` writes octets of the message from
    /// this place on.
    pub fn write(
        self,
        len: u32,
        mask_of: impl Fn(u32) -> [u8; 4],
        offset: u32,
        mut out: &mut [u8],
        copy: impl Fn(u32, &mut [u8]),
    ) {
        let whole = u64::from(self.header_len(self.fragment)) + u64::from(self.fragment);
        let first = (u64::from(offset) / whole) as u32;
        let mut skip = (u64::from(offset) % whole) as usize;
        for number in first.. {
            let begin = number.saturating_mul(self.fragment);
            if out.is_empty() || begin >= len {
                return;
            }
            let payload = self.fragment.min(len - begin);
            let opcode = if number == 0 { opcode_of(self.kind) } else { CONTINUATION };
            let fin = if begin + payload == len { FIN } else { 0 };
            let mask = self.masked.then(|| mask_of(number));
            let header = Header::new(fin | opcode, payload, mask);
            if skip < header.len {
                let (now, rest) = out.split_at_mut((header.len - skip).min(out.len()));
                now.copy_from_slice(&header.octets()[skip..skip + now.len()]);
                out = rest;
            }
            let from = skip.saturating_sub(header.len);
            let (now, rest) = out.split_at_mut((payload as usize - from).min(out.len()));
            if !now.is_empty() {
                copy(begin + from as u32, now);
                apply_mask(mask.unwrap_or_default(), from, now);
            }
            out = rest;
            skip = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All events of `octets`, in parts of `part` octets, and the payload of messages.
    fn read(octets: &[u8], part: usize, masked: bool) -> (Vec<Found>, Vec<u8>, Option<Violation>) {
        let (mut reader, mut all, mut payload) = (Reader::default(), vec![], vec![]);
        for mut part in octets.chunks(part) {
            loop {
                match reader.read(&mut part, masked, 100_000, |of| payload.extend_from_slice(of)) {
                    Ok(Found::More) => break,
                    Ok(found) => all.push(found),
                    Err(violation) => return (all, payload, Some(violation)),
                }
            }
        }
        (all, payload, None)
    }

    #[test]
    fn the_examples_of_the_rfc_are_read() {
        // RFC 6455 section 5.7.
        let hello = b"\x81\x05Hello";
        let masked = b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58";
        let fragments = b"\x01\x03Hel\x80\x02lo";
        let ping = b"\x89\x05Hello";
        for part in [1, 2, 100] {
            let message = vec![Found::Message(Kind::Text)];
            assert_eq!(read(hello, part, false), (message.clone(), b"Hello".to_vec(), None));
            assert_eq!(read(masked, part, true), (message.clone(), b"Hello".to_vec(), None));
            assert_eq!(read(fragments, part, false), (message, b"Hello".to_vec(), None));
            assert_eq!(read(ping, part, false), (vec![Found::Ping], vec![], None));
            // A control frame between two fragments.
            let between = [&fragments[..5], ping, &fragments[5..]].concat();
            let events = vec![Found::Ping, Found::Message(Kind::Text)];
            assert_eq!(read(&between, part, false), (events, b"Hello".to_vec(), None));
        }
    }

    #[test]
    fn messages_are_written_from_any_offset_and_read_back() {
        let text: Vec<u8> = (0..70_000u32).map(|i| b'a' + (i % 26) as u8).collect();
        for (len, fragment) in
            [(1, 100_000), (125, 125), (126, 1000), (70_000, 70_000), (70_000, 1000), (1001, 1000)]
        {
            for masked in [false, true] {
                let framing = Framing { kind: Kind::Text, fragment, masked };
                let mask = |number: u32| [1, 2, 3, number as u8];
                let copy = |from: u32, out: &mut [u8]| {
                    let from = from as usize;
                    out.copy_from_slice(&text[from..from + out.len()]);
                };
                let total = framing.total(len) as usize;
                let mut octets = vec![0; total];
                framing.write(len, mask, 0, &mut octets, copy);
                let (events, payload, violation) = read(&octets, 997, masked);
                assert_eq!((events, violation), (vec![Found::Message(Kind::Text)], None));
                assert_eq!(payload, text[..len as usize], "{len} {fragment} {masked}");
                for offset in (0..total).step_by(total / 50 + 1) {
                    let mut part = vec![0; (total - offset).min(1460)];
                    framing.write(len, mask, offset as u32, &mut part, copy);
                    assert_eq!(part, octets[offset..offset + part.len()], "{offset}");
                }
            }
        }
    }

    #[test]
    fn frames_that_the_protocol_does_not_allow_are_refused() {
        let too_long = [&b"\x82\x7f\0\0\0\0\0\x01\x86\xa1"[..], &[0; 10]].concat();
        for (octets, masked, expected) in [
            (&b"\x91\x00"[..], false, Violation::Protocol),
            (b"\x83\x00", false, Violation::Protocol),
            (b"\x8b\x00", false, Violation::Protocol),
            // A continuation of nothing, a message in another one, a fragment of a ping.
            (b"\x80\x00", false, Violation::Protocol),
            (b"\x01\x01a\x81\x01b", false, Violation::Protocol),
            (b"\x09\x00", false, Violation::Protocol),
            (b"\x89\x7e\x00\x7e", false, Violation::Protocol),
            // Only clients mask.
            (b"\x81\x05Hello", true, Violation::Protocol),
            (b"\x81\x81\0\0\0\0a", false, Violation::Protocol),
            // Lengths in a form longer than necessary.
            (b"\x82\x7e\x00\x7d", false, Violation::Protocol),
            (b"\x82\x7f\0\0\0\0\0\0\xff\xff", false, Violation::Protocol),
            (b"\x82\xff\x80\0\0\0\0\0\0\0\0\0\0\0", true, Violation::Protocol),
            (b"\x88\x01\x03", false, Violation::Protocol),
            (b"\x88\x02\x03\xed", false, Violation::Protocol),
            (b"\x88\x03\x03\xe8\xff", false, Violation::Utf8),
            (b"\x81\x02\xc0\x80", false, Violation::Utf8),
            (b"\x81\x03\xed\xa0\x80", false, Violation::Utf8),
            (b"\x81\x04\xf4\x90\x80\x80", false, Violation::Utf8),
            (b"\x81\x01\xe2", false, Violation::Utf8),
            (&too_long, false, Violation::TooLong),
        ] {
            for part in [1, 100] {
                assert_eq!(read(octets, part, masked).2, Some(expected), "{octets:?}");
            }
        }
    }

    #[test]
    fn texts_may_be_cut_inside_of_a_character_and_binary_messages_are_not_texts() {
        let text = "κόσμε 😀".as_bytes();
        let (first, second) = text.split_at(1);
        let frame = |first: u8, of: &[u8]| [&[first, of.len() as u8], of].concat();
        let octets = [frame(0x01, first), frame(0x80, second)].concat();
        let expected = (vec![Found::Message(Kind::Text)], text.to_vec(), None);
        assert_eq!(read(&octets, 1, false), expected);
        let binary = read(&frame(0x82, b"\xff\xfe"), 1, false);
        assert_eq!(binary, (vec![Found::Message(Kind::Binary)], b"\xff\xfe".to_vec(), None));
    }

    #[test]
    fn closes_have_a_code_or_none() {
        assert_eq!(read(b"\x88\x00", 1, false).0, [Found::Close(None)]);
        assert_eq!(read(b"\x88\x04\x03\xe9by", 1, false).0, [Found::Close(Some(1001))]);
        let mut out = vec![];
        control_frame(Control::Close, &1000u16.to_be_bytes(), Some([9, 8, 7, 6]), &mut out);
        assert_eq!(read(&out, 1, true).0, [Found::Close(Some(1000))]);
    }
}
