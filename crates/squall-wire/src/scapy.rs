//! Packets in scapy's notation: `Ether()/IP(dst="48.0.0.1")/UDP(dport=53)/b"x"`, the output of
//! `command()`, and the output of `repr()` (`<Ether  dst=... |<IP  ... |>>`).
//!
//! Supports the subset of Python that such text needs: names of layers, numbers, strings, octets,
//! lists. Omitted fields have scapy's defaults, except for addresses: scapy derives them from its
//! host's routes, this parser from this crate's defaults.

use std::ops::Range;

use squall_units::nearest;

use crate::header::{FieldDef, FieldKind, HeaderDef, find, list};
use crate::options::{OptionForm, OptionSet, written};
use crate::packet::{Arg, Content, Layer, Opt, Packet, SyntaxError, Value};
use crate::syntax::{MAX_PAYLOAD, follows};

/// The parsed packet.
#[derive(Clone, Debug, PartialEq)]
pub struct Scapy {
    pub packet: Packet,
    /// Differences from scapy's packet.
    pub notes: Vec<String>,
}

/// Maximum length of the text, in octets.
const MAX_TEXT: usize = 1 << 18;
const MAX_LAYERS: usize = 64;
/// Maximum depth of nested lists.
const MAX_DEPTH: usize = 4;

/// Parses a packet.
///
/// ```
/// let read = squall_wire::scapy::parse(r#"Ether()/IP(src="10.0.0.1", dst="48.0.0.1")/UDP(dport=53)/b"x""#).unwrap();
/// assert_eq!(
///     read.packet.to_string(),
///     "eth/ipv4(id=1,src=10.0.0.1,dst=48.0.0.1)/udp(sport=53,dport=53)/text(\"x\")"
/// );
/// let repr = "<IP  ttl=3 dst=48.0.0.1 |<TCP  dport=http flags=SA |<Raw  load='GET' |>>>";
/// assert!(squall_wire::scapy::parse(repr).unwrap().packet.to_string().ends_with("flags=S|A)/text(\"GET\")"));
/// let error = squall_wire::scapy::parse("Ether()/DNS()").unwrap_err();
/// assert_eq!(error.at, 8..11);
/// ```
///
/// # Errors
/// The range of the error, the text there, the expected form and a suggestion.
pub fn parse(text: &str) -> Result<Scapy, SyntaxError> {
    let mut parser = Parser { text, pos: 0, layers: Vec::new(), notes: Vec::new() };
    if text.len() > MAX_TEXT {
        let found = format!("{} octets", text.len());
        return Err(error(
            MAX_TEXT..text.len(),
            found,
            "at most 256 KiB of text",
            "try the octets as hex",
        ));
    }
    parser.whole()?;
    parser.finish()
}

/// A class in scapy.
struct Class {
    names: &'static [&'static str],
    native: &'static str,
    /// Scapy's field names, each with the table's name; fields with equal names or aliases are left
    /// out.
    fields: &'static [(&'static str, &'static str)],
    /// Values of fields that are not set; the flag: applies only if no following layer identifies
    /// itself.
    defaults: &'static [(&'static str, u128, bool)],
}

/// A class whose fields have the table's names.
macro_rules! plain {
    ($name:literal, $native:literal, [$($default:tt),* $(,)?] $(,)?) => {
        Class { names: &[$name], native: $native, fields: &[], defaults: &[$($default),*] }
    };
}

static CLASSES: &[Class] = &[
    Class {
        names: &["Ether"],
        native: "eth",
        fields: &[("dst", "dst"), ("src", "src"), ("type", "type")],
        defaults: &[("type", 0x9000, true)],
    },
    Class { names: &["Dot1Q"], native: "vlan", fields: TAG, defaults: &[("type", 0, true)] },
    Class { names: &["Dot1AD"], native: "vlan", fields: TAG, defaults: &[("type", 0, true)] },
    Class {
        names: &["MPLS"],
        native: "mpls",
        fields: &[("label", "label"), ("cos", "tc"), ("s", "s"), ("ttl", "ttl")],
        defaults: &[("label", 3, false), ("ttl", 0, false)],
    },
    Class {
        names: &["ARP"],
        native: "arp",
        fields: &[
            ("hwtype", "htype"),
            ("ptype", "ptype"),
            ("hwlen", "hlen"),
            ("plen", "plen"),
            ("op", "op"),
            ("hwsrc", "sha"),
            ("psrc", "spa"),
            ("hwdst", "tha"),
            ("pdst", "tpa"),
        ],
        defaults: &[],
    },
    Class {
        names: &["IP", "IPerror"],
        native: "ipv4",
        fields: &[
            ("version", "version"),
            ("ihl", "ihl"),
            ("tos", "tos"),
            ("len", "length"),
            ("id", "id"),
            ("flags", "flags"),
            ("frag", "frag"),
            ("ttl", "ttl"),
            ("proto", "protocol"),
            ("chksum", "checksum"),
            ("src", "src"),
            ("dst", "dst"),
            ("options", "options"),
        ],
        defaults: &[("id", 1, false), ("protocol", 0, true)],
    },
    Class {
        names: &["IPv6", "IPerror6"],
        native: "ipv6",
        fields: &[
            ("version", "version"),
            ("tc", "tc"),
            ("fl", "flow_label"),
            ("plen", "length"),
            ("nh", "next"),
            ("hlim", "hop_limit"),
            ("src", "src"),
            ("dst", "dst"),
        ],
        defaults: &[("next", 59, true)],
    },
    Class {
        names: &["IPv6ExtHdrHopByHop"],
        native: "hopopts",
        fields: &[("nh", "next"), ("len", "length"), ("options", "options")],
        defaults: &[("next", 59, true)],
    },
    Class {
        names: &["IPv6ExtHdrDestOpt"],
        native: "dstopts",
        fields: &[("nh", "next"), ("len", "length"), ("options", "options")],
        defaults: &[("next", 59, true)],
    },
    Class {
        names: &["IPv6ExtHdrFragment"],
        native: "fragment",
        fields: &[
            ("nh", "next"),
            ("res1", "reserved"),
            ("offset", "offset"),
            ("m", "m"),
            ("id", "id"),
        ],
        defaults: &[("next", 59, true)],
    },
    Class {
        names: &["GRE"],
        native: "gre",
        fields: &[
            ("chksum_present", "c"),
            ("key_present", "k"),
            ("seqnum_present", "s"),
            ("version", "version"),
            ("proto", "type"),
            ("chksum", "checksum"),
            ("offset", "reserved1"),
            ("key", "key"),
            ("sequence_number", "seq"),
            // Scapy's spelling.
            ("seqence_number", "seq"),
        ],
        defaults: &[("type", 0, true)],
    },
    Class {
        names: &["VXLAN"],
        native: "vxlan",
        fields: &[("flags", "flags"), ("vni", "vni")],
        defaults: &[("vni", 0, false)],
    },
    Class {
        names: &["GTP_U_Header", "GTPHeader"],
        native: "gtpu",
        fields: &[
            ("version", "version"),
            ("PT", "pt"),
            ("E", "e"),
            ("S", "s"),
            ("PN", "pn"),
            ("gtp_type", "type"),
            ("length", "length"),
            ("teid", "teid"),
            ("seq", "seq"),
            ("npdu", "npdu"),
            ("next_ex", "next_ext"),
        ],
        defaults: &[("teid", 0, false)],
    },
    Class {
        names: &["UDP", "UDPerror"],
        native: "udp",
        fields: &[
            ("sport", "sport"),
            ("dport", "dport"),
            ("len", "length"),
            ("chksum", "checksum"),
        ],
        defaults: &[("sport", 53, true), ("dport", 53, true)],
    },
    Class {
        names: &["TCP", "TCPerror"],
        native: "tcp",
        fields: &[
            ("sport", "sport"),
            ("dport", "dport"),
            ("seq", "seq"),
            ("ack", "ack"),
            ("dataofs", "data_offset"),
            ("reserved", "reserved"),
            ("flags", "flags"),
            ("window", "window"),
            ("chksum", "checksum"),
            ("urgptr", "urgent"),
            ("options", "options"),
        ],
        defaults: &[("sport", 20, false), ("dport", 80, false)],
    },
    Class {
        names: &["ICMP", "ICMPerror"],
        native: "icmp",
        fields: &[
            ("type", "type"),
            ("code", "code"),
            ("chksum", "checksum"),
            ("id", "id"),
            ("seq", "seq"),
            ("gw", "gateway"),
            ("ptr", "pointer"),
            ("nexthopmtu", "mtu"),
        ],
        defaults: &[],
    },
    Class {
        names: &["ICMPv6EchoRequest"],
        native: "icmpv6",
        fields: ECHO,
        defaults: &[("type", 128, false)],
    },
    Class {
        names: &["ICMPv6EchoReply"],
        native: "icmpv6",
        fields: ECHO,
        defaults: &[("type", 129, false)],
    },
    Class {
        names: &["ICMPv6ND_NS"],
        native: "icmpv6",
        fields: &[("type", "type"), ("code", "code"), ("cksum", "checksum"), ("tgt", "target")],
        defaults: &[("type", 135, false), ("target", 0, false)],
    },
    Class {
        names: &["IGMP"],
        native: "igmp",
        fields: &[
            ("type", "type"),
            ("mrcode", "max_resp"),
            ("chksum", "checksum"),
            ("gaddr", "group"),
        ],
        defaults: &[("type", 0x11, false), ("max_resp", 20, false), ("group", 0, false)],
    },
    plain!("ESP", "esp", [("spi", 1, false), ("seq", 0, false)]),
    plain!("AH", "ah", [("spi", 1, false), ("seq", 0, false), ("next", 0, true)]),
    plain!("PPPoE", "pppoe", [("session", 0, false)]),
    plain!("PPPoED", "pppoed", [("session", 0, false)]),
    plain!("PPP", "ppp", []),
    plain!("GENEVE", "geneve", [("vni", 0, false), ("type", 0, true)]),
    plain!("ERSPAN_II", "erspan", [("session", 0, false)]),
    plain!("ERSPAN_III", "erspan3", [("session", 0, false), ("p", 0, false)]),
    plain!("NSH", "nsh", [("spi", 0, false), ("next", 3, true)]),
    plain!("LLC", "llc", [("dsap", 0, true), ("ssap", 0, true), ("control", 0, false)]),
    plain!("Dot3", "dot3", []),
    plain!("SNAP", "snap", [("type", 0, true)]),
    plain!(
        "BFD",
        "bfd",
        [
            ("my", 0x1111_1111, false),
            ("your", 0x2222_2222, false),
            ("min_tx", 1_000_000_000, false),
            ("min_rx", 1_000_000_000, false),
            ("echo_rx", 1_000_000_000, false),
        ],
    ),
    plain!("OSPF_Hdr", "ospf", [("router", 0x0101_0101, false)]),
    Class {
        fields: &[("router", "dr"), ("backup", "bdr")],
        ..plain!("OSPF_Hello", "ospf_hello", [("options", 0, false)])
    },
    plain!("RTP", "rtp", []),
    plain!("BTH", "bth", [("opcode", 0, true), ("dqpn", 0, false)]),
    plain!("AETH", "aeth", []),
    plain!("SCTP", "sctp", [("sport", 0, false), ("dport", 0, false), ("tag", 0, false)]),
    plain!(
        "SCTPChunkInit",
        "sctp_init",
        [("tag", 0, false), ("a_rwnd", 0, false), ("out", 0, false), ("in", 0, false)],
    ),
    plain!("SCTPChunkSACK", "sctp_sack", [("a_rwnd", 0, false)]),
    plain!("GTPPDUSessionContainer", "pdu_session", [("qfi", 0, false)]),
];

impl Class {
    fn header(&self) -> &'static HeaderDef {
        find(self.native).expect("a class is one of our headers")
    }

    /// The table's field for scapy's field `name`.
    fn field(&self, name: &str) -> Option<(usize, &'static FieldDef)> {
        match self.fields.iter().find(|(scapy, _)| *scapy == name) {
            Some((_, native)) => self.header().field(native),
            None if self.fields.len() > 2 => None,
            None => self.header().field(name),
        }
    }

    fn field_names(&self) -> Vec<&'static str> {
        match self.fields {
            [] => self.header().fields.iter().map(|field| field.name).collect(),
            fields => fields.iter().map(|field| field.0).collect(),
        }
    }
}

/// Fields that the table lacks because they are always 0.
const RESERVED: &[&str] = &[
    "res",
    "res2",
    "reserved",
    "reserved1",
    "reserved2",
    "routing_present",
    "strict_route_source",
    "recursion_control",
    "flags",
    "length",
];

const TAG: &[(&str, &str)] =
    &[("prio", "pcp"), ("id", "dei"), ("dei", "dei"), ("vlan", "id"), ("type", "type")];

const ECHO: &[(&str, &str)] =
    &[("type", "type"), ("code", "code"), ("cksum", "checksum"), ("id", "id"), ("seq", "seq")];

/// Words that scapy prints for numbers for which the table has other words.
const WORDS: &[(&str, &str, u128)] = &[
    ("arp.op", "who-has", 1),
    ("arp.op", "is-at", 2),
    ("arp.htype", "ethernet (10mb)", 1),
    ("arp.htype", "ether", 1),
    ("icmp.type", "dest-unreach", 3),
    ("icmp.code", "network-unreachable", 0),
    ("icmp.code", "host-unreachable", 1),
    ("icmp.code", "protocol-unreachable", 2),
    ("icmp.code", "port-unreachable", 3),
    ("icmp.code", "fragmentation-needed", 4),
    ("type", "n_802_1q", 0x8100),
    ("type", "n_802_1ad", 0x88a8),
    ("type", "802_1ad", 0x88a8),
    ("icmpv6.type", "neighbor solicitation", 135),
    ("icmpv6.type", "echo request", 128),
    ("icmpv6.type", "echo reply", 129),
    ("next", "hop-by-hop option header", 0),
    ("next", "routing header", 43),
    ("next", "fragment header", 44),
    ("next", "no next header", 59),
    ("next", "destination option header", 60),
    // Scapy's VXLAN has a next protocol, which RFC 7348 lacks.
    ("vxlan.flags", "nextprotocol+instance", 8),
    ("vxlan.flags", "instance", 8),
    ("gtpu.type", "g_pdu", 255),
    ("port", "echo", 7),
    ("port", "discard", 9),
    ("port", "ftp_data", 20),
    ("port", "ftp", 21),
    ("port", "ssh", 22),
    ("port", "telnet", 23),
    ("port", "smtp", 25),
    ("port", "domain", 53),
    ("port", "bootps", 67),
    ("port", "bootpc", 68),
    ("port", "tftp", 69),
    ("port", "http", 80),
    ("port", "pop3", 110),
    ("port", "ntp", 123),
    ("port", "imap2", 143),
    ("port", "snmp", 161),
    ("port", "bgp", 179),
    ("port", "https", 443),
    ("port", "isakmp", 500),
    ("port", "http_alt", 8080),
];

#[derive(Clone, Debug, PartialEq)]
enum Literal {
    None,
    Number(u128),
    Text(String),
    Octets(Vec<u8>),
    List(Vec<Literal>),
}

struct Parser<'a> {
    text: &'a str,
    pos: usize,
    layers: Vec<(Layer, Range<usize>)>,
    notes: Vec<String>,
}

type Parsed<T> = Result<T, SyntaxError>;

fn error(
    at: Range<usize>,
    found: String,
    expected: impl Into<String>,
    hint: impl Into<String>,
) -> SyntaxError {
    SyntaxError { at, found, expected: expected.into(), hint: hint.into() }
}

impl Parser<'_> {
    fn whole(&mut self) -> Parsed<()> {
        self.skip_space();
        self.take_text(">>>");
        self.skip_space();
        let start = self.pos;
        let named = !self.name().is_empty();
        self.skip_space();
        // An assignment: `pkt = Ether()...`
        if !named || !self.take('=') {
            self.pos = start;
        }
        self.skip_space();
        if self.peek() == Some('<') {
            self.repr()?
        } else {
            self.sum(0)?
        }
        self.skip_space();
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.wrong_here(
                "/ and a layer, or the end",
                "one packet at a time: Ether()/IP()/UDP()",
            )),
        }
    }

    /// `layer/layer/...`
    fn sum(&mut self, depth: usize) -> Parsed<()> {
        loop {
            self.skip_space();
            let start = self.pos;
            match self.peek() {
                Some('(') if depth < MAX_DEPTH => {
                    self.pos += 1;
                    self.sum(depth + 1)?;
                    self.skip_space();
                    self.expect(')', "as in Ether()/IP()/(\"x\" * 100)")?;
                }
                Some('"' | '\'') => self.octets_layer(start)?,
                Some('b' | 'B')
                    if matches!(self.text.as_bytes().get(self.pos + 1), Some(b'"' | b'\'')) =>
                {
                    self.octets_layer(start)?;
                }
                _ if self.text[self.pos..].starts_with("bytes.fromhex(") => {
                    self.octets_layer(start)?
                }
                _ => self.layer()?,
            }
            self.skip_space();
            if !self.take('/') {
                return Ok(());
            }
        }
    }

    fn octets_layer(&mut self, start: usize) -> Parsed<()> {
        let literal = self.value(0)?;
        self.payload(&literal, start..self.pos)
    }

    /// `IP(dst="48.0.0.1", ttl=3)`
    fn layer(&mut self) -> Parsed<()> {
        let at = self.class_name();
        self.skip_space();
        if is_octets(&self.text[at.clone()]) {
            let start = at.start;
            self.expect('(', "as in Raw(load=b\"x\")")?;
            self.skip_space();
            let before = self.pos;
            if self.name() == "load" {
                self.skip_space();
                self.expect('=', "as in Raw(load=b\"x\")")?;
            } else {
                self.pos = before;
            }
            self.skip_space();
            let literal =
                if self.peek() == Some(')') { Literal::Octets(Vec::new()) } else { self.value(0)? };
            self.skip_space();
            self.expect(')', "as in Raw(load=b\"x\")")?;
            return self.payload(&literal, start..self.pos);
        }
        let class = self.class(at.clone())?;
        self.expect('(', "layers are written with parentheses: IP()")?;
        let (mut set, mut data) = (Vec::new(), None);
        loop {
            self.skip_space();
            if self.take(')') {
                break;
            }
            let name_at = self.range_of_name();
            self.skip_space();
            if name_at.is_empty() || !self.take('=') {
                let at = if name_at.is_empty() { self.pos..self.pos } else { name_at };
                return Err(self.wrong(at, "a field and =", "as in IP(dst=\"48.0.0.1\")"));
            }
            self.skip_space();
            let start = self.pos;
            let literal = self.value(0)?;
            if has_data(class, &self.text[name_at.clone()]) {
                data = Some((literal, start..self.pos));
            } else {
                self.field(class, name_at, &literal, start..self.pos, &mut set)?;
            }
            self.skip_space();
            if !self.take(',') && self.peek() != Some(')') {
                return Err(self.wrong_here(", or )", "as in IP(dst=\"48.0.0.1\", ttl=3)"));
            }
        }
        self.push(class, set, at)?;
        data.map_or(Ok(()), |(literal, at)| self.payload(&literal, at))
    }

    /// `<IP  ttl=3 |<UDP  dport=53 |>>`
    fn repr(&mut self) -> Parsed<()> {
        let mut open = 0;
        loop {
            self.skip_space();
            if !self.take('<') {
                break;
            }
            open += 1;
            let at = self.class_name();
            let octets = is_octets(&self.text[at.clone()]);
            let class = if octets { None } else { Some(self.class(at.clone())?) };
            let (mut set, mut load) = (Vec::new(), Literal::None);
            loop {
                self.skip_space();
                if self.take('|') {
                    break;
                }
                let name_at = self.range_of_name();
                if name_at.is_empty() || !self.take('=') {
                    return Err(self.wrong(
                        name_at,
                        "a field and =, or |",
                        "as repr() prints it: <IP  ttl=3 |>",
                    ));
                }
                let start = self.pos;
                let literal = match self.peek() {
                    Some('\'' | '"' | '[' | '(') => self.value(0)?,
                    Some('b')
                        if matches!(self.text.as_bytes().get(self.pos + 1), Some(b'"' | b'\'')) =>
                    {
                        self.value(0)?
                    }
                    _ => self.bare(),
                };
                match class {
                    Some(class) if !has_data(class, &self.text[name_at.clone()]) => {
                        self.field(class, name_at, &literal, start..self.pos, &mut set)?;
                    }
                    _ => load = literal,
                }
            }
            if let Some(class) = class {
                self.push(class, set, at.clone())?;
            }
            self.payload(&load, at)?;
        }
        for _ in 0..open {
            self.skip_space();
            self.expect('>', "one for each layer that repr() prints")?;
        }
        Ok(())
    }

    /// A value without quotes, which extends to the next field or the bar.
    fn bare(&mut self) -> Literal {
        let start = self.pos;
        let rest = &self.text[start..];
        let next_field = |at: usize| {
            let word = rest[at..].trim_start();
            let name =
                word.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(word.len());
            word.starts_with(['|', '>']) || name > 0 && word[name..].starts_with('=')
        };
        // Only the first blank of a run is examined, which keeps the time linear.
        let mut blank = false;
        let end = rest.char_indices().find(|&(at, c)| {
            let begins = !std::mem::replace(&mut blank, c.is_whitespace()) && blank;
            c == '|' || begins && next_field(at)
        });
        self.pos = start + end.map_or(rest.len(), |(at, _)| at);
        match rest[..self.pos - start].trim() {
            "None" | "" => Literal::None,
            text => number(text).map_or_else(|| Literal::Text(text.into()), Literal::Number),
        }
    }

    fn class(&self, at: Range<usize>) -> Parsed<&'static Class> {
        let name = &self.text[at.clone()];
        let all = || CLASSES.iter().flat_map(|class| class.names.iter().copied());
        CLASSES.iter().find(|class| class.names.contains(&name)).ok_or_else(|| {
            let hint = match nearest(name, all()) {
                Some(near) if near.eq_ignore_ascii_case(name) || name.len() > 3 => {
                    format!("did you mean {near}?")
                }
                _ => "try its octets: Raw(load=bytes.fromhex(\"...\")), or the whole packet as \
                      hex: bytes(packet).hex()"
                    .into(),
            };
            self.wrong(
                at,
                &format!(
                    "one of {}",
                    list(all().filter(|name| !name.ends_with("error")).chain(["Raw"]))
                ),
                hint,
            )
        })
    }

    fn push(&mut self, class: &Class, set: Vec<(usize, Value)>, at: Range<usize>) -> Parsed<()> {
        let header = class.header();
        self.append(Layer { header, content: Content::Fields(set) }, at)
    }

    fn append(&mut self, layer: Layer, at: Range<usize>) -> Parsed<()> {
        if self.layers.len() == MAX_LAYERS {
            return Err(self.wrong(at, &format!("at most {MAX_LAYERS} layers"), "try fewer"));
        }
        if self.layers.is_empty() && follows(None, &layer).is_err() {
            let eth = Layer {
                header: find("eth").expect("the table has it"),
                content: Content::Fields(Vec::new()),
            };
            if layer.header.is_payload() || follows(Some(&eth), &layer).is_err() {
                return Err(self.wrong(
                    at,
                    "Ether, IP, IPv6 or ARP first",
                    "try Ether()/ before it",
                ));
            }
            self.notes.push("no Ether() found: one was added".into());
            self.layers.push((eth, at.start..at.start));
        }
        let before = self.layers.last().map(|(layer, _)| layer);
        follows(before, &layer)
            .map_err(|(expected, hint)| self.wrong(at.clone(), &expected, hint))?;
        self.layers.push((layer, at));
        Ok(())
    }

    fn payload(&mut self, literal: &Literal, at: Range<usize>) -> Parsed<()> {
        let octets = match literal {
            Literal::Octets(octets) => octets.clone(),
            Literal::Text(text) => text.clone().into_bytes(),
            Literal::None => Vec::new(),
            _ => return Err(self.wrong(at, "octets or text", "as in Raw(load=b\"x\")")),
        };
        if octets.is_empty() {
            return Ok(());
        }
        let printable = |c: char| !c.is_control() || matches!(c, '\n' | '\r' | '\t');
        let (name, content) = match String::from_utf8(octets) {
            Ok(text) if text.chars().all(printable) => ("text", Content::Text(text)),
            Ok(text) => ("hex", Content::Octets(text.into_bytes())),
            Err(not_text) => ("hex", Content::Octets(not_text.into_bytes())),
        };
        self.append(Layer { header: find(name).expect("the table has it"), content }, at)
    }

    fn field(
        &self,
        class: &Class,
        name_at: Range<usize>,
        literal: &Literal,
        at: Range<usize>,
        set: &mut Vec<(usize, Value)>,
    ) -> Parsed<()> {
        let name = &self.text[name_at.clone()];
        let header = class.header();
        let Some((index, field)) = class.field(name) else {
            let nothing = match literal {
                Literal::None => true,
                Literal::List(list) => list.is_empty(),
                Literal::Octets(octets) => octets.is_empty(),
                Literal::Text(text) => text.is_empty(),
                Literal::Number(_) => false,
            };
            // Fields that are always 0 in this crate.
            let zero = *literal == Literal::Number(0) && RESERVED.contains(&name);
            if nothing || zero || (class.native, name) == ("vxlan", "NextProtocol") {
                return Ok(());
            }
            let names = class.field_names();
            let hint = match nearest(name, names.iter().copied()) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("it has {}", list(names.into_iter())),
            };
            return Err(self.wrong(name_at, &format!("a field of {}", class.names[0]), hint));
        };
        if set.iter().any(|(i, _)| *i == index) {
            return Err(self.wrong(name_at, "each field once", "try only one"));
        }
        let value = match (literal, &field.kind) {
            (Literal::None, _) => return Ok(()),
            (_, FieldKind::Options(kinds)) => {
                let options = self.options(*kinds, literal, at.clone())?;
                if options.is_empty() {
                    return Ok(());
                }
                Value::Options(options)
            }
            (Literal::Number(number), _) => Value::Number(*number),
            (Literal::Text(text), kind) => {
                // `sport` and `dport` are the names of ports.
                let path =
                    [&format!("{}.{}", header.name, field.name), field.name, &field.name[1..]];
                let lower = text.to_ascii_lowercase();
                let word = WORDS.iter().find(|(of, word, _)| path.contains(of) && *word == lower);
                match word
                    .map(|word| Ok(word.2))
                    .unwrap_or_else(|| kind.parse(&text.replace('+', "|")))
                {
                    Ok(number) => Value::Number(number),
                    // `flags=` without a value, from repr().
                    Err(_) if text.is_empty() && matches!(kind, FieldKind::Flags(_)) => {
                        Value::Number(0)
                    }
                    Err(_)
                        if text.contains('/')
                            && matches!(kind, FieldKind::Ipv4 | FieldKind::Ipv6) =>
                    {
                        return Err(self.several(at));
                    }
                    Err(expected) => {
                        return Err(self.wrong(at, &expected, format!("{name} is: {}", field.doc)));
                    }
                }
            }
            (Literal::List(_), _) => return Err(self.several(at)),
            (Literal::Octets(_), _) => {
                return Err(self.wrong(
                    at,
                    "a number or text",
                    format!("{name} is: {}", field.doc),
                ));
            }
        };
        if matches!(value, Value::Number(number) if number > field.max()) {
            return Err(self.wrong(
                at,
                &format!("at most {}", field.kind.format(field.max())),
                format!("{name} has {} bits", field.bits),
            ));
        }
        set.push((index, value));
        set.sort_by_key(|(i, _)| *i);
        Ok(())
    }

    fn several(&self, at: Range<usize>) -> SyntaxError {
        self.wrong(
            at,
            "one value",
            "scapy makes several packets of it: try one value, and a field program",
        )
    }

    /// `[('MSS', 1460), ('NOP', None), ('Timestamp', (1, 2))]`
    fn options(&self, kinds: OptionSet, literal: &Literal, at: Range<usize>) -> Parsed<Vec<Opt>> {
        const HINT: &str = "as in options=[(\"MSS\", 1460), (\"NOP\", None), (\"WScale\", 7)], or \
                            octets: options=b\"...\"";
        let wrong = || self.wrong(at.clone(), "TCP options, or octets", HINT);
        let options: Vec<Opt> = match literal {
            Literal::Octets(octets) if octets.is_empty() => Vec::new(),
            Literal::Octets(octets) => vec![Opt::Hex(octets.clone())],
            Literal::List(list) if list.is_empty() => Vec::new(),
            // A tuple with one option, without a list around it.
            Literal::List(list) => list
                .iter()
                .map(|one| option(kinds, one))
                .collect::<Option<_>>()
                .ok_or_else(wrong)?,
            _ => return Err(wrong()),
        };
        let octets: usize = options.iter().map(|one| kinds.octets(one)).sum();
        let most = kinds.limit();
        if octets > most {
            return Err(error(
                at,
                format!("{octets} octets of options"),
                format!("at most {most}"),
                "try fewer",
            ));
        }
        Ok(options)
    }

    /// A number, a string, octets or a list; with `* n` after it.
    fn value(&mut self, depth: usize) -> Parsed<Literal> {
        self.skip_space();
        let start = self.pos;
        let literal = match self.peek() {
            Some('"' | '\'') => Literal::Text(self.string(false)?.0),
            Some('b' | 'B')
                if matches!(self.text.as_bytes().get(self.pos + 1), Some(b'"' | b'\'')) =>
            {
                self.pos += 1;
                Literal::Octets(self.string(true)?.1)
            }
            Some(open @ ('[' | '(')) if depth < MAX_DEPTH => {
                self.pos += 1;
                let close = if open == '[' { ']' } else { ')' };
                let (mut items, mut comma) = (Vec::new(), false);
                loop {
                    self.skip_space();
                    if self.take(close) {
                        break;
                    }
                    items.push(self.value(depth + 1)?);
                    self.skip_space();
                    let more = self.take(',');
                    comma |= more;
                    if !more && self.peek() != Some(close) {
                        return Err(self.wrong_here(&format!(", or {close}"), "as in [1, 2]"));
                    }
                }
                // Parentheses around one value are not a tuple.
                if open == '(' && !comma && items.len() == 1 {
                    items.remove(0)
                } else {
                    Literal::List(items)
                }
            }
            _ if self.take_text("bytes.fromhex(") => {
                let literal = self.value(depth + 1)?;
                self.skip_space();
                self.expect(')', "as in bytes.fromhex(\"dead beef\")")?;
                let digits = match literal {
                    Literal::Text(text) => {
                        text.chars().filter(|c| !c.is_whitespace()).collect::<String>()
                    }
                    _ => String::from("-"),
                };
                let pair = |i: usize| {
                    digits.get(i..i + 2).and_then(|two| u8::from_str_radix(two, 16).ok())
                };
                let octets: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(pair).collect();
                Literal::Octets(octets.ok_or_else(|| {
                    self.wrong(
                        start..self.pos,
                        "hex digits, two per octet",
                        "as in bytes.fromhex(\"dead beef\")",
                    )
                })?)
            }
            _ => {
                let rest = &self.text[start..];
                let end =
                    rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
                self.pos = start + end;
                match &rest[..end] {
                    "None" => Literal::None,
                    "True" => Literal::Number(1),
                    "False" => Literal::Number(0),
                    text => Literal::Number(number(text).ok_or_else(|| {
                        let hint = "numbers, strings, b\"octets\", lists and None are allowed; \
                                    nothing is computed";
                        self.wrong(start..start + end, "a value", hint)
                    })?),
                }
            }
        };
        self.repeated(literal, start)
    }

    /// `"x" * 100`
    fn repeated(&mut self, literal: Literal, start: usize) -> Parsed<Literal> {
        let before = self.pos;
        self.skip_space();
        if !self.take('*') {
            self.pos = before;
            return Ok(literal);
        }
        self.skip_space();
        let at = self.range_of_name();
        let times = number(&self.text[at.clone()]).filter(|&times| times <= MAX_PAYLOAD as u128);
        let Some(times) = times else {
            return Err(self.wrong(at, "a number up to 65536", "as in \"x\" * 100"));
        };
        let times = times as usize;
        let long = |len: usize| len.saturating_mul(times) > MAX_PAYLOAD;
        match literal {
            Literal::Text(text) if !long(text.len()) => Ok(Literal::Text(text.repeat(times))),
            Literal::Octets(octets) if !long(octets.len()) => {
                Ok(Literal::Octets(octets.repeat(times)))
            }
            _ => Err(self.wrong(
                start..self.pos,
                "at most 65536 characters or octets",
                "as in \"x\" * 100",
            )),
        }
    }

    /// A Python string, as text and as octets.
    fn string(&mut self, octets: bool) -> Parsed<(String, Vec<u8>)> {
        let start = self.pos;
        let Some(quote) = self.peek() else {
            return Err(self.wrong_here("a string", "as in b\"x\""));
        };
        self.pos += 1;
        let (mut text, mut bytes) = (String::new(), Vec::new());
        loop {
            let at = self.pos;
            let Some(c) = self.peek().filter(|&c| c != '\n') else {
                return Err(error(
                    start..at,
                    "a string without end".into(),
                    quote,
                    format!("try a closing {quote}"),
                ));
            };
            self.pos += c.len_utf8();
            let mut push = |c: char| {
                text.push(c);
                match octets {
                    true => bytes.push(c as u8),
                    false => bytes.extend(c.encode_utf8(&mut [0; 4]).as_bytes()),
                }
            };
            match c {
                c if c == quote => return Ok((text, bytes)),
                '\\' => {
                    let escape = self.peek();
                    self.pos += escape.map_or(0, char::len_utf8);
                    match escape {
                        Some('n') => push('\n'),
                        Some('r') => push('\r'),
                        Some('t') => push('\t'),
                        Some('a') => push('\x07'),
                        Some('b') => push('\x08'),
                        Some('f') => push('\x0c'),
                        Some('v') => push('\x0b'),
                        Some(c @ ('"' | '\'' | '\\')) => push(c),
                        Some('x') => {
                            let digits = self.text.get(self.pos..self.pos + 2);
                            let Some(octet) =
                                digits.and_then(|two| u8::from_str_radix(two, 16).ok())
                            else {
                                return Err(self.wrong(
                                    at..self.pos,
                                    "two hex digits after \\x",
                                    "as in b\"\\x00\\xff\"",
                                ));
                            };
                            self.pos += 2;
                            push(octet as char);
                        }
                        Some(c @ '0'..='7') => {
                            let mut value = c.to_digit(8).unwrap_or_default();
                            for _ in 0..2 {
                                let Some(digit) = self.peek().and_then(|c| c.to_digit(8)) else {
                                    break;
                                };
                                value = value * 8 + digit;
                                self.pos += 1;
                            }
                            push(char::from(value as u8));
                        }
                        _ => {
                            let expected = r#"\n \r \t \xHH \" or \\"#;
                            return Err(self.wrong(at..self.pos, expected, r"write \\ for \"));
                        }
                    }
                }
                c if octets && !c.is_ascii() => {
                    return Err(self.wrong(
                        at..self.pos,
                        "ASCII, as in Python bytes",
                        "write \\xHH",
                    ));
                }
                c => push(c),
            }
            if bytes.len() > MAX_PAYLOAD {
                return Err(error(
                    start..self.pos,
                    "more than 65536 octets".into(),
                    "at most 65536",
                    "try fewer",
                ));
            }
        }
    }

    /// Applies defaults that differ from scapy's, for packets whose next layer identifies itself.
    fn finish(mut self) -> Parsed<Scapy> {
        if self.layers.is_empty() {
            return Err(self.wrong(0..self.text.len(), "a packet", "as in Ether()/IP()/UDP()"));
        }
        let mut addresses = false;
        for i in 0..self.layers.len() {
            let next_header = self.layers.get(i + 1).map(|(layer, _)| layer.header);
            let next = next_header.map(|next| next.name);
            let neighbors = self
                .layers
                .get(i + 1)
                .is_some_and(|(_, at)| self.text[at.clone()].starts_with("ICMPv6ND"));
            let (layer, at) = &mut self.layers[i];
            let header = layer.header;
            let class = CLASSES.iter().filter(|class| class.native == header.name);
            let name = self.text[at.clone()].trim();
            let Some(class) =
                class.clone().find(|class| class.names.contains(&name)).or(class.clone().next())
            else {
                continue;
            };
            let Content::Fields(set) = &mut layer.content else { continue };
            let named = next_header.is_some_and(|next| header.may_carry(next));
            let special: &[(&str, u128, bool)] = match (class.names[0], next) {
                // Scapy uses 802.1Q for an outer tag.
                ("Dot1Q", Some("vlan")) => &[("tpid", 0x8100, false)],
                ("Dot1AD", _) => &[("tpid", 0x88a8, false)],
                ("UDP", Some("vxlan")) => &[("sport", 4789, false)],
                ("UDP", Some("gtpu")) => &[("sport", 2152, false)],
                ("IPv6", Some("icmpv6")) if neighbors => &[("hop_limit", 255, false)],
                _ => &[],
            };
            for &(field, value, alone) in class.defaults.iter().chain(special) {
                let (index, _) = header.field(field).expect("a class has fields of our header");
                if !(alone && named || set.iter().any(|(i, _)| *i == index)) && at.start < at.end {
                    set.push((index, Value::Number(value)));
                }
            }
            set.sort_by_key(|(i, _)| *i);
            for field in ["src", "dst", "sha", "spa", "tpa"] {
                addresses |= header
                    .field(field)
                    .is_some_and(|(index, _)| !set.iter().any(|(i, _)| *i == index));
            }
        }
        if addresses {
            self.notes.push(
                "missing addresses are Squall's defaults: scapy takes them from the routes of its \
                 host"
                    .into(),
            );
        }
        Ok(Scapy {
            packet: Packet { layers: self.layers.into_iter().map(|(layer, _)| layer).collect() },
            notes: self.notes,
        })
    }

    fn class_name(&mut self) -> Range<usize> {
        let mut at = self.range_of_name();
        // `scapy.all.IP(...)`
        while self.take('.') {
            at = self.range_of_name();
        }
        at
    }

    fn name(&mut self) -> &str {
        let at = self.range_of_name();
        &self.text[at]
    }

    fn range_of_name(&mut self) -> Range<usize> {
        let start = self.pos;
        let rest = &self.text[start..];
        self.pos += rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
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

    fn take_text(&mut self, text: &str) -> bool {
        let taken = self.text[self.pos..].starts_with(text);
        self.pos += if taken { text.len() } else { 0 };
        taken
    }

    fn expect(&mut self, c: char, hint: &str) -> Parsed<()> {
        if self.take(c) { Ok(()) } else { Err(self.wrong_here(&c.to_string(), hint)) }
    }

    fn skip_space(&mut self) {
        loop {
            let rest = &self.text[self.pos..];
            self.pos += rest.len() - rest.trim_start().len();
            // A line continuation.
            if !self.take_text("\\\n") {
                return;
            }
        }
    }

    fn wrong_here(&self, expected: &str, hint: impl Into<String>) -> SyntaxError {
        self.wrong(self.pos..self.pos, expected, hint)
    }

    /// An empty range is replaced by the character at its start.
    fn wrong(&self, mut at: Range<usize>, expected: &str, hint: impl Into<String>) -> SyntaxError {
        if at.is_empty() {
            at.end = at.start + self.text[at.start..].chars().next().map_or(0, char::len_utf8);
        }
        let found = match &self.text[at.clone()] {
            "" => "the end".into(),
            text if text.chars().count() > 40 => {
                format!("{:?}", text.chars().take(40).chain(['…']).collect::<String>())
            }
            text => format!("{text:?}"),
        };
        error(at, found, expected, hint)
    }
}

/// Whether scapy keeps the layer's payload in the field `name`.
fn has_data(class: &Class, name: &str) -> bool {
    matches!(class.native, "icmpv6" | "esp") && name == "data"
}

fn is_octets(name: &str) -> bool {
    matches!(name, "Raw" | "Padding")
}

/// `('MSS', 1460)`
fn option(kinds: OptionSet, literal: &Literal) -> Option<Opt> {
    let Literal::List(parts) = literal else { return None };
    let (kind, body) = (parts.first()?, parts.get(1).unwrap_or(&Literal::None));
    let code = match kind {
        Literal::Text(name) => {
            let name = name.to_ascii_lowercase();
            u8::try_from(kinds.defs().iter().find(|def| def.name == name)?.code).ok()?
        }
        Literal::Number(code) => u8::try_from(*code).ok()?,
        _ => return None,
    };
    let def = kinds.defs().iter().find(|def| def.code == u16::from(code));
    if let Literal::Octets(octets) = body
        && !octets.is_empty()
    {
        let mut all = vec![code, u8::try_from(octets.len() + 2).ok()?];
        all.extend(octets);
        return Some(Opt::Hex(all));
    }
    let def = def?;
    let args: Vec<u128> = match body {
        Literal::None | Literal::Octets(_) => Vec::new(),
        Literal::Number(number) => vec![*number],
        Literal::List(list) => list
            .iter()
            .map(|one| if let Literal::Number(number) = one { Some(*number) } else { None })
            .collect::<Option<_>>()?,
        // `('SAckOK', '')`
        Literal::Text(text) if text.is_empty() => Vec::new(),
        Literal::Text(_) => return None,
    };
    let parts = match def.form {
        OptionForm::Single => &[][..],
        OptionForm::Value(parts) => parts,
        OptionForm::Slots | OptionForm::Pad => return None,
    };
    let mut parts = written(parts);
    let fits =
        |number: &u128| parts.next().is_some_and(|part| part.parse(&number.to_string()).is_ok());
    args.iter().all(fits).then(|| Opt::Known(def, args.into_iter().map(Arg::Number).collect()))
}

/// A number in Python's format: decimal, 0x, 0o or 0b, with _ between digits.
fn number(text: &str) -> Option<u128> {
    let digits: String = text.chars().filter(|&c| c != '_').collect();
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let radix = |prefix: &str| {
        digits.get(..2).filter(|front| front.eq_ignore_ascii_case(prefix)).map(|_| &digits[2..])
    };
    match (radix("0x"), radix("0o"), radix("0b")) {
        (Some(hex), _, _) => u128::from_str_radix(hex, 16).ok(),
        (_, Some(octal), _) => u128::from_str_radix(octal, 8).ok(),
        (_, _, Some(binary)) => u128::from_str_radix(binary, 2).ok(),
        _ => digits.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn octets(text: &str) -> String {
        let read = parse(text).unwrap_or_else(|error| panic!("{text}: {error} at {:?}", error.at));
        let frame = read.packet.build(None, &|_| unreachable!(), 0).unwrap();
        frame.bytes.iter().map(|octet| format!("{octet:02x}")).collect()
    }

    const ADDRESSES: &str = r#"Ether(dst="02:00:00:00:00:02", src="02:00:00:00:00:01")"#;
    const IP: &str = r#"IP(src="10.0.0.1", dst="10.0.0.2")"#;

    /// The output of `bytes(...).hex()` of scapy 2.6 for the same text.
    #[test]
    fn frames_equal_those_of_scapy() {
        for (text, wanted) in include!("../tests/scapy.in") {
            let text = text.replace("ETHER", ADDRESSES).replace("IPV4", IP);
            let found = octets(&text);
            let (same, padding) = found.split_at_checked(wanted.len()).unwrap_or((&found, ""));
            assert_eq!(same, wanted, "{text}: {}", parse(&text).unwrap().packet);
            assert!(padding.bytes().all(|digit| digit == b'0'), "{text}: {found}");
        }
    }

    #[test]
    fn the_same_packet_is_read_from_code_and_from_repr() {
        let code = r#"p = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02", type=0x800) / IP(src="10.0.0.1", dst="10.0.0.2", proto="udp") / UDP(dport=53) / Raw(load=b"a\x00b")"#;
        let repr = r"<Ether  dst=02:00:00:00:00:02 src=02:00:00:00:00:01 type=IPv4 |<IP  frag=0 proto=udp src=10.0.0.1 dst=10.0.0.2 |<UDP  dport=domain |<Raw  load=b'a\x00b' |>>>>";
        assert_eq!(octets(code), octets(repr));
        assert_eq!(parse("IP()").unwrap().packet.layers.len(), 2);
        assert!(parse("IP()").unwrap().notes[0].contains("Ether"));
    }

    #[test]
    fn unsupported_text_is_reported_with_its_place() {
        let wrong = |text: &str| {
            let error = parse(text).expect_err(text);
            (text[error.at.clone()].to_owned(), error.hint)
        };
        assert_eq!(wrong("Ether()/ip()").1, "did you mean IP?");
        assert_eq!(wrong("Ether()/IP(dst=\"10.0.0.0/8\")").0, "\"10.0.0.0/8\"");
        assert_eq!(wrong("Ether()/IP(ttl=256)").0, "256");
        assert_eq!(wrong("Ether()/IP(tll=2)").1, "did you mean ttl?");
        assert_eq!(wrong("Ether()/IP(id=RandShort())").0, "RandShort");
        assert!(wrong("Ether()/IP(ttl=(1, 5))").1.contains("field program"));
        assert_eq!(wrong("Ether()/IP()/Ether()").0, "Ether");
        assert_eq!(wrong("Raw(b'x')").1, "try Ether()/ before it");
        assert!(wrong("Ether()/IP()/TCP(options=[('MSS', 70000)])").1.contains("MSS"));
        for text in [
            "",
            "Ether(",
            "Ether()/",
            "<Ether  dst=",
            "Ether()/'x",
            "Ether()/b'\\x0'",
            "((((((IP()))))))",
            "Ether()/IP(dst=[[[[[[",
        ] {
            parse(text).unwrap_err();
        }
    }
}
