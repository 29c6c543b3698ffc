//! The reader of ClientHello messages, as in a capture.

use super::{
    Body, Extension, GREASE, Hello, HelloError, is_grease, kind,
    octets::{Octets, numbers},
};

/// Maximum of a message, and of a record's content (RFC 8446 section 5.1): a hello that is written
/// again, with a name, a ticket and a cookie, is below 2^16 octets.
const MAX_LEN: usize = 1 << 14;
/// The payloads of BoringSSL's ECH grease: 128 to 224 octets by 32, and 16 of the AEAD.
const ECH_PAYLOADS: [u16; 4] = [144, 176, 208, 240];
/// The order in which BoringSSL sends extensions that it does not shuffle (`kExtensions` in its
/// extensions.cc).
const BORINGSSL: [u16; 19] =
    [0, 0xfe0d, 23, 0xff01, 10, 11, 35, 16, 5, 13, 13172, 18, 51, 45, 42, 43, 27, 17513, 17613];

impl Hello {
    /// Reads a ClientHello: the message, or the records that contain it. Octets after it are
    /// ignored. Hellos with GREASE in an order that is not BoringSSL's own are taken as shuffled.
    ///
    /// # Errors
    /// Octets that are not a ClientHello, of more than 16,384 octets, or without TLS 1.2 and 1.3.
    pub fn from_client_hello(octets: &[u8]) -> Result<Self, HelloError> {
        match octets.first() {
            Some(22) => {
                let mut message = vec![];
                let mut rest = Octets(octets);
                let mut record_version = None;
                while !is_whole(&message) {
                    let (content, version) =
                        record(&mut rest).ok_or(HelloError::Malformed("its record is cut"))?;
                    record_version.get_or_insert(version);
                    message.extend_from_slice(content);
                    if message.len() > MAX_LEN {
                        return Err(HelloError::Malformed("it has more than 16,384 octets"));
                    }
                }
                let mut hello = message_of(&message)?;
                hello.record_version = record_version.unwrap_or(0x0301);
                Ok(hello)
            }
            _ => message_of(octets),
        }
    }
}

fn record<'a>(rest: &mut Octets<'a>) -> Option<(&'a [u8], u16)> {
    if rest.u8()? != 22 {
        return None;
    }
    let version = rest.u16()?;
    let content = rest.counted16()?;
    (version >> 8 == 3 && !content.is_empty()).then_some((content, version))
}

fn is_whole(message: &[u8]) -> bool {
    let mut rest = Octets(message);
    rest.u8().and_then(|_| rest.u24()).and_then(|n| rest.take(n)).is_some()
}

fn message_of(octets: &[u8]) -> Result<Hello, HelloError> {
    let wrong = HelloError::Malformed;
    let mut rest = Octets(octets);
    if rest.u8() != Some(1) {
        return Err(wrong("it begins with another octet than 1 or 22"));
    }
    let len = rest.u24().ok_or(wrong("it is cut"))?;
    if len > MAX_LEN {
        return Err(wrong("it has more than 16,384 octets"));
    }
    let mut rest = Octets(rest.take(len).ok_or(wrong("it is cut"))?);
    let version = rest.u16().ok_or(wrong("version"))?;
    if version >> 8 != 3 {
        return Err(wrong("version"));
    }
    rest.take(32).ok_or(wrong("random"))?;
    let session_id = rest.counted8().ok_or(wrong("session ID"))?;
    let session_id = u8::try_from(session_id.len()).ok().filter(|n| *n <= 32);
    let suites = rest.counted16().filter(|suites| !suites.is_empty() && suites.len() % 2 == 0);
    let suites = suites.ok_or(wrong("cipher suites"))?;
    let compressions = rest.counted8().filter(|list| !list.is_empty());
    let mut extensions = match rest.0 {
        [] => vec![],
        _ => {
            let list = rest.all(Octets::counted16).ok_or(wrong("the list of extensions"))?;
            extensions(list, 4 + len)?
        }
    };
    // Only BoringSSL, which has GREASE, draws the length. That of NSS is fixed.
    if !extensions.iter().any(|one| is_grease(one.kind)) {
        for one in &mut extensions {
            if let Body::EchGrease { varies, .. } = &mut one.body {
                *varies = false;
            }
        }
    }
    let mut hello = Hello {
        record_version: 0x0301,
        version,
        session_id: session_id.ok_or(wrong("session ID"))?,
        suites: marked(suites),
        compressions: compressions.ok_or(wrong("compression methods"))?.into(),
        shuffle: is_shuffled(&extensions),
        extensions: extensions.into(),
    };
    hello.add_padding();
    hello.with_known_version()
}

impl Hello {
    /// The hello, if a client can speak one of its versions.
    pub(super) fn with_known_version(self) -> Result<Self, HelloError> {
        let has_one = self.offers_version(0x0304) || self.offers_version(0x0303);
        if has_one { Ok(self) } else { Err(HelloError::Old) }
    }

    /// BoringSSL pads any hello of 256 to 511 octets. Its length varies with the name, and with
    /// the payload of ECH grease, so that of Chrome 120 is padded one time in four.
    fn add_padding(&mut self) {
        let has_grease = self.extensions.iter().any(|one| is_grease(one.kind));
        if has_grease && self.body(kind::PADDING).is_none() {
            let mut all = std::mem::take(&mut self.extensions).into_vec();
            all.push(Extension { kind: kind::PADDING, body: Body::Padding { read: false } });
            self.extensions = all.into();
        }
    }
}

/// `message_len` includes the header of the message.
fn extensions(list: &[u8], message_len: usize) -> Result<Vec<Extension>, HelloError> {
    let mut rest = Octets(list);
    let mut all: Vec<Extension> = vec![];
    while !rest.0.is_empty() {
        let (kind, content) = rest
            .u16()
            .zip(rest.counted16())
            .ok_or(HelloError::Malformed("an extension is longer than their list"))?;
        let is_known = |one: &Extension| one.kind == kind && !is_grease(kind);
        if is_grease(kind) && all.iter().filter(|one| is_grease(one.kind)).count() == 2 {
            return Err(HelloError::Malformed("it has more than two extensions of GREASE"));
        }
        if all.iter().any(is_known) {
            return Err(HelloError::Malformed("it has an extension twice"));
        }
        if !kind::OF_ONE_SESSION.contains(&kind) {
            let body = body(kind, content, message_len).ok_or(HelloError::Malformed(name(kind)))?;
            let kind = if is_grease(kind) { GREASE } else { kind };
            all.push(Extension { kind, body });
        }
    }
    Ok(all)
}

fn body(kind: u16, content: &[u8], message_len: usize) -> Option<Body> {
    let rest = Octets(content);
    let even = |list: &&[u8]| !list.is_empty() && list.len().is_multiple_of(2);
    Some(match kind {
        kind::SERVER_NAME => Body::ServerName,
        kind::GROUPS => Body::Groups(marked(rest.all(Octets::counted16).filter(even)?)),
        kind::VERSIONS => Body::Versions(marked(rest.all(Octets::counted8).filter(even)?)),
        kind::KEY_SHARE => {
            let mut shares = Octets(rest.all(Octets::counted16)?);
            let mut all = vec![];
            while !shares.0.is_empty() {
                let group =
                    shares.u16().map(|group| if is_grease(group) { GREASE } else { group })?;
                let key = u16::try_from(shares.counted16()?.len()).ok()?;
                // RFC 8446 section 4.2.8: one key for each group.
                if all.iter().any(|(one, _)| *one == group) {
                    return None;
                }
                all.push((group, key));
            }
            Body::Shares(all.into())
        }
        kind::PADDING if message_len == 512 => Body::Padding { read: true },
        // The ticket of another session.
        kind::TICKET => Body::Octets(Box::default()),
        kind::ECH => ech(rest).unwrap_or_else(|| Body::Octets(content.into())),
        kind::SIGNATURES => {
            rest.all(Octets::counted16).filter(even)?;
            Body::Octets(content.into())
        }
        kind::POINT_FORMATS => {
            rest.all(Octets::counted8)?;
            Body::Octets(content.into())
        }
        kind::ALPN => {
            let mut names = Octets(rest.all(Octets::counted16)?);
            while !names.0.is_empty() {
                names.counted8().filter(|name| !name.is_empty())?;
            }
            Body::Octets(content.into())
        }
        _ => Body::Octets(content.into()),
    })
}

/// The outer form (RFC 9849 section 5). A real one becomes grease.
fn ech(rest: Octets<'_>) -> Option<Body> {
    rest.all(|rest| {
        let is_outer = rest.u8()? == 0;
        let (kdf, aead) = (rest.u16()?, rest.u16()?);
        rest.u8()?;
        let enc = u16::try_from(rest.counted16()?.len()).ok()?;
        let payload = u16::try_from(rest.counted16()?.len()).ok()?;
        let varies = ECH_PAYLOADS.contains(&payload);
        is_outer.then_some(Body::EchGrease { kdf, aead, enc, payload, varies })
    })
}

fn marked(octets: &[u8]) -> Box<[u16]> {
    numbers(octets).map(|value| if is_grease(value) { GREASE } else { value }).collect()
}

/// Chrome's hellos begin and end with GREASE, and have the order of BoringSSL before version 110.
/// Hellos of Safari still have it.
fn is_shuffled(extensions: &[Extension]) -> bool {
    let kinds: Vec<u16> =
        extensions.iter().filter(|one| !one.is_fixed()).map(|one| one.kind).collect();
    let begins = extensions.first().is_some_and(|one| is_grease(one.kind));
    let places = kinds.iter().filter_map(|kind| BORINGSSL.iter().position(|one| one == kind));
    begins && !places.is_sorted()
}

/// For errors.
fn name(kind: u16) -> &'static str {
    match kind {
        kind::GROUPS => "supported_groups",
        kind::POINT_FORMATS => "ec_point_formats",
        kind::SIGNATURES => "signature_algorithms",
        kind::ALPN => "application_layer_protocol_negotiation",
        kind::VERSIONS => "supported_versions",
        kind::KEY_SHARE => "key_share",
        _ => "an extension",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Browser;

    fn counted(octets: &[u8]) -> Vec<u8> {
        let n = u16::try_from(octets.len()).unwrap();
        [&n.to_be_bytes()[..], octets].concat()
    }

    /// A message with these extensions, whose suites begin with GREASE.
    fn message(extensions: &[(u16, &[u8])]) -> Vec<u8> {
        let list = extensions
            .iter()
            .flat_map(|(kind, content)| [&kind.to_be_bytes()[..], &counted(content)].concat());
        let list: Vec<u8> = list.collect();
        let suites = counted(&[0x1a, 0x1a, 0x13, 0x01]);
        let body = [&[3, 3][..], &[7; 32], &[0], &suites, &[1, 0], &counted(&list)].concat();
        let n = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&[1][..], &n[1..], &body].concat()
    }

    const VERSIONS: (u16, &[u8]) = (43, &[2, 3, 4]);

    #[test]
    fn a_message_is_read_alone_and_from_records() {
        let octets = message(&[
            (0, &[0; 9]),
            (35, b"ticket"),
            (42, &[]),
            (0x5a5a, &[]),
            VERSIONS,
            (41, b"key"),
        ]);
        let hello = Hello::from_client_hello(&octets).unwrap();
        assert_eq!(*hello.suites, [GREASE, 0x1301]);
        let kinds: Vec<u16> = hello.extensions.iter().map(|one| one.kind).collect();
        // Early data and tickets are another session's, and clients with GREASE pad.
        assert_eq!(kinds, [0, 35, GREASE, 43, 21]);
        assert_eq!(hello.extensions[1].body, Body::Octets([].into()));
        let record = |octets: &[u8]| [&[22, 3, 1][..], &counted(octets)].concat();
        let (one, other) = octets.split_at(40);
        let split = [record(one), record(other), b"more".to_vec()].concat();
        assert_eq!(Hello::from_client_hello(&split), Ok(hello));
        let cut = &split[..split.len() - 5];
        assert_eq!(Hello::from_client_hello(cut), Err(HelloError::Malformed("its record is cut")));
    }

    #[test]
    fn other_octets_are_an_error() {
        let error = |extensions: &[(u16, &[u8])]| {
            Hello::from_client_hello(&message(extensions)).unwrap_err().to_string()
        };
        assert!(error(&[VERSIONS, VERSIONS]).contains("twice"));
        assert!(error(&[(10, &[0, 3, 0, 29, 0]), VERSIONS]).contains("supported_groups"));
        assert!(error(&[(51, &[0, 5, 0, 29, 0, 2, 0]), VERSIONS]).contains("key_share"));
        let twice = [0, 10, 0, 29, 0, 1, 7, 0, 29, 0, 1, 7];
        assert!(error(&[(51, &twice), VERSIONS]).contains("key_share"));
        assert!(error(&[(43, &[2, 3, 2])]).contains("neither TLS 1.3 nor 1.2"));
        let mut octets = message(&[VERSIONS]);
        octets[0] = 2;
        assert!(Hello::from_client_hello(&octets).is_err());
        assert!(Hello::from_client_hello(&[]).is_err());
        let hello = Browser::all().next().unwrap().hello();
        assert!(hello.offers_version(0x0304) && !hello.offers_version(0x0301));
    }

    #[test]
    fn only_hellos_with_grease_draw_the_length_of_ech_grease() {
        let content = [&[0, 0, 1, 0, 1, 7, 0, 32][..], &[7; 32], &[0, 240], &[7; 240]].concat();
        let varies = |more: &[(u16, &[u8])]| {
            let all = [&[(0xfe0d, &content[..]), VERSIONS][..], more].concat();
            let hello = Hello::from_client_hello(&message(&all)).unwrap();
            matches!(hello.extensions[0].body, Body::EchGrease { varies: true, .. })
        };
        assert!(!varies(&[]) && varies(&[(0x1a1a, &[])]));
    }
}
