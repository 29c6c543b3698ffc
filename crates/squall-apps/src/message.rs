//! Messages: octets that all flows share, and marks whose octets differ from flow to flow.
//!
//! The octets of a mark are determined by the seed, the flow, the send number and the mark's
//! position, so a retransmitted segment has the same octets although none are stored.

use std::{collections::BTreeMap, fmt, net::IpAddr, str::FromStr, sync::Arc};

use squall_units::{below, mix};

use crate::Data;

/// A message of a flow. Its text form has `\r \n \t \0 \\ \" \$ \xHH`, and marks in `${...}`:
///
/// | mark | content |
/// |---|---|
/// | `${random:hex:8}` | 8 random hexadecimal digits, different in each sending; also `alnum`, `digits`, `octets` |
/// | `${random:hex:8:flow}` | the same in all sendings of a flow; `${random:hex:8:flow:call}` shared by all marks of the name |
/// | `${counter:6}` | the number of the sending within the flow, from 0, in 6 digits; `${counter:6:START:STEP}`; `be16`, `be32`, `hex8` for 6 |
/// | `${flow:6}` | the flow's number |
/// | `${client}` `${client_port}` `${server}` `${server_port}` | address and port of either end, of variable length |
/// | `${variable:x}` | a variable of the program in decimal, of variable length; `${variable:x:be16}`, `be32`, `hex8`, `6` (digits) |
/// | `${choice:a\|b\|c}` | one of the list for each flow, padded with spaces to the longest |
/// | `${user_agent}` | one of several common User-Agent values, padded likewise |
/// | `${repeat:1000:ab}` | `ababab...`, 1,000 octets; takes no memory |
/// | `${value:token}` | the value that `extract token = ...` took from an answer, of variable length; empty before that |
/// | `${cookies}` | `Cookie: a=b; c=d\r\n` with the cookies that answers have set; empty without cookies |
/// | `${content_length}` | octets of the message after its first empty line (`\r\n\r\n`), in decimal |
/// | `${data:user}` | a column of the flow's record ([`Data`]), of variable length ([`Message::with_data`]) |
/// | `${template:name}` | the template's value for `name` ([`crate::Program::with_values`]) |
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Message {
    pub parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// The same for all flows.
    Octets(Arc<[u8]>),
    Mark(Mark),
    /// `len` octets of repetitions of `pattern`.
    Repeat {
        pattern: Arc<[u8]>,
        len: u32,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub enum Mark {
    Random {
        alphabet: Alphabet,
        width: u32,
        scope: Scope,
        name: String,
    },
    /// `start + step * n` in send `n`, zero-padded; cut to its last digits or octets.
    Counter {
        form: NumberForm,
        start: u64,
        step: u64,
    },
    Flow {
        width: u8,
    },
    Client,
    ClientPort,
    Server,
    ServerPort,
    /// At most one variable per message. The other marks must then not differ between sends, except
    /// by the variable's value.
    Variable {
        name: String,
        form: NumberForm,
    },
    /// One of these texts for each flow, padded with spaces.
    Choice(Vec<String>),
    UserAgent,
    Template(String),
    /// A column of the flow's record, once `data` is set ([`Message::with_data`]).
    Data {
        column: String,
        data: Option<Data>,
    },
    /// A value extracted from an answer.
    Value(String),
    /// The Cookie header field.
    Cookies,
    /// Octets after the first empty line.
    ContentLength,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alphabet {
    /// `0-9a-f`
    Hex,
    /// `0-9A-Za-z`
    Alnum,
    Digits,
    /// Any octets.
    Octets,
}

/// How often a mark changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    #[default]
    Sending,
    Flow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberForm {
    /// Decimal of variable length; only for variables.
    Decimal,
    Digits(u8),
    Be16,
    Be32,
    Hex8,
}

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MessageError {
    #[error(
        "message: {found:?} is not an escape; expected one of \\r \\n \\t \\0 \\\\ \\\" \\$ \\xHH"
    )]
    Escape { found: String },
    #[error("message: \"${{\" is not closed; expected \"}}\", or \"\\$\" for a dollar")]
    Open,
    #[error("message: ${{{found}}} is not a mark; expected {expected}")]
    Mark { found: String, expected: &'static str },
    #[error("message: {what} is {found}; expected {expected}")]
    OutOfRange { what: &'static str, found: u64, expected: &'static str },
    #[error(
        "message: two variables, {first:?} and {second:?}; expected at most one, because octets \
         are sent again from its value alone"
    )]
    TwoVariables { first: String, second: String },
    #[error("message: ${{template:{name}}} has no value; {hint}")]
    NoValue { name: String, hint: String },
    #[error("message: ${{data:{name}}}: the data has no such column; {hint}")]
    NoColumn { name: String, hint: String },
    #[error(
        "message: ${{data:{name}}} needs data; try data = {{ file = \"users.csv\" }} in its \
         template"
    )]
    NoData { name: String },
    #[error(
        "message: ${{data:{name}}} is sent by a server, which does not know the client's flow \
         number; try order = \"random\""
    )]
    DataOfServer { name: String },
    #[error(
        "message: ${{value:{name}}} is never extracted; expected an `extract {name} = ...` in the \
         program; {hint}"
    )]
    NotExtracted { name: String, hint: String },
    #[error(
        "message: ${{content_length}} has no empty line after it; end the head with \\r\\n\\r\\n"
    )]
    NoBody,
}

/// The values of `${user_agent}`: shapes of common browsers, with made-up builds.
const USER_AGENTS: &[&str] = &[
    "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) \
     Chrome/126.0.0.0 Safari/537.36",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 14_5) AppleWebKit/605.1.15 (KHTML, like Gecko) \
     Version/17.5 Safari/605.1.15",
    "Mozilla/5.0 (Linux; Android 14; Mobile) AppleWebKit/537.36 (KHTML, like Gecko) \
     Chrome/126.0.0.0 Mobile Safari/537.36",
    "squall/0.1",
];

impl Message {
    /// A message of these octets, unchanged.
    #[must_use]
    pub fn octets(octets: impl Into<Arc<[u8]>>) -> Self {
        Self { parts: vec![Part::Octets(octets.into())] }
    }

    /// A message of `len` octets that repeats `pattern`, without storing the repetitions.
    #[must_use]
    pub fn repeat(pattern: impl Into<Arc<[u8]>>, len: u32) -> Self {
        Self { parts: vec![Part::Repeat { pattern: pattern.into(), len }] }
    }

    /// Appends `other`.
    #[must_use]
    pub fn then(mut self, other: Self) -> Self {
        self.parts.extend(other.parts);
        self
    }

    /// Merges adjacent octets, so that a message without marks is a single copy.
    pub(crate) fn joined(self) -> Self {
        let mut parts: Vec<Part> = Vec::with_capacity(self.parts.len());
        for part in self.parts {
            match (parts.last_mut(), part) {
                (Some(Part::Octets(before)), Part::Octets(octets)) => {
                    *before = [&before[..], &octets[..]].concat().into();
                }
                (_, part) => parts.push(part),
            }
        }
        Self { parts }
    }

    /// Replaces each `${template:NAME}`.
    ///
    /// # Errors
    /// If a name has no value.
    pub fn with_values(&self, values: &BTreeMap<String, String>) -> Result<Self, MessageError> {
        let parts = self.parts.iter().map(|part| match part {
            Part::Mark(Mark::Template(name)) => match values.get(name) {
                Some(value) => Ok(Part::Octets(value.as_bytes().into())),
                None => {
                    Err(MessageError::NoValue { name: name.clone(), hint: known(values.keys()) })
                }
            },
            other => Ok(other.clone()),
        });
        Ok(Self { parts: parts.collect::<Result<_, _>>()? })
    }

    /// Sets the records for all `${data:COLUMN}`.
    ///
    /// # Errors
    /// If there is no such column.
    pub fn with_data(mut self, data: &Data) -> Result<Self, MessageError> {
        for part in &mut self.parts {
            let Part::Mark(Mark::Data { column, data: of }) = part else { continue };
            if data.column(column).is_none() {
                let hint = known(data.columns().iter());
                return Err(MessageError::NoColumn { name: column.clone(), hint });
            }
            *of = Some(data.clone());
        }
        Ok(self)
    }

    /// The column of the first `${data:...}` mark.
    #[must_use]
    pub fn column(&self) -> Option<&str> {
        self.data().map(|(column, _)| column)
    }

    pub(crate) fn data(&self) -> Option<(&str, Option<&Data>)> {
        self.parts.iter().find_map(|part| match part {
            Part::Mark(Mark::Data { column, data }) => Some((column.as_str(), data.as_ref())),
            _ => None,
        })
    }

    /// Parses octets in which only `${...}` is special, as in the text form; `\${` is a literal
    /// `${`.
    ///
    /// # Errors
    /// If the text in the braces is not a mark.
    pub fn raw(octets: &[u8]) -> Result<Self, MessageError> {
        let (mut parts, mut own, mut rest) = (vec![], Vec::new(), octets);
        while let Some(at) = memchr::memmem::find(rest, b"${") {
            if let Some(before) = rest[..at].strip_suffix(b"\\") {
                own.extend_from_slice(before);
                own.extend_from_slice(b"${");
                rest = &rest[at + 2..];
                continue;
            }
            let tail = &rest[at + 2..];
            let end = memchr::memchr(b'}', tail).ok_or(MessageError::Open)?;
            own.extend_from_slice(&rest[..at]);
            if !own.is_empty() {
                parts.push(Part::Octets(std::mem::take(&mut own).into()));
            }
            parts.push(mark(&String::from_utf8_lossy(&tail[..end]))?);
            rest = &tail[end + 1..];
        }
        own.extend_from_slice(rest);
        if !own.is_empty() {
            parts.push(Part::Octets(own.into()));
        }
        Ok(Self { parts })
    }

    /// The message's length, if it is the same for all flows.
    #[must_use]
    pub fn fixed_len(&self) -> Option<u64> {
        self.parts.iter().map(|part| part_len(part).map(u64::from)).sum()
    }

    /// The variable used by a mark of the message, if any.
    pub(crate) fn variable(&self) -> Result<Option<&str>, MessageError> {
        let mut found: Option<&str> = None;
        for part in &self.parts {
            if let Part::Mark(Mark::Variable { name, .. }) = part {
                match found {
                    Some(first) if first != name => {
                        return Err(MessageError::TwoVariables {
                            first: first.into(),
                            second: name.clone(),
                        });
                    }
                    _ => found = Some(name),
                }
            }
        }
        Ok(found)
    }
}

pub(crate) fn known<'a>(names: impl Iterator<Item = &'a String>) -> String {
    const MAX_LISTED: usize = 20;
    let names: Vec<&str> = names.map(String::as_str).take(MAX_LISTED + 1).collect();
    match names.len() {
        0 => "there are none".into(),
        n if n > MAX_LISTED => format!("there are {}, ...", names[..MAX_LISTED].join(", ")),
        _ => format!("there are {}", names.join(", ")),
    }
}

/// The part's length; `None` if it differs between flows.
fn part_len(part: &Part) -> Option<u32> {
    Some(match part {
        Part::Octets(octets) => octets.len() as u32,
        Part::Repeat { len, .. } => *len,
        Part::Mark(mark) => match mark {
            Mark::Random { width, .. } => *width,
            Mark::Flow { width } => u32::from(*width),
            Mark::Choice(choices) => choices.iter().map(String::len).max().unwrap_or(0) as u32,
            Mark::UserAgent => USER_AGENTS.iter().map(|line| line.len()).max().unwrap_or(0) as u32,
            Mark::Variable { form, .. } | Mark::Counter { form, .. } => return form.len(),
            Mark::Client
            | Mark::ClientPort
            | Mark::Server
            | Mark::ServerPort
            | Mark::Data { .. }
            | Mark::Value(_)
            | Mark::Cookies
            | Mark::ContentLength
            | Mark::Template(_) => return None,
        },
    })
}

/// The flow, and the send in it, for which a message is written.
#[derive(Clone, Copy, Debug)]
pub struct Sending<'a> {
    pub seed: u64,
    pub flow: u32,
    /// Number of the send within the flow, or the value of the message's variable.
    pub nth: u32,
    pub client: (IpAddr, u16),
    pub server: (IpAddr, u16),
    /// Values extracted from answers, by slot.
    pub values: &'a [Vec<u8>],
}

/// The slot for `${cookies}`, which has no name of its own.
pub const COOKIES: &str = "cookies";

/// A compiled message, which can be written at any offset.
#[derive(Clone, Debug)]
pub struct Ready {
    parts: Vec<ReadyPart>,
    /// The length, if it is the same for all flows.
    len: Option<u32>,
    /// The checksum of its octets, if they are the same for all flows and fit a packet.
    sum: Option<u64>,
}

#[derive(Clone, Debug)]
struct ReadyPart {
    len: Option<u32>,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Octets(Arc<[u8]>),
    Repeat(Arc<[u8]>),
    /// Random octets; the salt is the mark's own or that of its name.
    Random(Alphabet, Scope, u64),
    Small(Small),
    Choice(Vec<Box<[u8]>>, u64),
    /// A column of the data.
    Data(Data, usize),
    /// The value in a slot.
    Value(usize),
    /// The length of these parts, in decimal.
    Length(Vec<ReadyPart>),
}

/// Marks with few octets.
#[derive(Clone, Copy, Debug)]
enum Small {
    Counter { form: NumberForm, start: u64, step: u64 },
    Flow { width: u8 },
    Client,
    ClientPort,
    Server,
    ServerPort,
    Variable(NumberForm),
}

/// Patterns are unrolled to this length, so a segment takes only one or two copies.
const UNROLLED: usize = 4096;

impl Ready {
    /// `salt` distinguishes messages.
    ///
    /// # Errors
    /// If the message is too long or empty, or has marks of a template.
    #[cfg(test)]
    pub fn new(message: &Message, salt: u64) -> Result<Self, MessageError> {
        Self::with_slots(message, salt, &[])
    }

    /// `slots`: names of the values extracted from answers.
    ///
    /// # Errors
    /// As [`new`](Self::new), or if a value has no slot.
    pub fn with_slots(message: &Message, salt: u64, slots: &[&str]) -> Result<Self, MessageError> {
        let mut parts = vec![];
        let mut places = 0;
        for part in &message.parts {
            places += 1;
            let place = mix(salt, places);
            let len = part_len(part);
            if len == Some(0) {
                continue;
            }
            let what = match part {
                Part::Octets(octets) => What::Octets(octets.clone()),
                Part::Repeat { pattern, .. } => What::Repeat(unroll(pattern)?),
                Part::Mark(mark) => mark_of(mark, place, slots)?,
            };
            parts.push(ReadyPart { len, what });
        }
        measure_body(&mut parts)?;
        let len = parts.iter().map(|part| part.len.map(u64::from)).sum::<Option<u64>>();
        if let Some(found) = len.filter(|len| *len > u64::from(MAX_OCTETS)) {
            return Err(MessageError::OutOfRange {
                what: "its length",
                found,
                expected: "at most 1,072,693,248; send the rest in a loop",
            });
        }
        let sum = match &parts[..] {
            [ReadyPart { what: What::Octets(octets), .. }] if octets.len() < 1 << 16 => {
                Some(squall_wire::checksum::sum(octets))
            }
            _ => None,
        };
        Ok(Self { parts, len: len.map(|len| len as u32), sum })
    }

    /// Length of the message in this send.
    #[inline]
    pub fn len<'a>(&self, sending: impl FnOnce() -> Sending<'a>) -> u32 {
        match self.len {
            Some(len) => len,
            None => {
                let sending = sending();
                self.parts.iter().map(|part| part.len(&sending)).fold(0, u32::saturating_add)
            }
        }
    }

    pub fn fixed_len(&self) -> Option<u32> {
        self.len
    }

    /// The octets of each part, in order; `None` for parts that differ between flows or sendings,
    /// or that repeat a pattern.
    pub fn parts_in_common(&self) -> impl Iterator<Item = Option<&[u8]>> {
        self.parts.iter().map(|part| match &part.what {
            What::Octets(octets) => Some(&octets[..]),
            _ => None,
        })
    }

    /// The octets of a message that is the same for all flows, and their checksum, if they fit a
    /// packet.
    #[inline]
    pub fn fixed(&self) -> Option<(&[u8], u64)> {
        match &self.parts[..] {
            [ReadyPart { what: What::Octets(octets), .. }] => Some((octets, self.sum?)),
            _ => None,
        }
    }

    /// Copies octets `offset..offset + out.len()`; octets beyond the end are not written.
    #[inline]
    pub fn copy<'a>(&self, sending: impl FnOnce() -> Sending<'a>, offset: u32, out: &mut [u8]) {
        if let [ReadyPart { what: What::Octets(octets), .. }] = &self.parts[..]
            && let Some(from) = octets.get(offset as usize..offset as usize + out.len())
        {
            out.copy_from_slice(from);
            return;
        }
        self.copy_parts(&sending(), u64::from(offset), out);
    }

    fn copy_parts(&self, sending: &Sending<'_>, offset: u64, mut out: &mut [u8]) {
        let mut at = 0;
        for part in &self.parts {
            if out.is_empty() {
                return;
            }
            let end = at + u64::from(part.len(sending));
            if end > offset {
                // Only in the first part can `at` be less than `offset`.
                let skip = offset.saturating_sub(at);
                let here = (end - at - skip).min(out.len() as u64) as usize;
                let (now, rest) = out.split_at_mut(here);
                part.write(sending, skip as u32, now);
                out = rest;
            }
            at = end;
        }
    }
}

/// A flow may have less than 1 GiB outstanding, and starts a message only with less than 1 MiB
/// outstanding.
const MAX_OCTETS: u32 = (1 << 30) - (1 << 20);

fn unroll(pattern: &Arc<[u8]>) -> Result<Arc<[u8]>, MessageError> {
    match pattern.len() {
        0 => Err(MessageError::OutOfRange {
            what: "the length of the pattern",
            found: 0,
            expected: "at least 1",
        }),
        n if n >= UNROLLED => Ok(pattern.clone()),
        n => Ok(pattern.repeat(UNROLLED.div_ceil(n)).into()),
    }
}

fn mark_of(mark: &Mark, place: u64, slots: &[&str]) -> Result<What, MessageError> {
    let digits = |width: u8| match width {
        1..=20 => Ok(width),
        _ => Err(MessageError::OutOfRange {
            what: "the number of digits of a mark",
            found: width.into(),
            expected: "1..=20",
        }),
    };
    Ok(match mark {
        Mark::Random { alphabet, scope, name, .. } => {
            let by = if name.is_empty() {
                place
            } else {
                name.bytes().fold(0x6e61_6d65, |h, b| mix(h, b.into()))
            };
            What::Random(*alphabet, *scope, by)
        }
        Mark::Counter { form, start, step } => {
            if let NumberForm::Digits(width) = form {
                digits(*width)?;
            }
            What::Small(Small::Counter { form: *form, start: *start, step: *step })
        }

        Mark::Flow { width } => What::Small(Small::Flow { width: digits(*width)? }),
        Mark::Client => What::Small(Small::Client),
        Mark::ClientPort => What::Small(Small::ClientPort),
        Mark::Server => What::Small(Small::Server),
        Mark::ServerPort => What::Small(Small::ServerPort),
        Mark::Variable { form, .. } => {
            if let NumberForm::Digits(width) = form {
                digits(*width)?;
            }
            What::Small(Small::Variable(*form))
        }
        Mark::Choice(choices) => What::Choice(padded(choices), place),
        Mark::UserAgent => What::Choice(padded(USER_AGENTS), place),
        Mark::Data { column, data } => {
            let no_data = || MessageError::NoData { name: column.clone() };
            let data = data.as_ref().ok_or_else(no_data)?;
            let at = data.column(column).expect("`with_data` has looked for the column");
            What::Data(data.clone(), at)
        }
        Mark::Value(name) => What::Value(slot(name, slots)?),
        Mark::Cookies => What::Value(slot(COOKIES, slots)?),
        // `measure_body` sets the parts.
        Mark::ContentLength => What::Length(vec![]),
        Mark::Template(name) => {
            return Err(MessageError::NoValue {
                name: name.clone(),
                hint: "give it one in the template".into(),
            });
        }
    })
}

fn slot(name: &str, slots: &[&str]) -> Result<usize, MessageError> {
    slots.iter().position(|known| *known == name).ok_or_else(|| {
        let names: Vec<String> =
            slots.iter().filter(|name| **name != COOKIES).map(|&name| name.into()).collect();
        MessageError::NotExtracted { name: name.into(), hint: known(names.iter()) }
    })
}

/// Gives each length mark the parts whose length it states.
fn measure_body(parts: &mut [ReadyPart]) -> Result<(), MessageError> {
    const END: &[u8] = b"\r\n\r\n";
    for at in 0..parts.len() {
        if !matches!(parts[at].what, What::Length(_)) {
            continue;
        }
        let end = parts[at..].iter().enumerate().find_map(|(i, part)| match &part.what {
            What::Octets(octets) => {
                Some((at + i, memchr::memmem::find(octets, END)? + END.len(), octets))
            }
            _ => None,
        });
        let (first, from, octets) = end.ok_or(MessageError::NoBody)?;
        let rest: Arc<[u8]> = octets[from..].into();
        let body = [ReadyPart { len: Some(rest.len() as u32), what: What::Octets(rest) }];
        let body = body.into_iter().chain(parts[first + 1..].iter().cloned());
        parts[at].what = What::Length(body.collect());
    }
    Ok(())
}

fn padded(choices: &[impl AsRef<str>]) -> Vec<Box<[u8]>> {
    let longest = choices.iter().map(|choice| choice.as_ref().len()).max().unwrap_or(0);
    let pad = |choice: &str| {
        let mut octets = choice.as_bytes().to_vec();
        octets.resize(longest, b' ');
        octets.into()
    };
    choices.iter().map(|choice| pad(choice.as_ref())).collect()
}

impl ReadyPart {
    #[inline]
    fn len(&self, sending: &Sending<'_>) -> u32 {
        match (self.len, &self.what) {
            (Some(len), _) => len,
            (None, What::Small(small)) => small.write(sending).len,
            (None, What::Data(data, column)) => {
                data.of_flow(sending.seed, sending.flow, *column).len() as u32
            }
            (None, What::Value(slot)) => {
                sending.values.get(*slot).map_or(0, |value| value.len() as u32)
            }
            (None, What::Length(body)) => length(body, sending).len,
            (None, _) => unreachable!("only small marks have a length by flow"),
        }
    }

    /// Writes its octets from `skip` on.
    fn write(&self, sending: &Sending<'_>, skip: u32, out: &mut [u8]) {
        let from = skip as usize;
        match &self.what {
            What::Octets(octets) => out.copy_from_slice(&octets[from..from + out.len()]),
            What::Repeat(pattern) => repeat(pattern, from, out),
            What::Random(alphabet, scope, by) => {
                let nth = match scope {
                    Scope::Sending => u64::from(sending.nth) + 1,
                    Scope::Flow => 0,
                };
                let key = mix(mix(mix(sending.seed, *by), sending.flow.into()), nth);
                for (at, octet) in (from..).zip(out) {
                    *octet = alphabet.letter((mix(key, at as u64 >> 2) >> (16 * (at & 3))) as u16);
                }
            }
            What::Small(small) => {
                let text = small.write(sending);
                out.copy_from_slice(&text.octets[from..from + out.len()]);
            }
            What::Choice(choices, by) => {
                let draw = mix(mix(sending.seed, *by), sending.flow.into());
                let choice = &choices[below(draw, choices.len() as u64) as usize];
                out.copy_from_slice(&choice[from..from + out.len()]);
            }
            What::Data(data, column) => {
                let cell = data.of_flow(sending.seed, sending.flow, *column);
                out.copy_from_slice(&cell[from..from + out.len()]);
            }
            What::Value(slot) => {
                // Exactly as many octets as `len` has counted.
                let value = sending.values.get(*slot).map_or(&[][..], Vec::as_slice);
                out.copy_from_slice(&value[from..from + out.len()]);
            }
            What::Length(body) => {
                let text = length(body, sending);
                out.copy_from_slice(&text.octets[from..from + out.len()]);
            }
        }
    }
}

fn length(body: &[ReadyPart], sending: &Sending<'_>) -> Text {
    let octets: u64 = body.iter().map(|part| u64::from(part.len(sending))).sum();
    let mut text = Text { octets: [0; 48], len: 0 };
    text.number(octets, NumberForm::Decimal);
    text
}

fn repeat(pattern: &[u8], from: usize, mut out: &mut [u8]) {
    let mut at = from % pattern.len();
    while !out.is_empty() {
        let now = out.len().min(pattern.len() - at);
        out[..now].copy_from_slice(&pattern[at..at + now]);
        out = &mut out[now..];
        at = 0;
    }
}

impl Alphabet {
    fn letter(self, random: u16) -> u8 {
        let of = |letters: &[u8]| letters[(usize::from(random) * letters.len()) >> 16];
        match self {
            Self::Hex => of(b"0123456789abcdef"),
            Self::Alnum => of(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"),
            Self::Digits => of(b"0123456789"),
            Self::Octets => random as u8,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Hex => "hex",
            Self::Alnum => "alnum",
            Self::Digits => "digits",
            Self::Octets => "octets",
        }
    }
}

/// The text of a mark; the longest is an IPv6 address.
struct Text {
    octets: [u8; 48],
    len: u32,
}

impl Small {
    fn write(self, sending: &Sending<'_>) -> Text {
        let mut text = Text { octets: [0; 48], len: 0 };
        match self {
            Self::Counter { form, start, step } => {
                text.number(start.wrapping_add(step.wrapping_mul(sending.nth.into())), form);
            }
            Self::Flow { width } => text.number(sending.flow.into(), NumberForm::Digits(width)),
            Self::Variable(form) => text.number(sending.nth.into(), form),
            Self::Client => text.format(format_args!("{}", sending.client.0)),
            Self::ClientPort => text.digits::<10>(sending.client.1.into(), 1),
            Self::Server => text.format(format_args!("{}", sending.server.0)),
            Self::ServerPort => text.digits::<10>(sending.server.1.into(), 1),
        }
        text
    }
}

impl NumberForm {
    fn len(self) -> Option<u32> {
        Some(match self {
            Self::Decimal => return None,
            Self::Digits(width) => width.into(),
            Self::Be16 => 2,
            Self::Be32 => 4,
            Self::Hex8 => 8,
        })
    }
}

impl fmt::Display for NumberForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decimal => Ok(()),
            Self::Digits(width) => write!(f, "{width}"),
            Self::Be16 => f.write_str("be16"),
            Self::Be32 => f.write_str("be32"),
            Self::Hex8 => f.write_str("hex8"),
        }
    }
}

impl Text {
    fn number(&mut self, value: u64, form: NumberForm) {
        match form {
            NumberForm::Decimal => self.digits::<10>(value, 1),
            NumberForm::Digits(width) => {
                let value = 10u64.checked_pow(width.into()).map_or(value, |limit| value % limit);
                self.digits::<10>(value, width.into());
            }
            NumberForm::Be16 => self.push(&(value as u16).to_be_bytes()),
            NumberForm::Be32 => self.push(&(value as u32).to_be_bytes()),
            NumberForm::Hex8 => self.digits::<16>(value & u64::from(u32::MAX), 8),
        }
    }

    /// At least `least` digits. Written by hand: `format_args!` takes 900 instructions for 8
    /// digits, a twelfth of the cost of a DNS flow (both ends).
    fn digits<const RADIX: u64>(&mut self, mut value: u64, least: usize) {
        let mut octets = [b'0'; 20];
        let most = octets.len();
        let mut at = most;
        while value > 0 || most - at < least {
            at -= 1;
            octets[at] = b"0123456789abcdef"[(value % RADIX) as usize];
            value /= RADIX;
        }
        self.push(&octets[at..]);
    }

    fn push(&mut self, octets: &[u8]) {
        let at = self.len as usize;
        self.octets[at..at + octets.len()].copy_from_slice(octets);
        self.len += octets.len() as u32;
    }

    fn format(&mut self, text: fmt::Arguments<'_>) {
        fmt::Write::write_fmt(self, text).expect("every small mark fits");
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

impl FromStr for Message {
    type Err = MessageError;

    fn from_str(text: &str) -> Result<Self, MessageError> {
        let (mut parts, mut octets) = (vec![], vec![]);
        let mut rest = text;
        while let Some(at) = rest.find(['\\', '$']) {
            octets.extend_from_slice(&rest.as_bytes()[..at]);
            rest = &rest[at..];
            if let Some(tail) = rest.strip_prefix("${") {
                let end = tail.find('}').ok_or(MessageError::Open)?;
                if !octets.is_empty() {
                    parts.push(Part::Octets(std::mem::take(&mut octets).into()));
                }
                parts.push(mark(&tail[..end])?);
                rest = &tail[end + 1..];
            } else if rest.starts_with('$') {
                octets.push(b'$');
                rest = &rest[1..];
            } else {
                let (octet, tail) = escape(rest)?;
                octets.push(octet);
                rest = tail;
            }
        }
        octets.extend_from_slice(rest.as_bytes());
        if !octets.is_empty() {
            parts.push(Part::Octets(octets.into()));
        }
        Ok(Self { parts })
    }
}

/// Parses an escape; `text` begins with a backslash.
fn escape(text: &str) -> Result<(u8, &str), MessageError> {
    let wrong = || MessageError::Escape { found: text.chars().take(4).collect() };
    let mut chars = text[1..].chars();
    let octet = match chars.next().ok_or_else(wrong)? {
        'r' => b'\r',
        'n' => b'\n',
        't' => b'\t',
        '0' => 0,
        c @ ('\\' | '"' | '$') => c as u8,
        'x' => {
            let digits =
                text.get(2..4).filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
            let octet =
                digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).ok_or_else(wrong)?;
            return Ok((octet, &text[4..]));
        }
        _ => return Err(wrong()),
    };
    Ok((octet, chars.as_str()))
}

/// Parses octets without marks, as in a pattern.
pub(crate) fn unescape(text: &str) -> Result<Vec<u8>, MessageError> {
    let mut octets = vec![];
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        octets.extend_from_slice(&rest.as_bytes()[..at]);
        let (octet, tail) = escape(&rest[at..])?;
        octets.push(octet);
        rest = tail;
    }
    octets.extend_from_slice(rest.as_bytes());
    Ok(octets)
}

const MARKS: &str = "random:ALPHABET:WIDTH, counter:WIDTH, flow:WIDTH, client, client_port, \
                     server, server_port, variable:NAME, choice:A|B, user_agent, \
                     repeat:LEN:PATTERN, value:NAME, data:COLUMN, cookies, \
                     content_length or template:NAME";

/// Parses the text between the braces.
fn mark(text: &str) -> Result<Part, MessageError> {
    let wrong = |expected| MessageError::Mark { found: text.into(), expected };
    let (word, rest) = text.split_once(':').unwrap_or((text, ""));
    let fields: Vec<&str> = if rest.is_empty() { vec![] } else { rest.split(':').collect() };
    let number = |field: &str| field.parse::<u64>().map_err(|_| wrong("a whole number"));
    let width = |field: &str| match number(field)? {
        width @ 1..=20 => Ok(width as u8),
        found => Err(MessageError::OutOfRange {
            what: "the number of digits of a mark",
            found,
            expected: "1..=20",
        }),
    };
    let form = |field: &str| match field {
        "be16" => Ok(NumberForm::Be16),
        "be32" => Ok(NumberForm::Be32),
        "hex8" => Ok(NumberForm::Hex8),
        digits if digits.bytes().all(|b| b.is_ascii_digit()) => {
            Ok(NumberForm::Digits(width(digits)?))
        }
        _ => Err(wrong("be16, be32, hex8 or a number of digits")),
    };
    let mark = match (word, &fields[..]) {
        ("random", [alphabet, width, scope @ ..]) if scope.len() <= 2 => {
            let alphabet = [Alphabet::Hex, Alphabet::Alnum, Alphabet::Digits, Alphabet::Octets]
                .into_iter()
                .find(|known| known.name() == *alphabet)
                .ok_or_else(|| wrong("one of hex, alnum, digits, octets after random"))?;
            let width = match number(width)? {
                width @ 1..=1_000_000 => width as u32,
                found => {
                    return Err(MessageError::OutOfRange {
                        what: "the width of a mark",
                        found,
                        expected: "1..=1,000,000",
                    });
                }
            };
            let scope_of = match scope.first() {
                None | Some(&"sending") => Scope::Sending,
                Some(&"flow") => Scope::Flow,
                Some(_) => return Err(wrong("flow or sending after the width")),
            };
            Mark::Random {
                alphabet,
                width,
                scope: scope_of,
                name: scope.get(1).copied().unwrap_or("").into(),
            }
        }
        ("counter", [how]) => Mark::Counter { form: form(how)?, start: 0, step: 1 },
        ("counter", [how, start, step]) => {
            Mark::Counter { form: form(how)?, start: number(start)?, step: number(step)? }
        }
        ("flow", [digits]) => Mark::Flow { width: width(digits)? },
        ("client", []) => Mark::Client,
        ("client_port", []) => Mark::ClientPort,
        ("server", []) => Mark::Server,
        ("server_port", []) => Mark::ServerPort,
        ("user_agent", []) => Mark::UserAgent,
        ("cookies", []) => Mark::Cookies,
        ("content_length", []) => Mark::ContentLength,
        ("value", [name]) => Mark::Value((*name).into()),
        // Columns may have any name.
        ("data", [_, ..]) => Mark::Data { column: rest.trim().into(), data: None },
        ("variable", [name]) => Mark::Variable { name: (*name).into(), form: NumberForm::Decimal },
        ("variable", [name, how]) => Mark::Variable { name: (*name).into(), form: form(how)? },
        ("choice", [_, ..]) => Mark::Choice(rest.split('|').map(String::from).collect()),
        ("template", [name]) => Mark::Template((*name).into()),
        ("repeat", [len, _, ..]) => {
            let found = number(len)?;
            let len = u32::try_from(found).ok().filter(|len| (1..=MAX_OCTETS).contains(len));
            let len = len.ok_or(MessageError::OutOfRange {
                what: "its length",
                found,
                expected: "1..=1,072,693,248; send the rest in a loop",
            })?;
            let pattern = unescape(rest.split_once(':').map_or("", |(_, pattern)| pattern))?;
            if pattern.is_empty() {
                return Err(wrong("a pattern after the length"));
            }
            return Ok(Part::Repeat { pattern: pattern.into(), len });
        }
        _ => return Err(wrong(MARKS)),
    };
    Ok(Part::Mark(mark))
}

/// `FromStr` parses this text to the same message, except that adjacent parts
/// may merge.
impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.parts {
            match part {
                Part::Octets(octets) => write_escaped(f, octets, b"")?,
                Part::Repeat { pattern, len } => {
                    write!(f, "${{repeat:{len}:")?;
                    write_escaped(f, pattern, b"}")?;
                    f.write_str("}")?;
                }
                Part::Mark(mark) => write!(f, "${{{mark}}}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Random { alphabet, width, scope, name } => {
                write!(f, "random:{}:{width}", alphabet.name())?;
                match (scope, name.as_str()) {
                    (Scope::Sending, "") => Ok(()),
                    (Scope::Flow, "") => f.write_str(":flow"),
                    (Scope::Sending, name) => write!(f, ":sending:{name}"),
                    (Scope::Flow, name) => write!(f, ":flow:{name}"),
                }
            }
            Self::Counter { form, start: 0, step: 1 } => write!(f, "counter:{form}"),
            Self::Counter { form, start, step } => write!(f, "counter:{form}:{start}:{step}"),
            Self::Flow { width } => write!(f, "flow:{width}"),
            Self::Client => f.write_str("client"),
            Self::ClientPort => f.write_str("client_port"),
            Self::Server => f.write_str("server"),
            Self::ServerPort => f.write_str("server_port"),
            Self::UserAgent => f.write_str("user_agent"),
            Self::Variable { name, form: NumberForm::Decimal } => write!(f, "variable:{name}"),
            Self::Variable { name, form } => write!(f, "variable:{name}:{form}"),
            Self::Choice(choices) => write!(f, "choice:{}", choices.join("|")),
            Self::Template(name) => write!(f, "template:{name}"),
            Self::Data { column, .. } => write!(f, "data:{column}"),
            Self::Value(name) => write!(f, "value:{name}"),
            Self::Cookies => f.write_str("cookies"),
            Self::ContentLength => f.write_str("content_length"),
        }
    }
}

/// Prints ASCII characters unchanged; prints `besides` and all other octets as numbers.
pub(crate) fn write_escaped(f: &mut impl fmt::Write, octets: &[u8], besides: &[u8]) -> fmt::Result {
    for &octet in octets {
        match octet {
            b'\r' => f.write_str("\\r")?,
            b'\n' => f.write_str("\\n")?,
            b'\t' => f.write_str("\\t")?,
            b'\\' => f.write_str("\\\\")?,
            b'"' => f.write_str("\\\"")?,
            b'$' => f.write_str("\\$")?,
            b' '..=b'~' if !besides.contains(&octet) => f.write_char(octet.into())?,
            _ => write!(f, "\\x{octet:02x}")?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sending(flow: u32, nth: u32) -> Sending<'static> {
        let end = |octet, port| (IpAddr::from([10, 0, 0, octet]), port);
        Sending { seed: 42, flow, nth, client: end(1, 1024), server: end(200, 80), values: &[] }
    }

    fn whole(ready: &Ready, sending: Sending<'_>) -> Vec<u8> {
        let mut out = vec![0; ready.len(|| sending) as usize];
        ready.copy(|| sending, 0, &mut out);
        out
    }

    #[test]
    fn any_part_of_a_message_equals_that_part_of_the_whole() {
        let text = "a${random:octets:30}${random:alnum:7:flow}${counter:3:9:9}${counter:\
                    be16}${flow:4}${client}|${client_port}|${server}|${server_port}${choice:\
                    x|long one}${user_agent}${repeat:5000:abc}${variable:v}z";
        let ready = Ready::new(&text.parse().expect("a message"), 1).expect("right");
        for (flow, nth) in [(0, 0), (1, 0), (0, 1), (77, 70_000)] {
            let all = whole(&ready, sending(flow, nth));
            for from in (0..all.len()).step_by(61) {
                for len in [1, 2, 40, 1460, all.len()] {
                    let len = len.min(all.len() - from);
                    let mut out = vec![0; len];
                    ready.copy(|| sending(flow, nth), from as u32, &mut out);
                    assert_eq!(out, all[from..from + len], "{from} {len}");
                }
            }
        }
        let text =
            |flow, nth| String::from_utf8_lossy(&whole(&ready, sending(flow, nth))).into_owned();
        assert!(text(3, 5).contains("0003") && text(3, 5).contains("10.0.0.1|1024|10.0.0.200|80"));
        assert!(text(3, 5).ends_with("5z"));
    }

    #[test]
    fn random_marks_change_as_often_as_declared() {
        let of = |text: &str, flow, nth| {
            whole(&Ready::new(&text.parse().expect("right"), 9).expect("right"), sending(flow, nth))
        };
        for (text, by_flow, by_sending) in [
            ("${random:hex:16}", true, true),
            ("${random:hex:16:flow}", true, false),
            (
                "${choice:aaaa|bbbb|cccc|dddd|eeee|ffff|gggg|hhhh|iiii|jjjj|kkkk|llll|mmmm}",
                true,
                false,
            ),
            ("x", false, false),
        ] {
            assert_eq!((0..20).any(|flow| of(text, flow, 0) != of(text, 20, 0)), by_flow, "{text}");
            assert_eq!(
                (0..20).any(|nth| of(text, 0, nth) != of(text, 0, 20)),
                by_sending,
                "{text}"
            );
        }
        // The same name in another message gives the same octets; two marks without names always
        // differ.
        let named = of("${random:digits:12:flow:n} ${random:digits:12:flow:n}", 5, 5);
        assert_eq!(named[..12], named[13..]);
        assert_eq!(named[..12], of("--${random:digits:12:flow:n}", 5, 6)[2..]);
        let nameless = of("${random:digits:12} ${random:digits:12}", 5, 5);
        assert_ne!(nameless[..12], nameless[13..]);
    }

    #[test]
    fn letters_of_an_alphabet_are_equally_frequent() {
        let ready =
            Ready::new(&"${random:digits:100000}".parse().expect("right"), 9).expect("right");
        let mut counts = [0u32; 10];
        whole(&ready, sending(1, 1))
            .iter()
            .for_each(|digit| counts[usize::from(digit - b'0')] += 1);
        assert!(counts.iter().all(|count| (9_600..10_400).contains(count)), "{counts:?}");
    }
}
