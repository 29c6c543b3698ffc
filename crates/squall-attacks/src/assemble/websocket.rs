//! WebSocket (RFC 6455), and HTTP/2 (RFC 9113) with prior knowledge.

use squall_rules::{ApplicationTest, Buffer, End};

use super::fields::{Fields, fits, number, other, payload};
use super::{Impossible, Parts};
use crate::{Octets, Turn};

// Any masking key works, because engines unmask payloads. A client must use one (RFC 6455 §5.3).
const KEY: [u8; 4] = [0x51, 0x0a, 0x77, 0x31];

pub(super) fn conversation(parts: &Parts) -> Result<Vec<Turn>, Impossible> {
    let opcode = number(
        parts,
        |test| match test {
            ApplicationTest::WebSocketOpcode(numbers) => Some(numbers),
            _ => None,
        },
        &[1, 2, 9],
        15,
    )?
    .unwrap_or(1) as u8;
    let flags = other(parts, "websocket.flags", &[0x80, 0], 0xf0)?.unwrap_or(0x80) as u8 & 0xf0;
    let masked = parts.tests.iter().find_map(|test| match test {
        ApplicationTest::WebSocketMask(masked) => Some(*masked),
        _ => None,
    });
    let key = other(parts, "websocket.mask", &[u32::from_be_bytes(KEY).into()], u32::MAX.into())?;
    let key = key.map_or(KEY, |key| (key as u32).to_be_bytes());
    let request = "GET /chat HTTP/1.1\r\nHost: www.example.com\r\nUpgrade: websocket\r\nConnection: \
               Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: \
               13\r\n\r\n";
    let response = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: \
                 Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
    let mut turns =
        vec![Turn::new(End::Client, request.into()), Turn::new(End::Server, response.into())];
    for from in [End::Client, End::Server] {
        let payload =
            parts.get(Buffer::WebSocketPayload, from).cloned().or_else(|| payload(parts, from));
        let payload = payload
            .unwrap_or_else(|| if from == End::Client { "hello".into() } else { "welcome".into() });
        let masked = masked.unwrap_or(from == End::Client)
            && (from == End::Client || parts.sends(End::Server));
        turns.push(Turn::new(from, frame(flags | opcode, masked.then_some(key), &payload)?));
    }
    Ok(turns)
}

fn frame(first: u8, key: Option<[u8; 4]>, payload: &Octets) -> Result<Octets, Impossible> {
    let bit = u8::from(key.is_some()) << 7;
    let header = match fits(payload.len(), 65_000)? {
        length @ ..126 => Fields::of(&[first, bit | length as u8]),
        length => Fields::of(&[first, bit | 126]).be16(length as u16),
    };
    let Some(key) = key else { return Ok(header.part(payload).done()) };
    let mut mixed = Octets::new();
    for (at, (byte, origin)) in payload.bytes().iter().zip(payload.origins()).enumerate() {
        mixed.push(byte ^ key[at % 4], *origin);
    }
    Ok(header.raw(&key).part(&mixed).done())
}

// Frame types and flags of HTTP/2 (RFC 9113 §6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const END_HEADERS: u8 = 4;
const END_STREAM: u8 = 1;

/// A request and its response on stream 1.
pub(super) fn http2(parts: &Parts) -> Result<Vec<Turn>, Impossible> {
    let client = requested(parts)?;
    let server = responded(parts)?;
    let preface = Fields::of(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").fields(frame2(
        SETTINGS,
        0,
        0,
        &Octets::new(),
    )?);
    let greeting =
        frame2(SETTINGS, 0, 0, &Octets::new())?.fields(frame2(SETTINGS, 1, 0, &Octets::new())?);
    Ok(vec![
        Turn::new(End::Client, preface.done()),
        Turn::new(End::Server, greeting.done()),
        Turn::new(End::Client, frame2(SETTINGS, 1, 0, &Octets::new())?.fields(client).done()),
        Turn::new(End::Server, server.done()),
    ])
}

fn requested(parts: &Parts) -> Result<Fields, Impossible> {
    let part = |buffer| parts.get(buffer, End::Client).cloned();
    let body =
        part(Buffer::HttpRequestBody).or_else(|| parts.get(Buffer::FileData, End::Client).cloned());
    let body = body.or_else(|| payload(parts, End::Client));
    let usual = Octets::from(if body.is_some() { "POST" } else { "GET" });
    let uri =
        part(Buffer::HttpUri).or_else(|| part(Buffer::HttpRawUri)).unwrap_or_else(|| "/".into());
    let host = part(Buffer::HttpHost)
        .or_else(|| part(Buffer::HttpRawHost))
        .unwrap_or_else(|| "www.example.com".into());
    let mut lines: Vec<(Octets, Octets)> = vec![
        (":method".into(), part(Buffer::HttpMethod).unwrap_or(usual)),
        (":path".into(), uri),
        (":scheme".into(), "http".into()),
        (":authority".into(), host),
    ];
    let named = [
        (Buffer::HttpUserAgent, "user-agent"),
        (Buffer::HttpReferer, "referer"),
        (Buffer::HttpAccept, "accept"),
        (Buffer::HttpAcceptEncoding, "accept-encoding"),
        (Buffer::HttpAcceptLanguage, "accept-language"),
        (Buffer::HttpCookie, "cookie"),
        (Buffer::HttpContentType, "content-type"),
    ];
    named_lines(&mut lines, parts, End::Client, &named, Buffer::HttpRequestHeader)?;
    message(&lines, body.as_ref())
}

fn responded(parts: &Parts) -> Result<Fields, Impossible> {
    let part = |buffer| parts.get(buffer, End::Server).cloned();
    let body = part(Buffer::HttpResponseBody)
        .or_else(|| part(Buffer::FileData))
        .or_else(|| payload(parts, End::Server));
    let code = number(
        parts,
        |test| match test {
            ApplicationTest::HttpStatusCode(numbers) => Some(numbers),
            _ => None,
        },
        &[200, 404, 500],
        999,
    )?;
    let code = code.map(|code| Octets::from(format!("{code:03}").as_str()));
    let status = part(Buffer::HttpStatusCode).or(code).unwrap_or_else(|| "200".into());
    let mut lines = vec![(":status".into(), status)];
    let named = [
        (Buffer::HttpServer, "server"),
        (Buffer::HttpLocation, "location"),
        (Buffer::HttpCookie, "set-cookie"),
        (Buffer::HttpContentType, "content-type"),
    ];
    named_lines(&mut lines, parts, End::Server, &named, Buffer::HttpResponseHeader)?;
    message(&lines, body.as_ref())
}

/// Header fields with dedicated buffers, and header fields given as lines.
fn named_lines(
    lines: &mut Vec<(Octets, Octets)>,
    parts: &Parts,
    from: End,
    named: &[(Buffer, &str)],
    single: Buffer,
) -> Result<(), Impossible> {
    for (buffer, name) in named {
        lines.extend(parts.get(*buffer, from).map(|value| (Octets::from(*name), value.clone())));
    }
    for block in [single, Buffer::HttpHeader, Buffer::HttpRawHeader] {
        for line in parts.all(block, from).flat_map(split_lines) {
            let Some(colon) = line.bytes().iter().position(|byte| *byte == b':') else {
                lines.push(("x-text".into(), line));
                continue;
            };
            let after = line.bytes()[colon + 1..].iter().take_while(|byte| **byte == b' ').count();
            let name = line.slice(0..colon);
            if name.bytes().iter().any(u8::is_ascii_uppercase) {
                return Err(Impossible("header names are lower case in HTTP/2".into()));
            }
            lines.push((name, line.slice(colon + 1 + after..line.len())));
        }
    }
    for name in parts.all(Buffer::Http2HeaderName, from) {
        if !lines.iter().any(|(known, _)| known.bytes() == name.bytes()) {
            lines.push((name.clone(), "1".into()));
        }
    }
    Ok(())
}

fn split_lines(block: &Octets) -> Vec<Octets> {
    let mut all = vec![];
    let mut begin = 0;
    for at in 0..=block.len() {
        if at == block.len() || block.bytes()[at] == b'\n' {
            let end = if at > begin && block.bytes()[at - 1] == b'\r' { at - 1 } else { at };
            if end > begin {
                all.push(block.slice(begin..end));
            }
            begin = at + 1;
        }
    }
    all
}

fn message(lines: &[(Octets, Octets)], body: Option<&Octets>) -> Result<Fields, Impossible> {
    let mut block = Fields::new();
    for (name, value) in lines {
        // A literal field without indexing, and without Huffman coding (RFC 7541 §6.2.2).
        block = block.byte(0).fields(string(name)?).fields(string(value)?);
    }
    let flags = END_HEADERS | if body.is_none() { END_STREAM } else { 0 };
    let headers = frame2(HEADERS, flags, 1, &block.done())?;
    match body {
        None => Ok(headers),
        Some(body) => {
            let mut all = headers;
            let mut begin = 0;
            loop {
                let end = (begin + 16_384).min(body.len());
                let last = end == body.len();
                all = all.fields(frame2(DATA, u8::from(last), 1, &body.slice(begin..end))?);
                if last {
                    return Ok(all);
                }
                begin = end;
            }
        }
    }
}

/// A string preceded by its length (RFC 7541 §5.1, §5.2).
fn string(text: &Octets) -> Result<Fields, Impossible> {
    let length = fits(text.len(), 16_000)?;
    if length < 127 {
        return Ok(Fields::of(&[length as u8]).part(text));
    }
    let mut rest = length - 127;
    let mut fields = Fields::of(&[127]);
    while rest >= 128 {
        fields = fields.byte(rest as u8 | 0x80);
        rest >>= 7;
    }
    Ok(fields.byte(rest as u8).part(text))
}

fn frame2(kind: u8, flags: u8, stream: u32, body: &Octets) -> Result<Fields, Impossible> {
    let length = fits(body.len(), 16_384)? as u32;
    Ok(Fields::of(&length.to_be_bytes()[1..]).byte(kind).byte(flags).be32(stream).part(body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Origin;

    #[test]
    fn client_frames_are_masked() {
        let mut parts = Parts::default();
        parts.push(Buffer::WebSocketPayload, End::Client, Octets::of(*b"evil", Origin::Option(1)));
        let turns = conversation(&parts).unwrap();
        let bytes = turns[2].octets.bytes();
        assert_eq!(bytes[..6], [0x81, 0x84, 0x51, 0x0a, 0x77, 0x31]);
        let plain: Vec<u8> = bytes[6..].iter().zip(KEY).map(|(byte, key)| byte ^ key).collect();
        assert_eq!(plain, b"evil");
        assert_eq!(turns[3].octets.bytes()[..2], [0x81, 7]);
    }

    #[test]
    fn long_strings_have_long_lengths() {
        for (length, expected) in
            [(5, &[5][..]), (126, &[126]), (127, &[127, 0]), (1337, &[127, 0xba, 0x09])]
        {
            let text = Octets::of(vec![b'a'; length], Origin::Free);
            assert_eq!(
                string(&text).unwrap().done().bytes()[..expected.len()],
                *expected,
                "{length}"
            );
        }
    }

    #[test]
    fn a_request_of_http2_has_its_frames() {
        let mut parts = Parts::default();
        parts.push(Buffer::HttpUri, End::Client, "/evil".into());
        parts.push(Buffer::HttpRequestBody, End::Client, "x=1".into());
        let turns = http2(&parts).unwrap();
        let bytes = turns[2].octets.bytes();
        // SETTINGS acknowledgment, then HEADERS, then DATA.
        let length = usize::from(bytes[10]) * 256 + usize::from(bytes[11]);
        assert_eq!(bytes[12..18], [HEADERS, END_HEADERS, 0, 0, 0, 1]);
        assert!(super::super::contains(&bytes[18..18 + length], b"\x05:path\x05/evil"));
        assert_eq!(bytes[18 + length..], *b"\0\0\x03\0\x01\0\0\0\x01x=1");
    }
}
