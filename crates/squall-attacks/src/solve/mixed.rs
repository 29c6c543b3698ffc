//! Rules that inspect both a protocol's buffers and the payload. The payload's contents are placed
//! in parts of the message, unless the message contains them anyway.

use std::fmt;

use squall_rules::{Application, Buffer, End, Inspection, Numbers, Operation};

use super::make::{MakeError, Maker, assembled};
use super::{Reason, layout};
use crate::assemble::{Lines, Parts, Style};
use crate::regex::{Choices, Constraints};
use crate::{Octets, Origin, Turn};

/// Maximum number of free octets to add to one message.
const MAX_LEN: usize = 60_000;

/// Where the payload's contents are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Nowhere, because they are the whole payload or there are none.
    Verbatim,
    /// Anywhere in the existing message, or in its body.
    Body,
    Header,
    Uri,
    Cookie,
    /// In a separate message before those of the protocol.
    Prerequisites,
    /// In a separate message after those of the protocol.
    After,
    /// At the start of the message, as header lines. Contents of buffers are placed over them.
    Lead,
    /// The payload is the whole message.
    Whole,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Place::Verbatim => "octets as the payload",
            Place::Body => "octets in the body",
            Place::Header => "octets in a header field",
            Place::Uri => "octets in the URI",
            Place::Cookie => "octets in a cookie",
            Place::Prerequisites => "octets in a message before those of the protocol",
            Place::After => "octets in a message after those of the protocol",
            Place::Lead => "header lines of the octets first",
            Place::Whole => "octets as the whole message",
        })
    }
}

pub(super) fn places(application: Application, payload: bool, sender: End) -> &'static [Place] {
    use Application::*;
    use Place::*;
    match (payload, application, sender) {
        (false, ..) => &[Verbatim],
        (true, Http | Http1, End::Client) => &[Header, Body, Lead, Uri, Whole, Cookie],
        (true, Http | Http1, End::Server) => &[Body, Header, Lead, Cookie, Whole],
        (true, ..) => &[Body, After, Prerequisites],
    }
}

pub(super) struct Mixing {
    pub application: Application,
    pub sender: End,
    pub parts: Parts,
    pub place: Place,
}

impl Mixing {
    pub(super) fn make(
        &mut self,
        maker: &mut Maker<'_>,
        payload: &[(usize, &Inspection)],
        variables: &[Option<u64>],
        attempt: u32,
    ) -> Result<Vec<Turn>, MakeError> {
        if self.place == Place::Whole {
            return self.whole_message(maker, payload, variables, attempt);
        }
        let plain = assembled(self.application, &self.parts)?;
        // Try the unchanged message first, because it may contain everything already.
        if let Some(turns) = self.over(maker, payload, variables, plain.clone(), None, attempt) {
            return Ok(turns);
        }
        let wanted = required(maker, payload);
        match self.place {
            Place::Prerequisites | Place::After => {
                let mut turns = plain;
                let (index, inspection) = payload[0];
                let layout = maker.lay_out(
                    index,
                    inspection,
                    Numbers::any(),
                    Octets::new(),
                    variables,
                    attempt,
                )?;
                let turn = Turn::new(self.sender, layout.octets);
                if self.place == Place::Prerequisites {
                    turns.insert(0, turn)
                } else {
                    turns.push(turn)
                }
                Ok(turns)
            }
            _ => {
                self.split(maker, payload);
                let usual = self.parts.style;
                // Contents that include the end of the header must be in its last lines, or in its
                // only ones.
                let last = Style { block_last: true, ..usual };
                let ends = self.longest_end(payload);
                let styles = [usual, last, Style { lines: Lines::None, ..last }];
                for style in &styles[..if ends.is_some() { 3 } else { 1 }] {
                    self.parts.style = *style;
                    if let Ok(turns) = assembled(self.application, &self.parts)
                        && let Some(turns) =
                            self.over(maker, payload, variables, turns, None, attempt)
                    {
                        return Ok(turns);
                    }
                }
                if let Some(room) = ends.filter(|_| self.place == Place::Header) {
                    for style in &styles[1..] {
                        self.parts.style = *style;
                        let (parts, marker) = self.with_room(maker, room);
                        if let Ok(turns) = assembled(self.application, &parts)
                            && let Some(turns) =
                                self.over(maker, payload, variables, turns, Some(&marker), attempt)
                        {
                            return Ok(turns);
                        }
                    }
                }
                self.parts.style = usual;
                let least = wanted.clamp(4, MAX_LEN);
                let (shortest, longest) = lengths(payload);
                if longest < usize::MAX || shortest > 0 {
                    // Try a message with exactly the required length.
                    let (parts, marker) = self.with_room(maker, 64);
                    if let Ok(turns) = assembled(self.application, &parts) {
                        let message = turns.iter().find(|turn| {
                            turn.from == self.sender && find(turn.octets.bytes(), &marker).is_some()
                        });
                        let length = message.map_or(0, |turn| turn.octets.len());
                        let room = (64 + shortest.min(MAX_LEN).max(length.min(longest)))
                            .checked_sub(length);
                        if let Some(room) =
                            room.filter(|&room| (1..=MAX_LEN).contains(&room) && length > 0)
                        {
                            let (parts, marker) = self.with_room(maker, room);
                            if let Ok(turns) = assembled(self.application, &parts)
                                && let Some(turns) = self.over(
                                    maker,
                                    payload,
                                    variables,
                                    turns,
                                    Some(&marker),
                                    attempt,
                                )
                            {
                                return Ok(turns);
                            }
                        }
                    }
                }
                for room in [least, least + 12, least + 80, least + 400, least + 2_000] {
                    let (parts, marker) = self.with_room(maker, room);
                    let Ok(turns) = assembled(self.application, &parts) else { continue };
                    if let Some(turns) =
                        self.over(maker, payload, variables, turns, Some(&marker), attempt)
                    {
                        return Ok(turns);
                    }
                }
                Err(MakeError {
                    reason: Reason::Contradiction,
                    option: payload[0].1.steps.first().map(|step| step.option),
                    text: "the required payload does not fit into the message".into(),
                })
            }
        }
    }

    /// Length of the longest content that ends with the end of an HTTP header, excluding that end.
    fn longest_end(&self, payload: &[(usize, &Inspection)]) -> Option<usize> {
        if !matches!(self.application, Application::Http | Application::Http1) {
            return None;
        }
        let steps = payload.iter().flat_map(|(_, inspection)| &inspection.steps);
        let ends = steps.filter_map(|step| match &step.operation {
            Operation::Content(content) if !content.negated => {
                content.pattern.strip_suffix(b"\r\n\r\n").map(<[u8]>::len)
            }
            _ => None,
        });
        ends.max().filter(|&length| length > 0)
    }

    /// The payload alone, if it is a complete message of the protocol.
    fn whole_message(
        &mut self,
        maker: &mut Maker<'_>,
        payload: &[(usize, &Inspection)],
        variables: &[Option<u64>],
        attempt: u32,
    ) -> Result<Vec<Turn>, MakeError> {
        let (index, inspection) = payload[0];
        // Complete the first line if it is unfinished.
        let first = inspection.steps.iter().find_map(|step| match &step.operation {
            Operation::Content(content) if !content.negated => Some(content.pattern.as_slice()),
            _ => None,
        });
        let lead = match first {
            Some([b'/', ..]) if self.sender == End::Client => {
                Octets::framing(if attempt.is_multiple_of(2) { &b"GET "[..] } else { b"POST " })
            }
            _ => Octets::new(),
        };
        let layout = maker.lay_out(index, inspection, Numbers::any(), lead, variables, attempt)?;
        let mut octets = layout.octets;
        let (_, longest) = lengths(payload);
        if find(octets.bytes(), b"\r\n\r\n").is_none()
            && find(octets.bytes(), b" HTTP/1.").is_some()
        {
            let end: &[u8] = if octets.bytes().ends_with(b"\r\n") { b"\r\n" } else { b"\r\n\r\n" };
            if octets.len() + end.len() <= longest {
                octets.extend(end, Origin::Framing);
            }
        }
        Ok(vec![Turn::new(self.sender, octets)])
    }

    /// Lays the payload's contents over the sender's last message in which they fit. Only the octets
    /// of `marker` may be overwritten; all others must match already.
    fn over(
        &self,
        maker: &mut Maker<'_>,
        payload: &[(usize, &Inspection)],
        variables: &[Option<u64>],
        turns: Vec<Turn>,
        marker: Option<&[u8]>,
        attempt: u32,
    ) -> Option<Vec<Turn>> {
        let messages: Vec<usize> =
            (0..turns.len()).filter(|&turn| turns[turn].from == self.sender).collect();
        for &message in messages.iter().rev() {
            let octets = &turns[message].octets;
            let hole = match marker {
                Some(marker) => match find(octets.bytes(), marker) {
                    Some(at) => at..at + marker.len(),
                    None => continue,
                },
                None => 0..0,
            };
            let mut over = Some(octets.clone());
            for &(_, inspection) in payload {
                over = over.and_then(|octets| {
                    let spec = layout::Over {
                        steps: &inspection.steps,
                        octets: &octets,
                        hole: hole.clone(),
                        variables: maker.rule.variables.len(),
                    };
                    layout::lay_over(
                        &spec,
                        maker.expressions,
                        variables,
                        attempt,
                        &mut maker.rng,
                        maker.budget,
                    )
                });
            }
            if let Some(octets) = over {
                let mut turns = turns.clone();
                turns[message].octets = octets;
                return Some(turns);
            }
        }
        None
    }

    /// Turns patterns with a recognizable role into that part of the message, if it is missing.
    fn split(&mut self, maker: &mut Maker<'_>, payload: &[(usize, &Inspection)]) {
        if !matches!(self.application, Application::Http | Application::Http1) {
            return;
        }
        let split =
            Split::of(maker, payload.iter().map(|(_, inspection)| *inspection), self.sender);
        for (buffer, octets) in split.parts() {
            let (Buffer::HttpRawUri | Buffer::HttpHeader) = buffer else {
                if !self.has(&[buffer]) {
                    self.put(buffer, octets);
                }
                continue;
            };
            let alike: &[Buffer] = match buffer {
                Buffer::HttpHeader => &[Buffer::HttpHeader, Buffer::HttpRawHeader],
                _ => &[Buffer::HttpUri, Buffer::HttpRawUri],
            };
            let sender = self.sender;
            let there = self
                .parts
                .buffers
                .iter_mut()
                .find(|(of, end, _)| *end == sender && alike.contains(of));
            match there {
                None => self.put(buffer, octets),
                Some((_, _, there)) if buffer == Buffer::HttpHeader => {
                    if !there.bytes().ends_with(b"\r\n") {
                        there.extend(b"\r\n", Origin::Framing);
                    }
                    let mut at = 0;
                    for line in split_lines(octets.bytes()) {
                        if !line.is_empty() && find(there.bytes(), line).is_none() {
                            there.append(&octets.slice(at..at + line.len()));
                            there.extend(b"\r\n", Origin::Framing);
                        }
                        at += line.len() + 2;
                    }
                }
                // So far, only the size of this part was required.
                Some((_, _, there))
                    if there.len() == octets.len()
                        && there.origins().iter().all(|origin| *origin == Origin::Free) =>
                {
                    *there = octets;
                }
                Some(_) => {}
            }
        }
    }

    fn has(&self, buffers: &[Buffer]) -> bool {
        self.parts
            .buffers
            .iter()
            .any(|(buffer, end, _)| *end == self.sender && buffers.contains(buffer))
    }

    fn put(&mut self, buffer: Buffer, octets: Octets) {
        self.parts.buffers.push((buffer, self.sender, octets));
    }

    /// Adds `room` free octets to the parts. Returns the marker by which to find them.
    fn with_room(&self, maker: &mut Maker<'_>, room: usize) -> (Parts, Vec<u8>) {
        let mut parts = self.parts.clone();
        let marker = maker.rng.letters(room);
        let free = Octets::of(marker.clone(), Origin::Free);
        let sender = self.sender;
        let mut add = |buffers: &[Buffer], new: Buffer, before: &str, after: &str| {
            // The first of these buffers that has a part.
            let there = buffers.iter().find_map(|wanted| {
                parts.buffers.iter().position(|(buffer, end, _)| *end == sender && buffer == wanted)
            });
            let there = there.map(|at| &mut parts.buffers[at]);
            match there {
                Some((_, _, octets)) => {
                    if new == Buffer::HttpHeader && !octets.bytes().ends_with(b"\r\n") {
                        octets.extend(b"\r\n", Origin::Framing);
                    }
                    octets.extend(before.as_bytes(), Origin::Framing);
                    octets.append(&free);
                    octets.extend(after.as_bytes(), Origin::Framing);
                }
                None => {
                    let mut octets = Octets::new();
                    if matches!(new, Buffer::HttpRawUri | Buffer::HttpUri) {
                        octets.extend(b"/", Origin::Framing);
                    }
                    octets.extend(before.as_bytes(), Origin::Framing);
                    octets.append(&free);
                    octets.extend(after.as_bytes(), Origin::Framing);
                    parts.buffers.push((new, sender, octets));
                }
            }
        };
        let body =
            if sender == End::Client { Buffer::HttpRequestBody } else { Buffer::HttpResponseBody };
        match (self.application, self.place) {
            (Application::Http | Application::Http1, Place::Header) => {
                add(
                    &[Buffer::HttpHeader, Buffer::HttpRawHeader],
                    Buffer::HttpHeader,
                    "X-Id: ",
                    "\r\n",
                );
            }
            (Application::Http | Application::Http1, Place::Uri) => {
                add(&[Buffer::HttpRawUri, Buffer::HttpUri], Buffer::HttpUri, "", "");
            }
            (Application::Http | Application::Http1, Place::Cookie) => {
                add(&[Buffer::HttpCookie], Buffer::HttpCookie, "", "");
            }
            (Application::Http | Application::Http1, _) => {
                add(&[body, Buffer::FileData], body, "", "");
            }
            (Application::Smtp, _) => add(&[Buffer::FileData], Buffer::FileData, "", ""),
            (Application::Tls, _) if sender == End::Server => {
                add(&[Buffer::TlsSubject], Buffer::TlsSubject, "O=", "")
            }
            (Application::Tls, _) => add(&[Buffer::TlsSni], Buffer::TlsSni, "", ""),
            _ => add(&[Buffer::Payload], Buffer::Payload, "", ""),
        }
        (parts, marker)
    }
}

/// The parts of an HTTP message that patterns of the payload represent.
#[derive(Clone, Debug, Default)]
pub(super) struct Split {
    pub method: Octets,
    pub uri: Octets,
    pub protocol: Octets,
    pub cookie: Octets,
    /// Complete lines.
    pub header: Octets,
}

impl Split {
    /// Recognizes a method with a path, and header lines. For an expression, uses one sample of it.
    pub(super) fn of<'i>(
        maker: &mut Maker<'_>,
        payload: impl Iterator<Item = &'i Inspection>,
        sender: End,
    ) -> Split {
        let mut texts: Vec<(Vec<u8>, Origin)> = vec![];
        let mut contents: Vec<(Vec<u8>, Origin)> = vec![];
        for step in payload.flat_map(|inspection| &inspection.steps) {
            let origin = Origin::Option(step.option);
            match &step.operation {
                Operation::Pcre(pcre) if !pcre.negated => {
                    if let Ok(expression) = maker.expressions.of(step.option)
                        && let Some(sampled) = expression
                            .sample(&Choices::seeded(maker.rng.next()), &Constraints::default())
                    {
                        texts.push((sampled.bytes(), origin));
                    }
                }
                Operation::Content(content) if !content.negated => {
                    contents.push((content.pattern.clone(), origin))
                }
                _ => {}
            }
        }
        contents.retain(|(pattern, _)| !texts.iter().any(|(text, _)| holds(text, pattern)));
        texts.extend(contents);
        // Start with the most specific text, which may contain the others.
        texts.sort_by_key(|(text, _)| std::cmp::Reverse(split_lines(text).len()));
        let mut split = Split::default();
        for (text, origin) in texts {
            split.add(&text, origin, sender);
        }
        split
    }

    pub(super) fn parts(&self) -> impl Iterator<Item = (Buffer, Octets)> {
        [
            (Buffer::HttpMethod, &self.method),
            (Buffer::HttpRawUri, &self.uri),
            (Buffer::HttpProtocol, &self.protocol),
            (Buffer::HttpCookie, &self.cookie),
            (Buffer::HttpHeader, &self.header),
        ]
        .into_iter()
        .filter(|(_, octets)| !octets.is_empty())
        .map(|(buffer, octets)| (buffer, octets.clone()))
        .collect::<Vec<_>>()
        .into_iter()
    }

    fn add(&mut self, pattern: &[u8], origin: Origin, sender: End) {
        const METHODS: [&[u8]; 9] = [
            b"GET",
            b"POST",
            b"HEAD",
            b"PUT",
            b"DELETE",
            b"OPTIONS",
            b"PROPFIND",
            b"CONNECT",
            b"TRACE",
        ];
        let mut lines = split_lines(pattern);
        let open = lines.last().is_some_and(|line| !line.is_empty());
        let mut line = lines[0];
        if sender == End::Client {
            let method = METHODS.iter().find(|method| {
                line.starts_with(method)
                    && line.get(method.len()).is_none_or(|&octet| octet == b' ')
            });
            if let Some(method) = method {
                if self.method.is_empty() {
                    self.method = Octets::of(*method, origin);
                }
                line = line.get(method.len() + 1..).unwrap_or(b"");
            }
            let protocol = find(line, b"HTTP/1.").filter(|&at| at == 0 || line[at - 1] == b' ');
            if let Some(at) = protocol {
                let version = &line[at..];
                if version.len() == 8 && self.protocol.is_empty() {
                    self.protocol = Octets::of(version, origin);
                }
                line = &line[..at.saturating_sub(1)];
            }
            if line.first() == Some(&b'/') && !line.contains(&b' ') && self.uri.is_empty() {
                self.uri = Octets::of(line, origin);
            } else if protocol.is_some()
                && !line.is_empty()
                && !line.contains(&b' ')
                && self.uri.is_empty()
            {
                self.uri = Octets::of(*b"/index", Origin::Free);
                self.uri.extend(line, origin);
            }
            if method.is_some() || protocol.is_some() {
                lines.remove(0);
            }
        }
        let count = lines.len();
        for (number, line) in lines.into_iter().enumerate() {
            let Some(colon) = line.iter().position(|&octet| octet == b':') else { continue };
            let (name, value) = (&line[..colon], &line[colon + 1..]);
            if name.is_empty()
                || !name.iter().all(|&octet| layout::is_token(octet))
                || !name[0].is_ascii_alphabetic()
            {
                continue;
            }
            let mut blank = Octets::new();
            if value.first() != Some(&b' ') {
                blank.extend(b" ", Origin::Framing);
            }
            blank.extend(value, origin);
            // Cookies are not in the header buffers.
            if name.eq_ignore_ascii_case(b"Cookie") || name.eq_ignore_ascii_case(b"Set-Cookie") {
                if self.cookie.is_empty() {
                    self.cookie = blank.slice(1..blank.len());
                    if self.cookie.is_empty() || self.cookie.bytes().ends_with(b"=") {
                        self.cookie.extend(b"abc", Origin::Free);
                    }
                }
                continue;
            }
            if holds(self.header.bytes(), line) {
                continue;
            }
            self.header.extend(&line[..=colon], origin);
            self.header.append(&blank);
            if open && number + 1 == count && matches!(self.header.bytes().last(), Some(b' ')) {
                self.header.extend(
                    if name.eq_ignore_ascii_case(b"Content-Length") { b"8" } else { b"abc" },
                    Origin::Free,
                );
            }
            self.header.extend(b"\r\n", Origin::Framing);
        }
    }
}

/// Minimum and maximum length of a payload.
fn lengths(payload: &[(usize, &Inspection)]) -> (usize, usize) {
    let (mut least, mut most) = (0, usize::MAX);
    for step in payload.iter().flat_map(|(_, inspection)| &inspection.steps) {
        if let Operation::IsDataAt(at) = &step.operation
            && !at.relative
            && let squall_rules::Number::Is(number) = at.at
        {
            let number = usize::try_from(number).unwrap_or(0);
            if at.negated { most = most.min(number) } else { least = least.max(number + 1) }
        }
    }
    (least, most)
}

/// Total number of octets required.
fn required(maker: &Maker<'_>, payload: &[(usize, &Inspection)]) -> usize {
    payload
        .iter()
        .flat_map(|(_, inspection)| &inspection.steps)
        .map(|step| match &step.operation {
            Operation::Content(content) if !content.negated => content.pattern.len(),
            Operation::Pcre(pcre) if !pcre.negated => {
                maker
                    .expressions
                    .of(step.option)
                    .map_or(0, |expression| expression.least_length().min(20_000))
                    + 8
            }
            Operation::IsDataAt(at) if !at.negated && at.relative => match at.at {
                squall_rules::Number::Is(at) => usize::try_from(at.clamp(0, 20_000)).unwrap_or(0),
                squall_rules::Number::Variable(_) => 16,
            },
            Operation::ByteTest(_) | Operation::ByteJump(_) | Operation::ByteExtract(_) => 8,
            _ => 0,
        })
        .sum()
}

fn split_lines(mut octets: &[u8]) -> Vec<&[u8]> {
    let mut lines = vec![];
    while let Some(at) = find(octets, b"\r\n") {
        lines.push(&octets[..at]);
        octets = &octets[at + 2..];
    }
    lines.push(octets);
    lines
}

fn holds(text: &[u8], pattern: &[u8]) -> bool {
    !pattern.is_empty()
        && text.windows(pattern.len()).any(|window| window.eq_ignore_ascii_case(pattern))
}

pub(super) fn find(octets: &[u8], pattern: &[u8]) -> Option<usize> {
    if pattern.is_empty() {
        return None;
    }
    octets.windows(pattern.len()).position(|window| window == pattern)
}
