//! The text form of instructions, which profiles use.

use std::{fmt, str::FromStr};

use squall_units::{Nanos, parse_octets};

use crate::{
    Amount, Check, Compare, Condition, Delay, Instruction, Message, MessageRef, Mistake, Origin,
    Take, TakeForm, Times, Value,
    message::{unescape, write_escaped},
};

/// Defines the first words of instructions, with examples.
macro_rules! instructions {
    (
        $first:ident $first_word:literal $first_example:literal
        $(, $variant:ident $word:literal $example:literal)* $(,)?
    ) => {
        impl Instruction {
            /// Each word, and its examples, separated by commas.
            pub const WORDS: &[(&str, &str)] =
                &[($first_word, $first_example) $(, ($word, $example))*];

            /// The first word of the instruction's text.
            #[must_use]
            pub fn word(&self) -> &'static str {
                match self {
                    Self::$first { .. } => $first_word,
                    $(Self::$variant { .. } => $word,)*
                }
            }
        }

        const EXPECTED: &str = concat!("one of ", $first_word $(, ", ", $word)*);
    };
}

instructions! {
    Connect "connect" "connect",
    Accept "accept" "accept",
    Send "send" r#"send "hello\r\n", send hello"#,
    Recv "recv" "recv 1460, recv 64 KiB within 2 s",
    RecvUntil "recv_until" r#"recv_until "\r\n\r\n", recv_until "OK" within 2 s"#,
    Delay "delay" "delay 10 ms, delay uniform 1 ms 5 ms, delay exponential 10 ms",
    Set "set" "set x 5, set x random 1 10, set x clock",
    Add "add" "add x 1, add x -1",
    Count "count" "count pages, count octets 1460, count rounds x, count waited elapsed x",
    Next "next" r#"next page, next "my template""#,
    Begin "begin" r#"begin page, begin "my template""#,
    Label "label" "label again",
    Jump "jump" "jump again, jump again if x < 5, jump again if elapsed x < 2 s",
    Loop "loop" "loop 3, loop until x >= 5, loop forever",
    End "end" "end",
    Close "close" "close",
    Reset "reset" "reset",
    Flush "flush" "flush",
    WaitPeerClose "wait_peer_close" "wait_peer_close",
    Rate "rate" "rate 125 kB every 10 ms, rate 0",
    SendPacket "send_packet" r#"send_packet "hello", send_packet hello"#,
    RecvPackets "recv_packets" "recv_packets 1, recv_packets 1 take id = be16 at 0 within 2 s",
    RecvPacketOctets "recv_packet_octets" "recv_packet_octets 3000 within 2 s",
    Keepalive "keepalive" "keepalive 30 s",
    HttpResponse "http_response" "http_response, http_response head within 2 s",
    HttpServe "http_serve" "http_serve 200 text/html 1024",
    Websocket "websocket" r#"websocket "/chat", websocket "/chat" "Host: www.test\r\nOrigin: http://www.test\r\n""#,
    WsAccept "ws_accept" "ws_accept",
    WsSend "ws_send" r#"ws_send "hello", ws_send binary hello, ws_send fragments 1000 hello"#,
    WsRecv "ws_recv" "ws_recv 1, ws_recv 1 within 2 s",
    WsEcho "ws_echo" "ws_echo",
    WsFanOut "ws_fan_out" "ws_fan_out, ws_fan_out groups 10",
    WsPush "ws_push" r#"ws_push "hello" every 100 ms, ws_push binary hello every 1 s groups 10"#,
    WsPing "ws_ping" "ws_ping",
    WsClose "ws_close" "ws_close, ws_close 1001",
    GrpcCall "grpc_call" r#"grpc_call "/squall.Test/Call", grpc_call "/squall.Test/Call" "X-Id: 1\r\n" deadline 1 s"#,
    GrpcSend "grpc_send" r#"grpc_send "hello", grpc_send hello"#,
    GrpcEnd "grpc_end" "grpc_end",
    GrpcRecv "grpc_recv" "grpc_recv 3",
    GrpcStatus "grpc_status" "grpc_status OK, grpc_status OK NOT_FOUND, grpc_status any",
    GrpcCancel "grpc_cancel" "grpc_cancel",
    GrpcAccept "grpc_accept" "grpc_accept, grpc_accept /squall.Test/Call",
    GrpcNext "grpc_next" "grpc_next done",
    GrpcFinish "grpc_finish" r#"grpc_finish OK, grpc_finish NOT_FOUND "no such name""#,
    Extract "extract" r#"extract token = json data.token, extract id = regex "id=(\d+)", extract tag = header ETag"#,
    Check "check" r#"check status 200, check length 512, check sha256 HEX, check regex "welcome", check no_redirect"#,
    UnlessRedirect "unless_redirect" "unless_redirect done, unless_redirect done www.test",
}

impl FromStr for Instruction {
    type Err = Mistake;

    fn from_str(text: &str) -> Result<Self, Mistake> {
        let text = text.trim();
        let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let rest = rest.trim();
        let found = Self::WORDS.iter().find(|(known, _)| *known == word);
        let line = Line { text, hint: found.map_or(r#"send "hello\r\n""#, |(_, hint)| hint) };
        match word {
            "connect" => line.alone(rest, Self::Connect),
            "accept" => line.alone(rest, Self::Accept),
            "end" => line.alone(rest, Self::End),
            "close" => line.alone(rest, Self::Close),
            "reset" => line.alone(rest, Self::Reset),
            "flush" => line.alone(rest, Self::Flush),
            "wait_peer_close" => line.alone(rest, Self::WaitPeerClose),
            "send" => Ok(Self::Send(line.message(rest)?)),
            "send_packet" => Ok(Self::SendPacket(line.message(rest)?)),
            "recv" => {
                let (octets, within) = line.within(rest)?;
                Ok(Self::Recv { octets: line.octets(octets)?, within })
            }
            "recv_until" => line.recv_until(rest),
            "delay" => Ok(Self::Delay(line.delay(rest)?)),
            "set" => line.set(rest),
            "add" => line.add(rest),
            "count" => line.count(rest),
            "next" => Ok(Self::Next(line.template(rest)?)),
            "begin" if rest.is_empty() => Ok(Self::Begin(None)),
            "begin" => Ok(Self::Begin(Some(line.template(rest)?))),
            "label" => Ok(Self::Label(line.name(rest)?)),
            "jump" => line.jump(rest),
            "loop" => line.repeat(rest),
            "rate" => line.rate(rest),
            "recv_packets" => line.recv_packets(rest),
            "recv_packet_octets" => {
                let (octets, within) = line.within(rest)?;
                Ok(Self::RecvPacketOctets { octets: line.octets(octets)?, within })
            }
            "keepalive" => Ok(Self::Keepalive(line.time(rest)?)),
            "http_response" => line.http_response(rest),
            "http_serve" => line.http_serve(rest),
            "websocket" => line.websocket(rest),
            "ws_accept" => line.alone(rest, Self::WsAccept),
            "ws_send" => line.ws_send(rest),
            "ws_recv" => {
                let (messages, within) = line.within(rest)?;
                Ok(Self::WsRecv { messages: line.number(messages)?, within })
            }
            "ws_echo" => line.alone(rest, Self::WsEcho),
            "ws_fan_out" if rest.is_empty() => Ok(Self::WsFanOut { groups: 1 }),
            "ws_fan_out" => {
                let groups = rest.strip_prefix("groups ").ok_or_else(|| line.wrong("`groups`"))?;
                Ok(Self::WsFanOut { groups: line.number(groups.trim())? })
            }
            "ws_push" => line.ws_push(rest),
            "ws_ping" => line.alone(rest, Self::WsPing),
            "ws_close" if rest.is_empty() => Ok(Self::WsClose { code: NORMAL_CLOSE }),
            "ws_close" => {
                let code = rest.parse().map_err(|_| line.wrong("a code"))?;
                Ok(Self::WsClose { code })
            }
            "grpc_call" => line.grpc_call(rest),
            "grpc_send" => Ok(Self::GrpcSend(line.message(rest)?)),
            "grpc_end" => line.alone(rest, Self::GrpcEnd),
            "grpc_recv" => Ok(Self::GrpcRecv(line.number(rest)?)),
            "grpc_status" => {
                let all = rest.parse().map_err(|()| line.wrong("names of statuses, or `any`"))?;
                Ok(Self::GrpcStatus(all))
            }
            "grpc_cancel" => line.alone(rest, Self::GrpcCancel),
            "grpc_accept" => line.grpc_accept(rest),
            "grpc_next" => Ok(Self::GrpcNext { label: line.name(rest)? }),
            "grpc_finish" => line.grpc_finish(rest),
            "extract" => line.extract(rest),
            "check" => line.check(rest),
            "unless_redirect" => line.unless_redirect(rest),
            _ => Err(line.wrong(EXPECTED)),
        }
    }
}

/// Parses instructions with several words; `rest` is the text after the first word.
impl<'a> Line<'a> {
    fn recv_until(self, rest: &'a str) -> Result<Instruction, Mistake> {
        let (pattern, within) = match rest.rfind('"').filter(|at| *at > 0) {
            Some(at) => {
                let (pattern, tail) = rest.split_at(at + 1);
                (pattern, self.within(tail)?.1)
            }
            None => (rest, None),
        };
        let pattern = self.quoted(pattern).ok_or_else(|| self.wrong("octets in quotes"))?;
        Ok(Instruction::RecvUntil { pattern: unescape(pattern)?.into(), within })
    }

    fn set(self, rest: &'a str) -> Result<Instruction, Mistake> {
        match rest.split_whitespace().collect::<Vec<_>>()[..] {
            [variable, "random", low, high] => Ok(Instruction::Set {
                variable: self.name(variable)?,
                value: Value::Random(self.number(low)?, self.number(high)?),
            }),
            [variable, "clock"] => {
                Ok(Instruction::Set { variable: self.name(variable)?, value: Value::Clock })
            }
            [variable, value] => Ok(Instruction::Set {
                variable: self.name(variable)?,
                value: Value::Constant(self.number(value)?),
            }),
            _ => Err(self.wrong("a variable and its value")),
        }
    }

    fn add(self, rest: &'a str) -> Result<Instruction, Mistake> {
        match rest.split_whitespace().collect::<Vec<_>>()[..] {
            [variable, value] => Ok(Instruction::Add {
                variable: self.name(variable)?,
                value: value.parse().map_err(|_| self.wrong("a whole number"))?,
            }),
            _ => Err(self.wrong("a variable and a number to add")),
        }
    }

    fn count(self, rest: &'a str) -> Result<Instruction, Mistake> {
        let (counter, amount) = match rest.split_whitespace().collect::<Vec<_>>()[..] {
            [counter] => (counter, Amount::Constant(1)),
            [counter, "elapsed", variable] => (counter, Amount::Elapsed(self.name(variable)?)),
            [counter, amount] if amount.starts_with(|c: char| c == '-' || c.is_ascii_digit()) => {
                (counter, Amount::Constant(self.number(amount)?))
            }
            [counter, variable] => (counter, Amount::Variable(self.name(variable)?)),
            _ => return Err(self.wrong("a counter and what is added to it")),
        };
        Ok(Instruction::Count { counter: self.name(counter)?, amount })
    }

    fn jump(self, rest: &'a str) -> Result<Instruction, Mistake> {
        let (label, condition) = match rest.split_once(char::is_whitespace) {
            None => (rest, None),
            Some((label, condition)) => {
                let condition = condition.trim().strip_prefix("if ");
                let condition = condition.ok_or_else(|| self.wrong("`if` after the label"))?;
                (label, Some(self.condition(condition)?))
            }
        };
        Ok(Instruction::Jump { label: self.name(label)?, condition })
    }

    fn repeat(self, rest: &'a str) -> Result<Instruction, Mistake> {
        let times = match rest.split_once(char::is_whitespace) {
            None if rest == "forever" => Times::Forever,
            None => Times::Count(self.number(rest)?),
            Some(("until", condition)) => Times::Until(self.condition(condition)?),
            Some(_) => return Err(self.wrong("the number of repetitions")),
        };
        Ok(Instruction::Loop(times))
    }

    fn rate(self, rest: &'a str) -> Result<Instruction, Mistake> {
        let (rate, tick) = match rest.split_once(" every ") {
            Some((rate, tick)) => (rate, self.time(tick)?),
            None => (rest, DEFAULT_TICK),
        };
        let octets_per_second =
            parse_octets(rate.trim()).map_err(|_| self.wrong("octets per second"))?;
        // Without a rate there is no tick.
        let tick = if octets_per_second == 0 { DEFAULT_TICK } else { tick };
        Ok(Instruction::Rate { octets_per_second, tick })
    }

    fn recv_packets(self, rest: &'a str) -> Result<Instruction, Mistake> {
        let (rest, within) = self.within(rest)?;
        let (packets, take) = match rest.split_once(char::is_whitespace) {
            None => (rest, None),
            Some((packets, take)) => (packets, Some(self.take(take.trim())?)),
        };
        Ok(Instruction::RecvPackets { packets: self.number(packets)?, take, within })
    }

    fn http_response(self, rest: &'a str) -> Result<Instruction, Mistake> {
        let (rest, within) = self.within(rest)?;
        match rest {
            "" => Ok(Instruction::HttpResponse { head: false, within }),
            "head" => Ok(Instruction::HttpResponse { head: true, within }),
            _ => Err(self.wrong("nothing or `head`")),
        }
    }

    fn http_serve(self, rest: &'a str) -> Result<Instruction, Mistake> {
        match rest.split_whitespace().collect::<Vec<_>>()[..] {
            [status, content_type, ref body @ ..] if !body.is_empty() => {
                Ok(Instruction::HttpServe {
                    status: status.parse().map_err(|_| self.wrong("a status"))?,
                    content_type: content_type.into(),
                    body: self.octets(&body.join(" "))?,
                })
            }
            _ => Err(self.wrong("status, content type and octets of the body")),
        }
    }

    fn websocket(self, rest: &'a str) -> Result<Instruction, Mistake> {
        let both = self.quoted(rest);
        let both = both.ok_or_else(|| self.wrong("a path in quotes, and fields in quotes"))?;
        let (target, fields) = match both.split_once("\" \"") {
            Some((target, fields)) => (target, Some(fields.parse()?)),
            None => (both, None),
        };
        Ok(Instruction::Websocket { target: target.parse()?, fields })
    }

    fn ws_send(self, mut rest: &'a str) -> Result<Instruction, Mistake> {
        let (mut binary, mut fragment) = (false, None);
        if let Some(after) = rest.strip_prefix("binary ") {
            (binary, rest) = (true, after.trim());
        }
        if let Some(after) = rest.strip_prefix("fragments ") {
            let (octets, after) = after
                .trim()
                .split_once(char::is_whitespace)
                .ok_or_else(|| self.wrong("the octets of a fragment, and a message"))?;
            (fragment, rest) = (Some(self.number(octets)?), after.trim());
        }
        Ok(Instruction::WsSend { message: self.message(rest)?, binary, fragment })
    }

    fn ws_push(self, rest: &'a str) -> Result<Instruction, Mistake> {
        let wrong = || self.wrong("a message, `every` and a time");
        let (message, every) = rest.rsplit_once(" every ").ok_or_else(wrong)?;
        let (every, groups) = match every.split_once(" groups ") {
            Some((every, groups)) => (every, self.number(groups.trim())?),
            None => (every, 1),
        };
        let (binary, message) = match message.strip_prefix("binary ") {
            Some(message) => (true, message.trim()),
            None => (false, message.trim()),
        };
        let message = self.message(message)?;
        Ok(Instruction::WsPush { message, binary, every: self.time(every)?, groups })
    }

    fn grpc_call(self, rest: &'a str) -> Result<Instruction, Mistake> {
        let wrong =
            || self.wrong("a path in quotes, metadata in quotes, and `deadline` and a time");
        let end = rest.rfind('"').ok_or_else(wrong)?;
        let both = self.quoted(&rest[..=end]).ok_or_else(wrong)?;
        let (target, metadata) = match both.split_once("\" \"") {
            Some((target, metadata)) => (target, Some(metadata.parse()?)),
            None => (both, None),
        };
        let deadline = match rest[end + 1..].trim() {
            "" => None,
            rest => Some(self.time(rest.strip_prefix("deadline ").ok_or_else(wrong)?)?),
        };
        Ok(Instruction::GrpcCall { target: target.parse()?, metadata, deadline })
    }

    fn grpc_accept(self, rest: &'a str) -> Result<Instruction, Mistake> {
        let methods: Vec<String> = rest.split_whitespace().map(Into::into).collect();
        match methods.iter().all(|method| method.starts_with('/')) {
            true => Ok(Instruction::GrpcAccept { methods }),
            false => Err(self.wrong("paths of methods: /package.Service/Method")),
        }
    }

    fn grpc_finish(self, rest: &'a str) -> Result<Instruction, Mistake> {
        let (status, text) = rest.split_once(char::is_whitespace).unwrap_or((rest, "\"\""));
        let status = status.parse().map_err(|()| self.wrong("the name of a status"))?;
        let text = self.quoted(text.trim()).ok_or_else(|| self.wrong("a text in quotes"))?;
        let text = String::from_utf8(unescape(text)?);
        let text = text.map_err(|_| self.wrong("a text in UTF-8"))?;
        Ok(Instruction::GrpcFinish { status, text })
    }

    fn extract(self, rest: &'a str) -> Result<Instruction, Mistake> {
        let wrong = || self.wrong("a name, `=` and json, regex or header");
        let (name, from) = rest.split_once('=').ok_or_else(wrong)?;
        let (kind, what) = from.trim().split_once(char::is_whitespace).ok_or_else(wrong)?;
        let what = what.trim();
        let from = match kind {
            "json" => Origin::Json(what.into()),
            "header" => Origin::Header(what.into()),
            "regex" => Origin::Regex(self.quoted(what).ok_or_else(wrong)?.into()),
            _ => return Err(wrong()),
        };
        Ok(Instruction::Extract { name: self.name(name.trim())?, from })
    }

    fn check(self, rest: &'a str) -> Result<Instruction, Mistake> {
        if rest.trim() == "no_redirect" {
            return Ok(Instruction::Check(Check::NoRedirect));
        }
        let wrong = || self.wrong("a property and its expected value");
        let (kind, what) = rest.split_once(char::is_whitespace).ok_or_else(wrong)?;
        let what = what.trim();
        Ok(Instruction::Check(match kind {
            "status" => Check::Status(what.parse().map_err(|_| wrong())?),
            "length" => Check::Length(parse_octets(what).map_err(|_| wrong())?),
            "sha256" => Check::Sha256(
                sha256(what)
                    .ok_or_else(|| self.wrong("64 hexadecimal digits, as sha256sum prints them"))?,
            ),
            "regex" => Check::Regex(self.quoted(what).ok_or_else(wrong)?.into()),
            _ => return Err(wrong()),
        }))
    }

    fn unless_redirect(self, rest: &'a str) -> Result<Instruction, Mistake> {
        let (label, host) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        Ok(Instruction::UnlessRedirect { label: self.name(label)?, host: host.trim().into() })
    }
}

fn sha256(text: &str) -> Option<[u8; 32]> {
    let mut hash = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (octet, digits) in hash.iter_mut().zip(text.as_bytes().chunks(2)) {
        *octet = u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(hash)
}

/// RFC 6455 section 7.4.1.
const NORMAL_CLOSE: u16 = 1000;
const DEFAULT_TICK: Nanos = Nanos(10_000_000);

#[derive(Clone, Copy)]
struct Line<'a> {
    text: &'a str,
    /// A hint that completes the error message.
    hint: &'static str,
}

impl<'a> Line<'a> {
    fn wrong(self, expected: &'static str) -> Mistake {
        // Truncate: messages may be long.
        let mut found: String = self.text.chars().take(80).collect();
        if found.len() < self.text.len() {
            found.push_str("...");
        }
        Mistake::Syntax { found, expected, hint: self.hint }
    }

    fn alone(self, rest: &str, instruction: Instruction) -> Result<Instruction, Mistake> {
        if rest.is_empty() { Ok(instruction) } else { Err(self.wrong("nothing after the word")) }
    }

    fn quoted(self, text: &'a str) -> Option<&'a str> {
        text.strip_prefix('"')?.strip_suffix('"')
    }

    fn message(self, text: &'a str) -> Result<MessageRef, Mistake> {
        match self.quoted(text) {
            Some(text) => Ok(MessageRef::Given(text.parse::<Message>()?)),
            None if text.starts_with('"') => Err(self.wrong("a closing quote")),
            None => Ok(MessageRef::Named(self.name(text)?)),
        }
    }

    fn name(self, text: &str) -> Result<String, Mistake> {
        if !is_name(text) {
            return Err(self.wrong("a name of letters, digits, _, - and ."));
        }
        Ok(text.into())
    }

    /// A name, in quotes unless it consists of the characters of program names.
    fn template(self, text: &str) -> Result<String, Mistake> {
        match self.quoted(text) {
            Some(text) => {
                let name = String::from_utf8(unescape(text)?);
                name.map_err(|_| self.wrong("a name in UTF-8"))
            }
            None => self.name(text),
        }
    }

    fn number(self, text: &str) -> Result<u32, Mistake> {
        text.parse().map_err(|_| self.wrong("a whole number up to 4,294,967,295"))
    }

    fn octets(self, text: &str) -> Result<u32, Mistake> {
        let octets = parse_octets(text).ok().and_then(|octets| u32::try_from(octets).ok());
        octets.ok_or_else(|| self.wrong("octets, less than 4 GiB"))
    }

    fn time(self, text: &str) -> Result<Nanos, Mistake> {
        text.trim().parse().map_err(|_| self.wrong("a duration"))
    }

    /// Splits off `within` and the time after it.
    fn within(self, text: &'a str) -> Result<(&'a str, Option<Nanos>), Mistake> {
        let text = text.trim();
        let at = if text.starts_with("within ") {
            Some(0)
        } else {
            text.find(" within ").map(|at| at + 1)
        };
        match at {
            None => Ok((text, None)),
            Some(at) => {
                let time =
                    Self { hint: "within 2 s", ..self }.time(&text[at + "within ".len()..])?;
                Ok((text[..at].trim(), Some(time)))
            }
        }
    }

    fn delay(self, text: &str) -> Result<Delay, Mistake> {
        if let Some(mean) = text.strip_prefix("exponential ") {
            return Ok(Delay::Exponential(self.time(mean)?));
        }
        let Some(both) = text.strip_prefix("uniform ") else {
            return Ok(Delay::Fixed(self.time(text)?));
        };
        // Each of the two is a number with a unit, or a single word.
        let words: Vec<&str> = both.split_whitespace().collect();
        (1..words.len())
            .find_map(|at| {
                let (low, high) = words.split_at(at);
                let low: Nanos = low.join(" ").parse().ok()?;
                let bare = |words: &[&str]| {
                    words.last().is_some_and(|word| word.ends_with(|c: char| c.is_ascii_digit()))
                };
                let high_text = high.join(" ");
                if high.first().is_some_and(|word| word.starts_with(char::is_alphabetic))
                    || bare(high)
                {
                    return None;
                }
                Some(Delay::Uniform(low, high_text.parse().ok()?))
            })
            .ok_or_else(|| self.wrong("two durations"))
    }

    fn condition(self, text: &str) -> Result<Condition, Mistake> {
        let (elapsed, text) = match text.strip_prefix("elapsed ") {
            Some(text) => (true, text),
            None => (false, text),
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        let (variable, compare, value) = match words[..] {
            [variable, compare, value] if !elapsed => (variable, compare, self.number(value)?),
            [variable, compare, ref value @ ..] if elapsed && !value.is_empty() => {
                let millis = self.time(&value.join(" "))?.0 / 1_000_000;
                let millis = u32::try_from(millis).ok().filter(|millis| *millis <= MAX_ELAPSED_MS);
                let wrong = || self.wrong("a time of at most 24 days");
                (variable, compare, millis.ok_or_else(wrong)?)
            }
            _ => return Err(self.wrong("a variable, a comparison and a number or time")),
        };
        let compare = COMPARES.iter().find(|(_, word)| *word == compare);
        let (compare, _) = *compare.ok_or_else(|| self.wrong("one of == != < <= > >="))?;
        Ok(Condition { variable: self.name(variable)?, elapsed, compare, value })
    }

    fn take(self, text: &str) -> Result<Take, Mistake> {
        let ["take", variable, "=", form, "at", offset] =
            text.split_whitespace().collect::<Vec<_>>()[..]
        else {
            return Err(self.wrong("`take VARIABLE = FORM at OFFSET`"));
        };
        let form = FORMS.iter().find(|(_, word)| *word == form);
        let (form, _) = *form.ok_or_else(|| self.wrong("one of be8, be16, be32, hex8"))?;
        Ok(Take { variable: self.name(variable)?, form, offset: self.number(offset)? })
    }
}

fn is_name(text: &str) -> bool {
    let letter = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    !text.is_empty() && text.chars().all(letter)
}

/// Half of the range of the millisecond clock: a longer time would be taken for one in the future.
const MAX_ELAPSED_MS: u32 = i32::MAX as u32;

const COMPARES: &[(Compare, &str)] = &[
    (Compare::Equal, "=="),
    (Compare::Unequal, "!="),
    (Compare::Less, "<"),
    (Compare::LessOrEqual, "<="),
    (Compare::Greater, ">"),
    (Compare::GreaterOrEqual, ">="),
];

const FORMS: &[(TakeForm, &str)] = &[
    (TakeForm::Be8, "be8"),
    (TakeForm::Be16, "be16"),
    (TakeForm::Be32, "be32"),
    (TakeForm::Hex8, "hex8"),
];

/// `FromStr` parses this text to the same instruction.
impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        match self {
            Self::Connect
            | Self::Accept
            | Self::WsAccept
            | Self::WsEcho
            | Self::WsFanOut { groups: 1 }
            | Self::WsPing
            | Self::WsClose { code: NORMAL_CLOSE }
            | Self::End
            | Self::Close
            | Self::Reset
            | Self::Flush
            | Self::GrpcEnd
            | Self::GrpcCancel
            | Self::WaitPeerClose => Ok(()),
            Self::Send(message) | Self::SendPacket(message) => write!(f, " {message}"),
            Self::Recv { octets, within } | Self::RecvPacketOctets { octets, within } => {
                write!(f, " {octets}{}", Within(*within))
            }
            Self::RecvUntil { pattern, within } => {
                f.write_str(" \"")?;
                write_escaped(f, pattern, b"")?;
                write!(f, "\"{}", Within(*within))
            }
            Self::Delay(Delay::Fixed(time)) | Self::Keepalive(time) => write!(f, " {time}"),
            Self::Delay(Delay::Uniform(low, high)) => write!(f, " uniform {low} {high}"),
            Self::Delay(Delay::Exponential(mean)) => write!(f, " exponential {mean}"),
            Self::Set { variable, value: Value::Constant(value) } => {
                write!(f, " {variable} {value}")
            }
            Self::Set { variable, value: Value::Clock } => write!(f, " {variable} clock"),
            Self::Set { variable, value: Value::Random(low, high) } => {
                write!(f, " {variable} random {low} {high}")
            }
            Self::Add { variable, value } => write!(f, " {variable} {value}"),
            Self::Next(template) | Self::Begin(Some(template)) if is_name(template) => {
                write!(f, " {template}")
            }
            Self::Next(template) | Self::Begin(Some(template)) => {
                f.write_str(" \"")?;
                write_escaped(f, template.as_bytes(), b"")?;
                f.write_str("\"")
            }
            Self::Begin(None) => Ok(()),
            Self::Count { counter, amount } => {
                write!(f, " {counter}")?;
                match amount {
                    Amount::Constant(1) => Ok(()),
                    Amount::Constant(amount) => write!(f, " {amount}"),
                    Amount::Variable(variable) => write!(f, " {variable}"),
                    Amount::Elapsed(variable) => write!(f, " elapsed {variable}"),
                }
            }
            Self::Label(name) => write!(f, " {name}"),
            Self::Jump { label, condition: None } => write!(f, " {label}"),
            Self::Jump { label, condition: Some(condition) } => {
                write!(f, " {label} if {condition}")
            }
            Self::Loop(Times::Count(count)) => write!(f, " {count}"),
            Self::Loop(Times::Until(condition)) => write!(f, " until {condition}"),
            Self::Loop(Times::Forever) => f.write_str(" forever"),
            Self::Rate { octets_per_second: 0, .. } => f.write_str(" 0"),
            Self::Rate { octets_per_second, tick } => {
                write!(f, " {octets_per_second} every {tick}")
            }
            Self::RecvPackets { packets, take, within } => {
                write!(f, " {packets}")?;
                if let Some(Take { variable, form, offset }) = take {
                    let word =
                        FORMS.iter().find(|(known, _)| known == form).map_or("", |(_, word)| word);
                    write!(f, " take {variable} = {word} at {offset}")?;
                }
                write!(f, "{}", Within(*within))
            }
            Self::HttpResponse { head, within } => {
                write!(f, "{}{}", if *head { " head" } else { "" }, Within(*within))
            }
            Self::HttpServe { status, content_type, body } => {
                write!(f, " {status} {content_type} {body}")
            }
            Self::Websocket { target, fields: None } => write!(f, " \"{target}\""),
            Self::Websocket { target, fields: Some(fields) } => {
                write!(f, " \"{target}\" \"{fields}\"")
            }
            Self::WsSend { message, binary, fragment } => {
                f.write_str(if *binary { " binary" } else { "" })?;
                if let Some(octets) = fragment {
                    write!(f, " fragments {octets}")?;
                }
                write!(f, " {message}")
            }
            Self::WsFanOut { groups } => write!(f, " groups {groups}"),
            Self::WsPush { message, binary, every, groups } => {
                let binary = if *binary { " binary" } else { "" };
                write!(f, "{binary} {message} every {every}")?;
                if *groups == 1 { Ok(()) } else { write!(f, " groups {groups}") }
            }
            Self::WsRecv { messages, within } => write!(f, " {messages}{}", Within(*within)),
            Self::WsClose { code } => write!(f, " {code}"),
            Self::GrpcCall { target, metadata, deadline } => {
                write!(f, " \"{target}\"")?;
                if let Some(metadata) = metadata {
                    write!(f, " \"{metadata}\"")?;
                }
                match deadline {
                    Some(deadline) => write!(f, " deadline {deadline}"),
                    None => Ok(()),
                }
            }
            Self::GrpcSend(message) => write!(f, " {message}"),
            Self::GrpcRecv(messages) => write!(f, " {messages}"),
            Self::GrpcStatus(all) => write!(f, " {all}"),
            Self::GrpcAccept { methods } => {
                methods.iter().try_for_each(|method| write!(f, " {method}"))
            }
            Self::GrpcNext { label } => write!(f, " {label}"),
            Self::GrpcFinish { status, text } => {
                write!(f, " {status}")?;
                if text.is_empty() {
                    return Ok(());
                }
                f.write_str(" \"")?;
                write_escaped(f, text.as_bytes(), b"")?;
                f.write_str("\"")
            }
            Self::Extract { name, from } => match from {
                Origin::Json(path) => write!(f, " {name} = json {path}"),
                Origin::Header(field) => write!(f, " {name} = header {field}"),
                Origin::Regex(pattern) => write!(f, " {name} = regex \"{pattern}\""),
            },
            Self::Check(Check::NoRedirect) => f.write_str(" no_redirect"),
            Self::Check(Check::Status(status)) => write!(f, " status {status}"),
            Self::Check(Check::Length(octets)) => write!(f, " length {octets}"),
            Self::Check(Check::Regex(pattern)) => write!(f, " regex \"{pattern}\""),
            Self::Check(Check::Sha256(hash)) => {
                f.write_str(" sha256 ")?;
                hash.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
            }
            Self::UnlessRedirect { label, host } if host.is_empty() => write!(f, " {label}"),
            Self::UnlessRedirect { label, host } => write!(f, " {label} {host}"),
        }
    }
}

impl fmt::Display for MessageRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => f.write_str(name),
            Self::Given(message) => write!(f, "\"{message}\""),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word =
            COMPARES.iter().find(|(known, _)| *known == self.compare).map_or("", |(_, word)| word);
        match self.elapsed {
            false => write!(f, "{} {word} {}", self.variable, self.value),
            true => {
                let time = Nanos(u64::from(self.value) * 1_000_000);
                write!(f, "elapsed {} {word} {time}", self.variable)
            }
        }
    }
}

struct Within(Option<Nanos>);

impl fmt::Display for Within {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(time) => write!(f, " within {time}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_example_is_an_instruction_of_its_word() {
        for (word, examples) in Instruction::WORDS {
            for example in examples.split(", ") {
                let example = example.replace("HEX", &"0f".repeat(32));
                let instruction: Instruction = example.parse().unwrap();
                assert_eq!(instruction.word(), *word, "{example}");
                assert_eq!(instruction.to_string().parse(), Ok(instruction), "{example}");
            }
        }
    }

    #[test]
    fn each_instruction_is_in_the_guide() {
        let guide = include_str!("../../../docs/guide/flow-programs.md");
        for (word, _) in Instruction::WORDS {
            let in_words = guide.split(|c: char| !(c.is_alphanumeric() || c == '_'));
            assert!(in_words.into_iter().any(|found| found == *word), "{word}");
        }
    }
}
