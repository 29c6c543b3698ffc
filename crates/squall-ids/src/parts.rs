//! Parts of buffers as Snort 3 defines them: a header field, a component of a URI, a parameter.

use squall_rules::Buffer;

/// Extracts the part named `part` from `octets`; `None` if there is none.
pub(crate) fn of(buffer: Buffer, part: &str, octets: &[u8]) -> Option<Vec<u8>> {
    match buffer {
        Buffer::HttpUri | Buffer::HttpRawUri => piece(part, octets).map(<[u8]>::to_vec),
        Buffer::HttpParameter => parameter(part, octets).map(<[u8]>::to_vec),
        _ => field(part, octets),
    }
}

/// The value of the header field `name`. If it is repeated, the values are joined by commas.
fn field(name: &str, octets: &[u8]) -> Option<Vec<u8>> {
    let mut found: Option<Vec<u8>> = None;
    for line in octets.split(|&octet| octet == b'\n') {
        let Some(colon) = line.iter().position(|&octet| octet == b':') else { continue };
        if !line[..colon].trim_ascii().eq_ignore_ascii_case(name.as_bytes()) {
            continue;
        }
        let value = line[colon + 1..].trim_ascii();
        match &mut found {
            Some(found) => {
                found.push(b',');
                found.extend_from_slice(value);
            }
            None => found = Some(value.to_vec()),
        }
    }
    found
}

/// A component of a URI: `scheme`, `host`, `port`, `path`, `query` or `fragment`.
fn piece<'a>(part: &str, uri: &'a [u8]) -> Option<&'a [u8]> {
    let at = |octets: &[u8], wanted: u8| octets.iter().position(|&octet| octet == wanted);
    let (rest, fragment) = match at(uri, b'#') {
        Some(hash) => (&uri[..hash], Some(&uri[hash + 1..])),
        None => (uri, None),
    };
    let (rest, query) = match at(rest, b'?') {
        Some(mark) => (&rest[..mark], Some(&rest[mark + 1..])),
        None => (rest, None),
    };
    let (scheme, rest) = match memchr::memmem::find(rest, b"://") {
        Some(colon) => (Some(&rest[..colon]), &rest[colon + 3..]),
        None => (None, rest),
    };
    let (authority, path) = match scheme {
        Some(_) => rest.split_at(at(rest, b'/').unwrap_or(rest.len())),
        None => (&rest[..0], rest),
    };
    let (host, port) = match authority.iter().rposition(|&octet| octet == b':') {
        Some(colon) => (&authority[..colon], Some(&authority[colon + 1..])),
        None => (authority, None),
    };
    match part {
        "scheme" => scheme,
        "host" => Some(host).filter(|host| !host.is_empty()),
        "port" => port,
        "path" => Some(path).filter(|path| !path.is_empty()),
        "query" => query,
        "fragment" => fragment,
        _ => None,
    }
}

/// The value of the parameter `name`, in `name=value&name=value`.
fn parameter<'a>(name: &str, octets: &'a [u8]) -> Option<&'a [u8]> {
    octets.split(|&octet| matches!(octet, b'&' | b'?')).find_map(|pair| {
        let (found, value) = pair.split_at(pair.iter().position(|&octet| octet == b'=')?);
        found.eq_ignore_ascii_case(name.as_bytes()).then(|| &value[1..])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_found_by_its_name_and_several_are_one_list() {
        let headers = b"Host: a\r\nX-One: 1\r\nx-one:2\r\n";
        assert_eq!(of(Buffer::HttpHeader, "x-one", headers).unwrap(), b"1,2");
        assert_eq!(of(Buffer::HttpHeader, "x-two", headers), None);
    }

    #[test]
    fn a_uri_has_its_pieces() {
        let uri = b"http://host:80/path?query=1#end";
        for (part, piece) in [
            ("scheme", "http"),
            ("host", "host"),
            ("port", "80"),
            ("path", "/path"),
            ("query", "query=1"),
            ("fragment", "end"),
        ] {
            assert_eq!(of(Buffer::HttpUri, part, uri).unwrap(), piece.as_bytes());
        }
        assert_eq!(of(Buffer::HttpUri, "host", b"/path"), None);
        assert_eq!(of(Buffer::HttpParameter, "b", b"/x?a=1&b=2").unwrap(), b"2");
    }
}
