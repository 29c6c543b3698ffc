//! Loads TRex profiles, which are Python programs, and translates them to Squall profiles.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde::Deserialize;
use serde_json::Value;
use squall::{Error, Profile};
use squall_profile::{Format, Port, value_of};
use squall_units::{Cannot, TREX_HW_IDS, TrexMark};

use crate::{
    Astf, FlowPair, FlowSetting, GroupNumbers, Load, Macs, Setting, Statistics, Stream,
    clusters::Clusters,
    stream::NULL,
    translate,
    translate::{FIRST_FLOW_SEQ, with_headers},
};

/// Python program that loads a profile with TRex's client library.
const LOADER: &str = include_str!("load.py");

/// Substitutes for that library, one for stream profiles and one for flow profiles. The second
/// imports the first.
const STAND_INS: [(&str, &str); 2] = [
    ("_stl", include_str!("../../../python/squall/_stl.py")),
    ("_astf", include_str!("../../../python/squall/_astf.py")),
];

const EXPECTED: &str = "expected a list of streams, the streams of each port (ports), or a profile \
                        of flows (templates, program_list)\n  try --trex with a program";

/// A TRex profile in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct File<'a> {
    pub path: &'a Path,
    /// The directory with the client's package `trex`; `None`: Python's default search path.
    pub library: Option<&'a Path>,
    /// Arguments of the profile's `get_streams`.
    pub tunables: &'a BTreeMap<String, Value>,
    /// Addresses of ports 0, 1, ...
    pub ports: &'a [String],
    /// Whether packets of streams with latency carry TRex's header instead of Squall's signature.
    pub headers: bool,
    /// The configuration of client clusters (TRex's `--client_cfg`) for a profile of flows.
    pub clusters: Option<&'a Path>,
}

#[derive(Default, Deserialize)]
pub(crate) struct Loaded {
    #[serde(default)]
    pub ports: Vec<Vec<Value>>,
    /// A profile of flows, instead of streams.
    pub flows: Option<Value>,
    pub library: Option<String>,
    pub error: Option<Vec<String>>,
    /// The interpreter, if the error is that it has no scapy.
    pub scapy: Option<String>,
}

/// The MAC addresses that TRex's simulator uses.
pub const MACS: Macs = Macs {
    source: squall_units::MacAddr([0x18; 6]),
    destination: squall_units::MacAddr([0x10; 6]),
};

impl File<'_> {
    /// # Errors
    /// There is no Python or no library, the profile raises an error, or streams cannot be
    /// translated.
    pub fn load(&self) -> Result<Profile, Error> {
        let loaded = self.loaded()?;
        match &loaded.flows {
            Some(value) => self.of_flows(value),
            None if self.clusters.is_some() => Err(Error::Usage(format!(
                "{}: client clusters are of profiles of flows, and this one has streams\n  try \
                 without --client-cfg",
                self.path.display()
            ))),
            None => {
                let ports: Vec<(usize, &Vec<Value>)> = loaded.ports.iter().enumerate().collect();
                self.of_streams(&ports, self.ports)
            }
        }
    }

    /// Evaluates the profile to JSON.
    pub(crate) fn loaded(&self) -> Result<Loaded, Error> {
        let shown = self.path.display();
        if let Some(format) = self.plain() {
            return self.written(format);
        }
        let loaded = self.ask()?;
        if let Some(why) = loaded.library {
            return Err(Error::Usage(format!(
                "cannot load {shown}: Python does not find the library of TRex's client, which \
                 --trex-lib names ({why})\n  try --trex-lib FOLDER, \
                 automation/trex_control_plane/interactive of TRex, or leave it out"
            )));
        }
        if let Some(python) = loaded.scapy {
            let why = loaded.error.unwrap_or_default().join(", ");
            return Err(Error::Environment(format!(
                "cannot load {shown}: {why}, because scapy is missing in {python}\n  try {python} -m pip install \
                 scapy, --trex-lib FOLDER, or SQUALL_PYTHON=/path/to/python"
            )));
        }
        match loaded.error {
            Some(lines) => {
                Err(Error::Usage(format!("cannot load {shown}: {}", lines.join("\n  "))))
            }
            None => Ok(loaded),
        }
    }

    /// The data format of the profile; `None` if it is a program.
    fn plain(&self) -> Option<Format> {
        match self.path.extension()?.to_str()? {
            "yaml" | "yml" => Some(Format::Yaml),
            "json" => Some(Format::Json),
            _ => None,
        }
    }

    /// Reads a flow profile, or a list of streams that each port sends.
    fn written(&self, format: Format) -> Result<Loaded, Error> {
        let wrong =
            |what: String| Error::Usage(format!("cannot load {}: {what}", self.path.display()));
        let text = squall_profile::read_text(self.path)
            .map_err(|error| Cannot::read(self.path, &error))?;
        let value = value_of(&text, format).map_err(wrong)?;
        if Astf::is_one(&value) {
            return Ok(Loaded { flows: Some(value), ..Loaded::default() });
        }
        let directions = match value {
            Value::Array(streams) => vec![streams],
            Value::Object(mut made) => match (made.remove("flows"), made.remove("ports")) {
                (Some(flows), None) if Astf::is_one(&flows) => {
                    return Ok(Loaded { flows: Some(flows), ..Loaded::default() });
                }
                (None, Some(ports)) => serde_json::from_value(ports)
                    .map_err(|error| wrong(format!("ports: {error}")))?,
                _ => return Err(wrong(EXPECTED.into())),
            },
            _ => return Err(wrong(EXPECTED.into())),
        };
        if directions.is_empty() {
            return Err(wrong(EXPECTED.into()));
        }
        let mut ports: Vec<Vec<Value>> =
            directions.iter().cycle().take(self.ports.len()).cloned().collect();
        for stream in ports.iter_mut().flatten() {
            // TRex's console nests an exported stream in a named table.
            if let Some(Value::Object(inner)) = stream.get_mut("stream").map(Value::take) {
                for (key, value) in inner {
                    stream[key] = value;
                }
            }
        }
        Ok(Loaded { ports, ..Loaded::default() })
    }

    /// Translates the streams of the given TRex ports, with one address per port.
    pub(crate) fn of_streams(
        &self,
        ports: &[(usize, &Vec<Value>)],
        addresses: &[String],
    ) -> Result<Profile, Error> {
        let wrong =
            |problem: crate::Problem| Error::Usage(format!("{}: {problem}", self.path.display()));
        // A file port gets the speed of TRex's simulator, and frames have no signature: no Squall
        // port receives them.
        let file = |address: &String| address.starts_with("pcap:");
        let addresses: Vec<String> = addresses
            .iter()
            .map(|address| match file(address) && !address.contains(",speed=") {
                true => format!("{address},speed=10Gbps"),
                false => address.clone(),
            })
            .collect();
        let statistics = match addresses.iter().all(file) {
            _ if self.headers => Statistics::Trex,
            true => Statistics::Marks,
            false => Statistics::Signature,
        };
        let (mut streams, mut groups) = (Vec::new(), GroupNumbers::default());
        let mut marks =
            (0..TREX_HW_IDS as u8).map(|hw_id| TrexMark { hw_id, flow_seq: FIRST_FLOW_SEQ });
        for (place, (number_of_port, values)) in ports.iter().enumerate() {
            let numbered = numbered((1..).zip(values.iter())).map_err(wrong)?;
            let setting = Setting {
                port: place,
                macs: MACS,
                load: Load::Factor(1.0),
                speed: speed_of(&addresses[place]),
                statistics,
            };
            let first = streams.len();
            let name = |number: u32| match &numbered[&number].name {
                Some(name) if ports.len() == 1 => name.clone(),
                Some(name) => format!("{number_of_port}.{name}"),
                None => format!("{number_of_port}.{number}"),
            };
            let mut sent =
                translate(&numbered, &setting, name, |asked| groups.take(asked)).map_err(wrong)?;
            if statistics == Statistics::Trex {
                with_headers(&mut sent, &numbered, &mut marks).map_err(wrong)?;
            }
            for mut translated in sent {
                if let Some(next) = &mut translated.stream.next {
                    next.stream += first;
                }
                streams.push(translated.stream);
            }
        }
        let name = |(i, address): (usize, &String)| Port {
            name: i.to_string(),
            address: address.clone(),
            at: Default::default(),
        };
        Ok(Profile {
            origin: self.path.display().to_string(),
            ports: addresses.iter().enumerate().map(name).collect(),
            streams,
            ..Profile::default()
        })
    }

    /// Translates a profile of flows, with clients on the first port of each pair and servers on the
    /// second, or both on one.
    pub(crate) fn of_flows(&self, value: &Value) -> Result<Profile, Error> {
        let shown = self.path.display();
        let wrong = |problem: crate::Problem| Error::Usage(format!("{shown}: {problem}"));
        if let Some(file) = self.ports.iter().find(|address| address.starts_with("pcap:")) {
            return Err(Error::Usage(format!(
                "{shown}: flows need somebody who answers, and {file} is a file\n  try -i \
                 loop:x,virtual --capture FILE: both sides in virtual time"
            )));
        }
        let pairs = match self.ports.len() {
            1 => vec![FlowPair::of(0, 0)],
            count if count % 2 == 0 => {
                (0..count).step_by(2).map(|port| FlowPair::of(port, port + 1)).collect()
            }
            count => {
                return Err(Error::Usage(format!(
                    "{shown}: flows need pairs of ports, for clients and for servers, and there \
                     are {count}\n  try -i once more, or once less"
                )));
            }
        };
        let setting = FlowSetting { pairs, ..FlowSetting::default() };
        let mut flows = Astf::read(value).and_then(|astf| astf.flows(&setting)).map_err(wrong)?;
        if let Some(path) = self.clusters {
            let of =
                |problem: crate::Problem| Error::Usage(format!("{}: {problem}", path.display()));
            Clusters::load(path)?.apply(&mut flows).map_err(of)?;
        }
        let name = |(i, address): (usize, &String)| Port {
            name: i.to_string(),
            address: address.clone(),
            at: Default::default(),
        };
        Ok(Profile {
            origin: shown.to_string(),
            ports: self.ports.iter().enumerate().map(name).collect(),
            flows: Some(flows),
            ..Profile::default()
        })
    }

    fn ask(&self) -> Result<Loaded, Error> {
        let library = self.library.map(Path::to_path_buf).unwrap_or_default();
        let path = std::path::absolute(self.path).unwrap_or_else(|_| PathBuf::from(self.path));
        let tunables = serde_json::to_string(self.tunables).expect("a table of values");
        let python = squall_machine::python::python();
        let done = Command::new(&python)
            .args(["-c", LOADER])
            .args([&library, &path])
            .args([self.ports.len().to_string(), tunables])
            .args(STAND_INS.iter().flat_map(|(name, source)| [name, source]))
            .stdin(Stdio::null())
            .output()
            .map_err(|error| {
                Error::Environment(format!(
                    "cannot run {}: {error}\n  try to install Python, or \
                     SQUALL_PYTHON=/path/to/python",
                    python.display()
                ))
            })?;
        let last = done.stdout.split(|octet| *octet == b'\n').rfind(|line| !line.is_empty());
        last.and_then(|line| serde_json::from_slice(line).ok()).ok_or_else(|| {
            let stderr = String::from_utf8_lossy(&done.stderr);
            let tail: Vec<&str> = stderr.lines().rev().take(3).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            Error::Usage(format!("cannot load {}: {}", self.path.display(), tail.join("\n  ")))
        })
    }
}

/// The `speed` parameter of an address, bits per second.
fn speed_of(address: &str) -> Option<f64> {
    let text = address.split(",speed=").nth(1)?.split(',').next()?;
    let rate: squall_units::Rate = text.parse().ok()?;
    Some(rate.num as f64 / rate.den as f64)
}

/// A profile with one port of this name, to show its streams.
pub fn of_port(name: &str, streams: Vec<squall_profile::Stream>) -> Profile {
    let port = Port { name: name.to_owned(), address: "null:".into(), at: Default::default() };
    Profile { ports: vec![port], streams, ..Profile::default() }
}

/// Reads streams by number, and resolves the names of following streams to numbers.
///
/// # Errors
/// A stream is invalid, or names an unknown stream.
pub fn numbered<'a>(
    values: impl IntoIterator<Item = (u32, &'a Value)>,
) -> Result<BTreeMap<u32, Stream>, crate::Problem> {
    let mut streams: BTreeMap<u32, Stream> = BTreeMap::new();
    for (number, value) in values {
        let of = |problem: crate::Problem| problem.of(format!("stream {number}"));
        let mut stream = Stream::read(value).map_err(of)?;
        // No client can resume the stream here, so it only delays the streams after it.
        if stream.start_paused {
            stream.flags |= NULL;
        }
        streams.insert(number, stream);
    }
    let names: BTreeMap<String, u32> = streams
        .iter()
        .filter_map(|(number, stream)| Some((stream.name.clone()?, *number)))
        .collect();
    for (number, stream) in &mut streams {
        let Some(next) = stream.next.clone().filter(|next| !next.is_empty()) else { continue };
        let Some(following) = names.get(&next) else {
            let text = format!("next = {next:?}: there is no such stream");
            return Err(crate::Problem::new(text).of(format!("stream {number}")));
        };
        stream.next_stream_id = i64::from(*following);
    }
    Ok(streams)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::server::tests::datagrams;

    #[test]
    fn each_port_sends_the_streams_of_its_direction() {
        let path =
            std::env::temp_dir().join(format!("squall-trex-ports-{}.json", std::process::id()));
        let stream = |name: &str| {
            let mode = json!({ "type": "continuous", "rate": { "type": "pps", "value": 1.0 } });
            let packet = json!({ "binary": "AAAAAQAAAAAAAgAACABFAAAuAAEAAEAROr0QAAABMAAAAQQBAAwAGn9veHh4eHh4eHh4eHh4eHh4eHh4", "meta": "" });
            json!({ "name": name, "enabled": true, "self_start": true, "isg": 0.0, "mode": mode,
                "packet": packet, "vm": { "instructions": [] }, "flow_stats": { "enabled": false } })
        };
        let value = json!({ "ports": [[stream("to")], [stream("from"), stream("other")]] });
        std::fs::write(&path, value.to_string()).expect("a file");
        let names = |count: usize| {
            let ports = vec!["null:".to_owned(); count];
            let tunables = BTreeMap::new();
            let file = File {
                path: &path,
                library: None,
                tunables: &tunables,
                ports: &ports,
                headers: false,
                clusters: None,
            };
            let profile = file.load().expect("sound");
            profile.streams.into_iter().map(|stream| stream.name).collect::<Vec<_>>()
        };
        assert_eq!(names(1), ["to"]);
        assert_eq!(names(3), ["0.to", "1.from", "1.other", "2.to"]);
        let _ = std::fs::remove_file(&path);
    }

    #[test]
    fn flows_in_json_are_a_profile_and_other_json_is_refused() {
        let path =
            std::env::temp_dir().join(format!("squall-trex-load-{}.json", std::process::id()));
        let ports = ["loop:json,virtual".to_owned()];
        let load = |value: &Value| {
            std::fs::write(&path, value.to_string()).expect("a file");
            let (tunables, headers) = (BTreeMap::new(), false);
            let (path, ports, clusters) = (&path, &ports, None);
            let loaded =
                File { path, library: None, tunables: &tunables, ports, headers, clusters }.load();
            loaded.map_err(|error| error.to_string())
        };
        let mut value = datagrams(&json!({ "name": "tx_msg", "buf_index": 0 }));
        let flows = load(&value).expect("sound").flows.expect("flows");
        assert_eq!((flows.templates.len(), flows.clients, flows.servers), (1, Some(0), Some(0)));
        value["templates"][0]["client_template"]["program_index"] = json!(7);
        let why = load(&value).expect_err("no such program");
        assert!(why.contains("template 0: there is no program 7"), "{why}");
        value["templates"][0]["client_template"]["program_index"] = json!(0);
        assert_eq!(load(&json!({ "flows": value })).expect("sound").flows, Some(flows));
        let why = load(&json!({ "a": 1 })).expect_err("nothing of either");
        assert!(why.contains("expected a list of streams, the streams of each port"), "{why}");
        let _ = std::fs::remove_file(&path);
    }
}
