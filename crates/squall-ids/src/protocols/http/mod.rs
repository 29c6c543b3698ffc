//! HTTP/1, parsed as libhtp does in Suricata's default configuration.
//!
//! The two directions are parsed independently. Data is buffered until the element that a state
//! needs (a line, all headers, a chunk) is complete. Like libhtp, this parser depends on segment
//! boundaries: octets after a request without a body belong to that request if they arrived in the
//! same call, otherwise to the next request.

mod headers;
mod uri;

use std::io::Read as _;

use squall_rules::{Application, Buffer, End, EngineVersion};

use self::headers::{By, Headers, end_of_headers, is_space, trimmed};
use super::{Reader, Transaction, event, number};

/// Maximum line length; libhtp rejects a message with a longer line.
const MAX_LINE_LEN: usize = 18_000;
/// Maximum length of all headers of a message.
const MAX_HEADERS_LEN: usize = 256 * 1024;
const MAX_TRANSACTIONS: usize = 512;
const MAX_BOUNDARY_LEN: usize = 200;
/// Maximum number of nested compression layers of a body.
const MAX_LAYERS: usize = 2;

pub(super) struct Http {
    limit: usize,
    engine: EngineVersion,
    request: Direction,
    response: Direction,
    exchanges: Vec<Exchange>,
    /// Indices in `exchanges` of the request and response being parsed.
    requested: usize,
    responded: usize,
    switched: Option<Option<Application>>,
}

#[derive(Default)]
struct Direction {
    /// Data received but not parsed yet.
    pending: Vec<u8>,
    state: State,
    /// Octets left in a body or chunk.
    left: u64,
    body: Body,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum State {
    #[default]
    Line,
    Headers,
    Identity,
    UntilClose,
    ChunkLength,
    ChunkData,
    ChunkEnd,
    Trailer,
    Finalize,
    /// After CONNECT: the response determines how the following octets are parsed.
    WaitForResponse,
    /// After an HTTP/0.9 request, in a tunnel, or after an error.
    Ignore,
}

#[derive(Default)]
struct Body {
    octets: Vec<u8>,
    /// The buffer is complete; further data is ignored.
    is_complete: bool,
}

/// The state that request and response share.
#[derive(Default)]
struct Exchange {
    /// Index of the transaction.
    at: usize,
    method: Vec<u8>,
    host: Option<Vec<u8>>,
    /// Decoded path of the URI; names the file in the body.
    path: Vec<u8>,
    request: Headers,
    response: Headers,
    status: Option<u16>,
    has_status_line: bool,
    is_0_9: bool,
    is_1_1: bool,
    request_encoding: Vec<u8>,
}

impl Http {
    pub fn new(limit: usize, engine: EngineVersion) -> Http {
        Http {
            limit,
            engine,
            request: Direction::default(),
            response: Direction::default(),
            exchanges: vec![],
            requested: 0,
            responded: 0,
            switched: None,
        }
    }
}

impl Reader for Http {
    fn receive(&mut self, from: End, octets: &[u8], transactions: &mut Vec<Transaction>) {
        if octets.is_empty() {
            return;
        }
        match from {
            End::Client => {
                self.request.pending.extend_from_slice(octets);
                self.read_request(false, transactions);
            }
            End::Server => {
                self.response.pending.extend_from_slice(octets);
                self.read_response(false, transactions);
                if self.request.state != State::WaitForResponse {
                    return;
                }
                // The response to CONNECT determines how the client's following octets are parsed.
                if let Some(status) =
                    self.exchanges.get(self.requested).and_then(|exchange| exchange.status)
                {
                    if (200..300).contains(&status) {
                        self.tunnel(None);
                    } else {
                        self.request_done(transactions);
                        self.read_request(false, transactions);
                    }
                }
            }
        }
    }

    fn end(&mut self, from: End, transactions: &mut Vec<Transaction>) {
        match from {
            End::Client => self.read_request(true, transactions),
            End::Server => self.read_response(true, transactions),
        }
    }

    fn switched(&mut self) -> Option<Option<Application>> {
        self.switched.take()
    }
}

/// Parsing of requests.
impl Http {
    fn read_request(&mut self, closed: bool, transactions: &mut Vec<Transaction>) {
        let mut pending = std::mem::take(&mut self.request.pending);
        let mut at = 0;
        while let Some(taken) = self.request_step(&pending[at..], closed, transactions) {
            at += taken;
        }
        if self.request.state == State::Ignore {
            pending.clear();
        } else {
            pending.drain(..at);
        }
        self.request.pending = pending;
        if closed {
            self.request.pending.clear();
            self.add_request_body(transactions);
        }
    }

    /// Parses an element and returns its length; `None` if the element is incomplete.
    fn request_step(
        &mut self,
        input: &[u8],
        closed: bool,
        transactions: &mut Vec<Transaction>,
    ) -> Option<usize> {
        match self.request.state {
            State::Line => self.request_line(input, closed, transactions),
            State::Headers => {
                let (end, block) = match end_of_headers(input, By::Client) {
                    Some(end) => (end, &input[..end]),
                    None if closed && !input.is_empty() => (input.len(), input),
                    None => {
                        if input.len() > MAX_HEADERS_LEN {
                            self.request.state = State::Ignore;
                        }
                        return None;
                    }
                };
                self.request_headers(block, transactions);
                Some(end)
            }
            State::Identity => {
                let taken = take(&mut self.request.left, input)?;
                self.request_body(&input[..taken], transactions);
                if self.request.left == 0 {
                    self.request.state = State::Finalize;
                }
                Some(taken)
            }
            State::ChunkLength => {
                let line = memchr::memchr(b'\n', input)? + 1;
                match chunk_length(&input[..line]) {
                    ChunkLength::Empty => {}
                    ChunkLength::Is(0) => self.request.state = State::Trailer,
                    ChunkLength::Is(length) => {
                        self.request.left = length;
                        self.request.state = State::ChunkData;
                    }
                    ChunkLength::Invalid => self.fail(),
                }
                Some(line)
            }
            State::ChunkData => {
                let taken = take(&mut self.request.left, input)?;
                self.request_body(&input[..taken], transactions);
                if self.request.left == 0 {
                    self.request.state = State::ChunkEnd;
                }
                Some(taken)
            }
            State::ChunkEnd => {
                let line = memchr::memchr(b'\n', input)? + 1;
                self.request.state = State::ChunkLength;
                Some(line)
            }
            State::Trailer => {
                let end = end_of_headers(input, By::Client)?;
                self.trailer(End::Client, &input[..end], transactions);
                self.request.state = State::Finalize;
                Some(end)
            }
            State::Finalize => self.request_finalize(input, closed, transactions),
            State::UntilClose | State::WaitForResponse | State::Ignore => None,
        }
    }

    fn request_line(
        &mut self,
        input: &[u8],
        closed: bool,
        transactions: &mut Vec<Transaction>,
    ) -> Option<usize> {
        let end = match memchr::memchr(b'\n', input) {
            Some(end) => end + 1,
            None if closed && !input.is_empty() => input.len(),
            None => {
                if input.len() > MAX_LINE_LEN {
                    self.request.state = State::Ignore;
                }
                return None;
            }
        };
        let line = &input[..end];
        if matches!(line, b"\r\n" | b"\n" | b"\r") {
            return Some(end);
        }
        if self.exchanges.len() >= MAX_TRANSACTIONS || end > MAX_LINE_LEN {
            self.request.state = State::Ignore;
            return None;
        }
        // Use the length as index: a response without a request may have added an entry.
        self.requested = self.exchanges.len();
        self.exchanges.push(Exchange { at: transactions.len(), ..Exchange::default() });
        transactions.push(Transaction::default());
        self.request.body = Body::default();

        let line = chomped(line);
        let add_buffer = |buffer, octets: &[u8], transactions: &mut Vec<Transaction>| {
            if !octets.is_empty()
                && let Some(transaction) = transactions.last_mut()
            {
                transaction.buffers.push((buffer, End::Client, octets.to_vec()));
            }
        };
        add_buffer(Buffer::HttpRequestLine, line, transactions);
        let text = &line[line.iter().position(|&octet| !is_space(octet)).unwrap_or(line.len())..];
        let method_end = text.iter().position(|&octet| is_space(octet)).unwrap_or(text.len());
        let (method, rest) = text.split_at(method_end);
        add_buffer(Buffer::HttpMethod, method, transactions);
        let rest = trimmed(rest);
        let (uri, protocol) = uri_and_protocol(rest, self.engine);
        add_buffer(Buffer::HttpRawUri, uri, transactions);
        let exchange = self.exchanges.last_mut()?;
        exchange.method = method.to_vec();
        if method == b"CONNECT" {
            exchange.host = uri::host_of(uri);
        } else if !uri.is_empty() {
            let parsed = uri::parse(uri);
            add_buffer(Buffer::HttpUri, &parsed.normalized, transactions);
            exchange.host = parsed.host;
            exchange.path = parsed.path;
        }
        add_buffer(Buffer::HttpProtocol, protocol, transactions);
        exchange.is_1_1 = protocol.eq_ignore_ascii_case(b"HTTP/1.1");
        if protocol.is_empty() {
            // This is HTTP/0.9 if only blanks follow.
            let after = &input[end..];
            let blanks = after.iter().position(|&octet| !is_space(octet));
            exchange.is_0_9 = blanks.is_none() && after.len() <= 16;
            if exchange.is_0_9 {
                self.request_done(transactions);
                self.request.state = State::Ignore;
                return Some(input.len());
            }
        }
        self.request.state = State::Headers;
        Some(end)
    }

    fn request_headers(&mut self, block: &[u8], transactions: &mut [Transaction]) {
        let Some(exchange) = self.exchanges.get_mut(self.requested) else { return };
        if !exchange.request.read(block, By::Client) {
            return self.fail();
        }
        let Some(transaction) = transactions.get_mut(exchange.at) else { return };
        let headers = &exchange.request;
        let next = if exchange.method == b"CONNECT" {
            Some(State::WaitForResponse)
        } else if let Some(coding) = headers.get("transfer-encoding") {
            contains_caseless(coding, b"chunked").then_some(State::ChunkLength)
        } else if let Some(length) = headers.get("content-length") {
            content_length(length).map(|length| {
                self.request.left = length;
                if length == 0 { State::Finalize } else { State::Identity }
            })
        } else {
            Some(State::Finalize)
        };
        // After an error the headers are never complete, nor are the buffers with all headers.
        if next.is_some() {
            add_headers(End::Client, headers, block, transaction);
        }
        add_common_headers(End::Client, headers, transaction);
        for (name, buffer) in [
            ("cookie", Buffer::HttpCookie),
            ("user-agent", Buffer::HttpUserAgent),
            ("referer", Buffer::HttpReferer),
            ("accept", Buffer::HttpAccept),
            ("accept-encoding", Buffer::HttpAcceptEncoding),
            ("accept-language", Buffer::HttpAcceptLanguage),
        ] {
            add_header(End::Client, headers, name, buffer, transaction);
        }
        // The original client of a forwarded request: Snort 3's `http_true_ip`.
        let client = headers
            .get("true-client-ip")
            .or_else(|| headers.get("x-forwarded-for"))
            .unwrap_or_default();
        let client = client.split(|&octet| octet == b',').next().unwrap_or_default().trim_ascii();
        if !client.is_empty() {
            transaction.buffers.push((Buffer::HttpTrueIp, End::Client, client.to_vec()));
        }
        let raw_host = headers.get("host").unwrap_or_default();
        let in_uri = exchange.host.take();
        let host = in_uri.clone().or_else(|| uri::host_of(raw_host));
        let raw_host = in_uri.unwrap_or_else(|| raw_host.to_vec());
        if let Some(host) = host {
            transaction.buffers.push((Buffer::HttpHost, End::Client, host));
        } else if headers.get("host").is_none() && exchange.is_1_1 {
            event(End::Client, "http.missing_host_header", transaction);
        }
        if !raw_host.is_empty() {
            transaction.buffers.push((Buffer::HttpRawHost, End::Client, raw_host));
        }
        exchange.request_encoding =
            headers.get("content-encoding").unwrap_or_default().to_ascii_lowercase();

        match next {
            Some(state) => self.request.state = state,
            None => self.fail(),
        }
    }

    /// Handles data after a request in the same call: another request, or more of the body.
    fn request_finalize(
        &mut self,
        input: &[u8],
        closed: bool,
        transactions: &mut [Transaction],
    ) -> Option<usize> {
        if input.is_empty() {
            self.request_done(transactions);
            return None;
        }
        let (line, end) = match memchr::memchr(b'\n', input) {
            Some(end) => (&input[..end], end + 1),
            None if closed => (input, input.len()),
            None => {
                if input.len() > MAX_LINE_LEN {
                    self.request.state = State::Ignore;
                }
                return None;
            }
        };
        let text = &line[line.iter().position(|&octet| !is_space(octet)).unwrap_or(line.len())..];
        let method = &text[..text.iter().position(|&octet| is_space(octet)).unwrap_or(text.len())];
        if is_known_method(method) {
            self.request_done(transactions);
            return Some(0);
        }
        self.request_body(&input[..end], transactions);
        Some(end)
    }

    fn request_body(&mut self, octets: &[u8], transactions: &mut [Transaction]) {
        add(&mut self.request.body, octets, self.limit);
        if self.request.body.octets.len() >= self.limit {
            self.add_request_body(transactions);
        }
    }

    fn request_done(&mut self, transactions: &mut [Transaction]) {
        self.add_request_body(transactions);
        if let Some(exchange) = self.exchanges.get(self.requested)
            && let Some(transaction) = transactions.get_mut(exchange.at)
        {
            transaction.done[0] = true;
        }
        self.request.state = State::Line;
    }

    fn add_request_body(&mut self, transactions: &mut [Transaction]) {
        let body = &mut self.request.body;
        if body.is_complete || body.octets.is_empty() {
            return;
        }
        body.is_complete = true;
        let octets = std::mem::take(&mut body.octets);
        let Some(exchange) = self.exchanges.get(self.requested) else { return };
        let Some(transaction) = transactions.get_mut(exchange.at) else { return };
        let octets = decompressed(&exchange.request_encoding, octets, self.limit);
        let boundary = exchange.request.get("content-type").and_then(multipart_boundary);
        match (&exchange.method[..], boundary) {
            (b"POST", Some(boundary)) => {
                for (name, file) in files_of_form(&octets, &boundary) {
                    add_file(End::Client, name, file, transaction);
                }
            }
            (b"POST" | b"PUT", _) => {
                add_file(End::Client, exchange.path.clone(), octets.clone(), transaction)
            }
            _ => {}
        }
        transaction.buffers.push((Buffer::HttpRequestBody, End::Client, octets));
    }
}

/// Parsing of responses.
impl Http {
    fn read_response(&mut self, closed: bool, transactions: &mut Vec<Transaction>) {
        let mut pending = std::mem::take(&mut self.response.pending);
        let mut at = 0;
        while let Some(taken) = self.response_step(&pending[at..], closed, transactions) {
            at += taken;
        }
        if self.response.state == State::Ignore {
            pending.clear();
        } else {
            pending.drain(..at);
        }
        self.response.pending = pending;
        if closed {
            self.response.pending.clear();
            if self.response.state != State::Line || !self.response.body.octets.is_empty() {
                self.response_done(transactions);
                self.response.state = State::Ignore;
            }
        }
    }

    fn response_step(
        &mut self,
        input: &[u8],
        closed: bool,
        transactions: &mut Vec<Transaction>,
    ) -> Option<usize> {
        match self.response.state {
            State::Line => self.status_line(input, closed, transactions),
            State::Headers => {
                let (end, block) = match end_of_headers(input, By::Server) {
                    Some(end) => (end, &input[..end]),
                    None if closed && !input.is_empty() => (input.len(), input),
                    None => {
                        if input.len() > MAX_HEADERS_LEN {
                            self.response.state = State::Ignore;
                        }
                        return None;
                    }
                };
                self.response_headers(block, transactions);
                Some(end)
            }
            State::Identity => {
                let taken = take(&mut self.response.left, input)?;
                self.response_body(&input[..taken], transactions);
                if self.response.left == 0 {
                    self.response.state = State::Finalize;
                }
                Some(taken)
            }
            State::UntilClose => {
                if input.is_empty() {
                    return None;
                }
                self.response_body(input, transactions);
                Some(input.len())
            }
            State::ChunkLength => {
                let Some(line) = memchr::memchr(b'\n', input) else {
                    // If this cannot be a chunk length, treat the body as not chunked.
                    if input.iter().any(|&octet| !is_space(octet))
                        && !trimmed(input).first().is_some_and(u8::is_ascii_hexdigit)
                    {
                        self.response.state = State::UntilClose;
                        return Some(0);
                    }
                    return None;
                };
                match chunk_length(&input[..=line]) {
                    ChunkLength::Empty => {}
                    ChunkLength::Is(0) => self.response.state = State::Trailer,
                    ChunkLength::Is(length) => {
                        self.response.left = length;
                        self.response.state = State::ChunkData;
                    }
                    ChunkLength::Invalid => {
                        self.response.state = State::UntilClose;
                        return Some(0);
                    }
                }
                Some(line + 1)
            }
            State::ChunkData => {
                let taken = take(&mut self.response.left, input)?;
                self.response_body(&input[..taken], transactions);
                if self.response.left == 0 {
                    self.response.state = State::ChunkEnd;
                }
                Some(taken)
            }
            State::ChunkEnd => {
                let line = memchr::memchr(b'\n', input)? + 1;
                self.response.state = State::ChunkLength;
                Some(line)
            }
            State::Trailer => {
                let end = end_of_headers(input, By::Server)?;
                self.trailer(End::Server, &input[..end], transactions);
                self.response.state = State::Finalize;
                Some(end)
            }
            State::Finalize => {
                if input.is_empty() {
                    self.response_done(transactions);
                    return None;
                }
                let end = match memchr::memchr(b'\n', input) {
                    Some(end) => end + 1,
                    None if closed => input.len(),
                    None => {
                        if input.len() > MAX_LINE_LEN {
                            self.response.state = State::Ignore;
                        }
                        return None;
                    }
                };
                if looks_like_status_line(&input[..end]) {
                    self.response_done(transactions);
                    return Some(0);
                }
                self.response_body(&input[..end], transactions);
                Some(end)
            }
            State::WaitForResponse | State::Ignore => None,
        }
    }

    fn status_line(
        &mut self,
        input: &[u8],
        closed: bool,
        transactions: &mut Vec<Transaction>,
    ) -> Option<usize> {
        let end = match input.iter().position(|&octet| octet == b'\r' || octet == b'\n') {
            Some(end) if input[end] == b'\n' => end + 1,
            Some(end) if input.get(end + 1) == Some(&b'\n') => end + 2,
            Some(end) if end + 1 < input.len() || closed => end + 1,
            None if closed && !input.is_empty() => input.len(),
            _ => {
                if input.len() > MAX_LINE_LEN {
                    self.response.state = State::Ignore;
                }
                return None;
            }
        };
        let line = &input[..end];
        if chomped(line).is_empty() {
            return Some(end);
        }
        if self.responded >= self.exchanges.len() {
            if self.exchanges.len() >= MAX_TRANSACTIONS {
                self.response.state = State::Ignore;
                return None;
            }
            // This is a response without a request.
            let unsolicited = Exchange {
                at: transactions.len(),
                path: b"/libhtp::request_uri_not_seen".to_vec(),
                ..Exchange::default()
            };
            self.exchanges.push(unsolicited);
            let mut transaction = Transaction::default();
            transaction.done[0] = true;
            event(End::Server, "http.unable_to_match_response_to_request", &mut transaction);
            transactions.push(transaction);
        }
        if !looks_like_status_line(line) {
            let after = &input[end..];
            if after.len() > 1 && (after[0] == b'H' || chomped(line).len() <= 2) {
                return Some(end);
            }
            self.response_body(line, transactions);
            return Some(end);
        }
        let exchange = self.exchanges.get_mut(self.responded)?;
        let transaction = transactions.get_mut(exchange.at)?;
        let line = chomped(line);
        // Drop the buffers of an interim response.
        transaction.buffers.retain(|(buffer, end, _)| {
            *end != End::Server
                || !matches!(
                    buffer,
                    Buffer::HttpResponseLine
                        | Buffer::HttpProtocol
                        | Buffer::HttpStatusCode
                        | Buffer::HttpStatusMessage
                )
        });
        let mut add_buffer = |buffer, octets: &[u8]| {
            if !octets.is_empty() {
                transaction.buffers.push((buffer, End::Server, octets.to_vec()));
            }
        };
        add_buffer(Buffer::HttpResponseLine, line);
        let text = &line
            [line.iter().position(|&octet| !is_space(octet) && octet != 0).unwrap_or(line.len())..];
        let (protocol, rest) = split_at_space(text);
        add_buffer(Buffer::HttpProtocol, protocol);
        let (code, rest) = split_at_space(rest);
        add_buffer(Buffer::HttpStatusCode, code);
        add_buffer(Buffer::HttpStatusMessage, rest);
        exchange.status = std::str::from_utf8(code)
            .ok()
            .and_then(|code| code.parse().ok())
            .filter(|code| (100..=999).contains(code));
        if let Some(status) = exchange.status {
            number(End::Server, "http.stat_code", u64::from(status), transaction);
        }
        exchange.has_status_line = true;
        self.response.state = State::Headers;
        Some(end)
    }

    fn response_headers(&mut self, block: &[u8], transactions: &mut [Transaction]) {
        let Some(exchange) = self.exchanges.get_mut(self.responded) else { return };
        if !exchange.response.read(block, By::Server) {
            return self.fail();
        }
        let status = exchange.status.unwrap_or(0);
        let is_coded = exchange.response.get("transfer-encoding").is_some();
        let length = exchange.response.get("content-length").map(content_length);
        if status == 100 && !is_coded && !matches!(length, Some(Some(1..))) {
            exchange.response = Headers::default();
            self.response.state = State::Line;
            return;
        }
        let Some(transaction) = transactions.get_mut(exchange.at) else { return };
        let is_chunked = exchange
            .response
            .get("transfer-encoding")
            .is_some_and(|coding| contains_caseless(coding, b"chunked"));
        let has_none = exchange.method == b"HEAD"
            || ((100..200).contains(&status) || status == 204 || status == 304)
                && !is_coded
                && length.is_none();
        let is_error = !has_none && !is_chunked && length == Some(None);
        if !is_error {
            add_headers(End::Server, &exchange.response, block, transaction);
        }
        add_common_headers(End::Server, &exchange.response, transaction);
        for (name, buffer) in [
            ("set-cookie", Buffer::HttpCookie),
            ("server", Buffer::HttpServer),
            ("location", Buffer::HttpLocation),
        ] {
            add_header(End::Server, &exchange.response, name, buffer, transaction);
        }
        if exchange.method == b"CONNECT" && (200..300).contains(&status) {
            self.response_done(transactions);
            self.tunnel(None);
            return;
        }
        if status == 101 && !is_coded && length.is_none() {
            let upgrade = exchange.response.get("upgrade").unwrap_or_default();
            let to = if contains_caseless(upgrade, b"h2c") {
                Some(Application::Http2)
            } else if contains_caseless(upgrade, b"websocket") {
                Some(Application::WebSocket)
            } else {
                None
            };
            self.response_done(transactions);
            self.tunnel(to);
            return;
        }
        if is_error {
            return self.fail();
        }
        self.response.state = if has_none {
            State::Finalize
        } else if is_chunked {
            State::ChunkLength
        } else {
            match length {
                Some(Some(0)) => State::Finalize,
                Some(Some(length)) => {
                    self.response.left = length;
                    State::Identity
                }
                Some(None) | None => State::UntilClose,
            }
        };
    }

    fn response_body(&mut self, octets: &[u8], transactions: &mut [Transaction]) {
        add(&mut self.response.body, octets, self.limit);
        if self.response.body.octets.len() >= self.limit {
            self.add_response_body(transactions);
        }
    }

    fn response_done(&mut self, transactions: &mut [Transaction]) {
        self.add_response_body(transactions);
        if let Some(exchange) = self.exchanges.get(self.responded) {
            if let Some(transaction) = transactions.get_mut(exchange.at) {
                transaction.done[1] = true;
            }
            self.responded += 1;
        }
        self.response.body = Body::default();
        self.response.state = State::Line;
    }

    fn add_response_body(&mut self, transactions: &mut [Transaction]) {
        let body = &mut self.response.body;
        if body.is_complete || body.octets.is_empty() {
            return;
        }
        body.is_complete = true;
        let octets = std::mem::take(&mut body.octets);
        let Some(exchange) = self.exchanges.get(self.responded) else { return };
        let Some(transaction) = transactions.get_mut(exchange.at) else { return };
        let octets = if exchange.has_status_line {
            let encoding =
                exchange.response.get("content-encoding").unwrap_or_default().to_ascii_lowercase();
            decompressed(&encoding, octets, self.limit)
        } else {
            octets
        };
        let name = exchange
            .response
            .get("content-disposition")
            .and_then(|disposition| parameter(disposition, b"filename="))
            .unwrap_or_else(|| exchange.path.clone());
        add_file(End::Server, name, octets.clone(), transaction);
        transaction.buffers.push((Buffer::HttpResponseBody, End::Server, octets));
    }
}

impl Http {
    fn tunnel(&mut self, to: Option<Application>) {
        self.request.state = State::Ignore;
        self.response.state = State::Ignore;
        self.switched = Some(to);
    }

    /// After an error, neither direction is parsed further.
    fn fail(&mut self) {
        self.request.state = State::Ignore;
        self.response.state = State::Ignore;
    }

    fn trailer(&mut self, from: End, block: &[u8], transactions: &mut [Transaction]) {
        let (at, by) = match from {
            End::Client => (self.requested, By::Client),
            End::Server => (self.responded, By::Server),
        };
        let mut headers = Headers::default();
        if !headers.read(block, by) || headers.list.is_empty() {
            return;
        }
        if let Some(transaction) =
            self.exchanges.get(at).and_then(|exchange| transactions.get_mut(exchange.at))
        {
            transaction.buffers.push((Buffer::HttpTrailer, from, block.to_vec()));
        }
    }
}

fn add_headers(from: End, headers: &Headers, raw: &[u8], transaction: &mut Transaction) {
    let cookie: &[u8] = if from == End::Client { b"cookie" } else { b"set-cookie" };
    let one = match from {
        End::Client => Buffer::HttpRequestHeader,
        End::Server => Buffer::HttpResponseHeader,
    };
    let line = transaction
        .buffers
        .iter()
        .rev()
        .find(|(buffer, end, _)| {
            *end == from && matches!(buffer, Buffer::HttpRequestLine | Buffer::HttpResponseLine)
        })
        .map(|(_, _, line)| line.clone());
    let mut start = line.unwrap_or_default();
    start.extend_from_slice(b"\r\n");
    let (mut joined, mut names) = (vec![], vec![]);
    for header in &headers.list {
        let line = [&header.name[..], b": ", &header.value].concat();
        start.extend_from_slice(&line);
        start.extend_from_slice(b"\r\n");
        names.extend_from_slice(b"\r\n");
        names.extend_from_slice(&header.name);
        if !header.name.eq_ignore_ascii_case(cookie) {
            joined.extend_from_slice(&line);
            joined.extend_from_slice(b"\r\n");
        }
        transaction.buffers.push((one, from, line));
    }
    if !headers.list.is_empty() {
        start.extend_from_slice(b"\r\n");
        names.extend_from_slice(b"\r\n\r\n");
    }
    for (buffer, octets) in [
        (Buffer::HttpStart, start),
        (Buffer::HttpHeader, joined),
        (Buffer::HttpRawHeader, raw.to_vec()),
        (Buffer::HttpHeaderNames, names),
    ] {
        if !octets.is_empty() {
            transaction.buffers.push((buffer, from, octets));
        }
    }
    number(from, "http.header_cnt", headers.list.len() as u64, transaction);
}

/// Adds the buffers of header fields that both ends may send.
fn add_common_headers(from: End, headers: &Headers, transaction: &mut Transaction) {
    for (name, buffer) in [
        ("content-type", Buffer::HttpContentType),
        ("content-length", Buffer::HttpContentLength),
        ("connection", Buffer::HttpConnection),
    ] {
        add_header(from, headers, name, buffer, transaction);
    }
}

fn add_header(
    from: End,
    headers: &Headers,
    name: &str,
    buffer: Buffer,
    transaction: &mut Transaction,
) {
    if let Some(value) = headers.get(name).filter(|value| !value.is_empty()) {
        transaction.buffers.push((buffer, from, value.to_vec()));
    }
}

fn add_file(from: End, name: Vec<u8>, octets: Vec<u8>, transaction: &mut Transaction) {
    number(from, "file.size", octets.len() as u64, transaction);
    if !name.is_empty() {
        transaction.buffers.push((Buffer::FileName, from, name));
    }
    transaction.buffers.push((Buffer::FileData, from, octets));
}

/// Splits the text after the method into URI and protocol: at the last blank (before Suricata 8,
/// the first), or if there is no blank, at other white space.
fn uri_and_protocol(rest: &[u8], engine: EngineVersion) -> (&[u8], &[u8]) {
    let is_last = engine == EngineVersion::Suricata8;
    let position = |is: &dyn Fn(&u8) -> bool| match is_last {
        true => rest.iter().rposition(is),
        false => rest.iter().position(is),
    };
    let (uri, protocol) = match position(&|octet| *octet == b' ') {
        Some(blank) => (&rest[..blank], &rest[blank..]),
        None => match position(&|octet| is_space(*octet)) {
            Some(space) => (&rest[..space], &rest[space..]),
            None => (rest, &[][..]),
        },
    };
    (trimmed(uri), trimmed(protocol))
}

/// Splits off the first word and the white space after it.
fn split_at_space(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|&octet| is_space(octet)).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    (word, &rest[rest.iter().position(|&octet| !is_space(octet)).unwrap_or(rest.len())..])
}

fn looks_like_status_line(line: &[u8]) -> bool {
    let start = line.iter().position(|&octet| !is_space(octet) && octet != 0).unwrap_or(line.len());
    line[start..].get(..4).is_some_and(|word| word.eq_ignore_ascii_case(b"http"))
}

fn is_known_method(method: &[u8]) -> bool {
    const KNOWN: [&str; 29] = [
        "GET",
        "PUT",
        "POST",
        "DELETE",
        "CONNECT",
        "OPTIONS",
        "TRACE",
        "PATCH",
        "PROPFIND",
        "PROPPATCH",
        "MKCOL",
        "COPY",
        "MOVE",
        "LOCK",
        "UNLOCK",
        "VERSION-CONTROL",
        "CHECKOUT",
        "UNCHECKOUT",
        "CHECKIN",
        "UPDATE",
        "LABEL",
        "REPORT",
        "MKWORKSPACE",
        "MKACTIVITY",
        "BASELINE-CONTROL",
        "MERGE",
        "INVALID",
        "HEAD",
        "ERROR",
    ];
    KNOWN.iter().any(|known| known.as_bytes() == method)
}

fn chomped(line: &[u8]) -> &[u8] {
    let end =
        line.iter().rposition(|octet| !matches!(octet, b'\r' | b'\n')).map_or(0, |last| last + 1);
    &line[..end]
}

/// The first number in `value`, ignoring the text around it.
fn content_length(value: &[u8]) -> Option<u64> {
    let start = value.iter().position(u8::is_ascii_digit)?;
    let digits = &value[start..];
    let end = digits.iter().position(|octet| !octet.is_ascii_digit()).unwrap_or(digits.len());
    std::str::from_utf8(&digits[..end]).ok()?.parse().ok()
}

enum ChunkLength {
    /// There is only white space.
    Empty,
    Is(u64),
    Invalid,
}

fn chunk_length(line: &[u8]) -> ChunkLength {
    let text = trimmed(line);
    if text.is_empty() {
        return ChunkLength::Empty;
    }
    let end = text.iter().position(|octet| !octet.is_ascii_hexdigit()).unwrap_or(text.len());
    let digits = std::str::from_utf8(&text[..end]).unwrap_or_default();
    match u64::from_str_radix(digits, 16) {
        Ok(length) if length <= i32::MAX as u64 => ChunkLength::Is(length),
        _ => ChunkLength::Invalid,
    }
}

/// Consumes up to `left` octets of `input` and returns their number; `None` if there are none.
fn take(left: &mut u64, input: &[u8]) -> Option<usize> {
    let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
    *left -= taken as u64;
    (taken > 0).then_some(taken)
}

fn add(body: &mut Body, octets: &[u8], limit: usize) {
    if !body.is_complete {
        let room = limit.saturating_sub(body.octets.len());
        body.octets.extend_from_slice(&octets[..octets.len().min(room)]);
    }
}

fn contains_caseless(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window.eq_ignore_ascii_case(word))
}

/// Decompresses a body. Data that cannot be decompressed is returned unchanged.
fn decompressed(encoding: &[u8], body: Vec<u8>, limit: usize) -> Vec<u8> {
    let mut body = body;
    let layers =
        encoding.split(|&octet| octet == b',' || octet == b' ').filter(|name| !name.is_empty());
    // Encodings are listed in the order of application (RFC 9110 §8.4), so undo the last one first.
    let layers: Vec<&[u8]> = layers.take(MAX_LAYERS).collect();
    for name in layers.iter().rev() {
        let is_gzip = contains_caseless(name, b"gzip");
        if is_gzip || contains_caseless(name, b"deflate") {
            body = inflated(&body, is_gzip, limit);
        }
    }
    body
}

/// Tries gzip, zlib and raw deflate: senders confuse the three.
fn inflated(body: &[u8], is_gzip: bool, limit: usize) -> Vec<u8> {
    let read = |reader: &mut dyn std::io::Read| {
        let mut out = vec![];
        // Output from before an error is kept.
        let _ = reader.take(limit as u64).read_to_end(&mut out);
        out
    };
    let gzip = || read(&mut flate2::read::MultiGzDecoder::new(body));
    let zlib = || read(&mut flate2::read::ZlibDecoder::new(body));
    let raw = || read(&mut flate2::read::DeflateDecoder::new(body));
    let tries: [&dyn Fn() -> Vec<u8>; 3] =
        if is_gzip { [&gzip, &zlib, &raw] } else { [&zlib, &raw, &gzip] };
    for unpack in tries {
        let out = unpack();
        if !out.is_empty() {
            return out;
        }
    }
    body.to_vec()
}

fn multipart_boundary(content_type: &[u8]) -> Option<Vec<u8>> {
    if !content_type
        .get(..19)
        .is_some_and(|start| start.eq_ignore_ascii_case(b"multipart/form-data"))
    {
        return None;
    }
    parameter(content_type, b"boundary=")
        .filter(|boundary| !boundary.is_empty() && boundary.len() <= MAX_BOUNDARY_LEN)
}

/// The value of `name=value` or `name="value"`. `name` includes the equals sign.
fn parameter(value: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    let at = value.windows(name.len()).position(|window| window.eq_ignore_ascii_case(name))?;
    let rest = &value[at + name.len()..];
    let found = match rest.strip_prefix(b"\"") {
        Some(quoted) => &quoted[..memchr::memchr(b'"', quoted)?],
        None => {
            &rest[..rest
                .iter()
                .position(|&octet| octet == b';' || is_space(octet))
                .unwrap_or(rest.len())]
        }
    };
    Some(found.to_vec())
}

/// Names and contents of the files in a multipart form. Fields without a file name are skipped.
fn files_of_form(body: &[u8], boundary: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let delimiter = [b"--", boundary].concat();
    let finder = memchr::memmem::Finder::new(&delimiter);
    let mut files = vec![];
    let mut starts = finder.find_iter(body).peekable();
    while let Some(start) = starts.next() {
        let part = &body[start + delimiter.len()..starts.peek().copied().unwrap_or(body.len())];
        if part.starts_with(b"--") {
            break;
        }
        let Some(end) = memchr::memmem::find(part, b"\r\n\r\n") else { continue };
        let mut headers = Headers::default();
        headers.read(part.get(2..end).unwrap_or_default(), By::Client);
        let Some(name) =
            headers.get("content-disposition").and_then(|value| parameter(value, b"filename="))
        else {
            continue;
        };
        let file = &part[end + 4..];
        let file =
            if starts.peek().is_some() { file.strip_suffix(b"\r\n").unwrap_or(file) } else { file };
        files.push((name, file.to_vec()));
    }
    files
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::*;

    /// Parses the data of both ends in pieces of `size` octets.
    fn read(client: &[u8], server: &[u8], size: usize) -> Vec<Transaction> {
        let mut transactions = vec![];
        let mut reader = Http::new(100 * 1024, EngineVersion::default());
        for piece in client.chunks(size) {
            reader.receive(End::Client, piece, &mut transactions);
        }
        for piece in server.chunks(size) {
            reader.receive(End::Server, piece, &mut transactions);
        }
        reader.end(End::Client, &mut transactions);
        reader.end(End::Server, &mut transactions);
        transactions
    }

    fn buffer(transaction: &Transaction, which: Buffer, from: End) -> String {
        let found =
            transaction.buffers.iter().find(|(buffer, end, _)| *buffer == which && *end == from);
        found.map_or("(none)".into(), |(_, _, octets)| String::from_utf8_lossy(octets).into_owned())
    }

    const REQUEST: &[u8] = b"POST /a//b%20c?d=%41 HTTP/1.1\r\nHost: WWW.Example.com:80\r\nUser-Agent:  x y \r\nCookie: k=v\r\nContent-Length: 5\r\n\r\nhello";

    #[test]
    fn a_request_gives_all_its_buffers() {
        let transactions = read(REQUEST, b"", 4096);
        assert_eq!(transactions.len(), 1);
        for (which, expected) in [
            (Buffer::HttpMethod, "POST"),
            (Buffer::HttpUri, "/a/b c?d=A"),
            (Buffer::HttpRawUri, "/a//b%20c?d=%41"),
            (Buffer::HttpProtocol, "HTTP/1.1"),
            (Buffer::HttpRequestLine, "POST /a//b%20c?d=%41 HTTP/1.1"),
            (
                Buffer::HttpHeader,
                "Host: WWW.Example.com:80\r\nUser-Agent: x y\r\nContent-Length: 5\r\n",
            ),
            (Buffer::HttpHeaderNames, "\r\nHost\r\nUser-Agent\r\nCookie\r\nContent-Length\r\n\r\n"),
            (Buffer::HttpUserAgent, "x y"),
            (Buffer::HttpCookie, "k=v"),
            (Buffer::HttpHost, "www.example.com"),
            (Buffer::HttpRawHost, "WWW.Example.com:80"),
            (Buffer::HttpContentLength, "5"),
            (Buffer::HttpRequestBody, "hello"),
            (Buffer::FileData, "hello"),
            (Buffer::FileName, "/a/b c"),
        ] {
            assert_eq!(buffer(&transactions[0], which, End::Client), expected, "{which:?}");
        }
        let raw = buffer(&transactions[0], Buffer::HttpRawHeader, End::Client);
        assert!(
            raw.starts_with("Host: WWW") && raw.ends_with("5\r\n\r\n") && raw.contains("Cookie")
        );
    }

    #[test]
    fn a_response_gives_all_its_buffers() {
        let response = b"HTTP/1.1 404 Not  Found\r\nServer: s\r\nSet-Cookie: c\r\nContent-Length: 3\r\n\r\nabc";
        let transactions = read(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", response, 4096);
        assert_eq!(transactions.len(), 1);
        for (which, expected) in [
            (Buffer::HttpResponseLine, "HTTP/1.1 404 Not  Found"),
            (Buffer::HttpStatusCode, "404"),
            (Buffer::HttpStatusMessage, "Not  Found"),
            (Buffer::HttpHeader, "Server: s\r\nContent-Length: 3\r\n"),
            (Buffer::HttpCookie, "c"),
            (Buffer::HttpResponseBody, "abc"),
            (Buffer::FileData, "abc"),
            (Buffer::FileName, "/"),
        ] {
            assert_eq!(buffer(&transactions[0], which, End::Server), expected, "{which:?}");
        }
        assert_eq!(transactions[0].done, [true, true]);
    }

    #[test]
    fn a_chunked_and_packed_body_is_put_together_and_unpacked() {
        let mut gzip = flate2::write::GzEncoder::new(vec![], flate2::Compression::default());
        gzip.write_all(b"plain text of it").unwrap();
        let packed = gzip.finish().unwrap();
        let mut response =
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n\r\n"
                .to_vec();
        for piece in packed.chunks(7) {
            response.extend(format!("{:x};ext\r\n", piece.len()).bytes());
            response.extend(piece);
            response.extend(b"\r\n");
        }
        response.extend(b"0\r\n\r\n");
        let transactions = read(b"GET / HTTP/1.1\r\n\r\n", &response, 4096);
        assert_eq!(buffer(&transactions[0], Buffer::FileData, End::Server), "plain text of it");
    }

    #[test]
    fn requests_and_responses_in_a_row_belong_together_in_their_order() {
        let transactions = read(
            b"GET /1 HTTP/1.1\r\n\r\nHEAD /2 HTTP/1.1\r\n\r\nGET /3 HTTP/1.1\r\n\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 A\r\n\r\nHTTP/1.1 200 B\r\nContent-Length: 9\r\n\r\nHTTP/1.1 200 C\r\n\r\nrest",
            4096,
        );
        assert_eq!(transactions.len(), 3);
        let letter =
            |index: usize| buffer(&transactions[index], Buffer::HttpStatusMessage, End::Server);
        assert_eq!([letter(0), letter(1), letter(2)], ["A", "B", "C"]);
        assert_eq!(buffer(&transactions[2], Buffer::HttpResponseBody, End::Server), "rest");
    }

    #[test]
    fn data_that_arrives_with_a_request_and_is_not_a_request_is_its_body() {
        let transactions = read(b"GET / HTTP/1.0\r\n\r\nmore of it", b"", 4096);
        assert_eq!(transactions.len(), 1);
        assert_eq!(buffer(&transactions[0], Buffer::HttpRequestBody, End::Client), "more of it");
    }

    #[test]
    fn a_request_line_without_a_protocol_is_http_0_9() {
        let transactions = read(b"GET /a\r\n", b"", 4096);
        assert_eq!(buffer(&transactions[0], Buffer::HttpUri, End::Client), "/a");
        assert_eq!(transactions[0].done, [true, false]);
        let transactions = read(b"GET /a\r\nHost: b\r\n\r\n", b"", 4096);
        assert_eq!(buffer(&transactions[0], Buffer::HttpHost, End::Client), "b");
    }

    #[test]
    fn the_last_blank_ends_the_uri_and_the_first_before_suricata_8() {
        for (engine, uri, protocol) in [
            (EngineVersion::Suricata8, "/a b", "HTTP/1.1"),
            (EngineVersion::Suricata7, "/a", "b HTTP/1.1"),
        ] {
            let mut transactions = vec![];
            let request = b"GET /a b HTTP/1.1\r\n\r\n";
            Http::new(4096, engine).receive(End::Client, request, &mut transactions);
            assert_eq!(buffer(&transactions[0], Buffer::HttpRawUri, End::Client), uri);
            assert_eq!(buffer(&transactions[0], Buffer::HttpProtocol, End::Client), protocol);
        }
    }

    #[test]
    fn an_empty_host_is_none() {
        let transactions = read(b"GET / HTTP/1.1\r\nHost: \r\n\r\n", b"", 4096);
        assert_eq!(buffer(&transactions[0], Buffer::HttpHost, End::Client), "(none)");
        assert_eq!(buffer(&transactions[0], Buffer::HttpHeader, End::Client), "Host: \r\n");
    }

    #[test]
    fn a_length_that_is_no_number_ends_it_before_all_headers_are_there() {
        let transactions = read(
            b"GET /a HTTP/1.1\r\nUser-Agent: u\r\nContent-Length: a\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n\r\n",
            4096,
        );
        assert_eq!(buffer(&transactions[0], Buffer::HttpUri, End::Client), "/a");
        assert_eq!(buffer(&transactions[0], Buffer::HttpUserAgent, End::Client), "u");
        assert_eq!(buffer(&transactions[0], Buffer::HttpHeader, End::Client), "(none)");
        assert_eq!(buffer(&transactions[0], Buffer::HttpStatusCode, End::Server), "(none)");
    }

    #[test]
    fn files_of_a_form_are_found() {
        let body = "--b\r\nContent-Disposition: form-data; \
                    name=\"a\"\r\n\r\nx\r\n--b\r\nContent-Disposition: form-data; name=\"f\"; \
                    filename=\"n.txt\"\r\n\r\nfile\r\n--b--\r\n";
        let request = format!(
            "POST /u HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: \
             {}\r\n\r\n{body}",
            body.len()
        );
        let transactions = read(request.as_bytes(), b"", 4096);
        assert_eq!(buffer(&transactions[0], Buffer::FileData, End::Client), "file");
        assert_eq!(buffer(&transactions[0], Buffer::FileName, End::Client), "n.txt");
        assert_eq!(buffer(&transactions[0], Buffer::HttpRequestBody, End::Client), body);
    }

    #[test]
    fn after_a_granted_connect_any_protocol_may_follow() {
        let mut transactions = vec![];
        let mut reader = Http::new(1024, EngineVersion::default());
        reader.receive(End::Client, b"CONNECT Example.com:443 HTTP/1.1\r\n\r\n", &mut transactions);
        assert_eq!(reader.switched(), None);
        reader.receive(End::Server, b"HTTP/1.1 200 OK\r\n\r\n", &mut transactions);
        assert_eq!(reader.switched(), Some(None));
        assert_eq!(buffer(&transactions[0], Buffer::HttpHost, End::Client), "example.com");
    }

    proptest! {
        #[test]
        fn however_a_stream_is_cut_its_buffers_are_the_same(size in 1usize..200) {
            let response = b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
            let whole = read(REQUEST, response, 4096);
            let cut = read(REQUEST, response, size);
            prop_assert_eq!(whole.len(), cut.len());
            prop_assert_eq!(&whole[0].buffers, &cut[0].buffers);
        }

        #[test]
        fn any_octets_are_read(client in any_octets(), server in any_octets(), size in 1usize..40) {
            let limit = 64;
            let mut transactions = vec![];
            let mut reader = Http::new(limit, EngineVersion::default());
            for (client, server) in client.chunks(size).zip(server.chunks(size)) {
                reader.receive(End::Client, client, &mut transactions);
                reader.receive(End::Server, server, &mut transactions);
            }
            reader.end(End::Client, &mut transactions);
            reader.end(End::Server, &mut transactions);
            for transaction in &transactions {
                prop_assert!(transaction.buffers.iter().all(|(buffer, _, octets)| *buffer != Buffer::FileData || octets.len() <= limit));
            }
        }
    }

    fn any_octets() -> impl Strategy<Value = Vec<u8>> {
        let words = [
            "GET / HTTP/1.1",
            "POST ",
            "HTTP/1.1 200 OK",
            "\r\n",
            "\n",
            "\r",
            " ",
            "Content-Length: 3",
            "Transfer-Encoding: chunked",
            "3",
            "0",
            ":",
            "abc",
            "\0",
            "Content-Encoding: gzip",
        ];
        proptest::collection::vec(
            prop_oneof![
                proptest::sample::select(words.to_vec()).prop_map(|word| word.as_bytes().to_vec()),
                proptest::collection::vec(any::<u8>(), 0..8)
            ],
            0..40,
        )
        .prop_map(|words| words.concat())
    }
}
