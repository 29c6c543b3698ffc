//! TLS and SSL up to the start of encryption. Each flow is one transaction.

use squall_rules::{Buffer, End};
use squall_units::be16;

use super::octets::{Octets, Records, hexadecimal, md5_hexadecimal};
use super::{Fact, FactIs, Reader, SingleTransaction, Transaction, event, number};

/// Maximum length of a record with its header (RFC 8446 §5.1, with the 2048 octets of expansion of
/// RFC 5246 §6.2.3).
const MAX_RECORD_LEN: usize = 5 + 16_384 + 2_048;
// Bounds on memory for untrusted traffic.
const MAX_HANDSHAKE_LEN: usize = 128 * 1024;
const MAX_CERTIFICATES: usize = 20;
const MAX_NAMES: usize = 200;

#[derive(Default)]
pub(super) struct Tls {
    sides: [Side; 2],
    only: SingleTransaction,
}

#[derive(Default)]
struct Side {
    records: Records,
    handshake: Vec<u8>,
    has_begun: bool,
    /// The rest of the data is encrypted or invalid.
    is_over: bool,
}

impl Reader for Tls {
    fn receive(&mut self, from: End, octets: &[u8], transactions: &mut Vec<Transaction>) {
        let side = &mut self.sides[usize::from(from == End::Server)];
        let Some(transaction) = self.only.get_or_open(transactions) else { return };
        if side.is_over {
            return;
        }
        side.records.push(octets);
        // Only the first record may be in SSL 2 format.
        let length = |is_first: bool| {
            move |octets: &[u8]| match octets.first()? {
                first if is_first && first & 0x80 != 0 => {
                    Some(2 + usize::from(u16::from_be_bytes([first & 0x7f, *octets.get(1)?])))
                }
                _ => Some(5 + usize::from(u16::from_be_bytes([*octets.get(3)?, *octets.get(4)?]))),
            }
        };
        while let Some(record) = side.records.next(MAX_RECORD_LEN, length(!side.has_begun)) {
            if !side.has_begun && record[0] & 0x80 != 0 {
                side.is_over = true;
                side.records.clear();
                let _ = hello_of_version_2(from, &record, transaction);
                return;
            }
            side.has_begun = true;
            let version = be16(&record, 1);
            match record[0] {
                22 => {
                    set_version(from, version, transaction);
                    side.handshake.extend_from_slice(&record[5..]);
                    side.messages(from, transaction);
                }
                // Records after ChangeCipherSpec are encrypted, so parsing ends here.
                20 | 23 => side.is_over = true,
                21 | 24 => set_version(from, version, transaction),
                _ => {
                    event(from, "tls.invalid_record_type", transaction);
                    side.is_over = true;
                }
            }
            if side.is_over {
                side.records.clear();
                side.handshake = vec![];
                return;
            }
        }
    }

    fn end(&mut self, from: End, transactions: &mut Vec<Transaction>) {
        self.only.end(from, transactions);
    }
}

impl Side {
    fn messages(&mut self, from: End, transaction: &mut Transaction) {
        let handshake = std::mem::take(&mut self.handshake);
        let mut rest = Octets(&handshake);
        while let Some((kind, body)) = message(&mut rest) {
            // Nothing is added for an invalid message.
            let _ = match kind {
                1 => client_hello(from, body, transaction),
                2 => server_hello(from, body, transaction),
                11 => certificates(from, body, transaction),
                12 => state(from, 4, transaction),
                16 => state(from, 3, transaction),
                _ => None,
            };
        }
        self.handshake = rest.0.to_vec();
        if self.handshake.len() > MAX_HANDSHAKE_LEN {
            self.is_over = true;
        }
    }
}

fn message<'a>(rest: &mut Octets<'a>) -> Option<(u8, &'a [u8])> {
    let mut ahead = *rest;
    let kind = ahead.u8()?;
    let length = ahead.u24()?;
    let body = ahead.take(length as usize)?;
    *rest = ahead;
    Some((kind, body))
}

/// Adds the version. The last one applies.
fn set_version(from: End, version: u16, transaction: &mut Transaction) {
    let is_version = |fact: &Fact| {
        fact.of == from && matches!(fact.is, FactIs::Number { what: "tls.version", .. })
    };
    transaction.facts.retain(|fact| !is_version(fact));
    number(from, "tls.version", u64::from(version), transaction);
}

fn state(from: End, state: u64, transaction: &mut Transaction) -> Option<()> {
    number(from, "ssl_state", state, transaction);
    Some(())
}

fn add_buffer(
    buffer: Buffer,
    from: End,
    octets: impl Into<Vec<u8>>,
    transaction: &mut Transaction,
) {
    let octets = octets.into();
    if !octets.is_empty() {
        transaction.buffers.push((buffer, from, octets));
    }
}

fn hello_of_version_2(from: End, record: &[u8], transaction: &mut Transaction) -> Option<()> {
    let mut rest = Octets(record.get(2..)?);
    let kind = rest.u8()?;
    if kind == 4 {
        // In an SSL 2 ServerHello, session ID hit and certificate type precede the version.
        rest.skip(2)?;
    }
    let version = rest.u16()?;
    set_version(from, version, transaction);
    match kind {
        1 => state(from, 1, transaction),
        4 => state(from, 2, transaction),
        _ => None,
    }
}

fn client_hello(from: End, body: &[u8], transaction: &mut Transaction) -> Option<()> {
    let mut rest = Octets(body);
    let version = rest.u16()?;
    set_version(from, version, transaction);
    state(from, 1, transaction);
    add_random(from, rest.take(32)?, transaction);
    rest.counted_u8()?;
    let ciphers = numbers(rest.counted_u16()?);
    rest.counted_u8()?;
    let mut hello = Hello { version, ciphers, ..Hello::default() };
    if let Some(extensions) = rest.counted_u16() {
        let mut extensions = Octets(extensions);
        while let (Some(kind), Some(content)) = (extensions.u16(), extensions.counted_u16()) {
            hello.extensions.push(kind);
            // An extension counts as present even if its content is invalid.
            let _ = hello.extension(from, kind, content, transaction);
        }
    }
    let ja3 = hello.ja3();
    add_buffer(Buffer::Ja3Hash, from, md5_hexadecimal(ja3.as_bytes()), transaction);
    add_buffer(Buffer::Ja3String, from, ja3, transaction);
    add_buffer(Buffer::Ja4Hash, from, hello.ja4(), transaction);
    Some(())
}

fn server_hello(from: End, body: &[u8], transaction: &mut Transaction) -> Option<()> {
    let mut rest = Octets(body);
    let mut version = rest.u16()?;
    let hello_version = version;
    state(from, 2, transaction);
    set_version(from, version, transaction);
    add_random(from, rest.take(32)?, transaction);
    rest.counted_u8()?;
    let cipher = rest.u16()?;
    rest.skip(1)?;
    let mut kinds = vec![];
    if let Some(extensions) = rest.counted_u16() {
        let mut extensions = Octets(extensions);
        while let (Some(kind), Some(content)) = (extensions.u16(), extensions.counted_u16()) {
            kinds.push(kind);
            match (kind, content) {
                (43, &[high, low]) => version = u16::from_be_bytes([high, low]),
                (16, _) => add_protocols(from, content, transaction),
                _ => {}
            }
        }
    }
    set_version(from, version, transaction);
    let ja3s = format!("{hello_version},{cipher},{}", joined(&kinds));
    add_buffer(Buffer::Ja3sHash, from, md5_hexadecimal(ja3s.as_bytes()), transaction);
    add_buffer(Buffer::Ja3sString, from, ja3s, transaction);
    Some(())
}

fn add_random(from: End, random: &[u8], transaction: &mut Transaction) {
    add_buffer(Buffer::TlsRandom, from, random, transaction);
    add_buffer(Buffer::TlsRandomTime, from, &random[..4], transaction);
    add_buffer(Buffer::TlsRandomBytes, from, &random[4..], transaction);
}

fn add_protocols(from: End, content: &[u8], transaction: &mut Transaction) {
    for name in protocols(content) {
        add_buffer(Buffer::TlsAlpn, from, name, transaction);
    }
}

fn protocols(content: &[u8]) -> Vec<&[u8]> {
    let mut rest = Octets(Octets(content).counted_u16().unwrap_or_default());
    std::iter::from_fn(|| rest.counted_u8()).take(MAX_NAMES).collect()
}

fn numbers(octets: &[u8]) -> Vec<u16> {
    octets.chunks_exact(2).map(|pair| be16(pair, 0)).collect()
}

/// Whether this is a GREASE value, sent to test that the peer ignores unknown values (RFC 8701).
fn is_grease(value: u16) -> bool {
    value & 0x0f0f == 0x0a0a && value >> 8 == value & 0xff
}

fn joined(values: &[u16]) -> String {
    let kept = values.iter().filter(|value| !is_grease(**value)).map(u16::to_string);
    kept.collect::<Vec<_>>().join("-")
}

/// The ClientHello fields that are part of fingerprints.
#[derive(Default)]
struct Hello {
    version: u16,
    ciphers: Vec<u16>,
    extensions: Vec<u16>,
    groups: Vec<u16>,
    points: Vec<u16>,
    signatures: Vec<u16>,
    best_version: Option<u16>,
    has_name: bool,
    protocol: Vec<u8>,
}

impl Hello {
    fn extension(
        &mut self,
        from: End,
        kind: u16,
        content: &[u8],
        transaction: &mut Transaction,
    ) -> Option<()> {
        let mut rest = Octets(content);
        match kind {
            // server_name
            0 => {
                self.has_name = true;
                let mut names = Octets(rest.counted_u16()?);
                while let (Some(kind), Some(name)) = (names.u8(), names.counted_u16()) {
                    if kind == 0 {
                        add_buffer(Buffer::TlsSni, from, name, transaction);
                        break;
                    }
                }
            }
            10 => self.groups = numbers(rest.counted_u16()?),
            11 => self.points = rest.counted_u8()?.iter().map(|&point| u16::from(point)).collect(),
            13 => self.signatures = numbers(rest.counted_u16()?),
            16 => {
                self.protocol = protocols(content).first().map_or(vec![], |name| name.to_vec());
                add_protocols(from, content, transaction);
            }
            43 => {
                let versions = numbers(rest.counted_u8()?);
                self.best_version =
                    versions.into_iter().filter(|version| !is_grease(*version)).max();
                if let Some(version) = self.best_version {
                    set_version(from, version, transaction);
                }
            }
            _ => {}
        }
        Some(())
    }

    fn ja3(&self) -> String {
        let points: Vec<String> = self.points.iter().map(u16::to_string).collect();
        [
            self.version.to_string(),
            joined(&self.ciphers),
            joined(&self.extensions),
            joined(&self.groups),
            points.join("-"),
        ]
        .join(",")
    }

    fn ja4(&self) -> String {
        use sha2::Digest as _;
        let ciphers: Vec<u16> =
            self.ciphers.iter().copied().filter(|value| !is_grease(*value)).collect();
        let extensions: Vec<u16> =
            self.extensions.iter().copied().filter(|value| !is_grease(*value)).collect();
        let version = match self.best_version.unwrap_or(self.version) {
            0x0304 => "13",
            0x0303 => "12",
            0x0302 => "11",
            0x0301 => "10",
            0x0300 => "s3",
            0x0002 => "s2",
            _ => "00",
        };
        let alpn = match (self.protocol.first(), self.protocol.last()) {
            (Some(first), Some(last))
                if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() =>
            {
                format!("{}{}", char::from(*first), char::from(*last))
            }
            (Some(first), Some(last)) => format!("{:x}{:x}", first >> 4, last & 15),
            _ => "00".into(),
        };
        let list = |mut values: Vec<u16>, sorted: bool| {
            if sorted {
                values.sort_unstable();
            }
            values.iter().map(|value| format!("{value:04x}")).collect::<Vec<_>>().join(",")
        };
        let short = |text: &str| {
            if text.is_empty() {
                return "000000000000".into();
            }
            let hash = hexadecimal(&sha2::Sha256::digest(text.as_bytes()));
            String::from_utf8_lossy(&hash[..12]).into_owned()
        };
        let mut kept =
            list(extensions.iter().copied().filter(|kind| !matches!(kind, 0 | 16)).collect(), true);
        if !self.signatures.is_empty() {
            kept.push('_');
            kept.push_str(&list(self.signatures.clone(), false));
        }
        format!(
            "t{version}{}{:02}{:02}{alpn}_{}_{}",
            if self.has_name { 'd' } else { 'i' },
            ciphers.len().min(99),
            extensions.len().min(99),
            short(&list(ciphers.clone(), true)),
            short(&kept),
        )
    }
}

fn certificates(from: End, body: &[u8], transaction: &mut Transaction) -> Option<()> {
    use sha1::Digest as _;
    let mut rest = Octets(body);
    let length = rest.u24()?;
    let mut list = Octets(rest.take(length as usize)?);
    let mut count = 0;
    while let Some(certificate) = list.u24().and_then(|length| list.take(length as usize)) {
        if count == MAX_CERTIFICATES {
            break;
        }
        if count == 0 {
            let hash = sha1::Sha1::digest(certificate);
            let pairs: Vec<String> = hash.iter().map(|octet| format!("{octet:02x}")).collect();
            add_buffer(Buffer::TlsFingerprint, from, pairs.join(":"), transaction);
            add_certificate(from, certificate, transaction);
        }
        add_buffer(Buffer::TlsCertificates, from, certificate, transaction);
        count += 1;
    }
    number(from, "tls.cert_chain_len", count as u64, transaction);
    Some(())
}

fn add_certificate(from: End, certificate: &[u8], transaction: &mut Transaction) {
    use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else {
        return event(from, "tls.invalid_certificate", transaction);
    };
    add_buffer(Buffer::TlsSubject, from, certificate.subject().to_string(), transaction);
    add_buffer(Buffer::TlsIssuer, from, certificate.issuer().to_string(), transaction);
    let serial: Vec<String> =
        certificate.raw_serial().iter().map(|octet| format!("{octet:02X}")).collect();
    add_buffer(Buffer::TlsSerial, from, serial.join(":"), transaction);
    let Ok(Some(names)) = certificate.subject_alternative_name() else { return };
    for name in names.value.general_names.iter().take(MAX_NAMES) {
        match name {
            GeneralName::DNSName(name) | GeneralName::RFC822Name(name) | GeneralName::URI(name) => {
                add_buffer(Buffer::TlsSubjectAltName, from, *name, transaction);
            }
            GeneralName::IPAddress(octets) => {
                let text = match octets.len() {
                    4 => octets.iter().map(u8::to_string).collect::<Vec<_>>().join("."),
                    16 => <[u8; 16]>::try_from(*octets)
                        .map(|octets| std::net::Ipv6Addr::from(octets).to_string())
                        .unwrap_or_default(),
                    _ => continue,
                };
                add_buffer(Buffer::TlsSubjectAltName, from, text, transaction);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counted_u16(octets: &[u8]) -> Vec<u8> {
        [&(octets.len() as u16).to_be_bytes()[..], octets].concat()
    }

    fn record(kind: u8, body: &[u8]) -> Vec<u8> {
        [&[22, 3, 1][..], &counted_u16(&[&[kind, 0], &counted_u16(body)[..]].concat())].concat()
    }

    fn client_hello() -> Vec<u8> {
        let extension =
            |kind: u16, content: &[u8]| [&kind.to_be_bytes()[..], &counted_u16(content)].concat();
        let sni = counted_u16(&[&[0][..], &counted_u16(b"www.example.com")].concat());
        let extensions = [
            extension(0x0a0a, b""),
            extension(0, &sni),
            extension(10, &counted_u16(&[0, 29, 0, 23])),
            extension(11, &[1, 0]),
            extension(13, &counted_u16(&[4, 3])),
            extension(16, &counted_u16(b"\x02h2\x08http/1.1")),
            extension(43, &[4, 3, 4, 3, 3]),
        ]
        .concat();
        let ciphers = counted_u16(&[0x1a, 0x1a, 0x13, 0x01, 0xc0, 0x2f]);
        record(
            1,
            &[&[3, 3][..], &[7; 32], &[0], &ciphers, &[1, 0], &counted_u16(&extensions)].concat(),
        )
    }

    fn get(transaction: &Transaction, which: Buffer) -> String {
        let found = transaction.buffers.iter().find(|(buffer, ..)| *buffer == which);
        String::from_utf8_lossy(&found.expect("it is there").2).into_owned()
    }

    #[test]
    fn a_clients_hello_gives_its_name_and_fingerprints_however_it_is_cut() {
        for size in [1, 7, 1000] {
            let (mut reader, mut transactions) = (Tls::default(), vec![]);
            for piece in client_hello().chunks(size) {
                reader.receive(End::Client, piece, &mut transactions);
            }
            assert_eq!(get(&transactions[0], Buffer::TlsSni), "www.example.com");
            assert_eq!(get(&transactions[0], Buffer::TlsAlpn), "h2");
            assert_eq!(
                get(&transactions[0], Buffer::Ja3String),
                "771,4865-49199,0-10-11-13-16-43,29-23,0"
            );
            assert_eq!(get(&transactions[0], Buffer::Ja3Hash).len(), 32);
            let ja4 = get(&transactions[0], Buffer::Ja4Hash);
            assert!(ja4.starts_with("t13d0206h2_") && ja4.len() == 36, "{ja4}");
            let is = FactIs::Number { what: "tls.version", value: 0x0304 };
            assert!(transactions[0].facts.contains(&Fact { of: End::Client, is }));
        }
    }

    #[test]
    fn a_certificate_gives_its_names_and_its_number() {
        let mut parameters =
            rcgen::CertificateParams::new(vec!["a.example".into(), "192.0.2.7".into()]).unwrap();
        parameters.serial_number = Some(rcgen::SerialNumber::from_slice(&[0x1a, 0xff, 3]));
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        parameters.distinguished_name.push(rcgen::DnType::OrganizationName, "Acme");
        parameters.distinguished_name.push(rcgen::DnType::CommonName, "evil");
        let certificate = parameters.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        let der = certificate.der();
        let one = [&(der.len() as u32).to_be_bytes()[1..], der].concat();
        let all = [&(one.len() as u32).to_be_bytes()[1..], &one].concat();
        let (mut reader, mut transactions) = (Tls::default(), vec![]);
        reader.receive(End::Server, &record(11, &all), &mut transactions);
        assert_eq!(get(&transactions[0], Buffer::TlsSubject), "O=Acme, CN=evil");
        assert_eq!(get(&transactions[0], Buffer::TlsIssuer), "O=Acme, CN=evil");
        assert_eq!(get(&transactions[0], Buffer::TlsSerial), "1A:FF:03");
        assert_eq!(get(&transactions[0], Buffer::TlsFingerprint).len(), 59);
        let names = transactions[0]
            .buffers
            .iter()
            .filter(|(buffer, ..)| *buffer == Buffer::TlsSubjectAltName);
        assert_eq!(
            names.map(|(_, _, name)| &name[..]).collect::<Vec<_>>(),
            [&b"a.example"[..], b"192.0.2.7"]
        );
    }

    #[test]
    fn a_hello_of_version_2_has_a_version_and_a_state() {
        let (mut reader, mut transactions) = (Tls::default(), vec![]);
        reader.receive(End::Client, &[0x80, 5, 1, 0, 2, 0, 0], &mut transactions);
        let is = FactIs::Number { what: "ssl_state", value: 1 };
        assert!(transactions[0].facts.contains(&Fact { of: End::Client, is }));
    }

    #[test]
    fn a_later_record_is_never_of_version_2() {
        let (mut reader, mut transactions) = (Tls::default(), vec![]);
        let two = [&client_hello()[..], &[0x80, 0, 0, 0, 0]].concat();
        reader.receive(End::Client, &two, &mut transactions);
        let is = FactIs::Event("tls.invalid_record_type");
        assert!(
            transactions[0].facts.contains(&Fact { of: End::Client, is }),
            "{:?}",
            transactions[0].facts
        );
    }

    proptest! {
        #[test]
        fn any_octets_are_read(kind in any::<u8>(), body in proptest::collection::vec(any::<u8>(), 0..200), changed in 0usize..100, to in any::<u8>()) {
            let mut hello = client_hello();
            let at = changed.min(hello.len() - 1);
            hello[at] = to;
            let after = [client_hello(), body.clone()].concat();
            for octets in [&hello, &record(kind % 20, &body), &body, &after] {
                let (mut reader, mut transactions) = (Tls::default(), vec![]);
                for from in [End::Client, End::Server] {
                    reader.receive(from, octets, &mut transactions);
                }
            }
        }
    }
}
