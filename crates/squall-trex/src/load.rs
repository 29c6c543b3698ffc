//! A profile of TRex, a program in Python, as a profile of ours.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde::Deserialize;
use serde_json::Value;
use squall::{Error, Profile};
use squall_profile::{Port, Stop};

use crate::{Astf, FlowSetting, Load, Macs, Setting, Statistics, Stream, translate};

/// Reads a profile with the client's library in the Python that runs there.
const LOADER: &str = include_str!("load.py");

/// A profile of TRex in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct File<'a> {
    pub path: &'a Path,
    /// The folder that has the package `trex` of the client; `None`: as Python finds it.
    pub library: Option<&'a Path>,
    /// What the profile's `get_streams` is called with.
    pub tunables: &'a BTreeMap<String, Value>,
    /// Addresses of ports 0, 1, ...
    pub ports: &'a [String],
}

#[derive(Deserialize)]
struct Loaded {
    #[serde(default)]
    ports: Vec<Vec<Value>>,
    /// A profile of flows, in place of streams.
    flows: Option<Value>,
    library: Option<String>,
    error: Option<Vec<String>>,
}

/// The MAC addresses that TRex's simulator gives.
pub const MACS: Macs = Macs {
    source: squall_units::MacAddr([0x18; 6]),
    destination: squall_units::MacAddr([0x10; 6]),
};

impl File<'_> {
    /// # Errors
    /// No Python, no library, what the profile itself says, and streams that cannot be sent as they
    /// are.
    pub fn load(&self) -> Result<Profile, Error> {
        let shown = self.path.display();
        let loaded = self.ask()?;
        if let Some(why) = loaded.library {
            return Err(Error::Usage(format!(
                "cannot load {shown}: Python does not find the library of TRex's client ({why})\n  \
                 try --trex-lib FOLDER, automation/trex_control_plane/interactive of TRex, or set \
                 PYTHONPATH"
            )));
        }
        if let Some(lines) = loaded.error {
            return Err(Error::Usage(format!("cannot load {shown}: {}", lines.join("\n  "))));
        }
        if let Some(value) = &loaded.flows {
            return self.of_flows(value);
        }
        // Files have the speed of the simulator's, and nobody who reads our signature.
        let file = |address: &String| address.starts_with("pcap:");
        let ports: Vec<String> = self
            .ports
            .iter()
            .map(|address| match file(address) && !address.contains(",speed=") {
                true => format!("{address},speed=10Gbps"),
                false => address.clone(),
            })
            .collect();
        let statistics = match ports.iter().all(file) {
            true => Statistics::Marks,
            false => Statistics::Signature,
        };
        let mut streams = Vec::new();
        for (port, values) in loaded.ports.iter().enumerate() {
            let wrong = |problem: crate::Problem| Error::Usage(format!("{shown}: {problem}"));
            let numbered = numbered(values).map_err(wrong)?;
            let setting = Setting {
                port,
                macs: MACS,
                load: Load::Factor(1.0),
                speed: speed_of(&ports[port]),
                statistics,
            };
            let first = streams.len();
            let name = |number: u32| match &numbered[&number].name {
                Some(name) if loaded.ports.len() == 1 => name.clone(),
                Some(name) => format!("{port}.{name}"),
                None => format!("{port}.{number}"),
            };
            for mut translated in translate(&numbered, &setting, name).map_err(wrong)? {
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
            ports: ports.iter().enumerate().map(name).collect(),
            streams,
            replays: Vec::new(),
            flows: None,
            attacks: Vec::new(),
            seed: 1,
            stop: Stop::default(),
            run: Default::default(),
        })
    }

    /// Clients on the first port, servers on the second; or both on one.
    fn of_flows(&self, value: &Value) -> Result<Profile, Error> {
        let shown = self.path.display();
        let wrong = |problem: crate::Problem| Error::Usage(format!("{shown}: {problem}"));
        if let Some(file) = self.ports.iter().find(|address| address.starts_with("pcap:")) {
            return Err(Error::Usage(format!(
                "{shown}: flows need somebody who answers, and {file} is a file\n  try -i \
                 loop:x,virtual --capture FILE: both sides in virtual time"
            )));
        }
        let mut flows = Astf::read(value)
            .and_then(|astf| astf.flows(&FlowSetting::default()))
            .map_err(wrong)?;
        flows.servers = Some(self.ports.len().min(2) - 1);
        let name = |(i, address): (usize, &String)| Port {
            name: i.to_string(),
            address: address.clone(),
            at: Default::default(),
        };
        Ok(Profile {
            origin: shown.to_string(),
            ports: self.ports.iter().take(2).enumerate().map(name).collect(),
            flows: Some(flows),
            seed: 1,
            ..Profile::default()
        })
    }

    fn ask(&self) -> Result<Loaded, Error> {
        let library = self.library.map(Path::to_path_buf).unwrap_or_default();
        let path = std::path::absolute(self.path).unwrap_or_else(|_| PathBuf::from(self.path));
        let tunables = serde_json::to_string(self.tunables).expect("a table of values");
        let done = Command::new("python3")
            .args(["-c", LOADER])
            .args([&library, &path])
            .args([self.ports.len().to_string(), tunables])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| {
                Error::Environment(format!("cannot run python3: {error}\n  try to install Python"))
            })?;
        let last = done.stdout.split(|octet| *octet == b'\n').rfind(|line| !line.is_empty());
        last.and_then(|line| serde_json::from_slice(line).ok()).ok_or_else(|| {
            let said = String::from_utf8_lossy(&done.stderr);
            let tail: Vec<&str> = said.lines().rev().take(3).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            Error::Usage(format!("cannot load {}: {}", self.path.display(), tail.join("\n  ")))
        })
    }
}

/// What an address gives as the port's speed, in bits per second.
fn speed_of(address: &str) -> Option<f64> {
    let text = address.split(",speed=").nth(1)?.split(',').next()?;
    let rate: squall_units::Rate = text.parse().ok()?;
    Some(rate.num as f64 / rate.den as f64)
}

/// Streams by number from 1, with the numbers of those that they name.
fn numbered(values: &[Value]) -> Result<BTreeMap<u32, Stream>, crate::Problem> {
    let mut streams: BTreeMap<u32, Stream> = BTreeMap::new();
    for (number, value) in (1..).zip(values) {
        streams.insert(
            number,
            Stream::read(value).map_err(|problem| problem.of(format!("stream {number}")))?,
        );
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
