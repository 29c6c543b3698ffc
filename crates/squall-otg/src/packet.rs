//! Builds a flow's frames: octets from headers, and the bits that vary.

use squall_profile::{FieldRef, Vary};
use squall_units::{FCS_LEN, MacAddr};
use squall_wire::{Frame, LayerAt, checksum};

use crate::{
    headers::{Field, Fill, Form, HEADERS, Header, Role, UNSUPPORTED},
    patterns::{Law, Setting, What},
    read::{Node, Notes, brief},
};

const FCS: usize = FCS_LEN as usize;
/// Length of a signature at the end of a measured frame.
pub(crate) const SIGNATURE: usize = 16;
/// TPIDs of tags: 802.1Q, 802.1ad and older ones.
const TPIDS: [u128; 5] = [0x8100, 0x88a8, 0x9100, 0x9200, 0x9300];

/// The headers of a flow, as configured.
#[derive(Debug, Default)]
pub(crate) struct Headers(Vec<Layer>);

#[derive(Debug)]
struct Layer {
    path: String,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Header {
        header: &'static Header,
        /// One setting per field of the table.
        settings: Vec<Setting>,
        /// Octets after the fixed part: options, extension headers.
        more: Vec<u8>,
    },
    Custom {
        octets: Vec<u8>,
        tags: Vec<(String, usize, usize)>,
    },
}

/// Addresses of a flow between devices. They fill fields that are unset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Ends {
    pub src_mac: MacAddr48,
    pub dst_mac: MacAddr48,
    pub src_ipv4: u128,
    pub dst_ipv4: u128,
    pub src_ipv6: u128,
    pub dst_ipv6: u128,
}

/// A MAC address as a number.
pub(crate) type MacAddr48 = u128;

pub(crate) fn mac_number(mac: MacAddr) -> MacAddr48 {
    mac.0.iter().fold(0, |value, octet| value << 8 | u128::from(*octet))
}

/// A frame of maximum length, and its varying fields.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    /// The frame without FCS.
    pub octets: Vec<u8>,
    pub varying: Vec<Varying>,
    pub tags: Vec<Tag>,
    /// Whether a signature fits after the headers even in the shortest frame.
    pub room: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Varying {
    pub bit: usize,
    pub bits: usize,
    pub law: Law,
    pub path: String,
}

/// Bits whose values distinguish the frames of a flow.
#[derive(Clone, Debug)]
pub(crate) struct Tag {
    pub name: String,
    pub path: String,
    pub bit: usize,
    pub bits: usize,
    /// Index into [`Built::varying`] of the field that varies them.
    pub varying: Option<usize>,
}

/// The octets after the headers.
#[derive(Clone, Debug)]
pub(crate) enum Payload {
    /// A pattern, repeated, or once and followed by zeros.
    Fixed { pattern: Vec<u8>, repeat: bool },
    /// Counts from 0 up or from 255 down, one or two octets at a time.
    Count { down: bool, words: bool },
}

impl Payload {
    pub fn zeros() -> Self {
        Self::Fixed { pattern: vec![0], repeat: true }
    }

    pub fn read(node: &Node<'_>, notes: &mut Notes) -> Self {
        let choices =
            ["fixed", "increment_byte", "decrement_byte", "increment_word", "decrement_word"];
        node.known(&[choices.as_slice(), &["choice"]].concat(), notes);
        let Some((choice, inner)) = node.member(&choices, Some("fixed"), notes) else {
            return Self::zeros();
        };
        if choice != "fixed" {
            return Self::Count {
                down: choice.starts_with("decrement"),
                words: choice.ends_with("word"),
            };
        }
        inner.known(&["pattern", "repeat"], notes);
        let pattern = inner.text("pattern", notes).map_or_else(|| Some(vec![0]), hex);
        match pattern.filter(|pattern| !pattern.is_empty()) {
            Some(pattern) => Self::Fixed { pattern, repeat: inner.flag("repeat", true, notes) },
            None => {
                notes.problem(&inner.at("pattern").path, "expected pairs of hex digits");
                Self::zeros()
            }
        }
    }

    fn fill(&self, octets: &mut [u8]) {
        match self {
            Self::Fixed { pattern, repeat } => {
                for (i, chunk) in octets.chunks_mut(pattern.len()).enumerate() {
                    if i == 0 || *repeat {
                        chunk.copy_from_slice(&pattern[..chunk.len()]);
                    }
                }
            }
            Self::Count { down, words: false } => {
                octets
                    .iter_mut()
                    .enumerate()
                    .for_each(|(i, o)| *o = if *down { !(i as u8) } else { i as u8 });
            }
            Self::Count { down, words: true } => {
                for (i, chunk) in octets.chunks_mut(2).enumerate() {
                    let word = if *down { !(i as u16) } else { i as u16 };
                    chunk.copy_from_slice(&word.to_be_bytes()[..chunk.len()]);
                }
            }
        }
    }
}

impl Headers {
    /// Reads the headers in `list`, which is at `path`.
    pub fn read(list: &[Node<'_>], path: &str, notes: &mut Notes) -> Self {
        let mut layers: Vec<Layer> = Vec::new();
        for node in list {
            if let Some(kind) = Kind::read(node, notes) {
                layers.push(Layer { path: node.path.clone(), kind });
            }
        }
        // If there are no headers, the schema's default is a single Ethernet header.
        if list.is_empty() {
            let settings = HEADERS[0].fields.iter().map(|_| Setting::default()).collect();
            let kind = Kind::Header { header: HEADERS[0], settings, more: Vec::new() };
            layers.push(Layer { path: format!("{path}[0]"), kind });
        }
        Self(layers)
    }

    /// Total length of the headers in octets.
    pub fn octets(&self) -> usize {
        self.0.iter().map(|layer| layer.kind.octets()).sum()
    }

    /// Whether the first IP header is IPv6; `None`: no IP header.
    pub fn is_ipv6(&self) -> Option<bool> {
        self.0.iter().find_map(|layer| match layer.kind.role() {
            Some(Role::Ipv4) => Some(false),
            Some(Role::Ipv6) => Some(true),
            _ => None,
        })
    }

    /// The part of `ends` that the frame uses, with the rest set to 0.
    pub fn used(&self, ends: &Ends) -> Ends {
        let mut used = Ends::default();
        let mut first_ip = true;
        for (i, layer) in self.0.iter().enumerate() {
            let Kind::Header { header, settings, .. } = &layer.kind else { continue };
            let v6 = header.role == Role::Ipv6;
            for (field, _) in
                header.fields.iter().zip(settings).filter(|(_, setting)| setting.first().is_none())
            {
                match field.fill {
                    Fill::DeviceMac if i == 0 => used.src_mac = ends.src_mac,
                    Fill::GatewayMac if i == 0 => used.dst_mac = ends.dst_mac,
                    Fill::DeviceAddress if first_ip && v6 => used.src_ipv6 = ends.src_ipv6,
                    Fill::DeviceAddress if first_ip => used.src_ipv4 = ends.src_ipv4,
                    Fill::PeerAddress if first_ip && v6 => used.dst_ipv6 = ends.dst_ipv6,
                    Fill::PeerAddress if first_ip => used.dst_ipv4 = ends.dst_ipv4,
                    _ => {}
                }
            }
            first_ip &= !matches!(header.role, Role::Ipv4 | Role::Ipv6);
        }
        used
    }

    /// Whether the destination address of the first Ethernet header is computed.
    pub fn wants_gateway(&self) -> bool {
        match self.0.first().map(|layer| &layer.kind) {
            Some(Kind::Header { header, settings, .. }) if header.role == Role::Ethernet => {
                settings[0].first().is_none()
            }
            _ => false,
        }
    }

    /// Builds the frame with `longest` octets without FCS. If `shortest` is less, lengths and
    /// checksums must be ones that the engine can update.
    pub fn build(
        &self,
        shortest: usize,
        longest: usize,
        payload: &Payload,
        ends: &Ends,
        notes: &mut Notes,
    ) -> Built {
        let mut octets = vec![0; longest];
        let headers_len = self.octets();
        payload.fill(&mut octets[headers_len..]);
        let fixed = shortest == longest;
        let mut built = Built { octets, varying: Vec::new(), tags: Vec::new(), room: false };
        let mut sums = Vec::new();
        let mut end = longest;
        let mut at = 0;
        let mut starts = Vec::new();
        for (i, layer) in self.0.iter().enumerate() {
            starts.push(at);
            // An inner Ethernet frame has its own FCS, which the lengths of headers in it exclude.
            if i > 0 && fixed && layer.kind.role() == Some(Role::Ethernet) {
                end = end.saturating_sub(FCS).max(headers_len);
            }
            match &layer.kind {
                Kind::Custom { octets, tags } => {
                    built.octets[at..at + octets.len()].copy_from_slice(octets);
                    for (name, offset, length) in tags {
                        let (bit, path) = (at * 8 + offset, layer.path.clone());
                        built.tags.push(Tag {
                            name: name.clone(),
                            path,
                            bit,
                            bits: *length,
                            varying: None,
                        });
                    }
                }
                Kind::Header { header, settings, more } => {
                    let place = Place { layers: &self.0, index: i, at, end, ends };
                    place.write(header, settings, more, &mut built);
                    if let Some(sum) = place.sum(header, settings, &starts) {
                        sums.push(sum);
                    }
                }
            }
            at += layer.kind.octets();
        }
        for sum in sums.iter().rev() {
            sum.fill(&mut built.octets);
        }
        self.check(&mut built, &sums, shortest, notes);
        built
    }

    /// Checks that the engine can update the checksums of a varying frame, and that a signature
    /// fits.
    fn check(&self, built: &mut Built, sums: &[Sum], shortest: usize, notes: &mut Notes) {
        let frame = Frame::dissect(built.octets.clone());
        let used = built.varying.iter().map(|v| (v.bit + v.bits).div_ceil(8)).max().unwrap_or(0);
        built.room = frame.trailer == 0
            && shortest >= frame.payload.max(used).max(self.octets()) + SIGNATURE;
        for sum in sums.iter().filter(|sum| sum.right) {
            if frame.checksums.iter().any(|kept| kept.at == sum.at) {
                continue;
            }
            let covered = |v: &&Varying| sum.covers(v.bit / 8, (v.bit + v.bits).div_ceil(8));
            if let Some(varying) = built.varying.iter().find(covered) {
                let path = &varying.path;
                notes.problem(
                    path,
                    format!(
                        "not supported: varying values under the checksum of {}, after other \
                         headers",
                        sum.path
                    ),
                );
            } else if shortest != built.octets.len() {
                notes.problem(
                    &sum.path,
                    "not supported: a checksum over varying sizes, after other headers",
                );
            } else if built.room && sum.covers(built.octets.len() - SIGNATURE, built.octets.len()) {
                // The signature would invalidate this checksum.
                built.room = false;
            }
        }
    }
}

impl Kind {
    fn read(node: &Node<'_>, notes: &mut Notes) -> Option<Self> {
        let names: Vec<&'static str> = HEADERS
            .iter()
            .map(|h| h.name)
            .chain(["custom"])
            .chain(UNSUPPORTED.iter().map(|u| u.0))
            .collect();
        node.known(&[names.as_slice(), &["choice"]].concat(), notes);
        let (name, inner) = node.member(&names, Some("ethernet"), notes)?;
        if let Some((_, why)) = UNSUPPORTED.iter().find(|u| u.0 == name) {
            notes.unsupported(&inner, why);
            return None;
        }
        match HEADERS.iter().find(|header| header.name == name) {
            Some(header) => Some(Self::header(header, &inner, notes)),
            None => Self::custom(&inner, notes),
        }
    }

    fn custom(node: &Node<'_>, notes: &mut Notes) -> Option<Self> {
        node.known(&["bytes", "metric_tags"], notes);
        let text = node.needed_text("bytes", notes)?;
        let Some(octets) = hex(text).filter(|octets| !octets.is_empty()) else {
            notes.problem(
                &node.at("bytes").path,
                format!("found {}, expected pairs of hex digits", brief(node.at("bytes").value)),
            );
            return None;
        };
        let mut tags = Vec::new();
        for tag in node.list("metric_tags", notes) {
            tag.known(&["name", "offset", "length"], notes);
            let bits = octets.len() as u64 * 8;
            let Some(name) = tag.needed_text("name", notes) else { continue };
            let offset = tag.uint("offset", bits - 1, notes).unwrap_or(0);
            let length = tag.uint("length", bits, notes).unwrap_or(1);
            if length == 0 || length > 128 || offset + length > bits {
                notes.problem(
                    &tag.path,
                    format!("expected 1 to 128 bits within the available {bits}"),
                );
                continue;
            }
            tags.push((name.to_owned(), offset as usize, length as usize));
        }
        Some(Self::Custom { octets, tags })
    }

    fn header(header: &'static Header, node: &Node<'_>, notes: &mut Notes) -> Self {
        let chosen = header.choice.as_ref().map(|choice| {
            let at = if choice.at.is_empty() { node.clone() } else { node.at(choice.at) };
            at.known(&[choice.of, &["choice"]].concat(), notes);
            at.choice(choice.of, Some(choice.default), notes).unwrap_or(choice.default)
        });
        header.check_names(node, chosen, notes);
        let settings = header.fields.iter().map(|field| {
            if field.within.is_some() && field.within != chosen {
                return Setting::default();
            }
            // Most fields are unset; skip building their paths.
            if field.name.split('.').try_fold(node.value, |value, part| value.get(part)).is_none() {
                return Setting::default();
            }
            let at = field.name.split('.').fold(node.clone(), |node, part| node.at(part));
            Setting::read(&at, field, notes)
        });
        let settings = settings.collect();
        let more = header.more(node, notes);
        Self::Header { header, settings, more }
    }

    fn role(&self) -> Option<Role> {
        match self {
            Self::Header { header, .. } => Some(header.role),
            Self::Custom { .. } => None,
        }
    }

    fn octets(&self) -> usize {
        match self {
            Self::Header { header, settings, more } => header.fixed(settings) + more.len(),
            Self::Custom { octets, .. } => octets.len(),
        }
    }
}

impl Header {
    /// Reports members that are not in the schema, and unsupported ones.
    fn check_names(&self, node: &Node<'_>, chosen: Option<&str>, notes: &mut Notes) {
        let (base, own) =
            match chosen.filter(|_| self.choice.as_ref().is_some_and(|c| c.at.is_empty())) {
                Some(chosen) => (node.at(chosen), true),
                None => (node.clone(), false),
            };
        let name = |field: &Field| {
            let mut parts = field.name.split('.');
            if own { parts.nth(1) } else { parts.next() }.unwrap_or_default()
        };
        let mut names: Vec<&str> = self.fields.iter().map(name).collect();
        match self.role {
            Role::Ethernet => names.push("pfc_queue"),
            Role::Ipv4 => names.push("options"),
            Role::Ipv6 => names.push("dst_usids"),
            Role::Gtpv1 => names.push("extension_headers"),
            _ => {}
        }
        base.known(&names, notes);
        // Members of priority.tos and priority.dscp.
        if let Some(chosen) = chosen.filter(|_| !own) {
            let inner = self
                .choice
                .as_ref()
                .map_or_else(|| node.clone(), |choice| node.at(choice.at).at(chosen));
            let parts = |field: &'static Field| {
                field.name.split('.').nth(2).filter(|_| field.within == Some(chosen))
            };
            let names: Vec<&str> = self.fields.iter().filter_map(parts).collect();
            if !names.is_empty() {
                inner.known(&names, notes);
            }
        }
    }

    /// Octets after the fixed part.
    fn more(&self, node: &Node<'_>, notes: &mut Notes) -> Vec<u8> {
        match self.role {
            Role::Ethernet => {
                if let Some(queue) = node.get("pfc_queue") {
                    notes.warn(&queue.path, "has no effect: ports have no priority queues");
                }
                Vec::new()
            }
            Role::Ipv4 => ipv4_options(node, notes),
            Role::Ipv6 => {
                if let Some(usids) = node.get("dst_usids") {
                    notes.unsupported(&usids, "try the address as dst");
                }
                Vec::new()
            }
            Role::Gtpv1 => {
                let mut octets = Vec::new();
                for extension in node.list("extension_headers", notes) {
                    extension
                        .known(&["extension_length", "contents", "next_extension_header"], notes);
                    let mut one = |name: &'static str, bits: usize| {
                        let field = plain(name, bits);
                        let setting = Setting::read(&extension.at(name), &field, notes);
                        if matches!(setting.what, What::Varying(_)) || !setting.tags.is_empty() {
                            notes.unsupported(
                                &extension.at(name),
                                "varying values in an extension header; try one value",
                            );
                        }
                        let value = setting.first().unwrap_or(0);
                        octets.extend_from_slice(&value.to_be_bytes()[16 - bits / 8..]);
                    };
                    one("extension_length", 8);
                    one("contents", 48);
                    one("next_extension_header", 8);
                }
                octets
            }
            _ => Vec::new(),
        }
    }

    /// Length in octets of the fixed part and optional fields.
    fn fixed(&self, settings: &[Setting]) -> usize {
        let set = |name: &str| {
            let index = self.fields.iter().position(|field| field.name == name);
            index.is_some_and(|i| settings[i].first().unwrap_or(self.fields[i].default) != 0)
        };
        match self.role {
            Role::Gre if set("checksum_present") => 8,
            Role::Gtpv1 if ["e_flag", "s_flag", "pn_flag"].into_iter().any(set) => 12,
            Role::Gtpv2 if !set("teid_flag") => 8,
            _ => self.octets,
        }
    }
}

/// A numeric field that is in no header's field table.
fn plain(name: &'static str, bits: usize) -> Field {
    Field {
        name,
        within: None,
        bit: 0,
        bits,
        form: Form::Number,
        default: 0,
        fill: Fill::Default,
        auto: false,
        random: false,
    }
}

fn ipv4_options(node: &Node<'_>, notes: &mut Notes) -> Vec<u8> {
    let mut octets = Vec::new();
    for option in node.list("options", notes) {
        option.known(&["choice", "router_alert", "custom", "timestamp", "end_of_options"], notes);
        let choices = ["router_alert", "custom", "timestamp", "end_of_options"];
        let Some((choice, inner)) = option.member(&choices, Some("router_alert"), notes) else {
            continue;
        };
        match choice {
            "router_alert" => octets.extend_from_slice(&[148, 4, 0, 0]),
            "end_of_options" => octets.push(0),
            "custom" => {
                inner.known(&["type", "length", "value"], notes);
                let kind = inner.at("type");
                kind.known(&["copied_flag", "option_class", "option_number"], notes);
                let mut part = |name: &'static str, bits: usize| {
                    let setting = Setting::read(&kind.at(name), &plain(name, bits), notes);
                    if matches!(setting.what, What::Varying(_)) {
                        notes.unsupported(
                            &kind.at(name),
                            "varying values in an option; try one value",
                        );
                    }
                    setting.first().unwrap_or(0) as u8
                };
                let kind = part("copied_flag", 1) << 7
                    | part("option_class", 2) << 5
                    | part("option_number", 5);
                let value = inner.text("value", notes).unwrap_or("0000");
                let Some(value) = hex(value).filter(|value| value.len() <= 38) else {
                    notes
                        .problem(&inner.at("value").path, "expected up to 38 octets in hex digits");
                    continue;
                };
                let length = inner.at("length");
                length.known(&["choice", "auto", "value"], notes);
                let given = match length.choice(&["auto", "value"], Some("auto"), notes) {
                    Some("value") => length.uint("value", 255, notes).map(|length| length as u8),
                    _ => None,
                };
                octets.extend_from_slice(&[kind, given.unwrap_or(value.len() as u8 + 2)]);
                octets.extend_from_slice(&value);
            }
            _ => notes.unsupported(&inner, "try the octets of the option as custom"),
        }
    }
    octets.resize(octets.len().next_multiple_of(4), 0);
    if octets.len() > 40 {
        notes.problem(
            &node.at("options").path,
            format!("{} octets of options, at most 40", octets.len()),
        );
        octets.truncate(40);
    }
    octets
}

/// A header with its position in the frame.
struct Place<'a> {
    layers: &'a [Layer],
    index: usize,
    at: usize,
    /// End of the octets that this header's length covers.
    end: usize,
    ends: &'a Ends,
}

impl Place<'_> {
    fn write(&self, header: &'static Header, settings: &[Setting], more: &[u8], built: &mut Built) {
        let fixed = header.fixed(settings);
        // If a header omits optional fields, a later field overwrites the bits of an earlier one:
        // see `bit_of`.
        for (field, setting) in header.fields.iter().zip(settings) {
            let Some(bit) = self.bit_of(header, field, fixed) else { continue };
            if field.form == Form::Checksum {
                if let What::Value(value) = setting.what {
                    put(&mut built.octets, bit, field.bits, value);
                }
                continue;
            }
            let unset =
                field.within.is_some() && setting.what == What::Nothing && field.default == 0;
            let front = self.front_tpid(header, field, setting);
            let (bit, value) = match (front, setting.first()) {
                // The TPID before the tag is already written; the one after the tag depends on the
                // next header.
                (true, _) | (false, None) if !unset => {
                    (bit, self.filled(header, field, fixed + more.len()))
                }
                (_, Some(value)) => (bit, value),
                _ => continue,
            };
            put(&mut built.octets, bit, field.bits, value);
            let varying = match &setting.what {
                What::Varying(law) if !front => {
                    let path =
                        format!("{}.{}.{}", self.layers[self.index].path, header.name, field.name);
                    built.varying.push(Varying { bit, bits: field.bits, law: law.clone(), path });
                    Some(built.varying.len() - 1)
                }
                _ => None,
            };
            for tag in &setting.tags {
                let path = format!(
                    "{}.{}.{}.metric_tags",
                    self.layers[self.index].path, header.name, field.name
                );
                let (name, bit, bits) = (tag.name.clone(), bit + tag.offset, tag.length);
                built.tags.push(Tag { name, path, bit, bits, varying });
            }
        }
        built.octets[self.at + fixed..self.at + fixed + more.len()].copy_from_slice(more);
    }

    /// `None` if the header omits the field.
    fn bit_of(&self, header: &Header, field: &Field, fixed: usize) -> Option<usize> {
        let bit = match (header.role, field.name) {
            // If there is no TEID, the fields after it move up.
            (Role::Gtpv2, "teid") if fixed == 8 => return None,
            (Role::Gtpv2, "sequence_number" | "spare2") if fixed == 8 => field.bit - 32,
            _ => field.bit,
        };
        (bit + field.bits <= fixed * 8).then_some(self.at * 8 + bit)
    }

    /// Whether the tag's `tpid` setting goes into the type field before the tag.
    fn front_tpid(&self, header: &Header, field: &Field, setting: &Setting) -> bool {
        header.role == Role::Vlan
            && field.name == "tpid"
            && matches!(setting.what, What::Value(v) if TPIDS.contains(&v) || v == 0xffff)
    }

    fn next(&self) -> Option<Role> {
        self.layers.get(self.index + 1).and_then(|layer| layer.kind.role())
    }

    /// The computed or default value of an unset field.
    fn filled(&self, header: &Header, field: &Field, octets: usize) -> u128 {
        let from_here = |skip: usize| (self.end - self.at).saturating_sub(skip) as u128;
        let outermost = self.index == 0;
        let first_ip = || {
            let ip = |layer: &Layer| matches!(layer.kind.role(), Some(Role::Ipv4 | Role::Ipv6));
            !self.layers[..self.index].iter().any(ip)
        };
        let v6 = header.role == Role::Ipv6;
        match field.fill {
            Fill::DeviceMac if outermost => self.ends.src_mac,
            Fill::GatewayMac if outermost => self.ends.dst_mac,
            Fill::DeviceAddress if first_ip() => {
                if v6 {
                    self.ends.src_ipv6
                } else {
                    self.ends.src_ipv4
                }
            }
            Fill::PeerAddress if first_ip() => {
                if v6 {
                    self.ends.dst_ipv6
                } else {
                    self.ends.dst_ipv4
                }
            }
            Fill::Default
            | Fill::DeviceMac
            | Fill::GatewayMac
            | Fill::DeviceAddress
            | Fill::PeerAddress => field.default,
            Fill::EtherType => self.next_type().unwrap_or(field.default),
            Fill::Protocol => match self.next() {
                Some(Role::Icmp) => 1,
                Some(Role::Igmp) => 2,
                Some(Role::Ipv4) => 4,
                Some(Role::Tcp) => 6,
                Some(Role::Udp) => 17,
                Some(Role::Ipv6) => 41,
                Some(Role::Gre) => 47,
                Some(Role::Icmpv6) => 58,
                Some(Role::Mpls) => 137,
                Some(Role::Ethernet) => 143,
                _ => field.default,
            },
            Fill::PppProtocol => match self.next() {
                Some(Role::Ipv4) => 0x0021,
                Some(Role::Ipv6) => 0x0057,
                Some(Role::Mpls) => 0x0281,
                _ => field.default,
            },
            Fill::Words => (octets / 4) as u128,
            Fill::Length => from_here(0),
            Fill::After(skip) => from_here(skip),
            Fill::UdpPort => match self.next() {
                Some(Role::Vxlan) => 4789,
                Some(Role::Gtpv1) => 2152,
                Some(Role::Gtpv2) => 2123,
                _ => field.default,
            },
            Fill::Bottom => u128::from(self.next() != Some(Role::Mpls)),
        }
    }

    fn next_type(&self) -> Option<u128> {
        let Kind::Header { header, settings, .. } = &self.layers.get(self.index + 1)?.kind else {
            return None;
        };
        Some(match header.role {
            Role::Vlan => match settings.last()?.what {
                What::Value(tpid) if TPIDS.contains(&tpid) => tpid,
                _ => 0x8100,
            },
            Role::Ipv4 => 0x0800,
            Role::Arp => 0x0806,
            Role::Ethernet => 0x6558,
            Role::Ipv6 => 0x86dd,
            Role::Mpls => 0x8847,
            _ => return None,
        })
    }

    /// The checksum of this header.
    fn sum(&self, header: &Header, settings: &[Setting], starts: &[usize]) -> Option<Sum> {
        let index = header.fields.iter().position(|field| field.form == Form::Checksum)?;
        let field = &header.fields[index];
        let fixed = header.fixed(settings);
        let bit = self.bit_of(header, field, fixed)?;
        if matches!(settings[index].what, What::Value(_)) {
            return None;
        }
        let own = self.layers[self.index].kind.octets();
        let (to, protocol) = match header.role {
            Role::Ipv4 => (self.at + own, None),
            Role::Tcp => (self.end, Some(6)),
            Role::Udp => (self.end, Some(17)),
            Role::Icmpv6 => (self.end, Some(58)),
            _ => (self.end, None),
        };
        let pseudo = match protocol {
            None => None,
            Some(protocol) => {
                let ip = self.layers[..self.index].iter().zip(starts).rev();
                let range = ip.filter_map(|(layer, at)| match layer.kind.role()? {
                    Role::Ipv4 => Some((at + 12, at + 20)),
                    Role::Ipv6 => Some((at + 8, at + 40)),
                    _ => None,
                });
                // Without addresses, there is no pseudo-header to include.
                Some((range.into_iter().next()?, protocol))
            }
        };
        let path = format!("{}.{}", self.layers[self.index].path, header.name);
        let right = settings[index].what != What::BadChecksum;
        Some(Sum {
            at: bit / 8,
            from: self.at,
            to,
            pseudo,
            udp: header.role == Role::Udp,
            right,
            path,
        })
    }
}

/// An Internet checksum (RFC 1071).
struct Sum {
    at: usize,
    from: usize,
    to: usize,
    pseudo: Option<((usize, usize), u64)>,
    udp: bool,
    right: bool,
    path: String,
}

impl Sum {
    fn fill(&self, octets: &mut [u8]) {
        octets[self.at..self.at + 2].fill(0);
        let mut sum = checksum::sum(&octets[self.from..self.to]);
        if let Some(((from, to), protocol)) = self.pseudo {
            sum += checksum::sum(&octets[from..to]) + protocol + (self.to - self.from) as u64;
        }
        let right = match !checksum::fold(sum) {
            0 if self.udp => 0xffff,
            right => right,
        };
        // A wrong checksum is the right one plus 1, but never 0, which means no checksum.
        let value = if self.right { right } else { right.wrapping_add(1).max(1) };
        octets[self.at..self.at + 2].copy_from_slice(&value.to_be_bytes());
    }

    fn covers(&self, from: usize, to: usize) -> bool {
        let pseudo = self.pseudo.map(|(range, _)| range);
        [Some((self.from, self.to)), pseudo]
            .into_iter()
            .flatten()
            .any(|(start, end)| from < end && start < to)
    }
}

impl Varying {
    /// The field as the profile identifies it: by name if the engine knows it, otherwise by its
    /// offset. `None`: not supported as a variable.
    pub fn vary(&self, law: &Law, frame: &Frame) -> Option<Vary> {
        let named = |frame: &Frame| {
            let holds = |layer: &&LayerAt| {
                (layer.offset * 8..(layer.offset + layer.len) * 8).contains(&self.bit)
            };
            frame.layers.iter().filter(holds).find_map(|layer| {
                let index = frame
                    .layers
                    .iter()
                    .filter(|l| l.header.name == layer.header.name && l.offset < layer.offset);
                let (name, index) = (layer.header.name, index.count());
                layer.header.fields.iter().find_map(|field| {
                    let text = if index == 0 {
                        format!("{name}.{}", field.name)
                    } else {
                        format!("{name}[{index}].{}", field.name)
                    };
                    let at = frame.field(&text).ok()?;
                    ((at.bit, at.bits) == (self.bit, self.bits)).then_some(text)
                })
            })
        };
        let field = match named(frame) {
            Some(name) => FieldRef::Name(name),
            None => {
                let offset = self.bit / 8;
                let octets = (self.bit + self.bits).div_ceil(8) - offset;
                if octets > 8 {
                    return None;
                }
                let low = (offset + octets) * 8 - self.bit - self.bits;
                let mask = if self.bits >= 64 { u64::MAX } else { ((1 << self.bits) - 1) << low };
                FieldRef::Offset { offset, octets, mask }
            }
        };
        Some(Vary { field, op: law.op(), ..Vary::default() })
    }
}

/// Parses hex digits; allows `0x`, spaces and colons. `None` for an odd number of digits.
pub(crate) fn hex(text: &str) -> Option<Vec<u8>> {
    let text = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
    let digits: Vec<u8> = text
        .chars()
        .filter(|c| !matches!(c, ' ' | ':'))
        .map(|c| c.to_digit(16).map(|d| d as u8))
        .collect::<Option<_>>()?;
    digits
        .len()
        .is_multiple_of(2)
        .then(|| digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// Writes the low `bits` bits of `value` at bit offset `at`.
pub(crate) fn put(octets: &mut [u8], at: usize, bits: usize, value: u128) {
    for i in 0..bits {
        let (octet, mask) = ((at + i) / 8, 0x80 >> ((at + i) % 8));
        if value >> (bits - 1 - i) & 1 == 1 {
            octets[octet] |= mask;
        } else {
            octets[octet] &= !mask;
        }
    }
}

/// Reads `bits` bits (128 at most) at bit offset `at`.
pub(crate) fn get(octets: &[u8], at: usize, bits: usize) -> u128 {
    (at..at + bits)
        .fold(0, |value, bit| value << 1 | u128::from(octets[bit / 8] >> (7 - bit % 8) & 1))
}
