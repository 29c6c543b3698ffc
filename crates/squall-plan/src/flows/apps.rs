//! Built-in applications and their options, from the text of a profile.

use std::fmt::Write;

use squall_apps::{
    Data, Instruction, Message, Program, ProgramError,
    builtin::{self, Application, GrpcClient, GrpcServer, HttpClient, WebSocketClient},
    grpc::Status,
    websocket::MAX_MESSAGE,
};
use squall_profile::{ErrorCollector, Located};
use squall_units::{Cannot, Nanos, parse_octets};

use super::{
    Ends,
    grpc::{Methods, encode, path_of},
    layers::{LayerInfo, LayerOption, layers},
};
use crate::Assets;

/// An option of a built-in application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppOption {
    pub name: &'static str,
    /// The value that applies if the option is absent; `None`: absent is not a value.
    pub default: Option<&'static str>,
    /// One-line description, with the form of the value.
    pub about: &'static str,
}

const fn option(name: &'static str, default: &'static str, about: &'static str) -> AppOption {
    AppOption { name, default: Some(default), about }
}

const fn without_default(name: &'static str, about: &'static str) -> AppOption {
    AppOption { name, default: None, about }
}

/// Each application's name and its options.
const OPTIONS: [(&str, &[AppOption]); 16] = [
    (
        "http",
        &[
            option(
                "url",
                "http://squall/",
                "what to request; several with weights: 9:http://HOST/PATH",
            ),
            without_default("method", "request method; GET, or POST with a body"),
            without_default("header", "NAME: VALUE, replaces the field of that name"),
            without_default("content", "text of the request body"),
            without_default("content_file", "file whose octets are the request body"),
            without_default("post", "length of a generated request body: 10 kB"),
            option("cookies", "false", "return the cookies that servers set: true or false"),
            option("follow", "0", "redirects to follow per request, up to 20"),
            without_default(
                "check",
                "fail unless: status 200, length 512, sha256 HEX, regex \"TEXT\"",
            ),
            without_default(
                "extract",
                "NAME = json PATH, regex or header: for ${value:NAME} later",
            ),
            option("requests", "1", "requests per connection"),
            option("pipeline", "1", "requests to send before the first answer is awaited"),
            without_default(
                "think",
                "pause between requests: 10 ms, uniform 1 ms 5 ms, exponential 10 ms",
            ),
            option(
                "close",
                "false",
                "ask the server to close after the last request: true or false",
            ),
            without_default("within", "time limit for an answer: 2 s"),
            option("body", "100", "length of the server's answer: 100, 4 KiB"),
        ],
    ),
    ("http-get", &[]),
    ("http-post", &[]),
    (
        "exchange",
        &[
            option("request", "100", "length of a request: 100, 4 KiB"),
            option("response", "100", "length of a response: 100, 4 KiB"),
            option("count", "1", "requests per connection"),
        ],
    ),
    (
        "websocket",
        &[
            option("path", "/", "target of the request: /chat"),
            without_default("host", "value of the Host field; the server's address"),
            option("size", "100", "length of a message: 100, 4 KiB"),
            option("messages", "10", "messages per connection, each sent after an answer"),
            without_default(
                "push",
                "the server sends the messages, one each time: 100 ms; clients wait for them",
            ),
            option(
                "fan_out",
                "false",
                "the server sends each message to all connections of a group: true or false",
            ),
            option("groups", "1", "with push or fan_out: groups of connections"),
            option("pause", "0", "time after each answer: 100 ms"),
            without_default("fragment", "longest frame of a message: 1000"),
            option("binary", "false", "binary messages in place of texts: true or false"),
            option("ping", "false", "a ping before each message: true or false"),
        ],
    ),
    (
        "grpc",
        &[
            without_default(
                "method",
                "/package.Service/Method; /squall.Test/Call, or that of proto",
            ),
            without_default("proto", "file with the method: .proto, or a descriptor set of protoc"),
            option("calls", "1", "calls per connection"),
            option("messages", "1", "messages of the client in a call"),
            without_default("answers", "messages of the server in a call; 1, with an error 0"),
            option(
                "lockstep",
                "false",
                "answers for each message, before the next is sent: true or false",
            ),
            option("size", "100", "length of a message: 100, 4 KiB"),
            without_default("json", "a message as JSON, which proto encodes"),
            without_default("file", "file whose octets are a message"),
            option("answer_size", "100", "length of an answer: 100, 4 KiB"),
            without_default("answer_json", "an answer as JSON, which proto encodes"),
            without_default("answer_file", "file whose octets are an answer"),
            without_default("metadata", "NAME: VALUE, sent with each call"),
            without_default("host", "value of :authority; the server's address"),
            without_default("deadline", "time after which a call is canceled: 500 ms"),
            without_default("cancel", "answers after which the client cancels: 0, 3"),
            option("delay", "0", "time before the server's answers: 100 ms"),
            option("status", "OK", "status of the server: OK, NOT_FOUND"),
            without_default("status_text", "text with the status of the server"),
            without_default(
                "expect",
                "statuses that are no failure: any, or names; that of status",
            ),
        ],
    ),
    ("https-like", &[option("body", "32 KiB", "length of the answer")]),
    ("dns", &[]),
    ("smtp", &[option("letter", "20 KiB", "length of the mail")]),
    ("sip", &[option("talk", "2 s", "time from the answer to the end of the call")]),
    ("rtp", &[option("packets", "250", "packets in each direction, 50 per second")]),
    ("smb-like", &[option("blocks", "8", "blocks of 64 KiB")]),
    ("oracle-like", &[option("statements", "20", "statements per connection")]),
    ("citrix-like", &[option("keys", "50", "keys and pictures, ten per second")]),
    (
        "video",
        &[
            option("chunks", "4", "chunks per connection"),
            option("chunk", "1 MiB", "length of a chunk"),
            option("pause", "2 s", "time between two chunks"),
        ],
    ),
    ("browse", &[]),
];

/// Options that only servers use; clients use the others. For applications that are not listed,
/// both ends use all options.
const OF_SERVERS: [(&str, &[&str]); 1] = [("http", &["body"])];

/// Options that may be given several times.
const LISTS: [&str; 5] = ["url", "header", "check", "extract", "metadata"];

/// A built-in application.
pub struct ApplicationInfo {
    pub name: &'static str,
    /// One-line description.
    pub about: &'static str,
    /// The options that a template may set for this application.
    pub options: &'static [AppOption],
    /// Options that only servers use; clients use the others. Empty: both ends use every option.
    pub of_servers: &'static [&'static str],
}

/// The built-in applications, in display order.
pub fn catalog() -> Vec<ApplicationInfo> {
    let info = |&(name, options): &(&'static str, &'static [AppOption])| {
        let about = match name {
            "http" => "HTTP/1.1: GETs or POSTs over a connection, answered with a body",
            "exchange" => "requests and answers of given lengths, repeated",
            "websocket" => {
                "WebSocket: messages over a connection, returned by the server, or its own"
            }
            "grpc" => "gRPC over HTTP/2: calls of one message, or streams of them, each way",
            name => builtin::application(library_name(name)).map_or("", |app| app.about),
        };
        let of_servers = OF_SERVERS.iter().find(|(of, _)| *of == name).map_or(&[][..], |of| of.1);
        ApplicationInfo { name, about, options, of_servers }
    };
    let mix = ApplicationInfo {
        name: "mix",
        about: "all of these, in the shares of an office, as parts of one rate",
        options: &[],
        of_servers: &[],
    };
    OPTIONS.iter().map(info).chain([mix]).collect()
}

/// The built-in applications and the settings around them, with their options and defaults, one per
/// line.
pub fn applications() -> String {
    let mut text = String::new();
    for ApplicationInfo { name, about, options, .. } in catalog() {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name:<12} {about}");
        for AppOption { name, default, about } in options {
            let default = default.map_or(String::new(), |value| format!(" [default: {value}]"));
            let _ = writeln!(text, "    {name:<14} {about}{default}");
        }
    }
    for LayerInfo { key, about, options } in layers() {
        let _ = writeln!(text, "{key:<14} {about}");
        for LayerOption { name, default, about, .. } in options {
            let default = default.map_or(String::new(), |value| format!(" [default: {value}]"));
            let _ = writeln!(text, "    {name:<20} {about}{default}");
        }
    }
    text
}

/// The name of an application in the library, whose `http` also has the options of `browse`.
fn library_name(name: &str) -> &str {
    if name == "browse" { "http" } else { name }
}

/// The applications with this name, each with its share. `streams`: the number of streams of HTTP/2
/// that a client has open at a time, if it uses HTTP/2.
pub fn ends(
    app: &Located,
    options: &[(String, Located)],
    (data, assets): (Option<&Data>, &dyn Assets),
    streams: Option<u16>,
    mistakes: &mut ErrorCollector<'_>,
) -> Option<Vec<(u32, String, Ends)>> {
    if app.text == "mix" {
        if let Some((name, located)) = options.first() {
            mistakes.note(
                located,
                &format!("options.{name}: a mix has no options"),
                "try one template per application",
            );
        }
        let ends = |share: builtin::Share| {
            (share.weight, share.application.name.to_owned(), of(share.application))
        };
        return Some(builtin::mix().into_iter().map(ends).collect());
    }
    let Some((_, known)) = OPTIONS.iter().find(|(name, _)| *name == app.text) else {
        let hint =
            squall_units::suggest(&app.text, OPTIONS.iter().map(|(name, _)| *name).chain(["mix"]));
        mistakes.note(app, &format!("app = {:?} is not a built-in application", app.text), &hint);
        return None;
    };
    let mut right = true;
    for (name, located) in
        options.iter().filter(|(name, _)| !known.iter().any(|option| option.name == name))
    {
        let hint = if known.is_empty() {
            "this application has no options".into()
        } else {
            squall_units::suggest(name, known.iter().map(|option| option.name))
        };
        mistakes.note(
            located,
            &format!("options.{name} is not an option of {:?}", app.text),
            &hint,
        );
        right = false;
    }
    for (i, (name, located)) in options.iter().enumerate() {
        let again = options[..i].iter().any(|(known, _)| known == name);
        if again && !LISTS.contains(&name.as_str()) {
            let hint = format!("options that can be lists: {}", LISTS.join(", "));
            mistakes.note(
                located,
                &format!("options.{name} has several values, expected one"),
                &hint,
            );
            right = false;
        }
    }
    let before = mistakes.len();
    let given = Given { options, data, assets, streams };
    let made = make(&app.text, &given, mistakes);
    let made = match made {
        Ok(made) => made,
        Err(error) => {
            mistakes.report(app, &error);
            None
        }
    };
    (right && mistakes.len() == before).then_some(())?;
    Some(vec![(1, app.text.clone(), made?)])
}

fn of(app: Application) -> Ends {
    Ends { client: app.client, server: app.server, port: app.port }
}

fn make(
    name: &str,
    given: &Given<'_>,
    mistakes: &mut ErrorCollector<'_>,
) -> Result<Option<Ends>, ProgramError> {
    Ok(Some(match name {
        "http" => return http(given, mistakes),
        "exchange" => {
            let (request, response) =
                (given.octets("request", 100, mistakes), given.octets("response", 100, mistakes));
            let (client, server) =
                builtin::exchange(name, request, response, given.number("count", 1, mistakes))?;
            Ends { client, server, port: 7 }
        }
        "websocket" => {
            let mut client = WebSocketClient {
                host: given.of("host").map(|host| host.text.clone()),
                size: given.octets("size", 100, mistakes),
                messages: given.number("messages", 10, mistakes),
                pause: given.time("pause", Nanos::ZERO, mistakes),
                fragment: given.of("fragment").map(|_| given.octets("fragment", 1, mistakes)),
                ..WebSocketClient::default()
            };
            if let Some(path) = given.of("path") {
                client.path.clone_from(&path.text);
            }
            for (option, to) in [("binary", &mut client.binary), ("ping", &mut client.ping)] {
                if let Some(located) = given.of(option) {
                    mistakes.truth(located, to);
                }
            }
            let groups = given.number("groups", 1, mistakes);
            let mut fan_out = false;
            if let Some(located) = given.of("fan_out") {
                mistakes.truth(located, &mut fan_out);
            }
            let server = match given.of("push") {
                Some(push) => {
                    if fan_out {
                        let text = "options.push: a server with fan_out sends no own messages";
                        mistakes.note(push, text, "try one of both");
                    }
                    for option in ["pause", "fragment", "ping"] {
                        if let Some(located) = given.of(option) {
                            let text = format!("options.{option} has no effect with push");
                            mistakes.note(located, &text, "clients only wait: try leaving it out");
                        }
                    }
                    client.listens = true;
                    let every = given.time("push", Nanos::ZERO, mistakes);
                    let (size, binary) = (client.size, client.binary);
                    builtin::websocket_push_server(name, size, binary, (every, groups))?
                }
                None if fan_out => builtin::websocket_fan_out_server(name, groups)?,
                None => {
                    if let Some(groups) = given.of("groups").filter(|_| groups > 1) {
                        let text = "options.groups has no effect without push or fan_out";
                        mistakes.note(groups, text, "try push = \"100 ms\", or fan_out = true");
                    }
                    builtin::websocket_server(name)?
                }
            };
            Ends { client: client.program(name)?, server, port: 80 }
        }
        "grpc" => return grpc(given, mistakes),
        "https-like" => of(builtin::https_like(given.octets("body", 32 << 10, mistakes))),
        "smtp" => of(builtin::smtp(given.octets("letter", 20 << 10, mistakes))),
        "sip" => of(builtin::sip(given.time("talk", Nanos(2 * Nanos::SECOND.0), mistakes))),
        "rtp" => of(builtin::rtp(given.number("packets", 250, mistakes))),
        "smb-like" => of(builtin::smb_like(given.number("blocks", 8, mistakes))),
        "oracle-like" => of(builtin::oracle_like(given.number("statements", 20, mistakes))),
        "citrix-like" => of(builtin::citrix_like(given.number("keys", 50, mistakes))),
        "video" => {
            let (chunks, chunk) =
                (given.number("chunks", 4, mistakes), given.octets("chunk", 1 << 20, mistakes));
            of(builtin::video(
                chunks,
                chunk,
                given.time("pause", Nanos(2 * Nanos::SECOND.0), mistakes),
            ))
        }
        name => return Ok(builtin::application(library_name(name)).map(of)),
    }))
}

fn http(
    given: &Given<'_>,
    mistakes: &mut ErrorCollector<'_>,
) -> Result<Option<Ends>, ProgramError> {
    let (mut client, mut port) = (HttpClient::default(), 80);
    let mut first: Option<(HttpClient, u16)> = None;
    for located in given.all("url") {
        let Some((weight, found, of)) = weighted_url(&located.text) else {
            let message = format!("{:?} is not a URL", located.text);
            let hint = "expected http://HOST[:PORT]/PATH or https://HOST[:PORT]/PATH; with \
                        several, each can have a weight as prefix: 3:http://HOST/PATH";
            mistakes.note(located, &message, hint);
            continue;
        };
        match &mut first {
            None => {
                let paths = found.paths.iter().map(|(_, path)| (weight, path.clone())).collect();
                first = Some((HttpClient { paths, ..found }, of));
            }
            Some((one, port))
                if (&one.host, one.secure, *port) == (&found.host, found.secure, of) =>
            {
                one.paths.extend(found.paths.into_iter().map(|(_, path)| (weight, path)));
            }
            Some((one, _)) => {
                let message = format!(
                    "{:?} differs from the first URL in scheme, host or port",
                    located.text
                );
                let hint = format!("expected {}; try one template per server", one.host);
                mistakes.note(located, &message, &hint);
            }
        }
    }
    if let Some(found) = first {
        (client, port) = found;
    }
    if let Some(located) = given.of("method") {
        let token =
            |octet: u8| octet.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&octet);
        match !located.text.is_empty() && located.text.bytes().all(token) {
            true => client.method = Some(located.text.clone()),
            false => mistakes.note(
                located,
                &format!("{:?} is not an HTTP method", located.text),
                "try \"PUT\"",
            ),
        }
    }
    for located in given.all("header") {
        match header(&located.text) {
            Some((name, value)) => client.headers.push((name.into(), value.into())),
            None => {
                let message = format!("{:?} is not a header field", located.text);
                mistakes.note(located, &message, "expected \"Name: value\": try \"X-Trace: 1\"");
            }
        }
    }
    let field = |field: &str| {
        given.all("header").find(|located| {
            header(&located.text).is_some_and(|(name, _)| name.eq_ignore_ascii_case(field))
        })
    };
    if let (Some(_), Some(located)) = (field("Transfer-Encoding"), field("Content-Length")) {
        let message = "a request has both Transfer-Encoding and Content-Length";
        let hint = "expected one of them (RFC 9112, 6.2); try a flow program, whose `send` takes any \
                    octets";
        mistakes.note(located, message, hint);
    }
    let bodies = ["content", "content_file", "post"].map(|name| given.of(name));
    if let [Some(_), Some(located), _]
    | [Some(_), None, Some(located)]
    | [None, Some(_), Some(located)] = bodies
    {
        let hint = "expected one of content, content_file and post";
        mistakes.note(located, "options have several request bodies", hint);
    }
    client.post = given.of("post").map(|_| given.octets("post", 0, mistakes));
    client.body = given.of("content").map(|located| located.text.clone().into_bytes());
    if let Some(located) = given.of("content_file") {
        match given.assets.file(&located.text) {
            Ok(octets) => client.body = Some(octets),
            Err(error) => {
                mistakes.note(
                    located,
                    &Cannot::read(&located.text, &error).to_string(),
                    "try the path of a file to send",
                );
            }
        }
    }
    client.data = given.data.cloned();
    if let Some(located) = given.of("cookies") {
        mistakes.truth(located, &mut client.cookies);
    }
    if let Some(located) = given.of("follow") {
        // A redirect expands to several instructions per request.
        match located.text.parse() {
            Ok(redirects @ 0..=20) => client.redirects = redirects,
            _ => {
                let message = format!("{:?} is not a number of redirects", located.text);
                mistakes.note(located, &message, "expected 0 to 20: try 5");
            }
        }
    }
    for (name, hint) in [
        ("check", r#"try "status 200", "length 512", "sha256 HEX" or "regex \"welcome\"""#),
        (
            "extract",
            r#"try "token = json data.token", "id = regex \"id=(\d+)\"" or "tag = header ETag""#,
        ),
    ] {
        for located in given.all(name) {
            match format!("{name} {}", located.text).parse() {
                Ok(Instruction::Check(check)) => client.checks.push(check),
                Ok(Instruction::Extract { name, from }) => client.extracts.push((name, from)),
                _ => mistakes.note(
                    located,
                    &format!("options.{name}: {:?} is not valid", located.text),
                    hint,
                ),
            }
        }
    }
    client.requests = given.number("requests", 1, mistakes);
    client.pipeline = given.number("pipeline", 1, mistakes);
    for (name, asked, needed) in [
        ("pipeline", client.pipeline, client.pipeline),
        ("think", u32::from(given.of("think").is_some()) * 2, 2),
    ] {
        if let Some(located) = given.of(name).filter(|_| asked > client.requests) {
            let message =
                format!("options.{name} has no effect with requests = {}", client.requests);
            mistakes.note(located, &message, &format!("try requests = {needed} or more"));
        }
    }
    if let Some(located) =
        given.of("follow").filter(|_| client.redirects > 0 && client.pipeline > 1)
    {
        // Responses arrive in the order of the requests, so the response to a redirected request
        // comes after all others.
        let message = "a redirection cannot be followed while other answers are on their way";
        mistakes.note(located, message, "try pipeline = 1");
    }
    if let Some(located) = given.of("think") {
        match format!("delay {}", located.text).parse() {
            Ok(Instruction::Delay(delay)) => client.think = Some(delay),
            _ => {
                let message = format!("{:?} is not a delay", located.text);
                mistakes.note(
                    located,
                    &message,
                    "try \"10 ms\", \"uniform 1 ms 5 ms\" or \"exponential 10 ms\"",
                );
            }
        }
    }
    client.within = given.of("within").map(|_| given.time("within", Nanos::ZERO, mistakes));
    if let Some(located) = given.of("close") {
        mistakes.truth(located, &mut client.close);
    }
    if let Some(streams) = given.streams {
        for_streams(&mut client, streams, given, mistakes);
    }
    let body = given.octets("body", 100, mistakes);
    let client: Program = client.program("http")?;
    Ok(Some(Ends { client, server: builtin::http_server("http", body)?, port }))
}

/// Gives each of the streams its share of a connection's requests.
fn for_streams(
    client: &mut HttpClient,
    streams: u16,
    given: &Given<'_>,
    mistakes: &mut ErrorCollector<'_>,
) {
    let of_http1 = [
        ("pipeline", client.pipeline > 1, "its streams carry several requests at a time"),
        ("close", client.close, "its connections end after the last answer"),
    ];
    for (name, wanted, why) in of_http1 {
        if let Some(located) = given.of(name).filter(|_| wanted) {
            let message = format!("options.{name} has no effect with http = \"2\": {why}");
            mistakes.note(located, &message, "try leaving it out");
        }
    }
    // By default, each stream has one.
    if let Some(place) = given.of("requests") {
        divide(&mut client.requests, "requests", streams, place, mistakes);
    }
}

/// Divides the requests or calls of a connection among its streams.
fn divide(
    all: &mut u32,
    what: &str,
    streams: u16,
    place: &Located,
    mistakes: &mut ErrorCollector<'_>,
) {
    let streams = u32::from(streams);
    if all.is_multiple_of(streams) {
        *all /= streams;
        return;
    }
    let most = all.div_ceil(streams).saturating_mul(streams);
    let message = format!("{all} {what} cannot be divided among {streams} streams");
    let hint = format!("try {what} = {most}, or fewer streams");
    mistakes.note(place, &message, &hint);
}

/// Clients and servers of gRPC.
fn grpc(
    given: &Given<'_>,
    mistakes: &mut ErrorCollector<'_>,
) -> Result<Option<Ends>, ProgramError> {
    let (mut client, mut server) = (GrpcClient::default(), GrpcServer::default());
    if let Some(located) = given.of("lockstep") {
        mistakes.truth(located, &mut client.lockstep);
        server.lockstep = client.lockstep;
    }
    if let Some(located) = given.of("status") {
        match located.text.parse() {
            Ok(status) => server.status = status,
            Err(()) => {
                let hint = squall_units::suggest(&located.text, Status::NAMES);
                mistakes.note(located, &format!("{:?} is not a status", located.text), &hint);
            }
        }
    }
    server.text = given.of("status_text").map_or_else(String::new, |text| text.text.clone());
    server.delay = given.time("delay", Nanos::ZERO, mistakes);
    client.calls = given.number("calls", 1, mistakes);
    if let (Some(streams), Some(place)) = (given.streams, given.of("calls")) {
        divide(&mut client.calls, "calls", streams, place, mistakes);
    }
    client.messages = given.count("messages", 1, mistakes);
    let answers = u32::from(server.status == Status::OK);
    server.answers = given.count("answers", answers, mistakes);
    client.answers = server.answers;
    client.deadline = given.of("deadline").map(|_| given.time("deadline", Nanos::ZERO, mistakes));
    client.cancel = given.of("cancel").map(|_| given.count("cancel", 0, mistakes));
    let all = client.messages.saturating_mul(client.answers);
    if let (Some(place), Some(1..)) = (given.of("cancel"), client.cancel)
        && client.lockstep
        && client.cancel != Some(all)
    {
        let text = "options.cancel: with lockstep, a call is canceled after its last answer";
        mistakes.note(place, text, &format!("try {all}, or fewer messages"));
    }
    let usual = if client.cancel.is_some() { Status::CANCELLED } else { server.status };
    client.expect = usual.into();
    if let Some(located) = given.of("expect") {
        match located.text.parse() {
            Ok(expect) => client.expect = expect,
            Err(()) => {
                let text = format!("{:?} are not statuses", located.text);
                mistakes.note(located, &text, "expected any, or names: try \"OK NOT_FOUND\"");
            }
        }
    }
    if let Some(located) = given.of("host") {
        client.metadata.push(("Host".into(), located.text.clone()));
    }
    for located in given.all("metadata") {
        match header(&located.text) {
            Some((name, value)) => client.metadata.push((name.into(), value.into())),
            None => {
                let message = format!("{:?} is not metadata", located.text);
                mistakes.note(located, &message, "expected \"name: value\": try \"x-id: 1\"");
            }
        }
    }
    if let Some(located) = given.of("method") {
        client.method.clone_from(&located.text);
        let is_path = located.text.starts_with('/')
            && located.text.bytes().all(|octet| octet.is_ascii_graphic());
        if !is_path {
            let message = format!("{:?} is not a method", located.text);
            mistakes.note(located, &message, "expected /package.Service/Method");
        }
    }
    let method = described(given, &mut client, &mut server, mistakes);
    let (asks, answers) = match &method {
        Some(method) => (Some(method.input()), Some(method.output())),
        None => (None, None),
    };
    let of_client = ["size", "json", "file"];
    let of_server = ["answer_size", "answer_json", "answer_file"];
    client.message = grpc_message(given, of_client, asks, mistakes);
    server.answer = grpc_message(given, of_server, answers, mistakes);
    let (client, server) = (client.program("grpc")?, server.program("grpc")?);
    Ok(Some(Ends { client, server, port: 50_051 }))
}

/// The method of the calls, if a file describes it. The server has all of the file's methods.
fn described(
    given: &Given<'_>,
    client: &mut GrpcClient,
    server: &mut GrpcServer,
    mistakes: &mut ErrorCollector<'_>,
) -> Option<prost_reflect::MethodDescriptor> {
    let file = given.of("proto")?;
    let methods = match Methods::read(&file.text, given.assets) {
        Ok(methods) => methods,
        Err(error) => {
            mistakes.note(file, &error, "expected a .proto file, or a descriptor set");
            return None;
        }
    };
    server.methods = methods.paths().collect();
    let place = given.of("method");
    let Some(method) = methods.find(place.map(|place| place.text.as_str())) else {
        let hint = format!("the methods of {}: {}", file.text, server.methods.join(", "));
        let text = match place {
            Some(place) => format!("{} has no method {:?}", file.text, place.text),
            None => format!("{} has several methods; expected options.method", file.text),
        };
        mistakes.note(place.unwrap_or(file), &text, &hint);
        return None;
    };
    client.method = path_of(method);
    for (name, streams, messages) in [
        ("messages", method.is_client_streaming(), client.messages),
        ("answers", method.is_server_streaming(), client.answers),
    ] {
        if let Some(located) = given.of(name).filter(|_| !streams && messages > 1) {
            let text = format!("options.{name}: {} has only one", client.method);
            mistakes.note(located, &text, "try 1, or a method with a stream in that direction");
        }
    }
    Some(method.clone())
}

/// A message: its length, JSON or a file, which these options give.
fn grpc_message(
    given: &Given<'_>,
    names: [&'static str; 3],
    kind: Option<prost_reflect::MessageDescriptor>,
    mistakes: &mut ErrorCollector<'_>,
) -> Message {
    let [size, json, file] = names.map(|name| given.of(name));
    let several: Vec<&Located> = [size, json, file].into_iter().flatten().collect();
    if let [_, located, ..] = several[..] {
        let hint = format!("expected one of {}", names.join(", "));
        mistakes.note(located, "options give a message several times", &hint);
    }
    if let Some(located) = file {
        return match given.assets.file(&located.text) {
            Ok(octets) => Message::octets(octets),
            Err(error) => {
                let cannot = Cannot::read(&located.text, &error).to_string();
                mistakes.note(located, &cannot, "try the path of a file to send");
                Message::default()
            }
        };
    }
    match (json, kind) {
        (Some(located), Some(kind)) => {
            let name = kind.full_name().to_owned();
            match encode(kind, &located.text) {
                Ok(octets) => return Message::octets(octets),
                Err(error) => {
                    let text = format!("options.{} is not a {name}: {error}", names[1]);
                    mistakes.note(located, &text, "expected its fields: {\"name\": \"value\"}");
                }
            }
        }
        (Some(located), None) if given.of("proto").is_none() => {
            let text = format!("options.{} needs a description of the message", names[1]);
            mistakes.note(located, &text, "try proto = \"service.proto\"");
        }
        // Octets of a length would not be a message of the method.
        (None, Some(_)) if size.is_none() => return Message::default(),
        _ => {}
    }
    builtin::filler(given.octets(names[0], 100, mistakes))
}

/// A URL with an optional weight before it: `3:http://host/path`. No scheme begins with a digit
/// (RFC 3986 §3.1).
fn weighted_url(text: &str) -> Option<(u32, HttpClient, u16)> {
    let (weight, url) = match text.split_once(':') {
        Some((weight, url)) if weight.starts_with(|c: char| c.is_ascii_digit()) => {
            (weight.parse().ok().filter(|weight| (1..=1_000_000).contains(weight))?, url)
        }
        _ => (1, text),
    };
    let (client, port) = HttpClient::from_url(url)?;
    Some((weight, client, port))
}

/// Name and value of a header field (RFC 9110 §5).
fn header(text: &str) -> Option<(&str, &str)> {
    let (name, value) = text.split_once(':')?;
    let (name, value) = (name.trim(), value.trim());
    let token = |octet: u8| octet.is_ascii_graphic() && !b"\"(),/:;<=>?@[\\]{}".contains(&octet);
    let right = !name.is_empty()
        && name.bytes().all(token)
        && value.bytes().all(|octet| octet == b'\t' || (octet >= b' ' && octet != 0x7f));
    right.then_some((name, value))
}

/// Reports options whose flows Squall's own server would refuse.
pub(super) fn check_server(
    app: &Located,
    options: &[(String, Located)],
    mistakes: &mut ErrorCollector<'_>,
) {
    let too_long = |text: &str| parse_octets(text).is_ok_and(|octets| octets > MAX_MESSAGE);
    let sizes = options.iter().filter(|(name, size)| name == "size" && too_long(&size.text));
    for (_, size) in sizes.filter(|_| app.text == "websocket") {
        let text = format!("size = {:?} is more than Squall's servers return", size.text);
        let hint = "expected at most 1 MiB; try servers of your own and play = \"clients\"";
        mistakes.note(size, &text, hint);
    }
}

/// The options given for an application.
struct Given<'a> {
    options: &'a [(String, Located)],
    data: Option<&'a Data>,
    assets: &'a dyn Assets,
    /// The number of streams of HTTP/2 that a client has open at a time, if it uses HTTP/2.
    streams: Option<u16>,
}

impl<'a> Given<'a> {
    /// All values of an option that may be given several times.
    fn all(&self, name: &'static str) -> impl Iterator<Item = &'a Located> + use<'a> {
        let options = self.options;
        options.iter().filter(move |(option, _)| option == name).map(|(_, located)| located)
    }

    fn of(&self, name: &str) -> Option<&Located> {
        self.options.iter().find(|(option, _)| option == name).map(|(_, located)| located)
    }

    fn octets(&self, name: &str, default: u32, mistakes: &mut ErrorCollector<'_>) -> u32 {
        let Some(located) = self.of(name) else { return default };
        let octets = parse_octets(&located.text).ok().and_then(|n| u32::try_from(n).ok());
        octets.unwrap_or_else(|| {
            mistakes.note(
                located,
                &format!("{:?} is not a number of octets", located.text),
                "try 100 or \"32 KiB\"",
            );
            default
        })
    }

    fn number(&self, name: &str, default: u32, mistakes: &mut ErrorCollector<'_>) -> u32 {
        let Some(located) = self.of(name) else { return default };
        let number = located.text.parse().ok().filter(|n| *n > 0);
        number.unwrap_or_else(|| {
            mistakes.note(
                located,
                &format!("{:?} is not a number above 0", located.text),
                "try 10",
            );
            default
        })
    }

    /// A number that may be 0.
    fn count(&self, name: &str, default: u32, mistakes: &mut ErrorCollector<'_>) -> u32 {
        let Some(located) = self.of(name) else { return default };
        located.text.parse().unwrap_or_else(|_| {
            let text = format!("options.{name}: {:?} is not a number", located.text);
            mistakes.note(located, &text, "try 10");
            default
        })
    }

    fn time(&self, name: &str, default: Nanos, mistakes: &mut ErrorCollector<'_>) -> Nanos {
        self.of(name)
            .and_then(|located| mistakes.parsed(located, "a time", "\"2 s\""))
            .unwrap_or(default)
    }
}

#[cfg(test)]
mod tests {
    use squall_profile::Profile;

    use super::*;
    use crate::test_files::TestFiles;

    #[test]
    fn each_application_is_built_with_its_defaults() {
        let profile = Profile::default();
        let mut mistakes = ErrorCollector::of(&profile);
        for (name, _) in OPTIONS {
            assert!(
                ends(&Located::from(name), &[], (None, &TestFiles(&[])), None, &mut mistakes)
                    .is_some(),
                "{name}"
            );
        }
        let mix = ends(&Located::from("mix"), &[], (None, &TestFiles(&[])), None, &mut mistakes);
        let shares: u32 = mix.expect("a mix").iter().map(|end| end.0).sum();
        assert_eq!((shares, mistakes.len()), (100, 0));
        // Every program in the library has an entry here.
        for name in builtin::NAMES {
            assert!(OPTIONS.iter().any(|(option, _)| library_name(option) == *name), "{name}");
        }
    }

    #[test]
    fn messages_that_the_server_of_websocket_would_refuse_are_reported() {
        let profile = Profile::default();
        for (app, size, expected) in
            [("websocket", "1 MiB", 0), ("websocket", "1048577", 1), ("http", "2 MiB", 0)]
        {
            let mut mistakes = ErrorCollector::of(&profile);
            let options = [("size".to_owned(), Located::from(size))];
            check_server(&Located::from(app), &options, &mut mistakes);
            assert_eq!(mistakes.len(), expected, "{app} {size}");
        }
    }

    /// The ends of an `http` flow with these options, or the errors.
    fn http(options: &[(&str, &str)], data: Option<&Data>) -> Result<Ends, String> {
        http_over(options, data, None)
    }

    /// The same, with this number of streams of HTTP/2.
    fn http_over(
        options: &[(&str, &str)],
        data: Option<&Data>,
        streams: Option<u16>,
    ) -> Result<Ends, String> {
        let profile = Profile::default();
        let mut mistakes = ErrorCollector::of(&profile);
        let located = |(name, text): &(&str, &str)| ((*name).to_owned(), Located::from(*text));
        let options: Vec<_> = options.iter().map(located).collect();
        let files = TestFiles(&[]);
        let made = ends(&Located::from("http"), &options, (data, &files), streams, &mut mistakes);
        mistakes.check().map_err(|error| error.to_string())?;
        Ok(made.expect("nothing is wrong").remove(0).2)
    }

    #[test]
    fn urls_have_weights_and_one_server() {
        let ends = http(
            &[
                ("url", "http://a.test:81/a"),
                ("url", "3:http://a.test:81/b?c"),
                ("url", "http://a.test:81"),
            ],
            None,
        );
        let ends = ends.expect("right");
        let lines = ends.client.lines().join("\n");
        assert_eq!(ends.port, 81);
        assert!(lines.contains("set url random 0 4") && lines.contains("if url >= 4"), "{lines}");
        for part in ["GET /a HTTP", "GET /b?c HTTP", "GET / HTTP", "Host: a.test:81"] {
            assert!(lines.contains(part), "{lines}");
        }
        for other in ["https://a.test:81/", "http://b.test:81/", "http://a.test/"] {
            let error = http(&[("url", "http://a.test:81/"), ("url", other)], None).err();
            let error = error.expect("another server");
            assert!(error.contains("differs from the first URL"), "{error}");
        }
        // The scheme is case-insensitive.
        assert_eq!(http(&[("url", "HTTP://a.test/")], None).map(|ends| ends.port), Ok(80));
        let ahead = [("requests", "4"), ("pipeline", "2"), ("follow", "1")];
        let error = http(&ahead, None).err().expect("whose answer is it");
        assert!(error.contains("try pipeline = 1"), "{error}");
        let both = [("header", "transfer-encoding: chunked"), ("header", "Content-Length: 3")];
        let error = http(&both, None).err().expect("one of them is too much");
        assert!(error.contains("both Transfer-Encoding and Content-Length"), "{error}");
    }

    #[test]
    fn streams_share_the_requests_of_a_connection() {
        let over = |options: &[(&str, &str)], streams| {
            http_over(options, None, Some(streams)).map(|ends| ends.client.lines().join("\n"))
        };
        let requests = over(&[("requests", "12")], 4).expect("right");
        let alone = |options: &[(&str, &str)]| {
            http(options, None).expect("right").client.lines().join("\n")
        };
        assert_eq!(requests, alone(&[("requests", "3")]));
        assert_eq!(over(&[], 4).expect("one in each stream"), alone(&[]));
        for (options, error) in [
            (&[("requests", "10")][..], "try requests = 12, or fewer streams"),
            (&[("requests", "8"), ("pipeline", "2")], "options.pipeline has no effect"),
            (&[("requests", "4"), ("close", "true")], "options.close has no effect"),
        ] {
            let found = over(options, 4).expect_err("wrong");
            assert!(found.contains(error), "{found}");
        }
    }

    #[test]
    fn a_request_is_what_options_say() {
        let data = Data::from_csv(b"user\nann\n", squall_apps::DataOrder::Once).expect("a table");
        let options = [
            ("url", "https://a.test/${data:user}"),
            ("method", "PATCH"),
            ("header", "Authorization: Bearer ${value:token}"),
            ("content", r#"{"user": "${data:user}\n"}"#),
            ("cookies", "true"),
            ("follow", "2"),
            ("check", "status 200"),
            ("check", r#"regex "a b""#),
            ("extract", "token = json token"),
        ];
        let ends = http(&options, Some(&data)).expect("right");
        let lines = ends.client.lines().join("\n");
        for part in [
            r#"send "PATCH /${data:user} HTTP/1.1\r\nHost: a.test\r\n"#,
            "Authorization: Bearer ${value:token}\\r\\n${cookies}Content-Length: ${content_length}",
            r#"\r\n\r\n{\"user\": \"${data:user}\\n\"}""#,
            "unless_redirect answer-2 https://a.test",
            "check no_redirect",
            "check status 200",
            r#"check regex "a b""#,
            "extract token = json token",
        ] {
            assert!(lines.contains(part), "{part} in\n{lines}");
        }
        assert_eq!(lines.matches("unless_redirect").count(), 2);
    }

    const SHOP: &str = r#"
        syntax = "proto3";
        package shop;
        message Order { int32 id = 1; }
        service Orders { rpc Put(Order) returns (Order); rpc Watch(Order) returns (stream Order); }
    "#;

    /// The instructions of both ends of a `grpc` flow with these options, or the errors.
    fn calls(options: &[(&str, &str)], streams: u16) -> Result<[String; 2], String> {
        let profile = Profile::default();
        let mut mistakes = ErrorCollector::of(&profile);
        let located = |(name, text): &(&str, &str)| ((*name).to_owned(), Located::from(*text));
        let options: Vec<_> = options.iter().map(located).collect();
        let files = TestFiles(&[("shop.proto", SHOP), ("seven", "1234567")]);
        let made =
            ends(&Located::from("grpc"), &options, (None, &files), Some(streams), &mut mistakes);
        mistakes.check().map_err(|error| error.to_string())?;
        let ends = made.expect("nothing is wrong").remove(0).2;
        assert_eq!(ends.port, 50_051);
        for program in [&ends.client, &ends.server] {
            assert_eq!(program.check_over_http2(), Ok(()));
        }
        Ok([ends.client.lines().join("\n"), ends.server.lines().join("\n")])
    }

    #[test]
    fn calls_are_what_options_say() {
        let options = [
            ("proto", "shop.proto"),
            ("method", "/shop.Orders/Watch"),
            ("calls", "12"),
            ("answers", "3"),
            ("json", r#"{"id": 300}"#),
            ("answer_file", "seven"),
            ("metadata", "x-id: ${flow:3}"),
            ("host", "a.test"),
            ("deadline", "2 s"),
            ("delay", "5 ms"),
        ];
        let [client, server] = calls(&options, 4).expect("right");
        for part in [
            "loop 3\n",
            r#"grpc_call "/shop.Orders/Watch" "Host: a.test\r\nx-id: ${flow:3}\r\n" deadline 2 s"#,
            "grpc_send \"\\x08\\xac\\x02\"\ngrpc_end\ngrpc_recv 3\ngrpc_status OK\nend",
        ] {
            assert!(client.contains(part), "{part} in\n{client}");
        }
        for part in [
            "grpc_accept /shop.Orders/Put /shop.Orders/Watch\n",
            "label done\ndelay 5 ms\nloop 3\ngrpc_send \"1234567\"\nend\ngrpc_finish OK",
        ] {
            assert!(server.contains(part), "{part} in\n{server}");
        }
        let of = |options: &[(&str, &str)]| calls(options, 1).expect("right");
        let [client, server] = of(&[("lockstep", "true"), ("messages", "2"), ("size", "9")]);
        assert!(client.contains("loop 2\ngrpc_send \"${repeat:9:"), "{client}");
        assert!(client.contains("\"\ngrpc_recv 1\nend\ngrpc_end\ngrpc_status OK"), "{client}");
        assert!(server.contains("grpc_next done\ngrpc_send"), "{server}");
        let [client, server] = of(&[("status", "NOT_FOUND"), ("status_text", "no \"x\"")]);
        assert!(client.ends_with("grpc_end\ngrpc_status NOT_FOUND"), "{client}");
        assert!(server.ends_with("label done\ngrpc_finish NOT_FOUND \"no \\\"x\\\"\""), "{server}");
        let [client, _] = of(&[("cancel", "0"), ("expect", "any")]);
        assert_eq!(client, "grpc_call \"/squall.Test/Call\"\ngrpc_cancel\ngrpc_status any");
        let [client, _] = of(&[("cancel", "2")]);
        assert!(client.ends_with("grpc_recv 2\ngrpc_cancel\ngrpc_status CANCELLED"), "{client}");
    }

    #[test]
    fn wrong_options_of_calls_are_reported() {
        const PROTO: (&str, &str) = ("proto", "shop.proto");
        for (options, error) in [
            (&[("calls", "10")][..], "try calls = 12, or fewer streams"),
            (&[("method", "a/b")], "expected /package.Service/Method"),
            (&[("status", "NOTFOUND")], "did you mean \"NOT_FOUND\""),
            (&[("expect", "ok")], "try \"OK NOT_FOUND\""),
            (&[("messages", "x")], "options.messages: \"x\" is not a number"),
            (&[("metadata", "x id: 1")], "try \"x-id: 1\""),
            (&[("metadata", "te: x")], "the field te belongs to the call"),
            (&[("json", "{}")], "try proto = \"service.proto\""),
            (&[("size", "3"), ("file", "seven")], "expected one of size, json, file"),
            (&[("answer_file", "none")], "cannot read none"),
            (&[("proto", "none.proto")], "cannot read none.proto"),
            (&[PROTO], "/shop.Orders/Put, /shop.Orders/Watch"),
            (&[PROTO, ("method", "/shop.Orders/Get")], "has no method \"/shop.Orders/Get\""),
            (
                &[PROTO, ("method", "/shop.Orders/Put"), ("answers", "2")],
                "options.answers: /shop.Orders/Put has only one",
            ),
            (
                &[PROTO, ("method", "/shop.Orders/Put"), ("json", "{\"it\": 1}")],
                "options.json is not a shop.Order",
            ),
        ] {
            let found = calls(options, 4).expect_err(error);
            assert!(found.contains(error), "{found}");
        }
    }

    #[test]
    fn each_default_is_the_value_of_an_absent_option() {
        for app in catalog() {
            for AppOption { name, default, .. } in app.options {
                let Some(default) = default else { continue };
                let profile = Profile::default();
                let mut mistakes = ErrorCollector::of(&profile);
                let mut made = |options: &[(String, Located)]| {
                    let name = Located::from(app.name);
                    let files = TestFiles(&[]);
                    let made =
                        ends(&name, options, (None, &files), None, &mut mistakes).expect("right");
                    let (_, _, ends) = made.into_iter().next().expect("one application");
                    (ends.client.lines(), ends.server.lines(), ends.port)
                };
                let given = [((*name).to_owned(), Located::from(*default))];
                assert_eq!(made(&given), made(&[]), "{}: {name} = {default}", app.name);
            }
        }
    }

    #[test]
    fn invalid_options_are_reported() {
        for (name, option, value, message) in [
            ("htpp", "", "", "did you mean \"http\""),
            ("http", "bdy", "1", "did you mean \"body\""),
            ("http", "url", "ftp://x", "expected http://"),
            ("http", "url", "0:http://x/", "is not a URL"),
            ("http", "url", "x:http://x/", "is not a URL"),
            ("http", "url", "http://x/${datum:x}", "is not a mark"),
            ("http", "url", "http://x/${data:x}", "needs data"),
            ("http", "method", "PUT IT", "is not an HTTP method"),
            ("http", "header", "X-A", "expected \"Name: value\""),
            ("http", "header", "X A: 1", "is not a header field"),
            ("http", "header", "X-A: 1\r\nX-B: 2", "is not a header field"),
            ("http", "follow", "21", "expected 0 to 20"),
            ("http", "check", "status OK", "try \"status 200\""),
            ("http", "extract", "token", "try \"token = json data.token\""),
            ("http", "content_file", "none.json", "cannot read none.json: there is no such file"),
            ("http", "cookies", "some", "is not true or false"),
            ("http", "requests", "0", "not a number above 0"),
            ("http", "think", "never", "is not a delay"),
            ("rtp", "packets", "x", "not a number above 0"),
            ("dns", "body", "1", "this application has no options"),
        ] {
            let profile = Profile::default();
            let mut mistakes = ErrorCollector::of(&profile);
            let options = [(option.to_owned(), Located::from(value))];
            let options = if option.is_empty() { &options[..0] } else { &options[..] };
            let files = TestFiles(&[]);
            let made = ends(&Located::from(name), options, (None, &files), None, &mut mistakes);
            assert!(made.is_none(), "{name} {option}");
            let text = mistakes.check().expect_err("something is wrong").to_string();
            assert!(text.contains(message), "{text}");
        }
    }
}
