//! The language of packet scripts: text in, a [`Script`] out, or where it is wrong and what was
//! expected there.
//!
//! README.md beside the scripts describes it. It is close to packetdrill's; the application speaks
//! in verbs instead of system calls, as ours has no sockets.

use std::fmt;

use squall_units::Nanos;

#[derive(Debug)]
pub struct Script {
    /// As given by whoever read it.
    pub file: String,
    /// The rule that is tested, with its RFC: the comment that opens the file.
    pub rule: String,
    pub linux: Linux,
    pub differences: Vec<Difference>,
    /// Without a line that says which: both.
    pub families: Vec<Family>,
    pub tunables: Vec<Setting>,
    pub sysctls: Vec<Setting>,
    /// How far from its time a packet or an event may be, for our stack.
    pub tolerance: Nanos,
    /// The peer's initial sequence number.
    pub isn: u32,
    pub steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Linux {
    Yes,
    /// With why it cannot run it.
    No(String),
}

/// Where Linux does other than the script says, and who of both does what the RFC says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub what: String,
    pub verdict: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

/// `name=value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    pub name: String,
    pub value: String,
    pub at: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub line: u32,
    pub column: u32,
}

#[derive(Clone, Debug)]
pub struct Step {
    pub line: u32,
    /// As written.
    pub text: String,
    pub who: Who,
    pub time: Time,
    pub action: Action,
}

/// For whom a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    Both,
    Squall,
    Linux,
}

/// Relative to the step before it, `from..=to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time {
    pub from: Nanos,
    pub to: Nanos,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Inject(Segment),
    InjectIcmp(Icmp),
    Expect(Segment),
    /// Nothing has come until now.
    Quiet,
    /// What follows is another connection: relative sequence numbers begin anew, those of the peer
    /// at its first initial sequence number and so many.
    Anew(u32),
    Do(Verb),
    Await(Awaited),
}

/// What the application does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    Listen,
    Connect,
    Send(u32),
    /// Sends no more, and goes on receiving.
    Close,
    Abort,
    /// Reads no more of what comes, so that the window fills.
    Pause,
    Resume,
    /// What it sends begins anew, on the next flow.
    Anew,
}

/// What the application is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Awaited {
    Established,
    Received(u32),
    PeerClosed,
    Gone(Gone),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    Closed,
    Aborted,
    Reset,
    Refused,
    Unreachable,
    ConnectTimeout,
    Timeout,
    KeepaliveTimeout,
}

/// A segment, or several of one stretch of the stream. What a script does not say is left as usual
/// when it is injected, and is not looked at when it is expected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// So many segments of equal length, but for the last.
    pub count: Option<u32>,
    pub flags: u8,
    pub start: u32,
    pub end: u32,
    pub ack: Option<u32>,
    pub window: Option<u16>,
    pub urgent: Option<u16>,
    /// `None`: none when injected, any when expected.
    pub options: Option<Vec<TcpOption>>,
    pub ip: IpPart,
}

/// What stands in brackets before the flags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IpPart {
    /// The two bits of RFC 3168.
    pub ecn: Option<u8>,
    /// The TCP checksum is wrong.
    pub bad_checksum: bool,
    /// The data offset, in words, whatever the options take.
    pub data_offset: Option<u8>,
    /// The IP packet ends behind so many octets of TCP.
    pub cut: Option<u16>,
}

pub use squall_wire::tcp_flags::{ACK, CWR, ECE, FIN, PSH, RST, SYN, URG};

const FLAGS: [(char, u8); 8] = [
    ('F', FIN),
    ('S', SYN),
    ('R', RST),
    ('P', PSH),
    ('.', ACK),
    ('U', URG),
    ('E', ECE),
    ('W', CWR),
];

/// `None` in a number: any when expected; the last one that was seen when injected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TcpOption {
    Mss(Option<u16>),
    WindowScale(Option<u8>),
    SackPermitted,
    /// Of the other's sequence numbers.
    Sack(Vec<(u32, u32)>),
    Timestamps {
        value: Option<u32>,
        echo: Option<u32>,
    },
    Nop,
    End,
    /// As they stand, kind and length as well.
    Octets(Vec<u8>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Icmp {
    pub kind: IcmpKind,
    /// Of the segment that is quoted; `None`: the last that came.
    pub seq: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpKind {
    Net,
    Host,
    Protocol,
    Port,
    Prohibited,
    TooBig { mtu: u16 },
    TimeExceeded,
    SourceQuench,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: found {found}, expected {expected}")]
pub struct ScriptError {
    pub file: String,
    pub line: u32,
    /// From 1, in characters.
    pub column: u32,
    pub found: String,
    pub expected: String,
}

const DEFAULT_TOLERANCE: Nanos = Nanos(5_000_000);
const DEFAULT_ISN: u32 = 1_000_000;
/// As much as any buffer of this runner holds.
const MOST_OCTETS: u32 = 4_000_000;
const MOST_SEGMENTS: u32 = 4_000;
/// No script waits for longer than the longest timer, keepalive's two hours.
const LONGEST: Nanos = Nanos(100_000 * Nanos::SECOND.0);

impl Script {
    /// Reads a script. `file` is what errors name.
    pub fn parse(file: &str, text: &str) -> Result<Self, ScriptError> {
        let mut script = Self {
            file: file.into(),
            rule: String::new(),
            linux: Linux::Yes,
            differences: vec![],
            families: vec![Family::V4, Family::V6],
            tunables: vec![],
            sysctls: vec![],
            tolerance: DEFAULT_TOLERANCE,
            isn: DEFAULT_ISN,
            steps: vec![],
        };
        let mut linux_is_said = false;
        let mut opening = true;
        let mut number = 0;
        for (line, text) in (1..).zip(text.lines()) {
            number = line;
            if let Some(comment) = text.trim_start().strip_prefix("//") {
                if opening {
                    let gap = if script.rule.is_empty() { "" } else { " " };
                    script.rule.push_str(gap);
                    script.rule.push_str(comment.trim());
                }
                continue;
            }
            let mut cursor = Cursor {
                file,
                line,
                text: text.split(" //").next().unwrap_or(text),
                at: 0,
                word_at: 0,
            };
            cursor.skip_blanks();
            if opening && !script.rule.contains("RFC ") {
                return Err(cursor
                    .error("a comment that names the rule and its RFC (// RFC 9293 3.5: ...)"));
            }
            opening = false;
            if cursor.is_at_end() {
                continue;
            }
            if cursor.rest().starts_with(['+', '@']) {
                if !linux_is_said {
                    return Err(cursor.error("first a line `linux: yes` or `linux: no (why)`"));
                }
                script.steps.push(cursor.step()?);
            } else if script.steps.is_empty() {
                linux_is_said |= cursor.head(&mut script)?;
            } else {
                return Err(cursor.error("a step, which begins with its time (+.1)"));
            }
            cursor.end()?;
        }
        // What is said to differ is played, too, and so found when it does no longer.
        let apart = script.steps.iter().find(|step| step.who == Who::Linux);
        if let (None, Some(difference)) = (apart, script.differences.first()) {
            let cursor = Cursor { file, line: number + 1, text: "", at: 0, word_at: 0 };
            return Err(cursor.error(format!(
                "steps of Linux alone (@linux +.1 ...) that show how {}",
                difference.what
            )));
        }
        if let Some(step) = apart.filter(|_| script.differences.is_empty()) {
            let cursor = Cursor { file, line: step.line, text: "@linux", at: 0, word_at: 0 };
            return Err(cursor.error(
                "a line `linux-differs: what; verdict: RFC section says ...` before the steps",
            ));
        }
        if script.steps.is_empty() {
            let cursor = Cursor { file, line: number + 1, text: "", at: 0, word_at: 0 };
            return Err(cursor.error("at least one step (+0 listen)"));
        }
        Ok(script)
    }
}

struct Cursor<'a> {
    file: &'a str,
    line: u32,
    text: &'a str,
    /// Octets read.
    at: usize,
    /// Where the last word begins that was read.
    word_at: usize,
}

impl<'a> Cursor<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn is_at_end(&self) -> bool {
        self.rest().trim_start().is_empty()
    }

    fn skip_blanks(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn place(&self) -> Place {
        Place { line: self.line, column: self.text[..self.at].chars().count() as u32 + 1 }
    }

    fn error(&self, expected: impl Into<String>) -> ScriptError {
        let word = self.peek();
        let found =
            if word.is_empty() { "the end of the line".into() } else { format!("{word:?}") };
        let Place { line, column } = self.place();
        ScriptError { file: self.file.into(), line, column, found, expected: expected.into() }
    }

    fn end(&mut self) -> Result<(), ScriptError> {
        self.skip_blanks();
        if self.is_at_end() { Ok(()) } else { Err(self.error("the end of the line")) }
    }

    /// What a person takes for the next word.
    fn peek(&self) -> &'a str {
        let rest = self.rest();
        let end =
            rest.find(|c: char| c.is_whitespace() || ",<>()[]".contains(c)).unwrap_or(rest.len());
        let first = rest.chars().next().map_or(0, char::len_utf8);
        &rest[..end.max(first)]
    }

    fn word(&mut self) -> &'a str {
        self.skip_blanks();
        self.word_at = self.at;
        let word = self.peek();
        self.at += word.len();
        word
    }

    /// Reads `literal` if it comes next, blanks before it aside.
    fn take(&mut self, literal: &str) -> bool {
        let start = self.at;
        self.skip_blanks();
        if self.rest().starts_with(literal) {
            self.at += literal.len();
            return true;
        }
        self.at = start;
        false
    }

    fn take_word(&mut self, word: &str) -> bool {
        let start = self.at;
        if self.word() == word {
            return true;
        }
        self.at = start;
        false
    }

    fn need(&mut self, literal: &str) -> Result<(), ScriptError> {
        if self.take(literal) {
            return Ok(());
        }
        self.skip_blanks();
        Err(self.error(format!("`{literal}`")))
    }

    /// A whole number up to `most`.
    fn number(&mut self, what: &str, most: u32) -> Result<u32, ScriptError> {
        self.skip_blanks();
        let rest = self.rest();
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        match rest[..digits].parse::<u32>() {
            Ok(value) if value <= most => {
                self.at += digits;
                Ok(value)
            }
            _ => Err(self.error(format!("{what} (0..={most})"))),
        }
    }

    /// A number, or `*`.
    fn number_or_any(&mut self, what: &str, most: u32) -> Result<Option<u32>, ScriptError> {
        if self.take("*") { Ok(None) } else { self.number(what, most).map(Some) }
    }

    fn seconds(&mut self) -> Result<Nanos, ScriptError> {
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        match rest[..end].parse::<f64>() {
            Ok(seconds) if seconds * 1e9 <= LONGEST.0 as f64 => {
                self.word_at = self.at;
                self.at += end;
                Ok(Nanos::from_secs_f64(seconds))
            }
            _ => Err(self.error("seconds (1, .2, 0.001)")),
        }
    }

    /// A line before the first step. True: it was `linux:`.
    fn head(&mut self, script: &mut Script) -> Result<bool, ScriptError> {
        let start = self.at;
        let name = self.word();
        match name {
            "linux:" => {
                script.linux = if self.take_word("yes") {
                    Linux::Yes
                } else if self.take_word("no") {
                    self.need("(")?;
                    let why = self.rest().trim_end().strip_suffix(')').unwrap_or("");
                    if why.is_empty() {
                        return Err(self.error("why, and `)` at the end of the line"));
                    }
                    self.at = self.text.len();
                    Linux::No(why.into())
                } else {
                    self.skip_blanks();
                    return Err(self.error("`yes` or `no (why)`"));
                };
                return Ok(true);
            }
            "linux-differs:" => {
                self.skip_blanks();
                match self.rest().split_once("; verdict: ") {
                    Some((what, verdict)) if verdict.contains("RFC ") && !what.is_empty() => {
                        let verdict = verdict.trim_end().to_owned();
                        script.differences.push(Difference { what: what.into(), verdict });
                        self.at = self.text.len();
                    }
                    _ => return Err(self.error("`what; verdict: RFC section says ...`")),
                }
            }
            "family:" => {
                script.families = match self.word() {
                    "v4" => vec![Family::V4],
                    "v6" => vec![Family::V6],
                    _ => return Err(self.error_before("`v4` or `v6` (both without this line)")),
                };
            }
            "tunables:" => self.settings(&mut script.tunables)?,
            "sysctl:" => self.settings(&mut script.sysctls)?,
            "tolerance:" => {
                self.skip_blanks();
                script.tolerance = self.seconds()?;
            }
            "isn:" => script.isn = self.number("the peer's initial sequence number", u32::MAX)?,
            _ => {
                self.at = start;
                let expected = "`linux:`, `linux-differs:`, `family:`, `tunables:`, `sysctl:`, \
                                `tolerance:`, `isn:`, or a step, which begins with its time (+.1)";
                return Err(self.error(expected));
            }
        }
        Ok(false)
    }

    /// An error at the word just read.
    fn error_before(&self, expected: &str) -> ScriptError {
        Cursor { at: self.word_at, ..*self }.error(expected)
    }

    fn settings(&mut self, settings: &mut Vec<Setting>) -> Result<(), ScriptError> {
        while !self.is_at_end() {
            settings.push(self.setting()?);
        }
        Ok(())
    }

    fn setting(&mut self) -> Result<Setting, ScriptError> {
        self.skip_blanks();
        let at = self.place();
        match self.peek().split_once('=') {
            Some((name, value)) if !name.is_empty() && !value.is_empty() => {
                self.at += name.len() + 1 + value.len();
                Ok(Setting { name: name.into(), value: value.into(), at })
            }
            _ => Err(self.error("`name=value`")),
        }
    }

    fn step(&mut self) -> Result<Step, ScriptError> {
        let text = self.text.trim().to_owned();
        let who = if self.take_word("@linux") {
            Who::Linux
        } else if self.take_word("@squall") {
            Who::Squall
        } else {
            Who::Both
        };
        self.skip_blanks();
        self.need("+")?;
        let from = self.seconds()?;
        let to = if self.take("~+") { self.seconds()? } else { from };
        if to < from {
            return Err(self.error_before("a time that is not before the first"));
        }
        Ok(Step { line: self.line, text, who, time: Time { from, to }, action: self.action()? })
    }

    fn action(&mut self) -> Result<Action, ScriptError> {
        if self.take("<") {
            if self.take_word("icmp") {
                return self.icmp().map(Action::InjectIcmp);
            }
            return self.segment(false).map(Action::Inject);
        }
        if self.take(">") {
            return self.segment(true).map(Action::Expect);
        }
        Ok(match self.word() {
            "quiet" => Action::Quiet,
            "anew" => Action::Anew(if self.is_at_end() {
                0
            } else {
                self.number("a distance", u32::MAX)?
            }),
            "listen" => Action::Do(Verb::Listen),
            "connect" => Action::Do(Verb::Connect),
            "send" => Action::Do(Verb::Send(self.number("octets", MOST_OCTETS)?)),
            "close" => Action::Do(Verb::Close),
            "abort" => Action::Do(Verb::Abort),
            "pause" => Action::Do(Verb::Pause),
            "resume" => Action::Do(Verb::Resume),
            "established" => Action::Await(Awaited::Established),
            "received" => Action::Await(Awaited::Received(self.number("octets", MOST_OCTETS)?)),
            "peer-closed" => Action::Await(Awaited::PeerClosed),
            "gone" => Action::Await(Awaited::Gone(self.gone()?)),
            _ => {
                let expected = "`<` (inject), `>` (expect), `quiet`, `anew`, what the application \
                                does (`listen`, `connect`, `send`, `close`, `abort`, `pause`, \
                                `resume`) or is told (`established`, `received`, `peer-closed`, \
                                `gone`)";
                return Err(self.error_before(expected));
            }
        })
    }

    fn gone(&mut self) -> Result<Gone, ScriptError> {
        let word = self.word();
        match GONE.iter().find(|(name, _)| *name == word) {
            Some((_, gone)) => Ok(*gone),
            None => Err(self.error_before(&format!("why: {}", names(GONE)))),
        }
    }

    fn icmp(&mut self) -> Result<Icmp, ScriptError> {
        let word = self.word();
        let kind = match word {
            "too-big" => {
                let mtu = self.number("an MTU", u32::from(u16::MAX))?;
                IcmpKind::TooBig { mtu: mtu as u16 }
            }
            _ => match ICMP.iter().find(|(name, _)| *name == word) {
                Some((_, kind)) => *kind,
                None => return Err(self.error_before(&format!("`too-big MTU`, {}", names(ICMP)))),
            },
        };
        let seq = if self.take_word("seq") {
            Some(self.number("a sequence number", u32::MAX)?)
        } else {
            None
        };
        Ok(Icmp { kind, seq })
    }

    fn segment(&mut self, expected: bool) -> Result<Segment, ScriptError> {
        let mut segment =
            Segment { count: self.count()?, ip: self.ip_part()?, ..Segment::default() };
        segment.flags = self.flags()?;
        segment.start = self.number("the first sequence number", u32::MAX)?;
        self.need(":")?;
        segment.end = self.number("the sequence number behind the last octet", u32::MAX)?;
        self.need("(")?;
        let at = self.at;
        let len = self.number("octets", MOST_OCTETS)?;
        if segment.end.wrapping_sub(segment.start) != len {
            self.at = at;
            return Err(
                self.error(format!("{}, end minus start", segment.end.wrapping_sub(segment.start)))
            );
        }
        self.need(")")?;
        if segment.count.is_none() && len > 60_000 {
            return Err(
                self.error("a count before the flags (10x), as this is more than a packet holds")
            );
        }
        while !self.is_at_end() && !self.rest().trim_start().starts_with('<') {
            match self.word() {
                "ack" => segment.ack = self.number_or_any("an acknowledgment number", u32::MAX)?,
                "win" => segment.window = self.number_or_any("a window", 65_535)?.map(|n| n as u16),
                "urg" => {
                    segment.urgent =
                        self.number_or_any("an urgent pointer", 65_535)?.map(|n| n as u16)
                }
                _ => {
                    return Err(self
                        .error_before("`ack`, `win`, `urg`, `<options>` or the end of the line"));
                }
            }
        }
        if expected
            && segment.flags & ACK != 0
            && segment.ack.is_none()
            && !self.text[..self.at].contains("ack *")
        {
            return Err(self.error("`ack`, as the flags have `.` (`ack *` for any)"));
        }
        if self.take("<") {
            segment.options = Some(self.options()?);
        }
        Ok(segment)
    }

    fn ip_part(&mut self) -> Result<IpPart, ScriptError> {
        let mut part = IpPart::default();
        if !self.take("[") {
            return Ok(part);
        }
        loop {
            match self.word() {
                "noecn" => part.ecn = Some(0),
                "ect1" => part.ecn = Some(1),
                "ect0" => part.ecn = Some(2),
                "ce" => part.ecn = Some(3),
                "badsum" => part.bad_checksum = true,
                "doff" => part.data_offset = Some(self.number("words of header", 15)? as u8),
                "cut" => part.cut = Some(self.number("octets of TCP", 1500)? as u16),
                _ => {
                    return Err(self.error_before(
                        "`noecn`, `ect0`, `ect1`, `ce`, `badsum`, `doff N`, `cut N`",
                    ));
                }
            }
            if self.take("]") {
                return Ok(part);
            }
            self.need(",")?;
        }
    }

    /// `10x`, if it comes next.
    fn count(&mut self) -> Result<Option<u32>, ScriptError> {
        self.skip_blanks();
        let Some(digits) = self.peek().strip_suffix('x') else { return Ok(None) };
        let count = digits.parse().ok().filter(|count| (1..=MOST_SEGMENTS).contains(count));
        if count.is_none() {
            return Err(self.error(format!("how many segments (1..={MOST_SEGMENTS}), then `x`")));
        }
        self.at += digits.len() + 1;
        Ok(count)
    }

    fn flags(&mut self) -> Result<u8, ScriptError> {
        self.skip_blanks();
        let word = self.peek();
        let mut flags = 0;
        for letter in word.chars().filter(|_| word != "-") {
            match FLAGS.iter().find(|(known, _)| *known == letter) {
                Some((_, flag)) => flags |= flag,
                None => return Err(self.error("flags out of `FSRP.UEW`, or `-` for none")),
            }
        }
        if word.is_empty() {
            return Err(self.error("flags out of `FSRP.UEW`, or `-` for none"));
        }
        self.at += word.len();
        Ok(flags)
    }

    /// Behind `<`.
    fn options(&mut self) -> Result<Vec<TcpOption>, ScriptError> {
        let mut options = vec![];
        if self.take(">") {
            return Ok(options);
        }
        loop {
            options.push(self.option()?);
            if self.take(">") {
                return Ok(options);
            }
            self.need(",")?;
        }
    }

    fn option(&mut self) -> Result<TcpOption, ScriptError> {
        Ok(match self.word() {
            "mss" => TcpOption::Mss(self.number_or_any("octets", 65_535)?.map(|n| n as u16)),
            "wscale" => {
                TcpOption::WindowScale(self.number_or_any("a shift", 255)?.map(|n| n as u8))
            }
            "sackOK" => TcpOption::SackPermitted,
            "nop" => TcpOption::Nop,
            "eol" => TcpOption::End,
            "TS" => {
                self.need("val")?;
                let value = self.number_or_any("a timestamp", u32::MAX)?;
                self.need("ecr")?;
                TcpOption::Timestamps { value, echo: self.number_or_any("a timestamp", u32::MAX)? }
            }
            "sack" => {
                let mut blocks = vec![];
                while !self.rest().trim_start().starts_with([',', '>']) {
                    let left = self.number("the first sequence number of a block", u32::MAX)?;
                    self.need(":")?;
                    blocks
                        .push((left, self.number("the sequence number behind a block", u32::MAX)?));
                }
                TcpOption::Sack(blocks)
            }
            "hex" => {
                let digits = self.word();
                let octet = |at: usize| {
                    digits.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok())
                };
                let octets: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(octet).collect();
                match octets.filter(|octets| !octets.is_empty()) {
                    Some(octets) => TcpOption::Octets(octets),
                    None => return Err(self.error_before("pairs of hexadecimal digits")),
                }
            }
            _ => {
                let expected = "an option: `mss N`, `sackOK`, `TS val N ecr N`, `wscale N`, `sack \
                                A:B ...`, `nop`, `eol`, `hex ...`";
                return Err(self.error_before(expected));
            }
        })
    }
}

const GONE: &[(&str, Gone)] = &[
    ("closed", Gone::Closed),
    ("aborted", Gone::Aborted),
    ("reset", Gone::Reset),
    ("refused", Gone::Refused),
    ("unreachable", Gone::Unreachable),
    ("connect-timeout", Gone::ConnectTimeout),
    ("timeout", Gone::Timeout),
    ("keepalive-timeout", Gone::KeepaliveTimeout),
];

const ICMP: &[(&str, IcmpKind)] = &[
    ("net-unreachable", IcmpKind::Net),
    ("host-unreachable", IcmpKind::Host),
    ("protocol-unreachable", IcmpKind::Protocol),
    ("port-unreachable", IcmpKind::Port),
    ("prohibited", IcmpKind::Prohibited),
    ("time-exceeded", IcmpKind::TimeExceeded),
    ("source-quench", IcmpKind::SourceQuench),
];

fn names<T>(table: &[(&str, T)]) -> String {
    table.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = GONE.iter().find(|(_, gone)| gone == self).map_or("", |(name, _)| name);
        write!(f, "{name}")
    }
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Established => write!(f, "established"),
            Self::Received(octets) => write!(f, "received {octets}"),
            Self::PeerClosed => write!(f, "peer-closed"),
            Self::Gone(gone) => write!(f, "gone {gone}"),
        }
    }
}

/// As scripts write them.
pub fn flag_letters(flags: u8) -> String {
    if flags == 0 {
        return "-".into();
    }
    FLAGS.iter().filter(|(_, flag)| flags & flag != 0).map(|(letter, _)| letter).collect()
}
