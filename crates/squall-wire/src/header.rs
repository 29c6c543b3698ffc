//! The table of headers. Each field is defined once; the syntax, `--help`, the reference and field
//! programs use that definition.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::{
    options::OptionSet,
    table::{HEADERS, PAYLOADS},
};

/// A name space of numbers that identify the next header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    EtherType,
    /// Protocols of IPv4, next headers of IPv6.
    Ip,
    /// UDP ports; the destination port is tried first.
    Udp,
    /// Protocol numbers of PPP.
    Ppp,
    /// Service access points of LLC.
    Llc,
    /// Opcodes of MAC control.
    MacControl,
    /// Next protocols of VXLAN-GPE and NSH.
    Gpe,
    /// Packet types of OSPF.
    Ospf,
    /// Opcodes of InfiniBand's base transport header.
    Bth,
    /// Opcodes of connectivity fault management.
    Cfm,
    /// Types of SCTP's chunks.
    Sctp,
    /// Types of GTP-U's extension headers.
    GtpExtension,
    /// The first header of a frame.
    Link,
}

/// How the length of a header is determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// The sum of its fields.
    Fields,
    /// The number in `field` times `unit` octets, plus `plus` octets.
    Counted { field: &'static str, unit: usize, plus: usize },
    /// Its fields, then its options up to the end of the list.
    List,
}

/// The octets that a header's checksum covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sum {
    No,
    /// The header and everything after it.
    Packet,
    /// The same octets, with SCTP's 32-bit CRC (RFC 9260 §6.8).
    Crc32c,
    /// The same octets, and a pseudo-header with this protocol.
    Pseudo(u8),
    /// Everything from the preceding IP header on, as a CRC in the packet's last 4 octets
    /// (InfiniBand annex A17).
    Icrc,
}

/// One protocol header, or one payload layer.
#[derive(Debug)]
pub struct HeaderDef {
    /// Name in the packet syntax: `ipv4`.
    pub name: &'static str,
    /// Other spellings that the syntax accepts: `ip`.
    pub aliases: &'static [&'static str],
    /// Title in the reference: "Internet Protocol version 4 (RFC 791)".
    pub title: &'static str,
    /// Length of the fixed part, octets.
    pub min_len: usize,
    pub fields: &'static [FieldDef],
    /// Names of headers that may follow, in addition to those that [`HeaderDef::chooses`] allows;
    /// payload always may.
    pub(crate) carries: &'static [&'static str],
    pub(crate) proto: Proto,
    /// The numbers (EtherType, IP protocol, port ...) by which a preceding header identifies this one.
    pub(crate) chosen_by: &'static [(Space, u64)],
    /// The name space of its field of kind [`FieldKind::Next`].
    pub(crate) chooses: Option<Space>,
    /// Whether the next header is recognized by its first octet.
    pub(crate) peeks: bool,
    /// The header that always follows, if any.
    pub(crate) follows: Option<&'static str>,
    pub(crate) extent: Extent,
    /// Its 16-bit length field, and the offset in the header from which the length counts.
    pub(crate) counts: Option<(&'static str, usize)>,
    pub(crate) sum: Sum,
    /// Default options, as text.
    pub(crate) usual: &'static str,
    /// Whether octets can be this header, once a number has identified them as such.
    pub(crate) looks: fn(&[u8]) -> bool,
}

/// Defaults for a row; each row of the table states only its differences.
pub(crate) const PLAIN: HeaderDef = HeaderDef {
    name: "",
    aliases: &[],
    title: "",
    min_len: 0,
    fields: &[],
    carries: &[],
    proto: Proto::Plain,
    chosen_by: &[],
    chooses: None,
    peeks: false,
    follows: None,
    extent: Extent::Fields,
    counts: None,
    sum: Sum::No,
    usual: "",
    looks: |_| true,
};

/// Protocols that need code in addition to the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proto {
    /// Fully described by its row.
    Plain,
    Eth,
    Vlan,
    Mpls,
    Arp,
    Ipv4,
    Ipv6,
    HopOpts,
    DstOpts,
    Routing,
    Fragment,
    Gre,
    Vxlan,
    Gtpu,
    Udp,
    Tcp,
    Icmp,
    Icmpv6,
    Igmp,
    Text,
    Http,
    Sip,
    Mqtt,
    Snmp,
    Hex,
    Pattern,
    Random,
    Zeros,
    Inc,
    File,
    Raw,
    Truncate,
}

/// One field of a header.
#[derive(Debug)]
pub struct FieldDef {
    pub name: &'static str,
    pub aliases: &'static [&'static str],
    /// Offset of the most significant bit from the start of the header; valid only if the field is
    /// always present.
    pub bit: usize,
    /// Width in bits, 1 to 128; 0 for options, whose width varies.
    pub bits: usize,
    pub kind: FieldKind,
    /// Value of a field that is neither set nor filled in.
    pub default: u128,
    pub presence: Presence,
    /// The unit of the field's number, such as `octets`; empty if it has none.
    pub unit: &'static str,
    pub doc: &'static str,
}

/// Whether and where a header has a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    Always,
    /// In the octets in front of the header: the TPID of a VLAN tag.
    Before,
    /// After the fixed part, in the table's order, if the header's first octet has one of the bits
    /// of `mask`. Setting the field sets `sets`.
    Flag {
        mask: u8,
        sets: u8,
    },
    /// After the fixed part, if the first octet is one of these.
    FirstOctet(&'static [u8]),
    /// After the fixed part and the preceding optional fields.
    After,
    /// The last octets of the packet.
    End,
}

#[derive(Debug)]
pub enum FieldKind {
    /// A number, decimal or 0x hex; also a name from the list.
    Number(&'static [(&'static str, u64)]),
    Mac,
    Ipv4,
    Ipv6,
    /// Letters or names joined by `|`, one bit each.
    Flags(&'static [(&'static str, u64)]),
    /// The number of the next layer, filled in unless set.
    Next(&'static [(&'static str, u64)]),
    /// Filled in from the following octets unless set.
    Length,
    /// Filled in over the covered octets unless set; `bad` makes it deliberately wrong.
    Checksum,
    /// A list in brackets; padded.
    Options(OptionSet),
}

/// All headers, in the order of the reference.
pub fn headers() -> &'static [&'static HeaderDef] {
    HEADERS
}

/// The payload layers, in the order of the reference.
pub fn payloads() -> &'static [&'static HeaderDef] {
    PAYLOADS
}

/// Finds a header or payload layer by name or alias, ignoring case.
pub(crate) fn find(name: &str) -> Option<&'static HeaderDef> {
    HEADERS.iter().chain(PAYLOADS).copied().find(|h| named(name, h.name, h.aliases))
}

fn named(text: &str, name: &str, aliases: &[&str]) -> bool {
    text.eq_ignore_ascii_case(name) || aliases.iter().any(|a| text.eq_ignore_ascii_case(a))
}

impl HeaderDef {
    /// Finds a field by name or alias. Returns its index and definition.
    pub(crate) fn field(&self, name: &str) -> Option<(usize, &'static FieldDef)> {
        self.fields.iter().enumerate().find(|(_, f)| named(name, f.name, f.aliases))
    }

    /// Whether it produces payload and has no fields.
    pub fn is_payload(&self) -> bool {
        use Proto::*;
        let messages = matches!(self.proto, Http | Sip | Mqtt | Snmp);
        messages
            || matches!(
                self.proto,
                Text | Hex | Pattern | Random | Zeros | Inc | File | Raw | Truncate
            )
    }

    /// Names of the headers that may follow; payload always may.
    pub fn carries(&self) -> impl Iterator<Item = &'static str> {
        let chosen = HEADERS.iter().filter(|other| self.number_of(other).is_some());
        let named = |name: &&str| !self.carries.contains(name);
        self.carries.iter().copied().chain(chosen.map(|other| other.name).filter(named))
    }

    /// Whether `next` may follow.
    pub(crate) fn may_carry(&self, next: &HeaderDef) -> bool {
        self.carries.contains(&next.name) || self.number_of(next).is_some()
    }

    /// The number by which it identifies `next`, if `next` has one in its name space.
    pub(crate) fn number_of(&self, next: &HeaderDef) -> Option<u64> {
        let space = self.chooses?;
        next.chosen_by.iter().find(|(of, _)| *of == space).map(|(_, number)| *number)
    }

    /// The header with number `number`; if several have it, it must match the octets `after`.
    pub(crate) fn chosen(&self, number: u64, after: &[u8]) -> Option<&'static HeaderDef> {
        let space = self.chooses?;
        let mut named =
            HEADERS.iter().copied().filter(|next| next.chosen_by.contains(&(space, number)));
        let fits = |next: &&HeaderDef| after.len() >= next.min_len && (next.looks)(after);
        named.clone().find(fits).or_else(|| named.next())
    }

    /// Length of the optional fields in a header with this first octet.
    pub(crate) fn optional_len(&self, first: u8) -> usize {
        self.fields
            .iter()
            .filter(|f| f.is_optional() && f.is_present(first))
            .map(|f| f.bits)
            .sum::<usize>()
            / 8
    }

    /// The first bit of `field` in a header at octet `offset` with this first octet; `None` if the
    /// header lacks the field.
    pub(crate) fn bit_of(&self, field: &FieldDef, offset: usize, first: u8) -> Option<usize> {
        match field.presence {
            _ if field.bits == 0 => None,
            Presence::Always => Some(offset * 8 + field.bit),
            Presence::Before => (offset * 8).checked_sub(field.bits),
            Presence::End => None,
            _ if !field.is_present(first) => None,
            _ => {
                let before = self.fields.iter().take_while(|f| !std::ptr::eq(*f, field));
                let before: usize =
                    before.filter(|f| f.is_optional() && f.is_present(first)).map(|f| f.bits).sum();
                Some((offset + self.min_len) * 8 + before)
            }
        }
    }

    /// The list of options in a header with this first octet: index and form.
    pub(crate) fn list(&self, first: u8) -> Option<(usize, OptionSet)> {
        self.fields.iter().enumerate().find_map(|(i, field)| match field.kind {
            FieldKind::Options(set) if field.is_present(first) => Some((i, set)),
            _ => None,
        })
    }

    /// Length of the list of options at the start of `octets`, in a header with this first octet.
    pub(crate) fn list_len(&self, first: u8, octets: &[u8]) -> usize {
        match self.list(first) {
            Some((_, OptionSet::Tlv(tlv))) => tlv.list_len(octets),
            _ => 0,
        }
    }

    /// The offset of the 16-bit length field in a header with this first octet, and the offset from
    /// which that length counts.
    pub(crate) fn counting(&self, first: u8) -> Option<(usize, usize)> {
        let (name, from) = self.counts?;
        let (_, field) = self.field(name).expect("the table has the field");
        Some((self.bit_of(field, 0, first)? / 8, from))
    }

    /// The octet offset of a field that consists of whole octets.
    ///
    /// # Panics
    /// If the row lacks the field.
    pub(crate) fn octet_of(&self, name: &str) -> usize {
        self.field(name).expect("the table has the field").1.bit / 8
    }

    /// Number of octets that the header has at the end of its packet.
    pub(crate) fn end_octets(&self) -> usize {
        self.fields.iter().filter(|f| f.presence == Presence::End).map(|f| f.bits / 8).sum()
    }

    /// All field names, for hints.
    pub(crate) fn field_names(&self) -> impl Iterator<Item = &'static str> {
        self.fields.iter().flat_map(|f| std::iter::once(f.name).chain(f.aliases.iter().copied()))
    }
}

impl FieldDef {
    fn is_optional(&self) -> bool {
        matches!(self.presence, Presence::Flag { .. } | Presence::FirstOctet(_) | Presence::After)
    }

    pub(crate) fn is_present(&self, first: u8) -> bool {
        match self.presence {
            Presence::Always | Presence::Before | Presence::After | Presence::End => true,
            Presence::Flag { mask, .. } => first & mask != 0,
            Presence::FirstOctet(list) => list.contains(&first),
        }
    }

    /// The largest value that fits.
    pub fn max(&self) -> u128 {
        if self.bits >= 128 { u128::MAX } else { (1 << self.bits) - 1 }
    }
}

impl FieldKind {
    /// Parses a value: a number (decimal or 0x hex) or a form of the field's kind.
    ///
    /// # Errors
    /// Invalid text; the error has the expected form, in words.
    pub fn parse(&self, text: &str) -> Result<u128, String> {
        if let Some(n) = number(text) {
            return Ok(n);
        }
        let name = |names: &[(&str, u64)]| {
            names.iter().find(|(n, _)| n.eq_ignore_ascii_case(text)).map(|&(_, v)| u128::from(v))
        };
        match self {
            Self::Number(names) | Self::Next(names) => name(names).ok_or_else(|| match names {
                [] => "a number".into(),
                names => format!("a number or one of {}", list(names.iter().map(|n| n.0))),
            }),
            Self::Mac => mac(text).ok_or_else(|| "a MAC address such as 02:00:00:00:00:01".into()),
            Self::Ipv4 => match text.parse::<Ipv4Addr>() {
                Ok(a) => Ok(a.to_bits().into()),
                Err(_) => Err("an IPv4 address such as 198.18.0.1".into()),
            },
            Self::Ipv6 => match text.parse::<Ipv6Addr>() {
                Ok(a) => Ok(a.to_bits()),
                Err(_) => Err("an IPv6 address such as 2001:2::1".into()),
            },
            Self::Flags(names) => flags(names, text).ok_or_else(|| {
                format!("flags joined by |, of {}", list(names.iter().map(|n| n.0)))
            }),
            Self::Length => Err("a number or auto".into()),
            Self::Checksum => Err("a number, bad or auto".into()),
            Self::Options(_) => Err("a list of options in brackets".into()),
        }
    }

    /// The text form, which [`FieldKind::parse`] reverses.
    pub fn format(&self, value: u128) -> String {
        match self {
            Self::Number(names) | Self::Next(names) => {
                match names.iter().find(|n| u128::from(n.1) == value) {
                    Some((name, _)) => (*name).into(),
                    None => value.to_string(),
                }
            }
            Self::Mac => {
                let o = &value.to_be_bytes()[10..];
                format!(
                    "{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}",
                    o[0], o[1], o[2], o[3], o[4], o[5]
                )
            }
            Self::Ipv4 => Ipv4Addr::from_bits(value as u32).to_string(),
            Self::Ipv6 => Ipv6Addr::from_bits(value).to_string(),
            Self::Flags(names) => {
                let mut left = value;
                let mut text = Vec::new();
                for &(name, bit) in *names {
                    if left & u128::from(bit) != 0 {
                        left &= !u128::from(bit);
                        text.push(name);
                    }
                }
                if left != 0 || text.is_empty() { format!("{value:#x}") } else { text.join("|") }
            }
            Self::Checksum => format!("{value:#06x}"),
            Self::Length | Self::Options(_) => value.to_string(),
        }
    }
}

/// A list in words: `a, b or c`.
pub(crate) fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => names.concat(),
    }
}

/// Parses a decimal or 0x hex number.
pub(crate) fn number(text: &str) -> Option<u128> {
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let digits = hex.unwrap_or(text);
    // from_str_radix would accept a sign.
    if !digits.starts_with(|c: char| c.is_ascii_hexdigit()) {
        return None;
    }
    u128::from_str_radix(digits, if hex.is_some() { 16 } else { 10 }).ok()
}

fn mac(text: &str) -> Option<u128> {
    let mut value = 0;
    let mut count = 0;
    for part in text.split([':', '-']) {
        if part.len() > 2 || !part.starts_with(|c: char| c.is_ascii_hexdigit()) {
            return None;
        }
        value = value << 8 | u128::from_str_radix(part, 16).ok()?;
        count += 1;
        if count > 6 {
            return None;
        }
    }
    (count == 6).then_some(value)
}

fn flags(names: &[(&str, u64)], text: &str) -> Option<u128> {
    let find =
        |t: &str| names.iter().find(|n| n.0.eq_ignore_ascii_case(t)).map(|n| u128::from(n.1));
    let mut value = 0;
    for part in text.split(['|', '+']).map(str::trim) {
        value |= match find(part) {
            Some(bits) => bits,
            None if part.is_empty() => return None,
            None => part.chars().try_fold(0, |v, c| Some(v | find(c.encode_utf8(&mut [0; 4]))?))?,
        };
    }
    Some(value)
}
