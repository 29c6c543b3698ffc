//! Decodes a packet into the bits, value and text of each field.

use std::io;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use squall_units::FCS_LEN;
use squall_wire::{Frame, MAX_FRAME, Packet, parse_hex, to_hex};

use super::{
    Number, Problem,
    headers::{is_auto, kind, title},
};

/// A packet in one of its text formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketText<'a> {
    /// `eth/ipv4/udp`
    Layers(&'a str),
    /// The octets of a frame without FCS; see [`squall_wire::parse_hex`].
    Hex(&'a str),
    /// `Ether()/IP()/UDP()`
    Scapy(&'a str),
}

/// A packet, and the frame that it makes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PacketView {
    /// The packet as packet text; `raw(...)` if it has no other form.
    pub packet: String,
    /// Octets with FCS.
    pub length: usize,
    #[serde(flatten)]
    pub frame: FrameView,
    /// Why there is no frame, or not the requested one.
    pub problems: Vec<Problem>,
    pub notes: Vec<String>,
}

/// A frame, layer by layer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FrameView {
    /// Octets without FCS.
    pub hex: String,
    /// Each octet is in one of these.
    pub layers: Vec<LayerView>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LayerView {
    /// `ipv4`; `payload` for octets that belong to no layer of the packet, `padding` for those
    /// after its end.
    pub name: String,
    pub title: String,
    /// The layer as packet text; empty if it has none.
    pub text: String,
    /// The layer has no fields.
    pub payload: bool,
    /// Octets from the start of the frame.
    pub offset: usize,
    pub length: usize,
    /// In the order of the frame.
    pub fields: Vec<FieldView>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FieldView {
    pub name: String,
    /// The name in field programs: `ipv4.src`, `vlan[1].id`.
    pub path: String,
    pub title: String,
    /// Absent for options.
    pub value: Option<Number>,
    /// The value as in packet text.
    pub text: String,
    /// Offset from the start of the frame.
    pub bit_offset: usize,
    pub bits: usize,
    /// `int`, `mac`, `ipv4`, `ipv6`, `flags`, `hex` or `options`.
    pub kind: String,
    /// The value is filled in.
    pub auto: bool,
    /// The packet text sets the value.
    pub set: bool,
    pub unit: String,
    pub help: String,
}

/// Parses a packet and shows the frame that it describes, with `size` octets including the FCS if a
/// size is given. `load` reads the files that payload layers refer to.
///
/// ```
/// use squall_editor::{PacketText, packet};
///
/// let none = |path: &str| Err(std::io::Error::other(path.to_owned()));
/// let view = packet(PacketText::Layers("eth/ipv4(ttl=3)/udp/text(hello)"), None, &none);
/// let (ipv4, ttl) = (&view.frame.layers[1], 8 * (14 + 8));
/// assert!(ipv4.fields.iter().any(|field| field.bit_offset == ttl && field.text == "3" && field.set));
/// assert_eq!((view.length, view.frame.layers.last().unwrap().name.as_str()), (64, "padding"));
///
/// let wrong = packet(PacketText::Layers("eth/ipv5"), None, &none);
/// assert_eq!((wrong.problems[0].span, wrong.frame.hex.as_str()), (Some((4, 8)), ""));
/// ```
pub fn packet(
    text: PacketText<'_>,
    size: Option<usize>,
    load: &dyn Fn(&str) -> io::Result<Vec<u8>>,
) -> PacketView {
    let read = match text {
        PacketText::Layers(text) => Packet::parse(text)
            .map(|packet| (packet, Vec::new()))
            .map_err(|error| Problem::of_syntax(&error, text)),
        PacketText::Hex(text) => {
            parse_hex(text).map(|octets| of_octets(&octets)).map_err(Problem::from)
        }
        PacketText::Scapy(text) => squall_wire::scapy::parse(text)
            .map(|read| (read.packet, read.notes))
            .map_err(|error| Problem::of_syntax(&error, text)),
    };
    let (packet, notes) = match read {
        Ok(read) => read,
        Err(problem) => return PacketView { problems: vec![problem], ..PacketView::default() },
    };
    let mut view = PacketView { packet: packet.to_string(), notes, ..PacketView::default() };
    match build(&packet, size, load) {
        Ok(frame) => {
            view.length = frame.bytes.len() + FCS_LEN as usize;
            view.frame = layers(&frame, Some(&packet));
        }
        Err(problem) => view.problems.push(problem),
    }
    view
}

/// Decodes a frame.
pub fn show(octets: &[u8]) -> FrameView {
    layers(&Frame::dissect(octets.to_vec()), None)
}

/// The packet text that builds these octets, and notes for the user.
pub(super) fn of_octets(octets: &[u8]) -> (Packet, Vec<String>) {
    match Packet::of_frame(octets) {
        Some(packet) => (packet, Vec::new()),
        None => {
            let note =
                "these octets have no form as packet text: they are sent as they are".to_owned();
            (Packet::of_octets(octets), vec![note])
        }
    }
}

fn build(
    packet: &Packet,
    size: Option<usize>,
    load: &dyn Fn(&str) -> io::Result<Vec<u8>>,
) -> Result<Frame, Problem> {
    let len = match size {
        Some(size) if (64..=MAX_FRAME).contains(&size) => Some(size - FCS_LEN as usize),
        Some(size) => {
            return Err(Problem {
                path: "size".into(),
                ..Problem::new(
                    format!("size = {size} is not a frame length"),
                    format!("expected 64 to {MAX_FRAME} octets, with FCS"),
                )
            });
        }
        None => None,
    };
    packet
        .build(len, load, 1)
        .map_err(|error| Problem { message: error.to_string(), ..Problem::default() })
}

pub(super) fn layers(frame: &Frame, packet: Option<&Packet>) -> FrameView {
    let mut layers: Vec<LayerView> =
        (0..frame.layers.len()).map(|i| header(frame, packet, i)).collect();
    let counted = frame.bytes.len() - frame.trailer;
    let written = packet.map_or(&[][..], |packet| &packet.layers);
    let payloads: Vec<_> = written.iter().filter(|layer| layer.header.is_payload()).collect();
    let mut at = frame.payload;
    for (i, layer) in payloads.iter().enumerate() {
        // The last layer, or one of unknown length, extends to the end.
        let rest = counted.saturating_sub(at);
        let last = payloads[i + 1..].iter().all(|layer| layer.header.name == "truncate");
        let length = if layer.header.name == "truncate" {
            0
        } else if last {
            rest
        } else {
            layer.payload_len().unwrap_or(rest).min(rest)
        };
        // A frame given as octets has already been dissected, so its only layer here is the whole
        // frame.
        let (offset, length) =
            if layer.header.name == "raw" { (0, frame.bytes.len()) } else { (at, length) };
        let (name, title) = (layer.header.name.into(), layer.header.title.into());
        let text = layer.to_string();
        layers.push(LayerView {
            name,
            title,
            text,
            payload: true,
            offset,
            length,
            fields: Vec::new(),
        });
        at += length;
    }
    let mut rest = |name: &str, title: &str, offset: usize, end: usize| {
        if offset < end {
            let (name, title) = (name.into(), title.into());
            layers.push(LayerView {
                name,
                title,
                payload: true,
                offset,
                length: end - offset,
                ..LayerView::default()
            });
        }
    };
    rest("payload", "Payload", at, counted);
    rest("padding", "Padding after the packet", counted.max(frame.payload), frame.bytes.len());
    FrameView { hex: to_hex(&frame.bytes), layers }
}

fn header(frame: &Frame, packet: Option<&Packet>, i: usize) -> LayerView {
    let at = frame.layers[i];
    let written = packet
        .and_then(|packet| packet.layers.get(i))
        .filter(|layer| layer.header.name == at.header.name);
    let same = |layers: &[squall_wire::LayerAt]| {
        layers.iter().filter(|l| l.header.name == at.header.name).count()
    };
    let path = match (same(&frame.layers), same(&frame.layers[..i])) {
        (1, _) => at.header.name.to_owned(),
        (_, before) => format!("{}[{before}]", at.header.name),
    };
    let field = |value: squall_wire::FieldValue| {
        let def = &at.header.fields[value.index];
        let set = written.is_some_and(|layer| layer.sets(value.index));
        FieldView {
            name: def.name.into(),
            path: format!("{path}.{}", def.name),
            title: title(def).into(),
            value: value.value.map(Number::from),
            text: value.text,
            bit_offset: value.bit,
            bits: value.bits,
            kind: kind(def).into(),
            auto: is_auto(def) && written.is_some() && !set,
            set,
            unit: def.unit.into(),
            help: def.doc.into(),
        }
    };
    LayerView {
        name: at.header.name.into(),
        title: at.header.title.into(),
        text: written.map(ToString::to_string).unwrap_or_default(),
        payload: false,
        offset: at.offset,
        length: at.len,
        fields: frame.fields(i, written).into_iter().map(field).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: PacketText<'_>) -> PacketView {
        packet(text, None, &|path| Ok(path.as_bytes().to_vec()))
    }

    #[test]
    fn every_octet_is_in_one_layer_and_every_layer_has_its_text() {
        for text in [
            "eth/vlan(id=7)/ipv4/udp/text(\"a\")/hex(0102)/zeros(40)",
            "eth/ipv6/tcp(options=[mss(1460)])/file(\"body\")/inc(3)",
            "eth/ipv4(length=9000)/udp/inc/truncate(50)",
            "raw(010203040506010203040506080045)",
            "eth/arp",
        ] {
            let view = read(PacketText::Layers(text));
            assert!(view.problems.is_empty(), "{text}: {:?}", view.problems);
            let names: Vec<&str> = view
                .frame
                .layers
                .iter()
                .map(|l| l.text.as_str())
                .filter(|t| !t.is_empty())
                .collect();
            assert_eq!(names.join("/"), view.packet);
            if !text.starts_with("raw") {
                let octets: usize = view.frame.layers.iter().map(|layer| layer.length).sum();
                assert_eq!(octets * 2, view.frame.hex.len(), "{text}: {:#?}", view.frame.layers);
            }
        }
    }

    #[test]
    fn hex_becomes_packet_text_for_the_same_frame() {
        let first = read(PacketText::Layers("eth/ipv4(dst=48.0.0.1)/tcp(dport=80)/text(hello)"));
        let again = read(PacketText::Hex(&first.frame.hex));
        assert_eq!((again.packet, &again.frame.hex), (first.packet.clone(), &first.frame.hex));
        let strange = read(PacketText::Hex("0102"));
        assert!(strange.packet.starts_with("raw(0102") && strange.notes.len() == 1);
    }

    #[test]
    fn a_size_extends_the_payload_and_an_invalid_size_is_reported() {
        let load = |_: &str| Ok(Vec::new());
        let view = packet(PacketText::Layers("eth/ipv4/udp/text(ab)"), Some(128), &load);
        assert_eq!((view.length, view.frame.hex.len()), (128, 2 * 124));
        assert_eq!(packet(PacketText::Layers("eth"), Some(3), &load).problems[0].path, "size");
        let wrong = packet(
            PacketText::Layers("eth/ipv4(options=[rr(9)])/udp/text(\"é\")/ipv5"),
            None,
            &load,
        );
        assert_eq!(wrong.problems[0].span, Some((40, 44)));
    }

    #[test]
    fn fields_are_named_as_variations_name_them() {
        let view = read(PacketText::Layers("eth/vlan(id=7)/vlan(id=8)/ipv4/udp"));
        let id = view.frame.layers[2].fields.iter().find(|field| field.name == "id").unwrap();
        assert_eq!(
            (id.path.as_str(), id.value.clone(), id.bits),
            ("vlan[1].id", Some(Number::Small(8)), 12)
        );
        let checksum =
            view.frame.layers[3].fields.iter().find(|field| field.name == "checksum").unwrap();
        assert!(checksum.auto && !checksum.set);
    }
}
