//! Methods of EAP (RFC 3748 section 5).

#[cfg(feature = "tls")]
mod fragments;
#[cfg(feature = "tls")]
mod mschapv2;
#[cfg(feature = "tls")]
mod tunnel;
#[cfg(not(feature = "tls"))]
#[path = "eap/no_tunnel.rs"]
mod tunnel;

#[cfg(feature = "tls")]
pub use fragments::{Fragment, FragmentReader};
pub use tunnel::TlsClient;
pub(crate) use tunnel::Tunnel;

/// How a peer authenticates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum EapMethod {
    /// MD5-Challenge (RFC 3748 section 5.4).
    #[default]
    Md5,
    /// EAP-TLS with the certificate of the settings (RFC 5216, 9190).
    Tls(TlsClient),
    /// PEAPv0 with EAP-MSCHAPv2 inside (draft-kamath-pppext-peapv0-00,
    /// draft-kamath-pppext-eap-mschapv2-02).
    Peap(TlsClient),
    /// EAP-TTLS with PAP inside (RFC 5281 section 11.2.5).
    TtlsPap(TlsClient),
    /// EAP-TTLS with MS-CHAP-V2 inside (RFC 5281 section 11.2.4).
    TtlsMschapV2(TlsClient),
}

impl EapMethod {
    /// The type of its packets, and their name for counters.
    pub(crate) fn kind(&self) -> (u8, &'static str) {
        match self {
            Self::Md5 => (4, "md5"),
            Self::Tls(_) => (13, "tls"),
            Self::TtlsPap(_) | Self::TtlsMschapV2(_) => (21, "ttls"),
            Self::Peap(_) => (25, "peap"),
        }
    }
}

/// Identity and password of a host.
#[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "only methods with TLS read them"))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Credentials<'a> {
    pub identity: &'a [u8],
    pub password: &'a str,
}

#[cfg(all(test, feature = "tls"))]
mod tests;
