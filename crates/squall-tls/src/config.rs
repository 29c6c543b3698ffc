//! Configuration of rustls: certificates, names, versions.

use std::sync::Arc;

#[cfg(feature = "hello")]
use rustls::time_provider::DefaultTimeProvider;
use rustls::{
    CertificateError, CipherSuite, ClientConfig, DigitallySignedStruct, NamedGroup, RootCertStore,
    ServerConfig, SignatureScheme, SupportedCipherSuite, SupportedProtocolVersion,
    client::{
        Resumption, WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, ring},
    pki_types::{
        CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime, pem::PemObject,
    },
    server::WebPkiClientVerifier,
    version::{TLS12, TLS13},
};

#[cfg(feature = "hello")]
use crate::{Hello, HelloClientConfig, client::Verifier};
use crate::{TlsSettings, TlsSettingsError, TlsVersion, per_name::PerName, shares::Reused};

/// The name in a certificate for servers that have none.
const DEFAULT_NAME: &str = "squall.test";

fn wrong(setting: &'static str) -> impl Fn(String) -> TlsSettingsError {
    move |text| TlsSettingsError { setting, text }
}

/// The name that clients request.
///
/// # Errors
/// An invalid name.
pub fn server_name(
    settings: &TlsSettings,
) -> Result<Option<ServerName<'static>>, TlsSettingsError> {
    let name = settings.server_name.clone().map(ServerName::try_from).transpose();
    name.map_err(|_| {
        let found = settings.server_name.as_deref().unwrap_or_default();
        wrong("server_name")(format!(
            "{found:?} is not a host name; expected www.example.net, or an address"
        ))
    })
}

fn alpn(settings: &TlsSettings) -> Result<Vec<Vec<u8>>, TlsSettingsError> {
    if let Some(name) = settings.alpn.iter().find(|name| !(1..=255).contains(&name.len())) {
        let text = format!("{name:?} has {} octets; expected 1 to 255", name.len());
        return Err(wrong("alpn")(text));
    }
    Ok(settings.alpn.iter().map(|name| name.clone().into_bytes()).collect())
}

/// The algorithms of the settings.
///
/// # Errors
/// A cipher suite or group that the library does not have, or none for the versions.
fn provider(settings: &TlsSettings) -> Result<Arc<CryptoProvider>, TlsSettingsError> {
    let mut all = ring::default_provider();
    // The library prefers AES-256 with SHA-384, where browsers and OpenSSL's servers for TLS 1.3
    // mostly agree on AES-128. A quarter of a handshake's CPU time would be SHA-384 of the key
    // schedule, for which the library has no code for AMD's instructions.
    all.cipher_suites.sort_by_key(|suite| !is_aes_128(*suite));
    if !settings.ciphers.is_empty() {
        let name_of = |suite: &SupportedCipherSuite| iana(suite.suite());
        all.cipher_suites = chosen("ciphers", &settings.ciphers, &all.cipher_suites, name_of)?;
        for (version, word) in [(&TLS12, "1.2"), (&TLS13, "1.3")] {
            let is_wanted = versions(&settings.versions).contains(&version);
            if is_wanted && all.cipher_suites.iter().all(|suite| suite.version() != version) {
                let text = format!("none of them is for TLS {word}, which is among the versions");
                return Err(wrong("ciphers")(text));
            }
        }
    }
    if !settings.groups.is_empty() {
        // It is not among the default groups because it more than doubles the cost of an exchange.
        #[cfg(feature = "hello")]
        all.kx_groups.push(&crate::hybrid::Hybrid);
        all.kx_groups = chosen("groups", &settings.groups, &all.kx_groups, |group| {
            format!("{:?}", group.name()).to_lowercase()
        })?;
        let is_for_1_2 = all.kx_groups.iter().any(|group| group.usable_for_version(TLS12.version));
        if versions(&settings.versions).contains(&&TLS12) && !is_for_1_2 {
            let text = "none of them is for TLS 1.2, which is among the versions";
            return Err(wrong("groups")(text.into()));
        }
    }
    if settings.fresh_key_shares && !settings.resumption {
        let text = "without resumption, key shares are always new\n  try leaving it out";
        return Err(wrong("fresh_key_shares")(text.into()));
    }
    if settings.resumption && !settings.fresh_key_shares {
        for group in all.kx_groups.iter_mut().filter(|group| group.name() == NamedGroup::X25519) {
            *group = &Reused;
        }
    }
    Ok(Arc::new(all))
}

fn is_aes_128(suite: SupportedCipherSuite) -> bool {
    iana(suite.suite()).contains("AES_128")
}

/// `TLS_AES_128_GCM_SHA256`: the library has other names for suites of TLS 1.3.
fn iana(suite: CipherSuite) -> String {
    format!("{suite:?}").replace("TLS13_", "TLS_")
}

/// The items of `all` with these names, in the order of the names.
fn chosen<T: Copy>(
    setting: &'static str,
    names: &[String],
    all: &[T],
    name_of: impl Fn(&T) -> String,
) -> Result<Vec<T>, TlsSettingsError> {
    let one = |name: &String| {
        let found = all.iter().find(|one| plain(&name_of(one)) == plain(name)).copied();
        found.ok_or_else(|| {
            let known = all.iter().map(&name_of).collect::<Vec<_>>().join(", ");
            wrong(setting)(format!("{name:?} is not supported; expected one of {known}"))
        })
    };
    names.iter().map(one).collect()
}

/// A name without what differs between IANA, OpenSSL and NIST:
/// `TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256` and `ECDHE-RSA-AES128-GCM-SHA256`, `secp256r1` and `P-256`.
fn plain(name: &str) -> String {
    let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let name = name.to_ascii_lowercase().replace("with", "");
    let name = name.strip_prefix("tls").unwrap_or(&name);
    match name {
        "p256" | "prime256v1" => "secp256r1".into(),
        "p384" => "secp384r1".into(),
        // OpenSSL leaves the hash out, except for suites of TLS 1.3.
        _ => name.strip_suffix("sha256").filter(|of| of.contains("chacha")).unwrap_or(name).into(),
    }
}

/// The configuration of clients, without resumption.
///
/// # Errors
/// Files without a certificate or key, or a key of another certificate.
pub fn client_config(settings: &TlsSettings) -> Result<ClientConfig, TlsSettingsError> {
    let provider = provider(settings)?;
    let alpn = alpn(settings)?;
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&versions(&settings.versions))
        .map_err(|error| wrong("versions")(error.to_string()))?;
    let verifier = verifier(settings, &provider)?.unwrap_or(Arc::new(Unverified(provider)));
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    let mut client = match &settings.client_certificate {
        Some((chain, key)) => {
            let chain = certificates(chain).map_err(wrong("client_certificate"))?;
            let key = private_key(key).map_err(wrong("client_key"))?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| wrong("client_key")(unfit(&error)))?
        }
        None => builder.with_no_client_auth(),
    };
    client.alpn_protocols = alpn;
    client.resumption = Resumption::disabled();
    Ok(client)
}

/// The verifier of servers, if the settings have authorities.
fn verifier(
    settings: &TlsSettings,
    provider: &Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn ServerCertVerifier>>, TlsSettingsError> {
    let Some(pem) = &settings.ca else { return Ok(None) };
    let roots = roots(pem).map_err(wrong("ca"))?;
    let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
    let verifier = verifier.map_err(|error| wrong("ca")(error.to_string()))?;
    let verifier: Arc<dyn ServerCertVerifier> =
        if settings.any_name { Arc::new(AnyName(verifier)) } else { verifier };
    Ok(Some(verifier))
}

/// The configuration of clients that send `hello`, which has their protocols, suites and groups.
///
/// # Errors
/// Authorities that cannot be read.
#[cfg(feature = "hello")]
pub fn hello_client_config(
    settings: &TlsSettings,
    hello: Arc<Hello>,
) -> Result<HelloClientConfig, TlsSettingsError> {
    let provider = Arc::new(ring::default_provider());
    let verifier = verifier(settings, &provider)?.map(|chain| Verifier {
        chain,
        signatures: provider.signature_verification_algorithms,
        time: Arc::new(DefaultTimeProvider),
    });
    Ok(HelloClientConfig::new(hello, verifier))
}

/// The configuration of servers.
///
/// # Errors
/// As for [`client_config`].
pub fn server_config(settings: &TlsSettings) -> Result<ServerConfig, TlsSettingsError> {
    let provider = provider(settings)?;
    let alpn = alpn(settings)?;
    let (chain, key) = match &settings.certificate {
        Some((chain, key)) => (
            certificates(chain).map_err(wrong("certificate"))?,
            private_key(key).map_err(wrong("key"))?,
        ),
        None => self_signed(settings.server_name.as_deref()).map_err(wrong("certificate"))?,
    };
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&versions(&settings.versions))
        .map_err(|error| wrong("versions")(error.to_string()))?;
    let builder = match &settings.client_ca {
        Some(pem) => {
            let roots = roots(pem).map_err(wrong("client_ca"))?;
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
            builder.with_client_cert_verifier(
                verifier.map_err(|error| wrong("client_ca")(error.to_string()))?,
            )
        }
        None => builder.with_no_client_auth(),
    };
    let mut server =
        builder.with_single_cert(chain, key).map_err(|error| wrong("key")(unfit(&error)))?;
    if settings.certificate_per_name {
        if settings.certificate.is_some() {
            let text = "it makes certificates, but one is given\n  try leaving out certificate";
            return Err(wrong("certificate_per_name")(text.into()));
        }
        let default = settings.server_name.as_deref().unwrap_or(DEFAULT_NAME);
        let made = PerName::new(default).map_err(wrong("certificate_per_name"))?;
        server.cert_resolver = Arc::new(made);
    }
    server.alpn_protocols = alpn;
    // Unused tickets would cost two messages and their keys per session.
    server.send_tls13_tickets = 0;
    server.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    if settings.resumption {
        // Each flow uses one ticket and gets one. Each further ticket would cost the server a
        // message, its keys and its encryption, and the client as much: with two tickets, a
        // resumed session cost more than a full handshake.
        server.send_tls13_tickets = 1;
        server.ticketer =
            ring::Ticketer::new().map_err(|error| wrong("resumption")(error.to_string()))?;
    }
    Ok(server)
}

fn unfit(error: &rustls::Error) -> String {
    format!("it does not fit the certificate: {error}")
}

fn versions(wanted: &[TlsVersion]) -> Vec<&'static SupportedProtocolVersion> {
    let wanted = if wanted.is_empty() { &[TlsVersion::Tls13] } else { wanted };
    let version = |version: &TlsVersion| match version {
        TlsVersion::Tls12 => &TLS12,
        TlsVersion::Tls13 => &TLS13,
    };
    wanted.iter().map(version).collect()
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(chain) if chain.is_empty() => {
            Err("it contains no certificate; expected PEM: BEGIN CERTIFICATE".into())
        }
        Ok(chain) => Ok(chain),
        Err(error) => Err(format!("it is not a PEM file: {error}; expected BEGIN CERTIFICATE")),
    }
}

fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    let expected = "expected PEM: BEGIN PRIVATE KEY, BEGIN RSA PRIVATE KEY or BEGIN EC PRIVATE \
                    KEY, not encrypted";
    PrivateKeyDer::from_pem_slice(pem)
        .map_err(|error| format!("it contains no key: {error}; {expected}"))
}

fn roots(pem: &[u8]) -> Result<Arc<RootCertStore>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem)? {
        roots
            .add(certificate)
            .map_err(|error| format!("cannot use a certificate in it: {error}"))?;
    }
    Ok(Arc::new(roots))
}

/// ECDSA over P-256, whose signatures are the fastest with this library.
fn self_signed(
    name: Option<&str>,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), String> {
    let made = rcgen::generate_simple_self_signed([name.unwrap_or(DEFAULT_NAME).to_owned()]);
    let made = made.map_err(|error| format!("cannot make a certificate: {error}"))?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    Ok((vec![made.cert.der().clone()], key.into()))
}

/// Accepts any certificate and any signature: a load generator measures a server's capacity, and
/// does not need proof of its identity.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Verifies the chain of certificates, but not the name.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        use CertificateError::{NotValidForName, NotValidForNameContext};
        let Self(verifier) = self;
        match verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp, now) {
            // The name is the last that is verified.
            Err(rustls::Error::InvalidCertificate(
                NotValidForName | NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            result => result,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suites(ciphers: &[&str], versions: &[TlsVersion]) -> Result<Vec<String>, String> {
        let ciphers = ciphers.iter().map(ToString::to_string).collect();
        let settings = TlsSettings { ciphers, versions: versions.into(), ..TlsSettings::default() };
        let all = provider(&settings).map_err(|error| error.to_string())?;
        Ok(all.cipher_suites.iter().map(|suite| iana(suite.suite())).collect())
    }

    #[test]
    fn ciphers_are_those_of_the_settings_in_their_order() {
        use TlsVersion::{Tls12, Tls13};
        let both = [Tls12, Tls13];
        let of_openssl = ["ECDHE-RSA-CHACHA20-POLY1305", "TLS_AES_256_GCM_SHA384"];
        let expected = ["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "TLS_AES_256_GCM_SHA384"];
        assert_eq!(suites(&of_openssl, &both).unwrap(), expected);
        let of_openssl = ["ecdhe-ecdsa-aes128-gcm-sha256"];
        let expected = ["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"];
        assert_eq!(suites(&of_openssl, &[Tls12]).unwrap(), expected);
        let why = suites(&of_openssl, &both).unwrap_err();
        assert!(why.contains("none of them is for TLS 1.3"), "{why}");
        let why = suites(&["RC4-MD5"], &[]).unwrap_err();
        assert!(why.contains("\"RC4-MD5\"") && why.contains("TLS_AES_128_GCM_SHA256"), "{why}");
        // AES-128 is first, and nothing is left out.
        let all = suites(&[], &[]).unwrap();
        assert_eq!(all[0], "TLS_AES_128_GCM_SHA256");
        assert_eq!(all.len(), ring::default_provider().cipher_suites.len());
    }

    #[test]
    fn groups_have_the_names_of_tls_and_of_nist() {
        let groups = |groups: &[&str]| {
            let groups = groups.iter().map(ToString::to_string).collect();
            let all = provider(&TlsSettings { groups, ..TlsSettings::default() })?;
            Ok(all.kx_groups.iter().map(|group| group.name()).collect::<Vec<_>>())
        };
        use rustls::NamedGroup::{X25519, secp256r1, secp384r1};
        let found: Result<_, TlsSettingsError> = groups(&["P-384", "secp256r1", "X25519"]);
        assert_eq!(found.unwrap(), [secp384r1, secp256r1, X25519]);
        #[cfg(feature = "hello")]
        {
            use rustls::NamedGroup::X25519MLKEM768;
            let found: Result<_, TlsSettingsError> = groups(&["X25519MLKEM768", "x25519"]);
            assert_eq!(found.unwrap(), [X25519MLKEM768, X25519]);
            let groups = vec!["x25519mlkem768".to_owned()];
            let versions = vec![TlsVersion::Tls12, TlsVersion::Tls13];
            let both = TlsSettings { groups, versions, ..TlsSettings::default() };
            let why = provider(&both).unwrap_err();
            assert!(why.text.contains("none of them is for TLS 1.2"), "{why}");
        }
        let why = groups(&["ffdhe2048"]).unwrap_err();
        assert_eq!(why.setting, "groups");
        assert!(why.text.contains("x25519, secp256r1, secp384r1"), "{why}");
    }
}
