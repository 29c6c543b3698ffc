//! Captures and receive queues on ports in service mode, and packets that clients send one by one.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use squall::{RunOptions, Session};
use squall_control::recordings::{Recording, Recordings};
use squall_options::{CaptureOptions, Count, Time};
use squall_profile::{Mode, PacketSource, Recompute};
use squall_units::Nanos;

use super::{Answer, Server, Service};
use crate::{
    rpc::{Params, Refusal},
    stream::{LONGEST, SHORTEST},
    traffic,
};

/// Maximum concurrent captures, and maximum packets of one.
const MOST: usize = 64;
const MOST_PACKETS: u64 = 1_000_000;
/// Maximum number of individual packets to send per request, and the maximum time span that they
/// cover.
const MOST_SENT: usize = 5_000;
const LONGEST_SENT: Duration = Duration::from_secs(1);
/// Time limit for sending them, including opening and closing the port.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Default)]
pub struct Captures {
    of: BTreeMap<u64, Capture>,
    next: u64,
    /// Receive queues by port.
    queues: BTreeMap<usize, Capture>,
    /// Last, because its directory is removed after the recordings in it have ended.
    recordings: Recordings,
}

struct Capture {
    recording: Recording,
    /// For each port of the recording: its number on the server, and whether it records sent
    /// frames.
    ports: Vec<(usize, bool)>,
    limit: u64,
    /// Whether to keep the last packets instead of the first.
    cyclic: bool,
    filter: String,
    began: f64,
    active: bool,
    /// Number of packets returned so far, and the time of the last of them in ns, for each port and
    /// direction.
    fetched: u64,
    until: Until,
}

/// Times in ns by port and direction. Each pair has its own socket, so that the times of its
/// packets ascend, but not those of the whole recording.
type Until = BTreeMap<(usize, bool), u64>;

/// A captured packet.
struct Packet {
    time_ns: u64,
    port: usize,
    sent: bool,
    octets: Vec<u8>,
}

impl Capture {
    /// Copies of all captured packets that are kept.
    fn packets(&self) -> Vec<Packet> {
        self.kept(|packet, (port, sent)| {
            let octets = packet.data.to_vec();
            Packet { time_ns: packet.time_ns, port, sent, octets }
        })
    }

    /// Lengths of all captured packets that are kept.
    fn lengths(&self) -> Vec<usize> {
        self.kept(|packet, _| packet.data.len())
    }

    /// Maps the captured packets that are kept, with their port and direction.
    fn kept<T>(&self, of: impl Fn(&squall_pcap::Packet<'_>, (usize, bool)) -> T) -> Vec<T> {
        let mut all = Vec::new();
        let Ok(()) = self.recording.each(|packet| {
            if let Some(port) = self.ports.get(packet.interface as usize) {
                all.push(of(packet, *port));
            }
            Ok::<_, Infallible>(true)
        });
        let more = all.len().saturating_sub(self.limit as usize);
        if self.cyclic {
            all.drain(..more);
        } else {
            all.truncate(self.limit as usize);
        }
        all
    }

    /// Returns up to `most` packets not returned before, and the number of packets left.
    fn fetch(&mut self, most: usize) -> (Vec<Packet>, usize) {
        let mut all = self.packets();
        let left = match self.cyclic {
            true => take_new(&mut all, most, &mut self.until),
            false => {
                all.drain(..(self.fetched as usize).min(all.len()));
                let left = all.len().saturating_sub(most);
                all.truncate(most);
                left
            }
        };
        self.fetched += all.len() as u64;
        (all, left)
    }

    fn end(&mut self) {
        if std::mem::take(&mut self.active) {
            self.recording.end();
        }
    }
}

/// Keeps the packets after `until`, which is set to the last of those kept. Keeps up to `most` of
/// them, and more only if they have the time of one that is kept: the next call skips that time.
/// Returns the number of packets left for it.
fn take_new(all: &mut Vec<Packet>, most: usize, until: &mut Until) -> usize {
    let mut reached = until.clone();
    let (mut kept, mut left) = (0, 0);
    all.retain(|packet| {
        let of = (packet.port, packet.sent);
        // Packets with the same time were captured together, so none of them comes later.
        if until.get(&of).is_some_and(|until| packet.time_ns <= *until) {
            return false;
        }
        let is_reached = reached.get(&of).is_some_and(|reached| packet.time_ns <= *reached);
        if kept >= most && !is_reached {
            left += 1;
            return false;
        }
        kept += 1;
        let reached = reached.entry(of).or_default();
        *reached = packet.time_ns.max(*reached);
        true
    });
    *until = reached;
    left
}

/// Seconds since 1970-01-01 UTC, which is this server's clock.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

impl Server {
    /// # Errors
    /// The command is unknown, or a port cannot be captured.
    pub(super) fn capture(&mut self, params: &Params<'_>) -> Answer {
        match params.text("command")? {
            "start" => self.start_capture(params),
            "stop" => {
                let capture = self.captured(params)?;
                capture.end();
                let count = capture.lengths().len();
                Ok(json!({ "pkt_count": count, "endpoint": Value::Null }))
            }
            "status" => {
                let of = |(id, capture): (&u64, &Capture)| {
                    let lengths = capture.lengths();
                    json!({
                        "id": id, "matched": lengths.len(), "fetched": capture.fetched,
                        "filter": { "tx": capture.mask(true), "rx": capture.mask(false), "bpf": capture.filter },
                        "state": if capture.active { "ACTIVE" } else { "STOPPED" },
                        "count": (lengths.len() as u64).saturating_sub(capture.fetched),
                        "bytes": lengths.iter().sum::<usize>(),
                        "limit": capture.limit,
                        "mode": if capture.cyclic { "CYCLIC" } else { "FIXED" },
                    })
                };
                Ok(json!(self.captures.of.iter().map(of).collect::<Vec<_>>()))
            }
            "fetch" => {
                let most = params.whole("pkt_limit")? as usize;
                let snaplen = params.get("snaplen").and_then(Value::as_u64).filter(|&n| n > 0);
                let capture = self.captured(params)?;
                let (packets, pending) = capture.fetch(most);
                let mut index = capture.fetched - packets.len() as u64;
                let one = |packet: &Packet| {
                    index += 1;
                    let kept = snaplen
                        .map_or(packet.octets.len(), |n| packet.octets.len().min(n as usize));
                    json!({
                        "ts": packet.time_ns as f64 / 1e9, "port": packet.port, "index": index,
                        "origin": if packet.sent { "TX" } else { "RX" },
                        "binary": STANDARD.encode(&packet.octets[..kept]),
                    })
                };
                let given: Vec<Value> = packets.iter().map(one).collect();
                Ok(json!({ "pending": pending, "start_ts": capture.began, "pkts": given }))
            }
            "remove" => {
                self.captured(params)?.end();
                self.captures.of.remove(&params.whole("capture_id")?);
                Ok(json!({}))
            }
            other => Err(Refusal::parameters(format!(
                "command = {other:?}: expected start, stop, status, fetch or remove"
            ))),
        }
    }

    fn captured(&mut self, params: &Params<'_>) -> Result<&mut Capture, Refusal> {
        let id = params.whole("capture_id")?;
        let capture = self.captures.of.get_mut(&id);
        capture.ok_or_else(|| Refusal::failed(format!("there is no capture {id}")))
    }

    fn start_capture(&mut self, params: &Params<'_>) -> Answer {
        let limit = params.whole("limit")?;
        if limit == 0 || limit > MOST_PACKETS {
            let text = format!("limit = {limit}: expected 1 to {MOST_PACKETS}");
            return Err(Refusal::parameters(text));
        }
        if self.captures.of.len() >= MOST {
            let text = format!("there are {MOST} captures already: remove one");
            return Err(Refusal::failed(text));
        }
        let cyclic = match params.get("mode").and_then(Value::as_str) {
            None | Some("fixed") => false,
            Some("cyclic") => true,
            Some(other) => {
                let text = format!("mode = {other:?}: expected fixed or cyclic");
                return Err(Refusal::parameters(text));
            }
        };
        if params.get("endpoint").and_then(Value::as_str).is_some_and(|to| !to.is_empty()) {
            return Err(Refusal::failed(
                "captures are not sent to an endpoint: leave it out, and fetch them",
            ));
        }
        let mut ports = Vec::new();
        for (key, sent) in [("tx", true), ("rx", false)] {
            let Some(list) = params.get(key).and_then(Value::as_array) else { continue };
            for port in list {
                let number = port.as_u64().and_then(|port| usize::try_from(port).ok());
                let number = number.filter(|&port| port < self.ports.len()).ok_or_else(|| {
                    Refusal::parameters(format!("{key}: {port}: expected a port of this server"))
                })?;
                ports.push((number, sent));
            }
        }
        if ports.is_empty() {
            return Err(Refusal::parameters("tx, rx: expected a port"));
        }
        let filter = params.get("filter").and_then(Value::as_str).unwrap_or_default().to_owned();
        let snaplen = params.get("snaplen").and_then(Value::as_u64).map(|n| n.min(1 << 18) as u32);
        let capture = self.record(ports, limit, cyclic, filter, snaplen)?;
        let began = capture.began;
        self.captures.next += 1;
        let id = self.captures.next;
        self.captures.of.insert(id, capture);
        Ok(json!({ "capture_id": id, "start_ts": began }))
    }

    fn record(
        &mut self,
        ports: Vec<(usize, bool)>,
        limit: u64,
        cyclic: bool,
        filter: String,
        snaplen: Option<u32>,
    ) -> Result<Capture, Refusal> {
        let service = ports.first().map_or(Service::Off, |(port, _)| self.ports[*port].service);
        if ports.iter().any(|(port, _)| self.ports[*port].service != service) {
            return Err(Refusal::failed(
                "the ports are in different service modes: capture them one by one",
            ));
        }
        let filtered = service.filter(&filter);
        let snaplen = snaplen.filter(|&octets| octets > 0);
        let (asked, most) = (CaptureOptions { snaplen, ..Default::default() }, Some(Count(limit)));
        let asked = match cyclic {
            true => CaptureOptions { rotate_packets: most, ring: Some(2), ..asked },
            false => CaptureOptions { packets: most, ..asked },
        };
        let mut opened = Vec::new();
        for &(port, sent) in &ports {
            if service == Service::Off {
                let text = format!("port {port} is not in service mode: enable it first");
                return Err(Refusal::failed(text));
            }
            let interface = self.interface(port)?;
            if sent {
                self.show_sent(port)?;
            }
            let (what, direction) = if sent { ("tx", "out") } else { ("rx", "in") };
            let address = format!("af_packet:{interface},direction={direction}");
            opened.push((format!("{what}{port}"), address));
        }
        let recording = self.captures.recordings.start(
            self.start.as_mut(),
            ("trex capture", "trex"),
            opened,
            filtered,
            asked,
        )?;
        Ok(Capture {
            recording,
            ports,
            limit,
            cyclic,
            filter,
            began: now(),
            active: true,
            fetched: 0,
            until: Until::new(),
        })
    }

    /// Makes what `port` sends visible to captures, also if it sends already.
    ///
    /// # Errors
    /// The traffic cannot be made visible.
    fn show_sent(&mut self, port: usize) -> Result<(), Refusal> {
        // Streams continue at their positions if a run is replaced; flows and captures cannot.
        if self.traffic.hides(port) && self.replaying.is_none() && !self.flows_play() {
            self.reopen()?;
        }
        match self.traffic.hides(port) {
            false => Ok(()),
            true => Err(Refusal::failed(format!(
                "what port {port} sends now goes past captures: enable service mode before flows \
                 or captures are sent, on an af_packet port"
            ))),
        }
    }

    fn interface(&self, port: usize) -> Result<String, Refusal> {
        let address = &self.ports[port].info.address;
        squall_machine::ports::interface_of(address).ok_or_else(|| {
            Refusal::failed(format!(
                "port {port} ({address}) is no network interface: only squall run --capture can \
                 record it"
            ))
        })
    }

    /// # Errors
    /// The feature is not a queue, or the port is not in service mode.
    pub(super) fn rx_feature(&mut self, port: usize, params: &Params<'_>) -> Answer {
        let (kind, on) = (params.text("type")?, params.flag("enabled"));
        if kind != "queue" {
            return match on {
                true => Err(Refusal::failed(format!("{kind} is not supported"))),
                false => Ok(json!({})),
            };
        }
        if let Some(mut queue) = self.captures.queues.remove(&port) {
            queue.end();
        }
        if on {
            let size = params.whole("size")?.clamp(1, MOST_PACKETS);
            let queue = self.record(vec![(port, false)], size, true, String::new(), None)?;
            self.captures.queues.insert(port, queue);
        }
        Ok(json!({}))
    }

    /// # Errors
    /// The port has no queue.
    pub(super) fn queued(&mut self, port: usize) -> Answer {
        let Some(queue) = self.captures.queues.get_mut(&port) else {
            return Err(Refusal::failed(format!("port {port} has no receive queue")));
        };
        let (packets, _) = queue.fetch(usize::MAX);
        let one = |packet: &Packet| json!({ "ts": packet.time_ns as f64 / 1e9, "binary": STANDARD.encode(&packet.octets) });
        Ok(json!({ "pkts": packets.iter().map(one).collect::<Vec<_>>() }))
    }

    /// The queue's part of a port's status.
    pub(super) fn queue_status(&self, port: usize) -> Value {
        match self.captures.queues.get(&port) {
            None => json!({ "is_active": false }),
            Some(queue) => json!({
                "is_active": true, "size": queue.limit, "count": queue.lengths().len(),
            }),
        }
    }

    /// Ends captures and queues of a port that leaves service mode.
    pub(super) fn end_service(&mut self, port: usize) {
        if let Some(mut queue) = self.captures.queues.remove(&port) {
            queue.end();
        }
        for capture in self.captures.of.values_mut() {
            if capture.ports.iter().any(|(other, _)| *other == port) {
                capture.end();
            }
        }
    }

    /// # Errors
    /// Packets are invalid or too many, or the port is not in service mode.
    pub(super) fn push_packets(&mut self, port: usize, params: &Params<'_>) -> Answer {
        if self.ports[port].service == Service::Off && !params.flag("force") {
            let text = format!("port {port} is not in service mode: enable it first");
            return Err(Refusal::failed(text));
        }
        if self.ports[port].owner.is_none() {
            return Err(Refusal::failed("port is not acquired by any user"));
        }
        let packets = params.list("pkts")?;
        let gap = params.number("ipg_usec")?;
        if packets.len() > MOST_SENT {
            let text = format!("{} packets: expected at most {MOST_SENT}", packets.len());
            return Err(Refusal::parameters(text));
        }
        if packets.is_empty() {
            return Ok(json!({ "sent": 0, "ts": now() }));
        }
        let longest = LONGEST_SENT.as_secs_f64() * 1e6;
        if !(gap.is_finite() && gap >= 0.0 && gap * packets.len() as f64 <= longest) {
            let text = format!("ipg_usec = {gap}: expected packets within a second");
            return Err(Refusal::parameters(text));
        }
        let mut streams = Vec::new();
        for (number, packet) in packets.iter().enumerate() {
            let mut octets = packet["binary"]
                .as_str()
                .and_then(|text| STANDARD.decode(text.trim()).ok())
                .filter(|octets| (12..=LONGEST).contains(&octets.len()))
                .ok_or_else(|| {
                    let text = "expected 12 octets or more in base 64";
                    Refusal::parameters(format!("packet {number}: binary: {text}"))
                })?;
            if octets.len() < SHORTEST {
                octets.resize(SHORTEST, 0);
            }
            let is = |key: &str| packet[key].as_bool() == Some(true);
            if is("use_port_dst_mac") {
                octets[..6].copy_from_slice(&self.ports[port].destination.0);
            }
            if is("use_port_src_mac") {
                octets[6..12].copy_from_slice(&self.ports[port].info.mac.0);
            }
            let mut stream = traffic::idle_stream(0, format!("packet {number}"));
            stream.packet = PacketSource::Octets(octets.into());
            stream.recompute = Recompute::Only(Vec::new());
            stream.mode = Mode::Burst(1);
            stream.start_delay = Nanos((gap * 1e3) as u64 * number as u64);
            streams.push(stream);
        }
        let mut place = self.traffic.places().swap_remove(port);
        place.address = traffic::seen(&place.address);
        let profile = traffic::flow_profile(&[place], None, streams);
        let options = RunOptions { linger: Some(Time::default()), ..RunOptions::default() };
        let session = Session { options, ..Session::new(profile) }.command("trex");
        let driven = self.start.start("trex push", session)?;
        let mut began = None;
        _ = driven.with(|run| {
            began = Some(run.started_ns() as f64 / 1e9);
            Ok(())
        });
        let outcome = driven.wait(SEND_TIMEOUT).ok_or_else(|| {
            driven.stop();
            Refusal::failed("the packets were not sent in time")
        })?;
        let report = outcome.map_err(|error| Refusal::failed(error.to_string()))?;
        let sent: u64 = report.ports.iter().map(|port| port.tx.packets).sum();
        Ok(json!({ "sent": sent, "ts": began.unwrap_or_else(now) }))
    }
}

impl Capture {
    /// Bit mask of the ports that are captured in this direction.
    fn mask(&self, sent: bool) -> u64 {
        let of = self.ports.iter().filter(|(_, other)| *other == sent);
        of.fold(0, |mask, (port, _)| mask | 1 << (port & 63))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first octet of each packet that is fetched, and the number of packets left.
    fn fetched(all: &[(u64, usize)], most: usize, until: &mut Until) -> (Vec<u8>, usize) {
        let packet = |(number, (time_ns, port)): (usize, &(u64, usize))| Packet {
            time_ns: *time_ns,
            port: *port,
            sent: false,
            octets: vec![number as u8],
        };
        let mut all = all.iter().enumerate().map(packet).collect();
        let left = take_new(&mut all, most, until);
        (all.iter().map(|packet| packet.octets[0]).collect(), left)
    }

    #[test]
    fn each_port_of_a_cyclic_capture_continues_after_its_own_last_packet() {
        let mut until = Until::new();
        let mut all = vec![(10, 0), (30, 0)];
        assert_eq!(fetched(&all, 9, &mut until), (vec![0, 1], 0));
        // The packets of port 1 were written later.
        all.extend([(20, 1), (30, 1), (40, 0)]);
        assert_eq!(fetched(&all, 9, &mut until), (vec![2, 3, 4], 0));
        assert_eq!(fetched(&all, 9, &mut until), (vec![], 0));
    }

    #[test]
    fn packets_of_one_time_are_fetched_together() {
        let mut until = Until::new();
        let all = [(10, 0), (10, 1), (10, 0), (10, 0), (20, 0)];
        assert_eq!(fetched(&all, 1, &mut until), (vec![0, 2, 3], 2));
        assert_eq!(fetched(&all, 1, &mut until), (vec![1], 1));
        assert_eq!(fetched(&all, 1, &mut until), (vec![4], 0));
    }
}
