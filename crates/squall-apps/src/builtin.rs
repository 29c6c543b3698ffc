//! Built-in applications: a client and a server each, written for this project and modeled on the
//! protocols.
//!
//! Names that end in `like` have the rhythm and the sizes of a protocol; their content is opaque.

use squall_units::Nanos;

use crate::{
    Check, Compare, Condition, Data, Delay, Instruction, Mark, Message, MessageError, MessageRef,
    NumberForm, Origin, Part, Program, ProgramBuilder, ProgramError, Take, TakeForm, Times, Value,
    grpc::{Status, Statuses},
};

/// The client and the server of an application.
#[derive(Clone, Debug, PartialEq)]
pub struct Application {
    /// Its name in profiles and reports: `"dns"`.
    pub name: &'static str,
    /// One line for lists.
    pub about: &'static str,
    pub client: Program,
    pub server: Program,
    /// Default port of the server.
    pub port: u16,
}

/// An application's share in a mix.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// Number of flows in 100.
    pub weight: u32,
    pub application: Application,
}

/// All names for [`application`].
pub const NAMES: &[&str] = &[
    "http",
    "http-get",
    "http-post",
    "https-like",
    "dns",
    "smtp",
    "sip",
    "rtp",
    "smb-like",
    "oracle-like",
    "citrix-like",
    "video",
];

/// The application with this name.
#[must_use]
pub fn application(name: &str) -> Option<Application> {
    Some(match name {
        "http" => http_browse(),
        "http-get" => http_get(),
        "http-post" => http_post(),
        "https-like" => https_like(32 << 10),
        "dns" => dns(),
        "smtp" => smtp(20 << 10),
        "sip" => sip(Nanos(2 * SECOND)),
        "rtp" => rtp(250),
        "smb-like" => smb_like(8),
        "oracle-like" => oracle_like(20),
        "citrix-like" => citrix_like(50),
        "video" => video(4, 1 << 20, Nanos(2 * SECOND)),
        _ => return None,
    })
}

/// A mix in the style of the EMIX for firewall tests: office traffic, with many short flows and a
/// few that carry most octets. Names, contents and weights are this project's own, not those of a
/// vendor.
#[must_use]
pub fn mix() -> Vec<Share> {
    const WEIGHTS: &[(u32, &str)] = &[
        (22, "http"),
        (14, "http-get"),
        (4, "http-post"),
        (22, "https-like"),
        (22, "dns"),
        (3, "smtp"),
        (2, "sip"),
        (2, "rtp"),
        (3, "smb-like"),
        (3, "oracle-like"),
        (2, "citrix-like"),
        (1, "video"),
    ];
    let share =
        |&(weight, name)| application(name).map(|application| Share { weight, application });
    WEIGHTS.iter().filter_map(share).collect()
}

const SECOND: u64 = 1_000_000_000;
const ANSWER_TIME: Nanos = Nanos(5 * SECOND);

/// Settings of an HTTP client.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpClient {
    /// Request targets with weights; each starts with `/`. Every request draws one. There is at
    /// least one, and weights are at least 1.
    pub paths: Vec<(u32, String)>,
    /// Value of the Host field.
    pub host: String,
    /// The scheme: if true, redirects to `https` stay on the same server, and redirects to `http`
    /// do not.
    pub secure: bool,
    /// `None`: POST with a body, GET without.
    pub method: Option<String>,
    /// Names and values of header fields. They replace the default fields.
    pub headers: Vec<(String, String)>,
    /// Length of a generated body, octets.
    pub post: Option<u32>,
    /// The octets of the body; takes precedence over `post`.
    pub body: Option<Vec<u8>>,
    /// Records for `${data:NAME}` in paths, headers and body.
    pub data: Option<Data>,
    /// Whether to return the cookies that servers set.
    pub cookies: bool,
    /// Maximum number of redirects per request that are followed, with GET, to the same host. If
    /// above 0, an answer that redirects further, or to another host, fails the flow.
    pub redirects: u32,
    /// Checks on each answer, after redirects.
    pub checks: Vec<Check>,
    /// Values extracted from each answer, for `${value:NAME}` in later requests.
    pub extracts: Vec<(String, Origin)>,
    /// Requests per connection, at least 1.
    pub requests: u32,
    /// Requests sent before the first answer is awaited, at least 1.
    pub pipeline: u32,
    /// Pause between an answer and the next request ("think time").
    pub think: Option<Delay>,
    /// Whether the last request has `Connection: close`; the server then closes first.
    pub close: bool,
    /// Time limit for an answer; the flow ends when it expires.
    pub within: Option<Nanos>,
}

impl Default for HttpClient {
    fn default() -> Self {
        Self {
            paths: vec![(1, "/".into())],
            host: "squall".into(),
            secure: false,
            method: None,
            headers: vec![],
            post: None,
            body: None,
            data: None,
            cookies: false,
            redirects: 0,
            checks: vec![],
            extracts: vec![],
            requests: 1,
            pipeline: 1,
            think: None,
            close: false,
            within: None,
        }
    }
}

impl HttpClient {
    /// Parses `http://host[:port][/path]` or `https://...`. Also returns the port; `None` for any
    /// other text.
    #[must_use]
    pub fn from_url(url: &str) -> Option<(Self, u16)> {
        let (secure, rest) = crate::http::scheme(url.as_bytes())?;
        let usual = if secure { 443 } else { 80 };
        let rest = &url[url.len() - rest.len()..];
        // The fragment is not sent (RFC 9110 §4.2.5).
        let rest = rest.split('#').next().unwrap_or(rest);
        let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let path = if path.starts_with('/') { path.into() } else { format!("/{path}") };
        let after_host = if host.starts_with('[') { host.find(']')? + 1 } else { 0 };
        let port = match host[after_host..].split_once(':') {
            Some((_, port)) => port.parse().ok()?,
            None => usual,
        };
        let printable = |text: &str| text.bytes().all(|octet| octet.is_ascii_graphic());
        if host.is_empty() || host.starts_with(':') || !printable(host) || !printable(&path) {
            return None;
        }
        let paths = vec![(1, path)];
        Some((Self { paths, host: host.into(), secure, ..Self::default() }, port))
    }

    /// The client's program.
    ///
    /// # Errors
    /// If a number is out of range.
    pub fn program(&self, name: &str) -> Result<Program, ProgramError> {
        let (requests, pipeline) = (self.requests.max(1), self.pipeline.max(1));
        // The last round has the remaining requests, and no pause after it.
        let rounds = (requests - 1) / pipeline;
        let last = requests - rounds * pipeline;
        let rounds_of = |mut builder: ProgramBuilder| -> Result<ProgramBuilder, MessageError> {
            if rounds > 0 {
                builder = builder.push(Instruction::Loop(Times::Count(rounds)));
                builder = self.round(builder, pipeline, false)?;
                builder = match self.think {
                    Some(think) => builder.push(Instruction::Delay(think)),
                    None => builder,
                };
                builder = builder.push(Instruction::End);
            }
            self.round(builder, last, self.close)
        };
        let mistake = |error: MessageError| ProgramError {
            program: name.to_owned(),
            instruction: 0,
            mistake: error.into(),
        };
        rounds_of(Program::client(name)).map_err(mistake)?.close().build()
    }

    /// `count` requests (in a single message if there is only one path) and their answers.
    fn round(
        &self,
        mut builder: ProgramBuilder,
        count: u32,
        close: bool,
    ) -> Result<ProgramBuilder, MessageError> {
        let last = |k: u32| close && k == count;
        if let [(_, path)] = &self.paths[..] {
            let mut all = Message::default();
            for k in 1..=count {
                all = all.then(self.request(path, last(k))?);
            }
            builder = builder.send_message(all.joined());
        } else {
            for k in 1..=count {
                builder = self.one_of(builder, last(k))?;
            }
        }
        for _ in 0..count {
            builder = self.answer(builder)?;
        }
        Ok(builder)
    }

    /// A request for one of the paths.
    fn one_of(
        &self,
        mut builder: ProgramBuilder,
        close: bool,
    ) -> Result<ProgramBuilder, MessageError> {
        let variable = || "url".to_owned();
        let total: u32 = self.paths.iter().fold(0, |sum, (weight, _)| sum.saturating_add(*weight));
        // Labels must be unique in a program; no two of these have the same instruction number.
        let at = builder.instructions();
        let label = |i: usize| format!("url-{at}-{i}");
        builder = builder.push(Instruction::Set {
            variable: variable(),
            value: Value::Random(0, total.saturating_sub(1)),
        });
        let mut below = 0;
        for (i, (weight, path)) in self.paths.iter().enumerate() {
            below += weight;
            if i + 1 < self.paths.len() {
                builder = builder.push(Instruction::Jump {
                    label: label(i + 1),
                    condition: Some(Condition {
                        elapsed: false,
                        variable: variable(),
                        compare: Compare::GreaterOrEqual,
                        value: below,
                    }),
                });
            }
            builder = builder.send_message(self.request(path, close)?.joined());
            if i + 1 < self.paths.len() {
                let jump = Instruction::Jump { label: label(self.paths.len()), condition: None };
                builder = builder.push(jump).push(Instruction::Label(label(i + 1)));
            }
        }
        Ok(builder.push(Instruction::Label(label(self.paths.len()))))
    }

    /// Waits for an answer, checks it and extracts its values.
    fn answer(&self, mut builder: ProgramBuilder) -> Result<ProgramBuilder, MessageError> {
        let head = self.method.as_deref() == Some("HEAD");
        let response = Instruction::HttpResponse { head, within: self.within };
        builder = builder.push(response.clone());
        if self.redirects > 0 {
            let label = format!("answer-{}", builder.instructions());
            let location = Message { parts: vec![Part::Mark(Mark::Value("location".into()))] };
            let method = if head { "HEAD" } else { "GET" };
            let request = Message::octets(format!("{method} ").into_bytes())
                .then(location)
                .then(self.fields_without_body(" HTTP/1.1\r\n")?)
                .then(Message::octets(*b"\r\n"));
            for _ in 0..self.redirects {
                let scheme = if self.secure { "https" } else { "http" };
                let (label, host) = (label.clone(), format!("{scheme}://{}", self.host));
                builder = builder
                    .push(Instruction::UnlessRedirect { label, host })
                    .send_message(request.clone().joined())
                    .push(response.clone());
            }
            let further = Instruction::Check(Check::NoRedirect);
            builder = builder.push(Instruction::Label(label)).push(further);
        }
        let checks = self.checks.iter().cloned().map(Instruction::Check);
        let extracts = self.extracts.iter().cloned();
        let extracts = extracts.map(|(name, from)| Instruction::Extract { name, from });
        Ok(checks.chain(extracts).fold(builder, ProgramBuilder::push))
    }

    fn request(&self, path: &str, close: bool) -> Result<Message, MessageError> {
        let body = match (&self.body, self.post) {
            (Some(body), _) => Some(self.marked(body)?),
            (None, Some(0)) => Some(Message::default()),
            (None, Some(len)) => Some(filler(len)),
            (None, None) => None,
        };
        let method = match (&self.method, &body) {
            (Some(method), _) => method.as_str(),
            (None, Some(_)) => "POST",
            (None, None) => "GET",
        };
        let first = self.marked(format!("{method} {path} HTTP/1.1\r\n").as_bytes())?;
        let head = first.then(self.fields("", close, body.is_some())?);
        // Content-Length is never sent together with Transfer-Encoding (RFC 9112 §6.2).
        let framed = self.has_header("Content-Length") || self.has_header("Transfer-Encoding");
        let Some(body) = body else {
            // A method that may have a body must state that there is none (RFC 9110 §8.6).
            let empty = matches!(method, "POST" | "PUT" | "PATCH") && !framed;
            let end: &[u8] = if empty { b"Content-Length: 0\r\n\r\n" } else { b"\r\n" };
            return Ok(head.then(Message::octets(end)));
        };
        let length = match body.fixed_len() {
            _ if framed => Message::octets(*b"\r\n"),
            Some(len) => Message::octets(format!("Content-Length: {len}\r\n\r\n").into_bytes()),
            None => Message::octets(*b"Content-Length: ")
                .then(Message { parts: vec![Part::Mark(Mark::ContentLength)] })
                .then(Message::octets(*b"\r\n\r\n")),
        };
        Ok(head.then(length).then(body))
    }

    /// Fields of a request after a redirect, without those about the body, which it lacks (RFC 9110
    /// §15.4).
    fn fields_without_body(&self, before: &str) -> Result<Message, MessageError> {
        let of_body = |name: &str| {
            name.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("content-"))
                || name.eq_ignore_ascii_case("transfer-encoding")
        };
        let headers = self.headers.iter().filter(|(name, _)| !of_body(name)).cloned().collect();
        Self { headers, ..self.clone() }.fields(before, false, false)
    }

    /// Header fields after `before`, without Content-Length.
    fn fields(&self, before: &str, close: bool, body: bool) -> Result<Message, MessageError> {
        let mut text = before.to_owned();
        let connection = if close { "close" } else { "" };
        let kind = if body { "application/octet-stream" } else { "" };
        for (name, value) in [
            ("Host", self.host.as_str()),
            ("User-Agent", "squall"),
            ("Accept", "*/*"),
            ("Connection", connection),
            ("Content-Type", kind),
        ] {
            if !value.is_empty() && !self.has_header(name) {
                text += &format!("{name}: {value}\r\n");
            }
        }
        for (name, value) in &self.headers {
            text += &format!("{name}: {value}\r\n");
        }
        let fields = self.marked(text.as_bytes())?;
        let cookies = Message { parts: vec![Part::Mark(Mark::Cookies)] };
        Ok(if self.cookies { fields.then(cookies) } else { fields })
    }

    fn has_header(&self, name: &str) -> bool {
        self.headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name))
    }

    fn marked(&self, text: &[u8]) -> Result<Message, MessageError> {
        let message = Message::raw(text)?;
        match &self.data {
            Some(data) => message.with_data(data),
            None => Ok(message),
        }
    }
}

/// A server that answers any HTTP/1 request with a body of `body` octets.
///
/// # Errors
/// If the body is longer than a message may be (1 GiB less 1 MiB).
pub fn http_server(name: &str, body: u32) -> Result<Program, ProgramError> {
    let content_type = "application/octet-stream".into();
    Program::server(name).push(Instruction::HttpServe { status: 200, content_type, body }).build()
}

/// `count` exchanges of a request and an answer with given lengths: the simplest load.
///
/// # Errors
/// If a number is 0.
pub fn exchange(
    name: &str,
    request: u32,
    response: u32,
    count: u32,
) -> Result<(Program, Program), ProgramError> {
    let client = Program::client(name)
        .repeat(count, |builder| builder.send_message(filler(request)).recv(response))
        .close()
        .build()?;
    let server = Program::server(name)
        .repeat(count, |builder| builder.recv(request).send_message(filler(response)))
        .wait_peer_close()
        .build()?;
    Ok((client, server))
}

/// Settings of a client of WebSocket whose server returns each message.
#[derive(Clone, Debug, PartialEq)]
pub struct WebSocketClient {
    /// The target of the request, which begins with `/`, and the value of its Host field (`None`:
    /// the server's address).
    pub path: String,
    pub host: Option<String>,
    /// Octets of a message, and the number of messages of a connection, at least 1 each.
    pub size: u32,
    pub messages: u32,
    /// Time after each answer.
    pub pause: Nanos,
    /// Maximum octets of a frame; `None`: each message is one frame.
    pub fragment: Option<u32>,
    /// Whether messages are binary instead of texts.
    pub binary: bool,
    /// Whether a ping precedes each message.
    pub ping: bool,
    /// Whether the client sends none, and waits for the server's.
    pub listens: bool,
}

impl Default for WebSocketClient {
    fn default() -> Self {
        Self {
            path: "/".into(),
            host: None,
            size: 100,
            messages: 10,
            pause: Nanos::ZERO,
            fragment: None,
            binary: false,
            ping: false,
            listens: false,
        }
    }
}

impl WebSocketClient {
    /// # Errors
    /// A path or a host that is not text, or a number that is out of range.
    pub fn program(&self, name: &str) -> Result<Program, ProgramError> {
        let error = |error: MessageError| ProgramError {
            program: name.into(),
            instruction: 1,
            mistake: error.into(),
        };
        let target = Message::raw(self.path.as_bytes()).map_err(error)?;
        let fields = self.host.as_ref().map(|host| format!("Host: {host}\r\n").into_bytes());
        let fields = fields.as_deref().map(Message::raw).transpose().map_err(error)?;
        let message = format!("${{random:alnum:{}}}", self.size).parse().map_err(error)?;
        let send = Instruction::WsSend {
            message: MessageRef::Given(message),
            binary: self.binary,
            fragment: self.fragment,
        };
        let client = Program::client(name).push(Instruction::Websocket { target, fields });
        let close = Instruction::WsClose { code: 1000 };
        if self.listens {
            let wait = Instruction::WsRecv { messages: self.messages, within: None };
            return client.push(wait).push(close).build();
        }
        let client = client.repeat(self.messages, |mut of| {
            if self.ping {
                of = of.push(Instruction::WsPing);
            }
            of = of.push(send).push(Instruction::WsRecv { messages: 1, within: None });
            match self.pause {
                Nanos::ZERO => of,
                pause => of.push(Instruction::Delay(Delay::Fixed(pause))),
            }
        });
        client.push(close).build()
    }
}

/// A server of WebSocket that returns each message, up to 1 MiB.
///
/// # Errors
/// None: the program is right.
pub fn websocket_server(name: &str) -> Result<Program, ProgramError> {
    Program::server(name).push(Instruction::WsAccept).push(Instruction::WsEcho).build()
}

/// Settings of a client of gRPC.
#[derive(Clone, Debug, PartialEq)]
pub struct GrpcClient {
    /// Path of the method: `/package.Service/Method`.
    pub method: String,
    /// Names and values of header fields, which may have marks.
    pub metadata: Vec<(String, String)>,
    /// A message of the client, whose length is the same in all flows.
    pub message: Message,
    /// Calls per connection, at least 1, and the messages of the client in each.
    pub calls: u32,
    pub messages: u32,
    /// Messages of the server per call, or for each message of the client if they are exchanged in
    /// turn.
    pub answers: u32,
    pub lockstep: bool,
    /// Time after which a call is canceled.
    pub deadline: Option<Nanos>,
    /// The number of answers after which a call is canceled.
    pub cancel: Option<u32>,
    /// Statuses with which calls may end.
    pub expect: Statuses,
}

impl Default for GrpcClient {
    fn default() -> Self {
        Self {
            method: "/squall.Test/Call".into(),
            metadata: vec![],
            message: filler(100),
            calls: 1,
            messages: 1,
            answers: 1,
            lockstep: false,
            deadline: None,
            cancel: None,
            expect: Status::OK.into(),
        }
    }
}

impl GrpcClient {
    /// # Errors
    /// A method or metadata that are not text, a message whose length varies, or a number that is
    /// out of range.
    pub fn program(&self, name: &str) -> Result<Program, ProgramError> {
        let error = |error: MessageError| ProgramError {
            program: name.into(),
            instruction: 1,
            mistake: error.into(),
        };
        let target = Message::raw(self.method.as_bytes()).map_err(error)?;
        let fields = self.metadata.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
        let fields = Message::raw(fields.collect::<String>().as_bytes()).map_err(error)?;
        let metadata = Some(fields).filter(|_| !self.metadata.is_empty());
        let call = Instruction::GrpcCall { target, metadata, deadline: self.deadline };
        let client = repeated(Program::client(name), self.calls, |mut of| {
            of = of.push(call);
            let send = Instruction::GrpcSend(MessageRef::Given(self.message.clone()));
            // A call that is canceled at once has only its head.
            let messages = if self.cancel == Some(0) { 0 } else { self.messages };
            of = repeated(of, messages, |of| {
                let of = of.push(send);
                if self.lockstep { awaited(of, self.answers) } else { of }
            });
            of = match self.cancel {
                // Servers may answer only the whole request.
                Some(answers @ 1..) if !self.lockstep => {
                    awaited(of.push(Instruction::GrpcEnd), answers)
                }
                None if !self.lockstep => awaited(of.push(Instruction::GrpcEnd), self.answers),
                None => of.push(Instruction::GrpcEnd),
                Some(_) => of,
            };
            if self.cancel.is_some() {
                of = of.push(Instruction::GrpcCancel);
            }
            of.push(Instruction::GrpcStatus(self.expect))
        });
        client.build()
    }
}

/// Settings of a server of gRPC.
#[derive(Clone, Debug, PartialEq)]
pub struct GrpcServer {
    /// Paths of the methods that it has; none: any.
    pub methods: Vec<String>,
    /// A message of the server, whose length is the same in all flows.
    pub answer: Message,
    /// Messages per call after those of the client, or for each of them.
    pub answers: u32,
    pub lockstep: bool,
    /// Time before the answers.
    pub delay: Nanos,
    /// How calls end.
    pub status: Status,
    pub text: String,
}

impl Default for GrpcServer {
    fn default() -> Self {
        Self {
            methods: vec![],
            answer: filler(100),
            answers: 1,
            lockstep: false,
            delay: Nanos::ZERO,
            status: Status::OK,
            text: String::new(),
        }
    }
}

impl GrpcServer {
    /// # Errors
    /// An answer whose length varies, or a number that is out of range.
    pub fn program(&self, name: &str) -> Result<Program, ProgramError> {
        let (next, done) = (|| "next".to_owned(), || "done".to_owned());
        let respond = |of: ProgramBuilder| {
            let of = match self.delay {
                Nanos::ZERO => of,
                delay => of.push(Instruction::Delay(Delay::Fixed(delay))),
            };
            let send = Instruction::GrpcSend(MessageRef::Given(self.answer.clone()));
            repeated(of, self.answers, |of| of.push(send))
        };
        let mut server = Program::server(name)
            .push(Instruction::GrpcAccept { methods: self.methods.clone() })
            .push(Instruction::Label(next()))
            .push(Instruction::GrpcNext { label: done() });
        if self.lockstep {
            server = respond(server);
        }
        server = server
            .push(Instruction::Jump { label: next(), condition: None })
            .push(Instruction::Label(done()));
        if !self.lockstep {
            server = respond(server);
        }
        let (status, text) = (self.status, self.text.clone());
        server.push(Instruction::GrpcFinish { status, text }).build()
    }
}

/// Waits for messages of gRPC, of which there may be none.
fn awaited(of: ProgramBuilder, messages: u32) -> ProgramBuilder {
    if messages > 0 { of.push(Instruction::GrpcRecv(messages)) } else { of }
}

/// Repeats `body`, with a loop if that is necessary.
fn repeated(
    of: ProgramBuilder,
    times: u32,
    body: impl FnOnce(ProgramBuilder) -> ProgramBuilder,
) -> ProgramBuilder {
    match times {
        0 => of,
        1 => body(of),
        times => of.repeat(times, body),
    }
}

/// A server of WebSocket that sends a message of `size` octets each time, the same to all
/// connections of a group ([`Instruction::WsPush`]).
///
/// # Errors
/// A number that is out of range.
pub fn websocket_push_server(
    name: &str,
    size: u32,
    binary: bool,
    (every, groups): (Nanos, u32),
) -> Result<Program, ProgramError> {
    let message = format!("${{random:alnum:{size}}}").parse();
    let message = message.map_err(|error: MessageError| ProgramError {
        program: name.into(),
        instruction: 2,
        mistake: error.into(),
    })?;
    let message = MessageRef::Given(message);
    let push = Instruction::WsPush { message, binary, every, groups };
    Program::server(name).push(Instruction::WsAccept).push(push).build()
}

/// A server of WebSocket that sends each message, up to 1 MiB, to all connections of a group
/// ([`Instruction::WsFanOut`]).
///
/// # Errors
/// No groups.
pub fn websocket_fan_out_server(name: &str, groups: u32) -> Result<Program, ProgramError> {
    let fan_out = Instruction::WsFanOut { groups };
    Program::server(name).push(Instruction::WsAccept).push(fan_out).build()
}

/// A page: three requests over one connection, with pauses of 0.5 s on average.
fn http_browse() -> Application {
    let client = HttpClient {
        paths: vec![(1, "/index.html".into())],
        requests: 3,
        think: Some(Delay::Exponential(Nanos(SECOND / 2))),
        ..HttpClient::default()
    };
    http(
        "http",
        "HTTP/1.1: three GETs of 16 KiB over one connection, with think time",
        &client,
        16 << 10,
    )
}

fn http_get() -> Application {
    let client = HttpClient { close: true, ..HttpClient::default() };
    http("http-get", "HTTP/1.1: a GET of 4 KiB, then close", &client, 4 << 10)
}

fn http_post() -> Application {
    let client = HttpClient {
        paths: vec![(1, "/form".into())],
        post: Some(10_000),
        ..HttpClient::default()
    };
    http("http-post", "HTTP/1.1: a POST of 10 kB, answered with 200 octets", &client, 200)
}

/// Video in chunks: each is fetched, then played for a while.
#[must_use]
pub fn video(chunks: u32, chunk: u32, pause: Nanos) -> Application {
    let client = HttpClient {
        paths: vec![(1, "/film.mp4".into())],
        requests: chunks,
        think: Some(Delay::Fixed(pause)),
        ..HttpClient::default()
    };
    Application {
        port: 8080,
        ..http("video", "HTTP/1.1: large chunks with pauses", &client, chunk)
    }
}

fn http(name: &'static str, about: &'static str, client: &HttpClient, body: u32) -> Application {
    application_of(name, about, 80, client.program(name), http_server(name, body))
}

/// The shape of TLS: hellos, and as many octets as a certificate has; then a request of 300 octets
/// and an answer of `body` octets, in records. Nothing is encrypted.
#[must_use]
pub fn https_like(body: u32) -> Application {
    // The header of a record: type, version and length (RFC 8446 §5.1).
    let record = |kind: u8, len: u16| {
        let [high, low] = len.to_be_bytes();
        let header = Message::octets([kind, 3, 3, high, low]);
        header.then(Message { parts: vec![random(len.into())] })
    };
    const HANDSHAKE: u8 = 22;
    const CHANGE: u8 = 20;
    const DATA: u8 = 23;
    const RECORD: u32 = 16 << 10;
    let on_wire = |message: &Message| message.fixed_len().unwrap_or(0) as u32;
    let hello = record(HANDSHAKE, 512);
    let flight = record(HANDSHAKE, 90).then(record(CHANGE, 1)).then(record(DATA, 2_900));
    let finished = record(CHANGE, 1).then(record(DATA, 53));
    let request = record(DATA, 300);
    let alert = record(DATA, 19);
    let mut builder = Program::server("https-like")
        .recv(on_wire(&hello))
        .send_message(flight.clone())
        .recv(on_wire(&finished) + on_wire(&request));
    let body = body.max(1);
    let (records, rest) = (body / RECORD, body % RECORD);
    let full = record(DATA, RECORD as u16);
    if records > 0 {
        builder = builder.repeat(records, |builder| builder.send_message(full.clone()));
    }
    let mut answer = records * on_wire(&full);
    if rest > 0 {
        let last = record(DATA, rest as u16);
        answer += on_wire(&last);
        builder = builder.send_message(last);
    }
    let server = builder.recv(on_wire(&alert)).close().build();
    let client = Program::client("https-like")
        .send_message(hello)
        .recv(on_wire(&flight))
        .send_message(finished.then(request))
        .recv(answer)
        .send_message(alert)
        .close()
        .build();
    application_of(
        "https-like",
        "records in the form of TLS 1.3, a request and an answer of 32 KiB",
        443,
        client,
        server,
    )
}

/// A query for the address of a random name, and the answer. The name is derived from the query's
/// ID. The server stores only the ID, so it answers queries of other clients incorrectly.
#[must_use]
pub fn dns() -> Application {
    // Header (RFC 1035 §4.1.1), starting with the ID, then a name of 8 digits below bench.test,
    // type A, class IN.
    let question = r"\x08${variable:id:hex8}\x05bench\x04test\x00\x00\x01\x00\x01";
    let query = format!(r"${{variable:id:be16}}\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00{question}");
    // A pointer to the name at octet 12; TTL 60 s, address 198.51.100.7.
    let answer = r"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00<\x00\x04\xc63d\x07";
    let reply =
        format!(r"${{variable:id:be16}}\x85\x80\x00\x01\x00\x01\x00\x00\x00\x00{question}{answer}");
    let id = "id".to_string();
    let client = Program::udp_client("dns")
        .push(Instruction::Set { variable: id.clone(), value: Value::Random(0, 0xffff) })
        .send(&query)
        .recv_packets(1, Some(ANSWER_TIME))
        .build();
    let take = Take { variable: id, form: TakeForm::Be16, offset: 0 };
    let server = Program::udp_server("dns")
        .push(Instruction::RecvPackets { packets: 1, take: Some(take), within: None })
        .send(&reply)
        .build();
    application_of(
        "dns",
        "DNS over UDP: a question for a random name, and its answer",
        53,
        client,
        server,
    )
}

/// Sends a mail of `letter` octets.
#[must_use]
pub fn smtp(letter: u32) -> Application {
    let subject =
        "From: <a@client.test>\r\nTo: <b@squall.test>\r\nSubject: ${random:alnum:16}\r\n\r\n";
    let body = Message::repeat(
        *b"As was said on the telephone, the figures follow in the next letter.\r\n",
        letter.max(1),
    );
    let end = Message::octets(*b"\r\n.\r\n");
    let data: Message = subject.parse().unwrap_or_default();
    let client = Program::client("smtp")
        .lines([r#"recv_until "220 ""#, r#"recv_until "\r\n""#])
        .send(r"EHLO client.test\r\n")
        .lines([r#"recv_until "250 ""#, r#"recv_until "\r\n""#])
        .send(r"MAIL FROM:<a${random:digits:6}@client.test>\r\n")
        .recv_until(r"\r\n")
        .send(r"RCPT TO:<b${random:digits:6}@squall.test>\r\n")
        .recv_until(r"\r\n")
        .send(r"DATA\r\n")
        .recv_until(r"\r\n")
        .send_message(data.then(body).then(end))
        .recv_until(r"\r\n")
        .send(r"QUIT\r\n")
        .recv_until(r"\r\n")
        .close()
        .build();
    let server = Program::server("smtp")
        .send(r"220 squall.test ESMTP\r\n")
        .recv_until(r"\r\n")
        .send(r"250-squall.test\r\n250-PIPELINING\r\n250 8BITMIME\r\n")
        .recv_until(r"\r\n")
        .send(r"250 2.1.0 Ok\r\n")
        .recv_until(r"\r\n")
        .send(r"250 2.1.5 Ok\r\n")
        .recv_until(r"\r\n")
        .send(r"354 End data with <CR><LF>.<CR><LF>\r\n")
        .recv_until(r"\r\n.\r\n")
        .send(r"250 2.0.0 Ok: queued as ${random:hex:10}\r\n")
        .recv_until(r"\r\n")
        .send(r"221 2.0.0 Bye\r\n")
        .close()
        .build();
    application_of("smtp", "SMTP: one mail of 20 KiB", 25, client, server)
}

/// A call that lasts `talk`.
#[must_use]
pub fn sip(talk: Nanos) -> Application {
    // Call-ID comes first: the server must find it at a fixed offset.
    let request = |method: &str, sequence: u32, body: &str| {
        format!(
            "{method} sip:b@squall.test SIP/2.0\\r\\nCall-ID: ${{variable:call:hex8}}\\r\\nVia: \
             SIP/2.0/UDP \
             ${{client}}:${{client_port}};branch=z9hG4bK${{random:hex:10:flow:branch}}\\r\\nFrom: \
             <sip:a@client.test>;tag=${{variable:call:hex8}}\\r\\nTo: \
             <sip:b@squall.test>\\r\\nCSeq: {sequence} {method}\\r\\nMax-Forwards: \
             70\\r\\nContent-Length: {}\\r\\n\\r\\n{body}",
            body.replace("\\r\\n", "\r\n").len()
        )
    };
    let response = |status: &str, sequence: &str| {
        format!(
            "SIP/2.0 {status}\\r\\nCall-ID: ${{variable:call:hex8}}\\r\\nVia: SIP/2.0/UDP \
             ${{client}}:${{client_port}}\\r\\nFrom: \
             <sip:a@client.test>;tag=${{variable:call:hex8}}\\r\\nTo: \
             <sip:b@squall.test>;tag=b\\r\\nCSeq: {sequence}\\r\\nContent-Length: 0\\r\\n\\r\\n"
        )
    };
    let offer =
        "v=0\\r\\no=a 1 1 IN IP4 192.0.2.1\\r\\ns=-\\r\\nt=0 0\\r\\nm=audio 16384 RTP/AVP 0\\r\\n";
    let call = || "call".to_string();
    let take = |method: &str| Instruction::RecvPackets {
        packets: 1,
        take: Some(Take {
            variable: call(),
            form: TakeForm::Hex8,
            offset: format!("{method} sip:b@squall.test SIP/2.0\r\nCall-ID: ").len() as u32,
        }),
        within: Some(Nanos(60 * SECOND)),
    };
    let client = Program::udp_client("sip")
        .push(Instruction::Set { variable: call(), value: Value::Random(0, u32::MAX) })
        .send(&request("INVITE", 1, offer))
        .recv_packets(2, Some(ANSWER_TIME))
        .send(&request("ACK", 1, ""))
        .push(Instruction::Delay(Delay::Fixed(talk)))
        .send(&request("BYE", 2, ""))
        .recv_packets(1, Some(ANSWER_TIME))
        .build();
    let server = Program::udp_server("sip")
        .push(take("INVITE"))
        .send(&response("180 Ringing", "1 INVITE"))
        .push(Instruction::Delay(Delay::Uniform(Nanos(SECOND / 10), Nanos(SECOND / 2))))
        .send(&response("200 OK", "1 INVITE"))
        .push(take("ACK"))
        .push(take("BYE"))
        .send(&response("200 OK", "2 BYE"))
        .build();
    application_of("sip", "SIP over UDP: a call of 2 s", 5060, client, server)
}

/// Speech in both directions: `packets` packets of 20 ms (RFC 3551: PCMU, 160 octets).
#[must_use]
pub fn rtp(packets: u32) -> Application {
    // Version 2, PCMU, sequence number, timestamp in samples, SSRC (RFC 3550 §5.1).
    let packet = || {
        let counter = |form, step| Part::Mark(Mark::Counter { form, start: 1, step });
        let source = r"${random:octets:4:flow:source}".parse::<Message>().unwrap_or_default();
        let header = Message {
            parts: vec![
                Part::Octets([0x80, 0].into()),
                counter(NumberForm::Be16, 1),
                counter(NumberForm::Be32, 160),
            ],
        };
        header.then(source).then(Message { parts: vec![random(160)] })
    };
    let speak = |builder: ProgramBuilder| {
        builder.repeat(packets.max(1), |builder| {
            builder.send_message(packet()).push(Instruction::Delay(Delay::Fixed(Nanos(20_000_000))))
        })
    };
    let client = speak(Program::udp_client("rtp")).build();
    // The server stays open for late packets from the client, which would otherwise start another
    // flow.
    let server = speak(Program::udp_server("rtp").recv_packets(1, None)).wait_peer_close().build();
    application_of(
        "rtp",
        "RTP: 5 s of speech in both directions, 50 packets per second",
        16_384,
        client,
        server,
    )
}

/// Reads `blocks` blocks of 64 KiB of a file.
#[must_use]
pub fn smb_like(blocks: u32) -> Application {
    // As on port 445: a length of four octets, then a header of 64 octets that begins like that of
    // SMB2.
    let message = |len: u32| {
        let header = [&len.to_be_bytes()[..], b"\xfeSMB"].concat();
        Message::octets(header).then(Message { parts: vec![random(len - 4)] })
    };
    let set_up = [(106, 248), (166, 326), (320, 76), (110, 84), (240, 156)];
    let client = set_up.iter().fold(Program::client("smb-like"), |builder, &(ask, answer)| {
        builder.send_message(message(ask)).recv(answer + 4)
    });
    let server = set_up.iter().fold(Program::server("smb-like"), |builder, &(ask, answer)| {
        builder.recv(ask + 4).send_message(message(answer))
    });
    const READ: u32 = 117;
    const BLOCK: u32 = 80 + (64 << 10);
    let client = client
        .repeat(blocks.max(1), |builder| builder.send_message(message(READ)).recv(BLOCK + 4))
        .send_message(message(88))
        .recv(128 + 4)
        .close()
        .build();
    let server = server
        .repeat(blocks.max(1), |builder| builder.recv(READ + 4).send_message(message(BLOCK)))
        .recv(88 + 4)
        .send_message(message(128))
        .wait_peer_close()
        .build();
    application_of(
        "smb-like",
        "a file share: some short messages, then blocks of 64 KiB",
        445,
        client,
        server,
    )
}

/// `statements` statements, 20 ms apart on average.
#[must_use]
pub fn oracle_like(statements: u32) -> Application {
    let plan = [(230, 8), (230, 32), (180, 160), (900, 1_100)];
    chatter(
        "oracle-like",
        "a database: log on, then statements of 150 octets and rows of 1.2 kB",
        1521,
        &plan,
        &Rounds {
            count: statements,
            pause: Delay::Exponential(Nanos(20_000_000)),
            ask: 150,
            answer: 1_200,
        },
    )
}

/// `keys` keystrokes and the screen updates that follow.
#[must_use]
pub fn citrix_like(keys: u32) -> Application {
    let plan = [(6, 6), (120, 400), (700, 2_400)];
    chatter(
        "citrix-like",
        "a remote screen: keys of 30 octets and pictures of 340, ten per second",
        1494,
        &plan,
        &Rounds {
            count: keys,
            pause: Delay::Uniform(Nanos(50_000_000), Nanos(150_000_000)),
            ask: 30,
            answer: 340,
        },
    )
}

/// Requests and answers of fixed lengths, each after a pause.
struct Rounds {
    count: u32,
    pause: Delay,
    ask: u32,
    answer: u32,
}

/// Exchanges of the given lengths, then `rounds`.
fn chatter(
    name: &'static str,
    about: &'static str,
    port: u16,
    plan: &[(u32, u32)],
    rounds: &Rounds,
) -> Application {
    let Rounds { count, pause, ask, answer } = *rounds;
    let opaque = |len| Message { parts: vec![random(len)] };
    let client = plan
        .iter()
        .fold(Program::client(name), |b, &(ask, answer)| b.send_message(opaque(ask)).recv(answer));
    let server = plan
        .iter()
        .fold(Program::server(name), |b, &(ask, answer)| b.recv(ask).send_message(opaque(answer)));
    let client = client
        .repeat(count.max(1), |b| {
            b.push(Instruction::Delay(pause)).send_message(opaque(ask)).recv(answer)
        })
        .close()
        .build();
    let server = server
        .repeat(count.max(1), |b| b.recv(ask).send_message(opaque(answer)))
        .wait_peer_close()
        .build();
    application_of(name, about, port, client, server)
}

/// Octets that look encrypted, the same in all sends of a flow: drawing new ones would cost more
/// without any effect.
fn random(len: u32) -> Part {
    Part::Repeat { pattern: (*OPAQUE).into(), len }
}

/// Octets without a visible pattern. The length 61 is prime, so blocks of a power of two octets do
/// not repeat.
const OPAQUE: &[u8; 61] = b"\x9e\x17\xd3\x4a\x80\xc5\x61\xfb\x22\x5d\xb8\x0e\x73\xa9\x36\xec\x54\x8b\x01\xf7\xca\x2f\x68\x93\xdd\x40\xb6\x1c\x7e\xa1\x05\xe8\x5a\x97\x3b\xc0\x84\x6d\xf2\x19\xae\x57\x0b\xd9\x72\x35\xec\x8f\x46\xb3\xfa\x21\x9c\x65\xd0\x7d\x12\x48\xaf\xe3\x3e";

/// `len` octets of text.
#[must_use]
pub fn filler(len: u32) -> Message {
    Message::repeat(*b"squall sends octets\n", len)
}

/// # Panics
/// If a built-in program has an error; the tests build each of them.
fn application_of(
    name: &'static str,
    about: &'static str,
    port: u16,
    client: Result<Program, ProgramError>,
    server: Result<Program, ProgramError>,
) -> Application {
    let valid = |program: Result<Program, ProgramError>| match program {
        Ok(program) => program,
        Err(error) => panic!("a program that is built in is right: {error}"),
    };
    Application { name, about, client: valid(client), server: valid(server), port }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_names_exist_and_the_mix_has_100_shares() {
        for name in NAMES {
            let application = application(name).expect(name);
            assert_eq!(application.name, *name);
            assert_eq!(
                (application.client.name.as_str(), application.server.name.as_str()),
                (*name, *name)
            );
        }
        assert_eq!(application("gopher"), None);
        assert_eq!(mix().iter().map(|share| share.weight).sum::<u32>(), 100);
        assert_eq!(mix().len(), NAMES.len());
    }

    #[test]
    fn urls_are_parsed() {
        let of = |url| {
            HttpClient::from_url(url)
                .map(|(client, port)| (client.host, port, client.paths[0].1.clone()))
        };
        assert_eq!(of("http://a.test"), Some(("a.test".into(), 80, "/".into())));
        assert_eq!(
            of("http://a.test:8080/b?c=d"),
            Some(("a.test:8080".into(), 8080, "/b?c=d".into()))
        );
        assert_eq!(
            of("http://[2001:db8::1]:81/"),
            Some(("[2001:db8::1]:81".into(), 81, "/".into()))
        );
        assert_eq!(of("http://[2001:db8::1]"), Some(("[2001:db8::1]".into(), 80, "/".into())));
        assert_eq!(of("https://a.test/b"), Some(("a.test".into(), 443, "/b".into())));
        // RFC 3986 §3.1.
        assert_eq!(of("HTTP://a.test/B"), Some(("a.test".into(), 80, "/B".into())));
        assert_eq!(of("hTTps://a.test/b"), Some(("a.test".into(), 443, "/b".into())));
        for wrong in [
            "ftp://a",
            "a.test",
            "http://",
            "http://:80/",
            "http://a:b/",
            "http://a b/",
            "http://[::1/",
        ] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_request_delimits_its_body_in_one_way() {
        let request = |method: &str, headers: &[&str], body: Option<&str>| {
            let pair = |text: &&str| {
                let (name, value) = text.split_once(": ").expect("a field");
                (name.to_owned(), value.to_owned())
            };
            let client = HttpClient {
                method: Some(method.into()),
                headers: headers.iter().map(pair).collect(),
                body: body.map(|body| body.as_bytes().to_vec()),
                redirects: 1,
                ..HttpClient::default()
            };
            let lines = client.program("x").expect("right").lines();
            let sends = lines.into_iter().filter(|line| line.starts_with("send"));
            <[String; 2]>::try_from(sends.collect::<Vec<_>>()).expect("it, and what follows it")
        };
        let length = |line: &str| line.contains("Content-Length");
        // RFC 9110 §8.6.
        for method in ["POST", "PUT", "PATCH"] {
            let [line, _] = request(method, &[], None);
            assert!(line.ends_with(r#"Content-Length: 0\r\n\r\n""#), "{line}");
            let [line, _] = request(method, &["content-length: 7"], None);
            assert!(!length(&line) && line.contains("content-length: 7"), "{line}");
        }
        for method in ["GET", "HEAD", "DELETE", "OPTIONS"] {
            assert!(!length(&request(method, &[], None)[0]), "{method}");
        }
        let [line, _] = request("PUT", &[], Some("abc"));
        assert!(line.ends_with(r#"Content-Length: 3\r\n\r\nabc""#), "{line}");
        // RFC 9112 §6.2.
        for body in [None, Some("3\r\nabc\r\n0\r\n\r\n")] {
            let fields = ["transfer-encoding: chunked", "Content-Type: text/plain", "X-A: 1"];
            let [line, next] = request("POST", &fields, body);
            assert!(!length(&line) && line.contains("transfer-encoding: chunked"), "{line}");
            // A redirect is followed without a body.
            assert!(next.contains("X-A: 1") && !next.contains("chunked"), "{next}");
            assert!(!next.contains("text/plain") && !length(&next), "{next}");
        }
    }

    #[test]
    fn requests_are_distributed_over_rounds() {
        let responses = |requests, pipeline| {
            let client = HttpClient { requests, pipeline, close: true, ..HttpClient::default() };
            let program = client.program("x").expect("right");
            let mut times = 1;
            let mut sum = 0;
            for instruction in &program.instructions {
                match instruction {
                    Instruction::Loop(crate::Times::Count(count)) => times = *count,
                    Instruction::End => times = 1,
                    Instruction::HttpResponse { .. } => sum += times,
                    _ => {}
                }
            }
            sum
        };
        for (requests, pipeline) in
            [(1, 1), (1, 4), (5, 1), (5, 2), (8, 4), (9, 4), (10, 4), (100, 10)]
        {
            assert_eq!(responses(requests, pipeline), requests, "{requests} by {pipeline}");
        }
    }
}
