//! The language of packet scripts: parses text into a [`Script`], or reports the position of an
//! error and the expected form.
//!
//! README.md next to the scripts describes it. It is close to packetdrill's; the application acts
//! in verbs instead of system calls, because this stack has no sockets.

use std::fmt;

use squall_units::Nanos;

#[derive(Debug)]
pub struct Script {
    /// The name that the caller gave.
    pub file: String,
    /// The tested rule, with its RFC: the comment that opens the file.
    pub rule: String,
    pub linux: Linux,
    pub differences: Vec<Difference>,
    /// Both families, unless a line of the script names one.
    pub families: Vec<Family>,
    pub tunables: Vec<Setting>,
    pub sysctls: Vec<Setting>,
    /// Tolerance of times for packets and events, on this stack.
    pub tolerance: Nanos,
    /// The peer's initial sequence number.
    pub isn: u32,
    pub steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Linux {
    Yes,
    /// No, for this reason.
    No(String),
}

/// How Linux differs from the script, and which of them follows the RFC.
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
    /// The step as written.
    pub text: String,
    pub target: Target,
    pub time: Time,
    pub action: Action,
}

/// The subjects that play a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Both,
    Squall,
    Linux,
}

/// Relative to the previous step, `from..=to`.
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
    /// Nothing was sent since the previous step.
    Quiet,
    /// The following steps belong to another connection: relative sequence numbers start again; the
    /// peer's initial sequence number is its first one plus this number.
    NextFlow(u32),
    Do(Verb),
    Await(Awaited),
}

/// Actions of the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    Listen,
    Connect,
    Send(u32),
    /// Closes the sending direction; still receives.
    Close,
    Abort,
    /// Stops reading: the window fills.
    Pause,
    Resume,
    /// Continues with the next flow, in which the application's data starts again.
    NextFlow,
}

/// Events of the application.
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

/// One or more segments of a contiguous range. Unspecified fields have defaults when injected and
/// are not compared when expected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Number of segments, of equal length except for the last.
    pub count: Option<u32>,
    pub flags: u8,
    pub start: u32,
    pub end: u32,
    pub ack: Option<u32>,
    pub window: Option<u16>,
    pub urgent: Option<u16>,
    /// `None`: injected segments have none, expected ones any.
    pub options: Option<Vec<TcpOption>>,
    pub ip: IpPart,
}

/// The part in brackets before the flags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IpPart {
    /// The two bits of RFC 3168.
    pub ecn: Option<u8>,
    /// The TCP checksum is wrong.
    pub bad_checksum: bool,
    /// The data offset in words, regardless of the options.
    pub data_offset: Option<u8>,
    /// The IP packet ends after this many octets of TCP.
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

/// In numbers, `None` means any value when expected, and the last value seen when injected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TcpOption {
    Mss(Option<u16>),
    WindowScale(Option<u8>),
    SackPermitted,
    /// In the other side's sequence numbers.
    Sack(Vec<(u32, u32)>),
    Timestamps {
        value: Option<u32>,
        echo: Option<u32>,
    },
    Nop,
    End,
    /// Raw, with kind and length.
    Octets(Vec<u8>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Icmp {
    pub kind: IcmpKind,
    /// Number of the quoted segment; `None`: the last one sent.
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
    /// In characters, 1-based.
    pub column: u32,
    pub found: String,
    pub expected: String,
}

const DEFAULT_TOLERANCE: Nanos = Nanos(5_000_000);
const DEFAULT_ISN: u32 = 1_000_000;
/// The size of this runner's buffers.
const MAX_OCTETS: u32 = 4_000_000;
const MAX_SEGMENTS: u32 = 4_000;
/// The longest timer is keepalive's two hours; no script waits longer.
const MAX_TIME: Nanos = Nanos(100_000 * Nanos::SECOND.0);

impl Script {
    /// Parses a script. `file` is the name for errors.
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
        let mut has_linux_line = false;
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
                if !has_linux_line {
                    return Err(cursor.error("first a line `linux: yes` or `linux: no (why)`"));
                }
                script.steps.push(cursor.step()?);
            } else if script.steps.is_empty() {
                has_linux_line |= cursor.head(&mut script)?;
            } else {
                return Err(cursor.error("a step, which begins with its time (+.1)"));
            }
            cursor.end()?;
        }
        // Declared differences are played too: one that no longer exists is an error.
        let linux_step = script.steps.iter().find(|step| step.target == Target::Linux);
        if let (None, Some(difference)) = (linux_step, script.differences.first()) {
            let cursor = Cursor { file, line: number + 1, text: "", at: 0, word_at: 0 };
            return Err(cursor.error(format!(
                "steps of Linux alone (@linux +.1 ...) that show how {}",
                difference.what
            )));
        }
        if let Some(step) = linux_step.filter(|_| script.differences.is_empty()) {
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
    /// Octets parsed so far.
    at: usize,
    /// Start of the last word.
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

    /// The next word, as a human reader would delimit it.
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

    /// Consumes `literal` if it comes next, after optional blanks.
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

    /// Parses an integer of at most `most`.
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

    /// Parses a number, or `*`.
    fn number_or_any(&mut self, what: &str, most: u32) -> Result<Option<u32>, ScriptError> {
        if self.take("*") { Ok(None) } else { self.number(what, most).map(Some) }
    }

    fn seconds(&mut self) -> Result<Nanos, ScriptError> {
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        match rest[..end].parse::<f64>() {
            Ok(seconds) if seconds * 1e9 <= MAX_TIME.0 as f64 => {
                self.word_at = self.at;
                self.at += end;
                Ok(Nanos::from_secs_f64(seconds))
            }
            _ => Err(self.error("seconds (1, .2, 0.001)")),
        }
    }

    /// Parses a line before the first step. Returns whether it was `linux:`.
    fn head(&mut self, script: &mut Script) -> Result<bool, ScriptError> {
        let start = self.at;
        let name = self.word();
        match name {
            "linux:" => {
                script.linux = if self.take_word("yes") {
                    Linux::Yes
                } else if self.take_word("no") {
                    self.need("(")?;
                    let reason = self.rest().trim_end().strip_suffix(')').unwrap_or("");
                    if reason.is_empty() {
                        return Err(self.error("why, and `)` at the end of the line"));
                    }
                    self.at = self.text.len();
                    Linux::No(reason.into())
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

    /// An error at the position of the last word.
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
        let target = if self.take_word("@linux") {
            Target::Linux
        } else if self.take_word("@squall") {
            Target::Squall
        } else {
            Target::Both
        };
        self.skip_blanks();
        self.need("+")?;
        let from = self.seconds()?;
        let to = if self.take("~+") { self.seconds()? } else { from };
        if to < from {
            return Err(self.error_before("a time that is not before the first"));
        }
        Ok(Step { line: self.line, text, target, time: Time { from, to }, action: self.action()? })
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
            "anew" => Action::NextFlow(if self.is_at_end() {
                0
            } else {
                self.number("a distance", u32::MAX)?
            }),
            "listen" => Action::Do(Verb::Listen),
            "connect" => Action::Do(Verb::Connect),
            "send" => Action::Do(Verb::Send(self.number("octets", MAX_OCTETS)?)),
            "close" => Action::Do(Verb::Close),
            "abort" => Action::Do(Verb::Abort),
            "pause" => Action::Do(Verb::Pause),
            "resume" => Action::Do(Verb::Resume),
            "established" => Action::Await(Awaited::Established),
            "received" => Action::Await(Awaited::Received(self.number("octets", MAX_OCTETS)?)),
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
        let len = self.number("octets", MAX_OCTETS)?;
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

    /// Parses `10x`, if it comes next.
    fn count(&mut self) -> Result<Option<u32>, ScriptError> {
        self.skip_blanks();
        let Some(digits) = self.peek().strip_suffix('x') else { return Ok(None) };
        let count = digits.parse().ok().filter(|count| (1..=MAX_SEGMENTS).contains(count));
        if count.is_none() {
            return Err(self.error(format!("how many segments (1..={MAX_SEGMENTS}), then `x`")));
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

    /// Parses the options after `<`.
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

/// Flags as scripts write them.
pub fn flag_letters(flags: u8) -> String {
    if flags == 0 {
        return "-".into();
    }
    FLAGS.iter().filter(|(_, flag)| flags & flag != 0).map(|(letter, _)| letter).collect()
}
