//! Writes certificates (RFC 5280). Written by hand, because names here may contain any octets,
//! which libraries reject.

use super::Impossible;
use crate::{Octets, Origin};

/// The contents of a certificate. Its signature is invalid.
#[derive(Clone, Debug, Default)]
pub(super) struct Certificate {
    /// `C=DE, O=Some, CN=name`.
    pub subject: Option<Octets>,
    pub issuer: Option<Octets>,
    /// Octets of the serial number.
    pub serial: Option<Octets>,
    pub names: Vec<Octets>,
    /// Text to put anywhere in the certificate.
    pub comment: Option<Octets>,
}

impl Certificate {
    pub fn octets(&self) -> Result<Octets, Impossible> {
        let default = Octets::from("CN=www.example.com");
        let subject = name(self.subject.as_ref().or(self.issuer.as_ref()).unwrap_or(&default))?;
        let issuer = name(self.issuer.as_ref().or(self.subject.as_ref()).unwrap_or(&default))?;
        let algorithm = sequence([oid(&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2])]);
        let times = sequence([plain(0x17, b"220101000000Z"), plain(0x17, b"321231235959Z")]);
        let curve = sequence([
            oid(&[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1]),
            oid(&[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7]),
        ]);
        let key = sequence([curve, plain(3, &[&[0, 4], &NOISE[..64]].concat())]);
        let mut fields = vec![
            node(0xa0, [plain(2, &[2])]),
            node(
                2,
                [self.serial.clone().unwrap_or_else(|| Octets::from(&[0x51, 0x0a, 0x1c, 0x77]))],
            ),
            algorithm.clone(),
            issuer,
            times,
            subject,
            key,
        ];
        let mut extensions = vec![];
        if !self.names.is_empty() {
            let names = self.names.iter().map(|name| node(0x82, [name.clone()]));
            extensions.push(sequence([oid(&[0x55, 0x1d, 0x11]), node(4, [sequence(names)])]));
        }
        if let Some(comment) = &self.comment {
            // Netscape comment extension.
            let id = oid(&[0x60, 0x86, 0x48, 1, 0x86, 0xf8, 0x42, 1, 0x0d]);
            extensions.push(sequence([id, node(4, [node(0x16, [comment.clone()])])]));
        }
        if !extensions.is_empty() {
            fields.push(node(0xa3, [sequence(extensions)]));
        }
        let signature = sequence([plain(2, &NOISE[..31]), plain(2, &NOISE[32..63])]);
        let mut signed = Octets::from(&[0]);
        signed.append(&signature);
        let all = sequence([sequence(fields), algorithm, node(3, [signed])]);
        match all.len() {
            ..=65_000 => Ok(all),
            long => Err(Impossible(format!(
                "the certificate would have {long} octets, more than 65000"
            ))),
        }
    }
}

/// Octets for points and signatures, which engines do not check. None has its highest bit set, so
/// integers made of them are positive.
const NOISE: [u8; 64] = {
    let mut noise = [0; 64];
    let mut at = 0;
    while at < 64 {
        noise[at] = (at as u8).wrapping_mul(73).wrapping_add(29) & 0x7f | 1;
        at += 1;
    }
    noise
};

/// Short names of attributes, as printed by engines, and the octets of their object identifiers.
const ATTRIBUTES: &[(&str, &[u8])] = &[
    ("CN", &[0x55, 4, 3]),
    ("SN", &[0x55, 4, 4]),
    ("serialNumber", &[0x55, 4, 5]),
    ("C", &[0x55, 4, 6]),
    ("L", &[0x55, 4, 7]),
    ("ST", &[0x55, 4, 8]),
    ("street", &[0x55, 4, 9]),
    ("O", &[0x55, 4, 10]),
    ("OU", &[0x55, 4, 11]),
    ("title", &[0x55, 4, 12]),
    ("description", &[0x55, 4, 13]),
    ("businessCategory", &[0x55, 4, 15]),
    ("postalCode", &[0x55, 4, 17]),
    ("name", &[0x55, 4, 41]),
    ("GN", &[0x55, 4, 42]),
    ("initials", &[0x55, 4, 43]),
    ("jurisdictionC", &[0x2b, 6, 1, 4, 1, 0x82, 0x37, 60, 2, 1, 3]),
    ("emailAddress", &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1]),
    ("UID", &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1]),
    ("DC", &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 0x19]),
];

/// Parses the text of a name. Text without an attribute belongs to the value before it or, at the
/// start, to a common name.
fn name(text: &Octets) -> Result<Octets, Impossible> {
    let bytes = text.bytes();
    let attribute = |at: usize| {
        let rest = &bytes[at..];
        ATTRIBUTES.iter().find(|(name, _)| {
            rest.starts_with(name.as_bytes()) && rest.get(name.len()) == Some(&b'=')
        })
    };
    let mut begins: Vec<(usize, usize, &[u8])> = vec![];
    for at in 0..bytes.len() {
        let separator = match &bytes[..at] {
            [] => 0,
            [.., b',', b' '] => 2,
            _ => continue,
        };
        if let Some((name, oid)) = attribute(at) {
            begins.push((at - separator, at + name.len() + 1, oid));
        }
    }
    if begins.first().is_none_or(|first| first.0 > 0) {
        begins.insert(0, (0, 0, ATTRIBUTES[0].1));
    }
    let mut attributes = vec![];
    for (index, &(_, from, id)) in begins.iter().enumerate() {
        let end = begins.get(index + 1).map_or(bytes.len(), |next| next.0);
        let value = text.slice(from.min(end)..end);
        // UTF8String, except for countries and mail addresses, which have their own string types.
        let tag = match id {
            [0x55, 4, 6] => 0x13,
            [0x2a, 0x86, ..] | [0x09, .., 0x19] => 0x16,
            _ => 0x0c,
        };
        let tag = if tag != 0x0c && !value.bytes().is_ascii() { 0x0c } else { tag };
        if std::str::from_utf8(value.bytes()).is_err() {
            return Err(Impossible(format!(
                "{:?} is not valid text for a name in a certificate",
                String::from_utf8_lossy(value.bytes())
            )));
        }
        attributes.push(node(0x31, [sequence([oid(id), node(tag, [value])])]));
    }
    Ok(sequence(attributes))
}

pub(super) fn sequence(parts: impl IntoIterator<Item = Octets>) -> Octets {
    node(0x30, parts)
}

pub(super) fn oid(octets: &[u8]) -> Octets {
    plain(6, octets)
}

pub(super) fn plain(tag: u8, octets: &[u8]) -> Octets {
    node(tag, [Octets::of(octets, Origin::Framing)])
}

/// An element with tag, length and content.
pub(super) fn node(tag: u8, parts: impl IntoIterator<Item = Octets>) -> Octets {
    let mut inside = Octets::new();
    for part in parts {
        inside.append(&part);
    }
    let mut all = Octets::from(&[tag]);
    let length = inside.len();
    match length {
        ..=0x7f => all.append(&Octets::framing([length as u8])),
        0x80..=0xff => all.append(&Octets::framing([0x81, length as u8])),
        0x100..=0xffff => all.append(&Octets::framing([0x82, (length >> 8) as u8, length as u8])),
        _ => all.append(&Octets::framing([
            0x83,
            (length >> 16) as u8,
            (length >> 8) as u8,
            length as u8,
        ])),
    }
    all.append(&inside);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assemble::contains;

    #[test]
    fn a_name_has_the_attributes_of_its_text() {
        let name = name(&"C=DE, O=Some, Ltd, CN=a".into()).unwrap();
        assert_eq!(
            name.bytes(),
            b"\x30\x2e\x31\x0b\x30\x09\x06\x03\x55\x04\x06\x13\x02DE\x31\x12\x30\x10\x06\x03\x55\x04\x0a\x0c\x09Some, Ltd\x31\x0a\x30\x08\x06\x03\x55\x04\x03\x0c\x01a"
                .iter()
                .enumerate()
                .map(|(at, &octet)| if at == 1 { (name.len() - 2) as u8 } else { octet })
                .collect::<Vec<_>>()
        );
        assert!(contains(
            super::name(&"evil".into()).unwrap().bytes(),
            b"\x06\x03\x55\x04\x03\x0c\x04evil"
        ));
    }

    #[test]
    fn a_certificate_is_one_sequence_with_all_it_was_given() {
        let certificate = Certificate {
            subject: Some("CN=evil".into()),
            serial: Some(Octets::from(&[0, 0xa1])),
            names: vec!["a.example".into()],
            ..Certificate::default()
        };
        let octets = certificate.octets().unwrap();
        let bytes = octets.bytes();
        assert_eq!(bytes[..2], [0x30, 0x82]);
        assert_eq!(usize::from(bytes[2]) << 8 | usize::from(bytes[3]), bytes.len() - 4);
        assert!(contains(bytes, b"\x02\x02\0\xa1") && contains(bytes, b"\x82\x09a.example"));
    }
}
