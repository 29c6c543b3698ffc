//! Servers that break rules, and those that choose what the client does not speak.

use std::sync::Arc;

use rustls::time_provider::DefaultTimeProvider;
use squall_tls::{
    Body, Extension, Hello, HelloClient, HelloClientConfig, HelloClientError, TlsSettings,
    hello_client_config,
};

use crate::{
    handshakes::Authority,
    server::{Choice, Keys, Secrets, Server, choice, extension, message, record, retry},
};

/// TLS 1.3 and older, with suites and groups that the client does not speak, too.
fn hello() -> Hello {
    let octets = |kind, body: &[u8]| Extension { kind, body: Body::Octets(body.into()) };
    let extension = |kind, body| Extension { kind, body };
    Hello {
        record_version: 0x0301,
        version: 0x0303,
        session_id: 32,
        suites: [0x1301, 0x1304, 0xc02b, 0x002f].into(),
        compressions: [0].into(),
        extensions: [
            extension(10, Body::Groups([29, 23, 25].into())),
            octets(13, &[0, 2, 4, 3]),
            octets(16, &[0, 3, 2, b'h', b'2']),
            octets(27, &[2, 0, 2]),
            octets(28, &[64, 1]),
            extension(43, Body::Versions([0x0304, 0x0303, 0x0302].into())),
            octets(45, &[1, 1]),
            octets(49, &[]),
            extension(51, Body::Shares([(29, 32)].into())),
            octets(17613, &[0, 3, 2, b'h', b'2']),
        ]
        .into(),
        shuffle: false,
    }
}

struct Pair {
    client: HelloClient,
    server: Server,
    /// Octets that the client has sent after its hello.
    sent: Vec<u8>,
    received: Vec<u8>,
}

impl Pair {
    fn new(settings: &TlsSettings) -> Self {
        Self::of(hello_client_config(settings, Arc::new(hello())).unwrap())
    }

    fn of(mut config: HelloClientConfig) -> Self {
        let secrets = Arc::new(Secrets::default());
        config.key_log = secrets.clone();
        let mut client = HelloClient::new(Arc::new(config), "a.test".try_into().unwrap());
        let (mut sent, mut received) = (vec![], vec![]);
        let progress = client.progress(&mut [], &mut sent, &mut received);
        assert_eq!((progress.used, progress.result), (0, Ok(())));
        let server = Server::new(secrets, &sent);
        Self { client, server, sent: vec![], received }
    }

    /// With a ServerHello, and the keys after it.
    fn begun(settings: &TlsSettings) -> Self {
        let mut pair = Self::new(settings);
        pair.choose(&choice());
        pair
    }

    /// Gives a ServerHello, and uses the keys after it.
    fn choose(&mut self, choice: &Choice) {
        let hello = self.server.hello(choice);
        self.give(&record(22, &hello)).unwrap();
        self.server.use_keys("SERVER_HANDSHAKE_TRAFFIC_SECRET");
    }

    /// After the handshake, with these extensions of the server.
    fn open(extensions: &[u8]) -> Self {
        let mut pair = Self::begun(&TlsSettings::default());
        pair.finish(extensions);
        pair
    }

    fn finish(&mut self, extensions: &[u8]) {
        let flight = self.server.flight(extensions, &[]);
        self.give_sealed(22, &flight).unwrap();
        assert!(!self.client.is_handshaking());
        self.server.use_keys("SERVER_TRAFFIC_SECRET_0");
    }

    fn give(&mut self, octets: &[u8]) -> Result<(), HelloClientError> {
        self.client.progress(&mut octets.to_vec(), &mut self.sent, &mut self.received).result
    }

    fn give_sealed(&mut self, kind: u8, text: &[u8]) -> Result<(), HelloClientError> {
        let octets = self.server.seal(kind, text);
        self.give(&octets)
    }

    /// The text of the error, which is repeated, and after which nothing can be sent.
    fn fails(&mut self, octets: &[u8]) -> String {
        let error = self.give(octets).unwrap_err();
        assert_eq!(self.give(&record(22, &[0; 100])).unwrap_err(), error);
        assert!(!self.client.encrypt(Some(b"x"), &mut vec![]));
        error.to_string()
    }

    fn fails_sealed(&mut self, kind: u8, text: &[u8]) -> String {
        let octets = self.server.seal(kind, text);
        self.fails(&octets)
    }
}

#[track_caller]
fn has(text: &str, words: &str) {
    assert!(text.contains(words), "{text:?} has no {words:?}");
}

/// The error for a ServerHello; an alert of this number is sent.
#[track_caller]
fn refuses(choice: &Choice, words: &str, alert: u8) {
    let mut pair = Pair::new(&TlsSettings::default());
    let hello = pair.server.hello(choice);
    has(&pair.fails(&record(22, &hello)), words);
    assert_eq!(pair.sent, record(21, &[2, alert]), "{words}");
}

#[test]
fn servers_choose_the_ticket_of_the_hello_or_none() {
    let config = hello_client_config(&TlsSettings::default(), Arc::new(hello()));
    let mut config = config.unwrap();
    config.keep_tickets(Arc::new(DefaultTimeProvider));
    let mut first = Pair::of(config.clone());
    first.choose(&choice());
    first.finish(&[]);
    let ticket = message(4, &[0, 0, 0, 60, 0, 0, 0, 7, 1, 9, 0, 2, b'i', b'd', 0, 0]);
    for _ in 0..6 {
        first.give_sealed(22, &ticket).unwrap();
    }
    let damaged = message(4, &ticket[4..ticket.len() - 1]);
    has(&first.fails_sealed(22, &damaged), "NewSessionTicket cannot be read");
    let with = |choice: Choice, body: &[u8]| {
        let extensions = [&choice.extensions[..], &extension(41, body)].concat();
        Choice { extensions, ..choice }
    };
    let tls12 = Choice { suite: 0xc02b, extensions: vec![], ..choice() };
    for (choice, words) in [
        (with(choice(), &[0, 1]), "chose a ticket that the hello does not have"),
        (with(choice(), &[]), "chose a ticket that the hello does not have"),
        (with(retry(23), &[0, 0]), "the extension 41"),
        (with(tls12, &[0, 0]), "the extension 41"),
    ] {
        let mut pair = Pair::of(config.clone());
        let hello = pair.server.hello(&choice);
        has(&pair.fails(&record(22, &hello)), words);
    }
    // The ticket replaces the certificate.
    let mut pair = Pair::of(config.clone());
    pair.choose(&with(choice(), &[0, 0]));
    assert!(pair.client.is_resumed());
    let flight = pair.server.flight(&[], &[]);
    has(&pair.fails_sealed(22, &flight), "unexpected handshake message");
    // A server may also choose none.
    let mut pair = Pair::of(config.clone());
    pair.choose(&choice());
    pair.finish(&[]);
    assert!(!pair.client.is_resumed());
    // No ticket is left.
    let mut pair = Pair::of(config);
    let hello = pair.server.hello(&with(choice(), &[0, 0]));
    has(&pair.fails(&record(22, &hello)), "the extension 41");
}

#[test]
fn octets_other_than_a_server_hello_are_refused() {
    let fails = |octets: &[u8]| Pair::new(&TlsSettings::default()).fails(octets);
    has(&fails(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "are not TLS");
    has(&fails(&[22, 3, 3, 0x40, 1]), "record is too long");
    has(&fails(&record(22, &message(8, &[0, 0]))), "unexpected handshake message");
    has(&fails(&record(22, &message(2, &[3, 3]))), "ServerHello cannot be read");
    has(&fails(&record(22, &[2, 1, 0, 1])), "longer than 64 KiB");
    has(&fails(&record(22, &[])), "is empty");
    has(&fails(&record(23, b"data")), "data during the handshake");
    has(&fails(&record(21, &[2, 40])), "HandshakeFailure");
    has(&fails(&record(21, &[2])), "another length");
    has(&fails(&record(20, &[2])), "unexpected ChangeCipherSpec");
    has(&fails(&record(20, &[1]).repeat(33)), "more than 32");
    has(&fails(&record(21, &[1, 112]).repeat(33)), "more than 32");
}

#[test]
fn choices_that_were_not_offered_are_refused() {
    refuses(&Choice { suite: 0x1302, ..choice() }, "cipher suite or compression", 47);
    let with =
        |more: &[u8]| Choice { extensions: [&choice().extensions, more].concat(), ..choice() };
    refuses(&with(&extension(13, &[])), "extension of other messages", 47);
    refuses(&with(&extension(99, &[])), "the extension 99", 110);
    refuses(&with(&extension(43, &[3, 4])), "an extension twice", 47);
    refuses(&with(&[0]), "extensions cannot be read", 50);
    let of = |extensions: &[&[u8]]| Choice { extensions: extensions.concat(), ..choice() };
    let tls13 = extension(43, &[3, 4]);
    refuses(&of(&[&extension(43, &[3, 5])]), "version that the hello does not offer", 70);
    refuses(&of(&[&extension(43, &[3, 3])]), "extension for versions", 47);
    refuses(&of(&[&tls13]), "no key share", 109);
    refuses(&of(&[&tls13, &extension(51, &[0, 23, 0, 1, 4])]), "no key share", 47);
    refuses(&of(&[&tls13, &extension(51, &[0, 29, 0, 1, 4])]), "key share is not valid", 47);
    let zero = [&[0, 29, 0, 32][..], &[0; 32]].concat();
    refuses(&of(&[&tls13, &extension(51, &zero)]), "key share is not valid", 47);
    let old = Choice { version: 0x0301, extensions: vec![], suite: 0xc02b, ..choice() };
    refuses(&old, "version that the hello does not offer", 70);
    let mut random = [7; 32];
    random[24..].copy_from_slice(b"DOWNGRD\x01");
    let down = Choice { random, extensions: vec![], suite: 0xc02b, ..choice() };
    refuses(&down, "a device has changed the hello", 47);
    refuses(&Choice { random: [7; 32], suite: 0x1301, ..down }, "TLS13_AES_128_GCM_SHA256", 40);
}

#[test]
fn offers_that_are_not_spoken_have_a_name() {
    let name = |choice: &Choice| {
        let mut pair = Pair::new(&TlsSettings::default());
        let hello = pair.server.hello(choice);
        match pair.give(&record(22, &hello)).unwrap_err() {
            HelloClientError::Incompatible(name) => name,
            other => panic!("{other}"),
        }
    };
    assert_eq!(name(&Choice { suite: 0x1304, ..choice() }), "TLS13_AES_128_CCM_SHA256");
    let tls12 = Choice { extensions: vec![], ..choice() };
    assert_eq!(name(&Choice { suite: 0x002f, ..tls12 }), "TLS_RSA_WITH_AES_128_CBC_SHA");
    let tls11 = Choice { version: 0x0302, extensions: vec![], suite: 0x002f, ..choice() };
    assert_eq!(name(&tls11), "TLS 1.1");
    assert_eq!(name(&retry(25)), "secp521r1");
    let mut pair = Pair::open(&[]);
    let why = pair.fails_sealed(22, &message(13, &[0, 0, 0]));
    has(&why, "authentication after the handshake");
}

#[test]
fn a_hello_is_repeated_once_and_for_a_reason() {
    refuses(&retry(29), "was not offered, or was sent", 47);
    refuses(&retry(24), "was not offered, or was sent", 47);
    let tls13 = extension(43, &[3, 4]);
    refuses(&Choice { extensions: tls13.clone(), ..retry(23) }, "changes nothing", 47);
    let empty = [tls13.clone(), extension(44, &[0, 0])].concat();
    refuses(&Choice { extensions: empty, ..retry(23) }, "cannot be read", 50);

    let mut pair = Pair::new(&TlsSettings::default());
    let again = pair.server.hello(&retry(23));
    pair.give(&record(22, &again)).unwrap();
    assert_eq!(pair.sent[..11], [20, 3, 3, 0, 1, 1, 22, 3, 3, pair.sent[9], pair.sent[10]]);
    let second = pair.sent[11..].to_vec();
    assert_eq!(second[0], 1);
    // The only share is that of P-256: an uncompressed point.
    let share = [0, 51, 0, 71, 0, 69, 0, 23, 0, 65, 4];
    assert!(second.windows(share.len()).any(|octets| octets == share));
    has(&pair.fails(&record(22, &again)), "a second HelloRetryRequest");

    let cookie = [tls13, extension(44, &[0, 2, 8, 9])].concat();
    let mut pair = Pair::new(&TlsSettings::default());
    let again = pair.server.hello(&Choice { extensions: cookie, ..retry(23) });
    pair.give(&record(22, &again)).unwrap();
    let cookie = extension(44, &[0, 2, 8, 9]);
    assert!(pair.sent.windows(cookie.len()).any(|octets| octets == cookie));
    let hello = pair.server.hello(&Choice { suite: 0x1304, ..choice() });
    has(&pair.fails(&record(22, &hello)), "TLS13_AES_128_CCM_SHA256");
}

#[test]
fn each_message_of_the_handshake_has_its_place() {
    let begun = || Pair::begun(&TlsSettings::default());
    for kind in [0, 1, 2, 4, 11, 12, 13, 14, 15, 16, 20, 24, 25, 99] {
        has(&begun().fails_sealed(22, &message(kind, &[0, 0])), "unexpected handshake message");
    }
    let extensions = message(8, &[0, 0]);
    for kind in [2, 4, 8, 15, 20, 24] {
        let flight = [&extensions[..], &message(kind, &[0, 0])].concat();
        has(&begun().fails_sealed(22, &flight), "unexpected handshake message");
    }
    let alpn = |name: &[u8]| {
        let body = extension(16, &[&[0, name.len() as u8 + 1, name.len() as u8], name].concat());
        message(8, &[&(body.len() as u16).to_be_bytes()[..], &body].concat())
    };
    has(&begun().fails_sealed(22, &alpn(b"h3")), "protocol (ALPN) that the hello does not offer");
    has(&begun().fails_sealed(22, &alpn(b"")), "protocols (ALPN) cannot be read");
    let unoffered = message(8, &[0, 4, 0, 5, 0, 0]);
    has(&begun().fails_sealed(22, &unoffered), "the extension 5");
    let limit = message(8, &[0, 6, 0, 28, 0, 2, 0, 63]);
    has(&begun().fails_sealed(22, &limit), "limit for records");
    let certificates = [extensions.clone(), message(11, &[0, 0, 0, 0])].concat();
    let unread = [&certificates[..], &message(15, &[4])].concat();
    has(&begun().fails_sealed(22, &unread), "CertificateVerify cannot be read");

    let mut pair = begun();
    let mut flight = pair.server.flight(&[], &[]);
    *flight.last_mut().unwrap() ^= 1;
    has(&pair.fails_sealed(22, &flight), "Finished is wrong");
    // The alert is encrypted, after the ServerHello.
    let secret = pair.server.secrets.get("CLIENT_HANDSHAKE_TRAFFIC_SECRET").unwrap();
    assert_eq!(Keys::new(&secret).open(&mut pair.sent), (21, vec![2, 51]));

    let mut pair = begun();
    let mut flight = pair.server.flight(&[], &[]);
    flight.push(4);
    has(&pair.fails_sealed(22, &flight), "after a change of keys");
    let mut pair = Pair::new(&TlsSettings::default());
    let mut hello = pair.server.hello(&choice());
    hello.push(8);
    has(&pair.fails(&record(22, &hello)), "after a change of keys");
}

#[test]
fn records_are_limited_and_authentic() {
    let begun = || Pair::begun(&TlsSettings::default());
    has(&begun().fails(&[23, 3, 3, 0x41, 1]), "record is too long");
    has(&begun().fails(&record(22, b"plain")), "not encrypted");
    has(&begun().fails(&record(23, &[0; 40])), "does not authenticate");
    has(&begun().fails(&record(23, &[0; 3])), "does not authenticate");
    let sealed = |inner: &[u8]| {
        let mut pair = begun();
        let octets = pair.server.keys.as_mut().unwrap().seal(inner);
        pair.fails(&octets)
    };
    has(&sealed(&[0; 20]), "no content type");
    has(&sealed(&[]), "no content type");
    has(&sealed(&[&[0; 1 << 14][..], &[1, 22]].concat()), "record is too long");
    has(&sealed(&[1, 20]), "unknown type");
    has(&sealed(b"x\x17"), "data during the handshake");
    // Padding is removed, and a full record is allowed.
    let mut pair = Pair::open(&[]);
    let keys = pair.server.keys.as_mut().unwrap();
    let octets = [keys.seal(b"padded\x17\0\0\0"), keys.seal(&[23; (1 << 14) + 1])].concat();
    pair.give(&octets).unwrap();
    assert_eq!(pair.received, [&b"padded"[..], &[23; 1 << 14]].concat());
    // A device without the keys ends a handshake.
    has(&begun().fails(&record(21, &[2, 40])), "HandshakeFailure");
    has(&Pair::open(&[]).fails(&record(21, &[2, 40])), "not encrypted");
}

#[test]
fn messages_that_carry_nothing_are_limited() {
    let update = message(24, &[0]);
    let ticket = message(4, &[0; 40]);
    for (kind, text) in [(22, &update), (22, &ticket), (21, &vec![1, 90]), (23, &vec![])] {
        let mut pair = Pair::open(&[]);
        for _ in 0..3 {
            for _ in 0..32 {
                pair.give_sealed(kind, text).unwrap();
                if text == &update {
                    pair.server.keys.as_mut().unwrap().update();
                }
            }
            pair.give_sealed(23, b"data").unwrap();
        }
        assert_eq!(pair.received, b"datadatadata");
        let mut octets = vec![];
        for _ in 0..33 {
            octets.extend(pair.server.seal(kind, text));
            if text == &update {
                pair.server.keys.as_mut().unwrap().update();
            }
        }
        has(&pair.fails(&octets), "more than 32");
    }
    let mut pair = Pair::open(&[]);
    has(&pair.fails_sealed(22, &message(24, &[2])), "KeyUpdate cannot be read");
    let mut pair = Pair::open(&[]);
    has(&pair.fails_sealed(22, &[update, ticket].concat()), "after a change of keys");
    let mut pair = Pair::open(&[]);
    has(&pair.fails_sealed(22, &message(0, &[])), "unexpected handshake message");
    has(&Pair::open(&[]).fails(&record(20, &[1])), "unexpected ChangeCipherSpec");
}

#[test]
fn keys_are_updated_on_request() {
    let mut pair = Pair::open(&[]);
    pair.sent.clear();
    pair.give_sealed(22, &message(24, &[1])).unwrap();
    pair.server.keys.as_mut().unwrap().update();
    pair.give_sealed(23, b"under new keys").unwrap();
    assert_eq!(pair.received, b"under new keys");
    assert!(pair.client.encrypt(Some(b"answer"), &mut pair.sent));
    let secret = pair.server.secrets.get("CLIENT_TRAFFIC_SECRET_0").unwrap();
    let mut keys = Keys::new(&secret);
    assert_eq!(keys.open(&mut pair.sent), (22, message(24, &[0])));
    keys.update();
    assert_eq!(keys.open(&mut pair.sent), (23, b"answer".to_vec()));
}

#[test]
fn a_server_may_limit_records_and_use_what_browsers_offer() {
    let extensions =
        [extension(16, &[0, 3, 2, b'h', b'2']), extension(28, &[0, 100]), extension(17613, &[])]
            .concat();
    let mut pair = Pair::begun(&TlsSettings::default());
    // With a request for a certificate, which the client does not have.
    let flight = pair.server.flight(&extensions, &message(13, &[0, 0, 0]));
    let secret = pair.server.secrets.get("CLIENT_HANDSHAKE_TRAFFIC_SECRET").unwrap();
    pair.give_sealed(22, &flight).unwrap();
    assert_eq!(pair.client.protocol(), Some(&b"h2"[..]));
    let expected = [message(8, &[0, 4, 68, 205, 0, 0]), message(11, &[0, 0, 0, 0])].concat();
    pair.server.add(&expected);
    let finished = message(20, &pair.server.finished(&secret));
    assert_eq!(pair.sent.drain(..6).as_slice(), [20, 3, 3, 0, 1, 1]);
    let (kind, text) = Keys::new(&secret).open(&mut pair.sent);
    assert_eq!((kind, text), (22, [expected, finished].concat()));
    assert!(pair.sent.is_empty());
    assert!(pair.client.encrypt(Some(&[5; 1000]), &mut pair.sent));
    let secret = pair.server.secrets.get("CLIENT_TRAFFIC_SECRET_0").unwrap();
    let mut keys = Keys::new(&secret);
    let mut received = vec![];
    while !pair.sent.is_empty() {
        let (_, text) = keys.open(&mut pair.sent);
        assert!(text.len() < 100, "with its content type at most 100");
        received.extend(text);
    }
    assert_eq!(received, [5; 1000]);
}

#[test]
fn a_compressed_certificate_is_skipped_but_not_verified() {
    let flight = [message(8, &[0, 0]), message(25, &[0, 2, 0, 0, 9])].concat();
    let mut pair = Pair::begun(&TlsSettings::default());
    pair.give_sealed(22, &flight).unwrap();
    has(&pair.fails_sealed(22, &message(11, &[0, 0, 0, 0])), "unexpected handshake message");
    let ca = Some(Authority::new().pem());
    let mut pair = Pair::begun(&TlsSettings { ca, ..TlsSettings::default() });
    has(&pair.fails_sealed(22, &flight), "has compressed its certificate");
}

#[test]
fn the_end_of_a_session_is_reported() {
    let mut pair = Pair::open(&[]);
    let octets = [pair.server.seal(23, b"last"), pair.server.seal(21, &[1, 0])].concat();
    let mut both = [&octets[..], b"ignored"].concat();
    let progress = pair.client.progress(&mut both, &mut pair.sent, &mut pair.received);
    assert_eq!(
        (progress.used, progress.peer_closed, progress.result),
        (octets.len(), true, Ok(()))
    );
    assert_eq!(pair.received, b"last");
    pair.sent.clear();
    assert!(pair.client.encrypt(Some(b"more"), &mut pair.sent), "this side is open");
    assert!(pair.client.encrypt(None, &mut pair.sent));
    let mut keys = Keys::new(&pair.server.secrets.get("CLIENT_TRAFFIC_SECRET_0").unwrap());
    assert_eq!(keys.open(&mut pair.sent), (23, b"more".to_vec()));
    assert_eq!(keys.open(&mut pair.sent), (21, vec![1, 0]));
}
