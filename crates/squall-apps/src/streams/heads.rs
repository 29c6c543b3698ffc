//! Heads of HTTP/1.1, which programs write and read, to fields of HTTP/2 and HTTP/3 and back (RFC
//! 9113 section 8, RFC 9114 section 4).

use std::collections::{BTreeMap, HashMap};

use squall_http::{
    h2::{Head, HeadKind},
    hpack::{Field, Fixed},
};

use crate::{Role, answers::head_end, message::Ready};

/// The longest head that is translated, in octets.
pub const MAX_HEAD: usize = 64 << 10;
/// Fields that a program's messages have in common for all flows and that are known by number. A
/// connection has a place for each.
const MAX_FIXED: usize = 256;

/// Properties of the head of a program's message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outline {
    /// Octets of the head, with its empty line.
    pub len: u32,
    /// Whether another head follows for the same request: status 100 to 199.
    pub interim: bool,
    /// Whether a request has the method HEAD.
    pub asks_head: bool,
    /// Whether a request asks for WebSocket, or an answer could open it: octets in both directions
    /// follow then (RFC 8441).
    pub tunnel: bool,
    /// Whether it is not a head, but the fields after a body.
    pub trailers: bool,
    /// Whether a Content-Length announces a body.
    announces_body: bool,
}

impl Outline {
    /// # Errors
    /// Why `octets` of body cannot follow the head.
    pub fn check_body(self, octets: u64) -> Result<(), &'static str> {
        match octets > 0 && !self.announces_body {
            true => Err("octets follow its head, but no Content-Length announces a body"),
            false => Ok(()),
        }
    }

    /// The outline, of a message with `len` octets.
    ///
    /// # Errors
    /// As [`check_body`](Self::check_body).
    pub fn with_body(self, len: u32) -> Result<Self, &'static str> {
        self.check_body(len.saturating_sub(self.len).into()).map(|()| self)
    }
}

/// Fields with which a proxy would describe its own connection: HTTP/2 has none (RFC 9113 section
/// 8.2.2).
const OF_CONNECTION: [&[u8]; 5] =
    [b"connection", b"keep-alive", b"proxy-connection", b"upgrade", b"http2-settings"];

/// Gives each field of the head at the beginning of `text` to `each`, pseudo-fields first, with
/// names in lower case. `role` is that of the sender. The text of a server may also be the lines of
/// trailers.
///
/// # Errors
/// Why `text` does not begin with a request (of a client) or a response, or why HTTP/2 cannot carry
/// it.
pub fn translate(
    text: &[u8],
    role: Role,
    secure: bool,
    mut each: impl FnMut(&[u8], &[u8]),
) -> Result<Outline, &'static str> {
    let len = head_end(text).ok_or("it has no empty line at the end of its head")?;
    let mut outline = Outline { len: len as u32, ..Outline::default() };
    let mut lines = text[..len].split(|octet| *octet == b'\n').map(without_cr);
    let all = lines.clone();
    let first = lines.next().unwrap_or_default();
    match role {
        Role::Client => {
            let (method, target) =
                request_line(first).ok_or("it does not begin with a request: GET / HTTP/1.1")?;
            let mut fields = lines.clone().filter_map(field);
            let host = fields.find(|(name, _)| name.eq_ignore_ascii_case(b"host"));
            let (_, host) = host.ok_or("its request has no Host field")?;
            outline.asks_head = method == b"HEAD";
            outline.tunnel = asks_for_websocket(lines.clone());
            if outline.tunnel {
                // RFC 8441 section 5.
                each(b":method", b"CONNECT");
                each(b":protocol", b"websocket");
            } else {
                each(b":method", method);
            }
            each(b":scheme", scheme(secure));
            each(b":authority", host);
            each(b":path", target);
        }
        Role::Server if field(first).is_some() => {
            outline.trailers = true;
            lines = all;
        }
        Role::Server => {
            let status =
                status_line(first).ok_or("it does not begin with a response: HTTP/1.1 200 OK")?;
            outline.interim = status[0] == b'1';
            outline.tunnel = status[0] == b'2';
            each(b":status", status);
        }
    }
    let mut lower = [0; 128];
    for line in lines.filter(|line| !line.is_empty()) {
        let (name, value) = field(line).ok_or("a line of its head is no field: Name: value")?;
        let lower = lower.get_mut(..name.len()).ok_or("the name of a field is too long")?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        let lower: &[u8] = lower;
        if lower == b"transfer-encoding" {
            // The octets of chunks would be taken for content.
            return Err("streams have no Transfer-Encoding; try Content-Length");
        }
        outline.announces_body |= lower == b"content-length";
        let of_request = lower == b"host" && role == Role::Client;
        let coding = lower == b"te" && !value.eq_ignore_ascii_case(b"trailers");
        // RFC 8441 section 5: `:protocol` has replaced the key and the answer to it.
        let of_handshake = outline.tunnel && lower == b"sec-websocket-key";
        if !OF_CONNECTION.contains(&lower) && !of_request && !coding && !of_handshake {
            each(lower, value);
        }
    }
    Ok(outline)
}

/// Whether the lines of a request are those of `websocket`.
fn asks_for_websocket<'a>(lines: impl Iterator<Item = &'a [u8]>) -> bool {
    let (mut upgrade, mut key) = (false, false);
    for (name, value) in lines.filter_map(field) {
        upgrade |= name.eq_ignore_ascii_case(b"upgrade") && value == b"websocket";
        key |= name.eq_ignore_ascii_case(b"sec-websocket-key");
    }
    upgrade && key
}

fn scheme(secure: bool) -> &'static [u8] {
    if secure { b"https" } else { b"http" }
}

fn without_cr(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Method and target.
fn request_line(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let method = memchr::memchr(b' ', line)?;
    let version = memchr::memrchr(b' ', line)?;
    let target = line.get(method + 1..version)?;
    let right = method > 0 && !target.is_empty() && line[version + 1..].starts_with(b"HTTP/1.");
    right.then(|| (&line[..method], target))
}

fn status_line(line: &[u8]) -> Option<&[u8]> {
    let status = line.strip_prefix(b"HTTP/1.")?.get(2..5)?;
    status.iter().all(u8::is_ascii_digit).then_some(status)
}

/// Name and value. A CR within the value would be malformed (RFC 9113 section 8.2.1).
fn field(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = memchr::memchr(b':', line).filter(|at| *at > 0)?;
    let value = line[colon + 1..].trim_ascii();
    (!value.iter().any(|octet| matches!(octet, 0 | b'\r'))).then(|| (&line[..colon], value))
}

/// The heads of a program's messages, or their fields, that are the same for all flows.
#[derive(Clone, Debug, Default)]
pub struct Heads {
    fixed: Vec<Fixed>,
    numbers: HashMap<Box<[u8]>, u16>,
    /// Whole heads, by the numbers of their pieces. Ordered, because a program has few.
    known: BTreeMap<u32, Known>,
}

#[derive(Clone, Debug)]
struct Known {
    outline: Outline,
    fields: Box<[u16]>,
    /// Octets of names and values.
    plain: u32,
}

/// Fields of a head that is about to be sent.
#[derive(Clone, Debug, Default)]
pub struct Prepared {
    /// Fields that have numbers; for others, the lengths of name and value in `octets`.
    fields: Vec<Result<u16, (usize, usize)>>,
    octets: Vec<u8>,
    /// Octets of names and values.
    pub plain: u32,
}

impl Heads {
    /// Number of fields that are known by number.
    pub fn fixed(&self) -> u16 {
        self.fixed.len() as u16
    }

    /// Learns from a message of the program. `piece` is the number with which it is sent.
    pub fn learn(&mut self, piece: u32, message: &Ready, role: Role, secure: bool) {
        let mut parts = message.parts_in_common().peekable();
        if let Some(Some(text)) = parts.peek()
            && head_end(text).is_some()
        {
            let (mut fields, mut plain) = (Vec::new(), 0);
            let outline = translate(text, role, secure, |name, value| {
                fields.push(self.number(name, value));
                plain += name.len() as u32 + value.len() as u32;
            });
            let fields: Option<Box<[u16]>> = fields.into_iter().collect();
            if let (Ok(outline), Some(fields)) = (outline, fields) {
                self.known.insert(piece, Known { outline, fields, plain });
            }
            return;
        }
        // Whole lines of a head with marks. The first line of a later part is the end of one.
        for (number, part) in parts.enumerate() {
            let Some(text) = part else { continue };
            let end = head_end(text);
            let text = &text[..end.unwrap_or(text.len())];
            let Some(last) = memchr::memrchr(b'\n', text) else { continue };
            let mut lines = text[..last].split(|octet| *octet == b'\n').map(without_cr);
            let first = lines.next().unwrap_or_default();
            if let Some((method, target)) = request_line(first).filter(|_| number == 0) {
                self.number(b":method", method);
                self.number(b":path", target);
            }
            for (name, value) in lines.filter_map(field) {
                let name = name.to_ascii_lowercase();
                let of_request = role == Role::Client && name == b"host";
                self.number(if of_request { &b":authority"[..] } else { &name[..] }, value);
            }
            if end.is_some() {
                break;
            }
        }
        if role == Role::Client {
            self.number(b":scheme", scheme(secure));
            self.number(b":method", b"GET");
        }
    }

    /// The number of a field, which it gets if there is room.
    fn number(&mut self, name: &[u8], value: &[u8]) -> Option<u16> {
        let key = key(name, value, &mut Vec::new()).to_vec();
        if let Some(number) = self.numbers.get(&key[..]) {
            return Some(*number);
        }
        if self.fixed.len() == MAX_FIXED {
            return None;
        }
        let number = self.fixed();
        self.fixed.push(Fixed::new(name, value));
        self.numbers.insert(key.into(), number);
        Some(number)
    }

    /// The messages whose heads are always the same, by the numbers of their pieces.
    #[cfg(feature = "tls")]
    pub fn all_known(&self) -> impl Iterator<Item = u32> {
        self.known.keys().copied()
    }

    /// The head of a message that is always the same.
    pub fn known(&self, piece: u32, prepared: &mut Prepared) -> Option<Outline> {
        let known = self.known.get(&piece)?;
        prepared.fields.clear();
        prepared.fields.extend(known.fields.iter().map(|number| Ok(*number)));
        prepared.plain = known.plain;
        Some(known.outline)
    }

    /// Translates the head at the beginning of `text`.
    ///
    /// # Errors
    /// As [`translate`].
    pub fn prepare(
        &self,
        text: &[u8],
        role: Role,
        secure: bool,
        prepared: &mut Prepared,
    ) -> Result<Outline, &'static str> {
        prepared.fields.clear();
        prepared.octets.clear();
        prepared.plain = 0;
        let mut scratch = Vec::new();
        translate(text, role, secure, |name, value| {
            prepared.plain += name.len() as u32 + value.len() as u32;
            let place = match self.numbers.get(key(name, value, &mut scratch)) {
                Some(number) => Ok(*number),
                None => {
                    prepared.octets.extend_from_slice(name);
                    prepared.octets.extend_from_slice(value);
                    Err((name.len(), value.len()))
                }
            };
            prepared.fields.push(place);
        })
    }

    /// Writes a prepared head with `encode`, a field at a time. Returns the octets of the block.
    pub fn encode(
        &self,
        prepared: &Prepared,
        block: &mut Vec<u8>,
        mut encode: impl FnMut(Field<'_>, &mut Vec<u8>),
    ) -> u32 {
        let before = block.len();
        let mut octets = &prepared.octets[..];
        for place in &prepared.fields {
            let field = match *place {
                Ok(number) => Field::Fixed(number, &self.fixed[usize::from(number)]),
                Err((name, value)) => {
                    let (name, rest) = octets.split_at(name);
                    let (value, rest) = rest.split_at(value);
                    octets = rest;
                    Field::Literal { name, value }
                }
            };
            encode(field, block);
        }
        (block.len() - before) as u32
    }

    /// Memory usage in bytes, about.
    pub fn memory(&self) -> usize {
        let keys: usize = self.numbers.keys().map(|key| 2 * key.len() + 64).sum();
        keys + self.known.len() * 64
    }
}

/// Name and value with a NUL in between, which no name has.
fn key<'a>(name: &[u8], value: &[u8], scratch: &'a mut Vec<u8>) -> &'a [u8] {
    scratch.clear();
    scratch.extend_from_slice(name);
    scratch.push(0);
    scratch.extend_from_slice(value);
    scratch
}

/// How the body of a received message is given to a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Body {
    /// There is none, so data is an error.
    #[default]
    None,
    /// As its Content-Length says: the octets that have not come.
    Length(u64),
    /// In chunks.
    Chunked,
    /// Without an end of its own: WebSocket.
    Tunnel,
}

/// Whether a received head opens a tunnel for WebSocket (RFC 8441 section 5); `asked`: it answers
/// a request for one.
pub fn opens_tunnel(head: &Head<'_>, asked: bool) -> bool {
    match head.kind {
        HeadKind::Request => head.fields.get(b":protocol") == Some(b"websocket"),
        HeadKind::Response => asked && (200..300).contains(&head.status),
        HeadKind::Interim | HeadKind::Trailers => false,
    }
}

/// Writes a head that opens a tunnel, a request as if it were one of HTTP/1.1, without its key.
pub fn write_tunnel(head: &Head<'_>, text: &mut Vec<u8>) {
    let value = |name: &[u8]| head.fields.get(name).unwrap_or_default();
    if head.kind == HeadKind::Request {
        line(text, &[b"GET ", value(b":path"), b" HTTP/1.1"]);
        line(text, &[b"host: ", value(b":authority")]);
        line(text, &[b"upgrade: websocket\r\nconnection: Upgrade"]);
    } else {
        line(text, &[b"HTTP/1.1 ", value(b":status"), b" "]);
    }
    let regular = |name: &[u8]| !name.starts_with(b":") && name != b"host";
    for (name, value) in head.fields.iter().filter(|(name, _)| regular(name)) {
        line(text, &[name, b": ", value]);
    }
    line(text, &[]);
}

/// The text of the last head that was received, if it may be that of the next, too: servers send
/// equal heads for all requests of a second.
#[derive(Debug, Default)]
pub struct HeadText {
    pub text: Vec<u8>,
    body: Body,
    of: Option<TextOf>,
}

/// The inputs of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TextOf {
    fields: u64,
    kind: HeadKind,
    end: bool,
    to_head: bool,
}

impl HeadText {
    /// As [`write_text`], unless the text is here already. All heads are those of one scratch
    /// buffer.
    pub fn write(&mut self, head: &Head<'_>, to_head: bool) -> Body {
        let fields = head.fields.number();
        let of = Some(TextOf { fields, kind: head.kind, end: head.end, to_head });
        if self.of != of {
            self.clear();
            self.body = write_text(head, to_head, &mut self.text);
            self.of = of;
        }
        self.body
    }

    /// Forgets the text. Others can be written.
    pub fn clear(&mut self) {
        self.text.clear();
        self.of = None;
    }
}

/// Writes a received head as one of HTTP/1.1. `to_head`: the message answers a HEAD. Returns how
/// its body follows.
pub fn write_text(head: &Head<'_>, to_head: bool, text: &mut Vec<u8>) -> Body {
    let fields = head.fields;
    let value = |name: &[u8]| fields.get(name).unwrap_or_default();
    let authority = fields.get(b":authority");
    if head.kind == HeadKind::Request {
        let target = fields.get(b":path").or(authority).unwrap_or_default();
        line(text, &[value(b":method"), b" ", target, b" HTTP/1.1"]);
        if let Some(host) = authority {
            line(text, &[b"host: ", host]);
        }
    } else {
        line(text, &[b"HTTP/1.1 ", value(b":status"), b" "]);
    }
    let mut length = None;
    let mut cookies = fields.iter().filter(|(name, _)| *name == b"cookie").map(|(_, value)| value);
    for (name, value) in fields.iter().filter(|(name, _)| !name.starts_with(b":")) {
        match name {
            b"host" if authority.is_some() => {}
            // A second one is equal to the first, and readers of HTTP/1.1 may refuse two.
            b"content-length" if length.is_some() => {}
            // HTTP/2 may split them, HTTP/1.1 has a single line (RFC 9113 section 8.2.3).
            b"cookie" => {
                let Some(first) = cookies.next() else { continue };
                text.extend_from_slice(b"cookie: ");
                text.extend_from_slice(first);
                for cookie in cookies.by_ref() {
                    text.extend_from_slice(b"; ");
                    text.extend_from_slice(cookie);
                }
                line(text, &[]);
            }
            _ => line(text, &[name, b": ", value]),
        }
        if name == b"content-length" {
            length = str::from_utf8(value).ok().and_then(|digits| digits.parse().ok());
        }
    }
    let no_body = head.kind == HeadKind::Interim || to_head || matches!(head.status, 204 | 304);
    let body = match (no_body, length, head.end) {
        (true, ..) => Body::None,
        (false, Some(length), _) => Body::Length(length),
        // Their end may come apart from the head. Chunks would be octets that no program expects.
        (false, None, false) if is_without_body(value(b":method")) => Body::Length(0),
        (false, None, false) => {
            line(text, &[b"transfer-encoding: chunked"]);
            Body::Chunked
        }
        (false, None, true) => {
            // Without a length, a response of HTTP/1.1 would last until its sender closes.
            if head.kind == HeadKind::Response {
                line(text, &[b"content-length: 0"]);
            }
            Body::None
        }
    };
    line(text, &[]);
    body
}

/// Whether requests with this method usually have no content (RFC 9110 section 9.3).
fn is_without_body(method: &[u8]) -> bool {
    matches!(method, b"GET" | b"HEAD" | b"DELETE" | b"OPTIONS" | b"TRACE")
}

fn line(text: &mut Vec<u8>, parts: &[&[u8]]) {
    for part in parts {
        text.extend_from_slice(part);
    }
    text.extend_from_slice(b"\r\n");
}

/// Writes received data as a chunk (RFC 9112 section 7.1), and the last chunk at the `end`.
pub fn write_chunk(octets: &[u8], end: bool, text: &mut Vec<u8>) {
    if !octets.is_empty() {
        let size = format!("{:x}\r\n", octets.len());
        line(text, &[size.as_bytes(), octets]);
    }
    if end {
        text.extend_from_slice(b"0\r\n\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Message;

    fn fields(text: &str, role: Role) -> Result<(Vec<String>, Outline), &'static str> {
        let mut all = Vec::new();
        let outline = translate(text.as_bytes(), role, true, |name, value| {
            let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
            all.push(format!("{}={}", text(name), text(value)));
        })?;
        Ok((all, outline))
    }

    #[test]
    fn requests_become_fields_without_those_of_a_connection() {
        let text = "HEAD /a?b HTTP/1.1\r\nUser-Agent: squall\r\nHost: a.test\r\nConnection: \
                    close\r\nTE: gzip\r\nX-Trace:  1 \r\nContent-Length: 3\r\n\r\nabc";
        let (found, outline) = fields(text, Role::Client).expect("a request");
        let expected = [
            ":method=HEAD",
            ":scheme=https",
            ":authority=a.test",
            ":path=/a?b",
            "user-agent=squall",
            "x-trace=1",
            "content-length=3",
        ];
        assert_eq!(found, expected);
        assert!(outline.asks_head && !outline.interim && outline.check_body(3).is_ok());
        assert_eq!(outline.len as usize, text.len() - 3);
    }

    #[test]
    fn responses_become_fields() {
        let (found, outline) =
            fields("HTTP/1.1 103 Early Hints\nLink: </a>\n\n", Role::Server).expect("a response");
        assert_eq!(found, [":status=103", "link=</a>"]);
        assert!(outline.interim && outline.check_body(1).is_err());
    }

    #[test]
    fn other_messages_are_refused() {
        for (text, role, why) in [
            ("hello\r\n\r\n", Role::Client, "GET / HTTP/1.1"),
            ("GET / HTTP/1.1\r\nHost: a", Role::Client, "no empty line"),
            ("GET / HTTP/1.1\r\nX: a\r\n\r\n", Role::Client, "Host"),
            ("GET / HTTP/1.1\r\nHost: a\r\nodd\r\n\r\n", Role::Client, "no field"),
            ("GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n", Role::Client, "Host"),
            ("HTTP/1.1 2xx\r\n\r\n", Role::Server, "HTTP/1.1 200 OK"),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                Role::Server,
                "try Content-Length",
            ),
        ] {
            let error = fields(text, role).expect_err(text);
            assert!(error.contains(why), "{text:?}: {error}");
        }
    }

    #[test]
    fn the_text_of_a_head_is_made_again_if_anything_differs() {
        use squall_http::h3::{self, Cause, Code, Counters, PeerSettings, StreamId};
        #[derive(Default)]
        struct Received {
            head: HeadText,
            counters: Counters,
            bodies: Vec<Body>,
        }
        impl h3::Events for Received {
            fn head(&mut self, id: StreamId, head: &Head<'_>) {
                let (to_head, mut fresh) = (id.0 >= 16, Vec::new());
                for cleared in [false, false, true] {
                    if cleared {
                        self.head.clear();
                    }
                    let body = self.head.write(head, to_head);
                    fresh.clear();
                    assert_eq!(body, write_text(head, to_head, &mut fresh));
                    assert_eq!(self.head.text, fresh);
                    self.bodies.push(body);
                }
            }
            fn counters(&mut self) -> &mut Counters {
                &mut self.counters
            }
            fn data(&mut self, _: StreamId, _: &[u8], _: bool) {}
            fn reset(&mut self, _: StreamId, _: Code, _: Cause) {}
            fn stop(&mut self, _: StreamId, _: Code) {}
            fn unblocked(&mut self, _: StreamId) {}
            fn settings(&mut self, _: &PeerSettings) {}
            fn going_away(&mut self, _: u64) {}
        }
        let limits = h3::Limits::new(h3::Settings::new(&[]).expect("no settings"));
        let mut client = h3::Connection::client(&limits, 0);
        let (mut scratch, mut received) = (h3::Scratch::default(), Received::default());
        let (length, chunked) = (Body::Length(2), Body::Chunked);
        for (id, fields, end, body) in [
            (0, &[(":status", "200"), ("content-length", "2")][..], false, length),
            (4, &[(":status", "404"), ("content-length", "2")], false, length),
            (8, &[(":status", "200")], false, chunked),
            (12, &[(":status", "200")], true, Body::None),
            (16, &[(":status", "200")], true, Body::None),
            (20, &[(":status", "200")], false, Body::None),
        ] {
            let mut frame = Vec::new();
            h3::plain_head(&mut frame, |encoder, block| {
                for (name, value) in fields {
                    let (name, value) = (name.as_bytes(), value.as_bytes());
                    encoder.field(Field::Literal { name, value }, block);
                }
            });
            client.open(StreamId(id));
            let taken =
                client.receive(StreamId(id), &frame, end, &limits, &mut scratch, &mut received);
            assert!(taken.is_ok());
            assert_eq!(received.bodies.drain(..).collect::<Vec<_>>(), [body; 3], "{id}");
        }
    }

    #[test]
    fn fields_that_all_flows_share_are_known_by_number() {
        let ready = |text: &str| {
            let message: Message = text.parse().expect("a message");
            Ready::new(&message, 0).expect("a right message")
        };
        let mut heads = Heads::default();
        let mut prepared = Prepared::default();
        let whole = "GET /a HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n";
        heads.learn(7, &ready(whole), Role::Client, false);
        let outline = heads.known(7, &mut prepared).expect("a head without marks");
        assert_eq!(outline.len as usize, whole.len());
        assert_eq!(prepared.fields, [Ok(0), Ok(1), Ok(2), Ok(3), Ok(4)]);
        let marked = "GET /${random:hex:4} HTTP/1.1\r\nHost: a\r\nX: y\r\nZ: ${flow:3}\r\n\r\n";
        heads.learn(8, &ready(marked), Role::Client, false);
        assert_eq!(heads.known(8, &mut prepared), None);
        let text = "GET /1234 HTTP/1.1\r\nHost: a\r\nX: y\r\nZ: 001\r\n\r\n";
        let outline = heads.prepare(text.as_bytes(), Role::Client, false, &mut prepared);
        assert_eq!(outline.map(|outline| outline.len as usize), Ok(text.len()));
        // The path and the last field differ from flow to flow.
        let known: Vec<bool> = prepared.fields.iter().map(Result::is_ok).collect();
        assert_eq!(known, [true, true, true, false, true, false]);
        assert_eq!(prepared.octets, b":path/1234z001");
    }
}
