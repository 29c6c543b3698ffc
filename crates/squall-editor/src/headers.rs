//! The table of headers, in the form that editors need.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use squall_wire::{FieldDef, FieldKind, HeaderDef, OptionSet, Presence, option_usage};

use super::Number;

/// A header, or a layer of payload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HeaderInfo {
    /// Its name in packet text: `ipv4`.
    pub name: String,
    pub aliases: Vec<String>,
    /// `Internet Protocol version 4 (RFC 791)`; for payload, how it is written.
    pub title: String,
    /// Layer of the OSI model, 2 to 7.
    pub layer: u8,
    /// Makes payload: its content is in parentheses, and it has no fields.
    pub payload: bool,
    /// Can be the first layer.
    pub first: bool,
    pub fields: Vec<FieldInfo>,
    /// Layers that can follow it.
    pub follows: Vec<String>,
}

/// A field of a header.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FieldInfo {
    pub name: String,
    pub aliases: Vec<String>,
    /// A short description.
    pub title: String,
    /// Width in bits; 0 if it varies (options).
    pub bits: usize,
    /// Offset from the start of the header; absent if it is not fixed.
    pub bit_offset: Option<usize>,
    /// `int`, `mac`, `ipv4`, `ipv6`, `flags`, `hex` or `options`.
    pub kind: String,
    /// Default value, as in packet text; empty if the field is filled in, or optional.
    pub default: String,
    pub min: Number,
    pub max: Number,
    /// Unit of the number; empty if it has none.
    pub unit: String,
    pub help: String,
    /// Lengths, checksums, numbers of the next header: filled in unless set. Their text is `auto`.
    pub auto: bool,
    /// Absent unless it is set.
    pub optional: bool,
    /// Names for numbers; for flags, one per bit, joined by `|`; for options, the possible elements
    /// of the list.
    pub names: Vec<NameInfo>,
    /// Fields that share bits with this one: only one of them can be set.
    pub shares: Vec<String>,
}

/// A name for a number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NameInfo {
    pub name: String,
    pub value: u64,
    /// For an option, its description.
    pub help: String,
}

/// All headers in the order of the reference, followed by the layers that are payload.
///
/// ```
/// let headers = squall_editor::headers();
/// let ipv4 = headers.iter().find(|header| header.name == "ipv4").unwrap();
/// let ttl = ipv4.fields.iter().find(|field| field.name == "ttl").unwrap();
/// assert_eq!((ttl.bits, ttl.default.as_str(), ttl.unit.as_str()), (8, "64", "hops"));
/// assert!(ipv4.follows.contains(&"udp".to_string()));
/// ```
pub fn headers() -> Vec<HeaderInfo> {
    squall_wire::headers()
        .iter()
        .chain(squall_wire::payloads())
        .map(|header| info(header))
        .collect()
}

fn info(header: &HeaderDef) -> HeaderInfo {
    let payload = header.is_payload();
    let payloads = squall_wire::payloads().iter().map(|p| p.name).filter(|name| *name != "raw");
    let carries = header.carries();
    HeaderInfo {
        name: header.name.into(),
        aliases: texts(header.aliases),
        title: header.title.into(),
        layer: layer(header),
        payload,
        first: matches!(header.name, "eth" | "raw"),
        fields: header
            .fields
            .iter()
            .enumerate()
            .map(|(i, field)| field_info(header, i, field))
            .collect(),
        follows: if header.name == "truncate" {
            Vec::new()
        } else {
            carries.chain(payloads).map(String::from).collect()
        },
    }
}

fn layer(header: &HeaderDef) -> u8 {
    match header.name {
        "eth" | "vlan" | "mpls" => 2,
        "arp" | "ipv4" | "ipv6" | "hopopts" | "dstopts" | "routing" | "fragment" | "icmp"
        | "icmpv6" | "igmp" => 3,
        "udp" | "tcp" => 4,
        // Tunnels carry layers 2 and 3, so they are shown above them.
        "gre" | "vxlan" | "gtpu" => 5,
        _ => 7,
    }
}

fn field_info(header: &HeaderDef, i: usize, field: &FieldDef) -> FieldInfo {
    let auto = is_auto(field);
    let optional = matches!(field.presence, Presence::Flag { .. } | Presence::FirstOctet(_));
    let options = matches!(field.kind, FieldKind::Options(_));
    let always = field.presence == Presence::Always && !options;
    FieldInfo {
        name: field.name.into(),
        aliases: texts(field.aliases),
        title: title(field).into(),
        bits: field.bits,
        bit_offset: always.then_some(field.bit),
        kind: kind(field).into(),
        default: if auto || optional || options {
            String::new()
        } else {
            field.kind.format(field.default)
        },
        min: Number::Small(0),
        max: if options { Number::Small(0) } else { field.max().into() },
        unit: field.unit.into(),
        help: field.doc.into(),
        auto,
        optional,
        names: names(field),
        shares: if options {
            Vec::new()
        } else {
            header.shares_bits(i).map(String::from).collect()
        },
    }
}

pub(super) fn is_auto(field: &FieldDef) -> bool {
    matches!(field.kind, FieldKind::Length | FieldKind::Checksum | FieldKind::Next(_))
}

/// The first part of the field's description.
pub(super) fn title(field: &FieldDef) -> &'static str {
    field.doc.split([',', ';', '(', ':']).next().unwrap_or_default().trim()
}

pub(super) fn kind(field: &FieldDef) -> &'static str {
    match field.kind {
        FieldKind::Number(_) | FieldKind::Next(_) | FieldKind::Length => "int",
        FieldKind::Mac => "mac",
        FieldKind::Ipv4 => "ipv4",
        FieldKind::Ipv6 => "ipv6",
        FieldKind::Flags(_) => "flags",
        FieldKind::Checksum => "hex",
        FieldKind::Options(_) => "options",
    }
}

fn names(field: &FieldDef) -> Vec<NameInfo> {
    let plain =
        |&(name, value): &(&str, u64)| NameInfo { name: name.into(), value, help: String::new() };
    match field.kind {
        FieldKind::Number(names) | FieldKind::Next(names) | FieldKind::Flags(names) => {
            names.iter().map(plain).collect()
        }
        FieldKind::Options(set) => options(set),
        _ => Vec::new(),
    }
}

fn options(set: OptionSet) -> Vec<NameInfo> {
    set.defs()
        .iter()
        .map(|def| NameInfo {
            name: option_usage(def),
            value: def.code.into(),
            help: def.doc.into(),
        })
        .collect()
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_header_is_listed_with_its_followers_and_valid_defaults() {
        let all = headers();
        assert_eq!(all.len(), squall_wire::headers().len() + squall_wire::payloads().len());
        for header in &all {
            for name in &header.follows {
                assert!(
                    all.iter().any(|other| other.name == *name),
                    "{name} behind {}",
                    header.name
                );
            }
            for field in header
                .fields
                .iter()
                .filter(|field| !field.default.is_empty() && header.name == "eth")
            {
                let text = format!("{}({}={})", header.name, field.name, field.default);
                squall_wire::Packet::parse(&text).unwrap();
            }
            assert!(
                header.fields.iter().all(|field| !field.title.is_empty() && !field.help.is_empty())
            );
        }
    }

    #[test]
    fn fields_that_share_bits_are_listed() {
        let all = headers();
        let ipv4 = all.iter().find(|header| header.name == "ipv4").unwrap();
        let field = |name: &str| ipv4.fields.iter().find(|field| field.name == name).unwrap();
        assert_eq!(field("tos").shares, ["dscp", "ecn"]);
        assert_eq!(field("dscp").shares, ["tos"]);
        assert!(field("ttl").shares.is_empty() && field("checksum").auto && !field("ttl").auto);
        assert_eq!(
            serde_json::to_value(&field("src").max).unwrap(),
            serde_json::json!(0xffff_ffff_u64)
        );
    }
}
