//! The opening handshake of WebSocket (RFC 6455 section 4).

use sha1::{Digest, Sha1};

/// Section 1.3.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The end of a head, after its empty line.
pub(crate) fn end_of_head(octets: &[u8]) -> Option<usize> {
    memchr::memmem::find(octets, b"\r\n\r\n").map(|at| at + 4)
}

/// The status in the head of an answer.
pub(crate) fn status_of(head: &[u8]) -> Option<u16> {
    let rest = head.strip_prefix(b"HTTP/1.1 ")?;
    str::from_utf8(rest.get(..3)?).ok()?.parse().ok()
}

/// The key in a client's request. `None`: the request does not ask for WebSocket of version 13, or
/// is malformed (section 4.2.1).
pub(crate) fn key_of(head: &[u8]) -> Option<&[u8]> {
    let line = head.split(|octet| *octet == b'\r').next()?;
    (line.starts_with(b"GET /") && line.ends_with(b" HTTP/1.1")).then_some(())?;
    (upgrades(head) && field(head, b"sec-websocket-version")? == b"13").then_some(())?;
    // 16 octets in base64.
    let key = field(head, b"sec-websocket-key")?;
    let (digits, padding) = key.split_at_checked(22)?;
    let digit = |octet: &u8| octet.is_ascii_alphanumeric() || matches!(octet, b'+' | b'/');
    (padding == b"==" && digits.iter().all(digit)).then_some(key)
}

/// Whether a server's answer accepts the request with this key (section 4.1). Extensions and
/// protocols were not asked for, so it may have none.
pub(crate) fn accepts(head: &[u8], key: &[u8]) -> bool {
    status_of(head) == Some(101)
        && upgrades(head)
        && field(head, b"sec-websocket-accept").is_some_and(|of| of == accept_of(key).as_bytes())
        && field(head, b"sec-websocket-extensions").is_none()
        && field(head, b"sec-websocket-protocol").is_none()
}

/// A server's answer to a request with this key.
pub(crate) fn answer(key: &[u8]) -> String {
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: \
         Upgrade\r\nSec-WebSocket-Accept: {}\r\n\r\n",
        accept_of(key)
    )
}

/// Whether a request on a stream of HTTP/2, as its layer writes it, asks for WebSocket of version 13
/// (RFC 8441 section 5).
pub(crate) fn asks_on_stream(head: &[u8]) -> bool {
    head.starts_with(b"GET /")
        && upgrades(head)
        && field(head, b"sec-websocket-version") == Some(b"13")
}

/// Whether a server's answer accepts such a request.
pub(crate) fn accepts_on_stream(head: &[u8]) -> bool {
    status_of(head).is_some_and(|status| (200..300).contains(&status))
        && field(head, b"sec-websocket-extensions").is_none()
        && field(head, b"sec-websocket-protocol").is_none()
}

/// A server's answer to such a request.
pub(crate) const ANSWER_ON_STREAM: &str = "HTTP/1.1 200 OK\r\n\r\n";

/// A server's answer to another request (section 4.4).
pub(crate) const REFUSAL: &[u8] = b"HTTP/1.1 400 Bad Request\r\nServer: \
    squall\r\nSec-WebSocket-Version: 13\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// Whether the fields Upgrade and Connection are those of WebSocket.
fn upgrades(head: &[u8]) -> bool {
    let has = |name: &[u8], token: &[u8]| {
        let mut tokens = fields(head, name).flat_map(|value| value.split(|octet| *octet == b','));
        tokens.any(|of| of.trim_ascii().eq_ignore_ascii_case(token))
    };
    has(b"upgrade", b"websocket") && has(b"connection", b"upgrade")
}

/// The value of the first field with this name, which is in lower case.
fn field<'a>(head: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    fields(head, name).next()
}

/// The values of all fields with this name, which is in lower case.
fn fields<'a>(head: &'a [u8], name: &[u8]) -> impl Iterator<Item = &'a [u8]> {
    head.split(|octet| *octet == b'\n').skip(1).filter_map(move |line| {
        let (of, value) = line.split_at_checked(name.len())?;
        let value = value.strip_prefix(b":")?;
        of.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
    })
}

/// The value of Sec-WebSocket-Accept for a key (section 4.2.2).
fn accept_of(key: &[u8]) -> String {
    let hash: [u8; 20] = Sha1::new().chain_update(key).chain_update(GUID).finalize().into();
    base64(&hash)
}

fn base64(octets: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in octets.chunks(3) {
        let word = [0, 1, 2].map(|i| u32::from(three.get(i).copied().unwrap_or(0)));
        let word = word[0] << 16 | word[1] << 8 | word[2];
        for place in 0..4 {
            let digit = (word >> (18 - 6 * place) & 63) as usize;
            text.push(if place <= three.len() { DIGITS[digit].into() } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: &str = "GET /chat HTTP/1.1\r\nHost: server.example.com\r\nUpgrade: \
                           websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: \
                           dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: \
                           http://example.com\r\nSec-WebSocket-Version: 13\r\n\r\n";

    #[test]
    fn the_example_of_the_rfc_is_answered() {
        // RFC 6455 section 1.3.
        let key = key_of(REQUEST.as_bytes()).expect("a request");
        assert_eq!(key, b"dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(accept_of(key), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        let answer = answer(key);
        assert!(accepts(answer.as_bytes(), key));
        assert!(!accepts(answer.as_bytes(), b"AAAAAAAAAAAAAAAAAAAAAA=="));
        assert_eq!(end_of_head(answer.as_bytes()), Some(answer.len()));
        assert_eq!(base64(b"a"), "YQ==");
    }

    #[test]
    fn other_requests_and_answers_are_refused() {
        for (from, to) in [
            ("GET /", "POST /"),
            ("HTTP/1.1", "HTTP/1.0"),
            ("Upgrade: websocket", "Upgrade: h2c"),
            ("Connection: Upgrade", "Connection: keep-alive"),
            ("Version: 13", "Version: 8"),
            ("Sec-WebSocket-Key", "Sec-WebSocket-Kex"),
            ("dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25jZQ"),
        ] {
            assert_eq!(key_of(REQUEST.replace(from, to).as_bytes()), None, "{from}");
        }
        let several = REQUEST.replace("Connection: Upgrade", "connection: keep-alive, upgrade");
        assert!(key_of(several.as_bytes()).is_some());
        let lines = REQUEST.replace("Connection: ", "Connection: keep-alive\r\nConnection: ");
        assert!(key_of(lines.as_bytes()).is_some(), "a list in two lines (RFC 9110 section 5.3)");
        let key = key_of(REQUEST.as_bytes()).expect("a request");
        for (from, to) in [
            ("101", "200"),
            ("Upgrade: websocket", "Upgrade: h2c"),
            ("\r\n\r\n", "\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"),
            ("\r\n\r\n", "\r\nSec-WebSocket-Protocol: chat\r\n\r\n"),
        ] {
            assert!(!accepts(answer(key).replace(from, to).as_bytes(), key), "{to}");
        }
        assert_eq!(status_of(REFUSAL), Some(400));
    }
}
