//! Sessions with servers of rustls, in memory.

use std::{
    io::{Read, Write},
    sync::Arc,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use ml_kem::{B32, EncapsulationKey768, Key};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{
    HandshakeKind, NamedGroup, RootCertStore, ServerConfig, ServerConnection,
    crypto::{
        ActiveKeyExchange, CompletedKeyExchange, CryptoProvider, SupportedKxGroup,
        ring::{self, kx_group},
    },
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
    time_provider::DefaultTimeProvider,
    version::{TLS12, TLS13},
};
use squall_tls::{
    Body, Extension, Hello, HelloClient, HelloClientConfig, HelloClientError, TlsSettings,
    TlsVersion, hello_client_config, server_config,
};

use crate::server::Secrets;

const TLS13_SUITES: [(u16, &str); 3] = [
    (0x1301, "TLS13_AES_128_GCM_SHA256"),
    (0x1302, "TLS13_AES_256_GCM_SHA384"),
    (0x1303, "TLS13_CHACHA20_POLY1305_SHA256"),
];
/// Those for the certificates of these tests; openssl has the others in tests/interop/tls.py.
const TLS12_SUITES: [(u16, &str); 3] = [
    (0xc02b, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
    (0xc02c, "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
    (0xcca9, "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
];
const GROUPS: [u16; 3] = [29, 23, 24];

fn hello(suites: &[u16], groups: &[u16], shares: &[(u16, u16)]) -> Hello {
    let octets = |kind, body: &[u8]| Extension { kind, body: Body::Octets(body.into()) };
    let extension = |kind, body| Extension { kind, body };
    let tls13 = suites.iter().any(|suite| suite >> 8 == 0x13);
    let mut extensions = vec![
        extension(0, Body::ServerName),
        octets(5, &[1, 0, 0, 0, 0]),
        extension(10, Body::Groups(groups.into())),
        octets(11, &[1, 0]),
        octets(13, &[0, 6, 4, 3, 8, 4, 5, 3]),
        octets(16, &[0, 12, 2, b'h', b'2', 8, b'h', b't', b't', b'p', b'/', b'1', b'.', b'1']),
        octets(23, &[]),
        octets(35, &[]),
    ];
    if tls13 {
        extensions.push(extension(43, Body::Versions([0x0304, 0x0303].into())));
        extensions.push(octets(45, &[1, 1]));
        extensions.push(extension(51, Body::Shares(shares.into())));
    }
    Hello {
        record_version: 0x0301,
        version: 0x0303,
        session_id: if tls13 { 32 } else { 0 },
        suites: suites.into(),
        compressions: [0].into(),
        extensions: extensions.into(),
        shuffle: false,
    }
}

/// A hello with each suite and group that the client supports.
fn full() -> Hello {
    let suites: Vec<u16> =
        TLS13_SUITES.iter().chain(&TLS12_SUITES).map(|(suite, _)| *suite).collect();
    hello(&suites, &GROUPS, &[(29, 32)])
}

pub struct Authority(CertifiedIssuer<'static, KeyPair>);

fn pem(kind: &str, der: &[u8]) -> Vec<u8> {
    let text = STANDARD.encode(der);
    format!("-----BEGIN {kind}-----\n{text}\n-----END {kind}-----\n").into_bytes()
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub fn pem(&self) -> Vec<u8> {
        pem("CERTIFICATE", self.0.der())
    }

    /// A certificate for `name`, and its key.
    fn issue(&self, name: &str) -> (Vec<u8>, Vec<u8>) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        (pem("CERTIFICATE", certificate.der()), pem("PRIVATE KEY", &key.serialize_der()))
    }
}

struct Ends {
    client: HelloClient,
    server: ServerConnection,
    secrets: [Arc<Secrets>; 2],
    /// Octets that are delivered at once.
    step: usize,
    incoming: Vec<u8>,
    to_server: Vec<u8>,
    received: Vec<u8>,
    received_by_server: Vec<u8>,
    server_error: Option<rustls::Error>,
    closed: bool,
}

impl Ends {
    fn new(hello: Hello, settings: &TlsSettings, server: ServerConfig) -> Self {
        Self::of(hello_client_config(settings, Arc::new(hello)).unwrap(), server)
    }

    fn of(mut config: HelloClientConfig, mut server: ServerConfig) -> Self {
        let secrets = [Arc::new(Secrets::default()), Arc::new(Secrets::default())];
        server.key_log = secrets[1].clone();
        server.alpn_protocols = vec![b"h2".to_vec()];
        config.key_log = secrets[0].clone();
        let client = HelloClient::new(Arc::new(config), "a.test".try_into().unwrap());
        let mut server = ServerConnection::new(Arc::new(server)).unwrap();
        server.set_buffer_limit(None);
        Self {
            client,
            server,
            secrets,
            step: usize::MAX,
            incoming: vec![],
            to_server: vec![],
            received: vec![],
            received_by_server: vec![],
            server_error: None,
            closed: false,
        }
    }

    /// Delivers octets until both sides are silent.
    fn run(&mut self) -> Result<(), HelloClientError> {
        let mut result = Ok(());
        loop {
            let mut from_server = vec![];
            while self.server.wants_write() {
                self.server.write_tls(&mut from_server).unwrap();
            }
            // At least once, for the hello.
            for part in [&[][..]].into_iter().chain(from_server.chunks(self.step)) {
                self.incoming.extend_from_slice(part);
                let progress = self.client.progress(
                    &mut self.incoming,
                    &mut self.to_server,
                    &mut self.received,
                );
                self.incoming.drain(..progress.used);
                self.closed |= progress.peer_closed;
                result = progress.result;
            }
            let to_server = std::mem::take(&mut self.to_server);
            if from_server.is_empty() && to_server.is_empty() {
                return result;
            }
            for mut part in to_server.chunks(self.step.min(4096)) {
                while !part.is_empty() {
                    self.server.read_tls(&mut part).unwrap();
                    let processed = self.server.process_new_packets();
                    self.server_error = self.server_error.take().or(processed.err());
                    let mut reader = self.server.reader();
                    let mut text = [0; 4096];
                    while let Ok(octets @ 1..) = reader.read(&mut text) {
                        self.received_by_server.extend_from_slice(&text[..octets]);
                    }
                    if self.server_error.is_some() {
                        break;
                    }
                }
            }
        }
    }

    /// Sends data in both directions.
    fn exchange(&mut self, len: usize) {
        let of = |seed: usize| -> Vec<u8> { (seed..seed + len).map(|i| (i / 7) as u8).collect() };
        let (request, answer) = (of(1), of(1000));
        for part in request.chunks(1 << 14) {
            assert!(self.client.encrypt(Some(part), &mut self.to_server));
        }
        self.server.writer().write_all(&answer).unwrap();
        (self.received, self.received_by_server) = (vec![], vec![]);
        self.run().unwrap();
        assert_eq!(self.server_error, None);
        assert!(self.received == answer && self.received_by_server == request);
    }
}

fn server(versions: &[TlsVersion], cipher: &str, group: &str) -> ServerConfig {
    let list = |name: &str| match name {
        "" => vec![],
        name => vec![name.replace("TLS13", "TLS")],
    };
    let (ciphers, groups, versions) = (list(cipher), list(group), versions.to_vec());
    server_config(&TlsSettings { versions, ciphers, groups, ..TlsSettings::default() }).unwrap()
}

#[test]
fn each_suite_and_group_carries_data_in_whole_records_and_octet_by_octet() {
    let secrets_of_13 = [
        "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
        "SERVER_HANDSHAKE_TRAFFIC_SECRET",
        "CLIENT_TRAFFIC_SECRET_0",
        "SERVER_TRAFFIC_SECRET_0",
        "EXPORTER_SECRET",
    ];
    for (version, suites, secrets) in [
        (TlsVersion::Tls13, TLS13_SUITES, &secrets_of_13[..]),
        (TlsVersion::Tls12, TLS12_SUITES, &["CLIENT_RANDOM"]),
    ] {
        for ((suite, cipher), group) in suites.into_iter().zip(GROUPS) {
            for step in [1, 1000, usize::MAX] {
                let hello = hello(&[suite], &[group], &[(group, 32)]);
                let server = server(&[version], cipher, "");
                let mut ends = Ends::new(hello, &TlsSettings::default(), server);
                ends.step = step;
                ends.run().unwrap();
                assert!(!ends.client.is_handshaking() && !ends.server.is_handshaking());
                assert_eq!(ends.client.cipher(), cipher);
                assert_eq!(ends.client.protocol(), Some(&b"h2"[..]));
                assert_eq!(ends.server.server_name(), Some("a.test"));
                for label in secrets {
                    let [client, server] = ends.secrets.each_ref().map(|side| side.get(label));
                    assert!(client.is_some() && client == server, "{label}");
                }
                ends.exchange(40_000);
                ends.server.send_close_notify();
                ends.run().unwrap();
                assert!(ends.closed);
                assert!(ends.client.encrypt(None, &mut ends.to_server));
                ends.run().unwrap();
                assert_eq!(ends.server.reader().read(&mut [0]).unwrap(), 0, "close_notify");
            }
        }
    }
}

#[test]
fn a_server_may_choose_an_older_version_or_ask_for_another_group() {
    let settings = TlsSettings::default();
    let tls12 = server(&[TlsVersion::Tls12], "", "");
    let mut ends = Ends::new(full(), &settings, tls12);
    ends.run().unwrap();
    assert_eq!(ends.server.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_2));
    ends.exchange(100);
    for group in ["secp256r1", "secp384r1"] {
        // Suites with both hashes, of which the first hello gets one.
        for cipher in ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384"] {
            let mut ends = Ends::new(full(), &settings, server(&[], cipher, group));
            ends.run().unwrap();
            let kind = ends.server.handshake_kind();
            assert_eq!(kind, Some(HandshakeKind::FullWithHelloRetryRequest));
            ends.exchange(100);
        }
    }
}

#[test]
fn keys_are_updated_and_tickets_are_ignored() {
    let settings = TlsSettings { resumption: true, ..TlsSettings::default() };
    for version in [TlsVersion::Tls13, TlsVersion::Tls12] {
        let settings = TlsSettings { versions: vec![version], ..settings.clone() };
        let server = server_config(&settings).unwrap();
        let mut ends = Ends::new(full(), &TlsSettings::default(), server);
        ends.run().unwrap();
        ends.exchange(1000);
        if version == TlsVersion::Tls13 {
            for _ in 0..3 {
                ends.server.refresh_traffic_keys().unwrap();
                ends.exchange(20_000);
            }
        }
    }
}

#[test]
fn sessions_are_resumed_with_the_tickets_of_earlier_ones() {
    let server = |cipher: &str, groups: &[&str]| {
        let groups = groups.iter().map(ToString::to_string).collect();
        let ciphers = vec![cipher.to_owned()];
        let settings = TlsSettings { resumption: true, ciphers, groups, ..TlsSettings::default() };
        server_config(&settings).unwrap()
    };
    // P-256 needs a second hello.
    for groups in [&[][..], &["secp256r1"]] {
        for cipher in ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384"] {
            let settings = TlsSettings::default();
            let mut client = hello_client_config(&settings, Arc::new(full())).unwrap();
            client.keep_tickets(Arc::new(DefaultTimeProvider));
            let server_config = server(cipher, groups);
            for resumed in [false, true, true] {
                let mut ends = Ends::of(client.clone(), server_config.clone());
                ends.run().unwrap();
                assert_eq!(ends.client.is_resumed(), resumed, "{cipher} {groups:?}");
                let kind = ends.server.handshake_kind();
                assert_eq!(kind == Some(HandshakeKind::Resumed), resumed, "{kind:?}");
                for label in ["CLIENT_TRAFFIC_SECRET_0", "SERVER_HANDSHAKE_TRAFFIC_SECRET"] {
                    let [client, server] = ends.secrets.each_ref().map(|side| side.get(label));
                    assert!(client.is_some() && client == server, "{label}");
                }
                ends.exchange(1000);
            }
            // A suite with the other hash cannot go on from these.
            let other = if cipher.ends_with("256") { "384" } else { "128" };
            let other = TLS13_SUITES.iter().find(|(_, name)| name.contains(other)).unwrap().1;
            let mut other = server(&other.replace("TLS13", "TLS"), groups);
            other.ticketer = server_config.ticketer.clone();
            let mut ends = Ends::of(client, other);
            if groups.is_empty() {
                ends.run().unwrap();
                assert!(!ends.client.is_resumed());
                ends.exchange(1000);
            } else {
                // The second hello leaves the ticket out (RFC 8446 section 4.1.4), as BoringSSL's
                // does. rustls wants at least one there.
                let alert = rustls::AlertDescription::MissingExtension;
                assert_eq!(ends.run(), Err(HelloClientError::Alert(alert)));
            }
        }
    }
}

#[test]
fn sessions_of_tls_1_2_are_resumed_with_their_tickets() {
    let server = |cipher: &str| {
        let (versions, ciphers) = (vec![TlsVersion::Tls12], vec![cipher.to_owned()]);
        let settings =
            TlsSettings { resumption: true, versions, ciphers, ..TlsSettings::default() };
        server_config(&settings).unwrap()
    };
    let aes128 = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256";
    for cipher in [aes128, "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"] {
        // As browsers send it, and without the session ID of TLS 1.3.
        for session_id in [32, 0] {
            let hello = Hello { session_id, ..Hello::named("chrome-131").unwrap() };
            let mut client = hello_client_config(&TlsSettings::default(), Arc::new(hello)).unwrap();
            client.keep_tickets(Arc::new(DefaultTimeProvider));
            let server_config = server(cipher);
            for resumed in [false, true, true] {
                let mut ends = Ends::of(client.clone(), server_config.clone());
                ends.step = if resumed { 1 } else { usize::MAX };
                ends.run().unwrap();
                assert_eq!(ends.client.is_resumed(), resumed, "{cipher} {session_id}");
                let kind = ends.server.handshake_kind();
                assert_eq!(kind == Some(HandshakeKind::Resumed), resumed, "{kind:?}");
                let [client, server] = ends.secrets.each_ref().map(|of| of.get("CLIENT_RANDOM"));
                assert!(client.is_some() && client == server);
                ends.exchange(1000);
            }
            // A server with other keys does not know the ticket, and one of TLS 1.3 needs none.
            let mut ends = Ends::of(client.clone(), server(cipher));
            ends.run().unwrap();
            assert!(!ends.client.is_resumed());
            ends.exchange(1000);
            let both = TlsSettings { resumption: true, ..TlsSettings::default() };
            let mut ends = Ends::of(client, server_config_of(&both));
            ends.run().unwrap();
            assert!(!ends.client.is_resumed() && ends.client.cipher().starts_with("TLS13"));
            ends.exchange(1000);
        }
    }
}

fn server_config_of(settings: &TlsSettings) -> ServerConfig {
    server_config(settings).unwrap()
}

#[test]
fn certificates_and_signatures_are_verified_if_there_is_an_authority() {
    let authority = Authority::new();
    let certificate = Some(authority.issue("a.test"));
    let verified = TlsSettings { ca: Some(authority.pem()), ..TlsSettings::default() };
    let another = TlsSettings { ca: Some(Authority::new().pem()), ..TlsSettings::default() };
    let any_name = TlsSettings { any_name: true, ..verified.clone() };
    let other_name = Some(authority.issue("b.test"));
    for version in [TlsVersion::Tls13, TlsVersion::Tls12] {
        for (certificate, client, expected) in [
            (&certificate, &verified, None),
            (&other_name, &any_name, None),
            (&other_name, &verified, Some("not valid for name")),
            (&certificate, &another, Some("invalid peer certificate")),
            (&None, &verified, Some("invalid peer certificate")),
        ] {
            let settings = TlsSettings {
                certificate: certificate.clone(),
                versions: vec![version],
                ..TlsSettings::default()
            };
            let server = server_config(&settings).unwrap();
            let mut ends = Ends::new(full(), client, server);
            match (ends.run(), expected) {
                (Ok(()), None) => ends.exchange(100),
                (Err(HelloClientError::Certificate(why)), Some(words)) => {
                    assert!(why.contains(words), "{why}");
                    let alert = rustls::AlertDescription::BadCertificate;
                    assert_eq!(ends.server_error, Some(rustls::Error::AlertReceived(alert)));
                }
                (result, expected) => panic!("{result:?}, expected {expected:?}"),
            }
        }
    }
}

#[test]
fn a_signature_by_another_key_is_refused() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (chain, _) = authority.issue("a.test");
    let (_, key) = other.issue("a.test");
    for version in [&TLS13, &TLS12] {
        let provider = Arc::new(ring::default_provider());
        let key = PrivateKeyDer::from_pem_slice(&key).unwrap();
        let key = provider.key_provider.load_private_key(key).unwrap();
        let chain = vec![CertificateDer::from_pem_slice(&chain).unwrap()];
        // Without the check of `with_single_cert`, that the key is that of the certificate.
        let certified = rustls::sign::CertifiedKey::new(chain, key);
        let server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(certified)));
        let settings = TlsSettings { ca: Some(authority.pem()), ..TlsSettings::default() };
        let mut ends = Ends::new(full(), &settings, server);
        let why = ends.run().unwrap_err().to_string();
        assert!(why.contains("invalid signature"), "{why}");
    }
}

#[test]
fn a_request_for_a_certificate_gets_none() {
    let authority = Authority::new();
    let (chain, key) = authority.issue("a.test");
    for (version, optional) in [(&TLS13, true), (&TLS12, true), (&TLS13, false), (&TLS12, false)] {
        let provider = Arc::new(ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&authority.pem()).unwrap()).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
        let verifier = if optional { verifier.allow_unauthenticated() } else { verifier };
        let chain = vec![CertificateDer::from_pem_slice(&chain).unwrap()];
        let server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(chain, PrivateKeyDer::from_pem_slice(&key).unwrap())
            .unwrap();
        let mut ends = Ends::new(full(), &TlsSettings::default(), server);
        let result = ends.run();
        if optional {
            result.unwrap();
            ends.exchange(100);
        } else {
            assert!(matches!(result, Err(HelloClientError::Alert(_))), "{result:?}");
        }
    }
}

/// The server's side of X25519MLKEM768, which rustls does not have with ring.
#[derive(Debug)]
struct Hybrid;

impl SupportedKxGroup for Hybrid {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, rustls::Error> {
        unreachable!("it is a server's");
    }

    fn start_and_complete(&self, client: &[u8]) -> Result<CompletedKeyExchange, rustls::Error> {
        let (kem, point) = client.split_at(1184);
        let kem: &Key<EncapsulationKey768> = kem.try_into().unwrap();
        let kem = EncapsulationKey768::new(kem).unwrap();
        let (encapsulated, shared) = kem.encapsulate_deterministic(&B32::from([5; 32]));
        let point = kx_group::X25519.start_and_complete(point)?;
        Ok(CompletedKeyExchange {
            group: self.name(),
            pub_key: [encapsulated.as_slice(), &point.pub_key].concat(),
            secret: [shared.as_slice(), point.secret.secret_bytes()].concat().into(),
        })
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519MLKEM768
    }
}

#[test]
fn x25519mlkem768_is_spoken_in_the_first_hello_and_in_the_second() {
    let (chain, key) = Authority::new().issue("a.test");
    for shares in [&[(0x11ec, 1216), (29, 32)][..], &[(29, 32)]] {
        let provider = CryptoProvider { kx_groups: vec![&Hybrid], ..ring::default_provider() };
        let chain = vec![CertificateDer::from_pem_slice(&chain).unwrap()];
        let server = ServerConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, PrivateKeyDer::from_pem_slice(&key).unwrap())
            .unwrap();
        let hello = hello(&[0x1301], &[0x11ec, 29], shares);
        let mut ends = Ends::new(hello, &TlsSettings::default(), server);
        ends.run().unwrap();
        ends.exchange(100);
    }
}

#[test]
fn an_alert_of_the_server_has_its_name() {
    let server = server(&[], "TLS_AES_256_GCM_SHA384", "");
    let mut ends = Ends::new(hello(&[0x1301], &[29], &[(29, 32)]), &TlsSettings::default(), server);
    assert_eq!(ends.run().unwrap_err().to_string(), "received fatal alert: HandshakeFailure");
}
