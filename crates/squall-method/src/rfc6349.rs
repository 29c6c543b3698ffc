//! RFC 6349: TCP throughput compared with the capacity of the path, in each direction separately.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use squall_report::render::human::{ns, ratio, seconds, si};

use crate::{
    bench::{Bench, MethodError},
    outcome::{Better, Figure, Limit, Outcome, Status, Table},
    rfc2544,
    rig::{Rig, RigLane},
    settings::{WEEK, above_0, at_most, from, settings, some},
    trial::{FlowLoad, FlowsMeasured, Http, Lane, Measured, Trial},
};

/// The direction of path MTU, bottleneck and transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Direction {
    /// Clients send to servers
    ToServers,
    /// Servers send to clients
    ToClients,
}

settings! {
    "RFC 6349":
    /// Directions to test, each by itself; each takes a stream of the profile that goes the same way
    direction: Vec<Direction> = vec![Direction::ToServers, Direction::ToClients]
        => each("DIRECTION", value_enum), in some("to-clients");
    /// Bottleneck bandwidth of the path, bits per second on layer 2; without it, it is measured in
    /// each direction by the throughput of a stream (RFC 2544)
    bottleneck_bps: Option<f64> = None => given("BPS");
    /// Numbers of TCP connections to test with (§5.1)
    connections: Vec<u32> = vec![1, 4] => each("N");
    /// Length that a transfer would have on an ideal path, seconds (§5: at least 30)
    transfer_s: f64 = 30.0 => one("SECONDS", value_parser = crate::settings::seconds), quick at_most(2.0), in above_0(WEEK);
    /// Length of the measurement of the round-trip time without load, seconds
    baseline_s: f64 = 10.0 => one("SECONDS", value_parser = crate::settings::seconds), quick at_most(1.0), in above_0(WEEK);
    /// Frames per second of the streams that measure the round-trip time; during a transfer at most
    /// 1 % of the bottleneck's
    probe_fps: f64 = 100.0 => one("N"), in above_0(1e6);
    /// Largest frame to try for the path MTU, octets with FCS
    largest_frame: u32 = 1518 => one("OCTETS"), in from(SMALLEST);
    /// Length of a trial that searches the bottleneck, seconds
    trial_s: f64 = 10.0 => one("SECONDS", value_parser = crate::settings::seconds), quick at_most(1.0), in above_0(WEEK);
}

/// Octets of the Ethernet header with FCS, and of a TCP header without options.
const ETHERNET: u32 = 18;
const TCP: f64 = 20.0;
/// Frame size of the round-trip time probes, and the smallest one that the search for the path MTU
/// tries, octets with FCS.
pub(crate) const SMALLEST: u32 = 128;
/// Resolution of the bottleneck bandwidth, and uncertainty of a transfer time, as fractions.
const RESOLUTION: f64 = 0.01;
const TIMING: f64 = 0.02;
/// Maximum length of an HTTP body, octets. Longer transfers use several requests.
const LONGEST_BODY: u64 = 1 << 28;

impl Settings {
    /// Checks that all settings are in range.
    ///
    /// # Errors
    /// If a setting is out of range.
    pub fn check(&self) -> Result<(), MethodError> {
        self.limits()?;
        above_0(1e13)("bottleneck_bps", &self.bottleneck_bps.unwrap_or(1.0))?;
        if self.connections.is_empty() || self.connections.contains(&0) {
            return Err(MethodError::Usage(
                "connections: expected numbers above 0, such as 1,4".into(),
            ));
        }
        Ok(())
    }
}

impl Direction {
    /// Suffix of the names of figures.
    fn name(self) -> &'static str {
        match self {
            Self::ToServers => "to-servers",
            Self::ToClients => "to-clients",
        }
    }

    /// The port that sends the data.
    fn sender(self, rig: &Rig) -> Option<&String> {
        match self {
            Self::ToServers => rig.clients.as_ref(),
            Self::ToClients => rig.servers.as_ref(),
        }
    }

    /// The first stream in this direction.
    fn lane(self, rig: &Rig) -> Option<&RigLane> {
        let port = self.sender(rig)?;
        rig.lanes.iter().find(|lane| lane.port == *port)
    }
}

/// Properties of the path in one direction, measured before the transfers.
struct Path {
    direction: Direction,
    /// The two ports, as text: `A to B`.
    ways: String,
    /// Largest IP packet, octets.
    mtu: u32,
    mtu_limit: Limit,
    /// Octets of the IP and TCP headers without options.
    headers: f64,
    rtt_ns: f64,
    /// Bottleneck bandwidth on layer 2, bits per second, and its uncertainty as a fraction.
    bottleneck_bps: f64,
    uncertainty: f64,
    limit: Limit,
}

impl Path {
    /// Highest TCP throughput at the bottleneck bandwidth (§4.1.1), bits per second.
    fn tcp_bps(&self) -> f64 {
        let mtu = f64::from(self.mtu);
        self.bottleneck_bps * (mtu - self.headers) / (mtu + f64::from(ETHERNET))
    }

    /// Bandwidth-delay product (§3.3.1), octets.
    fn bdp(&self) -> f64 {
        self.rtt_ns / 1e9 * self.bottleneck_bps / 8.0
    }

    fn frame(&self) -> u32 {
        self.mtu + ETHERNET
    }
}

/// Measures the round-trip time, then for each direction the path, and runs its transfers.
///
/// # Errors
/// If a trial cannot run, if the test is stopped, or if the profile has no flows, or no stream in a
/// direction to test.
pub fn run(
    settings: &Settings,
    rig: &Rig,
    bench: &mut Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), MethodError> {
    settings.check()?;
    let lanes = directions(settings, rig, outcome)?;
    let idle = bench.trial(Trial {
        label: "round-trip time without load".into(),
        lanes: probes(rig, settings.probe_fps),
        duration_s: settings.baseline_s,
        ..Trial::default()
    })?;
    let rtt_ns = round_trip(&idle, |delay| delay.min as f64).unwrap_or(0.0);
    push_time(rtt_ns, outcome);
    let mut table = Table::new("TCP throughput (RFC 6349 §4)", &COLUMNS);
    let mut text = Vec::new();
    for (direction, lane) in lanes {
        let ways = ways(direction, rig);
        let Some((mtu, mtu_limit)) = path_mtu(settings, lane, &ways, bench)? else {
            fail(format!("{ways}: no frame of {SMALLEST} octets came through"), outcome);
            continue;
        };
        let mut path = Path {
            direction,
            ways,
            mtu,
            mtu_limit,
            headers: TCP + if lane.ipv6 { 40.0 } else { 20.0 },
            rtt_ns,
            bottleneck_bps: settings.bottleneck_bps.unwrap_or(0.0),
            uncertainty: 0.0,
            limit: Limit::Device,
        };
        if settings.bottleneck_bps.is_none() {
            bottleneck(settings, rig, lane, &mut path, bench)?;
        }
        report_path(&path, outcome);
        if path.bottleneck_bps <= 0.0 {
            let text = format!("{}: the bottleneck was not found: no load passed", path.ways);
            fail(text, outcome);
            continue;
        }
        text.extend(transfers(settings, rig, &path, bench, &mut table, outcome)?);
    }
    outcome.verdict.text.extend(text);
    outcome.tables.push(table);
    Ok(())
}

/// Fails the verdict with the reason for which a result is missing.
fn fail(reason: String, outcome: &mut Outcome) {
    outcome.verdict.status = Status::Failed;
    outcome.verdict.text.push(reason);
}

/// The directions to test, each with its stream. Directions without a stream are skipped with a
/// note; if none has one, that is an error.
fn directions<'r>(
    settings: &Settings,
    rig: &'r Rig,
    outcome: &mut Outcome,
) -> Result<Vec<(Direction, &'r RigLane)>, MethodError> {
    let mut lanes = Vec::new();
    let mut without = Vec::new();
    for &direction in &settings.direction {
        match direction.lane(rig) {
            Some(lane) => lanes.push((direction, lane)),
            None => without.push(format!(
                "{}: path MTU and bottleneck are measured by a stream that goes this way, and the \
                 profile has none",
                ways(direction, rig)
            )),
        }
    }
    if lanes.is_empty() {
        let text = format!("{}\n  try a [[stream]] for each direction", without.join("; "));
        return Err(MethodError::Usage(text));
    }
    outcome.notes.extend(without.into_iter().map(|text| format!("not measured: {text}")));
    Ok(lanes)
}

/// `A to B`, or the name of the direction if one of the ports is unknown.
fn ways(direction: Direction, rig: &Rig) -> String {
    let ends = match direction {
        Direction::ToServers => (&rig.clients, &rig.servers),
        Direction::ToClients => (&rig.servers, &rig.clients),
    };
    match ends {
        (Some(from), Some(to)) => format!("{from} to {to}"),
        _ => direction.name().replace('-', " "),
    }
}

/// The first stream of each direction.
pub(crate) fn probes(rig: &Rig, fps: f64) -> Vec<Lane> {
    let both = [Direction::ToServers, Direction::ToClients];
    let mut lanes: Vec<Lane> = Vec::new();
    for lane in both.iter().filter_map(|direction| direction.lane(rig)) {
        if lanes.iter().all(|other| other.name != lane.stream) {
            lanes.push(Lane {
                name: lane.stream.clone(),
                stream: lane.stream.clone(),
                frame_size: Some(SMALLEST),
                rate_fps: fps,
                ..Lane::default()
            });
        }
    }
    lanes
}

/// Sum of the delays of both directions. If only one direction has streams, twice its delay.
fn round_trip(measured: &Measured, of: impl Fn(&crate::Delay) -> f64) -> Option<f64> {
    let ways: Option<Vec<f64>> =
        measured.lanes.iter().map(|lane| lane.delay.as_ref().map(&of)).collect();
    match ways?.as_slice() {
        [one] => Some(2.0 * one),
        [there, back] => Some(there + back),
        _ => None,
    }
}

/// Searches for the path MTU with probes, as in RFC 4821. Returns the largest packet that passes,
/// octets.
fn path_mtu(
    settings: &Settings,
    lane: &RigLane,
    ways: &str,
    bench: &mut Bench<'_>,
) -> Result<Option<(u32, Limit)>, MethodError> {
    let (mut passed, mut failed) = (SMALLEST - 1, settings.largest_frame + 1);
    let mut next = settings.largest_frame;
    while failed - passed > 1 {
        let lane = Lane {
            name: lane.stream.clone(),
            stream: lane.stream.clone(),
            frame_size: Some(next),
            rate_fps: settings.probe_fps,
            frames: Some(10),
            ..Lane::default()
        };
        let duration_s = 10.0 / settings.probe_fps;
        let label = format!("path MTU {ways}, frames of {next} octets");
        let trial = Trial { label, lanes: vec![lane], duration_s, ..Trial::default() };
        let came = bench.trial(trial)?.lanes.iter().any(|lane| lane.received > 0);
        if came {
            passed = next
        } else {
            failed = next
        }
        next = passed + (failed - passed) / 2;
    }
    let limit = if passed == settings.largest_frame { Limit::Offered } else { Limit::Device };
    Ok((passed >= SMALLEST).then(|| (passed - ETHERNET, limit)))
}

/// Bottleneck bandwidth, by the throughput test of RFC 2544, to which §3.2.2 refers.
fn bottleneck(
    settings: &Settings,
    rig: &Rig,
    lane: &RigLane,
    path: &mut Path,
    bench: &mut Bench<'_>,
) -> Result<(), MethodError> {
    let alone = RigLane { share: 1.0, ..lane.clone() };
    let alone = Rig { lanes: vec![alone], ..rig.clone() };
    let search = rfc2544::Settings {
        trial_s: settings.trial_s,
        resolution: RESOLUTION,
        ..Default::default()
    };
    let label = format!("bottleneck bandwidth {}", path.ways);
    let found = rfc2544::throughput(&search, &alone, path.frame(), &label, bench)?;
    path.bottleneck_bps = found.fps * f64::from(path.frame()) * 8.0;
    (path.uncertainty, path.limit) = (RESOLUTION, found.limit);
    Ok(())
}

fn push_time(rtt_ns: f64, outcome: &mut Outcome) {
    let (unit, better) = ("ns", Better::Lower);
    let rtt = Figure::new("rtt", rtt_ns, unit, better, rtt_ns * 0.05, Limit::Device);
    outcome.figures.push(rtt);
}

fn report_path(path: &Path, outcome: &mut Outcome) {
    let title = format!("The path {}", path.ways);
    let mut table = Table::new(&title, &["", "Measured"]);
    let bdp = path.bdp();
    let marked = |limit: Limit, text: String| format!("{} {text}", limit.mark()).trim().to_owned();
    for (name, value) in [
        ("path MTU (§3.1)", marked(path.mtu_limit, format!("{} octets", path.mtu))),
        ("baseline round-trip time (§3.2.1)", ns(path.rtt_ns)),
        ("bottleneck bandwidth (§3.2.2)", marked(path.limit, si(path.bottleneck_bps, "b/s"))),
        ("bandwidth-delay product, least TCP window (§3.3.1)", si(bdp, "octets")),
        ("highest TCP throughput (§4.1.1)", si(path.tcp_bps(), "b/s")),
    ] {
        table.rows.push(vec![name.into(), value]);
    }
    outcome.tables.push(table);
    let mut push = |name: &str, value, unit: &str, uncertainty, limit| {
        let name = format!("{name}/{}", path.direction.name());
        outcome.figures.push(Figure::new(name, value, unit, Better::Higher, uncertainty, limit));
    };
    push("mtu", f64::from(path.mtu), "octets", 0.0, path.mtu_limit);
    let bps = path.bottleneck_bps;
    push("bottleneck", bps, "bit/s", bps * path.uncertainty, path.limit);
}

const COLUMNS: [&str; 8] = [
    "Direction",
    "Connections",
    "Ideal transfer",
    "Actual",
    "Transfer time ratio",
    "TCP efficiency",
    "Buffer delay",
    "TCP throughput",
];

/// Returns the sentences of the verdict.
fn transfers(
    settings: &Settings,
    rig: &Rig,
    path: &Path,
    bench: &mut Bench<'_>,
    table: &mut Table,
    outcome: &mut Outcome,
) -> Result<Vec<String>, MethodError> {
    let mut texts = Vec::new();
    for &connections in &settings.connections {
        let transfer = Transfer::new(settings, path, connections);
        let measured = bench.trial(transfer.trial(settings, rig, path))?;
        let flows = measured.flows.clone().unwrap_or_default();
        let what = format!("{}, {connections} connections", path.ways);
        if !measured.kept() {
            outcome.not_measured(what, &measured.not_kept);
            continue;
        }
        if flows.completed < u64::from(connections) {
            let why = crate::connections::why(&flows);
            fail(
                format!("{what}: not complete in {LONGEST_TIMES} times the ideal time: {why}"),
                outcome,
            );
            continue;
        }
        let time_ratio = transfer.actual_s(&flows) / transfer.ideal_s;
        // §4.1: the ideal time is the shortest that the bottleneck allows.
        if time_ratio < 1.0 - path.uncertainty - TIMING {
            fail(
                format!(
                    "{what}: refused: the transfer time ratio would be {time_ratio:.2}, and none \
                     is below 1: either the connections took another path than the stream that \
                     measured the bottleneck of {}, or the bottleneck is more than that; try \
                     addresses of one path for both, a longer trial_s, or bottleneck_bps",
                    si(path.bottleneck_bps, "b/s")
                ),
                outcome,
            );
            continue;
        }
        texts.push(report_transfer(&transfer, path, &measured, &flows, table, outcome));
    }
    Ok(texts)
}

/// Duration of a trial in ideal times: a path with loss needs longer than the ideal time.
const LONGEST_TIMES: f64 = 3.0;

/// Connections that together transfer what an ideal path carries in the time of the settings.
struct Transfer {
    connections: u32,
    /// Octets of an HTTP body, and number of bodies per connection.
    body: u64,
    bodies: u32,
    /// Transfer time at the highest TCP throughput of the path (§4.1).
    ideal_s: f64,
}

impl Transfer {
    fn new(settings: &Settings, path: &Path, connections: u32) -> Self {
        let octets = path.tcp_bps() * settings.transfer_s / 8.0 / f64::from(connections);
        let bodies = (octets as u64).div_ceil(LONGEST_BODY).max(1);
        let body = (octets as u64 / bodies).max(1);
        let all = body * bodies * u64::from(connections);
        Self {
            connections,
            body,
            bodies: bodies as u32,
            ideal_s: all as f64 * 8.0 / path.tcp_bps(),
        }
    }

    /// Octets of all connections together.
    fn octets(&self) -> u64 {
        self.body * u64::from(self.bodies) * u64::from(self.connections)
    }

    fn actual_s(&self, flows: &FlowsMeasured) -> f64 {
        flows.duration.map_or(f64::NAN, |duration| duration.max as f64 / 1e9)
    }

    fn trial(&self, settings: &Settings, rig: &Rig, path: &Path) -> Trial {
        let http = Http {
            object_octets: self.body,
            requests: self.bodies,
            upload: path.direction == Direction::ToServers,
            ..Http::default()
        };
        let mut load = FlowLoad {
            // All connections open within 0.1 % of the transfer time, so the duration of the
            // longest one is that of the whole transfer.
            cps: f64::from(self.connections) / (settings.transfer_s / 1000.0),
            limit: Some(self.connections.into()),
            http: Some(http),
            ..FlowLoad::default()
        };
        if path.mtu_limit == Limit::Device {
            // §3.1: segments must fit the path MTU, which the interface does not know.
            let mss = f64::from(path.mtu) - path.headers;
            load.tcp.insert("mss".into(), format!("{mss:.0}"));
        }
        // A device may be limited in frames per second, for which a probe frame costs as much as a
        // TCP segment.
        let bottleneck_fps = path.bottleneck_bps / 8.0 / f64::from(path.frame());
        // §4.3 averages over the transfer. The path may be idle once the ideal time has passed.
        let probe = |lane| Lane { duration_s: Some(settings.transfer_s), ..lane };
        let fps = settings.probe_fps.min((bottleneck_fps * 0.01).max(1.0));
        Trial {
            label: format!("transfer {}, {} connections", path.ways, self.connections),
            lanes: probes(rig, fps).into_iter().map(probe).collect(),
            duration_s: settings.transfer_s * LONGEST_TIMES,
            flows: Some(load),
            ..Trial::default()
        }
    }
}

/// Returns a sentence for the verdict.
fn report_transfer(
    transfer: &Transfer,
    path: &Path,
    measured: &Measured,
    flows: &FlowsMeasured,
    table: &mut Table,
    outcome: &mut Outcome,
) -> String {
    let (ideal_s, actual_s) = (transfer.ideal_s, transfer.actual_s(flows));
    let time_ratio = actual_s / ideal_s;
    let sent = flows.tcp_sent_octets.max(1) as f64;
    let efficiency = (sent - flows.tcp_resent_octets as f64) / sent;
    let loaded = round_trip(measured, |delay| delay.mean);
    let buffer_delay = loaded
        .filter(|_| path.rtt_ns > 0.0)
        .map(|loaded| (loaded - path.rtt_ns).max(0.0) / path.rtt_ns);
    let throughput = transfer.octets() as f64 * 8.0 / actual_s;
    let connections = transfer.connections;
    let mut push = |name: &str, value: f64, unit: &str, better, noise: f64| {
        outcome.figures.push(Figure {
            name: format!("{name}/{}/{connections}", path.direction.name()),
            value,
            unit: unit.into(),
            better,
            uncertainty: value * noise,
            limit: Limit::Device,
        });
    };
    push("transfer_time_ratio", time_ratio, "", Better::Lower, path.uncertainty + TIMING);
    push("tcp_efficiency", efficiency, "ratio", Better::Higher, 0.001);
    push("tcp_throughput", throughput, "bit/s", Better::Higher, TIMING);
    if let Some(delay) = buffer_delay {
        push("buffer_delay", delay, "ratio", Better::Lower, 0.1);
    }
    table.rows.push(vec![
        path.ways.clone(),
        connections.to_string(),
        seconds(ideal_s),
        seconds(actual_s),
        format!("{time_ratio:.3}"),
        ratio(efficiency),
        buffer_delay.map_or_else(|| "-".into(), ratio),
        si(throughput, "b/s"),
    ]);
    format!(
        "{}, {connections} connections: {} of {} possible, transfer time ratio {time_ratio:.2}",
        path.ways,
        si(throughput, "b/s"),
        si(path.tcp_bps(), "b/s"),
    )
}
