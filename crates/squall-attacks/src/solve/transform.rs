//! Inverts the transforms of buffers.

use squall_rules::{Sourced, Transform};

use crate::regex::{Choices, Constraints, Expression, Flags};
use crate::{Octets, Origin};

/// Octets that `transforms` turn into `wanted`. `Err` has the reason if there are none.
pub(super) fn before(transforms: &[Sourced<Transform>], wanted: Octets) -> Result<Octets, String> {
    let mut octets = wanted;
    for transform in transforms.iter().rev() {
        octets = before_one(&transform.is, octets)?;
    }
    Ok(octets)
}

fn before_one(transform: &Transform, wanted: Octets) -> Result<Octets, String> {
    Ok(match transform {
        // Assume that `wanted` is a fixed point of these. The examiner checks it.
        Transform::CompressWhitespace
        | Transform::StripWhitespace
        | Transform::ToLowercase
        | Transform::ToUppercase
        | Transform::HeaderLowercase
        | Transform::StripPseudoHeaders
        | Transform::Domain
        | Transform::Tld => wanted,
        Transform::DotPrefix => match wanted.bytes().first() {
            Some(b'.') => wanted.slice(1..wanted.len()),
            _ => return Err("a text after dotprefix begins with a dot".into()),
        },
        Transform::UrlDecode => {
            let mut encoded = Octets::new();
            for (&octet, &origin) in wanted.bytes().iter().zip(wanted.origins()) {
                if octet.is_ascii_alphanumeric() || b"/.-_~?&=:;,!*()@$".contains(&octet) {
                    encoded.push(octet, origin);
                } else {
                    encoded.extend(format!("%{octet:02X}").as_bytes(), origin);
                }
            }
            encoded
        }
        Transform::Xor(key) if !key.is_empty() => {
            let mut mixed = Octets::new();
            for (at, (&octet, &origin)) in wanted.bytes().iter().zip(wanted.origins()).enumerate() {
                mixed.push(octet ^ key[at % key.len()], origin);
            }
            mixed
        }
        Transform::Xor(_) => wanted,
        Transform::FromBase64 { offset, .. } => {
            let mut text = Octets::of(vec![b'A'; *offset as usize], Origin::Free);
            let origin = wanted.origins().iter().copied().max().unwrap_or(Origin::Free);
            text.extend(&base64(wanted.bytes()), origin);
            text
        }
        Transform::Gunzip => {
            compressed(flate2::write::GzEncoder::new(vec![], flate2::Compression::new(6)), &wanted)?
        }
        Transform::ZlibDeflate => compressed(
            flate2::write::ZlibEncoder::new(vec![], flate2::Compression::new(6)),
            &wanted,
        )?,
        Transform::ToMd5 | Transform::ToSha1 | Transform::ToSha256 => {
            return Err("no text with this digest is known".into());
        }
        Transform::PcreXform(pattern) => around_group(pattern, &wanted)?,
        Transform::Lua(_) => return Err("the effect of a script on a text is unknown".into()),
    })
}

/// A text that matches `pattern` such that the first group captures `wanted`.
fn around_group(pattern: &str, wanted: &Octets) -> Result<Octets, String> {
    let expression =
        Expression::parse(pattern, Flags::default()).map_err(|error| error.to_string())?;
    let required =
        expression.with_group(1, wanted.bytes()).ok_or("the expression has no group to extract")?;
    let sampled = required.sample(&Choices::plain(), &Constraints::default());
    let sampled = sampled.ok_or("the group of the expression does not match these octets")?;
    let Some(Some(taken)) = sampled.captures.get(1).cloned() else {
        return Err("the group of the expression matches nothing".into());
    };
    let mut text =
        Octets::of(sampled.bytes(), wanted.origins().iter().copied().max().unwrap_or(Origin::Free));
    for (at, (&octet, &origin)) in taken.zip(wanted.bytes().iter().zip(wanted.origins())) {
        text.set(at, octet, origin);
    }
    Ok(text)
}

fn compressed<W: Compressor>(mut to: W, wanted: &Octets) -> Result<Octets, String> {
    let origin = wanted.origins().iter().copied().max().unwrap_or(Origin::Free);
    to.write_all(wanted.bytes()).map_err(|error| error.to_string())?;
    Ok(Octets::of(to.done().map_err(|error| error.to_string())?, origin))
}

trait Compressor: std::io::Write {
    fn done(self) -> std::io::Result<Vec<u8>>;
}

impl Compressor for flate2::write::GzEncoder<Vec<u8>> {
    fn done(self) -> std::io::Result<Vec<u8>> {
        self.finish()
    }
}

impl Compressor for flate2::write::ZlibEncoder<Vec<u8>> {
    fn done(self) -> std::io::Result<Vec<u8>> {
        self.finish()
    }
}

/// Base64 with padding (RFC 4648 §4).
pub(crate) fn base64(octets: &[u8]) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = vec![];
    for group in octets.chunks(3) {
        let bits = group.iter().fold(0_u32, |bits, &octet| bits << 8 | u32::from(octet))
            << (8 * (3 - group.len()));
        for sextet in 0..4 {
            text.push(match sextet <= group.len() {
                true => ALPHABET[(bits >> (18 - 6 * sextet) & 63) as usize],
                false => b'=',
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        for (plain, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(plain.as_bytes()), text.as_bytes());
        }
    }

    #[test]
    fn transforms_are_taken_back_from_the_last_to_the_first() {
        let sourced = |is| Sourced { option: 0, is };
        let text = |text: &str| Octets::of(text.as_bytes(), Origin::Option(3));
        let taken = |transforms: Vec<Transform>, wanted: &str| {
            before(&transforms.into_iter().map(sourced).collect::<Vec<_>>(), text(wanted))
                .map(|octets| octets.bytes().to_vec())
        };
        assert_eq!(taken(vec![Transform::DotPrefix], ".example.com").unwrap(), b"example.com");
        assert!(taken(vec![Transform::DotPrefix], "example.com").is_err());
        assert_eq!(
            taken(vec![Transform::Xor(vec![1, 2])], "abc").unwrap(),
            [b'a' ^ 1, b'b' ^ 2, b'c' ^ 1]
        );
        assert_eq!(taken(vec![Transform::UrlDecode], "a b%").unwrap(), b"a%20b%25");
        // The engine decodes the URL first and then base64, so encode in the reverse order.
        let base64 = Transform::FromBase64 {
            octets: None,
            offset: 0,
            mode: squall_rules::Base64Mode::Rfc4648,
        };
        assert_eq!(taken(vec![Transform::UrlDecode, base64], "f").unwrap(), b"Zg==");
        assert_eq!(
            taken(vec![Transform::PcreXform("id=(\\d+);".into())], "42").unwrap(),
            b"id=42;"
        );
        assert!(taken(vec![Transform::PcreXform("id=(\\d+);".into())], "x").is_err());
        assert!(taken(vec![Transform::ToMd5], "abc").is_err());
    }
}
