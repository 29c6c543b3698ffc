//! The static table (RFC 7541 appendix A).

/// The number of entries; the first of the dynamic table has the next index.
pub(super) const STATIC: u32 = 61;

/// Entry `index`, 1 to 61.
pub(super) fn get(index: u32) -> Option<(&'static [u8], &'static [u8])> {
    let (name, value) = ENTRIES.get(usize::try_from(index).ok()?.checked_sub(1)?)?;
    Some((name.as_bytes(), value.as_bytes()))
}

/// The index of the first entry with this name, or 0.
pub(super) fn name(name: &[u8]) -> u8 {
    index(|entry| entry.0.as_bytes() == name)
}

/// The index of the entry with this name and value, or 0.
pub(super) fn exact(name: &[u8], value: &[u8]) -> u8 {
    index(|entry| (entry.0.as_bytes(), entry.1.as_bytes()) == (name, value))
}

fn index(found: impl Fn(&(&str, &str)) -> bool) -> u8 {
    (1..).zip(&ENTRIES).find(|(_, entry)| found(entry)).map_or(0, |(index, _)| index)
}

const ENTRIES: [(&str, &str); STATIC as usize] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];
