//! ClientHello messages of browsers, or of captures and fingerprints, as values: read here, and
//! written again for each session, with new values in the fields that a client makes for each session.
//! All other octets are those that were read. There is no cryptography here: keys come in as arguments.

mod browsers;
pub(crate) mod octets;
mod read;
mod text;
mod write;

pub use browsers::Browser;

/// Values that a client offers so that peers learn to ignore unknown ones (GREASE, RFC 8701) are
/// kept as this one.
const GREASE: u16 = 0x0a0a;

/// Kinds of extensions (IANA, TLS ExtensionType Values).
mod kind {
    pub const SERVER_NAME: u16 = 0;
    pub const GROUPS: u16 = 10;
    pub const POINT_FORMATS: u16 = 11;
    pub const SIGNATURES: u16 = 13;
    pub const ALPN: u16 = 16;
    pub const PADDING: u16 = 21;
    pub const TICKET: u16 = 35;
    pub const PRE_SHARED_KEY: u16 = 41;
    pub const VERSIONS: u16 = 43;
    pub const COOKIE: u16 = 44;
    pub const PSK_MODES: u16 = 45;
    pub const SIGNATURES_OF_CERTIFICATES: u16 = 50;
    pub const KEY_SHARE: u16 = 51;
    pub const ECH: u16 = 0xfe0d;
    /// pre_shared_key, early_data, cookie.
    pub const OF_ONE_SESSION: [u16; 3] = [PRE_SHARED_KEY, 42, COOKIE];
}

/// A ClientHello (RFC 8446 section 4.1.2, RFC 5246 section 7.4.1.2) without the values that each
/// session has for itself: random, session ID, name, key shares, GREASE values. Extensions that only
/// resumed or retried sessions have (tickets, early data, cookies) are left out when one is read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hello {
    /// The version in the header of the record with the hello.
    pub record_version: u16,
    /// `legacy_version`.
    pub version: u16,
    /// Octets of the session ID: 0 to 32.
    pub session_id: u8,
    /// GREASE is 0x0a0a.
    pub suites: Box<[u16]>,
    pub compressions: Box<[u8]>,
    /// In the order in which they were read. GREASE is of kind 0x0a0a.
    pub extensions: Box<[Extension]>,
    /// Whether each hello has its extensions in another order, as those of Chrome since version
    /// 110. GREASE and padding keep their places.
    pub shuffle: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Extension {
    pub kind: u16,
    pub body: Body,
}

/// The content of an extension.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    /// Sent unchanged.
    Octets(Box<[u8]>),
    /// `server_name`, left out if there is no name.
    ServerName,
    /// `supported_groups`; GREASE is 0x0a0a.
    Groups(Box<[u16]>),
    /// `supported_versions`; GREASE is 0x0a0a.
    Versions(Box<[u16]>),
    /// `key_share`: groups, and the octets of their keys.
    Shares(Box<[(u16, u16)]>),
    /// `encrypted_client_hello` without a configuration of the server (GREASE, RFC 9849 section
    /// 6.2): octets of the encapsulated key and of the payload. The payload `varies` if its length
    /// is one of those of BoringSSL, which draws it.
    EchGrease { kdf: u16, aead: u16, enc: u16, payload: u16, varies: bool },
    /// Padding to 512 octets for messages of 256 to 511 (RFC 7685 section 4, as BoringSSL and NSS
    /// do it). If it was not `read`, it does not count for fingerprints.
    Padding { read: bool },
}

/// The new values of a hello.
#[derive(Clone, Copy, Debug)]
pub struct Fresh<'a> {
    /// The server's name, at most 255 octets; an address is not sent (RFC 6066 section 3).
    pub name: Option<&'a str>,
    /// Public keys by group. Groups that are offered and missing here get random octets.
    pub shares: &'a [(u16, &'a [u8])],
    /// The random of the message, and its session ID. GREASE, the order of extensions and the ECH
    /// payload follow from it.
    pub random: &'a [u8; 64],
    /// For the second hello, after HelloRetryRequest.
    pub retry: Option<Retry<'a>>,
    /// For a session of TLS 1.3 that is to be resumed.
    pub psk: Option<Psk<'a>>,
    /// The ticket of a session of TLS 1.2 that is to be resumed, at most 16,384 octets, for hellos
    /// with that extension (RFC 5077 section 3.2). The session ID then has 32 octets, as those of
    /// BoringSSL and OpenSSL: a server that resumes the session repeats it.
    pub ticket: Option<&'a [u8]>,
}

/// A ticket of TLS 1.3, as the last extension of the hello (RFC 8446 section 4.2.11).
#[derive(Clone, Copy, Debug)]
pub struct Psk<'a> {
    /// At most 16,384 octets.
    pub identity: &'a [u8],
    pub obfuscated_age: u32,
    /// Octets of the binder, which are zeros at the end of the message.
    pub binder: u8,
}

/// The content of a HelloRetryRequest (RFC 8446 section 4.1.4).
#[derive(Clone, Copy, Debug)]
pub struct Retry<'a> {
    /// The only group with a key share. 0: as in the first hello.
    pub group: u16,
    /// At most 16,384 octets. Empty: none.
    pub cookie: &'a [u8],
}

/// Why a hello or a fingerprint cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// Octets that are not a ClientHello. The text names the field.
    #[error("it is not a ClientHello of TLS: {0}")]
    Malformed(&'static str),
    #[error(
        "it is not a JA3 string: {0}\n  expected 771,4865-4866,0-23-65281,29-23,0: version, \
             cipher suites, extensions, groups, point formats"
    )]
    Ja3(String),
    #[error(
        "it is not a JA4_ro string: {0}\n  expected t13d0203h2_1301,1302_0000,0010,000d_0403: \
             its cipher suites, extensions and signature algorithms in the order sent"
    )]
    Ja4(String),
    /// A hash that no hello of the list has.
    #[error(
        "{0} is a hash, and no browser of the list has it\n  try what can be read: a JA3 \
             string, JA4_ro, or a capture with the ClientHello"
    )]
    Hash(&'static str),
    #[error(
        "it is JA4_r, whose lists are sorted, so it has no order to send\n  try JA4_ro, a JA3 \
             string, or a capture with the ClientHello"
    )]
    Sorted,
    #[error("it offers neither TLS 1.3 nor 1.2")]
    Old,
    #[error("a protocol has no octet, or more than 255, or all have more than 4,096")]
    Protocols,
    /// The text is a suggestion.
    #[error(
        "no browser of the list has this name\n  {0}; a JA3 string, JA4_ro or a capture (a \
             file .pcap or .pcapng) can be used, too"
    )]
    Unknown(String),
}

impl Hello {
    /// The hello of a browser: "chrome-131", "firefox-135", "safari-18.0-ios".
    pub fn named(browser: &str) -> Option<Self> {
        Browser::all().find(|one| one.name == browser).map(|one| one.hello())
    }

    /// Whether clients offer a cipher suite.
    pub fn offers_suite(&self, suite: u16) -> bool {
        self.suites.contains(&suite) && !is_grease(suite)
    }

    /// Whether servers may answer an extension.
    pub fn offers_extension(&self, kind: u16) -> bool {
        self.body(kind).is_some() && !is_grease(kind)
    }

    /// Whether clients offer a version: 0x0304 is TLS 1.3.
    pub fn offers_version(&self, version: u16) -> bool {
        match self.body(kind::VERSIONS) {
            Some(Body::Versions(versions)) => versions.contains(&version) && !is_grease(version),
            _ => (0x0301..=self.version.min(0x0303)).contains(&version),
        }
    }

    /// Whether servers may give it tickets.
    pub fn resumes(&self) -> bool {
        self.resumes_tls13() || self.resumes_tls12()
    }

    /// Whether servers may give it tickets of TLS 1.3, with which sessions are resumed with a new
    /// exchange of keys (RFC 8446 section 4.2.9).
    pub fn resumes_tls13(&self) -> bool {
        let modes = self.octets(kind::PSK_MODES).get(1..).unwrap_or_default();
        self.offers_version(0x0304) && modes.contains(&1)
    }

    /// Whether servers may give it tickets of TLS 1.2 (RFC 5077).
    pub fn resumes_tls12(&self) -> bool {
        self.offers_version(0x0303) && self.offers_extension(kind::TICKET)
    }

    /// The octets of the session ID of a hello with these values.
    pub(crate) fn session_id_len(&self, fresh: &Fresh<'_>) -> u8 {
        if fresh.ticket.is_some() { 32 } else { self.session_id.min(32) }
    }

    /// The groups for the exchange of keys, in order.
    pub fn groups(&self) -> impl Iterator<Item = u16> {
        let groups = match self.body(kind::GROUPS) {
            Some(Body::Groups(groups)) => &groups[..],
            _ => &[],
        };
        groups.iter().copied().filter(|group| !is_grease(*group))
    }

    /// The groups with a key in the first hello, in order.
    pub fn share_groups(&self) -> impl Iterator<Item = u16> {
        let shares = match self.body(kind::KEY_SHARE) {
            Some(Body::Shares(shares)) => &shares[..],
            _ => &[],
        };
        shares.iter().map(|(group, _)| *group).filter(|group| !is_grease(*group))
    }

    /// The protocols inside, in order (ALPN).
    pub fn alpn(&self) -> impl Iterator<Item = &[u8]> {
        let mut list = octets::Octets(self.octets(kind::ALPN).get(2..).unwrap_or_default());
        std::iter::from_fn(move || list.counted8())
    }

    /// The signature algorithms, in order.
    pub fn signature_schemes(&self) -> impl Iterator<Item = u16> {
        let all = octets::numbers(self.octets(kind::SIGNATURES).get(2..).unwrap_or_default());
        all.filter(|scheme| !is_grease(*scheme))
    }

    /// Sets the protocols inside (ALPN). Without any, the extension is left out.
    ///
    /// # Errors
    /// A protocol with no octet or more than 255, or all with more than 4,096.
    pub fn set_alpn(&mut self, protocols: &[String]) -> Result<(), HelloError> {
        let mut extensions = self.extensions.to_vec();
        if protocols.is_empty() {
            extensions.retain(|one| one.kind != kind::ALPN);
        } else {
            let body = octets::alpn(protocols.iter().map(String::as_bytes));
            let body = Body::Octets(body.ok_or(HelloError::Protocols)?);
            match extensions.iter_mut().find(|one| one.kind == kind::ALPN) {
                Some(one) => one.body = body,
                None => {
                    let fixed = extensions.iter().rev().take_while(|one| one.is_fixed()).count();
                    let at = extensions.len() - fixed;
                    extensions.insert(at, Extension { kind: kind::ALPN, body });
                }
            }
        }
        self.extensions = extensions.into();
        Ok(())
    }

    fn body(&self, kind: u16) -> Option<&Body> {
        self.extensions.iter().find(|one| one.kind == kind).map(|one| &one.body)
    }

    /// The octets of an extension that is sent unchanged.
    fn octets(&self, kind: u16) -> &[u8] {
        match self.body(kind) {
            Some(Body::Octets(octets)) => octets,
            _ => &[],
        }
    }
}

impl Extension {
    /// Whether it keeps its place if extensions are shuffled.
    fn is_fixed(&self) -> bool {
        is_grease(self.kind) || self.kind == kind::PADDING
    }
}

fn is_grease(value: u16) -> bool {
    value & 0x0f0f == 0x0a0a && value >> 8 == value & 0xff
}
