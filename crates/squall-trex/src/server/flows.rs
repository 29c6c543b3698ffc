//! TRex's stateful server: profiles of flows, by TRex's methods.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use serde_json::{Map, Value, json};
use squall::{
    Ignored,
    report::{Distribution, Report, StreamReport},
};
use squall_profile::{Arrival, Flows, Located, PacketSource, Pool, Stream, Template};
use squall_units::{Rate, RateUnit};
use squall_wire::Packet;

use super::{
    Answer, DEFAULT, DEFAULT_DESTINATION, Method, Owner, Port, Refusal, Server, counters,
    counters::{Rates, Side},
    fragments::{Fragments, Part},
    id_of,
    open::FlowSnapshots,
    playing::Playing,
    topology::Topology,
    tunnels::{Record, Tunnels},
};
use crate::{
    Astf, FlowMode, FlowSetting,
    astf::without_pair,
    pairs::{FlowPair, FlowPort, Split, ThreadRange},
    rpc::Params,
    traffic::{DelaySource, class_of, idle_stream},
};

/// Highest API version that clients may ask for.
const API: (u64, u64) = (2, 3);
/// Clients poll a profile's state at this interval or longer, and miss a shorter state.
const NOTICED: Duration = Duration::from_millis(100);
/// Default source ports per client.
const PORTS: u64 = 65_535 - 1023;
/// Delays of this length or more count as high.
const HIGH_NS: u64 = 10_000;
/// Octets after the ICMP header of a frame that measures latency.
const PROBE_OCTETS: usize = 36;

/// State of flows, with the numbers that `port_status` uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Idle,
    Loaded,
    Parse,
    Build,
    Tx,
    Cleanup,
    Delete,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Idle | Self::Delete => "IDLE",
            Self::Loaded => "ASTF_LOADED",
            Self::Parse => "ASTF_PARSE",
            Self::Build => "ASTF_BUILD",
            Self::Tx => "TX",
            Self::Cleanup => "ASTF_CLEANUP",
        }
    }
}

/// State of the server in ASTF mode.
#[derive(Default)]
pub struct FlowServer {
    mode: FlowMode,
    /// Handler of the client that owns all ports.
    handler: Option<String>,
    pub profiles: BTreeMap<String, Loaded>,
    /// Number of starts and changes so far. Counters refer to the latest.
    pub epoch: u64,
    /// Profiles whose flows are active.
    pub playing: BTreeMap<String, Playing>,
    /// Whether the run has been asked to end.
    pub ending: bool,
    pub latency: Option<Latency>,
    /// Senders whose frames are ignored, not matched to flows.
    pub ignored: Ignored,
    /// Virtual interfaces and gateways of clients.
    pub topology: Topology,
    pub tunnels: Tunnels,
    /// Client states that were requested but not fetched yet.
    pub clients: Option<Value>,
}

impl FlowServer {
    pub fn new(mode: FlowMode) -> Self {
        Self { mode, ..Self::default() }
    }
}

/// A profile that a client has sent.
pub struct Loaded {
    pub state: State,
    fragments: Fragments,
    pub astf: Option<Astf>,
    /// When the profile is removed.
    gone: Option<Instant>,
    epoch: u64,
    /// Prefix of the profile's template names in the run since the last start, and the final
    /// report.
    mark: String,
    last: Option<Arc<Report>>,
    /// The previous and the latest figures, from which rates are computed.
    before: Option<Seen>,
    now: Option<Seen>,
    pub snapshots: FlowSnapshots,
    /// Time of the last start, and the time from it to the last packet.
    pub began: Option<Instant>,
    lasted: Duration,
}

impl Default for Loaded {
    fn default() -> Self {
        Self {
            state: State::Idle,
            fragments: Fragments::default(),
            astf: None,
            gone: None,
            epoch: 0,
            mark: String::new(),
            last: None,
            before: None,
            now: None,
            snapshots: FlowSnapshots::default(),
            began: None,
            lasted: Duration::ZERO,
        }
    }
}

/// A report, and the time when it was taken.
#[derive(Clone)]
struct Seen {
    at: Instant,
    report: Arc<Report>,
}

impl Loaded {
    /// Resets the figures at a start.
    pub fn begin(&mut self, epoch: u64, mark: String, dump: f64) {
        (self.epoch, self.mark, self.last) = (epoch, mark, None);
        (self.before, self.now) = (None, None);
        (self.began, self.lasted) = (None, Duration::ZERO);
        self.snapshots.begin(dump);
    }

    /// Keeps the final report of the profile.
    pub fn ended(&mut self, report: Arc<Report>) {
        self.lasts(Instant::now(), &report);
        self.last = Some(report);
    }

    /// Extends the duration of traffic to `taken` if the packet count has grown.
    fn lasts(&mut self, taken: Instant, report: &Arc<Report>) {
        let packets = |report: &Report| {
            let all = self.sides(report, |_| true);
            all.iter().map(Side::packets).sum::<u64>()
        };
        let before = self.now.as_ref().map_or(0, |seen| packets(&seen.report));
        if let Some(began) = self.began
            && packets(report) > before
        {
            self.lasted = taken.saturating_duration_since(began);
        }
    }

    /// Counters of clients and of servers, for the templates that `chosen` selects.
    fn sides(&self, report: &Report, chosen: impl Fn(&str) -> bool) -> [Side; 2] {
        let groups = self.astf.iter().flat_map(Astf::groups).filter(|(name, ..)| chosen(name));
        let known: HashMap<String, bool> =
            groups.map(|(name, _, over_udp)| (name, over_udp)).collect();
        // Each pair of ports has its own template.
        let over_udp =
            |name: &str| known.get(without_pair(name.strip_prefix(&self.mark)?)).copied();
        let flows = report.flows.as_ref();
        flows.map(|flows| counters::sides(flows, over_udp)).unwrap_or_default()
    }

    /// Rates since the previous report.
    fn rates(&self, chosen: impl Fn(&str) -> bool) -> [Rates; 2] {
        let (Some(before), Some(now)) = (&self.before, &self.now) else {
            return Default::default();
        };
        let seconds = (now.at - before.at).as_secs_f64().max(1e-3);
        let then = self.sides(&before.report, &chosen);
        let now = self.sides(&now.report, &chosen);
        [0, 1].map(|side: usize| now[side].rates(&then[side], seconds))
    }
}

/// Streams that measure latency during flows, one from each port of a pair.
#[derive(Clone, Debug)]
pub struct Latency {
    pub pps: f64,
    /// The ends in each pair.
    pub ends: Vec<ProbeEnds>,
    /// The ports that send, one bit each.
    pub mask: u64,
    /// Whether these streams begin and end with the flows.
    pub with_flows: bool,
}

/// The ends of latency streams in a pair of ports.
#[derive(Clone, Copy, Debug)]
pub struct ProbeEnds {
    pub client: Ipv4Addr,
    pub server: Ipv4Addr,
    /// The tunnel in which the port of clients and that of servers send, if they do.
    pub tunnels: [Option<Record>; 2],
}

pub const METHODS: &[(&str, Method)] = &[
    ("sync", |s, _, _| Ok(s.flow_sync())),
    ("get_counter_desc", |s, _, p| {
        let epoch = s.flow_epoch(id_of(p));
        Ok(json!({ "data": counters::described(), "name": "flows", "epoch": epoch }))
    }),
    ("get_counter_values", |s, _, p| Ok(s.flow_counters(id_of(p)))),
    ("get_total_counter_values", |s, _, _| Ok(s.flow_totals())),
    ("get_dynamic_counter_desc", |s, _, p| {
        let data = counters::described_of(counters::letters(), 0);
        Ok(json!({ "data": data, "name": "dynamic", "epoch": s.flow_epoch(id_of(p)) }))
    }),
    ("get_dynamic_counter_values", |s, _, p| Ok(s.own_counters(&[id_of(p)]))),
    ("get_total_dynamic_counter_values", |s, _, _| Ok(s.own_counters(&s.flow_profiles()))),
    ("get_tg_names", |s, _, p| s.flow_groups(p)),
    ("get_tg_id_stats", |s, _, p| s.flow_group_stats(p)),
    ("get_flow_info", |s, _, p| s.flow_info(p)),
    ("get_latency_stats", |s, _, _| Ok(s.latency_stats())),
    ("get_traffic_dist", |s, _, p| s.traffic_dist(p)),
    ("topo_get", |s, _, _| Ok(s.topology_get())),
    ("tunnel_topo_get", |s, _, _| Ok(s.tunnels_get())),
    ("get_ignored_macs", |s, _, _| s.ignored_macs()),
    ("get_ignored_ips", |s, _, _| s.ignored_ips()),
    ("set_ignored_macs", |s, _, p| s.ignore_macs(p)),
    ("set_ignored_ips", |s, _, p| s.ignore_ips(p)),
    ("enable_disable_client", |s, _, p| s.enable_clients(p)),
    ("get_clients_info_start", |s, _, p| s.ask_clients(p)),
    ("get_clients_info_pull", |s, _, _| s.pull_clients()),
    // The client sends these without its handler.
    ("activate_tunnel_mode", |s, _, p| s.activate_tunnels(p)),
    ("update_tunnel_client", |s, _, p| s.update_tunnels(p)),
    ("is_tunnel_supported", |_, _, _| Ok(json!({ "is_tunnel_supported": true, "error_msg": "" }))),
];

/// Methods that need the handler of all ports; `acquire` only if it names no port.
pub const OWNED: &[(&str, Method)] = &[
    ("release", |s, _, _| s.flow_release()),
    ("inc_epoch", |s, _, _| {
        if let Some(flows) = &mut s.flows {
            flows.epoch += 1;
        }
        Ok(json!({}))
    }),
    ("profile_fragment", |s, _, p| s.fragment(p)),
    ("profile_clear", |s, _, p| s.flow_clear(p)),
    ("start", |s, _, p| s.flow_start(p)),
    ("stop", |s, _, p| s.flow_stop(p)),
    ("update", |s, _, p| s.flow_update(p)),
    ("get_profile_list", |s, _, _| Ok(json!(s.flow_profiles()))),
    ("service", |s, _, p| s.flow_service(p)),
    ("start_latency", |s, _, p| s.start_latency(p)),
    ("stop_latency", |s, _, _| s.stop_latency()),
    ("update_latency", |s, _, p| s.update_latency(p)),
    ("topo_clear", |s, _, _| s.topology_clear()),
    ("topo_fragment", |s, _, p| s.topology_fragment(p)),
    ("tunnel_topo_clear", |s, _, _| s.tunnels_clear()),
    ("tunnel_topo_fragment", |s, _, p| s.tunnels_fragment(p)),
];

/// TRex methods that are not implemented, with the reason.
pub const REFUSED: &[(&str, &str)] = &[("enable_tpg", NO_TAGS), ("disable_tpg", NO_TAGS)];

/// Why there are no tagged packet groups of flows.
const NO_TAGS: &str = "tagged packet groups are of streams: use the stateless mode";

impl Server {
    pub(super) fn flow_api(name: &str, major: u64, minor: u64) -> Result<(), String> {
        if name != "ASTF" {
            return Err(format!(
                "RPC configuration mismatch - server RPC configuration: 'ASTF', client RPC \
                 configuration: '{name}'"
            ));
        }
        match major == API.0 && minor <= API.1 {
            true => Ok(()),
            false => Err(format!(
                "API version of the client is {major}.{minor}, that of the server {}.{}",
                API.0, API.1
            )),
        }
    }

    /// Checks that a request comes from the owner of all ports.
    pub(super) fn flow_owned(&mut self, params: &Params<'_>) -> Result<(), Refusal> {
        let handler = params.text("handler")?;
        let known = self.flows.as_ref().and_then(|flows| flows.handler.as_deref());
        if known != Some(handler) {
            let owner = self.owner(0);
            return Err(Refusal::failed(match owner {
                "" => "the ports are not acquired by any user".to_owned(),
                owner => format!("the ports are owned by another user: {owner}"),
            }));
        }
        let now = Instant::now();
        for owner in self.ports.iter_mut().filter_map(|port| port.owner.as_mut()) {
            owner.last_seen = now;
        }
        Ok(())
    }

    pub(super) fn flow_acquire(&mut self, params: &Params<'_>) -> Answer {
        let (user, session) = (params.text("user")?.to_owned(), params.whole("session_id")?);
        let force = params.flag("force");
        let other = self.ports.iter().filter_map(|port| port.owner.as_ref());
        if let Some(owner) =
            other.into_iter().find(|owner| owner.user != user || owner.session != session)
            && !force
        {
            return Err(Refusal::failed(format!(
                "the ports are already taken by '{}' session id '{}'",
                owner.user, owner.session
            )));
        }
        self.hold_ports()?;
        let handler = self.secret();
        let mut ports = Map::new();
        for number in self.real_ports() {
            let own = self.secret();
            ports.insert(number.to_string(), json!(own));
            self.ports[number].owner = Some(Owner {
                user: user.clone(),
                session,
                handler: own,
                last_seen: Instant::now(),
            });
            self.event(
                5,
                json!({ "port_id": number, "who": user, "session_id": session, "force": force }),
            );
        }
        if let Some(flows) = &mut self.flows {
            flows.handler = Some(handler.clone());
        }
        Ok(json!({ "handler": handler, "ports": ports }))
    }

    fn flow_release(&mut self) -> Answer {
        for number in 0..self.ports.len() {
            self.released(number);
        }
        if let Some(flows) = &mut self.flows {
            flows.handler = None;
        }
        Ok(json!({}))
    }

    /// The state of all flows together.
    pub(super) fn flow_state(&self) -> Option<State> {
        let flows = self.flows.as_ref()?;
        let states: Vec<State> = flows.profiles.values().map(|profile| profile.state).collect();
        let order =
            [State::Tx, State::Cleanup, State::Delete, State::Build, State::Parse, State::Loaded];
        Some(order.into_iter().find(|state| states.contains(state)).unwrap_or(State::Idle))
    }

    pub(super) fn ignored(&self) -> &Ignored {
        static NONE: LazyLock<Ignored> = LazyLock::new(Ignored::default);
        self.flows.as_ref().map_or(&NONE, |flows| &flows.ignored)
    }

    /// Whether flows are active, or about to be.
    pub(super) fn flows_play(&self) -> bool {
        self.flow_state().is_some_and(|state| state as u8 > State::Loaded as u8)
    }

    pub(super) fn flow_state_name(&self) -> Option<&'static str> {
        self.flow_state().map(State::name)
    }

    fn flow_sync(&self) -> Value {
        let Some(flows) = &self.flows else { return json!({}) };
        let state = self.flow_state().unwrap_or(State::Idle) as u8;
        let mut states: Map<String, Value> = flows
            .profiles
            .iter()
            .map(|(id, profile)| (id.clone(), json!(profile.state as u8)))
            .collect();
        if states.is_empty() {
            states.insert("_".into(), json!(0));
        }
        json!({ "epoch": flows.epoch, "state": state, "state_profile": states })
    }

    fn flow_profiles(&self) -> Vec<String> {
        self.flows.iter().flat_map(|flows| flows.profiles.keys().cloned()).collect()
    }

    pub(super) fn loaded(&mut self, id: &str) -> Result<&mut Loaded, Refusal> {
        let flows = self.flows.as_mut();
        flows
            .and_then(|flows| flows.profiles.get_mut(id))
            .ok_or_else(|| Refusal::failed(format!("profile {id} does not exist")))
    }

    /// Sets a profile's state and sends the event.
    pub(super) fn set_state(&mut self, id: &str, state: State, error: Option<&str>) {
        let Ok(profile) = self.loaded(id) else { return };
        profile.state = state;
        let epoch = self.flows.as_ref().map_or(0, |flows| flows.epoch);
        let mut data = json!({ "profile_id": id, "state": state as u8, "epoch": epoch });
        if let Some(error) = error {
            data["error"] = json!(error);
        }
        self.event(60, data);
        let all = self.flow_state().unwrap_or(State::Idle) as u8;
        let mut data = json!({ "state": all, "epoch": epoch });
        if let Some(error) = error {
            data["error"] = json!(error);
        }
        self.event(50, data);
    }

    fn fragment(&mut self, params: &Params<'_>) -> Answer {
        let id = id_of(params).to_owned();
        let Some(flows) = &mut self.flows else { return Ok(json!({})) };
        let profile = flows.profiles.entry(id.clone()).or_default();
        if profile.state == State::Delete {
            self.cleared(&id);
        }
        let Some(flows) = &mut self.flows else { return Ok(json!({})) };
        let profile = flows.profiles.entry(id.clone()).or_default();
        if !matches!(profile.state, State::Idle | State::Loaded) {
            return Err(Refusal::failed(format!("profile {id} is active: stop it first")));
        }
        let part = profile.fragments.add(params, profile.astf.is_some())?;
        if part == Part::Known {
            return Ok(json!({ "matches_loaded": true }));
        }
        profile.astf = None;
        let Part::Whole(text) = part else { return Ok(json!({})) };
        let value: Value = serde_json::from_str(&text)
            .map_err(|error| Refusal::failed(format!("the profile is no JSON: {error}")))?;
        let astf = Astf::read(&value)?;
        // Translate now, so commands that cannot be translated are reported here and not at the
        // start.
        astf.flows(&FlowSetting::default())?;
        profile.astf = Some(astf);
        profile.fragments.accepted();
        self.set_state(&id, State::Loaded, None);
        Ok(json!({}))
    }

    fn flow_clear(&mut self, params: &Params<'_>) -> Answer {
        let id = id_of(params).to_owned();
        let Ok(profile) = self.loaded(&id) else { return Ok(json!({})) };
        if !matches!(profile.state, State::Idle | State::Loaded) {
            return Err(Refusal::failed(format!("profile {id} is active: stop it first")));
        }
        profile.astf = None;
        profile.fragments = Fragments::default();
        profile.gone = Some(Instant::now() + NOTICED);
        self.set_state(&id, State::Delete, None);
        Ok(json!({}))
    }

    /// Removes a profile.
    fn cleared(&mut self, id: &str) {
        self.set_state(id, State::Idle, None);
        let epoch = self.flow_epoch(id);
        if let Some(flows) = &mut self.flows {
            flows.profiles.remove(id);
        }
        // Clients always know the unnamed profile.
        if id != DEFAULT {
            self.event(61, json!({ "profile_id": id, "epoch": epoch }));
        }
    }

    pub(super) fn clear_due(&mut self) {
        let now = Instant::now();
        let profiles = self.flows.iter().flat_map(|flows| &flows.profiles);
        let due: Vec<String> = profiles
            .filter(|(_, profile)| profile.gone.is_some_and(|gone| now >= gone))
            .map(|(id, _)| id.clone())
            .collect();
        due.iter().for_each(|id| self.cleared(id));
    }

    // Figures

    fn flow_epoch(&self, id: &str) -> u64 {
        let profile = self.flows.as_ref().and_then(|server| server.profiles.get(id));
        profile.map_or(0, |profile| profile.epoch)
    }

    /// The latest report of a profile's flows.
    fn flow_report(&self, id: &str) -> Option<Arc<Report>> {
        match self.has_open_flows(id) {
            true => self.traffic.latest_report(),
            false => self.profile(id)?.last.clone(),
        }
    }

    fn profile(&self, id: &str) -> Option<&Loaded> {
        self.flows.as_ref()?.profiles.get(id)
    }

    fn flow_sides(&self, id: &str, chosen: impl Fn(&str) -> bool) -> [Side; 2] {
        let (report, profile) = (self.flow_report(id), self.profile(id));
        let of = report.as_ref().zip(profile);
        of.map(|(report, profile)| profile.sides(report, chosen)).unwrap_or_default()
    }

    /// Keeps the latest report, from which rates are computed.
    pub(super) fn remember(&mut self, id: &str) {
        let Some(taken) = self.traffic.taken() else { return };
        let is_new = |seen: &Loaded| seen.now.as_ref().is_none_or(|seen| seen.at != taken);
        if !self.profile(id).is_some_and(is_new) {
            return;
        }
        if let (Some(report), Ok(profile)) = (self.traffic.latest_report(), self.loaded(id)) {
            profile.lasts(taken, &report);
            profile.before = profile.now.replace(Seen { at: taken, report });
        }
    }

    fn flow_rates(&self, id: &str, chosen: impl Fn(&str) -> bool) -> [Rates; 2] {
        let Some(profile) = self.profile(id) else { return Default::default() };
        let open = self.has_open_flows(id);
        let rates = if open { profile.rates(chosen) } else { Default::default() };
        rates.map(|rates| rates.lasting(profile.lasted))
    }

    fn flow_counters(&self, id: &str) -> Value {
        self.totals_of(std::slice::from_ref(&id))
    }

    fn flow_totals(&self) -> Value {
        self.totals_of(&self.flow_profiles())
    }

    /// Totals of the given profiles.
    fn totals_of(&self, ids: &[impl AsRef<str>]) -> Value {
        let mut rates = <[Rates; 2]>::default();
        for id in ids.iter().map(AsRef::as_ref) {
            let at = self.flow_rates(id, |_| true);
            [0, 1].into_iter().for_each(|side: usize| rates[side] = rates[side].with(&at[side]));
        }
        let (sides, epoch) = (self.sides_of(ids), self.epoch_of(ids));
        json!({
            "name": "flows", "epoch": epoch,
            "client": sides[0].values(&rates[0]), "server": sides[1].values(&rates[1]),
        })
    }

    fn sides_of(&self, ids: &[impl AsRef<str>]) -> [Side; 2] {
        let mut sides = <[Side; 2]>::default();
        for id in ids {
            let of = self.flow_sides(id.as_ref(), |_| true);
            [0, 1].into_iter().for_each(|side: usize| sides[side].merge(&of[side]));
        }
        sides
    }

    fn epoch_of(&self, ids: &[impl AsRef<str>]) -> u64 {
        ids.iter().map(|id| self.flow_epoch(id.as_ref())).max().unwrap_or(0)
    }

    /// Counters of the programs of the given profiles.
    fn own_counters(&self, ids: &[impl AsRef<str>]) -> Value {
        let values = self.sides_of(ids).map(|side| side.values_of(counters::letters(), 0));
        let [client, server] = values;
        json!({ "name": "dynamic", "epoch": self.epoch_of(ids), "client": client, "server": server })
    }

    fn flow_groups(&self, params: &Params<'_>) -> Answer {
        let id = id_of(params);
        let epoch = self.flow_epoch(id);
        let server = self.flows.as_ref();
        let astf = server.and_then(|server| server.profiles.get(id)?.astf.as_ref());
        let names = astf.map(|astf| astf.tg_names.clone()).unwrap_or_default();
        let own = |group: usize| {
            let counters = astf.into_iter().flat_map(|astf| astf.counters_of(group));
            let described = counters::described_of(counters, counters::COUNTERS.len());
            (group.to_string(), json!(described))
        };
        let own: Map<String, Value> = (0..=names.len()).map(own).collect();
        Ok(json!({ "epoch": epoch, "tg_names": names, "tg_addon_desc": own }))
    }

    fn flow_group_stats(&self, params: &Params<'_>) -> Answer {
        let id = id_of(params);
        let epoch = self.flow_epoch(id);
        let server = self.flows.as_ref();
        let astf = server.and_then(|server| server.profiles.get(id)?.astf.as_ref());
        let Some(astf) = astf else {
            return Err(Refusal::failed(format!("profile {id} is not loaded")));
        };
        let mut all = Map::new();
        all.insert("epoch".into(), json!(epoch));
        for group in params.list("tg_ids")?.iter().filter_map(Value::as_u64) {
            let number = usize::try_from(group).unwrap_or(0);
            let Some(name) = number.checked_sub(1).and_then(|at| astf.tg_names.get(at)) else {
                return Err(Refusal::parameters(format!("there is no template group {group}")));
            };
            let of: Vec<String> = astf
                .groups()
                .filter(|(_, own, _)| *own == number)
                .map(|(template, ..)| template)
                .collect();
            let chosen = |template: &str| of.iter().any(|known| known == template);
            let (sides, rates) = (self.flow_sides(id, chosen), self.flow_rates(id, chosen));
            let [client, server] = [0, 1].map(|side: usize| {
                let own = astf.counters_of(number);
                let mut values = sides[side].values(&rates[side]);
                values.extend(sides[side].values_of(own, counters::COUNTERS.len()));
                values
            });
            all.insert(
                group.to_string(),
                json!({ "epoch": epoch, "name": name, "client": client, "server": server }),
            );
        }
        Ok(Value::Object(all))
    }

    /// Address ranges of clients in active flows.
    pub(super) fn flow_clients(&self) -> Vec<(Ipv4Addr, Ipv4Addr)> {
        let clients = |flows| pools(flows, |template| template.clients);
        let clients = self.playing().flat_map(|(_, active)| clients(&active.flows));
        let ranges = clients.flat_map(|pool| &pool.addresses);
        let of_v4 = |address: &Located| match range(&address.text)? {
            (IpAddr::V4(first), IpAddr::V4(last)) => Some((first, last)),
            _ => None,
        };
        ranges.filter_map(of_v4).collect()
    }

    /// Numbers of open and begun flows, for `get_global_stats`.
    pub(super) fn flow_global(&self) -> FlowFigures {
        let mut all = FlowFigures::default();
        for (id, active) in self.playing() {
            let side = &self.flow_sides(id, |_| true)[0];
            let cps = |template: &Template| match template.arrival {
                Arrival::Cps { cps, .. } => cps,
                _ => 0.0,
            };
            let clients = pools(&active.flows, |template| template.clients);
            let servers = pools(&active.flows, |template| template.servers);
            all.active += side.active();
            all.begun += side.begun();
            all.cps += self.flow_rates(id, |_| true)[0].cps();
            all.expected_cps += active.flows.templates.iter().map(cps).sum::<f64>();
            all.clients += clients.iter().map(|pool| addresses(pool)).sum::<u64>();
            all.servers += servers.iter().map(|pool| addresses(pool)).sum::<u64>();
            all.sockets += clients.iter().map(|pool| addresses(pool) * ports(pool)).sum::<u64>();
        }
        all
    }

    /// The clients of each core of each pair of ports, by the port.
    fn traffic_dist(&self, params: &Params<'_>) -> Answer {
        let address = |key: &str| -> Result<u32, Refusal> {
            let text = params.text(key)?;
            let wrong =
                |_| Refusal::parameters(format!("{key} = {text:?}: expected an IPv4 address"));
            text.parse::<Ipv4Addr>().map(u32::from).map_err(wrong)
        };
        let (first, last) = (address("start_ip")?, address("end_ip")?);
        let offset = address("dual_ip")?;
        if first > last {
            return Err(Refusal::parameters("end_ip is before start_ip"));
        }
        let (split, per_core) = (self.split(), params.flag("seq_split"));
        let of_pair = |port: usize| {
            let range = (first.into(), last.into());
            let all = split.ranges(range, offset.into(), per_core, port as u32 / 2);
            let core = |of: ThreadRange| {
                let range = json!({ "start": of.first.to_string(), "end": of.last.to_string() });
                (of.thread.to_string(), range)
            };
            (port.to_string(), Value::Object(all.into_iter().map(core).collect()))
        };
        let clients = self.real_ports().into_iter().filter(|port| port % 2 == 0);
        Ok(Value::Object(clients.map(of_pair).collect()))
    }

    // Pairs of ports and cores

    /// Ports that are not dummies.
    pub(super) fn real_ports(&self) -> Vec<usize> {
        (0..self.ports.len()).filter(|port| !self.ports[*port].info.dummy).collect()
    }

    /// The ports of clients, without dummies.
    pub(super) fn ports_of_clients(&self) -> Vec<usize> {
        self.real_ports().into_iter().filter(|port| port.is_multiple_of(2)).collect()
    }

    /// The pairs of ports with the settings that clients have made.
    pub(super) fn pairs(&self) -> Vec<FlowPair> {
        let end = |port: usize| {
            let of = self.ports.get(port).filter(|of| !of.info.dummy)?;
            let alone = self.ports.get(port ^ 1).is_none_or(|peer| peer.info.dummy);
            // Peers of an external end are found by ARP and by their frames, unless a client has
            // set a destination.
            let next_hop =
                (!alone || of.destination != DEFAULT_DESTINATION).then_some(of.destination);
            let vlan = of.vlan.first().map(|id| *id as u16);
            let topology = self.flows.as_ref().map(|server| &server.topology);
            let interfaces = topology.map(|topology| topology.interfaces(port, vlan));
            let of_topology = interfaces.into_iter().flatten();
            let interfaces = of_topology.chain(self.reserved(port, vlan)).collect();
            Some(FlowPort { port, mac: Some(of.info.mac), next_hop, vlan, interfaces })
        };
        let first = (0..self.ports.len()).step_by(2);
        first.map(|port| FlowPair { clients: end(port), servers: end(port + 1) }).collect()
    }

    fn flow_cores(&self) -> Option<u32> {
        self.flows.as_ref().and_then(|flows| flows.mode.cores)
    }

    pub(super) fn split(&self) -> Split {
        let pairs = self.ports.len().div_ceil(2) as u32;
        Split { pairs, cores: self.flow_cores().unwrap_or(1) }
    }

    /// Threads of a run; `None`: the default.
    pub(super) fn flow_threads(&self) -> Option<usize> {
        let split = self.split();
        self.flow_cores().map(|cores| (cores * split.pairs) as usize)
    }

    /// The number of cores, and of those of each port, in TRex's terms.
    pub(super) fn core_counts(&self) -> (u32, u32) {
        match &self.flows {
            Some(_) => (self.split().cores * self.split().pairs, self.split().cores),
            None => (1, 1),
        }
    }

    /// Numbers of the cores of a port, in TRex's terms.
    pub(super) fn cores_of(&self, port: usize) -> Vec<u32> {
        match &self.flows {
            Some(_) => self.split().threads_of(port as u32 / 2).collect(),
            None => vec![0],
        }
    }

    // Latency

    pub(super) fn set_latency(&mut self, latency: Option<Latency>) -> Result<(), Refusal> {
        if let Some(latency) = &latency
            && !(latency.pps.is_finite() && (0.001..=1e6).contains(&latency.pps))
        {
            return Err(Refusal::parameters(format!(
                "{} packets/s for latency: expected 0.001 to 1,000,000",
                latency.pps
            )));
        }
        if latency.is_some() && !self.pairs().iter().any(FlowPair::is_whole) {
            return Err(Refusal::failed(
                "latency is measured between the two ports of a pair, and one of them is a dummy",
            ));
        }
        if let Some(server) = &mut self.flows {
            server.latency = latency;
        }
        Ok(())
    }

    fn start_latency(&mut self, params: &Params<'_>) -> Answer {
        let pps = params.number("mult")?;
        let address = |key: &str| {
            params
                .text(key)?
                .parse()
                .map_err(|_| Refusal::parameters(format!("{key}: expected an IPv4 address")))
        };
        let offset = |key: &str| match params.get(key) {
            Some(_) => address(key),
            None => Ok(Ipv4Addr::UNSPECIFIED),
        };
        let client = (address("src_addr")?, offset("dual_port_addr")?);
        let server = (address("dst_addr")?, offset("port_s_offset")?);
        let at = |(first, offset): (Ipv4Addr, Ipv4Addr), pair: u32| {
            let moved = pair.wrapping_mul(offset.into());
            Ipv4Addr::from(u32::from(first).wrapping_add(moved))
        };
        let ends =
            (0..self.split().pairs).map(|pair| [at(client, pair), at(server, pair)]).collect();
        let mask = params.get("mask").and_then(Value::as_u64).unwrap_or(u64::MAX);
        if self.flows_are_active() {
            return Err(Refusal::failed(
                "streams for latency are added when flows start: use latency_pps of start",
            ));
        }
        let ends = self.probe_ends(ends)?;
        self.set_latency(Some(Latency { pps, ends, mask, with_flows: false }))?;
        self.play()?;
        Ok(json!({}))
    }

    fn stop_latency(&mut self) -> Answer {
        let was = self.flows.as_ref().is_some_and(|server| server.latency.is_some());
        if was && !self.flows_are_active() {
            self.set_latency(None)?;
            self.play()?;
        } else if was {
            // Pause the streams of an active run instead of removing them, which would lose their
            // measurements.
            for probe in self.probes() {
                self.traffic.pause(&probe.name)?;
            }
            self.set_latency(None)?;
        }
        Ok(json!({ "stopped": was }))
    }

    fn update_latency(&mut self, params: &Params<'_>) -> Answer {
        let pps = params.number("mult")?;
        let latency = self.flows.as_ref().and_then(|server| server.latency.clone());
        let Some(latency) = latency else {
            return Err(Refusal::failed("latency is not measured now"));
        };
        if self.flows_are_active() {
            return Err(Refusal::failed("the rate of streams for latency is that of the start"));
        }
        self.set_latency(Some(Latency { pps, ..latency }))?;
        self.play()?;
        Ok(json!({}))
    }

    /// The latency streams of all ports whose pair has both ends here.
    pub(super) fn probes(&self) -> Vec<Stream> {
        let latency = self.flows.as_ref().and_then(|server| server.latency.as_ref());
        let Some(Latency { pps, ends, mask, .. }) = latency else { return Vec::new() };
        let pairs = self.pairs().into_iter().zip(ends).filter(|(pair, _)| pair.is_whole());
        let ports = pairs.flat_map(|(pair, ends)| {
            [pair.clients, pair.servers].into_iter().flatten().map(move |port| (port, *ends))
        });
        let sends = |port: usize| mask.checked_shr(port as u32).is_none_or(|mask| mask & 1 == 1);
        let sending = ports.filter(|(port, _)| sends(port.port));
        sending.map(|(port, ends)| self.probe(&port, *pps, ends)).collect()
    }

    /// A signed echo request.
    fn probe(&self, at: &FlowPort, pps: f64, ends: ProbeEnds) -> Stream {
        let port = at.port;
        let ProbeEnds { client, server, tunnels: [of_client, of_server] } = ends;
        let clients = port.is_multiple_of(2);
        let (from, to, tunnel) =
            if clients { (client, server, of_client) } else { (server, client, of_server) };
        let Port { destination, info, .. } = &self.ports[port];
        let mut layers = vec![format!("eth(dst={destination},src={})", info.mac)];
        layers.extend(at.vlan.map(|id| format!("vlan(id={id})")));
        layers.extend(tunnel.map(|record| record.layers(clients)));
        layers.push(format!("ipv4(src={from},dst={to},ttl=127)/icmp/zeros({PROBE_OCTETS})"));
        let packet = Packet::parse(&layers.join("/")).expect("sound layers");
        Stream {
            packet: PacketSource::Layers(packet),
            rate: Rate { num: (pps * 1e3).round() as u64, den: 1000, unit: RateUnit::Pps },
            latency: true,
            ..idle_stream(port, probe_name(port))
        }
    }

    fn latency_stats(&mut self) -> Value {
        let ports = self.real_ports();
        let recent: Vec<f64> = ports.iter().map(|port| self.recent_delay(*port)).collect();
        let report = self.latency_report();
        let server = self.flows.as_ref();
        let report = report.as_deref();
        let stream = |port: usize| probe_of(report?, port);
        let of_port = |port: usize| report?.ports.get(port);
        let mut data = Map::new();
        data.insert("epoch".into(), json!(server.map_or(0, |server| server.epoch)));
        for (port, recent) in ports.into_iter().zip(recent) {
            let sent = stream(port).map_or(0, |stream| stream.tx_packets);
            let rx = stream(port ^ 1).and_then(|stream| stream.rx.as_ref());
            let delay = rx.and_then(|rx| rx.latency_ns.as_ref());
            let micros = |of: fn(&Distribution) -> f64| delay.map_or(0.0, |delay| of(delay) / 1e3);
            let mut classes = BTreeMap::<u64, u64>::new();
            for (lower, _, n) in delay.into_iter().flat_map(|delay| &delay.bins) {
                *classes.entry(class_of(lower / 1000)).or_default() += n;
            }
            // TRex excludes delays below 10 us from this histogram: `cnt` less `high_cnt`.
            classes.remove(&0);
            let bins: Vec<Value> =
                classes.iter().map(|(key, n)| json!({ "key": key, "val": n })).collect();
            let (max, mean) = (micros(|d| d.max as f64), micros(|d| d.mean));
            data.insert(
                format!("port-{port}"),
                json!({
                    "hist": {
                        "cnt": delay.map_or(0, |delay| delay.count),
                        "high_cnt": delay.map_or(0, high),
                        "min_usec": micros(|d| d.min as f64), "max_usec": max,
                        "s_max": recent,
                        "s_avg": mean, "histogram": bins,
                    },
                    "stats": {
                        "m_tx_pkt_ok": sent, "m_pkt_ok": rx.map_or(0, |rx| rx.packets),
                        "m_jitter": rx.and_then(|rx| rx.jitter_ns).unwrap_or(0.0) / 1e3,
                        "m_seq_error": rx.map_or(0, |rx| rx.lost + rx.reordered),
                        "m_tx_pkt_err": of_port(port).map_or(0, |port| port.tx.errors),
                        // A frame that is invalid in any way has no valid signature.
                        "m_no_magic": of_port(port).map_or(0, |port| port.rx.unsigned_packets),
                        "m_unsup_prot": 0, "m_no_id": 0, "m_length_error": 0,
                        "m_no_ipv4_option": 0, "m_l3_cs_err": 0, "m_l4_cs_err": 0,
                    },
                }),
            );
        }
        json!({ "data": data })
    }

    /// The report with the latest figures of the latency streams.
    fn latency_report(&self) -> Option<Arc<Report>> {
        self.traffic.latest_report().or_else(|| {
            let profiles = self.flows.as_ref()?.profiles.values();
            profiles.max_by_key(|profile| profile.epoch)?.last.clone()
        })
    }

    /// The longest delay at a port since the last request, microseconds.
    fn recent_delay(&mut self, port: usize) -> f64 {
        let report = self.latency_report();
        let stream = report.as_ref().and_then(|report| probe_of(report, port ^ 1));
        let Some(delay) = stream.and_then(|stream| stream.rx.as_ref()?.latency_ns.as_ref()) else {
            return 0.0;
        };
        self.traffic.recent_max(DelaySource::Probe(port), delay.max as f64 / 1e3, &delay.bins)
    }
}

/// Packets with a delay that TRex counts as high.
fn high(delay: &Distribution) -> u64 {
    delay.bins.iter().filter(|(lower, ..)| *lower >= HIGH_NS).map(|(.., n)| n).sum()
}

fn probe_of(report: &Report, port: usize) -> Option<&StreamReport> {
    let name = probe_name(port);
    report.streams.iter().find(|stream| stream.name == name)
}

/// Figures of the active flows.
#[derive(Default)]
pub struct FlowFigures {
    /// Number of active flows, counted at the clients.
    pub active: u64,
    pub begun: u64,
    pub cps: f64,
    pub expected_cps: f64,
    /// Number of client and server addresses.
    pub clients: u64,
    pub servers: u64,
    /// Number of ports of all clients.
    sockets: u64,
}

impl FlowFigures {
    /// Percentage of the clients' ports in use.
    pub fn used_sockets(&self) -> f64 {
        self.active as f64 / self.sockets.max(1) as f64 * 100.0
    }
}

/// The pools of all templates, without duplicates.
fn pools(flows: &Flows, of: fn(&Template) -> usize) -> Vec<&Pool> {
    let numbers: BTreeSet<usize> = flows.templates.iter().map(of).collect();
    numbers.into_iter().filter_map(|number| flows.pools.get(number)).collect()
}

/// Parses a range to its first and last address.
pub fn range(text: &str) -> Option<(IpAddr, IpAddr)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
}

fn addresses(pool: &Pool) -> u64 {
    let number = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => u128::from(u32::from(ip)),
        IpAddr::V6(ip) => u128::from(ip),
    };
    let count = |text: &str| {
        let (first, last) = range(text)?;
        Some((number(last).checked_sub(number(first))? + 1) as u64)
    };
    pool.addresses.iter().filter_map(|address| count(&address.text)).sum()
}

fn ports(pool: &Pool) -> u64 {
    pool.ports.map_or(PORTS, |(first, last)| u64::from(last.saturating_sub(first)) + 1)
}

fn probe_name(port: usize) -> String {
    format!("latency {port}")
}

/// Addresses of the first client and the first server of each pair; `None` if they use IPv6.
pub fn ends_of(flows: &Flows) -> Option<Vec<[Ipv4Addr; 2]>> {
    (1..=flows.pairs.len() as u16 + 1).map(|pair| ends_of_pair(flows, pair)).collect()
}

fn ends_of_pair(flows: &Flows, pair: u16) -> Option<[Ipv4Addr; 2]> {
    let template = flows.templates.iter().find(|template| template.pair == pair)?;
    let first = |pool: usize| {
        let text = &flows.pools.get(pool)?.addresses.first()?.text;
        text.split('-').next()?.parse().ok()
    };
    Some([first(template.clients)?, first(template.servers)?])
}
