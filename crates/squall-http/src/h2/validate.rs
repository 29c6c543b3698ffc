//! Whether fields make up a message (RFC 9113 section 8; RFC 9114 section 4 has the same rules).
//!
//! Valid messages can be written as lines of HTTP/1.1: no name or value ends a line, and no part of
//! a request line has a space.

use super::{Fields, HeadKind};

/// The properties of a message that its head defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub kind: HeadKind,
    pub status: u16,
    pub content_length: Option<u64>,
}

/// Returns `None` if the fields are not those of a request. `connect_protocol`: whether extended
/// CONNECT was announced (RFC 8441 section 4).
pub(crate) fn request(fields: Fields<'_>, connect_protocol: bool) -> Option<Message> {
    let (mut method, mut scheme, mut authority, mut path) = (None, None, None, None);
    let mut protocol = None;
    let pseudo = pseudo_fields(fields, |name, value| {
        let slot = match name {
            b":method" => &mut method,
            b":scheme" => &mut scheme,
            b":authority" => &mut authority,
            b":path" => &mut path,
            b":protocol" if connect_protocol => &mut protocol,
            _ => return false,
        };
        slot.replace(value).is_none() && value.iter().all(u8::is_ascii_graphic)
    })?;
    let method: &[u8] = method.filter(|method| is_token(method))?;
    let some = |part: Option<&[u8]>| part.is_some_and(|part| !part.is_empty());
    let whole = if method == b"CONNECT" && protocol.is_none() {
        // Section 8.5.
        scheme.is_none() && path.is_none() && some(authority)
    } else {
        // Section 8.3.1: the path is not empty, and `*` is for OPTIONS alone.
        let path = path.is_some_and(|path: &[u8]| {
            path.first() == Some(&b'/') || (path == b"*" && method == b"OPTIONS")
        });
        let connects = protocol.is_none() || (method == b"CONNECT" && some(authority));
        some(scheme) && path && connects
    };
    let content_length = regular_fields(fields, pseudo)?;
    // A tunnel has no content (RFC 9110 section 9.3.6). Written as HTTP/1.1, a length would hide
    // where its octets end, so that some could pass for another request.
    let whole = whole && (method != b"CONNECT" || content_length.is_none());
    whole.then_some(Message { kind: HeadKind::Request, status: 0, content_length })
}

/// Returns `None` if the fields are not those of a response.
pub(crate) fn response(fields: Fields<'_>) -> Option<Message> {
    let mut status = None;
    let pseudo =
        pseudo_fields(fields, |name, value| name == b":status" && status.replace(value).is_none())?;
    let status: &[u8] = status?;
    let [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] = status else { return None };
    let digit = |digit: &u8| u16::from(digit - b'0');
    let status = digit(a) * 100 + digit(b) * 10 + digit(c);
    let content_length = regular_fields(fields, pseudo)?;
    let kind = match status {
        // There is no other protocol to switch to (section 8.6).
        101 => return None,
        ..200 => HeadKind::Interim,
        _ => HeadKind::Response,
    };
    // These have no body, whatever the length is that they name (RFC 9110 section 8.6).
    let content_length = content_length.filter(|_| !matches!(status, ..200 | 204 | 304));
    Some(Message { kind, status, content_length })
}

/// Whether the fields may follow a body (section 8.1).
pub(crate) fn trailers(fields: Fields<'_>) -> bool {
    regular_fields(fields, 0).is_some()
}

/// Calls `take` for each field before the first regular one, and returns their number. `None` if it
/// refuses one.
fn pseudo_fields<'a>(
    fields: Fields<'a>,
    mut take: impl FnMut(&'a [u8], &'a [u8]) -> bool,
) -> Option<usize> {
    let mut pseudo = 0;
    for (name, value) in fields {
        if name.first() != Some(&b':') {
            break;
        }
        if !take(name, value) {
            return None;
        }
        pseudo += 1;
    }
    Some(pseudo)
}

/// Checks the fields after `pseudo` pseudo-fields, and returns their content-length. `None` if one
/// is not allowed.
fn regular_fields(fields: Fields<'_>, pseudo: usize) -> Option<Option<u64>> {
    let mut content_length = None;
    for (name, value) in fields.iter().skip(pseudo) {
        let allowed = match name {
            // Section 8.2.2.
            b"connection" | b"proxy-connection" | b"keep-alive" | b"transfer-encoding"
            | b"upgrade" => false,
            b"te" => value == b"trailers",
            b"content-length" => {
                let length = number(value)?;
                content_length.replace(length).is_none_or(|other| other == length)
            }
            _ => is_name(name),
        };
        if !allowed || !is_value(value) {
            return None;
        }
    }
    Some(content_length)
}

/// Section 8.2.1, of fields that are no pseudo-fields.
fn is_name(name: &[u8]) -> bool {
    let allowed =
        |&octet: &u8| matches!(octet, 0x21..=0x7e) && !octet.is_ascii_uppercase() && octet != b':';
    !name.is_empty() && name.iter().all(allowed)
}

/// Section 8.2.1.
fn is_value(value: &[u8]) -> bool {
    let space = |octet: Option<&u8>| matches!(octet, Some(b' ' | b'\t'));
    let allowed = |&octet: &u8| !matches!(octet, b'\0' | b'\r' | b'\n');
    !space(value.first()) && !space(value.last()) && value.iter().all(allowed)
}

/// RFC 9110 section 5.6.2.
fn is_token(text: &[u8]) -> bool {
    let allowed = |octet: &u8| octet.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(octet);
    !text.is_empty() && text.iter().all(allowed)
}

fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 19 {
        return None;
    }
    digits.iter().try_fold(0, |number: u64, digit| {
        digit.is_ascii_digit().then(|| number * 10 + u64::from(digit - b'0'))
    })
}
