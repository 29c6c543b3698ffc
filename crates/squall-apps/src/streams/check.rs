//! Which programs streams of HTTP/2 and HTTP/3 can carry.

use super::heads::translate;
use crate::{
    Instruction, Message, MessageRef, Mistake, Part, Program, ProgramError, Role, Transport,
    answers::head_end, grpc,
};

impl Program {
    /// Checks that the program can run over streams of HTTP/2 ([`crate::Apps::over_http2`]): each
    /// message is a whole request or response of HTTP/1.1, and nothing concerns a connection.
    ///
    /// # Errors
    /// The first instruction for which this does not hold. A program that only waits for the peer's
    /// close is accepted, because a plan has it for an end that Squall does not run.
    pub fn check_over_http2(&self) -> Result<(), ProgramError> {
        if self.transport == Transport::Udp {
            let why = "it is over TCP, and the program over UDP";
            return Err(self.error(0, Mistake::NotOverHttp2 { found: "udp", why }));
        }
        if matches!(self.instructions[..], [Instruction::WaitPeerClose]) {
            return Ok(());
        }
        for (i, instruction) in self.instructions.iter().enumerate() {
            self.instruction_over_http2(instruction)
                .map_err(|mistake| self.error(i + 1, mistake))?;
        }
        Ok(())
    }

    /// Checks that the program can run over streams of HTTP/3 ([`crate::Apps::over_http3`]).
    ///
    /// # Errors
    /// As for [`check_over_http2`](Self::check_over_http2), and the first instruction of WebSocket or
    /// gRPC.
    pub fn check_over_http3(&self) -> Result<(), ProgramError> {
        if self.transport == Transport::Udp {
            let why = "streams carry octets in order, and the program sends datagrams; try an \
                       application over TCP";
            return Err(self.error(0, Mistake::NotOverHttp3 { found: "udp", why }));
        }
        self.check_over_http2().map_err(|error| ProgramError {
            mistake: match error.mistake {
                Mistake::NotOverHttp2 { found, why } => Mistake::NotOverHttp3 { found, why },
                other => other,
            },
            ..error
        })?;
        for (i, instruction) in self.instructions.iter().enumerate() {
            let found = instruction.word();
            if ["ws_", "websocket", "grpc"].iter().any(|first| found.starts_with(first)) {
                let why = "it is for connections of HTTP/1.1 and HTTP/2; try http = \"2\"";
                return Err(self.error(i + 1, Mistake::NotOverHttp3 { found, why }));
            }
        }
        Ok(())
    }

    /// Checks that the program can run over connections of HTTP/1.1, or without HTTP.
    ///
    /// # Errors
    /// The first instruction of gRPC, which needs streams of HTTP/2.
    pub fn check_without_http2(&self) -> Result<(), ProgramError> {
        let mut words = self.instructions.iter().map(Instruction::word);
        match words.position(|word| word.starts_with("grpc_")) {
            Some(at) => {
                let found = self.instructions[at].word();
                Err(self.error(at + 1, Mistake::NeedsHttp2 { found }))
            }
            None => Ok(()),
        }
    }

    /// Whether the program asks for WebSocket.
    #[must_use]
    pub fn uses_websocket(&self) -> bool {
        self.instructions.iter().any(|of| matches!(of, Instruction::Websocket { .. }))
    }

    fn instruction_over_http2(&self, instruction: &Instruction) -> Result<(), Mistake> {
        let why = match instruction {
            Instruction::Send(MessageRef::Given(message)) => {
                return check_message(message, self.role);
            }
            Instruction::Send(MessageRef::Named(name)) => {
                let message = self.messages.get(name);
                return message.map_or(Ok(()), |message| check_message(message, self.role));
            }
            Instruction::GrpcCall { target, metadata, deadline } => {
                let request = grpc::request(target, metadata.as_ref(), *deadline)?;
                return check_message(&request, self.role);
            }
            Instruction::WsFanOut { .. } => {
                "messages wake flows, and streams are none; try a template without http"
            }
            Instruction::Begin(_) | Instruction::Next(_) => {
                "a stream cannot begin flows; try a template without http"
            }
            Instruction::Reset => "it would end the streams of other requests; try close",
            Instruction::Rate { octets_per_second: 1.., .. } => {
                "the frames of a message are made as the peer's window allows; try leaving it out"
            }
            Instruction::Recv { .. } | Instruction::RecvUntil { .. }
                if self.role == Role::Client =>
            {
                "a client reads whole answers; try http_response"
            }
            Instruction::WaitPeerClose if self.role == Role::Client => {
                "the server waits too, as clients end connections; try leaving it out"
            }
            Instruction::Websocket { fields: Some(fields), .. } if !names_host(fields) => {
                "its fields replace Host, which a request needs; try adding Host: ${server}"
            }
            _ => return Ok(()),
        };
        Err(Mistake::NotOverHttp2 { found: instruction.word(), why })
    }
}

/// Whether one of these lines is the field Host.
fn names_host(fields: &Message) -> bool {
    let octets = fields.parts.iter().flat_map(|part| match part {
        Part::Octets(octets) => &octets[..],
        _ => b"?",
    });
    let octets: Vec<u8> = octets.copied().collect();
    let mut names = octets.split(|octet| *octet == b'\n').map(|line| line.get(..5));
    names.any(|name| name.is_some_and(|name| name.eq_ignore_ascii_case(b"host:")))
}

/// Checks the octets before the first mark.
fn check_message(message: &Message, role: Role) -> Result<(), Mistake> {
    let mut text = Vec::new();
    let mut whole = true;
    for part in &message.parts {
        match part {
            Part::Octets(octets) => text.extend_from_slice(octets),
            _ => {
                whole = false;
                break;
            }
        }
    }
    if head_end(&text).is_none() && !whole {
        return Ok(());
    }
    let outline = translate(&text, role, false, |_, _| {});
    let checked = outline.and_then(|outline| {
        if outline.trailers {
            return Err("it does not begin with a response: HTTP/1.1 200 OK");
        }
        if outline.tunnel && role == Role::Client {
            return Err("its fields ask for WebSocket; try the instruction websocket");
        }
        let body = message.fixed_len().map_or(0, |all| all.saturating_sub(outline.len.into()));
        outline.check_body(body)
    });
    checked.map_err(|why| Mistake::NoHttpMessage { why })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(role: Role, lines: &[&str]) -> Result<(), String> {
        let lines = lines.iter().copied();
        let program = Program::parse("p", role, Transport::Tcp, lines, Default::default());
        program.expect("a right program").check_over_http2().map_err(|error| error.to_string())
    }

    #[test]
    fn programs_of_requests_and_answers_fit_streams() {
        let request = r#"send "GET /${random:hex:4} HTTP/1.1\r\nHost: a\r\n\r\n""#;
        assert_eq!(check(Role::Client, &[request, "http_response", "close"]), Ok(()));
        assert_eq!(check(Role::Client, &["wait_peer_close"]), Ok(()), "of an external client");
        let answer = r#"send "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok""#;
        for fields in ["", r#" "Origin: a\r\nhost: b\r\n""#] {
            assert_eq!(check(Role::Client, &[&format!("websocket \"/\"{fields}")]), Ok(()));
        }
        let server = ["loop forever", r#"recv_until "\r\n\r\n""#, answer, "end"];
        assert_eq!(check(Role::Server, &server), Ok(()));
    }

    #[test]
    fn other_programs_are_refused_with_the_instruction() {
        for (role, lines, expected) in [
            (Role::Client, &["send \"hello\\r\\n\"", "http_response"][..], "instruction 1"),
            (Role::Client, &["send \"GET / HTTP/1.1\\r\\n\\r\\n\"", "http_response"], "Host"),
            (
                Role::Client,
                &["send \"GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\nGET\"", "http_response"],
                "no Content-Length",
            ),
            (Role::Client, &["recv 3"], "try http_response"),
            (Role::Client, &["begin page"], "cannot begin flows"),
            (Role::Client, &["close", "wait_peer_close"], "instruction 2"),
            (Role::Client, &[r#"websocket "/" "Origin: a\r\n""#], "try adding Host"),
            (
                Role::Client,
                &[
                    "send \"GET / HTTP/1.1\\r\\nHost: a\\r\\nUpgrade: \
                     websocket\\r\\nSec-WebSocket-Key: a\\r\\n\\r\\n\"",
                    "http_response",
                ],
                "try the instruction websocket",
            ),
            (Role::Server, &["recv 3", "reset"], "instruction 2"),
            (Role::Server, &["recv 3", "rate 10 B every 1 ms"], "window"),
        ] {
            let error = check(role, lines).expect_err("not for streams");
            assert!(error.contains(expected), "{lines:?}: {error}");
        }
        let error = crate::builtin::dns().client.check_over_http2().expect_err("over UDP");
        assert!(error.to_string().contains("over UDP"), "{error}");
    }
}
