//! Configuration of rustls: certificates, names, versions.

use std::sync::Arc;

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig,
    SignatureScheme, SupportedProtocolVersion,
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

use crate::{TlsSettings, TlsSettingsError, TlsVersion};

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

/// The configuration of clients, without resumption.
///
/// # Errors
/// Files without a certificate or key, or a key of another certificate.
pub fn client_config(settings: &TlsSettings) -> Result<ClientConfig, TlsSettingsError> {
    let provider = Arc::new(ring::default_provider());
    let alpn = alpn(settings)?;
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&versions(&settings.versions))
        .map_err(|error| wrong("versions")(error.to_string()))?;
    let verifier: Arc<dyn ServerCertVerifier> = match &settings.ca {
        Some(pem) => {
            let roots = roots(pem).map_err(wrong("ca"))?;
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider).build();
            let verifier = verifier.map_err(|error| wrong("ca")(error.to_string()))?;
            if settings.any_name { Arc::new(AnyName(verifier)) } else { verifier }
        }
        None => Arc::new(Unverified(provider)),
    };
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

/// The configuration of servers.
///
/// # Errors
/// As for [`client_config`].
pub fn server_config(settings: &TlsSettings) -> Result<ServerConfig, TlsSettingsError> {
    let provider = Arc::new(ring::default_provider());
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
    let made = rcgen::generate_simple_self_signed([name.unwrap_or("squall.test").to_owned()]);
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
