//! TLS: hellos, certificates, and records of random octets (RFC 5246, RFC 8446).

use squall_rules::{ApplicationTest, Buffer, End};

use super::der::Certificate;
use super::{Impossible, Parts, merged};
use crate::{Octets, Turn};

// ProtocolVersion (RFC 5246, RFC 8446 §4.2.1).
const TLS_1_2: u16 = 0x0303;
const TLS_1_3: u16 = 0x0304;

/// A handshake, and a data record in each direction.
pub(super) fn conversation(parts: &Parts) -> Result<Vec<Turn>, Impossible> {
    for part in &parts.buffers {
        if matches!(
            part.0,
            Buffer::TlsFingerprint | Buffer::Ja3Hash | Buffer::Ja3sHash | Buffer::Ja4Hash
        ) {
            return Err(Impossible(format!(
                "{} is a hash, and no input with this hash is known",
                part.0.name()
            )));
        }
    }
    let version = version(parts)?;
    // The hello's own version field is at most 1.2 (RFC 8446 §4.1.2).
    let legacy = version.min(TLS_1_2);
    let mut turns = vec![Turn::new(End::Client, client_hello(parts, version)?)];
    if parts.style.unanswered && !parts.sends(End::Server) {
        return Ok(turns);
    }
    let mut server = server_hello(parts, version)?;
    if version == TLS_1_3 {
        if parts.buffers.iter().any(|part| is_of_certificate(part.0)) {
            return Err(Impossible("certificates are encrypted in TLS 1.3".into()));
        }
        server.append(&record(20, legacy, &Octets::from(&[1])));
        server.append(&sealed(23, legacy, 1_200));
        turns.push(Turn::new(End::Server, server));
        let mut client = record(20, legacy, &Octets::from(&[1]));
        client.append(&sealed(23, legacy, 53));
        turns.push(Turn::new(End::Client, client));
    } else {
        server.append(&record(22, legacy, &handshake(11, &certificates(parts)?)));
        server.append(&record(22, legacy, &handshake(12, &server_key(legacy))));
        server.append(&record(22, legacy, &handshake(14, &Octets::new())));
        turns.push(Turn::new(End::Server, server));
        let mut client = record(22, legacy, &handshake(16, &counted8(&point(7))));
        client.append(&record(20, legacy, &Octets::from(&[1])));
        client.append(&sealed(22, legacy, 40));
        turns.push(Turn::new(End::Client, client));
        let mut server = record(20, legacy, &Octets::from(&[1]));
        server.append(&sealed(22, legacy, 40));
        turns.push(Turn::new(End::Server, server));
    }
    turns.push(Turn::new(End::Client, sealed(23, legacy, 120)));
    turns.push(Turn::new(End::Server, sealed(23, legacy, 300)));
    Ok(turns)
}

fn is_of_certificate(buffer: Buffer) -> bool {
    use Buffer::*;
    matches!(buffer, TlsSubject | TlsIssuer | TlsSerial | TlsSubjectAltName | TlsCertificates)
}

fn version(parts: &Parts) -> Result<u16, Impossible> {
    let usual = [TLS_1_2, 0x0302, 0x0301, TLS_1_3, 0x0300];
    let mut required: Option<u16> = None;
    for test in &parts.tests {
        let ApplicationTest::TlsVersion { any_of, negated } = test else { continue };
        let fits = usual.iter().copied().find(|version| any_of.contains(version) != *negated);
        required = Some(
            fits.or(any_of.first().copied().filter(|_| !negated))
                .ok_or_else(|| Impossible("no TLS version is allowed".into()))?,
        );
    }
    let text = parts.buffers.iter().find(|part| part.0 == Buffer::TlsVersionText);
    if let Some((.., text)) = text {
        let named = match text.bytes() {
            b"SSLv3" | b"SSL 3.0" => 0x0300,
            b"1.0" | b"TLSv1" | b"TLS 1.0" | b"TLSv1.0" => 0x0301,
            b"1.1" | b"TLSv1.1" | b"TLS 1.1" => 0x0302,
            b"1.2" | b"TLSv1.2" | b"TLS 1.2" => TLS_1_2,
            b"1.3" | b"TLSv1.3" | b"TLS 1.3" => TLS_1_3,
            other => {
                return Err(Impossible(format!(
                    "{:?} is not a TLS version",
                    String::from_utf8_lossy(other)
                )));
            }
        };
        required = Some(named);
    }
    match required {
        Some(2) => Err(Impossible("SSL 2 is not supported".into())),
        Some(version) => Ok(version),
        None => Ok(TLS_1_2),
    }
}

/// Parses a JA3 string: `771,49195-49199,0-23,29-23,0`.
fn ja3(text: &Octets, fields: usize) -> Result<Vec<Vec<u16>>, Impossible> {
    let impossible =
        || Impossible(format!("{:?} is not a JA3 text", String::from_utf8_lossy(text.bytes())));
    let text = std::str::from_utf8(text.bytes()).map_err(|_| impossible())?;
    let lists = text.split(',').map(|list| match list {
        "" => Ok(vec![]),
        list => list.split('-').map(|number| number.parse().map_err(|_| impossible())).collect(),
    });
    let lists: Vec<Vec<u16>> = lists.collect::<Result<_, _>>()?;
    if lists.len() != fields || lists[0].len() != 1 {
        return Err(impossible());
    }
    Ok(lists)
}

fn client_hello(parts: &Parts, version: u16) -> Result<Octets, Impossible> {
    let from = End::Client;
    let mut legacy = version.min(TLS_1_2);
    let sni = parts.get(Buffer::TlsSni, from);
    let no_sni =
        parts.without.iter().any(|without| without.0 == Buffer::TlsSni && without.2.is_empty());
    let alpn: Vec<_> = parts.all(Buffer::TlsAlpn, from).cloned().collect();
    let mut ciphers: Vec<u16> =
        vec![0xc02b, 0xc02f, 0xc02c, 0xc030, 0xc009, 0xc013, 0x009c, 0x002f, 0x0035];
    let mut kinds: Vec<u16> = vec![0, 23, 65281, 10, 11, 35, 16, 13];
    let mut groups: Vec<u16> = vec![29, 23, 24];
    let mut formats: Vec<u16> = vec![0];
    if version == TLS_1_3 {
        ciphers.splice(0..0, [0x1301, 0x1302, 0x1303]);
        kinds.extend([43, 45, 51]);
    }
    if version == 0x0300 && sni.is_none() && alpn.is_empty() {
        kinds.clear();
    }
    kinds.retain(|&kind| kind != 0 || !no_sni || sni.is_some());
    kinds.retain(|&kind| kind != 16 || !alpn.is_empty());
    let ja3_text = parts.get(Buffer::Ja3String, from);
    if let Some(text) = ja3_text {
        let mut lists = ja3(text, 5)?.into_iter();
        legacy = lists.next().map_or(legacy, |list| list[0]);
        ciphers = lists.next().unwrap_or_default();
        kinds = lists.next().unwrap_or_default();
        groups = lists.next().unwrap_or_default();
        formats = lists.next().unwrap_or_default();
        if sni.is_some() && !kinds.contains(&0) || !alpn.is_empty() && !kinds.contains(&16) {
            return Err(Impossible(
                "the JA3 text has no extension for the required server name or protocol".into(),
            ));
        }
    }
    let origin =
        ja3_text.map(|text| text.origins().first().copied().unwrap_or(crate::Origin::Framing));
    let marked = |numbers: &[u16]| {
        let octets: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
        Octets::of(octets, origin.unwrap_or(crate::Origin::Framing))
    };
    let mut hello = marked(&[legacy]);
    hello.append(&random(parts, from)?);
    hello.append(&counted8(&noise(32, 3)));
    hello.append(&counted16(&marked(&ciphers)));
    hello.append(&Octets::from(&[1, 0]));
    let mut extensions = Octets::new();
    for &kind in &kinds {
        let inside = match kind {
            0 => {
                let default = Octets::from("www.example.com");
                let name = sni.unwrap_or(&default);
                let mut entry = Octets::from(&[0]);
                entry.append(&counted16(name));
                counted16(&entry)
            }
            5 => Octets::from(&[1, 0, 0, 0, 0]),
            10 => counted16(&marked(&groups)),
            11 => counted8(&Octets::of(
                formats.iter().map(|&format| format as u8).collect::<Vec<_>>(),
                origin.unwrap_or(crate::Origin::Framing),
            )),
            13 => counted16(&Octets::from(&[4, 3, 5, 3, 6, 3, 8, 4, 8, 5, 4, 1, 5, 1, 6, 1, 2, 1])),
            16 => protocols(&alpn)?,
            43 => counted8(&Octets::from(&[3, 4, 3, 3])),
            45 => Octets::from(&[1, 1]),
            51 => {
                let mut share = Octets::from(&[0, 29]);
                share.append(&counted16(&noise(32, 11)));
                counted16(&share)
            }
            // The contents of a session ticket are opaque.
            35 => merged(
                parts.all(Buffer::Payload, from).chain(parts.all(Buffer::RawPayload, from)),
                b"",
            ),
            65281 => Octets::from(&[0]),
            _ => Octets::new(),
        };
        extensions.append(&marked(&[kind]));
        extensions.append(&counted16(&inside));
    }
    if !kinds.is_empty() {
        hello.append(&counted16(&extensions));
    }
    short(&hello)?;
    Ok(record(22, legacy.min(0x0301), &handshake(1, &hello)))
}

fn server_hello(parts: &Parts, version: u16) -> Result<Octets, Impossible> {
    let from = End::Server;
    let mut legacy = version.min(TLS_1_2);
    let alpn: Vec<_> = parts.all(Buffer::TlsAlpn, from).cloned().collect();
    let mut cipher: u16 = match version {
        TLS_1_3 => 0x1301,
        TLS_1_2 => 0xc02b,
        _ => 0xc009,
    };
    let mut kinds: Vec<u16> = if version == TLS_1_3 { vec![43, 51] } else { vec![65281, 11] };
    if version == 0x0300 {
        kinds.clear();
    }
    if !alpn.is_empty() {
        kinds.push(16);
    }
    if let Some(text) = parts.get(Buffer::Ja3sString, from) {
        let mut lists = ja3(text, 3)?;
        legacy = lists[0][0];
        cipher =
            *lists[1].first().ok_or_else(|| Impossible("a ServerHello needs a cipher".into()))?;
        kinds = lists.swap_remove(2);
    }
    let mut hello = Octets::framing(legacy.to_be_bytes());
    hello.append(&random(parts, from)?);
    hello.append(&counted8(&noise(32, if version == TLS_1_3 { 3 } else { 5 })));
    hello.append(&Octets::framing(cipher.to_be_bytes()));
    hello.append(&Octets::from(&[0]));
    let mut extensions = Octets::new();
    for &kind in &kinds {
        let inside = match kind {
            11 => Octets::from(&[1, 0]),
            16 => protocols(&alpn)?,
            43 => Octets::from(&[3, 4]),
            51 => {
                let mut share = Octets::from(&[0, 29]);
                share.append(&counted16(&noise(32, 13)));
                share
            }
            65281 => Octets::from(&[0]),
            _ => Octets::new(),
        };
        extensions.append(&Octets::framing(kind.to_be_bytes()));
        extensions.append(&counted16(&inside));
    }
    if !kinds.is_empty() {
        hello.append(&counted16(&extensions));
    }
    short(&hello)?;
    Ok(record(22, legacy, &handshake(2, &hello)))
}

fn protocols(names: &[Octets]) -> Result<Octets, Impossible> {
    let mut list = Octets::new();
    let default = ["h2".into(), "http/1.1".into()];
    for name in if names.is_empty() { &default[..] } else { names } {
        if name.is_empty() || name.len() > 255 {
            return Err(Impossible("a protocol name has 1 to 255 octets".into()));
        }
        list.append(&counted8(name));
    }
    Ok(counted16(&list))
}

/// The random field of a hello: 32 octets. The first four are the time in older versions.
fn random(parts: &Parts, from: End) -> Result<Octets, Impossible> {
    let mut random = noise(32, if from == End::Client { 1 } else { 2 });
    for (buffer, range) in
        [(Buffer::TlsRandom, 0..32), (Buffer::TlsRandomTime, 0..4), (Buffer::TlsRandomBytes, 4..32)]
    {
        let Some(part) = parts.get(buffer, from) else { continue };
        if part.len() > range.len() {
            return Err(Impossible(format!("{} has {} octets", buffer.name(), range.len())));
        }
        for (at, (&octet, &origin)) in range.zip(part.bytes().iter().zip(part.origins())) {
            random.set(at, octet, origin);
        }
    }
    Ok(random)
}

/// The certificate chain: one certificate, unless more are required.
fn certificates(parts: &Parts) -> Result<Octets, Impossible> {
    let from = End::Server;
    let mut chain = Octets::new();
    let mut count = 1;
    for test in &parts.tests {
        if let ApplicationTest::TlsCertCount(counts) = test {
            let least = counts.at_least(1).or(counts.first()).filter(|&least| least <= 100);
            count = least.ok_or_else(|| {
                Impossible("chains of more than 100 certificates are not supported".into())
            })?;
        }
    }
    let mut certificate = Certificate {
        subject: parts.get(Buffer::TlsSubject, from).cloned(),
        issuer: parts.get(Buffer::TlsIssuer, from).cloned(),
        serial: parts.get(Buffer::TlsSerial, from).map(serial).transpose()?,
        names: parts.all(Buffer::TlsSubjectAltName, from).cloned().collect(),
        comment: None,
    };
    let raw: Vec<_> = parts.all(Buffer::TlsCertificates, from).cloned().collect();
    let payloads = parts.all(Buffer::Payload, from).chain(parts.all(Buffer::RawPayload, from));
    let comments =
        merged(raw.iter().filter(|raw| !is_certificate(raw.bytes())).chain(payloads), b"");
    let whole = raw.into_iter().find(|raw| is_certificate(raw.bytes()));
    certificate.comment = Some(comments).filter(|comments| !comments.is_empty());
    let first = match whole {
        Some(whole) => whole,
        None => certificate.octets()?,
    };
    for at in 0..count {
        chain.append(&counted24(&if at == 0 {
            first.clone()
        } else {
            Certificate::default().octets()?
        }));
    }
    Ok(counted24(&chain))
}

/// Whether the octets are a single SEQUENCE with a matching length.
fn is_certificate(octets: &[u8]) -> bool {
    matches!(octets, [0x30, 0x82, high, low, inside @ ..] if usize::from(*high) << 8 | usize::from(*low) == inside.len())
}

/// Parses `0A:1B`.
fn serial(text: &Octets) -> Result<Octets, Impossible> {
    let impossible = || {
        Impossible(format!(
            "{:?} is not a serial number such as 0A:1B",
            String::from_utf8_lossy(text.bytes())
        ))
    };
    let mut octets = Octets::new();
    let mut at = 0;
    for pair in text.bytes().split(|&octet| octet == b':') {
        let digits = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2);
        let octet =
            digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).ok_or_else(impossible)?;
        octets.push(octet, text.origins()[at]);
        at += 3;
    }
    Ok(octets)
}

/// ServerKeyExchange with an invalid signature.
fn server_key(version: u16) -> Octets {
    let mut key = Octets::from(&[3, 0, 23]);
    key.append(&counted8(&point(9)));
    if version >= TLS_1_2 {
        key.append(&Octets::from(&[4, 3]));
    }
    let integer = |seed| super::der::node(2, [positive(32, seed)]);
    key.append(&counted16(&super::der::node(0x30, [integer(21), integer(22)])));
    key
}

/// An uncompressed point, which may not be on the curve.
fn point(seed: u8) -> Octets {
    let mut point = Octets::from(&[4]);
    point.append(&noise(64, seed));
    point
}

fn positive(octets: usize, seed: u8) -> Octets {
    let mut number = noise(octets, seed);
    number.set(0, number.bytes()[0] & 0x7f | 1, crate::Origin::Framing);
    number
}

/// A record whose octets resemble encrypted data.
fn sealed(kind: u8, version: u16, octets: usize) -> Octets {
    record(kind, version, &noise(octets, octets as u8))
}

/// Pseudorandom octets determined by the seed.
fn noise(octets: usize, seed: u8) -> Octets {
    let mut state = u32::from(seed).wrapping_mul(0x9e37_79b9) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 11) as u8
    };
    Octets::framing(std::iter::repeat_with(next).take(octets).collect::<Vec<_>>())
}

fn short(hello: &Octets) -> Result<(), Impossible> {
    match hello.len() {
        ..=16_000 => Ok(()),
        long => Err(Impossible(format!("the hello would have {long} octets, more than 16000"))),
    }
}

fn handshake(kind: u8, inside: &Octets) -> Octets {
    let mut all = Octets::from(&[kind]);
    all.append(&counted24(inside));
    all
}

/// Splits the data into records.
fn record(kind: u8, version: u16, inside: &Octets) -> Octets {
    let mut all = Octets::new();
    let mut begin = 0;
    while begin < inside.len() {
        let end = inside.len().min(begin + 16_384);
        all.append(&Octets::framing([kind, (version >> 8) as u8, version as u8]));
        all.append(&counted16(&inside.slice(begin..end)));
        begin = end;
    }
    all
}

pub(super) fn counted8(inside: &Octets) -> Octets {
    let mut all = Octets::framing([inside.len() as u8]);
    all.append(inside);
    all
}

pub(super) fn counted16(inside: &Octets) -> Octets {
    let mut all = Octets::framing((inside.len() as u16).to_be_bytes());
    all.append(inside);
    all
}

fn counted24(inside: &Octets) -> Octets {
    let length = inside.len() as u32;
    let mut all = Octets::framing(length.to_be_bytes()[1..].to_vec());
    all.append(inside);
    all
}

#[cfg(test)]
mod tests {
    use squall_rules::{Application, Numbers};

    use super::super::{assemble, contains};
    use super::*;
    use crate::Origin;

    fn turns(parts: &Parts) -> Vec<Turn> {
        assemble(Application::Tls, parts).unwrap()
    }

    fn with(buffer: Buffer, from: End, text: &str) -> Parts {
        Parts {
            buffers: vec![(buffer, from, Octets::of(text, Origin::Option(1)))],
            ..Parts::default()
        }
    }

    /// Checks that the length of each record and message matches its data.
    fn records(octets: &[u8]) -> Vec<(u8, usize)> {
        let mut found = vec![];
        let mut rest = octets;
        while let [kind, 3, _, high, low, tail @ ..] = rest {
            let length = usize::from(*high) << 8 | usize::from(*low);
            found.push((*kind, length));
            if *kind == 22 && length != 40 {
                assert_eq!(u32::from_be_bytes([0, tail[1], tail[2], tail[3]]) as usize, length - 4);
            }
            rest = &tail[length..];
        }
        assert!(rest.is_empty());
        found
    }

    #[test]
    fn a_handshake_consists_of_complete_records() {
        let turns = turns(&with(Buffer::TlsSni, End::Client, "evil.example"));
        let kinds = |turn: &Turn| {
            records(turn.octets.bytes()).into_iter().map(|record| record.0).collect::<Vec<_>>()
        };
        assert_eq!(
            turns.iter().map(kinds).collect::<Vec<_>>(),
            [vec![22], vec![22, 22, 22, 22], vec![22, 20, 22], vec![20, 22], vec![23], vec![23]]
        );
        assert!(contains(turns[0].octets.bytes(), b"\0\0\0\x11\0\x0f\0\0\x0cevil.example"));
    }

    #[test]
    fn a_certificate_has_the_required_names_and_serial() {
        let mut parts = with(Buffer::TlsSubject, End::Server, "O=Evil, CN=evil");
        parts.push(Buffer::TlsSerial, End::Server, "00:A1:B2".into());
        parts.tests.push(ApplicationTest::TlsCertCount(Numbers::one(3)));
        let octets = turns(&parts)[1].octets.bytes().to_vec();
        assert!(contains(&octets, b"\x0c\x04Evil") && contains(&octets, b"\x02\x03\0\xa1\xb2"));
        assert_eq!(records(&octets).len(), 4);
    }

    #[test]
    fn a_ja3_text_is_sent_unchanged() {
        let parts = with(Buffer::Ja3String, End::Client, "769,47-53,0-11,,0");
        let hello = turns(&parts)[0].octets.bytes().to_vec();
        assert_eq!(hello[9..11], [3, 1]);
        assert!(contains(&hello, b"\0\x04\0\x2f\0\x35\x01\0"));
        assert!(assemble(Application::Tls, &with(Buffer::Ja3String, End::Client, "1,2")).is_err());
        assert!(assemble(Application::Tls, &with(Buffer::Ja3Hash, End::Client, "00")).is_err());
    }

    #[test]
    fn a_version_is_that_of_the_hellos() {
        for (version, field) in [(0x0301, [3, 1]), (0x0300, [3, 0]), (TLS_1_3, [3, 3])] {
            let mut parts = Parts::default();
            parts.tests.push(ApplicationTest::TlsVersion { any_of: vec![version], negated: false });
            assert_eq!(turns(&parts)[1].octets.bytes()[9..11], field);
            records(turns(&parts)[0].octets.bytes());
        }
    }
}
