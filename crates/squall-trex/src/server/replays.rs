//! Sends captures from the directory of the user that starts runs (`push_remote`).

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use serde_json::{Value, json};
use squall_pcap::{CaptureError, CaptureReader, PcapFormat, PcapWriter};
use squall_profile::{Located, Replay, SpeedUnit, SplitRule};
use squall_replay::{Cache, Side};
use squall_units::{MacAddr, Nanos};

use super::{Answer, Server, erf};
use crate::{
    rpc::{Params, Refusal},
    traffic,
};

/// Bits of `count` that request to keep the source or destination address of the capture.
const OWN_SOURCE: u64 = 1 << 31;
const OWN_DESTINATION: u64 = 1 << 30;

impl Server {
    /// # Errors
    /// A value is out of range, the file cannot be sent, or a port sends already.
    pub(super) fn push_remote(&mut self, port: usize, params: &Params<'_>) -> Answer {
        let file = params.text("pcap_filename")?;
        let second = params.flag("is_dual").then(|| self.second_port(port, params)).transpose()?;
        if params.get("min_ipg_usec").and_then(Value::as_f64).is_some_and(|gap| gap > 0.0) {
            return Err(Refusal::failed("min_ipg_usec is not supported: use ipg_usec or speedup"));
        }
        let (gap, speedup) = (params.number("ipg_usec")?, params.number("speedup")?);
        if !(speedup.is_finite() && speedup > 0.0) {
            return Err(Refusal::parameters(format!("speedup = {speedup}: expected more than 0")));
        }
        if !gap.is_finite() || gap == 0.0 {
            let text = format!("ipg_usec = {gap}: expected more than 0, or -1 for as captured");
            return Err(Refusal::parameters(text));
        }
        let busy = (0..self.ports.len()).any(|port| self.sends(port));
        if busy || self.flows_play() {
            return Err(Refusal::failed(
                "a capture is sent only while no port sends: stop the traffic first",
            ));
        }
        let path = self.start.file(file)?;
        self.temporary = Temporary::default();
        let (path, interfaces) = match second {
            Some(_) => self.both_directions(path)?,
            None => (path, Vec::new()),
        };
        let count = params.whole("count")?;
        let duration = params.number("duration")?;
        let mut edit = Vec::new();
        let macs = |of: &dyn Fn(usize) -> MacAddr| match second {
            None => of(port).to_string(),
            Some(second) => format!("{},{}", of(port), of(second)),
        };
        for (bit, option, macs) in [
            (OWN_SOURCE, "enet-smac", macs(&|port| self.ports[port].info.mac)),
            (OWN_DESTINATION, "enet-dmac", macs(&|port| self.ports[port].destination)),
        ] {
            if count & bit == 0 {
                edit.push((option.to_owned(), Located::from(macs.as_str())));
            }
        }
        let split = match second {
            None => None,
            Some(_) => {
                let cache = self.temporary.write(&path, &sides(&interfaces).to_bytes());
                let cache = cache.map_err(|error| Refusal::failed(error.to_string()))?;
                Some((SplitRule::Cache, Located::from(cache.to_string_lossy().as_ref())))
            }
        };
        let speed = match gap > 0.0 {
            true => (SpeedUnit::Rate, format!("{} pps", 1e6 / gap * speedup)),
            false => (SpeedUnit::Captured, speedup.to_string()),
        };
        let replay = Replay {
            name: file.to_owned(),
            files: vec![Located::from(path.to_string_lossy().as_ref())],
            port,
            port2: second,
            split,
            speed: Some((speed.0, Located::from(speed.1.as_str()))),
            loops: count & !(OWN_SOURCE | OWN_DESTINATION),
            duration: (duration > 0.0 && duration < 1e9).then_some(Nanos((duration * 1e9) as u64)),
            edit,
            ..Replay::default()
        };
        let mut profile = traffic::flow_profile(&self.traffic.places(), None, Vec::new());
        profile.replays.push(replay);
        self.traffic.play(self.start.as_mut(), profile, None)?;
        self.replaying = Some(port);
        self.event(0, json!({ "port_id": port }));
        Ok(json!({}))
    }

    /// The port that sends the packets of the other direction.
    ///
    /// # Errors
    /// There is none, or the client has not acquired it.
    fn second_port(&self, port: usize, params: &Params<'_>) -> Result<usize, Refusal> {
        let second = port ^ 1;
        let handler = params.get("slave_handler").and_then(Value::as_str);
        match self.ports.get(second).map(|port| &port.owner) {
            None => Err(Refusal::failed(format!("is_dual: port {port} has no adjacent port"))),
            Some(Some(owner)) if handler == Some(&owner.handler) => Ok(second),
            Some(_) => Err(Refusal::failed("incorrect or missing slave port handler")),
        }
    }

    /// A capture that a replay reads, and the interface of each of its packets.
    ///
    /// # Errors
    /// The file cannot be read, or has packets of one direction only.
    fn both_directions(&mut self, path: PathBuf) -> Result<(PathBuf, Vec<u32>), Refusal> {
        let failed = |why: &str| Refusal::failed(format!("{}: {why}", path.display()));
        let (readable, interfaces) = match interfaces(&path) {
            Ok(interfaces) => (path.clone(), interfaces),
            Err(error) => {
                let file = fs::read(&path).map_err(|error| failed(&error.to_string()))?;
                let records = erf::read(&file)
                    .map_err(|not_erf| failed(&format!("{error}\n  or, as ERF: {not_erf}")))?;
                let copy = pcap(&records).and_then(|copy| self.temporary.write(&path, &copy));
                let copy = copy.map_err(|error| failed(&error.to_string()))?;
                (copy, records.iter().map(|record| record.interface.into()).collect())
            }
        };
        if !interfaces.iter().any(|interface| interface & 1 == 1) {
            return Err(failed(
                "no packet is of an odd interface, so that all would leave at one port (is_dual)\n  \
                 try an ERF or pcapng file with an interface for each direction, or one port",
            ));
        }
        Ok((readable, interfaces))
    }

    /// Stops the replay of a capture; returns whether it was on this port.
    pub(super) fn stop_replay(&mut self, port: usize) -> bool {
        if self.replaying != Some(port) {
            return false;
        }
        self.replaying = None;
        self.traffic.end();
        self.temporary = Temporary::default();
        self.event(1, json!({ "port_id": port }));
        true
    }

    /// Sends the events for the end of a replay; `why`: the reason if it failed.
    pub(super) fn replayed(&mut self, why: Option<&str>) {
        let Some(port) = self.replaying.take() else { return };
        self.temporary = Temporary::default();
        if let Some(why) = why {
            self.event(7, json!({ "port_id": port, "error": why }));
        }
        self.event(4, json!({ "port_id": port }));
    }
}

/// The side of each packet: TRex sends those of odd interfaces on the second port.
fn sides(interfaces: &[u32]) -> Cache {
    let mut cache = Cache::new("");
    for interface in interfaces {
        cache.push(if interface & 1 == 1 { Side::Secondary } else { Side::Primary });
    }
    cache
}

/// The interface of each packet.
fn interfaces(path: &Path) -> Result<Vec<u32>, CaptureError> {
    let mut reader = CaptureReader::open(path)?;
    let mut all = Vec::new();
    while let Some(packet) = reader.next()? {
        all.push(packet.interface);
    }
    Ok(all)
}

fn pcap(records: &[erf::Record<'_>]) -> io::Result<Vec<u8>> {
    let mut writer = PcapWriter::new(Vec::new(), PcapFormat::default())?;
    for record in records {
        writer.write(record.time_ns, record.wire_len, record.octets)?;
    }
    writer.finish()
}

/// Files of a replay, which are removed when this is dropped. They are in the folder of the capture,
/// because a run reads no others.
#[derive(Default)]
pub struct Temporary(Vec<PathBuf>);

impl Temporary {
    /// Writes a file into the folder of `capture`.
    fn write(&mut self, capture: &Path, octets: &[u8]) -> io::Result<PathBuf> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!(".push_remote-{}-{number}", std::process::id());
        let path = capture.with_file_name(name);
        let mut file = fs::File::create_new(&path)?;
        self.0.push(path.clone());
        file.write_all(octets)?;
        Ok(path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        for path in &self.0 {
            _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use serde_json::json;

    use crate::server::{erf, tests::Client};

    /// A pcapng file with packets of these interfaces.
    fn capture(interfaces: &[u32]) -> Vec<u8> {
        let mut file = Vec::new();
        let mut block = |kind: u32, body: &[u8]| {
            let length = (body.len() + 12) as u32;
            file.extend(kind.to_le_bytes());
            file.extend(length.to_le_bytes());
            file.extend(body);
            file.extend(length.to_le_bytes());
        };
        // Section header, and two Ethernet interfaces without a limit of lengths.
        let head = [0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0];
        block(0x0a0d_0d0a, &[&head[..], &[0xff; 8]].concat());
        block(1, &[1, 0, 0, 0, 0, 0, 0, 0]);
        block(1, &[1, 0, 0, 0, 0, 0, 0, 0]);
        for (number, interface) in interfaces.iter().enumerate() {
            let fields = [*interface, 0, number as u32 * 1000, 60, 60];
            let fields: Vec<u8> = fields.iter().flat_map(|field| field.to_le_bytes()).collect();
            block(6, &[&fields[..], &[0xee; 60]].concat());
        }
        file
    }

    #[test]
    fn packets_of_odd_interfaces_leave_at_the_adjacent_port() {
        let mut client = Client::new("trex-dual", false);
        let handlers = [0, 1].map(|port| {
            let asked = json!({ "port_id": port, "user": "ann", "session_id": 1, "force": false });
            client.ask("acquire", asked).expect("free")
        });
        let slave = handlers[1].as_str().expect("text");
        let path = std::env::temp_dir().join(format!("squall-trex-dual-{}", std::process::id()));
        let push = |client: &mut Client, file: &[u8], slave: &str| {
            std::fs::write(&path, file).expect("a file");
            let asked = json!({ "port_id": 0, "handler": handlers[0], "slave_handler": slave,
                "pcap_filename": path.to_str(), "ipg_usec": 500, "min_ipg_usec": 0, "speedup": 1.0,
                "count": 2, "duration": -1, "is_dual": true });
            client.ask("push_remote", asked)
        };
        let both = capture(&[0, 1, 1, 0, 1]);
        let why = push(&mut client, &both, "other").expect_err("not the owner");
        assert_eq!(why.text, "incorrect or missing slave port handler");
        let why = push(&mut client, &capture(&[0, 0]), slave).expect_err("one direction");
        assert!(why.text.contains("odd interface"), "{why:?}");
        let why = push(&mut client, &[7; 30], slave).expect_err("no capture");
        assert!(why.text.contains("or, as ERF: record 1"), "{why:?}");
        for (round, file) in [(1, both), (2, erf::tests::file(&[0, 1, 3, 2, 1]))] {
            push(&mut client, &file, slave).expect("both directions");
            let until = Instant::now() + Duration::from_secs(60);
            while client.server.replaying.is_some() && Instant::now() < until {
                client.server.look();
                std::thread::sleep(Duration::from_millis(1));
            }
            for (port, packets) in [(0, 4), (1, 6)] {
                let stats =
                    client.ask("get_port_stats", json!({ "port_id": port })).expect("known");
                assert_eq!(stats["opackets"], json!(round * packets), "port {port}");
            }
        }
        assert!(client.server.temporary.0.is_empty(), "the copies of the last one");
        _ = std::fs::remove_file(&path);
    }
}
