//! Normalizes request URIs as Suricata does by default (personality IDS, without changing case).

/// Parts of a URI that rules test.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Uri {
    /// In lower case, without trailing dots; present only in an absolute URI.
    pub host: Option<Vec<u8>>,
    /// Path, query and fragment, decoded. Empty if the URI has none of them.
    pub normalized: Vec<u8>,
    /// The path within `normalized`.
    pub path: Vec<u8>,
}

/// Splits `raw`. Accepts any input.
pub(super) fn parse(raw: &[u8]) -> Uri {
    let mut rest = raw;
    let mut host = None;
    // As in libhtp, any colon ends a scheme if there is no leading slash, even in
    // `a.php?u=http://b`.
    if !raw.starts_with(b"/")
        && let Some(colon) = memchr::memchr(b':', raw)
    {
        rest = &raw[colon + 1..];
        if let Some(authority) = rest.strip_prefix(b"//")
            && !authority.starts_with(b"/")
            && let Some(at) = memchr::memchr(b'@', authority)
        {
            rest = &authority[at + 1..];
        }
        if let Some((name, after)) = hostname(rest) {
            host = Some(name.to_vec());
            rest = after;
            if let Some(after) = port(rest) {
                rest = after;
            }
        }
    }
    let end = rest.iter().position(|&octet| octet == b'#' || octet == b'?').unwrap_or(rest.len());
    let (path, rest) = rest.split_at(end);
    let (query, fragment) = match rest.strip_prefix(b"?") {
        Some(rest) => {
            let end = memchr::memchr(b'#', rest).unwrap_or(rest.len());
            (Some(&rest[..end]), rest[end..].strip_prefix(b"#"))
        }
        None => (None, rest.strip_prefix(b"#")),
    };
    let path = normalise_path(path);
    let mut normalized = path.clone();
    if let Some(query) = query {
        normalized.push(b'?');
        normalized.extend(decode(query));
    }
    if let Some(fragment) = fragment {
        normalized.push(b'#');
        normalized.extend(decode(fragment));
    }
    Uri { host: host.map(|name| normalise_host(&decode(&name))), normalized, path }
}

/// The name in `name:port`, in lower case; `None` if it is empty.
pub(super) fn host_of(hostport: &[u8]) -> Option<Vec<u8>> {
    hostname(hostport).map(|(name, _)| name.to_ascii_lowercase())
}

fn normalise_host(name: &[u8]) -> Vec<u8> {
    let mut name = name.to_ascii_lowercase();
    while name.last() == Some(&b'.') {
        name.pop();
    }
    name
}

fn hostname(input: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut rest = input.strip_prefix(b"//").unwrap_or(input);
    if rest.starts_with(b"/") {
        return None;
    }
    while let Some(after) = rest.strip_prefix(b" ") {
        rest = after;
    }
    let end = match rest.strip_prefix(b"[") {
        Some(address) => {
            let inside =
                address.iter().position(|octet| b"/?#]".contains(octet)).unwrap_or(address.len());
            if inside == 0 {
                // If there is no address in the brackets, they are part of a name.
                rest.iter().position(|octet| b"/?#:".contains(octet)).unwrap_or(rest.len())
            } else {
                1 + inside + usize::from(address.get(inside) == Some(&b']'))
            }
        }
        None => rest.iter().position(|octet| b"/?#:".contains(octet)).unwrap_or(rest.len()),
    };
    if end == 0 {
        return None;
    }
    let (name, rest) = rest.split_at(end);
    Some((name.trim_suffix_blanks(), rest))
}

trait TrimBlanks {
    fn trim_suffix_blanks(&self) -> &Self;
}

impl TrimBlanks for [u8] {
    fn trim_suffix_blanks(&self) -> &[u8] {
        let end = self.iter().rposition(|&octet| octet != b' ').map_or(0, |last| last + 1);
        &self[..end]
    }
}

/// Skips `:port` and returns the rest; `None` if there is no port.
fn port(input: &[u8]) -> Option<&[u8]> {
    let rest = input.strip_prefix(b":")?;
    let end = rest.iter().position(|octet| b"/?#".contains(octet)).unwrap_or(rest.len());
    (end > 0).then(|| &rest[end..])
}

fn normalise_path(path: &[u8]) -> Vec<u8> {
    remove_dots(&one_octet_characters(&decode_path(path)))
}

/// Decodes `%XX` and `%uXXXX`, converts backslashes to slashes, and collapses runs of slashes.
/// Keeps invalid escapes.
fn decode_path(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut at = 0;
    while at < path.len() {
        let (mut octet, taken) = escape(&path[at..]);
        at += taken;
        if octet == b'\\' {
            octet = b'/';
        }
        if octet != b'/' || out.last() != Some(&b'/') {
            out.push(octet);
        }
    }
    out
}

/// Like [`decode_path`], but keeps slashes and backslashes. A plus sign is not decoded.
fn decode(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let (octet, taken) = escape(&text[at..]);
        at += taken;
        out.push(octet);
    }
    out
}

/// The first octet that `text` encodes, and the length of its encoding. `text` must not be empty.
fn escape(text: &[u8]) -> (u8, usize) {
    if text[0] != b'%' {
        return (text[0], 1);
    }
    match text.get(1) {
        Some(b'u' | b'U') => match text.get(2..6).and_then(hexadecimal) {
            Some(point) => (best_fit(point), 6),
            None => (b'%', 1),
        },
        _ => match text.get(1..3).and_then(hexadecimal) {
            Some(value) => (value as u8, 3),
            None => (b'%', 1),
        },
    }
}

fn hexadecimal(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |value, &digit| Some(value << 4 | char::from(digit).to_digit(16)?))
}

/// Converts UTF-8, including overlong sequences, to one octet per character. Invalid UTF-8 becomes
/// question marks.
fn one_octet_characters(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut at = 0;
    while at < path.len() {
        let first = path[at];
        at += 1;
        let (length, bits) = match first {
            0..0x80 => {
                out.push(first);
                continue;
            }
            0xc0..0xe0 => (2, first & 0x1f),
            0xe0..0xf0 => (3, first & 0x0f),
            0xf0..0xf5 => (4, first & 0x07),
            _ => {
                out.push(b'?');
                continue;
            }
        };
        let mut point = u32::from(bits);
        for index in 1..length {
            match path.get(at) {
                // Surrogates and code points above U+10FFFF are invalid.
                Some(&next)
                    if next & 0xc0 == 0x80
                        && !(index == 1 && first == 0xed && next >= 0xa0)
                        && !(index == 1 && first == 0xf4 && next >= 0x90) =>
                {
                    point = point << 6 | u32::from(next & 0x3f);
                    at += 1;
                    if index + 1 == length {
                        out.push(best_fit(point));
                    }
                }
                Some(_) => {
                    out.push(b'?');
                    break;
                }
                None => {
                    out.extend(std::iter::repeat_n(b'?', index - 1));
                    break;
                }
            }
        }
    }
    out
}

/// The octet that a character, or one that looks similar, has in code page 1252; otherwise a
/// question mark.
fn best_fit(point: u32) -> u8 {
    // U+0100 to U+017F. A question mark means that nothing looks similar.
    const LATIN: &[u8; 128] = b"AaAaAaCcCcCcCcDd?dEeEeEeEeEeGgGgGgGgHhHhIiIiIiIiIi??JjKk?LlLlLl??LlNnNnNn???OoOoOo??RrRrRrSsSsSs??TtTtTtUuUuUuUuUuUuWwYy?Z?Zz???";
    match point {
        0..0x100 => point as u8,
        0x100..0x180 => LATIN[point as usize - 0x100],
        0xff01..=0xff5e => (point - 0xff01) as u8 + b'!',
        0x2000..=0x2006 | 0x3000 => b' ',
        0x2010 | 0x2011 | 0x2212 => b'-',
        0x2032 | 0x2b9 | 0x2bc | 0x2c8 => b'\'',
        0x2035 | 0x2cb | 0x300 => b'`',
        0x2044 | 0x2215 => b'/',
        0x2216 => b'\\',
        0x2217 => b'*',
        0x2223 | 0x2758 | 0x1c0 => b'|',
        0x2236 | 0x589 => b':',
        0x223c | 0x303 => b'~',
        0x2329 | 0x3008 => b'<',
        0x232a | 0x3009 => b'>',
        0x301a => b'[',
        0x301b => b']',
        0x2074..=0x2078 => (point - 0x2074) as u8 + b'4',
        0x2080..=0x2089 => (point - 0x2080) as u8 + b'0',
        0x66a => b'%',
        _ => b'?',
    }
}

/// Removes `/./` and `/../` (RFC 3986 §5.2.4) as libhtp does: a final `/..` also removes the
/// preceding slash.
fn remove_dots(path: &[u8]) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::with_capacity(path.len());
    let mut rest = path;
    // Leading dot segments: `./a` and `../a` become `a`.
    loop {
        if let Some(after) = rest.strip_prefix(b"./").or_else(|| rest.strip_prefix(b"../")) {
            rest = after;
        } else if rest == b"." || rest == b".." {
            return out;
        } else {
            break;
        }
    }
    // `slash`: a slash precedes the next segment, unless nothing follows a dot segment.
    let (mut slash, mut after_dots) = (false, false);
    while let Some(&first) = rest.first() {
        if slash {
            if rest == b"." {
                return out;
            }
            if let Some(after) = rest.strip_prefix(b"./") {
                rest = after;
                after_dots = true;
                continue;
            }
            if rest == b".." || rest.starts_with(b"../") {
                out.truncate(out.iter().rposition(|&octet| octet == b'/').unwrap_or(0));
                if rest == b".." {
                    return out;
                }
                rest = &rest[3..];
                after_dots = true;
                continue;
            }
            out.extend([b'/', first]);
            (slash, after_dots) = (false, false);
        } else if first == b'/' {
            slash = true;
        } else {
            out.push(first);
        }
        rest = &rest[1..];
    }
    if slash && !after_dots {
        out.push(b'/');
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn normalized(raw: &[u8]) -> String {
        String::from_utf8_lossy(&parse(raw).normalized).into_owned()
    }

    #[test]
    fn the_path_is_decoded_and_its_slashes_and_dots_are_put_right() {
        assert_eq!(normalized(b"/a//b///c"), "/a/b/c");
        assert_eq!(normalized(b"/a/b/c/./../../g"), "/a/g");
        assert_eq!(normalized(b"/../../../images.gif"), "/images.gif");
        assert_eq!(normalized(b"/one%2ftwo%5c\\three"), "/one/two/three");
        assert_eq!(normalized(b"/%41%zz%4"), "/A%zz%4");
        assert_eq!(normalized(b"/%u0041%uff21%uZZZZ"), "/AA%uZZZZ");
        assert_eq!(normalized(b"/a+b"), "/a+b");
        assert_eq!(normalized(b"/a%252e"), "/a%2e");
    }

    #[test]
    fn dots_at_the_ends_go_as_libhtp_lets_them_go() {
        for (raw, expected) in [
            ("mid/content=5/../6", "mid/6"),
            ("./one", "one"),
            ("../one", "one"),
            (".", ""),
            ("..", ""),
            ("one/.", "one"),
            ("one/..", ""),
            ("/", "/"),
            ("one/../", ""),
            ("/a/b/", "/a/b/"),
            ("/a/...", "/a/..."),
            ("/a/.b", "/a/.b"),
        ] {
            assert_eq!(remove_dots(raw.as_bytes()), expected.as_bytes(), "{raw}");
        }
    }

    #[test]
    fn the_query_is_decoded_but_its_slashes_and_dots_stay() {
        assert_eq!(normalized(b"/a?b=%2F..//c%20d+e\\"), "/a?b=/..//c d+e\\");
        assert_eq!(normalized(b"/a?b#c%41"), "/a?b#cA");
        assert_eq!(normalized(b"/a?"), "/a?");
    }

    #[test]
    fn an_absolute_uri_loses_scheme_and_host() {
        let uri = parse(b"http://user:p@WWW.Example.COM.:80/a/b?c");
        assert_eq!(uri.normalized, b"/a/b?c");
        assert_eq!(uri.host.as_deref(), Some(&b"www.example.com"[..]));
        assert_eq!(normalized(b"http://a"), "");
    }

    #[test]
    fn a_colon_without_a_leading_slash_ends_a_scheme() {
        assert_eq!(normalized(b"a.php?u=http://b/c"), "/c");
        assert_eq!(normalized(b"a.php?u=b"), "a.php?u=b");
    }

    #[test]
    fn characters_of_the_path_become_one_octet_each() {
        assert_eq!(one_octet_characters(b"\xf1.\xf1\xef\xbd\x9dabcd"), b"?.?}abcd");
        assert_eq!(one_octet_characters(b"\xf0\x90\x8d\xff"), b"??");
        assert_eq!(one_octet_characters(b"\xe2\x82"), b"?");
        assert_eq!(one_octet_characters(b"\xc2\xff\xf0"), b"??");
        assert_eq!(one_octet_characters(b"\xf0\x90\x28\xbc"), b"?(?");
        assert_eq!(one_octet_characters(b"\xc0\xaf"), b"/");
        assert_eq!(one_octet_characters("é".as_bytes()), b"\xe9");
    }

    proptest! {
        #[test]
        fn any_octets_are_taken_apart(raw in proptest::collection::vec(any::<u8>(), 0..200)) {
            let uri = parse(&raw);
            prop_assert!(uri.normalized.len() <= raw.len());
        }
    }
}
