//! Certificates of servers for the names that clients request, made when they first do so.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use rustls::{
    crypto::ring::sign::any_ecdsa_type,
    pki_types::PrivatePkcs8KeyDer,
    server::{ClientHello, ResolvesServerCert},
    sign::{CertifiedKey, SigningKey},
};
use sha2::Digest as _;

/// Maximum number of certificates that are kept, of some 500 octets each. A certificate for a
/// further name is made for each session.
const MOST: usize = 4096;

/// ECDSA over P-256, with one key for all names: a key pair costs as much as a handshake.
pub struct PerName {
    pair: rcgen::KeyPair,
    key: Arc<dyn SigningKey>,
    /// For clients that request no name.
    default: Arc<CertifiedKey>,
    made: RwLock<HashMap<String, Arc<CertifiedKey>>>,
}

impl PerName {
    /// `default`: the name for clients that request none.
    ///
    /// # Errors
    /// The machine has no random numbers, or the name is invalid.
    pub fn new(default: &str) -> Result<Self, String> {
        let cannot = |error: &dyn fmt::Display| format!("cannot make a certificate: {error}");
        let pair = rcgen::KeyPair::generate().map_err(|error| cannot(&error))?;
        let der = PrivatePkcs8KeyDer::from(pair.serialize_der());
        let key = any_ecdsa_type(&der.into()).map_err(|error| cannot(&error))?;
        let default = certificate(&pair, &key, default).map_err(|error| cannot(&error))?;
        Ok(Self { pair, key, default, made: RwLock::default() })
    }

    fn of(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        if let Some(known) = self.made.read().unwrap_or_else(PoisonError::into_inner).get(name) {
            return Some(known.clone());
        }
        let new = certificate(&self.pair, &self.key, name).ok()?;
        let mut made = self.made.write().unwrap_or_else(PoisonError::into_inner);
        if made.len() < MOST {
            made.insert(name.to_owned(), new.clone());
        }
        Some(new)
    }
}

fn certificate(
    pair: &rcgen::KeyPair,
    key: &Arc<dyn SigningKey>,
    name: &str,
) -> Result<Arc<CertifiedKey>, rcgen::Error> {
    let mut params = rcgen::CertificateParams::new([name.to_owned()])?;
    // rcgen's own is a hash of the key, which all names share. RFC 5280 section 4.1.2.2: unique and
    // positive.
    let hash = sha2::Sha256::digest([pair.public_key_raw(), name.as_bytes()].concat());
    let mut serial = hash[..20].to_vec();
    serial[0] = serial[0] & 0x7f | 0x40;
    params.serial_number = Some(serial.into());
    let made = params.self_signed(pair)?;
    Ok(Arc::new(CertifiedKey::new(vec![made.der().clone()], key.clone())))
}

/// Prints no key.
impl fmt::Debug for PerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PerName")
    }
}

impl ResolvesServerCert for PerName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        match hello.server_name() {
            Some(name) => self.of(name),
            None => Some(self.default.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_one_certificate_and_not_all_are_kept() {
        let all = PerName::new("squall.test").unwrap();
        let (a, b) = (all.of("a.test").unwrap(), all.of("b.test").unwrap());
        assert_ne!(a.cert, b.cert);
        assert!(Arc::ptr_eq(&a, &all.of("a.test").unwrap()));
        assert!(a.cert[0].windows(6).any(|octets| octets == b"a.test"));
        let full = (0..MOST).map(|nth| (nth.to_string(), a.clone())).collect();
        *all.made.write().unwrap() = full;
        assert!(all.of("c.test").is_some());
        assert_eq!(all.made.read().unwrap().len(), MOST);
    }
}
