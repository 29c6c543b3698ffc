//! Variants of HTTP messages: equal after an engine's normalization, but different for a matcher on
//! raw octets.
//!
//! They transform assembled messages. The examiner decides whether a rule still matches.

use std::io::Write;

use squall_rules::End;

use super::{find, uri};
use crate::{Octets, Origin, Turn};

/// An alternative form of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Variant {
    /// Encode letters, digits and dots of the URI as `%41`.
    EscapedUri,
    /// Encode letters of the path as `%u0041`.
    EscapedUriUnicode,
    /// Replace each slash of the path by `/./`.
    DotSegments,
    /// Replace the first slash of the path by `/x/../`.
    ParentSegments,
    /// Double each slash of the path.
    DoubleSlashes,
    /// Replace the slashes in the path, except the first, by backslashes.
    Backslashes,
    /// Change the case of header names. Rules that test a name in its usual case no longer match.
    MixedCase,
    /// Fold header lines after the colon (obsolete since RFC 7230).
    FoldedHeaders,
    /// Send bodies in chunks of three octets each.
    ChunkedBody,
    /// Compress bodies of responses.
    GzipBody,
}

impl Variant {
    pub const ALL: &'static [Variant] = &[
        Variant::EscapedUri,
        Variant::EscapedUriUnicode,
        Variant::DotSegments,
        Variant::ParentSegments,
        Variant::DoubleSlashes,
        Variant::Backslashes,
        Variant::FoldedHeaders,
        Variant::ChunkedBody,
        Variant::GzipBody,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Variant::EscapedUri => "uri-escapes",
            Variant::EscapedUriUnicode => "uri-unicode",
            Variant::DotSegments => "uri-dots",
            Variant::ParentSegments => "uri-parents",
            Variant::DoubleSlashes => "uri-slashes",
            Variant::Backslashes => "uri-backslashes",
            Variant::MixedCase => "header-case",
            Variant::FoldedHeaders => "header-folding",
            Variant::ChunkedBody => "body-chunks",
            Variant::GzipBody => "body-gzip",
        }
    }
}

impl Variant {
    /// Description for help texts.
    pub fn description(self) -> &'static str {
        match self {
            Variant::EscapedUri => "escapes letters, digits and dots of the URI: %41",
            Variant::EscapedUriUnicode => "escapes letters of the URI's path as %u0041",
            Variant::DotSegments => "writes each slash of the path as /./",
            Variant::ParentSegments => "writes the first slash of the path as /x/../",
            Variant::DoubleSlashes => "writes each slash of the path twice",
            Variant::Backslashes => "writes slashes of the path as backslashes",
            Variant::MixedCase => {
                "writes header names in mixed case; rules that depend on their case do not match"
            }
            Variant::FoldedHeaders => "begins header values on a new line",
            Variant::ChunkedBody => "sends bodies in chunks of three octets",
            Variant::GzipBody => "compresses bodies of responses",
        }
    }
}

/// Applies the variant to all HTTP messages. Other turns stay unchanged.
pub fn applied(variant: Variant, turns: Vec<Turn>) -> Vec<Turn> {
    let vary = |mut turn: Turn| {
        if let Some(octets) = message(variant, &turn) {
            turn.octets = octets;
        }
        turn
    };
    turns.into_iter().map(vary).collect()
}

/// The message in the variant's form. `None` if the turn is not a message or the variant changes
/// nothing.
fn message(variant: Variant, turn: &Turn) -> Option<Octets> {
    let octets = &turn.octets;
    let first_end = find(octets.bytes(), b"\r\n")?;
    let header_end = find(octets.bytes(), b"\r\n\r\n")?;
    let first = octets.slice(0..first_end);
    let header = octets.slice(first_end..header_end + 2);
    let body = octets.slice(header_end + 4..octets.len());
    let request = turn.from == End::Client;
    let is_message = match request {
        true => find(first.bytes(), b" HTTP/1.").is_some(),
        false => first.bytes().starts_with(b"HTTP/1."),
    };
    if !is_message {
        return None;
    }
    let parts = match variant {
        Variant::MixedCase | Variant::FoldedHeaders => [first, lines(variant, &header), body],
        Variant::ChunkedBody | Variant::GzipBody => {
            let (header, body) = coded(variant, request, &header, &body)?;
            [first, header, body]
        }
        _ if request => [request_line(variant, &first)?, header, body],
        _ => return None,
    };
    let [first, header, body] = parts;
    let mut all = first;
    all.append(&header);
    all.append(&"\r\n".into());
    all.append(&body);
    Some(all)
}

fn request_line(variant: Variant, line: &Octets) -> Option<Octets> {
    let bytes = line.bytes();
    let begin = find(bytes, b" /")? + 1;
    let end = begin + bytes[begin..].iter().position(|&octet| octet == b' ')?;
    let path_end = begin
        + bytes[begin..end].iter().position(|octet| b"?#".contains(octet)).unwrap_or(end - begin);
    let mut all = line.slice(0..begin);
    match variant {
        Variant::EscapedUri => all.append(&uri::escaped(&line.slice(begin..end))),
        _ => {
            let mut escape = 0_u8;
            for (at, &octet) in bytes.iter().enumerate().take(end).skip(begin) {
                let origin = line.origins()[at];
                if octet == b'%' {
                    escape = 3;
                }
                let plain = escape == 0;
                escape = escape.saturating_sub(1);
                let added: &[u8] = match (variant, octet) {
                    _ if at >= path_end => b"",
                    (Variant::DotSegments, b'/') => b"/.",
                    (Variant::DoubleSlashes, b'/') => b"/",
                    (Variant::ParentSegments, b'/') if at == begin => b"/x/..",
                    _ => b"",
                };
                all.extend(added, Origin::Framing);
                match variant {
                    Variant::Backslashes if octet == b'/' && begin < at && at < path_end => {
                        all.push(b'\\', origin)
                    }
                    Variant::EscapedUriUnicode
                        if octet.is_ascii_alphabetic() && plain && at < path_end =>
                    {
                        all.extend(format!("%u{octet:04X}").as_bytes(), origin);
                    }
                    _ => all.push(octet, origin),
                }
            }
        }
    }
    all.append(&line.slice(end..line.len()));
    Some(all)
}

/// Applies the variant to header lines. `header` starts with the end of the first line and ends
/// with the end of the last one.
fn lines(variant: Variant, header: &Octets) -> Octets {
    let mut all = Octets::new();
    let mut in_name = false;
    let mut upper = false;
    for (at, (&octet, &origin)) in header.bytes().iter().zip(header.origins()).enumerate() {
        let mut octet = octet;
        match octet {
            b'\n' => (in_name, upper) = (true, false),
            b':' if in_name => {
                in_name = false;
                all.push(octet, origin);
                // Only fold lines that have a value.
                if variant == Variant::FoldedHeaders && header.bytes()[at + 1..].starts_with(b" ") {
                    all.extend(b"\r\n", Origin::Framing);
                }
                continue;
            }
            _ if in_name && variant == Variant::MixedCase => {
                octet = if upper { octet.to_ascii_uppercase() } else { octet.to_ascii_lowercase() };
                upper = !upper;
            }
            _ => {}
        }
        all.push(octet, origin);
    }
    all
}

/// Returns header and body with another transfer or content encoding.
fn coded(
    variant: Variant,
    request: bool,
    header: &Octets,
    body: &Octets,
) -> Option<(Octets, Octets)> {
    let lower = header.bytes().to_ascii_lowercase();
    let already = |name: &[u8]| find(&lower, name).is_some();
    if body.is_empty() || already(b"\r\ntransfer-encoding:") || already(b"\r\ncontent-encoding:") {
        return None;
    }
    let mut body = body.clone();
    let coding = match variant {
        Variant::GzipBody if request => return None,
        Variant::GzipBody => {
            let origin = body.origins().iter().copied().max().unwrap_or(Origin::Framing);
            let mut packed = flate2::write::GzEncoder::new(vec![], flate2::Compression::default());
            let packed = packed.write_all(body.bytes()).and_then(|()| packed.finish());
            body = Octets::of(packed.expect("a vector takes all"), origin);
            format!("Content-Encoding: gzip\r\nContent-Length: {}\r\n", body.len())
        }
        _ => {
            body = chunks(&body, 3);
            "Transfer-Encoding: chunked\r\n".into()
        }
    };
    // Replace Content-Length by the header of the encoding.
    let mut all = header.clone();
    if let Some(at) = find(&lower, b"\r\ncontent-length:") {
        let end = at + 2 + find(&lower[at + 2..], b"\r\n")? + 2;
        let required =
            header.origins()[at + 2..end].iter().any(|origin| *origin != Origin::Framing);
        if required {
            return None;
        }
        all = header.slice(0..at + 2);
        all.append(&coding.as_str().into());
        all.append(&header.slice(end..header.len()));
    } else {
        all.append(&coding.as_str().into());
    }
    Some((all, body))
}

/// A body in chunks of `size` octets (RFC 9112 §7.1).
pub(super) fn chunks(body: &Octets, size: usize) -> Octets {
    let mut all = Octets::new();
    let mut begin = 0;
    while begin < body.len() {
        let end = body.len().min(begin + size);
        all.append(&Octets::from(format!("{:x}\r\n", end - begin).as_str()));
        all.append(&body.slice(begin..end));
        all.append(&"\r\n".into());
        begin = end;
    }
    all.append(&"0\r\n\r\n".into());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn varied(variant: Variant, from: End, text: &str) -> String {
        let turns = applied(variant, vec![Turn::new(from, text.into())]);
        String::from_utf8_lossy(turns[0].octets.bytes()).into_owned()
    }

    #[test]
    fn a_uri_has_variants() {
        let request = "GET /a/b.c?d/e HTTP/1.1\r\nHost: x\r\n\r\n";
        for (variant, first) in [
            (Variant::EscapedUri, "GET /%61/%62%2E%63?%64/%65 HTTP/1.1\r\n"),
            (Variant::EscapedUriUnicode, "GET /%u0061/%u0062.%u0063?d/e HTTP/1.1\r\n"),
            (Variant::DotSegments, "GET /./a/./b.c?d/e HTTP/1.1\r\n"),
            (Variant::ParentSegments, "GET /x/../a/b.c?d/e HTTP/1.1\r\n"),
            (Variant::DoubleSlashes, "GET //a//b.c?d/e HTTP/1.1\r\n"),
            (Variant::Backslashes, "GET /a\\b.c?d/e HTTP/1.1\r\n"),
        ] {
            let varied = varied(variant, End::Client, request);
            assert_eq!(varied, format!("{first}Host: x\r\n\r\n"));
            let uri = varied.split(' ').nth(1).unwrap();
            assert_eq!(uri::read(uri.as_bytes()), b"/a/b.c?d/e", "{variant:?}");
        }
    }

    #[test]
    fn a_header_has_variants() {
        let request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
        assert_eq!(
            varied(Variant::MixedCase, End::Client, request),
            "GET / HTTP/1.1\r\nhOsT: x\r\n\r\n"
        );
        assert_eq!(
            varied(Variant::FoldedHeaders, End::Client, request),
            "GET / HTTP/1.1\r\nHost:\r\n x\r\n\r\n"
        );
    }

    #[test]
    fn a_body_has_variants() {
        let response = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nA: b\r\n\r\nevil";
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nA: \
                       b\r\n\r\n3\r\nevi\r\n1\r\nl\r\n0\r\n\r\n";
        assert_eq!(varied(Variant::ChunkedBody, End::Server, response), chunked);
        assert!(
            varied(Variant::GzipBody, End::Server, response)
                .contains("Content-Encoding: gzip\r\nContent-Length: ")
        );
        assert_eq!(varied(Variant::ChunkedBody, End::Server, "SSH-2.0-x\r\n"), "SSH-2.0-x\r\n");
    }
}
