//! Translates flows to streams.

use std::collections::{HashMap, HashSet};

use squall_profile::{Mode, PacketSource, SizeLaw, Stream};
use squall_units::{FCS_LEN, L1_OVERHEAD, Nanos, Rate, RateUnit, lcm};
use squall_wire::Frame;

use crate::{
    devices::{Devices, Endpoint},
    packet::{Built, Ends, Headers, Payload, get, put},
    patterns::What,
    read::{Node, Notes},
    translate::{
        Counting, EgressInfo, EgressTag, FlowInfo, LagInfo, MetricsInfo, PortInfo, Resolved,
        StreamInfo, TagValue, Unresolved,
    },
};

/// Maximum number of combinations of tag values that distinguish the frames of a flow.
const MOST_TAGGED: u64 = 4096;
/// Maximum number of streams: signatures have 16 bits for the stream number.
const MOST_STREAMS: usize = 65_536;
const SMALLEST: u32 = 64;
const LARGEST: u32 = 65_535;

/// Input and output of the translation of flows.
pub(crate) struct Flows<'a> {
    pub ports: &'a [PortInfo],
    pub lags: &'a [LagInfo],
    pub devices: &'a Devices,
    pub resolved: &'a Resolved,
    pub streams: Vec<Stream>,
    pub infos: Vec<FlowInfo>,
    pub unresolved: Vec<Unresolved>,
    port_index: HashMap<&'a str, usize>,
    names: HashSet<String>,
}

/// Frames of a flow that one port sends between a pair of endpoints.
struct Part {
    tx: usize,
    rx: Vec<String>,
    ends: Ends,
}

struct Size {
    law: SizeLaw,
    min: u32,
    max: u32,
    mean: f64,
}

impl<'a> Flows<'a> {
    pub fn new(
        ports: &'a [PortInfo],
        lags: &'a [LagInfo],
        devices: &'a Devices,
        resolved: &'a Resolved,
    ) -> Self {
        let port_index =
            ports.iter().enumerate().map(|(i, port)| (port.name.as_str(), i)).collect();
        let (streams, infos, unresolved, names) = Default::default();
        Self { ports, lags, devices, resolved, streams, infos, unresolved, port_index, names }
    }

    pub fn read(&mut self, root: &Node<'_>, notes: &mut Notes) {
        let mut names = HashSet::new();
        for node in root.list("flows", notes) {
            let name = node.needed_text("name", notes).unwrap_or_default();
            if !names.insert(name.to_owned()) {
                notes.problem(
                    &node.at("name").path,
                    format!("{name:?} is also the name of another flow"),
                );
            }
            self.flow(&node, name, notes);
            if self.streams.len() > MOST_STREAMS {
                notes.unsupported(&node, "more than 65536 streams in all");
                break;
            }
        }
    }

    fn flow(&mut self, node: &Node<'_>, name: &str, notes: &mut Notes) {
        let keys = [
            "name",
            "tx_rx",
            "packet",
            "egress_packet",
            "size",
            "rate",
            "duration",
            "metrics",
            "payload",
        ];
        node.known(&keys, notes);
        let before = notes.problems.len();
        let headers = Headers::read(&node.list("packet", notes), &node.at("packet").path, notes);
        let egress = egress(node, notes);
        let payload = Payload::read(&node.at("payload"), notes);
        let metrics = self.metrics(&node.at("metrics"), notes);
        let size = read_size(&node.at("size"), notes);
        let rate = read_rate(&node.at("rate"), notes);
        let parts = self.parts(&node.at("tx_rx"), &headers, notes);
        let (Some(size), Some(rate), Some((parts, receivers))) = (size, rate, parts) else {
            return;
        };
        if notes.problems.len() > before {
            return;
        }
        let need = headers.octets() as u32 + FCS_LEN;
        if size.min < need {
            let found = format!("{} octets are too few: headers and FCS need {need}", size.min);
            notes.problem(&node.at("size").path, found);
            return;
        }
        let Some(timing) =
            read_duration(&node.at("duration"), rate, &size, &self.ports[parts[0].tx], notes)
        else {
            return;
        };
        let (metrics, copies, by_port) = metrics;
        let mut info = FlowInfo {
            name: name.to_owned(),
            tx_port: self.ports[parts[0].tx].name.clone(),
            rx_ports: Vec::new(),
            streams: Vec::new(),
            metrics,
            packets: timing.packets(),
            size: (size.min == size.max).then_some(size.min),
            tag_names: Vec::new(),
            egress,
            rx_copies: 1.0,
        };
        for port in parts.iter().flat_map(|part| &part.rx) {
            if !info.rx_ports.contains(port) {
                info.rx_ports.push(port.clone());
            }
        }
        info.rx_copies = copies.unwrap_or(receivers.unwrap_or(info.rx_ports.len()).max(1) as f64);
        let count = parts.len() as u64;
        for (i, part) in parts.iter().enumerate() {
            let (short, long) = ((size.min - FCS_LEN) as usize, (size.max - FCS_LEN) as usize);
            let built = headers.build(short, long, &payload, &part.ends, notes);
            if notes.problems.len() > before {
                return;
            }
            if i == 0 {
                info.tag_names = built.tags.iter().map(|tag| tag.name.clone()).collect();
                if by_port {
                    info.tag_names.push("rx_name".to_owned());
                }
            }
            let turn = Interleave { first: i as u64, every: count };
            self.part(node, part, built, turn, &timing, &size, by_port, &mut info, notes);
        }
        if info.egress.is_some()
            && info.streams.iter().any(|stream| stream.counting == Counting::Unsigned)
        {
            let why = match info.metrics.enable {
                true => "frames have no room for the 16 octets of the signature; try a larger size",
                false => "metrics of the flow are off; try metrics.enable",
            };
            notes.problem(&node.at("egress_packet").path, why);
        }
        self.infos.push(info);
    }

    /// Adds the streams of a part: one, or one for each combination of tag values.
    #[allow(clippy::too_many_arguments)]
    fn part(
        &mut self,
        node: &Node<'_>,
        part: &Part,
        built: Built,
        turn: Interleave,
        timing: &Timing,
        size: &Size,
        by_port: bool,
        info: &mut FlowInfo,
        notes: &mut Notes,
    ) {
        let tagged = info.metrics.enable && built.tags.iter().any(|tag| tag.varying.is_some());
        let Some(classes) = (if tagged { classes(&built, notes) } else { Some(1) }) else { return };
        let signed = info.metrics.enable && built.room;
        if info.metrics.enable && !built.room {
            let path = &node.at("size").path;
            notes.warn(
                path,
                "no room for a signature of 16 octets after the headers: received frames are \
                 counted by port, and there is no latency",
            );
        }
        for class in 0..classes {
            let turn =
                Interleave { first: turn.first + class * turn.every, every: turn.every * classes };
            let mut octets = built.octets.clone();
            let mut vary = Vec::new();
            let mut variations = Vec::new();
            for varying in &built.varying {
                // The parts of a mesh all use the same values, which are divided among the part's
                // classes.
                let Some(what) = varying.law.each(class, classes) else {
                    notes.problem(
                        &varying.path,
                        "not supported: that many values together with these metric_tags",
                    );
                    return;
                };
                match what {
                    What::Value(value) => put(&mut octets, varying.bit, varying.bits, value),
                    What::Varying(law) => {
                        // Random values have no fixed first value; the frame keeps the initial one.
                        if let Some(first) = law.at(0) {
                            put(&mut octets, varying.bit, varying.bits, first);
                        }
                        variations.push((varying, law));
                    }
                    What::Nothing | What::Auto | What::BadChecksum => {}
                }
            }
            // Values that differ between classes also change checksums.
            let octets = if classes > 1 { refreshed(&built.octets, octets) } else { octets };
            if !variations.is_empty() {
                let frame = Frame::dissect(octets.clone());
                for (varying, law) in variations {
                    match varying.vary(&law, &frame) {
                        Some(v) => vary.push(v),
                        None => notes.problem(
                            &varying.path,
                            "not supported: varying values at this position, after other headers",
                        ),
                    }
                }
            }
            let mut tags: Vec<TagValue> = built
                .tags
                .iter()
                .map(|tag| {
                    let value = get(&octets, tag.bit, tag.bits);
                    TagValue::Hex(format!("{value:0width$x}", width = tag.bits.div_ceil(4)))
                })
                .collect();
            if by_port {
                tags.push(TagValue::RxName);
            }
            let Some((rate, mode)) = timing.share(turn) else { continue };
            let name = self.unique(&info.name, turn);
            info.streams.push(StreamInfo {
                stream: self.streams.len(),
                tx_port: self.ports[part.tx].name.clone(),
                counting: if signed { Counting::Signature } else { Counting::Unsigned },
                tags,
            });
            self.streams.push(Stream {
                name,
                port: part.tx,
                packet: PacketSource::Octets(octets.into()),
                size: size.law.clone(),
                rate,
                mode,
                start_delay: timing.start(turn),
                latency: signed,
                vary,
                ..Stream::default()
            });
        }
    }

    /// A unique stream name; the flow's own name if it has one stream.
    fn unique(&mut self, flow: &str, turn: Interleave) -> String {
        let mut name =
            if turn.every == 1 { flow.to_owned() } else { format!("{flow} #{}", turn.first + 1) };
        while !self.names.insert(name.clone()) {
            name.push('\'');
        }
        name
    }

    /// The parts of a flow, and how many copies of a frame are received; `None`: one for each
    /// receiving port.
    fn parts(
        &mut self,
        node: &Node<'_>,
        headers: &Headers,
        notes: &mut Notes,
    ) -> Option<(Vec<Part>, Option<usize>)> {
        node.known(&["choice", "port", "device"], notes);
        if !node.is_present() {
            notes.problem(&node.path, "missing: expected the port that sends");
            return None;
        }
        let (choice, inner) = node.member(&["port", "device"], Some("port"), notes)?;
        if choice == "device" {
            return self.device_parts(&inner, headers, notes).map(|parts| (parts, None));
        }
        inner.known(&["tx_name", "rx_name", "rx_names"], notes);
        // The ports of an aggregate send the frames in turn.
        let tx = self.ports_of(&inner.at("tx_name"), inner.needed_text("tx_name", notes)?, notes);
        let mut rx = inner.texts("rx_names", notes);
        if let Some(one) =
            inner.text("rx_name", notes).filter(|one| !rx.iter().any(|name| name == one))
        {
            rx.push(one.to_owned());
        }
        // One of the ports of an aggregate receives each frame.
        let receivers = rx.iter().collect::<HashSet<_>>().len();
        let found = rx.iter().flat_map(|name| self.ports_of(&inner.at("rx_names"), name, notes));
        let rx: Vec<String> = found.map(|port| self.ports[port].name.clone()).collect();
        let part = |tx| Part { tx, rx: rx.clone(), ends: Ends::default() };
        let parts: Vec<Part> = tx.into_iter().map(part).collect();
        (!parts.is_empty()).then_some((parts, Some(receivers)))
    }

    /// The port with this name, or the ports of the LAG; none, and a problem, if there is neither.
    fn ports_of(&self, node: &Node<'_>, name: &str, notes: &mut Notes) -> Vec<usize> {
        if let Some(index) = self.port_index.get(name) {
            return vec![*index];
        }
        let Some(lag) = self.lags.iter().find(|lag| lag.name == name) else {
            notes.problem(&node.path, format!("there is no port {name:?}"));
            return Vec::new();
        };
        let ports = lag.members.iter().filter_map(|member| self.port_index.get(&member.port[..]));
        ports.copied().collect()
    }

    fn device_parts(
        &mut self,
        node: &Node<'_>,
        headers: &Headers,
        notes: &mut Notes,
    ) -> Option<Vec<Part>> {
        node.known(&["mode", "tx_names", "rx_names", "bidirectional"], notes);
        if node.flag("bidirectional", false, notes) {
            notes.unsupported(
                &node.at("bidirectional"),
                "try a second flow for the other direction",
            );
        }
        let mode = node.word("mode", &["mesh", "one_to_one"], Some("mesh"), notes)?;
        let mut ends = |key: &str| {
            let mut found: Vec<Endpoint> = Vec::new();
            let names = node.texts(key, notes);
            if names.is_empty() {
                notes.problem(
                    &node.at(key).path,
                    "missing: expected names of devices, interfaces, addresses or ranges",
                );
            }
            for name in names {
                match self.devices.find(&name) {
                    Some(endpoints) => found.extend(endpoints),
                    None => notes.problem(
                        &node.at(key).path,
                        format!("there is no device, interface, address or range {name:?}"),
                    ),
                }
            }
            found
        };
        let (tx, rx) = (ends("tx_names"), ends("rx_names"));
        let pairs: Vec<(Endpoint, Endpoint)> = match mode {
            "one_to_one" => {
                if tx.len() != rx.len() {
                    let found = format!(
                        "{} senders and {} receivers: one_to_one needs equal numbers",
                        tx.len(),
                        rx.len()
                    );
                    notes.problem(&node.path, found);
                    return None;
                }
                tx.into_iter().zip(rx).collect()
            }
            _ => {
                if tx.len().saturating_mul(rx.len()) > MOST_STREAMS {
                    notes.unsupported(node, "a mesh of more than 65536 pairs");
                    return None;
                }
                tx.iter()
                    .flat_map(|tx| rx.iter().map(move |rx| (*tx, *rx)))
                    .filter(|(tx, rx)| tx != rx)
                    .collect()
            }
        };
        if pairs.is_empty() {
            notes.problem(&node.path, "no sender has a receiver");
            return None;
        }
        // Ranges have addresses of one version, and the packets may take some.
        let ones = Ends { src_ipv4: 1, dst_ipv4: 1, src_ipv6: 1, dst_ipv6: 1, ..Ends::default() };
        let taken = headers.used(&ones);
        let is_other = |of: Endpoint| {
            of.range.zip(headers.is_ipv6()).is_some_and(|(range, v6)| range.is_ipv6() != v6)
        };
        let takes_source = taken.src_ipv4 != 0 || taken.src_ipv6 != 0;
        let takes_destination = taken.dst_ipv4 != 0 || taken.dst_ipv6 != 0;
        let lacks = |(from, to): &(Endpoint, Endpoint)| {
            takes_source && is_other(*from) || takes_destination && is_other(*to)
        };
        if pairs.iter().any(lacks) {
            let why = "a range is of the other IP version than the packets: their address is 0";
            notes.warn(&node.path, why);
        }
        let mut ignored = Vec::new();
        let unresolved = if headers.wants_gateway() { &mut self.unresolved } else { &mut ignored };
        let mut parts: Vec<Part> = Vec::new();
        // Pairs with the same packets share a part.
        let mut alike: HashMap<(usize, Ends), usize> = HashMap::new();
        for (from, to) in pairs {
            let Some(&tx) = self.port_index.get(self.devices.port(from)) else { continue };
            let ends = self.devices.ends(from, to, headers.is_ipv6(), self.resolved, unresolved);
            let ends = headers.used(&ends);
            let rx = self.devices.port(to).to_owned();
            let part = *alike.entry((tx, ends)).or_insert(parts.len());
            match parts.get_mut(part) {
                Some(part) if part.rx.contains(&rx) => {}
                Some(part) => part.rx.push(rx),
                None => parts.push(Part { tx, rx: vec![rx], ends }),
            }
        }
        (!parts.is_empty()).then_some(parts)
    }

    /// Also returns how many copies of each frame arrive (`None`: one per receiving port), and
    /// whether to distinguish receivers.
    fn metrics(&self, node: &Node<'_>, notes: &mut Notes) -> (MetricsInfo, Option<f64>, bool) {
        node.known(
            &["enable", "loss", "rx_tx_ratio", "timestamps", "latency", "predefined_metric_tags"],
            notes,
        );
        let latency = node.at("latency");
        latency.known(&["enable", "mode"], notes);
        let mode =
            latency.word("mode", &["store_forward", "cut_through"], Some("store_forward"), notes);
        let ratio = node.at("rx_tx_ratio");
        ratio.known(&["choice", "rx_count", "value"], notes);
        let copies = match ratio.choice(&["rx_count", "value"], Some("value"), notes) {
            Some("rx_count") => None,
            _ => Some(ratio.float("value", notes).unwrap_or(1.0)),
        };
        let tags = node.at("predefined_metric_tags");
        tags.known(&["rx_name"], notes);
        let info = MetricsInfo {
            enable: node.flag("enable", false, notes),
            loss: node.flag("loss", false, notes),
            timestamps: node.flag("timestamps", false, notes),
            latency: latency.flag("enable", false, notes),
            cut_through: mode == Some("cut_through"),
        };
        (info, copies, tags.flag("rx_name", false, notes))
    }
}

/// Number of combinations of tag values, that is, the number of frames after which they repeat.
fn classes(built: &Built, notes: &mut Notes) -> Option<u64> {
    let mut classes = 1;
    for tag in &built.tags {
        let Some(varying) = tag.varying.map(|i| &built.varying[i]) else { continue };
        if varying.law.at(0).is_none() {
            notes.problem(
                &tag.path,
                "not supported: tags of random values; try values, increment or decrement",
            );
            return None;
        }
        classes = lcm(classes, varying.law.period())
            .filter(|classes| *classes <= MOST_TAGGED)
            .or_else(|| {
                let found =
                    format!("not supported: more than {MOST_TAGGED} combinations of tagged values");
                notes.problem(&tag.path, found);
                None
            })?;
    }
    Some(classes)
}

/// Updates the checksums in `octets` that are correct in `before`.
fn refreshed(before: &[u8], octets: Vec<u8>) -> Vec<u8> {
    let mut frame = Frame::dissect(before.to_vec());
    frame.bytes = octets;
    frame.fill_checksums();
    frame.bytes
}

/// Tags read from received frames, with their bit offset in the headers as received.
fn egress(node: &Node<'_>, notes: &mut Notes) -> Option<EgressInfo> {
    let list = node.list("egress_packet", notes);
    let node = &node.at("egress_packet");
    if list.is_empty() {
        return None;
    }
    let before = notes.problems.len();
    let headers = Headers::read(&list, &node.path, notes);
    let octets = headers.octets();
    let built = headers.build(octets, octets, &Payload::zeros(), &Ends::default(), notes);
    if notes.problems.len() > before || built.tags.is_empty() {
        return None;
    }
    let bits: usize = built.tags.iter().map(|tag| tag.bits).sum();
    if bits > 128 {
        notes.unsupported(node, &format!("{bits} bits in metric_tags; at most 128 in total"));
        return None;
    }
    let tags = built
        .tags
        .into_iter()
        .map(|tag| EgressTag { name: tag.name, bit: tag.bit, bits: tag.bits })
        .collect();
    Some(EgressInfo { tags })
}

fn read_size(node: &Node<'_>, notes: &mut Notes) -> Option<Size> {
    let choices = ["fixed", "increment", "random", "weight_pairs"];
    node.known(&[choices.as_slice(), &["choice"]].concat(), notes);
    let mut small = false;
    let mut least = |size: u64| {
        small |= size < u64::from(SMALLEST);
        (size as u32).max(SMALLEST)
    };
    let largest = u64::from(LARGEST);
    let size = match node.choice(&choices, Some("fixed"), notes)? {
        "fixed" => {
            let size = least(node.uint("fixed", largest, notes).unwrap_or(64));
            Size { law: SizeLaw::Fixed(size), min: size, max: size, mean: size.into() }
        }
        "increment" => {
            let inner = node.at("increment");
            inner.known(&["start", "end", "step"], notes);
            let min = least(inner.uint("start", largest, notes).unwrap_or(64));
            let end = least(inner.uint("end", largest, notes).unwrap_or(1518));
            let step = inner.uint("step", largest, notes).unwrap_or(1).max(1) as u32;
            if end < min {
                notes.problem(&inner.path, "end is less than start");
                return None;
            }
            // The largest size that steps reach.
            let max = end - (end - min) % step;
            let law =
                if max == min { SizeLaw::Fixed(min) } else { SizeLaw::Range { min, max, step } };
            Size { law, min, max, mean: f64::from(min + max) / 2.0 }
        }
        "random" => {
            let inner = node.at("random");
            inner.known(&["min", "max"], notes);
            let min = least(inner.uint("min", largest, notes).unwrap_or(64));
            let max = least(inner.uint("max", largest, notes).unwrap_or(1518));
            if max < min {
                notes.problem(&inner.path, "max is less than min");
                return None;
            }
            let law = if max == min { SizeLaw::Fixed(min) } else { SizeLaw::Uniform { min, max } };
            Size { law, min, max, mean: f64::from(min + max) / 2.0 }
        }
        _ => weighted(&weight_pairs(&node.at("weight_pairs"), &mut least, notes)?),
    };
    if small {
        notes.warn(&node.path, "frames have at least 64 octets");
    }
    Some(size)
}

fn weight_pairs(
    node: &Node<'_>,
    least: &mut dyn FnMut(u64) -> u32,
    notes: &mut Notes,
) -> Option<Vec<(u32, u32)>> {
    const IMIX: &[(u64, u32)] = &[(64, 7), (570, 4), (1518, 1)];
    const IPSEC: &[(u64, u32)] = &[(90, 5867), (92, 200), (594, 2366), (1418, 1567)];
    const IPV6: &[(u64, u32)] = &[(60, 5867), (496, 200), (594, 2366), (1518, 1567)];
    const STANDARD: &[(u64, u32)] = &[(58, 5867), (62, 200), (594, 2366), (1518, 1567)];
    const TCP: &[(u64, u32)] = &[(90, 5867), (92, 200), (594, 2366), (1518, 1567)];
    node.known(&["choice", "predefined", "custom"], notes);
    if node.choice(&["predefined", "custom"], Some("predefined"), notes)? == "predefined" {
        let names = ["imix", "ipsec_imix", "ipv6_imix", "standard_imix", "tcp_imix"];
        let pairs = match node.word("predefined", &names, Some("imix"), notes)? {
            "imix" => IMIX,
            "ipsec_imix" => IPSEC,
            "ipv6_imix" => IPV6,
            "standard_imix" => STANDARD,
            _ => TCP,
        };
        return Some(pairs.iter().map(|(size, weight)| (least(*size), *weight)).collect());
    }
    let mut pairs = Vec::new();
    for pair in node.list("custom", notes) {
        pair.known(&["size", "weight"], notes);
        let size = least(pair.uint("size", u64::from(LARGEST), notes).unwrap_or(64));
        let weight = pair.float("weight", notes).unwrap_or(1.0);
        pairs.push((size, weight));
    }
    // Weights are integers in thousandths, unless they are large.
    let sum: f64 = pairs.iter().map(|pair| pair.1).sum();
    if sum <= 0.0 {
        notes.problem(&node.at("custom").path, "expected sizes and weights above 0");
        return None;
    }
    let scale = if sum > 4e6 { 4e9 / sum } else { 1000.0 };
    let pairs: Vec<(u32, u32)> =
        pairs.into_iter().map(|(size, weight)| (size, (weight * scale) as u32)).collect();
    let pairs: Vec<(u32, u32)> = pairs.into_iter().filter(|pair| pair.1 > 0).collect();
    if pairs.is_empty() {
        notes.problem(&node.at("custom").path, "expected weights of 0.001 or more");
        return None;
    }
    Some(pairs)
}

fn weighted(pairs: &[(u32, u32)]) -> Size {
    let sum: f64 = pairs.iter().map(|pair| f64::from(pair.1)).sum();
    let mean = pairs.iter().map(|pair| f64::from(pair.0) * f64::from(pair.1)).sum::<f64>() / sum;
    let min = pairs.iter().map(|pair| pair.0).min().unwrap_or(SMALLEST);
    let max = pairs.iter().map(|pair| pair.0).max().unwrap_or(SMALLEST);
    let law = if min == max { SizeLaw::Fixed(min) } else { SizeLaw::Weights(pairs.to_vec()) };
    Size { law, min, max, mean }
}

/// Bit rates include preamble and gap: the schema's minimum, 672, is one frame of 64 octets.
fn read_rate(node: &Node<'_>, notes: &mut Notes) -> Option<Rate> {
    let choices = ["pps", "bps", "kbps", "mbps", "gbps", "percentage"];
    node.known(&[choices.as_slice(), &["choice"]].concat(), notes);
    let choice = node.choice(&choices, Some("pps"), notes)?;
    let inner = node.at(choice);
    let zero = |notes: &mut Notes| {
        notes.problem(&inner.path, "found 0, expected a rate above 0");
        None
    };
    if choice == "percentage" {
        let percent = node.float("percentage", notes).unwrap_or(100.0);
        if percent > 100.0 {
            notes.problem(&inner.path, format!("found {percent}, expected at most 100"));
            return None;
        }
        // Keep the number as written: a 32-bit float gets other digits when converted to 64 bits.
        let short = percent as f32;
        let text =
            if f64::from(short) == percent { format!("{short} %") } else { format!("{percent} %") };
        return match text.parse::<Rate>() {
            Ok(rate) if rate.is_zero() => zero(notes),
            Ok(rate) => Some(rate),
            Err(_) => {
                notes.problem(&inner.path, format!("{percent} % has too many digits"));
                None
            }
        };
    }
    let (default, factor) = match choice {
        "pps" => (1000, 1),
        "bps" => (1_000_000_000, 1),
        "kbps" => (1_000_000, 1_000),
        "mbps" => (1_000, 1_000_000),
        _ => (1, 1_000_000_000),
    };
    let number =
        if inner.is_present() { node.uint(choice, u64::MAX / factor, notes)? } else { default };
    if number == 0 {
        return zero(notes);
    }
    let unit = if choice == "pps" { RateUnit::Pps } else { RateUnit::BpsL1 };
    Some(Rate { num: number * factor, den: 1, unit })
}

/// Every n-th frame of a flow, beginning with `first`.
#[derive(Clone, Copy, Debug)]
struct Interleave {
    first: u64,
    every: u64,
}

/// Departure of a flow's frames.
struct Timing {
    rate: Rate,
    mode: Mode,
    delay: Nanos,
    /// Nanoseconds between frames, if known.
    gap_ns: Option<f64>,
}

impl Timing {
    fn packets(&self) -> Option<u64> {
        match self.mode {
            Mode::Continuous => None,
            Mode::Burst(packets) => Some(packets),
            Mode::Bursts { bursts: u64::MAX, .. } => None,
            Mode::Bursts { bursts, packets, .. } => Some(bursts.saturating_mul(packets)),
        }
    }

    /// The rate and mode of one part; `None`: the part has no frame to send.
    fn share(&self, turn: Interleave) -> Option<(Rate, Mode)> {
        let rate = self.rate.scaled(1, turn.every)?;
        let share =
            |packets: u64| (packets + turn.every - 1).saturating_sub(turn.first) / turn.every;
        let mode = match self.mode {
            Mode::Burst(packets) => Mode::Burst(share(packets)),
            Mode::Bursts { bursts, packets, gap } => {
                Mode::Bursts { bursts, packets: share(packets), gap }
            }
            Mode::Continuous => Mode::Continuous,
        };
        (!matches!(mode, Mode::Burst(0) | Mode::Bursts { packets: 0, .. })).then_some((rate, mode))
    }

    fn start(&self, turn: Interleave) -> Nanos {
        self.delay + Nanos((self.gap_ns.unwrap_or(0.0) * turn.first as f64) as u64)
    }
}

fn read_duration(
    node: &Node<'_>,
    rate: Rate,
    size: &Size,
    port: &PortInfo,
    notes: &mut Notes,
) -> Option<Timing> {
    let choices = ["fixed_packets", "fixed_seconds", "burst", "continuous"];
    node.known(&[choices.as_slice(), &["choice"]].concat(), notes);
    let (choice, inner) = node.member(&choices, Some("continuous"), notes)?;
    let speed = (port.speed_bps > 0).then_some(port.speed_bps);
    // A percentage is relative to the speed in `layer1`: many ports do not know their speed.
    let rate = match (rate.unit, speed.and_then(|speed| rate.scaled(speed, 100))) {
        (RateUnit::Percent, Some(of_speed)) => Rate { unit: RateUnit::BpsL1, ..of_speed },
        _ => rate,
    };
    let pps = rate.as_pps(size.mean, speed).filter(|pps| *pps > 0.0);
    let gap_ns = pps.map(|pps| 1e9 / pps);
    match choice {
        "burst" => inner.known(&["bursts", "packets", "gap", "inter_burst_gap"], notes),
        "fixed_packets" => inner.known(&["packets", "gap", "delay"], notes),
        "fixed_seconds" => inner.known(&["seconds", "gap", "delay"], notes),
        _ => inner.known(&["gap", "delay"], notes),
    }
    if inner.uint("gap", u64::from(u32::MAX), notes).unwrap_or(12) != 12 {
        notes.warn(&inner.at("gap").path, "has no effect: gaps follow from the rate");
    }
    let delay =
        if choice == "burst" { Nanos::ZERO } else { wait(&inner.at("delay"), 0.0, speed, notes)? };
    let mode = match choice {
        "fixed_packets" => Mode::Burst(at_least_one(&inner, "packets", notes)?),
        "fixed_seconds" => {
            let seconds = inner.float("seconds", notes).unwrap_or(1.0);
            let Some(pps) = pps else {
                let why = "seconds at a percentage of an unknown speed; try the speed of the port \
                           in layer1, or a rate in pps or bps";
                notes.unsupported(&inner, why);
                return None;
            };
            let packets = (seconds * pps).round().clamp(1.0, 1e18) as u64;
            Mode::Burst(packets)
        }
        "burst" => {
            let packets = at_least_one(&inner, "packets", notes)?;
            let pause = wait(&inner.at("inter_burst_gap"), 12.0, speed, notes)?;
            // The pause between bursts includes the normal gap, which Squall adds to `gap`, so
            // subtract it.
            let gap = pause.saturating_sub(Nanos(gap_ns.unwrap_or(0.0) as u64));
            let bursts = match inner.uint("bursts", u64::from(u32::MAX), notes).unwrap_or(0) {
                0 => u64::MAX,
                bursts => bursts,
            };
            Mode::Bursts { bursts, packets, gap }
        }
        _ => Mode::Continuous,
    };
    Some(Timing { rate, mode, delay, gap_ns })
}

fn at_least_one(node: &Node<'_>, key: &str, notes: &mut Notes) -> Option<u64> {
    let number = node.uint(key, u64::from(u32::MAX), notes).unwrap_or(1);
    if number == 0 {
        notes.problem(&node.at(key).path, "found 0, expected 1 or more");
        return None;
    }
    Some(number)
}

/// Reads a time, given in octets on the link, nanoseconds or microseconds.
fn wait(node: &Node<'_>, octets: f64, speed: Option<u64>, notes: &mut Notes) -> Option<Nanos> {
    node.known(&["choice", "bytes", "nanoseconds", "microseconds"], notes);
    let limit = |ns: f64| Nanos(ns.clamp(0.0, 1e16) as u64);
    match node.choice(&["bytes", "nanoseconds", "microseconds"], Some("bytes"), notes)? {
        "nanoseconds" => Some(limit(node.float("nanoseconds", notes).unwrap_or(if octets > 0.0 {
            96.0
        } else {
            0.0
        }))),
        "microseconds" => Some(limit(
            1e3 * node.float("microseconds", notes).unwrap_or(if octets > 0.0 {
                0.096
            } else {
                0.0
            }),
        )),
        _ => {
            let octets = node.float("bytes", notes).unwrap_or(octets);
            match speed {
                // Such a wait is no longer than the normal gap between frames on the link.
                _ if octets <= f64::from(L1_OVERHEAD) => Some(Nanos::ZERO),
                Some(speed) => Some(limit(octets * 8e9 / speed as f64)),
                None => {
                    let why = "octets of a link of unknown speed; try the speed of the port in \
                               layer1, or nanoseconds";
                    notes.unsupported(&node.at("bytes"), why);
                    None
                }
            }
        }
    }
}
