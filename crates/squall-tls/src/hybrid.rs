//! X25519MLKEM768 (draft-ietf-tls-ecdhe-mlkem) as a group of rustls, whose provider has none with
//! ring: the key of ML-KEM-768, or its answer, is in front of the key of X25519.

use rustls::{
    Error, NamedGroup, PeerMisbehaved, ProtocolVersion,
    crypto::{ActiveKeyExchange, CompletedKeyExchange, SharedSecret, SupportedKxGroup},
    ffdhe_groups::FfdheGroup,
};

use crate::client::shares::{self, KEM_KEY, Share, X25519MLKEM768};

const INVALID: Error = Error::PeerMisbehaved(PeerMisbehaved::InvalidKeyShare);

#[derive(Debug)]
pub struct Hybrid;

impl SupportedKxGroup for Hybrid {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let share = Share::new(X25519MLKEM768).ok_or(Error::FailedToGetRandomBytes)?;
        Ok(Box::new(Started(share)))
    }

    fn start_and_complete(&self, client: &[u8]) -> Result<CompletedKeyExchange, Error> {
        let (pub_key, secret) = shares::answer_hybrid(client).ok_or(INVALID)?;
        Ok(CompletedKeyExchange { group: self.name(), pub_key, secret: secret.into() })
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519MLKEM768
    }

    fn usable_for_version(&self, version: ProtocolVersion) -> bool {
        version == ProtocolVersion::TLSv1_3
    }
}

/// A client's key exchange.
struct Started(Share);

impl ActiveKeyExchange for Started {
    fn complete(self: Box<Self>, server: &[u8]) -> Result<SharedSecret, Error> {
        self.0.agree(server, |secret| SharedSecret::from(secret)).ok_or(INVALID)
    }

    /// With X25519 among the groups, its share is sent, too, as by browsers.
    fn hybrid_component(&self) -> Option<(NamedGroup, &[u8])> {
        Some((NamedGroup::X25519, &self.0.public[KEM_KEY..]))
    }

    fn complete_hybrid_component(self: Box<Self>, server: &[u8]) -> Result<SharedSecret, Error> {
        self.0.without_kem().agree(server, |secret| SharedSecret::from(secret)).ok_or(INVALID)
    }

    fn pub_key(&self) -> &[u8] {
        &self.0.public
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::X25519MLKEM768
    }
}

#[cfg(test)]
mod tests {
    use rustls::crypto::ring::kx_group;

    use super::*;

    #[test]
    fn both_ends_agree_on_a_secret_of_both_exchanges() {
        let client = Hybrid.start().unwrap();
        // draft-ietf-tls-ecdhe-mlkem section 4: octets of the shares, and of the secret.
        assert_eq!(client.pub_key().len(), 1184 + 32);
        let server = Hybrid.start_and_complete(client.pub_key()).unwrap();
        assert_eq!(server.pub_key.len(), 1088 + 32);
        let secret = client.complete(&server.pub_key).unwrap();
        assert_eq!(secret.secret_bytes(), server.secret.secret_bytes());
        assert_eq!(secret.secret_bytes().len(), 64);
    }

    #[test]
    fn a_server_without_the_group_takes_the_share_of_x25519() {
        let client = Hybrid.start().unwrap();
        let (group, public) = client.hybrid_component().unwrap();
        assert_eq!((group, public.len()), (NamedGroup::X25519, 32));
        let server = kx_group::X25519.start_and_complete(public).unwrap();
        let secret = client.complete_hybrid_component(&server.pub_key).unwrap();
        assert_eq!(secret.secret_bytes(), server.secret.secret_bytes());
    }

    #[test]
    fn invalid_shares_are_refused() {
        let valid = Hybrid.start().unwrap().pub_key().to_vec();
        let mut not_reduced = valid.clone();
        // FIPS 203 section 7.2: coefficients are below 3329.
        not_reduced[..3].fill(0xff);
        for share in [&valid[1..], &[][..], &not_reduced] {
            assert!(Hybrid.start_and_complete(share).is_err());
        }
        let client = Hybrid.start().unwrap();
        assert!(client.complete(&[0; 1088 + 31]).is_err());
    }
}
