//! Supplicants against a server whose TLS is that of rustls, in virtual time. Real servers:
//! tests/interop/host_services.py.

use std::{
    io::{Read, Write},
    sync::Arc,
};

use base64::Engine;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::{ProtocolVersion, ServerConnection};
use squall_tls::{TlsSettings, TlsVersion, server_config};
use squall_units::Nanos;

use super::{
    EapMethod, FragmentReader, TlsClient,
    fragments::{Fragment, FragmentWriter},
    mschapv2,
};
use crate::{Supplicant, SupplicantEvent, SupplicantSettings, SupplicantState, SupplicantStep};

const TLS: u8 = 13;
const TTLS: u8 = 21;
const PEAP: u8 = 25;
const NAME: &str = "radius.test";
const NOW: Nanos = Nanos(5_000_000_000);

type Pem = (Vec<u8>, Vec<u8>);

fn pem(label: &str, der: &[u8]) -> Vec<u8> {
    let text = base64::prelude::BASE64_STANDARD.encode(der);
    format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n").into_bytes()
}

/// An authority.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: Vec<u8>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let pem = pem("CERTIFICATE", params.self_signed(&key).unwrap().der());
        Self { issuer: Issuer::new(params, key), pem }
    }

    fn certificate(&self) -> Pem {
        let params = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (pem("CERTIFICATE", certificate.der()), pem("PRIVATE KEY", &key.serialize_der()))
    }
}

/// What a server says next.
enum Next {
    Inside(Vec<u8>),
    Acknowledge,
    Success,
    Failure,
}

struct Server {
    tls: ServerConnection,
    method: EapMethod,
    id: u8,
    reader: FragmentReader,
    writer: FragmentWriter,
    /// Messages inside the tunnel so far.
    turn: u8,
    broken: bool,
    /// Whether the host's proof in EAP-TTLS is wrong.
    refuses: bool,
    /// The password that it knows, and whether its own proof is wrong.
    password: &'static str,
    impostor: bool,
}

impl Server {
    fn new(method: &EapMethod, settings: &TlsSettings) -> Self {
        let tls = ServerConnection::new(Arc::new(server_config(settings).unwrap())).unwrap();
        Self {
            tls,
            method: method.clone(),
            id: 1,
            reader: FragmentReader::default(),
            writer: FragmentWriter::default(),
            turn: 0,
            broken: false,
            refuses: false,
            password: "secret7",
            impostor: false,
        }
    }

    fn kind(&self) -> u8 {
        self.method.kind().0
    }

    fn request(&mut self, data: &[u8]) -> Vec<u8> {
        self.id = self.id.wrapping_add(1);
        request(self.id, self.kind(), data)
    }

    fn start(&mut self) -> Vec<u8> {
        self.request(&[0x20])
    }

    /// Answers what follows the type of a response.
    fn turn(&mut self, data: &[u8]) -> Vec<u8> {
        if self.writer.is_empty() {
            let fragment = Fragment::parse(data).unwrap();
            let Some(message) = self.reader.read(&fragment).unwrap() else {
                return self.request(&[0]);
            };
            if self.broken {
                return end(4, self.id);
            }
            let plain = self.read(&message);
            if !self.broken && !self.tls.is_handshaking() && !self.tls.wants_write() {
                match self.inside(&plain) {
                    Next::Inside(text) => self.tls.writer().write_all(&text).unwrap(),
                    Next::Acknowledge => {}
                    Next::Success => return end(3, self.id),
                    Next::Failure => return end(4, self.id),
                }
            }
            let mut output = Vec::new();
            while self.tls.wants_write() {
                self.tls.write_tls(&mut output).unwrap();
            }
            self.writer.begin(output);
        }
        let fragment = self.writer.next();
        self.request(&fragment)
    }

    fn read(&mut self, mut message: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        while !message.is_empty() && !self.broken {
            self.tls.read_tls(&mut message).unwrap();
            match self.tls.process_new_packets() {
                Ok(state) => {
                    let mut part = vec![0; state.plaintext_bytes_to_read()];
                    self.tls.reader().read_exact(&mut part).unwrap();
                    plain.extend(part);
                }
                Err(_) => self.broken = true,
            }
        }
        plain
    }

    fn inside(&mut self, plain: &[u8]) -> Next {
        let turn = self.turn;
        self.turn += 1;
        match &self.method {
            EapMethod::Md5 => unreachable!(),
            EapMethod::Tls(_) => {
                let is_13 = self.tls.protocol_version() == Some(ProtocolVersion::TLSv1_3);
                if is_13 && turn == 0 { Next::Inside(vec![0]) } else { Next::Success }
            }
            // In TLS 1.3, the server has the last message of the handshake before.
            EapMethod::TtlsPap(_) | EapMethod::TtlsMschapV2(_) if plain.is_empty() && turn == 0 => {
                self.turn = 0;
                Next::Acknowledge
            }
            EapMethod::TtlsPap(_) => {
                let (user, password) = (&plain[8..13], plain.split_at(24).1);
                assert_eq!((&plain[..8], user), (&[0, 0, 0, 1, 0x40, 0, 0, 13][..], &b"user7"[..]));
                assert_eq!(password.len(), 16, "padded");
                let given: Vec<u8> = password.iter().copied().take_while(|at| *at != 0).collect();
                if given == self.password.as_bytes() { Next::Success } else { Next::Failure }
            }
            EapMethod::TtlsMschapV2(_) if turn == 0 => self.implicit(plain),
            EapMethod::TtlsMschapV2(_) if self.refuses => Next::Failure,
            EapMethod::TtlsMschapV2(_) => Next::Success,
            EapMethod::Peap(_) => self.peap(turn, plain),
        }
    }

    fn implicit(&mut self, plain: &[u8]) -> Next {
        let label = b"ttls challenge";
        let material = self.tls.export_keying_material([0; 17], label, None).unwrap();
        // User-Name of 13 octets, MS-CHAP-Challenge of 28, MS-CHAP2-Response of 62.
        let (challenge, value) = (&plain[28..44], &plain[56..106]);
        assert_eq!((challenge, value[0]), (&material[..16], material[16]));
        let (own, response) = (value[2..18].try_into().unwrap(), &value[26..50]);
        let proof = mschapv2::prove(b"user7", self.password, challenge.try_into().unwrap(), own);
        let known = proof.response == *response;
        self.refuses = !known;
        let (code, text) = match (known, self.impostor) {
            (false, _) => (2, "E=691 R=0 C=00 V=3 M=no".to_owned()),
            (true, false) => (26, proof.authenticator),
            (true, true) => (26, format!("S={:040}", 0)),
        };
        let mut value = vec![material[16]];
        value.extend(text.bytes());
        let mut avp = vec![0, 0, 0, code, 0xc0, 0, 0, 12 + value.len() as u8, 0, 0, 1, 55];
        avp.extend(value);
        Next::Inside(avp)
    }

    fn peap(&mut self, turn: u8, plain: &[u8]) -> Next {
        const CHALLENGE: [u8; 16] = [9; 16];
        match turn {
            // Inner packets have no header.
            0 => Next::Inside(vec![1]),
            1 => {
                assert_eq!(plain, b"\x01user7");
                Next::Inside([&[26, 1, 5, 0, 23, 16][..], &CHALLENGE, b"r"].concat())
            }
            2 => {
                assert_eq!(plain[..6], [26, 2, 5, 0, 59, 49]);
                let (own, response) = (plain[6..22].try_into().unwrap(), &plain[30..54]);
                assert_eq!(&plain[55..], b"user7");
                let proof = mschapv2::prove(b"user7", self.password, &CHALLENGE, own);
                if proof.response != *response {
                    self.turn = 10;
                    return Next::Inside(b"\x1a\x04\x05\x00\x1cE=691 R=0 C=00 V=3 M=no".to_vec());
                }
                let text = if self.impostor { format!("S={:040}", 0) } else { proof.authenticator };
                Next::Inside([&[26, 3, 5, 0, 46][..], text.as_bytes()].concat())
            }
            3 => {
                assert_eq!(plain, [26, if self.impostor { 4 } else { 3 }]);
                Next::Inside(vec![1, 77, 0, 11, 33, 0x80, 3, 0, 2, 0, 1])
            }
            4 => {
                let status = if self.impostor { 2 } else { 1 };
                assert_eq!(plain, [2, 77, 0, 11, 33, 0x80, 3, 0, 2, 0, status]);
                Next::Success
            }
            10 => {
                assert_eq!(plain, [26, 4]);
                Next::Inside(vec![1, 77, 0, 11, 33, 0x80, 3, 0, 2, 0, 2])
            }
            _ => {
                assert_eq!(plain, [2, 77, 0, 11, 33, 0x80, 3, 0, 2, 0, 2]);
                Next::Failure
            }
        }
    }
}

fn eapol(packet: &[u8]) -> Vec<u8> {
    [&[2, 0], &(packet.len() as u16).to_be_bytes()[..], packet].concat()
}

fn request(id: u8, kind: u8, data: &[u8]) -> Vec<u8> {
    let [high, low] = (5 + data.len() as u16).to_be_bytes();
    eapol(&[&[1, id, high, low, kind], data].concat())
}

fn end(code: u8, id: u8) -> Vec<u8> {
    eapol(&[code, id, 0, 4])
}

/// Both ends.
struct Link {
    supplicant: Supplicant,
    settings: SupplicantSettings,
    server: Server,
    /// Each request arrives twice.
    repeats: bool,
    packets: usize,
}

struct Setup {
    authority: Authority,
    other: Authority,
    versions: Vec<TlsVersion>,
}

impl Setup {
    fn new(version: TlsVersion) -> Self {
        let (authority, other) = (Authority::new("squall"), Authority::new("other"));
        Self { authority, other, versions: vec![version] }
    }

    fn client(&self) -> TlsSettings {
        TlsSettings {
            ca: Some(self.authority.pem.clone()),
            client_certificate: Some(self.authority.certificate()),
            versions: self.versions.clone(),
            ..TlsSettings::default()
        }
    }

    fn link(&self, client: &TlsSettings, method: fn(TlsClient) -> EapMethod) -> Link {
        let method = method(TlsClient::new(client).unwrap());
        let client_ca = matches!(method, EapMethod::Tls(_)).then(|| self.authority.pem.clone());
        let server = TlsSettings {
            certificate: Some(self.authority.certificate()),
            client_ca,
            versions: self.versions.clone(),
            ..TlsSettings::default()
        };
        let server = Server::new(&method, &server);
        let settings = SupplicantSettings {
            method,
            identity: "user{}".into(),
            anonymous: "nobody".into(),
            password: "secret{}".into(),
            attempts: 1,
            ..SupplicantSettings::default()
        };
        let supplicant = Supplicant::default();
        Link { supplicant, settings, server, repeats: false, packets: 0 }
    }
}

impl Link {
    fn receive(&mut self, frame: &[u8]) -> SupplicantStep {
        self.supplicant.receive(NOW, frame, 7, &self.settings)
    }

    fn answer(&mut self, frame: &[u8]) -> Result<Vec<u8>, Option<SupplicantEvent>> {
        let step = self.receive(frame);
        if self.repeats && step.send.is_some() {
            assert_eq!(self.receive(frame), step, "to a repeated request");
        }
        step.send.map(|(_, frame)| frame[8..].to_vec()).ok_or(step.event)
    }

    /// The result of a whole conversation.
    fn run(&mut self) -> Option<SupplicantEvent> {
        self.supplicant.start(NOW, &self.settings);
        assert_eq!(self.answer(&request(1, 1, &[])).unwrap(), b"\x01nobody");
        let mut frame = self.server.start();
        loop {
            self.packets += 1;
            assert!(self.packets < 100, "it has no end");
            match self.answer(&frame) {
                Ok(answer) => {
                    assert_eq!(answer[0], self.server.kind());
                    frame = self.server.turn(&answer[1..]);
                }
                Err(event) => return event,
            }
        }
    }

    fn failure(&mut self) -> &'static str {
        match self.run() {
            Some(SupplicantEvent::Failed(reason)) => {
                assert!(!self.supplicant.is_authorized());
                reason
            }
            event => panic!("{event:?}"),
        }
    }
}

const VERSIONS: [TlsVersion; 2] = [TlsVersion::Tls12, TlsVersion::Tls13];
const METHODS: [fn(TlsClient) -> EapMethod; 4] =
    [EapMethod::Tls, EapMethod::Peap, EapMethod::TtlsPap, EapMethod::TtlsMschapV2];

#[test]
fn each_method_authenticates_in_each_version_even_if_all_requests_arrive_twice() {
    for version in VERSIONS {
        let setup = Setup::new(version);
        for (method, repeats) in METHODS.into_iter().flat_map(|one| [(one, false), (one, true)]) {
            let mut link = setup.link(&setup.client(), method);
            link.repeats = repeats;
            let event = link.run();
            let expected = Some(SupplicantEvent::Authenticated(Nanos::ZERO));
            assert_eq!(event, expected, "{:?}", link.settings.method.kind());
            assert!(link.supplicant.is_authorized() && !link.supplicant.has_tunnel());
        }
    }
}

#[test]
fn a_long_chain_of_certificates_takes_fragments() {
    let setup = Setup::new(TlsVersion::Tls12);
    let (chain, key) = setup.authority.certificate();
    let mut client = setup.client();
    client.client_certificate = Some((chain.repeat(12), key));
    let mut link = setup.link(&client, EapMethod::Tls);
    assert_eq!(link.run(), Some(SupplicantEvent::Authenticated(Nanos::ZERO)));
    assert!(link.packets >= 7, "{} packets", link.packets);
}

#[test]
fn a_wrong_password_has_the_reason_that_the_method_gives() {
    for version in VERSIONS {
        let setup = Setup::new(version);
        let reason = |method| {
            let mut link = setup.link(&setup.client(), method);
            link.server.password = "another";
            link.failure()
        };
        assert_eq!(reason(EapMethod::Peap), "wrong_password");
        assert_eq!(reason(EapMethod::TtlsMschapV2), "wrong_password");
        assert_eq!(reason(EapMethod::TtlsPap), "rejected");
    }
}

#[test]
fn the_success_of_a_server_that_does_not_know_the_password_is_none() {
    let setup = Setup::new(TlsVersion::Tls12);
    for method in [EapMethod::Peap as fn(TlsClient) -> EapMethod, EapMethod::TtlsMschapV2] {
        let mut link = setup.link(&setup.client(), method);
        link.server.impostor = true;
        assert_eq!(link.run(), Some(SupplicantEvent::Ignored("early_success")));
        let due = link.supplicant.due().unwrap();
        let step = link.supplicant.timer(due, &link.settings);
        assert_eq!(step.event, Some(SupplicantEvent::Failed("server_not_authentic")));
    }
}

#[test]
fn certificates_are_trusted_by_authority_and_name() {
    for version in VERSIONS {
        let setup = Setup::new(version);
        let of = |client: &TlsSettings| setup.link(client, EapMethod::Peap);
        let trusting = TlsSettings { ca: None, ..setup.client() };
        let named = |name: &str| TlsSettings { server_name: Some(name.into()), ..setup.client() };
        let foreign = TlsSettings { ca: Some(setup.other.pem.clone()), ..setup.client() };
        let authenticated = Some(SupplicantEvent::Authenticated(Nanos::ZERO));
        assert_eq!(of(&trusting).run(), authenticated);
        assert_eq!(of(&named(NAME)).run(), authenticated);
        assert_eq!(of(&named("radius.example")).failure(), "untrusted_certificate");
        assert_eq!(of(&foreign).failure(), "untrusted_certificate");
    }
}

#[test]
fn alerts_of_the_server_are_reasons() {
    for version in VERSIONS {
        let setup = Setup::new(version);
        let foreign = Some(setup.other.certificate());
        let client = TlsSettings { client_certificate: foreign, ..setup.client() };
        assert_eq!(setup.link(&client, EapMethod::Tls).failure(), "alert_unknown_ca");
        let client = TlsSettings { client_certificate: None, ..setup.client() };
        assert_eq!(setup.link(&client, EapMethod::Tls).failure(), "alert_certificate_required");
    }
    let setup = Setup::new(TlsVersion::Tls12);
    let client = TlsSettings { versions: vec![TlsVersion::Tls13], ..setup.client() };
    assert_eq!(setup.link(&client, EapMethod::Peap).failure(), "alert_protocol_version");
}

#[test]
fn a_server_that_asks_without_end_is_not_answered_without_end() {
    let setup = Setup::new(TlsVersion::Tls13);
    let mut link = setup.link(&setup.client(), EapMethod::Peap);
    link.supplicant.start(NOW, &link.settings);
    link.answer(&request(1, 1, &[])).unwrap();
    let start = link.server.start();
    link.answer(&start).unwrap();
    let mut answers = 0;
    let hostile = [&[0x40], &[0x16; 1000][..]].concat();
    for number in 0..1000_u32 {
        let packet = request(number as u8, PEAP, &hostile);
        answers += usize::from(link.receive(&packet).send.is_some());
    }
    assert_eq!(answers, 198);
    assert_eq!(link.receive(&request(9, 1, &[])).event, Some(ignored("too_many_requests")));
    assert_eq!(link.supplicant.state(), SupplicantState::Authenticating);
    let due = link.supplicant.due().unwrap();
    let step = link.supplicant.timer(due, &link.settings);
    assert_eq!(step.event, Some(SupplicantEvent::Failed("auth_timeout")));
    assert!(!link.supplicant.has_tunnel());
}

fn ignored(reason: &'static str) -> SupplicantEvent {
    SupplicantEvent::Ignored(reason)
}

#[test]
fn packets_out_of_order_are_ignored_with_a_reason() {
    let setup = Setup::new(TlsVersion::Tls13);
    let mut link = setup.link(&setup.client(), EapMethod::TtlsPap);
    link.supplicant.start(NOW, &link.settings);
    link.answer(&request(1, 1, &[])).unwrap();
    let mut reason = |id, data: &[u8]| match link.receive(&request(id, TTLS, data)).event {
        Some(SupplicantEvent::Ignored(reason)) => reason,
        event => panic!("{event:?}"),
    };
    assert_eq!(reason(2, &[]), "truncated");
    assert_eq!(reason(2, &[0]), "no_start");
    link.answer(&request(2, TTLS, &[0x20])).unwrap();
    let mut reason = |id, data: &[u8]| match link.receive(&request(id, TTLS, data)).event {
        Some(SupplicantEvent::Ignored(reason)) => reason,
        event => panic!("{event:?}"),
    };
    assert_eq!(reason(3, &[0x20]), "unexpected_start");
    assert_eq!(reason(3, &[0x80, 0, 1, 0, 1, 1]), "long_message");
    assert_eq!(link.receive(&end(3, 2)).event, Some(ignored("early_success")));
    // Another method is declined in favor of the host's own, and what was begun goes on.
    assert_eq!(link.answer(&request(3, TLS, &[0x20])).unwrap(), [3, TTLS]);
    let alert = request(4, TTLS, &[0, 21, 3, 3, 0, 2, 2, 40]);
    assert_eq!(link.answer(&alert).unwrap(), [TTLS, 0], "an acknowledgement");
    let failed = SupplicantEvent::Failed("alert_handshake_failure");
    assert_eq!(link.receive(&end(4, 4)).event, Some(failed));
}
