//! HTTP/1.1 (RFC 9112) as parsed by Suricata.

use std::io::Write;

use squall_rules::{ApplicationTest, Buffer, End};

use super::{Impossible, Lines, Parts, contains, contains_nocase, find, merged, uri};
use crate::{Octets, Origin, Turn};

/// Suricata's limits: octets per line and in all header lines together (libhtp's field limit), and
/// number of header lines.
const LINE_LIMIT: usize = 18_000;
const LINES_LIMIT: usize = 1_024;
/// Maximum filler for a body whose length is given.
const FILL_LIMIT: usize = 65_536;

/// A request in parts.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: Octets,
    /// The raw URI.
    pub uri: Octets,
    pub protocol: Octets,
    pub lines: Vec<Line>,
    pub body: Octets,
}

/// A response in parts.
#[derive(Clone, Debug)]
pub struct Response {
    pub protocol: Octets,
    pub status: Octets,
    pub message: Octets,
    pub lines: Vec<Line>,
    pub body: Octets,
}

/// A header line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Octets of the line without its end.
    octets: Octets,
    end: Octets,
    /// Whether the value may be continued, because no pattern requires the end of the line.
    open: bool,
}

impl Line {
    pub fn new(name: &str, value: Octets) -> Self {
        let mut octets = Octets::from(name);
        octets.append(&Octets::from(": "));
        octets.append(&value);
        Line::whole(octets)
    }

    /// A complete line, given without its end.
    pub fn whole(octets: Octets) -> Self {
        Line { octets, end: "\r\n".into(), open: false }
    }

    /// The line without its end.
    pub fn octets(&self) -> &Octets {
        &self.octets
    }

    /// The name. Empty if there is no colon.
    pub fn name(&self) -> &[u8] {
        let octets = self.octets.bytes();
        octets
            .iter()
            .position(|&octet| octet == b':')
            .map_or(&[][..], |colon| octets[..colon].trim_ascii())
    }

    pub fn value(&self) -> &[u8] {
        let octets = self.octets.bytes();
        octets
            .iter()
            .position(|&octet| octet == b':')
            .map_or(octets, |colon| &octets[colon + 1..])
            .trim_ascii()
    }

    fn is(&self, name: &[u8]) -> bool {
        self.name().eq_ignore_ascii_case(name)
    }
}

impl Default for Request {
    fn default() -> Self {
        Request {
            method: "GET".into(),
            uri: "/".into(),
            protocol: "HTTP/1.1".into(),
            lines: vec![],
            body: Octets::new(),
        }
    }
}

impl Default for Response {
    fn default() -> Self {
        Response {
            protocol: "HTTP/1.1".into(),
            status: "200".into(),
            message: "OK".into(),
            lines: vec![],
            body: Octets::new(),
        }
    }
}

impl Request {
    /// Builds a request from the parts that the client sends.
    pub fn of(parts: &Parts) -> Result<Self, Impossible> {
        let from = End::Client;
        let mut request = Request::default();
        if parts.style.old {
            request.protocol = "HTTP/1.0".into();
        }
        let mut blocks = Blocks::of(parts, from)?;
        request.body = body(parts, from, &blocks)?;
        let mut has_method = false;
        if let Some(line) =
            blocks.first_line.take().or_else(|| parts.get(Buffer::HttpRequestLine, from).cloned())
        {
            has_method = request.first_line(&line)?;
        }
        if let Some(method) = parts.get(Buffer::HttpMethod, from) {
            request.method = method.clone();
            has_method = true;
        }
        if !has_method && (!request.body.is_empty() || parts.style.posted) {
            request.method = "POST".into();
        }
        if let Some(protocol) = parts.get(Buffer::HttpProtocol, from) {
            request.protocol = protocol.clone();
        }
        request.set_uri(parts)?;
        if let Some(space) = request
            .method
            .bytes()
            .iter()
            .chain(request.uri.bytes())
            .find(|octet| octet.is_ascii_whitespace())
        {
            return Err(Impossible(format!(
                "octet {space:#04x} ends a method or URI and cannot be part of it"
            )));
        }
        request.lines = blocks.lines(
            parts,
            from,
            &mut request.body,
            !request.method.bytes().eq_ignore_ascii_case(b"GET"),
        )?;
        if request.method.len() + request.uri.len() + request.protocol.len() + 2 > LINE_LIMIT {
            return Err(Impossible(format!("a request line has at most {LINE_LIMIT} octets")));
        }
        Ok(request)
    }

    /// Adds a request line or a part of one. Returns whether it contains a method.
    fn first_line(&mut self, line: &Octets) -> Result<bool, Impossible> {
        let octets = line.bytes();
        if contains(octets, b"\n") {
            return Err(Impossible("a request line cannot contain a line feed".into()));
        }
        let words: Vec<_> = words(line);
        let is_method = |word: &Octets| {
            !word.is_empty() && word.bytes().iter().all(|octet| octet.is_ascii_uppercase())
        };
        let is_protocol = |word: &Octets| word.bytes().starts_with(b"HTTP/");
        let has_method =
            words.len() > 1 && is_method(&words[0]) || words.len() == 1 && octets.ends_with(b" ");
        let (method, rest) =
            if has_method { (words.first(), &words[1..]) } else { (None, &words[..]) };
        let (uri, protocol) = match rest {
            [uri @ .., protocol] if is_protocol(protocol) => (uri, Some(protocol)),
            uri => (uri, None),
        };
        if let [_, extra, ..] = uri {
            return Err(Impossible(format!(
                "a request line has three words, but {:?} would be a fourth",
                String::from_utf8_lossy(extra.bytes())
            )));
        }
        if let Some(method) = method {
            self.method = method.clone();
        }
        if let Some(uri) = uri.first() {
            self.uri = uri.clone();
            if !has_method && !uri.bytes().starts_with(b"/") && !octets.starts_with(b" ") {
                let mut rooted = Octets::from("/");
                rooted.append(uri);
                self.uri = rooted;
            }
        }
        if let Some(protocol) = protocol {
            self.protocol = protocol.clone();
        }
        Ok(has_method)
    }

    fn set_uri(&mut self, parts: &Parts) -> Result<(), Impossible> {
        let normalized = parts.get(Buffer::HttpUri, End::Client);
        let raw = parts.get(Buffer::HttpRawUri, End::Client);
        let given = self.uri.origins() != Octets::from("/").origins() || self.uri.len() > 1;
        let suffix = parts.tests.iter().find_map(|test| match test {
            ApplicationTest::FileExtension { is, negated: false } => Some(is),
            _ => None,
        });
        self.uri = match (normalized, raw) {
            (Some(normalized), None)
                if given && contains(&uri::read(self.uri.bytes()), normalized.bytes()) =>
            {
                return Ok(());
            }
            (Some(normalized), None) if given => uri::of_both(normalized, &self.uri)?,
            (Some(normalized), None) if parts.style.escaped => {
                uri::escaped(&uri::written(normalized)?)
            }
            (Some(normalized), None) => uri::written(normalized).or_else(|impossible| {
                // Engines do not normalize the text after a question mark. Insert one between two
                // patterns.
                let room =
                    |at: &usize| !are_one(normalized.origins()[at - 1], normalized.origins()[*at]);
                let queried = |at: usize| {
                    let mut all = normalized.slice(0..at);
                    all.append(&"?".into());
                    all.append(&normalized.slice(at..normalized.len()));
                    uri::written(&all).ok()
                };
                (1..normalized.len()).filter(room).find_map(queried).ok_or(impossible)
            })?,
            (Some(normalized), Some(raw)) => uri::of_both(normalized, raw)?,
            (None, Some(raw)) => raw.clone(),
            (None, None) if given => return Ok(()),
            (None, None) => {
                let mut uri = Octets::from("/");
                if let Some(name) = parts.get(Buffer::FileName, End::Client) {
                    let name = name
                        .bytes()
                        .strip_prefix(b"/")
                        .map_or_else(|| name.clone(), |_| name.slice(1..name.len()));
                    uri.append(&uri::written(&name)?);
                } else if let Some(suffix) = suffix
                    && !parts.sends(End::Server)
                {
                    uri.append(&Octets::from("file"));
                    uri.append(&Octets::from(format!(".{suffix}").as_str()));
                }
                uri
            }
        };
        Ok(())
    }

    /// The encoded request.
    pub fn octets(&self) -> Octets {
        let mut all = self.method.clone();
        all.append(&Octets::from(" "));
        all.append(&self.uri);
        all.append(&Octets::from(" "));
        all.append(&self.protocol);
        finish(all, &self.lines, &self.body)
    }
}

impl Response {
    /// Builds a response from the parts that the server sends.
    pub fn of(parts: &Parts) -> Result<Self, Impossible> {
        let from = End::Server;
        let mut response = Response::default();
        if parts.style.old {
            response.protocol = "HTTP/1.0".into();
        }
        let mut blocks = Blocks::of(parts, from)?;
        response.body = body(parts, from, &blocks)?;
        if let Some(line) =
            blocks.first_line.take().or_else(|| parts.get(Buffer::HttpResponseLine, from).cloned())
        {
            response.first_line(&line)?;
        }
        if let Some(protocol) = parts.get(Buffer::HttpProtocol, from) {
            response.protocol = protocol.clone();
        }
        for test in &parts.tests {
            if let ApplicationTest::HttpStatusCode(codes) = test {
                let code = [200, 404, 302, 500]
                    .into_iter()
                    .find(|&code| codes.contains(code))
                    .or(codes.at_least(100));
                let code = code.filter(|&code| code < 1000);
                let code =
                    code.ok_or_else(|| Impossible("no status of three digits is allowed".into()))?;
                response.status = Octets::framing(code.to_string());
            }
        }
        if let Some(status) = parts.get(Buffer::HttpStatusCode, from) {
            response.status = status.clone();
        }
        match parts.get(Buffer::HttpStatusMessage, from) {
            Some(message) => response.message = message.clone(),
            None if response.message.bytes() == b"OK" => {
                response.message = reason(response.status.bytes()).into()
            }
            None => {}
        }
        if let Some(location) = redirect(response.status.bytes())
            && parts.get(Buffer::HttpLocation, from).is_none()
            && !blocks.lines.iter().any(|line| line.is(b"Location"))
        {
            blocks.lines.push(Line::new("Location", location.into()));
        }
        let bodyless = matches!(response.status.bytes(), [b'1', _, _] | b"204" | b"304");
        if bodyless && !response.body.is_empty() {
            return Err(Impossible(format!(
                "a response with status {} has no body",
                String::from_utf8_lossy(response.status.bytes())
            )));
        }
        if !bodyless && response.body.is_empty() && body_is_free(parts) {
            response.body = Octets::of("<html><body></body></html>\n", Origin::Framing);
        }
        response.lines = blocks.lines(parts, from, &mut response.body, !bodyless)?;
        Ok(response)
    }

    fn first_line(&mut self, line: &Octets) -> Result<(), Impossible> {
        if contains(line.bytes(), b"\n") {
            return Err(Impossible("a status line cannot contain a line feed".into()));
        }
        let words = words(line);
        let is_status =
            |word: &Octets| word.len() == 3 && word.bytes().iter().all(u8::is_ascii_digit);
        let mut rest = &words[..];
        if let [protocol, tail @ ..] = rest
            && protocol.bytes().starts_with(b"HTTP/")
        {
            self.protocol = protocol.clone();
            rest = tail;
        }
        if let [status, tail @ ..] = rest
            && is_status(status)
        {
            self.status = status.clone();
            self.message = reason(status.bytes()).into();
            rest = tail;
        }
        if let [first, ..] = rest {
            // Keep the blanks within the reason phrase.
            let at = line.len() - rest.iter().map(Octets::len).sum::<usize>() - (rest.len() - 1);
            self.message =
                if line.bytes().get(at..).is_some_and(|tail| tail.starts_with(first.bytes())) {
                    line.slice(at..line.len())
                } else {
                    first.clone()
                };
        }
        Ok(())
    }

    /// The encoded response.
    pub fn octets(&self) -> Octets {
        let mut all = self.protocol.clone();
        all.append(&Octets::from(" "));
        all.append(&self.status);
        if !self.message.is_empty() {
            all.append(&Octets::from(" "));
            all.append(&self.message);
        }
        finish(all, &self.lines, &self.body)
    }
}

/// A request and its response.
pub(super) fn conversation(parts: &Parts) -> Result<Vec<Turn>, Impossible> {
    let request = Request::of(parts)?;
    let mut turns = vec![Turn::new(End::Client, request.octets())];
    if !parts.style.unanswered || parts.sends(End::Server) {
        turns.push(Turn::new(End::Server, Response::of(parts)?.octets()));
    }
    Ok(turns)
}

/// Header lines, given completely or in part.
struct Blocks<'p> {
    parts: &'p Parts,
    from: End,
    /// The given request line or status line, or a part of it.
    first_line: Option<Octets>,
    lines: Vec<Line>,
    /// All header names are given, so no others may be added.
    complete: bool,
}

impl<'p> Blocks<'p> {
    fn of(parts: &'p Parts, from: End) -> Result<Self, Impossible> {
        let mut blocks = Blocks { parts, from, first_line: None, lines: vec![], complete: false };
        for start in parts.all(Buffer::HttpStart, from) {
            let end = find(start.bytes(), b"\r\n");
            let first = &start.bytes()[..end.unwrap_or(start.len())];
            let is_first = match from {
                End::Client => contains(first, b" HTTP/") || begins_with_a_method(first),
                End::Server => first.starts_with(b"HTTP/"),
            };
            match end {
                _ if !is_first => blocks.take(start, View::AsSent)?,
                None => blocks.first_line = Some(start.clone()),
                Some(end) => {
                    blocks.first_line = Some(start.slice(0..end));
                    blocks.take(&start.slice(end + 2..start.len()), View::AsSent)?;
                }
            }
        }
        for buffer in [
            Buffer::HttpHeader,
            Buffer::HttpRawHeader,
            Buffer::HttpRequestHeader,
            Buffer::HttpResponseHeader,
        ] {
            for block in parts.all(buffer, from) {
                let seen = match buffer {
                    Buffer::HttpRawHeader => View::AsSent,
                    Buffer::HttpHeader => View::WithoutCookies,
                    _ => View::Normalized,
                };
                blocks.take(block, seen)?;
            }
        }
        for payload in parts.all(Buffer::Payload, from).chain(parts.all(Buffer::RawPayload, from)) {
            if is_lines(payload.bytes()) {
                blocks.take(payload, View::AsSent)?;
            }
        }
        if let Some(names) = parts.get(Buffer::HttpHeaderNames, from) {
            blocks.take_names(names)?;
        }
        Ok(blocks)
    }

    /// Adds a block of header lines and completes it.
    fn take(&mut self, block: &Octets, seen: View) -> Result<(), Impossible> {
        if block.is_empty()
            || self.lines.iter().any(|line| contains(line.octets.bytes(), block.bytes()))
        {
            return Ok(());
        }
        let normalized = seen != View::AsSent;
        let block = if normalized { &with_carriage_returns(block) } else { block };
        let mut pieces = divided(split(block), normalized, self.parts.style.spaced);
        // The empty line at the end of the header is added later.
        let closed = pieces.last().is_some_and(|(piece, _)| piece.is_empty());
        if closed {
            pieces.pop();
        }
        let count = pieces.len();
        let mut before: Option<Octets> = None;
        for (at, (piece, end)) in pieces.into_iter().enumerate() {
            let required_before = before.as_ref().and_then(required_by);
            let required_after = end.as_ref().and_then(required_by);
            if piece.is_empty() {
                // Whether one pattern requires the octets on both sides of the line end.
                let one = required_before.is_some() && required_before == required_after;
                match at {
                    // The block starts with a line end.
                    0 => {
                        if self.lines.is_empty() {
                            let filler = self.filler(block);
                            self.lines.push(filler);
                        }
                        if let (Some(line), Some(end)) = (self.lines.last_mut(), end.clone()) {
                            line.end = end;
                        }
                    }
                    _ if one && normalized => {
                        return Err(Impossible(
                            "http.header does not contain the empty line after the header".into(),
                        ));
                    }
                    _ if at + 1 == count => {}
                    _ if one => {
                        return Err(Impossible(
                            "an empty line ends the header and cannot be part of it".into(),
                        ));
                    }
                    // Two patterns are adjacent here, so a line may be inserted between them.
                    _ => {
                        let mut filler = self.filler(block);
                        filler.end = end.clone().unwrap_or(filler.end);
                        self.lines.push(filler);
                    }
                }
                before = end;
                continue;
            }
            let last = piece.origins().last().copied();
            let open = end.is_none() || required_after.is_none() || required_after != last;
            let mut line = complete(&piece, at == 0, open, normalized)?;
            line.open = end.is_none();
            let is_cookie =
                line.is(b"Cookie") && self.from == End::Client || line.is(b"Set-Cookie");
            if seen == View::WithoutCookies && is_cookie {
                if required_before.is_some() {
                    return Err(Impossible("http.header does not contain cookies".into()));
                }
                // Prefix the name: the line is no cookie then, and still ends in the required
                // octets.
                let mut octets = Octets::from("X-");
                octets.append(&line.octets);
                line.octets = octets;
            }
            if let Some(end) = &end {
                line.end = end.clone();
            }
            let again =
                self.lines.iter().any(|there| !line.name().is_empty() && there.is(line.name()));
            if again && (seen == View::AsSent || line.is(b"Set-Cookie")) {
                self.lines.push(line);
            } else if let Err(impossible) = self.add(line.clone()) {
                // Prefix the name. This is impossible if a pattern requires the octets before it.
                if required_before.is_some() {
                    return Err(impossible);
                }
                let mut octets = Octets::from("X-");
                octets.append(&line.octets);
                line.octets = octets;
                self.add(line)?;
            }
            before = end;
        }
        Ok(())
    }

    /// A header line that is neither required nor unwanted.
    fn filler(&self, block: &Octets) -> Line {
        let usual = [
            ("Accept", "*/*"),
            ("Cache-Control", "no-cache"),
            ("Pragma", "no-cache"),
            ("Accept-Language", "en"),
        ];
        let own = (1..).map(|number| Line::new(&format!("X-Data-{number}"), "1".into()));
        let mut lines =
            usual.into_iter().map(|(name, value)| Line::new(name, value.into())).chain(own);
        let given = |name: &[u8]| {
            dedicated(self.from).iter().any(|(buffer, own)| {
                name == own.as_bytes() && self.parts.get(*buffer, self.from).is_some()
            })
        };
        let fits = |line: &Line| {
            let name = line.name();
            !self.lines.iter().any(|there| there.is(name))
                && !contains_nocase(block.bytes(), name)
                && !given(name)
                && !is_unwanted(line, self.parts, self.from)
        };
        // A pattern as short as "-" may be unwanted and match all candidates.
        let found = lines.by_ref().take(8).find(fits);
        found.unwrap_or_else(|| Line::new("Q", "1".into()))
    }

    fn add(&mut self, line: Line) -> Result<(), Impossible> {
        let name = line.name().to_vec();
        let Some(there) = self.lines.iter_mut().find(|there| !name.is_empty() && there.is(&name))
        else {
            self.lines.push(line);
            return Ok(());
        };
        if contains(there.octets.bytes(), line.octets.bytes()) {
            return Ok(());
        }
        if there.open && line.octets.bytes().starts_with(there.octets.bytes()) {
            *there = line;
            return Ok(());
        }
        // Engines join header lines with the same name into one with comma-separated values (RFC
        // 9110 §5.3).
        Err(Impossible(format!(
            "{} cannot occur twice in a header",
            String::from_utf8_lossy(&name)
        )))
    }

    /// Adds the header names in a part of `\r\nName\r\nName\r\n\r\n`.
    fn take_names(&mut self, names: &Octets) -> Result<(), Impossible> {
        let pieces = split(names);
        let begins = names.bytes().starts_with(b"\r\n");
        self.complete = names.bytes().ends_with(b"\r\n\r\n") || names.bytes() == b"\r\n";
        let mut required: Vec<Line> = vec![];
        let count = pieces.len();
        for (at, (piece, _)) in
            pieces.iter().enumerate().filter(|(_, (piece, _))| !piece.is_empty())
        {
            let bytes = piece.bytes();
            if bytes.contains(&b':') || bytes.trim_ascii() != bytes {
                return Err(Impossible(format!(
                    "{:?} is not a name of a header",
                    String::from_utf8_lossy(bytes)
                )));
            }
            let mut name = piece.clone();
            if at == 0 && !begins && count > 1 {
                // The part is the end of a usual name, or else a whole name.
                let whole = USUAL.iter().find(|usual| {
                    usual.0.len() > bytes.len() && usual.0.as_bytes().ends_with(bytes)
                });
                if let Some((usual, _)) = whole {
                    name = Octets::from(&usual[..usual.len() - bytes.len()]);
                    name.append(piece);
                }
            } else if at + 1 == count {
                let whole = USUAL.iter().find(|usual| usual.0.as_bytes().starts_with(bytes));
                if let Some((usual, _)) = whole {
                    name.append(&Octets::from(&usual[bytes.len()..]));
                }
            }
            let known = self.lines.iter().position(|line| line.is(name.bytes()));
            let line = match known {
                Some(known) => {
                    let mut line = self.lines.remove(known);
                    // Keep the case and origin of the given name.
                    let colon =
                        line.octets.bytes().iter().position(|&octet| octet == b':').unwrap_or(0);
                    let mut octets = name.clone();
                    octets.append(&line.octets.slice(colon..line.octets.len()));
                    line.octets = octets;
                    line
                }
                None => {
                    let mut octets = name.clone();
                    octets.append(&Octets::from(": "));
                    octets.append(&usual(name.bytes(), 0).unwrap_or("1").into());
                    Line::whole(octets)
                }
            };
            required.push(line);
        }
        required.append(&mut self.lines);
        self.lines = required;
        Ok(())
    }

    /// All header lines in order. Adapts the body to the length that a line announces.
    fn lines(
        self,
        parts: &Parts,
        from: End,
        body: &mut Octets,
        may_have_body: bool,
    ) -> Result<Vec<Line>, Impossible> {
        let required = self.complete;
        let mut blocks = self;
        let mut others: Vec<Line> = vec![];
        for &(buffer, name) in dedicated(from) {
            let Some(value) = parts.get(buffer, from) else { continue };
            let value = padded(value, buffer)?;
            let line = Line::new(name, value.clone());
            if others.iter().any(|other| other.is(name.as_bytes())) {
                // The line from the other Host buffer already contains this value.
                continue;
            }
            match blocks.lines.iter_mut().find(|there| there.is(name.as_bytes())) {
                None => others.push(line),
                Some(there) => merge(there, name, &value)?,
            }
        }
        // Add default lines, if they are not unwanted.
        let has = |lines: &[Line], name: &str| lines.iter().any(|line| line.is(name.as_bytes()));
        let add = |others: &mut Vec<Line>, name: &str| {
            if has(&blocks.lines, name) || has(others, name) || required {
                return;
            }
            // For responses, skip the first value, which is the content type of a form.
            let first = usize::from(from == End::Server && name == "Content-Type");
            let line = (first..)
                .map_while(|at| usual(name.as_bytes(), at))
                .map(|value| Line::new(name, value.into()));
            if let Some(line) = line.take(8).find(|line| !is_unwanted(line, parts, from)) {
                others.push(line);
            }
        };
        let wanted: &[&str] = match (from, parts.style.lines) {
            (End::Client, Lines::Usual) => &["Host", "User-Agent", "Accept"],
            (End::Client, Lines::Few) => &["Host"],
            (End::Server, Lines::Usual) => &["Server", "Content-Type"],
            _ => &[],
        };
        for name in wanted {
            add(&mut others, name);
        }
        if from == End::Client && !body.is_empty() && parts.style.lines == Lines::Usual {
            add(&mut others, "Content-Type");
        }
        for (name, value, is) in [
            ("Transfer-Encoding", "chunked", parts.style.chunked),
            ("Content-Encoding", "gzip", parts.style.gzip && from == End::Server),
        ] {
            let is = is && !body.is_empty();
            if is && !has(&blocks.lines, name) && !has(&others, name) {
                others.push(Line::new(name, value.into()));
            }
        }
        if let Some(name) = parts.get(Buffer::FileName, from)
            && from == End::Server
        {
            let mut value = Octets::from("attachment; filename=\"");
            value.append(name);
            value.append(&Octets::from("\""));
            others.push(Line::new("Content-Disposition", value));
        }
        for trailer in parts.all(Buffer::HttpTrailer, from) {
            blocks.take(trailer, View::AsSent)?;
        }
        encode(&blocks.lines, &mut others, body, parts)?;
        length(&mut blocks.lines, &mut others, body, parts, from, may_have_body, required)?;
        order(&mut others);
        let has_block = !blocks.lines.is_empty();
        let lines: Vec<_> = if has_block && !parts.style.block_last {
            blocks.lines.into_iter().chain(others).collect()
        } else {
            others.into_iter().chain(blocks.lines).collect()
        };
        if lines.len() > LINES_LIMIT {
            return Err(Impossible(format!("a header has at most {LINES_LIMIT} lines")));
        }
        if let Some(long) = lines.iter().find(|line| line.octets.len() > LINE_LIMIT) {
            return Err(Impossible(format!(
                "a header line has at most {LINE_LIMIT} octets, not {}",
                long.octets.len()
            )));
        }
        Ok(lines)
    }
}

/// How an engine presents a block of header lines.
#[derive(Clone, Copy, PartialEq, Eq)]
enum View {
    AsSent,
    /// Names and values are trimmed and separated by a colon and a blank.
    Normalized,
    /// Like `Normalized`, without cookies.
    WithoutCookies,
}

/// The option or setter that requires the first octet.
fn required_by(octets: &Octets) -> Option<Origin> {
    octets
        .origins()
        .first()
        .copied()
        .filter(|origin| matches!(origin, Origin::Option(_) | Origin::Setter(_)))
}

/// Whether the same option or setter requires both octets. If so, nothing may be inserted between
/// them.
fn are_one(first: Origin, second: Origin) -> bool {
    first == second && matches!(first, Origin::Option(_) | Origin::Setter(_))
}

/// Adds missing carriage returns, without which libhtp does not present the line in http.header.
fn with_carriage_returns(block: &Octets) -> Octets {
    let mut all = Octets::new();
    for (at, (&octet, &origin)) in block.bytes().iter().zip(block.origins()).enumerate() {
        if octet == b'\n' && (at == 0 || block.bytes()[at - 1] != b'\r') {
            // An expression that allows both kinds of line end may have produced a single line
            // feed.
            all.push(b'\r', Origin::Framing);
        }
        all.push(octet, origin);
    }
    all
}

/// Splits pieces where a pattern ends in a header name with colon and another pattern follows: with
/// a blank, or into separate lines.
fn divided(
    pieces: Vec<(Octets, Option<Octets>)>,
    normalized: bool,
    spaced: bool,
) -> Vec<(Octets, Option<Octets>)> {
    let mut all = vec![];
    for (piece, end) in pieces {
        let bytes = piece.bytes();
        let colon = bytes.iter().take_while(|&&octet| is_token(octet)).count();
        let room = normalized
            && colon > 0
            && bytes.get(colon) == Some(&b':')
            && bytes.get(colon + 1).is_some_and(|next| !b" \t".contains(next))
            && (spaced || !are_one(piece.origins()[colon], piece.origins()[colon + 1]));
        if !room {
            all.push((piece, end));
            continue;
        }
        let (mut head, tail) = (piece.slice(0..colon + 1), piece.slice(colon + 1..piece.len()));
        if is_lines(tail.bytes()) {
            all.push((head, Some("\r\n".into())));
            all.push((tail, end));
        } else {
            head.append(&" ".into());
            head.append(&tail);
            all.push((head, end));
        }
    }
    all
}

/// Completes a piece of a block to a line. The `first` piece may be the end of a line, an `open`
/// piece the start of one.
fn complete(piece: &Octets, first: bool, open: bool, normalized: bool) -> Result<Line, Impossible> {
    let bytes = piece.bytes();
    let impossible =
        |what: &str| Err(Impossible(format!("{what}: {:?}", String::from_utf8_lossy(bytes))));
    if bytes.contains(&b'\n') {
        return impossible("a line feed alone ends a line");
    }
    let token = bytes.iter().take_while(|&&octet| is_token(octet)).count();
    let (name, rest) = bytes.split_at(token);
    let is_complete = match rest {
        [] => open && (!first || is_name(name)),
        // If there is no value, engines present a blank after the colon.
        [b':'] => open || !normalized,
        [b':', b' ', value @ ..] => {
            !normalized || !value.first().is_some_and(|octet| b" \t".contains(octet))
        }
        [b':', ..] => !normalized,
        _ => false,
    } && !name.is_empty();
    let mut octets;
    if is_complete {
        octets = piece.clone();
        if rest.is_empty() {
            let whole = USUAL.iter().find(|usual| {
                usual.0.len() >= name.len() && usual.0.as_bytes()[..name.len()] == *name
            });
            if let Some((usual, _)) = whole {
                octets.append(&Octets::from(&usual[name.len()..]));
            }
            octets.append(&Octets::from(":"));
        }
        if open && octets.bytes().ends_with(b":") {
            octets.append(&Octets::from(" "));
        }
    } else if first {
        // Make the piece the value of an unknown header.
        let lead = match bytes {
            [b':'] if !open => "X-Data: 1",
            [b':', ..] => "X-Data",
            [b' ', b' ' | b'\t', ..] | [b'\t', ..] => "X-Data: 1",
            [b' ', ..] => "X-Data:",
            _ => "X-Data: ",
        };
        octets = Octets::from(lead);
        if let [b':', second, ..] = bytes
            && *second != b' '
        {
            octets = Octets::from("X-Data: 1");
        }
        octets.append(piece);
    } else if normalized {
        return impossible("a header line never has this form");
    } else {
        octets = piece.clone();
    }
    let bytes = octets.bytes();
    let colon = bytes.iter().position(|&octet| octet == b':').unwrap_or(0);
    let empty = bytes[colon + 1..].trim_ascii().is_empty();
    if open && (bytes.ends_with(b" ") || bytes.ends_with(b"\t")) {
        let name = bytes[..colon].to_vec();
        let filler = if empty { usual(&name, 0).unwrap_or("1") } else { "1" };
        octets.append(&filler.into());
    } else if normalized
        && !empty
        && octets.bytes().last().is_some_and(|octet| b" \t".contains(octet))
    {
        return impossible("blanks at the end of a header line are removed");
    }
    Ok(Line { open, ..Line::whole(octets) })
}

/// Merges the value of a dedicated buffer into a line of a block.
fn merge(there: &mut Line, name: &str, value: &Octets) -> Result<(), Impossible> {
    if there.value() == value.bytes() {
        return Ok(());
    }
    let head =
        there.octets.bytes().iter().position(|&octet| octet == b':').map_or(0, |colon| colon + 1);
    let given = there.octets.slice(head..there.octets.len());
    // Replace a filler value, whose only purpose was to complete the line.
    let filler = given.origins().iter().all(|&origin| origin == Origin::Framing);
    if filler || there.open && value.bytes().starts_with(there.value()) {
        let mut octets = there.octets.slice(0..head);
        octets.append(&Octets::from(" "));
        octets.append(value);
        there.octets = octets;
        return Ok(());
    }
    Err(Impossible(format!(
        "{name} is {:?} in one buffer and {:?} in another",
        String::from_utf8_lossy(there.value()),
        String::from_utf8_lossy(value.bytes())
    )))
}

/// Puts text around blanks at the ends of a value, where engines would trim them.
fn padded(value: &Octets, buffer: Buffer) -> Result<Octets, Impossible> {
    let bytes = value.bytes();
    if bytes.iter().any(|octet| b"\r\n".contains(octet)) {
        return Err(Impossible(format!("{} contains no line ends", buffer.name())));
    }
    if buffer == Buffer::HttpHost && bytes.iter().any(u8::is_ascii_uppercase) {
        return Err(Impossible("http.host is lower case".into()));
    }
    let blank = |octet: Option<&u8>| octet.is_some_and(|octet| octet.is_ascii_whitespace());
    let mut padded = Octets::new();
    if blank(bytes.first()) {
        padded.push(b'1', Origin::Framing);
    }
    padded.append(value);
    if blank(bytes.last()) {
        padded.push(b'1', Origin::Framing);
    }
    Ok(padded)
}

/// Buffers for the value of a single line, in the usual order of lines.
fn dedicated(from: End) -> &'static [(Buffer, &'static str)] {
    use Buffer::*;
    match from {
        End::Client => &[
            (HttpRawHost, "Host"),
            (HttpHost, "Host"),
            (HttpUserAgent, "User-Agent"),
            (HttpAccept, "Accept"),
            (HttpAcceptLanguage, "Accept-Language"),
            (HttpAcceptEncoding, "Accept-Encoding"),
            (HttpReferer, "Referer"),
            (HttpCookie, "Cookie"),
            (HttpConnection, "Connection"),
            (HttpContentType, "Content-Type"),
            (HttpContentLength, "Content-Length"),
            (HttpTrueIp, "X-Forwarded-For"),
        ],
        End::Server => &[
            (HttpServer, "Server"),
            (HttpLocation, "Location"),
            (HttpCookie, "Set-Cookie"),
            (HttpConnection, "Connection"),
            (HttpContentType, "Content-Type"),
            (HttpContentLength, "Content-Length"),
        ],
    }
}

/// Usual header names in their usual order, each with values. The first value suits most messages.
const USUAL: &[(&str, &[&str])] = &[
    ("Host", &["www.example.com", "192.0.2.80", "web.test"]),
    (
        "User-Agent",
        &[
            "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
            "curl/8.5.0",
            "Client",
        ],
    ),
    ("Accept", &["*/*", "text/html"]),
    ("Accept-Language", &["en", "de"]),
    ("Accept-Encoding", &["gzip", "identity"]),
    ("Referer", &["http://www.example.com/", "http://192.0.2.80/"]),
    ("Cookie", &["a=1"]),
    ("Server", &["nginx", "Apache", "Web"]),
    ("Date", &["Sat, 01 Jan 2022 00:00:00 GMT"]),
    ("Location", &["http://www.example.com/"]),
    ("Set-Cookie", &["a=1"]),
    ("Connection", &["close", "keep-alive"]),
    ("Cache-Control", &["no-cache"]),
    ("Pragma", &["no-cache"]),
    ("Upgrade", &["h2c"]),
    ("Origin", &["http://www.example.com"]),
    ("Authorization", &["Basic YTph"]),
    ("If-Modified-Since", &["Sat, 01 Jan 2022 00:00:00 GMT"]),
    ("Last-Modified", &["Sat, 01 Jan 2022 00:00:00 GMT"]),
    ("ETag", &["\"1\""]),
    ("X-Forwarded-For", &["192.0.2.1"]),
    ("X-Requested-With", &["XMLHttpRequest"]),
    ("Transfer-Encoding", &["chunked"]),
    ("Content-Encoding", &["gzip"]),
    ("Content-Disposition", &["inline"]),
    (
        "Content-Type",
        &["application/x-www-form-urlencoded", "text/html", "application/octet-stream"],
    ),
    ("Content-Length", &["0"]),
];

/// The `at`th usual value of a line with that name.
fn usual(name: &[u8], at: usize) -> Option<&'static str> {
    USUAL.iter().find(|usual| usual.0.as_bytes().eq_ignore_ascii_case(name))?.1.get(at).copied()
}

fn order(lines: &mut [Line]) {
    lines.sort_by_key(|line| {
        USUAL.iter().position(|usual| line.is(usual.0.as_bytes())).unwrap_or(USUAL.len())
    });
}

/// Whether a default line contains something unwanted.
fn is_unwanted(line: &Line, parts: &Parts, from: End) -> bool {
    parts.without.iter().filter(|without| without.1 == from).any(|(buffer, _, octets)| {
        let seen = [b"\r\n", line.octets.bytes(), b"\r\n"].concat();
        match buffer {
            Buffer::HttpHeader => {
                !octets.is_empty()
                    && !line.is(b"Cookie")
                    && !line.is(b"Set-Cookie")
                    && contains_nocase(&seen, octets)
            }
            Buffer::HttpRawHeader | Buffer::HttpStart | Buffer::Payload | Buffer::RawPayload => {
                !octets.is_empty() && contains_nocase(&seen, octets)
            }
            Buffer::HttpRequestHeader | Buffer::HttpResponseHeader => {
                !octets.is_empty() && contains_nocase(line.octets.bytes(), octets)
            }
            Buffer::HttpHeaderNames => {
                contains_nocase(&[b"\r\n", line.name(), b"\r\n"].concat(), octets)
            }
            buffer => dedicated(from).iter().any(|(own, name)| {
                own == buffer && line.is(name.as_bytes()) && contains_nocase(line.value(), octets)
            }),
        }
    })
}

/// The required contents of the client's or the server's body.
fn body(parts: &Parts, from: End, blocks: &Blocks<'_>) -> Result<Octets, Impossible> {
    let own = match from {
        End::Client => Buffer::HttpRequestBody,
        End::Server => Buffer::HttpResponseBody,
    };
    let texts = [own, Buffer::FileData].into_iter().flat_map(|buffer| parts.all(buffer, from));
    let lines = blocks.lines.iter().map(|line| line.octets.bytes()).collect::<Vec<_>>();
    let payloads = [Buffer::Payload, Buffer::RawPayload]
        .into_iter()
        .flat_map(|buffer| parts.all(buffer, from));
    let payloads = payloads.filter(|payload| {
        !is_lines(payload.bytes()) && !lines.iter().any(|line| contains(line, payload.bytes()))
    });
    Ok(merged(texts.chain(payloads), b""))
}

fn body_is_free(parts: &Parts) -> bool {
    !parts.without.iter().any(|(buffer, from, octets)| {
        *from == End::Server
            && octets.is_empty()
            && matches!(buffer, Buffer::FileData | Buffer::HttpResponseBody)
    })
}

/// Whether the octets resemble header lines rather than a body.
fn is_lines(mut octets: &[u8]) -> bool {
    while let [b'\r', b'\n', rest @ ..] = octets {
        octets = rest;
    }
    let token = octets.iter().take_while(|&&octet| is_token(octet)).count();
    let name = &octets[..token];
    let whole = USUAL.iter().any(|usual| usual.0.as_bytes().eq_ignore_ascii_case(name))
        || name.starts_with(b"X-");
    whole && octets.get(token) == Some(&b':')
}

/// Applies chunking and compression.
fn encode(
    block: &[Line],
    others: &mut Vec<Line>,
    body: &mut Octets,
    parts: &Parts,
) -> Result<(), Impossible> {
    let has_value = |name: &[u8], word: &[u8]| {
        block
            .iter()
            .chain(others.iter())
            .any(|line| line.is(name) && contains_nocase(line.value(), word))
    };
    let (gzip, chunked) =
        (has_value(b"Content-Encoding", b"gzip"), has_value(b"Transfer-Encoding", b"chunked"));
    if body.is_empty() {
        return Ok(());
    }
    if gzip && !body.bytes().starts_with(&[0x1f, 0x8b]) && (parts.style.gzip || is_decoded(parts)) {
        // Compression mixes all octets, so each gets the highest origin.
        let origin = body.origins().iter().copied().max().unwrap_or(Origin::Framing);
        let mut packed = flate2::write::GzEncoder::new(vec![], flate2::Compression::default());
        let packed = packed.write_all(body.bytes()).and_then(|()| packed.finish());
        *body = Octets::of(packed.expect("a vector takes all"), origin);
    }
    if chunked {
        // Send two chunks, so the engine must join them.
        *body = super::variants::chunks(body, body.len().div_ceil(2));
        others.retain(|line| !line.is(b"Content-Length"));
    }
    Ok(())
}

fn is_decoded(parts: &Parts) -> bool {
    parts.buffers.iter().any(|part| {
        matches!(part.0, Buffer::FileData | Buffer::HttpResponseBody | Buffer::HttpRequestBody)
    })
}

/// Sets Content-Length, or adapts the body to a required length.
fn length(
    block: &mut [Line],
    others: &mut Vec<Line>,
    body: &mut Octets,
    parts: &Parts,
    from: End,
    may_have_body: bool,
    complete: bool,
) -> Result<(), Impossible> {
    let chunked = block
        .iter()
        .chain(others.iter())
        .any(|line| line.is(b"Transfer-Encoding") && contains_nocase(line.value(), b"chunked"));
    if chunked {
        return Ok(());
    }
    if let Some(line) =
        block.iter_mut().chain(others.iter_mut()).find(|line| line.is(b"Content-Length"))
    {
        let colon = line
            .octets
            .bytes()
            .iter()
            .position(|&octet| octet == b':')
            .map_or(0, |colon| colon + 1);
        let value = line.octets.bytes()[colon..]
            .iter()
            .take_while(|octet| octet.is_ascii_whitespace())
            .count()
            + colon;
        let is_default =
            line.octets.origins()[value..].iter().all(|&origin| origin == Origin::Framing);
        if is_default {
            let mut octets = line.octets.slice(0..colon);
            // A rule may require the blank, so keep its origin.
            let blank = line.octets.bytes().get(colon) == Some(&b' ');
            octets.append(&if blank { line.octets.slice(colon..colon + 1) } else { " ".into() });
            octets.append(&Octets::from(body.len().to_string().as_str()));
            line.octets = octets;
            return Ok(());
        }
        let required =
            std::str::from_utf8(line.value()).ok().and_then(|value| value.parse::<usize>().ok());
        if let Some(required) = required
            && required <= FILL_LIMIT
            && body.len() < required
        {
            let mut filling = Octets::of(vec![b'A'; required - body.len()], Origin::Framing);
            if parts.style.filled_first {
                filling.append(body);
                *body = filling;
            } else {
                body.append(&filling);
            }
        }
        return Ok(());
    }
    let needed = match from {
        End::Client => {
            !body.is_empty() || may_have_body && parts.style.lines == Lines::Usual && !complete
        }
        End::Server => may_have_body,
    };
    let line = Line::new("Content-Length", Octets::from(body.len().to_string().as_str()));
    let unwanted = is_unwanted(&line, parts, from) || complete;
    match (needed, unwanted, from) {
        (false, ..) => {}
        // Without a Content-Length, the end of the connection ends the body.
        (true, true, End::Server) => {}
        (true, true, End::Client) if body.is_empty() => {}
        (true, true, End::Client) => {
            return Err(Impossible("a request's body needs a Content-Length".into()));
        }
        (true, false, _) => others.push(line),
    }
    Ok(())
}

fn finish(mut all: Octets, lines: &[Line], body: &Octets) -> Octets {
    all.append(&Octets::from("\r\n"));
    for line in lines {
        all.append(&line.octets);
        all.append(&line.end);
    }
    all.append(&Octets::from("\r\n"));
    all.append(body);
    all
}

/// Splits at blanks.
fn words(line: &Octets) -> Vec<Octets> {
    let mut words = vec![];
    let mut begin = None;
    for (at, &octet) in line.bytes().iter().enumerate() {
        match (octet, begin) {
            (b' ', Some(from)) => {
                words.push(line.slice(from..at));
                begin = None;
            }
            (b' ', None) => {}
            (_, None) => begin = Some(at),
            _ => {}
        }
    }
    if let Some(from) = begin {
        words.push(line.slice(from..line.len()));
    }
    words
}

/// Splits the block into lines with their ends. The last line may have no end.
fn split(block: &Octets) -> Vec<(Octets, Option<Octets>)> {
    let mut pieces = vec![];
    let mut begin = 0;
    while let Some(at) = find(&block.bytes()[begin..], b"\r\n") {
        let end = begin + at;
        pieces.push((block.slice(begin..end), Some(block.slice(end..end + 2))));
        begin = end + 2;
    }
    pieces.push((block.slice(begin..block.len()), None));
    pieces
}

/// Whether `octet` may occur in a header name (RFC 9110 §5.6.2).
fn is_token(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&octet)
}

/// Whether a word resembles a header name rather than a piece of a value.
fn is_name(word: &[u8]) -> bool {
    word.starts_with(b"X-")
        || USUAL.iter().any(|usual| word.len() > 3 && usual.0.as_bytes().starts_with(word))
}

fn begins_with_a_method(line: &[u8]) -> bool {
    let method = line.iter().take_while(|octet| octet.is_ascii_uppercase()).count();
    method > 2 && line.get(method) == Some(&b' ')
}

fn reason(status: &[u8]) -> &'static str {
    match status {
        b"100" => "Continue",
        b"101" => "Switching Protocols",
        b"201" => "Created",
        b"204" => "No Content",
        b"206" => "Partial Content",
        b"301" => "Moved Permanently",
        b"302" => "Found",
        b"304" => "Not Modified",
        b"400" => "Bad Request",
        b"401" => "Unauthorized",
        b"403" => "Forbidden",
        b"404" => "Not Found",
        b"405" => "Method Not Allowed",
        b"500" => "Internal Server Error",
        b"501" => "Not Implemented",
        b"502" => "Bad Gateway",
        b"503" => "Service Unavailable",
        _ => "OK",
    }
}

fn redirect(status: &[u8]) -> Option<&'static str> {
    matches!(status, b"301" | b"302" | b"303" | b"307" | b"308")
        .then_some("http://www.example.com/")
}

#[cfg(test)]
mod tests {
    use squall_rules::Application;

    use super::super::{Style, assemble};
    use super::*;

    const RULE: Origin = Origin::Option(1);

    fn parts(buffers: &[(Buffer, End, &str)]) -> Parts {
        let buffers = buffers
            .iter()
            .map(|&(buffer, from, text)| (buffer, from, Octets::of(text, RULE)))
            .collect();
        Parts { buffers, ..Parts::default() }
    }

    fn messages(parts: &Parts) -> Vec<String> {
        let turns = assemble(Application::Http, parts).unwrap();
        turns.iter().map(|turn| String::from_utf8_lossy(turn.octets.bytes()).into_owned()).collect()
    }

    fn request(parts: &Parts) -> String {
        messages(parts).swap_remove(0)
    }

    /// All octets that the rule requires, in order.
    fn of_the_rule(parts: &Parts) -> String {
        let turns = assemble(Application::Http, parts).unwrap();
        let octets =
            turns.iter().flat_map(|turn| turn.octets.bytes().iter().zip(turn.octets.origins()));
        octets.filter(|(_, origin)| **origin == RULE).map(|(&octet, _)| char::from(octet)).collect()
    }

    #[test]
    fn empty_lines_before_a_header_take_no_stack_however_many() {
        let lines = b"\r\n".repeat(500_000);
        assert!(!is_lines(&lines) && !is_lines(b"abc: d"));
        assert!(is_lines(&[&lines[..], b"X-A: b"].concat()));
    }

    #[test]
    fn a_request_has_the_usual_lines_and_a_response() {
        let messages = messages(&parts(&[(Buffer::HttpUri, End::Client, "/a b?c=d")]));
        assert_eq!(
            messages[0],
            "GET /a%20b?c=d HTTP/1.1\r\nHost: www.example.com\r\nUser-Agent: Mozilla/5.0 (X11; \
             Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\nAccept: */*\r\n\r\n"
        );
        assert_eq!(
            messages[1],
            "HTTP/1.1 200 OK\r\nServer: nginx\r\nContent-Type: text/html\r\nContent-Length: \
             27\r\n\r\n<html><body></body></html>\n"
        );
    }

    #[test]
    fn a_body_makes_a_request_a_post_with_its_length() {
        let request = request(&parts(&[(Buffer::HttpRequestBody, End::Client, "user=admin")]));
        assert!(request.starts_with("POST / HTTP/1.1\r\n"), "{request}");
        assert!(
            request.contains("\r\nContent-Length: 10\r\n")
                && request.ends_with("\r\n\r\nuser=admin"),
            "{request}"
        );
    }

    #[test]
    fn a_block_of_header_lines_is_completed_to_lines() {
        let head = |block: &str| {
            let mut parts = parts(&[(Buffer::HttpHeader, End::Client, block)]);
            parts.style.lines = Lines::None;
            assert_eq!(of_the_rule(&parts), block.trim_end_matches("\r\n\r\n"), "{block:?}");
            request(&parts)
                .strip_prefix("GET / HTTP/1.1\r\n")
                .unwrap()
                .strip_suffix("\r\n\r\n")
                .unwrap()
                .to_owned()
        };
        assert_eq!(head("X-Evil: 1"), "X-Evil: 1");
        assert_eq!(
            head("User-Agent: "),
            format!("User-Agent: {}", usual(b"user-agent", 0).unwrap())
        );
        assert_eq!(head("User-Ag"), format!("User-Agent: {}", usual(b"user-agent", 0).unwrap()));
        assert_eq!(head("\r\nX-A: b\r\nX-C"), "Accept: */*\r\nX-A: b\r\nX-C: 1");
        assert_eq!(head("gzip\r\nX-A: b "), "X-Data: gzip\r\nX-A: b 1");
        assert_eq!(head("http://evil"), "X-Data: http://evil");
        assert_eq!(head(": evil"), "X-Data: evil");
        assert_eq!(head("  evil"), "X-Data: 1  evil");
        for none in ["X-A: b \r\nX-C: d", "X-A: b\r\n c", "X-A: b\r\n\r\nc", "X-A: b\r\nX-A: c"] {
            assert!(
                assemble(Application::Http, &parts(&[(Buffer::HttpHeader, End::Client, none)]))
                    .is_err(),
                "{none:?}"
            );
        }
    }

    #[test]
    fn a_buffer_of_its_own_goes_into_the_line_of_a_block() {
        let mut both = parts(&[
            (Buffer::HttpHeader, End::Client, "User-Agent: Moz"),
            (Buffer::HttpUserAgent, End::Client, "Mozilla/4.0"),
            (Buffer::HttpCookie, End::Client, "id=1"),
        ]);
        both.style.lines = Lines::Few;
        let expected = "GET / HTTP/1.1\r\nUser-Agent: Mozilla/4.0\r\nHost: \
                        www.example.com\r\nCookie: id=1\r\n\r\n";
        assert_eq!(request(&both), expected);
        both.style.block_last = true;
        let expected = "GET / HTTP/1.1\r\nHost: www.example.com\r\nCookie: id=1\r\nUser-Agent: \
                        Mozilla/4.0\r\n\r\n";
        assert_eq!(request(&both), expected);
    }

    #[test]
    fn all_names_of_a_header_are_in_order() {
        let names = "\r\nConnection\r\nHost\r\n\r\n";
        let request = request(&parts(&[(Buffer::HttpHeaderNames, End::Client, names)]));
        assert_eq!(request, "GET / HTTP/1.1\r\nConnection: close\r\nHost: www.example.com\r\n\r\n");
    }

    #[test]
    fn unwanted_contents_are_omitted_or_replaced() {
        let mut without = parts(&[(Buffer::HttpUri, End::Client, "/")]);
        without.without = vec![
            (Buffer::HttpHeaderNames, End::Client, b"\r\nAccept".to_vec()),
            (Buffer::HttpHeader, End::Client, b"Mozilla".to_vec()),
            (Buffer::HttpReferer, End::Client, vec![]),
        ];
        let request = request(&without);
        assert_eq!(
            request,
            "GET / HTTP/1.1\r\nHost: www.example.com\r\nUser-Agent: curl/8.5.0\r\n\r\n"
        );
    }

    #[test]
    fn a_length_that_a_part_announces_is_filled_up() {
        let mut required = parts(&[
            (Buffer::HttpContentLength, End::Client, "12"),
            (Buffer::HttpRequestBody, End::Client, "abc"),
        ]);
        assert!(request(&required).ends_with("Content-Length: 12\r\n\r\nabcAAAAAAAAA"));
        required.style.filled_first = true;
        assert!(request(&required).ends_with("Content-Length: 12\r\n\r\nAAAAAAAAAabc"));
        required.buffers[0] =
            (Buffer::HttpHeader, End::Client, Octets::of("Content-Length: ", RULE));
        assert!(
            request(&required).starts_with("POST / HTTP/1.1\r\nContent-Length: 3\r\n"),
            "{}",
            request(&required)
        );
    }

    #[test]
    fn a_partial_request_line_is_completed() {
        let line = |line: &str| {
            let mut parts = parts(&[(Buffer::HttpRequestLine, End::Client, line)]);
            parts.style.lines = Lines::None;
            request(&parts).lines().next().unwrap().to_owned()
        };
        assert_eq!(line("PUT /a HTTP/1.0"), "PUT /a HTTP/1.0");
        assert_eq!(line("GET /a"), "GET /a HTTP/1.1");
        assert_eq!(line("/a HTTP/1.0"), "GET /a HTTP/1.0");
        assert_eq!(line("POST "), "POST / HTTP/1.1");
        assert_eq!(line("b.php HTTP/"), "GET /b.php HTTP/");
    }

    #[test]
    fn a_chunked_and_compressed_body_contains_the_required_octets() {
        let mut coded = parts(&[(Buffer::FileData, End::Server, "evil evil evil")]);
        coded.style = Style { chunked: true, ..Style::default() };
        let response = messages(&coded).swap_remove(1);
        assert!(
            response.contains("chunked\r\n")
                && response.ends_with("\r\n\r\n7\r\nevil ev\r\n7\r\nil evil\r\n0\r\n\r\n"),
            "{response}"
        );
        coded.style = Style { gzip: true, ..Style::default() };
        let turns = assemble(Application::Http, &coded).unwrap();
        let response = turns[1].octets.bytes();
        let body = &response[find(response, b"\r\n\r\n").unwrap() + 4..];
        let mut text = vec![];
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(body), &mut text).unwrap();
        assert_eq!(text, b"evil evil evil");
    }

    #[test]
    fn a_status_has_its_reason_phrase() {
        let mut parts = parts(&[(Buffer::HttpStatusCode, End::Server, "302")]);
        assert!(messages(&parts)[1].starts_with("HTTP/1.1 302 Found\r\n"));
        assert!(messages(&parts)[1].contains("\r\nLocation: http://www.example.com/\r\n"));
        parts.buffers.clear();
        let codes = squall_rules::Numbers::range(400..=499);
        parts.tests.push(ApplicationTest::HttpStatusCode(codes));
        assert!(messages(&parts)[1].starts_with("HTTP/1.1 404 Not Found\r\n"));
    }

    #[test]
    fn line_ends_within_a_line_are_impossible() {
        for (buffer, text) in [
            (Buffer::HttpUserAgent, "a\r\nb"),
            (Buffer::HttpMethod, "GE T"),
            (Buffer::HttpRawUri, "/a b"),
            (Buffer::HttpHost, "Example.com"),
        ] {
            assert!(
                assemble(Application::Http, &parts(&[(buffer, End::Client, text)])).is_err(),
                "{text:?}"
            );
        }
    }
}
