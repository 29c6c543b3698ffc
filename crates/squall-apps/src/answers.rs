//! Evaluates whole HTTP responses: extracts values for later requests, cookies and the target of a
//! redirect, and checks bodies. Only programs that need them store answers.

use std::fmt::Write;

use regex::bytes::Regex;
use sha2::{Digest, Sha256};

use crate::{Check, Origin, ProtocolError, http::scheme};

/// Longest answer that can be evaluated, including its head, in octets.
pub const MAX_ANSWER: usize = 16 << 20;

/// Stored answers of a flow.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    /// The most recent value of each slot.
    pub values: Vec<Vec<u8>>,
    /// The octets of the current answer so far; only its body once it is complete.
    octets: Vec<u8>,
    /// Whether the answer is complete.
    whole: bool,
    head: Vec<u8>,
    pub status: u16,
    jar: Vec<(String, String)>,
    /// Whether the server closes after this answer, so that no request can follow.
    pub closing: bool,
}

/// A compiled [`Check`].
#[derive(Clone, Debug)]
pub enum Checked {
    Status(u16),
    Length(u64),
    Sha256([u8; 32]),
    Regex(Regex),
    NoRedirect,
}

/// A compiled [`Origin`].
#[derive(Clone, Debug)]
pub enum Source {
    /// A JSON Pointer (RFC 6901).
    Json(String),
    Regex(Regex),
    Header(String),
}

impl Kept {
    pub fn new(slots: usize) -> Self {
        Self { values: vec![vec![]; slots], ..Self::default() }
    }

    /// # Errors
    /// If the answer is longer than the limit.
    pub fn receive(&mut self, octets: &[u8]) -> Result<(), ProtocolError> {
        if std::mem::take(&mut self.whole) {
            self.octets.clear();
        }
        if self.octets.len() + octets.len() > MAX_ANSWER {
            return Err(ProtocolError::LongAnswer);
        }
        self.octets.extend_from_slice(octets);
        Ok(())
    }

    /// Ends the current answer. `cookies`: the slot to store the Cookie header field with its
    /// cookies in.
    pub fn complete(&mut self, close: bool, cookies: Option<usize>) {
        let mut octets = std::mem::take(&mut self.octets);
        let mut from = 0;
        // Interim answers come first, each only a head (RFC 9110 §15.2).
        loop {
            let end = head_end(&octets[from..]).map_or(octets.len(), |end| from + end);
            self.status = status(&octets[from..end]);
            let interim = (100..200).contains(&self.status) && end < octets.len();
            if !interim {
                self.head = octets[from..end].to_vec();
                octets.drain(..end);
                break;
            }
            from = end;
        }
        let chunked = self.header("transfer-encoding").is_some_and(|coding| {
            coding.trim_ascii_end().to_ascii_lowercase().ends_with(b"chunked")
        });
        // Keeps only the answer's body; the next answer replaces it.
        self.octets = if chunked { unchunk(&octets) } else { octets };
        (self.closing, self.whole) = (close, true);
        if let Some(slot) = cookies {
            self.set_cookies();
            self.values[slot] = self.cookie_header();
        }
    }

    /// # Errors
    /// If the answer lacks the value.
    pub fn take(&self, source: &Source) -> Result<Vec<u8>, ProtocolError> {
        let found = match source {
            Source::Header(name) => self.header(name).map(<[u8]>::to_vec),
            Source::Regex(regex) => regex.captures(&self.octets).and_then(|found| {
                found.get(1).or_else(|| found.get(0)).map(|group| group.as_bytes().to_vec())
            }),
            Source::Json(pointer) => {
                let body: Option<serde_json::Value> = serde_json::from_slice(&self.octets).ok();
                body.as_ref().and_then(|body| body.pointer(pointer)).and_then(|field| match field {
                    serde_json::Value::String(text) => Some(text.clone().into_bytes()),
                    serde_json::Value::Null => None,
                    other => Some(other.to_string().into_bytes()),
                })
            }
        };
        found.ok_or(ProtocolError::NoValue)
    }

    /// # Errors
    /// The failed check.
    pub fn check(&self, check: &Checked) -> Result<(), ProtocolError> {
        let (holds, error) = match check {
            Checked::Status(status) => (self.status == *status, ProtocolError::CheckStatus),
            Checked::Length(octets) => {
                (self.octets.len() as u64 == *octets, ProtocolError::CheckLength)
            }
            Checked::Sha256(hash) => {
                (Sha256::digest(&self.octets)[..] == hash[..], ProtocolError::CheckHash)
            }
            Checked::NoRedirect => (!self.redirects(), ProtocolError::CheckRedirect),
            Checked::Regex(regex) => (regex.is_match(&self.octets), ProtocolError::CheckRegex),
        };
        if holds { Ok(()) } else { Err(error) }
    }

    fn redirects(&self) -> bool {
        matches!(self.status, 301 | 302 | 303 | 307 | 308)
    }

    /// Path and query of a redirect to the same server; a redirect to another server would need
    /// another flow. If `host` includes a scheme (`https://www.test`), another scheme counts as
    /// another server.
    pub fn redirection(&self, host: &[u8]) -> Option<Vec<u8>> {
        if !self.redirects() {
            return None;
        }
        let (secure, host) = match scheme(host) {
            Some((secure, host)) => (Some(secure), host),
            None => (None, host),
        };
        let to = self.header("location")?;
        let to = &to[..memchr::memchr(b'#', to).unwrap_or(to.len())];
        let (of, rest) = match scheme(to) {
            Some((secure, rest)) => (Some(secure), Some(rest)),
            None => (None, to.strip_prefix(b"//")),
        };
        if of.is_some_and(|of| secure.is_some_and(|secure| secure != of)) {
            return None;
        }
        let path = match rest {
            Some(rest) => {
                let at = memchr::memchr2(b'/', b'?', rest).unwrap_or(rest.len());
                let same = without_port(&rest[..at], of.or(secure))
                    .eq_ignore_ascii_case(without_port(host, secure.or(of)));
                if !same && !host.is_empty() {
                    return None;
                }
                &rest[at..]
            }
            None => to,
        };
        Some(if path.starts_with(b"/") { path.to_vec() } else { [b"/", path].concat() })
    }

    fn header<'a>(&'a self, name: &'a str) -> Option<&'a [u8]> {
        self.headers(name).next()
    }

    fn headers<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.head.split(|octet| *octet == b'\n').skip(1).filter_map(move |line| {
            let at = memchr::memchr(b':', line)?;
            let (field, value) = (&line[..at], &line[at + 1..]);
            field.eq_ignore_ascii_case(name.as_bytes()).then(|| value.trim_ascii())
        })
    }

    /// Stores cookies as in RFC 6265 §5.2, for a single server: path and domain are ignored.
    fn set_cookies(&mut self) {
        let set: Vec<String> = self
            .headers("set-cookie")
            .map(|field| String::from_utf8_lossy(field).into_owned())
            .collect();
        for field in set {
            let mut parts = field.split(';');
            let Some((name, value)) = parts.next().and_then(|pair| pair.split_once('=')) else {
                continue;
            };
            let (name, value) = (name.trim(), value.trim());
            let gone = parts.any(|attribute| {
                let (key, age) = attribute.split_once('=').unwrap_or((attribute, ""));
                key.trim().eq_ignore_ascii_case("max-age")
                    && age.trim().parse::<i64>().is_ok_and(|age| age <= 0)
            });
            self.jar.retain(|(known, _)| known != name);
            if !gone {
                self.jar.push((name.into(), value.into()));
            }
        }
    }

    fn cookie_header(&self) -> Vec<u8> {
        let mut text = String::new();
        for (i, (name, value)) in self.jar.iter().enumerate() {
            let before = if i == 0 { "Cookie: " } else { "; " };
            // Writing to a String cannot fail.
            let _ = write!(text, "{before}{name}={value}");
        }
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        text.into_bytes()
    }

    /// Memory usage in bytes.
    pub fn memory(&self) -> usize {
        let values: usize = self.values.iter().map(Vec::capacity).sum();
        size_of::<Self>() + values + self.octets.capacity() + self.head.capacity()
    }
}

/// The host without its port, if that is the default of its scheme.
fn without_port(host: &[u8], secure: Option<bool>) -> &[u8] {
    let port: &[u8] = if secure == Some(true) { b":443" } else { b":80" };
    host.strip_suffix(port).unwrap_or(host)
}

/// The end of a head, which is after its first empty line; lines end in CRLF or LF.
pub fn head_end(octets: &[u8]) -> Option<usize> {
    memchr::memchr_iter(b'\n', octets).find_map(|at| match &octets[at + 1..] {
        [b'\n', ..] => Some(at + 2),
        [b'\r', b'\n', ..] => Some(at + 3),
        _ => None,
    })
}

/// The status in a line that the parser has accepted.
fn status(head: &[u8]) -> u16 {
    let digits = head.split(|octet| *octet == b' ').nth(1).and_then(|word| word.get(..3));
    digits.and_then(|digits| str::from_utf8(digits).ok()?.parse().ok()).unwrap_or(0)
}

/// Removes chunk framing that the parser has accepted.
fn unchunk(mut octets: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(octets.len());
    while let Some(end) = memchr::memchr(b'\n', octets) {
        let size = octets[..end].split(|octet| *octet == b';').next().unwrap_or_default();
        let size = str::from_utf8(size.trim_ascii()).ok();
        let len = size.and_then(|size| usize::from_str_radix(size, 16).ok()).unwrap_or(0);
        let Some(chunk) = octets.get(end + 1..end + 1 + len).filter(|chunk| !chunk.is_empty())
        else {
            break;
        };
        body.extend_from_slice(chunk);
        let rest = &octets[end + 1 + len..];
        octets = &rest[memchr::memchr(b'\n', rest).map_or(rest.len(), |at| at + 1)..];
    }
    body
}

impl Source {
    /// # Errors
    /// An invalid regular expression; the error is text.
    pub fn new(from: &Origin) -> Result<Self, String> {
        Ok(match from {
            Origin::Json(path) => Self::Json(pointer(path)),
            Origin::Header(name) => Self::Header(name.clone()),
            Origin::Regex(pattern) => Self::Regex(regex(pattern)?),
        })
    }
}

impl Checked {
    /// # Errors
    /// An invalid regular expression; the error is text.
    pub fn new(check: &Check) -> Result<Self, String> {
        Ok(match check {
            Check::NoRedirect => Self::NoRedirect,
            Check::Status(status) => Self::Status(*status),
            Check::Length(octets) => Self::Length(*octets),
            Check::Sha256(hash) => Self::Sha256(*hash),
            Check::Regex(pattern) => Self::Regex(regex(pattern)?),
        })
    }
}

fn regex(pattern: &str) -> Result<Regex, String> {
    Regex::new(pattern).map_err(|error| error.to_string())
}

/// Converts `data.items[0].id` to a JSON Pointer; leaves pointers unchanged.
fn pointer(path: &str) -> String {
    if path.is_empty() || path.starts_with('/') {
        return path.into();
    }
    let escaped = path.replace('~', "~0").replace('/', "~1");
    format!("/{}", escaped.replace('[', ".").replace(']', "").replace('.', "/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str) -> Kept {
        let mut kept = Kept::new(1);
        kept.receive(text.as_bytes()).expect("short");
        kept.complete(false, Some(0));
        kept
    }

    fn taken(kept: &Kept, from: Origin) -> Option<String> {
        let found = kept.take(&Source::new(&from).expect("right")).ok()?;
        Some(String::from_utf8(found).expect("text"))
    }

    #[test]
    fn values_are_found_in_json_by_a_regex_and_in_headers() {
        let kept = answer(
            "HTTP/1.1 200 OK\r\nX-Token: t1 \r\n\r\n{\"a\": {\"b\": [7, \"x y\"]}, \"n\": null}",
        );
        let json = |path: &str| taken(&kept, Origin::Json(path.into()));
        assert_eq!((json("a.b[1]"), json("/a/b/0")), (Some("x y".into()), Some("7".into())));
        assert_eq!((json("n"), json("a.c")), (None, None));
        assert_eq!(taken(&kept, Origin::Header("x-token".into())), Some("t1".into()));
        assert_eq!(taken(&kept, Origin::Regex(r#""(x) y"#.into())), Some("x".into()));
        assert_eq!(taken(&kept, Origin::Regex("x y".into())), Some("x y".into()));
    }

    #[test]
    fn chunks_and_interim_answers_are_no_part_of_a_body() {
        let kept = answer(
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nTransfer-Encoding: \
             chunked\r\n\r\n3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n",
        );
        let check = |check: Check| kept.check(&Checked::new(&check).expect("right"));
        assert_eq!(kept.status, 201);
        assert_eq!(check(Check::Status(201)), Ok(()));
        assert_eq!(check(Check::Length(13)), Ok(()));
        assert_eq!(check(Check::Regex("^abc0.*9$".into())), Ok(()));
        assert_eq!(check(Check::Status(200)), Err(ProtocolError::CheckStatus));
        assert_eq!(check(Check::Length(12)), Err(ProtocolError::CheckLength));
        assert_eq!(check(Check::Regex("abcd".into())), Err(ProtocolError::CheckRegex));
        let hash = |text: &str| Check::Sha256(Sha256::digest(text).into());
        assert_eq!(check(hash("abc0123456789")), Ok(()));
        assert_eq!(check(hash("abc")), Err(ProtocolError::CheckHash));
    }

    #[test]
    fn cookies_are_kept_replaced_and_forgotten() {
        let mut kept =
            answer("HTTP/1.1 200 OK\r\nSet-Cookie: a=1; Path=/\r\nset-cookie: b = two\r\n\r\n");
        assert_eq!(kept.values[0], b"Cookie: a=1; b=two\r\n");
        kept.receive(b"HTTP/1.1 200 OK\r\nSet-Cookie: b=3\r\nSet-Cookie: a=; Max-Age=0\r\n\r\n")
            .expect("short");
        kept.complete(false, Some(0));
        assert_eq!(kept.values[0], b"Cookie: b=3\r\n");
    }

    #[test]
    fn redirections_are_followed_to_the_same_server_only() {
        let of = |status: u16, to: &str| {
            let kept = answer(&format!("HTTP/1.1 {status} x\r\nLocation: {to}\r\n\r\n"));
            kept.redirection(b"a.test:8080").map(|path| String::from_utf8(path).expect("text"))
        };
        assert_eq!(of(302, "/b?c#d"), Some("/b?c".into()));
        assert_eq!(of(308, "http://A.test:8080/b"), Some("/b".into()));
        assert_eq!(of(301, "http://a.test:8080"), Some("/".into()));
        assert_eq!(of(301, "http://a.test:8080?x"), Some("/?x".into()));
        assert_eq!(of(301, "http://b.test/"), None);
        assert_eq!(of(200, "/b"), None);
        assert_eq!(of(304, "/b"), None);
        let to = |host: &str, to: &str| {
            let kept = answer(&format!("HTTP/1.1 301 x\r\nLocation: {to}\r\n\r\n"));
            kept.redirection(host.as_bytes()).is_some()
        };
        for (host, location, same) in [
            ("http://a.test", "http://a.test:80/", true),
            ("http://a.test:80", "http://a.test/", true),
            ("http://a.test", "https://a.test/", false),
            ("https://a.test", "https://a.test:443/", true),
            ("https://a.test", "http://a.test/", false),
            ("https://a.test", "//a.test/x", true),
            ("https://a.test", "//b.test/x", false),
            ("https://a.test", "/x", true),
            ("https://a.test", "HTTPS://A.test/", true),
            ("https://a.test", "Http://a.test/", false),
        ] {
            assert_eq!(to(host, location), same, "{host} {location}");
        }
    }
}
