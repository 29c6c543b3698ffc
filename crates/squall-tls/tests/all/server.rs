//! A server of TLS 1.3 that may break each rule. It exchanges no keys: it takes the secrets from
//! the key log of the client, and seals with TLS_AES_128_GCM_SHA256. The fuzz target uses it, too.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use ring::{
    aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey},
    digest, hkdf, hmac,
};
use rustls::KeyLog;

/// The secrets of a client, by label.
#[derive(Debug, Default)]
pub struct Secrets(Mutex<HashMap<String, Vec<u8>>>);

impl KeyLog for Secrets {
    fn log(&self, label: &str, _: &[u8], secret: &[u8]) {
        self.0.lock().unwrap().insert(label.into(), secret.into());
    }
}

impl Secrets {
    pub fn get(&self, label: &str) -> Option<Vec<u8>> {
        self.0.lock().unwrap().get(label).cloned()
    }
}

pub const RETRY: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
    0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

/// Keys of one direction.
pub struct Keys {
    secret: Vec<u8>,
    key: LessSafeKey,
    iv: [u8; 12],
    sequence: u64,
}

struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

fn expand(secret: &[u8], label: &str, len: usize) -> Vec<u8> {
    let label = format!("tls13 {label}");
    let info = [&[0, len as u8, label.len() as u8], label.as_bytes(), &[0]].concat();
    let mut out = vec![0; len];
    let prk = hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, secret);
    prk.expand(&[&info], Length(len)).unwrap().fill(&mut out).unwrap();
    out
}

impl Keys {
    pub fn new(secret: &[u8]) -> Self {
        let key = UnboundKey::new(&AES_128_GCM, &expand(secret, "key", 16)).unwrap();
        let iv = expand(secret, "iv", 12).try_into().unwrap();
        Self { secret: secret.into(), key: LessSafeKey::new(key), iv, sequence: 0 }
    }

    /// The keys after a KeyUpdate.
    pub fn update(&mut self) {
        *self = Self::new(&expand(&self.secret, "traffic upd", 32));
    }

    fn nonce(&mut self) -> Nonce {
        let mut nonce = self.iv;
        for (nonce, octet) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *nonce ^= octet;
        }
        self.sequence += 1;
        Nonce::assume_unique_for_key(nonce)
    }

    /// A record with `inner`: the text, its content type, and padding.
    pub fn seal(&mut self, inner: &[u8]) -> Vec<u8> {
        let len = ((inner.len() + 16) as u16).to_be_bytes();
        let header = [23, 3, 3, len[0], len[1]];
        let (mut body, nonce) = (inner.to_vec(), self.nonce());
        self.key.seal_in_place_append_tag(nonce, Aad::from(header), &mut body).unwrap();
        [&header[..], &body].concat()
    }

    /// The content type and the text of the first record, which is removed.
    pub fn open(&mut self, records: &mut Vec<u8>) -> (u8, Vec<u8>) {
        let header: [u8; 5] = records[..5].try_into().unwrap();
        let len = 5 + usize::from(u16::from_be_bytes([header[3], header[4]]));
        let mut body: Vec<u8> = records.drain(..len).skip(5).collect();
        let nonce = self.nonce();
        let plain = self.key.open_in_place(nonce, Aad::from(header), &mut body).unwrap();
        let (&kind, text) = plain.split_last().unwrap();
        (kind, text.to_vec())
    }
}

/// A handshake message.
pub fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind], &(body.len() as u32).to_be_bytes()[1..], body].concat()
}

/// A record that is not encrypted.
pub fn record(kind: u8, text: &[u8]) -> Vec<u8> {
    [&[kind, 3, 3], &(text.len() as u16).to_be_bytes()[..], text].concat()
}

/// An extension.
pub fn extension(kind: u16, body: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &(body.len() as u16).to_be_bytes(), body].concat()
}

/// The fields of a ServerHello.
pub struct Choice {
    pub version: u16,
    pub random: [u8; 32],
    pub suite: u16,
    pub extensions: Vec<u8>,
}

/// TLS 1.3, TLS_AES_128_GCM_SHA256 and X25519, with the base point as the server's share.
pub fn choice() -> Choice {
    let mut share = vec![0, 29, 0, 32, 9];
    share.resize(4 + 32, 0);
    let extensions = [extension(43, &[3, 4]), extension(51, &share)].concat();
    Choice { version: 0x0303, random: [7; 32], suite: 0x1301, extensions }
}

/// A retry for `group`.
pub fn retry(group: u16) -> Choice {
    let share = extension(51, &group.to_be_bytes());
    Choice { random: RETRY, extensions: [extension(43, &[3, 4]), share].concat(), ..choice() }
}

pub struct Server {
    pub secrets: Arc<Secrets>,
    session_id: Vec<u8>,
    transcript: digest::Context,
    pub keys: Option<Keys>,
}

impl Server {
    /// `records`: with the client's hello.
    pub fn new(secrets: Arc<Secrets>, records: &[u8]) -> Self {
        let len = usize::from(u16::from_be_bytes([records[3], records[4]]));
        let hello = &records[5..5 + len];
        let session_id = hello[39..39 + usize::from(hello[38])].to_vec();
        let mut transcript = digest::Context::new(&digest::SHA256);
        transcript.update(hello);
        Self { secrets, session_id, transcript, keys: None }
    }

    /// The message; it is part of the transcript.
    pub fn hello(&mut self, choice: &Choice) -> Vec<u8> {
        let is_of_tls13 = choice.extensions.starts_with(&[0, 43]);
        let session_id = if is_of_tls13 { &self.session_id[..] } else { &[] };
        let body = [
            &choice.version.to_be_bytes(),
            &choice.random[..],
            &[session_id.len() as u8],
            session_id,
            &choice.suite.to_be_bytes(),
            &[0],
            &(choice.extensions.len() as u16).to_be_bytes(),
            &choice.extensions,
        ]
        .concat();
        let message = message(2, &body);
        self.transcript.update(&message);
        message
    }

    /// Uses the secret of this label, if the client has it.
    pub fn use_keys(&mut self, label: &str) {
        self.keys = self.secrets.get(label).map(|secret| Keys::new(&secret));
    }

    /// A record; without keys it is not encrypted.
    pub fn seal(&mut self, kind: u8, text: &[u8]) -> Vec<u8> {
        match &mut self.keys {
            Some(keys) => keys.seal(&[text, &[kind]].concat()),
            None => record(kind, text),
        }
    }

    /// EncryptedExtensions with these extensions, Certificate and CertificateVerify without
    /// content, and Finished. `more`: messages after the first.
    pub fn flight(&mut self, extensions: &[u8], more: &[u8]) -> Vec<u8> {
        let len = (extensions.len() as u16).to_be_bytes();
        let mut flight = message(8, &[&len[..], extensions].concat());
        flight.extend_from_slice(more);
        flight.extend(message(11, &[0, 0, 0, 0]));
        flight.extend(message(15, &[4, 3, 0, 0]));
        self.transcript.update(&flight);
        let secret = self.secrets.get("SERVER_HANDSHAKE_TRAFFIC_SECRET").unwrap_or(vec![0; 32]);
        let finished = message(20, &self.finished(&secret));
        self.transcript.update(&finished);
        flight.extend(finished);
        flight
    }

    /// The verify_data of a Finished with this secret over the messages so far.
    pub fn finished(&self, secret: &[u8]) -> Vec<u8> {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &expand(secret, "finished", 32));
        hmac::sign(&key, self.transcript.clone().finish().as_ref()).as_ref().to_vec()
    }

    pub fn add(&mut self, message: &[u8]) {
        self.transcript.update(message);
    }
}
