//! A server that TRex's clients can control: ports, ownership, streams and traffic, by TRex's RPC
//! methods. [`flows`] implements the methods for flows.
//!
//! [`Server::answer`] answers a message. [`Server::look`] must be called regularly: it detects the
//! end of traffic. The caller transports the messages.

mod captures;
mod counters;
mod erf;
mod flows;
mod fragments;
mod graph;
mod hdr;
mod hosts;
mod nodes;
mod open;
mod playing;
mod replays;
mod service;
mod tagged;
mod threads;
mod topology;
mod tunnels;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    hash::{BuildHasher, RandomState},
    time::{Duration, Instant},
};

use serde_json::{Map, Value, json};
use squall::Error;
use squall_control::driving::Start;
use squall_machine::speaking::HostThread;
use squall_port_linux::InterfaceState;
use squall_profile::Late;
use squall_units::{MacAddr, Nanos, TREX_HW_IDS, TrexMark};

use captures::{Captures, now};
use flows::FlowServer;
use hosts::Ipv6;
use nodes::{Nodes, Tickets};
use replays::Temporary;
use service::Service;
use tagged::Tagged;
use threads::Threads;

use crate::{
    Kind, Load, Macs, Setting, Statistics, Stream, Unit,
    rpc::{self, Params, Refusal},
    traffic::{DelaySource, Group, Place, PortCounts, Sent, Traffic},
    translate::{self, GroupNumbers},
    vm,
};

/// API version reported to clients, which require the same major version and at least their own
/// minor version.
const API: (u64, u64) = (5, 1);
const VERSION: &str = "v3.08";
/// The profile to use if a request names none.
const DEFAULT: &str = "_";
/// Number of packet groups that can be counted, in TRex's reply format.
const GROUPS: u64 = 1023;
/// Maximum packet groups in one request.
const MOST_GROUPS: usize = 1152;
/// A session gets no further events if it makes no requests for this long.
const SILENT: Duration = Duration::from_secs(10);
/// An owner that makes no requests for this long loses its ports, unless they are sending.
const GONE: Duration = Duration::from_secs(60);
/// Maximum number of events queued for a session.
const WAITING: usize = 10_000;
/// Maximum time from a request to the start of its traffic.
const FARTHEST: Duration = Duration::from_secs(3600);
/// Grace period after the duration for ports whose streams end by themselves.
const LATE: Duration = Duration::from_millis(100);
/// Maximum number of streams followed along a chain when its packets are counted.
const FOLLOWED: usize = 100_000;

/// The destination of a port without a neighbor, until a client sets another. TRex's default.
const DEFAULT_DESTINATION: MacAddr = MacAddr([0, 0, 0, 1, 0, 0]);
/// The driver with which TRex takes UDP ports of VXLAN. It refuses them with other ones.
const VXLAN_DRIVER: &str = "net_i40e";

/// A port of the server.
#[derive(Clone, Debug)]
pub struct PortInfo {
    pub address: String,
    /// Description shown to users: the name of the interface.
    pub description: String,
    pub mac: MacAddr,
    pub speed_bps: Option<f64>,
    /// Longest frame in octets, with FCS.
    pub longest: u32,
    /// NUMA node of the hardware; `None`: no hardware, or a single node.
    pub numa: Option<u32>,
    /// Driver and bus address of the interface; empty: unknown, or none.
    pub driver: String,
    pub bus: String,
    /// Whether it is the external end of a pair of ports: TRex's dummy port. Clients do not
    /// see it.
    pub dummy: bool,
}

/// Settings of TRex's ASTF mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowMode {
    /// Cores of each pair of ports, as TRex's `-c`. `None`: the clients are divided as on one core,
    /// and a run has a thread for each port, as far as there are CPUs.
    pub cores: Option<u32>,
}

pub struct Server {
    start: Box<dyn Start>,
    handle: String,
    random: RandomState,
    drawn: u64,
    since: Instant,
    ports: Vec<Port>,
    traffic: Traffic,
    threads: Threads,
    links: Links,
    captures: Captures,
    /// The port that sends a capture.
    replaying: Option<usize>,
    /// Its files, other than the capture.
    temporary: Temporary,
    /// Number of traffic starts so far, which is part of stream names.
    starts: u64,
    sessions: HashMap<u64, Session>,
    /// Last flow_seq per hw_id, if streams with latency carry TRex's header.
    headers: Option<[u8; TREX_HW_IDS as usize]>,
    /// Number of times that each packet group was reused.
    versions: HashMap<u32, u64>,
    /// Tagged packet groups by user.
    tagged: BTreeMap<String, Tagged>,
    /// Results of batches for nodes.
    tickets: Tickets,
    holds: bool,
    /// State of flows (TRex's ASTF mode); `None`: the server has streams only.
    flows: Option<FlowServer>,
    /// Whether to notify subscribers of pending events.
    events_pending: bool,
}

/// The answer to a message.
#[derive(Clone, Debug, Default)]
pub struct Answered {
    pub octets: Vec<u8>,
    /// Whether events are queued for subscribers.
    pub rings: bool,
    /// Changes that the message made or tried to make, with one entry per method.
    pub changes: Vec<Change>,
}

/// The requests in a message that call one method, if that method changes something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    pub method: String,
    /// Number of requests for this method.
    pub times: usize,
    /// The ports that the requests name.
    pub ports: BTreeSet<u64>,
    /// Error of the first refused request.
    pub refused: Option<String>,
}

struct Port {
    info: PortInfo,
    owner: Option<Owner>,
    profiles: BTreeMap<String, Profile>,
    destination: MacAddr,
    l3: Option<L3>,
    ipv6: Option<Ipv6>,
    nodes: Nodes,
    /// Answers ARP and NDP for the addresses of the port and of its nodes.
    speaking: Option<HostThread>,
    promiscuous: bool,
    multicast: bool,
    /// UDP ports that carry VXLAN, in which TRex looks for packet groups in the inner packets.
    vxlan: Vec<u16>,
    vlan: Vec<u64>,
    service: Service,
}

/// Network addresses of a port, and of the destination of its packets.
struct L3 {
    source: String,
    destination: String,
    /// Whether the destination's MAC address is known.
    resolved: bool,
}

struct Owner {
    user: String,
    session: u64,
    handler: String,
    last_seen: Instant,
}

#[derive(Default)]
struct Profile {
    streams: BTreeMap<u32, Stream>,
    /// The streams as received, for clients that read them back.
    texts: BTreeMap<u32, Value>,
    active: Option<Active>,
}

impl Profile {
    /// Why TRex refuses to pause this profile, if it does: its cores pause only traffic that has no
    /// end, so clients expect the error.
    fn never_paused(&self) -> Option<String> {
        let ends = |(number, stream): (&u32, &Stream)| {
            let burst = stream.enabled && !matches!(stream.mode.kind, Kind::Continuous);
            burst.then(|| {
                format!(
                    "stream {number} is a burst\n  try a profile in which all streams are continuous"
                )
            })
        };
        let lasts = self.active.as_ref()?.sent.iter().any(|one| one.stream.duration.is_some());
        self.streams.iter().find_map(ends).or_else(|| {
            lasts.then(|| "it was started with a duration\n  try a start without one".into())
        })
    }
}

impl Active {
    /// Single streams end by themselves, but a chain ends later than its first stream.
    fn grace(&self) -> Duration {
        let follows = self.sent.iter().any(|one| one.stream.next.is_some());
        if follows { Duration::ZERO } else { LATE }
    }
}

/// Traffic of a profile.
struct Active {
    sent: Sent,
    paused: bool,
    load: f64,
    /// Number of packets after which the traffic is over; `None`: unlimited.
    packets: Option<u64>,
    ends: Option<Instant>,
    /// Present until the traffic begins.
    waiting: Option<PendingStart>,
}

/// Actions at the start of traffic.
struct PendingStart {
    at: Instant,
    /// Packet groups of streams by name.
    groups: HashMap<String, (usize, Group)>,
    /// Streams that are paused at the start.
    paused: Vec<String>,
    lasts: Option<Duration>,
}

struct Session {
    events: VecDeque<Value>,
    next: u64,
    last_seen: Instant,
}

type Answer = Result<Value, Refusal>;

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::failed(error.to_string())
    }
}

impl From<crate::Problem> for Refusal {
    fn from(problem: crate::Problem) -> Self {
        Self::failed(problem.to_string())
    }
}

impl Server {
    /// `flows`: TRex's ASTF mode; `None`: streams only. `headers`: packets of streams with latency carry TRex's header
    /// instead of Squall's signature.
    pub fn new(
        ports: Vec<PortInfo>,
        start: Box<dyn Start>,
        flows: Option<FlowMode>,
        headers: bool,
    ) -> Self {
        let places = ports
            .iter()
            .map(|port| Place { address: port.address.clone(), longest: port.longest })
            .collect();
        let destinations: Vec<MacAddr> = (0..ports.len())
            .map(|i| {
                ports
                    .get(i ^ 1)
                    .filter(|other| !other.dummy)
                    .map_or(DEFAULT_DESTINATION, |other| other.mac)
            })
            .collect();
        let ports = ports.into_iter().zip(destinations).map(|(info, destination)| Port {
            info,
            owner: None,
            profiles: BTreeMap::new(),
            destination,
            l3: None,
            ipv6: None,
            nodes: Nodes::default(),
            speaking: None,
            promiscuous: false,
            multicast: false,
            vxlan: Vec::new(),
            vlan: Vec::new(),
            service: Service::Off,
        });
        let mut server = Self {
            start,
            handle: String::new(),
            random: RandomState::new(),
            drawn: 0,
            since: Instant::now(),
            ports: ports.collect(),
            traffic: Traffic::new(places),
            threads: Threads::default(),
            links: Links::default(),
            captures: Captures::default(),
            replaying: None,
            temporary: Temporary::default(),
            starts: 0,
            sessions: HashMap::new(),
            headers: headers.then_some([translate::FIRST_FLOW_SEQ - 1; TREX_HW_IDS as usize]),
            versions: HashMap::new(),
            tagged: BTreeMap::new(),
            tickets: Tickets::default(),
            holds: false,
            flows: flows.map(FlowServer::new),
            events_pending: false,
        };
        server.handle = server.secret();
        server
    }

    /// Answers a message.
    pub fn answer(&mut self, message: &[u8]) -> Answered {
        let mut changes: Vec<Change> = Vec::new();
        let octets = rpc::answer(message, |method, params| {
            let answer = self.dispatch(method, params);
            if !is_read_only(method, params) {
                note(&mut changes, method, params, answer.as_ref().err());
            }
            answer
        });
        Answered { octets, rings: std::mem::take(&mut self.events_pending), changes }
    }

    /// Updates the state of traffic; returns whether to notify subscribers of pending events.
    pub fn look(&mut self) -> bool {
        self.poll_flows();
        let mut ended = false;
        match self.streams_ended() {
            Some(Ok(())) => {
                ended = true;
                self.replayed(None);
            }
            Some(Err(why)) => {
                self.replayed(Some(&why));
                self.lost(&why);
            }
            None => {}
        }
        let now = Instant::now();
        self.sample_threads(now);
        if let Err(error) = self.begin_due(now) {
            self.lost(&error.text);
        }
        let mut over = Vec::new();
        for (number, port) in self.ports.iter().enumerate() {
            for (id, profile) in &port.profiles {
                let Some(active) = profile.active.as_ref().filter(|a| a.waiting.is_none()) else {
                    continue;
                };
                let late = active.ends.is_some_and(|end| now >= end);
                if ended
                    || late
                    || active.packets.is_some_and(|all| self.traffic.sent(&active.sent) >= all)
                {
                    over.push((number, id.clone()));
                }
            }
        }
        for (port, id) in &over {
            if let Some(profile) = self.ports[*port].profiles.get_mut(id) {
                profile.active = None;
            }
        }
        // Update the counters first, so clients find complete figures when they receive the event.
        if !over.is_empty()
            && let Err(error) = self.renew(HashMap::new())
        {
            self.lost(&error.to_string());
        }
        for (port, id) in over {
            self.event(14, json!({ "port_id": port, "profile_id": id }));
            if !self.sends(port) {
                self.event(4, json!({ "port_id": port }));
            }
        }
        let sending = (0..self.ports.len()).any(|port| self.sends(port)) || self.flows_play();
        for port in 0..self.ports.len() {
            let gone =
                self.ports[port].owner.as_ref().is_some_and(|owner| owner.last_seen + GONE < now);
            if gone && !self.sends(port) {
                self.released(port);
            }
        }
        let owned = self.ports.iter().any(|port| port.owner.is_some());
        if self.holds && !owned && !sending {
            self.holds = false;
            self.stop_hosts();
            // An empty request frees the ports for other users.
            _ = self.start.take(&[]);
        }
        self.sessions.retain(|_, session| session.last_seen + SILENT > now);
        std::mem::take(&mut self.events_pending)
    }

    /// Whether a run of streams has ended. The end of a run with flows is left to
    /// [`Self::poll_flows`]: it may come between two checks of the run, and is returned only once.
    fn streams_ended(&mut self) -> Option<Result<(), String>> {
        if self.flows_are_active() { None } else { self.traffic.ended() }
    }

    /// Stops all traffic when the server ends.
    pub fn end(&mut self) {
        self.traffic.end();
        self.event(100, json!({ "cause": "the server has stopped" }));
    }

    /// Handles a run that has failed or that another user has ended.
    fn lost(&mut self, why: &str) {
        for port in 0..self.ports.len() {
            let active: Vec<String> = self.ports[port]
                .profiles
                .iter_mut()
                .filter_map(|(id, profile)| profile.active.take().map(|_| id.clone()))
                .collect();
            if active.is_empty() {
                continue;
            }
            self.event(7, json!({ "port_id": port, "error": why }));
            // Send these events: the owner waits for them.
            for id in &active {
                self.event(14, json!({ "port_id": port, "profile_id": id }));
            }
            self.event(4, json!({ "port_id": port }));
        }
    }

    fn sends(&self, port: usize) -> bool {
        self.replaying == Some(port)
            || self.ports[port].profiles.values().any(|profile| profile.active.is_some())
    }

    fn secret(&mut self) -> String {
        const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
        self.drawn += 1;
        let mut bits = self.random.hash_one((self.drawn, self.since));
        let letter = |_| {
            let letter = LETTERS[(bits & 31) as usize];
            bits >>= 5;
            char::from(letter)
        };
        (0..8).map(letter).collect()
    }

    fn event(&mut self, kind: u64, data: Value) {
        for session in self.sessions.values_mut() {
            let event =
                json!({ "name": "trex-event", "type": kind, "data": data, "seq": session.next });
            if session.events.len() < WAITING {
                session.events.push_back(event);
                session.next += 1;
            }
        }
        self.events_pending = true;
    }
}

/// The function of a method; the port is 0 if the request names none.
type Method = fn(&mut Server, usize, &Params<'_>) -> Answer;

const METHODS: &[(&str, Method)] = &[
    ("api_sync", |s, _, p| s.api_sync(p)),
    ("api_sync_v2", |s, _, p| s.api_sync_v2(p)),
    ("cancel_async_task", |s, _, p| {
        let number = p.get("ticket_id").and_then(Value::as_u64);
        number.and_then(|number| s.tickets.take(number));
        Ok(json!({}))
    }),
    ("capture", |s, _, p| s.capture(p)),
    ("get_active_pgids", |s, _, _| Ok(s.active_groups())),
    ("get_all_streams", |s, port, p| s.all_streams(port, p)),
    ("get_async_events", |s, _, p| s.async_events(p)),
    ("get_async_results", |s, _, p| s.take_results(p)),
    ("get_global_cfg", |_, _, _| Ok(json!({}))),
    ("get_global_stats", |s, _, _| Ok(s.global_stats())),
    ("get_owner", |s, port, _| Ok(json!({ "owner": s.owner(port) }))),
    ("get_pgid_stats", |s, _, p| s.group_stats(p)),
    ("get_port_stats", |s, port, _| Ok(s.port_stats(port))),
    ("get_port_status", |s, port, _| Ok(s.port_status(port))),
    ("get_port_xstats_names", |_, _, _| {
        Ok(json!({ "xstats_names": XSTATS.map(|(name, _)| name) }))
    }),
    ("get_port_xstats_values", |s, port, _| Ok(s.xstats(port))),
    ("get_profile_list", |s, port, _| Ok(json!(s.ports[port].profiles.keys().collect::<Vec<_>>()))),
    ("get_stream", |s, port, p| s.stream(port, p)),
    ("get_stream_list", |s, port, p| s.stream_list(port, p)),
    ("get_supported_cmds", |s, _, _| Ok(json!(s.supported()))),
    ("get_system_info", |s, _, _| Ok(s.system_info())),
    ("get_utilization", |s, _, _| s.utilization()),
    ("get_version", |s, _, _| Ok(s.version())),
    ("ping", |_, _, _| Ok(json!({ "ts": now() }))),
    // As in TRex, no handler is required.
    ("push_pkts", |s, port, p| s.push_packets(port, p)),
    ("publish_now", |s, _, _| {
        s.events_pending = true;
        Ok(json!({}))
    }),
    ("set_global_cfg", |_, _, _| Ok(json!({}))),
    ("acquire", |s, port, p| s.acquire(port, p)),
];

const OWNED: &[(&str, Method)] = &[
    ("add_stream", |s, port, p| s.add_stream(port, p)),
    ("conf_ipv6", |s, port, p| s.conf_ipv6(port, p)),
    ("conf_ns_batch", |s, port, p| s.node_batch(port, p)),
    ("pause_streams", |s, port, p| s.hold(port, p, true, true)),
    ("get_rx_queue_pkts", |s, port, _| s.queued(port)),
    ("pause_traffic", |s, port, p| s.hold(port, p, true, false)),
    ("push_remote", |s, port, p| s.push_remote(port, p)),
    ("release", |s, port, _| {
        if s.has_tagged(port) {
            let text = format!("port {port} has tagged packet groups: use disable_tpg first");
            return Err(Refusal::failed(text));
        }
        s.released(port);
        Ok(json!({}))
    }),
    ("remove_all_streams", |s, port, p| s.remove_all_streams(port, p)),
    ("remove_rx_filters", |_, _, _| Ok(json!({}))),
    ("remove_stream", |s, port, p| s.remove_stream(port, p)),
    ("resume_streams", |s, port, p| s.hold(port, p, false, true)),
    ("resume_traffic", |s, port, p| s.hold(port, p, false, false)),
    ("service", |s, port, p| s.service(port, p)),
    ("set_l2", |s, port, p| s.set_l2(port, p)),
    ("set_l3", |s, port, p| s.set_l3(port, p)),
    ("set_port_attr", |s, port, p| s.set_port_attr(port, p)),
    ("set_rx_feature", |s, port, p| s.rx_feature(port, p)),
    ("set_vlan", |s, port, p| s.set_vlan(port, p)),
    ("start_traffic", |s, port, p| s.start_traffic(port, p)),
    ("stop_traffic", |s, port, p| s.stop_traffic(port, p)),
    ("update_streams", |s, port, p| s.update_streams(port, p)),
    ("update_traffic", |s, port, p| s.update_traffic(port, p)),
    ("validate", |s, port, p| s.validate(port, p)),
];

/// Maximum number of methods noted per message; TRex's own clients send two or three.
const NOTED: usize = 20;

/// Adds a request to the changes of its message. Requests for the same method share an entry, so a
/// batch of a thousand streams has a single entry.
fn note(changes: &mut Vec<Change>, method: &str, params: &Params<'_>, refusal: Option<&Refusal>) {
    let method: String = method.chars().take(40).collect();
    let at = changes.iter().position(|change| change.method == method).unwrap_or(changes.len());
    if at == NOTED {
        return;
    }
    if at == changes.len() {
        changes.push(Change { method, ..Change::default() });
    }
    let change = &mut changes[at];
    change.times += 1;
    change.ports.extend(
        params.get("port_id").and_then(Value::as_u64).filter(|_| change.ports.len() < NOTED),
    );
    if change.refused.is_none() {
        change.refused = refusal.map(|refusal| refusal.text.clone());
    }
}

/// Whether requests of a method change nothing. Unknown methods may change something.
fn is_read_only(method: &str, params: &Params<'_>) -> bool {
    const READ_ONLY: [&str; 14] = [
        "api_sync",
        "api_sync_v2",
        "cancel_async_task",
        "is_tunnel_supported",
        "ping",
        "publish_now",
        "set_global_cfg",
        "sync",
        "topo_get",
        "tunnel_topo_get",
        "validate",
        // These are sent repeatedly or by the hundred, and take effect only when traffic starts.
        "profile_fragment",
        "topo_fragment",
        "tunnel_topo_fragment",
    ];
    let fetches = || {
        let command = params.get("command").and_then(Value::as_str);
        matches!(command, Some("status" | "fetch"))
    };
    method.starts_with("get_") || READ_ONLY.contains(&method) || (method == "capture" && fetches())
}

/// TRex methods that are not implemented, with the reason.
const REFUSED: &[(&str, &str)] = &[
    ("shutdown", "the daemon is shared: stop squall serve itself"),
    ("start_capture_port", "frames are not sent to an endpoint: use capture, and fetch them"),
    ("stop_capture_port", "frames are not sent to an endpoint: use capture, and fetch them"),
];

type Count = fn(&PortCounts) -> u64;

/// Counters of a port, under the names that DPDK uses.
const XSTATS: [(&str, Count); 6] = [
    ("rx_good_packets", |port| port.rx_packets),
    ("tx_good_packets", |port| port.tx_packets),
    ("rx_good_bytes", |port| port.rx_octets),
    ("tx_good_bytes", |port| port.tx_octets),
    ("rx_missed_errors", |port| port.missed),
    ("tx_errors", |port| port.tx_errors),
];

impl Server {
    fn supported(&self) -> Vec<&'static str> {
        let of_mode = match self.flows {
            Some(_) => flows::METHODS.iter().chain(flows::OWNED),
            None => tagged::METHODS.iter().chain(&[]),
        };
        let all = METHODS.iter().chain(OWNED).chain(of_mode);
        let mut names: Vec<_> = all.map(|(name, _)| *name).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    fn version(&self) -> Value {
        let mode = if self.flows.is_some() { "ASTF" } else { "STL" };
        json!({
            "version": VERSION, "build_date": "-", "build_time": "-", "built_by": "squall",
            "mode": mode,
        })
    }

    fn dispatch(&mut self, method: &str, params: &Params<'_>) -> Answer {
        let find = |table: &[(&str, Method)]| {
            table.iter().find(|(name, _)| *name == method).map(|(_, call)| *call)
        };
        // A request for a method that concerns all ports does not name a port.
        let of_all = self.flows.is_some()
            && (params.get("port_id").is_none() || find(OWNED).or(find(METHODS)).is_none());
        let of_flows = |table| of_all.then(|| find(table)).flatten();
        if of_all && method == "acquire" {
            self.known(params)?;
            return self.flow_acquire(params);
        }
        if let Some(call) = of_flows(flows::OWNED) {
            self.known(params)?;
            self.flow_owned(params)?;
            return call(self, 0, params);
        }
        let of_streams = self.flows.is_none().then(|| find(tagged::METHODS)).flatten();
        let free_call = of_flows(flows::METHODS).or(of_streams).or(find(METHODS));
        let (call, owned) = match (free_call, find(OWNED)) {
            (Some(call), _) => (call, false),
            (None, Some(call)) => (call, true),
            (None, None) => {
                let flows = self.flows.iter().flat_map(|_| flows::REFUSED);
                let mut refused = REFUSED.iter().chain(flows);
                let why = refused.find(|(name, _)| *name == method).map(|(_, why)| *why);
                let why = why.map_or(String::new(), |why| format!(": {why}"));
                return Err(Refusal::unknown(format!("Method {method} not registered{why}")));
            }
        };
        let free = matches!(method, "api_sync" | "api_sync_v2" | "get_version" | "ping");
        if !free {
            self.known(params)?;
        }
        let port = match params.get("port_id") {
            None if !owned && !of_port(method) => 0,
            _ => {
                let port = params.whole("port_id")?;
                let count = self.ports.len();
                let found = usize::try_from(port).ok().filter(|port| *port < count);
                let found = found.ok_or_else(|| {
                    Refusal::parameters(format!("port_id = {port}: expected 0 to {}", count - 1))
                })?;
                if self.ports[found].info.dummy {
                    let text = format!("port_id = {port}: port {port} is a dummy");
                    return Err(Refusal::parameters(text));
                }
                found
            }
        };
        if owned {
            let handler = params.text("handler")?;
            match &mut self.ports[port].owner {
                Some(owner) if owner.handler == handler => owner.last_seen = Instant::now(),
                Some(owner) => {
                    let text = format!("port is owned by another user: {}", owner.user);
                    return Err(Refusal::failed(text));
                }
                None => return Err(Refusal::failed("port is not acquired by any user")),
            }
        }
        call(self, port, params)
    }

    /// Whether a client has synchronized its API version with this server.
    fn known(&self, params: &Params<'_>) -> Result<(), Refusal> {
        match params.get("api_h").and_then(Value::as_str) == Some(&self.handle) {
            true => Ok(()),
            false => Err(Refusal::failed("API verification failed - wrong handler: connect again")),
        }
    }

    fn api_sync_v2(&self, params: &Params<'_>) -> Answer {
        let (major, minor) = (params.whole("major")?, params.whole("minor")?);
        self.check_api(params.text("name")?, major, minor)?;
        Ok(json!({ "api_h": self.handle }))
    }

    fn check_api(&self, name: &str, major: u64, minor: u64) -> Result<(), Refusal> {
        if self.flows.is_some() {
            return Self::flow_api(name, major, minor).map_err(Refusal::failed);
        }
        if name != "STL" {
            return Err(Refusal::failed(format!(
                "RPC configuration mismatch - server RPC configuration: 'STL', client RPC \
                 configuration: '{name}'"
            )));
        }
        if major != API.0 || minor > API.1 {
            return Err(Refusal::failed(format!(
                "API version of the client is {major}.{minor}, that of the server {}.{}",
                API.0, API.1
            )));
        }
        Ok(())
    }

    /// The request of older clients, which have only streams.
    fn api_sync(&self, params: &Params<'_>) -> Answer {
        let versions = params.list("api_vers")?;
        for version in versions.iter().filter_map(Value::as_object) {
            let version = Params(version);
            self.check_api("STL", version.whole("major")?, version.whole("minor")?)?;
        }
        let one = |version: &Value| json!({ "type": version["type"], "api_h": self.handle });
        Ok(json!({ "api_vers": versions.iter().map(one).collect::<Vec<_>>() }))
    }

    fn async_events(&mut self, params: &Params<'_>) -> Answer {
        let id = params.whole("session_id")?;
        let now = Instant::now();
        for owner in self.ports.iter_mut().filter_map(|port| port.owner.as_mut()) {
            if owner.session == id {
                owner.last_seen = now;
            }
        }
        let session = self.sessions.entry(id).or_insert_with(|| Session {
            events: VecDeque::new(),
            next: 0,
            last_seen: now,
        });
        session.last_seen = now;
        Ok(json!({ "data": session.events.drain(..).collect::<Vec<_>>() }))
    }

    fn acquire(&mut self, number: usize, params: &Params<'_>) -> Answer {
        let (user, session) = (params.text("user")?.to_owned(), params.whole("session_id")?);
        let force = params.flag("force");
        if let Some(owner) = &self.ports[number].owner
            && !force
            && (owner.user != user || owner.session != session)
        {
            return Err(Refusal::failed(format!(
                "port is already taken by '{}' session id '{}'",
                owner.user, owner.session
            )));
        }
        self.hold_ports()?;
        if self.ports[number].owner.as_ref().is_some_and(|owner| owner.user != user) {
            self.lose_tagged(number);
        }
        let handler = self.secret();
        self.ports[number].owner = Some(Owner {
            user: user.clone(),
            session,
            handler: handler.clone(),
            last_seen: Instant::now(),
        });
        let data = json!({ "port_id": number, "who": user, "session_id": session, "force": force });
        self.event(5, data);
        Ok(json!(handler))
    }

    fn hold_ports(&mut self) -> Result<(), Refusal> {
        if !self.holds {
            let real = self.ports.iter().filter(|port| !port.info.dummy);
            let addresses: Vec<String> = real.map(|port| port.info.address.clone()).collect();
            self.start.take(&addresses)?;
            self.holds = true;
            for port in 0..self.ports.len() {
                self.update_host(port)?;
            }
        }
        Ok(())
    }

    fn released(&mut self, port: usize) {
        self.lose_tagged(port);
        if let Some(owner) = self.ports[port].owner.take() {
            let data = json!({ "port_id": port, "who": owner.user, "session_id": owner.session });
            self.event(6, data);
        }
    }

    fn owner(&self, port: usize) -> &str {
        self.ports[port].owner.as_ref().map_or("", |owner| owner.user.as_str())
    }

    fn system_info(&self) -> Value {
        let port = |(index, port): (usize, &Port)| {
            // In Mb/s; the port's attribute `speed` is in Gb/s.
            let speeds: Vec<u64> =
                port.info.speed_bps.map(|bps| (bps / 1e6) as u64).into_iter().collect();
            json!({
                "index": index, "driver": driver(&port.info), "pci_addr": place(&port.info),
                "numa": port.info.numa.map_or(-1, i64::from),
                "hw_mac": port.info.mac.to_string(), "stack": "legacy",
                "description": port.info.description,
                "rx": { "caps": ["flow_stats", "latency", "rx_bytes"], "counters": GROUPS },
                "is_fc_supported": false, "is_led_supported": false, "is_link_supported": false,
                "is_prom_supported": true, "is_vxlan_supported": true,
                "is_ieee1588_supported": false, "is_virtual": port.info.bus.is_empty(),
                "supp_speeds": speeds,
                "cores": self.cores_of(index),
            })
        };
        let (cores, per_port) = self.core_counts();
        let real = || self.ports.iter().enumerate().filter(|(_, port)| !port.info.dummy);
        let host = squall_machine::host();
        json!({
            "hostname": host.name, "uptime": format!("{:?}", self.since.elapsed()),
            "dp_core_count": cores, "dp_core_count_per_port": per_port,
            "core_type": host.cpu_model,
            "is_multiqueue_mode": false, "advanced_per_stream_stats": false,
            "port_count": real().count(),
            "ports": real().map(port).collect::<Vec<_>>(),
        })
    }

    fn state(profile: &Profile) -> &'static str {
        match &profile.active {
            Some(active) if active.paused => "PAUSE",
            Some(_) => "TX",
            None if profile.streams.is_empty() => "IDLE",
            None => "STREAMS",
        }
    }

    fn port_status(&mut self, number: usize) -> Value {
        let up = self.links.is_up(&self.ports[number].info.address);
        let port = &self.ports[number];
        let states: Map<String, Value> = port
            .profiles
            .iter()
            .map(|(id, profile)| (id.clone(), json!(Self::state(profile))))
            .collect();
        let all: Vec<&str> = port.profiles.values().map(Self::state).collect();
        let pcap = (self.replaying == Some(number)).then_some("PCAP_TX");
        let state = ["TX", "PAUSE", "STREAMS"].into_iter().find(|state| all.contains(state));
        let state = pcap.or(state).or_else(|| self.flow_state_name()).unwrap_or("IDLE");
        let off = json!({ "is_active": false });
        let latency = port.profiles.values().any(|profile| {
            profile.active.is_some() && profile.streams.values().any(Stream::has_latency)
        });
        let ipv4 = match &port.l3 {
            Some(l3) => json!({
                "state": if l3.resolved { "resolved" } else { "unresolved" },
                "src": l3.source, "dst": l3.destination,
            }),
            None => json!({ "state": "none" }),
        };
        let known = port.l3.as_ref().is_none_or(|l3| l3.resolved);
        json!({
            "owner": self.owner(number), "state": state, "state_profile": states,
            "service": port.service == Service::All,
            "service_filtered": port.service.mask() != 0,
            "service_filtered_mask": port.service.mask(),
            "profile_count": port.profiles.len(),
            "max_stream_id": port.profiles.values().filter_map(|p| p.streams.keys().last()).max().unwrap_or(&0),
            "attr": {
                "promiscuous": { "enabled": port.promiscuous },
                "multicast": { "enabled": port.multicast },
                "link": { "up": up },
                "speed": port.info.speed_bps.map_or(0.0, |bps| bps / 1e9),
                "rx_filter_mode": "hw", "vxlan_fs": port.vxlan, "fc": { "mode": 0 },
                "layer_cfg": {
                    "ether": { "src": port.info.mac.to_string(), "dst": port.destination.to_string(), "state": if known { "configured" } else { "unconfigured" } },
                    "ipv4": ipv4, "ipv6": Ipv6::status(port.ipv6),
                },
                "vlan": { "tags": port.vlan },
            },
            "rx_info": {
                "latency": { "is_active": latency }, "queue": self.queue_status(number), "stack": off, "grat_arp": off,
                "capture_port": off, "capwap_proxy": off,
            },
        })
    }

    fn port_stats(&self, number: usize) -> Value {
        let port = self.traffic.ports()[number];
        json!({
            "opackets": port.tx_packets, "obytes": port.tx_octets,
            "ipackets": port.rx_packets, "ibytes": port.rx_octets,
            "ierrors": port.missed, "oerrors": port.tx_errors,
            "m_total_tx_bps": port.tx_bps, "m_total_tx_pps": port.tx_pps,
            "m_total_rx_bps": port.rx_bps, "m_total_rx_pps": port.rx_pps,
            "m_cpu_util": self.threads.of_port(number),
        })
    }

    fn xstats(&self, number: usize) -> Value {
        let port = self.traffic.ports()[number];
        json!({ "xstats_values": XSTATS.map(|(_, of)| of(&port)) })
    }

    fn global_stats(&self) -> Value {
        let ports = self.traffic.ports();
        let sum = |of: fn(&PortCounts) -> f64| ports.iter().map(of).sum::<f64>();
        let whole = |of: fn(&PortCounts) -> u64| ports.iter().map(of).sum::<u64>();
        let (tx, rx) = (sum(|p| p.tx_bps), sum(|p| p.rx_bps));
        let not_sent = whole(|p| p.not_sent);
        let flows = self.flow_global();
        let senders = self.threads.senders();
        let (rx_util, receiving) = self.threads.receivers();
        // The factor 2 is due to TRex's formula, which assumes that sending cores also receive the
        // same amount.
        let used = senders.mean * senders.count as f64;
        let per_core = if used > 0.01 { 2.0 * tx / 1e9 * 100.0 / used } else { 0.0 };
        json!({
            "m_cpu_util": senders.mean, "m_cpu_util_raw": senders.latest,
            "m_bw_per_core": per_core, "m_rx_cpu_util": rx_util,
            // Not `sum`, which is -0 without ports.
            "m_rx_core_pps": receiving.iter().fold(0.0, |all, port| all + ports[*port].rx_pps),
            "m_platform_factor": 1.0,
            "m_tx_bps": tx, "m_rx_bps": rx, "m_tx_pps": sum(|p| p.tx_pps), "m_rx_pps": sum(|p| p.rx_pps),
            "m_tx_cps": flows.cps, "m_tx_expected_cps": flows.expected_cps,
            // Both counters are equal: a frame that does not fit into the queue in time is dropped.
            "m_total_queue_full": not_sent, "m_total_queue_drop": not_sent,
            "m_rx_drop_bps": (tx - rx).max(0.0),
            "m_active_flows": flows.active, "m_open_flows": flows.begun,
            "m_total_tx_pkts": whole(|p| p.tx_packets), "m_total_rx_pkts": whole(|p| p.rx_packets),
            "m_total_tx_bytes": whole(|p| p.tx_octets), "m_total_rx_bytes": whole(|p| p.rx_octets),
            "m_total_clients": flows.clients, "m_total_servers": flows.servers,
            "m_active_sockets": flows.active, "m_socket_util": flows.used_sockets(),
        })
    }

    /// The packet group of each stream with statistics, and whether the group measures latency.
    fn grouped(&self) -> BTreeMap<u32, bool> {
        let profiles = self.ports.iter().flat_map(|port| port.profiles.values());
        let streams = profiles.flat_map(|profile| profile.streams.values());
        let mut groups = BTreeMap::new();
        for (group, stream) in streams.filter_map(|stream| Some((stream.group()?, stream))) {
            *groups.entry(group).or_default() |= stream.has_latency();
        }
        groups
    }

    fn active_groups(&self) -> Value {
        let groups = self.grouped();
        let of = |latency: bool| {
            groups.iter().filter(|(_, has)| **has == latency).map(|(id, _)| *id).collect::<Vec<_>>()
        };
        json!({ "ids": { "flow_stats": of(false), "latency": of(true) } })
    }

    fn group_stats(&mut self, params: &Params<'_>) -> Answer {
        let asked = params.list("pgids")?;
        if asked.len() > MOST_GROUPS {
            let text = format!("{} pgids: expected at most {MOST_GROUPS}", asked.len());
            return Err(Refusal::parameters(text));
        }
        let known = self.grouped();
        let (counted, count) = (self.traffic.groups(), self.ports.len());
        let zeros = |value: Value| -> Map<String, Value> {
            (0..count).map(|port| (port.to_string(), value.clone())).collect()
        };
        let (mut versions, mut flows, mut latencies) = (Map::new(), Map::new(), Map::new());
        for id in asked.iter().filter_map(Value::as_u64).filter_map(|id| u32::try_from(id).ok()) {
            let Some(latency) = known.get(&id) else { continue };
            versions.insert(id.to_string(), json!(self.versions.get(&id).copied().unwrap_or(1)));
            let counts = counted.get(&id).cloned().unwrap_or_default();
            let by_port = |of: &BTreeMap<usize, (u64, u64)>, second: bool| {
                let mut all = zeros(json!(0));
                for (port, (packets, octets)) in of {
                    all.insert(port.to_string(), json!(if second { octets } else { packets }));
                }
                all
            };
            let rates = |of: &BTreeMap<usize, (f64, f64)>, second: bool| {
                let mut all = zeros(json!(0.0));
                for (port, (packets, bits)) in of {
                    all.insert(port.to_string(), json!(if second { bits } else { packets }));
                }
                all
            };
            let flow = json!({
                "rp": by_port(&counts.rx, false), "rb": by_port(&counts.rx, true),
                "tp": by_port(&counts.tx, false), "tb": by_port(&counts.tx, true),
                "rps": rates(&counts.rx_rate, false), "rbs": rates(&counts.rx_rate, true),
                "tps": rates(&counts.tx_rate, false), "tbs": rates(&counts.tx_rate, true),
            });
            flows.insert(id.to_string(), flow);
            if *latency {
                let delays = counts.latency.unwrap_or_default();
                let histogram: Map<String, Value> = delays
                    .histogram
                    .iter()
                    .map(|(class, n)| (class.to_string(), json!(n)))
                    .collect();
                let recent =
                    self.traffic.recent_max(DelaySource::Group(id), delays.max, &delays.bins);
                let lower = counts.duplicates + counts.reordered;
                latencies.insert(
                    id.to_string(),
                    json!({
                        "lat": {
                            "average": delays.mean(), "total_max": delays.max, "total_min": delays.min,
                            "last_max": recent, "jit": delays.jitter, "histogram": histogram,
                            "hdrh": hdr::encoded(delays.bins.iter()),
                        },
                        "er": {
                            "drp": counts.lost, "ooo": counts.reordered, "dup": counts.duplicates,
                            "sth": counts.gaps, "stl": lower,
                        },
                    }),
                );
            }
        }
        let unknown: Map<String, Value> = self
            .traffic
            .ports()
            .iter()
            .enumerate()
            .map(|(number, port)| (number.to_string(), json!(port.rx_unknown)))
            .collect();
        flows.insert("g".into(), json!({ "rx_err": unknown }));
        Ok(json!({ "ver_id": versions, "flow_stats": flows, "latency": latencies }))
    }

    // Streams

    fn all_streams(&self, port: usize, params: &Params<'_>) -> Answer {
        let profiles = &self.ports[port].profiles;
        let texts = |profile: &Profile| -> Value {
            let streams = profile.texts.iter().map(|(id, text)| (id.to_string(), text.clone()));
            Value::Object(streams.collect())
        };
        match id_of(params) {
            "*" => {
                let all: Map<_, _> =
                    profiles.iter().map(|(id, profile)| (id.clone(), texts(profile))).collect();
                Ok(json!({ "profiles": all }))
            }
            id => Ok(json!({ "streams": profiles.get(id).map_or(json!({}), texts) })),
        }
    }

    fn stream_list(&self, port: usize, params: &Params<'_>) -> Answer {
        let profile = self.ports[port].profiles.get(id_of(params));
        Ok(json!(profile.map(|p| p.streams.keys().collect::<Vec<_>>()).unwrap_or_default()))
    }

    fn stream(&self, port: usize, params: &Params<'_>) -> Answer {
        let id = number(params, "stream_id")?;
        let profile = self.ports[port].profiles.get(id_of(params));
        let text = profile.and_then(|profile| profile.texts.get(&id));
        let text = text.ok_or_else(|| Refusal::failed(format!("stream {id} does not exist")))?;
        Ok(json!({ "stream": text }))
    }

    fn add_stream(&mut self, port: usize, params: &Params<'_>) -> Answer {
        let id = number(params, "stream_id")?;
        let text = Value::Object(params.object("stream")?.clone());
        let stream =
            Stream::read(&text).map_err(|problem| Refusal::parameters(problem.to_string()))?;
        // Check the stream now, so its errors are reported here and not at the start.
        vm::make(&stream, stream.packet.binary.clone(), stream.group().is_some())?;
        self.check_tagged(port, &stream)?;
        let group = stream.group();
        let new_group = group.filter(|group| !self.grouped_has(*group));
        let profile = self.ports[port].profiles.entry(id_of(params).to_owned()).or_default();
        if profile.active.is_some() {
            return Err(Refusal::failed("streams cannot be added while the port sends"));
        }
        if profile.streams.contains_key(&id) {
            return Err(Refusal::failed(format!("stream {id} already exists")));
        }
        profile.streams.insert(id, stream);
        profile.texts.insert(id, text);
        if let Some(group) = new_group {
            *self.versions.entry(group).or_insert(0) += 1;
            self.traffic.forget(group);
        }
        Ok(json!({}))
    }

    fn grouped_has(&self, group: u32) -> bool {
        let profiles = self.ports.iter().flat_map(|port| port.profiles.values());
        profiles
            .flat_map(|profile| profile.streams.values())
            .any(|stream| stream.group() == Some(group))
    }

    fn remove_stream(&mut self, port: usize, params: &Params<'_>) -> Answer {
        let id = number(params, "stream_id")?;
        let profile = self.idle(port, id_of(params))?;
        if profile.streams.remove(&id).is_none() {
            return Err(Refusal::failed(format!("stream {id} does not exist")));
        }
        profile.texts.remove(&id);
        Ok(json!({}))
    }

    fn remove_all_streams(&mut self, port: usize, params: &Params<'_>) -> Answer {
        for id in self.named(port, params) {
            let profile = self.idle(port, &id)?;
            profile.streams.clear();
            profile.texts.clear();
            self.ports[port].profiles.remove(&id);
        }
        Ok(json!({}))
    }

    /// Returns a profile that may be changed.
    fn idle(&mut self, port: usize, id: &str) -> Result<&mut Profile, Refusal> {
        let profile = self.ports[port].profiles.entry(id.to_owned()).or_default();
        match profile.active {
            Some(_) => Err(Refusal::failed("port is active: stop it first")),
            None => Ok(profile),
        }
    }

    /// The ids of the profiles that a request names.
    fn named(&self, port: usize, params: &Params<'_>) -> Vec<String> {
        match id_of(params) {
            "*" => self.ports[port].profiles.keys().cloned().collect(),
            id => vec![id.to_owned()],
        }
    }

    // Traffic

    fn setting(&self, port: usize, load: Load) -> Setting {
        let info = &self.ports[port].info;
        let statistics = match self.headers {
            Some(_) => Statistics::Trex,
            None => Statistics::Signature,
        };
        let macs = Macs { source: info.mac, destination: self.ports[port].destination };
        Setting { port, macs, load, speed: info.speed_bps, statistics }
    }

    fn start_traffic(&mut self, port: usize, params: &Params<'_>) -> Answer {
        let id = id_of(params).to_owned();
        let duration = params.get("duration").and_then(Value::as_f64).unwrap_or(-1.0);
        let (load, _) = load_of(params)?;
        if self.flows_play() {
            return Err(Refusal::failed("the ports play flows: stop them first"));
        }
        if let Some(port) = self.replaying {
            return Err(Refusal::failed(format!("port {port} sends a capture: stop it first")));
        }
        // The streams of a run that has just ended by itself must not begin again with the new ones.
        if self.traffic.is_over() {
            // This waits for the outcome.
            self.renew(HashMap::new())?;
            self.events_pending |= self.look();
        }
        if self.idle(port, &id)?.streams.is_empty() {
            return Err(Refusal::failed("no streams attached to port"));
        }
        let setting = self.setting(port, load);
        self.starts += 1;
        let start = self.starts;
        let profile = &self.ports[port].profiles[&id];
        let name = |number: u32| {
            let own = profile.streams[&number].name.as_deref().unwrap_or_default();
            format!("{port}.{number} {own}").trim_end().to_owned() + &format!(" ({start})")
        };
        let mut groups = self.groups_in_use();
        let number = |asked| groups.take(asked);
        let mut sent = translate::translate(&profile.streams, &setting, name, number)?;
        if sent.is_empty() {
            return Err(Refusal::failed("no enabled stream starts by itself"));
        }
        if let Some(marks) = self.free_marks() {
            translate::with_headers(&mut sent, &profile.streams, marks.into_iter())?;
        }
        self.number_tagged(port, &mut sent, &profile.streams)?;
        self.use_marks(&sent);
        let profile = &self.ports[port].profiles[&id];
        let packets = packets_of(&sent);
        let lasts = (duration > 0.0 && duration < 1e9).then(|| Duration::from_secs_f64(duration));
        for one in &mut sent {
            one.stream.duration = lasts.map(|lasts| Nanos(lasts.as_nanos() as u64));
            // Clients expect rate × duration packets, so late packets are sent, not skipped.
            one.stream.late = Late::CatchUp;
        }
        let paused = sent.iter().filter(|one| profile.streams[&one.number].start_paused);
        let waiting = PendingStart {
            at: instant_of(params.get("start_at_ts").and_then(Value::as_f64).unwrap_or(0.0)),
            groups: groups_of(&sent, &profile.streams, port),
            paused: paused.map(|one| one.stream.name.clone()).collect(),
            lasts,
        };
        let factor = translate::factor(load, &profile.streams, setting.speed)?;
        let profile = self.ports[port].profiles.entry(id.clone()).or_default();
        profile.active = Some(Active {
            sent,
            paused: false,
            load: factor,
            packets,
            ends: None,
            waiting: Some(waiting),
        });
        self.begin_due(Instant::now())?;
        self.event(10, json!({ "port_id": port, "profile_id": id }));
        self.event(0, json!({ "port_id": port }));
        Ok(json!({ "multiplier": factor, "ts": now() }))
    }

    /// Numbers of packet groups used in marks.
    fn groups_in_use(&self) -> GroupNumbers {
        let mut groups = GroupNumbers::default();
        for profile in self.ports.iter().flat_map(|port| port.profiles.values()) {
            let sent = profile.active.iter().flat_map(|active| &active.sent);
            let numbered = sent.filter_map(|one| Some((one, one.group?)));
            for (one, number) in numbered {
                if let Some(stream) = profile.streams.get(&one.number) {
                    let counted = one.stream.trex_group.is_some();
                    groups.add(stream.flow_stats.stream_id, number, counted);
                }
            }
        }
        groups
    }

    /// Unused TRex headers for streams that start now, if headers are enabled.
    fn free_marks(&self) -> Option<Vec<TrexMark>> {
        let profiles = self.ports.iter().flat_map(|port| port.profiles.values());
        let active = profiles.filter_map(|profile| profile.active.as_ref());
        let used: Vec<u8> = active
            .flat_map(|active| &active.sent)
            .filter_map(|one| Some(one.stream.trex?.hw_id))
            .collect();
        let all = (0..).zip(self.headers?);
        let free = all.filter(|(hw_id, _)| !used.contains(hw_id));
        let next = |last: u8| last.checked_add(1).unwrap_or(translate::FIRST_FLOW_SEQ);
        Some(free.map(|(hw_id, last)| TrexMark { hw_id, flow_seq: next(last) }).collect())
    }

    fn use_marks(&mut self, sent: &Sent) {
        let Some(last) = &mut self.headers else { return };
        for mark in sent.iter().filter_map(|one| one.stream.trex) {
            last[usize::from(mark.hw_id)] = mark.flow_seq;
        }
    }

    /// Starts all waiting traffic that is due, simultaneously.
    fn begin_due(&mut self, now: Instant) -> Result<(), Refusal> {
        let (mut due, mut groups, mut paused) = (Vec::new(), HashMap::new(), Vec::new());
        for (number, port) in self.ports.iter_mut().enumerate() {
            for (id, profile) in &mut port.profiles {
                let Some(active) = &mut profile.active else { continue };
                let Some(waiting) = active.waiting.take_if(|waiting| waiting.at <= now) else {
                    continue;
                };
                due.push((number, id.clone(), waiting.lasts));
                groups.extend(waiting.groups);
                paused.extend(waiting.paused);
            }
        }
        if due.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.renew(groups) {
            for (port, id, _) in due {
                self.ports[port].profiles.entry(id).or_default().active = None;
            }
            return Err(error.into());
        }
        let now = Instant::now();
        for (port, id, lasts) in due {
            let Some(active) = self.active(port, &id) else { continue };
            active.ends = lasts.map(|lasts| now + lasts + active.grace());
        }
        Ok(paused.iter().try_for_each(|name| self.traffic.pause(name))?)
    }

    fn active(&mut self, port: usize, id: &str) -> Option<&mut Active> {
        self.ports[port].profiles.get_mut(id)?.active.as_mut()
    }

    /// Updates the run to send the active streams.
    fn renew(&mut self, groups: HashMap<String, (usize, Group)>) -> Result<(), Error> {
        let sent = sent_now(&self.ports);
        if sent.is_empty() {
            self.traffic.end();
            return Ok(());
        }
        match self.traffic.change(&sent, groups)? {
            true => Ok(()),
            false => self.reopen(),
        }
    }

    /// Replaces the run by one that opens the ports with their current configuration. Traffic with
    /// a duration has the rest of it in the new run.
    fn reopen(&mut self) -> Result<(), Error> {
        self.traffic.stop();
        let stopped = Instant::now();
        for active in self.all_active() {
            let Some(ends) = active.ends else { continue };
            let left = (ends - active.grace()).saturating_duration_since(stopped);
            for one in &mut active.sent {
                one.stream.duration = Some(Nanos(left.as_nanos() as u64));
            }
        }
        let sent = sent_now(&self.ports);
        if sent.is_empty() {
            return Ok(());
        }
        let sends = self.traffic.reopen(self.start.as_mut(), &sent);
        let interruption = stopped.elapsed();
        self.all_active().filter_map(|active| active.ends.as_mut()).for_each(|ends| {
            *ends += interruption;
        });
        sends
    }

    fn all_active(&mut self) -> impl Iterator<Item = &mut Active> {
        let profiles = self.ports.iter_mut().flat_map(|port| port.profiles.values_mut());
        profiles.filter_map(|profile| profile.active.as_mut())
    }

    fn stop_traffic(&mut self, port: usize, params: &Params<'_>) -> Answer {
        if self.stop_replay(port) {
            return Ok(json!({}));
        }
        let mut stopped = Vec::new();
        for id in self.named(port, params) {
            if let Some(profile) = self.ports[port].profiles.get_mut(&id)
                && profile.active.take().is_some()
            {
                stopped.push(id);
            }
        }
        if !stopped.is_empty() {
            self.renew(HashMap::new())?;
        }
        for id in stopped {
            self.event(11, json!({ "port_id": port, "profile_id": id }));
            if !self.sends(port) {
                self.event(1, json!({ "port_id": port }));
            }
        }
        Ok(json!({}))
    }

    /// Pauses or resumes profiles, or single streams of them (`some`).
    fn hold(&mut self, port: usize, params: &Params<'_>, pause: bool, some: bool) -> Answer {
        let wanted = if some { Some(streams_of(params)?) } else { None };
        let (verb, state) = if pause { ("pause", "sending") } else { ("resume", "paused") };
        let is_in_state = |profile: &Profile| {
            profile.active.as_ref().is_some_and(|active| some || active.paused != pause)
        };
        let profiles = &self.ports[port].profiles;
        let mut ids = self.named(port, params);
        ids.retain(|id| profiles.get(id).is_some_and(is_in_state));
        let refused = |id: &str, why: &str| {
            Refusal::failed(format!("cannot {verb} profile {id} of port {port}: {why}"))
        };
        if ids.is_empty() {
            return Err(refused(id_of(params), &format!("it is not {state}")));
        }
        // All checks come first, so that a refused request changes nothing.
        for id in &ids {
            let missing = |number: &&u32| !profiles[id].streams.contains_key(number);
            if let Some(number) = wanted.iter().flatten().find(missing) {
                return Err(refused(id, &format!("it has no stream {number}")));
            }
            if let Some(why) = profiles[id].never_paused().filter(|_| pause) {
                return Err(refused(id, &why));
            }
        }
        for id in ids {
            let Some(active) = self.active(port, &id) else { continue };
            let chosen: Vec<String> = active
                .sent
                .iter()
                .filter(|one| wanted.as_ref().is_none_or(|ids| ids.contains(&one.number)))
                .map(|one| one.stream.name.clone())
                .collect();
            if wanted.is_none() {
                active.paused = pause;
            }
            for name in chosen {
                match pause {
                    true => self.traffic.pause(&name)?,
                    false => self.traffic.resume(&name)?,
                }
            }
            if wanted.is_none() {
                let (one, all) = if pause { (12, 2) } else { (13, 3) };
                self.event(one, json!({ "port_id": port, "profile_id": id }));
                self.event(all, json!({ "port_id": port }));
            }
        }
        Ok(json!({}))
    }

    fn update_traffic(&mut self, port: usize, params: &Params<'_>) -> Answer {
        let (load, op) = load_of(params)?;
        let mut multiplier = 1.0;
        for id in self.named(port, params) {
            let setting = self.setting(port, Load::Factor(1.0));
            let profile =
                &self.ports[port].profiles.get(&id).filter(|profile| profile.active.is_some());
            let Some(profile) = profile else {
                return Err(Refusal::failed("port is not active"));
            };
            let now = profile.active.as_ref().map_or(1.0, |active| active.load);
            let by = match (load, op) {
                // As in TRex, a percentage to add or subtract is one of the load.
                (Load::Total(Unit::Percent, percent), Op::Add | Op::Sub) => now * percent / 100.0,
                _ => translate::factor(load, &profile.streams, setting.speed)?,
            };
            let to = match op {
                Op::Set => by,
                Op::Add => now + by,
                Op::Sub => now - by,
            };
            if to <= 0.0 {
                return Err(Refusal::failed("the rate must be above 0"));
            }
            let rates = translate::translate(
                &profile.streams,
                &Setting { load: Load::Factor(to), ..setting },
                |n| n.to_string(),
                |_| Some(0),
            )?;
            let profile = self.ports[port].profiles.entry(id).or_default();
            if let Some(active) = &mut profile.active {
                for one in &mut active.sent {
                    if let Some(new) = rates.iter().find(|new| new.number == one.number) {
                        one.stream.rate = new.stream.rate;
                    }
                }
                active.load = to;
            }
            multiplier = to;
            self.renew(HashMap::new())?;
        }
        Ok(json!({ "multiplier": multiplier }))
    }

    /// Like [`Self::update_traffic`], for individual streams.
    fn update_streams(&mut self, port: usize, params: &Params<'_>) -> Answer {
        let (load, op) = load_of(params)?;
        if op != Op::Set {
            return Err(Refusal::parameters("mul: op: expected abs, of single streams"));
        }
        let setting = self.setting(port, Load::Factor(1.0));
        let profile = self.ports[port].profiles.get_mut(id_of(params));
        let Some((profile, active)) = profile.and_then(|profile| {
            let Profile { streams, active, .. } = profile;
            active.as_mut().map(|active| (streams, active))
        }) else {
            return Err(Refusal::failed("port is not active"));
        };
        let mut rates = Vec::new();
        for id in params.list("stream_ids")? {
            let wanted = id.as_u64().and_then(|id| u32::try_from(id).ok());
            let place = active.sent.iter().position(|one| Some(one.number) == wanted);
            let place = place.ok_or_else(|| Refusal::failed(format!("stream {id} is not sent")))?;
            let number = active.sent[place].number;
            // As in TRex, no multiplier changes the rate of a stream with latency.
            if profile[&number].has_latency() {
                continue;
            }
            let mut alone = profile[&number].clone();
            (alone.self_start, alone.next_stream_id) = (true, -1);
            let made = translate::translate(
                &BTreeMap::from([(number, alone)]),
                &Setting { load, ..setting },
                |n| n.to_string(),
                |_| Some(0),
            )?;
            rates.extend(made.iter().map(|made| (place, made.stream.rate)));
        }
        for (place, rate) in rates {
            active.sent[place].stream.rate = rate;
        }
        self.renew(HashMap::new())?;
        Ok(json!({}))
    }

    // Attributes

    fn set_port_attr(&mut self, number: usize, params: &Params<'_>) -> Answer {
        let attributes = params.object("attr")?;
        let port = &mut self.ports[number];
        for (name, value) in attributes {
            let enabled = value["enabled"].as_bool();
            match (name.as_str(), enabled) {
                ("vxlan_fs", _) => {
                    let ports = serde_json::from_value(value.clone()).ok();
                    let ports =
                        ports.filter(|ports: &Vec<u16>| !ports.contains(&0)).ok_or_else(|| {
                            let text =
                                format!("vxlan_fs = {value}: expected UDP ports, 1 to 65535");
                            Refusal::parameters(text)
                        })?;
                    if !ports.is_empty() && driver(&port.info) != VXLAN_DRIVER {
                        return Err(Refusal::failed(format!(
                            "vxlan_fs: port {number} has the driver {}, and this is for \
                             {VXLAN_DRIVER}\n  try without it: packet groups inside of VXLAN are \
                             counted on all ports",
                            driver(&port.info)
                        )));
                    }
                    port.vxlan = ports;
                }
                ("promiscuous", Some(on)) => port.promiscuous = on,
                ("multicast", Some(on)) => port.multicast = on,
                _ => {
                    return Err(Refusal::failed(format!(
                        "port {number} has no attribute {name} that can be set"
                    )));
                }
            }
        }
        self.event(8, json!({ "port_id": number, "attr": attributes }));
        Ok(json!({}))
    }

    fn set_l2(&mut self, port: usize, params: &Params<'_>) -> Answer {
        self.check_idle("the port's destination")?;
        let text = params.text("dst_mac")?;
        let mac = text.parse().map_err(|_| {
            Refusal::parameters(format!("dst_mac = {text:?}: expected a MAC address"))
        })?;
        self.ports[port].destination = mac;
        self.ports[port].l3 = None;
        self.update_host(port)?;
        Ok(json!({}))
    }

    fn set_l3(&mut self, port: usize, params: &Params<'_>) -> Answer {
        self.check_idle("the port's addresses")?;
        let (source, destination) =
            (params.text("src_addr")?.to_owned(), params.text("dst_addr")?.to_owned());
        for (name, text) in [("src_addr", &source), ("dst_addr", &destination)] {
            if text.parse::<std::net::IpAddr>().is_err() {
                let text = format!("{name} = {text:?}: expected an IP address");
                return Err(Refusal::parameters(text));
            }
        }
        let mac = params.get("resolved_mac").and_then(Value::as_str);
        if let Some(text) = mac {
            let wrong =
                |_| Refusal::parameters(format!("resolved_mac = {text:?}: expected a MAC address"));
            self.ports[port].destination = text.parse().map_err(wrong)?;
        }
        self.ports[port].l3 = Some(L3 { source, destination, resolved: mac.is_some() });
        self.update_host(port)?;
        Ok(json!({}))
    }

    fn set_vlan(&mut self, port: usize, params: &Params<'_>) -> Answer {
        self.check_idle("the port's VLAN")?;
        let tags: Vec<u64> = params.list("vlan")?.iter().filter_map(Value::as_u64).collect();
        if tags.len() > 2 || tags.iter().any(|tag| *tag > 4095) {
            return Err(Refusal::parameters("vlan: expected at most two tags of 0 to 4095"));
        }
        if tags.len() > 1 && self.flows.is_some() {
            return Err(Refusal::failed("Stacked VLANs are not allowed in ASTF mode"));
        }
        self.ports[port].vlan = tags;
        self.update_host(port)?;
        Ok(json!({}))
    }
}

/// The streams that have started and have not ended.
fn sent_now(ports: &[Port]) -> Vec<&Sent> {
    let active = ports.iter().flat_map(|port| port.profiles.values());
    active
        .filter_map(|profile| profile.active.as_ref())
        .filter(|active| active.waiting.is_none())
        .map(|active| &active.sent)
        .collect()
}

/// Link states. They are cached, because clients request them often and kernel queries are slow.
#[derive(Default)]
struct Links {
    taken: Option<Instant>,
    down: HashSet<String>,
}

/// Maximum age of cached link states.
const LINKS: Duration = Duration::from_millis(500);

impl Links {
    /// Link state of a port; a port without an interface is always up.
    fn is_up(&mut self, address: &str) -> bool {
        let Some(name) = squall_machine::ports::interface_of(address) else { return true };
        if self.taken.is_none_or(|taken| taken.elapsed() >= LINKS) {
            self.taken = Some(Instant::now());
            let all = squall_port_linux::list_interfaces().unwrap_or_default().into_iter();
            let down = all.filter(|interface| interface.state != InterfaceState::Up);
            self.down = down.map(|interface| interface.name).collect();
        }
        !self.down.contains(&name)
    }
}

/// The name of the kind of port in TRex, which is that of the DPDK driver.
fn driver(info: &PortInfo) -> &str {
    match info.address.split_once(':').map_or("af_packet", |(kind, _)| kind) {
        "af_packet" => "net_af_packet",
        "af_xdp" | "xdp_live" => "net_af_xdp",
        "null" => "net_null",
        "loop" => "net_ring",
        "pcap" => "net_pcap",
        _ if info.driver.is_empty() => "squall",
        _ => &info.driver,
    }
}

fn place(info: &PortInfo) -> &str {
    if info.bus.is_empty() { &info.address } else { &info.bus }
}

/// Whether a method addresses a single port.
fn of_port(method: &str) -> bool {
    matches!(
        method,
        "acquire"
            | "get_all_streams"
            | "get_owner"
            | "get_port_stats"
            | "get_port_status"
            | "get_port_xstats_values"
            | "get_profile_list"
            | "get_stream"
            | "get_stream_list"
            | "push_pkts"
    ) || tagged::of_port(method)
}

fn id_of<'a>(params: &'a Params<'_>) -> &'a str {
    params.get("profile_id").and_then(Value::as_str).filter(|id| !id.is_empty()).unwrap_or(DEFAULT)
}

fn number(params: &Params<'_>, name: &str) -> Result<u32, Refusal> {
    let number = params.whole(name)?;
    u32::try_from(number)
        .map_err(|_| Refusal::parameters(format!("{name} = {number}: expected less than 2^32")))
}

/// The numbers in `stream_ids`.
fn streams_of(params: &Params<'_>) -> Result<Vec<u32>, Refusal> {
    let number = |id: &Value| id.as_u64().and_then(|id| u32::try_from(id).ok());
    let numbers: Option<Vec<u32>> = params.list("stream_ids")?.iter().map(number).collect();
    numbers.filter(|numbers| !numbers.is_empty()).ok_or_else(|| {
        Refusal::parameters("stream_ids: expected the numbers of one or more streams")
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Op {
    Set,
    Add,
    Sub,
}

fn load_of(params: &Params<'_>) -> Result<(Load, Op), Refusal> {
    let mul = params.object("mul")?;
    let mul = Params(mul);
    let value = mul.number("value")?;
    if !(value.is_finite() && value > 0.0) {
        return Err(Refusal::parameters(format!("mul: value = {value}: expected more than 0")));
    }
    let op = match mul.get("op").and_then(Value::as_str).unwrap_or("abs") {
        "abs" => Op::Set,
        "add" => Op::Add,
        "sub" => Op::Sub,
        other => {
            return Err(Refusal::parameters(format!(
                "mul: op = {other:?}: expected abs, add or sub"
            )));
        }
    };
    let load = match mul.text("type")? {
        "raw" => Load::Factor(value),
        "pps" => Load::Total(Unit::Pps, value),
        "bps" => Load::Total(Unit::BpsL2, value),
        "bpsl1" => Load::Total(Unit::BpsL1, value),
        "percentage" => Load::Total(Unit::Percent, value),
        other => {
            return Err(Refusal::parameters(format!(
                "mul: type = {other:?}: expected raw, pps, bps, bpsl1 or percentage"
            )));
        }
    };
    Ok((load, op))
}

/// Converts a time on the clock of `ping` to an `Instant`: now if it is in the past, and at most
/// [`FARTHEST`] ahead.
fn instant_of(seconds: f64) -> Instant {
    let left = Duration::try_from_secs_f64(seconds - now()).unwrap_or_default();
    Instant::now() + left.min(FARTHEST)
}

fn groups_of(
    sent: &Sent,
    streams: &BTreeMap<u32, Stream>,
    port: usize,
) -> HashMap<String, (usize, Group)> {
    let group = |number: u32| Some((port, tagged::counted(port, &streams[&number])?));
    sent.iter().filter_map(|one| Some((one.stream.name.clone(), group(one.number)?))).collect()
}

/// Total number of packets until all streams have ended; `None`: they do not end.
fn packets_of(sent: &Sent) -> Option<u64> {
    let mut all = 0u64;
    let mut left: Vec<Option<u64>> =
        sent.iter().map(|one| one.stream.next.map(|next| next.times.unwrap_or(u64::MAX))).collect();
    let begun: Vec<usize> = (0..sent.len()).filter(|i| sent[*i].stream.self_start).collect();
    for first in begun {
        let mut at = first;
        for step in 0.. {
            if step > FOLLOWED {
                return None;
            }
            all = all.checked_add(squall_control::frames(sent[at].stream.mode)?)?;
            match (&mut left[at], sent[at].stream.next) {
                (Some(times), Some(next)) if *times > 0 => {
                    *times -= u64::from(*times != u64::MAX);
                    at = next.stream;
                }
                _ => break,
            }
        }
    }
    Some(all)
}

#[cfg(test)]
mod sequences;

#[cfg(test)]
pub(crate) mod tests {
    use base64::{Engine, engine::general_purpose::STANDARD};

    use squall_control::driving::InProcess;

    use super::*;

    pub(in crate::server) struct Client {
        pub server: Server,
        handle: Value,
        owned: Value,
    }

    impl Client {
        pub fn new(link: &str, flows: bool) -> Self {
            Self::with(link, flows, false)
        }

        fn with(link: &str, flows: bool, headers: bool) -> Self {
            let info = |number| port(&format!("loop:{link}"), number, false);
            Self::on(vec![info(0), info(1)], flows.then(FlowMode::default), headers)
        }

        /// A client of a server with these ports.
        pub fn on(ports: Vec<PortInfo>, flows: Option<FlowMode>, headers: bool) -> Self {
            let start = Box::new(InProcess(Duration::from_millis(50)));
            let server = Server::new(ports, start, flows, headers);
            let mut client = Self { server, handle: Value::Null, owned: Value::Null };
            let version = if flows.is_some() {
                json!({ "name": "ASTF", "major": 2, "minor": 3 })
            } else {
                json!({ "name": "STL", "major": 5, "minor": 1 })
            };
            client.handle =
                client.ask("api_sync_v2", version).expect("the same version")["api_h"].clone();
            client
        }

        pub fn ask(&mut self, method: &str, mut params: Value) -> Result<Value, Refusal> {
            params["api_h"] = self.handle.clone();
            if params.get("handler").is_none() {
                params["handler"] = self.owned.clone();
            }
            let params = params.as_object().expect("an object").clone();
            self.server.dispatch(method, &Params(&params))
        }

        fn acquire(&mut self, user: &str, session: u64, force: bool) -> Result<Value, Refusal> {
            let asked =
                json!({ "port_id": 0, "user": user, "session_id": session, "force": force });
            self.ask("acquire", asked)
        }

        fn events(&mut self) -> Vec<u64> {
            let asked = json!({ "session_id": 1, "user": "sub" });
            let reply = self.ask("get_async_events", asked).expect("events");
            let events = reply["data"].as_array().expect("a list").clone();
            events.iter().filter_map(|event| event["type"].as_u64()).collect()
        }
    }

    fn burst(packets: u64) -> Value {
        let mode = json!({ "type": "single_burst", "total_pkts": packets,
            "rate": { "type": "pps", "value": 10_000 } });
        json!({ "mode": mode, "packet": { "binary": "A".repeat(120) }, "vm": {},
            "flow_stats": { "enabled": true, "stream_id": 7, "rule_type": "latency" } })
    }

    #[test]
    fn a_burst_is_sent_and_counted_and_its_end_is_an_event() {
        a_burst_counts(Client::new("trex-burst", false));
    }

    #[test]
    fn a_burst_with_trexs_header_is_sent_and_counted() {
        let client = a_burst_counts(Client::with("trex-header", false, true));
        let last = client.server.headers.expect("with headers");
        assert_eq!(last[..2], [2, 1], "one start, of the first hw_id");
        let marks = client.server.free_marks().expect("with headers");
        assert_eq!((marks.len(), marks[0]), (128, TrexMark { hw_id: 0, flow_seq: 3 }));
    }

    /// A TCP packet with a length of `octets`.
    fn tcp(octets: usize) -> Value {
        let packet = squall_wire::Packet::parse("eth/ipv4/tcp").expect("a packet");
        let build = packet.build(Some(octets), &|_| unreachable!(), 0).expect("room for headers");
        json!(STANDARD.encode(&build.bytes))
    }

    /// Starts the streams on port 0 and waits for their end; returns the counters of `groups`.
    fn counted(client: &mut Client, streams: &[Value], groups: &[u32]) -> Value {
        client.ask("remove_all_streams", json!({ "port_id": 0 })).expect("none");
        for (number, stream) in streams.iter().enumerate() {
            let stream = json!({ "port_id": 0, "stream_id": number, "stream": stream });
            client.ask("add_stream", stream).expect("sound");
        }
        let mul = json!({ "type": "raw", "op": "abs", "value": 1 });
        let start = json!({ "port_id": 0, "mul": mul, "duration": -1 });
        client.ask("start_traffic", start).expect("it starts");
        let until = Instant::now() + Duration::from_secs(60);
        while !client.events().contains(&4) && Instant::now() < until {
            client.server.look();
        }
        client.ask("get_pgid_stats", json!({ "pgids": groups })).expect("known")["flow_stats"]
            .take()
    }

    #[test]
    fn packets_without_room_for_a_signature_are_counted_by_their_groups() {
        for headers in [false, true] {
            let mut client = Client::with(&format!("trex-short-{headers}"), false, headers);
            client.owned = client.acquire("ann", 1, false).expect("free");
            let of = |octets: usize, group: u32, packets: u64| {
                let mut stream = burst(packets);
                stream["packet"]["binary"] = tcp(octets);
                stream["flow_stats"]["stream_id"] = json!(group);
                stream["flow_stats"]["rule_type"] = json!("stats");
                stream
            };
            // Two streams in one group, one in another, and one with a signature.
            let streams = [of(60, 7, 200), of(64, 7, 100), of(60, 8, 50), of(90, 9, 30)];
            let twice = counted(&mut client, &streams, &[7, 8, 9]);
            for (group, packets, octets) in
                [("7", 300, 200 * 64 + 100 * 68), ("8", 50, 50 * 64), ("9", 30, 30 * 94)]
            {
                let of = &twice[group];
                assert_eq!(
                    (&of["tp"]["0"], &of["rp"]["1"]),
                    (&json!(packets), &json!(packets)),
                    "{group}"
                );
                assert_eq!(
                    (&of["tb"]["0"], &of["rb"]["1"]),
                    (&json!(octets), &json!(octets)),
                    "{group}"
                );
                assert_eq!(of["rp"]["0"], json!(0));
            }
            let groups = client.server.traffic.groups();
            assert!(groups.values().all(|of| (of.lost, of.duplicates) == (0, 0)), "{groups:?}");
            // Another stream now uses the group's number.
            let again = counted(&mut client, &[of(60, 8, 20)], &[7, 8]);
            assert_eq!((&again["7"], &again["8"]["rp"]["1"]), (&Value::Null, &json!(20)));
            let mut late = of(60, 8, 20);
            late["flow_stats"]["rule_type"] = json!("latency");
            let late = json!({ "port_id": 0, "stream_id": 9, "stream": late });
            let why = client.ask("add_stream", late).expect_err("no room");
            assert!(why.text.contains("try a frame of 74 octets"), "{why:?}");
        }
    }

    /// Adds a stream of port 0 to a profile.
    fn add(client: &mut Client, profile: &str, number: u32, stream: &Value) {
        let asked = json!({ "port_id": 0, "profile_id": profile, "stream_id": number,
            "stream": stream });
        client.ask("add_stream", asked).expect("sound");
    }

    fn start(client: &mut Client, profile: &str) {
        let mul = json!({ "type": "raw", "op": "abs", "value": 1 });
        let asked = json!({ "port_id": 0, "profile_id": profile, "mul": mul, "duration": -1 });
        client.ask("start_traffic", asked).expect("it starts");
    }

    #[test]
    fn an_update_of_single_streams_leaves_those_with_latency() {
        let mut client = Client::new("trex-update", false);
        client.owned = client.acquire("ann", 1, false).expect("free");
        let mut steady = burst(1);
        steady["mode"] = json!({ "type": "continuous", "rate": { "type": "pps", "value": 100 } });
        add(&mut client, "_", 1, &steady);
        steady["flow_stats"] = json!({ "enabled": false });
        add(&mut client, "_", 2, &steady);
        start(&mut client, "_");
        let rates = |client: &Client| {
            let active = client.server.ports[0].profiles["_"].active.as_ref().expect("active");
            active.sent.iter().map(|one| one.stream.rate).collect::<Vec<_>>()
        };
        let before = rates(&client);
        let asked = json!({ "port_id": 0, "profile_id": "_", "stream_ids": [1, 2],
            "mul": { "type": "pps", "op": "abs", "value": 300 } });
        client.ask("update_streams", asked).expect("both are sent");
        let after = rates(&client);
        assert_eq!(before[0], after[0], "with latency");
        assert_ne!(before[1], after[1]);
        client.server.end();
    }

    #[test]
    fn a_multiplier_changes_no_stream_with_latency() {
        let mut client = Client::new("trex-multiplier", false);
        client.owned = client.acquire("ann", 1, false).expect("free");
        let mut steady = burst(1);
        steady["mode"] = json!({ "type": "continuous", "rate": { "type": "pps", "value": 1000 } });
        add(&mut client, "_", 1, &steady);
        steady["mode"]["rate"]["value"] = json!(1);
        steady["flow_stats"] = json!({ "enabled": false });
        add(&mut client, "_", 2, &steady);
        let forecast = client.ask("validate", json!({ "port_id": 0 })).expect("sound");
        let range = ["min_pps", "max_pps"].map(|name| forecast["rate"][name].as_f64());
        assert_eq!(range, [Some(1000.0), Some(1001.0)]);
        let of_the_other = &forecast["graph"]["events"][0]["stream_id"];
        assert_eq!((of_the_other, &forecast["graph"]["events_count"]), (&json!(2), &json!(1)));
        let ask = |client: &mut Client, method: &str, op: &str, (kind, value): (&str, u32)| {
            let mul = json!({ "type": kind, "op": op, "value": value });
            client.ask(method, json!({ "port_id": 0, "mul": mul, "duration": -1 }))
        };
        let rates = |client: &Client| {
            let active = client.server.ports[0].profiles["_"].active.as_ref().expect("active");
            active.sent.iter().map(|one| one.stream.rate.value()).collect::<Vec<_>>()
        };
        let why = ask(&mut client, "start_traffic", "abs", ("pps", 900)).expect_err("too low");
        assert!(why.text.contains("1000 pps together"), "{why:?}");
        ask(&mut client, "start_traffic", "abs", ("pps", 5000)).expect("it starts");
        assert_eq!(rates(&client), [1000.0, 4000.0]);
        for (op, mul, expected) in [
            ("abs", ("raw", 20), 20.0),
            ("add", ("percentage", 50), 30.0),
            ("abs", ("pps", 3000), 2000.0),
        ] {
            ask(&mut client, "update_traffic", op, mul).expect("active");
            assert_eq!(rates(&client), [1000.0, expected], "{op} {mul:?}");
        }
        client.server.end();
    }

    /// Starts a profile of 100 packets, as 0.1 s of a stream without end, and waits until the run
    /// is over.
    fn play_to_the_end(client: &mut Client, profile: &str) {
        let mut steady = burst(1);
        steady["mode"] = json!({ "type": "continuous", "rate": { "type": "pps", "value": 1000 } });
        add(client, profile, 1, &steady);
        let mul = json!({ "type": "raw", "op": "abs", "value": 1 });
        let asked = json!({ "port_id": 0, "profile_id": profile, "mul": mul, "duration": 0.1 });
        client.ask("start_traffic", asked).expect("it starts");
        let until = Instant::now() + Duration::from_secs(60);
        while !client.server.traffic.is_over() {
            assert!(Instant::now() < until, "the run does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until port 0 is idle. Returns the number of packets that it has sent.
    fn sent_in_the_end(client: &mut Client) -> u64 {
        let until = Instant::now() + Duration::from_secs(60);
        while client.server.sends(0) {
            assert!(Instant::now() < until, "the port does not become idle");
            client.server.look();
        }
        client.server.traffic.ports()[0].tx_packets
    }

    #[test]
    fn a_run_that_has_ended_does_not_begin_its_streams_again() {
        let mut client = Client::new("trex-over", false);
        client.owned = client.acquire("ann", 1, false).expect("free");
        play_to_the_end(&mut client, "_");
        // As after the end of another profile, at the moment when the run ends.
        client.server.renew(HashMap::new()).expect("nothing begins");
        assert!(client.server.traffic.is_over());
        assert_eq!(sent_in_the_end(&mut client), 100);
        client.server.end();
    }

    #[test]
    fn a_start_after_the_end_of_a_run_does_not_begin_its_streams_again() {
        let mut client = Client::new("trex-over-start", false);
        client.owned = client.acquire("ann", 1, false).expect("free");
        ["a", "b"].iter().for_each(|profile| play_to_the_end(&mut client, profile));
        assert_eq!(sent_in_the_end(&mut client), 200);
        client.server.end();
    }

    #[test]
    fn a_run_that_is_replaced_for_longer_frames_has_the_rest_of_the_durations() {
        let mut client = Client::new("trex-rest", false);
        client.owned = client.acquire("ann", 1, false).expect("free");
        let mut steady = burst(1);
        steady["mode"] = json!({ "type": "continuous", "rate": { "type": "pps", "value": 1000 } });
        add(&mut client, "a", 1, &steady);
        let mul = json!({ "type": "raw", "op": "abs", "value": 1 });
        let asked = json!({ "port_id": 0, "profile_id": "a", "mul": mul, "duration": 0.5 });
        client.ask("start_traffic", asked).expect("it starts");
        let wait = |client: &mut Client, is: &dyn Fn(&mut Client) -> bool| {
            let until = Instant::now() + Duration::from_secs(60);
            while !is(client) {
                assert!(Instant::now() < until, "waited in vain");
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        wait(&mut client, &|client| client.server.traffic.ports()[0].tx_packets >= 400);
        let before = client.server.active(0, "a").and_then(|active| active.ends);
        let mut long = burst(1);
        long["packet"]["binary"] = tcp(4000);
        long["flow_stats"] = json!({ "enabled": false });
        add(&mut client, "b", 1, &long);
        start(&mut client, "b");
        let active = client.server.active(0, "a").expect("it goes on");
        assert!(active.ends > before, "the interruption does not count");
        assert!(active.sent[0].stream.duration < Some(Nanos(100_000_000)), "the rest");
        wait(&mut client, &|client| client.server.traffic.is_over());
        // Not another 500 packets, those of the whole duration.
        let sent = sent_in_the_end(&mut client);
        assert!((401..800).contains(&sent), "{sent}");
        client.server.end();
    }

    #[test]
    fn the_refusal_of_an_older_client_has_both_versions() {
        let mut client = Client::new("trex-older", false);
        let asked = |major| json!({ "api_vers": [{ "type": "core", "major": major, "minor": 1 }] });
        let known = client.ask("api_sync", asked(5)).expect("the same version");
        assert_eq!(known["api_vers"][0]["api_h"], client.handle);
        let why = client.ask("api_sync", asked(4)).expect_err("older");
        assert!(why.text.contains("client is 4.1, that of the server 5.1"), "{why:?}");
    }

    #[test]
    fn only_a_profile_that_does_not_end_can_be_paused() {
        let mut client = Client::new("trex-pause", false);
        client.owned = client.acquire("ann", 1, false).expect("free");
        let mut steady = burst(1);
        steady["mode"] = json!({ "type": "continuous", "rate": { "type": "pps", "value": 100 } });
        add(&mut client, "steady", 1, &steady);
        add(&mut client, "burst", 1, &steady);
        let mut late = burst(9_999);
        late["flow_stats"] = json!({ "enabled": false });
        add(&mut client, "burst", 2, &late);
        let on = |profile: &str, more: Value| {
            let mut asked = json!({ "port_id": 0, "profile_id": profile });
            more.as_object().into_iter().flatten().for_each(|(k, v)| asked[k] = v.clone());
            asked
        };
        let mut ask = |method: &str, asked: Value| client.ask(method, asked);
        let mul = json!({ "type": "raw", "op": "abs", "value": 1 });
        let start = |lasts: f64| json!({ "mul": mul, "duration": lasts });
        let steady = |more: Value| on("steady", more);
        let why = ask("pause_traffic", steady(json!({}))).expect_err("it has not started");
        assert!(why.text.contains("is not sending"), "{why:?}");
        ask("start_traffic", steady(start(-1.0))).expect("it starts");
        ask("start_traffic", on("burst", start(-1.0))).expect("it starts");
        for method in ["pause_traffic", "pause_streams"] {
            let why = ask(method, on("burst", json!({ "stream_ids": [1] }))).expect_err("a burst");
            assert!(why.text.contains("stream 2 is a burst"), "{why:?}");
        }
        for (streams, expected) in [(json!([9]), "no stream 9"), (json!([]), "one or more")] {
            let asked = steady(json!({ "stream_ids": streams }));
            let why = ask("pause_streams", asked).expect_err("none to pause");
            assert!(why.text.contains(expected), "{why:?}");
        }
        ask("pause_traffic", steady(json!({}))).expect("it does not end");
        let why = ask("pause_traffic", steady(json!({}))).expect_err("twice");
        assert!(why.text.contains("is not sending"), "{why:?}");
        ask("resume_traffic", steady(json!({}))).expect("it is paused");
        let why = ask("resume_traffic", steady(json!({}))).expect_err("twice");
        assert!(why.text.contains("is not paused"), "{why:?}");
        ask("stop_traffic", steady(json!({}))).expect("its own");
        ask("start_traffic", steady(start(3600.0))).expect("it starts");
        let why = ask("pause_traffic", steady(json!({}))).expect_err("with a duration");
        assert!(why.text.contains("duration"), "{why:?}");
        client.server.end();
    }

    /// A stream of 20 frames of tagged packet group `group` with these VLAN tags.
    fn tagged(vlans: &[u16], group: u32) -> Value {
        let vlans = vlans.iter().map(|vlan| format!("/vlan(id={vlan})")).collect::<String>();
        let packet = squall_wire::Packet::parse(&format!("eth{vlans}/ipv4/udp")).expect("a packet");
        let octets = packet.build(Some(100), &|_| unreachable!(), 0).expect("room").bytes;
        let mut stream = burst(20);
        stream["packet"]["binary"] = json!(STANDARD.encode(octets));
        stream["flow_stats"] = json!({ "enabled": true, "stream_id": group, "rule_type": "tpg" });
        stream
    }

    #[test]
    fn packets_of_tagged_groups_are_counted_by_their_tags() {
        let mut client = Client::new("trex-tagged", false);
        client.owned = client.acquire("ann", 1, false).expect("free");
        let stream = |number: u32, stream: Value| json!({ "port_id": 0, "stream_id": number, "stream": stream });
        let why = client.ask("add_stream", stream(1, tagged(&[7], 0))).expect_err("not enabled");
        assert!(why.text.contains("not enabled"), "{why:?}");
        let other = json!({ "port_id": 1, "user": "ann", "session_id": 1, "force": false });
        client.ask("acquire", other).expect("free");
        let vlan = |id: u16| json!({ "type": "Dot1Q", "value": { "vlan": id } });
        let both = json!({ "type": "QinQ", "value": { "vlans": [7, 8] } });
        let enable = json!({ "username": "ann", "session_id": 1, "ports": [0, 1], "rx_ports": [1],
            "num_tpgids": 4, "tags": [vlan(7), vlan(8), both] });
        let user = json!({ "username": "ann" });
        let state = |client: &mut Client| client.ask("get_tpg_state", user.clone()).expect("known");
        assert_eq!(state(&mut client), json!(0));
        let mut not_owned = enable.clone();
        not_owned["session_id"] = json!(2);
        let why = client.ask("enable_tpg", not_owned).expect_err("of another session");
        assert!(why.text.contains("not acquired"), "{why:?}");
        client.ask("enable_tpg", enable).expect("its own");
        assert_eq!(state(&mut client), json!(2));
        client.ask("enable_tpg", user.clone()).expect("its own");
        assert_eq!(state(&mut client), json!(3));
        let status = client.ask("get_tpg_status", json!({ "port_id": 1 })).expect("known");
        assert_eq!((&status["enabled"], &status["data"]["num_tags"]), (&json!(true), &json!(3)));
        let why = client.ask("add_stream", stream(9, tagged(&[7], 4))).expect_err("too many");
        assert!(why.text.contains("tpgid = 4"), "{why:?}");
        for (number, vlans) in [(0, &[7][..]), (1, &[7, 8]), (2, &[]), (3, &[9])] {
            client.ask("add_stream", stream(number, tagged(vlans, number))).expect("sound");
        }
        let why = client.ask("add_stream", stream(9, tagged(&[7], 0))).expect_err("in use");
        assert!(why.text.contains("stream 0 has it"), "{why:?}");
        // The sequence numbers of the second start continue those of the first.
        for _ in 0..2 {
            start(&mut client, "_");
            until(&mut client, "the end", |client| {
                client.server.look();
                !client.server.sends(0)
            });
        }
        let stats = |client: &mut Client, group: u32| {
            let asked = json!({ "port_id": 1, "tpgid": group, "min_tag": 0, "max_tag": 3,
                "untagged": true, "unknown_tag": true });
            let mut stats = client.ask("get_tpg_stats", asked).expect("known");
            stats["1"][group.to_string()].take()
        };
        let counts = |packets: u64| {
            json!({ "pkts": packets, "bytes": packets * 104, "seq_err": 0, "seq_err_too_big": 0,
                "seq_err_too_small": 0, "ooo": 0, "dup": 0 })
        };
        let few = |packets: u64| json!({ "pkts": packets, "bytes": packets * 104 });
        for (group, expected) in [
            (0, json!({ "0": counts(40), "untagged": counts(0), "unknown_tag": few(0) })),
            (1, json!({ "0-1": counts(0), "untagged": counts(0), "unknown_tag": few(0) })),
            (2, json!({ "0-2": counts(0), "untagged": counts(40), "unknown_tag": few(0) })),
            (3, json!({ "0-2": counts(0), "untagged": counts(0), "unknown_tag": few(40) })),
        ] {
            assert_eq!(stats(&mut client, group), expected, "group {group}");
        }
        let last = json!({ "port_id": 1, "tpgid": 1, "min_tag": 2, "max_tag": 3 });
        let last = client.ask("get_tpg_stats", last).expect("known");
        assert_eq!(last["1"]["1"], json!({ "2": counts(40) }));
        let sent = |client: &mut Client| {
            let asked = json!({ "port_id": 0, "tpgid": 1 });
            client.ask("get_tpg_tx_stats", asked).expect("known")["0"]["1"].clone()
        };
        assert_eq!(sent(&mut client), few(40));
        client.ask("clear_tpg_tx_stats", json!({ "port_id": 0, "tpgid": 1 })).expect("its own");
        assert_eq!(sent(&mut client), few(0));
        let unknown = client.ask("get_tpg_unknown_tags", json!({ "port_id": 1 })).expect("known");
        assert_eq!(unknown["1"][0], json!({ "tag": vlan(9), "tpgid": 3 }));
        let mut to = vlan(9);
        to["tag_id"] = json!(1);
        let asked = json!({ "username": "ann", "tags": [to] });
        client.ask("update_tpg_tags", asked).expect("its own");
        let asked = json!({ "username": "ann", "min_tag": 1, "max_tag": 2 });
        assert_eq!(client.ask("get_tpg_tags", asked).expect("known"), json!([vlan(9)]));
        let clear = json!({ "port_id": 1, "tpgid": 0, "min_tag": 0, "max_tag": 1 });
        client.ask("clear_tpg_stats", clear).expect("its own");
        assert_eq!(stats(&mut client, 0)["0-2"], counts(0));
        let why = client.ask("release", json!({ "port_id": 0 })).expect_err("enabled");
        assert!(why.text.contains("disable_tpg"), "{why:?}");
        client.ask("disable_tpg", user.clone()).expect("its own");
        assert_eq!(state(&mut client), json!(5));
        client.ask("disable_tpg", user.clone()).expect("its own");
        assert_eq!(state(&mut client), json!(0));
        client.ask("release", json!({ "port_id": 0 })).expect("its own");
    }

    #[test]
    fn groups_that_a_user_enables_again_start_from_zero_while_another_user_has_some() {
        let mut client = Client::new("trex-tagged-users", false);
        client.owned = client.acquire("ann", 1, false).expect("free");
        let other = json!({ "port_id": 1, "user": "bob", "session_id": 2, "force": false });
        client.ask("acquire", other).expect("free");
        let enable = |client: &mut Client, user: &str, session: u64, ports: Value| {
            let asked = json!({ "username": user, "session_id": session, "ports": ports,
                "rx_ports": ports, "num_tpgids": 1, "tags": [] });
            client.ask("enable_tpg", asked)?;
            client.ask("enable_tpg", json!({ "username": user }))
        };
        enable(&mut client, "ann", 1, json!([0])).expect("its own");
        enable(&mut client, "bob", 2, json!([1])).expect("its own");
        let why = enable(&mut client, "cid", 3, json!([])).expect_err("of no port");
        assert!(why.text.contains("one or more"), "{why:?}");
        add(&mut client, "_", 0, &tagged(&[7], 0));
        start(&mut client, "_");
        until(&mut client, "the end", |client| {
            client.server.look();
            !client.server.sends(0)
        });
        let sent = |client: &mut Client| {
            let asked = json!({ "port_id": 0, "tpgid": 0 });
            client.ask("get_tpg_tx_stats", asked).expect("known")["0"]["0"]["pkts"].clone()
        };
        assert_eq!(sent(&mut client), json!(20));
        // An interrupted client has sent the first of the two requests only.
        client.ask("disable_tpg", json!({ "username": "ann" })).expect("its own");
        enable(&mut client, "ann", 1, json!([0])).expect("freed");
        assert_eq!(sent(&mut client), json!(0));
    }

    /// Polls the server until the condition holds.
    fn until(client: &mut Client, what: &str, is: impl Fn(&mut Client) -> bool) {
        let late = Instant::now() + Duration::from_secs(60);
        while !is(client) {
            assert!(Instant::now() < late, "{what}: {:?}", client.server.traffic.groups());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Packets of a group that port 0 has sent, and port 1 has received.
    fn packets(client: &Client, group: u32) -> (u64, u64) {
        let counts = client.server.traffic.groups().get(&group).cloned().unwrap_or_default();
        let of = |by: &BTreeMap<usize, (u64, u64)>, port: usize| by.get(&port).map_or(0, |n| n.0);
        (of(&counts.tx, 0), of(&counts.rx, 1))
    }

    #[test]
    fn a_burst_that_has_ended_is_not_sent_again_when_another_run_takes_over() {
        let mut client = Client::new("trex-takes-over", false);
        client.owned = client.acquire("ann", 1, false).expect("free");
        let mut goes_on = burst(1);
        goes_on["mode"] = json!({ "type": "continuous", "rate": { "type": "pps", "value": 1000 } });
        goes_on["flow_stats"]["stream_id"] = json!(8);
        add(&mut client, "a", 1, &burst(200));
        add(&mut client, "a", 2, &goes_on);
        start(&mut client, "a");
        until(&mut client, "the burst", |client| packets(client, 7) == (200, 200));
        let before = packets(&client, 8).0;
        // Longer than the frames for which the run has opened its ports.
        let mut long = burst(10);
        long["packet"]["binary"] = tcp(3000);
        long["flow_stats"]["stream_id"] = json!(9);
        add(&mut client, "b", 1, &long);
        start(&mut client, "b");
        until(&mut client, "the long ones", |client| {
            client.server.look();
            packets(client, 9) == (10, 10) && packets(client, 8).0 > before + 500
        });
        assert_eq!(packets(&client, 7), (200, 200), "it was sent again");
    }

    #[test]
    fn a_burst_of_a_run_that_has_ended_is_not_sent_again_by_the_next() {
        let mut client = Client::new("trex-next", false);
        client.owned = client.acquire("ann", 1, false).expect("free");
        add(&mut client, "a", 1, &burst(50));
        let mut other = burst(30);
        other["flow_stats"]["stream_id"] = json!(8);
        add(&mut client, "b", 1, &other);
        start(&mut client, "a");
        // The profile stays active until the next poll.
        until(&mut client, "the run", |client| client.server.traffic.is_over());
        start(&mut client, "b");
        until(&mut client, "both", |client| {
            client.server.look();
            !client.server.sends(0)
        });
        assert_eq!((packets(&client, 7), packets(&client, 8)), ((50, 50), (30, 30)));
    }

    #[test]
    fn groups_have_the_lowest_free_number_in_marks() {
        let mut numbers = GroupNumbers::default();
        let mut take =
            |group, counted| numbers.take(translate::Asked { stream: 0, group, counted });
        assert_eq!([take(7, false), take(9, true), take(7, false)], [0, 1, 0].map(Some));
        // A group's own number can be used by only one counted stream; its other streams get
        // different numbers.
        assert_eq!([take(7, true), take(7, true), take(9, true)], [0, 2, 3].map(Some));
        assert!((4..1023).all(|number| take(100 + number, false) == Some(number as u16)));
        assert_eq!((take(5000, false), take(7, true), take(7, false)), (None, None, Some(0)));
    }

    fn a_burst_counts(mut client: Client) -> Client {
        assert!(client.events().is_empty());
        client.owned = client.acquire("ann", 1, false).expect("free");
        let stream = json!({ "port_id": 0, "stream_id": 3, "stream": burst(200) });
        client.ask("add_stream", stream.clone()).expect("sound");
        assert!(client.ask("add_stream", stream).expect_err("again").text.contains("exists"));
        let mul = json!({ "type": "raw", "op": "abs", "value": 2 });
        let start = json!({ "port_id": 0, "mul": mul, "duration": -1 });
        client.ask("start_traffic", start).expect("it starts");
        assert_eq!(
            client.ask("get_port_status", json!({ "port_id": 0 })).expect("known")["state"],
            "TX"
        );
        let until = Instant::now() + Duration::from_secs(60);
        let mut events = Vec::new();
        while !events.contains(&4) && Instant::now() < until {
            client.server.look();
            events.extend(client.events());
        }
        assert_eq!(events, [5, 10, 0, 14, 4]);
        let sent = client.ask("get_port_stats", json!({ "port_id": 0 })).expect("known");
        let came = client.ask("get_port_stats", json!({ "port_id": 1 })).expect("known");
        assert_eq!((&sent["opackets"], &came["ipackets"]), (&json!(200), &json!(200)));
        assert_eq!((&sent["obytes"], &came["ibytes"]), (&json!(200 * 94), &json!(200 * 94)));
        let group = client.ask("get_pgid_stats", json!({ "pgids": [7, 8] })).expect("known");
        assert_eq!(
            (&group["flow_stats"]["7"]["tp"]["0"], &group["flow_stats"]["7"]["rp"]["1"]),
            (&json!(200), &json!(200))
        );
        let octets = &group["flow_stats"]["7"];
        assert_eq!((&octets["tb"]["0"], &octets["rb"]["1"]), (&json!(200 * 94), &json!(200 * 94)));
        assert_eq!(group["latency"]["7"]["er"]["drp"], 0);
        assert!(group["flow_stats"].get("8").is_none());
        client
    }

    #[test]
    fn ports_belong_to_their_owners_and_errors_name_the_reason() {
        let mut client = Client::new("trex-owners", false);
        let mine = client.acquire("ann", 1, false).expect("free");
        assert!(client.acquire("bob", 2, false).expect_err("taken").text.contains("ann"));
        assert!(
            client
                .ask("release", json!({ "port_id": 0, "handler": "x" }))
                .expect_err("whose")
                .text
                .contains("ann")
        );
        client.acquire("bob", 2, true).expect("by force");
        assert!(client.ask("release", json!({ "port_id": 0, "handler": mine })).is_err());
        assert_eq!(
            client.ask("get_port_status", json!({ "port_id": 2 })).expect_err("two ports").code,
            -32602
        );
        assert_eq!(client.ask("tea", json!({})).expect_err("unknown").code, -32601);
        client.owned = client.acquire("bob", 2, true).expect("bob's");
        let capture = json!({ "command": "start", "limit": 10, "tx": [], "rx": [0] });
        let why = client.ask("capture", capture.clone()).expect_err("no service mode");
        assert!(why.text.contains("service mode"), "{why:?}");
        let batch = json!({ "port_id": 0, "batch": "[]" });
        let why = client.ask("conf_ns_batch", batch).expect_err("no interface");
        assert!(why.text.contains("no network interface"), "{why:?}");
        client.ask("service", json!({ "port_id": 0, "enabled": true })).expect("its own");
        let why = client.ask("capture", capture).expect_err("no interface");
        assert!(why.text.contains("no network interface"), "{why:?}");
        let pushed =
            |binary: &str| json!({ "port_id": 0, "ipg_usec": 1, "pkts": [{ "binary": binary }] });
        let why = client.ask("push_pkts", pushed("?")).expect_err("not base 64");
        assert!(why.text.contains("packet 0: binary"), "{why:?}");
        let sent = client.ask("push_pkts", pushed(&"A".repeat(80))).expect("sent");
        assert_eq!(sent["sent"], json!(1));
        let remote = json!({
            "port_id": 0, "pcap_filename": "/nowhere.pcap", "ipg_usec": -1, "speedup": 1.0,
            "count": 1, "duration": -1, "is_dual": false, "min_ipg_usec": 0,
        });
        let why = client.ask("push_remote", remote).expect_err("no file");
        assert!(why.text.contains("nowhere.pcap"), "{why:?}");
        client.handle = json!("wrong");
        assert!(
            client.ask("get_system_info", json!({})).expect_err("no handle").text.contains("API")
        );
        let old = json!({ "name": "STL", "major": 4, "minor": 0 });
        assert!(client.ask("api_sync_v2", old).is_err());
    }

    #[test]
    fn ports_of_vxlan_are_refused_with_the_drivers_that_trex_refuses_them_with() {
        let mut client = Client::new("trex-vxlan", false);
        client.owned = client.acquire("ann", 1, false).expect("free");
        let set = |client: &mut Client, ports: Value| {
            client.ask("set_port_attr", json!({ "port_id": 0, "attr": { "vxlan_fs": ports } }))
        };
        let why = set(&mut client, json!([4789])).expect_err("another driver");
        assert!(why.text.contains("net_ring") && why.text.contains("net_i40e"), "{why:?}");
        set(&mut client, json!([])).expect("none");
        let info = &mut client.server.ports[0].info;
        (info.address, info.driver) = ("dpdk:0000:05:00.0".into(), VXLAN_DRIVER.into());
        assert!(set(&mut client, json!([0])).is_err());
        set(&mut client, json!([4789])).expect("its driver");
        let status = client.ask("get_port_status", json!({ "port_id": 0 })).expect("known");
        assert_eq!(status["attr"]["vxlan_fs"], json!([4789]));
    }

    /// Clients that send 4 octets and receive 6, ten times a second.
    pub(crate) fn datagrams(ask: &Value) -> Value {
        let programs = json!([
            { "stream": false, "commands": [ask, { "name": "rx_msg", "min_pkts": 1 },
                { "name": "add_stats", "stats_id": 2, "val": 5 }] },
            { "stream": false, "commands": [{ "name": "rx_msg", "min_pkts": 1 },
                { "name": "tx_msg", "buf_index": 1 }] }
        ]);
        let ips = |start: &str, end: &str| json!({ "ip_start": start, "ip_end": end, "distribution": "seq" });
        json!({
            "buf_list": ["YXNrIQ==", "YW5zd2Vy"],
            "ip_gen_dist_list": [ips("16.0.0.1", "16.0.0.9"), ips("48.0.0.1", "48.0.0.9")],
            "program_list": programs,
            "templates": [{
                "client_template": { "program_index": 0, "port": 80, "cps": 10, "cluster": {},
                    "ip_gen": { "dist_client": { "index": 0 }, "dist_server": { "index": 1 } } },
                "server_template": { "program_index": 1, "assoc": [{ "port": 80 }] }
            }],
            "tg_names": []
        })
    }

    pub(in crate::server) fn load(client: &mut Client, profile: &Value) -> Result<Value, Refusal> {
        let text = profile.to_string();
        let (one, other) = text.split_at(text.len() / 2);
        let first = json!({ "profile_id": "_", "fragment": one, "frag_first": true, "md5": "sum" });
        if client.ask("profile_fragment", first)?.get("matches_loaded").is_some() {
            return Ok(json!("the same"));
        }
        let last = json!({ "profile_id": "_", "fragment": other, "frag_last": true });
        client.ask("profile_fragment", last)
    }

    /// A client that owns all ports of a server in ASTF mode.
    pub(in crate::server) fn of_flows(name: &str) -> Client {
        let mut client = Client::new(name, true);
        let asked = json!({ "user": "ann", "session_id": 1, "force": false });
        client.owned = client.ask("acquire", asked).expect("free")["handler"].clone();
        client
    }

    /// Waits until the profile has been played; fails after a time limit.
    fn until_it_is_over(client: &mut Client) {
        let until = Instant::now() + Duration::from_secs(60);
        let plays = |client: &mut Client| {
            client.server.look();
            let known = client.ask("sync", json!({})).expect("known");
            known["state_profile"]["_"] != json!(1)
        };
        while plays(client) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Plays [`datagrams`] for a second. Returns the octets of a packet on port 0, and the numbers of
    /// flows of clients and of servers.
    pub(in crate::server) fn play_datagrams(client: &mut Client) -> [u64; 3] {
        let sent = |client: &mut Client| {
            let of = client.ask("get_port_stats", json!({ "port_id": 0 })).expect("known");
            ["opackets", "obytes"].map(|name| of[name].as_u64().expect("a number"))
        };
        let [packets, octets] = sent(client);
        let start = json!({ "profile_id": "_", "mult": 4.0, "duration": 1.0, "nc": true });
        client.ask("start", start).expect("it starts");
        until_it_is_over(client);
        let [now, octets_now] = sent(client);
        let [clients, servers] = counters(client);
        let number =
            |of: &Map<String, Value>, name: &str| of.get(name).and_then(Value::as_u64).unwrap_or(0);
        let [begun, accepted] =
            [number(&clients, "udps_connects"), number(&servers, "udps_accepts")];
        assert!(begun > 0 && now > packets, "{clients:?}");
        [(octets_now - octets) / (now - packets), begun, accepted]
    }

    /// Counters of clients and servers, by name.
    fn counters(client: &mut Client) -> [Map<String, Value>; 2] {
        let profile = json!({ "profile_id": "_" });
        let described = client.ask("get_counter_desc", profile.clone()).expect("known");
        let values = client.ask("get_counter_values", profile).expect("known");
        ["client", "server"].map(|side| {
            let described = described["data"].as_array().expect("a list").iter();
            let named = |counter: &Value| {
                let name = counter["name"].as_str().expect("a name").to_owned();
                let value = values[side].get(counter["id"].to_string())?;
                Some((name, value.clone()))
            };
            described.filter_map(named).collect()
        })
    }

    #[test]
    fn flows_are_loaded_in_parts_played_and_counted_at_both_ends() {
        let mut client = of_flows("trex-flows");
        let ask = json!({ "name": "tx_msg", "buf_index": 0 });
        assert_eq!(load(&mut client, &datagrams(&ask)).expect("sound"), json!({}));
        assert_eq!(load(&mut client, &datagrams(&ask)).expect("sound"), json!("the same"));
        let start = json!({ "profile_id": "_", "mult": 2.0, "duration": 1.0, "nc": false });
        client.ask("start", start.clone()).expect("it starts");
        assert!(client.ask("start", start.clone()).is_err(), "it is active");
        until_it_is_over(&mut client);
        let [clients, servers] = counters(&mut client);
        // A busy machine skips arrivals, so the number is not exact.
        let begun = clients["udps_connects"].as_u64().expect("a number");
        assert!((1..=20).contains(&begun), "{clients:?}");
        for (one, other) in [
            ("udps_connects", "udps_accepts"),
            ("udps_sndbyte", "udps_rcvbyte"),
            ("udps_rcvbyte", "udps_sndbyte"),
        ] {
            assert_eq!(clients[one], servers[other], "{one}: {clients:?} {servers:?}");
        }
        assert_eq!(servers["udps_sndbyte"], json!(6 * begun));
        let profile = json!({ "profile_id": "_" });
        let described = client.ask("get_dynamic_counter_desc", profile.clone()).expect("known");
        assert_eq!(described["data"][2]["name"], json!("C"));
        for method in ["get_dynamic_counter_values", "get_total_dynamic_counter_values"] {
            let values = client.ask(method, profile.clone()).expect("known");
            assert_eq!(values["client"], json!({ "2": 5 * begun }), "{method}");
            assert_eq!(values["server"], json!({}), "{method}");
        }
    }

    /// A port of a server.
    fn port(address: &str, number: u8, dummy: bool) -> PortInfo {
        PortInfo {
            address: address.into(),
            description: "loop".into(),
            mac: MacAddr([2, 0, 0, 0, 0, number]),
            speed_bps: Some(1e9),
            longest: 1518,
            numa: None,
            driver: String::new(),
            bus: String::new(),
            dummy,
        }
    }

    /// A client that owns the given ports of a server in ASTF mode.
    fn of_ports(ports: Vec<PortInfo>, cores: Option<u32>) -> Client {
        let mut client = Client::on(ports, Some(FlowMode { cores }), false);
        let asked = json!({ "user": "ann", "session_id": 1, "force": false });
        client.owned = client.ask("acquire", asked).expect("free")["handler"].clone();
        client
    }

    /// [`datagrams`] whose addresses are moved for each further pair of ports.
    fn moved() -> Value {
        let mut profile = datagrams(&json!({ "name": "tx_msg", "buf_index": 0 }));
        for pool in profile["ip_gen_dist_list"].as_array_mut().expect("a list") {
            pool["ip_offset"] = json!("1.0.0.0");
        }
        profile
    }

    #[test]
    fn pairs_of_ports_share_a_profile_and_each_port_counts_its_part() {
        let ends = [("loop:trex-pair-1", 0), ("loop:trex-pair-1", 1)];
        let more = [("loop:trex-pair-2", 2), ("loop:trex-pair-2", 3)];
        let ports = ends.into_iter().chain(more).map(|(link, n)| port(link, n, false));
        let mut client = of_ports(ports.collect(), Some(1));
        let info = client.ask("get_system_info", json!({})).expect("known");
        assert_eq!((&info["port_count"], &info["dp_core_count"]), (&json!(4), &json!(2)));
        assert_eq!([0, 1, 2, 3].map(|n| info["ports"][n]["cores"][0].clone()), [0, 0, 1, 1]);
        let asked = json!({ "start_ip": "16.0.0.1", "end_ip": "16.0.0.9", "dual_ip": "1.0.0.0",
            "seq_split": false });
        let range = |first: &str, last: &str| json!({ "start": first, "end": last });
        assert_eq!(
            client.ask("get_traffic_dist", asked).expect("known"),
            json!({ "0": { "0": range("16.0.0.1", "16.0.0.4") },
                "2": { "1": range("17.0.0.5", "17.0.0.9") } })
        );
        load(&mut client, &moved()).expect("sound");
        let start = json!({ "profile_id": "_", "mult": 4.0, "duration": 1.0, "nc": false,
            "latency_pps": 50.0 });
        client.ask("start", start).expect("it starts");
        until_it_is_over(&mut client);
        let [clients, servers] = counters(&mut client);
        let begun = clients["udps_connects"].as_u64().expect("a number");
        // The pairs share 40 flows; a busy machine skips some.
        assert!((2..=40).contains(&begun), "{clients:?}");
        assert_eq!(servers["udps_accepts"], json!(begun));
        assert_eq!(servers["udps_rcvbyte"], clients["udps_sndbyte"]);
        let counts = [0, 1, 2, 3].map(|port| {
            let of = client.ask("get_port_stats", json!({ "port_id": port })).expect("known");
            ["opackets", "ipackets"].map(|name| of[name].as_u64().expect("a number"))
        });
        let latency = client.ask("get_latency_stats", json!({})).expect("known");
        for pair in [0, 2] {
            let [[sent, came], [answered, asked]] = [counts[pair], counts[pair + 1]];
            assert!(sent > 0 && sent == asked && came == answered, "pair {pair}: {counts:?}");
            for port in [pair, pair + 1] {
                let of = |port: usize| &latency["data"][format!("port-{port}")]["stats"];
                // A busy machine may end the two directions a frame apart.
                assert_eq!(of(port)["m_pkt_ok"], of(port ^ 1)["m_tx_pkt_ok"], "{latency}");
                assert!(of(port)["m_pkt_ok"].as_u64() > Some(0), "{latency}");
            }
        }
    }

    #[test]
    fn a_dummy_port_is_the_external_end_of_the_flows_of_its_pair() {
        let link = "loop:trex-external";
        let dummy = |number| port("null:", number, true);
        // The servers of the second pair are external to the clients of the first.
        let ports = vec![port(link, 0, false), dummy(1), dummy(2), port(link, 3, false)];
        let mut client = of_ports(ports, None);
        let info = client.ask("get_system_info", json!({})).expect("known");
        let indices = [0, 1].map(|n| info["ports"][n]["index"].clone());
        assert_eq!((&info["port_count"], indices), (&json!(2), [json!(0), json!(3)]));
        let why = client.ask("get_port_stats", json!({ "port_id": 1 })).expect_err("a dummy");
        assert!(why.text.contains("dummy"), "{why:?}");
        let mut profile = datagrams(&json!({ "name": "tx_msg", "buf_index": 0 }));
        for pool in profile["ip_gen_dist_list"].as_array_mut().expect("a list") {
            pool["per_core_distribution"] = json!("seq");
        }
        load(&mut client, &profile).expect("sound");
        let start = |latency: f64| {
            json!({ "profile_id": "_", "mult": 4.0, "duration": 1.0, "nc": false,
                "latency_pps": latency })
        };
        let why = client.ask("start", start(10.0)).expect_err("no pair has two ports");
        assert!(why.text.contains("dummy"), "{why:?}");
        client.ask("start", start(0.0)).expect("it starts");
        until_it_is_over(&mut client);
        let [clients, servers] = counters(&mut client);
        assert!(clients.contains_key("udps_connects"), "{clients:?}");
        for (one, other) in [
            ("udps_connects", "udps_accepts"),
            ("udps_sndbyte", "udps_rcvbyte"),
            ("udps_rcvbyte", "udps_sndbyte"),
        ] {
            assert_eq!(clients.get(one), servers.get(other), "{one}: {clients:?} {servers:?}");
        }
        for [from, to] in [[0, 3], [3, 0]] {
            let count = |client: &mut Client, port: u64, name: &str| {
                client.ask("get_port_stats", json!({ "port_id": port })).expect("known")[name]
                    .clone()
            };
            let sent = count(&mut client, from, "opackets");
            assert_eq!(sent, count(&mut client, to, "ipackets"), "from {from} to {to}");
        }
    }

    #[test]
    fn flows_that_flows_begin_are_those_of_their_group() {
        let mut client = of_flows("trex-called");
        let mut profile = datagrams(&json!({ "name": "tx_msg", "buf_index": 0 }));
        // Only the program added here starts the flows of the other group, in a loop without other
        // waits.
        profile["program_list"].as_array_mut().expect("a list").push(json!({
            "stream": false, "commands": [
                { "name": "set_template", "tg_id": 1 },
                { "name": "set_var", "id": 0, "val": 0 },
                { "name": "exec_template" },
                { "name": "add_var", "id": 0, "val": 1 },
                { "name": "jmp_cmp", "id": 0, "cmp_op": "ge", "cmp_val": 7, "offset": 3 },
                { "name": "add_var", "id": 0, "val": 1 },
                { "name": "jmp_cmp", "offset": -2 },
            ]
        }));
        let mut first = profile["templates"][0].clone();
        first["client_template"]["program_index"] = json!(2);
        let part = &mut profile["templates"][0];
        part["client_template"].as_object_mut().expect("an object").remove("cps");
        part["tg_id"] = json!(1);
        profile["templates"].as_array_mut().expect("a list").push(first);
        profile["tg_names"] = json!(["part"]);
        assert_eq!(load(&mut client, &profile).expect("sound"), json!({}));
        let start = json!({ "profile_id": "_", "mult": 2.0, "duration": 1.0, "nc": false });
        client.ask("start", start).expect("it starts");
        until_it_is_over(&mut client);
        // Flows of the first template send nothing, so no server accepts them.
        let [clients, servers] = counters(&mut client);
        let parts = servers["udps_accepts"].as_u64().expect("a number");
        assert_eq!(clients["udps_connects"], json!(2 * parts), "{clients:?} {servers:?}");
        let groups = client.ask("get_tg_names", json!({ "profile_id": "_" })).expect("known");
        let own = &groups["tg_addon_desc"]["1"][0];
        assert_eq!((&own["name"], groups["tg_names"][0].as_str()), (&json!("C"), Some("part")));
        let asked = json!({ "profile_id": "_", "tg_ids": [1] });
        let of_group = client.ask("get_tg_id_stats", asked).expect("known");
        assert_eq!(of_group["1"]["client"][own["id"].to_string()], json!(5 * parts));
    }

    #[test]
    fn flows_that_cannot_be_are_refused_with_the_place_and_the_reason() {
        let mut client = of_flows("trex-flows-refused");
        for (ask, why) in [
            (json!({ "name": "tx_msg", "buf_index": 9 }), "template 0"),
            (json!({ "name": "dance" }), "dance"),
            (json!({ "name": "set_template", "tg_id": 7 }), "no template is of group 7"),
            (json!({ "name": "jmp_nz", "id": 0, "offset": -99 }), "template 0"),
        ] {
            let refused = load(&mut client, &datagrams(&ask)).expect_err("it cannot be");
            assert!(refused.text.contains(why), "{ask}: {refused:?}");
        }
        let start = json!({ "profile_id": "_", "mult": 1.0, "duration": 1.0 });
        assert!(client.ask("start", start).expect_err("nothing is loaded").text.contains("loaded"));
        let text =
            json!({ "profile_id": "_", "fragment": "{", "frag_first": true, "frag_last": true });
        assert!(client.ask("profile_fragment", text).expect_err("half").text.contains("JSON"));
        let why = client.ask("enable_tpg", json!({})).expect_err("not here");
        assert!(why.code == -32601 && why.text.contains("stateless"), "{why:?}");
    }
}
