//! Instructions as lines of text, as a profile has them.

use std::{fmt, str::FromStr};

use squall_units::{Nanos, parse_octets};

use crate::{
    Amount, Check, Compare, Condition, Delay, Instruction, Message, MessageRef, Mistake, Origin,
    Take, TakeForm, Times, Value,
    message::{unescape, write_escaped},
};

impl Instruction {
    /// The word that its text begins with.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Accept => "accept",
            Self::Send(_) => "send",
            Self::Recv { .. } => "recv",
            Self::RecvUntil { .. } => "recv_until",
            Self::Delay(_) => "delay",
            Self::Set { .. } => "set",
            Self::Add { .. } => "add",
            Self::Count { .. } => "count",
            Self::Next(_) => "next",
            Self::Begin(_) => "begin",
            Self::Label(_) => "label",
            Self::Jump { .. } => "jump",
            Self::Loop(_) => "loop",
            Self::End => "end",
            Self::Close => "close",
            Self::Reset => "reset",
            Self::WaitPeerClose => "wait_peer_close",
            Self::Flush => "flush",
            Self::Rate { .. } => "rate",
            Self::SendPacket(_) => "send_packet",
            Self::RecvPackets { .. } => "recv_packets",
            Self::RecvPacketOctets { .. } => "recv_packet_octets",
            Self::Keepalive(_) => "keepalive",
            Self::HttpResponse { .. } => "http_response",
            Self::HttpServe { .. } => "http_serve",
            Self::Extract { .. } => "extract",
            Self::Check(_) => "check",
            Self::UnlessRedirect { .. } => "unless_redirect",
        }
    }
}

const WORDS: &str = "connect, accept, send, recv, recv_until, delay, set, add, count, next, begin, \
                     label, jump, loop, end, close, reset, flush, wait_peer_close, rate, send_packet, recv_packets, \
                     recv_packet_octets, keepalive, http_response, http_serve, extract, check or \
                     unless_redirect";

impl FromStr for Instruction {
    type Err = Mistake;

    fn from_str(text: &str) -> Result<Self, Mistake> {
        let text = text.trim();
        let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let rest = rest.trim();
        let line = Line { text };
        match word {
            "connect" => line.alone(rest, Self::Connect, "connect"),
            "accept" => line.alone(rest, Self::Accept, "accept"),
            "end" => line.alone(rest, Self::End, "end"),
            "close" => line.alone(rest, Self::Close, "close"),
            "reset" => line.alone(rest, Self::Reset, "reset"),
            "flush" => line.alone(rest, Self::Flush, "flush"),
            "wait_peer_close" => line.alone(rest, Self::WaitPeerClose, "wait_peer_close"),
            "send" => Ok(Self::Send(line.message(rest)?)),
            "send_packet" => Ok(Self::SendPacket(line.message(rest)?)),
            "recv" => {
                let (octets, within) = line.within(rest)?;
                Ok(Self::Recv {
                    octets: line.octets(octets, "recv 1460, recv 64 KiB within 2 s")?,
                    within,
                })
            }
            "recv_until" => line.recv_until(rest),
            "delay" => Ok(Self::Delay(line.delay(rest)?)),
            "set" => line.set(rest),
            "add" => line.add(rest),
            "count" => line.count(rest),
            "next" => Ok(Self::Next(line.template(rest)?)),
            "begin" if rest.is_empty() => Ok(Self::Begin(None)),
            "begin" => Ok(Self::Begin(Some(line.template(rest)?))),
            "label" => Ok(Self::Label(line.name(rest, "label again")?)),
            "jump" => line.jump(rest),
            "loop" => line.repeat(rest),
            "rate" => line.rate(rest),
            "recv_packets" => line.recv_packets(rest),
            "recv_packet_octets" => {
                let (octets, within) = line.within(rest)?;
                Ok(Self::RecvPacketOctets {
                    octets: line.octets(octets, "recv_packet_octets 3000 within 2 s")?,
                    within,
                })
            }
            "keepalive" => Ok(Self::Keepalive(line.time(rest, "keepalive 30 s")?)),
            "http_response" => line.http_response(rest),
            "http_serve" => line.http_serve(rest),
            "extract" => line.extract(rest),
            "check" => line.check(rest),
            "unless_redirect" => line.unless_redirect(rest),
            _ => Err(line.wrong(WORDS, r#"send "hello\r\n""#)),
        }
    }
}

/// Instructions of several words, by the text after the first one.
impl<'a> Line<'a> {
    fn recv_until(self, rest: &'a str) -> Result<Instruction, Mistake> {
        let (pattern, within) = match rest.rfind('"').filter(|at| *at > 0) {
            Some(at) => {
                let (pattern, behind) = rest.split_at(at + 1);
                (pattern, self.within(behind)?.1)
            }
            None => (rest, None),
        };
        let pattern = self.quoted(pattern).ok_or_else(|| {
            self.wrong("octets in quotes", r#"recv_until "\r\n\r\n", recv_until "OK" within 2 s"#)
        })?;
        Ok(Instruction::RecvUntil { pattern: unescape(pattern)?.into(), within })
    }

    fn set(self, rest: &'a str) -> Result<Instruction, Mistake> {
        const HINT: &str = "set x 5, set x random 1 10, set x clock";
        match rest.split_whitespace().collect::<Vec<_>>()[..] {
            [variable, "random", low, high] => Ok(Instruction::Set {
                variable: self.name(variable, HINT)?,
                value: Value::Random(self.number(low, HINT)?, self.number(high, HINT)?),
            }),
            [variable, "clock"] => {
                Ok(Instruction::Set { variable: self.name(variable, HINT)?, value: Value::Clock })
            }
            [variable, value] => Ok(Instruction::Set {
                variable: self.name(variable, HINT)?,
                value: Value::Constant(self.number(value, HINT)?),
            }),
            _ => Err(self.wrong("a variable and its value", HINT)),
        }
    }

    fn add(self, rest: &'a str) -> Result<Instruction, Mistake> {
        const HINT: &str = "add x 1, add x -1";
        match rest.split_whitespace().collect::<Vec<_>>()[..] {
            [variable, value] => Ok(Instruction::Add {
                variable: self.name(variable, HINT)?,
                value: value.parse().map_err(|_| self.wrong("a whole number", HINT))?,
            }),
            _ => Err(self.wrong("a variable and a number to add", HINT)),
        }
    }

    fn count(self, rest: &'a str) -> Result<Instruction, Mistake> {
        const HINT: &str = "count pages, count octets 1460, count rounds x, count waited elapsed x";
        let (counter, amount) = match rest.split_whitespace().collect::<Vec<_>>()[..] {
            [counter] => (counter, Amount::Constant(1)),
            [counter, "elapsed", variable] => {
                (counter, Amount::Elapsed(self.name(variable, HINT)?))
            }
            [counter, amount] if amount.starts_with(|c: char| c == '-' || c.is_ascii_digit()) => {
                (counter, Amount::Constant(self.number(amount, HINT)?))
            }
            [counter, variable] => (counter, Amount::Variable(self.name(variable, HINT)?)),
            _ => return Err(self.wrong("a counter and what is added to it", HINT)),
        };
        Ok(Instruction::Count { counter: self.name(counter, HINT)?, amount })
    }

    fn jump(self, rest: &'a str) -> Result<Instruction, Mistake> {
        const HINT: &str = "jump again, jump again if x < 5, jump again if elapsed x < 2 s";
        let (label, condition) = match rest.split_once(char::is_whitespace) {
            None => (rest, None),
            Some((label, condition)) => {
                let condition = condition.trim().strip_prefix("if ");
                let condition =
                    condition.ok_or_else(|| self.wrong("`if` after the label", HINT))?;
                (label, Some(self.condition(condition, HINT)?))
            }
        };
        Ok(Instruction::Jump { label: self.name(label, HINT)?, condition })
    }

    fn repeat(self, rest: &'a str) -> Result<Instruction, Mistake> {
        const HINT: &str = "loop 3, loop until x >= 5, loop forever";
        let times = match rest.split_once(char::is_whitespace) {
            None if rest == "forever" => Times::Forever,
            None => Times::Count(self.number(rest, HINT)?),
            Some(("until", condition)) => Times::Until(self.condition(condition, HINT)?),
            Some(_) => return Err(self.wrong("the number of repetitions", HINT)),
        };
        Ok(Instruction::Loop(times))
    }

    fn rate(self, rest: &'a str) -> Result<Instruction, Mistake> {
        const HINT: &str = "rate 125 kB every 10 ms (octets per second), rate 0";
        let (rate, tick) = match rest.split_once(" every ") {
            Some((rate, tick)) => (rate, self.time(tick, HINT)?),
            None => (rest, DEFAULT_TICK),
        };
        let octets_per_second =
            parse_octets(rate.trim()).map_err(|_| self.wrong("octets per second", HINT))?;
        // Without a rate there is no tick.
        let tick = if octets_per_second == 0 { DEFAULT_TICK } else { tick };
        Ok(Instruction::Rate { octets_per_second, tick })
    }

    fn recv_packets(self, rest: &'a str) -> Result<Instruction, Mistake> {
        const HINT: &str = "recv_packets 1, recv_packets 1 take id = be16 at 0 within 2 s";
        let (rest, within) = self.within(rest)?;
        let (packets, take) = match rest.split_once(char::is_whitespace) {
            None => (rest, None),
            Some((packets, take)) => (packets, Some(self.take(take.trim(), HINT)?)),
        };
        Ok(Instruction::RecvPackets { packets: self.number(packets, HINT)?, take, within })
    }

    fn http_response(self, rest: &'a str) -> Result<Instruction, Mistake> {
        let (rest, within) = self.within(rest)?;
        match rest {
            "" => Ok(Instruction::HttpResponse { head: false, within }),
            "head" => Ok(Instruction::HttpResponse { head: true, within }),
            _ => {
                Err(self.wrong("nothing or `head`", "http_response, http_response head within 2 s"))
            }
        }
    }

    fn http_serve(self, rest: &'a str) -> Result<Instruction, Mistake> {
        const HINT: &str = "http_serve 200 text/html 1024";
        match rest.split_whitespace().collect::<Vec<_>>()[..] {
            [status, content_type, ref body @ ..] if !body.is_empty() => {
                Ok(Instruction::HttpServe {
                    status: status.parse().map_err(|_| self.wrong("a status", HINT))?,
                    content_type: content_type.into(),
                    body: self.octets(&body.join(" "), HINT)?,
                })
            }
            _ => Err(self.wrong("status, content type and octets of the body", HINT)),
        }
    }

    fn extract(self, rest: &'a str) -> Result<Instruction, Mistake> {
        const HINT: &str = r#"extract token = json data.token, extract id = regex "id=(\d+)", extract tag = header ETag"#;
        let wrong = || self.wrong("a name, `=` and json, regex or header", HINT);
        let (name, from) = rest.split_once('=').ok_or_else(wrong)?;
        let (kind, what) = from.trim().split_once(char::is_whitespace).ok_or_else(wrong)?;
        let what = what.trim();
        let from = match kind {
            "json" => Origin::Json(what.into()),
            "header" => Origin::Header(what.into()),
            "regex" => Origin::Regex(self.quoted(what).ok_or_else(wrong)?.into()),
            _ => return Err(wrong()),
        };
        Ok(Instruction::Extract { name: self.name(name.trim(), HINT)?, from })
    }

    fn check(self, rest: &'a str) -> Result<Instruction, Mistake> {
        const HINT: &str = r#"check status 200, check length 512, check sha256 HEX, check regex "welcome", check no_redirect"#;
        if rest.trim() == "no_redirect" {
            return Ok(Instruction::Check(Check::NoRedirect));
        }
        let wrong = || self.wrong("a property and its expected value", HINT);
        let (kind, what) = rest.split_once(char::is_whitespace).ok_or_else(wrong)?;
        let what = what.trim();
        Ok(Instruction::Check(match kind {
            "status" => Check::Status(what.parse().map_err(|_| wrong())?),
            "length" => Check::Length(parse_octets(what).map_err(|_| wrong())?),
            "sha256" => Check::Sha256(sha256(what).ok_or_else(|| {
                self.wrong("64 hexadecimal digits, as sha256sum prints them", HINT)
            })?),
            "regex" => Check::Regex(self.quoted(what).ok_or_else(wrong)?.into()),
            _ => return Err(wrong()),
        }))
    }

    fn unless_redirect(self, rest: &'a str) -> Result<Instruction, Mistake> {
        const HINT: &str = "unless_redirect done, unless_redirect done www.test";
        let (label, host) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        Ok(Instruction::UnlessRedirect { label: self.name(label, HINT)?, host: host.trim().into() })
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

const DEFAULT_TICK: Nanos = Nanos(10_000_000);

#[derive(Clone, Copy)]
struct Line<'a> {
    text: &'a str,
}

impl<'a> Line<'a> {
    fn wrong(self, expected: &'static str, hint: &'static str) -> Mistake {
        // A message may be long.
        let mut found: String = self.text.chars().take(80).collect();
        if found.len() < self.text.len() {
            found.push_str("...");
        }
        Mistake::Syntax { found, expected, hint }
    }

    fn alone(
        self,
        rest: &str,
        instruction: Instruction,
        hint: &'static str,
    ) -> Result<Instruction, Mistake> {
        if rest.is_empty() {
            Ok(instruction)
        } else {
            Err(self.wrong("nothing after the word", hint))
        }
    }

    fn quoted(self, text: &'a str) -> Option<&'a str> {
        text.strip_prefix('"')?.strip_suffix('"')
    }

    fn message(self, text: &'a str) -> Result<MessageRef, Mistake> {
        const HINT: &str = r#"send "hello\r\n", send hello"#;
        match self.quoted(text) {
            Some(text) => Ok(MessageRef::Given(text.parse::<Message>()?)),
            None if text.starts_with('"') => Err(self.wrong("a closing quote", HINT)),
            None => Ok(MessageRef::Named(self.name(text, HINT)?)),
        }
    }

    fn name(self, text: &str, hint: &'static str) -> Result<String, Mistake> {
        if !is_name(text) {
            return Err(self.wrong("a name of letters, digits, _, - and .", hint));
        }
        Ok(text.into())
    }

    /// A name, in quotes if it has other characters than names of programs have.
    fn template(self, text: &str) -> Result<String, Mistake> {
        const HINT: &str = r#"begin page, begin "my template""#;
        match self.quoted(text) {
            Some(text) => {
                let name = String::from_utf8(unescape(text)?);
                name.map_err(|_| self.wrong("a name in UTF-8", HINT))
            }
            None => self.name(text, HINT),
        }
    }

    fn number(self, text: &str, hint: &'static str) -> Result<u32, Mistake> {
        text.parse().map_err(|_| self.wrong("a whole number up to 4,294,967,295", hint))
    }

    fn octets(self, text: &str, hint: &'static str) -> Result<u32, Mistake> {
        let octets = parse_octets(text).ok().and_then(|octets| u32::try_from(octets).ok());
        octets.ok_or_else(|| self.wrong("octets, less than 4 GiB", hint))
    }

    fn time(self, text: &str, hint: &'static str) -> Result<Nanos, Mistake> {
        text.trim().parse().map_err(|_| self.wrong("a duration", hint))
    }

    /// What stands before `within`, and the time behind it.
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
                let time = self.time(&text[at + "within ".len()..], "within 2 s")?;
                Ok((text[..at].trim(), Some(time)))
            }
        }
    }

    fn delay(self, text: &str) -> Result<Delay, Mistake> {
        const HINT: &str = "delay 10 ms, delay uniform 1 ms 5 ms, delay exponential 10 ms";
        if let Some(mean) = text.strip_prefix("exponential ") {
            return Ok(Delay::Exponential(self.time(mean, HINT)?));
        }
        let Some(both) = text.strip_prefix("uniform ") else {
            return Ok(Delay::Fixed(self.time(text, HINT)?));
        };
        // Each of the two may be a number and its unit, or one word.
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
            .ok_or_else(|| self.wrong("two durations", HINT))
    }

    fn condition(self, text: &str, hint: &'static str) -> Result<Condition, Mistake> {
        let (elapsed, text) = match text.strip_prefix("elapsed ") {
            Some(text) => (true, text),
            None => (false, text),
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        let (variable, compare, value) = match words[..] {
            [variable, compare, value] if !elapsed => {
                (variable, compare, self.number(value, hint)?)
            }
            [variable, compare, ref value @ ..] if elapsed && !value.is_empty() => {
                let millis = self.time(&value.join(" "), hint)?.0 / 1_000_000;
                let millis = u32::try_from(millis).ok().filter(|millis| *millis <= LONGEST);
                let wrong = || self.wrong("a time of at most 24 days", hint);
                (variable, compare, millis.ok_or_else(wrong)?)
            }
            _ => return Err(self.wrong("a variable, a comparison and a number or time", hint)),
        };
        let compare = COMPARES.iter().find(|(_, word)| *word == compare);
        let (compare, _) = *compare.ok_or_else(|| self.wrong("one of == != < <= > >=", hint))?;
        Ok(Condition { variable: self.name(variable, hint)?, elapsed, compare, value })
    }

    fn take(self, text: &str, hint: &'static str) -> Result<Take, Mistake> {
        let ["take", variable, "=", form, "at", offset] =
            text.split_whitespace().collect::<Vec<_>>()[..]
        else {
            return Err(self.wrong("`take VARIABLE = FORM at OFFSET`", hint));
        };
        let form = FORMS.iter().find(|(_, word)| *word == form);
        let (form, _) = *form.ok_or_else(|| self.wrong("one of be8, be16, be32, hex8", hint))?;
        Ok(Take { variable: self.name(variable, hint)?, form, offset: self.number(offset, hint)? })
    }
}

fn is_name(text: &str) -> bool {
    let letter = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    !text.is_empty() && text.chars().all(letter)
}

/// Milliseconds that can be told from times ahead.
const LONGEST: u32 = i32::MAX as u32;

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

/// Reads back as itself.
impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        match self {
            Self::Connect
            | Self::Accept
            | Self::End
            | Self::Close
            | Self::Reset
            | Self::Flush
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
