//! Inverts an engine's normalization of URIs.
//!
//! The normalization is that of libhtp with Suricata's settings: escapes (`%41`, `%u0041`) are
//! decoded; in the path, backslashes become slashes and runs of slashes collapse, then UTF-8
//! becomes single octets, then dot segments are removed (RFC 3986 §5.2.4). `+` is kept. Scheme and
//! host are removed.

use super::{Impossible, contains, find};
use crate::{Octets, Origin};

/// A raw URI that normalizes to `normalized`. Escapes neither letters nor unreserved characters.
///
/// Encodes runs of slashes, and backslashes in the path, in full-width forms (U+FF0F, U+FF3C),
/// which become ASCII only after slashes have been collapsed. Dot segments in the path are
/// [`Impossible`].
pub fn written(normalized: &Octets) -> Result<Octets, Impossible> {
    let octets = normalized.bytes();
    let path = octets.iter().position(|&octet| octet == b'?').unwrap_or(octets.len());
    // If there is no leading slash, the text before a colon would be taken for a scheme.
    let relative = octets.first().is_some_and(|&first| first != b'/');
    let mut raw = Octets::new();
    for (at, (&octet, &origin)) in octets.iter().zip(normalized.origins()).enumerate() {
        let in_path = at < path;
        match octet {
            b'/' if in_path && at > 0 && octets[at - 1] == b'/' => raw.extend(b"%EF%BC%8F", origin),
            b'\\' if in_path => raw.extend(b"%EF%BC%BC", origin),
            b':' if relative => raw.extend(b"%3A", origin),
            0x80.. if in_path => {
                let mut buffer = [0; 2];
                for &octet in char::from(octet).encode_utf8(&mut buffer).as_bytes() {
                    escape(&mut raw, octet, origin);
                }
            }
            _ if is_unescaped(octet) => raw.push(octet, origin),
            _ => escape(&mut raw, octet, origin),
        }
    }
    match read(raw.bytes()) == octets {
        true => Ok(raw),
        false => Err(Impossible(format!(
            "no URI normalizes to {:?}: dot segments of a path are removed",
            String::from_utf8_lossy(octets)
        ))),
    }
}

/// Escapes the letters, digits and dots of a URI, so that they do not occur in the raw octets.
pub fn escaped(raw: &Octets) -> Octets {
    let mut all = Octets::new();
    let mut left = 0_u8;
    for (&octet, &origin) in raw.bytes().iter().zip(raw.origins()) {
        if octet == b'%' {
            left = 3;
        }
        match left == 0 && (octet.is_ascii_alphanumeric() || octet == b'.') {
            true => escape(&mut all, octet, origin),
            false => all.push(octet, origin),
        }
        left = left.saturating_sub(1);
    }
    all
}

/// Returns a URI that contains `raw` and whose normalized form contains `normalized`; if possible
/// each is the entire buffer.
pub fn of_both(normalized: &Octets, raw: &Octets) -> Result<Octets, Impossible> {
    let (wanted, given) = (normalized.bytes(), raw.bytes());
    if given.iter().any(|octet| octet.is_ascii_whitespace()) {
        return Err(Impossible("a URI cannot contain white space".into()));
    }
    let plain = written(normalized);
    let mut tries = vec![raw.clone()];
    tries.extend(plain.iter().cloned());
    // Insert the raw form in place of the part to which it normalizes.
    let decoded = read(given);
    if let Some(at) = find(wanted, &decoded)
        && !decoded.is_empty()
    {
        let halves = (written(&normalized.slice(0..at)), rest(normalized, at + decoded.len()));
        if let (Ok(mut before), after) = halves {
            before.append(raw);
            before.append(&after);
            tries.push(before);
        }
    }
    // Compare without normalizing the path, because that does not apply in the middle of a path.
    let unescaped = unescaped(given);
    if let Some(at) = find(wanted, &unescaped)
        && !unescaped.is_empty()
    {
        let mut all = head(normalized, at);
        all.append(raw);
        all.append(&rest(normalized, at + unescaped.len()));
        tries.push(all);
    }
    if let Ok(plain) = &plain {
        for between in ["", "&", "?", "/"] {
            for (first, second) in [(plain, raw), (raw, plain)] {
                let mut all = first.clone();
                all.append(&Octets::from(between));
                all.append(second);
                tries.push(all);
            }
        }
    }
    let exact = tries.iter().position(|all| all.bytes() == given && read(all.bytes()) == wanted);
    let one = |all: &Octets| {
        let both = read(all.bytes());
        (both == wanted && contains(all.bytes(), given))
            || (all.bytes() == given && contains(&both, wanted))
    };
    let some = |all: &Octets| contains(all.bytes(), given) && contains(&read(all.bytes()), wanted);
    match exact.or_else(|| tries.iter().position(one)).or_else(|| tries.iter().position(some)) {
        Some(found) => Ok(tries.swap_remove(found)),
        None => Err(Impossible(format!(
            "found no URI that contains {:?} and normalizes to {:?}",
            String::from_utf8_lossy(given),
            String::from_utf8_lossy(wanted)
        ))),
    }
}

/// Encodes the text before `end`, regardless of the text after it.
fn head(normalized: &Octets, end: usize) -> Octets {
    let mut raw = Octets::new();
    for (&octet, &origin) in normalized.bytes()[..end].iter().zip(normalized.origins()) {
        if is_unescaped(octet) { raw.push(octet, origin) } else { escape(&mut raw, octet, origin) }
    }
    raw
}

fn rest(normalized: &Octets, begin: usize) -> Octets {
    let rest = normalized.slice(begin.min(normalized.len())..normalized.len());
    head(&rest, rest.len())
}

fn escape(raw: &mut Octets, octet: u8, origin: Origin) {
    raw.extend(format!("%{octet:02X}").as_bytes(), origin);
}

/// Whether `octet` may occur unescaped in a path and a query (RFC 3986 §3.3, §3.4).
fn is_unescaped(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/?".contains(&octet)
}

/// Normalizes a URI as detection engines do.
pub fn read(raw: &[u8]) -> Vec<u8> {
    let raw = without_authority(raw);
    let path_end = raw.iter().position(|octet| b"?#".contains(octet)).unwrap_or(raw.len());
    let mut seen = path(&raw[..path_end]);
    match raw.get(path_end) {
        Some(b'?') => {
            let query_end = raw[path_end..]
                .iter()
                .position(|&octet| octet == b'#')
                .map_or(raw.len(), |at| path_end + at);
            seen.extend_from_slice(&unescaped(&raw[path_end..query_end]));
            seen.extend_from_slice(&raw[query_end..]);
        }
        _ => seen.extend_from_slice(&raw[path_end..]),
    }
    seen
}

/// The URI after scheme, credentials, host and port.
fn without_authority(raw: &[u8]) -> &[u8] {
    let Some(colon) = raw.iter().position(|&octet| octet == b':') else { return raw };
    if raw.first() == Some(&b'/') {
        return raw;
    }
    let rest = &raw[colon + 1..];
    let rest = rest.strip_prefix(b"//").unwrap_or(rest);
    let end = rest.iter().position(|octet| b"/?#".contains(octet)).unwrap_or(rest.len());
    &rest[end..]
}

fn path(raw: &[u8]) -> Vec<u8> {
    let mut slashed: Vec<u8> = vec![];
    for octet in unescaped(raw) {
        let octet = if octet == b'\\' { b'/' } else { octet };
        if octet != b'/' || slashed.last() != Some(&b'/') {
            slashed.push(octet);
        }
    }
    without_dots(&narrowed(&slashed))
}

/// Decodes `%41` and `%u0041`. Incomplete escapes stay.
fn unescaped(raw: &[u8]) -> Vec<u8> {
    let mut seen = Vec::with_capacity(raw.len());
    let mut at = 0;
    while at < raw.len() {
        let value = |digits: std::ops::Range<usize>| {
            let digits =
                raw.get(digits).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
            u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
        };
        let (octet, length) = match raw[at] {
            b'%' if raw.get(at + 1).is_some_and(|next| next.eq_ignore_ascii_case(&b'u')) => {
                match value(at + 2..at + 6) {
                    Some(value) => (best_fit(value.into()), 6),
                    None => (b'%', 1),
                }
            }
            b'%' => match value(at + 1..at + 3) {
                Some(value) => (value as u8, 3),
                None => (b'%', 1),
            },
            octet => (octet, 1),
        };
        seen.push(octet);
        at += length;
    }
    seen
}

/// Converts UTF-8 to single octets. Invalid UTF-8 becomes question marks.
fn narrowed(octets: &[u8]) -> Vec<u8> {
    let mut seen = vec![];
    for chunk in octets.utf8_chunks() {
        seen.extend(chunk.valid().chars().map(|character| best_fit(character.into())));
        if !chunk.invalid().is_empty() {
            seen.push(b'?');
        }
    }
    seen
}

fn best_fit(character: u32) -> u8 {
    match character {
        0..=0xff => character as u8,
        // Full-width forms. The engine's table maps more characters, which are not needed here.
        0xff01..=0xff5e => (character - 0xff01) as u8 + b'!',
        _ => b'?',
    }
}

/// Removes `.` and `..` segments. A slash directly after another does not start a segment.
fn without_dots(mut path: &[u8]) -> Vec<u8> {
    while let [b'.', b'/', tail @ ..] | [b'.', b'.', b'/', tail @ ..] = path {
        path = tail;
    }
    let mut seen: Vec<u8> = vec![];
    let mut rest = path;
    loop {
        match rest {
            [b'.'] | [b'.', b'.'] if rest.len() == path.len() => return seen,
            [b'/', b'.', b'.', tail @ ..] if tail.is_empty() || tail[0] == b'/' => {
                let cut = seen.iter().rposition(|&octet| octet == b'/').unwrap_or(0);
                seen.truncate(cut);
                // A final slash is removed together with its segment.
                rest = if tail == b"/" { &[] } else { tail };
            }
            [b'/', b'.', tail @ ..] if tail.is_empty() || tail[0] == b'/' => {
                rest = if tail == b"/" { &[] } else { tail };
            }
            [b'/', next, tail @ ..] if *next != b'.' => {
                seen.extend_from_slice(&[b'/', *next]);
                rest = tail;
            }
            [octet, tail @ ..] => {
                seen.push(*octet);
                rest = tail;
            }
            [] => return seen,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seen(normalized: &[u8]) -> String {
        let raw = written(&Octets::of(normalized, Origin::Option(3))).unwrap();
        assert!(raw.origins().iter().all(|&origin| origin == Origin::Option(3)));
        String::from_utf8(raw.bytes().to_vec()).unwrap()
    }

    #[test]
    fn reserved_octets_of_a_uri_are_escaped() {
        assert_eq!(seen(b"/a b.php?x=<1>&y=a+b#c%"), "/a%20b.php?x=%3C1%3E&y=a+b%23c%25");
        assert_eq!(seen(b"/\xe9?\xe9"), "/%C3%A9?%E9");
        assert_eq!(seen(b"/a//b\\c"), "/a/%EF%BC%8Fb%EF%BC%BCc");
        assert_eq!(seen(b"/x?../../etc/passwd"), "/x?../../etc/passwd");
        assert!(written(&Octets::from("/a/../b")).is_err());
        assert!(written(&Octets::from("/a/.")).is_err());
    }

    #[test]
    fn dots_at_the_beginning_take_no_stack_however_many() {
        assert_eq!(without_dots(&[b"./../".repeat(100_000), b"a/../b".to_vec()].concat()), b"/b");
        assert_eq!(without_dots(b"./.."), b"");
    }

    #[test]
    fn an_escaped_uri_is_the_same_to_an_engine() {
        let plain = written(&Octets::from("/a b//c.jsp?d=1")).unwrap();
        let escaped = escaped(&plain);
        assert_eq!(read(escaped.bytes()), b"/a b//c.jsp?d=1");
        assert!(!contains(escaped.bytes(), b".jsp"));
    }

    #[test]
    fn a_uri_is_normalized_as_in_libhtp() {
        for (raw, normalized) in [
            ("/a/b/c/./../../g", "/a/g"),
            ("mid/content=5/../6", "mid/6"),
            ("./one", "one"),
            ("../one", "one"),
            ("one/.", "one"),
            ("/", "/"),
            ("/../../../images.gif", "/images.gif"),
            ("http://host.com/path", "/path"),
            ("/one\\\\/two\\/%5cthree/%2f//four", "/one/two/three/four"),
            ("/%u0041%zz", "/A%zz"),
        ] {
            assert_eq!(String::from_utf8_lossy(&read(raw.as_bytes())), normalized, "{raw}");
        }
    }

    #[test]
    fn a_raw_form_replaces_its_normalized_form() {
        let both = |normalized: &str, raw: &str| {
            let uri = of_both(&Octets::from(normalized), &Octets::from(raw)).unwrap();
            String::from_utf8(uri.bytes().to_vec()).unwrap()
        };
        assert_eq!(both("/a b", "/a%20b"), "/a%20b");
        assert_eq!(both("/cgi-bin/a/b.pl", "%61/"), "/cgi-bin/%61/b.pl");
        assert_eq!(both("/index.php", "%2e%2e/"), "/index.php%2e%2e/");
        assert!(of_both(&Octets::from("/a"), &Octets::from("a b")).is_err());
    }

    proptest! {
        #[test]
        fn a_written_uri_normalizes_to_the_original(octets in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut uri = b"/x".to_vec();
            uri.extend(octets);
            // The result is either `Impossible`, or normalizes to exactly this URI.
            if let Ok(raw) = written(&Octets::framing(uri.clone())) {
                prop_assert_eq!(read(raw.bytes()), uri);
                prop_assert!(raw.bytes().iter().all(|&octet| octet.is_ascii_graphic() && octet != b'#'));
            } else {
                prop_assert!(contains(&uri, b"/."));
            }
        }
    }
}
