//! Lists the fields of a frame, and finds the packet that builds a given frame.

use std::io;

use crate::bits::get;
use crate::build::MIN_FRAME;
use crate::frame::{Frame, LayerAt};
use crate::header::{FieldDef, FieldKind, HeaderDef, Presence, Proto, find};
use crate::packet::{Content, Layer, Opt, Packet, Value};
use crate::syntax::MAX_PAYLOAD;

/// A field of a layer, with its value in a frame.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldValue {
    /// Index into [`HeaderDef::fields`].
    pub index: usize,
    /// Offset of the most significant bit from the start of the frame.
    pub bit: usize,
    pub bits: usize,
    /// `None`: a list of options.
    pub value: Option<u128>,
    /// As in the packet text.
    pub text: String,
}

impl Frame {
    /// The fields of layer `i` in the order of the frame, without overlap: among fields that share
    /// bits, those that `packet` sets, otherwise the smaller ones. Truncated fields are left out.
    ///
    /// ```
    /// # use squall_wire::Packet;
    /// let packet = Packet::parse("eth/ipv4(ttl=3)/udp").unwrap();
    /// let frame = packet.build(None, &|_| unreachable!(), 0).unwrap();
    /// let fields = frame.fields(1, Some(&packet.layers[1]));
    /// let ttl = fields.iter().find(|f| frame.layers[1].header.fields[f.index].name == "ttl").unwrap();
    /// assert_eq!((ttl.bit, ttl.bits, ttl.value, ttl.text.as_str()), ((14 + 8) * 8, 8, Some(3), "3"));
    /// ```
    ///
    /// # Panics
    /// If there is no such layer.
    pub fn fields(&self, i: usize, packet: Option<&Layer>) -> Vec<FieldValue> {
        let LayerAt { header, offset, len } = self.layers[i];
        let Some(&first) = self.bytes.get(offset) else { return Vec::new() };
        let end = (offset + len).min(self.bytes.len());
        let is_set = |index: usize| packet.is_some_and(|layer| layer.value(index).is_some());
        let mut fields: Vec<FieldValue> = header
            .distinct(first, is_set)
            .into_iter()
            .filter_map(|index| {
                let field = &header.fields[index];
                let bit = header.bit_of(field, offset, first)?;
                (bit + field.bits <= end * 8).then(|| {
                    let value = get(&self.bytes, bit, field.bits);
                    let text = field.kind.format(value);
                    FieldValue { index, bit, bits: field.bits, value: Some(value), text }
                })
            })
            .collect();
        let list = offset + header.min_len + header.optional_len(first);
        if let Some((index, set)) = header.list(first)
            && list < end
        {
            let octets = &self.bytes[list..end];
            let options: Vec<String> = set.read(octets).iter().map(Opt::to_string).collect();
            let text = format!("[{}]", options.join(","));
            let (bit, bits) = (list * 8, octets.len() * 8);
            fields.push(FieldValue { index, bit, bits, value: None, text });
        }
        fields.sort_by_key(|field| field.bit);
        fields
    }
}

impl Packet {
    /// The packet whose natural frame is `bytes`, except for zeros that pad it to 60 octets. Leaves
    /// out lengths, checksums and numbers of headers with the value that would be filled in.
    /// `None`: the syntax cannot express it; [`Packet::of_octets`] keeps it as octets.
    ///
    /// ```
    /// # use squall_wire::Packet;
    /// let none = |_: &str| unreachable!("no file is named");
    /// let text = r#"eth/ipv4(ttl=3,dst=48.0.0.1)/tcp(dport=80,flags=S,options=[mss(1460)])/text("hello")"#;
    /// let frame = Packet::parse(text).unwrap().build(None, &none, 0).unwrap();
    /// assert_eq!(Packet::of_frame(&frame.bytes).unwrap().to_string(), text.replace("flags=S,", ""));
    /// ```
    pub fn of_frame(bytes: &[u8]) -> Option<Self> {
        let frame = Frame::dissect(bytes.to_vec());
        // Octets beyond the lengths in the headers may be padding or payload; a header that cannot
        // be expressed may be payload.
        let tries = |n: usize| {
            let end = |trailer: usize| bytes.len() - trailer;
            let counted = if n == frame.layers.len() { frame.trailer } else { 0 };
            rebuild(&frame, n, end(counted))
                .or_else(|| rebuild(&frame, n, end(0)).filter(|_| counted > 0))
        };
        (1..=frame.layers.len()).rev().take(MAX_TRIES).find_map(tries)
    }

    /// A packet with exactly these octets.
    pub fn of_octets(bytes: &[u8]) -> Self {
        Self { layers: vec![payload("raw", Content::Octets(bytes.to_vec()))] }
    }
}

/// Maximum number of innermost layers that are tried as payload.
const MAX_TRIES: usize = 8;

impl HeaderDef {
    /// Indexes of fields that exist in a header with this first octet; no two of them share a bit.
    fn distinct(&self, first: u8, is_set: impl Fn(usize) -> bool) -> Vec<usize> {
        let place = |i: &usize| {
            self.fields[*i].bits > 0 && self.bit_of(&self.fields[*i], 8, first).is_some()
        };
        let mut all: Vec<usize> = (0..self.fields.len()).filter(place).collect();
        // In these bits an echo has an identifier, and other ICMP messages have other fields.
        let echo = match self.proto {
            Proto::Icmp => matches!(first, 0 | 8),
            Proto::Icmpv6 => matches!(first, 128 | 129),
            _ => true,
        };
        // In these bits a report of IGMPv3 or MLDv2 has the number of records.
        let report = match self.proto {
            Proto::Igmp => first == 0x22,
            Proto::Icmpv6 => first == 143,
            _ => false,
        };
        let fits = |i: usize| match self.fields[i].name {
            "rest" => !echo && !report,
            "count" => report,
            _ => false,
        };
        all.sort_by_key(|&i| (!is_set(i), !fits(i), self.parts(i) > 1));
        let mut taken: Vec<usize> = Vec::new();
        for i in all {
            if !taken.iter().any(|&other| overlap(&self.fields[i], &self.fields[other])) {
                taken.push(i);
            }
        }
        taken
    }

    /// Number of other fields inside field `i`.
    fn parts(&self, i: usize) -> usize {
        let whole = &self.fields[i];
        let inside = |part: &FieldDef| {
            part.bit >= whole.bit && part.bit + part.bits <= whole.bit + whole.bits
        };
        let smaller =
            |part: &&FieldDef| part.bits > 0 && part.bits < whole.bits && overlap(part, whole);
        self.fields.iter().filter(smaller).filter(|part| inside(part)).count()
    }

    /// Names of the fields that share bits with field `i`.
    pub fn shares_bits(&self, i: usize) -> impl Iterator<Item = &'static str> {
        let this = &self.fields[i];
        let others = self.fields.iter().enumerate().filter(move |(j, _)| *j != i);
        others.filter(move |(_, other)| overlap(this, other)).map(|(_, other)| other.name)
    }
}

impl Layer {
    /// Whether the text sets field `index`; false if it is left out or `auto`.
    pub fn sets(&self, index: usize) -> bool {
        self.value(index).is_some_and(|value| *value != Value::Auto)
    }

    /// As [`Layer::sets`], by the field's name.
    pub fn sets_field(&self, name: &str) -> bool {
        self.header.fields.iter().position(|of| of.name == name).is_some_and(|at| self.sets(at))
    }
}

fn overlap(a: &FieldDef, b: &FieldDef) -> bool {
    let always = a.presence == Presence::Always && b.presence == Presence::Always;
    always && a.bit < b.bit + b.bits && b.bit < a.bit + a.bits
}

fn payload(name: &str, content: Content) -> Layer {
    Layer { header: find(name).expect("the table has the payload"), content }
}

/// The first `n` layers of `frame`, with the rest up to octet `end` as payload.
fn rebuild(frame: &Frame, n: usize, end: usize) -> Option<Packet> {
    let after = frame.layers.get(n - 1).map(|last| last.offset + last.len)?;
    let ends = frame.layers[..n].iter().map(|at| at.header.end_octets()).sum::<usize>();
    let octets_end = frame.bytes.len() - frame.trailer;
    if octets_end < after + ends {
        return None;
    }
    let end = if ends > 0 { octets_end } else { end };
    let mut layers: Vec<Layer> = frame.layers[..n]
        .iter()
        .enumerate()
        .map(|(number, at)| {
            let first = *frame.bytes.get(at.offset)?;
            let mut set = Vec::new();
            for (i, field) in at.header.fields.iter().enumerate() {
                // A wrong CRC is kept as a number.
                if field.presence == Presence::End && frame.crcs.is_empty() {
                    let number = get(&frame.bytes, 8 * end - field.bits, field.bits);
                    set.push((i, Value::Number(number)));
                }
                let optional =
                    matches!(field.presence, Presence::Flag { .. } | Presence::FirstOctet(_));
                let Some(bit) = at.header.bit_of(field, at.offset, first).filter(|_| optional)
                else {
                    continue;
                };
                let right = frame.checksums.iter().any(|checksum| checksum.at * 8 == bit);
                match get(&frame.bytes, bit, field.bits) {
                    _ if right => set.push((i, Value::Auto)),
                    // The other field implies its presence.
                    0 if set.iter().any(|&(other, _): &(usize, _)| {
                        at.header.fields[other].presence == field.presence
                    }) => {}
                    value => set.push((i, Value::Number(value))),
                }
            }
            if let Some((i, kinds)) = at.header.list(first) {
                let octets = frame.bytes.get(
                    at.offset + at.header.min_len + at.header.optional_len(first)
                        ..at.offset + at.len,
                )?;
                set.push((i, Value::Options(kinds.read(octets))));
                // In front of IGMP, an omitted list means Router Alert, so an empty list must be
                // written.
                let implied = frame.layers[..n]
                    .get(number + 1)
                    .is_some_and(|next| next.header.proto == Proto::Igmp)
                    || !at.header.usual.is_empty();
                set.retain(|(_, value)| implied || *value != Value::Options(Vec::new()));
            }
            set.sort_by_key(|(i, _)| *i);
            Some(Layer { header: at.header, content: Content::Fields(set) })
        })
        .collect::<Option<_>>()?;
    // Zeros that no length field counts are padding of a short frame.
    let counted = (0..n).any(|i| frame.length_of(i).is_some());
    let rest = frame.bytes.get(after..end - ends)?;
    let written = match rest.iter().rposition(|&octet| octet != 0) {
        last if !counted && frame.bytes.len() <= MIN_FRAME => last.map_or(0, |last| last + 1),
        _ => rest.len(),
    };
    layers.extend(payload_of(&rest[..written]));
    let mut packet = Packet { layers };
    let load = |_: &str| Err(io::Error::other("no payload of a frame is a file"));
    // A value can determine how others are filled in, so several passes are needed; checksums come
    // last.
    for filled in [Filled::No, Filled::Length, Filled::Checksum, Filled::Checksum] {
        let built = packet.build(None, &load, 0).ok()?;
        if is_same(&built.bytes, &frame.bytes) {
            packet.forget_implied();
            return Some(packet);
        }
        (0..n).for_each(|i| set_what_differs(&mut packet, frame, &built, i, filled));
    }
    let built = packet.build(None, &load, 0).ok()?;
    is_same(&built.bytes, &frame.bytes).then(|| {
        packet.forget_implied();
        packet
    })
}

/// Whether `built` is `wanted`, possibly followed by zero padding.
fn is_same(built: &[u8], wanted: &[u8]) -> bool {
    built
        .split_at_checked(wanted.len())
        .is_some_and(|(a, zeros)| a == wanted && zeros.iter().all(|&octet| octet == 0))
}

/// How a field is filled in.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Filled {
    No,
    Length,
    Checksum,
}

/// Sets the fields of layer `i` that are filled in by `filled` or earlier and differ in `built`,
/// the frame of `packet`, to their values in `frame`.
fn set_what_differs(packet: &mut Packet, frame: &Frame, built: &Frame, i: usize, filled: Filled) {
    let (Some(at), Some(there)) = (frame.layers.get(i), built.layers.get(i)) else { return };
    let (Some(&first), Some(&other)) = (frame.bytes.get(at.offset), built.bytes.get(there.offset))
    else {
        return;
    };
    let Content::Fields(set) = &mut packet.layers[i].content else { return };
    for index in at.header.distinct(first, |index| set.iter().any(|(i, _)| *i == index)) {
        let field = &at.header.fields[index];
        let by = match field.kind {
            FieldKind::Length => Filled::Length,
            FieldKind::Checksum => Filled::Checksum,
            _ => Filled::No,
        };
        if by > filled {
            continue;
        }
        let Some(bit) = at
            .header
            .bit_of(field, at.offset, first)
            .filter(|bit| bit + field.bits <= 8 * frame.bytes.len())
        else {
            continue;
        };
        let value = get(&frame.bytes, bit, field.bits);
        let is_there = there
            .header
            .bit_of(field, there.offset, other)
            .filter(|bit| bit + field.bits <= 8 * built.bytes.len());
        if is_there.is_some_and(|bit| get(&built.bytes, bit, field.bits) == value) {
            continue;
        }
        // A correct checksum that the builder would omit must be set explicitly.
        let right = frame.checksums.iter().any(|checksum| checksum.at * 8 == bit);
        let auto = right && by == Filled::Checksum && !set.iter().any(|(i, _)| *i == index);
        set.retain(|(i, _)| *i != index);
        set.push((index, if auto { Value::Auto } else { Value::Number(value) }));
    }
    set.sort_by_key(|(i, _)| *i);
}

/// Payload in the form that a person would choose.
fn payload_of(octets: &[u8]) -> Option<Layer> {
    let counts = || octets.iter().enumerate().all(|(i, &octet)| octet == i as u8);
    if octets.is_empty() || octets.len() > MAX_PAYLOAD {
        return None;
    }
    let printable = |c: char| !c.is_control() || matches!(c, '\n' | '\r' | '\t');
    if octets.len() > 8 && octets.iter().all(|&octet| octet == 0) {
        return Some(payload("zeros", Content::Count(Some(octets.len()))));
    }
    if octets.len() > 8 && counts() {
        return Some(payload("inc", Content::Count(Some(octets.len()))));
    }
    match std::str::from_utf8(octets) {
        Ok(text) if text.chars().all(printable) => {
            Some(payload("text", Content::Text(text.into())))
        }
        _ => Some(payload("hex", Content::Octets(octets.to_vec()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(text: &str) -> Frame {
        Packet::parse(text).unwrap().build(None, &|_| unreachable!(), 7).unwrap()
    }

    #[test]
    fn a_frames_text_is_concise() {
        for text in [
            "eth",
            "eth/arp(op=reply)",
            "eth/vlan(id=5)/vlan(id=7)/ipv4(dscp=ef)/udp(dport=53)/hex(00ff)",
            "eth/ipv4(flags=DF)/tcp(dport=80,flags=S|A,options=[mss(1460),nop,wscale(7),\
             timestamp(1,2)])/text(\"GET / HTTP/1.1\\r\\n\")",
            "eth/ipv6/udp(checksum=0x0001)/inc(40)",
            "eth/ipv4/udp/vxlan(vni=7)/eth/ipv4/icmp(id=3)/zeros(56)",
            "eth/ipv4/udp(checksum=auto)/vxlan/eth/ipv6/icmpv6(type=neighbor-solicit,target=2001:\
             2::9)",
            "eth/mpls(label=20)/mpls/ipv4(length=9000)/udp",
            "eth/ipv6/hopopts(options=[router-alert(7)])/routing(segments_left=1,addresses=[2001:\
             2::3])/tcp",
            "eth/ipv4/gre(key=9,seq=1)/ipv4/igmp",
            "eth/ipv4(options=[])/igmp",
            "eth/vlan(id=5)/arp",
            "eth/ipv4/gre(checksum=auto)/ipv4/udp",
            "eth(type=ptp)/hex(0207)",
        ] {
            let packet = Packet::of_frame(&frame(text).bytes).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(frame(&packet.to_string()).bytes, frame(text).bytes, "{text}: {packet}");
            // The text is no longer than the original, except for values that equal filled-in
            // defaults.
            assert!(packet.to_string().len() <= text.len() + 8, "{text}: {packet}");
        }
        assert_eq!(
            Packet::of_frame(&frame("eth/ipv4/udp(checksum=bad)").bytes)
                .unwrap()
                .to_string()
                .split('=')
                .next(),
            Some("eth/ipv4/udp(checksum")
        );
    }

    #[test]
    fn a_short_frames_text_leaves_out_padding() {
        let bytes = &frame("eth/ipv4/udp").bytes[..42];
        assert_eq!(Packet::of_frame(bytes).unwrap().to_string(), "eth/ipv4/udp");
        assert_eq!(
            Packet::of_frame(&bytes[..41]).map(|p| p.to_string()[..37].to_owned()),
            Some("eth/ipv4(length=28,protocol=udp)/hex(".into())
        );
        assert_eq!(Packet::of_frame(&[1, 2, 3]), None);
        assert_eq!(Packet::of_octets(&[1, 2, 3]).to_string(), "raw(010203)");
    }

    #[test]
    fn fields_do_not_overlap_and_include_set_ones() {
        let packet = Packet::parse(
            "eth/ipv4(tos=4)/icmp(type=unreachable,mtu=1400)/ipv4/tcp(options=[mss(9)])",
        )
        .unwrap();
        let frame = packet.build(None, &|_| unreachable!(), 0).unwrap();
        for i in 0..frame.layers.len() {
            let (layer, fields) = (frame.layers[i], frame.fields(i, Some(&packet.layers[i])));
            assert_eq!(fields[0].bit, layer.offset * 8);
            assert!(fields.is_sorted_by(|a, b| a.bit + a.bits <= b.bit), "{fields:?}");
            let last = fields.last().unwrap();
            assert_eq!(last.bit + last.bits, (layer.offset + layer.len) * 8);
        }
        let names = |i: usize| -> Vec<&str> {
            frame
                .fields(i, Some(&packet.layers[i]))
                .iter()
                .map(|f| frame.layers[i].header.fields[f.index].name)
                .collect()
        };
        assert!(names(1).contains(&"tos") && !names(1).contains(&"dscp"));
        assert!(names(3).contains(&"dscp") && !names(3).contains(&"tos"));
        assert_eq!(names(2), ["type", "code", "checksum", "id", "mtu"]);
        assert_eq!(frame.fields(4, None).last().unwrap().text, "[mss(9)]");
    }
}
