//! Applies transforms to buffers.

use std::io::Read as _;

use md5::Digest as _;
use squall_rules::{Base64Mode, Transform};

/// Maximum octets of decompressed data.
const MAX_UNPACKED: u64 = 64 * 1024;

/// Applies `transform`. Data that cannot be transformed is returned unchanged.
pub(crate) fn apply(transform: &Transform, octets: &[u8]) -> Vec<u8> {
    match transform {
        Transform::CompressWhitespace => {
            let mut last_was_space = false;
            let keeps = |octet: &u8| {
                let is_first = !(is_space(*octet) && last_was_space);
                last_was_space = is_space(*octet);
                is_first
            };
            octets.iter().copied().filter(keeps).collect()
        }
        Transform::StripWhitespace => {
            octets.iter().copied().filter(|&octet| !is_space(octet)).collect()
        }
        Transform::ToLowercase => octets.to_ascii_lowercase(),
        Transform::ToUppercase => octets.to_ascii_uppercase(),
        Transform::ToMd5 => md5::Md5::digest(octets).to_vec(),
        Transform::ToSha1 => sha1::Sha1::digest(octets).to_vec(),
        Transform::ToSha256 => sha2::Sha256::digest(octets).to_vec(),
        Transform::UrlDecode => url_decoded(octets),
        Transform::Xor(key) if key.is_empty() => octets.to_vec(),
        Transform::Xor(key) => {
            octets.iter().zip(key.iter().cycle()).map(|(octet, key)| octet ^ key).collect()
        }
        Transform::DotPrefix => [b".", octets].concat(),
        Transform::HeaderLowercase => header_names_in_lower_case(octets),
        Transform::StripPseudoHeaders => octets
            .split_inclusive(|&octet| octet == b'\n')
            .filter(|line| !line.starts_with(b":"))
            .flatten()
            .copied()
            .collect(),
        Transform::FromBase64 { octets: count, offset, mode } => {
            let start = (*offset as usize).min(octets.len());
            let end = count.map_or(octets.len(), |count| {
                start.saturating_add(count as usize).min(octets.len())
            });
            match decode_base64(&octets[start..end], *mode) {
                Some(decoded) if !decoded.is_empty() => decoded,
                _ => octets.to_vec(),
            }
        }
        Transform::PcreXform(pattern) => {
            first_group(pattern, octets).unwrap_or_else(|| octets.to_vec())
        }
        Transform::Domain => domain(octets).to_vec(),
        Transform::Tld => suffix(octets).to_vec(),
        Transform::Gunzip => unpacked(&mut flate2::read::MultiGzDecoder::new(octets), octets),
        Transform::ZlibDeflate => unpacked(&mut flate2::read::ZlibDecoder::new(octets), octets),
        Transform::Lua(_) => octets.to_vec(),
    }
}

/// Decodes base64. `None` only for invalid text in [`Base64Mode::Strict`]. The other modes are
/// lenient: [`Base64Mode::Rfc4648`] stops at the first character outside the alphabet,
/// [`Base64Mode::Rfc2045`] skips such characters.
pub(crate) fn decode_base64(text: &[u8], mode: Base64Mode) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count, mut padding) = (0u32, 0, 0);
    for &character in text {
        let value = match character {
            b'A'..=b'Z' => character - b'A',
            b'a'..=b'z' => character - b'a' + 26,
            b'0'..=b'9' => character - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'=' => {
                padding += 1;
                if mode == Base64Mode::Strict {
                    continue;
                }
                break;
            }
            _ if mode == Base64Mode::Rfc2045 => continue,
            _ if mode == Base64Mode::Rfc4648 => break,
            _ => return None,
        };
        if padding > 0 {
            return None;
        }
        bits = bits << 6 | u32::from(value);
        count += 1;
        if count == 4 {
            out.extend_from_slice(&bits.to_be_bytes()[1..]);
            (bits, count) = (0, 0);
        }
    }
    if mode == Base64Mode::Strict && (!text.len().is_multiple_of(4) || padding > 2 || count == 1) {
        return None;
    }
    match count {
        2 => out.push((bits >> 4) as u8),
        3 => out.extend_from_slice(&((bits >> 2) as u16).to_be_bytes()),
        _ => {}
    }
    Some(out)
}

fn is_space(octet: u8) -> bool {
    matches!(octet, b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c)
}

/// Decodes `%XX` and plus signs. Keeps invalid escapes.
fn url_decoded(octets: &[u8]) -> Vec<u8> {
    let digit = |at: usize| octets.get(at).and_then(|&digit| char::from(digit).to_digit(16));
    let mut out = Vec::with_capacity(octets.len());
    let mut at = 0;
    while let Some(&octet) = octets.get(at) {
        at += 1;
        out.push(match octet {
            b'+' => b' ',
            b'%' => match (digit(at), digit(at + 1)) {
                (Some(high), Some(low)) => {
                    at += 2;
                    (high << 4 | low) as u8
                }
                _ => b'%',
            },
            _ => octet,
        });
    }
    out
}

fn header_names_in_lower_case(octets: &[u8]) -> Vec<u8> {
    let mut out = octets.to_vec();
    for line in out.split_inclusive_mut(|&octet| octet == b'\n') {
        let end = line.iter().position(|&octet| octet == b':').unwrap_or(line.len());
        line[..end].make_ascii_lowercase();
    }
    out
}

fn first_group(pattern: &str, octets: &[u8]) -> Option<Vec<u8>> {
    let captures = pcre2::bytes::Regex::new(pattern).ok()?.captures(octets).ok()??;
    Some(captures.get(1)?.as_bytes().to_vec())
}

fn unpacked(reader: &mut dyn std::io::Read, octets: &[u8]) -> Vec<u8> {
    let mut out = vec![];
    // Output from before an error is kept.
    let _ = reader.take(MAX_UNPACKED).read_to_end(&mut out);
    if out.is_empty() { octets.to_vec() } else { out }
}

/// The most common two-label suffixes in the public suffix list.
const SUFFIXES: [&str; 40] = [
    "co.uk", "org.uk", "ac.uk", "gov.uk", "me.uk", "ltd.uk", "plc.uk", "net.uk", "com.au",
    "net.au", "org.au", "edu.au", "gov.au", "co.nz", "org.nz", "net.nz", "co.jp", "or.jp", "ne.jp",
    "ac.jp", "go.jp", "com.br", "net.br", "org.br", "com.cn", "net.cn", "org.cn", "gov.cn",
    "com.tw", "com.hk", "co.kr", "or.kr", "co.in", "co.za", "com.mx", "com.ar", "com.tr", "com.sg",
    "co.il", "com.ru",
];

/// The public suffix of a name: its last label, or its last two if they are a known suffix.
fn suffix(name: &[u8]) -> &[u8] {
    let dots: Vec<usize> = memchr::memrchr_iter(b'.', name).take(2).collect();
    if let [_, rest @ ..] = &dots[..] {
        let start = rest.first().map_or(0, |dot| dot + 1);
        let two = &name[start..];
        if SUFFIXES.iter().any(|suffix| suffix.as_bytes().eq_ignore_ascii_case(two)) {
            return two;
        }
    }
    dots.first().map_or(name, |dot| &name[dot + 1..])
}

/// The public suffix and the label before it.
fn domain(name: &[u8]) -> &[u8] {
    let before = name.len().saturating_sub(suffix(name).len() + 1);
    let start = memchr::memrchr(b'.', &name[..before]).map_or(0, |dot| dot + 1);
    &name[start..]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_transform_gives_its_documented_result() {
        for (transform, before, after) in [
            (Transform::CompressWhitespace, &b" a \t b\r\n\r\nc "[..], &b" a b\rc "[..]),
            (Transform::StripWhitespace, b" a \t b\r\n", b"ab"),
            (Transform::ToLowercase, b"AbC", b"abc"),
            (Transform::ToUppercase, b"AbC", b"ABC"),
            (Transform::UrlDecode, b"a%20b+c%zz%4", b"a b c%zz%4"),
            (Transform::Xor(vec![1, 2]), b"\x01\x02\x03", b"\x00\x00\x02"),
            (Transform::DotPrefix, b"a.b", b".a.b"),
            (Transform::HeaderLowercase, b"Host: A\r\nX-Y: Z\r\n", b"host: A\r\nx-y: Z\r\n"),
            (Transform::StripPseudoHeaders, b":method: GET\r\nhost: a\r\n", b"host: a\r\n"),
            (Transform::PcreXform("a(.)c".into()), b"xabcx", b"b"),
            (Transform::PcreXform("q(.)".into()), b"xabcx", b"xabcx"),
            (Transform::Domain, b"www.example.co.uk", b"example.co.uk"),
            (Transform::Domain, b"a.b.example.com", b"example.com"),
            (Transform::Tld, b"www.example.co.uk", b"co.uk"),
            (Transform::Tld, b"localhost", b"localhost"),
        ] {
            assert_eq!(apply(&transform, before), after, "{transform:?}");
        }
    }

    #[test]
    fn digests_are_octets_not_text() {
        let hexadecimal = |octets: Vec<u8>| squall_wire::to_hex(&octets);
        // Test vectors of RFC 1321 A.5 and FIPS 180-2 appendices A and B.
        assert_eq!(
            hexadecimal(apply(&Transform::ToMd5, b"abc")),
            "900150983cd24fb0d6963f7d28e17f72"
        );
        assert_eq!(
            hexadecimal(apply(&Transform::ToSha1, b"abc")),
            "a9993e364706816aba3e25717850c26c9cd0d89d"
        );
        assert!(
            hexadecimal(apply(&Transform::ToSha256, b"abc"))
                .starts_with("ba7816bf8f01cfea414140de5dae2223")
        );
    }

    #[test]
    fn base64_is_decoded_in_each_mode() {
        let decode = |text: &[u8], mode| decode_base64(text, mode);
        assert_eq!(decode(b"Zm9v\r\nYmFy", Base64Mode::Rfc2045).as_deref(), Some(&b"foobar"[..]));
        assert_eq!(decode(b"Zm9v\r\nYmFy", Base64Mode::Rfc4648).as_deref(), Some(&b"foo"[..]));
        assert_eq!(decode(b"Zm9v\r\nYmFy", Base64Mode::Strict), None);
        assert_eq!(decode(b"Zm9vYg==", Base64Mode::Strict).as_deref(), Some(&b"foob"[..]));
        assert_eq!(decode(b"Zm9vYmE", Base64Mode::Rfc4648).as_deref(), Some(&b"fooba"[..]));
    }

    #[test]
    fn gzip_is_unpacked_up_to_a_limit() {
        use std::io::Write as _;
        let mut gzip = flate2::write::GzEncoder::new(vec![], flate2::Compression::default());
        gzip.write_all(&vec![b'x'; 200_000]).unwrap();
        assert_eq!(apply(&Transform::Gunzip, &gzip.finish().unwrap()).len(), MAX_UNPACKED as usize);
    }

    proptest! {
        #[test]
        fn any_octets_are_transformed(octets in proptest::collection::vec(any::<u8>(), 0..100), offset in any::<u32>(), count in any::<u32>()) {
            for transform in [
                Transform::CompressWhitespace, Transform::UrlDecode, Transform::HeaderLowercase, Transform::StripPseudoHeaders,
                Transform::Domain, Transform::Tld, Transform::Gunzip, Transform::ZlibDeflate, Transform::Xor(vec![]),
                Transform::FromBase64 { octets: Some(count), offset, mode: Base64Mode::Rfc2045 },
                Transform::FromBase64 { octets: None, offset: 0, mode: Base64Mode::Strict },
            ] {
                apply(&transform, &octets);
            }
        }
    }
}
