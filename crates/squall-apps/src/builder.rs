//! Builds programs in Rust, with the same words as in profiles.

use squall_units::Nanos;

use crate::{Instruction, Message, MessageRef, Mistake, Program, ProgramError, Role, Transport};

/// Builds a [`Program`]. [`build`](Self::build) reports the first error, with the number of its
/// instruction.
#[derive(Clone, Debug)]
#[must_use]
pub struct ProgramBuilder {
    program: Program,
    mistake: Option<ProgramError>,
}

impl ProgramBuilder {
    pub fn new(name: impl Into<String>, role: Role, transport: Transport) -> Self {
        let program = Program {
            name: name.into(),
            role,
            transport,
            instructions: vec![],
            messages: Default::default(),
        };
        Self { program, mistake: None }
    }

    /// Adds a message for [`say`](Self::say).
    pub fn message(mut self, name: impl Into<String>, message: Message) -> Self {
        self.program.messages.insert(name.into(), message);
        self
    }

    /// Number of instructions.
    pub fn instructions(&self) -> usize {
        self.program.instructions.len()
    }

    /// Adds any instruction.
    pub fn push(mut self, instruction: Instruction) -> Self {
        self.program.instructions.push(instruction);
        self
    }

    /// Adds an instruction as text: `line("recv 100 within 2 s")`.
    pub fn line(self, text: &str) -> Self {
        match text.parse() {
            Ok(instruction) => self.push(instruction),
            Err(mistake) => self.wrong(mistake),
        }
    }

    /// Adds several instructions as text.
    pub fn lines<'a>(self, texts: impl IntoIterator<Item = &'a str>) -> Self {
        texts.into_iter().fold(self, Self::line)
    }

    /// Sends `text`, with its escapes and marks ([`Message`]); for UDP, as one datagram.
    pub fn send(self, text: &str) -> Self {
        match text.parse::<Message>() {
            Ok(message) => self.send_message(message),
            Err(error) => self.wrong(error.into()),
        }
    }

    pub fn send_message(self, message: Message) -> Self {
        self.send_ref(MessageRef::Given(message))
    }

    /// Sends these octets unchanged.
    pub fn send_octets(self, octets: impl Into<std::sync::Arc<[u8]>>) -> Self {
        self.send_message(Message::octets(octets))
    }

    /// Sends a named message.
    pub fn say(self, name: impl Into<String>) -> Self {
        self.send_ref(MessageRef::Named(name.into()))
    }

    fn send_ref(self, message: MessageRef) -> Self {
        let instruction = match self.program.transport {
            Transport::Tcp => Instruction::Send(message),
            Transport::Udp => Instruction::SendPacket(message),
        };
        self.push(instruction)
    }

    pub fn recv(self, octets: u32) -> Self {
        self.push(Instruction::Recv { octets, within: None })
    }

    /// Waits for `pattern`, which may have escapes.
    pub fn recv_until(self, pattern: &str) -> Self {
        match crate::message::unescape(pattern) {
            Ok(pattern) => {
                self.push(Instruction::RecvUntil { pattern: pattern.into(), within: None })
            }
            Err(error) => self.wrong(error.into()),
        }
    }

    pub fn recv_packets(self, packets: u32, within: Option<Nanos>) -> Self {
        self.push(Instruction::RecvPackets { packets, take: None, within })
    }

    pub fn recv_packet_octets(self, octets: u32, within: Option<Nanos>) -> Self {
        self.push(Instruction::RecvPacketOctets { octets, within })
    }

    /// Waits `"10 ms"`, `"uniform 1 ms 5 ms"` or `"exponential 10 ms"`.
    pub fn delay(self, text: &str) -> Self {
        self.line(&format!("delay {text}"))
    }

    pub fn http_response(self) -> Self {
        self.push(Instruction::HttpResponse { head: false, within: None })
    }

    /// Repeats `body` `times` times.
    pub fn repeat(self, times: u32, body: impl FnOnce(Self) -> Self) -> Self {
        body(self.push(Instruction::Loop(crate::Times::Count(times)))).push(Instruction::End)
    }

    /// Repeats `body` until the flow ends.
    pub fn forever(self, body: impl FnOnce(Self) -> Self) -> Self {
        body(self.push(Instruction::Loop(crate::Times::Forever))).push(Instruction::End)
    }

    pub fn close(self) -> Self {
        self.push(Instruction::Close)
    }

    pub fn reset(self) -> Self {
        self.push(Instruction::Reset)
    }

    pub fn wait_peer_close(self) -> Self {
        self.push(Instruction::WaitPeerClose)
    }

    /// Checks and returns the program.
    ///
    /// # Errors
    /// The first error.
    pub fn build(self) -> Result<Program, ProgramError> {
        if let Some(mistake) = self.mistake {
            return Err(mistake);
        }
        self.program.check()?;
        Ok(self.program)
    }

    fn wrong(mut self, mistake: Mistake) -> Self {
        let at = self.program.instructions.len() + 1;
        let error = self.program.error(at, mistake);
        self.mistake.get_or_insert(error);
        self
    }
}
