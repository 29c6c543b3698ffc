//! Compiles programs: finds errors, and translates instructions to operations of 16 octets. An
//! event executes operations until one waits.

use std::{collections::HashMap, sync::Arc};

use squall_units::{Nanos, mix};

use crate::{
    Amount, Compare, Condition, DataOrder, Delay, Instruction, Mark, Message, MessageError,
    MessageRef, Mistake, Part, Program, ProgramError, Role, Take, TakeForm, Times, Transport,
    Value,
    answers::{Checked, Source},
    apps::at_once::Track,
    grpc::{self, Status, Statuses},
    message::{COOKIES, Ready, known},
    requests,
    websocket::{COUNTERS, Framing, Kind},
};

/// An operation. Indices refer to [`Code`]'s tables; targets are operations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Op {
    Send {
        piece: u32,
        /// Number of requests that this send completes: in a client, the answers awaited before the
        /// next send.
        requests: u32,
    },
    /// Sends the piece `first` + register.
    SendSlice {
        first: u32,
        register: u8,
    },
    Recv {
        octets: u32,
        answered: bool,
    },
    RecvUntil {
        pattern: u32,
        answered: bool,
    },
    /// The [`Instruction::Delay`] with index `delay`.
    Delay {
        delay: u32,
    },
    Set {
        register: u8,
        value: u32,
    },
    SetRandom {
        register: u8,
        low: u32,
        high: u32,
    },
    SetClock {
        register: u8,
    },
    Add {
        register: u8,
        value: i32,
    },
    Jump {
        to: u32,
    },
    JumpIf {
        register: u8,
        /// Compares the time since the register was set to the clock.
        elapsed: bool,
        compare: Compare,
        value: u32,
        to: u32,
    },
    /// Adds a register, or the time since it was set to the clock, to a counter of the program.
    Count {
        counter: u16,
        register: u8,
        elapsed: bool,
    },
    CountConstant {
        counter: u16,
        value: u32,
    },
    /// Names the template whose flow is begun next.
    Next {
        template: u16,
    },
    /// Begins a flow of a template (or of the template named last) and waits for its end.
    Begin {
        template: Option<u16>,
    },
    /// Counts down, and jumps back unless it was the last pass.
    Again {
        register: u8,
        to: u32,
    },
    /// Counts up, and jumps back unless it was the last slice.
    NextSlice {
        register: u8,
        slices: u32,
        to: u32,
    },
    Close,
    Reset,
    Flush,
    WaitPeerClose,
    RecvPackets {
        packets: u32,
        take: u16,
        answered: bool,
    },
    RecvPacketOctets {
        octets: u32,
        answered: bool,
    },
    /// Time limit of the following receive.
    Within {
        nanos: u64,
        keepalive: bool,
    },
    HttpResponse {
        head: bool,
        answered: bool,
    },
    HttpServe {
        serve: u32,
    },
    Extract {
        extract: u32,
    },
    Check {
        check: u32,
    },
    UnlessRedirect {
        redirect: u32,
        to: u32,
    },
    /// Waits for the answer to the request that is this message.
    WsOpen {
        message: u32,
    },
    WsAccept,
    WsSend {
        frame: u32,
    },
    WsRecv {
        messages: u32,
        answered: bool,
    },
    WsEcho,
    WsFanOut {
        groups: u32,
    },
    WsPush {
        frame: u32,
    },
    WsPing,
    WsClose {
        code: u16,
    },
    /// Begins a call; `deadline`: nanoseconds, or 0.
    GrpcCall {
        piece: u32,
        deadline: u64,
    },
    GrpcSend {
        piece: u32,
    },
    GrpcEnd,
    GrpcRecv {
        messages: u32,
    },
    GrpcStatus {
        expected: Statuses,
    },
    GrpcCancel,
    GrpcAccept {
        accept: u32,
    },
    GrpcNext {
        to: u32,
    },
    GrpcFinish {
        finish: u32,
    },
    Finish,
}

pub const NO_TAKE: u16 = u16::MAX;

/// The data of one send: octets `from..from + len` of a message.
#[derive(Clone, Copy, Debug)]
pub struct PieceOf {
    pub message: u32,
    pub from: u32,
    /// 0: the length that the message has in this flow.
    pub len: u32,
    /// The variable that counts the sends.
    pub register: Option<u8>,
}

/// A message in frames of WebSocket.
#[derive(Clone, Copy, Debug)]
pub struct FrameOf {
    pub message: u32,
    pub framing: Framing,
    /// The variable that counts the sends.
    pub register: Option<u8>,
    /// When the message is sent by itself.
    pub push: Option<Push>,
}

/// Messages that a server sends at the same times to all connections of a group. The group of a
/// connection is the remainder of its number.
#[derive(Clone, Copy, Debug)]
pub struct Push {
    pub every: Nanos,
    pub groups: u32,
}

/// The pattern of `recv_until`, with the index to continue at after a mismatch (Knuth, Morris,
/// Pratt 1977).
#[derive(Clone, Debug)]
pub struct Pattern {
    octets: Box<[u8]>,
    /// For the first n + 1 octets, the length of the longest proper prefix that is also a suffix.
    border: Box<[u8]>,
}

#[derive(Clone, Copy, Debug)]
pub struct TakeOf {
    pub register: u8,
    pub form: TakeForm,
    pub offset: u32,
}

/// Answers of an HTTP server.
#[derive(Clone, Copy, Debug)]
pub struct Serve {
    pub status: u16,
    /// If the connection stays open: the piece, and its header's length.
    pub keep: (u32, u32),
    pub close: (u32, u32),
    pub proceed: u32,
    pub refuse: u32,
}

/// How a server of gRPC answers.
#[derive(Clone, Debug)]
pub struct AcceptOf {
    /// Paths of the methods; empty: any.
    pub methods: Box<[Box<[u8]>]>,
    /// Pieces: the head of an answer, and answers to other methods and to requests that are no calls.
    pub answer: u32,
    pub unimplemented: u32,
    pub unsupported: u32,
}

/// How a server of gRPC ends a call: the piece after messages, and the one without them.
#[derive(Clone, Copy, Debug)]
pub struct FinishOf {
    pub trailers: u32,
    pub alone: u32,
    pub status: Status,
}

/// A value to extract from an answer, and its slot.
#[derive(Clone, Debug)]
pub struct ExtractOf {
    pub slot: u8,
    pub from: Source,
}

/// The host whose redirects are followed, and the slot for their path.
#[derive(Clone, Debug)]
pub struct RedirectOf {
    pub slot: u8,
    pub host: Box<[u8]>,
}

#[derive(Clone, Debug, Default)]
pub struct Code {
    pub ops: Vec<Op>,
    /// Per operation.
    pub owner: Vec<Owner>,
    /// See [`Owner::track`].
    pub tracks: Vec<Track>,
    pub programs: Vec<Info>,
    pub messages: Vec<Ready>,
    pub pieces: Vec<PieceOf>,
    pub frames: Vec<FrameOf>,
    pub patterns: Vec<Pattern>,
    pub delays: Vec<Delay>,
    pub takes: Vec<TakeOf>,
    pub serves: Vec<Serve>,
    pub accepts: Vec<AcceptOf>,
    pub finishes: Vec<FinishOf>,
    pub extracts: Vec<ExtractOf>,
    pub checks: Vec<Checked>,
    pub redirects: Vec<RedirectOf>,
}

/// The program and the track of an operation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Owner {
    pub program: u16,
    /// The number of the track that begins at the operation, `NO_TRACK`, or `END`.
    pub track: u32,
}

/// A program in the interpreter's form.
#[derive(Clone, Debug)]
pub struct Info {
    pub name: Arc<str>,
    pub traits: Traits,
    /// Names of the program's counters.
    pub counters: Arc<[Arc<str>]>,
    /// Names of the templates whose flows the program begins.
    pub templates: Arc<[Arc<str>]>,
}

/// Properties of a program that every event needs.
#[derive(Clone, Copy, Debug)]
pub struct Traits {
    pub role: Role,
    pub transport: Transport,
    pub start: u32,
    pub registers: u8,
    /// Present if answers are kept for evaluation: the slots for values.
    pub answers: Option<Slots>,
    /// Whether the program uses HTTP, whose parser shares a field with the number of sends.
    pub http: bool,
    /// Whether the program uses WebSocket.
    pub websocket: bool,
    /// Whether the program uses gRPC.
    pub grpc: bool,
    /// Whether all receives only count, so that early data is kept as a number.
    pub counts: bool,
    /// Whether the program counts datagrams instead of octets.
    pub packets: bool,
    /// Whether the program extracts variables from datagrams.
    pub takes: bool,
    /// Whether the program has time limits that count from the last received data.
    pub keepalive: bool,
    /// Number of requests per flow, without redirects, if known in advance; only for clients.
    pub requests: Option<u64>,
    /// The first receive in a server's endless loop, relative to `start`. A client that closes
    /// there has finished.
    pub idle: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
pub struct Slots {
    pub count: u8,
    /// The slot of the Cookie header field.
    pub cookies: Option<u8>,
}

/// Maximum number of operations in all programs of an [`crate::Apps`]: the range of 22 bits in
/// [`crate::State`].
pub const MAX_OPS: usize = 1 << 22;
/// Maximum number of variables and nested counted loops.
pub const MAX_REGISTERS: usize = 8;
/// Maximum number of values that a program extracts from answers.
const MAX_VALUES: usize = 64;
/// Maximum number of counters in a program, and of templates whose flows it begins.
const MAX_NAMES: usize = 64;
/// The name of the value that holds the path of a redirect.
const LOCATION: &str = "location";
/// Maximum number of passes without waiting, multiplied over nested loops: a single event must not
/// block its worker.
const MAX_ROUNDS: u64 = 1 << 17;
const MAX_SLICES: u64 = 1 << 20;
/// Maximum datagram length, limited by UDP's length field.
const MAX_DATAGRAM: u64 = 65_527;
/// The shortest time between messages that a server sends by itself.
const MIN_PUSH: Nanos = Nanos(1_000_000);
/// Maximum length of a message in frames of WebSocket.
const MAX_FRAMED: u64 = 16 << 20;
const MAX_DELAY: Nanos = Nanos(86_400 * 1_000_000_000);
/// A longer time usually has the wrong unit.
const DAY: &str = "at most 24 h";

/// # Errors
/// The first error.
pub fn compile(program: &Program) -> Result<Code, ProgramError> {
    let mut compiler = Compiler::new(program)?;
    for (i, instruction) in program.instructions.iter().enumerate() {
        compiler.begins.push(compiler.code.ops.len() as u32);
        compiler.instruction(i, instruction).map_err(|mistake| program.error(i + 1, mistake))?;
    }
    compiler.finish()
}

struct Compiler<'a> {
    program: &'a Program,
    code: Code,
    variables: Vec<&'a str>,
    /// Names of extracted values.
    slots: Vec<&'a str>,
    counters: Vec<Arc<str>>,
    templates: Vec<Arc<str>>,
    /// Instruction of each label.
    labels: HashMap<&'a str, usize>,
    loops: Vec<Open>,
    /// First operation of each instruction.
    begins: Vec<u32>,
    /// Operations that jump to a label: operation, instruction, label.
    jumps: Vec<(usize, usize, &'a str)>,
    /// First and last instruction of each counted loop.
    counted: Vec<(usize, usize)>,
    rate: Option<(u64, Nanos)>,
    keepalive: Option<Nanos>,
    idle: Option<u32>,
    named: HashMap<&'a str, u32>,
    deepest: usize,
    closed: bool,
    /// Whether a call of gRPC has begun above.
    in_call: bool,
    salt: u64,
}

struct Open {
    instruction: usize,
    /// Whether a call of gRPC was open before it.
    in_call: bool,
    body: u32,
    /// The loop counter's register, for a counted loop.
    register: Option<u8>,
    /// The operation that leaves it.
    exit: Option<usize>,
}

impl<'a> Compiler<'a> {
    fn new(program: &'a Program) -> Result<Self, ProgramError> {
        if program.instructions.is_empty() {
            return Err(program.error(0, Mistake::NoInstructions));
        }
        let mut variables: Vec<&str> = vec![];
        let mut labels = HashMap::new();
        for (i, instruction) in program.instructions.iter().enumerate() {
            let variable = match instruction {
                Instruction::Set { variable, .. } | Instruction::Add { variable, .. } => {
                    Some(variable)
                }
                Instruction::RecvPackets { take: Some(take), .. } => Some(&take.variable),
                Instruction::Label(name) => {
                    if let Some(first) = labels.insert(name.as_str(), i) {
                        return Err(program.error(
                            i + 1,
                            Mistake::LabelTwice { found: name.clone(), first: first + 1 },
                        ));
                    }
                    None
                }
                _ => None,
            };
            if let Some(variable) = variable.filter(|name| !variables.contains(&name.as_str())) {
                variables.push(variable);
            }
        }
        let slots = slots(program)?;
        let salt = program.name.bytes().fold(program.role as u64, |h, octet| mix(h, octet.into()));
        let grpc = program.instructions.iter().any(|of| of.word().starts_with("grpc_"));
        let counters = grpc.then_some(grpc::COUNTERS).into_iter().flatten();
        Ok(Self {
            program,
            code: Code::default(),
            deepest: variables.len(),
            variables,
            slots,
            counters: counters.map(Into::into).collect(),
            templates: vec![],
            labels,
            loops: vec![],
            begins: vec![],
            jumps: vec![],
            counted: vec![],
            rate: None,
            keepalive: None,
            idle: None,
            named: HashMap::new(),
            closed: false,
            in_call: false,
            salt,
        })
    }

    fn instruction(&mut self, i: usize, instruction: &'a Instruction) -> Result<(), Mistake> {
        self.fits(i, instruction)?;
        match instruction {
            Instruction::Connect | Instruction::Accept => {}
            Instruction::Send(message) => self.send(message)?,
            Instruction::SendPacket(message) => self.send_packet(message)?,
            Instruction::Recv { octets, within } => {
                let octets = at_least_1("octets to receive", *octets)?;
                self.within(*within)?;
                self.push(Op::Recv { octets, answered: true });
            }
            Instruction::RecvUntil { pattern, within } => {
                if pattern.is_empty() || pattern.len() > 255 {
                    let found = pattern.len() as u64;
                    return Err(Mistake::OutOfRange {
                        what: "the length of the pattern",
                        found,
                        expected: "1..=255",
                    });
                }
                self.within(*within)?;
                let index = index(&mut self.code.patterns, Pattern::new(pattern));
                self.push(Op::RecvUntil { pattern: index, answered: true });
            }
            Instruction::Delay(delay) => self.delay(*delay)?,
            Instruction::Set { variable, value } => {
                let register = self.variable(variable)?;
                self.push(match *value {
                    Value::Constant(value) => Op::Set { register, value },
                    Value::Clock => Op::SetClock { register },
                    Value::Random(low, high) if low <= high => {
                        Op::SetRandom { register, low, high }
                    }
                    Value::Random(low, _) => {
                        let expected = "at most the upper bound";
                        return Err(Mistake::OutOfRange {
                            what: "the lower bound",
                            found: low.into(),
                            expected,
                        });
                    }
                });
            }
            Instruction::Add { variable, value } => {
                let register = self.variable(variable)?;
                let value = i32::try_from(*value).map_err(|_| Mistake::OutOfRange {
                    what: "the absolute value of the addend",
                    found: value.unsigned_abs(),
                    expected: "-2,147,483,648..=2,147,483,647",
                })?;
                self.push(Op::Add { register, value });
            }
            Instruction::Count { counter, amount } => {
                let counter = self.counter(counter)?;
                let (variable, elapsed) = match amount {
                    Amount::Constant(value) => {
                        self.push(Op::CountConstant { counter, value: *value });
                        return Ok(());
                    }
                    Amount::Variable(variable) => (variable, false),
                    Amount::Elapsed(variable) => (variable, true),
                };
                let register = self.variable(variable)?;
                self.push(Op::Count { counter, register, elapsed });
            }
            Instruction::Next(template) => {
                let template = self.template(template)?;
                self.push(Op::Next { template });
            }
            Instruction::Begin(Some(template)) => {
                let template = Some(self.template(template)?);
                self.push(Op::Begin { template });
            }
            Instruction::Begin(None) => {
                // A program without begin may use `next` if the program of another flow begins its
                // flow by name.
                if self.program.begins().next().is_none() {
                    return Err(Mistake::NoNext);
                }
                self.push(Op::Begin { template: None });
            }
            Instruction::Label(_) => self.closed = false,
            Instruction::Jump { label, condition } => {
                self.jumps.push((self.code.ops.len(), i, label));
                let to = 0;
                let op = match condition {
                    None => Op::Jump { to },
                    Some(condition) => self.jump_if(condition, to)?,
                };
                self.push(op);
            }
            Instruction::Loop(times) => self.begin_loop(i, times)?,
            Instruction::End => self.end_loop(i)?,
            Instruction::Close => {
                self.closed = true;
                self.push(Op::Close);
            }
            Instruction::Reset => self.push(Op::Reset),
            Instruction::Flush => self.push(Op::Flush),
            Instruction::WaitPeerClose => {
                if self.program.transport == Transport::Tcp {
                    self.within(None)?;
                }
                self.push(Op::WaitPeerClose);
            }
            Instruction::Rate { octets_per_second: 0, .. } => self.rate = None,
            Instruction::Rate { octets_per_second, tick } => {
                if tick.0 == 0 || *tick > Nanos::SECOND {
                    return Err(Mistake::OutOfRange {
                        what: "the tick",
                        found: tick.0,
                        expected: "1 ns to 1 s",
                    });
                }
                if *octets_per_second > 1 << 40 {
                    let found = *octets_per_second;
                    return Err(Mistake::OutOfRange {
                        what: "the rate",
                        found,
                        expected: "at most 2^40 octets per second",
                    });
                }
                self.rate = Some((*octets_per_second, *tick));
            }
            Instruction::RecvPackets { packets, take, within } => {
                let packets = at_least_1("datagrams to receive", *packets)?;
                let take = take.as_ref().map_or(Ok(NO_TAKE), |take| self.take(take))?;
                self.within(*within)?;
                self.push(Op::RecvPackets { packets, take, answered: true });
            }
            Instruction::RecvPacketOctets { octets, within } => {
                let octets = at_least_1("octets to receive", *octets)?;
                self.within(*within)?;
                self.push(Op::RecvPacketOctets { octets, answered: true });
            }
            Instruction::Keepalive(time) => {
                at_most_a_day("the time", *time)?;
                self.keepalive = Some(*time).filter(|time| time.0 > 0);
            }
            Instruction::HttpResponse { head, within } => {
                self.within(*within)?;
                self.push(Op::HttpResponse { head: *head, answered: true });
            }
            Instruction::HttpServe { status, content_type, body } => {
                self.serve(*status, content_type, *body)?
            }
            Instruction::Websocket { target, fields } => {
                self.websocket(target, fields.as_ref())?;
            }
            Instruction::WsAccept => {
                self.count_frames()?;
                self.within(None)?;
                self.push(Op::WsAccept);
            }
            Instruction::WsSend { message, binary, fragment } => {
                self.ws_send(message, *binary, *fragment)?;
            }
            Instruction::WsRecv { messages, within } => {
                let messages = at_least_1("messages to receive", *messages)?;
                self.within(*within)?;
                self.push(Op::WsRecv { messages, answered: true });
            }
            Instruction::WsEcho => {
                self.within(None)?;
                self.push(Op::WsEcho);
            }
            Instruction::WsFanOut { groups } => {
                let groups = at_least_1("groups", *groups)?;
                self.within(None)?;
                self.push(Op::WsFanOut { groups });
            }
            Instruction::WsPush { message, binary, every, groups } => {
                self.ws_push(message, *binary, *every, *groups)?;
            }
            Instruction::WsPing => self.push(Op::WsPing),
            Instruction::WsClose { code } => {
                if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
                    return Err(Mistake::OutOfRange {
                        what: "the code of the close",
                        found: (*code).into(),
                        expected: "1000..=1003, 1007..=1014 or 3000..=4999",
                    });
                }
                // RFC 6455 section 7.4.1.
                if *code == 1010 && self.program.role == Role::Server {
                    return Err(Mistake::OutOfRange {
                        what: "the code of the close",
                        found: 1010,
                        expected: "another code, because only clients close with 1010",
                    });
                }
                self.within(None)?;
                self.push(Op::WsClose { code: *code });
            }
            Instruction::GrpcCall { target, metadata, deadline } => {
                self.grpc_call(target, metadata.as_ref(), *deadline)?;
            }
            Instruction::GrpcSend(message) => {
                let message = self.given(message)?.0;
                let piece = self.grpc_piece(&grpc::framed(message)?)?;
                self.push(Op::GrpcSend { piece });
            }
            Instruction::GrpcEnd => self.push(Op::GrpcEnd),
            Instruction::GrpcRecv(messages) => {
                let messages = at_least_1("messages to receive", *messages)?;
                self.push(Op::GrpcRecv { messages });
            }
            Instruction::GrpcStatus(expected) => {
                self.in_call = false;
                self.push(Op::GrpcStatus { expected: *expected });
            }
            Instruction::GrpcCancel => self.push(Op::GrpcCancel),
            Instruction::GrpcAccept { methods } => {
                self.in_call = true;
                let accept = AcceptOf {
                    methods: methods.iter().map(|method| method.as_bytes().into()).collect(),
                    answer: self.grpc_piece(&grpc::answer())?,
                    unimplemented: self
                        .grpc_piece(&grpc::only_status(Status::UNIMPLEMENTED, ""))?,
                    unsupported: self.grpc_piece(&grpc::unsupported())?,
                };
                let accept = index(&mut self.code.accepts, accept);
                self.push(Op::GrpcAccept { accept });
            }
            Instruction::GrpcNext { label } => {
                self.jumps.push((self.code.ops.len(), i, label));
                self.push(Op::GrpcNext { to: 0 });
            }
            Instruction::GrpcFinish { status, text } => {
                let finish = FinishOf {
                    trailers: self.grpc_piece(&grpc::trailers(*status, text))?,
                    alone: self.grpc_piece(&grpc::only_status(*status, text))?,
                    status: *status,
                };
                let finish = index(&mut self.code.finishes, finish);
                self.push(Op::GrpcFinish { finish });
            }
            Instruction::Extract { name, from } => {
                let from = Source::new(from).map_err(|why| not_regex(from.text(), why))?;
                let slot = self.slot(name);
                let extract = index(&mut self.code.extracts, ExtractOf { slot, from });
                self.push(Op::Extract { extract });
            }
            Instruction::Check(check) => {
                let checked = Checked::new(check).map_err(|why| not_regex(check.text(), why))?;
                let check = index(&mut self.code.checks, checked);
                self.push(Op::Check { check });
            }
            Instruction::UnlessRedirect { label, host } => {
                self.jumps.push((self.code.ops.len(), i, label));
                let (slot, host) = (self.slot(LOCATION), host.as_bytes().into());
                let redirect = index(&mut self.code.redirects, RedirectOf { slot, host });
                self.push(Op::UnlessRedirect { redirect, to: 0 });
            }
        }
        Ok(())
    }

    /// Whether this instruction is allowed here.
    fn fits(&self, i: usize, instruction: &Instruction) -> Result<(), Mistake> {
        use Instruction as I;
        let program = self.program;
        let role = match instruction {
            I::Connect
            | I::Next(_)
            | I::Begin(_)
            | I::HttpResponse { .. }
            | I::Extract { .. }
            | I::Check(_)
            | I::UnlessRedirect { .. }
            | I::Websocket { .. }
            | I::GrpcCall { .. }
            | I::GrpcEnd
            | I::GrpcStatus(_)
            | I::GrpcCancel => Some((Role::Client, "client")),
            I::Accept
            | I::HttpServe { .. }
            | I::WsAccept
            | I::WsEcho
            | I::WsFanOut { .. }
            | I::WsPush { .. }
            | I::GrpcAccept { .. }
            | I::GrpcNext { .. }
            | I::GrpcFinish { .. } => Some((Role::Server, "server")),
            _ => None,
        };
        if i > 0 && matches!(instruction, I::Connect | I::Accept) {
            return Err(Mistake::NotFirst { found: instruction.word() });
        }
        if let Some((role, expected)) = role
            && role != program.role
        {
            return Err(Mistake::WrongRole { found: instruction.word(), expected });
        }
        if matches!(instruction, I::Extract { .. } | I::Check(_) | I::UnlessRedirect { .. })
            && !self.code.ops.iter().any(|op| matches!(op, Op::HttpResponse { .. }))
        {
            return Err(Mistake::NoAnswer { found: instruction.word() });
        }
        let over_websocket = matches!(
            instruction,
            I::WsSend { .. }
                | I::WsRecv { .. }
                | I::WsEcho
                | I::WsFanOut { .. }
                | I::WsPush { .. }
                | I::WsPing
                | I::WsClose { .. }
        );
        if over_websocket
            && !self.code.ops.iter().any(|op| matches!(op, Op::WsOpen { .. } | Op::WsAccept))
        {
            return Err(Mistake::NoWebsocket { found: instruction.word() });
        }
        let follows = |i: usize| program.instructions.get(i) == Some(&I::WsAccept);
        if matches!(instruction, I::WsEcho | I::WsFanOut { .. })
            && (i + 1 < program.instructions.len() || !i.checked_sub(1).is_some_and(follows))
        {
            return Err(Mistake::NotOnlyEcho { found: instruction.word() });
        }
        if matches!(instruction, I::WsPush { .. }) && i + 1 < program.instructions.len() {
            return Err(Mistake::NotLastPush);
        }
        if matches!(instruction, I::Websocket { .. } | I::WsAccept)
            && self.code.ops.iter().any(|op| matches!(op, Op::WsOpen { .. } | Op::WsAccept))
        {
            return Err(Mistake::SecondHandshake { found: instruction.word() });
        }
        let in_call = matches!(
            instruction,
            I::GrpcSend(_)
                | I::GrpcEnd
                | I::GrpcRecv(_)
                | I::GrpcStatus(_)
                | I::GrpcCancel
                | I::GrpcNext { .. }
                | I::GrpcFinish { .. }
        );
        if in_call && !self.in_call {
            let expected = match program.role {
                Role::Client => "`grpc_call`",
                Role::Server => "`grpc_accept` as the first instruction",
            };
            return Err(Mistake::NoCall { found: instruction.word(), expected });
        }
        if matches!(instruction, I::GrpcCall { .. }) && self.in_call {
            return Err(Mistake::CallInCall);
        }
        if matches!(instruction, I::GrpcAccept { .. }) && !self.code.ops.is_empty() {
            return Err(Mistake::NotFirst { found: instruction.word() });
        }
        // UDP has no close: the silence that ends this wait also ends the flow.
        let over_udp = program.transport == Transport::Udp;
        if over_udp && matches!(instruction, I::WaitPeerClose) && i + 1 < program.instructions.len()
        {
            return Err(Mistake::NotLast { found: instruction.word() });
        }
        let (of, expected, hint) = match instruction {
            I::Send(_) => (Transport::Tcp, "TCP", "send_packet"),
            I::Recv { .. } => (Transport::Tcp, "TCP", "recv_packet_octets"),
            I::RecvUntil { .. } => (Transport::Tcp, "TCP", "recv_packets 1"),
            I::HttpResponse { .. }
            | I::HttpServe { .. }
            | I::Flush
            | I::Reset
            | I::Websocket { .. }
            | I::WsAccept
            | I::GrpcCall { .. }
            | I::GrpcAccept { .. } => (Transport::Tcp, "TCP", "close"),
            I::SendPacket(_) => (Transport::Udp, "UDP", "send"),
            I::RecvPackets { .. } | I::RecvPacketOctets { .. } => (Transport::Udp, "UDP", "recv"),
            _ => return Ok(()),
        };
        if of != program.transport {
            return Err(Mistake::WrongTransport { found: instruction.word(), expected, hint });
        }
        Ok(())
    }

    fn push(&mut self, op: Op) {
        self.code.ops.push(op);
    }

    /// A message that is to be sent, and its name if it has one.
    fn given(&self, message: &'a MessageRef) -> Result<(&'a Message, Option<&'a str>), Mistake> {
        if self.closed {
            return Err(Mistake::SendAfterClose);
        }
        let (message, name): (&Message, _) = match message {
            MessageRef::Given(message) => (message, None),
            MessageRef::Named(name) => match self.program.messages.get(name) {
                Some(message) => (message, Some(name.as_str())),
                None => {
                    let hint = known(self.program.messages.keys());
                    return Err(Mistake::NoSuchMessage { found: name.clone(), hint });
                }
            },
        };
        if let (Role::Server, Some((name, Some(data)))) = (self.program.role, message.data())
            && data.order() != DataOrder::Random
        {
            return Err(MessageError::DataOfServer { name: name.into() }.into());
        }
        Ok((message, name))
    }

    /// The message's number, its length if that is fixed, and its variable's register.
    fn message(
        &mut self,
        message: &'a MessageRef,
    ) -> Result<(u32, Option<u32>, Option<u8>), Mistake> {
        let (message, name) = self.given(message)?;
        let register = message.variable()?.map(|name| self.variable(name)).transpose()?;
        if let Some(&at) = name.and_then(|name| self.named.get(name)) {
            return Ok((at, self.code.messages[at as usize].fixed_len(), register));
        }
        let salt = mix(self.salt, self.code.messages.len() as u64);
        let ready = Ready::with_slots(message, salt, &self.slots)?;
        let len = ready.fixed_len();
        if len == Some(0) {
            return Err(Mistake::EmptyMessage);
        }
        let at = index(&mut self.code.messages, ready);
        self.named.extend(name.map(|name| (name, at)));
        Ok((at, len, register))
    }

    fn send(&mut self, message: &'a MessageRef) -> Result<(), Mistake> {
        let (message, len, register) = self.message(message)?;
        let whole = |len| PieceOf { message, from: 0, len, register };
        let Some((rate, tick)) = self.rate else {
            let piece = index(&mut self.code.pieces, whole(len.unwrap_or(0)));
            self.push(Op::Send { piece, requests: 0 });
            return Ok(());
        };
        let len = len.ok_or(Mistake::RateNeedsLength)?;
        let slice =
            (u128::from(rate) * u128::from(tick.0) / 1_000_000_000).clamp(1, len.into()) as u32;
        let slices = len.div_ceil(slice);
        if u64::from(slices) > MAX_SLICES {
            let expected = "at most 1,048,576 ticks per message; try a longer tick";
            return Err(Mistake::OutOfRange {
                what: "the number of ticks of a message at this rate",
                found: slices.into(),
                expected,
            });
        }
        let pause = |octets: u32| {
            Delay::Fixed(Nanos((u128::from(octets) * 1_000_000_000 / u128::from(rate)) as u64))
        };
        let last = len - (slices - 1) * slice;
        let first = self.code.pieces.len() as u32;
        self.code.pieces.extend(
            (0..slices).map(|k| PieceOf { from: k * slice, ..whole(slice.min(len - k * slice)) }),
        );
        if slices > 1 {
            let register =
                self.register(self.loops.iter().filter(|open| open.register.is_some()).count());
            self.push(Op::Set { register, value: 0 });
            let to = self.code.ops.len() as u32;
            self.push(Op::SendSlice { first, register });
            self.delay(pause(slice))?;
            self.push(Op::NextSlice { register, slices: slices - 1, to });
        }
        self.push(Op::Send { piece: first + slices - 1, requests: 0 });
        self.delay(pause(last))
    }

    /// The request for WebSocket, and the wait for its answer.
    fn websocket(&mut self, target: &Message, fields: Option<&Message>) -> Result<(), Mistake> {
        self.count_frames()?;
        if !matches!(target.parts.first(), Some(Part::Octets(path)) if path.starts_with(b"/")) {
            return Err(Mistake::Syntax {
                found: target.to_string(),
                expected: "a path that begins with /",
                hint: "websocket \"/chat\"",
            });
        }
        let host = || "Host: ${server}\\r\\n".parse::<Message>();
        let fields = fields.map_or_else(host, |fields| Ok(fields.clone()))?;
        if let Some(found) = field_of_handshake(&fields) {
            return Err(Mistake::FieldOfHandshake { found });
        }
        let rest = "Upgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Version: \
                    13\\r\\nSec-WebSocket-Key: ${random:alnum:21:flow}A==\\r\\n\\r\\n";
        let request = Message::octets(*b"GET ")
            .then(target.clone())
            .then(Message::octets(*b" HTTP/1.1\r\n"))
            .then(fields)
            .then(rest.parse()?);
        if request.variable()?.is_some() {
            let (what, expected) = ("the number of variables in a request for WebSocket", "0");
            return Err(Mistake::OutOfRange { what, found: 1, expected });
        }
        let salt = mix(self.salt, self.code.messages.len() as u64);
        let ready = Ready::with_slots(&request, salt, &self.slots)?;
        let len = ready.fixed_len().unwrap_or(0);
        let message = index(&mut self.code.messages, ready);
        let piece = index(&mut self.code.pieces, PieceOf { message, from: 0, len, register: None });
        self.push(Op::Send { piece, requests: 0 });
        self.within(None)?;
        self.push(Op::WsOpen { message });
        Ok(())
    }

    fn grpc_call(
        &mut self,
        target: &Message,
        metadata: Option<&Message>,
        deadline: Option<Nanos>,
    ) -> Result<(), Mistake> {
        if self.closed {
            return Err(Mistake::SendAfterClose);
        }
        if let Some(deadline) = deadline {
            at_most_a_day("the deadline", deadline)?;
            if deadline == Nanos::ZERO {
                let (what, expected) = ("the deadline", "more than 0");
                return Err(Mistake::OutOfRange { what, found: 0, expected });
            }
        }
        let piece = self.grpc_piece(&grpc::request(target, metadata, deadline)?)?;
        self.in_call = true;
        self.push(Op::GrpcCall { piece, deadline: deadline.map_or(0, |time| time.0) });
        Ok(())
    }

    /// The number of a part of a call.
    fn grpc_piece(&mut self, message: &Message) -> Result<u32, Mistake> {
        let register = message.variable()?.map(|name| self.variable(name)).transpose()?;
        let salt = mix(self.salt, self.code.messages.len() as u64);
        let ready = Ready::with_slots(message, salt, &self.slots)?;
        let len = ready.fixed_len().unwrap_or(0);
        let message = index(&mut self.code.messages, ready);
        Ok(index(&mut self.code.pieces, PieceOf { message, from: 0, len, register }))
    }

    /// Gives the counters of WebSocket their numbers.
    fn count_frames(&mut self) -> Result<(), Mistake> {
        for (number, name) in COUNTERS.iter().enumerate() {
            if usize::from(self.counter(name)?) != number {
                return Err(Mistake::CountBeforeWebsocket);
            }
        }
        Ok(())
    }

    fn ws_send(
        &mut self,
        message: &'a MessageRef,
        binary: bool,
        fragment: Option<u32>,
    ) -> Result<(), Mistake> {
        let (message, len, register) = self.message(message)?;
        if let Some(found) = len.map(u64::from).filter(|len| *len > MAX_FRAMED) {
            return Err(Mistake::LongMessage { found, most: MAX_FRAMED });
        }
        let framing = Framing {
            kind: if binary { Kind::Binary } else { Kind::Text },
            fragment: at_least_1("the octets of a fragment", fragment.unwrap_or(u32::MAX))?,
            masked: self.program.role == Role::Client,
        };
        let of = FrameOf { message, framing, register, push: None };
        let frame = index(&mut self.code.frames, of);
        self.push(Op::WsSend { frame });
        Ok(())
    }

    fn ws_push(
        &mut self,
        message: &'a MessageRef,
        binary: bool,
        every: Nanos,
        groups: u32,
    ) -> Result<(), Mistake> {
        let (message, len, register) = self.message(message)?;
        if let Some(found) = len.map(u64::from).filter(|len| *len > MAX_FRAMED) {
            return Err(Mistake::LongMessage { found, most: MAX_FRAMED });
        }
        if register.is_some() {
            let (what, expected) = ("the number of variables in a message for all", "0");
            return Err(Mistake::OutOfRange { what, found: 1, expected });
        }
        at_most_a_day("the time between messages", every)?;
        if every < MIN_PUSH {
            let (what, expected) = ("the time between messages", "at least 1 ms");
            return Err(Mistake::OutOfRange { what, found: every.0, expected });
        }
        let kind = if binary { Kind::Binary } else { Kind::Text };
        let framing = Framing { kind, fragment: u32::MAX, masked: false };
        let groups = at_least_1("groups", groups)?;
        let push = Some(Push { every, groups });
        let of = FrameOf { message, framing, register, push };
        let frame = index(&mut self.code.frames, of);
        self.push(Op::WsPush { frame });
        Ok(())
    }

    fn send_packet(&mut self, message: &'a MessageRef) -> Result<(), Mistake> {
        let (message, len, register) = self.message(message)?;
        if let Some(found) = len.map(u64::from).filter(|len| *len > MAX_DATAGRAM) {
            return Err(Mistake::LongMessage { found, most: MAX_DATAGRAM });
        }
        let piece = index(
            &mut self.code.pieces,
            PieceOf { message, from: 0, len: len.unwrap_or(0), register },
        );
        self.push(Op::Send { piece, requests: 0 });
        match self.rate {
            None => Ok(()),
            Some((rate, _)) => {
                let len = u128::from(len.ok_or(Mistake::RateNeedsLength)?);
                self.delay(Delay::Fixed(Nanos((len * 1_000_000_000 / u128::from(rate)) as u64)))
            }
        }
    }

    fn within(&mut self, within: Option<Nanos>) -> Result<(), Mistake> {
        if let Some(time) = within {
            if time.0 == 0 {
                return Err(Mistake::OutOfRange {
                    what: "the time allowed",
                    found: 0,
                    expected: "more than 0",
                });
            }
            at_most_a_day("the time allowed", time)?;
            self.push(Op::Within { nanos: time.0, keepalive: false });
        } else if let Some(time) = self.keepalive {
            self.push(Op::Within { nanos: time.0, keepalive: true });
        }
        Ok(())
    }

    fn delay(&mut self, delay: Delay) -> Result<(), Mistake> {
        match delay {
            Delay::Fixed(time) | Delay::Uniform(_, time) => at_most_a_day("the delay", time)?,
            Delay::Exponential(mean) => {
                at_most_a_day("a hundred times the mean", Nanos(mean.0.saturating_mul(100)))?
            }
        }
        if let Delay::Uniform(low, high) = delay
            && low > high
        {
            return Err(Mistake::OutOfRange {
                what: "the shortest delay",
                found: low.0,
                expected: "at most the longest",
            });
        }
        if delay.longest() > Nanos::ZERO {
            let delay = index(&mut self.code.delays, delay);
            self.push(Op::Delay { delay });
        }
        Ok(())
    }

    fn take(&mut self, take: &'a Take) -> Result<u16, Mistake> {
        if u64::from(take.offset) + 8 > MAX_DATAGRAM {
            return Err(Mistake::OutOfRange {
                what: "the offset",
                found: take.offset.into(),
                expected: "0..=65,519",
            });
        }
        let register = self.variable(&take.variable)?;
        let at =
            index(&mut self.code.takes, TakeOf { register, form: take.form, offset: take.offset });
        u16::try_from(at)
            .ok()
            .filter(|at| *at != NO_TAKE)
            .ok_or(Mistake::TooLong { found: at as usize + 1, most: usize::from(NO_TAKE) })
    }

    fn variable(&self, name: &str) -> Result<u8, Mistake> {
        let found = self.variables.iter().position(|known| *known == name);
        let missing = || {
            let names: Vec<String> = self.variables.iter().map(|&name| name.into()).collect();
            Mistake::NoSuchVariable { found: name.into(), hint: known(names.iter()) }
        };
        // An excess of variables is reported at the end.
        found.map(|at| at.min(255) as u8).ok_or_else(missing)
    }

    fn counter(&mut self, name: &str) -> Result<u16, Mistake> {
        let most = MAX_NAMES;
        place_of(&mut self.counters, name).map_err(|found| Mistake::TooManyCounters { found, most })
    }

    fn template(&mut self, name: &str) -> Result<u16, Mistake> {
        let most = MAX_NAMES;
        let at = place_of(&mut self.templates, name);
        at.map_err(|found| Mistake::TooManyTemplates { found, most })
    }

    fn slot(&self, name: &str) -> u8 {
        let at = self.slots.iter().position(|known| *known == name);
        at.expect("all names of the program are in slots") as u8
    }

    /// The loop counter at nesting level `depth`.
    fn register(&mut self, depth: usize) -> u8 {
        let at = self.variables.len() + depth;
        self.deepest = self.deepest.max(at + 1);
        at.min(255) as u8
    }

    fn jump_if(&self, condition: &Condition, to: u32) -> Result<Op, Mistake> {
        let register = self.variable(&condition.variable)?;
        let Condition { elapsed, compare, value, .. } = *condition;
        Ok(Op::JumpIf { register, elapsed, compare, value, to })
    }

    fn begin_loop(&mut self, instruction: usize, times: &'a Times) -> Result<(), Mistake> {
        self.closed = false;
        let depth = self.loops.iter().filter(|open| open.register.is_some()).count();
        let mut open = Open {
            instruction,
            in_call: self.in_call,
            body: self.code.ops.len() as u32,
            register: None,
            exit: None,
        };
        match times {
            Times::Count(count) => {
                let register = self.register(depth);
                self.push(Op::Set { register, value: at_least_1("the count", *count)? });
                open.body += 1;
                open.register = Some(register);
            }
            Times::Until(condition) => {
                open.exit = Some(self.code.ops.len());
                let exit = self.jump_if(condition, 0)?;
                self.push(exit);
            }
            Times::Forever => {
                if self.program.role == Role::Server {
                    self.idle.get_or_insert(open.body);
                }
            }
        }
        self.loops.push(open);
        Ok(())
    }

    fn end_loop(&mut self, i: usize) -> Result<(), Mistake> {
        self.closed = false;
        let open = self.loops.pop().ok_or(Mistake::EndWithoutLoop)?;
        if self.in_call && !open.in_call {
            return Err(Mistake::CallInCall);
        }
        match open.register {
            Some(register) => {
                self.push(Op::Again { register, to: open.body });
                self.counted.push((open.instruction, i));
            }
            None => self.push(Op::Jump { to: open.body }),
        }
        if let Some(exit) = open.exit {
            let target = self.code.ops.len() as u32;
            self.code.ops[exit].set_target(target);
        }
        Ok(())
    }

    fn serve(&mut self, status: u16, content_type: &str, body: u32) -> Result<(), Mistake> {
        if !(200..=599).contains(&status) || status == 204 || status == 304 {
            let expected = "200..=599 except 204 and 304, which have no body";
            return Err(Mistake::OutOfRange { what: "the status", found: status.into(), expected });
        }
        if content_type.is_empty() || !content_type.bytes().all(|octet| octet.is_ascii_graphic()) {
            let expected = "a content type without spaces";
            return Err(Mistake::Syntax {
                found: content_type.into(),
                expected,
                hint: "http_serve 200 text/html 1024",
            });
        }
        let header = |connection: &str| {
            format!(
                "HTTP/1.1 {status} {}\r\nServer: squall\r\nContent-Type: \
                 {content_type}\r\nContent-Length: {body}\r\nConnection: {connection}\r\n\r\n",
                reason(status)
            )
        };
        let mut answer = |text: String, body: u32| {
            let len = text.len() as u32;
            let mut message = Message::octets(text.into_bytes());
            if body > 0 {
                message = message.then(Message::repeat(*b"squall serves octets\n", body));
            }
            let ready = Ready::with_slots(&message, 0, &[])?;
            let all = ready.fixed_len().unwrap_or(0);
            let message = index(&mut self.code.messages, ready);
            let piece = index(
                &mut self.code.pieces,
                PieceOf { message, from: 0, len: all, register: None },
            );
            Ok::<_, Mistake>((piece, len))
        };
        let refusal = "HTTP/1.1 400 Bad Request\r\nServer: squall\r\nContent-Length: \
                       0\r\nConnection: close\r\n\r\n";
        let serve = Serve {
            status,
            keep: answer(header("keep-alive"), body)?,
            close: answer(header("close"), body)?,
            proceed: answer("HTTP/1.1 100 Continue\r\n\r\n".into(), 0)?.0,
            refuse: answer(refusal.into(), 0)?.0,
        };
        let serve = index(&mut self.code.serves, serve);
        self.within(None)?;
        self.push(Op::HttpServe { serve });
        Ok(())
    }

    fn finish(mut self) -> Result<Code, ProgramError> {
        let program = self.program;
        if let Some(open) = self.loops.last() {
            return Err(program.error(open.instruction + 1, Mistake::LoopWithoutEnd));
        }
        self.push(Op::Finish);
        for &(op, instruction, label) in &self.jumps {
            let Some(&to) = self.labels.get(label) else {
                let names: Vec<String> = self.labels.keys().map(|&name| name.into()).collect();
                let mistake =
                    Mistake::NoSuchLabel { found: label.into(), hint: known(names.iter()) };
                return Err(program.error(instruction + 1, mistake));
            };
            let inside = |at: usize, (from, end): (usize, usize)| (from..end).contains(&at);
            if let Some(around) =
                self.counted.iter().find(|&&all| inside(to, all) && !inside(instruction, all))
            {
                return Err(
                    program.error(instruction + 1, Mistake::IntoLoop { into: around.0 + 1 })
                );
            }
            self.code.ops[op].set_target(self.begins[to]);
        }
        if let Some(at) = repeated_handshake(&self.code.ops) {
            let instruction = self.begins.partition_point(|begin| *begin as usize <= at);
            let found = program.instructions[instruction - 1].word();
            return Err(program.error(instruction, Mistake::SecondHandshake { found }));
        }
        if self.deepest > MAX_REGISTERS {
            let mistake = Mistake::TooManyVariables { found: self.deepest, most: MAX_REGISTERS };
            return Err(program.error(0, mistake));
        }
        if self.code.ops.len() > MAX_OPS {
            let mistake = Mistake::TooLong { found: self.code.ops.len(), most: MAX_OPS };
            return Err(program.error(0, mistake));
        }
        if let Some(op) = round_without_waiting(&self.code.ops, program.transport) {
            let instruction = self.begins.partition_point(|begin| *begin as usize <= op);
            return Err(program.error(instruction, Mistake::NeverWaits));
        }
        self.mark_answers();
        let requests = match program.role {
            Role::Client => requests::count(&mut self.code.ops),
            Role::Server => None,
        };
        let receives = |what: fn(&Op) -> bool| self.code.ops.iter().any(what);
        let packets = receives(|op| matches!(op, Op::RecvPackets { .. }));
        if packets && receives(|op| matches!(op, Op::RecvPacketOctets { .. })) {
            return Err(program.error(0, Mistake::TwoCounts));
        }
        let http = receives(|op| matches!(op, Op::HttpResponse { .. } | Op::HttpServe { .. }));
        let looks = receives(|op| {
            matches!(op, Op::Extract { .. } | Op::Check { .. } | Op::UnlessRedirect { .. })
        });
        let cookies = self.slots.iter().position(|slot| *slot == COOKIES).map(|at| at as u8);
        let answers = (looks || cookies.is_some())
            .then_some(Slots { count: self.slots.len() as u8, cookies });
        let websocket = receives(|op| matches!(op, Op::WsOpen { .. } | Op::WsAccept));
        if let (true, Some(at)) = (websocket, first_of_streams(program)) {
            let mistake = Mistake::NotOverWebsocket { found: program.instructions[at].word() };
            return Err(program.error(at + 1, mistake));
        }
        let grpc = receives(|op| matches!(op, Op::GrpcCall { .. } | Op::GrpcAccept { .. }));
        if let (true, Some(at)) = (grpc, first_of_streams(program)) {
            let mistake = Mistake::NotOverGrpc { found: program.instructions[at].word() };
            return Err(program.error(at + 1, mistake));
        }
        let finishes = matches!(program.instructions.last(), Some(Instruction::GrpcFinish { .. }));
        if grpc && program.role == Role::Server && !finishes {
            return Err(program.error(program.instructions.len(), Mistake::NoGrpcFinish));
        }
        if program.role == Role::Client && self.in_call {
            return Err(program.error(program.instructions.len(), Mistake::NoGrpcStatus));
        }
        let traits = Traits {
            role: program.role,
            transport: program.transport,
            start: 0,
            // A flow's stored answers are found by its row of variables, so it needs a row.
            registers: if answers.is_some() { self.deepest.max(2) } else { self.deepest } as u8,
            answers,
            http,
            websocket,
            grpc,
            requests,
            counts: !http && !grpc && !receives(|op| matches!(op, Op::RecvUntil { .. })),
            packets,
            takes: !self.code.takes.is_empty(),
            idle: self.idle.and_then(|body| {
                let within = matches!(self.code.ops[body as usize], Op::Within { .. });
                let first = body + u32::from(within);
                let receives = matches!(
                    self.code.ops.get(first as usize)?,
                    Op::Recv { .. } | Op::RecvUntil { .. } | Op::WsRecv { .. }
                );
                receives.then_some(first)
            }),
            keepalive: receives(|op| matches!(op, Op::Within { keepalive: true, .. })),
        };
        self.code.owner = vec![Owner::default(); self.code.ops.len()];
        self.code.programs.push(Info {
            name: program.name.as_str().into(),
            traits,
            counters: self.counters.into(),
            templates: self.templates.into(),
        });
        Ok(self.code)
    }

    /// Marks where requests are answered: a request is answered once no further receive belongs to
    /// it.
    fn mark_answers(&mut self) {
        let ops = &mut self.code.ops;
        let mut receives_next = false;
        for op in ops.iter_mut().rev() {
            match op {
                Op::Recv { answered, .. }
                | Op::RecvUntil { answered, .. }
                | Op::RecvPackets { answered, .. }
                | Op::RecvPacketOctets { answered, .. }
                | Op::WsRecv { answered, .. }
                | Op::HttpResponse { answered, .. } => {
                    *answered = !receives_next;
                    receives_next = true;
                }
                Op::Within { .. }
                | Op::Set { .. }
                | Op::SetRandom { .. }
                | Op::SetClock { .. }
                | Op::Add { .. }
                | Op::Count { .. }
                | Op::CountConstant { .. }
                | Op::Next { .. }
                | Op::Extract { .. }
                | Op::Check { .. } => {}
                _ => receives_next = false,
            }
        }
    }
}

/// The first instruction that sends or reads octets, which a program with WebSocket leaves to its
/// frames.
fn first_of_streams(program: &Program) -> Option<usize> {
    program.instructions.iter().position(|instruction| {
        matches!(
            instruction,
            Instruction::Send(_)
                | Instruction::Recv { .. }
                | Instruction::RecvUntil { .. }
                | Instruction::HttpResponse { .. }
                | Instruction::HttpServe { .. }
        )
    })
}

/// Names of extracted values that messages may use.
fn slots(program: &Program) -> Result<Vec<&str>, ProgramError> {
    let mut slots: Vec<&str> = vec![];
    let mut add = |name| {
        if !slots.contains(&name) {
            slots.push(name);
        }
    };
    for instruction in &program.instructions {
        match instruction {
            Instruction::Extract { name, .. } => add(name),
            Instruction::UnlessRedirect { .. } => add(LOCATION),
            _ => {}
        }
    }
    let given = program.instructions.iter().filter_map(|instruction| match instruction {
        Instruction::Send(MessageRef::Given(message)) => Some(message),
        _ => None,
    });
    let has_cookies = |message: &Message| message.parts.contains(&Part::Mark(Mark::Cookies));
    if program.role == Role::Client && given.chain(program.messages.values()).any(has_cookies) {
        add(COOKIES);
    }
    if slots.len() > MAX_VALUES {
        let mistake = Mistake::TooManyValues { found: slots.len(), most: MAX_VALUES };
        return Err(program.error(0, mistake));
    }
    Ok(slots)
}

fn not_regex(found: &str, why: String) -> Mistake {
    Mistake::Regex { found: found.into(), why }
}

/// The handshake of WebSocket, if a later operation jumps back to it or to one before it.
fn repeated_handshake(ops: &[Op]) -> Option<usize> {
    let at = ops.iter().position(|op| matches!(op, Op::WsOpen { .. } | Op::WsAccept))?;
    let repeats = ops[at..].iter().any(|op| match op {
        Op::Jump { to }
        | Op::JumpIf { to, .. }
        | Op::Again { to, .. }
        | Op::NextSlice { to, .. }
        | Op::UnlessRedirect { to, .. } => *to as usize <= at,
        _ => false,
    });
    repeats.then_some(at)
}

/// The first name of a header field that belongs to the handshake of WebSocket.
fn field_of_handshake(fields: &Message) -> Option<String> {
    // Marks are parts of values.
    let octets = fields.parts.iter().flat_map(|part| match part {
        Part::Octets(octets) => &octets[..],
        _ => b"?",
    });
    let octets: Vec<u8> = octets.copied().collect();
    octets.split(|octet| *octet == b'\n').find_map(|line| {
        let (name, _) = str::from_utf8(line).ok()?.split_once(':')?;
        let name = name.trim();
        let lower = name.to_ascii_lowercase();
        let owned =
            matches!(&*lower, "connection" | "upgrade") || lower.starts_with("sec-websocket-");
        owned.then(|| name.into())
    })
}

/// Finds an operation in a cycle that never waits.
fn round_without_waiting(ops: &[Op], transport: Transport) -> Option<usize> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        Entered,
        Left,
    }
    let bounded = bounded(ops);
    let next = |at: usize| -> [Option<usize>; 2] {
        let ahead = Some(at + 1);
        if bounded.contains(&at) {
            return [ahead, None];
        }
        match ops[at] {
            // TCP holds back a sender whose peer does not read, but UDP does not.
            Op::Send { .. } | Op::SendSlice { .. } if transport == Transport::Udp => [ahead, None],
            Op::Set { .. }
            | Op::SetRandom { .. }
            | Op::SetClock { .. }
            | Op::Add { .. }
            | Op::Count { .. }
            | Op::CountConstant { .. }
            | Op::Next { .. }
            | Op::Close
            | Op::Extract { .. }
            | Op::Check { .. }
            | Op::Within { .. } => [ahead, None],
            // A peer that has closed, or has acknowledged everything, ends these waits at once.
            Op::WsClose { .. } | Op::HttpServe { .. } | Op::Flush => [ahead, None],
            // So does the end of a call. Without a message, the program of a server jumps at once.
            Op::GrpcEnd | Op::GrpcCancel | Op::GrpcStatus { .. } => [ahead, None],
            Op::GrpcNext { to } => [None, Some(to as usize)],
            Op::WaitPeerClose if transport == Transport::Tcp => [ahead, None],
            Op::Jump { to } => [Some(to as usize), None],
            Op::JumpIf { to, .. }
            | Op::Again { to, .. }
            | Op::NextSlice { to, .. }
            | Op::UnlessRedirect { to, .. } => [ahead, Some(to as usize)],
            _ => [None, None],
        }
    };
    let mut marks = vec![Mark::New; ops.len()];
    for start in 0..ops.len() {
        let mut path = vec![(start, 0)];
        while let Some((at, branch)) = path.pop() {
            if branch == 0 {
                match marks[at] {
                    Mark::Left => continue,
                    Mark::Entered => return Some(at),
                    Mark::New => marks[at] = Mark::Entered,
                }
            }
            match next(at).get(branch) {
                Some(to) => {
                    path.push((at, branch + 1));
                    path.extend(to.map(|to| (to, 0)));
                }
                None => marks[at] = Mark::Left,
            }
        }
    }
    None
}

/// The backward jumps of counted loops that are short enough for all passes to run in one event.
fn bounded(ops: &[Op]) -> Vec<usize> {
    let most = |register: u8| {
        ops.iter().try_fold(0u32, |most, op| match *op {
            Op::Set { register: other, value } if other == register => Some(most.max(value)),
            Op::SetRandom { register: other, high, .. } if other == register => {
                Some(most.max(high))
            }
            Op::SetClock { register: other } | Op::Add { register: other, value: 0.. }
                if other == register =>
            {
                None
            }
            _ => Some(most),
        })
    };
    let takes = ops.iter().any(|op| matches!(op, Op::RecvPackets { take, .. } if *take != NO_TAKE));
    let mut rounds = 1u64;
    let mut found = Vec::new();
    for (at, op) in ops.iter().enumerate() {
        let register = match *op {
            Op::Again { register, .. } => register,
            Op::JumpIf { register, elapsed: false, compare: Compare::Unequal, value: 0, to }
                if (to as usize) < at
                    && matches!(ops[at - 1], Op::Add { register: down, value: ..0 } if down == register) =>
            {
                register
            }
            _ => continue,
        };
        let Some(most) = most(register).filter(|_| !takes) else { continue };
        rounds = rounds.saturating_mul(u64::from(most) + 1);
        if rounds > MAX_ROUNDS {
            break;
        }
        found.push(at);
    }
    found
}

/// The index of `name`, which is added if necessary. The error is the number of names if there are
/// too many.
fn place_of(names: &mut Vec<Arc<str>>, name: &str) -> Result<u16, usize> {
    if let Some(at) = names.iter().position(|known| **known == *name) {
        return Ok(at as u16);
    }
    names.push(name.into());
    match names.len() <= MAX_NAMES {
        true => Ok(names.len() as u16 - 1),
        false => Err(names.len()),
    }
}

fn index<T>(table: &mut Vec<T>, value: T) -> u32 {
    table.push(value);
    table.len() as u32 - 1
}

fn at_least_1(what: &'static str, found: u32) -> Result<u32, Mistake> {
    if found == 0 {
        Err(Mistake::OutOfRange { what, found: 0, expected: "at least 1" })
    } else {
        Ok(found)
    }
}

fn at_most_a_day(what: &'static str, time: Nanos) -> Result<(), Mistake> {
    if time > MAX_DELAY {
        Err(Mistake::OutOfRange { what, found: time.0, expected: DAY })
    } else {
        Ok(())
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        301 => "Moved Permanently",
        302 => "Found",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => match status / 100 {
            2 => "Success",
            3 => "Redirection",
            4 => "Client Error",
            _ => "Server Error",
        },
    }
}

impl Delay {
    fn longest(self) -> Nanos {
        match self {
            Self::Fixed(time) | Self::Uniform(_, time) | Self::Exponential(time) => time,
        }
    }
}

impl Pattern {
    fn new(octets: &[u8]) -> Self {
        let mut border = vec![0u8; octets.len()];
        let mut have = 0;
        for at in 1..octets.len() {
            while have > 0 && octets[at] != octets[have] {
                have = usize::from(border[have - 1]);
            }
            have += usize::from(octets[at] == octets[have]);
            border[at] = have as u8;
        }
        Self { octets: octets.into(), border: border.into() }
    }

    /// Continues with `have` octets matched. Returns the octets of `input` consumed, the octets now
    /// matched, and whether the match is complete.
    #[inline]
    pub fn find(&self, mut have: usize, input: &[u8]) -> (usize, usize, bool) {
        let mut at = 0;
        while at < input.len() {
            if have == 0 {
                match memchr::memchr(self.octets[0], &input[at..]) {
                    Some(skip) => at += skip,
                    None => return (input.len(), 0, false),
                }
            }
            let octet = input[at];
            while have > 0 && self.octets[have] != octet {
                have = usize::from(self.border[have - 1]);
            }
            have += usize::from(self.octets[have] == octet);
            at += 1;
            if have == self.octets.len() {
                return (at, 0, true);
            }
        }
        (at, have, false)
    }
}

impl Op {
    fn set_target(&mut self, target: u32) {
        match self {
            Self::Jump { to }
            | Self::JumpIf { to, .. }
            | Self::Again { to, .. }
            | Self::UnlessRedirect { to, .. }
            | Self::GrpcNext { to }
            | Self::NextSlice { to, .. } => *to = target,
            _ => unreachable!("only jumps have targets"),
        }
    }
}

impl Code {
    /// The numbers of a program's operations.
    pub fn range_of(&self, program: u16) -> std::ops::Range<u32> {
        let start = self.programs[usize::from(program)].traits.start;
        let next = self.programs.get(usize::from(program) + 1);
        start..next.map_or(self.ops.len() as u32, |next| next.traits.start)
    }

    /// The pieces that a program sends.
    pub fn pieces_of(&self, program: u16) -> impl Iterator<Item = u32> {
        let own = self.range_of(program);
        self.ops[own.start as usize..own.end as usize].iter().flat_map(|op| match *op {
            Op::Send { piece, .. } | Op::GrpcCall { piece, .. } => vec![piece],
            Op::GrpcAccept { accept } => {
                let of = &self.accepts[accept as usize];
                vec![of.answer, of.unimplemented, of.unsupported]
            }
            Op::GrpcFinish { finish } => {
                let of = self.finishes[finish as usize];
                vec![of.trailers, of.alone]
            }
            Op::HttpServe { serve } => {
                let Serve { keep, close, proceed, refuse, .. } = self.serves[serve as usize];
                vec![keep.0, close.0, proceed, refuse]
            }
            _ => vec![],
        })
    }

    /// Appends `other`, which has one program. Returns the program's number.
    ///
    /// # Errors
    /// If there is no room.
    pub fn append(&mut self, other: Code) -> Result<u16, Mistake> {
        let found = self.ops.len() + other.ops.len();
        let number = self.programs.len();
        if found > MAX_OPS
            || number > usize::from(u16::MAX)
            || self.takes.len() + other.takes.len() >= usize::from(NO_TAKE)
        {
            return Err(Mistake::TooLong { found, most: MAX_OPS });
        }
        let at = |len: usize| len as u32;
        let (ops, messages, pieces) =
            (at(self.ops.len()), at(self.messages.len()), at(self.pieces.len()));
        let (patterns, delays, serves) =
            (at(self.patterns.len()), at(self.delays.len()), at(self.serves.len()));
        let frames = at(self.frames.len());
        let (accepts, finishes) = (at(self.accepts.len()), at(self.finishes.len()));
        let takes = self.takes.len() as u16;
        let (extracts, checks, redirects) =
            (at(self.extracts.len()), at(self.checks.len()), at(self.redirects.len()));
        self.ops.extend(other.ops.into_iter().map(|mut op| {
            match &mut op {
                Op::Send { piece, .. } | Op::GrpcCall { piece, .. } | Op::GrpcSend { piece } => {
                    *piece += pieces;
                }
                Op::GrpcAccept { accept } => *accept += accepts,
                Op::GrpcFinish { finish } => *finish += finishes,
                Op::SendSlice { first, .. } => *first += pieces,
                Op::RecvUntil { pattern, .. } => *pattern += patterns,
                Op::WsOpen { message } => *message += messages,
                Op::WsSend { frame } | Op::WsPush { frame } => *frame += frames,
                Op::Delay { delay } => *delay += delays,
                Op::HttpServe { serve } => *serve += serves,
                Op::Extract { extract } => *extract += extracts,
                Op::Check { check } => *check += checks,
                Op::UnlessRedirect { redirect, to } => {
                    *redirect += redirects;
                    *to += ops;
                }
                Op::RecvPackets { take, .. } if *take != NO_TAKE => *take += takes,
                Op::Jump { to }
                | Op::JumpIf { to, .. }
                | Op::Again { to, .. }
                | Op::GrpcNext { to }
                | Op::NextSlice { to, .. } => *to += ops,
                _ => {}
            }
            op
        }));
        self.owner.resize(self.ops.len(), Owner { program: number as u16, ..Owner::default() });
        self.programs.extend(
            other
                .programs
                .into_iter()
                .map(|info| Info { traits: Traits { start: ops, ..info.traits }, ..info }),
        );
        self.messages.extend(other.messages);
        self.pieces.extend(
            other
                .pieces
                .into_iter()
                .map(|piece| PieceOf { message: piece.message + messages, ..piece }),
        );
        self.frames.extend(
            other
                .frames
                .into_iter()
                .map(|frame| FrameOf { message: frame.message + messages, ..frame }),
        );
        self.patterns.extend(other.patterns);
        self.delays.extend(other.delays);
        self.takes.extend(other.takes);
        self.extracts.extend(other.extracts);
        self.checks.extend(other.checks);
        self.redirects.extend(other.redirects);
        self.accepts.extend(other.accepts.into_iter().map(|of| AcceptOf {
            methods: of.methods,
            answer: of.answer + pieces,
            unimplemented: of.unimplemented + pieces,
            unsupported: of.unsupported + pieces,
        }));
        self.finishes.extend(other.finishes.into_iter().map(|of| FinishOf {
            trailers: of.trailers + pieces,
            alone: of.alone + pieces,
            status: of.status,
        }));
        self.serves.extend(other.serves.into_iter().map(|serve| Serve {
            status: serve.status,
            keep: (serve.keep.0 + pieces, serve.keep.1),
            close: (serve.close.0 + pieces, serve.close.1),
            proceed: serve.proceed + pieces,
            refuse: serve.refuse + pieces,
        }));
        Ok(number as u16)
    }
}
