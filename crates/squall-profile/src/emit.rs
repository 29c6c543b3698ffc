//! Writes profiles as text, in the form in which a person would write them. Reading the text gives
//! the same values.

use std::fmt::Write;

use serde_json::{Map, Value as Json, json};
use squall_units::{MacAddr, Nanos, Rate};
use squall_wire::{FieldKind, to_hex};

use crate::{
    Departures, FieldRef, IMIX, Located, Mode, Op, PacketSource, Profile, Recompute, SizeLaw,
    Stream, Vary, source::SCHEMA, stage,
};

impl Profile {
    /// The profile as JSON that conforms to the schema, as read by [`Profile::from_value`]. Paths
    /// are relative to the working directory.
    pub fn to_value(&self) -> Json {
        let mut table = Map::new();
        let mut set = |key: &str, value: Option<Json>| {
            table.extend(value.map(|value| (key.to_owned(), value)))
        };
        set("seed", self.seed.map(count));
        set("duration", self.stop.duration.map(duration));
        set("packets", self.stop.packets.map(count));
        set("octets", self.stop.octets.map(count));
        let run = self.run.to_table();
        set("run", (!run.is_empty()).then_some(Json::Object(run)));
        set(
            "ports",
            Some(self.ports.iter().map(|port| (port.name.clone(), json!(port.address))).collect()),
        );
        let name = |port: usize| self.ports.get(port).map(|port| port.name.as_str());
        let others = self.flows.is_some()
            || !self.attacks.is_empty()
            || !self.replays.is_empty()
            || !self.hosts.is_empty()
            || !self.routers.is_empty();
        let streams = !self.streams.is_empty() || !others;
        set("stream", streams.then(|| self.streams.iter().map(|s| self.stream_value(s)).collect()));
        let replays = (!self.replays.is_empty())
            .then(|| self.replays.iter().map(|r| r.to_value(name)).collect());
        set("replay", replays);
        let attacks = (!self.attacks.is_empty())
            .then(|| self.attacks.iter().map(|a| a.to_value(name)).collect());
        set("attack", attacks);
        let hosts = (!self.hosts.is_empty())
            .then(|| self.hosts.iter().map(|group| group.to_value(name)).collect());
        set("host", hosts);
        let routers = (!self.routers.is_empty())
            .then(|| self.routers.iter().map(|router| router.to_value(name)).collect());
        set("router", routers);
        if let Some(flows) = &self.flows {
            table.extend(flows.to_entries(name));
        }
        Json::Object(table)
    }

    /// The profile as a TOML file.
    pub fn to_toml(&self) -> String {
        let mut text = format!("schema = {SCHEMA}\n");
        let value = self.to_value();
        let entries = value.as_object().into_iter().flatten();
        let tables = [
            "run", "ports", "stream", "replay", "flows", "pool", "template", "attack", "host",
            "router",
        ];
        for (key, value) in entries.clone().filter(|(key, _)| !tables.contains(&key.as_str())) {
            line(&mut text, key, value);
        }
        if let Some(run) = value["run"].as_object() {
            text.push_str("\n[run]\n");
            run.iter().for_each(|(key, value)| line(&mut text, key, value));
        }
        text.push_str("\n[ports]\n");
        for (key, value) in value["ports"].as_object().into_iter().flatten() {
            line(&mut text, key, value);
        }
        if let Some(shared) = value["flows"].as_object() {
            text.push_str("\n[flows]\n");
            shared.iter().for_each(|(key, value)| line(&mut text, key, value));
        }
        for kind in ["replay", "pool", "template", "attack", "host", "router"] {
            for one in value[kind].as_array().into_iter().flatten() {
                text.push_str(&format!("\n[[{kind}]]\n"));
                let nested: &[&str] = if kind == "router" { &["group", "step"] } else { &[] };
                one.as_object()
                    .into_iter()
                    .flatten()
                    .filter(|(key, _)| !nested.contains(&key.as_str()))
                    .for_each(|(key, value)| line(&mut text, key, value));
                for key in nested {
                    for table in one[key].as_array().into_iter().flatten() {
                        text.push_str(&format!("[[{kind}.{key}]]\n"));
                        table
                            .as_object()
                            .into_iter()
                            .flatten()
                            .for_each(|(key, value)| line(&mut text, key, value));
                    }
                }
            }
        }
        for stream in value["stream"].as_array().into_iter().flatten() {
            text.push_str("\n[[stream]]\n");
            for (key, value) in
                stream.as_object().into_iter().flatten().filter(|(key, _)| *key != "vary")
            {
                line(&mut text, key, value);
            }
            for vary in stream["vary"].as_array().into_iter().flatten() {
                text.push_str("[[stream.vary]]\n");
                vary.as_object()
                    .into_iter()
                    .flatten()
                    .for_each(|(key, value)| line(&mut text, key, value));
            }
        }
        text
    }

    /// The table of one of the profile's streams, as in [`Profile::to_value`].
    pub fn stream_value(&self, stream: &Stream) -> Json {
        let (kind, frame) = packet(&stream.packet);
        stream.written(|key| match key {
            "name" => Some(json!(stream.name)),
            "port" => self.ports.get(stream.port).map(|port| json!(port.name)),
            "packet" | "hex" | "pcap" => (key == kind).then(|| json!(frame)),
            "rate" => stream.rate.emit(),
            "stages" => stage::to_value(&stream.stages, |to| json!(to.to_string())),
            "next" => self.next(stream),
            "trex_hw_id" => stream.trex.map(|trex| json!(trex.hw_id)),
            "trex_flow_seq" => {
                let flow_seq = stream.trex.map(|trex| trex.flow_seq).filter(|seq| *seq != 1);
                flow_seq.map(|seq| json!(seq))
            }
            "trex_group" => stream.trex_group.map(|group| json!(group)),
            "vary" => (!stream.vary.is_empty()).then(|| varies(&stream.vary)),
            _ => None,
        })
    }

    fn next(&self, stream: &Stream) -> Option<Json> {
        let next = stream.next?;
        let name = &self.streams.get(next.stream)?.name;
        Some(match next.times {
            Some(times) => json!({ "stream": name, "times": count(times) }),
            None => json!(name),
        })
    }
}

/// The written form of a value. `None` if the key is omitted.
pub(crate) trait Emit {
    fn emit(&self) -> Option<Json>;
}

impl<T: Emit> Emit for Option<T> {
    fn emit(&self) -> Option<Json> {
        self.as_ref().and_then(T::emit)
    }
}

/// Returns `None` for the default.
pub(crate) fn unless<T: Emit + PartialEq>(default: &T, value: &T) -> Option<Json> {
    if value == default { None } else { value.emit() }
}

/// Implements [`Emit`] for types that JSON has.
macro_rules! plain {
    ($($of:ty)*) => {
        $(impl Emit for $of {
            fn emit(&self) -> Option<Json> {
                Some(json!(self))
            }
        })*
    };
}
plain!(String bool i8 i64 u8 u16 u32 usize f64);

impl Emit for u64 {
    fn emit(&self) -> Option<Json> {
        Some(count(*self))
    }
}

impl Emit for Rate {
    fn emit(&self) -> Option<Json> {
        Some(json!(self.to_string()))
    }
}

impl Emit for Nanos {
    fn emit(&self) -> Option<Json> {
        Some(duration(*self))
    }
}

impl Emit for Located {
    fn emit(&self) -> Option<Json> {
        Some(json!(self.text))
    }
}

impl Emit for Vec<Located> {
    fn emit(&self) -> Option<Json> {
        texts(self)
    }
}

/// Writes the first and the last number of a range.
impl Emit for (u16, u16) {
    fn emit(&self) -> Option<Json> {
        Some(json!(format!("{}-{}", self.0, self.1)))
    }
}

impl Emit for Recompute {
    fn emit(&self) -> Option<Json> {
        match self {
            Self::All => None,
            Self::Only(fields) if fields.is_empty() => Some(json!(false)),
            Self::Only(fields) => Some(json!(fields)),
        }
    }
}

pub(crate) fn texts(texts: &[Located]) -> Option<Json> {
    (!texts.is_empty()).then(|| texts.iter().map(|located| json!(located.text)).collect())
}

pub(crate) fn table(entries: &[(String, Located)]) -> Option<Json> {
    let entry = |(name, located): &(String, Located)| (name.clone(), json!(located.text));
    (!entries.is_empty()).then(|| Json::Object(entries.iter().map(entry).collect()))
}

/// Several entries with the same name become a list.
pub(crate) fn options_table(entries: &[(String, Located)]) -> Option<Json> {
    let mut table: Map<String, Json> = Map::new();
    for (name, located) in entries {
        match table.get_mut(name) {
            Some(Json::Array(list)) => list.push(json!(located.text)),
            Some(first) => *first = json!([first.take(), located.text]),
            None => drop(table.insert(name.clone(), json!(located.text))),
        }
    }
    (!table.is_empty()).then_some(Json::Object(table))
}

fn packet(source: &PacketSource) -> (&'static str, String) {
    match source {
        PacketSource::Layers(packet) => ("packet", packet.to_string()),
        PacketSource::Octets(octets) => ("hex", to_hex(octets)),
        PacketSource::Capture { path, number } => ("pcap", format!("{path}#{number}")),
    }
}

impl Emit for SizeLaw {
    fn emit(&self) -> Option<Json> {
        Some(match self {
            Self::Natural => return None,
            Self::Fixed(len) => json!(len),
            Self::List(lens) if *lens == IMIX => json!("imix"),
            Self::List(lens) => json!(lens),
            Self::Range { min, max, step: 1 } => json!(format!("{min}-{max}")),
            Self::Range { min, max, step } => json!(format!("{min}-{max}/{step}")),
            Self::Uniform { min, max } => json!({ "uniform": format!("{min}-{max}") }),
            Self::Normal { mean, sd, min, max } => {
                json!({ "normal": { "mean": mean, "sd": sd, "min": min, "max": max } })
            }
            Self::Weights(weights) => json!({ "weights": weights }),
        })
    }
}

impl Emit for Departures {
    fn emit(&self) -> Option<Json> {
        Some(match self {
            Self::Constant => return None,
            Self::Exponential => json!("exponential"),
            Self::Uniform { spread } => json!({ "uniform": spread }),
            Self::Normal { sd } => json!({ "normal": sd }),
            Self::Pareto { shape } => json!({ "pareto": shape }),
            Self::Weibull { shape } => json!({ "weibull": shape }),
            Self::Gamma { shape } => json!({ "gamma": shape }),
            Self::OnOff { on, off } => json!({ "on": duration(*on), "off": duration(*off) }),
            Self::File { path } => json!({ "file": path }),
        })
    }
}

impl Emit for Mode {
    fn emit(&self) -> Option<Json> {
        Some(match *self {
            Self::Continuous => return None,
            Self::Burst(packets) => json!({ "burst": count(packets) }),
            Self::Bursts { bursts, packets, gap } => {
                json!({ "bursts": count(bursts), "packets": count(packets), "gap": duration(gap) })
            }
        })
    }
}

fn varies(all: &[Vary]) -> Json {
    // `after` names the field if only one entry changes it, otherwise a generated name.
    let unique = |i: usize| match &all[i].field {
        FieldRef::Name(name) if all.iter().filter(|v| v.field == all[i].field).count() == 1 => {
            Some(name.clone())
        }
        _ => None,
    };
    let named = |i: usize| unique(i).unwrap_or_else(|| format!("vary {}", i + 1));
    all.iter()
        .enumerate()
        .map(|(i, vary)| {
            let mut table = Map::new();
            let mut set = |key: &str, value: Json| _ = table.insert(key.into(), value);
            let followed = all.iter().any(|v| matches!(v.op, Op::After { of, .. } if of == i));
            if followed && unique(i).is_none() {
                set("name", json!(named(i)));
            }
            if let FieldRef::Offset { mask, .. } = vary.field {
                set("mask", json!(format!("{mask:#x}")));
            }
            let mut op = &vary.op;
            if let Op::After { of, then } = op {
                set("after", json!(named(*of)));
                op = then;
            }
            operation(op, &vary.field, &mut set);
            vary.written(|key| table.get(key).cloned().or_else(|| vary.field.key(key)))
        })
        .collect()
}

fn operation(op: &Op, field: &FieldRef, set: &mut dyn FnMut(&str, Json)) {
    let number = |value: u128| match value_text(field, value) {
        Some(text) => json!(text),
        None => {
            i64::try_from(value).map_or_else(|_| json!(value.to_string()), |small| json!(small))
        }
    };
    match op {
        Op::Step { min, max, init, step } => {
            set("op", json!(if *step < 0 { "decrement" } else { "increment" }));
            set("min", number(*min));
            set("max", number(*max));
            if *init != if *step < 0 { *max } else { *min } {
                set("init", number(*init));
            }
            if step.unsigned_abs() != 1 {
                set("step", json!(step.unsigned_abs().to_string()));
            }
        }
        Op::List { values, init } => {
            set("op", json!("list"));
            let first = values.get(*init);
            if *init == 0 || values.iter().position(|v| Some(v) == first) == Some(*init) {
                set("values", values.iter().map(|v| number(*v)).collect());
                if let (Some(first), 1..) = (first, *init) {
                    set("init", number(*first));
                }
            } else {
                // The initial value does not identify its index, so rotate the list until it starts
                // there.
                let (before, from) = values.split_at((*init).min(values.len()));
                set("values", from.iter().chain(before).map(|v| number(*v)).collect());
            }
        }
        Op::Random { min, max, limit, seed } => {
            set("op", json!("random"));
            set("min", number(*min));
            set("max", number(*max));
            limit.iter().for_each(|limit| set("limit", count(*limit)));
            seed.iter().for_each(|seed| set("seed", count(*seed)));
        }
        Op::Weighted { values } => {
            set("op", json!("weighted"));
            set("values", values.iter().map(|(v, _)| number(*v)).collect());
            set("weights", values.iter().map(|(_, weight)| json!(weight)).collect());
        }
        Op::After { then, .. } => operation(then, field, set),
    }
}

/// The value of `field` in the notation for addresses. `None` if it is a plain number.
pub(crate) fn value_text(field: &FieldRef, value: u128) -> Option<String> {
    let FieldRef::Name(name) = field else { return None };
    let (layer, field) = name.rsplit_once('.')?;
    let layer = layer.split('[').next()?;
    let header =
        squall_wire::headers().iter().find(|h| h.name == layer || h.aliases.contains(&layer))?;
    let field = header.fields.iter().find(|f| f.name == field || f.aliases.contains(&field))?;
    match field.kind {
        FieldKind::Ipv4 => {
            Some(std::net::Ipv4Addr::from_bits(u32::try_from(value).ok()?).to_string())
        }
        FieldKind::Ipv6 => Some(std::net::Ipv6Addr::from_bits(value).to_string()),
        FieldKind::Mac => {
            let [0, 0, octets @ ..] = u64::try_from(value).ok()?.to_be_bytes() else { return None };
            Some(MacAddr(octets).to_string())
        }
        _ => None,
    }
}

/// TOML's integers end at 2^63, so larger ones become text.
pub(crate) fn count(count: u64) -> Json {
    i64::try_from(count).map_or_else(|_| json!(count.to_string()), |small| json!(small))
}

pub(crate) fn duration(duration: Nanos) -> Json {
    json!(duration.to_string())
}

fn line(text: &mut String, key: &str, value: &Json) {
    _ = writeln!(text, "{} = {}", key_text(key), inline(value));
}

fn key_text(key: &str) -> String {
    let bare =
        !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if bare { key.into() } else { inline(&json!(key)) }
}

/// Writes a value on one line of TOML.
fn inline(value: &Json) -> String {
    match value {
        Json::String(text) => toml::Value::String(text.clone()).to_string(),
        Json::Array(items) => {
            format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", "))
        }
        Json::Object(entries) => {
            let entries: Vec<String> = entries
                .iter()
                .map(|(key, value)| format!("{} = {}", key_text(key), inline(value)))
                .collect();
            format!("{{ {} }}", entries.join(", "))
        }
        plain => plain.to_string(),
    }
}
