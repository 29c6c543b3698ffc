//! The handshake of TLS 1.3 after ServerHello (RFC 8446 sections 4.3 and 4.4).

use rustls::pki_types::CertificateDer;

use super::{
    Done, Handshake, HelloClient, HelloClientError, State, UNEXPECTED_MESSAGE, alert, broken,
    extension, group_name,
    keys::{HANDSHAKE, RecordKeys, Schedule, Suite, Traffic},
    message,
    messages::{self, ServerHello},
    shares, unreadable,
};
use crate::hello::octets::Octets;

/// The beginning of what a server signs (RFC 8446 section 4.4.3), after 64 spaces.
const SIGNED: &[u8] = b"TLS 1.3, server CertificateVerify\0";

pub(super) struct Exchange13 {
    suite: &'static Suite,
    schedule: Schedule,
    traffic: Traffic,
    expects: Expects,
    /// Whether the server has asked for a certificate.
    requested: bool,
    /// The extension for settings of the protocol inside, if the server has it.
    settings: Option<u16>,
    chain: Vec<CertificateDer<'static>>,
}

/// The next message.
enum Expects {
    EncryptedExtensions,
    /// Or a CertificateRequest.
    Certificate,
    CertificateVerify,
    Finished,
}

impl HelloClient {
    /// Begins after a ServerHello.
    pub(super) fn begin13(
        &mut self,
        handshake: &mut Handshake,
        server: &ServerHello<'_>,
        suite: &'static Suite,
        message: &[u8],
    ) -> Result<Exchange13, HelloClientError> {
        let (group, key) = server.key_share()?;
        let hello = &self.config.hello;
        server.check_session_id(handshake.session_id())?;
        if handshake.retried.is_some_and(|(suite, _)| suite != server.suite) {
            return Err(broken(
                "the server changed the cipher suite after its HelloRetryRequest",
                alert::ILLEGAL_PARAMETER,
            ));
        }
        self.ends_record()?;
        let is_sent = match handshake.retried {
            Some((_, only @ 1..)) => group == only,
            _ => hello.share_groups().any(|one| one == group),
        };
        if !is_sent {
            return Err(broken(
                "the server chose a group of which the hello has no key share",
                alert::ILLEGAL_PARAMETER,
            ));
        }
        if !shares::is_supported(group) {
            return Err(HelloClientError::Incompatible(group_name(group)));
        }
        let psk = match (server.resumes()?, handshake.ticket.take()) {
            (true, Some(ticket)) if ticket.fits(suite) => Some(ticket.secret),
            (true, _) => {
                return Err(broken(
                    "the server resumes a session with the hash of another cipher suite",
                    alert::ILLEGAL_PARAMETER,
                ));
            }
            (false, _) => None,
        };
        self.resumed = psk.is_some();
        handshake.transcript.choose(suite);
        handshake.transcript.add(message);
        let share = std::mem::take(&mut handshake.shares);
        let share = share.into_iter().find(|share| share.group == group);
        let schedule = share
            .and_then(|share| share.agree(key, |shared| Schedule::new(suite, psk.as_ref(), shared)))
            .ok_or(broken("the server's key share is not valid", alert::ILLEGAL_PARAMETER))?;
        let traffic = schedule.handshake_traffic(handshake.transcript.hash().as_ref());
        self.log("CLIENT_HANDSHAKE_TRAFFIC_SECRET", handshake, traffic.client.as_ref());
        self.log("SERVER_HANDSHAKE_TRAFFIC_SECRET", handshake, traffic.server.as_ref());
        self.reading = Some(RecordKeys::tls13(suite, &traffic.server));
        self.writing = Some(RecordKeys::tls13(suite, &traffic.client));
        Ok(Exchange13 {
            suite,
            schedule,
            traffic,
            expects: Expects::EncryptedExtensions,
            requested: false,
            settings: None,
            chain: vec![],
        })
    }

    /// Processes a message. Returns the next state; `None`: the handshake is complete.
    pub(super) fn message13(
        &mut self,
        mut exchange: Box<Exchange13>,
        handshake: &mut Handshake,
        message: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<State>, HelloClientError> {
        let (kind, body) = (message[0], &message[4..]);
        exchange.expects = match (&exchange.expects, kind) {
            (Expects::EncryptedExtensions, message::ENCRYPTED_EXTENSIONS) => {
                self.encrypted_extensions(&mut exchange, body)?;
                // The ticket replaces the certificate (RFC 8446 section 2.2).
                if self.resumed { Expects::Finished } else { Expects::Certificate }
            }
            (Expects::Certificate, message::CERTIFICATE_REQUEST) if !exchange.requested => {
                // Its context has no octets during the handshake (RFC 8446 section 4.3.2).
                if body.first() != Some(&0) {
                    return Err(unreadable("the server's CertificateRequest cannot be read"));
                }
                exchange.requested = true;
                Expects::Certificate
            }
            (Expects::Certificate, message::CERTIFICATE) => {
                if self.config.verifier.is_some() {
                    let (chain, status) = messages::certificates13(body)
                        .ok_or(unreadable("the server's Certificate cannot be read"))?;
                    self.verify_chain(handshake, &chain, &status)?;
                    exchange.chain = chain;
                }
                Expects::CertificateVerify
            }
            (Expects::Certificate, message::COMPRESSED_CERTIFICATE)
                if self.config.hello.offers_extension(extension::COMPRESS_CERTIFICATE) =>
            {
                if self.config.verifier.is_some() {
                    let why = "the server has compressed its certificate, which cannot be verified";
                    return Err(HelloClientError::Certificate(why.into()));
                }
                Expects::CertificateVerify
            }
            (Expects::CertificateVerify, message::CERTIFICATE_VERIFY) => {
                let transcript = handshake.transcript.hash();
                let signed = Octets(body)
                    .all(|octets| Some((octets.u16()?, octets.counted16()?)))
                    .ok_or(unreadable("the server's CertificateVerify cannot be read"))?;
                let text = [&[b' '; 64], SIGNED, transcript.as_ref()].concat();
                self.verify_signature(&exchange.chain, signed.0, &text, signed.1, true)?;
                Expects::Finished
            }
            (Expects::Finished, message::FINISHED) => {
                let transcript = handshake.transcript.hash();
                let secret = &exchange.traffic.server;
                let expected = exchange.suite.finished(secret, transcript.as_ref());
                if expected.as_ref() != body {
                    return Err(broken("the server's Finished is wrong", alert::DECRYPT_ERROR));
                }
                self.ends_record()?;
                handshake.transcript.add(message);
                self.finish13(&exchange, handshake, out);
                return Ok(None);
            }
            _ => return Err(UNEXPECTED_MESSAGE),
        };
        handshake.transcript.add(message);
        Ok(Some(State::Tls13(exchange)))
    }

    fn encrypted_extensions(&mut self, exchange: &mut Exchange13, body: &[u8]) -> Done {
        let list = Octets(body)
            .all(Octets::counted16)
            .ok_or(unreadable("the server's EncryptedExtensions cannot be read"))?;
        for (kind, body) in messages::extensions(list, &self.config.hello, [None; 2])? {
            match kind {
                extension::ALPN => self.choose_protocol(body)?,
                extension::MAX_FRAGMENT_LENGTH | extension::RECORD_SIZE_LIMIT => {
                    self.limit_records(kind, body, true)?;
                }
                kind if extension::ALPS.contains(&kind) => exchange.settings = Some(kind),
                // All else that is offered is accepted, and changes nothing.
                _ => {}
            }
        }
        Ok(())
    }

    /// Sends the client's messages, and changes to the keys of application data.
    fn finish13(&mut self, exchange: &Exchange13, handshake: &mut Handshake, out: &mut Vec<u8>) {
        let transcript = handshake.transcript.hash();
        let (traffic, exporter) = exchange.schedule.application_traffic(transcript.as_ref());
        self.log("CLIENT_TRAFFIC_SECRET_0", handshake, traffic.client.as_ref());
        self.log("SERVER_TRAFFIC_SECRET_0", handshake, traffic.server.as_ref());
        self.log("EXPORTER_SECRET", handshake, exporter.as_ref());
        self.write_compatibility(handshake, out);
        let mut flight = vec![];
        if let Some(kind) = exchange.settings {
            // As in BoringSSL, before the certificate; the settings have no octets.
            let [high, low] = kind.to_be_bytes();
            let settings = [message::ENCRYPTED_EXTENSIONS, 0, 0, 6, 0, 4, high, low, 0, 0];
            flight.extend_from_slice(&settings);
        }
        if exchange.requested {
            flight.extend_from_slice(&[message::CERTIFICATE, 0, 0, 4, 0, 0, 0, 0]);
        }
        handshake.transcript.add(&flight);
        let transcript = handshake.transcript.hash();
        let verify = exchange.suite.finished(&exchange.traffic.client, transcript.as_ref());
        let verify = verify.as_ref();
        let len = u8::try_from(verify.len()).expect("a hash has at most 48 octets");
        let begin = flight.len();
        flight.extend_from_slice(&[message::FINISHED, 0, 0, len]);
        flight.extend_from_slice(verify);
        self.write(HANDSHAKE, &flight, out);
        if self.config.tickets.is_some() && self.config.hello.resumes_tls13() {
            handshake.transcript.add(&flight[begin..]);
            let secret = exchange.schedule.resumption(handshake.transcript.hash().as_ref());
            self.resumption = Some(Box::new((handshake.name.clone(), secret)));
        }
        self.reading = Some(RecordKeys::tls13(exchange.suite, &traffic.server));
        self.writing = Some(RecordKeys::tls13(exchange.suite, &traffic.client));
    }
}
