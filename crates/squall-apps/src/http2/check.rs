//! Which programs streams of HTTP/2 can carry.

use super::heads::translate;
use crate::{
    Instruction, Message, MessageRef, Mistake, Part, Program, ProgramError, Role, Transport,
    answers::head_end,
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

    fn instruction_over_http2(&self, instruction: &Instruction) -> Result<(), Mistake> {
        let why = match instruction {
            Instruction::Send(MessageRef::Given(message)) => {
                return check_message(message, self.role);
            }
            Instruction::Send(MessageRef::Named(name)) => {
                let message = self.messages.get(name);
                return message.map_or(Ok(()), |message| check_message(message, self.role));
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
            Instruction::Websocket { .. } | Instruction::WsAccept => {
                "WebSocket is for connections of HTTP/1.1; try a template without http"
            }
            _ => return Ok(()),
        };
        Err(Mistake::NotOverHttp2 { found: instruction.word(), why })
    }
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
            (Role::Client, &["websocket \"/\"", "ws_close"], "HTTP/1.1"),
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
