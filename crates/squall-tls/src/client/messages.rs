//! Messages of servers, read without copies.

use rustls::pki_types::CertificateDer;

use super::{HelloClientError, alert, broken, extension, unreadable};
use crate::{Hello, hello::octets::Octets};

/// The random of a HelloRetryRequest (RFC 8446 section 4.1.3).
const RETRY: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
    0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];
/// TLS_EMPTY_RENEGOTIATION_INFO_SCSV, which means an empty extension (RFC 5746 section 3.3).
const RENEGOTIATION_SUITE: u16 = 0x00ff;
/// Maximum size of a cookie, so that the hello with it has less than 2^16 octets.
const COOKIE: usize = 1 << 14;

/// A list of extensions, of which each is offered and occurs once.
///
/// # Errors
/// Other lists. `also`: extensions that the hello itself need not have.
pub(super) fn extensions<'a>(
    list: &'a [u8],
    hello: &Hello,
    also: [Option<u16>; 2],
) -> Result<Vec<(u16, &'a [u8])>, HelloClientError> {
    let (mut rest, mut found) = (Octets(list), vec![]);
    while !rest.0.is_empty() {
        let (Some(kind), Some(body)) = (rest.u16(), rest.counted16()) else {
            return Err(unreadable("the server's extensions cannot be read"));
        };
        if !hello.offers_extension(kind) && !also.contains(&Some(kind)) {
            return Err(HelloClientError::UnofferedExtension(kind));
        }
        if found.iter().any(|(one, _)| *one == kind) {
            return Err(broken("the server sent an extension twice", alert::ILLEGAL_PARAMETER));
        }
        found.push((kind, body));
    }
    Ok(found)
}

/// ServerHello (RFC 8446 section 4.1.3, RFC 5246 section 7.4.1.3) or HelloRetryRequest.
pub(super) struct ServerHello<'a> {
    version: u16,
    pub random: &'a [u8; 32],
    session_id: &'a [u8],
    pub suite: u16,
    pub extensions: Vec<(u16, &'a [u8])>,
}

impl<'a> ServerHello<'a> {
    /// # Errors
    /// A message that cannot be read, or has a suite or extension that is not offered. `psk`: whether
    /// a ticket of TLS 1.3 is.
    pub fn read(body: &'a [u8], hello: &Hello, psk: bool) -> Result<Self, HelloClientError> {
        let fields = Octets(body).all(|octets| {
            let (version, random) = (octets.u16()?, octets.take(32)?.first_chunk()?);
            let (session_id, suite) = (octets.counted8()?, octets.u16()?);
            let compression = octets.u8()?;
            // Servers of TLS 1.2 may leave the list out.
            let list = if octets.0.is_empty() { &[][..] } else { octets.counted16()? };
            Some((version, random, session_id, suite, compression, list))
        });
        let (version, random, session_id, suite, compression, list) =
            fields.ok_or(unreadable("the server's ServerHello cannot be read"))?;
        if !hello.offers_suite(suite) || compression != 0 {
            return Err(broken(
                "the server chose a cipher suite or compression that the hello does not offer",
                alert::ILLEGAL_PARAMETER,
            ));
        }
        let also = if *random == RETRY {
            [Some(extension::COOKIE), None]
        } else {
            let implied = hello.offers_suite(RENEGOTIATION_SUITE);
            let implied = implied.then_some(extension::RENEGOTIATION_INFO);
            [implied, psk.then_some(extension::PRE_SHARED_KEY)]
        };
        let extensions = extensions(list, hello, also)?;
        Ok(Self { version, random, session_id, suite, extensions })
    }

    fn get(&self, kind: u16) -> Option<&'a [u8]> {
        self.extensions.iter().find(|(one, _)| *one == kind).map(|(_, body)| *body)
    }

    /// # Errors
    /// An extension for versions that cannot be read, or has an old one.
    pub fn version(&self) -> Result<u16, HelloClientError> {
        match self.get(extension::SUPPORTED_VERSIONS) {
            Some(&[high, low]) if high == 3 && low >= 4 => Ok(u16::from_be_bytes([high, low])),
            Some(_) => Err(broken(
                "the server's extension for versions is not allowed",
                alert::ILLEGAL_PARAMETER,
            )),
            None if self.version >= 0x0304 => {
                Err(broken("the server chose an unknown version", alert::PROTOCOL_VERSION))
            }
            None => Ok(self.version),
        }
    }

    pub fn is_retry(&self) -> bool {
        *self.random == RETRY
    }

    /// # Errors
    /// Another session ID than that of the hello, which servers of TLS 1.3 repeat.
    pub fn check_session_id(&self, session_id: &[u8]) -> Result<(), HelloClientError> {
        if self.repeats_session_id(session_id) {
            return Ok(());
        }
        Err(broken("the server does not repeat the session ID", alert::ILLEGAL_PARAMETER))
    }

    pub fn repeats_session_id(&self, session_id: &[u8]) -> bool {
        self.session_id == session_id
    }

    /// The group of a HelloRetryRequest, or 0, and its cookie.
    ///
    /// # Errors
    /// Extensions that cannot be read.
    pub fn retry(&self) -> Result<(u16, &'a [u8]), HelloClientError> {
        const BAD: HelloClientError = unreadable("the server's HelloRetryRequest cannot be read");
        let group = match self.get(extension::KEY_SHARE) {
            Some(&[high, low]) => u16::from_be_bytes([high, low]),
            Some(_) => return Err(BAD),
            None => 0,
        };
        let cookie = match self.get(extension::COOKIE) {
            Some(body) => Octets(body)
                .all(Octets::counted16)
                .filter(|cookie| (1..=COOKIE).contains(&cookie.len()))
                .ok_or(BAD)?,
            None => &[][..],
        };
        Ok((group, cookie))
    }

    /// Whether the server goes on from the session of the hello's ticket (RFC 8446 section 4.2.11).
    ///
    /// # Errors
    /// Another choice than the only ticket.
    pub fn resumes(&self) -> Result<bool, HelloClientError> {
        match self.get(extension::PRE_SHARED_KEY) {
            None => Ok(false),
            Some([0, 0]) => Ok(true),
            Some(_) => Err(broken(
                "the server chose a ticket that the hello does not have",
                alert::ILLEGAL_PARAMETER,
            )),
        }
    }

    /// The group and the server's key (RFC 8446 section 4.2.8).
    ///
    /// # Errors
    /// An extension that is missing or cannot be read, or another one that does not belong here.
    pub fn key_share(&self) -> Result<(u16, &'a [u8]), HelloClientError> {
        let allowed =
            [extension::SUPPORTED_VERSIONS, extension::KEY_SHARE, extension::PRE_SHARED_KEY];
        if self.extensions.iter().any(|(kind, _)| !allowed.contains(kind)) {
            return Err(broken(
                "the server's ServerHello has an extension of other messages",
                alert::ILLEGAL_PARAMETER,
            ));
        }
        let body = self
            .get(extension::KEY_SHARE)
            .ok_or(broken("the server's ServerHello has no key share", alert::MISSING_EXTENSION))?;
        Octets(body)
            .all(|octets| Some((octets.u16()?, octets.counted16()?)))
            .ok_or(unreadable("the server's key share cannot be read"))
    }
}

/// The one protocol that a server chooses (RFC 7301 section 3.1).
pub(super) fn protocol(body: &[u8]) -> Option<&[u8]> {
    let list = Octets(body).all(Octets::counted16)?;
    Octets(list).all(Octets::counted8).filter(|name| !name.is_empty())
}

fn certificate(octets: &[u8]) -> CertificateDer<'static> {
    CertificateDer::from(octets.to_vec())
}

/// The chain of a Certificate of TLS 1.3, and the OCSP response of its first certificate (RFC 8446
/// section 4.4.2).
pub(super) fn certificates13(body: &[u8]) -> Option<(Vec<CertificateDer<'static>>, Vec<u8>)> {
    let list = Octets(body).all(|octets| {
        octets.counted8().filter(|context| context.is_empty())?;
        let len = octets.u24()?;
        octets.take(len)
    })?;
    let (mut rest, mut chain, mut status) = (Octets(list), vec![], vec![]);
    while !rest.0.is_empty() {
        let len = rest.u24()?;
        let one = rest.take(len)?;
        let mut extensions = Octets(rest.counted16()?);
        while !extensions.0.is_empty() {
            let (kind, body) = (extensions.u16()?, extensions.counted16()?);
            if kind == extension::STATUS_REQUEST && chain.is_empty() {
                status = body.get(4..)?.to_vec();
            }
        }
        chain.push(certificate(one));
    }
    Some((chain, status))
}

/// The chain of a Certificate of TLS 1.2 (RFC 5246 section 7.4.2).
pub(super) fn certificates12(body: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let list = Octets(body).all(|octets| {
        let len = octets.u24()?;
        octets.take(len)
    })?;
    let (mut rest, mut chain) = (Octets(list), vec![]);
    while !rest.0.is_empty() {
        let len = rest.u24()?;
        chain.push(certificate(rest.take(len)?));
    }
    Some(chain)
}

/// ServerKeyExchange with a named curve (RFC 8422 section 5.4).
pub(super) struct KeyExchange12<'a> {
    pub group: u16,
    pub point: &'a [u8],
    /// The signed octets.
    pub parameters: &'a [u8],
    pub scheme: u16,
    pub signature: &'a [u8],
}

impl<'a> KeyExchange12<'a> {
    pub fn read(body: &'a [u8]) -> Option<Self> {
        Octets(body).all(|octets| {
            octets.u8().filter(|kind| *kind == 3)?;
            let (group, point) = (octets.u16()?, octets.counted8()?);
            let parameters = &body[..4 + point.len()];
            let (scheme, signature) = (octets.u16()?, octets.counted16()?);
            Some(Self { group, point, parameters, scheme, signature })
        })
    }
}
