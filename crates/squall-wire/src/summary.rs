//! One-line summary of a frame.

use crate::bits::get;
use crate::describe;
use crate::dissect::{by_ethertype, headers};
use crate::frame::Frame;
use crate::header::Proto;
use crate::link::{self, ETHERNET, Inner};
use crate::options::{OptionForm, OptionSet};
use crate::packet::Opt;

/// Maximum number of zeros added to a truncated packet, whatever its length fields contain.
const MAX_LEN: usize = 256 << 10;

/// Summarizes a packet of any link type in one line, in the manner of `tcpdump -n`. `octets` are
/// the captured part of `wire_len` octets; `link_type` is a number of the tcpdump.org list of
/// link-layer header types.
///
/// ```
/// // BSD loopback, then 44 of an IPv6 packet's 60 octets: only the ports of the TCP header.
/// let mut octets = vec![30, 0, 0, 0];
/// octets.extend([0x60, 0, 0, 0, 0, 20, 6, 64]);
/// octets.extend([0; 15].iter().chain(&[1]).chain(&[0; 15]).chain(&[1]));
/// octets.extend([0, 80, 0x30, 0x39]);
/// assert_eq!(squall_wire::summary(0, &octets, 64), "IP6 ::1 > ::1: [|tcp]");
/// ```
pub fn summary(link_type: u16, octets: &[u8], wire_len: usize) -> String {
    if link_type == ETHERNET {
        if octets.len() < 14 {
            return format!("[|ether], length {wire_len}");
        }
        return packet(octets, 0..octets.len(), wire_len, crate::build::link());
    }
    match link::inner(link_type, octets) {
        Ok(inner) => after_link(octets, inner, wire_len),
        Err(what) => format!("{what}, length {wire_len}"),
    }
}

/// Summarizes the packet inside a link header.
pub(crate) fn after_link(octets: &[u8], inner: Inner, wire_len: usize) -> String {
    let Inner { ethertype, octets: range, prefix, .. } = inner;
    match by_ethertype(ethertype) {
        Some(first) => prefix + &packet(octets, range, wire_len, first),
        None => {
            let len = wire_len - range.start.min(wire_len);
            let other = || format!("ethertype {ethertype:#06x}, length {len}");
            prefix + &describe::ethertype(ethertype, &octets[range]).unwrap_or_else(other)
        }
    }
}

/// Summarizes a frame. Lengths are those on the wire: octets that were not captured count as zeros,
/// and contain no headers.
fn packet(
    octets: &[u8],
    range: std::ops::Range<usize>,
    wire_len: usize,
    first: &'static crate::header::HeaderDef,
) -> String {
    let known = range.end;
    let mut bytes = octets.to_vec();
    // An FCS, and the further packets of an aggregate, are not part of the packet.
    let end = if known == octets.len() { wire_len.clamp(known, MAX_LEN.max(known)) } else { known };
    bytes.resize(end.max(bytes.len()), 0);
    let (frame, _, next) = headers(bytes, range.start..end, known, Some(first));
    let mut line = frame.summary();
    if let Some(header) = next.filter(|next| known < end && next.proto != Proto::Plain) {
        // No layer is left that could describe the next protocol.
        if frame.layers.is_empty() {
            line.clear();
        }
        line = match line.rfind(": ip-proto-") {
            Some(at) => format!("{}: [|{}]", &line[..at], header.name),
            None => format!("{line} [|{}]", header.name),
        };
    }
    line
}

impl Frame {
    /// One line in the manner of `tcpdump -n`.
    ///
    /// ```
    /// # use squall_wire::Packet;
    /// let packet = Packet::parse("eth/vlan(id=7)/ipv4(dst=48.0.0.1)/tcp(dport=80)").unwrap();
    /// let frame = packet.build(None, &|_| unreachable!(), 0).unwrap();
    /// assert_eq!(
    ///     frame.summary(),
    ///     "vlan 7, p 0, IP 198.18.0.1.49184 > 48.0.0.1.80: Flags [S], seq 0, win 8192, length 0"
    /// );
    /// ```
    pub fn summary(&self) -> String {
        // tcpdump's text for these protocols is about the octets after the preceding header.
        if let Some(first) = self.layers.iter().position(|layer| layer.header.proto == Proto::Plain)
        {
            let mut front = self.clone();
            front.payload = front.layers[first].offset;
            front.layers.truncate(first);
            return match first {
                0 if self.layers[0].header.name == "dot3" => {
                    summary(ETHERNET, &self.bytes, self.bytes.len())
                }
                0 => format!("{}, length {}", self.layers[0].header.name, self.bytes.len()),
                _ => front.summary(),
            };
        }
        let mut line = String::new();
        for i in 0..self.layers.len() {
            line += &self.part(i);
            if self.is_later_fragment(i) || self.ends_line(i) {
                break;
            }
        }
        if self.layers.is_empty() {
            line = format!("not Ethernet, length {}", self.bytes.len());
        }
        line
    }

    /// The text for layer `i` in the line; the last layer adds the length.
    fn part(&self, i: usize) -> String {
        let layer = &self.layers[i];
        let header = layer.header;
        if layer.len < header.min_len {
            return format!("[|{}]", header.name);
        }
        let counted = self.bytes.len() - self.trailer;
        let part = Part {
            frame: self,
            i,
            last: i + 1 == self.layers.len(),
            after: counted.saturating_sub(layer.offset + layer.len),
            whole: counted.saturating_sub(layer.offset),
        };
        match header.proto {
            Proto::Eth | Proto::Vlan => part.link(),
            Proto::Mpls => part.mpls(),
            Proto::Arp => part.arp(),
            Proto::Ipv4 | Proto::Ipv6 => part.ip(),
            Proto::HopOpts | Proto::DstOpts | Proto::Routing | Proto::Fragment => part.extension(),
            Proto::Gre => part.gre(),
            Proto::Udp => part.udp(),
            Proto::Vxlan | Proto::Gtpu => part.tunnel(),
            Proto::Tcp => self.tcp(i, part.after),
            Proto::Icmp => part.icmp(),
            Proto::Icmpv6 => part.icmpv6(),
            Proto::Igmp => part.igmp(),
            _ => String::new(),
        }
    }

    /// Whether the following layer belongs to the packet that an error quotes, which is already
    /// described.
    fn ends_line(&self, i: usize) -> bool {
        let next = self.layers.get(i + 1);
        self.layers[i].header.proto == Proto::Icmp
            && next.is_some_and(|next| {
                next.header.proto == Proto::Ipv4 && self.icmp_error(i, i + 1).is_some()
            })
    }

    /// Whether the following octets are from the middle of a packet.
    fn is_later_fragment(&self, i: usize) -> bool {
        self.layers[i].header.proto == Proto::Ipv4 && self.number(i, "frag") != 0
    }

    fn tag(&self, i: usize) -> String {
        let dei = if self.number(i, "dei") == 1 { ", DEI" } else { "" };
        format!("vlan {}, p {}{dei}, ", self.number(i, "id"), self.number(i, "pcp"))
    }

    /// The text for a protocol outside the table, after Ethernet or a tag.
    fn described(&self, i: usize) -> Option<String> {
        let at = self.layers[i].offset + self.layers[i].len;
        describe::ethertype(self.number(i, "type") as u16, &self.bytes[at..])
    }

    fn ports(&self, i: usize) -> (u16, u16) {
        (self.number(i, "sport") as u16, self.number(i, "dport") as u16)
    }

    /// The error in layer `i` about the packet whose header is layer `about`.
    fn icmp_error(&self, i: usize, about: usize) -> Option<String> {
        let (kind, code, to) =
            (self.number(i, "type"), self.number(i, "code"), self.text(about, "dst"));
        Some(match (kind, code) {
            (3, 0) => format!("net {to} unreachable"),
            (3, 1) => format!("host {to} unreachable"),
            (3, 2) => format!("{to} protocol {} unreachable", self.number(about, "protocol")),
            (3, 3) => {
                let after = self.layers.get(about + 1)?;
                let name = match after.header.proto {
                    Proto::Udp => "udp",
                    Proto::Tcp => "tcp",
                    _ => return None,
                };
                format!("{to} {name} port {} unreachable", self.number(about + 1, "dport"))
            }
            (3, 4) => format!("{to} unreachable - need to frag (mtu {})", self.number(i, "mtu")),
            (3, 13) => format!("host {to} unreachable - admin prohibited filter"),
            (5, 0) => format!("redirect {to} to net {}", self.text(i, "gateway")),
            (5, 1) => format!("redirect {to} to host {}", self.text(i, "gateway")),
            (11, 0) => "time exceeded in-transit".into(),
            (11, 1) => "ip reassembly time exceeded".into(),
            _ => return None,
        })
    }

    fn tcp(&self, i: usize, after: usize) -> String {
        let number = |name: &str| self.number(i, name);
        let flags: String = [
            (1, 'F'),
            (2, 'S'),
            (4, 'R'),
            (8, 'P'),
            (16, '.'),
            (32, 'U'),
            (64, 'E'),
            (128, 'W'),
            (256, 'e'),
        ]
        .iter()
        .filter(|(bit, _)| number("flags") & bit != 0)
        .map(|(_, c)| c)
        .collect();
        let flags = if flags.is_empty() { "none".into() } else { flags };
        let seq = match after {
            0 => number("seq").to_string(),
            n => format!("{}:{}", number("seq"), (number("seq") as u32).wrapping_add(n as u32)),
        };
        let ack = if number("flags") & 16 != 0 {
            format!(", ack {}", number("ack"))
        } else {
            String::new()
        };
        let options = match tcp_options(
            &self.bytes[self.layers[i].offset + 20..self.layers[i].offset + self.layers[i].len],
        ) {
            options if options.is_empty() => String::new(),
            options => format!(", options [{options}]"),
        };
        let urgent = if number("flags") & 32 != 0 {
            format!(", urg {}", number("urgent"))
        } else {
            String::new()
        };
        let from = self.layers[i].offset + self.layers[i].len;
        let payload = describe::tcp(self.ports(i), &self.bytes[from..from + after]);
        let payload = payload.map_or_else(String::new, |what| format!(": {what}"));
        format!(
            "Flags [{flags}], seq {seq}{ack}, win {}{urgent}{options}, length {after}{payload}",
            number("window")
        )
    }

    fn ethertype(&self, i: usize) -> String {
        let number = self.number(i, "type");
        match self.text(i, "type") {
            name if name == number.to_string() => format!("{number:#06x}"),
            name => format!("{name} ({number:#06x})"),
        }
    }

    fn bit(&self, i: usize, name: &str) -> Option<(usize, &'static crate::FieldDef)> {
        let layer = &self.layers[i];
        let (_, f) = layer.header.field(name)?;
        let bit = layer.header.bit_of(f, layer.offset, *self.bytes.get(layer.offset)?)?;
        (bit + f.bits <= (layer.offset + layer.len) * 8).then_some((bit, f))
    }

    fn has(&self, i: usize, name: &str) -> bool {
        self.bit(i, name).is_some()
    }

    fn number(&self, i: usize, name: &str) -> u128 {
        self.bit(i, name).map_or(0, |(bit, f)| get(&self.bytes, bit, f.bits))
    }

    fn text(&self, i: usize, name: &str) -> String {
        self.bit(i, name)
            .map_or_else(String::new, |(bit, f)| f.kind.format(get(&self.bytes, bit, f.bits)))
    }
}

/// A layer, for its part of the line.
struct Part<'a> {
    frame: &'a Frame,
    i: usize,
    /// Whether the layer is the last one.
    last: bool,
    /// Number of octets after the layer's header, without the frame's padding.
    after: usize,
    whole: usize,
}

impl Part<'_> {
    fn number(&self, name: &str) -> u128 {
        self.frame.number(self.i, name)
    }

    fn text(&self, name: &str) -> String {
        self.frame.text(self.i, name)
    }

    fn proto(&self) -> Proto {
        self.frame.layers[self.i].header.proto
    }

    /// The octets after the layer's header.
    fn content(&self) -> &[u8] {
        let layer = &self.frame.layers[self.i];
        &self.frame.bytes[layer.offset + layer.len..layer.offset + layer.len + self.after]
    }

    fn link(&self) -> String {
        let (frame, i) = (self.frame, self.i);
        let tagged = self.proto() == Proto::Vlan;
        let tag = if tagged { frame.tag(i) } else { String::new() };
        if !self.last {
            return tag;
        }
        if let Some(described) = frame.described(i) {
            return tag + &described;
        }
        let kind = frame.ethertype(i);
        if tagged {
            return format!("{tag}ethertype {kind}, length {}", self.after);
        }
        let length = frame.bytes.len() - frame.layers[i].offset;
        let (from, to) = (self.text("src"), self.text("dst"));
        format!("{from} > {to}, ethertype {kind}, length {length}")
    }

    fn mpls(&self) -> String {
        let after = self.after;
        // A stack of labels is named only once.
        let first = self.i == 0 || self.frame.layers[self.i - 1].header.proto != Proto::Mpls;
        let bottom = if self.number("s") == 1 { "[S], " } else { "" };
        let rest = if self.last { format!(", length {after}") } else { " ".into() };
        let name = if first { "MPLS " } else { "" };
        format!(
            "{name}(label {}, tc {}, {bottom}ttl {}){rest}",
            self.number("label"),
            self.number("tc"),
            self.number("ttl")
        )
    }

    fn arp(&self) -> String {
        let length = self.frame.layers[self.i].len;
        let text = |name: &str| self.text(name);
        match self.number("op") {
            1 => format!(
                "ARP, Request who-has {} tell {}, length {length}",
                text("tpa"),
                text("spa")
            ),
            2 => format!("ARP, Reply {} is-at {}, length {length}", text("spa"), text("sha")),
            op => format!("ARP, operation {op}, length {length}"),
        }
    }

    fn ip(&self) -> String {
        let after = self.after;
        let v4 = self.proto() == Proto::Ipv4;
        let (name, next) = if v4 { ("IP", "protocol") } else { ("IP6", "next") };
        // The ports follow the addresses, wherever the extension headers end.
        let fragment = self.frame.is_later_fragment(self.i);
        let ports = self.frame.layers[self.i + 1..]
            .iter()
            .take_while(|l| {
                matches!(l.header.proto, Proto::Udp | Proto::Tcp) || is_extension(l.header.proto)
            })
            .position(|l| matches!(l.header.proto, Proto::Udp | Proto::Tcp));
        let port = |name: &str| match ports {
            Some(p) if !fragment && self.frame.layers[self.i + 1 + p].len >= 4 => {
                format!(".{}", self.frame.number(self.i + 1 + p, name))
            }
            _ => String::new(),
        };
        if let Some((ports, what)) =
            describe::protocol(self.number(next), self.content()).filter(|_| self.last && !fragment)
        {
            let [from, to] = ports.map_or([String::new(), String::new()], |(from, to)| {
                [format!(".{from}"), format!(".{to}")]
            });
            return format!("{name} {}{from} > {}{to}: {what}", self.text("src"), self.text("dst"));
        }
        let mut line = format!(
            "{name} {}{} > {}{}: ",
            self.text("src"),
            port("sport"),
            self.text("dst"),
            port("dport")
        );
        if fragment {
            line += &format!("frag {}+{after}", self.number("frag") * 8);
        } else if self.last {
            line += &format!("ip-proto-{} {after}", self.number(next));
        }
        line
    }

    fn extension(&self) -> String {
        let name = match self.proto() {
            Proto::HopOpts => "HBH",
            Proto::DstOpts => "DSTOPT",
            Proto::Routing => "RT",
            _ => "frag",
        };
        let detail = match self.proto() {
            Proto::Routing => {
                format!(" (type {}, segleft {})", self.number("type"), self.number("segments_left"))
            }
            Proto::Fragment => format!(" ({:#x}:{})", self.number("id"), self.number("offset") * 8),
            _ => String::new(),
        };
        let rest = if self.last {
            format!("ip-proto-{} {}", self.number("next"), self.after)
        } else {
            String::new()
        };
        format!("{name}{detail} {rest}")
    }

    fn gre(&self) -> String {
        let whole = self.whole;
        let mut line = format!("GREv{}", self.number("version"));
        for (name, label) in [("key", "key="), ("seq", "seq ")] {
            if self.frame.has(self.i, name) {
                line += &match name {
                    "key" => format!(", {label}{:#x}", self.number(name)),
                    _ => format!(", {label}{}", self.number(name)),
                };
            }
        }
        line += &format!(", length {whole}");
        if !self.last { line + ": " } else { line }
    }

    fn udp(&self) -> String {
        if !self.last {
            return String::new();
        }
        describe::udp(self.frame.ports(self.i), self.content())
            .unwrap_or_else(|| format!("UDP, length {}", self.after))
    }

    fn tunnel(&self) -> String {
        let rest = if self.last { format!(", length {}", self.after) } else { ": ".into() };
        match self.proto() {
            Proto::Vxlan => {
                let (flags, vni) = (self.text("flags"), self.number("vni"));
                format!("VXLAN, flags [{flags}], vni {vni}{rest}")
            }
            _ => format!("GTP-U, teid {:#x}{rest}", self.number("teid")),
        }
    }

    fn icmp(&self) -> String {
        let whole = self.whole;
        let kind = match self.number("type") {
            0 => format!("echo reply, id {}, seq {}", self.number("id"), self.number("seq")),
            8 => format!("echo request, id {}, seq {}", self.number("id"), self.number("seq")),
            _ => format!("{} code {}", self.text("type"), self.number("code")),
        };
        // The packet that caused the error, if it is an error.
        let about = (!self.last && self.frame.layers[self.i + 1].header.proto == Proto::Ipv4)
            .then_some(self.i + 1);
        match about.and_then(|about| self.frame.icmp_error(self.i, about)) {
            Some(error) => format!("ICMP {error}, length {whole}"),
            None => format!("ICMP {kind}, length {whole}{}", if self.last { "" } else { ": " }),
        }
    }

    fn icmpv6(&self) -> String {
        let whole = self.whole;
        let kind = match self.number("type") {
            128 => format!("echo request, id {}, seq {}", self.number("id"), self.number("seq")),
            129 => format!("echo reply, id {}, seq {}", self.number("id"), self.number("seq")),
            135 if self.frame.has(self.i, "target") => {
                format!("neighbor solicitation, who has {}", self.text("target"))
            }
            136 if self.frame.has(self.i, "target") => {
                format!("neighbor advertisement, tgt is {}", self.text("target"))
            }
            133 => "router solicitation".into(),
            134 => "router advertisement".into(),
            2 => format!("packet too big, mtu {}", self.number("mtu")),
            3 if self.number("code") == 0 => "time exceeded in-transit".into(),
            143 => "multicast listener report v2".into(),
            _ => format!("{} code {}", self.text("type"), self.number("code")),
        };
        let rest = if self.last { "" } else { ": " };
        format!("ICMP6, {kind}, length {whole}{rest}")
    }

    fn igmp(&self) -> String {
        let whole = self.whole;
        match (self.number("type"), self.number("group")) {
            (0x11, _) if self.number("max_resp") == 0 => "igmp query v1".into(),
            (0x11, group) => {
                let version = if whole >= 12 { 3 } else { 2 };
                let of = if group == 0 {
                    String::new()
                } else {
                    format!(" [gaddr {}]", self.text("group"))
                };
                format!("igmp query v{version}{of}")
            }
            (0x12, _) => format!("igmp v1 report {}", self.text("group")),
            (0x16, _) => format!("igmp v2 report {}", self.text("group")),
            (0x17, _) => format!("igmp leave {}", self.text("group")),
            (0x22, records) => format!("igmp v3 report, {} group record(s)", records & 0xffff),
            (other, _) => format!("igmp-{other:x} {}, length {whole}", self.text("group")),
        }
    }
}

fn is_extension(proto: Proto) -> bool {
    matches!(proto, Proto::HopOpts | Proto::DstOpts | Proto::Routing | Proto::Fragment)
}

fn tcp_options(mut octets: &[u8]) -> String {
    let mut texts = Vec::new();
    // 0 ends the list.
    while let Some(code) = octets.first().filter(|&&code| code != 0) {
        let def = OptionSet::Tcp.defs().iter().find(|d| d.code == u16::from(*code));
        let name = def.map_or_else(|| format!("unknown-{code}"), |d| d.name.to_string());
        let len = match def.map(|d| d.form) {
            Some(OptionForm::Single) => 1,
            _ => octets.get(1).map_or(0, |&len| usize::from(len)),
        };
        let (Some(option), true) = (octets.get(..len), len > 0) else {
            texts.push(format!("{name} cut"));
            break;
        };
        let word = |at: usize| get(option, at * 8, 32);
        let known = match (*code, len) {
            (4, 2) => Some("sackOK".to_string()),
            (8, 10) => Some(format!("TS val {} ecr {}", word(2), word(6))),
            (5, 10 | 18 | 26 | 34) => {
                let blocks =
                    (2..len).step_by(8).map(|at| format!("{{{}:{}}}", word(at), word(at + 4)));
                Some(format!("sack {} {}", len / 8, blocks.collect::<String>()))
            }
            _ => None,
        };
        if let Some(text) = known {
            texts.push(text);
            octets = &octets[len..];
            continue;
        }
        let mut text = name;
        if let Some((Opt::Known(_, args), _)) = OptionSet::Tcp.option(option) {
            args.iter().for_each(|arg| text += &format!(" {}", arg.number()));
        }
        texts.push(text);
        octets = &octets[len..];
    }
    texts.join(",")
}
