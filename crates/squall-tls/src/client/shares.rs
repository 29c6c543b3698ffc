//! Key exchanges: X25519, P-256 and P-384 by ring, and X25519MLKEM768
//! (draft-ietf-tls-ecdhe-mlkem), whose ML-KEM-768 (FIPS 203) is that of `ml-kem`.

use ml_kem::{
    DecapsulationKey768, EncapsulationKey768, Seed,
    kem::{Decapsulate, KeyExport},
    ml_kem_768::Ciphertext,
};
use ring::{
    agreement::{self, EphemeralPrivateKey, UnparsedPublicKey, agree_ephemeral},
    rand::{SecureRandom, SystemRandom},
};

pub(super) const SECP256R1: u16 = 23;
pub(super) const SECP384R1: u16 = 24;
pub(super) const X25519: u16 = 29;
pub(crate) const X25519MLKEM768: u16 = 0x11ec;

/// Octets of a key of ML-KEM-768 for encapsulation.
pub(crate) const KEM_KEY: usize = 1184;
/// Octets of an encapsulated key of ML-KEM-768.
const CIPHERTEXT: usize = 1088;

/// The client's part of a key exchange.
pub(crate) struct Share {
    pub group: u16,
    pub public: Vec<u8>,
    key: EphemeralPrivateKey,
    kem: Option<Box<DecapsulationKey768>>,
}

fn algorithm(group: u16) -> Option<&'static agreement::Algorithm> {
    match group {
        SECP256R1 => Some(&agreement::ECDH_P256),
        SECP384R1 => Some(&agreement::ECDH_P384),
        X25519 | X25519MLKEM768 => Some(&agreement::X25519),
        _ => None,
    }
}

pub(super) fn is_supported(group: u16) -> bool {
    algorithm(group).is_some()
}

/// X25519Kyber768Draft00, which is not spoken.
pub(super) const KYBER: u16 = 0x6399;

impl Share {
    /// A key that servers can read, of a group that is not spoken: X25519, then Kyber.
    pub fn kyber() -> Option<Self> {
        let mut share = Self::new(X25519MLKEM768)?;
        share.public.rotate_left(KEM_KEY);
        Some(Self { group: KYBER, ..share })
    }

    /// A new key; `None` for a group that is not spoken, or if the system has no random octets.
    pub fn new(group: u16) -> Option<Self> {
        let random = SystemRandom::new();
        let key = EphemeralPrivateKey::generate(algorithm(group)?, &random).ok()?;
        let mut public = Vec::new();
        let kem = if group == X25519MLKEM768 {
            let mut seed = [0; 64];
            random.fill(&mut seed).ok()?;
            let kem = DecapsulationKey768::from_seed(Seed::from(seed));
            public.extend_from_slice(kem.encapsulation_key().to_bytes().as_slice());
            Some(Box::new(kem))
        } else {
            None
        };
        public.extend_from_slice(key.compute_public_key().ok()?.as_ref());
        Some(Self { group, public, key, kem })
    }

    /// The X25519 share of X25519MLKEM768.
    pub fn without_kem(self) -> Self {
        Self { group: X25519, public: self.public[KEM_KEY..].to_vec(), kem: None, ..self }
    }

    /// Passes the shared secret to `then`; `None` if the server's share is not valid.
    pub fn agree<R>(self, server: &[u8], then: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let (encapsulated, point) = match &self.kem {
            Some(_) => server.split_at_checked(CIPHERTEXT)?,
            None => (&[][..], server),
        };
        let mut secret = Vec::with_capacity(64);
        if let Some(kem) = &self.kem {
            let encapsulated = <&Ciphertext>::try_from(encapsulated).ok()?;
            secret.extend_from_slice(kem.decapsulate(encapsulated).as_slice());
        }
        let point = UnparsedPublicKey::new(self.key.algorithm(), point);
        let agreed = agree_ephemeral(self.key, &point, |shared| secret.extend_from_slice(shared));
        agreed.ok()?;
        Some(then(&secret))
    }
}

/// The server's part of X25519MLKEM768: its share and the secret; `None` if the client's share is
/// not valid.
pub(crate) fn answer_hybrid(client: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (encapsulation, point) = client.split_at_checked(KEM_KEY)?;
    let encapsulation = EncapsulationKey768::new(encapsulation.try_into().ok()?).ok()?;
    let random = SystemRandom::new();
    // FIPS 203, algorithm 20: `Encaps` draws 32 octets for `Encaps_internal`.
    let mut drawn = [0; 32];
    random.fill(&mut drawn).ok()?;
    let (encapsulated, secret) = encapsulation.encapsulate_deterministic(&drawn.into());
    let (mut share, mut secret) = (encapsulated.to_vec(), secret.to_vec());
    let key = EphemeralPrivateKey::generate(&agreement::X25519, &random).ok()?;
    share.extend_from_slice(key.compute_public_key().ok()?.as_ref());
    let point = UnparsedPublicKey::new(&agreement::X25519, point);
    agree_ephemeral(key, &point, |shared| secret.extend_from_slice(shared)).ok()?;
    Some((share, secret))
}
