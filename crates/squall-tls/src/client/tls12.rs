//! The handshake of TLS 1.2 after ServerHello (RFC 5246 section 7.4), with ECDHE (RFC 8422).

use rustls::pki_types::CertificateDer;

use super::{
    Done, Handshake, HelloClient, HelloClientError, State, UNEXPECTED_MESSAGE, alert, broken,
    extension, group_name,
    keys::{CHANGE_CIPHER_SPEC, HANDSHAKE, RecordKeys, Suite},
    message,
    messages::{self, KeyExchange12, ServerHello},
    shares::{self, Share},
    tickets::Ticket,
    unreadable,
};

/// The end of the random of servers that speak TLS 1.3, but choose 1.2 (RFC 8446 section 4.1.3).
const DOWNGRADE: &[u8] = b"DOWNGRD\x01";

pub(super) struct Exchange12 {
    suite: &'static Suite,
    server_random: [u8; 32],
    extended_master_secret: bool,
    /// Whether the server announced a CertificateStatus, and a NewSessionTicket.
    status: bool,
    ticket: bool,
    requested: bool,
    chain: Vec<CertificateDer<'static>>,
    /// The client's share, and the server's point.
    share: Option<(Share, Vec<u8>)>,
    master: [u8; 48],
    /// The keys after the server's ChangeCipherSpec, and in a resumed session after the client's.
    reading: Option<RecordKeys>,
    writing: Option<RecordKeys>,
    /// A ticket for further sessions: that of the hello, if the server goes on from it, or a new one.
    kept: Option<Ticket>,
    expects: Expects,
}

/// The next message.
enum Expects {
    Certificate,
    /// Or a CertificateStatus before it.
    KeyExchange,
    /// Or a CertificateRequest before it.
    Done,
    /// Or a NewSessionTicket before it.
    ChangeCipherSpec,
    Finished,
}

impl Exchange12 {
    /// The keys for the records of the server from now on, if they change here.
    pub(super) fn change_cipher_spec(&mut self) -> Option<RecordKeys> {
        if !matches!(self.expects, Expects::ChangeCipherSpec) {
            return None;
        }
        self.expects = Expects::Finished;
        self.reading.take()
    }

    /// The verify_data of a Finished (RFC 5246 section 7.4.9).
    fn finished(&self, label: &str, handshake: &Handshake) -> [u8; 12] {
        let mut verify = [0; 12];
        let transcript = handshake.transcript.hash();
        self.suite.prf(&self.master, label, &[transcript.as_ref()], &mut verify);
        verify
    }
}

impl HelloClient {
    /// Begins after a ServerHello.
    pub(super) fn begin12(
        &mut self,
        handshake: &mut Handshake,
        server: &ServerHello<'_>,
        suite: &'static Suite,
        message: &[u8],
    ) -> Result<Exchange12, HelloClientError> {
        let hello = self.config.hello.clone();
        if handshake.retried.is_some() {
            return Err(broken(
                "the server chose TLS 1.2 after its HelloRetryRequest",
                alert::ILLEGAL_PARAMETER,
            ));
        }
        if hello.offers_version(0x0304) && server.random.ends_with(DOWNGRADE) {
            return Err(broken(
                "the server speaks TLS 1.3, but chose 1.2: a device has changed the hello",
                alert::ILLEGAL_PARAMETER,
            ));
        }
        let session_id = handshake.session_id();
        self.resumed = !session_id.is_empty() && server.repeats_session_id(session_id);
        let kept = handshake.ticket.take().filter(|_| self.resumed);
        if self.resumed && !kept.as_ref().is_some_and(Ticket::is_of_tls12) {
            return Err(broken(
                "the server resumes a session that does not exist",
                alert::ILLEGAL_PARAMETER,
            ));
        }
        let mut exchange = Exchange12 {
            suite,
            server_random: *server.random,
            extended_master_secret: false,
            status: false,
            ticket: false,
            requested: false,
            chain: vec![],
            share: None,
            master: [0; 48],
            reading: None,
            writing: None,
            kept,
            expects: Expects::Certificate,
        };
        for &(kind, body) in &server.extensions {
            match kind {
                extension::ALPN => self.choose_protocol(body)?,
                extension::MAX_FRAGMENT_LENGTH | extension::RECORD_SIZE_LIMIT => {
                    self.limit_records(kind, body, false)?;
                }
                extension::EXTENDED_MASTER_SECRET => exchange.extended_master_secret = true,
                extension::STATUS_REQUEST => exchange.status = true,
                extension::SESSION_TICKET => exchange.ticket = true,
                // All else that is offered is accepted, and changes nothing.
                _ => {}
            }
        }
        handshake.shares = vec![];
        handshake.transcript.choose(suite);
        handshake.transcript.add(message);
        if let Some(ticket) = &exchange.kept {
            if !ticket.fits12(suite, exchange.extended_master_secret) {
                return Err(broken(
                    "the server resumes a session with another cipher suite or kind of master secret",
                    alert::ILLEGAL_PARAMETER,
                ));
            }
            exchange.master.copy_from_slice(ticket.secret.as_ref());
            exchange.writing = Some(self.keys12(&mut exchange, handshake));
            exchange.expects = Expects::ChangeCipherSpec;
        }
        Ok(exchange)
    }

    /// Makes the keys of the session. Returns the client's.
    fn keys12(&self, exchange: &mut Exchange12, handshake: &Handshake) -> RecordKeys {
        self.log("CLIENT_RANDOM", handshake, &exchange.master);
        let client: &[u8; 32] = handshake.random.first_chunk().expect("64 octets");
        let randoms = [client, &exchange.server_random];
        let [writing, reading] = RecordKeys::tls12(exchange.suite, &exchange.master, randoms);
        exchange.reading = Some(reading);
        writing
    }

    /// Changes to the client's keys, and sends its Finished.
    fn finish12(
        &mut self,
        exchange: &Exchange12,
        writing: RecordKeys,
        handshake: &mut Handshake,
        out: &mut Vec<u8>,
    ) {
        self.write(CHANGE_CIPHER_SPEC, &[1], out);
        self.writing = Some(writing);
        let verify = exchange.finished("client finished", handshake);
        let finished = [&[message::FINISHED, 0, 0, 12], &verify[..]].concat();
        handshake.transcript.add(&finished);
        self.write(HANDSHAKE, &finished, out);
    }

    /// Processes a message. Returns the next state; `None`: the handshake is complete.
    pub(super) fn message12(
        &mut self,
        mut exchange: Box<Exchange12>,
        handshake: &mut Handshake,
        message: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<State>, HelloClientError> {
        let (kind, body) = (message[0], &message[4..]);
        exchange.expects = match (&exchange.expects, kind) {
            (Expects::Certificate, message::CERTIFICATE) => {
                if self.config.verifier.is_some() {
                    exchange.chain = messages::certificates12(body)
                        .ok_or(unreadable("the server's Certificate cannot be read"))?;
                    self.verify_chain(handshake, &exchange.chain, &[])?;
                }
                Expects::KeyExchange
            }
            (Expects::KeyExchange, message::CERTIFICATE_STATUS) if exchange.status => {
                exchange.status = false;
                Expects::KeyExchange
            }
            (Expects::KeyExchange, message::SERVER_KEY_EXCHANGE) => {
                self.key_exchange(&mut exchange, handshake, body)?;
                Expects::Done
            }
            (Expects::Done, message::CERTIFICATE_REQUEST) if !exchange.requested => {
                exchange.requested = true;
                Expects::Done
            }
            (Expects::Done, message::SERVER_HELLO_DONE) if body.is_empty() => {
                handshake.transcript.add(message);
                self.answer12(&mut exchange, handshake, out)?;
                exchange.expects = Expects::ChangeCipherSpec;
                return Ok(Some(State::Tls12(exchange)));
            }
            (Expects::ChangeCipherSpec, message::NEW_SESSION_TICKET) if exchange.ticket => {
                exchange.ticket = false;
                if let Some(tickets) = &self.config.tickets {
                    let extended = exchange.extended_master_secret;
                    let session = (exchange.suite, &exchange.master, extended);
                    exchange.kept = Ticket::read12(body, session, tickets.now())
                        .ok_or(unreadable("the server's NewSessionTicket cannot be read"))?;
                }
                Expects::ChangeCipherSpec
            }
            (Expects::Finished, message::FINISHED) => {
                let expected = exchange.finished("server finished", handshake);
                if expected != body {
                    return Err(broken("the server's Finished is wrong", alert::DECRYPT_ERROR));
                }
                if let Some(writing) = exchange.writing.take() {
                    handshake.transcript.add(message);
                    self.finish12(&exchange, writing, handshake, out);
                }
                if let (Some(tickets), Some(ticket)) = (&self.config.tickets, exchange.kept.take())
                {
                    tickets.add(&handshake.name, ticket);
                }
                return Ok(None);
            }
            // Servers may ask for a handshake at any time (RFC 5246 section 7.4.1.1). It is no part
            // of the transcript.
            (_, message::HELLO_REQUEST) if body.is_empty() => {
                self.count_idle()?;
                return Ok(Some(State::Tls12(exchange)));
            }
            _ => return Err(UNEXPECTED_MESSAGE),
        };
        handshake.transcript.add(message);
        Ok(Some(State::Tls12(exchange)))
    }

    fn key_exchange(
        &mut self,
        exchange: &mut Exchange12,
        handshake: &Handshake,
        body: &[u8],
    ) -> Done {
        let server = KeyExchange12::read(body)
            .ok_or(unreadable("the server's ServerKeyExchange cannot be read"))?;
        let group = server.group;
        // Without the extension a server is free to choose (RFC 8422 section 4).
        let mut groups = self.config.hello.groups().peekable();
        if groups.peek().is_some() && !groups.any(|one| one == group) {
            return Err(broken(
                "the server chose a group that the hello does not offer",
                alert::ILLEGAL_PARAMETER,
            ));
        }
        // TLS 1.2 does not define it.
        if group == shares::X25519MLKEM768 {
            return Err(HelloClientError::Incompatible(group_name(group)));
        }
        let share =
            Share::new(group).ok_or_else(|| HelloClientError::Incompatible(group_name(group)))?;
        let client_random = &handshake.random[..32];
        let text = [client_random, &exchange.server_random, server.parameters].concat();
        self.verify_signature(&exchange.chain, server.scheme, &text, server.signature, false)?;
        exchange.share = Some((share, server.point.to_vec()));
        Ok(())
    }

    /// Sends the client's messages, and makes the keys.
    fn answer12(
        &mut self,
        exchange: &mut Exchange12,
        handshake: &mut Handshake,
        out: &mut Vec<u8>,
    ) -> Done {
        let Some((share, point)) = exchange.share.take() else { return Err(UNEXPECTED_MESSAGE) };
        let mut flight = vec![];
        if exchange.requested {
            flight.extend_from_slice(&[message::CERTIFICATE, 0, 0, 3, 0, 0, 0]);
        }
        let len = u8::try_from(share.public.len()).expect("a point has at most 97 octets");
        flight.extend_from_slice(&[message::CLIENT_KEY_EXCHANGE, 0, 0, len + 1, len]);
        flight.extend_from_slice(&share.public);
        handshake.transcript.add(&flight);
        self.write(HANDSHAKE, &flight, out);
        let client: &[u8; 32] = handshake.random.first_chunk().expect("64 octets");
        let randoms = [client, &exchange.server_random];
        let (suite, hash) = (exchange.suite, handshake.transcript.hash());
        let extended = exchange.extended_master_secret;
        let master = share.agree(&point, |shared| {
            let mut master = [0; 48];
            if extended {
                let seed: [&[u8]; 1] = [hash.as_ref()];
                suite.prf(shared, "extended master secret", &seed, &mut master);
            } else {
                let seed: [&[u8]; 2] = [randoms[0], randoms[1]];
                suite.prf(shared, "master secret", &seed, &mut master);
            }
            master
        });
        exchange.master = master
            .ok_or(broken("the server's key share is not valid", alert::ILLEGAL_PARAMETER))?;
        let writing = self.keys12(exchange, handshake);
        self.finish12(exchange, writing, handshake, out);
        Ok(())
    }
}
