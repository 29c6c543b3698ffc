//! Configuration of TLS sessions: certificates, names, versions.

mod session;

use std::{
    collections::{HashMap, VecDeque},
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

use rustls::{
    ClientConfig, DigitallySignedStruct, NamedGroup, RootCertStore, ServerConfig, SignatureScheme,
    SupportedProtocolVersion,
    client::{
        ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, ring},
    pki_types::{
        CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime, pem::PemObject,
    },
    server::WebPkiClientVerifier,
    version::{TLS12, TLS13},
};

pub(crate) use session::{Layer, SESSION};

use crate::{TlsSettings, TlsSettingsError, TlsVersion};

/// Initial configuration for the sessions of both sides, shared by all flows and workers.
#[derive(Clone, Debug)]
pub struct Tls {
    settings: Arc<TlsSettings>,
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
    pub(crate) server_name: Option<ServerName<'static>>,
}

/// Compares the settings: a generated certificate differs each time.
impl PartialEq for Tls {
    fn eq(&self, other: &Self) -> bool {
        self.settings == other.settings
    }
}

/// Maximum number of servers whose tickets a worker stores, and of tickets per server.
const REMEMBERED: usize = 1024;
const TICKETS: usize = 64;

impl Tls {
    /// # Errors
    /// An invalid name, files without a certificate or key, or a key of another certificate.
    pub fn new(settings: &TlsSettings) -> Result<Self, TlsSettingsError> {
        let wrong = |setting| move |text: String| TlsSettingsError { setting, text };
        let provider = Arc::new(ring::default_provider());
        let versions = versions(&settings.versions);
        let server_name = settings.server_name.clone().map(ServerName::try_from).transpose();
        let server_name = server_name.map_err(|_| {
            let found = settings.server_name.as_deref().unwrap_or_default();
            wrong("server_name")(format!(
                "{found:?} is not a host name; expected www.example.net, or an address"
            ))
        })?;
        let alpn: Vec<Vec<u8>> =
            settings.alpn.iter().map(|name| name.clone().into_bytes()).collect();
        if let Some(name) = settings.alpn.iter().find(|name| !(1..=255).contains(&name.len())) {
            return Err(wrong("alpn")(format!(
                "{name:?} has {} octets; expected 1 to 255",
                name.len()
            )));
        }

        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&versions)
            .map_err(|error| wrong("versions")(error.to_string()))?;
        let builder = match &settings.ca {
            Some(pem) => builder.with_root_certificates(roots(pem).map_err(wrong("ca"))?),
            None => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Unverified(provider.clone()))),
        };
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
        client.alpn_protocols = alpn.clone();
        client.resumption = Resumption::disabled();

        let (chain, key) = match &settings.certificate {
            Some((chain, key)) => (
                certificates(chain).map_err(wrong("certificate"))?,
                private_key(key).map_err(wrong("key"))?,
            ),
            None => self_signed(settings.server_name.as_deref()).map_err(wrong("certificate"))?,
        };
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&versions)
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
        let settings = Arc::new(settings.clone());
        Ok(Self { settings, client: Arc::new(client), server: Arc::new(server), server_name })
    }

    /// A copy with its own ticket store, so that workers do not wait for each other.
    pub(crate) fn for_worker(&self) -> Self {
        let mut own = self.clone();
        if self.settings.resumption {
            let mut client = ClientConfig::clone(&self.client);
            client.resumption = Resumption::store(Arc::new(Tickets::default()));
            own.client = Arc::new(client);
        }
        own
    }

    /// The server name that a client requests (SNI).
    pub(crate) fn name_of(&self, server: IpAddr) -> ServerName<'static> {
        self.server_name.clone().unwrap_or_else(|| ServerName::IpAddress(server.into()))
    }
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

/// The tickets of a worker's clients. rustls's own store keeps 8 tickets per server, too few for
/// many concurrent users.
#[derive(Debug, Default)]
struct Tickets(Mutex<HashMap<ServerName<'static>, Known>>);

/// Tickets of one server.
#[derive(Debug, Default)]
struct Known {
    group: Option<NamedGroup>,
    session: Option<Tls12ClientSessionValue>,
    tickets: VecDeque<Tls13ClientSessionValue>,
}

impl Tickets {
    /// The entry of a server; `None` if there are too many servers.
    fn with<T>(
        &self,
        server: &ServerName<'_>,
        make: bool,
        then: impl FnOnce(&mut Known) -> T,
    ) -> Option<T> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let server = server.to_owned();
        if make && all.len() < REMEMBERED {
            return Some(then(all.entry(server).or_default()));
        }
        all.get_mut(&server).map(then)
    }
}

impl ClientSessionStore for Tickets {
    fn set_kx_hint(&self, server: ServerName<'static>, group: NamedGroup) {
        self.with(&server, true, |known| known.group = Some(group));
    }

    fn kx_hint(&self, server: &ServerName<'_>) -> Option<NamedGroup> {
        self.with(server, false, |known| known.group)?
    }

    fn set_tls12_session(&self, server: ServerName<'static>, session: Tls12ClientSessionValue) {
        self.with(&server, true, |known| known.session = Some(session));
    }

    fn tls12_session(&self, server: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.with(server, false, |known| known.session.clone())?
    }

    fn remove_tls12_session(&self, server: &ServerName<'static>) {
        self.with(server, false, |known| known.session = None);
    }

    fn insert_tls13_ticket(&self, server: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        self.with(&server, true, |known| {
            if known.tickets.len() == TICKETS {
                known.tickets.pop_front();
            }
            known.tickets.push_back(ticket);
        });
    }

    fn take_tls13_ticket(&self, server: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.with(server, false, |known| known.tickets.pop_back())?
    }
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
