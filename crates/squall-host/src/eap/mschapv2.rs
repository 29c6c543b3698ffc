//! The calculations of MS-CHAP-V2 (RFC 2759).

use des::{
    Des,
    cipher::{BlockEncrypt, KeyInit, generic_array::GenericArray},
};
use md4::Md4;
use sha1::{Digest, Sha1};

/// What a peer proves and expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Proof {
    /// NT-Response: the peer knows the password.
    pub response: [u8; 24],
    /// `S=` and 40 hexadecimal digits: the authenticator knows it, too.
    pub authenticator: String,
}

/// The proof for the challenges of the authenticator and of the peer (RFC 2759 section 8).
/// `user` may begin with the name of a domain and a backslash.
pub(super) fn prove(
    user: &[u8],
    password: &str,
    authenticator_challenge: &[u8; 16],
    peer_challenge: &[u8; 16],
) -> Proof {
    // The challenge has the name without a domain (section 4).
    let user = user.rsplit(|octet| *octet == b'\\').next().unwrap_or(user);
    let challenge = Sha1::new_with_prefix(peer_challenge)
        .chain_update(authenticator_challenge)
        .chain_update(user)
        .finalize();
    let challenge = &challenge[..8];
    let unicode: Vec<u8> = password.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let password_hash: [u8; 16] = Md4::digest(&unicode).into();
    let response = challenge_response(challenge, &password_hash);
    let digest = Sha1::new_with_prefix(Md4::digest(password_hash))
        .chain_update(response)
        .chain_update(SERVER_TO_CLIENT)
        .finalize();
    let digest = Sha1::new_with_prefix(digest).chain_update(challenge).chain_update(PAD).finalize();
    let hex: String = digest.iter().map(|octet| format!("{octet:02X}")).collect();
    Proof { response, authenticator: format!("S={hex}") }
}

/// Whether a message of success has the proof of the authenticator.
pub(super) fn is_authentic(message: &[u8], proof: &Proof) -> bool {
    let expected = proof.authenticator.as_bytes();
    message.get(..expected.len()).is_some_and(|found| found.eq_ignore_ascii_case(expected))
}

/// The reason of a failure, by the code after `E=` (RFC 2759 section 6).
pub(super) fn failure(message: &[u8]) -> &'static str {
    let text = String::from_utf8_lossy(message);
    let code = text.split_ascii_whitespace().find_map(|word| word.strip_prefix("E="));
    match code {
        Some("646") => "restricted_hours",
        Some("647") => "account_disabled",
        Some("648") => "password_expired",
        Some("649") => "no_permission",
        Some("691") => "wrong_password",
        _ => "rejected",
    }
}

/// Magic constants of section 8.7.
const SERVER_TO_CLIENT: &[u8] = b"Magic server to client signing constant";
const PAD: &[u8] = b"Pad to make it do more than one iteration";

/// ChallengeResponse of section 8.5: the challenge, encrypted with three keys of the hash.
fn challenge_response(challenge: &[u8], hash: &[u8; 16]) -> [u8; 24] {
    let mut keys = [0; 21];
    keys[..16].copy_from_slice(hash);
    let mut response = [0; 24];
    for (key, part) in keys.chunks_exact(7).zip(response.chunks_exact_mut(8)) {
        part.copy_from_slice(challenge);
        let key = with_parity(key);
        Des::new(GenericArray::from_slice(&key)).encrypt_block(GenericArray::from_mut_slice(part));
    }
    response
}

/// 56 bits as a key of DES, each octet of which ends with a bit that DES ignores.
fn with_parity(key: &[u8]) -> [u8; 8] {
    let mut bits = [0; 8];
    bits[1..].copy_from_slice(key);
    let bits = u64::from_be_bytes(bits);
    std::array::from_fn(|i| ((bits >> (49 - 7 * i)) as u8 & 0x7f) << 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn octets<const N: usize>(hex: &str) -> [u8; N] {
        let digits: Vec<_> = hex.split_ascii_whitespace().collect();
        std::array::from_fn(|i| u8::from_str_radix(digits[i], 16).unwrap())
    }

    /// RFC 2759 section 9.2.
    #[test]
    fn the_example_of_the_rfc_gives_its_responses() {
        let authenticator = octets("5B 5D 7C 7D 7B 3F 2F 3E 3C 2C 60 21 32 26 26 28");
        let peer = octets("21 40 23 24 25 5E 26 2A 28 29 5F 2B 3A 33 7C 7E");
        let proof = prove(b"User", "clientPass", &authenticator, &peer);
        let response = "82 30 9E CD 8D 70 8B 5E A0 8F AA 39 81 CD 83 54 42 33 11 4A 3D 85 D6 DF";
        assert_eq!(proof.response, octets(response));
        assert_eq!(proof.authenticator, "S=407A5589115FD0D6209F510FE9C04566932CDA56");
        assert_eq!(prove(b"BIGCO\\User", "clientPass", &authenticator, &peer), proof);
        assert!(is_authentic(b"S=407a5589115FD0D6209F510FE9C04566932CDA56 M=OK", &proof));
        assert!(!is_authentic(b"S=407A5589115FD0D6209F510FE9C04566932CDA57", &proof));
        assert!(!is_authentic(b"S=407A", &proof));
    }

    /// RFC 2759 section 9.3: the first key of DES with its parity bits.
    #[test]
    fn keys_of_des_are_seven_bits_in_each_octet() {
        let key = with_parity(&octets::<7>("FC 15 6A F7 ED CD 6C"));
        assert_eq!(key, octets("FD 0B 5B 5E 7F 6E 34 D9").map(|octet: u8| octet & 0xfe));
    }

    #[test]
    fn codes_of_failures_have_words() {
        assert_eq!(failure(b"E=691 R=1 C=00 V=3 M=Bad"), "wrong_password");
        assert_eq!(failure(b"E=648 R=0 V=3"), "password_expired");
        assert_eq!(failure(b""), "rejected");
    }
}
