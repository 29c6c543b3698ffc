//! Keys of sessions: the key schedules of TLS 1.3 (RFC 8446 section 7) and 1.2 (RFC 5246 sections 5
//! and 8.1, RFC 7627), and records that are protected with them.

use ring::{
    aead::{self, Aad, LessSafeKey, Nonce, UnboundKey},
    digest, hkdf, hmac,
};

use super::{HelloClientError, broken};

/// A cipher suite that the client supports. All have an AEAD, and suites of TLS 1.2 have ECDHE.
#[derive(Debug)]
pub(super) struct Suite {
    pub id: u16,
    /// As rustls names it, so that reports do not depend on the client.
    pub name: &'static str,
    hash: &'static hkdf::Algorithm,
    aead: &'static aead::Algorithm,
}

const fn suite(
    id: u16,
    name: &'static str,
    hash: &'static hkdf::Algorithm,
    aead: &'static aead::Algorithm,
) -> Suite {
    Suite { id, name, hash, aead }
}

static SUITES: [Suite; 9] = [
    suite(0x1301, "TLS13_AES_128_GCM_SHA256", &hkdf::HKDF_SHA256, &aead::AES_128_GCM),
    suite(0x1302, "TLS13_AES_256_GCM_SHA384", &hkdf::HKDF_SHA384, &aead::AES_256_GCM),
    suite(0x1303, "TLS13_CHACHA20_POLY1305_SHA256", &hkdf::HKDF_SHA256, &aead::CHACHA20_POLY1305),
    suite(
        0xc02b,
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        &hkdf::HKDF_SHA256,
        &aead::AES_128_GCM,
    ),
    suite(
        0xc02c,
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        &hkdf::HKDF_SHA384,
        &aead::AES_256_GCM,
    ),
    suite(0xc02f, "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", &hkdf::HKDF_SHA256, &aead::AES_128_GCM),
    suite(0xc030, "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", &hkdf::HKDF_SHA384, &aead::AES_256_GCM),
    suite(
        0xcca8,
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        &hkdf::HKDF_SHA256,
        &aead::CHACHA20_POLY1305,
    ),
    suite(
        0xcca9,
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        &hkdf::HKDF_SHA256,
        &aead::CHACHA20_POLY1305,
    ),
];

impl Suite {
    /// The suite with this number, if it is one of TLS 1.3 or not, as `tls13` says.
    pub fn find(id: u16, tls13: bool) -> Option<&'static Self> {
        SUITES.iter().find(|suite| suite.id == id && suite.is_of_tls13() == tls13)
    }

    fn is_of_tls13(&self) -> bool {
        self.id >> 8 == 0x13
    }

    pub fn digest(&self) -> &'static digest::Algorithm {
        self.hash.hmac_algorithm().digest_algorithm()
    }

    fn hmac(&self, key: &[u8], data: &[&[u8]]) -> Secret {
        let mut context = hmac::Context::with_key(&hmac::Key::new(self.hash.hmac_algorithm(), key));
        data.iter().for_each(|data| context.update(data));
        Secret::new(context.sign().as_ref())
    }

    /// HKDF-Expand-Label (RFC 8446 section 7.1). `out`: at most 48 octets.
    fn expand_label(&self, secret: &Secret, label: &str, context: &[u8], out: &mut [u8]) {
        let lengths = [out.len(), 6 + label.len(), context.len()];
        let [out_len, label_len, context_len] =
            lengths.map(|len| u8::try_from(len).expect("hashes and labels are short"));
        let info: [&[u8]; 6] =
            [&[0, out_len], &[label_len], b"tls13 ", label.as_bytes(), &[context_len], context];
        let prk = hkdf::Prk::new_less_safe(*self.hash, secret.as_ref());
        let filled = prk.expand(&info, Length(out.len())).and_then(|okm| okm.fill(out));
        filled.expect("shorter than 255 hashes");
    }

    /// As long as a hash.
    fn expand(&self, secret: &Secret, label: &str, context: &[u8]) -> Secret {
        let mut expanded = Secret { octets: [0; MOST], len: self.digest().output_len() };
        self.expand_label(secret, label, context, &mut expanded.octets[..expanded.len]);
        expanded
    }

    /// The verify_data of a Finished (RFC 8446 section 4.4.4).
    pub fn finished(&self, traffic_secret: &Secret, transcript: &[u8]) -> Secret {
        let key = self.expand(traffic_secret, "finished", &[]);
        self.hmac(key.as_ref(), &[transcript])
    }

    /// The early secret (RFC 8446 section 7.1).
    fn early(&self, psk: Option<&Secret>) -> Secret {
        let zeros = &[0; MOST][..self.digest().output_len()];
        self.hmac(zeros, &[psk.map_or(zeros, |psk| psk.as_ref())])
    }

    /// The key of a ticket (RFC 8446 section 4.6.1). `nonce`: at most 255 octets.
    pub fn psk(&self, resumption: &Secret, nonce: &[u8]) -> Secret {
        self.expand(resumption, "resumption", nonce)
    }

    /// The binder of a ticket (RFC 8446 section 4.2.11.2). `transcript`: up to the identities of the
    /// hello.
    pub fn binder(&self, psk: &Secret, transcript: &[u8]) -> Secret {
        let empty = digest::digest(self.digest(), &[]);
        let key = self.expand(&self.early(Some(psk)), "res binder", empty.as_ref());
        self.finished(&key, transcript)
    }

    /// The PRF of TLS 1.2 (RFC 5246 section 5).
    pub fn prf(&self, secret: &[u8], label: &str, seed: &[&[u8]], out: &mut [u8]) {
        let seed = [&[label.as_bytes()][..], seed].concat();
        let mut a = self.hmac(secret, &seed);
        for part in out.chunks_mut(self.digest().output_len()) {
            let block = self.hmac(secret, &[&[a.as_ref()][..], &seed].concat());
            part.copy_from_slice(&block.as_ref()[..part.len()]);
            a = self.hmac(secret, &[a.as_ref()]);
        }
    }
}

struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// The length of the longest hash, and of a master secret of TLS 1.2.
const MOST: usize = 48;

/// A secret or a hash.
#[derive(Clone)]
pub(super) struct Secret {
    octets: [u8; MOST],
    len: usize,
}

impl Secret {
    pub fn new(from: &[u8]) -> Self {
        let mut octets = [0; MOST];
        octets[..from.len()].copy_from_slice(from);
        Self { octets, len: from.len() }
    }
}

impl AsRef<[u8]> for Secret {
    fn as_ref(&self) -> &[u8] {
        &self.octets[..self.len]
    }
}

/// The handshake secret and those that are made from it (RFC 8446 section 7.1).
pub(super) struct Schedule {
    suite: &'static Suite,
    handshake: Secret,
    empty: digest::Digest,
}

/// Secrets of both directions.
pub(super) struct Traffic {
    pub client: Secret,
    pub server: Secret,
}

impl Schedule {
    /// `psk`: the key of the session that is resumed.
    pub fn new(suite: &'static Suite, psk: Option<&Secret>, shared: &[u8]) -> Self {
        let empty = digest::digest(suite.digest(), &[]);
        let early = suite.early(psk);
        let derived = suite.expand(&early, "derived", empty.as_ref());
        let handshake = suite.hmac(derived.as_ref(), &[shared]);
        Self { suite, handshake, empty }
    }

    /// `transcript`: from ClientHello to ServerHello.
    pub fn handshake_traffic(&self, transcript: &[u8]) -> Traffic {
        Traffic {
            client: self.suite.expand(&self.handshake, "c hs traffic", transcript),
            server: self.suite.expand(&self.handshake, "s hs traffic", transcript),
        }
    }

    /// Secrets of application data, and the exporter's. `transcript`: from ClientHello to the
    /// server's Finished.
    pub fn application_traffic(&self, transcript: &[u8]) -> (Traffic, Secret) {
        let master = self.master();
        let traffic = Traffic {
            client: self.suite.expand(&master, "c ap traffic", transcript),
            server: self.suite.expand(&master, "s ap traffic", transcript),
        };
        (traffic, self.suite.expand(&master, "exp master", transcript))
    }

    /// The secret of the session's tickets. `transcript`: from ClientHello to the client's Finished.
    pub fn resumption(&self, transcript: &[u8]) -> Secret {
        self.suite.expand(&self.master(), "res master", transcript)
    }

    fn master(&self) -> Secret {
        let zeros = &[0; MOST][..self.suite.digest().output_len()];
        let derived = self.suite.expand(&self.handshake, "derived", self.empty.as_ref());
        self.suite.hmac(derived.as_ref(), &[zeros])
    }
}

/// Content types of records.
pub(super) const CHANGE_CIPHER_SPEC: u8 = 20;
pub(super) const ALERT: u8 = 21;
pub(super) const HANDSHAKE: u8 = 22;
pub(super) const APPLICATION_DATA: u8 = 23;

/// Maximum plaintext of a record (RFC 8446 section 5.1).
pub(super) const RECORD: usize = 1 << 14;
/// Octets of a record's header.
pub(super) const HEADER: usize = 5;

/// The keys of one direction.
pub(super) struct RecordKeys {
    suite: &'static Suite,
    key: LessSafeKey,
    iv: [u8; aead::NONCE_LEN],
    sequence: u64,
    form: Form,
}

/// How nonces and additional data are made.
enum Form {
    /// RFC 8446 section 5.2. The secret is replaced by a KeyUpdate.
    Tls13(Secret),
    /// RFC 5288: each record has 8 octets of its nonce.
    Tls12Gcm,
    /// RFC 7905.
    Tls12ChaCha,
}

impl RecordKeys {
    pub fn tls13(suite: &'static Suite, secret: &Secret) -> Self {
        let mut key = [0; 32];
        let key = &mut key[..suite.aead.key_len()];
        suite.expand_label(secret, "key", &[], key);
        let mut iv = [0; aead::NONCE_LEN];
        suite.expand_label(secret, "iv", &[], &mut iv);
        Self { suite, key: key_of(suite, key), iv, sequence: 0, form: Form::Tls13(secret.clone()) }
    }

    /// Keys of the client and of the server (RFC 5246 section 6.3).
    pub fn tls12(suite: &'static Suite, master: &[u8], randoms: [&[u8; 32]; 2]) -> [Self; 2] {
        let [client, server] = randoms;
        let gcm = *suite.aead != aead::CHACHA20_POLY1305;
        let (key_len, iv_len) = (suite.aead.key_len(), if gcm { 4 } else { aead::NONCE_LEN });
        let mut block = [0; 2 * (32 + aead::NONCE_LEN)];
        let block = &mut block[..2 * (key_len + iv_len)];
        suite.prf(master, "key expansion", &[server, client], block);
        let (keys, ivs) = block.split_at(2 * key_len);
        [0, 1].map(|side| {
            let mut iv = [0; aead::NONCE_LEN];
            iv[..iv_len].copy_from_slice(&ivs[side * iv_len..][..iv_len]);
            let key = key_of(suite, &keys[side * key_len..][..key_len]);
            let form = if gcm { Form::Tls12Gcm } else { Form::Tls12ChaCha };
            Self { suite, key, iv, sequence: 0, form }
        })
    }

    /// The number of records that the present key has protected.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    pub fn is_of_tls13(&self) -> bool {
        matches!(self.form, Form::Tls13(_))
    }

    /// The keys after a KeyUpdate (RFC 8446 section 7.2).
    pub fn update(&mut self) {
        if let Form::Tls13(secret) = &self.form {
            let next = self.suite.expand(secret, "traffic upd", &[]);
            *self = Self::tls13(self.suite, &next);
        }
    }

    fn nonce(&self) -> [u8; aead::NONCE_LEN] {
        let mut nonce = self.iv;
        let sequence = self.sequence.to_be_bytes();
        nonce[4..].iter_mut().zip(sequence).for_each(|(nonce, octet)| *nonce ^= octet);
        nonce
    }

    /// Additional data of TLS 1.2 for a plaintext of `len` octets.
    fn additional(&self, kind: u8, len: usize) -> [u8; 13] {
        let mut octets = [0; 13];
        octets[..8].copy_from_slice(&self.sequence.to_be_bytes());
        octets[8..11].copy_from_slice(&[kind, 3, 3]);
        octets[11..].copy_from_slice(&length(len));
        octets
    }

    /// Opens a record in place. Returns its content type and its plaintext.
    ///
    /// # Errors
    /// A record that does not authenticate, has no content type, or is too long.
    pub fn open<'a>(
        &mut self,
        header: [u8; HEADER],
        body: &'a mut [u8],
    ) -> Result<(u8, &'a [u8]), HelloClientError> {
        const BAD: HelloClientError =
            broken("the server's record does not authenticate", super::alert::BAD_RECORD_MAC);
        const LONG: HelloClientError =
            broken("the server's record is too long", super::alert::RECORD_OVERFLOW);
        let tag = aead::MAX_TAG_LEN;
        let opened = match self.form {
            Form::Tls13(_) => {
                let nonce = Nonce::assume_unique_for_key(self.nonce());
                let plain = self.key.open_in_place(nonce, Aad::from(header), body);
                let plain: &[u8] = plain.map_err(|_| BAD)?;
                if plain.len() > RECORD + 1 {
                    return Err(LONG);
                }
                let end = plain.iter().rposition(|&octet| octet != 0).ok_or(broken(
                    "the server's record has no content type",
                    super::alert::UNEXPECTED_MESSAGE,
                ))?;
                (plain[end], &plain[..end])
            }
            Form::Tls12Gcm => {
                let (explicit, body) = body.split_first_chunk_mut::<8>().ok_or(BAD)?;
                let len = body.len().checked_sub(tag).ok_or(BAD)?;
                let mut nonce = self.iv;
                nonce[4..].copy_from_slice(explicit);
                let additional = Aad::from(self.additional(header[0], len));
                let nonce = Nonce::assume_unique_for_key(nonce);
                let plain = self.key.open_in_place(nonce, additional, body);
                (header[0], &*plain.map_err(|_| BAD)?)
            }
            Form::Tls12ChaCha => {
                let len = body.len().checked_sub(tag).ok_or(BAD)?;
                let additional = Aad::from(self.additional(header[0], len));
                let nonce = Nonce::assume_unique_for_key(self.nonce());
                let plain = self.key.open_in_place(nonce, additional, body);
                (header[0], &*plain.map_err(|_| BAD)?)
            }
        };
        if opened.1.len() > RECORD {
            return Err(LONG);
        }
        self.sequence += 1;
        Ok(opened)
    }

    /// Adds a record with `text`, at most 2^14 octets, to `out`.
    pub fn seal(&mut self, kind: u8, text: &[u8], out: &mut Vec<u8>) {
        let tag = aead::MAX_TAG_LEN;
        let is_of_tls13 = self.is_of_tls13();
        let (outer, explicit, inner) = match self.form {
            Form::Tls13(_) => (APPLICATION_DATA, 0, 1),
            Form::Tls12Gcm => (kind, 8, 0),
            Form::Tls12ChaCha => (kind, 0, 0),
        };
        let [high, low] = length(explicit + text.len() + inner + tag);
        let header = [outer, 3, 3, high, low];
        out.extend_from_slice(&header);
        let nonce = if explicit == 0 {
            self.nonce()
        } else {
            // The number of the record is unique for the key (RFC 5288 section 3).
            out.extend_from_slice(&self.sequence.to_be_bytes());
            let mut nonce = self.iv;
            nonce[4..].copy_from_slice(&self.sequence.to_be_bytes());
            nonce
        };
        let begin = out.len();
        out.extend_from_slice(text);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let sealed = if is_of_tls13 {
            out.push(kind);
            self.key.seal_in_place_separate_tag(nonce, Aad::from(header), &mut out[begin..])
        } else {
            let additional = Aad::from(self.additional(kind, text.len()));
            self.key.seal_in_place_separate_tag(nonce, additional, &mut out[begin..])
        };
        out.extend_from_slice(sealed.expect("a record is shorter than an AEAD's limit").as_ref());
        self.sequence += 1;
    }
}

fn key_of(suite: &Suite, key: &[u8]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(suite.aead, key).expect("as long as the suite's keys"))
}

/// The two octets of a length.
///
/// # Panics
/// If it is greater than 65,535: records and messages of this client are shorter.
pub(super) fn length(len: usize) -> [u8; 2] {
    u16::try_from(len).expect("records and messages of this client are shorter").to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u32> = text.chars().filter_map(|digit| digit.to_digit(16)).collect();
        digits.chunks(2).map(|two| u8::try_from(two[0] << 4 | two[1]).unwrap()).collect()
    }

    /// RFC 8448 section 3, "Simple 1-RTT Handshake".
    #[test]
    fn the_key_schedule_of_tls_1_3_has_the_values_of_rfc_8448() {
        let suite = Suite::find(0x1301, true).unwrap();
        let shared = hex("8bd4054fb55b9d63fdfbacf9f04b9f0d35e6d63f537563efd46272900f89492d");
        let schedule = Schedule::new(suite, None, &shared);
        let expected = hex("1dc826e93606aa6fdc0aadc12f741b01046aa6b99f691ed221a9f0ca043fbeac");
        assert_eq!(schedule.handshake.as_ref(), expected);
        let hello = hex("860c06edc07858ee8e78f0e7428c58edd6b43f2ca3e6e95f02ed063cf0e1cad8");
        let traffic = schedule.handshake_traffic(&hello);
        let expected = hex("b3eddb126e067f35a780b3abf45e2d8f3b1a950738f52e9600746a0e27a55a21");
        assert_eq!(traffic.client.as_ref(), expected);
        let expected = hex("b67b7d690cc16c4e75e54213cb2d37b4e9c912bcded9105d42befd59d391ad38");
        assert_eq!(traffic.server.as_ref(), expected);
        let finished = hex("9608102a0f1ccc6db6250b7b7e417b1a000eaada3daae4777a7686c9ff83df13");
        let (application, exporter) = schedule.application_traffic(&finished);
        let expected = hex("9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5");
        assert_eq!(application.client.as_ref(), expected);
        let expected = hex("a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643");
        assert_eq!(application.server.as_ref(), expected);
        let expected = hex("fe22f881176eda18eb8f44529e6792c50c9a3f89452f68d8ae311b4309d3cf50");
        assert_eq!(exporter.as_ref(), expected);
        // The client's Finished is over the same messages as the secrets above.
        let verify = suite.finished(&traffic.client, &finished);
        let expected = hex("a8ec436d677634ae525ac1fcebe11a039ec17694fac6e98527b642f2edd5ce61");
        assert_eq!(verify.as_ref(), expected);
    }

    /// RFC 8448 sections 3 and 4, "Resumed 0-RTT Handshake".
    #[test]
    fn the_key_of_a_ticket_and_its_binder_have_the_values_of_rfc_8448() {
        let suite = Suite::find(0x1301, true).unwrap();
        let shared = hex("8bd4054fb55b9d63fdfbacf9f04b9f0d35e6d63f537563efd46272900f89492d");
        let transcript = hex("209145a96ee8e2a122ff810047cc952684658d6049e86429426db87c54ad143d");
        let resumption = Schedule::new(suite, None, &shared).resumption(&transcript);
        let expected = hex("7df235f2031d2a051287d02b0241b0bfdaf86cc856231f2d5aba46c434ec196c");
        assert_eq!(resumption.as_ref(), expected);
        let psk = suite.psk(&resumption, &[0, 0]);
        let expected = hex("4ecd0eb6ec3b4d87f5d6028f922ca4c5851a277fd41311c9e62d2c9492e1c4f3");
        assert_eq!(psk.as_ref(), expected);
        let early = hex("9b2188e9b2fc6d64d71dc329900e20bb41915000f678aa839cbb797cb7d8332c");
        assert_eq!(suite.early(Some(&psk)).as_ref(), early);
        let hello = hex("63224b2e4573f2d3454ca84b9d009a04f6be9e05711a8396473aefa01e924a14");
        let expected = hex("3add4fb2d8fdf822a0ca3cf7678ef5e88dae990141c5924d57bb6fa31b9e5f9d");
        assert_eq!(suite.binder(&psk, &hello).as_ref(), expected);
    }

    /// RFC 8448 section 3: the keys of the server.
    #[test]
    fn record_keys_have_the_values_of_rfc_8448() {
        let suite = Suite::find(0x1301, true).unwrap();
        let of = |text: &str| Secret::new(&hex(text));
        let secret = of("b67b7d690cc16c4e75e54213cb2d37b4e9c912bcded9105d42befd59d391ad38");
        let mut key = [0; 16];
        suite.expand_label(&secret, "key", &[], &mut key);
        assert_eq!(key[..], hex("3fce516009c21727d0f2e4e86ee403bc"));
        assert_eq!(RecordKeys::tls13(suite, &secret).iv[..], hex("5d313eb2671276ee13000b30"));
        let secret = of("a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643");
        let mut key = [0; 16];
        suite.expand_label(&secret, "key", &[], &mut key);
        assert_eq!(key[..], hex("9f02283b6c9c07efc26bb9f2ac92e356"));
        assert_eq!(RecordKeys::tls13(suite, &secret).iv[..], hex("cf782b88dd83549aadf1e984"));
    }

    /// "TLS 1.2 P_SHA256 and P_SHA384 PRF test vectors", M. Dvorak, ietf-tls, 2009.
    #[test]
    fn the_prf_of_tls_1_2_has_the_published_values() {
        let secret = hex("9bbe436ba940f017b17652849a71db35");
        let seed = hex("a0ba9f936cda311827a6f796ffd5198c");
        let mut out = [0; 100];
        let suite = Suite::find(0xc02b, false).unwrap();
        suite.prf(&secret, "test label", &[&seed[..5], &seed[5..]], &mut out);
        let expected = "e3f229ba727be17b8d122620557cd453c2aab21d07c3d495329b52d4e61edb5a
            6b301791e90d35c9c9a46b4e14baf9af0fa022f7077def17abfd3797c0564bab
            4fbc91666e9def9b97fce34f796789baa48082d122ee42c5a72e5a5110fff701
            87347b66";
        assert_eq!(out[..], hex(expected));
    }

    #[test]
    fn records_of_each_suite_are_opened_once_and_in_order() {
        for suite in &SUITES {
            let (mut seal, mut open) = if suite.is_of_tls13() {
                let secret = Secret::new(&[7; 32]);
                (RecordKeys::tls13(suite, &secret), RecordKeys::tls13(suite, &secret))
            } else {
                let both = || RecordKeys::tls12(suite, &[9; 48], [&[1; 32], &[2; 32]]);
                let ([client, _], [same, _]) = (both(), both());
                (client, same)
            };
            for text in [&b"one"[..], b"", &[5; RECORD]] {
                let mut record = vec![];
                seal.seal(APPLICATION_DATA, text, &mut record);
                let (header, body) = record.split_first_chunk_mut::<HEADER>().unwrap();
                assert_eq!(length(body.len()), header[3..]);
                let mut damaged = body.to_vec();
                *damaged.last_mut().unwrap() ^= 1;
                assert!(open.open(*header, &mut damaged).is_err(), "{}", suite.name);
                let (kind, plain) = open.open(*header, body).unwrap();
                assert_eq!((kind, plain), (APPLICATION_DATA, text), "{}", suite.name);
            }
            let mut record = vec![];
            seal.seal(ALERT, b"two", &mut record);
            let (header, body) = record.split_first_chunk_mut::<HEADER>().unwrap();
            let mut again = body.to_vec();
            assert_eq!(open.open(*header, body).unwrap(), (ALERT, &b"two"[..]));
            assert!(open.open(*header, &mut again).is_err(), "{}: a repeated record", suite.name);
        }
    }

    #[test]
    fn a_client_changes_its_key_before_its_limit() {
        let hello = crate::Browser::all().next().unwrap().hello();
        let config = super::super::HelloClientConfig::new(hello.into(), None);
        let name = "a.test".try_into().unwrap();
        let mut client = super::super::HelloClient::new(config.into(), name);
        let suite = Suite::find(0x1301, true).unwrap();
        let secret = Secret::new(&[7; 32]);
        let keys = || {
            let sequence = super::super::REKEY;
            RecordKeys { sequence, ..RecordKeys::tls13(suite, &secret) }
        };
        let mut open = keys();
        (client.handshake, client.writing) = (None, Some(keys()));
        let mut records = vec![];
        assert!(client.encrypt(Some(b"text"), &mut records));
        let mut next = |open: &mut RecordKeys| {
            let len = HEADER + usize::from(u16::from_be_bytes([records[3], records[4]]));
            let mut record: Vec<u8> = records.drain(..len).collect();
            let (header, body) = record.split_first_chunk_mut::<HEADER>().unwrap();
            let (kind, text) = open.open(*header, body).unwrap();
            (kind, text.to_vec())
        };
        assert_eq!(next(&mut open), (HANDSHAKE, vec![24, 0, 0, 1, 0]));
        open.update();
        assert_eq!(next(&mut open), (APPLICATION_DATA, b"text".to_vec()));
    }
}
