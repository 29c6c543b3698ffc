//! EAP methods with TLS: the handshake in fragments, and what follows it inside.

use std::{io::Read, sync::Arc};

use rustls::{
    AlertDescription, ClientConfig, ClientConnection, ProtocolVersion, pki_types::ServerName,
};
use squall_tls::{TlsSettings, TlsSettingsError, client_config, server_name};

use super::{
    Credentials, EapMethod,
    fragments::{Fragment, FragmentReader, FragmentWriter},
    mschapv2::{self, Proof},
};

/// Settings of TLS, shared by the hosts of a group.
#[derive(Clone, Debug)]
pub struct TlsClient {
    settings: Arc<TlsSettings>,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

/// Compares the settings.
impl PartialEq for TlsClient {
    fn eq(&self, other: &Self) -> bool {
        self.settings == other.settings
    }
}

impl Eq for TlsClient {}

impl TlsClient {
    /// Without a server name, a verified server may have a certificate for any name.
    ///
    /// # Errors
    /// An invalid name, files without a certificate or key, or a key of another certificate.
    pub fn new(settings: &TlsSettings) -> Result<Self, TlsSettingsError> {
        let name = server_name(settings)?;
        let any_name = name.is_none();
        let mut config = client_config(&TlsSettings { any_name, ..settings.clone() })?;
        // Authenticators have one server.
        config.enable_sni = false;
        let name = name.unwrap_or(ServerName::IpAddress(std::net::Ipv4Addr::UNSPECIFIED.into()));
        Ok(Self { settings: Arc::new(settings.clone()), config: Arc::new(config), name })
    }
}

/// What authenticates the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inner {
    /// Its certificate, in the handshake.
    Certificate,
    /// EAP-MSCHAPv2.
    Eap,
    Pap,
    MschapV2,
}

/// Types of EAP inside PEAP, and opcodes of EAP-MSCHAPv2.
const REQUEST: u8 = 1;
const RESPONSE: u8 = 2;
const IDENTITY: u8 = 1;
const NOTIFICATION: u8 = 2;
const NAK: u8 = 3;
const MSCHAP_V2: u8 = 26;
const EXTENSIONS: u8 = 33;
const CHALLENGE: u8 = 1;
const CHALLENGE_RESPONSE: u8 = 2;
const SUCCESS: u8 = 3;
const FAILURE: u8 = 4;

/// One conversation of a host, from the start of TLS to its result.
#[derive(Debug)]
pub(crate) struct Tunnel {
    inner: Inner,
    connection: ClientConnection,
    config: Arc<ClientConfig>,
    reader: FragmentReader,
    writer: FragmentWriter,
    /// Whether TLS has begun, and whether it has failed.
    started: bool,
    ended: bool,
    /// The last answer, which a repeated request gets again.
    last: Vec<u8>,
    /// What the server must prove after the host has.
    proof: Option<Proof>,
    /// Whether the method inside began, whether the server proved that it knows the password, and
    /// whether the host has done its part.
    begun: bool,
    authentic: bool,
    proved: bool,
    failure: Option<&'static str>,
}

impl Tunnel {
    /// Begins with the first packet of a server.
    ///
    /// # Errors
    /// The reason for which the packet is ignored.
    pub fn begin(method: &EapMethod, data: &[u8]) -> Result<Box<Self>, &'static str> {
        let (client, inner) = match method {
            EapMethod::Md5 => return Err("bad_type"),
            EapMethod::Tls(client) => (client, Inner::Certificate),
            EapMethod::Peap(client) => (client, Inner::Eap),
            EapMethod::TtlsPap(client) => (client, Inner::Pap),
            EapMethod::TtlsMschapV2(client) => (client, Inner::MschapV2),
        };
        if !Fragment::parse(data)?.start {
            return Err("no_start");
        }
        let connection = ClientConnection::new(client.config.clone(), client.name.clone())
            .map_err(|_| "tls_broken")?;
        Ok(Box::new(Self {
            inner,
            connection,
            config: client.config.clone(),
            reader: FragmentReader::default(),
            writer: FragmentWriter::default(),
            started: false,
            ended: false,
            last: Vec::new(),
            proof: None,
            begun: false,
            authentic: false,
            proved: false,
            failure: None,
        }))
    }

    /// Handles a packet after its type. Returns the answer after its type.
    ///
    /// # Errors
    /// The reason for which the packet is ignored.
    pub fn answer(
        &mut self,
        id: u8,
        data: &[u8],
        who: Credentials<'_>,
    ) -> Result<Vec<u8>, &'static str> {
        let packet = Fragment::parse(data)?;
        if packet.start {
            if self.started {
                return Err("unexpected_start");
            }
            // What EAP-TTLS may have in the first packet (RFC 5281 section 9.2) is not needed.
            self.started = true;
            self.flush();
        } else if self.writer.is_empty() {
            if let Some(message) = self.reader.read(&packet)? {
                self.process(id, &message, who);
                self.flush();
            }
        } else if packet.more || !packet.data.is_empty() {
            return Err("unexpected_fragment");
        }
        self.last = self.writer.next();
        Ok(self.last.clone())
    }

    pub fn last(&self) -> &[u8] {
        &self.last
    }

    /// Whether a success of the server is one.
    pub fn is_proved(&self) -> bool {
        self.proved && self.failure.is_none()
    }

    /// Why the conversation failed, if the host knows that.
    pub fn failure(&self) -> Option<&'static str> {
        self.failure
    }

    fn fail(&mut self, reason: &'static str) {
        self.failure.get_or_insert(reason);
    }

    /// TLS has failed: nothing more comes from inside.
    fn end(&mut self, reason: &'static str) {
        self.ended = true;
        self.fail(reason);
    }

    /// Moves what TLS has to send to the writer.
    fn flush(&mut self) {
        let mut message = Vec::new();
        while self.connection.wants_write() && self.connection.write_tls(&mut message).is_ok() {}
        self.writer.begin(message);
    }

    fn process(&mut self, id: u8, mut message: &[u8], who: Credentials<'_>) {
        let mut plain = Vec::new();
        while !message.is_empty() {
            if !matches!(self.connection.read_tls(&mut message), Ok(1..)) {
                return self.end("tls_broken");
            }
            match self.connection.process_new_packets() {
                Ok(state) => {
                    let begin = plain.len();
                    plain.resize(begin + state.plaintext_bytes_to_read(), 0);
                    if self.connection.reader().read_exact(&mut plain[begin..]).is_err() {
                        return self.end("tls_broken");
                    }
                }
                Err(error) => return self.end(reason(&error)),
            }
        }
        if !self.ended && !self.connection.is_handshaking() {
            self.inside(id, &plain, who);
        }
    }

    /// Handles what arrived in the tunnel.
    fn inside(&mut self, id: u8, plain: &[u8], who: Credentials<'_>) {
        let answer = match self.inner {
            Inner::Certificate => {
                // An octet of 0 in TLS 1.3: the server sends no alert any more (RFC 9190
                // section 2.5).
                let is_13 = self.connection.protocol_version() == Some(ProtocolVersion::TLSv1_3);
                self.proved |= !is_13 || plain.first() == Some(&0);
                return;
            }
            Inner::Eap => self.extensible(id, plain, who),
            // The server must have the end of the handshake first.
            Inner::Pap | Inner::MschapV2 if self.connection.wants_write() => return,
            Inner::Pap if self.begun => return,
            Inner::Pap => {
                (self.begun, self.proved) = (true, true);
                pap(who)
            }
            Inner::MschapV2 if self.begun => return self.conclude(plain),
            Inner::MschapV2 => {
                self.begun = true;
                self.implicit_challenge(who).unwrap_or_else(|| {
                    self.fail("tls_broken");
                    Vec::new()
                })
            }
        };
        if !answer.is_empty()
            && std::io::Write::write_all(&mut self.connection.writer(), &answer).is_err()
        {
            self.fail("tls_broken");
        }
    }

    /// Answers a packet of EAP inside PEAP. Only extensions have a header there.
    fn extensible(&mut self, id: u8, plain: &[u8], who: Credentials<'_>) -> Vec<u8> {
        let headed = plain.split_first_chunk::<4>().filter(|([code, _, high, low], _)| {
            let len = usize::from(u16::from_be_bytes([*high, *low]));
            (1..=4).contains(code) && len == plain.len()
        });
        let (code, id, body) = match headed {
            Some(([code, id, ..], body)) => (*code, *id, body),
            None => (REQUEST, id, plain),
        };
        let Some((kind, data)) = body.split_first().filter(|_| code == REQUEST) else {
            return Vec::new();
        };
        match *kind {
            IDENTITY => [&[IDENTITY], who.identity].concat(),
            NOTIFICATION => vec![NOTIFICATION],
            MSCHAP_V2 => self.mschap_v2(data, who),
            EXTENSIONS => {
                let success = result_of(data) == Some(1) && self.authentic;
                if success {
                    self.proved = true;
                } else {
                    self.fail("rejected");
                }
                let status = if success { 1 } else { 2 };
                vec![RESPONSE, id, 0, 11, EXTENSIONS, 0x80, RESULT, 0, 2, 0, status]
            }
            NAK => Vec::new(),
            _ => vec![NAK, MSCHAP_V2],
        }
    }

    /// Answers a packet of EAP-MSCHAPv2 after its type.
    fn mschap_v2(&mut self, data: &[u8], who: Credentials<'_>) -> Vec<u8> {
        let Some(([opcode, id, _, _], value)) = data.split_first_chunk::<4>() else {
            return Vec::new();
        };
        match *opcode {
            CHALLENGE => {
                let challenge = value
                    .split_first()
                    .filter(|(size, _)| **size == 16)
                    .and_then(|(_, rest)| rest.first_chunk::<16>());
                let own = challenge.and_then(|_| self.random());
                let (Some(challenge), Some(own)) = (challenge, own) else { return Vec::new() };
                let proof = mschapv2::prove(who.identity, who.password, challenge, &own);
                let len = (5 + 49 + who.identity.len()) as u16;
                let head = [MSCHAP_V2, CHALLENGE_RESPONSE, *id];
                let answer = [
                    &head[..],
                    &len.to_be_bytes(),
                    &[49],
                    &response(&own, &proof),
                    &[0],
                    who.identity,
                ];
                self.proof = Some(proof);
                answer.concat()
            }
            SUCCESS => {
                self.check(value);
                vec![MSCHAP_V2, if self.authentic { SUCCESS } else { FAILURE }]
            }
            FAILURE => {
                self.fail(mschapv2::failure(value));
                vec![MSCHAP_V2, FAILURE]
            }
            _ => Vec::new(),
        }
    }

    /// Whether the server knows the password, too (RFC 2759 section 5).
    fn check(&mut self, message: &[u8]) {
        self.authentic =
            self.proof.as_ref().is_some_and(|proof| mschapv2::is_authentic(message, proof));
        if !self.authentic {
            self.fail("server_not_authentic");
        }
    }

    /// MS-CHAP-V2 in EAP-TTLS: the challenge is made from the keys of TLS (RFC 5281 section 11.1).
    fn implicit_challenge(&mut self, who: Credentials<'_>) -> Option<Vec<u8>> {
        let material =
            self.connection.export_keying_material([0; 17], TTLS_CHALLENGE, None).ok()?;
        let (challenge, rest) = material.split_first_chunk::<16>()?;
        let own = self.random()?;
        let proof = mschapv2::prove(who.identity, who.password, challenge, &own);
        let mut answer = Vec::new();
        avp(USER_NAME, None, who.identity, &mut answer);
        avp(MS_CHAP_CHALLENGE, Some(MICROSOFT), challenge, &mut answer);
        let value = [&[rest[0], 0], &response(&own, &proof)[..]].concat();
        avp(MS_CHAP2_RESPONSE, Some(MICROSOFT), &value, &mut answer);
        self.proof = Some(proof);
        Some(answer)
    }

    /// The server's result of MS-CHAP-V2 in EAP-TTLS.
    fn conclude(&mut self, mut plain: &[u8]) {
        while let Some((code, vendor, value)) = next_avp(&mut plain) {
            // An identifier is before the text.
            let text = value.get(1..).unwrap_or_default();
            match (vendor, code) {
                (Some(MICROSOFT), MS_CHAP2_SUCCESS) => {
                    self.check(text);
                    self.proved = self.authentic;
                }
                (Some(MICROSOFT), MS_CHAP_ERROR) => self.fail(mschapv2::failure(text)),
                _ => {}
            }
        }
    }

    fn random(&self) -> Option<[u8; 16]> {
        let mut octets = [0; 16];
        self.config.crypto_provider().secure_random.fill(&mut octets).ok()?;
        Some(octets)
    }
}

/// Peer-Challenge, 8 octets of 0, NT-Response.
fn response(own: &[u8; 16], proof: &Proof) -> Vec<u8> {
    [&own[..], &[0; 8], &proof.response].concat()
}

/// Type of the Result TLV of PEAP.
const RESULT: u8 = 3;

/// The status of the Result TLV in a packet of extensions: 1 is success.
fn result_of(mut data: &[u8]) -> Option<u16> {
    loop {
        let ([high, low, length @ ..], rest) = data.split_first_chunk::<4>()?;
        let (value, rest) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
        // The first bit: the receiver must know the TLV.
        if (high & 0x3f, *low) == (0, RESULT) {
            return Some(u16::from_be_bytes(*value.first_chunk()?));
        }
        data = rest;
    }
}

/// The label with which TLS makes the challenge.
const TTLS_CHALLENGE: &[u8] = b"ttls challenge";
/// Codes of attributes (RFC 2865 section 5, RFC 2548 section 2.3), and the vendor of some.
const USER_NAME: u32 = 1;
const USER_PASSWORD: u32 = 2;
const MICROSOFT: u32 = 311;
const MS_CHAP_ERROR: u32 = 2;
const MS_CHAP_CHALLENGE: u32 = 11;
const MS_CHAP2_RESPONSE: u32 = 25;
const MS_CHAP2_SUCCESS: u32 = 26;
/// Flags of an attribute: it has a vendor, and its receiver must know it.
const VENDOR: u8 = 0x80;
const MANDATORY: u8 = 0x40;

/// The password, of which zeros hide the length.
fn pap(who: Credentials<'_>) -> Vec<u8> {
    let mut password = who.password.as_bytes().to_vec();
    password.resize(password.len().next_multiple_of(16), 0);
    let mut answer = Vec::new();
    avp(USER_NAME, None, who.identity, &mut answer);
    avp(USER_PASSWORD, None, &password, &mut answer);
    answer
}

/// Appends an attribute (RFC 5281 section 10.1).
fn avp(code: u32, vendor: Option<u32>, value: &[u8], out: &mut Vec<u8>) {
    let head = if vendor.is_some() { 12 } else { 8 };
    let flags = MANDATORY | if vendor.is_some() { VENDOR } else { 0 };
    out.extend_from_slice(&code.to_be_bytes());
    out.extend_from_slice(&(u32::from(flags) << 24 | (head + value.len()) as u32).to_be_bytes());
    vendor.iter().for_each(|vendor| out.extend_from_slice(&vendor.to_be_bytes()));
    out.extend_from_slice(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// Takes an attribute: its code, vendor and value.
fn next_avp<'a>(octets: &mut &'a [u8]) -> Option<(u32, Option<u32>, &'a [u8])> {
    let (code, rest) = octets.split_first_chunk::<4>()?;
    let ([flags, length @ ..], _) = rest.split_first_chunk::<4>()?;
    let [a, b, c] = *length;
    let len = u32::from_be_bytes([0, a, b, c]) as usize;
    let value = octets.get(8..len)?;
    let (vendor, value) = match flags & VENDOR != 0 {
        true => {
            let (vendor, value) = value.split_first_chunk::<4>()?;
            (Some(u32::from_be_bytes(*vendor)), value)
        }
        false => (None, value),
    };
    *octets = octets.get(len.next_multiple_of(4)..).unwrap_or_default();
    Some((u32::from_be_bytes(*code), vendor, value))
}

fn reason(error: &rustls::Error) -> &'static str {
    use rustls::Error;
    match error {
        Error::AlertReceived(alert) => alert_word(*alert),
        Error::InvalidCertificate(_) | Error::NoCertificatesPresented => "untrusted_certificate",
        Error::PeerIncompatible(_) => "tls_incompatible",
        _ => "tls_broken",
    }
}

/// The name of an alert (RFC 8446 section 6.2).
fn alert_word(alert: AlertDescription) -> &'static str {
    match alert {
        AlertDescription::HandshakeFailure => "alert_handshake_failure",
        AlertDescription::BadCertificate => "alert_bad_certificate",
        AlertDescription::UnsupportedCertificate => "alert_unsupported_certificate",
        AlertDescription::CertificateRevoked => "alert_certificate_revoked",
        AlertDescription::CertificateExpired => "alert_certificate_expired",
        AlertDescription::CertificateUnknown => "alert_certificate_unknown",
        AlertDescription::UnknownCA => "alert_unknown_ca",
        AlertDescription::AccessDenied => "alert_access_denied",
        AlertDescription::ProtocolVersion => "alert_protocol_version",
        AlertDescription::CertificateRequired => "alert_certificate_required",
        _ => "alert",
    }
}
