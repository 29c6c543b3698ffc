//! Compression of replies for clients that accept it.

use std::io::Write as _;

use axum::http::{HeaderMap, header};
use flate2::{Compression, write::GzEncoder};

/// Whether the client names gzip with a weight above zero (RFC 9110 section 12.5.3). `*` does not
/// count: clients that can decode gzip name it.
pub fn takes_gzip(headers: &HeaderMap) -> bool {
    let codings =
        headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    codings.flat_map(|value| value.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, "q=1"));
        let weight = weight.trim().strip_prefix("q=").and_then(|weight| weight.parse::<f32>().ok());
        name.trim().eq_ignore_ascii_case("gzip") && weight.is_some_and(|weight| weight > 0.0)
    })
}

pub fn gzipped(octets: &[u8], how: Compression) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::with_capacity(octets.len() / 4), how);
    packed.write_all(octets).and_then(|()| packed.finish()).expect("a vector takes all")
}
