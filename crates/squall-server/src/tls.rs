//! The certificate: given, or made on the first start.

use std::{fs, io, path::Path, sync::Arc};

use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use squall::Error;

use crate::{Settings, auth::write_secret};

/// # Errors
/// Files that cannot be read or written, or hold no certificate and its key.
pub fn config(settings: &Settings) -> Result<Arc<ServerConfig>, Error> {
    let (certificate, key) = match &settings.certificate {
        Some((certificate, key)) => (certificate.clone(), key.clone()),
        None => {
            let (certificate, key) = (settings.data.join("cert.pem"), settings.data.join("key.pem"));
            if !certificate.exists() || !key.exists() {
                make(settings, &certificate, &key)?;
            }
            (certificate, key)
        }
    };
    let wrong = |file: &Path, why: &dyn std::fmt::Display| Error::Environment(format!("{}: {why}", file.display()));
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(&certificate).and_then(Iterator::collect);
    let chain = chain.map_err(|error| wrong(&certificate, &error))?;
    let secret = PrivateKeyDer::from_pem_file(&key).map_err(|error| wrong(&key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, secret));
    let mut config = config.map_err(|error| wrong(&certificate, &error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn make(settings: &Settings, certificate: &Path, key: &Path) -> Result<(), Error> {
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    names.extend(settings.names.iter().cloned());
    let listen = settings.listen.ip();
    if !listen.is_unspecified() && !listen.is_loopback() {
        names.push(listen.to_string());
    }
    let made = rcgen::generate_simple_self_signed(names)
        .map_err(|error| Error::Usage(format!("no certificate can be made: {error}")))?;
    let written = write_secret(key, made.signing_key.serialize_pem().as_bytes())
        .and_then(|()| fs::write(certificate, made.cert.pem()));
    written.map_err(|error: io::Error| Error::Environment(format!("{}: {error}", certificate.display())))
}
