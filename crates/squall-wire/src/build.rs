//! Converts packets to octets.

use std::io;

use squall_units::SplitMix64;

use crate::bits::put;
use crate::frame::{Frame, LayerAt};
use crate::header::{Extent, FieldDef, FieldKind, HeaderDef, Presence, Proto};
use crate::messages;
use crate::options::OptionSet;
use crate::packet::{BuildError, Content, Layer, Opt, Packet, Value};
use crate::syntax::{MAX_PAYLOAD, follows};
use crate::table::{ETH, TPID_S};

/// Length of the shortest Ethernet frame, without FCS.
pub(crate) const MIN_FRAME: usize = 60;

type Load<'a> = &'a dyn Fn(&str) -> io::Result<Vec<u8>>;

impl Packet {
    /// Builds the octets without FCS. `len` is the frame's length without FCS; the payload is
    /// extended or truncated to fit. If it is `None`, the frame has its natural length, padded with
    /// a trailer to 60. `load` reads the files that payloads refer to; `seed` feeds random
    /// payloads.
    ///
    /// A payload with the same seed does not depend on `len`: a shorter one is a prefix of a longer
    /// one. A `truncate(n)` layer cuts the finished frame to `n` octets, so it may be shorter than
    /// `len`.
    ///
    /// ```
    /// # use squall_wire::Packet;
    /// let packet = Packet::parse("eth/ipv4/udp/text(hello)").unwrap();
    /// let none = |_: &str| unreachable!("no file is named");
    /// let frame = packet.build(None, &none, 0).unwrap();
    /// assert_eq!((frame.bytes.len(), frame.payload, frame.trailer), (60, 42, 13));
    /// let frame = packet.build(Some(1514), &none, 0).unwrap();
    /// assert_eq!((frame.bytes.len(), frame.payload, frame.trailer), (1514, 42, 0));
    /// ```
    pub fn build(
        &self,
        len: Option<usize>,
        load: Load<'_>,
        seed: u64,
    ) -> Result<Frame, BuildError> {
        self.check()?;
        // Raw octets before a header count as a header of unknown type.
        let last = self.layers.iter().rposition(|layer| !layer.header.is_payload());
        let headers = last.map_or(0, |last| last + 1);
        let mut frame = if headers == 0 {
            self.raw(len, load, seed)?
        } else {
            self.layered(headers, len, load, seed)?
        };
        if let Some(n) = self.truncated() {
            frame.cut(n);
        }
        Ok(frame)
    }

    /// Repeats the parser's checks: `layers` is public and may have been changed.
    fn check(&self) -> Result<(), BuildError> {
        if self.layers.is_empty() {
            return Err(BuildError::Invalid("a packet without layers".into()));
        }
        let before = [None].into_iter().chain(self.layers.iter().map(Some));
        for (before, layer) in before.zip(&self.layers) {
            follows(before, layer).map_err(|(expected, hint)| {
                BuildError::Invalid(format!(
                    "found {}, expected {expected}; {hint}",
                    layer.header.name
                ))
            })?;
        }
        Ok(())
    }

    fn raw(&self, len: Option<usize>, load: Load<'_>, seed: u64) -> Result<Frame, BuildError> {
        let mut bytes = Vec::new();
        self.payload(0, &mut bytes, None, load, seed)?;
        let natural = bytes.len();
        match len {
            Some(len) => self.payload(
                0,
                {
                    bytes.clear();
                    &mut bytes
                },
                Some(natural.max(len)),
                load,
                seed,
            )?,
            None => bytes.resize(natural.max(MIN_FRAME), 0),
        }
        let Some(len) = len else { return Ok(Frame::dissect(bytes)) };
        // Dissect at the natural length first, so lengths and checksums that were correct follow
        // the new length.
        let longer = bytes.split_off(natural);
        let mut frame = Frame::dissect(bytes);
        frame.resize(len)?;
        if len > natural {
            frame.bytes[natural..].copy_from_slice(&longer);
            frame.fill_checksums();
        }
        Ok(frame)
    }

    fn layered(
        &self,
        headers: usize,
        len: Option<usize>,
        load: Load<'_>,
        seed: u64,
    ) -> Result<Frame, BuildError> {
        let mut bytes = Vec::with_capacity(len.unwrap_or(MIN_FRAME));
        let mut layers = Vec::with_capacity(headers);
        for i in 0..headers {
            let offset = bytes.len();
            self.header(i, &mut bytes)?;
            layers.push(LayerAt {
                header: self.layers[i].header,
                offset,
                len: bytes.len() - offset,
            });
        }
        let payload = bytes.len();
        let ends = layers.iter().map(|l| l.header.end_octets()).sum::<usize>();
        if let Some(len) = len.filter(|&len| len < payload + ends) {
            return Err(BuildError::TooShort { need: payload + ends, len });
        }
        self.payload(headers, &mut bytes, len.map(|len| len - ends), load, seed)?;
        bytes.resize(bytes.len() + ends, 0);
        let trailer = match len {
            Some(_) => 0,
            None => MIN_FRAME.saturating_sub(bytes.len()),
        };
        bytes.resize(bytes.len() + trailer, 0);
        let mut frame = Frame {
            bytes,
            layers,
            lengths: Vec::new(),
            checksums: Vec::new(),
            crcs: Vec::new(),
            payload,
            trailer,
        };
        self.fill_lengths(&mut frame)?;
        self.fill_checksums(&mut frame);
        Ok(frame)
    }

    /// Appends the header of layer `i`. Its 16-bit length and its checksum are filled in later.
    fn header(&self, i: usize, bytes: &mut Vec<u8>) -> Result<(), BuildError> {
        let layer = &self.layers[i];
        let header = layer.header;
        if let Content::Octets(octets) = &layer.content {
            bytes.extend_from_slice(octets);
            return Ok(());
        }
        let next = self.layers.get(i + 1).map(|l| l.header).filter(|h| !h.is_payload());
        let offset = bytes.len();
        bytes.resize(offset + header.min_len, 0);

        // First defaults, then values implied by other layers and fields, then explicit values. The
        // first octet is completed before optional fields, because it determines which of them
        // exist.
        let always = |f: &FieldDef| f.presence == Presence::Always && f.bits > 0;
        for f in header.fields.iter().filter(|f| always(f)) {
            let value = match &f.kind {
                FieldKind::Next(names) => next_number(header, names, next).unwrap_or(f.default),
                _ => self.implied(i, f).unwrap_or(f.default),
            };
            if value != 0 {
                put(bytes, offset * 8 + f.bit, f.bits, value);
            }
        }
        // The next layer may require the optional field that identifies it.
        let asked = header.fields.iter().find_map(|f| match (&f.kind, f.presence) {
            (FieldKind::Next(names), Presence::Flag { .. }) => {
                Some((f, next_number(header, names, next)?))
            }
            _ => None,
        });
        for f in layer.set().map(|(f, _)| f).chain(asked.map(|(f, _)| f)) {
            match f.presence {
                Presence::Flag { sets, .. } => bytes[offset] |= sets,
                Presence::FirstOctet(list) => bytes[offset] = list[0],
                Presence::Always | Presence::Before | Presence::After | Presence::End => {}
            }
        }
        for (f, value) in layer.set().filter(|(f, _)| always(f)) {
            if let Value::Number(n) = value {
                put(bytes, offset * 8 + f.bit, f.bits, *n);
            }
        }

        let first = bytes.get(offset).copied().unwrap_or(0);
        bytes.resize(offset + header.min_len + header.optional_len(first), 0);
        for f in header.fields.iter().filter(|f| f.presence == Presence::After) {
            if let Some(bit) = header.bit_of(f, offset, first) {
                put(bytes, bit, f.bits, f.default);
            }
        }
        if let Some((f, number)) = asked
            && let Some(bit) = header.bit_of(f, offset, first)
        {
            put(bytes, bit, f.bits, number);
        }
        let elsewhere = |f: &FieldDef| always(f) || f.bits == 0 || f.presence == Presence::End;
        for (f, value) in layer.set().filter(|(f, _)| !elsewhere(f)) {
            let Some(bit) = header.bit_of(f, offset, first) else {
                let (name, kind) = (header.name, header.fields[0].name);
                return Err(BuildError::Invalid(format!(
                    "{name}.{} is set, but does not exist with this {name}.{kind}",
                    f.name
                )));
            };
            if let Value::Number(n) = value {
                put(bytes, bit, f.bits, *n);
            }
        }
        if header.proto == Proto::Vlan && layer.value_of("tpid").is_none() {
            let before = &self.layers[i - 1];
            let own = |l: &Layer| matches!(l.value_of("type"), Some(Value::Number(_)));
            if next.is_some_and(|n| n.proto == Proto::Vlan) && !own(before) {
                put(bytes, offset * 8 - 16, 16, TPID_S.into());
            }
        }
        let list = header.list(first);
        let mut entries = Vec::new();
        for (f, value) in layer.set() {
            let Value::Options(options) = value else { continue };
            if !f.is_present(first) {
                let (name, kind) = (header.name, header.fields[0].name);
                return Err(BuildError::Invalid(format!(
                    "{name}.{} is set, but does not exist with this {name}.{kind}",
                    f.name
                )));
            }
            entries.clone_from(options);
        }
        if let Some((index, set)) = list {
            if layer.value(index).is_none() {
                entries = self.implied_options(i);
            }
            entries.iter().for_each(|option| set.write(option, bytes));
            set.pad(offset, bytes);
            self.fill_counts(i, set, &entries, offset, bytes);
        }
        self.fill_small_lengths(i, next, offset, bytes)
    }

    /// Fills entry counts of the header's list, unless they are set or the list is empty.
    fn fill_counts(
        &self,
        i: usize,
        set: OptionSet,
        entries: &[Opt],
        offset: usize,
        bytes: &mut [u8],
    ) {
        let layer = &self.layers[i];
        for field in layer.header.fields {
            let counts = set.defs().iter().any(|def| def.counted_in == field.name);
            let is_set = matches!(layer.value_of(field.name), Some(Value::Number(_)));
            if counts && !is_set && !entries.is_empty() {
                let counted = |option: &&Opt| matches!(option, Opt::Known(def, _) if def.counted_in == field.name);
                let count = entries.iter().filter(counted).count() as u128;
                put(bytes, offset * 8 + field.bit, field.bits, count & field.max());
            }
        }
    }

    /// Fills in lengths that count the header or the layers.
    fn fill_small_lengths(
        &self,
        i: usize,
        next: Option<&HeaderDef>,
        offset: usize,
        bytes: &mut [u8],
    ) -> Result<(), BuildError> {
        let layer = &self.layers[i];
        let len = bytes.len() - offset;
        let mut fill = |name: &str, value: usize| -> Result<(), BuildError> {
            let (_, f) = layer.header.field(name).expect("the table has the field");
            if matches!(layer.value_of(name), Some(Value::Number(_))) {
                return Ok(());
            }
            if value as u128 > f.max() {
                return Err(BuildError::Invalid(format!(
                    "{}.{name} cannot hold {value}",
                    layer.header.name
                )));
            }
            put(bytes, offset * 8 + f.bit, f.bits, value as u128);
            Ok(())
        };
        match layer.header.proto {
            Proto::Ipv4 => fill("ihl", len / 4),
            Proto::Tcp => fill("data_offset", len / 4),
            Proto::HopOpts | Proto::DstOpts => fill("length", len / 8 - 1),
            Proto::Routing => {
                fill("length", len / 8 - 1)?;
                let srh = matches!(layer.value_of("type"), None | Some(Value::Number(4)));
                fill("last_entry", if srh { ((len - 8) / 16).saturating_sub(1) } else { 0 })
            }
            Proto::Plain => match layer.header.extent {
                Extent::Counted { field, unit, plus } => {
                    fill(field, len.saturating_sub(plus) / unit)
                }
                Extent::Fields | Extent::List => Ok(()),
            },
            Proto::Mpls => fill("s", usize::from(next.is_none_or(|n| n.proto != Proto::Mpls))),
            _ => Ok(()),
        }
    }

    /// Appends the payload layers from `from` on, cut or extended to `len` octets of `bytes`.
    fn payload(
        &self,
        from: usize,
        bytes: &mut Vec<u8>,
        len: Option<usize>,
        load: Load<'_>,
        seed: u64,
    ) -> Result<(), BuildError> {
        let layers: Vec<&Layer> =
            self.layers[from..].iter().filter(|l| l.header.proto != Proto::Truncate).collect();
        let room = |bytes: &Vec<u8>| len.map_or(0, |len| len.saturating_sub(bytes.len()));
        for (i, layer) in layers.iter().enumerate() {
            let last = i + 1 == layers.len();
            let fill = if last { room(bytes) } else { 0 };
            // The payload must be the same on every machine and at any length.
            let mut random = SplitMix64(seed ^ (i as u64) << 32);
            match (&layer.content, layer.header.proto) {
                (Content::Text(text), proto) => {
                    let message = messages::octets(proto, text);
                    bytes.extend(message.map_err(|expected| {
                        BuildError::Invalid(format!("{layer}: expected {expected}"))
                    })?);
                }
                (Content::Octets(o), Proto::Pattern) => {
                    bytes.extend(o.iter().cycle().take(o.len().max(fill)))
                }
                (Content::Octets(o), _) => bytes.extend_from_slice(o),
                (Content::Count(n), proto) => {
                    let n = n.unwrap_or(fill);
                    match proto {
                        Proto::Random => bytes.extend((0..n).map(|_| random.draw() as u8)),
                        Proto::Inc => bytes.extend((0..n).map(|i| i as u8)),
                        _ => bytes.resize(bytes.len() + n, 0),
                    }
                }
                (Content::Path(path), _) => {
                    let octets = load(path)
                        .map_err(|error| BuildError::File { path: path.clone(), error })?;
                    if octets.len() > MAX_PAYLOAD {
                        let found = octets.len();
                        return Err(BuildError::Invalid(format!(
                            "{path} has {found} octets, more than {MAX_PAYLOAD}"
                        )));
                    }
                    bytes.extend_from_slice(&octets);
                }
                (Content::Fields(_), _) => {}
            }
        }
        if let Some(len) = len {
            bytes.resize(len, 0);
        }
        Ok(())
    }

    fn fill_lengths(&self, frame: &mut Frame) -> Result<(), BuildError> {
        for i in 0..frame.layers.len() {
            let Some(field) = frame.length_of(i) else { continue };
            let name = frame.layers[i].header.counts.map_or("length", |(name, _)| name);
            if matches!(self.layers[i].value_of(name), Some(Value::Number(_))) {
                continue;
            }
            let value = frame.bytes.len() - field.from;
            let Ok(value) = u16::try_from(value) else {
                let header = frame.layers[i].header.name;
                return Err(BuildError::Invalid(format!(
                    "{header}.{name} cannot hold {value}: at most 65535"
                )));
            };
            frame.bytes[field.at..field.at + 2].copy_from_slice(&value.to_be_bytes());
            frame.lengths.push(field);
        }
        Ok(())
    }

    fn fill_checksums(&self, frame: &mut Frame) {
        let end = frame.bytes.len() - frame.trailer;
        self.fill_crcs(frame, end);
        for i in (0..frame.layers.len()).rev() {
            let Some(field) = frame.checksum_of(i, end) else { continue };
            let set = self.layers[i].value_of("checksum");
            if matches!(set, Some(Value::Number(_))) || set.is_none() && frame.needs_no_checksum(i)
            {
                continue;
            }
            let mut value = field.compute(&frame.bytes, frame.trailer);
            if set == Some(&Value::Bad) {
                value = wrong(value);
            }
            frame.bytes[field.at..field.at + 2].copy_from_slice(&value.to_be_bytes());
            if set != Some(&Value::Bad) {
                frame.checksums.push(field);
            }
        }
    }
}

impl Packet {
    fn fill_crcs(&self, frame: &mut Frame, end: usize) {
        for i in (0..frame.layers.len()).rev() {
            let Some(field) = frame.crc_of(i, end) else { continue };
            let layer = &self.layers[i];
            let set = layer.value_of("checksum").or_else(|| layer.value_of("icrc"));
            let place = field.place(end);
            match set {
                Some(Value::Number(number)) => {
                    frame.bytes[place].copy_from_slice(&(*number as u32).to_be_bytes());
                }
                Some(Value::Bad) => {
                    field.write(&mut frame.bytes[..end]);
                    frame.bytes[place.start] ^= 1;
                }
                _ => {
                    field.write(&mut frame.bytes[..end]);
                    frame.crcs.push(field);
                }
            }
        }
    }
}

impl Layer {
    pub(crate) fn set(&self) -> impl Iterator<Item = (&'static FieldDef, &Value)> {
        let set = match &self.content {
            Content::Fields(set) => set.as_slice(),
            _ => &[],
        };
        let fields = self.header.fields;
        set.iter().map(move |(i, v)| (&fields[*i], v))
    }
}

fn next_number(
    header: &HeaderDef,
    names: &[(&str, u64)],
    next: Option<&HeaderDef>,
) -> Option<u128> {
    let next = next?;
    let named = names.iter().find(|(name, _)| *name == next.name).map(|(_, number)| *number);
    named.or_else(|| header.number_of(next)).map(u128::from)
}

/// A checksum that does not verify, and is not 0, which means "none".
fn wrong(checksum: u16) -> u16 {
    match checksum ^ 0x0101 {
        0 | 0xffff => checksum ^ 0x0202,
        other => other,
    }
}

/// The outermost header of dissected frames.
pub(crate) fn link() -> &'static HeaderDef {
    &ETH
}
