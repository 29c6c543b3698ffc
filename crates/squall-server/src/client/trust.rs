//! Checks a daemon's certificate, and finds the token that belongs to it.

use std::{
    fs,
    io::Write,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};
use sha2::{Digest, Sha256};
use squall::Error;
use squall_wire::to_hex;

use super::Verify;
use crate::runs::lock;

/// Verifier of the certificate of one daemon.
#[derive(Debug)]
pub struct Trust {
    provider: Arc<CryptoProvider>,
    url: String,
    /// `host:port`, the key in the file of known daemons.
    place: String,
    verify: How,
    /// Data directories of daemons on this machine. Empty if the daemon runs on another host.
    folders: Vec<PathBuf>,
    /// File of known daemons and their fingerprints.
    known: Option<PathBuf>,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
enum How {
    Known,
    Fingerprint([u8; 32]),
    /// Accept these certificates, and certificates signed by them.
    These(Vec<CertificateDer<'static>>, Arc<WebPkiServerVerifier>),
    Authorities,
    Nothing,
}

#[derive(Debug, Default)]
struct Seen {
    why_not: Option<String>,
    token: Option<String>,
}

/// TLS configuration with this verifier.
///
/// # Errors
/// None that a user can cause.
pub fn config(trust: &Arc<Trust>) -> Result<Arc<ClientConfig>, Error> {
    let config = ClientConfig::builder_with_provider(trust.provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Environment(error.to_string()))?;
    let mut config =
        config.dangerous().with_custom_certificate_verifier(trust.clone()).with_no_client_auth();
    // h2 is not offered, because the client's WebSockets use the upgrade of HTTP/1.1 (RFC 6455).
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

impl Trust {
    /// Creates a verifier.
    ///
    /// # Errors
    ///
    /// A file without certificates.
    pub fn new(url: &str, host: &str, port: u16, verify: &Verify) -> Result<Self, Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verify = match verify {
            Verify::Known => How::Known,
            Verify::Fingerprint(fingerprint) => How::Fingerprint(*fingerprint),
            Verify::Authorities => How::Authorities,
            Verify::Nothing => How::Nothing,
            Verify::File(file) => {
                let wrong = |why: &dyn std::fmt::Display| {
                    let expected =
                        "expected a file of certificates (PEM), sha256:AB:CD..., true or false";
                    Error::Usage(format!("--verify {}: {why}\n  {expected}", file.display()))
                };
                let these: Result<Vec<_>, _> =
                    CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
                let these = these.map_err(|error| wrong(&error))?;
                let mut roots = RootCertStore::empty();
                for one in &these {
                    roots.add(one.clone()).map_err(|error| wrong(&error))?;
                }
                let verifier =
                    WebPkiServerVerifier::builder_with_provider(roots.into(), provider.clone())
                        .build();
                How::These(these, verifier.map_err(|_| wrong(&"no certificate found"))?)
            }
        };
        let variable = |name: &str| {
            std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
        };
        let home = variable("HOME");
        let own = variable("XDG_STATE_HOME").or_else(|| Some(home.as_ref()?.join(".local/state")));
        // Done only for loopback, so that the token of a daemon on this machine is never sent to
        // another host.
        let folders = match is_loopback(host) {
            true => [Some("/var/lib/squall".into()), own.map(|state| state.join("squall"))]
                .into_iter()
                .flatten()
                .collect(),
            false => Vec::new(),
        };
        let config = variable("XDG_CONFIG_HOME").or_else(|| Some(home?.join(".config")));
        Ok(Self {
            provider,
            url: url.to_owned(),
            place: format!("{host}:{port}"),
            verify,
            folders,
            known: config.map(|config| config.join("squall/known_daemons")),
            seen: Mutex::default(),
        })
    }

    /// The reason why the last certificate was refused.
    pub fn why_not(&self) -> Option<String> {
        lock(&self.seen).why_not.clone()
    }

    /// The token next to the certificate, if a daemon on this machine presented it.
    pub fn token(&self) -> Option<String> {
        lock(&self.seen).token.clone()
    }

    fn decide(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<Option<String>, String> {
        let by = |verifier: &WebPkiServerVerifier| {
            verifier
                .verify_server_cert(certificate, chain, name, &[], now)
                .map(|_| ())
                .map_err(|error| error.to_string())
        };
        let found: [u8; 32] = Sha256::digest(certificate).into();
        match &self.verify {
            How::Nothing => Ok(None),
            How::Fingerprint(expected) if *expected == found => Ok(None),
            How::Fingerprint(expected) => Err(format!(
                "{}: wrong certificate\n  found    sha256:{}\n  expected \
                 sha256:{}",
                self.url,
                to_hex(&found),
                to_hex(expected)
            )),
            How::These(these, _) if these.iter().any(|one| one == certificate) => Ok(None),
            How::These(_, verifier) => {
                by(verifier).map(|()| None).map_err(|why| self.not_vouched_for(&why, &found))
            }
            How::Authorities => self
                .authorities()
                .and_then(|verifier| by(&verifier))
                .map(|()| None)
                .map_err(|why| self.not_vouched_for(&why, &found)),
            How::Known => {
                for folder in &self.folders {
                    let own = CertificateDer::from_pem_file(folder.join("cert.pem"));
                    if own.is_ok_and(|own| own == *certificate) {
                        // The certificate may be readable although the token is not.
                        let token = fs::read_to_string(folder.join("token")).unwrap_or_default();
                        return Ok(Some(token.trim().to_owned()).filter(|token| !token.is_empty()));
                    }
                }
                if self.authorities().is_ok_and(|verifier| by(&verifier).is_ok()) {
                    return Ok(None);
                }
                match &self.known {
                    Some(known) => remember(known, &self.place, &found).map(|()| None),
                    // Without a file of known daemons, every use is a first use.
                    None => Ok(None),
                }
            }
        }
    }

    fn authorities(&self) -> Result<Arc<WebPkiServerVerifier>, String> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let verifier =
            WebPkiServerVerifier::builder_with_provider(roots.into(), self.provider.clone())
                .build();
        verifier.map_err(|_| "this system has no trusted authorities".into())
    }

    fn not_vouched_for(&self, why: &str, found: &[u8; 32]) -> String {
        format!(
            "{}: its certificate is not trusted: {why}\n  found sha256:{}\n  if that is the \
             daemon's certificate, try --verify with that value",
            self.url,
            to_hex(found)
        )
    }
}

impl ServerCertVerifier for Trust {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let decided = self.decide(certificate, chain, name, now);
        let mut seen = lock(&self.seen);
        match decided {
            Ok(token) => {
                *seen = Seen { why_not: None, token };
                Ok(ServerCertVerified::assertion())
            }
            Err(why) => {
                *seen = Seen { why_not: Some(why), token: None };
                Err(CertificateError::ApplicationVerificationFailure.into())
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            certificate,
            signed,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signed,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Trust on first use: stores the fingerprint of the daemon `place`, or compares it with the stored
/// one.
///
/// # Errors
/// A fingerprint that differs from the stored one.
fn remember(known: &Path, place: &str, found: &[u8; 32]) -> Result<(), String> {
    let text = fs::read_to_string(known).unwrap_or_default();
    for (number, line) in text.lines().enumerate() {
        let Some((_, fingerprint)) = line.split_once(' ').filter(|(known, _)| *known == place)
        else {
            continue;
        };
        if self::fingerprint(fingerprint.trim()) == Some(*found) {
            return Ok(());
        }
        return Err(format!(
            "the certificate of {place} has changed since it was first seen: somebody may be \
             intercepting the connection\n  found sha256:{}\n  if the daemon was set up again, \
             remove line {} of {}",
            to_hex(found),
            number + 1,
            known.display()
        ));
    }
    // If the file cannot be written, every use is a first use.
    if let Some(folder) = known.parent() {
        _ = fs::create_dir_all(folder);
    }
    let file = fs::OpenOptions::new().create(true).append(true).open(known);
    _ = file.and_then(|mut file| {
        file.write_all(format!("{place} sha256:{}\n", to_hex(found)).as_bytes())
    });
    Ok(())
}

/// Parses the digest from `sha256:AB:CD...`: 64 hexadecimal digits.
pub fn fingerprint(text: &str) -> Option<[u8; 32]> {
    let digits = text.to_ascii_lowercase().trim_start_matches("sha256:").replace(':', "");
    if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut octets = [0; 32];
    for (i, octet) in octets.iter_mut().enumerate() {
        *octet = u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(octets)
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate() -> CertificateDer<'static> {
        rcgen::generate_simple_self_signed(["localhost".to_owned()])
            .expect("a certificate")
            .cert
            .der()
            .clone()
    }

    fn decided(trust: &Trust, certificate: &CertificateDer<'_>) -> Result<Option<String>, String> {
        trust.decide(
            certificate,
            &[],
            &ServerName::try_from("localhost").expect("a name"),
            UnixTime::now(),
        )
    }

    fn folder(name: &str) -> PathBuf {
        let folder =
            std::env::temp_dir().join(format!("squall-trust-{name}-{}", std::process::id()));
        _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    #[test]
    fn a_daemon_that_was_seen_has_to_be_the_same_and_one_of_this_machine_brings_its_token() {
        let folder = folder("known");
        let (one, other) = (certificate(), certificate());
        let mut trust =
            Trust::new("https://localhost:1", "localhost", 1, &Verify::Known).expect("it is made");
        trust.folders = vec![folder.join("none"), folder.clone()];
        trust.known = Some(folder.join("config/known_daemons"));
        assert_eq!(decided(&trust, &one), Ok(None));
        assert_eq!(decided(&trust, &one), Ok(None));
        let known =
            fs::read_to_string(folder.join("config/known_daemons")).expect("it was written");
        assert_eq!(
            (known.lines().count(), known.starts_with("localhost:1 sha256:")),
            (1, true),
            "{known}"
        );
        let why = decided(&trust, &other).expect_err("another");
        assert!(why.contains("remove line 1 of") && why.contains("known_daemons"), "{why}");
        // A certificate in the daemon's own directory is not remembered.
        let own =
            rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        fs::write(folder.join("cert.pem"), own.cert.pem()).expect("written");
        assert_eq!(decided(&trust, own.cert.der()), Ok(None), "without a token");
        fs::write(folder.join("token"), "abc\n").expect("written");
        assert_eq!(decided(&trust, own.cert.der()), Ok(Some("abc".into())));
        fs::remove_dir_all(folder).expect("removed");
    }

    #[test]
    fn an_explicit_check_replaces_the_default() {
        let folder = folder("asked");
        let (one, other) = (certificate(), certificate());
        let made = |verify| {
            Trust::new("https://localhost:1", "localhost", 1, &verify).expect("it is made")
        };
        let fingerprint = made(Verify::Fingerprint(Sha256::digest(&one).into()));
        assert_eq!(decided(&fingerprint, &one), Ok(None));
        assert!(decided(&fingerprint, &other).expect_err("another").contains("expected sha256:"));
        assert_eq!(decided(&made(Verify::Nothing), &other), Ok(None));
        assert!(
            decided(&made(Verify::Authorities), &one)
                .expect_err("nobody vouches")
                .contains("not trusted")
        );
        let own =
            rcgen::generate_simple_self_signed(["elsewhere".to_owned()]).expect("a certificate");
        let file = folder.join("cert.pem");
        fs::write(&file, own.cert.pem()).expect("written");
        let these = made(Verify::File(file.clone()));
        assert_eq!(decided(&these, own.cert.der()), Ok(None), "itself, by whatever name");
        decided(&these, &other).expect_err("another");
        fs::write(&file, "nothing").expect("written");
        let none = Trust::new("https://localhost:1", "localhost", 1, &Verify::File(file))
            .expect_err("no certificate");
        assert!(none.to_string().contains("expected a file"), "{none}");
        fs::remove_dir_all(folder).expect("removed");
    }
}
