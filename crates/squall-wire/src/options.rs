//! Lists at the end of a header: options, records, elements. Tables describe their content; this
//! module converts it to octets, and octets to the text that a person would write.

use std::net::Ipv6Addr;

use crate::{
    bits::get,
    header::FieldKind,
    packet::{Arg, Opt},
};

/// The form of an options list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionSet {
    /// Padded to 4 octets, at most 40.
    Ipv4,
    /// Padded to 4 octets, at most 40.
    Tcp,
    /// Hop-by-hop and destination options; padded to 8 octets.
    Ipv6,
    /// IPv6 addresses.
    Addresses,
    /// Only `hex(...)`; padded to 4 octets.
    Octets,
    /// A sequence of type, length, value.
    Tlv(&'static Tlv),
}

/// Encoding of a list of types, lengths and values.
#[derive(Debug, PartialEq, Eq)]
pub struct Tlv {
    pub defs: &'static [OptionDef],
    pub(crate) head: Head,
    /// Whether the length includes type and length.
    pub(crate) whole: bool,
    /// Each entry is padded to a multiple of this number of octets.
    pub(crate) unit: usize,
    /// Whether the length counts such units instead of octets.
    pub(crate) in_units: bool,
    /// Whether the list ends at the first entry that is not in `defs`. Set for lists that other octets
    /// may follow.
    pub(crate) known: bool,
    /// Octets after the last entry.
    pub(crate) end: &'static [u8],
}

/// The octets in front of an entry's value, with their widths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    TypeLength(usize, usize),
    /// 7 bits of type, 9 of length (LLDP).
    Packed,
    LengthType(usize, usize),
    /// Type, length, and an octet that the length does not count (3GPP's instance).
    TypeLengthZero(usize, usize),
    /// Only a type: the parts of the value determine where the entry ends.
    Type(usize),
    /// No octets: the parts determine everything.
    None,
}

/// One kind of option.
#[derive(Debug, PartialEq, Eq)]
pub struct OptionDef {
    pub name: &'static str,
    pub code: u16,
    pub form: OptionForm,
    pub doc: &'static str,
    /// The header field that counts such entries; empty if there is none.
    pub(crate) counted_in: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionForm {
    /// Only a code.
    Single,
    /// Code, length and a value with these parts.
    Value(&'static [Part]),
    /// Slots for a number of IPv4 addresses.
    Slots,
    /// Padding with a total number of octets: code, length and zeros.
    Pad,
}

/// A part of an option's value. Omitted numbers and addresses are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A number of this many octets.
    Number(usize),
    Mac,
    Ipv4,
    Ipv6,
    /// Text in quotes: the rest of the value.
    Text,
    /// A domain name in quotes, as labels (RFC 1035 §3.1).
    Name,
    /// Addresses: the rest of the value.
    Ipv4s,
    Ipv6s,
    /// `hex(...)`: the rest of the value.
    Octets,
    /// A constant with this width in octets, which the text omits.
    Fixed(usize, u64),
    /// Number of octets that follow, in two octets.
    Octets16,
    /// Number of addresses, which end the value, in two octets.
    Addresses16,
}

pub(crate) const U8: Part = Part::Number(1);
pub(crate) const U16: Part = Part::Number(2);
pub(crate) const U32: Part = Part::Number(4);

/// Text form of an option's arguments, for errors: `prefix(n, n, address)`.
pub fn usage(def: &OptionDef) -> String {
    let OptionForm::Value(parts) = def.form else {
        let name = def.name;
        return if def.form == OptionForm::Single { name.into() } else { format!("{name}(n)") };
    };
    let args: Vec<&str> = parts.iter().filter_map(|part| part.usage()).collect();
    match args.is_empty() {
        true => def.name.into(),
        false => format!("{}({})", def.name, args.join(", ")),
    }
}

impl Part {
    /// `None`: it has no argument.
    fn usage(self) -> Option<&'static str> {
        match self {
            Self::Number(_) => Some("n"),
            Self::Mac => Some("mac"),
            Self::Ipv4 | Self::Ipv6 => Some("address"),
            Self::Text => Some("\"text\""),
            Self::Name => Some("\"name\""),
            Self::Ipv4s | Self::Ipv6s => Some("address, ..."),
            Self::Octets => Some("hex(...)"),
            Self::Fixed(..) | Self::Octets16 | Self::Addresses16 => None,
        }
    }

    pub(crate) fn is_written(self) -> bool {
        self.usage().is_some()
    }

    /// Whether it accepts any number of arguments.
    pub(crate) fn repeats(self) -> bool {
        matches!(self, Self::Ipv4s | Self::Ipv6s)
    }

    /// Width of a number or an address in octets.
    fn width(self) -> Option<usize> {
        match self {
            Self::Number(width) => Some(width),
            Self::Mac => Some(6),
            Self::Ipv4 | Self::Ipv4s => Some(4),
            Self::Ipv6 | Self::Ipv6s => Some(16),
            _ => None,
        }
    }

    /// Parses an argument that is a number or an address.
    ///
    /// # Errors
    /// Invalid text; the error has the expected form.
    pub(crate) fn parse(self, text: &str) -> Result<u128, String> {
        let value = match self {
            Self::Mac => FieldKind::Mac.parse(text),
            Self::Ipv4 | Self::Ipv4s => FieldKind::Ipv4.parse(text),
            Self::Ipv6 | Self::Ipv6s => FieldKind::Ipv6.parse(text),
            _ => crate::header::number(text).ok_or_else(String::new),
        };
        let width = self.width().unwrap_or(0);
        match value {
            Ok(value) if width >= 16 || value >> (8 * width) == 0 => Ok(value),
            Err(expected) if !expected.is_empty() => Err(expected),
            _ => Err(format!("a number of {width} octets")),
        }
    }

    pub(crate) fn format(self, value: u128) -> String {
        match self {
            Self::Mac => FieldKind::Mac.format(value),
            Self::Ipv4 | Self::Ipv4s => FieldKind::Ipv4.format(value),
            Self::Ipv6 | Self::Ipv6s => Ipv6Addr::from_bits(value).to_string(),
            _ => value.to_string(),
        }
    }
}

/// The parts that arguments belong to, repeated as needed.
pub(crate) fn written(parts: &[Part]) -> impl Iterator<Item = Part> {
    let last = parts.last().copied().filter(|part| part.repeats());
    let each = parts.iter().copied().filter(|part| part.is_written() && !part.repeats());
    each.chain(std::iter::repeat_n(last, 64).flatten())
}

/// The octets of a value.
fn value_of(parts: &[Part], args: &[Arg]) -> Vec<u8> {
    let (mut value, mut args) = (Vec::new(), args.iter());
    // Counts are filled in once the counted parts are known.
    let (mut counts, mut repeated) = (Vec::new(), 0);
    let number = |value: &mut Vec<u8>, width: usize, number: u128| {
        value.extend_from_slice(&number.to_be_bytes()[16 - width..]);
    };
    for &part in parts {
        match part {
            Part::Fixed(width, fixed) => number(&mut value, width, fixed.into()),
            Part::Octets16 | Part::Addresses16 => {
                counts.push((value.len(), part));
                value.extend([0; 2]);
            }
            Part::Ipv4s | Part::Ipv6s => {
                let width = part.width().unwrap_or(0);
                repeated = args.len();
                args.by_ref().for_each(|arg| number(&mut value, width, arg.number()));
            }
            Part::Text => value.extend(args.next().map_or(&[][..], Arg::octets)),
            Part::Octets => value.extend(args.next().map_or(&[][..], Arg::octets)),
            Part::Name => labels(args.next().map_or(&[][..], Arg::octets), &mut value),
            Part::Number(_) | Part::Mac | Part::Ipv4 | Part::Ipv6 => {
                let arg = args.next().map_or(0, Arg::number);
                number(&mut value, part.width().unwrap_or(0), arg);
            }
        }
    }
    for (at, part) in counts {
        let count = match part {
            Part::Addresses16 => repeated,
            _ => value.len() - at - 2,
        };
        value[at..at + 2].copy_from_slice(&(count as u16).to_be_bytes());
    }
    value
}

/// Parses a value. Returns the arguments and the value's length.
fn read(parts: &[Part], octets: &[u8]) -> Option<(Vec<Arg>, usize)> {
    let (mut args, mut at, mut end) = (Vec::new(), 0, octets.len());
    let mut repeated = None;
    for &part in parts {
        let rest = octets.get(at..end)?;
        match part {
            Part::Fixed(width, fixed) => {
                let found = get(rest.get(..width)?, 0, width * 8);
                if found != u128::from(fixed) {
                    return None;
                }
                at += width;
            }
            Part::Addresses16 => {
                repeated = Some(usize::from(u16::from_be_bytes(*rest.first_chunk()?)));
                at += 2;
            }
            Part::Octets16 => {
                let count = usize::from(u16::from_be_bytes(*rest.first_chunk()?));
                at += 2;
                if at + count > end {
                    return None;
                }
                end = at + count;
            }
            Part::Text => {
                args.push(Arg::Text(std::str::from_utf8(rest).ok()?.to_owned()));
                at = end;
            }
            Part::Octets => {
                args.push(Arg::Octets(rest.to_vec()));
                at = end;
            }
            Part::Name => {
                let (name, len) = name(rest)?;
                args.push(Arg::Text(name));
                at += len;
            }
            Part::Ipv4s | Part::Ipv6s => {
                let width = part.width().unwrap_or(1);
                let rest = match repeated {
                    Some(count) => rest.get(..count.checked_mul(width)?)?,
                    None => rest,
                };
                if rest.len() % width != 0 {
                    return None;
                }
                let each = rest.chunks(width).map(|one| Arg::Number(get(one, 0, width * 8)));
                args.extend(each);
                at += rest.len();
            }
            Part::Number(_) | Part::Mac | Part::Ipv4 | Part::Ipv6 => {
                let width = part.width().unwrap_or(0);
                args.push(Arg::Number(get(rest.get(..width)?, 0, width * 8)));
                at += width;
            }
        }
    }
    let counted = parts.contains(&Part::Octets16);
    (!counted || at == end).then_some((args, at))
}

/// Appends a domain name as labels of at most 63 octets.
fn labels(name: &[u8], value: &mut Vec<u8>) {
    for label in name.split(|&octet| octet == b'.').filter(|label| !label.is_empty()) {
        let label = &label[..label.len().min(63)];
        value.push(label.len() as u8);
        value.extend(label);
    }
    value.push(0);
}

/// Whether `text` keeps the limits for domain names and labels (RFC 1035 §2.3.4).
pub(crate) fn is_name(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(|label| label.len() <= 63)
}

/// The domain name at the start of `octets`, without compression pointers, and its length.
fn name(octets: &[u8]) -> Option<(String, usize)> {
    let (mut name, mut at) = (String::new(), 0);
    loop {
        let len = usize::from(*octets.get(at)?);
        at += 1;
        if len == 0 {
            return is_name(&name).then_some((name, at));
        }
        let label = octets.get(at..at + len).filter(|_| len < 64)?;
        if !label.iter().all(|octet| octet.is_ascii_graphic() && *octet != b'.') {
            return None;
        }
        name += if name.is_empty() { "" } else { "." };
        name += std::str::from_utf8(label).ok()?;
        at += len;
    }
}

impl Tlv {
    fn head_octets(&self) -> usize {
        match self.head {
            Head::TypeLength(kind, length) | Head::LengthType(length, kind) => kind + length,
            Head::TypeLengthZero(kind, length) => kind + length + 1,
            Head::Packed => 2,
            Head::Type(kind) => kind,
            Head::None => 0,
        }
    }

    /// The longest value that an entry's length can express.
    pub(crate) fn most(&self) -> usize {
        let counted = match self.head {
            Head::Packed => 0x1ff,
            Head::TypeLength(_, length)
            | Head::LengthType(length, _)
            | Head::TypeLengthZero(_, length) => (1 << (8 * length)) - 1,
            Head::Type(_) | Head::None => 1400,
        };
        let octets = if self.in_units { counted * self.unit } else { counted };
        octets - if self.whole { self.head_octets() } else { 0 }
    }

    fn write(&self, code: u16, value: &[u8], out: &mut Vec<u8>) {
        let (start, head) = (out.len(), self.head_octets());
        let octets = (head + value.len()).next_multiple_of(self.unit);
        let counted = match (self.whole, self.in_units) {
            (_, true) => octets / self.unit,
            (true, false) => head + value.len(),
            (false, false) => value.len(),
        } as u16;
        let kind = |out: &mut Vec<u8>, width: usize| out.extend(&code.to_be_bytes()[2 - width..]);
        let length =
            |out: &mut Vec<u8>, width: usize| out.extend(&counted.to_be_bytes()[2 - width..]);
        match self.head {
            Head::Packed => out.extend((code << 9 | counted & 0x1ff).to_be_bytes()),
            Head::TypeLength(t, l) | Head::TypeLengthZero(t, l) => {
                kind(out, t);
                length(out, l);
            }
            Head::LengthType(l, t) => {
                length(out, l);
                kind(out, t);
            }
            Head::Type(t) => kind(out, t),
            Head::None => {}
        }
        out.resize(start + head, 0);
        out.extend(value);
        out.resize(start + octets, 0);
    }

    /// The entry at the start of `octets`, and its length; `None` at the end of the list.
    pub(crate) fn entry(&self, octets: &[u8]) -> Option<(Opt, usize)> {
        if !self.end.is_empty() && octets.starts_with(self.end) {
            return None;
        }
        let number = |octets: &[u8]| {
            octets.iter().fold(0u16, |number, &octet| number << 8 | u16::from(octet))
        };
        let head = octets.get(..self.head_octets())?;
        let after = &octets[head.len()..];
        let (code, counted) = match self.head {
            Head::Type(_) | Head::None => {
                let code = number(head);
                let mut fits =
                    self.defs.iter().filter(|def| self.head == Head::None || def.code == code);
                return fits.find_map(|def| {
                    let OptionForm::Value(parts) = def.form else { return None };
                    let (args, len) = read(parts, after)?;
                    Some((Opt::Known(def, args), head.len() + len))
                });
            }
            Head::Packed => (number(head) >> 9, usize::from(number(head) & 0x1ff)),
            Head::TypeLength(t, l) => (number(&head[..t]), number(&head[t..t + l]).into()),
            Head::TypeLengthZero(t, l) => (number(&head[..t]), number(&head[t..t + l]).into()),
            Head::LengthType(l, _) => (number(&head[l..]), number(&head[..l]).into()),
        };
        let octets_counted = if self.in_units { counted * self.unit } else { counted };
        let len = if self.whole { octets_counted.checked_sub(head.len())? } else { octets_counted };
        let value = after.get(..len)?;
        let all = (head.len() + len).next_multiple_of(self.unit);
        let padding = octets.get(head.len() + len..all)?;
        let zero = |octets: &[u8]| octets.iter().all(|&octet| octet == 0);
        let plain = zero(padding)
            && (!matches!(self.head, Head::TypeLengthZero(..)) || head[head.len() - 1] == 0);
        let known = self.defs.iter().filter(|def| def.code == code && plain).find_map(|def| {
            let OptionForm::Value(parts) = def.form else { return None };
            let (args, read) = read(parts, value)?;
            let rest = &value[read..];
            let fits =
                if self.in_units { rest.len() < self.unit && zero(rest) } else { rest.is_empty() };
            fits.then_some(Opt::Known(def, args))
        });
        match known {
            Some(known) => Some((known, all)),
            // Zeros are the frame's padding.
            None if self.known || zero(head) => None,
            None => Some((Opt::Hex(octets[..all].to_vec()), all)),
        }
    }

    /// Length of the option list at the start of `octets`, including its End of Option List.
    pub(crate) fn list_len(&self, octets: &[u8]) -> usize {
        let mut at = 0;
        while let Some((_, len)) = self.entry(&octets[at..]).filter(|(_, len)| *len > 0) {
            at += len;
        }
        if !self.end.is_empty() && octets[at..].starts_with(self.end) {
            at += self.end.len();
        }
        at
    }
}

impl OptionSet {
    /// Length of a list, octets.
    pub(crate) fn limit(self) -> usize {
        match self {
            Self::Ipv4 | Self::Tcp => 40,
            Self::Ipv6 => 255 * 8 + 6,
            Self::Addresses => 127 * 16,
            Self::Octets => 252,
            Self::Tlv(_) => 1400,
        }
    }

    /// Appends an option.
    pub(crate) fn write(self, option: &Opt, out: &mut Vec<u8>) {
        let (def, args) = match option {
            Opt::Hex(octets) => return out.extend_from_slice(octets),
            Opt::Address(address) => return out.extend_from_slice(&address.to_be_bytes()),
            Opt::Known(def, args) => (def, args),
        };
        let code = def.code as u8;
        let count = || args.first().map_or(0, Arg::number) as usize;
        let start = out.len();
        match (self, def.form) {
            (Self::Tlv(tlv), OptionForm::Value(parts)) => {
                tlv.write(def.code, &value_of(parts, args), out);
            }
            (_, OptionForm::Single) => out.push(code),
            (_, OptionForm::Value(parts)) => {
                let value = value_of(parts, args);
                // IPv6 counts the octets after code and length.
                let counted = value.len() + if self == Self::Ipv6 { 0 } else { 2 };
                out.extend([code, counted as u8]);
                out.extend(value);
            }
            (_, OptionForm::Slots) => {
                let head = slots_header(code);
                out.extend([code, (head + 4 * count()) as u8, head as u8 + 1]);
                out.resize(start + head + 4 * count(), 0);
            }
            (_, OptionForm::Pad) => {
                out.extend([code, count().saturating_sub(2) as u8]);
                out.resize(start + count(), 0);
            }
        }
    }

    /// Length of an option, octets.
    pub(crate) fn octets(self, option: &Opt) -> usize {
        let mut octets = Vec::new();
        self.write(option, &mut octets);
        octets.len()
    }

    /// Appends padding after the list of a header that begins at octet `offset`.
    pub(crate) fn pad(self, offset: usize, bytes: &mut Vec<u8>) {
        if let Self::Tlv(tlv) = self {
            return bytes.extend_from_slice(tlv.end);
        }
        let len = bytes.len() - offset;
        let unit = if self == Self::Ipv6 || self == Self::Addresses { 8 } else { 4 };
        let missing = len.next_multiple_of(unit) - len;
        let start = bytes.len();
        bytes.resize(start + missing, 0);
        if self == Self::Ipv6 && missing > 1 {
            bytes[start] = 1;
            bytes[start + 1] = missing as u8 - 2;
        }
    }

    /// The list in these octets, without the padding that is added automatically.
    pub(crate) fn read(self, octets: &[u8]) -> Vec<Opt> {
        if self == Self::Octets {
            return if octets.is_empty() { Vec::new() } else { vec![Opt::Hex(octets.to_vec())] };
        }
        let (mut list, mut rest) = (Vec::new(), octets);
        while let Some((option, len)) = self.option(rest).filter(|(_, len)| *len > 0) {
            list.push(option);
            rest = &rest[len..];
        }
        if matches!(self, Self::Tlv(tlv) if rest == tlv.end) {
            return list;
        }
        if !rest.is_empty()
            && (self == Self::Ipv6 || rest.len() > 3 || rest.iter().any(|&octet| octet != 0))
        {
            list.push(Opt::Hex(rest.to_vec()));
        }
        if self == Self::Ipv6
            && let Some(Opt::Known(def, args)) = list.last()
            && (def.form == OptionForm::Single
                || def.form == OptionForm::Pad && args.first().is_some_and(|n| n.number() < 8))
        {
            list.pop();
        }
        list
    }

    /// The option at the start of `octets`, and its length; `None` if padding or invalid octets
    /// begin.
    pub(crate) fn option(self, octets: &[u8]) -> Option<(Opt, usize)> {
        if self == Self::Addresses {
            return octets
                .first_chunk()
                .map(|address| (Opt::Address(u128::from_be_bytes(*address)), 16));
        }
        if let Self::Tlv(tlv) = self {
            return tlv.entry(octets);
        }
        let code = *octets.first()?;
        let def = self.defs().iter().find(|def| def.code == u16::from(code));
        if self != Self::Ipv6
            && code == 0
            && octets.len() < 4
            && octets.iter().all(|&octet| octet == 0)
        {
            return None;
        }
        if let Some(def) = def.filter(|def| def.form == OptionForm::Single) {
            return Some((Opt::Known(def, Vec::new()), 1));
        }
        let len = usize::from(*octets.get(1)?) + if self == Self::Ipv6 { 2 } else { 0 };
        let body = octets.get(2..len)?;
        let known = def.and_then(|def| {
            let args = match def.form {
                OptionForm::Value(parts) => {
                    let (args, read) = read(parts, body)?;
                    (read == body.len()).then_some(args)?
                }
                OptionForm::Slots => {
                    let head = slots_header(code);
                    let empty = *body.first()? == head as u8 + 1
                        && body[1..].iter().all(|&octet| octet == 0);
                    (empty && len > head && (len - head).is_multiple_of(4))
                        .then(|| vec![Arg::Number(((len - head) / 4) as u128)])?
                }
                OptionForm::Pad if body.iter().all(|&octet| octet == 0) => {
                    vec![Arg::Number(len as u128)]
                }
                OptionForm::Pad | OptionForm::Single => return None,
            };
            Some(Opt::Known(def, args))
        });
        Some((known.unwrap_or_else(|| Opt::Hex(octets[..len].to_vec())), len))
    }
}

/// Record route has code, length and pointer; the timestamp option has a further octet (RFC 791
/// §3.1).
fn slots_header(code: u8) -> usize {
    if code == 68 { 4 } else { 3 }
}
