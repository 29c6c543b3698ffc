//! Frames (RFC 9113 sections 4 and 6): headers in, whole frames out.

use super::{Code, FRAME_HEADER};

pub(super) mod kind {
    pub const DATA: u8 = 0x0;
    pub const HEADERS: u8 = 0x1;
    pub const PRIORITY: u8 = 0x2;
    pub const RST_STREAM: u8 = 0x3;
    pub const SETTINGS: u8 = 0x4;
    pub const PUSH_PROMISE: u8 = 0x5;
    pub const PING: u8 = 0x6;
    pub const GOAWAY: u8 = 0x7;
    pub const WINDOW_UPDATE: u8 = 0x8;
    pub const CONTINUATION: u8 = 0x9;
    /// RFC 9218 section 7.1.
    pub const PRIORITY_UPDATE: u8 = 0x10;
}

pub(super) mod flag {
    pub const END_STREAM: u8 = 0x1;
    pub const ACK: u8 = 0x1;
    pub const END_HEADERS: u8 = 0x4;
    pub const PADDED: u8 = 0x8;
    pub const PRIORITY: u8 = 0x20;
}

/// A frame's header.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Header {
    pub len: u32,
    pub stream: u32,
    pub kind: u8,
    pub flags: u8,
}

impl Header {
    pub fn read(octets: [u8; FRAME_HEADER]) -> Self {
        let [a, b, c, kind, flags, stream @ ..] = octets;
        Self {
            len: u32::from_be_bytes([0, a, b, c]),
            // The first bit is reserved, and ignored (section 4.1).
            stream: u32::from_be_bytes(stream) & !(1 << 31),
            kind,
            flags,
        }
    }

    pub fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    fn octets(self) -> [u8; FRAME_HEADER] {
        let [_, a, b, c] = self.len.to_be_bytes();
        let [d, e, f, g] = self.stream.to_be_bytes();
        [a, b, c, self.kind, self.flags, d, e, f, g]
    }

    pub fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.octets());
    }
}

fn control(kind: u8, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    let len = u32::try_from(payload.len()).expect("a control frame is short");
    Header { len, stream, kind, flags }.write(out);
    out.extend_from_slice(payload);
}

pub(super) fn settings(list: &[(u16, u32)], out: &mut Vec<u8>) {
    let len = u32::try_from(list.len() * 6).expect("settings are few");
    Header { len, stream: 0, kind: kind::SETTINGS, flags: 0 }.write(out);
    for (number, value) in list {
        out.extend_from_slice(&number.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

pub(super) fn settings_ack(out: &mut Vec<u8>) {
    control(kind::SETTINGS, flag::ACK, 0, &[], out);
}

pub(super) fn pong(octets: [u8; 8], out: &mut Vec<u8>) {
    control(kind::PING, flag::ACK, 0, &octets, out);
}

pub(super) fn reset(stream: u32, code: Code, out: &mut Vec<u8>) {
    control(kind::RST_STREAM, 0, stream, &code.0.to_be_bytes(), out);
}

pub(super) fn window_update(stream: u32, octets: u32, out: &mut Vec<u8>) {
    control(kind::WINDOW_UPDATE, 0, stream, &octets.to_be_bytes(), out);
}

pub(super) fn go_away(last: u32, code: Code, out: &mut Vec<u8>) {
    let mut payload = [0; 8];
    payload[..4].copy_from_slice(&last.to_be_bytes());
    payload[4..].copy_from_slice(&code.0.to_be_bytes());
    control(kind::GOAWAY, 0, 0, &payload, out);
}

/// Makes HEADERS of the block that `out` has from `start` on, after room for a frame's header, and
/// CONTINUATION of what does not fit into a frame of `most` octets (section 6.10).
pub(super) fn block(out: &mut Vec<u8>, start: usize, stream: u32, end: bool, most: u32) {
    let begins = start + FRAME_HEADER;
    let most = most as usize;
    let rest = if out.len() - begins > most { out.split_off(begins + most) } else { vec![] };
    let len = |len: usize| u32::try_from(len).expect("a frame is shorter than 16 MiB");
    let last = |last: bool| if last { flag::END_HEADERS } else { 0 };
    let flags = last(rest.is_empty()) | if end { flag::END_STREAM } else { 0 };
    let first = Header { len: len(out.len() - begins), stream, kind: kind::HEADERS, flags };
    out[start..begins].copy_from_slice(&first.octets());
    let mut chunks = rest.chunks(most).peekable();
    while let Some(chunk) = chunks.next() {
        let flags = last(chunks.peek().is_none());
        Header { len: len(chunk.len()), stream, kind: kind::CONTINUATION, flags }.write(out);
        out.extend_from_slice(chunk);
    }
}
