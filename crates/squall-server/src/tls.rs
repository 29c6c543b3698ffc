//! The TLS certificate: provided by the user, or made on the first start and renewed before it
//! expires. A running daemon reloads changed files, so that a renewal needs no restart.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, RwLock},
    time::{Duration, SystemTime},
};

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose,
};
use rustls::{
    ServerConfig,
    crypto::CryptoProvider,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject},
    },
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use squall::Error;
use squall_units::Cannot;
use x509_parser::{certificate::X509Certificate, prelude::FromDer};

use crate::{
    Settings,
    auth::{write_secret, write_whole},
    runs::lock,
};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Validity of the daemon's own certificate: two years.
const VALIDITY: Duration = Duration::from_secs(730 * 24 * 3600);
/// Time before the end of the validity at which the certificate is renewed.
const RENEW_BEFORE: Duration = Duration::from_secs(30 * 24 * 3600);

/// The certificate for new connections.
pub struct Certificate {
    certificate: PathBuf,
    key: PathBuf,
    /// Names in the daemon's own certificate; `None` if the user provided one.
    own: Option<Vec<String>>,
    provider: Arc<CryptoProvider>,
    shown: RwLock<Arc<CertifiedKey>>,
    /// Modification times of the files when they were last read.
    read: Mutex<[Option<SystemTime>; 2]>,
}

impl Certificate {
    /// Loads or makes the certificate.
    ///
    /// # Errors
    ///
    /// Files that cannot be read or written, or that hold no certificate with its key.
    pub fn open(settings: &Settings, now: SystemTime) -> Result<Arc<Self>, Error> {
        let (certificate, key, own) = match &settings.certificate {
            Some((certificate, key)) => (certificate.clone(), key.clone(), None),
            None => (
                settings.data.join("cert.pem"),
                settings.data.join("key.pem"),
                Some(names(settings)),
            ),
        };
        if let Some(names) = own.as_ref().filter(|names| !is_usable(&certificate, &key, names, now))
        {
            make(names, &certificate, &key, now)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let read = Mutex::new(changed(&certificate, &key));
        let shown = RwLock::new(Arc::new(read_pair(&certificate, &key, &provider)?));
        Ok(Arc::new(Self { certificate, key, own, provider, shown, read }))
    }

    /// The TLS configuration.
    ///
    /// # Errors
    ///
    /// If the crypto provider lacks algorithms that TLS needs.
    pub fn config(self: &Arc<Self>) -> Result<Arc<ServerConfig>, Error> {
        let config = ServerConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions();
        let config = config.map_err(|error| Error::Environment(format!("TLS: {error}")))?;
        let mut config = config.with_no_client_auth().with_cert_resolver(self.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// Renews the daemon's own certificate if it expires soon, and loads changed files. Returns
    /// true if new connections get another certificate than before.
    ///
    /// # Errors
    /// Files that cannot be written, or that hold no certificate with its key. New connections then
    /// still get the previous certificate.
    pub fn renew(&self, now: SystemTime) -> Result<bool, Error> {
        if let Some(names) =
            self.own.as_ref().filter(|names| !is_usable(&self.certificate, &self.key, names, now))
        {
            make(names, &self.certificate, &self.key, now)?;
        }
        let changed = changed(&self.certificate, &self.key);
        let mut read = lock(&self.read);
        if *read == changed {
            return Ok(false);
        }
        // Set this before the attempt, so that an invalid file is reported once and not at each
        // check.
        *read = changed;
        let pair = Arc::new(read_pair(&self.certificate, &self.key, &self.provider)?);
        *self.shown.write().unwrap_or_else(std::sync::PoisonError::into_inner) = pair;
        Ok(true)
    }

    /// A warning if a certificate provided by the user expires within [`RENEW_BEFORE`].
    pub fn expiry_warning(&self, now: SystemTime) -> Option<String> {
        let end = times(&fs::read(&self.certificate).ok()?)?.1;
        let ends = self.own.is_none() && end < now + RENEW_BEFORE;
        ends.then(|| format!("{} expires on {}", self.certificate.display(), day(end)))
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.shown.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone())
    }
}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificate")
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

fn read_pair(
    certificate: &Path,
    key: &Path,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, Error> {
    let wrong = |file: &Path, why: &dyn std::fmt::Display| {
        Error::Environment(Cannot::new(format!("use {}", file.display()), why).to_string())
    };
    let chain: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect);
    let unread = |file: &Path, error: pem::Error| match error {
        pem::Error::Io(error) => Error::from(Cannot::read(file, &error)),
        other => wrong(file, &other),
    };
    let chain = chain.map_err(|error| unread(certificate, error))?;
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| unread(key, error))?;
    let pair = CertifiedKey::from_der(chain, secret, provider)
        .map_err(|error| wrong(certificate, &error))?;
    // Only a mismatch is an error, because rustls reports `Unknown` for keys from which it cannot
    // derive the public key.
    match pair.keys_match() {
        Err(error @ rustls::Error::InconsistentKeys(rustls::InconsistentKeys::KeyMismatch)) => {
            Err(wrong(certificate, &error))
        }
        _ => Ok(pair),
    }
}

fn changed(certificate: &Path, key: &Path) -> [Option<SystemTime>; 2] {
    [certificate, key].map(|path| fs::metadata(path).and_then(|about| about.modified()).ok())
}

/// Names for the daemon's own certificate.
fn names(settings: &Settings) -> Vec<String> {
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    names.extend(settings.names.iter().cloned());
    let listen = settings.listen.ip();
    if !listen.is_unspecified() && !listen.is_loopback() {
        names.push(listen.to_string());
    }
    names
}

/// Whether the daemon's own certificate covers all of `names` and does not expire soon.
fn is_usable(certificate: &Path, key: &Path, names: &[String], now: SystemTime) -> bool {
    let Ok(pem) = fs::read(certificate) else { return false };
    // Keep a file that is not a certificate, because the user may have put it there. Loading it
    // then reports the error.
    let Some((_, end)) = times(&pem) else { return key.exists() };
    key.exists()
        && end > now + RENEW_BEFORE
        && names.iter().all(|name| is_for(&pem, name).unwrap_or(true))
}

/// Start and end of the validity; `None`: not a certificate.
fn times(pem: &[u8]) -> Option<(SystemTime, SystemTime)> {
    let der = CertificateDer::from_pem_slice(pem).ok()?;
    let (_, parsed) = X509Certificate::from_der(&der).ok()?;
    let at = |time: x509_parser::time::ASN1Time| {
        SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(time.timestamp()).unwrap_or(0))
    };
    Some((at(parsed.validity().not_before), at(parsed.validity().not_after)))
}

fn is_for(pem: &[u8], name: &str) -> Option<bool> {
    use x509_parser::extensions::GeneralName;
    let der = CertificateDer::from_pem_slice(pem).ok()?;
    let (_, parsed) = X509Certificate::from_der(&der).ok()?;
    let names = parsed.subject_alternative_name().ok()??;
    Some(names.value.general_names.iter().any(|known| {
        match (known, name.parse::<std::net::IpAddr>()) {
            (GeneralName::DNSName(known), Err(_)) => known.eq_ignore_ascii_case(name),
            (GeneralName::IPAddress(octets), Ok(std::net::IpAddr::V4(v4))) => {
                *octets == v4.octets()
            }
            (GeneralName::IPAddress(octets), Ok(std::net::IpAddr::V6(v6))) => {
                *octets == v6.octets()
            }
            _ => false,
        }
    }))
}

fn make(names: &[String], certificate: &Path, key: &Path, now: SystemTime) -> Result<(), Error> {
    let wrong = |error: rcgen::Error| Error::Usage(format!("cannot make a certificate: {error}"));
    let mut params = CertificateParams::new(names).map_err(wrong)?;
    // Use the host's public name, or else its own name, because browsers and `openssl x509` show
    // it.
    let host = host_name();
    let known =
        names.iter().find(|name| *name != "localhost" && name.parse::<std::net::IpAddr>().is_err());
    // X.520 limits a common name to 64 characters.
    let subject: String = known.unwrap_or(&host).chars().take(64).collect();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "Squall");
    params.distinguished_name.push(DnType::CommonName, subject);
    // Start a day earlier, because the clocks of clients may be slow.
    params.not_before = (now - DAY).into();
    params.not_after = (now + VALIDITY).into();
    // An ECDSA key only signs, so the certificate permits no other use (RFC 5280 section 4.2.1.3).
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let pair = KeyPair::generate().map_err(wrong)?;
    let made = params.self_signed(&pair).map_err(wrong)?;
    // Write the key first, otherwise a crash between the two could leave a valid certificate with
    // the old key.
    let written = write_secret(key, pair.serialize_pem().as_bytes())
        .and_then(|()| write_whole(certificate, made.pem().as_bytes(), 0o666));
    Ok(written.map_err(|error: io::Error| Cannot::write(certificate, &error))?)
}

/// The name of the host, or `localhost` if it has none.
fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "localhost".into() } else { name.into() }
}

fn day(at: SystemTime) -> String {
    humantime::format_rfc3339_seconds(at).to_string()[..10].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(name: &str) -> Settings {
        let data = std::env::temp_dir().join(format!("squall-tls-{name}-{}", std::process::id()));
        _ = fs::remove_dir_all(&data);
        fs::create_dir_all(&data).expect("a folder");
        Settings::of_test(data)
    }

    #[test]
    fn it_is_good_for_two_years_and_made_anew_in_the_last_month() {
        let settings = settings("renewed");
        let now = SystemTime::now();
        let certificate = Certificate::open(&settings, now).expect("it is made");
        let file = settings.data.join("cert.pem");
        let first = fs::read(&file).expect("it is there");
        let (from, to) = times(&first).expect("a certificate");
        assert!(from <= now && to.duration_since(from).expect("later") < VALIDITY + 2 * DAY);
        assert!(to > now + VALIDITY - DAY);
        let der = CertificateDer::from_pem_slice(&first).expect("PEM");
        let (_, parsed) = X509Certificate::from_der(&der).expect("a certificate");
        let subject = parsed.subject().to_string();
        let host = host_name();
        assert!(
            subject.contains("O=Squall") && subject.contains(&format!("CN={host}")),
            "{subject}"
        );
        assert!(
            !certificate.renew(now + VALIDITY - 31 * DAY).expect("it can"),
            "it is good for a while"
        );
        assert_eq!(fs::read(&file).expect("there"), first);
        // Wait longer than the resolution of the file system's times, so that the change is
        // visible.
        std::thread::sleep(Duration::from_millis(20));
        assert!(certificate.renew(now + VALIDITY - 29 * DAY).expect("it can"));
        let second = fs::read(&file).expect("there");
        assert!(times(&second).expect("a certificate").1 > to + 600 * DAY);
        let shown = certificate.shown.read().expect("whole").cert[0].clone();
        assert_eq!(
            shown,
            CertificateDer::from_pem_slice(&second).expect("PEM"),
            "new connections see it"
        );
        fs::remove_dir_all(settings.data).expect("removed");
    }

    #[test]
    fn a_name_that_is_new_is_in_it_and_one_that_was_given_is_left_alone() {
        let mut settings = settings("names");
        let now = SystemTime::now();
        Certificate::open(&settings, now).expect("it is made");
        let file = settings.data.join("cert.pem");
        let first = fs::read(&file).expect("it is there");
        settings.names = vec!["lab7.example".into()];
        settings.listen = ([192, 0, 2, 7], 8443).into();
        Certificate::open(&settings, now).expect("another is made");
        let second = fs::read(&file).expect("it is there");
        for (name, before, after) in [
            ("localhost", true, true),
            ("::1", true, true),
            ("lab7.example", false, true),
            ("192.0.2.7", false, true),
        ] {
            assert_eq!(
                (is_for(&first, name), is_for(&second, name)),
                (Some(before), Some(after)),
                "{name}"
            );
        }
        let given = settings.data.join("given.pem");
        let key = settings.data.join("given.key");
        fs::copy(&file, &given).expect("copied");
        fs::copy(settings.data.join("key.pem"), &key).expect("copied");
        settings.certificate = Some((given.clone(), key.clone()));
        settings.names.push("other.example".into());
        let certificate = Certificate::open(&settings, now).expect("it is taken");
        assert!(!certificate.renew(now + VALIDITY).expect("as it is"));
        assert_eq!(certificate.expiry_warning(now), None);
        assert!(
            certificate
                .expiry_warning(now + VALIDITY - 10 * DAY)
                .is_some_and(|warning| warning.contains("expires on 2"))
        );
        assert_eq!(fs::read(&given).expect("there"), second);
        // A key that does not match is reported, and the previous certificate stays.
        let shown = certificate.shown.read().expect("whole").clone();
        std::thread::sleep(Duration::from_millis(20));
        fs::write(&given, &first).expect("written");
        assert!(certificate.renew(now).is_err());
        assert!(Arc::ptr_eq(&shown, &certificate.shown.read().expect("whole")));
        fs::remove_dir_all(settings.data).expect("removed");
    }
}
