//! Programs as plain values. [`crate::Apps::add`] checks them.

use std::{collections::BTreeMap, sync::Arc};

use squall_units::Nanos;

use crate::{
    Data, Message, MessageError,
    grpc::{Status, Statuses},
};

/// The instructions of one side of a flow.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    pub name: String,
    pub role: Role,
    pub transport: Transport,
    pub instructions: Vec<Instruction>,
    /// Named messages; others are part of their instructions.
    pub messages: BTreeMap<String, Message>,
}

/// The side that begins the flow, and the side that accepts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    Client,
    Server,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Transport {
    Tcp,
    Udp,
}

/// A step of a program. The text form (in parentheses) is used by `FromStr` and `Display`.
///
/// A message is text in quotes (`send "hello\r\n"`) or a name of [`Program::messages`] (`send
/// hello`). A flow that reaches the end of its instructions closes.
#[derive(Clone, Debug, PartialEq)]
pub enum Instruction {
    /// Begins the flow (`connect`). Optional first instruction of clients.
    Connect,
    /// Waits for a flow (`accept`). Optional first instruction of servers.
    Accept,
    /// Sends a message and continues at once (`send "..."`), or at the rate of
    /// [`Instruction::Rate`].
    Send(MessageRef),
    /// Waits for this number of octets, at least 1 (`recv 1460`, `recv 1460 within 2 s`).
    Recv { octets: u32, within: Option<Nanos> },
    /// Waits for a pattern of at most 255 octets (`recv_until "\r\n\r\n"`). Octets before it are
    /// discarded.
    RecvUntil { pattern: Arc<[u8]>, within: Option<Nanos> },
    /// Waits (`delay 10 ms`, `delay uniform 1 ms 5 ms`, `delay exponential 10 ms`).
    Delay(Delay),
    /// Sets a variable (`set x 5`, `set x random 1 10`, `set x clock`). Variables are 32-bit
    /// numbers and begin as 0.
    Set { variable: String, value: Value },
    /// Adds to a variable, which saturates at 0 and 4,294,967,295 (`add x 1`, `add x -1`).
    Add { variable: String, value: i64 },
    /// Adds to a counter that reports show for the template and side (`count pages`, `count octets
    /// 1460`, `count rounds x`, `count waited elapsed x`).
    Count { counter: String, amount: Amount },
    /// Names the template whose flow this flow, or the flow that began it, begins next (`next
    /// page`, `next "template 2"`).
    Next(String),
    /// Begins a flow of a template, between the same client and server if they belong to it, and
    /// waits for its end (`begin page`). Without a name (`begin`), it uses the template that was
    /// named last.
    Begin(Option<String>),
    /// A target of jumps (`label again`).
    Label(String),
    /// Jumps to a label (`jump again`, `jump again if x < 5`, `jump again if elapsed x < 2 s`).
    Jump { label: String, condition: Option<Condition> },
    /// Repeats the instructions up to its [`Instruction::End`] (`loop 3`, `loop until x >= 5`,
    /// `loop forever`). A server whose endless loop begins with a `recv` or `recv_until` has
    /// finished when the client closes there.
    Loop(Times),
    /// Ends a loop (`end`).
    End,
    /// Closes the sending direction (`close`). Later instructions can still receive.
    Close,
    /// Ends the flow at once; over TCP, with a RST (`reset`).
    Reset,
    /// Waits until all sent data is acknowledged (`flush`).
    Flush,
    /// Waits until the peer closes, and discards its further data (`wait_peer_close`). UDP has no
    /// close: there, it waits until the flow was silent for `udp_idle`; the program has then
    /// finished, whichever side ends the flow.
    WaitPeerClose,
    /// Limits the rate of the following sends in program text: per `tick`, as many octets as the
    /// rate allows (`rate 125000 every 10 ms`, in octets per second). Rate 0 removes the limit
    /// (`rate 0`).
    Rate { octets_per_second: u64, tick: Nanos },
    /// Sends a message as one datagram (`send_packet "..."`).
    SendPacket(MessageRef),
    /// Waits for this number of datagrams, at least 1 (`recv_packets 3 within 2 s`); `take` copies
    /// octets of each into a variable.
    RecvPackets { packets: u32, take: Option<Take>, within: Option<Nanos> },
    /// Waits for datagrams with this number of octets in total (`recv_packet_octets 3000 within 2
    /// s`). The last may exceed it.
    RecvPacketOctets { octets: u32, within: Option<Nanos> },
    /// Time limit for receives without `within` that follow in the program text: the flow ends when
    /// nothing was received for this time (`keepalive 30 s`). 0 removes the limit. TCP's probes are
    /// a tunable of the flow's class instead.
    Keepalive(Nanos),
    /// Waits for an HTTP/1 response of any length, delimited by Content-Length, chunks or the end
    /// of the flow (`http_response`). A response that closes the connection ends the program as if
    /// it had reached its end.
    HttpResponse {
        /// The response to a HEAD: it has no body (`http_response head`).
        head: bool,
        within: Option<Nanos>,
    },
    /// Answers HTTP/1 requests until the client closes (`http_serve 200 text/html 1024`): GET, POST
    /// and others with a body of this size, HEAD without one. Keeps or closes the connection as the
    /// request asks; answers malformed requests with 400.
    HttpServe { status: u16, content_type: String, body: u32 },
    /// Asks for WebSocket (RFC 6455), and waits for the server to accept it (`websocket "/chat"`,
    /// `websocket "/chat" "Host: www.test\r\nOrigin: http://www.test\r\n"`). `fields` are header
    /// fields in place of Host, without those of the handshake.
    Websocket { target: Message, fields: Option<Message> },
    /// Waits for a request for WebSocket, and accepts it (`ws_accept`).
    WsAccept,
    /// Sends a message over WebSocket, as a text or binary, in frames of at most `fragment` octets
    /// (`ws_send "hello"`, `ws_send binary hello`, `ws_send fragments 1000 hello`).
    WsSend { message: MessageRef, binary: bool, fragment: Option<u32> },
    /// Waits for this number of messages of WebSocket, at least 1 (`ws_recv 1 within 2 s`).
    WsRecv { messages: u32, within: Option<Nanos> },
    /// Returns each message of WebSocket until the client closes (`ws_echo`). Directly follows
    /// [`Instruction::WsAccept`], and is the last instruction.
    WsEcho,
    /// Sends each message of WebSocket to all connections of its group, until the client closes
    /// (`ws_fan_out`, `ws_fan_out groups 10`). Directly follows [`Instruction::WsAccept`], and is
    /// the last instruction.
    WsFanOut { groups: u32 },
    /// Sends message k at the time k of a clock that all connections share, until the client closes
    /// (`ws_push "tick" every 100 ms`, `ws_push binary tick every 100 ms groups 10`). The
    /// connections of a group get the same messages at the same times. The last instruction.
    WsPush { message: MessageRef, binary: bool, every: Nanos, groups: u32 },
    /// Sends a ping over WebSocket (`ws_ping`). Pings of the peer are answered at any time.
    WsPing,
    /// Closes WebSocket with this code, and waits for the peer's close (`ws_close`, `ws_close
    /// 1001`).
    WsClose { code: u16 },
    /// Begins a call of gRPC (`grpc_call "/squall.Test/Call"`, `grpc_call "/squall.Test/Call"
    /// "X-Id: 1\r\n" deadline 1 s`). `metadata` are header fields; one with the name Host,
    /// Content-Type or User-Agent replaces that of the call. A call that has not ended by its
    /// `deadline` is canceled, with the status DEADLINE_EXCEEDED.
    GrpcCall { target: Message, metadata: Option<Message>, deadline: Option<Nanos> },
    /// Sends a message of a call (`grpc_send "hello"`, `grpc_send hello`), whose length is the same
    /// in all flows. If the call is over, the program of a client continues at its next
    /// [`Instruction::GrpcStatus`].
    GrpcSend(MessageRef),
    /// Ends the messages of a client (`grpc_end`).
    GrpcEnd,
    /// Waits for this number of messages, at least 1 (`grpc_recv 3`). If the call is over, the
    /// program of a client continues at its next [`Instruction::GrpcStatus`].
    GrpcRecv(u32),
    /// Waits for the end of the call, and ends the flow unless the status is one of these
    /// (`grpc_status OK`, `grpc_status OK NOT_FOUND`, `grpc_status any`).
    GrpcStatus(Statuses),
    /// Cancels the call, unless it is over (`grpc_cancel`).
    GrpcCancel,
    /// Waits for a call (`grpc_accept`, `grpc_accept /squall.Test/Call`). First instruction of
    /// servers. Calls of other methods get UNIMPLEMENTED; without `methods`, all are accepted.
    GrpcAccept { methods: Vec<String> },
    /// Waits for the client's next message; jumps to a label if it has ended them (`grpc_next
    /// done`).
    GrpcNext { label: String },
    /// Ends a server's call with a status and a text, and ends the program (`grpc_finish OK`,
    /// `grpc_finish NOT_FOUND "no such name"`).
    GrpcFinish { status: Status, text: String },
    /// Extracts a value from the last answer, for `${value:NAME}` in later messages (`extract token
    /// = json data.token`, `extract id = regex "id=(\d+)"`, `extract tag = header ETag`). An answer
    /// without it ends the flow.
    Extract { name: String, from: Origin },
    /// Ends the flow unless the last answer passes (`check status 200`, `check length 512`, `check
    /// sha256 HEX`, `check regex "welcome"`).
    Check(Check),
    /// Continues if the last answer redirects to the same server, and puts the path into
    /// `${value:location}`; otherwise jumps to a label (`unless_redirect done`, `unless_redirect
    /// done www.test`: other hosts are other servers).
    UnlessRedirect { label: String, host: String },
}

/// Where a value is in an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A field of a JSON body: `data.items[0].id`, or a JSON Pointer (RFC 6901),
    /// `/data/items/0/id`.
    Json(String),
    /// The first group of a regular expression, or the whole match, in the body.
    Regex(String),
    /// A header field.
    Header(String),
}

/// A condition on an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    Status(u16),
    /// Length of the body in octets, without chunk framing.
    Length(u64),
    /// SHA-256 hash of the body.
    Sha256([u8; 32]),
    /// A regular expression that matches anywhere in the body.
    Regex(String),
    /// The answer is not a redirect, whether to another host or beyond the number of redirects that
    /// are followed.
    NoRedirect,
}

/// A message in an instruction.
#[derive(Clone, Debug, PartialEq)]
pub enum MessageRef {
    Named(String),
    Given(Message),
}

/// A duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delay {
    Fixed(Nanos),
    /// Uniform between both times, inclusive.
    Uniform(Nanos, Nanos),
    /// Exponential with this mean; a single delay is at most 100 times the mean.
    Exponential(Nanos),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    Constant(u32),
    /// Uniform, inclusive; derived from the seed and the flow.
    Random(u32, u32),
    /// The current time in milliseconds, for [`Condition::elapsed`].
    Clock,
}

/// The increment of a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Amount {
    Constant(u32),
    /// The value of a variable.
    Variable(String),
    /// Milliseconds since a variable was set to the clock; 0 if its time is in the future.
    Elapsed(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Times {
    Count(u32),
    /// Until the condition holds, which is checked before each pass.
    Until(Condition),
    Forever,
}

/// A condition, such as `x < 5` or `elapsed x < 2 s`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    pub variable: String,
    /// Whether to compare the milliseconds since the variable was set to the clock; 0 if its time
    /// is in the future.
    pub elapsed: bool,
    pub compare: Compare,
    pub value: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Copies octets of a datagram into a variable: `id = be16 at 0`, `call = hex8 at 57`. A datagram
/// that is too short is an error of the flow ([`crate::ProtocolError::TooShort`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Take {
    pub variable: String,
    pub form: TakeForm,
    /// Offset in the datagram, in octets.
    pub offset: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeForm {
    /// Big-endian numbers of 8, 16 and 32 bits.
    Be8,
    Be16,
    Be32,
    /// Eight hexadecimal digits.
    Hex8,
}

/// An error in a program.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("program {program:?}{}: {mistake}", place(*.instruction))]
pub struct ProgramError {
    pub program: String,
    /// The number of the instruction (1-based), or 0 for the program as a whole.
    pub instruction: usize,
    pub mistake: Mistake,
}

fn place(instruction: usize) -> String {
    if instruction == 0 { String::new() } else { format!(", instruction {instruction}") }
}

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Mistake {
    #[error("{found:?} is not an instruction; expected {expected}; try {hint}")]
    Syntax { found: String, expected: &'static str, hint: &'static str },
    #[error("`{found}` can only be the first instruction")]
    NotFirst { found: &'static str },
    #[error("over UDP, `{found}` can only be the last instruction")]
    NotLast { found: &'static str },
    #[error("`{found}` is only for the program of a {expected}")]
    WrongRole { found: &'static str, expected: &'static str },
    #[error("`{found}` is for {expected} flows; try `{hint}`")]
    WrongTransport { found: &'static str, expected: &'static str, hint: &'static str },
    #[error("no message is named {found:?}; {hint}")]
    NoSuchMessage { found: String, hint: String },
    #[error("the message has no octets; expected at least 1")]
    EmptyMessage,
    #[error("the message has {found} octets; expected at most {most}")]
    LongMessage { found: u64, most: u64 },
    #[error("{what} is {found}; expected {expected}")]
    OutOfRange { what: &'static str, found: u64, expected: &'static str },
    #[error("label {found:?} does not exist; {hint}")]
    NoSuchLabel { found: String, hint: String },
    #[error("label {found:?} is already at instruction {first}")]
    LabelTwice { found: String, first: usize },
    #[error(
        "a jump into the loop of instruction {into}: its count would be unknown; expected a \
         label outside the loop"
    )]
    IntoLoop { into: usize },
    #[error("`end` without `loop`")]
    EndWithoutLoop,
    #[error("the loop has no `end`")]
    LoopWithoutEnd,
    #[error(
        "variable {found:?} is never given a value; expected one of `set`, `add` or `recv_packets \
         ... take` before; {hint}"
    )]
    NoSuchVariable { found: String, hint: String },
    #[error("{found} variables and nested counted loops; expected at most {most}")]
    TooManyVariables { found: usize, most: usize },
    #[error("this loop never waits; put a `delay`, a `recv` or a `send` inside")]
    NeverWaits,
    #[error("{found} instructions in all programs together; expected at most {most}")]
    TooLong { found: usize, most: usize },
    #[error("a message after `close`, which ends sending; expected only instructions that receive")]
    SendAfterClose,
    #[error(
        "with a rate, each message needs the same length in all flows; expected no mark of \
         address, port, data or decimal variable"
    )]
    RateNeedsLength,
    #[error(
        "the program has both `recv_packets` and `recv_packet_octets`; expected only one of \
         them"
    )]
    TwoCounts,
    #[error("the program has no instructions")]
    NoInstructions,
    #[error("{found:?} is not a regular expression: {why}")]
    Regex { found: String, why: String },
    #[error(
        "`{found}` needs an HTTP answer, but the program receives none; add `http_response` \
         before it"
    )]
    NoAnswer { found: &'static str },
    #[error(
        "`{found}` needs a connection of WebSocket; add `websocket` (clients) or `ws_accept` \
         (servers) before it"
    )]
    NoWebsocket { found: &'static str },
    #[error(
        "`{found}` cannot be used with WebSocket, whose frames carry all octets; try `ws_send` or \
         `ws_recv`"
    )]
    NotOverWebsocket { found: &'static str },
    #[error("`count` before the instruction that begins WebSocket; move it after it")]
    CountBeforeWebsocket,
    #[error(
        "`{found}` handles all messages until the client closes; expected `ws_accept` directly \
         before it and nothing after it; otherwise try `ws_recv 1` and `ws_send`"
    )]
    NotOnlyEcho { found: &'static str },
    #[error("`ws_push` sends until the client closes, so it can only be the last instruction")]
    NotLastPush,
    #[error(
        "`{found}` would run more than once, but a flow becomes WebSocket only once; expected it \
         once, outside of loops; try another flow for another handshake"
    )]
    SecondHandshake { found: &'static str },
    #[error(
        "the header field {found} belongs to the handshake, which sends it itself; expected fields \
         other than Connection, Upgrade and Sec-WebSocket-...; try `Origin`"
    )]
    FieldOfHandshake { found: String },
    #[error("`{found}` needs streams of HTTP/2; try http = \"2\" in its template")]
    NeedsHttp2 { found: &'static str },
    #[error(
        "the field {found} belongs to the call, which sends it itself; expected metadata other than \
         TE, grpc-timeout, Connection and fields of a length; try `deadline 1 s` for a time limit"
    )]
    FieldOfCall { found: String },
    #[error(
        "a message of gRPC needs the same length in all flows, because the length precedes it; \
         expected no mark of address, port, data or decimal variable"
    )]
    GrpcLength,
    #[error("`{found}` needs a call; expected {expected} before it")]
    NoCall { found: &'static str, expected: &'static str },
    #[error("a call begins before the last one has ended; expected `grpc_status` between them")]
    CallInCall,
    #[error(
        "`{found}` cannot be used with gRPC, whose messages carry all octets; try `grpc_send` or \
         `grpc_recv`"
    )]
    NotOverGrpc { found: &'static str },
    #[error("the program ends without a status of its calls; expected `grpc_finish` at its end")]
    NoGrpcFinish,
    #[error("the program ends before its call; expected `grpc_status` after it")]
    NoGrpcStatus,
    #[error("{found} values in a program; expected at most {most}")]
    TooManyValues { found: usize, most: usize },
    #[error(
        "`begin` without a template; expected its name, or `next NAME` before; try `begin page`"
    )]
    NoNext,
    #[error("{found} templates in `next` and `begin` of a program; expected at most {most}")]
    TooManyTemplates { found: usize, most: usize },
    #[error("{found} counters in a program; expected at most {most}")]
    TooManyCounters { found: usize, most: usize },
    #[error("`{found}` cannot be used over HTTP/2: {why}")]
    NotOverHttp2 { found: &'static str, why: &'static str },
    #[error("`{found}` cannot be used over HTTP/3: {why}")]
    NotOverHttp3 { found: &'static str, why: &'static str },
    #[error("over HTTP/2, each message is a whole request or response, but this one is not: {why}")]
    NoHttpMessage { why: &'static str },
    #[error(transparent)]
    Message(#[from] MessageError),
}

impl Program {
    /// Begins a client's program over TCP.
    pub fn client(name: impl Into<String>) -> crate::ProgramBuilder {
        crate::ProgramBuilder::new(name, Role::Client, Transport::Tcp)
    }

    /// Begins a server's program over TCP.
    pub fn server(name: impl Into<String>) -> crate::ProgramBuilder {
        crate::ProgramBuilder::new(name, Role::Server, Transport::Tcp)
    }

    pub fn udp_client(name: impl Into<String>) -> crate::ProgramBuilder {
        crate::ProgramBuilder::new(name, Role::Client, Transport::Udp)
    }

    pub fn udp_server(name: impl Into<String>) -> crate::ProgramBuilder {
        crate::ProgramBuilder::new(name, Role::Server, Transport::Udp)
    }

    /// Parses the text form of instructions, one per item. `messages` are the messages that
    /// instructions may refer to by name.
    ///
    /// # Errors
    /// The first invalid instruction, with its number; or an error from [`check`](Self::check).
    pub fn parse<'a>(
        name: impl Into<String>,
        role: Role,
        transport: Transport,
        instructions: impl IntoIterator<Item = &'a str>,
        messages: BTreeMap<String, Message>,
    ) -> Result<Self, ProgramError> {
        Self::parse_with_data(name, role, transport, instructions, messages, None)
    }

    /// As [`parse`](Self::parse), with columns of `data` in quoted messages; named `messages` have
    /// their own data ([`Message::with_data`]).
    ///
    /// # Errors
    /// As [`parse`](Self::parse), or if there is no such column.
    pub fn parse_with_data<'a>(
        name: impl Into<String>,
        role: Role,
        transport: Transport,
        instructions: impl IntoIterator<Item = &'a str>,
        messages: BTreeMap<String, Message>,
        data: Option<&Data>,
    ) -> Result<Self, ProgramError> {
        let name = name.into();
        let mut program = Self { name, role, transport, instructions: vec![], messages };
        for (i, text) in instructions.into_iter().enumerate() {
            let wrong = |mistake| program.error(i + 1, mistake);
            let mut instruction: Instruction = text.parse().map_err(wrong)?;
            if let Some(data) = data {
                for message in instruction.given_mut() {
                    let filled = std::mem::take(message).with_data(data);
                    *message = filled.map_err(|error| wrong(error.into()))?;
                }
            }
            program.instructions.push(instruction);
        }
        program.check()?;
        Ok(program)
    }

    /// Whether the program sends a column of its data.
    #[must_use]
    pub fn uses_data(&self) -> bool {
        self.instructions.iter().any(|instruction| match instruction {
            Instruction::Send(message)
            | Instruction::SendPacket(message)
            | Instruction::GrpcSend(message)
            | Instruction::WsSend { message, .. }
            | Instruction::WsPush { message, .. } => {
                let message = match message {
                    MessageRef::Given(message) => Some(message),
                    MessageRef::Named(name) => self.messages.get(name),
                };
                message.is_some_and(|message| message.column().is_some())
            }
            Instruction::Websocket { target, fields }
            | Instruction::GrpcCall { target, metadata: fields, .. } => {
                target.column().or_else(|| fields.as_ref()?.column()).is_some()
            }
            _ => false,
        })
    }

    /// Templates whose flows the program begins.
    pub fn begins(&self) -> impl Iterator<Item = &str> {
        self.instructions.iter().filter_map(|instruction| match instruction {
            Instruction::Next(template) | Instruction::Begin(Some(template)) => {
                Some(template.as_str())
            }
            _ => None,
        })
    }

    /// The instructions as lines of text, which [`parse`](Self::parse) accepts.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.instructions.iter().map(ToString::to_string).collect()
    }

    /// # Errors
    /// The first error, with the number of its instruction.
    pub fn check(&self) -> Result<(), ProgramError> {
        crate::code::compile(self).map(|_| ())
    }

    /// Replaces `${template:NAME}` in all messages by the value of NAME.
    ///
    /// # Errors
    /// If a name has no value.
    pub fn with_values(mut self, values: &BTreeMap<String, String>) -> Result<Self, ProgramError> {
        for (i, instruction) in self.instructions.iter_mut().enumerate() {
            for message in instruction.given_mut() {
                *message = message.with_values(values).map_err(|e| ProgramError {
                    program: self.name.clone(),
                    instruction: i + 1,
                    mistake: e.into(),
                })?;
            }
        }
        for message in self.messages.values_mut() {
            *message = message.with_values(values).map_err(|e| ProgramError {
                program: self.name.clone(),
                instruction: 0,
                mistake: e.into(),
            })?;
        }
        Ok(self)
    }

    pub(crate) fn error(&self, instruction: usize, mistake: Mistake) -> ProgramError {
        ProgramError { program: self.name.clone(), instruction, mistake }
    }
}

impl Instruction {
    /// The messages that are part of the instruction.
    fn given_mut(&mut self) -> impl Iterator<Item = &mut Message> {
        let (first, second) = match self {
            Self::Send(MessageRef::Given(message))
            | Self::SendPacket(MessageRef::Given(message))
            | Self::GrpcSend(MessageRef::Given(message))
            | Self::WsSend { message: MessageRef::Given(message), .. }
            | Self::WsPush { message: MessageRef::Given(message), .. } => (Some(message), None),
            Self::Websocket { target, fields }
            | Self::GrpcCall { target, metadata: fields, .. } => (Some(target), fields.as_mut()),
            _ => (None, None),
        };
        first.into_iter().chain(second)
    }
}

impl Origin {
    pub(crate) fn text(&self) -> &str {
        let (Self::Json(text) | Self::Regex(text) | Self::Header(text)) = self;
        text
    }
}

impl Check {
    /// The regular expression.
    pub(crate) fn text(&self) -> &str {
        if let Self::Regex(text) = self { text } else { "" }
    }
}

impl Compare {
    #[inline]
    pub(crate) fn holds(self, left: u32, right: u32) -> bool {
        match self {
            Self::Equal => left == right,
            Self::Unequal => left != right,
            Self::Less => left < right,
            Self::LessOrEqual => left <= right,
            Self::Greater => left > right,
            Self::GreaterOrEqual => left >= right,
        }
    }
}
