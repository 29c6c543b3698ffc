//! Finds the end of HTTP/1 messages (RFC 9112 §6), octet by octet, with only 48 bits of state.
//!
//! Parses only the parts that a generator needs: status, the method HEAD, Content-Length,
//! Transfer-Encoding, Connection, Expect. Accepts lines that end in LF alone (§2.2), refuses
//! contradictory lengths (§6.3).

/// State between segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parser {
    /// Remaining octets of a body or a chunk; while a number is parsed, its value so far.
    len: u64,
    state: u8,
    flags: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Request,
    /// Whether the response answers a HEAD.
    Response {
        head: bool,
    },
}

/// The event at which `read` stopped; there may be more input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// No event: the input is consumed.
    More,
    /// A response's status, 100..=999.
    Status(u16),
    /// The request waits for 100 (Continue) (RFC 9110 §10.1.1).
    Expect,
    /// The message ends here.
    End {
        head: bool,
        close: bool,
    },
    Bad,
}

/// The head of a message that was read last, and what the parser has found in it. Equal heads are
/// compared in place of being parsed again.
#[derive(Clone, Debug, Default)]
pub struct LastHead {
    octets: Vec<u8>,
    /// The kind, octets read, and event; `after` is the state of the parser then.
    of: Option<(Kind, usize, Found)>,
    after: Parser,
}

/// The longest head that is remembered, in octets.
const MAX_LAST: usize = 1 << 10;

impl LastHead {
    /// As [`Parser::read`] for `input` that ends with a head, because bodies after it are rarely the
    /// same; but a response's status has used all of `input` if no other event follows in it.
    #[inline]
    pub fn read(&mut self, parser: &mut Parser, kind: Kind, input: &[u8]) -> (usize, Found) {
        if !parser.at_start() || input.is_empty() || input.len() > MAX_LAST {
            return parser.read(kind, input);
        }
        if let Some((of, used, found)) = self.of
            && of == kind
            && input == self.octets
        {
            *parser = self.after;
            return (used, found);
        }
        self.read_new(parser, kind, input)
    }

    fn read_new(&mut self, parser: &mut Parser, kind: Kind, input: &[u8]) -> (usize, Found) {
        let (mut used, found) = parser.read(kind, input);
        match found {
            // Without a body, the end follows, and the caller reads it.
            Found::Status(_) => {
                let mut after = *parser;
                if after.read(kind, &input[used..]) == (input.len() - used, Found::More) {
                    (*parser, used) = (after, input.len());
                }
            }
            Found::End { .. } if used == input.len() => {}
            _ => return (used, found),
        }
        self.octets.clear();
        self.octets.extend_from_slice(input);
        (self.of, self.after) = (Some((kind, used, found)), *parser);
        (used, found)
    }
}

const CHUNKED: u8 = 1;
const CLOSE: u8 = 2;
const HAS_LEN: u8 = 4;
/// In a request: the method is HEAD. In a response: the status excludes a body.
const NO_BODY: u8 = 8;
/// In a response: it is an interim response. In a request: it expects 100 (Continue).
const INTERIM: u8 = 16;
/// 36 bits of length, 7 bits of state and 5 flags make 48 bits.
const MAX_LEN: u64 = 1 << 36;

const START: u8 = 0;
/// State after "HTTP/1.1 200" was read.
const STATUS_END: u8 = 12;
/// State after "HEAD " was read.
const METHOD: u8 = 20;
const OTHER_METHOD: u8 = 25;
const TARGET: u8 = 26;
/// State after " HTTP/1." was read.
const VERSION: &[u8] = b" HTTP/1.";
const MINOR: u8 = 34;
const LINE_END: u8 = 35;
const LINE_END_LF: u8 = 36;
const LINE: u8 = 40;
const HEAD_END: u8 = 41;
const SKIP: u8 = 42;
const NAMES: [(u8, &[u8]); 4] =
    [(42, b"content-length"), (56, b"transfer-encoding"), (73, b"connection"), (83, b"expect")];
const NAMES_END: u8 = 89;
const LENGTH: u8 = 90;
const LENGTH_DIGITS: u8 = 91;
/// State after "chunked" was read.
const CODING: u8 = 92;
const CHUNKED_NAME: &[u8] = b"chunked";
const OPTION: u8 = 99;
const CLOSE_NAME: &[u8] = b"close";
const OPTION_KEEP: u8 = 103;
const KEEP_NAME: &[u8] = b"keep-alive";
const BODY: u8 = 113;
const BODY_TO_CLOSE: u8 = 114;
const CHUNK_SIZE: u8 = 115;
const CHUNK_DIGITS: u8 = 116;
const CHUNK_EXTENSION: u8 = 117;
const CHUNK: u8 = 118;
const CHUNK_END: u8 = 119;
const CHUNK_END_LF: u8 = 120;
const TRAILER: u8 = 121;
const TRAILER_LF: u8 = 122;
const TRAILER_SKIP: u8 = 123;

/// Whether a URL's scheme is `https`, and the text after its `//`; `None` if the scheme is neither
/// `https` nor `http`. Schemes are case-insensitive (RFC 3986 §3.1).
pub fn scheme(url: &[u8]) -> Option<(bool, &[u8])> {
    let (name, rest) = url.split_at(memchr::memchr(b':', url)?);
    let secure = name.eq_ignore_ascii_case(b"https");
    let known = secure || name.eq_ignore_ascii_case(b"http");
    rest.strip_prefix(b"://").filter(|_| known).map(|rest| (secure, rest))
}

impl Parser {
    /// Unpacks the state from 32 and 16 bits.
    pub fn load(want: u32, more: u16) -> Self {
        Self {
            len: u64::from(want) | u64::from(more & 0xf) << 32,
            state: (more >> 4 & 0x7f) as u8,
            flags: (more >> 11) as u8,
        }
    }

    pub fn store(self) -> (u32, u16) {
        let more = (self.len >> 32) as u16 & 0xf
            | u16::from(self.state) << 4
            | u16::from(self.flags) << 11;
        (self.len as u32, more)
    }

    /// Whether no octet of the next message was read.
    pub fn at_start(self) -> bool {
        self.state == START && self.flags == 0
    }

    /// Whether the sender's close ends the message properly.
    pub fn ends_by_close(self) -> bool {
        self.state == BODY_TO_CLOSE
    }

    /// Reads up to the next event. Returns the octets read, and the event.
    pub fn read(&mut self, kind: Kind, input: &[u8]) -> (usize, Found) {
        let mut at = 0;
        while let Some(&octet) = input.get(at) {
            match self.state {
                SKIP | CHUNK_EXTENSION | TRAILER_SKIP => {
                    match memchr::memchr(b'\n', &input[at..]) {
                        None => return (input.len(), Found::More),
                        Some(skip) => {
                            at += skip + 1;
                            match self.state {
                                SKIP => self.state = LINE,
                                TRAILER_SKIP => self.state = TRAILER,
                                _ => self.begin_chunk(),
                            }
                            continue;
                        }
                    }
                }
                BODY | CHUNK => {
                    let take = self.len.min((input.len() - at) as u64);
                    self.len -= take;
                    at += take as usize;
                    if self.len == 0 {
                        if self.state == BODY {
                            return (at, self.end());
                        }
                        self.state = CHUNK_END;
                    }
                    continue;
                }
                BODY_TO_CLOSE => return (input.len(), Found::More),
                TARGET => {
                    let skip = input[at..].iter().position(|octet| matches!(octet, b' ' | b'\n'));
                    let Some(skip) = skip else { return (input.len(), Found::More) };
                    at += skip + 1;
                    if input[at - 1] == b'\n' {
                        return (at, Found::Bad);
                    }
                    self.state = TARGET + 1;
                    continue;
                }
                LINE if !matches!(octet, b'\r' | b'\n') => {
                    if let Some(end) = memchr::memchr(b'\n', &input[at..]) {
                        let (skip, found) = self.whole_line(&input[at..at + end]);
                        at += skip;
                        match found {
                            Found::More => continue,
                            found => return (at, found),
                        }
                    }
                }
                _ => {}
            }
            at += 1;
            match self.step(kind, octet) {
                Found::More => {}
                found => return (at, found),
            }
        }
        (at, Found::More)
    }

    /// A header line, without its LF, that arrived in one piece: comparing the name as a whole
    /// avoids 40 instructions per octet. Returns how much of the line was read, including the LF if
    /// the name is not in [`NAMES`].
    fn whole_line(&mut self, line: &[u8]) -> (usize, Found) {
        let is = |name: &[u8]| {
            line.get(name.len()) == Some(&b':') && line[..name.len()].eq_ignore_ascii_case(name)
        };
        match NAMES.iter().position(|(_, name)| is(name)) {
            Some(index) => (NAMES[index].1.len() + 1, self.value(index)),
            None => (line.len() + 1, Found::More),
        }
    }

    fn step(&mut self, kind: Kind, octet: u8) -> Found {
        match self.state {
            START..STATUS_END if kind != Kind::Request => return self.status_line(octet),
            START => {
                // Empty lines before a request are ignored (§2.2).
                if !matches!(octet, b'\r' | b'\n') {
                    self.state = METHOD;
                    return self.method(octet);
                }
            }
            METHOD..=OTHER_METHOD => return self.method(octet),
            TARGET..MINOR => {
                let have = usize::from(self.state - TARGET);
                self.state = match octet {
                    _ if octet == VERSION[have] => self.state + 1,
                    b'\n' => return Found::Bad,
                    b' ' => TARGET + 1,
                    _ => TARGET,
                };
            }
            MINOR => {
                if !octet.is_ascii_digit() {
                    return Found::Bad;
                }
                if octet == b'0' {
                    self.flags |= CLOSE;
                }
                self.state = LINE_END;
            }
            LINE_END if octet == b'\r' => self.state = LINE_END_LF,
            LINE_END | LINE_END_LF => {
                if octet != b'\n' {
                    return Found::Bad;
                }
                self.state = LINE;
            }
            LINE => match octet {
                b'\r' => self.state = HEAD_END,
                b'\n' => return self.head_end(kind),
                _ => self.name(0, octet),
            },
            HEAD_END => return if octet == b'\n' { self.head_end(kind) } else { Found::Bad },
            43..=NAMES_END => {
                // The last name whose base is not above the state; state base + n means that n
                // octets of the name were read.
                let index = NAMES.iter().rposition(|(base, _)| *base < self.state).unwrap_or(0);
                let (base, name) = NAMES[index];
                let have = usize::from(self.state - base);
                if have == name.len() && octet == b':' {
                    return self.value(index);
                }
                self.name_after(index, have, octet);
            }
            LENGTH | LENGTH_DIGITS => match octet {
                b'0'..=b'9' => {
                    self.len = self.len * 10 + u64::from(octet - b'0');
                    if self.len >= MAX_LEN {
                        return Found::Bad;
                    }
                    self.state = LENGTH_DIGITS;
                    self.flags |= HAS_LEN;
                }
                b' ' | b'\t' => self.state = if self.state == LENGTH { LENGTH } else { SKIP },
                b'\r' if self.state == LENGTH_DIGITS => self.state = SKIP,
                b'\n' if self.state == LENGTH_DIGITS => self.state = LINE,
                _ => return Found::Bad,
            },
            CODING..OPTION => {
                if self.token(octet, CODING, CODING + 1, CHUNKED_NAME) {
                    self.flags |= CHUNKED;
                }
            }
            OPTION..=112 => self.option(octet),
            CHUNK_SIZE | CHUNK_DIGITS => match (octet as char).to_digit(16) {
                Some(digit) => {
                    self.len = self.len * 16 + u64::from(digit);
                    if self.len >= MAX_LEN {
                        return Found::Bad;
                    }
                    self.state = CHUNK_DIGITS;
                }
                None if self.state == CHUNK_SIZE => return Found::Bad,
                None if octet == b'\n' => self.begin_chunk(),
                None if matches!(octet, b';' | b'\r' | b' ' | b'\t') => {
                    self.state = CHUNK_EXTENSION
                }
                None => return Found::Bad,
            },
            CHUNK_END if octet == b'\r' => self.state = CHUNK_END_LF,
            CHUNK_END | CHUNK_END_LF => {
                if octet != b'\n' {
                    return Found::Bad;
                }
                self.state = CHUNK_SIZE;
            }
            TRAILER => match octet {
                b'\r' => self.state = TRAILER_LF,
                b'\n' => return self.end(),
                _ => self.state = TRAILER_SKIP,
            },
            TRAILER_LF => return if octet == b'\n' { self.end() } else { Found::Bad },
            _ => return Found::Bad,
        }
        Found::More
    }

    /// "HTTP/1.1 200"
    fn status_line(&mut self, octet: u8) -> Found {
        let right = match self.state {
            at @ 0..=6 => octet == b"HTTP/1."[usize::from(at)],
            7 => {
                if octet == b'0' {
                    self.flags |= CLOSE;
                }
                octet.is_ascii_digit()
            }
            8 => octet == b' ',
            _ => {
                self.len = self.len * 10 + u64::from(octet.wrapping_sub(b'0'));
                octet.is_ascii_digit()
            }
        };
        if !right {
            return Found::Bad;
        }
        self.state += 1;
        if self.state < STATUS_END {
            return Found::More;
        }
        let status = std::mem::take(&mut self.len) as u16;
        self.state = SKIP;
        match status {
            0..=99 => return Found::Bad,
            // After a 101, another protocol follows.
            101 | 204 | 304 => self.flags |= NO_BODY,
            100..=199 => {
                self.flags |= INTERIM;
                return Found::More;
            }
            _ => {}
        }
        Found::Status(status)
    }

    fn method(&mut self, octet: u8) -> Found {
        let have = usize::from(self.state - METHOD);
        match octet {
            b' ' => {
                if self.state == METHOD + 4 {
                    self.flags |= NO_BODY;
                }
                self.state = TARGET;
            }
            _ if self.state < METHOD + 4 && octet == b"HEAD"[have] => self.state += 1,
            // A token (RFC 9110 §5.6.2), limited to characters in actual use.
            b'A'..=b'Z'
            | b'a'..=b'z'
            | b'0'..=b'9'
            | b'-'
            | b'_'
            | b'!'
            | b'$'
            | b'*'
            | b'+'
            | b'.' => {
                self.state = OTHER_METHOD;
            }
            _ => return Found::Bad,
        }
        Found::More
    }

    /// Handles the first octet of a line, or an octet at which the name may turn out to be a
    /// different one with the same prefix.
    fn name(&mut self, have: usize, octet: u8) {
        self.name_after(0, have, octet);
    }

    /// Called when `have` octets of name `index` were read.
    fn name_after(&mut self, index: usize, have: usize, octet: u8) {
        let read = &NAMES[index].1[..have];
        let octet = octet.to_ascii_lowercase();
        self.state = match NAMES
            .iter()
            .find(|(_, name)| name.get(have) == Some(&octet) && name.starts_with(read))
        {
            Some((base, _)) => base + have as u8 + 1,
            None if octet == b'\n' => LINE,
            None => SKIP,
        };
    }

    fn value(&mut self, name: usize) -> Found {
        self.state = match name {
            0 if self.flags & HAS_LEN != 0 => return Found::Bad,
            0 => LENGTH,
            1 => CODING,
            2 => OPTION,
            _ => {
                self.flags |= INTERIM;
                SKIP
            }
        };
        Found::More
    }

    /// Matches `token` octet by octet: `none` is the state before its first octet, `first` the
    /// state after that octet. Returns whether the token is complete.
    fn token(&mut self, octet: u8, none: u8, first: u8, token: &[u8]) -> bool {
        let octet = octet.to_ascii_lowercase();
        let have = if self.state == none { 0 } else { usize::from(self.state - first) + 1 };
        if octet == b'\n' {
            self.state = LINE;
        } else if octet == token[have] {
            if have + 1 == token.len() {
                self.state = SKIP;
                return true;
            }
            self.state = first + have as u8;
        } else {
            self.state = if octet == token[0] { first } else { none };
        }
        false
    }

    fn option(&mut self, octet: u8) {
        let keep =
            self.state > OPTION_KEEP || self.state == OPTION && octet.eq_ignore_ascii_case(&b'k');
        if keep {
            if self.token(octet, OPTION, OPTION_KEEP + 1, KEEP_NAME) {
                self.flags &= !CLOSE;
            }
        } else if self.token(octet, OPTION, OPTION + 1, CLOSE_NAME) {
            self.flags |= CLOSE;
        }
    }

    /// Determines the message body length (§6.3).
    fn head_end(&mut self, kind: Kind) -> Found {
        let is = |flag| self.flags & flag != 0;
        if is(CHUNKED) && is(HAS_LEN) {
            return Found::Bad;
        }
        match kind {
            Kind::Response { .. } if is(INTERIM) => {
                *self = Self::default();
                return Found::More;
            }
            Kind::Response { head } if head || is(NO_BODY) => return self.end(),
            Kind::Response { .. } if !is(CHUNKED) && !is(HAS_LEN) => {
                self.flags |= CLOSE;
                self.state = BODY_TO_CLOSE;
                return Found::More;
            }
            _ => {}
        }
        if is(CHUNKED) {
            self.state = CHUNK_SIZE;
        } else if self.len == 0 {
            return self.end();
        } else {
            self.state = BODY;
        }
        if kind == Kind::Request && is(INTERIM) { Found::Expect } else { Found::More }
    }

    fn begin_chunk(&mut self) {
        self.state = if self.len == 0 { TRAILER } else { CHUNK };
    }

    fn end(&mut self) -> Found {
        let found = Found::End { head: self.flags & NO_BODY != 0, close: self.flags & CLOSE != 0 };
        *self = Self::default();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All events found in `text`, which is fed in pieces of `step` octets, with the packed state
    /// between them.
    fn read(kind: Kind, text: &[u8], step: usize) -> Vec<Found> {
        read_by(text, step, |parser, piece| parser.read(kind, piece))
    }

    fn read_by(
        text: &[u8],
        step: usize,
        mut read: impl FnMut(&mut Parser, &[u8]) -> (usize, Found),
    ) -> Vec<Found> {
        let (mut kept, mut all) = (Parser::default().store(), vec![]);
        for mut piece in text.chunks(step) {
            while !piece.is_empty() {
                let mut parser = Parser::load(kept.0, kept.1);
                let (used, found) = read(&mut parser, piece);
                kept = parser.store();
                assert!(found == Found::Bad || Parser::load(kept.0, kept.1) == parser);
                piece = &piece[used..];
                if found != Found::More {
                    all.push(found);
                }
                if found == Found::Bad {
                    return all;
                }
            }
        }
        if Parser::load(kept.0, kept.1).ends_by_close() {
            all.push(Found::End { head: false, close: true });
        }
        all
    }

    fn each_way(kind: Kind, text: &str, expected: &[Found]) {
        for step in [1, 2, 3, 7, 64, 10_000] {
            assert_eq!(read(kind, text.as_bytes(), step), expected, "{text:?} by {step}");
        }
        // With its head by itself, again and again, also after the same octets of another kind.
        let end = crate::answers::head_end(text.as_bytes()).unwrap_or(text.len());
        let other = if kind == RESPONSE { Kind::Response { head: true } } else { RESPONSE };
        let mut last = LastHead::default();
        for _ in 0..3 {
            for step in [end.max(1), 10_000] {
                let by_last = |parser: &mut Parser, piece: &[u8]| last.read(parser, kind, piece);
                let found = read_by(text.as_bytes(), step, by_last);
                assert_eq!(found, expected, "{text:?} by {step}");
            }
            last.read(&mut Parser::default(), other, text.as_bytes());
        }
    }

    const RESPONSE: Kind = Kind::Response { head: false };

    #[test]
    fn a_head_is_kept_with_what_follows_its_status() {
        let (line, mut last) = ("HTTP/1.1 200 OK\r\n", LastHead::default());
        let status = "HTTP/1.1 200".len();
        let long = format!("{line}x: {}\r\n\r\n", "x".repeat(MAX_LAST));
        for (head, kept) in [
            (format!("{line}content-length: 5\r\n\r\n"), Some(38)),
            (format!("{line}content-length: 0\r\n\r\n"), Some(status)),
            (long, Some(status)),
        ] {
            let before = last.of;
            let used = last.read(&mut Parser::default(), RESPONSE, head.as_bytes()).0;
            assert_eq!(Some(used), kept, "{head}");
            match head.len() > MAX_LAST {
                true => assert_eq!(last.of, before, "too long to be kept"),
                false => assert_eq!(last.of, Some((RESPONSE, used, Found::Status(200)))),
            }
        }
    }

    fn end(head: bool, close: bool) -> Found {
        Found::End { head, close }
    }

    #[test]
    fn responses_end_by_their_framing() {
        let ok = Found::Status(200);
        for (text, expected) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", vec![ok, end(false, false)]),
            (
                "HTTP/1.1 200 OK\r\ncontent-length:5\r\nconnection: Close\r\n\r\nhello",
                vec![ok, end(false, true)],
            ),
            (
                "HTTP/1.1 404 Not Found\nContent-Length: 0 \n\n",
                vec![Found::Status(404), end(false, false)],
            ),
            ("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nab", vec![ok, end(false, true)]),
            (
                "HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 2\r\n\r\nab",
                vec![ok, end(false, false)],
            ),
            (
                "HTTP/1.1 200 OK\r\nConnection: closed-ish\r\nContent-Length: 0\r\n\r\n",
                vec![ok, end(false, true)],
            ),
            ("HTTP/1.1 204 No Content\r\n\r\n", vec![Found::Status(204), end(true, false)]),
            (
                "HTTP/1.1 304 Not Modified\r\nContent-Length: 999\r\n\r\n",
                vec![Found::Status(304), end(true, false)],
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n5;a=b\r\nhello\r\n1F \
                 \r\n0123456789012345678901234567890\r\n0\r\nTrailer: x\r\n\r\n",
                vec![ok, end(false, false)],
            ),
            ("HTTP/1.1 200 OK\r\nServer: x\r\n\r\nall the rest", vec![ok, end(false, true)]),
            (
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 \
                 201 Created\r\nContent-Length: 1\r\n\r\nx",
                vec![Found::Status(201), end(false, false)],
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 500 x\r\nContent-Length: \
                 1\r\n\r\nb",
                vec![ok, end(false, false), Found::Status(500), end(false, false)],
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Type: x\r\nConnectio: close\r\nContent-Lengths: \
                 7\r\nContentx: 9\r\nContent-Length: 3\r\n\r\nabc",
                vec![ok, end(false, false)],
            ),
        ] {
            each_way(RESPONSE, text, &expected);
        }
        each_way(
            Kind::Response { head: true },
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
            &[ok, end(false, false)],
        );
    }

    #[test]
    fn malformed_responses_are_refused() {
        for text in [
            "SSH-2.0-OpenSSH",
            "HTTP/2 200",
            "HTTP/1.1 2x0 OK",
            "HTTP/1.1 099 OK",
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc",
        ] {
            let found = read(RESPONSE, text.as_bytes(), 3);
            assert_eq!(found.last(), Some(&Found::Bad), "{text:?}");
        }
    }

    #[test]
    fn requests_end_by_their_framing() {
        for (text, expected) in [
            ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", vec![end(false, false)]),
            (
                "\r\n\r\nHEAD /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
                vec![end(true, true)],
            ),
            ("HEADER /a HTTP/1.1\r\n\r\n", vec![end(false, false)]),
            ("GET /0 HTTP/1.0\r\n\r\n", vec![end(false, true)]),
            ("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", vec![end(false, false)]),
            ("GET /a b HTTP/1.1\r\n\r\n", vec![end(false, false)]),
            (
                "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\n\r\n",
                vec![end(false, false); 2],
            ),
            (
                "PUT / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
                vec![Found::Expect, end(false, false)],
            ),
            (
                "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
                vec![end(false, false)],
            ),
        ] {
            each_way(Kind::Request, text, &expected);
        }
        for text in [
            "\x16\x03\x01",
            "GET /\r\n",
            "GET / HTTP/2\r\n",
            "GET / HTTP/1.1 x\r\n",
            "G(T / HTTP/1.1\r\n",
        ] {
            assert_eq!(read(Kind::Request, text.as_bytes(), 2), [Found::Bad], "{text:?}");
        }
    }

    #[test]
    fn lengths_up_to_64_gib_are_kept_between_segments() {
        let text = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", MAX_LEN - 1);
        let mut parser = Parser::default();
        parser.read(RESPONSE, text.as_bytes());
        let (used, found) = parser.read(RESPONSE, &text.as_bytes()[16..]);
        assert_eq!((used, found), (text.len() - 16, Found::More));
        assert_eq!(Parser::load(parser.store().0, parser.store().1), parser);
        assert_eq!(parser.len, MAX_LEN - 1);
    }
}
