//! Parses packet text.

use std::ops::Range;

use squall_units::nearest;

use crate::header::{
    FieldDef, FieldKind, HeaderDef, Presence, Proto, Space, find, headers, list, number, payloads,
};
use crate::messages;
use crate::options::{OptionDef, OptionForm, OptionSet, Part, U8, is_name, usage, written};
use crate::packet::{Arg, Content, Layer, Opt, Packet, SyntaxError, Value};

const MAX_TEXT: usize = 1 << 18;
const MAX_LAYERS: usize = 64;
/// Maximum length of a payload layer, in octets.
pub(crate) const MAX_PAYLOAD: usize = 1 << 16;

impl Packet {
    /// Reads `"eth/vlan(id=5)/ipv4(dst=48.0.0.1)/udp(dport=53)/text(hello)"`.
    ///
    /// ```
    /// use squall_wire::Packet;
    /// let packet = Packet::parse("eth / ip(dst=48.0.0.1, ttl=3) / tcp(flags=SA, options=[mss(1460)])").unwrap();
    /// assert_eq!(packet.to_string(), "eth/ipv4(ttl=3,dst=48.0.0.1)/tcp(flags=S|A,options=[mss(1460)])");
    ///
    /// let error = Packet::parse("eth/ipv5").unwrap_err();
    /// assert_eq!((error.at, error.hint.as_str()), (4..8, "did you mean ipv4?"));
    /// ```
    pub fn parse(text: &str) -> Result<Self, SyntaxError> {
        if text.len() > MAX_TEXT {
            let found = format!("{} octets", text.len());
            return Err(error(
                MAX_TEXT..text.len(),
                found,
                "at most 256 KiB of text",
                "try long payload from a file: file(path)",
            ));
        }
        Parser { text, pos: 0 }.packet()
    }
}

/// Parses the default options of a table row.
///
/// # Panics
/// If the row's text is invalid.
pub(crate) fn usual_options(header: &HeaderDef, text: &str) -> Vec<Opt> {
    let (_, set) = header.list(0).expect("a header with usual options always has a list of them");
    Parser { text, pos: 0 }.options(set).expect("the table has valid text")
}

fn error(
    at: Range<usize>,
    found: String,
    expected: impl Into<String>,
    hint: impl Into<String>,
) -> SyntaxError {
    SyntaxError { at, found, expected: expected.into(), hint: hint.into() }
}

struct Parser<'a> {
    text: &'a str,
    pos: usize,
}

type Parsed<T> = Result<T, SyntaxError>;

impl<'a> Parser<'a> {
    fn packet(mut self) -> Parsed<Packet> {
        let mut layers: Vec<Layer> = Vec::new();
        loop {
            self.skip_space();
            let at = self.word();
            let layer = self.layer(at.clone())?;
            if layers.len() == MAX_LAYERS {
                return Err(self.wrong(at, &format!("at most {MAX_LAYERS} layers"), "try fewer"));
            }
            follows(layers.last(), &layer)
                .map_err(|(expected, hint)| self.wrong(at, &expected, hint))?;
            layers.push(layer);
            self.skip_space();
            if self.peek().is_none() {
                layers.shrink_to_fit();
                return Ok(Packet { layers });
            }
            self.expect('/', "/ and a layer, or the end", "layers are joined by /: eth/ipv4/udp")?;
        }
    }

    /// Parses the layer whose name is at `at`.
    fn layer(&mut self, at: Range<usize>) -> Parsed<Layer> {
        let name = &self.text[at.clone()];
        let Some(header) = find(name) else {
            let known = || headers().iter().chain(payloads());
            let names =
                known().flat_map(|h| std::iter::once(h.name).chain(h.aliases.iter().copied()));
            let hint = did_you_mean(name, names)
                .unwrap_or_else(|| format!("layers are {}", list(known().map(|h| h.name))));
            return Err(self.wrong(at, "the name of a layer", hint));
        };
        self.skip_space();
        if header.is_payload() {
            return Ok(Layer { header, content: self.payload(header)? });
        }
        let mut set: Vec<(usize, Value)> = Vec::new();
        if self.take('(') {
            self.skip_space();
            while !self.take(')') {
                let start = self.pos;
                let (index, value) = self.field(header)?;
                if let Some((other, _)) = set.iter().find(|(i, _)| overlap(header, *i, index)) {
                    let (a, b) = (header.fields[*other].name, header.fields[index].name);
                    let expected =
                        if a == b { format!("{a} once") } else { format!("not both {a} and {b}") };
                    let at = start..self.pos;
                    return Err(error(
                        at.clone(),
                        self.quote(at),
                        expected,
                        "they share bits: try only one of them",
                    ));
                }
                set.push((index, value));
                self.skip_space();
                if !self.take(',') && self.peek() != Some(')') {
                    return Err(self.wrong_here(
                        ", or )",
                        format!("as in {}({}=...)", header.name, header.fields[0].name),
                    ));
                }
                self.skip_space();
            }
        }
        set.sort_by_key(|(i, _)| *i);
        // A vector of one element has room for four: 144 octets in each of a million packets.
        set.shrink_to_fit();
        Ok(Layer { header, content: Content::Fields(set) })
    }

    fn field(&mut self, header: &'static HeaderDef) -> Parsed<(usize, Value)> {
        let at = self.word();
        let name = &self.text[at.clone()];
        let Some((index, field)) = header.field(name) else {
            let hint = did_you_mean(name, header.field_names()).unwrap_or_else(|| {
                format!("{} has {}", header.name, list(header.fields.iter().map(|f| f.name)))
            });
            return Err(self.wrong(at, &format!("a field of {}", header.name), hint));
        };
        self.skip_space();
        self.expect('=', "=", format!("as in {}({}=...)", header.name, field.name))?;
        self.skip_space();
        let value = match field.kind {
            FieldKind::Options(set) => Value::Options(self.options(set)?),
            _ => self.value(header, field)?,
        };
        Ok((index, value))
    }

    fn value(&mut self, header: &HeaderDef, field: &FieldDef) -> Parsed<Value> {
        let (at, text) = if self.peek() == Some('"') {
            let start = self.pos;
            let text = self.string()?;
            (start..self.pos, text)
        } else {
            let mut at = self.word();
            if matches!(field.kind, FieldKind::Flags(_)) {
                self.more_flags(&mut at);
            }
            let text = self.text[at.clone()].chars().filter(|c| !c.is_whitespace()).collect();
            (at, text)
        };
        let fills =
            matches!(field.kind, FieldKind::Length | FieldKind::Next(_) | FieldKind::Checksum);
        if fills && text == "auto" {
            return Ok(Value::Auto);
        }
        if matches!(field.kind, FieldKind::Checksum) && text == "bad" {
            return Ok(Value::Bad);
        }
        let name = format!("{}.{}", header.name, field.name);
        match field.kind.parse(&text) {
            Ok(value) if value > field.max() => {
                let hint = format!("{name} has {} bits", field.bits);
                Err(self.wrong(at, &format!("at most {}", field.kind.format(field.max())), hint))
            }
            Ok(value) => Ok(Value::Number(value)),
            Err(expected) => {
                let names: &[(&str, u64)] = match field.kind {
                    FieldKind::Number(names) | FieldKind::Next(names) | FieldKind::Flags(names) => {
                        names
                    }
                    _ => &[],
                };
                let hint = did_you_mean(&text, names.iter().map(|n| n.0))
                    .unwrap_or_else(|| format!("{name} is: {}", field.doc));
                Err(self.wrong(at, &expected, hint))
            }
        }
    }

    /// Continues with flags that have spaces around their bars.
    fn more_flags(&mut self, at: &mut Range<usize>) {
        loop {
            let before = self.pos;
            self.skip_space();
            let bar = matches!(self.peek(), Some('|' | '+'))
                || self.text[at.clone()].ends_with(['|', '+']);
            if !bar || self.word().is_empty() {
                self.pos = before;
                return;
            }
            at.end = self.pos;
        }
    }

    fn options(&mut self, set: OptionSet) -> Parsed<Vec<Opt>> {
        let start = self.pos;
        let mut options = Vec::new();
        if self.take('[') {
            self.skip_space();
            while !self.take(']') {
                options.push(self.option(set)?);
                self.skip_space();
                if !self.take(',') && self.peek() != Some(']') {
                    return Err(self
                        .wrong_here(", or ]", "options are in a list: options=[nop, hex(0101)]"));
                }
                self.skip_space();
            }
        } else {
            options.push(self.option(set)?);
        }
        let (octets, limit) =
            (options.iter().map(|one| set.octets(one)).sum::<usize>(), set.limit());
        if octets > limit {
            let at = start..self.pos;
            return Err(error(
                at,
                format!("{octets} octets of options"),
                format!("at most {limit}"),
                "try fewer",
            ));
        }
        Ok(options)
    }

    fn option(&mut self, set: OptionSet) -> Parsed<Opt> {
        let at = self.word();
        let name = &self.text[at.clone()];
        if name.eq_ignore_ascii_case("hex") {
            self.skip_space();
            return Ok(Opt::Hex(self.hex()?));
        }
        if set == OptionSet::Addresses {
            return match name.parse::<std::net::Ipv6Addr>() {
                Ok(a) => Ok(Opt::Address(a.to_bits())),
                Err(_) => {
                    Err(self.wrong(at, "an IPv6 address", "as in addresses=[2001:2::3, 2001:2::4]"))
                }
            };
        }
        let Some(def) = set.defs().iter().find(|d| d.name.eq_ignore_ascii_case(name)) else {
            let hint = did_you_mean(name, set.defs().iter().map(|d| d.name)).unwrap_or_else(|| {
                format!("options are {} and hex(...)", list(set.defs().iter().map(|d| d.name)))
            });
            return Err(self.wrong(at, "an option", hint));
        };
        let parts = if let OptionForm::Value(parts) = def.form { parts } else { &[U8] };
        let parts = if def.form == OptionForm::Single { &[] } else { parts };
        let args = self.args(def, parts)?;
        if let OptionSet::Tlv(tlv) = set {
            let octets = args.iter().map(|arg| arg.octets().len()).max().unwrap_or(0);
            if octets > tlv.most() {
                let (found, most) = (format!("{octets} octets"), tlv.most());
                let at = at.start..self.pos;
                return Err(error(at, found, format!("at most {most}"), usage(def)));
            }
        }
        let least = match def.form {
            OptionForm::Slots => 1,
            OptionForm::Pad => 2,
            _ => 0,
        };
        if least > 0 && args.first().is_none_or(|n| n.number() < least) {
            let at = at.start..self.pos;
            return Err(error(
                at.clone(),
                self.quote(at),
                format!("a count of at least {least}"),
                format!("as in {}(4)", def.name),
            ));
        }
        Ok(Opt::Known(def, args))
    }

    /// Parses the arguments in an option's parentheses, if there are any.
    fn args(&mut self, def: &'static OptionDef, parts: &'static [Part]) -> Parsed<Vec<Arg>> {
        let hint = || format!("as in {}: {}", usage(def), def.doc);
        let mut wanted = written(parts);
        let mut args = Vec::new();
        self.skip_space();
        if self.take('(') {
            self.skip_space();
            while !self.take(')') {
                let start = self.pos;
                let Some(part) = wanted.next() else {
                    let at = self.word();
                    let expected = format!("{} with {} values", def.name, args.len());
                    return Err(self.wrong(at, &expected, hint()));
                };
                args.push(match part {
                    Part::Text | Part::Name => {
                        if self.peek() != Some('"') {
                            return Err(self.wrong_here("text in quotes", hint()));
                        }
                        let text = self.string()?;
                        if part == Part::Name && !is_name(&text) {
                            let at = start..self.pos;
                            return Err(self.wrong(at, "labels of up to 63 octets", hint()));
                        }
                        Arg::Text(text)
                    }
                    Part::Octets => {
                        let at = self.word();
                        if !self.text[at.clone()].eq_ignore_ascii_case("hex") {
                            return Err(self.wrong(at, "hex(...)", hint()));
                        }
                        Arg::Octets(self.hex()?)
                    }
                    part => {
                        let at = self.word();
                        let number = part.parse(&self.text[at.clone()]);
                        Arg::Number(number.map_err(|expected| self.wrong(at, &expected, hint()))?)
                    }
                });
                self.skip_space();
                if !self.take(',') && self.peek() != Some(')') {
                    return Err(self.wrong_here(", or )", hint()));
                }
                self.skip_space();
            }
        }
        match wanted.next() {
            Some(part @ (Part::Text | Part::Name)) if args.len() < parts.len() => {
                let what = if part == Part::Name { "a name in quotes" } else { "text in quotes" };
                Err(self.wrong_here(what, hint()))
            }
            _ => Ok(args),
        }
    }

    fn payload(&mut self, header: &'static HeaderDef) -> Parsed<Content> {
        let usage = || header.title.to_string();
        match header.proto {
            Proto::Text | Proto::Http | Proto::Sip | Proto::Mqtt | Proto::Snmp | Proto::File => {
                if self.peek() != Some('(') {
                    return Err(self.wrong_here("(", usage()));
                }
                self.pos += 1;
                self.skip_space();
                let start = self.pos;
                let text = if self.peek() == Some('"') {
                    self.string()?
                } else {
                    let end = self.text[start..].find(')').map_or(self.text.len(), |i| start + i);
                    self.pos = end;
                    self.text[start..end].trim_end().to_string()
                };
                self.skip_space();
                self.expect(')', ")", usage())?;
                if text.len() > MAX_PAYLOAD {
                    return Err(error(
                        start..self.pos,
                        format!("{} octets", text.len()),
                        "at most 65536",
                        usage(),
                    ));
                }
                if header.proto != Proto::File {
                    return match messages::octets(header.proto, &text) {
                        Ok(_) => Ok(Content::Text(text)),
                        Err(expected) => {
                            let at = start..self.pos - 1;
                            Err(error(at.clone(), self.quote(at), expected, usage()))
                        }
                    };
                }
                match text.is_empty() {
                    true => {
                        Err(error(start..self.pos, "no path".into(), "the path of a file", usage()))
                    }
                    false => Ok(Content::Path(text)),
                }
            }
            Proto::Hex | Proto::Pattern | Proto::Raw => {
                let start = self.pos;
                let octets = self.hex()?;
                if octets.len() > MAX_PAYLOAD || octets.is_empty() && header.proto != Proto::Hex {
                    let found = format!("{} octets", octets.len());
                    return Err(error(start..self.pos, found, "1 to 65536 octets", usage()));
                }
                Ok(Content::Octets(octets))
            }
            _ => {
                let mut count = None;
                if self.take('(') {
                    self.skip_space();
                    if self.peek() != Some(')') {
                        let at = self.word();
                        match number(&self.text[at.clone()]) {
                            Some(n) if n <= MAX_PAYLOAD as u128 => count = Some(n as usize),
                            _ => {
                                return Err(self.wrong(
                                    at,
                                    "a number of octets up to 65536",
                                    usage(),
                                ));
                            }
                        }
                        self.skip_space();
                    }
                    self.expect(')', ")", usage())?;
                }
                if header.proto == Proto::Truncate && count.is_none_or(|n| n == 0) {
                    return Err(self.wrong_here("(n), the number of octets to keep", usage()));
                }
                Ok(Content::Count(count))
            }
        }
    }

    /// `(de ad:be-ef)`
    fn hex(&mut self) -> Parsed<Vec<u8>> {
        const HINT: &str = "two hex digits per octet: hex(dead beef)";
        self.expect('(', "( and hex digits", HINT)?;
        self.skip_space();
        if self.text[self.pos..].starts_with("0x") {
            self.pos += 2;
        }
        let start = self.pos;
        let mut octets = Vec::new();
        let mut half = None;
        while let Some(c) = self.peek() {
            match c.to_digit(16) {
                Some(d) => match half.take() {
                    Some(high) => octets.push((high << 4 | d) as u8),
                    None => half = Some(d),
                },
                None if c == ')' => break,
                None if c.is_whitespace() || matches!(c, ':' | '-' | '_' | ',') => {}
                None => return Err(self.wrong_here("hex digits", HINT)),
            }
            self.pos += c.len_utf8();
        }
        if half.is_some() {
            return Err(error(
                start..self.pos,
                "an odd number of hex digits".into(),
                "an even number",
                HINT,
            ));
        }
        self.expect(')', ")", HINT)?;
        Ok(octets)
    }

    fn string(&mut self) -> Parsed<String> {
        let start = self.pos;
        self.pos += 1;
        let mut text = String::new();
        while let Some(c) = self.peek() {
            let at = self.pos;
            self.pos += c.len_utf8();
            match c {
                '"' => return Ok(text),
                '\\' => {
                    let escape = self.peek();
                    self.pos += escape.map_or(0, char::len_utf8);
                    match escape {
                        Some('n') => text.push('\n'),
                        Some('r') => text.push('\r'),
                        Some('t') => text.push('\t'),
                        Some('0') => text.push('\0'),
                        Some(c @ ('"' | '\\')) => text.push(c),
                        Some('x') => {
                            let digits = self.text.get(self.pos..self.pos + 2);
                            match digits.and_then(|d| u8::from_str_radix(d, 16).ok()) {
                                Some(octet) if octet < 0x80 => text.push(octet as char),
                                _ => {
                                    let hint =
                                        "octets above 7f belong in hex(...): text(\"a\")/hex(ff)";
                                    return Err(self.wrong(at..self.pos, "\\x00 to \\x7f", hint));
                                }
                            }
                            self.pos += 2;
                        }
                        _ => {
                            return Err(self.wrong(
                                at..self.pos,
                                r#"\n \r \t \0 \xHH \" or \\"#,
                                r"write \\ for \",
                            ));
                        }
                    }
                }
                c => text.push(c),
            }
        }
        Err(error(start..self.pos, "a string without end".into(), "\"", "try a closing \""))
    }

    /// A run of the characters of names and values; may be empty.
    fn word(&mut self) -> Range<usize> {
        let start = self.pos;
        let rest = &self.text[start..];
        let end = rest
            .find(|c: char| !(c.is_alphanumeric() || "_.:-+|".contains(c)))
            .unwrap_or(rest.len());
        self.pos = start + end;
        start..self.pos
    }

    fn peek(&self) -> Option<char> {
        self.text[self.pos..].chars().next()
    }

    fn take(&mut self, c: char) -> bool {
        let taken = self.peek() == Some(c);
        self.pos += if taken { c.len_utf8() } else { 0 };
        taken
    }

    fn expect(&mut self, c: char, expected: &str, hint: impl Into<String>) -> Parsed<()> {
        if self.take(c) { Ok(()) } else { Err(self.wrong_here(expected, hint)) }
    }

    fn skip_space(&mut self) {
        let rest = &self.text[self.pos..];
        self.pos += rest.len() - rest.trim_start().len();
    }

    fn wrong_here(&self, expected: &str, hint: impl Into<String>) -> SyntaxError {
        self.wrong(self.pos..self.pos, expected, hint)
    }

    /// An empty range is replaced by the character at its start.
    fn wrong(&self, mut at: Range<usize>, expected: &str, hint: impl Into<String>) -> SyntaxError {
        if at.is_empty() {
            at.end += self.text[at.start..].chars().next().map_or(0, char::len_utf8);
        }
        error(at.clone(), self.quote(at), expected, hint)
    }

    fn quote(&self, at: Range<usize>) -> String {
        match &self.text[at] {
            "" => "the end".into(),
            text if text.chars().count() > 40 => {
                format!("{:?}", text.chars().take(40).chain(['…']).collect::<String>())
            }
            text => format!("{text:?}"),
        }
    }
}

fn did_you_mean<'a>(text: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    nearest(text, names).map(|n| format!("did you mean {n}?"))
}

/// Whether `layer` may follow `before`; the error is the expected form and a suggestion.
pub(crate) fn follows(before: Option<&Layer>, layer: &Layer) -> Result<(), (String, String)> {
    let this = layer.header;
    let wrong = |expected: String, hint: &str| Err((expected, hint.to_string()));
    let Some(before) = before.map(|b| b.header) else {
        return match this.proto {
            Proto::Raw => Ok(()),
            _ if this.chosen_by.iter().any(|(space, _)| *space == Space::Link) => Ok(()),
            _ => wrong(
                "eth or raw first".into(),
                "frames begin with a link header: eth/..., or raw(hex)",
            ),
        };
    };
    if before.proto == Proto::Truncate {
        return wrong("the end".into(), "truncate is the last layer");
    }
    if this.proto == Proto::Raw {
        return wrong("raw first".into(), "inside a packet, try hex(...)");
    }
    // Raw octets are a header of unknown type, so anything may follow them.
    let unknown = before.proto == Proto::Hex && !this.is_payload();
    if this.is_payload() || unknown || before.may_carry(this) {
        return Ok(());
    }
    if before.is_payload() {
        return wrong("payload or truncate".into(), "headers come before the payload");
    }
    let carried = before.carries().chain(["payload"]);
    wrong(
        format!("{} after {}", list(carried), before.name),
        "other octets can be written as hex(...)",
    )
}

fn overlap(header: &HeaderDef, a: usize, b: usize) -> bool {
    let (x, y) = (&header.fields[a], &header.fields[b]);
    a == b
        || x.presence == Presence::Always
            && y.presence == Presence::Always
            && x.bit < y.bit + y.bits
            && y.bit < x.bit + x.bits
}
